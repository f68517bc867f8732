# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules as data: compat/*.yaml, carried to the controller as one JSON file.

JSON because an action runs in a fresh process for each host, where parsing YAML would
cost more than everything else together. tools/build_rules.py makes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from ..model.stack import RulesAge

Rules = dict[str, Any]
Row = dict[str, Any]
_P = ParamSpec("_P")
_T = TypeVar("_T")

_FILE = Path(__file__).with_name("rules.json")


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Return the tables by name (gpus, cuda, ...), with generated (a date) and digest.

    The result is shared: nobody changes it.
    """
    rules: Rules = json.loads(_FILE.read_text(encoding="utf-8"))
    return rules


def age(rules: Rules, today: date) -> RulesAge:
    """Return the date of the rules and how many days old they are."""
    generated = str(rules["generated"])
    return {"generated": generated, "age_days": max((today - date.fromisoformat(generated)).days, 0)}


def remembered(look_up: Callable[_P, _T]) -> Callable[_P, _T]:
    """Remember what a pure look-up answers: its last argument are the rules, the others are hashable.

    Only of the shared rules, which nobody changes; in others (a test's own) it looks anew each time. The answer is shared
    too: nobody changes it either.
    """

    @lru_cache(maxsize=8192)
    def of_shared(*key: Any) -> Any:
        return cast("Callable[..., Any]", look_up)(*key, load_rules())

    @wraps(look_up)
    def answer(*arguments: _P.args, **named: _P.kwargs) -> _T:
        if not named and arguments[-1] is load_rules():
            return cast("_T", of_shared(*arguments[:-1]))
        return look_up(*arguments, **named)

    return answer


def cite(rules: Rules, table: str, row: Row) -> str:
    """Return where a row was read, for a person: "systems: title (address, date); ..."."""
    return _cited(table, tuple(row["source"]), rules)


@remembered
def _cited(table: str, keys: tuple[str, ...], rules: Rules) -> str:
    sources = rules[table]["sources"]
    read = [sources[key] for key in keys]
    return f"compat/{table}.yaml: " + "; ".join(f"{each['title']} ({each['ref']}, {each['date']})" for each in read)
