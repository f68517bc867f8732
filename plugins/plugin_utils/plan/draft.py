# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan before the package index was asked: what the components find against the stack that the rules give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict, cast

from ...module_utils.base.versions import EVERY_PACKAGE
from ..components.base import Context, Finding
from ..components.demand import continues
from ..components.frameworks import apply as frameworks
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import exchange, fabric, kernels, rollback
from ..components.registry import COMPONENTS
from ..components.repair import apply as repair
from ..components.view import View
from ..health import judge
from ..resolver import lock, machine, parts, repositories
from ..resolver import resolve as resolver
from ..resolver.machine import Machine
from ..rules import Rules, hosts
from ..wish import users as of_users
from ..wish.wish import BadInput, Wish
from . import availability, document, expectations, findings, proof, upgrading, users
from .request import APPLYING, Request

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack, DriverState

    from ..model.plan import Plan
    from ..model.stack import Answer, Builder, Refusal, Stack


_POWER_CYCLE = "look at the kernel log for Xid 79; power-cycle the node, then inspect it"


class Beside(TypedDict):
    """Packages that come from files on the node, with those, and packages that go."""

    files: dict[str, str]
    leaves: list[str]


@dataclass(frozen=True)
class Draft:
    """A plan before the package index was asked. ``machine``: what the rules chose for.
    ``also``: names under which the index may have what else there is.
    ``state``: the remembered driver that the node returns to, see rollback.py.
    ``narrow``: what its first answer showed that versions have to begin with.
    ``builders``: repositories that dnf may need and that are not enabled, see resolver/repositories.py.
    ``conflicts``: what of the wish cannot be met, where that does not end it.
    """

    request: Request
    wish: Wish
    context: Context
    answer: Answer
    findings: Mapping[str, list[Finding]]
    machine: Machine
    also: Sequence[str] = ()
    state: DriverState | None = None
    narrow: Mapping[str, str] = field(default_factory=dict)
    builders: Sequence[Builder] = ()
    conflicts: Sequence[Refusal] = ()

    @property
    def packages(self) -> list[str]:
        """Packages whose exact versions the index has to give; each name once. A user without root installs none."""
        if self.request.user:
            return []
        names = [name for found in self.findings.values() for finding in found for name in finding.packages]
        names += upgrading.candidates(self.context, self.request)
        proves = self.findings or proof.outdated(self.context, self.request)
        tools = proof.missing_tools(self.context) if proves else []
        kept = rollback.copies(self.state, self.context.facts) if self.state else {}
        return [name for name in dict.fromkeys([*names, *tools]) if name not in kept]

    @property
    def beside(self) -> Beside:
        """What comes and goes with the packages on the way back to a driver. Not of a run whose own driver has failed, nor where something
        is half done: of that no trial holds before it is cleared away, and the one right before the call decides.
        """
        facts = self.context.facts
        if self.state is None or self.request.begun is not None or facts["packages"]["interrupted"]:
            return {"files": {}, "leaves": []}
        return {"files": rollback.copies(self.state, facts), "leaves": rollback.work(self.state, facts)["remove"]}

    @property
    def replaced(self) -> dict[str, str]:
        """Packages of another source that the driver's take the place of, with their versions."""
        driver = self.context.stack.get("driver")
        due = driver is not None and self.state is None and nvidia_driver.NAME in self.findings
        return exchange.replaced(self.context.facts, driver) if driver and due else {}

    @property
    def keep(self) -> dict[str, str]:
        """Version (or its beginning) that packages have to have, whatever newer the index offers: a sealed version that
        still satisfies the wish, else the driver's branch or version. The pinning package is not installed yet, so the
        driver's own goes for everything that it depends on too.
        """
        if self.state:
            return {name: version for name, version in self.state["packages"].items() if name in self.packages}
        driver = self.context.stack.get("driver")
        versioned = [] if driver is None or driver["adopted"] else nvidia_driver.versioned_packages(driver)
        prefix = nvidia_driver.version_prefix(driver) if driver and versioned else ""
        aim = self.request.aim or {}
        if nvidia_driver.NAME in aim:
            prefix = f"{aim[nvidia_driver.NAME]}-"
        # What goes along with the driver goes to its version, whatever was sealed of it.
        stays = set(self.packages).difference(self.context.companions)
        sealed = {name: version for name, version in self._sealed.items() if name in stays}
        wished: dict[str, str] = {}
        for name, component in COMPONENTS.items():
            wished |= component.version_prefixes(self.context.stack, aim.get(name))
        wished |= dict.fromkeys(versioned, prefix)
        keep = {name: start for name, start in wished.items() if name in self.packages and name not in versioned}
        keep |= {name: version for name, version in sealed.items() if continues(version, wished.get(name, ""))}
        if driver is not None and set(versioned) & set(self.packages):
            ours = next(
                (version for name, version in self._sealed.items() if name in versioned and continues(version, prefix)),
                prefix,
            )
            keep[EVERY_PACKAGE] = ours
            keep |= fabric.keep(self.context, driver, self.packages, ours)
        return {**keep, **self.narrow}

    @property
    def _sealed(self) -> dict[str, str]:
        """What the seals say is there, where that is to stay."""
        if self.request.moves:
            return {}
        seals = {
            name: seal
            for name, seal in (self.context.facts["seals"] or {}).items()
            # A version of another source is none that the wish leaves there.
            if not (name == nvidia_driver.NAME and self.replaced)
        }
        return {name: version for seal in seals.values() for name, version in (seal.get("packages") or {}).items()}


def completed(wish: Wish, facts: Facts, request: Request) -> Wish:
    """The wish with what people want by default where nothing is wished by name, and what is only judged with the environments that are
    sealed: a proof is of what is there. A Jetson has the default from its own image: only what is asked for by name is looked at.
    """
    if hosts.has_gpu_off_the_bus(facts) or not wish.nothing_wished:
        return wish
    whole = wish.with_defaults(wants=of_users.DEFAULT_WANTS if request.user else None)
    judges = request.verb not in (*APPLYING, "plan")
    return frameworks.returning.as_sealed(whole, facts, alone=request.user) if judges else whole


def make_draft(facts: Facts, wish: Wish, rules: Rules, request: Request) -> Draft | Plan:
    """The findings of every wished component; a finished plan where there is nothing to find out (error, skip, conflict)."""
    ended = _ended_by_cards(facts, wish, request)
    if ended is not None:
        return ended
    if _computes_nothing(facts, wish, request):
        # Metrics are for every host of an inventory; its environments, and a lock of what the cards get, are for the others.
        wish, request = replace(wish, frameworks=(), projects=()), replace(request, lock=None)
    state, returned = _way_back(facts, wish, request)
    if request.returns and state is None and not returned and request.applied is None:
        return _nowhere(facts, request)
    pins = {**_staying(facts, wish, request), **returned}
    fixed = _fixed_driver(facts, wish, request, state)
    if state is not None or fixed is not None:
        wish = rollback.without_driver(wish)
    stay = frameworks.returning.staying_put(facts, wish, request.absent)
    asked, wish = wish, frameworks.returning.held(wish, {**stay, **pins})
    try:
        where = machine.machine_from_facts(
            facts,
            wish,
            rules,
            today=request.today,
            previous=_previous(request, state),
            absent={**_sealed_pins(facts, request), **request.absent},
        )
        where = replace(where, moves=request.moves, kernel=repair.kernel_kept(facts) or where.kernel)
        where = replace(rollback.arriving(where, state), strangers=_strangers(facts))
        answer = resolver.resolve(where, wish, rules)
        if not answer["ok"] and pins and not request.returns:
            # What a rollback led to does not go with the rest of the wish any more.
            pins, wish = {}, frameworks.returning.held(asked, stay)
            answer = resolver.resolve(where, wish, rules)
    except BadInput as error:
        return document.bad_input(facts, request, error)
    conflicts = _conflicts(answer, where, rules, request)
    if conflicts and not request.diagnoses:
        return document.ended(facts, request, conflicts=conflicts)
    answer = answer if answer["ok"] else resolver.as_far_as_possible(where, wish, rules)
    stack = lock.with_wheels(request.lock, answer["stack"])
    stack = frameworks.returning.marked(stack, asked, pins, _environments_before(facts, request))
    stack = frameworks.returning.restored(stack, asked, returned, facts)
    answer = {**answer, "stack": stack}
    context = Context(
        facts=facts,
        stack=stack if fixed is None else {**stack, "driver": fixed},
        provision_only=bool(wish.provision_for) and not facts["pci"]["gpus"],
        cards_missing=bool(wish.provision_for)
        and not facts["pci"]["gpus"]
        and expectations.missing_cards(facts, wish) is not None,
        cpu_only=not facts["pci"]["gpus"] and not wish.provision_for and not hosts.has_gpu_off_the_bus(facts),
        variables=request.inputs,
        condemned=frameworks.condemned(facts) if request.applied is None else (),
        unmanaged=where.ignored,
    )
    if request.begun is not None:
        context = replace(context, stack=_restored(context, request))
    found = findings.with_return(findings.of_components(context, request), state, facts)
    first = request.returns and request.applied is None and request.begun is None
    if first and state is None and not any(each.action == "return" for each in found.get(frameworks.NAME, ())):
        # What was asked for is not done by other changes.
        return _nowhere(facts, request)
    also = (
        [
            *availability.also(answer["stack"], rules),
            *filter(None, [kernels.headers_alone(context)]),
            *(member for name in found for member in COMPONENTS[name].members(context)),
        ]
        if found
        else ()
    )
    builders = repositories.builders(where, rules)
    return Draft(request, wish, context, answer, found, where, also, state, builders=builders, conflicts=conflicts)


def _sealed_pins(facts: Facts, request: Request) -> Mapping[str, Sequence[str]]:
    """The libraries that the rules pinned for what is sealed: where they still fit only an upgrade moves them, or a lock."""
    return {} if request.moves or request.lock is not None else frameworks.returning.pins_of_seal(facts)


def _way_back(facts: Facts, wish: Wish, request: Request) -> tuple[DriverState | None, frameworks.returning.Pins]:
    """What a node returns to: what gave way last. That is the driver, or environments, or both where one run changed them."""
    if not request.returns or request.applied is not None or "history" in facts["unknown"]:
        # Without the record of the drivers it is not known what gave way last.
        return None, {}
    remembered = request.begun["remember"] if request.begun else None
    state = remembered or rollback.target(facts)
    if request.begun is not None:
        return state, {}
    kept = frameworks.returning.targets(facts, wish)
    times = [time for time, _pin in kept.values()] + ([state["time"]] if state else [])
    last = max(times, default="")
    pins = {name: pin for name, (time, pin) in kept.items() if time == last}
    return (state if state and state["time"] == last else None), pins


def _staying(facts: Facts, wish: Wish, request: Request) -> frameworks.returning.Pins:
    """The releases of frameworks that a rollback led to, just now or before; an upgrade moves on, and a lock has said what is wished."""
    if request.applied is None and (request.moves or request.lock is not None):
        return {}
    return frameworks.returning.pinned(_environments_before(facts, request), wish)


def _environments_before(facts: Facts, request: Request) -> Sequence[object]:
    """The environments as they were applied just now, else as the seal has them."""
    applied = request.applied
    return frameworks.returning.sealed(facts) if applied is None else applied.get("frameworks") or ()


def _nowhere(facts: Facts, request: Request) -> Plan:
    """The plan of a node that has nothing to return to."""
    nowhere = users.nowhere() if request.user else rollback.nowhere(facts)
    return document.ended(facts, request, refusals=[nowhere])


def _restored(context: Context, request: Request) -> Stack:
    """The stack that a return from a failed driver is judged by: the driver, and what else is right as it is. What the run had not come to
    is not there, and is no fault of the driver that is back.
    """
    unmet = {part for name in findings.of_components(context, request) for part in COMPONENTS[name].parts}
    unmet -= set(nvidia_driver.COMPONENT.parts)
    return cast("Stack", {part: value for part, value in context.stack.items() if part not in unmet})


def _strangers(facts: Facts) -> dict[str, Sequence[str]]:
    return {name: component.strangers(facts) for name, component in COMPONENTS.items()}


def _ended_by_cards(facts: Facts, wish: Wish, request: Request) -> Plan | None:
    """The finished plan of a machine without cards, where that ends it; None where there is something to plan for."""
    if not facts["pci"]["gpus"] and not wish.provision_for:
        missing = expectations.missing_cards(facts, wish)
        if missing:
            return document.without_cards(facts, wish, request, missing, hosts.missing_remedy(facts, _POWER_CYCLE))
        trouble = hosts.windows_trouble(facts)
        if trouble:
            return document.without_cards(facts, wish, request, trouble, hosts.windows_remedy(facts))
        if request.verb == "doctor" and judge.lacks_its_card(View(facts)):
            return document.without_their_card(facts, wish, request)
        if _computes_nothing(facts, wish, request) and not parts.without_cards(wish):
            if request.verb == "doctor" and (judge.only_compiles(View(facts)) or hosts.without_windows(facts)):
                return document.without_their_card(facts, wish, request)
            return document.skipped(facts, request)
    return None


def _computes_nothing(facts: Facts, wish: Wish, request: Request) -> bool:
    """Whether a host of an inventory has no card, and so nothing to compute with: on the machine one sits at the processor does it."""
    there = facts["pci"]["gpus"] or wish.provision_for or hosts.has_gpu_off_the_bus(facts)
    return not there and not request.local


def _conflicts(answer: Answer, where: machine.Machine, rules: Rules, request: Request) -> list[Refusal]:
    """Why the wish cannot be met, or the lock not be held."""
    if request.lock is None:
        found = [] if answer["ok"] else answer["conflicts"]
    elif not answer["ok"]:
        found = lock.unresolved(request.lock, where, answer["conflicts"], rules)
    else:
        found = lock.differences(request.lock, where, answer["stack"], rules)
    return cast("list[Refusal]", found)


def _previous(request: Request, state: DriverState | None) -> DriverStack | None:
    """The driver that was just applied, or is returned to: it is ours, and not a stranger's to be adopted."""
    if state is not None:
        return rollback.sealed_in(state)
    return None if request.applied is None else request.applied.get("driver")


def _fixed_driver(facts: Facts, wish: Wish, request: Request, state: DriverState | None) -> DriverStack | None:
    """The driver part of the stack where the rules do not choose it: of a node that goes back exactly the one that worked, whatever is
    preferred today; and the one that somebody's rollback led to, until the wish for a driver changes or an upgrade is asked for.
    """
    if state is not None:
        returned = rollback.stack_of(state, wish.driver_runfile)
        # That a run goes back by itself is nobody's wish: see refusals.py.
        return returned if request.begun is not None else {**returned, "stays": rollback.asked(wish)}
    if request.applied is not None:
        applied = request.applied.get("driver")
        return applied if applied and (request.returns or applied.get("stays") is not None) else None
    return None if request.moves or request.lock is not None else rollback.staying(facts, wish)
