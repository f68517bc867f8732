"""What `gpuwright status` shows: hosts that do not differ in one row, and the fleet by version."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuwright import console
from gpuwright.show import counted, hosts_not_worked_on, report_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["by_version", "fleet", "report_place"]

Record = dict[str, Any]

_HEADINGS = ("state", "hosts", "cards", "in kernel", "libraries", "next boot", "wanted", "held", "proof", "drift")
# Names in a row before the rest is a number: the row has nine more columns.
_MOST_IN_ROW = 3
_HELD = {True: "held", False: "no", None: "-"}
NO_DRIVER = "no driver"


def fleet(
    plans: Mapping[str, Record], unreachable: Mapping[str, str], failed: Mapping[str, str], *, each: bool = False
) -> None:
    """Show the hosts, equal ones together (each by itself where `each`), those that drift first, and the fleet by version."""
    plans = {host: plans[host] for host in sorted(plans, key=_natural)}
    groups = [([host], [plan]) for host, plan in plans.items()] if each else _grouped(plans)
    groups.sort(key=lambda group: (not group[1][0]["status"]["drift"], -len(group[0])))
    if groups:
        console.out(console.table([_row(hosts, rows) for hosts, rows in groups], _HEADINGS, indent=0))
    hosts_not_worked_on(unreachable, failed)
    versions = by_version(plans)
    if len(plans) > 1:
        largest = max(versions.values(), key=len)
        console.out(", ".join(_version(version, hosts, hosts is largest) for version, hosts in versions.items()))


def by_version(plans: Mapping[str, Record]) -> dict[str, list[str]]:
    """The hosts of each driver version (of the libraries: what programs use), most hosts first."""
    found: dict[str, list[str]] = {}
    for host in sorted(plans, key=_natural):
        versions = plans[host]["status"]["versions"]
        found.setdefault(versions["user"] or versions["kernel"] or NO_DRIVER, []).append(host)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _natural(host: str) -> list[tuple[int, str]]:
    """The order in which people count hosts: n2 before n10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", host)]


def _grouped(plans: Mapping[str, Record]) -> list[tuple[list[str], list[Record]]]:
    """Hosts that do not differ in what is shown. The age of a proof does: the oldest of a group is shown."""
    groups: dict[str, tuple[list[str], list[Record]]] = {}
    for host, plan in plans.items():
        status = plan["status"]
        shown = {**status, "proof": (status["proof"] or {}).get("verdict"), "skipped": plan.get("skipped")}
        shown["versions"] = {key: value for key, value in status["versions"].items() if key != "next_kernel"}
        hosts, rows = groups.setdefault(json.dumps(shown, sort_keys=True), ([], []))
        hosts.append(host)
        rows.append(plan)
    return list(groups.values())


def _row(hosts: Sequence[str], plans: Sequence[Record]) -> tuple[str, ...]:
    status = plans[0]["status"]
    versions = status["versions"]
    return (
        _state(plans[0]),
        console.names(list(hosts), _MOST_IN_ROW),
        ", ".join(counted(status["cards"])) or "-",
        *(versions[key] or "-" for key in ("kernel", "user", "next", "wanted")),
        _HELD[status["held"]],
        _proof([plan["status"]["proof"] for plan in plans]),
        "; ".join(status["drift"]) or plans[0].get("skipped") or "",
    )


def _state(plan: Record) -> str:
    if plan.get("skipped"):
        return "skip"
    return "drift" if plan["status"]["drift"] else "ok"


def _proof(proofs: Sequence[Record | None]) -> str:
    """The verdict and the age of the oldest; hosts of a group have the same verdict."""
    known = [proof for proof in proofs if proof]
    if not known:
        return "never"
    ages = [proof["age_seconds"] for proof in known]
    return f"{known[0]['verdict']}, {'of unknown age' if None in ages else age(max(ages))}"


def age(seconds: int) -> str:
    """An age for people, in the largest unit that fits."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} old"
    return "new"


def _version(version: str, hosts: Sequence[str], is_largest: bool) -> str:
    """One version of the fleet; the hosts of all but the largest group by name."""
    names = "" if is_largest else f" ({console.names(list(hosts))})"
    return f"{version}: {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}{names}"
