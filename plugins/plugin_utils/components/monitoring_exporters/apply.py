# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exporters of metrics for Prometheus: of the cards and of the machine. What somebody else runs there is left as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, numeric_version, paths

from ...model import sections
from ...model.plan import Plan
from ...model.work import Unit, Work
from .. import firewall, package_calls, programs
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
from ..demand import Demand, begins
from . import judge as judgement
from . import seen, units
from .resolve import UNIT, dcgm
from .wish import DCGM

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, FirewallOwner

    from ...model.plan import Removes
    from ...model.stack import Stack
    from ...wish.wish import Wish

NAME = "monitoring_exporters"
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
_SOURCES = ("nvidia-cuda", "epel")
SCRIPT = programs.Program(NAME, "programs.gpu_exporter", units.PROGRAM)
#: Whose rules of the firewall are theirs.
_OWNER: FirewallOwner = "exporters"


def wanted(context: Context) -> bool:
    return NAME in context.stack


def _at_work(context: Context) -> bool:
    """Whether the exporters run: where cards are yet to come they begin with them, without any that of the machine begins at once."""
    return context.runs_here or context.stack["monitoring_exporters"]["gpu"] is None


def findings(context: Context) -> list[Finding]:
    openings = units.openings(context.stack["monitoring_exporters"])
    closed = firewall.findings(context.facts, _OWNER, openings) if _at_work(context) else []
    return [*_exporter_findings(context), *closed]


def _exporter_findings(context: Context) -> list[Finding]:
    exporters = context.stack["monitoring_exporters"]
    found = repository_findings(context, _SOURCES) if _packages(context.stack) else []
    missing, old = missing_packages(context, _packages(context.stack)), _old(context)
    reasons = [] if missing or old or not _at_work(context) else [each for each in _reasons(context) if each]
    if not missing and not old and not reasons:
        return found
    runs = units.ours(exporters)
    files = [path for run in runs for path in run.files] + ([units.WEB] if units.is_secured(exporters) else [])
    return [
        *found,
        Finding(
            "install" if missing else "upgrade" if old else "configure",
            _why(context, missing, old, reasons),
            after=next((context.versions.get(name) for name in (*missing, *old)), None),
            packages=[*missing, *old],
            files=files,
            services=[unit for run in runs for unit in run.units],
        ),
    ]


def _why(context: Context, missing: Sequence[str], old: Sequence[str], reasons: Sequence[str]) -> str:
    if missing:
        return f"missing packages: {', '.join(missing)}"
    if old:
        lowest = _lowest(context.stack)[old[0]]
        return f"{old[0]} is {context.installed[old[0]]}, brought is {lowest} or newer"
    return "; ".join(reasons)


def _reasons(context: Context) -> list[str | None]:
    """Why each exporter of ours is not as wished."""
    return [_wrong(context, run) for run in units.ours(context.stack["monitoring_exporters"])]


def _wrong(context: Context, run: units.Run) -> str | None:
    return seen.idle(context.facts, run) or seen.astray(context.facts, context.stack["monitoring_exporters"], run)


def _packages(stack: Stack) -> list[str]:
    """Packages that are ours to install: those of the exporters that nobody else runs."""
    exporters = stack.get("monitoring_exporters")
    return [name for run in units.ours(exporters) for name in run.packages] if exporters else []


def _old(context: Context) -> list[str]:
    """Packages of DCGM that are older than what is brought."""
    return [
        name
        for name, lowest in _lowest(context.stack).items()
        if name in context.installed
        and not numeric_version.at_least(numeric_version.upstream(context.installed[name]), lowest)
    ]


def _lowest(stack: Stack) -> dict[str, str]:
    """The versions that DCGM's packages and its exporter have at least."""
    brought = dcgm.of_stack(stack)
    if not brought:
        return {}
    return {name: brought["exporter"] if name == dcgm.EXPORTER else brought["version"] for name in brought["packages"]}


def version_prefixes(stack: Stack, _aim: str | None = None) -> dict[str, str]:
    """What the versions of DCGM and its exporter begin with: builds of the same two numbers go together."""
    return {name: f"{version.rpartition('.')[0]}." for name, version in _lowest(stack).items()}


def manages(context: Context) -> Manages:
    """The version of the package is not sealed: it is the distribution's, whose updates are welcome."""
    exporters = context.stack["monitoring_exporters"]
    runs = units.ours(exporters)
    return Manages(
        files=[
            *(repository_files(context, _SOURCES) if _packages(context.stack) else []),
            *(path for run in runs for path in run.files),
            *([units.WEB] if runs and units.is_secured(exporters) else []),
        ],
        services=[unit for run in runs for unit in run.own] if _at_work(context) else [],
    )


def inputs(context: Context) -> Mapping[str, object]:
    exporters = context.stack["monitoring_exporters"]
    ours = [SCRIPT.digest() for run in units.ours(exporters) if run.program]
    return {**exporters, "programs": ours}


def demands(stack: Stack, wish: Wish) -> list[Demand]:
    """Return what the package index has to have: node_exporter in any version, and DCGM from that of the pair on."""
    brought, lowest = dcgm.of_stack(stack), _lowest(stack)
    others = [name for name in _packages(stack) if name not in lowest]
    found = [Demand("node_exporter", "", others, lambda _name, _found: True)] if others else []
    if brought:
        starts = begins(version_prefixes(stack))

        def accepts(name: str, version: str) -> bool:
            return starts(name, version) and numeric_version.at_least(numeric_version.upstream(version), lowest[name])

        asked = wish.monitoring_exporters == DCGM
        found.append(Demand(dcgm.WANT, brought["version"], [*lowest], accepts, fixed=asked, relation=">="))
    return found


# The work of the role


class Directory(TypedDict):
    """A directory to make. ``mode`` is octal text such as "0755"."""

    path: str
    mode: str


class ExportersWork(Work, total=False):
    """What its role does besides. ``directories``: those to make. ``programs``: where one of ours is written. ``web``: the file of
    certificate and users, without its users; None where there is none. ``users``: who they are. ``leaves``: units that
    have to end first. ``readers``: those that read what is written. ``waits``: the ports of
    ``address`` that have to open. ``firewall``: commands that open the machine's firewall, and close what is left over.
    """

    directories: list[Directory]
    programs: list[str]
    web: dict[str, object] | None
    users: list[str]
    leaves: list[str]
    readers: list[str]
    address: str
    waits: list[int]
    firewall: list[list[str]]


def begin(context: Context, plan: Plan) -> ExportersWork:
    """The files before the package: its unit starts with them, and never listens where nobody wished it."""
    exporters = context.stack["monitoring_exporters"]
    runs = units.ours(exporters, programs.python(context.facts))
    secured = bool(runs) and units.is_secured(exporters)
    packages = _packages(context.stack)
    # Another directory of metrics is made by whoever wished it.
    of_ours = [paths.METRICS] if exporters["node"]["textfiles"] == paths.METRICS else []
    drop_ins = [
        str(PurePosixPath(file["path"]).parent)
        for run in runs
        if not run.program
        for file in run.written
        if not file["path"].endswith(".socket")
    ]
    open_to_all = list(dict.fromkeys([paths.PROGRAMS, paths.SETTINGS, *drop_ins, *of_ours]))
    return {
        "repositories": repository_names(context, _SOURCES) if packages else [],
        "packages": [package_calls.call(context, plan, packages)] if packages else [],
        "directories": [
            # Others go through to the metrics; nobody lists what else is there, and each record has a mode of its own.
            Directory(path=paths.STATE, mode="0711"),
            *(Directory(path=path, mode="0755") for path in open_to_all),
        ],
        "programs": [run.program for run in runs if run.program],
        "web": units.web(exporters) if secured else None,
        "users": list(exporters["users"]) if secured else [],
        "files": [file for run in runs for file in run.written],
        "leaves": _leaves(context),
        "readers": [unit for run in runs for unit in run.own] if _at_work(context) else [],
        "absent": [*([] if secured else [units.WEB]), *_gone(context)],
        "units": [unit for run in runs for unit in _units(context, run)] if _at_work(context) else [],
        "address": addresses.within(exporters["address"]),
        # A port that systemd holds is open from the beginning.
        "waits": [run.port for run in runs if run.socket is None] if _at_work(context) else [],
        "firewall": firewall.commands(context.facts, _OWNER, units.openings(exporters)) if _at_work(context) else [],
    }


def _units(context: Context, run: units.Run) -> list[Unit]:
    """What it needs, and it: one that runs and is not as wished has read other files than those that are there."""
    again = seen.idle(context.facts, run) is None and _wrong(context, run)
    needed = [Unit(name=name, enabled=True, state="started") for name in run.needs]
    own = [Unit(name=name, enabled=True, state="started") for name in run.own]
    # systemd starts no socket whose service runs.
    stopped = [Unit(name=name, enabled=True, state="stopped") for name in run.own] if again else []
    return [*needed, *stopped, *own]


def _leaves(context: Context) -> list[str]:
    """Units of ours that tell of the cards by another source: they leave before the port has another owner."""
    others = units.others(context.stack["monitoring_exporters"]) if _at_work(context) else []
    found = [unit for other in others for unit in _ours_of(context, other)]
    return [unit for unit in found if sections.service(context.facts, unit)["enabled"] not in (None, "not-found")]


def _ours_of(context: Context, other: units.Run) -> list[str]:
    """The units of a source that gpuwright has run."""
    sealed, seen_here = sections.sealed_stack(context.facts, NAME), context.facts.get("monitoring")
    cards = sealed.get("gpu") or {}
    is_ours = (
        bool(other.program)
        or (seen_here is not None and other.unit in seen_here["drop_ins"])
        or (cards.get("source") == DCGM and not cards.get("adopted"))
    )
    return [*(other.own if is_ours else []), *(other.needs if dcgm.is_ours(seen_here, sealed) else [])]


def _gone(context: Context) -> list[str]:
    """Files of another source."""
    return [path for other in units.others(context.stack["monitoring_exporters"]) for path in other.files]


def _take_back(facts: Facts) -> list[Finding]:
    """The firewall is closed again."""
    return firewall.take_back(facts, _OWNER)


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    return {"monitoring_firewall": firewall.closing(facts, _OWNER)}


STEPS: Mapping[str, Step] = {"begin": begin}

COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    touches=TOUCHES,
    units=(UNIT, *units.SOCKETS),
    program=SCRIPT,
    outgrown=(programs.SAMPLER, programs.METRICS),
    demands=demands,
    version_prefixes=version_prefixes,
    # Somebody else may ask the host engine too: it ends with its package alone.
    package_units={"datacenter-gpu-manager-4-core": (dcgm.ENGINE,)},
    judge=judgement.judge,
    take_back=_take_back,
    undo="close",
    removes=_removes,
    steps=STEPS,
    directories=(
        units.directory("prometheus-node-exporter.service"),
        *map(units.directory, (dcgm.UNIT, dcgm.ENGINE)),
        paths.METRICS,
    ),
)
