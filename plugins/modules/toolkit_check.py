#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: toolkit_check
short_description: Prove that a CUDA toolkit compiles for the cards, and that what it compiles runs on them
version_added: "0.1.0"
description:
  - Compiles a small program for the compute capability of each card by C(nvcc -arch=sm_90 -cubin), in a temporary directory of this user's
    alone. Where there are cards it links the program and runs it on each of them, and what the kernel computed is compared.
  - The program asks for an error right after the start of its kernel, because a copy of memory says that all is well after a kernel that
    the card has no code for.
  - Each call has a time limit. As root only a toolkit is asked that nobody else may change.
  - A compiler that finds no gcc that it takes is C(incomplete), with the reason; whatever else it refuses is C(fail) with its own words.
options:
  nvcc:
    description: Path of the compiler.
    type: path
    required: true
  capabilities:
    description: Compute capabilities of the cards, such as V(9.0). Without any, what the compiler takes by itself is compiled for.
    type: list
    elements: str
    default: []
  known:
    description: Why it is known not to compile with the gcc or the C library of this machine.
    type: str
  expected_gpus:
    description: How many cards the program has to run on. Without it nothing is run.
    type: int
  timeout:
    description: Seconds after which one call counts as hanging.
    type: int
    default: 180
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
- name: Prove a toolkit on two H100
  gpuwright.node.toolkit_check:
    nvcc: /usr/local/cuda-13.0/bin/nvcc
    capabilities: ["9.0"]
    expected_gpus: 2
"""

RETURN = r"""
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 6.2
checks:
  description: The judgement, C(cuda.compile) and C(cuda.kernel) for each card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "cuda.compile", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import os
import re
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Dict, List, Optional, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import toolkit

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Options(TypedDict):
    """The options of the module."""

    nvcc: str
    capabilities: List[str]
    known: Optional[str]
    expected_gpus: Optional[int]
    timeout: int


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "nvcc": {"type": "path", "required": True},
            "capabilities": {"type": "list", "elements": "str", "default": []},
            "known": {"type": "str"},
            "expected_gpus": {"type": "int"},
            "timeout": {"type": "int", "default": 180},
        },
        supports_check_mode=True,
    )
    params = module.params
    wrong = [each for each in params["capabilities"] if not re.match(r"^\d{1,2}\.\d$", each)]
    if params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    if wrong:
        module.fail_json(msg="capabilities must be such as 9.0, and {0!r} is none".format(wrong[0]))
    module.exit_json(changed=False, **checks.with_verdict(prove(params, module.tmpdir)))


def prove(params: Options, temporary: str, runner: toolkit.Runner = run.run) -> Dict[str, object]:
    """Compile and run in a new directory below ``temporary``, and judge; as root only with what is root's."""
    started = time.monotonic()
    refused = toolkit.of_others(params["nvcc"]) if os.geteuid() == 0 else None
    if refused:
        return {"seconds": 0.0, "checks": [refused]}
    folder = tempfile.mkdtemp(prefix="gpuwright-toolkit-", dir=temporary)
    try:
        question = toolkit.Question(
            params["nvcc"], params["capabilities"], params["known"], params["expected_gpus"], params["timeout"]
        )
        found: List[Check] = toolkit.prove(question, folder, runner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"seconds": round(time.monotonic() - started, 2), "checks": found}


if __name__ == "__main__":
    main()
