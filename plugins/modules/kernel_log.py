#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_log
short_description: Read what the kernel log tells of errors, and judge it
version_added: "0.1.0"
description:
  - Reads the kernel log of this boot for Xid (an error of a card) and SXid (one of an NVSwitch), counts each number of each card
    once, and judges it by the collection's tables. A number that they do not know is a warning.
  - A card that was off the bus when the driver came is judged as Xid 79, and one that the driver could not start
    (C(RmInitAdapter failed)) fails, although these lines have no number.
  - What came before the driver was loaded last is counted and not judged.
  - Reads it too for errors of PCIe (AER), machine checks, programs that were ended because memory ran out, modules of the driver that do
    not fit, errors of disks, file servers that do not answer, and what stands still; and reads what the kernel counts in C(/sys) of
    errors of PCIe, of the cards, the bridges above them and the network adapters, and of memory (EDAC).
  - What is known to be harmless is passed over.
  - Asks C(dmesg), and where its buffer does not go back to the boot C(journalctl). Changes nothing.
options:
  boots:
    description:
      - How many earlier boots to read from the journal, at most V(10). Of their errors a warning is left where this boot has not seen
        them, and more where they end with the hardware.
      - What comes again in this boot asks for the next step, from a reset to a reboot to the hardware.
      - Where the journal does not outlive a boot the check is incomplete and says what to do.
    type: int
    default: 0
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
- name: Look for errors since the boot
  gpuwright.node.kernel_log:
  register: log

- name: Stop where somebody is needed
  ansible.builtin.assert:
    that: log.verdict == "pass"

- name: Look at the last three boots too
  gpuwright.node.kernel_log:
    boots: 3
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
since_boot:
  description: Whether they go back to the boot.
  returned: always
  type: bool
  sample: true
why:
  description: Why nothing could be read; null where something was.
  returned: always
  type: str
  sample: null
faults:
  description: What else the log tells, one for each name (a row of C(compat/kernel_faults.yaml)) and what it speaks of.
  returned: always
  type: list
  elements: dict
  sample: [{"name": "io_error", "subject": "sda", "count": 3, "message": "Buffer I/O error on dev sda, logical block 7"}]
more_faults:
  description: How many faults there were beyond those in RV(faults).
  returned: always
  type: int
  sample: 0
hardware:
  description:
    - What the kernel counted since the boot. C(devices) has the errors of PCIe, C(memory) those of EDAC, C(uptime) is in seconds. A count
      that the kernel does not keep is null.
  returned: always
  type: dict
  sample:
    devices:
      - bus_id: "00000000:3B:00.0"
        role: card
        correctable: 0
        nonfatal: 0
        fatal: 0
        errors: ""
        lanes: 16
        speed_gts: 32.0
    devices_unread: null
    memory: [{"controller": "mc0", "corrected": 0, "uncorrected": 0}]
    memory_unread: null
    uptime: 86400.5
journal:
  description:
    - The earlier boots. C(wanted) is the option O(boots), C(kept) whether the journal outlives a boot, C(why) why the next one could
      not be read. C(boots) has of each what RV(events) and RV(faults) are of this boot, C(-1) is the one before it.
  returned: always
  type: dict
  sample: {"wanted": 0, "kept": true, "boots": [], "why": null}
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

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    hardware_errors,
    kernel_boots,
    kernel_faults,
    kernel_log,
)


def main() -> None:
    """Read, answer."""
    module = AnsibleModule(argument_spec={"boots": {"type": "int", "default": 0}}, supports_check_mode=True)
    boots = module.params["boots"]
    if not 0 <= boots <= kernel_boots.MOST_BOOTS:
        module.fail_json(msg=f"expected boots from 0 to {kernel_boots.MOST_BOOTS}, found {boots}")
    host = Host()
    log = kernel_log.read(since_boot=True)
    module.exit_json(
        changed=False,
        lines=len(log.lines),
        whole=log.whole,
        since_boot=kernel_log.reaches_boot(log.lines),
        why=log.why,
        hardware=hardware_errors.read(host),
        journal=kernel_boots.journal(boots, *kernel_log.read_earlier(boots), host),
        **kernel_log.events(log.lines),
        **kernel_faults.faults(log.lines),
    )


if __name__ == "__main__":
    main()
