"""Cards by the names people write."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import catalogue, gpus
from ansible_collections.gpuwright.node.plugins.plugin_utils.errors import BadInput


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
    ],
)
def test_a_name_as_people_write_it_means_one_card(written: str, meant: str, rules: dict[str, Any]) -> None:
    assert gpus.identify(written, rules)["name"] == meant


def test_a_name_of_cards_that_differ_is_refused_and_they_are_named(rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        gpus.identify("RTX 6000", rules)
    assert {"Quadro RTX 6000", "RTX 6000 Ada"} <= set(caught.value.suggestions)


@pytest.mark.parametrize(
    ("wrong", "near"), [("H1000", "H100"), ("RTX 4900", "RTX 4090"), ("Tesla V10", "V100"), ("A6001", "A6000")]
)
def test_an_unknown_name_brings_near_ones(wrong: str, near: str, rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        gpus.identify(wrong, rules)
    assert any(near in suggestion for suggestion in caught.value.suggestions), caught.value.suggestions


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


def test_without_a_pattern_every_card_is_listed(rules: dict[str, Any]) -> None:
    assert len(catalogue.find(None, rules)) == len(rules["gpus"]["rows"])


def test_an_architecture_is_a_pattern_too(rules: dict[str, Any]) -> None:
    assert {card["architecture"] for card in catalogue.find("hopper", rules)} == {"Hopper"}


def test_a_pattern_without_a_card_is_bad_input(rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        catalogue.find("voodoo 2", rules)
