# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The users who are to start containers without root."""

from __future__ import annotations

import re

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ....model.errors import BadInput
from ....wish.reading import as_list

VARIABLE = "container_toolkit_rootless"
_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", re.ASCII)


def read(given: object) -> tuple[str, ...]:
    """The names, each once. Raises BadInput for what is no name of a user, and for root."""
    names = tuple(dict.fromkeys(str(name).strip() for name in as_list(given, VARIABLE)))
    if not names:
        raise BadInput(f"{VARIABLE}: expected names of users", ["container-rootless=alice,bob"])
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadInput(f"{VARIABLE}: {name[:80]!r} is no name of a user", ["container-rootless=alice,bob"])
        if name == "root":
            raise BadInput(
                f"{VARIABLE}: root's own containers get the cards by container-toolkit alone", ["container-toolkit"]
            )
    return names
