# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Say whether a driver runs a CUDA version on some cards. Documentation: plugins/modules/cuda_compat.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.resolve import compatible
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


class ActionModule(ActionBase):
    """Answers on the controller from the rules: no connection is opened, nothing is changed."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Check the arguments and answer; wrong ones fail the task with what exists instead."""
        result = super().run(tmp, task_vars)
        _checked, arguments = self.validate_argument_spec(
            argument_spec={
                "driver_version": {"type": "str", "required": True},
                "cuda_version": {"type": "str", "required": True},
                "gpus": {"type": "list", "elements": "str", "default": []},
            },
        )
        try:
            answer = compatible(arguments["driver_version"], arguments["cuda_version"], arguments["gpus"], load_rules())
        except BadInput as error:
            instead = f" Known: {', '.join(error.suggestions)}." if error.suggestions else ""
            raise AnsibleActionFail(f"{error.message}.{instead}") from None
        return {**result, "changed": False, **answer}
