"""What the verbs that work on hosts have in common: check the options, run the playbook, tell the result."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from gpuwright import (
    console,
    exits,
    knowledge,
    paths,
    privilege,
    progress,
    records,
    request,
    resume,
    runner,
    runs,
    show,
    told,
)
from gpuwright.errors import BadInput, Refused

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import Lock
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record
    from gpuwright.request import Request
    from gpuwright.runner import Outcome


def prepare(
    args: argparse.Namespace, *, playbook: str, needs_root: bool, variables: Mapping[str, object] | None = None
) -> Request:
    """Turn options into a request; everything that can be refused without a host is refused here.

    Args:
        args: the parsed options.
        playbook: its name in the collection.
        needs_root: the verb does nothing useful without root.
        variables: what the verb has to say to its playbook besides.

    Raises:
        BadInput: an option is wrong.
        Refused: root is needed and there is no way to it.
    """
    refuse_limit_alone(args)
    paths.judge_configuration()
    wish = knowledge.read_variables(args.wish) if args.wish else {}
    for option, value in {"--wish": wish, "--want": args.want, "--report": args.report}.items():
        knowledge.refuse_templates(option, value)
    knowledge.check_wish(args.want, wish)
    lock = _lock(args, wish)
    knowledge.check_cards(args.gpu)
    if args.user and getattr(args, "security", False):
        raise BadInput(
            "--security is about the driver and its packages, which are root's; --user is for environments of your own",
            ["gpuwright upgrade --user moves these to the newest"],
        )
    if args.allow_source and not args.user:
        raise BadInput(
            "--allow-source has code of others run with the run, and root builds nothing: it is for a run of your own",
            [f"gpuwright {args.verb} --user --allow-source {args.allow_source[0]}, without sudo"],
        )
    way = privilege.decide(
        local=not args.inventory,
        needed=needs_root,
        ask=args.ask_become_pass,
        user=args.user,
        ansible_options=args.ansible_options,
    )
    if not way.privileged and not args.user:
        console.note("not root: what only root can see stays unknown and is named (run with sudo, or with -K)")
    run_dir = paths.run_directory(args.report)
    wanted = request.build(args, run_dir=run_dir, playbook=playbook, privilege=way, wish=wish, lock=lock)
    after_boot = resume.prepare(args, wanted, os.environ)
    paths.make_run_directory(run_dir)
    more = {**(variables or {}), **({"gpuwright_resume": after_boot} if after_boot else {})}
    return replace(wanted, extra_vars={**wanted.extra_vars, **more}) if more else wanted


def refuse_limit_alone(args: argparse.Namespace) -> None:
    """Refuse `--limit` where there is nothing to choose from.

    Raises:
        BadInput: so it is.
    """
    if args.limit and not args.inventory:
        raise BadInput("--limit chooses from an inventory: give one with -i")


def execute(wanted: Request, title: str, *, verbosity: int) -> Outcome:
    """Run the playbook and show its progress."""
    with (
        _no_folder_of_a_refusal(wanted.run_dir, asked_for=wanted.report_asked_for),
        progress.choose(title, verbosity=verbosity, read=partial(records.downloaded, wanted.run_dir)) as shown,
    ):
        return runner.run(wanted, shown.take)


@contextlib.contextmanager
def _no_folder_of_a_refusal(run_dir: Path, *, asked_for: bool) -> Iterator[None]:
    """What is refused before the first host was a run of nothing: `gpuwright runs` does not list it."""
    try:
        yield
    except (BadInput, Refused):
        if not asked_for and not (run_dir / "hosts").exists():
            paths.remove_run_directory(run_dir)
        raise


def tell_results(
    args: argparse.Namespace,
    wanted: Request,
    outcome: Outcome,
    *,
    code_of: Callable[[Record], int],
    fallback_to_plans: bool = False,
) -> int:
    """Make the report, show the result of each host and return the exit code of the run.

    Args:
        args: the parsed options.
        wanted: what was run.
        outcome: what the events told.
        code_of: one host's record to its exit code.
        fallback_to_plans: a host without a result is judged by its plan, which carries the passive checks.
    """
    found = records.results(wanted.run_dir)
    if fallback_to_plans:
        # What is shown and judged of a result, a plan has by the same names.
        found = cast("dict[str, Record]", records.plans(wanted.run_dir)) | found
    complete = with_every_host(found, outcome, code_of)
    lost = outcome.unreachable
    for host in lost:
        complete.pop(host, None)
    codes = [code_of(record) for record in complete.values()] + [exits.FAILED] * len(lost)
    code = exits.combine(codes)
    ours = {host: record for host, record in complete.items() if record is not found.get(host)}
    failed = {
        host: record["failure"]["message"]
        for host, record in ours.items()
        if record["verdict"] == "fail" and record["failure"]
    }
    make_report(wanted, outcome, failed, [host for host in ours if host not in failed])
    if args.json:
        verdict = exits.verdict_of(code, [str(record.get("verdict")) for record in complete.values()])
        documents = {host: records.result_document(record) for host, record in complete.items()}
        console.json_document({"verdict": verdict, "exit": code, "hosts": documents, "unreachable": lost})
    else:
        show.results(complete if args.verbose else told.only_new(complete), lost)
    show.report_place(wanted.run_dir)
    if not args.report:
        runs.prune()
    return code


def make_report(wanted: Request, outcome: Outcome, failed: Mapping[str, str], not_reached: Sequence[str] = ()) -> None:
    """Write the report of the run, where the playbook wrote none or could not know all of it.

    Args:
        wanted: what was run.
        outcome: what the events told.
        failed: host → why what it left behind is not its result.
        not_reached: hosts that the run did not come to.
    """
    if not outcome.reported or outcome.unreachable or failed or not_reached:
        knowledge.aggregate(wanted.run_dir, wanted.verb, outcome.unreachable, failed, not_reached)


def with_every_host(
    found: Mapping[str, Record], outcome: Outcome, code_of: Callable[[Record], int]
) -> dict[str, Record]:
    """The records, and one for every host that was met and left none or no credible one: it is not proven."""
    complete = dict(found)
    for host, record in found.items():
        doubt = outcome.distrust(host)
        if doubt and code_of(record) in {exits.DONE, exits.REBOOT}:
            complete[host] = {**record, **records.without_record(doubt)}
    for host in outcome.hosts:
        if host not in complete and host not in outcome.unreachable:
            complete[host] = _unfinished(host, outcome)
    return complete


def _unfinished(host: str, outcome: Outcome) -> Record:
    """The result of a host without a record: something failed there, or an earlier host stopped the run."""
    if host in outcome.failed:
        return cast("Record", records.without_record(outcome.failed[host]))
    if outcome.complete:
        return cast("Record", records.without_record("the run stopped before it came to this host", "incomplete"))
    return cast("Record", records.without_record("Ansible ended in the middle of the run"))


def _lock(args: argparse.Namespace, wish: Mapping[str, object]) -> Lock | None:
    return knowledge.read_lock(args.lock, args.want, wish) if args.lock else None
