# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a Podman reads what the container toolkit writes: it hands cards to containers by CDI alone, root's and those of users."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver.machine import Machine
from ....rules import Row, Rules, cite


def too_old(machine: Machine, system: Row, rules: Rules) -> tuple[str, str] | None:
    """Return why the Podman that is there, or that would come, does not read it, with the source; None where nothing says so."""
    table = rules["container_toolkit"]
    needed: Row = next(row for row in table["engines"] if row["engine"] == "podman")
    row = next((each for each in table["rootless"] if system["os"] in each["os"]), None)
    version = (machine.installed or {}).get("podman") or (row and row["podman"])
    if not version or numeric_version.at_least(version.rpartition(":")[2], needed["version"]):
        return None
    text = f"podman {version} is older than {needed['version']}, which {needed['needs']}, and Podman hands cards on by CDI alone"
    return text, cite(rules, "container_toolkit", row or needed)
