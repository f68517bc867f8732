# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An installed package, by whatever manager."""

from __future__ import annotations

from typing import NamedTuple


class Package(NamedTuple):
    """A package that the package manager has an installed (perhaps not finished) version of."""

    version: str
    state: str
    """dpkg's state ("installed" when all is well); "installed" for rpm."""
    hold: bool
    vendor: str
    """Maintainer (dpkg) or vendor (rpm)."""
    source: str = ""
    """Name of the source package."""
