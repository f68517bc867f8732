# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images of containers that may be wished."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import image_reference
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ....model.errors import BadInput

VARIABLE = "container_toolkit_images"
#: The image of CUDA that fits the driver, as the resolver chooses it.
CHOSEN = "auto"
_EXAMPLES = ["container-image=docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04", "container-image=auto"]
#: What would be a user, with or without a password: a digest has a colon behind its @.
_USER = lazy(r"://|@(?!sha256:)")


def read(given: object) -> tuple[str, ...]:
    """The images of the variable, each once. Raises BadInput for what is none."""
    if given in (None, "", [], (), False):
        return ()
    if not isinstance(given, (str, list, tuple)):
        raise BadInput(f"{VARIABLE} has to be a list of images, found {type(given).__name__}", _EXAMPLES)
    words = [each.strip() for each in given.split(",")] if isinstance(given, str) else given
    return tuple(dict.fromkeys(reference(word, VARIABLE) for word in words))


def reference(given: object, what: str) -> str:
    """An image with its registry and its tag or digest, or the word for the one that fits. Raises BadInput."""
    text = str(given).strip()
    if text == CHOSEN:
        return text
    if _USER.search(text):
        raise BadInput(
            f"{what}: an image is named without a scheme, a user or a password. Log in to its registry as root "
            "(docker login, podman login): the engine reads that by itself",
            _EXAMPLES,
        )
    found = image_reference.in_full(text)
    if found is None:
        raise BadInput(f"{what}: {text[:120]!r} is no image with a tag or a digest (sha256)", _EXAMPLES)
    return found
