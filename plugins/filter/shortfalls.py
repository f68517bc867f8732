# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter `unmet_requirements`: what is missing in a Python environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import shortfalls


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

    def filters(self) -> dict[str, Any]:
        """Filters by name, as Ansible asks for them."""
        return {"unmet_requirements": unmet_requirements}
