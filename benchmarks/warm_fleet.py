"""What a run over hosts that are already right costs: `site.yml` as a multiple of `ansible -m ping` over the same hosts.

One host that is right is measured under many names, so one simulated node is enough. Both commands use pipelining and the same
number of forks, and take turns. The run counts only when every host was looked at and had nothing to change.

    python benchmarks/warm_fleet.py -i INVENTORY [--host NAME] [--copies N] [--forks N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.executable).parent


def environment() -> dict[str, str]:
    """The environment of a measured command: its programs are those beside this Python, its collection is this one."""
    return {
        **os.environ,
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_HOST_KEY_CHECKING": "0",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
    }


def ansible(program: str, *arguments: str | Path) -> str:
    """The output of one of Ansible's programs, which must succeed."""
    command = [program, *map(str, arguments)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(
            f"warm_fleet.py: `{' '.join(command)}` ended with {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        )
    return ended.stdout


def variables(inventory: str, host: str | None) -> dict[str, Any]:
    """The variables of the named host, or of the only one."""
    listed = json.loads(ansible("ansible-inventory", "-i", inventory, "--list"))["_meta"]["hostvars"]
    names = list(listed)
    if host is None and len(names) != 1:
        raise SystemExit(
            f"warm_fleet.py: the inventory has {len(names)} hosts with variables; say which one with --host"
        )
    chosen = host or names[0]
    if chosen not in listed:
        raise SystemExit(
            f"warm_fleet.py: the inventory has no host {chosen} with variables; there are {', '.join(names) or 'none'}"
        )
    found = dict(listed[chosen])
    if found.get("ansible_connection") != "local":
        found.setdefault("ansible_host", chosen)
    return found


def write_inventory(path: Path, host: dict[str, Any], copies: int) -> None:
    """One host under many names, each with an ssh connection of its own, as different hosts would have."""
    names = [f"copy-{number:04}" for number in range(1, copies + 1)]
    hosts = {name: {**host, "ansible_control_path": str(path.parent / f"ssh-{name}")} for name in names}
    path.write_text(json.dumps({"all": {"hosts": hosts}}))


def seconds(program: str, arguments: Sequence[str | Path]) -> float:
    """The wall time of one run."""
    begun = time.perf_counter()
    ansible(program, *arguments)
    return time.perf_counter() - begun


def look_first(inventory: Path, run_dir: Path, extra: Sequence[str]) -> None:
    """One host in check mode: a host that is not right would really be changed by what is measured, once for each name."""
    ansible(
        "ansible-playbook",
        ROOT / "site.yml",
        "-i",
        inventory,
        "--limit",
        "copy-0001",
        "--check",
        *extra,
        "-e",
        f"gpuwright_run_dir={run_dir}",
    )
    must_have_been_right(run_dir, 1)


def must_have_been_right(run_dir: Path, copies: int) -> None:
    """Fewer plans than hosts, or a plan with something in it, and the number would mean nothing."""
    # Of a host that stays as it is the plan is packed.
    plans = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted((run_dir / "plans").glob("copy-*.gz"))]
    if len(plans) != copies:
        raise SystemExit(f"warm_fleet.py: {len(plans)} of {copies} hosts have a plan")
    for plan in plans:
        if plan["skipped"]:
            raise SystemExit(f"warm_fleet.py: {plan['host']} is skipped ({plan['skipped']}), nothing was measured")
        if plan["components"] or not plan["ok"]:
            reasons = "; ".join(f"{change['component']}: {change['reason']}" for change in plan["changes"])
            raise SystemExit(
                f"warm_fleet.py: {plan['host']} is not right, nothing was measured ({reasons or plan['why_not']})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "-i", "--inventory", required=True, help="an inventory with a host that is right (`gpuwright up` ended with 0)"
    )
    parser.add_argument("--host", help="which host of it (default: the only one)")
    parser.add_argument("--copies", type=int, default=200, help="under how many names (default: %(default)s)")
    parser.add_argument("--forks", type=int, default=10, help="Ansible's forks (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each command runs (default: %(default)s)")
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], help="for site.yml, as the host was brought up with"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()

    samples: dict[str, list[float]] = {"ping": [], "site.yml": []}
    with tempfile.TemporaryDirectory(prefix="warm-fleet-") as folder:
        inventory = Path(folder, "hosts.json")
        write_inventory(inventory, variables(options.inventory, options.host), options.copies)
        forks: list[str | Path] = ["-i", inventory, "--forks", str(options.forks)]
        extra = [word for value in options.extra_vars for word in ("-e", value)]
        look_first(inventory, Path(folder, "look"), extra)
        for number in range(options.rounds):
            run_dir = Path(folder, f"run-{number}")
            samples["ping"].append(seconds("ansible", ["all", *forks, "-m", "ansible.builtin.ping"]))
            site: list[str | Path] = [ROOT / "site.yml", *forks, *extra, "-e", f"gpuwright_run_dir={run_dir}"]
            samples["site.yml"].append(seconds("ansible-playbook", site))
            must_have_been_right(run_dir, options.copies)

    medians = {name: statistics.median(values) for name, values in samples.items()}
    row = {
        "hosts": options.copies,
        "forks": options.forks,
        "cores": os.cpu_count(),
        "ping_seconds": round(medians["ping"], 2),
        "site_seconds": round(medians["site.yml"], 2),
        "ratio": round(medians["site.yml"] / medians["ping"], 2),
    }
    if options.json:
        print(json.dumps(row, indent=2))
    else:
        print(
            "{hosts} hosts, {forks} forks, {cores} cores: ping {ping_seconds} s, site.yml {site_seconds} s, {ratio} ×".format(
                **row
            )
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
