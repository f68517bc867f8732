# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The operating system: is it served, and what does it carry?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..rules import Row, Rules, cite
from . import kernel_metas
from .log import Log, Unresolved, conflict
from .machine import Machine

END_IS_NEAR = timedelta(days=180)
#: How the packages with headers of Red Hat's kernels begin.
DEVELS = ("kernel-devel", "kernel-64k-devel", "kernel-rt-devel")
# What requires the headers of one kernel together with its core; a flavoured kernel has its own.
_MATCHED = lazy(r"(?P<newest>(?P<devel>kernel-(?:64k-)?devel)-matched)-(?P<kernel>\d.*)")
# Red Hat's flavours: pages of 64 KiB, and real time (5.14.0-611.41.1.el9_7.aarch64+64k).
_FLAVOURED = lazy(r"(?P<release>\d.*)\+(?P<flavour>64k|rt)")
#: A system whose release the tables do not have, or that is named without one: ubuntu-24, rocky-7, debian.
_WRITTEN = lazy(r"^(?P<id>[a-z]+)[ _-]*(?P<version>[\d.]*).*$")
_EXTENDED = {"debian": "Debian LTS", "ubuntu": "Ubuntu Pro (ESM)", "rhel": "Red Hat's extended life cycle support"}


def find(machine: Machine, rules: Rules) -> Row:
    """Return the row of the machine's system, of a derivative under its own name. Raises Unresolved for one that is not served."""
    rows: list[Row] = rules["systems"]["rows"]
    derived = machine.derived
    if derived and (not derived["follows"] or _on_other_kernel(machine, derived)):
        of_kernel = f" with the kernel {machine.kernel}" if derived["follows"] else ""
        text = f"{derived['name']}{of_kernel} is not served: {derived['text']}"
        raise Unresolved(conflict("os.derived", text, cite(rules, "systems", derived), derived["remedy"]))
    row = next((each for each in rows if each["os"] == machine.os), None)
    if row is None:
        names = ", ".join(each["os"] for each in rows)
        text = f"{machine.os} is not served: package names, repositories and keys are known for {names}"
        near = _near(machine.os, rows)
        raise Unresolved(
            conflict("os.unknown", text, "compat/systems.yaml", f"use {near}" if near else f"use one of {names}")
        )
    return {**row, "name": derived["name"]} if derived else row


def nearest(name: str, rules: Rules) -> Row:
    """Return the row of the system that is nearest to one that is not served: of the same kind, else the first."""
    rows: list[Row] = rules["systems"]["rows"]
    near = _near(name, rows)
    return next(row for row in rows if row["os"] == near or (near is None and row["confirmed"]))


def _near(name: str, rows: Sequence[Row]) -> str | None:
    """Return the release next to one that is not served, of the same system: ubuntu-24.04 for ubuntu-24 and ubuntu-24.10, the newest where
    none is named; None for a system of which none is.
    """
    written = _WRITTEN.match(name.lower())
    several = [row for row in rows if written and row["id"] == written["id"]]
    if not written or not several:
        return None
    digits = written["version"].replace(".", "")
    if not digits:
        return next((str(row["os"]) for row in reversed(several) if row["confirmed"]), None)

    def version(text: str) -> int:
        """24, 2404 and 24.04 by the same measure: four digits of Ubuntu, two of the others."""
        return int(text.replace(".", "").ljust(4, "0")[:4])

    same = [row for row in several if row["version"].replace(".", "").startswith(digits)]
    if same:
        return str(same[0]["os"])
    return str(min(reversed(several), key=lambda row: abs(version(row["version"]) - version(digits)))["os"])


def _on_other_kernel(machine: Machine, derived: Row) -> bool:
    return bool(derived["not_kernel"] and machine.kernel and derived["not_kernel"] in machine.kernel)


def warn(machine: Machine, system: Row, log: Log) -> None:
    """Warn of a system whose support has ended or ends soon, of one of which little is confirmed, and of a derivative, whose own life is
    not known.
    """
    if machine.derived:
        text = f"{system['name']} is served as {system['os']}, which it is made from"
        log.warn("os.derived", text, log.cite("systems", machine.derived))
        return
    end = date.fromisoformat(system["support_end"])
    if end < machine.today:
        text = f"the standard support of {system['name']} ended on {system['support_end']}"
        if machine.today <= date.fromisoformat(system["extended_end"]):
            text += f"; {_EXTENDED[system['family']]} goes on until {system['extended_end']}"
        log.warn("os.end-of-life", text, log.cite("systems", system))
    elif end - machine.today <= END_IS_NEAR:
        text = (
            f"the standard support of {system['name']} ends on {system['support_end']}, within {END_IS_NEAR.days} days"
        )
        log.warn("os.end-of-life", text, log.cite("systems", system))
    if not system["confirmed"]:
        text = f"what is known of {system['name']} is not confirmed"
        log.warn("os.unconfirmed", text, log.cite("systems", system))


def series(machine: Machine, system: Row) -> str | None:
    """Return Ubuntu's kernel series (generic, generic-hwe-24.04, aws); None where the system has no such thing."""
    if system["kernel_series"] is None:
        return None
    kernel = machine.kernel
    if not kernel:
        return str(system["kernel_series"])
    flavour = kernel_metas.flavour_of(kernel)
    if flavour == "generic":
        base = numeric_version.key(kernel)[:2] == numeric_version.key(system["kernel"])
        return str(system["kernel_series"] if base else system["hwe"])
    return f"oem-{system['version']}" if flavour == "oem" else flavour


def headers(machine: Machine, system: Row, rules: Rules) -> str:
    """Return the package that keeps the kernel's headers in step with the kernel. Where that one would bring another kernel, those of
    exactly the kernel that boots next; they stay it until somebody installs the other. Red Hat's are those of exactly that kernel, and
    those of the newest where the repositories lost them and another kernel may come.
    """
    name = _in_step(machine, system, rules)
    there = machine.installed or {}
    matched = _MATCHED.fullmatch(name)
    if matched and f"headers={name}" in machine.absent:
        return matched["newest"]
    if matched and matched["newest"] in there and name not in there:
        # There is one version of it at a time, and DKMS is content with any: naming another would move it.
        return f"{matched['devel']}-{matched['kernel']}"
    alone = headers_alone(name, machine.kernel)
    sealed = machine.kept.get("headers") if machine.kept else None
    kept = sealed == alone and name not in (machine.installed or {})
    return alone if alone and (kept or f"headers={name}" in machine.absent) else name


def headers_alone(headers: str, kernel: str | None) -> str | None:
    """Return the package with the headers of one kernel and no other, where the usual one follows the newest."""
    return f"linux-headers-{kernel}" if kernel and headers.startswith("linux-headers-") else None


def headers_of_newest(headers: str) -> str | None:
    """Return the package with the headers of Red Hat's newest kernel of the same flavour, which brings that kernel, in place of those of
    an older one. None where no package brings both.
    """
    matched = _MATCHED.fullmatch(headers)
    return matched["newest"] if matched else None


def _flavour(kernel: str) -> str:
    """Return the flavour of a kernel whose headers have another name than the usual ones: cloud, 64k, rt; else default."""
    flavoured = _FLAVOURED.fullmatch(kernel)
    if flavoured:
        return flavoured["flavour"]
    return next((flavour for flavour in ("cloud", "rt") if f"-{flavour}-" in kernel), "default")


def _in_step(machine: Machine, system: Row, rules: Rules) -> str:
    other = other_kernel(machine, rules)
    if other and other["headers"] and system["family"] != "rhel":
        return str(other["headers"]).replace("{kernel}", str(machine.kernel))
    own = _flavour(machine.kernel or "")
    for row in rules["systems"]["headers"]:
        fits = row["family"] == system["family"]
        fits = fits and system["version"] in row.get("releases", [system["version"]])
        fits = fits and row["arch"] in ("any", machine.arch) and row["flavour"] in ("any", own)
        if fits:
            if "{series}" in row["headers"] and machine.kernel and machine.installed is not None:
                return _of_meta(machine, machine.kernel, system, str(row["headers"]))
            of_series = series(machine, system) or "generic"
            # Which of oem-24.04, oem-24.04a … brings a kernel nobody knows who has not looked at the machine.
            of_series = str(machine.kernel) if of_series.startswith("oem-") else of_series
            name = str(row["headers"]).replace("{series}", of_series)
            if not machine.kernel or "-" not in machine.kernel:
                # Nobody looked at the machine: it has a version at most and no release, and the name without a kernel stands for it.
                return name.removesuffix("-{kernel}")
            flavoured = _FLAVOURED.fullmatch(machine.kernel) if row["flavour"] == own else None
            return name.replace("{kernel}", flavoured["release"] if flavoured else machine.kernel)
    text = f"no package of kernel headers is known for {machine.os} on {machine.arch}"
    raise Unresolved(conflict("os.headers", text, "compat/systems.yaml", "use x86_64 or aarch64"))


def _of_meta(machine: Machine, kernel: str, system: Row, headers: str) -> str:
    """Return the headers of the series whose image meta package is installed (generic-hwe-24.04, oem-24.04, nvidia-64k); where none is,
    nothing brings newer kernels either, and the headers are those of the kernel alone.
    """
    own = kernel_metas.of_flavour(machine.installed or (), kernel_metas.flavour_of(kernel))
    likely = series(machine, system)
    found = likely if likely in own else own[0] if own else kernel
    return headers.replace("{series}", found)


def other_kernel(machine: Machine, rules: Rules) -> Row | None:
    """Return the row of a kernel that is not the distribution's own, or for which NVIDIA's build wants something of the person."""
    rows: list[Row] = rules["systems"]["other_kernels"]
    return next((row for row in rows if machine.kernel and re.search(row["release"], machine.kernel)), None)


def warn_of_kernel(machine: Machine, log: Log) -> None:
    """Tell what a person has to know of such a kernel where the driver's modules are built for it."""
    row = other_kernel(machine, log.rules)
    if row:
        text = f"the kernel {machine.kernel} is {row['name']}: {row['text']}; {row['remedy']}"
        log.warn("kernel.other", text, log.cite("systems", row))


def signs(machine: Machine, system: Row, rules: Rules) -> bool:
    """Say whether the distribution signs the driver's modules for its kernels, so that Secure Boot takes them as they are."""
    rows = [row for row in rules["systems"]["distro_drivers"] if row["os"] == system["os"] and row["prebuilt"]]
    release = machine.release
    return any(
        not row.get("first_release") or (release and numeric_version.at_least(release, row["first_release"]))
        for row in rows
    )


def transitional(system: Row, branch: str | None, rules: Rules) -> Row | None:
    """Return the row of a branch whose packages the distribution has in name only: they are empty and bring another branch."""
    rows: list[Row] = rules["systems"]["distro_transitional"]
    return next((row for row in rows if row["os"] == system["os"] and row["branch"] == branch), None)


def distro_driver(system: Row, branch: str, rules: Rules) -> Row | None:
    """Return the row of a branch that the distribution carries."""
    rows: list[Row] = rules["systems"]["distro_drivers"]
    return next((row for row in rows if row["os"] == system["os"] and row["branch"] == branch), None)
