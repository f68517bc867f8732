# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Libraries as NVIDIA's archives inside a toolkit: each is unpacked into a directory of its own there, to which links among its files lead.

A record beside our settings says that one is ours, and whether it is whole: what was cut off is known by it and made anew. A list has the
files that it brought, with their sizes and times: these go again, as far as they are unchanged, and nothing else. What somebody copied
among the toolkit's files is never replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.plan import ArchiveRemoval
from ...model.work import File
from ..base import Context, Finding, Need, missing_packages
from . import runfile

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import ArchiveRecord, Facts

    from ...model.plan import Change, Plan
    from ...model.stack import Stack
    from .model import Library, LibraryArchive

#: Directories of toolkits that one is put into. A record that names another one is not believed.
_TOOLKIT = re.compile(r"/usr/local/cuda-\d{1,3}\.\d{1,3}", re.ASCII)
_GIB = 1024**3


@dataclass(frozen=True)
class Kind:
    """A library that comes as an archive.

    key: in the stack, in the name of its directory and of its record; title: for a person. headers, libraries: what its files are called,
    in include and lib of the archive, and by links in the toolkit. shown: two of them that show that it is there, a header first. packed:
    bytes of an archive whose size no table has, at most; unpacked: how many times as large it is then, assumed.
    """

    key: Literal["cudnn", "nccl", "tensorrt"]
    title: str
    headers: Sequence[str]
    libraries: Sequence[str]
    shown: Sequence[str]
    packed: int
    unpacked: float

    @property
    def folders(self) -> list[tuple[str, str, Sequence[str]]]:
        """Where its files are in the archive and in the toolkit, and what they are called. NCCL's headers have a directory of their own."""
        return [("include", "include", self.headers), ("lib", "lib64", self.libraries)]


_CUDNN = Kind("cudnn", "cuDNN", ["cudnn*.h"], ["libcudnn*"], ["include/cudnn.h", "lib64/libcudnn.so"], _GIB, 3)
_NCCL = Kind("nccl", "NCCL", ["nccl*"], ["libnccl*"], ["include/nccl.h", "lib64/libnccl.so"], 400 * 10**6, 2.2)
# The toolkit itself has other files whose names begin with libnv.
_TENSORRT = Kind(
    "tensorrt",
    "TensorRT",
    ["NvInfer*", "NvOnnx*"],
    ["libnvinfer*", "libnvonnxparser*"],
    ["include/NvInfer.h", "lib64/libnvinfer.so"],
    9 * 10**9,
    2.2,
)
_KINDS: Mapping[str, Kind] = {each.key: each for each in (_CUDNN, _NCCL, _TENSORRT)}


class Way(NamedTuple):
    """How archives with an ending are unpacked: what tar is told, and the package that it needs, by package manager."""

    option: str
    tools: Mapping[str, str]


_XZ = Way("--xz", {"apt": "xz-utils", "dnf": "xz"})
# tar knows --zstd from 1.31 on, which Red Hat 8 does not have.
_WAYS = {
    ".tar.xz": _XZ,
    ".txz": _XZ,
    ".tar.gz": Way("--gzip", {}),
    ".tar.zst": Way("--use-compress-program=zstd", {"apt": "zstd", "dnf": "zstd"}),
}


class One(NamedTuple):
    """An archive, and what it is of."""

    kind: Kind
    archive: LibraryArchive

    @property
    def place(self) -> tuple[str, str]:
        """By what its record is known."""
        return self.kind.key, self.archive["path"]

    @property
    def directory(self) -> str:
        """Where it is unpacked."""
        return _directory(self.kind, self.archive["path"], self.archive["version"])

    @property
    def packed(self) -> int:
        """Bytes of its file."""
        return self.archive.get("size") or self.kind.packed

    @property
    def unpacked(self) -> int:
        """Bytes of its files."""
        return int(self.packed * self.kind.unpacked)


class Placing(TypedDict):
    """An archive that the role puts into a toolkit.

    ``title``: what it is of; ``variable``: of the role, that wishes it. ``file``: where it is fetched to. ``others``: commands that name
    what is there of somebody else's. ``take_out``: commands that take away what was there of ours, in ``former``; ``staging``: where it is
    unpacked by ``unpack`` and listed by ``note``; ``directory``: where it is put then; ``link``: commands that lead to its files from the
    toolkit's; ``shown``: files that are there then.
    """

    title: str
    variable: str
    path: str
    name: str
    file: str
    addresses: list[str]
    sha256: str
    others: list[list[str]]
    take_out: list[list[str]]
    former: str | None
    staging: str
    unpack: list[str]
    note: list[str]
    directory: str
    link: list[list[str]]
    shown: list[str]
    begun: File
    done: File


def of_stack(stack: Stack) -> list[One]:
    """The archives that are wished."""
    libraries = [(kind, cast("Library | None", stack.get(key))) for key, kind in _KINDS.items()]
    return [One(kind, archive) for kind, library in libraries if library for archive in library.get("archives") or ()]


def record(kind: Kind, path: str) -> str:
    """The record of a library in a toolkit."""
    return f"{paths.SETTINGS}/{kind.key}-{path.rpartition('-')[2]}.json"


def _recorded(facts: Facts) -> Mapping[tuple[str, str], ArchiveRecord]:
    """The records by library and directory of the toolkit, without those that name what is no toolkit's."""
    return {
        (each["library"], each["path"]): each for each in facts["cuda"]["archives"] if _TOOLKIT.fullmatch(each["path"])
    }


def coming(context: Context, plan: Plan | None = None) -> list[One]:
    """The archives that are to be put into their toolkits; where a file makes a toolkit anew, its archives are lost with the old one."""
    known, anew = _recorded(context.facts), _made_anew(context, plan)
    return [
        each
        for each in of_stack(context.stack)
        if each.archive["path"] in anew or not _is_there(known.get(each.place), each.archive)
    ]


def _made_anew(context: Context, plan: Plan | None) -> list[str]:
    return [toolkit["path"] for toolkit, _file in runfile.coming(context, plan)]


def displaced(context: Context, plan: Plan) -> list[list[str]]:
    """What takes ours out of toolkits that files make anew: their place has to be empty."""
    anew = _made_anew(context, plan)
    return [
        command
        for (key, path), each in _recorded(context.facts).items()
        if path in anew
        for command in _taking_out(_KINDS[key], path, each["version"])
    ]


def _is_there(known: ArchiveRecord | None, archive: LibraryArchive) -> bool:
    return known is not None and (known["state"], known["version"]) == ("done", archive["version"])


def tools(context: Context, plan: Plan | None = None) -> list[str]:
    """What unpacks those that come."""
    return _tools(context, coming(context, plan))


def _tools(context: Context, archives: Sequence[One]) -> list[str]:
    manager = str(context.facts["packages"]["manager"])
    needed = [_way(each.archive["name"]).tools.get(manager) for each in archives]
    return list(dict.fromkeys(name for name in needed if name))


def _way(name: str) -> Way:
    return next(way for ending, way in _WAYS.items() if name.endswith(ending))


def findings(context: Context) -> list[Finding]:
    found = [_finding(context, each) for each in coming(context)]
    undone = remnants(context)
    titles = " and ".join(dict.fromkeys(_KINDS[each["library"]].title for each in _begun(context)))
    reason = f"what a cut left of {titles} is no longer wished"
    return found + ([Finding("repair", reason, files=_left(context))] if undone else [])


def _finding(context: Context, one: One) -> Finding:
    title, path, version = one.kind.title, one.archive["path"], one.archive["version"]
    known, missing = _recorded(context.facts).get(one.place), missing_packages(context, _tools(context, [one]))
    files = [one.directory]
    if known is None:
        return Finding("install", f"no {title} of ours is in {path}", None, version, packages=missing, files=files)
    if known["state"] == "begun":
        reason = f"{title} was put into {path} only in part"
        return Finding("repair", reason, None, version, packages=missing, files=files)
    reason = f"the {title} in {path} is {known['version']}, wished is {version}"
    return Finding("upgrade", reason, known["version"], version, packages=missing, files=files)


def placings(context: Context, plan: Plan) -> list[Placing]:
    """What the role does, archive by archive."""
    known = _recorded(context.facts)
    return [_placing(each, known.get(each.place)) for each in coming(context, plan)]


def _placing(one: One, known: ArchiveRecord | None) -> Placing:
    kind, archive, directory = one.kind, one.archive, one.directory
    path, file = archive["path"], f"{runfile.DIRECTORY}/{archive['name']}"
    staging, before = _staging(kind, path), known["version"] if known else None
    return {
        "title": kind.title,
        "variable": f"cuda_{kind.key}",
        "path": path,
        "name": archive["name"],
        "file": file,
        "addresses": list(archive["addresses"]),
        "sha256": archive["sha256"],
        "others": _seeing_others(one, before),
        "take_out": _taking_out(kind, path, before) if before else [],
        "former": _directory(kind, path, before) if before else None,
        "staging": staging,
        "unpack": [
            "tar", "--extract", _way(archive["name"]).option, f"--file={file}", f"--directory={staging}", "--strip-components=1",
            "--no-same-owner",
        ],
        "note": ["find", f"{staging}/", "!", "-type", "d", "-fprintf", noted(kind, path), _LINE],
        "directory": directory,
        # The slash at the end follows a lib that is a link, as TensorRT's is.
        "link": [
            ["find", f"{directory}/{inside}/", "-mindepth", "1", "-maxdepth", "1", *_named(names),
             "-exec", "ln", "--symbolic", f"--target-directory={path}/{folder}/", "{}", "+"]
            for inside, folder, names in kind.folders
        ],
        "shown": [f"{path}/{each}" for each in kind.shown],
        "begun": _record(one, "begun"),
        "done": _record(one, "done"),
    }  # fmt: skip


#: What a list says of a file: its place below the directory, its size, and when it was changed.
_LINE = "%P\\t%s\\t%T@\\n"
_THERE = f"find \"$1/\" ! -type d -printf '{_LINE}'"
_LISTED = "grep --text --line-regexp --fixed-strings --file"
#: Prints what is in the directory $1 and not, or no longer so, in the list $2.
_NOT_LISTED = f"""test -d "$1" || exit 0
test -f "$2" || set -- "$1" /dev/null
{_THERE} | {_LISTED}="$2" --invert-match --max-count=8 | cut --fields=1"""
#: Takes away what is there as the list $2 has it, and the directories that are empty then.
_TAKE_LISTED = f"""test -d "$1" || exit 0
{_THERE} | {_LISTED}="$2" | cut --fields=1 | (cd "$1"; tr '\\n' '\\0' | xargs --null --no-run-if-empty rm --force --)
find "$1" -depth -type d -empty -delete"""


def _seeing_others(one: One, before: str | None) -> list[list[str]]:
    """Commands that name files that are no links to ours (of the version ``before``), and what is in the directory that ours is to have."""
    kind, path = one.kind, one.archive["path"]
    leads = ["!", "-lname", f"{_directory(kind, path, before)}/*"] if before else []
    files = [
        ["find", f"{path}/{folder}/", "-mindepth", "1", "-maxdepth", "1", *_named(names), *leads]
        for _inside, folder, names in kind.folders
    ]
    listed = noted(kind, path) if before == one.archive["version"] else "/dev/null"
    return [*files, ["sh", "-c", _NOT_LISTED, one.directory, one.directory, listed]]


def _named(names: Sequence[str]) -> list[str]:
    """How find is told to look for one of several names."""
    first, *more = names
    return ["(", "-name", first, *(word for name in more for word in ("-o", "-name", name)), ")"]


def _directory(kind: Kind, path: str, version: str) -> str:
    return f"{path}/{kind.key}-{version}"


def _staging(kind: Kind, path: str) -> str:
    """Where it is unpacked: beside its place, so that it goes there in one step."""
    return f"{path}/.gpuwright-{kind.key}"


def noted(kind: Kind, path: str) -> str:
    """The list of what an archive brought."""
    return f"{paths.STATE}/{kind.key}-{path.rpartition('-')[2]}.files"


def _taking_out(kind: Kind, path: str, version: str) -> list[list[str]]:
    """Commands that take away what a cut left, the links that lead to ours, its header's first, and then the files that they lead to."""
    directory = _directory(kind, path, version)
    leads = ["-lname", f"{directory}/*", "-delete"]
    return [
        ["rm", "--recursive", "--force", _staging(kind, path)],
        ["find", f"{path}/include/", "-maxdepth", "1", "-name", paths.ARCHIVED[kind.key], *leads],
        *(
            ["find", f"{path}/{folder}/", "-maxdepth", "1", *_named(names), *leads]
            for _inside, folder, names in kind.folders
        ),
        ["sh", "-c", _TAKE_LISTED, directory, directory, noted(kind, path)],
    ]


def _record(one: One, state: str) -> File:
    path = one.archive["path"]
    content = {"path": path, "version": one.archive["version"], "state": state}
    return File(path=record(one.kind, path), content=f"{json.dumps(content, sort_keys=True)}\n", mode="0644")


def records(context: Context) -> list[str]:
    """The records of the wished ones that are there."""
    known = _recorded(context.facts)
    return [record(each.kind, each.archive["path"]) for each in of_stack(context.stack) if each.place in known]


def space(change: Change, context: Context) -> list[Need]:
    """What an archive takes, and its file for a while."""
    found = [each for each in coming(context) if each.directory in change["files"]]
    needs = [Need(each.directory, each.unpacked) for each in found]
    # One file may be for several toolkits.
    files = {each.archive["name"]: each.packed for each in found}
    return [*needs, Need(runfile.DIRECTORY, sum(files.values()))] if needs else []


# Taking back


def remnants(context: Context) -> list[ArchiveRemoval]:
    """What cuts left in toolkits of those that are no longer wished."""
    return [_removal(each) for each in _begun(context)]


def _begun(context: Context) -> list[ArchiveRecord]:
    wished = [each.place for each in of_stack(context.stack)]
    return [
        each for place, each in _recorded(context.facts).items() if each["state"] == "begun" and place not in wished
    ]


def _left(context: Context) -> list[str]:
    return [_directory(_KINDS[each["library"]], each["path"], each["version"]) for each in _begun(context)]


def take_back(facts: Facts) -> list[Finding]:
    """Those that were put into toolkits."""
    return [_going(_KINDS[key], path, each["version"]) for (key, path), each in _recorded(facts).items()]


def _going(kind: Kind, path: str, version: str) -> Finding:
    return Finding("remove", f"{kind.title} {version} in {path}", version, files=[_directory(kind, path, version)])


def removals(facts: Facts) -> list[ArchiveRemoval]:
    """How each of them goes."""
    return [_removal(each) for each in _recorded(facts).values()]


def _removal(each: ArchiveRecord) -> ArchiveRemoval:
    kind, path = _KINDS[each["library"]], each["path"]
    return {
        "path": path,
        "directory": _directory(kind, path, each["version"]),
        "take_out": _taking_out(kind, path, each["version"]),
        "records": [record(kind, path), noted(kind, path)],
    }
