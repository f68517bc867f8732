#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_image
short_description: Pull an image of a container ahead, where it is not there
version_added: "0.2.0"
description:
  - Asks the engine whether it has the image, and pulls it where not, by the engine's own program.
  - A login to the registry is the user's own, as C(docker login) and C(podman login) keep it for root; none is given here.
  - Layers that were pulled before a failure are kept by the engine, so that the next run goes on.
options:
  engine:
    description: Which engine has the images.
    type: str
    choices: [docker, podman]
    required: true
  image:
    description: The image with its registry and its tag or digest.
    type: str
    required: true
  timeout:
    description: Seconds after which a pull counts as hanging.
    type: int
    default: 14400
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Says whether the image would be pulled. Where the engine is not there yet, it would.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Pull the smallest image of CUDA 13.0
  gpuwright.node.container_image:
    engine: docker
    image: docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04
"""

RETURN = r"""
pulled:
  description: Whether the image was pulled now.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import image_reference
from ansible_collections.gpuwright.node.plugins.module_utils.packages import image_pull


def main() -> None:
    """Read the options, pull, answer."""
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True, "choices": ["docker", "podman"]},
            "image": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 14400},
        },
        supports_check_mode=True,
    )
    engine, image = module.params["engine"], module.params["image"]
    if image_reference.in_full(image) != image:
        # What begins with a dash would be an option of the engine.
        module.fail_json(msg="image must be a reference with its registry, and a tag or a digest")
    if module.check_mode:
        module.exit_json(changed=_would_pull(engine, image), pulled=False)
    try:
        pulled = image_pull.bring(engine, image, module.params["timeout"])
    except image_pull.PullError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=pulled, pulled=pulled)


def _would_pull(engine: str, image: str) -> bool:
    """Whether a run would pull. An engine that does not answer may not be there yet."""
    try:
        return not image_pull.is_there(engine, image)
    except image_pull.PullError:
        return True


if __name__ == "__main__":
    main()
