#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: card_sample
short_description: Tell what every card does now, or read a day of the log of the cards
version_added: "0.1.0"
description:
  - Asks C(nvidia-smi) once what each card does at this moment. A card that does not answer has a row that says so.
  - Where no driver is loaded nothing is asked, since C(nvidia-smi) would load its module.
  - Changes nothing. What cannot be told is in RV(problem), and no failure of the module.
extends_documentation_fragment:
  - gpuwright.node.gate
options:
  day:
    description:
      - Read the log of the cards of this day (UTC), such as V(2026-11-27), and ask no card.
      - The component C(gpu-log) keeps it in C(/var/log/gpuwright).
    type: str
attributes:
  check_mode:
    description: The module only reads.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Ask what the cards do
  gpuwright.node.card_sample:
  register: now

- name: Wait with the work while a card is hot
  ansible.builtin.assert:
    that: now.cards | selectattr("temperature") | map(attribute="temperature") | max < 85
"""

RETURN = r"""
time:
  description: When it was asked, in UTC.
  returned: always
  type: str
  sample: "2026-11-27T06:49:46Z"
cards:
  description:
    - The cards, in the order of C(nvidia-smi). A value that a card does not tell is null.
    - C(memory_used) and C(memory_total) are in MiB, C(temperature) is in degrees Celsius, C(power) in W, C(utilization) in percent.
    - C(throttle) has the reasons for which the clocks are low, C(problem) what a card says in place of values.
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      name: NVIDIA H100 80GB HBM3
      uuid: GPU-5c1e9a2d-0000-0000-0000-000000000000
      utilization: 97
      memory_used: 71240
      memory_total: 81559
      temperature: 61
      power: 642.1
      power_limit: 700
      throttle: [sw_power_cap]
      problem: null
problem:
  description: Why there is no sample or no log; null where there is.
  returned: always
  type: str
  sample: null
log:
  description: With O(day) the file of that day, as CSV that zlib packed, written in base64; else null.
  returned: always
  type: str
  sample: null
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log_day
from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv, run


def main() -> None:
    """Look, answer."""
    module = AnsibleModule(argument_spec={"day": {"type": "str"}}, supports_check_mode=True)
    day = module.params["day"]
    if day is not None and not gpu_log_day.is_day(day):
        module.fail_json(msg="day: expected a day such as 2026-11-27, found {0!r}".format(day))
    cards, problem, log = [], None, None
    asked = csv.now()
    try:
        if day is not None:
            log = gpu_log_day.pack(gpu_log_day.read(day))
        else:
            cards = csv.look()
    except (run.SmiError, gpu_log_day.DayError) as error:
        problem = str(error)
    module.exit_json(changed=False, time=asked, cards=cards, problem=problem, log=log)


if __name__ == "__main__":
    main()
