# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The metrics that rules and dashboards may name, by who tells them. Tests hold every query against this list.

Each target of Prometheus has the labels ``job`` (``gpu``: the exporter of the cards, ``node``: node_exporter with gpuwright's textfile) and
``host`` (the name in the inventory). Everything about one machine is joined by ``host``.
"""

from __future__ import annotations

from typing import NamedTuple

#: What every series of the exporter of the cards says beside its own labels. Alerts keep CARD of them, which bounds their number.
CARD_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
CARD = ("host", "gpu", "pci_bus_id")
#: Who uses a card, where the exporter knows: Slurm's job (a folder of job files), or the container of Kubernetes.
JOB_LABELS = ("hpc_job", "namespace", "pod", "container")


class Metric(NamedTuple):
    """One name: gauge or counter, its unit ("" for a plain number; time: seconds since 1970), its own labels, what it says."""

    name: str
    kind: str
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


#: From the exporter of the cards; the names are fields of DCGM (dcgm_fields.h).
CARDS = (
    Metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "%", "share of time in which the card computed"),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "%", "share of time in which its memory was read or written"),
    Metric("DCGM_FI_DEV_FB_USED", "gauge", "MiB", "memory that is used"),
    Metric("DCGM_FI_DEV_FB_FREE", "gauge", "MiB", "memory that is free"),
    Metric("DCGM_FI_DEV_FB_TOTAL", "gauge", "MiB", "memory of the card"),
    Metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "C", "temperature of the processor"),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "C", "temperature of the memory"),
    Metric("DCGM_FI_DEV_SLOWDOWN_TEMP", "gauge", "C", "temperature at which the card slows itself down"),
    Metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "W", "power that is drawn"),
    Metric("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "W", "power limit in force"),
    Metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "MHz", "clock of the processor"),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "gauge", "MHz", "clock of the memory"),
    Metric("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "", "PCIe generation now"),
    Metric("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "", "PCIe lanes now"),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "", "PCIe generation that card and slot can do"),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "", "PCIe lanes that card and slot can do"),
    Metric("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "", "bit mask of why the clocks are low"),
    Metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "", "number of the last Xid"),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "", "corrected errors of the memory since the last reset"),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "", "uncorrectable errors of the memory since the last reset"),
    Metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "gauge", "", "rows remapped for uncorrectable errors"),
    Metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "gauge", "", "rows remapped for corrected errors"),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "bool", "remapping a row failed"),
    Metric("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "bool", "a remapping waits for a reset"),
    Metric(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", "", "traffic of all links of NVLink, in the unit of the driver"
    ),
    Metric("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "gauge", "", "state of the fabric: 3 done, 4 failed"),
    # Of gpuwright's own exporter, which tells it where no card tells a value any more.
    Metric("gpuwright_card_lost", "gauge", "bool", "the card answers no more"),
)

#: From gpuwright's textfile, which `watch` writes on each node.
WATCH = (
    Metric("gpuwright_watch_timestamp_seconds", "gauge", "time", "when the watch last looked"),
    Metric("gpuwright_watch_interval_seconds", "gauge", "s", "how often it looks; an hour where it does not say"),
    Metric("gpuwright_proof_verdict", "gauge", "bool", "1 for the verdict of the last proof", ("verdict",)),
    Metric("gpuwright_proof_timestamp_seconds", "gauge", "time", "when the last proof was made"),
    Metric("gpuwright_proof_max_age_seconds", "gauge", "s", "how old a proof may be"),
    Metric("gpuwright_seal_good", "gauge", "bool", "1 for a component that is as sealed", ("component",)),
    Metric("gpuwright_drift", "gauge", "", "components that are not as sealed"),
    Metric("gpuwright_check_failed", "gauge", "bool", "1 for a quick check that failed", ("check", "severity", "gpu")),
    Metric("gpuwright_gpus", "gauge", "", "cards that were found"),
    Metric("gpuwright_expected_gpus", "gauge", "", "cards that should be there"),
    Metric("gpuwright_info", "gauge", "", "always 1", ("version", "driver", "driver_branch", "kernel", "os")),
    Metric("gpuwright_driver_library_mismatch", "gauge", "bool", "kernel module and libraries are of two versions"),
    Metric("gpuwright_driver_security_floor_ok", "gauge", "bool", "the driver has no published vulnerability"),
    Metric("gpuwright_driver_end_of_life_timestamp_seconds", "gauge", "time", "when the driver's branch ends"),
    Metric("gpuwright_xid_total", "counter", "", "lines of an Xid in the kernel log since boot", ("xid", "pci_bus_id")),
    Metric("gpuwright_fabric_manager_active", "gauge", "bool", "the fabric manager runs; absent where none is needed"),
    Metric("gpuwright_disk_class_info", "gauge", "", "always 1", ("mountpoint", "class")),
    Metric("gpuwright_nvlink_links", "gauge", "", "links of NVLink, both states always told", ("gpu", "state")),
)

#: Of Prometheus itself, and of node_exporter as Debian has it (its default collectors).
OTHERS = (
    Metric("up", "gauge", "bool", "a target answered"),
    Metric("ALERTS", "gauge", "", "alerts that fire", ("alertname", "alertstate", "severity")),
    Metric(
        "gpuwright:xid:new",
        "gauge",
        "",
        "recorded by the rules: lines of an Xid that is new for a day",
        ("xid", "pci_bus_id"),
    ),
    Metric("node_boot_time_seconds", "gauge", "time", "when the machine was started"),
    Metric("node_cpu_seconds_total", "counter", "s", "time of the processors", ("cpu", "mode")),
    Metric("node_memory_MemAvailable_bytes", "gauge", "bytes", "memory that can be had"),
    Metric("node_memory_MemTotal_bytes", "gauge", "bytes", "memory of the machine"),
    Metric("node_load1", "gauge", "", "load"),
    Metric("node_network_receive_bytes_total", "counter", "bytes", "bytes that came in", ("device",)),
    Metric("node_network_transmit_bytes_total", "counter", "bytes", "bytes that went out", ("device",)),
    Metric("node_filesystem_avail_bytes", "gauge", "bytes", "free space", ("mountpoint", "fstype", "device")),
    Metric("node_filesystem_size_bytes", "gauge", "bytes", "size", ("mountpoint", "fstype", "device")),
    Metric("node_filesystem_files", "gauge", "", "files that fit", ("mountpoint", "fstype", "device")),
    Metric("node_filesystem_files_free", "gauge", "", "files that fit yet", ("mountpoint", "fstype", "device")),
    Metric("node_filesystem_readonly", "gauge", "bool", "mounted read-only", ("mountpoint", "fstype", "device")),
    Metric("node_disk_read_bytes_total", "counter", "bytes", "bytes that were read", ("device",)),
    Metric("node_disk_written_bytes_total", "counter", "bytes", "bytes that were written", ("device",)),
    Metric("node_disk_io_time_seconds_total", "counter", "s", "time in which a disk was busy", ("device",)),
)

NAMES = {metric.name: metric for metric in (*CARDS, *WATCH, *OTHERS)}
