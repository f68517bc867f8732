# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter `node_program`."""

from __future__ import annotations

DOCUMENTATION = r"""
---
name: node_program
short_description: A program for a node, with all of this collection that it imports
version_added: "0.2.0"
description:
  - Some roles put a program on the node. It is made of the collection's own files, as one script.
options:
  _input:
    description: The component whose program it is.
    type: str
    choices: [gpu_log, gpu_settings, mig, monitoring_exporters, watch]
    required: true
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Install the program
  ansible.builtin.copy:
    content: "{{ 'watch' | gpuwright.node.node_program }}"
    dest: /usr/local/libexec/gpuwright/watch.py
    mode: "0755"
"""

RETURN = r"""
_value:
  description: The script.
  type: str
"""

from collections.abc import Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS

_PROGRAMS: dict[str, Callable[[], str]] = {
    name: component.program.text for name, component in COMPONENTS.items() if component.program
}


def _node_program(name: str) -> str:
    if name not in _PROGRAMS:
        raise AnsibleFilterError(f"expected the name of a program ({', '.join(_PROGRAMS)}), found {name!r}")
    return _PROGRAMS[name]()


class FilterModule:
    """Ansible's way to a filter."""

    def filters(self) -> dict[str, Callable[[str], str]]:
        """Filters by name."""
        return {"node_program": _node_program}
