#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_compute
short_description: Prove that CUDA works on every card
version_added: "0.1.0"
description:
  - Opens the driver's C(libcuda.so.1), initialises CUDA, and on each card makes a context, fills a piece of memory and reads
    it back. This needs neither the CUDA toolkit nor a framework.
  - The calls are made in a child process with a time limit, since they may hang or crash.
  - CUDA that does not work is no failure of the module; read the returned checks.
options:
  library:
    description: The library to open. Found as programs find it when it is not absolute.
    type: str
    default: libcuda.so.1
  expected_gpus:
    description: How many cards CUDA must see. Without it one is enough.
    type: int
  min_cuda:
    description: The CUDA version that the driver must support at the least, such as V(12.8).
    type: str
  timeout:
    description: Seconds after which the calls count as hanging. Eight cards take about ten the first time.
    type: int
    default: 120
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, so check mode makes no difference.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Prove that eight cards compute
  gpuwright.node.gpu_compute:
    expected_gpus: 8
"""

RETURN = r"""
cuda_version:
  description: Highest CUDA version that the driver supports.
  returned: when CUDA could be initialised
  type: str
  sample: "13.0"
devices:
  description: The cards as CUDA sees them.
  returned: always
  type: list
  elements: dict
  sample: [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "memory_total_mib": 81079, "compute_capability": "9.0"}]
checks:
  description: The judgement, one entry a check and card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "cuda.init", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import re
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_probe

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Options(TypedDict):
    """The options of the module."""

    library: str
    expected_gpus: Optional[int]
    min_cuda: Optional[str]
    timeout: int


class Answer(TypedDict, total=False):
    """What the module answers, without the verdict."""

    devices: List[Dict[str, object]]
    cuda_version: str
    checks: List[Check]


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "default": cuda_probe.LIBRARY},
            "expected_gpus": {"type": "int"},
            "min_cuda": {"type": "str"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    if params["min_cuda"] and not re.match(r"^\d+(\.\d+)*$", params["min_cuda"]):
        module.fail_json(msg="min_cuda must be a version such as 12.8, and {0!r} is none".format(params["min_cuda"]))
    module.exit_json(changed=False, **checks.with_verdict(prove(params)))


def prove(params: Options, ask: Callable[[str, float], cuda_probe.Answer] = cuda_probe.ask) -> Answer:
    """Ask CUDA in a child process and judge; ``ask`` is what asks."""
    answer = ask(params["library"], params["timeout"])
    devices = [
        {key: value for key, value in step.items() if key != "step"}
        for step in answer.steps
        if step["step"] == "device"
    ]
    result: Answer = {"devices": devices}
    for step in answer.steps:
        if step["step"] == "init" and "version" in step:
            result["cuda_version"] = cuda_probe.cuda_version(step["version"])
    result["checks"] = cuda_probe.judge(
        answer, params["library"], params["timeout"], params["expected_gpus"], params["min_cuda"]
    )
    return result


if __name__ == "__main__":
    main()
