"""What hosts measured between each other: who is at fault, who is slow, and who is not blamed for another one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import fabric
from ansible_collections.gpuwright.node.plugins.plugin_utils.health.fabric import Told

GB = 10**9


def answer(joined: bool, busbw: float | None = None, mtu: int = 9000, **more: Any) -> dict[str, Any]:
    found = [checks.judged("fabric.joined", joined, reason=None if joined else "nobody came in 180 s")]
    found.append(checks.passed("fabric.memlock", "warning"))
    found.append(checks.skipped("fabric.mtu", "one host has nothing to compare it with", "info", measured=mtu))
    rows = [
        {"kind": "all_reduce", "bytes": size, "ranks": 16, "busbw_gbs": (busbw or 0) * share}
        for size, share in ((10**6, 0.1), (10**9, 1.0))
    ]
    rows.append({"kind": "all_gather", "bytes": 4 * GB, "ranks": 16, "busbw_gbs": 1.0})
    return {"checks": found, "collectives": rows if busbw else [], **more}


def pairs(
    of: Mapping[frozenset[str], float | None], hosts: str, mtu: Mapping[str, int] | None = None
) -> dict[str, list[Told]]:
    """What the hosts told of all their pairs; the figure of a pair is told by its first host, None is a pair that did not come together."""
    found: dict[str, list[Told]] = {host: [] for host in hosts}
    for first, second in itertools.combinations(hosts, 2):
        figure = of.get(frozenset((first, second)), 40.0)
        for host in (first, second):
            told = figure if host == first else None
            size = (mtu or {}).get(host, 9000)
            found[host].append({"hosts": [first, second], "answer": answer(figure is not None, told, size)})
    return found


def without(lost: str, hosts: str) -> dict[frozenset[str], float | None]:
    return {frozenset((lost, host)): None for host in hosts if host != lost}


def status(found: list[Any], name: str) -> list[str]:
    return [check["status"] for check in found if check["id"] == name]


def test_hosts_that_all_come_together_are_right_and_each_check_is_told_once() -> None:
    found = fabric.judge(pairs({}, "abcd"))
    for host in "abcd":
        assert status(found[host], "fabric.memlock") == ["pass"]
        assert status(found[host], "fabric.joined") == ["pass"]
        assert status(found[host], "fabric.pairs") == ["pass"]
        assert status(found[host], "fabric.mtu") == ["pass"]
        assert checks.verdict(found[host]) == "pass"


def test_a_host_that_nobody_reaches_is_at_fault_and_the_others_are_not() -> None:
    answers = pairs(without("c", "abcd"), "abcd")
    assert fabric.able(answers) == set("abd")
    found = fabric.judge(answers)
    assert checks.verdict(found["c"]) == "fail"
    assert [check["reason"] for check in found["c"] if check["id"] == "fabric.joined"] == [
        f"with {host}: nobody came in 180 s" for host in "abd"
    ]
    for host in "abd":
        assert checks.verdict(found[host]) == "pass", found[host]


def test_of_two_hosts_both_are_not_proven() -> None:
    found = fabric.judge(pairs({frozenset("ab"): None}, "ab"))
    assert [checks.verdict(found[host]) for host in "ab"] == ["fail", "fail"]


def test_a_single_path_that_is_broken_fails_both_of_its_ends() -> None:
    found = fabric.judge(pairs({frozenset("ab"): None}, "abcd"))
    assert [checks.verdict(found[host]) for host in "abcd"] == ["fail", "fail", "pass", "pass"]


def test_what_all_did_together_counts_as_it_is() -> None:
    answers = pairs({}, "abc")
    for host in "abc":
        answers[host].append({"hosts": list("abc"), "answer": answer(joined=False)})
    found = fabric.judge(answers)
    for host in "abc":
        assert status(found[host], "fabric.joined") == ["fail"]


def test_a_slow_host_is_named_and_its_partners_are_not() -> None:
    slow = {frozenset(("d", host)): 20.0 for host in "abce"}
    found = fabric.judge(pairs(slow, "abcde"))
    assert {host: status(found[host], "fabric.pairs") for host in "abcde"} == {
        **{host: ["pass"] for host in "abce"},
        "d": ["warn"],
    }
    (told,) = (check for check in found["d"] if check["id"] == "fabric.pairs")
    assert (told["measured"], told["expected"], told["unit"]) == (20.0, 40.0, "GB/s")


def test_two_hosts_cannot_tell_which_of_them_is_slow() -> None:
    found = fabric.judge(pairs({}, "ab"))
    assert status(found["a"], "fabric.pairs") == ["skip"]


def test_another_mtu_is_told_at_the_host_that_has_it() -> None:
    found = fabric.judge(pairs({}, "abcd", {"b": 1500}))
    assert {host: status(found[host], "fabric.mtu") for host in "abcd"} == {
        **{host: ["pass"] for host in "acd"},
        "b": ["warn"],
    }
    found = fabric.judge(pairs({}, "ab", {"b": 1500}))
    assert [status(found[host], "fabric.mtu") for host in "ab"] == [["warn"], ["warn"]]
    lonely = {"a": [{**told, "answer": answer(joined=False)} for told in pairs({}, "ab")["a"]], "b": []}
    assert status(fabric.judge(lonely)["a"], "fabric.mtu") == ["skip"]  # type: ignore[arg-type]


def test_a_host_that_is_alone_is_not_proven() -> None:
    found = fabric.judge({"a": []})
    assert status(found["a"], "fabric.runs") == ["incomplete"]


def test_an_answer_without_checks_proves_nothing() -> None:
    broken: Any = {"failed": True, "msg": "Timeout exceeded"}
    answers = pairs({}, "abc")
    answers["b"] = [{"hosts": told["hosts"], "answer": broken} for told in answers["b"]]
    found = fabric.judge(answers)
    assert checks.verdict(found["b"]) == "incomplete"
    assert [check["evidence"] for check in found["b"] if check["id"] == "fabric.runs"] == 2 * ["Timeout exceeded"]
