"""What ansible-runner tells of a run, as far as it is read. Every key may be absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Change


class TaskResult(TypedDict, total=False):
    """Result of a task: Ansible's words, and keys of our actions."""

    msg: object
    stderr: object
    module_stderr: object
    module_stdout: object
    suggestions: list[str]
    ended: bool
    busy: str
    left_alone: str | None
    changes: list[Change]
    work: Mapping[str, Mapping[str, object]]
    measure: Mapping[str, object]


class EventData(TypedDict, total=False):
    """What an event is about."""

    host: object
    task: object
    role: object
    res: TaskResult
    ignore_errors: bool
    resolved_action: object
    task_action: object
    failures: Collection[str]
    dark: Collection[str]


class Event(TypedDict, total=False):
    """An event, or a change of status."""

    event: str
    event_data: EventData
    stdout: str
    status: str
