# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: fabric
short_description: Decide which hosts are measured with each other, and judge what they measured
version_added: "0.2.0"
description:
  - It runs on the controller, once for all hosts of a batch, between the calls of M(gpuwright.node.fabric_load) on them.
  - Hosts are measured by pairs, all pairs of a round at the same time, and then together. Up to eight hosts all pairs are measured, of more
    each host with seven others.
  - A host that came together with another one is not blamed for a third one that came together with nobody.
  - It reads what the tasks of the role C(validate) keep of each host.
options:
  state:
    description:
      - V(pairs) returns the rounds of pairs, V(together) that of all hosts which came together with another one in a pair.
      - V(judged) returns the checks of each host.
    type: str
    required: true
    choices: [pairs, together, judged]
seealso:
  - module: gpuwright.node.fabric_load
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Decide who is measured with whom
  gpuwright.node.fabric:
    state: pairs
  run_once: true
  register: rounds
"""

RETURN = r"""
rounds:
  description: What is measured at the same time, with what each host is told for it.
  type: list
  elements: dict
  returned: for O(state=pairs) and O(state=together)
checks:
  description: The checks of each host by its name.
  type: dict
  returned: for O(state=judged)
"""
