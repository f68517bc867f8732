# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NVIDIA's DCGM knows of errors: those that its diagnostic finds on a card, and those with which ``dcgmi`` ends.

Numbers, names and severities are those of DCGM 4.6.0 (https://github.com/NVIDIA/DCGM at 72fa3fe: dcgmlib/dcgm_errors.h,
dcgmlib/src/dcgm_errors.c and dcgmlib/dcgm_structs.h). A number never changes its meaning there ("new error codes must be added to end of
enum"). The numbers of the severities did, between 3.1 and 3.3, so what an answer itself calls ``error_severity`` is not looked at.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, NamedTuple, Optional

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks


class Deed(NamedTuple):
    """What is done about an error: one of the actions of a check, and in words."""

    action: str
    remedy: str


_WATCH = Deed("none", "watch the card: by DCGM's table it can still do its work")
_RESTART_APP = Deed("restart_app", "stop what runs on the card, then prove again")
_RESET = Deed(
    "reset_gpu",
    "stop what runs on the card, reset it ('nvidia-smi --gpu-reset -i N') or reboot, then prove again; if it comes back, run NVIDIA's "
    "field diagnostic",
)
_REBOOT = Deed("reboot", "reboot the host, then prove again")
_RESTART_SERVICE = Deed(
    "restart_service",
    "look at the service that the error speaks of (fabric manager, IMEX, nv-hostengine) and its log, and restart it",
)
_INSTALL = Deed(
    "install",
    "have the driver and its libraries in one version (the check driver.version_match says how), then prove again",
)
_CONFIGURE = Deed("configure", "correct the setting that the error names, then prove again")
_INSPECT = Deed(
    "check_hardware",
    "take the card out of use, check its cooling, power and seating, and run NVIDIA's field diagnostic on it",
)
_REPORT = Deed("contact_support", "capture nvidia-bug-report.sh and hand it to the card's vendor")


class Error(NamedTuple):
    """An error that the diagnostic finds."""

    name: str
    """Its name in DCGM, without ``DCGM_FR_``."""
    grade: str
    """DCGM's own severity; :data:`SEVERITIES` says what it means for a check."""
    deed: Deed
    """By what its message suggests."""


#: The severity of a check by that of DCGM: ``monitor`` "can perform workload", ``isolate`` "cannot perform workload", ``triage`` "should be
#: triaged", ``config`` "can be configured", ``reset`` "drain and reset".
SEVERITIES: Dict[str, str] = {
    "monitor": "warning",
    "config": "warning",
    "triage": "critical",
    "reset": "critical",
    "unknown": "critical",
    "isolate": "fatal",
}

ERRORS: Dict[int, Error] = {
    0: Error("OK", "unknown", _REPORT),
    1: Error("UNKNOWN", "unknown", _REPORT),
    2: Error("UNRECOGNIZED", "unknown", _REPORT),
    3: Error("PCI_REPLAY_RATE", "isolate", _INSPECT),
    4: Error("VOLATILE_DBE_DETECTED", "isolate", _RESET),
    5: Error("VOLATILE_SBE_DETECTED", "monitor", _WATCH),
    6: Error("PENDING_PAGE_RETIREMENTS", "reset", _RESET),
    7: Error("RETIRED_PAGES_LIMIT", "isolate", _INSPECT),
    8: Error("RETIRED_PAGES_DBE_LIMIT", "isolate", _INSPECT),
    9: Error("CORRUPT_INFOROM", "triage", _REPORT),
    10: Error("CLOCKS_EVENT_THERMAL", "monitor", _INSPECT),
    11: Error("POWER_UNREADABLE", "monitor", _WATCH),
    12: Error("CLOCKS_EVENT_POWER", "monitor", _WATCH),
    13: Error("NVLINK_ERROR_THRESHOLD", "isolate", _INSPECT),
    14: Error("NVLINK_DOWN", "triage", _RESET),
    15: Error("NVSWITCH_FATAL_ERROR", "isolate", _INSPECT),
    16: Error("NVSWITCH_NON_FATAL_ERROR", "monitor", _WATCH),
    17: Error("NVSWITCH_DOWN", "monitor", _WATCH),
    18: Error("NO_ACCESS_TO_FILE", "config", _CONFIGURE),
    19: Error("NVML_API", "monitor", _WATCH),
    20: Error("DEVICE_COUNT_MISMATCH", "config", _CONFIGURE),
    21: Error("BAD_PARAMETER", "unknown", _REPORT),
    22: Error("CANNOT_OPEN_LIB", "triage", _INSTALL),
    23: Error("DENYLISTED_DRIVER", "config", _CONFIGURE),
    24: Error("NVML_LIB_BAD", "isolate", _INSTALL),
    25: Error("GRAPHICS_PROCESSES", "reset", _RESTART_APP),
    26: Error("HOSTENGINE_CONN", "monitor", _RESTART_SERVICE),
    27: Error("FIELD_QUERY", "monitor", _WATCH),
    28: Error("BAD_CUDA_ENV", "config", _CONFIGURE),
    29: Error("PERSISTENCE_MODE", "config", _CONFIGURE),
    30: Error("LOW_BANDWIDTH", "triage", _INSPECT),
    31: Error("HIGH_LATENCY", "triage", _INSPECT),
    32: Error("CANNOT_GET_FIELD_TAG", "monitor", _WATCH),
    33: Error("FIELD_VIOLATION", "isolate", _INSPECT),
    34: Error("FIELD_THRESHOLD", "monitor", _WATCH),
    35: Error("FIELD_VIOLATION_DBL", "isolate", _INSPECT),
    36: Error("FIELD_THRESHOLD_DBL", "isolate", _INSPECT),
    37: Error("UNSUPPORTED_FIELD_TYPE", "triage", _RESET),
    38: Error("FIELD_THRESHOLD_TS", "isolate", _INSPECT),
    39: Error("FIELD_THRESHOLD_TS_DBL", "isolate", _INSPECT),
    40: Error("THERMAL_VIOLATIONS", "monitor", _INSPECT),
    41: Error("THERMAL_VIOLATIONS_TS", "monitor", _INSPECT),
    42: Error("TEMP_VIOLATION", "monitor", _INSPECT),
    43: Error("CLOCKS_EVENT_VIOLATION", "monitor", _WATCH),
    44: Error("INTERNAL", "triage", _RESET),
    45: Error("PCIE_GENERATION", "triage", _RESET),
    46: Error("PCIE_WIDTH", "config", _CONFIGURE),
    47: Error("ABORTED", "config", _CONFIGURE),
    48: Error("TEST_DISABLED", "config", _CONFIGURE),
    49: Error("CANNOT_GET_STAT", "triage", _RESTART_SERVICE),
    50: Error("STRESS_LEVEL", "triage", _RESET),
    51: Error("CUDA_API", "monitor", _WATCH),
    52: Error("FAULTY_MEMORY", "isolate", _INSPECT),
    53: Error("CANNOT_SET_WATCHES", "monitor", _WATCH),
    54: Error("CUDA_UNBOUND", "triage", _RESET),
    55: Error("ECC_DISABLED", "config", _CONFIGURE),
    56: Error("MEMORY_ALLOC", "triage", _RESET),
    57: Error("CUDA_DBE", "isolate", _INSPECT),
    58: Error("MEMORY_MISMATCH", "isolate", _INSPECT),
    59: Error("CUDA_DEVICE", "triage", _INSTALL),
    60: Error("ECC_UNSUPPORTED", "config", _CONFIGURE),
    61: Error("ECC_PENDING", "monitor", _REBOOT),
    62: Error("MEMORY_BANDWIDTH", "triage", _RESET),
    63: Error("TARGET_POWER", "triage", _INSPECT),
    64: Error("API_FAIL", "triage", _RESET),
    65: Error("API_FAIL_GPU", "triage", _RESET),
    66: Error("CUDA_CONTEXT", "triage", _INSTALL),
    67: Error("DCGM_API", "triage", _RESET),
    68: Error("CONCURRENT_GPUS", "config", _CONFIGURE),
    69: Error("TOO_MANY_ERRORS", "monitor", _WATCH),
    70: Error("NVLINK_CRC_ERROR_THRESHOLD", "isolate", _INSPECT),
    71: Error("NVLINK_ERROR_CRITICAL", "isolate", _INSPECT),
    72: Error("ENFORCED_POWER_LIMIT", "config", _CONFIGURE),
    73: Error("MEMORY_ALLOC_HOST", "triage", _REBOOT),
    74: Error("GPU_OP_MODE", "monitor", _WATCH),
    75: Error("NO_MEMORY_CLOCKS", "monitor", _WATCH),
    76: Error("NO_GRAPHICS_CLOCKS", "monitor", _WATCH),
    77: Error("HAD_TO_RESTORE_STATE", "triage", _RESET),
    78: Error("L1TAG_UNSUPPORTED", "config", _CONFIGURE),
    79: Error("L1TAG_MISCOMPARE", "isolate", _INSPECT),
    80: Error("ROW_REMAP_FAILURE", "reset", _RESET),
    81: Error("UNCONTAINED_ERROR", "isolate", _RESET),
    82: Error("EMPTY_GPU_LIST", "config", _CONFIGURE),
    83: Error("DBE_PENDING_PAGE_RETIREMENTS", "reset", _RESET),
    84: Error("UNCORRECTABLE_ROW_REMAP", "reset", _RESET),
    85: Error("PENDING_ROW_REMAP", "reset", _RESET),
    86: Error("BROKEN_P2P_MEMORY_DEVICE", "isolate", _REPORT),
    87: Error("BROKEN_P2P_WRITER_DEVICE", "isolate", _REPORT),
    88: Error("NVSWITCH_NVLINK_DOWN", "isolate", _INSPECT),
    89: Error("EUD_BINARY_PERMISSIONS", "triage", _CONFIGURE),
    90: Error("EUD_NON_ROOT_USER", "triage", _CONFIGURE),
    91: Error("EUD_SPAWN_FAILURE", "triage", _RESET),
    92: Error("EUD_TIMEOUT", "triage", _RESET),
    93: Error("EUD_ZOMBIE", "triage", _RESET),
    94: Error("EUD_NON_ZERO_EXIT_CODE", "triage", _RESET),
    95: Error("EUD_TEST_FAILED", "isolate", _INSPECT),
    96: Error("FILE_CREATE_PERMISSIONS", "config", _CONFIGURE),
    97: Error("PAUSE_RESUME_FAILED", "triage", _RESET),
    98: Error("PCIE_H_REPLAY_VIOLATION", "isolate", _INSPECT),
    99: Error("GPU_EXPECTED_NVLINKS_UP", "triage", _RESTART_SERVICE),
    100: Error("NVSWITCH_EXPECTED_NVLINKS_UP", "triage", _RESTART_SERVICE),
    101: Error("XID_ERROR", "triage", _RESET),
    102: Error("SBE_VIOLATION", "isolate", _INSPECT),
    103: Error("DBE_VIOLATION", "isolate", _INSPECT),
    104: Error("PCIE_REPLAY_VIOLATION", "isolate", _INSPECT),
    105: Error("SBE_THRESHOLD_VIOLATION", "isolate", _INSPECT),
    106: Error("DBE_THRESHOLD_VIOLATION", "isolate", _INSPECT),
    107: Error("PCIE_REPLAY_THRESHOLD_VIOLATION", "isolate", _INSPECT),
    108: Error("CUDA_FM_NOT_INITIALIZED", "monitor", _RESTART_SERVICE),
    109: Error("SXID_ERROR", "isolate", _INSPECT),
    110: Error("GFLOPS_THRESHOLD_VIOLATION", "triage", _RESET),
    111: Error("NAN_VALUE", "isolate", _INSPECT),
    112: Error("FABRIC_MANAGER_TRAINING_ERROR", "config", _RESTART_SERVICE),
    113: Error("BROKEN_P2P_PCIE_MEMORY_DEVICE", "isolate", _REPORT),
    114: Error("BROKEN_P2P_PCIE_WRITER_DEVICE", "isolate", _REPORT),
    115: Error("BROKEN_P2P_NVLINK_MEMORY_DEVICE", "isolate", _REPORT),
    116: Error("BROKEN_P2P_NVLINK_WRITER_DEVICE", "isolate", _REPORT),
    117: Error("TEST_SKIPPED", "config", _CONFIGURE),
    118: Error("SRAM_THRESHOLD", "isolate", _INSPECT),
    119: Error("NVLINK_EFFECTIVE_BER_THRESHOLD", "isolate", _INSPECT),
    120: Error("FALLEN_OFF_BUS", "isolate", _INSPECT),
    121: Error("NVLINK_SYMBOL_BER_THRESHOLD", "isolate", _INSPECT),
    122: Error("IMEX_UNHEALTHY", "isolate", _RESTART_SERVICE),
    123: Error("FABRIC_PROBE_STATE", "monitor", _RESTART_SERVICE),
    124: Error("BINARY_PERMISSIONS", "triage", _CONFIGURE),
    125: Error("GPU_RECOVERY_RESET", "reset", _RESET),
    126: Error("GPU_RECOVERY_REBOOT", "isolate", _REBOOT),
    127: Error("GPU_RECOVERY_DRAIN_P2P", "reset", _RESET),
    128: Error("GPU_RECOVERY_DRAIN_RESET", "reset", _RESET),
    129: Error("NCCL_ERROR", "reset", _RESET),
    130: Error("RETEST_REQUESTED", "triage", _RESET),
    131: Error("CONTAINED_ERROR", "monitor", _RESTART_APP),
    132: Error("UNCORRECTABLE_ROW_REMAP_LIMIT", "triage", _INSPECT),
}

UNKNOWN = ERRORS[1]
"""What an error counts as that has no number, or one of a later DCGM."""

SILENT = Error("no reason", "triage", _INSPECT)
"""What a test counts as that fails and tells of no error."""

#: The test does not apply to this card or this host: it is switched off for it, or needs what the card has not (ECC, a second card).
NOT_APPLICABLE: FrozenSet[int] = frozenset((48, 55, 60, 68, 78, 117))
#: The test came to no answer: it was ended, had no card, had no memory, or its EUD was not begun as root. Issue 284 of DCGM: a memory test
#: that could not allocate its memory ends with "Pass".
NOT_MEASURED: FrozenSet[int] = frozenset((47, 56, 72, 73, 82, 90, 130))


class Ending(NamedTuple):
    """An exit status of dcgmi. ``status`` is that of the check: ``fail``, ``incomplete`` or ``skip``."""

    cause: str
    action: Optional[str]
    remedy: Optional[str]
    status: str = "incomplete"
    severity: str = "critical"


_ENGINE = "look at 'systemctl status nvidia-dcgm' and the log of nv-hostengine below /var/log, and restart the service"
_AGAIN = "wait until it has ended, then prove again"
_FIELD_DIAGNOSTIC = "take the card out of use and run NVIDIA's field diagnostic on it, or hand it to its vendor"

#: By the exit status, which is DCGM's negative number as a program can give it: 226 is -30, 205 is -51 (issue 158 of DCGM).
ENDINGS: Dict[int, Ending] = {
    190: Ending("the diagnostic was stopped", None, "prove again"),
    189: Ending("the cards are detached from DCGM", "restart_service", _ENGINE),
    198: Ending(
        "DCGM knows none of the tests", "install", "install the diagnostic of DCGM of the version of its library"
    ),
    199: Ending(
        "the driver did not answer DCGM in time",
        "reboot",
        "look in the kernel log for Xid 79 and 119, and reboot the host",
    ),
    200: Ending("DCGM could not load NVML", "install", checks.again("libnvidia-ml.so.1")),
    202: Ending("DCGM is paused", "restart_service", _ENGINE),
    203: Ending("the diagnostic was killed", None, "look in the kernel log for a lack of memory, then prove again"),
    204: Ending(
        "the program of the diagnostic (nvvs) is not installed",
        "install",
        "install the parts of DCGM that have the tests, for the CUDA major version of the driver",
    ),
    205: Ending(
        "DCGM says that a card cannot do its work", "check_hardware", _FIELD_DIAGNOSTIC, status="fail", severity="fatal"
    ),
    212: Ending("the driver is too old for this DCGM", "install", "install the DCGM that goes with the driver"),
    215: Ending("the diagnostic could not be begun", "restart_service", _ENGINE),
    216: Ending("the diagnostic gave DCGM an answer that it cannot read", "restart_service", _ENGINE),
    217: Ending("another diagnostic runs already", None, _AGAIN),
    221: Ending("DCGM has no card to test", "check_hardware", "compare 'dcgmi discovery -l' with 'nvidia-smi -L'"),
    222: Ending("a card is in use", None, "stop what runs on the cards, then prove again"),
    223: Ending("the part of DCGM that tests is not loaded", "restart_service", _ENGINE),
    226: Ending(
        "DCGM says that the diagnostic found an error",
        "check_hardware",
        "read nvvs.log below /var/log, then run it again by hand",
    ),
    227: Ending("the host engine does not run as root", "configure", "run nv-hostengine as root"),
    233: Ending(
        "the cards are not all of one model, and the diagnostic tests only such",
        "configure",
        "name the cards of one model in the option cards, and the others in another call",
    ),
    234: Ending("DCGM does not support these cards", None, None, status="skip"),
    235: Ending("the connection with the host engine broke", "restart_service", _ENGINE),
    237: Ending(
        "a card needs a reset",
        "reset_gpu",
        "stop what runs on it, then 'nvidia-smi --gpu-reset -i N' or reboot",
        status="fail",
    ),
    238: Ending(
        "a card is lost: it fell off the PCIe bus",
        "check_hardware",
        "power the host off and on (a reboot alone may not bring it back), then check seating, power cables and heat",
        status="fail",
        severity="fatal",
    ),
    239: Ending("DCGM was not permitted to ask", "configure", "run as root"),
    241: Ending("DCGM has no data", "restart_service", _ENGINE),
    244: Ending("dcgmi and the host engine are of different versions", "restart_service", _ENGINE),
    245: Ending("the diagnostic took longer than its own limit", "reboot", "look in the kernel log for Xid 79 and 119"),
    248: Ending("NVML answered DCGM with an error", "configure", "look at what nvidia-smi says"),
    249: Ending("DCGM could not begin", "restart_service", _ENGINE),
    250: Ending("DCGM has no diagnostic for these cards or this driver", None, None, status="skip"),
    254: Ending("dcgmi refused its arguments", "install", "update DCGM: this dcgmi is too old"),
    255: Ending("dcgmi refused a value of its arguments", "configure", "compare the cards with 'dcgmi discovery -l'"),
}
