# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter `disk_shortfalls`: what is missing on a disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import shortfalls


def disk_shortfalls(
    needs: Iterable[Mapping[str, Any]], disks: Iterable[Mapping[str, Any]], reserve: int = 0
) -> list[str]:
    """One sentence for each file system that is too small or read-only. Sizes in bytes."""
    return shortfalls.on_disks(list(needs), list(disks or ()), int(reserve))


class FilterModule:
    """Names of the filters."""

    def filters(self) -> dict[str, Any]:
        """Filters by name, as Ansible asks for them."""
        return {"disk_shortfalls": disk_shortfalls}
