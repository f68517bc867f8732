#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: container_check
short_description: Prove that containers see the cards of the host, and see them yet after a daemon-reload
version_added: "0.2.0"
description:
  - Starts a container of an image that is there for each way that an engine has of handing it the cards, without network and without
    volumes, and asks it by C(nvidia-smi -L). The UUIDs have to be those of the host, of MIG devices too.
  - Then it has systemd read its units again (C(systemctl daemon-reload)), as each installation of a package does, and asks once more. Where
    device nodes have no link in C(/dev/char) it leaves that out, because containers of others could lose their cards by it.
  - The containers are ended in every case. Nothing is pulled.
options:
  engine:
    description: Which engine starts them.
    type: str
    choices: [docker, podman]
    required: true
  images:
    description: Images, of which the first that is there is taken.
    type: list
    elements: str
    required: true
  ways:
    description: V(gpus) for C(--gpus all), V(cdi) for C(--device nvidia.com/gpu=all).
    type: list
    elements: str
    choices: [cdi, gpus]
    required: true
  unlinked:
    description: Device nodes that have no link in C(/dev/char).
    type: list
    elements: path
    default: []
  smi:
    description: The host's nvidia-smi.
    type: path
    default: nvidia-smi
  timeout:
    description: Seconds after which one call counts as hanging.
    type: int
    default: 120
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: No container is started then, and the checks are C(incomplete).
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Prove that Docker's containers see the cards
  gpuwright.node.container_check:
    engine: docker
    images: [docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04]
    ways: [gpus, cdi]
"""

RETURN = r"""
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 4.2
checks:
  description: The judgement, C(container.cards) for each way, and C(container.reload) for each that works.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "container.cards", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import time
from typing import Dict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, image_reference
from ansible_collections.gpuwright.node.plugins.module_utils.measure import containers


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True, "choices": ["docker", "podman"]},
            "images": {"type": "list", "elements": "str", "required": True},
            "ways": {"type": "list", "elements": "str", "required": True, "choices": sorted(containers.WAYS)},
            "unlinked": {"type": "list", "elements": "path", "default": []},
            "smi": {"type": "path", "default": "nvidia-smi"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    wrong = [image for image in params["images"] if image_reference.in_full(image) != image]
    if wrong:
        # What begins with a dash would be an option of the engine.
        module.fail_json(msg="images must be references with their registry, and a tag or a digest")
    if params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    question = containers.Question(
        params["engine"], params["images"], params["ways"], params["unlinked"], params["smi"], params["timeout"]
    )
    answer = _of_check_mode() if module.check_mode else _proven(question)
    module.exit_json(changed=False, **checks.with_verdict(answer))


def _of_check_mode() -> Dict[str, object]:
    reason = "check mode starts no container"
    return {"seconds": 0.0, "checks": [checks.incomplete(containers.CARDS, reason, action="none")]}


def _proven(question: containers.Question) -> Dict[str, object]:
    started = time.monotonic()
    found = containers.prove(question)
    return {"seconds": round(time.monotonic() - started, 2), "checks": found}


if __name__ == "__main__":
    main()
