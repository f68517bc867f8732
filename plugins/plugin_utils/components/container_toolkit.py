# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker with the NVIDIA Container Toolkit, and Docker's configuration loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..model import sections
from ..model.stack import Stack
from ..wish import Wish
from .base import Component, Context, Finding, Manages, missing_packages, repository_files, repository_findings
from .demand import Demand
from .view import UP, View, unknown

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


def has_runtime(docker: Mapping[str, object]) -> bool:
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
    if NAME in stack and not has_runtime(docker):
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


def _removes(facts: Facts, _files: Sequence[str]) -> dict[str, bool]:
    return {"docker": NAME in (sections.history(facts).get("components") or ())}


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=(NAME,),
    services=True,
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
