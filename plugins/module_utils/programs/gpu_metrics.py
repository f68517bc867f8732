# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every card tells by one `nvidia-smi -q -x`, as Prometheus reads it: format 0.0.4, under the names and labels of NVIDIA's
dcgm-exporter. Imported by gpu_exporter.py.

The XML alone has all of it with every driver: a question for CSV fails as a whole where one field is unknown, and has none for a card's
device. A value that a card does not tell has no line. Not told at all, because nvidia-smi does not: the last Xid and what went over NVLink;
nor what is of a MIG instance.
"""

from __future__ import annotations

import re
import socket
import xml.etree.ElementTree as ET
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv, document, run

# Python 3.8 runs this too: the aliases below are evaluated.
#: Of a card's element, a value; None where it is not told.
Reading = Callable[[ET.Element], Optional[float]]
#: Labels of cards by their place on the bus: a card that is lost tells its own no more.
Known = Dict[str, Dict[str, str]]


class Card(NamedTuple):
    """A card at one moment, its values by metric."""

    labels: Dict[str, str]
    values: Dict[str, float]
    lost: bool


# --------------------------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"^(-?\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z%]{0,4})$")
# nvidia-smi said "MB" before 375, and meant the same.
_SPELLINGS = {"MB": "MiB"}
_NOT_TOLD = re.compile(r"^\[?(|N/A|None|Not Supported|Not Available|Requested functionality has been deprecated)\]?$")


def _said(card: ET.Element, path: str) -> str:
    """What stands at a path; empty where nothing does, or more than one thing: a real document has each once."""
    group = path.partition("/")[0]
    found = card.findall(path)
    return (found[0].text or "").strip() if len(found) == 1 and len(card.findall(group)) == 1 else ""


def _number(text: str, unit: str) -> Optional[float]:
    """A number in its unit; only a temperature may be below zero."""
    match = _NUMBER.match(text)
    if match is None or _SPELLINGS.get(match.group(2), match.group(2)) != unit:
        return None
    value = float(match.group(1))
    return None if value < 0 and unit != "C" else value


def _value(unit: str, *paths: str) -> Reading:
    """The first of some paths that holds a number."""

    def read(card: ET.Element) -> Optional[float]:
        told = (_number(_said(card, path), unit) for path in paths)
        return next((value for value in told if value is not None), None)

    return read


def _total(*paths: str) -> Reading:
    """The sum of what is counted. A counter never goes back: where a part of it cannot be read, it is not told."""

    def read(card: ET.Element) -> Optional[float]:
        counted = [text for text in (_said(card, path) for path in paths) if not _NOT_TOLD.match(text)]
        values = [value for value in (_number(text, "") for text in counted) if value is not None]
        return sum(values) if values and len(values) == len(counted) else None

    return read


def _flag(path: str) -> Reading:
    return lambda card: {"Yes": 1.0, "No": 0.0}.get(_said(card, path))


_BITS = {name: bit for bit, name in csv.REASONS.items()}


def _reasons(card: ET.Element) -> Optional[float]:
    """Why the clocks are low, as NVML's mask. A reason that this program does not know has no bit in it."""
    # Renamed in 535.54.03.
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        states = {bit: _said(card, f"{group}/{prefix}{name}") for name, bit in _BITS.items()}
        if any(state in ("Active", "Not Active") for state in states.values()):
            return float(sum(bit for bit, state in states.items() if state == "Active"))
    return None


#: dcgmFabricManagerStatus_t (dcgm_structs.h) by nvmlGpuFabricState_t in nvidia-smi's words.
_FABRIC = {"Not Started": 1.0, "In Progress": 2.0}
_FABRIC_GOOD, _FABRIC_BAD = 3.0, 4.0


def _fabric(card: ET.Element) -> Optional[float]:
    state = _said(card, "fabric/state")
    if state == "Completed":
        return _FABRIC_GOOD if _said(card, "fabric/status") == "Success" else _FABRIC_BAD
    return _FABRIC.get(state)


_VOLATILE = "ecc_errors/volatile/"
_GENERATION = "pci/pci_gpu_link_info/pcie_gen/"
_WIDTH = "pci/pci_gpu_link_info/link_widths/"
_UTIL, _USED, _TOTAL = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"
_TEMPERATURE, _POWER, _MASK = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
)
#: Name, type, help, where it is read. Names and types are dcgm-exporter's (etc/default-counters.csv) and DCGM's (dcgm_fields.h), paths of
#: one value by the age of the driver, newest first. The power is the average of a second, as NVML gives it to DCGM.
METRICS: Tuple[Tuple[str, str, str, Reading], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", _value("MHz", "clocks/sm_clock")),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", _value("MHz", "clocks/mem_clock")),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", _value("C", "temperature/memory_temp")),
    (_TEMPERATURE, "gauge", "GPU temperature (in C).", _value("C", "temperature/gpu_temp")),
    (
        _POWER,
        "gauge",
        "Power draw (in W).",
        _value(
            "W",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/power_draw",
            "power_readings/power_draw",
            "gpu_power_readings/instant_power_draw",
        ),
    ),
    (
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "gauge",
        "Power limit that is in force (in W).",
        _value(
            "W",
            "gpu_power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
    ),
    (_UTIL, "gauge", "GPU utilization (in %).", _value("%", "utilization/gpu_util")),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", _value("%", "utilization/memory_util")),
    (
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        _value("MiB", "fb_memory_usage/free", "memory_usage/free"),
    ),
    (
        _USED,
        "gauge",
        "Framebuffer memory used (in MiB).",
        _value("MiB", "fb_memory_usage/used", "memory_usage/used"),
    ),
    (
        _TOTAL,
        "gauge",
        "Framebuffer memory in all (in MiB).",
        _value("MiB", "fb_memory_usage/total", "memory_usage/total"),
    ),
    (
        "DCGM_FI_DEV_PCIE_LINK_GEN",
        "gauge",
        "PCIe generation of the link.",
        _value("", _GENERATION + "current_link_gen"),
    ),
    (
        "DCGM_FI_DEV_PCIE_LINK_WIDTH",
        "gauge",
        "PCIe lanes of the link.",
        _value("x", _WIDTH + "current_link_width"),
    ),
    (
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
        "gauge",
        "Highest PCIe generation of the link.",
        _value("", _GENERATION + "max_link_gen"),
    ),
    (
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        "gauge",
        "Most PCIe lanes of the link.",
        _value("x", _WIDTH + "max_link_width"),
    ),
    (_MASK, "gauge", "Why the clocks are low (bit mask, nvmlClocksEventReason* of nvml.h).", _reasons),
    (
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Total number of single-bit volatile ECC errors.",
        _total(_VOLATILE + "sram_correctable", _VOLATILE + "dram_correctable", _VOLATILE + "single_bit/total"),
    ),
    (
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Total number of double-bit volatile ECC errors.",
        _total(
            _VOLATILE + "sram_uncorrectable",
            _VOLATILE + "sram_uncorrectable_parity",
            _VOLATILE + "sram_uncorrectable_secded",
            _VOLATILE + "dram_uncorrectable",
            _VOLATILE + "double_bit/total",
        ),
    ),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors.",
        _value("", "remapped_rows/remapped_row_unc"),
    ),
    (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors.",
        _value("", "remapped_rows/remapped_row_corr"),
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed.",
        _flag("remapped_rows/remapped_row_failure"),
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "gauge",
        "Whether a row waits for a reset to be remapped.",
        _flag("remapped_rows/remapped_row_pending"),
    ),
    (
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS",
        "gauge",
        "Registration at the fabric: 1 not started, 2 in progress, 3 good, 4 failed.",
        _fabric,
    ),
)
_LOST_METRIC = "gpuwright_card_lost"
_LOST_HELP = (
    "Whether the card answers no more: it tells no value, or is not there where it was since this program began."
)


# --------------------------------------------------------------------------------------------------------------------
# A sample
# --------------------------------------------------------------------------------------------------------------------

_LOST = re.compile(r"gpu is lost", re.IGNORECASE)
#: What nvidia-smi says beside its answer of a card that it cannot reach.
_UNREACHABLE = re.compile(
    r"^Unable to determine the device handle for .*?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", re.M
)
_BUS_ID = re.compile(r"^([0-9A-F]{1,8}):([0-9A-F]{2}:[0-9A-F]{2}\.[0-7])$")
_UUID = re.compile(r"^[A-Za-z0-9-]{1,64}$")
_MINOR = re.compile(r"^\d{1,5}$")
_VERSION = re.compile(r"^\d[\d.]{0,30}$")
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_LONGEST = 120
_MOST_CARDS = 64


def look(smi: run.Runner, known: Known) -> Tuple[List[Card], Optional[str]]:
    """The cards, and what is wrong where nvidia-smi answers for some of them only. ``known`` is brought up to date.

    Raises SmiError where it answers for none, Hung as the runner does.
    """
    status, text = smi(["-q", "-x"])
    problem = ""
    try:
        described, beside = document.cut_out(text)
    except run.SmiError as error:
        described, beside = "", text
        problem = str(error) if document.is_begun(text) else line(text)
    unreachable = [_place(match) for match in _UNREACHABLE.findall(beside)][:_MOST_CARDS]
    if described:
        return _cards(document.tree(described, lists=False), unreachable, known), None
    if not unreachable:
        raise run.SmiError(problem or f"nvidia-smi ended with status {status} and said nothing")
    # A question for CSV goes on behind a card that is lost.
    of_host = {"Hostname": socket.gethostname()}
    try:
        rows = [row for row in csv.samples(smi) if not row["problem"]]
    except run.Hung:
        raise
    except run.SmiError:
        rows = []
    cards = [_of_row(row, known, of_host) for row in rows]
    told = {card.labels["pci_bus_id"] for card in cards}
    # Where that is refused too, nothing is known of the others.
    gone = [place for place in known if place not in told] if cards else unreachable
    lost = _lost(unreachable, known, gone, of_host)
    return cards + _numbered(lost, known), None if cards else line(text)


def line(text: str) -> str:
    """What a program said, as one line."""
    return " ".join(_CONTROL.sub(" ", text).split())[:300]


def _place(text: str) -> str:
    """A place on the bus as nvidia-smi's own XML has it: eight digits of domain. Empty where the text is none."""
    match = _BUS_ID.match(text.strip().upper())
    return f"{int(match.group(1), 16):08X}:{match.group(2)}" if match else ""


def _cards(root: ET.Element, unreachable: Sequence[str], known: Known) -> List[Card]:
    elements = document.cards(root)
    attached = _number(_said(root, "attached_gpus"), "")
    if len(elements) > min(_MOST_CARDS, _MOST_CARDS if attached is None else attached):
        raise run.SmiError(f"nvidia-smi describes {len(elements)} cards, more than are there")
    if not elements and not unreachable:
        raise run.SmiError("nvidia-smi describes no card")
    driver = _said(root, "driver_version")
    of_host = {
        "Hostname": socket.gethostname(),
        "DCGM_FI_DRIVER_VERSION": driver if _VERSION.match(driver) else "",
    }
    found: Dict[str, Card] = {}
    for position, element in enumerate(elements):
        # A card on no bus keeps its position.
        place = _place(_said(element, "pci/pci_bus_id")) or _place(element.get("id") or "") or f"{position:08d}"
        if place in found:
            raise run.SmiError(f"nvidia-smi describes the card {place} twice")
        found[place] = _card(element, place, of_host, known)
    for place, card in found.items():
        known[place] = card.labels
    # Those that nvidia-smi names, and those that were there before.
    gone = [place for place in {**known, **dict.fromkeys(unreachable)} if place not in found]
    return _numbered({**found, **_lost(unreachable, known, gone, of_host)}, known)


def _lost(unreachable: Sequence[str], known: Known, places: Iterable[str], of_host: Dict[str, str]) -> Dict[str, Card]:
    """The cards at some places, those among them that nvidia-smi calls lost and never described with what little is known."""
    for place in unreachable:
        known.setdefault(place, _labels(place, of_host))
    return {place: Card(known[place], {}, True) for place in places if place in known}


def _numbered(cards: Dict[str, Card], known: Known) -> List[Card]:
    """The cards with their index, which NVML gives by the place on the bus: one that is lost keeps its own, and the others theirs."""
    index = {place: str(number) for number, place in enumerate(sorted(known))}
    return [cards[place]._replace(labels={**cards[place].labels, "gpu": index[place]}) for place in sorted(cards)]


def _labels(place: str, of_host: Dict[str, str]) -> Dict[str, str]:
    return {"UUID": "", "pci_bus_id": place if ":" in place else "", "device": "", "modelName": "", **of_host}


def _card(element: ET.Element, place: str, of_host: Dict[str, str], known: Known) -> Card:
    told = {name: value for name, _kind, _help, read in METRICS for value in [read(element)] if value is not None}
    lost = not told or any(_LOST.search(inner.text or "") for inner in element.iter())
    if lost and place in known:
        return Card(known[place], {}, True)
    labels = _labels(place, of_host)
    uuid, minor, name = (_said(element, tag) for tag in ("uuid", "minor_number", "product_name"))
    if _UUID.match(uuid):
        labels["UUID"] = uuid
    if _MINOR.match(minor):
        labels["device"] = f"nvidia{minor}"
    if not lost:
        labels["modelName"] = _CONTROL.sub(" ", name)[:_LONGEST]
    return Card(labels, {} if lost else told, lost)


def _of_row(row: csv.Sample, known: Known, of_host: Dict[str, str]) -> Card:
    """A card by its row of CSV, with the labels that it is known by."""
    uuid, index = row["uuid"] or "", row["index"]
    place = next((place for place, labels in known.items() if uuid and labels["UUID"] == uuid), None)
    if place is None:
        name = _CONTROL.sub(" ", row["name"] or "")[:_LONGEST]
        labels = {**_labels("", of_host), "UUID": uuid, "modelName": name, "gpu": "" if index is None else str(index)}
    else:
        labels = {**known[place], "gpu": str(sorted(known).index(place))}
    reasons = row["throttle"]
    values = {
        _UTIL: row["utilization"],
        _USED: row["memory_used"],
        _TOTAL: row["memory_total"],
        _TEMPERATURE: row["temperature"],
        _POWER: row["power"],
        _MASK: None if reasons is None else float(sum(_BITS.get(name, 0) for name in reasons)),
    }
    return Card(labels, {name: value for name, value in values.items() if value is not None}, False)


# --------------------------------------------------------------------------------------------------------------------
# The text that Prometheus reads, format 0.0.4
# --------------------------------------------------------------------------------------------------------------------

_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")


def rendered(cards: Sequence[Card]) -> str:
    """The lines of the cards; a metric that none of them tells is not there."""
    heads = [_head(card) for card in cards]
    lines: List[str] = []
    for name, kind, help_text, _read in METRICS:
        told = [(head, card.values[name]) for head, card in zip(heads, cards) if name in card.values]
        lines += family(name, kind, help_text, told)
    lost = [(head, float(card.lost)) for head, card in zip(heads, cards)]
    return "".join(lines + family(_LOST_METRIC, "gauge", _LOST_HELP, lost))


def _head(card: Card) -> str:
    return ",".join(f'{label}="{_escaped(card.labels[label])}"' for label in _LABELS if card.labels.get(label))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def family(name: str, kind: str, help_text: str, told: Sequence[Tuple[str, float]]) -> List[str]:
    """The lines of a metric, for each of its labels as they are written; none where nothing is told."""
    if not told:
        return []
    samples = [f"{name}{{{head}}} {value:.15g}\n" if head else f"{name} {value:.15g}\n" for head, value in told]
    return [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n", *samples]
