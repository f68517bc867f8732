# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Numbers that a node told, for what is drawn of them. Pure."""

from __future__ import annotations

#: Beyond it nothing was measured (bytes, seconds, operations).
MOST = 1e18


def number(value: object) -> float | None:
    """A finite number as it can have been measured; None for what is none, a flag included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        return None
    return float(value)


def percent(share: float) -> float:
    """A share as a part of a drawing's width, at least so much that it is seen."""
    return round(100 * min(max(share, 0.005), 1.0), 1)
