"""The driver as NVIDIA's file, and one that another looks after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import machine_from_facts
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

from .conftest import TODAY
from .test_observed import Answer, Facts, stack, with_driver

Resolve = Callable[..., dict[str, Any]]
SHA256 = "ab" * 32
GIVEN = {"nvidia_driver_runfile_sha256": SHA256.upper()}
DGX = {"kind": "dgx-os", "owner": "NVIDIA's DGX OS", "evidence": "/etc/dgx-release"}


def runfile(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = stack(answer)["driver"]["runfile"]
    return found


def rules_of(answer: dict[str, Any]) -> set[str]:
    assert not answer["ok"], answer
    return {entry["rule"] for entry in answer["conflicts"]}


# --- which file -------------------------------------------------------------------------------------------------------


def test_a_file_comes_from_nvidia_with_the_tools_that_it_builds_with(resolve: Resolve) -> None:
    answer = resolve("H100", "debian-13", "driver-source=runfile", "driver=580.126.20", wish=GIVEN)
    driver = stack(answer)["driver"]
    assert (driver["version"], driver["build"], driver["kernel_module"]) == ("580.126.20", "dkms", "nvidia")
    assert driver["packages"] == ["linux-headers-amd64", "dkms", "gcc", "libc6-dev", "make"]
    assert driver["pin"] == {}
    assert stack(answer)["repositories"] == []
    assert runfile(answer)["sha256"] == SHA256
    assert runfile(answer)["addresses"] == [
        "https://us.download.nvidia.com/tesla/580.126.20/NVIDIA-Linux-x86_64-580.126.20.run",
        "https://us.download.nvidia.com/XFree86/Linux-x86_64/580.126.20/NVIDIA-Linux-x86_64-580.126.20.run",
    ]


def test_a_mirror_and_a_path_take_nvidias_place(resolve: Resolve) -> None:
    mirrored = resolve(
        "H100",
        "debian-13",
        "driver-source=runfile",
        wish={**GIVEN, "gpuwright_mirrors": {"nvidia-runfile": "http://mirror.example/d/"}},
    )
    assert runfile(mirrored)["addresses"][0].startswith("http://mirror.example/d/tesla/580.178.04/")
    own = resolve(
        "H100", "debian-13", "driver-source=runfile", wish={**GIVEN, "nvidia_driver_runfile": "/srv/NVIDIA.run"}
    )
    assert runfile(own)["addresses"] == ["/srv/NVIDIA.run"]


def test_without_a_build_it_is_the_newest_of_the_branch(resolve: Resolve, rules: dict[str, Any]) -> None:
    newest = next(row["latest"] for row in rules["driver_branches"]["rows"] if row["branch"] == "595")
    driver = stack(resolve("H100", "debian-13", "driver-source=runfile", "driver=595", wish=GIVEN))["driver"]
    assert driver["version"] == newest


def test_no_file_is_run_without_a_checksum(resolve: Resolve) -> None:
    answer = resolve("H100", "debian-13", "driver-source=runfile", "driver=580.126.20")
    assert rules_of(answer) == {"driver.runfile-checksum"}
    assert "nvidia_driver_runfile_sha256" in answer["conflicts"][0]["remedy"]
    assert "580.95.05" in answer["conflicts"][0]["remedy"]
    known = resolve("H100", "debian-13", "driver-source=runfile", "driver=580.95.05")
    assert runfile(known)["sha256"].startswith("849ef0ef")


def test_a_checksum_that_is_none_is_bad_input(resolve: Resolve) -> None:
    with pytest.raises(BadInput, match="64 hexadecimal"):
        resolve("H100", "debian-13", wish={"nvidia_driver_runfile_sha256": "abc"})


@pytest.mark.parametrize(
    ("card", "version", "flavour"),
    [
        ("H100", "550.163.01", "--kernel-module-build-directory=kernel-open"),
        ("V100", "550.163.01", "--kernel-module-build-directory=kernel"),
        ("H100", "555.58.02", "--kernel-module-type=open"),
        ("V100", "580.178.04", "--kernel-module-type=proprietary"),
    ],
)
def test_the_flavour_is_named_as_the_branchs_installer_takes_it(
    resolve: Resolve, card: str, version: str, flavour: str
) -> None:
    answer = resolve(card, "debian-12", "driver-source=runfile", f"driver={version}", wish=GIVEN)
    arguments = runfile(answer)["arguments"]
    assert [word for word in arguments if word.startswith("--kernel-module")] == [flavour]
    assert arguments[:2] == ["--silent", "--dkms"]


def test_a_desktop_gets_its_libraries_and_a_server_does_not(resolve: Resolve) -> None:
    server = resolve("RTX 4090", "debian-13", "driver-source=runfile", wish=GIVEN)
    desktop = resolve("RTX 4090", "debian-13", "driver-source=runfile", wish=GIVEN, desktop="true")
    assert "--no-opengl-files" in runfile(server)["arguments"]
    assert "--no-opengl-files" not in runfile(desktop)["arguments"]
    assert runfile(desktop)["with_session"] == ["--no-x-check"]
    assert "--no-x-check" not in runfile(desktop)["arguments"]


def test_an_installer_that_needs_everything_unloaded_is_not_served(resolve: Resolve) -> None:
    assert not resolve("H100", "debian-12", "driver-source=runfile", "driver=535", wish=GIVEN)["ok"]


def test_nvswitches_need_a_fabric_manager_that_no_file_brings(resolve: Resolve) -> None:
    answer = resolve("H100", "debian-13", "driver-source=runfile", wish=GIVEN, nvswitch="true")
    assert rules_of(answer) == {"driver.runfile-fabric"}


def test_a_file_does_not_write_over_packages(facts: Facts, answer: Answer) -> None:
    found = answer(with_driver(facts, "580.95.05"), "driver-source=runfile", wish=GIVEN)
    assert rules_of(found) == {"driver.runfile-packages"}


def test_a_file_that_is_there_needs_no_checksum_and_stays(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts, "driver-source=runfile", "driver=580.126.20", wish=GIVEN))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": fresh}}
    driver = stack(answer(with_driver(facts, "580.126.20", owner="runfile", source="runfile")))["driver"]
    assert (driver["source"], driver["version"], driver["runfile"]["sha256"]) == ("runfile", "580.126.20", "ab" * 32)
    fresh["runfile"]["sha256"] = None
    driver = stack(answer(with_driver(facts, "580.126.20", owner="runfile", source="runfile")))["driver"]
    assert (driver["version"], driver["runfile"]["sha256"]) == ("580.126.20", None)


@pytest.mark.parametrize(
    ("there", "moves", "leads_to"),
    [("580.65.06", True, "580.95.05"), ("580.65.06", False, "580.65.06"), ("580.126.20", True, "580.126.20")],
)
def test_an_upgrade_of_a_file_goes_to_the_newest_build_that_has_a_checksum(
    facts: Facts, there: str, *, moves: bool, leads_to: str
) -> None:
    given = Wish.from_variables({**GIVEN, "nvidia_driver_source": "runfile", "nvidia_driver_version": there})
    rules = load_rules()
    fresh = resolver.resolve(machine_from_facts(facts, given, rules, today=TODAY), given, rules)["stack"]["driver"]
    seen = with_driver(facts, there, owner="runfile", source="runfile")
    seen["seals"] = {"nvidia_driver": {"state": "good", "stack": fresh}}
    where = replace(machine_from_facts(seen, Wish(), rules, today=TODAY), moves=moves)
    assert resolver.resolve(where, Wish(), rules)["stack"]["driver"]["version"] == leads_to


def test_a_file_in_force_gives_way_to_the_branch_that_is_asked_for(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts, "driver-source=runfile", "driver=570.211.01", wish=GIVEN))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": fresh}}
    there = with_driver(facts, "570.211.01", owner="runfile", source="runfile")
    driver = stack(answer(there, "driver=580", wish=GIVEN))["driver"]
    assert (driver["source"], driver["branch"], driver["version"]) == ("runfile", "580", "580.178.04")


# --- packages in the place of a file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("works", [True, False])
def test_packages_that_are_asked_for_take_its_place(facts: Facts, answer: Answer, works: bool) -> None:
    there = with_driver(facts, "570.211.01", owner="runfile", source="runfile")
    if not works:
        there["driver"] |= {"loaded_version": None, "loaded_modules": None}
        there["kernel"]["available"] = {}
    found = answer(there, "driver=580", "driver-source=nvidia")
    assert stack(found)["driver"]["displaces"] == ("570.211.01" if works else "unknown")
    assert "driver.displaces" in {entry["rule"] for entry in found["why"]}
    unasked = answer(there, "driver=580")
    assert not unasked["ok"]
    assert ".run file" in unasked["conflicts"][0]["text"]


# --- preinstalled -----------------------------------------------------------------------------------------------------


def test_the_driver_of_an_image_is_used_as_it_is(facts: Facts, answer: Answer) -> None:
    there = with_driver(facts, "570.211.01", source="distro")
    there["driver"]["image"] = DGX
    found = answer(there)
    driver = stack(found)["driver"]
    assert (driver["source"], driver["adopted"], driver["packages"]) == ("preinstalled", True, [])
    assert any("NVIDIA's DGX OS" in entry["text"] and "/etc/dgx-release" in entry["text"] for entry in found["why"])


def test_a_wish_that_it_does_not_satisfy_names_its_owner(facts: Facts, answer: Answer) -> None:
    there = with_driver(facts, "570.211.01", source="nvidia")
    there["driver"]["image"] = DGX
    found = answer(there, "driver=580")
    assert not found["ok"]
    assert "NVIDIA's DGX OS" in found["conflicts"][0]["text"]
    assert stack(answer(there, "driver=580", "driver-source=nvidia"))["driver"]["source"] == "nvidia"


@pytest.mark.parametrize("wants", [(), ("driver-source=preinstalled",)])
def test_an_image_whose_driver_does_not_work_is_refused(facts: Facts, answer: Answer, wants: tuple[str, ...]) -> None:
    facts["driver"]["image"] = DGX
    found = answer(facts, "driver", *wants)
    assert rules_of(found) == {"driver.preinstalled"}
    assert "NVIDIA's DGX OS" in found["conflicts"][0]["text"]
    assert "driver-source=nvidia" in found["conflicts"][0]["remedy"]


def test_preinstalled_can_be_asked_for_anywhere(facts: Facts, answer: Answer) -> None:
    driver = stack(answer(with_driver(facts, "580.95.05", owner="unknown", source=None), "driver-source=preinstalled"))[
        "driver"
    ]
    assert (driver["source"], driver["adopted"]) == ("preinstalled", True)


def test_what_gpuwright_put_onto_an_image_stays_its_own(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts, "driver-source=nvidia"))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": fresh}}
    there = with_driver(facts, "580.178.04")
    there["driver"]["image"] = DGX
    assert stack(answer(there))["driver"]["source"] == "nvidia"
