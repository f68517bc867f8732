# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A project's own requirements, as its requirements.txt or pyproject.toml on the controller says them.

Read is what is required, and nothing is run. What would choose an index, a file or a source by itself is refused: where wheels come from is
a matter of the machine, and code of a source would run as root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ....model import given_file, local_path
from ....model.errors import BadInput
from ....model.wish import Project, Requirement
from ....wish import plain
from . import project_sources

if TYPE_CHECKING:
    from packaging.requirements import Requirement as Parsed

#: The environment of a project that names none.
ENVIRONMENT = "project"

_PYPROJECT = "pyproject.toml"
_FILES = (_PYPROJECT, "requirements.txt")
#: What other programs read, by the end of its name, and what a person does with it.
_OF_OTHERS = {
    (".yml", ".yaml"): (
        "is a file of conda, whose packages are not those of pip",
        "write it as a requirements.txt (pytorch with pytorch-cuda=12.4 is torch==2.6.0+cu124 there) and wish its Python: python=3.12",
    ),
    ("Pipfile", "Pipfile.lock"): (
        "is a file of pipenv",
        "pipenv requirements > requirements.txt, then project=requirements.txt",
    ),
    ("poetry.lock",): (
        "is a lock of poetry",
        "poetry export --without-hashes -o requirements.txt, then project=requirements.txt",
    ),
    ("uv.lock", "pylock.toml", "pdm.lock"): (
        "is a lock",
        f"name the {_PYPROJECT} that it was made of: project={_PYPROJECT}",
    ),
    ("setup.py", "setup.cfg"): (
        "tells its requirements to nobody who does not run it",
        "write them into a requirements.txt, and name that: project=requirements.txt",
    ),
}
#: How a file with a table is read. JSON is what a run leaves for its continuation after a boot, see `document`.
_TABLES: Mapping[str, Callable[[str, str], object]] = {".toml": given_file.from_toml, ".json": given_file.from_json}
_NESTED = lazy(r"^(?:(?P<kind>-r|-c)\s*|(?P<long>--requirement|--constraint)(?:\s+|=))(?P<file>\S.*)$")
_INDEX = lazy(r"^(?:-i|-f|--index-url|--extra-index-url|--find-links)(?:\s+|=)(?P<url>\S+)$")
# A wheel in an address, with the builds that makers name beside its version: +cu12torch2.6cxx11abiFALSE, +pt24cu121, .post1+cu124.
_BUILT = lazy(
    r"(?:^|[\s@])(?:https?|file)://\S*/(?P<name>[A-Za-z0-9_.]+)-(?P<version>\d[\w.]*)(?:\+(?P<local>[\w.]+))?-(?P<python>\w+)-\w+-[\w.]+\.whl\b",
    re.ASCII,
)
_FOR_TORCH = lazy(r"(?:torch|pt)(\d)\.?(\d{1,2})")
_FOR_CUDA = lazy(r"cu(\d{2,3})")
_TORCH = lazy(r"^[ \t]*(?P<text>(?P<name>torch)==(?P<version>[\d.]+)\S*)", re.MULTILINE)
# A package and its version in a file of conda: pytorch=2.1.0, pytorch::pytorch==2.1.0=py3.10_cuda11.8, tensorflow-gpu=2.4.*
_CONDA = lazy(
    r"^[ \t]*-[ \t]*(?:[\w-]+::)?(?P<name>[\w-]+)[ \t]*={1,2}[ \t]*(?P<version>\d[\w.]*)", re.MULTILINE | re.ASCII
)
_COMMENT = lazy(r"(^|\s)#.*$")
# The keys of constraints and of variants, by requirement, in a table of our own; pyproject.toml has none.
_LIMITS, _VARIANTS = "gpuwright-constraints", "gpuwright-variants"
#: Requirements of a project, with those of all that its files name and its groups include.
_MOST = 10_000
_OTHER_INDEX = "leave the line out where the machine's own index has it all; else name one that has in gpuwright_mirrors: {pypi: URL}"
#: What is to be done about an option that pip would take.
_INSTEAD = {
    **dict.fromkeys(("-i", "--index-url", "--extra-index-url"), _OTHER_INDEX),
    **dict.fromkeys(
        ("-f", "--find-links"),
        "leave the line out where the machine's own index has it all; else put the wheels on one: gpuwright_mirrors: {pypi: URL}",
    ),
    "--hash": "give the file with the hashes to a lock: gpuwright resolve --lock FILE --hashes FILE",
    "--require-hashes": "give the file with the hashes to a lock: gpuwright resolve --lock FILE --hashes FILE",
    "-e": "make a wheel of it (pip wheel), put that on an index, and require it by its name",
    "--editable": "make a wheel of it (pip wheel), put that on an index, and require it by its name",
}
_WHEEL = _INSTEAD["-e"]
# What may stand behind a path: extras as PEP 508 writes them, groups as pip does (--group PATH:NAME).
_PARTS = lazy(r"^(?P<path>.*?)(?:\[(?P<extras>[^\[\]/]*)\])?(?::(?P<groups>[\w.,\s-]+))?$", re.ASCII | re.DOTALL)
_EXTRAS, _GROUPS = "optional-dependencies", "dependency-groups"
# The first version of packaging that reads dependency groups (PEP 735).
_READS_GROUPS = "26.1"


@dataclass(frozen=True)
class _Line:
    """A requirement of a file as it is written, and where. ``limits``: it only holds for what is installed."""

    text: str
    origin: str
    limits: bool = False
    variant: str | None = None
    """The one that its index means; of a line without a text, all of the file's are of it"""


@dataclass(frozen=True)
class _Asked:
    """What is asked of a project besides what it always requires: its extras, and its dependency groups."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def read(name: str, environment: str | None) -> Project:
    """Return what a file requires, the frameworks among it. ``name``: its path, with extras and groups: PATH[cli,web]:dev,test.

    Raises BadInput where it is not there, or has what is not served.
    """
    place, asked = _parts(name)
    path = _file(place, asked)
    python: Requirement | None = None
    notes: list[Requirement] = []
    if path.suffix in _TABLES:
        document = _document(path)
        table = _table(path, document, asked)
        sources = _sources(path, document, asked)
        lines = [
            *_dependencies(path, table),
            *_of_extras(path, table, asked.extras),
            *_of_groups(path, document, asked),
        ]
        lines, notes = _from_sources(lines, sources, path)
        lines += _listed(path, "constraint-dependencies of [tool.uv]", sources.constraints, limits=True)
        wanted = table.get("requires-python")
        python = Requirement(_range(str(wanted), path), path.name) if wanted else None
    else:
        lines = _of_one_index(list(_lines(path, (), set(), limits=False)))
    if len(lines) > _MOST:
        raise _too_many(path)
    return Project(
        environment or ENVIRONMENT,
        tuple(Requirement(each.text, each.origin, each.variant) for each in lines if not each.limits),
        tuple(Requirement(each.text, each.origin) for each in lines if each.limits),
        python,
        tuple(notes),
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
        raise BadInput(text, _of_address(found.name, found.url))
    return found


def _of_address(name: str, url: str) -> list[str]:
    """Return what a person writes instead of an address: where that is of a wheel, its version stands in it."""
    file = unquote(urlsplit(url).path.rpartition("/")[2]).split("-")
    of_wheel = len(file) in (5, 6) and file[-1].endswith(".whl") and _normal(file[0]) == _normal(name)
    return [f"{name}=={file[1]}", _WHEEL] if of_wheel else [_WHEEL]


def document(project: Project) -> dict[str, object]:
    """Return what was read of a project as a table that `read` takes: a file may change until it is read again."""
    table = {
        "dependencies": [each.text for each in project.requirements],
        _LIMITS: [each.text for each in project.constraints],
        _VARIANTS: {each.text: each.variant for each in project.requirements if each.variant},
        **({"requires-python": project.python.text} if project.python else {}),
    }
    return {"project": table}


# requirements.txt --------------------------------------------------------------------------------------


def _lines(
    path: Path, through: tuple[Path, ...], read_already: set[tuple[str, bool]], *, limits: bool
) -> Iterator[_Line]:
    """Yield the requirements of a file and of those that it names by -r and -c, relative to itself; of each file once."""
    if path in through:
        raise BadInput(f"{through[-1].name}: it names {path.name}, which names it in turn")
    text, this = _text(path), (os.path.realpath(path), limits)
    if this in read_already:
        return
    read_already.add(this)
    for number, written in _joined(text):
        origin = f"{path.name}:{number}"
        line = _COMMENT.sub("", written).strip()
        nested = _NESTED.match(line)
        if nested:
            below = path.parent / local_path.read(nested["file"].strip())
            only = limits or (nested["kind"] or nested["long"]) in ("-c", "--constraint")
            yield from _lines(below, (*through, path), read_already, limits=only)
        elif line:
            _refuse_wheel(line, origin, text)
            yield _of_index(line, origin) or _requirement(line, origin, limits=limits)


def _refuse_wheel(line: str, origin: str, text: str) -> None:
    """Raise BadInput for a wheel by its address, with what its name says that it is for, and the torch of the same file."""
    found = _BUILT.search(unquote(line))
    if found is None:
        return
    name, version = found["name"].replace("_", "-"), found["version"]
    torch = next((".".join(filter(None, each.groups())) for each in _FOR_TORCH.finditer(found["local"] or "")), "")
    if not torch and "@" in line.partition("://")[0]:
        return
    cuda = _FOR_CUDA.search(found["local"] or "")
    python = found["python"]
    made = [
        *([f"torch {torch}"] if torch else []),
        *([f"CUDA {cuda[1]}"] if cuda else []),
        *([f"Python 3.{python[3:]}"] if python.startswith("cp3") else []),
    ]
    there = _TORCH.search(text)
    other = (
        f", and {there['text']} is in the file"
        if torch and there and not f"{there['version']}.".startswith(f"{torch}.")
        else ""
    )
    words = f"{origin}: {name} {version} comes as a wheel by its address" + (
        f", which is for {', '.join(made)}{other}" if made else ""
    )
    beside = (
        f"take the wheel for that torch, or name {there['name']}=={torch}.* in its place" if other and there else ""
    )
    raise BadInput(
        f"{words}; only wheels of an index are installed",
        [
            *([beside] if beside else []),
            f"{name}=={version}",
            f"install that wheel into the environment when it is there; or {_WHEEL}",
        ],
    )


def _of_index(line: str, origin: str) -> _Line | None:
    """Return what a line says that names PyTorch's own index, which is asked anyway: the variant; None for every other line."""
    named = _INDEX.match(line)
    variant = project_sources.variant(named["url"]) if named else None
    return None if variant is None else _Line("", origin, variant=variant)


def _of_one_index(lines: Sequence[_Line]) -> list[_Line]:
    """Return the requirements, each of the variant that the lines mean which name an index."""
    variant = project_sources.one_of([each.variant for each in lines if not each.text and each.variant])
    return [replace(each, variant=variant) for each in lines if each.text]


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


def _document(path: Path) -> Mapping[str, object]:
    """Return the tables of a file."""
    document = _TABLES[path.suffix](_text(path), path.name)
    return document if isinstance(document, Mapping) else {}


def _table(path: Path, document: Mapping[str, object], asked: _Asked) -> Mapping[str, object]:
    """Return the table [project] of a file. Raises BadInput where it says no dependencies that stay as they are."""
    table = document.get("project")
    again = ["write the requirements into a requirements.txt, and name that"]
    if table is None and asked.groups and not asked.extras:
        # Groups may be all that a file has (PEP 735).
        return {}
    if not isinstance(table, Mapping):
        raise BadInput(f"{path.name} has no table [project], which PEP 621 describes", again)
    dynamic = table.get("dynamic")
    for key in ("dependencies", *([_EXTRAS] if asked.extras else [])):
        if isinstance(dynamic, list) and key in dynamic:
            raise BadInput(f"{path.name}: its {key} are dynamic, only its build tool can tell them", again)
    return table


def _sources(path: Path, document: Mapping[str, object], asked: _Asked) -> project_sources.UvTables:
    return project_sources.UvTables(
        path.name, document, [_normal(each) for each in asked.extras], [_normal(each) for each in asked.groups]
    )


def _from_sources(
    lines: Sequence[_Line], sources: project_sources.UvTables, path: Path
) -> tuple[list[_Line], list[Requirement]]:
    """Return the lines with the variants that their sources mean, and what a person has to know of the others."""
    found: list[_Line] = []
    notes = [Requirement(text, path.name) for text in sources.notes()]
    for line in lines:
        for source in sources.of(parsed(Requirement(line.text, line.origin)).name, line.origin):
            variant = line.variant or source.variant or sources.variant
            found.append(replace(line, text=_under(line.text, source.marker), variant=variant))
            notes += [Requirement(source.note, line.origin)] if source.note else []
    return found, list(dict.fromkeys(notes))


def _under(text: str, marker: str) -> str:
    """Return a requirement that holds under one more marker."""
    if not marker:
        return text
    from packaging.requirements import Requirement as Parsed

    found = Parsed(text)
    own, found.marker = found.marker, None
    return f"{found} ; ({own}) and {marker}" if own else f"{found} ; {marker}"


def _dependencies(path: Path, table: Mapping[str, object]) -> Iterator[_Line]:
    for key, limits in (("dependencies", False), (_LIMITS, True)):
        variants = table.get(_VARIANTS)
        for line in _listed(path, key, table.get(key, []), limits=limits):
            yield replace(line, variant=variants.get(line.text)) if isinstance(variants, Mapping) else line


def _listed(path: Path, key: str, rows: object, *, limits: bool = False) -> Iterator[_Line]:
    """Yield the requirements of a list, with the first line of the file that has each."""
    if not isinstance(rows, list):
        raise BadInput(f"{path.name}: {key} has to be a list, found {type(rows).__name__}")
    if len(rows) > _MOST:
        raise _too_many(path)
    written = _text(path)
    for row in rows:
        place = written.find(str(row))
        number = f":{written.count(chr(10), 0, place) + 1}" if place >= 0 else ""
        yield _requirement(str(row), f"{path.name}{number}", limits=limits)


def _of_extras(path: Path, table: Mapping[str, object], extras: tuple[str, ...]) -> Iterator[_Line]:
    """Yield what extras of a project require. One may take others in, as its own name with them: all = ["mine[cli,web]"]."""
    known = table.get(_EXTRAS, {})
    named = {_normal(str(name)): rows for name, rows in known.items()} if isinstance(known, Mapping) else {}
    waiting, own = [_normal(each) for each in extras], _normal(str(table.get("name", "")))
    for extra in waiting:  # it grows meanwhile
        _there(path, "extra", extra, named)
        for line in _listed(path, f"{_EXTRAS} of {extra}", named[extra]):
            found = parsed(Requirement(line.text, line.origin))
            if _normal(found.name) == own and found.extras:
                waiting += [each for each in map(_normal, sorted(found.extras)) if each not in waiting]
            else:
                yield line


def _of_groups(path: Path, document: Mapping[str, object], asked: _Asked) -> Iterator[_Line]:
    """Yield what dependency groups require, those with it that they include (PEP 735)."""
    if not asked.groups:
        return
    try:
        from packaging.dependency_groups import resolve_dependency_groups
    except ImportError:
        text = f"{path.name}: dependency groups are read by the library packaging {_READS_GROUPS} or newer, found an older one"
        raise BadInput(text, [f"pip install 'packaging>={_READS_GROUPS}'"]) from None
    known = document.get(_GROUPS, {})
    groups = cast("Mapping[str, list[str | Mapping[str, str]]]", known if isinstance(known, Mapping) else {})
    for group in asked.groups:
        _there(path, "group", _normal(group), {_normal(str(name)): name for name in groups})
        if _size(group, groups, {}) > _MOST:
            raise _too_many(path)
        try:
            rows = resolve_dependency_groups(groups, group)
        except ExceptionGroup as found:
            told = "; ".join(map(str, found.exceptions))
            raise BadInput(f"{path.name}: the dependency group {group} cannot be read: {told}") from None
        yield from _listed(path, f"{_GROUPS} of {group}", list(rows))


def _size(group: str, groups: Mapping[str, object], known: dict[str, int]) -> int:
    """How many requirements a group has with all that it includes, as often as it does. What includes itself is told by the library."""
    name = _normal(group)
    if name not in known:
        known[name] = 0
        rows = next((rows for other, rows in groups.items() if _normal(str(other)) == name), None)
        included = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
        own = len(rows) - len(included) if isinstance(rows, list) else 0
        known[name] = own + sum(_size(str(row.get("include-group")), groups, known) for row in included)
    return known[name]


def _too_many(path: Path) -> BadInput:
    return BadInput(f"{path.name} has more than {_MOST} requirements: no project has so many")


def _there(path: Path, what: str, name: str, known: Mapping[str, object]) -> None:
    """Raise BadInput where a file has no extra, or group, of a name; the suggestions are those that it has."""
    if name not in known:
        ends = [f"[{each}]" if what == "extra" else f":{each}" for each in sorted(known)]
        there = ", ".join(sorted(known)) or "none"
        raise BadInput(f"{path.name} has no {what} {name}, it has {there}", [f"project={path}{end}" for end in ends])


def _normal(name: str) -> str:
    """Return the name of an extra, a group or a distribution as it is compared (PEP 503, PEP 685)."""
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def _range(written: str, path: Path) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(written))
    except InvalidSpecifier:
        raise BadInput(f"{path.name}: requires-python has to be a range such as >=3.10, found {written!r}") from None


# files -------------------------------------------------------------------------------------------------


def _parts(written: str) -> tuple[Path, _Asked]:
    """Return the path of a project as it is written, and what is asked of it; a path that is there as a whole is no more than that."""
    whole = local_path.read(written)
    found = None if local_path.exists(whole) else _PARTS.match(written)
    if found is None:
        return whole, _Asked()
    extras, groups = (
        [each.strip() for each in (found[key] or "").split(",") if each.strip()] for key in ("extras", "groups")
    )
    return local_path.read(found["path"]), _Asked(tuple(extras), tuple(groups))


def _file(path: Path, asked: _Asked) -> Path:
    """Return the file that is meant: itself, or the one of a directory that says what a project requires."""
    if asked.extras or asked.groups:
        path = path / _PYPROJECT if local_path.is_directory(path) else path
        if path.suffix not in _TABLES:
            raise BadInput(f"{path.name} has no extras and no groups: a {_PYPROJECT} has", [f"project={path}"])
    if not local_path.is_directory(path):
        _refuse_others([path])
        return path
    there = [path / name for name in _FILES if (path / name).is_file()]
    if len(there) == 1:
        return there[0]
    if not there:
        _refuse_others(sorted(path.iterdir()))
    found = " and ".join(each.name for each in there) or "neither pyproject.toml nor requirements.txt"
    raise BadInput(f"project: the directory {path} has {found}", [f"project={path}/{name}" for name in _FILES])


def _refuse_others(several: Sequence[Path]) -> None:
    """Raise BadInput for the first file that is another program's, with which is served."""
    for path in several:
        for ends, (what, instead) in _OF_OTHERS.items():
            if path.name.endswith(ends):
                named = _of_conda(path) if path.suffix in (".yml", ".yaml") and path.is_file() else []
                text = f"; what it names is {' '.join(named)} here" if named else ""
                raise BadInput(f"{path.name} {what}: served are {_FILES[1]} and {_PYPROJECT}{text}", [*named, instead])


def _of_conda(path: Path) -> list[str]:
    """Return the frameworks and the Python that a file of conda names, as they are asked for here."""
    pins = {found["name"]: found["version"].removesuffix(".*") for found in _CONDA.finditer(_text(path))}
    cuda = pins.get("pytorch-cuda") or pins.get("cudatoolkit") or pins.get("cuda-version")
    variant = f"+cu{cuda.replace('.', '')[:3]}" if cuda and cuda[:1].isdigit() else ""
    # conda has names of its own for what has CUDA in it: tensorflow-gpu.
    version = {name.removesuffix("-gpu"): each for name, each in pins.items()}
    found = [
        f"{about.package}=={version[name]}{variant if about.local else ''}"
        for about in ABOUT.values()
        for name in dict.fromkeys((about.name, about.package))
        if name in version
    ]
    python = ".".join(pins["python"].split(".")[:2]) if "python" in pins else ""
    return [*found, *([f"python={python}"] if python else [])]


def _text(path: Path) -> str:
    instead = ["project=PATH names a file of this machine"]
    return given_file.text(str(path), "the project's file", given_file.WRITTEN_BY_PEOPLE, instead)
