#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: framework_check
short_description: Prove that a deep-learning framework computes in its environment
version_added: "0.1.0"
description:
  - Runs the interpreter of an environment, imports the framework there, asks it for the cards and multiplies matrices on each
    (PyTorch computes a convolution too, for which cuDNN loads its parts; DALI, which has no product of matrices, sums them; CuPy compiles
    the kernel that multiplies them, vLLM normalises one by a kernel of its own, and LMDB, which no card is for, reads one from mapped
    memory).
  - Where it does not work and E(LD_LIBRARY_PATH), E(LD_PRELOAD) or E(LD_AUDIT) is set, it is asked once more without; where it works
    then, the variable is the cause that is told.
  - As root it imports the framework a second time as an ordinary user, since root gets into directories that are closed to those who work
    with it (C(framework.user)).
  - It looks at every file that pip installed there, by the RECORD of each distribution (C(framework.files)).
  - A framework that does not work is no failure of the module; read the returned checks.
  - As root it runs nothing that another user may change, the interpreter or anything in its environment, and says so in an incomplete
    check.
options:
  name:
    description: The framework.
    type: str
    choices: [pytorch, tensorflow, jax, dali, onnxruntime, cupy, vllm, lmdb]
    default: pytorch
  python:
    description: Interpreter of the environment, such as V(/opt/gpuwright/pytorch/bin/python).
    type: path
    required: true
  expected_version:
    description: The version that must be there. Without a build tag such as C(+cu130) the tag is not looked at.
    type: str
  expect_cuda:
    description: Whether it must find cards. V(false) where the framework runs on the processor.
    type: bool
    default: true
  expected_gpus:
    description: How many cards it must find. Without it one is enough.
    type: int
  kernel:
    description:
      - Directory of the environment's Jupyter kernel. It is started by its name, imports the framework and calculates
        (C(framework.kernel)); as root it is started by an ordinary user.
    type: path
  timeout:
    description: Seconds after which it counts as hanging. The first import from a slow disk takes a minute and more.
    type: int
    default: 300
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
- name: Prove PyTorch
  gpuwright.node.framework_check:
    python: /opt/gpuwright/pytorch/bin/python
    expected_version: 2.14.1
    expected_gpus: 8

- name: Prove JAX on the processor
  gpuwright.node.framework_check:
    name: jax
    python: /opt/gpuwright/jax/bin/python
    expect_cuda: false
"""

RETURN = r"""
version:
  description: Version that was imported.
  returned: when it could be imported
  type: str
  sample: 2.14.1+cu130
cuda:
  description: CUDA version that it says it runs with or was built for; JAX without cards tells only the major version.
  returned: when it was built with CUDA
  type: str
  sample: "13.0"
cudnn:
  description: Version of the cuDNN that it has loaded.
  returned: when it has loaded one
  type: str
  sample: 9.24.0
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 6.2
checks:
  description: The judgement.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "framework.import", "status": "pass", "severity": "critical"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils import frameworks
from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework, jupyter
from ansible_collections.gpuwright.node.plugins.module_utils.observe import python_envs

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Options(TypedDict):
    """The options of the module."""

    name: str
    python: str
    expected_version: Optional[str]
    expect_cuda: bool
    expected_gpus: Optional[int]
    kernel: Optional[str]
    timeout: int


class Answer(TypedDict):
    """What the module always answers, without the verdict."""

    seconds: float
    checks: List[Check]


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": frameworks.DEFAULT, "choices": sorted(frameworks.ABOUT)},
            "python": {"type": "path", "required": True},
            "expected_version": {"type": "str"},
            "expect_cuda": {"type": "bool", "default": True},
            "expected_gpus": {"type": "int"},
            "kernel": {"type": "path"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg="timeout must be at least 1 second")
    module.exit_json(changed=False, **checks.with_verdict(prove(module.params)))


def prove(
    params: Options,
    ask: Callable[..., Any] = framework.ask,
    ask_as_user: Callable[[str, str, float], Any] = framework.ask_as_user,
) -> Dict[str, object]:
    """Run the framework and judge; ``ask`` is what runs it. Only what is root's or the own user's is run; by root once more as a user."""
    refused = framework.of_others(params["python"], ownership.trusted())
    if refused:
        return {"seconds": 0.0, "checks": [refused]}
    answer = ask(params["python"], params["name"], params["timeout"])
    result: Answer = {"seconds": round(answer.seconds, 2), "checks": _judged(answer, params)}
    loader = framework.loader_variables()
    if loader and not framework.is_sound(result["checks"]):
        plain = ask(params["python"], params["name"], params["timeout"], without=loader)
        result["seconds"] = round(answer.seconds + plain.seconds, 2)
        if framework.is_sound(_judged(plain, params)):
            result["checks"] = framework.of_loader(result["checks"], loader)
    if os.geteuid() == 0 and result["checks"][0]["status"] == "pass":
        as_user = ask_as_user(params["python"], params["name"], params["timeout"])
        result["checks"].append(framework.judge_user(params["name"], params["python"], as_user))
        result["seconds"] = round(result["seconds"] + as_user.seconds, 2)
    kernel = params.get("kernel")
    if kernel and result["checks"][0]["status"] == "pass":
        started = jupyter.ask(params["python"], params["name"], kernel, params["timeout"])
        result["checks"].append(jupyter.judge(params["name"], kernel, started))
        result["seconds"] = round(result["seconds"] + started.seconds, 2)
    path = pathlib.Path(params["python"]).parent.parent
    if (path / "pyvenv.cfg").exists():  # what the system's own Python has is its package manager's
        # A proof looks at every file; who may enter was asked above.
        damage = python_envs.lost(Host(full=True), str(path))
        result["checks"].append(framework.judge_files(str(path), damage))
    return {**result, **framework.versions_of(answer.out)}


def _judged(answer: Any, params: Options) -> List[Check]:
    return framework.judge(
        params["name"],
        params["python"],
        answer,
        params["expected_version"],
        params["expect_cuda"],
        params["expected_gpus"],
    )


if __name__ == "__main__":
    main()
