# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One call of the package manager as the plan wants it, behind the gate. Documentation: plugins/modules/package_call.py."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction, Result, Variables
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import package_calls


class ActionModule(NodeAction):
    """Adds what the plan says of every call: the manager, what it prefers, and which sources are for this run or out of it."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Install; the module's answer."""
        result: Result = super().run(tmp, task_vars)
        plan = self.variables(task_vars or {}, ["gpuwright_plan"]).get("gpuwright_plan")
        given = {key: value for key, value in self._task.args.items() if value}
        if not given.get("names"):
            return {**result, "changed": False, "installed": []}
        if plan:
            given = {**package_calls.of_plan(plan, given["names"]), **given}
        return {**result, **self.ask("package_call", given, task_vars or {})}
