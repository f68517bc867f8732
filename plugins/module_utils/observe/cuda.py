# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits and cuDNN, by their files and packages."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Cuda, Cudnn, Toolkit

_CUDNN_PACKAGE = re.compile(r"^libcudnn(\d+)(?:-cuda-(\d+))?$")


def _stated_version(host: Host, path: str) -> str | None:
    """Version that a toolkit's own file tells (version.json; before CUDA 11.1 version.txt)."""
    text = host.read(path + "/version.json")
    if text:
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            return None
    found = re.search(r"CUDA Version (\d+(?:\.\d+)+)", host.read(path + "/version.txt") or "")
    return found.group(1) if found else None


def _packaged_version(host: Host, short: str) -> str | None:
    version = packages.version_of(host, "cuda-toolkit-" + short.replace(".", "-"))
    return versions.upstream(version) if version else None


def toolkits(host: Host) -> list[Toolkit]:
    """Toolkits below /usr/local, and the distribution's own. A directory without a compiler and without a version is none."""
    found: dict[str, Toolkit] = {}
    for path in host.glob("/usr/local/cuda-*"):
        short = os.path.basename(path)[len("cuda-") :]
        if not re.match(r"^\d+(?:\.\d+)+$", short) or not host.isdir(path):
            continue
        version = (
            _stated_version(host, path)
            or _packaged_version(host, short)
            or (short if host.exists(path + "/bin/nvcc") else None)
        )
        if version:
            found[host.realpath(path)] = {"version": version, "path": path}
    packaged = packages.version_of(host, "nvidia-cuda-toolkit")
    if packaged:
        # Debian counts by the compiler and names the toolkit behind a tilde: "12.2.140~12.2.2-1".
        version = versions.upstream(packaged)
        found["/usr/lib/cuda"] = {"version": version.rsplit("~", 1)[-1], "path": "/usr/lib/cuda"}
    return sorted(found.values(), key=lambda toolkit: versions.key(toolkit["version"]))


def _header_version(host: Host, path: str) -> str | None:
    text = host.read(path) or ""
    numbers = [re.search(rf"#define CUDNN_{name}\s+(\d+)", text) for name in ("MAJOR", "MINOR", "PATCHLEVEL")]
    return ".".join(number.group(1) for number in numbers if number) if all(numbers) else None


def cudnn(host: Host) -> list[Cudnn]:
    """cuDNN libraries that packages brought, else the one whose header is in place."""
    found: list[Cudnn] = []
    for name, package in sorted(packages.installed(host).items()):
        named = _CUDNN_PACKAGE.match(name)
        if named:
            # cuDNN 8 tells its CUDA in the version: "8.9.7.29-1+cuda12.2".
            major = named.group(2) or next(iter(re.findall(r"\+cuda(\d+)", package.version)), None)
            found.append(
                {
                    "version": versions.upstream(package.version),
                    "cuda_major": int(major) if major else None,
                    "package": name,
                }
            )
    if not found:
        for path in ["/usr/include/cudnn_version.h", *list(host.glob("/usr/local/cuda*/include/cudnn_version.h"))]:
            version = _header_version(host, path)
            if version:
                found.append({"version": version, "cuda_major": None, "package": None})
                break
    return found


def observe(host: Host) -> Cuda:
    """The part `cuda`."""
    return {"toolkits": toolkits(host), "cudnn": cudnn(host)}
