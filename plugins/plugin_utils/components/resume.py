# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What goes on after a boot that a run must not make itself: the documents that it reads, and the words of the script that starts it.

The command line prepares it (src/gpuwright/resume.py); the role ``reboot`` writes it on the machine, for root alone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

if TYPE_CHECKING:
    from ..model.work import File


class Prepared(TypedDict):
    """What the command line hands over. ``files``: documents by name; ``program``: where the program lies that is copied."""

    command: list[str]
    program: dict[str, str]
    files: dict[str, object]
    environment: dict[str, str]


class Words(TypedDict):
    """What the templates of the role take in as it is: each one quoted for a shell. ``names``: the documents, behind the first word of
    ``rm``; ``missing``: what is said where the program is gone; ``exports``: lines.
    """

    command: str
    program: str
    missing: str
    names: str
    exports: str


class Resume(TypedDict, total=False):
    """What the role writes; empty where nothing goes on."""

    words: Words
    program: dict[str, str]
    documents: list[File]


def resume(prepared: Prepared) -> Resume:
    """What the role writes for what the command line prepared."""
    return {"words": words(prepared), "program": prepared["program"], "documents": documents(prepared)}


def documents(prepared: Prepared) -> list[File]:
    """The files that the continuation reads."""
    return [
        {
            "path": f"{paths.RESUME}/{name}",
            "content": f"{json.dumps(_plain(value), indent=4, sort_keys=True)}\n",
            "mode": "0600",
        }
        for name, value in prepared["files"].items()
    ]


def words(prepared: Prepared) -> Words:
    """The words of the script."""
    command = [str(word) for word in prepared["command"]]
    missing = f"not possible, {command[0]} is not there (a home that is opened at login?); run the same command again"
    return {
        "command": shlex.quote(shlex.join(command)),
        "program": shlex.quote(command[0]),
        "missing": shlex.quote(missing),
        "names": "".join(f' "$directory/"{shlex.quote(name)}' for name in prepared["files"]),
        "exports": "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in sorted(prepared["environment"].items())
        ),
    }


def _plain(document: object) -> object:
    """A document of Ansible's as JSON knows it: its own kinds of mapping and list give their items only where they are asked."""
    if isinstance(document, Mapping):
        return {str(name): _plain(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_plain(value) for value in document]
    return document
