# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the repositories of a system call the parts of the stack."""

from __future__ import annotations

from ..rules import Row, Rules

#: The family whose repositories are rpm's.
RPM_FAMILY = "rhel"


def component(what: str, rules: Rules) -> Row:
    """Return the row with the packages of cuda, cudnn9, nccl and so on."""
    found: Row = next(row for row in rules["packages"]["components"] if row["what"] == what)
    return found


def names(row: Row, system: Row) -> list[str]:
    """Return a component's packages as the repositories of a system call them."""
    found = row.get("rpm") if system["family"] == RPM_FAMILY else None
    return list(found or row["packages"])
