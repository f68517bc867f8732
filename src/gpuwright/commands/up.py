"""`gpuwright up`: observe, resolve, apply what the plan names, prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, ends, exits, hostrun, paths, show, told
from gpuwright.commands import plan as planning
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from gpuwright.request import Request
    from gpuwright.runner import Outcome


_PLAYBOOKS = {"remove": "remove"}
_TITLES = {"up": "bringing the node up", "upgrade": "upgrading", "rollback": "rolling back", "remove": "removing"}


def run(args: argparse.Namespace) -> int:
    """Bring the hosts to what the verb means. The plan is shown and confirmed first, unless `--yes`."""
    wanted = hostrun.prepare(args, playbook=_PLAYBOOKS.get(args.verb, "site"), needs_root=True)
    with ends.at_work(wanted):
        return _apply(args, wanted) if args.yes else _ask(args, wanted)


def _ask(args: argparse.Namespace, wanted: Request) -> int:
    """Show the plan, and apply it where that is wanted."""
    plans, outcome = planning.look(wanted, verbosity=args.verbose)
    if not any(exits.of_plan(plan) == exits.DONE and plan.get("changes") for plan in plans.values()):
        # Nothing to ask about. The plan of such a host is its result, and is in the run directory as such.
        return hostrun.tell_results(args, wanted, outcome, code_of=exits.of_result)
    if args.json or not console.interactive():
        _end_unapplied(wanted, plans, outcome)
        return _only_shown(args, wanted, plans, outcome)
    _show(args, plans, outcome)
    if not console.ask("Apply this plan?"):
        console.note("nothing was changed")
        _end_unapplied(wanted, plans, outcome)
        show.report_place(wanted.run_dir)
        return exits.BAD_INPUT
    paths.clear_records(wanted.run_dir)
    return _apply(args, wanted)


def _end_unapplied(wanted: Request, plans: Mapping[str, Plan], outcome: Outcome) -> None:
    hostrun.make_report(wanted, outcome, planning.failed_without_plan(plans, outcome))


def _show(args: argparse.Namespace, plans: Mapping[str, Plan], outcome: Outcome) -> None:
    shown = plans if args.verbose else told.only_new(plans)
    show.plans(shown, outcome.unreachable, planning.failed_without_plan(plans, outcome))


def _apply(args: argparse.Namespace, wanted: Request) -> int:
    outcome = hostrun.execute(wanted, _TITLES[args.verb], verbosity=args.verbose)
    return hostrun.tell_results(args, wanted, outcome, code_of=exits.of_result)


def _only_shown(args: argparse.Namespace, wanted: Request, plans: Mapping[str, Plan], outcome: Outcome) -> int:
    """Nobody can be asked: show the plan and change nothing.

    Raises:
        BadInput: always, without `--json`; with it the plan's document carries the exit code.
    """
    message = "there is nobody to ask whether to apply this plan: nothing was changed"
    if args.json:
        document = planning.document(plans, outcome, exits.BAD_INPUT)
        console.json_document(document | {"error": message, "suggestions": ["give --yes to apply it"]})
        show.report_place(wanted.run_dir)
        return exits.BAD_INPUT
    _show(args, plans, outcome)
    show.report_place(wanted.run_dir)
    raise BadInput(message, ["give --yes to apply it"])
