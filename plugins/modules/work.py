# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: work
short_description: Decide what a component does next, from the node as it is now
version_added: "0.2.0"
description:
  - Runs M(gpuwright.node.node_facts) on the node in the middle of a role, and decides on the controller what the role does next, by the
    same functions that make the plan. Nothing on the node is changed.
  - The plan that is under way is the variable C(gpuwright_plan).
  - The task fails where the run must not go on, with what was expected, what was found and what to do.
options:
  component:
    description: The component whose work it is.
    type: str
    required: true
  step:
    description: The step of that component, as its module in C(plugin_utils/components) names it.
    type: str
    required: true
  given:
    description: What the role itself found out, such as the output of a program.
    type: dict
seealso:
  - module: gpuwright.node.plan
  - module: gpuwright.node.node_facts
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Decide what the driver needs once its packages are there
  gpuwright.node.work:
    component: nvidia_driver
    step: installed
  register: __nvidia_driver_work
"""

RETURN = r"""
files:
  description: Files to write, each with C(path), C(content) and C(mode). Every key is the component's own.
  type: list
  elements: dict
  returned: where the step writes files
"""
