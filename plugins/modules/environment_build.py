#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: environment_build
short_description: Make place for a build of a virtual environment, and swap it in whole
version_added: "0.2.0"
description:
  - A virtual environment is built in a directory of its own beside its path, C(/opt/gpuwright/.pytorch/2) for
    C(/opt/gpuwright/pytorch), and the path comes to lead to it in one step.
  - The build that was in use before is kept until the next swap.
options:
  path:
    description: Path of the environment.
    type: path
    required: true
  state:
    description:
      - V(begun) takes away what an earlier build that was cut off left, but for what uv downloaded, and makes place for a new one.
      - V(swapped) has O(path) lead to O(build).
      - V(returned) has O(path) lead to the build that was in use before.
      - V(tidy) takes away what an earlier build that was cut off left.
      - V(removed) takes away the environment with all of its builds, where somebody's link leads to it too, and the directories that were
        made for it, as far as nothing else is in them. That it is ours has to be known before.
    type: str
    choices: [begun, swapped, returned, tidy, removed]
    required: true
  build:
    description: Directory of the build that is swapped in, as V(begun) answered it.
    type: path
  keep:
    description: Whether the build that was in use is kept.
    type: bool
    default: true
  time:
    description: Time of this change, as it is remembered beside the build that is kept.
    type: str
    default: ""
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing then.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Make place for a build
  gpuwright.node.environment_build:
    path: /opt/gpuwright/pytorch
    state: begun
  register: begun

- name: Swap it in
  gpuwright.node.environment_build:
    path: /opt/gpuwright/pytorch
    state: swapped
    build: "{{ begun.build }}"
"""

RETURN = r"""
build:
  description: Directory of the build that was begun or is in use now.
  returned: when O(state) is another than V(tidy) and V(removed)
  type: str
  sample: /opt/gpuwright/.pytorch/2
stays:
  description: Directory of the builds, where something of somebody else's is in it.
  returned: when O(state=removed)
  type: str
  sample: /opt/gpuwright/.pytorch
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.packages import environment_swap


def main() -> None:
    """Bring the builds to the state, and answer."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "required": True, "choices": ["begun", "swapped", "returned", "tidy", "removed"]},
            "build": {"type": "path"},
            "keep": {"type": "bool", "default": True},
            "time": {"type": "str", "default": ""},
        },
        required_if=[("state", "swapped", ["build"])],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, build=None, stays=None)
    try:
        module.exit_json(**environment_swap.bring(module.params))
    except OSError as exc:
        module.fail_json(
            msg="Expected to change the builds of {0}. Found: {1}. What to do: look at that path, and run as root.".format(
                module.params["path"], exc
            )
        )


if __name__ == "__main__":
    main()
