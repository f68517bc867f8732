# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cards, found by the names people write and by PCI id. What fits a card: see catalogue.py."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

from .errors import BadInput
from .rules import Row, Rules

_WORDS = re.compile(r"[a-z0-9]+")
# Words that a name may carry or not: makers, families that the number implies, what all cards of a kind share.
_FILLERS = frozenset(
    (
        "nvidia",
        "geforce",
        "tesla",
        "gpu",
        "graphics",
        "card",
        "laptop",
        "mobile",
        "generation",
        "edition",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
    )
)
# Words that people write together: rtx4090, 1080ti, h100sxm5.
_GLUED = (
    re.compile(r"^(rtx|gtx|titan|quadro)(\d\w*)$"),
    re.compile(r"^(\d{3,4})(ti|super)$"),
    re.compile(r"^([abhlvpm]\d{2,3}s?)(sxm\d?|pcie|nvl)$"),
)
_MEMORY = re.compile(r"^\d+gb$")
_FORM = re.compile(r"^(sxm)\d?$")


def matching(pattern: str | None, rules: Rules) -> list[Row]:
    """Return the rows whose names hold the words of the pattern (all rows for None or "").

    Raises BadInput with near names where there is none.
    """
    rows: list[Row] = rules["gpus"]["rows"]
    if pattern:
        rows = _holding(_words(pattern), rows) or _near_rows(pattern, rules)
    if not rows:
        raise BadInput(f"no card of the rules is called {pattern!r}", suggest(pattern or "", rules))
    return rows


def identify(name: str, rules: Rules) -> Row:
    """Return the one row that a name means.

    A family name ("H100") is fine where all its cards agree on architecture and compute capability: the SXM row
    answers, else the PCIe row, else the first. Raises BadInput for an unknown name and for one that means
    cards that differ.
    """
    wanted = _words(name)
    rows = rules["gpus"]["rows"]
    exact = [row for row in rows if _words(row["name"]) == wanted]
    found = (
        exact or _holding(wanted, rows) or _holding(frozenset(word for word in wanted if not _MEMORY.match(word)), rows)
    )
    if not found:
        raise BadInput(
            f"unknown card {name!r}: the rules of {rules['generated']} have no such name", suggest(name, rules)
        )
    if len({(row["architecture"], row["compute_capability"]) for row in found}) > 1:
        names = [row["name"] for row in found]
        raise BadInput(f"{name!r} may be any of {', '.join(names)}, which differ: name one of them", names)
    return min(found, key=_form)


def by_pci(device: str, rules: Rules) -> Row | None:
    """Return the row of a device id such as "2330" (vendor 10de), None where no row names it."""
    wanted = device.lower().rsplit(":", 1)[-1]
    rows: list[Row] = rules["gpus"]["rows"]
    return next((row for row in rows if wanted in row["pci"]), None)


def by_range(device: str, rules: Rules) -> Row | None:
    """Return the range of device ids that a card without a row falls into: its architecture and capability."""
    number = int(device.rsplit(":", 1)[-1], 16)
    ranges: list[Row] = rules["gpus"]["device_ranges"]
    return next((row for row in ranges if int(row["first"], 16) <= number <= int(row["last"], 16)), None)


def suggest(name: str, rules: Rules) -> list[str]:
    """Return up to five names that resemble one that is not known."""
    names = [row["name"] for row in rules["gpus"]["rows"]]
    plain = {_plain(each): each for each in names}
    near = [plain[each] for each in difflib.get_close_matches(_plain(name), plain, n=3, cutoff=0.5)]
    words = _words(name)
    every = sorted({word for each in names for word in _words(each)})
    similar = frozenset(match for word in words for match in difflib.get_close_matches(word, every, n=3, cutoff=0.75))
    sharing = sorted((each for each in names if similar & _words(each)), key=lambda each: -len(similar & _words(each)))
    return list(dict.fromkeys([*near, *sharing]))[:5]


def _holding(wanted: frozenset[str], rows: list[Row]) -> list[Row]:
    return [row for row in rows if wanted and wanted <= _words(row["name"])]


def _near_rows(pattern: str, rules: Rules) -> list[Row]:
    """Rows whose text holds the pattern as it was typed ("a6", "blackwell")."""
    text = pattern.lower().strip()
    rows: list[Row] = rules["gpus"]["rows"]
    return [row for row in rows if text in row["name"].lower() or text == row["architecture"].lower()]


@lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    words: list[str] = []
    for word in _WORDS.findall(name.lower()):
        words.extend(_split(word))
    return frozenset(_same(word) for word in words if word not in _FILLERS)


def _split(word: str) -> Iterable[str]:
    for pattern in _GLUED:
        match = pattern.match(word)
        if match:
            return [part for group in match.groups() for part in _split(group)]
    return [word]


def _same(word: str) -> str:
    match = _FORM.match(word)
    return match.group(1) if match else word


def _plain(name: str) -> str:
    """Return a name without the words that it may carry or not, to compare spellings by."""
    return " ".join(word for word in _WORDS.findall(name.lower()) if word not in _FILLERS)


def _form(row: Row) -> int:
    words = _words(row["name"])
    if "sxm" in words:
        return 0
    return 1 if "pcie" in words else 2
