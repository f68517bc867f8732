"""Programs of packages that would start a service when they are installed: fetched by apt, which verifies them, and only unpacked."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from .shell import SimulationError, run, say

CACHE = Path(__file__).parents[2] / ".cache" / "unpacked"
#: Program: the package of Debian and Ubuntu that has it.
PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}


def program(name: str, cache: Path = CACHE) -> Path:
    """The program: the one on PATH, else that of its package, fetched once into the cache.

    Raises SimulationError where neither is to be had.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    package = PACKAGES[name]
    place = cache / package
    if not (place / "usr/bin" / name).is_file():
        _fetch(name, package, place)
    return place / "usr/bin" / name


def _fetch(name: str, package: str, place: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SimulationError(
            f"{name} is not on PATH and there is no apt to fetch it with: install {package}, then try again"
        )
    say(f"{name} is not on PATH: fetching the package {package} (apt-get download)")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        _download(name, package, Path(work))
        (archive,) = Path(work).glob("*.deb")
        run(["dpkg", "-x", str(archive), f"{work}/root"])
        try:
            os.replace(f"{work}/root", place)  # noqa: PTH105 - one step: another process may do the same
        except OSError:
            if not (place / "usr/bin" / name).is_file():
                raise


def _download(name: str, package: str, folder: Path) -> None:
    command = ["apt-get", "download", "-q", package]
    done = run(command, check=False, cwd=folder)
    if done.returncode != 0 and os.geteuid() == 0:
        run(["apt-get", "update", "-q"], check=False)
        done = run(command, check=False, cwd=folder)
    if done.returncode != 0:
        raise SimulationError(
            f"{name} is not on PATH and `apt-get download {package}` failed: run `apt-get update` as root, or install {package}.\n"
            f"{done.stderr.strip()}"
        )
