#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_load
short_description: Load every card through the driver alone, and judge it meanwhile
version_added: "0.1.0"
description:
  - Takes most of the free memory of each card, fills and verifies it with patterns that move, then multiplies in single precision and,
    where there are tensor cores, in half precision. All results are known beforehand to the last bit.
  - This needs neither the CUDA toolkit nor a framework, only C(libcuda.so.1), whose compiler makes the programs for the card.
  - All cards are loaded at once, each MIG instance as one. Meanwhile C(nvidia-smi) is asked every few seconds, and the cards are judged by
    what they are under load - clocks, reasons for low ones, temperatures, the PCIe link, errors of the memory.
  - It is for correctness and heat. How fast it is says nothing of a card.
  - A card that others compute on is left alone, and loaded by none of them while they begin meanwhile, unless O(busy) is set.
  - It ends in its time, and sets nothing on the cards.
  - The programs were never run on a real card yet, they are assembled for each generation and run on a stand-in of the driver; the checks
    say so. A card that is found wrong is no failure of the module; read the returned checks.
options:
  seconds:
    description: How long the cards are loaded. Up to a minute comes to it until they are ready.
    type: int
    default: 60
  what:
    description: What is done, each for the same share of the time.
    type: list
    elements: str
    choices: [memory, compute]
    default: [memory, compute]
  memory_share:
    description: Share of the free memory that is taken, more than 0 and at most 1. 64 MiB are left free in any case.
    type: float
    default: 0.9
  interval:
    description: Seconds between two looks at the cards.
    type: int
    default: 5
  busy:
    description: Whether cards are loaded that others compute on.
    type: bool
    default: false
  ignore:
    description: Cards that are left alone, by PCI bus id or by model.
    type: list
    elements: str
  pcie_lanes:
    description: PCIe lanes that are right for a slot, as for M(gpuwright.node.nvidia_smi).
    type: dict
  pcie_gen:
    description: PCIe generation that each card must reach, in place of the highest one of card and host.
    type: int
  max_temperature_c:
    description: Temperature of a card from which on it is a warning, in place of the card's own threshold.
    type: int
  max_memory_temperature_c:
    description: The same for the card's memory.
    type: int
  log:
    description: Whether the kernel log of this machine is the one that the driver writes into, as it is not inside WSL or a container.
    type: bool
    default: true
  library:
    description: The library to open. Found as programs find it when it is not absolute.
    type: str
    default: libcuda.so.1
  executable:
    description: The nvidia-smi to ask. Looked for on the search path when it is not absolute.
    type: str
    default: nvidia-smi
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Loads nothing and says so in a skipped check.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Load the cards for ten minutes
  gpuwright.node.gpu_load:
    seconds: 600
  register: load

- name: Verify the memory alone, of a workstation that goes on drawing
  gpuwright.node.gpu_load:
    what: [memory]
    memory_share: 0.5
"""

RETURN = r"""
cards:
  description:
    - What each loaded card was under load. Clocks in MHz, power in W, temperatures in °C, each as its lowest, median and highest value,
      null where the card does not tell it. C(looks) is how often it was seen, C(states) and C(reasons) in how many of these looks.
  returned: always
  type: list
  elements: dict
  sample:
    - gpu: 0 (00000000:1B:00.0)
      name: NVIDIA H100 80GB HBM3
      uuid: GPU-5c1e9a2d-0000-0000-0000-000000000000
      looks: 10
      sm_mhz: {"min": 1755, "median": 1800, "max": 1980}
      power_w: {"min": 640.2, "median": 690.1, "max": 699.3}
      temperature_c: {"min": 41, "median": 60, "max": 63}
      temperature_memory_c: {"min": 48, "median": 71, "max": 74}
      pcie_gen: {"min": 5, "median": 5, "max": 5}
      pcie_width: {"min": 16, "median": 16, "max": 16}
      utilization_percent: {"min": 99, "median": 100, "max": 100}
      states: {"P0": 10}
      reasons: {"sw_power_cap": 8}
events:
  description: The errors of the driver that came into the kernel log meanwhile, as RV(gpuwright.node.kernel_log#module:events) has them.
  returned: always
  type: list
  elements: dict
  sample: []
log_lines:
  description: How many lines of the kernel log were read; null where it was not to be read.
  returned: always
  type: int
  sample: 1875
log_problem:
  description: Why the kernel log could not be read; null where it could.
  returned: always
  type: str
  sample: null
seconds:
  description: How long it took in all.
  returned: always
  type: float
  sample: 64.2
checks:
  description: The judgement, one entry a check and card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "load.memory", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import os
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, TypedDict, cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    card_load,
    fio_bench,
    kernel_log,
    load_judge,
    load_watch,
    smi_judge,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import Expected

#: A week: the longest burn-in.
MOST_SECONDS = 7 * 86_400
# nvidia-smi before and after the load, when the driver may have to be loaded.
SMI_SECONDS = 60.0
OTHERS = "others began to compute on the card"


class Options(TypedDict):
    """The options of the module."""

    seconds: int
    what: List[str]
    memory_share: float
    interval: int
    busy: bool
    ignore: Optional[List[str]]
    pcie_lanes: Optional[Mapping[str, int]]
    pcie_gen: Optional[int]
    max_temperature_c: Optional[int]
    max_memory_temperature_c: Optional[int]
    log: bool
    library: str
    executable: str


class Answer(TypedDict):
    """What the module answers, without the verdict."""

    cards: List[Dict[str, object]]
    events: List[Event]
    log_lines: Optional[int]
    log_problem: Optional[str]
    seconds: float
    checks: List[Check]


class Choice(NamedTuple):
    """What is done to a card: the orders for it, or the check that says why it is left alone."""

    gpu: Card
    orders: List[card_load.Order]
    left: Optional[Check]


def main() -> None:
    """Read the options, load, answer."""
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "int", "default": 60},
            "what": {
                "type": "list",
                "elements": "str",
                "choices": ["memory", "compute"],
                "default": ["memory", "compute"],
            },
            "memory_share": {"type": "float", "default": 0.9},
            "interval": {"type": "int", "default": 5},
            "busy": {"type": "bool", "default": False},
            "ignore": {"type": "list", "elements": "str"},
            "pcie_lanes": {"type": "dict"},
            "pcie_gen": {"type": "int"},
            "max_temperature_c": {"type": "int"},
            "max_memory_temperature_c": {"type": "int"},
            "log": {"type": "bool", "default": True},
            "library": {"type": "str", "default": "libcuda.so.1"},
            "executable": {"type": "str", "default": "nvidia-smi"},
        },
        supports_check_mode=True,
    )
    refused = refusal(module.params)
    if refused:
        module.fail_json(msg=refused)
    lanes = module.params["pcie_lanes"] or {}
    module.params["pcie_lanes"] = {card: int(count) for card, count in lanes.items()}
    try:
        with fio_bench.ending_cleanly():
            result = prove(module.params, module.check_mode)
    except fio_bench.Ended as error:
        module.fail_json(msg="{0}; the load was ended, and the cards are as they were".format(error))
    module.exit_json(changed=False, **checks.with_verdict(cast("Mapping[str, object]", result)))


def refusal(params: Options) -> Optional[str]:
    """Why the options cannot be taken; None where they can."""
    if not 1 <= params["seconds"] <= MOST_SECONDS:
        return "seconds must be from 1 to {0}".format(MOST_SECONDS)
    if params["interval"] < 1:
        return "interval must be at least 1 second"
    if not 0 < params["memory_share"] <= 1:
        return "memory_share must be more than 0 and at most 1, and {0} is not".format(params["memory_share"])
    if not params["what"]:
        return "what must name something to do: memory, compute or both"
    wrong = ["{0}: {1}".format(*item) for item in (params["pcie_lanes"] or {}).items() if not str(item[1]).isdigit()]
    return "pcie_lanes must map cards to numbers of lanes, found " + ", ".join(wrong) if wrong else None


def prove(
    params: Options,
    check_mode: bool,
    runner: load_watch.Runner = run.run,
    read_log: Callable[[], kernel_log.Log] = kernel_log.read,
) -> Answer:
    """Load the cards and judge; ``runner`` is what runs nvidia-smi, ``read_log`` what reads the kernel log."""
    begun = time.monotonic()
    result: Answer = {
        "cards": [],
        "events": [],
        "log_lines": None,
        "log_problem": None,
        "seconds": 0.0,
        "checks": [],
    }
    if check_mode:
        result["checks"].append(checks.skipped("load.runs", "nothing is loaded in check mode"))
        return result
    refused = of_others([params["library"], params["executable"]])
    if refused:
        result["checks"].append(refused)
        return result
    watch = load_watch.Watch(params["executable"], runner)
    before = watch.look(SMI_SECONDS)
    if before.data is None:
        result["checks"] += [before.ran, checks.incomplete("load.runs", "nvidia-smi names no card; see smi.runs")]
        return result
    data = smi_judge.without_ignored(before.data, params["ignore"])
    choices = [choose(gpu, watch, params) for gpu in data["gpus"]]
    result["checks"] += [choice.left for choice in choices if choice.left is not None]
    loaded = [choice for choice in choices if choice.orders]
    if loaded:
        before_load = read_log() if params["log"] else None
        judge_load(loaded, watch, params, result)
        if before_load is not None:
            log = read_log()
            known = kernel_log.events(before_load.lines)["events"]
            result["events"] = kernel_log.new_events(known, kernel_log.events(log.lines)["events"])
            result["log_lines"], result["log_problem"] = len(log.lines), log.why
    elif not choices:
        result["checks"].append(checks.incomplete("load.runs", "nvidia-smi names no card that could be loaded"))
    result["seconds"] = round(time.monotonic() - begun, 2)
    return result


def of_others(paths: Sequence[str]) -> Optional[Check]:
    """Why one of the files is not run; None where all are in the hands of root or of this user. A name is looked for by the system."""
    for path in filter(os.path.isabs, paths):
        found = ownership.offence(path, ownership.trusted())
        if found:
            remedy = "name a file that nobody else can change"
            reason = ownership.refusal(path, found, remedy, ownership.trusted())
            return checks.incomplete("load.runs", reason, action="configure", remedy=remedy)
    return None


def choose(gpu: Card, watch: load_watch.Watch, params: Options) -> Choice:
    """Whether a card is loaded: as a whole, or each of its instances."""
    card = load_watch.identity(gpu)
    listed = watch.instances().get(card) if gpu["mig"]["current"] else []
    if listed is None:
        reason = "MIG is on, and nvidia-smi -L does not list the card: it is not known what can compute on it"
        unknown = checks.incomplete("load.runs", reason, gpu=smi_judge.label(gpu), remedy="run nvidia-smi -L by hand")
        return Choice(gpu, [], unknown)
    instances = listed
    left = load_judge.judge_free(gpu, instances, params["busy"])
    if left is not None:
        return Choice(gpu, [], left)
    parts = [part for part in card_load.PARTS if part in params["what"]]
    orders = [
        card_load.Order(card, visible, float(params["seconds"]), params["memory_share"], parts)
        for visible in instances or [card]
    ]
    return Choice(gpu, orders, None)


def expectations(params: Options) -> Expected:
    """What the cards are held against; what was not given is absent."""
    expected: Expected = {"pcie_lanes": params["pcie_lanes"] or {}}
    if params["pcie_gen"] is not None:
        expected["pcie_gen"] = params["pcie_gen"]
    if params["max_temperature_c"] is not None:
        expected["max_temperature_c"] = params["max_temperature_c"]
    if params["max_memory_temperature_c"] is not None:
        expected["max_memory_temperature_c"] = params["max_memory_temperature_c"]
    return expected


def judge_load(choices: Sequence[Choice], watch: load_watch.Watch, params: Options, result: Answer) -> None:
    """Load the cards, and put what they were and the checks into ``result``."""
    ours = {load_watch.identity(choice.gpu): len(choice.orders) for choice in choices}

    def look(children: Sequence[card_load.Child]) -> None:
        if watch.tired:
            return
        now = watch.look()
        for child in children:
            gpu = load_watch.find(now, child.order.card)
            if gpu is not None and not params["busy"] and load_watch.of_others(gpu, ours[child.order.card]):
                child.stop(OTHERS)

    orders = [order for choice in choices for order in choice.orders]
    told = card_load.drive(params["library"], orders, params["interval"], look)
    after = watch.look(SMI_SECONDS)
    result["checks"] += load_judge.judge_looks(watch.looks)
    expected = expectations(params)
    for choice in choices:
        card = load_watch.identity(choice.gpu)
        children = [each for each in told if each.order.card == card]
        looks = load_watch.under_load(watch.looks, card, *load_judge.span(children))
        label = smi_judge.label(choice.gpu)
        for child in children:
            named = label if child.order.visible == card else "{0} {1}".format(label, child.order.visible)
            result["checks"] += load_judge.judge_child(child, named)
        if after.data is not None:
            loaded = load_judge.Loaded(choice.gpu, load_watch.find(after, card), looks)
            result["checks"] += load_judge.judge_card(loaded, expected, len(choices))
        row = {"gpu": label, "name": choice.gpu["name"], "uuid": choice.gpu["uuid"], **load_watch.summary(looks)}
        result["cards"].append(row)


if __name__ == "__main__":
    main()
