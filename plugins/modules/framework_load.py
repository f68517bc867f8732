#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: framework_load
short_description: Load the cards through PyTorch and measure what they do
version_added: "0.2.0"
description:
  - Measures by PyTorch in its environment, on each card or MIG instance by itself, products of matrices in each precision that it has, the
    bandwidth of its memory, copies to and from pinned memory of each NUMA node, and training in mixed precision with processes that read
    the data; copies between each pair of cards; and with several cards all_reduce and all_gather of NCCL and DistributedDataParallel.
  - Results are judged always, figures where O(expected) has a floor for them. Without a floor a figure is told in a skipped check.
  - A card that computes for somebody is left alone. One whose compute mode is exclusive is used by one process at a time.
  - Without cards (O(expect_cuda=false)) the processor multiplies and trains, with several processes by gloo; what needs a card is skipped.
  - What several cards do together root has done by an ordinary user (C(nobody)), for NCCL asks nobody who he is that reaches its ports.
    Where that user may not open a device it is not measured, and the device is named.
  - Everything ends in its time, and what was started ends with it. A card that fails is no failure of the module; read the returned checks.
  - As root it runs nothing that another user may change, the interpreter or anything in its environment, and says so in an incomplete
    check.
options:
  python:
    description: Interpreter of the environment, such as V(/opt/gpuwright/pytorch/bin/python).
    type: path
    required: true
  what:
    description:
      - What is measured.
      - V(tflops), V(bandwidth), V(host_device) and V(train) on each card, V(peer) on each pair, V(collectives) and V(ddp) on all of them
        together.
    type: list
    elements: str
    choices: [tflops, bandwidth, host_device, train, peer, collectives, ddp]
    default: [tflops, bandwidth, host_device, train, peer, collectives, ddp]
  seconds:
    description: Seconds for each part, on each card anew.
    type: int
    default: 10
  startup:
    description: Seconds that a process may take until it measures. The first import from a slow disk takes a minute and more.
    type: int
    default: 180
  cards:
    description: Indices, UUIDs or bus ids of the cards to load. Without it all of them.
    type: list
    elements: str
    default: []
  busy:
    description: Whether cards that compute for somebody are loaded too. What is measured then says little.
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
  expected:
    description: What is known of the cards, one entry for each.
    type: list
    elements: dict
    default: []
    suboptions:
      bus_id:
        description: The card's place, as nvidia-smi writes it.
        type: str
        required: true
      name:
        description: The card, as its data sheet is called.
        type: str
        required: true
      tflops:
        description: Peak of each precision, dense, in TFLOPS.
        type: dict
        default: {}
      bandwidth_gbs:
        description: Peak of its memory in GB/s.
        type: float
      nvlink_gbs:
        description: Peak of its NVLink in GB/s, both directions together.
        type: float
      pcie_gbs:
        description: Peak of its PCIe link in GB/s, one direction.
        type: float
      floors:
        description: The least that a healthy card does.
        type: list
        elements: dict
        default: []
        suboptions:
          what:
            description: The figure, such as V(tflops_fp32), V(bandwidth), V(host_device), V(peer), V(all_reduce) or V(all_gather).
            type: str
            required: true
          value:
            description: The floor, in TFLOPS or GB/s.
            type: float
            required: true
          cards:
            description: How many cards it holds for, where it is one of several together.
            type: int
          confirmed:
            description: Whether it was read in a source. What is below one that was not is a warning.
            type: bool
            default: false
          source:
            description: Where it is from.
            type: str
            required: true
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Runs nothing and says so in a skipped check.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Load all cards
  gpuwright.node.framework_load:
    python: /opt/gpuwright/pytorch/bin/python

- name: Hold the first card's memory against what is known of it
  gpuwright.node.framework_load:
    python: /opt/gpuwright/pytorch/bin/python
    cards: ["0"]
    what: [bandwidth]
    expected:
      - bus_id: 00000000:1B:00.0
        name: H100 SXM5 80GB
        bandwidth_gbs: 3350
        floors:
          - {what: bandwidth, value: 1905, confirmed: true, source: dcgm}

- name: Train on the processor
  gpuwright.node.framework_load:
    python: /opt/gpuwright/pytorch/bin/python
    expect_cuda: false
"""

RETURN = r"""
version:
  description: Version of PyTorch.
  returned: when it could be imported
  type: str
  sample: 2.14.1+cu130
devices:
  description: What each card, MIG instance or the processor did. Bandwidths are in GB/s (10^9 bytes), products in TFLOPS.
  returned: always
  type: list
  elements: dict
  sample:
    - device: GPU-6e1f0c1c-0000-4000-8000-000000000001
      gpu: 0 (00000000:1B:00.0)
      kind: card
      name: NVIDIA H100 80GB HBM3
      bus_id: 00000000:1B:00.0
      tflops: {fp32: 51.2, tf32: 402.1, bf16: 712.4}
      bandwidth_gbs: {copy: 2911, triad: 3012}
      host_device: [{node: 0, local: true, to_device_gbs: 55.1, from_device_gbs: 54.2, both_gbs: 98.7}]
      training: {ranks: 1, steps: 92, step_seconds: 0.108, tflops: 121.4, waiting_share: 0.02, precision: bf16}
pairs:
  description: Copies between the cards, each direction by itself.
  returned: always
  type: list
  elements: dict
  sample: [{"from": "0 (00000000:1B:00.0)", "to": "1 (00000000:43:00.0)", "gbs": 371.2, "direct": true}]
collectives:
  description: Collectives of all cards by size, with their bandwidths as nccl-tests count them.
  returned: always
  type: list
  elements: dict
  sample: [{"kind": "all_reduce", "bytes": 4294967296, "ranks": 8, "backend": "nccl", "algbw_gbs": 268.1, "busbw_gbs": 469.2}]
training:
  description: Training with all cards, a process for each.
  returned: when it was measured
  type: dict
  sample: {"ranks": 8, "steps": 88, "step_seconds": 0.113, "tflops": 115.9, "waiting_share": 0.03, "precision": "bf16"}
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 312.4
checks:
  description: The judgement, one entry a check and card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "load.bandwidth", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import time
from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership, run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    framework,
    framework_load,
    framework_load_judge,
    smi_messages,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

_SMI_SECONDS = 60


class Options(TypedDict):
    """The options of the module."""

    python: str
    what: List[str]
    seconds: int
    startup: int
    cards: List[str]
    busy: bool
    expect_cuda: bool
    executable: str
    expected: List[framework_load_judge.Expected]


class _Answer(TypedDict):
    devices: List[Dict[str, object]]
    pairs: List[Dict[str, object]]
    collectives: List[Dict[str, object]]
    seconds: float
    checks: List[Check]


class Answer(_Answer, total=False):
    """What the module answers, without the verdict."""

    version: str
    training: Dict[str, object]


def main() -> None:
    """Read the options, load, answer."""
    floor = {
        "what": {"type": "str", "required": True},
        "value": {"type": "float", "required": True},
        "cards": {"type": "int"},
        "confirmed": {"type": "bool", "default": False},
        "source": {"type": "str", "required": True},
    }
    expected = {
        "bus_id": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "tflops": {"type": "dict", "default": {}},
        "bandwidth_gbs": {"type": "float"},
        "nvlink_gbs": {"type": "float"},
        "pcie_gbs": {"type": "float"},
        "floors": {"type": "list", "elements": "dict", "default": [], "options": floor},
    }
    everything = list(framework_load.WHAT)
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "what": {"type": "list", "elements": "str", "choices": everything, "default": everything},
            "seconds": {"type": "int", "default": 10},
            "startup": {"type": "int", "default": 180},
            "cards": {"type": "list", "elements": "str", "default": []},
            "busy": {"type": "bool", "default": False},
            "expect_cuda": {"type": "bool", "default": True},
            "executable": {"type": "str", "default": "nvidia-smi"},
            "expected": {"type": "list", "elements": "dict", "default": [], "options": expected},
        },
        supports_check_mode=True,
    )
    params = module.params
    for name in ("seconds", "startup"):
        if params[name] < 1:
            module.fail_json(msg="{0} must be at least 1 second".format(name))
    for row in params["expected"]:
        wrong = [name for name, value in row["tflops"].items() if framework_load.number(value) is None]
        if wrong:
            module.fail_json(msg="tflops must map precisions to numbers, found none for " + ", ".join(wrong))
    module.exit_json(changed=False, **checks.with_verdict(prove(params, module.check_mode)))


def prove(params: Options, check_mode: bool = False, runner: framework_load.Runner = run.run) -> Answer:
    """Load what may be loaded and judge; ``runner`` is what runs a program."""
    begun = time.monotonic()
    result: Answer = {"devices": [], "pairs": [], "collectives": [], "seconds": 0.0, "checks": []}
    refused = framework.of_others(params["python"], ownership.trusted())
    if refused:
        result["checks"].append({**refused, "id": "load.runs"})
    elif check_mode:
        result["checks"].append(checks.skipped("load.runs", "nothing is loaded in check mode"))
    else:
        load(params, result, runner)
    result["seconds"] = round(time.monotonic() - begun, 2)
    return result


def load(params: Options, result: Answer, runner: framework_load.Runner) -> None:
    """Load what there is, and put its figures and checks into ``result``."""
    wish = framework_load.Wish(params["python"], params["what"], params["seconds"], params["startup"])
    if not params["expect_cuda"]:
        load_one(wish, framework_load.PROCESSOR, {}, result, runner)
        pairs = framework_load.parts_for(wish, framework_load.OF_PAIRS)
        result["checks"] += framework_load_judge.skipped(
            pairs, "there are no cards: PyTorch runs on the processor here"
        )
        load_all(wish, [], {}, result, runner)
        return
    devices, left_alone = look(params, runner)
    result["checks"] += left_alone
    expected = {str(row["bus_id"]).upper(): row for row in params["expected"]}
    for device in devices:
        load_one(wish, device, expected, result, runner)
    together = [device for device in devices if device.kind == "card"]
    if len(together) > 1:
        load_pairs(wish, together, expected, result, runner)
        load_all(wish, together, expected, result, runner)
    elif devices:
        several = framework_load.parts_for(wish, framework_load.OF_PAIRS + framework_load.OF_ALL)
        result["checks"] += framework_load_judge.skipped(
            several, "it takes two whole cards, and there is no second one to load"
        )


def look(params: Options, runner: framework_load.Runner) -> Tuple[List[framework_load.Device], List[Check]]:
    """The devices to load, and why others are left alone, by what nvidia-smi says."""
    answer = runner([params["executable"], "-q", "-x"], timeout=_SMI_SECONDS)
    data, ran = smi_messages.read_answer(answer.rc, answer.out, answer.err, answer.seconds, answer.error)
    if data is None or not data["gpus"]:
        reason = "it is not known which cards there are: nothing is loaded"
        return [], [checks.incomplete("load.runs", reason, evidence=ran["reason"], remedy="see smi.runs")]
    listed = ""
    if any(card["mig"]["current"] for card in data["gpus"]):
        listed = runner([params["executable"], "-L"], timeout=_SMI_SECONDS).out
    return framework_load.choose(data, listed, params["cards"], params["busy"])


def load_one(
    wish: framework_load.Wish,
    device: framework_load.Device,
    expected: Dict[str, framework_load_judge.Expected],
    result: Answer,
    runner: framework_load.Runner,
) -> None:
    """Load one device by itself."""
    if not framework_load.parts_for(wish, framework_load.OF_A_CARD):
        return
    nodes = framework_load.nodes_of(Host(), device.bus_id) if device.bus_id else []
    answer = framework_load.ask_card(wish, device, nodes, runner)
    steps = framework_load.steps_of(answer.out)
    tell_version(steps, result)
    result["devices"].append(framework_load.figures_of(device, steps))
    result["checks"] += framework_load_judge.judge_device(device, answer, wish.what, expected.get(str(device.bus_id)))


def load_pairs(
    wish: framework_load.Wish,
    devices: Sequence[framework_load.Device],
    expected: Dict[str, framework_load_judge.Expected],
    result: Answer,
    runner: framework_load.Runner,
) -> None:
    """Load each pair of cards."""
    if not framework_load.parts_for(wish, framework_load.OF_PAIRS):
        return
    answer = framework_load.ask_pairs(wish, devices, runner)
    result["pairs"] = framework_load.pairs_of(devices, framework_load.steps_of(answer.out))
    result["checks"] += framework_load_judge.judge_pairs(devices, answer, expected)


def load_all(
    wish: framework_load.Wish,
    devices: Sequence[framework_load.Device],
    expected: Dict[str, framework_load_judge.Expected],
    result: Answer,
    runner: framework_load.Runner,
) -> None:
    """Load all cards together, or the processor with several processes."""
    if not framework_load.parts_for(wish, framework_load.OF_ALL):
        return
    answer = framework_load.ask_all(wish, devices, runner)
    steps = framework_load.steps_of(answer.out)
    tell_version(steps, result)
    result["collectives"] = framework_load.collectives_of(steps)
    for step in steps:
        if step["step"] == "training":
            result["training"] = framework_load.training_of(step)
    result["checks"] += framework_load_judge.judge_all(devices, answer, wish.what, expected)


def tell_version(steps: Sequence[framework_load.Step], result: Answer) -> None:
    """The version of PyTorch, where it was told."""
    for step in steps:
        if step["step"] == "import" and "error" not in step:
            result["version"] = step["version"][:100]


if __name__ == "__main__":
    main()
