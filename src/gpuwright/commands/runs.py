"""`gpuwright runs`: the runs of this user, one of them, and the end of those that nobody needs."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING

from gpuwright import console, exits, records, runs
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record

_HOW = {None: "is at work", "interrupted": "was interrupted", "killed": "was killed, or its machine went down"}
_HEADINGS = ("run", "verb", "started", "hosts", "verdict")


def run(args: argparse.Namespace) -> int:
    """List, show, open or prune."""
    if args.prune:
        return _prune(args)
    if args.keep is not None or args.days is not None:
        raise BadInput("--keep and --days say what --prune leaves: give --prune too")
    if args.run is None:
        if args.open:
            raise BadInput("--open needs a run", ["the newest one: gpuwright runs last --open"])
        return _list(args)
    return _show(args)


def _list(args: argparse.Namespace) -> int:
    found = runs.known()
    if args.json:
        console.json_document(
            {"ok": True, "directory": str(runs.directory()), "runs": [each.as_dict() for each in found]}
        )
    elif found:
        rows = [(each.name, each.verb, each.started, each.hosts, each.told) for each in found]
        console.out(console.table(rows, _HEADINGS, indent=0))
    else:
        console.note(f"there are no runs in {runs.directory()}")
    return exits.DONE


def _show(args: argparse.Namespace) -> int:
    chosen = runs.find(args.run)
    report = runs.report_of(chosen)
    page = chosen.path / "report.html"
    if args.json:
        console.json_document({"ok": True, "run": chosen.as_dict(), "report": report})
    else:
        rows = [(host, record.get("verdict"), _reason(record)) for host, record in report["hosts"].items()]
        rows += [(host, "unreachable", why) for host, why in (report.get("unreachable") or {}).items()]
        rows += [
            (host, "not reached", "the run ended before it came to this host")
            for host in report.get("not_reached") or ()
        ]
        if chosen.ended != "done":
            console.note(f"this run {_HOW[chosen.ended]}")
        console.out(console.table(rows, ("host", "verdict", "first reason"), indent=0))
        console.out(str(page))
    if args.open and not webbrowser.open(page.as_uri()):
        console.note(f"no browser was found: open {page} on a machine that has one")
    return exits.DONE


def _reason(record: Record) -> str:
    if failure := record.get("failure"):
        return "; ".join(filter(None, (failure["message"], records.rollback(record))))
    bad = [check for check in record.get("checks") or () if check.get("status") in ("fail", "incomplete")]
    return str(bad[0].get("reason")) if bad else records.rollback(record) or ""


def _prune(args: argparse.Namespace) -> int:
    if args.run is not None or args.open:
        raise BadInput("--prune takes no run: it leaves the newest --keep of those that are not older than --days")
    gone = runs.prune(
        runs.KEEP if args.keep is None else args.keep,
        runs.DAYS if args.days is None else args.days,
    )
    if args.json:
        console.json_document({"ok": True, "pruned": [each.name for each in gone]})
    else:
        console.out(f"{console.counted(len(gone), 'runs')} removed, {len(runs.known())} left")
    return exits.DONE
