# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Look-ups in what the package index of a node answered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex

#: What stands for the answer of an index that was not asked.
NOT_ASKED: PackageIndex = {
    "enabled": [],
    "packages": {},
    "others": {},
    "install": [],
    "removes": [],
    "downgrades": [],
    "download_bytes": None,
    "disk_bytes": None,
    "exchange": None,
    "problems": [],
}


def candidate(index: PackageIndex, name: str) -> str | None:
    """Return the version of a package that would be installed; None where the index has none, or was not asked for it."""
    row = index["packages"].get(name)
    return row["candidate"] if row else None


def candidates(index: PackageIndex) -> dict[str, str]:
    """Return the versions that would be installed, by package."""
    return {name: row["candidate"] for name, row in index["packages"].items() if row["candidate"]}


def versions(index: PackageIndex, name: str) -> list[str]:
    """Return all versions of a package that the index has."""
    row = index["packages"].get(name)
    return row["versions"] if row else []
