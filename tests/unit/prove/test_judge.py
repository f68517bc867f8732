from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge, judge_disks
from tests.unit.plan import nodes

#: Any: a test changes them to what no type allows, too.
Facts = Any
ById = Callable[[list[Check]], dict[str, Check]]
PIN = {"package": "nvidia-driver-pinning-580", "hold": ["nvidia-driver-cuda"]}
SOURCE: Any = {
    "file": "/etc/apt/sources.list.d/a.list",
    "types": ["deb"],
    "uris": ["https://a.invalid/deb"],
    "suites": ["/"],
    "components": [],
}
STACK: Any = {"driver": nodes.driver_stack(minimum="525.60.13", pin=PIN)}
TOOLKIT: Any = {"container_toolkit": {}}


def put(facts: Facts, path: str, value: Any) -> Facts:
    changed = copy.deepcopy(facts)
    where = changed
    *steps, last = path.split(".")
    for step in steps:
        where = where[step]
    where[last] = value
    return changed


def test_a_good_node_passes_with_nothing_to_say(facts: Facts) -> None:
    found = judge.judge(facts, STACK, {"count": 1})
    assert checks.verdict(found) == "pass"
    assert {check["status"] for check in found} <= {"pass", "skip"}


@pytest.mark.parametrize(
    ("installed", "build", "status"),
    [
        ({"linux-headers-amd64": "6.12.9-1"}, "dkms", "pass"),
        ({"linux-headers-6.8.0-101-generic": "6.8.0-101"}, "dkms", "pass"),
        ({"linux-headers-6.8.0-90-generic": "6.8.0-90"}, "dkms", "warn"),
        ({}, "dkms", "warn"),
        ({}, "prebuilt-signed", "skip"),
        (None, "dkms", "incomplete"),
    ],
)
def test_headers_are_missed_where_the_driver_is_built_from_its_source(
    facts: Facts, by_id: ById, installed: Any, build: str, status: str
) -> None:
    """It works until another kernel comes; nobody sees why it does not then."""
    changed = put(put(facts, "packages.installed", installed), "kernel.next", "6.8.0-101-generic")
    stack: Any = {"driver": nodes.driver_stack(build=build, headers="linux-headers-amd64", pin=PIN)}
    assert by_id(judge.judge(changed, stack, {"count": 1}))["driver.headers"]["status"] == status


def test_libraries_of_another_driver_in_a_container_are_its_images(facts: Any, by_id: ById) -> None:
    changed = put(put(facts, "driver.user_version", "580.105.08"), "environment.kind", "container")
    check = by_id(judge.judge(changed))["driver.version_match"]
    assert check["status"] == "fail"
    assert "the image brings a driver of its own" in (check["reason"] or "")
    remedy = check["remedy"] or ""
    assert "out of the image" in remedy
    assert "reboot" not in remedy


@pytest.mark.parametrize(
    ("path", "value", "check_id", "status", "told"),
    [
        ("kernel.loaded", {}, "driver.loaded", "fail", "is not loaded"),
        ("kernel.loaded", {"nouveau": {"version": None}}, "driver.loaded", "fail", "nouveau"),
        ("kernel.loaded", {"nvidia": {}, "nouveau": {}}, "driver.nouveau_absent", "fail", "nouveau"),
        ("driver.user_version", "580.105.08", "driver.version_match", "fail", "and the next boot loads 580.95.05"),
        ("driver.user_version", None, "driver.version_match", "incomplete", "no driver library"),
        ("driver.loaded_modules", "proprietary", "driver.modules", "warn", "proprietary"),
        ("kernel.available", {}, "driver.next_kernel", "fail", "no NVIDIA module"),
        ("kernel.available", {"nvidia": {"version": "580.105.08"}}, "driver.next_kernel", "fail", "580.105.08"),
        ("kernel.next", None, "driver.next_kernel", "incomplete", "not known"),
        ("packages.interrupted", True, "packages.interrupted", "fail", "cut off"),
        ("packages.interrupted", None, "packages.interrupted", "incomplete", "not known"),
        ("packages.busy", "unattended-upgr (pid 812)", "packages.busy", "warn", "installing"),
        ("disks", [{"mount": "/boot", "free_bytes": 150_000_000}], "disk.space", "warn", "/boot"),
        ("disks", [{"mount": "/boot", "free_bytes": 250_000_000}], "disk.space", "pass", "/boot"),
        ("disks", [{"mount": "/", "free_bytes": 9e10, "read_only": True}], "disk.read_only", "fail", "read-only"),
        ("disks", None, "disk.space", "incomplete", "not known"),
        (
            "seals.nvidia_driver",
            {"state": "broken", "reason": "/etc/x changed"},
            "seals.nvidia_driver",
            "fail",
            "/etc/x changed",
        ),
        ("seals.nvidia_driver", {"state": "newer", "gpuwright": "9.9"}, "seals.nvidia_driver", "warn", "9.9"),
        (
            "seals.nvidia_driver",
            {"state": "alone", "reason": "used alone"},
            "seals.nvidia_driver",
            "skip",
            "used alone",
        ),
        ("proof", None, "proof.age", "incomplete", "never proven"),
        ("boot.id", "boot-2", "proof.age", "incomplete", "rebooted"),
        ("time", "2027-03-01T00:00:00Z", "proof.age", "incomplete", "days old"),
        ("proof.time", "last Thursday", "proof.age", "incomplete", "cannot be read"),
        ("proof.time", "2031-01-01T00:00:00Z", "proof.age", "incomplete", "yet to come"),
        ("proof.verdict", "fail", "proof.age", "fail", "ended with fail"),
        ("proof.driver", "570.1", "proof.age", "incomplete", "570.1"),
        ("smi", None, "smi.runs", "incomplete", "not known"),
        (
            "smi",
            {"rc": 9, "error": "couldn't communicate with the NVIDIA driver", "data": None},
            "smi.runs",
            "fail",
            "not loaded",
        ),
        (
            "smi",
            {"rc": None, "error": "nvidia-smi did not answer within 20 s", "data": None},
            "smi.runs",
            "fail",
            "hangs",
        ),
        (
            "smi",
            {"rc": None, "error": "nvidia-smi is not installed", "data": None},
            "smi.runs",
            "incomplete",
            "not installed",
        ),
        (
            "smi",
            {"rc": None, "error": "/usr/bin/nvidia-smi could not be run: Permission denied", "data": None},
            "smi.runs",
            "incomplete",
            "may not be executed",
        ),
        ("smi", {"rc": 255, "error": "nvidia-smi ended with status 255", "data": None}, "smi.runs", "fail", "(255)"),
        ("smi", {"rc": 0, "error": "gave no XML", "data": None}, "smi.runs", "fail", "gave no XML"),
        (
            "containers.docker",
            {"installed": True, "daemon_json_error": "line 3"},
            "container.daemon_json",
            "fail",
            "cannot be read",
        ),
        (
            "containers.docker",
            {"installed": True, "daemon_json": {}, "config_loaded": False},
            "container.daemon_json",
            "warn",
            "not read",
        ),
    ],
)
def test_each_fault_is_found_by_its_check(
    facts: Facts, by_id: ById, path: str, value: Any, check_id: str, status: str, told: str
) -> None:
    check = by_id(judge.judge(put(facts, path, value), STACK))[check_id]
    assert check["status"] == status
    assert told in str(check["reason"])
    assert status == "pass" or check["remedy"]


@pytest.mark.parametrize(
    ("mount", "least"), [("/boot", 200), ("/", 2000), ("/var", 2000), ("/usr", 1000), ("/opt", 1000), ("/tmp", 200)]
)
def test_each_place_that_is_written_to_has_a_least_room_of_its_own(
    facts: Facts, by_id: ById, mount: str, least: int
) -> None:
    for free, status in ((least, "pass"), (least - 1, "warn")):
        check = by_id(judge.judge(put(facts, "disks", [{"mount": mount, "free_bytes": free * judge_disks.MB}])))[
            "disk.space"
        ]
        assert (check["status"], check["measured"], check["expected"]) == (status, free, least)


@pytest.mark.parametrize(
    ("secure", "loaded", "available", "status"),
    [
        (False, None, {}, "pass"),
        (True, "580.95.05", {}, "pass"),
        (True, None, {"nvidia": {"version": "580.95.05", "signer": None}}, "fail"),
        (True, None, {"nvidia": {"version": "580.95.05", "signer": "Canonical"}}, "pass"),
        (None, None, {}, "incomplete"),
    ],
)
def test_secure_boot_is_judged_by_what_the_kernel_accepted_or_would(
    facts: Facts, by_id: ById, secure: bool | None, loaded: str | None, available: Facts, status: str
) -> None:
    changed = put(
        put(put(facts, "boot.secure_boot", secure), "driver.loaded_version", loaded), "kernel.available", available
    )
    assert by_id(judge.judge(changed, STACK))["driver.secure_boot"]["status"] == status


def test_an_unknown_fact_keeps_the_observations_reason(facts: Facts, by_id: ById) -> None:
    changed = put(put(facts, "disks", None), "unknown", {"disks": "permission denied"})
    check = by_id(judge.judge(changed))["disk.space"]
    assert "permission denied" in str(check["reason"])
    assert check["remedy"] == "run with become"


def test_a_card_that_fell_off_does_not_look_like_a_host_without_cards(facts: Facts, by_id: ById) -> None:
    changed = put(facts, "pci.gpus", [])
    assert by_id(judge.judge(changed, STACK, {"count": 1}))["gpu.on_bus"]["severity"] == "fatal"
    assert by_id(judge.judge(changed))["gpu.on_bus"]["status"] == "skip"


def test_a_bus_that_could_not_be_read_is_not_a_host_without_cards(facts: Facts, by_id: ById) -> None:
    changed = put(put(facts, "pci.gpus", []), "unknown", {"pci": "permission denied"})
    assert by_id(judge.judge(changed))["gpu.on_bus"]["status"] == "incomplete"


def test_a_card_that_reads_as_ff_is_off_the_bus(facts: Facts, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["pci"]["gpus"][0]["revision"] = "ff"
    assert by_id(judge.judge(changed))["gpu.on_bus"]["status"] == "fail"


def test_a_card_on_the_bus_that_nvidia_smi_does_not_see_is_named_unless_it_is_ignored(
    facts: Facts, by_id: ById
) -> None:
    changed = copy.deepcopy(facts)
    changed["pci"]["gpus"].append({"bus_id": "00000000:99:00.0", "revision": "a1"})
    assert "00000000:99:00.0" in str(by_id(judge.judge(changed))["gpu.count"]["reason"])
    assert by_id(judge.judge(changed, None, {"ignore": ["0000:99:00.0"]}))["gpu.count"]["status"] == "pass"


def test_a_card_is_left_alone_by_the_model_that_nvidia_smi_names_too(facts: Facts, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    other = "00000000:43:00.0"
    changed["pci"]["gpus"].append({**nodes.H100, "bus_id": other, "driver": "nvidia"})
    cards = changed["smi"]["data"]["gpus"]
    cards.append({**copy.deepcopy(cards[0]), "pci_bus_id": other, "name": "NVIDIA T400"})
    for ignore, status, seen in (["T400"], "pass", 1), (["T4"], "warn", 2), ([], "warn", 2):
        check = by_id(judge.judge(changed, None, {"count": 1, "ignore": ignore}))["gpu.on_bus"]
        assert (check["status"], check["measured"]) == (status, seen)


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("display.desktop", False, "warn"),
        ("display.desktop", True, "skip"),
        ("environment.kind", "wsl", "skip"),
    ],
)
def test_a_driver_that_something_else_keeps_loaded_needs_no_persistence(
    facts: Facts, by_id: ById, path: str, value: Any, status: str
) -> None:
    changed = put(facts, path, value)
    changed["smi"]["data"]["gpus"][0]["persistence_mode"] = False
    assert by_id(judge.judge(changed, STACK))["persistence"]["status"] == status


@pytest.mark.parametrize("kind", ["wsl", "jetson"])
def test_a_driver_that_is_not_ours_is_not_judged(facts: Facts, kind: str) -> None:
    changed = put(put(facts, "environment.kind", kind), "pci.gpus", [])
    found = [
        check
        for check in judge.judge(changed, STACK)
        if check["id"].startswith("driver.") and check["status"] != "pass"
    ]
    assert [check["status"] for check in found] == ["skip"]


def test_hosts_with_switches_need_the_fabric_manager(facts: Facts, by_id: ById) -> None:
    changed = put(facts, "pci.nvswitches", [{"bus_id": "00000000:07:00.0", "device": "22a3"}])
    assert by_id(judge.judge(changed))["fabricmanager"]["status"] == "incomplete"
    stopped = put(changed, "services", {"nvidia-fabricmanager.service": {"active": "failed", "enabled": "enabled"}})
    assert by_id(judge.judge(stopped))["fabricmanager"]["status"] == "fail"


def test_the_runtime_is_missed_only_where_the_toolkit_is_wished(facts: Facts, by_id: ById) -> None:
    changed = put(facts, "containers.docker", {"installed": True, "daemon_json": None, "config_loaded": True})
    assert by_id(judge.judge(changed))["container.daemon_json"]["status"] == "pass"
    assert by_id(judge.judge(changed, TOOLKIT))["container.daemon_json"]["status"] == "warn"


@pytest.mark.parametrize("runtimes", [1, True, "nvidia", ["nvidia"], None])
def test_what_a_person_wrote_in_place_of_dockers_runtimes_is_no_runtime(
    facts: Facts, by_id: ById, runtimes: Any
) -> None:
    docker = {"installed": True, "daemon_json": {"runtimes": runtimes}, "config_loaded": True}
    changed = put(facts, "containers.docker", docker)
    assert by_id(judge.judge(changed, TOOLKIT))["container.daemon_json"]["status"] == "warn"


@pytest.mark.parametrize(
    "key",
    [
        "kernel",
        "driver",
        "pci",
        "smi",
        "packages",
        "disks",
        "seals",
        "proof",
        "containers",
        "boot",
        "environment",
        "services",
        "display",
    ],
)
def test_an_observation_with_holes_is_judged_and_never_better(facts: Facts, key: str) -> None:
    holed: Any = {name: value for name, value in facts.items() if name != key}
    assert judge.judge(holed, STACK)
    unseen: Any = {**facts, key: None, "unknown": {key: "not seen"}}
    assert judge.judge(unseen, STACK)


def test_nothing_observed_is_never_a_pass() -> None:
    nothing: Any = {}
    assert checks.verdict(judge.judge(nothing, STACK)) != "pass"


def test_parts_can_be_left_out(facts: Facts) -> None:
    groups = {
        checks.group(check) for check in judge.judge(facts, STACK, {"seals": False, "proof": False, "gpus": False})
    }
    assert groups.isdisjoint({"seals", "proof", "driver", "gpu", "smi"})


_BUILD = {
    "module": "nvidia-current-open", "version": "550.163.01", "kernel": "6.12.107+deb13-amd64", "log": "/var/lib/dkms/make.log",
    "errors": ["nv-pci.c:292:13: error: too few arguments to function 'pci_resize_resource'"], "end": ["# exit code: 2"],
    "transient": False, "compiler": False, "left_out": False,
}  # fmt: skip


def _build_check(facts: Facts, by_id: ById, following: str, **build: Any) -> Check | None:
    changed = put(
        facts,
        "dkms",
        {"failed": [{**_BUILD, **build}], "without_source": [], "kernels": ["6.12.94+deb13-amd64"], "boot_entries": {}},
    )
    return by_id(judge.judge(put(changed, "kernel.next", following), STACK, {"count": 1})).get("driver.build")


def test_a_build_that_failed_for_the_kernel_that_boots_next_is_named_with_its_log_and_the_ways_out(
    facts: Facts, by_id: ById
) -> None:
    check = _build_check(facts, by_id, "6.12.107+deb13-amd64")
    assert check is not None
    assert check["status"] == "fail"
    assert "after a reboot there is no driver" in str(check["reason"])
    assert "pci_resize_resource" in str(check["reason"])
    assert str(check["evidence"]).endswith("# exit code: 2")
    assert "stay on 6.12.94" in str(check["remedy"])
    assert "driver-modules=proprietary" in str(check["remedy"])


def test_a_build_that_is_left_out_while_an_older_kernel_boots_is_only_a_warning(facts: Facts, by_id: ById) -> None:
    check = _build_check(facts, by_id, "6.12.94+deb13-amd64", left_out=True)
    assert check is not None
    assert check["status"] == "warn"
    assert "6.12.94+deb13-amd64 boots next, which has a module" in str(check["reason"])


@pytest.mark.parametrize("module", [True, False])
def test_dkms_that_ends_at_a_module_without_source_is_the_cause_where_the_next_kernel_has_none(
    facts: Facts, by_id: ById, module: bool
) -> None:
    gone = put(facts, "dkms", {**facts["dkms"], "without_source": ["/var/lib/dkms/nvidia/570.86.15"]})
    told = by_id(judge.judge(gone if module else put(gone, "kernel.available", {}), STACK, {"count": 1}))
    check, next_kernel = told["driver.dkms"], told["driver.next_kernel"]
    assert (check["status"], next_kernel["status"]) == (("warn", "pass") if module else ("fail", "fail"))
    assert str(check["remedy"]).startswith("sudo rm -r /var/lib/dkms/nvidia/570.86.15, then sudo dkms autoinstall")


def test_a_build_that_failed_for_want_of_room_asks_for_room(facts: Facts, by_id: ById) -> None:
    check = _build_check(facts, by_id, "6.12.107+deb13-amd64", transient=True)
    assert check is not None
    assert str(check["remedy"]).startswith("make room")


def test_the_flavour_of_modules_is_open_where_the_libraries_are_of_another_version(facts: Facts, by_id: ById) -> None:
    seen = put(facts, "driver.loaded_modules", "proprietary")
    assert by_id(judge.judge(seen, STACK))["driver.modules"]["status"] == "warn"
    check = by_id(judge.judge(put(seen, "driver.user_version", "430.50"), STACK))["driver.modules"]
    assert (check["status"], check["remedy"]) == ("skip", None)


@pytest.mark.parametrize(
    ("line", "family", "program", "package"),
    [
        ("/bin/sh: line 1: g++: command not found", "redhat", "g++", "install gcc-c++,"),
        ("/bin/sh: 1: g++: not found", "debian", "g++", "install g++,"),
        ("make[2]: flex: No such file or directory", "debian", "flex", "install flex,"),
    ],
)
def test_a_build_that_lacks_a_program_asks_for_its_package(
    facts: Facts, by_id: ById, line: str, family: str, program: str, package: str
) -> None:
    check = _build_check(put(facts, "os.family", family), by_id, "6.12.107+deb13-amd64", errors=[line])
    assert check is not None
    assert f"the program {program} is not there" in str(check["reason"])
    assert str(check["remedy"]).startswith(package)


@pytest.mark.parametrize(
    ("line", "cause", "remedy"),
    [
        ("*** Failed PREEMPT_RT sanity check. Bailing out! ***", "real-time", "without it"),
        ("The kernel you are installing for is a Xen kernel!", "Xen", "without Xen"),
        (
            "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu_read_lock'",
            "free (GPL)",
            "driver-modules=open",
        ),
        (
            "ERROR: modpost: missing MODULE_LICENSE() in /var/lib/dkms/nvidia/525.60.11/build/nvidia.o",
            "(mold, gold)",
            "ld.bfd",
        ),
        ("mold: fatal: unknown -m argument: elf_x86_64_old", "(mold, gold)", "ld.bfd"),
        ("  ERROR: Kernel configuration is invalid.", "headers", "linux-headers-6.12.107"),
        (
            "make: *** /lib/modules/6.12.107/build: No such file or directory.  Stop.",
            "headers",
            "kernel-devel-6.12.107",
        ),
        ("/bin/sh: 1: scripts/basic/fixdep: Exec format error", "headers", "linux-headers-6.12.107"),
        ("cc1: error: incompatible gcc/plugin versions", "another one than that which built", "compiler that"),
        ("gcc: error: unrecognized command-line option '-mllvm'", "built by clang", "LLVM=1"),
        ("nv.h:1: error: 'bool' cannot be defined via 'typedef'", "C23", "gcc-14"),
        ("error: Cannot generate ORC metadata, please install libelf-dev", "libelf", "install libelf-dev"),
        ("sign-file: /var/lib/shim-signed/mok/MOK.priv: No such file or directory", "key that is to sign", "--new-key"),
        ("cc1: error: /var/lib/dkms/nvidia: Permission denied", "may not be run", "noexec"),
    ],
)
def test_what_a_build_said_is_its_cause(facts: Facts, by_id: ById, line: str, cause: str, remedy: str) -> None:
    check = _build_check(facts, by_id, "6.12.107", errors=["make: *** [Makefile:85: modules] Error 2"], end=[line])
    assert check is not None
    assert cause in str(check["reason"])
    assert line.strip() in str(check["reason"])
    assert remedy in str(check["remedy"])


def test_a_driver_whose_source_the_kernel_has_left_behind_is_told_as_that(facts: Facts, by_id: ById) -> None:
    refused = "nvidia/os-mlock.c:24:5: error: implicit declaration of function 'follow_pfn'"
    check = _build_check(facts, by_id, "6.12.107+deb13-amd64", errors=[refused], compiler=True)
    assert check is not None
    assert "does not go with that kernel" in str(check["reason"])
    assert "a driver that knows kernel" in str(check["remedy"])


@pytest.mark.parametrize(
    ("reserved", "kind", "reason", "remedy"),
    [
        ([], "bare", "no NVIDIA GPU on the PCI bus, and a driver for one is installed", "reseat"),
        ([], "vm", "no NVIDIA GPU on the PCI bus", "hypervisor"),
        (
            [
                {
                    "vendor": "10de",
                    "device": "1eb8",
                    "bus_id": "00000000:18:00.0",
                    "name": "Tesla T4",
                    "driver": "vfio-pci",
                }
            ],
            *("bare", "held for virtual machines (vfio-pci)", "take vfio-pci out"),
        ),
    ],
)
def test_a_driver_without_a_card_is_told(
    facts: Facts, by_id: ById, reserved: list[Any], kind: str, reason: str, remedy: str
) -> None:
    seen = put(put(put(facts, "pci.gpus", []), "pci.reserved", reserved), "environment.kind", kind)
    seen = put(put(seen, "driver.owner", "packages"), "seals", {})
    check = by_id(judge.judge(seen))["gpu.on_bus"]
    assert check["status"] == "warn"
    assert reason in str(check["reason"])
    assert remedy in str(check["remedy"])
    assert by_id(judge.judge(put(seen, "driver.owner", "none")))["gpu.on_bus"]["status"] == "skip"


def test_a_rule_that_takes_the_card_off_the_bus_is_told_with_what_keeps_its_module_out(
    facts: Facts, by_id: ById
) -> None:
    rule, kept = "/etc/udev/rules.d/50-remove-nvidia.rules", "/etc/modprobe.d/blacklist-nvidia.conf"
    seen = put(put(facts, "pci.gpus", []), "pci.removed_by", [rule])
    seen = put(
        put(put(seen, "driver.owner", "packages"), "seals", {}),
        "kernel.kept_out",
        [{"file": kept, "line": "blacklist nvidia"}],
    )
    wanted: list[Any] = [{}, {"count": 1}]
    for expected in wanted:
        check = by_id(judge.judge(seen, expected=expected))["gpu.on_bus"]
        assert rule in str(check["reason"])
        assert str(check["remedy"]).startswith(f"sudo rm {rule} {kept} ")


_UNKNOWN = "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"


@pytest.mark.parametrize(
    ("following", "reason", "remedy"),
    [
        (
            "6.12.107+deb13-amd64",
            "the compiler is older than gcc 14.2 that the kernel was built with",
            "install gcc-14",
        ),
        (
            "6.12.94+deb13-amd64",
            "is older than the one that the kernel",
            "compiler that /boot/config-6.12.107+deb13-amd64",
        ),
    ],
)
def test_a_build_whose_compiler_does_not_know_an_option_asks_for_that_of_the_kernel(
    facts: Facts, by_id: ById, following: str, reason: str, remedy: str
) -> None:
    seen = put(facts, "kernel.compiler", {"built_with": "gcc 14.2", "available": None})
    check = _build_check(seen, by_id, following, errors=[_UNKNOWN], compiler=True)
    assert check is not None
    assert reason in str(check["reason"])
    assert remedy in str(check["remedy"])
    assert "proprietary" not in str(check["remedy"])


def test_a_build_that_went_well_later_is_not_held_against_the_node(facts: Facts, by_id: ById) -> None:
    assert _build_check(facts, by_id, "6.12.94+deb13-amd64", kernel="6.12.94+deb13-amd64") is None


@pytest.mark.parametrize(("manager", "then"), [("apt", "nothing can be installed"), ("dnf", "dnf installs nothing")])
def test_a_source_that_cannot_be_read_is_named_with_who_cannot(
    facts: Facts, by_id: ById, manager: str, then: str
) -> None:
    facts["packages"] |= {"manager": manager, "broken_sources": ["/a.repo, line 2: it is not OPTION=VALUE"]}
    check = by_id(judge.judge(facts, STACK, {"count": 1}))["packages.sources"]
    assert check["status"] == "warn"
    assert check["reason"] == f"{manager} cannot read /a.repo, line 2: it is not OPTION=VALUE"
    assert then in str(check["remedy"])


def test_a_source_in_a_directory_that_is_gone_is_named(facts: Facts, by_id: ById) -> None:
    gone = ["/etc/apt/sources.list.d/a.list: there is no directory /var/cuda-repo"]
    facts["packages"] |= {"manager": "apt", "broken_sources": [], "gone_sources": gone}
    check = by_id(judge.judge(facts, STACK, {"count": 1}))["packages.sources"]
    assert (check["status"], check["reason"]) == ("warn", f"a package source is gone: {gone[0]}")


@pytest.mark.parametrize(
    ("changes", "told"),
    [({}, True), ({"key_missing": False}, False), ({"enabled": False}, False), ({"signed_by": "/a.gpg,/b.gpg"}, False)],
)
def test_a_source_whose_key_is_not_there_is_named(facts: Facts, by_id: ById, changes: Any, told: bool) -> None:
    source = {**SOURCE, "signed_by": "/usr/share/keyrings/a.gpg", "key_missing": True, "enabled": True, **changes}
    facts["packages"] |= {"manager": "apt", "broken_sources": [], "sources": [source]}
    check = by_id(judge.judge(facts, STACK, {"count": 1}))["packages.sources"]
    assert check["status"] == ("warn" if told else "pass")
    assert ("/etc/apt/sources.list.d/a.list" in str(check["reason"])) == told
    assert ("fetch the publisher's key into /usr/share/keyrings/a.gpg" in str(check["remedy"])) == told


@pytest.mark.parametrize(
    ("detail", "named"),
    [
        ("packages left unfinished: half-configured: nvidia-kernel-dkms", " (half-configured: nvidia-kernel-dkms)"),
        ("packages left unfinished: half-configured: a; unpacked: b, c", " (half-configured: a; unpacked: b, c)"),
        ("dpkg was interrupted: /var/lib/dpkg/updates holds 2 unfinished steps", "was cut off"),
    ],
)
def test_packages_that_were_left_unfinished_are_named(facts: Facts, by_id: ById, detail: str, named: str) -> None:
    facts["packages"] |= {"interrupted": True, "interrupted_detail": detail}
    check = by_id(judge.judge(facts, STACK, {"count": 1}))["packages.interrupted"]
    assert str(check["reason"]).endswith(named)


@pytest.mark.parametrize(
    ("firmware", "unfinished", "told"),
    [
        ("nvidia-firmware-535-server-535.54.03", "nvidia-driver-535", True),
        ("nvidia-firmware-535-535.54.03", "nvidia-kernel-common-535-server", True),
        ("nvidia-firmware-535-535.54.03", "nvidia-dkms-535-server-open", True),
        ("nvidia-firmware-535-535.54.03", "nvidia-dkms-535-open", False),
        ("nvidia-firmware-535-server-535.54.03", "nvidia-driver-535-server", False),
        ("nvidia-firmware-525-server-525.85.12", "nvidia-driver-535", False),
    ],
)
def test_firmware_of_another_flavour_stands_in_the_way(
    facts: Facts, by_id: ById, firmware: str, unfinished: str, *, told: bool
) -> None:
    facts["packages"] |= {
        "interrupted": True,
        "interrupted_detail": f"packages left unfinished: unpacked: {unfinished}",
    }
    facts["packages"]["installed"] = {firmware: "1"}
    check = by_id(judge.judge(facts, STACK, {"count": 1}))["packages.interrupted"]
    assert (firmware in str(check["reason"]), f"--force-depends {firmware}," in str(check["remedy"])) == (told, told)


@pytest.mark.parametrize(
    ("row", "lacks", "named"),
    [
        ({"packages": ["*nvidia*"]}, True, "nvidia-container-toolkit"),
        ({"packages": ["/^nvidia-c.*kit$/"]}, True, "nvidia-container-toolkit"),
        ({"packages": ["other", "nvidia-container-toolkit:any"]}, True, "nvidia-container-toolkit"),
        ({"packages": ["*"], "except": ["bash"]}, True, "nvidia-container-toolkit"),
        ({"packages": ["*"], "except": ["nvidia*"]}, True, None),
        ({"packages": ["*nvidia*"]}, False, None),
        ({"packages": ["*nvidia*"], "source": "release o=Ubuntu"}, True, None),
        ({"packages": ["/(n+)+x/", "/n*v*i*d*i*a*x/", "/*/", "src:nvidia*"]}, True, None),
    ],
)
def test_what_keeps_out_a_package_that_is_lacking_is_named(
    facts: Facts, by_id: ById, row: dict[str, object], lacks: bool, named: str | None
) -> None:
    rule: Any = {"file": "/etc/apt/preferences.d/no", "entry": "Package: x", "except": [], "source": None, **row}
    facts["packages"] |= {"hides": [rule], "installed": {} if lacks else {"nvidia-container-toolkit": "1.19.1-1"}}
    stack: Any = {"container_toolkit": {"packages": ["nvidia-container-toolkit"], "adopted": False}}
    check = by_id(judge.judge(facts, stack, {"count": 1}))["packages.hidden"]
    assert check["status"] == ("warn" if named else "pass")
    assert check["measured"] == ([named] if named else None)
    assert (
        named is None or check["reason"] == f"/etc/apt/preferences.d/no keeps {named} from being installed (Package: x)"
    )
    adopted: Any = {"container_toolkit": {**stack["container_toolkit"], "adopted": True}}
    assert by_id(judge.judge(facts, adopted, {"count": 1}))["packages.hidden"]["status"] == "pass"


def test_nouveau_may_hold_a_card_that_is_left_alone(facts: Facts, by_id: ById) -> None:
    held = put(facts, "kernel.loaded", {"nvidia": {}, "nouveau": {}})
    first, *others = held["pci"]["gpus"]
    held["pci"]["gpus"] = [{**first, "driver": "nouveau"}, *({**card, "driver": "nvidia"} for card in others)]
    assert by_id(judge.judge(held))["driver.nouveau_absent"]["status"] == "fail"
    alone = judge.judge(held, None, {"ignore": [first["bus_id"]]})
    assert by_id(alone)["driver.nouveau_absent"]["status"] == "pass"


def test_a_card_that_sleeps_is_no_fault(facts: Facts, by_id: ById) -> None:
    asleep = put(facts, "smi", {"rc": None, "seconds": 0.0, "error": run.ASLEEP, "data": None})
    assert by_id(judge.judge(asleep))["smi.runs"]["status"] == "skip"
