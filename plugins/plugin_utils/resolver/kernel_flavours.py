# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ubuntu's kernel flavours: modules that Canonical builds and signs exist for each one, and each one that may boot needs them.

A series is what Ubuntu's meta packages carry in their names: generic, generic-hwe-24.04, aws, lowlatency, nvidia …
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ansible_collections.gpuwright.node.plugins.module_utils import dotted

from ..rules import Row
from ..situation import Situation
from . import systems

_IMAGE_META = re.compile(r"^linux-image-(?P<series>[a-z][a-z0-9.-]*)$")
# Image packages that are no meta package of a series: unsigned images, debug symbols, extra modules.
_NO_SERIES = ("unsigned", "extra", "uc-", "dbg")
_FLAVOUR = re.compile(r"^\d+(?:\.\d+)*-\d+(?:\.\d+)*-(?P<flavour>[a-z][a-z0-9-]*)$")


def every_series(situation: Situation, system: Row) -> list[str]:
    """Return the series of every kernel that may boot, the one of the kernel that boots next first; none where the system has none.

    The installed meta packages of kernel images tell it. A kernel whose flavour has none counts as its release reads; where
    one has, an older kernel of the flavour adds nothing: its series would bring a kernel that nobody asked for.
    """
    first = systems.series(situation, system)
    if first is None:
        return []
    metas = _metas(situation.installed or ())
    ordered = sorted(
        situation.kernels, key=lambda kernel: (kernel == situation.kernel, dotted.key(kernel)), reverse=True
    )
    found: list[str] = []
    seen: set[str] = set()
    for kernel in ordered or [situation.kernel or ""]:
        flavour = flavour_of(kernel)
        if flavour in seen:
            continue
        seen.add(flavour)
        own = [meta for meta in metas if _belongs(meta, flavour)]
        found += own or [systems.series(replace(situation, kernel=kernel or None), system) or first]
    return list(dict.fromkeys(found))


def flavour_of(kernel: str) -> str:
    """Return the flavour in a kernel's release: aws of 6.8.0-1021-aws; generic where it tells none."""
    match = _FLAVOUR.match(kernel)
    return match["flavour"] if match else "generic"


def _metas(installed: Iterable[str]) -> list[str]:
    """Return the series of the meta packages of kernel images that are installed."""
    found = (_IMAGE_META.match(name) for name in sorted(installed))
    names = [match["series"] for match in found if match and not match["series"].startswith(_NO_SERIES)]
    # A virtual machine's image is the generic kernel with fewer modules; NVIDIA's modules have no name of their own for it.
    return list(dict.fromkeys(re.sub(r"^virtual", "generic", name) for name in names))


def _belongs(series: str, flavour: str) -> bool:
    """Say whether a series such as aws-lts-24.04 or generic-hwe-24.04 has kernels of a flavour such as aws or generic."""
    rest = series[len(flavour) :]
    return series.startswith(flavour) and (not rest or re.match(r"-(?:hwe|lts|edge|\d)", rest) is not None)
