# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An interrupted package manager: nothing else can work before it is mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Context, Finding, Manages


def wanted(context: Context) -> bool:
    return bool(context.facts["packages"]["interrupted"])


def findings(context: Context) -> list[Finding]:
    detail = context.facts["packages"].get("interrupted_detail")
    return [Finding("repair", f"the package manager was interrupted: {detail or 'unfinished packages'}")]


def manages(context: Context) -> Manages:
    """Nothing stays behind that could be sealed."""
    return Manages()


def inputs(context: Context) -> Mapping[str, Any]:
    return {}
