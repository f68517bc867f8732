"""What `doctor` says of users who are to start containers without root."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge

ById = Callable[[list[Check]], dict[str, Check]]
STACK: Any = {"container_toolkit": {"rootless": {"users": ["alice"], "packages": []}}}
RANGE = {"owner": "alice", "first": 100000, "count": 65536}
SEEN: Any = {
    "max_namespaces": 63_000,
    "clone": None,
    "apparmor": None,
    "profile": False,
    "users": {"alice": 1000},
    "uids": [RANGE],
    "gids": [RANGE],
    "added": {"uids": [], "gids": []},
}


def judged(facts: Any, by_id: ById, podman: str | None = "5.4.2", stack: Any = STACK, **seen: Any) -> Any:
    """How the check ends, and why; None where it is not made."""
    changed = copy.deepcopy(facts)
    changed["containers"] |= {"podman": {"version": podman}, "rootless": {**SEEN, **seen}}
    found = by_id(judge.judge(changed, stack)).get("container.rootless")
    return found and (found["status"], found["reason"] or "")


def test_who_has_all_that_it_takes_passes(facts: Any, by_id: ById) -> None:
    assert judged(facts, by_id)[0] == "pass"


def test_who_lacks_something_is_told(facts: Any, by_id: ById) -> None:
    status, reason = judged(facts, by_id, gids=[])
    assert (status, "alice has no range of subordinate ids" in reason) == ("warn", True)
    assert judged(facts, by_id, podman=None) == ("warn", "Podman is not installed")


def test_what_could_not_be_read_is_not_passed(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["unknown"]["containers.rootless"] = "/etc/subuid: permission denied"
    assert judged(changed, by_id)[0] == "incomplete"


def test_where_nobody_is_named_nothing_is_said(facts: Any, by_id: ById) -> None:
    assert judged(facts, by_id, stack={"container_toolkit": {}}) is None
