# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules as data: compat/*.yaml, carried to the controller as one JSON file.

JSON because an action runs in a fresh process for each host, where parsing YAML would
cost more than everything else together. tools/build_rules.py makes the file.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

Rules = dict[str, Any]
Row = dict[str, Any]

_FILE = Path(__file__).with_name("rules.json")


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Return the tables by name (gpus, cuda, ...), with generated (a date) and digest.

    The result is shared: nobody changes it.
    """
    rules: Rules = json.loads(_FILE.read_text(encoding="utf-8"))
    return rules


def cite(rules: Rules, table: str, row: Row) -> str:
    """Return where a row was read, for a person: "systems: title (address, date); ..."."""
    sources = rules[table]["sources"]
    read = [sources[key] for key in row["source"]]
    return f"compat/{table}.yaml: " + "; ".join(f"{each['title']} ({each['ref']}, {each['date']})" for each in read)
