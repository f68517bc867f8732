#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_log
short_description: Read what NVIDIA's driver wrote of errors into the kernel log, and judge it
version_added: "0.1.0"
description:
  - Reads the kernel log of this boot for Xid (an error of a card) and SXid (one of an NVSwitch), counts each number of each card
    once, and judges it by the collection's table. A number that the table does not know is a warning.
  - A card that was off the bus when the driver came is judged as Xid 79, and one that the driver could not start
    (C(RmInitAdapter failed)) fails, although these lines have no number.
  - What came before the driver was loaded last is counted and not judged.
  - Asks C(dmesg), and where its buffer does not go back far enough C(journalctl). Changes nothing.
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: The module only reads.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Look for errors of the cards since the boot
  gpuwright.node.kernel_log:
  register: log

- name: Stop where a card needs somebody
  ansible.builtin.assert:
    that: log.verdict == "pass"
"""

RETURN = r"""
events:
  description:
    - The errors since the driver was loaded, one for each number of each card. C(kind) is C(xid), C(sxid), or C(init) for a card
      that could not be started; C(bus_id) is empty where the line names no card.
  returned: always
  type: list
  elements: dict
  sample: [{"kind": "xid", "code": 79, "bus_id": "00000000:3B:00.0", "count": 2, "fatal": false, "message": "NVRM: Xid"}]
earlier:
  description: How many errors came before the driver was loaded.
  returned: always
  type: int
  sample: 0
more:
  description: How many errors there were beyond those in RV(events).
  returned: always
  type: int
  sample: 0
lines:
  description: How many lines were read.
  returned: always
  type: int
  sample: 1841
whole:
  description: Whether they go back to the boot or to the loading of the driver.
  returned: always
  type: bool
  sample: true
why:
  description: Why nothing could be read; null where something was.
  returned: always
  type: str
  sample: null
checks:
  description: The judgement, made on the controller.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "kernel.xid", "status": "fail", "severity": "fatal"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: fail
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log


def main() -> None:
    """Read, answer."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    log = kernel_log.read()
    read = {"lines": len(log.lines), "whole": log.whole, "why": log.why}
    module.exit_json(changed=False, **read, **kernel_log.events(log.lines))


if __name__ == "__main__":
    main()
