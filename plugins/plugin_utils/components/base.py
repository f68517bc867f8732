# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a component is: the one shape that the plan, the seals and the roles agree on.

A component is a named part of the node's wished state (the driver, the toolkits …). Its module here answers from the observation, the
stack and the rules alone, as its ``COMPONENT`` says; its role in ``roles/`` does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ..model.plan import Plan

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge

    from ..model.in_use import Disturbance
    from ..model.plan import Change, Managed, Removes
    from ..model.stack import Repository, Stack
    from ..model.work import ContainerQuestion
    from ..rules import Rules
    from ..wish.wish import Wish
    from .demand import Demand, WheelDemand
    from .programs import Program
    from .view import View


#: How the names of the kernel's own drivers for the cards begin.
IN_TREE = ("nouveau", "nova")
#: Variables that are set for each role outside it, by role.
Inputs = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Context:
    """Everything a component may look at. Nothing here reaches the node.

    ``facts``: what node_facts returned. ``stack``: what the resolver decided. ``versions``: exact version by package name,
    from the node's own package index (absent where the index was not asked).
    ``provision_only``: the cards are not there, so nothing can be loaded or proven. ``cpu_only``: no card and none expected.
    ``cards_missing``: the same, although the inventory or the last seal says that they are there.
    ``condemned``: environments that the last proof could not import from; none in a look after an apply.
    ``unmanaged``: the places on the bus of cards that are left alone.
    ``variables``: what is set for each role outside it. ``companions``: packages that are there and go to the driver's new version with it,
    and what makes a kernel whole that comes with it. ``leaves``: packages that go where the driver's come from another source.
    ``driver_changes``: whether this plan does something about the driver, which comes first.
    """

    facts: Facts
    stack: Stack
    versions: Mapping[str, str] = field(default_factory=dict)
    provision_only: bool = False
    cards_missing: bool = False
    cpu_only: bool = False
    variables: Inputs = field(default_factory=dict)
    companions: Sequence[str] = ()
    condemned: Sequence[str] = ()
    unmanaged: Sequence[str] = ()
    leaves: Sequence[str] = ()
    driver_changes: bool = False

    @property
    def installed(self) -> Mapping[str, str]:
        """Installed packages that matter here, version by name."""
        packages: Mapping[str, str] = self.facts["packages"]["installed"] or {}
        return packages

    @property
    def beside_nouveau(self) -> bool:
        """Whether a driver that is left as it is works beside nouveau or nova, which hold cards that are left alone and no other."""
        driver, cards = self.stack.get("driver"), self.facts["pci"]["gpus"]
        if driver is None or not driver["adopted"]:
            return False
        held = [card for card in cards if (card.get("driver") or "").startswith(IN_TREE)]
        return bool(held) and all(card["bus_id"] in self.unmanaged for card in held)

    @property
    def runs_here(self) -> bool:
        """Whether a card is on the bus that something can be loaded or started for: in an image that is being built it would only fail."""
        return bool(self.facts["pci"]["gpus"]) and not self.provision_only


@dataclass(frozen=True)
class Finding:
    """One difference between what is observed and what is wished.

    ``action`` is one of install, upgrade, configure, repair, return, adopt. ``packages`` are names that would be installed,
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

    def as_dict(self) -> Managed:
        """As the module node_seal takes it."""
        return {
            "files": list(self.files),
            "light_files": list(self.light_files),
            "packages": list(self.packages),
            "services": list(self.services),
            "environments": list(self.environments),
        }


#: What a role does next: from the context of this moment and the plan that is under way. The work that the plan carries is the step
#: ``begin``; each other step is asked for by the role, where only the node can tell what comes next.
Step = Callable[[Context, Plan], Mapping[str, object]]


@dataclass(frozen=True)
class Need:
    """What a change writes below a path: bytes, and files where their number is known."""

    path: str
    size: int
    files: int = 0


def _none(*_arguments: object) -> tuple[()]:
    """The answer of a component that has nothing of what it is asked for."""
    return ()


def _no_keys(*_arguments: object) -> dict[str, str]:
    return {}


def _no_wishes(_stack: Stack) -> dict[str, smi_judge.Expected]:
    return {}


def _removes_nothing(_facts: Facts, _files: Sequence[str]) -> Removes:
    return {}


def _not(*_arguments: object) -> None:
    return None


@dataclass(frozen=True)
class Component:
    """All that the loop asks of a component. One says what it has; what it leaves out is its default here.

    name: of the component, its role and its seal.
    wanted: is it part of the wished state of this node?
    findings: what is not as wished; empty when the outcome is right.
    inputs: the part of the stack that, when it changes, makes the seal stale. Versions that only the package index decided are left out:
        `up` keeps a sealed version that still satisfies the wish.
    manages: what the seal records once the outcome is right; None where nothing stays behind that could be sealed.
    adoption: the finding for an outcome that is right, that another one brought, and that has no seal; an upgrade leaves it alone.
    parts: its keys of the stack. The first one stands in its seal.
    touches: what its role changes: packages, services, initramfs, and driver where a failure may be the driver's.
    refuse: raises :class:`..model.errors.StepRefused` where the role must not begin on the node as it is now.
    disturbs: what the plan would end that its role begins with, see busy.py.
    mends: whether it finishes what a cut left of a transaction, so that another transaction of the packages has to take its place.
    version_prefixes: what versions of packages have to begin with, by name. ``aim``: the version that an upgrade aims at.
    newer: what an upgrade finds newer that is no package, where it is right.
    versioned: its packages that carry its own version.
    members: packages that are there and go to its version without being named.
    security: its name in compat/security.yaml. branch: the one of which a security floor has to be, None for any.
    demands: what it asks of the package index. also: names under which the index may have other versions of it.
    wheels: what it asks of the Python index: the pins that pip would install now. Those that are there are none of them.
    space: what one of its changes writes beside packages.
    judge: checks of what is there.
    containers: what a proof asks of containers.
    merged: files of the host's own that it writes into; `remove` takes out what it put there.
    outgrown: files that its program imported before it was one file. They go with its next work, where no other program needs one.
    strangers: packages of the same that somebody else set up.
    spares: what a person does who goes without a part of it, by the package or the package source that brings that.
    directories: made for its files; `remove` takes them away where nothing else is inside.
    take_back: what `remove` does by its role, before the driver goes; None where nothing is left to do for it. ``undo``: the tasks of the
        role that do it.
    removes: its keys of what the role `remove` does. ``files``: those that go.
    units: those that its role writes. A node is asked for them whether a seal names them or not.
    program: the one that it puts on nodes, of this collection's own files; None where it has none.
    package_units: units that come with a package and go with it.
    steps: the work of its role, by the name of the step.
    wishes_of_cards: what it holds single cards to, by bus id, in place of what is expected of any card.
    unmended: what a person has to know of a plan in which its role does nothing: what is wrong with it and is no finding.
    """

    name: str
    wanted: Callable[[Context], bool]
    findings: Callable[[Context], list[Finding]]
    inputs: Callable[[Context], Mapping[str, object]] = _no_keys
    manages: Callable[[Context], Manages] | None = None
    adoption: Callable[[Context], Finding | None] = _not
    parts: Sequence[str] = ()
    touches: frozenset[str] = frozenset()
    refuse: Callable[[Context, Plan], None] = _not
    disturbs: Callable[[Context, Plan], Sequence[Disturbance]] = _none
    mends: bool = False
    version_prefixes: Callable[[Stack, str | None], Mapping[str, str]] = _no_keys
    newer: Callable[[Context], Finding | None] = _not
    versioned: Callable[[Context], Sequence[str]] = _none
    members: Callable[[Context], Sequence[str]] = _none
    security: str | None = None
    branch: Callable[[Stack], str | None] = _not
    demands: Callable[[Stack, Wish], Sequence[Demand]] = _none
    also: Callable[[Stack, Rules], Sequence[str]] = _none
    wheels: Callable[[Context], Sequence[WheelDemand]] = _none
    space: Callable[[Change, Context], Sequence[Need]] = _none
    judge: Callable[[View, Stack], Sequence[Check]] = _none
    containers: Callable[[Context], Sequence[ContainerQuestion]] = _none
    merged: Sequence[str] = ()
    directories: Sequence[str] = ()
    outgrown: Sequence[str] = ()
    strangers: Callable[[Facts], Sequence[str]] = _none
    spares: Mapping[str, str] = field(default_factory=dict)
    take_back: Callable[[Facts], Sequence[Finding]] | None = None
    undo: str = ""
    removes: Callable[[Facts, Sequence[str]], Removes] = _removes_nothing
    units: Sequence[str] = ()
    program: Program | None = None
    package_units: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    wishes_of_cards: Callable[[Stack], Mapping[str, smi_judge.Expected]] = _no_wishes
    unmended: Callable[[Context], Sequence[str]] = _none

    def sealed(self, context: Context) -> Manages:
        """What its seal records; nothing where it leaves none."""
        return self.manages(context) if self.manages else Manages()

    def stack_part(self, stack: Mapping[str, object]) -> object:
        """Its part of the stack, as its seal carries it."""
        return next((stack.get(part) for part in self.parts[:1] if stack.get(part)), {})


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
            "repair",
            f"{entry['file']} is in the way: {entry['reason']}",
            files=[entry["file"], paths.BACKUP + entry["file"]],
        )
        for repository in context.stack.get("repositories") or ()
        if repository["name"] in names
        for entry in repository.get("displaces") or ()
    ]


def wanted_repositories(context: Context, names: Sequence[str]) -> list[Repository]:
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
        if not repository.get("key") or not {uri.rstrip("/") for uri in repository["uris"]} <= hosts
    ]
