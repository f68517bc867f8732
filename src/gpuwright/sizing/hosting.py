"""The machine around the cards: memory, cores, lanes, power, heat, storage and network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuwright.sizing import architecture, tables
from gpuwright.sizing.cards import IN_A_MACHINE, network
from gpuwright.sizing.figures import Figure, Range, figure
from gpuwright.sizing.units import GB, GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.memory import Training

#: Volts that are told: an outlet and a rack of America, an outlet and a rack of most other places.
_VOLTS = (120, 208, 230, 400)
#: Of a power supply that is bought in steps of so many watts.
_STEP = 50


def machine(card: Card, cards: int) -> list[Figure]:
    """What one machine with so many of the cards needs: the least, what to buy, and where more does not help."""
    here = min(cards, IN_A_MACHINE)
    return [*_inside(card, here), *_power(card, here), *_outside(card, cards)]


def _inside(card: Card, cards: int) -> Iterator[Figure]:
    gpu = cards * card.memory / GIB
    ratio = tables.rule("host_memory")
    text = f"{ratio['low']:g} to {ratio['high']:g} times the {gpu:.0f} GiB of the cards"
    yield _need(
        "host memory",
        gpu * tables.rule("host_memory_floor")["value"],
        gpu * ratio["value"],
        gpu * ratio["high"],
        "GiB",
        text,
        ratio,
    )
    each = tables.rule("loader_workers")
    system = tables.rule("cores_system")["value"]
    low, value, high = (system + cards * (1 + each[key]) for key in ("low", "value", "high"))
    yield _need(
        "CPU cores",
        low,
        max(value, 8),
        max(high, value),
        "cores",
        "a process and its loaders for each card, and the system",
        each,
    )
    lanes = tables.rule("lanes_per_card")
    if card.kind not in ("laptop", "embedded"):
        wide = cards * lanes["value"]
        yield _need("PCIe lanes", cards * lanes["low"], wide, wide, "lanes", "16 for each card", lanes)


def _power(card: Card, cards: int) -> Iterator[Figure]:
    if not card.power or card.kind in ("laptop", "embedded"):
        return
    margin = tables.rule("psu_margin")
    cpu = tables.rule("cpu_server" if cards > 4 else "cpu_workstation" if cards > 1 else "cpu_desktop")
    count = 2 if cards > 4 else 1
    peak = cards * card.power + count * cpu["value"] + tables.rule("rest_desktop")["value"]
    if cards == IN_A_MACHINE and card.kind == "datacenter":
        peak = cards * card.power * tables.rule("server_power_to_cards")["value"]
    low, value, high = (_STEP * math.ceil(peak * (1 + margin[key]) / _STEP) for key in ("low", "value", "high"))
    yield _need("power supply", low, value, high, "W", f"peaks of {peak:.0f} W and 20 to 30 % more", margin)
    heat = tables.rule("heat")
    yield _need(
        "heat",
        peak * tables.rule("draw_of_maximum")["low"] * heat["value"],
        peak * heat["value"],
        peak * heat["value"],
        "BTU/h",
        f"all of {peak:.0f} W becomes heat",
        heat,
    )
    load = tables.rule("circuit_continuous")
    draw, wall = tables.rule("draw_of_maximum"), peak / tables.rule("psu_efficiency_platinum")["value"]
    text = "; ".join(f"{each} at {volts} V" for volts, each in circuits(wall, load["value"]).items())
    yield _need("circuit", wall * draw["low"], wall, wall, "W", f"at the wall; {text}", load)


def circuits(watts: float, share: float) -> dict[int, str]:
    """The smallest circuit of each voltage that bears it for hours."""
    found: dict[int, str] = {}
    rows = tables.load()["machines"]["circuits"]
    for row in sorted(rows, key=lambda row: (row["voltage"], row["amperes"])):
        phases = math.sqrt(3) if row["phase"] == 3 else 1
        if (
            row["voltage"] in _VOLTS
            and row["voltage"] not in found
            and row["voltage"] * row["amperes"] * phases * share >= watts
        ):
            found[row["voltage"]] = f"{row['amperes']} A{' three-phase' if row['phase'] == 3 else ''}"
    return found


def _outside(card: Card, cards: int) -> Iterator[Figure]:
    loader = tables.rule("loader_gpu")
    low, value, high = (loader[key] * cards for key in ("low", "value", "high"))
    yield _need(
        "storage, reading", low, value, high, "GB/s", f"{loader['value']:g} GB/s for each card that trains", loader
    )
    if cards > IN_A_MACHINE:
        host, each = tables.rule("network_host"), network(card)
        most = each["value"] * (IN_A_MACHINE if each["name"] != host["name"] else 1)
        text = f"between machines: {host['value']:g} Gb/s and up a machine; {most:g} where gradients must not wait"
        yield _need("network", host["value"], most, most, "Gb/s a machine", text, each)


def checkpoints(shape: Architecture, job: Training) -> list[Figure]:
    """What checkpoints take of the disks."""
    each = tables.rule("checkpoint_bytes")
    kept = tables.rule("checkpoints_kept")["value"]
    if job.kind != "full":
        return []
    low, value, high = (architecture.parameters(shape) * each[key] / GB for key in ("low", "value", "high"))
    text = f"{each['value']:g} bytes a parameter; {kept:g} are kept"
    return [_need("checkpoint", low, value, high, "GB", text, each)]


def _need(name: str, low: float, value: float, high: float, unit: str, text: str, rule: tables.Row) -> Figure:
    return figure(name, Range(low, value, high), unit, text, tables.cite("machines", rule))
