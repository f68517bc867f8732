# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of a node that watches itself, run by a timer: look, judge, write the metrics, and tell what changed.

It changes nothing on the node beside its own record and its metrics. Exit status: 0 all was done; 1 something could not be, and the journal
says what. With --try it looks at nothing and sends a message, so that somebody sees whether it arrives.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as running
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log
from ansible_collections.gpuwright.node.plugins.module_utils.observe import machine
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.module_utils.watch import (
    judge,
    metrics,
    nvlink,
    record,
    settings,
    tell,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event, Log, Seen
    from ansible_collections.gpuwright.node.plugins.module_utils.watch.settings import Settings

# As journald takes a line's priority (sd-daemon(3)).
ERROR, WARNING, NOTICE = "<3>", "<4>", "<5>"
_SMI = "nvidia-smi"


class Around(NamedTuple):
    """What a turn goes by that a test has of its own: how it looks, and how it tells."""

    host: Host
    look: Callable[[Host], Facts]
    log: Callable[[], Log]
    webhook: Callable[[str, tell.Message], None]
    mail: Callable[[str, Optional[str], tell.Message], None]
    say: Callable[[str], None]


def turn(around: Around) -> int:
    """One turn."""
    host = around.host
    try:
        wished = settings.read(host)
    except settings.SettingsError as error:
        around.say(f"{ERROR}{error}")
        return 1
    before = record.read(host)
    runs = run_lock.runs(host)
    facts = around.look(host)
    seen = _seen(facts, around.log, before)
    found = judge.judge(facts, wished, seen)
    events: List[Event] = seen["events"] if seen else []
    # A run at work, also one that began or ended meanwhile, changes what is judged here: what it leaves is judged at the next turn.
    at_work = run_lock.is_living(host, facts["lock"]) or run_lock.runs(host) != runs
    proven = None if at_work else record.is_proven(found)
    links = nvlink.look(host, facts)
    look = metrics.Look(facts, wished, found, events, links, proven, len(before["waiting"]))
    done = [_metrics(around, look)]
    after = before.copy()
    messages: List[tell.Message] = []
    if not at_work:
        after, messages = record.judged(before, found, facts["hostname"] or "this machine", facts["time"])
    after["boot"], after["events"] = facts["boot"]["id"], events
    done.append(_tell(around, wished, after, messages))
    done.append(_keep(around, after))
    return 0 if all(done) else 1


def _seen(facts: Facts, read: Callable[[], Log], before: record.Record) -> Optional[Seen]:
    """The errors of the kernel log; None where that is another machine's."""
    if facts["environment"]["kind"] not in judge.OWN_KERNEL:
        return None
    log = read()
    now = kernel_log.events(log.lines)
    events = record.seen(before, facts["boot"]["id"], now["events"], whole=log.whole)
    # What an earlier turn read is known although the log has nothing of it any more.
    lines = max(len(log.lines), len(events))
    return {
        "events": events,
        "earlier": now["earlier"],
        "more": now["more"],
        "lines": lines,
        "whole": log.whole,
        "why": log.why,
    }


def _metrics(around: Around, look: metrics.Look) -> bool:
    directory = look.settings["textfile_directory"]
    try:
        metrics.write(around.host.at(directory), metrics.text(look))
    except OSError as error:
        around.say(f"{ERROR}{directory}/{paths.METRICS_FILE} cannot be written: {error.strerror or error}")
        return False
    return True


def _keep(around: Around, after: record.Record) -> bool:
    try:
        record.write(around.host, after)
    except OSError as error:
        around.say(f"{ERROR}{paths.WATCH} cannot be written: {error.strerror or error}")
        return False
    return True


def _tell(around: Around, wished: Settings, after: record.Record, messages: List[tell.Message]) -> bool:
    """A line for each message, then whoever wished to be told, what waits from earlier turns first; whether all were."""
    for message in messages:
        level = NOTICE if message["state"] == record.PROVEN and not message["reasons"] else WARNING
        remedy = f"; what to do: {message['remedy']}" if message["remedy"] else ""
        around.say(f"{level}{message['text']}{remedy}")
    senders, problem = _senders(around, wished)
    new: List[record.Waiting] = [{"message": message, "ways": sorted(senders)} for message in messages]
    after["waiting"], wrong = record.send([*after["waiting"], *new], senders)
    if problem and problem not in wrong:
        around.say(f"{WARNING}{problem}")
    for each in wrong:
        around.say(f"{WARNING}not everybody was told: {each}; it is tried again at the next turn")
    return not (wrong or problem)


def trial(around: Around) -> int:
    """Send a message that says nothing, each way that was wished, and say what became of it."""
    try:
        senders, _problem = _senders(around, settings.read(around.host))
    except settings.SettingsError as error:
        around.say(str(error))
        return 1
    ways = sorted(senders)
    message = record.trial(os.uname().nodename, seals.iso(time.time()))
    _left, wrong = record.send([{"message": message, "ways": ways}], senders)
    sent = f"sent: {', '.join(ways)}" if ways else "nobody is told: neither watch_webhook nor watch_mail is set"
    around.say("\n".join(wrong) or sent)
    return 1 if wrong else 0


def _senders(around: Around, wished: Settings) -> Tuple[Dict[str, tell.Sender], Optional[str]]:
    """What sends, by the way that it does, and why nothing can be sent to the webhook; None where it can, or nobody wished it."""
    # A mail for each person: where a server refuses one of two, the other one would get a mail for both again at each turn.
    senders: Dict[str, tell.Sender] = {
        f"mail to {person}": partial(around.mail, person, wished["smtp"]) for person in wished["mail"]
    }
    try:
        address = settings.webhook(around.host)
    except settings.SettingsError as error:
        problem = str(error)

        def untold(_message: tell.Message) -> None:
            raise tell.UntoldError(problem)

        return {**senders, "webhook": untold}, problem
    return ({**senders, "webhook": partial(around.webhook, address)} if address else senders), None


def run_unless_held(argv: List[str], timeout: float = machine.TIMEOUT) -> Result:
    """Run a program. Where an nvidia-smi hangs in the kernel no other one is begun beside it, and where every card sleeps none is: its
    answer is that.
    """
    asks = argv[0].rpartition("/")[2] == _SMI
    if asks and run.asleep():
        return Result(None, "", "", 0.0, run.ASLEEP)
    pid = run.held() if asks else None
    if pid is not None:
        return Result(None, "", "", 0.0, f"an nvidia-smi (process {pid}) hangs in the kernel")
    return running.run(argv, timeout=timeout)


def main(arguments: Sequence[str] = (), root: str = "/") -> int:
    """One turn on this machine, or a trial."""
    host = Host(root=root, timeout=machine.TIMEOUT, runner=run_unless_held)

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")

    around = Around(host, machine.observe, kernel_log.read, tell.webhook, tell.mail, say)
    return trial(around) if list(arguments) == ["--try"] else turn(around)
