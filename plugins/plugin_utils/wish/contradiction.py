# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wants of one person that say different things of the same: none of them is taken silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model.errors import BadInput
from ..model.wish import FrameworkWish, Values
from .reading import ANY


class Said:
    """What each want of several said, so that a later one that says otherwise is refused with the earlier one named."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._wants: dict[str, str] = {}

    def take(self, values: Values, want: str) -> None:
        """Note what is wished after a want was read. Raises BadInput where it took the place of what another one said."""
        for name, value in _single("", values):
            if name in self._values and self._values[name] != value:
                raise refused(self._wants[name], want)
            if name not in self._values:
                self._values[name], self._wants[name] = value, want


def _single(above: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield what there is one of, by its name; versions of CUDA, frameworks and projects are several, side by side."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _single(f"{name}.", value)
        elif not isinstance(value, tuple) and value != ANY and (value is not None or above):
            yield name, value


def refused(one: str, other: str) -> BadInput:
    """Return the error of two wants that say different things."""
    return BadInput(f"{one!r} and {other!r} say different things of the same: name one of them")


def of_framework(one: FrameworkWish, other: FrameworkWish) -> BadInput | None:
    """Return the error of two wishes for one framework; None where they agree, or one leaves open what the other says."""
    pairs = ((one.specifier, other.specifier), (one.variant, other.variant))
    if all(not before or not after or before == after for before, after in pairs):
        return None
    return refused(one.text, other.text)
