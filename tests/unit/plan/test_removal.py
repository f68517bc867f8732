"""A removal is planned like any other change: what it needs is asked first, what cannot be had is said, and the rest goes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from tests.unit.plan import nodes

from .test_planner import request
from .test_removal_work import _LISTS, aside
from .test_rollback import OLD, node, state

_OURS = {"libcuda1": f"{nodes.DRIVER}-1", "nvidia-driver-cuda": f"{nodes.DRIVER}-1"}
#: A driver whose packages have its branch in their names, as Ubuntu's.
_BRANCHED = {"nvidia-driver-570": "570.1-1", "libnvidia-compute-570": "570.1-1"}


def before(packages: dict[str, str], **history: Any) -> Any:
    """A node with a driver of ours in the place of somebody else's."""
    brought = ["fio", *(name for name in _OURS if name not in packages)]
    original = state("570.1", stack={}, packages=packages, source="distro")
    facts = node(original=original, brought=brought, components=["nvidia_driver"], **history)
    facts["driver"]["packages"] = dict(_OURS)
    return facts


def index(packages: dict[str, str], *problems: Any) -> Any:
    rows = {name: {"candidate": version, "versions": [version]} for name, version in packages.items()}
    install = [
        {"name": name, "version": version, "from": None, "download_bytes": 1000, "installed_bytes": 5000}
        for name, version in packages.items()
    ]
    return nodes.index(packages=rows, install=install, download_bytes=2000, disk_bytes=7000, problems=list(problems))


def problem(kind: str) -> Any:
    return {"kind": kind, "repository": None, "text": f"{kind}!", "remedy": None, "package": None, "needed": True}


class Machine:
    """What a node answers, by the word that a command has in it; nothing is in use."""

    def __init__(self, *rules: tuple[str, list[str] | None], **given: Any) -> None:
        self.rules, self.given = rules, given
        self.asked: list[Any] = []

    def __call__(self, questions: Any) -> Any:
        self.asked.append(questions)
        found = [
            (argv, next((lines for word, lines in self.rules if word in argv), [])) for argv in questions["commands"]
        ]
        return {
            "answers": [
                {"item": argv, "rc": None if lines is None else 0, "stdout_lines": lines or [], "error": None}
                for argv, lines in found
            ],
            "there": [
                {"item": path, "stat": {"exists": path in self.given.get("there", ())}} for path in questions["there"]
            ],
            "others": self.given.get("others", []),
            "untried": self.given.get("untried"),
            "aside": self.given.get("aside", []),
        }


def planned(facts: Any, answers: Any = None, found: Any = None, **inputs: Any) -> Any:
    asked = request(verb="remove", inputs={"remove": inputs})
    return removal.answered(facts, asked, found, answers or Machine())


def warnings(plan: Any) -> list[str]:
    assert all(row["rule"] == removal.STAYS for row in plan["warnings"])
    return [row["text"] for row in plan["warnings"]]


# --- the driver before ------------------------------------------------------------------------------------------------


def test_the_index_is_asked_for_the_driver_before_at_its_versions_and_not_for_what_is_kept() -> None:
    facts = before(_BRANCHED, copies=["nvidia-driver-570_570.1-1_amd64.deb"])
    question = removal.question(facts, request(verb="remove"))
    assert question == {"packages": ["libnvidia-compute-570"], "keep": {"libnvidia-compute-570": "570.1-1"}}
    assert removal.question(node(brought=["fio"]), request(verb="remove")) is None
    left_out = request(verb="remove", inputs={"remove": {"remove_restore": False}})
    assert removal.question(facts, left_out) is None


def test_what_the_driver_before_brings_is_in_the_plan_with_its_size() -> None:
    plan = planned(before(_BRANCHED), found=index(_BRANCHED))
    assert plan["restore"]["version"] == "570.1"
    assert (plan["download_bytes"], plan["disk_bytes"]) == (2000, 7000)
    assert warnings(plan) == []


def test_without_room_for_the_driver_before_the_removal_is_refused() -> None:
    facts = before(_BRANCHED)
    facts["disks"] = [{**row, "free_bytes": 1} for row in facts["disks"]]
    plan = planned(facts, found=index(_BRANCHED))
    assert "no-space" in [row["rule"] for row in plan["refusals"]]


def test_a_driver_before_that_left_the_index_is_said_and_the_rest_goes() -> None:
    plan = planned(before(_BRANCHED), found=index({}))
    assert plan["ok"], plan["refusals"]
    assert (plan["restore"], sorted(plan["remove"]["packages"])) == (None, ["fio", *sorted(_OURS)])
    (text,) = warnings(plan)
    assert "driver 570.1, which somebody else had installed, cannot come back" in text
    assert "without a driver of NVIDIA's" in text
    assert not any(change["to"] == "570.1" for change in plan["changes"])
    assert plan["reboot"] is True


def test_where_both_drivers_have_packages_of_one_name_the_present_one_stays_whole() -> None:
    packages = {"libcuda1": "570.1-1"}
    nouveau = "/etc/modprobe.d/gpuwright-nouveau.conf"
    facts = before(packages, files=[nouveau, "/etc/gpuwright/mig.json"])
    facts["packages"]["holds"] = ["hello", "libcuda1"]
    plan = planned(facts, found=index({}))
    assert plan["remove"]["packages"] == ["fio"]
    assert set(plan["remove"]["kept"]) == set(_OURS)
    assert plan["remove"]["files"] == ["/etc/gpuwright/mig.json"]
    assert plan["reboot"] is False
    (text,) = warnings(plan)
    assert f"driver {nodes.DRIVER} stays, held (apt-mark unhold libcuda1)" in text
    gone = nodes.merged(facts, {"history": {"files": [], "components": []}})
    gone["history"]["brought"] = ["nvidia-driver-cuda"]
    assert removal.left(gone, plan["remove"]["kept"], restores=False) == ""


def test_a_driver_of_somebody_else_that_is_there_needs_nothing_of_ours() -> None:
    nouveau = "/etc/modprobe.d/gpuwright-nouveau.conf"
    plan = planned(before(_OURS, files=[nouveau]))
    assert (plan["remove"]["files"], plan["remove"]["kept"], warnings(plan)) == ([nouveau], [], [])
    assert plan["remove"]["packages"] == ["fio"]


@pytest.mark.parametrize("kind", ["timeout", "unreachable", "broken-source"])
def test_an_index_that_does_not_answer_has_lost_nothing(kind: str) -> None:
    plan = planned(before(_BRANCHED), found=index({}, problem(kind)))
    (refusal,) = plan["refusals"]
    assert refusal["rule"] == "restore-unknown"
    assert "remove_restore=false" in refusal["remedy"]
    without = planned(before(_BRANCHED), remove_restore=False)
    assert without["ok"]
    assert without["restore"] is None


@pytest.mark.parametrize("kind", ["no-such-package", "unsolvable"])
def test_versions_that_are_not_there_are_lost(kind: str) -> None:
    plan = planned(before(_BRANCHED), found=index({}, problem(kind)))
    assert (plan["ok"], plan["restore"]) == (True, None)


@pytest.mark.parametrize(
    ("packages", "loaded", "pending", "status"),
    [
        (_BRANCHED, "570.1", False, "pass"),
        (_BRANCHED, nodes.DRIVER, False, "fail"),
        (_BRANCHED, None, False, "fail"),
        (_BRANCHED, nodes.DRIVER, True, "skip"),
        (_OURS, nodes.DRIVER, False, "fail"),
    ],
)
def test_the_verdict_judges_the_driver_that_came_back(
    packages: dict[str, str], loaded: str | None, pending: bool, status: str
) -> None:
    facts = before(_BRANCHED)
    restored = planned(facts, found=index(_BRANCHED))["restore"]
    facts["driver"] = {**facts["driver"], "packages": packages, "loaded_version": loaded}
    assert removal.check_of_driver(facts, restored, pending=pending)["status"] == status


# --- what the node answers --------------------------------------------------------------------------------------------


def test_what_would_break_is_refused_before_the_first_change() -> None:
    lines = ["Purg fio [3]", "Remv users-db [1]"]
    plan = planned(node(brought=["fio"]), Machine(("purge", lines)))
    (refusal,) = plan["refusals"]
    assert (refusal["rule"], plan["ok"]) == ("removal-refused", False)
    assert "users-db" in refusal["text"]
    assert "remove_also" in refusal["remedy"]
    assert planned(node(brought=["fio"]), Machine(("purge", lines)), remove_also=["users-db"])["ok"]


def test_a_removal_that_dnf_does_not_try_is_refused() -> None:
    facts = node(brought=["fio"])
    facts["packages"]["manager"] = "dnf"
    assert "broken" in planned(facts, Machine(untried="the rpmdb is broken"))["refusals"][0]["text"]


def test_an_engine_that_stays_is_in_the_plan_with_what_makes_it_go() -> None:
    facts = node(brought=["docker.io", "containerd", "fio"])
    facts["containers"]["docker"]["active"] = False
    needs = ["docker.io", "containerd"]
    machine = Machine(("depends", needs))
    plan = planned(facts, machine)
    assert (plan["remove"]["packages"], plan["remove"]["kept"]) == (["fio"], ["docker.io", "containerd"])
    told = warnings(plan)
    assert "systemctl start docker" in told[0]
    assert [text.rpartition("then ")[2] for text in told] == ["apt-get purge docker.io", "apt-get purge containerd"]
    assert [argv[-1] for argv in machine.asked[-1]["commands"] if "purge" in argv] == ["fio"]
    after = node(brought=["docker.io", "containerd"])
    assert removal.left(after, plan["remove"]["kept"]) == ""
    assert told[0] in str(removal.check(after, told)["reason"])


def test_what_makes_an_engine_go_takes_no_other_one_along() -> None:
    facts = node(brought=["dkms", "docker.io", "fio", "runc", "make"])
    facts["containers"]["docker"]["active"] = False
    # DKMS answers both questions so: it holds two modules, and needs make.
    told = warnings(planned(facts, Machine(("docker.io", ["docker.io", "runc"]), ("dkms", ["dkms", "make"]))))
    assert {text.partition(" ")[0]: text.rpartition("then ")[2] for text in told} == {
        "Docker": "apt-get purge docker.io runc",
        "DKMS": "apt-get purge dkms make",
    }


def test_the_package_source_of_an_engine_that_stays_does_too() -> None:
    source, key = "/etc/apt/sources.list.d/gpuwright-docker.sources", "/usr/share/keyrings/gpuwright-docker.gpg"
    others = ["/etc/apt/sources.list.d/gpuwright-nvidia.sources", "/etc/modprobe.d/gpuwright-nouveau.conf"]
    facts = node(brought=["docker-ce", "fio"], files=[source, key, *others])
    facts["containers"]["docker"]["active"] = False
    plan = planned(facts, Machine(("depends", ["docker-ce"])))
    assert plan["remove"]["files"] == others
    assert warnings(plan)[0].endswith(f"Its package source stays: {source}, {key}")
    assert removal.left(node(brought=["docker-ce"], files=[source, key]), plan["remove"]["kept"]) == ""
    # It is no sign of a record that is lost.
    after = nodes.bare(packages={"installed": {"nvidia-driver": "570"}, "sources": [{"file": source}]})
    assert removal.unrecorded(after) == {}
    # Of Debian's own engine no source is ours.
    facts["history"]["brought"] = ["docker.io", "fio"]
    assert planned(facts, Machine(("depends", ["docker.io"])))["remove"]["files"] == [source, key, *others]


def test_what_dpkg_could_not_finish_of_others_is_told_in_the_end() -> None:
    detail = "packages left unfinished: half-configured: company-vpn"
    after = nodes.bare(packages={"interrupted": True, "interrupted_detail": detail})
    reason = str(removal.check(after, [])["reason"])
    assert f"not finished ({detail})" in reason
    assert reason.endswith("dpkg --configure -a")


def test_todays_file_is_told_where_the_one_that_was_put_aside_is_another() -> None:
    told = warnings(planned(node(brought=["fio"]), Machine(aside=aside("other", _LISTS[0]))))
    assert [text.partition(" ")[0] for text in told] == [_LISTS[0]]


def test_nothing_is_asked_where_nothing_goes_or_the_record_is_refused() -> None:
    machine = Machine()
    assert planned(node(brought=["fio"], files=["/etc/passwd"]), machine)["ok"] is False
    assert planned(nodes.merged(nodes.bare(), {"history": node()["history"]}), machine)["changes"] == []
    unread = node(brought=["fio"])
    unread["history"], unread["unknown"] = None, {"history": "it cannot be read"}
    assert planned(unread, machine)["components"] == []
    assert machine.asked == []


def test_the_state_of_a_driver_that_is_there_needs_no_way_back() -> None:
    assert removal.question(node(original=state(OLD, packages=node()["driver"]["packages"])), request()) is None
