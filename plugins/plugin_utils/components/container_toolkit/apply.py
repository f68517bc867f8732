# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A container engine with the NVIDIA Container Toolkit, and the engine's configuration loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...model import sections
from ...model.errors import StepRefused
from ...model.in_use import Disturbance
from ...model.plan import Plan, Removes
from ...model.stack import Stack
from ...wish.wish import Wish
from .. import busy
from ..base import (
    Component,
    Context,
    Finding,
    Manages,
    missing_packages,
    repository_files,
    repository_findings,
)
from ..daemon_json import DAEMON_JSON
from ..demand import Demand
from . import cdi, containerd, docker, engines, images, proof, rootless, work
from . import judge as judgement
from .sources import sources

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

NAME = "container_toolkit"
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
#: Packages whose scripts restart an engine.
_DOCKERS = ("docker.io", "docker-ce", "moby-engine")
_CONTAINERDS = ("containerd", "containerd.io", "moby-containerd")


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    found = repository_findings(context, sources(context))
    missing = missing_packages(context, _wished_packages(context))
    if missing:
        return [*found, _installation(context, missing), *images.findings(context)]
    found += _version_findings(context) + engines.findings(context) + cdi.findings(context)
    return found + rootless.findings(context) + images.findings(context)


def _installation(context: Context, missing: Sequence[str]) -> Finding:
    """The packages, and what follows from them: the engine's configuration gets the runtime, and the engine is restarted to read it."""
    before = context.facts["containers"]["toolkit"]["version"]
    after = context.versions.get("nvidia-container-toolkit") or context.stack["container_toolkit"]["version_spec"]
    engine = engines.daemon(context)
    configures = bool(engine and any(each.files for each in engine.findings(context)))
    return Finding(
        "install",
        f"missing packages: {', '.join(missing)}",
        before,
        after,
        packages=missing,
        files=[
            *([engine.config] if engine and configures else []),
            *cdi.files(context),
            *(file for each in rootless.findings(context) for file in each.files),
        ],
        services=[
            *([engine.service] if engine and not engines.is_right(context, engine) else []),
            *([cdi.LINKS] if cdi.has_nodes(context) else []),
        ],
    )


def manages(context: Context) -> Manages:
    """The engine's version is not sealed: it is the distribution's, whose security updates are welcome."""
    engine = engines.daemon(context)
    return Manages(
        files=[
            *repository_files(context, sources(context)),
            *(engine.sealed(context.facts) if engine else []),
            *cdi.files(context),
        ],
        packages=list(context.stack["container_toolkit"]["packages"]),
        services=[*([engine.service] if engine else []), *([cdi.LINKS] if cdi.has_nodes(context) else [])],
    )


def inputs(context: Context) -> Mapping[str, object]:
    toolkit = context.stack["container_toolkit"]
    setting = {"cdi_setting": True} if cdi.SETTING in cdi.files(context) else {}
    # An engine by its name where it is another than those that have always been: seals of earlier versions stay good.
    engine = {"engine": "containerd"} if toolkit["engine"]["name"] == "containerd" else {}
    settings = {"settings": toolkit["engine"]["settings"]} if toolkit["engine"].get("settings") else {}
    of_users = {"rootless": list(rootless.users(context))} if rootless.users(context) else {}
    wished = {"images": images.wished(context)} if images.wished(context) else {}
    return {
        "version_spec": toolkit["version_spec"],
        "packages": list(toolkit["packages"]),
        **of_users,
        **setting,
        **engine,
        **settings,
        **wished,
    }


def _wished_packages(context: Context) -> list[str]:
    toolkit = context.stack["container_toolkit"]
    return [*engines.packages(context), *toolkit["packages"]]


def toolkit_packages(context: Context) -> list[str]:
    """The packages that carry the toolkit's own version."""
    return list(context.stack["container_toolkit"]["packages"])


def version_prefixes(stack: Stack, aim: str | None = None) -> dict[str, str]:
    """What the packages' versions begin with, where one was asked for (1.19.1 exactly, or any 1.19) or is aimed at."""
    toolkit = stack.get("container_toolkit")
    if toolkit is None:
        return {}
    if aim:
        return dict.fromkeys(toolkit["packages"], f"{aim}-")
    specifier = toolkit["version_spec"]
    if not specifier.startswith("=="):
        return {}
    start = specifier[2:-1] if specifier.endswith("*") else f"{specifier[2:]}-"
    return dict.fromkeys(toolkit["packages"], start)


def _version_findings(context: Context) -> list[Finding]:
    toolkit = context.stack["container_toolkit"]
    wrong = [name for name in toolkit["packages"] if not fits(context.installed[name], toolkit["version_spec"])]
    if not wrong:
        return []
    found = context.installed[wrong[0]]
    reason = f"{wrong[0]} is {found}, wished is {toolkit['version_spec']}"
    return [Finding("upgrade", reason, found, toolkit["version_spec"], packages=toolkit["packages"])]


def fits(version: str, specifier: str) -> bool:
    """Say whether a package's version is one that a specifier such as ==1.19.1 allows."""
    # Imported here: only a plan with containers pays for it.
    from packaging.specifiers import SpecifierSet

    upstream = version.split(":", 1)[-1].split("-", 1)[0]
    return SpecifierSet(specifier).contains(upstream, prereleases=True)


def demands(stack: Stack, _wish: Wish) -> list[Demand]:
    """Return the toolkit as the package index has to have it."""
    toolkit = stack.get("container_toolkit")
    if not toolkit:
        return []
    specifier = toolkit["version_spec"]
    relation = specifier[:2] if specifier.startswith(">=") else "="
    version = specifier.lstrip("=>").removesuffix(".*")
    return [
        Demand(
            "container-toolkit",
            version,
            toolkit["packages"],
            lambda _name, found: fits(found, specifier),
            relation=relation,
        )
    ]


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    history = sections.history(facts)
    ours = NAME in (history.get("components") or ())
    # Where the engine was another one, what Docker has is the host's own.
    return {
        "docker": ours and docker.is_ours(facts),
        "containerd": containerd.given_back(facts),
        "rootless": rootless.taken_back(facts),
    }


def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The engines, where packages of theirs that are there move on, whoever needs that: their scripts restart them."""
    moved = [row["name"] for row in plan["install"] if row["name"] in context.installed]
    because = "{} moves to another version, which restarts it"
    return [
        Disturbance(f"nothing to run in {title}", because.format(name), use(context.facts))
        for name, title, use in (
            *((name, "Docker", busy.docker) for name in moved if name in _DOCKERS),
            *((name, "containerd", busy.containerd) for name in moved if name in _CONTAINERDS),
        )
    ]


def refuse(context: Context, _plan: Plan) -> None:
    """Raise StepRefused where the engine's configuration cannot be added to: before the driver changes, not after."""
    engine = engines.daemon(context)
    reason = engine.refusal(context.facts) if engine else None
    if reason:
        raise StepRefused(reason)


def unmended(context: Context) -> list[str]:
    """A runtime of somebody else's that pods do not stay in."""
    toolkit = context.stack.get("container_toolkit")
    served = toolkit["engine"]["name"] if toolkit else None
    of_pods = served == "containerd" and containerd.unmanaged(containerd.there(context))
    return [f"{containerd.UNMANAGED}. What to do: {containerd.MANAGE}"] if of_pods else []


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    touches=TOUCHES,
    units=(cdi.LINKS,),
    steps=work.STEPS,
    refuse=refuse,
    disturbs=disturbs,
    version_prefixes=version_prefixes,
    versioned=toolkit_packages,
    security="container-toolkit",
    demands=demands,
    judge=judgement.judge,
    unmended=unmended,
    containers=proof.containers,
    merged=(DAEMON_JSON, containerd.CONFIG),
    directories=(containerd.DIRECTORY,),
    removes=_removes,
    # dpkg's purge takes the link away, rpm leaves it.
    package_units={
        "nvidia-container-toolkit-base": ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    },
)
