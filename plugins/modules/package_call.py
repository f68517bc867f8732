#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_call
short_description: Install packages at exact versions by apt or dnf
version_added: "0.2.0"
description:
  - Asks the package manager's record what is there in the wished version, and calls apt or dnf for the rest, once.
  - What comes along is of the versions that the plan counted on (O(preferences)), also where a source has newer ones. It is told to apt for
    this call alone.
  - What the call brings is written down on the node, from the package manager's own log, so that it can be taken back.
  - Of apt no recommended packages and of dnf no weak dependencies are installed. A changed file of settings stays as it is.
  - In a play the options O(takes), O(may_take), O(manager), O(preferences), O(enabled) and O(left_out), and without them O(specs), are
    read from the variable C(gpuwright_plan).
options:
  names:
    description: Names of the packages.
    type: list
    elements: str
    required: true
  specs:
    description: The packages as the manager takes them, with their versions (C(name=version) of apt, C(name-version) of dnf).
    type: list
    elements: str
    default: []
  allow_downgrade:
    description: Whether a package of O(specs) may go back to an older version.
    type: bool
    default: false
  allow_held:
    description: Whether a package on hold may change.
    type: bool
    default: false
  takes:
    description:
      - Whether the plan takes packages away - removes them, takes them to older versions, or changes them though they are on hold.
      - Without it apt is told to remove nothing.
    type: bool
    default: false
  may_take:
    description:
      - Names of the packages that may be taken away so. A trial comes first; where it would take another one, nothing is changed.
    type: list
    elements: str
    default: []
  manager:
    description: The package manager of the machine.
    type: str
    choices: [apt, dnf]
    default: apt
  preferences:
    description: Preferences (apt_preferences(5)) for this call of apt, in front of the machine's own.
    type: str
    default: ""
  enabled:
    description: Repositories that dnf enables for this call.
    type: list
    elements: str
    default: []
  left_out:
    description: Repositories that dnf leaves out of this call.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: Seconds to wait for apt's lock.
    type: int
    default: 300
  owner:
    description:
      - The run that this belongs to, as M(gpuwright.node.node_seal) took the node for it. It is held meanwhile, however long this takes;
        where another run has it, nothing is done.
      - In a play of this collection it is read from the variable C(gpuwright_plan).
    type: str
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Says what would be installed. The package index is not asked, since a source of it may only be planned.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Install the driver
  gpuwright.node.package_call:
    names: [nvidia-driver-cuda]
    specs: [nvidia-driver-cuda=580.126.20-1]
    manager: apt
"""

RETURN = r"""
installed:
  description: The packages that were (in check mode, would be) installed, as the manager takes them.
  returned: success
  type: list
  elements: str
  sample: [nvidia-driver-cuda=580.126.20-1]
cmd:
  description: The command that failed.
  returned: failure
  type: list
  elements: str
"""

from typing import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.packages import installing, recording
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals


def main() -> None:
    """Read the options, install, answer."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "specs": {"type": "list", "elements": "str", "default": []},
            "allow_downgrade": {"type": "bool", "default": False},
            "allow_held": {"type": "bool", "default": False},
            "takes": {"type": "bool", "default": False},
            "may_take": {"type": "list", "elements": "str", "default": []},
            "manager": {"type": "str", "choices": ["apt", "dnf"], "default": "apt"},
            "preferences": {"type": "str", "default": ""},
            "enabled": {"type": "list", "elements": "str", "default": []},
            "left_out": {"type": "list", "elements": "str", "default": []},
            "lock_timeout": {"type": "int", "default": 300},
            "owner": {"type": "str"},
        },
        supports_check_mode=True,
    )

    def run(argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, str, str]:
        # No time limit: dpkg is not stopped in the middle.
        rc, out, err = module.run_command(list(argv), environ_update=dict(extra))
        return rc, out, err

    given = dict(module.params)
    given["specs"] = given["specs"] or given["names"]
    owner = given.pop("owner")
    try:
        with run_lock.at_work(Host(), None if module.check_mode else owner):
            answer = installing.install(installing.Call(**given), recording.recording(run, Host), module.check_mode)
    except installing.InstallationRefused as exc:
        module.fail_json(msg=str(exc), cmd=["apt-get" if given["manager"] == "apt" else "dnf"])
    except installing.InstallationFailed as exc:
        module.fail_json(msg=str(exc), **exc.answer)
    except seals.SealError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg="{0} could not be written: {1}. Run as root.".format(exc.filename, exc.strerror))
    else:
        module.exit_json(**answer)


if __name__ == "__main__":
    main()
