# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge the part of one host in the collectives of several, and what stands in the way of its network.

Pure. No floor is known for a bandwidth between hosts: it is told and not judged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, checks, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load, framework_load_judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.fabric_host import FabricHost, Port
from ansible_collections.gpuwright.node.plugins.module_utils.measure.fabric_load import Group, Network
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load import Step

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

#: What is said of the kernel and the bus. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html, "GPU Direct",
#: "PCI Access Control Services (ACS)"; there too what a container is given (``--ulimit memlock=-1``).
NCCL_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
#: A port is usable that is ACTIVE and LinkUp, and of the rate of its equals (Azure/azurehpc-health-checks, leptonai/gpud: ib.ports).
_ACTIVE, _LINK_UP = "ACTIVE", "LinkUp"
#: The MTU of Ethernet (IEEE 802.3): only a larger one can be too large for the way.
_PLAIN_MTU = 1500
KINDS = ("all_reduce", "all_gather")
_BROKE = ("group", "meet", "collectives")
# Where PyTorch begins to tell its own calls.
_CALLS = re.compile(r"\n?(?:Exception raised from |frame #\d)")
_MEMORY = "out of memory"


def judge(group: Group, answer: run.Result, network: Network, host: FabricHost, on_card: bool) -> List[Check]:
    """The checks of one run of :func:`fabric_load.ask`, and those of the host."""
    steps = framework_load.steps_of(answer.out)
    broken = framework_load_judge.not_begun(None, answer, steps)
    if broken:
        return [{**broken, "id": "fabric.runs"}, *judge_host(host)]
    started = f"{words.count(group.here, 'ranks')} of this host {words.verb(group.here, 'were')} started"
    found = [checks.passed("fabric.runs", reason=started, measured=group.here, unit="ranks")]
    joined = _joined(group, answer, steps, host)
    found.append(joined)
    if joined["status"] == "pass":
        found += [_results(group, steps), *_collectives(group, steps), _network(network, host, on_card)]
    else:
        told = "the ranks of the hosts did not come together to the end"
        found += [
            checks.incomplete(check_id, told, remedy="see fabric.joined")
            for check_id in ("fabric.results", "fabric.all_reduce", "fabric.all_gather")
        ]
    return found + judge_host(host)


def judge_host(host: FabricHost) -> List[Check]:
    """What is said of the host alone."""
    return [_adapters(host), _mtu(host), _memlock(host), _iommu(host), _acs(host)]


# --- together ---------------------------------------------------------------------------------------------------------


def _joined(group: Group, answer: run.Result, steps: Sequence[Step], host: FabricHost) -> Check:
    """``fabric.joined``: whether all ranks came together and stayed so to the end."""
    told = next((step for step in steps if step["step"] == "group"), None)
    done = {step["part"] for step in steps if step["step"] == "done"}
    rest: checks.Rest = {"expected": group.ranks, "unit": "ranks"}
    if told and {"meet", "collectives"} <= done:
        rest["measured"] = told["ranks"]
        ok = told["ranks"] == group.ranks
        reason = f"all ranks came together by {told['backend'][:20]}" if ok else "it was a group of another size"
        return checks.judged("fabric.joined", ok, reason=reason, remedy="start it anew on all hosts", **rest)
    error = _error(answer, steps)
    if _MEMORY in error.lower():
        return checks.incomplete(
            "fabric.joined",
            "there was too little memory to measure it",
            evidence=error,
            action="restart_app",
            remedy="end what uses the memory, then prove again",
            **rest,
        )
    came = "meet" in done
    return checks.failed(
        "fabric.joined",
        reason="the group broke while it was measured" if came else "the ranks of the hosts did not come together",
        evidence=error,
        action="configure",
        remedy=" ".join([*_obstacles(group, steps, host), _LAST[came]]),
        **rest,
    )


_LAST = {
    False: "See the same check of the other hosts; all have to begin at about the same time, with the same address, port and ranks.",
    True: "See the same check of the other hosts: one whose process ended, or whose link broke, ends it for all.",
}


def _error(answer: run.Result, steps: Sequence[Step]) -> str:
    """What ended it, in the words of who told: a process that was killed, PyTorch or NCCL, or the time that was over."""
    killed = [step for step in steps if step["step"] == "rank" and step["status"] < 0]
    broken = [step for step in steps if step["step"] == "broken" and step["part"] in _BROKE]
    if killed and not (broken and killed[0]["status"] == -6):
        # By SIGABRT PyTorch itself ends a process, after it told why.
        return f"the process of rank {killed[0]['rank']} was killed by signal {-killed[0]['status']}; {_said(answer)}"
    if broken:
        return _cut(broken[0]["error"])
    return f"{answer.error or _ended(answer, steps)}; {_said(answer)}"


def _ended(answer: run.Result, steps: Sequence[Step]) -> str:
    rank = next((step for step in steps if step["step"] == "rank"), None)
    return (
        f"the process of rank {rank['rank']} ended with status {rank['status']}"
        if rank
        else f"it ended with status {answer.rc}"
    )


def _said(answer: run.Result) -> str:
    return _cut(framework_load_judge.said(answer) or "it printed nothing")


def _cut(text: str) -> str:
    """An error without the calls that led to it."""
    return _CALLS.split(text, maxsplit=1)[0].strip()[:500]


def _obstacles(group: Group, steps: Sequence[Step], host: FabricHost) -> List[str]:
    """What of this host can keep it from the others, a sentence for each, the likeliest first."""
    found: List[str] = []
    interface = host["interface"]
    if host["firewall"]:
        found.append(
            f"{' and '.join(host['firewall'])} is active on this host, and the ranks speak to each other by ports of their own choice: "
            "let the network of the fabric in, 'gpuwright up --want fabric=NETWORK'."
        )
    reached = [step for step in steps if step["step"] == "reach"]
    if reached and reached[-1]["how"] in _REACHED:
        place = f"{addresses.bracketed(group.address)}:{group.port}"
        found.append(f"{place} {_REACHED[reached[-1]['how']]}.")
    settings = host["settings"]
    if host["socket_interface_missing"]:
        found.append(
            f"NCCL_SOCKET_IFNAME={settings['NCCL_SOCKET_IFNAME']} of /etc/nccl.conf names an interface that is not there: name one that is "
            "there, or take the line out."
        )
    if settings.get("NCCL_IB_DISABLE", "0") != "0":
        found.append(
            "NCCL_IB_DISABLE is set in /etc/nccl.conf: hosts of which only some use their adapters do not understand each other."
        )
    if interface and interface["state"] in ("down", "lowerlayerdown"):
        found.append(f"The interface {interface['name']} is down: see its cable and its settings.")
    if interface and (interface["mtu"] or 0) > _PLAIN_MTU and interface["name"] != "lo":
        found.append(
            f"The MTU of {interface['name']} is {interface['mtu']}: where a switch or another host has less, large packets are lost "
            f"(ping -M do -s {(interface['mtu'] or 0) - 28})."
        )
    return found


#: What the answers of the first host's port mean.
_REACHED = {
    "refused": "was refused: the first host does not listen, or does not any more, or its firewall rejects",
    "timed out": "did not answer in time: the address is wrong, or a firewall on the way drops what comes",
    "no route": "cannot be reached: this host has no route there, or no host there answers",
    "unknown name": "is a name that this host does not know: give the address, or name it in /etc/hosts",
    "failed": "could not be reached",
    "connected": "answers: what is between the hosts beside that port keeps them apart, such as a firewall for other ports",
}


# --- results ----------------------------------------------------------------------------------------------------------


def _results(group: Group, steps: Sequence[Step]) -> Check:
    """``fabric.results``: whether the sums and the pieces are right on every rank."""
    told = [step for step in steps if step["step"] == "collective" and step["kind"] in KINDS]
    if group.first_rank:
        return checks.skipped("fabric.results", _ELSEWHERE)
    if not told:
        return checks.incomplete("fabric.results", "it ended without a result", remedy="prove again")
    wrong = [f"{step['kind']} of {step['bytes']} bytes" for step in told if not step["right"]]
    return checks.judged(
        "fabric.results",
        not wrong,
        measured=len(wrong),
        expected=0,
        unit="wrong results",
        reason="wrong: " + ", ".join(wrong[:10])
        if wrong
        else f"{words.count(len(told), 'results', 'are')} right on all ranks",
        action="check_hardware",
        remedy="prove each pair of hosts by itself, to find the one that is wrong; take it out of use",
    )


_ELSEWHERE = "told by the host with rank 0"


def _collectives(group: Group, steps: Sequence[Step]) -> List[Check]:
    """``fabric.all_reduce`` and ``fabric.all_gather``: the bus bandwidth of the largest size."""
    found: List[Check] = []
    rows = framework_load.collectives_of(steps)
    for kind in KINDS:
        check_id = f"fabric.{kind}"
        mine = [row for row in rows if row["kind"] == kind]
        if group.first_rank:
            found.append(checks.skipped(check_id, _ELSEWHERE))
        elif not mine:
            found.append(checks.incomplete(check_id, "it ended without a figure", remedy="prove again"))
        else:
            row = max(mine, key=lambda each: int(str(each["bytes"])))
            ranks = words.count(row["ranks"], "ranks")
            told = f"busbw of {ranks} by {row['backend']}, {int(str(row['bytes'])) >> 20} MiB, algbw {row['algbw_gbs']}"
            reason = f"{told}; no floor is known between hosts, so it is told and not judged"
            found.append(checks.skipped(check_id, reason, measured=row["busbw_gbs"], unit="GB/s"))
    return found


# --- the network ------------------------------------------------------------------------------------------------------

_KINDS = {"ib": "InfiniBand", "roce": "RoCE", "socket": "sockets", "plugin": "a network plugin"}


def _network(network: Network, host: FabricHost, on_card: bool) -> Check:
    """``fabric.network``: NCCL goes by sockets only where no adapter for RDMA is ready."""
    if not on_card:
        return checks.skipped("fabric.network", "gloo goes by sockets: NCCL needs cards", "warning")
    kind = network["kind"]
    if kind is None:
        return checks.incomplete(
            "fabric.network",
            "NCCL did not tell what it used between the hosts",
            "warning",
            remedy="see its log with NCCL_DEBUG=INFO",
        )
    ready = [
        port
        for port in host["adapters"]
        if port["state"] == _ACTIVE and port["link_layer"] in ("InfiniBand", "Ethernet")
    ]
    rest: checks.Rest = {"measured": kind, "evidence": ", ".join(network["adapters"] + network["interfaces"])}
    if kind != "socket" or not ready:
        direct = {True: ", with GPUDirect RDMA", False: ", without GPUDirect RDMA", None: ""}[
            network["gpu_direct"] if kind != "socket" else None
        ]
        return checks.passed("fabric.network", "warning", reason=f"NCCL used {_KINDS.get(kind, kind)}{direct}", **rest)
    return checks.failed(
        "fabric.network",
        "warning",
        reason=f"NCCL went by sockets although {_names(ready)} could be used: {'; '.join(_unused(host)) or 'it did not tell why'}",
        expected="ib or roce",
        action="configure",
        remedy="take what is named out of the way, then prove again; NCCL tells with NCCL_DEBUG=INFO what it found. See "
        + NCCL_GUIDE,
        **rest,
    )


def _unused(host: FabricHost) -> List[str]:
    """What can be the reason why NCCL did not use an adapter."""
    found = []
    settings = host["settings"]
    if settings.get("NCCL_IB_DISABLE", "0") != "0":
        found.append("NCCL_IB_DISABLE is set in /etc/nccl.conf")
    if settings.get("NCCL_NET", "").lower() == "socket":
        found.append("NCCL_NET=Socket is set in /etc/nccl.conf")
    if "NCCL_IB_HCA" in settings:
        found.append(f"NCCL_IB_HCA={settings['NCCL_IB_HCA']} of /etc/nccl.conf says which may be used")
    if host["memlock_bytes"] is not None:
        found.append(f"only {host['memlock_bytes']} bytes of memory may be locked (ulimit -l)")
    if not host["peermem"]:
        found.append("nvidia_peermem is not loaded, which matters for GPUDirect RDMA alone")
    return found


def _names(ports: Sequence[Port]) -> str:
    names = [f"{port['name']}:{port['port']}" for port in ports]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# --- the host ---------------------------------------------------------------------------------------------------------


def _adapters(host: FabricHost) -> Check:
    """``fabric.adapters``: ports that are linked and not active fail; one without a link may have no cable on purpose, and warns."""
    ports = host["adapters"]
    if not ports:
        return checks.skipped("fabric.adapters", "the host has no adapter for RDMA")
    unread = [port for port in ports if port["state"] is None]
    if len(unread) == len(ports):
        return checks.incomplete("fabric.adapters", "the states of the ports could not be read", remedy="see ibstat")
    stuck = [port for port in ports if port["state"] not in (None, _ACTIVE) and port["phys_state"] == _LINK_UP]
    idle = [port for port in ports if port["state"] not in (None, _ACTIVE) and port["phys_state"] != _LINK_UP]
    slow = _slower(ports)
    active = sum(port["state"] == _ACTIVE for port in ports)
    told = [f"{_names([port])} {port['state']}/{port['phys_state']}" for port in stuck + idle]
    told += [f"{_names([port])} {port['rate_gbit']:g} Gbit/s" for port in slow]
    told += [f"{_names([port])} unreadable" for port in unread]
    rest: checks.Rest = {
        "measured": active,
        "expected": len(ports),
        "unit": "active ports",
        "evidence": ", ".join(told[:20]) or None,
    }
    if stuck:
        return checks.failed(
            "fabric.adapters",
            reason=f"{_names(stuck)} has a link and is not active",
            action="check_hardware",
            remedy="an InfiniBand port becomes active by the subnet manager: see whether one runs (sminfo), then the port of the switch",
            **rest,
        )
    if slow or idle:
        words = [f"{_names(slow)} is slower than its equals"] if slow else []
        words += [f"{_names(idle)} has no link"] if idle else []
        return checks.failed(
            "fabric.adapters",
            "warning",
            reason=" and ".join(words),
            action="check_hardware",
            remedy="see the cable, the transceiver and the port of the switch; a port that is meant to be without a cable may stay so",
            **rest,
        )
    if unread:
        return checks.incomplete(
            "fabric.adapters", f"the state of {_names(unread)} could not be read", remedy="see ibstat", **rest
        )
    return checks.passed("fabric.adapters", reason="all ports are active, each as fast as its equals", **rest)


def _slower(ports: Sequence[Port]) -> List[Port]:
    """Active ports below the rate of the fastest of the same model and link layer."""
    fastest: Dict[Tuple[Optional[str], Optional[str]], float] = {}
    active = [port for port in ports if port["state"] == _ACTIVE and port["rate_gbit"] is not None]
    for port in active:
        key = (port["model"], port["link_layer"])
        fastest[key] = max(fastest.get(key, 0.0), port["rate_gbit"] or 0.0)
    return [port for port in active if (port["rate_gbit"] or 0.0) < fastest[port["model"], port["link_layer"]]]


def _mtu(host: FabricHost) -> Check:
    """``fabric.mtu``: told of one host, so that those of all can be compared."""
    interface = host["interface"]
    if interface is None or interface["mtu"] is None:
        return checks.incomplete(
            "fabric.mtu",
            "it is not known which interface is used, or not its MTU",
            "info",
            remedy="name it by the option 'interface'",
        )
    told = f"{interface['name']}: {interface['mtu']} bytes, {interface['state']}"
    reason = "one host has nothing to compare it with"
    return checks.skipped("fabric.mtu", reason, "info", measured=interface["mtu"], unit="bytes", evidence=told)


def _memlock(host: FabricHost) -> Check:
    """``fabric.memlock``: adapters for RDMA need memory that stays in its place."""
    if not host["adapters"]:
        return checks.skipped("fabric.memlock", "the host has no adapter for RDMA", "warning")
    limit = host["memlock_bytes"]
    return checks.judged(
        "fabric.memlock",
        limit is None,
        "warning",
        measured="unlimited" if limit is None else limit,
        expected="unlimited",
        unit=None if limit is None else "bytes",
        reason="memory may be locked without a limit"
        if limit is None
        else "memory that adapters read may be locked up to a limit only; it binds everybody but root",
        evidence=NCCL_GUIDE,
        action="configure",
        remedy="'* - memlock unlimited' in /etc/security/limits.d, LimitMEMLOCK=infinity for units such as slurmd, and "
        "--ulimit memlock=-1 for containers",
    )


_FEW = "fewer than two cards or adapters are on its bus"
_VIRTUAL = "a virtual machine: its host's IOMMU and bridges decide"


def _does_not_apply(host: FabricHost) -> Optional[str]:
    return _VIRTUAL if host["virtual"] else _FEW if host["devices"] < 2 else None


def _iommu(host: FabricHost) -> Check:
    """``fabric.iommu``: one that translates sends what cards and adapters say to each other up to the root."""
    why = _does_not_apply(host)
    if why:
        return checks.skipped("fabric.iommu", why, "warning")
    on, passthrough = host["iommu"]["on"], host["iommu"]["passthrough"]
    if on and passthrough is None:
        return checks.incomplete(
            "fabric.iommu", "it could not be read whether the IOMMU lets the cards pass", "warning", remedy="see dmesg"
        )
    ok = not on or bool(passthrough)
    return checks.judged(
        "fabric.iommu",
        ok,
        "warning",
        measured="off" if not on else "passthrough" if passthrough else "translating",
        expected="off or passthrough",
        reason=None if ok else "the IOMMU translates what cards and adapters send: between them it is slower, or hangs",
        evidence=NCCL_GUIDE,
        action="configure",
        remedy="boot with iommu=pt, or switch it off in the firmware where no virtual machine needs it",
    )


def _acs(host: FabricHost) -> Check:
    """``fabric.acs``: a bridge that redirects requests sends what cards and adapters say to each other up to the root."""
    why = _does_not_apply(host)
    if why:
        return checks.skipped("fabric.acs", why, "warning")
    found = host["acs"]
    if found is None:
        return checks.incomplete(
            "fabric.acs", "the configuration space of the bridges could not be read", "warning", remedy="prove as root"
        )
    return checks.judged(
        "fabric.acs",
        not found,
        "warning",
        measured=len(found),
        expected=0,
        unit="bridges that redirect",
        reason="bridges above cards and adapters redirect what these send to each other (ACS)" if found else None,
        evidence=", ".join(found[:20]) or NCCL_GUIDE,
        action="configure",
        remedy="switch ACS off in the firmware, or at each boot by setpci -s BRIDGE ECAP_ACS+6.w=0000; virtual machines need it. "
        + NCCL_GUIDE,
    )
