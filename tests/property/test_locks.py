"""Two or three controllers on one node, whatever their clocks say, with boots, deaths and programs that outlive their run: never both.

The real functions of the lock on a root of their own; the model beside them knows who may change the node, from what happened alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals

_CONTROLLERS = st.sampled_from(("one", "two", "three"))
_HOURS = st.sampled_from((0.0, 0.5, 1.9, 2.0, 5.0))
_CLOCKS = st.sampled_from((-30.0, -3.0, 0.0, 3.0, 30.0))


class Locks(RuleBasedStateMachine):
    """A node, and the runs of its controllers.

    ``runs``: the run of each controller that lives. ``entitled``: the run that took the node last and has not ended. ``heard``: when the
    node heard of it last, in seconds since the boot; None where a boot took the lock along.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="gpuwright-locks-"))
        self.host = Host(root=str(self.root))
        self.now, self.wall, self.boots, self.number = 100.0, 1_795_000_000.0, 0, 0
        self.runs: dict[str, str] = {}
        self.dead: dict[str, str] = {}
        self.programs: dict[str, contextlib.ExitStack] = {}
        self.entitled: str | None = None
        self.heard: float | None = None
        self.patches = contextlib.ExitStack()
        self.patches.enter_context(mock.patch.object(time, "clock_gettime", self._since_boot))
        self.patches.enter_context(mock.patch.object(time, "time", self._wall))
        # No cut of power here.
        self.patches.enter_context(mock.patch.object(os, "fsync", return_value=None))
        self.boot(keeps_run=False)

    def teardown(self) -> None:
        for program in self.programs.values():
            program.close()
        self.patches.close()
        shutil.rmtree(self.root)

    def _since_boot(self, _clock: int) -> float:
        return self.now

    def _wall(self) -> float:
        return self.wall

    # --- what the node says -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _tried(self) -> Iterator[list[bool]]:
        """Whether what is tried in the body went well."""
        went: list[bool] = []
        try:
            yield went
            went.append(True)
        except seals.SealError:
            went.append(False)

    def _free(self, takes_over: str | None) -> bool:
        """Whether another run may come: by what happened, not by what is written."""
        lapsed = self.heard is None or self.now - self.heard >= run_lock.LEASE
        return not self.programs and (self.entitled in (None, takes_over) or lapsed)

    # --- what happens -----------------------------------------------------------------------------------------------------

    @rule(keeps_run=st.booleans())
    def boot(self, keeps_run: bool) -> None:
        """No program outlives a boot; /run does in a container."""
        self.boots += 1
        self.now = 20.0
        for program in self.programs.values():
            program.pop_all()
        self.programs.clear()
        boot_id = self.root / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"0000-{self.boots}\n")
        self.heard = None
        if not keeps_run:
            shutil.rmtree(self.root / "run", ignore_errors=True)

    @rule(hours=_HOURS, clock=_CLOCKS)
    def wait(self, hours: float, clock: float) -> None:
        """Time goes by, and somebody sets the clock."""
        self.now += hours * 3600
        self.wall += (hours + clock) * 3600

    @rule(controller=_CONTROLLERS, knows=st.booleans())
    def begin(self, controller: str, knows: bool) -> None:
        """A run begins; its controller may know that its own last one is dead."""
        if controller in self.runs:
            return
        self.number += 1
        run = f"u@{controller}:{self.number}:{self.number}:w"
        takes_over = self.dead.get(controller) if knows else None
        free = self._free(takes_over)
        with self._tried() as went:
            run_lock.take(self.host, run, takes_over)
        assert went == [free], (self.entitled, self.heard, self.now, takes_over)
        if free:
            self.runs[controller], self.entitled, self.heard = run, run, self.now

    @precondition(lambda self: self.runs)
    @rule(controller=_CONTROLLERS)
    def change(self, controller: str) -> None:
        """A run says that it goes on, before its next change: it may where no other came after it, after a boot and days too."""
        run = self.runs.get(controller)
        if run is None:
            return
        with self._tried() as went:
            run_lock.hold(self.host, run)
        assert went == [run == self.entitled]
        self._heard_or_ends(controller, went)

    @precondition(lambda self: self.runs)
    @rule(controller=_CONTROLLERS)
    def install(self, controller: str) -> None:
        """A run begins a program, which goes on when the run dies."""
        run = self.runs.get(controller)
        if run is None or run in self.programs:
            return
        program = contextlib.ExitStack()
        with self._tried() as went:
            program.enter_context(run_lock.at_work(self.host, run))
        assert went == [run == self.entitled]
        if went == [True]:
            self.programs[run] = program
        self._heard_or_ends(controller, went)

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def installed(self, data: Any) -> None:
        """A program ends, with its run or without."""
        run = data.draw(st.sampled_from(sorted(self.programs)))
        self.programs.pop(run).close()
        if run == self.entitled:
            self.heard = self.now

    @precondition(lambda self: self.runs)
    @rule(controller=_CONTROLLERS)
    def end(self, controller: str) -> None:
        """A run gives the node back."""
        run = self.runs.pop(controller, None)
        if run is None:
            return
        run_lock.release(self.host, run)
        if run == self.entitled:
            self.entitled = self.heard = None

    @precondition(lambda self: self.runs)
    @rule(controller=_CONTROLLERS)
    def die(self, controller: str) -> None:
        """A controller is gone; what it began on the node goes on."""
        if controller in self.runs:
            self.dead[controller] = self.runs.pop(controller)

    def _heard_or_ends(self, controller: str, went: list[bool]) -> None:
        if went == [True]:
            self.heard = self.now
        else:
            del self.runs[controller]

    @invariant()
    def never_both(self) -> None:
        """Programs at work are of one run, and of the one that the lock names where it is there."""
        assert len(self.programs) <= 1
        lock = seals.read_lock(self.host)
        if self.programs and lock is not None:
            assert [lock["owner"]] == [*self.programs]


Locks.TestCase.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=40)
TestLocks = Locks.TestCase
