"""What somebody set that keeps the module out: named as the cause, and refused where nobody could load it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan

FILE = "/etc/modprobe.d/blacklist-nvidia.conf"


def node(line: str, *, file: str = FILE, loaded: bool = False) -> Any:
    facts = nodes.provisioned()
    facts["kernel"]["kept_out"] = [{"file": file, "line": line}]
    if not loaded:
        facts["kernel"]["loaded"], facts["driver"]["loaded_version"] = {}, None
    return facts


def loading(facts: Any) -> Any:
    (check,) = [check for check in judge.judge(facts, None) if check["id"] == "driver.loaded"]
    return check


def test_the_doctor_names_the_file_and_not_a_reboot() -> None:
    check = loading(node("blacklist nvidia"))
    assert check["reason"] == f"the module is kept out: {FILE}: blacklist nvidia"
    assert (check["action"], "make the initramfs again" in check["remedy"]) == ("configure", True)
    assert "/etc/default/grub" not in check["remedy"]
    assert loading(node("blacklist nvidia", loaded=True))["status"] == "pass"


def test_a_daemon_that_writes_the_file_anew_is_stopped_before() -> None:
    remedy = loading(node("blacklist nvidia", file="/etc/modprobe.d/supergfxd.conf"))["remedy"]
    assert remedy.startswith("supergfxctl --mode Hybrid")
    assert "supergfxctl" not in loading(node("blacklist nvidia"))["remedy"]


@pytest.mark.parametrize("line", ["alias nvidia off", "install nvidia /bin/false"])
def test_a_module_that_nobody_can_load_is_refused_before_any_change(line: str) -> None:
    made = plan(node(line), Wish.from_variables({"gpuwright_want": ["driver"]}))
    (refusal,) = made["refusals"]
    assert f"{FILE}: {line}" in refusal["text"]


@pytest.mark.parametrize("facts", [node("blacklist nvidia"), node("alias nvidia off", loaded=True)])
def test_one_that_can_be_loaded_by_its_name_or_is_loaded_is_planned(facts: Any) -> None:
    assert plan(facts, Wish.from_variables({"gpuwright_want": ["driver"]}))["refusals"] == []


def test_who_rescued_a_screen_by_the_command_line_may_mend_the_driver() -> None:
    """docs/rescue.md: the word is of that boot alone."""
    facts = node("module_blacklist=nvidia,nvidia_drm", file="/proc/cmdline")
    check = loading(facts)
    assert "/proc/cmdline: module_blacklist=nvidia,nvidia_drm" in check["reason"]
    assert "/etc/default/grub" in check["remedy"]
    assert plan(facts, Wish.from_variables({"gpuwright_want": ["driver"]}))["refusals"] == []
