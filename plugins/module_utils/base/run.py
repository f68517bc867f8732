# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a program with a time limit, never through a shell, in a plain locale."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Mapping, NamedTuple, Sequence

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for: an unprivileged login often lacks the sbin directories."""

_AFTER_KILL = 2.0
"""Seconds a killed program gets to vanish; one that hangs inside the kernel never does."""


class Result(NamedTuple):
    """What became of a program."""

    rc: int | None
    """Exit status; None when it was not run or did not end in time."""
    out: str
    err: str
    seconds: float
    error: str | None
    """A sentence when the program could not be run or did not end; None when it ended by itself."""
    errno: int | None = None
    """Why it could not be started, as the system numbers it (``errno.ENOENT``); None when it was started."""
    pid: int | None = None
    """The process that could not be killed; None where it is gone."""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and said success."""
        return self.rc == 0


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables a program is given: the caller's own, in the C locale and in UTC.

    Root looks for programs in the system's directories alone: sudo may keep a PATH with directories that users write.
    """
    env = dict(os.environ)
    env.update({"LC_ALL": "C", "LANG": "C", "LANGUAGE": "C", "TZ": "UTC"})
    env["PATH"] = env["PATH"] + ":" + SEARCH_PATH if env.get("PATH") and os.geteuid() != 0 else SEARCH_PATH
    env.update(extra or {})
    return env


# Asks the kernel (prctl 1, PR_SET_PDEATHSIG) for SIGKILL when the caller ends, and ends where it has ended by then.
_BOUND = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or sys.exit(1); "
    "names = tuple(filter(None, sys.argv[2].split(','))); "
    "[os.environ.pop(each) for each in list(os.environ) if names and each.startswith(names)]; os.execv(sys.argv[3], sys.argv[3:])"
)


def bound(argv: Sequence[str], without: Sequence[str] = (), before: str = "") -> list[str]:
    """The command line of a program, by its path, that ends with this process even where that is killed (SIGKILL), so that nothing goes on
    to write where the next run works. `without`: how the variables begin that it is not given. `before`: lines of Python that its process
    runs first; the kernel forgets whom it ends with where they make it another user's, so that is asked for after them.
    """
    return [sys.executable, "-I", "-c", before + _BOUND, str(os.getpid()), ",".join(without), *argv]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its children (it leads a session of its own)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        # It ended in between, or it runs as another user: kill what can be killed.
        process.kill()


def run_to_its_end(argv: Sequence[str], stdin: bytes = b"") -> Result:
    """Run what must not be cut, such as a transaction of packages: without a time limit, and on to its own end whatever ends this call.

    What it says goes into files: the end of a pipe would end it too. Never raises for what the program does.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(argv), stdin=given, stdout=out, stderr=err, env=environment(), start_new_session=True
            )
        except OSError as exc:
            sentence = f"{argv[0]} could not be run: {exc.strerror or exc}"
            return Result(None, "", "", time.monotonic() - start, sentence, exc.errno)
        status = process.wait()
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode("utf-8", "replace"))
    return Result(status, said[0], said[1], time.monotonic() - start, None)


def run(
    argv: Sequence[str],
    timeout: float = 20.0,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    cwd: str | None = None,
) -> Result:
    """Run `argv` for at most `timeout` seconds. Never raises for what the program does.

    It and its children end at the time limit, and with whatever ends this call.
    """
    start = time.monotonic()
    try:
        # run_command, which sanity wants here, belongs to a module object, which observers and tests lack, and has no time limit.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
            start_new_session=True,
        )
    except OSError as exc:
        sentence = f"{argv[0]} could not be run: {exc.strerror or exc}"
        return Result(None, "", "", time.monotonic() - start, sentence, exc.errno)
    error, left = None, None
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        error = f"{argv[0]} did not answer within {timeout:g} s"
        _kill(process)
        try:
            out, err = process.communicate(timeout=_AFTER_KILL)
        except subprocess.TimeoutExpired:
            error += " and could not be killed (it hangs inside the kernel)"
            out, err, left = b"", b"", process.pid
    except BaseException:
        _kill(process)
        # What hangs inside the kernel would hold whoever is to end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL)
        raise
    return Result(
        None if error else process.returncode,
        out.decode("utf-8", "replace"),
        err.decode("utf-8", "replace"),
        time.monotonic() - start,
        error,
        pid=left,
    )
