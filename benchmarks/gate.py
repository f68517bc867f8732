"""What the gate costs: its time for one node's facts as a multiple of reading the same JSON and of planning with it, and what a hostile
answer of 40 MiB costs the controller's memory.

    python -m benchmarks.gate [--facts FILE]

FILE is a host's observation from a run directory (facts/HOST.json); without it the one of the unit tests is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.gate import honest

ROOT = Path(__file__).resolve().parents[1]
HUGE = 40 * 1024**2
#: Runs a program and prints the most memory that it or a child of it had, in KiB.
MEASURE = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def seconds(work: Callable[[], object], rounds: int = 50) -> float:
    """Processor time of the quickest of some rounds: other work on the machine only adds to it."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def times(said: str) -> dict[str, float]:
    """Seconds for one node: reading its JSON, the gate, a plan."""
    facts = json.loads(said)["facts"]
    rules, wish = load_rules(), Wish.from_variables({}).with_defaults()
    request = Request(host="node", today=date(2026, 11, 20))

    def plan() -> None:
        drafted = make_draft(facts, wish, rules, request)
        if isinstance(drafted, Draft):
            finish(drafted, None)

    return {
        "read": seconds(lambda: json.loads(said)),
        "gate": seconds(lambda: gate.admit("node_facts", said)),
        "plan": seconds(plan),
    }


def memory(size: int) -> int:
    """KiB that `ansible-playbook` needs at most for one host that answers with so many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = {str(number): "x" * 100 for number in range(size // 112)}
        (place / "answer").write_text(honest.said(honest.bare(unknown=rows)))
        (place / "python").write_text(f"#!/bin/sh\ncat >/dev/null\ncat {place}/answer\n")
        (place / "python").chmod(0o755)
        book = [{"hosts": "all", "gather_facts": False, "tasks": [{"gpuwright.node.plan": {}}]}]
        (place / "book.json").write_text(json.dumps(book))
        variables = {
            "ansible_connection": "local",
            "ansible_pipelining": True,
            "ansible_python_interpreter": f"{place}/python",
        }
        variables["gpuwright_run_dir"] = f"{place}/run"
        play = Path(sys.executable).with_name("ansible-playbook")
        command = [sys.executable, "-c", MEASURE, play, "-i", "evil,", "-e", json.dumps(variables), place / "book.json"]
        env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")}
        ended = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, check=True)
        return int(ended.stdout)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path)
    arguments = parser.parse_args()
    facts = json.loads(arguments.facts.read_text()) if arguments.facts else honest.provisioned()
    said = honest.said(facts)
    found = times(said)
    idle, huge = memory(1000), memory(HUGE)
    result = {
        "bytes": len(said),
        "milliseconds": {name: round(value * 1000, 2) for name, value in found.items()},
        "gate_as_multiple_of_reading": round(found["gate"] / found["read"], 1),
        "gate_as_part_of_a_plan": round(found["gate"] / found["plan"], 2),
        "memory_mib": {"an ordinary answer": idle // 1024, "one of 40 MiB": huge // 1024},
    }
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
