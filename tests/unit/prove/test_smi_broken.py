"""Every element of nvidia-smi's DTD that can mean trouble, broken on each level of good documents: none of them passes.

The elements are those of ``nvidia-smi --dtd`` (nvsmi_device_v12.dtd and v13.dtd, as its documents name them) and of its older layouts.
"""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge, smi_messages
from tests.unit.prove.conftest import FIXTURES

HEALTHY = ("h100_580.xml", "geforce_595.xml", "m2090_285.xml", "mig_580.xml")
ERROR = "Unknown Error"
NO_NUMBERS = ("9" * 400, "nan", "1e999", "-1", "GPU is lost", ERROR)
_ECC, _VOLATILE, _FABRIC = "ecc_errors", "ecc_errors/volatile", "fabric/health"
_EVENT, _THROTTLE = "clocks_event_reasons/clocks_event_reason_", "clocks_throttle_reasons/clocks_throttle_reason_"

CARD: dict[str, tuple[str, ...]] = {
    "error_string": (ERROR, "the GPU is not reachable"),
    "product_name": (ERROR, "GPU is lost", "N/A"),
    "gpu_recovery_action": ("Reset", "GPU Reset", "Reboot", "Node Reboot", "Drain P2P", "Drain and Reset", ERROR),
    "gpu_reset_status/reset_required": ("Yes", "Perhaps", ERROR),
    "gpu_reset_status/drain_and_reset_recommended": ("Yes", ERROR),
    "inforom_version/img_version": ("Corrupted infoROM",),
    "mig_mode/current_mig": (ERROR,),
    "supported_clocks/error_string": (ERROR, "the clocks cannot be read", "GPU is lost", "GPU requires reset"),
    "accounted_processes/error_string": (ERROR, "Insufficient Permissions"),
    "processes/process_info/error_string": (ERROR,),
    "addressing_mode/error_string": (ERROR,),
    "compute_mode": ("Prohibited", "In use by another client"),
    "fan_speed": ("ERR!",),
    "performance_state": (ERROR,),
    "fb_memory_usage/total": ("0 MiB", "81559 bananas", *NO_NUMBERS),
    "utilization/gpu_util": (ERROR,),
    f"{_VOLATILE}/sram_uncorrectable": ("1",),
    f"{_VOLATILE}/sram_uncorrectable_parity": ("1",),
    f"{_VOLATILE}/sram_uncorrectable_secded": ("1",),
    f"{_VOLATILE}/dram_uncorrectable": ("1", *NO_NUMBERS),
    f"{_VOLATILE}/double_bit/total": ("1",),
    f"{_VOLATILE}/double_bit/device_memory": ("1", ERROR),
    f"{_VOLATILE}/double_bit/cbu": ("1",),
    f"{_ECC}/aggregate/sram_uncorrectable": ("5",),
    f"{_ECC}/aggregate/sram_threshold_exceeded": ("Yes",),
    f"{_ECC}/channel_repair_pending": ("Yes", ERROR),
    f"{_ECC}/tpc_repair_pending": ("Yes",),
    f"{_ECC}/unrepairable_memory": ("Yes",),
    "retired_pages/pending_retirement": ("Yes",),
    "retired_pages/pending_blacklist": ("Yes",),
    "retired_pages/double_bit_retirement/retired_count": ("64", ERROR),
    "remapped_rows": (ERROR,),
    "remapped_rows/remapped_row_pending": ("Yes",),
    "remapped_rows/remapped_row_failure": ("Yes",),
    "remapped_rows/remapped_row_unc": ("513",),
    "temperature/gpu_temp": ("150 C", ERROR),
    # Of the draw alone "Unknown Error" is of the moment: test_smi.py.
    "gpu_power_readings/instant_power_draw": ("GPU requires reset",),
    "pci/pci_gpu_link_info/link_widths/current_link_width": (ERROR,),
    "fabric/state": ("In Progress", "Not Started", ERROR),
    "fabric/status": ("Insufficient Resources", ERROR),
    f"{_FABRIC}/summary": ("Unhealthy", "Limited Capacity"),
    f"{_FABRIC}/bandwidth": ("Degraded",),
    f"{_FABRIC}/route_unhealthy": ("True",),
    f"{_FABRIC}/route_recovery_in_progress": ("True",),
    f"{_FABRIC}/access_timeout_recovery": ("True",),
    f"{_FABRIC}/incorrect_configuration": ("Insufficient NVLinks",),
    f"{_FABRIC}/partition_assigned": ("False", "Unhealthy", "Degraded"),
    f"{_FABRIC}/of_another_day": ("Unhealthy", "Degraded", "x" * 300),
    f"{_FABRIC}/of_another_day/inside": ("Unhealthy",),
    f"{_FABRIC}/link_unhealthy": ("True",),
    "clocks_event_reasons": (ERROR,),
    _EVENT + "hw_slowdown": ("Active", ERROR),
    _EVENT + "hw_thermal_slowdown": ("Active", ERROR),
    _EVENT + "hw_power_brake_slowdown": ("Active", ERROR),
    _EVENT + "sw_power_cap": (ERROR,),
    _THROTTLE + "hw_slowdown": ("Active", ERROR),
    _THROTTLE + "hw_thermal_slowdown": ("Active",),
}
INSTANCE: dict[str, tuple[str, ...]] = {
    "error_string": (ERROR,),
    "ecc_error_count": (ERROR,),
    "ecc_error_count/volatile_count/sram_uncorrectable": ("1", *NO_NUMBERS),
    "ecc_error_count/volatile_count/sram_uncorrectable_parity": ("1",),
    "ecc_error_count/volatile_count/dram_uncorrectable": ("2",),
    "fb_memory_usage/total": (ERROR, "9" * 400),
    "gpu_instance_id": (ERROR,),
}
HOST: dict[str, tuple[str, ...]] = {
    "error_string": (ERROR, "Driver Not Loaded", "no cards"),
    "driver_version": (ERROR, "", "N/A", "[N/A]"),
    "cuda_version": ("Failed to initialize NVML",),
    "attached_gpus": ("0", "-1", "17", "9" * 400, ERROR, "", "N/A"),
}


def _put(element: ET.Element, path: str, text: str) -> None:
    """Set the text at a path; what is missing on the way is made, as a newer driver would have it."""
    for tag in path.split("/") if path else ():
        found = element.find(tag)
        element = ET.SubElement(element, tag) if found is None else found
        if len(element) == 0:
            element.text = None
    element.text = text


def _broken(
    root: ET.Element, where: str, table: dict[str, tuple[str, ...]], most: int
) -> Iterator[tuple[str, ET.Element]]:
    """Each variant of a document: what was put where, and the document with nothing else changed."""
    for number in range(len(root.findall(where)) if where else 1):
        for path, texts in table.items():
            for text in texts[:most]:
                variant = copy.deepcopy(root)
                _put(variant.findall(where)[number] if where else variant, path, text)
                yield f"{where}[{number}]/{path}: {text[:30]}", variant


def _twice(root: ET.Element, where: str, table: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, ET.Element]]:
    """Each variant in which a part of a path stands a second time behind the good one, and the trouble is told there."""
    for number in range(len(root.findall(where)) if where else 1):
        for path, texts in table.items():
            tags = path.split("/")
            for depth in range(len(tags)):
                variant = copy.deepcopy(root)
                parent = variant.findall(where)[number] if where else variant
                for tag in tags[:depth]:
                    found = parent.find(tag)
                    parent = ET.SubElement(parent, tag) if found is None else found
                _put(ET.SubElement(parent, tags[depth]), "/".join(tags[depth + 1 :]), texts[0])
                yield f"{where}[{number}]/{path}: {texts[0][:30]}, in a second {tags[depth]}", variant


def _silent(root: ET.Element, where: str) -> Iterator[tuple[str, ET.Element]]:
    for number in range(len(root.findall(where))):
        for text in (None, "", "N/A", "[N/A]"):
            variant = copy.deepcopy(root)
            silent = variant.findall(where)[number]
            if text is None:
                silent[:] = []
            for leaf in [element for element in silent.iter() if len(element) == 0]:
                leaf.text = text
            yield f"{where}[{number}] says only {text!r}", variant


def _verdict(variant: ET.Element) -> str:
    data, ran = smi_messages.read_answer(0, ET.tostring(variant, encoding="unicode"))
    return checks.verdict([ran, *(smi_judge.judge(data, {}) if data else [])])


def _root(path: Path) -> ET.Element:
    """A document without the clocks that its cards offer: hundreds of lines that say nothing of their state."""
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text[text.index("<nvidia_smi_log") :])  # noqa: S314 - a fixture or a sample
    for gpu in root.findall("gpu"):
        for clocks in gpu.findall("supported_clocks"):
            gpu.remove(clocks)
    return root


def _variants(root: ET.Element, most: int = 100) -> Iterator[tuple[str, ET.Element]]:
    """Every variant, with at most so many texts in one place; with no more than one, each element stands there once."""
    yield from _broken(root, "", HOST, most)
    yield from _broken(root, "gpu", CARD, most)
    yield from _broken(root, "gpu/mig_devices/mig_device", INSTANCE, most)
    if most > 1:
        yield from _twice(root, "", HOST)
        yield from _twice(root, "gpu", CARD)
        yield from _twice(root, "gpu/mig_devices/mig_device", INSTANCE)
    yield from _silent(root, "gpu")
    yield from _silent(root, "gpu/mig_devices/mig_device")


@pytest.mark.parametrize("name", HEALTHY)
def test_no_broken_variant_of_a_good_document_passes(name: str) -> None:
    root = _root(FIXTURES / name)
    assert _verdict(root) == "pass"
    assert [told for told, variant in _variants(root) if _verdict(variant) == "pass"] == []


def test_the_broken_variants_are_many() -> None:
    assert sum(1 for name in HEALTHY for _variant in _variants(_root(FIXTURES / name))) >= 300


def test_no_broken_variant_of_a_real_machines_document_passes(samples: Callable[[str], list[Path]]) -> None:
    for path in samples("nvidia-smi-xml"):
        root = _root(path)
        # A sample may describe fewer cards than it had.
        _put(root, "attached_gpus", str(len(root.findall("gpu"))))
        if root.find("driver_version") is None:
            _put(root, "driver_version", "418.43")
        assert _verdict(root) == "pass", path.name
        assert [told for told, variant in _variants(root, 1) if _verdict(variant) == "pass"] == [], path.name


@pytest.mark.parametrize("name", HEALTHY)
def test_a_document_that_is_cut_off_anywhere_passes_nowhere(name: str) -> None:
    text = (FIXTURES / name).read_text(encoding="utf-8").rstrip()
    for end in range(0, len(text), len(text) // 40):
        data, ran = smi_messages.read_answer(0, text[:end])
        assert (data, ran["status"]) == (None, "fail")


@pytest.mark.parametrize("told", ["N/A", "Not Supported", ""])
@pytest.mark.parametrize(
    "place", ["supported_clocks", "accounted_processes", "processes/process_info", "fabric/health"]
)
def test_an_error_string_that_only_says_what_a_card_lacks_is_no_error(place: str, told: str) -> None:
    root = _root(FIXTURES / "h100_580.xml")
    _put(root.findall("gpu")[0], place + "/error_string", told)
    assert _verdict(root) == "pass"


def test_what_a_user_called_his_program_is_no_error_of_the_card() -> None:
    root = _root(FIXTURES / "h100_580.xml")
    _put(root.findall("gpu")[0], "processes/process_info/process_name/error_string", ERROR)
    assert _verdict(root) == "pass"


def test_a_list_that_cannot_be_read_blames_no_card_unless_it_names_its_trouble() -> None:
    for told, status in (("Insufficient Permissions", "incomplete"), ("GPU requires reset", "fail")):
        root = _root(FIXTURES / "h100_580.xml")
        _put(root.findall("gpu")[0], "supported_clocks/error_string", told)
        assert _verdict(root) == status


def test_a_fabric_that_tells_more_than_these_rules_know_is_well_where_no_word_says_otherwise() -> None:
    for tag, told in (("partition_assigned", "True"), ("of_another_day", "Healthy"), ("links", "18")):
        root = _root(FIXTURES / "h100_580.xml")
        _put(root.findall("gpu")[0], "fabric/health/" + tag, told)
        assert _verdict(root) == "pass"
