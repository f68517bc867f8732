# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of the cards themselves, and the service that brings them back after every boot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ..model import sections
from ..model.errors import Refusal
from ..model.work import File, Unit, Work
from .base import Context, Finding, Manages, Plan, Step

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts

SERVICE = "gpuwright-gpu-settings.service"
SETTINGS = "/etc/gpuwright/gpu_settings.json"
PROGRAM = "/usr/local/libexec/gpuwright/gpu_settings.py"
#: What the program calls nvidia-smi by; MIG's own program.
CALLS = "/usr/local/libexec/gpuwright/mig_layout.py"
UNIT = f"/etc/systemd/system/{SERVICE}"
#: The driver's daemon, which keeps persistence mode on while it runs.
_DAEMON = "nvidia-persistenced.service"
#: Watts by which two power limits are the same.
_SAME_W = 0.5


class Here(TypedDict):
    """What the cards allow now. ``runs``: the driver does, so that they can have their settings at once."""

    units: list[Unit]
    runs: bool


def wanted(context: Context) -> bool:
    return "gpu_settings" in context.stack


def findings(context: Context) -> list[Finding]:
    return [*_setting_findings(context), *_service_findings(context)]


def manages(context: Context) -> Manages:
    return Manages(files=[SETTINGS, PROGRAM, CALLS, UNIT], services=[SERVICE] if _runs_here(context) else [])


def inputs(context: Context) -> Mapping[str, Any]:
    return {"cards": context.stack["gpu_settings"]["cards"]}


def differences(facts: Facts, stack: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Settings that are not as wished: place of the card, setting, what is there, what is wished.

    Locked clocks are not among them: nvidia-smi does not show them. ECC that waits for a reset is none: only a boot helps it. Nothing
    where nvidia-smi was not asked.
    """
    rows = {row["pci_bus_id"]: row for row in sections.cards(facts)}
    return [
        (card["bus_id"], name, there, wished)
        for card in (stack.get("gpu_settings") or {}).get("cards") or ()
        if card["bus_id"] in rows
        for name, there, wished in _of_card(rows[card["bus_id"]], card["settings"])
    ]


def waiting(facts: Facts, stack: Mapping[str, Any]) -> list[str]:
    """Places of cards whose ECC is set as wished and takes effect with a reset or a boot."""
    rows = {row["pci_bus_id"]: row for row in sections.cards(facts)}
    cards = (stack.get("gpu_settings") or {}).get("cards") or ()
    return [
        card["bus_id"]
        for card in cards
        if card["bus_id"] in rows
        and card["settings"].get("ecc") is not None
        and rows[card["bus_id"]]["ecc"]["pending"] is card["settings"]["ecc"]
        and rows[card["bus_id"]]["ecc"]["mode"] is not card["settings"]["ecc"]
    ]


def _of_card(row: Card, settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    found = []
    limit = settings.get("power_limit", row["power_limit_w"]) if "power_limit" in settings else None
    limit = row["power_default_limit_w"] if "power_limit" in settings and limit is None else limit
    now = row["power_limit_w"]
    if limit is not None and now is not None and abs(now - limit) >= _SAME_W:
        found.append(("power limit", f"{now:g} W", f"{limit:g} W"))
    clocks = [row["clocks"]["application_memory_mhz"], row["clocks"]["application_sm_mhz"]]
    if settings.get("application_clocks") and None not in clocks and clocks != settings["application_clocks"]:
        found.append(("application clocks", _megahertz(clocks), _megahertz(settings["application_clocks"])))
    if "compute_mode" in settings and row["compute_mode"] not in (None, settings["compute_mode"] or "Default"):
        found.append(("compute mode", str(row["compute_mode"]), settings["compute_mode"] or "Default"))
    flags = (("ECC", "ecc", row["ecc"]["pending"]), ("persistence mode", "persistence", row["persistence_mode"]))
    for title, name, state in flags:
        wished = settings.get(name)
        if wished is not None and state is not None and state is not wished:
            found.append((title, _switch(state), _switch(wished)))
    return found


def _megahertz(clocks: Sequence[int | None]) -> str:
    return " and ".join(str(each) for each in clocks) + " MHz"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _runs_here(context: Context) -> bool:
    return context.cards_present and not context.provision_only


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
    if not _runs_here(context) or sections.service(context.facts, SERVICE)["enabled"] == "enabled":
        return []
    reason = "no service brings the settings of the cards back after a boot"
    return [Finding("configure", reason, files=[SETTINGS, PROGRAM, CALLS, UNIT], services=[SERVICE])]


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """The settings, and the service that brings them back after each boot."""
    # A card that is not there yet has no place.
    cards = [
        {"bus_id": card["bus_id"], **card["settings"]}
        for card in context.stack["gpu_settings"]["cards"]
        if card["bus_id"]
    ]
    content = json.dumps({"cards": cards}, indent=1, sort_keys=True) + "\n"
    return {"files": [File(path=SETTINGS, content=content, mode="0644"), File(path=UNIT, content=_UNIT, mode="0644")]}


def here(context: Context, plan: Plan) -> Here:
    """The service is enabled where the cards are. It is not started: the program is run by a task of its own, whose answer is read.

    Raises Refusal where persistence mode is to be off and the driver's daemon holds it on.
    """
    cards = context.stack["gpu_settings"]["cards"]
    held = sections.service(context.facts, _DAEMON)["active"] == "active"
    off = [card["bus_id"] for card in cards if card["settings"].get("persistence") is False]
    if held and off:
        raise Refusal(
            f"Expected nobody to hold persistence mode on where it is to be off ({', '.join(map(str, off))}). Found {_DAEMON}, which does. "
            "What to do: set nvidia_driver_persistence: false and stop the daemon (systemctl disable --now nvidia-persistenced), or leave "
            "persistence out of gpu_settings_cards, then run again."
        )
    return {
        "units": [Unit(name=SERVICE, enabled=True)] if _runs_here(context) else [],
        "runs": _runs_here(context) and "nvidia" in context.facts["kernel"]["loaded"],
    }


STEPS: Mapping[str, Step] = {"begin": begin, "here": here}


def defaults(facts: Facts) -> list[dict[str, Any]]:
    """What the program is told to take back all that it set: the defaults of each sealed card, setting by setting."""
    stack = sections.sealed_stack(facts, "gpu_settings")
    return [
        {"bus_id": card["bus_id"], **dict.fromkeys(card["settings"])}
        for card in stack.get("cards") or ()
        if card["bus_id"]
    ]


# Exit status 3: the rest waits for a reset or a boot, which is no failure of the service.
_UNIT = f"""\
# Written by gpuwright (role gpu_settings). A change here is overwritten by the next run.
[Unit]
Description=Settings of the NVIDIA cards
Documentation=https://docs.nvidia.com/deploy/nvidia-smi/
After=systemd-modules-load.service nvidia-persistenced.service nvidia-fabricmanager.service gpuwright-mig.service
Before=nvidia-dcgm.service docker.service containerd.service crio.service kubelet.service slurmd.service
ConditionPathExists={SETTINGS}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 {PROGRAM} {SETTINGS}
SuccessExitStatus=3
TimeoutStartSec=600

[Install]
WantedBy=multi-user.target
"""
