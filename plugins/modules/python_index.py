#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: python_index
short_description: Ask the Python index of a node which wheels of pinned versions are there
version_added: "0.2.0"
description:
  - Answers for each pinned requirement which of its wheels an interpreter of the node can take, how large they are, and which other
    versions are there.
  - It asks what M(gpuwright.node.wheels) would install from, which are the indexes that are named, else those of the machine's own pip
    (C(/etc/pip.conf)), and in both cases its C(find-links). Variables such as E(PIP_INDEX_URL) and a user's file count for neither.
  - User and password of an index are those of O(credentials), or those in the machine's own configuration. No answer has them.
  - It goes by the proxy of the node, that of the task's variables (E(https_proxy)), of apt or of dnf.
  - What does not answer is told, and is no failure.
  - For each of O(trials) it has uv say whether all that an environment is asked for can be met together, from the metadata that the indexes
    have. Nothing is installed and no source is built; uv is fetched into a temporary directory, and goes with it.
options:
  questions:
    description: The pinned requirements. What these depend on is not asked for.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the distribution.
        type: str
        required: true
      version:
        description: Its version. With a local version (C(+cu130)) only that one is meant, without it any.
        type: str
        required: true
      interpreter:
        description: Version of the Python that it is for, a key of O(tags).
        type: str
        required: true
      urls:
        description: Indexes that it may come from. Empty, those that the machine's own pip is configured for.
        type: list
        elements: str
        default: []
      source:
        description: Whether it is built from its source instead.
        type: bool
        default: false
  tags:
    description: The tags of wheels that each interpreter takes, by its version, best first.
    type: dict
    required: true
  timeout:
    description: Seconds for everything together.
    type: float
    default: 60
  trials:
    description: Environments whose requirements are tried together.
    type: list
    elements: dict
    default: []
    suboptions:
      environment:
        description: The environment, for the answer.
        type: str
        required: true
      python:
        description: The whole version of its Python.
        type: str
        required: true
      requirements:
        description: All that it is asked for.
        type: list
        elements: str
        required: true
      constraints:
        description: What holds for whatever it gets.
        type: list
        elements: str
        default: []
      urls:
        description: Indexes of all that it gets. An empty text is that of the machine's own pip, and none at all is that too.
        type: list
        elements: str
        default: []
      tools:
        description: Index that uv comes from. Without it, that of the machine's own pip.
        type: str
      built:
        description: Names of distributions that are built from their source, and so are not looked for.
        type: list
        elements: str
        default: []
  uv:
    description: The uv that tries O(trials), which it needs.
    type: dict
    suboptions:
      version:
        description: Its version.
        type: str
        required: true
      sha256:
        description: SHA-256 of each wheel that it may come as.
        type: list
        elements: str
        required: true
extends_documentation_fragment:
  - gpuwright.node.gate
  - gpuwright.node.credentials
attributes:
  check_mode:
    description: Runs in check mode without changing anything.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Ask for the wheel of PyTorch
  gpuwright.node.python_index:
    questions:
      - name: torch
        version: 2.14.1+cu130
        interpreter: "3.13"
        urls: ["{{ mirrors.pytorch }}/cu130"]
    tags:
      "3.13": [cp313-cp313-manylinux_2_28_x86_64, py3-none-any]
  register: index
"""

RETURN = r"""
answers:
  description:
    - What there is, in the order of O(questions), each with C(name), C(version), and C(places), the addresses that were asked.
    - C(fits) has the files of the version that the interpreter takes, best first, each with C(name), C(version), C(size) in bytes,
      C(sha256), C(yanked) and C(requires_python). What the index does not say is null.
    - C(unfit) has the names of its other wheels, C(others) the other versions of which a wheel fits, each with C(version) and
      C(requires_python), newest first, and C(problems) why a place did not answer; C(denied) are those that ask for
      another user or password, or forbid it.
  returned: success
  type: list
  elements: dict
  sample:
    - name: torch
      version: 2.14.1+cu130
      places: ["https://mirror.example/pytorch/cu130"]
      fits:
        - name: torch-2.14.1+cu130-cp313-cp313-manylinux_2_28_x86_64.whl
          version: 2.14.1+cu130
          size: 612345678
          sha256: null
          yanked: false
          requires_python: ">=3.10"
      unfit: []
      others:
        - version: 2.14.0+cu130
          requires_python: ">=3.10"
      problems: []
      denied: []
trials:
  description:
    - What came of O(trials), in their order, each with C(environment), and C(problem) why it could not be tried, null where it could.
    - C(clash) says in uv's words why there is no answer, null where there is one. C(sources) has what is there as a source only, for this
      Python and machine, each with C(name) and C(words), why it is needed.
  returned: success
  type: list
  elements: dict
  sample:
    - environment: /opt/gpuwright/project
      problem: null
      clash: null
      sources: []
"""

from typing import cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import python_index, python_trial

QUESTION: dict[str, object] = {
    "name": {"type": "str", "required": True},
    "version": {"type": "str", "required": True},
    "interpreter": {"type": "str", "required": True},
    "urls": {"type": "list", "elements": "str", "default": []},
    "source": {"type": "bool", "default": False},
}
TRIAL: dict[str, object] = {
    "environment": {"type": "str", "required": True},
    "python": {"type": "str", "required": True},
    "requirements": {"type": "list", "elements": "str", "required": True},
    "constraints": {"type": "list", "elements": "str", "default": []},
    "urls": {"type": "list", "elements": "str", "default": []},
    "tools": {"type": "str"},
    "built": {"type": "list", "elements": "str", "default": []},
}
UV: dict[str, object] = {
    "version": {"type": "str", "required": True},
    "sha256": {"type": "list", "elements": "str", "required": True},
}


def main() -> None:
    """Read the options, ask, answer."""
    module = AnsibleModule(
        argument_spec={
            "questions": {"type": "list", "elements": "dict", "required": True, "options": QUESTION},
            # A thousand for each interpreter: they are left out of the node's syslog, and below of the answer.
            "tags": {"type": "dict", "required": True, "no_log": True},
            "timeout": {"type": "float", "default": 60},
            "credentials": redact.OPTION,
            "trials": {"type": "list", "elements": "dict", "default": [], "options": TRIAL},
            "uv": {"type": "dict", "options": UV},
        },
        supports_check_mode=True,
    )
    options = cast("python_index.Options", {**module.params, "credentials": redact.taken(module)})
    module.params.pop("tags")
    trials, program = module.params["trials"], module.params["uv"]
    for name in ("questions", "trials"):
        module.params[name] = redact.document(module.params[name])
    answers = redact.document(python_index.ask(options))
    tried = python_trial.ask(trials, program, options["credentials"]) if trials and program else []
    module.exit_json(changed=False, answers=answers, trials=redact.document(tried))


if __name__ == "__main__":
    main()
