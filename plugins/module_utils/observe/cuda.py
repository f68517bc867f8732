# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits and cuDNN, by their files and packages; what /usr/local/cuda is, and modulefiles."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Iterator, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import loader, packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        ArchiveRecord,
        Cuda,
        Cudnn,
        DefaultKind,
        DefaultToolkit,
        FormerToolkit,
        Modulefiles,
        Toolkit,
        ToolkitRecord,
        ToolkitState,
        VisibleCards,
    )

#: The toolkit that is taken where none is named.
LINK = "/usr/local/cuda"
_CHOSEN = "/etc/alternatives/cuda"
#: Where the alternatives system keeps what is registered under a name: dpkg's, and that of Red Hat's family. Both write the mode first,
#: then the link, and then each path with its priority below it.
_REGISTERS = ("/var/lib/dpkg/alternatives/cuda", "/var/lib/alternatives/cuda")
#: By a file that only this module system brings: the directory for a site's own modulefiles that is on its MODULEPATH as it was packaged.
_MODULE_SYSTEMS = {
    # environment-modules of Debian and Ubuntu, then of Red Hat's family
    "/usr/share/modules/init/sh": "/etc/environment-modules/modules",
    "/usr/share/Modules/init/sh": "/etc/modulefiles",
    # Lmod of Debian and Ubuntu, then of EPEL
    "/etc/lmod/modulespath": "/etc/lmod/modules",
    "/etc/profile.d/00-modulepath.sh": "/etc/modulefiles",
}
#: What a record may say of itself. An installation that an earlier version began went to the place of the toolkit itself ("begun"); by now
#: it is made beside it ("staged").
_STATES: Mapping[str, ToolkitState] = {"begun": "begun", "staged": "staged", "done": "done"}
_OURS = "Written by gpuwright (role cuda)"
# "export PATH=/usr/local/cuda/bin:$PATH"; what reads the directory from a variable is none that can be seen.
_ON_PATH = re.compile(r"^[^#\n]*\bPATH=[^#\n]*/usr/local/cuda[\w.-]*/bin", re.MULTILINE)
# What stands in a condition is indented, and not for everybody.
_VISIBLE = re.compile(
    r"""^(?:export[ \t]+)?CUDA_VISIBLE_DEVICES=(["']?)([A-Za-z0-9,/_. -]{0,400})\1[ \t]*(?:[;#].*)?$""", re.MULTILINE
)
_MOST_FILES = 20
_CUDNN_PACKAGE = re.compile(r"^libcudnn(\d+)(?:-cuda-(\d+))?$")


def _stated_version(host: Host, path: str) -> str | None:
    """Version that a toolkit's own file tells (version.json; before CUDA 11.1 version.txt)."""
    text = host.read(path + "/version.json")
    if text:
        return parse_version(text)
    found = re.search(r"CUDA Version (\d+(?:\.\d+)+)", host.read(path + "/version.txt") or "")
    return found.group(1) if found else None


def parse_version(text: str) -> str | None:
    """The version in a toolkit's version.json; None where it tells none."""
    try:
        return str(json.loads(text)["cuda"]["version"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _packaged_version(host: Host, short: str) -> str | None:
    version = packages.version_of(host, "cuda-toolkit-" + short.replace(".", "-"))
    return versions.upstream(version) if version else None


def toolkits(host: Host) -> list[Toolkit]:
    """Toolkits below /usr/local, and the distribution's own. A directory without a compiler and without a version is none."""
    found: dict[str, Toolkit] = {}
    for path in host.glob(LINK + "-*"):
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


def _target(host: Host, path: str) -> str | None:
    """Where a link leads in one step; None where it is none."""
    text = host.link(path)
    return os.path.normpath(os.path.join(os.path.dirname(path), text)) if text else None


def default(host: Host) -> DefaultToolkit:
    """What /usr/local/cuda is. Links beyond the alternatives' own are not followed: a toolkit may be one itself."""
    target = _target(host, LINK)
    chosen = _target(host, _CHOSEN) if target == _CHOSEN else None
    kind: DefaultKind | None = (
        "alternatives" if chosen else "link" if target else "other" if host.exists(LINK) else None
    )
    lines = next((text.splitlines() for text in map(host.read, _REGISTERS) if text), [])
    return {
        "kind": kind,
        "path": chosen or target,
        "manual": lines[0] == "manual" if lines else None,
        "registered": [os.path.normpath(line) for line in lines[2:] if line.startswith("/")],
        "before": _before(host),
    }


def _before(host: Host) -> FormerToolkit | None:
    """What it was before gpuwright led it elsewhere; None where it never did."""
    try:
        record = json.loads(host.read(paths.CUDA_BEFORE) or "{}")
        path, manual = record["path"], record["manual"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return {"path": path if isinstance(path, str) and path.startswith("/") else None, "manual": manual is True}


def runfiles(host: Host) -> list[ToolkitRecord]:
    """What gpuwright wrote down of the toolkits that it brought by a file of NVIDIA's."""
    return [
        {"path": path, "release": release, "state": _STATES[state], "packaged": _packaged(host, path)}
        for path, release, state in _records(host, "cuda", "release")
    ]


def _packaged(host: Host, path: str) -> bool | None:
    """Whether packages brought something into a directory; None where their manager does not tell."""
    if not host.exists(path):
        return False
    if packages.manager(host) == "apt":
        argv = ["dpkg-query", f"--admindir={host.at('/var/lib/dpkg')}", "--search", f"{path}/*"]
        found = host.run(argv, takes_root=True)
        # 1: nothing.
        return {0: True, 1: False}.get(-1 if found.rc is None else found.rc)
    inside = [f"{folder}/{name}" for folder in (path, f"{path}/bin") for name in host.names(folder)]
    asked = host.run(["rpm", *([] if host.live else ["--root", host.root]), "-qf", path, *inside], takes_root=True)
    if asked.rc is None:
        return None
    return any(line and not line.endswith("is not owned by any package") for line in asked.out.splitlines())


def archives(host: Host) -> list[ArchiveRecord]:
    """What gpuwright wrote down of the archives of libraries that it put into toolkits. Their directories may be gone with these."""
    return [
        {
            "library": library,
            "path": path,
            "version": version,
            "state": "done" if state == "done" and _is_led_to(host, path, f"{library}-{version}", header) else "begun",
        }
        for library, header in paths.ARCHIVED.items()
        for path, version, state in _records(host, library, "version")
    ]


def _is_led_to(host: Host, path: str, directory: str, header: str) -> bool:
    """Whether the link to a library's header leads into its directory, and that is there."""
    leads = host.link(f"{path}/include/{header}") or ""
    return host.isdir(f"{path}/{directory}") and leads.startswith(f"{path}/{directory}/")


def _records(host: Host, name: str, key: str) -> Iterator[tuple[str, str, str]]:
    """Of each record of a kind: the path, what it says under `key`, and its state. Others are left out."""
    for file in host.glob(f"{paths.SETTINGS}/{name}-*.json"):
        try:
            record = json.loads(host.read(file) or "")
            path, version, state = record["path"], record[key], record["state"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(path, str) and path.startswith("/") and isinstance(version, str) and state in _STATES:
            yield path, version, state


def modulefiles(host: Host) -> Modulefiles:
    """Where the module systems that are installed look for a site's own modulefiles, and those of CUDA there."""
    directories = sorted({place for file, place in _MODULE_SYSTEMS.items() if host.exists(file)})
    found = [path for place in sorted(set(_MODULE_SYSTEMS.values())) for path in host.glob(place + "/cuda/*")]
    return {
        "directories": directories,
        "files": [{"path": path, "ours": _OURS in (host.read(path) or "")} for path in found if not host.isdir(path)],
    }


def on_path(host: Host) -> list[str]:
    """The files of every login that put a toolkit below /usr/local into PATH."""
    return [path for path in _of_logins(host) if _ON_PATH.search(host.read(path) or "")][:_MOST_FILES]


def _of_logins(host: Host) -> list[str]:
    """The files from which every login has its variables."""
    return ["/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", *host.glob("/etc/profile.d/*.sh")]


def visible(host: Host) -> list[VisibleCards]:
    """What every login has in CUDA_VISIBLE_DEVICES, by the files that say so: the last line of each counts."""
    said: list[VisibleCards] = []
    for path in _of_logins(host):
        found = _VISIBLE.findall(host.read(path) or "")
        if found:
            said.append({"file": path, "value": str(found[-1][1])})
    return said[:_MOST_FILES]


def observe(host: Host) -> Cuda:
    """The part `cuda`."""
    seen: Cuda = {
        "toolkits": toolkits(host),
        "cudnn": cudnn(host),
        "default": default(host),
        "modulefiles": modulefiles(host),
        "runfiles": runfiles(host),
        "archives": archives(host),
    }
    leading = on_path(host)
    if leading:
        seen["on_path"] = leading
    shown = visible(host)
    if shown:
        seen["visible"] = shown
    first = loader.leading(host)
    if first:
        seen["leading"] = first
    return seen
