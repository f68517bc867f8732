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
    The rules are part of the collection, no network is needed.
  - An answer of C(false) does not fail the task. A name or version that does not exist does, and the message says what exists.
options:
  driver_version:
    description:
      - A driver branch such as V(580), or a build such as V(580.95.05).
      - A branch is taken for its newest build. With a build the floors of toolkit and card are compared with exactly that one.
      - Quote it. YAML reads V(580.10) without quotes as the number 580.1.
    type: str
    required: true
  cuda_version:
    description:
      - A CUDA version such as V(12.8) or V(12.8.1). For a major version alone its first minor version is taken.
      - Quote it. YAML reads V(12.10) without quotes as the number 12.1.
      - CUDA 12.7 was never released, though drivers of branch 565 report it; it fails the task.
    type: str
    required: true
  gpus:
    description:
      - Names of cards as people write them, such as V(H100) or V(RTX 4090). All of them have to be served.
      - Without any only driver and CUDA are compared. Forward compatibility depends on the cards and is not considered then.
    type: list
    elements: str
    default: []
notes:
  - Supports C(check_mode).
  - The CUDA version that C(nvidia-smi) prints is the newest that the driver brings in full, not an installed toolkit.
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Hold the driver against CUDA 12.8
  gpuwright.node.cuda_compat:
    driver_version: "535.104.05"
    cuda_version: "12.8"
    gpus: [A100]
  register: compat

- name: Stop where it does not fit
  ansible.builtin.assert:
    that: compat.compatible
    fail_msg: "{{ compat.reasons | map(attribute='text') | join('; ') }}"

- name: Ask for the driver that a host has now
  gpuwright.node.cuda_compat:
    driver_version: "{{ nvidia_driver_now }}"
    cuda_version: "13.0"
    gpus: "{{ gpu_names }}"
  register: next_major

- name: Install what lets data-centre cards run it without a new driver
  ansible.builtin.apt:
    name: "{{ next_major.package }}"
  when: next_major.mode == 'forward'

- name: Start only this program with it, never the whole machine
  ansible.builtin.command: /opt/train/run
  environment:
    LD_LIBRARY_PATH: /usr/local/cuda-13.0/compat
  when: next_major.mode == 'forward'
"""

RETURN = r"""
compatible:
  description: Whether this driver runs this CUDA version on every card.
  type: bool
  returned: always
  sample: true
mode:
  description:
    - V(native), the driver brings the whole version.
    - V(minor-version), it brings an older one of the same major version. What is new since, and PTX of the newer compiler, do not work.
    - V(forward), it is of an older major version, and only the package cuda-compat on data-centre cards lets it run this one.
    - V(none), it does not run it, or one of the two does not serve a card.
  type: str
  returned: always
  sample: forward
package:
  description: The package that forward compatibility needs; null in every other mode.
  type: str
  returned: always
  sample: cuda-compat-13-0
reasons:
  description: Why, each with C(rule), C(text) and C(source).
  type: list
  elements: dict
  returned: always
  sample:
    - rule: cuda.forward
      text: cuda-compat-13-0 lets data-centre cards run CUDA 13.0 on branch 535
      source: "compat/cuda.yaml: forward compatibility"
"""
