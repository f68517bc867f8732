"""A whole run with planted secrets: none is left in the run's folder, its words, the node's logs, a process list or a readable file."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.sim import node, repository, runfile, settings
from tests.sim.engine import docker

from . import snapshot
from .conftest import Node, Run, command_line, environment
from .guarded import MIRROR_HOST, PROXY_HOST, PROXY_PORT, asked, guarded

pytestmark = pytest.mark.sim

USER = "site-reader"
#: Each has characters that look different raw, percent-encoded and in base64, and is this session's own: what another one beside it
#: has in its processes is not ours.
SECRETS = {
    name: f"Pl4nted+{name}={token_hex(3)}"
    for name in ("mirror", "index", "proxy", "vault", "extra", "environment", "sudo", "wrong")
}


def forms(secret: str) -> set[str]:
    """How a secret may stand somewhere: raw, percent-encoded, in base64 wherever in a text it begins."""
    found = {secret, quote(secret, safe="")}
    for before in ("", "x", "xx"):
        encoded = base64.b64encode((before + secret).encode()).decode()
        # Whole groups that hold nothing of what stands around the secret.
        first = {"": 0, "x": 2, "xx": 3}[before]
        found.add(encoded[first : len(encoded) // 4 * 4 - 4])
    return found


FORMS = {form: name for name, secret in SECRETS.items() for form in forms(secret)}


def named(text: str) -> set[str]:
    """The secrets that stand in a text, by their names."""
    return {name for form, name in FORMS.items() if form in text}


def in_folder(folder: Path) -> set[tuple[str, str]]:
    """The secrets that stand in the files of a folder, or in their names."""
    return {
        (str(path.relative_to(folder)), name)
        for path in folder.rglob("*")
        for name in named(str(path) + (snapshot.content(path).decode(errors="replace") if path.is_file() else ""))
    }


#: Where a package manager has a password of a source, and the site the one of its proxy: files that root alone may read.
KEPT = (
    "/etc/apt/auth.conf.d/gpuwright-[^/]+|/etc/dnf/vars/gpuwright_[^/]+|/etc/apt/apt.conf.d/90proxy|/etc/dnf/dnf.conf"
)


def on_node(machine: Node) -> set[tuple[str, str]]:
    """The secrets that stand in the node's journal, its logs, and any other file but those that are for them."""
    # The patterns come by stdin: a command line can be read by everybody.
    look = f"""cat > /root/patterns && chmod 600 /root/patterns
        journalctl --output=export --no-pager > /root/journal.export
        {{ find / /run /tmp /dev/shm -xdev -regextype posix-extended -type f -size -40M \\
            '(' -perm /044 -o '!' -regex '{KEPT}|/root/patterns' ')'
            find /var/log /root/journal.export -type f; }} 2>/dev/null | sort -u \\
            | tr '\\n' '\\0' | xargs -0 grep --with-filename --text --only-matching --fixed-strings --file=/root/patterns
        rm /root/patterns /root/journal.export"""
    done = docker("exec", "-i", settings.container_name(machine.name), "sh", "-c", look, check=False,
                  stdin="\n".join(FORMS).encode())  # fmt: skip
    return {(line.partition(":")[0], FORMS[line.partition(":")[2]]) for line in done.stdout.splitlines()}


class Processes(threading.Thread):
    """Reads the command line and the variables of every process, here and in the nodes' containers, again and again."""

    def __init__(self, except_for: list[str] | None = None) -> None:
        """EXCEPT_FOR: the words that a person wrote, who showed what is in them; a process that was just forked has them too."""
        super().__init__(daemon=True)
        self.found: set[tuple[str, str]] = set()
        self.samples = 0
        self._except_for = " ".join(except_for or ["nothing"])
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    self._read(entry / "cmdline")
                    self._read(entry / "environ")
            self.samples += 1
            time.sleep(0.05)

    def _read(self, path: Path) -> None:
        command = path.with_name("cmdline")
        try:
            # Before and after: one that was just forked has its parent's words still, and one that ended has none any more.
            before = command.read_bytes()
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            shown = named(words)
            if not shown or words.endswith(self._except_for):
                return
            if path.name == "environ":
                shown -= self._theirs(before, command.read_bytes(), *self._ancestors(path.parent))
        except OSError:
            return
        self.found |= {(" ".join(words.split(" ")[:2]), name) for name in shown}

    @staticmethod
    def _ancestors(process: Path) -> Iterator[bytes]:
        """The command lines of those that started a process: what pip starts (`lsb_release`, where it is there) has pip's variables."""
        while process.name not in ("0", "1"):
            parent = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            process = process.with_name(parent)
            if process.is_dir():
                yield (process / "cmdline").read_bytes()

    @staticmethod
    def _theirs(*commands: bytes) -> set[str]:
        """What may stand in variables, which root and the caller alone may read: what the caller set, and of root's pip the proxy."""
        pip = any(b"\0-m\0pip\0" in command for command in commands)
        return {"environment", "proxy"} if pip else {"environment"}

    def stop(self) -> set[tuple[str, str]]:
        self._end.set()
        self.join()
        return self.found


def address(secret: str, user: str = USER) -> str:
    """The guarded mirror with its credentials, as people write it."""
    return f"http://{user}:{quote(secret, safe='')}@{MIRROR_HOST}"


def mirrors(secret: str, index: str) -> dict[str, str]:
    """The mirrors by these passwords; PyTorch's has another than the index that lies below it."""
    base = address(secret)
    return {
        "nvidia": f"{base}/compute/cuda/repos",
        "nvidia-container-toolkit": f"{base}/libnvidia-container/stable/deb",
        "pytorch": f"{base}/whl",
        "pypi": f"{address(index)}/whl/pypi",
    }


class Site:
    """A site that guards its packages, its proxy and root by passwords, and one node of it."""

    def __init__(self, machine: Node, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        proxy = f"http://{USER}:{quote(SECRETS['proxy'], safe='')}@{PROXY_HOST}:{PROXY_PORT}"
        self.root_only("/etc/apt/apt.conf.d/90proxy", f'Acquire::http::Proxy::{MIRROR_HOST} "{proxy}";\n')
        self.root_only("/root/password", f"{settings.NODE_USER}:{SECRETS['sudo']}\n")
        machine.shell(
            f"chpasswd < /root/password; rm /root/password; sed -i s/NOPASSWD:// /etc/sudoers.d/{settings.NODE_USER}"
        )
        # It speaks plain HTTP; the administrator says that pip may use it.
        machine.shell(f"sed -i 's/^trusted-host.*/& {MIRROR_HOST}/' /etc/pip.conf")
        self.inventory = self._inventory()

    def root_only(self, path: str, text: str) -> None:
        """Write a file by stdin: a command line can be read by everybody."""
        words = f"mkdir -p $(dirname {path}); umask 077; cat > {path}"
        docker("exec", "-i", settings.container_name(self.machine.name), "sh", "-c", words, stdin=text.encode())

    def _inventory(self) -> Path:
        """The credentials as a site keeps them: the passwords in a vault beside the inventory."""
        document: dict[str, Any] = yaml.safe_load(node.inventory([self.machine.name]))
        variables = document["all"]["vars"]
        host = document["all"]["hosts"][self.machine.name]
        for place in (variables, host):
            for name in place.get("gpuwright_mirrors") or {}:
                place["gpuwright_mirrors"][name] = place["gpuwright_mirrors"][name].replace(
                    f"http://{settings.REPOSITORY_HOST}",
                    f"http://{USER}:{{{{ vault_mirror_password | urlencode }}}}@{MIRROR_HOST}",
                )
        variables["gpuwright_mirrors"]["pypi"] = (
            f"http://{USER}:{{{{ vault_index_password | urlencode }}}}@{MIRROR_HOST}/whl/pypi"
        )
        variables["ansible_become_password"] = "{{ vault_sudo_password }}"
        (self.folder / "group_vars" / "all").mkdir(parents=True)
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(document))
        kept = {
            "vault_mirror_password": SECRETS["mirror"],
            "vault_index_password": SECRETS["index"],
            "vault_sudo_password": SECRETS["sudo"],
            "site_token": SECRETS["vault"],
        }
        vault = VaultLib([("default", VaultSecret(b"opens the vault"))])
        (self.folder / "group_vars" / "all" / "vault.yml").write_bytes(vault.encrypt(yaml.safe_dump(kept)))
        (self.folder / "vault-password").write_text("opens the vault\n")
        return self.folder / "hosts.yml"

    def run(self, *arguments: str) -> Run:
        """A run of the command line with every secret in its place; nothing of it shows one."""
        report = Path(tempfile.mkdtemp(dir=self.folder.parent))
        given = [*arguments, "-i", str(self.inventory), "--vault-password-file", str(self.folder / "vault-password")]
        given += ["-e", json.dumps({"site_extra": SECRETS["extra"]}), "--report", str(report)]
        hidden = f"http://{USER}:{quote(SECRETS['environment'], safe='')}@{PROXY_HOST}:{PROXY_PORT}"
        process = subprocess.Popen(
            [*command_line(), *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=settings.CLONE,
            env={**environment(), "http_proxy": hidden, "SITE_API_TOKEN": SECRETS["environment"]},
        )
        seen = Processes([*command_line(), *given])
        seen.start()
        stdout, stderr = process.communicate(timeout=800)
        shown = seen.stop()
        assert seen.samples > 20
        run = Run(process.returncode, stdout, stderr, report)
        places = {
            "words": named(run.stdout + run.stderr),
            "processes": shown,
            "run directory": in_folder(report),
            "node": on_node(self.machine),
        }
        assert {place: found for place, found in places.items() if found} == {}, str(run)
        return run


@pytest.fixture(scope="module")
def passwords(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What asks for the passwords."""
    folder = tmp_path_factory.mktemp("guarded")
    access = {name: (USER, SECRETS[name]) for name in ("mirror", "proxy", "index")}
    with guarded(folder, **access):
        yield


@pytest.fixture(scope="module")
def make_site(
    make_shared_node: Callable[[str, str], Node], passwords: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Site]:
    """A site around a new node."""
    return lambda name, scenario: Site(make_shared_node(name, scenario), tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def site(make_site: Callable[[str, str], Site]) -> Site:
    """One with Debian, shared by the tests."""
    return make_site("secrets", "two-h100")


def test_the_search_finds_what_is_planted(site: Site, tmp_path: Path) -> None:
    machine = site.machine
    planted = SECRETS["extra"]
    for number, form in enumerate(sorted(forms(planted))):
        (tmp_path / f"{number}").write_text(f"around{form}around")
        assert named(form) == {"extra"}
    assert {name for _path, name in in_folder(tmp_path)} == {"extra"}
    assert len(in_folder(tmp_path)) == len(forms(planted)) >= 3
    for pad in ("", "a", "ab"):
        assert named(base64.b64encode(f"{pad}:{planted}:{pad}".encode()).decode()) == {"extra"}
    open_one, closed = (f"/etc/apt/auth.conf.d/gpuwright-{name}.conf" for name in ("open", "closed"))
    everywhere = {"/etc/hidden": 600, "/run/planted": 600, "/var/log/planted": 600, open_one: 644}
    for path, mode in {**everywhere, closed: 600}.items():
        docker("exec", "-i", settings.container_name(machine.name), "sh", "-c",
               f"cat > {path}; chmod {mode} {path}; logger planted < {path}; cat {path} | systemd-cat",
               stdin=planted.encode())  # fmt: skip
    found = on_node(machine)
    machine.shell(f"rm {' '.join(everywhere)} {closed}")
    assert {(path, "extra") for path in (*everywhere, "/root/journal.export")} <= found
    assert (closed, "extra") not in found
    machine.shell(
        "journalctl --rotate; rm -rf /var/log/journal/*/* /run/log/journal/*/*; systemctl restart systemd-journald"
    )
    assert on_node(machine) == set()
    seen = Processes()
    seen.start()
    subprocess.run(["sh", "-c", "sleep 0.5", "sh", planted], check=True)
    assert ("sh -c", "extra") in seen.stop()
    itself = Processes(["sh", "-c", "sleep 0.5", "sh", planted])
    itself.start()
    subprocess.run(["sh", "-c", "sleep 0.5", "sh", planted], check=True)
    assert itself.stop() == set()
    set_in = Processes()
    set_in.start()
    subprocess.run(["sh", "-c", "sleep 0.5"], check=True, env={**environment(), "PLANTED": planted})
    assert {name for _words, name in set_in.stop()} == {"extra"}


def test_a_run_that_fails_tells_no_secret(site: Site, tmp_path: Path) -> None:
    wish = tmp_path / "wish.yml"
    wrong = mirrors(SECRETS["wrong"], SECRETS["wrong"])
    wish.write_text(yaml.safe_dump({"gpuwright_mirrors": wrong, "gpuwright_want": ["driver=580"]}))
    run = site.run("up", "--yes", "--wish", str(wish), "-vvvv")
    assert run.code == 3, str(run)
    # It quotes the address that did not let it in.
    assert f"http://{MIRROR_HOST}/compute/cuda/repos" in run.stdout + run.stderr
    assert "401" in run.stdout + run.stderr
    assert any(line.endswith("mirror refused") for line in asked())


def let_in(kind: str) -> bool:
    """Whether a package was fetched by who knew the password of the mirror or the proxy."""
    return any(line.startswith("GET") and kind in line and line.endswith("let in") for line in asked())


def the_index_refuses(site: Site, folder: Path, *want: str) -> None:
    """A run that has a wrong password of the index is refused, and names the address that did not let it in."""
    given = {"gpuwright_mirrors": mirrors(SECRETS["mirror"], SECRETS["wrong"]), "gpuwright_want": list(want)}
    (folder / "wish.yml").write_text(yaml.safe_dump(given))
    run = site.run("up", "--yes", "--wish", str(folder / "wish.yml"), "-vvvv")
    assert run.code == 3, str(run)
    assert f"http://{MIRROR_HOST}/whl/pypi answered 401" in run.stdout + run.stderr
    assert any("/whl/pypi/jax/" in line and line.endswith("index refused") for line in asked())


@pytest.mark.soak(part="modules")
def test_a_whole_run_leaves_no_secret_behind_and_remove_takes_the_passwords_with_it(site: Site, tmp_path: Path) -> None:
    wish = ("--want", "driver=580", "--want", "container-toolkit", "--want", "pytorch")
    run = site.run("up", "--yes", *wish, "-vvvv")
    assert run.code == 0, str(run)
    assert let_in(".deb mirror")
    # What apt fetches, and what gpuwright itself and pip do.
    for kind in (".deb", ".pub", ".whl"):
        assert let_in(f"{kind} proxy"), kind
    # PyTorch's own come from the one index, what they need from the other.
    assert let_in(".whl mirror")
    assert let_in(".whl index")
    again = site.run("up", "--yes", "--json", *wish)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    files = site.machine.shell("stat -c '%a %U %n' /etc/apt/auth.conf.d/*").splitlines()
    names = ("nvidia-container-toolkit", "nvidia-cuda")
    assert files == [f"600 root /etc/apt/auth.conf.d/gpuwright-{name}.conf" for name in names]
    the_index_refuses(site, tmp_path, *wish[1::2], "jax")
    # A password that changed is put in place by the next run that works on the packages.
    site.machine.shell("sed -i s/Pl4nted/0ld/ /etc/apt/auth.conf.d/gpuwright-nvidia-cuda.conf")
    assert site.run("up", "--yes", "--full", *wish).code == 0
    assert "Pl4nted" in site.machine.shell("cat /etc/apt/auth.conf.d/gpuwright-nvidia-cuda.conf")
    gone = site.run("remove", "--yes", "-vvvv")
    assert gone.code in (0, 4), str(gone)
    assert site.machine.shell("ls /etc/apt/auth.conf.d") == ""


@pytest.mark.soak(part="modules")
def test_nvidias_file_is_fetched_with_the_password(make_site: Callable[[str, str], Site]) -> None:
    site = make_site("secrets-file", "two-h100")
    path = runfile.place(repository.ensure(), "580.178.04")
    extra = ("-e", f"nvidia_driver_runfile_sha256={runfile.checksum(path)}")
    run = site.run("up", "--yes", "--want", "driver=580.178.04", "--want", "driver-source=runfile", *extra, "-vvvv")
    assert run.code == 0, str(run)
    assert let_in(".run mirror")
    assert let_in(".run proxy")


@pytest.mark.soak(part="systems")
def test_a_whole_run_with_dnf_leaves_no_secret_behind(make_site: Callable[[str, str], Site]) -> None:
    site = make_site("secrets-dnf", "rocky")
    settings_of_dnf = site.machine.shell("cp /etc/dnf/dnf.conf /root/dnf.conf; cat /etc/dnf/dnf.conf")
    given = f"proxy=http://{PROXY_HOST}:{PROXY_PORT}\nproxy_username={USER}\nproxy_password={SECRETS['proxy']}\n"
    site.machine.shell("chmod 600 /etc/dnf/dnf.conf")
    site.root_only("/etc/dnf/dnf.conf", f"{settings_of_dnf}\n{given}")
    run = site.run("up", "--yes", "--want", "driver=580", "--want", "container-toolkit", "-vvvv")
    assert run.code == 0, str(run)
    assert let_in(".rpm mirror")
    assert let_in(".rpm proxy")
    site.machine.shell("mv /root/dnf.conf /etc/dnf/dnf.conf")
    files = site.machine.shell("stat -c '%a %U %n' /etc/dnf/vars/gpuwright_*").splitlines()
    names = ("nvidia_container_toolkit", "nvidia_cuda")
    assert {
        f"600 root /etc/dnf/vars/gpuwright_{name}_{part}" for name in names for part in ("login", "password")
    } <= set(files)
    # Who is not root is told of it, and goes on.
    told = site.machine.shell(f"su {settings.NODE_USER} -c 'dnf repolist' 2>&1")
    assert "gpuwright-nvidia-cuda" in told
    gone = site.run("remove", "--yes", "-vvvv")
    assert gone.code in (0, 4), str(gone)
    assert site.machine.shell("ls /etc/dnf/vars | grep gpuwright || true") == ""
