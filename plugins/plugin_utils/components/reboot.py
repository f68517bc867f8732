# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A boot, where the driver can only take over after one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import nvidia_driver
from .base import Context, Finding, Manages

#: What its role changes: a driver answers for what it loads as.
TOUCHES = frozenset({"driver"})


def wanted(context: Context) -> bool:
    return nvidia_driver.reboot_reason(context) is not None


def findings(context: Context) -> list[Finding]:
    reason = nvidia_driver.reboot_reason(context)
    return [Finding("configure", f"reboot: {reason}")] if reason else []


def manages(context: Context) -> Manages:
    """A boot leaves nothing that could be sealed: the proof names its boot id instead."""
    return Manages()


def inputs(context: Context) -> Mapping[str, Any]:
    return {}
