# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan as a document: its keys, how one ends before anything is compared, its verdict, and the plan as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ...module_utils.base import checks as checking
from ..components.base import Finding
from ..health import causes, judge
from ..model import definition, sections
from ..model.plan import Plan
from ..rules import hosts, load_rules
from ..wish.wish import BadInput, Wish
from . import expectations, taking

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageInstall

    from ..model.plan import Change, ChangedPackage, FactsSummary
    from ..model.stack import Refusal
    from .request import Request


def of_nothing(facts: Facts, request: Request, wish: Wish | None = None) -> Plan:
    """A plan in which nothing is to be done: each key of its definition is empty, but what the run and the node say."""
    said = {
        "schema": 1,
        "host": request.host,
        "ok": True,
        "versions_verified": True,
        "expected_gpus": expectations.expected(wish or Wish(), facts),
        "boots": request.boots,
        "allow_busy": request.allow_busy,
        "package_manager": facts["packages"]["manager"],
        "package_family": facts["os"]["family"],
        "verdict": "incomplete",
        "facts_summary": summary(facts),
        "cards": cards(facts),
    }
    return cast("Plan", definition.shaped(Plan, {}) | said)


def ended(
    facts: Facts, request: Request, *, refusals: Sequence[Refusal] = (), conflicts: Sequence[Refusal] = ()
) -> Plan:
    """A plan that cannot be carried out, with what says why."""
    plan: Plan = {**of_nothing(facts, request), "ok": False, "refusals": list(refusals), "conflicts": list(conflicts)}
    return judged(plan, request)


def skipped(facts: Facts, request: Request) -> Plan:
    """The plan of a machine without a card from which nothing is expected."""
    reason = hosts.with_others("no NVIDIA GPU, and none is expected", facts)
    check = checking.make("gpu.count", "skip", reason=reason)
    return judged({**of_nothing(facts, request), "skipped": reason, "checks": [check]}, request)


def without_their_card(facts: Facts, wish: Wish, request: Request) -> Plan:
    """The answer of ``doctor`` where somebody brought a driver, and no card is there for it."""
    return judged(
        {**of_nothing(facts, request, wish), "checks": judge.judge(facts, None, expectations.expected(wish, facts))},
        request,
    )


def without_cards(facts: Facts, wish: Wish, request: Request, text: str, remedy: str) -> Plan:
    """All cards are gone: nothing is changed (this is no machine without GPU), and the node fails."""
    checks = judge.judge(facts, None, expectations.expected(wish, facts))
    if checking.verdict(checks) != "fail":
        checks = [*checks, checking.make("gpu.count", "fail", "fatal", reason=text, remedy=remedy)]
    return judged({**of_nothing(facts, request, wish), "checks": checks}, request)


def bad_input(facts: Facts, request: Request, error: BadInput) -> Plan:
    """The plan of a host whose wish cannot be understood."""
    plan: Plan = {
        **of_nothing(facts, request),
        "ok": False,
        "error": str(error),
        "suggestions": list(error.suggestions),
    }
    return judged(plan, request)


def judged(plan: Plan, request: Request) -> Plan:
    """Add the verdict of the observation, and why the host cannot go on (None when it can).

    Where something is about to be applied, a failed check is what the apply may mend; the proof after it decides.
    """
    return with_checks(plan, (), request.verb)


def with_checks(plan: Plan, found: Sequence[Check], verb: str) -> Plan:
    """Add checks, and the verdict of all."""
    plan["checks"] = causes.told([*plan["checks"], *found], load_rules())
    passive = "skip" if plan["skipped"] else checking.verdict(plan["checks"])
    plan["verdict"] = passive if plan["ok"] else "fail"
    # What is measured next is told with what was seen to be wrong.
    ends_here = verb == "doctor" or not (plan["components"] or (plan["work"] and verb == "validate"))
    plan["why_not"] = (
        why_not(plan) if not plan["ok"] or (ends_here and plan["verdict"] not in ("pass", "skip")) else None
    )
    return plan


def why_not(plan: Plan) -> str:
    """Why a plan cannot be carried out, each reason with its remedy, for a person."""
    if plan["error"]:
        return str(plan["error"])
    rows = [*plan["conflicts"], *plan["refusals"]]
    if rows:
        return "\n".join(f"{row['text']} -> {row['remedy']}" if row.get("remedy") else str(row["text"]) for row in rows)
    failed = [check for check in plan["checks"] if check["status"] in ("fail", "incomplete")]
    return "; ".join(f"{check['id']}: {check['reason']}" for check in failed) or "not proven"


def describe(plan: Plan) -> str:
    """The plan as text, for `--check --diff`."""
    if not plan["ok"]:
        return why_not(plan) + "\n"
    lines = []
    for change in plan["changes"]:
        versions = " -> ".join(filter(None, (change["from"], change["to"])))
        lines.append(f"{change['component']}: {change['action']} {versions}".rstrip() + f" ({change['reason']})")
        lines += [f"  package {row['name']} {row['version'] or '(version unverified)'}" for row in change["packages"]]
        lines += [f"  wheel {row['name']} {row['version'] or '(version unverified)'}" for row in change["wheels"]]
        lines += [f"  leaves {name}" for name in change["leaves"]]
        lines += [f"  file {path}" for path in change["files"]]
        lines += [f"  service {unit}" for unit in change["services"]]
    lines += [taking.sentence(row) for row in plan["takes"]]
    if plan["download_bytes"]:
        lines.append(f"download {plan['download_bytes'] / 1e6:.1f} MB, {plan['disk_bytes'] / 1e6:.1f} MB on disk")
    if plan["reboot"]:
        lines.append(f"reboot: {plan['reboot_reason']}")
    return "\n".join(lines or ["nothing to do"]) + "\n"


def summary(facts: Facts) -> FactsSummary:
    """The few facts that a report shows of a node."""
    return {
        "os": facts["os"]["name"],
        "kernel": facts["kernel"]["running"],
        "kernel_next": facts["kernel"]["next"],
        "boot_id": facts["boot"]["id"],
        "environment": facts["environment"]["kind"],
        "driver": facts["driver"]["loaded_version"],
        "simulated": facts["simulated"],
    }


def cards(facts: Facts) -> list[Card]:
    """The cards as nvidia-smi described them; none where it was not asked."""
    return list(sections.cards(facts))


def change(name: str, finding: Finding, sizes: Mapping[str, PackageInstall], versions: Mapping[str, str]) -> Change:
    """One row of a plan's changes."""
    packages: list[ChangedPackage] = [
        {
            "name": package,
            "version": versions.get(package),
            "download_bytes": sizes[package]["download_bytes"] if package in sizes else None,
        }
        for package in finding.packages
    ]
    return {
        "component": name,
        "action": finding.action,
        "from": finding.before,
        "to": finding.after,
        "reason": finding.reason,
        "packages": packages,
        "wheels": [],
        "files": list(finding.files),
        "services": list(finding.services),
        "leaves": list(finding.leaves),
    }


def refusal(rule: str, text: str, remedy: str | None) -> Refusal:
    """One row of a plan's refusals."""
    return {"rule": rule, "text": text, "source": "gpuwright", "remedy": remedy}
