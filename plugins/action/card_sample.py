# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sample the cards of a node, and keep it for the run that asked. Documentation: plugins/modules/card_sample.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import local_path
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables

_ANSWER = ("time", "cards", "problem", "log")


class ActionModule(ModuleAction):
    """The node only reads. In a run of the command line what it said is a document of the run too, and the log nowhere else."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Run the module with the task's arguments."""
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        given = self.variables(variables, ["gpuwright_run_dir"]).get("gpuwright_run_dir")
        if result.get("failed") or not given:
            return result
        folder = local_path.read(str(given)).absolute() / "samples"
        host = str(variables["inventory_hostname"])
        run_directory.write_document(folder, host, {"host": host, **{key: result[key] for key in _ANSWER}})
        return {**result, "log": None}
