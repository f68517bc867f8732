# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server of metrics: Prometheus and Alertmanager of the archive, by configurations of their own, and on wish Grafana beside them.

The packages' own configurations stay as they are. Drop-ins of the units name other ones, and where the programs listen and keep what they
have; they are there before the packages, whose units otherwise listen on every address as soon as they are installed. The metrics lie in
a directory that no removal of the packages takes away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import (
    DASHBOARDS,
    GRAFANA,
    PROGRAMS,
)

from ...model import sections
from ...model.plan import Change, Plan
from ...model.shortfalls import holding
from ...model.work import File, PackageCall
from ...resolver import repositories
from .. import package_calls
from ..base import (
    Component,
    Context,
    Finding,
    Manages,
    Need,
    Step,
    missing_packages,
    repository_files,
    repository_findings,
    repository_names,
)
from . import files
from . import judge as judgement
from .files import Admin, Copied, Login, Private, Secret, Written
from .model import NAME, MonitoringServer, of
from .resolve import PACKAGES, grafana

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

#: Made for the dashboards and for the drop-ins of the units.
DIRECTORIES = (DASHBOARDS, *(program.drop_in.rpartition("/")[0] for program in (*PROGRAMS.values(), GRAFANA)))
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
#: The package source that Grafana comes from, and what a person has where it cannot come.
_SOURCES = (grafana.GRAFANA,)
_WITHOUT_GRAFANA = (
    f"leave monitoring_grafana out: the dashboards are files in {DASHBOARDS}, to be imported into any Grafana"
)
_FACTORS = {"MB": 1024**2, "GB": 1024**3, "TB": 1024**4}


class Work(TypedDict):
    """What the role does, in this order. ``leaves``: units that end, because they are wished no more."""

    directories: list[str]
    drop_ins: list[File]
    repositories: list[str]
    packages: list[PackageCall]
    secrets: list[Secret]
    private: list[Private]
    copied: list[Copied]
    files: list[Written]
    login: Login
    admin: Admin | None
    leaves: list[str]
    absent: list[str]


def strangers(facts: Facts) -> tuple[str, ...]:
    """Return the packages of a server, and of Grafana, of which nothing says that they are ours: no seal, and no file."""
    server = () if "monitoring_server" in facts or sections.seal(facts, NAME) else PACKAGES
    beside = () if _has_brought_grafana(facts) else grafana.PACKAGES
    return tuple(name for name in (*server, *beside) if name in (facts["packages"]["installed"] or {}))


def _has_brought_grafana(facts: Facts) -> bool:
    """Say whether the Grafana of a machine is ours; one that was wished before is known by its package source."""
    seen, source = facts.get("monitoring_server"), f"{repositories.LISTS}/gpuwright-{grafana.GRAFANA}.sources"
    return (
        bool(seen and seen["grafana"])
        or bool(sections.sealed_stack(facts, NAME).get("grafana"))
        or any(each["file"] == source for each in facts["packages"]["sources"] or ())
    )


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    server = _server(context)
    sources = repository_findings(context, _SOURCES)
    missing = missing_packages(context, server["packages"])
    if missing:
        return [
            *sources,
            Finding(
                "install",
                f"missing packages: {', '.join(missing)}; {_listens(server)}",
                packages=missing,
                files=files.paths(server),
                services=_units(server),
            ),
        ]
    found = [
        Finding("configure", f"{program.unit} {what}", files=list(program.files), services=[program.unit])
        for name, program in files.programs(server).items()
        if (what := judgement.wrong(context.facts, name)) is not None
    ]
    left = _left(context)
    gone = Finding("configure", "files are there that are wished no more", files=left, services=_leaves(context))
    return [*sources, *found, *([gone] if left else [])]


def _listens(server: MonitoringServer) -> str:
    address, beside = addresses.bracketed(server["address"]), server["grafana"]
    if beside is None:
        return f"they will listen on {address}:{server['port']} and {address}:{server['alerts_port']} alone"
    ports = f"{address}:{server['port']}, {address}:{server['alerts_port']} and {address}:{beside['port']}"
    return f"they will listen on {ports} alone; the password of Grafana's admin will be in {files.ADMINS_PASSWORD}"


def _units(server: MonitoringServer) -> list[str]:
    return [program.unit for program in files.programs(server).values()]


def _leaves(context: Context) -> list[str]:
    """Units that are wished no more: without what was written for it Grafana would listen on every address."""
    seen = context.facts.get("monitoring_server")
    return [GRAFANA.unit] if seen and seen["grafana"] and not _server(context)["grafana"] else []


def _left(context: Context) -> list[str]:
    """Files of an earlier wish: a secret of somebody who is told no more."""
    seen = context.facts.get("monitoring_server")
    wished = set(files.paths(_server(context)))
    return [path for path in (seen["files"] if seen else ()) if path not in wished]


def manages(context: Context) -> Manages:
    server = _server(context)
    return Manages(
        files=[*repository_files(context, _SOURCES), *files.paths(server)],
        packages=list(server["packages"]),
        services=_units(server),
    )


def inputs(context: Context) -> Mapping[str, object]:
    return {**_server(context), "files": files.shared_digest()}


def space(change: Change, context: Context) -> Sequence[Need]:
    """The room that the metrics may take: where they are kept already, only what the whole disk does not have."""
    server = _server(context)
    budget = int(server["size"][:-2]) * _FACTORS[server["size"][-2:]]
    disk = holding(files.DATA, context.facts["disks"] or ())
    whole = disk["size_bytes"] if disk else None
    fits = whole is None or budget < whole
    return [] if change["action"] != "install" and fits else [Need(files.DATA, budget)]


def _server(context: Context) -> MonitoringServer:
    return of(context.stack)


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """All of it. What the programs have to read is read as the module monitoring_server_info says."""
    server = _server(context)
    missing = missing_packages(context, server["packages"])
    drop_ins = files.drop_ins(server)
    return {
        "directories": [paths.SETTINGS, DASHBOARDS, *(each["path"].rpartition("/")[0] for each in drop_ins)],
        "drop_ins": drop_ins,
        "repositories": repository_names(context, _SOURCES),
        "packages": [package_calls.call(context, plan, server["packages"])] if missing else [],
        "secrets": list(files.secrets(server)),
        "private": [files.private(server)],
        "copied": files.copied(),
        "files": files.texts(server),
        "login": files.login(),
        "admin": files.admin(server),
        "leaves": _leaves(context),
        "absent": _left(context),
    }


STEPS: Mapping[str, Step] = {"begin": begin}

COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    touches=TOUCHES,
    space=space,
    judge=judgement.judge,
    directories=DIRECTORIES,
    strangers=strangers,
    spares=dict.fromkeys(_SOURCES, _WITHOUT_GRAFANA),
    steps=STEPS,
)
