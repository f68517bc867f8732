"""The tables as they are written, and versions compared without help."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Row = dict[str, Any]

COMPAT = Path(__file__).resolve().parents[3] / "compat"
# The loader in C makes the same of it, ten times as fast.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def rows(file: str, table: str) -> tuple[Row, ...]:
    """A table of compat/, () where the file or the table is not there."""
    path = COMPAT / f"{file}.yaml"
    if not path.exists():
        return ()
    return tuple(tables(path).get(table, ()))


@cache
def tables(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader, in C or not
    return content


def row(file: str, table: str, **fields: Any) -> Row:
    """The one row with these fields."""
    return next(each for each in rows(file, table) if all(each[key] == value for key, value in fields.items()))


def numbers(text: str) -> list[int]:
    """The numbers at the beginning of a version, without zeros at the end: 13.0 and 13 are one."""
    found = [int(part) for part in re.match(r"[0-9.]*", text).group().split(".") if part]  # type: ignore[union-attr]  # the pattern matches the empty text
    while found and found[-1] == 0:
        found.pop()
    return found


def below(left: str, right: str) -> bool:
    """Whether a version is lower than another."""
    return numbers(left) < numbers(right)


def within(version: str, prefix: str) -> bool:
    """Whether a version is a prefix or a refinement of it, by its parts as they are written."""
    wanted = [int(part) for part in prefix.split(".")]
    return [int(part) for part in re.split(r"[.+]", version)[: len(wanted)] if part.isdigit()] == wanted


def yanked(version: str) -> bool:
    """Whether a cuDNN was withdrawn."""
    return any(each["version"] == version and each.get("yanked") for each in rows("cudnn", "versions"))
