# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a component is: the one shape that the planner, the seals and the roles agree on.

A component is a named part of the node's wished state (the driver, the toolkits …). Its module here answers three
questions from the observation alone; its role in ``roles/`` does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

#: Where files of the host that were in the way are kept, below their whole path.
BACKUP = "/var/lib/gpuwright/backup"


@dataclass(frozen=True)
class Context:
    """Everything a component may look at. Nothing here reaches the node.

    ``facts``: what node_facts returned. ``stack``: what the resolver decided. ``versions``: exact version by package name,
    from the node's own package index (absent where the index was not asked).
    ``provision_only``: the cards are not there, so nothing can be loaded or proven. ``cpu_only``: no card and none expected.
    ``cards_missing``: the same, although the inventory or the last seal says that they are there.
    ``condemned``: environments that the last proof could not import from; none in a look after an apply.
    ``variables``: what is set for each role outside it. ``along``: packages that are there and go to the driver's new version with it,
    and what makes a kernel whole that comes with it. ``leaves``: packages that go where the driver's come from another source.
    """

    facts: Facts
    stack: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    provision_only: bool = False
    cards_missing: bool = False
    cpu_only: bool = False
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    along: Sequence[str] = ()
    condemned: Sequence[str] = ()
    leaves: Sequence[str] = ()

    @property
    def installed(self) -> Mapping[str, str]:
        """Installed packages that matter here, version by name."""
        packages: Mapping[str, str] = self.facts["packages"]["installed"] or {}
        return packages

    @property
    def cards_present(self) -> bool:
        """Whether an NVIDIA card was seen on the bus."""
        return bool(self.facts["pci"]["gpus"])


@dataclass(frozen=True)
class Finding:
    """One difference between what is observed and what is wished.

    ``action`` is one of install, upgrade, configure, repair, adopt. ``packages`` are names that would be installed,
    ``files`` and ``services`` what would be written or switched, ``leaves`` packages that would be removed.
    """

    action: str
    reason: str
    before: str | None = None
    after: str | None = None
    packages: Sequence[str] = ()
    files: Sequence[str] = ()
    services: Sequence[str] = ()
    leaves: Sequence[str] = ()


@dataclass(frozen=True)
class Manages:
    """What a component's seal records, so that node_facts can see the first thing that changed behind its back."""

    files: Sequence[str] = ()
    light_files: Sequence[str] = ()
    packages: Sequence[str] = ()
    services: Sequence[str] = ()
    environments: Sequence[str] = ()

    def as_dict(self) -> dict[str, list[str]]:
        """As the module node_seal takes it."""
        return {
            "files": list(self.files),
            "light_files": list(self.light_files),
            "packages": list(self.packages),
            "services": list(self.services),
            "environments": list(self.environments),
        }


#: A plan that is under way, as its document has it.
Plan = Mapping[str, Any]
#: What a role does next: from the context of this moment and the plan that is under way. The work that the plan carries is the step
#: ``begin``; each other step is asked for by the role, where only the node can tell what comes next.
Step = Callable[[Context, Plan], Mapping[str, Any]]


class Component(Protocol):
    """The functions that each module of this package offers, and ``STEPS``: the work of its role, a :data:`Step` by name.

    Where there is something to say a module has ``TOUCHES``, what its role changes (packages, services, initramfs, and the
    driver where a failure may be the driver's), and
    ``refuse(context, plan)``, which raises :class:`..model.errors.Refusal` where the role must not begin on the node as it is now.
    """

    def wanted(self, context: Context) -> bool:
        """Is this component part of the wished state of this node?"""

    def findings(self, context: Context) -> list[Finding]:
        """What is not as wished; empty when the outcome is right."""

    def manages(self, context: Context) -> Manages:
        """What the seal records once the outcome is right."""

    def inputs(self, context: Context) -> Mapping[str, Any]:
        """The part of the stack that, when it changes, makes the component's seal stale. Versions that only the
        package index decided are left out: `up` keeps a sealed version that still satisfies the wish.
        """


def not_known(facts: Facts, fact: str, what: str) -> str:
    """What is said where something could not be read: it is neither there nor absent."""
    return f"it is not known {what}: {facts['unknown'].get(fact) or 'the observation does not tell'}"


def missing_packages(context: Context, names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in context.installed]


def repository_findings(context: Context, names: Sequence[str]) -> list[Finding]:
    """A finding for each of the named package sources that the stack wants and the node does not have yet."""
    known = {source["file"] for source in context.facts["packages"]["sources"] or ()}
    return _displaced(context, names) + [
        Finding(
            "configure",
            f"the package source {repository['name']} is not configured",
            after=" ".join(repository["uris"]),
            files=[repository["file"]],
        )
        for repository in wanted_repositories(context, names)
        if repository["file"] not in known
    ]


def repository_names(context: Context, names: Sequence[str]) -> list[str]:
    """Which of the named package sources something is done for: those of the stack that the host does not have by its own, and those in
    whose way files of the host are.
    """
    wanted = {repository["name"] for repository in wanted_repositories(context, names)}
    return [
        repository["name"]
        for repository in context.stack.get("repositories") or ()
        if repository["name"] in names and (repository["name"] in wanted or repository.get("displaces"))
    ]


def repository_files(context: Context, names: Sequence[str]) -> list[str]:
    """Files that adding the named package sources writes."""
    files = []
    for repository in wanted_repositories(context, names):
        files.append(repository["file"])
        if repository.get("key"):
            files.append(repository["key"]["path"])
        if repository.get("exclude"):
            files.append(f"/etc/apt/preferences.d/gpuwright-{repository['name']}")
    return files


def _displaced(context: Context, names: Sequence[str]) -> list[Finding]:
    """A finding for each file of the host that is in the way of the named package sources: it is moved to a backup."""
    return [
        Finding(
            "repair", f"{entry['file']} is in the way: {entry['reason']}", files=[entry["file"], BACKUP + entry["file"]]
        )
        for repository in context.stack.get("repositories") or ()
        if repository["name"] in names
        for entry in repository.get("displaces") or ()
    ]


def wanted_repositories(context: Context, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """The named package sources, without those that the host has by its own: a second source at the same address with
    another key would make apt stop with "Conflicting values set for option Signed-By".
    """
    wanted = [repository for repository in context.stack.get("repositories") or () if repository["name"] in names]
    ours = {repository["file"] for repository in wanted}
    gone = {
        (entry["file"], uri)
        for repository in wanted
        for entry in repository.get("displaces") or ()
        for uri in entry["uris"]
    }
    hosts = {
        uri.rstrip("/")
        for source in context.facts["packages"]["sources"] or ()
        if source["enabled"] and source["file"] not in ours
        for uri in source["uris"]
        if (source["file"], uri) not in gone
    }
    return [
        repository
        for repository in wanted
        if repository["components"] or not {uri.rstrip("/") for uri in repository["uris"]} <= hosts
    ]
