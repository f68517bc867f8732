"""The tables of compat/sizing/, as tools/build_rules.py packs them. Read when a question comes, and once."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import Row

__all__ = ["Row", "cite", "families", "load", "models", "rule", "scenario"]

_FILE = Path(__file__).with_name("sizing.json")


@lru_cache(maxsize=1)
def load() -> Row:
    """Every table by its name. Shared: nobody changes it."""
    content: Row = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def families() -> dict[str, Row]:
    """Families of models, by the `model_type` of their configurations."""
    table = load()["families"]
    return {kind: {**table["usual"][0], **row} for row in table["rows"] for kind in row["model_types"]}


def models() -> list[Row]:
    """The models that are known by name."""
    rows: list[Row] = load()["models"]["rows"]
    return rows


def rule(name: str) -> Row:
    """A rule for machines; where no source says the least or the most, the usual is both."""
    row: Row = next(row for row in load()["machines"]["rules"] if row["name"] == name)
    return {**row, **{key: row["value"] if row[key] is None else row[key] for key in ("low", "high")}}


def scenario(name: str) -> Row:
    """A kind of machine, as the guides have four: its cards, and how many of them."""
    row: Row = next(row for row in load()["machines"]["scenarios"] if row["name"] == name)
    return row


def cite(table: str, row: Row) -> str:
    """Where a row was read, for a person."""
    sources = load()[table]["sources"]
    read = [sources[key] for key in row["source"]]
    return f"compat/sizing/{table}.yaml: " + "; ".join(
        f"{each['title']} ({each['ref']}, {each['date']})" for each in read
    )
