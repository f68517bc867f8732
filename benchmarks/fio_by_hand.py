"""Whether the module fio measures what a person measures who types the same line: paired, in turns, the ratio of the medians.

    python -m benchmarks.fio_by_hand [--directory DIR] [--profile NAME] [--rounds N] [--seconds N] [--size SIZE] [--check] [--json]

By hand it is the line of the profile, typed here once more and read with nothing but Python's JSON. In each round it runs twice: held
against itself it tells how much of a ratio is the noise of the disk. Each run lays out files in a directory of its own and removes them,
each round begins with another of the three, and a run that does not end with 0 ends it all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: The ratio that is asked for.
LEAST, MOST = 0.97, 1.03
#: What a person types, by profile and part, and the figure that is compared: which side of fio's JSON, and which of its keys.
LINES: dict[str, tuple[str, str, str, str]] = {
    "guide-randread": ("randread", "--rw=randread --bs=4k --iodepth=32 --numjobs=4", "read", "iops"),
    "seqread": ("seqread", "--rw=read --bs=1M --iodepth=32 --numjobs=4", "read", "bw_bytes"),
    "seqwrite": ("seqwrite", "--rw=write --bs=1M --iodepth=32 --numjobs=1", "write", "bw_bytes"),
    "shards": ("shards", "--rw=randread --bs=128k --iodepth=16 --numjobs=8", "read", "bw_bytes"),
}
_OURS = (
    "import json, sys; from ansible_collections.gpuwright.node.plugins.modules import fio; "
    "print(json.dumps(fio.prove(json.load(sys.stdin), False)))"
)
_OPTIONS = ("iodepth", "numjobs", "timeout", "expected_read_mb", "expected_write_mb", "expected_iops")


def output(argv: Sequence[str], given: str = "", cwd: Path | None = None) -> Any:
    """What a program that must succeed says, as JSON."""
    done = subprocess.run(argv, input=given, text=True, capture_output=True, check=False, cwd=cwd)
    if done.returncode:
        raise SystemExit(
            f"fio_by_hand: {argv[0]} ended with {done.returncode}, nothing was measured\n{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout)


def by_hand(profile: str, directory: Path, seconds: int, size: str) -> float:
    """The figure of a line that a person types."""
    _part, line, side, what = LINES[profile]
    words = f"fio --name=hand --directory=. {line} --ioengine=libaio --direct=1 --size={size} --runtime={seconds}"
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        said = output([*words.split(), "--time_based", "--group_reporting", "--output-format=json"], cwd=Path(folder))
    return float(said["jobs"][0][side][what])


def by_module(profile: str, directory: Path, seconds: int, size: str) -> float:
    """The figure of the module for the same."""
    part, _line, _side, what = LINES[profile]
    options: dict[str, Any] = dict.fromkeys(_OPTIONS)
    options |= {"directory": str(directory), "profile": profile, "size": size, "runtime": seconds, "ramp": 0}
    options |= {"executable": "fio", "disk_class": "auto"}
    said = output([sys.executable, "-c", _OURS], json.dumps(options))
    measured = said["parts"].get(part, {})
    if what not in measured or measured["engine"] != "libaio" or not measured["direct"]:
        raise SystemExit(f"fio_by_hand: the module did not measure by libaio past the page cache: {said['checks']}")
    return float(measured[what])


def compared(hand: Sequence[float], ours: Sequence[float]) -> Mapping[str, float]:
    """The medians of both sides, ours as a multiple, and the least and the most multiple of a single round."""
    pairs = [module / person for person, module in zip(hand, ours, strict=True)]
    medians = statistics.median(hand), statistics.median(ours)
    return {
        "by hand": medians[0],
        "module": medians[1],
        "ratio": medians[1] / medians[0],
        "least of a round": min(pairs),
        "most of a round": max(pairs),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = Path("/var/tmp")  # noqa: S108 - folders of our own are made in it
    parser.add_argument("--directory", type=Path, default=where, help="on the disk that is measured")
    parser.add_argument("--profile", choices=sorted(LINES), default="guide-randread")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    parser.add_argument("--size", default="256M", help="of each job's file")
    parser.add_argument("--check", action="store_true", help=f"fail outside of {LEAST} to {MOST}")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if shutil.which("fio") is None:
        raise SystemExit("fio_by_hand: fio is not installed")
    sides = {"hand": by_hand, "ours": by_module, "hand again": by_hand}
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(asked.rounds):
        for name in (list(sides) * 2)[turn % 3 : turn % 3 + 3]:
            figures[name].append(sides[name](asked.profile, asked.directory, asked.seconds, asked.size))
    found = compared(figures["hand"], figures["ours"])
    noise = compared(figures["hand"], figures["hand again"])
    if asked.json:
        print(json.dumps({"profile": asked.profile, **found, "by hand against itself": noise["ratio"]}, indent=1))
    else:
        unit = LINES[asked.profile][3]
        print(f"{asked.profile}: by hand {found['by hand']:,.0f}, module {found['module']:,.0f} {unit}")
        for name, one in (("module", found), ("by hand against itself", noise)):
            print(
                f"{name}: {one['ratio']:.3f} x, single rounds {one['least of a round']:.3f} to {one['most of a round']:.3f} x"
            )
    return 1 if asked.check and not LEAST <= found["ratio"] <= MOST else 0


if __name__ == "__main__":
    raise SystemExit(main())
