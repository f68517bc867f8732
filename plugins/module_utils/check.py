# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A check, as a node and the report have it.

Written by tools/build_types.py from plugins/plugin_utils/gate/answers.json: edit that, then `make rules`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Status = Literal["pass", "warn", "fail", "incomplete", "skip"]
Severity = Literal["info", "warning", "critical", "fatal"]
Action = Literal[
    "none",
    "restart_app",
    "reset_gpu",
    "reboot",
    "restart_service",
    "install",
    "configure",
    "check_hardware",
    "rma",
    "contact_support",
]


class Check(TypedDict):
    """Result of one check."""

    id: str
    """The id of a check"""
    status: Status
    """How the check ended; incomplete could not be measured, skip does not apply"""
    severity: Severity
    """What a failure of it means"""
    measured: Any
    """Value that was found"""
    expected: Any
    """Value or limit that it was held against"""
    unit: str | None
    """Unit of both values"""
    gpu: str | int | None
    """Index, UUID or PCI address of the card; null for the host"""
    reason: str | None
    """Why this status, in one sentence"""
    evidence: str | None
    """Shortened text that proves it"""
    action: Action | None
    """Kind of remedy"""
    remedy: str | None
    """What a person does now, in one sentence"""
