"""Plans and judgements for machines whose driver or cards are somebody else's."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan

#: Any: a test changes them to what no type allows, too.
Facts = Any

AMD = {"vendor": "1002", "device": "744c", "bus_id": "00000000:03:00.0", "name": "Navi 31 [Radeon RX 7900 XTX]"}
HELD = {"vendor": "10de", "device": "2330", "bus_id": "00000000:18:00.0", "name": None, "driver": "vfio-pci"}


def want(*wants: str) -> Wish:
    return Wish.from_variables({"gpuwright_want": list(wants)})


def elsewhere(kind: str, **environment: Any) -> Facts:
    """A node of another kind, with nothing of a driver's kernel part."""
    facts = nodes.bare()
    facts["environment"] = {"kind": kind, "detail": None, "systemd": True, **environment}
    facts["simulated"] = False
    facts["kernel"]["loaded"] = {}
    facts["kernel"]["initramfs"] |= {"path": None}
    return facts


def wsl(**environment: Any) -> Facts:
    facts = elsewhere("wsl", **environment)
    facts["pci"]["gpus"] = facts["pci"]["gpus"][:1]
    facts["driver"] |= {
        "owner": "host",
        "libcuda": "/usr/lib/wsl/lib/libcuda.so.1",
        "nvidia_smi": "/usr/lib/wsl/lib/nvidia-smi",
    }
    facts["smi"] = nodes.smi(driver="582.53")
    return facts


def check(facts: Facts, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in judge.judge(facts, {}) if entry["id"] == name]
    return dict(found)


def ids(facts: Facts) -> set[str]:
    return {entry["id"] for entry in judge.judge(facts, {})}


# --- WSL ----------------------------------------------------------------------------------------------------------------


def test_a_plan_for_wsl_has_no_package_of_a_driver() -> None:
    made = plan(wsl(), want("driver", "cuda", "pytorch"))
    assert made["ok"], made["why_not"]
    assert made["components"] == ["cuda", "frameworks", "validate"]
    named = [row["name"] for change in made["changes"] for row in change["packages"]]
    assert not [
        name for name in named if name.startswith(("nvidia-", "libnvidia-", "libcuda", "cuda-drivers", "linux-"))
    ]
    assert (made["reboot"], made["cpu_only"]) == (False, False)


def test_without_systemd_only_what_has_a_service_is_refused_and_the_way_is_said() -> None:
    refused = plan(wsl(systemd=False), want("cuda", "container-toolkit"))
    (refusal,) = refused["refusals"]
    assert refusal["rule"] == "needs-systemd"
    assert "systemd=true" in refusal["remedy"]
    assert "wsl --shutdown" in refusal["remedy"]
    assert plan(wsl(systemd=False), want("cuda"))["ok"]
    assert plan(wsl(systemd=True), want("container-toolkit"))["ok"]


def test_cards_that_windows_does_not_show_fail_the_node_and_are_windows_to_mend() -> None:
    facts = wsl()
    facts["kernel"]["running"] = "5.15.167.4-microsoft-standard-WSL2"
    facts["pci"]["gpus"] = []
    facts["smi"] = {"rc": 255, "seconds": 0.1, "error": "GPU access blocked by the operating system", "data": None}
    made = plan(facts, want("cuda"))
    assert made["verdict"] == "fail"
    assert made["changes"] == []
    failed = check(facts, "host.windows_driver")
    assert "blocked by the operating system" in failed["reason"]
    assert "Windows" in failed["remedy"]
    assert "dxgkrnl" not in failed["reason"]
    facts["kernel"]["running"] = "6.1.21-libre-microsoft-standard-WSL2"
    failed = check(facts, "host.windows_driver")
    assert ("dxgkrnl" in failed["reason"], failed["remedy"].startswith("take kernel= out of .wslconfig")) == (
        True,
        True,
    )


def test_a_windows_without_nvidia_is_a_machine_without_one() -> None:
    facts = wsl()
    facts["pci"]["gpus"] = []
    facts["driver"] |= {"owner": "none", "libcuda": None, "nvidia_smi": None}
    facts["smi"] = None
    assert plan(facts, want("cuda"))["skipped"]
    assert check(facts, "host.windows_driver")["status"] == "skip"
    # Who has CUDA there wants its cards.
    facts["cuda"]["toolkits"] = [{"version": "11.3", "path": "/usr/local/cuda-11.3"}]
    failed = check(facts, "host.windows_driver")
    assert (failed["status"], "wsl --update" in failed["remedy"]) == ("fail", True)


def test_a_driver_for_linux_inside_wsl_is_found_with_its_names() -> None:
    facts = wsl()
    assert "host.linux_driver" not in ids(facts)
    facts["driver"]["packages"] = {"nvidia-utils-580": "580.95.05", "libnvidia-compute-580": "580.95.05"}
    failed = check(facts, "host.linux_driver")
    assert failed["status"] == "fail"
    assert "apt-get remove libnvidia-compute-580 nvidia-utils-580" in failed["remedy"]


# --- Jetson -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [True, False])
def test_a_jetson_is_no_machine_without_gpu(local: bool) -> None:
    facts = elsewhere("jetson", detail="# R36 (release), REVISION: 4.3, GCID: 1")
    facts["pci"]["gpus"] = []
    made = plan(facts, Wish(), local=local)
    assert (made["ok"], made["skipped"], made["cpu_only"]) == (True, None, False)
    assert {change["component"] for change in made["changes"]} <= {"validate"}
    assert any("JetPack 6.2" in entry["text"] for entry in made["why"])
    assert check(facts, "host.jetpack")["measured"] == "36.4.3"


# --- containers ---------------------------------------------------------------------------------------------------------


def test_what_a_container_lacks_is_its_hosts_to_mend() -> None:
    facts = elsewhere("container", detail="docker", systemd=False)
    made = plan(facts, want("cuda", "pytorch"))
    assert made["components"] == ["cuda", "frameworks", "validate"]
    assert "container's host" in check(facts, "driver.loaded")["remedy"]
    lacking = check(facts, "host.container_gpus")
    assert "--gpus all" in lacking["remedy"]
    facts["driver"]["libcuda"] = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert "host.container_gpus" not in ids(facts)


def test_a_simulated_node_is_judged_as_the_machine_that_it_plays() -> None:
    facts = elsewhere("container", detail="docker")
    facts["simulated"] = True
    assert "container's host" not in check(facts, "driver.loaded")["remedy"]
    assert "host.container_gpus" not in ids(facts)


# --- virtual GPUs, passthrough, other vendors ---------------------------------------------------------------------------


def test_a_virtual_gpu_without_driver_ends_before_any_change() -> None:
    facts = elsewhere("vm", detail="kvm")
    facts["pci"]["vgpus"] = [{"bus_id": "00000000:18:00.0", "host_driver": None}]
    made = plan(facts, want("driver", "pytorch"))
    assert not made["ok"]
    assert "host.vgpu-driver" in {row["rule"] for row in made["conflicts"]}
    assert "vGPU release" in check(facts, "driver.loaded")["remedy"]


def test_a_machine_with_another_vendors_card_is_skipped_and_the_card_is_named() -> None:
    facts = elsewhere("bare")
    facts["pci"] |= {"gpus": [], "other_gpus": [AMD]}
    made = plan(facts)
    assert "AMD Navi 31 [Radeon RX 7900 XTX] (1002:744c, 00000000:03:00.0)" in made["skipped"]
    assert made["skipped"].startswith("no NVIDIA GPU, and none is expected; nothing is set up for")
    assert "Radeon" in check(facts, "gpu.on_bus")["reason"]
    facts["pci"]["gpus"] = nodes.bare()["pci"]["gpus"]
    assert check(facts, "gpu.other")["status"] == "skip"
    facts["pci"]["gpus"] = []
    local = plan(facts, local=True)
    assert local["cpu_only"]
    assert "Radeon" in local["warnings"][0]["text"]


def test_a_card_held_for_a_virtual_machine_is_left_alone() -> None:
    facts = elsewhere("bare")
    facts["pci"] |= {"gpus": [], "reserved": [HELD]}
    made = plan(facts)
    assert "on vfio-pci" in made["skipped"]
    assert made["changes"] == []
    assert "left alone" in check(facts, "gpu.on_bus")["reason"]
    facts["pci"]["gpus"] = nodes.bare()["pci"]["gpus"][1:]
    assert check(facts, "gpu.reserved")["measured"] == 1


def test_cards_that_are_expected_and_held_for_a_machine_are_not_taken_for_broken_ones() -> None:
    facts = elsewhere("bare")
    facts["pci"] |= {"gpus": facts["pci"]["gpus"][:1], "reserved": [HELD]}
    (found,) = [each for each in judge.judge(facts, {}, {"count": 2}) if each["id"] == "gpu.on_bus"]
    assert found["status"] == "fail"
    assert "vfio-pci" in str(found["reason"])
    assert "gpuwright_gpus_expected" in str(found["remedy"])
    assert "reseat" not in str(found["remedy"])
    healthy = copy.deepcopy(facts)
    healthy["pci"]["reserved"] = []
    (gone,) = [each for each in judge.judge(healthy, {}, {"count": 2}) if each["id"] == "gpu.on_bus"]
    assert "reseat" in str(gone["remedy"])
