# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the cards to their settings, by nvidia-smi. A program of its own on the node, which a service runs at every boot: all but ECC are
gone after one.

    gpu_settings.py /etc/gpuwright/gpu_settings.json     {"cards": [{"bus_id": "00000000:18:00.0", "power_limit": 350}]}

Keys of a card: ``power_limit`` (W), ``clocks`` ([lowest, highest] MHz of the multiprocessors), ``application_clocks`` ([memory,
multiprocessors] MHz), ``ecc`` and ``persistence`` (true or false), ``compute_mode`` (as nvidia-smi calls it). A key that is absent is left
as it is; null is the default of the card, and for ECC what was there before this program first changed it. Nothing is done where a card is
as it should be, and nothing at all where a value does not fit one of the cards; a card that is dead keeps none of the others from their
settings. Locked clocks are locked at each run: nvidia-smi does not show whether a reset has freed them. Exit status: 0 right (it prints
what it changed), 1 refused, or a card does not answer, 3 ECC changes only with a reset of the card, which nobody computes on, or a boot.
"""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import Runner, SmiError, answered, change

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card


class Wished(Settings, total=False):
    """A card and its settings, as in the file."""

    bus_id: str


class Power(TypedDict):
    """Power limits of a card (W); `requested`: what was set, where it is not in force yet."""

    current: Optional[float]
    requested: Optional[float]
    default: Optional[float]
    min: Optional[float]
    max: Optional[float]


class State(TypedDict):
    """What a card has and offers, see :func:`observe`. `supported`: clocks of the multiprocessors by clock of the memory."""

    power: Power
    clocks_max: Optional[float]
    application_clocks: Optional[List[float]]
    application_default: Optional[List[float]]
    supported: Dict[Optional[float], List[Optional[float]]]
    ecc: Optional[bool]
    ecc_pending: Optional[bool]
    compute_mode: Optional[str]
    persistence: Optional[bool]
    processes: int
    minor: Optional[int]


FAILED, PENDING = 1, 3
#: Watts by which two power limits are the same: nvidia-smi rounds.
_SAME_W = 0.5
#: What was set since the boot and nvidia-smi does not show: locked clocks.
SINCE_BOOT = "/run/gpuwright-gpu-settings.json"
#: What was there before: ECC outlives boots and the driver.
BEFORE = "/var/lib/gpuwright/gpu_settings.json"
DEFAULT_MODE = "Default"


class SettingsError(SmiError):
    """A card cannot have its settings; `changed` is what others were brought to."""

    def __init__(self, text: str, changed: Optional[List[str]] = None) -> None:
        super().__init__(text)
        self.changed = changed or []


class Records:
    """What the program remembers, as JSON files that root owns; a file that cannot be read says nothing."""

    def __init__(self, since_boot: str = SINCE_BOOT, before: str = BEFORE) -> None:
        self.since_boot = since_boot
        self.before = before

    def get(self, path: str, bus_id: str) -> object:
        """What is remembered of a card; None where nothing is."""
        return self._read(path).get(bus_id)

    def put(self, path: str, bus_id: str, value: object) -> None:
        """Remember a value, or forget it (None)."""
        known = self._read(path)
        known[bus_id] = value
        known = {place: each for place, each in known.items() if each is not None}
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(known, stream)
        os.replace(path + ".new", path)

    @staticmethod
    def _read(path: str) -> Dict[str, object]:
        try:
            with open(path, encoding="utf-8") as stream:
                known = json.load(stream)
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def observe(smi: Runner) -> Dict[str, State]:
    """What each card has and offers, by bus id."""
    root = document.described(smi)
    return {
        card["pci_bus_id"]: _state(card, element)
        for card, element in ((document.card(index, each), each) for index, each in enumerate(document.cards(root)))
    }


def _state(card: Card, element: ET.Element) -> State:
    """What the reader of a card tells, and what nobody else asks of it."""
    clocks = card["clocks"]
    requested = (
        element.findtext(f"{group}/requested_power_limit") for group in ("gpu_power_readings", "power_readings")
    )
    return {
        "power": {
            "current": card["power_limit_w"],
            "requested": _number(next(filter(None, requested), None)),
            "default": card["power_default_limit_w"],
            "min": card["power_min_limit_w"],
            "max": card["power_max_limit_w"],
        },
        "clocks_max": clocks["sm_max_mhz"],
        "application_clocks": _pair(clocks["application_memory_mhz"], clocks["application_sm_mhz"]),
        "application_default": _pair(clocks["default_memory_mhz"], clocks["default_sm_mhz"]),
        "supported": {
            _number(memory.findtext("value")): [
                _number(each.text) for each in memory.findall("supported_graphics_clock")
            ]
            for memory in element.findall("supported_clocks/supported_mem_clock")
        },
        "ecc": card["ecc"]["mode"],
        "ecc_pending": card["ecc"]["pending"],
        "compute_mode": card["compute_mode"],
        "persistence": card["persistence_mode"],
        "processes": len(card["processes"]),
        "minor": card["minor_number"],
    }


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _pair(memory: Optional[float], graphics: Optional[float]) -> Optional[List[float]]:
    """Memory's and multiprocessors' clock; None where the card has no such clocks (any more)."""
    return None if memory is None or graphics is None else [memory, graphics]


def obstacle(state: State, card: Wished) -> Optional[str]:
    """Why a card cannot have one of its settings; None where it can have all."""
    power, limit = state["power"], card.get("power_limit")
    if limit is not None:
        if power["min"] is None or power["max"] is None:
            return "it has no power limit to set"
        if not power["min"] <= limit <= power["max"]:
            return "its power limit has to be between {:g} and {:g} W, and not {:g}".format(
                power["min"], power["max"], limit
            )
    clocks = card.get("clocks")
    if clocks and state["clocks_max"] is not None and clocks[1] > state["clocks_max"]:
        return "its clocks end at {:g} MHz, {:g} is above".format(state["clocks_max"], clocks[1])
    wished = card.get("application_clocks")
    if wished is not None:
        if state["application_clocks"] is None:
            return "it has no application clocks (with newer drivers, clocks are locked instead)"
        if state["supported"] and wished[1] not in state["supported"].get(wished[0], ()):
            return "memory at {:g} MHz with multiprocessors at {:g} MHz is none of its supported clocks".format(*wished)
    if card.get("ecc") is not None and state["ecc"] is None:
        return "its memory has no ECC to switch"
    return None


def apply(cards: List[Wished], smi: Runner, records: Records) -> Tuple[List[str], List[str]]:
    """Bring the cards to their settings: what was changed, and what waits for a reset or a boot, in words.

    Refused as a whole, before the first change, where a card cannot have one of them. Raises SettingsError; where a card is dead, after the
    others have theirs.
    """
    seen = observe(smi) if cards else {}
    there = {bus_id: state for bus_id, state in seen.items() if _answers(state)}
    failed = [
        "expected the card {}, nvidia-smi shows {}".format(card["bus_id"], ", ".join(there) or "none")
        for card in cards
        if str(card["bus_id"]).upper() not in there
    ]
    living = [card for card in cards if str(card["bus_id"]).upper() in there]
    for card in living:
        why = obstacle(there[str(card["bus_id"]).upper()], card)
        if why:
            raise SettingsError("the card {}: {}".format(card["bus_id"], why))
    changed: List[str] = []
    waiting: List[str] = []
    for card in living:
        bus_id = str(card["bus_id"]).upper()
        try:
            told, waits = _Card(smi, bus_id, there[bus_id], records).bring(card)
        except SmiError as exc:
            failed.append(f"{bus_id}: {exc}")
            continue
        changed += [f"{bus_id}: {text}" for text in told]
        waiting += [f"{bus_id}: {text}" for text in waits]
    if failed:
        raise SettingsError("; ".join([*failed, *waiting]), changed)
    return changed, waiting


def _answers(state: State) -> bool:
    """Whether a card says anything of itself: one that is lost has a row, and no value in it."""
    return any(state[name] is not None for name in ("compute_mode", "persistence", "clocks_max"))


class _Card:
    """One card on its way to its settings."""

    def __init__(self, smi: Runner, bus_id: str, state: State, records: Records) -> None:
        self.smi = smi
        self.bus_id = bus_id
        self.state = state
        self.records = records

    def bring(self, card: Wished) -> Tuple[List[str], List[str]]:
        """ECC first: a reset takes the other settings with it."""
        waits: List[str] = []
        told: List[Optional[str]] = []
        if "ecc" in card:
            text, waiting = self._ecc(card["ecc"])
            told.append(text)
            waits += [waiting] if waiting else []
        told += [
            self._persistence(card["persistence"]) if "persistence" in card else None,
            self._power(card["power_limit"]) if "power_limit" in card else None,
            self._clocks(card["clocks"]) if "clocks" in card else None,
            self._applications(card["application_clocks"]) if "application_clocks" in card else None,
            self._compute(card["compute_mode"]) if "compute_mode" in card else None,
        ]
        return [text for text in told if text], waits

    def _set(self, *argv: str) -> None:
        answered(self.smi, ["-i", self.bus_id, *argv])

    def _ecc(self, wished: Optional[bool]) -> Tuple[Optional[str], Optional[str]]:
        now, pending = self.state["ecc"], self.state["ecc_pending"]
        before = self.records.get(self.records.before, self.bus_id)
        before = before if isinstance(before, bool) else None
        on = before if wished is None else wished
        if now is None or on is None:
            return None, None
        text = None
        if pending != on:
            if before is None:
                self.records.put(self.records.before, self.bus_id, pending)
            self._set("-e", "1" if on else "0")
            text = "ECC is {} after a reset".format("on" if on else "off")
        if now != on and not self._reset(on):
            return text, "ECC of the card is to be {}, and changes only with a reset of the card or a boot".format(
                "on" if on else "off"
            )
        if wished is None:
            self.records.put(self.records.before, self.bus_id, None)
        return text, None

    def _reset(self, on: bool) -> bool:
        """Whether a reset brought ECC to what is wished. A card that somebody uses is not reset."""
        if self.state["processes"] or processes.of_card(self.state["minor"]):
            return False
        self.smi(["--gpu-reset", "-i", self.bus_id])
        self.state = observe(self.smi).get(self.bus_id, self.state)
        if self.state["ecc"] != on:
            return False
        self.records.put(self.records.since_boot, self.bus_id, None)
        return True

    def _persistence(self, wished: Optional[bool]) -> Optional[str]:
        """Persistence mode of the driver itself; null leaves it: what is on at delivery is the daemon's."""
        if wished is None or self.state["persistence"] is None or self.state["persistence"] == wished:
            return None
        self._set("-pm", "1" if wished else "0")
        return "persistence mode is {}".format("on" if wished else "off")

    def _power(self, wished: Optional[float]) -> Optional[str]:
        power = self.state["power"]
        limit = power["default"] if wished is None else wished
        now = power["current"] if power["requested"] is None else power["requested"]
        if limit is None or (now is not None and abs(now - limit) < _SAME_W):
            return None
        self._set("-pl", f"{limit:g}")
        return f"the power limit is {limit:g} W"

    def _clocks(self, wished: Optional[List[int]]) -> Optional[str]:
        """Locked clocks, which nvidia-smi does not show. The record tells what was set, and no reset since then: they are set once more."""
        known = self.records.get(self.records.since_boot, self.bus_id)
        if wished is not None:
            self._set("-lgc", "{:d},{:d}".format(*wished))
        elif known is not None:
            self._set("-rgc")
        if known == wished:
            return None
        self.records.put(self.records.since_boot, self.bus_id, wished)
        return "the clocks are free" if wished is None else "the clocks are locked to {:d} to {:d} MHz".format(*wished)

    def _applications(self, wished: Optional[List[int]]) -> Optional[str]:
        now = self.state["application_clocks"]
        if now is None or now == (self.state["application_default"] if wished is None else wished):
            return None
        if wished is None:
            self._set("-rac")
            return "the application clocks are those of delivery"
        self._set("-ac", "{:d},{:d}".format(*wished))
        return "the application clocks are {:d} MHz (memory) and {:d} MHz".format(*wished)

    def _compute(self, wished: Optional[str]) -> Optional[str]:
        mode = wished or DEFAULT_MODE
        if self.state["compute_mode"] == mode:
            return None
        self._set("-c", mode.upper())
        return f"the compute mode is {mode}"


def main(arguments: List[str], smi: Runner = change, records: Optional[Records] = None) -> int:
    """Apply a file of settings."""
    try:
        with open(arguments[0], encoding="utf-8") as stream:
            cards = json.load(stream)["cards"]
        changed, waiting = apply(cards, smi, records or Records())
    except SmiError as exc:
        for line in exc.changed if isinstance(exc, SettingsError) else ():
            sys.stdout.write(f"changed {line}\n")
        sys.stderr.write(f"{exc}\n")
        return FAILED
    except (OSError, ValueError, KeyError, IndexError, TypeError) as exc:
        sys.stderr.write(f"the settings could not be read or kept: {exc}\n")
        return FAILED
    for line in changed:
        sys.stdout.write(f"changed {line}\n")
    if waiting:
        sys.stderr.write("{}\n".format("; ".join(waiting)))
        return PENDING
    return 0
