"""`gpuwright plan`: what `up` would do. Observes and resolves; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, ends, exits, hostrun, records, show, told

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from gpuwright.request import Request
    from gpuwright.runner import Outcome


def run(args: argparse.Namespace) -> int:
    """Plan and show the plan."""
    wanted = hostrun.prepare(args, playbook="site", needs_root=False)
    with ends.at_work(wanted):
        return _tell(args, wanted)


def _tell(args: argparse.Namespace, wanted: Request) -> int:
    plans, outcome = look(wanted, verbosity=args.verbose)
    failed = failed_without_plan(plans, outcome)
    code = exit_code(plans, outcome)
    hostrun.make_report(wanted, outcome, failed)
    if args.json:
        console.json_document(document(plans, outcome, code))
    else:
        shown = plans if args.verbose else told.only_new(plans)
        show.plans(shown, outcome.unreachable, failed, why=args.verbose > 0)
    show.report_place(wanted.run_dir)
    return code


def look(wanted: Request, *, verbosity: int) -> tuple[dict[str, Plan], Outcome]:
    """Plan: the plans by host, and what became of the hosts."""
    outcome = hostrun.execute(wanted.dry(), "planning", verbosity=verbosity)
    return records.plans(wanted.run_dir), outcome


def exit_code(plans: Mapping[str, Plan], outcome: Outcome) -> int:
    """The exit code of a planning run."""
    lost = len(outcome.unreachable) + len(failed_without_plan(plans, outcome))
    doubtful = any(exits.of_plan(plan) == exits.DONE and outcome.distrust(host) for host, plan in plans.items())
    return exits.combine([exits.of_plan(plan) for plan in plans.values()] + [exits.FAILED] * (lost + doubtful))


def failed_without_plan(plans: Mapping[str, Plan], outcome: Outcome) -> dict[str, str]:
    """Hosts that were reached and have no plan, with the reason."""
    return {
        host: outcome.failed.get(host, "the run ended before this host had a plan")
        for host in outcome.hosts
        if host not in plans and host not in outcome.unreachable
    }


def document(plans: Mapping[str, Plan], outcome: Outcome, code: int) -> dict[str, object]:
    """The JSON of `plan`. Changes that wait make the verdict `incomplete`: the node is not what was wished."""
    hosts: dict[str, Mapping[str, object]] = {host: records.plan_document(plan) for host, plan in plans.items()}
    hosts |= {host: records.without_record(why) for host, why in failed_without_plan(plans, outcome).items()}
    verdicts = [str(plan.get("verdict")) if not plan.get("changes") else "incomplete" for plan in plans.values()]
    return {
        "verdict": exits.verdict_of(code, verdicts),
        "exit": code,
        "hosts": hosts,
        "unreachable": outcome.unreachable,
    }
