#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_facts
short_description: Observe a machine for its GPU stack without changing it
version_added: "0.1.0"
description:
  - Answers in one read-only call everything that decides about a GPU stack. Operating system, kernels (running and next),
    PCI devices, driver, CUDA, containers, Python environments, disks, package manager, services, seals and the last proof.
  - What could not be seen is C(null) and named in C(unknown) with the reason. It never counts as absent.
  - It starts nothing. C(nvidia-smi) is run only where its module is loaded, and C(apt) and C(docker) not at all.
options:
  root:
    description: Root of the tree to observe. With another one than C(/), programs run only when they can be told that root.
    type: path
    default: /
  full:
    description: Look deeper where it takes longer, even where a seal is good.
    type: bool
    default: false
  timeout:
    description: Seconds that each external program may take.
    type: float
    default: 20
  environments:
    description: Paths of virtual environments to look at, beside those in seals and below C(/opt/gpuwright).
    type: list
    elements: path
    default: []
  history:
    description: Tell all that the node keeps to find its way back, the drivers that worked with their packages and what gpuwright brought.
    type: bool
    default: false
  initramfs:
    description:
      - List what is inside the initramfs of the next kernel, where no good seal answers for it. That takes seconds, because the listing
        unpacks it; the action M(gpuwright.node.plan) asks for it, the looks of the roles do not need it.
    type: bool
    default: false
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Runs in check mode without changing anything.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Observe the machine
  gpuwright.node.node_facts:
  register: observation

- name: Observe the tree of an image
  gpuwright.node.node_facts:
    root: /mnt/image
"""

RETURN = r"""
facts:
  description: The observation. Its keys are described in the collection's documentation.
  returned: always
  type: dict
  sample:
    kernel:
      running: 6.12.107+deb13-amd64
      next: 6.12.107+deb13-amd64
    unknown: {}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.observe import machine


def main() -> None:
    """Read the options, observe, answer. The actions of this collection send the same without this shell, see plugin_utils/script.py."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "full": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": machine.TIMEOUT},
            "environments": {"type": "list", "elements": "path", "default": []},
            "history": {"type": "bool", "default": False},
            "initramfs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    answer = machine.answer(module.params)
    if answer.get("failed"):
        module.fail_json(msg=answer["msg"])
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
