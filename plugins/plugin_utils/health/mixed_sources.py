# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge package sources that do not go together: NVIDIA's of two systems, and the driver of two packagers.

The package manager takes the newest of each package, whoever has it: what is of two builds does not fit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..components.view import View
from ..rules import load_rules
from . import hidden

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource

#: The system in the address of a repository of NVIDIA's, on the network or unpacked by a local installer: `cuda/repos/debian12/x86_64`,
#: `cuda-repo-ubuntu2204-12-4-local`.
_SYSTEM = re.compile(r"/(?:cuda/repos/|cuda-repo-|nvidia-driver-local-repo-)([a-z]+[0-9]+)(?![a-z0-9])")
#: Other packagers of the driver by the ids of their repositories of dnf. They name packages as NVIDIA does (nvidia-settings,
#: nvidia-modprobe, nvidia-driver): https://github.com/negativo17/nvidia-driver/issues/162 (2024-09-12),
#: https://pastebin.com/2aDtRcm5 (2025-05-24).
#: RPM Fusion is for Fedora and for Red Hat's systems and their rebuilds (rpmfusion-nonfree-release for el). There NVIDIA's driver is a
#: module of dnf as well, which RPM Fusion's guide has switched off (https://rpmfusion.org/Howto/CUDA).
_PACKAGERS = (
    ("negativo17", re.compile(r"(?:epel|fedora)-(?:nvidia|multimedia)")),
    ("RPM Fusion", re.compile(r"rpmfusion-nonfree(?:-updates|-nvidia-driver)?")),
)
#: Packages of a driver: who leaves one of them out leaves out the driver.
_DRIVER = ("nvidia-driver", "xorg-x11-drv-nvidia", "nvidia-modprobe")
_MODULE = "nvidia-driver"
_ID = "packages.mixed"
#: Systems that NVIDIA has a repository for each release of (compat/upstreams.yaml). Others take that of
#: a release that is near.
_WITH_THEIR_OWN = re.compile(r"ubuntu(?:20|22|24|26)04|debian1[0-3]|rhel(?:8|9|10)")
#: Where the archives of Debian and Ubuntu lie on every mirror, and their releases.
_ARCHIVES = ("/ubuntu", "/ubuntu-ports", "/debian", "/debian-security")
_RELEASES = {
    "ubuntu": frozenset(
        (
            *(
                "trusty",
                "xenial",
                "bionic",
                "focal",
                "groovy",
                "hirsute",
                "impish",
                "jammy",
                "kinetic",
                "lunar",
                "mantic",
                "noble",
            ),
            *("oracular", "plucky", "questing", "resolute"),
        )
    ),
    "debian": frozenset(("stretch", "buster", "bullseye", "bookworm", "trixie", "forky")),
}


_TITLES = {"ubuntu": "Ubuntu", "debian": "Debian"}
#: Codenames of systems that are made of these, which they are taken for (linuxmint.com/download_all.php; kali.org/docs).
_DERIVED = frozenset(
    ("kali-rolling", "una", "vanessa", "vera", "victoria", "virginia", "wilma", "xia", "zara", "faye", "elsie")
)
_ELSEWHERE = {
    base: _DERIVED.union(*(names for other, names in _RELEASES.items() if other != base)) for base in _RELEASES
}
#: Where packages lie by the system that they are made for: Docker's repository, on mirrors too, and Launchpad's PPAs, which are Ubuntu's.
_BASE = re.compile(r"/linux/(ubuntu|debian)/|//ppa\.launchpad(?:content)?\.net/[^/]+/[^/]+/ubuntu/")
#: The directory of an architecture in NVIDIA's repositories, by what the kernel calls it.
_DIRECTORIES = {"x86_64": "x86_64", "aarch64": "sbsa"}
_ARCHITECTURE = re.compile(r"/cuda/repos/[a-z0-9-]+/([a-z0-9_-]+)/")


def judge_mixed(view: View) -> list[Check]:
    """Sources that are enabled together are for one system, and bring one driver."""
    rows: list[PackageSource] = [row for row in view.get("packages.sources") or () if row["enabled"]]
    of_nvidia = [(name, row) for row in rows for name in _systems(row)]
    told = [*_of_another_release(view, rows), *_of_no_release(view, rows), *_of_another_machine(view, rows)]
    if of_nvidia:
        told += [*_of_two_systems(view, of_nvidia), *_of_two_packagers(view, of_nvidia, rows)]
        return told or [checks.passed(_ID, "warning")]
    return told


def _of_another_release(view: View, rows: list[PackageSource]) -> Iterator[Check]:
    """The distribution's own archive is that of its release: packages of another one need another C library, or come no more."""
    own, known = view.get("os.codename"), _RELEASES.get(str(view.get("os.id")), frozenset())
    if own not in known:
        return
    for row in rows:
        archive = any((urlsplit(uri).path.rstrip("/") or "/") in _ARCHIVES for uri in row["uris"])
        others = sorted({suite for suite in row["suites"] if re.split(r"[-/]", suite)[0] in known - {own}})
        if archive and others:
            yield checks.failed(
                _ID,
                "warning",
                measured=others,
                reason=f"{row['file']} has packages of {', '.join(others)}, and this system is {own}: what comes of both does not go "
                "together, and a release that has ended is on no mirror any more",
                action="configure",
                remedy=f"write {own} in its place, or remove the file; then apt-get update",
            )


def _of_no_release(view: View, rows: list[PackageSource]) -> Iterator[Check]:
    """Docker has packages for releases of each system apart, and a PPA for those of Ubuntu: a release of another system is not there."""
    own = _codename(view)
    for row in rows:
        base = next(
            (found[1] or "ubuntu" for uri in row["uris"] for found in [_BASE.search(f"{uri.rstrip('/')}/")] if found),
            None,
        )
        strange = [suite for suite in row["suites"] if base and suite in _ELSEWHERE[base]]
        if not strange:
            continue
        here = own in _RELEASES[str(base)]
        other = next((name for name, names in _RELEASES.items() if own in names), None)
        instead = f"write {own} in place of {', '.join(strange)}" if here else ""
        if not here and other and "/linux/" in row["uris"][0]:
            instead = f"write /linux/{other} {own} in its place"
        yield checks.failed(
            _ID,
            "warning",
            measured=[row["file"]],
            reason=f"{row['file']} asks for {', '.join(strange)} of {row['uris'][0]}, which has {_TITLES[str(base)]}'s releases alone: "
            "apt-get update fails there (no Release file)",
            action="configure",
            remedy=f"{instead}, or remove the file"
            if instead
            else f"remove {row['file']}: it has nothing for this system",
        )


def _codename(view: View) -> str:
    """The codename of this system, or of the one that it follows, as Linux Mint does Ubuntu."""
    rules = load_rules()["systems"]
    major = str(view.get("os.version") or "").partition(".")[0]
    told = (
        row["follows"] for row in rules["derivatives"] if row["id"] == view.get("os.id") and row["version"] == major
    )
    follows = next(told, None)
    return next((row["codename"] for row in rules["rows"] if row["os"] == follows), None) or str(
        view.get("os.codename")
    )


def _of_another_machine(view: View, rows: list[PackageSource]) -> Iterator[Check]:
    """NVIDIA's repository has a directory for each architecture; servers with ARM processors have sbsa, and arm64 is for Jetsons."""
    arch = str(view.get("os.arch"))
    if arch not in _DIRECTORIES or view.environment == "jetson":
        return
    for row in rows:
        found = next((found[1] for uri in row["uris"] for found in [_ARCHITECTURE.search(f"{uri}/")] if found), None)
        if found and found not in (_DIRECTORIES[arch], "cross-linux-sbsa"):
            yield checks.failed(
                _ID,
                "warning",
                measured=[row["file"]],
                reason=f"{row['file']}: NVIDIA's packages there are for {found}, and this machine is {arch}: it finds none of them",
                action="configure",
                remedy=f"write {_DIRECTORIES[arch]} in place of {found} in its address, or remove the file",
            )


def _systems(row: PackageSource) -> set[str]:
    """The systems that a source of NVIDIA's is for, in its own words; empty for a source of somebody else."""
    return {found[1] for uri in row["uris"] for found in [_SYSTEM.search(f"{uri}/")] if found}


def _of_two_systems(view: View, of_nvidia: list[tuple[str, PackageSource]]) -> Iterator[Check]:
    names = sorted({name for name, _row in of_nvidia})
    own = _own(view)
    if names == [own] or (len(names) == 1 and not _WITH_THEIR_OWN.fullmatch(own)):
        return
    if own not in names:
        files = sorted({row["file"] for _name, row in of_nvidia})
        if len(names) == 1:
            yield checks.failed(
                _ID,
                "warning",
                measured=files,
                reason=f"{', '.join(files)}: NVIDIA's packages are those for {names[0]}, and this is {own}: they need other libraries",
                action="configure",
                remedy=f"remove that file, and take the repository for {own} (gpuwright up sets it up)",
            )
            return
    wrong = sorted(
        {row["file"] for name, row in of_nvidia if name != own}
        if own in names
        else {row["file"] for _name, row in of_nvidia}
    )
    yield checks.failed(
        _ID,
        "warning",
        measured=wrong,
        reason=f"{', '.join(wrong)}: NVIDIA's packages for {' and '.join(names)} come together"
        + (f", and this is {own}" if own in names else ""),
        action="configure",
        remedy="remove that file, or the package that brought it (a local repository, an old package of the key)"
        if own in names
        else "remove all of them but the one for the release that this system is made of",
    )


def _own(view: View) -> str:
    """This system as NVIDIA names it: `debian12`, `ubuntu2404`, `rhel9`, `fedora43`."""
    name, version = str(view.get("os.id")), str(view.get("os.version") or "")
    if view.get("os.family") == "redhat" and name not in ("fedora", "amzn"):
        return f"rhel{version.partition('.')[0]}"
    return name + version.replace(".", "")


def _of_two_packagers(
    view: View, of_nvidia: list[tuple[str, PackageSource]], rows: list[PackageSource]
) -> Iterator[Check]:
    own = {row.get("name") for _name, row in of_nvidia}
    if _MODULE in (view.get("packages.disabled_modules") or ()) or all(_leaves_out(view, name) for name in own):
        return
    for packager, ids in _PACKAGERS:
        found = sorted({str(row.get("name")) for row in rows if ids.fullmatch(row.get("name") or "")})
        if not found or all(_leaves_out(view, name) for name in found):
            continue
        yield checks.failed(
            _ID,
            "warning",
            measured=found,
            reason=f"{', '.join(found)} of {packager} has the driver too, beside NVIDIA's repository: dnf mixes packages of both, and "
            "files of them are the same",
            action="configure",
            remedy="leave one of them with the driver: enabled=0 in the file of the other (/etc/yum.repos.d), or excludepkgs=*nvidia*",
        )


def _leaves_out(view: View, source: str | None) -> bool:
    """Whether a repository brings no driver here, as an exclusion of dnf has it."""
    rules = [row for row in view.get("packages.hides") or () if row["source"] == source]
    return any(hidden.keeps_out(row, name) for row in rules for name in _DRIVER)
