#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: driver_module
short_description: Try the NVIDIA kernel module and say what the kernel said
version_added: "0.1.0"
description:
  - Loads the module and reads what the kernel log says of it. It is meant for a machine on whose bus there is no card, where
    C(nvidia-smi) has nothing to tell. A module that works then gives up with C(No NVIDIA GPU found) and stays unloaded.
  - A module that does not load is no failure of this module; read the returned checks.
options:
  name:
    description: The module as C(modprobe) takes it. Debian's own are called C(nvidia-current) and C(nvidia-current-open).
    type: str
    default: nvidia
  expected_gpus:
    description: How many cards there should be. V(0) means that none is there yet, and that a module which only lacks a card is right.
    type: int
    default: 0
  timeout:
    description: Seconds after which the loading counts as hanging.
    type: int
    default: 120
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: In check mode nothing is loaded and no check is returned.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Hear what the kernel says of the module where one card should be
  gpuwright.node.driver_module:
    name: nvidia-current
    expected_gpus: 1
"""

RETURN = r"""
log:
  description: What the kernel log said while the module was loaded.
  returned: always
  type: list
  elements: str
  sample: ["NVRM: No NVIDIA GPU found."]
checks:
  description: The judgement.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "driver.module", "status": "fail", "severity": "fatal"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import module_load


def main() -> None:
    """Read the options, try the module, answer."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "nvidia"},
            "expected_gpus": {"type": "int", "default": 0},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    if module.check_mode:
        module.exit_json(changed=False, **checks.with_verdict({"log": [], "checks": []}))
    outcome = module_load.load(params["name"], params["timeout"])
    judged = module_load.judge(params["name"], outcome, params["expected_gpus"])
    module.exit_json(changed=outcome.rc == 0, **checks.with_verdict({"log": outcome.log, "checks": [judged]}))


if __name__ == "__main__":
    main()
