#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: dnf_transaction
short_description: Install exactly these packages and remove exactly those, in one transaction of dnf
version_added: "0.1.0"
description:
  - Brings packages to exact versions, newer or older, and takes others away, in one transaction.
  - Nothing is changed where other packages would go too, where a version is nowhere to be had, or where a signature is bad.
  - Works with dnf's own library under the system's Python, also where Ansible runs under another one. No plugin of dnf is loaded, so a
    version lock is not in the way.
  - A repository that does not answer is left out; where it alone has what was named, nothing is changed.
options:
  install:
    description: Versions with their epoch, as rpm tells them (none where it is 0), by the name of the package.
    type: dict
    default: {}
  files:
    description: Files of packages of O(install), by name. The others come from the repositories of the machine.
    type: dict
    default: {}
  remove:
    description: Names of packages that go. A name with version and architecture is that one alone.
    type: list
    elements: str
    default: []
  may_take:
    description: Names of packages that may go too, or to older versions, where the transaction takes that.
    type: list
    elements: str
    default: []
  duplicates:
    description: Names of packages that an update that was cut off left in two versions. The older one goes, and the newer one comes again.
    type: list
    elements: str
    default: []
  streams:
    description: Module streams that are to be enabled, by module. With an empty stream the module is reset.
    type: dict
    default: {}
  timeout:
    description: Seconds until everything is fetched. The transaction itself has no limit, for it must not be cut.
    type: float
    default: 3600
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Resolves the transaction, and says what would be refused, without changing anything.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Go back to an older driver
  gpuwright.node.dnf_transaction:
    install:
      nvidia-driver-cuda: 3:580.126.20-1.el9
      nvidia-driver-cuda-libs: 3:580.126.20-1.el9
    remove: [nvidia-imex]
    streams:
      nvidia-driver: 580-open
"""

RETURN = r"""
installed:
  description: Packages that came, with version and architecture.
  returned: success
  type: list
  elements: str
  sample: [nvidia-driver-cuda-580.126.20-1.el9.x86_64]
removed:
  description: Packages that went, without those that gave way to another version.
  returned: success
  type: list
  elements: str
  sample: []
others:
  description: Packages that were not named and would go too.
  returned: where the transaction is refused
  type: list
  elements: str
  sample: [somebody-elses]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import package_log
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_python, recording
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals

_REMEDY = "What to do: correct what is named (dnf check, dnf repolist), then run again. Nothing was changed."


def carried_out(install: list[str], asked: dict[str, object], timeout: float) -> dnf_python.Outcome:
    """Carry it out, with a record of what it brings: a trial brings nothing."""
    if asked["trial"]:
        return dnf_python.carry_out(asked, timeout)
    with recording.recorded(Host, install) as outcome:
        answer = dnf_python.carry_out({**asked, "comment": package_log.comment(outcome.mark)}, timeout)
        outcome.went_well = "installed" in answer
    return answer


def main() -> None:
    """Read the options, carry them out, answer."""
    module = AnsibleModule(
        argument_spec={
            "install": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "remove": {"type": "list", "elements": "str", "default": []},
            "may_take": {"type": "list", "elements": "str", "default": []},
            "duplicates": {"type": "list", "elements": "str", "default": []},
            "streams": {"type": "dict", "default": {}},
            "timeout": {"type": "float", "default": 3600},
        },
        supports_check_mode=True,
    )
    given = dict(module.params)
    try:
        asked = {**given, "trial": module.check_mode}
        answer = carried_out(list(given["install"]), asked, given["timeout"])
    except seals.SealError as exc:
        module.fail_json(msg=str(exc))
    if answer.get("failed"):
        module.fail_json(msg="Expected dnf to end its transaction. Found: {0}".format(answer["failed"]))
    if answer.get("refused"):
        words = "Expected dnf to change exactly what was named. Found: {0}. {1}".format(answer["refused"], _REMEDY)
        module.fail_json(msg=words, others=answer["others"])
    changed = bool(answer["installed"] or answer["removed"] or given["streams"])
    module.exit_json(changed=changed, installed=answer["installed"], removed=answer["removed"])


if __name__ == "__main__":
    main()
