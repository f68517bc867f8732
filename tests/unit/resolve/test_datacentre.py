"""What only data-centre machines have: fabric manager, NSCQ, IMEX, nvidia-peermem, MIG layouts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.mig.resolve import fits
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput, Wish

from .conftest import FACTS, TODAY, Resolve


def stack(answer: Any) -> Any:
    assert answer["ok"], answer
    return dict(answer["stack"])


def conflicts(answer: Any) -> dict[str, dict[str, str]]:
    assert not answer["ok"]
    return {entry["rule"]: entry for entry in answer["conflicts"]}


# the fabric --------------------------------------------------------------------------------------------


def test_switches_bring_the_fabric_manager_and_what_asks_the_switches(resolve: Resolve) -> None:
    fabric = stack(resolve("H100", "ubuntu-24.04", nvswitch="true"))["driver"]["fabric"]
    assert fabric["exact"] == ["nvidia-fabricmanager", "libnvidia-nscq"]
    assert fabric["services"] == ["nvidia-fabricmanager.service"]
    assert fabric["modules"] == []


def test_on_nvlink_5_the_subnet_manager_and_its_module_come_too_with_versions_of_their_own(resolve: Resolve) -> None:
    driver = stack(resolve("B200", "ubuntu-24.04", nvswitch="true"))["driver"]
    assert driver["fabric"]["modules"] == ["ib_umad"]
    assert {"nvlsm", "infiniband-diags"} <= set(driver["packages"])
    assert not {"nvlsm", "infiniband-diags"} & set(driver["fabric"]["exact"])


@pytest.mark.parametrize(
    ("cards", "modules"),
    [
        (["H100 SXM5 80GB"] * 8, []),
        (["H200 SXM"] * 8, []),
        (["A100 SXM4 80GB"] * 8, []),
        (["B200 SXM"] * 8, ["ib_umad"]),
        (["B300 SXM6"] * 8, ["ib_umad"]),
    ],
)
def test_eight_cards_of_the_form_sxm_are_taken_for_a_board_with_switches(
    resolve: Resolve, cards: list[str], modules: list[str]
) -> None:
    answer = resolve(cards, "ubuntu-24.04")
    assert answer["assumed"]["nvswitch"] is True
    assert stack(answer)["driver"]["fabric"]["modules"] == modules
    (said,) = (entry["text"] for entry in answer["why"] if entry["rule"] == "driver.fabric-assumed")
    assert (
        said == "8 cards of the form SXM are a board with NVSwitches; say --assume nvswitch=false where there are none"
    )


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        (["H100 SXM5 80GB"] * 7, {}),
        (["H100 PCIe 80GB"] * 8, {}),
        (["V100 SXM2 16GB"] * 8, {}),
        (["H100 SXM5 80GB"] * 8, {"nvswitch": "false"}),
    ],
)
def test_other_cards_are_not_taken_for_a_board_with_switches(
    resolve: Resolve, cards: list[str], said: dict[str, str]
) -> None:
    answer = resolve(cards, "ubuntu-24.04", **said)
    assert "nvswitch" not in answer["assumed"]
    assert "fabric" not in stack(answer)["driver"] or not stack(answer)["driver"]["fabric"]


def test_a_host_whose_fabric_only_its_ports_tell_has_one_too(rules: Any) -> None:
    facts = copy.deepcopy(FACTS)
    facts["pci"] |= {"nvswitches": [], "nvlink5": True}
    where = machine.machine_from_facts(facts, Wish(), rules, today=TODAY)
    fabric = stack(resolver.resolve(where, Wish.from_wants(["driver"], rules), rules))["driver"]["fabric"]
    assert fabric["services"] == ["nvidia-fabricmanager.service"]
    assert fabric["modules"] == ["ib_umad"]


def test_what_the_distribution_does_not_carry_is_a_conflict_that_names_who_does(resolve: Resolve) -> None:
    found = conflicts(resolve("B200", "ubuntu-24.04", "driver-source=distro", nvswitch="true"))
    assert "driver-source=nvidia" in found["driver.nvlsm"]["remedy"]


@pytest.mark.parametrize(
    ("card", "wished", "there"),
    [("GB200", "auto", True), ("GB200", False, False), ("H100", True, True), ("H100", "auto", False)],
)
def test_imex_is_for_racks_or_where_it_is_asked_for(resolve: Resolve, card: str, wished: Any, there: bool) -> None:
    arch = "aarch64" if card == "GB200" else "x86_64"
    answer = resolve(card, "ubuntu-24.04", arch=arch, wish={"nvidia_driver_imex": wished})
    driver = stack(answer)["driver"]
    assert ("nvidia-imex" in driver["packages"]) == there
    assert ("driver.imex" in {row["rule"] for row in answer["warnings"]}) == there
    assert "nvidia-imex.service" not in (driver.get("fabric") or {}).get("services", [])


def test_peermem_is_only_there_where_it_was_asked_for(resolve: Resolve) -> None:
    assert "peermem" not in stack(resolve("H100", "ubuntu-24.04"))["driver"]
    assert stack(resolve("H100", "ubuntu-24.04", wish={"nvidia_driver_peermem": True}))["driver"]["peermem"] is True


# MIG ---------------------------------------------------------------------------------------------------


def cards(answer: Any) -> list[list[str]]:
    return [card["profiles"] for card in stack(answer)["mig"]["cards"]]


def test_a_layout_speaks_for_all_cards_and_a_card_for_itself(resolve: Resolve) -> None:
    layout = {"all": "1g.10gb,3g.40gb", "1": "off"}
    answer = resolve(["H100", "H100", "H100"], "ubuntu-24.04", "driver", wish={"mig_layout": layout})
    assert cards(answer) == [["3g.40gb", "1g.10gb"], [], ["3g.40gb", "1g.10gb"]]


def test_a_card_that_the_layout_does_not_name_is_left_alone(resolve: Resolve) -> None:
    answer = resolve(["H100", "H100"], "ubuntu-24.04", "driver", wish={"mig_layout": {"1": "7g.80gb"}})
    assert [card["index"] for card in stack(answer)["mig"]["cards"]] == [1]


@pytest.mark.parametrize(
    ("card", "layout", "fit"),
    [
        ("H100", "1g.10gb," * 6 + "1g.10gb", True),
        ("H100", "1g.10gb," * 7 + "1g.10gb", False),
        ("H100", "3g.40gb,3g.40gb", True),
        # Six of seven compute slices, and all of the memory.
        ("H100", "3g.40gb,3g.40gb,1g.10gb", False),
        ("H100", "4g.40gb,3g.40gb", True),
        ("H100", "4g.40gb,4g.40gb", False),
        ("H100", "4g.40gb,2g.20gb,1g.10gb", True),
        ("H100", "1g.10gb+me,1g.10gb+me", False),
        ("H100", "1g.20gb,1g.20gb,1g.20gb,1g.20gb", True),
        ("A30", "2g.12gb,1g.6gb,1g.6gb", True),
        ("A30", "4g.24gb,1g.6gb", False),
        ("H200 SXM", "3g.71gb,3g.71gb", True),
        ("B200", "1g.45gb,1g.45gb,2g.45gb,1g.23gb", True),
    ],
)
def test_a_layout_fits_or_the_conflict_names_one_that_does(resolve: Resolve, card: str, layout: str, fit: bool) -> None:
    answer = resolve(card, "ubuntu-24.04", "driver", wish={"mig_layout": layout})
    assert answer["ok"] == fit, answer
    if not fit:
        example = conflicts(answer)["mig.layout"]["remedy"].rpartition("for example ")[2]
        assert resolve(card, "ubuntu-24.04", "driver", wish={"mig_layout": example})["ok"], example


def test_the_places_decide_and_not_the_sum_of_the_slices(rules: Any) -> None:
    places = {row["kind"]: row for row in rules["mig"]["placements"] if row["geometry"] == "sevenths"}
    assert fits([places["3g"], places["2g"], places["1g"], places["1g"]])
    assert not fits([places["3g"], places["3g"], places["2g"]])
    assert not fits([places["2g"]] * 4)


def test_a_profile_of_another_card_is_refused_with_those_that_there_are(resolve: Resolve) -> None:
    found = conflicts(resolve("H100", "ubuntu-24.04", "driver", wish={"mig_layout": "3g.20gb"}))
    assert "3g.40gb" in found["mig.profile"]["remedy"]


def test_a_card_without_mig_is_refused_and_may_be_told_off(resolve: Resolve) -> None:
    assert "mig.card" in conflicts(resolve("L40S", "ubuntu-24.04", "driver", wish={"mig_layout": "1g.10gb"}))
    assert resolve("L40S", "ubuntu-24.04", "driver", wish={"mig_layout": "off"})["ok"]


def test_the_layout_of_each_kind_of_card_is_told_once(resolve: Resolve) -> None:
    layout = {"0": "1g.10gb,3g.40gb", "1": "1g.10gb,3g.40gb", "2": "off"}
    answer = resolve(["H100", "H100", "A100"], "ubuntu-24.04", "driver", wish={"mig_layout": layout})
    assert [entry["text"] for entry in answer["why"] if entry["rule"] == "mig.layout"] == [
        "H100 SXM5 80GB: 3g.40gb, 1g.10gb: asked for",
        "A100 SXM4 40GB: MIG off: asked for",
    ]


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("5", ""),
        ("GPU-00000000-0000-0000-0000-000000000000", "; a UUID is known once the driver runs"),
        ("0000:ff:00.0", ""),
    ],
)
def test_a_card_that_is_not_there_is_a_conflict(resolve: Resolve, selector: str, hint: str) -> None:
    found = conflicts(resolve("H100", "ubuntu-24.04", "driver", wish={"mig_layout": {selector: "7g.80gb"}}))
    assert found["mig.card"]["text"] == f"mig_layout names the card {selector}, which is not there{hint}"


def test_every_card_of_the_mig_rules_is_a_card(rules: Any) -> None:
    known = {row["name"] for row in rules["gpus"]["rows"]}
    assert {name for row in rules["mig"]["rows"] for name in row["cards"]} <= known
    kinds = {(row["geometry"], row["kind"]) for row in rules["mig"]["placements"]}
    assert {(row["geometry"], kind) for row in rules["mig"]["rows"] for kind in row["profiles"].values()} <= kinds


@pytest.mark.parametrize(
    "layout", [{"all": "3g"}, {"first": "3g.40gb"}, {"all": []}, 7, {"all": 3}, {"all": "3g.40gb;reboot"}]
)
def test_a_layout_that_cannot_be_read_is_bad_input(layout: Any) -> None:
    with pytest.raises(BadInput, match="mig_layout"):
        Wish.from_variables({"mig_layout": layout})


@pytest.mark.parametrize("layout", [{}, None, "", "auto"])
def test_no_layout_is_no_wish(layout: Any) -> None:
    assert Wish.from_variables({"mig_layout": layout}).mig == {}


# Secure Boot -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "warned"), [("enrolled", False), ("pending", True), ("not-enrolled", True), (None, True)]
)
def test_an_enrolled_key_is_no_warning(rules: Any, state: str | None, warned: bool) -> None:
    facts = copy.deepcopy(FACTS)
    facts["boot"] |= {"secure_boot": True, "signing_key": {"path": "/var/lib/dkms/mok.pub", "state": state}}
    wish = Wish.from_wants(["driver", "driver-source=nvidia"], rules)
    where = machine.machine_from_facts(facts, wish, rules, today=TODAY)
    answer = resolver.resolve(where, wish, rules)
    assert ("driver.secure-boot" in {row["rule"] for row in answer["warnings"]}) == warned
    assert ("driver.secure-boot" in {row["rule"] for row in answer["why"]}) != warned
