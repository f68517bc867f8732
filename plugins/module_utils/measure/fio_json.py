# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read fio's JSON, 2.x and 3.x, and judge it against what the disk has to deliver.

fio 2.x counts latency in microseconds and bytes in KiB, 3.x in nanoseconds and bytes; the keys decide, not the version
text (``fio-3.36-103-gb140f-dirty`` is one). fio's exit status alone is no judgement: an interrupted run ends with error 0
in every job, and a write test without enough space may end with 0 too. So errors, counts, run times and what fio says
beside its document are read too, and a figure that cannot be right makes the whole result unreadable.

Pure functions: nothing is executed here.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import (
    TYPE_CHECKING,
    Dict,
    List,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    Union,
    cast,
)

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_floors

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Latency(TypedDict):
    """Latency of one direction, in nanoseconds; ``percentiles`` by their number."""

    min: float
    mean: float
    max: float
    stddev: float
    percentiles: Dict[str, float]


class Measurement(TypedDict):
    """What one direction moved; see :func:`parse`."""

    iops: float
    bw_bytes: float
    io_bytes: float
    total_ios: float
    runtime_ms: float
    clat_ns: Latency


class JobError(TypedDict):
    """Error of a job; ``errno`` is None for one that is no number."""

    job: str
    errno: Optional[int]
    message: str


class Document(TypedDict):
    """Result of a run of fio; see :func:`parse`."""

    version: str
    jobs: int
    read: Optional[Measurement]
    write: Optional[Measurement]
    errors: List[JobError]
    messages: List[str]
    ended: Optional[str]


#: An object of fio's JSON, before it was looked at.
Raw = Mapping[str, object]

#: Characters that are read. A result of ours has 10,000, one with every bin of its latencies (``json+``) 500,000.
MOST_CHARACTERS = 2 * 1024**2
#: No figure of a disk is beyond it, in bytes, operations, milliseconds or nanoseconds.
MOST = 1e15
#: No disk, and no memory, moves more bytes a second.
MOST_A_SECOND = 1e12
#: Figures of one run may differ by this factor: versions of fio round, and count the time of the first and the last request differently.
TOLERANCE = 2.0
#: Bytes that a request moves at the least: a sector has 512.
LEAST_OF_A_REQUEST = 256

#: What fio says beside its document when the document is not the whole truth, and what that means.
_TELLING_LINES = (
    (re.compile(r"got signal=(\d+)"), "a worker of fio was killed by signal {0}"),
    (re.compile(r"terminating on signal (\d+)"), "fio was ended by signal {0}"),
    (re.compile(r"hung in \d+ seconds|appears to be stuck"), "a worker of fio hung"),
)
# "fio: pid=2321, err=5/file:io_u.c:1889, func=io_u error, error=Input/output error"
_ERROR_LINE = re.compile(r"fio: pid=\d+, err=(-?\d{1,19})/")
# "fio: io_u error on file ./t.0.0: Input/output error: read offset=4096, buflen=4096"
_REQUEST_LINE = re.compile(r"fio: io_u error(?: on file [^:]{0,400})?: (.{0,200})")


class FioError(Exception):
    """What fio printed is no result; the text is a sentence for a person."""


def parse(text: object, stderr: object = "", rc: Optional[int] = 0) -> Document:
    """The result of a run of fio.

    Args:
        text: stdout (or the file given with ``--output``); lines before and after the document are kept.
        stderr: where fio names its reasons when there is no document.
        rc: fio's exit status, below 0 when a signal ended it.

    Returns:
        ``version``; ``read`` and ``write``, each a measurement or ``None`` when nothing was read or written;
        ``errors``: the distinct errors of jobs as ``{"job", "errno", "message"}``, ``errno`` ``None`` for one that is no
        number; ``messages``: lines beside the document; ``jobs``: how many job entries there were; ``ended``: a sentence
        when fio or a worker of it did not end by itself, else ``None``.
        Beside errors nothing counts as measured.
        A measurement has ``iops``, ``bw_bytes`` (bytes a second), ``io_bytes``, ``total_ios``, ``runtime_ms`` and ``clat_ns``
        (``min``, ``mean``, ``max``, ``stddev``, ``percentiles``: {"50": ns}).

    Raises:
        FioError: there is no document, it is none of fio's, or a figure in it cannot be right.
    """
    decoded, said = _decode(text).lstrip("\ufeff"), _decode(stderr)
    document, messages = _cut_out(decoded, said, rc)
    jobs, version = document.get("jobs"), document.get("fio version")
    if not isinstance(jobs, list) or not isinstance(version, str):
        raise FioError(
            "expected fio's JSON with its version and jobs, and found keys: {}".format(
                ", ".join(sorted(document))[:400]
            )
        )
    if not all(isinstance(job, dict) for job in jobs):
        raise FioError("expected an object for each job in fio's JSON")
    messages += [line for line in said.splitlines() if line.strip()]
    common = document.get("global options")
    errors = _errors(jobs, messages)
    # What stands beside an error is not whole, and is not used.
    sides = {
        name: [] if errors else [_side(job, name, _request(common, job)) for job in jobs]
        for name in ("read", "write", "trim")
    }
    return {
        "version": version[:100],
        "jobs": len(jobs),
        "read": _aggregate(sides["read"]),
        "write": _aggregate(sides["write"]),
        "errors": errors,
        "messages": messages,
        "ended": _ended(messages, rc),
    }


def _decode(text: object) -> str:
    """At most one character more than is read; what is beyond says nothing but that it is too much."""
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")
    return decoded[: MOST_CHARACTERS + 1]


# Old builds print C's idea of "no number", which JSON does not have.
_NOT_A_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


def _cut_out(text: str, stderr: str, rc: Optional[int]) -> tuple[Raw, List[str]]:
    """The document, and the lines around it (notes, errors of threads, the normal report)."""
    if max(len(text), len(stderr)) > MOST_CHARACTERS:
        raise FioError(f"fio printed more than {MOST_CHARACTERS} characters, which is no result of ours")
    start = re.search(r"^\{\s*$", text, re.MULTILINE) or re.search(r"\{", text)
    if start is None:
        raise FioError(_no_document(text, stderr, rc))
    body = _NOT_A_NUMBER.sub(r"\1null", text[start.start() :])
    try:
        document, end = _DECODER.raw_decode(body)
    except RecursionError:
        raise FioError("fio's JSON has more values within each other than fio writes") from None
    except ValueError as error:
        killed = _killed(rc)
        why = f"{killed}, and its JSON is cut off" if killed else "fio's JSON cannot be read, it may be cut off"
        raise FioError(f"{why}: {error}") from error
    if not isinstance(document, dict):
        raise FioError("expected an object in fio's JSON")
    around = text[: start.start()] + "\n" + body[end:]
    if _ANOTHER.search(around) or _ANOTHER.search(stderr):
        raise FioError("fio gave more than one document, or a part of one, where one was expected")
    return document, [line.strip() for line in around.splitlines() if line.strip()]


def _whole(digits: str) -> float:
    """A whole number; one with more digits than any figure has costs no more than its length and is judged as infinite or huge."""
    return int(digits) if len(digits) < 20 else float(digits)


# What is judged, by its name. Others may stand twice: fio writes an option as often as it was given.
_OF_A_JOB = ("fio version", "jobs", "job options", "error", "first_error", "total_err", "read", "write", "trim")
_OF_A_DIRECTION = (
    "io_bytes",
    "runtime",
    "iops",
    "bw",
    "bw_bytes",
    "total_ios",
    "clat",
    "clat_ns",
    "min",
    "mean",
    "max",
)
_JUDGED = frozenset((*_OF_A_JOB, *_OF_A_DIRECTION))


def _once(pairs: List[Tuple[str, object]]) -> Raw:
    """An object. Raises FioError where something that is judged stands there twice with different values."""
    made = dict(pairs)
    if len(made) < len(pairs):
        for key, value in pairs:
            if key in _JUDGED and made[key] != value:
                raise FioError(f"fio's JSON says two different things of {key}")
    return made


_DECODER = json.JSONDecoder(parse_int=_whole, parse_constant=lambda _name: None, object_pairs_hook=_once)
# What stands only in a document; lines beside it are sentences.
_ANOTHER = re.compile(r"^[ \t]*\{|\"(?:fio version|jobs|error)\"\s*:", re.MULTILINE)


def _no_document(text: str, stderr: str, rc: Optional[int]) -> str:
    said = [line.strip() for line in (stderr + "\n" + text).splitlines() if line.strip()]
    telling = [
        line
        for line in said
        if re.search(r"fio: |error|fail|verify|not loadable|unrecognized|unable", line, re.IGNORECASE)
    ]
    killed = _killed(rc)
    if killed:
        return "{}{}".format(killed, "".join("; " + line for line in telling[:3])[:400])
    if not said:
        return "fio printed nothing where its JSON was expected"
    return "fio gave no result: {}".format("; ".join((telling or said)[:3])[:400])


def _killed(rc: Optional[int]) -> Optional[str]:
    """The sentence for an exit status that a signal left, by itself (-9) or by way of a shell (137)."""
    number = -rc if rc is not None and rc < 0 else (rc or 0) - 128
    return f"fio was killed by signal {number}" if 0 < number <= 64 else None


def _ended(messages: Sequence[str], rc: Optional[int]) -> Optional[str]:
    """Why the figures are not those of a whole run, though there is a document; ``None`` where nothing says so."""
    for pattern, sentence in _TELLING_LINES:
        for line in messages:
            found = pattern.search(line)
            if found:
                return sentence.format(*found.groups())
    if rc == 0:
        return None
    return _killed(rc) or ("fio did not end by itself" if rc is None else f"fio ended with exit status {rc}")


def _figure(raw: Raw, name: str, where: str, required: bool = True) -> float:
    """A figure of a disk: a number from 0 to :data:`MOST`, which some versions give as text. 0.0 for one that may be absent and is.

    Raises:
        FioError: it is none.
    """
    value = raw.get(name)
    if value is None and not required:
        return 0.0
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= MOST:
        found = "is missing" if value is None else "is " + _told(value)
        raise FioError(f"a figure of fio cannot be right: {where}.{name} {found}, where a number from 0 was expected")
    return number


def _told(value: object) -> str:
    """A value that is not what it should be, for a person."""
    return "a list or an object" if isinstance(value, (list, dict)) else repr(value)[:60]


_SIZE = re.compile(r"^(\d{1,12})([kmg]?)(?:i?b)?$", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def _request(common: object, job: Raw) -> Optional[int]:
    """The bytes of a request, where the job has one size for all and the document names it."""
    options: Dict[str, object] = {}
    for each in (common, job.get("job options")):
        options.update(each if isinstance(each, dict) else {})
    size = _SIZE.match(str(options.get("bs", options.get("blocksize", ""))))
    if size is None or not {"bsrange", "blocksize_range", "bssplit"}.isdisjoint(options):
        return None
    return int(size.group(1)) * _UNITS[size.group(2).lower()] or None


def _refuse_negative(raw: Raw, direction: str) -> None:
    """Raises FioError for a number below 0 anywhere in a direction of a job: fio measures nothing that could be."""
    left: List[Tuple[str, object]] = [(direction, raw)]
    while left:
        where, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{where}.{key}"[:100], each) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(where, each) for each in value]
        elif (isinstance(value, (int, float)) and value < 0) or (
            isinstance(value, str) and re.match(r"-\s*[\d.]", value.strip())
        ):
            raise FioError(
                f"a figure of fio cannot be right: {where} is {_told(value)}, where a number from 0 was expected"
            )


def _refuse_contradictions(raw: Raw, side: Measurement, direction: str, request: Optional[int]) -> None:
    """Raises FioError where the figures of one direction cannot all be right: fio makes its rates of what it counts.

    The run time is whole milliseconds, and old versions round rates down to whole KiB and whole operations.
    """
    shortest, longest = max(side["runtime_ms"] - 1, 0.5) / 1000.0, (side["runtime_ms"] + 1) / 1000.0
    rate, iops = side["bw_bytes"], side["iops"]
    # Each a figure, how much less than the truth it may say, and the least and the most that the others make of it.
    pairs = [("the bytes a second", rate, 1024, side["io_bytes"] / longest, side["io_bytes"] / shortest)]
    if side["total_ios"]:
        pairs.append(("the operations a second", iops, 1, side["total_ios"] / longest, side["total_ios"] / shortest))
    if raw.get("bw") is not None:
        kibibytes = _figure(raw, "bw", direction)
        pairs.append(("the KiB a second", kibibytes, 1, rate / 1024, rate / 1024))
    if request:
        pairs.append(("the bytes a second", rate, 1024, iops * request, (iops + 1) * request))
    for name, told, rounded, least, most in pairs:
        if told + rounded < least / TOLERANCE or told > most * TOLERANCE:
            raise FioError(
                f"the figures of fio contradict each other: {direction} has {told:g} as {name}, and by the others they are {least:g}"
            )
    if rate > MOST_A_SECOND or rate + 1024 < iops * LEAST_OF_A_REQUEST:
        raise FioError(
            f"the figures of fio cannot be right: {direction} has {rate:g} bytes in {iops:g} operations a second, and no disk does so"
        )


def _side(job: Raw, direction: str, request: Optional[int] = None) -> Optional[Measurement]:
    """One direction of one job; ``None`` when it moved nothing. ``request`` are the bytes of each request, where they are known.

    Raises:
        FioError: a figure cannot be right, or one without which the others say nothing is missing.
    """
    raw = job.get(direction)
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise FioError(f"expected an object for {direction} in fio's JSON")
    _refuse_negative(raw, direction)
    modern = "bw_bytes" in raw or "clat_ns" in raw
    kibibyte = 1 if modern else 1024
    rate = "bw_bytes" if "bw_bytes" in raw else "bw"
    # fio 2.1 does not count the operations.
    counted = {name: _figure(raw, name, direction) for name in ("io_bytes", "runtime", "iops", rate)}
    counted["total_ios"] = _figure(raw, "total_ios", direction, required=modern)
    if not any(counted.values()):
        return None
    idle = [name for name, value in counted.items() if not value and name in raw]
    if idle:
        moved = ", ".join(name for name, value in counted.items() if value)
        raise FioError(f"the figures of fio contradict each other: {direction} has {moved}, and its {idle[0]} is 0")
    side: Measurement = {
        "iops": counted["iops"],
        "bw_bytes": counted[rate] * (1 if rate == "bw_bytes" else 1024),
        "io_bytes": int(counted["io_bytes"] * kibibyte),
        "total_ios": int(counted["total_ios"]),
        "runtime_ms": counted["runtime"],
        "clat_ns": _latency(raw, "clat_ns", direction, 1) if modern else _latency(raw, "clat", direction, 1000),
    }
    _refuse_contradictions(raw, side, direction, request)
    return side


def _latency(side: Raw, name: str, direction: str, to_ns: int) -> Latency:
    """The latency of a direction that moved data. Raises FioError."""
    raw, where = side.get(name), f"{direction}.{name}"
    percentiles = raw.get("percentile", {}) if isinstance(raw, dict) else None
    # fio takes a list of at most twenty.
    if not isinstance(raw, dict) or not isinstance(percentiles, dict) or len(percentiles) > 100:
        raise FioError(f"expected an object for {where} and its percentiles in fio's JSON")
    least, mean, most = (_figure(raw, each, where) for each in ("min", "mean", "max"))
    # The mean is a sum of rounded numbers.
    if not most or not least <= mean * 1.001 or not mean <= most * 1.001:
        raise FioError(f"the figures of fio contradict each other: {where} has {least:g}, {mean:g} and {most:g}")
    return {
        "min": least * to_ns,
        "mean": mean * to_ns,
        "max": most * to_ns,
        "stddev": _figure(raw, "stddev", where, required=False) * to_ns,
        "percentiles": {
            f"{float(key):g}": _figure(percentiles, key, where + ".percentile") * to_ns
            for key in percentiles
            # 2.x fills its list up with zeros under "0.00".
            if re.match(r"^\d{1,3}(\.\d{1,9})?$", key) and float(key) > 0
        },
    }


def _aggregate(sides: List[Optional[Measurement]]) -> Optional[Measurement]:
    """Jobs that ran together: rates add up. Percentiles cannot be merged, so the worst job speaks for all."""
    moved = [side for side in sides if side is not None]
    if not moved:
        return None
    rates = {
        "iops": sum(side["iops"] for side in moved),
        "bw_bytes": sum(side["bw_bytes"] for side in moved),
        "io_bytes": sum(side["io_bytes"] for side in moved),
        "total_ios": sum(side["total_ios"] for side in moved),
    }
    for name in rates:
        _figure(rates, name, "all jobs")
    return {
        "iops": round(rates["iops"], 2),
        "bw_bytes": int(rates["bw_bytes"]),
        "io_bytes": rates["io_bytes"],
        "total_ios": rates["total_ios"],
        "runtime_ms": max(side["runtime_ms"] for side in moved),
        "clat_ns": _worst_latency(moved),
    }


def _worst_latency(moved: List[Measurement]) -> Latency:
    latencies = [side["clat_ns"] for side in moved]
    weights = [side["total_ios"] or 1 for side in moved]
    keys = sorted({key for latency in latencies for key in latency["percentiles"]}, key=float)
    mean = sum(latency["mean"] * weight for latency, weight in zip(latencies, weights)) / sum(weights)
    return {
        "min": min(latency["min"] for latency in latencies),
        "mean": round(mean, 1),
        "max": max(latency["max"] for latency in latencies),
        "stddev": max(latency["stddev"] for latency in latencies),
        "percentiles": {key: max(latency["percentiles"].get(key, 0.0) for latency in latencies) for key in keys},
    }


def _errors(jobs: Sequence[Raw], messages: Sequence[str]) -> List[JobError]:
    """The distinct errors, of the jobs and of what fio said beside them. One that is no number is an error too."""
    told: List[JobError] = []
    for job in jobs:
        name = _told(job.get("jobname"))
        # With continue_on_error the first error stands beside an "error" of 0.
        numbered = [_error(name, job.get("error")), _error(name, job.get("first_error", 0))]
        total = _error(name, job.get("total_err", 0))
        if total["errno"] != 0 and all(error["errno"] == 0 for error in numbered):
            message = f"fio counted {_told(job['total_err'])} errors and gives none of them a number"
            numbered.append({"job": name, "errno": None, "message": message})
        told += numbered
    for line in messages:
        found = _ERROR_LINE.search(line)
        if found:
            told.append(_error("", int(found.group(1))))
        request = _REQUEST_LINE.search(line)
        if request:
            words = request.group(1)
            known = [number for number in OUTCOMES if number > 0 and words.startswith(os.strerror(number))]
            told.append(_error("", known[0] if known else words))
    distinct: Dict[Optional[int], JobError] = {}
    for error in told:
        if error["errno"] != 0:
            distinct.setdefault(error["errno"], error)
    return list(distinct.values())


def _error(job: str, value: object) -> JobError:
    """One value of an error as :func:`parse` gives it; its ``errno`` is 0 where it says that there was none."""
    number = value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None
    if number is None:
        message = f"expected the number of an error and found {_told(value)}"
    else:
        message = os.strerror(number) if number >= 0 else f"error {number}"
    return {"job": job, "errno": number, "message": message}


# --------------------------------------------------------------------------------------------------------------------
# Judging
# --------------------------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """What is judged of a part: which side of it, which of its figures, and whose floor it is held against, None where it has none."""

    side: Literal["read", "write"]
    what: Literal["bw_bytes", "iops"]
    floor: Optional[Literal["seqread", "randread", "seqwrite"]]


FIGURES: Dict[str, Figure] = {
    "seqread": Figure("read", "bw_bytes", "seqread"),
    "randread": Figure("read", "iops", "randread"),
    "seqwrite": Figure("write", "bw_bytes", "seqwrite"),
    "shards": Figure("read", "bw_bytes", None),
    "checkpoint_write": Figure("write", "bw_bytes", "seqwrite"),
    "checkpoint_read": Figure("read", "bw_bytes", "seqread"),
}

# Below this share of the wanted time the run was cut short, whatever its exit status says.
RUNTIME_SHARE = 0.9

OUTCOMES: Dict[int, Dict[str, str]] = {
    # What the set-up of an I/O engine returned, where it is no error of the system's.
    -1: {
        "status": "incomplete",
        "action": "configure",
        "reason": "fio could not set up its I/O engine",
        "remedy": "read what fio says of it; a container's seccomp profile or kernel.io_uring_disabled may forbid it",
    },
    5: {
        "status": "fail",
        "action": "check_hardware",
        "reason": "the disk answered with an input/output error",
        "remedy": "read the kernel log and the drive's SMART data; save what is on it and replace it",
    },
    11: {
        "status": "incomplete",
        "action": "configure",
        "reason": "the kernel has no room for more requests or processes of fio",
        "remedy": "raise fs.aio-max-nr (sysctl) where fs.aio-nr is near it, else the limit of processes (ulimit -u, pids.max), "
        "and run it again",
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


def expected_of(part: str, limits: Mapping[str, float], floor: Optional[float] = None) -> Dict[str, float]:
    """What a measurement is held against: ``floor`` (wished, else of the disk) and ``nominal`` of the disk."""
    own = floor if floor is not None else limits.get(FIGURES[part].floor or "")
    result = {} if own is None else {"floor": own}
    if part == "seqread" and "nominal" in limits:
        result["nominal"] = limits["nominal"]
    return result


def side_of(part: str, document: Document) -> Optional[Measurement]:
    """The direction of a document that a part is about."""
    return document[FIGURES[part].side]


def judge(
    part: str,
    document: Document,
    disk: Union[str, disk_floors.Limits, None],
    wanted_seconds: Optional[float] = None,
    floor: Optional[float] = None,
    buffered: bool = False,
    passed_over: Sequence[str] = (),
) -> List[Check]:
    """The check ``fio.<part>``.

    A faster disk is never a fault. A missed floor is a warning; an error of the disk is a failure.

    Args:
        part: a key of :data:`FIGURES`.
        document: of :func:`parse`.
        disk: what the disk has to deliver, or its class; ``None`` when that is not known.
        wanted_seconds: the run time that was asked for, ``None`` when the size ends the run.
        floor: bytes or operations a second, as the part is judged, that the inventory wants instead of the disk's.
        buffered: the page cache was measured, not the disk.
        passed_over: the faster I/O engines that could not be used, each with its reason.
    """
    check_id = "fio." + part
    unusable = _unusable(check_id, part, document, wanted_seconds)
    if unusable is not None:
        return [unusable]
    limits = disk if isinstance(disk, disk_floors.Limits) else disk_floors.of_class(disk)
    side = cast("Measurement", side_of(part, document))
    measured, unit = side[FIGURES[part].what], "IOPS" if FIGURES[part].what == "iops" else "MB/s"
    expected = expected_of(part, limits.limits, floor)
    rest: checks.Rest = {
        "unit": unit,
        "measured": _shown(measured, unit),
        "expected": {key: _shown(value, unit) for key, value in expected.items()} or None,
    }
    if passed_over:
        rest["evidence"] = "not used: " + "; ".join(passed_over)
    return [_judge_floor(check_id, measured, expected.get("floor"), limits.words, buffered, rest)]


def _shown(value: float, unit: str) -> float:
    return round(value) if unit == "IOPS" else round(value / disk_floors.MB, 1)


def _judge_floor(
    check_id: str,
    measured: float,
    floor: Optional[float],
    disk: str,
    buffered: bool,
    rest: checks.Rest,
) -> Check:
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
        return checks.passed(check_id, "warning", reason=f"measured; {disk} has no floor here", **rest)
    if measured < floor and "evidence" in rest:
        return checks.failed(
            check_id,
            "warning",
            reason="measured with a slower I/O engine than the floor is for",
            action="configure",
            remedy="make the engine usable (see what it said; for want of room raise fs.aio-max-nr), then measure again",
            **rest,
        )
    return checks.judged(
        check_id,
        measured >= floor,
        "warning",
        reason=None if measured >= floor else f"slower than a healthy one is: {disk}",
        action="check_hardware",
        remedy="look whether something else used the disk; check its link (speed and lanes), its temperature, its SMART data, "
        "and in a virtual machine the limits of its volume",
        **rest,
    )


def _unusable(check_id: str, part: str, document: Document, wanted_seconds: Optional[float]) -> Optional[Check]:
    """Why the numbers say nothing: an error of a job, no input or output, or a run that was cut short."""
    evidence = "; ".join(document["messages"]) or None
    for error in document["errors"]:
        known = OUTCOMES.get(
            error["errno"] or 0,
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
    side = side_of(part, document)
    again = "run it again; look for what ended fio (a time limit, the out-of-memory killer, a lost connection)"
    if document["ended"]:
        reason = f"{document['ended']}: its figures are not those of a whole run"
        return checks.incomplete(check_id, reason, "warning", evidence=evidence, remedy=again)
    if side is None:
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
