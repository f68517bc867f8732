"""YAML of ours, quickly: the tests read megabytes of it, and libyaml takes a tenth of the time where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    """What the file has."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader, in C or not
