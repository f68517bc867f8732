# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sources that the stack needs, each with the full fingerprint of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ..components.cuda.resolve import distro as cuda_distro
from ..model.stack import Builder, Repository, Stack
from ..rules import Row, Rules, cite
from ..wish.wish import Wish
from . import foreign, keys, local_repository, source_files, systems, upstreams
from .log import Log, Unresolved, conflict
from .machine import Machine
from .naming import RPM_FAMILY
from .part import CUDA_SOURCE, DISTRO, EPEL, TOOLKIT_SOURCE, Place
from .parts import HOST_PARTS, PARTS, from_source

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

KEYRINGS = "/usr/share/keyrings"
LISTS = "/etc/apt/sources.list.d"
RPM_KEYS = "/etc/pki/rpm-gpg"
RPM_LISTS = "/etc/yum.repos.d"
_DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# The component of Ubuntu's archive with what NVSwitches need (compat/packages.yaml, fabric_manager).
_OF_FABRIC = "multiverse"
# The Label in the Release file of NVIDIA's CUDA repositories: a mirror may serve them from the host that serves the archive too.
_LABEL = "NVIDIA CUDA"
# Two repositories with packages of one name: only one may answer for the driver.
_DRIVER_PACKAGES = ["cuda-drivers*", "libcuda1*", "libnvidia-*", "nvidia-*", "xserver-xorg-video-nvidia*"]
_NOT_DRIVER = ["libnvidia-container*", "nvidia-container-toolkit*", "libnvidia-nscq*"]


def choose(machine: Machine, wish: Wish, system: Row, stack: Stack, log: Log) -> list[Repository]:
    """Return the package sources for a stack. Raises Unresolved where one cannot be trusted."""
    driver = stack.get("driver")
    installed = None if driver is None or driver["adopted"] else driver
    found: list[Repository] = []
    if installed and installed["source"] == "distro" and system["family"] == RPM_FAMILY:
        found += _signed_of_host(machine, system, log)
    found += _of_host(machine, system, _components(machine, system, installed, stack, log), log)
    # Where only NVIDIA's CUDA repository is mirrored, the mirror answers for the container toolkit too.
    mirrored = "nvidia" in wish.mirrors and local_repository.of(wish) is None
    shared = mirrored and TOOLKIT_SOURCE not in wish.mirrors
    sources = {part.source for part in PARTS if part.key in stack and part.is_packaged(part.of(stack))}
    toolkit, libraries = TOOLKIT_SOURCE in sources, CUDA_SOURCE in sources
    barred = installed is not None and installed["source"] == "distro" and _has_cuda(machine)
    libraries = libraries or bool(from_source(stack, CUDA_SOURCE))
    if (installed and installed["source"] == "nvidia") or libraries or (toolkit and shared) or barred:
        found.append(_cuda(machine, wish, system, driver, log))
    if toolkit and not shared:
        found.append(_toolkit(machine, wish, system, log))
    for part in (*PARTS, *HOST_PARTS):
        places = part.places(part.of(stack), machine, wish, system, log) if part.key in stack else ()
        found += [_of_place(place, system) for place in places]
    of_epel = ["DKMS"] if installed and installed.get("build") == "dkms" else []
    of_epel += from_source(stack, EPEL)
    if of_epel and system.get("epel") and not _has_epel(machine):
        found.append(_epel(of_epel, machine, wish, system, log))
    return [_displacing(each, machine, installed, log) for each in found]


def _displacing(repository: Repository, machine: Machine, driver: DriverStack | None, log: Log) -> Repository:
    """Add the files of the host that are in a vendor's repository's way; without any, the repository as it is."""
    if not repository.get("key"):
        return repository
    offers = repository["name"] == CUDA_SOURCE and driver is not None and driver["source"] == "nvidia"
    found = source_files.in_the_way(repository, machine.package_sources, driver=offers)
    for each in found:
        text = f"{each['file']} is moved to {paths.BACKUP}: {each['reason']}"
        log.decided("repository.displaces", text, "the machine's facts")
    return {**repository, "displaces": found} if found else repository


def _cuda(machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, log: Log) -> Repository:
    local = local_repository.of(wish)
    out = local_repository.obstacles(local, wish, system) if local else keys.obstacles(machine, wish, system, log.rules)
    if out:
        raise Unresolved(*out)
    repository = keys.repository_of(system, log.rules) or {}
    row = keys.of_nvidia(system, log.rules)
    fingerprint = keys.fingerprint("nvidia", wish, row)
    if local:
        base, file = local, local_repository.key_file(fingerprint or "", system)
        text = f"NVIDIA's local repository {base}, signed by {fingerprint}"
    else:
        mirror = upstreams.url("nvidia", wish, log.rules)
        base = f"{mirror}/{system['nvidia_repository']}/{repository['arch'][machine.arch]}/"
        file = row["file"] if row else f"{(fingerprint or '')[-8:]}.pub"
        text = f"NVIDIA's repository {system['nvidia_repository']}, signed by {fingerprint}"
    log.decided("repository.nvidia", text, log.cite("upstreams", repository))
    result = _source(CUDA_SOURCE, "nvidia", base, f"{base}{file}", fingerprint, system)
    if machine.brings_own_driver:
        result["exclude"] = foreign.barred(_DRIVER_PACKAGES, _NOT_DRIVER)
    elif driver and driver["source"] != "nvidia":
        result["exclude"] = {"release": f"l={_LABEL}", "packages": _DRIVER_PACKAGES, "except": _NOT_DRIVER}
    return result


def _has_cuda(machine: Machine) -> bool:
    """Say whether NVIDIA's repository is there from a run before: it has drivers under the names of the distribution's."""
    return any(each["file"] == f"{LISTS}/gpuwright-nvidia-cuda.sources" for each in machine.package_sources or ())


def _toolkit(machine: Machine, wish: Wish, system: Row, log: Log) -> Repository:
    rpm = system["family"] == RPM_FAMILY
    base = upstreams.url(TOOLKIT_SOURCE, wish, log.rules, f"{TOOLKIT_SOURCE}-rpm" if rpm else TOOLKIT_SOURCE)
    row = keys.by_id("F796ECB0", log.rules)
    fingerprint = keys.fingerprint(TOOLKIT_SOURCE, wish, row)
    url = row["url"] if TOOLKIT_SOURCE not in wish.mirrors else f"{base}/{row['file']}"
    text = f"the container toolkit's own repository, signed by {fingerprint}"
    log.decided("repository.container-toolkit", text, log.cite("upstreams", row))
    arch = machine.arch if rpm else _DEBIAN_ARCH[machine.arch]
    # Of its rpm repository the index is signed and the packages are not.
    return _source(TOOLKIT_SOURCE, "nvidia", f"{base}/{arch}/", url, fingerprint, system, signed="index")


def _of_place(place: Place, system: Row) -> Repository:
    source = _source(place.name, place.name, place.uri, place.key_url, place.fingerprint, system)
    return {**source, "suites": list(place.suites), "components": list(place.components)}


def _has_epel(machine: Machine) -> bool:
    """Say whether the machine has EPEL by its own: a mirror list or a site's copy is as good."""
    sources = machine.package_sources or ()
    return any(each["enabled"] and each.get("name") == EPEL for each in sources)


def builders(machine: Machine, rules: Rules) -> list[Builder]:
    """Return the repositories of the system that packages of EPEL may need, and that the machine has without having them enabled, each
    with the steps that enable this one for good.
    """
    off = {each.get("name") for each in machine.package_sources or () if not each["enabled"]}
    return [
        {"repository": name, "steps": row["steps"].format(repository=name), "source": cite(rules, "systems", row)}
        for row in rules["systems"]["builders"]
        if row["os"] == machine.os
        for name in (each.replace("{arch}", machine.arch) for each in row["repositories"])
        if name in off
    ]


def _epel(of_it: list[str], machine: Machine, wish: Wish, system: Row, log: Log) -> Repository:
    row = keys.by_id(system["epel"].upper(), log.rules)
    base = upstreams.url(EPEL, wish, log.rules)
    fingerprint = keys.fingerprint(EPEL, wish, row)
    text = f"EPEL, which {' and '.join(of_it)} {'come' if of_it[1:] else 'comes'} from, signed by {fingerprint}"
    log.decided("repository.epel", text, log.cite("upstreams", row))
    uri = f"{base}/{system['version']}/Everything/{machine.arch}/"
    return _source(EPEL, EPEL, uri, f"{base}/{row['file']}", fingerprint, system)


def _source(
    name: str, upstream: str, uri: str, key_url: str, fingerprint: str | None, system: Row, signed: str = "packages"
) -> Repository:
    """Return a vendor's package source. ``signed``: what of an rpm repository its key signs; of apt's it is always the index."""
    if system["family"] == RPM_FAMILY:
        path = f"{RPM_KEYS}/RPM-GPG-KEY-gpuwright-{name}"
        return {
            "name": name,
            "upstream": upstream,
            "uris": [uri],
            "suites": [],
            "components": [],
            "key": {"url": key_url, "fingerprint": fingerprint, "path": path},
            "signed": signed,
            "file": f"{RPM_LISTS}/gpuwright-{name}.repo",
        }
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


def _components(machine: Machine, system: Row, driver: DriverStack | None, stack: Stack, log: Log) -> list[str]:
    """Return the components of apt's archive that carry the distribution's driver and its toolkit, as far as these are wished."""
    needed: list[str] = []
    if driver and driver["source"] == "distro" and system["family"] != RPM_FAMILY:
        carried = systems.distro_driver(system, driver["branch"], log.rules)
        needed += carried["components"] if carried else []
        needed += [_OF_FABRIC] if driver.get("fabric") and system["family"] == "ubuntu" else []
    if any(each.get("source") == DISTRO for each in stack.get("cuda") or ()):
        needed += cuda_distro.components(machine.os, log.rules)
    return list(dict.fromkeys(needed))


def _of_host(machine: Machine, system: Row, needed: list[str], log: Log) -> list[Repository]:
    """Return the source of components of the distribution, from the mirror that the host uses already."""
    sources = [each for each in machine.package_sources or () if _is_archive(each, system)]
    present = {component for each in sources for component in each["components"]}
    if not needed or (machine.package_sources is not None and set(needed) <= present):
        return []
    if machine.package_sources is not None and not sources:
        text = f"none of this machine's package sources is the archive of {system['name']} ({system['codename']}, main)"
        remedy = "add the archive to the machine's sources, or take it from NVIDIA (driver-source=nvidia, cuda-source=nvidia)"
        raise Unresolved(conflict("repository.no-archive", text, "the machine's facts", remedy))
    archive = sources[0] if sources else None
    suites = archive["suites"] if archive else [system["codename"]]
    name = "distro-non-free" if system["family"] == "debian" else "distro-restricted"
    text = f"{', '.join(needed)} of {system['name']}, from the mirror that the machine uses"
    log.decided("repository.distro", text, "the machine's facts")
    return [
        {
            "name": name,
            "upstream": None,
            "from_host": True,
            "uris": list(archive["uris"]) if archive else [],
            "suites": [suite for suite in suites if not suite.endswith("-security")],
            "components": needed,
            "signed_by": archive["signed_by"] if archive else None,
            "file": f"{LISTS}/gpuwright-{name}.sources",
        },
    ]


def _signed_of_host(machine: Machine, system: Row, log: Log) -> list[Repository]:
    """Return nothing: the distribution's repository with signed modules is one that the machine has. Raises Unresolved.

    It comes with a subscription or with a package of the distribution, which only its administrator can choose.
    """
    rows = [row for row in log.rules["systems"]["signed_repositories"] if row["os"] == system["os"]]
    enabled = [str(each.get("name")) for each in machine.package_sources or () if each["enabled"]]
    row = rows[0]
    if machine.package_sources is None:
        text = f"the repository with the signed modules of {system['name']} has to be there: {row['steps']}"
        log.warn("repository.signed", text, log.cite("systems", row))
    elif not any(row["repository"] in name and "cuda" not in name for name in enabled):
        text = f"the repository with the signed modules of {system['name']} is not enabled on this machine"
        remedy = (
            f"run: {row['steps']}; or use driver-source=nvidia, whose modules need a key of your own under Secure Boot"
        )
        raise Unresolved(conflict("repository.signed", text, log.cite("systems", row), remedy))
    return []


def _is_archive(source: PackageSource, system: Row) -> bool:
    """Say whether a package source of the host is the distribution's archive itself (neither security nor a stranger's)."""
    return bool(
        source["enabled"]
        and "deb" in source["types"]
        and system["codename"] in source["suites"]
        and "main" in source["components"]
    )
