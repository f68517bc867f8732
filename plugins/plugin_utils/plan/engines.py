# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that keep what their users put in: whether one that came with gpuwright may go again, and what becomes of its data.

One goes only where its own program says that nothing is in it. What is stopped, does not answer or is not known is in use: its packages and
its data stay. Data go where they were made here besides (the record says so) and the program is proven empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...module_utils.records.data_directories import CONTAINERD, DOCKER, PODMAN
from ..model import sections

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts


#: What the node answered to each command: its lines; None where it failed or did not end.
Said = Mapping[tuple[str, ...], Sequence[str] | None]


@dataclass(frozen=True)
class Engine:
    """One such program.

    ``packages``: those that are it, by the archive and by its maker; ``beside``: what goes with it alone; ``works_with``: what it needs for
    its work, whether it names that as a dependency or not. ``data``: its directories.
    ``daemon``: its key in the facts, where it has to run to answer. ``questions``: what it holds, by the command that lists that, with the
    lines that are none of a user's. ``empty``: the command that deletes all of it.
    """

    title: str
    packages: Sequence[str]
    data: Sequence[str]
    questions: Mapping[tuple[str, ...], str]
    empty: str
    beside: Sequence[str] = ()
    works_with: re.Pattern[str] = re.compile(r"(?!)")
    daemon: str = ""
    nobodys: re.Pattern[str] = re.compile(r"(?!)")


def _of_containerd(namespace: str) -> dict[tuple[str, ...], str]:
    kinds = {"containers": "containers", "images": "images", "content": "blobs"}
    return {
        ("ctr", "--namespace", namespace, kind, "list", "--quiet"): f"{title} in the namespace {namespace}"
        for kind, title in kinds.items()
    }


#: The namespaces of containerd that are Docker's; each other one is somebody else's.
_OF_DOCKER = ("moby", "plugins.moby")
#: The driver's own modules in what DKMS has.
_OURS = re.compile(r"nvidia(-current|-open|-srv|-legacy[\w-]*)*[/,]")
#: Packages that come from a source of their maker's, by its name in ours.
SOURCES = {"docker-ce": "docker", "containerd.io": "docker"}
_REMOVE = {"apt": "apt-get purge", "dnf": "dnf remove"}

ENGINES = (
    Engine(
        "Docker",
        ("docker.io", "docker-ce"),
        (DOCKER,),
        {
            ("docker", "ps", "--all", "--quiet"): "containers",
            ("docker", "image", "ls", "--all", "--quiet"): "images",
            ("docker", "volume", "ls", "--quiet"): "volumes",
            ("docker", "network", "ls", "--quiet", "--filter", "type=custom"): "networks",
            ("docker", "plugin", "ls", "--quiet"): "plugins",
            ("docker", "system", "df"): "builds",
        },
        "docker system prune --all --volumes",
        beside=("docker-cli", "docker-ce-cli", "docker-buildx-plugin", "docker-compose-plugin"),
        daemon="docker",
        # What is no build is counted by the other commands.
        nobodys=re.compile(r"(TYPE|Images|Containers|Local Volumes) |Build Cache\s+0\s"),
    ),
    Engine(
        "containerd",
        ("containerd", "containerd.io"),
        (CONTAINERD,),
        {
            ("ctr", "namespaces", "list", "--quiet"): "namespaces",
            **{argv: what for name in _OF_DOCKER for argv, what in _of_containerd(name).items()},
        },
        "ctr --namespace NAME containers delete …, ctr --namespace NAME images delete …, ctr namespaces remove NAME",
        daemon="containerd",
        nobodys=re.compile(rf"({'|'.join(map(re.escape, _OF_DOCKER))})$"),
    ),
    Engine(
        "Podman",
        ("podman",),
        (PODMAN,),
        {
            ("podman", "ps", "--all", "--quiet"): "containers",
            ("podman", "images", "--all", "--quiet"): "images",
            ("podman", "volume", "ls", "--quiet"): "volumes",
        },
        "podman system prune --all --volumes",
    ),
    Engine(
        "DKMS",
        ("dkms",),
        (),
        {("dkms", "status"): "modules"},
        "dkms remove NAME/VERSION --all",
        # EPEL's package names them by a condition ("kernel-devel-matched if kernel-core"): without them dnf would take the kernel.
        works_with=re.compile(r"kernel(-64k|-rt)?-devel"),
        nobodys=_OURS,
    ),
)


def of_packages(packages: Collection[str]) -> list[Engine]:
    """The engines among packages."""
    return [engine for engine in ENGINES if set(engine.packages) & set(packages)]


def questions(facts: Facts, packages: Collection[str]) -> list[list[str]]:
    """What the engines among packages are asked. One that does not run is not: that would start it, or tell nothing."""
    return [list(argv) for engine in of_packages(packages) if _runs(facts, engine) for argv in engine.questions]


def _runs(facts: Facts, engine: Engine) -> bool:
    if engine.daemon == "docker":
        return facts["containers"]["docker"]["active"] is True
    if engine.daemon == "containerd":
        return facts["containers"]["containerd"]["active"] is True
    return True


def reason(facts: Facts, engine: Engine, said: Said) -> str:
    """Why an engine stays, as the end of a sentence; nothing where it is proven that nothing is in it."""
    if not _runs(facts, engine):
        return "it does not run, so that nobody knows what it holds"
    answers = {what: said.get(argv) for argv, what in engine.questions.items()}
    silent = [what for what, lines in answers.items() if lines is None]
    if silent:
        return f"it does not say which {', '.join(silent)} it holds"
    held = {what: _of_somebody(lines or (), engine) for what, lines in answers.items()}
    told = [f"{len(lines)} {what}" for what, lines in held.items() if lines]
    return f"it holds {', '.join(told)}" if told else ""


def _of_somebody(lines: Sequence[str], engine: Engine) -> list[str]:
    """The lines that name something of a user's."""
    return [line for line in lines if line.strip() and not engine.nobodys.match(line)]


def staying(facts: Facts, packages: Collection[str], said: Said) -> dict[str, str]:
    """The engines among packages that stay, each with the reason."""
    found = {engine.title: reason(facts, engine, said) for engine in of_packages(packages)}
    return {title: why for title, why in found.items() if why}


def told(
    facts: Facts, stays: Mapping[str, str], kept: Mapping[str, Sequence[str]], files: Collection[str]
) -> list[str]:
    """What stays with its data, why, and what makes it go, as sentences. ``kept``: the packages by engine; what two of them need
    is named with neither. ``files``: those of ours, of which the package sources of what stays do too.
    """
    where = {title: [*sources(names, files)] for title, names in kept.items()}
    return [
        f"{engine.title} stays with all that it has and needs: {stays[engine.title]}. To have it removed:"
        f" {'' if _runs(facts, engine) else f'start it (systemctl start {engine.daemon}), '}delete what it holds ({engine.empty}), then"
        f" {_REMOVE[facts['packages']['manager'] or 'apt']} {' '.join(_alone(engine, kept))}"
        f"{'. Its package source stays: ' if where[engine.title] else ''}{', '.join(where[engine.title])}"
        for engine in ENGINES
        if engine.title in stays
    ]


def sources(kept: Collection[str], files: Iterable[str]) -> list[str]:
    """The package sources of what stays, with their keys: without them nobody would mend it any more."""
    names = {SOURCES[name] for name in kept if name in SOURCES}
    return [path for path in files if names and re.search(rf"gpuwright-({'|'.join(sorted(names))})([.]\w+)?$", path)]


def _alone(engine: Engine, kept: Mapping[str, Sequence[str]]) -> list[str]:
    """The packages of an engine, and what it alone needs."""
    others = {name for title, names in kept.items() if title != engine.title for name in names}
    return [name for name in kept[engine.title] if name in engine.packages or name not in others]


def data_of(packages: Collection[str]) -> list[str]:
    """The directories of the engines that go."""
    return [path for engine in of_packages(packages) for path in engine.data]


def ours(facts: Facts, packages: Collection[str]) -> list[str]:
    """Those of them that were made here, by the record: one that is in none may have been there before."""
    made = sections.history(facts).get("made") or ()
    return [path for path in data_of(packages) if path in made]
