"""Figures as answers have them: each with what it may be as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict


@dataclass(frozen=True)
class Range:
    """A figure and what it may be as well."""

    low: float
    value: float
    high: float

    def times(self, factor: float) -> Range:
        """All of it, by a factor."""
        return Range(self.low * factor, self.value * factor, self.high * factor)

    def spread(self, low: float, high: float) -> Range:
        """The same figure, with both ends as factors of what they were."""
        return Range(self.low * low, self.value, self.high * high)


class Figure(TypedDict):
    """The same in an answer: with its name, its unit, why it is so, and where the rule was read."""

    name: str
    low: float
    value: float
    high: float
    unit: str
    text: str
    source: NotRequired[str]


def exactly(value: float) -> Range:
    """A figure that is no other."""
    return Range(value, value, value)


def figure(name: str, found: Range, unit: str, text: str, source: str = "") -> Figure:
    """A range as an answer has it."""
    made: Figure = {
        "name": name,
        "low": found.low,
        "value": found.value,
        "high": found.high,
        "unit": unit,
        "text": text,
    }
    if source:
        made["source"] = source
    return made
