# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role does: with the plan, and with each environment from what a look at it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.packages import environments

from ...model import shortfalls
from ...model.errors import StepRefused
from .. import package_calls
from . import contents

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.packages.environments import Environment, Said

    from ...model.plan import Plan
    from ...model.work import File, PackageCall
    from ..base import Context

# Everyone may read and run what root installs, and nobody else may write it, whatever root's own umask is.
_OPEN = ["/bin/sh", "-c", 'umask 022; exec "$@"', "sh"]
#: Exit statuses of a Python that lacks a module, and None where there is no such Python: nothing that a new one does not mend.
_LACKS = (1, None)


class Wished(TypedDict):
    """What an environment is to be. ``rebuild``: it is made anew whatever is in it."""

    path: str
    interpreter: str
    requirements: list[str]
    constraints: list[str]
    index_url: str | None
    loader_path: str | None
    rebuild: bool


class Line(TypedDict):
    """A line that a file has to have."""

    path: str
    line: str


class Activation(TypedDict):
    """What is set when an environment is activated. Without cuda-compat nothing is."""

    files: list[File]
    lines: list[Line]
    absent: list[str]


class EnvironmentWork(TypedDict):
    """The work on one environment, as far as the plan knows it.

    ``mark``: lies beside it while an installation is under way. Found at the start of a run, it says that the last one was cut off.
    ``maker``: the package that makes environments, where it is missing. ``remedy``: what is to be done about one that is not root's alone.
    """

    mark: File
    constraints: File
    activation: Activation
    maker: PackageCall
    remedy: str
    rebuild: bool


class FrameworksWork(TypedDict):
    """The work of the role: by the path of the environment."""

    environments: dict[str, EnvironmentWork]


class Found(TypedDict):
    """What is to be done with an environment, after a look at it.

    ``right``: nothing. ``unmet``: what it lacks or breaks. ``directories`` are made first. ``command`` makes it anew, empty where it stays;
    ``lacks_maker``: not without the package for it. ``activation``: whether there is something to do for that.
    """

    right: bool
    unmet: list[str]
    directories: list[str]
    command: list[str]
    lacks_maker: bool
    activation: bool


def begin(context: Context, plan: Plan) -> FrameworksWork:
    """The files and packages of each environment."""
    family = context.facts["os"]["family"]
    made: dict[str, EnvironmentWork] = {}
    for framework in context.stack.get("frameworks") or ():
        path = framework["path"]
        limits = "\n".join(framework.get("constraints") or ())
        made[path] = {
            "mark": _file(environments.mark(path), f"gpuwright installs {framework['name']} {framework['version']}\n"),
            "constraints": _file(f"{path}/gpuwright-constraints.txt", f"{limits}\n"),
            "activation": _activation(path, framework.get("loader_path")),
            "maker": package_calls.call(context, plan, [contents.maker(str(framework["interpreter"]), family)]),
            "remedy": (
                f"move {path} away, since whoever owned it may still have its files open; where a directory above it is a user's, "
                "name one of root's in frameworks_path; then run again."
            ),
            "rebuild": path in plan["rebuild"],
        }
    return {"environments": made}


def _file(path: str, content: str) -> File:
    return {"path": path, "content": content, "mode": "0644"}


def _activation(path: str, loader_path: str | None) -> Activation:
    """The directory of cuda-compat is put first where the environment is activated, and never for the machine: after an upgrade of the
    driver the old library would win and fail.
    """
    loader = f"{path}/{environments.LOADER_FILE}"
    if not loader_path:
        return {"files": [], "lines": [], "absent": [loader]}
    content = (
        "# By gpuwright: this environment's CUDA is newer than the driver's, and runs by way of cuda-compat.\n"
        f'export LD_LIBRARY_PATH="{loader_path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
    )
    line = f'[ ! -r "{loader}" ] || . "{loader}"'
    return {"files": [_file(loader, content)], "lines": [{"path": f"{path}/bin/activate", "line": line}], "absent": []}


def look(wished: Wished, seen: Environment) -> Found:
    """What is to be done with an environment. Raises StepRefused where something else lies in its place, or its Python is beyond asking."""
    path = wished["path"]
    _ours(path, seen)
    sound, unmet = _sound(wished, seen), _unmet(wished, seen)
    above = str(Path(path).parent)
    return {
        "right": sound and not unmet and _activated(wished, seen),
        "unmet": unmet,
        # Its own directory stays as it was where it is made anew: venv clears what is in it.
        "directories": [above] if sound else [above, path],
        # --clear: what is there is the rest of an installation that was cut off, or belongs to another interpreter.
        "command": [] if sound else [*_OPEN, seen["interpreter"], "-I", "-m", "venv", "--clear", path],
        "lacks_maker": not sound and _lacks(seen["maker"], f"{seen['interpreter']} to make environments"),
        "activation": bool(wished["loader_path"]) or (sound and seen["loader_file"]),
    }


def installed(wished: Wished, seen: Environment) -> Found:
    """The same after an installation. Raises StepRefused where the environment is not what it was to be."""
    path, loader = wished["path"], f"{wished['path']}/{environments.LOADER_FILE}"
    unmet = _unmet(wished, seen)
    if unmet:
        raise StepRefused(
            f"Expected {path} to have {', '.join(wished['requirements'])}. Found after pip said it was done, missing or different: "
            f"{', '.join(unmet)}. What to do: look whether the index {wished['index_url'] or 'of the host'} has these versions."
        )
    if not _activated(wished, seen):
        raise StepRefused(
            f"Expected {loader} to put {wished['loader_path'] or 'nothing'} first. Found {seen['loader_path'] or 'nothing'}. "
            "What to do: remove that file, then run again."
        )
    fits = seen["fits"]
    if fits and fits["rc"] != 0:
        raise StepRefused(
            f"Expected the packages of {path} to fit each other. Found, as its pip says: {fits['out']}. What to do: run again; "
            "where it stays so, ask for another release of the framework."
        )
    return {"right": True, "unmet": [], "directories": [], "command": [], "lacks_maker": False, "activation": False}


def _ours(path: str, seen: Environment) -> None:
    """Raise StepRefused where the place is not ours to fill. What has a mark beside it is what an earlier run left of an environment."""
    if seen["made"] or seen["unfinished"]:
        return
    if seen["place"] == "other" or seen["others"]:
        raise StepRefused(
            f"Expected {path} to be a virtual environment, or empty, or not there. Found {seen['others']} other files in it. "
            "What to do: move them away, or set frameworks_path to another directory."
        )


def _sound(wished: Wished, seen: Environment) -> bool:
    """Whether an environment is gone on with; any other is made anew."""
    return (
        not _lacks(seen["pip"], f"the Python of {wished['path']} to run its pip")
        and seen["made"]
        and not seen["unfinished"]
        and _python(seen["pip"]["out"]) == wished["interpreter"]
        and not contents.left_behind(wished["requirements"], seen["packages"])
        and not wished["rebuild"]
        and seen["as_locked"] is not False
    )


def _python(words: str) -> str | None:
    """The Python of a pip, which answers "pip 25.1 from /path (python 3.12)"."""
    found = re.search(r"\(python ([0-9.]+)\)", words)
    return found[1] if found else None


def _lacks(said: Said, asked: str) -> bool:
    """Whether a Python cannot do what it was asked for. Raises StepRefused where it says neither."""
    if said["rc"] not in (0, *_LACKS):
        raise StepRefused(
            f"Expected {asked}, or not to be able to. Found: {said['out'] or 'nothing said'}. "
            "What to do: look why it ended so, and run again."
        )
    return said["rc"] in _LACKS


def _unmet(wished: Wished, seen: Environment) -> list[str]:
    """What an environment lacks or breaks. Raises StepRefused for a requirement that is none."""
    try:
        return shortfalls.in_environment(wished["requirements"], seen["packages"], wished["constraints"])
    except ValueError as error:
        raise StepRefused(str(error)) from None


def _activated(wished: Wished, seen: Environment) -> bool:
    return (seen["loader_path"] or "") == (wished["loader_path"] or "")
