# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter `filled`."""

from __future__ import annotations

DOCUMENTATION = r"""
---
name: filled
short_description: A text with secrets in the places that were left for them
version_added: "0.2.0"
description:
  - A plan has the text of a file without the secrets in it. This filter puts them in from the variables that have them.
  - What it returns is a secret. A task that uses it says C(no_log).
positional: _secrets, _variables
options:
  _input:
    description: The text.
    type: str
    required: true
  _secrets:
    description: What is put in, each with C(mark), in whose place it comes, and C(keys), the way to it in the variables.
    type: list
    elements: dict
    required: true
  _variables:
    description: The variables that have them.
    type: dict
    required: true
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: The configuration of Alertmanager
  ansible.builtin.copy:
    content: "{{ item.content | gpuwright.node.filled(item.secrets, wished) }}"
    dest: "{{ item.path }}"
    mode: "0640"
  no_log: true
"""

RETURN = r"""
_value:
  description: The text with them.
  type: str
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.work import Blank


def _filled(text: str, secrets: Sequence[Blank], variables: Mapping[str, object]) -> str:
    for each in secrets:
        secret: object = variables
        for key in each["keys"]:
            secret = cast("Mapping[str | int, object]", secret)[key]
        text = text.replace(each["mark"], str(secret).strip())
    return text


class FilterModule:
    """Ansible's way to a filter."""

    def filters(self) -> dict[str, Callable[[str, Sequence[Blank], Mapping[str, object]], str]]:
        """Filters by name."""
        return {"filled": _filled}
