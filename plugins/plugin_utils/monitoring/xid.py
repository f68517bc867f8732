# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The numbers of Xid by whom they concern, from ``compat/xid.yaml``; what an alert says of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..rules import Row

Class = Literal["critical", "warning", "application", "quiet"]

_UNKNOWN = "A number that NVIDIA's catalogue did not have when these rules were made; ask the vendor."


def class_of(row: Row) -> Class:
    """Return whom a row concerns; quiet is nobody."""
    if row["severity"] in {"critical", "fatal"}:
        return "critical"
    if row["severity"] == "info":
        return "quiet"
    return "application" if row.get("program") else "warning"


def codes(rows: Sequence[Row], wanted: Class) -> list[int]:
    """Return the numbers of a class, sorted."""
    return sorted(code for row in rows if class_of(row) == wanted for code in row["codes"])


def selector(rows: Sequence[Row], wanted: Class) -> str:
    """Return the matcher of a class. An unknown number is a warning, as the table has it, so a warning is what no other class has."""
    if wanted != "warning":
        return f'xid=~"{"|".join(map(str, codes(rows, wanted)))}"'
    names: tuple[Class, ...] = ("critical", "application", "quiet")
    others = sorted(code for name in names for code in codes(rows, name))
    return f'xid!~"{"|".join(map(str, others))}"'


def template(rows: Sequence[Row], wanted: Class) -> str:
    """Return a template of Prometheus that says what the number of an alert means and asks for."""
    parts: list[str] = []
    for row in rows:
        if class_of(row) == wanted:
            begin = "else if" if parts else "if"
            numbers = " ".join(f'"{code}"' for code in row["codes"])
            parts.append(f"{{{{ {begin} eq $labels.xid {numbers} }}}}{sentence(row)}")
    return "".join([*parts, "{{ else }}", _UNKNOWN, "{{ end }}"])


def sentence(row: Row) -> str:
    """Return what a row means, the action of NVIDIA's catalogue, and what that is here."""
    action = str(row["action"]).replace("_", " ")
    return f"{_capital(row['meaning'])}. Action: {action}. {_capital(row['remedy'])}."


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
