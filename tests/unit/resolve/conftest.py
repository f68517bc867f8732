"""Machines to resolve for: described by options, or observed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import resolver, situation
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import Wish
from tests.property import remedies

TODAY = date(2026, 11, 20)

Resolve = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _refusals_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wish that a refusal proposes is resolved as well, and fails the test where it is refused."""
    remedies.watch(monkeypatch)


@pytest.fixture(scope="session")
def rules() -> dict[str, Any]:
    return load_rules()


def answering(rules: dict[str, Any]) -> Resolve:
    """The answers by these rules."""

    def run(
        gpus: str | list[str], os: str, *wants: str, arch: str = "x86_64", today: date = TODAY, **assume: Any
    ) -> dict[str, Any]:
        cards = [gpus] if isinstance(gpus, str) else gpus
        variables = assume.pop("wish", {})
        where = situation.situation_from_options(cards, os, arch, assume, rules, today=today)
        wished = Wish.from_variables({**variables, "gpuwright_want": list(wants)}, rules)
        return resolver.resolve(where, wished, rules)

    return run


@pytest.fixture
def resolve(rules: dict[str, Any]) -> Resolve:
    """resolve("H100", "debian-13", "cuda", "pytorch", kernel="6.8", wish={...}): the answer for a described machine."""
    return answering(rules)


@pytest.fixture
def resolve_without_key(rules: dict[str, Any]) -> Resolve:
    """The same where nothing is known of the key of NVIDIA's repository for release 10 of Red Hat's systems."""
    known = copy.deepcopy(rules)
    (row,) = [row for row in known["upstreams"]["keys"] if row["id"] == "CDF6BA43"]
    row |= {"fingerprint": None, "text_sha256": None}
    return answering(known)


FACTS: dict[str, Any] = {
    "schema": 1,
    "root": "/",
    "privileged": True,
    "unknown": {},
    "simulated": False,
    "hostname": "node",
    "time": "2026-11-20T12:00:00Z",
    "os": {
        "id": "debian",
        "version": "13",
        "codename": "trixie",
        "name": "Debian 13",
        "family": "debian",
        "arch": "x86_64",
        "glibc": "2.41",
    },
    "environment": {"kind": "bare", "detail": None},
    "boot": {"id": "b", "efi": True, "secure_boot": False, "cmdline": ""},
    "kernel": {
        "running": "6.12.94+deb13-amd64",
        "next": "6.12.94+deb13-amd64",
        "installed": ["6.12.94+deb13-amd64"],
        "headers": [],
        "loaded": {},
        "available": {},
    },
    "pci": {
        "gpus": [{"bus_id": "00000000:3B:00.0", "vendor": "10de", "device": "2330", "class": "0302", "driver": None}],
        "nvswitches": [],
        "other_gpus": [],
        "nvlink5": False,
    },
    "display": {"desktop": False, "nvidia_screens": []},
    "driver": {
        "owner": "none",
        "source": None,
        "packages": {},
        "loaded_version": None,
        "loaded_modules": None,
        "user_version": None,
        "lock": {"set": [], "held": [], "excluded": None, "pins": {}, "would_move": None},
    },
    "smi": None,
    "cuda": {"toolkits": [], "cudnn": []},
    "containers": {"docker": {"installed": False, "version": None}, "toolkit": {"version": None}},
    "python": {"interpreters": [{"path": "/usr/bin/python3.13", "version": "3.13.5"}], "venv": True},
    "packages": {
        "manager": "apt",
        "holds": [],
        "installed": {},
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
    "seals": {},
    "proof": None,
}


@pytest.fixture
def facts() -> dict[str, Any]:
    """A bare Debian 13 host with one H100."""
    return copy.deepcopy(FACTS)


@pytest.fixture
def answer(rules: dict[str, Any]) -> Resolve:
    """answer(facts, "pytorch", wish={...}, previous=..., absent=...): the answer for an observed machine."""

    def run(seen: dict[str, Any], *wants: str, wish: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        wished = Wish.from_variables({**(wish or {}), "gpuwright_want": list(wants)}, rules)
        where = situation.situation_from_facts(seen, wished, rules, today=TODAY, **options)
        return resolver.resolve(where, wished, rules)

    return run
