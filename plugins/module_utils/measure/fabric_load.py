# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of one host in the collectives of several: its ranks join those of the other hosts, and what NCCL used between them is read.

The programs are those of framework_load. NCCL writes into files what it found (``NCCL_DEBUG``,
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html); what is not recognised there is None, never an error.
"""

from __future__ import annotations

import os
import re
import stat
from itertools import islice
from typing import Dict, List, Mapping, Match, NamedTuple, Optional, Pattern, Sequence, Set, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load import Device, Runner

#: Seconds that a process may take until it has imported PyTorch and seen its card, as framework_load's option is by default.
STARTUP = 180
PARTS = ("meet", "collectives")

_LOG_SETTINGS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
_MOST_LOG = 1 << 20
_MOST_LOGS = 128
_MOST_LINES = 500_000
_LONGEST_LINE = 4000
_MOST_FOUND = 20_000
_MOST_NAMES = 64

# What NCCL writes (src/transport/net_ib.cc, net_socket.cc, net.cc, src/init.cc): the devices that it found, the network that it chose, and
# each connection over it, with the rank that sends for another one in brackets. Two ports that are used as one stand within {}.
_IB_FOUND = re.compile(r"NET/IB : Using ([^;]+)")
_IB_DEVICE = re.compile(r"\[(\d{1,3})\] ?([0-9A-Za-z_.-]{1,64}):(\d{1,3})/(IB|RoCE)", re.ASCII)
_MERGED = re.compile(r"\[(\d{1,3})\]=\{([^{}]{1,1000})\}", re.ASCII)
_SOCKET_FOUND = re.compile(r"NET/Socket : Using (.+)")
_SOCKET_DEVICE = re.compile(r"\[\d{1,3}\]([0-9A-Za-z][0-9A-Za-z_.@-]{0,63}):", re.ASCII)
_OUT_OF_BAND = re.compile(r"(?:OOB|Bootstrap ?: Using) ([0-9A-Za-z][0-9A-Za-z_.@-]{0,63}):", re.ASCII)
_CHOSEN = re.compile(r"NCCL INFO (?:\S{0,40}: )?Using network ([0-9A-Za-z_ .-]{1,40})", re.ASCII)
_USED = re.compile(r"via NET/([0-9A-Za-z_ .-]{1,40})/(\d{1,3})(?:\(\d{1,6}\))?(/GDRDMA)?", re.ASCII)
_PLUGIN = re.compile(r"NCCL INFO NET/(OFI|FasTrak|Plugin: Loaded|gIB)\b", re.ASCII)


class Group(NamedTuple):
    """A group of hosts, as one of them sees it.

    Attributes:
        address: of the first host, on which rank 0 listens.
        port: on which it listens.
        first_rank: of this host.
        here: how many ranks this host has.
        ranks: of all hosts together.
        patience: seconds that a rank waits for the others.
        interface: which is spoken through; None leaves that to NCCL and gloo.
    """

    address: str
    port: int
    first_rank: int
    here: int
    ranks: int
    patience: int
    interface: Optional[str]


class Network(TypedDict):
    """What NCCL used between the hosts: ``ib``, ``roce``, ``socket`` or ``plugin``, the interfaces and adapters, and whether adapters read
    the memory of cards themselves (GPUDirect RDMA).
    """

    kind: Optional[str]
    interfaces: List[str]
    adapters: List[str]
    gpu_direct: Optional[bool]


NO_NETWORK: Network = {"kind": None, "interfaces": [], "adapters": [], "gpu_direct": None}


def ask(
    python: str, group: Group, seconds: int, devices: Sequence[Device], runner: Runner = run.run
) -> Tuple[run.Result, str]:
    """Run this host's ranks; what became of them, and what NCCL wrote. Without devices the processor takes part by gloo."""
    wish = framework_load.Wish(python, PARTS, seconds, STARTUP)
    settings = {
        **framework_load.settings_for(wish, devices, PARTS),
        "ranks": group.ranks,
        "here": group.here,
        "first_rank": group.first_rank,
        "init_method": f"tcp://{addresses.bracketed(group.address)}:{group.port}",
        "reach": [group.address, group.port],
        "patience": group.patience,
    }
    with framework_load.scratch() as place:
        environment = environment_for(group.interface, place)
        answer = framework_load.run_ranks(python, settings, limit(group, seconds), environment, runner)
        return answer, _logs(place)


def limit(group: Group, seconds: int) -> float:
    """Seconds after which this host's ranks are ended: those of starting, of waiting for the others and of measuring."""
    return framework_load.limit(framework_load.Wish("", PARTS, seconds, STARTUP), 1) + group.patience


def environment_for(interface: Optional[str], place: str) -> Dict[str, str]:
    """The variables of the ranks; NCCL writes into ``place``, a file for each process."""
    # NCCL takes a name for the beginning of one, where = does not stand before it; gloo takes it as it is.
    by = {"NCCL_SOCKET_IFNAME": "=" + interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}
    log = {**_LOG_SETTINGS, "NCCL_DEBUG_FILE": os.path.join(place, "nccl.%p")}
    return {**framework_load.ENVIRONMENT, **framework_load.at_home(place), **by, **log}


def _logs(place: str) -> str:
    """The beginnings of the files that NCCL wrote, one after the other."""
    return "\n".join(_beginning(os.path.join(place, name)) for name in sorted(os.listdir(place))[:_MOST_LOGS])


def _beginning(path: str) -> str:
    """The beginning of a regular file: who got into a rank may have put a link or a pipe in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, _MOST_LOG).decode("utf-8", "replace") if is_file else ""
    finally:
        os.close(descriptor)


def network_of(log: str) -> Network:
    """What NCCL used, by what it wrote: the connections that it made before the network that it chose, that before what it only found."""
    used = {(found.group(1), int(found.group(2)), bool(found.group(3))) for found in _in_lines(_USED, log)}
    chosen = [found.group(1).strip() for found in _in_lines(_CHOSEN, log)]
    devices = _ib_devices(log)
    sockets = [name for found in _in_lines(_SOCKET_FOUND, log) for name in _SOCKET_DEVICE.findall(found.group(1))]
    names = {name for name, _number, _direct in used} or set(chosen[:1]) or _found(log, bool(devices), bool(sockets))
    kind = _kind(names, devices, {number for _name, number, _direct in used})
    by_hand = [found.group(1) for found in _in_lines(_OUT_OF_BAND, log)]
    return {
        "kind": kind,
        "interfaces": _distinct(sockets if kind == "socket" and sockets else by_hand),
        "adapters": _distinct([name for ports in devices.values() for name, _layer in ports])
        if kind not in (None, "socket")
        else [],
        "gpu_direct": all(direct for _name, _number, direct in used) if used else None,
    }


def _in_lines(pattern: Pattern[str], log: str) -> List[Match[str]]:
    """What a pattern finds, once in each line and no more than so many times."""
    found = (pattern.search(line[:_LONGEST_LINE]) for line in log.splitlines()[:_MOST_LINES])
    return list(islice(filter(None, found), _MOST_FOUND))


def _ib_devices(log: str) -> Dict[int, List[Tuple[str, str]]]:
    """(port, link layer) of what each number of NCCL's stands for, a port or several that are used as one."""
    devices: Dict[int, List[Tuple[str, str]]] = {}
    for line in [found.group(1) for found in _in_lines(_IB_FOUND, log)][:_MOST_NAMES]:
        for number, inside in _MERGED.findall(line):
            ports = [(f"{name}:{port}", layer) for _number, name, port, layer in _IB_DEVICE.findall(inside)]
            devices.setdefault(int(number), ports)
        for number, name, port, layer in _IB_DEVICE.findall(_MERGED.sub("", line)):
            devices.setdefault(int(number), [(f"{name}:{port}", layer)])
    return devices


def _found(log: str, devices: bool, sockets: bool) -> Set[str]:
    """The network of NCCL before 2.5, which named none: sockets are looked for last, so that only they are used where they were."""
    if _in_lines(_PLUGIN, log):
        return {"plugin"}
    return {"IB"} if devices else {"Socket"} if sockets else set()


def _kind(names: Set[str], devices: Mapping[int, Sequence[Tuple[str, str]]], numbers: Set[int]) -> Optional[str]:
    """The kind of the networks of these names; of InfiniBand and RoCE by the link layer of the adapters with these numbers."""
    if "Socket" in names:
        return "socket"
    if not all(name.startswith("IB") for name in names):
        return "plugin"
    layers = {layer for number, ports in devices.items() if number in numbers or not numbers for _name, layer in ports}
    return "ib" if names and "IB" in layers else "roce" if names and layers else None


def _distinct(names: Sequence[str]) -> List[str]:
    return list(dict.fromkeys(names))[:_MOST_NAMES]
