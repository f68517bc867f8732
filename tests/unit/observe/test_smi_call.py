from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver
from tests.unit.observe.trees import FakePrograms, Tree, answer


def ask(result: Result) -> tuple[Any, Host]:
    host = Host(runner=FakePrograms({"nvidia-smi": result}))
    seen = driver.ask_smi(host, "/usr/bin/nvidia-smi")
    assert seen is not None
    return seen, host


def test_an_error_of_nvidia_smi_is_kept_with_its_status() -> None:
    seen, host = ask(answer("Failed to initialize NVML: Driver/library version mismatch\n", rc=18))
    assert (seen["rc"], seen["data"]) == (18, None)
    assert "version mismatch" in seen["error"]
    assert "smi.data" in host.unknown_facts


def test_a_nvidia_smi_that_hangs_is_an_error_without_status() -> None:
    seen, _host = ask(Result(None, "", "", 20.0, "nvidia-smi did not answer within 20 s"))
    assert (seen["rc"], seen["data"], seen["seconds"]) == (None, None, 20.0)
    assert "20 s" in seen["error"]


def test_damaged_xml_is_an_error_not_an_empty_answer() -> None:
    seen, _host = ask(answer("<?xml version='1.0' ?><nvidia_smi_log><gpu"))
    assert seen["data"] is None
    assert seen["error"]


def test_text_that_is_no_xml_is_an_error_even_with_status_zero() -> None:
    seen, _host = ask(answer("No devices were found\n"))
    assert seen["data"] is None
    assert "No devices were found" in seen["error"]


DOCUMENT = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:1B:00.0"><product_name>NVIDIA H100</product_name></gpu></nvidia_smi_log>
"""
WARNING = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0"


@pytest.mark.parametrize(
    ("result", "notes"),
    [
        (answer("\ufeff" + DOCUMENT), []),
        (answer(f"\n{WARNING}\n{DOCUMENT}"), [WARNING]),
        (answer(f"\ufeff{WARNING}\n{DOCUMENT}{WARNING}\n"), [WARNING, WARNING]),
        (answer(DOCUMENT, err=WARNING + "\n"), [WARNING]),
    ],
)
def test_what_stands_around_the_document_does_not_hide_the_cards(result: Result, notes: list[str]) -> None:
    seen, host = ask(result)
    assert seen["error"] is None
    assert seen["data"]["gpus"][0]["name"] == "NVIDIA H100"
    assert seen["data"]["notes"] == notes
    assert host.unknown_facts == {}


def test_an_error_beside_a_document_is_what_was_said_and_not_the_document() -> None:
    seen, _host = ask(answer(DOCUMENT + WARNING, rc=14))
    assert (seen["rc"], seen["error"], len(seen["data"]["gpus"])) == (14, WARNING, 1)


def test_a_brake_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    tag = "clocks_event_reason_hw_power_brake_slowdown"
    reason = f"<clocks_event_reasons><{tag}>Active</{tag}></clocks_event_reasons>"
    seen, _host = ask(answer(DOCUMENT.replace("</gpu>", reason + "</gpu>")))
    assert seen["data"]["gpus"][0]["throttle"] == ["hw_power_brake_slowdown"]


def test_nvidia_smi_is_not_run_for_another_tree(tree: Tree) -> None:
    programs = FakePrograms()
    assert driver.ask_smi(tree.host(programs), "/usr/bin/nvidia-smi") is None
    assert programs.calls == []
