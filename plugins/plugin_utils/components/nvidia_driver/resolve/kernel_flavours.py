# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ubuntu's kernel flavours: modules that Canonical builds and signs exist for each one, and each one that may boot needs them.

A series is what Ubuntu's meta packages carry in their names: generic, generic-hwe-24.04, aws, lowlatency, nvidia …
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import kernel_metas, systems
from ....resolver.machine import Machine
from ....rules import Row


def every_series(machine: Machine, system: Row) -> list[str]:
    """Return the series of every kernel that may boot, the one of the kernel that boots next first; none where the system has none.

    The installed meta packages of kernel images tell it. A kernel whose flavour has none counts as its release reads; where
    one has, an older kernel of the flavour adds nothing: its series would bring a kernel that nobody asked for.
    """
    first = systems.series(machine, system)
    if first is None:
        return []
    ordered = sorted(
        machine.kernels, key=lambda kernel: (kernel == machine.kernel, numeric_version.key(kernel)), reverse=True
    )
    found: list[str] = []
    seen: set[str] = set()
    for kernel in ordered or [machine.kernel or ""]:
        flavour = kernel_metas.flavour_of(kernel)
        if flavour in seen:
            continue
        seen.add(flavour)
        own = kernel_metas.of_flavour(machine.installed or (), flavour)
        found += own or [systems.series(replace(machine, kernel=kernel or None), system) or first]
    return list(dict.fromkeys(found))
