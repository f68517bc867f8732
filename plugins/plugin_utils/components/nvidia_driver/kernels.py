# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernels that a plan would install without having been asked to. Pure.

A module package can depend on a newer kernel than the one that is there (Ubuntu's meta packages of prebuilt modules, RHEL's
kernel-devel-matched): the machine would boot another kernel only because it was given a driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...model import index_answer
from ...model.errors import StepRefused
from ...resolver import systems
from ..base import Context

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex, PackageInstall

    from ...model.stack import Refusal

#: Debian's and Ubuntu's images carry their release in their name, Red Hat's in their version.
_IMAGE = re.compile(r"^linux-image-(?:unsigned-)?(?P<release>\d\S*?)(?:-unsigned)?(?::\w+)?$")
_RPM = re.compile(r"^kernel(?:-(?P<flavour>rt|64k)|-(?:uek|azure|lt|ml))?(?:-core)?$")
_CORE = re.compile(r"^(?P<kernel>kernel(?:-(?:rt|64k))?)-core$")


def unasked(install: Iterable[PackageInstall], present: Iterable[str]) -> list[str]:
    """Packages, with their versions, that bring a kernel whose release is not among those present."""
    there = list(present)
    found = []
    for row in install:
        image = _IMAGE.match(row["name"])
        version = str(row.get("version") or "").split(":", 1)[-1]
        if image and not image["release"].endswith("-dbg") and image["release"] not in there:
            found.append(str(row["name"]))
        rpm = _RPM.match(row["name"])
        if rpm and not any(_is_of(version, rpm["flavour"], release) for release in there):
            found.append(f"{row['name']} {version}".rstrip())
    return found


def _is_of(version: str, flavour: str | None, release: str) -> bool:
    """Say whether a release is that of a package of Red Hat's. Flavoured kernels of today have the version of the usual one, and their
    flavour behind a plus; real-time ones of release 8 have ``.rt`` and a number in the version.
    """
    own = release.partition("+")[2] == (flavour or "") or f".{flavour}" in version
    return bool(version) and release.startswith(version) and own


def headers_alone(context: Context) -> str | None:
    """Return the package with the headers of exactly the kernel that boots next, where the driver is built on this node."""
    driver = context.stack.get("driver")
    headers = driver.get("headers") if driver and driver.get("build") == "dkms" else None
    if not headers:
        return None
    return systems.headers_alone(headers, context.facts["kernel"]["next"])


def headers_absent(index: PackageIndex, context: Context) -> dict[str, list[str]]:
    """Return the headers that the plan names as a thing that the index lacks, with those to name in their place.

    Debian's meta package depends on its kernel: where that is another one, the headers of exactly the kernel that boots next come alone.
    Red Hat's repositories lose the headers of older kernels: where another kernel is allowed, it comes with its own.
    """
    driver = context.stack.get("driver")
    named = driver.get("headers") if driver else None
    alone = headers_alone(context)
    instead = alone
    if alone is not None and named != alone:
        lacking = bool(_brought(index["install"], context)) and _is_to_be_had(alone, index, context)
    else:
        instead = systems.headers_of_newest(named or "")
        lacking = instead is not None and _allowed(context) and not _is_to_be_had(str(named), index, context)
    return {f"headers={named}": [str(instead)]} if lacking else {}


def _is_to_be_had(name: str, index: PackageIndex, context: Context) -> bool:
    return name in context.installed or bool(index_answer.candidate(index, name))


def _allowed(context: Context) -> bool:
    """Say whether another kernel may come with the driver."""
    return bool(context.variables.get("nvidia_driver", {}).get("nvidia_driver_allow_kernel", False))


def _brought(install: Iterable[PackageInstall], context: Context) -> list[str]:
    """Return the kernels that come unasked: none where ``nvidia_driver_allow_kernel`` asks for them."""
    return [] if _allowed(context) else unasked(install, context.facts["kernel"]["installed"] or ())


def whole(install: Iterable[PackageInstall], context: Context) -> list[str]:
    """Return the meta packages, with their versions, of Red Hat's kernels that come on purpose and would come as their core alone.

    kernel-core requires neither ``kernel`` nor ``kernel-modules``, so as a dependency it brings a kernel without the modules of network
    and storage, which then boots next. Source: the kernel's spec of EL 9 (openela-main/kernel, SPECS/kernel.spec).
    """
    rows = list(install)
    if not _allowed(context):
        return []
    coming = {(row["name"], row.get("version")) for row in rows}
    there = context.facts["kernel"]["installed"] or ()
    found = []
    for row in rows:
        core = _CORE.match(row["name"])
        if core and unasked([row], there) and (core["kernel"], row.get("version")) not in coming:
            found.append(f"{core['kernel']}-{row['version']}.{context.facts['os']['arch']}")
    return found


def refusals(install: Iterable[PackageInstall], context: Context) -> list[Refusal]:
    """The refusal of a plan that would install another kernel, unless ``nvidia_driver_allow_kernel`` is set."""
    found = _brought(install, context)
    if not found:
        return []
    text = f"the driver would bring another kernel with it: {', '.join(found)}"
    remedy = "update the kernel first, by itself, and boot it; or allow it with -e nvidia_driver_allow_kernel=true"
    return [{"rule": "kernel-unasked", "text": text, "source": "gpuwright", "remedy": remedy}]


def came(before: Iterable[str], context: Context) -> None:
    """Judge the kernels after the driver's packages: the driver never drags in another one unasked. The plan refuses where the package
    manager says so beforehand; this is the proof afterwards. Raises StepRefused.
    """
    there = list(before)
    new = [release for release in context.facts["kernel"]["installed"] or () if release not in there]
    if _allowed(context) or not new:
        return
    raise StepRefused(
        f"Expected the kernels that were there: {', '.join(there)}. Found, since the driver's packages were installed, {', '.join(new)} "
        "too. What to do: remove it, or keep it (nvidia_driver_allow_kernel: true); then run again."
    )
