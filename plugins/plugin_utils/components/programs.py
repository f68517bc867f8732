# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of ours that a node runs by itself: the Python that they run on, and the timers that begin them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, paths

from ..model import sections
from . import utilities
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


#: What earlier versions put beside the programs, which imported it.
SAMPLER, PROCESSES, METRICS = (f"{paths.PROGRAMS}/{name}.py" for name in ("card_sample", "processes", "gpu_metrics"))

_SCRIPT = """\
#!/usr/bin/python3 -I
# Written by gpuwright (role {role}). A change here is overwritten by the next run.
# Made of files of the collection, plugins/module_utils, packed below as they are there:
{names}
import sys

{importer}
sys.exit(import_module("{module}").main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Program:
    """A module of ours whose ``main`` a node runs, as one script with all that it imports. ``role``: what writes it, at ``path``."""

    role: str
    module: str
    path: str

    def text(self) -> str:
        """The script."""
        return _text(self.role, f"{utilities.UTILITIES}.{self.module}")

    def digest(self) -> str:
        """What tells it from that of another version."""
        return _digest(self)


@cache
def _text(role: str, module: str) -> str:
    files = sorted(name for name, (is_package, _source) in utilities.sources(module).items() if not is_package)
    parts = {
        "{role}": role,
        "{names}": "\n".join(f"#   {name[len(utilities.UTILITIES) + 1 :].replace('.', '/')}.py" for name in files),
        "{importer}": utilities.importer(module),
        "{module}": module,
    }
    text = _SCRIPT
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


@cache
def _digest(program: Program) -> str:
    return hashlib.sha256(program.text().encode()).hexdigest()


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
