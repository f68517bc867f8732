"""The tables of compat/sizing/, as tools/build_rules.py packs them. Read when a question comes, and once."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import Row

__all__ = ["Row", "called", "cite", "families", "load", "members", "models", "names", "rule", "scenario", "whole"]

_FILE = Path(__file__).with_name("sizing.json")


@cache
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


def members() -> list[Row]:
    """Models that have the layers of one of `models`, as `whole` tells them."""
    rows: list[Row] = load()["members"]["rows"]
    return rows


def names() -> dict[str, int]:
    """The place of each model among `models` and then `members`, by what it is called, as `names.index` makes it."""
    found: dict[str, int] = load()["names"]
    return found


def whole(row: Row) -> Row:
    """A row of `members` with what the model has that it is `of`; one of `models` as it is. `all`: its parameters, where others."""
    if "of" not in row:
        return row
    base = next(each for each in models() if each["name"] == row["of"])
    if "weights" in row:
        base = {key: value for key, value in base.items() if key not in ("bits", "others")}
    own = {key: value for key, value in row.items() if key not in ("of", "parameters", "rounded")}
    found = {**base, **own, "name": called(row), "config": {**base["config"], **row.get("config", {})}}
    every = row.get("parameters", row.get("rounded"))
    return {**found, "all": every} if every else found


def called(row: Row) -> str:
    """What a model is called: as its row says, or as on the hub, in small letters and without the format that is usual."""
    return str(row.get("name") or row["hub"].partition("/")[2].lower().removesuffix("-bf16"))


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
