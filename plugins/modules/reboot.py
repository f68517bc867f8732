# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: reboot
short_description: Reboot a machine and wait until it answers from another boot
version_added: "0.1.0"
description:
  - Does what M(ansible.builtin.reboot) does, for Linux, and tells boots apart by the kernel's C(boot_id) alone. What else a machine shows
    while it goes down, such as a warning of sudo that a name is not resolved any more, is not taken for another boot.
options:
  msg:
    description: What the users of the machine are told.
    type: str
    default: Reboot initiated by Ansible
  reboot_timeout:
    description: Seconds to wait for another boot, and again for a command that ends well in it.
    type: int
    default: 600
attributes:
  check_mode:
    description: Says that it would be rebooted, and reboots nothing.
    support: full
seealso:
  - module: ansible.builtin.reboot
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Reboot and wait for the machine
  gpuwright.node.reboot:
    msg: A new kernel
    reboot_timeout: 1800
"""

RETURN = r"""
rebooted:
  description: Whether the machine was rebooted.
  type: bool
  returned: always
elapsed:
  description: Seconds until it answered again.
  type: int
  returned: always
"""
