# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a program of this machine finds of the driver: the libcuda.so.1 that is loaded, and the nodes of the cards."""

from __future__ import annotations

import re
import stat
from functools import partial
from typing import TYPE_CHECKING, Iterator

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe.driver import library_version

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import DeviceNode, FoundLibrary, LeadingLibrary

NAME = "libcuda.so.1"
#: How the cache of the loader calls an architecture (glibc, elf/cache.c).
_ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_LINE = re.compile(r"^[ \t]*libcuda\.so\.1 \(([^)]*)\) => (/\S+)[ \t]*$", re.MULTILINE)
#: Where a login of everybody gets its variables from.
_VARIABLES = ("/etc/environment", "/etc/profile.d/*.sh")
_SETTING = re.compile(r"""^[ \t]*(?:export[ \t]+)?LD_LIBRARY_PATH=["']?([^\s"';#]+)""", re.MULTILINE)
#: What frameworks from the Python index have as wheels of their own: cuDNN and NCCL, which no toolkit of NVIDIA's has in its directory, and
#: nvJitLink, of which an older one lacks what the libraries of a newer CUDA take from it (pytorch/pytorch, issue 134929).
_OF_WHEELS = re.compile(r"lib(?:cudnn|nccl|nvJitLink)\.so\.\d{1,3}", re.ASCII)
_FULL_VERSION = re.compile(r"\.so\.(\d{1,4}(?:\.\d{1,6}){1,3})\Z", re.ASCII)
_PLAIN = re.compile(r"(?:/[\w.+-]{1,100}){1,20}", re.ASCII)
_LIMIT = 1 << 16
_MOST = 20
#: What makes a node for a program of a user, with the rights of root (the driver's README, chapter "Frequently Asked Questions": how and
#: when the device files are made).
_MAKER = "/usr/bin/nvidia-modprobe"
_NODE = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)", re.ASCII)
_MOST_NODES = 200


def parse(text: str, arch: str | None) -> list[str]:
    """The files of the loader's cache (`ldconfig -p`) in the order in which they count."""
    own = _ARCHITECTURES.get(arch or "", "")
    return [path for kinds, path in _LINE.findall(text) if own in kinds.replace(" ", "").split(",")]


def _directories(host: Host, fact: str) -> Iterator[tuple[str, str]]:
    """The directories of LD_LIBRARY_PATH, as everybody's login has it, each behind the file that says so."""
    for path in (path for pattern in _VARIABLES for path in host.glob(pattern)):
        for value in _SETTING.findall(host.read(path, fact, limit=_LIMIT) or ""):
            for directory in value.split(":"):
                if directory.startswith("/") and "/../" not in f"{directory}/":
                    yield path, directory.rstrip("/")


def _of_variables(host: Host) -> Iterator[str]:
    """What LD_LIBRARY_PATH puts before the cache."""
    for _file, directory in _directories(host, "driver.loader"):
        if host.exists(f"{directory}/{NAME}"):
            yield f"{directory}/{NAME}"


def leading(host: Host) -> list[LeadingLibrary]:
    """Libraries that wheels bring too, and that every login's LD_LIBRARY_PATH puts before theirs (ld.so(8))."""
    found: Iterator[LeadingLibrary] = (
        _leading(host, file, f"{directory}/{name}")
        for file, directory in _directories(host, "cuda.leading")
        if _PLAIN.fullmatch(directory)
        for name in host.names(directory, "cuda.leading")
        if _OF_WHEELS.fullmatch(name)
    )
    return list(found)[:_MOST]


def _leading(host: Host, file: str, path: str) -> LeadingLibrary:
    version = _FULL_VERSION.search(host.realpath(path))
    found: LeadingLibrary = {"file": file, "path": path}
    return {**found, "version": version[1]} if version else found


def libraries(host: Host, arch: str | None) -> list[FoundLibrary]:
    """Each libcuda.so.1 that a program may get, in the order in which the loader takes them."""
    cache = host.run(["ldconfig", "-p"]) if host.live else None
    paths = [*_of_variables(host), *(parse(cache.out, arch) if cache and cache.ok else [])]
    return [
        {"path": path, "file": host.realpath(path), "version": library_version(host, path)}
        for path in list(dict.fromkeys(paths))[:_MOST]
    ]


def nodes(host: Host) -> list[DeviceNode]:
    """The device nodes that CUDA opens."""
    return [node for node in map(partial(_node, host), host.glob("/dev/nvidia*")) if node][:_MOST_NODES]


def makes_nodes(host: Host) -> bool:
    """Whether a program of a user that finds no node has it made, and nvidia-uvm loaded."""
    seen = host.stat(_MAKER)
    return seen is not None and bool(seen.st_mode & stat.S_ISUID)


def _node(host: Host, path: str) -> DeviceNode | None:
    seen = host.stat(path) if _NODE.fullmatch(path) else None
    if seen is None:
        return None
    mode = stat.S_IMODE(seen.st_mode)
    return {"path": path, "mode": mode, "group": seen.st_gid, "device": stat.S_ISCHR(seen.st_mode)}
