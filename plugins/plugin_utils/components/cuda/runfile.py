# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Toolkits that come from a file of NVIDIA's each: what is not as wished, how it is brought, and taken away again.

A record beside our settings says of each directory that it is ours, and whether its installer ended. Until it has, what it makes lies in a
directory of ours alone, which only the installer sees at the place of the toolkit: what a cut leaves is known, whatever comes to that place
meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, paths

from ...model.errors import StepRefused
from ...model.plan import ToolkitRemoval
from ...model.work import File
from ..base import Context, Finding, Need, missing_packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, ToolkitRecord

    from ...model.plan import Change, Plan
    from ...model.stack import Stack
    from ...rules import Rules
    from .model import CudaToolkit, ToolkitFile

#: Where a file lies until its toolkit is there, and what it unpacks meanwhile.
DIRECTORY = paths.FETCHED
#: Directories that a file brings. A record that names another one is not believed.
_TOOLKIT = re.compile(r"/usr/local/cuda-\d{1,3}\.\d{1,3}", re.ASCII)
#: As two public scripts call it; the guide names the program only.
_UNINSTALLER, _SILENT = "bin/cuda-uninstaller", "--silent"
#: Runs a program to which the first directory is where the second one is, which everybody else sees as it was.
_SEEN_ELSEWHERE = ("unshare", "--mount", "sh", "-ec", 'mount --bind "$1" "$2"; shift 2; exec "$@"', "sh")
#: Names that a person is told.
_NAMED = 8
_GIB = 1024**3


class Contents(TypedDict):
    """What is in a toolkit's directory, without what our archives put there.

    ``noted``: where it is kept what the installer brought, and ``note``, which writes that of a new one. ``look`` lists what is there by
    now, and ``others`` prints what of it the installer did not bring.
    """

    noted: str
    note: list[str]
    look: list[str]
    others: list[str]


class Installation(TypedDict):
    """A toolkit that the role brings by its file.

    ``file``: where the file is put; ``addresses`` that have it, or ``local``, where it lies on the node already (None where it does not).
    ``uninstall``: the program that takes another release away first, or nothing. ``staging``: the directory that the installer fills, which
    then takes its place. ``command``: the installer with its arguments; ``temporary``: where it unpacks itself. ``begun`` and ``done``: the
    record of ours. ``contents``: how it is known that nobody else has something in the directory of a toolkit that is uninstalled.
    """

    path: str
    name: str
    file: str
    addresses: list[str]
    local: str | None
    sha256: str
    uninstall: list[str]
    staging: str
    command: list[str]
    temporary: str
    begun: File
    done: File
    contents: Contents


def record(path: str) -> str:
    """The record of a toolkit's directory."""
    return f"{paths.SETTINGS}/{path.rpartition('/')[2]}.json"


def _staging(path: str) -> str:
    """Where a toolkit is made: beside its place, so that it goes there in one step."""
    folder, _slash, name = path.rpartition("/")
    return f"{folder}/.gpuwright-{name}"


def _recorded(facts: Facts) -> Mapping[str, ToolkitRecord]:
    """The records by directory, without those that name what is no toolkit's."""
    return {each["path"]: each for each in facts["cuda"]["runfiles"] if _TOOLKIT.fullmatch(each["path"])}


def _ours(facts: Facts) -> Mapping[str, ToolkitRecord]:
    """The records of toolkits that are in their place, and that no package put something into."""
    return {path: each for path, each in _recorded(facts).items() if each["state"] == "done" and not each["packaged"]}


def _there(facts: Facts, path: str) -> str | None:
    """The release of the toolkit in a directory."""
    return next((each["version"] for each in facts["cuda"]["toolkits"] or () if each["path"] == path), None)


def is_there(facts: Facts, toolkit: CudaToolkit) -> bool:
    """Whether a toolkit of the wished version is whole, whoever brought it."""
    there, known = _there(facts, toolkit["path"]), _recorded(facts).get(toolkit["path"])
    wished = toolkit.get("release") or toolkit["version"]
    return there is not None and numeric_version.belongs(there, wished) and not (known and known["state"] == "begun")


def of_stack(stack: Stack) -> list[tuple[CudaToolkit, ToolkitFile]]:
    """The toolkits that files bring, with their files."""
    return [(each, each["runfile"]) for each in stack.get("cuda") or () if "runfile" in each]


def coming(context: Context, plan: Plan | None = None) -> list[tuple[CudaToolkit, ToolkitFile]]:
    """Those of them that are to be brought: what is not there, and what a plan moves to a newer release."""
    moved = [
        path
        for change in (plan["changes"] if plan else ())
        if (change["component"], change["action"]) == ("cuda", "upgrade")
        for path in change["files"]
    ]
    return [
        pair for pair in of_stack(context.stack) if pair[0]["path"] in moved or not is_there(context.facts, pair[0])
    ]


def tools(context: Context, plan: Plan) -> list[str]:
    """What the installers need that come."""
    return list(dict.fromkeys(name for toolkit, _file in coming(context, plan) for name in toolkit["packages"]))


def newer(context: Context) -> Finding | None:
    """The toolkits of ours of which there is a file of a newer release: an upgrade moves them."""
    known, old = _ours(context.facts), []
    for toolkit, file in of_stack(context.stack):
        there = _there(context.facts, toolkit["path"])
        if there and toolkit["path"] in known and not numeric_version.at_least(there, file["release"]):
            old.append((toolkit["path"], there, file["release"]))
    if not old:
        return None
    path, before, after = old[0]
    more = f" and {len(old) - 1} more" if len(old) > 1 else ""
    reason = f"the toolkit in {path} is {before}, NVIDIA's file has {after}{more}"
    return Finding("upgrade", reason, before, after, files=[each[0] for each in old])


def findings(context: Context) -> list[Finding]:
    found = [_finding(context, toolkit, file) for toolkit, file in coming(context)]
    left = [each["path"] for each in remnants(context)]
    reason = "the record of a toolkit is there that gpuwright did not bring to its end, or that packages replaced"
    return found + ([Finding("repair", reason, files=left)] if left else [])


def _finding(context: Context, toolkit: CudaToolkit, file: ToolkitFile) -> Finding:
    path, release = toolkit["path"], file["release"]
    missing, there = missing_packages(context, toolkit["packages"]), _there(context.facts, path)
    known = _recorded(context.facts).get(path)
    if known and known["state"] != "done":
        reason = f"the installation of the toolkit in {path} was cut off"
        return Finding("repair", reason, there, release, packages=missing, files=[path])
    if there is not None:
        reason = f"the toolkit in {path} is {there}, wished is {release}"
        return Finding("upgrade", reason, there, release, packages=missing, files=[path])
    reason = f"no toolkit is in {path}, {file['name']} is wished"
    return Finding("install", reason, None, release, packages=missing, files=[path])


def refuse(context: Context) -> None:
    """Raise StepRefused where a toolkit would have to go of which it is not known that it is ours."""
    known = _ours(context.facts)
    for toolkit, file in coming(context):
        path, there = toolkit["path"], _there(context.facts, toolkit["path"])
        if there and path not in known:
            raise StepRefused(
                f"Expected CUDA {file['release']} or nothing in {path}. Found CUDA {there}, which gpuwright did not bring, "
                "or not to its end. Nothing was changed. What to do: take it away as it came (its packages, or "
                f"{path}/{_UNINSTALLER}), or wish CUDA {there}, then run again."
            )
        if there and known[path]["packaged"] is None:
            raise StepRefused(
                f"Expected to know whether packages put something into {path}. Found that their manager did not tell. Nothing was changed. "
                f"What to do: see why `dpkg-query --search '{path}/*'` or `rpm -qf {path}` does not answer, then run again."
            )


def installations(context: Context, plan: Plan) -> list[Installation]:
    """What the role does, toolkit by toolkit."""
    return [_installation(context, toolkit, file) for toolkit, file in coming(context, plan)]


def _installation(context: Context, toolkit: CudaToolkit, file: ToolkitFile) -> Installation:
    path, (address, *_others) = toolkit["path"], file["addresses"]
    temporary, staging = f"{DIRECTORY}/unpacked", _staging(path)
    kept = f"{DIRECTORY}/{file['name']}"
    return {
        "path": path,
        "name": file["name"],
        "file": kept,
        "addresses": list(file["addresses"]),
        "local": address if address.startswith("/") else None,
        "sha256": file["sha256"],
        "uninstall": uninstaller(path) if path in _ours(context.facts) and _there(context.facts, path) else [],
        "staging": staging,
        "command": [
            *(*_SEEN_ELSEWHERE, staging, path),
            *("sh", kept, *file["arguments"], f"--toolkitpath={path}", f"--tmpdir={temporary}"),
        ],
        "temporary": temporary,
        "begun": _record(path, file, "staged"),
        "done": _record(path, file, "done"),
        "contents": contents(path, _archives(context.facts, path)),
    }


def _archives(facts: Facts, path: str) -> list[str]:
    """The directories of libraries that our archives put into a toolkit."""
    return [f"{path}/{each['library']}-{each['version']}" for each in facts["cuda"]["archives"] if each["path"] == path]


def _record(path: str, file: ToolkitFile, state: str) -> File:
    content = json.dumps({"path": path, "release": file["release"], "state": state}, sort_keys=True)
    return File(path=record(path), content=f"{content}\n", mode="0644")


def contents(path: str, archives: Sequence[str], state: str = paths.STATE) -> Contents:
    """How it is told what of a toolkit's directory its installer brought; ``archives``: directories in it that archives of ours brought.

    NVIDIA's own list is not relied upon: nothing public tells its form.
    """
    noted, there = f"{state}/{path.rpartition('/')[2]}.files", f"{state}/cuda/there"
    return {
        "noted": noted,
        "note": _listing(_staging(path), noted),
        "look": _listing(path, there, archives),
        "others": [
            *("grep", "--text", "--line-regexp", "--fixed-strings", "--invert-match"),
            *(f"--max-count={_NAMED}", f"--file={noted}", there),
        ],
    }


def _listing(path: str, file: str, without: Sequence[str] = ()) -> list[str]:
    """The command that writes into a file what is in a directory, but for directories ``without`` which, and links into them."""
    left_out = [
        word for each in without for test in (["-path", each], ["-lname", f"{each}/*"]) for word in ("-o", *test)
    ]
    pruned = ["(", *left_out[1:], ")", "-prune", "-o"] if left_out else []
    return ["find", f"{path}/", "-mindepth", "1", *pruned, "-fprintf", file, "%P\\n"]


def uninstaller(path: str) -> list[str]:
    """The program that takes a toolkit away, as its file left it there."""
    return [f"{path}/{_UNINSTALLER}", _SILENT]


def records(context: Context) -> list[str]:
    """The records of the wished toolkits that are ours."""
    known = _recorded(context.facts)
    return [record(toolkit["path"]) for toolkit, _file in of_stack(context.stack) if toolkit["path"] in known]


def space(change: Change, context: Context, rules: Rules) -> list[Need]:
    """What a toolkit takes, and its file with what it unpacks for a while."""
    (size,) = rules["cuda_runfile"]["sizes"]
    left = [each["path"] for each in remnants(context)]
    toolkits = [path for path in change["files"] if _TOOLKIT.fullmatch(path) and path not in left]
    needs = [Need(path, size["toolkit"] * _GIB) for path in toolkits]
    return [*needs, Need(DIRECTORY, (size["file"] + size["unpacked"]) * _GIB)] if needs else []


# Taking back


def remnants(context: Context) -> list[ToolkitRemoval]:
    """What cuts left of toolkits that no file is to bring any more, and records of ours where packages brought a toolkit since."""
    known, again = _recorded(context.facts), [toolkit["path"] for toolkit, _file in coming(context)]
    left = [path for path, each in known.items() if each["state"] != "done" or each["packaged"]]
    return [each for each in removals(context.facts) if each["path"] in left and each["path"] not in again]


def take_back(facts: Facts) -> list[Finding]:
    """Toolkits that files brought."""
    return [
        Finding("remove", f"the toolkit in {path}, by its own uninstaller", _there(facts, path), files=[path])
        for path in _recorded(facts)
    ]


def removals(facts: Facts) -> Sequence[ToolkitRemoval]:
    """How each of them goes. What is in the place of one that did not come to its end, or into which packages put something, stays."""
    ours = {path: each for path, each in _ours(facts).items() if each["packaged"] is False}
    return [
        {
            "path": path,
            "record": record(path),
            "uninstall": uninstaller(path) if path in ours and _there(facts, path) else [],
            "staging": _staging(path),
            "registered": path in ours and path in facts["cuda"]["default"]["registered"],
        }
        for path, each in _recorded(facts).items()
        # Of one that is not known the record stays, and the work with it.
        if each["state"] != "done" or each["packaged"] is not None
    ]
