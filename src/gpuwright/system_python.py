"""The Python of the machine one sits at that runs what runs on nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

#: In the order in which they are asked. The first one has the bindings of the package manager, and is too old on Red Hat 8 (3.6). None of
#: them is a user's own.
_PYTHONS = ("/usr/bin/python3", *(f"/usr/bin/python3.{minor}" for minor in range(19, 7, -1)))
#: What the modules are written for.
_OLDEST = (3, 8)
_SECONDS = 20


def path(pythons: Iterable[str] = _PYTHONS) -> str | None:
    """The first one that is new enough; None where there is none."""
    return next((each for each in pythons if _is_new_enough(each)), None)


def _is_new_enough(python: str) -> bool:
    asked = [python, "-I", "-c", f"import sys; sys.exit(sys.version_info < {_OLDEST})"]
    try:
        # One that does not answer is none to run modules with.
        return subprocess.run(asked, check=False, capture_output=True, timeout=_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
