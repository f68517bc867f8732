"""What the proof of a node measures, and what it says of what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.filter.measured import FilterModule
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import measurements, work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.measurements import Measurements
from tests.unit.plan.nodes import bare

BUS = ["00000000:18:00.0", "00000000:2A:00.0"]
COMPAT = "/usr/local/cuda-13.0/compat"
DRIVER = {"branch": "580", "version": "580.178.04", "minimum": "580.65.06", "kernel_module": "nvidia"}
PYTORCH = {
    "name": "pytorch",
    "version": "2.14.1+cu130",
    "path": "/opt/gpuwright/pytorch",
    "cuda": "13.0",
    "loader_path": None,
}


def measured(facts: Any = None, stack: Any = None, given: Any = None, **changes: Any) -> Measurements:
    """What is measured of two cards with a driver and PyTorch; ``changes`` are keys of the plan."""
    plan: Any = {
        "stack": {"driver": DRIVER, "frameworks": [PYTORCH], **(stack or {})},
        "packages": {}, "install": [], "changes": [],
        "expected_gpus": {"count": 2, "names": None, "from": "the inventory", "pcie_lanes": {}},
        "provision_only": False, "cards_missing": False, "cpu_only": False,
        **changes,
        "given": measurements.asked({}, (), pending=False),
    }  # fmt: skip
    plan["given"] = {**plan["given"], **(given or {})}
    found: Any = work.of_step(measurements.NAME, "measure", plan, facts or bare(), {})
    return found


CUDA = {"version": "13.0", "mode": "native", "path": "/usr/local/cuda-13.0", "packages": [], "capabilities": ["9.0"]}


def test_each_toolkit_compiles_for_the_cards_and_runs_on_those_that_are_there() -> None:
    (found,) = measured(stack={"cuda": [CUDA]})["toolkits"]
    assert found == {
        "nvcc": "/usr/local/cuda-13.0/bin/nvcc", "capabilities": ["9.0"], "expected_gpus": 2, "environment": {},
    }  # fmt: skip
    for without in (measured(stack={"cuda": [CUDA]}, given={"pending": True}), _provisioned({"cuda": [CUDA]})):
        (compiled,) = without["toolkits"]
        assert "expected_gpus" not in compiled
    assert measured()["toolkits"] == []


def _provisioned(stack: Any) -> Measurements:
    return measured(stack=stack, provision_only=True)


def test_what_is_known_of_a_compiler_and_the_library_of_cuda_compat_go_with_it() -> None:
    compat = {"version": "13.0", "path": COMPAT}
    toolkit = {**CUDA, "mode": "forward", "unable": "it takes gcc up to 13"}
    (found,) = measured(stack={"cuda": [toolkit], "cuda_compat": compat})["toolkits"]
    assert found["environment"] == {"LD_LIBRARY_PATH": COMPAT}
    assert found["known"] == "it takes gcc up to 13"
    (native,) = measured(stack={"cuda": [CUDA], "cuda_compat": compat})["toolkits"]
    assert native["environment"] == {}


def kind(name: str, **changes: Any) -> Any:
    facts = bare(**changes)
    facts["environment"]["kind"] = name
    return facts


def told(found: Measurements) -> dict[str, tuple[str, str | None]]:
    return {check["id"]: (check["status"], check["reason"]) for check in found["gaps"]}


def test_cards_with_a_driver_and_a_framework_are_measured_without_a_gap() -> None:
    found = measured()
    assert found["smi"] == {
        "executable": "nvidia-smi", "expected_gpus": 2, "expected_bus_ids": BUS, "expected_driver": "580.178.04", "min_driver": "580.65.06",
    }  # fmt: skip
    assert found["log"] == {"boots": 0}
    assert found["compute"] == [{"expected_gpus": 2, "environment": {}}]
    assert found["environments"] == [
        {"name": "pytorch", "python": "/opt/gpuwright/pytorch/bin/python", "expected_version": "2.14.1+cu130", "expect_cuda": True,
         "expected_gpus": 2, "environment": {}},
    ]  # fmt: skip
    assert (found["module"], found["tools"]["names"], found["gaps"]) == (None, [], [])


def test_what_the_inventory_says_of_the_cards_is_held_against_them() -> None:
    expected = {"count": 2, "names": ["H100", "H100"], "from": "the inventory", "pcie_lanes": {"all": 8}}
    smi = measured(expected_gpus=expected)["smi"]
    assert smi
    assert (smi["expected_names"], smi["pcie_lanes"]) == (["H100", "H100"], {"all": 8})


def test_where_nothing_is_expected_one_card_is_enough() -> None:
    found = measured(expected_gpus={"count": None, "names": None, "pcie_lanes": {}})
    assert found["smi"]
    assert "expected_gpus" not in found["smi"]
    assert found["compute"] == [{"environment": {}}]
    assert "expected_gpus" not in found["environments"][0]


def test_ignored_cards_need_not_answer() -> None:
    smi = measured(given={"ignore": ["T4"]})["smi"]
    assert smi
    assert "expected_bus_ids" not in smi


def test_a_driver_without_a_version_is_held_to_its_branch() -> None:
    smi = measured(stack={"driver": {"branch": "580", "version": None}})["smi"]
    assert smi
    assert smi["expected_driver"] == "580"
    without = measured(stack={"driver": None})["smi"]
    assert without
    assert "expected_driver" not in without


def test_of_parted_cards_a_program_sees_one_instance() -> None:
    card = {"mig": {"current": True, "pending": True}}
    found = measured(bare(smi={"data": {"gpus": [card]}}), stack={"cuda_compat": {"version": "13.0", "path": COMPAT}})
    assert found["smi"]
    assert found["smi"]["expected_gpus"] == 2
    assert found["compute"] == [
        {"environment": {}},
        {"min_cuda": "13.0", "environment": {"LD_LIBRARY_PATH": COMPAT}},
    ]
    assert "expected_gpus" not in found["environments"][0]


def test_cuda_by_way_of_cuda_compat_is_computed_with_too() -> None:
    stack = {"cuda_compat": {"version": "13.0", "path": COMPAT}, "frameworks": [{**PYTORCH, "loader_path": COMPAT}]}
    found = measured(stack=stack)
    first = {"LD_LIBRARY_PATH": COMPAT}
    assert found["compute"][1] == {"expected_gpus": 2, "min_cuda": "13.0", "environment": first}
    assert found["compute"][0]["environment"] == {}
    assert found["environments"][0]["environment"] == first


def test_a_framework_for_the_processor_is_asked_for_no_card() -> None:
    (framework,) = measured(stack={"frameworks": [{**PYTORCH, "cuda": None}]})["environments"]
    assert framework["expect_cuda"] is False
    assert "expected_gpus" not in framework


def test_windows_keeps_its_driver_loaded_and_has_the_log() -> None:
    facts = kind("wsl")
    facts["driver"]["nvidia_smi"] = "/usr/lib/wsl/lib/nvidia-smi"
    found = measured(facts)
    assert found["smi"]
    assert found["smi"]["executable"] == "/usr/lib/wsl/lib/nvidia-smi"
    assert found["smi"]["persistence"] is False
    assert not found["log"]
    reason = "the driver of the cards writes into another kernel log than this machine's"
    assert told(found) == dict.fromkeys(judge_kernel_log.IDS, ("skip", reason))


def test_a_jetson_may_be_without_nvidia_smi() -> None:
    facts = kind("jetson")
    facts["driver"]["nvidia_smi"] = None
    found = measured(facts)
    assert found["smi"] is None
    assert found["compute"]
    assert told(found)["smi.runs"] == ("skip", "the image of this board has no nvidia-smi; CUDA itself is asked")
    facts["driver"]["nvidia_smi"] = "/usr/bin/nvidia-smi"
    assert measured(facts)["smi"]


CARDS = ("gpu.cards", "gpu.compute", "framework.compute")


@pytest.mark.parametrize(
    ("changes", "status", "reason", "action", "remedy"),
    [
        (
            {"provision_only": True}, "skip",
            "the cards are not in this machine yet (it is provisioned for them)", "none", None,
        ),
        (
            {"provision_only": True, "cards_missing": True}, "incomplete",
            "the expected cards are not on the PCI bus", "none", "see the check driver.module",
        ),
        (
            {"given": {"pending": True}}, "incomplete", "the driver takes the cards over only after a reboot", "reboot",
            "reboot the machine when it suits, then run gpuwright up again",
        ),
    ],
    ids=["provisioned", "missing", "pending"],
)  # fmt: skip
def test_cards_that_cannot_be_measured_are_told_with_the_reason(
    changes: dict[str, Any], status: str, reason: str, action: str, remedy: str | None
) -> None:
    found = measured(**changes)
    assert (found["smi"], found["log"], found["compute"], found["environments"]) == (None, None, [], [])
    assert told(found) == dict.fromkeys(CARDS, (status, reason))
    assert {(check["action"], check["remedy"], check["severity"]) for check in found["gaps"]} == {
        (action, remedy, "critical")
    }
    assert [check["evidence"] for check in found["gaps"]] == [None, None, "pytorch"]


def test_without_a_card_a_framework_is_still_measured() -> None:
    found = measured(cpu_only=True, stack={"frameworks": [{**PYTORCH, "cuda": None}]})
    assert (found["smi"], found["compute"], len(found["environments"])) == (None, [], 1)
    reason = "the machine has no NVIDIA card and none is expected"
    assert told(found) == dict.fromkeys(CARDS[:2], ("skip", reason))


def test_no_framework_and_no_storage_are_gaps_of_their_own() -> None:
    found = measured(stack={"frameworks": []}, given={"storage": False})
    assert told(found) == {
        "framework.compute": ("skip", "no framework is wished"),
        "fio.storage": ("skip", "validate_storage is false"),
    }
    assert [check["severity"] for check in found["gaps"]] == ["critical", "warning"]
    # As -e validate_storage=false hands it over.
    for said in (False, "false", "no"):
        assert measurements.asked({"validate": {"validate_storage": said}}, (), pending=False)["storage"] is False


TOOLKIT = {
    "version_spec": ">=1.18",
    "packages": [],
    "engine": {"name": "docker", "packages": [], "images": ["a.b/c:1"]},
}


def test_containers_are_asked_for_the_cards_where_an_image_is_wished() -> None:
    stack = {"container_toolkit": TOOLKIT}
    (question,) = measured(stack=stack)["containers"]
    assert (question["engine"], question["images"], question["ways"]) == ("docker", ["a.b/c:1"], ["gpus"])
    assert "container.cards" not in told(measured(stack=stack))
    assert (measured()["containers"], "container.cards" in told(measured())) == ([], False)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"stack": {"container_toolkit": {**TOOLKIT, "engine": {"name": "docker"}}}}, "skip", "container-image=auto"),
        ({"given": {"containers": False}}, "skip", "validate_containers is false"),
        ({"given": {"pending": True}}, "incomplete", "after a reboot"),
        ({"provision_only": True}, "skip", "not in this machine yet"),
    ],
)
def test_why_no_container_is_asked_is_told(changes: Any, status: str, words: str) -> None:
    found = measured(**{"stack": {"container_toolkit": TOOLKIT}, **changes})
    (given, reason) = told(found)["container.cards"]
    assert (found["containers"], given, words in str(reason)) == ([], status, True)


def test_a_variable_leaves_the_containers_out() -> None:
    assert measurements.asked({"validate": {"validate_containers": False}}, (), pending=False)["containers"] is False


# --- the module, where there is no card -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "count"), [(False, 0), (True, 2)])
def test_without_a_card_the_module_is_tried(missing: bool, count: int) -> None:
    found = measured(provision_only=True, cards_missing=missing)
    assert found["module"] == {"name": "nvidia", "expected_gpus": count}
    assert found["gaps"]


@pytest.mark.parametrize("why", ["cards", "pending", "no driver", "container", "another kernel"])
def test_the_module_is_not_tried(why: str) -> None:
    facts = kind("container") if why == "container" else bare()
    if why == "another kernel":
        facts["kernel"]["next"] = "6.12.107+deb13-amd64"
    stack = {"driver": None} if why == "no driver" else {}
    found = measured(facts, stack, {"pending": why == "pending"}, provision_only=why != "cards")
    assert found["module"] is None


def test_tools_come_from_the_plan_alone() -> None:
    changes = [
        {"component": "cuda", "packages": [{"name": "cuda-toolkit-13-0"}]},
        {"component": "validate", "packages": [{"name": "fio"}]},
    ]
    assert measured(changes=changes, packages={"fio": "3.39-1"})["tools"]["specs"] == ["fio=3.39-1"]


# --- what was measured ----------------------------------------------------------------------------------------------------

FILTERS: dict[str, Any] = dict(FilterModule().filters())


def check(id_: str, status: str, reason: str = "so", remedy: str | None = None) -> dict[str, Any]:
    return {"id": id_, "status": status, "reason": reason, "remedy": remedy}


def test_the_checks_of_tasks_and_of_loops_come_before_the_gaps() -> None:
    results = [
        {"checks": [check("a", "pass")]},
        {"skipped": True},
        {"results": [{"checks": [check("b", "pass")]}, {"skipped": True}, {"checks": [check("c", "fail")]}]},
        {},
    ]
    found = FILTERS["measured_checks"](results, [check("d", "skip")])
    assert [each["id"] for each in found] == ["a", "b", "c", "d"]
    assert FILTERS["measured_checks"]([]) == []


def test_a_machine_is_proven_where_something_passed_and_nothing_failed() -> None:
    assert FILTERS["not_proven"]([check("a", "pass"), check("b", "warn"), check("c", "skip")]) == ""
    nothing = FILTERS["not_proven"]([check("a", "skip")])
    assert nothing == "Expected every check to pass. Found 0 that did not, and none that did."
    bad = FILTERS["not_proven"]([check("a", "pass"), check("b", "fail", "it burns", "leave"), check("c", "incomplete")])
    assert (
        bad
        == "Expected every check to pass. Found 2 that did not: b is fail: it burns What to do: leave. c is incomplete: so"
    )
