"""What the tests of the command line share: a command line to call, and a run of Ansible that never happens."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import knowledge, paths, privilege, runner
from gpuwright.cli import main
from gpuwright.privilege import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuwright.request import Request

Event = dict[str, Any]


@dataclass
class Done:
    """A command line that ran."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def gpuwright(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def call(*words: str) -> Done:
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def event(name: str, host: str, task: str = "Plan", role: str | None = None, **data: Any) -> Any:
    """An event as ansible-runner hands it over."""
    return {
        "event": name,
        "stdout": f"{name} {host}",
        "event_data": {"host": host, "task": task, "role": role, **data},
    }


def plan_record(host: str, **changes: Any) -> Any:
    """A plan as the action `plan` writes it."""
    return {
        "schema": 1,
        "host": host,
        "ok": True,
        "error": None,
        "suggestions": [],
        "conflicts": [],
        "refusals": [],
        "skipped": None,
        "changes": [
            {
                "component": "nvidia_driver",
                "action": "install",
                "from": None,
                "to": "580.95.05",
                "reason": "no driver is installed",
                "packages": [{"name": "nvidia-open", "version": "580.95.05-1", "download_bytes": 12_000_000}],
                "files": [],
                "services": ["nvidia-persistenced.service"],
            }
        ],
        "reboot": True,
        "reboot_reason": "nouveau holds the card",
        "download_bytes": 345_000_000,
        "disk_bytes": 1_200_000_000,
        "install": [{"name": "nvidia-open"}, {"name": "dkms"}],
        "stack": {"driver": {"branch": "580"}},
        "warnings": [],
        "why": [{"rule": "branch", "text": "580 is long-term", "source": "vendor"}],
        "assumed": {},
        "gpus": [{"name": "H100"}, {"name": "H100"}],
        "checks": [],
        "verdict": "incomplete",
        "facts_summary": {"simulated": False},
        **changes,
    }


def result_record(host: str, **changes: Any) -> Any:
    """A host's result as the loop writes it."""
    return {
        "host": host,
        "verdict": "pass",
        "reached": True,
        "changed": True,
        "changes": [],
        "checks": [check("driver.loaded", "pass")],
        "reboot": False,
        "failure": None,
        "error": None,
        "skipped": None,
        "refusals": [],
        "conflicts": [],
        "simulated": False,
        "warnings": [],
        "stack": {},
        **changes,
    }


def check(name: str, status: str, **rest: Any) -> Any:
    """A check of the one shape."""
    keys = ("severity", "measured", "expected", "unit", "gpu", "reason", "evidence", "action", "remedy")
    return {"id": name, "status": status} | dict.fromkeys(keys) | rest


@dataclass
class FakeAnsible:
    """Stands in for ansible-runner: plays events and leaves the records a playbook would leave.

    ``plans`` and ``results`` are written by a run; a dry run writes the results of hosts without changes only.
    """

    events: list[Event] = field(default_factory=list)
    #: Events by playbook, where a run has more than one.
    script: dict[str, list[Event]] = field(default_factory=dict)
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    rc: int = 0
    status: str = "successful"
    words: str = ""
    crashed: bool = False
    requests: list[Request] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)

    def __call__(self, request: Request, on_event: Callable[[Event], None]) -> tuple[int, str]:
        self.requests.append(request)
        for host, record in self.plans.items():
            self._write(request.run_dir / "plans" / f"{host}.json", record)
        for host, record in self.results.items():
            if not request.check or not self.plans.get(host, {}).get("changes"):
                self._write(request.run_dir / "hosts" / f"{host}.json", record)
        log = request.run_dir / "ansible" / "artifacts" / runner._ident(request) / "stdout"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.words)
        events = (
            self.script.get(request.playbook)
            or self.events
            or [event("runner_on_ok", host) for host in self.plans | self.results]
        )
        for one in events:
            on_event(one)
        if not self.crashed:
            on_event({"event": "playbook_on_stats", "event_data": self._stats(events)})
        return self.rc, self.status

    def aggregate(
        self, run_dir: Path, verb: str, unreachable: Any, failed: Any, not_reached: Any = (), ended: str = "done"
    ) -> None:
        told = {"unreachable": unreachable, "failed": failed, "not_reached": not_reached, "ended": ended}
        self.reports.append({"run_dir": run_dir, "verb": verb, **told})
        note = json.loads((run_dir / "run.json").read_text())
        (run_dir / "run.json").write_text(json.dumps({**note, "verdict": "incomplete", "ended": ended}))

    @staticmethod
    def _stats(events: list[Event]) -> dict[str, dict[str, int]]:
        """As Ansible counts at its end: by the last word of each host."""
        last = {str(one["event_data"].get("host")): one["event"] for one in events}
        return {
            "failures": {host: 1 for host, name in last.items() if name == "runner_on_failed"},
            "dark": {host: 1 for host, name in last.items() if name == "runner_on_unreachable"},
        }

    @staticmethod
    def _write(path: Path, record: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeAnsible:
    """No Ansible, no rules, no terminal; run directories under the test's own directory."""
    fake = FakeAnsible()
    monkeypatch.setattr(runner, "backend", fake)
    monkeypatch.setattr(knowledge, "aggregate", fake.aggregate)
    monkeypatch.setattr(knowledge, "check_wish", lambda wants, variables: None)
    monkeypatch.setattr(knowledge, "check_cards", lambda names: None)
    root = world_of()
    monkeypatch.setattr(privilege, "World", lambda: root)
    monkeypatch.setattr(paths, "state_home", lambda: tmp_path / "state")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return fake


def world_of(euid: int = 0, *, sudo: bool = False, secret: str = "") -> World:
    """A process of a given user."""
    return World(euid=lambda: euid, sudo_is_free=lambda: sudo, ask_secret=lambda _prompt: secret)
