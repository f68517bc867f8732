"""What the kernel log tells beside the driver's numbers: which lines are faults, which are none, and what a person does.

The lines are our own, with our own numbers, in the words of the sources that are named: the kernel's (github torvalds/linux) and those of
NVIDIA's open kernel modules (github NVIDIA/open-gpu-kernel-modules).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    kernel_faults,
    kernel_faults_judge,
    kernel_log,
    kernel_log_judge,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.quick import quickly

from .conftest import log_answer
from .test_kernel_log import LOADED, PREFIXES

BEGINS = "nvidia-nvlink: Nvlink Core is being initialized, major device number 235"
CARD = "00000000:3B:00.0"
REFUSED = "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2c31)"


def judged(*lines: str, **changes: Any) -> list[Check]:
    """Every check of a log of these lines, which come through the gate as a node's answer."""
    answer = log_answer(**{**kernel_log.events(lines), **kernel_faults.faults(lines), **changes})
    return judge_kernel_log.judge(json.loads(gate.admit("kernel_log", json.dumps(answer))), load_rules())


def bad(*lines: str, **changes: Any) -> list[Check]:
    return [check for check in judged(*lines, **changes) if check["status"] not in ("pass", "skip")]


#: Lines of healthy machines, each with where its words are from.
HARMLESS = [
    # The kernel and its module loader: kernel/module/main.c, kernel/panic.c.
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "nvidia: module license 'NVIDIA' taints kernel.",
    "Disabling lock debugging due to kernel taint",
    # NVIDIA's modules: kernel-open/nvidia/nv.c, nvidia-uvm/uvm.c, nvidia-modeset, nvidia-drm, nvidia-nvswitch (linux_nvswitch.c).
    BEGINS,
    LOADED,
    "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
    "nvidia 0000:3b:00.0: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none",
    # A check that names the word, and did not find it: src/nvidia.
    "NVRM: nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == NV_ERR_RESET_REQUIRED) @ rs_client.c:844",
    # A warning of the kernel has a trace, and is no fault of it: kernel/panic.c.
    "WARNING: CPU: 5 PID: 812 at /var/lib/dkms/nvidia/535.183.01/build/nvidia/nv.c:3900 nvidia_close+0x1/0x2 [nvidia]",
    "RIP: 0010:nvidia_close+0x1f/0x40 [nvidia]",
    # Marks for branches: arch/x86/kernel/cet.c; a module of somebody else is not ours to tell.
    "CET detected: Indirect Branch Tracking enabled",
    "Missing ENDBR: init_module+0x0/0x10 [vboxdrv]",
    "UBSAN: array-index-out-of-bounds in /var/lib/dkms/nvidia/535.183.01/build/nvidia-uvm/uvm_pmm_gpu.c:2300:12",
    "snd_hda_intel 0000:3b:00.1: Unable to change power state from D3cold to D0, device inaccessible",
    # Adapters: drivers/net/ethernet/mellanox/mlx5/core/events.c, cmd.c.
    "mlx5_core 0000:5f:00.0: mlx5_pcie_event:299:(pid 9): PCIe slot power capability was not advertised.",
    "mlx5_core 0000:5f:00.0: Port module event: module 0, Cable unplugged",
    "mlx5_core 0000:5f:00.0: mlx5_cmd_out_err:838:(pid 4): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), err(-22)",
    "dmar_fault: 7 callbacks suppressed",
    "nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  580.95.05",
    "[drm] [nvidia-drm] [GPU ID 0x00003b00] Loading driver",
    "[drm] Initialized nvidia-drm 0.0.0 for 0000:3b:00.0 on minor 1",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    "nvidia-nvswitch2: open (major=510)",
    "NVRM: GPU at PCI:0000:3b:00: GPU-11111111-2222-3333-4444-555555555555",
    "NVRM: GPU Board Serial Number: 1234567890123",
    "NVRM: No NVIDIA GPU found.",
    "NVRM: Persistence mode is deprecated and will be removed in a future release. Please use nvidia-persistenced instead.",
    "nvidia-gpu 0000:3b:00.3: i2c timeout error e0000000",
    "pcieport 0000:3a:00.0: DPC: enabled with IRQ 40",
    "PKCS#7 signature not signed with a trusted key",
    # PCIe: drivers/pci/pcie/aer.c, drivers/pci/pci.c, drivers/pci/setup-res.c, drivers/acpi/pci_root.c.
    "pcieport 0000:00:03.1: AER: enabled with IRQ 34",
    "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug SHPCHotplug PME AER PCIeCapability LTR]",
    "pci 0000:3b:00.0: 126.016 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link at 0000:3a:00.0",
    "pcieport 0000:3a:00.0:    device [8086:347a] error status/mask=00000001/00002000",
    # Machine checks and memory: arch/x86/kernel/cpu/mce/core.c and therm_throt.c, drivers/edac/edac_mc.c, drivers/acpi/apei.
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: [Hardware Error]: Fake CEC message of a name that nothing has",
    "MCE: In-kernel MCE decoding enabled.",
    "EDAC MC: Ver: 3.0.0",
    "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0 (INTERRUPT)",
    "ERST: Error Record Serialization Table (ERST) support is initialized.",
    "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
    "BERT: Total records found: 0",
    # Disks and file systems: fs/ext4/super.c, fs/xfs, drivers/nvme/host/pci.c, drivers/md, drivers/block/floppy.c, block/blk-core.c.
    "EXT4-fs (nvme0n1p2): mounted filesystem 11111111-2222-3333-4444-555555555555 r/w with ordered data mode. Quota mode: none.",
    "EXT4-fs (sda1): re-mounted 11111111-2222-3333-4444-555555555555 ro.",
    "XFS (nvme1n1): Ending clean mount",
    "nvme nvme0: 32/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    # The rest: kernel/events/core.c, kernel/workqueue.c, kernel/rcu/tree.c, kernel/watchdog.c, fs/nfs, mm/oom_kill.c, arch/x86/mm/fault.c.
    "perf: interrupt took too long (2509 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "workqueue: drm_fb_helper_damage_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "rcu: Hierarchical RCU implementation.",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "watchdog: Delayed init of the lockup detector failed: -19",
    "nfs: server filer-1 OK",
    "NFS: Registering the id_resolver key type",
    "oom_reaper: reaped process 3456 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "python3[3456]: segfault at 0 ip 00007f1122334455 sp 00007ffd00112233 error 4 in libc.so.6[7f1122300000+1c0000]",
    "Lockdown: swapper/0: hibernation is restricted; see man kernel_lockdown.7",
    # Harmless numbers of an NVSwitch (compat/sxid.yaml).
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 22013, Non-fatal, Link 04 Minion Link DLREQ interrupt",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11012, Non-fatal, Link 04 ingress header single bit",
]

#: A line (or lines) that tells of a fault; its check, severity, action and what the reason names.
FAULTS: list[tuple[str, str, str, str, str]] = [
    (
        "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Receiver ID)",
        *("kernel.aer", "warning", "check_hardware", "bridge 00000000:3A:00.0"),
    ),
    (
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Requester ID)",
        *("kernel.aer", "warning", "check_hardware", f"card {CARD}"),
    ),
    (
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)",
        *("kernel.aer", "critical", "check_hardware", f"card {CARD}"),
    ),
    (
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)",
        *("kernel.aer", "critical", "check_hardware", f"card {CARD}"),
    ),
    (
        "pcieport 0000:00:03.1: AER: Multiple Uncorrected (Fatal) error received: 0000:5e:00.0",
        *("kernel.aer", "critical", "check_hardware", "00000000:5E:00.0"),
    ),
    (
        "pcieport 0000:00:03.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:5e:00.0",
        *("kernel.aer", "warning", "check_hardware", "00000000:5E:00.0"),
    ),
    (
        "pcieport 0000:00:03.1: AER: device recovery failed",
        *("kernel.aer", "critical", "reboot", "00000000:00:03.1"),
    ),
    (
        "mce: [Hardware Error]: CPU 14: Machine Check Exception: 5 Bank 7: be00000000800400",
        *("kernel.mce", "critical", "check_hardware", "machine check"),
    ),
    (
        "mce: Uncorrected hardware memory error in user-access at 3c40a17400",
        *("kernel.mce", "critical", "check_hardware", "machine check"),
    ),
    (
        "[Hardware Error]: Uncorrected, software restartable error.",
        *("kernel.mce", "critical", "check_hardware", "machine check"),
    ),
    ("[Hardware Error]: System Fatal error.", "kernel.mce", "critical", "check_hardware", "machine check"),
    (
        "mce: [Hardware Error]: Deferred error, no action required.",
        *("kernel.mce", "warning", "check_hardware", "uncorrected"),
    ),
    (
        "Memory failure: 0x3c40a17: recovery action for dirty LRU page: Recovered",
        *("kernel.mce", "critical", "check_hardware", "page"),
    ),
    (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x3c40a17)",
        *("kernel.mce", "critical", "check_hardware", "MC0"),
    ),
    (
        "EDAC MC12: UE page 0x116c60, offset 0x0, grain 1, row 2",
        *("kernel.mce", "critical", "check_hardware", "MC12"),
    ),
    ("{3}[Hardware Error]: event severity: recoverable", "kernel.mce", "warning", "check_hardware", "firmware"),
    ("[Hardware Error]: event severity: fatal", "kernel.mce", "critical", "check_hardware", "firmware"),
    (
        "Out of memory: Killed process 4321 (python3) total-vm:98765432kB, anon-rss:87654321kB, file-rss:0kB, UID:1000",
        *("kernel.oom", "warning", "restart_app", "python3"),
    ),
    (
        "Out of memory: Kill process 4321 (pt_main_thread) score 912 or sacrifice child",
        *("kernel.oom", "warning", "restart_app", "pt_main_thread"),
    ),
    (
        "NVRM: API mismatch: the client has the version 580.95.05, but\n               NVRM: this kernel module has the version 570.86.10.",
        *("kernel.module", "critical", "reboot", "version"),
    ),
    (
        "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1",
        *("kernel.module", "critical", "check_hardware", CARD),
    ),
    ("nvidia: probe of 0000:3b:00.0 failed with error -1", "kernel.module", "critical", "check_hardware", CARD),
    (
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        *("kernel.module", "critical", "check_hardware", "take a card over"),
    ),
    (
        "NVRM: The NVIDIA probe routine was not called for 2 device(s).",
        *("kernel.module", "warning", "configure", "another driver"),
    ),
    ("nouveau 0000:3b:00.0: NVIDIA AD102 (192000a1)", "kernel.module", "critical", "configure", CARD),
    *(
        (
            f"NVRM: GPU 0000:3b:00.0 is already bound to {driver}.",
            "kernel.module",
            severity,
            "configure",
            f"{names} a card, of {CARD}",
        )
        for driver, severity, names in (
            ("nouveau", "critical", "nouveau holds"),
            ("NovaCore", "critical", "(nova_core) holds"),
            ("nova-core", "critical", "(nova_core) holds"),
            ("somebody", "warning", "another driver holds"),
        )
    ),
    (
        f"{REFUSED}\nNVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        *("kernel.module", "critical", "install", CARD),
    ),
    (
        f"{REFUSED}\nNVRM: installed in this system is not supported by open\nNVRM: nvidia.ko",
        *("kernel.module", "critical", "install", f"no system processor (GSP) on the card, of {CARD}"),
    ),
    (
        f"{REFUSED}\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 535.183.01 driver release.",
        *("kernel.module", "critical", "install", f"does not support the card, of {CARD}"),
    ),
    *(
        (line, "kernel.module", "critical", "check_hardware", "the card's own firmware (GFW")
        for line in (
            "NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x65 VBIOS version 94.02.59.00.05",
            "NVRM kgspWaitForGfwBootOk_TU102: failed to wait for GFW_BOOT: (progress 0x3)",
            "NVRM: GPU0 gpuWaitForGfwBootComplete_TU102: GSP failed to halt with GFW_BOOT: (progress 0xff)",
        )
    ),
    (
        "NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",
        *("kernel.module", "critical", "install", "cards of data centres alone"),
    ),
    (
        "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        *("kernel.module", "critical", "reboot", "stuck"),
    ),
    (
        "WARNING: CPU: 4 PID: 1203 at drivers/gpu/drm/drm_file.c:312 drm_open_helper+0x130/0x140",
        *("kernel.oops", "warning", "install", "display device"),
    ),
    (
        "WARNING: drivers/gpu/drm/drm_file.c:312 at drm_open_helper+0x130/0x140, CPU#4: Xorg/1203",
        *("kernel.oops", "warning", "install", "display device"),
    ),
    (
        "NVRM: The NVIDIA Quadro K2000 GPU installed in this system is\nNVRM:  supported through the NVIDIA 470.xx Legacy drivers.",
        *("kernel.module", "critical", "install", "too new"),
    ),
    (
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)",
        *("kernel.module", "critical", "configure", "addresses"),
    ),
    (
        "nvidia_uvm: Unknown symbol nvUvmInterfaceRegisterGpu (err -2)",
        *("kernel.module", "critical", "install", "needs another one of the driver"),
    ),
    *(
        (
            line,
            "kernel.module",
            "critical",
            "install",
            f"one of the kernel's own modules that is not there or not loaded, of {module}",
        )
        for module, line in (
            ("nvidia_modeset", "nvidia_modeset: Unknown symbol acpi_video_register_backlight (err -2)"),
            ("nvidia_modeset", "nvidia_modeset: Unknown symbol __acpi_video_get_backlight_type (err -2)"),
            ("nvidia_drm", "nvidia_drm: Unknown symbol drm_open (err 0)"),
        )
    ),
    (
        "nvidia_drm: Unknown symbol drm_open (err -22)",
        "kernel.module",
        "critical",
        "install",
        "does not fit this kernel",
    ),
    (
        "NVRM: GPU 0000:3b:00.0 is already bound to vfio-pci.\nNVRM: No NVIDIA devices probed.",
        *("kernel.module", "warning", "configure", "every card is kept for virtual machines (vfio-pci)"),
    ),
    *(
        (line, "kernel.module", "warning", "configure", "refused to go to sleep")
        for line in (
            "nvidia 0000:3b:00.0: PM: pci_pm_suspend(): nv_pmops_suspend [nvidia] returns -5",
            "nvidia 0000:3b:00.0: PM: failed to suspend async: error -5",
            "PM: pci_pm_suspend(): nv_pmops_suspend+0x0/0x40 [nvidia] returns -5",
        )
    ),
    (
        "nvidia 0000:3b:00.0: can't suspend (nv_pmops_runtime_suspend [nvidia] returned -5)",
        *("kernel.module", "warning", "reboot", f"does not answer any more, of {CARD}"),
    ),
    (
        "Internal error: Oops: 0000000096000005 [#1] PREEMPT SMP\npc : nvgpu_gr_setup_bind_ctxsw_zcull+0x4c/0xd0 [nvgpu]",
        *("kernel.oops", "critical", "reboot", "nvgpu"),
    ),
    *(
        (line, "kernel.module", "warning", "configure", f"holds its memory, of {CARD}")
        for line in (
            "vfio-pci 0000:3b:00.0: BAR 0: can't reserve [mem 0x2800000000-0x2fffffffff 64bit pref]",
            "vfio-pci 0000:3b:00.0: BAR 1 [mem 0x2800000000-0x2fffffffff 64bit pref]: can't reserve",
        )
    ),
    (
        "NVRM kgspInitRm_IMPL: missing NVDEC0 engine, cannot initialize GSP-RM\nNVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x63)",
        *("kernel.module", "critical", "install", f"(NVDEC) that the card does not have, of {CARD}"),
    ),
    (
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from _memdescAllocInternal(x)",
        *("kernel.oom", "warning", "restart_app", "no memory of the machine"),
    ),
    (
        "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)",
        *("kernel.aer", "critical", "reboot", CARD),
    ),
    (
        "nvidia: version magic '6.8.0-1 SMP mod_unload ' should be '6.8.0-2 SMP mod_unload '",
        *("kernel.module", "critical", "install", "another kernel than the running one, of 6.8.0-1"),
    ),
    (
        "nvidia_drm: disagrees about version of symbol drm_open",
        *("kernel.module", "critical", "install", "nvidia_drm"),
    ),
    *(
        (
            f"{module}: {what} ib_register_peer_memory_client{error}",
            "kernel.module",
            "critical",
            "install",
            f"OFED or DOCA) than the loaded one, of {module}",
        )
        for module in ("nvidia_peermem", "nvidia-peermem")
        for what, error in (("disagrees about version of symbol", ""), ("Unknown symbol", " (err -2)"))
    ),
    # What it lacks is the driver's own.
    (
        "nvidia_peermem: Unknown symbol nvidia_p2p_get_pages (err -2)",
        "kernel.module",
        "critical",
        "install",
        "does not fit this kernel",
    ),
    (
        "Loading of module with unavailable key is rejected",
        "kernel.module",
        "warning",
        "configure",
        "does not trust the key",
    ),
    ("Loading of unsigned module is rejected", "kernel.module", "warning", "configure", "not signed"),
    (
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        *("kernel.module", "warning", "configure", "not signed"),
    ),
    (
        "nvidia-uvm: uvm_global.c:432 uvm_global_set_fatal_error_impl[pid:77] Encountered a global fatal error: NV_ERR_RC_ERROR",
        *("kernel.module", "critical", "reboot", "nvidia-uvm"),
    ),
    (
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) returned from status @ a.c:1",
        *("kernel.module", "critical", "reset_gpu", "until it is reset"),
    ),
    (
        "NVRM: GPU0 nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from x @ a.c:1",
        *("kernel.module", "critical", "reset_gpu", "until it is reset"),
    ),
    (
        "nvidia_fs: module using GPL-only symbols uses symbols from proprietary module nvidia.",
        *("kernel.module", "warning", "install", "nvidia_fs"),
    ),
    (
        "gdrdrv: module using GPL-only symbols uses symbols nvidia_p2p_get_pages from proprietary module nvidia.",
        *("kernel.module", "warning", "install", "of gdrdrv"),
    ),
    (
        "[drm:nv_drm_atomic_commit [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000b00] Flip event timeout on head 0",
        *("kernel.module", "warning", "reboot", "display"),
    ),
    (
        "nvidia-modeset: ERROR: GPU:0: Idling display engine timed out: 0x0000c67d:0:0:1051",
        *("kernel.module", "warning", "reboot", "display"),
    ),
    ("EXT4-fs (md0): Remounting filesystem read-only", "kernel.disk", "critical", "check_hardware", "md0"),
    (
        "XFS (nvme2n1): Filesystem has been shut down due to log error (0x2).",
        *("kernel.disk", "critical", "check_hardware", "nvme2n1"),
    ),
    ("BTRFS info (device sdb1: state E): forced readonly", "kernel.disk", "critical", "check_hardware", "sdb1"),
    (
        "Buffer I/O error on dev dm-0, logical block 1308098, lost async page write",
        *("kernel.disk", "critical", "check_hardware", "dm-0"),
    ),
    (
        "blk_update_request: I/O error, dev sda, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
        *("kernel.disk", "critical", "check_hardware", "sda"),
    ),
    (
        "blk_update_request: critical medium error, dev sdc, sector 8 op 0x0:(READ)",
        *("kernel.disk", "critical", "check_hardware", "sdc"),
    ),
    (
        "I/O error, dev nvme0n1, sector 99 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
        *("kernel.disk", "critical", "check_hardware", "nvme0n1"),
    ),
    ("EXT4-fs (dm-3): I/O error while writing superblock", "kernel.disk", "critical", "check_hardware", "dm-3"),
    (
        "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        *("kernel.disk", "critical", "check_hardware", "nvme4"),
    ),
    (
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        *("kernel.disk", "critical", "check_hardware", "nvme1"),
    ),
    ("nvme nvme0: I/O 22 (I/O Cmd) QID 3 timeout, aborting", "kernel.disk", "warning", "check_hardware", "nvme0"),
    ("nvme nvme0: I/O 978 QID 3 timeout, completion polled", "kernel.disk", "warning", "check_hardware", "nvme0"),
    (
        "nvme nvme4: Disabling device after reset failure: -19",
        *("kernel.disk", "critical", "check_hardware", "nvme4"),
    ),
    ("nvme nvme4: Removing after probe failure status: -19", "kernel.disk", "critical", "check_hardware", "nvme4"),
    (
        "block nvme0n1: no available path - failing I/O",
        *("kernel.disk", "critical", "check_hardware", "nvme0"),
    ),
    (
        "md/raid1:md0: Disk failure on sda1, disabling device.",
        *("kernel.disk", "critical", "check_hardware", "sda1"),
    ),
    (
        "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.",
        *("kernel.disk", "critical", "check_hardware", "nvme0n1p1"),
    ),
    ("nfs: server filer-1 not responding, still trying", "kernel.nfs", "warning", "configure", "filer-1"),
    ("nfs: server 10.7.0.9 not responding, timed out", "kernel.nfs", "warning", "configure", "10.7.0.9"),
    ("NFS: nfs4_reclaim_open_state: Lock reclaim failed!", "kernel.nfs", "warning", "restart_app", "lock"),
    (
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [cuda-EvtHandlr:2255424]",
        *("kernel.lockup", "warning", "reboot", "cuda-EvtHandlr"),
    ),
    (
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3",
        *("kernel.lockup", "warning", "reboot", "interrupts"),
    ),
    (
        "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 7",
        *("kernel.lockup", "warning", "reboot", "interrupts"),
    ),
    (
        "INFO: task kworker/u8:1:1177 blocked for more than 120 seconds.",
        *("kernel.lockup", "warning", "reboot", "kworker/u8:1"),
    ),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "kernel.lockup", "warning", "reboot", "rest"),
    (
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        *("kernel.lockup", "warning", "reboot", "rest"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        *("kernel.sxid", "critical", "reset_gpu", "SXid 20034"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 22003, Fatal, Link 30 Minion Halt",
        *("kernel.sxid", "fatal", "reboot", "SXid 22003"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-Fatal, Link 61 egress non-posted PRIV error (First)",
        *("kernel.sxid", "warning", "restart_app", "SXid 12028"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 10004, Non-fatal, Thermal event",
        *("kernel.sxid", "warning", "check_hardware", "SXid 10004"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 29999, Fatal, Link 01 something new",
        *("kernel.sxid", "critical", "reboot", "SXid 29999"),
    ),
    # What the driver says before it gives a card up: kernel-open/nvidia/nv.c and nv-pci.c, src/nvidia/arch/nvalloc/unix/src/osinit.c.
    *(
        (line, "kernel.module", "critical", action, told)
        for line, action, told in (
            (
                "NVRM: GPU 0000:3b:00.0: GPU does not have the necessary power cables connected.",
                *("check_hardware", f"power cables that the card needs are not connected, of {CARD}"),
            ),
            (
                "NVRM: request_mem_region failed for 16M @ 0xa4000000. This can\nnvidia: probe of 0000:3b:00.0 failed with error -1",
                *("configure", f"holds the registers of the card, of {CARD}"),
            ),
            (
                "NVRM: Can't find an IRQ for your NVIDIA card!\nnvidia 0000:3b:00.0: probe with driver nvidia failed with error -1",
                *("configure", f"gets no interrupt, of {CARD}"),
            ),
            ("NVRM: GPU 0000:3b:00.0: request_irq() failed (-22)", "configure", "gets no interrupt"),
            ("NVRM: FATAL: Failed to re-allocate BAR1.", "configure", "resizable BAR"),
            (
                "NVRM: GPU 0000:3b:00.0: Failed to copy vbios to system memory.",
                "configure",
                f"VBIOS of the card (its ROM) cannot be read, of {CARD}",
            ),
            ("NVRM: failed to copy vbios to system memory.", "configure", "VBIOS of the card"),
            (
                "NVRM: GPU0 RmInitAdapter: failed to extract VBIOS image from ROM\nNVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62)",
                *("configure", f"VBIOS of the card (its ROM) cannot be read, of {CARD}"),
            ),
            (
                "NVRM: GPU0 kgspBootstrap_GH100: GSP-FMC reported an error\nNVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:2028)",
                *("reboot", f"(GSP) did not start on the card, of {CARD}"),
            ),
            ("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "reboot", "(GSP) did not start on the card"),
            (
                "NVRM: GPU0 _kgspCheckVersion: GSP firmware image version mismatch: got version 580.65.06, expected version 580.95.05",
                *("install", "of another version than the module"),
            ),
            (
                "nvidia-modeset: Version mismatch: nvidia.ko(580.65.06) nvidia-modeset.ko(580.95.05)",
                "install",
                "of two versions",
            ),
            (
                "[drm:nv_drm_init [nvidia_drm]] *ERROR* [nvidia-drm] Version mismatch: nvidia-modeset.ko(580.65) nvidia-drm.ko(580.95)",
                *("install", "of two versions"),
            ),
            (
                "NVRM: The NVIDIA vGPU 0000:3b:00.0 (PCI ID: 10de:2230)\nNVRM: installed in this system is not supported by open",
                *("install", f"virtual ones, of {CARD}"),
            ),
            ("nvidia 0000:3b:00.0: Refused to change power state, currently in D3", "reboot", CARD),
            (
                "nvidia 0000:3b:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
                "reboot",
                CARD,
            ),
            (
                "vfio-pci 0000:3b:00.0: not ready 65535ms after FLR; giving up",
                "reboot",
                f"come back from its reset, of {CARD}",
            ),
            ("Module nvidia is blacklisted", "configure", "(module_blacklist), of nvidia"),
            (
                "module nvidia: .gnu.linkonce.this_module section size must match the kernel's built struct module size at run time",
                *("install", "does not fit this kernel"),
            ),
            (
                "nvidia: exports duplicate symbol nvUvmInterfaceRegisterGpu (owned by nvidia_535)",
                "install",
                "does not fit this kernel",
            ),
        )
    ),
    (
        "NVRM: Attempting to remove device 0000:3b:00.0 with non-zero usage count!",
        "kernel.module",
        "warning",
        "restart_app",
        CARD,
    ),
    (
        "NVRM: GPU 0000:3b:00.0: PreserveVideoMemoryAllocations module parameter is set. System Power Management attempted without",
        *("kernel.module", "warning", "configure", f"memory of the card, of {CARD}"),
    ),
    (
        "nvidia 0000:3b:00.0: swiotlb buffer is full (sz: 4096 bytes), total 32768 (slots), used 32768 (slots)",
        *("kernel.module", "warning", "configure", f"swiotlb), of {CARD}"),
    ),
    # drivers/pci/pcie/dpc.c, arch/x86/kernel/nmi.c, fs/ext4/super.c, fs/xfs/xfs_error.c, drivers/net/ethernet/mellanox/mlx5/core/cmd.c.
    (
        "pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000",
        *("kernel.aer", "warning", "check_hardware", "00000000:3A:00.0"),
    ),
    ("NMI: PCI system error (SERR) for reason a1 on CPU 0.", "kernel.aer", "critical", "check_hardware", "SERR"),
    (
        "EXT4-fs error (device sda2): ext4_lookup:1785: inode #2: comm bash: iget: checksum invalid",
        *("kernel.disk", "critical", "check_hardware", "damaged, of sda2"),
    ),
    (
        "XFS (nvme2n1): Metadata CRC error detected at xfs_agf_read_verify+0xd0/0xf0 [xfs], xfs_agf block 0x1",
        *("kernel.disk", "critical", "check_hardware", "damaged, of nvme2n1"),
    ),
    (
        "mlx5_core 0000:5f:00.0: wait_func:1137:(pid 1): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
        *("kernel.network", "critical", "check_hardware", "does not answer its driver"),
    ),
    # The driver breaks the sentence where it likes.
    (
        f"{REFUSED}\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 535.183.01 driver release.",
        *("kernel.module", "critical", "install", CARD),
    ),
    (
        f"{REFUSED}\n    NVRM: installed in this system requires use of the\n    NVRM: NVIDIA open kernel modules.",
        *("kernel.module", "critical", "install", CARD),
    ),
    (
        "nvidia 0000:3b:00.0: Direct firmware load for nvidia/595.71.05/gsp_ga10x.bin failed with error -2",
        *("kernel.module", "critical", "install", CARD),
    ),
    (
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from kgspCreateRadix3(x) @ a.c:1",
        *("kernel.module", "critical", "reboot", "no memory left"),
    ),
    (
        "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        *("kernel.module", "critical", "reboot", CARD),
    ),
    (
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n    NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)",
        *("kernel.module", "critical", "configure", CARD),
    ),
    (
        "BUG: kernel NULL pointer dereference, address: 0000000000000020\nRIP: 0010:_nv012345rm+0x12/0x90 [nvidia]",
        *("kernel.oops", "critical", "reboot", "nvidia"),
    ),
    (
        "Unable to handle kernel paging request at virtual address ffff0004\npc : uvm_va_block_find+0x20/0x80 [nvidia_uvm]",
        *("kernel.oops", "critical", "reboot", "nvidia_uvm"),
    ),
    (
        "BUG: unable to handle page fault for address: ffffb15300649000\nRIP: 0010:gpu_i2c_check_status.isra.0+0x53/0xa0 [i2c_nvidia_gpu]",
        *("kernel.oops", "critical", "reboot", "of its own that drives a part of a card"),
    ),
    (
        "Internal error: Oops: 96000004 [#1] SMP\npc : nouveau_bo_move_ntfy+0x20/0x80 [nouveau]",
        *("kernel.oops", "critical", "reboot", "of nouveau"),
    ),
    (
        "nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] request_free_mem_region() err -34",
        *("kernel.module", "critical", "configure", "CUDA does not start"),
    ),
    ("Missing ENDBR: init_module+0x0/0x10 [nvidia]", "kernel.oops", "critical", "configure", "(ENDBR)"),
    (
        "traps: Missing ENDBR: _nv012345rm+0x0/0x90 [nvidia_modeset]",
        "kernel.oops",
        "critical",
        "configure",
        "of nvidia_modeset",
    ),
    (
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:3b:00.0 domain=0x0011 address=0xfe000000 flags=0x0020]",
        *("kernel.iommu", "warning", "configure", CARD),
    ),
    (
        "nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0xfe000000 flags=0x0020]",
        *("kernel.iommu", "warning", "configure", CARD),
    ),
    (
        "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xfee0000 [fault reason 0x05] PTE Write access is not set",
        *("kernel.iommu", "warning", "configure", CARD),
    ),
    (
        "mlx5_core 0000:5f:00.1: mlx5_pcie_event:301:(pid 77): Detected insufficient power on the PCIe slot (25W).",
        *("kernel.network", "warning", "check_hardware", "5F:00.1"),
    ),
    (
        "mlx5_core 0000:5f:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        *("kernel.network", "critical", "check_hardware", "too hot"),
    ),
    (
        "mlx5_core 0000:5f:00.0: Port module event[error]: module 1, Cable error, Bad or shorted cable/module",
        *("kernel.network", "warning", "check_hardware", "cable"),
    ),
    (
        "mlx5_core 0000:5f:00.0: poll_health:817:(pid 0): Fatal error 3 detected",
        *("kernel.network", "critical", "check_hardware", "5F:00.0"),
    ),
    (
        "mlx5_core 0000:5f:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
        *("kernel.network", "critical", "check_hardware", "5F:00.0"),
    ),
]


def test_there_are_enough_of_both() -> None:
    assert len(HARMLESS) >= 25
    assert len(FAULTS) >= 40


@pytest.mark.parametrize("line", HARMLESS, ids=lambda line: line[:50])
def test_a_harmless_line_passes_in_silence(line: str) -> None:
    for prefix in PREFIXES:
        assert bad(prefix + line) == []
        told = [check["reason"] for check in judged(prefix + line) if check["id"] in kernel_faults_judge.CHECKS]
        assert all("names no" in str(reason) for reason in told), told


def test_all_harmless_lines_of_a_machine_together_leave_every_check_passed() -> None:
    found = judged(*HARMLESS)
    assert {check["status"] for check in found} == {"pass"}
    assert {check["id"] for check in found} == {"kernel.xid", "kernel.sxid", *kernel_faults_judge.CHECKS}


@pytest.mark.parametrize(("said", "id_", "severity", "action", "names"), FAULTS, ids=lambda value: str(value)[:50])
def test_a_fault_is_told_with_what_to_do_however_the_log_is_shown(
    said: str, id_: str, severity: str, action: str, names: str
) -> None:
    first, *rest = said.split("\n")
    for prefix in PREFIXES:
        lines = [prefix + first, *(line if line.startswith(" ") else prefix + line for line in rest)]
        [check] = bad(*lines)
        assert (check["id"], check["severity"], check["action"]) == (id_, severity, action), prefix
        assert check["status"] == ("fail" if severity in ("critical", "fatal") else "warn"), prefix
        assert names in str(check["reason"]), prefix
        assert any(each.strip()[-30:] in str(check["evidence"]) for each in (first, *rest)), prefix
        assert check["remedy"], prefix
        assert check["measured"] == 1, prefix


@pytest.mark.parametrize("caller", ["[    T1] ", "[   C12] "])
def test_the_thread_that_wrote_and_a_time_within_syslog_do_not_matter(caller: str) -> None:
    line = "EXT4-fs (md0): Remounting filesystem read-only"
    assert bad(f"[   12.345678]{caller}{line}")[0]["id"] == "kernel.disk"
    assert bad(f"<4>[   12.345678]{caller}{line}")[0]["id"] == "kernel.disk"
    assert bad(f"Nov 15 12:02:03 node7 kernel: [   12.345678] {line}")[0]["id"] == "kernel.disk"
    assert bad(f"2025-01-02T15:20:12+0800 node7 kernel: {line}")[0]["id"] == "kernel.disk"


def test_every_name_has_its_row_and_its_enumeration() -> None:
    rows = load_rules()["kernel_faults"]["rows"]
    names = [row["name"] for row in rows]
    schema = json.loads((Path(gate.__file__).parent / "answers.json").read_text())["$defs"]["kernel_faults"]
    assert len(names) == len(set(names))
    assert set(names) == kernel_faults.NAMES == set(schema["items"]["properties"]["name"]["enum"])
    assert {row["check"] for row in rows} == set(kernel_faults_judge.CHECKS)
    assert {name for name, *_rest in kernel_faults._REPEATS} <= kernel_faults.NAMES
    assert kernel_faults._OF_MODULE <= kernel_faults.NAMES


def test_what_is_only_assumed_is_a_warning_at_most() -> None:
    assumed = [row for row in load_rules()["kernel_faults"]["rows"] if "assumed" in row["source"]]
    assert assumed
    assert {row["severity"] for row in assumed} <= {"info", "warning"}


def test_a_number_of_an_nvswitch_is_in_one_row() -> None:
    codes = [code for row in load_rules()["sxid"]["rows"] for code in row["codes"]]
    assert len(codes) == len(set(codes))


OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=abc,mems_allowed=0-1,oom_memcg=/docker/0123abcd,"
    "task_memcg=/docker/0123abcd,task=python3,pid=4321,uid=0"
)


def test_the_limit_of_a_container_is_a_warning_that_names_container_and_program() -> None:
    told = [OOM, "Memory cgroup out of memory: Killed process 4321 (python3) total-vm:9kB, anon-rss:8kB, UID:0"]
    [check] = bad(*told, *told)
    assert (check["id"], check["status"], check["action"], check["measured"]) == (
        "kernel.oom",
        "warn",
        "restart_app",
        2,
    )
    assert str(check["reason"]).endswith("of python3")
    assert "limit of /docker/0123abcd" in str(check["evidence"])
    # Before Linux 5.0.
    old = "Task in /docker/0123abcd killed as a result of limit of /docker/0123abcd"
    [check] = bad(old, "Memory cgroup out of memory: Kill process 4321 (python3) score 1831 or sacrifice child")
    assert "limit of /docker/0123abcd" in str(check["evidence"])
    host = OOM.replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE").replace("oom_memcg=/docker/0123abcd,", "global_oom,")
    _container, check = bad(*told, host, "Out of memory: Killed process 99 (dd) total-vm:9kB")
    assert (check["status"], check["measured"]) == ("warn", 1)
    assert str(check["reason"]).endswith("of dd")
    later = kernel_faults.faults([*told, host, told[1]])["faults"][0]
    assert (later["count"], "limit of" in later["message"]) == (2, False), (
        "the container of another kill is not this one's"
    )


def test_a_file_server_that_answered_later_is_none_that_does_not() -> None:
    gone, back = "nfs: server filer-1 not responding, still trying", "nfs: server filer-1 OK"
    assert bad(gone, gone, back) == []
    assert bad(gone, back, gone)[0]["measured"] == 1
    assert bad(gone, back.replace("filer-1", "filer-2"))[0]["id"] == "kernel.nfs"


def test_what_is_told_twice_is_counted_once() -> None:
    announced = "pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"
    error = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)"
    assert bad(error, announced)[0]["measured"] == 1
    assert len(bad(announced, error)) == 1
    failed = "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1"
    [check] = bad(failed, "NVRM: The NVIDIA probe routine failed for 1 device(s).")
    assert (check["measured"], check["gpu"]) == (1, CARD)


def test_the_lines_of_one_sentence_are_its_evidence() -> None:
    [check] = bad(
        "NVRM: API mismatch: the client has the version 580.95.05, but",
        "               NVRM: this kernel module has the version 570.86.10.  Please",
        "               NVRM: make sure that this kernel module and all NVIDIA driver",
        "               NVRM: components have the same version.",
    )
    assert "580.95.05" in str(check["evidence"])
    assert "570.86.10" in str(check["evidence"])
    assert bad("NVRM: API mismatch: the client has the version 1\\x0aNVRM: this kernel module has 2")


FOLLOWS = (
    "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x61:0x56:1594)",
    "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0",
)


@pytest.mark.parametrize(
    "cause",
    [
        "nvidia 0000:3b:00.0: Direct firmware load for nvidia/595.71.05/gsp_tu10x.bin failed with error -2",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from kgspCreateRadix3(x)",
        f"{REFUSED}\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 535.183.01 driver release.",
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR0 is 0M @ 0x0 (PCI:0000:3b:00.0)",
    ],
)
def test_a_cause_silences_what_follows_from_it(cause: str) -> None:
    """Who reads "reseat the card" beside it opens a machine for nothing."""
    assert len(bad(*FOLLOWS)) == 2
    [check] = bad(*cause.split("\n"), *FOLLOWS)
    assert "reseat" not in str(check["remedy"])


@pytest.mark.parametrize(
    "cause",
    [
        "NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x65 VBIOS version 94.02.59.00.05",
        "NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "NVRM: RmFetchGspRmImages: No firmware image found",
        "NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",
    ],
)
def test_what_stopped_the_start_of_a_card_is_told_of_the_card_that_the_next_line_names(cause: str) -> None:
    other = "NVRM: GPU 0000:af:00.0: RmInitAdapter failed! (0x61:0x56:1594)"
    [left, check] = bad(cause, FOLLOWS[2], cause, FOLLOWS[2], other)
    assert (check["gpu"], check["measured"]) == (CARD, 2)
    assert (left["id"], left["gpu"]) == ("kernel.xid", "00000000:AF:00.0")


def test_a_link_that_did_not_recover_silences_the_page_fault_of_its_card_alone() -> None:
    fault = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"
    broken = "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)"
    assert [check["id"] for check in bad(broken, fault)] == ["kernel.aer"]
    assert [check["id"] for check in bad(broken, fault.replace(":3b:", ":af:"))] == ["kernel.xid", "kernel.aer"]
    assert [check["id"] for check in bad(broken, fault.replace(" 31,", " 48,"))] == ["kernel.xid", "kernel.aer"]


def test_a_slot_whose_card_was_pulled_out_is_told_where_a_card_of_ours_is_lost() -> None:
    down = "pcieport 0000:00:01.1: pciehp: Slot(0): Link Down"
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
    assert bad(down) == []
    [off, slot] = bad(down, lost)
    assert (off["id"], slot["id"], "pciehp" in str(slot["reason"])) == ("kernel.xid", "kernel.aer", True)


def test_the_symbols_that_a_module_is_not_given_follow_from_its_licence() -> None:
    refused = "nvidia_fs: module using GPL-only symbols uses symbols from proprietary module nvidia."
    unknown = "nvidia_fs: Unknown symbol nvidia_p2p_get_pages (err -2)"
    [alone] = bad(unknown)
    [told] = bad(refused, unknown)
    assert ("dkms uninstall" in str(alone["remedy"]), "driver-modules=open" in str(told["remedy"])) == (True, True)


def test_a_screen_that_waits_for_a_card_that_has_an_error_is_not_told() -> None:
    waits = (
        "[drm:nv_drm_atomic_commit [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00003b00] Flip event timeout on head 0"
    )
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
    assert [check["id"] for check in bad(lost, waits)] == ["kernel.xid"]


def test_a_warning_in_a_module_of_the_kernel_is_no_fault_of_it() -> None:
    assert bad("WARNING: CPU: 1 PID: 7 at a.c:1", "RIP: 0010:ccg_read+0xa0/0x110 [ucsi_ccg]") == []


def test_a_card_that_waits_for_its_reset_is_told_where_no_number_says_it_better() -> None:
    waits = "NVRM: nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from x @ a.c:1"
    page = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"
    halted = "NVRM: Xid (PCI:0000:3b:00): 62, 2027(0x7eb) 00000000 00000000"
    not_started = "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x55:2130)"
    assert [check["id"] for check in bad(page, waits)] == ["kernel.xid", "kernel.module"]
    assert [check["id"] for check in bad(halted, waits)] == ["kernel.xid"]
    [alone] = bad(waits, not_started)
    assert "until it is reset" in str(alone["reason"])


def test_libraries_of_another_version_explain_that_the_firmware_of_the_module_is_gone() -> None:
    mismatch = "NVRM: API mismatch: the client has the version 570.153.02, but"
    gone = "nvidia 0000:3b:00.0: Direct firmware load for nvidia/570.144/gsp_ga10x.bin failed with error -2"
    [check] = bad(mismatch, gone, *FOLLOWS[2:])
    assert "of another version than its loaded module" in str(check["reason"])


def test_cards_for_virtual_machines_are_no_fault_where_the_driver_has_others() -> None:
    kept = "NVRM: GPU 0000:3b:00.0 is already bound to vfio-pci."
    assert bad(kept) == []
    assert len(bad(kept, "NVRM: No NVIDIA devices probed.")) == 1
    other = "NVRM: GPU 0000:af:00.0 is already bound to nouveau."
    [check] = bad(kept, other, "NVRM: No NVIDIA devices probed.")
    assert "nouveau" in str(check["reason"])
    assert bad("NVRM: No NVIDIA devices probed.") == []


@pytest.mark.parametrize(
    ("line", "kept", "host", "opened"),
    [
        (
            "NVRM: Xid (PCI:0000:00:06): 79, pid=1, name=x, GPU has fallen off the bus.",
            *("reboot, with the power off", "to the card and", "another slot"),
        ),
        (
            "NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x26:0xffff:1290)",
            *("the open kernel modules", "to the card and", "reseat the card"),
        ),
        (
            "NVRM: GPU 0000:00:06.0: GPU does not have the necessary power cables connected.",
            *("", "to the card and", "every power connector"),
        ),
        ("nvme nvme4: Disabling device after reset failure: -19", "", "to the disk and", "reseat the disk"),
        (
            "mlx5_core 0000:5f:00.0: wait_func:1137:(pid 1): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            *("the firmware of the adapter", "to the network adapter and", "reseat it"),
        ),
    ],
)
def test_the_case_of_a_virtual_machine_is_its_hosts_to_open(line: str, kept: str, host: str, opened: str) -> None:
    answer: Any = log_answer(**kernel_log.events([line]), **kernel_faults.faults([line]))
    guest: Any = nodes.bare(environment={"kind": "vm", "detail": "xen"})
    for facts, has, lacks in ((guest, host, opened), (nodes.bare(), opened, host)):
        [check] = [check for check in judge_kernel_log.judge(answer, load_rules(), facts) if check["status"] == "fail"]
        assert kept in str(check["remedy"])
        assert (has in str(check["remedy"]), lacks in str(check["remedy"])) == (True, False)


def test_a_card_without_addresses_has_a_remedy_in_a_virtual_machine_too() -> None:
    [check] = bad(
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)",
    )
    assert "hypervisor" in str(check["remedy"])


def test_a_cause_of_one_card_silences_nothing_of_another() -> None:
    cause = "nvidia 0000:af:00.0: Direct firmware load for nvidia/595.71.05/gsp_tu10x.bin failed with error -2"
    assert len(bad(cause, *FOLLOWS)) == 3


def test_a_card_that_is_told_again_while_the_driver_loads_is_not_past_after_that() -> None:
    said = (
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "NVRM: BAR0 is 0M @ 0x0 (PCI:0000:3b:00.0)",
    )
    [check] = bad(*said, BEGINS, *said, LOADED)
    assert (check["gpu"], check["measured"]) == (CARD, 2)


def test_a_card_that_is_kept_for_virtual_machines_is_told_and_no_fault() -> None:
    lines = (
        "NVRM: GPU 0000:3b:00.0 is already bound to vfio-pci.",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
    )
    [check] = [check for check in judged(*lines) if check["id"] == "kernel.module"]
    assert (check["status"], "kept for virtual machines" in str(check["reason"])) == ("pass", True)
    assert len(bad(lines[1])) == 1


def test_a_sentence_ends_where_another_line_comes_between() -> None:
    first, *rest = (
        REFUSED,
        "NVRM: installed in this system is not supported by the",
        "NVRM: NVIDIA 535.183.01 driver release.",
    )
    assert bad(first, rest[0], "usb 1-1: new device", rest[1]) == []
    assert bad("NVRM: This is one sentence.", "NVRM: is not supported by", "NVRM: anybody.") == []


def test_modules_are_judged_since_the_driver_was_loaded_last() -> None:
    mismatch = "NVRM: API mismatch: the client has the version 580.95.05, but"
    failed = "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1"
    disk = "EXT4-fs (md0): Remounting filesystem read-only"
    assert [check["id"] for check in bad(mismatch, disk, BEGINS, LOADED)] == ["kernel.disk"]
    assert [check["id"] for check in bad(BEGINS, failed, LOADED)] == ["kernel.module"]
    assert bad(BEGINS, failed, LOADED, BEGINS, LOADED) == []
    assert bad(BEGINS, LOADED, mismatch)[0]["id"] == "kernel.module"


@pytest.mark.parametrize("driver", ["NovaCore", "nouveau", "somebody"])
def test_a_driver_that_is_named_as_the_holder_of_a_card_is_told_once(driver: str) -> None:
    lines = [f"NVRM: GPU 0000:{bus}:00.0 is already bound to {driver}." for bus in ("3b", "5e")]
    not_called = "NVRM: The NVIDIA probe routine was not called for 2 device(s)."
    found = bad(
        "nouveau 0000:3b:00.0: NVIDIA AD102 (192000a1)" if driver == "nouveau" else "", BEGINS, *lines, not_called
    )
    assert [check["gpu"] for check in found] == [CARD, "00000000:5E:00.0"]
    assert bad(BEGINS, *lines, not_called, BEGINS, LOADED) == []


def test_nouveau_is_named_where_it_holds_the_card_that_the_driver_was_not_called_for() -> None:
    held = "nouveau 0000:3b:00.0: NVIDIA AD102 (192000a1)"
    not_called = "NVRM: The NVIDIA probe routine was not called for 1 device(s)."
    assert bad(held, BEGINS, LOADED) == []
    [check] = bad(held, BEGINS, not_called, LOADED)
    assert (check["severity"], check["gpu"]) == ("critical", CARD)
    assert "nouveau" in str(check["reason"])


def corrected(count: int, place: str = CARD, **changes: Any) -> list[Check]:
    """What is wrong where so many corrected errors were counted, in a day or in ``uptime`` seconds."""
    hardware = log_answer()["hardware"]
    devices = [{**each, "correctable": count} if each["bus_id"] == place else each for each in hardware["devices"]]
    devices = [{**each, **{key: changes[key] for key in ("lanes", "speed_gts") if key in changes}} for each in devices]
    return bad(hardware={**hardware, "devices": devices, "uptime": changes.get("uptime", 86400.0)})


def test_corrected_errors_of_pcie_are_held_against_dcgms_limit_a_minute() -> None:
    assert corrected(32 * 1440) == []
    [check] = corrected(33 * 1440)
    assert (check["id"], check["severity"], check["gpu"]) == ("kernel.aer", "warning", CARD)
    assert (check["measured"], check["expected"], check["unit"]) == (33.0, 32, "errors a minute since the boot")
    assert corrected(16 * 1440, speed_gts=16.0) == []
    assert corrected(17 * 1440, speed_gts=16.0)[0]["expected"] == 16
    assert corrected(17 * 1440, lanes=8)[0]["expected"] == 16
    assert corrected(17 * 1440, lanes=None, speed_gts=None)
    assert corrected(33, uptime=10.0)[0]["measured"] == 33, "less than a minute counts as one"
    bridge = corrected(33 * 1440, "00000000:3A:00.0")[0]
    assert bridge["gpu"] is None
    assert "the bridge 00000000:3A:00.0" in str(bridge["reason"])


def test_corrected_errors_that_are_borne_are_told() -> None:
    line = "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    [check] = [check for check in judged(line, line.replace("Corrected", "Correctable")) if check["id"] == "kernel.aer"]
    assert check["status"] == "pass"
    assert "2 corrected errors of PCIe in 1440 minutes, of the bridge 00000000:3A:00.0" in str(check["reason"])
    assert bad(*[line] * 40, hardware={**log_answer()["hardware"], "uptime": 60.0})


def counted(**counts: int | None) -> list[Check]:
    """The check of PCIe where these counts are the card's."""
    hardware = log_answer()["hardware"]
    devices = [{**each, **counts} if each["role"] == "card" else each for each in hardware["devices"]]
    return [check for check in judged(hardware={**hardware, "devices": devices}) if check["id"] == "kernel.aer"]


def test_what_the_kernel_counts_fails_without_a_line_in_the_log() -> None:
    [check] = counted(fatal=1)
    assert (check["status"], check["severity"], check["measured"], check["gpu"]) == ("fail", "critical", 1, CARD)
    [check] = counted(nonfatal=3)
    assert (check["status"], check["measured"]) == ("warn", 3)
    assert [check["severity"] for check in counted(nonfatal=3, fatal=1)] == ["critical", "warning"]


def test_where_the_kernel_counts_nothing_of_pcie_nothing_is_said() -> None:
    hardware = log_answer()["hardware"]
    none = [{**each, "correctable": None, "nonfatal": None, "fatal": None} for each in hardware["devices"]]
    for devices in (none, []):
        found = judged(hardware={**hardware, "devices": devices})
        assert [check["status"] for check in found if check["id"] == "kernel.aer"] == ["skip"]
    line = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)"
    assert bad(line, hardware={**hardware, "devices": none})[0]["gpu"] == CARD
    unread = {**hardware, "devices_unread": "/sys/bus/pci/devices could not be listed: Permission denied"}
    assert [(check["id"], check["status"]) for check in bad(hardware=unread)] == [("kernel.aer", "incomplete")]
    assert [check["status"] for check in bad(hardware={**hardware, "uptime": None})] == ["incomplete"]


def memory(**counts: int | None) -> list[Check]:
    controller = {"controller": "mc0", "corrected": 0, "uncorrected": 0, **counts}
    found = judged(hardware={**log_answer()["hardware"], "memory": [controller]})
    return [check for check in found if check["id"] == "kernel.mce"]


def test_errors_of_the_memory_are_judged_as_edac_counts_them() -> None:
    [check] = memory(uncorrected=2)
    assert (check["status"], check["severity"], check["measured"]) == ("fail", "critical", 2)
    [check] = memory(corrected=7)
    assert check["status"] == "pass"
    assert "7 times, of MC0" in str(check["reason"])
    assert memory(uncorrected=None)[0]["status"] == "incomplete"
    hardware = log_answer()["hardware"]
    line = "EDAC MC0: 1 UE memory read error on DIMM_A1 (channel:1 slot:0)"
    one = [{"controller": "mc0", "corrected": 0, "uncorrected": 3}]
    [check] = bad(line, hardware={**hardware, "memory": one})
    assert (check["measured"], check["evidence"]) == (3, line)
    assert bad(hardware={**hardware, "memory_unread": "…/mc0/ue_count could not be read"})[0]["status"] == "incomplete"
    assert bad(hardware={**hardware, "memory": []}) == []


def test_notes_are_told_in_the_check_that_passes() -> None:
    told = "mce: [Hardware Error]: Machine check events logged"
    [check] = [check for check in judged(told, told, since_boot=False) if check["id"] == "kernel.mce"]
    assert check["status"] == "pass"
    assert "2 times" in str(check["reason"])
    assert "does not go back to the boot" in str(check["reason"])
    for each in ("{1}[Hardware Error]: event severity: corrected", "EDAC MC0: 1 CE memory read error on DIMM_A1"):
        assert bad(each) == []


def test_memory_that_nvidia_peermem_passed_over_is_only_told() -> None:
    said = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
    assert bad(*[said] * 1000) == []
    [told] = [check for check in judged(said) if check["id"] == "kernel.module"]
    assert "passed over memory" in str(told["reason"])


def test_an_nvswitch_is_judged_by_its_rows_and_its_registers_are_no_errors() -> None:
    switch = "[1.0] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {}"
    fatal = switch.format("20034, Fatal, Link 30 LTSSM Fault Up")
    rest = switch.format("20034, Severity 1 Engine instance 30 Sub-engine instance 00")
    data = switch.format("20034, Data {0x30000000, 0x30000000}")
    light = switch.format("12028, Non-fatal, Link 61 egress non-posted PRIV error (First)")
    worse, better = bad(light, fatal, rest, data, fatal)
    assert (worse["status"], worse["measured"], worse["gpu"]) == ("fail", 2, "00000000:05:00.0")
    assert worse["reason"] == "SXid 20034: a fatal error of a port of the switch"
    assert better["status"] == "warn"
    # A node that watches itself by older settings knows no rows.
    seen: Any = {**log_answer(), **kernel_log.events([fatal, light])}
    generic = kernel_log_judge.judge(seen, {"xid": [], "sxid": []})
    assert [(check["id"], check["status"]) for check in generic] == [
        ("kernel.xid", "pass"),
        ("kernel.sxid", "fail"),
        ("kernel.sxid", "warn"),
    ]


def test_where_there_is_no_nvswitch_none_is_judged() -> None:
    [check] = [check for check in judged() if check["id"] == "kernel.sxid"]
    assert check["status"] == "skip"
    hardware = log_answer()["hardware"]
    switch = {**hardware["devices"][0], "role": "switch", "bus_id": "00000000:05:00.0"}
    [check] = [check for check in judged(hardware={**hardware, "devices": [switch]}) if check["id"] == "kernel.sxid"]
    assert check["status"] == "pass"


def test_a_log_that_cannot_be_read_leaves_every_check_incomplete_and_an_empty_one_says_nothing() -> None:
    found = judged(why="dmesg: read kernel buffer failed: Operation not permitted", lines=0)
    assert len(found) == 2 + len(kernel_faults_judge.CHECKS)
    assert {check["status"] for check in found} == {"incomplete"}
    assert {check["status"] for check in judged(lines=0)} == {"skip"}


def test_faults_in_masses_are_told_within_bounds_and_hide_nothing() -> None:
    many = [f"Out of memory: Killed process 1 (prog{number}) x" for number in range(300)]
    assert kernel_faults.faults(many)["more_faults"] == 100
    found = bad(*many)
    assert len([check for check in found if check["id"] == "kernel.oom"]) == kernel_log_judge.MOST_CHECKS
    assert "160 errors more" in str([check for check in found if check["id"] == "kernel.oom"][-1]["reason"])
    assert {check["status"] for check in found if check["id"] == "kernel.disk"} == {"incomplete"}


@pytest.mark.parametrize(
    "line",
    [
        "Out of memory: Killed process 1 (a\x1b[2J) x",
        "INFO: task " + "x" * 5000 + ":1 blocked for more than 120 seconds.",
        "nfs: server " + "y" * 255 + " not responding",
        "Memory cgroup out of memory: Killed process 99999999999999 (python3) x",
        "EDAC MC99999999: 1 UE memory read error",
        "python3[1]: Out of memory: Killed process 1 (init)",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=soft lockup, Ch 8 BUG: soft lockup - CPU#1 stuck for 9s! [x:1]",
    ],
)
def test_strange_lines_neither_break_nor_deceive(line: str) -> None:
    for check in judged(line):
        assert check["id"] != "kernel.lockup" or check["status"] == "pass"
        assert "\x1b" not in json.dumps(check, ensure_ascii=False)
    if line.startswith("python3"):
        assert bad(line) == []


SLOW = [
    "x" * 2000,
    "[" * 2000,
    "nvme nvme0: I/O " * 120,
    "NVRM: " * 300,
    "a: " * 600,
    "EXT4-fs (" * 200,
    "0000:3b:00.0 " * 150,
    "INFO: task " + "a:1 " * 480,
    "nvidia-uvm: " + "Encountered a global " * 90,
    "oom-kill:constraint=" + "oom_memcg=," * 170,
    "[12.3] " + "nvidia 0000:3b:00.0: PCIe Bus Error: " * 50,
    "Out of memory: Killed process 1 " + "(" * 1900,
    "md/raid" + "x" * 1900,
]


@pytest.mark.parametrize("line", SLOW, ids=lambda line: line[:20])
def test_ten_megabytes_are_read_within_half_a_second(line: str) -> None:
    quickly(lambda: kernel_faults.faults([line] * 5_000), 0.5)


def test_the_real_logs_are_read(samples: Callable[[str], list[Path]]) -> None:
    found = {}
    for path in samples("dmesg"):
        told = kernel_faults.faults(path.read_text(errors="replace").split("\n"))["faults"]
        found[path.name] = {fault["name"] for fault in told}
    for name in ("440_vs_390", "535.247", "dmesgT_535"):
        assert found[f"api_mismatch_{name}.log"] == {"api_mismatch"}
    assert found["requires_open_modules_rtxpro4500.log"] == {"needs_open_modules"}
    assert "oom_host" in found["gpud_dmesg_memory_iso.log"]
    for name in ("gpud_dmesg_peermem.log", "gpud_kmsg_2_peermem.log", "gpud_dmesg_time_iso.log"):
        assert found[name] == {"peermem_context"}
    quiet = ("gpud_kmsg_1.log", "gpud_dmesg_xid119.log", "imbue_mlx5_limited.log", "misc_real_lines.log")
    assert [found[name] for name in quiet] == [set()] * len(quiet)


@pytest.mark.parametrize(("virtual", "line"), [(True, "guest driver"), (False, "gpuwright plan")])
def test_a_driver_that_does_not_support_a_virtual_card_is_not_the_guest_driver(
    facts: Any, virtual: bool, line: str
) -> None:
    refused = (
        f"{REFUSED}\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 535.183.01 driver release."
    )
    lines = [BEGINS, *refused.splitlines()]
    answer: Any = log_answer(**{**kernel_log.events(lines), **kernel_faults.faults(lines)})
    seen: Any = {**facts, "pci": {**facts["pci"], "vgpus": [{"bus_id": CARD, "host_driver": None}] if virtual else []}}
    (check,) = [each for each in judge_kernel_log.judge(answer, load_rules(), seen) if each["id"] == "kernel.module"]
    assert line in str(check["remedy"])
    assert ("vGPU" in str(check["reason"])) == virtual
