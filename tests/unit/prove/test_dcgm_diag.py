from __future__ import annotations

import json
import stat
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    dcgm_diag,
    dcgm_diag_judge,
    dcgm_errors,
    dcgm_json,
)
from ansible_collections.gpuwright.node.plugins.modules import dcgm_diag as module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module

ISOLATE, PERSISTENCE, NO_MEMORY, ABORTED, NO_ECC = 52, 29, 56, 47, 55
OF_LEVEL = {
    1: [],
    2: ["memory", "pcie"],
    3: ["memory", "diagnostic", "nvbandwidth", "pcie", "memory_bandwidth", "targeted_stress", "targeted_power"],
}
OF_LEVEL[4] = [*OF_LEVEL[3], "memtest", "pulse_test"]
CATEGORIES = {"pcie": "Integration", "memory": "Hardware", "diagnostic": "Hardware"}


# The documents below are written by hand with numbers of our own, in the shapes of dcgmi/Diag.cpp of https://github.com/NVIDIA/DCGM:
# HelperJsonBuildOutput at 72fa3fe (4.6.0), at v3.3.9 and at v2.4.7. What a level has: nvvs/src/NvidiaValidationSuite.cpp there.


def error(number: int, words: str = "words of DCGM") -> dict[str, Any]:
    return {"warning": words, "error_id": number, "error_category": 7, "error_severity": 2}


def newest(level: int, cards: int = 2, **told: dict[str, Any]) -> dict[str, Any]:
    """A document of DCGM 4. ``told``: what a test says, ``{card: result}``, and ``summary``; the rest passes."""
    categories: dict[str, list[dict[str, Any]]] = {}
    for name in ["software", *OF_LEVEL[level]]:
        said = told.get(name, {})
        results = [
            {
                "entity_group": "GPU",
                "entity_group_id": 1,
                "entity_id": card,
                "status": "Pass",
                **said.get(str(card), {}),
            }
            for card in range(cards)
        ]
        errors = [found for result in results for found in result.get("warnings", [])]
        worst = next(
            (word for word in ("Fail", "Pass", "Skip") if word in [each["status"] for each in results]), "Pass"
        )
        summary = {"status": worst, **({"warnings": errors} if errors else {}), **said.get("summary", {})}
        category = "Deployment" if name == "software" else CATEGORIES.get(name, "Stress")
        categories.setdefault(category, []).append({"name": name, "results": results, "test_summary": summary})
    return {
        "DCGM Diagnostic": {
            "test_categories": [{"category": name, "tests": tests} for name, tests in categories.items()]
        },
        "entity_groups": [
            {
                "entity_group": "GPU",
                "entity_group_id": 1,
                "entities": [
                    {"entity_id": card, "device_id": "2330", "serial_num": f"77{card}"} for card in range(cards)
                ],
            }
        ],
        "metadata": {"version": "4.6.0", "Driver Version Detected": "580.126.20"},
    }


def middle(results: dict[str, Any] | None = None) -> dict[str, Any]:
    """A document of DCGM 3.3, level 1 and PCIe. ``results``: of a test, by its name."""
    told = results or {}
    deployment = ["Denylist", "NVML Library", "Persistence Mode", "Page Retirement/Row Remap", "Inforom"]
    return {
        "version": "3.3.9",
        "Driver Version Detected": "550.163.01",
        "GPU Device IDs": ["20b2", "20b2"],
        "GPU Device Serials": {"0": "8801", "1": "8802"},
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {
                    "category": "Deployment",
                    "tests": [{"name": name, "results": told.get(name, [{"status": "Pass"}])} for name in deployment],
                },
                {
                    "category": "Integration",
                    "tests": [
                        {
                            "name": "PCIe",
                            "results": told.get("PCIe", [{"gpu_id": str(card), "status": "Pass"} for card in range(2)]),
                        }
                    ],
                },
            ]
        },
    }


def oldest(status: str = "Pass", warnings: str | None = None, info: str | None = None) -> dict[str, Any]:
    """A document of DCGM 2.4 with the memory test of one card."""
    result = {"gpu_ids": "0", "status": status}
    result.update({key: text for key, text in (("warnings", warnings), ("info", info)) if text is not None})
    tests = [{"name": "GPU Memory", "results": [result]}]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}


def judged(
    told: Any, rc: int = 0, level: int = 1, cards: Sequence[int] = (), expected: int | None = None, err: str = ""
) -> list[Check]:
    text = told if isinstance(told, str) else json.dumps(told, indent=3)
    question = dcgm_diag_judge.Question(level, cards, expected)
    return dcgm_diag_judge.judge(question, run.Result(rc, text, err, 12.0, None))


def one(found: Sequence[Check], check_id: str, gpu: str | None = None) -> Check:
    (check,) = [check for check in found if check["id"] == check_id and (gpu is None or check["gpu"] == gpu)]
    return check


# --------------------------------------------------------------------------------------------------------------------
# What is read
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_good_host_passes_at_each_level(level: int) -> None:
    found = judged(newest(level), level=level, expected=2)
    assert checks.verdict(found) == "pass"
    assert {check["status"] for check in found} == {"pass"}
    names = {check["id"] for check in found} - {"dcgm.run", "dcgm.cards"}
    assert names == {f"dcgm.{name}" for name in ["software", *OF_LEVEL[level]]}
    assert {check["gpu"] for check in found if check["id"] == "dcgm.software"} == {"0", "1"}


def test_each_generation_of_dcgm_tells_its_cards_and_versions() -> None:
    for document, version, driver, cards in (
        (newest(2, cards=8), "4.6.0", "580.126.20", 8),
        (middle(), "3.3.9", "550.163.01", 2),
        (oldest(), None, None, 1),
    ):
        read = dcgm_json.parse(json.dumps(document))
        assert (read.version, read.driver, read.cards, read.error) == (version, driver, cards, None)


def test_the_tests_of_older_versions_are_called_as_those_of_newer() -> None:
    assert one(judged(oldest()), "dcgm.memory", "0")["status"] == "pass"
    names = {check["id"] for check in judged(middle())}
    assert names >= {"dcgm.page_retirement_row_remap", "dcgm.pcie", "dcgm.denylist"}


@pytest.mark.parametrize("name", ["vc_dcgmi_diag_r1.json", "vc_dcgmi_diag_r2.json", "vc_dcgmi_diag_r3.json"])
def test_documents_of_real_machines_are_read(samples: Callable[[str], list[Path]], name: str) -> None:
    (path,) = [path for path in samples("dcgmi") if path.name == name]
    level = int(name[-6])
    found = judged(path.read_text(), level=level, expected=1 if level > 1 else None)
    assert checks.verdict(found) == "pass"
    assert {check["id"] for check in found if check["status"] == "skip"} == ({"dcgm.eud"} if level == 3 else set())


def test_a_document_of_another_shape_is_incomplete(samples: Callable[[str], list[Path]]) -> None:
    for path in samples("dcgmi"):
        if path.name in ("vc_dcgmi_incorrect.json", "vc_dcgmi_health.json", "vc_dcgmi_discovery.txt"):
            (check,) = judged(path.read_text())
            assert (check["id"], check["status"]) == ("dcgm.run", "incomplete")


# --------------------------------------------------------------------------------------------------------------------
# What fails
# --------------------------------------------------------------------------------------------------------------------


def test_a_card_that_cannot_do_its_work_fails_alone() -> None:
    # Shape: testing/python3/tests/test_dcgm_diag.py of NVIDIA/DCGM, an error put into one card of two.
    told = newest(2, memory={"1": {"status": "Fail", "warnings": [error(ISOLATE, "GPU 1 memory is bad")]}})
    found = judged(told, rc=205, level=2)
    check = one(found, "dcgm.memory", "1")
    assert (check["status"], check["severity"], check["action"]) == ("fail", "fatal", "check_hardware")
    assert "GPU 1 memory is bad (FAULTY_MEMORY, DCGM error 52)" in str(check["reason"])
    assert one(found, "dcgm.memory", "0")["status"] == "pass"
    assert one(found, "dcgm.run")["status"] == "pass", "the exit status is explained"
    assert len([check for check in found if check["status"] != "pass"]) == 1, "the summary says nothing new"


def test_the_worst_error_of_a_test_decides() -> None:
    errors = [error(51), error(101), error(ISOLATE), error(PERSISTENCE)]
    check = one(judged(newest(2, pcie={"0": {"status": "Fail", "warnings": errors}}), level=2), "dcgm.pcie", "0")
    assert check["severity"] == "fatal"
    assert all(name in str(check["evidence"]) for name in ("CUDA_API", "XID_ERROR", "FAULTY_MEMORY"))


@pytest.mark.parametrize("number", sorted(dcgm_errors.ERRORS))
def test_no_error_of_the_table_lets_a_test_pass(number: int) -> None:
    for status in ("Pass", "Fail", "Warn"):
        check = one(
            judged(newest(2, memory={"0": {"status": status, "warnings": [error(number)]}}), level=2),
            "dcgm.memory",
            "0",
        )
        assert check["status"] != "pass"
        assert check["status"] == "skip" or status != "Fail" or check["status"] in ("fail", "incomplete")


def test_a_setting_is_a_warning_and_a_measurement_that_failed_is_not() -> None:
    # A whole host of which only persistence mode is off: dcgmi ends with 226 and its software test with "Fail".
    off = {"status": "Fail", "warnings": [error(PERSISTENCE, "Persistence mode for GPU 0 is disabled.")]}
    found = judged(newest(2, software={"0": off, "1": off}), rc=226, level=2)
    assert checks.verdict(found) == "pass"
    check = one(found, "dcgm.software", "0")
    assert (check["status"], check["severity"], check["action"]) == ("warn", "warning", "configure")
    load = judged(newest(2, pcie={"0": {"status": "Fail", "warnings": [error(46, "width 8")]}}), rc=226, level=2)
    assert (one(load, "dcgm.pcie", "0")["status"], one(load, "dcgm.pcie", "0")["severity"]) == ("fail", "critical")


@pytest.mark.parametrize(
    ("warnings", "status"), [([error(NO_MEMORY)], "incomplete"), ([error(10)], "warn"), ([error(9_999)], "warn")]
)
def test_a_pass_with_an_error_inside_is_no_pass(warnings: list[Any], status: str) -> None:
    # https://github.com/NVIDIA/DCGM/issues/284
    found = judged(newest(2, memory={"0": {"warnings": warnings}}), rc=226, level=2)
    assert one(found, "dcgm.memory", "0")["status"] == status


def test_a_pass_that_tells_of_no_memory_in_words_measured_nothing() -> None:
    words = "Couldn't allocate at least 75.0% of GPU memory on GPU 0"
    for document in (oldest(info=words), oldest(warnings=words)):
        assert one(judged(document), "dcgm.memory")["status"] == "incomplete"
    assert one(judged(oldest(info="GPU 0 Allocated 15000000000 bytes (97.1%)")), "dcgm.memory")["status"] == "pass"
    assert one(judged(oldest("Fail", words)), "dcgm.memory")["status"] == "fail", "a test that failed did fail"


def test_an_error_of_no_card_in_the_summary_is_one_of_the_host() -> None:
    told = newest(2, pcie={"summary": {"status": "Fail", "warnings": [error(44, "an internal error")]}})
    check = next(check for check in judged(told, level=2) if check["id"] == "dcgm.pcie" and check["gpu"] is None)
    assert (check["status"], check["severity"]) == ("fail", "critical")
    mild = judged(newest(2, pcie={"summary": {"status": "Pass", "warnings": [error(44)]}}), level=2)
    assert [check["status"] for check in mild if check["id"] == "dcgm.pcie"] == ["pass", "pass", "fail"]
    silent = judged(newest(2, pcie={"summary": {"status": "Fail"}}), level=2)
    assert checks.verdict(silent) == "fail", "a summary that fails is believed, whatever the cards say"


def test_errors_of_each_older_shape_are_told() -> None:
    # Of 3.3: the deployment tests have "warnings" in their entries, and the card only then.
    entry = {"warnings": "page retired", "error_id": 7, "error_category": 10, "error_severity": 2}
    told = middle({"Page Retirement/Row Remap": [{"gpu_id": 1, "status": "Fail", "warnings": [None, entry]}]})
    check = one(judged(told, rc=205), "dcgm.page_retirement_row_remap")
    assert (check["status"], check["severity"], check["gpu"]) == ("fail", "fatal", "1")
    assert "page retired" in str(check["reason"])
    beside = judged(middle({"PCIe": [None, {"gpu_id": "1", "status": "Pass"}]}))
    assert one(beside, "dcgm.pcie", "1")["status"] == "pass", "of 3.3: the place of a card that did not run it is null"
    text = one(judged(oldest("Fail", "GPU 0 memory error"), rc=226), "dcgm.memory")
    assert (text["status"], text["severity"], text["gpu"]) == ("fail", "critical", "0")


def test_a_failure_without_a_reason_is_one() -> None:
    check = one(judged(oldest("Fail"), rc=226), "dcgm.memory")
    assert (check["status"], check["severity"]) == ("fail", "critical")
    assert "no reason" in str(check["reason"])


# --------------------------------------------------------------------------------------------------------------------
# What was not measured
# --------------------------------------------------------------------------------------------------------------------


def test_a_skipped_test_is_skipped_with_its_reason() -> None:
    told = newest(
        2,
        memory={"0": {"status": "Skip", "warnings": [error(NO_ECC, "ECC is off")]}, "1": {"status": "Skip"}},
        pcie={"0": {"status": "Skip", "info": ["the card has no such link"]}, "1": {"status": "Skip"}},
    )
    found = judged(told, level=2)
    assert [check["status"] for check in found if check["id"] in ("dcgm.memory", "dcgm.pcie")] == ["skip"] * 4
    assert "ECC is off" in str(one(found, "dcgm.memory", "0")["reason"])
    assert "no such link" in str(one(found, "dcgm.pcie", "0")["reason"])
    grave = newest(2, memory={"0": {"status": "Skip", "warnings": [error(ISOLATE)]}})
    assert one(judged(grave, level=2), "dcgm.memory", "0")["status"] == "fail", "a skip hides no failure"


@pytest.mark.parametrize("status", ["Not Run", "not run", "", "Splendid", None, 7, ["Pass"]])
def test_what_is_no_known_result_is_incomplete(status: Any) -> None:
    assert one(judged(newest(2, pcie={"1": {"status": status}}), level=2), "dcgm.pcie", "1")["status"] == "incomplete"


def test_a_test_that_was_ended_is_incomplete() -> None:
    told = newest(2, pcie={"0": {"status": "Fail", "warnings": [error(ABORTED)]}})
    assert one(judged(told, rc=226, level=2), "dcgm.pcie", "0")["status"] == "incomplete"


def test_a_test_of_the_level_that_is_not_there_is_incomplete() -> None:
    found = judged(newest(2), level=3)
    missing = {check["id"] for check in found if check["status"] == "incomplete"}
    assert missing == {
        f"dcgm.{name}" for name in ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power")
    }
    assert len([check for check in judged(newest(1), level=4) if check["status"] == "incomplete"]) == 7
    empty = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory"}]}]}}
    assert one(judged(empty, level=1), "dcgm.memory")["status"] == "incomplete", "of 4.x: no card ran it"


@pytest.mark.parametrize(("cards", "expected", "status"), [((), 3, "fail"), ((), 2, "pass"), ((0, 1, 2), None, "fail")])
def test_a_card_that_was_not_tested_is_missed(cards: tuple[int, ...], expected: int | None, status: str) -> None:
    assert one(judged(newest(1), cards=cards, expected=expected), "dcgm.cards")["status"] == status
    named_by_none = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software"}]}]}
    }
    assert one(judged(named_by_none, expected=1), "dcgm.cards")["status"] == "incomplete"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "null",
        "[]",
        "5",
        "{}",
        '{"DCGM Diagnostic": {}}',
        '{"DCGM Diagnostic": []}',
        '{"DCGM Diagnostic": {"test_categories": []}}',
        '{"DCGM Diagnostic": {"test_categories": 5}}',
        '{"DCGM Diagnostic": {"test_categories": ["x"]}}',
        '{"DCGM Diagnostic": {"test_categories": [{"tests": {"name": "x"}}]}}',
        '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": "Pass"}]}]}}',
        '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "a", "results": [], "test_summary": "Pass"}]}]}}',
        "[" * 100_000,
        "{" * 3,
        "\x00\x1b[2J",
        '{"a": ' + "9" * 5_000 + "}",
    ],
)
def test_what_is_no_answer_is_incomplete(text: str) -> None:
    found = judged(text)
    assert [check["id"] for check in found] == ["dcgm.run"]
    assert checks.verdict(found) == "incomplete"


def test_text_around_the_document_and_a_second_one_are_incomplete() -> None:
    good = json.dumps(newest(1))
    for text in (good[:-40], good + good, "Warning: x\n" + good, good + "\nbye", good.replace("Pass", "Pass\x01")):
        assert checks.verdict(judged(text)) == "incomplete"
    hidden = good.replace('"status": "Pass"', '"status": "Fail", "status": "Pass"', 1)
    assert checks.verdict(judged(hidden)) == "incomplete", "a key that is there twice hides the first one"
    assert checks.verdict(judged(good.replace('"entity_id": 0', '"entity_id": NaN'))) == "incomplete"


def test_a_document_without_end_is_not_judged() -> None:
    many = [{"entity_group": "GPU", "entity_id": number, "status": "Pass"} for number in range(3_000)]
    told = {"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [{"name": "a", "results": many}]}]}}
    assert checks.verdict(judged(told)) == "incomplete"
    errors = [error(10, "x" * 50_000)] * 500
    check = one(judged(newest(1, software={"0": {"status": "Fail", "warnings": errors}})), "dcgm.software", "0")
    assert len(json.dumps(check)) < 3_000
    assert check["severity"] == "critical", "errors that are not told count as unknown ones"


# --------------------------------------------------------------------------------------------------------------------
# How it ends
# --------------------------------------------------------------------------------------------------------------------


def could_not(words: str) -> str:
    """HelperDisplayFailureMessage of dcgmi/Diag.cpp."""
    return json.dumps({"DCGM Diagnostic": {"version": "4.6.0", "runtime_error": words}})


@pytest.mark.parametrize(
    ("rc", "words", "status", "action"),
    [
        (217, "A diag instance is already running", "incomplete", None),
        (222, "the affected resource is in use", "incomplete", None),
        (238, "GPU is lost", "fail", "check_hardware"),
        (237, "GPU requires reset", "fail", "reset_gpu"),
        (204, "The NVVS binary was not found", "incomplete", "install"),
        (234, "This GPU is not supported by DCGM", "skip", None),
        (250, "the Tesla recommended driver is not being used", "skip", None),
        (205, "could not tell", "fail", "restart_service"),
        (226, "could not tell", "incomplete", "restart_service"),
        (0, "could not tell", "incomplete", "restart_service"),
        (17, "could not tell", "incomplete", "restart_service"),
    ],
)
def test_a_diagnostic_that_could_not_be_run_says_why(rc: int, words: str, status: str, action: str | None) -> None:
    (check,) = judged(could_not(words), rc=rc)
    assert (check["id"], check["status"], check["action"]) == ("dcgm.run", status, action)
    assert words in str(check["evidence"])


def test_cards_in_mig_mode_are_skipped() -> None:
    # nvvs/src/NvidiaValidationSuite.cpp, BuildCommonGpusList
    (check,) = judged(could_not("GPU 0's MIG configuration is incompatible with the diagnostic"), rc=226)
    assert check["status"] == "skip"


def test_a_host_without_a_host_engine_is_told_in_dcgms_words() -> None:
    # DoExecuteConnectionFailure of dcgmi/Diag.cpp: it prints this sentence and no JSON.
    (check,) = judged("Error: Unable to start an embedded host engine. DCGM initialization error.\n", rc=249)
    assert (check["status"], check["action"]) == ("incomplete", "restart_service")
    assert "Unable to start an embedded host engine" in str(check["evidence"])


@pytest.mark.parametrize(("rc", "severity"), [(205, "fatal"), (226, "critical"), (17, "critical"), (1, "critical")])
def test_an_exit_status_that_no_test_explains_fails(rc: int, severity: str) -> None:
    check = one(judged(newest(2), rc=rc, level=2), "dcgm.run")
    assert (check["status"], check["severity"], check["measured"]) == ("fail", severity, rc)


def test_the_table_says_what_a_check_may_say() -> None:
    for number, known in dcgm_errors.ERRORS.items():
        assert known.grade in dcgm_errors.SEVERITIES
        assert known.deed.action in checks.ACTIONS
        assert number >= 0
    for ending in dcgm_errors.ENDINGS.values():
        assert ending.status in ("fail", "incomplete", "skip")
        assert ending.action is None or ending.action in checks.ACTIONS
    assert sorted(dcgm_errors.ERRORS) == list(range(133)), "dcgm_errors.h of 4.6.0 has 0 to 132"


# --------------------------------------------------------------------------------------------------------------------
# How it is run
# --------------------------------------------------------------------------------------------------------------------


def test_the_command_line_is_that_of_dcgmi() -> None:
    assert dcgm_diag.command("/usr/bin/dcgmi", 2, (), 60) == ["/usr/bin/dcgmi", "diag", "-r", "2", "-j"]
    assert dcgm_diag.command("/d", 1, (0, 3), None)[5:] == ["-i", "0,3"]
    timed = dcgm_diag.command("/d", 4, (), 60)[-1]
    assert timed == ";".join(
        f"{name}.test_duration=60" for name in ("diagnostic", "targeted_stress", "targeted_power", "memtest")
    )
    assert dcgm_diag.time_limit(2, 60) == 300
    assert dcgm_diag.time_limit(3, 60) == dcgm_diag.TIMEOUTS[3] + 180


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """A dcgmi by its shell script, with what it was told to stop in the file ``stopped``."""

    def make(script: str) -> str:
        path = tmp_path / "dcgmi"
        stops = (
            f'[ -n "$DCGMI_STOP_DIAG_HOSTNAME" ] && echo "$DCGMI_STOP_DIAG_HOSTNAME" > {tmp_path}/stopped && exit 0\n'
        )
        path.write_text("#!/bin/sh\n" + stops + textwrap.dedent(script))
        path.chmod(stat.S_IRWXU)
        return str(path)

    return make


def prove(path: str, **changes: Any) -> Any:
    params: Any = {
        "level": 1,
        "cards": [],
        "expected_gpus": None,
        "test_seconds": None,
        "timeout": 10,
        "required": True,
        "executable": path,
    }
    params.update(changes)
    return module.prove(params)


def test_a_program_that_answers_is_judged(program: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps(newest(1)))
    found = prove(program(f"pwd > {tmp_path}/where; touch stats_x.json; cat {tmp_path}/answer"), expected_gpus=2)
    assert checks.verdict(found["checks"]) == "pass"
    assert found["version"] == "4.6.0"
    where = (tmp_path / "where").read_text().strip()
    assert "gpuwright-dcgm-" in where
    assert not Path(where).exists(), "what the tests write there is taken away"
    assert not (tmp_path / "stopped").exists()


def test_a_program_that_hangs_is_ended_by_a_word_and_the_engine_told_to_stop(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    script = f"trap 'echo word > {tmp_path}/word; exit 1' TERM\nsleep 60 & echo $! > {tmp_path}/child; wait"
    start = time.monotonic()
    found = prove(program(script), timeout=1)
    assert time.monotonic() - start < 10
    assert [(check["id"], check["status"]) for check in found["checks"]] == [("dcgm.run", "incomplete")]
    assert "time limit" in found["checks"][0]["reason"]
    assert (tmp_path / "word").exists()
    assert (tmp_path / "stopped").read_text() == "localhost\n"
    assert gone(int((tmp_path / "child").read_text()))


def gone(pid: int) -> bool:
    """Whether a process has ended (one that nobody has waited for yet has)."""
    for _try in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_a_program_that_ignores_the_word_is_killed(
    program: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcgm_diag, "GRACE", 0.5)
    found = prove(program(f"trap '' TERM\necho $$ > {tmp_path}/pid\nwhile :; do sleep 1; done"), timeout=1)
    assert checks.verdict(found["checks"]) == "incomplete"
    assert gone(int((tmp_path / "pid").read_text()))


def test_output_without_end_is_cut_off(program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm_diag, "MOST_BYTES", 1 << 20)
    start = time.monotonic()
    found = prove(program("exec yes"), timeout=60)
    assert time.monotonic() - start < 10
    assert "printed more than 1 MiB" in found["checks"][0]["reason"]
    assert checks.verdict(found["checks"]) == "incomplete"


def test_a_program_that_dies_or_is_none_is_incomplete(program: Callable[[str], str], tmp_path: Path) -> None:
    assert checks.verdict(prove(program("kill -SEGV $$"))["checks"]) == "incomplete"
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x7fELF\x00")
    nonsense.chmod(0o700)
    assert checks.verdict(prove(str(nonsense))["checks"]) == "incomplete"


def test_what_another_may_change_is_not_run(program: Callable[[str], str], tmp_path: Path) -> None:
    path = program(f"touch {tmp_path}/ran")
    Path(path).chmod(0o777)
    found = prove(path)
    assert [(check["id"], check["status"]) for check in found["checks"]] == [("dcgm.run", "incomplete")]
    assert "everybody may write" in found["checks"][0]["reason"]
    assert not (tmp_path / "ran").exists()


def test_variables_that_would_lead_astray_are_not_passed_on(
    program: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "NVVS_BIN_PATH", "LD_PRELOAD_OF_NOBODY", "DCGM_HOME_DIR"):
        monkeypatch.setenv(name, "/evil")
    prove(program(f"env > {tmp_path}/env"))
    assert "/evil" not in (tmp_path / "env").read_text()


def test_a_machine_without_dcgm_is_skipped_only_where_nobody_wants_it() -> None:
    for required, status in ((True, "incomplete"), (False, "skip")):
        (check,) = prove("/nonexistent/dcgmi", required=required)["checks"]
        assert (check["id"], check["status"]) == ("dcgm.run", status)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"test_seconds": 0}, {"expected_gpus": -1}, {"cards": [-1]}, {"level": 5}]
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    assert run_module(module, executable="/nonexistent/dcgmi", **options)["failed"]


def test_the_gate_lets_the_answer_in(program: Callable[[str], str], tmp_path: Path) -> None:
    told = newest(2, memory={"0": {"status": "Fail", "warnings": [error(ISOLATE, "\x1b[31mred")]}})
    (tmp_path / "answer").write_text(json.dumps(told))
    answer = run_module(module, executable=program(f"cat {tmp_path}/answer; exit 205"), level=2)
    assert json.loads(gate.admit("dcgm_diag", json.dumps(answer)))["verdict"] == "fail"
