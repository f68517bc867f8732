"""What engines find the cards by is held against the cards: the CDI specification, and the links to their device nodes."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import cdi
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_containerd import planned, reasons

FIRST, SECOND = "GPU-e4e5f849-0ad9-0112-ec39-c768821d51fe", "GPU-35401d4c-8ff3-7ce6-bb0e-7a7fe3174e67"
PATH = "/var/run/cdi/nvidia.yaml"


def card(uuid: str, *, mig: bool = False) -> Any:
    return {"uuid": uuid, "mig": {"current": mig, "pending": mig}}


def node(*devices: str, driver: str | None = nodes.DRIVER, cards: Any = (FIRST, SECOND), **cdi_facts: Any) -> Any:
    """A node with two cards and one specification."""
    facts = nodes.provisioned()
    shown = [each if isinstance(each, dict) else card(each) for each in cards]
    facts["smi"] = nodes.smi(*shown, mig_devices={})
    specification = {"path": PATH, "driver": driver, "devices": list(devices)}
    facts["containers"]["cdi"] = {"specifications": [specification], "unlinked": [], **cdi_facts}
    return facts


GOOD = ("0", FIRST, "1", SECOND, "all")


def test_a_specification_with_the_cards_of_the_node_is_right() -> None:
    assert cdi.stale(node(*GOOD)) is None
    # Before 1.15 nvidia-ctk named cards by their numbers alone.
    assert cdi.stale(node("0", "1", "all")) is None
    assert cdi.stale(node(*GOOD, driver=None)) is None


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (node(*GOOD, driver="570.1"), f"{PATH} is of the driver 570.1, and {nodes.DRIVER} is loaded"),
        (node("0", FIRST, "all"), f"{PATH} lacks a card: {SECOND}"),
        (node(*GOOD, cards=[FIRST]), f"{PATH} has a card that is not there: {SECOND}"),
        (node("0", "all"), f"{PATH} has fewer cards than the 2 that are there"),
        (node(*GOOD, "0:0"), f"{PATH} has 1 MIG devices, and the cards have 0"),
        (node(specifications=[]), "there is no CDI specification of the cards"),
    ],
)
def test_what_containers_would_get_wrong_is_told(facts: Any, told: str) -> None:
    assert cdi.stale(facts) == told


def test_a_card_that_is_parted_is_there_by_its_parts() -> None:
    facts = node("0:0", "0:1", "1", SECOND, "all", cards=[card(FIRST, mig=True), SECOND])
    facts["smi"]["mig_devices"] = {FIRST: ["3g.40gb", "3g.40gb"]}
    assert cdi.stale(facts) is None
    facts["smi"]["mig_devices"] = {FIRST: ["7g.80gb"]}
    assert cdi.stale(facts) == f"{PATH} has 2 MIG devices, and the cards have 1"
    facts["smi"]["mig_devices"] = None  # nvidia-smi -L did not answer
    assert cdi.stale(facts) is None


def test_each_specification_has_to_be_right_also_one_that_was_written_by_hand() -> None:
    facts = node(*GOOD)
    hand = {"path": "/etc/cdi/nvidia.yaml", "driver": "535.1", "devices": ["0", "all"]}
    facts["containers"]["cdi"]["specifications"].insert(0, hand)
    assert cdi.stale(facts) == f"/etc/cdi/nvidia.yaml is of the driver 535.1, and {nodes.DRIVER} is loaded"


def test_a_toolkit_that_makes_none_by_itself_may_have_none() -> None:
    facts = node(specifications=[])
    facts["containers"]["toolkit"]["version"] = "1.17.9"
    assert cdi.stale(facts) is None


def test_where_no_card_was_asked_only_the_driver_is_compared() -> None:
    facts = node("0", "all")
    facts["smi"] = None
    assert cdi.stale(facts) is None


# --- the plan and the work --------------------------------------------------------------------------------------------


def done(facts: Any) -> Any:
    plan = planned(facts)
    plan["given"] = {}
    return work.of_step("container_toolkit", "installed", plan, facts, {})


def unasked(*devices: str, **more: Any) -> Any:
    """The same without what nvidia-smi says, which all checks would read."""
    facts = node(*devices, **more)
    facts["smi"] = None
    return facts


def units(facts: Any) -> dict[str, str | None]:
    """The state that each unit is brought to."""
    services = {name: {"active": "inactive", "enabled": "enabled"} for name in cdi.UNITS}
    facts["services"] = {**facts["services"], **services}
    return {unit["name"]: unit.get("state") for unit in done(facts)["units"]}


def test_a_stale_specification_is_made_anew() -> None:
    stale = unasked(*GOOD, driver="570.1")
    assert reasons(stale) == [f"{PATH} is of the driver 570.1, and {nodes.DRIVER} is loaded"]
    assert units(stale) == {cdi.UNITS[0]: None, cdi.REFRESH: "restarted", cdi.LINKS: None}
    assert (reasons(unasked(*GOOD)), units(unasked(*GOOD))[cdi.REFRESH]) == ([], None)


def test_before_the_driver_runs_nothing_is_made() -> None:
    facts = unasked(specifications=[])
    facts["driver"]["loaded_version"] = None
    assert units(facts)[cdi.REFRESH] is None


def whole(facts: Any) -> dict[str, list[str]]:
    """The reasons of a plan for driver and containers, by component."""
    request = Request(host="node", today=date(2026, 11, 20), inputs={})
    drafted = make_draft(
        facts, Wish.from_variables({"gpuwright_want": ["driver", "container-toolkit"]}), load_rules(), request
    )
    assert isinstance(drafted, Draft), drafted
    return {name: [each.reason for each in found] for name, found in drafted.findings.items()}


def test_where_the_plan_mends_the_driver_too_it_looks_after_the_specification() -> None:
    """The driver may run again without a boot, at which the toolkit's unit would write it."""
    facts = unasked(specifications=[])
    facts["driver"]["user_version"] = "999.1"
    found = whole(facts)
    assert "nvidia_driver" in found
    assert any("CDI" in reason for reason in found["container_toolkit"])
    # The driver is right, and waits for a boot that is left to the user: nothing of this is planned, run after run.
    facts["driver"]["user_version"] = facts["driver"]["loaded_version"]
    facts["driver"]["loaded_version"] = None
    facts["kernel"]["running"] = "5.0.0-older"
    assert not any("CDI" in reason for reason in reasons(facts))


def test_between_a_new_driver_and_its_boot_nothing_is_made() -> None:
    """The toolkit's unit asks nvidia-smi first, which says "Driver/library version mismatch" until then."""
    facts = unasked(specifications=[])
    facts["driver"]["user_version"] = "999.1"
    assert units(facts)[cdi.REFRESH] is None
    facts["driver"]["user_version"] = facts["driver"]["loaded_version"]
    assert units(facts)[cdi.REFRESH] == "restarted"


def test_links_that_are_missing_are_made_by_a_unit_that_comes_before_the_engines() -> None:
    facts = unasked(*GOOD, unlinked=["/dev/nvidia0"])
    assert reasons(facts) == ["no link in /dev/char leads to /dev/nvidia0"]
    assert units(facts)[cdi.LINKS] == "restarted"
    (file,) = done(facts)["own"]
    assert file["path"] == cdi.LINKS_UNIT
    assert "Before=docker.service containerd.service" in file["content"]
    assert "ExecStart=-/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all" in file["content"]


def test_before_the_driver_runs_no_link_is_missed() -> None:
    facts = unasked(*GOOD, unlinked=["/dev/nvidia0"])
    facts["driver"]["loaded_version"] = None
    assert units(facts)[cdi.LINKS] is None


@pytest.mark.parametrize("there", [True, False])
def test_in_check_mode_only_a_unit_that_is_there_is_asked_for(there: bool) -> None:
    facts = unasked(*GOOD)
    if there:
        facts["services"][cdi.LINKS] = {"active": "inactive", "enabled": "enabled"}
    plan = planned(facts)
    plan["given"] = {"check": True}
    told: Any = work.of_step("container_toolkit", "installed", plan, facts, {})
    assert (cdi.LINKS in [unit["name"] for unit in told["units"]]) is there


def test_cards_without_device_nodes_need_no_links() -> None:
    facts = unasked(*GOOD, unlinked=["/dev/nvidia0"])
    facts["environment"]["kind"] = "wsl"
    assert cdi.LINKS not in units(facts)
    assert done(facts)["own"] == []


def test_the_unit_of_the_links_ends_in_a_while_where_a_card_hangs() -> None:
    """The engines wait for it at a boot, and a oneshot that has no limit waits for ever."""
    lines = cdi._LINKS.splitlines()
    assert any(line.startswith("Before=docker.service") for line in lines)
    assert "TimeoutStartSec=60" in lines
    assert "TimeoutStopSec=10" in lines
