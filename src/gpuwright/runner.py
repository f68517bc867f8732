"""Runs one playbook through ansible-runner and says what became of its hosts."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwright import console, paths, reasons, steps
from gpuwright.errors import BadInput, Failed, Interrupted
from gpuwright.request import command_line, environment, forget_secrets, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from gpuwright.events import Event
    from gpuwright.request import Request

# Ansible ends before the first host: these words tell that the options are to blame and not the installation.
_ABOUT_INPUT = re.compile(
    r"extra vars|vault|decrypt|unrecognized arguments|invalid choice|expected one argument|unable to find limit file",
    re.IGNORECASE,
)

# The action that opens a run, reads its variables and writes its report. It is the controller's alone: no node answers in its name.
_OPENS = "gpuwright.node.report"
# The actions that write what a host's report is made of.
_RECORDS = ("gpuwright.node.plan", "gpuwright.node.seal")

# What gives a node back at the end.
_GIVES_BACK = "gpuwright.node.seal"

# How long a playbook has to stop in order after Ctrl-C, in seconds.
_GRACE = 10.0


@dataclass
class Outcome:
    """What the events of a run told.

    Attributes:
        hosts: every host the run began with, in the order in which they were met.
        unreachable: host → why.
        failed: host → what failed first; also where a role caught it and went on.
        took: hosts that the run has taken for itself and not given back yet.
        lost: hosts that Ansible counts as failed at its end: nothing caught it.
        bad_input: what the run refused before the first host.
        reported: the playbook wrote its report after the last host left its record, and had nothing more to do.
        complete: Ansible came to its end; without that nothing a host left behind is its result.
        seconds: how long it took.
        rc: ansible-playbook's exit status; never handed on.
        log: the file with ansible-playbook's words.
    """

    hosts: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    took: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    bad_input: BadInput | None = None
    reported: bool = False
    complete: bool = False
    seconds: float = 0.0
    rc: int = 0
    log: Path | None = None

    def distrust(self, host: str) -> str | None:
        """Why a good record of this host must not be believed, or nothing."""
        if host in self.lost:
            return self.failed.get(host, "a task failed")
        return None if self.complete else "Ansible ended in the middle of the run"

    def take(self, event: Event) -> None:
        """Note what one event says."""
        data = event.get("event_data") or {}
        if event.get("event") == "playbook_on_stats":
            self.complete = True
            self.lost |= set(data.get("failures") or ())
            dark = data.get("dark") or ()
            # A task may allow for a host that does not answer (a reboot); what counts is whether it came back.
            self.unreachable = {host: why for host, why in self.unreachable.items() if host in dark}
        host = data.get("host")
        if not isinstance(host, str) or not host:
            return
        if host not in self.hosts:
            self.hosts.append(host)
        result = data.get("res") or {}
        if data.get("resolved_action") == steps.TAKES:
            self.took.add(host)
        elif data.get("resolved_action") == _GIVES_BACK and "verdict" in result:
            self.took.discard(host)
        if data.get("resolved_action") in (_OPENS, *_RECORDS):
            self.reported = event.get("event") == "runner_on_ok" and bool(result.get("ended"))
        if data.get("resolved_action") == _OPENS and "suggestions" in result:
            self.bad_input = BadInput(str(result.get("msg")), result["suggestions"])
        if event.get("event") == "runner_on_unreachable":
            self.unreachable.setdefault(host, reasons.unreachable(result))
        elif event.get("event") == "runner_on_failed" and not data.get("ignore_errors"):
            self.failed.setdefault(host, reasons.failure(result))


def run(request: Request, listener: Callable[[Event], None]) -> Outcome:
    """Run the request's playbook.

    Args:
        request: what to run.
        listener: is given every event.

    Raises:
        BadInput: there is no host to work on, the inventory cannot be read, or a variable cannot be meant.
        Failed: Ansible itself could not start.
        Interrupted: Ctrl-C.
    """
    outcome, far = Outcome(log=_log(request)), steps.Steps(request.run_dir)

    def on_event(event: Event) -> None:
        outcome.take(event)
        far.take(event)
        if outcome.bad_input is None:  # it is told as what it is, and not as a host's failure
            listener(event)

    began = time.monotonic()
    outcome.rc, status = backend(request, on_event)
    outcome.seconds = time.monotonic() - began
    if status == "canceled":
        kept = _give_back(request, outcome.took)
        told = (
            [f"of {', '.join(kept)} the lock stays: until it lapses only this controller begins there"] if kept else []
        )
        raise Interrupted("interrupted; what was begun is healed by the next run", [*told, f"the log is {outcome.log}"])
    if outcome.bad_input:
        raise outcome.bad_input
    if not outcome.hosts:
        _explain_no_hosts(request, outcome)
    return outcome


def _give_back(request: Request, took: set[str]) -> list[str]:
    """Let others begin on the nodes that an interrupted run had taken; those where that could not be done. Ctrl-C ends it."""
    if not took or request.check:
        return []
    console.note("giving back what the run had taken for itself")
    given: set[str] = set()

    def on_event(event: Event) -> None:
        data = event.get("event_data") or {}
        if event.get("event") == "runner_on_ok" and data.get("resolved_action") == _GIVES_BACK:
            given.add(str(data.get("host")))

    backend(replace(request, playbook="release", limit=",".join(sorted(took))), on_event)
    return sorted(took - given)


def backend(request: Request, on_event: Callable[[Event], None]) -> tuple[int, str]:
    """Run by ansible-runner; returns ansible-playbook's exit status and the runner's word for it. Replaced in tests."""
    from ansible_runner.interface import init_runner

    data_dir = request.run_dir / "ansible"
    data_dir.mkdir(mode=0o700, exist_ok=True)
    with _forgetting(request), _stop_in_order() as stop:
        runner = init_runner(
            private_data_dir=str(data_dir),
            # Relative paths in ansible.cfg and in options are the user's: the run works in the user's directory.
            project_dir=str(Path.cwd()),
            ident=_ident(request),
            playbook=str(paths.playbook(request.playbook)),
            inventory=write_files(request),
            cmdline=shlex.join(command_line(request)),
            envvars=environment(request, os.environ),
            passwords={r"BECOME password.*:\s*?$": request.become_password}
            if request.become_password is not None
            else {},
            fact_cache_type="",
            # Neither variables nor passwords are written to files.
            suppress_env_files=True,
            quiet=True,
            event_handler=_without_files(request, on_event),
            status_handler=_forget_command,
            cancel_callback=stop.now,
        )
        # Set here: where there is no file of settings, ansible-runner forgets those that it is given.
        runner.config.pexpect_timeout = 1
        runner.config.command = _tied(runner.config.command, request.run_dir / paths.MARKER)
        # Its own file of what Ansible says would have every secret that a task shows.
        runner.config.suppress_output_file = True
        if "ANSIBLE_HOST_KEY_CHECKING" not in os.environ:
            # ansible-runner turns the checking of host keys off; the user's own settings hold here.
            runner.config.env.pop("ANSIBLE_HOST_KEY_CHECKING", None)
        status, rc = runner.run()
    return int(rc), "canceled" if stop.asked else str(status)


def _tied(command: list[str], mark: Path) -> list[str]:
    """A command that ends when this process is killed; where the system has no such tie (it is Linux's), as it is."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-IS", str(Path(__file__).with_name("tied.py")), str(os.getpid()), str(mark), *command]


def _ident(request: Request) -> str:
    return f"{request.playbook}-check" if request.check else request.playbook


def _log(request: Request) -> Path:
    return request.run_dir / "ansible" / "artifacts" / _ident(request) / "stdout"


@contextlib.contextmanager
def _forgetting(request: Request) -> Iterator[None]:
    """However a run ends, also before its first task, it leaves no secret of its options in a file."""
    try:
        yield
    finally:
        forget_secrets(request)


def _without_files(request: Request, on_event: Callable[[Event], None]) -> Callable[[Event], bool]:
    log = _log(request)

    def handler(event: Event) -> bool:
        if event.get("event") == "playbook_on_start":
            forget_secrets(request)
        _write_log(log, event)
        on_event(event)
        return False  # no file an event: a fleet makes tens of thousands

    return handler


def _write_log(log: Path, event: Event) -> None:
    """Ansible's words as it prints them, without credentials."""
    words = event.get("stdout")
    if words or event.get("event") == "verbose":
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as stream:
            stream.write(console.without_credentials(str(words)) + "\n")


def _forget_command(status: Event, runner_config: Any) -> None:
    """Remove the record of the command and its environment: `-e` may carry a secret, and so may the environment."""
    if status.get("status") == "running":
        (Path(runner_config.artifact_dir) / "command").unlink(missing_ok=True)


class _Stop:
    """Ctrl-C or SIGTERM: ansible-playbook is asked to stop, and made to when it is asked again or takes too long."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self.asked:
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGINT)
        self.asked.append(time.monotonic())

    def now(self) -> bool:
        """Whether the patience is over."""
        return bool(self.asked) and (len(self.asked) > 1 or time.monotonic() - self.asked[0] > _GRACE)


@contextlib.contextmanager
def _stop_in_order() -> Iterator[_Stop]:
    """Handle the signals while a playbook runs: it has a terminal of its own and would not see Ctrl-C."""
    stop = _Stop()
    before = {number: signal.signal(number, stop.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _children() -> list[int]:
    """The processes this one started (Linux)."""
    try:
        return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _explain_no_hosts(request: Request, outcome: Outcome) -> None:
    """No host was ever met: the reason is the inventory, the limit, or Ansible itself.

    Raises:
        BadInput: in the first two cases.
        Failed: in the last.
    """
    words = _words(outcome.log)
    source = ", ".join(request.inventory) or "of this machine"
    if "failed to parse inventory" in words.lower():
        detail = _inventory_error(words)
        raise BadInput(detail if request.local else f"the inventory {source} cannot be read: {detail}")
    if request.limit and (outcome.rc == 0 or "--limit" in words):
        raise BadInput(
            f"--limit {request.limit} matches no host of the inventory {source}",
            [f"see its hosts with: ansible-inventory -i {source} --graph"],
        )
    if outcome.rc == 0 or "no hosts" in words:
        raise BadInput(f"the inventory {source} has no hosts to work on")
    if _ABOUT_INPUT.search(words):
        raise BadInput(_first_error(words))
    raise Failed(f"Ansible could not begin: {_first_error(words)}", [f"its words are in {outcome.log}"])


def _inventory_error(words: str) -> str:
    """What Ansible's inventory plugins said; each says it again, the first is enough."""
    found = re.search(r"Failed to parse inventory with '\w+' plugin: (.+)", words)
    if not found:
        return _first_error(words)
    lines = words[found.start(1) :].splitlines()
    said = [line.strip() for line in itertools.takewhile(str.strip, lines)]
    origin = re.search(r"^Origin: (/\S+)", words, re.MULTILINE)
    return " ".join(said) + (f" ({origin.group(1)})" if origin else "")


def _words(log: Path | None) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace") if log else ""
    except OSError:
        return ""


def _first_error(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    at = next((i for i, line in enumerate(lines) if "ERROR" in line or "error:" in line), None)
    if at is None:
        return lines[-1] if lines else "it said nothing"
    return lines[at].replace("[ERROR]:", "").replace("ERROR!", "").strip()
