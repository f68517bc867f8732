# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits side by side, and cuDNN for those who compile against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Context, Finding, Manages, missing_packages, repository_files, repository_findings

SOURCES = ["nvidia-cuda"]


def wanted(context: Context) -> bool:
    return bool(context.stack.get("cuda") or context.stack.get("cudnn"))


def findings(context: Context) -> list[Finding]:
    found = repository_findings(context, SOURCES)
    for toolkit in context.stack.get("cuda") or ():
        missing = missing_packages(context, toolkit["packages"])
        if missing:
            reason = f"the toolkit's packages are missing: {', '.join(missing)}"
            found.append(Finding("install", reason, _present(context), toolkit["version"], packages=missing))
    cudnn = context.stack.get("cudnn") or {}
    missing = missing_packages(context, cudnn.get("packages") or ())
    if missing:
        found.append(Finding("install", "cuDNN is missing", after=cudnn.get("version"), packages=missing))
    return found


def manages(context: Context) -> Manages:
    return Manages(files=repository_files(context, SOURCES), packages=_packages(context))


def inputs(context: Context) -> Mapping[str, Any]:
    return {"packages": _packages(context)}


def version_prefixes(stack: Mapping[str, Any]) -> dict[str, str]:
    """What the packages' versions begin with, where an exact version was asked for (cuda=12.8.1, cudnn=9.10.2)."""
    prefixes = {}
    for toolkit in stack.get("cuda") or ():
        if toolkit.get("release"):
            prefixes.update(dict.fromkeys(toolkit["packages"], f"{toolkit['release']}-"))
    cudnn = stack.get("cudnn") or {}
    if cudnn.get("version"):
        prefixes.update(dict.fromkeys(cudnn["packages"], str(cudnn["version"])))
    return prefixes


def _packages(context: Context) -> list[str]:
    names = [name for toolkit in context.stack.get("cuda") or () for name in toolkit["packages"]]
    return names + list((context.stack.get("cudnn") or {}).get("packages") or ())


def _present(context: Context) -> str | None:
    versions = [toolkit["version"] for toolkit in context.facts["cuda"]["toolkits"] or ()]
    return ", ".join(filter(None, versions)) or None
