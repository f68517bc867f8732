# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an answer says: the findings of a step, from the JSON that its program printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .running import Finding, Ran

#: Own rule: figures of the same run that are further apart than this are worth a look.
APART = 0.1
#: Own rule: weights, gradients and the optimizer's states are counted to the byte; this leaves room for its step counters.
STATES_APART = 0.02
_GIB = 2**30


def answered(ran: Ran) -> tuple[dict[str, Any], list[Finding]]:
    """The answer, and what is wrong where there is none: it is empty then."""
    document = ran.document()
    if document is None:
        last = (ran.err or ran.out).strip().rpartition("\n")[2]
        return {}, [Finding("failed", f"it printed no answer and ended with {ran.rc}: {last[:300]}")]
    if document.get("missing"):
        return {}, [Finding("incomplete", str(document["missing"]))]
    if document.get("failed"):
        return {}, [Finding("failed", str(document.get("msg")))]
    return document, []


def nothing(_ran: Ran) -> list[Finding]:
    """Of what is kept for whoever reads the rest."""
    return []


def printed(ran: Ran) -> list[Finding]:
    """Of a program whose words are for people: that it ended well."""
    return [] if ran.rc == 0 else [Finding("failed", f"it ended with {ran.rc}: {(ran.out + ran.err).strip()[:300]}")]


def checks(ran: Ran) -> list[Finding]:
    """Of a module: its checks, and values of cards that were no values."""
    answer, found = answered(ran)
    found += judged(answer.get("checks") or [])
    for card in answer.get("gpus") or []:
        found += [
            Finding("differs", f"card {card.get('index')}: {path}: {text}") for path, text in card["errors"].items()
        ]
    unread = {**(answer.get("unknown") or {}), **{key: answer[key] for key in ("problem", "why") if answer.get(key)}}
    return found + [Finding("incomplete", f"{what}: {why}") for what, why in unread.items()]


def judged(found: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """A check that failed differs from a good simulated node, one that is incomplete is incomplete; of the others nothing is told."""
    kinds = {"fail": "differs", "incomplete": "incomplete"}
    return [
        Finding(
            kinds[check["status"]],
            f"{check['id']}{_card(check)}: {check.get('reason') or check.get('remedy') or 'no reason'}",
        )
        for check in found
        if check["status"] in kinds
    ]


def _card(check: Mapping[str, Any]) -> str:
    return f" of {check['gpu']}" if check.get("gpu") else ""


def command(ran: Ran) -> list[Finding]:
    """Of a command with --json: each host's checks, and why it did not answer."""
    answer, found = answered(ran)
    if not answer:
        return found
    if answer.get("error"):
        found.append(Finding("failed", str(answer["error"])))
    found += [Finding("failed", f"{host}: {why}") for host, why in (answer.get("unreachable") or {}).items()]
    for host in (answer.get("hosts") or {}).values():
        found += judged(host.get("checks") or [])
        found += [Finding("note", f"{change['component']}: {change['action']}") for change in host.get("changes") or []]
    if ran.rc and not any(finding.kind != "note" for finding in found):
        found.append(Finding("differs", f"it ended with {ran.rc}, and names no check that failed"))
    return found


def questions(ran: Ran) -> list[Finding]:
    """Of what the log and the exporter ask."""
    answer, found = answered(ran)
    for field, said in (answer.get("fields") or {}).items():
        if said["status"]:
            found.append(Finding("differs", f"the field {field} is refused: {said['text']}"))
    for row in answer.get("rows") or []:
        lacking = [key for key, value in row.items() if value is None and key not in ("problem", "throttle")]
        if lacking or row["problem"]:
            found.append(
                Finding("differs", f"card {row['index']}: no {', '.join(lacking)}; {row['problem'] or 'no error'}")
            )
    if answer and answer["exporter"]["problem"]:
        found.append(Finding("differs", f"the exporter: {answer['exporter']['problem']}"))
    for refused in answer.get("refused") or []:
        if not refused["known"] or not refused["status"]:
            asked, text = " ".join(refused["asked"]), refused["text"].strip()
            found.append(
                Finding(
                    "differs", f"`nvidia-smi {asked}` ended with {refused['status']}, in words not known here: {text}"
                )
            )
    return found


def driver(ran: Ran) -> list[Finding]:
    """Of what libcuda returns."""
    answer, found = answered(ran)
    if answer.get("failure"):
        found.append(Finding("failed", f"libcuda: {answer['failure']}"))
    for what, said in (answer.get("codes") or {}).items():
        if said["code"] != said["expected"]:
            found.append(
                Finding(
                    "differs", f"{what}: it returns {said['code']} ({said['name']}), expected was {said['expected']}"
                )
            )
    return found + programs(answer)


def assembled(ran: Ran) -> list[Finding]:
    """Of ptxas."""
    answer, found = answered(ran)
    return found + programs(answer)


def programs(answer: Mapping[str, Any]) -> list[Finding]:
    """Programs that were not compiled, or with words."""
    return [
        Finding("differs", f"{name} is not compiled ({said['code']}): {said['words'].strip()[:300]}")
        for name, said in (answer.get("programs") or {}).items()
        if said["code"]
    ]


def beside(load: Mapping[str, Any], ran: Ran) -> list[Finding]:
    """The load's figures beside a product by hand."""
    answer, found = answered(ran)
    for device in (load.get("devices") or [])[:1]:
        for precision, by_load in device["tflops"].items():
            by_hand = (answer.get("tflops") or {}).get(precision)
            if by_hand is None:
                continue
            kind = "note" if abs(by_load / by_hand - 1) <= APART else "differs"
            found.append(Finding(kind, f"{precision}: {by_load:.1f} TFLOPS by the load, {by_hand:.1f} by hand"))
    if answer and not found:
        found.append(Finding("incomplete", "the load has no figure to hold this against"))
    return found


def memory(size: Mapping[str, Any], ran: Ran) -> list[Finding]:
    """What `size --here` counts beside what PyTorch took."""
    answer, found = answered(ran)
    answers = [each for host in (size.get("hosts") or {}).values() for each in host["answers"]]
    if not answer or not answers:
        return found or [Finding("incomplete", "`size --here` had no answer to hold this against")]
    counted = {row["name"]: row for row in answers[0]["memory"]}
    for name in ("weights", "gradients", "optimizer"):
        value = counted[name]["value"]
        kind = "note" if abs(answer[name] / value - 1) <= STATES_APART else "differs"
        found.append(Finding(kind, f"{name}: {value / _GIB:.2f} GiB counted, {answer[name] / _GIB:.2f} GiB taken"))
    needed = answers[0]["needed"]
    kind = "note" if needed["low"] <= answer["taken"] <= needed["high"] else "differs"
    span = f"{needed['low'] / _GIB:.2f} to {needed['high'] / _GIB:.2f} GiB"
    found.append(
        Finding(
            kind,
            f"on the card: {span} counted, {answer['taken'] / _GIB:.2f} GiB taken (allocator's peak {answer['peak_allocated'] / _GIB:.2f})",
        )
    )
    return found
