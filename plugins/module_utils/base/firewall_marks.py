# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tells the rules of gpuwright in a firewall from those of others."""

from __future__ import annotations

#: The comment of its rules in ufw.
COMMENT = "gpuwright"
#: The priority of its rich rules in firewalld, which have no comments. Above 0: what somebody denies there comes before them.
PRIORITY = 9400
#: The same in the file of a zone.
IN_ZONE = f'priority="{PRIORITY}"'
