"""Cards by the names people write."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import catalogue
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import machine_from_options
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus

from .conftest import TODAY, Resolve


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("H100", "H100 SXM5 80GB"),
        ("h100 pcie", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("rtx 4090", "GeForce RTX 4090"),
        ("RTX4090", "GeForce RTX 4090"),
        ("GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "GeForce RTX 4090 D"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("V100", "Tesla V100 SXM2 16GB"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 32GB"),
        ("T4", "Tesla T4"),
        ("1080ti", "GeForce GTX 1080 Ti"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA GH200 480GB", "GH200 96GB (Grace Hopper)"),
        ("a6000", "RTX A6000"),
        ("4090", "GeForce RTX 4090"),
        ("rtx 4090 laptop", "GeForce RTX 4090 Laptop GPU"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop GPU"),
        ("4090m", "GeForce RTX 4090 Laptop GPU"),
        ("4090D", "GeForce RTX 4090 D"),
        ("3050 laptop", "GeForce RTX 3050 Laptop GPU"),
        ("3060", "GeForce RTX 3060 12GB"),
        ("3060 mobile", "GeForce RTX 3060 Laptop GPU"),
        ("3080 Max-Q", "GeForce RTX 3080 Laptop GPU"),
        ("GeForce GTX 1060 with Max-Q Design", "GeForce GTX 1060 Mobile"),
        ("GeForce GTX 1650 with Max-Q Design", "GeForce GTX 1650 Mobile / Max-Q"),
        ("gtx 1650", "GeForce GTX 1650"),
        ("rtx 2050", "GeForce RTX 2050"),
        ("rtx 2050 laptop", "GeForce RTX 2050"),
        ("MX 450", "GeForce MX450"),
        ("t1000", "T1000"),
        ("Quadro T1000", "Quadro T1000 Mobile / Max-Q"),
        ("gt 1030", "GeForce GT 1030"),
        ("gt1030", "GeForce GT 1030"),
        ("P620", "Quadro P620"),
        ("rtx a1000", "RTX A1000"),
        ("NVIDIA RTX A1000 Laptop GPU", "RTX A1000 Laptop GPU"),
        ("RTX PRO 6000 Max-Q", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU", "RTX PRO 2000 Blackwell Generation Laptop GPU"),
        ("10de:2684", "GeForce RTX 4090"),
        ("NVIDIA Tesla K20m", "Tesla K20m"),
        ("GTX 780", "GeForce GTX 780"),
        ("gtx titan", "GeForce GTX TITAN"),
        ("Quadro K4000", "Quadro K4000"),
        ("Quadro 6000", "Quadro 6000"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("10de:06dd", "Quadro 4000"),
    ],
)
def test_a_name_as_people_write_it_means_one_card(written: str, meant: str, rules: dict[str, Any]) -> None:
    assert gpus.identify(written, rules)["name"] == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("8xH100", ["H100 SXM5 80GB"]),
        ("4 x A100 80GB", ["A100 SXM4 80GB"]),
        ("4090x2", ["GeForce RTX 4090"]),
        ("H100 PCIe x 8", ["H100 PCIe"]),
        ("GTX 780", ["GeForce GTX 780"]),
        ("A100 80GB + 4090", ["A100 SXM4 80GB", "GeForce RTX 4090"]),
        ("1080 ti, T4", ["GeForce GTX 1080 Ti", "Tesla T4"]),
    ],
)
def test_several_cards_are_read_as_people_write_them(rules: Any, written: str, meant: list[str]) -> None:
    machine = machine_from_options([written], "ubuntu-24.04", "x86_64", None, rules, today=TODAY)
    assert [card.name for card in machine.cards] == meant


def test_a_name_of_cards_that_differ_is_refused_and_they_are_named(rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        gpus.identify("RTX 6000", rules)
    assert {"Quadro RTX 6000", "RTX 6000 Ada"} <= set(caught.value.suggestions)


def test_a_name_that_was_given_to_several_chips_asks_which(rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        gpus.identify("GT 730", rules)
    assert len(caught.value.suggestions) == 3


def test_every_card_is_found_by_its_own_name(rules: dict[str, Any]) -> None:
    for row in rules["gpus"]["rows"]:
        assert gpus.identify(row["name"], rules)["name"] == row["name"]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("H1000", "H100 PCIe"),
        ("RTX 4900", "GeForce RTX 4090"),
        ("4900", "GeForce RTX 4090"),
        ("4090ti", "GeForce RTX 4090"),
        ("RTX 6090", "GeForce RTX 5090"),
        ("Tesla V10", "Tesla V100 PCIe 16GB"),
        ("A6001", "RTX A6000"),
        ("L41", "L40"),
        ("titam rtx", "TITAN RTX"),
    ],
)
def test_an_unknown_name_brings_the_nearest_one_of_its_family_first(
    wrong: str, near: str, rules: dict[str, Any]
) -> None:
    with pytest.raises(BadInput) as caught:
        gpus.identify(wrong, rules)
    assert caught.value.suggestions[0] == near, caught.value.suggestions


def test_a_pci_id_finds_its_card_with_and_without_the_vendor(rules: dict[str, Any]) -> None:
    for device in ("2330", "10de:2330"):
        row = gpus.by_pci(device, rules)
        assert row is not None
        assert row["name"] == "H100 SXM5 80GB"
    assert gpus.by_pci("ffff", rules) is None


def test_a_card_that_no_row_names_is_known_by_its_range(rules: dict[str, Any]) -> None:
    mobile = gpus.by_range("249d", rules)
    assert mobile is not None
    assert (mobile["architecture"], mobile["compute_capability"]) == ("Ampere", "8.6")


def test_a_search_tells_what_a_person_asks_about_a_card(rules: dict[str, Any]) -> None:
    (card,) = catalogue.find("V100 SXM2 16GB", rules)
    assert card["branches"][-1] == "580"
    assert card["modules"] == ["proprietary"]
    assert card["cuda"][-1] == "12.9"
    assert card["pytorch"] == "2.14.1+cu126"


@pytest.mark.parametrize(
    ("name", "architecture", "capability"),
    [
        ("GeForce MX130", "Maxwell", "5.0"),
        ("GeForce GTX 970M", "Maxwell", "5.2"),
        ("GeForce GT 1030", "Pascal", "6.1"),
        ("GeForce GTX 1650 Mobile / Max-Q", "Turing", "7.5"),
        ("GeForce RTX 2050", "Ampere", "8.6"),
        ("GeForce RTX 4050 Laptop GPU", "Ada", "8.9"),
        ("GeForce RTX 5090 Laptop GPU", "Blackwell", "12.0"),
        ("GeForce GT 710", "Kepler", "3.5"),
        ("GeForce GT 730 (GF108)", "Fermi", "2.1"),
        ("NVS 510", "Kepler", "3.0"),
        ("GeForce GTX 880M", "Kepler", "3.0"),
        ("Tesla K20", "Kepler", "3.5"),
        ("Tesla M2090", "Fermi", "2.0"),
    ],
)
def test_a_laptop_or_display_card_is_what_its_chip_is(
    name: str, architecture: str, capability: str, rules: dict[str, Any]
) -> None:
    row = gpus.identify(name, rules)
    assert (row["architecture"], row["compute_capability"]) == (architecture, capability)


@pytest.mark.parametrize(
    ("device", "architecture", "capability"),
    [("0df4", "Fermi", "2.1"), ("1140", "Fermi", "2.1"), ("103f", "Kepler", "3.5"), ("11a9", "Kepler", "3.0")],
)
def test_a_device_of_an_old_chip_that_no_row_names_is_of_its_range(
    device: str, architecture: str, capability: str, rules: dict[str, Any]
) -> None:
    row = gpus.by_range(device, rules)
    assert gpus.by_pci(device, rules) is None
    assert row is not None
    assert (row["architecture"], row["compute_capability"]) == (architecture, capability)


@pytest.mark.parametrize(
    ("card", "branch", "last"),
    [
        ("GTX 780", "510", "470"),
        ("Quadro K4000", "535", "470"),
        ("GTX 860M (GK104)", "580", "470"),
        ("Tesla V100", "590", "580"),
    ],
)
def test_a_branch_that_no_longer_drives_a_card_is_refused_with_the_last_that_does(
    card: str, branch: str, last: str, resolve: Resolve
) -> None:
    first = resolve(card, "ubuntu-22.04", f"driver={branch}")["conflicts"][0]
    assert first["rule"] == "driver.card"
    assert first["text"].endswith(f"; {last} is the last that does")


@pytest.mark.parametrize("wanted", ["driver", "driver=390", "driver=470", "driver=580"])
@pytest.mark.parametrize("os", ["ubuntu-22.04", "ubuntu-24.04", "debian-13", "rocky-9"])
def test_a_card_whose_branches_no_system_carries_is_left_alone_whatever_branch_is_asked_for(
    os: str, wanted: str, resolve: Resolve
) -> None:
    (told,) = resolve("GTX 580", os, wanted)["conflicts"]
    assert told["rule"] == "driver.card"
    assert told["text"] == (
        "the GeForce GTX 580 (compute capability 2.0) is driven by branch 390 alone, "
        "and no source of it is known for any system that is served"
    )
    assert told["remedy"] == "leave the card unmanaged: gpuwright_gpus_ignore: ['GeForce GTX 580']"


@pytest.mark.parametrize("wanted", ["driver", "driver=390", "driver=470"])
def test_a_card_whose_branches_another_system_carries_is_sent_there(wanted: str, resolve: Resolve) -> None:
    (told,) = resolve("GTX 680", "ubuntu-24.04", wanted)["conflicts"]
    assert told["text"].endswith("is driven by branches 390 to 470, and no source for ubuntu-24.04 carries one")
    assert told["remedy"].startswith(
        "use ubuntu-22.04 or rhel-8 or rocky-8 or almalinux-8, or leave the card unmanaged"
    )
    assert resolve("GTX 680", "ubuntu-22.04", "driver")["ok"]


def test_what_one_source_lacks_is_not_said_of_every_source(resolve: Resolve) -> None:
    (told,) = resolve("RTX 5090", "debian-13", "driver=580", "driver-source=distro")["conflicts"]
    assert told["text"] == "branch 580 is not to be had from distro for debian-13"


def test_a_branch_before_a_card_names_no_last_one(resolve: Resolve) -> None:
    first = resolve("RTX 5090", "ubuntu-22.04", "driver=535")["conflicts"][0]
    assert first["text"].endswith("(compute capability 12.0)")


def test_a_toolkit_that_dropped_a_card_is_refused_with_the_last_that_has_it(resolve: Resolve) -> None:
    first = resolve("GTX 680", "ubuntu-22.04", "cuda=11.8")["conflicts"][0]
    assert first["text"].endswith("; 10.2 is the last that has")


def test_a_chip_has_one_compute_capability(rules: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    for row in rules["gpus"]["rows"]:
        for chip in row["chip"].split("/"):
            assert seen.setdefault(chip, row["compute_capability"]) == row["compute_capability"], row["name"]


def test_a_device_id_names_two_cards_only_where_memory_tells_them_apart(rules: dict[str, Any]) -> None:
    named: dict[str, list[str]] = {}
    for row in rules["gpus"]["rows"]:
        for device in row["pci"]:
            named.setdefault(device, []).append(row["name"])
    assert {device for device, names in named.items() if len(names) > 1} == {"1e30", "25b6"}


def test_the_first_driver_of_a_card_is_the_one_of_the_list_of_first_builds(rules: dict[str, Any]) -> None:
    listed = {
        row["pci"]: min(row["first"], key=numeric_version.key) for row in rules["driver_branches"]["first_builds"]
    }
    for row in rules["gpus"]["rows"]:
        found = [listed[device] for device in row["pci"] if device in listed]
        if found:
            assert row["first_driver"] == min(found, key=numeric_version.key), row["name"]


def test_a_laptop_card_is_driven_from_the_build_on_that_names_it(resolve: Resolve) -> None:
    refused = resolve("RTX 4090 laptop", "ubuntu-22.04", "driver=525.60.13")
    assert "driver.floor-card" in {entry["rule"] for entry in refused["conflicts"]}
    assert resolve("RTX 4090 laptop", "ubuntu-22.04", "driver=525.89.02")["ok"]


@pytest.mark.parametrize("card", ["T4", "RTX 2080 Ti", "A100 SXM4 40GB", "GTX 1650 mobile", "RTX 3060 laptop"])
def test_a_card_older_than_the_list_of_cards_is_driven_as_its_architecture_is(card: str, resolve: Resolve) -> None:
    assert resolve(card, "ubuntu-22.04", "driver=470")["ok"]


def test_a_branch_whose_list_skips_a_card_does_not_drive_it(resolve: Resolve) -> None:
    refused = resolve("RTX PRO 6000D Blackwell Workstation", "ubuntu-24.04", "driver=595")
    assert "driver.card" in {entry["rule"] for entry in refused["conflicts"]}


def test_a_kepler_display_card_gets_its_last_branch_with_a_warning_or_a_conflict_that_says_where(
    resolve: Resolve,
) -> None:
    old = resolve("GT 710", "ubuntu-22.04")
    assert old["stack"]["driver"]["branch"] == "470"
    assert "driver.end-of-life" in {entry["rule"] for entry in old["warnings"]}
    (refused,) = resolve("GT 710", "debian-13")["conflicts"]
    assert "ubuntu-22.04" in refused["remedy"]


def test_a_card_that_no_system_has_a_driver_for_can_only_be_left_unmanaged(resolve: Resolve) -> None:
    (refused,) = resolve("NVS 315", "ubuntu-22.04")["conflicts"]
    assert "branch 390 alone" in refused["text"]
    assert refused["remedy"] == "leave the card unmanaged: gpuwright_gpus_ignore: ['NVS 315']"


def test_a_search_lists_the_card_for_a_slot_before_the_laptops(rules: dict[str, Any]) -> None:
    names = [card["name"] for card in catalogue.find("4090", rules)]
    assert names == ["GeForce RTX 4090", "GeForce RTX 4090 D", "GeForce RTX 4090 Laptop GPU"]


def test_a_search_takes_a_pci_id(rules: dict[str, Any]) -> None:
    assert [card["name"] for card in catalogue.find("2757", rules)] == ["GeForce RTX 4090 Laptop GPU"]


def test_what_fits_a_card_is_what_the_resolver_answers(rules: dict[str, Any], resolve: Resolve) -> None:
    (card,) = catalogue.find("RTX 4090 laptop", rules, today=TODAY)
    assert card["driver"]["preferred"] == "580"
    assert {each["branch"]: each["state"] for each in card["driver"]["branches"]}["535"] == "ended"
    for name, versions in card["frameworks"].items():
        for python, chosen in versions.items():
            stack = resolve("RTX 4090 laptop", "ubuntu-22.04", name, python=python)["stack"]
            assert (stack["frameworks"][0]["version"], stack["frameworks"][0]["variant"]) == (
                chosen["version"],
                chosen["variant"],
            )
    assert set(card["frameworks"]) == {"pytorch", "tensorflow", "jax", "onnxruntime"}


def test_what_fits_an_old_card_stops_where_its_support_does(rules: dict[str, Any]) -> None:
    (card,) = catalogue.find("Quadro P620 mobile", rules, today=TODAY)
    assert card["driver"]["branches"][-1]["branch"] == "580"
    assert card["cuda"][-1] == "12.9"
    assert card["cudnn"] == {"first": None, "last": "9.10.2.21"}
    (kepler,) = catalogue.find("K80", rules, today=TODAY)
    assert kepler["cudnn"]
    assert kepler["cudnn"]["last"] == "8.7.0.84"
    assert [each["os"] for each in kepler["systems"] if each["branch"]] == [
        "ubuntu-22.04",
        "rhel-8",
        "rocky-8",
        "almalinux-8",
    ]
    (fermi,) = catalogue.find("NVS 315", rules, today=TODAY)
    assert (fermi["cudnn"], fermi["cuda"], fermi["frameworks"], fermi["pytorch"]) == (None, [], {}, None)


def test_a_card_on_an_arm_board_is_asked_for_with_arm_wheels(rules: dict[str, Any], resolve: Resolve) -> None:
    (card,) = catalogue.find("GB200", rules, today=TODAY)
    arm = resolve("GB200", "ubuntu-22.04", "pytorch", arch="aarch64", python="3.12")["stack"]["frameworks"][0]
    assert card["frameworks"]["pytorch"]["3.12"] == {"version": arm["version"], "variant": arm["variant"]}


def test_without_a_pattern_every_card_is_listed(rules: dict[str, Any]) -> None:
    assert len(catalogue.find(None, rules)) == len(rules["gpus"]["rows"])


def test_of_many_cards_all_but_the_other_frameworks_is_told(rules: dict[str, Any]) -> None:
    every = catalogue.find("RTX 50", rules, today=TODAY)
    brief = catalogue.find("RTX 50", rules, today=TODAY, few=len(every) - 1)
    assert [{**card, "frameworks": {"pytorch": card["frameworks"]["pytorch"]}} for card in every] == brief
    assert catalogue.find("RTX 50", rules, today=TODAY, few=len(every)) == every


def test_an_architecture_is_a_pattern_too(rules: dict[str, Any]) -> None:
    for name in ("hopper", "Blackwell"):
        found = [card["name"] for card in catalogue.find(name, rules)]
        assert found == [row["name"] for row in rules["gpus"]["rows"] if row["architecture"] == name.capitalize()]


def test_a_pattern_without_a_card_is_bad_input(rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        catalogue.find("voodoo 2", rules)


# of others, and boards ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("MI300X", "AMD"),
        ("AMD Instinct MI250", "AMD"),
        ("mi210", "AMD"),
        ("RX 7900 XTX", "AMD"),
        ("rx480", "AMD"),
        ("Radeon Pro W7900", "AMD"),
        ("Vega 64", "AMD"),
        ("RX 6950 XT", "AMD"),
        ("rx7900xtx", "AMD"),
        ("RX 9070", "AMD"),
        ("RX 5700 XT", "AMD"),
        ("R9 290", "AMD"),
        ("r7 240", "AMD"),
        ("W6800", "AMD"),
        ("Arc A770", "Intel"),
        ("B580", "Intel"),
        ("Data Center GPU Max 1550", "Intel"),
        ("Flex 170", "Intel"),
        ("Gaudi 2", "Intel"),
        ("Gaudi2", "Intel"),
        ("gaudi", "Intel"),
    ],
)
def test_a_gpu_of_another_maker_is_told_from_an_unknown_card(name: str, maker: str, rules: dict[str, Any]) -> None:
    for asked in (gpus.identify, gpus.matching):
        with pytest.raises(
            BadInput, match=f"is a GPU of {maker}: nothing is set up for GPUs of AMD and Intel"
        ) as caught:
            asked(name, rules)
        assert caught.value.suggestions == []
    assert gpus.suggest(name, rules) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("RX 4090", "GeForce RTX 4090"),
        ("RX 5090", "GeForce RTX 5090"),
        ("rx 3090 ti", "GeForce RTX 3090 Ti"),
        ("Quadro RX 5000", "Quadro RTX 5000"),
        ("RX 6000 Ada", "RTX 6000 Ada"),
        ("NVIDIA RX 3060", "GeForce RTX 3060"),
    ],
)
def test_an_rtx_without_its_t_is_no_card_of_amd(written: str, meant: str, rules: dict[str, Any]) -> None:
    assert gpus.maker(written, rules) is None
    for asked in (gpus.identify, gpus.matching):
        with pytest.raises(BadInput) as caught:
            asked(written, rules)
        assert any(name.startswith(meant) for name in caught.value.suggestions), caught.value.suggestions


def test_no_card_of_nvidia_is_taken_for_one_of_another_maker(rules: dict[str, Any]) -> None:
    strangers = {row["name"]: gpus.maker(row["name"], rules) for row in rules["gpus"]["rows"]}
    assert {name: maker for name, maker in strangers.items() if maker} == {}


@pytest.mark.parametrize(
    ("written", "meant", "capability"),
    [
        ("Jetson Nano", "Jetson Nano", "5.3"),
        ("jetson tx2", "Jetson TX2", "6.2"),
        ("Xavier NX", "Jetson Xavier NX", "7.2"),
        ("Jetson AGX Orin 32GB", "Jetson AGX Orin 32GB", "8.7"),
        ("Jetson Orin NX 8GB", "Jetson Orin NX 8GB", "8.7"),
        ("Jetson Orin Nano Super", "Jetson Orin Nano Super 8GB", "8.7"),
        ("Jetson Orin", "Jetson AGX Orin 64GB", "8.7"),
        ("T4000", "Jetson Thor (T4000)", "11.0"),
    ],
)
def test_the_boards_named_jetson_are_known(written: str, meant: str, capability: str, rules: dict[str, Any]) -> None:
    row = gpus.identify(written, rules)
    assert (row["name"], row["compute_capability"]) == (meant, capability)


def test_a_jetson_that_is_only_named_has_an_arm_processor(rules: dict[str, Any]) -> None:
    where = machine_from_options(["Jetson Orin Nano"], "ubuntu-22.04", None, None, rules)
    assert (where.arch, where.assumed["arch"], where.environment) == ("aarch64", "aarch64", "jetson")


# cards on one board with a processor ---------------------------------------------------------------------


@pytest.mark.parametrize("card", ["GB200", "GH200", "GB300", "DGX Spark", "Jetson AGX Thor (T5000)"])
def test_a_card_on_a_board_with_an_arm_processor_is_of_an_arm_machine(card: str, rules: dict[str, Any]) -> None:
    where = machine_from_options([card], "ubuntu-24.04", None, None, rules)
    assert (where.arch, where.assumed["arch"]) == ("aarch64", "aarch64")
    assert machine_from_options([card], "ubuntu-24.04", "arm64", None, rules).arch == "aarch64"
    with pytest.raises(BadInput, match="there is none with x86_64") as caught:
        machine_from_options([card], "ubuntu-24.04", "x86_64", None, rules)
    assert "--arch aarch64" in caught.value.suggestions


def test_a_card_for_a_slot_is_of_whatever_machine_is_said(rules: dict[str, Any]) -> None:
    for arch in ("x86_64", "aarch64"):
        assert machine_from_options(["GeForce RTX 4090"], "ubuntu-24.04", arch, None, rules).arch == arch
