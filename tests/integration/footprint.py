"""What a refused run must not leave behind on a node."""

from __future__ import annotations

from .conftest import Node

_LOOK = """
for place in /etc/apt/sources.list.d /etc/apt/preferences.d /usr/share/keyrings /etc/modprobe.d /etc/docker /opt \\
    /var/lib/gpuwright /run/gpuwright; do
    find $place -exec stat -c '%n %s %Y' {} + 2>/dev/null
done
sha256sum /var/lib/dpkg/status
cat /proc/sys/kernel/random/boot_id
"""


def footprint(machine: Node) -> str:
    """Package sources, keys, installed packages, module settings, environments, seals, the lock, and the boot."""
    return machine.shell(_LOOK)
