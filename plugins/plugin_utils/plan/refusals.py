# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Everything that has to stop a run before its first change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...module_utils.base import checks
from ..components import sources
from ..components.base import Context, not_known
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import exchange, fabric, kept_out, kernels, rollback, secure_boot, signed_modules
from ..components.registry import COMPONENTS
from ..model import index_answer, sections
from ..rules import hosts
from . import availability, python_query, security_floors, space, taking, trials, use, users
from .document import refusal
from .draft import Draft
from .python_query import Wheels
from .request import APPLYING, Request

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import IndexProblem, PackageIndex

    from ..model.plan import Plan
    from ..model.stack import Refusal


#: Checks of a diagnosis: what cannot be had as it is wished, and what stands against a change.
CONFLICT, REFUSAL = "wish.conflict", "wish.refused"
#: Kinds of problems of the package index that follow from another one where there is one.
_CONSEQUENCES = ("no-such-package",)

_RECORD = "look why it cannot be read (its file system, its owner), correct that, and run again"
#: What to do, by the fact that could not be read.
_READABLE = {
    "packages.installed": "look what rpm -qa or dpkg --audit says, correct it (a damaged database: rpm --rebuilddb), and run again",
    "seals": _RECORD,
    "history": _RECORD,
}
#: What a change is decided by. Without root only what is the user's own is changed.
_DECIDING_OF_USERS = {"seals": "what gpuwright sealed", "history": "what gpuwright brought"}
_DECIDING = {"packages.installed": "which packages are installed", **_DECIDING_OF_USERS}


def of_plan(
    plan: Plan,
    drafted: Draft,
    index: PackageIndex | None,
    missing: Sequence[availability.Missing],
    behind: signed_modules.Behind | None,
    wheels: Wheels,
) -> list[Refusal]:
    """Why a drafted plan is not carried out; empty where nothing stands against it."""
    context, request = drafted.context, drafted.request
    if plan["components"] and request.verb in APPLYING:
        refused = of_privileges(context, request) or of_unread(context.facts)
        if refused:
            return refused  # what else would stop the run is seen truly only as root
    floors = list(security_floors.out_of_reach(context, request, index))
    told = {name for each in missing for name in each.demand.packages}
    if floors:  # what the index lacks of them is told once, by the floor
        missing, told = (), set(context.installed)
    if drafted.state:
        told |= set(drafted.state["packages"])
    if behind:
        told.add(signed_modules.package_of_next(context.stack) or "")
    refusals = _of_sources(plan, drafted) + [
        refusal(f"index-{row['kind']}", row["text"], _remedy(row))
        for row in _causes((index or index_answer.NOT_ASKED)["problems"])
        if row["kind"] != "timeout" and row.get("needed", True) and row.get("package") not in told
    ]
    refusals += [refusal("signed-module-behind", **behind)] if behind else []
    refusals += _of_newer_seal(context) + [_of_version(each, request) for each in missing] + _of_wheels(wheels, drafted)
    refusals += trials.refusals(wheels.tried, drafted)
    refusals += [_of_floor(*each) for each in floors] + _of_what_stays(drafted)
    if drafted.state:
        refusals += rollback.refusals(
            drafted.state,
            context.facts,
            index_answer.candidates(index or index_answer.NOT_ASKED),
            drafted.wish.driver_runfile,
        )
    refusals += users.of_plan(plan, context) if request.user else []
    refusals += _of_exchange(drafted, index) + _of_taken(plan, request)
    refusals += _of_lock(plan, request) + space.refusals(plan, context) + _of_services(plan, context)
    refusals += _of_failed(plan, context, request)
    refusals += kernels.refusals(plan["install"], context)
    refusals += [] if drafted.state else _of_fabric(context, index)
    begun = request.applied is not None or request.begun is not None
    # Who only looks ends nothing that runs.
    refusals += [] if begun or request.diagnoses else use.refusals(plan, context)
    refusals += [] if drafted.state else _of_kept_out(plan, context)
    return refusals + _of_secure_boot(plan, context, request)


def as_checks(conflicts: Sequence[Refusal], refused: Sequence[Refusal]) -> list[Check]:
    """What stops a change, as findings of a diagnosis: that the wish cannot be met is wrong with the node, that it cannot be changed now
    is none of its faults.
    """
    return [_as_check(CONFLICT, "critical", row) for row in conflicts] + [
        _as_check(REFUSAL, "warning", row) for row in refused
    ]


def _as_check(id_: str, severity: str, row: Refusal) -> Check:
    return checks.failed(
        id_, severity, measured=row["rule"], reason=row["text"], action="configure", remedy=row.get("remedy")
    )


def _of_kept_out(plan: Plan, context: Context) -> list[Refusal]:
    """A driver of which somebody has set that nobody can load it: it would be installed, and a boot would change nothing."""
    kept = kept_out.for_good(context.facts)
    if not kept or nvidia_driver.NAME not in plan["components"] or not nvidia_driver.load_needed(context):
        return []
    return [refusal("driver-kept-out", f"the module nvidia is kept out: {kept_out.named(kept)}", kept_out.remedy(kept))]


def _of_sources(plan: Plan, drafted: Draft) -> list[Refusal]:
    """Package sources that apt was seen not to read, where it could not be asked itself. What the plan moves out of the way is in the way
    of nothing; dnf does without what it cannot read, and a diagnosis has the check of it.
    """
    packages = drafted.context.facts["packages"]
    if plan["versions_verified"] or drafted.request.diagnoses or packages["manager"] != "apt":
        return []
    moved = sources.displaced(drafted.context.stack.get("repositories") or ())
    remedy = "correct that entry or remove the file: apt itself installs nothing before that"
    return [
        refusal("index-broken-source", f"apt cannot read {entry}", remedy)
        for entry in packages.get("broken_sources") or ()
        if not any(row["file"] in entry and (row["whole"] or _names(entry, row["uris"])) for row in moved)
    ]


def _names(entry: str, uris: Sequence[str]) -> bool:
    return any(uri.rstrip("/") in entry for uri in uris)


def _causes(problems: Sequence[IndexProblem]) -> list[IndexProblem]:
    """The problems without those that only follow: where a repository gave no index, nobody knows what it offers."""
    known = [row for row in problems if row["kind"] not in _CONSEQUENCES]
    return known or list(problems)


def _remedy(row: IndexProblem) -> str | None:
    """What to do about a problem of the index; where it is in the way of what a component can go without, that too."""
    spares = {name: text for component in COMPONENTS.values() for name, text in component.spares.items()}
    found = spares.get(row.get("package") or "") or spares.get(row.get("repository") or "")
    return "; or ".join(filter(None, (row["remedy"], found))) or None


def of_privileges(context: Context, request: Request) -> list[Refusal]:
    """Why a run may not change this node: it is no live root, or the run has no privileges."""
    if context.facts["root"] != "/":
        text = f"the tree {context.facts['root']} was observed, but a change would reach the running machine"
        return [refusal("needs-live-root", text, "leave gpuwright_root out, or use plan and doctor only")]
    if request.user:
        return users.of_caller(context.facts)
    if context.facts["privileged"]:
        return []
    text = "changing the node needs root, and the run is not root there"
    return [
        refusal(
            "needs-root",
            text,
            "run with sudo, or give -K; in an inventory set ansible_become: true; or, for environments of your own, give --user",
        )
    ]


def unread(facts: Facts) -> dict[str, str]:
    """What decides a change and could not be read, as sentences by the fact: it is neither there nor absent."""
    what = _DECIDING_OF_USERS if sections.user(facts) is not None else _DECIDING
    return {fact: not_known(facts, fact, about) for fact, about in what.items() if fact in facts["unknown"]}


def of_unread(facts: Facts) -> list[Refusal]:
    """Why a run may not change a node of which nobody knows what is on it, or whose that is."""
    return [refusal("not-known", text, _READABLE[fact]) for fact, text in unread(facts).items()]


def _of_newer_seal(context: Context) -> list[Refusal]:
    newer = {name: seal for name, seal in (context.facts["seals"] or {}).items() if seal["state"] == "newer"}
    return [
        refusal(
            "newer-seal",
            f"{name} was sealed by gpuwright {seal['gpuwright']}, which is newer than this one",
            "update gpuwright here, or remove the seal on the node",
        )
        for name, seal in newer.items()
    ]


def _of_version(missing: availability.Missing, request: Request) -> Refusal:
    """A version that was asked for and that the node's index does not have, with those that it has."""
    demand = missing.demand
    who = "the lock has" if request.lock is not None else "wanted is"
    text = f"{who} {demand.text}, the package index of this node has {missing.instead}"
    example = f", for example {demand.want}={missing.example}" if missing.example else ""
    if request.lock is not None:
        remedy = f"make the lock anew with a version that is there{example}"
    else:
        remedy = f"ask for a version that is there{example}"
    return refusal("index-version", text, f"{remedy}; or name a mirror that has this one (gpuwright_mirrors)")


def _of_wheels(wheels: Wheels, drafted: Draft) -> list[Refusal]:
    """Wheels that the node's Python index does not have: pip would find out in the middle of the run."""
    found = [_of_wheel(each, drafted) for each in wheels.missing]
    return [row for place, row in enumerate(found) if row not in found[:place]]


def _of_wheel(missing: python_query.Missing, drafted: Draft) -> Refusal:
    demand, request = missing.demand, drafted.request
    where = f"the Python index of this node ({', '.join(missing.places)})" if missing.places else "no Python index"
    if missing.denied:
        text = f"{demand.text} comes from {where}, which hands nothing to this machine: {missing.denied}"
        remedy = (
            "give its user and password, in gpuwright_mirrors or in the node's /etc/pip.conf, or name another mirror"
        )
        return refusal("python-index-denied", text, remedy)
    if missing.other_hash:
        text = f"the lock has {demand.text} by its SHA-256, and {where} has {missing.instead}"
        remedy = "find out who changed it before you trust it; then make the lock anew, or name a mirror that has it"
        return refusal("python-index-hash", text, remedy)
    who = "the lock has" if request.lock is not None else "wanted is"
    lines = trials.origins(drafted, demand.environment, demand.name) if request.lock is None else []
    said = f"{' and '.join(lines)}: wanted is" if lines else who
    text = f"{said} {demand.text} for Python {demand.interpreter}, and {where} has {missing.instead}"
    example = f", for example --want {missing.example}" if missing.example else ""
    if demand.chosen:
        remedy = "have the mirror bring it, or name one that has it (gpuwright_mirrors): what is there is not known to go with this"
        return refusal("python-index-version", text, remedy)
    first = "make the lock anew with a version" if request.lock is not None else "ask for a version"
    remedy = f"{first} that is there{example}; or name a mirror that has this one (gpuwright_mirrors)"
    return refusal("python-index-version", text, remedy)


def _of_floor(name: str, version: str, there: str) -> Refusal:
    """A security floor that the node's index does not reach."""
    text = f"{name} is safe from {version} on, and the package index of this node has {there}"
    remedy = "refresh the mirror, or move to a branch that has the fix: --want driver=BRANCH"
    return refusal("security-floor", text, remedy)


def _of_what_stays(drafted: Draft) -> list[Refusal]:
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
    return [refusal("security-floor", text, remedy) for text in found]


def _of_lock(plan: Plan, request: Request) -> list[Refusal]:
    """Exactly the versions of a lock cannot be promised by an index that did not answer."""
    changes = request.verb in (*APPLYING, "plan") and request.applied is None
    if request.lock is None or plan["versions_verified"] or not changes:
        return []
    text = "the lock names exact versions, and the package index of this node did not say in time what it has"
    return [refusal("index-unverified", text, "run again when the repositories answer, or name a nearer mirror")]


def _of_exchange(drafted: Draft, index: PackageIndex | None) -> list[Refusal]:
    """No set goes whose successor is not known."""
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
            refusal("driver.exchange", text, "mend what the index answers with, or wait until it does, then run again")
        ]
    return []


def _of_taken(plan: Plan, request: Request) -> list[Refusal]:
    """A transaction that would take away what is not ours."""
    if request.verb not in (*APPLYING, "plan"):
        return []
    found = taking.refusal(plan["takes"], plan["package_manager"])
    return [found] if found else []


def _of_secure_boot(plan: Plan, context: Context, request: Request) -> list[Refusal]:
    """Modules that the kernel would reject are not built."""
    driver = context.stack.get("driver")
    if driver is None or nvidia_driver.NAME not in plan["components"] or request.verb not in ("up", "plan", "upgrade"):
        return []
    found = secure_boot.refusal(context.facts, driver)
    return [refusal("secure-boot-key", *found)] if found and not context.provision_only else []


def _of_failed(plan: Plan, context: Context, request: Request) -> list[Refusal]:
    """A driver that failed on this kernel is not tried again at each run."""
    actions = {change["action"] for change in plan["changes"] if change["component"] == nvidia_driver.NAME}
    if request.retry or request.verb not in ("up", "plan", "upgrade") or not actions & {"install", "upgrade"}:
        return []
    found = rollback.failed_before(context.facts, plan["brings"])
    return [found] if found else []


def _of_fabric(context: Context, index: PackageIndex | None) -> list[Refusal]:
    """A fabric manager of another version than the driver's would not start."""
    driver = context.stack.get("driver")
    if driver is None:
        return []
    found = fabric.mismatch(context, driver, nvidia_driver.carriers(driver), index or index_answer.NOT_ASKED)
    return [refusal("fabric-version", *found)] if found else []


def _of_services(plan: Plan, context: Context) -> list[Refusal]:
    """Services are managed by systemd; WSL has it switched off where nobody asked for it."""
    names = [
        name for name, component in COMPONENTS.items() if "services" in component.touches and name in plan["components"]
    ]
    where = context.facts["environment"]
    if not names or context.provision_only or where["kind"] != "wsl" or where.get("systemd") is not False:
        return []
    text = f"{' and '.join(names)} needs systemd to manage its services, and it does not run in this WSL"
    return [refusal("needs-systemd", text, hosts.SYSTEMD_IN_WSL)]
