"""A machine on which others are at home: installed, cut off, upgraded, rolled back and removed in any order, it keeps what is theirs.

Ten orders at a time: the soak has those from 4100, 4110, 4120 or 4130 on, by the state of the tree. GPUWRIGHT_STRANGER_ORDERS=40 has all of
these, and GPUWRIGHT_STRANGER_SEED=N others. Every other one is with apt, the rest with dnf; each is told with its seed.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.sim import node

from . import snapshot
from .conftest import Node, Run
from .strangers import APT, DNF, Strangers, System

pytestmark = pytest.mark.sim

_ORDERS = int(os.environ.get("GPUWRIGHT_STRANGER_ORDERS", "10"))
_SEED = int(os.environ.get("GPUWRIGHT_STRANGER_SEED", "4100"))
_DRIVER = ("driver=580.126.20", "driver")
#: Seconds of a run within which it is cut off.
_LONGEST = {"up": 40.0, "upgrade": 25.0, "rollback": 25.0, "remove": 30.0}
#: What people do while gpuwright is at work on their machine, or between its runs.
_BETWEEN = ("install", "note", "edit", "conflict", "power")


@dataclass(frozen=True)
class Order:
    """What happens on a node: what is there before, then runs of gpuwright, some of them cut off, and what people do in between."""

    seed: int
    wish: str
    before: tuple[str, ...]
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.seed}-{self.wish}"


def _orders(first: int) -> Iterator[Order]:
    """Every other order, each of its own seed. A wish with an engine has data in it before the end."""
    for number in range(first, _ORDERS, 2):
        chance = random.Random(f"order {_SEED + number}")  # noqa: S311 (no secret)
        wish = ("cuda", "containers")[number // 2 % 2]
        steps = ["up", *("upgrade", "rollback")[: chance.randint(0, 2)]]
        between = chance.sample(_BETWEEN, chance.randint(1, len(_BETWEEN)))
        for each in [*between, *(["volume"] if wish == "containers" else [])]:
            steps.insert(chance.randint(1, len(steps)), each)
        cut = [f"cut {each}" if each in _LONGEST and chance.randrange(2) else each for each in [*steps, "remove"]]
        before = chance.sample(["kubernetes", "docker"], chance.randint(0, 2))
        yield Order(_SEED + number, wish, tuple(before), tuple(cut))


@pytest.mark.soak(part="services")
@pytest.mark.parametrize("order", list(_orders(0)), ids=str)
def test_what_is_others_stays_as_it_was_with_apt(make_node: Callable[..., Node], order: Order) -> None:
    _Life(make_node("stranger", APT.scenario), APT, order).lived()


@pytest.mark.soak(part="environments")
@pytest.mark.parametrize("order", list(_orders(1)), ids=str)
def test_what_is_others_stays_as_it_was_with_dnf(make_node: Callable[..., Node], order: Order) -> None:
    _Life(make_node("stranger-dnf", DNF.scenario), DNF, order).lived()


class _Life:
    """One order on a node of its own."""

    def __init__(self, machine: Node, system: System, order: Order) -> None:
        self.machine, self.system, self.order = machine, system, order
        self.others = Strangers(machine, system)
        self.chance = random.Random(f"moments {order.seed}")  # noqa: S311 (no secret)
        self.number = 0

    def lived(self) -> None:
        """Go through the order. After each step everything of others is there, and in the end nothing else."""
        self.others.fill()
        for each in self.order.before:
            getattr(self.others, each)()
        self.others.remember()
        for step in self.order.steps:
            told = self._step(step)
            lost = self.others.lost(ended=step.endswith("remove"))
            assert not lost, self._message(f"{step} took or changed {lost}", told)
        left = self.others.left(told)
        assert not left, self._message(f"there is still {left}", told)

    def _message(self, text: str, told: object) -> str:
        return f"{self.order} {self.order.before} {self.order.steps}: {text}\n{str(told)[-1500:]}"

    def _step(self, step: str) -> str:
        """Do one thing; what gpuwright said of it."""
        verb = step.removeprefix("cut ")
        if verb != step:
            self._cut(verb)
            self._install()
        if verb in _LONGEST:
            run = self._run(verb)
            assert run.code == 0, self._message(f"{step} ended with {run.code}", run)
            return f"{run.stdout}\n{run.stderr}"
        if verb == "install":
            self._install()
        elif verb == "power":
            node.power_cut(self.machine.name)
        elif verb == "conflict":
            return self._conflict()
        elif verb == "volume":
            self.others.volume()
        elif verb == "note":
            self.others.note(f"note-{self.order.seed}.txt")
        else:
            self.others.edit()
        return ""

    def _install(self) -> None:
        self.number += 1
        self.others.install(f"users-db{self.number}")

    def _conflict(self) -> str:
        """Another wish brings a package that cannot be there together with one that somebody installed and holds: it is refused."""
        (other,) = {*self.system.conflicts} - {self.order.wish}
        self.others.conflict(other)
        run = self.machine.up(*self._words(1), *self._words(1, other))
        assert run.code == 3, self._message(f"{other}, in conflict with company-vpn, ended with {run.code}", run)
        return f"{run.stdout}\n{run.stderr}"

    def _words(self, driver: int, wish: str | None = None) -> list[str]:
        wished = {"cuda": ("cuda=13.0",), "containers": self.system.docker}[wish or self.order.wish]
        return [word for each in (_DRIVER[driver], *wished) for word in ("--want", each)]

    def _run(self, verb: str) -> Run:
        return self.machine.run(verb, "--yes", *self._arguments(verb))

    def _arguments(self, verb: str) -> list[str]:
        return [] if verb == "remove" else self._words(0 if verb == "up" else 1)

    def _cut(self, verb: str) -> None:
        """Begin a run and cut it off at a random moment: killed, out of power, or out of reach."""
        process = self.machine.begin(verb, *self._arguments(verb))
        try:
            process.wait(self.chance.uniform(3, _LONGEST[verb]))
        except subprocess.TimeoutExpired:
            kind = self.chance.choice(("kill", "power", "connection"))
            if kind == "kill":
                snapshot.cut_off(self.machine.name, process)
            elif kind == "power":
                node.power_cut(self.machine.name)
            else:
                snapshot.kill(process)
                time.sleep(self.chance.uniform(0, 3))
        finally:
            snapshot.kill(process)
