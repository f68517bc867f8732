"""Images of containers: that each that is named is in the tables, has code for the cards, and starts and runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.property.naive.cuda import runs
from tests.property.naive.tables import below, row, rows

Stack = Mapping[str, Any]


def faults(machine: Any, stack: Stack, images: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Everything that is wrong with what is named."""
    names = {each["name"] for each in images}
    expected = {each["repository"] for each in rows("images", "images")} if machine.cards else set()
    if names != expected:
        yield f"named are {names}, expected {expected}"
    for image in images:
        if not (image["text"] and image["source"]):
            yield f"{image['name']} has no reason or no source"
        if image["tag"]:
            yield from _named(machine, stack, image)


def _named(machine: Any, stack: Stack, image: Mapping[str, Any]) -> Iterator[str]:
    kind = row("images", "images", repository=image["name"])
    tags = dict(_tags()) if kind["by"] == "toolkit" else dict(_releases(kind["image"]))
    if tags.get(image["tag"]) != image["cuda"]:
        yield f"{image['reference']} is not in the tables with CUDA {image['cuda']}"
    if not image["reference"].endswith(f"/{image['name']}:{image['tag']}"):
        yield f"{image['reference']} is no reference of {image['tag']}"
    yield from _code(machine, image)
    expected = runs(machine, stack, image["cuda"])
    if expected not in (image["mode"], "unknown") and image["mode"] != "forward":
        yield f"{image['reference']} is said to run in {image['mode']} mode, it runs in {expected}"
    if image["mode"] != "native" and kind["by"] == "toolkit":
        yield from _start(machine, stack, image)
    if image["mode"] == "forward" and any(card.kind != "datacenter" for card in machine.cards):
        yield f"{image['reference']} needs cuda-compat, and not every card is of a data centre"


def _tags() -> Iterator[tuple[str, str]]:
    for each in rows("images", "tags"):
        cuda = ".".join(each["release"].split(".")[:2])
        yield from (
            (f"{each['release']}-{kind}-{system}", cuda) for kind in each["kinds"] for system in each["systems"]
        )


def _releases(name: str) -> Iterator[tuple[str, str]]:
    yield from ((each["tag"], each["cuda"]) for each in rows("images", "releases") if each["image"] == name)


def _code(machine: Any, image: Mapping[str, Any]) -> Iterator[str]:
    older = [each for each in rows("cuda", "targets") if not below(image["cuda"], each["cuda"])]
    for card in machine.cards:
        if card.compute_capability and card.compute_capability not in older[-1]["targets"]:
            yield f"{image['reference']} has no code for the {card.name}"


def _start(machine: Any, stack: Stack, image: Mapping[str, Any]) -> Iterator[str]:
    lets_in = [each for each in rows("images", "admits") if each["cuda"] == image["cuda"]]
    branches = {branch for each in lets_in for branch in each[machine.arch]}
    if "driver" in stack and stack["driver"]["branch"] not in branches:
        yield f"{image['reference']} does not start on branch {stack['driver']['branch']}"
    elsewhere = any(card.kind not in ("datacenter", "workstation") for card in machine.cards)
    if elsewhere and not any(each["geforce"] for each in lets_in):
        yield f"{image['reference']} does not start on GeForce"
