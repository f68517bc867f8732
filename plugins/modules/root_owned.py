#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: root_owned
short_description: Refuse paths that another than root, or the user who works without root, may change
version_added: "0.1.0"
description:
  - Fails where one of O(paths), a directory above it, a link on the way or something in it belongs to another user, or may be written by
    one. Where a user runs it who is not root, what belongs to that user is as good as what is root's.
  - What is not there yet is judged by the directories that are.
  - It only reads.
options:
  paths:
    description: Absolute paths.
    type: list
    elements: path
    required: true
  remedy:
    description: What to do about it; the end of the message.
    type: str
    default: move it away, since whoever owned it may still have its files open, and run again.
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, so check mode makes no difference.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Refuse an environment that a user may change
  gpuwright.node.root_owned:
    paths: [/opt/gpuwright/pytorch]
"""

RETURN = r"""# """

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership


def main() -> None:
    """Look at each path; fail with the first offence."""
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "required": True},
            "remedy": {
                "type": "str",
                "default": "move it away, since whoever owned it may still have its files open, and run again.",
            },
        },
        supports_check_mode=True,
    )
    owners = ownership.trusted()
    for path in module.params["paths"]:
        if not path.startswith("/"):
            module.fail_json(msg="{0} is no absolute path".format(path))
        found = ownership.offence_below(path, owners)
        if found:
            module.fail_json(msg=ownership.refusal(path, found, module.params["remedy"], owners))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
