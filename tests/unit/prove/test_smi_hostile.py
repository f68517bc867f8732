"""What a broken or hostile program may print in nvidia-smi's place: one check, no traceback, and less than a second to read it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge, smi_messages
from ansible_collections.gpuwright.node.plugins.modules import nvidia_smi
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.prove.conftest import FIXTURES
from tests.unit.quick import quickly

MEGABYTE = 1024**2
_END_OF_REASONS = "</clocks_event_reasons></gpu>"
_OPEN, _CLOSE = "<nvidia_smi_log>", "</nvidia_smi_log>"


def _inside(text: str) -> str:
    return _OPEN + text + _CLOSE


def _many(text: str, size: int = MEGABYTE) -> str:
    return text * (size // len(text))


HOSTILE = {
    "unclosed tags": _inside(_many("<a>")),
    "unclosed names": _inside("<gpu>" + _many("<process_name>")),
    "names with signs": _inside("<gpu><processes><process_name>" + _many("&<>") + "</process_name>"),
    "elements within each other": _inside("<gpu>" + "<a>" * 60_000 + "</a>" * 60_000 + "</gpu>"),
    "a name that every path repeats": _inside(f"<gpu><{'a' * MEGABYTE}>{'<b/>' * 60_000}</{'a' * MEGABYTE}></gpu>"),
    "doctypes": _inside(_many("<!DOCTYPE")),
    "declarations": _many("<?xml") + _inside(""),
    "beginnings": _many(_OPEN[:-1]),
    "ends": _many(_CLOSE),
    "the word option": _many("option ", 140_000),
    "sentences that almost say something": _many("unable to failed to initialize nvml gpu is "),
    "brackets": _many("["),
    "blanks": _many(" \n") + "x",
    "as many empty lines as are read": "\n" * (8 * MEGABYTE),
    "as many lines as are read, and a document": "a\n" * (4 * MEGABYTE - 50) + _inside("<gpu/>"),
    "null characters": _many("\0"),
    "references": _inside(_many("&#0;&#x0;")),
    "cards": _inside(_many("<gpu/>")),
    "cards that are few enough to try": _inside("<gpu/>" * 65),
    "instances": _inside("<gpu><mig_devices>" + "<mig_device/>" * 60_000 + "</mig_devices></gpu>"),
    "processes": _inside("<gpu><processes>" + "<process_info/>" * 100_000 + "</processes></gpu>"),
    "processes of many cards": _inside(("<gpu><processes>" + "<process_info/>" * 4_900 + "</processes></gpu>") * 16),
    "elements that nobody knows": _inside("<gpu>" + "<a>Unknown Error</a>" * 39_000 + "</gpu>"),
    "reasons": _inside("<gpu><clocks_event_reasons>" + "".join(f"<r{n}>Active</r{n}>" for n in range(39_000)) + _END_OF_REASONS),
    "names of spaces": _inside('<gpu><clocks_event_reasons><x xmlns="a}[b">Active</x></clocks_event_reasons></gpu>'),
    "too much": " " * (9 * MEGABYTE) + _inside("<gpu/>"),
    "a long value": _inside(f"<gpu><product_name>{_many('x')}</product_name></gpu>"),
    "another root": f"<{_OPEN[1:-1]}{'x' * MEGABYTE}>{_CLOSE[:-1]}{'x' * MEGABYTE}>",
}  # fmt: skip


@pytest.mark.parametrize("told", HOSTILE)
def test_a_hostile_answer_is_one_clear_check_within_a_second(told: str) -> None:
    def judged() -> list[Check]:
        data, ran = smi_messages.read_answer(0, HOSTILE[told])
        return [ran, *(smi_judge.judge(data, {}) if data else [])]

    found = quickly(judged)
    assert checks.verdict(found) != "pass"
    assert all(len(str(check["reason"])) < 700 for check in found if check["status"] == "fail")


def _answer(out: str, err: str = "", rc: int = 0) -> dict[str, object]:
    params = {**dict.fromkeys(nvidia_smi.EXPECTATIONS), "executable": "nvidia-smi", "timeout": 60}
    result = nvidia_smi.prove(params, lambda *_a, **_k: run.Result(rc, out, err, 0.1, None))
    return {"changed": False, **checks.with_verdict(result)}


@pytest.mark.parametrize("long", ["product_name", "uuid", "pci/pci_bus_id", "process_name", "warning"])
def test_what_is_too_long_is_told_by_a_check_and_passes_the_gate(long: str) -> None:
    text = (FIXTURES / "geforce_595.xml").read_text(encoding="utf-8")
    if long == "warning":
        text = "W" * MEGABYTE + "\n" + text
    else:
        tag = long.rsplit("/", 1)[-1]
        before, _, after = text.partition(f"<{tag}>")
        text = before + f"<{tag}>" + "x" * MEGABYTE + after
    admitted = json.loads(gate.admit("nvidia_smi", json.dumps(_answer(text))))
    assert len(json.dumps(admitted)) < 100_000
    assert admitted["verdict"] == ("fail" if long in ("product_name", "uuid", "pci/pci_bus_id") else "pass")


def test_a_document_of_a_large_host_is_read() -> None:
    """Sixteen cards with what a large one says: 1,600 clocks each, and a hundred processes."""
    text = (FIXTURES / "h100_580.xml").read_text(encoding="utf-8")
    start, end = text.index("\t<gpu id"), text.index("\t</gpu>") + len("\t</gpu>")
    clocks = (
        "<supported_clocks>"
        + "<supported_graphics_clock>1980 MHz</supported_graphics_clock>" * 1600
        + "</supported_clocks>"
    )
    process = "<process_info><pid>1</pid><type>C</type><process_name>python</process_name></process_info>"
    card = text[start:end].replace("<processes>", clocks + "<processes>" + process * 100)
    document = text[:start] + "".join(card.replace("1B:00", f"{number:02X}:00") for number in range(16)) + _CLOSE
    data, _ran = smi_messages.read_answer(0, document)
    assert data is not None
    assert len(data["gpus"]) == 16
