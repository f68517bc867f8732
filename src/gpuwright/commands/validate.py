"""`gpuwright validate`: measure the node, fail closed, write the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import ends, exits, hostrun
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Prove the hosts."""
    wanted = hostrun.prepare(args, playbook="validate", needs_root=True, variables=_variables(args))
    with ends.at_work(wanted):
        outcome = hostrun.execute(wanted, "proving", verbosity=args.verbose)
        return hostrun.tell_results(args, wanted, outcome, code_of=exits.of_judgement)


def _variables(args: argparse.Namespace) -> dict[str, object]:
    """What the options say to the role `validate`. What is not given is left to the inventory.

    Raises:
        BadInput: an option that is about a load, and none is asked for.
    """
    if args.duration is not None and args.profile != "burn-in":
        raise BadInput("--for is how long a burn-in takes", ["gpuwright validate --profile burn-in --for 12h"])
    if args.fabric and not args.inventory:
        raise BadInput("--fabric measures between hosts: give an inventory with -i")
    if args.busy and args.profile == "quick":
        raise BadInput(
            "--busy is about cards that are loaded, and quick loads none",
            ["gpuwright validate --profile standard --busy"],
        )
    if args.user and (args.profile or args.busy or args.boots is not None):
        raise BadInput("the cards and the kernel log are root's to prove; --user proves the environments of your own")
    given = {
        "validate_profile": args.profile,
        "validate_seconds": args.duration,
        "validate_busy": args.busy or None,
        "validate_boots": args.boots,
        "validate_fabric": args.fabric or None,
    }
    return {name: value for name, value in given.items() if value is not None}
