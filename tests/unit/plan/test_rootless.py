"""Containers of users without root: who may, what they get, and that it is taken back."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import rootless
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput, Wish
from tests.unit.plan import nodes

RULE = "container-toolkit.rootless"
PACKAGES = ["podman", "uidmap", "passt"]


def own(owner: str, first: int = 100000, count: int = 65536) -> dict[str, Any]:
    return {"owner": owner, "first": first, "count": count}


def node(os: tuple[str, str] = ("debian", "13"), **seen: Any) -> Any:
    facts = nodes.bare(os={"id": os[0], "version": os[1]})
    facts["containers"]["rootless"] |= seen
    return facts


def drafted(facts: Any, *users: str) -> Any:
    only = ("container_toolkit",)
    request = Request(host="node", today=date(2026, 11, 20), only=only, inputs={})
    wish = Wish.from_variables({"container_toolkit_rootless": list(users)}).with_defaults().with_roles(only)
    return make_draft(facts, wish, load_rules(), request)


def planned(facts: Any, *users: str) -> Any:
    found = drafted(facts, *users)
    assert isinstance(found, Draft), found
    return finish(found, None)


def refused(facts: Any, *users: str) -> list[str]:
    """What a plan says that is refused."""
    found = drafted(facts, *users)
    assert not isinstance(found, Draft)
    rows = [row for row in found["conflicts"] if row["rule"] == RULE]
    assert all("root's containers get the cards all the same" in row["remedy"] for row in rows)
    return [row["text"] for row in rows]


def work(facts: Any, *users: str) -> Any:
    return planned(facts, *users)["work"]["container_toolkit"]["rootless"]


# --- the wish ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "users"),
    [
        ({"container_toolkit_rootless": ["alice", "bob", "alice"]}, ("alice", "bob")),
        ({"container_toolkit_rootless": "alice"}, ("alice",)),
        ({"gpuwright_want": ["container-rootless=alice,bob"]}, ("alice", "bob")),
    ],
)
def test_users_are_named(variables: Any, users: tuple[str, ...]) -> None:
    wish = Wish.from_variables(variables)
    assert (wish.container_toolkit, wish.container_toolkit_rootless) == (True, users)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["root"], "root's own containers get the cards"),
        (["--help"], "is no name of a user"),
        (["a b"], "is no name of a user"),
    ],
)
def test_who_is_no_user_is_told(given: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        Wish.from_variables({"container_toolkit_rootless": given})


def test_a_want_names_somebody() -> None:
    with pytest.raises(BadInput, match="expected names of users"):
        Wish.from_wants(["container-rootless"])


# --- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"max_namespaces": 0}, "user.max_user_namespaces is 0"),
        ({"clone": False}, "kernel.unprivileged_userns_clone is 0"),
        ({"apparmor": True}, "kernel.apparmor_restrict_unprivileged_userns is 1"),
    ],
)
def test_a_kernel_that_does_not_allow_it_is_told_in_the_plan(seen: Any, text: str) -> None:
    (said,) = refused(node(**seen), "alice")
    assert text in said


@pytest.mark.parametrize(
    "seen", [{"max_namespaces": None, "clone": None}, {"apparmor": True, "profile": True}, {"apparmor": False}]
)
def test_a_kernel_that_does_not_say_no_allows_it(seen: Any) -> None:
    assert work(node(**seen), "alice")["users"] == ["alice"]


def test_who_is_no_user_of_the_machine_is_told() -> None:
    assert refused(node(), "alice", "carol") == ["carol is no user of this machine (/etc/passwd, ids from 1000 on)"]


@pytest.mark.parametrize(
    ("os", "version"), [(("debian", "12"), "4.3.1"), (("ubuntu", "24.04"), "4.9.3"), (("ubuntu", "22.04"), "3.4.4")]
)
def test_a_podman_that_does_not_read_what_the_toolkit_writes_is_told(os: tuple[str, str], version: str) -> None:
    (said,) = refused(node(os), "alice")
    assert f"podman {version} is older than 5.1.0" in said


def test_the_podman_that_is_there_counts_before_that_of_the_system() -> None:
    facts = node(("ubuntu", "24.04"))
    facts["packages"]["installed"]["podman"] = "5.4.2+ds1-2"
    assert work(facts, "alice")["users"] == ["alice"]
    newer = node()
    newer["packages"]["installed"]["podman"] = "4.9.3+ds1-1"
    assert "podman 4.9.3" in refused(newer, "alice")[0]


# --- what they get ----------------------------------------------------------------------------------------------------


def test_podman_comes_beside_the_engine_and_ranges_behind_all_others() -> None:
    facts = node(uids=[own("carol", 100000), own("_", 300000, 1000)], gids=[own("carol", 500000)])
    plan = planned(facts, "alice", "bob")
    names = plan["work"]["container_toolkit"]["packages"][0]["names"]
    assert names[:5] == ["docker.io", "docker-cli", *PACKAGES]
    assert plan["work"]["container_toolkit"]["rootless"]["commands"] == [
        ["usermod", "--add-subuids", "565536-631071", "--add-subgids", "565536-631071", "alice"],
        ["usermod", "--add-subuids", "631072-696607", "--add-subgids", "631072-696607", "bob"],
    ]


def test_podman_as_the_engine_is_named_once() -> None:
    request = Request(host="node", today=date(2026, 11, 20), only=("container_toolkit",), inputs={})
    wish = Wish.from_wants(["container-engine=podman", "container-rootless=alice"]).with_roles(("container_toolkit",))
    found = make_draft(node(), wish, load_rules(), request)
    assert isinstance(found, Draft)
    made: Any = finish(found, None)["work"]["container_toolkit"]
    assert made["packages"][0]["names"][:4] == [*PACKAGES, "nvidia-container-toolkit"]


def test_what_is_given_is_recorded_with_what_was_given_before() -> None:
    before = own("alice", 100000)
    added = {"uids": [before], "gids": [before]}
    found = work(node(uids=[before], gids=[before], added=added), "alice", "bob")
    record = found["record"]
    assert (record["path"], record["mode"]) == ("/var/lib/gpuwright/rootless.json", "0600")
    given = own("bob", 165536)
    assert json.loads(record["content"]) == {"uids": [before, given], "gids": [before, given]}


@pytest.mark.parametrize("owner", ["alice", "1000"])
def test_who_has_a_range_gets_none(owner: str) -> None:
    facts = node(uids=[own(owner)], gids=[own(owner)])
    found = work(facts, "alice")
    assert (found["record"], found["commands"], found["users"]) == (None, [], ["alice"])


@pytest.mark.parametrize(
    "seen", [{"uids": [own("alice")]}, {"uids": [own("alice")], "gids": [own("alice", 100000, 1000)]}]
)
def test_a_range_of_users_alone_or_one_that_is_too_small_is_none(seen: Any) -> None:
    assert len(work(node(**seen), "alice")["commands"]) == 1


def test_ids_that_are_used_up_are_told() -> None:
    facts = node(uids=[own("_", 600_000_000, 99_000)])
    with pytest.raises(StepRefused, match="none left behind the last range"):
        planned(facts, "alice")


def test_nobody_is_given_anything_unasked() -> None:
    facts = node()
    request = Request(host="node", today=date(2026, 11, 20), only=("container_toolkit",), inputs={})
    wish = Wish.from_wants(["container-toolkit"]).with_roles(("container_toolkit",))
    found = make_draft(facts, wish, load_rules(), request)
    assert isinstance(found, Draft)
    made: Any = finish(found, None)["work"]["container_toolkit"]
    assert made["rootless"] is None
    assert "rootless" not in found.context.stack["container_toolkit"]


def test_a_range_that_somebody_took_away_is_given_again() -> None:
    facts = nodes.provisioned()
    installed = facts["packages"]["installed"]
    installed |= dict.fromkeys(PACKAGES, "5.4.2")
    lacking = [row["reason"] for row in planned(facts, "alice")["changes"] if row["component"] == "container_toolkit"]
    assert any("no range of subordinate ids for alice" in reason for reason in lacking)
    facts["containers"]["rootless"] |= {"uids": [own("alice")], "gids": [own("alice")]}
    assert not any("subordinate" in row["reason"] for row in planned(facts, "alice")["changes"])


# --- taken back -------------------------------------------------------------------------------------------------------


def test_what_was_given_and_is_there_is_taken_back_and_nothing_else() -> None:
    given = own("alice", 165536)
    facts = node(uids=[own("bob"), given], gids=[own("bob")], added={"uids": [given], "gids": []})
    removes: Any = COMPONENTS["container_toolkit"].removes(facts, [])
    assert removes["rootless"] == [{"path": "/etc/subuid", "line": "alice:165536:65536"}]
    assert rootless.taken_back(node()) == []


# --- checked ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"max_namespaces": 0}, "the kernel does not let users"),
        ({"apparmor": True}, "AppArmor has no profile"),
        ({"users": {}}, "alice is no user of this machine"),
        ({"gids": []}, "alice has no range of subordinate ids in /etc/subuid and /etc/subgid"),
        ({}, None),
    ],
)
def test_what_keeps_a_user_from_containers_is_told(seen: Any, text: str | None) -> None:
    facts = node(**{"uids": [own("alice")], "gids": [own("alice")], **seen})
    said = rootless.reason(facts["containers"]["rootless"], ["alice"])
    assert said is None if text is None else text in str(said)
