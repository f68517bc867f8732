# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Look at a virtual environment and judge it by the functions of its component. Documentation: plugins/modules/environment_info.py."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction, Result, Variables
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused

#: What check mode tells of an action.
_WOULD = {
    "activate": "Would set what the activation of {path} sets",
    "return": "Would return {path} to the build that was in use before",
    "build": "Would install {unmet} into {path}",
}


class ActionModule(ModuleAction):
    """The module on the node, behind the gate, and the judgement here."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Look, judge, and say what is to be done. Fails with the component's own words where the run must not go on."""
        result = super().run(tmp, task_vars)
        if result.get("failed"):
            return result
        given = self._task.args
        wished: frameworks.Wished = {
            "path": given["path"],
            "interpreter": str(given["interpreter"]),
            "requirements": given["requirements"],
            "constraints": given.get("constraints") or [],
            "index_url": given.get("index_url"),
            "loader_path": given.get("loader_path"),
            "rebuild": bool(given.get("rebuild")),
            "restores": bool(given.get("restores")),
            "user": bool(given.get("user")),
        }
        try:
            judge = frameworks.installed if given.get("installed") else frameworks.look
            found = judge(wished, result["environment"])
        except StepRefused as error:
            raise AnsibleActionFail(str(error)) from None
        if not self._task.check_mode or found["action"] == "none":
            return {**result, **found}
        would = _WOULD[found["action"]].format(path=wished["path"], unmet=", ".join(found["unmet"]))
        return {**result, **found, "changed": True, "msg": would}
