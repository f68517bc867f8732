# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The alerts: one row each, with what it means, what to type, and where its threshold is from.

A row becomes a rule of Prometheus (``alerts.yml``) and a paragraph of ``docs/monitoring.md`` by ``make rules``. To add one: a row here, a
fault in ``tests/unit/monitoring/faults.py``, ``make rules``.

An expression names a machine by ``host`` and keeps no label that grows without end (a process, a pod, a message). What mends itself has
to be silent: ``wait`` is how long the condition holds before anybody is told, and is longer than what a reboot takes.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import (
    MEMORY_LIMIT_C,
    TEMPERATURE_LIMIT_C,
    TEMPERATURE_MARGIN_C,
)

from ..rules import load_rules
from . import metrics, xid
from .severities import Severity

#: Where a threshold is from that no vendor gives.
OURS = "own rule"

_CARD = ", ".join(metrics.CARD)
_TARGETS = 'up{job=~"gpu|node"}'
# Not a disk of this machine: in memory, an image, or a file system that every host mounts and would tell of.
_DISKS = 'fstype!~"tmpfs|ramfs|squashfs|overlay|iso9660|nsfs|fuse.*|nfs.*|cifs|lustre|ceph|beegfs|gpfs"'
_DAY = 86400
_END_OF_LIFE_DAYS = 180
_HELD_MIB = 2048
#: Checks of the watch whose fault has an alert of its own (Drift, ProofNotPass), which waits as long or longer: it could not silence them.
_TOLD_OTHERWISE = "seals[.].+|proof[.].+"
_NEW_XID = "gpuwright:xid:new"
_DOCTOR = "gpuwright doctor -i FLEET -l {{ $labels.host }}"
_RESET = "nvidia-smi --gpu-reset -i {{ $labels.gpu }}"


class Alert(NamedTuple):
    """One alert: its name, whom it reaches, how long it waits (`for`, "" for at once), the query, and what a person reads."""

    name: str
    severity: Severity
    wait: str
    expression: str
    summary: str
    meaning: str
    command: str
    source: str


def _card(query: str) -> str:
    """The highest value of each card: what else the exporter says of it (its job, its driver) is left out."""
    return f"max by ({_CARD}) ({query})"


def _host(query: str) -> str:
    return f"max by (host) ({query})"


def _bits(first: int, count: int) -> str:
    """Whether one of some neighbouring bits of the mask of throttle reasons is set; PromQL has no operator for bits."""
    return f"floor(DCGM_FI_DEV_CLOCK_THROTTLE_REASONS / {first}) % {2**count}"


def recorded() -> dict[str, str]:
    """Return what Prometheus computes for several alerts, as name and query.

    An Xid is new for a day where its count grew, or was not there in all that the watch told meanwhile, or the machine was started since,
    where it counts from 0 (once the watch has looked again: its file of before outlives a reboot). Not "more than a day ago": a server that
    was just installed would tell everything since boot.
    """
    by = "max by (host, pci_bus_id, xid)"
    series, watch = "gpuwright_xid_total", "gpuwright_watch_timestamp_seconds"
    new = f"""\
{by} ({series} > min_over_time({series}[1d]))
or
{by} ({series})
and
{by} (count_over_time({series}[1d])) < on (host) group_left () {_host(f"count_over_time({watch}[1d])")}
or
{by} ({series})
and on (host)
{_host(watch)} > {_host("node_boot_time_seconds")}
and on (host)
time() - {_host("node_boot_time_seconds")} < {_DAY}"""
    return {_NEW_XID: new}


def alerts() -> tuple[Alert, ...]:
    """Return every alert, in the order of the documentation."""
    return (*_cards(), *_xids(), *_links(), *_nodes(), *_proof(), *_disks(), *_use_and_age())


def _cards() -> tuple[Alert, ...]:
    return (
        Alert(
            name="GpuLost",
            severity="page",
            wait="5m",
            expression=f"""\
count by (host) ({_card("DCGM_FI_DEV_GPU_TEMP")}) < on (host) {_host("gpuwright_expected_gpus")}
or
sum by (host) (1 - {_card("gpuwright_card_lost")}) < on (host) {_host("gpuwright_expected_gpus")}
or
{_host("gpuwright_gpus")} < on (host) {_host("gpuwright_expected_gpus")}""",
            summary="{{ $labels.host }} has {{ $value }} cards, fewer than it should",
            meaning="A card fell off the bus, or the driver cannot initialise it. Work on it is gone; it does "
            "not come back without a reset or "
            "a reboot.",
            command=f"{_DOCTOR}; on the machine: journalctl -k -b --grep 'NVRM'. Reboot, with the power off "
            f"where the card does not come back",
            source=f"{OURS}: one card fewer than the proof found",
        ),
        Alert(
            name="GpuEccUncorrectable",
            severity="page",
            wait="",
            expression=f"{_card('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')} > 0",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} has {{ $value }} uncorrectable memory errors",
            meaning="The memory of the card had an error that it could not correct. The job that met it has died or computed with a wrong "
            "value. Counted since the last reset.",
            command=f"End what runs on it, then on the machine: {_RESET}. Again on the same card: have it replaced",
            source="0 allowed: imbue-ai/cluster-health",
        ),
        Alert(
            name="GpuRowRemapPending",
            severity="ticket",
            wait="10m",
            expression=f"{_card('DCGM_FI_DEV_ROW_REMAP_PENDING')} > 0",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} waits for a reset to remap a row of its memory",
            meaning="A bad row of the memory is replaced at the next reset. Until then the card computes.",
            command=f"When it is idle, on the machine: {_RESET}, or reboot",
            source="0 allowed: Azure/azurehpc-health-checks, leptonai/gpud",
        ),
        Alert(
            name="GpuRowRemapFailed",
            severity="page",
            wait="",
            expression=f"{_card('DCGM_FI_DEV_ROW_REMAP_FAILURE')} > 0",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} has no spare rows of memory left",
            meaning="A bad row could not be replaced. The next error there is uncorrectable; no reset helps.",
            command="Take the card out of use and return it to its vendor; on the machine, its serial number: "
            "nvidia-smi -q -i {{ $labels.gpu }}",
            source="0 allowed: Azure/azurehpc-health-checks, leptonai/gpud",
        ),
        Alert(
            name="GpuHot",
            severity="page",
            wait="10m",
            expression=f"""\
{_card("DCGM_FI_DEV_GPU_TEMP")}
>= (
  {_card("DCGM_FI_DEV_SLOWDOWN_TEMP > 0")} - {TEMPERATURE_MARGIN_C}
  or
  {_card("DCGM_FI_DEV_GPU_TEMP")} * 0 + {TEMPERATURE_LIMIT_C}
)
or
{_card("DCGM_FI_DEV_MEMORY_TEMP")} > {MEMORY_LIMIT_C}""",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} is at {{ $value }} degrees",
            meaning="Ten minutes near the temperature at which the card slows down, then switches itself off. Its neighbours are next.",
            command="Look at fans, air flow and the temperature of the room; on the machine: nvidia-smi -q -d "
            "TEMPERATURE -i {{ $labels.gpu }}",
            source=f"{TEMPERATURE_MARGIN_C} degrees below the card's own limit, {TEMPERATURE_LIMIT_C} where it names none, memory "
            f"{MEMORY_LIMIT_C} (scitix/sichek): as `doctor` judges",
        ),
        Alert(
            name="GpuThermalThrottle",
            severity="ticket",
            wait="10m",
            expression=f"{_card(f'avg_over_time(({_bits(32, 2)} > bool 0)[15m:1m])')} > 0.55",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} is slowed down by heat",
            meaning="For more than half of the last 15 minutes its clocks were lowered because it is too warm. "
            "Jobs on it, and those that wait "
            "for it, are slow.",
            command="Look at fans, filters and air flow; on the machine: nvidia-smi -q -d PERFORMANCE -i {{ $labels.gpu }}",
            source=f"bits 0x20 and 0x40: NVIDIA/NVSentinel, leptonai/gpud; how long: {OURS}",
        ),
        Alert(
            name="GpuPowerBrake",
            severity="page",
            wait="5m",
            expression=f"{_card(_bits(128, 1))} > 0",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} is braked by the power supply",
            meaning="The chassis told the card to draw less: a power supply failed or is overloaded. The next "
            "one to fail takes the machine down.",
            command="Look at the power supplies (ipmitool sdr type 'Power Supply') and the power cables of the card",
            source=f"bit 0x80: Azure/azurehpc-health-checks, leptonai/gpud; how long: {OURS}",
        ),
    )


def _xids() -> tuple[Alert, ...]:
    rows = load_rules()["xid"]["rows"]
    read = "journalctl -k -b --grep 'NVRM: Xid'"
    return (
        Alert(
            name="GpuXidCritical",
            severity="page",
            wait="",
            expression=f"{_NEW_XID}{{{xid.selector(rows, 'critical')}}} > 0",
            summary="Xid {{ $labels.xid }} of card {{ $labels.pci_bus_id }} in {{ $labels.host }}",
            meaning=f"{xid.template(rows, 'critical')} The card is not fit for work until this is done.",
            command=f"On the machine: {read}, then what the description says; afterwards gpuwright validate -i "
            f"FLEET -l {{{{ $labels.host }}}}",
            source="severity critical or fatal in compat/xid.yaml, from NVIDIA's Xid catalogue",
        ),
        Alert(
            name="GpuXidWarning",
            severity="ticket",
            wait="",
            expression=f"{_NEW_XID}{{{xid.selector(rows, 'warning')}}} > 0",
            summary="Xid {{ $labels.xid }} of card {{ $labels.pci_bus_id }} in {{ $labels.host }}",
            meaning=f"{xid.template(rows, 'warning')} The card goes on; look at it before it comes again.",
            command=f"On the machine: {read}, then what the description says",
            source="severity warning in compat/xid.yaml, from NVIDIA's Xid catalogue, and every number that is not in it",
        ),
        Alert(
            name="GpuXidApplication",
            severity="info",
            wait="",
            expression=f"{_NEW_XID}{{{xid.selector(rows, 'application')}}} > 0",
            summary="Xid {{ $labels.xid }} of card {{ $labels.pci_bus_id }} in {{ $labels.host }}: mostly a fault of an application",
            meaning=f"{xid.template(rows, 'application')} Where it is the same card under several applications, it is the card.",
            command=f"On the machine: {read}; the line names the process",
            source="severity warning with `program` in compat/xid.yaml, from NVIDIA's Xid catalogue",
        ),
    )


def _links() -> tuple[Alert, ...]:
    lanes, lanes_most = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
    generation, generation_most = "DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"
    active = 'gpuwright_nvlink_links{state="active"}'
    return (
        Alert(
            name="GpuPcieSlow",
            severity="ticket",
            wait="5m",
            expression=f"""\
(
  {_card(f"max_over_time({lanes}[10m])")} < {_card(lanes_most)}
  or
  {_card(f"max_over_time({generation}[10m])")} < {_card(generation_most)}
)
and
{_card("avg_over_time(DCGM_FI_DEV_GPU_UTIL[10m])")} > 50""",
            summary="the PCIe link of card {{ $labels.gpu }} of {{ $labels.host }} is at {{ $value }} lanes or "
            "generation, less than it can do",
            meaning="Fewer lanes or a lower generation than card and slot can do, while the card works. An idle "
            "card lowers its link to save "
            "power; that is no fault and not told.",
            command="Reseat the card, check the riser and the slot's lanes in the firmware settings; on the machine: nvidia-smi -q -i "
            "{{ $labels.gpu }} | grep -A 12 'GPU Link Info'",
            source="now = possible: oracle-quickstart/oci-hpc, facebookresearch/gcm, NVIDIA/DCGM",
        ),
        Alert(
            name="NvlinkDown",
            severity="page",
            wait="15m",
            expression=f"max by (host, gpu) ({active}) < max by (host, gpu) (max_over_time({active}[7d:1h]))",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} has {{ $value }} active links of NVLink, fewer than before",
            meaning="A link of NVLink that was up in the last week is down. Collective operations over it hang or take the slow way.",
            command="On the machine: nvidia-smi nvlink -s -i {{ $labels.gpu }} and systemctl status "
            "nvidia-fabricmanager; then reset (with NVSwitch all "
            "cards) or reboot",
            source=f"no link inactive: imbue-ai/cluster-health, Azure/azurehpc-health-checks; against the last week: {OURS}",
        ),
        Alert(
            name="FabricManagerDown",
            severity="page",
            wait="10m",
            expression=f"{_host('gpuwright_fabric_manager_active')} == 0\nor\n{_host('DCGM_FI_DEV_FABRIC_MANAGER_STATUS')} == 4",
            summary="the fabric manager of {{ $labels.host }} is down",
            meaning="Without it CUDA does not start on a machine with NVSwitch (error 802).",
            command="On the machine: systemctl status nvidia-fabricmanager; its version has to be the driver's: "
            "gpuwright doctor -i FLEET -l "
            "{{ $labels.host }}",
            source="active: imbue-ai/cluster-health, scitix/sichek; 4 is failure: dcgm_structs.h",
        ),
    )


def _nodes() -> tuple[Alert, ...]:
    return (
        Alert(
            name="ManyNodesGone",
            severity="page",
            wait="10m",
            expression=f"""\
count({_host(_TARGETS)} == 0) / count({_host(_TARGETS)}) > 0.2
and
count({_host(_TARGETS)} == 0) >= 3""",
            summary="{{ $value | humanizePercentage }} of the machines do not answer",
            meaning="So many at once have one cause: a switch, a power feed, a firewall, or this server's own network. The alerts of the "
            "single machines are silent meanwhile.",
            command="gpuwright status -i FLEET; then network and power, before any single machine",
            source=f"{OURS}: a fifth of the machines, and three at least",
        ),
        Alert(
            name="NodeGone",
            severity="page",
            wait="15m",
            expression=f"{_host(_TARGETS)} == 0",
            summary="{{ $labels.host }} does not answer",
            meaning="No exporter of the machine answers for longer than a reboot takes (a server with eight cards needs ten minutes).",
            command="ping {{ $labels.host }}, then its console or management controller",
            source=f"{OURS}: longer than a reboot",
        ),
        Alert(
            name="ExporterGone",
            severity="ticket",
            wait="15m",
            expression=f"max by (host, job) ({_TARGETS}) == 0\nand on (host)\n{_host(_TARGETS)} == 1",
            summary="the exporter {{ $labels.job }} of {{ $labels.host }} does not answer, the machine does",
            meaning="Nothing is known of its cards (job gpu) or of the machine and its proof (job node) while "
            "it is so. A driver that hangs "
            "can be the reason.",
            command=f"{_DOCTOR}; on the machine: systemctl --failed, and ps -eo pid,stat,args | grep ' D'",
            source=f"{OURS}: longer than a reboot",
        ),
        Alert(
            name="DriverLibraryMismatch",
            severity="page",
            wait="30m",
            expression=f"{_host('gpuwright_driver_library_mismatch')} > 0",
            summary="kernel module and libraries of the driver of {{ $labels.host }} are of two versions",
            meaning="The packages were changed under a module that is loaded. What runs goes on, nothing new "
            "can use a card ('Driver/library "
            "version mismatch').",
            command=f"Drain and reboot it; {_DOCTOR} says what changed the packages",
            source=f"equal, which the driver itself demands; half an hour is the time of an upgrade with its reboot: {OURS}",
        ),
    )


def _proof() -> tuple[Alert, ...]:
    told, every = "gpuwright_watch_timestamp_seconds", "gpuwright_watch_interval_seconds"
    return (
        Alert(
            name="WatchStale",
            severity="ticket",
            wait="30m",
            expression=f"""\
time() - {_host(told)}
> 3 * ({_host(every)} or {_host(told)} * 0 + 3600)
or
{_host('up{job="node"}')} == 1
and on (host) {_host('up{job="gpu"}')}
unless on (host) {_host(told)}""",
            summary="nothing watches {{ $labels.host }}",
            meaning="The watch missed three of its turns, or never ran. What it tells (drift, proof, versions, Xid) is old or not there.",
            command="On the machine: systemctl list-timers 'gpuwright*' and journalctl -u 'gpuwright*' -n 50",
            source=f"{OURS}: three turns",
        ),
        Alert(
            name="ProofNotPass",
            severity="ticket",
            wait="30m",
            expression='max by (host, verdict) (gpuwright_proof_verdict{verdict!="pass"}) == 1',
            summary="the last proof of {{ $labels.host }} is {{ $labels.verdict }}",
            meaning="The last validation found a fault, or could not measure what it has to. The machine is not a proven one.",
            command=f"{_DOCTOR}; after the remedy: gpuwright validate -i FLEET -l {{{{ $labels.host }}}}",
            source="the verdict itself",
        ),
        Alert(
            name="ProofOld",
            severity="ticket",
            wait="1h",
            expression=f"time() - {_host('gpuwright_proof_timestamp_seconds')} > {_host('gpuwright_proof_max_age_seconds')}",
            summary="the last proof of {{ $labels.host }} is {{ $value | humanizeDuration }} old",
            meaning="Nobody measured the machine for longer than its group wishes.",
            command="When it is idle: gpuwright validate -i FLEET -l {{ $labels.host }}",
            source="the age that is wished",
        ),
        Alert(
            name="CheckFailed",
            severity="ticket",
            wait="30m",
            expression='max by (host, gpu, check) (gpuwright_check_failed{severity=~"critical|fatal",'
            f'check!~"{_TOLD_OTHERWISE}"}}) == 1',
            summary="{{ $labels.check }} fails on {{ $labels.host }}",
            meaning="A quick check of the watch fails that says that the machine, or a card, is not fit for work. "
            "What drifted and a proof that did not pass have alerts of their own.",
            command=f"{_DOCTOR} names the remedy",
            source="the severity of the check: critical or fatal",
        ),
        Alert(
            name="Drift",
            severity="ticket",
            wait="1h",
            expression=f"{_host('gpuwright_drift')} > 0",
            summary="{{ $value }} components of {{ $labels.host }} are not as they were sealed",
            meaning="Somebody or something (an upgrade of packages, a person) changed what gpuwright manages. "
            "The next reboot may not come up "
            "the same.",
            command="gpuwright plan -i FLEET -l {{ $labels.host }} shows it, gpuwright up puts it back",
            source=f"0; an hour is the time of a run: {OURS}",
        ),
    )


def _disks() -> tuple[Alert, ...]:
    free = f"""\
min by (host, mountpoint) (
  node_filesystem_avail_bytes{{{_DISKS}}} / node_filesystem_size_bytes{{{_DISKS}}}
  and node_filesystem_readonly{{{_DISKS}}} == 0
)"""
    trend = f"min by (host, mountpoint) (predict_linear(node_filesystem_avail_bytes{{{_DISKS}}}[6h], {_DAY}))"
    return (
        Alert(
            name="DiskFilling",
            severity="ticket",
            wait="30m",
            expression=f"{free} < 0.10\nand\n{trend} < 0",
            summary="{{ $labels.mountpoint }} of {{ $labels.host }} has {{ $value | humanizePercentage }} left and is full within a day",
            meaning="Less than a tenth is free, and at the pace of the last six hours nothing is tomorrow. A "
            "large disk that is just well used "
            "is not told.",
            command="On the machine: du -xh --max-depth 2 {{ $labels.mountpoint }} | sort -h | tail; caches and checkpoints first",
            source=f"a day by the last six hours: node-mixin of node_exporter; a tenth: {OURS}",
        ),
        Alert(
            name="DiskFull",
            severity="page",
            wait="15m",
            expression=f"{free} < 0.03",
            summary="{{ $labels.mountpoint }} of {{ $labels.host }} has {{ $value | humanizePercentage }} left",
            meaning="Jobs that write there fail now or soon, packages cannot be installed, logs stop.",
            command="On the machine: du -xh --max-depth 2 {{ $labels.mountpoint }} | sort -h | tail; caches and checkpoints first",
            source="3 % left: node-mixin of node_exporter",
        ),
    )


def _use_and_age() -> tuple[Alert, ...]:
    idle = _card("max_over_time(DCGM_FI_DEV_GPU_UTIL[5m])")
    end = _host("gpuwright_driver_end_of_life_timestamp_seconds")
    return (
        Alert(
            name="GpuHeldIdle",
            severity="info",
            wait="55m",
            expression=f"{_card('DCGM_FI_DEV_FB_USED')} > {_HELD_MIB}\nand\n{idle} < 1",
            summary="card {{ $labels.gpu }} of {{ $labels.host }} holds {{ $value }} MiB and has done nothing for an hour",
            meaning="A job holds memory of the card and computes nothing: it hangs, or somebody forgot a notebook.",
            command="On the machine: nvidia-smi -i {{ $labels.gpu }} --query-compute-apps=pid,name,used_memory "
            "--format=csv; then ask its owner",
            source=f"{OURS}: an hour, and more than {_HELD_MIB} MiB, which no desktop needs",
        ),
        Alert(
            name="DriverInsecure",
            severity="ticket",
            wait="1h",
            expression=f"{_host('gpuwright_driver_security_floor_ok')} == 0",
            summary="the driver of {{ $labels.host }} has a published vulnerability",
            meaning="Its build is below the lowest one of its branch without a published vulnerability.",
            command="gpuwright upgrade -i FLEET -l {{ $labels.host }} --security; it shows what it will do and asks first",
            source="compat/security.yaml, from NVIDIA's bulletins",
        ),
        Alert(
            name="DriverEndOfLife",
            severity="info",
            wait="1h",
            expression=f"{end} - time() < {_END_OF_LIFE_DAYS * _DAY}",
            summary="the driver branch of {{ $labels.host }} ends in {{ $value | humanizeDuration }}",
            meaning="After its end the branch gets no fixes, of security neither. A minus is how long it has ended.",
            command="gpuwright plan -i FLEET -l {{ $labels.host }} --want driver=BRANCH shows what the next branch changes",
            source=f"compat/driver_branches.yaml, from NVIDIA's page; {_END_OF_LIFE_DAYS} days: {OURS}",
        ),
    )
