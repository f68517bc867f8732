"""How far a run is on each host, on disk: what is told of it where it does not come to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gpuwright import console, reasons
from gpuwright.progress import component_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpuwright.events import Event

FILE = "steps.jsonl"

#: What takes a node for a run. Nothing is changed on it before.
TAKES = "gpuwright.node.node_seal"


class Step(NamedTuple):
    """How far a host is.

    Attributes:
        component: the step it is in.
        begun: whether the run has taken the node, and may have changed it.
        unreachable: why it could not be reached; None where it could.
    """

    component: str = ""
    begun: bool = False
    unreachable: str | None = None


class Steps:
    """Fed by events; writes a line where a host goes on to another step, so that it is there when the run is killed."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE
        self._hosts: dict[str, Step] = {}

    def take(self, event: Event) -> None:
        """Note what one event says."""
        data = event.get("event_data") or {}
        host = data.get("host")
        if not isinstance(host, str) or not host:
            return
        before = self._hosts.get(host, Step())
        lost = event.get("event") == "runner_on_unreachable"
        now = Step(
            component_of(data) or before.component,
            before.begun or data.get("resolved_action") == TAKES,
            console.without_credentials(reasons.unreachable(data.get("res") or {})) if lost else None,
        )
        if now == before and host in self._hosts:
            return
        self._hosts[host] = now
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([host, *now]) + "\n")


def read(run_dir: Path) -> dict[str, Step]:
    """How far each host of a run came; a line that was cut off is left out."""
    found: dict[str, Step] = {}
    try:
        lines = (run_dir / FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            host, *step = json.loads(line)
            found[host] = Step(*step)
        except (ValueError, TypeError):
            continue
    return found
