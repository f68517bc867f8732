"""Machines to resolve for: described by options, or observed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus as catalogued
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.property import remedies
from tests.unit.plan import nodes

TODAY = date(2026, 11, 20)

Resolve = Callable[..., Any]


@pytest.fixture(autouse=True)
def _refusals_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wish that a refusal proposes is resolved as well, and fails the test where it is refused."""
    remedies.watch(monkeypatch)


@pytest.fixture(scope="session")
def rules() -> Any:
    return load_rules()


def answering(rules: Any) -> Resolve:
    """The answers by these rules."""

    def run(gpus: str | list[str], os: str, *wants: str, arch: str = "", today: date = TODAY, **assume: Any) -> Any:
        cards = [gpus] if isinstance(gpus, str) else gpus
        variables = assume.pop("wish", {})
        named = arch or ("" if any(catalogued.identify(card, rules).get("arch") for card in cards) else "x86_64")
        where = machine.machine_from_options(cards, os, named, assume, rules, today=today)
        wished = Wish.from_variables({**variables, "gpuwright_want": list(wants)}, rules)
        return resolver.resolve(where, wished, rules)

    return run


@pytest.fixture
def resolve(rules: Any) -> Resolve:
    """resolve("H100", "debian-13", "cuda", "pytorch", kernel="6.8", wish={...}): the answer for a described machine."""
    return answering(rules)


@pytest.fixture
def resolve_without_key(rules: Any) -> Resolve:
    """The same where nothing is known of the key of NVIDIA's repository for release 10 of Red Hat's systems."""
    known = copy.deepcopy(rules)
    (row,) = [row for row in known["upstreams"]["keys"] if row["id"] == "CDF6BA43"]
    row |= {"fingerprint": None, "text_sha256": None}
    return answering(known)


FACTS: Any = nodes.bare(
    simulated=False,
    os={"name": "Debian 13"},
    boot={"id": "b"},
    pci={"gpus": [{**nodes.H100, "bus_id": "00000000:3B:00.0"}]},
    packages={
        "sources": [
            {
                "file": "/etc/apt/sources.list.d/debian.sources",
                "types": ["deb"],
                "uris": ["http://mirror.example/debian"],
                "suites": ["trixie", "trixie-updates"],
                "components": ["main"],
                "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
                "enabled": True,
            },
        ],
    },
)


@pytest.fixture
def facts() -> Any:
    """A bare Debian 13 host with one H100."""
    return copy.deepcopy(FACTS)


@pytest.fixture
def answer(rules: Any) -> Resolve:
    """answer(facts, "pytorch", wish={...}, previous=..., absent=...): the answer for an observed machine."""

    def run(seen: Any, *wants: str, wish: Any = None, **options: Any) -> Any:
        wished = Wish.from_variables({**(wish or {}), "gpuwright_want": list(wants)}, rules)
        where = machine.machine_from_facts(seen, wished, rules, today=TODAY, **options)
        return resolver.resolve(where, wished, rules)

    return run
