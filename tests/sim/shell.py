"""Run commands of the machine one sits at, and say what goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_STARTED = time.monotonic()


class SimulationError(Exception):
    """The simulation cannot be had here; the text says what was found and what to do."""


def say(text: str) -> None:
    """Progress, on stderr: stdout belongs to what a command prints."""
    print(f"[sim {time.monotonic() - _STARTED:5.1f}s] {text}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    *,
    check: bool = True,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """COMMAND with its output captured as text.

    Raises:
        SimulationError: it is not there, or it failed and ``check`` is set; with the end of what it said.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            check=False,
            env=dict(env) if env else None,
            cwd=cwd,
            timeout=timeout,
        )
    except FileNotFoundError as error:
        raise SimulationError(f"the command {words[0]} is not installed") from error
    result = subprocess.CompletedProcess(
        words, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    if check and result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip())[-2000:]
        raise SimulationError(f"`{' '.join(words)[:300]}` ended with {result.returncode}: {said}")
    return result


def output(command: Sequence[str | Path]) -> str:
    """What COMMAND prints, without the blanks around it."""
    return run(command).stdout.strip()
