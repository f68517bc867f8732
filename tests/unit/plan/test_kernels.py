"""A driver never drags in another kernel unasked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import kernels
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import index_query, notices
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import repositories
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import machine_from_options
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.roles.driver_steps import step

from . import nodes
from .nodes import bare
from .test_planner import index_of, request, wish

EL = "5.14.0-611.el9"
PRESENT = ["6.12.94+deb13-amd64", "6.8.0-87-generic", "5.14.0-570.el9.x86_64"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("linux-image-6.12.107+deb13-amd64", "6.12.107-1"),
        ("linux-image-6.8.0-88-generic", "6.8.0-88.89"),
        ("linux-image-unsigned-6.8.0-88-lowlatency", "6.8.0-88.89"),
        ("linux-image-6.12.107+deb13-amd64:amd64", "6.12.107-1"),
        ("kernel", "5.14.0-611.el9"),
        ("kernel-core", "5.14.0-611.el9"),
        ("kernel-rt-core", "0:5.14.0-611.el9"),
    ],
)
def test_another_kernel_is_seen_by_the_name_of_its_package(name: str, version: str) -> None:
    assert len(kernels.unasked([nodes.coming(name, version)], PRESENT)) == 1


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("linux-image-6.12.94+deb13-amd64", "6.12.94-2"),  # the same kernel, rebuilt
        ("linux-image-amd64", "6.12.107-1"),  # a meta package: what it brings has a row of its own
        ("linux-image-6.12.107+deb13-amd64-dbg", "6.12.107-1"),
        ("linux-headers-6.12.107+deb13-amd64", "6.12.107-1"),
        ("linux-modules-nvidia-580-open-6.8.0-88-generic", "6.8.0-88.89"),
        ("kernel-headers", "5.14.0-611.el9"),
        ("kernel-devel-matched", "5.14.0-611.el9"),
        ("kernel-core", "5.14.0-570.el9"),
    ],
)
def test_what_is_no_other_kernel_is_not_one(name: str, version: str) -> None:
    assert kernels.unasked([nodes.coming(name, version)], PRESENT) == []


@pytest.mark.parametrize(
    ("name", "version", "present", "unasked"),
    [
        ("kernel-64k-core", EL, f"{EL}.aarch64+64k", False),
        ("kernel-64k-core", EL, f"{EL}.aarch64", True),
        ("kernel-core", EL, f"{EL}.aarch64+64k", True),
        ("kernel-rt-core", EL, f"{EL}.x86_64+rt", False),
        ("kernel-rt-core", EL, f"{EL}.x86_64", True),
        ("kernel-rt-core", "4.18.0-553.rt7.342.el8_10", "4.18.0-553.rt7.342.el8_10.x86_64", False),
    ],
)
def test_a_kernel_of_another_flavour_is_another_kernel_in_the_same_version(
    name: str, version: str, present: str, unasked: bool
) -> None:
    assert bool(kernels.unasked([nodes.coming(name, version)], [present])) == unasked


def context(**variables: Any) -> Context:
    return Context(facts=bare(), stack={}, variables={"nvidia_driver": variables})


def test_a_plan_with_another_kernel_is_refused_with_its_name_and_the_way_out() -> None:
    install = [nodes.coming("linux-image-6.12.107+deb13-amd64", "6.12.107-1")]
    (refusal,) = kernels.refusals(install, context())
    assert refusal["rule"] == "kernel-unasked"
    assert "linux-image-6.12.107+deb13-amd64" in refusal["text"]
    assert "nvidia_driver_allow_kernel" in str(refusal["remedy"])
    assert kernels.refusals(install, context(nvidia_driver_allow_kernel=True)) == []


def test_a_plan_that_brings_the_kernel_that_is_there_again_is_not_refused() -> None:
    there = bare()["kernel"]["installed"][0]
    assert kernels.refusals([nodes.coming(f"linux-image-{there}", "6.12.94-2")], context()) == []


CORE = nodes.coming("kernel-core", EL)


@pytest.mark.parametrize(
    ("install", "whole"),
    [
        ([CORE], [f"kernel-{EL}.x86_64"]),
        ([CORE, nodes.coming("kernel", EL)], []),
        ([nodes.coming("kernel-core", "5.14.0-570.el9")], []),  # the one that is there, again
        ([nodes.coming("kernel-rt-core", EL)], [f"kernel-rt-{EL}.x86_64"]),
        ([nodes.coming("kernel-64k-core", EL)], [f"kernel-64k-{EL}.x86_64"]),
        ([nodes.coming("kernel-64k-core", EL), nodes.coming("kernel-64k", EL)], []),
        ([nodes.coming("linux-image-6.12.107+deb13-amd64", "6.12.107-1")], []),
        ([nodes.coming("kernel-devel-matched", EL)], []),
    ],
)
def test_a_kernel_that_comes_on_purpose_comes_with_its_modules(install: list[Any], whole: list[str]) -> None:
    allowed = context(nvidia_driver_allow_kernel=True)
    allowed.facts["kernel"]["installed"] = PRESENT
    assert kernels.whole(install, allowed) == whole
    refused = context()
    refused.facts["kernel"]["installed"] = PRESENT
    assert kernels.whole(install, refused) == []


def test_the_whole_kernel_is_asked_of_the_index_with_the_driver() -> None:
    inputs = {"nvidia_driver": {"nvidia_driver_allow_kernel": True}}
    drafted = make_draft(bare(), wish(), load_rules(), replace(request(), inputs=inputs))
    assert isinstance(drafted, Draft)
    index = index_of(drafted)
    index["install"] = [*index["install"], {**CORE, "download_bytes": 1}]
    again = index_query.tightened(drafted, index)
    assert again is not None
    assert set(again.packages) - set(drafted.packages) == {f"kernel-{EL}.x86_64"}


def test_the_seal_covers_the_hooks_where_the_role_puts_them() -> None:
    facts = nodes.provisioned()
    driver = nodes.driver_stack()
    sealed = nvidia_driver.manages(Context(facts=facts, stack={"driver": driver})).files
    written = step("verified", facts)["hooks"]["places"]
    assert written == nvidia_driver.KERNEL_HOOKS["debian"]
    assert set(written) <= set(sealed)


_REGISTERED = "subscription-manager repos --enable "
_OTHERS = "dnf config-manager --set-enabled "


@pytest.mark.parametrize(
    ("system", "version", "name", "steps"),
    [
        *(("ol", each, f"ol{each[0]}_codeready_builder", _OTHERS) for each in ("8.10", "9.6")),
        ("ol", "10.1", "ol10_codeready_builder", _OTHERS),
        *(
            ("rhel", version, form.format(version.partition(".")[0]), _OTHERS)
            for version in ("8.10", "9.6", "10.1")
            for form in (
                "codeready-builder-for-rhel-{}-rhui-rpms",
                "codeready-builder-for-rhel-{}-x86_64-rhui-rpms",
                "rhui-codeready-builder-for-rhel-{}-x86_64-rhui-rpms",
            )
        ),
        ("rhel", "9.6", "codeready-builder-for-rhel-9-x86_64-rpms", _REGISTERED),
        ("rhel", "10.1", "codeready-builder-for-rhel-10-x86_64-rpms", _REGISTERED),
        ("rocky", "8.10", "powertools", _OTHERS),
        ("almalinux", "9.6", "crb", _OTHERS),
    ],
)
def test_the_builder_of_each_system_is_found_and_the_steps_name_it(
    system: str, version: str, name: str, steps: str
) -> None:
    rules = load_rules()
    where = machine_from_options([], f"{system}-{version}", "x86_64", {}, rules)
    source: Any = {"name": name, "enabled": False}
    found = repositories.builders(replace(where, package_sources=(source,)), rules)
    assert [(row["repository"], row["steps"]) for row in found] == [(name, steps + name)]


def test_a_repository_that_epel_needs_is_enabled_for_the_run_and_told() -> None:
    facts = bare()
    source = {"file": "/etc/yum.repos.d/rocky.repo", "types": ["rpm"], "uris": ["http://m.example/"], "suites": [], "components": [],
              "signed_by": None}  # fmt: skip
    facts["os"] |= {"id": "rocky", "version": "9.7", "family": "redhat"}
    facts["packages"] |= {
        "manager": "dnf",
        "sources": [
            {**source, "name": "baseos", "enabled": True},
            {**source, "name": "crb", "enabled": False},
            {**source, "name": "devel", "enabled": False},
        ],
    }
    drafted = make_draft(facts, wish(gpuwright_want=["driver"]), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert [row["repository"] for row in drafted.builders] == ["crb"]
    index = index_of(drafted)
    assert finish(drafted, nodes.index(**{**index, "enabled": []}))["enabled"] == []
    made = finish(drafted, nodes.index(**{**index, "enabled": ["crb"]}))
    assert made["enabled"] == ["crb"]
    (told,) = [row for row in made["warnings"] if row["rule"] == "repository.builder"]
    assert "dnf config-manager --set-enabled crb" in told["text"]
    # After the run the index is not asked again, and whoever reads the report is told all the same.
    assert told["rule"] in notices.OF_THE_INDEX
    facts["packages"]["sources"][1]["enabled"] = True
    drafted = make_draft(facts, wish(gpuwright_want=["driver"]), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert drafted.builders == []
