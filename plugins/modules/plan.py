# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: plan
short_description: Observe a node and plan its way to the wished state
version_added: "0.1.0"
description:
  - Runs M(gpuwright.node.node_facts) on the node, resolves the wished stack on the controller, and compares the two.
  - Where a package has to change, the exact versions come from the node's own package index by
    M(gpuwright.node.package_index). Nothing on the node is changed.
  - The wish is read from the variables of the host (for example C(nvidia_driver_branch), C(cuda_versions),
    C(frameworks_wanted)), all of them optional.
  - With the variable C(gpuwright_lock), the path of a lock on the controller or its content, the host is held to exactly the versions
    that C(gpuwright resolve --lock) wrote, or fails with what differs.
  - In check mode the task is C(changed) when the plan is not empty, and C(--diff) shows the plan.
  - A host that cannot go on fails here, with every reason and its remedy as the message.
  - The result holds what roles act on. The whole plan, with the checks and the reason of each decision, lies as
    C(plans/<host>.json) in the run directory (variable C(gpuwright_run_dir)), packed as C(.json.gz) where the host stays as it is.
options:
  verb:
    description:
      - What is planned, where it is another verb than that of the run (variable C(gpuwright_verb)). With C(rollback) the way back to the
        driver that worked before.
    type: str
    choices: [up, plan, upgrade, rollback, remove, validate, doctor]
  components:
    description:
      - Plan these components only, by the names of their roles, for a role that is used alone; an empty list means all of them. The task
        then fails only where the plan cannot be carried out, and not where the node is not healthy.
    type: list
    elements: str
seealso:
  - module: gpuwright.node.node_facts
  - module: gpuwright.node.package_index
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Plan
  gpuwright.node.plan:
  register: gpuwright_plan

- name: Show what would change
  ansible.builtin.debug:
    var: gpuwright_plan.changes
"""

RETURN = r"""
ok:
  description: Whether the plan can be carried out.
  type: bool
  returned: always
error:
  description: Bad input, as one sentence.
  type: str
  returned: always
conflicts:
  description: Why the wish cannot be met, each with a rule, a sentence, its source and a remedy.
  type: list
  elements: dict
  returned: always
refusals:
  description: What has to be mended before the first change.
  type: list
  elements: dict
  returned: always
changes:
  description:
    - The changes, each with C(component), C(action), C(from), C(to), C(reason), C(packages), C(wheels), C(files), C(services), and
      C(leaves), the packages that go for it.
  type: list
  elements: dict
  returned: always
components:
  description: The components that have to be applied, in their order.
  type: list
  elements: str
  returned: always
owner:
  description: The run that plans, as the lock on the node names it.
  type: str
  returned: always
takes_over:
  description: The dead run of this controller whose lock is still on the node; nothing where there is none.
  type: str
  returned: always
begin:
  description: The mark of each component that changes, by its name; it takes the place of the seal until the change is done.
  type: dict
  returned: always
stack:
  description: The resolved stack.
  type: dict
  returned: always
way_back:
  description: Whether the node can return to a driver that worked, should the change of the driver fail.
  type: bool
  returned: always
remember:
  description: The driver that works before a change of it, for the way back; nothing where the driver does not change or none works.
  type: dict
  returned: always
gave_way:
  description: The driver that the node returns from, with the reason and the time, or nothing.
  type: dict
  returned: always
remove:
  description:
    - What taking everything back does, with C(packages), C(kept), C(runfile), C(files), C(environments), C(services), C(streams), C(mig),
      C(docker), C(containerd), C(rootless), C(initramfs), C(gpu_settings), C(python), C(cuda_default), C(cuda_toolkits),
      C(cuda_archives), C(monitoring_firewall), C(fabric_firewall) and C(restore), or nothing.
  type: dict
  returned: always
restore:
  description:
    - What returning to a remembered driver takes, with C(version), C(source), C(packages), C(files), C(install), C(remove), C(hold),
      C(unhold) and C(streams), or nothing.
  type: dict
  returned: always
work:
  description: What each component does first, by its name; see C(plugin_utils/model/work.py).
  type: dict
  returned: always
package_manager:
  description: The node's package manager, C(apt) or C(dnf); nothing where it has neither.
  type: str
  returned: always
package_family:
  description: The family of the node's system by its packages, C(debian) or C(redhat); nothing where it is of neither.
  type: str
  returned: always
packages:
  description: Exact version by package name.
  type: dict
  returned: always
install:
  description: What the package manager would install, each with C(name) and C(version).
  type: list
  elements: dict
  returned: always
takes:
  description:
    - What the package manager takes away for the plan, each with C(name), C(does), C(from), C(to) and C(because), which is null where the
      plan is refused for it.
  returned: always
  type: list
  elements: dict
  sample: []
may_take:
  description: Names of packages that a transaction may remove, take to an older version, or change though they are on hold.
  returned: always
  type: list
  elements: str
  sample: [libcuda1]
from_controller:
  description:
    - The file on the controller that the driver comes from. It is the variable C(nvidia_driver_runfile) of this very run, where that is no
      address, and nothing otherwise.
  type: str
  returned: always
prefer:
  description:
    - How versions begin that apt has to be told to prefer to newer ones. Nothing but where the driver is to be of a build that is not the
      newest of its branch.
  type: str
  returned: always
reboot:
  description: Whether the node has to boot again.
  type: bool
  returned: always
rescue:
  description: What helps a person where the screen stays black after that boot, line by line.
  type: list
  elements: str
  returned: always
download_bytes:
  description: Size of the packages and of the pinned wheels to download, in bytes.
  type: int
  returned: always
left_alone:
  description: Why nothing at all is done on the host (it has no NVIDIA GPU and none is expected), or nothing.
  type: str
  returned: always
verdict:
  description: One of C(pass), C(fail), C(incomplete), C(skip).
  type: str
  returned: always
"""
