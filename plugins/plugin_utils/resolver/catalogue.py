# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the rules know of a card and what fits it: `gpuwright gpus`.

What fits is not worked out here: the resolver is asked, as a person would ask it, on each system and for each Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT, DEFAULT

from ..components.cuda.resolve import cudnn
from ..components.nvidia_driver.resolve import branch
from ..model.stack import Stack
from ..rules import Row, Rules, gpus
from ..wish.wish import Wish
from . import cards, targets
from . import resolve as resolver
from .machine import Card, Machine

FRAMEWORKS = tuple(each.name for each in ABOUT.values() if each.listed)
_JETSON = lazy(r"^Jetson")
# Of a framework, by Python: version and variant.
ByPython = dict[str, dict[str, str]]


class Limits(TypedDict):
    """The first and the last version that serve a card; None where nothing limits it."""

    first: str | None
    last: str | None


class Branch(TypedDict):
    """Driver branch that drives a card."""

    branch: str
    type: str
    eol: str | None
    latest: str | None
    max_cuda: str
    modules: list[str]
    state: str


class Drivers(TypedDict):
    """What drives a card; ``belongs_to``: whoever else brings it."""

    preferred: str | None
    belongs_to: str | None
    branches: list[Branch]


class Carried(TypedDict):
    """Driver of a card on a system; None where no source carries one."""

    os: str
    branch: str | None
    modules: str | None
    source: str | None


_Class = TypedDict("_Class", {"class": str})


class Description(_Class):  # pylint: disable=inherit-non-class
    """What is known of a card and fits it."""

    name: str
    architecture: str
    compute_capability: str
    memory_gb: float | None
    nvlink_gbs: float | None
    pci: list[str]
    tdp_w: float | None
    bandwidth_gbs: float | None
    chip: str
    form: str | None
    modules: list[str]
    first_driver: str | None
    branches: list[str]
    driver: Drivers
    systems: list[Carried]
    cuda: list[str]
    cudnn: Limits | None
    pytorch: str | None
    frameworks: dict[str, ByPython]
    confirmed: bool


def find(pattern: str | None, rules: Rules, *, today: date | None = None, few: int | None = None) -> list[Description]:
    """Return what is known of every card whose name holds the words of the pattern (all cards for None or "").

    Of more cards than `few` only the default framework is looked for among the frameworks: the others take twice as long again.
    Raises BadInput with near names where there is none.
    """
    rows = gpus.matching(pattern, rules)
    fits = Fits(rules, today, FRAMEWORKS if few is None or len(rows) <= few else (DEFAULT,))
    return [describe(row, rules, fits) for row in rows]


def describe(row: Row, rules: Rules, fits: Fits | None = None) -> Description:
    """Return what a person asks about a card: branches that drive it, modules, CUDA, cuDNN, the newest frameworks."""
    fits = fits or Fits(rules)
    card = cards.from_row(row)
    serving = [each for each in rules["driver_branches"]["rows"] if cards.served(card, each, rules)]
    toolkits = targets.toolkits_for([card], rules)
    systems = fits.systems(card)
    frameworks = fits.frameworks(card)
    return {
        "name": row["name"],
        "class": row["class"],
        "architecture": row["architecture"],
        "compute_capability": row["compute_capability"],
        "memory_gb": row["memory_gb"],
        "nvlink_gbs": row["nvlink_gbs"],
        "pci": row["pci"],
        "tdp_w": row["tdp_w"],
        "bandwidth_gbs": row["bandwidth_gbs"],
        "chip": row["chip"],
        "form": row.get("form"),
        "modules": cards.flavours(card, rules),
        "first_driver": row["first_driver"],
        "branches": [each["branch"] for each in serving],
        "driver": {
            "preferred": next((each["branch"] for each in systems if each["branch"]), None),
            "belongs_to": "JetPack" if _JETSON.match(card.name) else None,
            "branches": [_branch(each, fits.today) for each in serving],
        },
        "systems": systems,
        "cuda": [toolkits[0], toolkits[-1]] if toolkits else [],
        "cudnn": _cudnn(card, rules),
        "pytorch": _newest(frameworks.get(DEFAULT, {}).values()),
        "frameworks": frameworks,
        "confirmed": row["confirmed"],
    }


def _newest(found: Iterable[Mapping[str, str]]) -> str | None:
    newest = max(found, key=lambda each: numeric_version.key(each["version"]), default=None)
    return f"{newest['version']}+{newest['variant']}" if newest else None


def _branch(row: Row, today: date) -> Branch:
    return {
        "branch": row["branch"],
        "type": row["type"],
        "eol": row["eol"],
        "latest": row["latest"],
        "max_cuda": row["max_cuda"],
        "modules": row["modules"],
        "state": branch.lifetime(row, today),
    }


def _cudnn(card: Card, rules: Rules) -> Limits | None:
    """Return the first and the last cuDNN that serve a card, None where nothing limits it; None where no cuDNN does."""
    capability = card.compute_capability or "0"
    rows = rules["cudnn"]["rows"]
    serving = [row for row in rows if numeric_version.at_least(capability, row["min_compute_capability"])]
    if not serving:
        return None
    last = [row["last"] for row in cudnn.limits([capability], [], rules["cudnn"]["ceilings"])]
    if serving[-1] is not rows[-1]:
        last.append(_published(serving[-1]["last"], rules))
    first = [
        row["first"]
        for row in rules["cudnn"]["floors"]
        if "from_compute_capability" in row and numeric_version.at_least(capability, row["from_compute_capability"])
    ]
    return {"first": numeric_version.highest(*first), "last": min(last, key=numeric_version.key, default=None)}


def _published(version: str, rules: Rules) -> str:
    """Return the newest build of a version such as 9.10.2; the version itself where none is listed."""
    builds = [row["version"] for row in rules["cudnn"]["versions"] if numeric_version.belongs(row["version"], version)]
    return numeric_version.highest(version, *builds) or version


@dataclass(frozen=True)
class Kind:
    """A machine with one card; the card's name is left out, so that cards which differ in nothing else are one."""

    card: Card
    arch: str
    environment: str


class Fits:
    """What the resolver answers for a card alone in a machine; cards that do not differ in what decides share an answer."""

    def __init__(self, rules: Rules, today: date | None = None, names: Sequence[str] = FRAMEWORKS) -> None:
        self.rules = rules
        self.names = names
        self.today = today or date.today()  # noqa: DTZ011 - ends of life are days, not moments
        self._systems: dict[Kind, list[Carried]] = {}
        self._frameworks: dict[tuple[Kind, str], dict[str, ByPython]] = {}

    def systems(self, card: Card) -> list[Carried]:
        """Return for each system the branch, modules and source of the driver; None where no source carries one."""
        kind = _kind(replace(card, pci=card.pci if cards.first_builds(card, self.rules) else None))
        if kind not in self._systems:
            self._systems[kind] = [self._system(kind, row) for row in self.rules["systems"]["rows"]]
        return self._systems[kind]

    def frameworks(self, card: Card) -> dict[str, ByPython]:
        """Return by framework and Python the newest version that fits and its variant, on the first system with a driver."""
        carried = next((each for each in self.systems(card) if each["branch"]), None)
        if carried is None and not _JETSON.match(card.name):
            return {}
        os = carried["os"] if carried else self.rules["systems"]["rows"][0]["os"]
        kind = _kind(replace(card, pci=None, first_driver=None, absent=()))
        key = (kind, os)
        if key not in self._frameworks:
            found = {name: self._by_python(name, kind, os) for name in self.names}
            self._frameworks[key] = {name: versions for name, versions in found.items() if versions}
        return self._frameworks[key]

    def pythons(self) -> list[str]:
        """Return the Pythons that a served system has, and those between."""
        own = [row["python"] for row in self.rules["systems"]["rows"]]
        table, rows = ABOUT[DEFAULT].releases
        known = {each for row in self.rules[table][rows] for each in row["python"]} | set(own)
        first, last = min(own, key=numeric_version.key), max(own, key=numeric_version.key)
        return sorted((each for each in known if _between(first, each, last)), key=numeric_version.key)

    def _by_python(self, name: str, kind: Kind, os: str) -> ByPython:
        wish = Wish.from_variables({"gpuwright_want": [name]}, self.rules)
        found = {}
        for python in self.pythons():
            stack = self._ask(kind, os, wish, python)
            if stack and stack.get("frameworks"):
                chosen = stack["frameworks"][0]
                found[python] = {"version": chosen["version"], "variant": chosen["variant"]}
        return found

    def _system(self, kind: Kind, system: Row) -> Carried:
        stack = self._ask(kind, system["os"], Wish(), system["python"])
        driver = stack.get("driver") if stack else None
        return {
            "os": system["os"],
            "branch": driver["branch"] if driver else None,
            "modules": driver["modules"] if driver else None,
            "source": driver["source"] if driver else None,
        }

    def _ask(self, kind: Kind, os: str, wish: Wish, python: str) -> Stack | None:
        machine = Machine(
            cards=(kind.card,),
            os=os,
            arch=kind.arch,
            today=self.today,
            environment=kind.environment,
            pythons=(python,),
        )
        return resolver.stack_for(machine, wish, self.rules)


def _kind(card: Card) -> Kind:
    return Kind(
        card=replace(card, name=""),
        arch=card.arch or "x86_64",
        environment="jetson" if _JETSON.match(card.name) else "bare",
    )


def _between(first: str, version: str, last: str) -> bool:
    return numeric_version.at_least(version, first) and numeric_version.at_least(last, version)
