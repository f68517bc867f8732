# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The gate for what the module driver_file answers. Documentation: plugins/modules/driver_file.py."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction


class ActionModule(ModuleAction):
    """See the documentation module of the same name."""
