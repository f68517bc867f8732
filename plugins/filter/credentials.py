# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter `credentials`."""

from __future__ import annotations

DOCUMENTATION = r"""
---
name: credentials
short_description: Credentials of mirrors that some addresses need
version_added: "0.1.0"
description:
  - A plan has every address without user and password. This filter finds them again in the variables that named the mirrors.
  - What it returns is a secret. A task that uses it says C(no_log).
positional: _given
options:
  _input:
    description: The addresses that are fetched, without credentials.
    type: list
    elements: str
    required: true
  _given:
    description:
      - Addresses with credentials, mappings with such values (C(gpuwright_mirrors)), or lists of both.
      - Of two for one machine the first counts.
    type: list
    elements: raw
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: The credentials of a repository
  ansible.builtin.set_fact:
    found: "{{ repository.uris | gpuwright.node.credentials(gpuwright_mirrors) }}"
  no_log: true
"""

RETURN = r"""
_value:
  description: The credentials, each with C(machine), C(login) and C(password).
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuwright.node.plugins.module_utils.base.redact import CredentialsError
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import credentials


def _credentials(addresses: list[str], *given: Any) -> list[dict[str, str]]:
    try:
        return credentials.of(addresses, *given)
    except CredentialsError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Ansible's way to a filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {"credentials": _credentials}
