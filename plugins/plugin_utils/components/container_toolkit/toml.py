# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Edits of a TOML file that leave each byte of its owner's in place, and that are taken back byte for byte.

Nothing is written anew: a line is put in under the header of its table, a line of the owner's that says otherwise is put out of force, and
tables that are not there come in a block at the end. Each bears a mark. Whether an edit says what it should is decided by reading the
result: everything else in it has to be what it was.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ..tables import Table, combined

Path: TypeAlias = tuple[str, ...]

_BEGIN, _END, _LINE, _OUT = "# BEGIN gpuwright", "# END gpuwright", "# gpuwright", "#gpuwright# "
#: What goes where a file is given back: the block, lines of ours, and the mark on a line that was put out of force.
PATTERNS = (rf"\n{_BEGIN}\n(?:.*\n)*?{_END}\n", rf"^.*{_LINE}\n", rf"^{_OUT}")
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Unmergeable(Exception):
    """A file that is no TOML, or in which something cannot be put in without writing it anew."""


def parsed(text: str) -> Table:
    """What a file says. Raises Unmergeable."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unmergeable(f"it is no valid TOML: {error}") from None


def restored(text: str) -> str:
    """The file as it was before it was edited here; what others changed in it since stays."""
    for pattern in PATTERNS:
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return text


def merged(text: str, wished: Table) -> str:
    """The file with what is wished of it. Raises Unmergeable where that cannot be done without touching anything else."""
    aim = combined(parsed(text), wished)
    left: dict[Path, Table] = {}
    for path, key, value in _leaves(wished):
        edited = _edited(text, path, key, value)
        if edited is None:
            left.setdefault(path, {})[key] = value
        else:
            text = edited
    if left:
        text += f"\n{_BEGIN}\n{rendered(left)}{_END}\n"
    try:
        done = parsed(text) == aim
    except Unmergeable:
        done = False
    if not done:
        names = ", ".join(dict.fromkeys(_name((*path, key)) for path, table in left.items() for key in table))
        raise Unmergeable(f"{names} cannot be put in beside what is there")
    return text


def rendered(tables: Mapping[Path, Table]) -> str:
    """Tables as TOML, each under its header; what has no table comes first."""
    lines: list[str] = []
    for path in sorted(tables, key=bool):
        lines += [f"[{_name(path)}]"] if path else []
        lines += [f"{_key(key)} = {_value(value)}" for key, value in tables[path].items()]
    return "".join(f"{line}\n" for line in lines)


def flat(of: Table) -> dict[Path, Table]:
    """What a nested table says, by the path of the table that each key is in."""
    found: dict[Path, Table] = {}
    for path, key, value in _leaves(of):
        found.setdefault(path, {})[key] = value
    return found


def _leaves(of: Mapping[str, object], path: Path = ()) -> Iterator[tuple[Path, str, object]]:
    for key, value in of.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield path, key, value


def _edited(text: str, path: Path, key: str, value: object) -> str | None:
    """The file with one value, where its table has a place for it; the file itself where it says that already; None where it has none."""
    now = parsed(text)
    nested: Table = {key: value}
    for name in reversed(path):
        nested = {name: nested}
    aim = combined(now, nested)
    if now == aim:
        return text
    return next((edited for edited in _candidates(text, path, key, value) if _says(edited, aim)), None)


def _says(text: str, aim: Table) -> bool:
    try:
        return parsed(text) == aim
    except Unmergeable:
        return False


def _candidates(text: str, path: Path, key: str, value: object) -> Iterator[str]:
    """Where the value could stand: in place of a line that gives the key another one, or as the first line of its table."""
    line = f"{_key(key)} = {_value(value)} {_LINE}\n"
    given = re.compile(rf"[ \t]*(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')[ \t]*=")
    lines = text.splitlines(keepends=True)
    for number, each in enumerate(lines):
        if given.match(each) and each.endswith("\n"):
            yield "".join([*lines[:number], _OUT, each, line, *lines[number + 1 :]])
    if not path:
        yield line + text
    for number, each in enumerate(lines):
        if each.endswith("\n") and _header(each) == path:
            yield "".join([*lines[: number + 1], line, *lines[number + 1 :]])


def _header(line: str) -> Path | None:
    """The table that a line begins; None where it is no header."""
    if not line.lstrip().startswith("["):
        return None
    try:
        found: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    return tuple(path) if found == {} else None


def _name(path: Path) -> str:
    return ".".join(map(_key, path))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """A text as TOML writes it: as JSON does, which leaves only DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(each)}' for key, each in value.items())}}}"
    return str(value)
