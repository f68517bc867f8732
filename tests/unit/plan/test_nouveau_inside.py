"""An initramfs that holds nouveau and no blacklist: told before the boot at which it takes the cards."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan

DRIVER = Wish.from_variables({"gpuwright_want": ["driver"]})


def node(*, nouveau: bool | None = True, blacklist: bool | None = False, **changes: Any) -> Any:
    """A node whose driver runs, with what was found inside the initramfs of its next kernel."""
    facts = nodes.provisioned(**changes)
    facts["kernel"]["initramfs"] |= {
        "nouveau_inside": nouveau,
        "blacklist_inside": blacklist,
        "blacklist_current": blacklist,
    }
    return facts


def check(facts: Any, stack: Any = None) -> Any:
    (found,) = [each for each in judge.judge(facts, stack) if each["id"] == "kernel.initramfs"]
    return found


def test_nouveau_inside_without_a_blacklist_fails_and_up_brings_the_blacklist() -> None:
    facts = node()
    made = plan(facts, DRIVER)
    found = check(facts, made["stack"])
    assert (found["status"], found["severity"], found["action"]) == ("fail", "critical", "configure")
    assert found["reason"] == (
        "/boot/initrd.img-6.12.94+deb13-amd64 holds nouveau and nothing that keeps it from being loaded: at the next boot it takes the "
        "cards before the NVIDIA driver can"
    )
    assert "gpuwright up" in found["remedy"]
    assert "nouveau_blacklist" in {change["component"] for change in made["changes"]}


@pytest.mark.parametrize(("nouveau", "blacklist"), [(True, True), (False, False), (False, True)])
def test_a_blacklist_inside_or_no_nouveau_is_right(nouveau: bool, blacklist: bool) -> None:
    assert check(node(nouveau=nouveau, blacklist=blacklist))["status"] == "pass"


def test_what_a_good_seal_covers_was_not_unpacked_and_is_right() -> None:
    facts = node(nouveau=None, blacklist=None, seals={"nouveau_blacklist": {"state": "good", "reason": None}})
    facts["unknown"]["kernel.initramfs.nouveau_inside"] = "not looked at: the seal of nouveau_blacklist is good"
    assert check(facts)["status"] == "pass"


def test_what_nobody_could_list_is_incomplete() -> None:
    facts = node(nouveau=None, blacklist=None)
    facts["unknown"]["kernel.initramfs.nouveau_inside"] = "lsinitramfs failed: Permission denied"
    found = check(facts)
    assert (found["status"], "Permission denied" in found["reason"]) == ("incomplete", True)


@pytest.mark.parametrize(
    "words",
    [
        "ro quiet rd.driver.blacklist=nouveau modprobe.blacklist=nouveau",
        "rd.driver.blacklist=nova_core,nouveau ro",
        "module_blacklist=nouveau",
        "nouveau.modeset=0",
        "nomodeset",
    ],
)
def test_words_of_the_command_line_keep_nouveau_out(words: str) -> None:
    found = check(node(boot={"cmdline": words}))
    assert (found["status"], "command line" in str(found["reason"])) == ("pass", True)


@pytest.mark.parametrize("words", ["modprobe.blacklist=nvidia", "nouveau.modeset=1", "rd.driver.blacklist=nouveau_x"])
def test_other_words_do_not(words: str) -> None:
    assert check(node(boot={"cmdline": words}))["status"] == "fail"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("update-initramfs", "update-initramfs -u -k 6.12.94+deb13-amd64"),
        ("dracut", "dracut --force --kver 6.12.94+deb13-amd64"),
    ],
)
def test_a_driver_of_the_images_owner_is_mended_by_hand(tool: str, words: str) -> None:
    facts = node()
    facts["kernel"]["initramfs"]["tool"] = tool
    found = check(facts, {"driver": nodes.driver_stack(source="preinstalled", adopted=True)})
    assert found["status"] == "fail"
    assert "gpuwright up" not in found["remedy"]
    assert words in found["remedy"]


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": {"loaded": {"nouveau": {"version": None}}}},
        {"kernel": {"available": {"nvidia": None}}},
        {"kernel": {"initramfs": {"path": None}}},
        {"environment": {"kind": "container"}},
    ],
    ids=["nouveau drives the cards now", "no module for the next kernel", "no initramfs", "container"],
)
def test_it_is_left_to_others_where_nothing_is_in_nouveaus_way(changes: Any) -> None:
    assert check(nodes.merged(node(), changes))["status"] == "skip"


def test_a_machine_without_cards_is_not_asked() -> None:
    facts = node(pci={"gpus": []})
    assert not [each for each in judge.judge(facts) if each["id"] == "kernel.initramfs"]
