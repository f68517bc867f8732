"""Docker from its own repository in a plan: the source and the packages, and a source that the host has already."""

from __future__ import annotations

from datetime import date
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

PACKAGES = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"]
SOURCE = "/etc/apt/sources.list.d/gpuwright-docker.sources"


def hosts_own(signed_by: str | None) -> dict[str, Any]:
    """Docker's repository as its guide has it added."""
    return {
        "file": "/etc/apt/sources.list.d/docker.list",
        "types": ["deb"],
        "uris": ["https://download.docker.com/linux/debian"],
        "suites": ["trixie"],
        "components": ["stable"],
        "signed_by": signed_by,
        "enabled": True,
    }


def planned(*sources: Any) -> Any:
    facts = nodes.bare()
    facts["packages"]["sources"] = [*(facts["packages"]["sources"] or ()), *sources]
    only = ("container_toolkit",)
    request = Request(host="node", today=date(2026, 11, 20), only=only, inputs={})
    wish = Wish.from_variables({"container_toolkit_engine_source": "docker"}).with_defaults().with_roles(only)
    drafted = make_draft(facts, wish, load_rules(), request)
    assert isinstance(drafted, Draft), drafted
    return finish(drafted, None)


def test_the_source_is_added_and_the_packages_come_with_the_toolkits() -> None:
    plan = planned()
    work = plan["work"]["container_toolkit"]
    assert work["repositories"] == ["nvidia-container-toolkit", "docker"]
    assert work["packages"][0]["names"][:5] == PACKAGES
    assert SOURCE in plan["manages"]["container_toolkit"]["files"]


def test_the_index_is_asked_for_their_versions_and_the_seal_leaves_them_to_the_package_manager() -> None:
    plan = planned()
    assert set(PACKAGES) <= {each["name"] for row in plan["changes"] for each in row["packages"]}
    assert not set(PACKAGES) & set(plan["manages"]["container_toolkit"]["packages"])


def test_a_source_that_the_host_has_with_its_key_is_used_as_it_is() -> None:
    plan = planned(hosts_own("/etc/apt/keyrings/docker.asc"))
    assert plan["work"]["container_toolkit"]["repositories"] == ["nvidia-container-toolkit"]
    assert SOURCE not in plan["manages"]["container_toolkit"]["files"]


def test_a_source_of_the_host_for_which_every_key_may_sign_gives_way() -> None:
    plan = planned(hosts_own(None))
    assert plan["work"]["container_toolkit"]["repositories"] == ["nvidia-container-toolkit", "docker"]
    reasons = [row["reason"] for row in plan["changes"]]
    assert any("docker.list is in the way" in reason and "without Signed-By" in reason for reason in reasons)
