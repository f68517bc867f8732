# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What hosts measured between each other, judged: which of them is at fault, and which is slower than its like. Pure.

A pair that does not come together has two hosts and one that is at fault. So a host that came together with somebody is not blamed for one
that came together with nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from . import outliers

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

_PAIR = 2
#: Checks of a group; all others of an answer are about the host, and the same in each group.
_OF_GROUP = ("fabric.runs", "fabric.joined", "fabric.results", "fabric.all_reduce", "fabric.all_gather")
_SLOW = (
    "compare its adapters, cables and switch port with those of the others (rate and state in /sys/class/infiniband, ethtool), and the "
    "PCIe slot of the adapter; fabric.network says what was used"
)


class Told(TypedDict):
    """What a host answered in one group, which is of these hosts."""

    hosts: list[str]
    answer: Mapping[str, object]


#: By host, one for each group that it was in.
Answers = Mapping[str, Sequence[Told]]


def able(answers: Answers) -> set[str]:
    """The hosts that came together with at least one other one."""
    return {host for host, every in answers.items() if any(_joined(told) for told in every)}


def judge(answers: Answers) -> dict[str, list[Check]]:
    """The checks of each host."""
    joined = able(answers)
    best = {host: figure for host, every in answers.items() if (figure := _best(every, answers)) is not None}
    slow = _slow(best)
    return {
        host: [
            *_of_groups(host, every, joined),
            # One host can only tell its MTU: what it says is replaced where there are others.
            *_once([*_of_host(every), *_mtu(host, answers)]),
            *_of_pairs(host, best, slow),
        ]
        for host, every in answers.items()
    }


def _checks(told: Told) -> list[Check]:
    found = told["answer"].get("checks")
    if isinstance(found, list):
        return list(found)
    evidence = checks.clean(told["answer"].get("msg"))
    return [
        checks.incomplete(
            "fabric.runs", "the measurement told nothing", evidence=evidence, remedy="run it again with -vv"
        )
    ]


def _joined(told: Told) -> bool:
    return any(check["id"] == "fabric.joined" and check["status"] == "pass" for check in _checks(told))


def _of_groups(host: str, every: Sequence[Told], joined: Collection[str]) -> list[Check]:
    """What was measured in groups: of all together as it is, of pairs what went wrong, or once that nothing did."""
    if not every:
        reason = "there was no other host to measure with"
        return [
            checks.incomplete("fabric.runs", reason, action="configure", remedy="name several hosts in the inventory")
        ]
    found: list[Check] = []
    well: list[Check] = []
    for told in every:
        partners = [other for other in told["hosts"] if other != host]
        of_group = [check for check in _checks(told) if check["id"] in _OF_GROUP]
        if len(told["hosts"]) > _PAIR:
            found += of_group
            continue
        if host in joined and not any(partner in joined for partner in partners):
            continue
        wrong = [check for check in of_group if check["status"] not in ("pass", "skip")]
        found += [_with(check, partners) for check in wrong]
        well += [] if wrong else of_group
    together = {check["id"] for check in found}
    return found + [check for check in _once(well) if check["id"] not in together]


def _with(check: Check, partners: Sequence[str]) -> Check:
    return {**check, "reason": f"with {', '.join(partners)}: {check['reason'] or 'no reason was told'}"}


def _once(found: Iterable[Check]) -> list[Check]:
    """The last check of each name."""
    return list({check["id"]: check for check in found}.values())


def _of_host(every: Sequence[Told]) -> list[Check]:
    """What is about the host itself: what the largest group told, or the last pair."""
    by_size = sorted(every, key=lambda told: len(told["hosts"]))
    return _once(check for told in by_size for check in _checks(told) if check["id"] not in _OF_GROUP)


def _best(every: Sequence[Told], answers: Answers) -> float | None:
    """The best bus bandwidth of its pairs in GB/s: a slow partner is in one of them, the host itself in all."""
    figures = [
        figure
        for told in every
        if len(told["hosts"]) == _PAIR and _joined(told)
        if (figure := _busbw(told["hosts"], answers)) is not None
    ]
    return max(figures, default=None)


def _busbw(hosts: Sequence[str], answers: Answers) -> float | None:
    """Of the largest all_reduce of a pair, which its first host tells."""
    first = next((told for told in answers.get(hosts[0], ()) if told["hosts"] == list(hosts)), None)
    rows = first["answer"].get("collectives") if first else None
    every = [row for row in rows if row.get("kind") == "all_reduce"] if isinstance(rows, list) else []
    largest = max(every, key=lambda row: row["bytes"], default=None)
    return float(largest["busbw_gbs"]) if largest else None


def _slow(best: Mapping[str, float]) -> dict[str, outliers.Outlier] | None:
    """The hosts that are out of line; None where there are too few to say."""
    rows = [
        outliers.Value(host, None, "hosts of this fabric", "fabric.pairs", figure, "GB/s")
        for host, figure in best.items()
    ]
    compared = [each for each in outliers.compare(rows) if each.why_not is None]
    return {outlier["host"]: outlier for outlier in outliers.outliers(compared)} if compared else None


def _of_pairs(host: str, best: Mapping[str, float], slow: Mapping[str, outliers.Outlier] | None) -> list[Check]:
    if host not in best:
        return []
    figure = best[host]
    if slow is None:
        reason = f"told and not judged: it takes {outliers.FEWEST} hosts to say which one is slow, and there is no floor for a fabric"
        return [checks.skipped("fabric.pairs", reason, "warning", measured=figure, unit="GB/s")]
    if host in slow:
        usual = outliers.shown(float(slow[host]["usual"]))
        return [
            checks.failed(
                "fabric.pairs",
                "warning",
                measured=figure,
                expected=slow[host]["usual"],
                unit="GB/s",
                reason=f"its best pair does {outliers.shown(figure)} GB/s, the median of {len(best)} hosts is {usual} GB/s",
                action="check_hardware",
                remedy=_SLOW,
            )
        ]
    reason = f"the best of its pairs, within the line of {len(best)} hosts"
    return [checks.passed("fabric.pairs", "warning", measured=figure, unit="GB/s", reason=reason)]


def _mtu(host: str, answers: Answers) -> list[Check]:
    """An MTU that differs within a network loses what is larger, which shows as a job that hangs: handshakes are small."""
    every = {name: mtu for name, told in answers.items() if (mtu := _mtu_of(told)) is not None}
    if host not in every or len(every) < _PAIR:
        return []
    mine = every[host]
    if len(set(every.values())) == 1:
        return [
            checks.passed(
                "fabric.mtu", "warning", measured=mine, unit="bytes", reason=f"all {len(every)} hosts have it"
            )
        ]
    usual, number = Counter(every.values()).most_common(1)[0]
    agreed = 2 * number > len(every)
    if agreed and mine == usual:
        return [
            checks.passed(
                "fabric.mtu", "warning", measured=mine, unit="bytes", reason=f"{number} of {len(every)} hosts have it"
            )
        ]
    others = ", ".join(f"{name} {mtu}" for name, mtu in sorted(every.items()) if mtu != mine)
    return [
        checks.failed(
            "fabric.mtu",
            "warning",
            measured=mine,
            expected=usual if agreed else None,
            unit="bytes",
            reason="the hosts do not have the same MTU: what is larger than the smaller one can get lost",
            evidence=others,
            action="configure",
            remedy="set the same MTU on the interfaces of all hosts and on the switch",
        )
    ]


def _mtu_of(every: Sequence[Told]) -> int | None:
    found = [check["measured"] for check in _of_host(every) if check["id"] == "fabric.mtu"]
    return next((mtu for mtu in found if isinstance(mtu, int)), None)
