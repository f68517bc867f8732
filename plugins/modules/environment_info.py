#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: environment_info
short_description: Look at a virtual environment and say what it lacks
version_added: "0.2.0"
description:
  - Looks at a virtual environment, and says on the controller, by the functions that also make the plan, what is to be done with it.
  - The environment's own interpreter and pip are run, and the interpreter that would make it.
  - The task fails where something else lies in the environment's place.
  - It only reads.
options:
  path:
    description: Directory of the environment.
    type: path
    required: true
  interpreter:
    description: Version of the Python that it is to have, such as V(3.12).
    type: str
    required: true
  requirements:
    description: What it is to hold, each C(name==version).
    type: list
    elements: str
    required: true
  constraints:
    description: What is installed has to keep these besides.
    type: list
    elements: str
    default: []
  wheels:
    description: The wheels of a lock that it is to be made of, as M(gpuwright.node.wheels) takes them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the distribution.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      sha256:
        description: SHA-256 of each file that it may come as.
        type: list
        elements: str
        required: true
  index_url:
    description: Index that its requirements come from; it is named where one of them is not there.
    type: str
  loader_path:
    description: Directory of libraries that its activation has to put first. Without it, none.
    type: str
  rebuild:
    description: Whether it is made anew whatever is in it.
    type: bool
    default: false
  restores:
    description: Whether the build that was in use before is to be in use again, whatever is in this one.
    type: bool
    default: false
  user:
    description:
      - Whether it is made without root. No package is installed for it then; where its Python has no ensurepip it is made without pip,
        which M(gpuwright.node.wheels) brings.
    type: bool
    default: false
  installed:
    description: Whether it has just been brought to what it is to be. The task then fails where it is not.
    type: bool
    default: false
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing.
    details: In check mode it counts as changed where the environment is not right, and C(msg) says what would be installed.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Look at the environment of PyTorch
  gpuwright.node.environment_info:
    path: /opt/gpuwright/pytorch
    interpreter: "3.12"
    requirements: [torch==2.14.1+cu130]
  register: seen
"""

RETURN = r"""
environment:
  description: What was seen.
  returned: success
  type: dict
action:
  description:
    - What is to be done. V(none); V(activate), where it is right but for its activation; V(return), where the build that was in use before
      is what is wished; V(build); V(swap) for a build that is ready.
  returned: success
  type: str
  sample: none
command:
  description: The program with its arguments that makes a build, but for its directory; empty where none is made.
  returned: success
  type: list
  elements: str
lacks_maker:
  description: Whether the package is missing that makes environments.
  returned: success
  type: bool
  sample: false
unmet:
  description: Requirements that are missing or different, and constraints that are broken.
  returned: success
  type: list
  elements: str
  sample: [torch==2.14.1+cu130]
keep:
  description: Whether what is in use is worth to be kept when another build takes its place.
  returned: success
  type: bool
  sample: true
tidy:
  description: Whether something is to be taken away that a build left which was cut off.
  returned: success
  type: bool
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.packages import environments, wheels


def main() -> None:
    """Look and answer. What else the options say is read by the action on the controller."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "interpreter": {"type": "str", "required": True},
            "requirements": {"type": "list", "elements": "str", "required": True},
            "constraints": {"type": "list", "elements": "str", "default": []},
            "wheels": wheels.OPTION,
            "index_url": {"type": "str"},
            "loader_path": {"type": "str"},
            "rebuild": {"type": "bool", "default": False},
            "restores": {"type": "bool", "default": False},
            "user": {"type": "bool", "default": False},
            "installed": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, environment=environments.look(module.params))
    except OSError as exc:
        module.fail_json(
            msg="Expected to read {0}. Found: {1}. What to do: run as root.".format(module.params["path"], exc)
        )


if __name__ == "__main__":
    main()
