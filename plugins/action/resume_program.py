# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hand the running program to the module of the same name, which keeps a copy that only root can change."""

from __future__ import annotations

import hashlib
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import installation
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


class ActionModule(NodeAction):
    """Packs on the controller, which is the machine itself: the module reads the archive where it lies and compares the checksum."""

    _VALID_ARGS = frozenset(("package", "interpreter", "directory"))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Pack, and have the module unpack; what cannot be packed is an answer and no failure."""
        super().run(tmp, task_vars)
        given = self._task.args
        try:
            packed, places = installation.pack(Path(given["package"]), given["interpreter"], given["directory"])
        except (OSError, metadata.PackageNotFoundError) as error:
            return {"changed": False, "refused": f"the program that runs cannot be copied for it: {error}"}
        with tempfile.NamedTemporaryFile(prefix="gpuwright-program-") as stream:
            stream.write(packed)
            stream.flush()
            arguments = {"archive": stream.name, "sha256": hashlib.sha256(packed).hexdigest(), "places": places}
            return self.on_node(
                "resume_program",
                arguments | {"interpreter": given["interpreter"], "directory": given["directory"]},
                task_vars or {},
            )
