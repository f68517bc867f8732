# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of a host in a run, and the report of a run. docs/report.schema.json is written from it: `make rules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

from .definition import Count, Least, OneOf, Time, Unwritten

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card

    from .plan import Change, FactsSummary
    from .stack import Refusal, Stack, Why


#: How a run ended: it came to its end, somebody stopped it, or its process went without a word.
Ended = Literal["done", "interrupted", "killed"]
VERDICTS = ("fail", "incomplete", "pass", "skip")
Verdict = Annotated[str, OneOf(VERDICTS)]


class Failure(TypedDict):
    """What broke the run on this host."""

    task: str | None
    message: str
    component: str | None
    """The component of the plan, or the step of the run (preflight, lock, hold)"""
    output: NotRequired[str]
    """The end of what the failing program said"""


class Waiting(TypedDict):
    """Component that waits for a boot."""

    component: str
    reason: str


class Resume(TypedDict):
    """Whether the machine goes on by itself after its reboot; null where none is needed."""

    prepared: bool
    why_not: str | None
    unit: str | None
    """The systemd unit that runs once"""
    report: str | None
    """Where its report will be, on the machine"""


class Returned(TypedDict):
    """Rollback: by the verb of that name, or of a run whose driver failed."""

    version: str | None
    """Of the driver that the node was rolled back to; null where none was"""
    failure: str | None
    """Why it is not there; null where it is"""
    verdict: str
    """Of the proof after it"""
    environments: NotRequired[list[str]]
    """Paths of the environments that were rolled back to their builds before"""


class Record(TypedDict):
    """Record of a host."""

    host: str
    verdict: Verdict
    reached: bool
    """Whether the host was reached"""
    changed: bool
    """Whether the run changed anything on the host"""
    changes: list[Change]
    """What was changed, as the plan names it"""
    checks: list[Check]
    """Every check of the host"""
    reboot: bool
    """Whether a reboot is still needed"""
    left: list[Waiting]
    """Components that wait for that reboot, in their order"""
    resume: Resume | None
    rescue: list[str]
    """What helps if a screen stays black after the reboot"""
    failure: Failure | None
    returned: Returned | None
    simulated: bool
    """Whether the host is a simulated one"""
    summary: FactsSummary
    """What the host is: system, kernel, boot id, driver"""
    gpus: list[Card]
    """The host's cards"""
    seconds: Annotated[float, Least(0)] | None
    """How long the host took"""
    stack: Stack | None
    """What was resolved for the host"""
    warnings: list[Why]
    """Warnings of the resolver"""
    why: list[Why]
    """The resolver's decisions"""
    refusals: list[Refusal]
    """Why nothing was begun on the host"""
    conflicts: list[Refusal]
    """Why the wish cannot be met"""
    skipped: str | None
    """Why there was nothing to do on the host"""
    error: str | None
    """Why the wish for the host cannot be understood"""
    suggestions: list[str]
    """What may have been meant instead"""
    measurements: dict[str, object]
    """Numbers behind the checks: what fio measured, what the cards were under load, the figures of each environment (docs/proof.md)"""
    counts: NotRequired[dict[str, Count]]
    """Of a host that stays as it is: how many checks have each status. Its checks that passed or were skipped are left out"""
    whole: NotRequired[str]
    """Of such a host: the file of the run directory (JSON with gzip) that has all of it"""
    warnings_as_before: NotRequired[Annotated[int, Unwritten()]]
    """Warnings that the last run had too, and that are not shown again"""


Counts = TypedDict(
    "Counts",
    {"fail": Count, "incomplete": Count, "pass": Count, "skip": Count, "unreachable": Count, "not_reached": Count},
)
"""How many hosts have which verdict."""


class Run(TypedDict):
    """What a run was."""

    gpuwright: str | None
    """Version that wrote the report"""
    verb: str | None
    """What was run, such as up or validate"""
    started: Time | None
    finished: Time | None
    """When it ended; null while it is at work, and where it was killed: nobody was there to see"""
    ended: Ended | None
    """How the run ended: it came to its end, Ctrl-C or SIGTERM stopped it, or its process went without a word. Null while it is at work"""


class Report(Run):
    """report.json of one run: the verdict at the top, and every host with its checks."""

    schema: Literal[1]
    """Grows when a key changes its meaning or goes; new keys do not count"""
    verdict: Verdict
    """The worst of the hosts; unreachable counts as fail, not reached as incomplete"""
    simulated: bool
    """Whether any host is a simulated node, whose values were not measured"""
    counts: Counts
    """How many hosts have which verdict"""
    hosts: dict[str, Record]
    unreachable: dict[str, str]
    """Why each of these hosts could not be reached"""
    not_reached: list[str]
    """Hosts that the run never came to"""
