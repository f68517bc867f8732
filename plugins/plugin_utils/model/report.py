# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of a host in a run, and the report of a run. docs/report.schema.json says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card

    from .plan import Change, FactsSummary
    from .stack import Refusal, Stack, Why


#: How a run ended: it came to its end, somebody stopped it, or its process went without a word.
Ended = Literal["done", "interrupted", "killed"]


class Failure(TypedDict):
    """What broke a run on a host."""

    task: str | None
    message: str
    component: str | None
    output: NotRequired[str]


class Waiting(TypedDict):
    """Component that waits for a boot."""

    component: str
    reason: str


class Resume(TypedDict):
    """Whether a machine goes on by itself after its boot."""

    prepared: bool
    why_not: str | None
    unit: str | None
    report: str | None


class Returned(TypedDict):
    """Driver that a node was returned to."""

    version: str | None
    failure: str | None
    verdict: str


class Record(TypedDict):
    """Record of a host."""

    host: str
    verdict: str
    reached: bool
    changed: bool
    changes: list[Change]
    checks: list[Check]
    reboot: bool
    left: list[Waiting]
    resume: Resume | None
    rescue: list[str]
    failure: Failure | None
    simulated: bool
    summary: FactsSummary
    gpus: list[Card]
    seconds: float | None
    stack: Stack | None
    warnings: list[Why]
    why: list[Why]
    refusals: list[Refusal]
    conflicts: list[Refusal]
    skipped: str | None
    measurements: NotRequired[dict[str, object]]
    error: NotRequired[str | None]
    suggestions: NotRequired[list[str]]
    returned: NotRequired[Returned]
    warnings_as_before: NotRequired[int]
    """Warnings that the last run had too, and that are not shown again"""
    counts: NotRequired[dict[str, int]]
    whole: NotRequired[str]


class Run(TypedDict):
    """What a run was."""

    gpuwright: str | None
    verb: str | None
    started: str | None
    finished: str | None
    ended: Ended | None


class Report(Run):
    """Report of a run."""

    schema: int
    verdict: str
    simulated: bool
    counts: dict[str, int]
    hosts: dict[str, Record]
    unreachable: dict[str, str]
    not_reached: list[str]
