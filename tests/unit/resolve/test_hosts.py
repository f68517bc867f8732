"""Machines whose driver or cards are somebody else's: what is resolved for them, what is left out, and why."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import hosts
from tests.unit.plan import nodes
from tests.unit.resolve.test_observed import with_driver

Answer = Callable[..., dict[str, Any]]
Resolve = Callable[..., dict[str, Any]]
#: Any: a test changes them to what no type allows, too.
Facts = Any
Rules = dict[str, Any]

WSL_2 = "5.15.167.4-microsoft-standard-WSL2"
ORIN = (
    "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025"
)


def rules_of(answer: dict[str, Any], part: str) -> set[str]:
    return {entry["rule"] for entry in answer[part]}


def text_of(answer: dict[str, Any], part: str, rule: str) -> str:
    (text,) = [entry["text"] for entry in answer[part] if entry["rule"] == rule]
    return str(text)


def all_packages(stack: dict[str, Any]) -> list[str]:
    return [name for toolkit in stack.get("cuda", ()) for name in toolkit["packages"]]


@pytest.fixture
def wsl(facts: Facts) -> Facts:
    """Ubuntu 24.04 inside WSL 2 on a Windows with driver 582.53 and an RTX 4090."""
    facts["environment"] = {"kind": "wsl", "detail": WSL_2, "systemd": True}
    facts["os"] |= {"id": "ubuntu", "version": "24.04", "codename": "noble", "name": "Ubuntu 24.04", "glibc": "2.39"}
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3.12", "version": "3.12.3"}]
    facts["pci"]["gpus"] = [{"bus_id": "00000000:01:00.0", "vendor": "10de", "device": "2684", "class": "0302"}]
    facts["smi"] = nodes.smi(driver="582.53")
    facts["driver"] |= {"owner": "host", "libcuda": "/usr/lib/wsl/lib/libcuda.so.1"}
    return facts


@pytest.fixture
def jetson(facts: Facts) -> Facts:
    """A Jetson Orin with JetPack 6.2."""
    facts["environment"] = {"kind": "jetson", "detail": ORIN, "systemd": True}
    facts["os"] |= {"id": "ubuntu", "version": "22.04", "codename": "jammy", "arch": "aarch64", "glibc": "2.35"}
    facts["pci"]["gpus"] = []
    return facts


@pytest.fixture
def guest(facts: Facts) -> Facts:
    """A virtual machine with a virtual GPU and no driver."""
    facts["environment"] = {"kind": "vm", "detail": "kvm", "systemd": True}
    facts["pci"]["vgpus"] = [{"bus_id": "00000000:3B:00.0", "host_driver": "550.163.02"}]
    return facts


# --- WSL ----------------------------------------------------------------------------------------------------------------


def test_wsl_gets_toolkit_and_wheels_and_no_driver(wsl: Facts, answer: Answer) -> None:
    found = answer(wsl, "cuda", "pytorch")
    assert found["ok"], found
    assert "driver" not in found["stack"]
    assert all_packages(found["stack"]) == ["cuda-toolkit-13-0"]
    assert found["stack"]["frameworks"][0]["variant"] == "cu130"
    assert "R580" in text_of(found, "why", "host.windows-driver")
    assert found["warnings"] == []


def test_the_toolkit_comes_from_the_directory_without_drivers_and_drivers_are_barred(
    wsl: Facts, answer: Answer
) -> None:
    (repository,) = answer(wsl, "cuda")["stack"]["repositories"]
    assert repository["uris"] == [
        "https://developer.download.nvidia.com/compute/cuda/repos/wsl-ubuntu/x86_64/",
    ]
    barred = repository["exclude"]
    assert barred["release"] is None
    assert {"cuda", "cuda-drivers*", "nvidia-*", "libnvidia-*", "linux-modules-nvidia*"} <= set(barred["packages"])
    assert "nvidia-container-toolkit*" in barred["except"]


@pytest.mark.parametrize(
    ("system", "directory"), [("ubuntu-22.04", "wsl-ubuntu"), ("debian-12", "debian12"), ("debian-13", "debian13")]
)
def test_where_there_is_no_directory_for_wsl_it_is_the_distributions_own(
    resolve: Resolve, system: str, directory: str
) -> None:
    (repository,) = resolve("RTX 4090", system, "cuda", wsl="true")["stack"]["repositories"]
    assert f"/repos/{directory}/" in repository["uris"][0]
    assert "nvidia-*" in repository["exclude"]["packages"]


def test_where_the_verifier_rejects_the_key_it_is_the_distributions_own(resolve: Resolve) -> None:
    found = resolve("RTX 4090", "ubuntu-26.04", "cuda", windows_driver="596.36")
    assert "/repos/ubuntu2604/" in found["stack"]["repositories"][0]["uris"][0]


def test_on_arm_wsl_has_the_distributions_own(resolve: Resolve) -> None:
    (repository,) = resolve("RTX 4090", "ubuntu-24.04", "cuda", wsl="true", arch="aarch64")["stack"]["repositories"]
    assert "/repos/ubuntu2404/sbsa/" in repository["uris"][0]


def test_a_machine_with_its_own_driver_bars_nothing(resolve: Resolve) -> None:
    (repository,) = resolve("RTX 4090", "ubuntu-24.04", "cuda")["stack"]["repositories"]
    assert "/repos/ubuntu2404/" in repository["uris"][0]
    assert "exclude" not in repository


@pytest.mark.parametrize(
    ("number", "branch"),
    [
        ("582.53", "580"), ("582.42", "580"), ("581.80", "580"), ("577.00", "575"), ("573.71", "570"), ("566.36", "565"),
        ("552.44", "550"), ("539.41", "535"), ("528.49", "525"), ("591.44", "590"), ("596.36", "595"), ("472.50", "470"),
    ],
)  # fmt: skip
def test_a_windows_number_tells_its_branch(rules: Rules, number: str, branch: str) -> None:
    row = hosts.windows_branch(number, rules)
    assert row is not None
    assert row["branch"] == branch


@pytest.mark.parametrize("number", [None, "", "N/A", "391.35"])
def test_a_number_that_no_row_reaches_tells_nothing(rules: Rules, number: str | None) -> None:
    assert hosts.windows_branch(number, rules) is None


def test_the_map_of_windows_numbers_is_in_order_and_names_known_branches(rules: Rules) -> None:
    rows = rules["hosts"]["windows_drivers"]
    known = {row["branch"] for row in rules["driver_branches"]["rows"]}
    assert {row["branch"] for row in rows} <= known
    assert all(int(one["first"]) < int(other["first"]) for one, other in pairwise(rows))
    for row in rows:
        assert row["seen"] is None or hosts.windows_branch(row["seen"], rules) == row


def test_without_the_reported_version_the_number_decides(wsl: Facts, answer: Answer) -> None:
    wsl["smi"]["data"] |= {"cuda_version": None, "driver_version": "572.61"}
    found = answer(wsl, "cuda")
    assert found["stack"]["cuda"][0]["version"] == "12.8"
    assert "driver.unknown" not in rules_of(found, "warnings")


def test_an_assumed_windows_driver_means_wsl_and_is_no_unknown_branch(resolve: Resolve) -> None:
    found = resolve("RTX 4090", "ubuntu-24.04", "cuda", "pytorch", windows_driver="582.53")
    assert found["ok"], found
    assert "driver" not in found["stack"]
    assert "R580" in text_of(found, "why", "host.windows-driver")
    older = resolve("RTX 4090", "ubuntu-24.04", "cuda=13", windows_driver="566.36")
    assert not older["ok"]
    with pytest.raises(BadInput) as error:
        resolve("RTX 4090", "ubuntu-24.04", windows_driver="new")
    assert error.value.suggestions == ["windows_driver=582.53"]


def test_a_wish_for_a_driver_inside_wsl_is_left_out_and_said(wsl: Facts, answer: Answer) -> None:
    found = answer(wsl, "driver=580", "cuda")
    assert "driver" not in found["stack"]
    assert "Windows" in text_of(found, "warnings", "driver.not-ours")


def test_wsl_1_has_no_gpu(wsl: Facts, answer: Answer) -> None:
    wsl["environment"]["detail"] = "4.4.0-22621-Microsoft"
    (entry,) = answer(wsl, "cuda")["conflicts"]
    assert entry["rule"] == "host.wsl-1"
    assert "--set-version" in entry["remedy"]


def test_containers_inside_wsl_get_their_toolkit(wsl: Facts, answer: Answer) -> None:
    assert "container_toolkit" in answer(wsl, "container-toolkit")["stack"]


# --- Jetson -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "release"),
    [
        (ORIN, "36.4.3"),
        ("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic", "36.4"),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t186ref", "32.7.1"),
        ("# R36 (release)", "36"),
        ("nothing of the kind", None),
    ],
)
def test_the_release_of_a_jetsons_linux_is_read(line: str, release: str | None) -> None:
    assert hosts.l4t(line) == release


def test_a_jetson_is_named_with_its_jetpack_and_gets_nothing(jetson: Facts, answer: Answer) -> None:
    found = answer(jetson)
    assert (found["ok"], found["stack"]) == (True, {})
    assert text_of(found, "why", "host.jetson") == "a Jetson with L4T 36.4.3, JetPack 6.2: driver and CUDA are its own"


def test_a_jetson_of_an_unknown_release_is_still_one(jetson: Facts, answer: Answer) -> None:
    jetson["environment"]["detail"] = None
    jetson["os"]["version"] = "20.04"
    found = answer(jetson)
    assert found["stack"] == {}
    assert "does not tell" in text_of(found, "why", "host.jetson")


def test_what_jetpack_has_of_its_own_is_left_out_and_named(jetson: Facts, answer: Answer) -> None:
    found = answer(jetson, "cuda", "cudnn", "container-toolkit")
    assert (found["ok"], found["stack"]) == (True, {})
    text = text_of(found, "warnings", "host.jetson")
    assert "cuda, cudnn, container-toolkit left out" in text
    assert "nvidia-jetpack" in text


def test_no_server_repository_reaches_a_described_jetson(resolve: Resolve) -> None:
    found = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", "cuda", arch="aarch64")
    assert (found["ok"], found["stack"]) == (True, {})


# --- containers ---------------------------------------------------------------------------------------------------------


def test_a_container_has_the_driver_of_its_host(facts: Facts, answer: Answer) -> None:
    facts["environment"] = {"kind": "container", "detail": "docker", "systemd": False}
    found = answer(with_driver(facts, "580.95.05", owner="host", source=None), "cuda", "pytorch", "container-toolkit")
    assert found["ok"], found
    assert set(found["stack"]) == {"cuda", "frameworks", "repositories"}
    assert found["stack"]["cuda"][0]["version"] == "13.0"
    assert "container-toolkit left out" in text_of(found, "warnings", "host.container")
    assert "nvidia-*" in found["stack"]["repositories"][0]["exclude"]["packages"]


def test_a_driver_older_than_every_branch_that_is_known_is_named(facts: Facts, answer: Answer) -> None:
    facts["environment"] = {"kind": "container", "detail": "docker", "systemd": False}
    found = answer(with_driver(facts, "384.183", owner="host", source=None), "cuda")
    assert "the driver is 384.183; branch 390 is the oldest" in text_of(found, "conflicts", "driver.too-old")


# --- virtual GPUs -------------------------------------------------------------------------------------------------------


def test_a_virtual_gpu_without_guest_driver_is_refused_with_what_is_needed(guest: Facts, answer: Answer) -> None:
    found = answer(guest, "driver", "pytorch")
    assert rules_of(found, "conflicts") >= {"host.vgpu-driver"}
    remedy = next(entry["remedy"] for entry in found["conflicts"] if entry["rule"] == "host.vgpu-driver")
    assert "550.163.02" in remedy
    assert "licen" in remedy


def test_a_guest_driver_stays_and_decides_what_the_rest_may_be(guest: Facts, answer: Answer) -> None:
    found = answer(with_driver(guest, "550.163.01", owner="runfile", source="runfile"), "driver=580", "pytorch")
    assert found["ok"], found
    assert "driver" not in found["stack"]
    assert found["stack"]["frameworks"][0]["variant"] == "cu126"
    assert "left as it is" in text_of(found, "why", "driver.not-ours")
    assert "vGPU" in text_of(found, "warnings", "driver.not-ours")


@pytest.mark.parametrize(
    ("gpu", "virtual"),
    [
        ({"name": "GRID P4-1Q", "virtualization_mode": "VGPU"}, True),
        ({"name": "NVIDIA A100-1-5C"}, True),
        ({"name": "GRID M60-1B4"}, True),
        ({"name": "NVIDIA H100L-1-12CME"}, True),
        ({"name": "NVIDIA A100-SXM4-80GB", "virtualization_mode": "None"}, False),
        ({"name": "Tesla P100-PCIE-16GB", "virtualization_mode": "Pass-Through"}, False),
        ({"name": "GRID K520"}, False),
    ],
)
def test_nvidia_smi_tells_a_virtual_gpu_too(facts: Facts, gpu: dict[str, Any], virtual: bool) -> None:
    facts["smi"] = nodes.smi(gpu)
    assert hosts.from_facts(facts).vgpu is virtual


# --- passthrough and other vendors --------------------------------------------------------------------------------------


def test_cards_held_for_virtual_machines_and_other_vendors_are_named_beside_ours(facts: Facts, answer: Answer) -> None:
    facts["pci"]["reserved"] = [
        {"vendor": "10de", "device": "2684", "bus_id": "00000000:5E:00.0", "name": None, "driver": "vfio-pci"}
    ]
    facts["pci"]["other_gpus"] = [{"vendor": "1002", "device": "744c", "bus_id": "00000000:03:00.0", "name": "Navi 31"}]
    found = answer(facts)
    assert found["stack"]["driver"]["branch"] == "580"
    assert "vfio-pci" in text_of(found, "warnings", "host.reserved")
    assert "AMD Navi 31 (1002:744c" in text_of(found, "why", "host.other-gpus")


def test_the_vgpu_manager_is_not_replaced(facts: Facts, answer: Answer) -> None:
    facts["pci"]["virtual_functions"] = 16
    refused = answer(facts, "driver=595")
    assert "host.vgpu-manager" in rules_of(refused, "conflicts")
    found = answer(with_driver(facts, "570.172.07", source=None), "driver=595")
    assert found["ok"], found
    assert "driver" not in found["stack"]
    assert rules_of(found, "warnings") >= {"host.vgpu-manager", "driver.not-ours"}


def test_every_sentence_names_where_it_was_read(wsl: Facts, answer: Answer) -> None:
    found = answer(wsl, "driver", "cuda")
    told = [entry for entry in (*found["why"], *found["warnings"]) if entry["rule"].startswith(("host.", "driver.not"))]
    assert len(told) == 3
    assert all(entry["source"].startswith("compat/hosts.yaml: ") for entry in told)
