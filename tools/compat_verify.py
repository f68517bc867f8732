# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold the wheels' tables of compat/ against the Python index that pip is configured for.

Prints every difference as a table. Exit 0: there is none; 1: there are some; 2: the index could not be read.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from tools import compat_facts, compat_tables
from tools.compat_index import CACHE, IndexProblem, PythonIndex


class Shown:
    """The progress of reading, as a bar on a terminal."""

    def __init__(self, console: Console) -> None:
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self.bar.add_task("wheels", total=0)
        self._total = 0

    def more(self, count: int) -> None:
        """There is this much more to do."""
        self._total += count
        self.bar.update(self._task, total=self._total)

    def step(self, what: str) -> None:
        """One is done."""
        self.bar.update(self._task, advance=1, description=f"{what.partition('-')[0]:<20.20}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, show, and say by the exit status whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compat", type=Path, default=compat_tables.COMPAT, help="the folder of the tables")
    parser.add_argument("--index", help="another index than pip's: the address of its simple API")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where METADATA that was read is kept")
    options = parser.parse_args(arguments)
    console = Console()
    tables = compat_tables.load(options.compat)
    shown = Shown(Console(stderr=True))
    started = time.monotonic()
    try:
        with shown.bar:
            found = compat_facts.read(PythonIndex(options.index, options.cache), tables, shown)
    except IndexProblem as problem:
        sys.stderr.write(
            f"{problem}\nLook at `pip config list`, PIP_INDEX_URL and REQUESTS_CA_BUNDLE, then try again.\n"
        )
        return 2
    differences = compat_tables.compare(tables, found)
    if differences:
        console.print(table_of(differences))
    for line in summary(tables, found, differences):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(f"read in {time.monotonic() - started:.0f} s", highlight=False)
    return 1 if differences else 0


def table_of(differences: Sequence[compat_tables.Difference]) -> Table:
    """The differences, one a line."""
    table = Table(title="Where the tables and the index differ")
    for name in ("table", "row", "field", "ours", "upstream"):
        table.add_column(name, overflow="fold")
    for each in differences:
        table.add_row(
            each.facts.name, each.name, each.field or "-", escape(text(each.ours)), escape(text(each.upstream))
        )
    return table


def text(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {text(each)}" for name, each in value.items()) or "none"
    return "none" if value is None else str(value)


def summary(
    tables: compat_facts.Tables,
    found: Sequence[compat_facts.Facts],
    differences: Sequence[compat_tables.Difference],
) -> list[str]:
    """A line a table: how many rows were held against how many, and how many exceptions stand."""
    made = []
    for facts in found:
        count = sum(1 for each in differences if each.facts.name == facts.name)
        rows = [row for row in tables[facts.file].get("exceptions", []) if row["table"] == facts.table]
        known = f", {len(rows)} explained in exceptions" if rows else ""
        made.append(f"{facts.name:<24} {len(facts.rows):>4} rows upstream, {count} differences{known}")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
