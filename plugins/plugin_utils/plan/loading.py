# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the cards of a node are loaded for its proof: by its profile, and by what the node has to load them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..health import load_figures
from ..model import sections
from ..resolver.part import CUDA_SOURCE, OF_DCGM
from ..resolver.parts import from_source
from ..rules import load_rules
from ..wish.reading import is_yes

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_judge import Expected

    from ..components.base import Context
    from ..components.frameworks.model import FrameworkEnvironment

#: Whether to look only, to load for minutes, or for as long as asked.
PROFILES = ("quick", "standard", "burn-in")
QUICK, STANDARD, BURN_IN = PROFILES

#: Seconds of a burn-in of which nothing else is said.
BURN_IN_SECONDS = 3600
#: Seconds that `standard` loads each card by the driver alone, and all that it loads through a framework; with DCGM's tests it stays
#: below five minutes a host.
_STANDARD_SECONDS = 45
_FRAMEWORK_SECONDS = 90
#: What is measured through a framework on each card by itself, and on all of them or their pairs.
_BY_CARD = ("tflops", "bandwidth", "host_device", "train")
_TOGETHER = ("peer", "collectives", "ddp")
#: Levels of DCGM's diagnostic: from how long a burn-in on, and how long DCGM says that it takes (dcgmi diag: 2 minutes, 15, and 1 to 2
#: hours; docs.nvidia.com/datacenter/dcgm, "Overview of tests").
_LEVELS = ((4, 10_800, 5400), (3, 3600, 1200), (2, 0, 150))
#: The level that looks at the software alone, in seconds, and loads nothing.
_LOOKS_ONLY = 1
#: Share of the memory that is taken of a card which draws a screen as well: the desktop goes on.
_WITH_A_SCREEN = 0.5


class Given(TypedDict):
    """How the cards are loaded, as the variables of the role `validate` say it. ``seconds``: of a burn-in. ``busy``: cards that others
    compute on too.
    """

    profile: str
    seconds: int
    busy: bool


class Diagnostic(TypedDict, total=False):
    """The options of dcgm_diag."""

    level: int
    expected_gpus: int
    required: bool


class Load(TypedDict, total=False):
    """The options of gpu_load."""

    seconds: int
    memory_share: float
    busy: bool
    ignore: list[str]
    pcie_lanes: Mapping[str, int]
    log: bool


class FrameworkLoad(TypedDict):
    """The options of framework_load. ``environment``: variables of the task, for the library that is found first."""

    name: str
    python: str
    expect_cuda: bool
    what: list[str]
    seconds: int
    busy: bool
    expected: list[Expected]
    environment: dict[str, str]


class Loads(TypedDict):
    """What loads the cards, in this order: None or nothing where it is left out."""

    diagnostic: Diagnostic | None
    load: Load | None
    framework_loads: list[FrameworkLoad]


class Time(NamedTuple):
    """Seconds that each kind of load gets. ``level``: of DCGM's diagnostic."""

    level: int
    driver: int
    framework: int


def asked(variables: Mapping[str, object]) -> Given:
    """How the cards are loaded, from variables of the role `validate`, which were checked by its argument specs."""
    return {
        "profile": str(variables.get("validate_profile") or QUICK),
        "seconds": int(str(variables.get("validate_seconds") or BURN_IN_SECONDS)),
        "busy": is_yes(variables.get("validate_busy")),
    }


def time_of(given: Given, *, diagnostic: bool) -> Time:
    """How long each kind of load takes. ``diagnostic``: whether the node has DCGM, whose tests take a part of a burn-in."""
    if given["profile"] == QUICK:
        return Time(_LOOKS_ONLY, 0, 0)
    if given["profile"] == STANDARD:
        return Time(2, _STANDARD_SECONDS, _FRAMEWORK_SECONDS)
    seconds = given["seconds"]
    level, takes = next((level, takes) for level, least, takes in _LEVELS if seconds >= least)
    # A short one is shared out as well.
    framework = max(min(_FRAMEWORK_SECONDS, seconds // 3), seconds // 10)
    return Time(level, max(seconds - framework - (takes if diagnostic else 0), seconds // 3), framework)


def diagnostic(context: Context, given: Given, count: int | None) -> Diagnostic | None:
    """DCGM's diagnostic, where DCGM is wished or there; not of parted cards (MIG), which it leaves out."""
    if not _has_dcgm(context) or sections.parted(context.facts):
        return None
    expected: Diagnostic = {"expected_gpus": count} if count else {}
    return {"level": time_of(given, diagnostic=True).level, "required": _wishes_dcgm(context), **expected}


def load(context: Context, given: Given, ignore: list[str], pcie_lanes: Mapping[str, int] | None) -> Load | None:
    """The load through the driver alone: for correctness and heat, and what nvidia-smi says meanwhile."""
    if given["profile"] == QUICK:
        return None
    options: Load = {
        "seconds": time_of(given, diagnostic=_has_dcgm(context)).driver,
        "busy": given["busy"],
        "ignore": ignore,
    }
    if pcie_lanes:
        options["pcie_lanes"] = pcie_lanes
    if context.facts["display"]["nvidia_screens"]:
        options["memory_share"] = _WITH_A_SCREEN
    return options


def of_framework(
    context: Context, given: Given, environment: FrameworkEnvironment, libraries: dict[str, str], *, cards: bool
) -> FrameworkLoad | None:
    """The load through an environment with PyTorch; on a machine without cards the processor's."""
    if given["profile"] == QUICK or not ABOUT[environment["name"]].loads:
        return None
    with_cards = bool(environment.get("cuda")) and cards
    count = number(context)
    what = [*_BY_CARD, *(_TOGETHER if count > 1 else ())] if with_cards else ["tflops", "train", "collectives", "ddp"]
    turns = len(_BY_CARD) * count + len(_TOGETHER) if with_cards else len(what)
    whole = time_of(given, diagnostic=_has_dcgm(context)).framework
    return {
        "name": environment["name"],
        "python": f"{environment['path']}/bin/python",
        "expect_cuda": with_cards,
        "what": what,
        "seconds": max(whole // turns, 1),
        "busy": given["busy"],
        "expected": load_figures.expected(context.facts["pci"]["gpus"] or (), load_rules()) if with_cards else [],
        "environment": libraries,
    }


def takes(context: Context, given: Given, loads: Loads) -> dict[str, int]:
    """Seconds that each load takes by the plan, by its module. Programs that begin, the first import of a framework, come to it."""
    found = {}
    if loads["diagnostic"] is not None and loads["diagnostic"]["level"] != _LOOKS_ONLY:
        level = loads["diagnostic"]["level"]
        found["dcgm_diag"] = next(seconds for each, _least, seconds in _LEVELS if each == level)
    if loads["load"] is not None:
        found["gpu_load"] = loads["load"]["seconds"]
    if loads["framework_loads"]:
        each = time_of(given, diagnostic=_has_dcgm(context)).framework
        found["framework_load"] = each * len(loads["framework_loads"])
    return found


def number(context: Context) -> int:
    """How many cards there are: in WSL none is on the bus, before the first load nvidia-smi names none."""
    return max(len(context.facts["pci"]["gpus"] or ()), len(sections.cards(context.facts)), 1)


def _has_dcgm(context: Context) -> bool:
    return _wishes_dcgm(context) or any(name.startswith("datacenter-gpu-manager-4") for name in context.installed)


def _wishes_dcgm(context: Context) -> bool:
    return OF_DCGM in from_source(context.stack, CUDA_SOURCE)
