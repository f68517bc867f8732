#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw the pictures of docs/monitoring.md and docs/sizing.md as the command line itself draws; with --check only compare what is
written in them.

The cards of the first are examples: a machine at work, one with a card that is too hot and one that is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path[:0] = [str(ROOT / "collections"), str(ROOT / "src")]

from rich.console import Console, RenderableType  # noqa: E402 - the path comes first
from rich.text import Text  # noqa: E402

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log  # noqa: E402
from gpuwright import card_looks, day_plot, parser, show_top  # noqa: E402
from gpuwright.commands import size  # noqa: E402

WIDTH = 104
DATE = "2026-11-26"
NOW = f"{DATE}T14:30:02Z"
#: Minutes of the day, and what the two cards of the plots do from then on: percent of their time, °C and W.
SHIFTS = {
    0: (0, 34, 71),
    8 * 60: (96, 68, 655),
    12 * 60 + 20: (61, 57, 430),
    13 * 60 + 5: (98, 71, 690),
    21 * 60 + 40: (0, 35, 73),
}


def sample(index: int, **values: Any) -> Any:
    """A card at work, but for the values that are given."""
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}",
        "utilization": 97.0,
        "memory_used": 68120.0,
        "memory_total": 81559.0,
        "temperature": 63.0,
        "power": 642.1,
        "power_limit": 700.0,
        "throttle": ["sw_power_cap"],
        "problem": None,
        **values,
    }


def fleet() -> Iterator[RenderableType]:
    """Three machines as `gpuwright top -i` has them."""
    lost: Any = {
        **dict.fromkeys(sample(1)),
        "index": 1,
        "problem": "GPU is lost. Reboot the system to recover this GPU",
    }
    hot = {"temperature": 88.0, "power": 511.4, "throttle": ["sw_thermal_slowdown", "hw_thermal_slowdown"]}
    idle = {"utilization": 0.0, "memory_used": 4.0, "temperature": 34.0, "power": 71.3, "throttle": ["gpu_idle"]}
    hosts = {
        "gpu01": [sample(0), sample(1, power=655.0)],
        "gpu02": [sample(0), sample(1, **hot)],
        "gpu03": [sample(0, **idle), lost],
    }
    looks: dict[str, card_looks.HostLook] = {
        host: {"time": NOW, "cards": found, "problem": None} for host, found in hosts.items()
    }
    yield show_top.table(card_looks.Look(looks), NOW)


def day() -> Iterator[RenderableType]:
    """A day of two cards as `gpuwright top --day` plots it."""
    rows = [row for minute in range(24 * 60) for row in _minute(minute)]
    log = "".join(",".join(row) + "\n" for row in [gpu_log.COLUMNS, *rows])
    yield from day_plot.draw(card_looks.parse("gpu01", DATE, log.encode()), WIDTH, colours=True)


def _minute(minute: int) -> Iterator[list[str]]:
    busy, warm, watts = SHIFTS[max(start for start in SHIFTS if start <= minute)]
    for index in (0, 1):
        swing = math.sin(minute / (7 + 4 * index)) * busy / 40
        values = {
            "utilization": round(busy + swing),
            "temperature": round(warm + 3 * index + swing),
            "power": round(watts + 6 * swing, 1),
        }
        used = 68120.0 - 9000 * index if busy else 4.0
        cells = gpu_log.row(
            f"{DATE}T{minute // 60:02d}:{minute % 60:02d}:01Z", sample(index, memory_used=used, **values)
        )
        yield [str(cell) for cell in cells]


def answer() -> Iterator[RenderableType]:
    """Whether a model can be tuned on one card, as `gpuwright size` tells it."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        size.run(parser.parse([*SIZE, "--gpu", "4090"]))
    yield Text(written.getvalue().rstrip())


#: The question of the picture.
SIZE = ("size", "llama-3.1-8b", "--train", "qlora", "--context", "4k", "--recompute", "full")


DRAWN: dict[str, tuple[str, Callable[[], Iterable[RenderableType]]]] = {
    "top": ("gpuwright top -i fleet.yml", fleet),
    "day": ("gpuwright top --day", day),
    "size": (f"gpuwright {' '.join(SIZE)} --gpu 4090", answer),
}


def picture(name: str) -> str:
    """Return the picture as SVG."""
    title, parts = DRAWN[name]
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for part in parts():
        console.print(part)
    return console.export_svg(title=title, unique_id=f"gpuwright-{name}")


def written(svg: str) -> str:
    """Return what can be read in a picture, without blanks: the rest is colours, and the taste of a release of Rich."""
    return "".join(unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split())


def main(arguments: list[str] | None = None) -> int:
    """Draw, or compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a picture is out of date")
    check = parser.parse_args(arguments).check
    for name in DRAWN:
        path, drawn = PICTURES / f"{name}.svg", picture(name)
        if path.is_file() and written(path.read_text(encoding="utf-8")) == written(drawn):
            continue
        if check:
            print(f"{path} is out of date: run `make rules`", file=sys.stderr)
            return 1
        path.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    # The plots have colours, whatever the terminal that this runs in can show.
    os.environ.pop("NO_COLOR", None)
    os.environ["FORCE_COLOR"] = "1"
    raise SystemExit(main())
