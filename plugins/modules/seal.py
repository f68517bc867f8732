# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: seal
short_description: Seal what a run brought about on a node, and record its proof
version_added: "0.1.0"
description:
  - With O(state=converged) the node is observed and resolved a second time. When nothing is left to change, the seals of
    the applied components are written; otherwise the task fails with C(did not converge) and what is left.
  - With O(state=proven) the verdict of the checks is recorded on the node and in the run directory, and the lock is released. Of a run that
    failed, what it had come to the end of is sealed by another look.
  - What was planned is read from the run directory (variable C(gpuwright_run_dir)), where M(gpuwright.node.plan) wrote it.
  - Both run mostly on the controller; on the node they use M(gpuwright.node.node_facts) and M(gpuwright.node.node_seal).
  - With O(state=interrupted) the lock is released, and what the run left to go on after the next boot is called off.
  - With O(state=removed) the node is observed once more after everything was taken back; when nothing is left the records go too.
options:
  state:
    description: What to close.
    type: str
    choices: [converged, proven, removed, interrupted]
    required: true
  verb:
    description: What was planned, where it is another verb than that of the run.
    type: str
    choices: [up, upgrade, rollback]
  owner:
    description: Owner of the lock to release, where one was taken.
    type: str
  checks:
    description: The checks of the proof, with O(state=proven).
    type: list
    elements: dict
  measurements:
    description: What the proof measured beside its checks, for the report, with O(state=proven).
    type: dict
  failure:
    description: What failed during the apply, with C(task) and C(message), or nothing.
    type: dict
  returned:
    description: Where the node went back to the driver that worked before, its C(version), and in C(failure) why it did not get there.
    type: dict
  kept:
    description: Packages that stay although they came with gpuwright, with O(state=removed).
    type: list
    elements: str
    default: []
  reboot_pending:
    description: Whether the node still has to boot before it can be proven.
    type: bool
    default: false
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Observe again and seal
  gpuwright.node.seal:
    state: converged
"""

RETURN = r"""
sealed:
  description: The components that were sealed.
  type: list
  elements: str
  returned: with O(state=converged)
measure:
  description: What the proof after it measures, for the role C(validate).
  type: dict
  returned: with O(state=converged)
verdict:
  description: One of C(pass), C(fail), C(incomplete).
  type: str
  returned: with O(state=proven)
summary:
  description: The verdict and its first reason as one sentence.
  type: str
  returned: with O(state=proven)
"""
