#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_transaction
short_description: Run one command of apt-get or dnf and record what it brought
version_added: "0.2.0"
description:
  - Runs the command as it is, with a mark of gpuwright's, by which the package manager's own log knows it again.
  - It is written down on the node before it begins, and completed from that log after it, so that what it installed can be taken back.
  - Where nobody could say afterwards what it installed, it is not run.
options:
  argv:
    description: The program, C(apt-get) or C(dnf), and its arguments.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Runs nothing.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Put one set of packages in the place of another
  gpuwright.node.package_transaction:
    argv: [apt-get, --yes, install, nvidia-driver-cuda=580.126.20-1, nvidia-driver-libs-]
"""

RETURN = r"""
rc:
  description: The status of the command.
  returned: always
  type: int
  sample: 0
stdout:
  description: The end of what it said.
  returned: always
  type: str
  sample: ""
stderr:
  description: The end of what it said of errors.
  returned: always
  type: str
  sample: ""
"""

from typing import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.packages import installing, recording
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals


def main() -> None:
    """Read the options, run the command, answer."""
    module = AnsibleModule(
        argument_spec={"argv": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )

    def run(argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, str, str]:
        # No time limit: dpkg is not stopped in the middle.
        rc, out, err = module.run_command(list(argv), environ_update=dict(extra))
        return rc, out, err

    argv = module.params["argv"]
    if argv[:1] not in [[name] for name in recording.MANAGERS]:
        module.fail_json(msg="Expected a command of {0}. Found: {1}.".format(" or ".join(recording.MANAGERS), argv))
    if module.check_mode:
        module.exit_json(changed=True, rc=0, stdout="", stderr="")
    try:
        rc, out, err = recording.recording(run, Host)(argv, {})
    except seals.SealError as exc:
        module.fail_json(msg=str(exc))
    if rc != 0:
        failure = installing.InstallationFailed(argv, rc, out, err)
        module.fail_json(msg=str(failure), **failure.answer)
    module.exit_json(changed=True, rc=rc, stdout=installing.end_of(out), stderr=installing.end_of(err))


if __name__ == "__main__":
    main()
