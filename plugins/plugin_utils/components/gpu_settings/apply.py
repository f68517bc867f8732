# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of the cards themselves, and the service that brings them back after every boot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, paths
from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_wishes
from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings, SettingsCard

from ...model import sections
from ...model.errors import StepRefused
from ...model.in_use import Disturbance
from ...model.plan import CardSettings, Plan, Removes
from ...model.stack import Stack
from ...model.work import File, Unit, Work
from .. import busy, programs
from ..base import Component, Context, Finding, Manages, Step
from ..mig import apply as mig
from ..nvidia_driver import apply as nvidia_driver
from ..nvidia_driver.places import PERSISTENCE_SERVICE
from ..view import UP, View
from .model import GpuSettings

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge

NAME = "gpu_settings"
SERVICE = "gpuwright-gpu-settings.service"
SETTINGS = f"{paths.SETTINGS}/gpu_settings.json"
PROGRAM = f"{paths.PROGRAMS}/gpu_settings.py"
SCRIPT = programs.Program(NAME, "programs.gpu_settings", PROGRAM)
UNIT = f"/etc/systemd/system/{SERVICE}"
#: Watts by which two power limits are the same.
_SAME_W = 0.5
_MODE = "compute mode"


#: What its role changes.
TOUCHES = frozenset({"services"})


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    return [*_setting_findings(context), *_service_findings(context)]


def manages(context: Context) -> Manages:
    return Manages(files=[SETTINGS, PROGRAM, UNIT], services=[SERVICE] if context.runs_here else [])


def inputs(context: Context) -> Mapping[str, object]:
    return {"cards": context.stack["gpu_settings"]["cards"], "program": SCRIPT.digest()}


def differences(facts: Facts, stack: Stack) -> list[tuple[str, str, str, str]]:
    """Settings that are not as wished: place of the card, setting, what is there, what is wished.

    Locked clocks are not among them: nvidia-smi does not show them. ECC that waits for a reset is none: only a boot helps it. Nothing
    where nvidia-smi was not asked.
    """
    return [
        (place, name, there, wished)
        for place, row, settings in _seen(facts, stack)
        for name, there, wished in _of_card(row, settings)
    ]


def waiting(facts: Facts, stack: Stack) -> list[str]:
    """Places of cards whose ECC is set as wished and takes effect with a reset or a boot."""
    return [
        place
        for place, row, settings in _seen(facts, stack)
        if settings.get("ecc") is not None
        and row["ecc"]["pending"] is settings["ecc"]
        and row["ecc"]["mode"] is not settings["ecc"]
    ]


def _seen(facts: Facts, stack: Stack) -> Iterator[tuple[str, Card, Settings]]:
    """The cards with wished settings that nvidia-smi shows: place, what it shows, settings."""
    rows = {row["pci_bus_id"]: row for row in sections.cards(facts)}
    cards: Sequence[SettingsCard] = stack["gpu_settings"]["cards"] if "gpu_settings" in stack else ()
    for card in cards:
        place = card["bus_id"] or ""
        if place in rows:
            yield place, rows[place], card["settings"]


def _of_card(row: Card, settings: Settings) -> list[tuple[str, str, str]]:
    found = []
    limit = settings["power_limit"] or row["power_default_limit_w"] if "power_limit" in settings else None
    now = row["power_limit_w"]
    if limit is not None and now is not None and abs(now - limit) >= _SAME_W:
        found.append(("power limit", f"{now:g} W", f"{limit:g} W"))
    clocks = [row["clocks"]["application_memory_mhz"], row["clocks"]["application_sm_mhz"]]
    asked = settings.get("application_clocks")
    if asked and None not in clocks and clocks != asked:
        found.append(("application clocks", _megahertz(clocks), _megahertz(asked)))
    if "compute_mode" in settings and row["compute_mode"] not in (None, settings["compute_mode"] or "Default"):
        found.append((_MODE, str(row["compute_mode"]), settings["compute_mode"] or "Default"))
    flags = (
        ("ECC", settings.get("ecc"), row["ecc"]["pending"]),
        ("persistence mode", settings.get("persistence"), row["persistence_mode"]),
    )
    for title, wished, state in flags:
        if wished is not None and state is not None and state is not wished:
            found.append((title, _switch(state), _switch(wished)))
    return found


def wishes(stack: Stack) -> dict[str, smi_judge.Expected]:
    """Return what is wished of cards, by bus id."""
    return card_wishes.expected(stack["gpu_settings"]["cards"]) if "gpu_settings" in stack else {}


def _megahertz(clocks: Sequence[int | None]) -> str:
    return " and ".join(str(each) for each in clocks) + " MHz"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _setting_findings(context: Context) -> list[Finding]:
    return [
        Finding(
            "configure",
            f"the {name} of the card {bus_id} is {there}, wished is {wished}",
            there,
            wished,
            services=[SERVICE],
        )
        for bus_id, name, there, wished in differences(context.facts, context.stack)
    ]


def _service_findings(context: Context) -> list[Finding]:
    """Without it the settings are gone after the next boot."""
    if not context.runs_here or sections.service(context.facts, SERVICE)["enabled"] == "enabled":
        return []
    reason = "no service brings the settings of the cards back after a boot"
    return [Finding("configure", reason, files=[SETTINGS, PROGRAM, UNIT], services=[SERVICE])]


# The work of the role


class SettingsWork(Work):
    """The work, with the Python that the program runs on."""

    python: str


def begin(context: Context, plan: Plan) -> SettingsWork:
    """The settings, and the service that brings them back after each boot, enabled where the cards are. It is not started: the program
    is run by a task of its own, whose answer is read. Before the driver runs nothing can be set; the service does it after the boot.
    """
    # A card that is not there yet has no place.
    cards = [
        {"bus_id": card["bus_id"], **card["settings"]}
        for card in context.stack["gpu_settings"]["cards"]
        if card["bus_id"]
    ]
    content = json.dumps({"cards": cards}, indent=1, sort_keys=True) + "\n"
    python = programs.python(context.facts)
    unit = _UNIT.format(python=python)
    return {
        "python": python,
        "files": [File(path=SETTINGS, content=content, mode="0644"), File(path=UNIT, content=unit, mode="0644")],
        "units": [Unit(name=SERVICE, enabled=True)] if context.runs_here else [],
    }


STEPS: Mapping[str, Step] = {"begin": begin}


# Exit status 3: the rest waits for a reset or a boot, which is no failure of the service.
_UNIT = f"""\
# Written by gpuwright (role gpu_settings). A change here is overwritten by the next run.
[Unit]
Description=Settings of the NVIDIA cards
Documentation=https://docs.nvidia.com/deploy/nvidia-smi/
After=systemd-modules-load.service {PERSISTENCE_SERVICE} nvidia-fabricmanager.service {mig.SERVICE}
Before=nvidia-dcgm.service docker.service containerd.service crio.service kubelet.service slurmd.service
ConditionPathExists={SETTINGS}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={{python}} {PROGRAM} {SETTINGS}
SuccessExitStatus=3
TimeoutStartSec=600

[Install]
WantedBy=multi-user.target
"""


def refuse(context: Context, plan: Plan) -> None:
    """Raise StepRefused where persistence mode is to be off and the driver's daemon holds it on, or will after this run."""
    cards = context.stack["gpu_settings"]["cards"]
    off = [card["bus_id"] for card in cards if card["settings"].get("persistence") is False]
    comes = nvidia_driver.NAME in plan["components"] and nvidia_driver.persistence_asked(context)
    held = comes or sections.service(context.facts, PERSISTENCE_SERVICE)["active"] == "active"
    if off and held:
        raise StepRefused(
            f"Expected nobody to hold persistence mode on where it is to be off ({', '.join(map(str, off))}). "
            f"Found {PERSISTENCE_SERVICE}, which does. "
            "What to do: set nvidia_driver_persistence: false and stop the daemon (systemctl disable --now nvidia-persistenced), or leave "
            "persistence out of gpu_settings_cards, then run again."
        )


def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The cards, where the compute mode of one changes: a program that begins another process on it would fail. ECC of a card in use
    waits for a boot, and limits of power and clocks end nothing.
    """
    if NAME not in plan["components"] or _MODE not in [row[1] for row in differences(context.facts, context.stack)]:
        return []
    return [Disturbance("idle cards", "their compute mode changes", busy.cards(context.facts))]


def judge(view: View, stack: Stack) -> list[Check]:
    """Every card has its settings. All but ECC are gone after each boot; a service brings them back."""
    if not view.gpus or "gpu_settings" not in stack or not stack["gpu_settings"]["cards"]:
        return []
    if not sections.cards(view.facts):
        reason = view.why_unknown("smi") or "nvidia-smi was not asked"
        return [checks.incomplete("gpu.settings", f"it is not known how the cards are set: {reason}")]
    wrong = differences(view.facts, stack)
    told = [f"the {name} of {place} is {there}, wished is {wished}" for place, name, there, wished in wrong]
    found = [
        checks.judged(
            "gpu.settings",
            not wrong,
            measured=len(wrong),
            expected=0,
            unit="settings otherwise",
            reason="; ".join(told) or None,
            action="configure",
            remedy=f"{UP}; after a boot journalctl -u gpuwright-gpu-settings says why they were not brought back",
        )
    ]
    waits = waiting(view.facts, stack)
    if waits:
        reason = f"ECC of {', '.join(waits)} takes effect with a reset of the card or a boot"
        found.append(
            checks.judged(
                "gpu.ecc_pending", False, "warning", reason=reason, action="reboot", remedy="boot the machine"
            )
        )
    return found


def take_back(facts: Facts) -> list[Finding]:
    """The cards that gpuwright set get what they were delivered with. The seal is there until the end; the service goes with the files."""
    if sections.service(facts, SERVICE)["enabled"] in (None, "not-found"):
        return []
    places = ", ".join(card["bus_id"] for card in defaults(facts))
    return [Finding("remove", f"settings of {places}", after="those of delivery")] if places else []


def defaults(facts: Facts) -> list[CardSettings]:
    """What the program is told to take back all that it set: the defaults of each sealed card, setting by setting."""
    stack: GpuSettings = cast("GpuSettings", sections.sealed_stack(facts, NAME))
    return [
        cast("CardSettings", {"bus_id": card["bus_id"], **dict.fromkeys(card["settings"])})
        for card in stack.get("cards") or ()
        if card["bus_id"]
    ]


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    return {"gpu_settings": defaults(facts), "python": programs.python(facts)}


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("gpu_settings",),
    touches=TOUCHES,
    units=(SERVICE,),
    program=SCRIPT,
    outgrown=(mig.PROGRAM, programs.PROCESSES),
    refuse=refuse,
    disturbs=disturbs,
    judge=judge,
    take_back=take_back,
    undo="default",
    removes=_removes,
    steps=STEPS,
    wishes_of_cards=wishes,
)
