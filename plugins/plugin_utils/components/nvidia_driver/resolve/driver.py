# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The driver of a machine: source, branch, modules and set put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.lock import LockDriver
from ....model.stack import Stack
from ....resolver import adoption, cards, systems, unmanaged
from ....resolver.log import DESIGN, Entry, Log, Unresolved, conflict
from ....resolver.machine import InstalledDriver, Machine
from ....resolver.part import Part
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ...cuda.resolve import support as cuda_support
from . import branch, fabric_manager, modules, package_set, packages, preinstalled, runfile, source
from .candidate import Candidate

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack, ModuleKind, StackSource

_END = {
    "ending": "branch {branch} ends on {eol}, within 180 days",
    "unknown": "the end of branch {branch} was not published: a new-feature branch ends when the next one appears",
    "ended": "branch {branch} ended on {eol}: it gets no security fixes any more",
}


@dataclass(frozen=True)
class Driver:
    """The driver's part of the stack, and what it can run."""

    stack: DriverStack
    support: cuda_support.CudaSupport


def choose(machine: Machine, wish: Wish, system: Row, log: Log) -> Driver:
    """Keep the driver that is there where it satisfies everything, else choose one. Raises Unresolved."""
    if preinstalled.applies(machine, wish):
        return _preinstalled(machine, wish, log)
    installed = machine.driver
    if installed is None:
        if machine.driver_owner == "runfile" and not wish.driver_source:
            raise Unresolved(_broken_runfile())
        return _kept(machine, wish, system, log) or _fresh(machine, wish, system, log)
    missing = adoption.shortcomings(installed, machine, wish, log.rules)
    whole = not missing and _completed(installed, machine, wish, system, log)
    if whole:
        return whole
    emptied = _emptied(installed, system, log.rules)
    stays = emptied and not machine.moves
    if not missing and (stays or not _ours(machine, wish, system, log.rules)):
        if emptied:
            _in_name_only(emptied, installed, system, log)
        return _adopted(installed, machine, log)
    if missing and installed.owner != "packages" and not wish.driver_source and not _was_ours(machine):
        raise Unresolved(*(_not_swapped(installed, entry) for entry in missing))
    return _kept(machine, wish, system, log) or _fresh(machine, wish, system, log)


def _emptied(installed: InstalledDriver, system: Row, rules: Rules) -> Row | None:
    """Return the row of a branch that the distribution emptied after its driver was installed; None where it did not."""
    return (
        systems.transitional(system, numeric_version.major(installed.version), rules)
        if installed.source == "distro"
        else None
    )


def _in_name_only(emptied: Row, installed: InstalledDriver, system: Row, log: Log) -> None:
    """Warn of what the next upgrade of everything does to a driver of such a branch, and say how it moves on purpose."""
    text = (
        f"driver {installed.version} stays, but the newer packages of branch {emptied['branch']} that {system['name']} has are empty "
        f"and bring branch {emptied['to']}: an upgrade by apt moves to that; to move by plan, ask for driver={emptied['to']}"
    )
    log.warn("driver.transitional", text, log.cite("systems", emptied))


def _ours(machine: Machine, wish: Wish, system: Row, rules: Rules) -> bool:
    """Say whether the driver that is there is the one gpuwright put there, or exactly the one it would put there.

    The stack that is in force knows. Without one (a run was cut off before it could seal) the packages tell.
    """
    if machine.kept is not None:
        return _was_ours(machine)
    try:
        fresh = _fresh(machine, wish, system, Log(rules))
    except Unresolved:
        return False
    return set(fresh.stack["packages"]) <= set(machine.installed or {})


def _was_ours(machine: Machine) -> bool:
    return machine.kept is not None and not machine.kept["adopted"]


def _not_swapped(installed: InstalledDriver, entry: Entry) -> Entry:
    text = f"{entry['text']}; the driver {installed.version} that is there came from {_origin(installed)} and is not swapped unasked"
    by_itself = " (its own uninstaller takes it away first)" if installed.owner == "runfile" else ""
    remedy = f"to have it replaced, say where from: driver-source=nvidia{by_itself}"
    return {**entry, "text": text, "remedy": remedy}


def _broken_runfile() -> Entry:
    text = "a driver from a .run file is there and does not work; packages installed over it would mix with its files"
    remedy = "say where the new one comes from, then its own uninstaller takes it away first: driver-source=nvidia"
    return conflict("driver.runfile", text, "the machine's facts", remedy)


def _origin(installed: InstalledDriver) -> str:
    return "a .run file" if installed.owner == "runfile" else installed.source or "an unknown place"


# a driver that is there --------------------------------------------------------------------------------


def _preinstalled(machine: Machine, wish: Wish, log: Log) -> Driver:
    """Return the driver that another one looks after, as it is."""
    adopted = _adopted(preinstalled.checked(machine, wish, log), machine, log)
    reason = f"it belongs to {preinstalled.owner_of(machine)}: used and checked, never touched"
    return replace(adopted, stack={**adopted.stack, "source": "preinstalled", "source_reason": reason})


def _adopted(installed: InstalledDriver, machine: Machine, log: Log) -> Driver:
    row = adoption.branch_of(installed, log.rules)
    flavour = installed.modules or "proprietary"
    text = (
        f"driver {installed.version} is there and satisfies card and wish: it is adopted and nothing of it is changed"
    )
    log.decided("driver.adopted", text, DESIGN)
    _lifetime(row, machine, log)
    _security(installed.version, log)
    stack: DriverStack = {
        "branch": numeric_version.major(installed.version),
        "version": installed.version,
        "modules": cast("ModuleKind", flavour),
        "source": cast("StackSource", installed.source or "unknown"),
        "source_reason": f"adopted from {_origin(installed)}",
        "build": None,
        "set": None,
        "packages": [],
        "pin": {},
        "kernel_module": adoption.kernel_module(installed.packages, installed.source),
        "minimum": None,
        "adopted": True,
        "headers": None,
    }
    return Driver(stack, adoption.support_of(installed, log.rules))


def _kept(machine: Machine, wish: Wish, system: Row, log: Log) -> Driver | None:
    """Return the branch that is sealed where it still satisfies: only an upgrade moves a node to another one."""
    if machine.kept is None or not _was_ours(machine) or wish.driver_branch:
        return None
    kept = machine.kept
    if machine.moves and not _lives(kept["branch"], machine, log.rules):
        return None
    same = replace(wish, driver_branch=kept["branch"], driver_modules=wish.driver_modules or kept["modules"])
    text = f"branch {kept['branch']} is sealed on this machine and still satisfies the wish"
    return _held(machine, same, system, log, ("driver.kept", text))


def _completed(installed: InstalledDriver, machine: Machine, wish: Wish, system: Row, log: Log) -> Driver | None:
    """Return the driver that is there with the fabric manager that it lacks: without one CUDA does not start beside NVSwitches."""
    if not adoption.lacks_fabric_manager(installed, machine):
        return None
    same = replace(
        wish,
        driver_branch=numeric_version.major(installed.version),
        driver_source=wish.driver_source or installed.source,
        driver_modules=wish.driver_modules or installed.modules,
    )
    text = f"driver {installed.version} is there without the fabric manager of its version that NVSwitches need: its branch gets it"
    return _held(machine, same, system, log, ("driver.completed", text))


def _held(machine: Machine, wish: Wish, system: Row, log: Log, decided: tuple[str, str]) -> Driver | None:
    """Return the driver of a wish that holds it to what is there, with the reason; None where there is no such driver."""
    trial = Log(log.rules)
    try:
        found = _fresh(machine, wish, system, trial)
    except Unresolved:
        return None
    log.decided(*decided, DESIGN)
    log.why += trial.why
    log.warnings += trial.warnings
    return found


def _lives(name: str | None, machine: Machine, rules: Rules) -> bool:
    """Say whether a branch still gets builds, and will for a while: an upgrade leaves one that does not."""
    row = next((each for each in rules["driver_branches"]["rows"] if each["branch"] == name), None)
    return row is not None and branch.lifetime(row, machine.today) not in ("ended", "ending")


# a driver to install -----------------------------------------------------------------------------------


def _fresh(machine: Machine, wish: Wish, system: Row, log: Log) -> Driver:
    candidate, origin = _candidate(machine, wish, system, log.rules)
    chosen = package_set.choose(machine, wish, log)
    names_of = runfile.of_driver if candidate.source == "runfile" else packages.of_driver
    names = names_of(candidate, chosen, machine, wish, system, log.rules)
    version = names.get("version", wish.driver_version)
    _explain(candidate, origin, wish, machine, log)
    _warn(candidate, names["build"], version or candidate.build, machine, log)
    fabric_manager.explain(names.get("fabric"), machine, log)
    if names["build"] == "dkms":
        systems.warn_of_kernel(machine, log)
    reason = machine.kept.get("source_reason") if machine.kept else None
    rest = {key: value for key, value in names.items() if key not in ("version", "build")}
    made = {
        "branch": candidate.branch,
        "version": version,
        "modules": candidate.modules,
        "source": candidate.source,
        "source_reason": reason or origin.reason,
        "build": names["build"],
        "set": chosen,
        **rest,
        "minimum": candidate.minimum,
        "adopted": False,
        **({"peermem": True} if wish.driver_peermem else {}),
    }
    stack = cast("DriverStack", made)
    displaced = runfile.displaced(machine, wish, candidate.source)
    if displaced:
        stack["displaces"] = displaced
        text = f"the installation {displaced} by a .run file is taken away by its own uninstaller before packages are installed"
        log.decided("driver.displaces", text, "the machine's facts")
    return Driver(stack, cuda_support.of_branch(candidate.row, version, candidate.build))


def _candidate(machine: Machine, wish: Wish, system: Row, rules: Rules) -> tuple[Candidate, source.Source]:
    """Return the best branch of the first source with one that lives for longer than 180 days, else with one that has not ended, else
    with any.
    """
    sources, out = source.candidates(machine, wish, system, rules)
    found: list[tuple[Candidate, source.Source]] = []
    failed: dict[str, dict[str, list[Entry]]] = {}
    for origin in sources:
        passed, reasons = branch.candidates(machine, wish, origin.name, system, rules)
        failed[origin.name] = reasons
        found += [(each, origin) for each in passed[:1]]
    if not found:
        raise Unresolved(*_reasons(failed, out, machine, wish, system, rules))
    return min(found, key=lambda each: branch.order_of_life(each[0].row, machine.today))


def _reasons(
    failed: dict[str, dict[str, list[Entry]]],
    out: list[Entry],
    machine: Machine,
    wish: Wish,
    system: Row,
    rules: Rules,
) -> list[Entry]:
    """Return what a person has to read where no branch passes: the reasons of the branch that came nearest."""
    dark = [
        entries[-1]
        for reasons in failed.values()
        for entries in reasons.values()
        if entries and all(entry["rule"] == unmanaged.SCREEN for entry in entries)
    ]
    if dark:
        return dark[:1]
    entries = [entry for entry in out if wish.driver_source in (None, "nvidia")]
    for reasons in failed.values():
        if reasons:
            nearest = min(reasons, key=lambda each: (_cards_out(reasons[each]), len(reasons[each]), -int(each)))
            entries += [entry for entry in reasons[nearest] if entry not in entries]
    cards_are_it = _pairs(failed, machine)
    # What a wished source lacks of a wished branch another source may have.
    if not cards_are_it and not out and not (wish.driver_branch and wish.driver_source):
        cards_are_it = _single(failed, machine, system, rules)
    return cards_are_it or entries or [_not_carried(wish, system, rules)]


def _single(sources: Iterable[str], machine: Machine, system: Row, rules: Rules) -> list[Entry]:
    """Return, for each card that no branch of the sources drives, whichever is wished, the branches that would."""
    offered = {row["branch"] for name in sources for row, _build, _prebuilt in branch.carried(name, system, rules)}
    entries = []
    for card in {each.name: each for each in machine.cards}.values():
        rows = [row for row in rules["driver_branches"]["rows"] if row["latest"] and cards.served(card, row, rules)]
        if offered and rows and not any(row["branch"] in offered for row in rows):
            first, last = rows[0]["branch"], rows[-1]["branch"]
            span, one = (f"branches {first} to {last}", "one") if first != last else (f"branch {first} alone", "it")
            who = f"the {card.name} (compute capability {card.compute_capability})"
            older = [each["os"] for each in rules["systems"]["rows"] if int(each["nvidia_first_branch"]) <= int(last)]
            nowhere = (
                f"no source for {system['os']} carries {one}"
                if older
                else f"no source of {one} is known for any system that is served"
            )
            text = f"{who} is driven by {span}, and {nowhere}"
            alone = unmanaged.remedy([card], machine)
            remedy = f"use {' or '.join(older)}, or {alone}" if older else alone
            entries.append(conflict("driver.card", text, cite(rules, "driver_branches", rows[-1]), remedy))
    return entries


#: Where no wish near to it can be met; else that one is named.
_ANOTHER = "use another branch or source"


def _not_carried(wish: Wish, system: Row, rules: Rules) -> Entry:
    empty = systems.transitional(system, wish.driver_branch, rules)
    if empty:
        text = f"the packages of branch {empty['branch']} that {system['name']} has are empty and bring branch {empty['to']}"
        return conflict("driver.transitional", text, cite(rules, "systems", empty), _ANOTHER)
    asked = f"branch {wish.driver_branch}" if wish.driver_branch else "a driver branch"
    where = f"from {wish.driver_source}" if wish.driver_source else "from any source"
    text = f"{asked} is not to be had {where} for {system['os']}"
    return conflict(
        "driver.not-carried",
        text,
        "compat/systems.yaml (distro_drivers, nvidia_first_branch)",
        _ANOTHER,
    )


def _cards_out(entries: list[Entry]) -> int:
    """Return how many cards a branch does not drive: a branch that drives them all is nearer than any that does not."""
    return sum(entry["rule"] == "driver.card" for entry in entries)


def _pairs(failed: dict[str, dict[str, list[Entry]]], machine: Machine) -> list[Entry]:
    """Return the clash of two cards of one machine, where that is what leaves no branch."""
    for reasons in failed.values():
        for entries in reasons.values():
            clash = [entry for entry in entries if entry["rule"] == "driver.modules-cards"]
            if clash:
                return clash
    names = list(dict.fromkeys(card.name for card in machine.cards))
    blocked = [
        {
            entry["text"].split(" does not drive the ", 1)[1].split(" (", 1)[0]
            for entry in entries
            if entry["rule"] == "driver.card"
        }
        for reasons in failed.values()
        for entries in reasons.values()
    ]
    if (
        len(names) < 2
        or not blocked
        or not all(blocked)
        or any(name not in set().union(*blocked) for name in names[:2])
    ):
        return []
    text = f"no driver branch drives both the {names[0]} and the {names[1]}"
    two = [next(card for card in machine.cards if card.name == name) for name in (names[1], names[0])]
    return [conflict("driver.cards", text, "compat/driver_branches.yaml", unmanaged.remedy(two, machine))]


def _explain(candidate: Candidate, origin: source.Source, wish: Wish, machine: Machine, log: Log) -> None:
    row = candidate.row
    citation = log.cite("driver_branches", row)
    log.decided("driver.source", f"from {origin.name}: {origin.reason}", origin.citation)
    if wish.driver_branch:
        log.decided("driver.branch", f"branch {candidate.branch}: asked for", citation)
    else:
        until = f"until {row['eol']}" if row["eol"] else "end of life not published"
        text = f"branch {candidate.branch} ({row['type']}, {until}) is the preferred one that drives every card"
        log.decided("driver.branch", text, citation)
    why = "asked for" if wish.driver_modules else _why_modules(candidate, machine, log.rules)
    log.decided("driver.modules", f"{candidate.modules} kernel modules: {why}", citation)
    if candidate.minimum:
        log.decided(
            "driver.minimum",
            f"at least build {candidate.minimum}: the highest floor of card, kernel and wish",
            citation,
        )


def _why_modules(candidate: Candidate, machine: Machine, rules: Rules) -> str:
    if candidate.modules == "open":
        return "preferred wherever they work"
    failing = modules.failures(machine, candidate.row, candidate.source, rules)
    if any(row["modules"] == "open" for row in failing):
        return f"the open ones of this build do not compile on kernel {machine.kernel}"
    return "the only ones that work here, or the ones known to work"


def _warn(candidate: Candidate, build: str, version: str | None, machine: Machine, log: Log) -> None:
    row = candidate.row
    _lifetime(row, machine, log)
    if not row["confirmed"]:
        log.warn(
            "driver.unconfirmed",
            f"what is known of branch {candidate.branch} is not confirmed",
            log.cite("driver_branches", row),
        )
    if version:
        _security(version, log)
    if machine.secure_boot and build == "dkms":
        _secure_boot(machine, log)
    for doubt in log.rules["systems"]["doubts"]:
        if candidate.source == "nvidia" and (doubt["os"], doubt["what"], doubt["version"]) == (
            machine.os,
            "driver",
            candidate.branch,
        ):
            log.warn("repository.doubt", doubt["text"], log.cite("systems", doubt))
    for failure in [] if machine.kernel else modules.known_failures(candidate.row, candidate.source, log.rules):
        if failure["modules"] in ("any", candidate.modules) and _reaches(failure, candidate):
            which = f"builds below {failure['builds_below']}" if failure["builds_below"] else "its builds"
            text = f"the kernel is not known: {which} do not compile on kernels from {failure['kernel_first']} on"
            log.warn("driver.kernel-unknown", text, log.cite("kernels", failure))
    _warn_of_cards(machine, log)


def _warn_of_cards(machine: Machine, log: Log) -> None:
    for card in machine.losing:
        text = (
            f"the {card.name} ({card.bus_id}), which is left unmanaged, loses the driver that it runs by: NVIDIA's takes its place on the "
            "whole machine; no screen is connected to it"
        )
        log.warn("driver.nouveau", text, "the machine's facts")
    for card in machine.cards:
        if not card.known:
            text = f"the rules do not name the card {card.name}: it is taken for {card.architecture or 'a card newer than the rules'}"
            log.warn("gpu.unlisted", text, "compat/gpus.yaml (device_ranges)")


def _secure_boot(machine: Machine, log: Log) -> None:
    if machine.signing_key == "enrolled":
        log.decided(
            "driver.secure-boot",
            "Secure Boot is on, and the key that signs modules built on this machine is enrolled",
            DESIGN,
        )
        return
    text = "Secure Boot is on: modules built on this machine are signed by a key that has to be enrolled by hand at the next boot"
    log.warn("driver.secure-boot", text, DESIGN)


def _reaches(failure: Row, candidate: Candidate) -> bool:
    """Say whether the build that will be installed may be one that fails."""
    newest = candidate.build or candidate.row["latest"]
    return failure["builds_below"] is None or not numeric_version.at_least(newest, failure["builds_below"])


def _lifetime(row: Row | None, machine: Machine, log: Log) -> None:
    state = branch.lifetime(row, machine.today) if row else "alive"
    if row and state != "alive":
        log.warn("driver.end-of-life", _END[state].format(**row), log.cite("driver_branches", row))


def _security(version: str, log: Log) -> None:
    for row in log.rules["security"]["rows"]:
        if (
            row["component"] == "driver"
            and row["branch"] == numeric_version.major(version)
            and not numeric_version.at_least(version, row["floor"])
        ):
            text = f"driver {version} has published vulnerabilities, fixed from {row['floor']} on (bulletin {row['bulletin']})"
            log.warn("driver.security", text, log.cite("security", row))


def _wants(driver: LockDriver) -> Iterator[str]:
    yield f"driver={driver['version'] or driver['branch']}"
    yield f"driver-modules={driver['modules']}"
    if driver["source"] in ("nvidia", "distro", "runfile"):
        yield f"driver-source={driver['source']}"
    if driver["set"]:
        yield f"driver-set={driver['set']}"


def _exactly(driver: DriverStack, _stack: Stack, machine: Machine, rules: Rules) -> DriverStack:
    return {**driver, "version": driver["version"] or _newest_build(driver, machine, rules)}


def _newest_build(driver: DriverStack, machine: Machine, rules: Rules) -> str | None:
    """Return the newest build of the driver's branch in its source."""
    if driver["source"] == "distro":
        carried = systems.distro_driver(systems.find(machine, rules), driver["branch"], rules)
        return carried["build"] if carried else None
    return next((row["latest"] for row in rules["driver_branches"]["rows"] if row["branch"] == driver["branch"]), None)


def _uncompared(theirs: LockDriver, *, adopted: bool) -> tuple[str, ...]:
    """Return what may differ: a driver that was adopted (here or where the lock was made) has neither set nor packages of ours."""
    if adopted or not theirs["packages"]:
        return ("set", "build", "packages", *(() if theirs["packages"] else ("source",)))
    return ()


PART = Part(
    "driver",
    "driver",
    _wants,
    _exactly,
    is_open=lambda driver: not driver["version"],
    uncompared=_uncompared,
    # Headers and prebuilt modules of Debian's, Ubuntu's and Red Hat's kernels.
    of_kernel=("linux-", *systems.DEVELS),
)
