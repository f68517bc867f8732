#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_load
short_description: Measure the collectives of several hosts, as one of them
version_added: "0.2.0"
description:
  - Starts this host's ranks of a group of several hosts, by PyTorch in its environment, a rank for each card. Measured are all_reduce and
    all_gather of NCCL between the hosts. It is run on all hosts of the group at the same time, with the same O(address), O(port) and
    O(ranks).
  - The first host's rank 0 listens on O(port), on all its addresses, while it is measured. The ranks speak to each other by ports of their
    own choice.
  - Tells which network NCCL used, and what of the host can stand in its way, adapters, IOMMU, ACS, locked memory and NCCL's settings; where
    the hosts do not come together, what of this can be the reason.
  - Results are judged, and no bandwidth is. The bandwidths are told by the host with rank 0.
  - The ranks that root starts are an ordinary user's (C(nobody)), for NCCL and PyTorch ask nobody who he is that reaches their ports. Where
    that user may not open a device (C(/dev/nvidia*), C(/dev/infiniband/uverbs*)) the host does not join, and says which.
  - Without cards (O(expect_cuda=false)) the processors take part by gloo.
  - Everything ends in its time, and what was started ends with it. Hosts that do not come together are no failure of the module; read the
    returned checks.
  - As root it runs nothing that another user may change, the interpreter or anything in its environment, and says so in an incomplete
    check.
  - Ansible asks so many hosts at once as it has forks, and a group may have more. So it is started with C(async) and C(poll=0), and its
    answer is taken by a second task, with O(job).
options:
  job:
    description: Name of the job of which the answer is taken, C(ansible_job_id) of the task that started it. Without it the module is run.
    type: str
  python:
    description: Interpreter of the environment, such as V(/opt/gpuwright/pytorch/bin/python).
    type: path
  address:
    description: Address of the group's first host, as the other hosts reach it.
    type: str
  port:
    description: Port on which the first host listens.
    type: int
  first_rank:
    description: The first rank of this host. V(0) makes it the first host.
    type: int
  ranks:
    description: How many ranks all hosts have together.
    type: int
  expected_ranks:
    description:
      - How many ranks this host gives. If another number of cards may be loaded, it does not join.
      - Without it as many as there are cards to load, or 1 on the processor.
    type: int
  cards:
    description: Indices, UUIDs or bus ids of the cards that take part. Without it all of them.
    type: list
    elements: str
    default: []
  seconds:
    description: Seconds for measuring.
    type: int
    default: 10
  patience:
    description: Seconds that a rank waits for those of the other hosts, after it has begun itself.
    type: int
    default: 180
  interface:
    description:
      - Name of the network interface by which the hosts speak.
      - Without it the one with the address from which the kernel speaks to O(address); on the first host the one with that address.
    type: str
    default: ""
  busy:
    description: Whether cards that compute for somebody take part too. What is measured then says little.
    type: bool
    default: false
  expect_cuda:
    description: Whether it must find cards. V(false) where the framework runs on the processor.
    type: bool
    default: true
  executable:
    description: The nvidia-smi that tells which cards there are.
    type: str
    default: nvidia-smi
attributes:
  async:
    description: The answer is taken by a second task, with O(job). C(async_status) would read it past the gate on the controller.
    support: partial
  check_mode:
    description: Runs nothing and says so in a skipped check.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Measure between two hosts of eight cards
  gpuwright.node.fabric_load:
    python: /opt/gpuwright/pytorch/bin/python
    address: 10.0.0.1
    port: 29411
    first_rank: "{{ 0 if inventory_hostname == 'a' else 8 }}"
    ranks: 16
    expected_ranks: 8

- name: Begin, where there are more hosts than forks
  gpuwright.node.fabric_load:
    python: /opt/gpuwright/pytorch/bin/python
    address: 10.0.0.1
    port: 29411
    first_rank: "{{ 8 * groups['fabric'].index(inventory_hostname) }}"
    ranks: "{{ 8 * groups['fabric'] | length }}"
    expected_ranks: 8
  async: 600
  poll: 0
  register: begun

- name: Take the answer
  gpuwright.node.fabric_load:
    job: "{{ begun.ansible_job_id }}"
  register: measured
  until: measured.finished | default(1) | bool
  retries: 600
  delay: 1

- name: Measure by gloo on the processors, over an interface of that name
  gpuwright.node.fabric_load:
    python: /opt/gpuwright/pytorch/bin/python
    address: 10.0.0.1
    port: 29411
    first_rank: 1
    ranks: 2
    interface: eth1
    expect_cuda: false
"""

RETURN = r"""
version:
  description: Version of PyTorch.
  returned: when it could be imported
  type: str
  sample: 2.14.1+cu130
devices:
  description: The cards that took part, or the processor.
  returned: always
  type: list
  elements: dict
  sample:
    - device: GPU-6e1f0c1c-0000-4000-8000-000000000001
      gpu: 0 (00000000:1B:00.0)
      kind: card
      name: NVIDIA H100 80GB HBM3
      bus_id: 00000000:1B:00.0
group:
  description: The group, where this host came together with the others.
  returned: always
  type: dict
  sample: {"ranks": 16, "backend": "nccl"}
collectives:
  description: Collectives by size, with their bandwidths as nccl-tests count them; of the host with rank 0.
  returned: always
  type: list
  elements: dict
  sample: [{"kind": "all_reduce", "bytes": 4294967296, "ranks": 16, "backend": "nccl", "algbw_gbs": 191.2, "busbw_gbs": 358.5}]
network:
  description: What NCCL used between the hosts. C(kind) is C(ib), C(roce), C(socket), C(plugin) or null where it was not recognised.
  returned: always
  type: dict
  sample: {"kind": "ib", "interfaces": ["eth0"], "adapters": ["mlx5_0:1", "mlx5_1:1"], "gpu_direct": true}
host:
  description:
    - What the host is for the network between hosts, null in check mode.
    - Of C(memlock_bytes) null means any amount, of C(acs) and C(firewall) that it could not be read.
  returned: always
  type: dict
  sample:
    interface: {name: eth0, mtu: 9000, speed_mbit: 100000, state: up}
    adapters:
      - {name: mlx5_0, port: 1, model: MT4129, link_layer: InfiniBand, state: ACTIVE, phys_state: LinkUp, rate_gbit: 400.0}
    devices: 9
    virtual: false
    memlock_bytes: null
    peermem: true
    iommu: {"on": true, "passthrough": true}
    acs: []
    settings: {NCCL_IB_HCA: mlx5}
    socket_interface_missing: false
    firewall: [ufw]
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 41.7
checks:
  description: The judgement, one entry a check.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "fabric.joined", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import re
import time
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    fabric_host,
    fabric_load,
    fabric_load_judge,
    framework,
    framework_load,
    smi_messages,
)
from ansible_collections.gpuwright.node.plugins.module_utils.observe import firewall

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

_SMI_SECONDS = 60
#: An address of either family, or the name of a host.
_ADDRESS = re.compile(r"^[0-9A-Za-z][0-9A-Za-z.:_-]{0,252}$|^::[0-9A-Fa-f:.]{1,40}$", re.ASCII)
_MOST_RANKS = 100_000


class Options(TypedDict):
    """The options of the module."""

    python: str
    address: str
    port: int
    first_rank: int
    ranks: int
    expected_ranks: Optional[int]
    cards: List[str]
    seconds: int
    patience: int
    interface: str
    busy: bool
    expect_cuda: bool
    executable: str


class _Answer(TypedDict):
    devices: List[Dict[str, object]]
    group: Dict[str, object]
    collectives: List[Dict[str, object]]
    network: fabric_load.Network
    host: Optional[fabric_host.FabricHost]
    seconds: float
    checks: List[Check]


class Answer(_Answer, total=False):
    """What the module answers, without the verdict."""

    version: str


def main() -> None:
    """Read the options, take part, answer."""
    module = AnsibleModule(
        argument_spec={
            "job": {"type": "str"},
            "python": {"type": "path"},
            "address": {"type": "str"},
            "port": {"type": "int"},
            "first_rank": {"type": "int"},
            "ranks": {"type": "int"},
            "expected_ranks": {"type": "int"},
            "cards": {"type": "list", "elements": "str", "default": []},
            "seconds": {"type": "int", "default": 10},
            "patience": {"type": "int", "default": 180},
            "interface": {"type": "str", "default": ""},
            "busy": {"type": "bool", "default": False},
            "expect_cuda": {"type": "bool", "default": True},
            "executable": {"type": "str", "default": "nvidia-smi"},
        },
        # A job is asked for by the action of the same name, and never comes here.
        required_one_of=[("python", "job")],
        required_together=[("python", "address", "port", "first_rank", "ranks")],
        supports_check_mode=True,
    )
    wrong = wrong_option(module.params)
    if wrong:
        module.fail_json(msg=wrong)
    module.exit_json(changed=False, **checks.with_verdict(prove(module.params, module.check_mode)))


def wrong_option(params: Options) -> Optional[str]:
    """What is wrong with the options, in a sentence; None where nothing is."""
    numbers: Mapping[str, Tuple[Optional[int], int, int]] = {
        "port": (params["port"], 1, 65535),
        "ranks": (params["ranks"], 1, _MOST_RANKS),
        "first_rank": (params["first_rank"], 0, params["ranks"] - 1),
        "expected_ranks": (params["expected_ranks"], 1, params["ranks"] - params["first_rank"]),
        "seconds": (params["seconds"], 1, 3600),
        "patience": (params["patience"], 1, 3600),
    }
    for name, (value, least, most) in numbers.items():
        if value is not None and not least <= value <= most:
            return f"{name} must be from {least} to {most}, found {value}"
    if not _ADDRESS.match(params["address"]):
        return "address must be an address or the name of a host, found {!r}".format(params["address"])
    if params["interface"] and not fabric_host.NAME.match(params["interface"]):
        return "interface must be the name of a network interface, found {!r}".format(params["interface"])
    return None


def prove(
    params: Options, check_mode: bool = False, runner: framework_load.Runner = run.run, host: Optional[Host] = None
) -> Answer:
    """Take part in the group and judge; ``runner`` is what runs a program, ``host`` the machine that is looked at."""
    begun = time.monotonic()
    host = host or Host()
    result: Answer = {
        "devices": [],
        "group": {},
        "collectives": [],
        "network": fabric_load.NO_NETWORK,
        "host": None,
        "seconds": 0.0,
        "checks": [],
    }
    if check_mode:
        result["checks"].append(checks.skipped("fabric.runs", "nothing is run in check mode"))
    else:
        take_part(params, result, runner, host)
    result["seconds"] = round(time.monotonic() - begun, 2)
    return result


def take_part(params: Options, result: Answer, runner: framework_load.Runner, host: Host) -> None:
    """Join the group where this host may, and put what came of it into ``result``."""
    interface = params["interface"] or fabric_host.interface_to(host, params["address"])
    devices, refused = look(params, runner)
    refused = refused or stranger(params, host)
    if refused:
        # A host that does not join is looked at all the same: its adapters do not depend on it.
        facts = result["host"] = look_at_host(host, interface)
        result["checks"] = refused + fabric_load_judge.judge_host(facts)
        return
    group = fabric_load.Group(
        params["address"],
        params["port"],
        params["first_rank"],
        len(devices) if params["expect_cuda"] else params["expected_ranks"] or 1,
        params["ranks"],
        params["patience"],
        interface,
    )
    answer, log = fabric_load.ask(params["python"], group, params["seconds"], devices, runner)
    steps = framework_load.steps_of(answer.out)
    tell(steps, result)
    result["devices"] = [described(device) for device in devices or [framework_load.PROCESSOR]]
    result["collectives"] = [] if group.first_rank else framework_load.collectives_of(steps)
    result["network"] = fabric_load.network_of(log)
    facts = result["host"] = look_at_host(host, interface)
    result["checks"] = fabric_load_judge.judge(group, answer, result["network"], facts, bool(devices))


def look(params: Options, runner: framework_load.Runner) -> Tuple[List[framework_load.Device], List[Check]]:
    """The cards that take part, and why this host does not join; none of either on the processor."""
    refused = framework.of_others(params["python"], ownership.trusted())
    if refused:
        return [], [{**refused, "id": "fabric.runs"}]
    if not params["expect_cuda"]:
        return [], []
    answer = runner([params["executable"], "-q", "-x"], timeout=_SMI_SECONDS)
    data, ran = smi_messages.read_answer(answer.rc, answer.out, answer.err, answer.seconds, answer.error)
    if data is None or not data["gpus"]:
        reason = "it is not known which cards there are: this host does not join"
        return [], [checks.incomplete("fabric.runs", reason, evidence=ran["reason"], remedy="see smi.runs")]
    # A card that is cut into instances joins no group of several hosts.
    data["gpus"] = [card for card in data["gpus"] if not card["mig"]["current"]]
    devices, left_alone = framework_load.choose(data, "", params["cards"], params["busy"])
    wanted = params["expected_ranks"] or max(len(devices), 1)
    if len(devices) == wanted and params["first_rank"] + wanted <= params["ranks"]:
        return devices, []
    number = checks.incomplete(
        "fabric.runs",
        f"{words.count(len(devices), 'whole cards')} may be loaded "
        f"where {words.count(wanted, 'ranks', 'are')} expected: this host does not join",
        measured=len(devices),
        expected=wanted,
        unit="ranks",
        remedy="see gpu.count, end what uses the cards, and start it anew on all hosts",
    )
    found: List[Check] = [{**check, "id": "fabric.runs"} for check in left_alone]
    return [], [*found, number]


def stranger(params: Options, host: Host) -> List[Check]:
    """Why this host does not join by the interface that was named."""
    if not params["interface"] or fabric_host.interface_of(host, params["interface"]):
        return []
    reason = "there is no network interface {}: this host does not join".format(params["interface"])
    return [checks.incomplete("fabric.runs", reason, action="configure", remedy="compare with 'ip link'")]


def look_at_host(host: Host, interface: Optional[str]) -> fabric_host.FabricHost:
    """The facts of the host, the firewall among them."""
    seen = firewall.observe(host)
    active = None if seen is None else [str(tool["name"]) for tool in seen["tools"] if tool["active"]]
    return fabric_host.look(host, interface, active, fabric_host.memlock())


def tell(steps: Sequence[framework_load.Step], result: Answer) -> None:
    """The version of PyTorch and the group, where they were told."""
    for step in steps:
        if step["step"] == "import" and "error" not in step:
            result["version"] = step["version"][:100]
        if step["step"] == "group":
            result["group"] = {"ranks": step["ranks"], "backend": step["backend"][:20]}


def described(device: framework_load.Device) -> Dict[str, object]:
    """A card that took part, or the processor."""
    return {
        "device": device.key or "cpu",
        "gpu": device.gpu,
        "kind": device.kind,
        "name": device.name,
        "bus_id": device.bus_id,
    }


if __name__ == "__main__":
    main()
