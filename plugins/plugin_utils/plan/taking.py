# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a transaction of the package manager takes away: removals, older versions, packages that change though they are on hold.

The package manager of the node has said it for the packages of the plan. What is not of our own set, and was not allowed by name, is
refused. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..model import sections

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex

    from ..model.plan import Taken
    from ..model.stack import Refusal

_DOES = {"remove": "removes", "downgrade": "downgrades", "change-held": "changes, though it is on hold,"}
_BECAUSE = {"ours": "", "allowed": " (allowed by name)", None: ""}


def of_transaction(index: PackageIndex, holds: Iterable[str]) -> list[Taken]:
    """What the transaction takes away, by the answer of the node's package manager; ``holds``: names of the packages on hold."""
    older, held = set(index["downgrades"]), set(holds)
    gone = {row["name"]: row["version"] for row in index["removes"]}
    moved = [(row["name"], row["from"], row["version"]) for row in index["install"] if row["from"]]
    found: list[Taken] = [
        {"name": name, "does": "remove", "from": version, "to": None, "because": None} for name, version in gone.items()
    ]
    found += [
        {"name": name, "does": "downgrade", "from": before, "to": after, "because": None}
        for name, before, after in moved
        if name in older
    ]
    found += [
        {"name": name, "does": "change-held", "from": before, "to": after, "because": None}
        for name, before, after in moved
        if name in held
    ]
    return found


def of_repair(facts: Facts) -> list[Taken]:
    """What finishing an interrupted transaction takes away, as far as the package manager says before."""
    return [
        {"name": row["name"], "does": "remove", "from": row["version"], "to": None, "because": None}
        for row in facts["packages"].get("repair_removes") or ()
    ]


def of_driver(facts: Facts, *, changes: bool) -> set[str]:
    """The packages of the driver that is there, where the plan changes it; and those that an earlier run has begun to replace."""
    driver, mark = facts["driver"], sections.sealed_driver(facts)
    there = {*(driver["packages"] or {}), *driver["lock"]["set"]} if changes else set()
    return there | set(mark.get("replaces") or {})


def of_records(facts: Facts) -> set[str]:
    """The packages that the records of the node name: those of the seals, and what gpuwright brought."""
    sealed = {name for seal in (facts["seals"] or {}).values() for name in seal.get("packages") or {}}
    return sealed | set(sections.history(facts).get("brought") or ())


def judged(
    taken: Iterable[Taken], of_driver: set[str], ours: set[str], asked: set[str], allowed: Iterable[str]
) -> list[Taken]:
    """The same, with the reason why each may be.

    ``ours``: packages of our own set, those ``of_driver`` too; ``asked``: those that the plan installs at their versions. A hold is ours
    on the driver's packages alone: one on any other package is a person's word.
    """
    own = {
        "remove": of_driver | ours,
        "downgrade": of_driver | ours | asked,
        "change-held": of_driver,
    }
    by_name = set(allowed)
    return [{**row, "because": _because(row, own[row["does"]], by_name)} for row in taken]


def _because(row: Taken, own: set[str], allowed: set[str]) -> Literal["ours", "allowed"] | None:
    names = {row["name"], row["name"].partition(":")[0]}
    if names & own:
        return "ours"
    return "allowed" if names & allowed else None


def sentence(row: Taken) -> str:
    """What becomes of one package, for a person."""
    to = f" -> {row['to']}" if row["to"] else ""
    return f"{_DOES[row['does']]} {row['name']} {row['from']}{to}{_BECAUSE[row['because']]}"


def others(taken: Iterable[Taken]) -> list[Taken]:
    """What of it may not be: it is of somebody else, as far as is known, and was not allowed."""
    return [row for row in taken if row["because"] is None]


def refusal(taken: Iterable[Taken], manager: str | None) -> Refusal | None:
    """Why a plan is not carried out that would take away what is not ours; None where it takes nothing of that."""
    found = others(taken)
    if not found:
        return None
    names = list(dict.fromkeys(row["name"] for row in found))
    text = (
        f"Expected {manager or 'the package manager'} to take nothing away that is not gpuwright's own. Found that for this plan it"
        f" {'; '.join(map(sentence, found))}"
    )
    options = " ".join(f"--allow-remove {name}" for name in names)
    remedy = (
        f"see with their owner who needs {', '.join(names)}; where nobody does, say so: {options}"
        f" (in a playbook gpuwright_allow_remove: [{', '.join(names)}])"
    )
    return {"rule": "takes-away", "text": text, "source": "gpuwright", "remedy": remedy}
