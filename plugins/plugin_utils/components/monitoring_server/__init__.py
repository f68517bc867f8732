# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server of metrics: Prometheus and Alertmanager of the archive, by configurations of their own.

The packages' own configurations stay as they are. Drop-ins of the units name other ones, and where the programs listen and keep what they
have; they are there before the packages, whose units otherwise listen on every address as soon as they are installed. The metrics lie in
a directory that no removal of the packages takes away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import PROGRAMS

from ...model import sections
from ...model.plan import Change, Plan
from ...model.shortfalls import holding
from ...model.stack import MonitoringServer
from ...model.work import File, PackageCall
from ...resolver.monitoring_server import PACKAGES
from .. import package_calls
from ..base import Component, Context, Finding, Manages, Need, Step, missing_packages
from . import files, judgement
from .files import Copied, Secret, Written

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

NAME = "monitoring_server"
UNITS = tuple(program.unit for program in PROGRAMS.values())
#: Made for the drop-ins of the units.
DIRECTORIES = tuple(program.drop_in.rpartition("/")[0] for program in PROGRAMS.values())
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
#: The group of both programs, which reads the secrets.
GROUP = "prometheus"
_FACTORS = {"MB": 1024**2, "GB": 1024**3, "TB": 1024**4}


class Work(TypedDict):
    """What the role does, in this order. ``group``: of the secrets' files."""

    directories: list[str]
    drop_ins: list[File]
    packages: list[PackageCall]
    group: str
    secrets: list[Secret]
    copied: list[Copied]
    files: list[Written]
    absent: list[str]


def of_others(facts: Facts) -> tuple[str, ...]:
    """Return the packages of a server of which nothing says that it is ours: no seal, and no file."""
    if "monitoring_server" in facts or sections.seal(facts, NAME):
        return ()
    return tuple(name for name in PACKAGES if name in (facts["packages"]["installed"] or {}))


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    missing = missing_packages(context, _server(context)["packages"])
    if missing:
        return [
            Finding(
                "install",
                f"missing packages: {', '.join(missing)}; {_listens(_server(context))}",
                packages=missing,
                files=files.paths(_server(context)),
                services=list(UNITS),
            )
        ]
    found = [
        Finding("configure", f"{program.unit} {what}", files=list(program.files), services=[program.unit])
        for name, program in PROGRAMS.items()
        if (what := judgement.wrong(context.facts, name)) is not None
    ]
    left = _left(context)
    return [*found, *([Finding("configure", "files are there that are wished no more", files=left)] if left else [])]


def _listens(server: MonitoringServer) -> str:
    address = addresses.bracketed(server["address"])
    return f"they will listen on {address}:{server['port']} and {address}:{server['alerts_port']} alone"


def _left(context: Context) -> list[str]:
    """Files of an earlier wish: a secret of somebody who is told no more."""
    seen = context.facts.get("monitoring_server")
    wished = set(files.paths(_server(context)))
    return [path for path in (seen["files"] if seen else ()) if path not in wished]


def manages(context: Context) -> Manages:
    return Manages(
        files=files.paths(_server(context)), packages=list(_server(context)["packages"]), services=list(UNITS)
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
    return context.stack["monitoring_server"]


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """All of it. What the programs have to read is read as the module monitoring_server_info says."""
    server = _server(context)
    missing = missing_packages(context, server["packages"])
    return {
        "directories": [paths.SETTINGS, *DIRECTORIES],
        "drop_ins": files.drop_ins(server),
        "packages": [package_calls.call(context, plan, server["packages"])] if missing else [],
        "group": GROUP,
        "secrets": list(files.secrets(server)),
        "copied": files.copied(),
        "files": files.texts(server),
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
    steps=STEPS,
)
