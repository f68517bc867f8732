# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From an observation to the plan: which components have to change, why, and what that takes.

Pure: nothing here reaches a node. The action `plan` calls :func:`draft`, asks the node's package index where the draft
needs exact versions, and calls :func:`finish`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ...module_utils.base import checks as checking
from ...module_utils.base import dotted
from ...module_utils.base.versions import EVERY_PACKAGE
from .. import resolver
from ..components import (
    COMPONENTS,
    SEALED,
    Context,
    Finding,
    container_toolkit,
    cuda,
    frameworks,
    nvidia_driver,
    repair,
)
from ..components.base import not_known
from ..components.nvidia_driver import exchange, fabric, kernels, secure_boot, signed_modules
from ..health import judge
from ..model import index_answer, sections
from ..model.shortfalls import holding
from ..resolver import lock, repositories, situation
from ..rules import Rules, hosts
from ..wish import BadInput, Wish
from . import availability, removal, rescue, upgrading, way_back, work

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import (
        IndexProblem,
        PackageExchange,
        PackageIndex,
    )
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState


#: Free space that has to stay after the change, in bytes: a full root or /boot is a failure of its own.
RESERVE_BYTES = 512 * 1024**2
#: A rebuilt initramfs stands beside the old one until it is renamed (Ubuntu's are 60 to 110 MB).
INITRAMFS_BYTES = 128 * 1024**2
#: Bytes (as preflight_framework_mib has them) and files of an environment with PyTorch and its CUDA libraries; assumed, with a margin.
FRAMEWORK_BYTES = 6144 * 1024**2
FRAMEWORK_FILES = 40_000
#: Where the package manager keeps what it downloads.
_CACHES = {"apt": "/var/cache/apt/archives", "dnf": "/var/cache/dnf"}
#: Packages whose files lie below /usr/local/cuda-X.Y.
_TOOLKIT = re.compile(r"(?:cuda-(?!drivers|compat)|libcu(?!dnn)|libnpp|libnv(?!idia)|nsight-|gds-tools)")
#: Packages of the tools that a proof measures with.
PROOF_TOOLS = ("fio",)
#: Seconds that a proof stays fresh without a boot or a change (variable gpuwright_proof_max_age).
PROOF_MAX_AGE = 7 * 24 * 3600
#: Verbs that change a node.
APPLYING = ("up", "upgrade", "rollback", "remove")
#: Verbs that have to know what was on the node before.
WITH_HISTORY = ("rollback", "remove")
#: Kinds of problems of the package index that follow from another one where there is one.
_CONSEQUENCES = ("no-such-package",)
#: Components that enable or restart a service.
_WITH_SERVICES = ("nvidia_driver", "mig", "gpu_settings", "container_toolkit")
_POWER_CYCLE = "look at the kernel log for Xid 79; power-cycle the node, then inspect it"


@dataclass(frozen=True)
class Request:
    """What the caller wants to know, beside the wish.

    ``today`` decides on ends of life. ``local``: the machine one sits at. ``only``: the components of a role used alone.
    ``inputs``: variables set for each component, they belong to its digest. ``role_digests``: checked-in digest by role.
    ``absent``: what the node's package index turned out not to have, such as "driver=580" or "cuda=13.0", with the versions
    that are there instead. ``lock``: the stack that the node has to come to, see lock.py.
    ``applied``: the stack that was just applied; missing seals are then no reason to change anything.
    ``begun``: the plan of this very run, whose driver failed and gives way to the one that was remembered; ``failure``: what stopped it.
    ``retry``: a driver that failed on this kernel is tried again.
    ``security``: an upgrade that only goes as far as published vulnerabilities demand; ``aim``: the version that this is, by component.
    """

    host: str
    today: date
    local: bool = False
    full: bool = False
    verb: str = "up"
    only: Sequence[str] = ()
    proof_max_age: int = PROOF_MAX_AGE
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    role_digests: Mapping[str, str] = field(default_factory=dict)
    applied: Mapping[str, Any] | None = None
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lock: Mapping[str, Any] | None = None
    begun: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    retry: bool = False
    security: bool = False
    aim: Mapping[str, str] | None = None

    @property
    def returns(self) -> bool:
        """Whether the node goes back to a driver that worked before."""
        return self.verb == "rollback"

    @property
    def moves(self) -> bool:
        """Whether what is sealed may go on to a newer version: only an upgrade moves a node."""
        return self.verb == "upgrade"


@dataclass(frozen=True)
class Draft:
    """A plan before the package index was asked. ``also``: names under which it may have what else there is.
    ``state``: the remembered driver that the node returns to, see way_back.py.
    ``narrow``: what its first answer showed that versions have to begin with.
    ``builders``: repositories that dnf may need and that are not enabled, see resolver/repositories.py.
    """

    request: Request
    wish: Wish
    context: Context
    answer: Mapping[str, Any]
    findings: Mapping[str, list[Finding]]
    also: Sequence[str] = ()
    state: DriverState | None = None
    narrow: Mapping[str, str] = field(default_factory=dict)
    builders: Sequence[Mapping[str, Any]] = ()

    @property
    def packages(self) -> list[str]:
        """Packages whose exact versions the index has to give; each name once."""
        names = [name for found in self.findings.values() for finding in found for name in finding.packages]
        names += upgrading.candidates(self.context, self.request)
        tools = _missing_tools(self.context) if self.findings or self.context.facts["proof"] is None else []
        kept = way_back.copies(self.state, self.context.facts) if self.state else {}
        return [name for name in dict.fromkeys([*names, *tools]) if name not in kept]

    @property
    def replaced(self) -> dict[str, str]:
        """Packages of another source that the driver's take the place of, with their versions."""
        driver = self.context.stack.get("driver")
        due = driver is not None and self.state is None and "nvidia_driver" in self.findings
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
        if "nvidia_driver" in aim:
            prefix = f"{aim['nvidia_driver']}-"
        # What goes along with the driver goes to its version, whatever was sealed of it.
        stays = set(self.packages).difference(self.context.along)
        sealed = {name: version for name, version in self._sealed.items() if name in stays}
        wished = {
            **container_toolkit.version_prefixes(self.context.stack, aim.get("container_toolkit")),
            **cuda.version_prefixes(self.context.stack),
            **dict.fromkeys(versioned, prefix),
        }
        keep = {name: start for name, start in wished.items() if name in self.packages and name not in versioned}
        keep |= {
            name: version for name, version in sealed.items() if nvidia_driver.continues(version, wished.get(name, ""))
        }
        if driver is not None and set(versioned) & set(self.packages):
            ours = next(
                (
                    version
                    for name, version in self._sealed.items()
                    if name in versioned and nvidia_driver.continues(version, prefix)
                ),
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
            if not (name == "nvidia_driver" and self.replaced)
        }
        return {name: version for seal in seals.values() for name, version in (seal.get("packages") or {}).items()}


def draft(facts: Facts, wish: Wish, rules: Rules, request: Request) -> Draft | dict[str, Any]:
    """The findings of every wished component; a finished plan where there is nothing to find out (error, skip, conflict)."""
    ended = _ended_by_cards(facts, wish, request)
    if ended is not None:
        return ended
    state = (
        ((request.begun or {}).get("remember") or way_back.target(facts))
        if request.returns and request.applied is None
        else None
    )
    if request.returns and state is None and request.applied is None:
        return _ended(facts, request, refusals=[way_back.nowhere(facts)])
    fixed = _fixed_driver(facts, wish, request, state)
    if request.returns or fixed is not None:
        wish = way_back.without_driver(wish)
    try:
        where = situation.situation_from_facts(
            facts,
            wish,
            rules,
            today=request.today,
            previous=_previous(request, state),
            absent=request.absent,
        )
        where = replace(where, moves=request.moves, kernel=repair.kernel_kept(facts) or where.kernel)
        where = way_back.arriving(where, state)
        answer = resolver.resolve(where, wish, rules)
    except BadInput as error:
        return bad_input(facts, request, error)
    conflicts = _conflicts(answer, where, rules, request)
    if conflicts:
        return _ended(facts, request, conflicts=conflicts)
    answer = {**answer, "stack": lock.with_wheels(request.lock, answer["stack"])}
    context = Context(
        facts=facts,
        stack=answer["stack"] | ({} if fixed is None else {"driver": fixed}),
        provision_only=bool(wish.provision_for) and not facts["pci"]["gpus"],
        cards_missing=bool(wish.provision_for) and not facts["pci"]["gpus"] and _missing_cards(facts, wish) is not None,
        cpu_only=not facts["pci"]["gpus"] and not wish.provision_for and not hosts.has_gpu_off_the_bus(facts),
        variables=request.inputs,
        condemned=frameworks.condemned(facts) if request.applied is None else (),
    )
    if request.begun is not None:
        context = replace(context, stack=way_back.restored(context.stack, _all_findings(context, request)))
    findings = _with_return(_all_findings(context, request), state, facts)
    also = (
        [
            *availability.also(answer["stack"], rules),
            *filter(None, [kernels.headers_alone(context)]),
            *(nvidia_driver.members(context) if "nvidia_driver" in findings else ()),
        ]
        if findings
        else ()
    )
    builders = repositories.builders(where, rules)
    return Draft(request, wish, context, answer, findings, also, state, builders=builders)


def _ended_by_cards(facts: Facts, wish: Wish, request: Request) -> dict[str, Any] | None:
    """The finished plan of a machine without cards, where that ends it; None where there is something to plan for."""
    if not facts["pci"]["gpus"] and not wish.provision_for:
        missing = _missing_cards(facts, wish)
        if missing:
            return _without_cards(facts, wish, request, missing, hosts.missing_remedy(facts, _POWER_CYCLE))
        trouble = hosts.windows_trouble(facts)
        if trouble:
            return _without_cards(facts, wish, request, trouble, hosts.WINDOWS_DRIVER)
        if not request.local and not hosts.has_gpu_off_the_bus(facts):
            return _skipped(facts, request)
    return None


def _conflicts(
    answer: Mapping[str, Any], where: situation.Situation, rules: Rules, request: Request
) -> list[dict[str, Any]]:
    """Why the wish cannot be met, or the lock not be held."""
    if request.lock is None:
        return [] if answer["ok"] else list(answer["conflicts"])
    if not answer["ok"]:
        return lock.unresolved(request.lock, where, answer["conflicts"], rules)
    return lock.differences(request.lock, where, answer["stack"], rules)


def _previous(request: Request, state: DriverState | None) -> Mapping[str, Any] | None:
    """The driver that was just applied, or is returned to: it is ours, and not a stranger's to be adopted."""
    if state is not None:
        return way_back.sealed_in(state)
    return None if request.applied is None else request.applied.get("driver")


def _fixed_driver(facts: Facts, wish: Wish, request: Request, state: DriverState | None) -> Mapping[str, Any] | None:
    """The driver part of the stack where the rules do not choose it: of a node that goes back exactly the one that worked, whatever is
    preferred today; and the one that somebody's rollback led to, until the wish for a driver changes or an upgrade is asked for.
    """
    if state is not None:
        driver = way_back.stack_of(state, wish.driver_runfile)
        # That a run goes back by itself is nobody's wish: see _failed_refusals.
        return driver if request.begun is not None else {**driver, "stays": way_back.asked(wish)}
    if request.applied is not None:
        driver = request.applied.get("driver") or {}
        return driver if driver and (request.returns or driver.get("stays") is not None) else None
    return None if request.moves or request.lock is not None else way_back.staying(facts, wish)


def _rolled_back(context: Context, request: Request) -> list[dict[str, Any]]:
    """What a person has to know of a node that somebody rolled back."""
    return [] if request.returns else way_back.told(context.facts, context.stack.get("driver") or {})


def _ways_back(drafted: Draft, context: Context, changes: bool) -> dict[str, Any]:
    """What a plan says of the drivers before and after it. ``changes``: whether the driver is among what it changes."""
    facts, request, state = context.facts, drafted.request, drafted.state
    remember = way_back.working(facts) if changes else None
    brings = nvidia_driver.brings(context) if changes else None
    driver = context.stack.get("driver") or {}
    return {
        "remember": remember,
        "brings": brings,
        "way_back": state is None and way_back.is_there(facts, remember, brings, driver),
        "restore": way_back.work(state, facts) if state else None,
        "gave_way": way_back.gave_way(facts, request.begun, request.failure) if state else None,
    }


def _with_return(
    findings: Mapping[str, list[Finding]], state: DriverState | None, facts: Facts
) -> dict[str, list[Finding]]:
    """The findings with the return to a state. On apt it mends an interrupted package manager itself: finishing first what failed
    would fail. rpm leaves nothing to finish.
    """
    if state is None:
        return dict(findings)
    merged = {**findings, "nvidia_driver": [way_back.finding(state, facts)]}
    if facts["packages"]["manager"] == "apt":
        merged.pop("repair", None)
    return {name: merged[name] for name in COMPONENTS if name in merged}


def absent(drafted: Draft, index: PackageIndex) -> dict[str, list[str]]:
    """Parts of the stack that the index turned out not to have, with the versions that are there; empty where it did not answer.
    A lock leaves nothing to choose again but the headers, which it says nothing of.
    """
    if drafted.state is not None or not availability.answered(index):
        return {}
    found = kernels.headers_absent(index, drafted.context)
    if drafted.request.lock is None:
        demands = availability.demands(drafted.context.stack, drafted.wish)
        found |= availability.absent(demands, index, drafted.packages)
    return {key: there for key, there in found.items() if key not in drafted.request.absent}


def tightened(drafted: Draft, index: PackageIndex | None) -> Draft | None:
    """The draft to ask the index with once more, where driver and fabric manager, or the driver and another package of its set, would
    else be of two versions, or where a kernel would come without its modules.
    """
    driver, context = drafted.context.stack.get("driver"), drafted.context
    if driver is None or index is None or drafted.narrow or drafted.state or not availability.answered(index):
        return None
    narrow = fabric.narrowed(driver, nvidia_driver.carriers(driver), drafted.packages, index)
    along = []
    if "nvidia_driver" in drafted.findings and not context.along and not drafted.replaced:
        along = [*nvidia_driver.left_behind(context, index), *kernels.whole(index.get("install") or (), context)]
    if not (narrow or along):
        return None
    wider = replace(context, along=along)
    return replace(drafted, narrow=narrow, context=wider, findings=_all_findings(wider, drafted.request))


def _answered(drafted: Draft, versions: Mapping[str, str], sets: PackageExchange | None) -> Context:
    """What the findings are made from, with what the index said; a member is named once."""
    context = replace(drafted.context, versions=versions, leaves=sets["leaves"] if sets else ())
    named = () if drafted.replaced else upgrading.along(context, drafted.request)
    return replace(context, along=list(dict.fromkeys([*context.along, *named])))


def finish(drafted: Draft, index: PackageIndex | None) -> dict[str, Any]:
    """The plan. ``index`` is what package_index returned, None where it was not asked (or not needed)."""
    answer = index or index_answer.NOT_ASKED
    versions, problems = index_answer.candidates(answer), answer["problems"]
    missing = _missing(drafted, index)
    request = drafted.request
    if request.moves:
        versions = upgrading.of_what_moves(versions, drafted.context, request)
    if drafted.state:
        versions = {**versions, **drafted.state["packages"]}
    sets = answer["exchange"]
    context = _answered(drafted, versions, sets)
    findings = _all_findings(context, request) if versions else drafted.findings
    findings = _with_return(findings, drafted.state, context.facts)
    if request.moves:
        findings = upgrading.with_newer(findings, context, request)
    plan = _base(context.facts, request, drafted.wish)
    plan |= {key: drafted.answer[key] for key in ("warnings", "why", "assumed", "gpus")}
    plan |= {"stack": context.stack, "exchange": sets}
    plan |= {"provision_only": context.provision_only, "cpu_only": context.cpu_only, "packages": versions}
    plan["cards_missing"] = context.cards_missing
    plan["warnings"] = [*_without_card(context), *_rolled_back(context, request), *plan["warnings"]]
    plan["digests"] = {name: _digest(name, context, request) for name in SEALED if COMPONENTS[name].wanted(context)}
    plan["manages"] = {name: COMPONENTS[name].manages(context).as_dict() for name in plan["digests"]}
    sizes = {row["name"]: row for row in answer["install"]}
    changes = [_change(name, finding, sizes, versions) for name, found in findings.items() for finding in found]
    plan["changes"] = changes if drafted.state else _with_branch(changes, context, plan["why"])
    plan["checks"] = judge.judge(context.facts, context.stack, _expectations(drafted, request))
    _add_proof(plan, context, request, sizes)
    plan["components"] = [
        name for name in [*COMPONENTS, "validate"] if name in {change["component"] for change in plan["changes"]}
    ]
    plan["begin"] = _marks(plan, context, drafted.replaced)
    plan |= _ways_back(drafted, context, "nvidia_driver" in plan["components"])
    plan["reboot"] = "reboot" in plan["components"]
    plan["reboot_reason"] = nvidia_driver.reboot_reason(context)
    plan["rescue"] = rescue.lines(context.facts, local=request.local) if plan["reboot"] else []
    plan["rebuild"] = frameworks.rebuilds(context) if "frameworks" in plan["components"] else []
    plan |= {"install": list(sizes.values()), "from_controller": _from_controller(context.stack, drafted.wish)}
    plan["prefer"] = nvidia_driver.preferred(context, drafted.keep.get(EVERY_PACKAGE))
    plan |= {"download_bytes": answer["download_bytes"] or 0, "disk_bytes": answer["disk_bytes"] or 0}
    # After an apply the index is not asked again: what is there by then is looked at.
    asked = bool(drafted.packages) and request.applied is None
    plan["versions_verified"] = not asked or (
        index is not None and not any(row["kind"] == "timeout" and row.get("needed", True) for row in problems)
    )
    if asked and not plan["versions_verified"]:
        plan["warnings"] = [*plan["warnings"], _unverified(problems)]
    plan["warnings"] = [*plan["warnings"], *_sources_of_others(problems), *_enabled(drafted, index)]
    # dnf refuses to work where one of its repositories does not answer: the roles leave these out.
    plan["left_out"] = sorted({row["source"] for row in problems if row.get("source") and not row.get("needed", True)})
    plan["enabled"] = list(answer["enabled"])
    plan["absent"] = {key: list(there) for key, there in request.absent.items()}
    behind = signed_modules.behind(context.stack, index, drafted.packages)
    plan["refusals"] = _refusals(plan, replace(drafted, context=context), index, missing, behind)
    plan["ok"] = not plan["refusals"]
    plan["work"] = work.of_plan(plan, context, request.only)
    return judged(plan, request)


def _from_controller(stack: Mapping[str, Any], wish: Wish) -> str | None:
    """The file on the controller that the driver comes from: this run's own nvidia_driver_runfile, where it is no address, and nothing
    that a node has said.
    """
    file, given = (stack.get("driver") or {}).get("runfile") or {}, wish.driver_runfile
    return given if file.get("addresses") == [given] and not way_back.is_address(given) else None


_OTHERS_RECORD = (
    "nothing was removed; look who changed /var/lib/gpuwright on the node, take the name out of history.json and the seals there, "
    "and run again"
)


def take_back(facts: Facts, request: Request) -> dict[str, Any]:
    """The plan of a node from which everything goes that gpuwright brought."""
    found = removal.findings(facts)
    reason = removal.reboot_reason(facts)
    plan = _base(facts, request)
    plan["changes"] = [_change(name, each, {}, {}) for name, rows in found.items() for each in rows]
    plan["components"] = ["remove", *(["reboot"] if reason else [])] if found else []
    plan["remove"] = removal.work(facts)
    plan["restore"] = plan["remove"]["restore"]
    plan |= {"reboot": reason is not None and bool(found), "reboot_reason": reason}
    unread = "history" in facts["unknown"]
    if unread:
        plan["checks"] = [checking.incomplete("removal.left", not_known(facts, "history", "what gpuwright brought"))]
    elif not found:
        plan["checks"] = [removal.check(facts)]
    context = Context(facts=facts, stack={})
    plan["refusals"] = _privilege_refusals(context) if (found or unread) and request.verb in APPLYING else []
    plan["refusals"] += [_refusal("record-foreign", text, _OTHERS_RECORD) for text in removal.foreign(facts)]
    plan["ok"] = not plan["refusals"]
    return judged(plan, request)


def bad_input(facts: Facts, request: Request, error: BadInput) -> dict[str, Any]:
    """The plan of a host whose wish cannot be understood."""
    return _ended(facts, request, error=str(error), suggestions=list(error.suggestions))


def why_not(plan: Mapping[str, Any]) -> str:
    """Why a plan cannot be carried out, each reason with its remedy, for a person."""
    if plan["error"]:
        return str(plan["error"])
    rows = [*plan["conflicts"], *plan["refusals"]]
    if rows:
        return "\n".join(f"{row['text']} -> {row['remedy']}" if row.get("remedy") else str(row["text"]) for row in rows)
    failed = [check for check in plan["checks"] if check["status"] in ("fail", "incomplete")]
    return "; ".join(f"{check['id']}: {check['reason']}" for check in failed) or "not proven"


def describe(plan: Mapping[str, Any]) -> str:
    """The plan as text, for `--check --diff`."""
    if not plan["ok"]:
        return why_not(plan) + "\n"
    lines = []
    for change in plan["changes"]:
        versions = " -> ".join(filter(None, (change["from"], change["to"])))
        lines.append(f"{change['component']}: {change['action']} {versions}".rstrip() + f" ({change['reason']})")
        lines += [f"  package {row['name']} {row['version'] or '(version unverified)'}" for row in change["packages"]]
        lines += [f"  leaves {name}" for name in change["leaves"]]
        lines += [f"  file {path}" for path in change["files"]]
        lines += [f"  service {unit}" for unit in change["services"]]
    if plan["download_bytes"]:
        lines.append(f"download {plan['download_bytes'] / 1e6:.1f} MB, {plan['disk_bytes'] / 1e6:.1f} MB on disk")
    if plan["reboot"]:
        lines.append(f"reboot: {plan['reboot_reason']}")
    return "\n".join(lines or ["nothing to do"]) + "\n"


def right(drafted: Draft) -> list[Finding]:
    """After an apply: what is still not as wished (the second plan must be empty). A pending boot is not a failure."""
    return [finding for name, found in drafted.findings.items() if name != "reboot" for finding in found]


def to_seal(plan: Mapping[str, Any], begun: Sequence[str], facts: Facts) -> list[str]:
    """After an apply: the components whose seals are written, of those that are right. ``begun``: those that the run set out to change.

    Another one, whose seal was good then, is among them where the run has made a file again that is sealed by its time alone: EPEL's DKMS
    makes every initramfs anew after a build.
    """
    seals = facts["seals"] or {}

    def made_again(name: str) -> bool:
        seal = seals.get(name)
        changed = [f"{path} changed" for path in plan["manages"][name]["light_files"]]
        return seal is not None and seal["state"] == "broken" and seal["reason"] in changed

    return [name for name in plan["digests"] if name in begun or made_again(name)]


# --- parts of the plan ------------------------------------------------------------------------------------------------


def _all_findings(context: Context, request: Request) -> dict[str, list[Finding]]:
    result: dict[str, list[Finding]] = {}
    told: list[Finding] = []
    for name, component in COMPONENTS.items():
        if request.only and name not in request.only:
            continue
        if not component.wanted(context):
            continue
        found = component.findings(context)
        # A package source that several components share is told once, where something else is left to tell.
        found = [finding for finding in found if finding not in told] or found
        told += found
        sealed = _seal_findings(name, context, request) if name in SEALED and request.applied is None else []
        # Packages that were moved behind our back go back, whatever else is not right: only the seal knows that they were moved.
        moved = any(finding.packages for finding in sealed) and not any(finding.packages for finding in found)
        if moved or not found:
            found = sealed + found
        if found:
            result[name] = found
    if "nvidia_driver" in result and exchange.replaced(context.facts, context.stack["driver"]):
        # Finishing what an exchange of the sets left half done would bring files of both: the exchange itself finishes it.
        result.pop("repair", None)
    return result


def _seal_findings(name: str, context: Context, request: Request) -> list[Finding]:
    """The outcome looks right; is there a good seal of these very inputs?"""
    if request.only:
        return []
    if context.facts["seals"] is None:
        return [Finding("adopt", not_known(context.facts, "seals", "whether gpuwright sealed it"))]
    seal = context.facts["seals"].get(name)
    adopted = name == "nvidia_driver" and context.stack["driver"]["adopted"]
    if seal is None:
        reason = "a working driver is there and satisfies the wish" if adopted else "not yet sealed by gpuwright"
        return [Finding("adopt", reason, after=context.facts["driver"]["user_version"] if adopted else None)]
    if seal["state"] == "newer":
        return []
    if seal["state"] == "alone":
        return [Finding("adopt", str(seal["reason"]))]
    if seal["state"] != "good":
        return [Finding("repair", str(seal["reason"]), packages=_moved_packages(seal, context))]
    if seal["digest"] != _digest(name, context, request):
        return [Finding("configure", "its inputs changed since it was sealed")]
    if request.full:
        return [Finding("configure", "all components are looked at again (full)")]
    return []


def _moved_packages(seal: Mapping[str, Any], context: Context) -> list[str]:
    """Packages that no longer have their sealed version: these go back to it."""
    return [name for name, version in (seal.get("packages") or {}).items() if context.installed.get(name) != version]


def _digest(name: str, context: Context, request: Request) -> str:
    """The digest of a component's inputs: its part of the stack, its variables, and the role that applies them."""
    parts = {
        "stack": COMPONENTS[name].inputs(context),
        "variables": request.inputs.get(name) or {},
        "role": request.role_digests.get(name),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _marks(plan: Mapping[str, Any], context: Context, replaced: Mapping[str, str]) -> dict[str, Any]:
    """What stands in the seals' place while components are changed, see module_utils/records/seals.py and exchange.py."""
    cards_now, marks = card_ids(context.facts), {}
    for name in plan["digests"]:
        if name in plan["components"]:
            stack = stack_part(name, context.stack)
            if name == "nvidia_driver" and replaced:
                stack = {**stack, "replaces": replaced}
            marks[name] = {"stack": stack, "gpus": cards_now}
    return marks


def stack_part(name: str, stack: Mapping[str, Any]) -> Any:
    """A component's part of the stack, as its seal carries it."""
    return stack.get({"nvidia_driver": "driver"}.get(name, name)) or {}


def card_ids(facts: Facts) -> list[str]:
    """The cards on the bus as vendor:device, one each."""
    return [f"{card['vendor']}:{card['device']}" for card in facts["pci"]["gpus"] or ()]


def _change(name: str, finding: Finding, sizes: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    packages = [
        {
            "name": package,
            "version": versions.get(package),
            "download_bytes": (sizes.get(package) or {}).get("download_bytes"),
        }
        for package in finding.packages
    ]
    return {
        "component": name,
        "action": finding.action,
        "from": finding.before,
        "to": finding.after,
        "reason": finding.reason,
        "packages": packages,
        "files": list(finding.files),
        "services": list(finding.services),
        "leaves": list(finding.leaves),
    }


def _with_branch(
    changes: list[dict[str, Any]], context: Context, why: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The changes; that the driver leaves its branch is told as that and with the reason, not by the packages that it takes."""
    driver, seen = context.stack.get("driver"), context.facts["driver"]
    there = seen["user_version"] or seen["loaded_version"]
    if not driver or not there or driver["adopted"] or dotted.major(there) == driver["branch"]:
        return changes
    because = next((f" ({row['text']})" for row in why if row["rule"] == "driver.branch"), "")
    reason = f"the driver leaves branch {dotted.major(there)} for {driver['branch']}{because}"
    return [
        change | {"reason": reason}
        if change["component"] == "nvidia_driver" and change["action"] in ("install", "upgrade")
        else change
        for change in changes
    ]


def stack_digest(plan: Mapping[str, Any]) -> str:
    """One digest over all components' inputs: what a proof was given for."""
    return hashlib.sha256(json.dumps(plan["digests"], sort_keys=True).encode()).hexdigest()


def _add_proof(plan: dict[str, Any], context: Context, request: Request, sizes: Mapping[str, Any]) -> None:
    """Put `validate` into the plan where the last proof no longer speaks for this node."""
    proof = context.facts["proof"]
    plan["stack_digest"] = stack_digest(plan)
    if request.only:
        return
    reason = _stale(proof, plan, context, request)
    if reason:
        plan["changes"].append(
            _change("validate", Finding("prove", reason, packages=_missing_tools(context)), sizes, plan["packages"])
        )


def _missing_tools(context: Context) -> list[str]:
    """What the proof measures with and the node does not have."""
    return [name for name in PROOF_TOOLS if name not in context.installed]


def _stale(proof: Mapping[str, Any] | None, plan: Mapping[str, Any], context: Context, request: Request) -> str | None:
    if plan["changes"]:
        return "the node is proven after every change"
    if proof is None and "proof" in context.facts["unknown"]:
        return not_known(context.facts, "proof", "whether the node was proven")
    if proof is None:
        return "the node was never proven"
    if proof["verdict"] != "pass":
        return f"the last proof was {proof['verdict']}"
    if proof["boot_id"] != context.facts["boot"]["id"]:
        return "the node was booted since the last proof"
    if proof["driver"] != context.facts["driver"]["loaded_version"]:
        return "another driver is loaded than the proven one"
    if proof["stack_digest"] != plan["stack_digest"]:
        return "the wished stack changed since the last proof"
    if request.full:
        return "everything is looked at again (full)"
    age = _age(proof["time"], context.facts["time"])
    if age is None or age > timedelta(seconds=request.proof_max_age):
        return f"the last proof is from {proof['time']}"
    return None


def _age(then: str, now: str) -> timedelta | None:
    try:
        return _time(now) - _time(then)
    except ValueError:
        return None


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def judged(plan: dict[str, Any], request: Request) -> dict[str, Any]:
    """Add the verdict of the observation, and why the host cannot go on (None when it can).

    Where something is about to be applied, a failed check is what the apply may mend; the proof after it decides.
    """
    passive = "skip" if plan["skipped"] else checking.verdict(plan["checks"])
    plan["verdict"] = passive if plan["ok"] else "fail"
    ends_here = not plan["components"] or request.verb == "doctor"
    plan["why_not"] = (
        why_not(plan) if not plan["ok"] or (ends_here and plan["verdict"] not in ("pass", "skip")) else None
    )
    return plan


# --- refusals: everything that must stop a run before its first change ------------------------------------------------


def _refusals(
    plan: Mapping[str, Any],
    drafted: Draft,
    index: PackageIndex | None,
    missing: Sequence[availability.Missing],
    behind: Mapping[str, str] | None,
) -> list[dict[str, Any]]:
    context, request = drafted.context, drafted.request
    if plan["components"] and request.verb in APPLYING:
        refused = _privilege_refusals(context)
        if refused:
            return refused  # what else would stop the run is seen truly only as root
    floors = list(upgrading.out_of_reach(context, request, index))
    told = {name for each in missing for name in each.demand.packages}
    if floors:  # what the index lacks of them is told once, by the floor
        missing, told = (), set(context.installed)
    if drafted.state:
        told |= set(drafted.state["packages"])
    if behind:
        told.add(signed_modules.package_of_next(context.stack) or "")
    refusals = [
        _refusal(f"index-{row['kind']}", row["text"], row["remedy"])
        for row in _causes((index or index_answer.NOT_ASKED)["problems"])
        if row["kind"] != "timeout" and row.get("needed", True) and row.get("package") not in told
    ]
    refusals += [_refusal("signed-module-behind", **behind)] if behind else []
    refusals += _newer_seal_refusals(context) + [_version_refusal(each, request) for each in missing]
    refusals += [_floor_refusal(*each) for each in floors] + _unmoved_refusals(drafted)
    if drafted.state:
        refusals += way_back.refusals(
            drafted.state,
            context.facts,
            index_answer.candidates(index or index_answer.NOT_ASKED),
            drafted.wish.driver_runfile,
        )
    refusals += _exchange_refusals(drafted, index)
    refusals += _unverified_refusals(plan, request) + _space_refusals(plan, context) + _service_refusals(plan, context)
    refusals += _failed_refusals(plan, context, request)
    refusals += kernels.refusals(plan["install"], context)
    refusals += [] if drafted.state else _fabric_refusals(context, index)
    return refusals + _secure_boot_refusals(plan, context, request)


def _causes(problems: Sequence[IndexProblem]) -> list[IndexProblem]:
    """The problems without those that only follow: where a repository gave no index, nobody knows what it offers."""
    known = [row for row in problems if row["kind"] not in _CONSEQUENCES]
    return known or list(problems)


def _enabled(drafted: Draft, index: PackageIndex | None) -> list[dict[str, str]]:
    """What a person has to know of repositories that are enabled for this run alone."""
    form = (
        "packages of EPEL need the repository {repository}, which is not enabled: it is for this run; an upgrade of everything "
        "leaves out what comes from it, until it is enabled for good ({steps})"
    )
    return [
        {"rule": "repository.builder", "text": form.format(**row), "source": row["source"]}
        for row in drafted.builders
        if row["repository"] in (index or index_answer.NOT_ASKED)["enabled"]
    ]


def _refusal(rule: str, text: str, remedy: str | None) -> dict[str, Any]:
    return {"rule": rule, "text": text, "source": "gpuwright", "remedy": remedy}


def _privilege_refusals(context: Context) -> list[dict[str, Any]]:
    if context.facts["root"] != "/":
        text = f"the tree {context.facts['root']} was observed, but a change would reach the running machine"
        return [_refusal("needs-live-root", text, "leave gpuwright_root out, or use plan and doctor only")]
    if context.facts["privileged"]:
        return []
    text = "changing the node needs root, and the run is not root there"
    return [_refusal("needs-root", text, "run with sudo, or give -K; in an inventory set ansible_become: true")]


def _newer_seal_refusals(context: Context) -> list[dict[str, Any]]:
    newer = {name: seal for name, seal in (context.facts["seals"] or {}).items() if seal["state"] == "newer"}
    return [
        _refusal(
            "newer-seal",
            f"{name} was sealed by gpuwright {seal['gpuwright']}, which is newer than this one",
            "update gpuwright here, or remove the seal on the node",
        )
        for name, seal in newer.items()
    ]


def _missing(drafted: Draft, index: PackageIndex | None) -> list[availability.Missing]:
    """What the node's index was asked for and does not have."""
    if index is None or drafted.state is not None or not availability.answered(index):
        return []
    demands = availability.demands(drafted.context.stack, drafted.wish)
    return availability.missing(demands, index, drafted.packages)


def _version_refusal(missing: availability.Missing, request: Request) -> dict[str, Any]:
    """A version that was asked for and that the node's index does not have, with those that it has."""
    demand = missing.demand
    who = "the lock has" if request.lock is not None else "wanted is"
    text = f"{who} {demand.text}, the package index of this node has {missing.instead}"
    example = f", for example {demand.want}={missing.example}" if missing.example else ""
    if request.lock is not None:
        remedy = f"make the lock anew with a version that is there{example}"
    else:
        remedy = f"ask for a version that is there{example}"
    return _refusal("index-version", text, f"{remedy}; or name a mirror that has this one (gpuwright_mirrors)")


def _floor_refusal(name: str, version: str, there: str) -> dict[str, Any]:
    """A security floor that the node's index does not reach."""
    text = f"{name} is safe from {version} on, and the package index of this node has {there}"
    remedy = "refresh the mirror, or move to a branch that has the fix: --want driver=BRANCH"
    return _refusal("security-floor", text, remedy)


def _unmoved_refusals(drafted: Draft) -> list[dict[str, Any]]:
    """`upgrade --security` of a driver below the floor that no package index moves: it must not end as if all were well."""
    driver = drafted.context.stack.get("driver")
    if not (drafted.request.security and driver):
        return []
    if driver["source"] == "runfile" and not driver["adopted"]:
        remedy = (
            "name a fixed build and its file's checksum: --want driver=VERSION -e nvidia_driver_runfile_sha256=CHECKSUM"
        )
    elif driver["adopted"]:
        remedy = "gpuwright did not install this driver: move it with what installed it"
    else:
        return []
    found = [row["text"] for row in drafted.answer["warnings"] if row["rule"] == "driver.security"]
    return [_refusal("security-floor", text, remedy) for text in found]


def _unverified_refusals(plan: Mapping[str, Any], request: Request) -> list[dict[str, Any]]:
    """Exactly the versions of a lock cannot be promised by an index that did not answer."""
    changes = request.verb in (*APPLYING, "plan") and request.applied is None
    if request.lock is None or plan["versions_verified"] or not changes:
        return []
    text = "the lock names exact versions, and the package index of this node did not say in time what it has"
    return [_refusal("index-unverified", text, "run again when the repositories answer, or name a nearer mirror")]


def _exchange_refusals(drafted: Draft, index: PackageIndex | None) -> list[dict[str, Any]]:
    """Nothing of anybody else's goes with the old set, and no set goes whose successor is not known."""
    replaced, driver = drafted.replaced, drafted.context.stack.get("driver")
    if (
        not (replaced and driver)
        or drafted.request.applied is not None
        or drafted.request.verb not in (*APPLYING, "plan")
    ):
        return []
    why = exchange.reason(drafted.context.facts, driver)
    if index is None or index.get("exchange") is None:
        text = f"{why}, and the package index of this node did not say which of them come and which leave"
        return [
            _refusal("driver.exchange", text, "mend what the index answers with, or wait until it does, then run again")
        ]
    others = exchange.foreign(index, drafted.context.facts, replaced)
    if not others:
        return []
    text = f"{why}, and apt would take {', '.join(others)} away with the old ones"
    return [
        _refusal(
            "driver.exchange", text, "remove these packages yourself if nobody needs them, or leave the driver as it is"
        )
    ]


def _secure_boot_refusals(plan: Mapping[str, Any], context: Context, request: Request) -> list[dict[str, Any]]:
    """Modules that the kernel would reject are not built."""
    driver = context.stack.get("driver")
    if driver is None or "nvidia_driver" not in plan["components"] or request.verb not in ("up", "plan", "upgrade"):
        return []
    found = secure_boot.refusal(context.facts, driver)
    return [_refusal("secure-boot-key", *found)] if found and not context.provision_only else []


def _failed_refusals(plan: Mapping[str, Any], context: Context, request: Request) -> list[dict[str, Any]]:
    """A driver that failed on this kernel is not tried again at each run."""
    actions = {change["action"] for change in plan["changes"] if change["component"] == "nvidia_driver"}
    if request.retry or request.verb not in ("up", "plan", "upgrade") or not actions & {"install", "upgrade"}:
        return []
    found = way_back.failed_before(context.facts, plan["brings"])
    return [found] if found else []


def _fabric_refusals(context: Context, index: PackageIndex | None) -> list[dict[str, Any]]:
    """A fabric manager of another version than the driver's would not start."""
    driver = context.stack.get("driver")
    if driver is None:
        return []
    found = fabric.mismatch(context, driver, nvidia_driver.carriers(driver), index or index_answer.NOT_ASKED)
    return [_refusal("fabric-version", *found)] if found else []


def _space_refusals(plan: Mapping[str, Any], context: Context) -> list[dict[str, Any]]:
    """Each file system that the change writes to must be writable and hold it, with a reserve left. One of unknown space is left to the
    role preflight, which sees it at work.
    """
    disks = context.facts["disks"] or ()
    needs: dict[str, list[_Need]] = {}
    for need in _needs(plan, context):
        disk = holding(need.path, disks)
        if disk is not None and need.size:
            needs.setdefault(disk["mount"], []).append(need)
    refusals = [_no_space(disk, needs[disk["mount"]]) for disk in disks if disk["mount"] in needs]
    return [refusal for refusal in refusals if refusal is not None]


class _Need(NamedTuple):
    """What is written below a path: bytes, and files where their number is known."""

    path: str
    size: int
    files: int = 0


def _needs(plan: Mapping[str, Any], context: Context) -> list[_Need]:
    cache = _CACHES.get(context.facts["packages"]["manager"] or "", "/var")
    toolkits = sum(row.get("installed_bytes") or 0 for row in plan["install"] if _TOOLKIT.match(row["name"]))
    needs = [
        _Need(cache, plan["download_bytes"]),
        _Need("/usr", max(plan["disk_bytes"] - toolkits, 0)),
        _Need("/usr/local", toolkits),
    ]
    if {"nvidia_driver", "nouveau_blacklist"} & set(plan["components"]):
        needs.append(_Need("/boot", INITRAMFS_BYTES))
    size = FRAMEWORK_BYTES // (6 if context.cpu_only else 1)
    changes = [
        change
        for change in plan["changes"]
        if change["component"] == "frameworks" and change["action"] in ("install", "upgrade", "repair")
    ]
    needs += [_Need(path, size, FRAMEWORK_FILES) for change in changes for path in change["files"][:1]]
    return needs


def _no_space(disk: Mapping[str, Any], needs: Sequence[_Need]) -> dict[str, Any] | None:
    """Why a file system does not take what is needed of it; None where it does."""
    mebibytes, mount = 1024**2, disk["mount"]
    if disk["read_only"]:
        remedy = "read the kernel log: a file system turns read-only after errors of its disk; else mount it writable"
        return _refusal("read-only", f"{mount} is mounted read-only, and {needs[0].path} is written to", remedy)
    files = sum(need.files for need in needs)
    if disk.get("free_files") is not None and disk["free_files"] < files:
        text = f"{mount} takes {disk['free_files']} more files (inodes), {files} are needed"
        return _refusal("no-space", text, f"remove small files on {mount}, or give it more inodes")
    needed = sum(need.size for need in needs) + (0 if mount == "/boot" else RESERVE_BYTES)
    if disk["free_bytes"] is None or disk["free_bytes"] >= needed:
        return None
    text = f"{mount} has {disk['free_bytes'] // mebibytes} MiB free, {needed // mebibytes} MiB are needed"
    remedy = "remove old kernels (apt autoremove --purge)" if mount == "/boot" else f"make room on {mount}"
    return _refusal("no-space", text, remedy)


def _service_refusals(plan: Mapping[str, Any], context: Context) -> list[dict[str, Any]]:
    """Services are managed by systemd; WSL has it switched off where nobody asked for it."""
    names = [name for name in _WITH_SERVICES if name in plan["components"]]
    where = context.facts["environment"]
    if not names or context.provision_only or where["kind"] != "wsl" or where.get("systemd") is not False:
        return []
    text = f"{' and '.join(names)} needs systemd to manage its services, and it does not run in this WSL"
    return [_refusal("needs-systemd", text, hosts.SYSTEMD_IN_WSL)]


def _without_card(context: Context) -> list[dict[str, str]]:
    """What a person has to know first of a machine whose bus carries no card."""
    if context.cpu_only:
        text = "this machine has no NVIDIA GPU: it gets what needs none, frameworks for the processor and the storage proof"
        text = hosts.with_others(text, context.facts)
    elif context.cards_missing:
        text = "cards are expected and none is on the bus: everything is installed for the named ones, but without them nothing is proven"
    elif context.provision_only:
        text = "the named cards are not there yet: everything is installed for them, nothing is loaded and no card is proven"
    else:
        return []
    return [{"rule": "no-gpu", "text": text, "source": "gpuwright"}]


#: Warnings that only an answer of the package index gives: the look after the work asks it no more.
OF_THE_INDEX = ("foreign-source", "repository.builder", "versions-unverified")


def _sources_of_others(problems: Sequence[IndexProblem]) -> list[dict[str, str]]:
    """Package sources of the machine that do not answer and that nothing of the plan comes from."""
    begin = "a package source of this machine does not answer as it should, and nothing in this plan comes from it: "
    rows = [row for row in problems if not row.get("needed", True)]
    return [{"rule": "foreign-source", "text": begin + row["text"], "source": "gpuwright"} for row in rows]


def _unverified(problems: Sequence[IndexProblem]) -> dict[str, str]:
    text = next((row["text"] for row in problems if row["kind"] == "timeout"), "the package index was not asked")
    return {"rule": "versions-unverified", "text": f"exact versions are unverified: {text}", "source": "gpuwright"}


# --- plans that end before anything is compared -----------------------------------------------------------------------


def _base(facts: Facts, request: Request, wish: Wish | None = None) -> dict[str, Any]:
    return {
        "schema": 1,
        "host": request.host,
        "ok": True,
        "error": None,
        "suggestions": [],
        "conflicts": [],
        "refusals": [],
        "skipped": None,
        "changes": [],
        "components": [],
        "reboot": False,
        "reboot_reason": None,
        "rescue": [],
        "download_bytes": 0,
        "disk_bytes": 0,
        "install": [],
        "rebuild": [],
        "prefer": None,
        "left_out": [],
        "enabled": [],
        "from_controller": None,
        "versions_verified": True,
        "stack": {},
        "warnings": [],
        "why": [],
        "assumed": {},
        "gpus": [],
        "expected_gpus": _expected(wish or Wish(), facts),
        "provision_only": False,
        "cards_missing": False,
        "cpu_only": False,
        "digests": {},
        "begin": {},
        "remember": None,
        "way_back": False,
        "restore": None,
        "exchange": None,
        "brings": None,
        "gave_way": None,
        "remove": None,
        "package_manager": facts["packages"]["manager"],
        "package_family": facts["os"]["family"],
        "work": {},
        "manages": {},
        "packages": {},
        "checks": [],
        "verdict": "incomplete",
        "why_not": None,
        "proof": facts["proof"],
        "stack_digest": None,
        "facts_summary": summary(facts),
        "cards": cards(facts),
    }


def _ended(facts: Facts, request: Request, **changes: Any) -> dict[str, Any]:
    return judged({**_base(facts, request), "ok": False, **changes}, request)


def _skipped(facts: Facts, request: Request) -> dict[str, Any]:
    reason = hosts.with_others("no NVIDIA GPU, and none is expected", facts)
    check = checking.make("gpu.count", "skip", reason=reason)
    return judged({**_base(facts, request), "skipped": reason, "checks": [check]}, request)


def _without_cards(facts: Facts, wish: Wish, request: Request, text: str, remedy: str) -> dict[str, Any]:
    """All cards are gone: nothing is changed (this is no machine without GPU), and the node fails."""
    checks = judge.judge(facts, None, _expected(wish, facts))
    if checking.verdict(checks) != "fail":
        checks = [*checks, checking.make("gpu.count", "fail", "fatal", reason=text, remedy=remedy)]
    return judged({**_base(facts, request, wish), "checks": checks}, request)


def summary(facts: Facts) -> dict[str, Any]:
    """The few facts that a report shows of a node."""
    return {
        "os": facts["os"]["name"],
        "kernel": facts["kernel"]["running"],
        "kernel_next": facts["kernel"]["next"],
        "boot_id": facts["boot"]["id"],
        "environment": facts["environment"]["kind"],
        "driver": facts["driver"]["loaded_version"],
        "simulated": facts["simulated"],
    }


def cards(facts: Facts) -> list[Card]:
    """The cards as nvidia-smi described them; none where it was not asked."""
    return list(sections.cards(facts))


# --- which cards are expected -----------------------------------------------------------------------------------------


def _expected(wish: Wish, facts: Facts) -> dict[str, Any]:
    """Expected cards, and the PCIe lanes that the inventory says are right for their slots."""
    return {**_expected_cards(wish, facts), "pcie_lanes": dict(wish.gpus_pcie_lanes)}


def _expected_cards(wish: Wish, facts: Facts) -> dict[str, Any]:
    """Expected cards: the inventory or --gpu, else what the last seal saw, else nothing."""
    wished = wish.gpus_expected
    if isinstance(wished, int):
        return {"count": wished, "names": None, "from": "the inventory"}
    if wished:
        return {"count": len(wished), "names": list(wished), "from": "the inventory"}
    seal = sections.seal(facts, "nvidia_driver")
    if seal and seal["gpus"]:
        return {"count": len(seal["gpus"]), "names": None, "from": "the last seal"}
    return {"count": None, "names": None, "from": None}


def _expectations(drafted: Draft, request: Request) -> dict[str, Any]:
    """What the observation is judged against. Cards that are yet to come, and that nobody says are there, are not looked for."""
    expected = _expected(drafted.wish, drafted.context.facts)
    expected |= {"ignore": list(drafted.wish.gpus_ignore), "proof_max_age": request.proof_max_age}
    yet_to_come = drafted.context.provision_only and not drafted.context.cards_missing
    return expected | ({"gpus": False} if yet_to_come else {})


def _missing_cards(facts: Facts, wish: Wish) -> str | None:
    expected = _expected(wish, facts)
    found = len(facts["pci"]["gpus"] or ())
    if expected["count"] is None or found >= expected["count"]:
        return None
    return hosts.with_others(
        f"{expected['count']} cards are expected by {expected['from']}, {found} are on the bus", facts
    )
