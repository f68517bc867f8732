# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MIG layout of each card: what was wished, held against what the card can be parted into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...resolver.log import Entry, Log, Unresolved, conflict
from ...resolver.machine import Card, Machine
from ...resolver.part import HostPart
from ...rules import Row, Rules
from ...wish.wish import Wish
from .model import Mig, MigCard

_TABLE = "compat/mig.yaml"


def choose(machine: Machine, wish: Wish, log: Log) -> Mig | None:
    """Return None without a wish, else `cards`: place and profiles of each card that the layout speaks of, largest profiles first;
    no profiles: MIG off.

    Raises Unresolved with a reason for each card that cannot be parted so.
    """
    if not wish.mig:
        return None
    entries = _strangers(machine, wish)
    cards: list[MigCard] = []
    told: list[tuple[str, list[str]]] = []
    for index, card in machine.numbered:
        profiles = _wished(index, card, machine, wish)
        if profiles is None:
            continue
        obstacle = _obstacle(card, profiles, log)
        if obstacle and obstacle not in entries:
            entries.append(obstacle)
        told.append((card.name, _ordered(profiles)))
        cards.append({"index": index, "bus_id": card.bus_id, "name": card.name, "profiles": _ordered(profiles)})
    if entries:
        raise Unresolved(*entries)
    for text in dict.fromkeys(f"{name}: {', '.join(profiles) or 'MIG off'}" for name, profiles in told):
        log.decided("mig.layout", f"{text}: asked for", _TABLE)
    return {"cards": cards}


def _wished(index: int, card: Card, machine: Machine, wish: Wish) -> tuple[str, ...] | None:
    """Return what is wished for a card: by its own name before what is said of all; None where nothing is."""
    for selector, profiles in wish.mig.items():
        if selector != "all" and means(selector, index, card, machine):
            return profiles
    return wish.mig.get("all")


def means(selector: str, index: int, card: Card, machine: Machine) -> bool:
    """Say whether an index, a UUID or a bus id names a card."""
    if selector.isdecimal():
        return int(selector) == index
    if selector.lower().startswith("gpu-"):
        return machine.uuids.get(card.bus_id or "", "").lower() == selector.lower()
    return _place(selector) == _place(card.bus_id or "")


def _place(bus_id: str) -> str:
    """Return a bus id in one writing: 0000:3b:00.0 and 00000000:3B:00.0 are one place."""
    domain, _colon, rest = bus_id.lower().partition(":")
    return f"{domain.rjust(8, '0')}:{rest}"


def _strangers(machine: Machine, wish: Wish) -> list[Entry]:
    """Return a conflict for each selector that no card answers to."""
    entries = []
    for selector in wish.mig:
        if selector == "all" or any(means(selector, index, card, machine) for index, card in machine.numbered):
            continue
        known = ", ".join(card.bus_id or str(index) for index, card in machine.numbered)
        hint = "; a UUID is known once the driver runs" if selector.lower().startswith("gpu-") else ""
        text = f"mig_layout names the card {selector}, which is not there{hint}"
        entries.append(conflict("mig.card", text, "the machine's facts", f"name one of {known}, an index, or all"))
    return entries


def _obstacle(card: Card, profiles: Sequence[str], log: Log) -> Entry | None:
    """Return why a card cannot be parted so."""
    row = _row(card, log.rules)
    if row is None:
        if not profiles:
            return None
        known = ", ".join(name for each in log.rules["mig"]["rows"] for name in each["cards"])
        text = f"the {card.name} cannot be parted (MIG), as far as the rules know"
        return conflict("mig.card", text, _TABLE, f"leave it out of mig_layout, or write off; parted can be: {known}")
    citation = log.cite("mig", row)
    offered = row["profiles"]
    foreign = [name for name in profiles if name not in offered]
    if foreign:
        text = f"the {card.name} has no MIG profile {foreign[0]}"
        return conflict("mig.profile", text, citation, f"choose from {', '.join(offered)}")
    placements = {each["kind"]: each for each in log.rules["mig"]["placements"] if each["geometry"] == row["geometry"]}
    if not fits([placements[offered[name]] for name in _ordered(profiles)]):
        text = f"{', '.join(profiles)} do not fit on one {card.name} together"
        return conflict(
            "mig.layout", text, citation, f"leave one out, for example {_smaller(profiles, offered, placements)}"
        )
    if not row["confirmed"] and profiles:
        log.warn("mig.unconfirmed", f"what is known of the profiles of the {card.name} is not confirmed", citation)
    return None


def _row(card: Card, rules: Rules) -> Row | None:
    return next((row for row in rules["mig"]["rows"] if card.name in row["cards"]), None)


def fits(instances: Sequence[Row]) -> bool:
    """Say whether instances have room on one card together: each takes `size` slices from one of its `starts` on."""
    counted = Counter(each["kind"] for each in instances)
    if any(counted[each["kind"]] > each["most"] for each in instances):
        return False
    return _placed(list(instances), frozenset())


def _placed(waiting: list[Row], taken: frozenset[int]) -> bool:
    if not waiting:
        return True
    first, rest = waiting[0], waiting[1:]
    for start in first["starts"]:
        slices = frozenset(range(start, start + first["size"]))
        if not slices & taken and _placed(rest, taken | slices):
            return True
    return False


def _smaller(profiles: Sequence[str], offered: Row, placements: dict[str, Row]) -> str:
    """Return the longest beginning of the layout that fits."""
    for length in range(len(profiles) - 1, 0, -1):
        if fits([placements[offered[name]] for name in _ordered(profiles[:length])]):
            return ",".join(profiles[:length])
    return "off"


def _ordered(profiles: Sequence[str]) -> list[str]:
    """Return the profiles in the order in which a card takes them: the large ones first, or their places are gone."""

    def weight(name: str) -> tuple[int, int]:
        slices, _separator, memory = name.partition("g.")
        return int(slices), int(memory.partition("gb")[0])

    return sorted(profiles, key=weight, reverse=True)


HOST_PART = HostPart("mig", "", lambda machine, wish, _system, _stack, log: choose(machine, wish, log))
