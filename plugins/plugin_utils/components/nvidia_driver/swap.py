# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Some packages in and others out by one call of apt: an exchange of the source, and the way back.

One after the other would leave the machine without a driver in between, and both sets together share files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypedDict

from ...model.plan import Plan
from ..base import Context

#: dpkg's state of a package that it was cut off in while it unpacked it: the third letter is R.
_CUT_OFF = re.compile(r"..R (.+)")
#: Facts name packages of the machine's own architecture without it.
_OWN = re.compile(r":(amd64|arm64)$")
_JOURNAL = "dpkg was interrupted"


class Exchange(TypedDict):
    """What comes, as apt takes it, and which packages go. ``present``: the driver's packages that are there; ``pending``: dpkg has a
    journal of its own to finish first.
    """

    present: list[str]
    comes: list[str]
    leaves: list[str]
    pending: bool


class Swap(TypedDict):
    """``take_out``: packages that dpkg has to purge before apt answers at all; ``words``: what apt is asked to install, a name with a minus
    asks for removal. ``moves``: names of the packages of the driver that are there, and of what comes.
    """

    take_out: list[str]
    words: list[str]
    moves: list[str]


def due(context: Context, plan: Plan) -> Exchange | None:
    """The exchange of another source's packages, where the plan is one. Of those that leave only those are named that are there."""
    sets = plan["exchange"]
    if not sets:
        return None
    present = context.facts["driver"]["packages"] or {}
    comes = [f"{name}={version}" for name, version in sets["comes"].items()]
    return of(context, comes, [name for name in sets["leaves"] if name in present])


def of(context: Context, comes: Iterable[str], leaves: Iterable[str]) -> Exchange:
    """One of packages that come and packages that go."""
    return {
        "present": list(context.facts["driver"]["packages"] or {}),
        "comes": list(comes),
        "leaves": list(leaves),
        "pending": _JOURNAL in (context.facts["packages"]["interrupted_detail"] or ""),
    }


def words(exchange: Exchange, states: Iterable[str]) -> Swap:
    """The two lists of a call, from what dpkg-query says: a line ``STATE NAME`` for each package.

    Taken out are the driver's packages that were cut off while they were unpacked, and that neither of the two brings: apt refuses every
    call while there is one that it may not install again, as of a source that is kept from the driver by now.
    """
    arriving = [word.partition("=")[0] for word in exchange["comes"]]
    lines = (_CUT_OFF.fullmatch(line) for line in states)
    half = dict.fromkeys(_OWN.sub("", line[1].strip()) for line in lines if line)
    out = [name for name in half if name in exchange["present"] and name not in arriving]
    return {
        "take_out": out,
        "words": [*exchange["comes"], *(f"{name}-" for name in exchange["leaves"] if name not in out)],
        "moves": list(dict.fromkeys([*exchange["present"], *arriving])),
    }
