# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual environment as its installation needs to know it: whether its pip runs, whether it was cut off, what lies in its place."""

from __future__ import annotations

import os
import stat
from typing import Callable, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import environment_builds, python_envs
from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels

LOADER_FILE = "gpuwright-cuda-compat.sh"
"""File in an environment that puts the libraries of cuda-compat first where the environment is activated."""

# A first import from a slow disk takes a minute and more.
_TIMEOUT = 600.0

Runner = Callable[..., Result]


class Options(TypedDict):
    """The options of the module. ``installed``: whether its pip is asked which packages do not fit each other."""

    path: str
    interpreter: str
    wheels: list[wheels.LockedWheel]
    installed: bool


class Said(TypedDict):
    """What became of a program: its exit status, None where it could not be started; what it said, or why it did not."""

    rc: int | None
    out: str


class Contents(TypedDict):
    """What is in an environment, or in a build of it.

    ``made``: it has its configuration. ``unfinished``: an installation into it was cut off. ``as_locked``: whether it is made of the wheels
    of the lock, None where none is asked for. ``pip``: the words of its pip.
    """

    made: bool
    unfinished: bool
    packages: dict[str, str]
    loader_path: str | None
    as_locked: bool | None
    pip: Said


class Environment(Contents):
    """An environment, or what lies in its place.

    ``place``: what its path is. ``others``: how many files lie there where it has no configuration. ``loader_file``: whether ours is there,
    whatever it says. ``interpreter``: the Python that would make it. ``maker``: whether that one can. ``fits``: what pip says of packages
    that do not fit each other, None where it was not asked. ``kept``: the build of it that was in use before, None where none is.
    ``debris``: whether a build that was cut off left something.
    """

    place: str
    others: int
    loader_file: bool
    interpreter: str
    maker: Said
    fits: Said | None
    kept: Contents | None
    debris: bool


def look(options: Options, host: Host | None = None, run: Runner = run_module.run) -> Environment:
    """Look at the environment ``options["path"]`` for a Python of the version ``options["interpreter"]``; nothing is changed."""
    host, path = host or Host(), options["path"]
    builds = environment_builds.look(host, path)
    contents = _contents(path, options, host, run)
    place = "build" if builds.current else _place(path)
    interpreter = _interpreter(host, options["interpreter"])
    return {
        **contents,
        "place": place,
        "others": len(os.listdir(path)) if place == "directory" and not contents["made"] else 0,
        "loader_file": os.path.lexists(os.path.join(path, LOADER_FILE)),
        "interpreter": interpreter,
        "maker": _said(run([interpreter, "-I", "-c", "import ensurepip, venv"], timeout=_TIMEOUT)),
        "fits": _said(run(pip(path, "check"), timeout=_TIMEOUT)) if options["installed"] else None,
        "kept": _contents(builds.at(builds.kept), options, host, run) if builds.kept else None,
        "debris": bool(builds.debris),
    }


def _contents(path: str, options: Options, host: Host, run: Runner) -> Contents:
    return {
        "made": os.path.lexists(os.path.join(path, "pyvenv.cfg")),
        "unfinished": os.path.lexists(environment_builds.mark(path)),
        "packages": python_envs.distributions(host, path),
        "loader_path": python_envs.loader_path(host, path),
        "as_locked": wheels.as_locked({"environment": path, "wheels": options["wheels"]})
        if options["wheels"]
        else None,
        "pip": _said(run(pip(path, "--version"), timeout=_TIMEOUT)),
    }


def pip(path: str, *arguments: str) -> list[str]:
    """The command line of an environment's pip."""
    return [os.path.join(path, "bin/python"), "-I", "-m", "pip", "--isolated", *arguments]


def _place(path: str) -> str:
    """What a path is: directory, other (a file or a link), nothing."""
    try:
        return "directory" if stat.S_ISDIR(os.lstat(path).st_mode) else "other"
    except FileNotFoundError:
        return "nothing"


def _interpreter(host: Host, version: str) -> str:
    """The Python of a version; where none is there, the name that the distribution gives it."""
    there: Sequence[str] = [
        each["path"] for each in python_envs.interpreters(host) if numeric_version.belongs(each["version"], version)
    ]
    return there[0] if there else "/usr/bin/python" + version


def _said(done: Result) -> Said:
    # Where it was started and did not end, no exit status tells so: that is no answer to what was asked.
    rc = -1 if done.rc is None and done.errno is None else done.rc
    return {"rc": rc, "out": (done.out or done.err or done.error or "").strip()[-4000:]}
