# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The gate for what the module fabric_load answers, also where it runs by itself. Documentation: plugins/modules/fabric_load.py.

All hosts of a group must be at it at the same time, and Ansible asks so many hosts at once as it has forks. So each is started (``async``,
``poll: 0``), and its answer is taken by a second task, which names the job: ``async_status`` would take it past the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import limits
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables

_NAME = "fabric_load"
_STATUS = "ansible.legacy.async_status"


class ActionModule(ModuleAction):
    """See the documentation module of the same name."""

    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Start the module, or take the answer of one that was started; without ``async`` it is asked as every other one."""
        variables = task_vars or {}
        job = self._task.args.get("job")
        if job is None and not self._task.async_val:
            return super().run(tmp, variables)
        self._asked = (_NAME, str(variables.get("inventory_hostname") or "the node"))
        if job is None:
            return self._job(f"gpuwright.node.{_NAME}", self._task.args, variables, wrap_async=True)
        asked = {"jid": job, "_async_dir": self.get_shell_option("async_dir", default="~/.ansible_async")}
        answer = self._job(_STATUS, asked, variables)
        if answer.get("finished"):
            self._job(_STATUS, {**asked, "mode": "cleanup"}, variables)
        return answer

    def _job(self, module: str, arguments: Mapping[str, object], variables: Variables, **options: bool) -> Result:
        # A job is begun, or asked for: its own work is not waited for here.
        with limits.within(limits.ANSWER, self._asked[1], module):
            result: Result = self._execute_module(
                module_name=module, module_args=dict(arguments), task_vars=dict(variables), **options
            )
        return result

    def _admit(self, module: str, said: str) -> str:
        return (
            gate.admit_job(module, said)
            if self._task.async_val or self._task.args.get("job")
            else gate.admit(module, said)
        )
