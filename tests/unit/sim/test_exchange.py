"""The stand-ins of two sources on the real apt and dpkg, in a root of their own: both cannot be there, and one call exchanges them."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests import tables
from tests.sim import deb
from tests.unit import apt_root

ROOT = Path(deb.__file__).parents[2]
PLAN = tables.read(ROOT / "tests/sim/packages.yaml")
#: The role's own calls.
ROLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
TRANSACTION = ROLE["__nvidia_driver_transaction"]
#: What a node has of itself.
PRESENT = ("kmod", "python3", "binutils")
UBUNTU = (
    "linux-modules-nvidia-{}-server-open-generic nvidia-headless-no-dkms-{}-server-open nvidia-utils-{}-server "
    "libnvidia-decode-{}-server libnvidia-encode-{}-server"
)
BUILD = "=580.178.04-1ubuntu1"
SETS = {
    "ubuntu 580": UBUNTU.replace("{}", "580"),
    "ubuntu 595": UBUNTU.replace("{}", "595"),
    "nvidia 595": (
        "nvidia-driver-pinning-595 libnvidia-compute nvidia-utils libnvidia-cfg1 libnvidia-decode libnvidia-encode "
        "nvidia-dkms-open"
    ),
    "nvidia 580": (
        f"nvidia-driver-pinning-580{BUILD} libnvidia-compute-580{BUILD} nvidia-utils-580{BUILD} libnvidia-cfg1-580{BUILD} "
        f"libnvidia-decode-580{BUILD} libnvidia-encode-580{BUILD} nvidia-dkms-580-open{BUILD} nvidia-persistenced{BUILD} "
        f"nvidia-modprobe{BUILD}"
    ),
}

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg"))), reason="the real apt and dpkg install the packages"
)


class Machine:
    """A root in which the real apt and dpkg work; the packages have no scripts there."""

    def __init__(self, root: Path, archives: Path) -> None:
        self.root, self.archives = root, archives
        for name in ("info", "updates"):
            (root / "sys/var/lib/dpkg" / name).mkdir(parents=True)
        status = root / "sys/var/lib/dpkg/status"
        status.write_text(apt_root.installed(PRESENT))
        more = {
            "APT::Sandbox::User": "root",
            "Dpkg::Use-Pty": "false",
            "DPkg::Path": apt_root.ENVIRONMENT["PATH"],
            "Dpkg::Options::": f"--root={root}/sys",
        }
        self.options = apt_root.options(root, archives, status, **more)
        self.apt("apt-get", "-q", "update")
        assert self.apt(*TRANSACTION, "install").returncode == 0

    def apt(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(program, *self.options, *words)

    def dpkg(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run("dpkg", f"--root={self.root}/sys", *words)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, check=False, env=apt_root.ENVIRONMENT)

    @property
    def there(self) -> dict[str, tuple[str, str]]:
        """What is there of a driver: version and state by name."""
        return {name: row for name, row in self.all.items() if "nvidia" in name}

    @property
    def all(self) -> dict[str, tuple[str, str]]:
        """The same of every package that came."""
        found = {}
        for stanza in (self.root / "sys/var/lib/dpkg/status").read_text().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
            if fields and fields["Package"] not in PRESENT:
                found[fields["Package"]] = (fields.get("Version", ""), fields["Status"].split()[2])
        return {name: row for name, row in found.items() if row[1] != "not-installed"}

    def has(self, wanted: str) -> None:
        """Bring a set in on a machine without one."""
        done = self.apt(*TRANSACTION, "install", *SETS[wanted].split())
        assert done.returncode == 0, done.stdout + done.stderr

    def becomes(self, fresh: Machine) -> None:
        """Exchange what is there for what a fresh machine has, as the role does: by whole lists, and one call."""
        comes = [f"{name}={version}" for name, (version, _state) in fresh.all.items()]
        leaves = [f"{name}-" for name in self.there if name not in fresh.there]
        done = self.apt(*TRANSACTION, "install", *comes, *leaves)
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.there == fresh.there
        assert {state for _version, state in self.there.values()} == {"installed"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Machine]:
    """Make a machine on which NVIDIA's repository is beside Ubuntu's archive."""
    found = apt_root.stand_ins(PLAN, ("ubuntu2404", "distribution-ubuntu-24.04"))
    archives, stanzas = tmp_path_factory.mktemp("archives"), []
    for package in itertools.chain.from_iterable(found.values()):
        package.scripts = {}
        content = deb.archive(package)
        (archives / package.file_name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        stanzas.append(f"{package.control()}Filename: ./{package.file_name}\nSize: {len(content)}\nSHA256: {digest}\n")
    (archives / "Packages").write_text("\n".join(stanzas))
    return lambda: Machine(tmp_path_factory.mktemp("machine"), archives)


@pytest.mark.parametrize(
    ("old", "new", "file"),
    [
        ("ubuntu 595", "libnvidia-cfg1_595.112.07-1ubuntu1", "libnvidia-cfg.so.1"),
        ("ubuntu 580", "libnvidia-compute-580_580.178.04-1ubuntu1", "libcuda.so.1"),
        ("nvidia 595", "libnvidia-cfg1-595-server_595.71.05-0ubuntu0.24.04.1", "libnvidia-cfg.so.1"),
    ],
)
def test_two_sources_have_files_of_one_name_and_do_not_say_so(
    machine: Callable[[], Machine], old: str, new: str, file: str
) -> None:
    here = machine()
    here.has(old)
    said = here.dpkg("--unpack", str(here.archives / f"{new}_amd64.deb"))
    assert said.returncode != 0
    assert "trying to overwrite" in said.stderr
    assert file in said.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ubuntu 580", "nvidia 595"),
        ("nvidia 595", "ubuntu 580"),
        ("ubuntu 580", "nvidia 580"),
        ("nvidia 580", "ubuntu 580"),
        ("nvidia 580", "nvidia 595"),
        ("ubuntu 580", "ubuntu 595"),
    ],
)
def test_one_call_takes_the_old_set_out_and_puts_the_new_one_in(
    machine: Callable[[], Machine], old: str, new: str
) -> None:
    fresh, here = machine(), machine()
    fresh.has(new)
    here.has(old)
    here.becomes(fresh)


def test_the_same_call_finishes_what_was_cut_off(machine: Callable[[], Machine]) -> None:
    fresh, here = machine(), machine()
    fresh.has("nvidia 595")
    here.has("ubuntu 580")
    gone = ("libnvidia-compute-580-server", "libnvidia-cfg1-580-server", "nvidia-compute-utils-580-server")
    assert here.dpkg("--force-depends", "--remove", *gone).returncode == 0
    for name in ("libnvidia-compute", "libnvidia-cfg1"):
        done = here.dpkg(
            "--force-depends",
            "--force-conflicts",
            "--unpack",
            str(here.archives / f"{name}_595.112.07-1ubuntu1_amd64.deb"),
        )
        assert done.returncode == 0, done.stderr
    assert here.there["libnvidia-compute"][1] == "unpacked"
    here.becomes(fresh)


def test_apt_refuses_every_call_while_it_may_not_finish_a_package_that_was_half_unpacked(
    machine: Callable[[], Machine],
) -> None:
    """Where the wish went back to Ubuntu, NVIDIA's packages are kept from the driver."""
    here = machine()
    here.has("ubuntu 580")
    (here.root / "preferences").write_text("Package: libnvidia-compute\nPin: release *\nPin-Priority: -1\n")
    with (here.root / "sys/var/lib/dpkg/status").open("a") as record:
        record.write(
            "\nPackage: libnvidia-compute\nStatus: install reinstreq half-installed\nArchitecture: amd64\n"
            "Version: 595.112.07-1ubuntu1\n"
        )
    call = [*TRANSACTION, "install", "nvidia-utils-580-server", "libnvidia-compute-"]
    refused = here.apt(*call)
    assert refused.returncode != 0
    assert "can't find an archive" in refused.stderr
    out = here.dpkg(*ROLE["__nvidia_driver_take_out"][1:], "libnvidia-compute")
    assert out.returncode == 0, out.stderr
    assert here.apt(*call[:-1]).returncode == 0
    assert "libnvidia-compute" not in here.there
