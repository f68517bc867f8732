# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Regular expressions that are compiled when they are first used: most of those that a command could use, it does not."""

from __future__ import annotations

import re
from typing import Pattern, cast


def lazy(pattern: str, flags: int = 0) -> Pattern[str]:
    """What ``re.compile`` returns, compiled at its first use. Not for the functions of ``re``, which take a compiled one alone."""
    return cast("Pattern[str]", _Lazy(pattern, flags))


class _Lazy:
    def __init__(self, pattern: str, flags: int) -> None:
        self._written = (pattern, flags)

    def __getattr__(self, name: str) -> object:
        """The method or value of the compiled one, kept for the next use."""
        value = getattr(re.compile(*self._written), name)
        setattr(self, name, value)
        return value
