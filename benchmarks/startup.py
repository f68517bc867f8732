"""How quick the command line starts: the time of a command as a multiple of `python -c pass`.

A ratio, because it carries from machine to machine better than seconds do. The commands take turns, so that whatever else the
machine does falls on all of them. Where other work runs beside it, `--processor` counts processor time, user and system, and
takes the least of the rounds.

    python benchmarks/startup.py [--rounds N] [--processor] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path


def gpuwright() -> str:
    """The program next to the Python that runs this, else the one on PATH."""
    neighbour = Path(sys.executable).parent / "gpuwright"
    found = str(neighbour) if neighbour.exists() else shutil.which("gpuwright")
    if found is None:
        raise SystemExit("startup.py: no gpuwright next to this Python or on PATH; `make venv` installs it")
    return found


def commands() -> dict[str, list[str]]:
    program = gpuwright()
    resolve = [program, "resolve", "--gpu", "H100", "--os", "debian-13", "--json"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "gpuwright --version": [program, "--version"],
        "gpuwright resolve --json": resolve,
        "gpuwright resolve --json, PyTorch wished": [*resolve, "--want", "pytorch"],
        "gpuwright size --json, any card": [program, "size", "llama-3.1-70b", "--json"],
        "gpuwright size --json, training": [
            program,
            "size",
            "llama-3.1-405b",
            "--train",
            "--recompute",
            "full",
            "--json",
        ],
        "gpuwright size, one that does not fit": [program, "size", "llama-3.1-70b", "--gpu", "4090"],
        "gpuwright cost --json": [program, "cost", "--gpu", "H100", "--gpus", "64", "--json"],
        "gpuwright cost, a model and a plot": [program, "cost", "llama-3.1-8b", "--gpu", "l4"],
    }


def processor() -> float:
    """Seconds of processor time of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(
    command: Sequence[str], accepted: Collection[int] = (0,), clock: Callable[[], float] = time.perf_counter
) -> float:
    """The time of one run by a clock, wall time by itself; it must end with an accepted status."""
    begun = clock()
    ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    taken = clock() - begun
    if ended.returncode not in accepted:
        raise SystemExit(f"nothing to measure, `{' '.join(command)}` ended with {ended.returncode}")
    return taken


def measure(named: Mapping[str, Sequence[str]], rounds: int, accepted: Collection[int] = (0,)) -> dict[str, float]:
    """The median of each, in seconds. The first round warms caches and does not count."""
    samples: dict[str, list[float]] = {name: [] for name in named}
    for number in range(rounds + 1):
        for name, command in named.items():
            taken = seconds(command, accepted)
            if number:
                samples[name].append(taken)
    return {name: statistics.median(values) for name, values in samples.items()}


def least(named: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """The least processor time of each, in seconds: what work beside it adds is left out as far as it can be."""
    turns = [{name: seconds(each, clock=processor) for name, each in named.items()} for _turn in range(rounds + 1)]
    return {name: min(turn[name] for turn in turns) for name in named}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="how often each is run (default: %(default)s)")
    parser.add_argument("--processor", action="store_true", help="processor time in place of wall time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    medians = least(commands(), options.rounds) if options.processor else measure(commands(), options.rounds)
    base = medians["python -c pass"]
    rows = {name: {"seconds": round(value, 4), "ratio": round(value / base, 2)} for name, value in medians.items()}
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for name, row in rows.items():
        print(f"{name:<42} {row['seconds'] * 1000:8.1f} ms {row['ratio']:6.2f} ×")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
