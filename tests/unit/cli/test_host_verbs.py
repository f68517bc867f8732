from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import console, privilege
from tests.unit.cli.conftest import FakeAnsible, check, event, plan_record, result_record, world_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def answer(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A person at the terminal who types these words."""
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(words))


# --- plan -------------------------------------------------------------------------------------------------------------


def test_plan_is_a_dry_run_of_the_site(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    assert gpuwright("plan").code == 0
    assert [(one.playbook, one.check) for one in ansible.requests] == [("site", True)]


def test_plan_shows_changes_packages_sizes_and_the_reboot(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    said = gpuwright("plan").out
    for word in (
        "nvidia_driver",
        "install",
        "580.95.05",
        "no driver is installed",
        "nvidia-open",
        "580.95.05-1",
        "12.0 MB",
        "nvidia-persistenced.service",
        "345.0 MB",
        "1.2 GB on disk",
        "nouveau holds the card",
        "2 × H100",
    ):
        assert word in said


def test_wheels_are_shown_with_the_packages_each_with_its_size(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    record = plan_record("a")
    record["install"] = [{"name": "nvidia-open"}]
    record["changes"][0]["wheels"] = [
        {"name": "torch", "version": "2.14.1+cu130", "download_bytes": 899_800_000},
        {"name": "torchvision", "version": None, "download_bytes": None},
    ]
    ansible.plans = {"a": record}
    said = " ".join(gpuwright("plan").out.split())
    assert "torch 2.14.1+cu130 899.8 MB" in said
    assert "torchvision unverified" in said
    assert "for 1 package and 2 wheels, 1.2 GB on disk" in said


def test_the_reasons_of_a_plan_are_shown_with_v(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    assert "580 is long-term" not in gpuwright("plan").out
    assert "580 is long-term [branch]" in gpuwright("plan", "-v").out


def test_plan_json_is_the_contracts(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    done = gpuwright("plan", "--json")
    assert set(done.json) == {"verdict", "exit", "hosts", "unreachable"}
    assert {"changes", "reboot", "download_bytes", "disk_bytes", "stack", "warnings", "why"} <= set(
        done.json["hosts"]["a"]
    )
    assert (done.json["verdict"], done.json["exit"]) == ("incomplete", 0)


def test_a_fleet_with_one_plan_is_shown_once(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    hosts = [f"gpu{number:03}" for number in range(500)]
    ansible.plans = {host: plan_record(host) for host in hosts}
    ansible.plans["gpu007"] = plan_record("gpu007", changes=[], reboot=False, download_bytes=0, disk_bytes=0)
    said = gpuwright("plan", "-i", "fleet,").out
    assert said.count("no driver is installed") == 1
    assert "(499 hosts)" in said
    assert "nothing to do" in said
    assert "500 hosts: 499 to change, 499 to reboot, 172.2 GB to download in all" in said


def test_a_conflict_is_refused_with_its_remedy(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    row = {"rule": "r", "text": "580 is too old for this card", "source": "s", "remedy": "wish driver=590"}
    ansible.plans = {"a": plan_record("a", ok=False, changes=[], conflicts=[row])}
    done = gpuwright("plan")
    assert done.code == 3
    assert "580 is too old for this card" in done.out
    assert "remedy: wish driver=590" in done.out


@pytest.mark.parametrize("verb", ["validate", "doctor"])
def test_a_lock_that_cannot_be_held_is_refused_by_the_verbs_that_only_look(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str
) -> None:
    told = {"measured": "lock.node", "reason": "the lock cannot be held on this node", "remedy": "make one"}
    checks = [check("wish.conflict", "fail", **told), check("pcie.width", "fail", reason="the link is narrow")]
    ansible.results = {"a": result_record("a", verdict="fail", checks=checks)}
    done = gpuwright(verb)
    assert done.code == 3
    for words in ("the lock cannot be held on this node", "remedy: make one", "the link is narrow"):
        assert words in done.out


def test_a_refused_host_fails_its_task_and_is_still_told_by_its_plan(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    row = {"rule": "r", "text": "no room", "source": "s", "remedy": "make room"}
    ansible.plans = {"a": plan_record("a", ok=False, refusals=[row])}
    ansible.events = [event("runner_on_failed", "a", res={"msg": "no room"})]
    ansible.rc = 2
    assert gpuwright("plan").code == 3


def test_a_refused_host_is_told_why_and_not_to_run_up_again(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    row = {"rule": "r", "text": "no room", "source": "s", "remedy": "make room"}
    old = check("driver.loaded", "fail", reason="not loaded", remedy="run gpuwright up")
    ansible.results = {"a": result_record("a", verdict="fail", refusals=[row], checks=[old])}
    done = gpuwright("up", "--yes", "-i", "a,")
    assert done.code == 3
    assert "remedy: make room" in done.out
    assert "run gpuwright up" not in done.out


def test_an_unreachable_host_is_named_with_the_reason(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    refused = {"msg": "Failed to connect to the host via ssh: ssh: connect to host b port 22: Connection refused"}
    ansible.events = [event("runner_on_ok", "a"), event("runner_on_unreachable", "b", res=refused)]
    ansible.rc = 4
    done = gpuwright("plan", "-i", "a,b,", "--json")
    assert done.code == done.json["exit"] == 1
    assert done.json["unreachable"] == {"b": "cannot be reached by ssh: connect to host b port 22: Connection refused"}


def test_a_host_without_a_plan_is_a_failure(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.events = [event("runner_on_failed", "a", res={"msg": "the module broke"})]
    done = gpuwright("plan")
    assert done.code == 1
    assert "the module broke" in done.out


def test_a_skipped_host_says_why(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a", changes=[], skipped="no NVIDIA GPU and none expected", verdict="skip")}
    done = gpuwright("plan", "-i", "a,")
    assert done.code == 0
    assert "no NVIDIA GPU and none expected" in done.out


def test_control_characters_of_a_host_do_not_reach_the_terminal(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a", warnings=[{"rule": "r", "text": "evil \x1b[2J\x07 text", "source": "s"}])}
    assert "evil  text" in gpuwright("plan").out


@pytest.mark.parametrize("text", ["\x1b[2J\x1b[1;1H", "\x9b2J", "\u202e", "\x07", "\n[other] pass"])
def test_nothing_that_a_host_names_moves_the_cursor_or_makes_a_line_of_its_own(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, text: str
) -> None:
    name = f"evil{text}"
    change = {**plan_record("a")["changes"][0], "files": [name], "services": [name], "to": name, "reason": name}
    check = {"id": name, "status": "fail", "measured": name, "reason": name, "remedy": name, "gpu": name}
    ansible.plans = {"a": plan_record("a", changes=[change], gpus=[{"name": name}], reboot=True, reboot_reason=name)}
    failure = {"task": name, "message": name, "component": name, "output": name}
    ansible.results = {"a": result_record("a", checks=[check], failure=failure, skipped=name)}
    for words in (["plan"], ["up", "--yes"]):
        done = gpuwright(*words)
        shown = done.out + done.err
        assert "evil" in shown
        assert all(line.isprintable() for line in shown.split("\n"))
        assert not any(line.startswith("[other]") for line in shown.split("\n"))
    done = gpuwright("plan", "--json")
    assert all(line.isprintable() for line in done.out.split("\n"))
    assert done.json["hosts"]["a"]["changes"][0]["reason"] == name


def test_our_own_colours_reach_a_terminal_and_a_hosts_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    console.out(f"{console.colour('host', 'bold')}: \x1b[32mpass\x1b[0m")
    assert capsys.readouterr().out == "\x1b[1mhost\x1b[0m: pass\n"


# --- up ---------------------------------------------------------------------------------------------------------------


def test_up_with_yes_is_one_run(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a")}, {"a": result_record("a")}
    done = gpuwright("up", "--yes")
    assert done.code == 0
    assert [one.check for one in ansible.requests] == [False]
    assert "a: pass" in done.out


def test_up_without_a_terminal_shows_the_plan_and_changes_nothing(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a")}, {"a": result_record("a")}
    done = gpuwright("up")
    assert done.code == 2
    assert [one.check for one in ansible.requests] == [True]
    assert "no driver is installed" in done.out
    assert "--yes" in done.err


def test_up_json_without_yes_is_one_document_with_the_plan_and_exit_2(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a")}
    done = gpuwright("up", "--json")
    assert done.code == done.json["exit"] == 2
    assert done.json["hosts"]["a"]["changes"]
    assert [one.check for one in ansible.requests] == [True]


def test_up_asks_once_and_applies_on_yes(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch
) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a")}, {"a": result_record("a")}
    answer(monkeypatch, "y\n")
    done = gpuwright("up")
    assert done.code == 0
    assert [one.check for one in ansible.requests] == [True, False]
    assert done.err.count("[y/N]") == 1


@pytest.mark.parametrize("words", ["n\n", "\n", "", "yess\n"])
def test_anything_but_yes_changes_nothing(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    ansible.plans = {"a": plan_record("a")}
    answer(monkeypatch, words)
    done = gpuwright("up")
    assert done.code == 2
    assert "nothing was changed" in done.err
    assert [one.check for one in ansible.requests] == [True]


def test_up_does_not_ask_where_nothing_is_to_be_done(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a", changes=[], reboot=False, verdict="pass")}
    ansible.results = {"a": result_record("a")}
    done = gpuwright("up")
    assert done.code == 0
    assert [one.check for one in ansible.requests] == [True]
    assert "[y/N]" not in done.err


def test_up_does_not_ask_where_every_host_is_refused(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    row = {"rule": "r", "text": "no room", "source": "s", "remedy": None}
    ansible.plans = {"a": plan_record("a", ok=False, changes=[], refusals=[row])}
    ansible.results = {"a": result_record("a", verdict="fail", refusals=[row])}
    assert gpuwright("up").code == 3


def test_nothing_of_the_dry_run_is_read_as_a_result(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch
) -> None:
    ansible.plans = {"a": plan_record("a"), "b": plan_record("b", changes=[])}
    ansible.results = {"b": result_record("b")}

    def lose_b(request: Any, on_event: Any) -> tuple[int, str]:
        if not request.check:
            ansible.plans, ansible.results = {"a": plan_record("a")}, {"a": result_record("a")}
            ansible.events = [event("runner_on_ok", "a"), event("runner_on_start", "b")]
        return ansible(request, on_event)

    monkeypatch.setattr("gpuwright.runner.backend", lose_b)
    answer(monkeypatch, "y\n")
    done = gpuwright("up", "-i", "a,b,")
    assert done.code == 1
    assert "b: incomplete" in done.out


def test_a_host_that_was_met_and_left_no_record_is_not_proven(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a"), "b": plan_record("b")}, {"a": result_record("a")}
    ansible.events = [event("runner_on_ok", "a"), event("runner_on_failed", "b", res={"msg": "disk full"})]
    done = gpuwright("up", "--yes", "--json", "-i", "a,b,")
    assert done.code == 1
    assert done.json["hosts"]["b"]["failure"]["message"] == "disk full"
    assert done.json["verdict"] == "fail"
    assert ansible.reports[0]["failed"] == {"b": "disk full"}


def test_a_host_that_a_stopped_run_never_came_to_is_incomplete(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    bad = result_record("a", verdict="fail", failure={"task": "t", "message": "m", "component": "cuda"})
    ansible.plans, ansible.results = {"a": plan_record("a"), "b": plan_record("b")}, {"a": bad}
    done = gpuwright("up", "--yes", "--json", "-i", "a,b,")
    assert done.code == 1
    assert done.json["hosts"]["b"]["verdict"] == "incomplete"
    assert (ansible.reports[0]["failed"], ansible.reports[0]["not_reached"]) == ({}, ["b"])


def test_a_host_lost_in_the_middle_is_unreachable_in_the_report_too(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a")}
    ansible.events = [
        event("runner_on_ok", "a"),
        event("runner_on_unreachable", "a", res={"msg": "Connection timed out"}),
    ]
    done = gpuwright("up", "--yes", "--json", "-i", "a,")
    assert done.code == 1
    assert done.json["hosts"] == {}
    assert list(ansible.reports[0]["unreachable"]) == list(done.json["unreachable"]) == ["a"]


def test_a_needed_reboot_is_4_and_said(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.results = {"a": result_record("a", verdict="incomplete", reboot=True)}
    done = gpuwright("up", "--yes")
    assert done.code == 4
    assert "a reboot is needed to finish" in done.out


LEFT = [
    {"component": "reboot", "reason": "nouveau holds the card"},
    {"component": "validate", "reason": "after the boot"},
]


def test_what_is_left_who_goes_on_and_what_helps_is_shown_and_in_the_json(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    resume = {
        "prepared": True,
        "why_not": None,
        "unit": "gpuwright-resume.service",
        "report": "/var/lib/gpuwright/resume/report",
    }
    said = {"verdict": "incomplete", "reboot": True, "left": LEFT, "resume": resume, "rescue": ["ssh to desk"]}
    ansible.results = {"a": result_record("a", **said)}
    done = gpuwright("up", "--yes")
    for words in (
        "nouveau holds the card",
        "goes on by itself",
        "systemctl disable gpuwright-resume.service",
        "ssh to desk",
    ):
        assert words in done.out
    document = gpuwright("up", "--yes", "--json").json["hosts"]["a"]
    assert (document["left"], document["resume"], document["rescue"]) == (LEFT, resume, ["ssh to desk"])


def test_who_does_not_go_on_by_itself_is_told_why(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    resume = {"prepared": False, "why_not": "the variable x may hold a secret", "unit": None, "report": None}
    ansible.results = {"a": result_record("a", verdict="incomplete", reboot=True, left=LEFT, resume=resume)}
    said = gpuwright("up", "--yes").out
    assert "after the boot it does not go on by itself (the variable x may hold a secret)" in said
    assert "the run goes on by itself" not in said


def test_what_helps_with_a_black_screen_is_in_the_plan_that_is_confirmed(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a", rescue=["ssh to desk"])}
    assert "ssh to desk" in gpuwright("plan").out


def test_ansibles_own_exit_status_is_never_passed_on(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.results, ansible.rc = {"a": result_record("a")}, 4
    assert gpuwright("up", "--yes").code == 0


def test_the_failure_is_told_with_its_component_and_task(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    failure = {"task": "Install the packages", "message": "no space left", "component": "nvidia_driver"}
    ansible.results = {"a": result_record("a", verdict="fail", failure=failure)}
    done = gpuwright("up", "--yes")
    assert done.code == 1
    assert "nvidia_driver: Install the packages: no space left" in done.out


def test_up_names_the_place_of_the_report(gpuwright: Callable[..., Any], ansible: FakeAnsible, tmp_path: Path) -> None:
    ansible.results = {"a": result_record("a")}
    done = gpuwright("up", "--yes", "--report", str(tmp_path / "r"))
    assert f"report: {tmp_path / 'r'}" in done.err
    assert ansible.reports[0]["run_dir"] == tmp_path / "r"
    assert ansible.reports[0]["verb"] == "up"


# --- validate and doctor ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["validate", "doctor"])
def test_each_verb_runs_its_own_playbook(gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str) -> None:
    ansible.results = {"a": result_record("a")}
    assert gpuwright(verb).code == 0
    assert [(one.playbook, one.check) for one in ansible.requests] == [(verb, False)]


def test_checks_that_did_not_pass_are_shown_with_remedies_and_counted(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    checks = [
        check("driver.loaded", "pass"),
        check(
            "pcie.width",
            "fail",
            gpu="0",
            measured=8,
            expected=16,
            reason="the link is narrow",
            remedy="reseat the card",
        ),
        check("xid.recent", "incomplete", reason="the kernel log cannot be read", remedy="run as root"),
    ]
    ansible.plans = {"a": plan_record("a", checks=checks, verdict="fail")}
    done = gpuwright("doctor")
    assert done.code == 1
    for words in ("pcie.width (GPU 0)", "8, expected 16", "the link is narrow", "remedy: reseat the card"):
        assert words in done.out
    assert "1 pass, 1 fail, 1 incomplete" in done.out
    assert "driver.loaded" not in done.out


@pytest.mark.parametrize(
    ("measured", "unit", "said"),
    [
        (1, "files", "1 file, expected 0"),
        (2, "files", "2 files, expected 0"),
        (1, "computing processes", "1 computing process, expected 0"),
        (1, "s", "1 s, expected 0"),
        (1, None, "1, expected 0"),
    ],
)
def test_one_of_what_is_counted_is_said_as_one(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, measured: int, unit: str | None, said: str
) -> None:
    checks = [check("framework.files", "fail", measured=measured, expected=0, unit=unit)]
    ansible.plans = {"a": plan_record("a", checks=checks, verdict="fail")}
    assert said in gpuwright("doctor").out


def test_equal_results_of_a_fleet_are_shown_once(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.results = {f"gpu{number:03}": result_record(f"gpu{number:03}") for number in range(300)}
    narrow = [check("pcie.width", "fail", reason="the link is narrow")]
    ansible.results["gpu007"] = result_record("gpu007", verdict="fail", checks=narrow)
    done = gpuwright("validate", "-i", "fleet,")
    assert done.code == 1
    assert "(299 hosts): pass" in done.out
    assert "gpu007: fail" in done.out
    assert "300 hosts: 1 fail, 299 pass" in done.out
    assert len(done.out.splitlines()) < 12


@pytest.mark.parametrize("verb", ["up", "validate", "doctor"])
def test_json_of_the_other_verbs_is_the_contracts(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str
) -> None:
    ansible.results = {"a": result_record("a", simulated=True)}
    done = gpuwright(verb, "--json", "--yes")
    assert set(done.json) == {"verdict", "exit", "hosts", "unreachable"}
    assert set(done.json["hosts"]["a"]) == {"verdict", "checks", "changes", "reboot", "simulated"}
    assert (done.code, done.json["exit"], done.json["verdict"]) == (0, 0, "pass")


@pytest.mark.parametrize("verb", ["up", "validate"])
def test_what_needs_root_is_refused_without_it(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    user = world_of(1000)
    monkeypatch.setattr(privilege, "World", lambda: user)
    done = gpuwright(verb)
    assert done.code == 3
    assert "needs root: run with sudo, or with -K" in done.err
    assert not ansible.requests
    assert gpuwright(verb, "--json").json["conflicts"][0]["rule"] == "privilege.root"


@pytest.mark.parametrize("verb", ["plan", "doctor"])
def test_a_look_goes_on_without_root_and_says_so(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    user = world_of(1000)
    monkeypatch.setattr(privilege, "World", lambda: user)
    ansible.plans, ansible.results = {"a": plan_record("a")}, {"a": result_record("a")}
    done = gpuwright(verb)
    assert done.code == 0
    assert "not root" in done.err
    assert ansible.requests[0].extra_vars["ansible_become"] is False


@pytest.mark.parametrize("verb", ["up", "validate", "doctor", "plan"])
def test_a_good_record_of_a_host_that_failed_later_is_not_believed(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str
) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a", changes=[])}, {"a": result_record("a")}
    ansible.events = [event("runner_on_ok", "a"), event("runner_on_failed", "a", res={"msg": "fio crashed"})]
    done = gpuwright(verb, "--yes")
    assert done.code == 1
    if verb != "plan":
        assert "fio crashed" in done.out
        assert ansible.reports[0]["failed"] == {"a": "fio crashed"}


@pytest.mark.parametrize("verb", ["up", "validate", "doctor", "plan"])
def test_a_run_that_ended_in_the_middle_proves_nothing(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str
) -> None:
    ansible.plans, ansible.results = {"a": plan_record("a", changes=[])}, {"a": result_record("a")}
    ansible.crashed, ansible.rc = True, 250
    assert gpuwright(verb, "--yes").code == 1


@pytest.mark.parametrize("verb", ["up", "validate", "doctor"])
def test_a_good_record_of_a_host_that_was_lost_later_is_not_believed(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, verb: str
) -> None:
    ansible.results = {"a": result_record("a")}
    ansible.events = [event("runner_on_ok", "a"), event("runner_on_unreachable", "a", res={"msg": "timed out"})]
    done = gpuwright(verb, "--yes", "--json", "-i", "a,")
    assert done.code == 1
    assert (list(done.json["hosts"]), list(done.json["unreachable"])) == ([], ["a"])


def test_a_host_that_came_back_after_its_reboot_is_not_unreachable(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.results = {"a": result_record("a")}
    ansible.events = [event("runner_on_unreachable", "a", res={"msg": "closed"}), event("runner_on_ok", "a")]
    assert gpuwright("up", "--yes", "-i", "a,").code == 0


def test_a_failure_that_a_role_caught_does_not_spoil_a_proof(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.results = {"a": result_record("a")}
    ansible.events = [event("runner_on_failed", "a", res={"msg": "first mirror"}), event("runner_on_ok", "a")]
    assert gpuwright("up", "--yes").code == 0


# --- inventories ------------------------------------------------------------------------------------------------------


NO_HOST = [{"event": "playbook_on_no_hosts_matched", "event_data": {}}]


@pytest.mark.parametrize(
    ("end", "limit", "message"),
    [
        ((0, "skipping: no hosts matched"), None, "has no hosts"),
        (
            (1, "[ERROR]: Specified inventory, host pattern and/or --limit leaves us with no hosts to target."),
            "zz",
            "--limit zz",
        ),
        ((0, "skipping: no hosts matched"), "zz", "--limit zz"),
        ((1, "[ERROR]: Completely failed to parse inventory source /x"), None, "cannot be read"),
    ],
)
def test_a_run_without_hosts_is_bad_input(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, end: tuple[int, str], limit: str | None, message: str
) -> None:
    ansible.events = NO_HOST
    ansible.rc, ansible.words = end
    done = gpuwright("plan", "-i", "a,", *(("--limit", limit) if limit else ()))
    assert done.code == 2
    assert message in done.err


def test_ansible_that_does_not_begin_is_a_failure_with_its_words(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.events, ansible.rc, ansible.words = NO_HOST, 250, "[ERROR]: Unexpected exception"
    done = gpuwright("plan")
    assert done.code == 1
    assert "Unexpected exception" in done.err


def test_a_limit_without_an_inventory_is_bad_input(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    assert gpuwright("plan", "--limit", "a").code == 2


def test_a_missing_inventory_is_bad_input_before_anything_runs(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    done = gpuwright("plan", "-i", "/no/such/inventory")
    assert done.code == 2
    assert not ansible.requests


def test_an_interrupted_run_is_130(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.status = "canceled"
    assert gpuwright("up", "--yes").code == 130
    assert [request.playbook for request in ansible.requests] == ["site"]


TAKES = "gpuwright.node.node_seal"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (("a", "b"), None),
        (("a",), "of b the lock stays: until it lapses only this controller begins there"),
    ],
)
def test_an_interrupted_run_gives_back_the_nodes_that_it_had_taken(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, answers: tuple[str, ...], said: str | None
) -> None:
    run = [
        event("runner_on_ok", "never", "Plan", resolved_action="gpuwright.node.plan"),
        *(event("runner_on_start", host, "Take", resolved_action=TAKES) for host in ("a", "b", "done")),
        event("runner_on_ok", "done", "Record", resolved_action="gpuwright.node.seal", res={"verdict": "pass"}),
    ]
    back = [event("runner_on_ok", host, "Give back", resolved_action="gpuwright.node.seal") for host in answers]
    ansible.status = "canceled"
    ansible.script = {"site": run, "release": back}
    done = gpuwright("up", "--yes", "-i", "a,b,done,never", "--limit", "all")
    assert done.code == 130
    first, then = ansible.requests
    assert (first.playbook, then.playbook, then.limit) == ("site", "release", "a,b")
    assert then.run_dir == first.run_dir
    assert said is None or said in done.err
    assert said is not None or "the lock stays" not in done.err


# --- wishes of files --------------------------------------------------------------------------------------------------


def test_a_wish_file_becomes_the_wish(gpuwright: Callable[..., Any], ansible: FakeAnsible, tmp_path: Path) -> None:
    ansible.plans = {"a": plan_record("a")}
    (tmp_path / "wish.yml").write_text('nvidia_driver_branch: "580"\ncuda_versions: ["12.8"]\n')
    assert gpuwright("plan", "--wish", str(tmp_path / "wish.yml")).code == 0
    assert ansible.requests[0].extra_vars["gpuwright_wish"] == {
        "nvidia_driver_branch": "580",
        "cuda_versions": ["12.8"],
    }


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just words"])
def test_a_wish_file_that_is_no_mapping_is_bad_input(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, tmp_path: Path, text: str
) -> None:
    (tmp_path / "wish.yml").write_text(text)
    assert gpuwright("plan", "--wish", str(tmp_path / "wish.yml")).code == 2
    assert gpuwright("plan", "--wish", "/no/such/wish").code == 2


def _written(host: str, report: bool) -> list[dict[str, Any]]:
    """The events of a host that left its record, and of the report that the playbook wrote after it."""
    plan = event("runner_on_ok", host, resolved_action="gpuwright.node.plan")
    closed = event("runner_on_ok", host, resolved_action="gpuwright.node.report", res={"ended": True})
    return [plan, closed] if report else [closed, plan]


@pytest.mark.parametrize("last", [True, False], ids=["report last", "report before a record"])
def test_the_report_of_the_playbook_counts_where_it_came_after_every_record(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, last: bool
) -> None:
    ansible.plans = {"a": plan_record("a")}
    ansible.events = _written("a", last)
    gpuwright("plan", "-i", "a,")
    assert len(ansible.reports) == (0 if last else 1)


def test_a_host_that_only_the_controller_can_tell_of_comes_into_the_report(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a")}
    lost = event("runner_on_unreachable", "b", res={"msg": "no route"})
    ansible.events = [lost, *_written("a", True)]
    gpuwright("plan", "-i", "a,b")
    assert [set(made["unreachable"]) for made in ansible.reports] == [{"b"}]
