# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The gate for what a module answers that needs nothing else on the controller: node_facts, and those that meta/runtime.yml leads here."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import ModuleAction


class ActionModule(ModuleAction):
    """See the documentation modules: node_facts, and those that meta/runtime.yml names."""
