# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images that are pulled ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Context, Finding

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts


def wished(context: Context) -> list[str]:
    """The images, with their registries."""
    return list(context.stack["container_toolkit"]["engine"].get("images") or ())


def findings(context: Context) -> list[Finding]:
    """The images that the engine lacks. One that does not run, or is not there yet, may have them: that shows when it is asked."""
    names = wished(context)
    if not names:
        return []
    engine = context.stack["container_toolkit"]["engine"]["name"]
    there = _there(context.facts, engine)
    if there is None:
        why = context.facts["unknown"].get(f"containers.images.{engine}") or f"{engine} does not run"
        return [Finding("configure", f"it is not known which images {engine} has: {why}")]
    return [Finding("configure", f"the image {name} is not there", after=name) for name in names if name not in there]


def _there(facts: Facts, engine: str) -> list[str] | None:
    """The images that an engine has; None where that is not known."""
    images = facts["containers"]["images"]
    return images["docker"] if engine == "docker" else images["podman"]
