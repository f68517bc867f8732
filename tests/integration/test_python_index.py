"""A mirror of PyTorch's index that lacks a wheel: `plan` and `up` say so before anything is changed, and what to ask for instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import wheels

from .conftest import Node, Run, gpuwright
from .footprint import footprint
from .test_supply_chain import serve

pytestmark = pytest.mark.sim

_MIRROR = "http://127.0.0.1:8099"
_TAG = "cp313-cp313-manylinux_2_28_x86_64"
#: What the mirror has: the partners of the newest release and of the one before it, and torch of the older one alone.
_THERE = {
    "torch": ("2.14.0+cu130",),
    "torchvision": ("0.29.1+cu130", "0.29.0+cu130"),
    "torchaudio": ("2.11.0+cu130",),
}
_WANT = ("--want", "pytorch==2.14.1+cu130")


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node whose mirror lags behind; the tests of this module leave it so."""
    return make_shared_node("lagging", "two-h100")


@pytest.fixture
def inventory(machine: Node, tmp_path: Path) -> Path:
    """The node's inventory with that mirror, which is served on the node itself."""
    made = {
        name: [wheels.wheel(name, version, [], {f"{name}/__init__.py": b""}, _TAG, {}) for version in versions]
        for name, versions in _THERE.items()
    }
    wheels.write_index(tmp_path / "mirror" / "cu130", made)
    serve(machine, tmp_path / "mirror")
    document: dict[str, Any] = yaml.safe_load(machine.inventory.read_text())
    document["all"]["vars"]["gpuwright_mirrors"]["pytorch"] = _MIRROR
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(document))
    return tmp_path / "inventory.yml"


def run(verb: str, inventory: Path, *arguments: str) -> Run:
    return gpuwright(verb, *arguments, "-i", inventory, "--json")


@pytest.mark.parametrize("verb", [pytest.param("plan", marks=pytest.mark.soak(part="environments")), "up"])
def test_a_wheel_that_the_mirror_lacks_is_refused_before_any_change(verb: str, machine: Node, inventory: Path) -> None:
    before = footprint(machine)
    done = run(verb, inventory, *_WANT, *(["--yes"] if verb == "up" else []))
    assert done.code == done.json["exit"] == 3, str(done)
    (refusal,) = done.host["refusals"]
    assert refusal["rule"] == "python-index-version"
    assert (
        f"wanted is torch==2.14.1+cu130 for Python 3.13, and the Python index of this node ({_MIRROR}/cu130)"
        in (refusal["text"])
    )
    assert refusal["text"].endswith("has torch 2.14.0+cu130")
    assert "for example --want pytorch=2.14.0+cu130" in refusal["remedy"]
    assert footprint(machine) == before


def test_what_is_proposed_is_planned_with_the_sizes_of_its_wheels(machine: Node, inventory: Path) -> None:
    done = run("plan", inventory, "--want", "pytorch=2.14.0+cu130")
    assert done.code == 0, str(done)
    (change,) = [row for row in done.host["changes"] if row["component"] == "frameworks"]
    assert [(row["name"], row["version"]) for row in change["wheels"]] == [
        ("torch", "2.14.0+cu130"), ("torchvision", "0.29.0+cu130"), ("torchaudio", "2.11.0+cu130"),
    ]  # fmt: skip
    sizes = [row["download_bytes"] for row in change["wheels"]]
    assert all(sizes), sizes
    packages = [row["download_bytes"] for other in done.host["changes"] for row in other["packages"]]
    assert done.host["download_bytes"] >= sum(sizes) + sum(packages)


def test_a_mirror_that_does_not_answer_is_a_warning(machine: Node, inventory: Path) -> None:
    machine.shell("systemctl stop mirror")
    done = run("plan", inventory, *_WANT)
    assert done.code == 0, str(done)
    (told,) = [row for row in done.host["warnings"] if row["rule"] == "wheels-unverified"]
    assert "torch==2.14.1+cu130" in told["text"]
    assert f"{_MIRROR}/cu130" in told["text"]
