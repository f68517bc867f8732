# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Look at the node in the middle of a role and say what its component does next. Documentation: plugins/modules/work.py."""

from __future__ import annotations

from typing import cast

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction, Result, Variables
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import sections
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work


class ActionModule(NodeAction):
    """One observation, judged by the component's own functions."""

    _VALID_ARGS = frozenset(("component", "step", "given"))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Observe, decide, and return the work. Fails with the component's own words where the run must not go on."""
        super().run(tmp, task_vars)
        arguments, look = self._task.args, NodeSession(self, task_vars or {})
        plan: Plan = self.variables(look.task_vars, ["gpuwright_plan"])["gpuwright_plan"]
        facts, given = look.facts(), cast("Plan", {**plan, "given": arguments.get("given") or {}})
        try:
            found = work.of_step(arguments["component"], arguments["step"], given, facts, look.inputs())
        except StepRefused as error:
            of_driver = sections.another_kernel(facts, plan.get("brings")) is None
            raise AnsibleActionFail(str(error), result={"of_driver": of_driver}) from None
        return {"changed": False, **found}
