# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge a load on cards: what it found wrong, and what the cards were meanwhile.

Pure functions over what the children told (card_load) and what nvidia-smi said (load_watch). What smi_judge knows of a card at rest holds
under load too, by the same rules and limits; its ``temp.gpu`` is ``load.temp_gpu`` here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    card_load,
    card_load_ptx,
    cuda_driver,
    load_watch,
    smi_judge,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_load import Told
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.cuda_driver import CallFailure
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.load_watch import Look
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import Expected

#: For whoever reads what the load says.
UNTRIED = "the programs of this load were never run on a real card: they are assembled for each, and run on a stand-in of the driver"
#: NVSentinel: clocks under load, of the highest ones.
CLOCK_SHARE = 0.85
#: Highest performance state of a card that computes: P0 (sichek); GeForce and RTX compute in P2, as their nvidia-smi says.
STATE, STATE_OF_DRAWING = 0, 2
#: DCGM's limit for replays in one run (PCIe plugin, "max_pcie_replays").
REPLAYS_OF_A_RUN = smi_judge.REPLAYS_LIMIT
#: Of the memory that was wanted so much must have been there; with less nothing is said of the card (assumed).
LEAST_SHARE = 0.5

# Reasons that say who holds the clocks, none of them a trouble (AzNHC and NVSentinel ignore them).
_HOLDING = ("sw_power_cap", "applications_clocks_setting", "sync_boost", "display_clocks_setting")
_STATE = re.compile(r"^P(\d{1,2})$")
_AGAIN = (
    "prove again, and hold the card against another memory test (dcgmi diag -r 3) before it is returned: this one is new; a second card "
    "that shows the same is a fault of the program"
)


class Loaded(NamedTuple):
    """A card ``before`` and ``after`` the load, None where it is gone by then, and in the looks under it."""

    before: Card
    after: Optional[Card]
    looks: Sequence[Card]


# --------------------------------------------------------------------------------------------------------------------
# Whether a card may be loaded
# --------------------------------------------------------------------------------------------------------------------


def judge_free(gpu: Card, instances: Sequence[str], busy: bool) -> Optional[Check]:
    """Why a card is not loaded; None where it may be. ``busy``: it may although others compute on it."""
    label = smi_judge.label(gpu)
    if not gpu["uuid"]:
        return checks.incomplete("load.runs", "the card names no UUID, by which it could be loaded", gpu=label)
    if gpu["mig"]["current"] and not instances:
        return checks.skipped("load.runs", "the card is parted (MIG) and has no instance that could compute", gpu=label)
    if busy:
        return None
    others = smi_judge.computing(gpu)
    if others:
        return _taken(
            label, ", ".join("{} (pid {})".format(each["name"] or "unnamed", each["pid"]) for each in others[:10])
        )
    if any("process" in path for path in gpu["errors"]):
        return checks.incomplete(
            "load.runs",
            "the card does not say who computes on it, so it is not loaded",
            gpu=label,
            remedy="run it as root, or with busy: true where nobody does",
        )
    utilization = gpu["utilization_percent"]
    if not gpu["processes"] and utilization is not None and utilization > smi_judge.REST_PERCENT:
        return _taken(label, f"utilization {utilization} %, of processes that are not told")
    return None


def _taken(label: str, evidence: str) -> Check:
    return checks.incomplete(
        "load.runs",
        "others compute on the card, so it is not loaded",
        gpu=label,
        evidence=evidence,
        action="restart_app",
        remedy="wait for them or end them, then prove again; busy: true loads the card all the same",
    )


# --------------------------------------------------------------------------------------------------------------------
# What the load found
# --------------------------------------------------------------------------------------------------------------------


def span(children: Sequence[Told]) -> Tuple[float, float]:
    """From when to when a card was loaded by all its children (monotonic clock); no time at all where one of them never was ready."""
    begins = [_step(told, "begin").get("at") for told in children]
    ends = [_step(told, "end").get("at") for told in children]
    known = [at for at in begins + ends if isinstance(at, float)]
    if len(known) < 2 * len(children) or not known:
        return 0.0, 0.0
    return max(known[: len(children)]), min(known[len(children) :])


def judge_child(told: Told, gpu: str) -> List[Check]:
    """``load.runs``, and for each part of the load ``load.memory`` and ``load.compute``."""
    result = [_judge_run(told, gpu)]
    if card_load.MEMORY in told.order.parts:
        result.append(_judge_memory(told, gpu))
    if card_load.COMPUTE in told.order.parts:
        result += _judge_compute(told, gpu)
    return result


def _step(told: Told, name: str, **facts: str) -> Mapping[str, object]:
    """The last step of a name, with these facts; empty where there is none."""
    wanted = {"step": name, **facts}
    return next((step for step in reversed(told.steps) if wanted.items() <= step.items()), {})


def _number(step: Mapping[str, object], key: str) -> int:
    """A count that a child told; what is none, or more than its words of 64 bits hold, counts as nothing."""
    value = step.get(key)
    return value if isinstance(value, int) and 0 < value < 1 << 64 else 0


def _judge_run(told: Told, gpu: str) -> Check:
    """Whether it ran to its end, and why not."""
    library, failure = _step(told, "library"), _step(told, "failure")
    if told.stopped:
        return checks.incomplete("load.runs", "the load was ended: " + told.stopped, gpu=gpu)
    if "error" in library:
        return checks.incomplete(
            "load.runs",
            "the driver's library cannot be opened, so the card cannot be loaded",
            gpu=gpu,
            evidence=str(library["error"]),
            action="install",
            remedy=f"{checks.again('libcuda.so.1')}, and run ldconfig",
        )
    code = failure.get("code")
    if isinstance(code, int):
        return _failed_call(told, {"call": str(failure.get("call")), "code": code, "name": _name(failure)}, gpu)
    if told.hung:
        return _broken_off(
            "did not come back in its time", gpu, told, "read the kernel log for Xid 119, 79 and 8; reboot the host"
        )
    if told.signal:
        return _broken_off(
            f"crashed with signal {told.signal}",
            gpu,
            told,
            "reinstall the driver's user-space part; read the kernel log",
        )
    if not _step(told, "end"):
        return _broken_off(
            f"ended without an answer (exit status {told.code})", gpu, told, "read the kernel log for Xid messages"
        )
    return checks.passed("load.runs", gpu=gpu, reason=f"{told.order.seconds:g} seconds; {UNTRIED}")


def _failed_call(told: Told, failure: CallFailure, gpu: str) -> Check:
    """The check of a failed call, with what the driver's compiler said before."""
    check = cuda_driver.from_code("load.runs", failure, gpu)
    words = _step(told, "compiler").get("words")
    if words:
        check["evidence"] = checks.clean("{}: {}".format(check["evidence"], words))
    return check


def _name(failure: Mapping[str, object]) -> Optional[str]:
    return str(failure["name"]) if failure.get("name") else None


def _broken_off(how: str, gpu: str, told: Told, remedy: str) -> Check:
    evidence = str(told.steps[-1]) if told.steps else None
    return checks.failed(
        "load.runs", gpu=gpu, reason="the load " + how, action="reboot", remedy=remedy, evidence=evidence
    )


def _judge_memory(told: Told, gpu: str) -> Check:
    begin, found = _step(told, "begin"), _step(told, card_load.MEMORY)
    wanted, taken = _number(begin, "wanted"), _number(begin, "taken")
    rest: checks.Rest = {"gpu": gpu, "measured": taken >> 20, "expected": wanted >> 20, "unit": "MiB"}
    if _number(found, "wrong"):
        return _wrong("load.memory", "words of the card's memory came back changed", "word", found, gpu)
    if not begin:
        return checks.incomplete("load.memory", "the load broke off before it had memory; see load.runs", gpu=gpu)
    if taken < wanted * LEAST_SHARE or not taken:
        reason = "most of the memory that was free could not be taken"
        return checks.incomplete(
            "load.memory", reason, remedy="end what uses the card's memory, then prove again", **rest
        )
    rounds = _number(found, "rounds")
    if not rounds:
        return checks.incomplete("load.memory", "the time was too short to verify all of the memory once", **rest)
    reason = "{} patterns over it came back as they were written, {:.1f} GiB verified; {}".format(
        rounds, _number(found, "verified") / (1 << 30), UNTRIED
    )
    return checks.passed("load.memory", reason=reason, **rest)


_PROGRAMS = {
    card_load_ptx.COMPUTE_FMA: "single precision",
    card_load_ptx.COMPUTE_MMA: "half precision on tensor cores",
}


def _judge_compute(told: Told, gpu: str) -> List[Check]:
    found = [(words, _step(told, card_load.COMPUTE, program=program)) for program, words in _PROGRAMS.items()]
    result = [
        _wrong("load.compute", f"results of {words} are wrong", "thread", step, gpu)
        for words, step in found
        if _number(step, "wrong")
    ]
    done = [words for words, step in found if _number(step, "rounds")]
    if result:
        return result
    if not done or not _step(told, "end"):
        return [
            checks.incomplete("load.compute", "the load broke off before it had calculated; see load.runs", gpu=gpu)
        ]
    reason = f"every result was right to the last bit; {UNTRIED}"
    return [checks.passed("load.compute", gpu=gpu, measured=", ".join(done), reason=reason)]


def _wrong(check_id: str, what: str, where: str, step: Mapping[str, object], gpu: str) -> Check:
    told = step.get("first")
    first = [each for each in told if isinstance(each, list) and len(each) == 3] if isinstance(told, list) else []
    return checks.failed(
        check_id,
        gpu=gpu,
        measured=_number(step, "wrong"),
        expected=0,
        unit="wrong",
        reason=f"{what}; {UNTRIED}",
        evidence="; ".join("{} {}: expected {}, found {}".format(where, *each) for each in first),
        action="check_hardware",
        remedy=_AGAIN,
    )


# --------------------------------------------------------------------------------------------------------------------
# What the card was meanwhile
# --------------------------------------------------------------------------------------------------------------------


def judge_card(loaded: Loaded, expected: Expected, cards: int = 1) -> List[Check]:
    """The checks of one card that was watched under load, with ``cards`` in the host."""
    gpu = loaded.before
    label = smi_judge.label(gpu)
    if loaded.after is None:
        return [
            checks.failed(
                "load.lost",
                "fatal",
                gpu=label,
                reason="nvidia-smi does not see the card any more after the load",
                action="check_hardware",
                remedy="look in the kernel log for Xid 79; power the host off and on, then reseat the card and check its power",
            )
        ]
    result = [*_judge_growth(gpu, loaded.after), _judge_settings(gpu, loaded.after)]
    if len(loaded.looks) < load_watch.LEAST_LOOKS:
        reason = "the card was not seen often enough under load to say how it works"
        rest: checks.Rest = {
            "gpu": label,
            "measured": len(loaded.looks),
            "expected": load_watch.LEAST_LOOKS,
            "unit": "looks",
        }
        return [checks.incomplete("load.watched", reason, "warning", remedy="load it for longer", **rest), *result]
    whole = load_watch.as_a_whole(loaded.looks)
    told = load_watch.summary(loaded.looks)
    judged = [_renamed(check) for check in smi_judge.judge_under_load(whole, expected, cards)]
    return [*judged, _judge_clocks(whole, told), _judge_state(loaded.looks), *_judge_power_cap(whole, told), *result]


def _renamed(check: Check) -> Check:
    """A check of a card at rest, as one of the load."""
    return {**check, "id": "load." + check["id"].replace(".", "_")}


def _judge_clocks(gpu: Card, told: load_watch.Summary) -> Check:
    """The clocks are as high as a working card's, or it is told who holds them."""
    now, most = gpu["clocks"]["sm_mhz"], gpu["clocks"]["sm_max_mhz"]
    label = smi_judge.label(gpu)
    if now is None or not most:
        return checks.skipped("load.clocks", "the card tells no clocks, as in a virtual machine", "warning", gpu=label)
    rest: checks.Rest = {"gpu": label, "measured": now, "expected": int(most * CLOCK_SHARE), "unit": "MHz"}
    if now >= most * CLOCK_SHARE:
        return checks.passed("load.clocks", "warning", **rest)
    holding = [reason for reason in _HOLDING if 2 * told["reasons"].get(reason, 0) >= told["looks"]]
    if holding:
        return checks.passed("load.clocks", "info", reason="the clocks are held by: " + ", ".join(holding), **rest)
    if smi_judge.draws(gpu):
        # An RTX 4090 names 3105 MHz as its highest clock and is sold with 2520.
        return checks.passed(
            "load.clocks", "info", reason="the highest clock of this kind of card is above what it works with", **rest
        )
    return checks.failed(
        "load.clocks",
        "warning",
        reason="the clocks stay low under load, and the card does not say why"
        if not gpu["throttle"]
        else "the clocks stay low under load: " + ", ".join(gpu["throttle"]),
        action="check_hardware",
        remedy="look for locked clocks ('nvidia-smi -q -d CLOCK'), check cooling and power; compare with other cards of the model",
        **rest,
    )


def _judge_state(looks: Sequence[Card]) -> Check:
    """The performance state that a card mostly had."""
    label, draws = smi_judge.label(looks[-1]), smi_judge.draws(looks[-1])
    found = [_STATE.match(gpu["performance_state"] or "") for gpu in looks]
    states = sorted(int(match.group(1)) for match in found if match)
    if not states:
        return checks.skipped("load.performance_state", "the card tells no performance state", "warning", gpu=label)
    state, highest = states[(len(states) - 1) // 2], STATE_OF_DRAWING if draws else STATE
    return checks.judged(
        "load.performance_state",
        state <= highest,
        "warning",
        gpu=label,
        measured=f"P{state}",
        expected=f"P{highest}",
        reason=None if state <= highest else "the card does not go to full performance under load",
        action="configure",
        remedy="a laptop: connect its power supply; else check the card's power cables and power limit, and reboot",
    )


def _judge_power_cap(gpu: Card, told: load_watch.Summary) -> List[Check]:
    """That the power limit holds a card is how most of them work under load, and only told."""
    capped = told["reasons"].get("sw_power_cap", 0)
    if not capped:
        return []
    reason = "the power limit held the clocks in {} of {} looks".format(capped, told["looks"])
    draw = told["power_w"]["max"] if told["power_w"] else None
    rest: checks.Rest = {"gpu": smi_judge.label(gpu), "measured": draw, "expected": gpu["power_limit_w"], "unit": "W"}
    return [checks.passed("load.power_cap", "info", reason=reason, **rest)]


# --------------------------------------------------------------------------------------------------------------------
# What is another after the load
# --------------------------------------------------------------------------------------------------------------------


def _uncorrected(gpu: Card) -> Optional[int]:
    """Errors of the memory that could not be corrected since the driver was loaded, those of MIG instances too."""
    counts = [gpu["ecc"]["volatile_uncorrected"], *(device.get("uncorrected") for device in gpu["mig"]["devices"])]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _judge_growth(before: Card, after: Card) -> List[Check]:
    """Counters before and after."""
    label = smi_judge.label(before)
    return [
        _grown(
            "load.ecc_volatile_unc",
            "critical",
            (_uncorrected(before), _uncorrected(after)),
            0,
            {
                "gpu": label,
                "unit": "errors",
                "action": "reset_gpu",
                "remedy": "stop what runs on the card and reset it; if errors come back under load, return the card",
            },
            "memory errors that could not be corrected came under load",
        ),
        _grown(
            "load.ecc_corrected",
            "warning",
            (before["ecc"]["volatile_corrected"], after["ecc"]["volatile_corrected"]),
            smi_judge.CORRECTED_LIMIT,
            {
                "gpu": label,
                "unit": "errors",
                "action": "none",
                "remedy": "watch the card; run a memory test when it is idle",
            },
            "very many memory errors were corrected under load",
        ),
        _grown(
            "load.pcie_replay",
            "warning",
            (before["pcie"]["replays"], after["pcie"]["replays"]),
            REPLAYS_OF_A_RUN,
            {
                "gpu": label,
                "unit": "replays",
                "action": "check_hardware",
                "remedy": "reseat the card, check the riser and the slot",
            },
            "many packets of the PCIe link had to be sent again under load",
        ),
    ]


def _grown(
    check_id: str,
    severity: str,
    counts: Tuple[Optional[int], Optional[int]],
    limit: int,
    rest: checks.Rest,
    reason: str,
) -> Check:
    """How much a counter grew; one that fell was set back, and nobody knows by how much it grew before."""
    before, after = counts
    if before is None:
        return checks.skipped(check_id, "the card does not count them", severity, gpu=rest["gpu"])
    if after is None or after < before:
        told = "is not told any more" if after is None else "was set back"
        return checks.incomplete(check_id, f"the counter {told} after the load", severity, gpu=rest["gpu"])
    ok = after - before <= limit
    return checks.judged(
        check_id, ok, severity, measured=after - before, expected=limit, reason=None if ok else reason, **rest
    )


def _judge_settings(before: Card, after: Card) -> Check:
    """The clocks that were set before are set after. Locked clocks are told by no nvidia-smi; nothing here sets any."""
    old, new = (
        (gpu["clocks"]["application_memory_mhz"], gpu["clocks"]["application_sm_mhz"]) for gpu in (before, after)
    )
    label = smi_judge.label(before)
    if old == (None, None):
        return checks.skipped("load.settings", "the card tells no clocks of applications", "warning", gpu=label)
    return checks.judged(
        "load.settings",
        old == new,
        "warning",
        gpu=label,
        measured=list(new),
        expected=list(old),
        unit="MHz",
        reason=None if old == new else "somebody changed the clocks of applications while the card was loaded",
        action="configure",
        remedy="look what else sets the clocks of the cards; set them again with 'nvidia-smi -ac'",
    )


def judge_looks(looks: Sequence[Look]) -> List[Check]:
    """That nvidia-smi went on answering under load."""
    bad = [look.ran for look in looks if look.data is None]
    if not bad:
        return []
    return [{**bad[0], "id": "load.smi", "reason": "under load: {}".format(bad[0]["reason"])}]
