#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_index
short_description: Ask apt or dnf what it would install from repositories that are not configured yet
version_added: "0.1.0"
description:
  - Answers which versions of packages are to be had, what installing them would bring and remove, and how much that is.
  - Works in a private temporary directory. The machine's lists, caches, logs and locks stay as they are.
  - The key of each repository is checked against its fingerprint before the repository is asked.
options:
  repositories:
    description:
      - Repositories to ask beside those of the machine, each with C(name), C(uris), C(suites), C(components) and either C(key)
        (with C(url), C(fingerprint), C(path)) or C(signed_by). For dnf also C(signed), V(packages) or V(index).
    type: list
    elements: dict
    default: []
  packages:
    description: Names of packages, each also as C(name=version).
    type: list
    elements: str
    default: []
  also:
    description: Names of packages whose versions are told too (in C(others)), as what there is instead. Nothing of them is installed.
    type: list
    elements: str
    default: []
  builders:
    description:
      - Ids of repositories of this machine that are not enabled. dnf is asked with them where it finds no way without them; apt is not.
    type: list
    elements: str
    default: []
  keep:
    description: How the versions of packages have to begin, by name, such as C(580.).
    type: dict
    default: {}
  origin:
    description:
      - Addresses of the repository that the versions of C(/./) in O(keep) come from, where another one has packages of the same names in
        such versions too. Empty, each may answer for them. dnf is not told.
    type: list
    elements: str
    default: []
  replaced:
    description:
      - Packages that are there and give way to O(packages), which come from another source. What comes is asked for as if they were not
        there; those of them that do not come again leave. dnf is not told.
    type: list
    elements: str
    default: []
  files:
    description: Files of packages on this machine that come with O(packages), by name. What they take away is told too.
    type: dict
    default: {}
  leaves:
    description: Names of packages that go as O(packages) and O(files) come.
    type: list
    elements: str
    default: []
  install_recommends:
    description: Whether recommended packages count too.
    type: bool
    default: false
  timeout:
    description: Seconds for everything together.
    type: float
    default: 90
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
- name: Ask for the versions of the driver
  gpuwright.node.package_index:
    repositories: "{{ gpuwright_plan.stack.repositories }}"
    packages: "{{ gpuwright_plan.stack.driver.packages }}"
    keep:
      nvidia-driver-cuda: "580."
  register: index
"""

RETURN = r"""
packages:
  description: Candidate and versions of each package that is known, by name. The candidate is what would be installed.
  returned: success
  type: dict
  sample:
    hello:
      candidate: 2.10-3
      versions: [2.10-3]
others:
  description: Versions of the packages named in O(also) that are known, newest first, by name.
  returned: success
  type: dict
  sample: {}
install:
  description: What would be installed, each with C(name), C(version), C(from), C(download_bytes) and C(installed_bytes).
  returned: success
  type: list
  elements: dict
  sample: []
removes:
  description: Packages that would be removed, each with C(name) and C(version).
  returned: success
  type: list
  elements: dict
  sample: []
downgrades:
  description: Names of those packages of RV(install) that would go to an older version.
  returned: success
  type: list
  elements: str
  sample: []
download_bytes:
  description: Bytes to download. Null when it is not known.
  returned: success
  type: int
  sample: 53132
disk_bytes:
  description: Bytes more on disk afterwards. Null when it is not known.
  returned: success
  type: int
  sample: 290816
enabled:
  description: Ids of those of O(builders) without which dnf would find no way to install the packages. Empty with apt.
  returned: success
  type: list
  elements: str
  sample: []
exchange:
  description:
    - For O(replaced), C(comes), every package of the new set with its version, and C(leaves), the names of those that do not come again.
      Installing the one and removing the other is one call of C(apt-get install). Null without O(replaced).
  returned: success
  type: dict
  sample: null
problems:
  description:
    - Why the answer is not complete, each with C(kind), C(repository), C(text), C(remedy), C(package), C(needed), which is false for a
      source of somebody else from which nothing would come, and C(source), the id of such a source in dnf.
    - The kinds are C(broken-source), C(hidden) (by a pin, an exclusion or a module stream of the machine's own), C(unreachable),
      C(bad-signature), C(wrong-key), C(timeout), C(no-such-package), C(unsolvable) and C(lock).
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from ansible_collections.gpuwright.node.plugins.module_utils.packages import private_apt, private_dnf


def main() -> None:
    """Read the options, ask, answer."""
    module = AnsibleModule(
        argument_spec={
            "repositories": {"type": "list", "elements": "dict", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
            "also": {"type": "list", "elements": "str", "default": []},
            "builders": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "dict", "default": {}},
            "origin": {"type": "list", "elements": "str", "default": []},
            "replaced": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "dict", "default": {}},
            "leaves": {"type": "list", "elements": "str", "default": []},
            "install_recommends": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 90},
            "credentials": redact.OPTION,
        },
        supports_check_mode=True,
    )
    credentials = redact.taken(module)
    given = module.params
    for repository in given["repositories"]:
        if not repository.get("name") or not repository.get("uris"):
            module.fail_json(
                msg="Each repository needs a name and uris; found {0}.".format(redact.document(repository))
            )
    manager = packages.manager(Host())
    if manager is None:
        module.fail_json(msg="This machine has neither dpkg nor rpm. The module asks apt or dnf.")
    own = ("builders",) if manager == "dnf" else ("origin", "replaced")
    answer = (private_dnf if manager == "dnf" else private_apt).ask(
        given["repositories"],
        given["packages"],
        given["keep"],
        given["timeout"],
        given["install_recommends"],
        also=given["also"],
        credentials=credentials,
        files=given["files"],
        leaves=given["leaves"],
        **{name: given[name] for name in own},
    )
    module.exit_json(changed=False, **redact.document(answer))


if __name__ == "__main__":
    main()
