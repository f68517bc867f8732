# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of ours that a node runs by itself: the Python that they run on, and the timers that begin them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, paths

from ..model import sections
from .view import UP, View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

#: What the programs are written for, and the system whose own Python (3.6, or none) is older.
_OLDEST_PYTHON, _OLD_PYTHON = "3.8", ("redhat", "8")


def python(facts: Facts) -> str:
    """The system's Python; the one beside it that Ansible needs there too, where that is too old."""
    there = facts["python"]["interpreters"]
    enough = [each["path"] for each in there if numeric_version.at_least(each["version"], _OLDEST_PYTHON)]
    system = (facts["os"]["family"], numeric_version.major(facts["os"]["version"] or ""))
    return enough[0] if enough and system == _OLD_PYTHON else "/usr/bin/python3"


#: What asks the cards, which several programs import.
SAMPLER = f"{paths.PROGRAMS}/card_sample.py"


@dataclass(frozen=True)
class Timed:
    """A service that a timer begins. ``check``: the check of it. ``purpose``: what it does ("the log is filled"), ``failure``: what a turn
    did that failed. ``record``: where its reason stands besides the journal.
    """

    check: str
    service: str
    timer: str
    purpose: str
    failure: str
    record: str = ""

    def ticks(self, facts: Facts) -> bool:
        """Whether the timer runs, now and after a boot."""
        state = sections.service(facts, self.timer)
        return state["enabled"] == "enabled" and state["active"] == "active"

    def judge(self, view: View) -> Check:
        """The timer runs, and the last turn of the service did not fail."""
        if "services" in view.unknown:
            reason = f"it is not known whether {self.purpose}: {view.unknown['services']}"
            return checks.incomplete(self.check, reason, "warning")
        failed = sections.service(view.facts, self.service)["active"] == "failed"
        reason = f"the last turn of {self.service} {self.failure}" if failed else f"{self.timer} does not run"
        right = self.ticks(view.facts) and not failed
        again = f"systemctl start {self.service} begins the next turn" if failed and self.ticks(view.facts) else UP
        return checks.judged(
            self.check,
            right,
            "warning",
            reason=None if right else reason,
            action="configure",
            remedy=f"journalctl -u {self.service} says why{self.record}; {again}",
        )
