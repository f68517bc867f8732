# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The engines that have a daemon and a configuration of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...model import sections
from ..base import Context, Finding
from ..daemon_json import DAEMON_JSON
from . import containerd, docker, rootless

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Containerd, Docker, Facts


@dataclass(frozen=True)
class Daemon:
    """An engine with a daemon.

    title: for a person. config: the file that it is configured by, files: all that are written of it, service: its unit. seen: its
    part of the facts. findings: what its configuration lacks. refusal: why nothing can be put
    into it. sealed: the files of it that a seal records. left_behind: what is to be taken back where the engine is another one.
    """

    title: str
    config: str
    files: Sequence[str]
    service: str
    seen: Callable[[Facts], Docker | Containerd]
    findings: Callable[[Context], list[Finding]]
    refusal: Callable[[Facts], str | None]
    sealed: Callable[[Facts], list[str]]
    left_behind: Callable[[Facts], list[Finding]]


_DAEMONS: Mapping[str, Daemon] = {
    "docker": Daemon(
        "Docker",
        DAEMON_JSON,
        (DAEMON_JSON,),
        docker.SERVICE,
        seen=lambda facts: facts["containers"]["docker"],
        findings=docker.findings,
        refusal=docker.refusal,
        sealed=lambda _facts: [DAEMON_JSON],
        left_behind=docker.left_behind,
    ),
    "containerd": Daemon(
        "containerd",
        containerd.CONFIG,
        (containerd.CONFIG, containerd.DROP_IN),
        containerd.SERVICE,
        seen=lambda facts: facts["containers"]["containerd"],
        findings=containerd.findings,
        refusal=containerd.refusal,
        sealed=lambda facts: list(facts["containers"]["containerd"]["marked"]),
        left_behind=containerd.left_behind,
    ),
}


def daemon(context: Context) -> Daemon | None:
    """The daemon of the engine. Podman has none and no configuration of its own: it reads the CDI specification."""
    return _DAEMONS.get(context.stack["container_toolkit"]["engine"]["name"])


def packages(context: Context) -> list[str]:
    """The packages of the engine, and of users' own containers."""
    return list(dict.fromkeys([*context.stack["container_toolkit"]["engine"]["packages"], *rootless.packages(context)]))


def findings(context: Context) -> list[Finding]:
    """What the engine lacks: its configuration, and that it runs, now and after a boot."""
    engine = daemon(context)
    behind = [found for each in left(context) for found in each.left_behind(context.facts)]
    return behind + (engine.findings(context) + _states(context.facts, engine) if engine else [])


def left(context: Context) -> list[Daemon]:
    """Engines that are wished no more, with something of an earlier run in their configuration."""
    engine = daemon(context)
    return [each for each in _DAEMONS.values() if each is not engine and each.left_behind(context.facts)]


def _states(facts: Facts, engine: Daemon) -> list[Finding]:
    state = (facts["services"] or {}).get(engine.service)
    found = []
    if state and state["enabled"] == "disabled":
        found.append(Finding("configure", f"{engine.title} is not enabled at boot", services=[engine.service]))
    if state and state["active"] in ("inactive", "failed"):
        found.append(Finding("configure", f"{engine.title} is {state['active']}", services=[engine.service]))
    return found


def is_right(context: Context, engine: Daemon) -> bool:
    """Whether an engine without the toolkit's packages runs already with all that it needs in its configuration."""
    running = sections.service(context.facts, engine.service)["active"] == "active"
    return running and not engine.findings(context)
