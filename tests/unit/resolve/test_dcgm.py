"""DCGM: where it serves, in which packages, and which fields it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import hosts
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, wish

from .conftest import Resolve

_ENGINE = "nvidia-dcgm.service"


def gpu(resolve: Resolve, cards: Any, system: str, *wants: str, **assume: Any) -> Any:
    answer = resolve(cards, system, *wants, **assume)
    assert answer["ok"], answer["conflicts"]
    return answer["stack"]["monitoring_exporters"]["gpu"]


def told(answer: Any, rule: str) -> list[str]:
    return [row["text"] for row in answer["why"] if row["rule"] == rule]


@pytest.mark.parametrize(
    ("card", "driver", "cuda"),
    [
        ("H100", "driver=580", "cuda13"),
        ("H100", "driver=535", "cuda12"),
        ("RTX 4090", "driver=580", "cuda13"),
        # CUDA 13 has nothing for them, whatever the driver.
        ("V100", "driver=580", "cuda12"),
    ],
)
def test_dcgm_comes_for_the_cuda_of_the_driver_and_the_cards(
    resolve: Resolve, card: str, driver: str, cuda: str
) -> None:
    found = gpu(resolve, card, "ubuntu-22.04", driver, "monitoring")
    assert (found["source"], found["dcgm"]["version"], found["dcgm"]["exporter"]) == ("dcgm", "4.5.3", "4.8.2")
    assert found["dcgm"]["packages"] == [
        "datacenter-gpu-manager-4-core",
        f"datacenter-gpu-manager-4-{cuda}",
        "datacenter-gpu-manager-4-proprietary",
        f"datacenter-gpu-manager-4-proprietary-{cuda}",
        "datacenter-gpu-manager-exporter",
    ]


def test_its_repository_is_added_where_the_driver_comes_from_elsewhere(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "driver-source=distro", "monitoring")
    assert answer["stack"]["monitoring_exporters"]["gpu"]["source"] == "dcgm"
    (row,) = [each for each in answer["stack"]["repositories"] if each["name"] == "nvidia-cuda"]
    # The driver stays the distribution's.
    assert "nvidia-*" in row["exclude"]["packages"]


@pytest.mark.parametrize(
    ("system", "assume", "words"),
    [
        ("debian-13", {}, "NVIDIA names no DCGM for Debian 13"),
        ("ubuntu-26.04", {}, "NVIDIA names no DCGM for Ubuntu 26.04"),
        ("ubuntu-24.04", {"wsl": True}, "DCGM does not serve cards in WSL"),
    ],
)
def test_where_dcgm_does_not_serve_the_other_one_comes_with_the_reason(
    resolve: Resolve, system: str, assume: Any, words: str
) -> None:
    answer = resolve("RTX 4090", system, "monitoring", **assume)
    assert answer["stack"]["monitoring_exporters"]["gpu"] == {
        "source": "smi",
        "port": 9400,
        "adopted": None,
        "dcgm": None,
    }
    (text,) = told(answer, "monitoring.smi")
    assert words in text
    refused = resolve("RTX 4090", system, "monitoring=dcgm", **assume)
    assert [words in each["text"] for each in refused["conflicts"]] == [True]
    assert "monitoring=smi" in refused["conflicts"][0]["remedy"]


def test_cards_before_maxwell_and_virtual_ones_have_our_own(resolve: Resolve, rules: Any) -> None:
    """A Tesla K80 has a driver (470) for whose CUDA there is a DCGM."""
    answer = resolve("Tesla K80", "ubuntu-22.04", "monitoring")
    assert answer["stack"]["driver"]["branch"] == "470"
    assert answer["stack"]["monitoring_exporters"]["gpu"]["source"] == "smi"
    assert "or a card, is older than any that DCGM is built for" in told(answer, "monitoring.smi")[0]
    virtual = replace(
        machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", {}, rules),
        foreign=hosts.Foreign(vgpu=True, host_driver="580.1"),
        driver=machine.InstalledDriver("580.126.20", None, "packages", None),
    )
    found = resolver.resolve(virtual, wish(gpuwright_want=["monitoring"]), rules)
    assert "DCGM serves whole cards, and these are virtual" in told(found, "monitoring.smi")[0]


def test_who_asks_for_the_other_one_gets_it(resolve: Resolve) -> None:
    assert gpu(resolve, "H100", "ubuntu-24.04", "driver", "monitoring=smi")["dcgm"] is None


ON = {"active": "active", "enabled": "enabled"}


def of_ubuntu(**changes: Any) -> Any:
    seen = {"listeners": [], "drop_ins": [], "certificate": None, **changes.pop("monitoring", {})}
    return nodes.provisioned(
        os={"id": "ubuntu", "version": "24.04", "codename": "noble", "name": "Ubuntu 24.04", "family": "debian"},
        monitoring=seen,
        **changes,
    )


def test_another_collector_of_the_counters_keeps_them() -> None:
    asked = wish(gpuwright_want=["monitoring"])
    theirs = plan(of_ubuntu(services={_ENGINE: ON}), asked)
    brought = theirs["stack"]["monitoring_exporters"]["gpu"]["dcgm"]
    assert brought["profiling"] is False
    assert told(theirs, "monitoring.profiling") != []
    ours = of_ubuntu(services={_ENGINE: ON}, monitoring={"drop_ins": [_ENGINE]})
    brought = plan(ours, asked)["stack"]["monitoring_exporters"]["gpu"]["dcgm"]
    assert brought["profiling"] is True


def test_what_the_index_lacks_leads_to_the_other_one_unless_it_was_asked_for() -> None:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_exporters import (
        apply as monitoring_exporters,
    )

    stack = plan(of_ubuntu(), wish(gpuwright_want=["monitoring"]))["stack"]
    left, asked = (
        next(each for each in monitoring_exporters.demands(stack, wish(gpuwright_want=[want])) if each.want == "dcgm")
        for want in ("monitoring", "monitoring=dcgm")
    )
    assert (left.key, left.fixed, asked.fixed) == ("dcgm=4.5.3", False, True)
    core, exporter = left.packages[0], left.packages[-1]
    assert [left.accepts(core, f"1:{version}-1") for version in ("4.5.3", "4.5.9", "4.5.2", "4.6.0", "4.4.2")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert [left.accepts(exporter, f"{version}-1") for version in ("4.8.2", "4.8.1", "4.9.0")] == [True, False, False]
    lacking = plan(of_ubuntu(), wish(gpuwright_want=["monitoring"]), absent={"dcgm=4.5.3": ["4.4.2"]})
    assert lacking["stack"]["monitoring_exporters"]["gpu"]["source"] == "smi"
    assert "has no DCGM 4.5.3; it has 4.4.2" in told(lacking, "monitoring.smi")[0]
