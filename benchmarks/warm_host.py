"""What the command line costs on a host that is already right: `up`, `plan` and `status` as multiples of `ansible -m setup` on it.

The commands take turns, so that whatever else the machine does falls on all of them. A command counts only when it ended with 0.

    python -m benchmarks.warm_host -i INVENTORY [--host NAME] [--rounds N] [--json] [-- OPTIONS OF gpuwright]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from benchmarks import startup, warm_fleet

FLOOR = "ansible -m setup"


def commands(inventory: Path, options: list[str]) -> dict[str, list[str]]:
    """The command lines by their names, on the only host of the inventory."""
    program = startup.gpuwright()
    verbs = {"up": ["up", "--yes"], "plan": ["plan"], "status": ["status"]}
    ours = {f"gpuwright {verb}": [program, *words, "-i", str(inventory), *options] for verb, words in verbs.items()}
    setup = [str(warm_fleet.PROGRAMS / "ansible"), "all", "-i", str(inventory), "-m", "ansible.builtin.setup"]
    return {FLOOR: setup, **ours}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "-i", "--inventory", required=True, help="an inventory with a host that is right (`gpuwright up` ended with 0)"
    )
    parser.add_argument("--host", help="which host of it (default: the only one)")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("options", nargs="*", help="behind --: for gpuwright, as the host was brought up with")
    options = parser.parse_args()
    os.environ.update(warm_fleet.environment())
    with tempfile.TemporaryDirectory(prefix="warm-host-") as folder:
        # Runs leave their records here and not among the user's.
        os.environ["XDG_STATE_HOME"] = folder
        inventory = Path(folder, "hosts.json")
        warm_fleet.write_inventory(inventory, warm_fleet.variables(options.inventory, options.host), 1)
        medians = startup.measure(commands(inventory, options.options), options.rounds)
    rows = {
        name: {"seconds": round(value, 3), "ratio": round(value / medians[FLOOR], 2)} for name, value in medians.items()
    }
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for name, row in rows.items():
        print(f"{name:<20} {row['seconds']:7.2f} s {row['ratio']:6.2f} ×")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
