# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tells the rules of gpuwright in a firewall from those of others, and for whom of its own each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, NamedTuple

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import FirewallOwner


class Mark(NamedTuple):
    """``comment``: of its rules in ufw. ``priority``: of its rich rules in firewalld, which have no comments. It is above 0: what somebody
    denies there comes before them.
    """

    comment: str
    priority: int


#: By whom of gpuwright's a rule is for: none of them takes away what another one has opened.
MARKS: Dict[FirewallOwner, Mark] = {
    "exporters": Mark("gpuwright", 9400),
    "fabric": Mark("gpuwright-fabric", 9401),
}
