"""A driver never drags in another kernel unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils import kernels
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import Context, nvidia_driver

from .nodes import bare

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
    assert len(kernels.unasked([{"name": name, "version": version}], PRESENT)) == 1


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
    assert kernels.unasked([{"name": name, "version": version}], PRESENT) == []


def context(**variables: Any) -> Context:
    return Context(facts=bare(), stack={}, variables={"nvidia_driver": variables})


def test_a_plan_with_another_kernel_is_refused_with_its_name_and_the_way_out() -> None:
    install = [{"name": "linux-image-6.12.107+deb13-amd64", "version": "6.12.107-1"}]
    (refusal,) = kernels.refusals(install, context())
    assert refusal["rule"] == "kernel-unasked"
    assert "linux-image-6.12.107+deb13-amd64" in refusal["text"]
    assert "nvidia_driver_allow_kernel" in refusal["remedy"]
    assert kernels.refusals(install, context(nvidia_driver_allow_kernel=True)) == []


def test_the_seal_covers_the_hooks_where_the_role_puts_them() -> None:
    role = Path(__file__).resolve().parents[3] / "roles/nvidia_driver/vars/main.yml"
    assert yaml.safe_load(role.read_text())["__nvidia_driver_kernel_hook_places"] == nvidia_driver.KERNEL_HOOKS
