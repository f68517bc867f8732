# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge the cards as nvidia-smi describes them.

Pure functions over the data of :mod:`smi`. Each check reads one thing; where a card does not have it the check is
skipped with a reason, and where nvidia-smi could not read it the check fails: the two are kept apart by the parser.

Limits and their sources: row remapping and page retirement as in NVIDIA's memory error guides (512 rows, 64 pages);
four uncorrected SRAM errors over life as in ml-engineering and sichek; the corrected-error limit from sichek; the rest
is written beside its constant.
"""

from __future__ import annotations

import re
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Tuple,
    TypedDict,
    cast,
)

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_brake, smi_messages
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Card,
        Process,
        RemappedRows,
        RetiredPages,
        SmiData,
    )


class Expected(TypedDict, total=False):
    """What the cards are held against; see :func:`judge`."""

    count: Optional[int]
    names: Optional[Sequence[str]]
    bus_ids: Sequence[str]
    ignore: Sequence[str]
    driver: Optional[str]
    min_driver: Optional[str]
    pcie_lanes: Mapping[str, int]
    pcie_gen: int
    max_temperature_c: int
    max_memory_temperature_c: int
    power_limit_w: float
    usual_power_limit_w: float
    compute_mode: str
    persistence: bool
    clocks_set: bool
    mig: bool
    ecc: bool
    idle: bool
    under_load: bool
    settings: Mapping[str, Expected]


REMAPPED_ROWS_LIMIT = 512
RETIRED_PAGES_WARN = 60
RETIRED_PAGES_LIMIT = 64
SRAM_LIFE_LIMIT = 4
CORRECTED_LIMIT = 10_000_000
MEMORY_LIMIT_C = 95
# Own rule: five degrees before the card slows itself down is time to look at the fans.
TEMPERATURE_MARGIN_C = 5
# Own rules for a card that names no thresholds of its own; real ones shut down between 92 and 104 degrees.
TEMPERATURE_LIMIT_C = 85
SHUTDOWN_LIMIT_C = 105
# As far below 0 as the margin of a card (T.Limit) may fall that names no shutdown; see _shutdown_margin.
SHUTDOWN_LIMIT_MARGIN_C = -10
# Own rule: a card that is asked shows a few percent without work.
REST_PERCENT = 5
# Lanes that a card needs to be fed; boards and clouds give several cards eight each.
ENOUGH_LANES = 8
# How much of a card has to be busy for it to be at work: its link is then as fast as it becomes.
AT_WORK_PERCENT = 90
# Own rule: under full work a card that nothing slows is above half of its highest clock.
SET_CLOCKS_SHARE = 0.5
# Own rule: a card that draws less of its limit has come to rest between the reading of its use and that of its clocks.
WORKING_POWER_SHARE = 0.25
# Own rule: a card goes above its limit for a moment, and never to three times of it; one told 588 W of 35 (github
# NVIDIA/open-gpu-kernel-modules, issue 1236).
IMPOSSIBLE_POWER = 3
_SOFT_HEAT = "sw_thermal_slowdown"
_SET_CLOCKS = "applications_clocks_setting"
# Why a card is slower than its work asks for; a power cap in force is none of them, a card at full load meets its own.
_SLOWED = {_SOFT_HEAT, smi_brake.EITHER, smi_brake.HEAT, smi_brake.BRAKE}
REPLAYS_LIMIT = 80

_RESET = "stop what runs on the card, then 'nvidia-smi --gpu-reset -i {index}', or reboot the host"
_RMA = "take the card out of use and return it to its vendor"
# The place of the fan's speed in the answer.
_FAN = "fan_speed"
_COOL = "check air flow, fans, dust and room temperature"
# Own rule: no card is delivered to slow down below it; a target of temperature can be set from 65 on, mostly.
_COLD_C = 70
_HELD = (
    "at so few degrees its cooling is not short: see which limit it is held to (nvidia-smi -q -d TEMPERATURE), a target that was set "
    "(nvidia-smi -gtt) or one of the firmware of the machine, which its update raises, on a laptop thermald too; or its memory is hot and "
    "does not tell"
)
# The signal is the server's: its supply, or a controller that does not know the card.
_BRAKED = (
    "update the firmware of board and BMC and look at their power limits and settings for the card; then check the power supply and "
    "the card's power cables"
)
_SEAT = "reseat the card, check the riser and the slot's lanes in the firmware settings"


def judge(data: SmiData, expected: Expected) -> List[Check]:
    """All checks of one answer.

    Args:
        data: of :func:`document.parse_xml`.
        expected: what to hold it against, all optional: ``count``, ``names`` (list), ``bus_ids`` (list, of PCI),
            ``ignore`` (bus ids or models that are left alone), ``driver`` (a version or the beginning of one),
            ``min_driver``, ``pcie_lanes`` (what is right for a slot, by bus id or model, ``all`` for the others), ``pcie_gen``,
            ``max_temperature_c``, ``max_memory_temperature_c``,
            ``power_limit_w``, ``compute_mode``, ``persistence``, ``mig``, ``ecc`` (bool), ``idle`` (bool: nobody should
            compute now), ``under_load`` (bool: the card is kept busy while asking), ``settings`` (what is wished of one card, by its
            bus id: ``power_limit_w``, ``compute_mode``, ``persistence``, ``ecc``, ``clocks_set``: whether clocks are).
    """
    data = without_ignored(data, expected.get("ignore"))
    gpus: List[Card] = data["gpus"]
    result = [judge_count(data, expected), judge_models(gpus, expected)]
    result += judge_driver(data.get("driver_version"), expected)
    result += _judge_notes(data)
    result += _judge_host_errors(data)
    settings = expected.get("settings") or {}
    for gpu in gpus:
        usual = _usual_power_limit(gpu, gpus)
        of_card = cast("Expected", {**expected, **usual, **settings.get(gpu["pci_bus_id"] or "", {})})
        result += judge_gpu(gpu, of_card, len(gpus))
    return result


def without_ignored(data: SmiData, ignore: Optional[Sequence[str]]) -> SmiData:
    """The data without the cards that are left alone, by bus id or by model; their number is taken off the attached ones."""
    if not ignore:
        return data
    places = {document.normalise_bus_id(str(entry)) for entry in ignore}
    kept = [
        gpu
        for gpu in data["gpus"]
        if gpu["pci_bus_id"] not in places
        and not any(same_model(str(gpu.get("name") or ""), str(entry)) for entry in ignore)
    ]
    attached = data.get("attached_gpus")
    gone = len(data["gpus"]) - len(kept)
    return {**data, "gpus": kept, "attached_gpus": None if attached is None else attached - gone}


def judge_gpu(gpu: Card, expected: Expected, cards: int = 1) -> List[Check]:
    """The checks of one card; a card that does not answer at all has one check that says so."""
    lost = _judge_lost(gpu)
    if lost is not None:
        return [lost]
    result: List[Check] = []
    for step in _STEPS:
        result += step(gpu, expected)
    result.append(judge_pcie_width(gpu, expected, cards))
    return result


# --------------------------------------------------------------------------------------------------------------------
# The host
# --------------------------------------------------------------------------------------------------------------------


def judge_count(data: SmiData, expected: Expected) -> Check:
    """As many cards as expected, and as many described as attached."""
    found = len(data["gpus"])
    attached = data.get("attached_gpus")
    wanted = expected.get("count")
    missing = _missing_bus_ids(data["gpus"], expected.get("bus_ids"))
    rest: checks.Rest = {
        "measured": found,
        "expected": wanted,
        "unit": "cards",
        "evidence": ", ".join(missing) or None,
    }
    if wanted is not None and found > wanted:
        return checks.failed(
            "gpu.count",
            "warning",
            reason=f"{words.count(wanted, 'cards', 'were')} expected and nvidia-smi sees {found}",
            action="configure",
            remedy="correct gpuwright_gpus_expected, or name the card in gpuwright_gpus_ignore",
            **rest,
        )
    if wanted is not None and found < wanted:
        return _cards_missing(
            f"{words.count(wanted, 'cards', 'were')} expected and nvidia-smi sees {found}",
            missing,
            rest,
        )
    if missing:
        return _cards_missing("nvidia-smi does not see every card that is on the PCI bus", missing, rest)
    if attached is not None and attached != found:
        reason = f"nvidia-smi says that {words.count(attached, 'cards', 'are')} attached and describes {found}"
        return _cards_missing(reason, missing, {**rest, "expected": attached})
    if not found:
        return _cards_missing("nvidia-smi sees no card", missing, rest)
    return checks.passed("gpu.count", reason="every card answers", **rest)


def _cards_missing(reason: str, missing: Sequence[str], rest: checks.Rest) -> Check:
    where = " (missing: {})".format(", ".join(missing)) if missing else ""
    return checks.failed(
        "gpu.count",
        reason=reason + where,
        action="check_hardware",
        remedy="look in the kernel log for Xid 79 and for 'RmInitAdapter failed'; power the host off and on, then reseat the "
        "card. If the inventory is wrong, correct gpuwright_gpus_expected",
        **rest,
    )


def _missing_bus_ids(gpus: Sequence[Card], wanted: Optional[Sequence[str]]) -> List[str]:
    present = {gpu.get("pci_bus_id") for gpu in gpus}
    return sorted({document.normalise_bus_id(bus_id) for bus_id in wanted or ()} - present)


def judge_models(gpus: Sequence[Card], expected: Expected) -> Check:
    """The cards are those that the inventory names."""
    names = [str(gpu.get("name") or "unreadable") for gpu in gpus]
    wanted = [str(name) for name in expected.get("names") or ()]
    rest: checks.Rest = {"measured": names, "expected": wanted or None}
    if not names or None in [gpu.get("name") for gpu in gpus]:
        return checks.incomplete(
            "gpu.model", "there is no card, or one whose model could not be read", "warning", **rest
        )
    if "Graphics Device" in names:
        return checks.failed(
            "gpu.model",
            "warning",
            reason="the driver does not know the name of a card: it is older than the card",
            action="install",
            remedy="install a newer driver branch",
            **rest,
        )
    if not wanted:
        return checks.passed("gpu.model", "warning", reason="no model was expected; named as found", **rest)
    strangers = unmatched_names(names, wanted)
    if strangers:
        return checks.failed(
            "gpu.model",
            "warning",
            reason="not among the expected models: " + ", ".join(strangers),
            action="configure",
            remedy="correct gpuwright_gpus_expected in the inventory, or find out who changed the card",
            **rest,
        )
    return checks.passed("gpu.model", "warning", **rest)


# Words of a product name that say how a card is built, not which card it is.
_FORM = re.compile(r"^(?:\d+gb|sxm\d*|pcie|hbm\d*e?|gpu|nvl\d*|generation|edition|server|workstation|max|q)$")


def same_model(found: str, wanted: str) -> bool:
    """Whether a product name is the card that somebody wrote: ``A100`` is ``NVIDIA A100-SXM4-80GB``.

    What is written must be in the name, and what the name has more must only be form and memory: ``RTX 4080`` is not
    ``RTX 4080 SUPER``, ``A100 80GB`` is not ``A100-SXM4-40GB``.
    """
    name, words = _words(found), _words(wanted)
    return words <= name and all(_FORM.match(word) for word in name - words)


def _words(name: str) -> set[str]:
    vendors = {"nvidia", "geforce", "tesla", "quadro"}
    joined = re.sub(r"(\d+)\s+gb\b", r"\1gb", name.lower())
    return {word for word in re.split(r"[\s\-_/]+", joined) if word and word not in vendors}


def unmatched_names(names: Sequence[str], wanted: Sequence[str]) -> List[str]:
    """The names that none of the wanted ones describes."""
    return sorted({name for name in names if not any(same_model(name, want) for want in wanted)})


def judge_driver(version: Optional[str], expected: Expected) -> List[Check]:
    """The driver is the wished one and not below the floor of what runs on it."""
    result = []
    wanted, minimum = expected.get("driver"), expected.get("min_driver")
    if wanted:
        result.append(_judge_version("driver.version_expected", version, str(wanted), "warning", exact=True))
    if minimum:
        result.append(_judge_version("driver.minimum", version, str(minimum), "critical", exact=False))
    return result


def _judge_version(check_id: str, version: Optional[str], wanted: str, severity: str, exact: bool) -> Check:
    rest: checks.Rest = {"measured": version, "expected": wanted}
    if not version:
        return checks.incomplete(check_id, "nvidia-smi names no driver version", severity, **rest)
    ok = numeric_version.belongs(version, wanted) if exact else numeric_version.at_least(version, wanted)
    return checks.judged(
        check_id,
        ok,
        severity,
        reason=None
        if ok
        else "driver {} runs where {}{} is wanted".format(version, wanted, "" if exact else " or newer"),
        action="install",
        remedy="run gpuwright up, and reboot if it says so",
        **rest,
    )


def _judge_notes(data: SmiData) -> List[Check]:
    """What nvidia-smi prints beside its document, such as the warning about the infoROM."""
    text = "\n".join(data.get("notes") or ())
    if "inforom" not in text.lower():
        return []
    trouble = smi_messages.from_text(text)
    return [
        checks.failed(
            "gpu.inforom",
            reason=trouble.cause if trouble else "nvidia-smi warns about an infoROM",
            evidence=text,
            action="contact_support",
            remedy=trouble.remedy if trouble else "read the warning and ask the card's vendor",
        )
    ]


def _judge_host_errors(data: SmiData) -> List[Check]:
    """What nvidia-smi could not say of the host as a whole, its ``error_string`` among it."""
    errors: Dict[str, str] = data.get("errors") or {}
    if all(document.is_not_applicable(text) for text in errors.values()):
        return _judge_untold(data["gpus"], errors)
    return [_unreadable("smi.readable", errors, "nvidia-smi answers with an error")]


_OF_THE_HOST = {"driver_version": "the version of the driver", "attached_gpus": "how many cards are attached"}


def _judge_untold(gpus: Sequence[Card], errors: Mapping[str, str]) -> List[Check]:
    """What every nvidia-smi says of the host, and this one does not; on a Jetson (nvgpu) it knows no driver."""
    untold = [_OF_THE_HOST[path] for path in sorted(errors) if path in _OF_THE_HOST]
    if not untold or (gpus and all(_is_jetson(gpu) for gpu in gpus)):
        return []
    reason = "nvidia-smi does not say " + " and ".join(untold)
    remedy = "run 'nvidia-smi -q -x' by hand; a wrapper in its place is replaced by reinstalling the driver's user-space part"
    return [checks.incomplete("smi.readable", reason, action="install", remedy=remedy)]


def _unreadable(check_id: str, errors: Mapping[str, str], reason: str, gpu: Optional[str] = None) -> Check:
    """The check that fails because of values which are errors; the first known sentence among them names the cause.

    Where the driver only could not tell the lists that go with a card (clocks that it offers, processes), the card is not blamed, and
    the check is incomplete: who asks may not see them. A sentence that names a trouble of the card counts there as everywhere.
    """
    text = "; ".join("{}: {}".format(*item) for item in sorted(errors.items()))
    trouble = smi_messages.from_text(text)
    if all(document.of_no_state(path) for path in errors) and (trouble is None or trouble.action == "configure"):
        return checks.incomplete(
            check_id,
            measured=len(errors),
            expected=0,
            unit="unreadable values",
            reason="the card answers with an error when it is asked for its clocks or its processes",
            evidence=text,
            action="none",
            remedy="run 'nvidia-smi -q' as root; where the error stays, look in the kernel log for Xid 79, 119 and 120 and reboot the host",
            gpu=gpu,
        )
    return checks.failed(
        check_id,
        measured=len(errors),
        expected=0,
        unit="unreadable values",
        reason=trouble.cause if trouble else reason,
        evidence=text,
        action=trouble.action if trouble else "reboot",
        remedy=trouble.remedy if trouble else "look in the kernel log for Xid 79, 119 and 120; reboot the host",
        gpu=gpu,
    )


# --------------------------------------------------------------------------------------------------------------------
# One card
# --------------------------------------------------------------------------------------------------------------------


def label(gpu: Card) -> str:
    """The name of a card in checks: its index, with the bus id that finds it in a case."""
    return "{} ({})".format(gpu.get("index"), gpu.get("pci_bus_id") or "no bus id")


def _judge_lost(gpu: Card) -> Optional[Check]:
    errors: Dict[str, str] = gpu.get("errors") or {}
    text = "; ".join(sorted(set(errors.values())))
    gone = re.search(r"gpu is lost|unable to (?:determine|detect)", text, re.IGNORECASE)
    if not gone and _tells_something(gpu):
        return None
    trouble = smi_messages.from_text(text)
    return checks.failed(
        "gpu.lost",
        "fatal",
        gpu=label(gpu),
        measured=text or None,
        reason=trouble.cause if trouble else "the card does not answer the driver: it tells none of its values",
        evidence="; ".join("{}: {}".format(*item) for item in sorted(errors.items())),
        action=trouble.action if trouble else "check_hardware",
        remedy=trouble.remedy
        if trouble
        else "look in the kernel log for Xid messages, reboot, then power-cycle the host",
    )


def _tells_something(gpu: Card) -> bool:
    """Whether a card tells any measurement: an old one tells few, a silent one is not healthy.

    A Jetson's own GPU (nvgpu) tells nothing but its name by nvidia-smi.
    """
    measured = (gpu["memory_total_mib"], gpu["temperature_c"], gpu["power_draw_w"], gpu["clocks"]["sm_mhz"])
    return any(value is not None for value in measured) or _is_jetson(gpu)


def _is_jetson(gpu: Card) -> bool:
    return "nvgpu" in str(gpu.get("name"))


def _judge_readable(gpu: Card, expected: Expected) -> List[Check]:
    told: Dict[str, str] = gpu.get("errors") or {}
    # A fan that does not answer is one of its own check: neither the card nor its driver is silent by that.
    errors = {path: text for path, text in told.items() if path != _FAN}
    if told and not errors:
        return [checks.passed("gpu.readable", gpu=label(gpu), reason="every value but that of its fan could be read")]
    if not errors:
        return [checks.passed("gpu.readable", gpu=label(gpu), reason="every value could be read")]
    if not expected.get("under_load") and all(map(_of_the_moment, errors.items())):
        reason = "every value but its power draw could be read, which it does not tell at this moment"
        return [checks.passed("gpu.readable", gpu=label(gpu), reason=reason)]
    return [_unreadable("gpu.readable", errors, "the card answers some questions with an error", gpu=label(gpu))]


def _of_the_moment(error: Tuple[str, str]) -> bool:
    """Whether an error is a power draw that could not be read once: it passes by itself, and asks for nothing (github
    Azure/azhpc-diagnostics, issue 77). Under load the draw is looked at more than once.
    """
    path, text = error
    return "power_draw" in path and document.plain(text).lower() in ("unknown error", "err!")


def _for(gpu: Card, remedy: str) -> str:
    """A remedy with the card's index in it. Not ``format``: some remedies quote what a card said."""
    return remedy.replace("{index}", str(gpu["index"]))


class Rule(NamedTuple):
    """What a check of one value says when it is not met, and when the card does not have the value."""

    check_id: str
    severity: str
    reason: str
    action: str
    remedy: str
    absent: str
    unit: Optional[str] = None


def _limit(gpu: Card, value: Optional[float], limit: float, rule: Rule) -> Check:
    """A value that must not be above its limit; skipped where the card has none."""
    return _ruled(gpu, value, limit, value is not None and value <= limit, rule)


def _flag(gpu: Card, value: Optional[bool], rule: Rule) -> Check:
    """A flag that must not be set; skipped where the card has none."""
    return _ruled(gpu, value, False, not value, rule)


def _ruled(gpu: Card, value: object, expected: object, ok: bool, rule: Rule) -> Check:
    rest: checks.Rest = {"gpu": label(gpu), "measured": value, "expected": expected, "unit": rule.unit}
    if value is None:
        return checks.skipped(rule.check_id, rule.absent, rule.severity, **rest)
    if not ok and rule.action == "rma" and gpu["serial"]:
        rest["evidence"] = "serial number " + gpu["serial"]  # the vendor asks for it
    return checks.judged(
        rule.check_id,
        ok,
        rule.severity,
        reason=None if ok else rule.reason,
        action=rule.action,
        remedy=_for(gpu, rule.remedy),
        **rest,
    )


_NO_ECC = "the card has no error-correcting memory, or it is switched off"


_NEVER = "this card or driver does not report it"
_VOLATILE_RULE = Rule(
    "ecc.volatile_unc",
    "critical",
    "memory errors that could not be corrected since the driver was loaded",
    "reset_gpu",
    _RESET + "; if they come back, return the card",
    _NO_ECC,
    "errors",
)
_INSTANCE_RULE = _VOLATILE_RULE._replace(
    check_id="ecc.mig_unc",
    reason="memory errors of a MIG instance that could not be corrected since the driver was loaded",
    absent="the card is not parted (MIG), or its instances do not count errors",
)
_SRAM_RULE = Rule(
    "ecc.sram_agg_unc",
    "fatal",
    "too many uncorrected errors in the card's SRAM over its life",
    "rma",
    _RMA,
    _NO_ECC,
    "errors",
)
_CORRECTED_RULE = Rule(
    "ecc.corrected",
    "warning",
    "very many corrected memory errors",
    "none",
    "watch the card; run a memory test when it is idle",
    _NO_ECC,
    "errors",
)
# Flags of the memory; none of them may be set.
_SRAM_THRESHOLD = Rule(
    "ecc.sram_threshold", "fatal", "the card's SRAM has exceeded the error threshold", "rma", _RMA, _NEVER
)
_CHANNEL_REPAIR = Rule(
    "repair.channel", "critical", "the repair of a memory channel waits for a reset", "reset_gpu", _RESET, _NEVER
)
_TPC_REPAIR = Rule(
    "repair.tpc", "critical", "the repair of a processing cluster waits for a reset", "reset_gpu", _RESET, _NEVER
)
_UNREPAIRABLE = Rule("repair.memory", "fatal", "the card has memory that cannot be repaired", "rma", _RMA, _NEVER)


def _judge_ecc(gpu: Card, expected: Expected) -> List[Check]:
    ecc = gpu["ecc"]
    counts = [device.get("uncorrected") for device in gpu["mig"]["devices"]]
    known = [count for count in counts if count is not None]
    return [
        _judge_ecc_mode(gpu, expected),
        _limit(gpu, ecc["volatile_uncorrected"], 0, _VOLATILE_RULE),
        _limit(gpu, sum(known) if known else None, 0, _INSTANCE_RULE),
        _limit(gpu, ecc["aggregate_sram_uncorrected"], SRAM_LIFE_LIMIT, _SRAM_RULE),
        _limit(gpu, ecc["volatile_corrected"], CORRECTED_LIMIT, _CORRECTED_RULE),
        _flag(gpu, ecc["sram_threshold_exceeded"], _SRAM_THRESHOLD),
        _flag(gpu, ecc["channel_repair_pending"], _CHANNEL_REPAIR),
        _flag(gpu, ecc["tpc_repair_pending"], _TPC_REPAIR),
        _flag(gpu, ecc["unrepairable_memory"], _UNREPAIRABLE),
    ]


# Cards for a desk ship with error correction off: it takes a part of the memory that they are sold with.
_CONSUMER = re.compile(r"\b(?:geforce|titan)\b", re.IGNORECASE)
_DRAWING = re.compile(r"\b(?:geforce|titan|quadro|rtx)\b", re.IGNORECASE)
_DESK = re.compile(r"\b(?:geforce|titan|quadro|rtx)\b(?!.*\bserver edition\b)", re.IGNORECASE)


def _is(kind: Pattern[str], gpu: Card) -> bool:
    """Whether brand or name of a card say that it is of a kind."""
    return bool(kind.search("{} {}".format(gpu.get("brand") or "", gpu.get("name") or "")))


def draws(gpu: Card) -> bool:
    """Whether a card is of a kind that is made to draw too, wherever it is built in."""
    return _is(_DRAWING, gpu)


def _judge_ecc_mode(gpu: Card, expected: Expected) -> Check:
    current, pending, wanted = gpu["ecc"]["mode"], gpu["ecc"]["pending"], expected.get("ecc")
    rest: checks.Rest = {"gpu": label(gpu), "measured": _on_off(current), "expected": _on_off(wanted)}
    if current is None:
        return checks.skipped(
            "ecc.mode", "the card has no error-correcting memory that can be switched", "warning", **rest
        )
    if pending is not None and pending != current:
        return checks.failed(
            "ecc.mode",
            "warning",
            reason=f"error correction is {_on_off(current)} and will be {_on_off(pending)} after a reset",
            action="reset_gpu",
            remedy=_for(gpu, _RESET),
            **rest,
        )
    if wanted is None and not current and _is(_DESK, gpu):
        reason = "error correction is off, as this card ships: switched on it takes a part of the memory"
        return checks.passed("ecc.mode", "info", reason=reason, **rest)
    target = True if wanted is None else bool(wanted)
    return checks.judged(
        "ecc.mode",
        current == target,
        "warning",
        reason=None if current == target else f"error correction is {_on_off(current)}",
        action="configure",
        remedy="'nvidia-smi -i {} -e {}', then reset the card".format(gpu["index"], int(target)),
        **rest,
    )


def _on_off(value: Optional[bool]) -> Optional[str]:
    return None if value is None else ("on" if value else "off")


_NO_REMAP = "the card does not remap rows of its memory"
_REMAP_PENDING = Rule(
    "remap.pending", "critical", "a row of the memory waits to be remapped", "reset_gpu", _RESET, _NO_REMAP
)
_REMAP_FAILURE = Rule("remap.failure", "fatal", "a row of the memory could not be remapped", "rma", _RMA, _NO_REMAP)
_REMAP_COUNT = Rule(
    "remap.uncorrectable",
    "fatal",
    "too many rows were remapped after uncorrectable errors",
    "rma",
    _RMA,
    _NO_REMAP,
    "rows",
)
_REMAP_BANK = Rule(
    "remap.bank",
    "warning",
    "banks of the memory are short of spare rows",
    "none",
    "plan to replace the card",
    _NO_REMAP,
    "banks",
)


def _judge_remap(gpu: Card, _expected: Expected) -> List[Check]:
    rows: RemappedRows = gpu["remapped_rows"] or {}
    banks: Dict[str, Optional[int]] = rows.get("banks") or {}
    known = [banks[level] for level in ("none", "low") if banks.get(level) is not None]
    return [
        _flag(gpu, rows.get("pending"), _REMAP_PENDING),
        _flag(gpu, rows.get("failure"), _REMAP_FAILURE),
        _limit(gpu, rows.get("uncorrectable"), REMAPPED_ROWS_LIMIT, _REMAP_COUNT),
        _limit(gpu, sum(count or 0 for count in known) if known else None, 0, _REMAP_BANK),
    ]


_NO_PAGES = "the card does not retire pages (Ampere and newer remap rows instead)"
_PAGES_PENDING = Rule(
    "pages.pending", "critical", "a page of the memory waits to be retired", "reset_gpu", _RESET, _NO_PAGES
)
_PAGES_MANY = Rule(
    "pages.count",
    "warning",
    f"many pages of the memory are retired; at {RETIRED_PAGES_LIMIT} the card is to be replaced",
    "none",
    "watch the card and plan its replacement",
    _NO_PAGES,
    "pages",
)
_PAGES_FULL = _PAGES_MANY._replace(
    severity="fatal", reason="as many pages of the memory are retired as can be", action="rma", remedy=_RMA
)


def _judge_pages(gpu: Card, _expected: Expected) -> List[Check]:
    pages: RetiredPages = gpu["retired_pages"] or {}
    known = [count for count in (pages.get("single_bit"), pages.get("double_bit")) if count is not None]
    total = sum(known) if known else None
    rule = _PAGES_FULL if total is not None and total >= RETIRED_PAGES_LIMIT else _PAGES_MANY
    return [_flag(gpu, pages.get("pending"), _PAGES_PENDING), _limit(gpu, total, RETIRED_PAGES_WARN - 1, rule)]


_RESET_REQUIRED = Rule("gpu.reset_required", "critical", "the card needs a reset", "reset_gpu", _RESET, _NEVER)
_DRAIN = Rule(
    "gpu.drain_recommended",
    "critical",
    "the card is to be drained and reset",
    "reset_gpu",
    "let the running jobs end, start no new one, then reset the card: 'nvidia-smi --gpu-reset -i {index}'",
    _NEVER,
)
_RECOVERY = {
    "reset": ("reset_gpu", _RESET),
    "gpu reset": ("reset_gpu", _RESET),
    "reboot": ("reboot", "reboot the host"),
    "node reboot": ("reboot", "reboot the host"),
    "drain p2p": ("restart_app", "stop what uses peer-to-peer memory of this card, then reset it"),
    "drain and reset": ("reset_gpu", "let the running jobs end, start no new one, then reset the card"),
}


def _judge_recovery(gpu: Card, _expected: Expected) -> List[Check]:
    wanted = gpu["recovery_action"]
    result = []
    # An absent tag is a driver before 570; "None" is the good answer.
    if wanted is None:
        result.append(checks.skipped("gpu.recovery_action", "only drivers from 570 on tell", gpu=label(gpu)))
    else:
        action, remedy = _RECOVERY.get(wanted.lower(), ("contact_support", "do what the card asks for: " + wanted))
        clean = wanted.lower() == "none"
        result.append(
            checks.judged(
                "gpu.recovery_action",
                clean,
                gpu=label(gpu),
                measured=wanted,
                expected="None",
                reason=None if clean else "the card asks for: " + wanted,
                action=action,
                remedy=_for(gpu, remedy),
            )
        )
    asked = ((gpu["reset_required"], _RESET_REQUIRED), (gpu["drain_recommended"], _DRAIN))
    return result + [_flag(gpu, value, rule) for value, rule in asked if value is not None]


def _judge_temperature(gpu: Card, expected: Expected) -> List[Check]:
    return [_judge_gpu_temperature(gpu, expected), _judge_memory_temperature(gpu, expected)]


def _judge_gpu_temperature(gpu: Card, expected: Expected) -> Check:
    value, slow, margin = gpu["temperature_c"], gpu["temperature_slow_c"], gpu["temperature_margin_c"]
    wanted = expected.get("max_temperature_c")
    rest: checks.Rest = {"gpu": label(gpu), "unit": "°C", "action": "check_hardware", "remedy": _cooling(gpu)}
    if value is None:
        return _judge_margin(gpu, rest)
    shutdown = _shutdown_temperature(gpu, value)
    if value >= shutdown:
        return checks.failed(
            "temp.gpu",
            measured=value,
            expected=shutdown,
            reason="the card is as hot as where it shuts itself down",
            **rest,
        )
    if wanted is None and margin is not None:
        ok = margin > TEMPERATURE_MARGIN_C
        return checks.judged(
            "temp.gpu",
            ok,
            "warning",
            measured=value,
            expected=value + margin - TEMPERATURE_MARGIN_C,
            reason=None if ok else f"{margin} °C below the temperature at which the card slows down",
            **rest,
        )
    limit = wanted if wanted is not None else (slow - TEMPERATURE_MARGIN_C if slow else TEMPERATURE_LIMIT_C)
    return checks.judged(
        "temp.gpu",
        value < limit,
        "warning",
        measured=value,
        expected=limit,
        reason=None if value < limit else "the card is hot",
        **rest,
    )


def _judge_margin(gpu: Card, rest: checks.Rest) -> Check:
    """Of a card that tells no temperature: how far it is from where it slows down and shuts itself down, where it tells that."""
    margin, last = gpu["temperature_margin_c"], _shutdown_margin(gpu)
    if margin is None or margin > TEMPERATURE_MARGIN_C:
        return checks.skipped("temp.gpu", "the card tells no temperature", "warning", gpu=label(gpu))
    if margin > last:
        reason = f"{margin} °C below the temperature at which the card slows down"
        return checks.failed(
            "temp.gpu", "warning", measured=margin, expected=TEMPERATURE_MARGIN_C, reason=reason, **rest
        )
    reason = "the card is as hot as where it shuts itself down"
    return checks.failed("temp.gpu", measured=margin, expected=last, reason=reason, **rest)


def _shutdown_margin(gpu: Card) -> int:
    """The margin at which a card shuts itself down: its own word, else one that is beyond that of every card known.

    A margin (NVIDIA's T.Limit) counts down to 0, where a card may work no hotter; it slows down at -2 and shuts itself down at -7
    (GeForce RTX 4090) or -8 (H100, H200). So their own ``nvidia-smi -q`` says ("GPU Shutdown T.Limit Temp", in the XML
    ``gpu_temp_max_tlimit_threshold``), with drivers 535 and 590.
    """
    last: Optional[int] = gpu["temperature_shutdown_margin_c"]
    return SHUTDOWN_LIMIT_MARGIN_C if last is None else last


def _shutdown_temperature(gpu: Card, now: int) -> int:
    """Where a card shuts itself down, by its threshold and by its margin; a margin counts down to a small negative one."""
    threshold: int = gpu["temperature_shutdown_c"] or SHUTDOWN_LIMIT_C
    margin = gpu["temperature_margin_c"]
    return threshold if margin is None else min(threshold, now + margin - _shutdown_margin(gpu))


def _judge_memory_temperature(gpu: Card, expected: Expected) -> Check:
    value, ceiling = gpu["temperature_memory_c"], gpu["temperature_memory_max_c"]
    limit = expected.get("max_memory_temperature_c") or min(MEMORY_LIMIT_C, ceiling or MEMORY_LIMIT_C)
    return _limit(gpu, value, limit, _MEMORY_HOT)


_MEMORY_HOT = Rule(
    "temp.mem",
    "warning",
    "the card's memory is hot",
    "check_hardware",
    _COOL,
    "the card tells no memory temperature",
    "°C",
)


def _judge_throttle(gpu: Card, _expected: Expected) -> List[Check]:
    active: Optional[List[str]] = gpu["throttle"]
    if active is None:
        absent = "the card does not tell why it slows down"
        return [checks.skipped(name, absent, gpu=label(gpu)) for name in ("throttle.hw", "throttle.sw_thermal")]
    hard = [name for name in active if name in _SLOWED - {_SOFT_HEAT}]
    passing = (
        "a power brake that does not last over three looks does not count" if smi_brake.PASSING in active else None
    )
    return [
        checks.judged(
            "throttle.hw",
            not hard,
            gpu=label(gpu),
            measured=active,
            expected=[],
            reason="the hardware slows the card down: " + ", ".join(hard) if hard else passing,
            action="check_hardware",
            remedy=hardware_remedy(active),
        ),
        _judge_soft_heat(gpu, active),
    ]


def hardware_remedy(active: Sequence[str]) -> str:
    """What helps a card that its hardware slows down: against each reason that it names, against both where it names none."""
    known = {smi_brake.HEAT: _COOL, smi_brake.BRAKE: _BRAKED}
    named = [remedy for reason, remedy in known.items() if reason in active]
    return "; ".join(named or known.values())


def _judge_soft_heat(gpu: Card, active: Sequence[str]) -> Check:
    """Heat slows a card down under load where its cooling is short; at rest only where cooling or sensor are broken."""
    soft, rest = _SOFT_HEAT in active, _at_rest(gpu)
    reason = "the driver slows the card down because it is hot" + (", although it is at rest" if rest else "")
    return checks.judged(
        "throttle.sw_thermal",
        not soft,
        "critical" if rest else "warning",
        gpu=label(gpu),
        measured=list(active),
        expected=[],
        reason=reason if soft else None,
        action="check_hardware",
        remedy=_cooling(gpu),
    )


def _cooling(gpu: Card) -> str:
    """What helps a card that slows down for its temperature: one that is not hot is held to a limit."""
    value, memory = gpu["temperature_c"], gpu["temperature_memory_c"]
    cold = value is not None and value < _COLD_C and (memory is None or memory < MEMORY_LIMIT_C)
    return _HELD if cold else _COOL


def _at_rest(gpu: Card) -> bool:
    utilization = gpu["utilization_percent"]
    # A parted card (MIG) tells no utilization.
    return not computing(gpu) if utilization is None else utilization <= REST_PERCENT


def _judge_power(gpu: Card, expected: Expected) -> List[Check]:
    limit, default = gpu["power_limit_w"], gpu["power_default_limit_w"]
    result = _judge_power_draw(gpu, expected)
    if limit is not None and default is not None:
        result.append(_judge_power_limit(gpu, limit, default, expected))
    return result


def _judge_power_draw(gpu: Card, expected: Expected) -> List[Check]:
    errors: Dict[str, str] = gpu.get("errors") or {}
    unreadable = {path: text for path, text in errors.items() if "power_draw" in path}
    if unreadable and not expected.get("under_load") and all(map(_of_the_moment, errors.items())):
        reason = "the card does not tell its power draw at this moment"
        return [
            checks.skipped("power.read", reason, "warning", gpu=label(gpu), evidence="; ".join(unreadable.values()))
        ]
    if unreadable:
        return [
            checks.failed(
                "power.read",
                "warning",
                gpu=label(gpu),
                reason="the power draw cannot be read",
                evidence="; ".join(unreadable.values()),
                action="reboot",
                remedy="look in the kernel log for Xid 79 and 119; reboot the host",
            )
        ]
    if gpu["power_draw_w"] is None:
        return [checks.skipped("power.read", "the card does not measure its power", "warning", gpu=label(gpu))]
    most = max(gpu["power_limit_w"] or 0, gpu["power_default_limit_w"] or 0)
    if most and gpu["power_draw_w"] > IMPOSSIBLE_POWER * most:
        held = ", and its power cap holds the clocks down for it" if "sw_power_cap" in (gpu["throttle"] or ()) else ""
        return [
            checks.failed(
                "power.read",
                "warning",
                gpu=label(gpu),
                measured=gpu["power_draw_w"],
                expected=most,
                unit="W",
                reason=f"the card tells a power draw of {gpu['power_draw_w']:g} W, which its limit of {most:g} W does not "
                f"allow{held}",
                action="install",
                remedy="no supply and no cable is at fault: boot the kernel and the driver of before, or newer ones, "
                "and update the firmware of the machine (BIOS)",
            )
        ]
    return [checks.passed("power.read", "warning", gpu=label(gpu), measured=gpu["power_draw_w"], unit="W")]


def _usual_power_limit(gpu: Card, gpus: Sequence[Card]) -> Expected:
    """The limit of delivery of a card that was lowered while another of its model has its own."""
    kept = any(other["name"] == gpu["name"] and not _is_lowered(other) for other in gpus)
    default = gpu["power_default_limit_w"]
    return {"usual_power_limit_w": default} if kept and default is not None and _is_lowered(gpu) else {}


def _is_lowered(gpu: Card) -> bool:
    limit, default = gpu["power_limit_w"], gpu["power_default_limit_w"]
    return limit is None or default is None or limit <= default - 1


def _judge_power_limit(gpu: Card, limit: float, default: float, expected: Expected) -> Check:
    """A lowered limit is often wanted (heat, noise, power supply), so without a wish it is only told; of one card of several it is odd."""
    wanted, usual = expected.get("power_limit_w"), expected.get("usual_power_limit_w")
    rest: checks.Rest = {"gpu": label(gpu), "measured": limit, "expected": wanted or default, "unit": "W"}
    if wanted is None and usual is not None:
        return checks.failed(
            "gpu.power_limit",
            "warning",
            reason=f"the power limit was lowered to {limit:g} W, while other cards of its model have their {usual:g} W",
            action="configure",
            remedy="'nvidia-smi -i {} -pl {:g}'; where it falls again look at the power supply, the card's power cables and the limits of "
            "the board; where it is meant, wish it (gpu_settings_cards)".format(gpu["index"], usual),
            **rest,
        )
    if wanted is None:
        note = None if abs(limit - default) < 1 else f"the power limit differs from the card's default of {default:g} W"
        return checks.passed("gpu.power_limit", "info", reason=note, **rest)
    ok = abs(limit - wanted) < 1
    return checks.judged(
        "gpu.power_limit",
        ok,
        "warning",
        reason=None if ok else "the power limit is not the wished one",
        action="configure",
        remedy="'nvidia-smi -i {} -pl {:g}'".format(gpu["index"], wanted),
        **rest,
    )


def _judge_fan(gpu: Card, _expected: Expected) -> List[Check]:
    if _FAN in (gpu.get("errors") or {}):
        return [
            checks.failed(
                "fan",
                gpu=label(gpu),
                evidence=gpu["errors"][_FAN],
                action="check_hardware",
                reason="the speed of a fan cannot be read: nobody knows whether it turns",
                remedy="look whether it turns, and at its plug and the power of the card; power the host off and on, which starts its "
                "control anew; then another build of the driver, or the maker of the card",
            )
        ]
    if gpu["fan_percent"] is None:
        return [checks.skipped("fan", "the card has no fan of its own", "warning", gpu=label(gpu))]
    return [checks.passed("fan", "warning", gpu=label(gpu), measured=gpu["fan_percent"], unit="%")]


_SUPERCHIP = re.compile(r"\bG[HB]\d{3}\b")
# There it brings the card's memory into use (github NVIDIA/nvidia-persistenced, issue 11).
_AS_ROOT = "where its journal says that it may not write auto_online_blocks, it has to run as root: take --user out of its unit"


def _judge_persistence(gpu: Card, expected: Expected) -> List[Check]:
    mode, wanted = gpu["persistence_mode"], expected.get("persistence")
    rest: checks.Rest = {
        "gpu": label(gpu),
        "measured": _on_off(mode),
        "expected": _on_off(True if wanted is None else wanted),
    }
    if wanted is False:
        return [checks.skipped("persistence", "persistence is not wanted here", "warning", **rest)]
    if mode is None:
        return [checks.skipped("persistence", "the card has no persistence mode", "warning", **rest)]
    return [
        checks.judged(
            "persistence",
            mode,
            "warning",
            reason=None if mode else "the driver is unloaded from the card whenever nobody uses it: slow starts",
            action="restart_service",
            remedy="enable nvidia-persistenced with persistence mode on"
            + ("; " + _AS_ROOT if _SUPERCHIP.search(str(gpu["name"])) else ""),
            **rest,
        )
    ]


def _judge_fabric(gpu: Card, _expected: Expected) -> List[Check]:
    """Cards behind NVSwitches are usable only once the fabric manager has connected them."""
    return [_judge_fabric_state(gpu), _judge_fabric_health(gpu)]


def _judge_fabric_state(gpu: Card) -> Check:
    state, status = gpu["fabric"]["state"], gpu["fabric"]["status"]
    if state is None and status is None:
        return checks.skipped("fabric.state", "the card is not part of an NVSwitch fabric", gpu=label(gpu))
    ok = state == "Completed" and status in (None, "Success")
    told = ", ".join(value for value in (state, status) if value)
    return checks.judged(
        "fabric.state",
        ok,
        gpu=label(gpu),
        measured=told,
        expected="Completed, Success",
        reason=None
        if ok
        else f"the card is not connected to the NVSwitch fabric ({told}); CUDA will fail with error 802",
        action="restart_service",
        remedy="start nvidia-fabricmanager of the same version as the driver, read its log; else reboot",
    )


# What a fabric's health is told by, and the words of a good one: those of a GB200, and of NVML's constants (its "Fabric definitions").
_FABRIC_WELL = ("healthy", "full", "false", "no")


# Of what these rules do not know: words that are trouble in any place, and tags that name a trouble which is there.
_FABRIC_ILL = re.compile(
    r"unhealthy|not healthy|degraded|fail|error|fault|limited|insufficient|incorrect|incompatible|invalid|unassigned",
    re.IGNORECASE,
)
_FABRIC_TROUBLE = re.compile(r"unhealthy|degraded|fail|error|fault|timeout|incorrect|invalid|progress", re.IGNORECASE)


def _judge_fabric_health(gpu: Card) -> Check:
    fabric = gpu["fabric"]
    parts = {
        "health": fabric["health"],
        "bandwidth": fabric["bandwidth"],
        "route_recovery": fabric["route_recovery"],
        "route_unhealthy": fabric["route_unhealthy"],
        "access_timeout_recovery": fabric["access_timeout_recovery"],
        "incorrect_configuration": fabric["incorrect_configuration"],
    }
    told = {key: value for key, value in parts.items() if value is not None}
    ill = [f"{key.replace('_', ' ')}: {value}" for key, value in told.items() if value.lower() not in _FABRIC_WELL]
    # NVML says true, false or "not supported" to it (NVML_GPU_FABRIC_HEALTH_MASK_PARTITION_ASSIGNED).
    assigned, others = gpu["fabric"].get("partition_assigned"), gpu["fabric"].get("other")
    if assigned is not None and assigned.lower() not in ("true", "yes"):
        ill.append("partition assigned: " + assigned)
    ill += [entry for entry in (others or "").split("; ") if _is_ill(entry)]
    if not told and assigned is None and not ill:
        return checks.skipped("fabric.health", "the card tells nothing of a fabric's health", gpu=label(gpu))
    return checks.judged(
        "fabric.health",
        not ill,
        gpu=label(gpu),
        measured=", ".join(ill) or "Healthy",
        expected="Healthy",
        reason="the card's part of the NVLink fabric is not healthy: " + ", ".join(ill) if ill else None,
        action="restart_service",
        remedy="read the log of nvidia-fabricmanager, and of the switches where they are not in this host; reset the card or reboot, then "
        "have its NVLinks inspected",
    )


def _is_ill(entry: str) -> bool:
    """Whether one ``tag: text`` of a fabric's health tells of a trouble, by its text, or by a tag that holds true."""
    tag, _colon, value = entry.partition(": ")
    return bool(_FABRIC_ILL.search(value) or (value.lower() in ("true", "yes") and _FABRIC_TROUBLE.search(tag)))


def _judge_mig(gpu: Card, expected: Expected) -> List[Check]:
    current, pending, wanted = gpu["mig"]["current"], gpu["mig"]["pending"], expected.get("mig")
    rest: checks.Rest = {"gpu": label(gpu), "measured": _on_off(current), "expected": _on_off(wanted)}
    if current is None:
        return [checks.skipped("gpu.mig", "the card cannot be partitioned (MIG)", "warning", **rest)]
    if pending is not None and pending != current:
        return [
            checks.failed(
                "gpu.mig",
                "warning",
                reason="partitioning (MIG) changes only with a reset",
                action="reset_gpu",
                remedy=_for(gpu, _RESET),
                **rest,
            )
        ]
    ok = wanted is None or bool(wanted) == current
    if ok and current and not gpu["mig"]["devices"]:
        return [
            checks.failed(
                "gpu.mig",
                reason="the card is partitioned (MIG) and has no instance: CUDA sees no card there",
                action="configure",
                remedy=_for(
                    gpu,
                    "make instances ('nvidia-smi mig -i {index} -cgi PROFILES -C', or wish a mig_layout, which outlives boots), or "
                    "switch it off: 'nvidia-smi -i {index} -mig 0'",
                ),
                **rest,
            )
        ]
    return [
        checks.judged(
            "gpu.mig",
            ok,
            "warning",
            reason=None if ok else f"partitioning (MIG) is {_on_off(current)}",
            action="configure",
            remedy="'nvidia-smi -i {} -mig {}', then reset the card".format(gpu["index"], int(bool(wanted))),
            **rest,
        )
    ]


# Modes besides Default: what a failure means, and why.
_PROHIBITED = ("critical", "the compute mode lets nobody compute on the card")
_EXCLUSIVE = ("warning", "the compute mode keeps several processes from sharing the card")


def _judge_compute_mode(gpu: Card, expected: Expected) -> List[Check]:
    mode, wanted = gpu["compute_mode"], expected.get("compute_mode")
    rest: checks.Rest = {"gpu": label(gpu), "measured": mode, "expected": wanted or "Default"}
    if mode is None:
        return [checks.skipped("gpu.mode.compute", "the card has no compute mode", "warning", **rest)]
    ok = mode in ("Default", wanted)
    severity, reason = _PROHIBITED if mode == "Prohibited" else _EXCLUSIVE
    return [
        checks.judged(
            "gpu.mode.compute",
            ok,
            severity,
            reason=None if ok else reason,
            action="configure",
            remedy="'nvidia-smi -i {} -c 0'".format(gpu["index"]),
            **rest,
        )
    ]


def _judge_licence(gpu: Card, _expected: Expected) -> List[Check]:
    """A virtual GPU without a licence is slowed down after a while (NVIDIA's licensing guide); other cards need none."""
    told = gpu["licence"]
    if told is None:
        return []
    return [
        checks.judged(
            "gpu.licence",
            told.lower().startswith("licensed"),
            "warning",
            gpu=label(gpu),
            measured=told,
            expected="Licensed",
            reason=None if told.lower().startswith("licensed") else "the virtual GPU has no licence and is slowed down",
            action="configure",
            remedy="give nvidia-gridd the token of your licence server and look into its journal",
        )
    ]


def _left_low(gpu: Card) -> Optional[Tuple[int, int, str]]:
    """An application clock that is lower than the default one, that, and of what: jobs leave them (github IBM/CAST, issue 164)."""
    clocks = gpu["clocks"]
    pairs = (
        (clocks["application_sm_mhz"], clocks["default_sm_mhz"], "multiprocessors"),
        (clocks["application_memory_mhz"], clocks["default_memory_mhz"], "memory"),
    )
    return next(((now, usual, of) for now, usual, of in pairs if now and usual and now < usual), None)


def computing(gpu: Card) -> List[Process]:
    """The processes that make a card busy: those that compute. Those of the desktop (type G) do not."""
    return [process for process in gpu["processes"] if process.get("type") != "G"]


# No software and no boot took a DGX Spark out of it (github Blackwellboy/model-serving-minefield, pull request 55).
_HELD_BOARD = (
    "; where none were set its board is held in a state of low power: shut it down, unplug its power supply for a minute, "
    "and start it"
)


def _judge_set_clocks(gpu: Card, expected: Expected) -> List[Check]:
    """Nobody left a card slower than it is by default (-ac), or than it can be (-lgc). The latter shows where a card
    works that nothing else slows.
    """
    left = _left_low(gpu)
    if left and not expected.get("clocks_set"):
        return [
            checks.failed(
                "gpu.clocks",
                "warning",
                gpu=label(gpu),
                measured=left[0],
                expected=left[1],
                unit="MHz",
                reason=f"the application clocks are below the default ones: {left[0]} of {left[1]} MHz ({left[2]})",
                action="configure",
                remedy=f"'nvidia-smi -i {gpu.get('index')} -rac' takes them back; where they are wished, say so (gpu_settings_cards)",
            )
        ]
    now, most, slowed = gpu["clocks"]["sm_mhz"], gpu["clocks"]["sm_max_mhz"], gpu["throttle"]
    # A board that tells no limit, as that of a GB10, works by what it says of its use alone.
    limit = gpu["power_limit_w"]
    draws = limit is None or (gpu["power_draw_w"] or 0) >= WORKING_POWER_SHARE * limit
    # A card that says itself that set clocks hold it may be at work in any state.
    at_work = (draws and gpu["performance_state"] == "P0") or _SET_CLOCKS in (slowed or ())
    busy = at_work and (gpu["utilization_percent"] or 0) >= AT_WORK_PERCENT
    if (
        expected.get("clocks_set")
        or not busy
        or not now
        or not most
        or slowed is None
        or set(slowed) & {*_SLOWED, "sw_power_cap"}
    ):
        return []
    ok = now >= SET_CLOCKS_SHARE * most
    text = (
        f"the card works at {now} of its {most} MHz, and neither heat nor power slows it: its clocks are set lower (locked clocks, "
        "application clocks)"
    )
    return [
        checks.judged(
            "gpu.clocks",
            ok,
            "warning",
            gpu=label(gpu),
            measured=now,
            expected=most,
            unit="MHz",
            reason=None if ok else text,
            action="configure",
            remedy=f"'nvidia-smi -i {gpu.get('index')} -rgc' and 'nvidia-smi -i {gpu.get('index')} -rac' take set clocks back"
            + ("" if limit is not None else _HELD_BOARD),
        )
    ]


def _judge_idle(gpu: Card, expected: Expected) -> List[Check]:
    busy = computing(gpu)
    desktop = len(gpu["processes"]) - len(busy)
    names = ", ".join("{} (pid {})".format(process["name"] or "unnamed", process["pid"]) for process in busy[:10])
    rest: checks.Rest = {"gpu": label(gpu), "measured": len(busy), "unit": "computing processes"}
    if not busy:
        note = (
            f"{words.count(desktop, 'processes')} of the desktop {words.verb(desktop, 'do')} not count"
            if desktop
            else None
        )
        return [checks.passed("gpu.idle", "warning", reason=note, **rest)]
    if not expected.get("idle"):
        return [checks.passed("gpu.idle", "info", reason="the card is in use", evidence=names, **rest)]
    return [
        checks.failed(
            "gpu.idle",
            "warning",
            reason="the card should be idle and is in use",
            evidence=names,
            expected=0,
            action="restart_app",
            remedy="end the processes, or wait for them",
            **rest,
        )
    ]


def judge_pcie_width(gpu: Card, expected: Expected, cards: int = 1) -> Check:
    """The link has all lanes that card and slot could have.

    What the inventory says of the slot decides alone. Without it, half of the lanes is a warning, and less than eight a failure: consumer
    boards give several cards eight lanes each, and clouds attach cards with eight; four or one is a fault. On a consumer card it is a
    warning: many boards have no more for their second slot, and risers of one lane are common there.
    """
    width, maximum = gpu["pcie"]["width"], gpu["pcie"]["width_max"]
    wanted = _right_lanes(gpu, expected.get("pcie_lanes") or {})
    rest: checks.Rest = {"gpu": label(gpu), "measured": width, "unit": "lanes"}
    target = wanted or maximum
    if width is None or target is None:
        return checks.skipped("pcie.width", "the card tells no PCIe width, as in a virtual machine", gpu=label(gpu))
    if width >= target:
        return checks.passed("pcie.width", expected=target, **rest)
    reason = f"the PCIe link has {width} of {target} lanes"
    if not wanted and width >= ENOUGH_LANES and cards > 1:
        return checks.passed(
            "pcie.width", expected=ENOUGH_LANES, reason=reason + ", which is what boards give several cards", **rest
        )
    severity, remedy = "warning" if not wanted and width >= ENOUGH_LANES else "critical", _SEAT
    if not wanted and width < ENOUGH_LANES and _is(_CONSUMER, gpu):
        severity = "warning"
        reason += ": all that many boards have for a second slot or a riser; data comes slowly to the card"
        remedy += "; if the slot has no more, say so in gpuwright_gpus_pcie_lanes"
    return checks.failed(
        "pcie.width", severity, reason=reason, expected=target, action="check_hardware", remedy=remedy, **rest
    )


def _right_lanes(gpu: Card, lanes: Mapping[str, int]) -> Optional[int]:
    """What an inventory says of a card's slot: by its place before its model, and that before all."""
    places = {document.normalise_bus_id(str(key)): count for key, count in lanes.items()}
    if gpu["pci_bus_id"] in places:
        return places[gpu["pci_bus_id"]]
    models = [count for key, count in lanes.items() if same_model(str(gpu.get("name") or ""), str(key))]
    return models[0] if models else lanes.get("all")


def _judge_pcie(gpu: Card, expected: Expected) -> List[Check]:
    return [_judge_pcie_generation(gpu, expected), _judge_replays(gpu)]


def _judge_pcie_generation(gpu: Card, expected: Expected) -> Check:
    """An idle card lowers its link to the first generation, so it is held against the maximum only under load, ours or another's."""
    now, best = gpu["pcie"]["gen"], expected.get("pcie_gen") or _best_generation(gpu)
    rest: checks.Rest = {"gpu": label(gpu), "measured": now, "expected": best, "unit": "generation"}
    if now is None or best is None:
        return checks.skipped(
            "pcie.gen", "the card tells no PCIe generation, as in a virtual machine", "warning", **rest
        )
    if now >= best:
        return checks.passed("pcie.gen", "warning", **rest)
    if not (expected.get("under_load") or _at_work(gpu)):
        return checks.skipped("pcie.gen", "an idle card lowers its link; this is judged under load", "info", **rest)
    return checks.failed(
        "pcie.gen",
        "warning",
        reason=f"the PCIe link runs at generation {now} of {best}, slower than card and slot allow, under load",
        action="check_hardware",
        remedy=_SEAT,
        **rest,
    )


def _at_work(gpu: Card) -> bool:
    """Whether something computes there now, at full clocks: then the link is as fast as it becomes (nvidia-smi, PCIe Generation)."""
    busy = gpu["performance_state"] == "P0" and (gpu["utilization_percent"] or 0) >= AT_WORK_PERCENT
    return busy and not set(gpu["throttle"] or ()) & _SLOWED


def _best_generation(gpu: Card) -> Optional[int]:
    """The highest generation that both card and host have; where one of them does not say, what nvidia-smi makes of it."""
    device, host = gpu["pcie"]["gen_device_max"], gpu["pcie"]["gen_host_max"]
    return gpu["pcie"]["gen_max"] if device is None or host is None else min(device, host)


_REPLAYS = Rule(
    "pcie.replay",
    "warning",
    "many packets of the PCIe link had to be sent again",
    "check_hardware",
    _SEAT,
    "the card does not count replays",
    "replays",
)


def _judge_replays(gpu: Card) -> Check:
    return _limit(gpu, gpu["pcie"]["replays"], REPLAYS_LIMIT, _REPLAYS)


_STEPS: Tuple[Callable[[Card, Expected], List[Check]], ...] = (
    _judge_readable,
    _judge_recovery,
    _judge_ecc,
    _judge_remap,
    _judge_pages,
    _judge_temperature,
    _judge_throttle,
    _judge_power,
    _judge_fan,
    _judge_persistence,
    _judge_fabric,
    _judge_mig,
    _judge_compute_mode,
    _judge_licence,
    _judge_set_clocks,
    _judge_idle,
    _judge_pcie,
)


def _judge_pcie_generation_only(gpu: Card, expected: Expected) -> List[Check]:
    return [_judge_pcie_generation(gpu, expected)]


# What says more of a card that works than of one that rests. Counters are held against those before the load, see load_judge.
_STEPS_UNDER_LOAD: Tuple[Callable[[Card, Expected], List[Check]], ...] = (
    _judge_readable,
    _judge_recovery,
    _judge_temperature,
    _judge_throttle,
    _judge_power_draw,
    _judge_pcie_generation_only,
)


def judge_under_load(gpu: Card, expected: Expected, cards: int = 1) -> List[Check]:
    """The checks of one card that is kept busy; as :func:`judge_gpu` where it does not answer at all."""
    lost = _judge_lost(gpu)
    if lost is not None:
        return [lost]
    result: List[Check] = []
    for step in _STEPS_UNDER_LOAD:
        result += step(gpu, {**expected, "under_load": True})
    return [*result, judge_pcie_width(gpu, expected, cards)]
