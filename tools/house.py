# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Count what makes the house hard to inherit, each count by a command of its own, and hold it against its ceiling.

    python -m tools.house [--lower]

The ceilings are in tests/unit/repo/house.yaml, and a count may only fall: --lower writes what has fallen since. Exit 1 where a count is
above its ceiling.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = ROOT / "tests/unit/repo/house.yaml"
_FILTERS = r"\| *(select|reject|map|regex_|difference|union|intersect)|is (not )?version|\{%-? *(set|for|if|elif)"


@dataclass(frozen=True)
class Count:
    """What is counted: the lines that a command prints, and what they are to become."""

    name: str
    what: str
    command: str
    target: int

    def taken(self, root: Path = ROOT) -> int:
        """The count of today. Raises RuntimeError where the tree is no checkout."""
        ended = subprocess.run(["sh", "-c", self.command], cwd=root, capture_output=True, text=True, check=False)
        if ended.stderr:
            raise RuntimeError(ended.stderr.strip())
        return len(ended.stdout.splitlines())


COUNTS = (
    Count(
        "untyped",
        "lines with a mapping of anything",
        r"git grep -hE '(Mapping|dict|Dict)\[str, Any\]' -- plugins src",
        100,
    ),
    Count(
        "container_toolkit",
        "Python files that name container_toolkit, beside its own",
        "git grep -l container_toolkit -- 'plugins/*.py' 'src/*.py' ':!plugins/plugin_utils/components/container_toolkit' "
        "':!plugins/plugin_utils/components/composed'",
        5,
    ),
    Count(
        "jax",
        "Python files that name jax, beside its own",
        "git grep -lw jax -- 'plugins/*.py' 'src/*.py' ':!plugins/*/jax.py'",
        3,
    ),
    Count(
        "filters",
        "lines of roles and playbooks with filters and Jinja's statements",
        f"git grep -hE '{_FILTERS}' -- roles playbooks",
        45,
    ),
    Count(
        "looks",
        "tasks that observe the node again, by node_facts or by work",
        r"git grep -hE '^ *gpuwright\.node\.(node_facts|work):' -- roles playbooks",
        8,
    ),
)


def ceilings(path: Path = CEILINGS) -> dict[str, int]:
    """What each count was at most."""
    found: dict[str, int] = yaml.safe_load(path.read_text(encoding="utf-8"))["ceilings"]
    return found


def above(counts: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The counts that have grown, with their ceilings; one without a ceiling has grown from nothing."""
    return {name: (count, limits.get(name, 0)) for name, count in counts.items() if count > limits.get(name, 0)}


def lowered(text: str, counts: Mapping[str, int]) -> str:
    """The data file with each ceiling that is higher than the count brought down to it."""
    for name, count in counts.items():
        row = re.search(rf"^  {name}: (\d+)$", text, re.MULTILINE)
        if row and count < int(row[1]):
            text = text.replace(row[0], f"  {name}: {count}", 1)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, show, and say by the exit status whether a count has grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="bring the ceilings down to what is counted")
    options = parser.parse_args(arguments)
    counts, limits = {each.name: each.taken() for each in COUNTS}, ceilings()
    table = Table("count", "what", "now", "ceiling", "target")
    for each in COUNTS:
        numbers = (counts[each.name], limits.get(each.name), each.target)
        table.add_row(each.name, each.what, *map(str, numbers))
    Console().print(table)
    for each in COUNTS:
        print(f"{each.name}: {each.command} | wc -l")
    if options.lower:
        CEILINGS.write_text(lowered(CEILINGS.read_text(encoding="utf-8"), counts), encoding="utf-8")
    return 1 if above(counts, limits) else 0


if __name__ == "__main__":
    raise SystemExit(main())
