# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses of vendors, replaced by mirrors where the wish names one."""

from __future__ import annotations

from ..rules import Rules
from ..wish import Wish


def url(name: str, wish: Wish, rules: Rules, form: str | None = None) -> str:
    """Return the base address of an upstream, without a slash at its end. ``form``: the row where one upstream has several."""
    mirror = wish.mirrors.get(name)
    if mirror:
        return mirror
    row = next(each for each in rules["upstreams"]["rows"] if each["name"] == (form or name))
    return str(row["url"]).rstrip("/")
