# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How far a module is while it runs: the file on the node that says so is read meanwhile, by the same way to the node.

The task itself stays one that is waited for: with Ansible's `async` the work would go on after a run that is killed, without its lock.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ansible.errors import AnsibleError

from ansible_collections.gpuwright.node.plugins.module_utils.packages import meter

if TYPE_CHECKING:
    from .node_action import NodeAction

#: What a node may say: two numbers of bytes. Nothing else of it is looked at.
_SAID = re.compile(r"^([0-9]{1,15}) ([0-9]{1,15})\n\Z", re.ASCII)
#: Seconds between two questions, each a command on the node.
SECONDS = 20.0


def watched(action: NodeAction, path: str, keep: Callable[[int, int], None]) -> AbstractContextManager[None]:
    """Hand on to `keep` the bytes that came and the bytes of all, as the file `path` on the node has them, while the body runs.

    What cannot be read is not told, and holds up nothing.
    """
    asker = _beside(action)

    def ask() -> meter.Meter | None:
        try:
            answer = asker._low_level_execute_command(f"cat {shlex.quote(path)}")  # noqa: SLF001 - Ansible's way for actions
        except AnsibleError:
            return None
        said = _SAID.match(str(answer.get("stdout")))
        return meter.Meter(int(said[1]), int(said[2])) if said else None

    return meter.meanwhile(ask, lambda found: keep(found.done, found.total), SECONDS)


def _beside(action: NodeAction) -> NodeAction:
    """The action once more, with a connection of its own: what one has of a command under way is none of the other's."""
    found = copy.copy(action)
    found._connection = copy.copy(action._connection)  # noqa: SLF001 - as above
    if found._connection.become:  # noqa: SLF001
        found._connection.set_become_plugin(copy.copy(found._connection.become))  # noqa: SLF001
    return found
