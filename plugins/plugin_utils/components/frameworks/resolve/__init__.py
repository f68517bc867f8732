# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Framework wheels: release, variant, Python, and everything pinned that pip would let float.

Each framework reads its tables into offers, the newest release first; here the first one is taken that cards, architecture,
driver, Python and wish allow. Support is not monotone: no release is judged by its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU, DEFAULT
from ansible_collections.gpuwright.node.plugins.module_utils.observe import jupyter_kernels

from ....model.stack import Stack
from ....model.wish import Project, Requirement
from ....resolver import unknown, upstreams
from ....resolver.log import DESIGN, Entry, Log, Unresolved, conflict, of_all
from ....resolver.machine import Card, Machine
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.reading import is_outside
from ....wish.wish import FrameworkWish, Wish
from ...cuda.resolve.support import CudaSupport
from ..model import Contents, FrameworkEnvironment, Named, Origin
from . import (
    by_hand,
    companions,
    cupy,
    dali,
    jax,
    lmdb,
    onnxruntime,
    pins,
    pytorch,
    required,
    tensorflow,
    together,
    vllm,
)
from .offer import Framework, Offer, Platform
from .required import Limits

__all__ = ["FRAMEWORKS", "asked_beyond", "choose", "left_open", "newest_for", "newest_offer", "told_by_hand"]

_ROOMS: tuple[Framework, ...] = (pytorch, tensorflow, jax, dali, onnxruntime, cupy, vllm, lmdb)
FRAMEWORKS = {each.ABOUT.name: each for each in _ROOMS}

_JETPACK = "use NVIDIA's own wheels or containers for the JetPack on it"


@dataclass(frozen=True)
class Choice:
    """An offer and the Python to run it with."""

    offer: Offer
    python: str


def choose(
    machine: Machine, wish: Wish, support: CudaSupport | None, log: Log, toolkits: Sequence[str] = ()
) -> list[FrameworkEnvironment]:
    """Return one environment for each framework that was asked for, or for several. support None means: for the CPU.

    toolkits (12.8) are beside it: where extensions are compiled with one, wheels of the same CUDA major version come first.
    Raises Unresolved with the reasons of every framework that cannot be had.
    """
    # A trial may leave a framework out, and what a project asks beside it then asks for nothing.
    reasons = [] if log.trial else [*_without_framework(machine, wish, support, log), *_without_environment(wish)]
    served = []
    for framework in wish.frameworks:
        about = FRAMEWORKS[framework.name].ABOUT
        if support is None and not about.cpu_only and machine.environment == "jetson" and framework.variant != CPU:
            reasons.append(_unseen_board(framework))
            continue
        if support is None and not about.cpu:
            log.warn("gpu.none", f"no NVIDIA GPU: {framework.name} left out, it has no wheels without CUDA", DESIGN)
            continue
        if support is None and framework.variant not in (None, CPU):
            reasons.append(_no_card(framework))
            continue
        served.append(framework)
    environments: list[FrameworkEnvironment] = []
    for directory in dict.fromkeys(each.directory for each in served):
        members = [each for each in served if each.directory == directory]
        try:
            environments += _of_directory(directory, members, machine, wish, support, log, toolkits)
        except Unresolved as error:
            if log.trial:
                raise
            reasons += error.conflicts
    if reasons:
        raise Unresolved(*reasons)
    return environments


def told_by_hand(machine: Machine, wish: Wish, support: CudaSupport, stack: Stack, log: Log) -> list[Entry]:
    """Return how what is installed by hand is: beside PyTorch as it is wished, or as it would be chosen."""
    there = [each for each in stack.get("frameworks", ()) if each["name"] == DEFAULT]
    if not there:
        alone = replace(wish, frameworks=(FrameworkWish(DEFAULT),), projects=(), pythons={})
        try:
            there = choose(machine, alone, support, Log(log.rules, trial=True))
        except Unresolved:
            there = []
    python = wish.python or next(iter(_interpreters(machine, log.rules)), None)
    place = _place(machine, wish, support, python)
    pinned = any(each.name == DEFAULT and (each.specifier or each.variant) for each in wish.frameworks)
    return list(by_hand.reasons(wish.by_hand, next(iter(there), None), machine, place, log, pinned=pinned))


def _place(
    machine: Machine, wish: Wish, support: CudaSupport | None, python: str | None, cuda: str | None = None
) -> companions.Place:
    """Return where something beside a framework is to run. A mirror may have wheels of its own."""
    cards, wheels = tuple(machine.cards) if support else (), upstreams.PYTHON_INDEX not in wish.mirrors
    return companions.Place(cards, machine.arch, machine.os, machine.glibc, python, cuda, support, wheels)


def _of_directory(
    directory: str,
    members: Sequence[FrameworkWish],
    machine: Machine,
    wish: Wish,
    support: CudaSupport | None,
    log: Log,
    toolkits: Sequence[str],
) -> list[FrameworkEnvironment]:
    """Return the rows of one environment. Raises Unresolved."""
    wish = replace(wish, python=wish.pythons.get(directory, wish.python))
    project = _project(directory, wish)
    if len(members) == 1 and project is None:
        return [_environment(members[0], machine, wish, support, log, toolkits)[0]]

    told = Log(log.rules, trial=log.trial)
    for note in project.notes if project else ():
        told.warn("frameworks.project-source", note.text, note.origin)

    def one(
        framework: FrameworkWish, python: str, limits: Limits, *, trial: bool
    ) -> tuple[FrameworkEnvironment, Offer]:
        asked, where = replace(wish, python=python), Log(log.rules, trial=True) if trial else told
        wished = [_requirement(each) for each in members if each is not framework]
        return _environment(framework, machine, asked, support, where, toolkits, replace(limits, wished=wished))

    pythons = [wish.python] if wish.python else _interpreters(machine, log.rules)
    rows = together.choose(members, project, pythons, machine.arch, one)
    _told(rows, told, log)
    if project:
        cuda = next((row["cuda"] for row in rows if row["cuda"]), None)
        place = _place(machine, wish, support, rows[0]["interpreter"], cuda)
        rows = _with_companions(project, rows, place, log)
    return [{**row, "kernel": jupyter_kernels.directory(row["path"])} for row in rows] if wish.jupyter else rows


def _processor_alone(offer: Offer, framework: FrameworkWish, machine: Machine, log: Log) -> str:
    """Return that a file takes the build for the processor on a machine with cards, and which builds of that release are for these."""
    asked = replace(framework, specifier=f"=={offer.version}", variant=None)
    offers = [each for some in FRAMEWORKS[framework.name].offers(asked, log.rules, cpu=False) for each in some]
    fitting = [
        each.variant
        for each in offers
        if not _card_reasons(framework.name, each, machine.cards, machine.arch, Log(log.rules, trial=True))
    ]
    known = f" ({', '.join(fitting)})" if fitting else ""
    return (
        f"{framework.origin} takes {offer.title} in its build for the processor alone (cpu), with which no card computes. What to do: "
        f"take +cpu, and the index for processors (whl/cpu), out of {str(framework.origin).partition(':')[0]}: then a build for the card "
        f"is chosen{known}"
    )


def _requirement(framework: FrameworkWish) -> Requirement:
    """Return a framework that is wished as what asks for its package."""
    package = FRAMEWORKS[framework.name].ABOUT.package
    return Requirement(f"{package}{framework.specifier}", framework.origin or "the wish")


def _with_companions(
    project: Project, rows: list[FrameworkEnvironment], place: companions.Place, log: Log
) -> list[FrameworkEnvironment]:
    """Return the rows of an environment held to what its project's lines go with. Says what the Python index has of these lines."""
    lines = companions.known(required.applying(project.requirements, rows[0]["interpreter"], place.arch), log.rules)
    beside = [
        Requirement(each, f"{row['name']} {row['version']}")
        for row in rows
        for each in (*row["requirements"], *row["constraints"])
    ]
    for line in lines:
        for text, row in companions.notices(line, rows[0]["path"], place, beside, log.rules):
            log.warn("frameworks.without-wheels", text, log.cite("companions", row))
    held = companions.constraints(lines, place, [*beside, *lines], log.rules)
    return [{**row, "constraints": [*row["constraints"], *held]} for row in rows] if held else rows


def _told(rows: Sequence[FrameworkEnvironment], told: Log, log: Log) -> None:
    """Remember what was decided for one environment; of several frameworks it is the cuDNN of all that counts, not that of each alone."""
    several = len(rows) > 1
    log.why += [each for each in told.why if not (several and each["rule"] == "frameworks.cudnn")]
    for each in told.warnings:
        log.warn(each["rule"], each["text"], each["source"])
    if several:
        names = " and ".join(f"{row['name']} {row['version']}" for row in rows)
        cudnn = next((f", cuDNN {row['cudnn']}" for row in rows if row["cudnn"]), "")
        cuda = next((f": CUDA {numeric_version.major(row['cuda'])}{cudnn}" for row in rows if row["cuda"]), "")
        log.decided(required.RULE, f"{names} agree in one environment{cuda}", DESIGN)


def _project(directory: str, wish: Wish) -> Project | None:
    """Return what is asked of an environment beside its frameworks; None where nothing is."""
    found = next((each for each in wish.projects if each.environment == directory), None)
    if not wish.jupyter:
        return found
    project = found or Project(directory)
    return replace(project, requirements=(*project.requirements, together.JUPYTER))


def _without_framework(machine: Machine, wish: Wish, support: CudaSupport | None, log: Log) -> list[Entry]:
    """Return why a project has no environment: neither its file nor the wish names a framework for it; before that why what it names
    does not run here.
    """
    there = {each.directory for each in wish.frameworks}
    found: list[Entry] = []
    for project in wish.projects:
        if project.environment in there:
            continue
        python = wish.pythons.get(project.environment, wish.python) or next(iter(_interpreters(machine, log.rules)), "")
        named = required.applying(project.requirements, python, machine.arch) if python else []
        lines = companions.known(named, log.rules)
        place = _place(machine, wish, support, python or None)
        found += [*companions.clashes(lines, place, (), lines, log), _no_framework(project, lines, log)]
    return found


def _without_environment(wish: Wish) -> list[Entry]:
    """Return why a Python is nobody's: no environment of its name is wished."""
    there = list(dict.fromkeys(each.directory for each in wish.frameworks))
    return [
        conflict(
            "frameworks.python-environment",
            f"python={python}@{name} is asked for, and there is no environment {name} in the wish, only {', '.join(there) or 'none'}",
            "the wish",
            f"leave python@{name} out, or name a framework for it: --want {DEFAULT}@{name}",
        )
        for name, python in wish.pythons.items()
        if name not in (*there, *(each.environment for each in wish.projects))
    ]


def _no_framework(project: Project, lines: Sequence[Requirement], log: Log) -> Entry:
    """``lines``: what it names of which is known beside which framework it goes, or that it goes beside none."""
    origin = next((row.origin for row in project.requirements), project.environment)
    file, known = origin.partition(":")[0], ", ".join(FRAMEWORKS)
    text = f"{file} names no framework that is served ({known}), and none is wished for the environment {project.environment}"
    rows = [(line, row) for line in lines if (row := companions.of(line, log.rules))]
    alone = [companions.elsewhere(line, row) for line, row in rows if row["beside"] is None and row.get("instead")]
    if alone:
        text += "".join(f"; {said}" for said, _remedy in alone)
        return conflict("frameworks.project", text, file, "; ".join(remedy for _said, remedy in alone))
    framework = next((row["beside"] for _line, row in rows if row["beside"]), DEFAULT)
    remedy = f"name the framework that goes with it: --want {framework}@{project.environment}"
    return conflict("frameworks.project", text, file, remedy)


def newest_for(cards: Sequence[Card], arch: str, rules: Rules, framework: str = DEFAULT) -> str | None:
    """Return the newest confirmed release with code for every card, as 2.14.1+cu130 (torch), 2.21.0, 0.12.0[cuda13]."""
    offer = newest_offer(cards, arch, rules, framework)
    if offer is None:
        return None
    about = FRAMEWORKS[framework].ABOUT
    if about.one_build:
        return offer.version
    return f"{offer.version}+{offer.variant}" if about.local else f"{offer.version}[{offer.variant}]"


def newest_offer(cards: Sequence[Card], arch: str, rules: Rules, framework: str = DEFAULT) -> Offer | None:
    """Return the newest confirmed offer with code for every card, whatever the driver; None where there is none."""
    log = Log(rules)
    maker = FRAMEWORKS[framework]
    for offers in maker.offers(FrameworkWish(framework), rules, cpu=False):
        fitting = [
            offer for offer in offers if offer.confirmed and not _card_reasons(framework, offer, cards, arch, log)
        ]
        if fitting:
            return min(fitting, key=lambda offer: (offer.rank, _newest_first(offer.cuda)))
    return None


# which release, which variant --------------------------------------------------------------------------


def _environment(
    framework: FrameworkWish,
    machine: Machine,
    wish: Wish,
    support: CudaSupport | None,
    log: Log,
    toolkits: Sequence[str],
    limits: Limits = required.NONE,
) -> tuple[FrameworkEnvironment, Offer]:
    """Return the row of a framework, and the offer that was chosen."""
    for_cards, support = support, None if framework.variant == CPU else support
    extended = _extended(framework, log.rules)
    beside = toolkits if extended and support else ()
    choice = _confirmed_or_not(framework, machine, wish, support, log, beside, limits)
    offer = choice.offer
    if beside and extended and not _compiled_by(offer, beside):
        text = f"{offer.title} is built with CUDA {offer.cuda}, the toolkit beside it is CUDA {', '.join(beside)}: {extended['text']}"
        compiled = _compiled(framework, wish, log.rules)
        if compiled:
            text += (
                f". {' and '.join(compiled)} would have to be compiled with it: wish cuda={offer.cuda} beside it, or "
            )
            text += f"{framework.name} for CUDA {numeric_version.major(beside[0])}"
        log.warn("frameworks.toolkit", text, log.cite("frameworks", extended))
    if for_cards and machine.cards and support is None and framework.origin:
        log.warn("frameworks.processor", _processor_alone(offer, framework, machine, log), framework.origin)
    if not offer.confirmed:
        text = f"what is known of {offer.title} is not confirmed"
        log.warn("frameworks.unconfirmed", text, log.cite(offer.table, offer.row))
    _explain(choice, framework, support, beside, log)
    if choice.python not in (machine.pythons or ()) and choice.python in _beside(machine, log.rules):
        text = (
            f"Python {choice.python} is installed beside the system's own, which is too old for what is released today"
        )
        log.decided("frameworks.python-beside", text, "compat/systems.yaml (pythons_beside)")
    lacking = [each for each in _preferred(machine, log.rules) if _is_absent(each, machine)]
    if lacking:
        text = f"the machine's package index has no Python {', '.join(lacking)}"
        log.decided("frameworks.python-absent", text, "the machine's package index")
    platform = _platform(machine, framework, wish, choice.python)
    contents: Contents = {
        **_public(offer, framework, wish, log),
        **FRAMEWORKS[framework.name].contents(offer, platform, wish, log),
    }
    named: Named = {"environment": framework.environment} if framework.environment else {}
    row: FrameworkEnvironment = {
        "name": framework.name,
        "version": offer.version,
        "variant": offer.variant,
        **contents,
        "cuda": offer.cuda,
        "python": list(offer.pythons),
        "interpreter": choice.python,
        "path": _path(framework, wish),
        **named,
    }
    return row, offer


def left_open(rows: Sequence[FrameworkEnvironment], rules: Rules) -> list[str]:
    """Return the constraints of an environment's rows that pin a library of which a release itself says a range."""
    found: list[str] = []
    for row in rows:
        wished = FrameworkWish(row["name"], specifier=f"=={row['version']}")
        offers = [
            offer
            for several in FRAMEWORKS[row["name"]].offers(wished, rules, cpu=False)
            for offer in several
            if (offer.version, offer.variant) == (row["version"], row["variant"])
        ]
        pinned = [each for each in row["constraints"] if required.exact(each)]
        found += [each for each in pinned if any(pins.open_range(offer, required.name(each)) for offer in offers)]
    return list(dict.fromkeys(found))


def _path(framework: FrameworkWish, wish: Wish) -> str:
    return f"{wish.frameworks_path}/{framework.directory}"


def _platform(machine: Machine, framework: FrameworkWish, wish: Wish, python: str) -> Platform:
    return Platform(machine.cards, machine.arch, python, _there(machine, _path(framework, wish)))


def _there(machine: Machine, path: str) -> dict[str, Sequence[str]]:
    """Return the versions that a library may have, as far as that is known: the one that was sealed, before that what the index has."""
    begin = pins.sealed_of(path, "")
    sealed = {key.removeprefix(begin): there for key, there in machine.absent.items() if key.startswith(begin)}
    return {**sealed, **machine.absent}


def _public(offer: Offer, framework: FrameworkWish, wish: Wish, log: Log) -> Origin:
    """Return where what has no index of its own comes from, where that is not the host's own index: the mirror of the public one.

    There everything has wheels; without it, what a framework's own index has not as a wheel is named.
    """
    mirror = wish.mirrors.get("pypi")
    if mirror:
        return {"index_url": mirror, "dependencies_url": mirror}
    built = []
    for row in log.rules["frameworks"]["from_source"]:
        newer = numeric_version.at_least(offer.version, row["from_version"])
        if row["framework"] == framework.name and newer and numeric_version.at_least(row["to_version"], offer.version):
            text = f"{row['package']}, which {offer.title} needs, is built from its source: code of it runs as root"
            log.warn("frameworks.from-source", text, log.cite("frameworks", row))
            built.append(row["package"])
    return {"from_source": built} if built else {}


def _extended(framework: FrameworkWish, rules: Rules) -> Row | None:
    """Return the row of a framework whose extensions a toolkit compiles."""
    rows: list[Row] = rules["frameworks"]["extensions"]
    return next((row for row in rows if row["framework"] == framework.name), None)


def _compiled(framework: FrameworkWish, wish: Wish, rules: Rules) -> list[str]:
    """Return what a project names beside a framework that is compiled with a toolkit when it is installed or first used."""
    projects = [each for each in wish.projects if each.environment == framework.directory]
    rows = [(line, companions.of(line, rules)) for project in projects for line in project.requirements]
    return list(
        dict.fromkeys(
            required.name(line.text)
            for line, row in rows
            if row and row["there"] == "source" and row["beside"] == framework.name
        )
    )


def _compiled_by(offer: Offer, toolkits: Sequence[str]) -> bool:
    """Say whether one of the toolkits compiles extensions for an offer: one of the same CUDA major version."""
    return offer.cuda is not None and numeric_version.major(offer.cuda) in {
        numeric_version.major(each) for each in toolkits
    }


def _confirmed_or_not(
    framework: FrameworkWish,
    machine: Machine,
    wish: Wish,
    support: CudaSupport | None,
    log: Log,
    beside: Sequence[str],
    limits: Limits = required.NONE,
) -> Choice:
    """Return the newest confirmed choice that a toolkit beside it compiles for, else the newest confirmed one; where none fits, the
    newest at all. Raises Unresolved with the reasons.
    """
    if beside:
        compiled_by = replace(limits, toolkits=beside)
        compiled = _search(framework, machine, wish, support, log, guesses=False, limits=compiled_by)
        if isinstance(compiled, Choice):
            return compiled
    if companions.known(limits.required, log.rules):
        # Of what goes beside it an old release goes with each: pip would take that one, and it is not what anybody means.
        with_newest = replace(limits, newest=True)
        together_with = _search(framework, machine, wish, support, log, guesses=False, limits=with_newest)
        if isinstance(together_with, Choice):
            return together_with
    choice = _search(framework, machine, wish, support, log, guesses=False, limits=limits)
    if isinstance(choice, Choice):
        return choice
    again = _search(framework, machine, wish, support, log, guesses=True, limits=limits)
    if isinstance(again, Choice):
        return again
    # That what is known of a release is not confirmed is no reason against it: it would be taken where nothing else is.
    raise Unresolved(*([] if log.trial else _pair(framework, machine, wish, support, log)), *again)


def _search(
    framework: FrameworkWish,
    machine: Machine,
    wish: Wish,
    support: CudaSupport | None,
    log: Log,
    *,
    guesses: bool,
    limits: Limits = required.NONE,
) -> Choice | list[Entry]:
    """Return the newest release that fits in its best variant, or why none does.

    limits: what it has to fit.
    """
    beside = limits.toolkits
    # What has no wheels for the Python says little where something else has.
    failed: dict[bool, list[list[Entry]]] = {True: [], False: []}
    there = _interpreters(machine, log.rules, wish.python)
    lines = companions.known(limits.required, log.rules)
    for offers in FRAMEWORKS[framework.name].offers(framework, log.rules, cpu=support is None):
        fitting = []
        # First what is of the same CUDA as what is beside it: what is said of it, where none fits, is the reason.
        of_cuda = sorted(
            required.of_cuda(offers, limits),
            key=lambda offer: any(required.other_cuda(each.text, offer) for each in limits.required),
        )
        for offer in [each for each in of_cuda if not beside or _compiled_by(each, beside)]:
            python, reasons = _python(offer, there, machine, wish, log)
            if reasons and log.trial:
                continue
            reasons += _index_reasons(offer, framework.name, machine, wish)
            reasons += _glibc_reasons(offer, machine, log)
            reasons += _reasons(offer, framework, machine, support, log, guesses=guesses)
            if python and limits.in_environment:
                platform = _platform(machine, framework, wish, python)
                place = _place(machine, wish, support, python, offer.cuda)
                contents = FRAMEWORKS[framework.name].contents(offer, platform, wish, Log(log.rules, trial=True))
                reasons += required.clashes(offer, contents, limits)
                package = FRAMEWORKS[framework.name].ABOUT.package
                reasons += companions.of_framework(package, offer, limits.required, log)
                held = [Requirement(each, offer.title) for each in required.held(offer, contents)] if lines else []
                reasons += companions.clashes(lines, place, held, limits.required, log, newest=limits.newest)
            if python and not reasons:
                fitting.append(Choice(offer, python))
            else:
                failed[python is not None].append(reasons)
        if fitting:
            return min(fitting, key=lambda choice: _rank(choice.offer, support, beside, log.rules))
    place = _place(machine, wish, support, wish.python)
    return of_all(failed[True] or failed[False]) or [_no_release(framework, machine, place, limits, log)]


def _rank(
    offer: Offer, support: CudaSupport | None, beside: Sequence[str], rules: Rules
) -> tuple[bool, bool, int, tuple[int, ...]]:
    """Return where a variant stands among those of a release: what the driver runs natively, then what is built with exactly a toolkit
    that is beside it, then the table's order.
    """
    if offer.cuda is None or support is None:
        return False, False, 0, ()
    return (
        support.mode(offer.cuda, rules) != "native",
        offer.cuda not in beside,
        offer.rank,
        _newest_first(offer.cuda),
    )


def _newest_first(version: str | None) -> tuple[int, ...]:
    return tuple(-number for number in numeric_version.key(version or ""))


def _reasons(
    offer: Offer, framework: FrameworkWish, machine: Machine, support: CudaSupport | None, log: Log, *, guesses: bool
) -> list[Entry]:
    if offer.cuda is None or support is None:
        return []
    entries = _card_reasons(framework.name, offer, machine.cards, machine.arch, log)
    if support.mode(offer.cuda, log.rules) is None:
        text = f"{offer.title} needs a driver for CUDA {numeric_version.major(offer.cuda)}, the one chosen brings CUDA {support.cuda}"
        remedy = "use a newer driver, or an older variant"
        entries.append(conflict("frameworks.driver", text, "compat/cuda.yaml (families)", remedy))
    if not guesses and not offer.confirmed:
        text = f"what is known of {offer.title} is not confirmed"
        source = log.cite(offer.table, offer.row)
        entries.append(conflict("frameworks.unconfirmed", text, source, "ask for it by its version"))
    return entries


def _index_reasons(offer: Offer, name: str, machine: Machine, wish: Wish) -> list[Entry]:
    """Return why an offer is not in the Python index, where that is what the wish takes the framework from."""
    if offer.public is None or machine.arch in offer.public or not upstreams.in_python_index(name, wish):
        return []
    text = f"the Python index, which gpuwright_mirrors names for it, has no {offer.title} for {machine.arch}"
    remedy = "use the release's variant that is there, or name a mirror of the framework's own index"
    return [conflict("frameworks.index", text, f"compat/{offer.table}.yaml (python_index)", remedy)]


def _glibc_reasons(offer: Offer, machine: Machine, log: Log) -> list[Entry]:
    """Return why the wheels of a release do not run on the machine's C library: they are made for a newer one."""
    rows = [row for row in log.rules["frameworks"]["glibc"] if row["package"] == offer.title.split(" ", 1)[0]]
    row = next((each for each in rows if _is_between(offer.version, each)), None)
    needed = row["needs"].get(machine.arch) if row else None
    if row is None or not needed or not machine.glibc or numeric_version.at_least(machine.glibc, needed):
        return []
    older = [each for each in rows if numeric_version.at_least(machine.glibc, each["needs"].get(machine.arch, "99"))]
    spans = [" to ".join(dict.fromkeys((each["from_version"], each["to_version"]))) for each in older]
    instead = f"; those of {' and '.join(spans)} are made for it" if spans else ""
    text = f"the wheels of {offer.title} for {machine.arch} are made for glibc {needed} or newer, {machine.os} has {machine.glibc}{instead}"
    return [conflict("frameworks.glibc", text, log.cite("frameworks", row), "use another release, or a newer system")]


def _is_between(version: str, row: Row) -> bool:
    return numeric_version.at_least(version, row["from_version"]) and numeric_version.at_least(
        row["to_version"], version
    )


def _card_reasons(name: str, offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why the wheels do not run here. A board that they are not built for at all is the whole reason."""
    embedded = [row for row in log.rules["frameworks"]["embedded"] if row["framework"] == name]
    boards = [
        (card, row) for row in embedded for card in cards if card.compute_capability in row["compute_capabilities"]
    ]
    if boards:
        return [_embedded(offer, card, log.cite("frameworks", row)) for card, row in boards]
    return FRAMEWORKS[name].card_reasons(offer, cards, arch, log)


def _embedded(offer: Offer, card: Card, source: str) -> Entry:
    text = f"{offer.title} has no wheels for the {card.name}: those for aarch64 are for servers, a Jetson's come with JetPack"
    return conflict("frameworks.jetson", text, source, _JETPACK)


def _pair(framework: FrameworkWish, machine: Machine, wish: Wish, support: CudaSupport | None, log: Log) -> list[Entry]:
    """Return the two cards of one machine of which each has a release and no release serves both."""
    cards = list({card.name: card for card in machine.cards}.values())
    if support is None or len(cards) < 2:
        return []

    def fits(*some: Card) -> bool:
        alone = replace(machine, cards=some)
        return isinstance(_search(framework, alone, wish, support, log, guesses=True), Choice)

    good = [card for card in cards if fits(card)]
    clash = next(((one, other) for one, other in combinations(good, 2) if not fits(one, other)), None)
    if clash is None:
        return []
    one, other = clash
    text = f"no release for {framework.text or framework.name!r} serves both the {one.name} and the {other.name}"
    remedy = f"leave one card unmanaged: gpuwright_gpus_ignore: ['{other.name}'], or ['{one.name}']"
    return [conflict("frameworks.cards", text, f"compat/{FRAMEWORKS[framework.name].ABOUT.releases[0]}.yaml", remedy)]


def _no_card(framework: FrameworkWish) -> Entry:
    """Return the reason where a variant with CUDA was asked for by its name and there is no card to run it."""
    text = f"{framework.text!r} asks for the variant {framework.variant}, and this machine has no NVIDIA GPU"
    remedy = f"ask for {framework.name} without a variant, which is the one for the processor here"
    return conflict("frameworks.no-card", text, "the machine's facts", remedy)


def _unseen_board(framework: FrameworkWish) -> Entry:
    """Return the reason on a Jetson whose GPU is not on the PCI bus: it has one, so wheels for the processor are no answer."""
    text = f"{framework.text or framework.name!r} has no wheels for a Jetson, they come with JetPack"
    return conflict("frameworks.jetson", text, "the machine's facts", _JETPACK)


def _no_release(framework: FrameworkWish, machine: Machine, place: companions.Place, limits: Limits, log: Log) -> Entry:
    """Return the reason where nothing answers a wish, with the newest release that is known; first the card that none of them serves."""
    anything = FrameworkWish(framework.name)
    releases = [offers for offers in FRAMEWORKS[framework.name].offers(anything, log.rules, cpu=False) if offers]
    known = {offers[0].version: offers[0] for offers in releases}
    newest = next(iter(known.values()))
    title = newest.title.split(" ", 1)[0]
    asked = specifiers.bound(framework.specifier)
    text = f"no release of {title} matches {framework.text!r}; the newest known is {newest.version}"
    source = log.cite(newest.table, newest.release_row)
    if asked and is_outside(asked, list(known)):
        text = f"{framework.text!r} asks for {title} {asked}, which is {unknown.beyond(asked, list(known), log.rules)}"
        exact, beside = required.exact(f"{title}{framework.specifier}"), [*limits.required, *limits.wished]
        for each in companions.bound(title, exact, place, beside, log.rules) if exact else ():
            text, source = f"{text}; it {each.text}", log.cite("companions", each.row)
    about = FRAMEWORKS[framework.name].ABOUT
    if machine.cards and framework.origin and about.for_cards and not framework.variant:
        text += f"; {about.package} is the build for the processor alone, {title} the one with CUDA"
    card = _never_served(framework.name, [offer for offers in releases for offer in offers], machine, log)
    if card:
        text = f"no release of {title} that is known has code for the {card.name} (compute capability {card.compute_capability}); {text}"
        return conflict("frameworks.release", text, source, f"leave {title} out")
    return conflict("frameworks.release", text, source, f"use {framework.name}={newest.version}")


def _never_served(name: str, offers: Sequence[Offer], machine: Machine, log: Log) -> Card | None:
    """Return the first card that not one of some offers has code for."""
    for card in machine.cards:
        reasons = (_card_reasons(name, offer, [card], machine.arch, log) for offer in offers)
        if all(any(entry["rule"] == "frameworks.card" for entry in each) for each in reasons):
            return card
    return None


# which Python ------------------------------------------------------------------------------------------


def _python(
    offer: Offer, there: Sequence[str], machine: Machine, wish: Wish, log: Log
) -> tuple[str | None, list[Entry]]:
    """Return the interpreter for a release: the one asked for, else the first of those that are there."""
    looked = machine.pythons is not None and "python" not in machine.assumed
    if wish.python and looked and wish.python not in there:
        text = f"python {wish.python} is asked for, this machine has {', '.join(there) or 'none'}{_archive(machine, log.rules)}"
        remedy = f"install python{wish.python} with its venv module"
        return None, [conflict("frameworks.python-missing", text, "the machine's facts", remedy)]
    usable = [each for each in ([wish.python] if wish.python else there) if each in offer.pythons]
    if usable:
        return usable[0], []
    who = (
        f"python {wish.python}"
        if wish.python
        else f"the Python of this machine ({', '.join(there) or 'none was found'})"
    )
    name = f"{offer.title.split(' ', 1)[0]} {offer.version}"
    note = f" ({offer.python_note})" if offer.python_note else ""
    text = f"{name} has no wheels for {who}, only for {', '.join(offer.pythons)}{note}"
    source = log.cite(offer.table, offer.release_row)
    return None, [conflict("frameworks.python", text, source, f"use python={offer.pythons[-1]}")]


def _archive(machine: Machine, rules: Rules) -> str:
    """Return what the archive of a system has beside its own Python, as the end of a sentence; nothing of one that is not known."""
    row = _row(machine, rules)
    if not row or machine.environment == "jetson":
        return ""
    more = [
        each
        for each in (*row.get("pythons_beside", ()), *row.get("pythons_on_wish", ()))
        if not _is_absent(each, machine)
    ]
    return f"; the archive of {row['name']} has {', '.join(more) or 'no other'}"


def _interpreters(machine: Machine, rules: Rules, asked: str | None = None) -> list[str]:
    """Return the Pythons of a machine, the system's own first, then the newest; ``asked``: one that its archive may have on wish.

    Where the system's own is too old for what is released today, newer ones stand before it: those that are there, then those that its
    repositories have beside it, of which one is installed with the environment. What the machine's index turned out not to have is none.
    """
    system = _row(machine, rules).get("python")
    there = list(machine.pythons) if machine.pythons is not None else [system] if system else []
    more = _preferred(machine, rules)
    newer = [each for each in there if more and numeric_version.key(each) > numeric_version.key(system)]
    return [
        *sorted(newer, key=lambda each: more.index(each) if each in more else len(more)),
        *(each for each in _beside(machine, rules) if each not in newer),
        *sorted(set(there) - {*newer, *more}, key=lambda each: (each != system, _newest_first(each))),
        *(each for each in _on_wish(asked, machine, rules) if each not in there),
    ]


def asked_beyond(machine: Machine, wish: Wish, rules: Rules) -> list[str]:
    """Return the Pythons that are asked for and that neither a machine nor the archive of its system has."""
    asked = dict.fromkeys(each for each in (wish.python, *wish.pythons.values()) if each)
    return [each for each in asked if each not in _interpreters(machine, rules, each)]


def _on_wish(asked: str | None, machine: Machine, rules: Rules) -> list[str]:
    """Return the Python that is asked for, where the archive has it and it is taken on no other account."""
    known = _row(machine, rules).get("pythons_on_wish", ()) if machine.environment != "jetson" else ()
    return [asked] if asked and asked in known and not _is_absent(asked, machine) else []


def _beside(machine: Machine, rules: Rules) -> list[str]:
    """Return the Pythons that a machine's repositories have beside the system's own, which is too old, the preferred one first. A user
    without root has those of them that are there.
    """
    found = [each for each in _preferred(machine, rules) if not _is_absent(each, machine)]
    return found if machine.user is None else [each for each in found if each in (machine.pythons or ())]


def _preferred(machine: Machine, rules: Rules) -> list[str]:
    """Return the Pythons to be had beside the system's own, in the newest release of the system: an older one may lack some."""
    return [] if machine.environment == "jetson" else list(_row(machine, rules).get("pythons_beside", ()))


def _is_absent(python: str, machine: Machine) -> bool:
    return f"python={python}" in machine.absent


def _row(machine: Machine, rules: Rules) -> Row:
    rows: list[Row] = rules["systems"]["rows"]
    return next((each for each in rows if each["os"] == machine.os), {})


# why ---------------------------------------------------------------------------------------------------


def _explain(
    choice: Choice, framework: FrameworkWish, support: CudaSupport | None, beside: Sequence[str], log: Log
) -> None:
    offer = choice.offer
    rule, release = f"frameworks.{framework.name}", log.cite(offer.table, offer.release_row)
    if offer.cuda is None or support is None:
        text = f"{offer.title} for the CPU: the newest that Python {choice.python} runs"
        log.decided(rule, text, release)
        return
    mode = support.mode(offer.cuda, log.rules)
    asked = f"answers {framework.text!r}" if framework.specifier or framework.variant else "the newest that fits"
    if _compiled_by(offer, beside):
        asked += f", and CUDA {', '.join(beside)} beside it compiles its extensions"
    text = f"{offer.title} ({asked}): it has code for every card, and its CUDA {offer.cuda} runs on the driver ({mode})"
    log.decided(rule, text, log.cite(offer.table, offer.row))
    log.decided("frameworks.python", f"Python {choice.python}", release)
