# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring compat/*.yaml up to what upstreams publish for machines: a change to be read and committed by a person.

Reads the Python index that pip is configured for, and the vendors' sources that compat/upstreams.yaml names; says which it could not
reach. A row that is new says confirmed: false where a field could not be read. Nothing is ever removed: what upstream no longer has
is named, and a person decides. Exit 0: done, changed or not; 2: the Python index could not be read.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from tools import compat_facts, compat_tables, compat_vendor
from tools.compat_facts import Facts
from tools.compat_index import CACHE, IndexProblem, PythonIndex, session
from tools.compat_tables import Difference, TableFile
from tools.compat_verify import Shown, text

INDEX_SOURCE = "package_index"
TITLES = {
    "package_index": ("python package metadata and file lists", "python package index"),
    "cuda_redist": ("CUDA redist JSON", "NVIDIA CUDA redist index, redistrib_<release>.json"),
    "driver_redist": ("driver redist JSON", "NVIDIA driver redist index, redistrib_<driver>.json"),
    "repositories": ("package indexes of the repository", "NVIDIA CUDA network repository"),
    "product_security": ("security bulletins as CSAF", "github NVIDIA/product-security"),
    "wheel_index": ("METADATA of the wheels per CUDA version", "PyTorch wheel indexes"),
}


# What no source for machines says of a new row: a person reads it, and then confirms the row.
TO_READ = {
    "pytorch.releases": "which torchvision and torchaudio go with it; a row of `exceptions` where they name no one torch",
    "pytorch.variants": "the compute capabilities in its wheels (torch.cuda.get_arch_list()), and the status of the other variants",
    "onnxruntime.releases": "the CUDA version in its build_and_package_info.py, and the cards that its wheels have code for",
    "cupy.releases": "the CUDA version of its wheels (driver.get_build_version()) and the cards that they have code for: table `builds`",
    "vllm.releases": "the CUDA major version and the cards that its wheels have code for: table `code`",
    "tensorflow.releases": "the CUDA version that it was tested with, and the cards that its wheels have code for",
    "cudnn.versions": "whether NVIDIA's support matrix for it changes what the table `rows` says",
    "libraries.tensorrt": "the compute capabilities of its support matrix",
    "cuda.rows": "the compute capabilities and host compilers of its release notes (tables `targets`, `compilers`)",
}

# What a person reads where a field of a row changed.
TO_READ_AGAIN = {
    "companions.packages": "whether its spans and pairs hold for that release: what it loads, for which CUDA, driver and cards it is",
}


@dataclass
class Change:
    """What is done to the files, and what is left to a person."""

    files: dict[str, TableFile]
    day: str
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def apply(self, difference: Difference, source: str) -> None:
        """Write one difference into its file."""
        facts, key = difference.facts, difference.key
        where = f"{facts.name} {difference.name}"
        file = self.files[facts.file]
        if difference.upstream is None and difference.field:
            self.left.append(f"{where}: {difference.field} is {text(difference.ours)} here, upstream does not say")
        elif difference.ours == "an exception" or (
            difference.field is None and difference.ours != compat_tables.MISSING
        ):
            self.left.append(f"{where}: {difference.ours}, upstream: {difference.upstream}")
        elif difference.field is None:
            row = new_row(facts, key, source)
            file.add(facts.table, key, facts.key, row)
            self._explain(file, source)
            self.done.append(f"{where}: added{'' if row['confirmed'] else ', not confirmed'}")
            if facts.name in TO_READ:
                self.left.append(f"{where}: {TO_READ[facts.name]}")
        else:
            row = file.row(facts.table, key, facts.key)
            sources = row["source"] if source in row["source"] else [*row["source"], source]
            file.set(facts.table, key, facts.key, **{difference.field: difference.upstream, "source": sources})
            self._explain(file, source)
            self.done.append(f"{where}: {difference.field} {text(difference.ours)} -> {text(difference.upstream)}")
            if facts.name in TO_READ_AGAIN:
                self.left.append(f"{where}: {TO_READ_AGAIN[facts.name]}")

    def _explain(self, file: TableFile, source: str) -> None:
        """A file explains each source that its rows name."""
        if source not in file.content["sources"]:
            title, ref = TITLES[source]
            file.explain(source, title, ref, self.day)


def new_row(facts: Facts, key: compat_facts.Key, source: str) -> dict[str, Any]:
    """A row with what upstream says; confirmed only if that is all there is to say."""
    template = compat_tables.TEMPLATES[facts.name]
    given = {**dict(zip(facts.key, key, strict=True)), **facts.rows[key]}
    guessed = {name: value for name, value in facts.hints.get(key, {}).items() if given.get(name) is None}
    row = {**template, **{name: value for name, value in given.items() if name in template or value}, **guessed}
    row = {
        name: value.format(**given) if isinstance(value, str) and "{" in value else value for name, value in row.items()
    }
    # What the template itself says is so for every row.
    known = all(given.get(name) is not None or template[name] not in (None, [], {}) for name in template)
    return {**row, "confirmed": known, "source": [source]}


def refresh(
    tables: compat_facts.Tables,
    change: Change,
    found: Iterable[Facts],
    answers: Iterable[compat_vendor.Answer],
) -> None:
    """Write every difference; a file that was held against its source is as old as today."""
    wheels = list(found)
    for difference in compat_tables.compare(tables, wheels):
        change.apply(difference, INDEX_SOURCE)
    read = {facts.file for facts in wheels}
    for answer in answers:
        for facts in answer.facts:
            # What is an exception to the index is none to a vendor's own list.
            for difference in compat_tables.differences(change.files[facts.file].content.get(facts.table, []), facts):
                change.apply(difference, answer.source)
            read.add(facts.file)
        change.left += answer.notes
    for name in read:
        change.files[name].updated(change.day)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compat", type=Path, default=compat_tables.COMPAT, help="the folder of the tables")
    parser.add_argument("--index", help="another index than pip's: the address of its simple API")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where METADATA that was read is kept")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, show the change")
    options = parser.parse_args(arguments)
    console = Console()
    tables = compat_tables.load(options.compat)
    files = {path.stem: TableFile(path) for path in sorted(options.compat.glob("*.yaml"))}
    change = Change(files, datetime.now(tz=UTC).date().isoformat())
    shown = Shown(Console(stderr=True))
    try:
        with shown.bar:
            found = compat_facts.read(PythonIndex(options.index, options.cache), tables, shown)
            vendor = compat_vendor.Vendor(tables, session(retries=1))
            answers = compat_vendor.read(tables, vendor, lambda base: PythonIndex(base, options.cache), shown)
    except IndexProblem as problem:
        sys.stderr.write(
            f"{problem}\nLook at `pip config list`, PIP_INDEX_URL and REQUESTS_CA_BUNDLE, then try again.\n"
        )
        return 2
    refresh(tables, change, found, answers)
    for line in report(change, answers):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    for file in files.values():
        if options.dry_run:
            before = file.path.read_text(encoding="utf-8").splitlines()
            moved = difflib.unified_diff(
                before, file.text.splitlines(), file.path.name, file.path.name, lineterm="", n=0
            )
            for line in moved:
                console.print(line, highlight=False, soft_wrap=True, markup=False)
        elif file.changed:
            file.write()
    return 0


def report(change: Change, answers: Sequence[compat_vendor.Answer]) -> list[str]:
    """What was read, what was changed, what a person has to do."""
    lines = ["read: the Python index"]
    lines += [f"not read: {each.name}: {each.failure}" if each.failure else f"read: {each.name}" for each in answers]
    lines += [f"changed: {each}" for each in change.done] or ["changed: no row"]
    lines += [f"for you: {each}" for each in change.left]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
