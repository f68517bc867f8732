"""Libraries of another build that an interrupted package manager left are told by the plan, and removed once the packages are right."""

from __future__ import annotations

from datetime import date
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

STRAY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.999.1"


def node() -> Any:
    facts = nodes.provisioned()
    facts["driver"]["strays"] = [STRAY]
    return facts


def planned(facts: Any) -> Any:
    request = Request(host="node", today=date(2026, 11, 20), only=("nvidia_driver",), inputs={})
    wish = Wish.from_variables({}).with_defaults().with_roles(("nvidia_driver",))
    drafted = make_draft(facts, wish, load_rules(), request)
    assert isinstance(drafted, Draft), drafted
    return finish(drafted, None)


def test_the_plan_names_them() -> None:
    (change,) = [change for change in planned(node())["changes"] if change["component"] == "nvidia_driver"]
    assert (change["action"], change["files"]) == ("repair", [STRAY])
    assert f"left {STRAY}: no package has it" in change["reason"]


def test_the_role_removes_those_that_no_package_has_after_the_packages_came() -> None:
    plan = planned(node())
    plan["given"] = {"kernels": nodes.provisioned()["kernel"]["installed"], "upgrade": {"rc": 0, "stdout": ""}}
    assert work.of_step("nvidia_driver", "verified", plan, node(), {})["strays"] == [STRAY]
    assert work.of_step("nvidia_driver", "verified", plan, nodes.provisioned(), {})["strays"] == []
