# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Python interpreters of the system, and the virtual environments that frameworks live in."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    environment_builds,
    installed_files,
    jupyter_kernels,
    packages,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Interpreter,
        KeptEnvironment,
        Python,
        PythonEnvironment,
    )


def _full_version(host: Host, prefix: str, short: str) -> str:
    """Version of an interpreter with its patch level where a package or a header tells it, else "3.12"."""
    if prefix == "/usr":
        names = ["python{0}-minimal", "python{0}"] + (
            ["python3"] if os.path.basename(host.realpath("/usr/bin/python3")) == "python" + short else []
        )
        packaged = packages.version_of(host, *[name.format(short) for name in names])
        version = versions.upstream(packaged) if packaged else ""
        if version.startswith(short + "."):
            return version
    found = re.search(
        r'#define PY_VERSION\s+"([^"]+)"', host.read(f"{prefix}/include/python{short}/patchlevel.h") or ""
    )
    return found.group(1) if found else short


def _can_make_environments(host: Host, prefix: str, short: str) -> bool:
    """Whether ensurepip is there (Debian and Ubuntu put it into a package of its own, python3.x-venv)."""
    return any(
        host.exists(f"{prefix}/{directory}/python{short}/ensurepip/__init__.py") for directory in ("lib", "lib64")
    )


def interpreters(host: Host) -> list[Interpreter]:
    """Interpreters in the system's directories, oldest first."""
    found: list[Interpreter] = []
    for prefix in ("/usr", "/usr/local"):
        for path in host.glob(prefix + "/bin/python3.*"):
            named = re.match(r"^python(3\.\d+)$", os.path.basename(path))
            if named and host.executable(path):
                short = named.group(1)
                found.append(
                    {
                        "path": path,
                        "version": _full_version(host, prefix, short),
                        "venv": _can_make_environments(host, prefix, short),
                    }
                )
    return sorted(found, key=lambda one: versions.key(one["version"]))


def observe(host: Host) -> Python:
    """The part `python`. `venv` tells of the system's own interpreter."""
    found = interpreters(host)
    system = re.match(r"^python(3\.\d+)$", os.path.basename(host.realpath("/usr/bin/python3")))
    if system is None and host.exists("/usr/bin/python3"):
        host.unknown("python.venv", "/usr/bin/python3 leads to {}".format(host.realpath("/usr/bin/python3")))
        return {"interpreters": found, "venv": None}
    return {"interpreters": found, "venv": system is not None and _can_make_environments(host, "/usr", system.group(1))}


def site_packages(host: Host, path: str) -> list[str]:
    """Directories of an environment that hold distributions."""
    return list(host.glob(path + "/lib/python3.*/site-packages")) + [
        item for item in host.glob(path + "/lib64/python3.*/site-packages") if host.link(path + "/lib64") is None
    ]


def distributions(host: Host, path: str) -> dict[str, str]:
    """Distributions of an environment with their versions, by the names of their metadata directories."""
    found = {}
    for directory in site_packages(host, path):
        for name in host.names(directory, "environments." + path):
            named = re.match(r"^(.+)-([^-]+)\.(?:dist|egg)-info$", name)
            if named:
                found[re.sub(r"[-_.]+", "-", named.group(1)).lower()] = named.group(2)
    return found


def environment(host: Host, path: str) -> PythonEnvironment | None:
    """One virtual environment; None when there is none."""
    config = host.read(path + "/pyvenv.cfg", "environments." + path)
    if config is None:
        return None
    seen: PythonEnvironment = {
        "python": _python(config),
        "packages": distributions(host, path),
        "loader_path": loader_path(host, path),
        "damage": _damage(host, path),
        "kept": _kept(host, path),
    }
    # One of the same name there is root's, and none of a user's.
    kernel = None if host.of_user else jupyter_kernels.observe(host, path)
    if kernel is not None:
        seen["kernel"] = kernel
    return seen


def _python(config: str) -> str | None:
    version = re.search(r"^version(?:_info)?\s*=\s*(\S+)", config, re.MULTILINE)
    return version.group(1) if version else None


def _kept(host: Host, path: str) -> KeptEnvironment | None:
    """The build of an environment that was in use before; None where none is kept."""
    builds = environment_builds.look(host, path)
    build = builds.at(builds.kept) if builds.kept else ""
    config = host.read(build + "/pyvenv.cfg", "environments." + path) if build else None
    if config is None:
        return None
    return {
        "python": _python(config),
        "packages": distributions(host, build),
        "loader_path": loader_path(host, build),
        "gave_way": host.line(builds.gave_way),
    }


def _damage(host: Host, path: str) -> list[str]:
    """What is broken in an environment, as parts of a sentence."""
    found = [] if host.executable(path + "/bin/python") else ["bin/python cannot be run"]
    found += [
        f"{directory} is closed to other users"
        for directory in (os.path.dirname(path), path, path + "/bin", *site_packages(host, path))
        # What is a user's own others need not enter.
        if not host.of_user and _closed(host, directory)
    ]
    return found + lost(host, path)


def lost(host: Host, path: str) -> list[str]:
    """What of the files that pip installed in an environment is not as it was, as parts of a sentence."""
    return [told for directory in site_packages(host, path) for told in installed_files.damage(host, directory)]


def _closed(host: Host, path: str) -> bool:
    status = host.stat(path)
    return status is not None and status.st_mode & 0o005 != 0o005


def loader_path(host: Host, path: str) -> str | None:
    """The directory of libraries that our file in an environment puts first when the environment is activated."""
    text = host.read(path + "/gpuwright-cuda-compat.sh", "environments." + path)
    found = re.search(r'^export LD_LIBRARY_PATH="([^":$]+)', text or "", re.MULTILINE)
    return found.group(1) if found else None


def environments(host: Host, asked: Iterable[str]) -> dict[str, PythonEnvironment]:
    """The part `environments`: those below the usual place and the `asked` ones (paths of the wish and of seals)."""
    paths = set(asked) | set(host.glob(host.places.environments + "/*", "environments"))
    found = {path: environment(host, path) for path in sorted(paths)}
    return {path: seen for path, seen in found.items() if seen is not None}
