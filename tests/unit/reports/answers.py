"""What the product says of a report, in the order in which a person reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.packages.private_apt import problem
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import hidden, judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from gpuwright import show
from gpuwright.cli import main
from tests.unit.plan import nodes
from tests.unit.reports import machines


@dataclass(frozen=True)
class Said:
    """One thing that is said: by a check, a refusal, a warning or a change of the plan. `evidence` is in the report alone."""

    name: str
    kind: str
    text: str
    remedy: str = ""
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text} -> {self.remedy}"


@dataclass(frozen=True)
class Answer:
    """All that is said, and the whole document."""

    said: Sequence[Said]
    document: Any
    exit: int | None = None

    def without(self, before: Answer) -> Answer:
        """What is said of this machine and not of the one that was well."""
        known = {(one.name, one.kind, one.text) for one in before.said}
        return Answer([one for one in self.said if (one.name, one.kind, one.text) not in known], self.document)


def of_machine(asked: str, facts: Any, report: dict[str, Any]) -> Answer:
    """What `doctor` or `plan` says of these facts."""
    wish = Wish.from_variables({"gpuwright_want": report.get("wants") or ["driver"]}).with_defaults()
    request = Request(host="node", today=date(2026, 11, 20), verb="doctor" if asked == "doctor" else "up")
    made: Any = make_draft(facts, wish, load_rules(), request)
    if not isinstance(made, dict):
        made = finish(made, _index(made, facts, report.get("index") or {}) if made.packages else None)
    if asked == "doctor":
        if report.get("log") is not None:
            told = judge_kernel_log.judge(machines.log(report["log"].splitlines()), load_rules(), facts)
            made = document.with_checks(made, told, "doctor")
        return Answer([*_refused(made), *(_check(check) for check in show._trouble(made))], made)
    return Answer([*_refused(made), *_planned(made)], made)


def of_resolve(words: Sequence[str], files: dict[str, str], place: Path, capsys: pytest.CaptureFixture[str]) -> Answer:
    """What `gpuwright resolve` says; `files`: what the words name."""
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    capsys.readouterr()
    code = main(["resolve", *(word.replace("FILES", str(place)) for word in words), "--json"])
    told = json.loads(capsys.readouterr().out)
    return Answer([*_refused(told), *_warned(told)], told, code)


def _index(drafted: Any, facts: Any, candidates: dict[str, str]) -> Any:
    """The answer of a package index that has everything, but for what the machine itself keeps out: in one build, or in the versions given.
    None where apt reads no source: nobody was asked, as offline.
    """
    if facts["packages"]["manager"] == "apt" and facts["packages"].get("broken_sources"):
        return None
    there = facts["packages"]["installed"]
    known = {name: candidates.get(name, f"{nodes.DRIVER}-1") for name in {*drafted.packages, *candidates}}
    everywhere = [row for row in facts["packages"].get("hides") or () if row["source"] is None]
    kept = {name: row for name in known for row in everywhere if name not in there and hidden.keeps_out(row, name)}
    comes = {name: version for name, version in known.items() if name not in kept}
    rows = [
        {"name": name, "version": version, "from": there.get(name), "download_bytes": 1000, "installed_bytes": 5000}
        for name, version in sorted(comes.items())
        if version != there.get(name)
    ]
    return nodes.index(
        exchange={"comes": comes, "leaves": sorted(set(drafted.replaced) - set(comes))} if drafted.replaced else None,
        packages={name: {"candidate": version, "versions": [version]} for name, version in comes.items()},
        install=rows,
        problems=[_kept_out(row, [name for name in sorted(kept) if kept[name] is row]) for row in _once(kept.values())],
        download_bytes=1000 * len(rows),
        disk_bytes=5000 * len(rows),
    )


def _kept_out(row: Any, names: list[str]) -> Any:
    """What apt and dnf are seen to say of what they keep out (module_utils/packages/private_apt.py, `hidden`)."""
    found = problem("hidden", f"{row['file']} keeps {', '.join(names)} from being installed ({row['entry']})")
    return {**found._asdict(), "needed": True, "package": None, "source": None}


def _once(rows: Iterable[Any]) -> list[Any]:
    return list({id(row): row for row in rows}.values())


def _check(check: Any) -> Said:
    words = [str(word) for word in (check["reason"], check["gpu"], check["measured"]) if word is not None]
    return Said(check["id"], check["status"], " ".join(words), check["remedy"] or "", check["evidence"] or "")


def _refused(made: Any) -> list[Said]:
    rows = [Said("input", "error", made["error"], " ".join(made.get("suggestions") or ()))] if made.get("error") else []
    refused = [*(made.get("conflicts") or ()), *(made.get("refusals") or ())]
    return rows + [Said(row["rule"], "refused", row["text"], row.get("remedy") or "") for row in refused]


def _warned(made: Any) -> list[Said]:
    told = ((row["rule"], *row["text"].partition(" What to do: ")) for row in made.get("warnings") or ())
    return [Said(rule, "warned", text, remedy) for rule, text, _words, remedy in told]


def _planned(made: Any) -> list[Said]:
    changes = [
        Said(row["component"], row["action"], f"{row['reason']}: {' '.join(each['name'] for each in row['packages'])}")
        for row in made["changes"]
    ]
    return [*_warned(made), *changes]
