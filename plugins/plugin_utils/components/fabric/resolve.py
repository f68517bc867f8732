# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ports to which the machine's firewall lets the nodes of its fabric, so that the ranks of a job reach each other."""

from __future__ import annotations

import ipaddress

from ...resolver import firewall
from ...resolver.log import Log, Unresolved
from ...resolver.machine import Machine
from ...resolver.part import HostPart
from ...wish.wish import Wish
from .model import Fabric
from .wish import DANGER, FIREWALL, HIGHEST, LOWEST

#: NCCL's sockets get ports of net.ipv4.ip_local_port_range (docs.nvidia.com/deeplearning/nccl/user-guide, "Networking Troubleshooting"), by
#: default 32768 to 60999 (docs.kernel.org/networking/ip-sysctl), and a rendezvous has what the job names: 29500 is PyTorch's default
#: (torch.distributed, MASTER_PORT). Both are left to whoever computes, so it is every port that takes no root.
_ANY = f"{LOWEST}-{HIGHEST}"
#: The destination of RoCE v2 (IANA, "roce"; ROCE_V2_UDP_DPORT in include/rdma/ib_verbs.h). An adapter that does it in hardware takes these
#: packets before the firewall sees them; the software of Linux (rdma_rxe) does not, and is made at any time on any adapter. So none is
#: looked for. Nothing else of a job comes by UDP.
_ROCE = "4791"
_OPENS = "fabric.firewall"
_NCCL = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/networking_troubleshooting.html"
_PYTORCH = "github.com/pytorch/pytorch/security/policy, Using distributed features"


def choose(machine: Machine, wish: Wish, log: Log) -> Fabric | None:
    """Return None without a wish, else who is let to which ports. Raises Unresolved where the firewall takes no such rule."""
    if not wish.fabric:
        return None
    found = firewall.refused(machine.firewall, wish.fabric, _OPENS, FIREWALL)
    if found:
        raise Unresolved(*found)
    ports = wish.fabric_ports or _ANY
    firewall.tell(machine.firewall, wish.fabric, f"TCP {ports} and UDP {_ROCE}", _OPENS, log)
    public = [each for each in wish.fabric if ipaddress.ip_network(each).is_global]
    if public:
        log.warn("fabric.public", f"of public addresses: {', '.join(public)}; {DANGER}", _PYTORCH)
    if wish.fabric_ports:
        text = f"jobs find each other where net.ipv4.ip_local_port_range and the port of their rendezvous are within {ports}"
        log.decided("fabric.ports", text, _NCCL)
    return {"networks": list(wish.fabric), "tcp": ports, "udp": _ROCE}


HOST_PART = HostPart("fabric", "fabric", lambda machine, wish, _system, _stack, log: choose(machine, wish, log))
