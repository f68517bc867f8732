# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What Ubuntu calls its kernels: the flavour in a kernel's release, and the series of the meta packages that bring kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

_IMAGE_META = lazy(r"^linux-image-(?P<series>[a-z][a-z0-9.-]*)$")
# Image packages that are no meta package of a series: unsigned images, debug symbols, extra modules.
_NO_SERIES = ("unsigned", "extra", "uc-", "dbg")
_FLAVOUR = lazy(r"^\d+(?:\.\d+)*-\d+(?:\.\d+)*-(?P<flavour>[a-z][a-z0-9-]*)$")


def flavour_of(kernel: str) -> str:
    """Return the flavour in a kernel's release: aws of 6.8.0-1021-aws; generic where it tells none."""
    match = _FLAVOUR.match(kernel)
    return match["flavour"] if match else "generic"


def of_flavour(installed: Iterable[str], flavour: str) -> list[str]:
    """Return the series of a flavour whose image meta packages are installed: generic-hwe-24.04, oem-24.04, aws-lts-24.04 …"""
    found = (_IMAGE_META.match(name) for name in sorted(installed))
    names = [match["series"] for match in found if match and not match["series"].startswith(_NO_SERIES)]
    # A virtual machine's image is the generic kernel with fewer modules; headers and NVIDIA's modules have no name of their own for it.
    series = dict.fromkeys(re.sub(r"^virtual", "generic", name) for name in names)
    return [each for each in series if _belongs(each, flavour)]


def _belongs(series: str, flavour: str) -> bool:
    """Say whether a series such as aws-lts-24.04 or generic-hwe-24.04 has kernels of a flavour such as aws or generic. The kernels of
    nvidia-64k are no kernels of nvidia.
    """
    rest = series[len(flavour) :]
    return series.startswith(flavour) and (not rest or re.match(r"-(?:hwe|lts|edge|\d+\.\d)", rest) is not None)
