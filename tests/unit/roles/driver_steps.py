"""The steps of the role nvidia_driver on nodes that a test makes up."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from tests.unit.plan import nodes

KERNEL = "6.12.94+deb13-amd64"
PIN = "nvidia-driver-pinning-580"
HEADERS = "linux-headers-amd64"
NAMED = ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]


def driver(**changes: Any) -> dict[str, Any]:
    """NVIDIA's driver on Debian, built by DKMS, as the resolver has it."""
    return {
        "branch": "580", "version": None, "modules": "open", "source": "nvidia", "build": "dkms", "adopted": False,
        "packages": [PIN, HEADERS, *NAMED], "pin": {"package": PIN, "hold": NAMED}, "headers": HEADERS, "kernel_module": "nvidia",
        **changes,
    }  # fmt: skip


def plan(stack: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A plan that brings it. ``given``: what the role found out."""
    packages = {PIN: "580.178.04-1", HEADERS: "6.12.107-1", **dict.fromkeys(NAMED, "580.178.04-1")}
    change = {
        "component": "nvidia_driver",
        "action": "install",
        "packages": [{"name": name} for name in (PIN, HEADERS, *NAMED)],
    }
    given = {"kernels": [KERNEL], "upgrade": {}, "uninstalled": {}, **changes.pop("given", {})}
    return {
        "components": ["nvidia_driver"], "changes": [change], "packages": packages, "install": [], "left_out": [], "restore": None,
        "exchange": None, "provision_only": False, "gpus": ["H100"], "stack": {"driver": stack or driver()}, "given": given,
        "allow_busy": False, **changes,
    }  # fmt: skip


def step(name: str, facts: Any = None, made: Any = None, **variables: Any) -> Any:
    """What a step says: of a bare node, and of the plan above, where a test has no other."""
    made = made or plan()
    context = Context(
        facts=facts or nodes.bare(),
        stack=made["stack"],
        versions=made["packages"],
        variables={"nvidia_driver": variables},
    )
    return nvidia_driver.STEPS[name](context, made)
