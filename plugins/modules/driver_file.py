#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: driver_file
short_description: Fetch a .run file of NVIDIA's and check it
version_added: "0.1.0"
description:
  - Fetches the file of a driver or of a CUDA toolkit from the first address that has it, by the node's proxy, and puts it in its place
    only if its SHA-256 is the expected one. The proxy is that of the task's variables (E(https_proxy)), of apt or of dnf.
  - An address that answers 401, 403 or 404 does not have it. Any other failure ends the module.
  - A file that has the SHA-256 already is kept and nothing is downloaded.
options:
  addresses:
    description: Addresses of the file, the preferred one first.
    type: list
    elements: str
    required: true
  sha256:
    description: SHA-256 that the file has to have.
    type: str
    required: true
  path:
    description: File to write, readable for root alone. Its directory has to exist. Next to it lies C(.part) during the download.
    type: path
    required: true
  timeout:
    description: Seconds that the server may be silent.
    type: float
    default: 60
extends_documentation_fragment:
  - gpuwright.node.gate
  - gpuwright.node.credentials
attributes:
  check_mode:
    description: Says whether the file would be fetched. Nothing is downloaded.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Fetch the driver's file
  gpuwright.node.driver_file:
    addresses: "{{ runfile.addresses }}"
    sha256: "{{ runfile.sha256 }}"
    path: "/var/lib/gpuwright/packages/{{ runfile.name }}"
"""

RETURN = r"""# """

from typing import cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import driver_file
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError


def main() -> None:
    """Read the options, fetch, answer."""
    module = AnsibleModule(
        argument_spec={
            "addresses": {"type": "list", "elements": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "timeout": {"type": "float", "default": 60},
            "credentials": redact.OPTION,
        },
        supports_check_mode=True,
    )
    options = cast("driver_file.Options", {**module.params, "credentials": redact.taken(module)})
    path = options["path"]
    try:
        module.exit_json(changed=driver_file.install(options, module.check_mode))
    except driver_file.DriverFileError as exc:
        module.fail_json(msg=str(exc))
    except FetchError as exc:
        module.fail_json(
            msg="Expected to fetch the file for {0}. Found: {1}. What to do: check the network and the proxy, or name a mirror.".format(
                path, exc
            )
        )
    except OSError as exc:
        module.fail_json(msg="Expected to write {0}. Found: {1}. What to do: run as root.".format(path, exc))


if __name__ == "__main__":
    main()
