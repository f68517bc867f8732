# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The gate for what the module wheels answers, and the way in at its indexes. Documentation: plugins/modules/wheels.py."""

from __future__ import annotations

import contextlib
import posixpath
from contextlib import AbstractContextManager

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.module_utils.base.redact import CredentialsError
from ansible_collections.gpuwright.node.plugins.module_utils.packages import meter
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import (
    WISH_VARIABLES,
    ModuleAction,
    Result,
    Variables,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import credentials


class ActionModule(ModuleAction):
    """Takes users and passwords from the variables that named the mirrors: neither a plan nor a task has them.

    While it runs, the run's directory has how far it is.
    """

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Run the module with the task's arguments."""
        arguments = self._task.args
        addresses = [url for key in ("index_url", "dependencies_url") if (url := arguments.get(key))]
        try:
            found = credentials.of_variables(addresses, self.variables(task_vars or {}, WISH_VARIABLES))
        except CredentialsError as error:
            raise AnsibleActionFail(str(error)) from None
        self._task.args = {"credentials": found, **arguments}
        with self._told(task_vars or {}):
            result = super().run(tmp, task_vars)
        return result  # noqa: RET504 - a test looks for the gate's own call

    def _told(self, variables: Variables) -> AbstractContextManager[None]:
        """Whatever has the run's directory told how far uv is, where there is both."""
        arguments = self._task.args
        if not arguments.get("uv") or self._task.check_mode or "inventory_hostname" not in variables:
            return contextlib.nullcontext()
        session = NodeSession(self, variables)
        above = posixpath.dirname(str(arguments["environment"]))
        return session.watched(posixpath.join(above, str(arguments["uv"]["directory"]), meter.FILE))
