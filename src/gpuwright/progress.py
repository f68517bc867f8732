"""What is going on, on stderr: one line a host on a terminal; elsewhere a line for each finished component and a sign in long silence."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

from gpuwright import console, reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

    from gpuwright.events import Event, EventData, TaskResult
    from gpuwright.records import Downloaded

    #: How far a host is with what it downloads now; None where that is not known.
    Read = Callable[[str], Downloaded | None]

# Lines of hosts on a terminal; the rest of a fleet is one line of numbers.
MOST_HOSTS = 12
# Seconds after which a host at work of which nothing was said is told to be alive, where nobody sees a moving line.
SILENCE = 30.0
# The same while the cards are loaded and it was said how long that takes.
SILENCE_UNDER_LOAD = 600.0
# Seconds that a download has to be watched before it is said how long it will take.
_WATCHED = 15.0
# Seconds between two looks at who was silent.
_LOOK = 1.0
# Hosts that are told one by one then; the rest of a fleet is one line of numbers.
MOST_SIGNS = 5

_STEPS_WITHOUT_ROLE = {
    "gpuwright.node.plan": "observe and resolve",
    "gpuwright.node.seal": "seal",
    "gpuwright.node.node_seal": "seal",
}
_ROLE_NAMES = {"validate": "prove"}
# Roles that the components share: to people their work is the component's.
_SHARED_ROLES = {"packages", "repositories"}
# Modules that load the cards for as long as the plan says, in people's words.
_LOADS = {
    "gpuwright.node.dcgm_diag": "diagnosing the cards by DCGM",
    "gpuwright.node.gpu_load": "loading the cards",
    "gpuwright.node.framework_load": "loading through the framework",
}
# The actions that say how long: that of a plan, and that which looks again after an apply. No node answers in their names.
_SAY_HOW_LONG = ("gpuwright.node.plan", "gpuwright.node.seal")
# Tasks whose message cannot wait for the report: the machine goes down after them. (A task of the role `reboot`.)
_READ_BEFORE = {"Show what helps if the screen stays black"}
_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_skipped": "ok",
    "runner_on_unreachable": "unreachable",
}


def _unknown(_host: str) -> None:
    """How far a host is, where nobody knows."""


@dataclass(frozen=True)
class Meter:
    """How far a download is.

    Attributes:
        done: the bytes that came.
        total: the bytes of all.
        since: when it was looked at first (monotonic seconds).
        before: the bytes that had come then.
    """

    done: int
    total: int
    since: float
    before: int

    def words(self, now: float) -> str:
        """It for people: what came, of how much, and how long the rest will take by what came until now."""
        came, watched = self.done - self.before, now - self.since
        left = f", {_rough((self.total - self.done) * watched / came)} left" if came > 0 and watched > _WATCHED else ""
        return f"about {console.size(self.done)} of {console.size(self.total)}{left}"


@dataclass(frozen=True)
class Load:
    """A load of the cards that goes on.

    Attributes:
        what: it does, in people's words.
        seconds: it takes by the plan.
        since: when it began (monotonic seconds).
    """

    what: str
    seconds: int
    since: float

    def left(self, now: float) -> float:
        """Seconds that are left by the plan; below 0 those for which its time is over."""
        return self.since + self.seconds - now

    def words(self, now: float) -> str:
        """It for people: what goes on, and how much time is left at most; what begins and ends around it comes to that."""
        left = self.left(now)
        return f"{self.what}: {_at_most(left)} left" if left > 0 else f"{self.what}: {_at_most(-left)} over its time"


@dataclass
class HostState:
    """Where one host is.

    Attributes:
        component: the step it is in, empty before the first.
        task: the task that runs there.
        since: when the component began (monotonic seconds).
        working: whether the task runs there now; not while the host waits for the others of its wave.
        answered: when a task of this component ended last: the host's own time, not its wave's.
        said: when something was said about the host last.
        waits: what it waits for, empty while it does not.
        downloads: bytes that each component downloads, where the plan knows them.
        meter: how far the task is with what it downloads, as it was seen first and last.
        takes: seconds that each load of the cards takes, by its module, where the plan has some.
        load: the one that goes on.
        ended: `unreachable` or `failed`, empty while the host works.
        reason: of the end.
    """

    component: str = ""
    task: str = ""
    since: float = 0.0
    working: bool = False
    answered: float = 0.0
    said: float = 0.0
    waits: str = ""
    downloads: dict[str, int] = field(default_factory=dict)
    meter: Meter | None = None
    takes: dict[str, int] = field(default_factory=dict)
    load: Load | None = None
    ended: str = ""
    reason: str = ""

    def doing(self, now: float) -> str:
        """What goes on there, for people."""
        load = self.load  # once: events arrive meanwhile
        return load.words(now) if load else self.waits or self.task

    def silence(self, now: float) -> float:
        """Seconds after which it is told to be alive."""
        load = self.load
        return SILENCE_UNDER_LOAD if load and load.left(now) > 0 else SILENCE


@dataclass
class State:
    """All hosts, fed by events. Knows nothing of terminals."""

    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda _line: None
    tell: Callable[[str], None] = lambda _line: None
    read: Read = _unknown
    hosts: dict[str, HostState] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Note one event of ansible-runner."""
        data = event.get("event_data") or {}
        host = data.get("host")
        if not isinstance(host, str) or not host:
            return
        now = self.clock()
        state = self.hosts.setdefault(host, HostState(since=now, answered=now, said=now))
        name = str(event.get("event"))
        component = component_of(data)
        if component and component != state.component:
            self._leave(host, state)
            state.component, state.since, state.answered, state.ended, state.reason = component, now, now, "", ""
        state.task = str(data.get("task") or state.task)
        if name == "runner_on_start":
            state.working, state.meter = True, None
            self._begin_load(host, state, data)
        elif name == "runner_retry":
            self._wait(host, state, data.get("res") or {})
        elif name in _RESULTS:
            state.working, state.answered, state.waits, state.load = False, now, "", None
            self._result(host, state, _RESULTS[name], data)

    def look(self) -> None:
        """Look how far the hosts at work are with what they download."""
        now = self.clock()
        for host, state in list(self.hosts.items()):  # a copy at one go: events arrive meanwhile
            found = self.read(host) if state.working else None
            first = state.meter
            if found is None:
                state.meter = None
            elif first and first.total == found["total"] and first.done <= found["done"]:
                state.meter = replace(first, done=found["done"])
            else:
                state.meter = Meter(found["done"], found["total"], now, found["done"])

    def signs(self) -> list[str]:
        """That the hosts of which nothing was said for a while are alive: what each does, since when, and how much it downloads."""
        now = self.clock()
        silent = [
            (host, state)
            for host, state in list(self.hosts.items())  # a copy at one go: events arrive meanwhile
            if state.working and not state.ended and now - state.said >= state.silence(now)
        ]
        for _host, state in silent:
            state.said = now
        lines = [f"[{host}] {_sign(state, now)}" for host, state in silent[:MOST_SIGNS]]
        rest = Counter(state.component or "start" for _host, state in silent[MOST_SIGNS:])
        if rest:
            counts = ", ".join(f"{count} {component}" for component, count in sorted(rest.items()))
            lines.append(f"{console.counted(rest.total(), 'more hosts')} at work: {counts}")
        return lines

    def longest(self) -> tuple[str, Load] | None:
        """Where several hosts are under load: the one that takes longest, and its load."""
        loaded = [(host, load) for host, state in list(self.hosts.items()) if (load := state.load)]
        now = self.clock()
        return max(loaded, key=lambda each: each[1].left(now)) if len(loaded) > 1 else None

    def finish(self) -> None:
        """The run is over: the last component of each host is done."""
        for host, state in self.hosts.items():
            self._leave(host, state)
            state.component = ""

    def counts(self) -> dict[str, int]:
        """How many hosts are in which component, or ended."""
        found: dict[str, int] = {}
        for state in self.hosts.values():
            key = state.ended or state.component
            found[key] = found.get(key, 0) + 1
        return found

    def _result(self, host: str, state: HostState, result: str, data: EventData) -> None:
        answer = data.get("res") or {}
        if result == "ok":
            state.downloads |= _downloads(answer)
            state.takes = _takes(data) or state.takes
            if data.get("task") in _READ_BEFORE:
                self._tell(host, answer)
        if result == "unreachable" or (result == "failed" and not data.get("ignore_errors")):
            self._end(host, state, result, answer)

    def _leave(self, host: str, state: HostState) -> None:
        if state.component and not state.ended:
            self._say(host, state, f"{state.component}: done ({seconds(state.answered - state.since)})")

    def _begin_load(self, host: str, state: HostState, data: EventData) -> None:
        """A task that loads the cards for a known time; one that the plan leaves out is skipped, and has none."""
        action = _action_of(data)
        seconds_ = state.takes.get(action.rpartition(".")[2])
        state.load = Load(_LOADS[action], seconds_, self.clock()) if action in _LOADS and seconds_ else None
        if state.load:
            self._say(host, state, f"{state.load.what}: {_at_most(state.load.seconds)}")

    def _wait(self, host: str, state: HostState, answer: TaskResult) -> None:
        """A task that asks again: what it waits for, once for each that is in the way."""
        busy = answer.get("busy")
        waits = f"waiting until {busy} ends" if busy else ""
        if waits and waits != state.waits:
            self._say(host, state, waits)
        state.waits = waits

    def _say(self, host: str, state: HostState, words: str) -> None:
        state.said = self.clock()
        self.say(f"[{host}] {words}")

    def _tell(self, host: str, result: TaskResult) -> None:
        """What a person has to read before the next task, a line for each entry of a debug message that is a list."""
        said = result.get("msg")
        for line in said if isinstance(said, list) else []:
            self.tell(f"[{host}] {line}")

    def _end(self, host: str, state: HostState, how: str, result: TaskResult) -> None:
        reason = reasons.unreachable(result) if how == "unreachable" else reasons.failure(result)
        if not state.ended:
            self._say(host, state, f"{state.component or 'start'}: {how}: {reason}")
        state.ended, state.reason = how, reason


def component_of(data: EventData) -> str:
    """The component an event belongs to, by its role; for the loop's own tasks by their action; else empty."""
    role = str(data.get("role") or "").rpartition(".")[2]
    if role in _SHARED_ROLES:
        return ""
    if role:
        return _ROLE_NAMES.get(role, role)
    return _STEPS_WITHOUT_ROLE.get(_action_of(data), "")


def _action_of(data: EventData) -> str:
    return str(data.get("resolved_action") or data.get("task_action") or "")


def _takes(data: EventData) -> dict[str, int]:
    """Seconds that each load of the cards takes, by its module, as the plan says it: of a proof, or after an apply; else nothing."""
    if _action_of(data) not in _SAY_HOW_LONG:
        return {}
    answer = data.get("res") or {}
    measure: Mapping[str, object] = answer.get("measure") or (answer.get("work") or {}).get("validate") or {}
    takes = measure.get("takes")
    return dict(takes) if isinstance(takes, dict) else {}


def _downloads(answer: TaskResult) -> dict[str, int]:
    """Bytes that each component downloads, from the answer of the action `plan`; empty from any other task's."""
    found: dict[str, int] = {}
    for change in answer.get("changes") or () if "left_alone" in answer else ():
        rows = [*(change.get("packages") or ()), *(change.get("wheels") or ())]
        size = sum(row.get("download_bytes") or 0 for row in rows)
        found[change["component"]] = found.get(change["component"], 0) + size
    return found


def _sign(state: HostState, now: float) -> str:
    """What a host does, since when, and how many bytes its component downloads."""
    size = state.downloads.get(state.component)
    downloads = f" ({console.size(size)} to download)" if size else ""
    if state.meter:
        downloads = f" ({state.meter.words(now)})"
    return f"{state.component or 'start'}: at work for {seconds(now - state.since)}{downloads}: {state.doing(now)}"


def _rough(value: float) -> str:
    """A duration that nobody knows better, for people."""
    return f"{value:.0f} s" if value < 60 else f"{value / 60:.0f} min"


def _at_most(value: float) -> str:
    """A duration that is not longer than it says, for people: in whole seconds, minutes, and hours with minutes."""
    if value < 100:
        return f"{math.ceil(value)} s"
    hours, minutes = divmod(math.ceil(value / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"


def seconds(value: float) -> str:
    """A duration for people."""
    return f"{value:.0f} s" if value < 100 else f"{value // 60:.0f} min {value % 60:02.0f} s"


class Progress(Protocol):
    """Shows a run while it goes on."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""

    def take(self, event: Event) -> None:
        """Show one event."""


def choose(title: str, *, verbosity: int, read: Read = _unknown) -> Progress:
    """The way to show progress that fits the terminal and the wish. `read`: how far a host is with what it downloads now."""
    if verbosity == 0 and sys.stderr.isatty():
        return LiveProgress(title, read)
    return PlainProgress(title, read, with_output=verbosity > 0)


def _note(line: str) -> None:
    console.note(console.one_line(line))


class PlainProgress:
    """Lines for a log; with `-v` Ansible's own words too."""

    def __init__(self, title: str, read: Read = _unknown, *, with_output: bool = False) -> None:
        self._title = title
        self._with_output = with_output
        self._state = State(say=_note, tell=_note, read=read)
        self._over = threading.Event()
        # A daemon: no run hangs because somebody waits for a sign.
        self._watch = threading.Thread(target=self._give_signs, name="signs of life", daemon=True)

    def __enter__(self) -> Self:
        console.note(self._title)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watch.join()
        if kind is None:
            self._state.finish()

    def _give_signs(self) -> None:
        while not self._over.wait(_LOOK):
            self._state.look()
            for line in self._state.signs():
                _note(line)

    def take(self, event: Event) -> None:
        """Print the words of Ansible, then what they mean."""
        words = event.get("stdout")
        if self._with_output and words:
            console.note("\n".join(console.clean(line) for line in str(words).splitlines()))
        self._state.take(event)


class LiveProgress:
    """One moving line a host, gone when the run is over."""

    def __init__(self, title: str, read: Read = _unknown) -> None:
        self._title = title
        self._began = time.monotonic()
        self._state = State(tell=self._tell, read=read)
        self._looked = self._began
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render, console=Console(stderr=True), transient=True, refresh_per_second=8
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def take(self, event: Event) -> None:
        """Note one event; the screen follows by itself."""
        self._state.take(event)

    def _tell(self, line: str) -> None:
        """A line that stays, above those that move."""
        if self._live is not None:
            self._live.console.print(console.styled(line, wraps=False))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        now = time.monotonic()
        if now - self._looked > _LOOK:
            self._looked = now
            self._state.look()
        longest = self._state.longest()
        last = f"  longest on {console.one_line(longest[0])}, {longest[1].words(now)}" if longest else ""
        self._spinner.update(text=Text(f" {self._title}  {seconds(now - self._began)}{last}"))
        lines: list[RenderableType] = [self._spinner]
        known = list(self._state.hosts.items())  # a copy at one go: events arrive while the screen is drawn
        hosts = sorted(known, key=lambda item: (not item[1].ended, item[0]))
        for host, state in hosts[:MOST_HOSTS]:
            lines.append(console.styled(_line(host, state, now), _style(state), wraps=False))
        if len(hosts) > MOST_HOSTS:
            counts = ", ".join(f"{count} {name or 'waiting'}" for name, count in sorted(self._state.counts().items()))
            lines.append(console.styled(f"  … {len(hosts)} hosts: {counts}", "dim", wraps=False))
        return Group(*lines)


def _line(host: str, state: HostState, now: float) -> str:
    if state.ended:
        return f"  {host:<24} {state.ended}: {state.reason}"
    far = f"{state.meter.words(now)}: " if state.meter else ""
    return f"  {host:<24} {state.component:<20} {seconds(now - state.since):>8}  {far}{state.doing(now)}"


def _style(state: HostState) -> str:
    return "red" if state.ended else ""
