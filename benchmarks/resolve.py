"""How quick the resolver is: the hardest question from start to end, and ten thousand nodes in one process.

The hardest question has several cards that differ, asks for every component by version and cannot be met, so that the nearest wish that
can be met is searched for. The nodes differ in card, system, kernel and wish; what one costs must not grow with the number before it.

    python -m benchmarks.resolve [--nodes N] [--rounds N] [--json] [--check]
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import date
from typing import Any

from benchmarks.startup import gpuwright, measure
from tests.unit.plan import nodes as observed

# What --check holds: seconds of the hardest question, seconds of 10,000 nodes, and the last thousand against the first.
HARDEST, NODES, GROWTH = 0.25, 20.0, 1.2
_MET, _REFUSED = 0, 3
_TODAY = date(2026, 11, 20)

CARDS = ["TITAN V", "RTX A5500 Laptop GPU", "H20", "Quadro P600 Mobile", "V100"]
WANTS = [
    "driver=450",
    "driver-modules=open",
    "driver-source=nvidia",
    "driver-set=compute",
    "cuda=13.0",
    "cudnn=9.28.0.42",
    "nccl=2.27.7",
    "tensorrt=10.13",
    "container-toolkit",
    "cuda-compat=auto",
    "torch==2.3.0+cu121",
    "tensorflow>=2.18",
    "jax[cuda13]",
    "dali==1.22.0+cuda110",
    "python=3.9",
]
_PCI = ("2330", "20b2", "26b9", "1eb8", "1db5", "2684", "2b85", "1b06", "2901", "249d")
_KERNELS = ("6.8.0-45-generic", "6.11.0-19-generic")
_WISHES: tuple[list[str], ...] = (
    ["cuda", "container-toolkit", "pytorch"],
    ["driver=580", "cuda=12.8", "cudnn", "pytorch"],
    ["pytorch>=2.7"],
    ["cuda=13.0", "torch==2.3.0+cu121"],
    [],
)
_COUNTS = (1, 8)
# Two hundred: a thousand nodes hold each kind five times, in the same order.
_KINDS = len(_PCI) * len(_KERNELS) * len(_COUNTS) * len(_WISHES)


def hardest() -> list[str]:
    command = [gpuwright(), "resolve", "--json", "--os", "ubuntu-24.04", "--arch", "x86_64"]
    command += ["--assume", "kernel=6.8.0-45-generic", "--assume", "nvswitch=true"]
    command += [word for card in CARDS for word in ("--gpu", card)]
    return command + [word for want in WANTS for word in ("--want", want)]


def commands() -> dict[str, list[str]]:
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "resolve --json, one card": [gpuwright(), "resolve", "--json", "--gpu", "H100", "--os", "ubuntu-24.04"],
        "resolve --json, the hardest question": hardest(),
    }


def nodes(facts: Any, number: int) -> Iterator[tuple[Any, list[str]]]:
    """Observations that differ, with what is wanted there."""
    kinds = itertools.cycle(itertools.product(_PCI, _KERNELS, _COUNTS, _WISHES))
    for device, kernel, count, wants in itertools.islice(kinds, number):
        node = copy.deepcopy(facts)
        node["kernel"] |= {"running": kernel, "next": kernel}
        node["pci"]["gpus"] = [
            {**observed.H100, "bus_id": f"00000000:{bus + 16:02X}:00.0", "device": device} for bus in range(count)
        ]
        yield node, wants


def resolve_all(number: int) -> list[float]:
    """The seconds of processor time that each node took, from its observation to its answer as bytes."""
    from gpuwright import paths

    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import wish

    table = rules.load_rules()
    taken = []
    for facts, wants in nodes(_facts(), number):
        begun = time.process_time()
        wished = wish.Wish.from_variables({"gpuwright_want": wants}, table)
        where = machine.machine_from_facts(facts, wished, table, today=_TODAY)
        json.dumps(resolver.resolve(where, wished, table))
        taken.append(time.process_time() - begun)
    return taken


def quickest(taken: list[float]) -> float:
    """The mean over the kinds of nodes, of each kind the quickest: what else the machine does makes some of them slow."""
    return statistics.fmean(min(taken[kind::_KINDS]) for kind in range(min(_KINDS, len(taken))))


def _facts() -> Any:
    """A bare Ubuntu 24.04 host."""
    system = {"id": "ubuntu", "version": "24.04", "codename": "noble", "glibc": "2.39"}
    python = {"path": "/usr/bin/python3.12", "version": "3.12.3", "venv": True}
    kernel: dict[str, Any] = {"installed": [], "loaded": {}}
    return observed.bare(os=system, kernel=kernel, python={"interpreters": [python]}, packages={"sources": []})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000, help="how many nodes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="how often each command is run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is passed")
    options = parser.parse_args()
    medians = measure(commands(), options.rounds, accepted=(_MET, _REFUSED))
    base, one, worst = medians.values()
    taken = resolve_all(options.nodes)
    edge = min(1000, options.nodes // 2)
    first, last = quickest(taken[:edge]), quickest(taken[-edge:])
    figures = {
        "hardest_seconds": round(worst, 4),
        "hardest_ratio": round(worst / base, 2),
        "one_card_seconds": round(one, 4),
        "one_card_ratio": round(one / base, 2),
        "hardest_to_one_card": round(worst / one, 2),
        "nodes": len(taken),
        "nodes_seconds": round(sum(taken), 2),
        "nodes_ratio": round(sum(taken) / base, 0),
        "first_node_ms": round(first * 1000, 3),
        "last_node_ms": round(last * 1000, 3),
        "growth": round(last / first, 2),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):<22} {value:>10}")
    passed = worst > HARDEST or sum(taken) > NODES * len(taken) / 10_000 or last > first * GROWTH
    return 1 if options.check and passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
