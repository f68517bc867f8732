# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether what environments are asked for can be met together, by the uv that would install it: nothing is installed or built.

uv is brought into a directory of this call alone, as for an environment without pip, and goes with it. What it would have to build is left
out of the next try, so that all of it is told at once. uv takes no pre-release that only a dependency asks for, nor what its makers took
back; pip does: such a failure says nothing of what pip will do, and is none here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from typing import Mapping, NamedTuple, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.index import PythonSource, PythonTrial
from ansible_collections.gpuwright.node.plugins.module_utils.packages import uv, wheels
from ansible_collections.gpuwright.node.plugins.module_utils.packages.wheels import (
    Declined,
    Options,
    PipError,
    Runner,
    Uv,
    normalise,
)

# Seconds for the program and all trials.
_SECONDS = 120.0
# Sources that are told of one environment, and characters of why.
_MOST = 20
_WORDS = 2000
# How uv (0.13) says that there is no answer; whatever else goes wrong says nothing of the requirements.
_NO_ANSWER = "error: No solution found when resolving dependencies"
_SOURCE = re.compile(
    r"^hint: Wheels are required for `([A-Za-z0-9][A-Za-z0-9._-]*)` because building from source is disabled"
)
_YANKED = "yanked"


class Trial(TypedDict):
    """An environment. ``python``: its Python's whole version. ``urls``: the indexes of all that it gets, "" is the machine's own.
    ``tools``: the index that uv comes from, None for the machine's own. ``built``: what is built from its source, which is not looked for.
    """

    environment: str
    python: str
    requirements: list[str]
    constraints: list[str]
    urls: list[str]
    tools: str | None
    built: list[str]


class Places(NamedTuple):
    """Directories of one call: for what has passwords in it, and for the program with its cache."""

    private: str
    program: str


def ask(
    trials: Sequence[Trial],
    program: Uv,
    credentials: list[dict[str, str]],
    run: Runner = run_module.run,
) -> list[PythonTrial]:
    """What came of each trial. What cannot be tried is told with the reason, nothing is raised for it."""
    end = time.monotonic() + _SECONDS
    private = wheels.private_directory()
    # Programs often may not be run from where passwords are.
    place = tempfile.mkdtemp(prefix="gpuwright-trial-")
    try:
        return [_answer(each, program, credentials, run, Places(private, place), end) for each in trials]
    finally:
        for each in (private, place):
            shutil.rmtree(each, ignore_errors=True)


def _answer(
    trial: Trial,
    program: Uv,
    credentials: list[dict[str, str]],
    run: Runner,
    places: Places,
    end: float,
) -> PythonTrial:
    try:
        own = uv.settings()
        options = _options(trial, program, credentials)
        path = os.path.join(places.program, "bin/uv")
        if not os.path.exists(path):
            path = uv.fetch_program(options, program, places.program, own, max(end - time.monotonic(), 0.0))
        python = ["--python", sys.executable, "--python-version", trial["python"]]
        work = uv.Work(path, os.path.join(places.program, "cache"), places.private, own, options, run, python)
        return _tried(trial, work, end)
    except (Declined, PipError, OSError) as exc:
        return _told(trial, problem=redact.text(str(exc)))


def _options(trial: Trial, program: Uv, credentials: list[dict[str, str]]) -> Options:
    return {
        "environment": trial["environment"],
        "requirements": trial["requirements"],
        "constraints": trial["constraints"],
        "wheels": [],
        "index_url": None,
        "dependencies_url": trial["tools"],
        "credentials": credentials,
        "from_source": [],
        "pip": None,
        "record": False,
        "uv": program,
    }


def _told(
    trial: Trial, *, problem: str | None = None, clash: str | None = None, sources: Sequence[PythonSource] = ()
) -> PythonTrial:
    return {"environment": trial["environment"], "problem": problem, "clash": clash, "sources": list(sources)}


def _tried(trial: Trial, work: uv.Work, end: float) -> PythonTrial:
    """What uv says. Raises Declined, PipError."""
    sources: dict[str, str] = {}
    while True:
        left = [*trial["built"], *sources]
        done = _resolved(trial, left, work, end)
        if done.ok:
            return _told(trial, sources=_sources(sources))
        why = _why(done)
        lacking = [each for each in _without_wheels(done) if each not in left]
        if not lacking or len(sources) >= _MOST:
            break
        sources.update((each, why) for each in lacking)
    if _YANKED in why or _resolved(trial, left, work, end, ["--prerelease", "allow"]).ok:
        return _told(trial, sources=_sources(sources))
    return _told(trial, clash=why, sources=_sources(sources))


def _sources(found: Mapping[str, str]) -> list[PythonSource]:
    return [{"name": name, "words": words} for name, words in found.items()]


def _resolved(trial: Trial, left: Sequence[str], work: uv.Work, end: float, more: Sequence[str] = ()) -> Result:
    """What uv makes of a trial without some distributions. Raises Declined where it is no answer, PipError."""
    asked = [uv.written(work, "requirements.txt", trial["requirements"])]
    asked += ["--constraints", uv.written(work, "constraints.txt", trial["constraints"])]
    asked += ["--excludes", uv.written(work, "excludes.txt", left)]
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise Declined(f"there was no answer within {_SECONDS:g} s")
    done = uv.run_uv(["compile", "--quiet", *asked, *more], trial["urls"], work._replace(seconds=seconds))
    if not done.ok and not (done.rc == 1 and done.err.startswith(_NO_ANSWER)):
        raise Declined(f"uv said: {uv.words(done)}")
    return done


def _without_wheels(done: Result) -> list[str]:
    return [normalise(found[1]) for line in done.err.splitlines() if (found := _SOURCE.match(line))]


def _why(done: Result) -> str:
    """Why there is no answer, in uv's words: without its heading, and without the hint that no source is built."""
    lines = [line for line in done.err.splitlines()[1:] if not _SOURCE.match(line)]
    return redact.text(re.sub("^cause: ", "", " ".join(" ".join(lines).split())))[:_WORDS]
