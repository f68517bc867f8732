# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what ``nvidia-smi -q -x`` prints, by any driver since 285.

Only the XML is read: the plain table changed its layout in 510, 530 and 545, and one unknown field name fails a whole
CSV query. Tags moved between driver lines, so every value is looked for under its names, newest first.

A value that is no number is one of two things, and they must not be confused: *not applicable* (``N/A`` on a GeForce
is no failure) or an *error* (``[GPU is lost]`` is one). The first becomes ``None``; the second becomes ``None`` with an
entry in the card's ``errors``.

Pure functions: what runs nvidia-smi is handed in.
"""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple, cast

from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import Runner, SmiError

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Card,
        CardMig,
        Process,
        RemappedRows,
        RetiredPages,
        SmiData,
    )


# --------------------------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------------------------

NOT_APPLICABLE = frozenset(
    ("", "n/a", "not supported", "not available", "none", "requested functionality has been deprecated", "not found")
)
# NVML's words for its errors (nvmlReturn_t in its API reference) stand in place of values; ERR! is nvidia-smi's own.
_ERROR_TEXT = re.compile(
    r"unknown error|\berr!|gpu is lost|gpu requires reset|gpu not found|insufficient (?:permission|external power|memory|resources|size)"
    r"|function not found|shared library not found|driver not loaded|version mismatch|interrupt request issue|inforom is corrupted"
    r"|corrupted inforom|access blocked|unable to (?:determine|detect)|failed to"
    r"|^(?:timeout|uninitialized|invalid argument|invalid state|not ready|no data|gpu is currently in use|in use by another client)$",
    re.IGNORECASE,
)
# No exponents, and not more digits than a number of this program holds exactly.
_NUMBER = re.compile(r"^([+-]?\d{1,15}(?:\.\d{1,9})?)(?:\s*([A-Za-z%][A-Za-z%/()]{0,15}))?$")
_BUS_ID = re.compile(r"^[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]$")
# Tags that may stand in a path; those of nvidia-smi are such.
_TAG = re.compile(r"^[A-Za-z0-9_]{1,128}$")
_UUID = re.compile(r"^[A-Za-z0-9-]{1,64}$")
# nvidia-smi says "MiB" since 375 and "MB" before, and meant the same.
_MEBIBYTES = {"kib": 1 / 1024, "kb": 1 / 1024, "mib": 1, "mb": 1, "gib": 1024, "gb": 1024, "": 1}
_QUOTES = {ord(mark): "'" for mark in "\u2018\u2019\u201b\u02bc\u00b4`"}
# Characters of a value: the longest of a real card are names of some 60.
_MOST_OF_A_VALUE = 256


def plain(text: Optional[str]) -> str:
    """White space collapsed, typographic apostrophes made plain, brackets around the whole removed."""
    collapsed = " ".join((text or "").translate(_QUOTES).split())
    if collapsed.startswith("[") and collapsed.endswith("]"):
        collapsed = collapsed[1:-1].strip()
    return collapsed


def is_not_applicable(text: Optional[str]) -> bool:
    """Whether nvidia-smi says that the card has no such value."""
    return plain(text).lower() in NOT_APPLICABLE


def is_error(text: Optional[str]) -> bool:
    """Whether nvidia-smi says that it could not read the value."""
    return bool(_ERROR_TEXT.search(plain(text)))


def normalise_bus_id(text: str) -> str:
    """A PCI bus id in nvidia-smi's spelling: eight digits of domain, upper case.

    ``0000:3b:00.0``, ``3b:00.0`` and ``00000000:3B:00.0`` are the same place. Text that is no bus id comes back as it is.
    """
    match = re.match(r"^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])$", text.strip())
    if match is None:
        return text.strip()
    domain, bus, device, function = match.groups()
    return "{:08X}:{:02X}:{:02X}.{}".format(int(domain or "0", 16), int(bus, 16), int(device, 16), function)


class _Reader:
    """Values of one element by their alternative paths; errors are collected on the way, by the path where they stand."""

    def __init__(self, element: ET.Element) -> None:
        self.element = element
        self.errors: Dict[str, str] = {}

    def found(self, *paths: str) -> Tuple[str, Optional[str]]:
        """The first path that is there and says something, else the first that is there, with its text.

        What stands there more than once and says different things is an error: none of them can be trusted.
        """
        fallback: Tuple[str, Optional[str]] = (paths[0], None)
        for path in paths:
            if self.element.find(path) is None:
                continue
            texts = [plain(each.text) for each in self.all(path)]
            told = list(dict.fromkeys(text for text in texts if not is_not_applicable(text)))
            if len(told) > 1 or len(texts) > _MOST_TAGS_OF_A_GROUP:
                self.refuse(path, "told more than once: " + " / ".join(told))
            if told:
                return path, told[0]
            fallback = (path, texts[0]) if fallback[1] is None else fallback
        return fallback

    def all(self, path: str) -> List[ET.Element]:
        """What stands at a path: one element in a real document. At most one more than there is room for."""
        return list(itertools.islice(self.element.iterfind(path), _MOST_TAGS_OF_A_GROUP + 1))

    def raw(self, *paths: str) -> Optional[str]:
        """The text of :meth:`found`."""
        return self.found(*paths)[1]

    def refuse(self, path: str, text: str) -> None:
        """Remember a text that is no value."""
        self.errors[path] = text[:_MOST_OF_A_VALUE]

    def text(self, *paths: str) -> Optional[str]:
        """A word; ``None`` when it is absent, not applicable or an error (which is remembered)."""
        path, value = self.found(*paths)
        if value is None or is_not_applicable(value):
            return None
        if len(value) > _MOST_OF_A_VALUE or is_error(value):
            self.refuse(path, value)
            return None
        return value

    def words(self, *paths: str) -> Optional[str]:
        """A word, or the words of an error where these are the value."""
        path, value = self.found(*paths)
        if value is None or is_not_applicable(value):
            return None
        if len(value) > _MOST_OF_A_VALUE:
            self.refuse(path, value)
            return None
        return value

    def uuid(self, *paths: str) -> Optional[str]:
        """The identity of a card."""
        value = self.text(*paths)
        if value is not None and not _UUID.match(value):
            self.refuse(self.found(*paths)[0], value)
            return None
        return value

    def _measured(self, paths: Tuple[str, ...], signed: bool = False) -> Tuple[Optional[float], str]:
        """A number and its unit; what is neither number nor *not applicable* is an error, and so is a negative one."""
        value = self.text(*paths)
        if value is None:
            return None, ""
        match = _NUMBER.match(value)
        if match is None or (value.startswith("-") and not signed):
            self.refuse(self.found(*paths)[0], value)
            return None, ""
        return float(match.group(1)), (match.group(2) or "").lower()

    def number(self, *paths: str) -> Optional[float]:
        """A number with any unit behind it."""
        return self._measured(paths)[0]

    def integer(self, *paths: str) -> Optional[int]:
        value = self.number(*paths)
        return None if value is None else int(value)

    def degrees(self, *paths: str) -> Optional[int]:
        """A temperature or the margin of one, which may be negative."""
        value = self._measured(paths, signed=True)[0]
        return None if value is None else int(value)

    def mebibytes(self, *paths: str) -> Optional[int]:
        value, unit = self._measured(paths)
        if value is None:
            return None
        if unit not in _MEBIBYTES:
            path, text = self.found(*paths)
            self.refuse(path, text or "")
            return None
        return int(value * _MEBIBYTES[unit])

    def flag(self, *paths: str) -> Optional[bool]:
        """``Yes``/``Enabled``/``Active`` against ``No``/``Disabled``/``Not Active``; other words are errors."""
        value = self.text(*paths)
        if value is None:
            return None
        word = value.lower()
        if word in ("yes", "enabled", "active", "1", "true"):
            return True
        if word in ("no", "disabled", "not active", "inactive", "0", "false"):
            return False
        self.refuse(self.found(*paths)[0], value)
        return None

    def total(self, *paths: str) -> Optional[int]:
        """The sum of the values that are there; ``None`` when none is."""
        return _sum(*(self.integer(path) for path in paths))


# --------------------------------------------------------------------------------------------------------------------
# The document
# --------------------------------------------------------------------------------------------------------------------

_ROOT = "nvidia_smi_log"
_ILLEGAL_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ILLEGAL_REFERENCE = re.compile(r"&#(?:x0*(?:[0-8bcef]|1[0-9a-f])|0*(?:[0-8]|1[1245-9]|2\d|3[01]));", re.IGNORECASE)
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]*>")
_NAME, _NAME_END = "<process_name>", "</process_name>"
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")

# What a host with sixteen cards says has some 1.5 million characters and 50,000 tags, most of them supported clocks. More than these is
# no answer; reading them takes less than a second.
_MOST_CHARACTERS = 8 * 1024**2
_MOST_TAGS = 80_000
_MOST_DEPTH = 16
_MOST_CARDS = 64
_MOST_INSTANCES = 64
_MOST_PROCESSES = 5000
_MOST_TAGS_OF_A_GROUP = 64
_MOST_NOTES = 50
_MOST_ERRORS = 100
# Characters at either end of what stands beside the document.
_MOST_BESIDE = 100_000
# Characters of a line beside the document, and of a process's command line.
_MOST_OF_A_LINE = 500


def parse_xml(text: object) -> SmiData:
    """The answer of ``nvidia-smi -q -x`` as plain data.

    Args:
        text: what it printed, ``str`` or ``bytes``; lines before and after the document are kept as ``notes``.

    Returns:
        ``driver_version``, ``cuda_version``, ``attached_gpus`` (number), ``notes`` (lines outside the document), ``errors`` (what it could
        not say of the host, by path) and ``gpus``, in the order of nvidia-smi, which is the order of PCI bus ids. Memory is in MiB,
        temperatures in degrees Celsius, power in watts; what a card does not have is ``None``.

    Raises:
        SmiError: no document, a document that is cut off or larger than any real one, or one that is not nvidia-smi's.
    """
    document, beside = cut_out(text)
    root = tree(document)
    notes = lines(beside)
    reader = _Reader(root)
    gpus = [card(index, element) for index, element in enumerate(cards(root))]
    driver, attached = reader.text("driver_version"), reader.integer("attached_gpus")
    for path in ("driver_version", "attached_gpus"):
        # Every host has them; only parts of a document come without.
        if reader.all(path) and is_not_applicable(reader.raw(path)):
            reader.refuse(path, "N/A")
    return {
        "driver_version": driver,
        "cuda_version": reader.text("cuda_version"),
        "attached_gpus": attached,
        "gpus": gpus,
        "notes": notes,
        "errors": _with_told_errors(reader, without=("gpu",)),
    }


def described(smi: Runner) -> ET.Element:
    """The document of the cards that are there. nvidia-smi ends with an error where one card is lost, and describes the others.

    Raises SmiError, and as the runner does.
    """
    arguments = ["-q", "-x"]
    status, text = smi(arguments)
    if status != 0 and not is_begun(text):
        raise SmiError("nvidia-smi {} failed ({}): {}".format(" ".join(arguments), status, text.strip()))
    return tree(cut_out(text)[0])


def cards(root: ET.Element) -> List[ET.Element]:
    """The elements of the cards, in nvidia-smi's order, which is that of PCI bus ids. Raises SmiError for more than a machine has."""
    return _some(root, "gpu", _MOST_CARDS)


def is_begun(text: str) -> bool:
    """Whether a document begins somewhere in a text."""
    return "<" + _ROOT in text


def _some(element: ET.Element, path: str, most: int) -> List[ET.Element]:
    """What is found at a path. Raises SmiError where it is more than any machine has."""
    found = element.findall(path)
    if len(found) > most:
        raise SmiError(f"nvidia-smi describes {len(found)} {path}; at most {most} are read")
    return found


def cut_out(text: object) -> Tuple[str, str]:
    """The document, and what stands around it. Raises SmiError where there is none, or not all of it."""
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    if len(decoded) > _MOST_CHARACTERS:
        raise SmiError(f"nvidia-smi printed {len(decoded)} characters; at most {_MOST_CHARACTERS} are read")
    root = decoded.find("<" + _ROOT)
    if root < 0:
        raise SmiError(_no_document(decoded))
    declaration = decoded.rfind("<?xml", 0, root)
    start = declaration if declaration >= 0 else root
    closing = f"</{_ROOT}>"
    end = decoded.find(closing, root)
    if end < 0:
        raise SmiError(f"the XML of nvidia-smi is cut off: {closing} is missing after {len(decoded)} characters")
    end += len(closing)
    return decoded[start:end], decoded[:start] + "\n" + decoded[end:]


def lines(text: str) -> List[str]:
    """The lines of a text that say something, shortened; a mark of the byte order says nothing. Of a long text its two ends are read."""
    if len(text) > 2 * _MOST_BESIDE:
        text = text[:_MOST_BESIDE] + "\n" + text[-_MOST_BESIDE:]
    said = (plain(line.strip("\ufeff \t")) for line in text.splitlines())
    return [line[:_MOST_OF_A_LINE] for line in said if line][:_MOST_NOTES]


def _no_document(text: str) -> str:
    first = next(iter(lines(text)), "")
    if not first:
        return "nvidia-smi printed nothing where its XML was expected"
    return f"expected the XML of nvidia-smi and found {first[:120]!r}"


#: Most of a document; and names that users gave their programs.
_LISTS = re.compile(r"<(supported_clocks|processes|accounted_processes|compute_processes)>.*?</\1>", re.DOTALL)


def tree(document: str, lists: bool = True) -> ET.Element:
    """The tree. The DTD is never resolved, entities are not accepted, control characters in names are replaced.

    ``lists``: False leaves out the clocks that are offered and the processes, for who asks every few seconds. Raises SmiError.
    """
    body = _DOCTYPE.sub("", document, count=1)
    if "<!DOCTYPE" in body or "<!ENTITY" in body:
        raise SmiError("the XML declares entities of its own: this is not an answer of nvidia-smi")
    body = body if lists else _LISTS.sub("", body)
    if body.count("<") > _MOST_TAGS:
        raise SmiError(f"the XML has {body.count('<')} tags; at most {_MOST_TAGS} are read")
    body = _ILLEGAL_REFERENCE.sub("?", _ILLEGAL_XML.sub("?", body))
    # The text is already decoded; what the declaration says of an encoding no longer holds.
    body = re.sub(r"^<\?xml[^>]*\?>", "", body)
    try:
        root = _parsed(body)
    except ET.ParseError as error:
        raise SmiError(f"the XML of nvidia-smi cannot be read: {error}") from error
    if root.tag != _ROOT:
        raise SmiError(f"expected the XML of nvidia-smi (<{_ROOT}>) and found <{root.tag[:100]}>")
    return root


def _parsed(body: str) -> ET.Element:
    try:
        return ET.fromstring(body)  # noqa: S314 - no DTD and no entity is left in it
    except ET.ParseError:
        # Command lines of processes are not always escaped.
        return ET.fromstring(_with_escaped_names(body))  # noqa: S314 - as above


def _with_escaped_names(body: str) -> str:
    """The document with the names of its processes escaped. A name that does not end is left as it is."""
    parts = [part.partition(_NAME_END) for part in body.split(_NAME)]
    escaped = (_escape(name) + end + after if end else name for name, end, after in parts[1:])
    # What stands before the first name is partitioned too, and put together again as it was.
    return _NAME.join(["".join(parts[0]), *escaped])


def _escape(name: str) -> str:
    return _BARE_AMPERSAND.sub("&amp;", name).replace("<", "&lt;")


# Values of a card: key, how it is read (a method of _Reader), its paths in order of preference, newest first. See the table of changes
# in the tests. A key with a dot lies inside a group.
#: How the card came into its fabric, which is told in the words of an error where it did not (nvmlGpuFabricInfo_t, status): judged by its
#: own check.
_STATUS = "fabric/status"
_VALUES: Tuple[Tuple[str, str, Tuple[str, ...]], ...] = (
    ("name", "text", ("product_name",)),
    ("brand", "text", ("product_brand",)),
    ("architecture", "text", ("product_architecture",)),
    ("uuid", "uuid", ("uuid",)),
    ("serial", "text", ("serial",)),
    ("vbios", "text", ("vbios_version",)),
    ("minor_number", "integer", ("minor_number",)),
    ("memory_total_mib", "mebibytes", ("fb_memory_usage/total", "memory_usage/total")),
    ("memory_used_mib", "mebibytes", ("fb_memory_usage/used", "memory_usage/used")),
    ("utilization_percent", "integer", ("utilization/gpu_util",)),
    ("fan_percent", "integer", ("fan_speed",)),
    ("performance_state", "text", ("performance_state",)),
    ("compute_mode", "text", ("compute_mode",)),
    ("virtualization_mode", "text", ("gpu_virtualization_mode/virtualization_mode",)),
    # Of a virtual GPU; older drivers name it after GRID.
    ("licence", "text", ("vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status")),
    ("persistence_mode", "flag", ("persistence_mode",)),
    ("reset_required", "flag", ("gpu_reset_status/reset_required",)),
    ("drain_recommended", "flag", ("gpu_reset_status/drain_and_reset_recommended",)),
    ("clocks.sm_mhz", "integer", ("clocks/sm_clock",)),
    ("clocks.sm_max_mhz", "integer", ("max_clocks/sm_clock",)),
    ("clocks.memory_max_mhz", "integer", ("max_clocks/mem_clock",)),
    ("clocks.application_sm_mhz", "integer", ("applications_clocks/graphics_clock",)),
    ("clocks.application_memory_mhz", "integer", ("applications_clocks/mem_clock",)),
    ("clocks.default_sm_mhz", "integer", ("default_applications_clocks/graphics_clock",)),
    ("clocks.default_memory_mhz", "integer", ("default_applications_clocks/mem_clock",)),
    ("fabric.state", "text", ("fabric/state",)),
    ("fabric.status", "words", (_STATUS,)),
    # The summary came last: 575.51 has only what it sums up.
    ("fabric.health", "text", ("fabric/health/summary",)),
    ("fabric.bandwidth", "text", ("fabric/health/bandwidth",)),
    ("fabric.route_recovery", "text", ("fabric/health/route_recovery_in_progress",)),
    ("fabric.route_unhealthy", "text", ("fabric/health/route_unhealthy",)),
    ("fabric.access_timeout_recovery", "text", ("fabric/health/access_timeout_recovery",)),
    ("fabric.incorrect_configuration", "text", ("fabric/health/incorrect_configuration",)),
    ("fabric.partition_assigned", "text", ("fabric/health/partition_assigned",)),
    ("temperature_c", "degrees", ("temperature/gpu_temp",)),
    ("temperature_memory_c", "degrees", ("temperature/memory_temp",)),
    # Newer cards give margins (tlimit, they fall to 0) where older ones give thresholds.
    ("temperature_slow_c", "degrees", ("temperature/gpu_temp_slow_threshold",)),
    ("temperature_shutdown_c", "degrees", ("temperature/gpu_temp_max_threshold",)),
    ("temperature_memory_max_c", "degrees", ("temperature/gpu_temp_max_mem_threshold",)),
    ("temperature_margin_c", "degrees", ("temperature/gpu_temp_tlimit",)),
    ("temperature_shutdown_margin_c", "degrees", ("temperature/gpu_temp_max_tlimit_threshold",)),
    (
        "power_draw_w",
        "number",
        (
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/power_draw",
            "power_readings/instant_power_draw",
            "power_readings/average_power_draw",
            "power_readings/power_draw",
        ),
    ),
    (
        "power_limit_w",
        "number",
        (
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/enforced_power_limit",
            "gpu_power_readings/power_limit",
            "power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
    ),
    (
        "power_default_limit_w",
        "number",
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    ),
    ("power_min_limit_w", "number", ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit")),
    ("power_max_limit_w", "number", ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit")),
    ("pcie.gen", "integer", ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",)),
    ("pcie.gen_max", "integer", ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",)),
    ("pcie.gen_device_max", "integer", ("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",)),
    ("pcie.gen_host_max", "integer", ("pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",)),
    ("pcie.width", "integer", ("pci/pci_gpu_link_info/link_widths/current_link_width",)),
    ("pcie.width_max", "integer", ("pci/pci_gpu_link_info/link_widths/max_link_width",)),
    ("pcie.replays", "integer", ("pci/replay_counter",)),
    ("ecc.mode", "flag", ("ecc_mode/current_ecc",)),
    ("ecc.pending", "flag", ("ecc_mode/pending_ecc",)),
    ("ecc.sram_threshold_exceeded", "flag", ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    ("ecc.channel_repair_pending", "flag", ("ecc_errors/channel_repair_pending",)),
    ("ecc.tpc_repair_pending", "flag", ("ecc_errors/tpc_repair_pending",)),
    ("ecc.unrepairable_memory", "flag", ("ecc_errors/unrepairable_memory",)),
)


def card(index: int, element: ET.Element) -> Card:
    """One card by its element: the table above, and what takes more than one value to tell."""
    read = _Reader(element)
    values: Dict[str, object] = {}
    groups: Dict[str, Dict[str, object]] = {"clocks": {}, "fabric": {}, "pcie": {}, "ecc": {}}
    for key, how, paths in _VALUES:
        group, _dot, name = key.rpartition(".")
        place = groups[group] if group else values
        place[name] = getattr(read, how)(*paths)
    values["pci_bus_id"] = _bus_id(read)
    values["pci_id"] = _pci_id(read.text("pci/pci_device_id"))
    # "None" is an answer here: nothing has to be done.
    action = read.raw("gpu_recovery_action")
    values["recovery_action"] = None if is_not_applicable(action) and action != "None" else action
    # 65535 is the counter's way of saying that it does not count.
    groups["pcie"]["replays"] = None if groups["pcie"]["replays"] == 65535 else groups["pcie"]["replays"]
    if values["memory_total_mib"] == 0:
        read.refuse("fb_memory_usage/total", "0 MiB")
    groups["fabric"]["other"] = _other_health(read)
    groups["ecc"].update(_ecc_counts(read))
    values["mig"] = _mig(read)
    values["retired_pages"] = _retired_pages(read)
    values["remapped_rows"] = _remapped_rows(read)
    values["processes"] = _processes(element)
    values["throttle"] = _throttle(read)
    values["errors"] = _with_told_errors(read)
    # Filled by a table: that each key is there is for the gate's schema to say, which a test holds real cards against.
    return cast("Card", {"index": index, **groups, **values})


# Where words of an error say nothing of the card: eight good RTX 4090 had an addressing mode "Unknown Error" with driver 535.154, a
# process may be called by them, and clocks that are offered are no state. An error_string in these places is the driver's own: it could
# not answer what stands there.
NO_STATE = ("addressing_mode", "accounted_processes", "supported_clocks", "process_info")
# What a user gave his program: nothing inside it is the driver's.
_USERS = "process_name"


def of_no_state(path: str) -> bool:
    """Whether what stands at a path of a card is a list that goes with it and says nothing of its state."""
    return not set(path.split("/")).isdisjoint(NO_STATE)


def _with_told_errors(read: _Reader, without: Tuple[str, ...] = ()) -> Dict[str, str]:
    """The reader's errors, and those that stand in elements which nobody reads, on every level: any of them may say what is wrong.

    ``error_string`` is such an element in NVIDIA's own DTD (``nvidia-smi --dtd``). Raises SmiError for a document that is deeper
    than any real one.
    """
    errors = dict(read.errors)
    layer = [(child.tag[:_MOST_OF_A_VALUE], child) for child in read.element if child.tag not in without]
    for _depth in range(_MOST_DEPTH):
        below = []
        for path, element in layer:
            text = plain((element.text or "")[:_MOST_OF_A_LINE])
            if element.tag == "error_string":
                wrong = not is_not_applicable(text)
            else:
                wrong = bool(_ERROR_TEXT.search(text)) and path != _STATUS and not of_no_state(path)
            if wrong:
                errors.setdefault(path, text[:_MOST_OF_A_VALUE])
            inner = [child for child in element if child.tag != _USERS]
            below += [((path + "/" + child.tag)[:_MOST_OF_A_VALUE], child) for child in inner]
        layer = below
    if layer:
        raise SmiError(f"the XML of nvidia-smi has more than {_MOST_DEPTH} elements within each other")
    return dict(list(errors.items())[:_MOST_ERRORS])


def _bus_id(read: _Reader) -> str:
    """Where the card is; empty where it is on no PCI bus (a Jetson)."""
    place = normalise_bus_id(read.text("pci/pci_bus_id") or read.element.get("id") or "")
    return place if _BUS_ID.match(place) else ""


def _pci_id(text: Optional[str]) -> Optional[str]:
    """``10de:2330`` of nvidia-smi's ``233010DE``."""
    match = re.match(r"^(?:0x)?([0-9a-fA-F]{4})([0-9a-fA-F]{4})$", text or "")
    return None if match is None else "{1}:{0}".format(*match.groups()).lower()


def _ecc_counts(read: _Reader) -> Dict[str, Optional[int]]:
    """Errors by life time: *volatile* since the driver was loaded, *aggregate* over the card's life."""
    base = "ecc_errors/volatile/"
    uncorrected = _sum(
        _sram_uncorrected(read, base),
        read.integer(base + "dram_uncorrectable"),
        _double_bit(read, base + "double_bit"),
    )
    corrected = _sum(
        read.integer(base + "sram_correctable"),
        read.integer(base + "dram_correctable"),
        read.integer(base + "single_bit/total"),
    )
    return {
        "volatile_uncorrected": uncorrected,
        "volatile_corrected": corrected,
        "aggregate_sram_uncorrected": _sram_uncorrected(read, "ecc_errors/aggregate/"),
    }


def _sram_uncorrected(read: _Reader, base: str) -> Optional[int]:
    return read.total(
        base + "sram_uncorrectable", base + "sram_uncorrectable_parity", base + "sram_uncorrectable_secded"
    )


def _double_bit(read: _Reader, base: str) -> Optional[int]:
    """What cards before Ampere count: the total, and where that says less, its parts."""
    parts = [base + "/" + tag for tag in _tags(read.all(base)) if tag != "total"]
    known = [count for count in (read.integer(base + "/total"), read.total(*parts)) if count is not None]
    return max(known) if known else None


def _sum(*values: Optional[int]) -> Optional[int]:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _other_health(read: _Reader) -> Optional[str]:
    """What a fabric's health is told by besides the values of the table, on every level: ``tag: text``, with ``; `` between them."""
    base = "fabric/health"
    known = {path[len(base) + 1 :] for _key, _how, paths in _VALUES for path in paths if path.startswith(base)}
    told = []
    for health in read.all(base):
        others = [inner for child in health if child.tag not in known for inner in child.iter()]
        told += [f"{inner.tag}: {plain(inner.text)}" for inner in others if not is_not_applicable(inner.text)]
    text = "; ".join(told)
    if len(text) > _MOST_OF_A_VALUE:
        read.refuse(base, text)
        return None
    return text or None


def _retired_pages(read: _Reader) -> Optional[RetiredPages]:
    """Pages that Volta and older take out of use; ``None`` where the card does not do that.

    ``pending_retirement`` (375) and ``pending_blacklist`` (430) can both be there; either of them counts.
    """
    base = "retired_pages/"
    single = read.integer(base + "multiple_single_bit_retirement/retired_count")
    double = read.integer(base + "double_bit_retirement/retired_count")
    flags = [read.flag(base + "pending_retirement"), read.flag(base + "pending_blacklist")]
    pending = True if True in flags else (False if False in flags else None)
    if single is None and double is None and pending is None:
        return None
    return {"single_bit": single, "double_bit": double, "pending": pending}


def _remapped_rows(read: _Reader) -> Optional[RemappedRows]:
    """Rows that Ampere and newer replace; ``None`` where the card does not do that (the tag then holds ``N/A``)."""
    base = "remapped_rows/"
    rows: RemappedRows = {
        "uncorrectable": read.integer(base + "remapped_row_unc"),
        "pending": read.flag(base + "remapped_row_pending"),
        "failure": read.flag(base + "remapped_row_failure"),
    }
    histogram = {
        level: read.integer(base + "row_remapper_histogram/row_remapper_histogram_" + level)
        for level in ("max", "high", "partial", "low", "none")
    }
    if all(value is None for value in list(rows.values()) + list(histogram.values())):
        return None
    rows["banks"] = histogram
    return rows


def _mig(read: _Reader) -> CardMig:
    """The mode, and the instances with the errors of their memory that could not be corrected."""
    devices = []
    for device in _some(read.element, "mig_devices/mig_device", _MOST_INSTANCES):
        inner = _Reader(device)
        told = {
            "index": inner.integer("index"),
            "gpu_instance": inner.integer("gpu_instance_id"),
            "compute_instance": inner.integer("compute_instance_id"),
            "memory_total_mib": inner.mebibytes("fb_memory_usage/total"),
            "uncorrected": inner.total(*_uncorrected_counts(device)),
        }
        devices.append(told)
        if all(value is None for value in told.values()):
            read.refuse("mig_devices/mig_device", "an instance that tells nothing")
        read.errors.update({"mig_devices/mig_device/" + path: text for path, text in inner.errors.items()})
    return {
        "current": read.flag("mig_mode/current_mig"),
        "pending": read.flag("mig_mode/pending_mig"),
        "devices": devices,
    }


def _uncorrected_counts(device: ET.Element) -> List[str]:
    """Paths of an instance's counters since the driver was loaded; newer drivers count parity and SECDED apart, as they do for a card."""
    base = "ecc_error_count/volatile_count"
    return [base + "/" + tag for tag in _tags(_Reader(device).all(base)) if "uncorrectable" in tag]


def _tags(elements: List[ET.Element]) -> List[str]:
    """The different tags inside an element (or several of one name), as far as nvidia-smi has such."""
    tags = dict.fromkeys(child.tag for element in elements for child in element if _TAG.match(child.tag))
    return list(tags)[:_MOST_TAGS_OF_A_GROUP]


def _throttle(read: _Reader) -> Optional[List[str]]:
    """Names of the active reasons, without their prefix; ``None`` where the card does not tell.

    The tags were renamed from ``clocks_throttle_reasons`` to ``clocks_event_reasons`` in 535; reasons that this program
    does not know are kept under their own name.
    """
    active = []
    seen = False
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        for tag in _tags(read.all(group)):
            state = read.flag(group + "/" + tag)
            if state is None:
                continue
            seen = True
            name = tag[len(prefix) :] if tag.startswith(prefix) else tag
            if state and name not in active:
                active.append(name)
    return active if seen else None


def _processes(element: ET.Element) -> List[Process]:
    """Processes on the card; ``type`` is C (compute), G (graphics), C+G or M+C (multi-process service).

    Old drivers list only those that compute, in ``compute_processes`` and without a type.
    """
    processes: List[Process] = []
    for path, kind in (("processes/process_info", None), ("compute_processes/process_info", "C")):
        for info in _some(element, path, _MOST_PROCESSES):
            read = _Reader(info)
            name = read.raw("process_name")
            processes.append(
                {
                    "pid": read.integer("pid"),
                    "type": read.text("type") or kind,
                    "name": None if is_not_applicable(name) else str(name)[:_MOST_OF_A_LINE],
                }
            )
    return processes
