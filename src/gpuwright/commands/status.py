"""`gpuwright status`: which driver each host is on, held or drifting. Observes and judges; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, ends, exits, hostrun, knowledge, records, show_status

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from gpuwright.request import Request
    from gpuwright.runner import Outcome


def run(args: argparse.Namespace) -> int:
    """Look at the hosts and show what they are on."""
    wanted = hostrun.prepare(args, playbook="status", needs_root=False)
    with ends.at_work(wanted):
        return _tell(args, wanted)


def _tell(args: argparse.Namespace, wanted: Request) -> int:
    outcome = hostrun.execute(wanted, "looking", verbosity=args.verbose)
    plans = records.plans(wanted.run_dir)
    failed = {
        host: outcome.failed.get(host, "the run ended before this host was looked at")
        for host in outcome.hosts
        if host not in plans and host not in outcome.unreachable
    }
    code = exit_code(plans, outcome, failed)
    hostrun.make_report(wanted, outcome, failed)
    if args.json:
        console.json_document(document(plans, outcome, failed, code))
    else:
        show_status.fleet(plans, outcome.unreachable, failed, each=args.verbose > 0)
    show_status.report_place(wanted.run_dir)
    return code


def exit_code(plans: Mapping[str, Plan], outcome: Outcome, failed: Mapping[str, str]) -> int:
    """The exit code of the run: 1 as soon as one host drifts, is not proven, is doubtful or was not seen."""
    lost = len(outcome.unreachable) + len(failed)
    doubtful = sum(1 for host in plans if outcome.distrust(host))
    return exits.combine([exits.of_status(plan) for plan in plans.values()] + [exits.FAILED] * (lost + doubtful))


def document(plans: Mapping[str, Plan], outcome: Outcome, failed: Mapping[str, str], code: int) -> dict[str, object]:
    """The JSON of `status`: the hosts, and the fleet by version."""
    hosts: dict[str, Mapping[str, object]] = {host: records.status_document(plan) for host, plan in plans.items()}
    hosts |= {host: records.without_record(why) for host, why in failed.items()}
    verdicts = [str(host["verdict"]) for host in hosts.values()]
    return {
        "verdict": exits.verdict_of(code, verdicts),
        "exit": code,
        "hosts": hosts,
        "unreachable": outcome.unreachable,
        "versions": knowledge.fleet().by_version(plans),
    }
