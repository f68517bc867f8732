# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run fio without harm: in a private directory that is always removed, within the space that is free, with a time limit.

fio itself guards nothing: a device as a file name is overwritten, a size of 999 GB is started on a small disk, files stay
behind after a signal. So the directory is made here and entered (fio is given ``.``, since it splits names at colons),
space is counted first, and whatever ends this program ends fio and removes the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import signal
import stat
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fio_json

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

MIB = 1024 * 1024
GIB = 1024 * MIB
FREE_SHARE = 0.10
"""This much of a file system stays free: what else runs on the host must not meet a full disk."""
SLOWEST_BYTES = 20 * MIB
"""Bytes a second with which the test files are written at the worst; sets the time limit."""
PREFIX = ".gpuwright-fio-"


class Refused(Exception):
    """The request is one that must not be carried out; the text is a sentence for a person."""


class Part(NamedTuple):
    """One run of fio. ``size`` is a job's, in bytes; ``None`` lets the free space decide.

    ``once``: the files are written or read one time, and ``runtime`` is only the end of it. ``synced``: what was written is on the disk
    before the clock stops.
    """

    name: str
    rw: str
    bs: str
    iodepth: int
    numjobs: int
    size: Optional[int]
    runtime: int
    ramp: int
    once: bool = False
    synced: bool = False


# The guides' line, word for word: --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4 --direct=1 --size=10G
# --runtime=60. The rest is reading and writing in order, several workers of a data loader that read shards of a data set, and a checkpoint
# that is written as MLPerf Storage has it (with fsync, github.com/mlcommons/storage Submission_guidelines.md 2.2.2) and read back.
_GUIDE = Part("randread", "randread", "4k", 32, 4, 10 * GIB, 60, 0)
_SEQREAD = Part("seqread", "read", "1M", 32, 4, None, 30, 5)
_SEQWRITE = Part("seqwrite", "write", "1M", 32, 1, None, 30, 5)
PROFILES: Dict[str, Tuple[Part, ...]] = {
    "guide-randread": (_GUIDE,),
    "randread": (_GUIDE,),
    "seqread": (_SEQREAD,),
    "seqwrite": (_SEQWRITE,),
    "sequential": (_SEQREAD, _SEQWRITE),
    "shards": (Part("shards", "randread", "128k", 16, 8, None, 30, 5),),
    "checkpoint": (
        Part("checkpoint_write", "write", "1M", 32, 1, None, 120, 0, once=True, synced=True),
        Part("checkpoint_read", "read", "1M", 32, 1, None, 120, 0, once=True),
    ),
    # For a proof within seconds: it catches a broken or wrongly attached disk and ranks nothing.
    "quick": (
        Part("seqread", "read", "1M", 32, 1, 256 * MIB, 3, 0),
        Part("randread", "randread", "4k", 32, 4, 64 * MIB, 3, 0),
    ),
}
ENGINES = ("libaio", "io_uring", "psync")


def parts_of(profile: str, **changes: Optional[int]) -> List[Part]:
    """The parts of a profile with the changes that are not ``None`` (size, runtime, numjobs, iodepth, ramp).

    Raises:
        Refused: there is no such profile.
    """
    if profile not in PROFILES:
        raise Refused("there is no fio profile {!r}; known: {}".format(profile, ", ".join(sorted(PROFILES))))
    wanted: Dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    return [part._replace(**wanted) for part in PROFILES[profile]]


def parse_size(text: str) -> int:
    """Bytes of ``10G``, ``256M``, ``4MiB`` or ``1048576``, counted as fio does, by 1,024.

    Raises:
        Refused: it is none, or less than 1 MiB.
    """
    match = re.match(r"^(\d+)\s*([kmgt]?)(?:i?b)?$", text.strip(), re.IGNORECASE)
    if match is None:
        raise Refused(f"{text!r} is no size; write one as 256M or 10G")
    size = int(match.group(1)) * 1024 ** " kmgt".index(match.group(2).lower() or " ")
    if size < MIB:
        raise Refused(f"a test file of {text!r} measures nothing; give 1M or more")
    return size


# --------------------------------------------------------------------------------------------------------------------
# Before anything is written
# --------------------------------------------------------------------------------------------------------------------


def safe_directory(path: str) -> str:
    """The real path of a directory in which a private one may be made.

    Raises:
        Refused: a device, anything below /dev, /proc or /sys, a link to one of these, or no directory.
    """
    if not path.startswith("/"):
        raise Refused(f"the directory must be an absolute path, and {path!r} is not")
    real = os.path.realpath(path)
    for named in (os.path.normpath(path), real):
        if any(named == root or named.startswith(root + "/") for root in ("/dev", "/proc", "/sys")):
            raise Refused(f"{path} is below /dev, /proc or /sys: fio is only ever given a directory on a file system")
    try:
        mode = os.stat(real).st_mode
    except OSError as error:
        raise Refused(f"the directory {path} cannot be used: {error.strerror}") from error
    if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        raise Refused(f"{path} is a device: fio would overwrite it. Give a directory on its file system")
    if not stat.S_ISDIR(mode):
        raise Refused(f"{path} is no directory")
    return real


def job_size(part: Part, free: int) -> int:
    """Bytes of one job's file: as asked for, else a tenth of what is free, between 1 GiB in all and 4 GiB a job."""
    if part.size is not None:
        return part.size
    floor = -(-GIB // part.numjobs)
    size = max(floor, min(4 * GIB, int(free * FREE_SHARE) // part.numjobs))
    return -(-size // MIB) * MIB


def judge_space(directory: str, parts: Sequence[Part]) -> Tuple[Optional[Check], List[Part]]:
    """The parts with their sizes, and a check that refuses when the files would leave less than a tenth free."""
    usage = os.statvfs(directory)
    free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
    sized = [part._replace(size=job_size(part, free)) for part in parts]
    # The parts run one after the other, each with files of its own that are removed before the next begins.
    need = max((part.size or 0) * part.numjobs for part in sized)
    keep = int(total * FREE_SHARE)
    if need + keep <= free:
        return None, sized
    gib = "{0:.1f} GiB".format
    return (
        checks.incomplete(
            "fio.space",
            f"the test needs {gib(need / GIB)} in {directory}, where {gib(free / GIB)} are free and {gib(keep / GIB)} stay reserved",
            "warning",
            measured=round(free / GIB, 2),
            expected=round((need + keep) / GIB, 2),
            unit="GiB",
            action="configure",
            remedy="free space, give a directory on another file system, or a smaller size (profile quick needs 256 MiB)",
        ),
        sized,
    )


def direct_works(directory: str) -> bool:
    """Whether one block can be read past the page cache here (O_DIRECT)."""
    path = os.path.join(directory, "probe")
    buffer = mmap.mmap(-1, 4096)
    try:
        with open(path, "wb") as stream:
            stream.write(b"\0" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            return os.preadv(descriptor, [buffer], 0) == 4096
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise
    finally:
        buffer.close()
        with contextlib.suppress(OSError):
            os.unlink(path)


def engines_of(listing: str) -> List[str]:
    """The engines to try, best first, of what ``fio --enghelp`` lists; psync is in every build."""
    known = set(listing.split())
    return [engine for engine in ENGINES if engine in known] or ["psync"]


def command(executable: str, part: Part, engine: str, direct: bool) -> List[str]:
    """The arguments of one run, to be started inside the private directory."""
    numjobs, iodepth = part.numjobs, part.iodepth
    if engine == "psync":
        # A synchronous engine has one request a job: more jobs stand in for the depth.
        numjobs, iodepth = min(numjobs * iodepth, 32), 1
    size = max((part.size or 0) * part.numjobs // numjobs, MIB)
    return [
        executable,
        "--name=" + part.name,
        "--directory=.",
        "--rw=" + part.rw,
        "--bs=" + part.bs,
        "--ioengine=" + engine,
        f"--iodepth={iodepth}",
        f"--numjobs={numjobs}",
        f"--direct={int(direct)}",
        f"--size={size}",
        f"--runtime={part.runtime}",
        f"--ramp_time={part.ramp}",
        *([] if part.once else ["--time_based"]),
        *(["--end_fsync=1"] if part.synced else []),
        "--group_reporting",
        "--unlink=1",
        "--eta=never",
        "--output-format=json",
    ]


def time_limit(part: Part) -> float:
    """Seconds after which fio hangs: its run, the writing of its files on a slow disk, and a minute of grace."""
    return part.runtime + part.ramp + (part.size or 0) * part.numjobs / SLOWEST_BYTES + 60


# --------------------------------------------------------------------------------------------------------------------
# Running
# --------------------------------------------------------------------------------------------------------------------


class Ended(BaseException):
    """A signal asked this program to end. Not an Exception, so that nothing on the way takes it for an error."""


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """Turn the signals that end a task into an exception, so that ``finally`` runs: fio ends and its files go."""

    def end(number: int, _frame: Any) -> None:
        raise Ended(f"ended by signal {number}")

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def private_directory(parent: str) -> Iterator[str]:
    """A directory of our own inside ``parent``, emptied and removed whatever happens.

    It is entered by an open descriptor: ``parent`` may be somebody's, who could put another directory, full of links, into its place.
    """
    path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_private(descriptor) or os.listdir(descriptor):
            raise OSError(errno.EPERM, "somebody put another directory into the place of ours", path)
        # Says for as long as this program lives that it is in use: see clear.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            for name in os.listdir(descriptor):
                os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(path)


def clear(parent: str) -> List[str]:
    """Remove what runs left in ``parent`` that were killed, gigabytes; return their directories. Those of others and those in use stay."""
    cleared = []
    for name in sorted(os.listdir(parent)):
        path = os.path.join(parent, name)
        if not name.startswith(PREFIX) or os.path.islink(path) or not os.path.isdir(path):
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            # Somebody else's, or it went meanwhile.
            continue
        try:
            if _is_private(descriptor) and _is_unused(descriptor) and _empty(descriptor):
                os.rmdir(path)
                cleared.append(path)
        finally:
            os.close(descriptor)
    return cleared


def _is_private(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_unused(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _empty(descriptor: int) -> bool:
    """Remove the files of a directory; whether there were some, and they were all. One without any may be about to be used."""
    names = os.listdir(descriptor)
    for name in names:
        with contextlib.suppress(IsADirectoryError, PermissionError):
            os.unlink(name, dir_fd=descriptor)
    return bool(names) and not os.listdir(descriptor)


def run_fio(argv: Sequence[str], directory: str, timeout: float) -> run.Result:
    """Run fio in ``directory``; it and its children end with this program, and at the time limit."""
    return run.run(argv, timeout, cwd=directory)


Runner = Callable[[Sequence[str], str, float], run.Result]


class Measured(TypedDict, total=False):
    """Run of one part, see :func:`measure`, with its numbers where it has some."""

    document: Optional[fio_json.Document]
    error: Optional[str]
    argv: List[str]
    engine: str
    direct: bool
    seconds: float
    rc: Optional[int]
    passed_over: List[str]
    version: str
    iops: float
    bw_bytes: float
    io_bytes: float
    total_ios: float
    runtime_ms: float
    clat_ns: fio_json.Latency
    meaning: Optional[str]


def measure(
    executable: str,
    directory: str,
    parts: Sequence[Part],
    engines: Sequence[str],
    timeout: Optional[float] = None,
    runner: Runner = run_fio,
) -> Iterator[Tuple[Part, Measured]]:
    """Run the parts one after the other, each in its own private directory.

    Yields:
        The part and ``{"document"|None, "error", "argv", "engine", "direct", "seconds", "rc", "passed_over"}``, the last one
        the engines that could not be used.
    """
    for part in parts:
        with private_directory(directory) as inside:
            direct = direct_works(inside)
            yield part, _first_that_works(executable, inside, part, engines, direct, timeout, runner)


def _first_that_works(
    executable: str,
    inside: str,
    part: Part,
    engines: Sequence[str],
    direct: bool,
    timeout: Optional[float],
    runner: Runner,
) -> Measured:
    """Try the engines in their order: one may be listed and still be forbidden here (seccomp, sysctl)."""
    result: Measured = {}
    passed_over: List[str] = []
    for engine in engines:
        argv = command(executable, part, engine, direct)
        outcome = runner(argv, inside, timeout or time_limit(part))
        result = _read(outcome)
        result.update(
            {"argv": argv, "engine": engine, "direct": direct, "seconds": round(outcome.seconds, 2), "rc": outcome.rc}
        )
        result["passed_over"] = list(passed_over)
        fault = _fault_of_engine(result)
        if fault is None:
            return result
        passed_over.append(f"{engine}: {fault}")
    return result


def _read(outcome: run.Result) -> Measured:
    if outcome.error:
        return {"document": None, "error": outcome.error}
    try:
        return {"document": fio_json.parse(outcome.out, outcome.err, outcome.rc), "error": None}
    except fio_json.FioError as error:
        return {"document": None, "error": str(error)}


# Not implemented, not permitted, no room, or what an engine's set-up returns without an error of the system's.
_OF_THE_ENGINE = (errno.ENOSYS, errno.EPERM, errno.ENOMEM, errno.EAGAIN, -1)


def _fault_of_engine(result: Measured) -> Optional[str]:
    """What the engine lacks where another one may do; ``None`` where the answer stands: an error of the disk is one."""
    document = result["document"]
    if document is None:
        text = str(result["error"])
        return text[:200] if "engine" in text.lower() and "killed" not in text.lower() else None
    return next((error["message"] for error in document["errors"] if error["errno"] in _OF_THE_ENGINE), None)
