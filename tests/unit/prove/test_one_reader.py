"""Whoever asks nvidia-smi learns the same of a card: the proof, the log, the exporter, the settings and the MIG layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.programs import (
    gpu_log,
    gpu_metrics,
    gpu_settings,
    mig_layout,
)
from ansible_collections.gpuwright.node.plugins.module_utils.smi.csv import samples
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.xml"))
#: Fields of a question for CSV, and where the document has them, by the age of the driver.
_FIELDS = {
    "name": ["product_name"],
    "uuid": ["uuid"],
    "utilization.gpu": ["gpu_util"],
    "memory.used": ["fb_memory_usage>.*?<used", "memory_usage>.*?<used"],
    "memory.total": ["fb_memory_usage>.*?<total", "memory_usage>.*?<total"],
    "temperature.gpu": ["gpu_temp"],
    "power.draw": ["average_power_draw", "power_draw"],
    "power.limit": ["current_power_limit", "enforced_power_limit", "power_limit"],
}
Smi = Callable[[Sequence[str]], "tuple[int, str]"]


def saying(text: str) -> Smi:
    """An nvidia-smi that prints a document, and the same values where it is asked for CSV."""

    def smi(arguments: Sequence[str]) -> tuple[int, str]:
        if arguments[0] == "-L":
            return 0, ""
        if not arguments[0].startswith("--query-gpu="):
            return 0, text
        fields = arguments[0].partition("=")[2].split(",")
        cards = re.findall(r"<gpu id=.*?</gpu>", text, re.DOTALL)
        rows = [", ".join(_cell(card, index, field) for field in fields) for index, card in enumerate(cards)]
        return 0, "\n".join(rows) + "\n"

    return smi


def _cell(card: str, index: int, field: str) -> str:
    if field == "index":
        return str(index)
    # An instance of MIG has a memory of its own.
    card = re.sub(r"<mig_devices>.*?</mig_devices>", "", card, flags=re.DOTALL)
    for tag in _FIELDS.get(field, ()):
        found = re.search(rf"<{tag}>([^<]*)</", card, re.DOTALL)
        if found:
            return re.sub(r"^(-?[\d.]+) \S+$", r"\1", found[1].strip())
    return "[N/A]"


def of_proof(smi: Smi) -> dict[str, Any]:
    return {card["pci_bus_id"]: dict(card) for card in parse_xml(smi(["-q", "-x"])[1])["gpus"]}


def of_log(smi: Smi) -> list[dict[str, Any]]:
    return [dict(zip(gpu_log.COLUMNS, gpu_log.row("now", each), strict=True)) for each in samples(smi)]


def of_exporter(smi: Smi) -> dict[str, gpu_metrics.Card]:
    cards, problem = gpu_metrics.look(smi, {})
    assert problem is None
    return {card.labels["pci_bus_id"]: card for card in cards}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_of_every_answer_everybody_reads_the_same(path: Path) -> None:
    smi = saying(path.read_text(encoding="utf-8"))
    proof, exported, log = of_proof(smi), of_exporter(smi), of_log(smi)
    layouts, settings = mig_layout.observe(smi), gpu_settings.observe(smi)
    assert proof
    assert list(proof) == list(exported) == list(layouts) == list(settings)
    assert len(log) == len(proof)
    for (place, card), line in zip(proof.items(), log, strict=True):
        told, layout, state = exported[place], layouts[place], settings[place]
        assert (layout["current"], layout["pending"]) == (card["mig"]["current"], card["mig"]["pending"])
        assert layout["busy"] == [each["name"] for each in card["processes"] if each["type"] != "G"]
        assert (state["ecc"], state["ecc_pending"]) == (card["ecc"]["mode"], card["ecc"]["pending"])
        assert (state["compute_mode"], state["persistence"]) == (card["compute_mode"], card["persistence_mode"])
        assert state["processes"] == len(card["processes"])
        power = state["power"]
        limits = (power["current"], power["default"], power["min"], power["max"])
        assert limits == tuple(card[f"power_{name}limit_w"] for name in ("", "default_", "min_", "max_"))
        assert told.lost is (card["name"] is None or card["memory_total_mib"] is None)
        if told.lost:
            continue
        assert told.labels["UUID"] == card["uuid"] == line["uuid"]
        assert told.labels["modelName"] == card["name"] == line["name"]
        assert told.values.get("DCGM_FI_DEV_ENFORCED_POWER_LIMIT") == card["power_limit_w"]
        for metric, key, column in (
            ("DCGM_FI_DEV_GPU_TEMP", "temperature_c", "temperature.gpu [C]"),
            ("DCGM_FI_DEV_FB_USED", "memory_used_mib", "memory.used [MiB]"),
            ("DCGM_FI_DEV_FB_TOTAL", "memory_total_mib", "memory.total [MiB]"),
            ("DCGM_FI_DEV_GPU_UTIL", "utilization_percent", "utilization.gpu [%]"),
        ):
            number = None if line[column] == "" else float(line[column])
            assert told.values.get(metric) == card[key] == number, (path.stem, metric)


@pytest.mark.parametrize("read", [of_proof, of_exporter, mig_layout.observe, gpu_settings.observe])
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_half_an_answer_is_none_to_anybody(path: Path, read: Callable[[Smi], Any]) -> None:
    text = path.read_text(encoding="utf-8")
    with pytest.raises(SmiError, match="the XML of nvidia-smi is cut off: </nvidia_smi_log> is missing"):
        read(saying(text[: len(text) // 2]))
    inside = text.index("</fan_speed>")
    with pytest.raises(SmiError, match="the XML of nvidia-smi cannot be read: mismatched tag"):
        read(saying(text[:inside] + text[inside + len("</fan_speed>") :]))


@pytest.mark.parametrize("read", [of_proof, of_log, of_exporter, mig_layout.observe, gpu_settings.observe])
@pytest.mark.parametrize("text", ["Failed to initialize NVML: Unknown Error\n", "\x00\xff\n", ""])
def test_what_is_no_answer_is_refused_with_a_sentence(text: str, read: Callable[[Smi], Any]) -> None:
    with pytest.raises(SmiError, match=r"Failed to initialize NVML|nothing|\xff"):
        read(lambda _arguments: (0, text))
