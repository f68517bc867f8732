# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node in the words of node_exporter's textfile collector: gauges and counters in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, paths, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.ages import moment
from ansible_collections.gpuwright.node.plugins.module_utils.base.view import View
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
from ansible_collections.gpuwright.node.plugins.module_utils.watch import judge

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event
    from ansible_collections.gpuwright.node.plugins.module_utils.watch.nvlink import Links
    from ansible_collections.gpuwright.node.plugins.module_utils.watch.settings import Settings

#: Labels and the value.
Sample = Tuple[Mapping[str, Optional[str]], Union[float, bool, None]]
_BEGIN = "gpuwright_"
_VERDICTS = ("pass", "fail", "incomplete", "none")
_LONGEST = 200
_INDEX = re.compile(r"^(\d+) \(")


class Look(NamedTuple):
    """What one turn saw, of which the metrics are made. ``links``: by the index of the card; ``proven``: None where it was not judged;
    ``untold``: messages that wait since earlier turns.
    """

    facts: Facts
    settings: Settings
    found: Sequence[Check]
    events: Sequence[Event]
    links: Mapping[int, Links]
    proven: Optional[bool]
    untold: int


def text(look: Look) -> str:
    """The whole file. What is not known has no line."""
    lines: List[str] = []
    for name, kind, help_text, samples in _families(look):
        rows = [_row(name, labels, value) for labels, value in samples if value is not None]
        if rows:
            lines += [f"# HELP {_BEGIN}{name} {help_text}", f"# TYPE {_BEGIN}{name} {kind}", *rows]
    return "\n".join(lines) + "\n"


def _row(name: str, labels: Mapping[str, Optional[str]], value: Union[float, bool]) -> str:
    told = ",".join(f'{key}="{_escaped(each or "")}"' for key, each in labels.items())
    number = int(value) if isinstance(value, bool) else value
    return f"{_BEGIN}{name}{{{told}}} {number}" if told else f"{_BEGIN}{name} {number}"


def _escaped(value: str) -> str:
    clean = checks.clean(value, _LONGEST) or ""
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _families(look: Look) -> List[Tuple[str, str, str, List[Sample]]]:
    gauge, view, settings = "gauge", View(look.facts), look.settings
    proof = view.get("proof") or {}
    verdict = str(proof.get("verdict") or "none")
    seals: Mapping[str, Mapping[str, str]] = view.get("seals") or {}
    loaded, user = view.get("driver.loaded_version"), view.get("driver.user_version")
    information: Dict[str, Optional[str]] = {
        "version": versions.COLLECTION,
        "driver": loaded,
        "driver_branch": numeric_version.major(loaded) if loaded else None,
        "kernel": view.get("kernel.running"),
        "os": view.get("os.name"),
    }
    count = judge.expectations(view, settings).get("count")
    verdicts: List[Sample] = [({"verdict": each}, each == verdict) for each in _VERDICTS]
    good: List[Sample] = [({"component": name}, seal["state"] == "good") for name, seal in sorted(seals.items())]
    drift = sum(seal["state"] in ("broken", "begun") for seal in seals.values())
    differs = loaded != user if loaded and user else None
    fabric = _passes(look.found, "fabricmanager")
    return [
        ("watch_timestamp_seconds", gauge, "When the node looked at itself last.", [({}, _seconds(view.get("time")))]),
        ("watch_interval_seconds", gauge, "How often it looks.", [({}, settings["interval"])]),
        ("watch_untold", gauge, "Messages that could not be sent yet.", [({}, look.untold)]),
        ("proven", gauge, "Whether every quick check holds and the last proof speaks for the node.", [({}, look.proven)]),
        ("proof_verdict", gauge, "Verdict of the last proof, 1 for the one that holds.", verdicts),
        ("proof_timestamp_seconds", gauge, "When the last proof ended.", [({}, _seconds(proof.get("time")))]),
        ("proof_max_age_seconds", gauge, "For how long a proof speaks.", [({}, settings["proof_max_age"])]),
        ("seal_good", gauge, "Whether a component is as it was sealed.", good),
        ("drift", gauge, "Components that are not as they were sealed.", [({}, drift)]),
        ("check_failed", gauge, "Quick checks that failed.", list(_failed(look.found, view))),
        ("check_incomplete", gauge, "Quick checks that could not be made.", list(_incomplete(look.found, view))),
        ("gpus", gauge, "NVIDIA GPUs on the PCI bus.", [({}, len(view.gpus))]),
        ("expected_gpus", gauge, "GPUs that have to be there, by the wish or the last seal.", [({}, count)]),
        ("info", gauge, "Versions of the node.", [(information, 1)]),
        ("driver_library_mismatch", gauge, "Whether the kernel module and the libraries differ.", [({}, differs)]),
        ("driver_security_floor_ok", gauge, "Whether the driver has no published vulnerability.", [({}, _passes(look.found, judge.FLOOR))]),
        ("driver_end_of_life_timestamp_seconds", gauge, "End of life of the driver's branch.", [({}, _end(loaded, settings))]),
        ("xid_total", "counter", "Errors of the cards in the kernel log since the boot.", _xid(look.events)),
        ("fabric_manager_active", gauge, "Whether the fabric manager runs where one is needed.", [({}, fabric)]),
        ("nvlink_links", gauge, "Links of NVLink.", _links(look.links)),
        ("disk_class_info", gauge, "Kind of disk below a mount point.", _disks(view)),
    ]  # fmt: skip


def _links(links: Mapping[int, Links]) -> List[Sample]:
    return [
        ({"gpu": str(index), "state": state}, count)
        for index, states in sorted(links.items())
        for state, count in states._asdict().items()
    ]


def _disks(view: View) -> List[Sample]:
    rows = {(str(disk["mount"]), str(disk["class"])) for disk in view.get("disks") or () if disk["class"]}
    return [({"mountpoint": mount, "class": kind}, 1) for mount, kind in sorted(rows)]


def _seconds(text_of: object) -> Optional[int]:
    when = moment(str(text_of)) if text_of else None
    return int(when.timestamp()) if when else None


def _end(version: Optional[str], settings: Settings) -> Optional[int]:
    end = judge.end_of(numeric_version.major(version), settings) if version else None
    return int(dt.datetime(end.year, end.month, end.day, tzinfo=dt.timezone.utc).timestamp()) if end else None


def _passes(found: Iterable[Check], check_id: str) -> Optional[bool]:
    states = [check["status"] for check in found if check["id"] == check_id]
    return None if not states or states[0] == "incomplete" else states[0] == "pass"


def _failed(found: Iterable[Check], view: View) -> List[Sample]:
    rows = {
        (check["id"], str(check["severity"]), _card(check, view))
        for check in found
        if check["status"] in ("fail", "warn")
    }
    return [({"check": check, "severity": severity, "gpu": gpu}, 1) for check, severity, gpu in sorted(rows)]


def _incomplete(found: Iterable[Check], view: View) -> List[Sample]:
    rows = {(check["id"], _card(check, view)) for check in found if check["status"] == "incomplete"}
    return [({"check": check, "gpu": gpu}, 1) for check, gpu in sorted(rows)]


def _card(check: Check, view: View) -> str:
    """The index of a check's card, as other exporters label it; its place where nvidia-smi does not name it, nothing for the host."""
    told = str(check["gpu"]) if check["gpu"] is not None else ""
    index = _INDEX.match(told)
    if index:
        return index.group(1)
    if ":" not in told:
        return told
    place = document.normalise_bus_id(told)
    data = view.get("smi.data") or {}
    return next((str(card["index"]) for card in data.get("gpus") or () if card["pci_bus_id"] == place), told)


def _xid(events: Iterable[Event]) -> List[Sample]:
    counts: Dict[Tuple[int, str], int] = {}
    for event in events:
        if event["kind"] == "xid":
            key = (event["code"], event["bus_id"])
            counts[key] = counts.get(key, 0) + event["count"]
    return [({"xid": str(code), "pci_bus_id": place}, count) for (code, place), count in sorted(counts.items())]


def write(directory: str, content: str) -> None:
    """Put the file in its place, whole or not at all, readable by everybody. Raises OSError.

    The directory may be that of another program's user: nothing goes through a link there, and nothing is written into what was there.
    """
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # One turn runs at a time: what one left that was killed is written anew. node_exporter reads what ends with .prom alone.
    name = f".{paths.METRICS_FILE}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=place), "wb") as stream:
                os.fchmod(stream.fileno(), 0o644)
                stream.write(content.encode("utf-8"))
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(name, paths.METRICS_FILE, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=place)
            raise
    finally:
        os.close(place)
