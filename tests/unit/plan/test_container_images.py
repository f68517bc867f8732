"""Images that are pulled ahead: what is missing, what the role does, and what the proof asks of them."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import COMPONENTS, Context
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
