# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`make card`: all steps, or those that are named, in the time of CARD_SECONDS, into the folder OUT.

Exit code 0: each passed, or does not apply here. 1: something failed, differed or could not be judged. 2: bad use.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import page, steps
from .running import Done, perform

_SECONDS = 480
#: What the page and what was killed need in the end.
_LAST_SECONDS = 5


class BadUse(Exception):
    """What was asked for cannot be; the text is a sentence for a person."""


def folder_of(out: str | None) -> Path:
    """The empty folder that everything goes to."""
    path = Path(out) if out else steps.ROOT / ".card" / f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        full = any(path.iterdir())
    except OSError as error:
        raise BadUse(f"OUT has to be a folder that can be written: {error}") from error
    if full:
        raise BadUse(f"OUT has to be an empty folder, and something is in {path}: name another one")
    return path.resolve()


def seconds_of(text: str | None) -> float:
    """The seconds for all steps."""
    if text and not text.isdecimal():
        raise BadUse(f"CARD_SECONDS has to be a whole number of seconds, and {text!r} is none")
    return float(text or _SECONDS)


def environment() -> dict[str, str]:
    """What every step runs in: the clone's own code, with nothing installed."""
    places = [str(steps.ROOT / "src"), str(steps.ROOT / "collections"), str(steps.ROOT)]
    paths = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}


def chosen(names: Sequence[str]) -> set[str]:
    """The steps to perform: those that are named, else all."""
    known = [step.name for step in steps.steps(steps.Answers({}), Path())]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise BadUse(f"there is no step {', '.join(unknown)}; there are: {', '.join(known)}")
    return set(names or known)


def main(*names: str) -> int:
    begun = time.monotonic()
    try:
        wanted, seconds = chosen(names), seconds_of(os.environ.get("CARD_SECONDS"))
        out = folder_of(os.environ.get("OUT"))
    except BadUse as error:
        print(f"card: {error}", file=sys.stderr)
        return 2
    done: list[Done] = []
    folders: dict[str, Path] = {}
    for number, step in enumerate(steps.steps(steps.Answers(folders), out), 1):
        if step.name not in wanted:
            continue
        folders[step.name] = out / f"{number:02}-{step.name}"
        left = seconds - _LAST_SECONDS - (time.monotonic() - begun)
        done.append(perform(step, folders[step.name], environment(), left))
        print(f"card: {step.name}: {done[-1].state} ({done[-1].seconds} s)", file=sys.stderr)
        # Each time: what comes later may take the machine down.
        page.write(out, done, folders, time.monotonic() - begun)
    print(f"card: {out / 'README.md'}")
    return page.exit_code(done)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
