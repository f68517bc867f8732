#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make plugins/plugin_utils/rules/rules.json from compat/*.yaml; with --check only compare.

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
COMPAT = ROOT / "compat"
TARGET = ROOT / "plugins" / "plugin_utils" / "rules" / "rules.json"

# What people and tools read in the tables and no answer is made of: which columns of a row a source confirmed, and where a table is not
# what the Python index says. Every host of a run reads the rules.
NOT_SHIPPED = frozenset(("confirmed_fields", "exceptions"))


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
    tables: dict[str, Any] = {}
    for path in sorted(compat.glob("*.yaml")):
        tables[path.stem] = shipped(yaml.safe_load(path.read_text(encoding="utf-8")))
    generated = max(table["updated"] for table in tables.values())
    digest = hashlib.sha256(dump(tables).encode()).hexdigest()
    return {"schema": 1, "generated": generated, "digest": digest, **tables}


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the file is out of date")
    options = parser.parse_args(arguments)
    text = dump(build()) + "\n"
    if options.check:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{TARGET} does not match compat/*.yaml: run 'make rules' and commit the result\n")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
