"""`gpuwright top`: what the cards of this machine or of an inventory do now, or a day of their log. Changes nothing."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuwright import card_looks, console, exits, hostrun, show_top
from gpuwright.errors import BadInput, Failed, Interrupted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpuwright.card_looks import Day, Look

#: Seconds between two looks: of this machine, and of hosts, each of which starts Ansible.
_HERE, _THERE = 2.0, 10.0


def run(args: argparse.Namespace) -> int:
    """Show one sample, refresh it, or draw a day."""
    hostrun.refuse_limit_alone(args)
    if not args.inventory and (args.extra_vars or args.vault_password_file or args.ansible_options):
        raise BadInput("-e, --vault-password-file and `--` are for the hosts of an inventory: give one with -i")
    source = card_looks.There(args) if args.inventory else card_looks.Here()
    if args.day is not None:
        return _day(args, source.day(_wished(args.day)))
    refreshed = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not args.once and not args.json
    first = source(shown=True) if isinstance(source, card_looks.There) else source()
    if isinstance(source, card_looks.Here) and not args.json:
        _refuse_nothing(source, first, waits=refreshed)
    if refreshed:
        return _refresh(source, first, args.interval or (_THERE if args.inventory else _HERE))
    code = exits.DONE if first.whole else exits.FAILED
    if args.json:
        console.json_document(document(first, code))
    else:
        console.draw(show_top.table(first))
    return code


def document(look: Look, code: int) -> dict[str, object]:
    """The JSON of one sample."""
    verdicts = ["fail" if card_looks.is_short(host) else "pass" for host in look.hosts.values()]
    verdict = exits.verdict_of(code, verdicts)
    return {"verdict": verdict, "exit": code, "hosts": look.hosts, "unreachable": look.unreachable}


def _wished(text: str) -> str:
    day = text or datetime.now(UTC).strftime("%Y-%m-%d")
    if not card_looks.is_day(day):
        raise BadInput(f"--day: expected a day as YYYY-MM-DD, found {day!r}", ["without a day it is today (UTC)"])
    return day


def _refuse_nothing(source: card_looks.Here, first: Look, *, waits: bool) -> None:
    """End where this machine has nothing to show; a terminal waits for what does not answer yet.

    Raises:
        Failed: with what to do.
    """
    (found,) = first.hosts.values()
    if found["problem"] is None or found["cards"] or (waits and source.hangs):
        return
    remedy = "`gpuwright doctor` says why; `gpuwright up` installs a driver, where none is there"
    raise Failed(found["problem"], [remedy])


def _refresh(source: Callable[[], Look], look: Look, interval: float) -> int:
    """Show what the cards do until Ctrl-C."""
    from rich.live import Live

    note = f"every {interval:g} s; Ctrl-C ends it"
    try:
        with Live(show_top.table(look, note), console=console.screen(), auto_refresh=False) as live:
            live.refresh()
            while True:
                time.sleep(interval)
                live.update(show_top.table(source(), note), refresh=True)
    except (KeyboardInterrupt, Interrupted):
        return exits.DONE


def _day(args: argparse.Namespace, day: Day) -> int:
    if args.json:
        console.json_document({"host": day.host, "day": day.day, "columns": day.columns, "rows": day.rows})
        return exits.DONE
    from gpuwright import day_plot

    if not day_plot.cards(day):
        raise Failed(f"no card told anything on {day.day} on {day.host}", ["--json shows the rows with their reasons"])
    console.out(f"{day.host}, {day.day} (UTC)")
    for part in day_plot.draw(day, console.page_width(), colours=console.wants_colours(sys.stdout)):
        console.draw(part)
        console.out()
    return exits.DONE
