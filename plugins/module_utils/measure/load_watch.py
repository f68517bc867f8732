# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What nvidia-smi says of cards while they are loaded: looks every few seconds, and what they amount to for each card.

A look is the XML (``nvidia-smi -q -x``), as at rest: one unknown field fails a whole CSV query, and fields were renamed with driver 535.
"""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_brake, smi_judge, smi_messages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Process, SmiData


class Runner(Protocol):
    """Runs a program; see :func:`run.run`."""

    def __call__(self, argv: Sequence[str], timeout: float) -> run.Result:
        """Run it for so many seconds at the most."""


#: A loaded node with eight cards answers in less than two seconds; one that needs this long hangs in the driver.
LOOK_SECONDS = 20.0
#: Looks that get no answer before no other one is tried: each may leave a process that hangs in the kernel.
_MOST_FAILURES = 2
#: Seconds that a card has for raising its clocks and its link, and for closing its programs at the end (assumed).
SETTLE_SECONDS = 2.0
#: Looks under load, at the least, that say something of a card: of one alone nobody knows whether it is the rule (assumed).
LEAST_LOOKS = 2

_CARD = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]{1,60})\)")
_INSTANCE = re.compile(r"^\s+MIG .*\(UUID: (MIG-[0-9A-Za-z/-]{1,80})\)")


class Look(NamedTuple):
    """One answer: when it was asked for and given (monotonic clock), and the check of the call."""

    asked: float
    answered: float
    data: Optional[SmiData]
    ran: Check


class Range(TypedDict):
    """A value over a load."""

    min: float
    median: float
    max: float


class Summary(TypedDict):
    """What a card did under load; clocks in MHz, power in W, temperatures in °C. ``states`` and ``reasons``: in how many of the looks."""

    looks: int
    sm_mhz: Optional[Range]
    power_w: Optional[Range]
    temperature_c: Optional[Range]
    temperature_memory_c: Optional[Range]
    pcie_gen: Optional[Range]
    pcie_width: Optional[Range]
    utilization_percent: Optional[Range]
    states: Dict[str, int]
    reasons: Dict[str, int]


class Watch:
    """Looks at the cards, one after the other."""

    def __init__(self, executable: str, runner: Runner = run.run) -> None:
        self.looks: List[Look] = []
        self._executable = executable
        self._runner = runner

    def look(self, seconds: float = LOOK_SECONDS) -> Look:
        """Ask nvidia-smi; the answer is kept."""
        asked = time.monotonic()
        answer = self._runner([self._executable, "-q", "-x"], timeout=seconds)
        data, ran = smi_messages.read_answer(answer.rc, answer.out, answer.err, None, answer.error)
        found = Look(asked, time.monotonic(), data, ran)
        self.looks.append(found)
        return found

    @property
    def tired(self) -> bool:
        """Whether nvidia-smi gave no answer so often that it is left alone."""
        return sum(look.data is None for look in self.looks) >= _MOST_FAILURES

    def instances(self, seconds: float = LOOK_SECONDS) -> Dict[str, List[str]]:
        """The MIG instances of each card, by UUID; none where nvidia-smi does not say."""
        return parse_instances(self._runner([self._executable, "-L"], timeout=seconds).out)


def parse_instances(text: str) -> Dict[str, List[str]]:
    """UUIDs of the MIG instances of each card by its own, as ``nvidia-smi -L`` lists them: an instance stands below its card. A card that
    is not listed is not among them.
    """
    found: Dict[str, List[str]] = {}
    card = None
    for line in text.splitlines()[:2000]:
        begins, instance = _CARD.match(line), _INSTANCE.match(line)
        if begins:
            card = begins.group(1)
            found[card] = []
        elif instance and card:
            found[card].append(instance.group(1))
    return found


def identity(gpu: Card) -> str:
    """What a card is known by from one look to the next."""
    return gpu["uuid"] or gpu["pci_bus_id"]


def find(look: Look, card: str) -> Optional[Card]:
    """A card in a look."""
    gpus = look.data["gpus"] if look.data is not None else []
    return next((gpu for gpu in gpus if identity(gpu) == card), None)


def of_others(gpu: Card, ours: int) -> List[Process]:
    """Processes that compute on a card where ``ours`` of them are of the load; by their number, for in a container theirs are not told."""
    computing = smi_judge.computing(gpu)
    return computing if len(computing) > ours else []


def under_load(looks: Sequence[Look], card: str, begins: float, ends: float) -> List[Card]:
    """The card in all looks that were asked for and answered while it was loaded."""
    found = [find(look, card) for look in looks if look.asked >= begins + SETTLE_SECONDS and look.answered <= ends]
    return [gpu for gpu in found if gpu is not None]


def summary(cards: Sequence[Card]) -> Summary:
    """What a card did, from what it was in each look."""
    states = [gpu["performance_state"] for gpu in cards]
    reasons = [reason for gpu in cards for reason in gpu["throttle"] or ()]
    return {
        "looks": len(cards),
        "sm_mhz": _range([gpu["clocks"]["sm_mhz"] for gpu in cards]),
        "power_w": _range([gpu["power_draw_w"] for gpu in cards]),
        "temperature_c": _range([gpu["temperature_c"] for gpu in cards]),
        "temperature_memory_c": _range([gpu["temperature_memory_c"] for gpu in cards]),
        "pcie_gen": _range([gpu["pcie"]["gen"] for gpu in cards]),
        "pcie_width": _range([gpu["pcie"]["width"] for gpu in cards]),
        "utilization_percent": _range([gpu["utilization_percent"] for gpu in cards]),
        "states": {state: states.count(state) for state in states if state is not None},
        "reasons": {reason: reasons.count(reason) for reason in reasons},
    }


def _range(values: Sequence[Optional[float]]) -> Optional[Range]:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"min": min(known), "median": statistics.median_low(known), "max": max(known)}


def as_a_whole(cards: Sequence[Card]) -> Card:
    """One card that stands for all looks at it: as it was last, as hot as it was at its hottest, with the link that it mostly had, with
    every value that could not be read, and with the reasons for low clocks that count.
    """
    hottest = max(cards, key=_heat)
    last, told = cards[-1], summary(cards)
    link = {
        "gen": int(told["pcie_gen"]["median"]) if told["pcie_gen"] else None,
        "width": int(told["pcie_width"]["median"]) if told["pcie_width"] else None,
    }
    return cast(
        "Card",
        {
            **last,
            "temperature_c": hottest["temperature_c"],
            "temperature_margin_c": hottest["temperature_margin_c"],
            "temperature_memory_c": told["temperature_memory_c"] and int(told["temperature_memory_c"]["max"]),
            "clocks": {**last["clocks"], "sm_mhz": told["sm_mhz"] and int(told["sm_mhz"]["median"])},
            "pcie": {**last["pcie"], **link},
            "throttle": lasting([gpu["throttle"] for gpu in cards]),
            # It is kept busy, whatever it tells.
            "utilization_percent": 100,
            "errors": {path: text for gpu in cards for path, text in gpu["errors"].items()},
        },
    )


def _heat(gpu: Card) -> Tuple[float, float]:
    """The nearer to its own limit a card is, the hotter it is; one that tells no margin by its temperature."""
    margin, temperature = gpu["temperature_margin_c"], gpu["temperature_c"]
    return (float("-inf") if margin is None else -margin, float("-inf") if temperature is None else temperature)


def lasting(looks: Sequence[Optional[Sequence[str]]]) -> Optional[List[str]]:
    """The reasons that count: those of any look, but for a power brake that does not last over :data:`smi_brake.LOOKS` of them, and for
    what slows down in less than half of them and is no trouble of the hardware.
    """
    known = [list(reasons) for reasons in looks if reasons is not None]
    if not known:
        return None
    counted = [reason for reasons in known for reason in reasons]
    brakes = [smi_brake.BRAKE in reasons for reasons in known]
    needed = min(smi_brake.LOOKS, len(known))
    if smi_brake.BRAKE in counted and not any(all(brakes[at : at + needed]) for at in range(len(known) - needed + 1)):
        counted = [
            reason
            for reasons in known
            for reason in (smi_brake.passed(reasons) if smi_brake.BRAKE in reasons else reasons)
        ]
    return [
        reason
        for reason in dict.fromkeys(counted)
        if reason.startswith("hw_") or 2 * counted.count(reason) >= len(known)
    ]
