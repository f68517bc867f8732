# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a status shows of a fleet: hosts that do not differ in one row, and the fleet by version. Pure, from the plans of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ..model.plan import Plan, Status

HEADINGS = ("state", "hosts", "cards", "in kernel", "libraries", "next boot", "wanted", "held", "proof", "drift")
NO_DRIVER = "no driver"
# Names of hosts before the rest is a number: in a row, which has nine more columns, and in the line below the table.
_MOST_IN_ROW = 3
_MOST_IN_LINE = 6
_HELD = {True: "held", False: "no", None: "-"}
# States that nobody has to look at come last.
_GOOD = ("ok", "skip")


def rows(plans: Mapping[str, Plan], *, each: bool = False) -> list[tuple[str, ...]]:
    """The rows below HEADINGS: equal hosts together (each by itself where ``each``), those that are not good first."""
    plans = {host: plans[host] for host in sorted(plans, key=_natural)}
    groups = [([host], [plan]) for host, plan in plans.items()] if each else _grouped(plans)
    groups.sort(key=lambda group: (group[1][0]["status"]["state"] in _GOOD, -len(group[0])))
    return [_row(hosts, members) for hosts, members in groups]


def by_version(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """The hosts of each driver version (of the libraries: what programs use), most hosts first."""
    found: dict[str, list[str]] = {}
    for host in sorted(plans, key=_natural):
        versions = plans[host]["status"]["versions"]
        found.setdefault(versions["user"] or versions["kernel"] or NO_DRIVER, []).append(host)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def summary(plans: Mapping[str, Plan]) -> str | None:
    """The fleet by version in one line; None for a single host."""
    if len(plans) < 2:
        return None
    versions = by_version(plans)
    largest = max(versions.values(), key=len)
    return ", ".join(_version(version, hosts, hosts is largest) for version, hosts in versions.items())


def text(plans: Mapping[str, Plan]) -> str:
    """The table and the line below it, for a log."""
    table = [HEADINGS, *rows(plans)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(filter(None, [*lines, summary(plans)]))


def age(seconds: int) -> str:
    """An age for people, in the largest unit that fits."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} old"
    return "new"


def _natural(host: str) -> list[tuple[int, str]]:
    """The order in which people count hosts: n2 before n10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", host)]


def _grouped(plans: Mapping[str, Plan]) -> list[tuple[list[str], list[Plan]]]:
    """Hosts that do not differ in what is shown. The age of a proof does: the oldest of a group is shown."""
    groups: dict[str, tuple[list[str], list[Plan]]] = {}
    for host, plan in plans.items():
        status = plan["status"]
        proof, versions = status["proof"], status["versions"]
        shown = {**status, "proof": proof["verdict"] if proof else None, "skipped": plan.get("skipped")}
        shown["versions"] = {key: value for key, value in versions.items() if key != "next_kernel"}
        hosts, members = groups.setdefault(json.dumps(shown, sort_keys=True), ([], []))
        hosts.append(host)
        members.append(plan)
    return list(groups.values())


def _row(hosts: Sequence[str], plans: Sequence[Plan]) -> tuple[str, ...]:
    status = plans[0]["status"]
    versions = status["versions"]
    return (
        status["state"],
        _names(hosts, _MOST_IN_ROW),
        ", ".join(_counted(status["cards"])) or "-",
        *(versions[key] or "-" for key in ("kernel", "user", "next", "wanted")),
        _HELD[status["held"]],
        _proof([plan["status"] for plan in plans]),
        "; ".join((*status["drift"], *status["faults"], *status["unknown"].values())) or plans[0].get("skipped") or "",
    )


def _proof(of: Sequence[Status]) -> str:
    """The verdict and the age of the oldest; hosts of a group have the same verdict."""
    known = [status["proof"] for status in of if status["proof"]]
    if not known:
        return "unknown" if "proof" in of[0]["unknown"] else "never"
    ages = [proof["age_seconds"] for proof in known if proof["age_seconds"] is not None]
    return f"{known[0]['verdict']}, {age(max(ages)) if len(ages) == len(known) else 'of unknown age'}"


def _names(hosts: Sequence[str], most: int) -> str:
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def _counted(cards: Sequence[str]) -> list[str]:
    """Equal cards once, with their number: "2 × H100"."""
    return [f"{cards.count(name)} × {name}" if cards.count(name) > 1 else name for name in dict.fromkeys(cards)]


def _version(version: str, hosts: Sequence[str], is_largest: bool) -> str:
    """One version of the fleet; the hosts of all but the largest group by name."""
    names = "" if is_largest else f" ({_names(hosts, _MOST_IN_LINE)})"
    return f"{version}: {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}{names}"
