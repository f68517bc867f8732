"""What ended a run: the step, the words, the program, and whether it was the driver."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import failures, records

PLAN: Any = {"components": ["nvidia_driver", "cuda", "validate"]}


def failed(
    *tags: str, action: str = "gpuwright.node.package_call", plan: Any = None, **result: Any
) -> failures.Failure:
    task = {"name": "Install", "action": action, "tags": [*tags, "always"]}
    return failures.of_task(task, {"msg": "no", **result}, plan or PLAN)


@pytest.mark.parametrize(
    ("tags", "component", "of_driver"),
    [
        (("preflight",), "preflight", False),
        (("nvidia_driver", "nvidia_driver_install"), "nvidia_driver", True),
        (("nouveau_blacklist", "nouveau_blacklist"), "nouveau_blacklist", True),
        (("reboot",), "reboot", True),
        (("cuda", "cuda_install"), "cuda", False),
        (("remove",), "remove", False),
        ((), "cuda", False),
    ],
)
def test_the_tag_of_a_role_tells_the_step(tags: tuple[str, ...], component: str, of_driver: bool) -> None:
    found = failed(*tags)
    assert (found["component"], found["of_driver"]) == (component, of_driver)


def test_what_follows_the_last_component_is_told_as_a_part_of_it() -> None:
    assert failed(plan={"components": ["cuda", "reboot", "validate"]})["of_driver"]
    assert failed(plan={"components": ["validate"]})["component"] == "preflight"


@pytest.mark.parametrize("action", ["gpuwright.node.node_seal", "node_seal"])
def test_the_lock_of_another_run_is_no_failure_of_a_component(action: str) -> None:
    assert failed("nvidia_driver", action=action)["component"] == "lock"
    assert failed(action="gpuwright.node.seal")["component"] == "cuda"
    held = failed("hold", action=action)
    assert (held["component"], held["of_driver"]) == ("hold", False)
    assert held["component"] not in records.BEFORE_ANY_CHANGE, "components before it may have changed the node"


def test_the_end_of_what_a_program_said_is_kept_and_all_of_it_for_the_way_back() -> None:
    lines = [str(number) for number in range(40)]
    found = failed(stdout_lines=lines, stderr_lines=["E: last"])
    assert found["output"].splitlines() == [*lines[-24:], "E: last"]
    assert found["program"] is not None
    assert found["program"]["said"].splitlines() == [*lines, "E: last"]
    assert failed(stdout="a\nb")["output"] == "a\nb"


@pytest.mark.parametrize(
    ("action", "command", "name"),
    [
        ("ansible.builtin.apt", None, "apt-get"),
        ("apt", None, "apt-get"),
        ("gpuwright.node.package_call", ["apt-get", "install"], "apt-get"),
        ("ansible.builtin.command", ["/usr/sbin/dkms", "build"], "dkms"),
        ("ansible.builtin.command", "/usr/sbin/dkms build", "dkms"),
        ("ansible.builtin.assert", None, ""),
    ],
)
def test_a_program_is_known_by_its_command(action: str, command: Any, name: str) -> None:
    result = {} if command is None else {"cmd": command}
    program = failed(action=action, **result)["program"]
    assert program is not None
    assert program["name"] == name


def test_of_a_loop_the_item_that_failed_is_told() -> None:
    items = [{"msg": "fine"}, {"failed": True, "msg": "disk full", "cmd": ["dnf"], "stderr": "E"}, {"failed": True}]
    found = failed(msg="One or more items failed", results=items)
    assert (found["message"], found["output"]) == ("disk full", "E")
    assert failures.of_task({"name": "x", "action": "fail"}, {}, PLAN)["message"] == "no message"


def check(name: str, status: str = "fail", severity: str = "critical", **more: Any) -> Any:
    return {"id": name, "status": status, "severity": severity, "reason": f"{name} is bad", "evidence": None, **more}


@pytest.mark.parametrize("name", ["driver.loaded", "smi.runs", "cuda.init", "cuda.compute", "gpu.readable"])
def test_a_proof_of_the_driver_that_fails_badly_is_the_drivers_failure(name: str) -> None:
    found = failures.of_checks([check(name), check("driver.modules"), check("disk.read")], [])
    assert found is not None
    assert (found["task"], found["component"], found["of_driver"]) == ("Prove the node", "validate", True)
    assert found["message"] == f"{name} is bad; driver.modules is bad"


@pytest.mark.parametrize(
    "row",
    [
        check("disk.read"),
        check("driver.loaded", "pass"),
        check("gpu.readable", "incomplete"),
        check("smi.runs", severity="minor"),
        check("cudax.y"),
    ],
)
def test_anything_else_is_not(row: Any) -> None:
    assert failures.of_checks([row], []) is None
    assert failures.of_checks([], []) is None


@pytest.mark.parametrize(
    "name",
    [
        "gpu.on_bus", "gpu.model", "gpu.inforom", "gpu.reset_required", "gpu.drain_recommended", "gpu.mig", "gpu.licence",
        "gpu.power_limit", "driver.lock", "driver.peermem", "driver.nouveau_absent", "cuda.compile", "cuda.kernel", "kernel.xid",
        "ecc.volatile_unc", "fio.disk",
        "fabric.network", "packages.sources", "pcie.width", "framework.cuda",
    ],
)  # fmt: skip
def test_no_hardware_inventory_disk_network_or_setting_condemns_a_driver(name: str) -> None:
    assert failures.of_checks([check(name)], []) is None


def test_what_failed_before_the_change_is_no_fault_of_the_driver() -> None:
    assert failures.of_checks([check("cuda.init"), check("smi.runs")], ["cuda.init", "smi.runs"]) is None
    found = failures.of_checks([check("cuda.init"), check("smi.runs")], ["cuda.init"])
    assert found is not None
    assert found["message"] == "smi.runs is bad"


def test_cards_that_are_not_on_the_bus_do_not_condemn_a_driver() -> None:
    """Three are expected and two are there: nvidia-smi names no card of the bus that it misses."""
    assert failures.of_checks([check("gpu.count"), check("cuda.count")], []) is None
    unseen = check("gpu.count", evidence="00000000:3B:00.0")
    assert failures.of_checks([unseen], []) is not None


@pytest.mark.parametrize(
    "lost",
    [check("gpu.lost", severity="fatal"), check("smi.runs", severity="fatal"), check("ecc.sram", severity="fatal")],
)
def test_a_card_that_is_lost_explains_what_cuda_says_of_it(lost: Any) -> None:
    assert failures.of_checks([lost, check("cuda.init"), check("gpu.readable")], []) is None
    assert failures.of_checks([lost, check("driver.loaded")], []) is not None


@pytest.mark.parametrize("action", ["package_sources", "repository_key", "get_url", "driver_file"])
def test_what_could_not_be_fetched_says_nothing_of_a_driver(action: str) -> None:
    assert not failed("nvidia_driver", action=f"gpuwright.node.{action}")["of_driver"]


def test_a_step_that_knows_that_it_was_not_the_driver_is_believed() -> None:
    for action in ("gpuwright.node.work", "seal"):
        assert failed("nvidia_driver", action=action)["of_driver"]
        assert not failed("nvidia_driver", action=action, of_driver=False)["of_driver"]
    assert failed("nvidia_driver", action="ansible.builtin.command", of_driver=False)["of_driver"]


def test_a_machine_that_does_not_come_back_says_nothing_of_the_driver() -> None:
    assert failed("reboot")["of_driver"]
    assert not failed("reboot", "not_of_driver", action="ansible.builtin.fail")["of_driver"]


def test_without_a_baseline_no_driver_is_blamed() -> None:
    assert failures.of_checks([check("driver.loaded")], None) is None
