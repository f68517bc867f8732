# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cuDNN as NVIDIA's archive inside a toolkit: unpacked into a directory of its own there, to which links among the toolkit's files lead.

A record beside our settings says that it is ours, and whether it is whole: what was cut off is known by it and made anew. What somebody
copied among the toolkit's files is never replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.plan import ArchiveRemoval
from ...model.work import File
from ..base import Context, Finding, Need, missing_packages
from . import runfile

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import ArchiveRecord, Facts

    from ...model.plan import Change, Plan
    from ...model.stack import CudnnArchive, Stack

#: Directories of toolkits that one is put into. A record that names another one is not believed.
_TOOLKIT = re.compile(r"/usr/local/cuda-\d{1,3}\.\d{1,3}", re.ASCII)
#: What unpacks it, by package manager.
_TOOLS = {"apt": "xz-utils", "dnf": "xz"}
#: Where its files are to be found, in the archive and, by links, in the toolkit.
_FOLDERS = {"include": "include", "lib": "lib64"}
_GIB = 1024**3
_FILE, _UNPACKED = 1 * _GIB, 3 * _GIB


class Placing(TypedDict):
    """An archive that the role puts into a toolkit.

    ``file``: where it is fetched to. ``take_out``: commands that take away what was there of ours; ``directory``: where it is unpacked by
    ``unpack``; ``link``: commands that lead to its files from the toolkit's; ``places``: where nothing of somebody else's may be.
    """

    path: str
    name: str
    file: str
    addresses: list[str]
    sha256: str
    take_out: list[list[str]]
    directory: str
    unpack: list[str]
    places: list[str]
    link: list[list[str]]
    begun: File
    done: File


def of_stack(stack: Stack) -> Sequence[CudnnArchive]:
    """The archives that are wished."""
    library = stack.get("cudnn")
    return (library.get("archives") or ()) if library else ()


def record(path: str) -> str:
    """The record of a toolkit's cuDNN."""
    return f"{paths.SETTINGS}/cudnn-{path.rpartition('-')[2]}.json"


def _recorded(facts: Facts) -> Mapping[str, ArchiveRecord]:
    """The records by directory of the toolkit, without those that name what is no toolkit's."""
    return {each["path"]: each for each in facts["cuda"]["archives"] if _TOOLKIT.fullmatch(each["path"])}


def coming(context: Context, plan: Plan | None = None) -> list[CudnnArchive]:
    """The archives that are to be put into their toolkits; where a file makes a toolkit anew, its archive is lost with the old one."""
    known, anew = _recorded(context.facts), _made_anew(context, plan)
    return [
        each for each in of_stack(context.stack) if each["path"] in anew or not _is_there(known.get(each["path"]), each)
    ]


def _made_anew(context: Context, plan: Plan | None) -> list[str]:
    return [toolkit["path"] for toolkit, _file in runfile.coming(context, plan)]


def displaced(context: Context, plan: Plan) -> list[list[str]]:
    """What takes ours out of toolkits that files make anew: their place has to be empty."""
    anew = _made_anew(context, plan)
    return [command for path in _recorded(context.facts) if path in anew for command in _taking_out(path)]


def _is_there(known: ArchiveRecord | None, archive: CudnnArchive) -> bool:
    return known is not None and (known["state"], known["version"]) == ("done", archive["version"])


def tools(context: Context, plan: Plan | None = None) -> list[str]:
    """What unpacks those that come."""
    manager = context.facts["packages"]["manager"]
    return [_TOOLS[manager]] if manager in _TOOLS and coming(context, plan) else []


def findings(context: Context) -> list[Finding]:
    found = [_finding(context, each) for each in coming(context)]
    left = _left(context)
    reason = "what is left of a cuDNN that was cut off is no longer wished"
    return found + ([Finding("repair", reason, files=left)] if left else [])


def _finding(context: Context, archive: CudnnArchive) -> Finding:
    path, version = archive["path"], archive["version"]
    known, missing = _recorded(context.facts).get(path), missing_packages(context, tools(context))
    files = [_directory(path, version)]
    if known is None:
        return Finding("install", f"no cuDNN of ours is in {path}", None, version, packages=missing, files=files)
    if known["state"] == "begun":
        reason = f"cuDNN was put into {path} only in part"
        return Finding("repair", reason, None, version, packages=missing, files=files)
    reason = f"the cuDNN in {path} is {known['version']}, wished is {version}"
    return Finding("upgrade", reason, known["version"], version, packages=missing, files=files)


def placings(context: Context, plan: Plan) -> list[Placing]:
    """What the role does, archive by archive."""
    return [_placing(each) for each in coming(context, plan)]


def _placing(archive: CudnnArchive) -> Placing:
    path, directory = archive["path"], _directory(archive["path"], archive["version"])
    file = f"{runfile.DIRECTORY}/{archive['name']}"
    return {
        "path": path,
        "name": archive["name"],
        "file": file,
        "addresses": list(archive["addresses"]),
        "sha256": archive["sha256"],
        "take_out": _taking_out(path),
        "directory": directory,
        "unpack": ["tar", "--extract", "--xz", f"--file={file}", f"--directory={directory}", "--strip-components=1", "--no-same-owner"],
        "places": [f"{path}/{folder}/" for folder in _FOLDERS.values()],
        "link": [
            ["find", f"{directory}/{inside}/", "-mindepth", "1", "-maxdepth", "1",
             "-exec", "ln", "--symbolic", f"--target-directory={path}/{folder}/", "{}", "+"]
            for inside, folder in _FOLDERS.items()
        ],
        "begun": _record(archive, "begun"),
        "done": _record(archive, "done"),
    }  # fmt: skip


def _directory(path: str, version: str) -> str:
    return f"{path}/cudnn-{version}"


def _taking_out(path: str) -> list[list[str]]:
    """Commands that take away the links that lead to ours, then the directories that they lead to."""
    places = [f"{path}/{folder}/" for folder in _FOLDERS.values()]
    return [
        ["find", *places, "-maxdepth", "1", "-lname", f"{path}/cudnn-*", "-delete"],
        ["find", f"{path}/", "-maxdepth", "1", "-name", "cudnn-*", "-exec", "rm", "--recursive", "--force", "{}", "+"],
    ]


def _record(archive: CudnnArchive, state: str) -> File:
    content = {"path": archive["path"], "version": archive["version"], "state": state}
    return File(path=record(archive["path"]), content=f"{json.dumps(content, sort_keys=True)}\n", mode="0644")


def records(context: Context) -> list[str]:
    """The records of the wished ones that are there."""
    known = _recorded(context.facts)
    return [record(each["path"]) for each in of_stack(context.stack) if each["path"] in known]


def space(change: Change, context: Context) -> list[Need]:
    """What an archive takes, and its file for a while."""
    left = _left(context)
    found = [path for path in change["files"] if _TOOLKIT.fullmatch(path.rpartition("/cudnn-")[0]) and path not in left]
    needs = [Need(path, _UNPACKED) for path in found]
    return [*needs, Need(runfile.DIRECTORY, _FILE)] if needs else []


# Taking back


def remnants(context: Context) -> list[ArchiveRemoval]:
    """What cuts left in toolkits of those that are no longer wished."""
    known = _recorded(context.facts)
    wished = [each["path"] for each in of_stack(context.stack)]
    return [
        each
        for each in removals(context.facts)
        if known[each["path"]]["state"] == "begun" and each["path"] not in wished
    ]


def _left(context: Context) -> list[str]:
    known = _recorded(context.facts)
    return [_directory(each["path"], known[each["path"]]["version"]) for each in remnants(context)]


def take_back(facts: Facts) -> list[Finding]:
    """Those that were put into toolkits."""
    return [
        Finding(
            "remove", f"cuDNN {each['version']} in {path}", each["version"], files=[_directory(path, each["version"])]
        )
        for path, each in _recorded(facts).items()
    ]


def removals(facts: Facts) -> list[ArchiveRemoval]:
    """How each of them goes."""
    return [{"path": path, "take_out": _taking_out(path), "record": record(path)} for path in _recorded(facts)]
