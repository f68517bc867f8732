# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell what ended a run on a node, and whether it was the driver. Documentation: plugins/modules/failure.py."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction, Result, Variables
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import failures


class ActionModule(NodeAction):
    """Reads what Ansible has of the failed task; nothing is asked of the node."""

    _VALID_ARGS = frozenset(("checks",))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """The failure, as :class:`failures.Failure` has it."""
        super().run(tmp, task_vars)
        given = task_vars or {}
        if "checks" in self._task.args:
            known = self.variables(given, ["gpuwright_failure", "gpuwright_plan"])
            proof = failures.of_checks(self._task.args["checks"], known["gpuwright_plan"]["failing"])
            found = known.get("gpuwright_failure") or proof or {"of_driver": False}
        else:
            # Of the task only what is told: its other fields may have templates that cannot be rendered here.
            task = {
                key: self._templar.template(given["ansible_failed_task"][key]) for key in ("name", "action", "tags")
            }
            known = self.variables(given, ["ansible_failed_result", "gpuwright_plan"])
            found = failures.of_task(task, known["ansible_failed_result"], known["gpuwright_plan"])
        return {**found, "changed": False, "failed": False}
