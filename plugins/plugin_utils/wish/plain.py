# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wishes and locks are data: a template in one would be run on the controller by Ansible, with all that its lookups can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: How Jinja's expressions, statements and comments begin; Ansible looks for the same before it renders a text.
_MARKS = ("{{", "{%", "{#")


def is_template(value: Any) -> bool:
    """Say whether Ansible would render a value."""
    return isinstance(value, str) and any(mark in value for mark in _MARKS)


def templates(document: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Each template in a document with its place, as `cuda_versions[0]`; a name that is one counts too."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            if is_template(name):
                yield place or "it", str(name)
            yield from templates(value, f"{place}.{name}".lstrip("."))
    elif isinstance(document, list | tuple):
        for number, value in enumerate(document):
            yield from templates(value, f"{place}[{number}]")
    elif is_template(document):
        yield place or "it", document
