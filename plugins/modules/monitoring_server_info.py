#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: monitoring_server_info
short_description: Tell what is left to do so that Prometheus, Alertmanager and Grafana run by what was written for them
version_added: "0.2.0"
description:
  - A program that does not run is to be started, one whose unit was written since it was started to be restarted, and one whose files were
    written since it read them to be reloaded.
  - The outcome is compared with what is wished, so that a run that was cut off between a file and its reading is mended by the next one.
  - It only reads.
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, so check mode makes no difference.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Wait until all have read their configuration
  gpuwright.node.monitoring_server_info:
  register: seen
  until: seen.left == []
  retries: 30
  delay: 1
"""

RETURN = r"""
programs:
  description:
    - The programs, Grafana where one was set up, each with its C(unit), the C(state) that it is to be brought to, null where it is as it
      should be, and what is in the way as C(problem).
  returned: success
  type: list
  elements: dict
left:
  description: Those of them that are not as they should be.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import monitoring_server


def main() -> None:
    """Look at each."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    host = Host()
    programs = [monitoring_server.due(host, program) for program in monitoring_server.there(host)]
    module.exit_json(changed=False, programs=programs, left=[each for each in programs if each["state"]])


if __name__ == "__main__":
    main()
