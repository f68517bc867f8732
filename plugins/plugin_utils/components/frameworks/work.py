# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role does: with the plan, and with each environment from what a look at it says."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import words
from ansible_collections.gpuwright.node.plugins.module_utils.observe import environment_builds
from ansible_collections.gpuwright.node.plugins.module_utils.packages import environments

from ...model import sections, shortfalls
from ...model.errors import StepRefused
from ...rules import load_rules
from .. import package_calls
from . import contents, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.gpuwright.node.plugins.module_utils.packages.environments import (
        Contents,
        Environment,
        Said,
    )

    from ...model.plan import Plan
    from ...model.work import File, PackageCall
    from ..base import Context
    from .model import FrameworkEnvironment, LockedWheel

# Everyone may read and run what root installs, and nobody else may write it, whatever root's own umask is.
_OPEN = ["/bin/sh", "-c", 'umask 022; exec "$@"', "sh"]
_STAYS = "_gpuwright_stays"
_STAYS_PROGRAM = '''\
"""By gpuwright: a process stays in the build in which it was started, when the path of its environment comes to lead to another one."""

import os
import sys

_NAMED, _REAL = sys.prefix, os.path.realpath(sys.prefix)


def _there(path):
    inside = isinstance(path, str) and (path == _NAMED or path.startswith(_NAMED + os.sep))
    return _REAL + path[len(_NAMED):] if inside else path


def stay():
    """Called once for each directory of packages, of which some systems have two."""
    sys.path[:] = [_there(path) for path in sys.path]
    for name in ("executable", "prefix", "exec_prefix"):
        setattr(sys, name, _there(getattr(sys, name)))
'''
#: Exit statuses of a Python that lacks a module, and None where there is no such Python: nothing that a new one does not mend.
_LACKS = (1, None)


class Wished(TypedDict):
    """What an environment is to be. ``rebuild``: it is made anew whatever is in it; ``restores``: the build before comes back. ``user``: it
    is made without root, so no package is installed for it: where its Python has no ensurepip, uv brings pip into it.
    """

    path: str
    interpreter: str
    requirements: list[str]
    constraints: list[str]
    index_url: str | None
    loader_path: str | None
    rebuild: bool
    restores: bool
    user: bool


class Line(TypedDict):
    """A line that a file of an environment has to have."""

    path: str
    line: str


class Activation(TypedDict):
    """What is set when an environment is activated, in files of it. Without cuda-compat nothing is."""

    files: list[File]
    lines: list[Line]
    absent: list[str]


class Uv(TypedDict):
    """The uv that a node may bring from its own Python index: its version, the SHA-256 of its wheels, and its directory beside a build."""

    version: str
    sha256: list[str]
    directory: str


class Installation(TypedDict):
    """One call of the module `wheels`."""

    requirements: list[str]
    constraints: list[str]
    wheels: list[LockedWheel]
    index_url: str | None
    dependencies_url: str | None
    from_source: list[str]


class EnvironmentWork(TypedDict):
    """The work on one environment, as far as the plan knows it. Paths are below its build.

    ``row``: the environment as the stack has it. ``holds``: all that it is asked for, as pip takes it. ``installs``: what pip is asked
    for, one after the other. ``kernel``: its Jupyter kernel. ``owned``: what has to be root's alone. ``remedy``: what is to be done about
    one that is not. ``user``: whether it is a user's. ``maker``: the package that makes environments, where it is missing. ``time``: of
    the look that the change was planned from.
    """

    row: FrameworkEnvironment
    title: str
    holds: list[str]
    installs: list[Installation]
    kernel: kernels.Kernel
    owned: list[str]
    remedy: str
    maker: PackageCall
    files: list[File]
    activation: Activation
    rebuild: bool
    restores: bool
    user: bool
    time: str


class FrameworksWork(TypedDict):
    """The work of the role: by the path of the environment. ``uv``: what builds them where it can be had."""

    environments: dict[str, EnvironmentWork]
    uv: Uv


class Found(TypedDict):
    """What is to be done with an environment, after a look at it.

    ``action``: ``none``, ``activate`` (it is right but for its activation), ``return`` (the build that was in use before is what is
    wished), ``build`` or, after that, ``swap``. ``unmet``: what it lacks or breaks. ``command`` makes a build, with the build's path after
    it; ``lacks_maker``: not without the package for it. ``keep``: whether what is in use is worth to be kept. ``tidy``: whether a build
    that was cut off left something that nothing else takes away.
    """

    action: str
    unmet: list[str]
    command: list[str]
    lacks_maker: bool
    keep: bool
    tidy: bool


def begin(context: Context, plan: Plan) -> FrameworksWork:
    """The files and packages of each environment."""
    family = context.facts["os"]["family"]
    user = sections.user(context.facts)
    whose, other = ("root's", "a user's") if user is None else ("your own", "somebody else's")
    made: dict[str, EnvironmentWork] = {}
    for framework in contents.environments(context.stack):
        path = framework["path"]
        limits = "\n".join(framework.get("constraints") or ())
        made[path] = {
            "row": framework,
            "title": contents.titles(path, context.stack),
            "holds": [*framework["requirements"], *(framework.get("others") or ())],
            "installs": installations(framework, plan["builds"].get(path, ())),
            # Where all users' kernels are, a user without root has none.
            "kernel": kernels.work(framework) if user is None else kernels.NOTHING,
            "owned": [path, environment_builds.directory(path)],
            "maker": package_calls.call(context, plan, [contents.maker(str(framework["interpreter"]), family)]),
            "files": [_file("gpuwright-constraints.txt", f"{limits}\n"), *_place(str(framework["interpreter"]))],
            "activation": _activation(path, framework.get("loader_path")),
            "remedy": (
                f"move {path} away, since whoever owned it may still have its files open; where a directory above it is {other}, "
                f"name one of {whose} in frameworks_path; then run again."
            ),
            "rebuild": path in plan["rebuild"],
            "restores": bool(framework.get("restores")),
            "user": user is not None,
            "time": context.facts["time"],
        }
    return {"environments": made, "uv": uv()}


def uv() -> Uv:
    """What builds environments, as the tables name it."""
    rows = load_rules()["frameworks"]["builders"]
    sha256 = [str(row["sha256"]) for row in rows]
    return {"version": str(rows[0]["version"]), "sha256": sha256, "directory": environment_builds.ASIDE}


def installations(framework: FrameworkEnvironment, builds: Sequence[str] = ()) -> list[Installation]:
    """What is installed, one after the other: each framework from the index that it belongs to, then what a project requires besides.

    Each is held to the pins and limits of all of them, so that none takes away what another one needs. What a lock names comes at once.
    ``builds``: what is built from its source because a person asked for it; it is needed by what comes last.
    """
    limits, others = list(framework.get("constraints") or ()), list(framework.get("others") or ())
    locked, several = framework.get("wheels"), contents.installs(framework)
    if locked:
        first, *rest = contents.indexes(framework) or [""]
        built = [name for each in several for name in each.get("from_source") or ()]
        return [
            _installation([*framework["requirements"], *others], [], first, rest[0] if rest else None, built, locked)
        ]
    if len(several) > 1 or others:
        limits += [contents.limit(each) for each in (*framework["requirements"], *others) if contents.limit(each)]
    found = [
        _installation(
            each["requirements"], limits, each.get("index_url"), each.get("dependencies_url"), each.get("from_source")
        )
        for each in several
    ]
    found += [_installation(others, limits, contents.public_index(framework))] if others else []
    found[-1]["from_source"] += builds
    return found


def _installation(
    requirements: list[str],
    constraints: list[str],
    index: str | None,
    dependencies: str | None = None,
    from_source: list[str] | None = None,
    locked: list[LockedWheel] | None = None,
) -> Installation:
    return {
        "requirements": requirements,
        "constraints": constraints,
        "wheels": locked or [],
        "index_url": index or None,
        "dependencies_url": dependencies,
        "from_source": list(from_source or ()),
    }


def _file(path: str, content: str) -> File:
    return {"path": path, "content": content, "mode": "0644"}


def _place(python: str) -> list[File]:
    """What has a process stay in the build in which it was started: see the program."""
    packages = f"lib/python{python}/site-packages"
    return [
        _file(f"{packages}/{_STAYS}.py", _STAYS_PROGRAM),
        _file(f"{packages}/{_STAYS}.pth", f"import {_STAYS}; {_STAYS}.stay()\n"),
    ]


def _activation(path: str, loader_path: str | None) -> Activation:
    """The directory of cuda-compat is put first where the environment is activated, and never for the machine: after an upgrade of the
    driver the old library would win and fail.
    """
    loader = f"{path}/{environments.LOADER_FILE}"
    if not loader_path:
        return {"files": [], "lines": [], "absent": [environments.LOADER_FILE]}
    content = (
        "# By gpuwright: this environment's CUDA is newer than the driver's, and runs by way of cuda-compat.\n"
        f'export LD_LIBRARY_PATH="{loader_path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
    )
    line = f'[ ! -r "{loader}" ] || . "{loader}"'
    return {
        "files": [_file(environments.LOADER_FILE, content)],
        "lines": [{"path": "bin/activate", "line": line}],
        "absent": [],
    }


def look(wished: Wished, seen: Environment) -> Found:
    """What is to be done with an environment. Raises StepRefused where something else lies in its place, or its Python is beyond asking."""
    path = wished["path"]
    _ours(path, seen)
    unmet = _unmet(wished, seen)
    action = _action(wished, seen, met=not wished["rebuild"] and _sound(wished, seen) and not unmet)
    makes = [*_OPEN, seen["interpreter"], "-I", "-m", "venv", "--prompt", PurePosixPath(path).name]
    lacks = action == "build" and _lacks(seen["maker"], f"{seen['interpreter']} to make environments")
    if lacks and wished["user"]:
        makes.append("--without-pip")
    return {
        "action": action,
        "unmet": unmet,
        "command": makes if action == "build" else [],
        "lacks_maker": lacks and not wished["user"],
        # One that is broken is nothing to return to.
        "keep": _works(path, seen) and not wished["rebuild"],
        # A new build begins with it.
        "tidy": seen["debris"] and action != "build",
    }


def _action(wished: Wished, seen: Environment, *, met: bool) -> str:
    if wished["restores"]:
        if not _is_kept(wished, seen):
            raise StepRefused(
                f"Expected the build of {wished['path']} that was in use before to be kept and whole. Found "
                f"{'one that is not as it was planned' if seen['kept'] else 'none'}. It was left as it is. What to do: wish the release "
                "that you want, and run gpuwright up."
            )
        return "return"
    if met:
        return "none" if _activated(wished, seen) else "activate"
    return "return" if _is_kept(wished, seen) else "build"


def _is_kept(wished: Wished, seen: Environment) -> bool:
    """Whether the build that was in use before is what is wished."""
    kept = seen["kept"]
    return bool(kept and _sound(wished, kept) and not _unmet(wished, kept) and _activated(wished, kept))


def installed(wished: Wished, seen: Environment) -> Found:
    """The same of a build that is ready. Raises StepRefused where it is not what it was to be."""
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
    return {"action": "swap", "unmet": [], "command": [], "lacks_maker": False, "keep": True, "tidy": False}


def _ours(path: str, seen: Environment) -> None:
    """Raise StepRefused where the place is not ours to fill. What has a mark beside it is what an earlier run left of an environment."""
    if seen["made"] or seen["unfinished"] or seen["place"] == "build":
        return
    if seen["place"] == "other" or seen["others"]:
        raise StepRefused(
            f"Expected {path} to be a virtual environment, or empty, or not there. "
            f"Found {words.count(seen['others'], 'other files')} in it. "
            "What to do: move them away, or set frameworks_path to another directory."
        )


def _works(path: str, seen: Contents) -> bool:
    """Whether an environment, or a build of it, is whole and runs."""
    return not _lacks(seen["pip"], f"the Python of {path} to run its pip") and seen["made"] and not seen["unfinished"]


def _sound(wished: Wished, seen: Contents) -> bool:
    """Whether an environment, or a build of it, works, and has the Python and nothing but the wheels that are wished."""
    return (
        _works(wished["path"], seen)
        and _python(seen["pip"]["out"]) == wished["interpreter"]
        and not contents.left_behind(wished["requirements"], seen["packages"])
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


def _unmet(wished: Wished, seen: Contents) -> list[str]:
    """What an environment lacks or breaks. Raises StepRefused for a requirement that is none."""
    try:
        return shortfalls.in_environment(wished["requirements"], seen["packages"], wished["constraints"])
    except ValueError as error:
        raise StepRefused(str(error)) from None


def _activated(wished: Wished, seen: Contents) -> bool:
    return (seen["loader_path"] or "") == (wished["loader_path"] or "")
