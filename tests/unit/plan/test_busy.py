"""What a plan would end is refused with the plan; the answer whether something is in use cannot be taken for yes or no."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import busy
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.in_use import InUse
from tests.unit.plan import nodes

from .test_planner import plan, wish

TRAINING = {"holders": [{"pid": 812, "name": "python3", "devices": ["nvidia-uvm", "nvidia0"]}]}
UNREAD = {"unread": "the open files of 3 processes could not be read"}


def refused(facts: Any, **changes: Any) -> list[str]:
    """What of a plan for another driver is refused because something would end."""
    made = plan(facts, wish(nvidia_driver_version="580.126.20"), **changes)
    assert made["ok"] is not bool(made["refusals"])
    return [row["text"] for row in made["refusals"] if row["rule"] == "in-use"]


@pytest.mark.parametrize("answer", [InUse("idle"), InUse("busy", ("python3",)), InUse("unknown", why="x")])
def test_an_answer_of_three_states_is_neither_true_nor_false_nor_gone_through(answer: Any) -> None:
    with pytest.raises(TypeError, match="look at its state"):
        bool(answer)
    with pytest.raises(TypeError, match="not iterable"):
        iter(answer)


#: Libraries of another version than the module that is loaded, as unattended upgrades leave them.
SWAPPED = {"driver": {"user_version": "580.159.03"}}


def test_the_plan_of_another_driver_is_refused_while_somebody_holds_a_card() -> None:
    (driver,) = refused(nodes.provisioned(in_use=TRAINING))
    assert driver == "Expected idle cards, because the driver changes. Found what uses it: python3 (pid 812)."


def test_a_boot_for_swapped_libraries_is_refused_while_somebody_holds_a_card_and_nvidia_smi_fails() -> None:
    made = plan(nodes.provisioned(in_use=TRAINING, smi=None, **SWAPPED))
    assert made["reboot"] is True
    told = [row["text"] for row in made["refusals"] if row["rule"] == "in-use"]
    assert told[-1] == "Expected an idle host, because it is rebooted. Found what uses it: python3 (pid 812)."


@pytest.mark.parametrize(
    "changes",
    [{"local": True}, {"no_reboot": True}, {"inputs": {"nvidia_driver": {"nvidia_driver_reboot": False}}}],
)
def test_a_boot_that_the_run_does_not_make_is_not_refused(changes: dict[str, Any]) -> None:
    made = plan(nodes.provisioned(in_use=TRAINING, smi=None, **SWAPPED), **changes)
    assert made["reboot"] is True
    assert not [row["text"] for row in made["refusals"] if "it is rebooted" in row["text"]]


def test_what_nobody_could_look_at_is_refused_to_root_and_told_to_nobody_else_who_changes_nothing() -> None:
    facts = nodes.provisioned(in_use=UNREAD)
    assert len(refused(facts)) == 1
    facts["privileged"] = False
    assert refused(facts, verb="plan") == []
    facts["in_use"] |= TRAINING
    assert len(refused(facts, verb="plan")) == 1


def test_leave_is_given_by_name() -> None:
    assert refused(nodes.provisioned(in_use=TRAINING), allow_busy=True) == []
    assert refused(nodes.provisioned(in_use=UNREAD), allow_busy=True) == []
    assert "gpuwright_allow_busy" in busy.REMEDY


def test_a_plan_that_changes_no_card_is_not_refused_while_somebody_computes() -> None:
    facts = nodes.provisioned(in_use=TRAINING)
    made = plan(facts, wish(cuda_versions=["13.0"]))
    assert [row["rule"] for row in made["refusals"] if row["rule"] == "in-use"] == []
    assert "cuda" in made["components"]
