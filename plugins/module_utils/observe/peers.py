# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is between the cards of one machine: bridges that send what one card says to another through the processor, and the IOMMU."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PciGpu, Peers

_DEVICES = "/sys/bus/pci/devices/"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
#: Extended capabilities begin there; Access Control Services, its control register and the bits that redirect requests and
#: completions between peers (PCI Express Base Specification, 7.7.11; linux include/uapi/linux/pci_regs.h: PCI_ACS_RR, PCI_ACS_CR).
_FIRST, _ACS, _CONTROL, _REDIRECT = 0x100, 0x0D, 6, 0x04 | 0x08
_MOST = 64


def redirects(config: bytes) -> bool:
    """Whether a bridge of this configuration space redirects what passes between its cards."""
    place, seen = _FIRST, 0
    while _FIRST <= place <= len(config) - 8 and seen < _MOST:
        header = struct.unpack_from("<I", config, place)[0]
        if header & 0xFFFF == _ACS:
            return bool(struct.unpack_from("<H", config, place + _CONTROL)[0] & _REDIRECT)
        place, seen = header >> 20, seen + 1
    return False


def _address(bus_id: str) -> str:
    """An address as the kernel writes it."""
    domain, _colon, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def observe(host: Host, cards: Iterable[PciGpu]) -> Peers | None:
    """The part `pci.peers`; None where there are no two cards."""
    addresses = [_address(card["bus_id"]) for card in cards]
    if len(addresses) < 2:
        return None
    paths = {address: host.realpath(_DEVICES + address) for address in addresses}
    bridges = sorted({step for path in paths.values() for step in path.split("/")[:-1] if _ADDRESS.fullmatch(step)})
    redirecting = []
    for bridge in bridges:
        # Without root the kernel shows the first 64 bytes alone.
        config = host.read_bytes(f"{_DEVICES}{bridge}/config", "pci.peers", limit=4096)
        if config is not None and len(config) <= _FIRST and host.euid != 0:
            host.unknown("pci.peers", "only root may read the settings of the bridges")
        elif config is not None and redirects(config):
            redirecting.append(bridge)
    kinds = {host.line(f"{_DEVICES}{address}/iommu_group/type") for address in addresses}
    return {"redirecting": redirecting[:200], "iommu": sorted(kind for kind in kinds if kind)}
