# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host is for the network between hosts: its interface, its adapters for RDMA, and what stands in their way.

Nothing is changed and no program is run. What cannot be read is None. Layouts:
https://docs.kernel.org/admin-guide/abi-stable.html (/sys/class/infiniband), https://docs.kernel.org/admin-guide/abi-testing.html
(/sys/class/net, /sys/kernel/iommu_groups), include/uapi/linux/pci_regs.h (configuration space).
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import re
import resource
import socket
import struct
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypedDict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

SETTINGS = "/etc/nccl.conf"
_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
# VGA and 3D controller (pci.ids).
_CARDS = ("0x0300", "0x0302")
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", re.ASCII)
#: A name that the kernel lets an interface or an adapter have, as far as these are used.
NAME = re.compile(r"^[0-9A-Za-z][0-9A-Za-z_.:@-]{0,63}$", re.ASCII)
_STATE = re.compile(r"^\d{1,2}: ([A-Za-z_ ]{1,40})$", re.ASCII)
_RATE = re.compile(r"^(\d{1,5}(?:\.\d{1,3})?) Gb/sec\b", re.ASCII)
# A line of nccl.conf: what NCCL reads is NAME=VALUE, and # begins a remark
# (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, "System configuration").
_SETTING = re.compile(r"^\s*(NCCL_[A-Z0-9_]{1,60})=([0-9A-Za-z_.,:;=^/+-]{0,200})\s*$", re.ASCII)
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")

# Configuration space: extended capabilities begin at 0x100, each with its id (16 bits), a version (4) and the offset of the next one (12).
_EXTENDED, _ACS, _ACS_CONTROL, _REQUEST_REDIRECT = 0x100, 0x000D, 6, 0x0004
_WHOLE_CONFIG = 4096
# SIOCGIFCONF (include/uapi/linux/sockios.h), and the size of a struct ifreq of 64 bits with the place of an IPv4 address in it.
_LIST_ADDRESSES, _ENTRY, _IN_ENTRY = 0x8912, 40, slice(20, 24)

_MOST = 64
_MOST_SETTINGS = 100
_MOST_ENTRIES = 4096
_MOST_TEXT = 1 << 20
_MOST_NUMBER = 10**9


class Interface(TypedDict):
    """A network interface: bytes of its MTU, its speed in Mbit/s (None where it tells none), and the kernel's word for its state."""

    name: str
    mtu: Optional[int]
    speed_mbit: Optional[int]
    state: Optional[str]


class Port(TypedDict):
    """A port of an adapter for RDMA. ``model`` is the adapter's type (``hca_type``); states are the kernel's words, the rate in Gbit/s."""

    name: str
    port: int
    model: Optional[str]
    link_layer: Optional[str]
    state: Optional[str]
    phys_state: Optional[str]
    rate_gbit: Optional[float]


class Iommu(TypedDict):
    """Whether an IOMMU translates, and whether it lets cards and adapters pass untranslated; None where that cannot be read."""

    on: bool
    passthrough: Optional[bool]


class FabricHost(TypedDict):
    """What a host is for the network between hosts.

    Attributes:
        interface: the one that is used; None where it is not known.
        adapters: the ports of the adapters for RDMA.
        devices: how many cards and adapters there are on the PCI bus.
        virtual: whether it is a virtual machine.
        memlock_bytes: how much memory this process may lock; None for any amount.
        peermem: whether a kernel module lets adapters read the memory of cards.
        iommu: the IOMMU.
        acs: the bridges above cards and adapters that send requests between these up to the root (ACS request redirect); None where one
            of them could not be read and none was found.
        settings: NCCL's settings of the whole host.
        socket_interface_missing: whether the settings name interfaces for NCCL and none of them is there.
        firewall: which firewalls are active; None where it is not known.
    """

    interface: Optional[Interface]
    adapters: List[Port]
    devices: int
    virtual: bool
    memlock_bytes: Optional[int]
    peermem: bool
    iommu: Iommu
    acs: Optional[List[str]]
    settings: Dict[str, str]
    socket_interface_missing: bool
    firewall: Optional[List[str]]


def look(host: Host, interface: Optional[str], firewall: Optional[List[str]], memlock: Optional[int]) -> FabricHost:
    """All of it. ``interface`` is the one that is used, ``memlock`` as :func:`memlock` tells."""
    found = devices(host)
    settings = settings_of(host.read(SETTINGS, limit=_MOST_TEXT) or "")
    return {
        "interface": interface_of(host, interface) if interface else None,
        "adapters": ports(host),
        "devices": len(found),
        "virtual": is_virtual(host),
        "memlock_bytes": memlock,
        "peermem": any(host.isdir("/sys/module/" + name) for name in _PEER_MODULES),
        "iommu": iommu(host, found),
        "acs": redirecting(host, found),
        "settings": settings,
        "socket_interface_missing": names_no_interface(
            settings.get("NCCL_SOCKET_IFNAME", ""), host.names("/sys/class/net")
        ),
        "firewall": firewall,
    }


def memlock() -> Optional[int]:
    """How many bytes of memory this process may lock; None for any amount."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


# --- interfaces -------------------------------------------------------------------------------------------------------


def _number(text: Optional[str]) -> Optional[int]:
    """A whole number from 0 on; the kernel says -1 for one that it does not know."""
    return int(text) if text and text.isascii() and text.isdigit() and int(text[:20]) <= _MOST_NUMBER else None


def interface_of(host: Host, name: str) -> Optional[Interface]:
    """A network interface; None where there is none of this name."""
    place = "/sys/class/net/" + name
    if not NAME.match(name) or not host.isdir(place):
        return None
    return {
        "name": name,
        "mtu": _number(host.line(place + "/mtu")),
        # An interface that is down answers with an error.
        "speed_mbit": _number(host.line(place + "/speed")),
        "state": _word(host.line(place + "/operstate")),
    }


def _word(text: Optional[str]) -> Optional[str]:
    return text if text and NAME.match(text) else None


def source_of(address: str) -> Optional[str]:
    """The address from which the kernel would speak to another one, and that one itself where it is this host's; None without a way.

    A datagram socket is connected, which sends nothing.
    """
    try:
        found = socket.getaddrinfo(address, 1, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return None
    family, kind, protocol, _name, place = found[0]
    try:
        with socket.socket(family, kind, protocol) as client:
            client.connect(place)
            return str(client.getsockname()[0])
    except OSError:
        return None


def addresses_of(host: Host) -> List[Tuple[str, str]]:
    """(address, interface) of each address of this machine."""
    return _ipv4() + _ipv6(host.read("/proc/net/if_inet6", limit=_MOST_TEXT) or "")


def _ipv4() -> List[Tuple[str, str]]:
    space = array.array("B", bytes(_ENTRY * _MOST_ENTRIES))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            asked = struct.pack("iL", len(space), space.buffer_info()[0])
            length = struct.unpack("iL", fcntl.ioctl(client.fileno(), _LIST_ADDRESSES, asked))[0]
    except OSError:
        return []
    entries = [space[begin : begin + _ENTRY].tobytes() for begin in range(0, length, _ENTRY)]
    # A second address may have a label of its own, eth0:1.
    return [
        (socket.inet_ntoa(entry[_IN_ENTRY]), entry[:16].split(b"\0", 1)[0].decode("utf-8", "replace").partition(":")[0])
        for entry in entries
    ]


def _ipv6(text: str) -> List[Tuple[str, str]]:
    """The lines of /proc/net/if_inet6: the address in hex, four numbers, the interface."""
    rows = [line.split() for line in text.splitlines()]
    return [
        (str(ipaddress.IPv6Address(int(row[0], 16))), row[5])
        for row in rows
        if len(row) == 6 and re.match("^[0-9a-f]{32}$", row[0])
    ]


def interface_to(
    host: Host,
    address: str,
    ask: Callable[[str], Optional[str]] = source_of,
    listed: Callable[[Host], Sequence[Tuple[str, str]]] = addresses_of,
) -> Optional[str]:
    """The interface whose address the kernel speaks from to ``address``; on the host that has it the interface with that address."""
    source = ask(address)
    if source is None:
        return None
    # Of an address of a link alone the interface is behind it: fe80::1%eth0.
    bare = source.partition("%")[0]
    return next((name for each, name in listed(host) if each == bare and NAME.match(name)), None)


def names_no_interface(value: str, names: Sequence[str]) -> bool:
    """Whether a value of NCCL_SOCKET_IFNAME names interfaces and none of them is there.

    How its names begin, or with = the whole names; with ^ those that are not used.
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    if not value or value.startswith("^"):
        return False
    if value.startswith("="):
        return not set(value[1:].split(",")) & set(names)
    wanted = tuple(filter(None, value.split(",")))
    return not any(name.startswith(wanted) for name in names)


# --- adapters ---------------------------------------------------------------------------------------------------------


def ports(host: Host) -> List[Port]:
    """The ports of the adapters for RDMA, as /sys/class/infiniband has them, whatever their link layer."""
    found: List[Port] = []
    for path in list(host.glob("/sys/class/infiniband/*/ports/*"))[: _MOST * 2]:
        name, port = path.split("/")[4], path.rpartition("/")[2]
        number = _number(port)
        if number is None or not NAME.match(name):
            continue
        rate = _RATE.match(host.line(path + "/rate") or "")
        found.append(
            {
                "name": name,
                "port": number,
                "model": _word(host.line(f"/sys/class/infiniband/{name}/hca_type")),
                "link_layer": _word(host.line(path + "/link_layer")),
                "state": _state(host.line(path + "/state")),
                "phys_state": _state(host.line(path + "/phys_state")),
                "rate_gbit": float(rate.group(1)) if rate else None,
            }
        )
    return found


def _state(text: Optional[str]) -> Optional[str]:
    """The word of a state, ``ACTIVE`` of ``4: ACTIVE``."""
    found = _STATE.match(text or "")
    return found.group(1) if found else None


# --- the PCI bus ------------------------------------------------------------------------------------------------------


def devices(host: Host) -> List[str]:
    """The addresses of NVIDIA's cards and of the adapters for RDMA on the PCI bus."""
    cards = [
        address
        for address in host.names(_DEVICES)
        if _ADDRESS.match(address)
        and host.line(f"{_DEVICES}/{address}/vendor") == _NVIDIA
        and (host.line(f"{_DEVICES}/{address}/class") or "")[:6] in _CARDS
    ]
    adapters = [
        os.path.basename(host.realpath(path + "/device")) for path in list(host.glob("/sys/class/infiniband/*"))[:_MOST]
    ]
    return sorted({*cards[:_MOST], *(address for address in adapters if _ADDRESS.match(address))})


def is_virtual(host: Host) -> bool:
    """Whether the processor says that it is one of a virtual machine."""
    return bool(_HYPERVISOR.search(host.read("/proc/cpuinfo", limit=_MOST_TEXT) or ""))


def iommu(host: Host, addresses: Sequence[str]) -> Iommu:
    """Whether there is an IOMMU that translates, and whether it lets these devices pass.

    A group of the type ``identity`` is not translated (Documentation/ABI/testing/sysfs-kernel-iommu_groups); without groups the kernel's
    own arguments tell: ``iommu=pt``, ``iommu.passthrough=1``.
    """
    on = bool(host.names("/sys/class/iommu"))
    types = [host.line(f"{_DEVICES}/{address}/iommu_group/type") for address in addresses]
    known = [each for each in types if each]
    words = host.line("/proc/cmdline")
    if known:
        passthrough: Optional[bool] = all(each == "identity" for each in known)
    elif words is None:
        passthrough = None
    else:
        passthrough = bool({"iommu=pt", "iommu.passthrough=1"} & set(words.split()))
    return {"on": on, "passthrough": passthrough}


def bridges(host: Host, addresses: Sequence[str]) -> List[str]:
    """The PCI bridges between these devices and their roots."""
    found: Set[str] = set()
    for address in addresses:
        way = host.realpath(f"{_DEVICES}/{address}").split("/")
        found.update(part for part in way if _ADDRESS.match(part) and part != address)
    return sorted(found)


def redirecting(host: Host, addresses: Sequence[str]) -> Optional[List[str]]:
    """The bridges above these devices that redirect requests; None where one could not be read and none was found."""
    answers = {
        bridge: redirects(host.read_bytes(f"{_DEVICES}/{bridge}/config", limit=_WHOLE_CONFIG))
        for bridge in bridges(host, addresses)[: 4 * _MOST]
    }
    found = [bridge for bridge, answer in answers.items() if answer]
    return None if not found and None in answers.values() else found


def redirects(config: Optional[bytes]) -> Optional[bool]:
    """Whether a device has ACS request redirect on, by its configuration space; None where that could not be read.

    Only root is given more than 64 bytes. A device that has 256 has no extended capabilities.
    """
    if config is None or len(config) < _EXTENDED:
        return None
    offset = _EXTENDED if len(config) > _EXTENDED else 0
    for _hop in range((_WHOLE_CONFIG - _EXTENDED) // 8):
        # None there, or a chain that points into what every device has.
        if offset < _EXTENDED:
            return False
        if offset + 8 > len(config):
            return None
        (head,) = struct.unpack_from("<I", config, offset)
        if head in (0, 0xFFFFFFFF):
            # A device that fell off the bus answers with ones.
            return False if head == 0 else None
        if head & 0xFFFF == _ACS:
            return bool(struct.unpack_from("<H", config, offset + _ACS_CONTROL)[0] & _REQUEST_REDIRECT)
        offset = head >> 20 & 0xFFC
    return None


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_of(text: str) -> Dict[str, str]:
    """The settings of NCCL in a file of its own; a value with other characters than these have is left out, since it might be a secret."""
    matches = [match for match in map(_SETTING.match, text.splitlines()) if match]
    return {match.group(1): match.group(2) for match in matches[:_MOST_SETTINGS]}
