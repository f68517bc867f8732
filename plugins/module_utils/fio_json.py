# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read fio's JSON, 2.x and 3.x, and judge it against the class of the disk.

fio 2.x counts latency in microseconds and bytes in KiB, 3.x in nanoseconds and bytes; the keys decide, not the version
text (``fio-3.36-103-gb140f-dirty`` is one). fio's exit status is no judgement: an interrupted run ends with error 0 in
every job, and a write test without enough space may end with 0 too. So errors, counts and run times are read.

Pure functions: nothing is executed here.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.gpuwright.node.plugins.module_utils import checks

Document = Dict[str, Any]
Measurement = Dict[str, Any]


class FioError(Exception):
    """What fio printed is no result; the text is a sentence for a person."""


def parse(text: Any, stderr: Any = "") -> Document:
    """The result of a run of fio.

    Args:
        text: stdout (or the file given with ``--output``); lines before and after the document are kept.
        stderr: where fio names its reasons when there is no document.

    Returns:
        ``version``; ``read`` and ``write``, each a measurement or ``None`` when nothing was read or written;
        ``errors``: the distinct errors of jobs as ``{"job", "errno", "message"}``; ``messages``: lines beside the
        document; ``jobs``: how many job entries there were.
        A measurement has ``iops``, ``bw_bytes`` (bytes a second), ``io_bytes``, ``total_ios``, ``runtime_ms`` and ``clat_ns``
        (``min``, ``mean``, ``max``, ``stddev``, ``percentiles``: {"50": ns}), or ``None`` for a latency that was not measured.

    Raises:
        FioError: there is no document, or it is none of fio's.
    """
    decoded = _decode(text).lstrip("\ufeff")
    document, messages = _cut_out(decoded, _decode(stderr))
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or "fio version" not in document:
        raise FioError(
            "expected fio's JSON with its version and jobs, and found keys: {}".format(", ".join(sorted(document)))
        )
    entries = [job for job in jobs if isinstance(job, dict)]
    return {
        "version": str(document["fio version"]),
        "jobs": len(entries),
        "read": _aggregate([_side(job, "read") for job in entries]),
        "write": _aggregate([_side(job, "write") for job in entries]),
        "errors": _errors(entries),
        "messages": messages + [line for line in _decode(stderr).splitlines() if line.strip()],
    }


def _decode(text: Any) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")


# Old builds print C's idea of "no number", which JSON does not have.
_NOT_A_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


def _cut_out(text: str, stderr: str) -> tuple[Document, List[str]]:
    """The document, and the lines around it (notes, errors of threads, the normal report)."""
    start = re.search(r"^\{\s*$", text, re.MULTILINE) or re.search(r"\{", text)
    if start is None:
        raise FioError(_no_document(text, stderr))
    body = _NOT_A_NUMBER.sub(r"\1null", text[start.start() :])
    try:
        document, end = json.JSONDecoder().raw_decode(body)
    except ValueError as error:
        raise FioError(f"fio's JSON cannot be read, it may be cut off: {error}") from error
    if not isinstance(document, dict):
        raise FioError("expected an object in fio's JSON")
    around = text[: start.start()] + "\n" + body[end:]
    return document, [line.strip() for line in around.splitlines() if line.strip()]


def _no_document(text: str, stderr: str) -> str:
    said = [line.strip() for line in (stderr + "\n" + text).splitlines() if line.strip()]
    telling = [
        line
        for line in said
        if re.search(r"fio: |error|fail|verify|not loadable|unrecognized|unable", line, re.IGNORECASE)
    ]
    if not said:
        return "fio printed nothing where its JSON was expected"
    return "fio gave no result: {}".format("; ".join((telling or said)[:3])[:400])


def _number(value: Any) -> float:
    """A number of fio's, which gives some as text."""
    if isinstance(value, bool) or value is None:
        return 0.0
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _side(job: Mapping[str, Any], direction: str) -> Optional[Measurement]:
    """One direction of one job; ``None`` when it moved nothing."""
    raw = job.get(direction)
    if not isinstance(raw, dict):
        return None
    modern = "bw_bytes" in raw or "clat_ns" in raw
    kibibyte = 1 if modern else 1024
    io_bytes = int(_number(raw.get("io_bytes")) * kibibyte)
    total_ios = int(_number(raw.get("total_ios")))
    if not io_bytes and not total_ios:
        return None
    bandwidth = _number(raw["bw_bytes"]) if "bw_bytes" in raw else _number(raw.get("bw")) * 1024
    return {
        "iops": _number(raw.get("iops")),
        "bw_bytes": bandwidth,
        "io_bytes": io_bytes,
        "total_ios": total_ios,
        "runtime_ms": _number(raw.get("runtime")),
        "clat_ns": _latency(raw.get("clat_ns"), 1) or _latency(raw.get("clat"), 1000) or _latency(raw.get("lat_ns"), 1),
    }


def _latency(raw: Any, to_ns: int) -> Optional[Dict[str, Any]]:
    if not isinstance(raw, dict) or not _number(raw.get("max")):
        return None
    percentiles = raw.get("percentile")
    found = {
        f"{float(key):g}": _number(value) * to_ns
        for key, value in (percentiles.items() if isinstance(percentiles, dict) else ())
        # 2.x fills its list up with zeros under "0.00".
        if re.match(r"^\d+(\.\d+)?$", key) and float(key) > 0
    }
    result: Dict[str, Any] = {name: _number(raw.get(name)) * to_ns for name in ("min", "mean", "max", "stddev")}
    result["percentiles"] = found
    return result


def _aggregate(sides: List[Optional[Measurement]]) -> Optional[Measurement]:
    """Jobs that ran together: rates add up. Percentiles cannot be merged, so the worst job speaks for all."""
    moved = [side for side in sides if side is not None]
    if not moved:
        return None
    return {
        "iops": round(sum(side["iops"] for side in moved), 2),
        "bw_bytes": int(sum(side["bw_bytes"] for side in moved)),
        "io_bytes": sum(side["io_bytes"] for side in moved),
        "total_ios": sum(side["total_ios"] for side in moved),
        "runtime_ms": max(side["runtime_ms"] for side in moved),
        "clat_ns": _worst_latency(moved),
    }


def _worst_latency(moved: List[Measurement]) -> Optional[Dict[str, Any]]:
    measured = [side for side in moved if side["clat_ns"]]
    if not measured:
        return None
    latencies = [side["clat_ns"] for side in measured]
    weights = [side["total_ios"] or 1 for side in measured]
    keys = sorted({key for latency in latencies for key in latency["percentiles"]}, key=float)
    mean = sum(latency["mean"] * weight for latency, weight in zip(latencies, weights)) / sum(weights)
    return {
        "min": min(latency["min"] for latency in latencies),
        "mean": round(mean, 1),
        "max": max(latency["max"] for latency in latencies),
        "stddev": max(latency["stddev"] for latency in latencies),
        "percentiles": {key: max(latency["percentiles"].get(key, 0.0) for latency in latencies) for key in keys},
    }


def _errors(jobs: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    found: Dict[int, Dict[str, Any]] = {}
    for job in jobs:
        number = int(_number(job.get("error")))
        if number and number not in found:
            found[number] = {"job": str(job.get("jobname")), "errno": number, "message": os.strerror(number)}
    return list(found.values())


# --------------------------------------------------------------------------------------------------------------------
# Judging
# --------------------------------------------------------------------------------------------------------------------

MB = 1_000_000

# What a disk of its class delivers at the least when it is healthy and attached as it should be: low on purpose, since
# drives of one family differ by a factor of three. Own values, after the spread that OCI publishes for its NVMe drives.
# "nominal" is what the class promises for sequential reads: SATA SSD 500, NVMe 3,500, PCIe 4 NVMe 7,000 MB/s.
CLASSES: Dict[str, Dict[str, float]] = {
    "hdd": {"seqread": 100 * MB, "seqwrite": 80 * MB},
    "ssd": {"seqread": 400 * MB, "randread": 50_000, "seqwrite": 300 * MB, "nominal": 500 * MB},
    "nvme": {"seqread": 2_500 * MB, "randread": 300_000, "seqwrite": 1_000 * MB, "nominal": 3_500 * MB},
    "nvme3": {"seqread": 2_500 * MB, "randread": 300_000, "seqwrite": 1_000 * MB, "nominal": 3_500 * MB},
    "nvme4": {"seqread": 5_000 * MB, "randread": 500_000, "seqwrite": 2_000 * MB, "nominal": 7_000 * MB},
    "nvme5": {"seqread": 10_000 * MB, "randread": 1_000_000, "seqwrite": 4_000 * MB},
    "md": {},
    "network": {},
    "virtual": {},
    "memory": {},
}

# Below this share of the wanted time the run was cut short, whatever its exit status says.
RUNTIME_SHARE = 0.9

OUTCOMES: Dict[int, Dict[str, str]] = {
    5: {
        "status": "fail",
        "action": "check_hardware",
        "reason": "the disk answered with an input/output error",
        "remedy": "read the kernel log and the drive's SMART data; save what is on it and replace it",
    },
    13: {
        "status": "incomplete",
        "action": "configure",
        "reason": "the test file may not be written",
        "remedy": "run with become, or give a directory that this user may write",
    },
    22: {
        "status": "incomplete",
        "action": "configure",
        "reason": "the file system refuses the way fio asks",
        "remedy": "give a directory on a local file system",
    },
    28: {
        "status": "incomplete",
        "action": "configure",
        "reason": "the file system is full",
        "remedy": "free space, or give a smaller size",
    },
    30: {
        "status": "fail",
        "action": "check_hardware",
        "reason": "the file system is read-only",
        "remedy": "read the kernel log: a file system turns read-only after errors of its disk",
    },
}


def expected_of(part: str, disk_class: Optional[str], floor: Optional[float] = None) -> Dict[str, float]:
    """What a measurement is held against: ``floor`` (wished, else of the class) and ``nominal`` of the class."""
    limits = CLASSES.get(disk_class or "", {})
    own = floor if floor is not None else limits.get(part)
    result = {} if own is None else {"floor": own}
    if part == "seqread" and "nominal" in limits:
        result["nominal"] = limits["nominal"]
    return result


def judge(
    part: str,
    document: Document,
    disk_class: Optional[str],
    wanted_seconds: Optional[float] = None,
    floor: Optional[float] = None,
    buffered: bool = False,
) -> List[checks.Check]:
    """The check ``fio.<part>``, and ``fio.latency`` for random parts.

    A faster disk is never a fault. A missed floor is a warning; an error of the disk is a failure.

    Args:
        part: seqread, randread, randread_128k or seqwrite.
        document: of :func:`parse`.
        disk_class: a key of :data:`CLASSES`; ``None`` when it is not known.
        wanted_seconds: the run time that was asked for, ``None`` when the size ends the run.
        floor: bytes a second, for random parts operations a second, that the inventory wants instead of the class's.
        buffered: the page cache was measured, not the disk.
    """
    check_id = "fio." + part
    unusable = _unusable(check_id, part, document, wanted_seconds)
    if unusable is not None:
        return [unusable]
    side: Measurement = document["write" if part == "seqwrite" else "read"]
    random = part.startswith("randread")
    measured = side["iops"] if random else side["bw_bytes"]
    expected = expected_of(part, disk_class, floor)
    rest: Dict[str, Any] = {
        "unit": "IOPS" if random else "MB/s",
        "measured": _shown(measured, random),
        "expected": {key: _shown(value, random) for key, value in expected.items()} or None,
    }
    return [_judge_floor(check_id, measured, expected.get("floor"), disk_class, buffered, rest)]


def _shown(value: float, random: bool) -> float:
    return round(value) if random else round(value / MB, 1)


def _judge_floor(
    check_id: str,
    measured: float,
    floor: Optional[float],
    disk_class: Optional[str],
    buffered: bool,
    rest: Dict[str, Any],
) -> checks.Check:
    if buffered:
        return checks.failed(
            check_id,
            "warning",
            reason="the page cache was measured, not the disk",
            action="configure",
            remedy="give a directory on a file system that supports direct input and output",
            **rest,
        )
    if floor is None:
        named = f"a disk of class {disk_class}" if disk_class else "a disk of unknown class"
        return checks.passed(check_id, "warning", reason=f"measured; {named} has no floor here", **rest)
    return checks.judged(
        check_id,
        measured >= floor,
        "warning",
        reason=None if measured >= floor else "slower than a healthy disk of class {}".format(disk_class or "given"),
        action="check_hardware",
        remedy="look whether something else used the disk; check its link (speed and lanes), its temperature, its SMART data, "
        "and in a virtual machine the limits of its volume",
        **rest,
    )


def _unusable(check_id: str, part: str, document: Document, wanted_seconds: Optional[float]) -> Optional[checks.Check]:
    """Why the numbers say nothing: an error of a job, no input or output, or a run that was cut short."""
    evidence = "; ".join(document["messages"]) or None
    for error in document["errors"]:
        known = OUTCOMES.get(
            error["errno"],
            {
                "status": "incomplete",
                "action": "none",
                "reason": "fio failed: " + error["message"],
                "remedy": "run fio by hand with the command that is shown",
            },
        )
        return checks.make(
            check_id,
            known["status"],
            reason=known["reason"],
            action=known["action"],
            remedy=known["remedy"],
            measured=error["message"],
            evidence=evidence,
        )
    side = document["write" if part == "seqwrite" else "read"]
    again = "run it again; look for what ended fio (a time limit, the out-of-memory killer, a lost connection)"
    if side is None or not side["io_bytes"]:
        return checks.incomplete(check_id, "fio moved no data", "warning", evidence=evidence, remedy=again)
    ran = side["runtime_ms"] / 1000.0
    if wanted_seconds and ran < RUNTIME_SHARE * wanted_seconds:
        reason = f"fio was ended after {ran:.1f} of {wanted_seconds:g} seconds"
        return checks.incomplete(
            check_id,
            reason,
            "warning",
            evidence=evidence,
            remedy=again,
            measured=round(ran, 1),
            expected=wanted_seconds,
            unit="s",
        )
    return None
