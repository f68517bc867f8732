"""The component mig: what is not as wished, and what waits for a boot."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.mig import apply as mig
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.view import View
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

LAYOUT = {"all": "3g.40gb,3g.40gb"}
SERVICE = "gpuwright-mig.service"


def parted(*profiles: str, current: bool = True, pending: bool | None = None) -> Any:
    """A host with two cards, both parted so, and the service enabled."""
    facts = nodes.provisioned()
    rows = [
        {
            "pci_bus_id": card["bus_id"],
            "uuid": f"GPU-{index}",
            "name": "NVIDIA H100 80GB HBM3",
            "mig": {"current": current, "pending": current if pending is None else pending, "devices": []},
        }
        for index, card in enumerate(facts["pci"]["gpus"])
    ]
    listed = {row["uuid"]: list(profiles) for row in rows}
    facts["smi"] = nodes.smi(*rows, mig_devices=listed)
    facts["services"][SERVICE] = {"active": "active", "enabled": "enabled"}
    return facts


def reasons(facts: Any, layout: Any = None) -> list[str]:
    asked = Wish.from_variables({"gpuwright_want": ["driver=580"], "mig_layout": LAYOUT if layout is None else layout})
    draft = make_draft(facts, asked, load_rules(), Request(host="node", today=date(2026, 11, 20)))
    assert isinstance(draft, Draft), draft
    return [finding.reason for finding in draft.findings.get("mig", ()) if finding.action != "adopt"]


def test_cards_that_are_parted_as_wished_have_nothing_to_say() -> None:
    assert reasons(parted("3g.40gb", "3g.40gb")) == []


def test_each_card_that_is_parted_otherwise_is_named() -> None:
    facts = parted("7g.80gb")
    assert reasons(facts) == [
        f"the card {card['bus_id']} has 7g.80gb, wished is 3g.40gb, 3g.40gb" for card in facts["pci"]["gpus"]
    ]
    assert "MIG is off" in reasons(parted(current=False))[0]
    assert "no instances" in reasons(parted())[0]


def test_instances_that_nvidia_smi_does_not_list_are_not_taken_for_none() -> None:
    """`nvidia-smi -L` failed: work may run in them, and a layout that nobody knows is neither right nor wrong."""
    facts = parted("3g.40gb", "3g.40gb")
    whole = facts["smi"]["mig_devices"]
    first, second = (card["bus_id"] for card in facts["pci"]["gpus"])
    facts["smi"]["mig_devices"] = None
    assert reasons(facts) == []
    stack = {"mig": {"cards": [{"bus_id": card["bus_id"], "profiles": ["7g.80gb"]} for card in facts["pci"]["gpus"]]}}
    (check,) = mig.judge(View(facts), stack)  # type: ignore[arg-type] # no more of it is looked at
    unknown = "it is not known how the cards are parted: nvidia-smi -L does not list the instances of "
    assert (check["status"], check["reason"]) == ("incomplete", f"{unknown}{first}, {second}")
    assert "instances that nvidia-smi -L does not list, wished is MIG off" in reasons(facts, {"all": "off"})[0]
    # One row is missing: of the other card it is known.
    facts["smi"]["mig_devices"] = dict(list(whole.items())[:1])
    assert reasons(facts) == []
    (check,) = mig.judge(View(facts), stack)  # type: ignore[arg-type] # as above
    assert (check["status"], check["reason"]) == ("incomplete", f"{unknown}{second}")


def test_off_is_wished_and_found() -> None:
    assert reasons(parted(current=False), {"all": "off"}) == []
    assert "wished is MIG off" in reasons(parted("7g.80gb"), {"all": "off"})[0]


def test_a_mode_that_waits_for_a_boot_is_no_change_to_make() -> None:
    assert reasons(parted(current=False, pending=True)) == []
    assert reasons(parted(current=True, pending=False), {"all": "off"}) == []


def test_without_the_service_the_layout_would_be_gone_after_a_boot() -> None:
    facts = parted("3g.40gb", "3g.40gb")
    facts["services"][SERVICE] = {"active": "inactive", "enabled": "not-found"}
    assert reasons(facts) == ["no service brings the MIG layout back after a boot"]


def test_before_the_driver_runs_the_service_is_all_that_is_asked_for() -> None:
    facts = nodes.bare()
    assert reasons(facts) == ["no service brings the MIG layout back after a boot"]
    facts["services"] = {SERVICE: {"active": "inactive", "enabled": "enabled"}}
    assert reasons(facts) == []


def test_the_component_comes_after_the_driver_and_before_what_hands_out_cards() -> None:
    asked = Wish.from_variables({"mig_layout": LAYOUT}).with_defaults()
    draft = make_draft(nodes.bare(), asked, load_rules(), Request(host="node", today=date(2026, 11, 20)))
    assert isinstance(draft, Draft)
    order = list(draft.findings)
    assert order.index("nvidia_driver") < order.index("mig") < order.index("container_toolkit")


def judged(facts: Any) -> dict[str, str]:
    """The status of each check, where every card is to be parted in halves."""
    cards: list[Any] = [
        {"index": index, "bus_id": card["bus_id"], "name": "H100 SXM5 80GB", "profiles": ["3g.40gb", "3g.40gb"]}
        for index, card in enumerate(parted()["pci"]["gpus"])
    ]
    return {check["id"]: check["status"] for check in mig.judge(View(facts), {"mig": {"cards": cards}})}


@pytest.mark.parametrize(("profiles", "status"), [(("3g.40gb", "3g.40gb"), "pass"), (("7g.80gb",), "fail")])
def test_the_doctor_judges_the_layout(profiles: tuple[str, ...], status: str) -> None:
    facts = parted(*profiles)
    assert judged(facts) == {"mig.layout": status}
    assert mig.judge(View(facts), {}) == mig.judge(View(facts), {"mig": {"cards": []}}) == []
    assert judged({**facts, "pci": {**facts["pci"], "gpus": []}}) == {}


def test_a_layout_that_nobody_could_look_at_is_not_judged() -> None:
    assert judged({**parted(), "smi": None}) == {"mig.layout": "incomplete"}


@pytest.mark.parametrize("kind", ["wsl", "jetson"])
def test_where_the_driver_is_another_system_s_no_layout_is_judged(kind: str) -> None:
    facts = parted("7g.80gb")
    assert judged({**facts, "environment": {**facts["environment"], "kind": kind}}) == {}


def test_a_lock_leaves_the_layout_to_the_host() -> None:
    assert {"mig_layout", "nvidia_driver_peermem", "nvidia_driver_imex"} <= set(lock.HOST_VARIABLES)
    empty: Any = {"stack": {}}
    assert lock.as_wish(empty, {"mig_layout": LAYOUT}).mig == {"all": ("3g.40gb", "3g.40gb")}
