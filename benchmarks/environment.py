"""How long an environment takes that our module builds, as a multiple of `uv pip install` of the same pins by hand.

Cold: nothing is downloaded yet, and our side brings its own uv. Warm: what is downloaded is there, as after a build that was cut off, so
that what is left is the build itself. Both sides fill a virtual environment that Python made, compile its modules as pip does, and take
turns; by hand uv is there already. The pins are those that our first build chose. Nothing is installed on this machine.

    python -m benchmarks.environment [--rounds N] [--warm N] [--index-url URL] [--json] [REQUIREMENT …]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import work

REQUIREMENTS = ["jax==0.4.38"]
GOALS = {"cold": 1.10, "warm": 1.25}
_OURS = (
    "import json, sys; from ansible_collections.gpuwright.node.plugins.module_utils.packages import uv, wheels; "
    "print(json.dumps(wheels.install(json.load(sys.stdin), other=uv.install)))"
)


@dataclass
class Bench:
    """A folder in which both sides work, each with its own cache, and what they took."""

    folder: Path
    requirements: Sequence[str]
    index_url: str | None
    pins: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """The cache of the uv that is run by hand."""
        return self.folder / "cache"

    @property
    def aside(self) -> Path:
        """What ours works in."""
        return self.folder / ".uv"

    def empty(self) -> Path:
        """A new virtual environment, which belongs to neither side's time."""
        path = self.folder / "environment"
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
        return path

    def ours(self) -> float:
        """The seconds of our module's own work."""
        options: dict[str, Any] = {name: [] for name in ("constraints", "wheels", "credentials", "from_source")}
        options |= {"environment": str(self.empty()), "requirements": self.requirements, "record": True, "pip": None}
        options |= {
            "index_url": self.index_url,
            "dependencies_url": None,
            "uv": {**work.uv(), "directory": str(self.aside)},
        }
        seconds, said = self.timed([sys.executable, "-c", _OURS], json.dumps(options))
        answer = json.loads(said)
        if answer["builder"] != "uv":
            raise SystemExit(f"environment.py: uv did not build, nothing was measured: {answer['declined']}")
        record = (self.folder / "environment" / wheels.RECORD).read_text(encoding="utf-8")
        self.pins = [f"{each.name}=={each.version}" for each in wheels.pins(record)]
        return seconds

    def by_hand(self) -> float:
        """The seconds of uv, as a person calls it."""
        index = ["--default-index", self.index_url] if self.index_url else []
        uv = [
            str(Path(sys.executable).with_name("uv")),
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--no-config",
        ]
        uv += ["--cache-dir", str(self.cache), "--python", str(self.empty() / "bin/python"), *index, *self.pins]
        return self.timed(uv, "")[0]

    def timed(self, argv: Sequence[str], given: str) -> tuple[float, str]:
        """The seconds of a program that must succeed, and what it says. What pip has in its cache is this folder's."""
        begun = time.perf_counter()
        done = subprocess.run(
            argv, input=given, text=True, capture_output=True, check=False, env={**os.environ, "HOME": str(self.folder)}
        )
        seconds = time.perf_counter() - begun
        if done.returncode:
            raise SystemExit(
                f"environment.py: {argv[0]} ended with {done.returncode}, nothing was measured\n{done.stderr[-3000:]}"
            )
        return seconds, done.stdout

    def round(self, kind: str, turn: int) -> None:
        """One build of each side. Every second round goes the other way, so that neither is always the first."""
        sides = {"ours": self.ours, "by hand": self.by_hand}
        for side in list(sides)[:: -1 if turn % 2 else 1]:
            if kind == "cold":
                for path in (self.aside, self.cache, self.folder / ".cache"):
                    shutil.rmtree(path, ignore_errors=True)
            self.seconds.setdefault(f"{kind}, {side}", []).append(sides[side]())

    def told(self) -> dict[str, Any]:
        """The least seconds of each side, since what else the machine does only adds to them, and ours as a multiple."""
        least = {name: round(min(seconds), 2) for name, seconds in self.seconds.items()}
        kinds = [kind for kind in GOALS if f"{kind}, ours" in least]
        ratios = {kind: round(least[f"{kind}, ours"] / least[f"{kind}, by hand"], 2) for kind in kinds}
        return {"pins": self.pins, "seconds": least, "ratios": ratios, "all": self.seconds}


def measure(requirements: Sequence[str], index_url: str | None, cold: int, warm: int) -> dict[str, Any]:
    """The rounds of both kinds. The first cold one is what the warm ones find downloaded."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        bench = Bench(Path(folder), requirements, index_url)
        for turn in range(cold):
            bench.round("cold", turn)
        # Each side's own, of which the last cold round took one away.
        bench.ours()
        bench.by_hand()
        for turn in range(warm):
            bench.round("warm", turn)
        return bench.told()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "requirements", nargs="*", default=REQUIREMENTS, help=f"pins (default: {' '.join(REQUIREMENTS)})"
    )
    parser.add_argument("--rounds", type=int, default=2, help="cold rounds, each of which downloads everything twice")
    parser.add_argument("--warm", type=int, default=5, help="warm rounds")
    parser.add_argument("--index-url", help="index of the pins (default: that of the host's pip)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    told = measure(given.requirements, given.index_url, given.rounds, given.warm)
    if given.json:
        print(json.dumps(told))
        return 0
    print("\n".join(told["pins"]))
    for name, seconds in told["seconds"].items():
        print(f"{name}: {seconds} s")
    for kind, ratio in told["ratios"].items():
        print(f"{kind}: {ratio} × (goal {GOALS[kind]} ×)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
