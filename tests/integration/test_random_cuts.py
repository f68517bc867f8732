"""An upgrade, a rollback or a change of branch cut off at any moment, in several ways: the next run heals the node.

A few cuts by default, always the same moments; GPUWRIGHT_CUTS=60 for many, and GPUWRIGHT_CUT_SEED=N for others. Each is told with its seed.
dpkg is at work in a few seconds of a run only, and has the most to lose: three of eight cuts are drawn among its steps.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.sim import node, settings

from . import snapshot
from .conftest import Node, command_line, environment, signal_dpkg

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="driver")]

_CUTS = int(os.environ.get("GPUWRIGHT_CUTS", "4"))
_SEED = int(os.environ.get("GPUWRIGHT_CUT_SEED", "1000"))
_BUILDS = ("580.126.20", "580.178.04", "595.112.07")
_WANT = ("--want", "cuda=13.0")
_ARCHIVES = "/var/cache/apt/archives"
_LONGEST_SECONDS = 45.0
_LOG = "/var/log/dpkg.log"
#: What a move from one build to another writes there: twelve packages, some ten lines each.
_MOST_STEPS = 120


@dataclass(frozen=True)
class Cut:
    """One interruption: how a run ends, and when; `choice` says which of the other builds it moves to.

    `after` are seconds of the run, and where `steps` is set lines of dpkg's log.
    """

    seed: int
    kind: str
    choice: int
    after: float
    steps: bool

    def __str__(self) -> str:
        return f"{self.seed}-{self.kind}-{self.after:.0f}{'-steps' if self.steps else 's'}"


def _cuts() -> Iterator[Cut]:
    kinds = ("kill", "power", "connection", "disk")
    for number in range(_CUTS):
        chance = random.Random(_SEED + number)  # noqa: S311 (no secret)
        kind = kinds[number % len(kinds)]
        # One of each kind but the full disk: all is downloaded by the time that dpkg begins.
        steps = number % 8 in {1, 2, 4}
        after = chance.uniform(1, _MOST_STEPS) if steps else chance.uniform(2, _LONGEST_SECONDS)
        yield Cut(_SEED + number, kind, chance.randrange(2), after, steps)


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node with a driver of the oldest build, which the cuts take turns with."""
    made = make_shared_node("cuts", "two-h100")
    run = made.up("--want", f"driver={_BUILDS[0]}", *_WANT)
    assert run.code == 0, str(run)
    return made


def test_a_package_that_was_taken_away_comes_back_though_its_branch_has_a_newer_build(machine: Node) -> None:
    """The package that pins the branch allows both builds, and apt by itself takes the newest for what depends on it."""
    machine.shell("dpkg --force-all --purge nvidia-driver-cuda libcuda1")
    _heal(machine, "a package that was taken away")
    assert _versions(machine) == {f"{_BUILDS[0]}-1"}


def test_a_move_is_planned_where_dpkg_was_killed_while_it_unpacked(machine: Node) -> None:
    """apt solves nothing for a set of which a package "must be reinstalled", not even its move to another build."""
    record = "/var/lib/dpkg/status"
    machine.shell(
        f"cp -a {record} /root/; sed -i '/^Package: libcuda1$/ {{n; s/ok installed/reinstreq half-installed/}}' {record}"
    )
    try:
        assert "libcuda1" in machine.shell("dpkg --audit")
        other = next(build for build in _BUILDS if f"{build}-1" not in _versions(machine))
        planned = machine.plan(*_WANT, "--want", f"driver={other}")
        assert planned.code == 0, str(planned)
    finally:
        machine.shell(f"mv /root/status {record}")


def test_a_disk_that_was_full_while_dpkg_unpacked_is_not_held_against_the_driver(machine: Node) -> None:
    other = next(build for build in _BUILDS if f"{build}-1" not in _versions(machine))
    wish = (*_WANT, "--want", f"driver={other}")
    machine.shell("mount -t tmpfs -o size=400k tmpfs /usr/share/doc")
    try:
        full = machine.run("upgrade", "--yes", *wish)
    finally:
        machine.shell("umount /usr/share/doc")
    assert full.code == 1, str(full)
    assert "No space left on device" in full.host["failure"]["output"], str(full)
    _heal(machine, "a full disk")
    again = machine.plan(*wish)
    assert again.code == 0, str(again)


@pytest.mark.parametrize("step", ["unpack", "configure"])
def test_a_dpkg_that_was_killed_while_the_run_went_on_is_not_held_against_the_driver(machine: Node, step: str) -> None:
    other = next(build for build in _BUILDS if f"{build}-1" not in _versions(machine))
    process = _move(machine, other)
    try:
        moment = f"{_unpacked(other)} && ls /var/lib/dpkg/updates | grep -q . && {signal_dpkg('KILL', step)}"
        assert machine.comes(moment, process), "it was through before"
        assert process.wait(600) == 1
    finally:
        snapshot.kill(process)
    assert f"{other}-1" not in _versions(machine), "the run did not go back by itself"
    _heal(machine, "a dpkg that was killed")
    again = machine.plan(*_WANT, "--want", f"driver={other}")
    assert again.code == 0, str(again)


def test_a_library_of_another_build_that_a_cut_left_is_removed(machine: Node) -> None:
    """dpkg was killed between the files of a build and its record of them, and the driver before came back: no package has them then."""
    older, newer = _BUILDS[:2]
    wish = (*_WANT, "--want", f"driver={older}")
    if f" {newer}-1" not in machine.shell(f"cat {_LOG}"):
        assert machine.up(*_WANT, "--want", f"driver={newer}").code == 0
    assert machine.up(*wish).code == 0
    place = "/usr/lib/x86_64-linux-gnu"
    left, users = f"{place}/libnvidia-ml.so.{newer}", f"{place}/libusers.so.{older}"
    machine.shell(f"cp $(readlink -f {place}/libnvidia-ml.so.1) {left} && touch {users}")
    machine.shell("ldconfig")
    assert "version mismatch" in machine.shell("nvidia-smi", check=False)
    healed = machine.up(*wish)
    assert healed.code == 0, str(healed)
    (change,) = [change for change in healed.host["changes"] if change["component"] == "nvidia_driver"]
    assert left in change["reason"], str(healed)
    machine.shell(f"test ! -e {left} && rm {users}")
    assert machine.plan(*wish).host["changes"] == []


@pytest.mark.parametrize("cut", list(_cuts()), ids=str)
def test_the_next_run_heals_what_was_cut_off(machine: Node, cut: Cut) -> None:
    after = cut.after
    while not _interrupt(machine, cut, after):
        after /= 2
    _heal(machine, str(cut))


def test_the_next_run_heals_a_way_back_that_was_cut_off_between_two_packages(machine: Node) -> None:
    """The pin of the older build stands already, so apt can finish nothing without an older package."""
    newest, oldest = _BUILDS[-1], _BUILDS[0]
    if _versions(machine) != {f"{newest}-1"}:
        assert machine.up(*_WANT, "--want", f"driver={newest}").code == 0
    process = _move(machine, oldest)
    try:
        # dpkg stands still until the power goes: what it has yet to unpack is done in a second.
        assert machine.comes(f"{_unpacked(oldest)} && {signal_dpkg('STOP', 'unpack')}", process), (
            "it was through before"
        )
        _power(machine, process)
    finally:
        snapshot.kill(process)
    assert f"{newest}-1" in _versions(machine), "nothing is left to do"
    _heal(machine, "a way back")


def _heal(machine: Node, cut: str) -> None:
    """The next run proves the node with one build of the driver, leaves nothing behind, and has nothing left to do."""
    healed = machine.up(*_WANT)
    assert healed.code == 0, f"{cut}\n{healed}"
    assert healed.host["verdict"] == "pass", f"{cut}\n{healed}"
    versions = _versions(machine)
    assert len(versions) == 1, f"{cut}: {versions}"
    assert versions.pop().removesuffix("-1") in machine.shell("cat /proc/driver/nvidia/version")
    assert machine.shell("dpkg --audit; ls /var/lib/dpkg/updates") == ""
    assert not machine.shell("cat /run/gpuwright/lock.json", check=False)
    again = machine.up(*_WANT)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), f"{cut}\n{again}"


def _interrupt(machine: Node, cut: Cut, after: float) -> bool:
    """Begin to move the node to another build of the driver, and end that as the cut says; False where the run was through before."""
    others = [build for build in _BUILDS if f"{build}-1" not in _versions(machine)]
    process = _move(machine, others[cut.choice])
    try:
        if not _comes(machine, cut, after, process):
            return False
        _END[cut.kind](machine, process)
        return True
    finally:
        snapshot.kill(process)
        machine.shell(f"umount {_ARCHIVES} 2>/dev/null || true")


def _move(machine: Node, build: str) -> subprocess.Popen[bytes]:
    """Begin to move the node to this build of the driver."""
    words = ["upgrade", "--yes", *_WANT, "--want", f"driver={build}", "-i", str(machine.inventory)]
    return subprocess.Popen(
        [*command_line(), *words, "--report", tempfile.mkdtemp(dir=machine.inventory.parent)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd=settings.CLONE,
        start_new_session=True,
    )


def _unpacked(build: str) -> str:
    """The shell command that succeeds while this build is unpacked and not configured: there is a package before and behind this one."""
    return f"dpkg-query -W -f '${{db:Status-Abbrev}}${{Version}}' nvidia-driver-cuda | grep -q '^iU {build}'"


def _comes(machine: Node, cut: Cut, after: float, process: subprocess.Popen[bytes]) -> bool:
    """Wait for the moment of the cut; False where the run was through before."""
    if cut.steps:
        lines = int(machine.shell(f"wc -l < {_LOG}"))
        return machine.comes(f"test $(wc -l < {_LOG}) -ge {lines + round(after)}", process)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        return True
    return False


def _power(machine: Node, process: subprocess.Popen[bytes]) -> None:
    node.power_cut(machine.name)
    snapshot.kill(process)


def _connection(machine: Node, process: subprocess.Popen[bytes]) -> None:
    """The controller is gone; what it started on the node goes on for a while, alone."""
    snapshot.kill(process)
    time.sleep(random.uniform(0, 3))  # noqa: S311 (no secret)


def _disk(machine: Node, process: subprocess.Popen[bytes]) -> None:
    """The disk that takes the downloads is full from now on; the run ends by itself."""
    machine.shell(f"mount -t tmpfs -o size=64k tmpfs {_ARCHIVES} && mkdir -p {_ARCHIVES}/partial")
    process.wait(600)


_END = {
    "kill": lambda machine, process: snapshot.cut_off(machine.name, process),
    "power": _power,
    "connection": _connection,
    "disk": _disk,
}


def _versions(machine: Node) -> set[str]:
    names = "nvidia-driver-cuda nvidia-modprobe libcuda1 libnvidia-ml1 nvidia-kernel-open-dkms nvidia-persistenced firmware-nvidia-gsp"
    return set(machine.shell(f"dpkg-query -W -f '${{Version}}\\n' {names}").split())
