# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Add package sources of the plan, behind the gate. Documentation: plugins/modules/package_sources.py."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.module_utils.base.redact import CredentialsError
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction, Result, Variables
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import sources
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import credentials


class ActionModule(NodeAction):
    """Takes the files of the sources from the plan, and users and passwords from the variables that named the mirrors."""

    _requires_connection = True
    _VALID_ARGS = frozenset(("names", "retries"))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Add what is not there; the module's answer."""
        result: Result = super().run(tmp, task_vars)
        given = self.variables(task_vars or {}, ["gpuwright_plan", "gpuwright_mirrors", "gpuwright_wish"])
        plan = given["gpuwright_plan"]
        rows, displaced = sources.of_names(plan, self._task.args.get("names"))
        if not rows and not displaced:
            return {**result, "changed": False, "written": [], "gone": []}
        mirrors = [(given.get("gpuwright_wish") or {}).get("gpuwright_mirrors"), given.get("gpuwright_mirrors")]
        try:
            access = {row["name"]: credentials.of(sources.addresses(row), *mirrors) for row in rows}
        except CredentialsError as error:
            raise AnsibleActionFail(str(error)) from None
        arguments = {
            "displaced": displaced,
            "sources": [
                sources.source(row, plan["package_manager"], with_access=bool(access[row["name"]])) for row in rows
            ],
            "credentials": credentials.of([url for row in rows for url in sources.addresses(row)], *mirrors),
            "retries": self._task.args.get("retries", 3),
        }
        return {**result, **self.ask("package_sources", arguments, task_vars or {})}
