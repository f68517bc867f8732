# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan, from a draft and what the package index said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...module_utils.base import numeric_version
from ...module_utils.base.versions import EVERY_PACKAGE
from ..components.base import Context
from ..components.frameworks import apply as frameworks
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import rollback, signed_modules
from ..components.reboot import apply as reboot
from ..components.registry import COMPONENTS, SEALED
from ..health import judge
from ..model import index_answer
from ..wish.wish import Wish
from . import (
    document,
    expectations,
    findings,
    index_query,
    measurements,
    notices,
    proof,
    python_query,
    refusals,
    rescue,
    sealing,
    space,
    taking,
    trials,
    upgrading,
    users,
    work,
)
from .draft import Draft

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.index import (
        IndexProblem,
        PackageExchange,
        PackageIndex,
    )

    from ..model.plan import Change, ChangedPackage, Plan, Taken
    from ..model.stack import Refusal, Stack, Why


def finish(drafted: Draft, index: PackageIndex | None, wheels: python_query.Wheels = python_query.NONE) -> Plan:
    """The plan. ``index`` is what package_index returned, None where it was not asked (or not needed); ``wheels``: of the Python index."""
    answer = index or index_answer.NOT_ASKED
    versions, problems = index_answer.candidates(answer), answer["problems"]
    missing = index_query.missing(drafted, index)
    request = drafted.request
    if request.moves:
        versions = upgrading.of_what_moves(versions, drafted.context, request)
    if drafted.state:
        versions = {**versions, **drafted.state["packages"]}
    sets = answer["exchange"]
    context = _answered(drafted, versions, sets)
    found = findings.of_components(context, request) if versions else drafted.findings
    found = findings.with_return(found, drafted.state, context.facts)
    if request.moves:
        found = upgrading.with_newer(found, context, request)
    plan = document.of_nothing(context.facts, request, drafted.wish)
    plan |= {"why": drafted.answer["why"], "assumed": drafted.answer["assumed"], "gpus": drafted.answer["gpus"]}
    plan["stack"], plan["exchange"] = context.stack, sets
    plan["provision_only"], plan["cpu_only"] = context.provision_only, context.cpu_only
    plan["packages"], plan["cards_missing"] = dict(versions), context.cards_missing
    plan["warnings"] = [
        *notices.without_card(context, request),
        *notices.rolled_back(context, request),
        *drafted.answer["warnings"],
    ]
    plan["digests"] = {
        name: findings.digest(name, context, request)
        for name in SEALED
        if request.covers(name) and COMPONENTS[name].wanted(context)
    }
    plan["manages"] = {name: COMPONENTS[name].sealed(context).as_dict() for name in plan["digests"]}
    sizes = {row["name"]: row for row in answer["install"]}
    changes = [
        _with_wheels(document.change(name, finding, sizes, versions), wheels)
        for name, rows in found.items()
        for finding in rows
    ]
    plan["changes"] = changes if drafted.state else _with_branch(changes, context, plan["why"])
    plan["checks"] = users.judged(
        judge.judge(context.facts, context.stack, expectations.expectations(drafted.wish, context, request)),
        context.facts,
    )
    proof.add_proof(plan, context, request, sizes)
    plan["components"] = [
        name for name in [*COMPONENTS, "validate"] if name in {change["component"] for change in plan["changes"]}
    ]
    plan["begin"] = sealing.marks(plan, context, drafted.replaced)
    _put_ways_back(plan, drafted, context)
    plan["reboot"] = reboot.NAME in plan["components"]
    plan["reboot_reason"] = nvidia_driver.reboot_reason(context)
    plan["rescue"] = rescue.lines(context.facts, local=request.local) if plan["reboot"] else []
    plan["rebuild"] = frameworks.rebuilds(context) if frameworks.NAME in plan["components"] else []
    plan["takes"], plan["may_take"] = _taken(drafted, answer, context, changes=nvidia_driver.NAME in plan["components"])
    plan |= {
        "install": list(sizes.values()),
        "builds": trials.builds(wheels.tried, request.allow_source),
        "from_controller": _from_controller(context.stack, drafted.wish),
        "prefer": nvidia_driver.preferred(context, drafted.keep.get(EVERY_PACKAGE)),
    }
    plan |= {
        "download_bytes": (answer["download_bytes"] or 0) + space.of_wheels(plan["changes"]),
        "disk_bytes": answer["disk_bytes"] or 0,
    }
    # After an apply the index is not asked again: what is there by then is looked at.
    asked = bool(drafted.packages) and request.applied is None
    plan["versions_verified"] = not asked or (
        index is not None and not any(row["kind"] == "timeout" and row.get("needed", True) for row in problems)
    )
    if not plan["versions_verified"]:
        plan["warnings"] = [*plan["warnings"], notices.unverified(problems)]
    plan["warnings"] = [
        *notices.others_at_work(context, plan),
        *plan["warnings"],
        *notices.unmended(context, request, plan["components"]),
        *notices.sources_of_others(problems),
        *notices.enabled(drafted, index),
        *notices.of_wheels(wheels),
        *notices.stays_put(drafted),
        *trials.notices(wheels.tried, drafted),
    ]
    # dnf refuses to work where one of its repositories does not answer: the roles leave these out.
    plan["left_out"] = sorted(_left_out(problems))
    plan["enabled"] = list(answer["enabled"])
    plan["absent"] = {key: list(there) for key, there in request.absent.items()}
    behind = signed_modules.behind(context.stack, index, drafted.packages)
    refused = refusals.of_plan(plan, replace(drafted, context=context), index, missing, behind, wheels)
    told = _put_refusals(plan, drafted, refused)
    plan["work"] = {
        **work.of_plan(plan, context, request.only),
        **measurements.of_proof(plan, context, request, drafted.wish.gpus_ignore, told),
    }
    return document.judged(plan, request)


def _put_refusals(plan: Plan, drafted: Draft, refused: list[Refusal]) -> list[Check]:
    """What stands against a change ends the plan of one; a diagnosis goes on, and has it among its checks: those."""
    told = refusals.as_checks(drafted.conflicts, refused) if drafted.request.diagnoses else []
    plan["refusals"] = [] if told else refused
    plan["ok"] = not plan["refusals"]
    plan["checks"] = [*plan["checks"], *told]
    return told


def _taken(drafted: Draft, answer: PackageIndex, context: Context, *, changes: bool) -> tuple[list[Taken], list[str]]:
    """What the transaction takes away, and what any transaction of the run may. ``changes``: whether the plan changes the driver."""
    facts, request = context.facts, drafted.request
    of_driver = taking.of_driver(facts, changes=changes) | set(drafted.replaced)
    ours = of_driver | taking.of_records(facts) | set(drafted.state["packages"] if drafted.state else ())
    start = drafted.keep.get(EVERY_PACKAGE)
    of_the_set = {row["name"] for row in answer["install"] if start and row["version"].startswith(start)}
    takes = taking.judged(
        [*taking.of_repair(facts), *taking.of_transaction(answer, facts["packages"]["holds"] or ())],
        of_driver,
        ours,
        {*drafted.packages, *of_the_set},
        request.allow_remove,
    )
    return takes, sorted({*ours, *request.allow_remove, *(row["name"] for row in takes if row["because"])})


def _with_wheels(change: Change, wheels: python_query.Wheels) -> Change:
    """A change with the wheels of its environments; of one that the index says nothing of neither version nor size is known."""
    rows: list[ChangedPackage] = [
        {"name": each.demand.name, "version": each.file["version"], "download_bytes": each.file["size"]}
        for each in wheels.there
        if each.demand.environment in change["files"]
    ]
    rows += [
        {"name": each.demand.name, "version": None, "download_bytes": None}
        for each in wheels.unverified
        if each.demand.environment in change["files"]
    ]
    return {**change, "wheels": rows}


def _left_out(problems: Sequence[IndexProblem]) -> set[str]:
    """The sources of others that do not answer."""
    sources = {row.get("source") for row in problems if not row.get("needed", True)}
    return {source for source in sources if source}


def _answered(drafted: Draft, versions: Mapping[str, str], sets: PackageExchange | None) -> Context:
    """What the findings are made from, with what the index said; a member is named once."""
    context = replace(drafted.context, versions=versions, leaves=sets["leaves"] if sets else ())
    named = () if drafted.replaced else upgrading.companions(context, drafted.request)
    return replace(context, companions=list(dict.fromkeys([*context.companions, *named])))


def _put_ways_back(plan: Plan, drafted: Draft, context: Context) -> None:
    """What a plan says of the drivers before and after it."""
    facts, request, state = context.facts, drafted.request, drafted.state
    changes = nvidia_driver.NAME in plan["components"]
    remember = rollback.working(facts) if changes else None
    brings = nvidia_driver.target_driver(context) if changes else None
    plan["failing"] = rollback.failing(facts, plan["checks"], changes=remember is not None)
    plan["remember"] = {**remember, "failing": plan["failing"] or []} if remember else None
    plan["brings"] = brings
    plan["way_back"] = state is None and rollback.is_there(facts, remember, brings, context.stack.get("driver"))
    plan["restore"] = rollback.work(state, facts) if state else None
    plan["gave_way"] = rollback.rolled_back_from(facts, request.begun, request.failure) if state else None


def _from_controller(stack: Stack, wish: Wish) -> str | None:
    """The file on the controller that the driver comes from: this run's own nvidia_driver_runfile, where it is no address, and nothing
    that a node has said.
    """
    driver, given = stack.get("driver"), wish.driver_runfile
    file = driver.get("runfile") if driver else None
    return given if file and file["addresses"] == [given] and not rollback.is_address(given) else None


def _with_branch(changes: list[Change], context: Context, why: Sequence[Why]) -> list[Change]:
    """The changes; that the driver leaves its branch is told as that and with the reason, not by the packages that it takes."""
    driver, seen = context.stack.get("driver"), context.facts["driver"]
    there = seen["user_version"] or seen["loaded_version"]
    if not driver or not there or driver["adopted"] or numeric_version.major(there) == driver["branch"]:
        return changes
    because = next((f" ({row['text']})" for row in why if row["rule"] == "driver.branch"), "")
    reason = f"the driver leaves branch {numeric_version.major(there)} for {driver['branch']}{because}"
    return [
        {**change, "reason": reason}
        if change["component"] == nvidia_driver.NAME and change["action"] in ("install", "upgrade")
        else change
        for change in changes
    ]
