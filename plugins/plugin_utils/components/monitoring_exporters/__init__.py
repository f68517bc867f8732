# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exporters of metrics for Prometheus: of the cards and of the machine. What somebody else runs there is left as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.plan import Plan
from ...model.work import Unit, Work
from .. import package_calls
from ..base import (
    Component,
    Context,
    Finding,
    Manages,
    Step,
    missing_packages,
    repository_files,
    repository_findings,
    repository_names,
)
from ..demand import Demand
from . import judgement, seen, units

if TYPE_CHECKING:
    from ...model.stack import Stack
    from ...wish import Wish

NAME = "monitoring_exporters"
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
_EPEL = ("epel",)
#: Where one asks for what listens on all addresses.
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what somebody wished


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    exporters = context.stack["monitoring_exporters"]
    found = repository_findings(context, _EPEL) if _packages(context.stack) else []
    missing = missing_packages(context, _packages(context.stack))
    reasons = [] if missing or not context.runs_here else [each for each in _reasons(context) if each]
    if not missing and not reasons:
        return found
    runs = units.ours(exporters)
    files = [path for run in runs for path in run.files] + ([units.WEB] if units.is_secured(exporters) else [])
    return [
        *found,
        Finding(
            "install" if missing else "configure",
            f"missing packages: {', '.join(missing)}" if missing else "; ".join(reasons),
            after=next((context.versions.get(name) for name in missing), None),
            packages=missing,
            files=files,
            services=[run.unit for run in runs],
        ),
    ]


def _reasons(context: Context) -> list[str | None]:
    """Why each exporter of ours is not as wished."""
    return [_wrong(context, run) for run in units.ours(context.stack["monitoring_exporters"])]


def _wrong(context: Context, run: units.Run) -> str | None:
    return seen.idle(context.facts, run) or seen.astray(context.facts, context.stack["monitoring_exporters"], run)


def _packages(stack: Stack) -> list[str]:
    """Packages that are ours to install: the exporter of the machine, where nobody else runs one."""
    exporters = stack.get("monitoring_exporters")
    return [exporters["node"]["package"]] if exporters and not exporters["node"]["adopted"] else []


def manages(context: Context) -> Manages:
    """The version of the package is not sealed: it is the distribution's, whose updates are welcome."""
    exporters = context.stack["monitoring_exporters"]
    runs = units.ours(exporters)
    return Manages(
        files=[
            *(repository_files(context, _EPEL) if _packages(context.stack) else []),
            *(path for run in runs for path in run.files),
            *([units.WEB] if runs and units.is_secured(exporters) else []),
        ],
        services=[run.unit for run in runs] if context.runs_here else [],
    )


def inputs(context: Context) -> Mapping[str, object]:
    return dict(context.stack["monitoring_exporters"])


def demands(stack: Stack, _wish: Wish) -> list[Demand]:
    """Return node_exporter as the package index has to have it: in any version."""
    packages = _packages(stack)
    return [Demand("node_exporter", "", packages, lambda _name, _found: True)] if packages else []


# The work of the role


class Directory(TypedDict):
    """A directory to make. ``mode`` is octal text such as "0755"."""

    path: str
    mode: str


class ExportersWork(Work, total=False):
    """What its role does besides. ``directories``: those to make. ``programs``: files of ours that are copied. ``web``: the file of
    certificate and users, without its users; None where there is none. ``users``: who they are. ``waits``: the ports of
    ``address`` that have to open.
    """

    directories: list[Directory]
    programs: list[str]
    web: dict[str, object] | None
    users: list[str]
    address: str
    waits: list[int]


def begin(context: Context, plan: Plan) -> ExportersWork:
    """The files before the package: its unit starts with them, and never listens where nobody wished it."""
    exporters = context.stack["monitoring_exporters"]
    runs = units.ours(exporters)
    secured = bool(runs) and units.is_secured(exporters)
    packages = _packages(context.stack)
    # Another directory of metrics is made by whoever wished it.
    of_ours = [paths.METRICS] if exporters["node"]["textfiles"] == paths.METRICS else []
    open_to_all = [
        paths.PROGRAMS,
        paths.SETTINGS,
        *(units.directory(run.unit) for run in runs if not run.programs),
        *of_ours,
    ]
    return {
        "repositories": repository_names(context, _EPEL) if packages else [],
        "packages": [package_calls.call(context, plan, packages)] if packages else [],
        "directories": [
            # Others go through to the metrics; nobody lists what else is there, and each record has a mode of its own.
            Directory(path=paths.STATE, mode="0711"),
            *(Directory(path=path, mode="0755") for path in open_to_all),
        ],
        "programs": [name for run in runs for name in run.programs],
        "web": units.web(exporters) if secured else None,
        "users": list(exporters["users"]) if secured else [],
        "files": [run.file for run in runs],
        "absent": [] if secured else [units.WEB],
        "units": [_unit(context, run) for run in runs] if context.runs_here else [],
        "address": _HERE.get(exporters["address"], exporters["address"]),
        "waits": [run.port for run in runs] if context.runs_here else [],
    }


def _unit(context: Context, run: units.Run) -> Unit:
    """One that runs and is not as wished has read other files than those that are there."""
    runs = seen.idle(context.facts, run) is None
    return Unit(name=run.unit, enabled=True, state="restarted" if runs and _wrong(context, run) else "started")


STEPS: Mapping[str, Step] = {"begin": begin}

COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    touches=TOUCHES,
    demands=demands,
    judge=judgement.judge,
    steps=STEPS,
    directories=(units.directory("prometheus-node-exporter.service"), paths.METRICS),
)
