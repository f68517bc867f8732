# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report for people: one HTML file, without script, network or foreign font.

What a node says is hostile until shown otherwise: the template escapes everything, and the page's own policy forbids it to
load or run anything. Everything that is drawn is computed here, so that the template only places it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import jinja2

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..resolver.parts import PARTS
from . import loads, records
from .drawing import number, percent

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.plan import Change
    from ..model.report import Record, Report, Resume
    from .comparison import Shown
    from .loads import Loads

SYMBOLS = {"pass": "✓", "warn": "!", "fail": "✗", "incomplete": "?", "skip": "–", "none": ""}
WORDS = {
    "pass": "passed",
    "warn": "warning",
    "fail": "failed",
    "incomplete": "incomplete",
    "skip": "skipped",
    "unreachable": "unreachable",
    "not_reached": "not reached",
}
HEADLINES = {
    "pass": "Every node is proven",
    "fail": "Not every node is good",
    "incomplete": "Not everything could be proven",
    "skip": "There was nothing to prove",
}
#: In place of these, for a run that did not come to its end.
NOT_ENDED = {
    None: "The run has not ended",
    "interrupted": "The run was interrupted",
    "killed": "The run was killed",
}
_ORDER = {"fail": 0, "incomplete": 1, "warn": 2, "pass": 3, "skip": 4}
# Left to right as a node is built; groups that are not named here follow by name.
_GROUPS = (
    "wish", "driver", "smi", "gpu", "ecc", "remap", "pages", "repair", "temp", "throttle", "power", "fan", "pcie", "persistence",
    "fabric", "fabricmanager", "kernel", "cuda", "dcgm", "load", "nccl", "framework", "train", "container", "fio", "disk", "packages",
    "seals", "proof",
)  # fmt: skip
OPEN_DETAILS = 5
"""So many hosts with trouble are unfolded; the others open at a tap."""
MOST_LOADED = 50
"""So many hosts show what their loads measured, those with trouble first; of the others it is in report.json alone."""


class Host(TypedDict):
    """What the page shows of a host."""

    name: str
    verdict: str
    kind: str
    rank: int
    counts: dict[str, int]
    groups: dict[str, dict[str, str]]
    problems: list[dict[str, object]]
    good: list[dict[str, object]]
    skipped: list[dict[str, object]]
    facts: list[str]
    failure: dict[str, str] | None
    rollback: str | None
    refusals: list[dict[str, str]]
    changes: list[Change]
    warnings: list[dict[str, str]]
    why: list[dict[str, str]]
    stack: list[dict[str, str]]
    reboot: bool
    left: list[str]
    resume: Resume | None
    rescue: list[str]
    simulated: bool
    skip_reason: str | None
    temperatures: list[dict[str, object]]
    latencies: list[dict[str, object]]
    loads: Loads | None
    loads_elsewhere: bool
    anchor: NotRequired[str]
    open: NotRequired[bool]


def render(report: Report, fleet: Shown | None = None) -> str:
    """The page of a report. ``fleet``: its hosts and cards, compared with their like."""
    return _template().render(page={**page_of(report), "fleet": fleet})


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(symbols=SYMBOLS, words=WORDS)
    return environment.get_template("report.html.j2")


def page_of(report: Report) -> dict[str, object]:
    """Everything the template shows."""
    found = report["hosts"].values()
    hosts = sorted(
        (_host(record) for record in found if not record.get("whole")), key=lambda host: (host["rank"], host["name"])
    )
    for place, host in enumerate(hosts):
        host["anchor"] = f"h{place}"
        if place >= MOST_LOADED and host["loads"]:
            host["loads"], host["loads_elsewhere"] = None, True
        host["open"] = place < OPEN_DETAILS and host["rank"] < _ORDER["pass"]
    groups = _sorted_groups({group for host in hosts for group in host["groups"]})
    return {
        "report": report,
        "verdict": report["verdict"],
        "headline": NOT_ENDED.get(report["ended"]) or HEADLINES[report["verdict"]],
        "tiles": _tiles(report),
        "groups": groups,
        "hosts": hosts,
        "staying": [_staying(record) for record in found if record.get("whole")],
        "lost": sorted(report["unreachable"].items()),
        "waiting": report["not_reached"],
        "most_loaded": MOST_LOADED,
    }


def _tiles(report: Report) -> list[dict[str, object]]:
    counts = cast("Mapping[str, int]", report["counts"])
    kinds = {"unreachable": "fail", "not_reached": "incomplete"}
    shown = ("fail", "unreachable", "incomplete", "not_reached", "pass", "skip")
    return [{"count": counts[key], "word": WORDS[key], "kind": kinds.get(key, key)} for key in shown if counts[key]]


def _sorted_groups(names: Iterable[str]) -> list[str]:
    known = {name: position for position, name in enumerate(_GROUPS)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def _host(record: Record) -> Host:
    found: list[Check] = list(record["checks"])
    statuses = {check["status"] for check in found}
    kind = record["verdict"]
    if kind == "pass" and "warn" in statuses:
        kind = "warn"
    return {
        "name": str(record["host"]),
        "verdict": record["verdict"],
        "kind": kind,
        "rank": _ORDER.get(kind, 0),
        "counts": {status: count for status, count in checks.counts(found).items() if count},
        "groups": _worst_by_group(found),
        "problems": [
            _problem(check)
            # In the order of the record, as everywhere: a cause stands before its like.
            for status in ("fail", "incomplete", "warn")
            for check in _together(found)
            if check["status"] == status
        ],
        "good": _names_of(found, "pass"),
        "skipped": _skipped(found),
        "facts": _facts(record),
        "failure": _failure(record["failure"]),
        "rollback": records.rollback(record),
        "refusals": [_entry(entry) for entry in [*record["refusals"], *record["conflicts"]]],
        "changes": record["changes"],
        "warnings": [_entry(entry) for entry in record["warnings"]],
        "why": [_entry(entry) for entry in record["why"]],
        "stack": [_pair(key, value) for key, value in _stack(record["stack"])],
        "reboot": bool(record["reboot"]),
        "left": [f"{row.get('component')}: {row.get('reason')}" for row in record["left"]],
        "resume": record["resume"],
        "rescue": [str(line) for line in record["rescue"]],
        "simulated": bool(record["simulated"]),
        "skip_reason": record["skipped"],
        "temperatures": _temperatures(found),
        "latencies": _latencies(record["measurements"]),
        "loads": loads.shown(record["measurements"], found),
        "loads_elsewhere": False,
    }


def _staying(record: Record) -> dict[str, object]:
    """A row for a host that stays as it is: of each of them a page of its own would say the same."""
    return {
        "name": str(record["host"]),
        "kind": "warn" if record["checks"] or record["warnings"] else record["verdict"],
        "facts": _facts(record),
        "counts": {status: count for status, count in record["counts"].items() if count},
        "told": [check["reason"] or check["id"] for check in record["checks"]]
        + [_entry(entry)["text"] for entry in record["warnings"]]
        + ([str(record["skipped"])] if record["skipped"] else []),
        "simulated": bool(record["simulated"]),
        "whole": record["whole"],
    }


# --------------------------------------------------------------------------------------------------------------------
# Checks
# --------------------------------------------------------------------------------------------------------------------


def _worst_by_group(found: Iterable[Check]) -> dict[str, dict[str, str]]:
    """For the matrix: the worst status of each group, with what to show at a touch."""
    worst: dict[str, Check] = {}
    for check in found:
        name = checks.group(check)
        if name not in worst or _ORDER[check["status"]] < _ORDER[worst[name]["status"]]:
            worst[name] = check
    return {
        name: {
            "status": check["status"],
            "title": f"{check['id']}: {WORDS[check['status']]}" + (f", {check['reason']}" if check["reason"] else ""),
        }
        for name, check in worst.items()
    }


def _together(found: Iterable[Check]) -> list[Check]:
    """The same trouble on several cards is told once, with all the cards."""
    merged: dict[tuple[Any, ...], Check] = {}
    for check in found:
        key = (
            check["id"],
            check["status"],
            check["severity"],
            check["reason"],
            check["remedy"],
            show(check["measured"]),
            show(check["expected"]),
        )
        if key in merged and check["gpu"]:
            merged[key]["gpu"] = ", ".join(str(part) for part in (merged[key]["gpu"], check["gpu"]) if part)
        elif key not in merged:
            merged[key] = check.copy()
    return list(merged.values())


def _problem(check: Check) -> dict[str, object]:
    return {**check, "measured": show(check["measured"]), "expected": show(check["expected"])}


def _names_of(found: Iterable[Check], status: str) -> list[dict[str, object]]:
    """Checks of one status by name, with how often and what was measured where it was once."""
    by_name: dict[str, list[Check]] = {}
    for check in found:
        if check["status"] == status:
            by_name.setdefault(check["id"], []).append(check)
    return [
        {
            "id": name,
            "count": len(same),
            "measured": show(same[0]["measured"]) if len(same) == 1 else "",
            "unit": same[0]["unit"] or "",
        }
        for name, same in by_name.items()
    ]


def _skipped(found: Iterable[Check]) -> list[dict[str, object]]:
    """Skipped checks by their reason."""
    by_reason: dict[str, list[str]] = {}
    for check in found:
        if check["status"] == "skip":
            names = by_reason.setdefault(check["reason"] or "no reason was given", [])
            if check["id"] not in names:
                names.append(check["id"])
    return [{"reason": reason, "names": names} for reason, names in by_reason.items()]


def show(value: Any) -> str:
    """A measured or expected value for a reader."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, Mapping):
        if "floor" in value or "nominal" in value:
            return _floor(value)
        return ", ".join(f"{key} {show(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return _counted([show(inner) for inner in value]) or "none"
    return str(value)


def _floor(value: Mapping[str, object]) -> str:
    parts = []
    if value.get("floor") is not None:
        parts.append(f"at least {show(value['floor'])}")
    if value.get("nominal") is not None:
        parts.append(f"its class promises {show(value['nominal'])}")
    return "; ".join(parts)


# --------------------------------------------------------------------------------------------------------------------
# The host
# --------------------------------------------------------------------------------------------------------------------


def _facts(record: Record) -> list[str]:
    """A line about the host: system, kernel, driver, cards."""
    told: object = record["summary"]
    summary: Mapping[str, object] = told if isinstance(told, Mapping) else {}
    system, kernel = summary.get("os"), summary.get("kernel")
    driver = summary.get("driver")
    driver = driver.get("loaded_version") if isinstance(driver, Mapping) else driver
    line = [
        str(
            (system.get("name") or f"{system.get('id')} {system.get('version')}")
            if isinstance(system, Mapping)
            else system or ""
        ),
        f"kernel {kernel.get('running') if isinstance(kernel, Mapping) else kernel}" if kernel else "",
        f"driver {driver}" if driver else "",
        _cards(record["gpus"]),
    ]
    if isinstance(record["seconds"], (int, float)):
        line.append(f"{record['seconds']:.0f} s")
    return [part for part in line if part]


def _cards(gpus: Iterable[Any]) -> str:
    return _counted([_card(gpu) for gpu in gpus])


def _card(gpu: Any) -> str:
    return str(gpu.get("name") or gpu.get("device") or "GPU") if isinstance(gpu, Mapping) else str(gpu)


def _counted(words: Sequence[str]) -> str:
    """Words in their order, each told once: ``8 × NVIDIA H100``."""
    return ", ".join(
        word if words.count(word) == 1 else f"{words.count(word)} × {word}" for word in dict.fromkeys(words)
    )


def _failure(failure: Any) -> dict[str, str] | None:
    if not failure:
        return None
    told = failure if isinstance(failure, Mapping) else {"message": failure}
    return {key: str(told.get(key) or "") for key in ("task", "message", "component", "output")}


def _entry(entry: Any) -> dict[str, str]:
    told = entry if isinstance(entry, Mapping) else {"text": entry}
    return {key: str(told.get(key) or "") for key in ("rule", "text", "source", "remedy")}


def _stack(stack: Any) -> list[tuple[str, Any]]:
    if not isinstance(stack, Mapping):
        return []
    driver = stack.get("driver") or {}
    rows: list[tuple[str, Any]] = []
    if driver:
        rows.append(
            (
                "driver",
                f"{driver.get('version') or driver.get('branch')}, {driver.get('modules')} modules, from {driver.get('source')}",
            )
        )
    rows += [
        ("CUDA", f"{cuda.get('version')} ({cuda.get('mode')})")
        for cuda in stack.get("cuda") or ()
        if isinstance(cuda, Mapping)
    ]
    if (stack.get("cudnn") or {}).get("version"):
        rows.append(("cuDNN", stack["cudnn"]["version"]))
    rows += [
        (part.title, part.of(stack).get(part.version_key)) for part in PARTS if part.has_own_source and part.of(stack)
    ]
    rows += [
        (str(made.get("name")), made.get("version"))
        for made in stack.get("frameworks") or ()
        if isinstance(made, Mapping)
    ]
    return rows


def _pair(key: str, value: Any) -> dict[str, str]:
    return {"key": key, "value": value if isinstance(value, str) else json.dumps(value)}


# --------------------------------------------------------------------------------------------------------------------
# Drawings: numbers from 0 to 100, so that the template only writes rectangles
# --------------------------------------------------------------------------------------------------------------------

HOTTEST_C = 110.0


def _temperatures(found: Iterable[Check]) -> list[dict[str, object]]:
    """A bar a card: its temperature, and a mark where it becomes a warning."""
    bars = []
    for check in found:
        value, limit = number(check["measured"]), number(check["expected"])
        if check["id"] != "temp.gpu" or value is None:
            continue
        bars.append(
            {
                "label": f"GPU {str(check['gpu']).split()[0]}" if check["gpu"] else "GPU",
                "full": str(check["gpu"] or "GPU"),
                "value": f"{value:.0f} °C",
                "width": percent(value / HOTTEST_C),
                "mark": None if limit is None else percent(limit / HOTTEST_C),
                "kind": check["status"],
            }
        )
    return bars


def _latencies(measurements: object) -> list[dict[str, object]]:
    """A group of bars for each part of fio: percentiles of latency, on a logarithmic scale that all parts share."""
    parts = measurements.get("fio") if isinstance(measurements, Mapping) else None
    if not isinstance(parts, Mapping):
        return []
    groups: list[dict[str, object]] = []
    for name, part in parts.items():
        latency = part.get("clat_ns") if isinstance(part, Mapping) else None
        percentiles = latency.get("percentiles") if isinstance(latency, Mapping) else None
        bars = [
            {"label": f"p{key}", "value": _time(value), "width": percent(_logarithm(value))}
            for key in ("50", "90", "99", "99.9", "99.99")
            if isinstance(percentiles, Mapping) and (value := number(percentiles.get(key)))
        ]
        if bars:
            groups.append({"name": str(name), "bars": bars, "rate": _rate(part)})
    return groups


def _rate(part: Mapping[str, object]) -> str:
    iops, bandwidth = number(part.get("iops")), number(part.get("bw_bytes"))
    said = [f"{iops:,.0f} IOPS"] if iops else []
    return ", ".join(said + ([f"{bandwidth / 1e6:,.0f} MB/s"] if bandwidth else []))


def _logarithm(nanoseconds: float) -> float:
    """From 1 µs at the left to 10 s at the right, seven decades."""
    return math.log10(max(nanoseconds, 1_000.0) / 1_000.0) / 7


def _time(nanoseconds: float) -> str:
    for limit, divisor, unit in ((1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / divisor:.3g} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"
