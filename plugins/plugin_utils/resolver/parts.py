# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a stack: those of a lock in its order, and those that each host wishes for itself in the order in which they are chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..model.lock import LockFramework
from ..wish import Wish
from . import (
    container_toolkit,
    cuda,
    cudnn,
    driver,
    fabric,
    forward,
    gpu_log,
    gpu_settings,
    mig,
    monitoring_exporters,
    monitoring_server,
    nccl,
    tensorrt,
    watch,
)
from .part import Part


def _wants(frameworks: Sequence[LockFramework]) -> Iterator[str]:
    yield from (_framework_want(framework) for framework in frameworks)
    if any("kernel" in framework for framework in frameworks):
        yield "jupyter"
    interpreters = {
        framework.get("environment") or framework["name"]: framework["interpreter"] for framework in frameworks
    }
    versions = set(interpreters.values())
    if len(versions) == 1:
        yield f"python={versions.pop()}"
    else:
        yield from (f"python={version}@{name}" for name, version in interpreters.items())


def _framework_want(framework: LockFramework) -> str:
    """Return a framework as pip writes it; one of a later gpuwright by what a lock holds of it."""
    name, version = framework["name"], framework["version"]
    pinned = ABOUT[name].pinned(version, framework["variant"]) if name in ABOUT else f"{name}=={version}"
    named = framework.get("environment")
    return f"{pinned}@{named}" if named else pinned


def _uncompared(_theirs: LockFramework, *, adopted: bool) -> tuple[str, ...]:
    """Return what may differ: addresses are a matter of mirrors."""
    del adopted
    return ("index_url", "wheels")


_FRAMEWORKS = Part(
    "frameworks",
    "frameworks",
    [
        {
            "name": str,
            "version": str,
            "variant": (str, type(None)),
            "requirements": [str],
            "constraints": [str],
            "index_url": (str, type(None)),
            "cuda": (str, type(None)),
            "cudnn": (str, type(None)),
            "interpreter": str,
            "environment?": str,
            "others?": [str],
            "kernel?": str,
            "wheels?": [{"name": str, "version": str, "sha256": [str]}],
        }
    ],
    _wants,
    uncompared=_uncompared,
    cards=False,
)

PARTS = (
    driver.PART,
    cuda.PART,
    forward.PART,
    cudnn.PART,
    nccl.PART,
    tensorrt.PART,
    container_toolkit.PART,
    _FRAMEWORKS,
)

#: The exporters come after the driver, for which there has to be a DCGM.
HOST_PARTS = (
    mig.HOST_PART,
    gpu_settings.HOST_PART,
    gpu_log.HOST_PART,
    watch.HOST_PART,
    fabric.HOST_PART,
    monitoring_exporters.HOST_PART,
    monitoring_server.HOST_PART,
)


def from_source(stack: Mapping[str, object], source: str) -> list[str]:
    """Return what comes from a package source that several parts share, for a person."""
    shares = [part.sources(part.of(stack)) for part in HOST_PARTS if part.key in stack]
    return [each[source] for each in shares if source in each]


def without_cards(wish: Wish) -> bool:
    """Say whether something is wished that a host has also without a card."""
    return any(getattr(wish, part.key) for part in HOST_PARTS if not part.cards)
