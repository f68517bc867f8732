# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A lock: a resolved stack with exact versions, to be reviewed in git and held to on every node.

A lock is never applied as it stands. Its versions become the wish of a node, the node's own stack is resolved from that, and
where the two differ the node is refused with the reason. What reaches a node is therefore always the resolver's answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels

from ..components.frameworks.model import FrameworkEnvironment
from ..components.frameworks.wish import projects
from ..model import definition, given_file, shortfalls
from ..model.errors import BadInput
from ..model.lock import Lock, LockDriver, LockFramework, LockMachine, LockRepository, LockStack
from ..model.stack import Conflict, Repository, Stack
from ..model.wish import Project, Requirement
from ..rules import Rules
from ..wish import plain
from ..wish.reading import as_list
from ..wish.wish import VARIABLES, WORDS, Wish
from . import resolve as resolver
from .log import conflict
from .machine import Machine, machine_from_options
from .part import Part
from .parts import PARTS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

#: Version of the format. A file with a higher one may mean what this version does not know.
SCHEMA: Final = 1

#: Variables of a host that a lock does not speak of: where things lie and which cards count.
HOST_VARIABLES = tuple(
    name
    for name in VARIABLES
    if (name.startswith("gpuwright_") and name != "gpuwright_want") or any(name in words.of_host for words in WORDS)
)

#: What `--assume` says of a machine.
_ASSUMED = ("secure_boot", "desktop", "nvswitch", "kernel", "python")
_MACHINE = {
    "gpus": "cards",
    "os": "system",
    "arch": "architecture",
    "environment": "kind of machine",
    "secure_boot": "Secure Boot",
    "desktop": "desktop",
    "nvswitch": "NVSwitch",
    "python": "Python",
    "kernel": "kernel",
}


# making one --------------------------------------------------------------------------------------------


def make(
    machine: Machine,
    wish: Wish,
    rules: Rules,
    *,
    wants: Sequence[str],
    version: str,
    hashes: Sequence[tuple[str, str]] = (),
) -> Lock:
    """Return the lock of a wish that resolves. Where it leaves a version open, the rules' newest is taken.

    wants is the wish in words, version is gpuwright's own, hashes are the names and the texts of files that say with hashes which
    wheels an environment is made of. Raises BadInput where there is nothing to lock, or a file is of none of its environments.
    """
    answer = resolver.resolve(machine, wish, rules)
    if not answer["ok"] or not answer["stack"]:
        raise BadInput("there is no stack to lock: nothing is wished, or the wish cannot be met")
    exact = wish.overlaid(Wish.from_wants(as_wants(_exactly(answer["stack"], machine, rules)), rules))
    exact = replace(exact, projects=wish.projects)
    answer = resolver.resolve(machine, exact, rules)
    if not answer["ok"]:
        reasons = "; ".join(entry["text"] for entry in answer["conflicts"])
        raise BadInput(
            f"the stack cannot be locked at the newest versions of the rules: {reasons}", ["name the versions: --want"]
        )
    return {
        "lock": SCHEMA,
        "gpuwright": version,
        "rules": {"generated": rules["generated"], "digest": rules["digest"]},
        "question": {**_machine(machine), "want": list(wants)},
        "stack": _hashed(_stack(answer["stack"]), hashes),
    }


def text(document: Lock) -> str:
    """Return the bytes of a lock file: the same for the same lock, an entry a line."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def left_open(document: Lock) -> list[str]:
    """Return the parts of a lock without an exact version, as --want calls them: the rules know none. An index decides there."""
    stack = document["stack"]
    there = [part for part in PARTS if part.key in stack]
    found = [part.want for part in there if not part.several and part.is_open(part.of(stack))]
    return found + [part.want for part in there if part.several for row in part.of(stack) if part.is_open(row)]


def _stack(stack: Stack) -> LockStack:
    """Return the part of an answer's stack that a lock holds a node to.

    Packages of the kernel (headers, prebuilt modules) follow each node's kernel and are left out, so is the container engine,
    which is the distribution's.
    """
    found: dict[str, object] = {part.key: _held(part, part.of(stack)) for part in PARTS if part.of(stack)}
    return cast("LockStack", {**found, "repositories": [_repository(row) for row in stack.get("repositories") or ()]})


def _held(part: Part, value: Any) -> Any:
    """Return of a part what a lock holds of it."""
    if part.several:
        return [_only(row, part.row) for row in value]
    found: Any = _only(part.as_locked(value), part.row)
    if part.of_kernel:
        found["packages"] = [name for name in value["packages"] if not name.startswith(part.of_kernel)]
    return found


def _only(row: Mapping[str, object], held: type) -> dict[str, object]:
    """Return of a row what a lock holds of it: what may be absent is, where it is empty."""
    known = definition.keys(held)
    there = {key: value for key, value in row.items() if key in known and (value or known[key].required)}
    return definition.shaped(held, there)


def _hashed(stack: LockStack, hashes: Sequence[tuple[str, str]]) -> LockStack:
    """Return the stack of a lock whose frameworks have the wheels that files name. Raises BadInput."""
    for name, content in hashes:
        found = _pins(name, content)
        versions = {wheel.name: wheel.version for wheel in found}
        unmet = {
            _directory(framework): shortfalls.in_environment(
                [*framework["requirements"], *framework.get("others", ())], versions, framework["constraints"]
            )
            for framework in stack.get("frameworks") or ()
        }
        # Several frameworks of one environment have its wheels together.
        same = [each for each in stack.get("frameworks") or () if not unmet[_directory(each)]]
        if not same:
            nearest = min(unmet.values(), key=len, default=["a framework"])
            raise BadInput(
                f"{name} has the wheels of no environment of this stack: it lacks {', '.join(nearest)}",
                [
                    f"give it the {wheels.RECORD} of an environment with these versions, from a node that was brought up with them"
                ],
            )
        for framework in same:
            if _directory(framework) == _directory(same[0]):
                framework["wheels"] = [
                    {"name": wheel.name, "version": wheel.version, "sha256": sorted(wheel.sha256)} for wheel in found
                ]
    return stack


def _directory(framework: LockFramework | FrameworkEnvironment) -> str:
    """Return the name of an environment."""
    return framework.get("environment") or framework["name"]


def _pins(name: str, content: str) -> list[wheels.Wheel]:
    """Return the wheels that a file names. Raises BadInput for one that does not say exactly which they are."""
    again = [f"give it the {wheels.RECORD} of an environment, or what `uv pip compile --generate-hashes` writes"]
    try:
        found = wheels.pins(content)
    except ValueError as error:
        raise BadInput(f"{name}: expected NAME==VERSION --hash=sha256:…, found {str(error)[:80]!r}", again) from error
    unknown = [f"{wheel.name}=={wheel.version}" for wheel in found if not wheel.sha256]
    if unknown:
        text = (
            f"{name} has no hash of {', '.join(unknown)}, which was in the environment before its wheels were recorded"
        )
        raise BadInput(text, ["remove that environment on its node, run `gpuwright up` there and take the file anew"])
    return found


def with_wheels(document: Lock | None, stack: Stack) -> Stack:
    """Return a node's stack with the wheels that the lock it is held to names, where it names any."""
    frameworks: Sequence[LockFramework] = (document["stack"].get("frameworks") if document else None) or ()
    named = {_directory(each): each["wheels"] for each in frameworks if "wheels" in each}
    held: list[FrameworkEnvironment] = [
        {**each, "wheels": named[_directory(each)]} if _directory(each) in named else each
        for each in stack.get("frameworks", ())
    ]
    return {**stack, "frameworks": held} if held else stack.copy()


def _repository(row: Repository) -> dict[str, object]:
    kept = _only(row, LockRepository)
    key = row.get("key")
    return {**kept, "fingerprint": key["fingerprint"] if key else None}


def _machine(machine: Machine) -> LockMachine:
    """Return what decided of a machine, as a lock remembers it."""
    return {
        "gpus": [card.name for card in machine.cards],
        "os": machine.os,
        "arch": machine.arch,
        "environment": machine.environment,
        "secure_boot": machine.secure_boot,
        "desktop": machine.screen,
        "nvswitch": machine.nvswitch,
        "kernel": machine.kernel,
        "python": list(machine.pythons or ()),
    }


# exact versions ----------------------------------------------------------------------------------------


def _exactly(stack: Stack, machine: Machine, rules: Rules) -> LockStack:
    """Return a stack in which every version that was left open is the newest that the rules know."""
    found = {part.key: part.exactly(part.of(stack), stack, machine, rules) for part in PARTS if part.of(stack)}
    return cast("LockStack", found)


# reading one -------------------------------------------------------------------------------------------


def load(name: str) -> Lock:
    """Return the lock in a file. Raises BadInput where it is not there, broken, or not a lock that this version reads."""
    what = f"the lock file {name}"
    written = given_file.text(name, "the lock file", instead=["gpuwright resolve --lock FILE writes one"])
    document = given_file.from_json(written, what)
    return check(document, what)


def check(document: Any, what: str = "gpuwright_lock") -> Lock:
    """Return a lock that this version can hold a node to. Raises BadInput for anything else, with the place of the mistake."""
    again = ["gpuwright resolve --lock FILE writes one"]
    if not isinstance(document, Mapping) or "lock" not in document:
        raise BadInput(f"{what} is not a lock of gpuwright", again)
    schema = document["lock"]
    if isinstance(schema, int) and schema > SCHEMA:
        writer = document.get("gpuwright") or "a newer version"
        raise BadInput(
            f"{what} was written by gpuwright {writer} in format {schema}, this version reads up to {SCHEMA}",
            ["update gpuwright here", "write the lock with this version"],
        )
    if schema is True or schema != SCHEMA:
        raise BadInput(f"{what} has the format {schema!r}, expected {SCHEMA}", again)
    mistake = next(definition.mistakes(Lock, document), None) or next(_rendered(document), None)
    if mistake:
        raise BadInput(f"{what}: {mistake}", again)
    Wish.from_wants(as_wants(document["stack"]))
    for project in _projects(document["stack"]):
        projects.check(project, what)
    return cast("Lock", dict(document))


def _rendered(document: object) -> Iterator[str]:
    """Yield each text that Ansible would make another one of."""
    for place, found in plain.templates(document):
        yield f"{place} has to be plain text, found the template {found!r}"


# asking for what one names -----------------------------------------------------------------------------


def as_wish(document: Lock, variables: Mapping[str, object]) -> Wish:
    """Return the wish that asks for what a lock names, on a host with these variables.

    A lock speaks of versions: of the inventory's variables only those of the host itself are read. What is wished by name or in a wish
    file is what a lock does not speak of, or what it says too. Raises BadInput for what says otherwise.
    """
    given = variables.get("gpuwright_wish") or {}
    asked = given if isinstance(given, Mapping) else {}
    every = {**variables, **asked}
    host = {name: every[name] for name in HOST_VARIABLES if name in every}
    spoken = Wish.from_wants(as_wants(document["stack"]))
    locked = replace(Wish.from_variables(host).overlaid(spoken), projects=_projects(document["stack"]))
    wants = [
        str(want) for want in as_list(variables.get("gpuwright_want") or every.get("gpuwright_want"), "gpuwright_want")
    ]
    for want in wants:
        _refuse_other_version(spoken, Wish.from_wants([want]), want)
    for name in asked.keys() - {"gpuwright_want", *HOST_VARIABLES}:
        _refuse_other_version(spoken, Wish.from_variables({name: asked[name]}), f"{name}: {asked[name]}")
    beside = locked.overlaid(Wish.from_wants(wants).as_exact_as(locked))
    return replace(beside, **{name: getattr(locked, name) for name in _spoken_of(spoken)}, projects=locked.projects)


def _spoken_of(spoken: Wish) -> set[str]:
    """Return the fields of a wish that a lock speaks of: what it asks for, and each of its parts, also one that it has not."""
    blank = Wish()
    return {f.name for f in fields(spoken) if getattr(spoken, f.name) != getattr(blank, f.name)} | {
        part.key for part in PARTS
    }


def _refuse_other_version(spoken: Wish, said: Wish, text: str) -> None:
    """Raise BadInput for what the lock says otherwise, or does not have; text: as it was written."""
    asked = spoken.overlaid(said.as_exact_as(spoken))
    if any(getattr(asked, name) != getattr(spoken, name) for name in _spoken_of(spoken)):
        raise BadInput(
            f"the lock and {text!r} say different things of the same: leave one of them out",
            ["gpuwright resolve --want … --lock FILE makes a lock of a wish"],
        )


def _projects(stack: LockStack) -> tuple[Project, ...]:
    """Return what the environments of a lock have besides their frameworks, as it was required of them."""
    others = {_directory(each): each["others"] for each in stack.get("frameworks") or () if each.get("others")}
    return tuple(
        Project(name, tuple(Requirement(text, "the lock") for text in texts)) for name, texts in others.items()
    )


def as_wants(stack: LockStack) -> list[str]:
    """Return the stack of a lock as --want takes it."""
    return [want for part in PARTS if part.of(stack) for want in part.wants(part.of(stack))]


# holding a node to one ---------------------------------------------------------------------------------


def unresolved(held: Lock, machine: Machine, conflicts: Sequence[Conflict], rules: Rules) -> list[Conflict]:
    """Return why a node cannot be held to a lock whose versions do not resolve on it."""
    if _without_its_cards(held, machine):
        return [_refused(held, machine, rules)]
    rows: list[Conflict] = [{**entry, "remedy": f"in a lock of its own: {entry['remedy']}"} for entry in conflicts]
    return [_refused(held, machine, rules), *rows]


def differences(held: Lock, machine: Machine, stack: Stack, rules: Rules) -> list[Conflict]:
    """Return why a node cannot be held to a lock, and a conflict for everything of its stack that is not the lock's; empty
    where it can.
    """
    theirs, ours, driver = held["stack"], _stack(stack), stack.get("driver")
    adopted = driver is not None and driver["adopted"]
    found = []
    for part in PARTS:
        for what, wanted, got in _unlike(part, part.of(theirs), part.of(ours), adopted=adopted):
            text = f"{part.title}{what}: the lock has {wanted}, this node resolves to {got}"
            found.append(conflict(f"lock.{part.want}", text, "the lock", "hold this node to a lock of its own"))
    if found and _without_its_cards(held, machine):
        return [_refused(held, machine, rules)]
    first = [_refused(held, machine, rules)] if found else []
    return [*first, *_foreign_driver(theirs.get("driver"), driver, machine), *found]


def _without_its_cards(document: Lock, machine: Machine) -> bool:
    """Say whether a lock for cards meets a node that has none: that is the whole reason, whatever else it brings about."""
    return bool(document["question"]["gpus"]) and not machine.cards


def _refused(document: Lock, machine: Machine, rules: Rules) -> Conflict:
    """Return the conflict that says why and what to do; those behind it say what differs."""
    text = f"the lock cannot be held on this node{_because(document, machine, rules)}"
    return conflict("lock.node", text, "the lock", _remedy(document, machine, rules))


def _foreign_driver(theirs: LockDriver | None, ours: DriverStack | None, machine: Machine) -> list[Conflict]:
    """Return the conflict where a driver would be installed over one that no package manager brought. A lock that was made
    elsewhere does not know of it, so it is not taken for somebody asking for that.
    """
    stranger = machine.driver_owner not in (None, "none", "packages")
    if not theirs or not ours or ours["adopted"] or not stranger or machine.kept:
        return []
    who = f"the lock has packages from {theirs['source']}"
    text = f"driver: {who}, on this node a driver of another origin ({machine.driver_owner}) is installed"
    remedy = "remove it first (a .run file's: nvidia-uninstall), or give this node a wish of its own"
    return [conflict("lock.driver-owner", text, "the machine's facts", remedy)]


def _unlike(part: Part, theirs: Any, ours: Any, *, adopted: bool) -> Iterator[tuple[str, str, str]]:
    """Yield what differs in a part: its name (" modules"), the lock's value and the node's."""
    if not theirs or not ours:
        if theirs or ours:
            yield "", _told(part, theirs), _told(part, ours)
        return
    if isinstance(theirs, list):
        named, found = _by_name(theirs), _by_name(ours)
        for name in [*named, *(name for name in found if name not in named)]:
            for what, wanted, got in _unlike(part, named.get(name), found.get(name), adopted=adopted):
                yield f" {name}{what}", wanted, got
        return
    for key in theirs:
        if key in part.uncompared(theirs, adopted=adopted) or theirs[key] == ours.get(key):
            continue
        if isinstance(theirs[key], list) and sorted(theirs[key]) == sorted(ours.get(key) or ()):
            continue
        yield f" {key.replace('_', ' ')}", _shown(theirs[key]), _shown(ours.get(key))


def _by_name(rows: Sequence[Mapping[str, object]]) -> dict[str, Mapping[str, object]]:
    return {_named(row): row for row in rows}


def _named(row: Mapping[str, object]) -> str:
    named = row.get("environment")
    return f"{row.get('name') or row['version']}" + (f"@{named}" if named else "")


def _told(part: Part, value: Any) -> str:
    """Return a whole part in a few words."""
    if not value:
        return "none"
    rows = value if isinstance(value, list) else [value]
    return ", ".join(
        f"{row.get('name', '')} {row.get(part.version_key) or row.get('branch') or ''}".strip() for row in rows
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or "none"
    return "none" if value is None else str(value)


def _because(document: Lock, machine: Machine, rules: Rules) -> str:
    """Return why a node may come out otherwise than the lock, as the end of a sentence: another machine, other rules."""
    theirs: Mapping[str, object] = document["question"]
    ours: Mapping[str, object] = _machine(machine)
    unlike = [key for key in _MACHINE if _differ(key, theirs[key], ours[key])]
    other_rules = document["rules"]["digest"] != rules["digest"]
    # Kernels differ everywhere and decide seldom: named only where nothing else is left.
    told = [key for key in unlike if key != "kernel"] or ([] if other_rules else unlike)
    reasons = []
    if told:
        rows = (f"{_MACHINE[key]} {_words(theirs[key])}, here {_words(ours[key])}" for key in told)
        reasons.append(f"another machine ({'; '.join(rows)})")
    if other_rules:
        made, here = (f"of {each['generated']}, {each['digest'][:8]}" for each in (document["rules"], rules))
        reasons.append(f"other rules ({made}, gpuwright {document['gpuwright']}; here {here})")
    if not reasons:
        return ""
    return f": it was made {'for' if told else 'by'} {' and by '.join(reasons)}"


def _differ(key: str, theirs: Any, ours: Any) -> bool:
    """Say whether two values differ in what counts. What one side does not know is no difference."""
    if theirs is None or ours is None:
        return False
    if key == "environment":
        return {theirs, ours} & {"container", "wsl", "jetson"} != set() and bool(theirs != ours)
    if key == "kernel" and "-" not in theirs:
        # A series alone (6.12), as it is where nobody looked.
        return not numeric_version.belongs(ours, theirs)
    if key == "python":
        return not set(theirs) <= set(ours)
    return set(theirs) != set(ours) if isinstance(theirs, list) else bool(theirs != ours)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " and ".join(dict.fromkeys(value)) or "none"
    return "unknown" if value is None else str(value)


def _remedy(document: Lock, machine: Machine, rules: Rules) -> str:
    """Return the command that makes a lock for this node: by what can be said of a machine, so that it can be run anywhere; where nothing
    of that tells this node from the lock's, by what was observed of it.
    """
    theirs: Mapping[str, object] = document["question"]
    ours: Mapping[str, object] = _machine(machine)
    wants = [f"--want '{want}'" for want in document["question"]["want"]]
    is_told = all(card.known for card in machine.cards) and machine.environment == document["question"]["environment"]
    if is_told and any(_differ(key, theirs[key], ours[key]) for key in _MACHINE):
        cards = [f"--gpu '{name}'" for name in dict.fromkeys(card.name for card in machine.cards)]
        described = [*cards, f"--os {machine.os}", f"--arch {machine.arch}", *_assumed(machine, rules)]
    else:
        described = ["--facts facts/HOST.json, of this run's directory,"]
    command = " ".join(["gpuwright resolve", *described, *wants, "--lock FILE"])
    return f"make a lock for this kind of node ({command}) and give it to these hosts alone"


def _assumed(machine: Machine, rules: Rules) -> list[str]:
    """Return what has to be said of a machine, beside its cards and its system, so that another one is not assumed."""
    names = [card.name for card in machine.cards]
    described: Mapping[str, object] = _machine(machine_from_options(names, machine.os, machine.arch, None, rules))
    ours: Mapping[str, object] = _machine(machine)
    said = {key: ours[key] for key in _ASSUMED if ours[key] is not None and ours[key] != described[key]}
    return [f"--assume {key}={_value(value)}" for key, value in said.items()]


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
