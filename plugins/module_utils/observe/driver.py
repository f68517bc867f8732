# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who owns the NVIDIA driver on the machine, and which versions the kernel and user space have of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import image, package_log, packages
from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Driver,
        DriverLock,
        DriverOwner,
        DriverSource,
        LoadedModule,
        Smi,
        SmiData,
    )
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import ModuleKind

_PACKAGE = re.compile(
    r"^(?:nvidia-|libnvidia-|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|xserver-xorg-video-nvidia|xorg-x11-(?:drv-)?nvidia|cuda-drivers"
    r"|firmware-nvidia|linux-(?:modules|objects|signatures)-nvidia|kmod-nvidia|dkms-nvidia|akmod-nvidia|libcuda$)"
)
# NVIDIA packages that belong to no driver, by their names and not by their sources: one name that is missing here takes all that was built
# from Debian's nvidia-cuda-toolkit with it, and cuda-compat is built from the driver's source, of another version than the driver's.
_OTHER_PACKAGE = re.compile(
    r"^(?:(?:lib)?nvidia-(?:container|docker|cuda-(?:toolkit|dev|gdb|doc|samples)|cudnn|profiler|visual-profiler|opencl-dev|cg-|primus-vk|prime|gds"
    r"|fs|ml-dev|nsight|openjdk|detect|vaapi|installer-cleanup|driver-assistant|compute-repo)|cuda-compat-)"
)
# Names that only NVIDIA's own repositories have, and names that only Debian has.
_NVIDIA_NAME = re.compile(
    r"^(?:nvidia-driver-cuda(?:-libs)?|nvidia-kernel-open-dkms|nvidia-open(?:-\d+)?|cuda-drivers.*|nvidia-driver-pinning-.*|kmod-nvidia-(?:open|latest)-dkms)$"
)
_DEBIAN_NAME = re.compile(r"^(?:nvidia-smi|nvidia-open-kernel-dkms|nvidia-driver-bin|nvidia-installer-cleanup)$")
# Revisions that only a distribution gives: Ubuntu's archive for a release, Debian's updates of one.
_DISTRO_REVISION = re.compile(r"-\d+ubuntu0\.|~deb\d+u\d+|\+deb\d+u\d+|~bpo\d+\+")
_UBUNTU_REVISION = re.compile(r"-\d+ubuntu\d")
# Packages that are certainly of the driver itself, to ask for its origin and version.
CORE = re.compile(
    r"^(?:libcuda1|libnvidia-compute(?:-\d+.*)?|nvidia-driver(?:-cuda(?:-libs)?|-libs)?|nvidia-kernel-.*|libnvidia-ml1?"
    r"|linux-(?:modules|objects|signatures)-nvidia.*)$"
)

_RUNFILE_PROGRAMS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_LIBRARY_DIRECTORIES = (
    "/usr/lib/{0}-linux-gnu",
    "/usr/lib64",
    "/usr/lib/{0}-linux-gnu/nvidia/current",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
# A library of the driver, as its file is called: of one build.
_BUILD = re.compile(r"lib[\w.+-]+?\.so\.(\d{3}\.\d+(?:\.\d+)?)$", re.ASCII)
_MOST = 200
# The driver's own words about itself (seen from branches 470 to 580, in several languages).
_PROC_VERSION = re.compile(
    r"NVRM version:\s+NVIDIA UNIX (?:(?P<open>Open) Kernel Module for \S+|\S+ Kernel Module)\s+(?P<version>\d+(?:\.\d+)+)"
)

_KEEPS = re.compile(r"^PreserveVideoMemoryAllocations: (\d)$", re.MULTILINE)


def parse_proc_version(text: str) -> tuple[str | None, ModuleKind | None]:
    """Version and kind of modules ("open" or "proprietary") of /proc/driver/nvidia/version; None where it does not tell."""
    found = _PROC_VERSION.search(text)
    if not found:
        return None, None
    return found.group("version"), "open" if found.group("open") else "proprietary"


def keeps_memory(host: Host) -> bool | None:
    """Whether the loaded driver keeps the memory of its cards over a sleep of the machine; None where it does not tell (its README, chapter
    "Configuring Power Management Support").
    """
    found = _KEEPS.search(host.read("/proc/driver/nvidia/params", "driver.keeps_memory") or "")
    return None if found is None else found[1] != "0"


def is_driver_package(name: str) -> bool:
    """Whether a package of this name belongs to an NVIDIA driver."""
    return _PACKAGE.match(name) is not None and _OTHER_PACKAGE.match(name) is None


def is_other_package(name: str) -> bool:
    """Whether a package of NVIDIA's belongs to no driver (a container toolkit, a CUDA toolkit, a profiler)."""
    return _OTHER_PACKAGE.match(name) is not None


def library(host: Host, arch: str | None, name: str) -> str | None:
    """Path of one of the driver's libraries, or None."""
    for form in _LIBRARY_DIRECTORIES:
        path = form.format(arch or "x86_64") + "/" + name
        if host.exists(path):
            return path
    return None


def library_version(host: Host, path: str) -> str | None:
    """Version in the name of the file that a library's link leads to ("libcuda.so.580.95.05")."""
    found = re.search(r"\.so\.(\d+(?:\.\d+)+)$", host.realpath(path))
    return found.group(1) if found else None


def _owned_by_package(host: Host, path: str, names: list[str]) -> bool:
    """Whether one of the packages `names` brought the file."""
    if not host.isdir("/var/lib/dpkg/info"):
        argv = ["rpm", "-qf", host.realpath(path)]
        if not host.live:
            argv[1:1] = ["--root", host.root]
        return host.run(argv, takes_root=True).ok
    wanted = {path, host.realpath(path)}
    # Where /lib is a link into /usr, packages may have recorded the short name.
    wanted |= {item[len("/usr") :] for item in wanted if item.startswith("/usr/lib")}
    for name in names:
        short = name.split(":")[0]
        for listing in [f"/var/lib/dpkg/info/{name}.list", *list(host.glob(f"/var/lib/dpkg/info/{short}:*.list"))]:
            text = host.read(listing)
            if text and wanted & set(text.splitlines()):
                return True
    return False


def strays(host: Host, arch: str | None, found: Mapping[str, Package]) -> list[str]:
    """Libraries of another build that no package has: the package manager was cut off while it unpacked that build, as its log says, and
    took the one before again. The linker takes the highest version that it finds.
    """
    place = library(host, arch, "libcuda.so.1") or library(host, arch, "libnvidia-ml.so.1")
    if not found or place is None:
        return []
    directory = os.path.dirname(host.realpath(place))
    builds = {name: build.group(1) for name in host.names(directory) for build in [_BUILD.match(name)] if build}
    there = {numeric_version.upstream(package.version) for package in found.values()}
    others = {f"{directory}/{name}": build for name, build in builds.items() if build not in there}
    if not others:
        return []
    begun = {numeric_version.upstream(version) for name, version in package_log.begun(host) if is_driver_package(name)}
    return sorted(path for path, build in others.items() if build in begun and not _has_owner(host, path))[:_MOST]


def _has_owner(host: Host, path: str) -> bool:
    """Whether any package has a file; true where nobody says."""
    by_dpkg = host.isdir("/var/lib/dpkg/info")
    # Where /lib is a link into /usr, packages may have recorded the short name.
    names = [path, *([path[len("/usr") :]] if by_dpkg and path.startswith("/usr/lib") else [])]
    argv = ["dpkg-query", "--search"] if by_dpkg else ["rpm", "--query", "--file"]
    if not host.live:
        argv[1:1] = ["--admindir=" + host.at("/var/lib/dpkg")] if by_dpkg else ["--root", host.root]
    return any(host.run([*argv, name], takes_root=True).rc != 1 for name in names)


def _in_flat_repository(host: Host, name: str, version: str) -> bool:
    """Whether NVIDIA's repository (it is flat, and its path says so) offers this very version, by apt's own lists."""
    directory = "/var/lib/apt/lists"
    for entry in host.names(directory):
        if "compute_cuda_repos" in entry and entry.endswith("_Packages"):
            text = host.read(directory + "/" + entry) or ""
            for stanza in re.findall(rf"^Package: {re.escape(name)}\n(?:.+\n)*", text, re.MULTILINE):
                if f"\nVersion: {version}\n" in stanza:
                    return True
    return False


def source_of(host: Host, found: dict[str, Package]) -> DriverSource | None:
    """Whose packages these are, "nvidia" or "distro"; None when nothing tells.

    In an order of reliability: names that only one has, revisions that only one gives, apt's lists, the maintainer.
    """
    core = {name: package for name, package in found.items() if CORE.match(name)} or found
    if any(_NVIDIA_NAME.match(name) for name in found):
        return "nvidia"
    if any(_DISTRO_REVISION.search(package.version) for package in core.values()):
        return "distro"
    name, package = sorted(core.items())[0]
    if _in_flat_repository(host, name, package.version):
        return "nvidia"
    vendors = " ".join(item.vendor.lower() for item in core.values())
    if re.search(r"nvidia\.|^nvidia|\bnvidia corp", vendors):
        return "nvidia"
    if any(
        word in vendors
        for word in ("debian", "ubuntu", "canonical", "red hat", "rocky", "alma", "fedora", "oracle", "rpm fusion")
    ):
        return "distro" if not any(_UBUNTU_REVISION.search(item.version) for item in core.values()) else "nvidia"
    if any(_DEBIAN_NAME.match(item) for item in found):
        return "distro"
    return "nvidia" if any(_UBUNTU_REVISION.search(item.version) for item in core.values()) else None


def _owner(host: Host, libcuda: str | None, found: dict[str, Package], module: bool) -> DriverOwner:
    if "packages.installed" in host.unknown_facts:
        host.unknown("driver.owner", "the list of packages could not be read")
        return "unknown"
    uninstaller = any(host.exists(path) for path in _RUNFILE_PROGRAMS)
    if libcuda is not None and uninstaller and not _owned_by_package(host, libcuda, sorted(found)):
        return "runfile"
    if found:
        return "packages"
    if libcuda is None and not module:
        return "none"
    host.unknown(
        "driver.owner",
        "{} belongs to no package, and there is no uninstaller of a .run file".format(libcuda or "the loaded module"),
    )
    return "unknown"


def observe(host: Host, arch: str | None, loaded: Mapping[str, LoadedModule], lock: DriverLock) -> Driver:
    """The part `driver`. `loaded`: the loaded modules; `lock`: what holds its version."""
    found = {name: package for name, package in packages.installed(host).items() if is_driver_package(name)}
    libcuda = library(host, arch, "libcuda.so.1")
    version, modules = parse_proc_version(host.read("/proc/driver/nvidia/version", "driver.loaded_version") or "")
    module = loaded.get("nvidia")
    if module and version is None:
        version = module["version"]
        host.unknown(
            "driver.loaded_modules", "/proc/driver/nvidia/version does not tell whether the modules are the open ones"
        )
    ml = library(host, arch, "libnvidia-ml.so.1")
    user_version = next(
        (text for path in (libcuda, ml) if path for text in [library_version(host, path)] if text), None
    )
    if (libcuda or ml) and user_version is None:
        host.unknown(
            "driver.user_version", "the name of {} tells no version".format(host.realpath(libcuda or ml or ""))
        )
    owner = _owner(host, libcuda, found, module is not None)
    source: DriverSource | None = (
        "runfile" if owner == "runfile" else source_of(host, found) if owner == "packages" else None
    )
    if owner == "packages" and source is None:
        host.unknown(
            "driver.source",
            "neither names nor versions nor lists tell whose packages these are: " + ", ".join(sorted(found)[:5]),
        )
    program = next(
        (path for path in ("/usr/lib/wsl/lib/nvidia-smi", host.which("nvidia-smi")) if path and host.exists(path)), None
    )
    observed: Driver = {
        "owner": owner,
        "source": source,
        "packages": {name: package.version for name, package in sorted(found.items())},
        "loaded_version": version,
        "loaded_modules": modules,
        "user_version": user_version,
        "libcuda": libcuda,
        "nvidia_smi": program,
        "image": image.observe(host),
        "lock": lock,
    }
    left = strays(host, arch, found)
    return {**observed, "strays": left} if left else observed


def ask_smi(host: Host, program: str | None) -> Smi | None:
    """The part `smi`. To be called only where the module is loaded: nvidia-smi would load it."""
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_brake
    from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
    from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError

    if not host.live:
        host.unknown("smi", f"nvidia-smi is not run for the tree {host.root}")
        return None
    if program is None:
        host.unknown("smi", "the module nvidia is loaded and nvidia-smi is not installed")
        return {"rc": None, "seconds": 0.0, "error": "nvidia-smi is not installed", "data": None}

    def ask() -> Result:
        return host.run([program, "-q", "-x"])

    def look() -> SmiData | None:
        try:
            return document.parse_xml(ask().out)
        except SmiError:
            return None

    result = ask()
    data: SmiData | None = None
    error = result.error
    try:
        data = document.parse_xml(result.out)
    except SmiError as exc:
        error = error or _said(result) or str(exc)
        host.unknown("smi.data", error)
    else:
        data["notes"] += document.lines(result.err)
        error = error or ("\n".join(data["notes"]) or _said(result) if result.rc else None)
        smi_brake.settle(data, look)
    return {"rc": result.rc, "seconds": round(result.seconds, 3), "error": error, "data": data}


def _said(result: Result) -> str | None:
    """The end of what a program that failed said, or that it said nothing; None where it did not fail."""
    if result.rc in (0, None):
        return None
    text = result.out.strip() or result.err.strip() or f"nvidia-smi ended with status {result.rc}"
    return text[-600:]
