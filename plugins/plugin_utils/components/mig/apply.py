# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MIG layout of the cards, and the service that brings it back after every boot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, paths
from ansible_collections.gpuwright.node.plugins.module_utils.programs import mig_layout

from ...model import sections
from ...model.in_use import Disturbance
from ...model.plan import Plan, Removes, WholeCard
from ...model.stack import Stack
from ...model.work import File, Unit, Work
from .. import busy, programs
from ..base import Component, Context, Finding, Manages, Step
from ..view import UP, View
from .model import Mig, MigCard

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts

NAME = "mig"
SERVICE = "gpuwright-mig.service"
LAYOUT = f"{paths.SETTINGS}/mig.json"
PROGRAM = f"{paths.PROGRAMS}/mig_layout.py"
SCRIPT = programs.Program(NAME, "programs.mig_layout", PROGRAM)
UNIT = f"/etc/systemd/system/{SERVICE}"
#: The toolkit's own unit; without it the toolkit finds the cards by itself.
_CDI_UNIT = "nvidia-cdi-refresh.service"
#: Whatever hands out cards waits for the layout.
_BEFORE = (
    _CDI_UNIT,
    "nvidia-dcgm.service",
    "docker.service",
    "containerd.service",
    "crio.service",
    "kubelet.service",
    "slurmd.service",
)
#: What its role changes.
TOUCHES = frozenset({"services"})


class Here(TypedDict):
    """What the cards allow now. ``runs``: the driver does, so that they can be parted at once. ``python``: what the program runs on.

    ``follows``: units that read the cards anew once the layout has changed.
    """

    units: list[Unit]
    runs: bool
    python: str
    follows: list[str]


def wanted(context: Context) -> bool:
    return "mig" in context.stack


def findings(context: Context) -> list[Finding]:
    return [*_layout_findings(context), *_service_findings(context)]


def manages(context: Context) -> Manages:
    return Manages(files=[LAYOUT, PROGRAM, UNIT], services=[SERVICE] if context.runs_here else [])


def inputs(context: Context) -> Mapping[str, object]:
    return {"cards": context.stack["mig"]["cards"], "program": SCRIPT.digest()}


def wrong_cards(facts: Facts, stack: Stack) -> list[tuple[str, str, str]]:
    """Cards that are not parted as wished: place, what is there, what is wished. A card whose mode waits for a reset is none: only
    a boot helps it. Nothing where nvidia-smi was not asked.
    """
    layout = stack.get("mig")
    return parted_otherwise(facts, layout["cards"] if layout else ())


def parted_otherwise(facts: Facts, cards: Sequence[MigCard | WholeCard]) -> list[tuple[str, str, str]]:
    """Cards that are not parted as their layout says. Instances that nobody could list are not taken for none."""
    rows = {row["pci_bus_id"]: row for row in sections.cards(facts)}
    listed = sections.instances(facts)
    wrong = []
    for card in cards:
        bus_id = card["bus_id"] or ""
        row = rows.get(bus_id)
        if row is None or waits(row, bool(card["profiles"])):
            continue
        profiles = listed.get(row["uuid"] or "") if listed is not None else None
        if profiles is None and row["mig"]["current"] and card["profiles"]:
            continue
        if not mig_layout.is_right({**row["mig"], "profiles": profiles}, card["profiles"]):
            unlisted = "instances that nvidia-smi -L does not list" if profiles is None else "no instances"
            there = ", ".join(profiles or ()) or (unlisted if row["mig"]["current"] else "MIG is off")
            wrong.append((bus_id, there, ", ".join(card["profiles"]) or "MIG off"))
    return wrong


def waits(row: Card, on: bool) -> bool:
    """The mode is set as wished and takes effect with a reset or a boot."""
    mig = row["mig"]
    return mig["pending"] is on and mig["current"] is not None and mig["current"] is not on


def _layout_findings(context: Context) -> list[Finding]:
    return [
        Finding("configure", f"the card {bus_id} has {there}, wished is {wished}", there, wished, services=[SERVICE])
        for bus_id, there, wished in wrong_cards(context.facts, context.stack)
    ]


def _service_findings(context: Context) -> list[Finding]:
    """Without it the layout is gone after the next boot."""
    if not context.runs_here:
        return []
    if sections.service(context.facts, SERVICE)["enabled"] == "enabled":
        return []
    reason = "no service brings the MIG layout back after a boot"
    return [Finding("configure", reason, files=[LAYOUT, PROGRAM, UNIT], services=[SERVICE])]


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """The layout, and the service that brings it back after each boot."""
    # What the program needs of each card; a card that is not there yet has no place.
    cards = [
        {"bus_id": card["bus_id"], "profiles": card["profiles"]}
        for card in context.stack["mig"]["cards"]
        if card["bus_id"]
    ]
    unit = _UNIT.format(python=programs.python(context.facts))
    return {
        "files": [File(path=LAYOUT, content=layout(cards), mode="0644"), File(path=UNIT, content=unit, mode="0644")]
    }


def here(context: Context, plan: Plan) -> Here:
    """The service is enabled where the cards are. It is not started: the program is run by a task of its own, whose answer is read. Before
    the driver runs nothing can be parted; the service does it after the boot.
    """
    enabled = sections.service(context.facts, _CDI_UNIT)["enabled"]
    return {
        "units": [Unit(name=SERVICE, enabled=True)] if context.runs_here else [],
        "runs": context.runs_here and "nvidia" in context.facts["kernel"]["loaded"],
        "python": programs.python(context.facts),
        "follows": [] if enabled in (None, "", "not-found", "masked") else [_CDI_UNIT],
    }


STEPS: Mapping[str, Step] = {"begin": begin, "here": here}


def layout(cards: Sequence[Mapping[str, object]]) -> str:
    """What the program reads."""
    return json.dumps({"cards": cards}, indent=1, sort_keys=True) + "\n"


_UNIT = f"""\
# Written by gpuwright (role mig). A change here is overwritten by the next run.
[Unit]
Description=MIG layout of the NVIDIA cards
Documentation=https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
After=systemd-modules-load.service nvidia-persistenced.service nvidia-fabricmanager.service
Before={" ".join(_BEFORE)}
ConditionPathExists={LAYOUT}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={{python}} {PROGRAM} {LAYOUT}
TimeoutStartSec=600

[Install]
WantedBy=multi-user.target
"""


def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The cards, where the layout of one is changed; a program that computes and draws is disturbed too."""
    if not any(row["component"] == NAME and row["from"] for row in plan["changes"]):
        return []
    use = busy.cards(context.facts, drawing_too=True)
    return [Disturbance("idle cards", "their MIG layout changes", use)]


def judge(view: View, stack: Stack) -> list[Check]:
    """Every card is parted as wished. The instances are gone after each boot; a service brings them back.

    No check where the driver is Windows' or JetPack's own.
    """
    if not view.gpus or "mig" not in stack or not stack["mig"]["cards"] or view.environment in ("wsl", "jetson"):
        return []
    unseen = None if sections.cards(view.facts) else view.why_unknown("smi") or "nvidia-smi was not asked"
    listed = sections.instances(view.facts)
    parted = [row for row in sections.cards(view.facts) if row["mig"]["current"]]
    unlisted = [row for row in parted if listed is None or (row["uuid"] or "") not in listed]
    if unlisted:
        unseen = f"nvidia-smi -L does not list the instances of {', '.join(str(row['pci_bus_id']) for row in unlisted)}"
    if unseen:
        return [checks.incomplete("mig.layout", f"it is not known how the cards are parted: {unseen}")]
    wrong = wrong_cards(view.facts, stack)
    told = [f"{place} has {there}, wished is {wished}" for place, there, wished in wrong]
    return [
        checks.judged(
            "mig.layout",
            not wrong,
            measured=len(wrong),
            expected=0,
            unit="cards parted otherwise",
            reason="; ".join(told) or None,
            action="configure",
            remedy=f"{UP}; after a boot journalctl -u gpuwright-mig says why the layout was not brought back",
        )
    ]


def take_back(facts: Facts) -> list[Finding]:
    """The cards that gpuwright parted and that are not whole again."""
    parted = parted_otherwise(facts, _whole(facts))
    return [Finding("remove", f"{bus_id} is parted", there, wished) for bus_id, there, wished in parted]


def _whole(facts: Facts) -> list[WholeCard]:
    """The layout in which the cards that gpuwright parted are whole again."""
    stack: Mig = cast("Mig", sections.sealed_stack(facts, NAME))
    return [{"bus_id": card["bus_id"], "profiles": []} for card in stack.get("cards") or () if card["bus_id"]]


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    return {"mig": _whole(facts), "python": programs.python(facts)}


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("mig",),
    touches=TOUCHES,
    units=(SERVICE,),
    program=SCRIPT,
    outgrown=(programs.PROCESSES,),
    disturbs=disturbs,
    judge=judge,
    take_back=take_back,
    undo="whole",
    removes=_removes,
    steps=STEPS,
)
