# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The option `credentials` (module_utils/base/redact.py, OPTION) of the modules that ask a mirror."""

from __future__ import annotations


class ModuleDocFragment:
    """See ansible-doc."""

    DOCUMENTATION = r"""
options:
  credentials:
    description:
      - Users and passwords of mirrors. Those of a machine are sent to the addresses below it, and to no other.
      - No message of the module has them.
    type: list
    elements: dict
    default: []
    suboptions:
      machine:
        description: The beginning of the addresses that they are for, without user and password.
        type: str
        required: true
      login:
        description: The user.
        type: str
        required: true
      password:
        description: The password.
        type: str
        default: ""
"""
