"""Plans, checks and verdicts for people, on stdout."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeVar

from gpuwright import console, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Change, Plan
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Refusal, RulesAge, Why

    Document = TypeVar("Document", Plan, Record)

_TROUBLE = ("fail", "incomplete", "warn")

# What a person sees of a plan and of a result: hosts that do not differ in these are shown together.
_PLAN_PARTS = (
    "changes",
    "takes",
    "conflicts",
    "refusals",
    "error",
    "skipped",
    "warnings",
    "warnings_as_before",
    "reboot",
    "rescue",
    "download_bytes",
    "disk_bytes",
)
_RESULT_PARTS = (
    "verdict",
    "failure",
    "returned",
    "conflicts",
    "refusals",
    "error",
    "skipped",
    "warnings",
    "warnings_as_before",
    "reboot",
    "left",
    "resume",
    "rescue",
)
# Actions that bring another version.
_MOVING = ("install", "upgrade", "return")
# What becomes of a package that a transaction takes away.
_TAKES = {"remove": "removes", "downgrade": "downgrades", "change-held": "changes though it is on hold"}
# Hosts named one by one before the rest is a number.
_MOST_UNREACHABLE = 20


def plans(
    found: Mapping[str, Plan], unreachable: Mapping[str, str], failed: Mapping[str, str], *, why: bool = False
) -> None:
    """Show the plans of all hosts; those with the same plan together. With `why` the reasons of each decision too."""
    for hosts, plan in _grouped(found, _PLAN_PARTS):
        _plan(hosts, plan)
        if why and plan.get("why"):
            console.out("  because")
            because(plan["why"])
    hosts_not_worked_on(unreachable, failed)
    _sum(found, unreachable, failed)


def results(found: Mapping[str, Record], unreachable: Mapping[str, str]) -> None:
    """Show the verdict of each host, and every check that did not pass; equal results together."""
    for hosts, record in _grouped(found, _RESULT_PARTS):
        _result(hosts, record)
    hosts_not_worked_on(unreachable, {})
    if len(found) + len(unreachable) > 1:
        verdicts = [str(record.get("verdict")) for record in found.values()]
        counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))} | {
            "unreachable": len(unreachable)
        }
        total = len(found) + len(unreachable)
        console.out(
            f"{console.counted(total, 'hosts')}: "
            + ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        )


def report_place(run_dir: object) -> None:
    """Say where the report lies."""
    console.note(f"report: {run_dir}")


def hosts_not_worked_on(unreachable: Mapping[str, str], failed: Mapping[str, str]) -> None:
    """Name the hosts that could not be worked on, each with its reason."""
    rows = [("unreachable", host, why) for host, why in unreachable.items()]
    rows += [("failed", host, why) for host, why in failed.items() if host not in unreachable]
    if not rows:
        return
    console.out(console.table(rows[:_MOST_UNREACHABLE], ("state", "host", "reason")))
    if len(rows) > _MOST_UNREACHABLE:
        console.out(
            f"  … and {console.counted(len(rows) - _MOST_UNREACHABLE, 'more hosts')}; all of them are in the report"
        )


def conflicts(rows: Iterable[Refusal]) -> None:
    """Show why something cannot be done, each reason once with its remedy."""
    for text, remedy in dict.fromkeys((str(row.get("text")), row.get("remedy")) for row in rows):
        console.out(console.paragraph(text, bullet="- "))
        if remedy:
            console.out(console.paragraph(f"remedy: {remedy}", indent=6))


def because(rows: Iterable[Why]) -> None:
    """Show the reasons of decisions with their rules."""
    for row in rows:
        console.out(console.paragraph(f"{row.get('text')} [{row.get('rule')}]", bullet="- "))


class Sources:
    """Where things were read, each named once at the end and by its number before."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, row: Why) -> str:
        """The reference of a reason: " [2]"; nothing for one without a source."""
        source = without_addresses(str(row.get("source") or ""))
        return f" [{self._numbers.setdefault(source, len(self._numbers) + 1)}]" if source else ""

    def show(self, width: int) -> None:
        """List the sources by their numbers."""
        if self._numbers:
            console.out("sources")
        for source, number in self._numbers.items():
            console.out(console.paragraph(source, bullet=f"[{number}] ", width=width))


def without_addresses(source: str) -> str:
    """A source by its file and titles: the address and date of each, in brackets behind it, stand in the file."""
    return re.sub(r" \([^()]*(?:\([^()]*\)[^()]*)*, \d{4}(?:-\d\d)*\)", "", source)


def rules_age(state: RulesAge | None) -> None:
    """Say of when the rules are that answered."""
    if state:
        days = state["age_days"]
        console.out(f"rules of {state['generated']}, {console.counted(days, 'days')} old")


def warnings(record: Plan | Record) -> None:
    """Show the warnings of a host, each once, and how many it had before; see told.py."""
    for text in dict.fromkeys(str(row.get("text")) for row in record.get("warnings") or ()):
        console.out(console.paragraph(f"{console.colour('warning', 'yellow')}: {text}"))
    count = record.get("warnings_as_before") or 0
    if count:
        console.out(f"  {count} {'warning' if count == 1 else 'warnings'} as in the last run (-v shows them)")


def _grouped(found: Mapping[str, Document], parts: Sequence[str]) -> list[tuple[list[str], Document]]:
    """Hosts whose records read the same, largest group first; what is not shown does not count."""
    groups: dict[str, tuple[list[str], Document]] = {}
    for host, record in found.items():
        shown = {key: record.get(key) for key in parts} | {"cards": _hardware(record)}
        if "verdict" in parts:
            shown["checks"] = _rows(_trouble(record))
            shown["moved"] = list(_moved(record))
        groups.setdefault(json.dumps(shown, sort_keys=True, default=str), ([], record))[0].append(host)
    return sorted(groups.values(), key=lambda group: (-len(group[0]), group[0][0]))


def _trouble(record: Plan | Record) -> list[Check]:
    """What did not pass, in the order of the record: the worst first, and a cause before its like."""
    checks = [check for check in record.get("checks") or () if check.get("status") in _TROUBLE]
    return sorted(checks, key=lambda check: _TROUBLE.index(check["status"]))


def _title(hosts: Sequence[str], record: Plan | Record) -> str:
    count = f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""
    marker = " (simulated)" if records.simulated(record) else ""
    return console.colour(console.names(hosts), "bold") + count + marker


def _plan(hosts: Sequence[str], plan: Plan) -> None:
    console.out(_title(hosts, plan) + _hardware(plan))
    if plan.get("error"):
        console.out(console.paragraph(f"bad input: {plan['error']}"))
        for suggestion in plan.get("suggestions") or ():
            console.out(console.paragraph(str(suggestion), indent=4))
        return
    if plan.get("skipped"):
        console.out(console.paragraph(f"skipped: {plan['skipped']}"))
        return
    refused = [*(plan.get("conflicts") or ()), *(plan.get("refusals") or ())]
    if refused:
        console.out("  this cannot be done:")
        conflicts(refused)
    warnings(plan)
    _changes(plan)


def _hardware(plan: Plan | Record) -> str:
    gpus: Iterable[object] = plan.get("gpus") or ()
    cards = [str(card.get("name")) for card in gpus if isinstance(card, dict)]
    return f": {console.one_line(', '.join(counted(cards)))}" if cards else ""


def counted(names: Sequence[str]) -> list[str]:
    """Equal names once, with their number: "2 × H100"."""
    return [f"{names.count(name)} × {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]


def _changes(plan: Plan) -> None:
    changes = plan.get("changes") or []
    if not changes:
        if plan.get("ok", True):
            console.out("  nothing to do")
        return
    rows = [
        (row["component"], row["action"], row.get("from") or "-", row.get("to") or "-", row.get("reason"))
        for row in changes
    ]
    console.out(console.table(rows, ("component", "action", "from", "to", "reason")))
    _packages(changes)
    touched = {
        "leaves": [name for row in changes for name in row.get("leaves") or ()],
        "files": [name for row in changes for name in row.get("files") or ()],
        "services": [name for row in changes for name in row.get("services") or ()],
    }
    for key, names in touched.items():
        if names:
            console.out(f"  {key}: {', '.join(map(console.one_line, dict.fromkeys(names)))}")
    _takes(plan)
    wheels = {(row["name"], row["version"]) for change in changes for row in change.get("wheels") or ()}
    comes = [
        console.counted(len(rows), what)
        for rows, what in ((plan.get("install"), "packages"), (wheels, "wheels"))
        if rows
    ]
    with_others = f" for {' and '.join(comes)}" if comes else ""
    if plan.get("download_bytes") or plan.get("disk_bytes"):
        console.out(
            f"  download {console.size(plan.get('download_bytes'))}{with_others}, {console.size(plan.get('disk_bytes'))} on disk"
        )
    if plan.get("reboot"):
        reason = plan.get("reboot_reason") or "the new driver is loaded then"
        in_table = any(reason in str(row.get("reason")) for row in changes)
        console.out(console.paragraph("a reboot is needed" if in_table else f"a reboot is needed: {reason}"))
    _rescue(plan)


def _takes(plan: Plan) -> None:
    """What the package manager takes away beside what a change says itself."""
    leaves = {name for row in plan.get("changes") or () for name in row.get("leaves") or ()}
    for row in plan.get("takes") or ():
        if row["name"] not in leaves:
            versions = " -> ".join(filter(None, (row["from"], row["to"])))
            why = " (allowed by name)" if row["because"] == "allowed" else ""
            console.out(console.paragraph(f"{_TAKES[row['does']]}: {row['name']} {versions}{why}"))


def _packages(changes: Sequence[Change]) -> None:
    rows = [
        (package["name"], package.get("version") or "unverified", console.size(package.get("download_bytes")))
        for change in changes
        for package in [*(change.get("packages") or ()), *(change.get("wheels") or ())]
    ]
    if rows:
        console.out(console.table(list(dict.fromkeys(rows)), ("package", "version", "download")))


def _sum(found: Mapping[str, Plan], unreachable: Mapping[str, str], failed: Mapping[str, str]) -> None:
    total = len(found.keys() | unreachable.keys() | failed.keys())
    if total < 2:
        return
    change = sum(1 for plan in found.values() if plan.get("changes"))
    download = sum(plan.get("download_bytes") or 0 for plan in found.values())
    reboots = sum(1 for plan in found.values() if plan.get("reboot"))
    console.out(
        f"{console.counted(total, 'hosts')}: {change} to change, {reboots} to reboot, {console.size(download)} to download in all"
    )


def _result(hosts: Sequence[str], record: Record) -> None:
    verdict = console.status(str(record.get("verdict")))
    console.out(f"{_title(hosts, record)}: {verdict}{_after(record)}")
    if record.get("error"):
        console.out(console.paragraph(f"bad input: {record['error']}"))
    refused = [*(record.get("conflicts") or ()), *(record.get("refusals") or ())]
    failure = record.get("failure")
    # What the role preflight refused is told as the refusal that it is.
    if failure and failure.get("message") not in [row.get("text") for row in refused]:
        places = (failure.get("component"), failure.get("task"))
        where = ": ".join(place for place in places if place)
        console.out(console.paragraph(f"failed: {where + ': ' if where else ''}{str(failure.get('message')).strip()}"))
        for line in str(failure.get("output") or "").splitlines():
            console.out(f"    | {console.clean(line)}")
    rollback = records.rollback(record)
    if rollback:
        console.out(console.paragraph(rollback))
    for sentence in _moved(record):
        console.out(console.paragraph(sentence))
    conflicts(refused)
    warnings(record)
    if not refused:  # else the checks tell of the node as it was, and their remedy is the very run that was refused
        _checks(record.get("checks") or [], _trouble(record))
    _left(record)
    _rescue(record)


def _moved(record: Plan | Record) -> Iterator[str]:
    """What went from one version to another or was repaired, and why."""
    for row in record.get("changes") or ():
        if row["action"] == "repair":
            yield f"{row['component']}: repaired: {row['reason']}"
        if row.get("from") and row.get("to") and row["from"] != row["to"] and row["action"] in _MOVING:
            yield f"{row['component']}: {row['from']} -> {row['to']}: {row['reason']}"


def _left(record: Record) -> None:
    """What waits for the boot, and who does it."""
    left = record.get("left") or ()
    if not left:
        return
    rows = [(row["component"], row["reason"]) for row in left]
    console.out(console.table(rows, ("left to do", "reason")))
    resume = record.get("resume")
    if resume and resume["prepared"]:
        text = f"boot when it suits you: the run goes on by itself then, and its report will be in {resume['report']}"
        console.out(console.paragraph(f"{text} (called off by: sudo systemctl disable {resume['unit']})"))
    else:
        why = f" ({resume['why_not']})" if resume and resume["why_not"] else ""
        console.out(console.paragraph(f"after the boot it does not go on by itself{why}"))


def _rescue(record: Plan | Record) -> None:
    """What to read before a workstation boots with another driver."""
    lines = record.get("rescue") or ()
    if lines:
        console.out("  if the screen stays black after the boot:")
    for line in lines:
        console.out(console.paragraph(str(line), bullet="- "))


def _after(record: Record) -> str:
    if record.get("skipped"):
        return f" ({console.one_line(record['skipped'])})"
    if record.get("reboot") and not record.get("failure"):
        return ", a reboot is needed to finish"
    return ""


def _checks(checks: Sequence[Check], trouble: Sequence[Check]) -> None:
    if trouble:
        console.out(console.table(_rows(trouble), ("status", "check", "measured", "reason")))
    for remedy in dict.fromkeys(str(check["remedy"]) for check in trouble if check.get("remedy")):
        console.out(console.paragraph(remedy, bullet="remedy: "))
    if checks:
        counts = {
            status: sum(1 for check in checks if check.get("status") == status)
            for status in ("pass", *_TROUBLE, "skip")
        }
        console.out("  " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))


def _rows(checks: Sequence[Check]) -> list[tuple[str, str, str, str]]:
    """A row for each check; the same of several cards is told once, with all of them."""
    cards: dict[tuple[str, str, str, str], list[str]] = {}
    for check in checks:
        row = (check["status"], str(check["id"]), _measured(check), str(check.get("reason") or ""))
        gpu = check.get("gpu")
        cards.setdefault(row, []).extend([] if gpu is None else [str(gpu)])
    return [
        (status, f"{name} (GPU {', '.join(gpus)})" if gpus else name, measured, reason)
        for (status, name, measured, reason), gpus in cards.items()
    ]


def _measured(check: Check) -> str:
    measured, expected, unit = check.get("measured"), check.get("expected"), check.get("unit")
    if measured is None:
        return "-"
    with_unit = console.counted(measured, str(unit)) if unit else str(measured)
    return with_unit if expected is None else f"{with_unit}, expected {expected}"
