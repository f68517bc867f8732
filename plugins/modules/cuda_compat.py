# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: cuda_compat
short_description: Check that a driver runs a CUDA version on some cards
version_added: "0.1.0"
description:
  - Answers from this collection's rules whether an NVIDIA driver runs a CUDA version, how, and whether both serve the
    cards named. Every reason carries its source.
  - Runs on the controller. No connection to the host is opened and nothing is changed; the answer is the same in check mode.
  - An answer of C(false) does not fail the task. A name or version that does not exist does, and the message says what exists.
options:
  driver_version:
    description: A driver branch such as V(580), or a build such as V(580.95.05).
    type: str
    required: true
  cuda_version:
    description: A CUDA version such as V(12.8) or V(12.8.1). For a major version alone its first minor version is taken.
    type: str
    required: true
  gpus:
    description: Names of cards as people write them, such as V(H100) or V(RTX 4090). Without any only driver and CUDA are compared.
    type: list
    elements: str
    default: []
notes:
  - Supports C(check_mode).
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Hold the driver against CUDA 12.8
  gpuwright.node.cuda_compat:
    driver_version: 535.104.05
    cuda_version: "12.8"
    gpus: [A100]
  register: compat

- name: Stop where it does not fit
  ansible.builtin.assert:
    that: compat.compatible
    fail_msg: "{{ compat.reasons | map(attribute='text') | join('; ') }}"
"""

RETURN = r"""
compatible:
  description: Whether this driver runs this CUDA version on every card.
  type: bool
  returned: always
mode:
  description:
    - V(native), the driver brings the whole version; V(minor-version), it brings an older one of the same major version.
    - V(forward), only with the package cuda-compat on data-centre cards; V(none).
  type: str
  returned: always
reasons:
  description: Why, each with C(rule), C(text) and C(source).
  type: list
  elements: dict
  returned: always
"""
