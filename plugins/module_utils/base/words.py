# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Numbers of things, as a person writes them."""

from __future__ import annotations

import re

#: A plural; units (s, GB/s) and words that only end like one (status) are none.
_PLURAL = re.compile(r"[a-z]{2,}[a-rt-z]s", re.ASCII)
_NO_PLURAL = ("status",)
#: How plurals end, and the one of them.
_ENDINGS = (("sses", "ss"), ("ies", "y"), ("xes", "x"), ("s", ""))
_VERBS = {"are": "is", "were": "was", "have": "has", "do": "does", "leave": "leaves"}


def one(plural: str) -> str:
    """What is counted, where it is one: card, computing process, card parted otherwise."""
    words = plural.split(" ")
    place = next(
        (at for at in (len(words) - 1, 0) if _PLURAL.fullmatch(words[at]) and words[at] not in _NO_PLURAL), None
    )
    if place is not None:
        ending, single = next(pair for pair in _ENDINGS if words[place].endswith(pair[0]))
        words[place] = words[place][: -len(ending)] + single
    return " ".join(words)


def verb(number: object, plural: str) -> str:
    """The verb of so many: one card is, two cards are."""
    return _VERBS[plural] if str(number) == "1" else plural


def count(number: object, plural: str, does: str = "") -> str:
    """A number with what it is of, or a measured value with its unit, and what they do: 1 card, 2 cards are, 1 s."""
    things = one(plural) if str(number) == "1" else plural
    return f"{number} {things} {verb(number, does)}" if does else f"{number} {things}"
