# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cards, found by the names people write and by PCI id. What fits a card: see catalogue.py."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.errors import BadInput
from . import Row, Rules

_WORDS = lazy(r"[a-z0-9]+")
# Words that a name may carry or not: makers, families that the number implies, what all cards of a kind share.
_FILLERS = frozenset(
    (
        "nvidia",
        "geforce",
        "tesla",
        "gpu",
        "graphics",
        "card",
        "generation",
        "edition",
        "with",
        "design",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
    )
)
# Words that people write together: rtx4090, 1080ti, h100sxm5.
_GLUED = (
    re.compile(r"^(rtx|gtx|gt|mx|titan|quadro)(\d\w*)$"),
    re.compile(r"^(\d{3,4})(ti|super)$"),
    re.compile(r"^(\d{4})(m|d)$"),
    re.compile(r"^([abhlvpm]\d{2,3}s?)(sxm\d?|pcie|nvl)$"),
)
# A number with the letters before it: 4090ti, h100, a6000.
_NUMBERED = lazy(r"^(?P<family>[a-z]*?)(?P<digits>\d{2,5})[a-z]*$")
_MEMORY = lazy(r"^\d+gb$")
_FORM = lazy(r"^(sxm)\d?$")
_DEVICE = lazy(r"^(?:10de:)?([0-9a-f]{4})$")
# Words for the same thing. A glued "m" is a laptop too: 1060m.
_SAME = {"mobile": "laptop", "notebook": "laptop", "m": "laptop"}
_MAX_Q = lazy(r"max[ -]?q", re.IGNORECASE)
# Words that only cards of NVIDIA have in their names, whatever number is beside them.
_OF_NVIDIA = lazy(r"(?<![a-z])(?:quadro|geforce|rtx|nvidia|ada)(?![a-z])")


def matching(pattern: str | None, rules: Rules) -> list[Row]:
    """Return the rows of an architecture, or whose names hold the words of the pattern, or that have it as PCI id.

    All rows for None or "".

    Raises BadInput where there is none: with near names, or with the maker of a GPU that is none of NVIDIA's.
    """
    rows: list[Row] = rules["gpus"]["rows"]
    if pattern:
        wanted = _words(pattern)
        rows = (
            [row for row in rows if row["architecture"].lower() == pattern.strip().lower()]
            or _holding(wanted, rows)
            or _of_device(pattern, rules)
            or _holding(_as_laptop(wanted), rows)
            or _near_rows(pattern, rules)
        )
    if not rows:
        _not_of_others(pattern or "", rules)
        raise BadInput(f"no card of the rules is called {pattern!r}", suggest(pattern or "", rules))
    return rows


def identify(name: str, rules: Rules) -> Row:
    """Return the one row that a name means.

    A name without "Laptop" means the card for a slot where there is one. A family name ("H100") is fine where all its
    cards agree on architecture and compute capability: the SXM row answers, else the PCIe row, else the one whose name
    says least more. Raises BadInput for an unknown name and for one that means cards that differ.
    """
    found = _called(name, rules)
    if not found:
        _not_of_others(name, rules)
        raise BadInput(
            f"unknown card {name!r}: the rules of {rules['generated']} have no such name", suggest(name, rules)
        )
    found = [row for row in found if not row.get("form")] or found
    if len({(row["architecture"], row["compute_capability"]) for row in found}) > 1:
        names = [row["name"] for row in found]
        raise BadInput(f"{name!r} may be any of {', '.join(names)}, which differ: name one of them", names)
    return min(found, key=lambda row: (_form(row), len(_words(row["name"]))))


def is_known(name: str, rules: Rules) -> bool:
    """Say whether a name means a card of the rules, be it one that several cards share."""
    return bool(_called(name, rules))


def _called(name: str, rules: Rules) -> list[Row]:
    """Return the rows that a name may mean, the closest reading first; of memory and Max-Q only where rows tell them apart."""
    rows: list[Row] = rules["gpus"]["rows"]
    wanted = _words(name)
    exact = [row for row in rows if _words(row["name"]) == wanted] or [
        row for row in rows if row["class"] == "geforce" and _words(row["name"]) in (wanted | {"rtx"}, wanted | {"gtx"})
    ]
    for reading in (wanted, _as_laptop(wanted), frozenset(word for word in wanted if not _MEMORY.match(word))):
        exact = exact or _holding(reading, rows)
    return exact or _of_device(name, rules)


def by_pci(device: str | None, rules: Rules) -> Row | None:
    """Return the row of a device id such as "2330" (vendor 10de), None where no row names it, or the card tells none."""
    wanted = (device or "").lower().rsplit(":", 1)[-1]
    rows: list[Row] = rules["gpus"]["rows"]
    return next((row for row in rows if wanted in row["pci"]), None)


def by_range(device: str | None, rules: Rules) -> Row | None:
    """Return the range of device ids that a card without a row falls into: its architecture and capability."""
    if not device:
        return None
    number = int(device.rsplit(":", 1)[-1], 16)
    ranges: list[Row] = rules["gpus"]["device_ranges"]
    return next((row for row in ranges if int(row["first"], 16) <= number <= int(row["last"], 16)), None)


def maker(name: str, rules: Rules) -> str | None:
    """Return the maker of a GPU that is none of NVIDIA's, by the words in its name: AMD for "Instinct MI300X".

    None where a word of it is NVIDIA's own: "Quadro RX 5000" is a card of NVIDIA, written wrongly.
    """
    rows: list[Row] = rules["hosts"]["makers"]
    plain = name.lower()
    if _OF_NVIDIA.search(plain):
        return None
    return next((row["maker"] for row in rows if any(re.search(each, plain) for each in row["names"])), None)


def _not_of_others(name: str, rules: Rules) -> None:
    """Raise BadInput for a GPU of another maker: no card of NVIDIA is what was meant."""
    other = maker(name, rules)
    if other:
        said = next(row["text"] for row in rules["hosts"]["kinds"] if row["kind"] == "other")
        raise BadInput(
            f"{name!r} is a GPU of {other}: {said}; name the cards of NVIDIA alone, the others are left as they are"
        )


def suggest(name: str, rules: Rules) -> list[str]:
    """Return up to five names that may be meant by one that is not known: those whose number is nearest, of the same family; for a name
    without a number those that resemble it. None for a GPU of another maker.
    """
    if maker(name, rules):
        return []
    names = [row["name"] for row in rules["gpus"]["rows"]]
    number = _number(name)
    if number is None:
        plain = {_plain(each): each for each in names}
        return [plain[each] for each in difflib.get_close_matches(_plain(name), plain, n=5, cutoff=0.5)]
    numbered = [
        (each, found) for each in names if (found := _number(each)) is not None and found.family == number.family
    ]
    words = _words(name)
    ordered = sorted(
        numbered,
        key=lambda each: (
            each[1] != number,
            -len(words & _words(each[0])),
            _away(number, each[1]),
            len(_words(each[0])),
        ),
    )
    return [each for each, _found in ordered][:5]


class _Number(NamedTuple):
    """The number in a card's name, 4090 or 100, with the letters before it (h): cards of the same letters are a family."""

    family: str
    digits: str


def _number(name: str) -> _Number | None:
    """Return the first number of a name; None where it has none."""
    for word in _WORDS.findall(name.lower()):
        if word in _FILLERS or _MEMORY.match(word):
            continue
        for part in _split(word):
            found = _NUMBERED.match(part)
            if found:
                return _Number(found["family"], found["digits"])
    return None


def _away(one: _Number, other: _Number) -> tuple[int, int]:
    """Return how far apart two numbers are: the same digits in another order, one more digit or one less, the same class of another
    generation (the last two digits of 4090), then by their size.
    """
    short, long = sorted((one.digits, other.digits), key=len)
    kinds = (
        one.digits == other.digits,
        sorted(one.digits) == sorted(other.digits),
        len(long) == len(short) + 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long))),
        len(long) == len(short) and long[-2:] == short[-2:] != "00",
        True,
    )
    return kinds.index(True), abs(int(one.digits) - int(other.digits))


def _holding(wanted: frozenset[str], rows: list[Row]) -> list[Row]:
    return [row for row in rows if wanted and wanted <= _words(row["name"]) | _said_by_form(row)]


def _said_by_form(row: Row) -> frozenset[str]:
    """Return "laptop" for a card that exists only as one and whose name does not say so: RTX 2050, MX450."""
    return frozenset(("laptop",)) if row.get("form") == "laptop" else frozenset()


def _as_laptop(wanted: frozenset[str]) -> frozenset[str]:
    """Return the words of a Max-Q card as those of the laptop card: most of them share one name and one device id."""
    return (wanted - {"maxq"}) | {"laptop"} if "maxq" in wanted else wanted


def _of_device(text: str, rules: Rules) -> list[Row]:
    """Return the rows that have the text as their PCI id: 2684, 10de:2684."""
    match = _DEVICE.match(text.strip().lower())
    return [row for row in rules["gpus"]["rows"] if match and match[1] in row["pci"]]


def _near_rows(pattern: str, rules: Rules) -> list[Row]:
    """Rows whose text holds the pattern as it was typed ("a6")."""
    text = pattern.lower().strip()
    rows: list[Row] = rules["gpus"]["rows"]
    return [row for row in rows if text in row["name"].lower()]


@lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    words: list[str] = []
    for word in _WORDS.findall(_MAX_Q.sub("maxq", name).lower()):
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
    return match.group(1) if match else _SAME.get(word, word)


def _plain(name: str) -> str:
    """Return a name without the words that it may carry or not, to compare spellings by."""
    return " ".join(word for word in _WORDS.findall(name.lower()) if word not in _FILLERS)


def _form(row: Row) -> int:
    words = _words(row["name"])
    if "sxm" in words:
        return 0
    return 1 if "pcie" in words else 2
