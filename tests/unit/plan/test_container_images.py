"""Images that are pulled ahead: what is missing, what the role does, and what the proof asks of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import proof
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tests.unit.plan import nodes
from tests.unit.plan.test_containerd import planned, reasons

IMAGE = "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
OTHER = "docker.io/library/alpine:3"
WISHED = {"container_toolkit_images": [IMAGE, OTHER]}


def node(*there: str, **docker: Any) -> Any:
    facts = nodes.provisioned()
    facts["containers"]["images"]["docker"] = list(there)
    facts["containers"]["docker"] |= docker
    return facts


def test_an_image_that_is_not_there_is_missing_and_one_that_is_there_is_not() -> None:
    assert reasons(node(OTHER), **WISHED) == [f"the image {IMAGE} is not there"]
    assert reasons(node(IMAGE, OTHER), **WISHED) == []
    assert reasons(node()) == []


def test_an_engine_that_does_not_tell_is_asked_by_the_role() -> None:
    facts = node()
    facts["containers"]["images"]["docker"] = None
    assert "it is not known which images docker has: docker does not run" in reasons(facts, **WISHED)
    facts["unknown"]["containers.images.docker"] = "permission denied"
    assert reasons(facts, **WISHED)[-1].endswith("permission denied")


def test_images_of_podman_are_held_against_podmans_own() -> None:
    facts = node(IMAGE, OTHER)
    facts["packages"]["installed"]["podman"] = "5.4.2"
    podman = {**WISHED, "container_toolkit_engine": "podman"}
    assert f"the image {IMAGE} is not there" in reasons(facts, **podman)
    facts["containers"]["images"]["podman"] = [IMAGE, OTHER]
    assert reasons(facts, **podman) == []


def test_the_role_pulls_each_image_by_the_engine() -> None:
    work = planned(node(), **WISHED)["work"]["container_toolkit"]
    assert work["images"] == [{"engine": "docker", "image": IMAGE}, {"engine": "docker", "image": OTHER}]


def test_a_machine_without_an_engine_gets_both() -> None:
    facts = node(installed=False, version=None, active=False, daemon_json=None)
    for name in ("docker.io", "docker-cli"):
        del facts["packages"]["installed"][name]
    found = reasons(facts, **WISHED)
    assert found[0].startswith("missing packages")
    assert found[1:] == [f"the image {IMAGE} is not there", f"the image {OTHER} is not there"]


def test_the_seal_holds_the_images_where_some_are_wished() -> None:
    inputs = COMPONENTS["container_toolkit"].inputs
    with_images, without = (
        inputs(Context(facts=node(), stack=planned(node(), **wished)["stack"])) for wished in (WISHED, {})
    )
    assert with_images["images"] == [IMAGE, OTHER]
    assert "images" not in without


class Action:
    """An action that keeps what the look is asked."""

    verb = "plan"

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def variables(self, given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    def on_node(self, _module: str, arguments: Any, _task_vars: Any, script: bytes | None = None) -> Any:
        assert script
        self.options = dict(arguments)
        return {"facts": nodes.bare()}


@pytest.mark.parametrize(
    ("wished", "asked"),
    [
        (WISHED, True),
        ({"gpuwright_want": ["container-image=auto"]}, True),
        ({"container_toolkit_images": []}, False),
        ({"gpuwright_want": ["container-toolkit"]}, False),
        ({"container_toolkit_images": "wrong"}, False),
    ],
)
def test_the_look_lists_images_where_some_are_wished(wished: dict[str, Any], asked: bool) -> None:
    action = Action()
    NodeSession(cast("Any", action), {"inventory_hostname": "node", **wished}).facts()
    assert action.options.get("images", False) is asked


def asked(facts: Any, **wished: Any) -> Any:
    return proof.containers(Context(facts=facts, stack=planned(facts, **wished)["stack"]))


def test_docker_is_asked_by_each_way_that_it_has() -> None:
    (question,) = asked(node(), **WISHED)
    assert question["images"] == [IMAGE, OTHER]
    assert (question["ways"], question["left_out"]) == (["gpus", "cdi"], None)
    assert asked(node(version="25.0.3"), **WISHED)[0]["ways"] == ["gpus"]
    old = node()
    old["containers"]["toolkit"]["version"], old["containers"]["cdi"]["specifications"] = "1.17.9", []
    assert proof.containers(Context(facts=old, stack=planned(node(), **WISHED)["stack"]))[0]["ways"] == ["gpus"]


def test_podman_is_asked_by_cdi_alone() -> None:
    (question,) = asked(node(), **WISHED, container_toolkit_engine="podman")
    assert (question["engine"], question["ways"]) == ("podman", ["cdi"])


def test_device_nodes_without_a_link_go_with_the_question_but_in_wsl_there_are_none() -> None:
    facts = node()
    facts["containers"]["cdi"]["unlinked"] = ["/dev/nvidia0"]
    stack = planned(node(), **WISHED)["stack"]
    assert proof.containers(Context(facts=facts, stack=stack))[0]["unlinked"] == ["/dev/nvidia0"]
    facts["environment"]["kind"] = "wsl"
    assert proof.containers(Context(facts=facts, stack=stack))[0]["unlinked"] == []


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"engine": {"name": "docker", "packages": []}}, "container-image=auto"),
        ({"engine": {"name": "containerd", "packages": []}}, "Kubernetes"),
    ],
)
def test_why_no_container_is_started_is_told(stack: Any, words: str) -> None:
    (question,) = proof.containers(Context(facts=node(), stack={"container_toolkit": stack}))
    assert words in str(question["left_out"])
    assert proof.containers(Context(facts=node(), stack={})) == []
