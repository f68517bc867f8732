#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: removal_answers
short_description: Answer what a removal has to know before its first change
version_added: "0.2.0"
description:
  - Runs programs that only read, each with a time limit, looks whether paths are there, has dnf try a removal without doing it, and
    compares the files that were put aside with what stands in their places now.
  - A program that fails or does not end is no failure of the module; its answer says so.
options:
  commands:
    description: Programs with their arguments. None of them may change anything.
    type: list
    elements: list
    default: []
  there:
    description: Paths.
    type: list
    elements: str
    default: []
  rpms:
    description: Packages whose removal dnf tries. With apt that is one of O(commands).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that each program may take.
    type: float
    default: 120
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, so check mode makes no difference.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Ask what Docker holds
  gpuwright.node.removal_answers:
    commands:
      - [docker, ps, --all, --quiet]
    there: [/var/lib/docker]
  register: answers
"""

RETURN = r"""
answers:
  description: Of each program C(item), its exit status C(rc) (null where it did not end), C(stdout_lines), and C(error).
  returned: success
  type: list
  elements: dict
  sample: []
there:
  description: Of each path C(item) and C(stat), in which C(exists) says whether something is there.
  returned: success
  type: list
  elements: dict
  sample: []
others:
  description: Packages that dnf would remove besides.
  returned: success
  type: list
  elements: str
  sample: []
untried:
  description: Why dnf does not try the removal. Null where it does.
  returned: success
  type: str
  sample: null
aside:
  description:
    - Files that were put aside, each with its C(path), and what is in its place C(now), V(absent), V(same), V(left) as gpuwright left it,
      V(marked) where it was changed since, or V(other).
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.packages import removal_answers


def main() -> None:
    """Ask everything, answer."""
    module = AnsibleModule(
        argument_spec={
            "commands": {"type": "list", "elements": "list", "default": []},
            "there": {"type": "list", "elements": "str", "default": []},
            "rpms": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    given = module.params
    host = Host(timeout=given["timeout"])
    module.exit_json(
        changed=False,
        answers=[removal_answers.asked(host, command) for command in given["commands"]],
        there=[removal_answers.looked(host, path) for path in given["there"]],
        aside=removal_answers.aside(host),
        **removal_answers.trial(given["rpms"]),
    )


if __name__ == "__main__":
    main()
