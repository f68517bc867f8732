"""`gpuwright validate`: measure the node, fail closed, write the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import exits, hostrun

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Prove the hosts."""
    wanted = hostrun.prepare(args, playbook="validate", needs_root=True)
    outcome = hostrun.execute(wanted, "proving", verbosity=args.verbose)
    return hostrun.tell_results(args, wanted, outcome, code_of=exits.of_judgement)
