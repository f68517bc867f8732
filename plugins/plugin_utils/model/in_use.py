# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The answer to the question whether something is in use, and what a plan would end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class InUse:
    """Whether something is in use. ``who``: what uses it. ``why``: why it is not known.

    It is neither true nor false, and nothing to go through: who asks looks at the state.
    """

    state: Literal["busy", "idle", "unknown"]
    who: tuple[str, ...] = ()
    why: str = ""

    def __bool__(self) -> bool:
        raise TypeError("an answer of three states is neither true nor false: look at its state")


@dataclass(frozen=True)
class Disturbance:
    """What a change would end. ``what``: has to be idle, ``because``: of the change, both for a person."""

    what: str
    because: str
    use: InUse
