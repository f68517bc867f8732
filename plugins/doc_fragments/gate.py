# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every module has in common whose answer passes the gate (plugin_utils/gate)."""

from __future__ import annotations


class ModuleDocFragment:
    """See ansible-doc."""

    DOCUMENTATION = r"""
options: {}
attributes:
  async:
    description: Refused. The answer would be read past the gate on the controller.
    support: none
"""
