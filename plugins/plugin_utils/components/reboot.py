# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A boot, where the driver can only take over after one."""

from __future__ import annotations

from . import nvidia_driver
from .base import Component, Context, Finding

NAME = "reboot"


def wanted(context: Context) -> bool:
    return nvidia_driver.reboot_reason(context) is not None


def findings(context: Context) -> list[Finding]:
    reason = nvidia_driver.reboot_reason(context)
    return [Finding("configure", f"reboot: {reason}")] if reason else []


# A boot leaves nothing that could be sealed: the proof names its boot id instead.
COMPONENT = Component(NAME, wanted, findings)
