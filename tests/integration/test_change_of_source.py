"""The driver's packages from another source: Ubuntu's give way to NVIDIA's and come back, and a cut in the middle is healed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable

import pytest

from tests.sim import settings

from . import snapshot
from .conftest import Node, Run, command_line, environment, signal_dpkg

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="driver")]

_UBUNTU, _NVIDIA = "580.173.02", "595.112.07"
_EXCLUSION = "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"
#: Of the driver, whatever the source; the container toolkit is of neither.
_SET = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' 'nvidia-*' 'libnvidia-*' 'linux-*-nvidia-*' 2>/dev/null"


@pytest.fixture(scope="module")
def ubuntu(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with Ubuntu's driver; the tests of this module take turns with it, in their order."""
    machine = make_shared_node("source", "h100-ubuntu")
    _is_at(machine, wish("distro", "580"), _UBUNTU, machine.up(*wish("distro", "580")))
    return machine


def wish(source: str, driver: str) -> tuple[str, ...]:
    return ("--want", f"driver-source={source}", "--want", f"driver={driver}")


def driver_packages(machine: Node) -> dict[str, str]:
    """The versions of the driver's packages, by name. One that a cut left with its configuration alone is gone."""
    rows = [line.split() for line in machine.shell(_SET, check=False).splitlines()]
    return {
        name: version[0] if version else ""
        for state, name, *version in rows
        if state not in ("not-installed", "config-files") and "container" not in name
    }


def _is_at(machine: Node, wanted: tuple[str, ...], version: str, run: Run) -> None:
    """A run was proven with this build: nothing of another one is left, the set is locked as it has to be, and nothing is to do."""
    assert run.code == 0, str(run)
    assert version in machine.shell("cat /proc/driver/nvidia/version")
    packages = driver_packages(machine)
    carrying = {each for name, each in packages.items() if not name.startswith("linux-")}
    assert {each.split("-")[0] for each in carrying} == {version}, packages
    assert len({"ubuntu0." in each for each in carrying}) == 1, packages
    assert machine.shell("dpkg --audit; ls /var/lib/dpkg/updates") == ""
    assert set(machine.shell("apt-mark showhold").split()) <= set(packages)
    excluded = machine.shell(f"cat {_EXCLUSION}").replace("\\", "")
    assert all(f'"^{name}$";' in excluded for name in packages if not name.startswith(("linux-", "nvidia-driver-pin")))
    moved = [
        line.split()[1] for line in machine.shell("apt-get -s dist-upgrade").splitlines() if line.startswith("Inst ")
    ]
    assert not set(moved) & set(packages)
    again = machine.up(*wanted)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)


def test_without_the_exchange_dpkg_stops_at_a_file_of_two_packages(ubuntu: Node) -> None:
    """The stand-ins share what the real packages share, so that the tests below can fail."""
    address = f"{settings.REPOSITORY_URL}/compute/cuda/repos/ubuntu2404/x86_64/"
    source = "/etc/apt/sources.list.d/by-hand.list"
    ubuntu.shell(f"echo 'deb [trusted=yes] {address} /' > {source} && apt-get -q update")
    ubuntu.shell("mkdir /root/debs && cd /root/debs && apt-get -q download libnvidia-cfg1")
    said = ubuntu.shell("dpkg --unpack /root/debs/*.deb 2>&1 || true")
    ubuntu.shell(f"rm -r /root/debs {source} && apt-get -q update")
    assert "trying to overwrite" in said
    assert "libnvidia-cfg1-580-server" in said


def test_nvidias_packages_take_the_place_of_ubuntus_in_one_step(ubuntu: Node) -> None:
    wanted = wish("nvidia", "595")
    before = driver_packages(ubuntu)
    planned = ubuntu.plan(*wanted)
    assert planned.code == 0, str(planned)
    (change,) = [each for each in planned.host["changes"] if each["leaves"]]
    assert set(change["leaves"]) == set(before)
    run = ubuntu.up(*wanted)
    _is_at(ubuntu, wanted, _NVIDIA, run)
    assert not set(driver_packages(ubuntu)) & set(before)
    (history,) = [
        line
        for line in ubuntu.shell("cat /var/log/apt/history.log").split("\n\n")
        if "libnvidia-cfg1-580-server" in line and "Purge:" in line
    ]
    assert "Install:" in history, "the old set went before the new one came"


def test_ubuntus_take_their_place_again(ubuntu: Node) -> None:
    wanted = wish("distro", "580")
    run = ubuntu.up(*wanted)
    _is_at(ubuntu, wanted, _UBUNTU, run)
    preferences = ubuntu.shell("ls /etc/apt/preferences.d").split()
    assert "gpuwright-nvidia-cuda" in preferences, "NVIDIA's repository may answer for the driver"
    assert not any("pinning" in name for name in preferences)


_GONE = "! dpkg-query -W -f '${db:Status-Status}' libnvidia-cfg1-580-server 2>/dev/null | grep -q ^installed"
_UNPACKED = "dpkg-query -W -f '${db:Status-Abbrev}' libnvidia-compute 2>/dev/null | grep -q ^iU"
#: The last one leaves a journal of dpkg's.
_MOMENTS = {
    "removed": f"{_GONE} && pkill -KILL -x apt-get",
    "unpacked": _UNPACKED,
    "journal": f"{_UNPACKED} && ls /var/lib/dpkg/updates | grep -q . && {signal_dpkg('KILL', 'unpack|configure')}",
}


def _cut(machine: Node, moment: str) -> None:
    """Begin to exchange Ubuntu's set for NVIDIA's, and cut that off."""
    words = ["up", "--yes", *wish("nvidia", "595"), "-i", str(machine.inventory)]
    process = subprocess.Popen(
        [*command_line(), *words, "--report", tempfile.mkdtemp(dir=machine.inventory.parent)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd=settings.CLONE,
        start_new_session=True,
    )
    try:
        assert machine.comes(_MOMENTS[moment], process), "it was through before"
    finally:
        snapshot.cut_off(machine.name, process)


@pytest.mark.parametrize("moment", _MOMENTS)
def test_the_next_run_heals_an_exchange_that_was_cut_off(ubuntu: Node, moment: str) -> None:
    wanted, back = wish("nvidia", "595"), wish("distro", "580")
    _cut(ubuntu, moment)
    _is_at(ubuntu, wanted, _NVIDIA, ubuntu.up(*wanted))
    _is_at(ubuntu, back, _UBUNTU, ubuntu.up(*back))


#: Makes of an unpacked package one that dpkg was cut off in: dpkg takes its journal into its record, where these lines of the stanza stay.
#: Source: dpkg 1.22 and its record, after SIGKILL in the middle of a large package's first unpacking.
_HALF = r"""
echo libnvidia-compute install | dpkg --set-selections
sed -i -e '/^Package: libnvidia-compute$/,/^$/{' -e 's/^Status: .*/Status: install reinstreq half-installed/' \
  -e '/^$/b' -e '/^Package:/b' -e '/^Status:/b' -e '/^Architecture:/b' -e '/^Version:/b' -e 'd' -e '}' /var/lib/dpkg/status
"""


def test_a_wish_that_is_taken_back_after_a_cut_leads_back(ubuntu: Node) -> None:
    _cut(ubuntu, "unpacked")
    ubuntu.shell(_HALF)
    assert ubuntu.shell("dpkg-query -W -f '${db:Status-Abbrev}' libnvidia-compute") == "iHR"
    back = wish("distro", "580")
    _is_at(ubuntu, back, _UBUNTU, ubuntu.up(*back))
