# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How urgent an alert is."""

from __future__ import annotations

from typing import Literal

Severity = Literal["page", "ticket", "info"]

#: What each severity asks of people; the routes of Alertmanager follow it.
SEVERITIES: dict[Severity, str] = {
    "page": "wakes somebody: work stops or may be wrong now, and it does not mend itself",
    "ticket": "for working hours: the machine computes, and gets worse if nothing is done",
    "info": "to be read, asks for nothing today",
}
