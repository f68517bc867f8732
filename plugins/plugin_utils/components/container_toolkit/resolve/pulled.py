# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which images of containers the engine pulls ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....model.stack import Image
from ....resolver.images import Verdict
from ....resolver.log import Log, Unresolved, conflict
from ....wish.wish import Wish
from ..model import Engine
from ..wish.images import CHOSEN

#: The image that the word auto chooses a tag of.
_CUDA = "nvidia/cuda"


def choose(
    wish: Wish,
    engine: Engine,
    fitting: Callable[[], Iterable[Image]],
    judge: Callable[[str], Verdict | None],
    log: Log,
) -> list[str]:
    """Return the images that the engine pulls ahead, with their registries. ``fitting``: those that fit the driver, for the word auto;
    ``judge``: whether one that is named does.

    Raises Unresolved where the engine pulls none, or none fits.
    """
    wished = wish.container_toolkit_images
    if wished and engine["name"] == "containerd":
        text = "images for Kubernetes are kubelet's, with logins and mirrors that ctr does not read, and it removes what no pod uses"
        remedy = "take container-image away and let a DaemonSet pull it, or use container-engine=docker"
        raise Unresolved(conflict("container-toolkit.images", text, "the wish", remedy))
    _hold([image for image in wished if image != CHOSEN], judge, log)
    found = [each for image in wished for each in (_of_cuda(fitting()) if image == CHOSEN else [image])]
    names = list(dict.fromkeys(found))
    if names:
        text = f"{engine['name']} pulls {', '.join(names)} ahead: asked for"
        log.decided("container-toolkit.images", text, "the wish")
    return names


def _hold(named: Iterable[str], judge: Callable[[str], Verdict | None], log: Log) -> None:
    """Hold each image that is named against driver and cards. Raises Unresolved for those that do not run there."""
    refused = []
    for image in named:
        verdict = judge(image)
        if verdict is None:
            continue
        if verdict.runs:
            log.decided("container-toolkit.image", verdict.text, verdict.source)
        elif verdict.runs is None:
            log.warn("container-toolkit.image", verdict.text, verdict.source)
        else:
            remedy = (
                f"ask for container-image={verdict.instead}"
                if verdict.instead
                else "take the image away, or a newer one of it"
            )
            refused.append(conflict("container-toolkit.image", verdict.text, verdict.source, remedy))
    if refused:
        raise Unresolved(*refused)


def _of_cuda(fitting: Iterable[Image]) -> list[str]:
    """Return the smallest image of CUDA that fits the driver, for each toolkit that is wished. Raises Unresolved where none does."""
    rows = [row for row in fitting if row["name"] == _CUDA]
    references = [row["reference"] for row in rows if row["reference"]]
    if references:
        return references
    text = f"container-image=auto: {rows[0]['text']}"
    remedy = "name the image itself, such as container-image=docker.io/nvidia/cuda:TAG, or take it away"
    raise Unresolved(conflict("container-toolkit.images", text, rows[0]["source"], remedy))
