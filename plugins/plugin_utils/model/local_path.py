# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Paths of the controller as a person writes them. What names nothing is not there; pathlib's own functions end with an error for some."""

from __future__ import annotations

import os
from pathlib import Path


def read(written: str) -> Path:
    """Return the path; ``~`` and ``~user`` are homes. One of nobody stays as it is written."""
    return Path(os.path.expanduser(written))  # noqa: PTH111 - Path.expanduser raises RuntimeError where there is no such user


def exists(path: Path) -> bool:
    """Say whether something is there. A name that is too long, or below what may not be looked into, is nothing."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises OSError


def is_directory(path: Path) -> bool:
    """Say whether a directory is there."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises OSError
