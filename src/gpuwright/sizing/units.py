"""Numbers as people write them (`7B`, `1.5T`, `8k`, `25 GiB`), and what is wrong with them."""

from __future__ import annotations

import math
import re

from gpuwright.errors import BadInput

GIB = 2**30
GB = 10**9
TERA = 10**12
DAY = 86_400.0

#: What stands behind a count, as people write it: thousands of tokens and parameters are powers of ten.
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
#: A context of 8k is 8192 tokens: models are trained at powers of two.
_TOKENS = {"": 1, "k": 2**10, "m": 2**20}
#: No question has a larger number in it; what is above is a slip of the finger.
MOST = 1e18
_NUMBER = re.compile(r"(\d{1,20}(?:\.\d{1,12})?(?:e\+?\d{1,2})?)\s*([a-z]?)", re.IGNORECASE | re.ASCII)


def at_least_one(number: int) -> int:
    """What has no half of it: a head, a layer, a turn."""
    return max(number, 1)


def excerpt(found: object) -> str:
    """What stands where something else has to: in quotation marks, and not longer than a line of a message bears."""
    return repr(str(found)[:40])


def count(text: str, what: str) -> float:
    """A number of parameters or tokens: `7B`, `70e9`, `1.5T`.

    Raises:
        BadInput: it is none, zero, or absurdly large.
    """
    return _read(text, what, _COUNTS, "7B, 350M or 1.5T")


def tokens(text: str, what: str) -> int:
    """A length of sequences: `4096`, `8k` (8192).

    Raises:
        BadInput: it is none, zero, or absurdly large.
    """
    return whole(_read(text, what, _TOKENS, "4096 or 8k"), what)


def sequences(number: int) -> str:
    """So many sequences, in words."""
    return f"{number} sequence{'s' if number > 1 else ''}"


def whole(number: float, what: str) -> int:
    """The number as an integer.

    Raises:
        BadInput: it has a fraction.
    """
    if number != int(number):
        raise BadInput(f"{what} has to be a whole number, found {number:g}")
    return int(number)


def share(text: str, what: str) -> float:
    """A share above 0 and up to 1: `0.4` or `40%`.

    Raises:
        BadInput: it is none.
    """
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)(%?)", text.strip(), re.ASCII)
    number = float(found[1]) / (100 if found[2] else 1) if found else math.nan
    if not 0 < number <= 1:
        raise BadInput(f"{what} has to be a share above 0 and up to 1, found {text!r}", ["for example 0.4 or 40%"])
    return number


def amount(text: str, what: str, *, least: float = 0.0) -> float:
    """A plain number from `least` on.

    Raises:
        BadInput: it is none.
    """
    found = _NUMBER.fullmatch(text.strip())
    number = float(found[1]) if found and not found[2] else math.nan
    if not least <= number <= MOST:
        raise BadInput(f"{what} has to be a number from {least:g} on, found {text!r}")
    return number


def _read(text: str, what: str, units: dict[str, int], example: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        raise BadInput(f"{what} has to be a number, found {text!r}", [f"for example {example}"])
    number = float(found[1]) * units[found[2].lower()]
    if not 1 <= number <= MOST:
        raise BadInput(f"{what} has to be at least 1 and at most {MOST:g}, found {text!r}", [f"for example {example}"])
    # 1.3B is 1.3 * 10**9 to people, and 1300000000.0000002 to floating point.
    return round(number) if abs(number - round(number)) < 1e-6 * number else number
