"""The lock of a node: of two runs that would change it one at a time does, whatever their clocks say and whoever boots it in between."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals
from ansible_collections.gpuwright.node.plugins.module_utils.records.run_lock import LEASE

A, B, C = "a@one:1:10:x", "b@two:2:20:y", "c@one:1:30:z"
HOUR = 3600.0


@dataclass
class Node:
    """A node with a clock since its boot, which no test waits for, and one on the wall, which anybody sets."""

    host: Host
    since_boot: float = 100.0
    wall: float = 1_795_000_000.0
    boots: int = 0

    @property
    def root(self) -> Path:
        return Path(self.host.root)

    def boot(self, *, keeps_run: bool = False) -> None:
        self.boots += 1
        self.since_boot = 20.0
        boot_id = self.root / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"0000-{self.boots}\n")
        if not keeps_run:
            shutil.rmtree(self.root / "run", ignore_errors=True)

    def takes(self, owner: str, takes_over: str | None = None) -> bool:
        try:
            run_lock.take(self.host, owner, takes_over)
        except seals.SealError:
            return False
        return True

    def holds(self, owner: str) -> bool:
        try:
            run_lock.hold(self.host, owner)
        except seals.SealError:
            return False
        return True


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(Host(root=str(tmp_path)))
    made.boot()
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: made.since_boot)
    monkeypatch.setattr(time, "time", lambda: made.wall)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # no cut of power here
    return made


def test_a_run_that_goes_on_keeps_its_lock_however_long_it_lasts(node: Node) -> None:
    assert node.takes(A)
    for _ in range(5):
        node.since_boot += LEASE - 1
        assert not node.takes(B)
        assert node.holds(A)


@pytest.mark.parametrize("hours", [-48, -5, 5, 48])
def test_a_clock_that_somebody_sets_ends_no_lock(node: Node, hours: int) -> None:
    assert node.takes(A)
    node.wall += hours * HOUR
    assert not node.takes(B)
    assert node.holds(A)


def test_a_run_that_is_not_heard_of_loses_its_lock_and_ends_before_its_next_change(node: Node) -> None:
    assert node.takes(A)
    node.since_boot += LEASE
    assert node.takes(B)
    with pytest.raises(seals.SealError, match="Found that b@two:2 has worked on it since"):
        run_lock.hold(node.host, A)
    run_lock.release(node.host, B)
    assert not node.holds(A), "what it planned is not known to be right any more"


def test_a_run_takes_its_lock_again_after_a_boot_where_nobody_was_there_meanwhile(node: Node) -> None:
    assert node.takes(A)
    node.boot()
    assert node.holds(A)
    assert not node.takes(B)


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_whose_node_booted_ends_where_another_was_there_meanwhile(node: Node, ended: bool) -> None:
    assert node.takes(A)
    node.boot()
    assert node.takes(B)
    if ended:
        run_lock.release(node.host, B)
    assert not node.holds(A)


def test_what_outlives_a_boot_in_run_bars_nobody(node: Node) -> None:
    assert node.takes(A)
    node.boot(keeps_run=True)
    assert node.takes(B)


def test_nobody_takes_over_while_a_program_of_the_run_is_at_work(node: Node) -> None:
    assert node.takes(A)
    with run_lock.at_work(node.host, A):
        node.since_boot += 3 * LEASE
        assert not node.takes(B)
        with pytest.raises(seals.SealError, match="at work on this machine"):
            run_lock.take(node.host, B, takes_over=A)
    assert not node.takes(B), "the run was heard of as its program ended"
    node.since_boot += LEASE
    assert node.takes(B)


def test_a_program_that_outlives_its_run_leaves_no_lock(node: Node) -> None:
    assert node.takes(A)
    with run_lock.at_work(node.host, A):
        run_lock.release(node.host, A)
        assert not node.takes(B)
    assert node.takes(B)


@pytest.mark.parametrize("taken", [True, False], ids=["it had the node", "its task is yet to come"])
def test_a_task_that_comes_after_its_run_was_interrupted_takes_nothing(node: Node, taken: bool) -> None:
    assert not taken or node.takes(A)
    assert run_lock.end(node.host, A) is taken
    assert not node.takes(A)
    assert not node.holds(A)
    assert seals.read_lock(node.host) is None
    assert node.takes(B)


def test_an_interrupted_run_leaves_the_lock_of_another_alone(node: Node) -> None:
    assert node.takes(B)
    assert not run_lock.end(node.host, A)
    assert node.holds(B)


def test_a_program_of_a_run_that_was_taken_over_does_not_begin(node: Node) -> None:
    assert node.takes(A)
    assert node.takes(B, takes_over=A)
    with pytest.raises(seals.SealError, match="worked on it since"), run_lock.at_work(node.host, A):
        raise AssertionError("it began")
    run_lock.release(node.host, B)
    assert node.takes(C)


def test_what_is_in_no_run_has_no_lock(node: Node) -> None:
    with run_lock.at_work(node.host, None):
        assert not (node.root / "run").exists()


def test_a_lock_of_an_earlier_gpuwright_lapses_as_that_one_wrote(node: Node) -> None:
    path = node.root / paths.ROOTS.lock.lstrip("/")
    path.parent.mkdir(parents=True)
    for end, lapsed in ((node.wall + 1, False), (node.wall - 1, True)):
        path.write_text(json.dumps({"owner": "a@one:1", "since": seals.iso(0), "expires": seals.iso(end)}))
        assert run_lock.is_living(node.host, seals.read_lock(node.host)) is not lapsed
        assert node.takes(B) is lapsed


def test_who_is_refused_writes_nothing(node: Node) -> None:
    path = node.root / paths.ROOTS.lock.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"owner": A, "since": seals.iso(0), "boot": "0000-1", "renewed": 1.0}))
    assert not node.takes(B)
    assert list(path.parent.iterdir()) == [path]
    assert not (node.root / paths.ROOTS.state.lstrip("/")).exists()


def test_an_owner_is_told_without_what_only_programs_compare(node: Node) -> None:
    assert node.takes(A)
    with pytest.raises(seals.SealError, match=r"worked on by a@one:1 since 2026"):
        run_lock.take(node.host, B)
    assert run_lock.told(None) == "somebody unknown"


def _take(root: str, owner: str, go: object, won: object) -> None:
    go.wait()  # type: ignore[attr-defined]
    with contextlib.suppress(seals.SealError):
        run_lock.take(Host(root=root), owner)
        won.put(owner)  # type: ignore[attr-defined]


def test_of_many_that_see_one_lapsed_lock_one_takes_it(tmp_path: Path) -> None:
    lock = tmp_path / paths.ROOTS.lock.lstrip("/")
    lock.parent.mkdir(parents=True)
    around = multiprocessing.get_context("fork")
    for _ in range(10):
        lock.write_text(json.dumps({"owner": "gone@one:1", "expires": "2026-01-01T00:00:00Z"}))
        go, won = around.Event(), around.SimpleQueue()
        racers = [around.Process(target=_take, args=(str(tmp_path), f"r@x:{i}", go, won)) for i in range(4)]
        for racer in racers:
            racer.start()
        go.set()
        for racer in racers:
            racer.join()
        winner = won.get()
        assert won.empty(), "two got it"
        assert json.loads(lock.read_text())["owner"] == winner


@dataclass
class Controller:
    """A controller with its run, if it has one, and the program that is at work for it on the node. What it may do answers whether it
    may change the node now.
    """

    node: Node
    name: str
    run: str = ""
    dead: str | None = None
    begun: int = 0
    works: str = ""
    program: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def begin(self) -> bool:
        if self.run:
            return self.hold()
        self.begun += 1
        new = f"u@{self.name}:{self.begun}:{self.begun}:w"
        if self.node.takes(new, self.dead):
            self.run, self.dead = new, None
        return bool(self.run)

    def hold(self) -> bool:
        if self.run and not self.node.holds(self.run):
            self.stop()
            self.run = ""
        return bool(self.run)

    def stop(self) -> None:
        self.program.close()
        self.works = ""

    def work(self) -> bool:
        """Begin a program, which lasts until the next one, or until its run ends."""
        self.stop()
        with contextlib.suppress(seals.SealError):
            self.program.enter_context(run_lock.at_work(self.node.host, self.run or None))
            self.works = self.run
        return bool(self.works)

    def end(self) -> bool:
        self.stop()
        run_lock.release(self.node.host, self.run)
        self.run = ""
        return False

    def die(self) -> bool:
        """Its program goes on."""
        self.dead, self.run = self.run or self.dead, ""
        return False


def _changes(node: Node, chance: random.Random) -> Iterator[str]:
    """What may happen to a node with two controllers; of each moment the run that may change it, by name, and those that do."""
    controllers = [Controller(node, "one"), Controller(node, "two")]
    for _ in range(80):
        each = chance.choice(controllers)
        happening = chance.choice((each.begin, each.hold, each.hold, each.work, each.end, each.die, None, None, None))
        if happening and happening():
            yield each.run
        yield from (one.works for one in controllers if one.works)
        if happening is None and chance.random() < 0.3:
            for one in controllers:
                one.program.pop_all()  # no program outlives the boot
                one.works = ""
            node.boot(keeps_run=chance.random() < 0.2)
        elif happening is None:
            node.since_boot += chance.choice((10.0, HOUR, LEASE, 5 * HOUR))
            node.wall += chance.choice((-30, -3, 0, 3, 30)) * HOUR


@pytest.mark.parametrize("seed", range(20))
def test_two_controllers_on_one_node_are_never_both_at_work(node: Node, seed: int) -> None:
    """A run that another one came after changes nothing any more."""
    changed = list(_changes(node, random.Random(seed)))  # noqa: S311 - chance, no secret
    in_turn = [run for at, run in enumerate(changed) if at == 0 or changed[at - 1] != run]
    assert len(in_turn) == len(set(in_turn)), in_turn
