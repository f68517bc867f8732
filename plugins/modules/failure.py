# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: failure
short_description: Tell what ended a run on a node, and whether it was the driver
version_added: "0.2.0"
description:
  - In a C(rescue) it tells the task that failed, in which step of the run that was, and what its program said.
  - With O(checks), after the proof, it tells whether the driver failed, from which the node can go back to the one that worked. A check
    that failed before the driver changed, a card that is lost or missing, and what is of the disks or the network are no fault of a driver.
  - It runs on the controller and reads the variables that Ansible has of a failure.
options:
  checks:
    description: The checks of the proof. A failure of a task that there was before goes first.
    type: list
    elements: dict
seealso:
  - module: gpuwright.node.seal
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Remember the failure
  gpuwright.node.failure:
  register: gpuwright_failure
"""

RETURN = r"""
task:
  description: The name of the task that failed.
  type: str
  returned: where something failed
message:
  description: What it said.
  type: str
  returned: where something failed
component:
  description: The step of the run, such as a component of the plan, V(preflight), V(lock) or V(validate).
  type: str
  returned: where something failed
output:
  description: The end of what its program said.
  type: str
  returned: where something failed
program:
  description: The C(name) of the program, and all that it C(said).
  type: dict
  returned: where something failed
of_driver:
  description: Whether it was the driver that failed.
  type: bool
  returned: always
"""
