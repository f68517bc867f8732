# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the kernel log on the node and judge it by the rules. Documentation: plugins/modules/kernel_log.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_boots import Answer
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


class ActionModule(ModuleAction):
    """The node only reads; what a number means is said by the controller's rules."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Run the module with the task's arguments, and add the checks."""
        result = super().run(tmp, task_vars)
        if result.get("failed"):
            return result
        answer: Result = checks.with_verdict(
            {**result, "checks": judge_kernel_log.judge(cast("Answer", result), load_rules())}
        )
        return answer
