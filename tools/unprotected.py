# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Take one protection away at a time, and see that the tests beside it notice.

    make unprotected                                 # all of tools/protections.yaml
    python -m tools.unprotected redirect https       # those whose name has each of these words

Each is taken away in a copy of the tree. Exit 1 where the tests of one pass without it; what they did not notice is named.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import yaml
from rich.progress import track

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("protections.yaml")
#: Seconds for the tests of one: a protection against what never ends is noticed by that.
LIMIT = 900


class Protection(TypedDict):
    """A text of a file without which a protection is gone, and the tests that hold it."""

    what: str
    file: str
    has: str
    becomes: str
    tests: list[str]


def load() -> list[Protection]:
    """Return the table."""
    rows: list[Protection] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return rows


def without(protection: Protection, source: str) -> str:
    """Return the source of its file without it. Raises ValueError where the text does not stand there once."""
    if source.count(protection["has"]) != 1:
        raise ValueError(f"{protection['file']} has {protection['has']!r} {source.count(protection['has'])} times")
    return source.replace(protection["has"], protection["becomes"])


def is_noticed(protection: Protection, tree: Path) -> bool:
    """Say whether a test fails in a copy of the tree without the protection."""
    path = tree / protection["file"]
    source = path.read_text(encoding="utf-8")
    path.write_text(without(protection, source), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *protection["tests"]]
    try:
        return subprocess.run(command, cwd=tree, capture_output=True, check=False, timeout=LIMIT).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(source, encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Try those that are asked for; the exit status."""
    rows = [row for row in load() if all(word in row["what"] for word in words)]
    with tempfile.TemporaryDirectory(prefix="gpuwright-unprotected-") as folder:
        tree = Path(folder, "tree")
        left_out = shutil.ignore_patterns(".git", ".venv*", ".nox", ".sim", "__pycache__", "dist", "build")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
        silent = [row["what"] for row in track(rows, "Unprotected") if not is_noticed(row, tree)]
    print(f"{len(rows) - len(silent)} of {len(rows)} are noticed", *silent, sep="\n  not: ")
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
