# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the toolkit's packages come from."""

from __future__ import annotations

from ..base import Context

OWN = "nvidia-container-toolkit"


def sources(context: Context) -> list[str]:
    """The toolkit's own package source, or NVIDIA's CUDA repository where only that one is mirrored: it carries both."""
    names = {repository["name"] for repository in context.stack.get("repositories") or ()}
    return [OWN] if OWN in names else ["nvidia-cuda"]
