from __future__ import annotations

from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver
from ansible_collections.gpuwright.node.plugins.module_utils.run import Result
from tests.unit.observe.trees import FakePrograms, Tree, answer


def ask(result: Result) -> tuple[dict[str, Any], Host]:
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


def test_nvidia_smi_is_not_run_for_another_tree(tree: Tree) -> None:
    programs = FakePrograms()
    assert driver.ask_smi(tree.host(programs), "/usr/bin/nvidia-smi") is None
    assert programs.calls == []
