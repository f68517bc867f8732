# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the node saw last: what was told of it, the errors of the cards since the boot, and who has yet to be told. Root's record alone.

What is wrong is told once, until it is told that all of it is over; that is told twice a day at most, so that a node which comes and goes
does not fill a mailbox. What could not be sent waits in the record for the next turn, in the order in which it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.ages import age
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import sealing, seals
from ansible_collections.gpuwright.node.plugins.module_utils.watch import judge, tell

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event

SCHEMA = 1
PROVEN, NOT_PROVEN = "proven", "not proven"
#: How often it is told within a day that the node is proven again.
MOST_RETURNS = 2
_DAY = 24 * 3600
#: Reasons that are told of one change, and messages that wait.
MOST_REASONS = 10
MOST_WAITING = 20
_LONGEST = 400
_HELD_BACK = (
    f"it came back {MOST_RETURNS} times within a day: when it does so again, that is told a day after the first of them"
)


class Waiting(TypedDict):
    """A message, and by what it has yet to be told."""

    message: tell.Message
    ways: List[str]


class Record(TypedDict):
    """The record. ``told``: what is wrong, as it was told since the node was last told to be proven; ``returns``: when that was, for a
    day; ``notices``: what was told although the node stays proven; ``events``: errors of the kernel log of the boot ``boot``.
    """

    schema: int
    told: List[str]
    returns: List[str]
    notices: List[str]
    waiting: List[Waiting]
    boot: Optional[str]
    events: List[Event]


def empty() -> Record:
    """The record of a node that never looked."""
    return {"schema": SCHEMA, "told": [], "returns": [], "notices": [], "waiting": [], "boot": None, "events": []}


def read(host: Host) -> Record:
    """The record; an empty one where there is none, or one that cannot be read: then a state that is not proven is told anew."""
    try:
        found = seals.read_object(host, paths.WATCH)
    except seals.SealError:
        return empty()
    if found is None or found.get("schema") != SCHEMA or found.keys() != empty().keys():
        return empty()
    return cast("Record", found)


def write(host: Host, record: Record) -> None:
    """Keep the record, whole or not at all. Raises OSError."""
    sealing.write_object(host, paths.WATCH, record, 0o755)


def seen(before: Record, boot: Optional[str], now: Sequence[Event], *, whole: bool) -> List[Event]:
    """The errors of this boot. The kernel's log forgets what came first: where it does not go back to the beginning, what an earlier turn
    saw counts on.
    """
    if whole or boot is None or before["boot"] != boot:
        return list(now)
    merged: Dict[Tuple[str, int, str], Event] = {_key(event): event for event in before["events"]}
    for event in now:
        known = merged.get(_key(event))
        if known is not None:
            more: Event = event.copy()
            more["count"], more["fatal"] = max(event["count"], known["count"]), event["fatal"] or known["fatal"]
            event = more  # noqa: PLW2901 - the same error, with what is known of it
        merged[_key(event)] = event
    return list(merged.values())


def _key(event: Event) -> Tuple[str, int, str]:
    return event["kind"], event["code"], event["bus_id"]


def is_proven(found: Sequence[Check]) -> bool:
    """Whether the quick checks leave the node proven: none failed, none could not be made, one passed."""
    return checks.verdict(found) == "pass"


def judged(before: Record, found: Sequence[Check], host: str, now: str) -> Tuple[Record, List[tell.Message]]:
    """The record after a turn, and what there is to tell: what is newly wrong, that all is well again, what newly needs an update.
    Nothing on a first turn that finds all well.
    """
    after, messages = before.copy(), []
    after["returns"] = [when for when in before["returns"] if _within_a_day(when, now)]
    may_return = len(after["returns"]) < MOST_RETURNS
    state = PROVEN if is_proven(found) else NOT_PROVEN
    bad = checks.worst_first(check for check in found if check["status"] in ("fail", "incomplete"))
    new = [check for check in bad if _key_of(check) not in before["told"]]
    if new:
        after["told"] = before["told"] + [_key_of(check) for check in new]
        last = [] if may_return else [_HELD_BACK]
        messages.append(_message(host, now, state, new, f"{host} is {state}", last))
    elif state == PROVEN and before["told"] and may_return:
        after["told"], after["returns"] = [], [*after["returns"], now]
        messages.append(_message(host, now, state, [], f"{host} is {state}"))
    notices = noticed(found)
    fresh = [check for check in notices if check["id"] not in before["notices"]]
    if fresh:
        messages.append(_message(host, now, state, fresh, f"{host} needs an update"))
    after["notices"] = [check["id"] for check in notices]
    return after, messages


def _within_a_day(when: str, now: str) -> bool:
    passed = age(when, now)
    return passed is not None and 0 <= passed.total_seconds() < _DAY


def _key_of(check: Check) -> str:
    """What a check is known by that was told; one that got worse is another one."""
    return f"{check['id']} {check['gpu'] or ''} {check['status']} {check['severity']}"


def noticed(found: Sequence[Check]) -> List[Check]:
    """The checks that ask for an update and leave the node proven."""
    return [check for check in found if check["id"] in judge.NOTICES and check["status"] == "warn"]


def _message(
    host: str, now: str, state: str, bad: Sequence[Check], title: str, last: Sequence[str] = ()
) -> tell.Message:
    reasons = [_sentence(check) for check in bad[:MOST_REASONS]]
    if len(bad) > MOST_REASONS:
        reasons.append(f"and {len(bad) - MOST_REASONS} more: gpuwright doctor names them")
    reasons += last
    remedy = next((check["remedy"] for check in bad if check["remedy"]), None)
    text = f"{title}: {'; '.join(reasons)}" if reasons else title
    return {
        "host": host,
        "time": now,
        "state": state,
        "title": title,
        "reasons": reasons,
        "remedy": remedy,
        "text": text,
    }


def trial(host: str, now: str) -> tell.Message:
    """A message that says nothing of the node, for somebody who wants to see it arrive."""
    return _message(host, now, "trial", [], f"{host}: a trial of gpuwright's watch")


def _sentence(check: Check) -> str:
    card = f" of card {check['gpu']}" if check["gpu"] is not None else ""
    return (checks.clean(f"{check['id']}{card}: {check['reason'] or check['status']}", _LONGEST) or "").replace(
        "\n", " "
    )


def send(waiting: Sequence[Waiting], senders: Mapping[str, tell.Sender]) -> Tuple[List[Waiting], List[str]]:
    """Tell what waits, and return what still does, with what went wrong. After a failure the rest of that way waits: order is kept.

    A way that nobody wishes any more is dropped.
    """
    left: List[Waiting] = []
    broken: Dict[str, str] = {}
    for each in waiting:
        ways = []
        for way in each["ways"]:
            if way not in senders:
                continue
            if way not in broken:
                try:
                    senders[way](each["message"])
                except tell.UntoldError as error:
                    broken[way] = str(error)
            if way in broken:
                ways.append(way)
        if ways:
            left.append({"message": each["message"], "ways": ways})
    return left[-MOST_WAITING:], list(broken.values())
