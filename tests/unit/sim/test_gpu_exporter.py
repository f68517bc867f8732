"""The program that tells Prometheus what the cards do (gpu_exporter, gpu_metrics), by a real server on the loopback address."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_exporter
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from tests.sim import bundled, scenario
from tests.sim.onnode.gpuwright_sim import board, smi

_LABELS = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}
_LOST = "Unable to determine the device handle for GPU{}: GPU is lost.  Reboot the system to recover this GPU\n"
_ROW = "{}, NVIDIA H100 80GB HBM3, {}, 55, 4, 81559, 31, 71.25, 700.00, 0x0000000000000040\n"
#: Beyond what any answer of these tests takes, on a busy machine too.
_LONG = 30


class Node:
    """Cards whose nvidia-smi says `text`, or raises `error`; `asked` are the questions."""

    def __init__(self, *names: str) -> None:
        # Eight of them have room on the bus.
        places = (f"0000:{0x18 + number * 0x1D:02x}:00.0" for number in range(len(names)))
        cards = [{"card": name, "bus_id": place} for name, place in zip(names, places, strict=True)]
        self.gpus = scenario.expand({"gpus": cards}, "x")["gpus"]
        self.text = self.xml()
        self.error: Exception | None = None
        self.rows = ""
        self.asked: list[str] = []

    def xml(self, *gone: int, **conditions: int) -> str:
        left = [gpu for index, gpu in enumerate(self.gpus) if index not in gone]
        return smi.xml(left, "580.178.04", dict(conditions), "now", "Completed")

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        self.asked.append(arguments[0])
        if self.error is not None:
            raise self.error
        return (0, self.text) if arguments[0] == "-q" else (0 if self.rows else 15, self.rows or self.text)

    @property
    def places(self) -> list[str]:
        return ["0000" + gpu["bus_id"].upper() for gpu in self.gpus]


class Clock:
    """A time that only goes on where it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """What a page says, read as Prometheus does."""

    def __init__(self, page: str) -> None:
        families = list(text_string_to_metric_families(page))
        # The library calls counters as OpenMetrics does.
        self.samples = [
            sample._replace(name=sample.name.removesuffix("_total")) for family in families for sample in family.samples
        ]
        self.page = page

    def values(self, name: str) -> dict[str, float]:
        """By card."""
        return {sample.labels.get("gpu", ""): sample.value for sample in self.samples if sample.name == name}

    def value(self, name: str) -> float | None:
        """Of what is told once."""
        return next((sample.value for sample in self.samples if sample.name == name), None)

    def labels(self, card: str) -> dict[str, str]:
        (labels,) = [
            sample.labels
            for sample in self.samples
            if sample.name == "gpuwright_card_lost" and sample.labels["gpu"] == card
        ]
        return labels

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}


@pytest.fixture(name="make")
def _make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Node]:
    monkeypatch.setattr(board, "_LOST", tmp_path / "lost.json")
    monkeypatch.setattr(board, "_KEPT", tmp_path / "kept.json")
    return lambda *names: Node(*(names or ("h100",)))


def exporter_of(
    node: run.Runner, clock: Callable[[], float] = time.monotonic, interval: float = 15
) -> gpu_exporter.Exporter:
    return gpu_exporter.Exporter(interval, node, lambda: None, lambda: True, clock)


def told(exporter: gpu_exporter.Exporter) -> Told:
    return Told(exporter.page().decode())


@contextlib.contextmanager
def served(page: Callable[[], bytes], **options: Any) -> Iterator[gpu_exporter.Server]:
    server = gpu_exporter.Server(("127.0.0.1", 0), page, **options)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(
    server: gpu_exporter.Server,
    path: str = "/metrics",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, http.client.HTTPMessage, str]:
    port = server.server_port
    link = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=_LONG)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=_LONG, context=tls)
    )
    with contextlib.closing(link):
        link.request(method, path, headers=dict(headers or {}))
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def raw(server: gpu_exporter.Server, request: bytes) -> bytes:
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=_LONG) as link:
        with contextlib.suppress(OSError):
            link.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := link.recv(4096):
                answer += part
        return answer


# --------------------------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------------------------


def test_a_card_is_told_by_the_names_and_labels_of_dcgm_exporter(make: Any) -> None:
    node = make("h100")
    exporter = exporter_of(node)
    exporter.turn()
    with served(exporter.page) as server:
        status, headers, page = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = Told(page)
    gpu = node.gpus[0]
    assert found.labels("0") == {
        "gpu": "0",
        "UUID": gpu["uuid"],
        "pci_bus_id": node.places[0],
        "device": "nvidia0",
        "modelName": gpu["name"],
        "Hostname": socket.gethostname(),
        "DCGM_FI_DRIVER_VERSION": "580.178.04",
    }
    assert all(set(sample.labels) in (_LABELS, set()) for sample in found.samples)
    values = {sample.name: sample.value for sample in found.samples if sample.name.startswith("DCGM_")}
    assert values == {
        "DCGM_FI_DEV_SM_CLOCK": gpu["sm_mhz"],
        "DCGM_FI_DEV_MEM_CLOCK": gpu["memory_mhz"],
        "DCGM_FI_DEV_MEMORY_TEMP": 40,
        "DCGM_FI_DEV_GPU_TEMP": 34,
        "DCGM_FI_DEV_POWER_USAGE": gpu["idle_w"],
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": gpu["power_w"],
        "DCGM_FI_DEV_GPU_UTIL": 0,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 0,
        "DCGM_FI_DEV_FB_FREE": gpu["memory_mib"] - gpu["reserved_mib"],
        "DCGM_FI_DEV_FB_USED": 0,
        "DCGM_FI_DEV_FB_TOTAL": gpu["memory_mib"],
        "DCGM_FI_DEV_PCIE_LINK_GEN": gpu["pcie_gen"],
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": gpu["pcie_width"],
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": gpu["pcie_gen"],
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": gpu["pcie_width"],
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 1,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 0,
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 3,
    }
    assert found.value("gpuwright_card_lost") == 0
    assert found.value("gpuwright_exporter_up") == 1


def test_each_metric_has_its_type_and_help_once_before_its_values(make: Any) -> None:
    exporter = exporter_of(make(*["h100"] * 3))
    exporter.turn()
    lines = exporter.page().decode().splitlines()
    names = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert [line.split(" ")[2] for line in lines if line.startswith("# HELP")] == names
    order = [line.partition("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    assert list(dict.fromkeys(order)) == names
    kinds = {line.split(" ")[2]: line.split(" ")[3] for line in lines if line.startswith("# TYPE")}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    }


def test_eight_cards_have_their_own_values_in_nvmls_order(make: Any) -> None:
    node = make(*["h100"] * 8)
    node.text = node.xml(ecc=2, throttling=5)
    exporter = exporter_of(node)
    exporter.turn()
    found = told(exporter)
    cards = [str(number) for number in range(8)]
    assert sorted(found.values("DCGM_FI_DEV_GPU_TEMP")) == cards
    assert [found.labels(card)["pci_bus_id"] for card in cards] == sorted(node.places)
    assert [found.labels(card)["device"] for card in cards] == [f"nvidia{card}" for card in cards]
    assert found.values("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL") == {**dict.fromkeys(cards, 0), "2": 5}
    assert found.values("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")["2"] == 3
    assert found.values("DCGM_FI_DEV_ROW_REMAP_PENDING") == {**dict.fromkeys(cards, 0), "2": 1}
    assert found.values("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS") == {**dict.fromkeys(cards, 1), "5": 0x8 | 0x20 | 0x40}
    assert node.asked == ["-q"]


def test_a_value_that_a_card_does_not_tell_has_no_line(make: Any) -> None:
    node = make("rtx4090", "h100")
    exporter = exporter_of(node)
    exporter.turn()
    found = told(exporter)
    for name in ("DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"):
        assert list(found.values(name)) == ["1"], name
    assert list(found.values("DCGM_FI_DEV_GPU_TEMP")) == ["0", "1"]
    assert "DCGM_FI_DEV_XID_ERRORS" not in found.page


@pytest.mark.parametrize(
    ("old", "new", "name", "value"),
    [
        ("fb_memory_usage", "memory_usage", "DCGM_FI_DEV_FB_USED", 0),
        (" MiB<", " MB<", "DCGM_FI_DEV_FB_TOTAL", 81559),
        ("average_power_draw", "power_draw", "DCGM_FI_DEV_POWER_USAGE", 70),
        ("clocks_event_reason", "clocks_throttle_reason", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1),
        ("<gpu_temp>34 C", "<gpu_temp>-4 C", "DCGM_FI_DEV_GPU_TEMP", -4),
        ("<gpu_util>0 %", "<gpu_util>-4 %", "DCGM_FI_DEV_GPU_UTIL", None),
        ("<gpu_util>0 %", "<gpu_util>[Unknown Error]", "DCGM_FI_DEV_GPU_UTIL", None),
        ("<gpu_util>0 %", "<gpu_util>0 %</gpu_util><gpu_util>9 %", "DCGM_FI_DEV_GPU_UTIL", None),
        ("</utilization>", "</utilization><utilization/>", "DCGM_FI_DEV_GPU_UTIL", None),
        ("<dram_correctable>0<", "<dram_correctable>Unknown Error<", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", None),
        ("<dram_correctable>0<", "<dram_correctable>N/A<", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 0),
        ("<status>Success", "<status>Insufficient Resources", "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 4),
        ("<state>Completed", "<state>In Progress", "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 2),
        ("<state>Completed", "<state>N/A", "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", None),
        ("clock>1980 MHz", "clock>1.98 GHz", "DCGM_FI_DEV_SM_CLOCK", None),
    ],
)
def test_a_value_is_read_as_each_driver_says_it(make: Any, old: str, new: str, name: str, value: float | None) -> None:
    node = make()
    assert old in node.text
    node.text = node.text.replace(old, new)
    exporter = exporter_of(node)
    exporter.turn()
    assert told(exporter).value(name) == value


@pytest.mark.parametrize(
    "name", ['a "b" c', "back\\slash", "two\nlines", 'all "of\\n\n" them\\', "</gpu> & <x>", "ü 卡"]
)
def test_a_hostile_name_of_a_card_stays_one_label(make: Any, name: str) -> None:
    node = make("h100", "h100")
    node.gpus[0]["name"] = name
    node.text = node.xml()
    exporter = exporter_of(node)
    exporter.turn()
    found = told(exporter)
    assert found.labels("0")["modelName"] == name
    assert list(found.values("DCGM_FI_DEV_GPU_TEMP")) == ["0", "1"]


def test_names_of_programs_are_not_read(make: Any) -> None:
    node = make()
    process = "<process_info><process_name>a & b < c </x> <utilization></process_name></process_info>"
    node.text = node.text.replace("<processes>\n", f"<processes>\n{process}")
    exporter = exporter_of(node)
    exporter.turn()
    assert told(exporter).value("DCGM_FI_DEV_GPU_UTIL") == 0


# --------------------------------------------------------------------------------------------------------------------
# Lost cards
# --------------------------------------------------------------------------------------------------------------------


def lost_in(text: str, place: str) -> str:
    """The document in which one card says nothing but that it is lost."""
    begin, end = text.index(f'<gpu id="{place}">'), text.index("</gpu>", text.index(f'<gpu id="{place}">'))
    said = "<product_name>[GPU is lost]</product_name><uuid>[GPU is lost]</uuid><utilization><gpu_util>0 %</gpu_util></utilization>"
    return f'{text[:begin]}<gpu id="{place}">{said}{text[end:]}'


@pytest.mark.parametrize("way", ["described", "left out and named", "left out"])
def test_a_lost_card_keeps_its_labels_and_has_no_values(make: Any, way: str) -> None:
    node = make(*["h100"] * 3)
    exporter = exporter_of(node)
    exporter.turn()
    before = told(exporter)
    lost = _LOST.format(node.places[1][4:])
    node.text = {
        "described": lost_in(node.xml(), node.places[1]),
        "left out and named": node.xml(1) + lost,
        "left out": node.xml(1),
    }[way]
    exporter.turn()
    found = told(exporter)
    assert found.values("gpuwright_card_lost") == {"0": 0, "1": 1, "2": 0}
    assert [found.labels(card)["UUID"] for card in "012"] == [before.labels(card)["UUID"] for card in "012"]
    assert [name for name in found.names if "1" in found.values(name)] == ["gpuwright_card_lost"]
    assert found.values("DCGM_FI_DEV_POWER_USAGE").keys() == {"0", "2"}
    assert found.value("gpuwright_exporter_up") == 1


def test_a_card_that_was_lost_before_is_told_by_its_place(make: Any) -> None:
    node = make(*["h100"] * 3)
    node.text = node.xml(1) + _LOST.format(node.places[1][4:])
    exporter = exporter_of(node)
    exporter.turn()
    found = told(exporter)
    assert found.values("gpuwright_card_lost") == {"0": 0, "1": 1, "2": 0}
    assert (found.labels("1")["pci_bus_id"], "UUID" in found.labels("1")) == (node.places[1], False)


def test_a_card_that_comes_back_has_its_values_again(make: Any) -> None:
    node = make("h100", "h100")
    exporter = exporter_of(node)
    for text in (node.xml(), node.xml(1), node.xml()):
        node.text = text
        exporter.turn()
    assert told(exporter).values("gpuwright_card_lost") == {"0": 0, "1": 0}


def test_where_one_lost_card_spoils_the_xml_the_others_are_asked_for_by_csv(make: Any) -> None:
    node = make(*["h100"] * 3)
    exporter = exporter_of(node)
    exporter.turn()
    node.text = _LOST.format(node.places[0][4:])
    node.rows = node.text + ", ".join(["[Unknown Error]"] * 10) + "\n"
    node.rows += "".join(_ROW.format(index, node.gpus[index]["uuid"]) for index in (1, 2))
    exporter.turn()
    found = told(exporter)
    assert found.values("gpuwright_card_lost") == {"0": 1, "1": 0, "2": 0}
    assert found.values("DCGM_FI_DEV_GPU_UTIL") == {"1": 55, "2": 55}
    assert found.values("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS") == {"1": 0x40, "2": 0x40}
    assert found.labels("2")["pci_bus_id"] == node.places[2]
    assert found.value("gpuwright_exporter_up") == 1


def test_where_one_lost_card_spoils_every_answer_it_is_told_alone(make: Any) -> None:
    node = make("h100", "h100")
    exporter = exporter_of(node)
    exporter.turn()
    node.text = _LOST.format(node.places[1][4:])
    exporter.turn()
    found = told(exporter)
    assert found.values("gpuwright_card_lost") == {"1": 1}
    assert not [name for name in found.names if name.startswith("DCGM_")]
    assert found.value("gpuwright_exporter_up") == 0


# --------------------------------------------------------------------------------------------------------------------
# Samples that do not come
# --------------------------------------------------------------------------------------------------------------------


def test_values_older_than_three_intervals_are_not_told(make: Any) -> None:
    clock = Clock()
    node = make()
    exporter = exporter_of(node, clock)
    assert told(exporter).names == set()
    exporter.turn()
    node.error = run.SmiError("gone")
    clock.now += 45
    exporter.turn()
    found = told(exporter)
    assert found.value("gpuwright_exporter_up") == 0
    assert found.value("gpuwright_exporter_sample_age_seconds") == 45
    assert found.value("DCGM_FI_DEV_GPU_TEMP") == 34
    clock.now += 0.1
    found = told(exporter)
    assert found.names == {
        "gpuwright_exporter_up",
        "gpuwright_exporter_sample_age_seconds",
        "gpuwright_exporter_sample_seconds",
    }
    assert found.value("gpuwright_exporter_sample_age_seconds") == pytest.approx(45.1)
    node.error = None
    exporter.turn()
    assert told(exporter).value("DCGM_FI_DEV_GPU_TEMP") == 34


@pytest.mark.parametrize(
    "said",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "<nvidia_smi_log>\n\x00\x00segment fault",
        "<nvidia_smi_log><gpu></nvidia_smi_log>",
        "<nvidia_smi_log></nvidia_smi_log>",
        '<!DOCTYPE x [<!ENTITY e "x">]><nvidia_smi_log>&e;&#1;</nvidia_smi_log>',
        '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="0:01:00.0"/><gpu id="0:02:00.0"/></nvidia_smi_log>',
        '<nvidia_smi_log><gpu id="0:01:00.0"/><gpu id="0:01:00.0"/></nvidia_smi_log>',
    ],
)
def test_an_answer_that_is_none_leaves_the_last_sample_and_is_told_once(
    make: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make()
    exporter = exporter_of(node)
    exporter.turn()
    node.text = said
    exporter.turn()
    exporter.turn()
    found = told(exporter)
    assert (found.value("gpuwright_exporter_up"), found.value("DCGM_FI_DEV_GPU_TEMP")) == (0, 34)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("<4>no sample: ")
    node.text = node.xml()
    exporter.turn()
    assert capsys.readouterr().err == "<5>the cards answer again\n"


def test_nothing_is_asked_before_the_driver_is_loaded(make: Any) -> None:
    node = make()
    exporter = gpu_exporter.Exporter(15, node, lambda: None, lambda: False)
    exporter.turn()
    assert node.asked == []
    assert told(exporter).value("gpuwright_exporter_up") == 0


def test_no_call_is_begun_beside_one_that_the_kernel_holds(make: Any) -> None:
    node = make()
    node.error = run.Hung("no answer", os.getpid(), run.start_of(os.getpid()))
    exporter = exporter_of(node)
    for _ in range(3):
        exporter.turn()
    assert node.asked == ["-q"]
    node.error = run.Hung("no answer", os.getpid(), "begun at another time")
    node.asked = []
    exporter = exporter_of(node)
    for _ in range(3):
        exporter.turn()
    assert len(node.asked) == 3
    held = gpu_exporter.Exporter(15, node, lambda: 4711, lambda: True)
    node.asked = []
    held.turn()
    assert node.asked == []


def test_a_card_that_sleeps_is_no_fault_and_has_no_values(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node = make()
    exporter = exporter_of(node)
    exporter.turn()
    assert "DCGM_FI_DEV_GPU_TEMP" in exporter.page().decode()
    node.error = run.Asleep()
    exporter.turn()
    assert capsys.readouterr().err == ""
    assert "DCGM_FI_DEV_GPU_TEMP" not in exporter.page().decode()
    assert told(exporter).value("gpuwright_exporter_up") == 1


def test_samples_are_never_taken_two_at_once(make: Any) -> None:
    node = make()
    running: list[int] = []

    class Enough(Exception):
        pass

    def slow(arguments: Sequence[str]) -> tuple[int, str]:
        running.append(1)
        assert len(running) == 1
        time.sleep(0.03)
        running.pop()
        if len(node.asked) == 4:
            raise Enough
        return node(arguments)

    with pytest.raises(Enough):
        exporter_of(slow, interval=0.01).keep_on()


def test_while_nvidia_smi_hangs_readers_are_answered_and_it_is_killed(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 600\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(run, "_PATH", f"{tmp_path}:{run._PATH}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = make()
    hangs = False

    def runner(arguments: Sequence[str]) -> tuple[int, str]:
        return run.run(arguments, 1) if hangs else node(arguments)

    exporter = exporter_of(runner)
    exporter.turn()
    hangs = True
    with served(exporter.page) as server:
        turn = threading.Thread(target=exporter.turn)
        turn.start()
        wait_for((tmp_path / "pid").exists)
        found = Told(ask(server)[2])
        assert (found.value("DCGM_FI_DEV_GPU_TEMP"), found.value("gpuwright_exporter_up")) == (34, 1)
        turn.join()
        assert Told(ask(server)[2]).value("gpuwright_exporter_up") == 0
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + _LONG
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come")


# --------------------------------------------------------------------------------------------------------------------
# HTTP
# --------------------------------------------------------------------------------------------------------------------


def page() -> bytes:
    return b"# a page\n"


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/metrics", 200, "# a page\n"),
        ("GET", "/metrics?name[]=x", 200, "# a page\n"),
        ("HEAD", "/metrics", 200, ""),
        ("GET", "/", 404, "the values of the cards are at /metrics\n"),
        ("GET", "/metrics/", 404, "the values of the cards are at /metrics\n"),
        ("GET", "/../../etc/passwd", 404, "the values of the cards are at /metrics\n"),
        ("HEAD", "/x", 404, ""),
        ("POST", "/metrics", 405, "only GET and HEAD are answered\n"),
        ("DELETE", "/", 405, "only GET and HEAD are answered\n"),
        ("OPTIONS", "*", 405, "only GET and HEAD are answered\n"),
    ],
)
def test_one_page_is_there_to_be_read(method: str, path: str, status: int, body: str) -> None:
    with served(page) as server:
        found, headers, text = ask(server, path, method)
    assert (found, text) == (status, body)
    assert headers["Connection"] == "close"
    assert headers["Server"] == "gpuwright "
    assert ("Allow" in headers) == (status == 405)
    if method == "HEAD" and status == 200:
        assert headers["Content-Length"] == "9"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * 20000, b"431"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /metrics HTTP/9.1\r\n\r\n", b"505"),
        (b"GET /metrics HTTP/x\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000, b"405"),
        (b"GET /metrics HTTP/1.0\n\n", b"200"),
    ],
)
def test_a_request_has_its_limits(request_: bytes, status: bytes) -> None:
    with served(page) as server:
        assert raw(server, request_).split(b" ")[:2] == [b"HTTP/1.0", status]
        assert ask(server)[0] == 200


def test_an_answer_to_head_ends_behind_its_headers() -> None:
    with served(page) as server:
        assert raw(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


def test_a_request_that_breaks_off_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    with served(page) as server:
        assert raw_closed(server, b"GET /met") == b""
        assert raw_closed(server, b"") == b""
        assert ask(server)[0] == 200
    assert capfd.readouterr().err == ""


def raw_closed(server: gpu_exporter.Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=_LONG) as link:
        link.sendall(request)
        link.shutdown(socket.SHUT_WR)
        return link.recv(4096)


def test_slow_clients_in_every_worker_do_not_keep_a_reader_out() -> None:
    with served(page, seconds=0.3) as server, contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=_LONG))
            for _ in range(gpu_exporter.WORKERS + 4)
        ]
        for link in slow:
            link.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert ask(server)[0] == 200
        assert {link.recv(4096) for link in slow} == {b""}


def test_a_client_that_sends_byte_by_byte_is_cut_off() -> None:
    with (
        served(page, seconds=0.3) as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=0.05) as link,
    ):

        def cut() -> bool:
            try:
                link.sendall(b"a")
                return link.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert wait_for(cut)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    with (
        served(lambda: b"x" * 64 * 2**20, seconds=0.3) as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=_LONG) as link,
    ):
        link.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_for(lambda: server._free._value == gpu_exporter.WORKERS)


def test_many_clients_are_all_answered_by_a_limited_number_of_workers() -> None:
    running: set[int] = set()
    most: list[int] = []

    def slow_page() -> bytes:
        running.add(threading.get_ident())
        most.append(len(running))
        time.sleep(0.01)
        running.discard(threading.get_ident())
        return page()

    with served(slow_page) as server, ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _number: ask(server), range(300)))
    assert {(status, text) for status, _headers, text in answers} == {(200, "# a page\n")}
    assert max(most) <= gpu_exporter.WORKERS


def test_a_fault_of_a_page_is_one_line_and_the_next_reader_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    pages = iter([RuntimeError("two\nlines"), None])

    def faulty() -> bytes:
        if error := next(pages):
            raise error
        return page()

    with served(faulty) as server:
        assert raw(server, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert ask(server)[0] == 200
    assert capfd.readouterr().err == "<3>a request failed: RuntimeError('two\\nlines')\n"


# --------------------------------------------------------------------------------------------------------------------
# Settings: TLS, users
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="pair", scope="module")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate for the loopback address, with its key."""
    place = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(" "), cwd=place, check=True, capture_output=True)
    (place / "key.pem").chmod(0o600)
    return {"cert_file": str(place / "cert.pem"), "key_file": str(place / "key.pem")}


def web(tmp_path: Path, **known: Any) -> gpu_exporter.Web:
    path = tmp_path / "web.yml"
    path.write_text(json.dumps(known))
    return gpu_exporter.read_web(str(path))


def hashed(password: str) -> str:
    """As htpasswd makes it, by a quick cost."""
    return (gpu_exporter.crypt()(password.encode(), b"$2y$04$abcdefghijklmnopqrstuu") or b"").decode()


def test_with_a_certificate_only_tls_is_spoken(tmp_path: Path, pair: dict[str, str]) -> None:
    read = web(tmp_path, tls_server_config=pair)
    client = ssl.create_default_context(cafile=pair["cert_file"])
    assert read.tls is not None
    assert read.tls.minimum_version is ssl.TLSVersion.TLSv1_2
    with served(page, tls=read.tls) as server:
        assert ask(server, tls=client)[::2] == (200, "# a page\n")
        assert ask(server, method="POST", tls=client)[0] == 405
        assert not raw(server, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP")
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server, tls=ssl.create_default_context())
        assert ask(server, tls=client)[0] == 200


def test_a_handshake_that_does_not_come_keeps_no_reader_out(tmp_path: Path, pair: dict[str, str]) -> None:
    read = web(tmp_path, tls_server_config=pair)
    client = ssl.create_default_context(cafile=pair["cert_file"])
    with served(page, tls=read.tls, seconds=1) as server, contextlib.ExitStack() as stack:
        for _ in range(gpu_exporter.WORKERS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=_LONG))
        assert ask(server, tls=client)[0] == 200


def test_a_key_is_one_that_its_owner_alone_can_read(tmp_path: Path, pair: dict[str, str]) -> None:
    for name, path in pair.items():
        (tmp_path / name).write_bytes(Path(path).read_bytes())
    (tmp_path / "key_file").chmod(0o640)
    files = {"cert_file": str(tmp_path / "cert_file"), "key_file": str(tmp_path / "key_file")}
    with pytest.raises(
        gpu_exporter.SettingsError, match=r"a key that root alone can read, found .*/key_file with mode 0640"
    ):
        web(tmp_path, tls_server_config=files)
    (tmp_path / "key_file").chmod(0o400)
    # A name alone is beside the file that has it, as exporter-toolkit takes it.
    assert web(tmp_path, tls_server_config={"cert_file": "cert_file", "key_file": "key_file"}).tls is not None
    with pytest.raises(gpu_exporter.SettingsError, match=r"key_file, .*/other, cannot be read: No such file"):
        web(tmp_path, tls_server_config={**files, "key_file": "other"})


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (basic("scraper:right: one"), 200),
        (basic("other:ünïcode"), 200),
        ({"Authorization": basic("scraper:right: one")["Authorization"].replace("Basic", "basic")}, 200),
        (basic("scraper:wrong"), 401),
        (basic("scraper:"), 401),
        (basic("scraper"), 401),
        (basic("nobody:right: one"), 401),
        (basic("other:right: one"), 401),
        (basic(":"), 401),
        ({}, 401),
        ({"Authorization": "Basic"}, 401),
        ({"Authorization": "Basic ===="}, 401),
        ({"Authorization": "Basic /////w=="}, 401),
        ({"Authorization": "Bearer x"}, 401),
    ],
)
def test_only_users_with_their_password_may_read(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    read = web(tmp_path, basic_auth_users={"scraper": hashed("right: one"), "other": hashed("ünïcode")})
    with served(page, users=read.users) as server:
        for _ in range(2):
            for path, method in (("/metrics", "GET"), ("/x", "GET"), ("/metrics", "POST")):
                found, answered, text = ask(server, path, method, headers)
                allowed = {("/metrics", "GET"): 200, ("/x", "GET"): 404, ("/metrics", "POST"): 405}[path, method]
                assert found == (allowed if status == 200 else status)
                assert ("# a page" in text) == (found == 200)
                assert (answered["WWW-Authenticate"] == 'Basic realm="gpuwright"') == (status == 401)


def test_a_password_that_was_right_is_not_hashed_again() -> None:
    calls: list[bytes] = []
    crypt = gpu_exporter.crypt()

    def counted(password: bytes, known: bytes) -> bytes | None:
        calls.append(password)
        return crypt(password, known)

    users = gpu_exporter.Users({"scraper": hashed("right")}, counted)
    for text, right in (("right", True), ("right", True), ("wrong", False), ("wrong", False), ("right", True)):
        assert users.permit(basic(f"scraper:{text}")["Authorization"]) is right
    assert not users.permit(basic("nobody:right")["Authorization"])
    assert calls == [b"right", b"wrong", b"wrong", b"right"]


def test_a_hash_of_another_program_is_understood() -> None:
    """Of crypt_blowfish's own tests, as `htpasswd -B` calls the variant."""
    text = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    assert gpu_exporter.is_hash(text)
    users = gpu_exporter.Users({"reader": text}, gpu_exporter.crypt())
    assert users.works
    assert users.permit(basic("reader:U*U")["Authorization"])


@pytest.mark.parametrize("password", ["x" * 72 + "y", "x" * 71 + "\0", "\0"])
def test_a_password_of_which_bcrypt_reads_only_the_beginning_is_none(password: str) -> None:
    users = gpu_exporter.Users({"reader": hashed("x" * 72), "empty": hashed("")}, gpu_exporter.crypt())
    assert not users.permit(basic(f"reader:{password}")["Authorization"])
    assert not users.permit(basic(f"empty:{password}")["Authorization"])
    assert users.permit(basic("reader:" + "x" * 72)["Authorization"])


def test_a_machine_that_has_no_bcrypt_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.yml").write_text(json.dumps({"basic_auth_users": {"reader": hashed("right")}}))
    with pytest.raises(gpu_exporter.SettingsError, match="crypt\\(3\\) has no bcrypt"):
        gpu_exporter.read_web(str(tmp_path / "web.yml"), lambda: lambda _password, _known: b"*0")
    monkeypatch.setattr(gpu_exporter, "_LIBRARIES", ("libnowhere.so.1",))
    with pytest.raises(gpu_exporter.SettingsError, match="this machine has no libnowhere"):
        gpu_exporter.read_web(str(tmp_path / "web.yml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", r"expected an object with the keys .* found list"),
        ('{"http_server_config": {}}', r"found http_server_config$"),
        ('{"tls_server_config": {}}', "expected the files cert_file and key_file of tls_server_config"),
        ('{"tls_server_config": {"cert_file": 1, "key_file": 2}}', "expected a path as cert_file, found 1"),
        ('{"tls_server_config": {"cert_file": "/x", "key_file": "/y"}}', "cert_file, /x, cannot be read"),
        ('{"basic_auth_users": {}}', "expected a hash for each name of basic_auth_users"),
        ('{"basic_auth_users": {"a": "$2y$10$abc"}}', r"expected a name .* for the user 'a'"),
        ('{"basic_auth_users": {"a": "$2y$15$%s"}}', "of a cost up to 14, for the user 'a'"),
        ('{"basic_auth_users": {"a": "$6$%s"}}', "a hash of bcrypt"),
        ('{"basic_auth_users": {"a:b": "$2y$10$%s"}}', "without a colon"),
    ],
)
def test_a_file_that_cannot_be_served_is_one_line_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "web.yml"
    path.write_text(text.replace("%s", "A" * 53))
    assert gpu_exporter.main(["--listen=127.0.0.1:0", f"--web-config={path}"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("<3>")
    assert said.count("\n") == 1
    assert "AAAAA" not in said, "a hash is shown to nobody"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(said.rstrip())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(
            ([f"--listen={address}"], "expected an address and a port")
            for address in (
                "",
                ":9400",
                "*:9400",
                "localhost:9400",
                "127.1:9400",
                "::1:9400",
                "[127.0.0.1]:9400",
                "127.0.0.1:65536",
            )
        ),
        (["--listen=192.0.2.1:9400"], "nothing can listen on 192.0.2.1, port 9400: "),
        *(
            (
                ["--listen=127.0.0.1:0", f"--interval={seconds}"],
                f"expected 1 to 3600 seconds as the interval, found '{seconds}'",
            )
            for seconds in ("0", "nan", "-1", "1e3", "3601")
        ),
        (["--listen=127.0.0.1:0", "--web-config=/nowhere/web.yml"], "/nowhere/web.yml cannot be read: No such file"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert gpu_exporter.main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("<3>" + words)
    assert said.count("\n") == 1


def test_a_certificate_that_is_none_and_a_key_with_a_password_are_told(tmp_path: Path, pair: dict[str, str]) -> None:
    (tmp_path / "cert.pem").write_text("no certificate\n")
    with pytest.raises(gpu_exporter.SettingsError, match=r"the certificate .*/cert.pem with the key .* cannot be used"):
        web(tmp_path, tls_server_config={**pair, "cert_file": str(tmp_path / "cert.pem")})
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", pair["key_file"], "-aes256", "-passout", "pass:secret", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    locked.chmod(0o600)
    with pytest.raises(gpu_exporter.SettingsError, match="cannot be used"):
        web(tmp_path, tls_server_config={**pair, "key_file": str(locked)})


def test_without_an_address_nothing_is_served() -> None:
    with pytest.raises(SystemExit):
        gpu_exporter.main([])


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9400", ("127.0.0.1", 9400)),
        ("0.0.0.0:9400", ("0.0.0.0", 9400)),  # noqa: S104 - said explicitly, as it has to be
        ("[::]:9400", ("::", 9400)),
        ("[0::1]:9400", ("::1", 9400)),
    ],
)
def test_an_address_is_served_as_it_is_written(listen: str, address: tuple[str, int]) -> None:
    assert gpu_exporter.read_address(listen) == address


def test_a_socket_that_systemd_hands_over_is_the_one_that_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held, served(page, listening=held) as server:
        assert server.server_port == held.getsockname()[1]
        assert ask(server)[0] == 200


@pytest.mark.parametrize(("count", "process"), [("1", "1"), ("2", ""), ("", "")])
def test_what_was_handed_to_another_process_is_none(count: str, process: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", count)
    monkeypatch.setenv("LISTEN_PID", process or str(os.getpid()))
    assert gpu_exporter.handed_over() is None


def test_an_address_of_ipv6_is_served() -> None:
    try:
        server = gpu_exporter.Server(("::1", 0), page)
    except OSError:
        pytest.skip("this machine has no IPv6")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        link = http.client.HTTPConnection("::1", server.server_port, timeout=_LONG)
        link.request("GET", "/metrics")
        assert link.getresponse().read() == page()
        link.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --------------------------------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def program(tmp_path: Path, smi_script: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """As on a node: one file, and nothing of ours to import; with its port."""
    replaced = {'"/dev/dxg"': '"/dev/null"', '_PATH = "': f'_PATH = "{tmp_path}:'}
    (tmp_path / "gpu_exporter.py").write_text(bundled.script("monitoring_exporters", replaced))
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{smi_script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    command = ["/usr/bin/python3", str(tmp_path / "gpu_exporter.py"), "--listen=127.0.0.1:0", "--interval=1"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **more}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        assert line.startswith("<6>serving on 127.0.0.1, port "), line
        try:
            yield running, int(line.split(" ")[-1])
        finally:
            running.kill()


def test_the_program_runs_by_itself_and_sigterm_ends_it(make: Any, tmp_path: Path) -> None:
    node = make("h100")
    (tmp_path / "answer.xml").write_text(node.text)
    with program(tmp_path, f"cat {tmp_path}/answer.xml") as (running, port):

        def read() -> Told | None:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=_LONG)
            with contextlib.closing(link):
                link.request("GET", "/metrics")
                found = Told(link.getresponse().read().decode())
            return found if found.value("gpuwright_exporter_up") else None

        assert wait_for(read).values("DCGM_FI_DEV_GPU_TEMP") == {"0": 34}
        running.send_signal(signal.SIGTERM)
        assert running.wait(_LONG) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_who_asks_before_the_first_sample_waits_for_it(make: Any, tmp_path: Path) -> None:
    """systemd holds the port, and starts the program by the question."""
    (tmp_path / "answer.xml").write_text(make("h100").text)
    with program(tmp_path, f"sleep 0.5; cat {tmp_path}/answer.xml") as (_running, port):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=_LONG)
        with contextlib.closing(link):
            link.request("GET", "/metrics")
            assert "DCGM_FI_DEV_GPU_TEMP{" in link.getresponse().read().decode()


def test_systemd_is_told_once_there_is_something_to_read(make: Any, tmp_path: Path) -> None:
    (tmp_path / "answer.xml").write_text(make("h100").text)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(_LONG)
        with program(tmp_path, f"cat {tmp_path}/answer.xml", NOTIFY_SOCKET=str(tmp_path / "notify")) as (
            _running,
            port,
        ):
            assert systemd.recv(64) == b"READY=1"
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=_LONG)
            with contextlib.closing(link):
                link.request("GET", "/metrics")
                assert "DCGM_FI_DEV_GPU_TEMP{" in link.getresponse().read().decode()
        systemd.settimeout(0)
        with pytest.raises(BlockingIOError):
            systemd.recv(64)


def test_sigterm_ends_the_program_while_nvidia_smi_hangs_and_ends_that_too(tmp_path: Path) -> None:
    # It would be killed by itself after run.SECONDS only.
    pid = tmp_path / "pid"
    with program(tmp_path, f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600") as (running, _port):
        wait_for(pid.exists)
        running.send_signal(signal.SIGTERM)
        assert running.wait(run.SECONDS / 2) == 0
    # Whose parent has ended is collected by another one, which a busy machine lets wait.
    process = Path(f"/proc/{pid.read_text().strip()}")
    wait_for(lambda: not process.exists())
