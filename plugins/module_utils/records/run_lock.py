# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock of a node: of two runs that would change it, one at a time does.

It lies in /run and names its owner, a process on a controller. Who looks at it to change it has the guard beside it meanwhile, a lock of
the kernel's: what was looked at is still so when it is written. A lock lapses when nothing was heard of its run for long, by this node's
clock since its boot, which nobody sets, and never while a program of that run is at work here: such a program has a second lock of the
kernel's. Who had the node last is in a record that outlives a boot: a run whose lock a boot took along takes it again, where nobody was
here meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Iterator

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import sealing, seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import RunLock

#: Seconds without a word of a run, after which another may take its lock.
LEASE = 7200.0
_BOOT = "/proc/sys/kernel/random/boot_id"
_GUARD, _WORK = "lock.guard", "lock.work"


def take(host: Host, owner: str, takes_over: str | None = None, check: bool = False) -> bool:
    """Take the lock, or go on with it; whether it was (in check mode: would be) taken. ``takes_over``: an owner that is known to be dead.

    Raises SealError when another run has it, or a program of another run is still at work.
    """
    present = seals.read_lock(host)
    _refuse(host, present, owner, takes_over)  # also where nothing may be written
    _refuse_over(host, owner)
    if check:
        return not _is_of(present, owner)
    with _guarded(host) as directory:
        present = seals.read_lock(host)
        _refuse(host, present, owner, takes_over)
        _refuse_over(host, owner)
        if _is_of(present, owner):
            _write(host, owner, present)
            return False
        _refuse_work(directory)
        # Before the lock: a run that does not find its own any more reads here whether it may take it again.
        sealing.write_object(host, host.places.last, {"owner": owner}, 0o755)
        _write(host, owner)
    return True


def hold(host: Host, owner: str) -> None:
    """Say that the run goes on, before its next change; take the lock again where a boot took it along.

    Raises SealError when another run has taken this machine over meanwhile, also where it has ended since: what was planned is not known to
    be right any more.
    """
    with _guarded(host):
        _refuse_over(host, owner)
        present = seals.read_lock(host)
        had_it = present if present is not None else _last(host)
        had = had_it.get("owner") if had_it is not None else None
        if had != owner:
            raise seals.SealError(
                f"Expected this machine to be this run's ({told(owner)}) until its end. Found that {told(had)} has worked on it "
                "since. What to do: let that one end, then run again."
            )
        _write(host, owner, present)


@contextlib.contextmanager
def at_work(host: Host, owner: str | None) -> Iterator[None]:
    """Keep others from taking the lock over while the body runs, however long it lasts.

    ``owner``: of the run that it belongs to; None for none, which has no lock. Raises SealError as `hold` does.
    """
    if not owner:
        yield
        return
    with _guarded(host) as directory:
        descriptor = os.open(os.path.join(directory, _WORK), _FLAGS, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        hold(host, owner)
        yield
        with _guarded(host):
            present = seals.read_lock(host)
            if _is_of(present, owner):  # not where the run gave it back meanwhile, as at Ctrl-C
                _write(host, owner, present)
    finally:
        os.close(descriptor)


def release(host: Host, owner: str, check: bool = False) -> bool:
    """Give the lock back; whether it was held by this owner. Another's lock stays."""
    if not _is_of(seals.read_lock(host), owner):
        return False
    if check:
        return True
    with _guarded(host):
        return _is_of(seals.read_lock(host), owner) and bool(sealing.remove(host, [host.places.lock]))


def end(host: Host, owner: str, check: bool = False) -> bool:
    """Give the lock back for a run that is over: a task of it that is still on its way takes nothing here any more. As `release`."""
    lock = seals.read_lock(host)
    if not check and (lock is None or _is_of(lock, owner)):
        with _guarded(host):
            sealing.write_object(host, host.places.last, {"owner": owner, "over": True}, 0o755)
    return release(host, owner, check)


def is_living(host: Host, lock: RunLock | None) -> bool:
    """Whether a run is at work, or may be."""
    return lock is not None and not _has_lapsed(lock, host)


def runs(host: Host) -> tuple[str | None, seals.Record | None]:
    """Who has the lock, and who had it last: where two answers differ, a run began or ended between them."""
    try:
        lock = seals.read_lock(host)
    except seals.SealError:
        lock = None
    return lock.get("owner") if lock is not None else None, _last(host)


def told(owner: str | None) -> str:
    """An owner for people: who, on which controller, in which process."""
    return ":".join(owner.split(":")[:2]) if owner else "somebody unknown"


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def _guarded(host: Host) -> Iterator[str]:
    """The directory of the lock, of whose files one process at a time makes anything."""
    directory = sealing.make_directory(host, os.path.dirname(host.places.lock), 0o755)
    path = os.path.join(directory, _GUARD)
    while True:
        descriptor = os.open(path, _FLAGS, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(descriptor, path):
                continue  # everything was taken back meanwhile, the guard too
            yield directory
            return
        finally:
            os.close(descriptor)


def _is_still(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _is_of(lock: RunLock | None, owner: str) -> bool:
    return lock is not None and lock.get("owner") == owner


def _refuse(host: Host, lock: RunLock | None, owner: str, takes_over: str | None) -> None:
    if lock is None or lock.get("owner") in (owner, takes_over or owner) or _has_lapsed(lock, host):
        return
    raise seals.SealError(
        "this machine is being worked on by {} since {}; wait, or remove {} if that run is dead".format(
            told(lock.get("owner")), lock.get("since") or "an unknown time", host.places.lock
        )
    )


def _refuse_work(directory: str) -> None:
    """Raise SealError while a program of another run is at work, whose own controller may be gone."""
    descriptor = os.open(os.path.join(directory, _WORK), _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise seals.SealError(
            "Expected no program of an earlier run to be at work on this machine. Found one that installs. "
            "What to do: let it end, then run again."
        ) from None
    finally:
        os.close(descriptor)


def _write(host: Host, owner: str, present: RunLock | None = None) -> None:
    since = present.get("since") if present else None
    record = {
        "owner": owner,
        "since": since or seals.iso(time.time()),
        "boot": host.line(_BOOT),
        "renewed": _since_boot(),
    }
    sealing.write_object(host, host.places.lock, record, 0o755)


def _has_lapsed(lock: RunLock, host: Host) -> bool:
    """Whether nothing was heard of its run for long. What is not known has not lapsed."""
    if "renewed" not in lock:
        # Of an earlier gpuwright, which wrote a time of this node's clock.
        expires = lock.get("expires")
        return expires is not None and sealing.from_iso(expires) <= time.time()
    boot, renewed = host.line(_BOOT), lock.get("renewed")
    if boot and lock.get("boot") and boot != lock["boot"]:
        return True  # /run outlived it, as in a container: what that run did here ended with the boot
    return isinstance(renewed, (int, float)) and renewed + LEASE <= _since_boot()


def _since_boot() -> float:
    """Seconds since this node's boot, with those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _refuse_over(host: Host, owner: str) -> None:
    """Raise SealError where this run is over, as after Ctrl-C: its last task came here later than that."""
    last = _last(host)
    if last is not None and last.get("over") and last.get("owner") == owner:
        raise seals.SealError(f"the run of {told(owner)} was interrupted and is over")


def _last(host: Host) -> seals.Record | None:
    """Who had the node last, and whether that run is over; None where nobody knows."""
    try:
        return seals.read_object(host, host.places.last)
    except seals.SealError:
        return None
