# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a lock holds of the frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ....model.lock import LockFramework
from ....resolver.part import Part


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


PART = Part(
    "frameworks",
    "frameworks",
    _wants,
    uncompared=_uncompared,
    cards=False,
)
