# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters that the roles decide with: what is missing on a disk, and in a Python environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import shortfalls

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Disk
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.shortfalls import Need


def disk_shortfalls(needs: Iterable[Need], disks: Iterable[Disk], reserve: int = 0) -> list[str]:
    """One sentence for each file system that is too small or read-only. Sizes in bytes."""
    return shortfalls.on_disks(list(needs), list(disks or ()), int(reserve))


def unmet_requirements(
    requirements: Iterable[str], packages: Mapping[str, str], constraints: Iterable[str] = ()
) -> list[str]:
    """The exact requirements, and the constraints on what is installed, that an environment does not meet."""
    try:
        return shortfalls.in_environment(list(requirements), packages, list(constraints))
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Names of the filters."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Filters by name, as Ansible asks for them."""
        return {"disk_shortfalls": disk_shortfalls, "unmet_requirements": unmet_requirements}
