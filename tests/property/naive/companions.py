"""What people use beside the frameworks, held against compat/companions.yaml: what pip would take, and whether it runs there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.property.naive.cuda import covered, runs
from tests.property.naive.tables import Row, below, rows

Stack = Mapping[str, Any]
#: What is not on the index at all, or is something else there.
NOT_TO_HAVE = ("stub", "other", "nothing")


def faults(machine: Any, stack: Stack, lines: Sequence[str]) -> Iterator[str]:
    """What is wrong with the lines of a project beside the frameworks of a stack, of which each is in one environment with them."""
    beside = [
        Requirement(each)
        for found in stack.get("frameworks", ())
        for each in (*found["requirements"], *found["constraints"])
    ]
    own = {each.name for found in stack.get("frameworks", ()) for each in map(Requirement, found["requirements"])}
    asked = [Requirement(each) for each in lines]
    for line in [each for each in asked if each.name not in own]:
        yield from _of_line(line, [*beside, *(each for each in asked if each is not line)], machine, stack)


def _of_line(line: Requirement, beside: Sequence[Requirement], machine: Any, stack: Stack) -> Iterator[str]:
    there = next((each["there"] for each in rows("companions", "packages") if _is_named(line.name, each)), "wheels")
    if there in NOT_TO_HAVE:
        yield f"{line.name} is not to be had from the index"
    if there in (*NOT_TO_HAVE, "brought"):
        return
    version = _taken(line, beside, machine, stack)
    if version is None:
        return
    if there == "source":
        # Built by hand: the torch that is there builds it, and the cards bind it.
        for row in _of_version(line.name, version):
            yield from (f"{line.name} {version} {why}" for why in _on_cards(row, machine))
        return
    for why in (
        *_told(line.name, version, beside, machine, stack),
        *_untold(line.name, version, beside, machine, stack),
    ):
        yield f"{line.name} {version} {why}"


def _is_named(name: str, row: Row) -> bool:
    return name == row["name"] or any(re.fullmatch(each, name) for each in row.get("names", ()))


def _taken(line: Requirement, beside: Sequence[Requirement], machine: Any, stack: Stack) -> str | None:
    """The release that pip takes, of those that the tables know: a pin, else the newest that its metadata allows there, else the newest."""
    pins = [each.version for each in line.specifier if each.operator == "=="]
    if pins:
        return pins[0]
    held = [each.specifier for each in beside if each.name == line.name]
    known = {row["to_version"] for row in _spans(line.name)} | {
        end for row in _pairs(line.name) for end in row["releases"]
    }
    known |= {
        row["newest"]
        for row in rows("companions", "packages")
        if row["name"] == line.name and row["there"] == "wheels" and row["newest"]
    }
    newest_first = [
        each
        for each in sorted(known, key=Version, reverse=True)
        if all(spec.contains(each, prereleases=True) for spec in (line.specifier, *held))
    ]
    allowed = [each for each in newest_first if not list(_told(line.name, each, beside, machine, stack))]
    return next(iter(allowed or newest_first), None)


def _spans(name: str) -> list[Row]:
    return [row for row in rows("companions", "spans") if re.fullmatch(row["package"], name)]


def _pairs(name: str) -> list[Row]:
    return [row for row in rows("companions", "pairs") if row["package"] == name]


def _of_version(name: str, version: str) -> list[Row]:
    return [
        row for row in _spans(name) if Version(row["from_version"]) <= Version(version) <= Version(row["to_version"])
    ]


def _needs(name: str, version: str, *, told: bool) -> Iterator[Requirement]:
    """What a release goes with: as its metadata says it (``told``), or as only these tables do."""
    for row in _pairs(name):
        ends = sorted(row["releases"], key=Version)
        inside = Version(row["from_version"]) <= Version(version) <= Version(ends[-1])
        if inside and told is not bool(row.get("unsaid")):
            last = next(each for each in ends if Version(version) <= Version(each))
            yield Requirement(f"{row['other']}{row['releases'][last]}")
    minor = ".".join(version.split(".")[:2])
    for row in _of_version(name, version):
        if told is not bool(row.get("unsaid")):
            yield from (Requirement(each.replace("{minor}", minor)) for each in row.get("needs", ()))


def _clash(need: Requirement, beside: Sequence[Requirement]) -> Iterator[str]:
    for other in [each for each in beside if each.name == need.name]:
        pins = [each.version.partition("+")[0] for each in other.specifier if each.operator == "=="]
        if pins and not pins[0].endswith(".*") and not need.specifier.contains(pins[0], prereleases=True):
            yield f"is for {need}, beside it is {other}"


def _told(name: str, version: str, beside: Sequence[Requirement], machine: Any, stack: Stack) -> Iterator[str]:
    """What is against a release as pip knows it: the tags of its wheels and its metadata."""
    python = stack["frameworks"][0]["interpreter"]
    for row in _of_version(name, version):
        if "python" in row and not SpecifierSet(row["python"]).contains(python):
            yield f"is for Python {row['python']}, not for {python}"
        if machine.arch not in row.get("arch", [machine.arch]):
            yield f"has no wheels for {machine.arch}"
        if "glibc" in row and machine.glibc and below(machine.glibc, row["glibc"]):
            yield f"is for glibc {row['glibc']}"
    for need in _needs(name, version, told=True):
        yield from _clash(need, beside)


def _untold(name: str, version: str, beside: Sequence[Requirement], machine: Any, stack: Stack) -> Iterator[str]:
    """What is against a release and pip does not know."""
    cuda = next((each["cuda"] for each in stack["frameworks"] if each["cuda"]), None)
    if cuda and machine.cards:
        for row in [each for each in _of_version(name, version) if _is_beside(each, beside)]:
            yield from _with_cuda(row, cuda, {each.name for each in beside})
            yield from _on_machine(row, machine, stack)
    for need in _needs(name, version, told=False):
        yield from _clash(need, beside)
        if need.name not in {each.name for each in beside}:
            yield f"is for {need}, and nothing holds it there"


def _is_beside(row: Row, beside: Sequence[Requirement]) -> bool:
    """Whether what a row is bound to is there: it is pinned within the range."""
    if "with" not in row:
        return True
    other = Requirement(row["with"])
    pins = [pin.version for each in beside if each.name == other.name for pin in each.specifier if pin.operator == "=="]
    return any(other.specifier.contains(each.partition("+")[0], prereleases=True) for each in pins)


def _on_machine(row: Row, machine: Any, stack: Stack) -> Iterator[str]:
    driver = row.get("driver")
    if driver and runs(machine, stack, driver) is None and not covered(stack, driver):
        yield f"needs a driver for CUDA {driver}"
    yield from _on_cards(row, machine)


def _on_cards(row: Row, machine: Any) -> Iterator[str]:
    lowest, highest = row.get("cards", (None, None))
    for capability in [each.compute_capability for each in machine.cards if each.compute_capability]:
        if (lowest and below(capability, lowest)) or (highest and below(highest, capability)):
            yield f"has no code for compute capability {capability}"


def _with_cuda(row: Row, cuda: str, there: Collection[str]) -> Iterator[str]:
    if cuda not in row.get("cuda", [cuda]):
        yield f"has no library for CUDA {cuda}"
    for library in row.get("loads", ()):
        if not library.endswith(f"-cu{cuda.split('.', maxsplit=1)[0]}") and library not in there:
            yield f"loads {library}, which nothing brings"
