# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel log tells beside the numbers of NVIDIA's driver: errors of PCIe, of memory and disks, programs that were ended or hang,
and modules of the driver that do not fit.

Each line is recognised by its own words, from their beginning on: what a program is called cannot be taken for a message of the kernel.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document

#: Distinct faults that are told apart; one is a name of one subject.
MOST_FAULTS = 200
# What is kept of a line.
_LONGEST = 400

# What stands before the kernel's own words: the priority of /dev/kmsg or syslog, facility and level (dmesg -x), a time (seconds since the
# boot, dmesg -T, ISO, syslog), the processor or thread that wrote (CONFIG_PRINTK_CALLER), the host's name.
_BEFORE = re.compile(
    r"(?:<[0-9]{1,3}>|[0-9]{1,4},[0-9]{1,19},[0-9]{1,19},[-c+][^;]{0,80};)?"
    r"(?:[a-z]{2,8} {0,4}:[a-z]{2,7} {0,4}: )?"
    r"(?:\[[^\[\]]{1,40}\](?:\[ {0,8}[TC][0-9]{1,9}\])? |[0-9]{4}-[0-9]{2}-[0-9]{2}T\S{8,30} |[A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d )?"
    r"(?:\S{1,255} kernel: )?(?:\[ {0,8}[0-9]{1,12}\.[0-9]{6}\] )?\s{0,80}"
)

_PLACE = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_DEVICE = r"\S{1,40} " + _PLACE + ": "
_BUS_ERROR = _DEVICE + r"PCIe Bus Error: severity="
# "pcieport 0000:00:03.1: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:3b:00.0"; from Linux 6.12 on "... error message
# received from 0000:3b:00.0".
_ANNOUNCED = r"\S{1,40} \S{1,16}: AER: (?:Multiple )?%s error (?:message )?received(?::| from) " + _PLACE
_CORRECTED = r"Correct(?:ed|able)"
_NONFATAL = r"Uncorrect(?:ed|able) \(Non-Fatal\)"
_FATAL = r"Uncorrect(?:ed|able) \(Fatal\)"
# What has a drive or a floppy that is not there is asked by the kernel all the same.
_DISK = r"(?!(?:fd|sr|loop)[0-9])([\w.!-]{1,32})"
_NVME = r"nvme (nvme[0-9]{1,5}): "
_HARDWARE_ERROR = r"(?:\{[0-9]{1,6}\})?(?:mce: )?\[Hardware Error\]: "
# How the driver names who holds a card.
_BOUND = r"NVRM: GPU " + _PLACE + r" is already bound to "
_NVIDIA_MODULE = r"(nvidia[\w-]{0,24}): "
# A function of the driver's that starts a card; newer branches number the card.
_OF_CARD = r"NVRM:? (?:GPU[0-9]{1,3} )?\w{1,60}: "
# How the driver names a card that it speaks of (NV_DEV_PRINTF).
_NAMED_CARD = r"NVRM: GPU " + _PLACE + ": "
# An adapter of NVIDIA's (Mellanox), and a device as the processor's IOMMU names it, which may leave the domain out.
_ADAPTER = r"mlx5_core " + _PLACE + ": "
_SHORT_PLACE = r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# How symbols begin that modules of the kernel itself have (drivers/acpi, backlight, gpu/drm, i2c and char/ipmi of Linux), and the driver
# asks for.
_KERNELS_OWN = r"_{0,2}(?:acpi_video|backlight|devm_backlight|drm|i2c|ipmi)_"
# Where the kernel met a fault of its own, and its own modules that drive a part of a card (drivers/i2c/busses, usb/typec, video/fbdev,
# platform/x86 and gpu of Linux).
_FELL_OVER = r"(?:RIP: [0-9a-f]{4}:|pc : )\S{1,160} "
_KERNELS_MODULE = r"\[(i2c_nvidia_gpu|ucsi_ccg|typec_nvidia|nvidiafb|nvidia_wmi_ec_backlight|nouveau|nova_core)\]"
# Why the firmware of the driver (GSP) did not start on a card (src/nvidia/src/kernel/gpu/gsp and fsp).
_NOT_BOOTED = (
    r"(?:Cannot initialize GSP firmware RM|GSP-FMC reported an error|FSP boot cmds failed|failed to execute (?:Booter|FWSEC)"
    r"|FSP secure boot (?:partition timed out|GSP prechecks failed)|Booter failed with |Failed to boot GSP"
    r"|Max GSP-RM boot attempts exceeded)"
)

#: The names, each with the beginning of its line; the group is what it speaks of. A name is a row of compat/kernel_faults.yaml.
_PATTERNS: Tuple[Tuple[str, str], ...] = (
    ("aer_corrected", _BUS_ERROR + _CORRECTED),
    ("aer_nonfatal", _BUS_ERROR + _NONFATAL),
    ("aer_fatal", _BUS_ERROR + _FATAL),
    ("aer_not_recovered", _DEVICE + r"AER: device recovery failed"),
    ("aer_not_recovered", r"nvidia " + _PLACE + r": AER: can't recover"),
    ("slot_lost", r"pcieport " + _PLACE + r": pciehp: Slot\([^)]{1,20}\): (?:Link Down|Card not present)"),
    ("port_contained", _DEVICE + r"DPC: containment event"),
    ("system_error", r"NMI: PCI system error \(SERR\)"),
    ("mce_uncorrected", r"mce: \[Hardware Error\]: CPU [0-9]{1,5}: Machine Check Exception"),
    ("mce_uncorrected", r"mce: Uncorrected hardware memory error in "),
    ("mce_uncorrected", _HARDWARE_ERROR + r"(?:System Fatal error\.|Uncorrected, software (?:restartable|containable) error\.)"),
    ("mce_deferred", _HARDWARE_ERROR + r"Deferred error, no action required\."),
    ("mce_corrected", _HARDWARE_ERROR + r"Corrected error, no action required\."),
    ("mce_logged", r"(?:mce: )?\[Hardware Error\]: Machine check events logged"),
    ("memory_failure", r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for "),
    ("edac_uncorrected", r"EDAC (MC[0-9]{1,4}): (?:[0-9]{1,10} )?UE "),
    ("edac_corrected", r"EDAC (MC[0-9]{1,4}): (?:[0-9]{1,10} )?CE "),
    ("firmware_fatal", _HARDWARE_ERROR + r"event severity: fatal"),
    ("firmware_recoverable", _HARDWARE_ERROR + r"event severity: recoverable"),
    ("firmware_corrected", _HARDWARE_ERROR + r"event severity: (?:corrected|info)"),
    ("oom_cgroup", r"Memory cgroup out of memory: Kill(?:ed)? process [0-9]{1,10},? .{0,20}?\(([^)]{1,16})\)"),
    ("oom_host", r"Out of memory(?: \([\w ]{1,40}\))?: Kill(?:ed)? process [0-9]{1,10},? .{0,20}?\(([^)]{1,16})\)"),
    ("driver_memory", r"NVRM: .{0,80}Out of memory \[NV_ERR_NO_MEMORY\] .{0,20}returned from _?memdescAlloc"),
    ("api_mismatch", r"NVRM: API mismatch: "),
    ("probe_failed", r"nvidia " + _PLACE + r": probe with driver nvidia failed with error"),
    ("probe_failed", r"nvidia: probe of " + _PLACE + r" failed with error"),
    ("other_driver", r"NVRM: The NVIDIA probe routine was not called for [0-9]{1,4} device"),
    ("passed_through", _BOUND + "vfio-pci"),
    # The driver's last word of an attempt that found a driver at every card.
    ("all_passed_through", r"NVRM: No NVIDIA (?:devices|graphics adapter) probed"),
    ("nova", _BOUND + r"(?i:nova)"),
    ("nouveau", _BOUND + "nouveau"),
    ("other_driver", _BOUND),
    ("nouveau", r"nouveau " + _PLACE + r": NVIDIA "),
    ("needs_open_modules", r"NVRM: .{0,120}requires use of the NVIDIA open"),
    ("virtual_with_open", r"NVRM: .{0,120}vGPU .{0,80}is not supported by open"),
    ("needs_proprietary_modules", r"NVRM: .{0,120}is not supported by open"),
    ("only_data_centre", r"NVRM: Open nvidia\.ko is only ready for use on Data Center GPUs"),
    ("card_not_supported", r"NVRM: .{0,120}is not supported by the NVIDIA"),
    ("needs_older_branch", r"NVRM: .{0,120}supported through the NVIDIA .{1,12} Legacy"),
    # gsp_log_….bin is not shipped: it only names what the firmware itself logs.
    ("firmware_missing", r"nvidia " + _PLACE + r": Direct firmware load for nvidia/(?!\S{0,60}/gsp_log_)\S{1,80} failed with error"),
    ("firmware_missing", r"NVRM: RmFetchGspRmImages: No firmware image found"),
    ("other_firmware", _OF_CARD + r"GSP firmware .{0,40}version mismatch: "),
    ("host_memory", r"NVRM: .{0,200}Out of memory \[NV_ERR_NO_MEMORY\] .{0,40}returned from kgsp"),
    ("card_firmware", _OF_CARD + r"(?:failed to wait for GFW|GSP failed to halt with GFW_BOOT)"),
    ("firmware_stuck", _OF_CARD + r"unexpected WPR2 already up"),
    ("vbios", r"NVRM: [Ff]ailed to copy vbios to system memory"),
    ("vbios", _NAMED_CARD + r"Failed to copy vbios to system memory"),
    ("vbios", _OF_CARD + r"(?:did not find valid ROM signature|failed to (?:extract|find|parse|locate) .{0,60}(?:VBIOS|expansion ROM))"),
    ("engine_missing", _OF_CARD + r"missing \w{1,20} engine, cannot initialize GSP-RM"),
    ("firmware_not_started", _OF_CARD + _NOT_BOOTED),
    ("power_cables", _NAMED_CARD + r"GPU does not have the necessary power cables connected"),
    ("registers_taken", r"NVRM: request_mem_region failed for "),
    ("no_interrupt", r"NVRM: Can't find an IRQ for your NVIDIA card"),
    ("no_interrupt", _NAMED_CARD + r"(?:No interrupts of any type are available|request_irq\(\) failed)"),
    ("resized", r"NVRM: (?:FATAL: Failed to re-allocate BAR1|Fatal Error while attempting to resize PCIe BARs)"),
    ("in_use", r"NVRM: Attempting to remove device " + _PLACE + r" with non-zero usage count"),
    ("sleep_not_prepared", _NAMED_CARD + r"PreserveVideoMemoryAllocations module parameter is set\. System Power Management attempted"),
    ("awake", r"nvidia " + _PLACE + r": can't suspend \(nv_pmops_runtime_suspend"),
    ("sleep_refused", r"nvidia " + _PLACE + r": PM: (?:pci_pm_suspend\(\): nv_pmops_suspend|failed to suspend)"),
    ("sleep_refused", r"(?:PM: )?pci_pm_suspend\(\): nv_pmops_suspend.{0,40} returns -"),
    ("bounce_buffers", r"nvidia " + _PLACE + r": swiotlb buffer is full"),
    ("power_state", r"nvidia " + _PLACE + r": (?:Unable to|can't) change power state from (?:D3cold|D3hot|unknown) to D0\b"),
    ("power_state", r"nvidia " + _PLACE + r": Refused to change power state, currently in D3"),
    ("not_ready", r"(?:nvidia|vfio-pci|pci) " + _PLACE + r": not ready [0-9]{1,9}ms after .{1,20}; giving up"),
    ("held_by_screen", r"vfio-pci " + _PLACE + r": BAR [0-9](?: \[[^\]]{1,80}\])?: can't reserve"),
    ("memory_not_assigned", r"NVRM: This PCI I/O region assigned to your NVIDIA device"),
    # Since Linux 5.9; the name of the symbol is in it in newer ones.
    ("gpl_beside_proprietary", r"([\w-]{1,56}): module using GPL-only symbols uses symbols (?:\S{1,128} )?from proprietary module nvidia"),
    ("peermem_mismatch", r"(nvidia[-_]peermem): (?:Unknown symbol |disagrees about version of symbol )ib_"),
    # What comes of it: the modules of the driver that need the one which lacks a symbol.
    ("module_not_loaded", r"nvidia[\w-]{1,24}: Unknown symbol nv[A-Z]\w{1,80} \(err (?:-2|0)\)"),
    ("symbol_missing", _NVIDIA_MODULE + r"Unknown symbol " + _KERNELS_OWN + r"\w{0,80} \(err (?:-2|0)\)"),
    ("module_mismatch", _NVIDIA_MODULE + r"(?:Unknown symbol |disagrees about version of symbol |exports duplicate symbol )"),
    ("module_mismatch", r"(?:module: )?module (nvidia[\w-]{0,24}): \.gnu\.linkonce\.this_module section size must match "),
    ("two_modules", r"nvidia-modeset: Version mismatch: "),
    ("two_modules", r"\[drm.{0,80}\] \*ERROR\* \[nvidia-drm\] .{0,40}Version mismatch: "),
    ("display_stuck", r"\[drm.{0,80}\] \*ERROR\* \[nvidia-drm\] .{0,40}Flip event timeout on head"),
    ("display_stuck", r"nvidia-modeset: ERROR: GPU:[0-9]{1,3}: (?:Idling display engine timed out|Error while waiting for GPU progress)"),
    ("module_blocked", r"(?:module: )?Module (nvidia[\w-]{0,24}) is blacklisted"),
    ("other_kernel", r"nvidia[\w-]{0,24}: version magic '(\S{1,80}) "),
    ("key_not_trusted", r"Loading of module with unavailable key is rejected"),
    ("module_refused", r"Loading of unsigned module is rejected"),
    ("module_refused", r"Lockdown: \S{1,16}: unsigned module loading is restricted"),
    ("uvm_fatal", r"nvidia-uvm: .{0,200}Encountered a global fatal error"),
    ("no_room_for_pages", r"nvidia-uvm: .{0,120}request_free_mem_region\(\) err -"),
    ("slept", r"PM: (?:suspend exit|hibernation: hibernation exit|hibernation exit)"),
    # As it is called after an assertion or a check that failed; the driver's other words of this kind come with an Xid or have a row.
    ("reset_required", r"NVRM: .{0,200}\[NV_ERR_RESET_REQUIRED\]"),
    ("peermem_context", r"nvidia-peermem \S{1,60} ERROR detected invalid context"),
    ("own_oops", _FELL_OVER + _KERNELS_MODULE),
    ("kernel_oops", _FELL_OVER + r"\[(nvidia[\w-]{0,24}|nvgpu)\]"),
    ("display_refused", r"WARNING: .{0,80}\bdrm_open_helper\+0x"),
    ("no_endbr", r"(?:traps: )?Missing ENDBR: \S{1,160} \[(nvidia[\w-]{0,24})\]"),
    ("iommu_fault", r"AMD-Vi: Event logged \[IO_PAGE_FAULT device=" + _SHORT_PLACE + " "),
    ("iommu_fault", _DEVICE + r"AMD-Vi: Event logged \[IO_PAGE_FAULT "),
    ("iommu_fault", r"DMAR: \[(?:DMA|INTR)[^\]]{1,30}\] Request device \[" + _SHORT_PLACE + r"\] fault "),
    ("adapter_power", _ADAPTER + r"mlx5_pcie_event:.{0,60}Detected insufficient power on the PCIe slot"),
    ("adapter_heat", _ADAPTER + r"Port module event\[error\]: .{0,80}High Temperature"),
    ("adapter_cable", _ADAPTER + r"Port module event\[error\]: "),
    ("adapter_silent", _ADAPTER + r"\w{1,40}:.{0,40}timeout\. Will cause a leak of a command resource"),
    ("adapter_fatal", _ADAPTER + r"(?:\w{1,40}:.{0,40})?(?:Fatal error [0-9]|device's health compromised)"),
    ("read_only", r"\S{1,16} \(" + _DISK + r"\): Remounting filesystem read-only"),
    ("read_only", r"XFS \(" + _DISK + r"\): Filesystem has been shut down"),
    ("read_only", r"BTRFS \w{1,12} \(device " + _DISK + r"[^)]{0,40}\): forced readonly"),
    ("file_system", r"EXT4-fs error \(device " + _DISK + r"\): "),
    ("file_system", r"XFS \(" + _DISK + r"\): (?:Metadata (?:corruption|CRC error) detected|Corruption (?:detected|of in-memory data))"),
    ("io_error", r"Buffer I/O error on dev(?:ice)? " + _DISK + r", logical block"),
    ("io_error", r"(?:\S{1,40}: )?(?:I/O|critical \w{1,12}) error, dev " + _DISK + r", sector "),
    ("io_error", r"\S{1,16} \(" + _DISK + r"\): I/O error while writing superblock"),
    ("nvme_timeout", _NVME + r"I/O .{1,80}timeout, (?:reset|disable) controller"),
    ("nvme_timeout", _NVME + r"controller is down; will reset"),
    ("nvme_slow", _NVME + r"I/O .{1,80}timeout, (?:aborting|completion polled)"),
    ("nvme_gone", _NVME + r"(?:Disabling device after reset failure|Removing after probe failure)"),
    ("nvme_gone", r"block (nvme[0-9]{1,5})\w{0,12}: no available path - failing I/O"),
    ("raid_disk_failed", r"md/raid[^ ]{0,40}: Disk failure on " + _DISK),
    ("nfs_not_responding", r"nfs: server (\S{1,255}) not responding"),
    ("nfs_lock_lost", r"(?:NFS: )?nfs4_reclaim_open_state: Lock reclaim failed"),
    ("soft_lockup", r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#[0-9]{1,5} stuck for [0-9]{1,9}s! \[(.{1,24}):[0-9]{1,10}\]"),
    ("hard_lockup", r"(?:NMI )?watchdog: (?:CPU[0-9]{1,5}: )?Watchdog detected hard LOCKUP on cpu ?([0-9]{1,5})"),
    ("hung_task", r"INFO: task (.{1,24}):[0-9]{1,10} blocked (?:in I/O wait |on \w{1,10} )?for more than [0-9]{1,9} seconds"),
    ("rcu_stall", r"(?:rcu: )?INFO: \w{1,24} (?:self-)?detected (?:expedited )?stalls? on CPU"),
)  # fmt: skip
#: What tells again of what another line told; it counts where that line was lost.
_REPEATS: Tuple[Tuple[str, str], ...] = (
    ("aer_corrected", _ANNOUNCED % _CORRECTED),
    ("aer_nonfatal", _ANNOUNCED % _NONFATAL),
    ("aer_fatal", _ANNOUNCED % _FATAL),
    ("probe_failed", r"NVRM: The NVIDIA probe routine failed for [0-9]{1,4} device"),
)
_ALL = _PATTERNS + _REPEATS
# One pattern of all: a log has many lines, and each is asked once.
_ANY = re.compile("|".join(f"(?P<p{number}>{pattern})" for number, (_name, pattern) in enumerate(_ALL)))
_HAS_SUBJECT = tuple(re.compile(pattern).groups > 0 for _name, pattern in _ALL)
#: The names that a row has to have.
NAMES = frozenset(name for name, _pattern in _PATTERNS)
#: Of the driver's modules: past when the driver is loaded anew.
_OF_MODULE = frozenset(
    (
        *("api_mismatch", "probe_failed", "other_driver", "nouveau", "needs_open_modules", "card_not_supported"),
        *("memory_not_assigned", "module_mismatch", "module_refused", "uvm_fatal", "firmware_missing", "host_memory"),
        *("passed_through", "nova", "needs_older_branch", "peermem_mismatch", "key_not_trusted"),
        *("needs_proprietary_modules", "only_data_centre", "card_firmware", "firmware_stuck", "other_kernel"),
        *("virtual_with_open", "other_firmware", "vbios", "firmware_not_started", "power_cables", "registers_taken"),
        *("no_interrupt", "resized", "two_modules", "module_blocked", "all_passed_through"),
        *("engine_missing", "module_not_loaded", "symbol_missing", "reset_required", "no_room_for_pages", "slept"),
        "gpl_beside_proprietary",
    )
)
_ANSWERED = re.compile(r"nfs: server (\S{1,255}) OK")
# Before the line that names the program; before Linux 5.0 in words.
_OOM_BEGINS = ("oom-kill:", "Task in ")
_OF_CGROUP = re.compile(
    r"(?:oom-kill:constraint=.{0,300}?,oom_memcg=|Task in \S{1,200} killed as a result of limit of )([^,\s]{1,200})(?:,|\s|$)"
)
_CARD = re.compile(r"NVRM: The NVIDIA (?:v?GPU )?" + _PLACE)
#: The driver breaks a sentence into lines: so many more belong to it.
_GOES_ON = {
    "api_mismatch": 2,
    "other_driver": 2,
    "memory_not_assigned": 1,
    "no_interrupt": 3,
    "registers_taken": 2,
    "needs_proprietary_modules": 2,
    "virtual_with_open": 2,
    "card_not_supported": 2,
    "needs_older_branch": 2,
}
# What the driver names as the holder of a card, before it says of how many it was not called.
_HOLDERS = frozenset(("passed_through", "nova", "nouveau", "other_driver"))
#: Why a card could not be started: the line that says which one comes after.
_OF_START = frozenset(
    (
        *("firmware_missing", "host_memory", "card_firmware", "firmware_stuck", "only_data_centre", "other_firmware"),
        *("vbios", "firmware_not_started", "registers_taken", "no_interrupt", "resized", "engine_missing"),
    )
)
_NOT_STARTED = re.compile(
    r"NVRM: GPU[ -](?:at )?(?P<card>"
    + _PLACE[1:-1]
    + r"):? RmInitAdapter failed\b|nvidia(?:: probe of)? (?P<probed>"
    + _PLACE[1:-1]
    + r"):? .{0,30}failed with error"
)
_NVRM = "NVRM: "
# What a sentence says of the card that it begins with.
_OF_SENTENCE = frozenset(("needs_open_modules", "needs_proprietary_modules", "card_not_supported", "virtual_with_open"))
_ENDS = (".", "!")
_BAR = re.compile(r"\(PCI:" + _PLACE + r"\)")
# What the kernel says before the call trace of a fault of its own (arch/x86/mm/fault.c, traps.c, arch/arm64/mm/fault.c); a warning has a
# trace too.
_OOPS = re.compile(
    r"(?:Internal error: )?Oops|BUG: (?:unable to handle|kernel NULL)|kernel BUG at |general protection fault|Unable to handle kernel "
)
_OOPS_LINES = 40
_OF_OOPS = frozenset(("kernel_oops", "own_oops"))


class Fault(TypedDict):
    """What one name told of one subject: how often, and the words of the last one."""

    name: str
    subject: str
    count: int
    message: str


class Faults(TypedDict):
    """What :func:`faults` returns; ``more_faults``: how many could not be told apart, beyond :data:`MOST_FAULTS`."""

    faults: List[Fault]
    more_faults: int


class _Told(NamedTuple):
    """What a line tells; ``repeats``: another line has told it, where none was lost."""

    name: str
    subject: str
    repeats: bool


def faults(lines: Sequence[str]) -> Faults:
    """The faults of a log. ``subject`` is what a line speaks of: a device, a disk, a program, a server; empty where it names none.

    A file server that did not answer is none where it has answered since. What the driver's modules said before the driver was loaded last
    is past.
    """
    reader = _Reader()
    for line in lines:
        for words in _words(line):
            reader.read(words)
    return {"faults": list(reader.found.values()), "more_faults": reader.more}


def _words(line: str) -> Iterator[str]:
    """The kernel's own words in a line, without what stands before them. /dev/kmsg shows several lines as one."""
    for part in line.split("\\x0a") if "\\x0a" in line else (line,):
        before = _BEFORE.match(part)
        yield part[before.end() if before else 0 :][:_LONGEST]


def _told(words: str) -> Optional[_Told]:
    match = _ANY.match(words)
    if match is None or match.lastgroup is None or match.lastindex is None:
        return None
    number = int(match.lastgroup[1:])
    subject = match[match.lastindex + 1] if _HAS_SUBJECT[number] else ""
    return _Told(_ALL[number][0], document.normalise_bus_id(subject), number >= len(_PATTERNS))


class _Reader:
    """Goes through a log, and keeps what it found in the order in which it came first."""

    def __init__(self) -> None:
        self.found: Dict[Tuple[str, str], Fault] = {}
        self.more = 0
        # What came since the driver began to load.
        self._while_loading: Dict[Tuple[str, str], Fault] = {}
        # The fault that the driver's next lines go on with, and how many of them.
        self._sentence: Optional[Fault] = None
        self._left = 0
        self._card = self._cgroup = self._said = ""
        self._oops = 0
        self._nouveau: Optional[Tuple[str, str]] = None
        # Of a card that the driver has not named yet.
        self._unnamed: List[Fault] = []

    def read(self, words: str) -> None:
        """Take a line in."""
        if self._goes_on(words):
            return
        self._remember(words)
        said = self._together(words)
        whole = _told(said) if said != words else None
        told = whole or _told(words)
        if told is None or self._is_none(told):
            return
        self._said = ""
        name, subject, message = self._named(told, said if whole else words)
        if told.repeats and any(key[0] == name and subject in ("", key[1]) for key in self.found):
            return
        fault = self._add(name, subject, message)
        self._sentence, self._left = fault, 0 if told.subject else _GOES_ON.get(name, 0)
        if fault is not None and name in _OF_START and not subject and fault not in self._unnamed:
            self._unnamed.append(fault)

    def _is_none(self, told: _Told) -> bool:
        """Whether what a line tells is no fault by the lines before it."""
        if told.name == "other_driver" and not told.subject:
            return any(name in _HOLDERS and subject for name, subject in self._while_loading)
        if told.name == "all_passed_through":
            return {name for name, _subject in self._while_loading if name in _HOLDERS} != {"passed_through"}
        return told.name in _OF_OOPS and not self._oops

    def _together(self, words: str) -> str:
        """A line of the driver's with those before it, as far as they are one sentence."""
        if not words.startswith(_NVRM):
            self._said = ""
            return words
        more = words[len(_NVRM) :].strip()
        goes_on = bool(self._said) and not self._said.endswith(_ENDS)
        self._said = f"{self._said} {more}"[:_LONGEST] if goes_on else _NVRM + more
        return self._said

    def _goes_on(self, words: str) -> bool:
        if not self._left or self._sentence is None or not words.startswith(_NVRM):
            self._left = 0
            return False
        self._left -= 1
        self._sentence["message"] = f"{self._sentence['message'].rstrip()} {words[len(_NVRM) :].strip()}"[:_LONGEST]
        place = _BAR.search(words)
        if place and not self._sentence["subject"]:
            self._belongs(self._sentence, document.normalise_bus_id(place[1]))
        return True

    def _belongs(self, fault: Fault, subject: str) -> None:
        """Say of which card a fault is, by what follows it."""
        name = fault["name"]
        known = self.found.get((name, subject))
        if known is not None:
            known["count"] += fault["count"]
            known["message"] = fault["message"]
            del self.found[name, ""]
            self._while_loading.pop((name, ""), None)
            self._while_loading[name, subject] = known
            return
        for rows in (self.found, self._while_loading):
            if rows.get((name, "")) is fault:
                rows[name, subject] = rows.pop((name, ""))
        fault["subject"] = subject

    def _remember(self, words: str) -> None:
        """What a line says of others before or after it."""
        self._oops = _OOPS_LINES if _OOPS.match(words) else max(self._oops - 1, 0)
        if kernel_log.BEGINS in words:
            self._while_loading = {}
        elif kernel_log.LOADED in words:
            past = [key for key in self.found if key[0] in _OF_MODULE and key not in self._while_loading]
            for key in past:
                del self.found[key]
            self._while_loading = {}
        elif words.startswith(_OOM_BEGINS):
            cgroup = _OF_CGROUP.match(words)
            self._cgroup = cgroup[1] if cgroup else ""
        elif words.startswith("nfs: "):
            answered = _ANSWERED.match(words)
            if answered:
                self.found.pop(("nfs_not_responding", answered[1]), None)
        else:
            not_started = _NOT_STARTED.match(words)
            if not_started:
                for fault in self._unnamed:
                    self._belongs(fault, document.normalise_bus_id(not_started["card"] or not_started["probed"]))
                self._unnamed = []
            card = _CARD.match(words)
            self._card = document.normalise_bus_id(card[1]) if card else self._card

    def _named(self, told: _Told, words: str) -> Tuple[str, str, str]:
        """Name, subject and message, with what the lines before add."""
        if told.name == "nouveau":
            self._nouveau = (told.subject, words)
        if told.name == "other_driver" and not told.subject and self._nouveau:
            return ("nouveau", *self._nouveau)
        if told.name in _OF_SENTENCE:
            return told.name, self._card, words
        if told.name == "oom_cgroup" and self._cgroup:
            return told.name, told.subject, f"{words[:200]} (limit of {self._cgroup})"
        return told.name, told.subject, words

    def _add(self, name: str, subject: str, message: str) -> Optional[Fault]:
        key = (name, subject)
        fault = self.found.get(key)
        if fault is None and len(self.found) >= MOST_FAULTS:
            self.more += 1
            return None
        if fault is None:
            fault = self.found[key] = {"name": name, "subject": subject, "count": 0, "message": ""}
        fault["count"] += 1
        fault["message"] = message
        if name in _OF_MODULE:
            self._while_loading[key] = fault
        return fault
