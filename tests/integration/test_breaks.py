"""What an operator meets: a node that was right is broken by hand, `doctor` names the cause first, and its own words mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="services")]

_WISH = ("--want", "driver", "--want", "cuda", "--want", "container-toolkit")
_UP = "run gpuwright up"


@dataclass(frozen=True)
class Break:
    """A thing broken by hand.

    ``command`` breaks it. ``cause``: words of the first thing that `doctor` says, its reason. ``remedy``: words of what it says to do;
    ``mend``: the same as a shell command, or None where it is `up`; what it only made possible is done by `up`.
    """

    command: str
    cause: tuple[str, ...]
    remedy: tuple[str, ...] = (_UP,)
    mend: str | None = None


_UNLOAD = "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia"
_LOAD = "modprobe nvidia && modprobe nvidia_uvm"
_FAULTS = "/etc/gpuwright-sim/faults.json"
_DAEMON = "/etc/docker/daemon.json"
_RUNTIME = "/etc/nvidia-container-runtime/config.toml"
_STUBS = "/usr/local/cuda/lib64/stubs"
_TOOLKIT = "/etc/apt/sources.list.d/gpuwright-nvidia-container-toolkit.sources"

_BOTH = {
    "a switch of hybrid graphics": Break(
        f"printf 'blacklist nvidia\nalias nvidia off\n' > /etc/modprobe.d/hybrid.conf; {_UNLOAD}",
        ("kept out", "/etc/modprobe.d/hybrid.conf"),
        ("take it out",),
        f"rm /etc/modprobe.d/hybrid.conf; {_LOAD}",
    ),
    "no device nodes": Break(
        "mkdir /root/dev; for each in /dev/nvidia*; do test -c $each && mv $each /root/dev; done",
        ("/dev/nvidia",),
        ("nvidia-modprobe",),
        "mv /root/dev/* /dev; rmdir /root/dev",
    ),
    "the module's file is gone": Break("rm $(find /usr/lib/modules -name 'nvidia.ko*')", ("has no NVIDIA module",)),
    "a CDI specification of another driver": Break(
        "sed -i 's/580[.][0-9.]*[0-9]/570.124.06/g' /var/run/cdi/nvidia.yaml",
        ("/var/run/cdi/nvidia.yaml", "570.124.06"),
        ("systemctl restart nvidia-cdi-refresh.service",),
        "systemctl restart nvidia-cdi-refresh.service",
    ),
    "no CDI specification": Break(
        "rm /var/run/cdi/nvidia.yaml", ("no CDI specification",), (_UP, "systemctl restart nvidia-cdi-refresh.service")
    ),
    "a card fell off the bus": Break(
        f"echo '[\"fallen-off-bus:1\"]' > {_FAULTS}",
        ("fell off the PCIe bus",),
        ("power the host off and on",),
        f"echo '[]' > {_FAULTS}",
    ),
    "packages upgraded under a loaded module": Break(
        f"echo '[\"version-mismatch\"]' > {_FAULTS}",
        ("different versions",),
        ("reboot the host",),
        f"echo '[]' > {_FAULTS}",
    ),
    "no name server": Break(
        "cat /etc/resolv.conf > /root/resolv; : > /etc/resolv.conf",
        ("nothing tells where", "(DNS)"),
        ("/etc/resolv.conf",),
        "cat /root/resolv > /etc/resolv.conf",
    ),
}

_APT = {
    "dpkg was cut off": Break(
        "cd /tmp && apt-get -q download libnvidia-ml1 && dpkg --unpack --force-depends libnvidia-ml1*.deb && rm libnvidia-ml1*.deb",
        ("an installation of packages was cut off",),
    ),
    "a broken daemon.json": Break(
        f"cp {_DAEMON} /root; echo '{{' > {_DAEMON}; systemctl restart docker || true",
        ("daemon.json cannot be read",),
        (f"correct {_DAEMON}",),
        f"cp /root/daemon.json {_DAEMON}; systemctl reset-failed docker; systemctl restart docker",
    ),
    "a daemon.json without the runtime": Break(
        f"echo '{{}}' > {_DAEMON}; systemctl restart docker", ("Docker", "runtime")
    ),
    "no control groups": Break(
        f"cp {_RUNTIME} {_RUNTIME}.kept; printf '[nvidia-container-cli]\nno-cgroups = true\n' >> {_RUNTIME}",
        (_RUNTIME, "no-cgroups"),
        ("no-cgroups",),
        f"mv {_RUNTIME}.kept {_RUNTIME}",
    ),
    "a runtime of CDI alone": Break(
        f"cp {_RUNTIME} /root; sed -i 's/^ *mode = .*/mode = \"cdi\"/' {_RUNTIME}; grep 'mode = \"cdi\"' {_RUNTIME}",
        (_RUNTIME, "cdi"),
        ("mode",),
        f"cp /root/config.toml {_RUNTIME}",
    ),
    "Docker is stopped": Break(
        "systemctl stop docker.socket docker; systemctl reset-failed docker",
        ("Docker does not run",),
        ("systemctl start docker.service",),
        "systemctl start docker.service",
    ),
    "a pin of -1": Break(
        "dpkg -r --force-depends nvidia-container-toolkit; "
        "printf 'Package: *nvidia*\nPin: release *\nPin-Priority: -1\n' > /etc/apt/preferences.d/no-nvidia",
        ("/etc/apt/preferences.d/no-nvidia", "Pin-Priority: -1"),
        ("take these packages out of it, or remove it",),
        "rm /etc/apt/preferences.d/no-nvidia",
    ),
    "two keys for one source": Break(
        'echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
        f" $(sed -n 's/^URIs: //p' {_TOOLKIT}) $(sed -n 's/^Suites: //p' {_TOOLKIT})\" > /etc/apt/sources.list.d/mine.list",
        ("/etc/apt/sources.list.d/mine.list", _TOOLKIT, "Signed-By"),
        ("correct that entry or remove the file",),
        "rm /etc/apt/sources.list.d/mine.list",
    ),
    "another libcuda before the driver's": Break(
        f"mkdir -p {_STUBS}; cp -L $(ldconfig -p | sed -n 's/.*libcuda.so.1 .*=> //p' | head -1) {_STUBS}/libcuda.so.1; "
        f"echo {_STUBS} > /etc/ld.so.conf.d/0-stubs.conf; ldconfig",
        (f"{_STUBS}/libcuda.so.1", "a stub"),
        ("out of /etc/ld.so.conf.d", "ldconfig"),
        "rm /etc/ld.so.conf.d/0-stubs.conf; ldconfig",
    ),
    "no headers": Break(
        "dpkg -r --force-depends linux-headers-amd64 $(dpkg-query -W -f '${Package} ' 'linux-headers-[0-9]*')",
        ("headers", "is gone"),
    ),
    "an environment without PyTorch": Break(
        "rm -rf /opt/gpuwright/pytorch/lib/python3*/site-packages/torch", ("torch is gone",)
    ),
    "a driver that anybody may move": Break("apt-mark unhold nvidia-driver-cuda", ("not held", "nvidia-driver-cuda")),
}

_DNF = {
    "an exclude in dnf.conf": Break(
        "rpm -e --nodeps nvidia-container-toolkit; echo 'exclude=*nvidia*' >> /etc/dnf/dnf.conf",
        ("/etc/dnf/dnf.conf", "exclude"),
        ("take these packages out of it",),
        "sed -i '/^exclude=/d' /etc/dnf/dnf.conf",
    ),
    "a file of dnf that is none": Break(
        "echo 'not a repository [' > /etc/yum.repos.d/mine.repo",
        ("/etc/yum.repos.d/mine.repo",),
        ("correct that entry or remove the file",),
        "rm /etc/yum.repos.d/mine.repo",
    ),
    "a source that somebody disabled": Break(
        "sed -i 's/^enabled *= *1/enabled=0/' /etc/yum.repos.d/gpuwright-nvidia-cuda.repo",
        ("gpuwright-nvidia-cuda.repo changed",),
    ),
    "a toolkit that is gone": Break(
        "rpm -e --nodeps nvidia-container-toolkit nvidia-container-toolkit-base", ("nvidia-container-toolkit",)
    ),
    "no module package": Break("rpm -e --nodeps kmod-nvidia-open-dkms", ("has no NVIDIA module",)),
    "no lock": Break(": > /etc/dnf/plugins/versionlock.list", ("not held", "nvidia-driver-cuda")),
}


@pytest.fixture(scope="module")
def rocky(make_shared_node: Callable[[str, str], Node]) -> Node:
    machine = make_shared_node("breaks-rocky", "rocky")
    assert machine.up(*_WISH).code == 0
    return machine


@pytest.fixture(scope="module")
def debian(make_shared_node: Callable[[str, str], Node]) -> Node:
    machine = make_shared_node("breaks", "two-h100")
    assert machine.up(*_WISH, "--want", "pytorch").code == 0
    return machine


def found(machine: Node) -> list[dict[str, Any]]:
    """What `doctor` has to say, in its order."""
    told = machine.run("doctor").host["checks"]
    return [check for check in told if check["status"] not in ("pass", "skip") and check["id"] != "proof.age"]


def is_named_first_and_mended(machine: Node, broken: Break) -> None:
    assert found(machine) == []
    machine.shell(broken.command)
    first, *_rest = found(machine) or [{"id": None, "reason": None, "remedy": None}]
    said = f"{first['reason']} {first['measured'] if first['id'] else ''}"
    assert all(word in said for word in broken.cause), first
    assert all(word in first["remedy"] for word in broken.remedy), first
    if broken.mend:
        machine.shell(broken.mend)
    if found(machine):
        run = machine.up()
        assert run.code == 0, str(run)
    assert found(machine) == []


@pytest.mark.parametrize("broken", [pytest.param(each, id=name) for name, each in {**_BOTH, **_APT}.items()])
def test_on_apt_the_cause_is_named_first_and_its_remedy_mends_it(debian: Node, broken: Break) -> None:
    is_named_first_and_mended(debian, broken)


@pytest.mark.parametrize("broken", [pytest.param(each, id=name) for name, each in {**_BOTH, **_DNF}.items()])
def test_on_dnf_the_cause_is_named_first_and_its_remedy_mends_it(rocky: Node, broken: Break) -> None:
    is_named_first_and_mended(rocky, broken)
