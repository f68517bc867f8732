# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what cards did under the load of PyTorch, against the card's data sheet and the floors that are known of it.

Pure. A result is judged always, a figure only where a floor is known (compat/floors.yaml, each row with its source): else it is told in a
skipped check, with the data sheet's figure beside it. A floor that no source confirms only warns.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework, framework_load
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load import Device, Step

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Floor(TypedDict, total=False):
    """The least that a healthy card does.

    ``what`` is a figure (tflops_fp32, bandwidth, host_device, peer, all_reduce, all_gather), ``value`` in its unit, ``cards`` how many it
    holds for (None: any number), ``confirmed`` whether a source was read, ``source`` that source.
    """

    what: str
    value: float
    cards: Optional[int]
    confirmed: bool
    source: str


class Expected(TypedDict, total=False):
    """What is known of the card in one place: data sheet (dense; GB/s, NVLink both directions together) and floors."""

    bus_id: str
    name: str
    tflops: Dict[str, float]
    bandwidth_gbs: Optional[float]
    nvlink_gbs: Optional[float]
    pcie_gbs: Optional[float]
    floors: List[Floor]


#: The largest deviation of a product from double precision, against the root of the mean square of what is right: some times what rounding
#: factors and result to that precision makes of 8192 products (`assumed`; measured on the processor: fp32 1e-6, bf16 7e-3). What is
#: computed in TF32 where FP32 was asked for is beyond that of fp32.
DEVIATION = {"fp64": 1e-10, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 4e-2, "fp8": 1e-1}
#: More than this times the data sheet was not measured but miscounted (`assumed`; cards boost beyond the clock of their data sheet).
IMPOSSIBLE = 1.5
#: Steps of training that say something of its speed and its loss (`assumed`).
LEAST_STEPS = 5
#: A step that waits longer for its data starves the card (`assumed`, so that it only warns): a share of the time.
WAITING = 0.5

_AGAIN = "prove again; if it stays wrong, take the card out of use"
_SLOW = (
    "look at the checks gpu.* for clocks that are held back, heat, power and the PCIe link, and whether something else used the machine; "
    "then prove again"
)
# What ends a part that says nothing of the card.
_MEMORY = "out of memory"


def judge_device(device: Device, answer: run.Result, what: Sequence[str], expected: Optional[Expected]) -> List[Check]:
    """The checks of one run of :func:`framework_load.ask_card`."""
    steps = framework_load.steps_of(answer.out)
    broken = not_begun(device.gpu, answer, steps)
    if broken:
        return [broken]
    parts = [part for part in framework_load.OF_A_CARD if part in what]
    expected = expected if device.kind == "card" else None
    found: List[Check] = []
    for part in parts:
        if part == "host_device" and device.kind == "processor":
            found.append(checks.skipped("load.host_device", "there is no card to copy to"))
            continue
        ended = _ended_early(part, device.gpu, answer, steps)
        mine = [step for step in steps if step["step"] == _STEP_OF.get(part, part)]
        found += _OF_A_CARD[part](device, mine, expected)
        found += [ended] if ended else [] if mine else [_nothing_told(part, device.gpu)]
    return found + _results(device.gpu, steps)


def judge_pairs(devices: Sequence[Device], answer: run.Result, expected: Mapping[str, Expected]) -> List[Check]:
    """``load.peer`` of each ordered pair of cards, of one run of :func:`framework_load.ask_pairs`."""
    steps = framework_load.steps_of(answer.out)
    broken = not_begun(None, answer, steps)
    if broken:
        return [broken]
    told = {
        (int(step["first"]), step["second"]): step
        for step in steps
        if step["step"] == "peer" and framework_load.is_pair(step, len(devices))
    }
    found = [_pair(devices[int(step["first"])], devices[step["second"]], step, expected) for step in told.values()]
    ended = _ended_early("peer", None, answer, steps)
    missing = len(devices) * (len(devices) - 1) - len(told)
    if ended:
        found.append(ended)
    elif missing:
        found.append(
            checks.incomplete(
                "load.peer",
                f"{words.count(missing, 'pairs')} of cards {words.verb(missing, 'were')} not measured",
                remedy="prove again",
            )
        )
    return found + _results(None, steps)


def judge_all(
    devices: Sequence[Device], answer: run.Result, what: Sequence[str], expected: Mapping[str, Expected]
) -> List[Check]:
    """``nccl.all_reduce``, ``nccl.all_gather`` and ``train.ddp`` of one run of :func:`framework_load.ask_all`."""
    steps = framework_load.steps_of(answer.out)
    broken = not_begun(None, answer, steps)
    if broken:
        return [broken]
    wished = [part for part in framework_load.OF_ALL if part in what]
    ended = _ended_early("group", None, answer, steps) if not any(step["step"] == "group" for step in steps) else None
    if ended:
        # What the ranks do together begins with finding each other.
        return [ended]
    found: List[Check] = []
    for part in wished:
        ended = _ended_early(part, None, answer, steps)
        if part == "collectives":
            mine = _collectives(devices, steps, expected)
        else:
            mine = [_trained("train.ddp", None, step) for step in steps if step["step"] == "training"]
        found += mine
        found += [ended] if ended else [] if mine else [_nothing_told(part, None)]
    return found + _results(None, steps)


def skipped(what: Sequence[str], reason: str) -> List[Check]:
    """The checks of parts that do not apply here."""
    return [checks.skipped(check_id, reason) for part in what for check_id in _IDS[part]]


# --- what kept it from being measured ---------------------------------------------------------------------------------

_IDS: Dict[str, Tuple[str, ...]] = {
    "tflops": ("load.tflops",),
    "bandwidth": ("load.bandwidth",),
    "host_device": ("load.host_device",),
    "train": ("train.step",),
    "peer": ("load.peer",),
    "group": ("load.runs",),
    "collectives": ("nccl.all_reduce", "nccl.all_gather"),
    "ddp": ("train.ddp",),
}
_STEP_OF = {"train": "training", "ddp": "training", "collectives": "collective"}


def not_begun(gpu: Optional[str], answer: run.Result, steps: Sequence[Step]) -> Optional[Check]:
    """``load.runs`` where no part was begun: the interpreter, the import or the card failed."""
    if any(step["step"] == "begin" for step in steps):
        return None
    error = next((step["error"] for step in steps if "error" in step), None)
    if not any(step["step"] == "start" for step in steps):
        user = next((step for step in steps if step["step"] == "user"), None)
        if user:
            return _shut(gpu, user["closed"], answer)
        return checks.incomplete(
            "load.runs",
            "the environment's interpreter did not run the program",
            gpu=gpu,
            evidence=said(answer),
            action="install",
            remedy="see the check framework.import",
        )
    if error is None:
        return _broken_off("load.runs", gpu, answer)
    imported = any(step["step"] == "import" and "error" not in step for step in steps)
    if not imported:
        return checks.incomplete(
            "load.runs",
            "PyTorch cannot be imported",
            gpu=gpu,
            evidence=error,
            action="install",
            remedy="see framework.import",
        )
    cause, action, remedy = framework.cuda_trouble(error)
    return checks.incomplete(
        "load.runs", f"no card could be used: {cause}", gpu=gpu, evidence=error, action=action, remedy=remedy
    )


def _shut(gpu: Optional[str], closed: str, answer: run.Result) -> Check:
    """``load.runs`` of ranks that root started and that are an ordinary user's, where that user got no further."""
    if not closed:
        reason, remedy = "an ordinary user cannot run the environment's interpreter", "see framework.user"
        return checks.incomplete("load.runs", reason, gpu=gpu, evidence=said(answer), action="configure", remedy=remedy)
    return checks.incomplete(
        "load.runs",
        "ranks, which others can reach, are run as an ordinary user, who may not open devices of this host",
        gpu=gpu,
        evidence=closed[:500],
        action="configure",
        remedy="open them (chmod o+rw on what is named, which holds until the next boot), then prove again",
    )


def _ended_early(part: str, gpu: Optional[str], answer: run.Result, steps: Sequence[Step]) -> Optional[Check]:
    """Why a part did not come to its end; None where it did."""
    check_id = _IDS[part][0]
    rank = next((step for step in steps if step["step"] == "rank"), None)
    for step in steps:
        if step["step"] == "broken" and step["part"] == part:
            # What a rank says that lost another one is not the cause. Where it is ended by an abort, its own words tell more.
            lost = rank is not None and rank["status"] < 0 and rank["status"] != -signal.SIGABRT
            return _broken_off(check_id, gpu, answer, rank) if lost else _stopped(check_id, gpu, step["error"])
    if part != "group" and any(step["step"] == "done" and step["part"] == part for step in steps):
        return None
    if not any(step["step"] == "begin" and step["part"] == part for step in steps):
        return checks.incomplete(
            check_id, "it was not begun: what came before broke off", gpu=gpu, remedy="see the other checks"
        )
    return _broken_off(check_id, gpu, answer, rank)


def _nothing_told(part: str, gpu: Optional[str]) -> Check:
    return checks.incomplete(_IDS[part][0], "it ended without a figure", gpu=gpu, remedy="prove again")


def _stopped(check_id: str, gpu: Optional[str], error: str) -> Check:
    """A part that raised: for want of memory nothing is said of the card, any other error is one of it."""
    if _MEMORY in error.lower():
        return checks.incomplete(
            check_id,
            "there was too little memory to measure it",
            gpu=gpu,
            evidence=error,
            action="restart_app",
            remedy="end what uses the memory, then prove again",
        )
    return checks.failed(
        check_id,
        gpu=gpu,
        reason="it ended with an error",
        evidence=error,
        action="reboot",
        remedy="read the kernel log for Xid messages, then prove again",
    )


def _broken_off(check_id: str, gpu: Optional[str], answer: run.Result, rank: Optional[Step] = None) -> Check:
    status = answer.rc if rank is None else rank["status"]
    who = "it" if rank is None else f"the process of rank {rank['rank']}"
    ended = (
        f"was killed by signal {-status}" if isinstance(status, int) and status < 0 else f"ended with status {status}"
    )
    return checks.failed(
        check_id,
        gpu=gpu,
        reason=f"it broke off: {answer.error if answer.error else who + ' ' + ended}",
        evidence=said(answer),
        action="reboot",
        remedy="read the kernel log for Xid messages and for the out-of-memory killer, then prove again",
    )


def said(answer: run.Result) -> Optional[str]:
    """The end of what a program printed, its errors first."""
    return next((text[-500:] for text in (answer.err, answer.out, answer.error or "") if text.strip()), None)


# --- results ----------------------------------------------------------------------------------------------------------


def _results(gpu: Optional[str], steps: Sequence[Step]) -> List[Check]:
    """``load.results``: whether what was computed and copied is right, whatever its speed."""
    found: List[Tuple[str, bool]] = []
    for step in steps:
        name = " ".join(str(step[key]) for key in ("precision", "kind") if key in step)
        if step["step"] == "tflops" and "error" not in step:
            deviation = framework_load.number(step.get("deviation"))
            limit = DEVIATION.get(step["precision"])
            found.append(
                (f"a product in {name}", deviation is not None and limit is not None and abs(deviation) <= limit)
            )
        elif "right" in step and "error" not in step:
            found.append((f"{step['step']} {name}".strip(), step["right"]))
    if not found:
        return []
    wrong = [name for name, right in found if not right]
    rest: checks.Rest = {"gpu": gpu, "measured": len(wrong), "expected": 0, "unit": "wrong results"}
    if not wrong:
        return [
            checks.passed(
                "load.results",
                "fatal",
                reason=f"{words.count(len(found), 'results', 'are')} right",
                **rest,
            )
        ]
    return [
        checks.failed(
            "load.results",
            "fatal",
            reason="wrong: " + ", ".join(wrong[:10]),
            action="check_hardware",
            remedy=_AGAIN,
            **rest,
        )
    ]


# --- figures ----------------------------------------------------------------------------------------------------------


class _Figure(TypedDict):
    """A figure that is held against what is known: its value, what the card can do at the most by its data sheet, and its floor."""

    id: str
    what: str
    gpu: Optional[str]
    value: float
    unit: str
    most: Optional[float]
    told: str


def _judge(figure: _Figure, expected: Optional[Expected], cards: int = 1) -> Check:
    floor = _floor(expected, figure["what"], cards)
    most = figure["most"]
    limits = {"floor": floor["value"] if floor else None, "data_sheet": most}
    rest: checks.Rest = {
        "gpu": figure["gpu"],
        "measured": framework_load.rounded(figure["value"]),
        "unit": figure["unit"],
        "expected": {key: value for key, value in limits.items() if value is not None} or None,
    }
    reason = figure["told"] + (f", {figure['value'] / most:.0%} of the data sheet" if most else "")
    if most and figure["value"] > IMPOSSIBLE * most:
        return checks.incomplete(
            figure["id"],
            "more was measured than the card can do: either the data sheet is another card's or the clock was wrong",
            remedy="compare the card's name with gpu.model, then prove again",
            **rest,
        )
    if floor is None:
        name = (expected or {}).get("name") or "this one"
        return checks.skipped(
            figure["id"],
            f"{reason}; no floor is known for a card as {name}, so it is told and not judged",
            "info",
            **rest,
        )
    ok = figure["value"] >= floor["value"]
    return checks.judged(
        figure["id"],
        ok,
        "critical" if floor.get("confirmed") else "warning",
        reason=reason if ok else f"slower than a healthy card: {reason}",
        evidence=f"floor by {floor.get('source')}",
        action="check_hardware",
        remedy=_SLOW,
        **rest,
    )


def _floor(expected: Optional[Expected], what: str, cards: int) -> Optional[Floor]:
    """The floor of a figure for so many cards; None where none is known."""
    for floor in (expected or {}).get("floors") or []:
        if floor["what"] == what and floor.get("cards") in (None, cards):
            return floor
    return None


def _unmeasured(check_id: str, gpu: Optional[str], error: str, told: str) -> Check:
    check = _stopped(check_id, gpu, error)
    check["reason"] = f"{told}: {check['reason']}"
    return check


def _tflops(device: Device, steps: Sequence[Step], expected: Optional[Expected]) -> List[Check]:
    """``load.tflops_…`` of each precision."""
    found = []
    for step in steps:
        precision = step["precision"]
        if precision not in DEVIATION:
            continue
        if "error" in step:
            found.append(_unmeasured(f"load.tflops_{precision}", device.gpu, step["error"], precision))
            continue
        size = step["size"]
        found.append(
            _judge(
                {
                    "id": f"load.tflops_{precision}",
                    "what": f"tflops_{precision}",
                    "gpu": device.gpu,
                    "value": framework_load.tflops(step),
                    "unit": "TFLOPS",
                    "most": ((expected or {}).get("tflops") or {}).get(precision),
                    "told": f"products of {size} × {size} in {precision}, the median of {step['repeats']}",
                },
                expected,
            )
        )
    return found


def _bandwidth(device: Device, steps: Sequence[Step], expected: Optional[Expected]) -> List[Check]:
    """``load.bandwidth``: what the memory did at the most, in copying or in the triad of STREAM."""
    if not steps:
        return []
    rates = {step["kind"]: framework_load.rate(step["bytes"], step["seconds"]) for step in steps}
    most = (expected or {}).get("bandwidth_gbs")
    told = ", ".join(f"{kind[:20]} {rate:.4g}" for kind, rate in list(rates.items())[:4])
    best = max(rates.values())
    return [
        _judge(
            {
                "id": "load.bandwidth",
                "what": "bandwidth",
                "gpu": device.gpu,
                "value": best,
                "unit": "GB/s",
                "most": most,
                "told": told,
            },
            expected,
        )
    ]


def _host_device(device: Device, steps: Sequence[Step], expected: Optional[Expected]) -> List[Check]:
    """``load.host_device``: the slower direction between the card and the memory of its own NUMA node; the other nodes are told."""
    found = [
        _unmeasured("load.host_device", device.gpu, step["error"], f"NUMA node {step.get('node')}")
        for step in steps
        if "error" in step
    ]
    for step in steps:
        if "error" in step or not step["local"]:
            continue
        up, down = (framework_load.rate(step["bytes"], seconds) for seconds in (step["to_device"], step["from_device"]))
        node = "" if step.get("node") is None else f"NUMA node {step.get('node')}: "
        told = f"{node}to the card {up:.4g}, from it {down:.4g}, both at once {framework_load.rate(2 * step['bytes'], step['both']):.4g}"
        figure: _Figure = {
            "id": "load.host_device",
            "what": "host_device",
            "gpu": device.gpu,
            "value": min(up, down),
            "unit": "GB/s",
            "most": (expected or {}).get("pcie_gbs"),
            "told": told + _far(steps),
        }
        found.append(_judge(figure, expected))
    return found


def _far(steps: Sequence[Step]) -> str:
    """The slowest of the other NUMA nodes, in words."""
    rates = {
        step.get("node"): framework_load.rate(step["bytes"], max(step["to_device"], step["from_device"]))
        for step in steps
        if "error" not in step and not step["local"]
    }
    if not rates:
        return ""
    node, slowest = min(rates.items(), key=lambda item: item[1])
    return f"; from the other nodes {slowest:.4g} at the least (node {node})"


def _train(device: Device, steps: Sequence[Step], _expected: Optional[Expected]) -> List[Check]:
    """``train.step``, and ``train.data`` for the share of its time that it waited for data."""
    found: List[Check] = []
    for step in steps:
        found += [_trained("train.step", device.gpu, step), _waited(device, step)]
    return found


def _pair(first: Device, second: Device, step: Step, expected: Mapping[str, Expected]) -> Check:
    gpu = f"{first.number} to {second.number}"
    if "error" in step:
        return _unmeasured("load.peer", gpu, step["error"], f"from {first.gpu} to {second.gpu}")
    row = expected.get(str(first.bus_id))
    nvlink = (row or {}).get("nvlink_gbs")
    way = "directly" if step["direct"] else "through the host's memory"
    return _judge(
        {
            "id": "load.peer",
            "what": "peer",
            "gpu": gpu,
            "value": framework_load.rate(step["bytes"], step["seconds"]),
            "unit": "GB/s",
            # One direction of the link; what goes another way is held against nothing.
            "most": nvlink / 2 if nvlink and step["direct"] else None,
            "told": f"from {first.gpu} to {second.gpu}, {way}",
        },
        row,
    )


def _collectives(devices: Sequence[Device], steps: Sequence[Step], expected: Mapping[str, Expected]) -> List[Check]:
    """``nccl.all_reduce`` and ``nccl.all_gather``: the bus bandwidth of the largest size."""
    found: List[Check] = []
    rows = framework_load.collectives_of(steps)
    for kind in ("all_reduce", "all_gather"):
        mine = [row for row in rows if row["kind"] == kind]
        if not mine:
            continue
        largest = max(mine, key=lambda row: int(str(row["bytes"])))
        told = f"{words.count(largest['ranks'], 'ranks')}, {int(str(largest['bytes'])) >> 20} MiB, algbw {largest['algbw_gbs']}"
        if not devices:
            reason = f"measured by {largest['backend']} on the processor ({told}): NCCL needs cards"
            found.append(checks.skipped(f"nccl.{kind}", reason, measured=largest["busbw_gbs"], unit="GB/s"))
            continue
        row = _of_all(devices, expected)
        figure: _Figure = {
            "id": f"nccl.{kind}",
            "what": kind,
            "gpu": None,
            "value": float(str(largest["busbw_gbs"])),
            "unit": "GB/s",
            # Switches that add up on their way (NVLink SHARP) let all_reduce go beyond a link.
            "most": None
            if kind == "all_reduce" or not row or not row.get("nvlink_gbs")
            else float(row["nvlink_gbs"] or 0) / 2,
            "told": f"busbw of {told}",
        }
        found.append(_judge(figure, row, len(devices)))
    return found


def _of_all(devices: Sequence[Device], expected: Mapping[str, Expected]) -> Optional[Expected]:
    """What is known of the cards where all are of one model; None where they differ."""
    rows = [expected.get(str(device.bus_id)) for device in devices]
    names = {(row or {}).get("name") for row in rows}
    return rows[0] if len(names) == 1 else None


def _trained(check_id: str, gpu: Optional[str], step: Step) -> Check:
    """Whether training learns: a finite loss that falls, and with several ranks parameters that are the same on all of them."""
    told = framework_load.training_of(step)
    rest: checks.Rest = {"gpu": gpu, "measured": told["tflops"], "unit": "TFLOPS"}
    text = (
        f"a step takes {told['step_seconds']} s in {told['precision']} with {words.count(told['ranks'], 'ranks')}, "
        f"{told['waiting_share']:.0%} of it waiting for data; the loss went from {told['loss_first']} to {told['loss_last']}"
    )
    first, last = framework_load.number(step.get("first")), framework_load.number(step.get("last"))
    wrong = None
    if not step["finite"] or first is None or last is None:
        wrong = "the loss is no number any more"
    elif step["ranks"] > 1 and framework_load.number(step.get("drift")) != 0:
        wrong = f"the parameters differ between the ranks (by {step.get('drift')})"
    elif step["steps"] >= LEAST_STEPS and last >= first:
        wrong = "the loss does not fall"
    if wrong:
        return checks.failed(
            check_id, "fatal", reason=f"{wrong}: {text}", action="check_hardware", remedy=_AGAIN, **rest
        )
    if step["steps"] < LEAST_STEPS:
        return checks.incomplete(
            check_id,
            f"only {words.count(step['steps'], 'steps', 'were')} done in its time: {text}",
            remedy="give it more seconds",
            **rest,
        )
    return checks.passed(check_id, reason=text, **rest)


def _waited(device: Device, step: Step) -> Check:
    rest: checks.Rest = {
        "gpu": device.gpu,
        "measured": framework_load.rounded(step["waiting"]),
        "unit": "share of the time",
    }
    if device.kind == "processor":
        return checks.skipped("train.data", "there is no card that would wait for data", "warning", **rest)
    ok = step["waiting"] <= WAITING
    return checks.judged(
        "train.data",
        ok,
        "warning",
        expected=WAITING,
        reason=f"{words.count(step['workers'], 'processes')} read the data"
        if ok
        else "the card waits for its data for most of the time",
        action="configure",
        remedy="see whether the processors are busy with something else, and how many of them this process may use",
        **rest,
    )


_OF_A_CARD = {"tflops": _tflops, "bandwidth": _bandwidth, "host_device": _host_device, "train": _train}
