# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run DCGM's diagnostic (``dcgmi diag``) within limits of time and of what it prints.

Where nv-hostengine runs, the tests are its children and not those of dcgmi: ended by SIGTERM, dcgmi asks it to stop them, and waits 25 s
for that; killed, it would leave them running. Where it does not run, dcgmi is the host engine itself for that time. (Diag.cpp of
https://github.com/NVIDIA/DCGM at 72fa3fe, ``ExecuteDiagOnServer`` and ``DoExecuteConnectionFailure``.)
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result

LEVELS = (1, 2, 3, 4)
#: Seconds for each level. By ``dcgmi diag --help`` of 4.6.0 they take "seconds", "~ 2 minutes", "~ 15 minutes" and longer; by the user
#: guide (https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html) the fourth one to two hours on eight cards.
TIMEOUTS: Mapping[int, int] = {1: 120, 2: 300, 3: 2_700, 4: 10_800}
#: Bytes that are read of dcgmi. 32 cards in 20 tests with an error each are half a MiB.
MOST_BYTES = 8 << 20
#: Seconds in which dcgmi, told to end, ends the tests.
GRACE = 30.0
_STOP_SECONDS = 10.0
_AFTER_KILL = 2.0
_TOO_LONG = "did not end within its time limit"

#: The tests whose length can be set, as ``test_duration`` in seconds, by the level from which on they run (the user guide's tables of
#: parameters; nvvs/include/PluginStrings.h).
_TIMED = {3: ("diagnostic", "targeted_stress", "targeted_power"), 4: ("memtest",)}
# What would have it use other cards, other programs or another host engine than this machine's.
_NOT_PASSED_ON = ("CUDA_", "NVIDIA_", "DCGM", "__DCGM", "NVVS_", "LD_")
# DCGM's own way to stop what its host engine runs: dcgmi/Diag.h, STOP_DIAG_ENV_VARIABLE_NAME.
_STOP = {"DCGMI_STOP_DIAG_HOSTNAME": "localhost"}


def time_limit(level: int, test_seconds: Optional[int]) -> float:
    """Seconds that the tests of a level may take: those of the level, and what was asked for beyond."""
    return TIMEOUTS[level] + (test_seconds or 0) * len(_timed(level))


def command(executable: str, level: int, cards: Sequence[int], test_seconds: Optional[int]) -> List[str]:
    """The command line.

    Args:
        executable: path of dcgmi.
        level: 1 to 4.
        cards: DCGM's numbers of the cards; none for all.
        test_seconds: how long each of the tests runs whose length can be set; None for DCGM's own.
    """
    argv = [executable, "diag", "-r", str(level), "-j"]
    if cards:
        argv += ["-i", ",".join(str(card) for card in cards)]
    if test_seconds is not None and _timed(level):
        argv += ["-p", ";".join(f"{name}.test_duration={test_seconds}" for name in _timed(level))]
    return argv


def _timed(level: int) -> List[str]:
    return [name for least, names in _TIMED.items() if least <= level for name in names]


def ask(argv: Sequence[str], timeout: float) -> Result:
    """Run dcgmi where the tests may write their figures, a directory of its own. It ends at the limits, and with this program."""
    directory = tempfile.mkdtemp(prefix="gpuwright-dcgm-")
    try:
        result = _run(argv, timeout, directory)
        if result.error is not None and result.errno is None:
            run.run([argv[0], "diag"], _STOP_SECONDS, env=_STOP, cwd=directory)
        return result
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(argv: Sequence[str], timeout: float, directory: str) -> Result:
    start = time.monotonic()
    try:
        # base/run.py reads to the end whatever is printed, and kills at once; neither will do here.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            run.bound(argv, _NOT_PASSED_ON),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=run.environment(),
            start_new_session=True,
        )
    except OSError as exc:
        sentence = f"{argv[0]} could not be run: {exc.strerror or exc}"
        return Result(None, "", "", time.monotonic() - start, sentence, exc.errno)
    try:
        printed, error = _read(process, start + timeout)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(start + timeout - time.monotonic(), 0.0) if error is None else 0.0)
        if process.returncode is None:
            error = error or _TOO_LONG
    finally:
        _end(process)
    out, err = (bytes(printed[name]).decode("utf-8", "replace") for name in ("out", "err"))
    rc = None if error else process.returncode
    return Result(rc, out, err, time.monotonic() - start, f"{argv[0]} {error}" if error else None)


def _read(process: subprocess.Popen[bytes], deadline: float) -> Tuple[Dict[str, bytearray], Optional[str]]:
    """What it prints until it closes both ends, and the end of a sentence where it went on beyond a limit."""
    printed = {"out": bytearray(), "err": bytearray()}
    with selectors.DefaultSelector() as waiting:
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                waiting.register(stream, selectors.EVENT_READ, name)
        while waiting.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return printed, _TOO_LONG
            for key, _events in waiting.select(left):
                piece = os.read(key.fd, 1 << 16)
                printed[key.data] += piece
                if not piece:
                    waiting.unregister(key.fileobj)
                if len(printed[key.data]) > MOST_BYTES:
                    return printed, f"printed more than {MOST_BYTES >> 20} MiB"
    return printed, None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have it end: by a word, and where that does not help by force, with all its children."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            # Nobody reads any more: with a full pipe it would wait for ever.
            stream.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # One that hangs inside the kernel never vanishes.
        process.wait(_AFTER_KILL)
