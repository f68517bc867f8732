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
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any, Callable, List, Mapping, Optional, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes

# Python 3.8 runs this too: the aliases below are evaluated.
Answer = Tuple[int, str]
Runner = Callable[[List[str]], Answer]


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
    minor: Optional[str]


FAILED, BUSY, PENDING = 1, 2, 3
_CARD = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-f-]+)\)")
_INSTANCE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+:")
_SECONDS = 120
# nvidia-smi's document; warnings of the driver stand before and after it.
_DOCUMENT, _DOCUMENT_END = "<nvidia_smi_log", "</nvidia_smi_log>"
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")
_CONTROL = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f]")
_DESKTOP = "G"
# What nvidia-smi says where there is nothing to destroy.
_NOTHING = "Not Found"


class LayoutError(Exception):
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


def run(argv: list[str]) -> Answer:
    """Exit status and output of nvidia-smi; its warnings stand behind the output, not in the midst of it."""
    try:
        # run_command, which sanity wants here, belongs to a module object; this is a program of its own on the node.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["nvidia-smi", *argv],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return FAILED, f"nvidia-smi could not be run: {exc}"
    return done.returncode, done.stdout + done.stderr


def asked(smi: Runner, argv: list[str]) -> str:
    """Output of nvidia-smi. Raises LayoutError where it fails."""
    status, text = smi(argv)
    if status != 0:
        raise LayoutError("nvidia-smi {} failed ({}): {}".format(" ".join(argv), status, text.strip()), FAILED)
    return text


def observe(smi: Runner) -> dict[str, State]:
    """State of each card by bus id: `current` and `pending` (None where it knows no MIG), `profiles` (None where the list has no row of
    the card), `busy` (names of processes that compute: all but those of the desktop), `minor` (number of its device).
    """
    listed = parse_list(smi(["-L"])[1])
    cards: dict[str, State] = {}
    for gpu in described(smi).findall("gpu"):
        names = [
            info.findtext("process_name") or "?"
            for info in gpu.findall("processes/process_info")
            if (info.findtext("type") or "").strip() != _DESKTOP
        ]
        cards[(gpu.get("id") or "").upper()] = {
            "current": _flag(gpu.findtext("mig_mode/current_mig")),
            "pending": _flag(gpu.findtext("mig_mode/pending_mig")),
            "profiles": listed.get(gpu.findtext("uuid") or ""),
            "busy": names,
            "minor": gpu.findtext("minor_number"),
        }
    return cards


def described(smi: Runner) -> ET.Element:
    """The document of nvidia-smi -q -x. It ends with an error where one card is lost, and describes the others. Raises LayoutError."""
    argv = ["-q", "-x"]
    status, text = smi(argv)
    if status != 0 and _DOCUMENT not in text:
        raise LayoutError("nvidia-smi {} failed ({}): {}".format(" ".join(argv), status, text.strip()), FAILED)
    return document(text)


def document(text: str) -> ET.Element:
    """What nvidia-smi -q -x describes, without what stands around it. Raises LayoutError."""
    start, end = text.find(_DOCUMENT), text.rfind(_DOCUMENT_END)
    if start < 0 or end < start:
        raise LayoutError(f"nvidia-smi -q -x gave no XML: {text.strip()[:200]!r}", FAILED)
    # Names of processes are not always escaped.
    body = _CONTROL.sub("?", _AMPERSAND.sub("&amp;", text[start : end + len(_DOCUMENT_END)]))
    try:
        return ET.fromstring(body)  # noqa: S314 - nvidia-smi's own words
    except ET.ParseError as exc:
        raise LayoutError(f"nvidia-smi -q -x gave no XML: {exc}", FAILED) from exc


def held(minor: Optional[str]) -> List[str]:
    """Who holds a card, by the number of its device, any card where that is not told. That nobody can tell who does is a use of it, too."""
    found, unread = processes.holders()
    names = [
        "{name} (pid {pid})".format(**each)
        for each in found
        if minor is None or not minor.isdigit() or f"nvidia{minor}" in each["devices"]
    ]
    return names or ([unread] if unread else [])


def _flag(text: str | None) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(text or "")


def is_right(state: Mapping[str, Any], wished: list[str]) -> bool:
    """Whether a card is parted as wished. What it is parted into is not known where its `profiles` are None: that is not right."""
    if not wished:
        return not state["current"] and not state["pending"]
    return bool(state["current"]) and state["profiles"] is not None and sorted(state["profiles"]) == sorted(wished)


def apply(cards: List[Wished], smi: Runner = run) -> list[str]:
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
        uses = state["busy"] or held(state["minor"])
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


def _bring(smi: Runner, bus_id: str, state: State, wished: list[str]) -> str:
    if state["current"]:
        _clear(smi, bus_id)
    if state["current"] != bool(wished) or state["pending"] != bool(wished):
        _switch(smi, bus_id, bool(wished))
    if not wished:
        return f"{bus_id}: MIG is off"
    asked(smi, ["mig", "-cgi", ",".join(wished), "-C", "-i", bus_id])
    return "{}: {}".format(bus_id, ", ".join(wished))


def _clear(smi: Runner, bus_id: str) -> None:
    """Destroy what is there, compute instances before the GPU instances that hold them."""
    for argv in (["mig", "-dci", "-i", bus_id], ["mig", "-dgi", "-i", bus_id]):
        status, text = smi(argv)
        if status != 0 and _NOTHING not in text:
            raise LayoutError("nvidia-smi {} failed ({}): {}".format(" ".join(argv), status, text.strip()), FAILED)


def _switch(smi: Runner, bus_id: str, on: bool) -> None:
    """Switch the mode. Where a client holds the card it waits for a reset, which is tried, or for a boot."""
    said = asked(smi, ["-i", bus_id, "-mig", "1" if on else "0"])
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
    except (OSError, ValueError, KeyError, IndexError) as exc:
        sys.stderr.write(f"the layout could not be read: {exc}\n")
        return FAILED
    for line in changed:
        sys.stdout.write(f"changed {line}\n")
    if failed:
        sys.stderr.write(f"{failed}\n")
        return failed.status
    return 0
