"""Made-up machines for promtool: what each of their series says, minute by minute."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

#: One value a minute; None is no answer.
Values = list[float | None]
Series = dict[str, Values]

GIB = 1024**3


def card_labels(host: str, gpu: int) -> str:
    return (
        f'host="{host}",job="gpu",instance="{host}:9400",gpu="{gpu}",UUID="GPU-{host}-{gpu}",pci_bus_id="00000000:0{gpu + 1}:00.0",'
        f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host}",DCGM_FI_DRIVER_VERSION="580.159.03"'
    )


def card(host: str, gpu: int, minutes: int) -> Series:
    """A card that works: busy, warm, at its power cap now and then (bit 0x4), a corrected error once."""
    told = {
        "GPU_UTIL": 95.0, "MEM_COPY_UTIL": 40.0, "FB_USED": 60000.0, "FB_FREE": 21000.0, "FB_TOTAL": 81559.0,
        "GPU_TEMP": 66.0, "MEMORY_TEMP": 78.0, "SLOWDOWN_TEMP": 87.0, "POWER_USAGE": 690.0, "ENFORCED_POWER_LIMIT": 700.0,
        "SM_CLOCK": 1900.0, "MEM_CLOCK": 2619.0, "PCIE_LINK_GEN": 5.0, "PCIE_LINK_WIDTH": 16.0, "PCIE_MAX_LINK_GEN": 5.0,
        "PCIE_MAX_LINK_WIDTH": 16.0, "CLOCK_THROTTLE_REASONS": 4.0, "XID_ERRORS": 0.0, "ECC_SBE_VOL_TOTAL": 1.0,
        "ECC_DBE_VOL_TOTAL": 0.0, "UNCORRECTABLE_REMAPPED_ROWS": 0.0, "CORRECTABLE_REMAPPED_ROWS": 0.0, "ROW_REMAP_FAILURE": 0.0,
        "ROW_REMAP_PENDING": 0.0, "FABRIC_MANAGER_STATUS": 3.0,
    }  # fmt: skip
    labels = card_labels(host, gpu)
    return {f"DCGM_FI_DEV_{name}{{{labels}}}": [value] * minutes for name, value in told.items()}


def node(host: str, minutes: int, cards: int = 2) -> Series:
    """A machine that is well."""
    labels = f'host="{host}",job="node",instance="{host}:9100"'
    series: Series = {
        f'up{{host="{host}",job="gpu",instance="{host}:9400"}}': [1] * minutes,
        f"up{{{labels}}}": [1] * minutes,
    }
    for gpu in range(cards):
        series |= card(host, gpu, minutes)
        series[f'gpuwright_nvlink_links{{{labels},gpu="{gpu}",state="active"}}'] = [18] * minutes
        series[f'gpuwright_nvlink_links{{{labels},gpu="{gpu}",state="inactive"}}'] = [0] * minutes
    watched: dict[str, float] = {
        "gpuwright_gpus": cards, "gpuwright_expected_gpus": cards, "gpuwright_drift": 0, "gpuwright_driver_library_mismatch": 0,
        "gpuwright_driver_security_floor_ok": 1, "gpuwright_fabric_manager_active": 1, "gpuwright_watch_interval_seconds": 900,
        "gpuwright_proof_timestamp_seconds": 0, "gpuwright_proof_max_age_seconds": 90 * 86400,
        "gpuwright_driver_end_of_life_timestamp_seconds": 500 * 86400, "node_boot_time_seconds": -86400 * 30,
    }  # fmt: skip
    series |= {f"{name}{{{labels}}}": [value] * minutes for name, value in watched.items()}
    for verdict in ("pass", "fail", "incomplete"):
        series[f'gpuwright_proof_verdict{{{labels},verdict="{verdict}"}}'] = [float(verdict == "pass")] * minutes
    series[f"gpuwright_watch_timestamp_seconds{{{labels}}}"] = [minute // 15 * 900.0 for minute in range(minutes)]
    # A page fault of an application, ages ago.
    series[f'gpuwright_xid_total{{{labels},xid="31",pci_bus_id="00000000:01:00.0"}}'] = [1] * minutes
    for mountpoint, size in (("/", 400 * GIB), ("/data", 14000 * GIB)):
        disk = f'{labels},mountpoint="{mountpoint}",fstype="ext4",device="/dev/nvme{mountpoint.count("d")}n1"'
        # Log files grow and are rotated.
        series[f"node_filesystem_avail_bytes{{{disk}}}"] = [
            size * 0.4 - minute % 360 * GIB // 60 for minute in range(minutes)
        ]
        series[f"node_filesystem_size_bytes{{{disk}}}"] = [size] * minutes
        series[f"node_filesystem_readonly{{{disk}}}"] = [0] * minutes
    return series


def reboot(series: Series, host: str, begin: int, minutes: int) -> None:
    """The machine does not answer for some minutes, and counts from 0 afterwards."""
    for name, values in series.items():
        if f'host="{host}"' not in name:
            continue
        end = begin + minutes
        if name.startswith("up{"):
            values[begin:end] = [0] * minutes
            continue
        values[begin:end] = [None] * minutes
        if name.startswith("gpuwright_xid_total"):
            values[begin:] = [None] * len(values[begin:])
        if name.startswith("node_boot_time_seconds"):
            values[end:] = [end * 60.0] * len(values[end:])


def notation(values: Values) -> str:
    """The values in promtool's notation; a series that ends is stale at once, as Prometheus marks it."""
    parts = []
    for value, run in itertools.groupby(values):
        count = len(list(run))
        if value is not None:
            parts.append(f"{value:.0f}+0x{count - 1}")
        elif parts:
            parts += ["stale", *([f"_x{count - 1}"] if count > 1 else [])]
        else:
            parts.append(f"_x{count}")
    return " ".join(parts)


def input_series(series: Mapping[str, Values]) -> list[dict[str, str]]:
    return [{"series": name, "values": notation(values)} for name, values in series.items()]
