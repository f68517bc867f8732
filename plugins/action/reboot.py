# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action ``reboot``: Ansible's own, but that it reads the boot's id out of what else comes with it.

``ansible.builtin.reboot`` compares all that the terminal showed. A machine that goes down shows more than the command printed: sudo's
``unable to resolve host`` once the network is gone, the message of ``shutdown`` to everybody. It was then taken for another boot while it
still went down, and the next task found nobody.
"""

from __future__ import annotations

import re

from ansible.errors import AnsibleError
from ansible.plugins.action import reboot

#: An id of the kernel's, alone in its line; a host may be called by one, and its name is in the messages.
_BOOT_ID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[ \t\r]*$", re.MULTILINE)


class ActionModule(reboot.ActionModule):
    """See the documentation module of the same name."""

    _VALID_ARGS = frozenset(("msg", "reboot_timeout"))

    def get_system_boot_time(self, distribution: dict[str, str]) -> str:
        """The id of the boot. Raises AnsibleError where none was told, which is asked for again during the wait."""
        said: str = super().get_system_boot_time(distribution)
        ids: list[str] = _BOOT_ID.findall(said)
        if not ids:
            raise AnsibleError(f"Expected the id of the boot. Found: {said[:200]!r}")
        return ids[-1].strip()
