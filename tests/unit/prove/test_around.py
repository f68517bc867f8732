"""What is around a driver, and how containers get to the cards: each fault has its check, with its cause and a remedy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_wishes, smi_judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from tests.unit.plan import nodes

CARD = "/dev/nvidia0"
OWN = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
TOOLKIT: Any = {"container_toolkit": {"version_spec": ">=1.19.1", "packages": [], "engine": {"name": "docker"}}}
ACTIVE = {"services": {"docker.service": {"active": "active", "enabled": "enabled"}}}
DOCKER = {"docker": {"installed": True, "active": True, "daemon_json": {"runtimes": {"nvidia": {}}}}}


def library(path: str, version: str | None, file: str | None = None) -> dict[str, Any]:
    return {"path": path, "file": file or path, "version": version}


def node(path: str, mode: int = 0o666, group: int = 0, *, device: bool = True) -> dict[str, Any]:
    return {"path": path, "mode": mode, "group": group, "device": device}


def disk(mount: str, free: int = 10**11, **changes: Any) -> dict[str, Any]:
    row = {
        "mount": mount,
        "size_bytes": 10**12,
        "class": "nvme",
        "read_only": False,
    }
    return {**row, "free_bytes": free, "free_files": 10**6, "places": [], **changes}


def found(facts: Any, name: str, stack: Any = None, **changes: Any) -> list[Any]:
    return [check for check in judge.judge(nodes.merged(facts, changes), stack) if check["id"] == name]


def pair(facts: Any, **peers: Any) -> Any:
    """Two cards of data centres."""
    (card,) = facts["pci"]["gpus"]
    other = {**card, "bus_id": "00000000:2A:00.0"}
    return nodes.merged(facts, {"pci": {"gpus": [card, other], "peers": {"redirecting": [], "iommu": [], **peers}}})


@pytest.fixture
def whole(facts: Any) -> Any:
    """A node of which all of this was seen, and is right."""
    driver = facts["driver"]["user_version"]
    (card,) = facts["smi"]["data"]["gpus"]
    return nodes.merged(
        facts,
        {
            **ACTIVE,
            "driver": {"loader": [library(OWN, driver)], "nodes": [node("/dev/nvidiactl"), node(CARD)]},
            "smi": {"data": {"gpus": [{**card, "minor_number": 0}]}},
            "dkms": {"kernels": [facts["kernel"]["next"]]},
            "kernel": {"compiler": {"built_with": "gcc 14.2", "available": "14.2.0"}},
            "containers": {**DOCKER, "runtime": {"no_cgroups": False, "mode": "auto"}},
            "names": {"servers": ["192.0.2.1"], "hosts": ["localhost"], "problem": None},
            "disks": [disk("/"), disk("/home"), disk("/srv", places=["/var/lib/docker"])],
        },
    )


@pytest.mark.parametrize(
    "name",
    [
        "driver.libcuda",
        "driver.nodes",
        "driver.compiler",
        "container.runtime",
        "container.engine",
        "host.names",
        "disk.space",
    ],
)
def test_all_is_right_on_a_good_node(whole: Any, name: str) -> None:
    rows = found(whole, name, TOOLKIT)
    assert rows
    assert {check["status"] for check in rows} == {"pass"}


FAULTS: list[tuple[str, str, dict[str, Any], str, str]] = [
    (
        "driver.libcuda",
        "fail",
        {"driver": {"loader": [library("/usr/local/cuda/lib64/stubs/libcuda.so.1", None), library(OWN, "580.95.05")]}},
        "programs load /usr/local/cuda/lib64/stubs/libcuda.so.1 before the driver's library: a stub",
        "LD_LIBRARY_PATH",
    ),
    (
        "driver.libcuda",
        "fail",
        {"driver": {"loader": [library("/opt/old/libcuda.so.1", "470.57.02", "/opt/old/libcuda.so.470.57.02")]}},
        "it is of 470.57.02, and the driver is",
        "ldconfig",
    ),
    ("driver.nodes", "fail", {"driver": {"nodes": [node("/dev/nvidiactl")]}}, f"there is no {CARD}", "nvidia-modprobe"),
    ("driver.nodes", "fail", {"driver": {"nodes": []}}, f"there is no /dev/nvidiactl, {CARD}", "nvidia-persistenced"),
    (
        "driver.nodes",
        "fail",
        {"driver": {"nodes": [node("/dev/nvidiactl"), node(CARD, device=False)]}},
        f"{CARD} is no device",
        "remove it",
    ),
    (
        "driver.nodes",
        "warn",
        {"driver": {"nodes": [node("/dev/nvidiactl"), node(CARD, 0o600)]}},
        f"only root may open {CARD}",
        "NVreg_DeviceFileMode",
    ),
    (
        "driver.compiler",
        "warn",
        {"kernel": {"compiler": {"built_with": "gcc 14.2", "available": "12.3.0"}}},
        "was built with gcc 14.2, and the compiler here is gcc 12.3.0",
        "gcc-14",
    ),
    (
        "container.runtime",
        "fail",
        {"containers": {"runtime": {"no_cgroups": True, "mode": "cdi"}}},
        'Permissions); /etc/nvidia-container-runtime/config.toml says mode = "cdi": NVIDIA\'s hook refuses docker run --gpus',
        "--set nvidia-container-cli.no-cgroups=false --set nvidia-container-runtime.mode=auto",
    ),
    (
        "container.runtime",
        "fail",
        {"containers": {"runtime": {"no_cgroups": False, "mode": "cdi"}}},
        'mode = "cdi"',
        "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto",
    ),
    (
        "container.engine",
        "fail",
        {"services": {"docker.service": {"active": "failed", "enabled": "enabled"}}},
        "Docker does not run (failed)",
        "journalctl -u docker.service",
    ),
    (
        "container.engine",
        "warn",
        {"services": {"docker.service": {"active": "inactive", "enabled": "enabled"}}},
        "Docker does not run (inactive)",
        "systemctl start docker.service",
    ),
    (
        "host.names",
        "warn",
        {"names": {"servers": [], "hosts": [], "problem": "/etc/resolv.conf names no server"}},
        "nothing tells where mirror.example is (DNS): /etc/resolv.conf names no server",
        "nameserver",
    ),
    ("disk.space", "warn", {"disks": [disk("/home", 10**6)]}, "/home is nearly full", "free space"),
    ("disk.space", "warn", {"disks": [disk("/var", 10**8)]}, "/var is nearly full", "free space"),
    (
        "disk.space",
        "warn",
        {"disks": [disk("/srv", 10**8, places=["/var/lib/docker"])]},
        "/srv, which holds /var/lib/docker, is nearly full",
        "free space",
    ),
    ("disk.space", "warn", {"disks": [disk("/var", free_files=3)]}, "/var takes no more files", "du --inodes"),
]


@pytest.mark.parametrize(("name", "status", "changes", "reason", "remedy"), FAULTS)
def test_each_fault_is_found_by_its_check(
    whole: Any, name: str, status: str, changes: dict[str, Any], reason: str, remedy: str
) -> None:
    (check,) = [row for row in found(whole, name, TOOLKIT, **changes) if row["status"] != "pass"]
    assert check["status"] == status
    assert reason in check["reason"]
    assert remedy in check["remedy"]


HARMLESS: list[tuple[str, dict[str, Any]]] = [
    # A site lets a group of its own to the cards.
    ("driver.nodes", {"driver": {"nodes": [node("/dev/nvidiactl", 0o660, 44), node(CARD, 0o660, 44)]}}),
    # A file of the name of a library alone tells no version, as in WSL.
    ("driver.libcuda", {"driver": {"loader": [library("/usr/lib/wsl/lib/libcuda.so.1", None)]}}),
    # A newer compiler than the kernel's builds, and so does one of a kernel that was built with clang.
    ("driver.compiler", {"kernel": {"compiler": {"built_with": "gcc 12.2", "available": "14.2.0"}}}),
    ("driver.compiler", {"kernel": {"compiler": {"built_with": "clang 18.1", "available": None}}}),
    # Without DKMS nothing is built.
    (
        "driver.compiler",
        {"dkms": {"kernels": []}, "kernel": {"compiler": {"built_with": "gcc 14.2", "available": None}}},
    ),
    # A machine behind an air gap knows its mirror by name, or by its address.
    (
        "host.names",
        {"names": {"servers": [], "hosts": ["mirror.example"], "problem": "/etc/resolv.conf names no server"}},
    ),
    # Data sets may fill the disk that is made for them, and the space of a server is its own matter.
    ("disk.space", {"disks": [disk("/"), disk("/data", 10**6)]}),
    ("disk.space", {"disks": [disk("/"), {**disk("/home"), "free_bytes": None, "class": "network"}]}),
    # Images that users cannot write.
    ("disk.read_only", {"disks": [disk("/"), disk("/lib/modules", read_only=True)]}),
]


@pytest.mark.parametrize(("name", "changes"), HARMLESS)
def test_what_is_like_a_fault_and_is_none_is_not_told(whole: Any, name: str, changes: dict[str, Any]) -> None:
    assert {check["status"] for check in found(whole, name, TOOLKIT, **changes)} <= {"pass", "skip"}


@pytest.mark.parametrize(("makes", "status"), [(False, "fail"), (True, "pass"), (None, "pass")])
def test_unified_memory_that_is_not_loaded_is_told_where_nothing_loads_it_for_users(
    whole: Any, makes: bool | None, status: str
) -> None:
    whole["kernel"]["loaded"] = {"nvidia": {"version": whole["driver"]["loaded_version"]}}
    (check,) = found(whole, "driver.nodes", driver={} if makes is None else {"makes_nodes": makes})
    assert check["status"] == status
    assert makes is not False or ("nvidia-uvm" in check["reason"] and "modprobe nvidia-uvm" in check["remedy"])


@pytest.mark.parametrize(
    "how", [{"engine": {"name": "podman"}}, {"engine": {"name": "docker"}, "rootless": {"users": ["a"]}}]
)
def test_nodes_for_a_group_alone_are_closed_to_containers_without_root(whole: Any, how: dict[str, Any]) -> None:
    stack: Any = {"container_toolkit": {**TOOLKIT["container_toolkit"], **how}}
    closed = {"nodes": [node("/dev/nvidiactl"), node(CARD, 0o660, 44)]}
    (check,) = found(whole, "container.device_nodes", stack, driver=closed)
    assert check["status"] == "warn"
    assert f"{CARD} (0660, group 44)" in check["reason"]
    assert "keep-groups" in check["remedy"]
    assert [row["status"] for row in found(whole, "container.device_nodes", stack)] == ["pass"]
    assert found(whole, "container.device_nodes", TOOLKIT, driver=closed) == []


def test_the_compiler_is_told_where_no_kernel_has_a_module_and_a_build_failed(whole: Any) -> None:
    old = {"kernel": {"compiler": {"built_with": "gcc 14.2", "available": "12.3.0"}}}
    assert found(whole, "driver.compiler", dkms={"kernels": [], "failed": []}, **old) == []
    build = {
        "module": "nvidia",
        "version": "580.95.05",
        "kernel": whole["kernel"]["next"],
        "log": "/make.log",
        "errors": [],
        "end": [],
        "transient": False,
        "compiler": True,
        "left_out": False,
    }
    (check,) = found(whole, "driver.compiler", dkms={"kernels": [], "failed": [build]}, **old)
    assert "gcc-14" in check["remedy"]


@pytest.mark.parametrize(
    ("lost", "version", "status"),
    [
        ("/sbin/ldconfig.real", "1.14.6", "fail"),
        ("/sbin/ldconfig.real", "1.15.0", "pass"),
        ("/opt/ldconfig", "1.20.0", "fail"),
    ],
)
def test_an_ldconfig_that_is_not_there_keeps_containers_from_the_cards_unless_the_toolkit_finds_it(
    whole: Any, lost: str, version: str, status: str
) -> None:
    seen = {"runtime": {"lost_ldconfig": lost}, "toolkit": {"version": version}}
    (check,) = found(whole, "container.runtime", TOOLKIT, containers=seen)
    assert check["status"] == status


@pytest.mark.parametrize(("default", "status"), [("nvidia", "fail"), ("runc", "warn")])
def test_a_runtime_of_docker_without_its_program_is_told(whole: Any, default: str, status: str) -> None:
    docker = {"daemon_json": {"default-runtime": default}, "lost_runtimes": ["nvidia"]}
    (check,) = found(whole, "container.daemon_json", TOOLKIT, containers={"docker": docker})
    assert check["status"] == status
    assert "daemon.json names the runtime nvidia, whose program is not there" in check["reason"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "warn"),
        # A device plugin that serves names the runtime, or its pods get the cards another way.
        ({"device_plugin": True}, "pass"),
        ({"config": {"cdi": True}}, "pass"),
        ({"config": {"default_runtime": "nvidia"}}, "pass"),
        ({"kubelet_cgroups": None, "device_plugin": None}, "pass"),
    ],
)
def test_a_default_runtime_that_is_not_nvidias_is_told_where_nothing_tells_that_pods_get_cards(
    whole: Any, changes: Any, status: str
) -> None:
    toolkit = {"container_toolkit": {**TOOLKIT["container_toolkit"], "engine": {"name": "containerd"}}}
    config: Any = {
        "runtime": "/usr/bin/nvidia-container-runtime",
        "default_runtime": "runc",
        "cdi": None,
        "imports": [],
    }
    node = {"installed": True, "active": True, "cri": True, "kubelet_cgroups": "systemd", "device_plugin": False}
    seen = nodes.merged({**node, "config": {**config, "systemd_cgroup": True}}, changes)
    (check,) = found(whole, "container.containerd", toolkit, containers={"containerd": seen})
    assert check["status"] == status
    if status == "warn":
        assert "the default runtime of containerd is runc" in check["reason"]
        assert all(way in check["remedy"] for way in ("--set-as-default", "runtimeClassName: nvidia"))


def test_containers_without_root_may_want_what_takes_the_cards_from_those_of_root(whole: Any) -> None:
    rootless = {"containers": {"docker": {"active": False}, "runtime": {"no_cgroups": True, "mode": "auto"}}}
    (check,) = found(whole, "container.runtime", None, **rootless)
    assert check["status"] == "skip"
    assert "no-cgroups = true, as containers without root may want it" in check["reason"]


def test_bridges_and_an_iommu_between_cards_are_told_together(whole: Any) -> None:
    (check,) = found(pair(whole, redirecting=["0000:00:01.0"], iommu=["DMA-FQ"]), "pcie.peers")
    assert check["status"] == "warn"
    assert re.search(
        r"\(P2P, NCCL\): bridges .*ACS: 0000:00:01.0.*; the IOMMU translates it \(DMA-FQ\)", check["reason"]
    )
    assert re.search(r"ACS off in the firmware.*iommu=pt", check["remedy"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pci": {"peers": {"iommu": ["identity"]}}},
        # NVLink carries what cards say to each other.
        {"pci": {"peers": {"iommu": ["DMA-FQ"]}, "nvswitches": [{"bus_id": "00000000:05:00.0", "device": "22a3"}]}},
        # Virtual machines that get cards need both.
        {"environment": {"kind": "vm"}, "pci": {"peers": {"redirecting": ["0000:00:01.0"]}}},
    ],
)
def test_what_is_between_cards_and_harms_nobody_is_not_told(whole: Any, changes: dict[str, Any]) -> None:
    seen = found(pair(whole), "pcie.peers", **changes)
    assert {check["status"] for check in seen} <= {"pass"}


def test_a_host_of_virtual_machines_keeps_its_bridges_as_they_are(whole: Any) -> None:
    held = [{"vendor": "10de", "device": "2204", "bus_id": "00000000:05:00.0", "name": None, "driver": "vfio-pci"}]
    assert found(pair(whole, redirecting=["0000:00:01.0"]), "pcie.peers", pci={"reserved": held}) == []


def test_cards_of_a_desk_do_not_speak_over_the_bus(whole: Any) -> None:
    seen = pair(whole, redirecting=["0000:00:01.0"], iommu=["DMA"])
    for card in seen["pci"]["gpus"]:
        card["class"] = "0300"
    assert found(seen, "pcie.peers") == []


def test_an_old_look_has_nothing_to_say(facts: Any) -> None:
    """Facts of an earlier version lack all of it."""
    told = {check["id"]: check["status"] for check in judge.judge(facts, TOOLKIT)}
    assert told["driver.libcuda"] == "skip"
    assert "host.names" not in told
    assert checks.verdict(judge.judge(facts)) == "pass"


# What programs left, and what somebody set


@pytest.mark.parametrize(
    ("used", "changes", "status"),
    [
        (78_000, {}, "warn"),
        (900, {}, "pass"),
        (78_000, {"processes": [{"pid": 7, "name": "python3", "type": "C", "used_mib": 70_000}]}, None),
        (78_000, {"utilization_percent": 100}, "warn"),
        (40_000, {"name": "NVIDIA GH200 480GB"}, None),
    ],
)
def test_memory_that_no_program_holds_is_told(facts: Any, used: int, changes: Any, status: str | None) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    rests = {
        **card,
        "processes": [],
        "utilization_percent": 0,
        "memory_used_mib": used,
        "memory_total_mib": 81_559,
        **changes,
    }
    checks_ = found(facts, "gpu.memory_held", smi={"data": {"gpus": [rests]}})
    assert [check["status"] for check in checks_] == ([status] if status else [])
    assert all("fuser" in check["remedy"] for check in checks_ if status == "warn")
    assert all(("100 % busy" in check["reason"]) == bool(changes) for check in checks_ if status == "warn")


@pytest.mark.parametrize(
    ("now", "throttle", "draws", "status"),
    [
        (345, [], 250, "warn"),
        (1_700, [], 600, "pass"),
        (345, ["sw_power_cap"], 250, None),
        (345, None, 250, None),
        (345, [], 70, None),  # at rest by then
    ],
)
def test_clocks_that_somebody_set_are_told_of_a_card_at_work(
    facts: Any, now: int, throttle: Any, draws: int, status: str | None
) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    works: Any = {**card, "performance_state": "P0", "utilization_percent": 99, "throttle": throttle}
    works |= {"power_draw_w": draws, "power_limit_w": 700}
    works["clocks"] = {**card["clocks"], "sm_mhz": now, "sm_max_mhz": 1_980}
    told = [check["status"] for check in found(facts, "gpu.clocks", smi={"data": {"gpus": [works]}})]
    assert told == ([status] if status else [])
    # Of clocks that are wished (gpu_settings_cards) nobody is warned.
    wished = smi_judge.judge_gpu(works, card_wishes._of_card({"clocks": [210, 345]}))
    assert not [check for check in wished if check["id"] == "gpu.clocks"]


@pytest.mark.parametrize(
    ("state", "use", "throttle", "status"),
    [
        ("P8", 99, ["applications_clocks_setting"], "warn"),
        ("P2", 99, ["applications_clocks_setting"], "warn"),
        ("P8", 40, ["applications_clocks_setting"], None),
        ("P8", 99, [], None),  # it was asked while it woke up
        ("P8", 99, ["applications_clocks_setting", "sw_power_cap"], None),
    ],
)
def test_a_card_that_says_that_set_clocks_hold_it_is_told_in_any_state(
    facts: Any, state: str, use: int, throttle: Any, status: str | None
) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    works: Any = {**card, "performance_state": state, "utilization_percent": use, "throttle": throttle}
    works |= {"power_draw_w": 40, "power_limit_w": 700}
    works["clocks"] = {**card["clocks"], "sm_mhz": 324, "sm_max_mhz": 1_980}
    told = [check["status"] for check in found(facts, "gpu.clocks", smi={"data": {"gpus": [works]}})]
    assert told == ([status] if status else [])


@pytest.mark.parametrize(
    ("now", "usual", "told"),
    [
        ((1_095, 2_619), (1_980, 2_619), "1095 of 1980 MHz (multiprocessors)"),
        ((1_980, 1_593), (1_980, 2_619), "1593 of 2619 MHz (memory)"),
        ((1_980, 2_619), (1_980, 2_619), None),
        ((1_980, 2_619), (1_755, 2_619), None),  # set higher
        ((None, None), (1_980, 2_619), None),
        ((1_095, 2_619), (None, None), None),
    ],
)
def test_application_clocks_below_the_default_ones_are_told_of_a_card_at_rest_too(
    facts: Any, now: Any, usual: Any, told: str | None
) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    clocks = dict(
        zip(
            ("application_sm_mhz", "application_memory_mhz", "default_sm_mhz", "default_memory_mhz"),
            now + usual,
            strict=True,
        )
    )
    left: Any = {**card, "clocks": {**card["clocks"], **clocks}}
    warned = found(facts, "gpu.clocks", smi={"data": {"gpus": [left]}})
    assert [(check["status"], told in check["reason"], "-rac" in check["remedy"]) for check in warned] == (
        [("warn", True, True)] if told else []
    )
    wished = smi_judge.judge_gpu(left, card_wishes._of_card({"application_clocks": [2619, 1095]}))
    assert not [check for check in wished if check["id"] == "gpu.clocks"]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"active": "failed", "enabled": "enabled"}, "warn"),
        ({"active": "failed", "enabled": "static"}, "warn"),
        ({"active": "failed", "enabled": "disabled"}, "pass"),
        ({"active": "inactive", "enabled": "enabled"}, "pass"),
        ({"active": "active", "enabled": "enabled"}, "pass"),
    ],
)
def test_a_unit_for_the_cards_that_failed_is_told(whole: Any, state: Any, status: str) -> None:
    (check,) = found(whole, "driver.units", services={"nvidia-persistenced.service": state})
    assert check["status"] == status
    if status == "warn":
        assert "nvidia-persistenced.service failed" in check["reason"]
        assert "systemctl status nvidia-persistenced.service says why; where its journal has no user" in check["remedy"]


def test_a_unit_without_a_known_reason_and_services_that_are_not_seen(whole: Any) -> None:
    failed = {"active": "failed", "enabled": "enabled"}
    (check,) = found(whole, "driver.units", services={"gpuwright-mig.service": failed})
    assert check["remedy"].startswith("systemctl status gpuwright-mig.service says why; then sudo systemctl restart")
    whole["services"] = {}
    (check,) = found(whole, "driver.units", unknown={"services": "systemd does not run here"})
    assert (check["status"], check["reason"]) == ("skip", "systemd does not run here")


_PACKAGED = {"version": "11.5.1", "path": "/usr/lib/cuda"}
_LOCAL = {"version": "12.4.1", "path": "/usr/local/cuda-12.4"}


@pytest.mark.parametrize(
    ("value", "cards", "status", "shown"),
    [
        ("2", 1, "warn", "0 of 1 card"),
        ("", 1, "warn", "0 of 1 card"),
        ("-1", 2, "warn", "0 of 2 cards"),
        ("0,7,1", 2, "warn", "1 of 2 cards"),
        ("GPU-other", 1, "warn", "0 of 1 card"),
        ("0, 1", 2, "pass", ""),
        ("1", 2, "pass", ""),
        ("GPU-{uuid}", 1, "pass", ""),
        ("MIG-GPU-8e/1/0", 1, "pass", ""),
        (None, 1, None, ""),
        ("2", 0, None, ""),
    ],
)
def test_cards_that_cuda_does_not_show_by_the_variable_of_every_login_are_told(
    facts: Any, value: str | None, cards: int, status: str | None, shown: str
) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    said = None if value is None else value.replace("GPU-{uuid}", str(card["uuid"])[:12])
    there = [{**card, "index": number} for number in range(cards)]
    cuda = {} if said is None else {"visible": [{"file": "/etc/environment", "value": said}]}
    checks_ = found(facts, "cuda.visible", cuda=cuda, smi={"data": {"gpus": there}})
    assert [check["status"] for check in checks_] == ([status] if status else [])
    assert all(f"{shown}: /etc/environment sets" in check["reason"] for check in checks_ if status == "warn")


@pytest.mark.parametrize(
    ("toolkits", "on_path", "status"),
    [
        ([_PACKAGED, _LOCAL], None, "warn"),
        ([_PACKAGED, _LOCAL], ["/etc/profile.d/gpuwright-cuda.sh"], "pass"),
        ([_PACKAGED, {**_LOCAL, "version": "11.5.1"}], None, "pass"),
        ([_PACKAGED], None, None),
        ([_LOCAL], None, None),
    ],
)
def test_a_toolkit_of_the_distribution_in_front_of_nvidias_is_told(
    facts: Any, toolkits: Any, on_path: Any, status: str | None
) -> None:
    cuda = {"toolkits": toolkits, **({"on_path": on_path} if on_path else {})}
    told = found(facts, "cuda.path", cuda=cuda)
    assert [check["status"] for check in told] == ([status] if status else [])
    if status == "warn":
        assert "11.5.1" in told[0]["reason"]
        assert "12.4.1 in /usr/local/cuda-12.4," in told[0]["reason"]


def test_a_board_that_tells_no_limit_of_power_is_judged_by_its_use_and_may_be_held_low(facts: Any) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    works: Any = {**card, "performance_state": "P0", "utilization_percent": 96, "throttle": [], "power_limit_w": None}
    works["clocks"] = {**card["clocks"], "sm_mhz": 507, "sm_max_mhz": 3_003}
    (check,) = found(facts, "gpu.clocks", smi={"data": {"gpus": [works]}})
    assert (check["status"], "unplug" in check["remedy"]) == ("warn", True)
    (check,) = found(facts, "gpu.clocks", smi={"data": {"gpus": [{**works, "power_limit_w": 50, "power_draw_w": 14}]}})
    assert (check["status"], "unplug" in check["remedy"]) == ("warn", False)


@pytest.mark.parametrize(
    ("kind", "switches", "outside"),
    [("vm", [], True), ("vm", [{"bus_id": "00000000:07:00.0", "device": "22a3"}], False), ("bare", [], False)],
)
def test_the_fabric_of_a_guest_is_its_hosts(facts: Any, kind: str, switches: list[Any], outside: bool) -> None:
    (card,) = facts["smi"]["data"]["gpus"]
    waits = {**card, "fabric": {**card["fabric"], "state": "In Progress", "status": None}}
    changes: Any = {"environment": {"kind": kind, "detail": "kvm"}, "pci": {"nvswitches": switches}}
    (check,) = found(facts, "fabric.state", smi={"data": {"gpus": [waits]}}, **changes)
    assert (check["status"], "on its host" in check["remedy"]) == ("fail", outside)


def test_a_module_that_no_list_names_is_there_and_needs_no_build(facts: Any) -> None:
    path = f"/lib/modules/{facts['kernel']['next']}/extra/nvidia.ko.xz"
    gone = nodes.merged(facts, {"driver": {"loaded_version": None}, "kernel": {"unlisted": path}})
    gone["kernel"].update({"loaded": {}, "available": {}})
    for name in ("driver.loaded", "driver.next_kernel"):
        (check,) = found(gone, name)
        assert (path in check["reason"], check["remedy"].startswith("depmod -a ")) == (True, True)


@pytest.mark.parametrize(
    ("lost", "opens"),
    [
        ("Unable to determine the device handle for GPU 0000:02:01.0: Unknown Error", "reseat"),
        ("Unable to determine the device handle for GPU 0000:02:01.0: GPU is lost.", "check seating"),
    ],
)
@pytest.mark.parametrize(("kind", "opened"), [("vm", False), ("bare", True)])
def test_nobody_opens_the_case_of_a_virtual_machine(facts: Any, kind: str, opened: bool, lost: str, opens: str) -> None:
    changes: Any = {"environment": {"kind": kind, "detail": "kvm"}}
    (check,) = found(facts, "smi.runs", smi={"rc": 255, "error": lost, "data": None}, **changes)
    assert (check["status"], opens in check["remedy"], "on its host" in check["remedy"]) == (
        "fail",
        opened,
        not opened,
    )


@pytest.mark.parametrize(("headers", "words"), [([], "installs its headers and builds"), (["next"], "which builds")])
def test_headers_that_are_there_are_not_installed_again(facts: Any, headers: list[str], words: str) -> None:
    kernel: Any = {"loaded": {}, "available": {}, "headers": [facts["kernel"]["next"] for _each in headers]}
    gone = nodes.merged(facts, {"driver": {"loaded_version": None}})
    gone["kernel"].update(kernel)
    for name in ("driver.loaded", "driver.next_kernel"):
        (check,) = found(gone, name)
        assert words in check["remedy"]


# Engines, their toolkit, and what keeps containers from the cards


@pytest.mark.parametrize(
    ("written", "version", "reason", "helps"),
    [
        ({"hosts": ["tcp://0.0.0.0:2375"]}, "26.1.3", "names hosts", "take hosts out of it"),
        ({"graph": "/data"}, "26.1.3", "has graph", "data-root"),
        ({"graph": "/data"}, None, "has graph", "data-root"),
        ({"cluster-store": "etcd://x"}, "26.1.3", "has cluster-store", "take it out"),
        ({"storage-driver": "devicemapper"}, "26.1.3", "storage driver devicemapper", "overlay2"),
        ({"storage-driver": "overlay"}, "24.0.7", "storage driver overlay,", "overlay2"),
        # Its kernel may be without it, too.
        ({"storage-driver": "aufs"}, "20.10.24", "storage driver aufs", "overlay2"),
        # That is not why.
        ({"graph": "/data", "storage-driver": "overlay"}, "20.10.24", "(failed)", "journalctl"),
        ({"storage-driver": "overlay2"}, "26.1.3", "(failed)", "journalctl"),
        ({"storage-driver": ["aufs"]}, "26.1.3", "(failed)", "journalctl"),
        ({}, "26.1.3", "Docker does not run (failed)", "journalctl"),
    ],
)
def test_an_engine_that_failed_is_told_whoever_wishes_it(
    facts: Any, written: Any, version: str | None, reason: str, helps: str
) -> None:
    failed = {"services": {"docker.service": {"active": "failed", "enabled": "enabled"}}}
    docker = {"docker": {"installed": True, "active": False, "version": version, "daemon_json": written}}
    (check,) = found(facts, "container.engine", None, containers=docker, **failed)
    assert (check["status"], reason in check["reason"], helps in check["remedy"]) == ("fail", True, True)
    assert ("daemon.json" in check["reason"]) == (helps != "journalctl")


def test_packages_of_the_toolkit_are_of_one_version(facts: Any) -> None:
    versions = {"libnvidia-container1": "1.17.8-1", "nvidia-container-toolkit": "1.20.0-1"}
    (check,) = found(facts, "container.toolkit", None, packages={"installed": versions})
    assert (check["status"], "1.17.8" in check["reason"], "1.20.0" in check["reason"]) == ("warn", True, True)


@pytest.mark.parametrize(("denied", "status"), [(True, "warn"), (False, "pass"), (None, None)])
def test_selinux_that_keeps_containers_from_the_cards_is_told(
    facts: Any, denied: bool | None, status: str | None
) -> None:
    seen = {"podman": {"version": "5.6.0"}, "docker": {"installed": False}}
    known = {} if denied is None else {"devices_denied": denied}
    told = [check["status"] for check in found(facts, "container.selinux", None, containers={**seen, **known})]
    assert told == ([status] if status else [])


def test_a_mode_that_nvidias_runtime_does_not_know_is_told(facts: Any) -> None:
    (check,) = found(facts, "container.runtime", None, containers={"runtime": {"no_cgroups": False, "mode": "crio"}})
    assert (check["status"], 'mode = "crio"' in check["reason"]) == ("fail", True)


_RUNTIME: Any = {"no_cgroups": False, "mode": "auto"}
_RUNS, _RESTS = {"docker": {"active": True}}, {"docker": {"active": False}, "rootless": {"docker": ["mia"]}}
_GUEST = {"kind": "container", "detail": "lxc"}


@pytest.mark.parametrize(
    ("runtime", "engines", "environment", "status", "words"),
    [
        ({}, _RESTS, {}, "warn", r"leaves no-cgroups off, and Docker runs without root here \(mia\)"),
        ({"no_cgroups": True}, _RESTS, {}, "pass", ""),
        # By CDI nobody writes them.
        ({"mode": "jit-cdi"}, _RESTS, {}, "pass", ""),
        # Where root's Docker runs too, it is that one's.
        ({}, {**_RESTS, **_RUNS}, {}, "pass", ""),
        ({"no_cgroups": True}, {**_RESTS, **_RUNS}, {}, "fail", "no-cgroups = true: containers of root"),
        ({}, _RUNS, _GUEST, "warn", "a container that is not privileged"),
        ({}, _RUNS, {**_GUEST, "user_namespace": True}, "warn", "a container that is not privileged"),
        ({"no_cgroups": True}, _RUNS, {**_GUEST, "user_namespace": True}, "pass", ""),
        ({}, _RUNS, {**_GUEST, "user_namespace": False}, "pass", ""),
        ({"no_cgroups": True}, _RUNS, {**_GUEST, "user_namespace": False}, "fail", "no-cgroups = true"),
    ],
)
def test_rules_of_devices_are_left_alone_where_nobody_may_write_them(
    whole: Any, runtime: Any, engines: Any, environment: Any, status: str, words: str
) -> None:
    seen = {"containers": {**engines, "runtime": {**_RUNTIME, **runtime}}, "environment": environment}
    (check,) = found(whole, "container.runtime", TOOLKIT, **seen)
    assert (check["status"], bool(re.search(words, check["reason"] or ""))) == (status, True)
    if status == "warn":
        assert re.search(r"--set nvidia-container-cli.no-cgroups=true;.*\bCDI\b", check["remedy"])


@pytest.mark.parametrize(
    ("engines", "status"),
    [
        (_RUNS, "fail"),
        (_RESTS, "fail"),
        # NVIDIA's device plugin can hand them out by mounts.
        ({**_RUNS, "containerd": {"kubelet_cgroups": "systemd"}}, "pass"),
    ],
)
def test_a_variable_that_only_privileged_containers_may_use_is_told(whole: Any, engines: Any, status: str) -> None:
    runtime = {**_RUNTIME, "privileged_only": True, "no_cgroups": engines is _RESTS}
    (check,) = found(whole, "container.runtime", TOOLKIT, containers={**engines, "runtime": runtime})
    assert check["status"] == status
    if status == "fail":
        assert "only privileged containers" in check["reason"]
        assert "--set accept-nvidia-visible-devices-envvar-when-unprivileged=true" in check["remedy"]


def test_a_library_before_that_of_the_wheels_is_told_with_the_file_that_puts_it_there(whole: Any) -> None:
    assert found(whole, "cuda.library_path") == []
    names = ("libcudnn.so.8", "libnccl.so.2")
    rows = [{"file": "/etc/profile.d/b.sh", "path": f"/opt/own/lib/{name}"} for name in names]
    (check,) = found(whole, "cuda.library_path", cuda={"leading": rows})
    assert check["status"] == "warn"
    assert "cuDNN and NCCL (libcudnn.so.8, libnccl.so.2)" in check["reason"]
    assert "take /opt/own/lib out of LD_LIBRARY_PATH in /etc/profile.d/b.sh" in check["remedy"]


@pytest.mark.parametrize(
    ("path", "version", "told"),
    [
        ("/opt/own/lib/libnvJitLink.so.12", "12.1.105", True),
        ("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", "12.1.105", True),
        ("/usr/local/cuda-12.8/lib64/libnvJitLink.so.12", "12.8.93", False),
        ("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", None, False),
        ("/usr/local/cuda-13.0/lib64/libnvJitLink.so.13", "13.0.39", False),
    ],
)
def test_a_toolkits_nvjitlink_is_in_the_way_where_it_is_older_than_that_of_the_wheels(
    whole: Any, path: str, version: str | None, told: bool
) -> None:
    row = {"file": "/etc/environment", "path": path, **({"version": version} if version else {})}
    environment = {"python": "3.12", "packages": {"nvidia-nvjitlink-cu12": "12.4.127"}, "loader_path": None}
    checks = found(whole, "cuda.library_path", cuda={"leading": [row]}, environments={"/opt/gpuwright/x": environment})
    assert [check["status"] for check in checks] == (["warn"] if told else [])
