# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a framework offers: the one shape that its tables are read into, and the questions that each framework answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import About

from ....resolver.log import Entry, Log
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents


@dataclass(frozen=True)
class Offer:
    """A release of a framework in one variant of its wheels.

    title is what people call it. pythons are those it can be installed for, python_note why that is not each one of its wheels.
    cuda is the CUDA version that its code needs a driver for; None: it runs on the processor. rank orders the variants of a
    release, lowest first. row is what is cited for the variant, release_row for the release; extra_rows are more that the
    framework's own answers need. public are the architectures for which the Python index has the variant; None: all.
    """

    title: str
    version: str
    variant: str
    pythons: tuple[str, ...]
    table: str
    release_row: Row
    row: Row
    confirmed: bool
    cuda: str | None = None
    rank: int = 0
    python_note: str = ""
    public: tuple[str, ...] | None = None
    extra_rows: dict[str, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """What an environment is made for; python is the interpreter that was chosen for it. there: of distributions that the Python index
    lacks as they were chosen, the versions that it has.
    """

    cards: Sequence[Card]
    arch: str
    python: str
    there: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Framework(Protocol):
    """What the module of each framework offers."""

    ABOUT: About

    def offers(self, wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
        """What answers the wish: the variants of a release together, the newest release first."""

    def card_reasons(self, offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
        """Why the wheels do not run on these cards or this architecture."""

    def contents(self, offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
        """What is installed for the machine."""
