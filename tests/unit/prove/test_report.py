from __future__ import annotations

import html.parser
import json
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import html as page
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records, run_directory

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = '</td></pre><script>alert(1)</script><img src=x onerror=alert(2)>" onmouseover="alert(3)\' {{ 7*7 }} {% raw %} \x00\x1b[2J\ud800'


def record(*found: Check, **values: Any) -> dict[str, Any]:
    return {"checks": list(found), "seconds": 3.2, **values}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return report.open_run(tmp_path / "run", "validate")


@pytest.fixture
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


def valid(run: Path, schema: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(made)
    return made


def test_a_report_says_the_worst_of_its_hosts(run: Path, schema: dict[str, Any]) -> None:
    report.write_host(run, "good", record(checks.passed("a.b")))
    report.write_host(run, "bad", record(checks.passed("a.b"), checks.failed("c.d")))
    report.aggregate(run)
    made = valid(run, schema)
    assert (made["verdict"], made["counts"]["pass"], made["counts"]["fail"]) == ("fail", 1, 1)
    assert made["verb"] == "validate"
    assert made["gpuwright"]


@pytest.mark.parametrize(
    ("verdicts", "unreachable", "not_reached", "verdict"),
    [
        (["pass", "pass"], {}, [], "pass"),
        (["pass", "skip"], {}, [], "pass"),
        (["skip"], {}, [], "skip"),
        (["pass", "incomplete"], {}, [], "incomplete"),
        (["pass"], {"x": "no route"}, [], "fail"),
        (["pass"], {}, ["x"], "incomplete"),
        ([], {}, [], "incomplete"),
        (["splendid"], {}, [], "incomplete"),
    ],
)
def test_a_run_is_proven_only_when_every_host_is(
    run: Path,
    schema: dict[str, Any],
    verdicts: list[str],
    unreachable: dict[str, str],
    not_reached: list[str],
    verdict: str,
) -> None:
    for number, found in enumerate(verdicts):
        report.write_host(run, f"h{number}", record(checks.passed("a.b"), verdict=found))
    assert report.aggregate(run, unreachable=unreachable, not_reached=not_reached)["verdict"] == verdict
    valid(run, schema)


def test_a_host_without_a_credible_record_failed_and_keeps_what_is_known(run: Path, schema: dict[str, Any]) -> None:
    report.write_host(run, "h", record(checks.passed("a.b")))
    made = report.aggregate(run, failed={"h": "the module died", "ghost": "no result"})
    assert made["hosts"]["h"]["verdict"] == "fail"
    assert made["hosts"]["h"]["checks"]
    failure = made["hosts"]["ghost"]["failure"]
    assert failure
    assert failure["message"] == "no result"
    valid(run, schema)


def test_a_plan_stands_in_for_a_missing_result(run: Path, schema: dict[str, Any]) -> None:
    plan = {
        "host": "h",
        "checks": [checks.failed("driver.loaded")],
        "changes": [{"component": "nvidia_driver", "action": "install"}],
        "facts_summary": {"simulated": True},
    }
    run_directory.write_document(run / "plans", "h", plan)
    made = report.aggregate(run)
    assert (made["hosts"]["h"]["verdict"], made["simulated"]) == ("fail", True)
    report.write_host(run, "h", record(checks.passed("a.b")))
    assert report.aggregate(run)["hosts"]["h"]["verdict"] == "pass"
    valid(run, schema)


def test_a_record_that_was_cut_off_is_a_host_that_is_not_proven(run: Path, schema: dict[str, Any]) -> None:
    report.write_host(run, "good", record(checks.passed("a.b")))
    (run / "hosts" / "cut.json").write_text('{"host": "cut", "verdict": "pa')
    made = report.aggregate(run)
    assert made["hosts"]["cut"]["verdict"] == "fail"
    valid(run, schema)


@pytest.mark.parametrize(
    "odd",
    [
        {"verdict": "pass", "failure": "boom"},
        {"verdict": "pass", "refusals": [{"text": "no"}]},
        {"verdict": "pass", "conflicts": ["no"]},
    ],
)
def test_a_failure_is_never_reported_as_a_pass(odd: dict[str, Any]) -> None:
    assert report.host_record("h", {"checks": [checks.passed("a.b")], **odd})["verdict"] == "fail"


@pytest.mark.parametrize(
    "odd",
    [
        {"checks": "none"},
        {
            "checks": [
                None,
                5,
                {"id": None},
                {"id": "a.b", "status": "great", "gpu": 3, "severity": 9, "action": "pray"},
            ]
        },
        {"changes": ["x", None]},
        {"summary": [], "gpus": "H100", "seconds": "long"},
        {"stack": "none", "warnings": {"text": "x"}},
        {"failure": {"task": "t"}},
        {"seconds": float("nan"), "measurements": {"fio": {"x": {"clat_ns": {"percentiles": {"99": float("inf")}}}}}},
        {
            "measurements": {"fio": {"x": None, "y": {"clat_ns": []}}},
            "checks": [checks.passed("temp.gpu", measured="hot")],
        },
    ],
)
def test_odd_values_of_a_node_do_not_spoil_the_report(run: Path, schema: dict[str, Any], odd: dict[str, Any]) -> None:
    report.write_host(run, "odd", odd)
    report.aggregate(run)
    valid(run, schema)
    ET.parse(run / "junit.xml")  # noqa: S314 - our own file


def test_a_schema_that_is_not_kept_is_noticed(run: Path, schema: dict[str, Any]) -> None:
    made: Any = report.aggregate(run)
    made["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(made)


# --------------------------------------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    """Every element of the page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def rendered(run: Path, **more: Any) -> Tags:
    report.aggregate(run, **more)
    return Tags((run / "report.html").read_text(encoding="utf-8"))


def hostile_figures() -> dict[str, Any]:
    """What a load through a framework measured, on cards with such names."""
    rate = {"gpu": HOSTILE, "name": HOSTILE, "tflops": {HOSTILE: 5}, "bandwidth_gbs": {HOSTILE: 5}}
    return {
        "name": HOSTILE,
        "version": HOSTILE,
        "devices": [{**rate, "training": {"precision": HOSTILE, "step_seconds": 1}}],
        "pairs": [{"from": HOSTILE, "to": "1 " + HOSTILE, "gbs": 5, "direct": HOSTILE}],
        "collectives": [
            {"kind": HOSTILE, "backend": HOSTILE, "bytes": size, "ranks": 2, "busbw_gbs": 5} for size in (8, 64)
        ],
    }


def hostile_record() -> dict[str, Any]:
    bad: Any = checks.make("gpu.model", "fail")
    bad.update(
        dict.fromkeys(("reason", "evidence", "remedy", "unit", "gpu", "measured"), HOSTILE),
        id="x." + HOSTILE,
        expected={HOSTILE: HOSTILE},
    )
    return record(
        bad,
        checks.make("skip.it", "skip", reason=HOSTILE),
        checks.passed("temp.gpu", measured=40, expected=80, gpu=HOSTILE),
        {**checks.passed("a.b"), "id": HOSTILE},
        failure={"task": HOSTILE, "message": HOSTILE, "component": HOSTILE},
        refusals=[dict.fromkeys(("rule", "text", "source", "remedy"), HOSTILE)],
        changes=[dict.fromkeys(("component", "action", "from", "to", "reason"), HOSTILE)],
        why=[{"text": HOSTILE}],
        warnings=[HOSTILE],
        skipped=HOSTILE,
        left=[{"component": HOSTILE, "reason": HOSTILE}],
        resume={"prepared": False, "why_not": HOSTILE, "unit": None, "report": None},
        rescue=[HOSTILE],
        summary={"os": {"name": HOSTILE}, "kernel": {"running": HOSTILE}, "driver": {"loaded_version": HOSTILE}},
        gpus=[{"name": HOSTILE}],
        stack={"driver": {"branch": HOSTILE}, "frameworks": [{"name": HOSTILE, "version": HOSTILE}]},
        measurements={
            "fio": {HOSTILE: {"iops": 5, "clat_ns": {"percentiles": {"99": 1000}}}},
            "load": [{"gpu": HOSTILE, "name": HOSTILE, "looks": 1, "reasons": {HOSTILE: 1}}],
            "framework_loads": [hostile_figures()],
        },
    )


def test_what_a_node_says_stays_text_in_the_page(run: Path) -> None:
    report.write_host(run, "evil<script>alert(0)</script>", hostile_record())
    found = rendered(run, unreachable={HOSTILE: HOSTILE}, not_reached=["later" + HOSTILE])
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "img", "iframe", "object", "link", "form", "base"})
    assert not [
        name
        for _, attributes in found.tags
        for name in attributes
        if name.startswith("on") or name in ("src", "srcdoc")
    ]
    assert all(
        attributes["href"] and attributes["href"].startswith("#h") for tag, attributes in found.tags if tag == "a"
    )
    assert "{{ 7*7 }}" in found.words


def test_what_is_left_for_after_a_boot_is_in_the_report_and_on_the_page(run: Path, schema: dict[str, Any]) -> None:
    left = [{"component": "reboot", "reason": "nouveau holds the card"}]
    resume = {
        "prepared": True,
        "why_not": None,
        "unit": "gpuwright-resume.service",
        "report": "/var/lib/gpuwright/resume/report",
    }
    report.write_host(run, "desk", record(reboot=True, left=left, resume=resume, rescue=["ssh to desk"]))
    words = rendered(run).words
    for said in (
        "reboot: nouveau holds the card",
        "goes on by itself",
        "/var/lib/gpuwright/resume/report",
        "ssh to desk",
    ):
        assert said in words
    host = valid(run, schema)["hosts"]["desk"]
    assert (host["left"], host["resume"], host["rescue"]) == (left, resume, ["ssh to desk"])


OLD = "575.57.08"
FAILED = {"task": "Load the module", "message": "no such device", "component": "nvidia_driver", "output": ""}


@pytest.mark.parametrize(
    ("failure", "returned", "said", "case"),
    [
        (
            FAILED,
            {"version": OLD, "failure": None, "verdict": "pass"},
            f"rolled back to driver {OLD}: proven again",
            "system-out",
        ),
        (
            FAILED,
            {"version": OLD, "failure": None, "verdict": "fail"},
            f"rolled back to driver {OLD}: not proven (fail)",
            "error",
        ),
        (
            FAILED,
            {"version": "", "failure": "Plan the way back: no record", "verdict": "fail"},
            "the rollback to the driver before failed: Plan the way back: no record",
            "failure",
        ),
        (
            FAILED,
            {"version": OLD, "failure": "Load the module: no such device", "verdict": "fail"},
            f"the rollback to driver {OLD} failed",
            "failure",
        ),
        (
            None,
            {"version": None, "failure": None, "verdict": "pass", "environments": ["/opt/gpuwright/pytorch"]},
            "rolled back to /opt/gpuwright/pytorch: proven again",
            "system-out",
        ),
        (
            None,
            {"version": OLD, "failure": None, "verdict": "pass", "environments": ["/opt/gpuwright/jax"]},
            f"rolled back to driver {OLD} and /opt/gpuwright/jax: proven again",
            "system-out",
        ),
    ],
)
def test_every_report_tells_of_a_rollback(
    run: Path, schema: dict[str, Any], failure: Any, returned: dict[str, Any], said: str, case: str
) -> None:
    written = report.write_host(run, "h", record(checks.passed("a.b"), failure=failure, returned=returned))
    page_words = " ".join(rendered(run).words.split())
    assert valid(run, schema)["hosts"]["h"]["returned"] == returned
    assert f"rollback {said}" in page_words
    found = ET.parse(run / "junit.xml").find(".//testcase[@name='run.rollback']")  # noqa: S314 - our own file
    assert found is not None
    assert [(each.tag, each.text) for each in found] == [(case, said)]
    assert records.sentence(written).endswith(f". {said}")


def test_no_report_tells_of_a_rollback_where_there_was_none(run: Path, schema: dict[str, Any]) -> None:
    report.write_host(run, "h", record(checks.passed("a.b")))
    assert "rollback" not in rendered(run).words
    assert valid(run, schema)["hosts"]["h"]["returned"] is None
    assert "rollback" not in (run / "junit.xml").read_text()


def test_a_record_of_an_earlier_version_is_read(run: Path, schema: dict[str, Any]) -> None:
    """What 0.1 wrote of a host whose driver failed: no key but these."""
    before = {
        "verdict": "fail",
        "checks": [],
        "failure": FAILED,
        "returned": {"version": OLD, "failure": None, "verdict": "pass"},
    }
    (run / "hosts" / "h.json").write_text(json.dumps({"host": "h", **before}))
    report.aggregate(run)
    host = valid(run, schema)["hosts"]["h"]
    assert (host["failure"], host["returned"], host["reached"]) == (FAILED, before["returned"], True)


def test_a_wish_that_cannot_be_understood_is_in_every_report(run: Path, schema: dict[str, Any]) -> None:
    report.write_host(run, "h", {"verdict": "fail", "error": "no such driver", "suggestions": ["driver=580"]})
    assert "no such driver" in rendered(run).words
    host = valid(run, schema)["hosts"]["h"]
    assert (host["error"], host["suggestions"], host["failure"]["message"]) == (
        "no such driver",
        ["driver=580"],
        "no such driver",
    )


def test_what_doubt_takes_from_a_host_that_stays_is_that_it_stays(run: Path, schema: dict[str, Any]) -> None:
    plan = {"host": "h", "ok": True, "verdict": "pass", "checks": [checks.passed("a.b")], "facts_summary": {}}
    run_directory.write_document(run / "plans", "h", plan, packed=True)
    assert report.aggregate(run)["hosts"]["h"]["whole"] == "plans/h.json.gz"
    doubted = report.aggregate(run, failed={"h": "it died"})["hosts"]["h"]
    assert (doubted["verdict"], "whole" in doubted, "counts" in doubted) == ("fail", False, False)
    valid(run, schema)


def test_the_page_asks_for_nothing_from_outside(run: Path) -> None:
    report.write_host(run, "h", record(checks.passed("a.b")))
    report.aggregate(run)
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    for word in ("http://", "https://", "url(", "@import", "@font-face"):
        assert word not in text


def test_a_simulated_node_is_stamped(run: Path) -> None:
    report.write_host(run, "h", record(checks.passed("a.b")))
    assert "SIMULATED" not in rendered(run).words
    report.write_host(run, "h", record(checks.passed("a.b"), simulated=True))
    assert "SIMULATED" in rendered(run).words


@pytest.mark.parametrize("driver", ["580.95.05", {"loaded_version": "580.95.05"}])
def test_the_line_about_a_host_names_system_kernel_driver_and_cards(run: Path, driver: Any) -> None:
    summary = {"os": "Debian GNU/Linux 13", "kernel": "6.12.48", "driver": driver}
    report.write_host(run, "h", record(checks.passed("a.b"), summary=summary, gpus=[{"name": "H100"}] * 8))
    assert "Debian GNU/Linux 13 · kernel 6.12.48 · driver 580.95.05 · 8 × H100 · 3 s" in rendered(run).words


def test_a_failed_host_comes_first_with_its_remedy(run: Path) -> None:
    report.write_host(run, "a-good", record(checks.passed("a.b")))
    report.write_host(
        run, "z-bad", record(checks.failed("gpu.count", reason="one is missing", remedy="reseat the card"))
    )
    words = rendered(run).words
    assert words.index("z-bad") < words.index("a-good")
    assert "reseat the card" in words


def test_the_same_trouble_on_several_cards_is_told_once(run: Path) -> None:
    report.write_host(
        run,
        "h",
        record(*[checks.failed("persistence", "warning", gpu=str(number), reason="off") for number in range(8)]),
    )
    words = rendered(run).words
    assert words.count("persistence") == 2, "once in the overview, once in the host"
    assert "0, 1, 2, 3, 4, 5, 6, 7" in words


def test_a_fleet_fits_into_one_page(run: Path) -> None:
    found = [
        checks.passed(f"{group}.x{number}", gpu=str(number)) for group in ("gpu", "ecc", "temp") for number in range(8)
    ]
    made = report.report_of(
        {f"n{number:03}": report.host_record(f"n{number:03}", record(*found)) for number in range(500)},
        {"gpuwright": "1", "verb": "up", "started": None, "finished": None, "ended": "done"},
    )
    assert len(page.render(made)) < 3_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (0, "0"),
        (1234567, "1,234,567"),
        (6812.34, "6,812.3"),
        ([], "none"),
        (["a", "b"], "a, b"),
        (["a", "b", "a"], "2 × a, b"),
        ({"floor": 400.0, "nominal": 500.0}, "at least 400; its class promises 500"),
    ],
)
def test_values_are_shown_as_people_read_them(value: Any, text: str) -> None:
    assert page.show(value) == text


def test_junit_counts_and_names_what_failed(run: Path) -> None:
    report.write_host(
        run,
        "h",
        record(
            checks.passed("a.b"),
            checks.failed("c.d", reason="bad", remedy="mend it"),
            checks.incomplete("e.f", "no tool"),
            checks.skipped("g.h", "no card"),
        ),
    )
    report.write_host(run, "evil", hostile_record())
    report.aggregate(run, unreachable={"gone": "no route"})
    root = ET.parse(run / "junit.xml").getroot()  # noqa: S314 - our own file
    suite = next(suite for suite in root if suite.get("name") == "h")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "bad"
    assert "mend it" in str(failure.text)
    assert root.get("errors") == "2", "the host that is gone counts"


# --------------------------------------------------------------------------------------------------------------------


def test_many_hosts_may_write_and_close_at_once(run: Path, schema: dict[str, Any]) -> None:
    def work(number: int) -> None:
        report.write_host(run, f"n{number}", record(checks.passed("a.b")))
        report.aggregate(run)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.aggregate(run)
    assert len(valid(run, schema)["hosts"]) == 24
    assert not list(run.rglob("*.tmp")) + [path for path in run.iterdir() if path.name.startswith(".")]


def test_the_name_of_a_host_never_leads_out_of_the_run_directory(run: Path) -> None:
    report.write_host(run, "../../escape", record(checks.passed("a.b")))
    assert [path.parent for path in run.rglob("*escape*")] == [run / "hosts"]
    assert "../../escape" in report.aggregate(run)["hosts"]


def test_the_run_directory_is_private(run: Path) -> None:
    report.write_host(run, "h", record(checks.passed("a.b")))
    report.aggregate(run)
    assert run.stat().st_mode & 0o077 == 0
    assert (run / "report.html").stat().st_mode & 0o077 == 0


def test_opening_again_keeps_the_beginning_and_drops_what_was_written_of_hosts(run: Path) -> None:
    before = (run / "run.json").read_text()
    report.write_host(run, "of-another-run", record(checks.passed("a.b")))
    (run / "plans" / "waiting.json").write_text(json.dumps({"host": "waiting", "ok": True, "components": ["cuda"]}))
    assert report.waiting(run) == ["waiting"]
    report.open_run(run, "other")
    assert (run / "run.json").read_text() == before
    assert report.waiting(run) == []
    assert report.aggregate(run)["hosts"] == {}


def test_the_report_needs_no_ansible() -> None:
    base = "ansible_collections.gpuwright.node.plugins.plugin_utils"
    program = (
        f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n"
        f"import {base}.report, {base}.health.judge\n"
        "assert not [name for name in sys.modules if name == 'ansible' or name.startswith('ansible.')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gpuwright.node.report: {{state: open, run_dir: {run}, verb: validate}}
      run_once: true
      register: opened
    - gpuwright.node.report:
        state: host
        run_dir: "{{{{ opened.run_dir }}}}"
        checks: [{{id: smi.runs, status: pass, severity: critical}}]
        seconds: 1.5
    - gpuwright.node.report: {{state: close, run_dir: "{{{{ opened.run_dir }}}}"}}
      run_once: true
      register: closed
    - ansible.builtin.assert:
        that:
          - closed.verdict == 'pass'
          - closed.counts['pass'] == 5
          - not closed.changed
"""


@pytest.mark.parametrize("mode", [[], ["--check"]])
def test_the_action_writes_the_report_of_a_play(tmp_path: Path, schema: dict[str, Any], mode: list[str]) -> None:
    play = tmp_path / "play.yml"
    run_dir = tmp_path / "run"
    play.write_text(PLAY.format(run=run_dir))
    hosts = ",".join(f"n{number}" for number in range(5)) + ","
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [str(program), "-i", hosts, "-c", "local", *mode, str(play)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(valid(run_dir, schema)["hosts"]) == 5


def test_a_host_with_a_plan_to_apply_and_no_result_was_not_reached(run: Path) -> None:
    report.write_host(
        run,
        "canary",
        {**record(checks.passed("a.b")), "failure": {"task": "t", "message": "m", "output": "make: error"}},
    )
    for name, components in (("canary", ["cuda"]), ("later", ["cuda"]), ("right", [])):
        (run / "plans" / f"{name}.json").write_text(
            json.dumps({"host": name, "ok": True, "components": components, "checks": [checks.passed("a.b")]})
        )
    assert report.waiting(run) == ["later"]
    made = report.aggregate(run, not_reached=report.waiting(run))
    assert made["not_reached"] == ["later"]
    assert made["counts"] == {"pass": 1, "fail": 1, "incomplete": 0, "skip": 0, "unreachable": 0, "not_reached": 1}
    assert "make: error" in (run / "report.html").read_text()
