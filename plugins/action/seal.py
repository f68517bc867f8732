# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Close what a run did on a node: sealed after the second observation, proven after the checks. See plugins/modules/seal.py."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks as checking
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import causes
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import (
    document,
    measurements,
    notices,
    removal,
    sealing,
    work,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records, resume
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import Proof, ProofVerdict
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Failure, Returned


class ActionModule(NodeAction):
    """``converged``: observe again, resolve again, and seal what is right. ``proven``: record the proof and the host's result.
    ``interrupted``: give back what the run had taken.
    """

    _VALID_ARGS = frozenset(
        ("state", "verb", "owner", "checks", "measurements", "failure", "returned", "kept", "reboot_pending")
    )

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Seal or prove, as the option ``state`` says."""
        super().run(tmp, task_vars)
        look = NodeSession(self, task_vars or {})
        steps = {
            "converged": self._seal,
            "proven": self._prove,
            "removed": self._remove,
            "interrupted": self._give_back,
        }
        return steps[self._task.args["state"]](look)

    def _seal(self, look: NodeSession) -> Result:
        facts, begun = look.facts(), self._plan(look)
        drafted = self._drafted(look, facts, begun)
        left = sealing.unmet(drafted)
        if left:
            reasons = "; ".join(finding.reason for finding in left)
            reason = f"did not converge, the node is still not as wished: {reasons}"
            raise AnsibleActionFail(reason, result={"of_driver": sealing.of_driver(drafted, begun)})
        plan = finish(drafted, None)
        seals = {name: self._record(name, plan, facts) for name in sealing.to_seal(plan, begun["components"], facts)}
        look.keep({"state": "sealed", "seals": seals, "owner": begun["owner"]})
        told = [row for row in begun["warnings"] if row["rule"] in notices.OF_THE_INDEX]
        look.save("sealed", {**plan, "changes": begun["changes"], "warnings": told + plan["warnings"]})
        # Nothing changes between here and the proof, which goes by this look.
        given = measurements.asked(look.inputs(), drafted.wish.gpus_ignore, pending=look.pending)
        measure = work.of_step(measurements.NAME, "measure", {**begun, "given": given}, facts, look.inputs())
        return {"changed": False, "sealed": sorted(seals), "measure": measure}

    def _give_back(self, look: NodeSession) -> Result:
        look.keep({"state": "interrupted", "owner": self._plan(look)["owner"], "failed": True})
        return {"changed": False}

    @staticmethod
    def _drafted(look: NodeSession, facts: Facts, begun: Plan) -> Draft:
        """What is still to be done. Raises AnsibleActionFail where the node cannot be as wished any more."""
        # What the index lacked when the run was planned it lacks now too.
        drafted = look.draft(facts, only=[], applied=begun["stack"], absent=begun.get("absent"))
        if not isinstance(drafted, Draft):
            # As where cards are gone: that is no fault of the driver.
            raise AnsibleActionFail(f"did not converge: {drafted['why_not']}", result={"of_driver": False})
        return drafted

    def _seal_done(self, look: NodeSession, begun: Plan, failed: str) -> None:
        """Seal what a run that failed had come to the end of and left right: the next one begins where this one failed. Where the node does
        not answer any more, or another run has it, the marks stay.
        """
        done = sealing.done(begun["components"], failed)
        if not done:
            return
        with contextlib.suppress(AnsibleActionFail):
            facts = look.facts()
            drafted = self._drafted(look, facts, begun)
            plan = finish(drafted, None)
            right = [name for name in sealing.to_seal(plan, done, facts) if not drafted.findings.get(name)]
            seals = {name: self._record(name, plan, facts) for name in right}
            look.keep({"state": "sealed", "seals": seals, "owner": begun["owner"]})

    @staticmethod
    def _plan(look: NodeSession) -> Plan:
        """The plan that this run wrote. Raises AnsibleActionFail where there is none."""
        plan = look.saved("plans")
        if plan is None:
            raise AnsibleActionFail(
                f"no plan of {look.host} in the run directory {look.run_dir}: run gpuwright.node.plan first"
            )
        return cast("Plan", plan)

    @staticmethod
    def _record(name: str, plan: Plan, facts: Facts) -> dict[str, object]:
        return {
            "digest": plan["digests"][name],
            "stack": sealing.stack_part(name, plan["stack"]),
            "gpus": sealing.card_ids(facts),
            "manages": plan["manages"][name],
        }

    def _remove(self, look: NodeSession) -> Result:
        """Everything is gone, or the run has failed; the records go last, so that the next run knows what is left."""
        arguments = self._task.args
        failure = _failure(arguments)
        begun = self._plan(look)
        pending, restored = bool(arguments.get("reboot_pending")), begun["restore"]
        checks: list[Check] = []
        if failure is None:
            facts = look.facts()
            told = [row["text"] for row in begun["warnings"] if row["rule"] == removal.STAYS]
            checks = [removal.check(facts, told)]
            checks += [removal.check_of_driver(facts, restored, pending=pending)] if restored else []
            kept = [*(begun["remove"]["kept"] if begun["remove"] else ()), *(arguments.get("kept") or ())]
            left = removal.left(facts, kept, restores=restored is not None)
            if left:
                failure = {"task": "Look again", "message": left, "component": "remove", "output": ""}
        if failure is not None:
            checks = [checking.failed("removal.left", reason=failure["message"])]
        verdict = checking.verdict(checks)
        record = records.applied(begun, verdict, checks, failure, reboot=pending)
        look.save("hosts", record)
        if failure is None:
            look.keep({"state": "removed", "owner": begun["owner"]})
        elif arguments.get("owner"):
            look.keep({"state": "released", "owner": arguments["owner"]})
        return {"changed": False, "verdict": verdict, "summary": records.sentence(record)}

    def _prove(self, look: NodeSession) -> Result:
        arguments = self._task.args
        failure = _failure(arguments)
        way_back = arguments.get("returned") or None
        back = way_back is not None and not way_back["failure"]
        plan = cast("Plan | None", look.saved("sealed") if back or failure is None else None) or self._plan(look)
        if look.verb == "validate":  # the rest of its plan is what `up` would do
            plan["changes"] = [change for change in plan["changes"] if change["component"] == "validate"]
        checks = causes.told(list(arguments.get("checks") or ()), load_rules())
        verdict = "fail" if failure else checking.verdict(checks)
        pending = bool(arguments.get("reboot_pending"))
        record = records.applied(plan, verdict, checks, failure, reboot=pending)
        if pending and failure is None:
            after = resume.of(plan, look.run | self.variables(look.task_vars, resume.VARIABLES))
            record["left"], record["resume"], record["rescue"] = after["left"], after["resume"], after["rescue"]
        if way_back:
            record["returned"] = cast("Returned", way_back | {"verdict": checking.verdict(checks) if back else "fail"})
        elif look.verb == "rollback" and record["changed"]:
            # The plan after the work has nothing left to go back to.
            record["returned"] = records.returned(self._plan(look), verdict, failure)
        if failure is None or back:
            facts = look.facts()
            record["gpus"] = document.cards(facts)
            record["summary"] = document.summary(facts)
            record["measurements"] = dict(arguments.get("measurements") or {})
            owner = {"owner": arguments["owner"]} if arguments.get("owner") else {}
            look.keep({"state": "proven", "proof": _proof(plan, checking.verdict(checks), checks, facts), **owner})
        look.save("hosts", record)
        if failure is not None and not way_back:
            self._seal_done(look, plan, failure["component"] or "")
        if arguments.get("owner"):
            released = {"state": "released", "owner": arguments["owner"], "failed": failure is not None}
            look.keep(released)
        return {"changed": False, "verdict": verdict, "summary": records.sentence(record)}


def _failure(arguments: Variables) -> Failure | None:
    """What failed, if anything did. It may be the words of a program of the node that Ansible's own modules ran: they are cleaned here."""
    given: Mapping[str, object] = arguments.get("failure") or {}
    told = {key: gate.words(str(given[key])) for key in ("task", "message", "component", "output") if key in given}
    return cast("Failure", told) if told else None


def _proof(plan: Plan, verdict: str, checks: list[Check], facts: Facts) -> Proof:
    return {
        "verdict": cast("ProofVerdict", verdict),
        # By the node's own clock, which says how old it is later.
        "time": facts["time"],
        "boot_id": facts["boot"]["id"],
        "driver": facts["driver"]["loaded_version"],
        "stack_digest": plan["stack_digest"],
        "checks": checks,
        "gpus": [{"uuid": card["uuid"], "name": card["name"]} for card in document.cards(facts)],
    }
