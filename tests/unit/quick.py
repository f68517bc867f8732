"""Whether a piece of work is quick, on any machine and beside anything else that runs there.

Seconds alone do not say it: on a slow machine, and where two processes share a core, the same work takes more of them. What takes too many
is held against a loop of the same run, and measured again before it is called slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TEXT = "a b"
#: The loop splits it this often.
TURNS = 500_000
#: Seconds of the processor that this takes where nothing else runs: measured on the two cores that the limits were chosen on.
AT_REST = 0.045
ROUNDS = 3


def quickly(work: Callable[[], T], most: float = 1.0, what: str = "the work") -> T:
    """The outcome of the work. AssertionError if each round took more than `most` seconds of the processor at rest."""
    took = []
    for _ in range(ROUNDS):
        seconds, outcome = _seconds(work)
        if seconds <= most:
            return outcome
        took.append(seconds * AT_REST / _seconds(_loop)[0])
        if took[-1] <= most:
            return outcome
    raise AssertionError(f"{what} took {min(took):.1f} s, as if nothing else ran, and {most:.1f} s are the most")


def _loop() -> None:
    for _ in range(TURNS):
        _TEXT.split()


def _seconds(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of the processor, and the outcome."""
    began = time.process_time()
    outcome = work()
    return time.process_time() - began, outcome
