"""`gpuwright doctor`: look for what is wrong and name the remedy. Observes and judges; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import ends, exits, hostrun

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Judge what one look at the hosts shows."""
    wanted = hostrun.prepare(args, playbook="doctor", needs_root=False)
    with ends.at_work(wanted):
        outcome = hostrun.execute(wanted, "looking", verbosity=args.verbose)
        return hostrun.tell_results(args, wanted, outcome, code_of=exits.of_judgement, fallback_to_plans=True)
