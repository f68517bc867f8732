# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker with the NVIDIA Container Toolkit, and Docker's configuration loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version

from ..model import sections
from ..model.errors import StepRefused
from ..model.plan import Plan, Removes
from ..model.stack import Stack
from ..model.work import Unit, Work
from ..wish import Wish
from . import package_calls
from .base import (
    Component,
    Context,
    Finding,
    Manages,
    Step,
    missing_packages,
    repository_files,
    repository_findings,
    repository_names,
)
from .demand import Demand
from .view import UP, View, unknown

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Docker, Facts

    from ..model.work import PackageCall

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

NAME = "container_toolkit"
OWN_SOURCE = "nvidia-container-toolkit"
DAEMON_JSON = "/etc/docker/daemon.json"
SERVICE = "docker.service"
CDI_SETTING = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpuwright.conf"
#: Modules that the toolkit's unit waits for. Debian's open ones have another name, and it never writes the CDI specification there
#: (NVIDIA/nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service at v1.20.0, ExecCondition).
_CDI_KNOWS = ("nvidia", "nvidia-current")
#: Since 1.18 the toolkit itself keeps the CDI specification up to date; no second unit beside it.
CDI_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
#: States of units that nobody can enable.
_ABSENT = (None, "", "not-found", "masked")
#: What Docker's configuration must hold; the rest of it is the host's own.
_RUNTIMES = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
_DEFAULT_RUNTIME = {"default-runtime": "nvidia"}
#: The first Docker that checks a configuration without starting.
_VALIDATES = "23.0"
#: What its role changes.
TOUCHES = frozenset({"packages", "services"})
#: As YAML and Ansible say it.
_YES = ("true", "yes", "on", "y", "t", "1")


class Toolkit(Work):
    """The work of the role. ``refusal``: why it must not begin, as one text for a person; None where it may."""

    refusal: str | None


class Place(TypedDict, total=False):
    """A path and how it has to be: ``state`` is directory or absent."""

    path: str
    state: str
    mode: str


class Merged(TypedDict, total=False):
    """A file to write. Without ``mode`` it keeps its own. ``backup``: what was there is kept beside it.
    ``validate``: a command that says whether the content is right, as Ansible's modules take it.
    """

    path: str
    content: str
    mode: str
    backup: bool
    validate: str


class Given(TypedDict, total=False):
    """``check``: whether the run is in check mode."""

    check: bool


class Ending(TypedDict):
    """How the work ends. ``left``: Docker has not read its configuration, and its restart is left to a person."""

    units: list[Unit]
    left: bool


class Installed(TypedDict):
    """What is to be done once the packages are there.

    ``directory``: of a setting that is taken back, removed where nothing else is inside; None where the setting stays.
    ``asks``: Docker has not read its configuration, so that it matters whether containers run. ``idle`` and ``busy``: how the work ends
    where none does, and where some do.
    """

    places: list[Place]
    files: list[Merged]
    directory: str | None
    asks: bool
    idle: Ending
    busy: Ending


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    found = repository_findings(context, _sources(context))
    missing = missing_packages(context, _wished_packages(context))
    if missing:
        found.append(_installation(context, missing))
        return found
    return found + _version_findings(context) + (_configuration_findings(context) if _docker(context) else [])


def _docker(context: Context) -> bool:
    """Podman has no daemon and no configuration of its own: it reads the CDI specification."""
    return str(context.stack["container_toolkit"]["engine"]["name"]) == "docker"


def _cdi_files(context: Context) -> list[str]:
    """The setting that lets the toolkit's unit know the module of this driver, where it does not by itself."""
    driver = context.stack.get("driver")
    module = driver["kernel_module"] if driver else None
    return [] if module is None or module in _CDI_KNOWS else [CDI_SETTING]


def _installation(context: Context, missing: Sequence[str]) -> Finding:
    """The packages, and what follows from them: Docker's configuration gets the runtime, and Docker is restarted to read it."""
    before = context.facts["containers"]["toolkit"]["version"]
    after = context.versions.get("nvidia-container-toolkit") or context.stack["container_toolkit"]["version_spec"]
    configured = _has_runtime(context) or not _docker(context)
    running = sections.service(context.facts, SERVICE)["active"] == "active"
    return Finding(
        "install",
        f"missing packages: {', '.join(missing)}",
        before,
        after,
        packages=missing,
        files=[*([] if configured else [DAEMON_JSON]), *_cdi_files(context)],
        services=[] if not _docker(context) or (configured and running) else [SERVICE],
    )


def manages(context: Context) -> Manages:
    """The engine's version is not sealed: it is the distribution's, whose security updates are welcome."""
    return Manages(
        files=[
            *repository_files(context, _sources(context)),
            *([DAEMON_JSON] if _docker(context) else []),
            *_cdi_files(context),
        ],
        packages=list(context.stack["container_toolkit"]["packages"]),
        services=[SERVICE] if _docker(context) else [],
    )


def inputs(context: Context) -> Mapping[str, object]:
    toolkit = context.stack["container_toolkit"]
    setting = {"cdi_setting": True} if _cdi_files(context) else {}
    return {"version_spec": toolkit["version_spec"], "packages": list(toolkit["packages"]), **setting}


def _sources(context: Context) -> list[str]:
    """The toolkit's own package source, or NVIDIA's CUDA repository where only that one is mirrored: it carries both."""
    names = {repository["name"] for repository in context.stack.get("repositories") or ()}
    return [OWN_SOURCE] if OWN_SOURCE in names else ["nvidia-cuda"]


def _wished_packages(context: Context) -> list[str]:
    toolkit = context.stack["container_toolkit"]
    return [*toolkit["engine"]["packages"], *toolkit["packages"]]


def toolkit_packages(context: Context) -> list[str]:
    """The packages that carry the toolkit's own version."""
    return list(context.stack["container_toolkit"]["packages"])


def version_prefixes(stack: Stack, aim: str | None = None) -> dict[str, str]:
    """What the packages' versions begin with, where one was asked for (1.19.1 exactly, or any 1.19) or is aimed at."""
    toolkit = stack.get("container_toolkit")
    if toolkit is None:
        return {}
    if aim:
        return dict.fromkeys(toolkit["packages"], f"{aim}-")
    specifier = toolkit["version_spec"]
    if not specifier.startswith("=="):
        return {}
    start = specifier[2:-1] if specifier.endswith("*") else f"{specifier[2:]}-"
    return dict.fromkeys(toolkit["packages"], start)


def _version_findings(context: Context) -> list[Finding]:
    toolkit = context.stack["container_toolkit"]
    wrong = [name for name in toolkit["packages"] if not fits(context.installed[name], toolkit["version_spec"])]
    if not wrong:
        return []
    found = context.installed[wrong[0]]
    reason = f"{wrong[0]} is {found}, wished is {toolkit['version_spec']}"
    return [Finding("upgrade", reason, found, toolkit["version_spec"], packages=toolkit["packages"])]


def fits(version: str, specifier: str) -> bool:
    """Say whether a package's version is one that a specifier such as ==1.19.1 allows."""
    # Imported here: only a plan with containers pays for it.
    from packaging.specifiers import SpecifierSet

    upstream = version.split(":", 1)[-1].split("-", 1)[0]
    return SpecifierSet(specifier).contains(upstream, prereleases=True)


def _has_runtime(context: Context) -> bool:
    return has_runtime(context.facts["containers"]["docker"])


def has_runtime(docker: Docker) -> bool:
    """Say whether Docker's configuration, in which a person may have written anything, names the NVIDIA runtime."""
    written = docker.get("daemon_json")
    runtimes = written.get("runtimes") if isinstance(written, Mapping) else None
    return isinstance(runtimes, Mapping) and "nvidia" in runtimes


def _configuration_findings(context: Context) -> list[Finding]:
    docker = context.facts["containers"]["docker"]
    found = []
    if not _has_runtime(context):
        found.append(Finding("configure", f"Docker has no runtime 'nvidia' in {DAEMON_JSON}", files=[DAEMON_JSON]))
    elif docker["config_loaded"] is False:
        found.append(
            Finding("configure", f"Docker has not loaded {DAEMON_JSON} since it was changed", services=[SERVICE])
        )
    state = (context.facts["services"] or {}).get(SERVICE)
    if state and state["enabled"] == "disabled":
        found.append(Finding("configure", "Docker is not enabled at boot", services=[SERVICE]))
    if state and state["active"] in ("inactive", "failed"):
        found.append(Finding("configure", f"Docker is {state['active']}", services=[SERVICE]))
    return found


# The work of the role


def begin(context: Context, plan: Plan) -> Toolkit:
    """The engine where there is none, and the toolkit, all of its packages at one version."""
    toolkit = context.stack["container_toolkit"]
    engine, own = toolkit["engine"]["packages"], toolkit["packages"]
    return {
        "refusal": _unmergeable(context.facts),
        "repositories": repository_names(context, _sources(context)),
        "packages": _calls(context, plan, engine, own),
    }


def installed(context: Context, plan: Plan) -> Installed:
    """Docker's configuration with the runtime in it, Docker's restart to read it, and what keeps the CDI specification up to date.

    Outcome against wish: Docker has read the file when it started after the file's last change. A handler that is lost in a crash never
    comes back. Raises StepRefused where the configuration cannot be merged.
    """
    docker, setting = context.facts["containers"]["docker"], _cdi_setting(context)
    refusal = _unmergeable(context.facts)
    if refusal:
        raise StepRefused(refusal)
    merged = _merged(context, docker, check=bool(cast("Given", plan["given"]).get("check"))) if _docker(context) else []
    stale = _docker(context) and bool(docker["active"]) and (bool(merged) or docker["config_loaded"] is False)
    restart = context.variables.get("container_toolkit", {}).get("container_toolkit_restart_docker", "auto")
    always = str(restart).lower() in _YES
    return {
        "places": [
            *(Place(path=_directory(file["path"]), state="directory", mode="0755") for file in (*merged, *setting)),
            *([] if setting else [Place(path=CDI_SETTING, state="absent")]),
        ],
        "files": [*merged, *setting],
        "directory": None if setting else _directory(CDI_SETTING),
        "asks": stale,
        "idle": _ending(context, stale, may_restart=always or restart == "auto"),
        "busy": _ending(context, stale, may_restart=always),
    }


STEPS: Mapping[str, Step] = {"begin": begin, "installed": installed}


def _calls(context: Context, plan: Plan, engine: Sequence[str], toolkit: Sequence[str]) -> list[PackageCall]:
    """One call for all; where the toolkit may go back to an older version, the engine may not. An engine of somebody else's is kept: then
    the stack names no packages of one.
    """
    if not package_calls.goes_back(plan, "container_toolkit"):
        return [package_calls.call(context, plan, [*engine, *toolkit])]
    back = package_calls.call(context, plan, toolkit, allow_downgrade=True)
    return [package_calls.call(context, plan, engine), back] if engine else [back]


def _unmergeable(facts: Facts) -> str | None:
    """Why nothing can be merged into Docker's configuration; None where it can."""
    docker = facts["containers"]["docker"]
    error = docker["daemon_json_error"] or facts["unknown"].get("containers.docker.daemon_json")
    if not error and isinstance(docker["daemon_json"] or {}, Mapping):
        return None
    return (
        f"Expected {DAEMON_JSON} to be a JSON object. Found: {error or 'something else than an object'}. What to do: correct the file by "
        "hand (Docker itself does not start with it either) and run again. Nothing has been changed in it."
    )


def with_runtime(config: Mapping[str, object], *, default: bool) -> Mapping[str, object]:
    """Docker's configuration with the runtime, and as the one that each container gets where that is wished. Foreign keys stay."""
    return _combined(config, {**_RUNTIMES, **(_DEFAULT_RUNTIME if default else {})})


def _combined(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    combined = dict(below)
    for key, value in above.items():
        there = combined.get(key)
        combined[key] = _combined(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return combined


def _merged(context: Context, docker: Docker, *, check: bool) -> list[Merged]:
    """The configuration. Nothing is written where nothing is missing, so that a file in its owner's own layout keeps it. In check mode the
    directory or dockerd may be missing still, because the engine of this same plan is not installed.
    """
    now: Mapping[str, object] = docker["daemon_json"] or {}
    default = context.variables.get("container_toolkit", {}).get("container_toolkit_default_runtime", False)
    wished = with_runtime(now, default=bool(default))
    if wished == now or (check and not docker["installed"]):
        return []
    file: Merged = {"path": DAEMON_JSON, "content": json.dumps(wished, indent=4) + "\n", "backup": True}
    if docker["daemon_json"] is None:
        file["mode"] = "0644"
    if numeric_version.at_least(docker["version"] or "0", _VALIDATES):
        file["validate"] = "dockerd --validate --config-file=%s"
    return [file]


def cdi_setting(module: str) -> str:
    """What tells the toolkit's unit how the module of this driver is called."""
    return (
        "# Written by gpuwright (role container_toolkit); a change by hand is undone by the next run.\n"
        f"# The toolkit's unit waits for a module called nvidia or nvidia-current. The one of this driver is {module}.\n"
        "[Service]\n"
        "ExecCondition=\n"
        f"ExecCondition=/bin/sh -c 'grep -qE \"/{module}[.]ko\" /lib/modules/$$(uname -r)/modules.dep'\n"
    )


def _cdi_setting(context: Context) -> list[Merged]:
    driver = context.stack.get("driver")
    module = driver.get("kernel_module") if driver else None
    return [Merged(path=path, content=cdi_setting(str(module)), mode="0644") for path in _cdi_files(context)]


def _directory(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _ending(context: Context, stale: bool, *, may_restart: bool) -> Ending:
    """The units: Docker enabled, and started where it does not run; the toolkit's own that exist, only enabled, since systemd starts them
    when the driver changes, and without a card they would fail.
    """
    units: list[Unit] = []
    if _docker(context) and context.facts["containers"]["docker"]["installed"]:
        units.append({"name": SERVICE, "enabled": True, "state": "restarted" if stale and may_restart else "started"})
    there = [name for name in CDI_UNITS if sections.service(context.facts, name)["enabled"] not in _ABSENT]
    units += [{"name": name, "enabled": True} for name in there]
    return {"units": units, "left": stale and not may_restart}


def demands(stack: Stack, _wish: Wish) -> list[Demand]:
    """Return the toolkit as the package index has to have it."""
    toolkit = stack.get("container_toolkit")
    if not toolkit:
        return []
    specifier = toolkit["version_spec"]
    relation = specifier[:2] if specifier.startswith(">=") else "="
    version = specifier.lstrip("=>").removesuffix(".*")
    return [
        Demand(
            "container-toolkit",
            version,
            toolkit["packages"],
            lambda _name, found: fits(found, specifier),
            relation=relation,
        )
    ]


def judge(view: View, stack: Stack) -> list[Check]:
    """Docker's configuration can be read, is the one that runs, and knows the NVIDIA runtime where it should."""
    docker = view.get("containers.docker")
    if not isinstance(docker, Mapping):
        if view.why_unknown("containers"):
            return [unknown("container.daemon_json", view, "containers", "how Docker is configured", "warning")]
        return []
    if not docker.get("installed"):
        return [checks.skipped("container.daemon_json", "Docker is not installed", "warning")]
    if docker.get("daemon_json_error"):
        return [
            checks.failed(
                "container.daemon_json",
                reason="Docker's daemon.json cannot be read: Docker will not start with it",
                evidence=docker["daemon_json_error"],
                action="configure",
                remedy="correct /etc/docker/daemon.json; gpuwright keeps the copy that it found beside it",
            )
        ]
    if NAME in stack and not has_runtime(cast("Docker", docker)):
        return [_docker_warning("Docker does not know the NVIDIA runtime", UP)]
    if docker.get("config_loaded") is False:
        return [
            _docker_warning(
                "Docker has not read its configuration since it changed", "restart Docker when its containers may stop"
            )
        ]
    return [checks.passed("container.daemon_json", "warning")]


def _docker_warning(reason: str, remedy: str) -> Check:
    return checks.failed("container.daemon_json", "warning", reason=reason, action="configure", remedy=remedy)


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    return {"docker": NAME in (sections.history(facts).get("components") or ())}


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    touches=TOUCHES,
    steps=STEPS,
    version_prefixes=version_prefixes,
    versioned=toolkit_packages,
    security="container-toolkit",
    demands=demands,
    judge=judge,
    merged=(DAEMON_JSON,),
    removes=_removes,
    # dpkg's purge takes the link away, rpm leaves it.
    package_units={
        "nvidia-container-toolkit-base": ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    },
)
