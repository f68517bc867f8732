# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables inside tables, as the configurations of engines are: one put over another, and taken out of it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

#: A table, or what a file holds.
Table: TypeAlias = dict[str, object]


def combined(below: Mapping[str, object], above: Mapping[str, object]) -> Table:
    """One table over another: what only one of them has stays."""
    result = dict(below)
    for key, value in above.items():
        there = result.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        result[key] = combined(cast("Table", there), cast("Table", value)) if both else value
    return result


def table(of: Mapping[str, object], *path: str) -> Table:
    """A table below others; empty where something on the way to it is none."""
    found: object = of
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return cast("Table", found) if isinstance(found, Mapping) else {}


def lacking(below: Mapping[str, object], above: Mapping[str, object]) -> Table:
    """What of a table is not in another one, or is another value there."""
    result: Table = {}
    for key, value in above.items():
        there = below.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            inner = lacking(cast("Table", there), cast("Table", value))
            if inner:
                result[key] = inner
        elif key not in below or there != value:
            result[key] = value
    return result


def replaced(below: Mapping[str, object], put: Mapping[str, object]) -> Table:
    """What stands in the place of what is put in; an empty table where one is added to."""
    result: Table = {}
    for key in put.keys() & below.keys():
        there, value = below[key], put[key]
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        result[key] = replaced(cast("Table", there), cast("Table", value)) if both else there
    return result


def taken_out(now: Mapping[str, object], put: object, had: object) -> Table:
    """A table without what was put in, with what stood there before. What others changed since stays as it is, and so does all of it where
    the record of that is none.
    """
    result = dict(now)
    if not isinstance(put, Mapping) or not isinstance(had, Mapping):
        return result
    for key in put.keys() & now.keys():
        value, there, before = put[key], now[key], had.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            inner = taken_out(there, value, before if isinstance(before, Mapping) else {})
            if inner or isinstance(before, Mapping):
                result[key] = inner
                continue
        elif there != value:
            continue
        if key in had:
            result[key] = before
        else:
            del result[key]
    return result
