"""What `doctor` says of the ways by which engines find the cards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge

ById = Callable[[list[Check]], dict[str, Check]]
TOOLKIT: Any = {"container_toolkit": {}}


def judged(facts: Any, by_id: ById, check: str, stack: Any = TOOLKIT, **cdi: Any) -> tuple[str, str]:
    """How a check ends, and why."""
    changed = copy.deepcopy(facts)
    changed["containers"]["cdi"] |= cdi
    found = by_id(judge.judge(changed, stack))[check]
    return found["status"], found["reason"] or ""


def test_the_cards_of_the_node_pass(facts: Any, by_id: ById) -> None:
    specification = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    assert judged(facts, by_id, "container.cdi", specifications=[specification])[0] == "pass"
    assert judged(facts, by_id, "container.device_links")[0] == "pass"


def test_other_cards_warn(facts: Any, by_id: ById) -> None:
    gone = {"path": "/etc/cdi/nvidia.yaml", "driver": None, "devices": ["0", "GPU-gone", "all"]}
    status, reason = judged(facts, by_id, "container.cdi", specifications=[gone])
    assert (status, "has a card that is not there: GPU-gone" in reason) == ("warn", True)
    assert judged(facts, by_id, "container.cdi", specifications=[])[0] == "warn"


def test_nodes_that_a_specification_has_too_much_or_too_little_warn(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["driver"]["nodes"] = [{"path": "/dev/nvidia-uvm", "mode": 0o666, "group": 0, "device": True}]
    good = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    nodes = ["/dev/nvidia0", "/dev/nvidia-uvm"]
    for row, expected in (
        ({**good, "nodes": nodes, "lost": []}, None),
        (
            {**good, "nodes": [*nodes, "/dev/dri/card1"], "lost": ["/dev/dri/card1"]},
            "hands out /dev/dri/card1, which is",
        ),
        ({**good, "nodes": ["/dev/nvidia0"], "lost": []}, "lacks /dev/nvidia-uvm"),
    ):
        status, reason = judged(changed, by_id, "container.cdi", specifications=[row])
        assert (status, (expected or "") in reason) == ("warn" if expected else "pass", True)


def test_links_that_are_missing_warn(facts: Any, by_id: ById) -> None:
    status, reason = judged(facts, by_id, "container.device_links", unlinked=["/dev/nvidia0"])
    assert (status, "daemon-reload" in reason, "/dev/nvidia0" in reason) == ("warn", True, True)


def test_without_a_driver_there_is_nothing_to_compare(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["driver"]["loaded_version"] = None
    assert judged(changed, by_id, "container.cdi", specifications=[])[0] == "skip"
    assert judged(changed, by_id, "container.device_links", unlinked=["/dev/nvidia0"])[0] == "skip"


@pytest.mark.parametrize("key", ["containers", "smi"])
def test_what_was_not_observed_is_never_a_pass(facts: Any, by_id: ById, key: str) -> None:
    changed = copy.deepcopy(facts)
    changed[key] = {**changed["containers"], "cdi": None} if key == "containers" else None
    assert by_id(judge.judge(changed, TOOLKIT))["container.cdi"]["status"] == "incomplete"


def test_where_the_toolkit_is_not_wished_only_a_specification_that_is_wrong_is_told(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    good = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    for specifications, told in (([], False), ([good], False), ([{**good, "driver": "550.54.15"}], True)):
        changed["containers"]["cdi"] |= {"specifications": specifications, "unlinked": ["/dev/nvidia0"]}
        found = by_id(judge.judge(changed, {}))
        assert ("container.cdi" in found, "container.device_links" in found) == (told, False)
    assert str(found["container.cdi"]["remedy"]).startswith("systemctl restart nvidia-cdi-refresh.service")
