# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the packages of the toolkit and of the engine come from."""

from __future__ import annotations

from ..base import Context

OWN, DOCKER = "nvidia-container-toolkit", "docker"


def sources(context: Context) -> list[str]:
    """The toolkit's own package source, or NVIDIA's CUDA repository where only that one is mirrored: it carries both. And Docker's own,
    where the engine comes from there.
    """
    names = {repository["name"] for repository in context.stack.get("repositories") or ()}
    return [OWN if OWN in names else "nvidia-cuda", *([DOCKER] if DOCKER in names else [])]
