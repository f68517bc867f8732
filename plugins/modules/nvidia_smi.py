#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_smi
short_description: Ask nvidia-smi for the GPUs of a host and judge them
version_added: "0.1.0"
description:
  - Runs C(nvidia-smi -q -x) once, reads it in any of the shapes that drivers since 285 have given it, and judges every card.
  - Where a card brakes for its power supply it is asked twice more, a second apart. Such a brake counts when it lasts.
  - A bad card, a missing C(nvidia-smi) or one that answers nonsense is no failure of the module; read the returned checks.
options:
  executable:
    description: The program to ask. Looked for on the search path when it is not absolute.
    type: str
    default: nvidia-smi
  timeout:
    description: Seconds after which it is killed and counts as hanging. Further looks share them.
    type: int
    default: 60
  expected_gpus:
    description: How many cards there must be.
    type: int
  expected_names:
    description: Models that there may be, as people write them. V(A100) describes an A100 of any form and memory.
    type: list
    elements: str
  expected_bus_ids:
    description: PCI bus ids that must answer, so that a missing card is named.
    type: list
    elements: str
  ignore:
    description: Cards that are left alone, by PCI bus id or by model.
    type: list
    elements: str
  expected_driver:
    description: Driver version, or the beginning of one such as V(580).
    type: str
  min_driver:
    description: Lowest driver version that is good enough.
    type: str
  pcie_lanes:
    description:
      - PCIe lanes that are right for a slot, by the PCI bus id or the model of its card, V(all) for the others. Fewer are a failure.
      - Without it half of the possible lanes is a warning, and fewer than eight a failure, on a GeForce or TITAN a warning.
    type: dict
  pcie_gen:
    description: PCIe generation that each card must reach. Only judged with O(under_load).
    type: int
  max_temperature_c:
    description: Temperature of a card from which on it is a warning, in place of the card's own threshold.
    type: int
  max_memory_temperature_c:
    description: The same for the card's memory.
    type: int
  power_limit_w:
    description: Power limit that each card must be set to.
    type: float
  persistence:
    description: Whether persistence mode must be on. V(false) skips the check; not given, a card without it is a warning.
    type: bool
  mig:
    description: Whether partitioning (MIG) must be on.
    type: bool
  ecc:
    description: Whether error correction must be on. It should be where a card has it, if nothing is said.
    type: bool
  compute_mode:
    description: A compute mode besides V(Default) that is right.
    type: str
  settings:
    description:
      - What is wished of one card, by its bus id, in place of what is said of all.
      - Each card takes C(power_limit_w), C(persistence), C(ecc) and C(compute_mode).
    type: dict
  idle:
    description: Whether nothing may compute on the cards. Processes of the desktop do not count.
    type: bool
    default: false
  under_load:
    description: Whether the cards are kept busy during the call, which is when the PCIe generation says something.
    type: bool
    default: false
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It only reads, so check mode makes no difference.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Prove the cards
  gpuwright.node.nvidia_smi:
    expected_gpus: 8
    expected_names: [H100]
    min_driver: "525.60.13"
  register: cards

- name: Stop where a card is bad
  ansible.builtin.assert:
    that: cards.checks | selectattr('status', 'equalto', 'fail') | length == 0
"""

RETURN = r"""
driver_version:
  description: Version of the driver.
  returned: when nvidia-smi answered
  type: str
  sample: 580.95.05
cuda_version:
  description: Highest CUDA version that the driver supports.
  returned: when nvidia-smi answered
  type: str
  sample: "13.0"
attached_gpus:
  description: How many cards nvidia-smi says are attached.
  returned: when nvidia-smi answered
  type: int
  sample: 8
gpus:
  description: What it says of each card. A value that a card does not have is null.
  returned: always
  type: list
  elements: dict
  sample: [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "memory_total_mib": 81559, "temperature_c": 34, "power_draw_w": 71.5}]
exit_code:
  description: Exit status of nvidia-smi, or null when it could not be run or was killed.
  returned: always
  type: int
  sample: 0
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 0.84
checks:
  description: The judgement, one entry a check and card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "smi.runs", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import time
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, TypedDict, cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_brake, smi_judge, smi_messages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import Expected


class _Answer(TypedDict):
    exit_code: Optional[int]
    seconds: float
    gpus: List[Card]
    checks: List[Check]


class Answer(_Answer, total=False):
    """What the module answers, without the verdict."""

    driver_version: Optional[str]
    cuda_version: Optional[str]
    attached_gpus: Optional[int]


# Options whose name in the judge's expectations differs.
EXPECTATIONS = {
    "expected_gpus": "count",
    "expected_names": "names",
    "expected_bus_ids": "bus_ids",
    "ignore": "ignore",
    "expected_driver": "driver",
    "min_driver": "min_driver",
    "pcie_lanes": "pcie_lanes",
    "pcie_gen": "pcie_gen",
    "max_temperature_c": "max_temperature_c",
    "max_memory_temperature_c": "max_memory_temperature_c",
    "power_limit_w": "power_limit_w",
    "persistence": "persistence",
    "mig": "mig",
    "ecc": "ecc",
    "compute_mode": "compute_mode",
    "settings": "settings",
    "idle": "idle",
    "under_load": "under_load",
}


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "executable": {"type": "str", "default": "nvidia-smi"},
            "timeout": {"type": "int", "default": 60},
            "expected_gpus": {"type": "int"},
            "expected_names": {"type": "list", "elements": "str"},
            "expected_bus_ids": {"type": "list", "elements": "str"},
            "ignore": {"type": "list", "elements": "str"},
            "expected_driver": {"type": "str"},
            "min_driver": {"type": "str"},
            "pcie_lanes": {"type": "dict"},
            "pcie_gen": {"type": "int"},
            "max_temperature_c": {"type": "int"},
            "max_memory_temperature_c": {"type": "int"},
            "power_limit_w": {"type": "float"},
            "persistence": {"type": "bool"},
            "mig": {"type": "bool"},
            "ecc": {"type": "bool"},
            "compute_mode": {"type": "str"},
            "settings": {"type": "dict"},
            "idle": {"type": "bool", "default": False},
            "under_load": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    lanes = module.params["pcie_lanes"] or {}
    wrong = ["{}: {}".format(*item) for item in lanes.items() if not str(item[1]).isdigit()]
    if wrong:
        module.fail_json(msg="pcie_lanes must map cards to numbers of lanes, found " + ", ".join(wrong))
    module.params["pcie_lanes"] = {card: int(count) for card, count in lanes.items()}
    module.exit_json(changed=False, **checks.with_verdict(prove(module.params)))


def prove(params: Mapping[str, Any], runner: Callable[..., run.Result] = run.run) -> Answer:
    """Ask once, more often where a card brakes, and judge; ``runner`` is what runs a program."""
    ends = time.monotonic() + params["timeout"]

    def ask() -> run.Result:
        # Further looks share the time of the first one.
        return runner([params["executable"], "-q", "-x"], timeout=max(ends - time.monotonic(), 1.0))

    answer = ask()
    data, ran = smi_messages.read_answer(answer.rc, answer.out, answer.err, answer.seconds, answer.error)
    # Not `rc`: Ansible takes a task with an rc that is not 0 for failed.
    result: Answer = {"exit_code": answer.rc, "seconds": round(answer.seconds, 3), "gpus": [], "checks": [ran]}
    if data is not None:
        smi_brake.settle(data, lambda: smi_messages.read_answer(*ask()[:3])[0])
        result["driver_version"] = data["driver_version"]
        result["cuda_version"] = data["cuda_version"]
        result["attached_gpus"] = data["attached_gpus"]
        result["gpus"] = data["gpus"]
        result["checks"] += smi_judge.judge(data, expectations(params))
    elif params["expected_gpus"]:
        result["checks"].append(unseen(params["expected_gpus"]))
    return result


def unseen(count: int) -> Check:
    """The cards that are expected and of which nothing can be said."""
    return checks.incomplete(
        "gpu.count",
        "nvidia-smi gives no answer, so the cards cannot be counted",
        expected=count,
        unit="cards",
        remedy="see smi.runs",
    )


def expectations(params: Mapping[str, Any]) -> Expected:
    """The caller's expectations under the judge's names; what was not given is absent."""
    given = {name: params[option] for option, name in EXPECTATIONS.items() if params[option] is not None}
    return cast("Expected", given)


if __name__ == "__main__":
    main()
