#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: resume_program
short_description: Keep a copy of the running program that only root can change
version_added: "0.1.0"
description:
  - What goes on after a boot is run by root. It runs from a copy in O(directory) of the program that prepared it, because the
    installation itself (an environment in a home, a clone) may be changed by its user until then.
  - The action packs the program, its requirements and the collection into an archive; the module checks the archive's checksum, and that
    the interpreter and its standard library are root's alone, unpacks it and tries it.
  - Where that is not so nothing is kept, and RV(refused) says why; that is no failure.
options:
  package:
    description: The directory of the package C(gpuwright) that runs, on the machine itself. For the action.
    type: path
  archive:
    description: The packed program. The action sets it.
    type: path
  sha256:
    description: The checksum of O(archive). The action sets it.
    type: str
  places:
    description: Directories that the program needs besides, which the package manager fills. The action sets them.
    type: list
    elements: path
    default: []
  interpreter:
    description: The Python that runs the copy.
    type: path
    required: true
  directory:
    description: Where the copy lies.
    type: path
    required: true
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Says that it would be copied, and copies nothing.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Keep the program for the boot
  gpuwright.node.resume_program:
    package: /home/alice/venv/lib/python3.12/site-packages/gpuwright
    interpreter: /usr/bin/python3.12
    directory: /var/lib/gpuwright/resume/program
"""

RETURN = r"""
refused:
  description: Why there is no copy; none where there is one.
  returned: always
  type: str
  sample: ""
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import program


def main() -> None:
    """Read the options, copy, answer."""
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "path"},
            "archive": {"type": "path"},
            "sha256": {"type": "str"},
            "places": {"type": "list", "elements": "path", "default": []},
            "interpreter": {"type": "path", "required": True},
            "directory": {"type": "path", "required": True},
        },
        required_together=[("archive", "sha256")],
        required_one_of=[("package", "archive")],
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True, refused="")
    try:
        program.keep(given["archive"], given["sha256"], given["interpreter"], given["places"], given["directory"])
    except (program.Refused, OSError) as exc:
        module.exit_json(changed=False, refused=str(exc))
    module.exit_json(changed=True, refused="")


if __name__ == "__main__":
    main()
