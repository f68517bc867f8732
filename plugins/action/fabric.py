# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide who is measured with whom, and judge what came of it. Runs on the controller alone. Documentation: plugins/modules/fabric.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import of_another
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import fabric as judgement
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import fabric

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


class ActionModule(ActionBase):
    """See the documentation module of the same name."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("state",))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """The rounds, or the checks of each host; nothing of it is a change."""
        variables = task_vars or {}
        super().run(tmp, variables)
        state = self._task.args.get("state")
        if state == "pairs":
            return {"changed": False, "rounds": fabric.pairs(_members(variables))}
        answers: judgement.Answers = _of_hosts("__validate_fabric_answers", variables)
        if state == "together":
            able = judgement.able(answers)
            return {"changed": False, "rounds": fabric.together(_members(variables), able)}
        if state == "judged":
            return {"changed": False, "checks": judgement.judge(answers)}
        raise AnsibleActionFail(f"fabric: state must be one of pairs, together, judged, and it is {state!r}")


def _members(variables: Variables) -> dict[str, fabric.Member]:
    return _of_hosts("__validate_fabric_member", variables)


def _of_hosts(name: str, variables: Variables) -> Variables:
    """A variable of the hosts that are still there and have it: one that failed or does not answer is measured with nobody."""
    every = {host: of_another(host, [name], variables) for host in variables["ansible_play_batch"]}
    return {host: values[name] for host, values in every.items() if name in values}
