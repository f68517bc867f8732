# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Jupyter kernels of ours, at the place where Jupyter looks for those of all users. Others are nobody's business here."""

from __future__ import annotations

import hashlib
import os

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

DIRECTORY = "/usr/local/share/jupyter/kernels"
FILE = "kernel.json"
PREFIX = "gpuwright-"


def directory(environment: str) -> str:
    """Where the kernel of an environment is."""
    return f"{DIRECTORY}/{PREFIX}{os.path.basename(environment)}"


def observe(host: Host, environment: str) -> str | None:
    """The SHA-256 of the file of an environment's kernel; None where it has none."""
    text = host.read(f"{directory(environment)}/{FILE}", "environments." + environment)
    return None if text is None else digest(text)


def digest(text: str) -> str:
    """What tells the content of a kernel's file from another one."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
