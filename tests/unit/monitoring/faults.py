"""A fault for each alert: what a machine says from then on, when the alert fires, and how long the same may last without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .series import GIB, Series, card_labels

HOST = "gpu17"
CARD = {"host": HOST, "gpu": "1", "pci_bus_id": "00000000:02:00.0"}
_NODE = f'host="{HOST}",job="node",instance="{HOST}:9100"'

#: What a series says in each minute since the fault began; None is no answer.
Course = Callable[[int], float | None]


def constant(value: float | None) -> Course:
    return lambda _minute: value


@dataclass
class Fault:
    """Series (a pattern) and what they say from the fault on.

    fires: minutes after the begin until the alert fires. labels: those of the alert beside its name and severity. mends: for how many
    minutes the fault may last without an alert; None where it is told at once. edge: how many minutes earlier a newer Prometheus may tell
    it: from 3 on a range leaves its left edge out. new: series that are not there without the fault. before: what is so from the start.
    """

    changes: dict[str, Course]
    fires: int
    labels: dict[str, str]
    mends: int | None = None
    edge: int = 0
    new: dict[str, Course] = field(default_factory=dict)
    before: dict[str, Course] = field(default_factory=dict)

    def put(self, series: Series, begin: int, lasts: int | None = None) -> None:
        """Put the fault into a healthy machine, for some minutes or for good."""
        minutes = len(next(iter(series.values())))
        for pattern, course in self.before.items():
            for name in _matching(pattern, series):
                series[name] = [course(minute - begin) for minute in range(minutes)]
        end = minutes if lasts is None else begin + lasts
        for pattern, course in self.changes.items():
            for name in _matching(pattern, series):
                series[name][begin:end] = [course(minute - begin) for minute in range(begin, end)]
        for name, course in self.new.items():
            values: list[float | None] = [None] * minutes
            values[begin:end] = [course(minute - begin) for minute in range(begin, end)]
            series[name] = values


def _matching(pattern: str, series: Series) -> list[str]:
    found = [name for name in series if re.search(pattern, name)]
    assert found, pattern
    return found


def of_card(field_name: str, gpu: str = "1") -> str:
    return rf'^DCGM_FI_DEV_{field_name}\{{.*host="{HOST}".*gpu="{gpu}"'


def of_node(name: str) -> str:
    return rf'^{name}\{{host="{HOST}"'


def xid(number: int) -> dict[str, Course]:
    return {f'gpuwright_xid_total{{{_NODE},xid="{number}",pci_bus_id="00000000:02:00.0"}}': constant(1)}


def xid_labels(number: int) -> dict[str, str]:
    return {"host": HOST, "pci_bus_id": "00000000:02:00.0", "xid": str(number)}


_AVAIL = rf'^node_filesystem_avail_bytes\{{host="{HOST}".*mountpoint="/"'
_ROOT_SIZE = 400 * GIB

FAULTS: dict[str, list[Fault]] = {
    "GpuLost": [
        Fault({of_card(r"\w+"): constant(None)}, 5, {"host": HOST}, mends=4),
        Fault({of_node("gpuwright_gpus"): constant(1)}, 5, {"host": HOST}, mends=4),
        # A lost card may leave no other one a value; then there is nothing to be counted but what gpuwright's own exporter says of it.
        Fault(
            {rf'^DCGM_FI_DEV_\w+\{{.*host="{HOST}"': constant(None)},
            5,
            {"host": HOST},
            mends=4,
            new={f"gpuwright_card_lost{{{card_labels(HOST, gpu)}}}": constant(gpu) for gpu in (0, 1)},
        ),
    ],
    "GpuEccUncorrectable": [Fault({of_card("ECC_DBE_VOL_TOTAL"): constant(1)}, 0, CARD)],
    "GpuRowRemapPending": [Fault({of_card("ROW_REMAP_PENDING"): constant(1)}, 10, CARD, mends=9)],
    "GpuRowRemapFailed": [Fault({of_card("ROW_REMAP_FAILURE"): constant(1)}, 0, CARD)],
    "GpuHot": [
        Fault({of_card("GPU_TEMP"): constant(83)}, 10, CARD, mends=9),
        Fault({of_card("MEMORY_TEMP"): constant(97)}, 10, CARD, mends=9),
        # A card that does not name the temperature at which it slows down.
        Fault({of_card("SLOWDOWN_TEMP"): constant(None), of_card("GPU_TEMP"): constant(86)}, 10, CARD, mends=9),
    ],
    # More than half of 15 minutes, so nine; then ten.
    "GpuThermalThrottle": [
        Fault({of_card("CLOCK_THROTTLE_REASONS"): constant(0x20)}, 18, CARD, mends=11),
        Fault({of_card("CLOCK_THROTTLE_REASONS"): constant(0x4C)}, 18, CARD, mends=11),
    ],
    "GpuPowerBrake": [Fault({of_card("CLOCK_THROTTLE_REASONS"): constant(0x88)}, 5, CARD, mends=4)],
    "GpuXidCritical": [
        Fault({}, 0, xid_labels(79), new=xid(79)),
        Fault({}, 0, xid_labels(48), new=xid(48)),
    ],
    "GpuXidWarning": [
        Fault({}, 0, xid_labels(63), new=xid(63)),
        # A contained error of memory ends an application, and is none of it.
        Fault({}, 0, xid_labels(94), new=xid(94)),
        # A number that nobody has heard of.
        Fault({}, 0, xid_labels(999), new=xid(999)),
    ],
    "GpuXidApplication": [
        Fault({}, 0, xid_labels(13), new=xid(13)),
        Fault(
            {rf'^gpuwright_xid_total\{{host="{HOST}".*xid="31"': constant(2)},
            0,
            {"host": HOST, "pci_bus_id": "00000000:01:00.0", "xid": "31"},
        ),
    ],
    # The best of ten minutes, then five.
    "GpuPcieSlow": [
        Fault({of_card("PCIE_LINK_WIDTH"): constant(8)}, 15, CARD, mends=13, edge=1),
        Fault({of_card("PCIE_LINK_GEN"): constant(1)}, 15, CARD, mends=13, edge=1),
    ],
    "NvlinkDown": [
        Fault(
            {rf'^gpuwright_nvlink_links\{{host="{HOST}".*gpu="1",state="active"': constant(17)},
            15,
            {"host": HOST, "gpu": "1"},
            mends=14,
        ),
    ],
    "FabricManagerDown": [
        Fault({of_node("gpuwright_fabric_manager_active"): constant(0)}, 10, {"host": HOST}, mends=9),
        Fault({of_card("FABRIC_MANAGER_STATUS"): constant(4)}, 10, {"host": HOST}, mends=9),
    ],
    "ManyNodesGone": [Fault({r'^up\{host="gpu1[1-3]"': constant(0)}, 10, {}, mends=9)],
    "NodeGone": [
        Fault({of_node("up"): constant(0), rf'^(?!up).*host="{HOST}"': constant(None)}, 15, {"host": HOST}, mends=14)
    ],
    "ExporterGone": [
        Fault(
            {rf'^up\{{host="{HOST}",job="gpu"': constant(0), of_card(r"\w+", r"\d"): constant(None)},
            15,
            {"host": HOST, "job": "gpu"},
            mends=14,
        ),
    ],
    "DriverLibraryMismatch": [
        Fault({of_node("gpuwright_driver_library_mismatch"): constant(1)}, 30, {"host": HOST}, mends=29)
    ],
    # The last turn at minute 30 (1800 s), three turns of 15 minutes: older than that from minute 76 on.
    "WatchStale": [
        Fault({of_node("gpuwright_watch_timestamp_seconds"): constant(1800)}, 46 + 30, {"host": HOST}, mends=44),
        Fault({of_node(r"gpuwright_\w+"): constant(None)}, 30, {"host": HOST}, mends=29),
    ],
    "ProofNotPass": [
        Fault(
            {
                rf'^gpuwright_proof_verdict\{{host="{HOST}".*verdict="pass"': constant(0),
                rf'^gpuwright_proof_verdict\{{host="{HOST}".*verdict="fail"': constant(1),
            },
            30,
            {"host": HOST, "verdict": "fail"},
            mends=29,
        ),
    ],
    "ProofOld": [Fault({of_node("gpuwright_proof_max_age_seconds"): constant(60)}, 60, {"host": HOST}, mends=59)],
    "CheckFailed": [
        Fault(
            {},
            30,
            {"host": HOST, "gpu": "1", "check": "repair.channel"},
            mends=29,
            new={f'gpuwright_check_failed{{{_NODE},check="repair.channel",severity="critical",gpu="1"}}': constant(1)},
        ),
    ],
    "Drift": [Fault({of_node("gpuwright_drift"): constant(2)}, 60, {"host": HOST}, mends=59)],
    # At a tenth when it begins, and 30 GiB less an hour: nothing within two hours.
    "DiskFilling": [
        Fault(
            {},
            31,
            {"host": HOST, "mountpoint": "/"},
            mends=None,
            before={_AVAIL: lambda minute: _ROOT_SIZE * 0.10 - minute * GIB * 0.05},
        ),
    ],
    "DiskFull": [Fault({_AVAIL: constant(_ROOT_SIZE * 0.02)}, 15, {"host": HOST, "mountpoint": "/"}, mends=14)],
    "GpuHeldIdle": [Fault({of_card("GPU_UTIL"): constant(0)}, 60, CARD, mends=58, edge=1)],
    "DriverInsecure": [
        Fault({of_node("gpuwright_driver_security_floor_ok"): constant(0)}, 60, {"host": HOST}, mends=59)
    ],
    "DriverEndOfLife": [
        Fault(
            {of_node("gpuwright_driver_end_of_life_timestamp_seconds"): constant(100 * 86400)},
            60,
            {"host": HOST},
            mends=59,
        )
    ],
}

#: What no alert is for, for as long as it likes.
HARMLESS: dict[str, Fault] = {
    "a single corrected error of the memory": Fault({of_card("ECC_SBE_VOL_TOTAL"): constant(2)}, 0, {}),
    "clocks that are low because nothing runs": Fault({of_card("CLOCK_THROTTLE_REASONS"): constant(0x1)}, 0, {}),
    "clocks that are low by the power cap, or as they were set": Fault(
        {of_card("CLOCK_THROTTLE_REASONS"): constant(0x106)}, 0, {}
    ),
    "heat that slows the card for four minutes of each quarter of an hour": Fault(
        {of_card("CLOCK_THROTTLE_REASONS"): lambda minute: 0x20 if minute % 15 < 4 else 0}, 0, {}
    ),
    "an idle card that saves power on its PCIe link": Fault(
        {of_card("PCIE_LINK_GEN"): constant(1), of_card("GPU_UTIL"): constant(0), of_card("FB_USED"): constant(3)},
        0,
        {},
    ),
    "a desktop on an idle card": Fault({of_card("GPU_UTIL"): constant(0), of_card("FB_USED"): constant(900)}, 0, {}),
    "a job that computes every five minutes": Fault(
        {of_card("GPU_UTIL"): lambda minute: 0 if minute % 5 else 30}, 0, {}
    ),
    "a note beside another Xid": Fault({}, 0, {}, new=xid(45)),
    "what Drift and ProofNotPass tell, once more": Fault(
        {},
        0,
        {},
        new={
            f'gpuwright_check_failed{{{_NODE},check="{check}",severity="critical",gpu=""}}': constant(1)
            for check in ("seals.nouveau_blacklist", "proof.age")
        },
    ),
    "an old Xid that is still counted": Fault({}, 0, {}),
    "a card whose links of NVLink never were up": Fault(
        {}, 0, {}, before={rf'^gpuwright_nvlink_links\{{host="{HOST}".*state="active"': constant(0)}
    ),
    "a machine that needs no fabric manager": Fault(
        {},
        0,
        {},
        before={
            of_node("gpuwright_fabric_manager_active"): constant(None),
            of_card("FABRIC_MANAGER_STATUS", r"\d"): constant(0),
        },
    ),
    "a large disk that is well used": Fault({}, 0, {}, before={_AVAIL: constant(_ROOT_SIZE * 0.06)}),
    "a full disk that is mounted read-only": Fault(
        {},
        0,
        {},
        before={_AVAIL: constant(0), rf'^node_filesystem_readonly\{{host="{HOST}".*mountpoint="/"': constant(1)},
    ),
    "a quick check that only warns": Fault(
        {},
        0,
        {},
        new={f'gpuwright_check_failed{{{_NODE},check="gpu.persistence",severity="warning",gpu="1"}}': constant(1)},
    ),
    "an exporter that names jobs and their pods": Fault({}, 0, {}),
}
