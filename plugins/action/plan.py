# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Observe a node, resolve its wished state, and return the plan. Documentation: plugins/modules/plan.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import owner
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import drift, judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_boots import Answer
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan


class ActionModule(NodeAction):
    """One task: the module node_facts, the resolver, and the package index where exact versions are needed."""

    _VALID_ARGS = frozenset(("components", "verb"))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Look at the node, plan, and keep both for the run's report."""
        super().run(tmp, task_vars)
        if "components" in self._task.args:
            self._refuse_misspelt(task_vars or {})
        look = NodeSession(self, task_vars or {})
        only = self._only()
        facts = look.facts(only)
        lock = facts["lock"] or {}
        left = lock.get("owner") or ""
        dead = owner.is_dead(left)
        if dead:
            lock["living"] = False  # the node cannot see that
        try:
            plan = look.plan(facts, only=only)
        except Exception:
            look.save("facts", facts)  # that somebody sees what no plan came of
            raise
        if look.verb == "doctor":
            plan = self._with_log(plan, facts, task_vars or {})
        plan["owner"], plan["takes_over"] = owner.of_this_run(), left if dead else None
        status = look.verb == "status"
        if status:
            plan["status"] = drift.status(facts, plan)
        stays = records.stays(plan)
        look.save("facts", facts, packed=stays)
        look.save("plans", plan, packed=stays)
        if status:
            # A host that drifts is what was asked about, and no failure of the run.
            return {"changed": False}
        # The report reads of a host that stays as it is in its plan.
        if not stays and (not plan["components"] or not plan["ok"] or look.verb == "doctor"):
            look.save("hosts", records.ended_in_plan(plan))
        return self._answer(plan, alone="components" in self._task.args)

    def _with_log(self, plan: Plan, facts: Facts, task_vars: Variables) -> Plan:
        """The plan of a diagnosis with what the kernel log says, which only root may read, of the machine that runs."""
        if plan["skipped"] or not facts["privileged"] or facts["root"] != "/":
            return plan
        answer = cast("Answer", self.on_node("kernel_log", {"boots": 0}, task_vars))
        return document.with_checks(plan, judge_kernel_log.judge(answer, load_rules(), facts), "doctor")

    def _refuse_misspelt(self, task_vars: Variables) -> None:
        """Where a role is used alone no play of ours read the variables before. Raises AnsibleActionFail for one that is misspelt."""
        try:
            settings.refuse_misspelt(task_vars, self._task.args["components"] or ())
        except BadInput as error:
            raise AnsibleActionFail(" ".join([f"{error.message}.", *error.suggestions])) from None

    def _only(self) -> list[str]:
        """The components that are planned alone; none where all are. Raises AnsibleActionFail for a name that is none."""
        only = list(self._task.args.get("components") or ())
        unknown = [str(name) for name in only if name not in COMPONENTS]
        if unknown:
            raise AnsibleActionFail(
                f"components: expected names of {', '.join(COMPONENTS)}; found {', '.join(unknown)}"
            )
        return only

    def _answer(self, plan: Plan, *, alone: bool) -> Result:
        """The plan as the task's result; Ansible shows its warnings as texts.

        A host that cannot go on fails here, with the reason alone: the plan is in the run directory. A role used alone judges
        what it was asked to do, not the node's health.
        """
        if plan["why_not"] is not None and not (alone and plan["ok"]):
            return {"failed": True, "changed": False, "msg": plan["why_not"]}
        result = records.as_result(plan) | {"changed": False}
        # Of a host that stays as it is they are in the report alone: a fleet that is right is not told the same of each host again.
        if plan["components"]:
            result["warnings"] = [row["text"] for row in plan["warnings"]]
        if self._task.check_mode:
            result["changed"] = bool(plan["components"])
            if self._task.diff:
                result["diff"] = [{"prepared": document.describe(plan)}]
        return result
