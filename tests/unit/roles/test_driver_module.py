"""What the role nvidia_driver judges the installation by: the module that the next kernel will load, whatever dnf or apt ended with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.filter import driver as filters
from ansible_collections.gpuwright.node.plugins.module_utils.observe.driver_set import UNATTENDED_FILE
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import (
    driver_module,
    fabric,
    places,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from tests.unit.plan import nodes

from .driver_steps import KERNEL, PIN, driver, plan, step

ROLES = Path(__file__).resolve().parents[3] / "roles"
MODULE = {"version": "580.178.04", "license": "Dual MIT/GPL"}
EL = "5.14.0-611.41.1.el9_7.x86_64"
SET = dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), "3:580.178.04-1.el9")
STACK = {"packages": list(SET), "pin": {}}


def after(installed: dict[str, str] | None = None, module: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A node after an installation on EL 9."""
    facts = nodes.bare(
        os={"family": "redhat", "id": "rocky"},
        packages={"manager": "dnf", "installed": SET if installed is None else installed},
        kernel={"next": EL, "installed": [EL], "available": {"nvidia": module} if module else {}},
    )
    return nodes.merged(facts, changes)


def loaded(version: str | None = "580.178.04", **changes: Any) -> Any:
    """A node on which the driver is loaded."""
    facts = nodes.provisioned()
    facts["kernel"]["loaded"] = {"nvidia": {"version": version}} if version is not None else {}
    return nodes.merged(facts, changes)


# --- the module -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (MODULE, None),
        (None, "there is no NVIDIA module for it"),
        # depmod lists it, and its file is gone.
        ({**MODULE, "version": None}, "there is no NVIDIA module for it"),
        # The build failed and the one before it is still there.
        ({**MODULE, "version": "580.126.20"}, "its module has version 580.126.20 instead of 580.178.04"),
        ({**MODULE, "license": "NVIDIA"}, "its module is the proprietary one instead of the open one"),
        (
            {"version": "570.1", "license": "NVIDIA"},
            "its module has version 570.1 instead of 580.178.04; its module is the proprietary one instead of the open one",
        ),
    ],
)
def test_packages_that_are_installed_prove_no_module(module: dict[str, Any] | None, found: str | None) -> None:
    fault = step("verified", after(module=module), plan(driver(**STACK)))["fault"]
    assert (fault or {}).get("found") == found
    if fault:
        assert fault["wished"] == "the open NVIDIA module 580.178.04"
        assert fault["kernel"] == EL


@pytest.mark.parametrize(
    ("stack", "wished"),
    [
        ({"version": "580.126.20"}, "580.126.20"),
        # A pinning package and a kernel's module package count differently.
        ({"packages": ["nvidia-pin", "linux-modules-nvidia"]}, "of branch 580"),
    ],
)
def test_the_wished_version_is_the_one_that_was_asked_for_or_that_of_the_packages(
    stack: dict[str, Any], wished: str
) -> None:
    facts = after({**SET, "nvidia-pin": "580-1", "linux-modules-nvidia": "6.8.0-134.134"})
    fault = step("verified", facts, plan(driver(**{**STACK, **stack})))["fault"]
    assert fault["wished"] == f"the open NVIDIA module {wished}"


def test_whoever_reads_of_a_failed_build_learns_whether_nouveau_still_comes() -> None:
    made = plan(driver(**STACK))
    assert "has not been blacklisted" in step("verified", after(), made)["fault"]["screen"]
    said = step("verified", after({**SET, "nvidia-kmod-common": "3:580.178.04-1.el9"}), made)["fault"]["screen"]
    assert "nvidia-kmod-common" in said
    assert "has not been blacklisted" not in said


# --- its build --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "build", "due"),
    [(MODULE, "dkms", False), (None, "dkms", True), ({**MODULE, "version": ""}, "dkms", True), (None, "precompiled", False)],
)  # fmt: skip
def test_a_module_that_dkms_left_out_is_built_once_more(module: Any, build: str, due: bool) -> None:
    made = plan(driver(**STACK, build=build), given={"kernels": [EL]})
    found = step("installed", after(module=module), made)
    assert (found["build"] is not None, found["more"]) == (due, due)
    if due:
        assert found["build"] == {
            "kernel": EL,
            "versions": ["580.178.04"],
            "patterns": ["nvidia*-580.178.04"],
            "reinstall": [
                *("dnf", "--assumeyes", "--quiet", "--disableplugin=versionlock", "reinstall"),
                "kmod-nvidia-open-dkms",
            ],
        }
    # Whatever became of it, it is not built twice.
    assert step("built", after(module=module), made)["build"] is None


def test_what_dkms_takes_for_installed_is_read_from_its_status_for_the_next_kernel_alone() -> None:
    """The forms of DKMS 3 and 2.8 (dell/dkms, do_status)."""
    told = [
        f"nvidia/580.126.20, {EL}, x86_64: built",
        f"nvidia/580.178.04, {EL}, x86_64: installed (Differences between built and installed modules)",
        "nvidia/580.178.04, 5.14.0-611.49.1.el9_7.x86_64, x86_64: installed",
        f"nvidia-current-open, 550.163.01, {EL}, x86_64: installed",
        f"evdi/1.14.7, {EL}, x86_64: installed",
        "nvidia/570.1: broken",
    ]
    assert driver_module.dkms_installed("\n".join(told), EL, ["580.178.04", "550.163.01", "580.126.20"]) == [
        {"name": "nvidia", "version": "580.178.04"},
        {"name": "nvidia-current-open", "version": "550.163.01"},
    ]


def test_what_dkms_takes_for_installed_is_taken_back_in_the_version_of_the_driver_alone() -> None:
    """nvidia-fs, of GPUDirect Storage, is NVIDIA's too, and not what is missing."""
    told = [
        f"nvidia/580.126.20, {EL}, x86_64: installed",
        f"nvidia/580.178.04, {EL}, x86_64: installed",
        f"nvidia-fs/2.26.6, {EL}, x86_64: installed",
    ]
    only = [{"name": "nvidia", "version": "580.178.04"}]
    assert driver_module.dkms_installed("\n".join(told), EL, ["580.178.04"]) == only
    assert driver_module.dkms_installed("", EL, ["580.178.04"]) == []


def test_the_package_with_the_source_of_the_module_is_known_by_its_name() -> None:
    assert driver_module.source_packages(after({**SET, "dkms": "3.4.1-1.el9"})) == ["kmod-nvidia-open-dkms"]
    of_ubuntu = {"nvidia-dkms-580-open": "580.126.09-1", "nvidia-utils-580": "580.126.09-1"}
    facts = nodes.bare(packages={"installed": of_ubuntu})
    assert driver_module.source_packages(facts) == ["nvidia-dkms-580-open"]
    reinstall = step("installed", facts, plan(driver(version="580.126.09")))["build"]["reinstall"]
    assert reinstall == ["apt-get", "--yes", "--quiet", "--no-remove", "--reinstall", "install", "nvidia-dkms-580-open"]
    assert step("installed", nodes.bare(), plan(driver(version="580.126.09")))["build"]["reinstall"] == []


def test_the_sources_that_dkms_is_told_of_are_directories_with_a_version() -> None:
    found = filters.dkms_sources([{"path": "/usr/src/nvidia-current-open-580.178.04"}, {"path": "/usr/src/nvidia-x"}])
    assert found == [{"name": "nvidia-current-open", "version": "580.178.04"}]


# --- after the packages -----------------------------------------------------------------------------------------------


def test_a_kernel_that_came_unasked_stops_the_run_once_there_is_nothing_left_to_build() -> None:
    facts = nodes.provisioned(kernel={"installed": [KERNEL, "6.12.107+deb13-amd64"]})
    with pytest.raises(
        StepRefused, match=r"Found, since the driver's packages were installed, 6\.12\.107\+deb13-amd64 too"
    ):
        step("installed", facts)
    step("installed", facts, nvidia_driver_allow_kernel=True)
    unbuilt = nodes.merged(facts, {"driver": {}})
    unbuilt["kernel"]["available"] = {}
    assert step("installed", unbuilt)["build"] is not None
    with pytest.raises(StepRefused, match="What to do: remove it, or keep it"):
        step("built", unbuilt)


def test_nvidias_file_is_run_after_the_packages_until_it_is_there() -> None:
    file: dict[str, Any] = {"runfile": {"name": "x.run", "addresses": [], "sha256": None}}
    made = plan(driver(source="runfile", version="580.178.04", build=None, pin={}, **file))
    found = step("installed", nodes.bare(), made)
    assert (found["runfile"], found["more"], found["build"]) == (True, True, None)
    there = nodes.provisioned(driver={"owner": "runfile", "lock": {"held": [], "set": [], "excluded": None}})
    assert (step("installed", there, made)["runfile"], step("installed", there, made)["more"]) == (False, False)


def test_the_set_and_its_pin_are_held_at_once_and_again() -> None:
    lock = step("installed", nodes.provisioned())["lock"]
    assert lock["commands"] == [["apt-mark", "hold", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", PIN]]
    assert lock["question"][-1] == "dist-upgrade"
    assert "-s" in lock["question"]
    assert [file["path"] for file in lock["files"]] == [UNATTENDED_FILE]
    assert (lock["absent"], lock["pin"]) == ([], None)


def test_holds_that_are_no_part_of_the_lock_are_taken_back_first() -> None:
    facts = nodes.provisioned(driver={"lock": {"held": ["nvidia-old", "nvidia-driver-cuda"]}})
    commands = step("installed", facts)["lock"]["commands"]
    assert commands[0] == ["apt-mark", "unhold", "nvidia-old"]
    assert commands[1][:2] == ["apt-mark", "hold"]
    # Modules that follow the kernel take the libraries with them.
    following = step("installed", facts, plan(driver(pin={"hold": []})))["lock"]
    assert following["commands"] == [["apt-mark", "unhold", "nvidia-old", "nvidia-driver-cuda"]]
    assert following["question"] == []
    assert following["files"]


def test_a_pin_whose_file_is_gone_is_brought_back() -> None:
    path = f"/etc/apt/preferences.d/{PIN}"
    facts = nodes.provisioned(driver={"lock": {"pins": {PIN: {"files": [path], "missing": [path]}}}})
    found = step("installed", facts)
    assert (found["lock"]["pin"], found["more"]) == (PIN, True)


def test_unattended_upgrades_are_left_alone_where_no_package_of_the_driver_is_ours() -> None:
    none = nodes.provisioned(driver={"lock": {"set": [], "held": [], "excluded": ["^old$"]}})
    found = step("installed", none)
    assert (found["lock"]["absent"], found["lock"]["files"], found["more"]) == ([UNATTENDED_FILE], [], True)
    never = nodes.provisioned(driver={"lock": {"set": [], "held": [], "excluded": None}})
    assert step("installed", never)["lock"]["absent"] == []


def test_unattended_upgrades_are_kept_from_exactly_the_set() -> None:
    facts = nodes.provisioned(driver={"lock": {"set": ["libnvidia-gl+x", "nvidia-firmware-580-580.126.20"]}})
    content = step("installed", facts)["lock"]["files"][0]["content"]
    assert content == (
        "// Written by gpuwright (role nvidia_driver); a change by hand is undone by the next run.\n"
        "// The NVIDIA driver is one set of packages, loaded into the kernel and into running programs. Moved behind their "
        "back it ends in\n"
        '// "Driver/library version mismatch" until the next boot, so it moves as a whole, by gpuwright, and is proven after it.\n'
        "Unattended-Upgrade::Package-Blacklist {\n"
        '  "^libnvidia-gl\\+x$";\n'
        '  "^nvidia-firmware-580-580\\.126\\.20$";\n'
        "};\n"
    )


def test_on_dnf_the_lines_of_the_plugins_list_have_an_epoch() -> None:
    facts = after({"nvidia-driver-cuda": "3:580.178.04-1.el9", "libnvidia-ml": "580.178.04-1.el9"}, MODULE)
    facts["driver"]["lock"]["set"] = ["nvidia-driver-cuda", "libnvidia-ml"]
    made = plan(driver(packages=list(SET), pin={"hold": ["nvidia-driver-cuda"]}), given={"kernels": [EL]})
    lock = step("installed", facts, made)["lock"]
    assert lock["lines"] == ["nvidia-driver-cuda-3:580.178.04-1.el9.*", "libnvidia-ml-0:580.178.04-1.el9.*"]
    assert lock["question"][:2] == ["dnf", "--cacheonly"]
    assert lock["question"][-2:] == ["nvidia-driver-cuda", "libnvidia-ml"]
    assert (lock["commands"], lock["files"], lock["absent"]) == ([], [], [])


UPGRADE = """Reading package lists...
Inst libcuda1 [580.126.20-1] (580.178.04-1 NVIDIA:NVIDIA [amd64])
Inst nvidia-driver-cuda [580.126.20-1] (580.178.04-1 NVIDIA:NVIDIA [amd64])
Inst brand-new (1.0 Debian:13 [amd64])
Conf libcuda1 (580.178.04-1 NVIDIA:NVIDIA [amd64])
"""


def test_a_lock_that_apt_does_not_obey_stops_the_run() -> None:
    made = plan(given={"upgrade": {"stdout": UPGRADE, "rc": 0}})
    with pytest.raises(StepRefused) as refused:
        step("verified", nodes.provisioned(), made)
    assert "apt would move nvidia-driver-cuda 580.126.20-1 -> 580.178.04-1." in str(refused.value)
    assert "`apt-cache policy nvidia-driver-cuda`" in str(refused.value)
    free = nodes.provisioned(driver={"lock": {"set": ["nvidia-kernel-open-dkms"]}})
    assert step("verified", free, made)["fault"] is None
    # What follows the kernel may move; on the way back, and of an adopted driver, an answer is that of an earlier run.
    for stack, restore in (
        (driver(pin={"hold": []}), None),
        (driver(adopted=True), None),
        (driver(), {"source": "nvidia"}),
    ):
        step("verified", nodes.provisioned(), {**made, "stack": {"driver": stack}, "restore": restore})


def test_a_lock_that_dnf_does_not_obey_stops_the_run() -> None:
    made = plan(
        driver(**STACK), given={"upgrade": {"stdout": "nvidia-driver-cuda.x86_64 3:580.200-1 cuda\n", "rc": 100}}
    )
    with pytest.raises(
        StepRefused, match=r"Found that it would take: nvidia-driver-cuda\.x86_64 3:580\.200-1 cuda\. What to do"
    ):
        step("verified", after(module=MODULE), made)
    for said in ({"rc": 0, "stdout": ""}, {}, {"skipped": True}):
        assert step("verified", after(module=MODULE), plan(driver(**STACK), given={"upgrade": said}))["fault"] is None


# --- bringing it to work ----------------------------------------------------------------------------------------------


def test_the_kernel_hook_goes_where_the_family_calls_it_and_not_beside_a_driver_of_others() -> None:
    hooks = step("verified", nodes.provisioned())["hooks"]
    assert hooks["places"] == places.KERNEL_HOOKS["debian"]
    assert hooks["directories"] == [
        "/etc/kernel/postinst.d",
        "/etc/kernel/header_postinst.d",
        "/etc/kernel/postrm.d",
    ]
    assert hooks["call"] == ["/etc/kernel/postinst.d/zz-gpuwright"]
    none: dict[str, list[str]] = {"directories": [], "places": [], "call": []}
    assert step("verified", nodes.provisioned(), plan(driver(adopted=True)))["hooks"] == none
    assert step("verified", nodes.provisioned(os={"family": "other"}))["hooks"] == none


def test_both_modules_are_loaded_where_nothing_is_in_the_way() -> None:
    facts = loaded(None)
    load = step("verified", facts)["load"]
    assert load == {"first": "nvidia", "missing": ["nvidia", "nvidia-uvm"], "all": "nvidia and nvidia-uvm"}
    of_debian = step("verified", facts, plan(driver(kernel_module="nvidia-current-open")))["load"]
    assert of_debian["missing"] == ["nvidia-current-open", "nvidia-current-open-uvm"]
    assert step("verified", loaded())["load"]["missing"] == ["nvidia-uvm"]
    assert step("verified", nodes.provisioned())["load"] is None


@pytest.mark.parametrize("other", ["nouveau", "nova", "nova_core", "nova_drm", "nova-core", "nova-drm"])
def test_nothing_is_loaded_beside_another_driver(other: str) -> None:
    facts = loaded(None)
    facts["kernel"]["loaded"] = {other: {"version": None}}
    assert step("verified", facts)["load"] is None


def test_nothing_is_loaded_without_cards_over_another_version_or_before_a_key_is_enrolled() -> None:
    assert step("verified", loaded(None), plan(gpus=[]))["load"] is None
    assert step("verified", loaded(None), plan(provision_only=True))["load"] is None
    assert step("verified", loaded("580.126.20"))["load"] is None
    waiting = {"boot": {"signing_key": {"path": "/mok.pub", "state": "pending"}}}
    assert step("verified", loaded(None, **waiting))["load"] is None
    assert step("verified", loaded(None, **waiting), plan(driver(build="precompiled")))["load"] is not None


def test_a_loop_that_failed_is_told_by_what_its_rounds_said() -> None:
    rounds: list[dict[str, object]] = [
        {"stderr": "modprobe: ERROR: Key was rejected"},
        {"stderr": ""},
        {"skipped": True},
        {"stderr": "no"},
    ]
    assert filters.said(rounds, "stderr") == "modprobe: ERROR: Key was rejected no"
    assert filters.said([], "msg") == ""
    assert set(filters.FilterModule().filters()) == {
        "dkms_installed", "dkms_sources", "driver_left_pins", "driver_swap", "said", "taken_beyond",
    }  # fmt: skip


# --- what is beside the driver ----------------------------------------------------------------------------------------

DAEMON, KEEPER = places.PERSISTENCE_SERVICE, places.PERSISTENCE_KEEPER


def ready(facts: Any, stack: dict[str, Any] | None = None, **variables: Any) -> Any:
    return step("ready", facts, plan(stack), **variables)["ready"]


def with_daemon(enabled: str | None, keeper: str | None = None, active: str = "active", **changes: Any) -> Any:
    facts = nodes.provisioned(**changes)
    facts["services"] = {DAEMON: {"active": active, "enabled": enabled}} if enabled else {}
    if keeper:
        facts["services"][KEEPER] = {"active": "active", "enabled": keeper}
    return facts


@pytest.mark.parametrize(
    ("enabled", "units"),
    [("enabled", 1), ("disabled", 1), (None, 0), ("not-found", 0), ("masked", 0), ("static", 0)],
)
def test_the_daemon_is_enabled_where_there_is_one_that_can_be(enabled: str | None, units: int) -> None:
    found = ready(with_daemon(enabled))["units"]
    assert found == [{"name": DAEMON, "enabled": True, "state": "started"}] * units


def test_it_is_started_once_the_driver_is_loaded_and_only_where_cards_are() -> None:
    facts = with_daemon("disabled")
    facts["kernel"]["loaded"] = {}
    assert ready(facts)["units"] == [{"name": DAEMON, "enabled": True}]
    assert ready(facts, nvidia_driver_persistence=False)["units"] == []
    assert step("ready", facts, plan(gpus=[]))["ready"]["units"] == []
    assert step("ready", facts, plan(provision_only=True))["ready"]["units"] == []


def test_a_daemon_that_nothing_enables_gets_a_drop_in_and_a_keeper() -> None:
    found = ready(with_daemon("static"))
    assert found["rare"] is True
    assert found["static"]["directory"] == f"/etc/systemd/system/{DAEMON}.d"
    assert [file["path"] for file in found["static"]["files"]] == list(places.PERSISTENCE_FILES)
    assert found["static"]["unit"] == {"name": KEEPER, "enabled": True, "state": "started"}
    assert found["static"]["asks"] is True
    # The cards can only be asked where the module that is installed is the one that runs.
    assert ready(with_daemon("static", kernel={"loaded": {"nvidia": {"version": "1"}}}))["static"]["asks"] is False
    for other in (
        ready(with_daemon("static"), driver(adopted=True)),
        ready(with_daemon("static"), nvidia_driver_persistence=False),
        step("ready", with_daemon("static"), plan(gpus=[]))["ready"],
    ):
        assert other["static"] is None


@pytest.mark.parametrize(
    ("unit", "keeper", "variables", "due"),
    [
        ("enabled", "enabled", {}, True),
        ("static", "enabled", {}, False),
        ("static", "enabled", {"nvidia_driver_persistence": False}, True),
        ("enabled", "not-found", {}, False),
        ("enabled", None, {}, False),
    ],
)
def test_what_kept_another_drivers_daemon_running_is_taken_back(
    unit: str, keeper: str | None, variables: dict[str, Any], due: bool
) -> None:
    found = ready(with_daemon(unit, keeper), **variables)
    assert (found["back"] is not None) is due
    if due:
        assert found["rare"] is True
        assert (found["back"]["drop_in"], found["back"]["unit_file"]) == places.PERSISTENCE_FILES
        assert found["back"]["restart"] is True
        assert ready(with_daemon(unit, keeper, active="inactive"), **variables)["back"]["restart"] is False


FABRIC = {"packages": [], "exact": [], "services": ["nvidia-fabricmanager.service"], "modules": ["ib_umad"]}


def test_a_board_with_a_fabric_gets_its_modules_and_then_its_services() -> None:
    found = ready(nodes.provisioned(), driver(fabric=FABRIC))
    assert found["rare"] is True
    assert found["fabric"]["files"] == [
        {
            "path": fabric.MODULES_FILE,
            "content": (
                "# Written by gpuwright (role nvidia_driver). A change here is overwritten by the next run.\n"
                "# Kernel modules that the cards of this machine need beside the driver's own.\n"
                "ib_umad\n"
            ),
            "mode": "0644",
        }
    ]
    assert found["fabric"]["modules"] == ["ib_umad"]
    assert found["fabric"]["services"] == [
        {"name": "nvidia-fabricmanager.service", "enabled": True, "state": "started"}
    ]
    assert found["fabric"]["names"] == "nvidia-fabricmanager.service"
    assert found["fabric"]["driver"] == "580.178.04"
    there = ready(
        nodes.provisioned(fabric={"modules_loaded": ["ib_umad"], "manager_stale": True}), driver(fabric=FABRIC)
    )
    assert there["fabric"]["modules"] == []
    assert there["fabric"]["services"][0]["state"] == "restarted"
    # What began to compute since the plan was made goes on.
    stale = nodes.provisioned(
        fabric={"manager_stale": True}, in_use={"holders": [{"pid": 7, "name": "python3", "devices": ["nvidia0"]}]}
    )
    assert ready(stale, driver(fabric=FABRIC))["fabric"]["services"][0]["state"] == "started"


def test_nothing_of_the_fabric_starts_before_the_driver_runs_or_without_cards() -> None:
    waiting = ready(loaded("580.126.20"), driver(fabric=FABRIC))["fabric"]
    assert (waiting["modules"], waiting["services"]) == ([], [{"name": FABRIC["services"][0], "enabled": True}])
    image = step("ready", loaded(), plan(driver(fabric=FABRIC), gpus=[]))["ready"]["fabric"]
    assert (image["services"], bool(image["files"])) == ([], True)
    assert step("ready", loaded(), plan(driver(fabric={**FABRIC, "modules": []}), gpus=[]))["ready"]["fabric"] is None


@pytest.mark.parametrize(
    ("file", "name", "missing"),
    [
        ("nvidia-peermem", "nvidia-peermem", False),
        ("nvidia-current-peermem", "nvidia-current-peermem", False),
        (None, "nvidia_peermem", True),
    ],
)
def test_peermem_is_loaded_under_the_name_that_the_next_kernel_has_it_by(
    file: str | None, name: str, missing: bool
) -> None:
    found = ready(nodes.provisioned(fabric={"peermem_module": file}), driver(peermem=True))["fabric"]
    assert found["files"][0]["content"].endswith(f"own.\n{name}\n")
    assert (found["modules"], found["peermem_missing"]) == ([name], missing)
    running = {"peermem_module": file, "modules_loaded": ["nvidia_peermem"]}
    assert ready(nodes.provisioned(fabric=running), driver(peermem=True))["fabric"]["modules"] == []


def test_the_file_of_modules_goes_where_none_is_wished_and_one_is_named() -> None:
    named = ready(nodes.provisioned(fabric={"modules_at_boot": ["ib_umad"]}))
    assert (named["absent"], named["rare"]) == ([fabric.MODULES_FILE], True)
    assert (ready(nodes.provisioned())["absent"], ready(nodes.provisioned())["rare"]) == ([], False)
    assert ready(nodes.provisioned(fabric={"modules_at_boot": ["ib_umad"]}), driver(fabric=FABRIC))["absent"] == []


# --- after the way back -----------------------------------------------------------------------------------------------


def back(**changes: Any) -> dict[str, Any]:
    return {
        "version": "580.126.20",
        "source": "nvidia",
        "packages": {"libcuda1": "1"},
        "install": ["libcuda1=1"],
        "remove": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("manager", "restore", "locks", "unattended"),
    [
        ("apt", back(), False, True),
        ("apt", back(source="runfile"), True, False),
        ("dnf", back(), True, False),
        ("dnf", back(install=[]), False, False),
        ("dnf", back(source="runfile", install=[]), True, False),
    ],
)
def test_what_came_back_is_locked_as_it_was(
    manager: str, restore: dict[str, Any], locks: bool, unattended: bool
) -> None:
    found = step("restored", nodes.bare(packages={"manager": manager}), plan(restore=restore))
    assert (found["locks"], found["unattended"]) == (locks, unattended)


def test_somebody_elses_driver_that_came_back_is_left_to_them() -> None:
    facts = nodes.provisioned()
    assert step("restored", facts, {**plan(restore=back()), "stack": {}})["lock"]["absent"] == [UNATTENDED_FILE]
    assert step("restored", facts, plan(driver(adopted=True), restore=back()))["lock"]["absent"] == [UNATTENDED_FILE]
    assert step("restored", facts, plan(restore=back()))["lock"]["absent"] == []


def test_what_is_there_after_the_way_back_is_compared_with_what_worked() -> None:
    def there(of_driver: dict[str, str], **changes: Any) -> Any:
        facts = nodes.merged(nodes.bare(), changes)
        facts["driver"]["packages"] = of_driver
        return facts

    made = plan(restore=back())
    assert step("returned", there({"libcuda1": "1"}), made) == {}
    with pytest.raises(
        StepRefused,
        match=r"the 1 package of driver 580\.126\.20, .* Found driver none; packages that differ: libcuda1, x ",
    ):
        step("returned", there({"libcuda1": "2", "x": "1"}), made)
    cut = {"packages": {"interrupted": True, "interrupted_detail": "dpkg was interrupted"}}
    with pytest.raises(StepRefused, match=r"packages that differ: none dpkg was interrupted\. What to do: read"):
        step("returned", there({"libcuda1": "1"}, **cut), made)
    file = driver(source="runfile", version="580.126.20", runfile={"name": "x.run", "addresses": [], "sha256": None})
    with pytest.raises(StepRefused, match=r"Expected driver 580\.126\.20 of its file, and nothing half done"):
        step("returned", there({}), plan(file, restore=back(source="runfile", packages={})))


def test_an_uninstaller_that_left_the_driver_stops_the_run() -> None:
    made = plan(given={"uninstalled": {"rc": 1, "stdout": "said", "stderr": ""}})
    assert step("uninstalled", nodes.bare(), made) == {}
    facts = nodes.bare(driver={"owner": "runfile", "user_version": "570.86.16"})
    with pytest.raises(StepRefused, match=r"Found 570\.86\.16 still there \(exit 1\): said Nothing else was changed"):
        step("uninstalled", facts, made)


@pytest.mark.parametrize("data", ["work.fetch", "work.unlock", "now.build.reinstall", "now.lock.question"])
def test_a_call_of_apt_that_comes_as_data_restarts_no_service(data: str) -> None:
    """As test_roles.py holds every call that a task writes out."""
    files = [yaml.safe_load(path.read_text()) for path in (ROLES / "nvidia_driver/tasks").glob("*.yml")]
    named = [
        task
        for tasks in files
        for task in tasks
        if f"{{{{ __nvidia_driver_{data} }}}}"
        in str(task.get("ansible.builtin.command") or task.get("gpuwright.node.package_transaction"))
    ]
    assert named
    for task in named:
        assert task.get("environment") == "{{ __nvidia_driver_environment }}" or "dnf" in task["name"], task["name"]
