# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How far a download is, for whoever waits.

A module speaks only at its end; until then two numbers lie in a file, to be read from outside.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Callable, Iterator, NamedTuple

FILE = "progress"
"""Name of the file, in the directory of what is under way: it goes with that."""

SECONDS = 5.0
"""Between two looks at what is there."""


class Meter(NamedTuple):
    """How many bytes came, of how many."""

    done: int
    total: int


@contextlib.contextmanager
def told(path: str, look: Callable[[], Meter | None]) -> Iterator[None]:
    """Have a file say how far something is for as long as it is under way."""
    try:
        with meanwhile(look, lambda found: _write(path, found), SECONDS):
            yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def meanwhile(look: Callable[[], Meter | None], keep: Callable[[Meter], None], seconds: float) -> Iterator[None]:
    """Hand on what `look` finds every so many seconds while the body runs, and nothing after it. What cannot be told holds up nothing.

    `look`: is called in a thread of its own; it may take long, return None for what it does not know, and raise OSError, as `keep` may.
    """
    over, lock = threading.Event(), threading.Lock()

    def tell() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError):
                found = look()
                with lock:
                    if found and not over.is_set():
                        keep(found)

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over.set()


def _write(path: str, found: Meter) -> None:
    """Replace the file in one step: a reader sees two numbers, the old ones or the new ones."""
    with open(path + ".new", "w", encoding="ascii") as stream:
        stream.write(f"{found.done} {found.total}\n")
    os.replace(path + ".new", path)
