"""What nobody could read is neither there nor absent: no run changes a node on the word of an answer that did not come."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.gate import honest

_RULES = load_rules()
_SILENT = "rpm: no answer within 20 s"
#: What an observation has in the place of each: nothing, with the reason beside it.
UNREAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("packages.installed", {"packages": {"installed": {}}, "driver": {"packages": {}}, "history": {"brought": []}}),
    ("seals", {"seals": None}),
    ("history", {"history": None}),
)


def unread(fact: str, changes: dict[str, Any]) -> Any:
    """A provisioned node of which one thing could not be read."""
    facts = honest.provisioned()
    for section, values in changes.items():
        facts[section] = {**facts[section], **values} if isinstance(values, dict) else values
    return {**facts, "unknown": {**facts["unknown"], fact: _SILENT}}


def planned(facts: Any, verb: str) -> Any:
    request = Request(host="node", today=date(2026, 11, 20), verb=verb)
    if verb == "remove":
        return removal.take_back(facts, request)
    drafted = make_draft(facts, Wish.from_variables({}).with_defaults(), _RULES, request)
    return drafted if isinstance(drafted, dict) else finish(drafted, honest.INDEX)


@pytest.mark.parametrize(("fact", "changes"), UNREAD, ids=[fact for fact, _changes in UNREAD])
@pytest.mark.parametrize("verb", ["up", "upgrade", "rollback", "remove"])
def test_a_run_is_refused_where_what_decides_it_could_not_be_read(
    verb: str, fact: str, changes: dict[str, Any]
) -> None:
    plan = planned(unread(fact, changes), verb)
    told = [row for row in plan["refusals"] if _SILENT in row["text"]]
    assert told, plan["changes"]
    assert all(row["remedy"] for row in told)
    assert not plan["ok"]


@pytest.mark.parametrize("verb", ["up", "upgrade", "remove"])
def test_what_is_known_is_not_refused(verb: str) -> None:
    assert "not-known" not in [row["rule"] for row in planned(honest.provisioned(), verb)["refusals"]]


def test_a_look_alone_is_not_refused() -> None:
    facts = unread("packages.installed", {"packages": {"installed": {}}})
    assert "not-known" not in [row["rule"] for row in planned(facts, "plan")["refusals"]]


@pytest.mark.parametrize(("fact", "changes"), UNREAD, ids=[fact for fact, _changes in UNREAD])
def test_a_removal_does_not_end_while_nobody_can_see_what_is_left(fact: str, changes: dict[str, Any]) -> None:
    """The records go after this look: what it does not see, nobody would ever find again."""
    facts = unread(fact, changes)
    if facts["history"] is not None:
        facts["history"] = {"drivers": [], "failed": [], "brought": []}
    assert _SILENT in removal.left(facts, ())
    assert removal.check(facts, [])["status"] == "incomplete"
