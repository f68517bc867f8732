# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A project's own requirements, as its requirements.txt or pyproject.toml on the controller says them.

Read is what is required, and nothing is run. What would choose an index, a file or a source by itself is refused: where wheels come from is
a matter of the machine, and code of a source would run as root.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.errors import BadInput
from ..model.wish import Project, Requirement
from . import plain

if TYPE_CHECKING:
    from packaging.requirements import Requirement as Parsed

#: The environment of a project that names none.
ENVIRONMENT = "project"

_PYPROJECT = "pyproject.toml"
_FILES = (_PYPROJECT, "requirements.txt")
#: How a file with a table is read. JSON is what a run leaves for its continuation after a boot, see `document`.
_TABLES: Mapping[str, Callable[[str], object]] = {".toml": tomllib.loads, ".json": json.loads}
_NESTED = re.compile(r"^(?:(?P<kind>-r|-c)\s*|(?P<long>--requirement|--constraint)(?:\s+|=))(?P<file>\S.*)$")
_COMMENT = re.compile(r"(^|\s)#.*$")
# The key of constraints in a table of our own; pyproject.toml has none.
_LIMITS = "gpuwright-constraints"
# A file that is none of this kind is not read to its end.
_LARGEST = 1 << 20
#: What is to be done about an option that pip would take.
_INSTEAD = {
    "-i": "name the index for this machine in gpuwright_mirrors: {pypi: URL}",
    "--index-url": "name the index for this machine in gpuwright_mirrors: {pypi: URL}",
    "--extra-index-url": "name one index that has it all in gpuwright_mirrors: {pypi: URL}",
    "-f": "put the wheels on an index and name it in gpuwright_mirrors: {pypi: URL}",
    "--find-links": "put the wheels on an index and name it in gpuwright_mirrors: {pypi: URL}",
    "--hash": "give the file with the hashes to a lock: gpuwright resolve --lock FILE --hashes FILE",
    "--require-hashes": "give the file with the hashes to a lock: gpuwright resolve --lock FILE --hashes FILE",
    "-e": "make a wheel of it (pip wheel), put that on an index, and require it by its name",
    "--editable": "make a wheel of it (pip wheel), put that on an index, and require it by its name",
}
_WHEEL = _INSTEAD["-e"]


@dataclass(frozen=True)
class _Line:
    """A requirement of a file as it is written, and where. ``limits``: it only holds for what is installed."""

    text: str
    origin: str
    limits: bool = False


def read(name: str, environment: str | None) -> Project:
    """Return what a file requires, the frameworks among it. Raises BadInput where it is not there, or has what is not served."""
    path = _file(Path(name).expanduser())
    python = None
    if path.suffix in _TABLES:
        table = _table(path)
        lines = list(_dependencies(path, table))
        wanted = table.get("requires-python")
        python = Requirement(_range(str(wanted), path), path.name) if wanted else None
    else:
        lines = list(_lines(path, (), limits=False))
    return Project(
        environment or ENVIRONMENT,
        tuple(Requirement(each.text, each.origin) for each in lines if not each.limits),
        tuple(Requirement(each.text, each.origin) for each in lines if each.limits),
        python,
    )


def check(project: Project, place: str) -> None:
    """Raise BadInput where something is required of a project that no file of it could require."""
    for each in project.requirements:
        _requirement(each.text, place)


def parsed(requirement: Requirement) -> Parsed:
    """Return a requirement in its parts. Raises BadInput for what is none, or names a file."""
    # Loaded where a project is read: it takes longer than most answers.
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    try:
        found = Parsed(requirement.text)
    except InvalidRequirement:
        text = f"{requirement.origin}: expected a requirement such as numpy>=1.26, found {requirement.text!r}"
        hint = [_WHEEL] if re.match(r"^[./~]|^\w+://|^git\+", requirement.text) else []
        raise BadInput(text, hint) from None
    if found.url:
        text = f"{requirement.origin}: {found.name} comes from an address, and only wheels of an index are installed"
        raise BadInput(text, [_WHEEL])
    return found


def document(project: Project) -> dict[str, object]:
    """Return what was read of a project as a table that `read` takes: a file may change until it is read again."""
    table = {
        "dependencies": [each.text for each in project.requirements],
        _LIMITS: [each.text for each in project.constraints],
        **({"requires-python": project.python.text} if project.python else {}),
    }
    return {"project": table}


# requirements.txt --------------------------------------------------------------------------------------


def _lines(path: Path, through: tuple[Path, ...], *, limits: bool) -> Iterator[_Line]:
    """Yield the requirements of a file and of those that it names by -r and -c, relative to itself."""
    if path in through:
        raise BadInput(f"{through[-1].name}: it names {path.name}, which names it in turn")
    for number, written in _joined(_text(path)):
        origin = f"{path.name}:{number}"
        line = _COMMENT.sub("", written).strip()
        nested = _NESTED.match(line)
        if nested:
            below = path.parent / Path(nested["file"].strip()).expanduser()
            only = limits or (nested["kind"] or nested["long"]) in ("-c", "--constraint")
            yield from _lines(below, (*through, path), limits=only)
        elif line:
            yield _requirement(line, origin, limits=limits)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; one that ends with a backslash goes on in the next."""
    begun, parts = 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        begun = begun or number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield begun, " ".join(parts)
            begun, parts = 0, []
    if parts:
        yield begun, " ".join(parts)


def _requirement(line: str, origin: str, *, limits: bool = False) -> _Line:
    """Return the requirement of a line. Raises BadInput for an option, which is not a wish of a project's."""
    option = re.search(r"(?:^|\s)(--?[A-Za-z][\w-]*)", line)
    if option:
        name = option[1]
        instead = [_INSTEAD[name]] if name in _INSTEAD else ["remove the option, or give this line to pip yourself"]
        raise BadInput(f"{origin}: the option {name} is not served in a project's requirements", instead)
    if plain.is_template(line):
        raise BadInput(f"{origin}: a requirement has to be plain text, found the template {line!r}")
    if len(line.splitlines()) != 1:
        raise BadInput(f"{origin}: a requirement has to be one line, found {line!r}")
    found = _Line(line, origin, limits)
    parsed(Requirement(line, origin))
    return found


# pyproject.toml ----------------------------------------------------------------------------------------


def _table(path: Path) -> Mapping[str, object]:
    """Return the table [project] of a file. Raises BadInput where it says no dependencies that stay as they are."""
    kind = path.suffix
    try:
        document = _TABLES[kind](_text(path))
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path.name} is not {kind[1:].upper()}: {error}") from None
    table = document.get("project") if isinstance(document, Mapping) else None
    again = ["write the requirements into a requirements.txt, and name that"]
    if not isinstance(table, Mapping):
        raise BadInput(f"{path.name} has no table [project], which PEP 621 describes", again)
    dynamic = table.get("dynamic")
    if isinstance(dynamic, list) and "dependencies" in dynamic:
        raise BadInput(f"{path.name}: its dependencies are dynamic, only its build tool can tell them", again)
    return table


def _dependencies(path: Path, table: Mapping[str, object]) -> Iterator[_Line]:
    lines = _text(path).splitlines()
    for key, limits in (("dependencies", False), (_LIMITS, True)):
        rows = table.get(key, [])
        if not isinstance(rows, list):
            raise BadInput(f"{path.name}: {key} has to be a list, found {type(rows).__name__}")
        for row in rows:
            number = next((place for place, line in enumerate(lines, start=1) if str(row) in line), None)
            yield _requirement(str(row), f"{path.name}:{number}" if number else path.name, limits=limits)


def _range(written: str, path: Path) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(written))
    except InvalidSpecifier:
        raise BadInput(f"{path.name}: requires-python has to be a range such as >=3.10, found {written!r}") from None


# files -------------------------------------------------------------------------------------------------


def _file(path: Path) -> Path:
    """Return the file that is meant: itself, or the one of a directory that says what a project requires."""
    if not path.is_dir():
        return path
    there = [path / name for name in _FILES if (path / name).is_file()]
    if len(there) == 1:
        return there[0]
    found = " and ".join(each.name for each in there) or "neither pyproject.toml nor requirements.txt"
    raise BadInput(f"project: the directory {path} has {found}", [f"project={path}/{name}" for name in _FILES])


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise BadInput(
            f"the project's file {path} is not there", ["project=PATH names a file of this machine"]
        ) from None
    except OSError as error:
        raise BadInput(f"the project's file {path} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise BadInput(f"the project's file {path} is larger than 1 MiB: that is no list of requirements")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"the project's file {path} is not UTF-8 text") from None
