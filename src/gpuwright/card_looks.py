"""What the cards do now, of this machine or of an inventory, and a day of their log. Reads; changes nothing."""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, cast

from gpuwright import console, hostrun, paths, records, runner
from gpuwright.errors import BadInput, Failed

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from ansible_collections.gpuwright.node.plugins.module_utils.smi.csv import Sample
    from gpuwright.request import Request
    from gpuwright.runner import Outcome

#: What this machine is called where it is one host among none.
HERE = "localhost"
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,6})?")
_TEXTS = ("timestamp", "name", "uuid", "clocks_event_reasons", "note")
_LOG_HINT = "`gpuwright up --want gpu-log` keeps a log of the cards from then on, and 30 days of it"

#: A value of a row of the log.
Value = str | float | None


class HostLook(TypedDict):
    """A host at one moment. `problem`: why there is no sample of now; the cards are then those of the last one, or none."""

    time: str | None
    cards: list[Sample]
    problem: str | None


@dataclass(frozen=True)
class Look:
    """The hosts at one moment, and why the others could not be reached."""

    hosts: dict[str, HostLook]
    unreachable: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every host and every card of them answered."""
        return not self.unreachable and not any(map(is_short, self.hosts.values()))


@dataclass(frozen=True)
class Day:
    """A day of the log of a host. Of a row that has a value too many or too few nothing is here."""

    host: str
    day: str
    columns: list[str]
    rows: list[list[Value]]


def is_short(host: HostLook) -> bool:
    """Whether a host or one of its cards did not answer."""
    return host["problem"] is not None or any(card["problem"] is not None for card in host["cards"])


def _node() -> tuple[ModuleType, ModuleType, ModuleType]:
    """The collection's own modules for a sample, for what runs nvidia-smi and for a day: a node answers by the same."""
    paths.make_collection_importable()

    from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log_day
    from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv as rows
    from ansible_collections.gpuwright.node.plugins.module_utils.smi import run

    return rows, run, gpu_log_day


def is_day(text: str) -> bool:
    """Whether a text is a day such as 2026-11-27."""
    return bool(_node()[2].is_day(text))


class Here:
    """The cards of this machine, asked by this process. What hangs is asked once."""

    def __init__(self) -> None:
        self._rows, self._run, _ = _node()
        self._last: HostLook = {"time": None, "cards": [], "problem": None}
        self._since: str | None = None
        self._held: tuple[int, str | None] | None = None

    @property
    def hangs(self) -> bool:
        """Whether the last call got no answer."""
        return self._since is not None

    def __call__(self) -> Look:
        """Look again; while an nvidia-smi lives that could not be killed, no other one is begun."""
        if self._held is None or self._run.start_of(self._held[0]) != self._held[1]:
            self._held = None
            self._ask()
        return Look({HERE: self._last})

    def _ask(self) -> None:
        asked = self._rows.now()
        try:
            self._last = {"time": asked, "cards": self._rows.look(), "problem": None}
            self._since = None
        except self._run.Hung as hung:
            self._since = self._since or asked
            self._held = None if hung.pid is None else (hung.pid, hung.started)
            alive = f" (process {hung.pid})" if hung.pid is not None else ""
            self._last = {**self._last, "problem": f"no answer since {self._since}: {hung}{alive}"}
        except self._run.SmiError as error:
            self._since = None
            self._last = {"time": asked, "cards": [], "problem": str(error)}

    def day(self, day: str) -> Day:
        """A day of this machine's log.

        Raises:
            Failed: there is none.
        """
        _, _, node = _node()
        try:
            return parse(HERE, day, node.read(day))
        except node.DayError as error:
            raise Failed(str(error), [_LOG_HINT]) from None


class There:
    """The cards of the hosts of an inventory, each asked by a module."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def __call__(self, *, shown: bool = False) -> Look:
        """Look again; `shown`: with the progress of the run on stderr."""
        outcome, found = self._run({}, shown=shown)
        hosts = {
            host: cast("HostLook", {key: record[key] for key in HostLook.__annotations__}) for host, record in found
        }
        for host in outcome.hosts:
            if host not in hosts and host not in outcome.unreachable:
                why = outcome.failed.get(host, "the run ended before this host was asked")
                hosts[host] = {"time": None, "cards": [], "problem": why}
        order = [host for host in outcome.hosts if host in hosts]
        return Look({host: hosts[host] for host in order}, outcome.unreachable)

    def day(self, day: str) -> Day:
        """A day of the log of the one host.

        Raises:
            BadInput: there are more hosts.
            Failed: the host cannot be reached, or has no log of that day.
        """
        outcome, found = self._run({"gpuwright_day": day}, shown=True)
        if len(outcome.hosts) > 1:
            named = console.names(outcome.hosts)
            raise BadInput(f"--day draws one host, and these are {len(outcome.hosts)}: {named}", ["choose one with -l"])
        (host,) = outcome.hosts
        why = outcome.unreachable.get(host) or outcome.failed.get(host)
        record = next((record for name, record in found if name == host), {"problem": "it did not answer"})
        if why or not isinstance(record.get("log"), str):
            raise Failed(f"{host}: {why or record['problem']}", [] if why else [_LOG_HINT])
        _, _, node = _node()
        try:
            return parse(host, day, node.unpack(record["log"]))
        except node.DayError as error:
            raise Failed(f"{host}: {error}") from None

    def _run(self, variables: dict[str, object], *, shown: bool) -> tuple[Outcome, list[tuple[str, dict[str, object]]]]:
        """One run of the playbook, whose directory is nobody's to keep."""
        wanted = hostrun.prepare(self._args, playbook="top", needs_root=False, variables=variables)
        try:
            outcome = self._execute(wanted, shown=shown)
            return outcome, list(records.samples(wanted.run_dir).items())
        finally:
            paths.remove_run_directory(wanted.run_dir)

    def _execute(self, wanted: Request, *, shown: bool) -> Outcome:
        if shown:
            return hostrun.execute(wanted, "looking", verbosity=self._args.verbose)
        return runner.run(wanted, lambda _event: None)


def parse(host: str, day: str, content: bytes) -> Day:
    """The rows of a log; its first line names the columns.

    Raises:
        Failed: it is no such log.
    """
    lines = csv.reader(console.clean(content.decode("utf-8", "replace")).splitlines())
    try:
        columns = next(lines, [])
        if columns[:2] != ["timestamp", "index"]:
            raise Failed(
                f"the log of {day} on {host} begins with {','.join(columns)[:80]!r}, expected timestamp,index",
                ["move the file away: the next minute begins a new one"],
            )
        of = [functools.partial(_value, text=column in _TEXTS) for column in columns]
        rows = [
            [read(cell) for read, cell in zip(of, cells, strict=True)] for cells in lines if len(cells) == len(columns)
        ]
    except csv.Error as error:
        raise Failed(f"the log of {day} on {host} cannot be read: {error}") from None
    return Day(host, day, columns, [row for row in rows if isinstance(row[0], str) and row[0].startswith(day)])


def _value(cell: str, *, text: bool) -> Value:
    if text:
        return cell or None
    if not _NUMBER.fullmatch(cell):
        return None
    number = float(cell)
    return int(number) if number.is_integer() else number
