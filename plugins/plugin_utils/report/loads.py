# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the loads of a proof measured: as figures for a host's record, and as tables and pictures for the page. Pure.

All of it comes from a node. It passed the gate, and is held to a shape here all the same, when it is recorded and when a record is read:
what is no figure is left out, words are shortened, and of each there are only so many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import load_judge

from .drawing import number

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

#: Environments, cards and MIG instances, pairs, collectives, NUMA nodes and entries of a mapping that are kept. A machine has fewer.
MOST_ENVIRONMENTS, MOST_DEVICES, MOST_PAIRS, MOST_COLLECTIVES, MOST_NODES, MOST_ENTRIES = 20, 128, 1000, 200, 64, 20
#: Cards of which the matrix of copies is drawn.
MOST_IN_MATRIX = 16
#: Characters of a name.
_LONGEST = 100
#: A data sheet that says less says nothing (TFLOPS, GB/s).
_LEAST_SHEET = 1e-3

_HOST_DEVICE = ("to_device_gbs", "from_device_gbs", "both_gbs")
_TRAINING = ("ranks", "steps", "step_seconds", "tflops", "waiting_share", "rows", "workers", "loss_first", "loss_last")
_COLLECTIVE = ("bytes", "ranks", "algbw_gbs", "busbw_gbs")
_SHEET = ("bandwidth_gbs", "pcie_gbs", "nvlink_gbs")
#: Precisions in the order in which they are shown.
_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


class Device(TypedDict):
    """What a card, an instance of MIG or the processor did, as the module framework_load returns it, beside its data sheet."""

    gpu: str | None
    kind: str
    name: str
    bus_id: str | None
    tflops: dict[str, float]
    bandwidth_gbs: dict[str, float]
    host_device: list[dict[str, object]]
    training: dict[str, object] | None
    data_sheet: dict[str, object] | None


class Figures(TypedDict):
    """What was measured through one environment."""

    name: str
    version: str | None
    seconds: float | None
    devices: list[Device]
    pairs: list[dict[str, object]]
    collectives: list[dict[str, object]]
    training: dict[str, object] | None


class Cell(TypedDict):
    """A figure in a table. ``note`` stands below it; ``status`` is that of its check, empty where it was not judged, ``title`` why."""

    value: str
    note: str
    status: str
    title: str


class Row(TypedDict):
    """A row of a table, with what it is of."""

    name: str
    cells: list[Cell | None]


class Table(TypedDict):
    """A table. ``title`` stands above it."""

    title: str
    columns: list[str]
    rows: list[Row]


class Loads(TypedDict):
    """What the page shows of the loads of a host. ``untried``: what has to be known of those by the driver alone."""

    driver: Table | None
    untried: str
    environments: list[dict[str, object]]


# --------------------------------------------------------------------------------------------------------------------
# For the record
# --------------------------------------------------------------------------------------------------------------------


def of_results(results: Iterable[Mapping[str, object]]) -> list[Figures]:
    """The figures of each environment, from the results of the task that loads through it, beside the data sheets that it was given."""
    told: list[object] = []
    for result in results:
        item = result.get("item")
        if not isinstance(item, Mapping) or "devices" not in result:  # it ended without an answer
            continue
        sheets = {str(row["bus_id"]).upper(): row for row in item["expected"]}
        devices = [
            {**device, "data_sheet": sheets.get(str(device.get("bus_id")).upper())}
            for device in _rows(result["devices"], MOST_DEVICES)
        ]
        told.append({**result, "name": item["name"], "devices": devices})
    return [figures for figures in shaped(told) if figures["devices"] or figures["collectives"]]


def shaped(told: object) -> list[Figures]:
    """Figures in their shape, whatever was handed in; that of a record without them is empty."""
    return [
        {
            "name": _text(row.get("name")) or "environment",
            "version": _text(row.get("version")),
            "seconds": number(row.get("seconds")),
            "devices": [_device(each) for each in _rows(row.get("devices"), MOST_DEVICES)],
            "pairs": [
                {key: _text(each.get(key)) for key in ("from", "to")}
                | {"gbs": number(each.get("gbs")), "direct": each.get("direct") is True}
                for each in _rows(row.get("pairs"), MOST_PAIRS)
            ],
            "collectives": [
                {key: _text(each.get(key)) for key in ("kind", "backend")} | _numbers(each, _COLLECTIVE)
                for each in _rows(row.get("collectives"), MOST_COLLECTIVES)
            ],
            "training": _training(row.get("training")),
        }
        for row in _rows(told, MOST_ENVIRONMENTS)
    ]


def _device(told: Mapping[str, object]) -> Device:
    sheet = told.get("data_sheet")
    return {
        "gpu": _text(told.get("gpu")),
        "kind": _text(told.get("kind")) or "card",
        "name": _text(told.get("name")) or "",
        "bus_id": _text(told.get("bus_id")),
        "tflops": _entries(told.get("tflops")),
        "bandwidth_gbs": _entries(told.get("bandwidth_gbs")),
        "host_device": [
            {"node": number(each.get("node")), "local": each.get("local") is True, **_numbers(each, _HOST_DEVICE)}
            for each in _rows(told.get("host_device"), MOST_NODES)
        ],
        "training": _training(told.get("training")),
        "data_sheet": {
            "name": _text(sheet.get("name")),
            "tflops": _entries(sheet.get("tflops")),
            **_numbers(sheet, _SHEET),
        }
        if isinstance(sheet, Mapping)
        else None,
    }


def _training(told: object) -> dict[str, object] | None:
    if not isinstance(told, Mapping) or not told:
        return None
    return {"precision": _text(told.get("precision")), **_numbers(told, _TRAINING)}


def _numbers(told: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    return {key: number(told.get(key)) for key in keys}


def _entries(told: object) -> dict[str, float]:
    pairs = list(told.items())[:MOST_ENTRIES] if isinstance(told, Mapping) else []
    return {str(key)[:_LONGEST]: value for key, each in pairs if (value := number(each)) is not None}


def _rows(told: object, most: int) -> list[Mapping[str, object]]:
    return [row for row in told[:most] if isinstance(row, Mapping)] if isinstance(told, list) else []


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None


# --------------------------------------------------------------------------------------------------------------------
# For the page
# --------------------------------------------------------------------------------------------------------------------

#: Each check by what it is of: its id, its card and what was measured, by which figure and judgement find each other.
_Judged = Mapping[tuple[str, str | None, float | None], "Check"]


def shown(measurements: Mapping[str, object], checks: Iterable[Check]) -> Loads | None:
    """What the page shows of the loads of a host; None where nothing was loaded, as in records of before."""
    driver = _driver(_rows(measurements.get("load"), MOST_DEVICES))
    judged: _Judged = {(check["id"], _text(check["gpu"]), number(check["measured"])): check for check in checks}
    environments = [_environment(figures, judged) for figures in shaped(measurements.get("framework_loads"))]
    if driver is None and not environments:
        return None
    return {"driver": driver, "untried": load_judge.UNTRIED if driver else "", "environments": environments}


def _driver(cards: Sequence[Mapping[str, object]]) -> Table | None:
    """What nvidia-smi said of each card while the driver alone loaded it."""
    columns = {
        "SM clock, MHz": "sm_mhz",
        "power, W": "power_w",
        "card, °C": "temperature_c",
        "memory, °C": "temperature_memory_c",
        "PCIe generation": "pcie_gen",
        "lanes": "pcie_width",
        "utilization, %": "utilization_percent",
    }
    rows: list[Row] = []
    for card in cards:
        looks = number(card.get("looks"))
        cells: list[Cell | None] = [_range(card.get(key)) for key in columns.values()]
        cells.append(_often(card.get("reasons"), looks))
        rows.append({"name": _title(card.get("gpu"), card.get("name")), "cells": [_cell(_show(looks)), *cells]})
    return {"title": "", "columns": ["looks", *columns, "slowed down by"], "rows": rows} if rows else None


def _range(told: object) -> Cell | None:
    """The median, and below it the lowest and the highest value."""
    if not isinstance(told, Mapping):
        return None
    low, median, high = (number(told.get(key)) for key in ("min", "median", "max"))
    if median is None:
        return None
    return _cell(_show(median), f"{_show(low)} to {_show(high)}" if low != high else "")


def _often(told: object, looks: float | None) -> Cell:
    reasons = {key: count for key, count in _entries(told).items() if count > 0}
    said = ", ".join(f"{reason} ({_show(count)} of {_show(looks)})" for reason, count in reasons.items())
    return _cell(said or "nothing")


def _environment(figures: Figures, judged: _Judged) -> dict[str, object]:
    tables = [_rates(figures, judged), _host_device(figures, judged), _trained(figures, judged)]
    return {
        "title": " ".join(filter(None, (figures["name"], figures["version"]))),
        "tables": [table for table in tables if table["rows"]],
        "matrix": _matrix(figures, judged),
        "plot": _plot(figures, judged),
    }


def _rates(figures: Figures, judged: _Judged) -> Table:
    """A row for each card: products by precision and the memory, beside the data sheet."""
    devices = figures["devices"]
    told = {precision for device in devices for precision in device["tflops"]}
    precisions = [each for each in _PRECISIONS if each in told] + sorted(told.difference(_PRECISIONS))
    kinds = sorted({kind for device in devices for kind in device["bandwidth_gbs"]})
    rows: list[Row] = []
    for device in devices:
        sheet = device["data_sheet"] or {}
        dense = _entries(sheet.get("tflops"))
        cells = [
            _figure(device["tflops"].get(each), dense.get(each), _check(judged, f"load.tflops_{each}", device))
            for each in precisions
        ]
        cells += [
            _figure(
                device["bandwidth_gbs"].get(kind),
                number(sheet.get("bandwidth_gbs")),
                _check(judged, "load.bandwidth", device),
            )
            for kind in kinds
        ]
        rows.append({"name": _title(device["gpu"], device["name"]), "cells": cells})
    columns = [f"{each}, TFLOPS" for each in precisions] + [f"memory {kind}, GB/s" for kind in kinds]
    return {"title": "Products of matrices, and memory", "columns": columns, "rows": rows if columns else []}


def _host_device(figures: Figures, judged: _Judged) -> Table:
    """A row for each card and NUMA node; those that are not the card's own are told and not judged."""
    rows: list[Row] = []
    for device in figures["devices"]:
        link = number((device["data_sheet"] or {}).get("pcie_gbs"))
        for each in device["host_device"]:
            node = _show(number(each.get("node")))
            where = f"NUMA node {node}" if node else "any NUMA node"
            up, down, both = (number(each.get(key)) for key in _HOST_DEVICE)
            find = _check(judged, "load.host_device", device) if each["local"] else None
            cells = [_figure(up, link, find), _figure(down, link, find), _figure(both, None, None)]
            name = f"{_title(device['gpu'], device['name'])}, {where}{' (its own)' if each['local'] else ''}"
            rows.append({"name": name, "cells": cells})
    columns = ["to the card, GB/s", "from it, GB/s", "both at once, GB/s"]
    return {"title": "Copies between host and card", "columns": columns, "rows": rows}


def _trained(figures: Figures, judged: _Judged) -> Table:
    """A row for each card by itself, and one for all of them together."""
    rows = [
        _step(_title(device["gpu"], device["name"]), device["training"], _check(judged, "train.step", device))
        for device in figures["devices"]
        if device["training"]
    ]
    if figures["training"]:
        ranks = _show(number(figures["training"].get("ranks")))
        rows.append(
            _step(
                f"all together, {words.count(ranks, 'ranks')}", figures["training"], _check(judged, "train.ddp", None)
            )
        )
    columns = ["a step, ms", "TFLOPS", "waiting for data", "precision", "steps", "loss"]
    return {"title": "Training", "columns": columns, "rows": rows}


def _step(name: str, told: Mapping[str, object], find: _Find) -> Row:
    step, waiting = number(told.get("step_seconds")), number(told.get("waiting_share"))
    first, last = (number(told.get(key)) for key in ("loss_first", "loss_last"))
    return {
        "name": name,
        "cells": [
            _cell(_show(step * 1000)) if step is not None else None,
            _figure(number(told.get("tflops")), None, find),
            _cell(f"{waiting:.0%}") if waiting is not None else None,
            _cell(str(told.get("precision") or "")),
            _cell(_show(number(told.get("steps")))),
            _cell(f"{_show(first)} → {_show(last)}") if first is not None and last is not None else None,
        ],
    }


class _Find(TypedDict):
    """Where the check of a figure is looked for."""

    judged: _Judged
    id: str
    gpu: str | None


def _check(judged: _Judged, id_: str, device: Device | None) -> _Find:
    return {"judged": judged, "id": id_, "gpu": device["gpu"] if device else None}


def _found(find: _Find | None, value: float) -> Check | None:
    return find["judged"].get((find["id"], find["gpu"], value)) if find else None


def _figure(value: float | None, most: float | None, find: _Find | None) -> Cell | None:
    """A figure beside its data sheet, with what its check says of it."""
    if value is None:
        return None
    check = _found(find, value)
    beside = [f"{value / most:.0%} of {_show(most)}"] if most and most >= _LEAST_SHEET else []
    if check is None or check["status"] == "skip":
        note = [*beside, *(["not judged"] if check else [])]
        return {**_cell(_show(value), ", ".join(note)), "title": (check["reason"] or "") if check else ""}
    return {**_cell(_show(value), ", ".join(beside)), "status": check["status"], "title": check["reason"] or ""}


def _cell(value: str, note: str = "") -> Cell:
    return {"value": value, "note": note, "status": "", "title": ""}


def _title(gpu: object, name: object) -> str:
    """A card, or the processor, with its model."""
    told = [text for each in (gpu, name) if (text := _text(each))]
    return ": ".join(told) or "?"


def _show(value: float | None) -> str:
    """Four digits that count: what is beyond differs from one measurement to the next."""
    if value is None:
        return ""
    digits = 0 if not value else max(3 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{min(digits, 6)}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


# --- pictures ---------------------------------------------------------------------------------------------------------

#: Side of a cell of the matrix, and the room for its labels.
_SIDE, _EDGE = 34, 22


def _matrix(figures: Figures, judged: _Judged) -> dict[str, object] | None:
    """A square for each ordered pair of cards, the darker the faster."""
    pairs = [pair for pair in figures["pairs"] if pair["from"] and pair["to"] and pair["gbs"] is not None]
    names = list(dict.fromkeys([str(pair[key]) for key in ("from", "to") for pair in pairs]))
    if not pairs:
        return None
    rates = [float(str(pair["gbs"])) for pair in pairs]
    slowest, fastest = min(rates), max(rates)
    told = f"copies between cards: {_show(slowest)} to {_show(fastest)} GB/s"
    if len(names) > MOST_IN_MATRIX:
        return {"cells": [], "text": f"{told}, of {len(names)} cards; each pair is in report.json"}
    place = {name: at for at, name in enumerate(sorted(names, key=_natural))}
    cells = []
    statuses = set()
    for pair, rate in zip(pairs, rates, strict=True):
        first, second = str(pair["from"]), str(pair["to"])
        check = judged.get(("load.peer", f"{_short(first)} to {_short(second)}", rate))
        status = check["status"] if check else "skip"
        statuses.add(status)
        way = "directly" if pair["direct"] else "through the host's memory"
        cells.append(
            {
                "x": _EDGE + place[second] * _SIDE,
                "y": _EDGE + place[first] * _SIDE,
                "dark": round(0.12 + 0.6 * rate / fastest, 3) if fastest > 0 else 0.12,
                "value": f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}",
                "status": status if status in ("fail", "warn", "incomplete") else "",
                "direct": pair["direct"],
                "title": f"{first} to {second}, {way}: {_show(rate)} GB/s",
            }
        )
    return {
        "cells": cells,
        "labels": [{"at": _EDGE + at * _SIDE + _SIDE // 2, "text": _short(name)} for name, at in place.items()],
        "size": _EDGE + len(place) * _SIDE,
        "side": _SIDE - 2,
        "text": f"{told}{', not judged' if statuses == {'skip'} else ''}",
        "indirect": not all(pair["direct"] for pair in pairs),
    }


def _short(label: str) -> str:
    """A card by its index, the first word of its label."""
    return (label.split() or [""])[0][:6]


def _natural(label: str) -> tuple[int, str]:
    index = _short(label)
    return (int(index) if index.isascii() and index.isdecimal() else 10**6, label)


#: The room of the plot, and the edges around its lines.
_WIDE, _HIGH, _LEFT, _TOP = 320, 130, 44, 10
_COLOURS = ("pass", "incomplete", "warn", "fail")


def _plot(figures: Figures, judged: _Judged) -> dict[str, object] | None:
    """A line for each kind of collective: its bus bandwidth by the size of the data, which is drawn logarithmically."""
    rows = [
        (str(row["kind"]), size, rate)
        for row in figures["collectives"]
        if row["kind"]
        and (size := number(row["bytes"])) is not None
        and size >= 1
        and (rate := number(row["busbw_gbs"])) is not None
        and rate >= 0
    ]
    if not rows:
        return None
    smallest, largest = min(row[1] for row in rows), max(row[1] for row in rows)
    fastest = max(row[2] for row in rows) or 1.0
    decades = math.log2(largest / smallest) or 1.0

    def place(size: float, rate: float) -> tuple[float, float]:
        across = math.log2(size / smallest) / decades
        return (
            round(_LEFT + across * (_WIDE - _LEFT - 12), 1),
            round(_TOP + (1 - rate / fastest) * (_HIGH - 2 * _TOP - 16), 1),
        )

    lines = []
    for colour, kind in zip(_COLOURS, dict.fromkeys(row[0] for row in rows), strict=False):
        mine = sorted((size, rate) for each, size, rate in rows if each == kind)
        size, rate = mine[-1]
        check = judged.get((f"nccl.{kind}", None, rate))
        status = check["status"] if check and check["status"] != "skip" else ""
        points = [place(*each) for each in mine]
        lines.append(
            {
                "kind": colour,
                "points": " ".join(f"{x},{y}" for x, y in points),
                "dots": [
                    {"x": x, "y": y, "title": f"{kind}, {_size(size)}: {_show(rate)} GB/s"}
                    for (x, y), (size, rate) in zip(points, mine, strict=True)
                ],
                "name": kind,
                "text": f"{_show(rate)} GB/s at {_size(size)}{'' if status else ', not judged'}",
                "status": status,
                "title": (check["reason"] or "") if check else "",
            }
        )
    ranks = next((number(row["ranks"]) for row in figures["collectives"]), None)
    backend = next((row["backend"] for row in figures["collectives"] if row["backend"]), None)
    return {
        "lines": lines,
        "width": _WIDE,
        "height": _HIGH,
        "left": _LEFT,
        "top": _TOP,
        "bottom": _HIGH - _TOP - 16,
        "most": _show(fastest),
        "from": _size(smallest),
        "to": _size(largest),
        "text": f"collectives by size, {words.count(_show(ranks), 'ranks')} by {backend or '?'}: busbw in GB/s",
    }


def _size(size: float) -> str:
    for unit, length in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= length:
            return f"{size / length:.4g} {unit}"
    return f"{size:.4g} B"
