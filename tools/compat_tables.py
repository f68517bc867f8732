# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""compat/*.yaml held against what upstream says, and changed where they differ, line by line: nothing else of a file moves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version
from ruamel.yaml import YAML

from tools.compat_facts import Facts, Key, Row, Tables

ROOT = Path(__file__).resolve().parent.parent
COMPAT = ROOT / "compat"
WIDTH = 155
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.+/ -]*")
MISSING = "not there"

# A new row in the order of its fields; null where upstream does not say it.
TEMPLATES: dict[str, Row] = {
    "pytorch.releases": {
        "version": None,
        "date": None,
        "python": [],
        "torchvision": None,
        "torchaudio": None,
        "default_cuda": None,
    },
    "pytorch.variants": {
        "release": None,
        "variant": None,
        "cuda": None,
        "status": "default",
        "targets": {},
        "cudnn": None,
        "nccl": None,
    },
    "pytorch.partner_releases": {"package": None, "releases": []},
    "frameworks.glibc": {"package": None, "from_version": None, "to_version": None, "needs": {}},
    "pytorch.partner_pythons": {"package": None, "version": None, "python": []},
    "tensorflow.releases": {
        "version": None,
        "date": None,
        "python": [],
        "arch": ["x86_64"],
        "cuda": None,
        "cuda_major": None,
        "extra": None,
        "requires": {},
        "numpy": None,
        "yanked": False,
    },
    "jax.releases": {
        "version": None,
        "date": None,
        "python": [],
        "extras": [],
        "plugins": {},
        "jaxlib": None,
        "yanked": False,
    },
    "jax.plugins": {
        "version": None,
        "variant": None,
        "package": "jax-{variant}-plugin",
        "pjrt": "jax-{variant}-pjrt",
        "date": None,
        "python": [],
        "arch": [],
        "requires": {},
        "yanked": False,
    },
    "onnxruntime.releases": {
        "version": None,
        "variant": None,
        "date": None,
        "python": [],
        "arch": [],
        "cuda": None,
        "cuda_major": None,
        "extras": [],
        "requires": {},
        "yanked": False,
    },
    "cupy.releases": {"version": None, "date": None, "python": [], "wheels": {}, "numpy": None, "yanked": False},
    "vllm.releases": {"version": None, "date": None, "python": [], "arch": [], "torch": None, "yanked": False},
    "lmdb.releases": {"version": None, "date": None, "python": [], "arch": [], "yanked": False},
    "cudnn.versions": {"version": None, "cuda_majors": [], "arch": [], "date": None},
    "libraries.nccl": {"version": None, "date": None, "variants": {}},
    "libraries.tensorrt": {
        "version": None,
        "date": None,
        "cuda": [],
        "deb_cuda": None,
        "min_compute_capability": None,
        "max_compute_capability": None,
        "cudnn": None,
        "python": [],
    },
    "libraries.dali": {"version": None, "date": None, "variants": [], "real": False, "wheels": {}, "python": []},
    "cuda.rows": {"release": None, "cuda": None, "native_driver": None, "minor_version_driver": None},
}


@dataclass(frozen=True)
class Difference:
    """One place where a table and its upstream do not agree; field None is the row as a whole."""

    facts: Facts
    key: Key
    field: str | None
    ours: Any
    upstream: Any

    @property
    def name(self) -> str:
        """The row by its key."""
        return "/".join(self.key)


def load(folder: Path = COMPAT) -> Tables:
    """Every table, by file and name."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def compare(tables: Tables, found: Iterable[Facts]) -> list[Difference]:
    """What differs and is no exception; and each exception that upstream no longer needs."""
    listed = []
    for facts in found:
        raw = list(differences(tables[facts.file].get(facts.table, []), facts))
        excepted = _exceptions(tables[facts.file], facts.table)
        listed += [each for each in raw if (each.name, each.field) not in excepted]
        for name, field in sorted(excepted - {(each.name, each.field) for each in raw}, key=str):
            listed.append(Difference(facts, (name,), field, "an exception", "nothing that differs: remove it"))
    return listed


def differences(rows: Sequence[Row], facts: Facts) -> Iterable[Difference]:
    """Where the rows of a table and their upstream do not agree."""
    ours = {tuple(str(row[name]) for name in facts.key): row for row in rows}
    for key, theirs in facts.rows.items():
        if key not in ours:
            yield Difference(facts, key, None, MISSING, "published")
            continue
        for field, value in theirs.items():
            mine = ours[key].get(field)
            # No upload time, no comparison: not every index tells it. A field that is false is left out of some tables.
            if (field == "date" and value is None) or same(mine, value):
                continue
            yield Difference(facts, key, field, mine, value)
    if facts.complete:
        for key in ours:
            if key not in facts.rows:
                yield Difference(facts, key, None, "a row", "not on the index")


def same(one: Any, other: Any) -> bool:
    """Equal; lists whatever their order; nothing and no are one."""
    if isinstance(one, list) and isinstance(other, list):
        return sorted(map(str, one)) == sorted(map(str, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[name], other[name]) for name in one)
    return (one or None) == (other or None)


def _exceptions(content: dict[str, Any], table: str) -> set[tuple[str, str | None]]:
    rows = [row for row in content.get("exceptions", []) if row["table"] == table]
    return {(row["key"], row["field"]) for row in rows}


# writing ---------------------------------------------------------------------------------------------------


class TableFile:
    """One file of compat/. A change replaces the lines of its row; comments and every other row stay as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = self._text = path.read_text(encoding="utf-8")
        self.content: dict[str, Any] = yaml.safe_load(self._text)

    @property
    def text(self) -> str:
        """The file as it is now."""
        return self._text

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self._text != self._before

    def row(self, table: str, key: Key, names: Sequence[str]) -> Row:
        """The row with this key."""
        found: Row = self.content[table][self._find(table, key, names)]
        return found

    def explain(self, source: str, title: str, ref: str, day: str) -> None:
        """Add a source at the end of the file, where they stand."""
        line = f"  {source}: {{title: {_value(title)}, ref: {_value(ref)}, date: '{day}'}}"
        self._reload(f"{self._text.rstrip()}\n{line}\n")

    def set(self, table: str, key: Key, names: Sequence[str], **fields: Any) -> None:
        """Change fields of the row with this key."""
        number = self._find(table, key, names)
        row = {**self.content[table][number], **fields}
        # A field that the row did not have before goes where the others are.
        row |= {name: row.pop(name) for name in ("confirmed", "source") if name in row}
        first, last = self._lines(table, number)
        if self._text.splitlines()[first].startswith("  - {"):
            self._replace(first, last, lines(row))
            return
        for name in fields:
            self._replace(*self._field(table, number, name), _block(name, row[name]))

    def _field(self, table: str, number: int, name: str) -> tuple[int, int]:
        """The lines of a field of a row that has one a line."""
        first, last = self._lines(table, number)
        text = self._text.splitlines()
        begin = next(at for at in range(first, last) if text[at].lstrip(" -").startswith(f"{name}:"))
        return begin, next((at for at in range(begin + 1, last) if not text[at].startswith("     ")), last)

    def add(self, table: str, key: Key, names: Sequence[str], row: Row) -> None:
        """Put a row where its key belongs: before the first that is higher."""
        rows = self.content.get(table)
        if not rows:
            self._begin(table, row)
            return
        place = next(
            (at for at, each in enumerate(rows) if order([str(each[name]) for name in names]) > order(key)), len(rows)
        )
        first = self._lines(table, place)[0] if place < len(rows) else self._lines(table, place - 1)[1]
        self._replace(first, first, lines(row))

    def _begin(self, table: str, row: Row) -> None:
        """The first row of a table that is empty, or was not there: then it comes before the sources."""
        text = self._text.splitlines()
        if f"{table}: []" in text:
            first = text.index(f"{table}: []")
            self._replace(first, first + 1, [f"{table}:", *lines(row)])
        else:
            first = text.index("sources:")
            self._replace(first, first, [f"{table}:", *lines(row), ""])

    def updated(self, day: str) -> None:
        """Say when the file was last held against its sources."""
        self._reload(re.sub(r"^updated: .*$", f"updated: '{day}'", self._text, count=1, flags=re.MULTILINE))

    def write(self) -> None:
        """Put the text where it came from."""
        self.path.write_text(self._text, encoding="utf-8")

    def _find(self, table: str, key: Key, names: Sequence[str]) -> int:
        wanted = list(key)
        return next(at for at, row in enumerate(self.content[table]) if [str(row[name]) for name in names] == wanted)

    def _lines(self, table: str, number: int) -> tuple[int, int]:
        """The lines of a row: from its dash to before the next line that is no continuation."""
        located = YAML(typ="rt").load(self._text)[table]
        first: int = located.lc.item(number)[0]
        text = self._text.splitlines()
        last = first + 1
        while last < len(text) and text[last].startswith("    "):
            last += 1
        return first, last

    def _replace(self, first: int, last: int, new: list[str]) -> None:
        text = self._text.splitlines()
        text[first:last] = new
        self._reload("\n".join(text) + "\n")

    def _reload(self, text: str) -> None:
        self._text = text
        self.content = yaml.safe_load(text)


def order(key: Sequence[str]) -> tuple[tuple[int, Any], ...]:
    """Sorts versions and names."""

    def one(part: str) -> tuple[int, Any]:
        try:
            return 1, Version(part)
        except InvalidVersion:
            return 0, part

    return tuple(one(part) for part in key)


def lines(row: Row) -> list[str]:
    """A row as the tables write it: in braces, wrapped after a field."""
    parts = [f"{name}: {_value(value)}" for name, value in row.items()]
    made, line = [], "  - {"
    for number, part in enumerate(parts):
        piece = part + ("}" if number == len(parts) - 1 else ",")
        gap = "" if line.endswith("{") or line.isspace() else " "
        if len(line) + len(gap) + len(piece) > WIDTH and not line.endswith("{"):
            made.append(line)
            line, gap = "     ", ""
        line += gap + piece
    return [*made, line]


def _block(name: str, value: Any) -> list[str]:
    """A field of a row that has one a line, wrapped after a value."""
    parts = f"    {name}: {_value(value)}".split(", ")
    made = [parts[0]]
    for part in parts[1:]:
        if len(made[-1]) + len(part) + 3 > WIDTH:
            made[-1] += ","
            made.append(" " * (len(name) + 7) + part)
        else:
            made[-1] += f", {part}"
    return made


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(name)}: {_value(each)}" for name, each in value.items()) + "}"
    if not isinstance(value, str):
        return str(value)
    # Plain only where YAML reads the same text again: `no`, 1.10 and 2026-11-20 are none.
    if PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return "'" + value.replace("'", "''") + "'"
