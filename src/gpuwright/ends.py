"""The end of a run: who is at work in a directory, and the report of a run that did not come to its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from gpuwright import console, knowledge, paths, records, steps
from gpuwright.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Ended
    from gpuwright.request import Request

#: Verbs for which the plan of a host is not its result.
_MORE_THAN_A_PLAN = ("up", "upgrade", "rollback", "remove", "validate")

_SAID = {"interrupted": "interrupted", "killed": "the run was killed"}


@contextlib.contextmanager
def at_work(wanted: Request) -> Iterator[None]:
    """Mark the directory of a run as at work for as long as this process is: whoever reads it sees whether it still is.

    Where Ctrl-C ends the run, its report says so, and what was so on each host then.
    """
    descriptor = os.open(wanted.run_dir / paths.MARKER, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        knowledge.note_begin(wanted.run_dir, wanted.verb)
        yield
    except (Interrupted, KeyboardInterrupt):
        report(wanted.run_dir, wanted.verb, "interrupted")
        console.note(f"what was so on each host then: {wanted.run_dir}/report.html")
        raise
    finally:
        os.close(descriptor)


def is_at_work(run_dir: Path) -> bool:
    """Whether the process of a run lives. The kernel takes its lock away with it."""
    try:
        descriptor = os.open(run_dir / paths.MARKER, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False  # removed meanwhile
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def report(run_dir: Path, verb: str, ended: Ended) -> None:
    """Write the report of a run that did not come to its end: what was done on each host, and in which step the others were.

    Raises:
        Failed: it cannot be written.
    """
    results, plans = records.results(run_dir), records.plans(run_dir)
    unreachable: dict[str, str] = {}
    failed: dict[str, str] = {}
    not_reached: list[str] = []
    for host, step in steps.read(run_dir).items():
        if step.unreachable:
            unreachable[host] = step.unreachable
        elif host in results:
            continue
        elif step.begun:
            failed[host] = f"{_SAID[ended]} in the step {step.component}; the next run heals what was begun"
        elif host not in plans:
            failed[host] = f"{_SAID[ended]} before this host was looked at"
        elif verb in _MORE_THAN_A_PLAN:
            not_reached.append(host)
    knowledge.aggregate(run_dir, verb, unreachable, failed, not_reached, ended)
