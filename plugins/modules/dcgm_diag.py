#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_diag
short_description: Run the diagnostic of NVIDIA's DCGM, and judge it
version_added: "0.1.0"
description:
  - Runs C(dcgmi diag) and reads its JSON, of DCGM 2, 3 and 4. Each test of each card is a check, C(dcgm.<test>).
  - An error that the diagnostic tells of is judged by DCGM's own table of errors. A test that was skipped or not run is no pass, and
    neither is one that passed and tells of an error.
  - The cards must be idle, and not in MIG mode. From level 2 on the tests use them wholly, for minutes.
  - Where C(nv-hostengine) does not run, C(dcgmi) is the host engine itself for that time; nothing is started that stays.
  - A card that fails is no failure of the module; read the returned checks.
  - As root it runs no program that another user may change, and says so in an incomplete check.
options:
  level:
    description:
      - Which tests. V(1) looks at the software, in seconds; V(2) adds memory and PCIe, in about two minutes; V(3) adds load, in a
        quarter of an hour; V(4) adds a long test of the memory, and takes an hour and more.
    type: int
    choices: [1, 2, 3, 4]
    default: 1
  cards:
    description: Numbers of the cards, as C(dcgmi discovery -l) has them. Without it all cards.
    type: list
    elements: int
    default: []
  expected_gpus:
    description: How many cards must have been tested. Without it as many as O(cards) names.
    type: int
  test_seconds:
    description:
      - How long each of the tests runs that load the cards (V(3) has three of them, V(4) four, one after the other). Without it as
        long as DCGM holds right.
    type: int
  timeout:
    description:
      - Seconds after which it counts as hanging and is ended, which may take 40 more. Without it 120, 300, 2700 and 10800 for the four
        levels, and what O(test_seconds) asks for beyond.
    type: int
  required:
    description: Whether DCGM has to be there. With V(false) a machine without C(dcgmi) is skipped.
    type: bool
    default: true
  executable:
    description: The program, by its path or its name.
    type: str
    default: dcgmi
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: It changes nothing, but it loads the cards, so nothing is run in check mode and the check is incomplete.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Test memory and PCIe of eight cards
  gpuwright.node.dcgm_diag:
    level: 2
    expected_gpus: 8

- name: Load the cards for ten minutes a test
  gpuwright.node.dcgm_diag:
    level: 3
    test_seconds: 600
"""

RETURN = r"""
level:
  description: Which tests were asked for.
  returned: always
  type: int
  sample: 2
version:
  description: Version of DCGM.
  returned: when it tells
  type: str
  sample: 4.6.0
seconds:
  description: How long it took.
  returned: always
  type: float
  sample: 96.3
checks:
  description: The judgement, one entry a test and card.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "dcgm.memory", "status": "pass", "severity": "critical", "gpu": "0"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import dcgm_diag, dcgm_diag_judge, dcgm_json

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

_INSTALL = (
    "install DCGM, with the tests for the CUDA major version of the driver: gpuwright up --want monitoring=dcgm, where NVIDIA names it for "
    "the system"
)


class Options(TypedDict):
    """The options of the module."""

    level: int
    cards: List[int]
    expected_gpus: Optional[int]
    test_seconds: Optional[int]
    timeout: Optional[int]
    required: bool
    executable: str


def main() -> None:
    """Read the options, prove, answer."""
    module = AnsibleModule(
        argument_spec={
            "level": {"type": "int", "choices": list(dcgm_diag.LEVELS), "default": 1},
            "cards": {"type": "list", "elements": "int", "default": []},
            "expected_gpus": {"type": "int"},
            "test_seconds": {"type": "int"},
            "timeout": {"type": "int"},
            "required": {"type": "bool", "default": True},
            "executable": {"type": "str", "default": "dcgmi"},
        },
        supports_check_mode=True,
    )
    params = module.params
    for name, least in (("timeout", 1), ("test_seconds", 1), ("expected_gpus", 0)):
        if params[name] is not None and params[name] < least:
            module.fail_json(msg=f"{name} must be at least {least}, and it is {params[name]}")
    if any(card < 0 for card in params["cards"]):
        module.fail_json(
            msg="cards must be numbers of cards, such as 0, and {0} has a negative one".format(params["cards"])
        )
    if module.check_mode:
        found = [checks.incomplete("dcgm.run", "the diagnostic is not run in check mode")]
        module.exit_json(changed=False, **checks.with_verdict(_answer(params, 0.0, found)))
    module.exit_json(changed=False, **checks.with_verdict(prove(params)))


def prove(params: Options, ask: Callable[[Sequence[str], float], Result] = dcgm_diag.ask) -> Dict[str, object]:
    """Run the diagnostic and judge; ``ask`` is what runs it. Only what is root's or the own user's is run."""
    executable = params["executable"]
    path = executable if executable.startswith("/") else Host().which(executable)
    if path is None or not Host().exists(path):
        return _answer(params, 0.0, [_absent(executable, required=params["required"])])
    owners = ownership.trusted()
    found = ownership.offence(path, owners)
    if found is not None:
        remedy = "install DCGM from NVIDIA's packages, and give its directories back to root"
        reason = ownership.refusal(path, found, remedy, owners)
        return _answer(params, 0.0, [checks.incomplete("dcgm.run", reason, action="configure", remedy=remedy)])
    argv = dcgm_diag.command(path, params["level"], params["cards"], params["test_seconds"])
    ended = ask(argv, params["timeout"] or dcgm_diag.time_limit(params["level"], params["test_seconds"]))
    question = dcgm_diag_judge.Question(params["level"], params["cards"], params["expected_gpus"])
    answer = _answer(params, round(ended.seconds, 2), dcgm_diag_judge.judge(question, ended))
    version = dcgm_json.version_of(ended.out)
    return {**answer, "version": version} if version else answer


def _absent(executable: str, *, required: bool) -> Check:
    reason = f"DCGM is not installed on this host: there is no {executable}"
    if not required:
        return checks.skipped("dcgm.run", reason)
    return checks.incomplete("dcgm.run", reason, action="install", remedy=_INSTALL)


def _answer(params: Options, seconds: float, found: List[Check]) -> Dict[str, object]:
    return {"level": params["level"], "seconds": seconds, "checks": found}


if __name__ == "__main__":
    main()
