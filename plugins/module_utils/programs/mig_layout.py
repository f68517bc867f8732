# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the cards to their MIG layout, by nvidia-smi. Imported by node_facts, and a program of its own on the node, which a service
runs at every boot: instances, and on Hopper and newer the mode itself, are gone after one.

    mig_layout.py /etc/gpuwright/mig.json     {"cards": [{"bus_id": "00000000:18:00.0", "profiles": ["3g.40gb", "3g.40gb"]}]}

No profiles mean that MIG is off. Nothing is done where a card is as it should be. A card that is dead keeps none of the others from its
layout. Exit status: 0 right (it prints what it changed), 1 nvidia-smi refused, or a card does not answer, 2 a card computes, 3 the mode
changes only with a reset of the card or a boot.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, List, Mapping, Optional, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import Runner, SmiError, answered, change


class Wished(TypedDict):
    """Layout of a card."""

    bus_id: str
    profiles: List[str]


class State(TypedDict):
    """State of a card, see :func:`observe`."""

    current: bool | None
    pending: bool | None
    profiles: List[str] | None
    busy: List[str]
    minor: Optional[int]


FAILED, BUSY, PENDING = 1, 2, 3
_CARD = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-f-]+)\)")
_INSTANCE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+:")
_DESKTOP = "G"
# What nvidia-smi says where there is nothing to destroy.
_NOTHING = "Not Found"


class LayoutError(SmiError):
    """A card cannot be brought to its layout; `status` is the program's exit status, `changed` what other cards were brought to."""

    def __init__(self, text: str, status: int, changed: List[str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.changed = changed or []


def parse_list(text: str) -> dict[str, list[str]]:
    """Profiles of the MIG devices of each card by UUID, as `nvidia-smi -L` lists them. A compute instance that is only a part of
    its GPU instance has another name (1c.3g.40gb).
    """
    found: dict[str, list[str]] = {}
    profiles: list[str] = []
    for line in text.splitlines():
        card = _CARD.match(line)
        if card:
            profiles = found[card.group(1)] = []
            continue
        instance = _INSTANCE.match(line)
        if instance:
            profiles.append(instance.group(1))
    return found


def observe(smi: Runner) -> dict[str, State]:
    """State of each card by bus id: `current` and `pending` (None where it knows no MIG), `profiles` (None where the list has no row of
    the card), `busy` (names of processes that compute: all but those of the desktop), `minor` (number of its device).
    """
    listed = parse_list(smi(["-L"])[1])
    cards: dict[str, State] = {}
    for index, element in enumerate(document.cards(document.described(smi))):
        card = document.card(index, element)
        cards[card["pci_bus_id"]] = {
            "current": card["mig"]["current"],
            "pending": card["mig"]["pending"],
            "profiles": listed.get(card["uuid"] or ""),
            "busy": [each["name"] or "?" for each in card["processes"] if each["type"] != _DESKTOP],
            "minor": card["minor_number"],
        }
    return cards


def is_right(state: Mapping[str, Any], wished: list[str]) -> bool:
    """Whether a card is parted as wished. What it is parted into is not known where its `profiles` are None: that is not right."""
    if not wished:
        return not state["current"] and not state["pending"]
    return bool(state["current"]) and state["profiles"] is not None and sorted(state["profiles"]) == sorted(wished)


def apply(cards: List[Wished], smi: Runner = change) -> list[str]:
    """Bring the cards to their layout; what was changed, in words. Refused as a whole, before the first change, where one of the
    cards to change computes. Raises LayoutError, after the others were brought to theirs where one card cannot be.
    """
    seen = observe(smi)
    wrong = []
    failed: list[LayoutError] = []
    for card in cards:
        bus_id = str(card["bus_id"]).upper()
        state = seen.get(bus_id)
        if state is not None and is_right(state, card["profiles"]):
            continue
        obstacle = _obstacle(bus_id, state, seen)
        if obstacle or state is None:
            failed.append(LayoutError(obstacle, FAILED))
            continue
        uses = state["busy"] or processes.of_card(state["minor"])
        if uses:
            text = "the card {} computes ({}); its layout is not changed under that".format(bus_id, ", ".join(uses))
            raise LayoutError(text, BUSY)
        wrong.append((bus_id, state, card["profiles"]))
    brought = [_attempt(smi, bus_id, state, wished) for bus_id, state, wished in wrong]
    changed = [text for text in brought if isinstance(text, str)]
    failed += [exc for exc in brought if isinstance(exc, LayoutError)]
    if failed:
        # What has to be looked at goes before what waits for a boot.
        raise LayoutError("; ".join(map(str, failed)), min(each.status for each in failed), changed)
    return changed


def _obstacle(bus_id: str, state: State | None, seen: Mapping[str, State]) -> str:
    """Why a card cannot be brought to a layout; empty where it can."""
    if state is None:
        return "expected the card {}, nvidia-smi shows {}".format(bus_id, ", ".join(seen) or "none")
    if state["current"] is None:
        return f"the card {bus_id} cannot be parted: it knows no MIG mode, or does not answer"
    if state["current"] and state["profiles"] is None:
        return f"it is not known what the card {bus_id} is parted into: nvidia-smi -L does not list it"
    return ""


def _attempt(smi: Runner, bus_id: str, state: State, wished: list[str]) -> str | LayoutError:
    """What a card was brought to, or why it was not."""
    try:
        return _bring(smi, bus_id, state, wished)
    except LayoutError as exc:
        return exc
    except SmiError as exc:
        return LayoutError(str(exc), FAILED)


def _bring(smi: Runner, bus_id: str, state: State, wished: list[str]) -> str:
    if state["current"]:
        _clear(smi, bus_id)
    if state["current"] != bool(wished) or state["pending"] != bool(wished):
        _switch(smi, bus_id, bool(wished))
    if not wished:
        return f"{bus_id}: MIG is off"
    answered(smi, ["mig", "-cgi", ",".join(wished), "-C", "-i", bus_id])
    return "{}: {}".format(bus_id, ", ".join(wished))


def _clear(smi: Runner, bus_id: str) -> None:
    """Destroy what is there, compute instances before the GPU instances that hold them."""
    for argv in (["mig", "-dci", "-i", bus_id], ["mig", "-dgi", "-i", bus_id]):
        status, text = smi(argv)
        if status != 0 and _NOTHING not in text:
            raise LayoutError("nvidia-smi {} failed ({}): {}".format(" ".join(argv), status, text.strip()), FAILED)


def _switch(smi: Runner, bus_id: str, on: bool) -> None:
    """Switch the mode. Where a client holds the card it waits for a reset, which is tried, or for a boot."""
    said = answered(smi, ["-i", bus_id, "-mig", "1" if on else "0"])
    if _mode(smi, bus_id) == on:
        return
    smi(["--gpu-reset", "-i", bus_id])
    if _mode(smi, bus_id) == on:
        return
    what = "on" if on else "off"
    text = "MIG of the card {0} is to be {1}, and changes only with a reset of the card or a boot: {2}"
    raise LayoutError(text.format(bus_id, what, said.strip()), PENDING)


def _mode(smi: Runner, bus_id: str) -> bool | None:
    return observe(smi)[bus_id]["current"]


def main(arguments: list[str]) -> int:
    """Apply a layout file."""
    try:
        with open(arguments[0], encoding="utf-8") as stream:
            cards = json.load(stream)["cards"]
        changed, failed = apply(cards), None
    except LayoutError as exc:
        changed, failed = exc.changed, exc
    except SmiError as exc:
        changed, failed = [], LayoutError(str(exc), FAILED)
    except (OSError, ValueError, KeyError, IndexError) as exc:
        sys.stderr.write(f"the layout could not be read: {exc}\n")
        return FAILED
    for line in changed:
        sys.stdout.write(f"changed {line}\n")
    if failed:
        sys.stderr.write(f"{failed}\n")
        return failed.status
    return 0
