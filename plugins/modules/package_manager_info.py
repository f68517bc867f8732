#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_manager_info
short_description: Tell whether somebody installs packages now
version_added: "0.1.0"
description:
  - Answers which package manager the machine has, and which process holds its lock or runs it.
  - It takes no lock and waits for nothing.
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, so check mode makes no difference.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Wait until nobody else installs packages
  gpuwright.node.package_manager_info:
  register: packages
  until: not packages.busy
  retries: 60
  delay: 10
"""

RETURN = r"""
manager:
  description: The package manager, V(apt) or V(dnf). Null where the machine has neither.
  returned: success
  type: str
  sample: apt
busy:
  description: Who changes packages now, as C(name (pid n)). Null when nobody is seen.
  returned: success
  type: str
  sample: apt-get (pid 11369)
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages


def main() -> None:
    """Look once, answer."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    host = Host()
    manager = packages.manager(host)
    module.exit_json(changed=False, manager=manager, busy=packages.busy(host, manager) if manager else None)


if __name__ == "__main__":
    main()
