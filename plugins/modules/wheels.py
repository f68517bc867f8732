#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: wheels
short_description: Install wheels into a virtual environment
version_added: "0.1.0"
description:
  - Brings an environment to hold requirements, or exactly the wheels of a lock. Only wheels are installed. No code of a source runs.
  - Each package has one index that it may come from. An index that is named takes the place of those of the host's pip.
  - Of the host's pip configuration only the machine's own counts (C(/etc/pip.conf)), not a user's file or variables such as
    E(PIP_INDEX_URL).
  - User and password of an index are those of the variables that named the mirrors (C(gpuwright_mirrors)), unless O(credentials) is
    given.
  - It goes by the proxy of the node, that of the task's variables (E(https_proxy)), of apt or of dnf.
  - What installs is uv where O(uv) names one and it can do the same as pip, else the pip of the environment. Left to pip are what has to be
    built from a source, an environment that has something already, an index in a directory, and settings of the host's pip that uv does
    not know.
  - Writes C(gpuwright-wheels.txt) into the environment, which says with hashes what it is made of.
  - While uv downloads, the file C(progress) in its directory has two numbers, the bytes that came and those of all.
options:
  environment:
    description: Directory of the virtual environment.
    type: path
    required: true
  requirements:
    description: What pip is asked for.
    type: list
    elements: str
    required: true
  constraints:
    description: What pip is held to besides. Not read where O(wheels) is given.
    type: list
    elements: str
    default: []
  wheels:
    description: Everything that may be installed, with its hashes. Empty leaves it to pip what the requirements need.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the distribution.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      sha256:
        description: SHA-256 of each file that it may come as.
        type: list
        elements: str
        required: true
  index_url:
    description: Index of the requirements and of what they need. Without it, the one that the host's pip is configured for.
    type: str
  dependencies_url:
    description:
      - Index of what the requirements need, where that is another one. The requirements themselves never come from it.
      - An empty text is the one that the host's pip is configured for.
    type: str
  from_source:
    description: Names of distributions that are built from their source all the same. This runs code of theirs.
    type: list
    elements: str
    default: []
  pip:
    description:
      - Version that the environment's own pip is brought to first where it is older, from O(dependencies_url). On Python 3.8, for
        which there is none newer, V(25.0) is enough.
    type: str
  record:
    description: Whether C(gpuwright-wheels.txt) is written. It takes a pip of version 22.2 or newer.
    type: bool
    default: true
  uv:
    description:
      - The uv that is tried first. It comes as a wheel from O(dependencies_url), else from the index of the host's pip.
      - Without it pip installs.
    type: dict
    suboptions:
      version:
        description: Its version, the one that is known to do the same as pip.
        type: str
        required: true
      sha256:
        description: SHA-256 of each wheel that it may come as.
        type: list
        elements: str
        required: true
      directory:
        description:
          - Directory in which it lies, with what it downloads. It is made, for root alone, and best on the file system of the environment.
          - One that is not absolute is beside the environment.
          - What is there is gone on with where an installation was cut off; M(gpuwright.node.environment_build) takes C(.uv) away.
        type: str
        required: true
  owner:
    description:
      - The run that this belongs to, as M(gpuwright.node.node_seal) took the node for it. It is held meanwhile, however long this takes;
        where another run has it, nothing is done.
      - In a play of this collection it is read from the variable C(gpuwright_plan).
    type: str
extends_documentation_fragment:
  - gpuwright.node.gate
  - gpuwright.node.credentials
attributes:
  check_mode:
    description: Says whether an environment is made of O(wheels).
    details: Without them it says nothing, for what pip would take is not known.
    support: partial
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Install PyTorch
  gpuwright.node.wheels:
    environment: /opt/gpuwright/pytorch
    requirements: [torch==2.14.1+cu130]
    index_url: "{{ mirrors.pytorch }}/cu130"
    dependencies_url: "{{ mirrors.pypi }}"
"""

RETURN = r"""
builder:
  description: What installed it, V(uv) or V(pip).
  returned: success, where anything was not as it was to be
  type: str
  sample: uv
declined:
  description: Why it was pip and not uv; empty where it was uv.
  returned: where RV(builder) is returned
  type: str
  sample: "uv 0.13.9 could not be had from the index of the host: ERROR: No matching distribution found for uv==0.13.9"
as_locked:
  description: Whether the environment is made of O(wheels) and of nothing else that is known.
  returned: check mode
  type: bool
  sample: true
gave_up:
  description: Whether pip ended by itself, so that nothing is left half done.
  returned: failure
  type: bool
  sample: true
installed:
  description: What was installed now, by name and version. Empty where everything was there already, or where nothing is recorded.
  returned: success
  type: list
  elements: str
  sample: [torch==2.14.1+cu130, filelock==4.2.11]
"""

from typing import cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.packages import uv, wheels
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals


def main() -> None:
    """Read the options, install, answer."""
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "requirements": {"type": "list", "elements": "str", "required": True},
            "constraints": {"type": "list", "elements": "str", "default": []},
            "wheels": wheels.OPTION,
            "index_url": {"type": "str"},
            "dependencies_url": {"type": "str"},
            "credentials": redact.OPTION,
            "from_source": {"type": "list", "elements": "str", "default": []},
            "pip": {"type": "str"},
            "record": {"type": "bool", "default": True},
            "owner": {"type": "str"},
            "uv": {
                "type": "dict",
                "options": {
                    "version": {"type": "str", "required": True},
                    "sha256": {"type": "list", "elements": "str", "required": True},
                    "directory": {"type": "str", "required": True},
                },
            },
        },
        supports_check_mode=True,
    )
    options = cast("wheels.Options", {**module.params, "credentials": redact.taken(module)})
    if module.check_mode:
        known = bool(options["wheels"])
        as_locked = known and wheels.as_locked(options)
        module.exit_json(changed=known and not as_locked, installed=[], as_locked=as_locked)
    try:
        with run_lock.at_work(Host(places=paths.of_caller()), module.params["owner"]):
            answer = wheels.install(options, other=uv.install if options["uv"] else wheels.pip_alone)
    except seals.SealError as exc:
        module.fail_json(msg=str(exc))
    except wheels.PipError as exc:
        module.fail_json(msg=str(exc), gave_up=exc.gave_up)
    except OSError as exc:
        module.fail_json(
            msg="Expected to write to {0}. Found: {1}. What to do: run as root.".format(
                module.params["environment"], exc
            )
        )
    else:
        module.exit_json(**answer)


if __name__ == "__main__":
    main()
