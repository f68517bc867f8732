#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make plugins/plugin_utils/rules/rules.json from compat/*.yaml, and src/gpuwright/sizing/sizing.json from compat/sizing/*.yaml.

With --check only compare.

The same input gives the same bytes. Exit 1 when --check finds a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from gpuwright.sizing import names  # noqa: E402 - from this checkout, whatever is installed

COMPAT = ROOT / "compat"
TARGET = ROOT / "plugins" / "plugin_utils" / "rules" / "rules.json"
# What `size` and `cost` answer from. A file of its own: no host of a run needs it.
SIZING = ROOT / "src" / "gpuwright" / "sizing" / "sizing.json"

# What people and tools read in the tables and no answer is made of: which columns of a row a source confirmed, and where a table is not
# what the Python index says; nor is the row of a card cited. Every host of a run reads the rules.
NOT_SHIPPED = frozenset(("confirmed_fields", "exceptions", "partner_releases"))
# A whole table of that kind: what guides say, and which table has what is right.
READ_ALONE = frozenset(("traps",))
# Tables of compat/sizing/ whose sources no answer cites.
UNCITED = ("families", "members", "models")
# What sizing needs of a card's row in gpus.yaml.
CARD = ("name", "architecture", "class", "form", "memory_gb", "bandwidth_gbs", "tdp_w", "nvlink_gbs")
# What a proof under load holds a card against, of its row in sizing/cards.yaml.
FIGURES = ("name", "tflops", "pcie")


def dump(value: Any) -> str:
    """Return the one JSON text of a value: sorted, compact, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def shipped(value: Any) -> Any:
    """Return a table, or a part of one, without what is not shipped."""
    if isinstance(value, dict):
        return {key: shipped(each) for key, each in value.items() if key not in NOT_SHIPPED}
    return [shipped(each) for each in value] if isinstance(value, list) else value


def build(compat: Path = COMPAT) -> dict[str, Any]:
    """Read every table and return the rules with their date and digest."""
    tables = {path.stem: _read(path) for path in sorted(compat.glob("*.yaml")) if path.stem not in READ_ALONE}
    cards = compat / "sizing" / "cards.yaml"
    if cards.exists():
        read = _read(cards)
        rows = [{key: row[key] for key in FIGURES if key in row} for row in read["rows"]]
        tables["figures"] = {"updated": read["updated"], "rows": rows}
    for row in tables.get("gpus", {"rows": ()})["rows"]:
        del row["source"]
    return _packed(tables)


def build_sizing(compat: Path = COMPAT) -> dict[str, Any]:
    """Read the tables of compat/sizing/ and what people ask of a card; not runs.yaml, which no answer is made of."""
    tables = {path.stem: _read(path) for path in sorted((compat / "sizing").glob("*.yaml")) if path.stem != "runs"}
    for name in UNCITED:
        tables[name] = _uncited(tables[name])
    gpus = _read(compat / "gpus.yaml")
    rows = [{key: row.get(key) for key in CARD} for row in gpus["rows"]]
    every = [*tables["models"]["rows"], *tables["members"]["rows"]]
    return {**_packed({**tables, "gpus": {"updated": gpus["updated"], "rows": rows}}), "names": names.index(every)}


def _uncited(table: dict[str, Any]) -> dict[str, Any]:
    """The table without what says where its rows come from."""
    return {
        name: rows
        if name == "updated"
        else [{key: value for key, value in row.items() if key not in ("confirmed", "source")} for row in rows]
        for name, rows in table.items()
        if name != "sources"
    }


def _read(path: Path) -> Any:
    return shipped(yaml.safe_load(path.read_text(encoding="utf-8")))


def _packed(tables: dict[str, Any]) -> dict[str, Any]:
    generated = max(table["updated"] for table in tables.values())
    digest = hashlib.sha256(dump(tables).encode()).hexdigest()
    return {"schema": 1, "generated": generated, "digest": digest, **tables}


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the file is out of date")
    options = parser.parse_args(arguments)
    wrong = 0
    for target, tables in ((TARGET, build()), (SIZING, build_sizing())):
        text = dump(tables) + "\n"
        if not options.check:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{target} does not match compat/: run 'make rules' and commit the result\n")
            wrong = 1
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
