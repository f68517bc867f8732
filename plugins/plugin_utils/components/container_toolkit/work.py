# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the role."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.errors import StepRefused
from ...model.plan import Plan
from ...wish.reading import is_yes
from .. import busy, package_calls
from ..base import Context, Step, repository_names
from ..daemon_json import GivenBack, given_back
from . import cdi, containerd, docker, engines, images, rootless
from .shape import Engine, Given, Installed, Kept, Merged, Place, Toolkit
from .sources import sources

if TYPE_CHECKING:
    from ...model.work import PackageCall

_NOTHING: GivenBack = {"put_back": [], "files": [], "absent": []}


def begin(context: Context, plan: Plan) -> Toolkit:
    """The engine where there is none, and the toolkit, all of its packages at one version."""
    toolkit, engine = context.stack["container_toolkit"], engines.daemon(context)
    return {
        "refusal": engine.refusal(context.facts) if engine else None,
        "reads": containerd.CONFIG if _of_containerd(context) else None,
        "repositories": repository_names(context, sources(context)),
        "packages": _calls(context, plan, engines.packages(context), toolkit["packages"]),
        "rootless": rootless.work(context),
        "images": [{"engine": toolkit["engine"]["name"], "image": image} for image in images.wished(context)],
    }


def installed(context: Context, plan: Plan) -> Installed:
    """The engine's configuration with the runtime in it, its restart to read it, and what keeps the CDI specification up to date.

    Outcome against wish: a daemon has read a file when it started after the file's last change. A handler that is lost in a crash never
    comes back. Where the configuration cannot be merged, there is a refusal and nothing to write.
    """
    engine, given = engines.daemon(context), cast("Given", plan["given"])
    refusal, merged = _merged(context, engine, given)
    own, back = cdi.written(context), _given_back(context)
    setting = [file["path"] for file in own if file["path"] == cdi.SETTING]
    files = [*merged, *(Merged(path=each["path"], content=each["content"]) for each in back["files"])]
    kept = [*docker.kept(context, merged), *_before(files)]
    absent = [*([] if setting else [cdi.SETTING]), *_gone(context, merged), *back["absent"]]
    placed = [*(each["dest"] for each in kept), *(file["path"] for file in files), *setting]
    changed = {each["dest"] for each in back["put_back"]} | {each["path"] for each in files} | set(absent)
    return {
        "refusal": refusal,
        "places": [_place(path) for path in placed],
        "kept": kept,
        "put_back": back["put_back"],
        "files": files,
        "own": own,
        "absent": absent,
        "directory": None if setting else _directory(cdi.SETTING),
        "engines": [
            *([_engine(context, plan, engine, changed, wished=True)] if engine else []),
            *(_engine(context, plan, each, changed, wished=False) for each in engines.left(context)),
        ],
        "units": cdi.units(context, check=bool(given.get("check"))),
    }


def _before(files: Iterable[Merged]) -> list[Kept]:
    """Each file as it is before it is written, the last time alone: by one name, which goes with everything else of ours."""
    there = (file["path"] for file in files if "mode" not in file)
    return [{"src": path, "dest": f"{paths.BACKUP}{path}.before"} for path in there]


STEPS: Mapping[str, Step] = {"begin": begin, "installed": installed}


def _of_containerd(context: Context) -> bool:
    """Whether containerd's configuration is to be looked at: it is the engine, or was it."""
    marked = containerd.CONFIG in context.facts["containers"]["containerd"]["marked"]
    return context.stack["container_toolkit"]["engine"]["name"] == "containerd" or marked


def _merged(context: Context, engine: engines.Daemon | None, given: Given) -> tuple[str | None, list[Merged]]:
    """Why nothing can be merged, or the files that are merged."""
    refusal = engine.refusal(context.facts) if engine else None
    if refusal:
        return refusal, []
    try:
        return None, _files(context, engine, given)
    except StepRefused as error:
        return str(error), []


def _files(context: Context, engine: engines.Daemon | None, given: Given) -> list[Merged]:
    name = context.stack["container_toolkit"]["engine"]["name"]
    check = bool(given.get("check"))
    found = docker.files(context, check=check) if name == "docker" else []
    if not _of_containerd(context) or (check and not context.facts["containers"]["containerd"]["installed"]):
        return found
    text = containerd.content(given.get("content"))
    return found + (containerd.files(context, text) if name == "containerd" else containerd.taken_back(text))


def _gone(context: Context, merged: Sequence[Merged]) -> list[str]:
    """The file of our own for containerd, where it is there and not wished."""
    there = containerd.DROP_IN in context.facts["containers"]["containerd"]["marked"]
    return [containerd.DROP_IN] if there and containerd.DROP_IN not in [file["path"] for file in merged] else []


def _given_back(context: Context) -> GivenBack:
    """Docker's configuration as the host's own where it is the engine no more. The record of what was put in goes last."""
    if context.stack["container_toolkit"]["engine"]["name"] == "docker" or not docker.is_ours(context.facts):
        return _NOTHING
    back = given_back(context.facts)
    return {**back, "absent": [*back["absent"], paths.DOCKER]}


def _calls(context: Context, plan: Plan, engine: Sequence[str], toolkit: Sequence[str]) -> list[PackageCall]:
    """One call for all; where the toolkit may go back to an older version, the engine may not. An engine of somebody else's is kept: then
    the stack names no packages of one.
    """
    if not package_calls.goes_back(plan, "container_toolkit"):
        return [package_calls.call(context, plan, [*engine, *toolkit])]
    back = package_calls.call(context, plan, toolkit, allow_downgrade=True)
    return [package_calls.call(context, plan, engine), back] if engine else [back]


def _place(path: str) -> Place:
    """The directory of a file. What is ours alone is root's alone."""
    ours = path.startswith(f"{paths.STATE}/")
    return {"path": _directory(path), "mode": "0700" if ours else "0755"}


def _directory(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _engine(context: Context, plan: Plan, engine: engines.Daemon, changed: Container[str], *, wished: bool) -> Engine:
    """An engine, and how it ends: one that is wished enabled, and started where it does not run. ``changed``: what is written or goes."""
    seen = engine.seen(context.facts)
    writes = any(path in changed for path in engine.files)
    stale = bool(seen["active"] and (writes or seen["config_loaded"] is False))
    wish = context.variables.get("container_toolkit", {}).get("container_toolkit_restart_docker", "auto")
    unit = engine.service.removesuffix(".service")
    # The last look before the restart: the files are written between the two.
    restart = busy.restart(context.facts, plan, unit)
    may = is_yes(wish) or (wish == "auto" and restart["may"])
    runs = wished and seen["installed"]
    left = stale and not may
    return {
        "title": engine.title,
        "config": engine.config,
        "unit": unit,
        "enabled": True if runs else None,
        "state": "restarted" if stale and may else "started" if runs else None,
        "left": left,
        "why": restart["why"] if left else "",
    }
