"""`gpuwright status`: equal hosts in one row, the fleet by version, the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import drift as drifting
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import fleet as showing
from tests.unit.cli.conftest import FakeAnsible, event, plan_record

VERSION = "580.126.20"


def record(
    host: str,
    version: str | None = VERSION,
    *drift: str,
    proved: str = "pass",
    unknown: dict[str, str] | None = None,
    **changes: Any,
) -> Any:
    proof: Any = {"verdict": proved, "time": "2026-11-20T12:00:00Z", "age_seconds": 7200}
    status = {
        "state": drifting.state(drift, unknown or {}, proof, skipped=bool(changes.get("skipped"))),
        "versions": {"kernel": version, "user": version, "next": version, "next_kernel": "6.8", "wanted": VERSION},
        "held": not drift if version else None,
        "drift": list(drift),
        "unknown": unknown or {},
        "faults": [],
        "cards": ["H100", "H100"],
        "proof": proof,
    }
    return plan_record(host, status=status, **changes)


def fleet(ansible: FakeAnsible) -> None:
    """Five hundred hosts, two of which run something else."""
    ansible.plans = {f"n{number}": record(f"n{number}") for number in range(1, 501)}
    for host in ("n17", "n401"):
        ansible.plans[host] = record(host, "595.71", "libcuda1 is 595.71 instead of 580.126.20")
    ansible.plans["n3"]["status"]["proof"]["age_seconds"] = 3 * 86400


def test_five_hundred_hosts_are_two_rows_and_one_line(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    fleet(ansible)
    done = gpuwright("status", "-i", "fleet,")
    assert done.code == 1
    lines = done.out.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("drift  n17, n401 ")
    assert lines[1].endswith("libcuda1 is 595.71 instead of 580.126.20")
    assert lines[2].startswith("ok     n1, n2, n3 and 495 more  2 × H100")
    assert "pass, 3 d old" in lines[2]
    assert lines[3] == f"{VERSION}: 498 hosts, 595.71: 2 hosts (n17, n401)"


def test_with_v_each_host_has_a_row(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    fleet(ansible)
    assert len(gpuwright("status", "-v", "-i", "fleet,").out.splitlines()) == 502


def test_json_is_one_document(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": record("a"), "b": record("b", None, "no driver is there")}
    ansible.events = [
        event("runner_on_ok", "a"),
        event("runner_on_ok", "b"),
        event("runner_on_unreachable", "gone", res={"msg": "Connection refused"}),
    ]
    done = gpuwright("status", "-i", "fleet,", "--json")
    told = json.loads(done.out)
    assert done.code == told["exit"] == 1
    assert told.keys() == {"verdict", "exit", "hosts", "unreachable", "versions"}
    assert told["verdict"] == "fail"
    assert told["hosts"]["a"]["verdict"] == "pass"
    assert told["hosts"]["b"]["drift"] == ["no driver is there"]
    assert told["unreachable"].keys() == {"gone"}
    assert told["versions"] == {VERSION: ["a"], "no driver": ["b"]}


@pytest.mark.parametrize(
    ("plans", "code"),
    [
        ({"a": record("a")}, 0),
        ({"a": record("a"), "b": record("b", "1", "drifted")}, 1),
        ({"a": record("a", ok=False, conflicts=[{"rule": "r", "text": "no", "remedy": None}])}, 3),
        ({"a": record("a", ok=False, error="what?")}, 2),
        ({"a": record("a", proved="fail"), "b": record("b")}, 1),
        ({"a": record("a", proved="incomplete")}, 1),
        ({"a": record("a", unknown={"seals": "it is not known whether it was sealed: Permission denied"})}, 1),
    ],
)
def test_the_exit_code_is_0_only_where_nothing_drifts_and_all_is_proven(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, plans: Any, code: int
) -> None:
    ansible.plans = plans
    assert gpuwright("status", "-i", "fleet,").code == code
    assert [(one.playbook, one.check) for one in ansible.requests] == [("status", False)]


def test_a_host_that_cannot_be_reached_is_never_0(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": record("a")}
    ansible.events = [event("runner_on_ok", "a"), event("runner_on_unreachable", "b", res={"msg": "refused"})]
    done = gpuwright("status", "-i", "fleet,")
    assert done.code == 1
    assert "unreachable" in done.out


def test_a_host_without_cards_is_no_drift(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": record("a", None, skipped="no NVIDIA GPU, and none is expected")}
    done = gpuwright("status", "-i", "fleet,")
    assert done.code == 0
    assert "skip" in done.out
    assert "no NVIDIA GPU" in done.out


def test_a_host_whose_last_proof_failed_is_not_ok(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": record("a"), "b": record("b", proved="fail"), "c": record("c", proved="incomplete")}
    done = gpuwright("status", "-i", "fleet,")
    states = {line.split()[1]: line.split()[0] for line in done.out.splitlines()[1:4]}
    assert states == {"b": "fail", "c": "incomplete", "a": "ok"}
    hosts = gpuwright("status", "-i", "fleet,", "--json").json["hosts"]
    assert {name: host["verdict"] for name, host in hosts.items()} == {"a": "pass", "b": "fail", "c": "incomplete"}


def test_what_could_not_be_read_is_neither_fine_nor_drift(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    said = {
        "seals": "it is not known whether it is sealed: Permission denied",
        "proof": "it is not known whether it was proven",
    }
    ansible.plans = {"a": record("a", unknown=said)}
    ansible.plans["a"]["status"]["proof"] = None
    done = gpuwright("status", "-i", "fleet,")
    row = done.out.splitlines()[1]
    assert row.startswith("unknown  a ")
    assert "never" not in row
    assert row.endswith("; ".join(said.values()))
    assert gpuwright("status", "-i", "fleet,", "--json").json["verdict"] == "incomplete"


def test_ansible_alone_shows_the_same_table(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    fleet(ansible)
    plans: Any = ansible.plans
    assert showing.text(plans) == gpuwright("status", "-i", "fleet,").out.rstrip("\n")


@pytest.mark.parametrize(("seconds", "words"), [(5, "new"), (61, "1 min old"), (7200, "2 h old"), (200_000, "2 d old")])
def test_ages_are_for_people(seconds: int, words: str) -> None:
    assert showing.age(seconds) == words
