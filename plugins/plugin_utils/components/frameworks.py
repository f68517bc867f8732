# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One virtual environment a framework, pinned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Context, Finding, Manages


def wanted(context: Context) -> bool:
    return bool(context.stack.get("frameworks"))


def findings(context: Context) -> list[Finding]:
    found = []
    environments = context.facts["environments"] or {}
    for framework in context.stack["frameworks"]:
        present = (environments.get(framework["path"]) or {}).get("packages") or {}
        wrong = [pin for pin in framework["requirements"] if not _satisfied(pin, present)]
        if wrong:
            before = next((present.get(_name(pin)) for pin in framework["requirements"] if _name(pin) in present), None)
            reason = f"{framework['path']} lacks {', '.join(wrong)}"
            action = "upgrade" if before else "install"
            found.append(
                Finding(
                    action, reason, before, f"{framework['name']} {framework['version']}", files=[framework["path"]]
                )
            )
    return found


def manages(context: Context) -> Manages:
    return Manages(environments=[framework["path"] for framework in context.stack["frameworks"]])


def inputs(context: Context) -> Mapping[str, Any]:
    keys = ("name", "requirements", "constraints", "index_url", "path")
    return {"frameworks": [{key: framework.get(key) for key in keys} for framework in context.stack["frameworks"]]}


def _name(pin: str) -> str:
    return pin.split("==", 1)[0].split("[", 1)[0].lower().replace("_", "-")


def _satisfied(pin: str, present: Mapping[str, str]) -> bool:
    """Is the exact pin installed? The local version counts only where the pin names one (2.14.1+cu130)."""
    version = present.get(_name(pin))
    wished = pin.split("==", 1)[1]
    if version is None:
        return False
    return version == wished or ("+" not in wished and version.split("+", 1)[0] == wished)
