# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The gate for what the module gpu_load answers, and what the kernel log said meanwhile. Documentation: plugins/modules/gpu_load.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Seen
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


class ActionModule(ModuleAction):
    """The node loads and judges; what a number of the kernel log means is said by the controller's rules."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Run the module with the task's arguments, and add the check of the kernel log where it was read."""
        result = super().run(tmp, task_vars)
        if result.get("failed") or result["log_lines"] is None:
            return result
        answer: Result = checks.with_verdict({**result, "checks": [*result["checks"], *judged(result)]})
        return answer


def judged(result: Result) -> list[Check]:
    """The checks of the errors that came into the kernel log while the cards were loaded."""
    seen = {
        "events": result["events"],
        "earlier": 0,
        "more": 0,
        "lines": result["log_lines"],
        "whole": True,
        "why": result["log_problem"],
    }
    found = judge_kernel_log.numbers(cast("Seen", seen), load_rules())
    return [{**check, "id": _under_load(check["id"]), "reason": f"under load: {check['reason']}"} for check in found]


def _under_load(id_: str) -> str:
    """The id of a check of the kernel log where its error came under load: load.xid of kernel.xid."""
    return f"load.{id_.partition('.')[2]}"
