# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sources that the stack needs, each with the full fingerprint of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..rules import Row
from ..situation import Situation
from ..wish import Wish
from . import keys, systems, upstreams
from .log import Log, Unresolved, conflict

KEYRINGS = "/usr/share/keyrings"
LISTS = "/etc/apt/sources.list.d"
TOOLKIT = "nvidia-container-toolkit"
_DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# Parts of the stack whose packages are in NVIDIA's CUDA repository.
_OF_CUDA = ("cuda", "cudnn", "nccl", "tensorrt", "cuda_compat")
# The Label in the Release file of NVIDIA's CUDA repositories: a mirror may serve them from the host that serves the archive too.
_LABEL = "NVIDIA CUDA"
# Two repositories with packages of one name: only one may answer for the driver.
_DRIVER_PACKAGES = ["cuda-drivers*", "libcuda1*", "libnvidia-*", "nvidia-*", "xserver-xorg-video-nvidia*"]
_NOT_DRIVER = ["libnvidia-container*", "nvidia-container-toolkit*", "libnvidia-nscq*"]


def choose(situation: Situation, wish: Wish, system: Row, stack: Mapping[str, Any], log: Log) -> list[dict[str, Any]]:
    """Return the package sources for a stack. Raises Unresolved where one cannot be trusted."""
    driver = stack.get("driver") or {}
    installs = bool(driver) and not driver["adopted"]
    found = []
    if installs and driver["source"] == "distro":
        found += _of_host(situation, system, driver["branch"], log)
    # Where only NVIDIA's CUDA repository is mirrored, the mirror answers for the container toolkit too.
    shared = "nvidia" in wish.mirrors and TOOLKIT not in wish.mirrors
    toolkit = "container_toolkit" in stack
    libraries = any(part in stack for part in _OF_CUDA)
    if (installs and driver["source"] == "nvidia") or libraries or (toolkit and shared):
        found.append(_cuda(situation, wish, system, driver, log))
    if toolkit and not shared:
        found.append(_toolkit(situation, wish, log))
    return found


def _cuda(situation: Situation, wish: Wish, system: Row, driver: Mapping[str, Any], log: Log) -> dict[str, Any]:
    out = keys.obstacles(situation, wish, system, log.rules)
    if out:
        raise Unresolved(*out)
    repository = keys.repository_of(system, log.rules) or {}
    base = f"{upstreams.url('nvidia', wish, log.rules)}/{system['nvidia_repository']}/{repository['arch'][situation.arch]}/"
    row = keys.of_nvidia(system, log.rules)
    fingerprint = keys.fingerprint("nvidia", wish, row)
    file = row["file"] if row else f"{(fingerprint or '')[-8:]}.pub"
    text = f"NVIDIA's repository {system['nvidia_repository']}, signed by {fingerprint}"
    log.decided("repository.nvidia", text, log.cite("upstreams", repository))
    result = _source("nvidia-cuda", "nvidia", base, f"{base}{file}", fingerprint)
    if driver and driver["source"] != "nvidia":
        result["exclude"] = {"release": f"l={_LABEL}", "packages": _DRIVER_PACKAGES, "except": _NOT_DRIVER}
    return result


def _toolkit(situation: Situation, wish: Wish, log: Log) -> dict[str, Any]:
    base = upstreams.url(TOOLKIT, wish, log.rules)
    row = keys.by_id("F796ECB0", log.rules)
    fingerprint = keys.fingerprint(TOOLKIT, wish, row)
    url = row["url"] if TOOLKIT not in wish.mirrors else f"{base}/{row['file']}"
    text = f"the container toolkit's own repository, signed by {fingerprint}"
    log.decided("repository.container-toolkit", text, log.cite("upstreams", row))
    return _source(TOOLKIT, "nvidia", f"{base}/{_DEBIAN_ARCH[situation.arch]}/", url, fingerprint)


def _source(name: str, upstream: str, uri: str, key_url: str, fingerprint: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "upstream": upstream,
        "uris": [uri],
        "suites": ["/"],
        "components": [],
        "key": {"url": key_url, "fingerprint": fingerprint, "path": f"{KEYRINGS}/gpuwright-{name}.gpg"},
        "file": f"{LISTS}/gpuwright-{name}.sources",
    }


# the distribution's own --------------------------------------------------------------------------------


def _of_host(situation: Situation, system: Row, branch: str, log: Log) -> list[dict[str, Any]]:
    """Return the components of the distribution that carry its driver, from the mirror that the host uses already."""
    carried = systems.distro_driver(system, branch, log.rules)
    needed = list(carried["components"]) if carried else []
    sources = [each for each in situation.package_sources or () if _is_archive(each, system)]
    present = {component for each in sources for component in each["components"]}
    if situation.package_sources is not None and set(needed) <= present:
        return []
    if situation.package_sources is not None and not sources:
        text = f"none of this machine's package sources is the archive of {system['name']} ({system['codename']}, main)"
        remedy = "add the archive to the machine's sources, or use driver-source=nvidia"
        raise Unresolved(conflict("repository.no-archive", text, "the machine's facts", remedy))
    archive: Mapping[str, Any] = (
        sources[0] if sources else {"uris": [], "suites": [system["codename"]], "signed_by": None}
    )
    name = "distro-non-free" if system["family"] == "debian" else "distro-restricted"
    text = f"{', '.join(needed)} of {system['name']}, from the mirror that the machine uses"
    log.decided("repository.distro", text, "the machine's facts")
    return [
        {
            "name": name,
            "upstream": None,
            "from_host": True,
            "uris": list(archive["uris"]),
            "suites": [suite for suite in archive["suites"] if not suite.endswith("-security")],
            "components": needed,
            "signed_by": archive["signed_by"],
            "file": f"{LISTS}/gpuwright-{name}.sources",
        },
    ]


def _is_archive(source: Mapping[str, Any], system: Row) -> bool:
    """Say whether a package source of the host is the distribution's archive itself (neither security nor a stranger's)."""
    return bool(
        source["enabled"]
        and "deb" in source["types"]
        and system["codename"] in source["suites"]
        and "main" in source["components"]
    )
