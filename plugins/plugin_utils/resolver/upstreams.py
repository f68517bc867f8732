# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses of vendors, replaced by mirrors where the wish names one."""

from __future__ import annotations

from ..rules import Rules
from ..wish.wish import Wish

#: In the place of a mirror's address: the index that the machine's pip is configured for has it.
PYTHON_INDEX = "pypi"


def in_python_index(name: str, wish: Wish) -> bool:
    """Say whether the wish takes from the Python index what an upstream has an index of its own for."""
    return wish.mirrors.get(name) == PYTHON_INDEX


def url(name: str, wish: Wish, rules: Rules, form: str | None = None) -> str:
    """Return the base address of an upstream, without a slash at its end. ``form``: the row where one upstream has several."""
    mirror = wish.mirrors.get(name)
    if mirror:
        return mirror
    row = next(each for each in rules["upstreams"]["rows"] if each["name"] == (form or name))
    return str(row["url"]).rstrip("/")
