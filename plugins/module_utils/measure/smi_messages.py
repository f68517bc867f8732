# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What nvidia-smi means when it does not answer: exit codes and sentences, each with a cause and a remedy.

The sentences stand mostly on stdout. Exit codes 2 to 15 are those of nvidia-smi's manual page; 18 and 255 are from
reports of users. Text is looked at before the code: the same code stands for several causes, and rc 0 may come with an
error sentence (one lost card among good ones).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import SmiData

SLOW_SECONDS = 10.0
"""An answer that takes longer is a warning: a healthy driver answers in about one second a card."""


class Trouble(NamedTuple):
    """Why nvidia-smi gave no good answer. ``status`` is that of the check: ``fail`` or ``incomplete``."""

    cause: str
    action: str
    remedy: str
    status: str = "fail"
    severity: str = "critical"


NOT_INSTALLED = Trouble(
    "nvidia-smi is not installed on this host",
    "install",
    f"{checks.again('nvidia-smi')}, in the version of the kernel module, then prove again",
    "incomplete",
)
NOT_EXECUTABLE = Trouble(
    "nvidia-smi may not be executed",
    "configure",
    "check the mode of the file, its directories and the mount options (noexec)",
    "incomplete",
)
WRONG_FORMAT = Trouble(
    "the file nvidia-smi is no program of this machine: it is damaged, or made for another architecture",
    "install",
    checks.again("nvidia-smi"),
    "incomplete",
)
HANGS = Trouble(
    "nvidia-smi did not answer in time: the driver or a card hangs",
    "reboot",
    "look in the kernel log for Xid 79 or 119 and for processes in state D; reboot the host, and if it comes back, "
    "power it off and inspect the card",
)

_RELOAD = "reboot the host: the packages were upgraded under a loaded kernel module"

# (what to look for, trouble); the first match decides, so the more telling sentence stands first.
_SENTENCES: Tuple[Tuple[str, Trouble], ...] = (
    (
        r"gpu access blocked by the operating system",
        Trouble(
            "the operating system keeps the GPU from this environment (WSL)",
            "configure",
            "update the NVIDIA driver on the Windows side, set its driver model to WDDM where it is TCC (nvidia-smi -dm 0, "
            "there), and run 'wsl --shutdown'; no driver is installed inside WSL",
        ),
    ),
    (
        r"insufficient external power|power cables? (?:are|is) not|necessary power cables",
        Trouble(
            "the external power cables of a card are not attached",
            "check_hardware",
            "power the host off and plug in every power connector of the card, each by a cable of its own",
        ),
    ),
    (
        r"error while loading shared libraries: \S{1,80}: (?:file too short|invalid ELF header|cannot read file data)",
        Trouble(
            "a library of the driver is damaged, as after an installation that was cut off or on a full disk",
            "install",
            f"make room where it lies, then {checks.again('that library')}, and run ldconfig",
        ),
    ),
    (
        r"error while loading shared libraries: libnvidia-ml",
        Trouble(
            "libnvidia-ml.so.1 is missing or not on the library path",
            "install",
            f"{checks.again('libnvidia-ml.so.1')}, and run ldconfig",
        ),
    ),
    (
        r"version `?GLIBC(?:XX)?_[0-9.]{1,8}'? not found",
        Trouble(
            "nvidia-smi was made for a newer system than this one (its C library is older)",
            "install",
            "install the driver's packages of this system; one of another system, or a copied file, is taken away before",
        ),
    ),
    (
        r"nvml: function not found|undefined symbol: nvml|symbol lookup error",
        Trouble(
            "nvidia-smi and libnvidia-ml are of different versions",
            "install",
            f"{checks.again('nvidia-smi')}, take older copies of libnvidia-ml.so.1 away (ldconfig -p names them all), and run ldconfig",
        ),
    ),
    (
        r"driver/library version mismatch",
        Trouble("the loaded kernel module and the user-space libraries have different versions", "reboot", _RELOAD),
    ),
    (
        r"mismatch in versions between nvidia-smi and nvml",
        Trouble("nvidia-smi and libnvidia-ml have different versions", "reboot", _RELOAD),
    ),
    (
        r"insufficient permissions",
        Trouble(
            "this user may not open the NVIDIA device files",
            "configure",
            "run as root, add the user to the group that owns /dev/nvidia*, and look for an SELinux label or a container "
            "that withholds them",
        ),
    ),
    (
        r"couldn't communicate with the nvidia driver|driver is not loaded|driver not loaded",
        Trouble(
            "the NVIDIA kernel module is not loaded",
            "configure",
            "read 'dkms status' and the kernel log: a build that failed, Secure Boot with an unsigned module, nouveau, or "
            "a kernel that the module was not built for; the check driver.loaded says what mends it",
        ),
    ),
    (
        r"couldn't find libnvidia-ml|library was not found",
        Trouble(
            "libnvidia-ml.so.1 is missing or not on the library path",
            "install",
            f"{checks.again('libnvidia-ml.so.1')}, and run ldconfig",
        ),
    ),
    (
        r"gpu is lost|fallen off the bus",
        Trouble(
            "a card is lost: it fell off the PCIe bus",
            "check_hardware",
            "power the host off and on (a reboot alone may not bring it back), then check seating, power cables and heat",
            severity="fatal",
        ),
    ),
    (
        r"gpu requires reset",
        Trouble(
            "a card needs a reset", "reset_gpu", "stop what runs on it, then 'nvidia-smi --gpu-reset -i N' or reboot"
        ),
    ),
    (
        r"infoROM is corrupted|corrupted infoROM",
        Trouble(
            "the configuration memory (infoROM) of a card is corrupted",
            "contact_support",
            "update the card's firmware or hand it to its vendor",
        ),
    ),
    (
        r"interrupt",
        Trouble(
            "the kernel reported an interrupt problem with a card",
            "reboot",
            "reboot; take pci=nomsi and NVreg_EnableMSI=0 out where they are said, then look at the settings of the firmware",
        ),
    ),
    (
        r"unable to (?:determine|detect) the device handle",
        Trouble(
            "a card does not answer the driver",
            "reboot",
            "look in the kernel log for Xid 79 (fallen off the bus) and GSP time-outs; reboot; where it comes again power the "
            "host off, reseat the card and its riser, and check its power cables and its heat",
        ),
    ),
    (
        r"no devices were found",
        Trouble(
            "the module is loaded but no card could be initialised",
            "check_hardware",
            "read the kernel log for 'RmInitAdapter failed', for a card that needs the open kernel modules, and for PCI "
            "memory that the firmware did not assign (above 4G decoding)",
        ),
    ),
    (
        r"failed to initialize nvml: unknown error",
        Trouble(
            "NVML cannot be initialised: the device files are withheld, as in a container after a daemon-reload",
            "restart_service",
            "in a container restart it; on the host check /dev/nvidia* and reboot",
        ),
    ),
    (
        r"is not a valid field|invalid combination of input arguments|option .{0,100} is not recognized",
        Trouble(
            "this nvidia-smi does not know the question",
            "install",
            "update the driver: this nvidia-smi is too old",
            "incomplete",
        ),
    ),
    (
        r"failed to initialize nvml",
        Trouble("NVML cannot be initialised", "reboot", "check that the kernel module is loaded, then reboot the host"),
    ),
)

_CODES: Dict[int, Trouble] = {
    2: Trouble(
        "nvidia-smi refused its arguments", "install", "update the driver: this nvidia-smi is too old", "incomplete"
    ),
    3: Trouble("the card does not support the question", "none", "nothing: the card has no such value", "incomplete"),
    4: Trouble("this user may not ask", "configure", "run as root", "incomplete"),
    6: Trouble(
        "no card was found",
        "check_hardware",
        "read the kernel log for 'RmInitAdapter failed' and for a card that needs the open kernel modules",
    ),
    8: Trouble(
        "the external power cables of a card are not attached", "check_hardware", "attach all power cables of the card"
    ),
    9: Trouble("the NVIDIA kernel module is not loaded", "configure", "the check driver.loaded says what mends it"),
    10: Trouble(
        "the kernel reported an interrupt problem with a card", "reboot", "reboot; then look at the firmware's settings"
    ),
    12: Trouble("libnvidia-ml is missing", "install", f"{checks.again('libnvidia-ml.so.1')}, and run ldconfig"),
    13: Trouble("libnvidia-ml lacks a function: nvidia-smi is of another version", "reboot", _RELOAD),
    14: Trouble("the infoROM of a card is corrupted", "contact_support", "hand the card to its vendor"),
    15: Trouble(
        "a card is lost: it fell off the PCIe bus",
        "check_hardware",
        "power the host off and on, then check seating, power cables and heat",
        severity="fatal",
    ),
    18: Trouble("the kernel module and the libraries have different versions", "reboot", _RELOAD),
    126: NOT_EXECUTABLE,
    127: NOT_INSTALLED,
    255: Trouble(
        "nvidia-smi ended with an error that it does not name (255)",
        "reboot",
        "run nvidia-smi by hand, read the kernel log for Xid messages, then reboot the host",
    ),
}

# What the system says of a program that could not be started, in the C locale.
_NOT_STARTED: Tuple[Tuple[str, Trouble], ...] = (
    ("did not answer", HANGS),
    ("Permission denied", NOT_EXECUTABLE),
    ("Exec format error", WRONG_FORMAT),
    ("No such file", NOT_INSTALLED),
    ("not installed", NOT_INSTALLED),
)
_SIGNALS = range(1, 65)
# "Unable to determine the device handle for GPU 0000:43:00.0: Unknown Error", and "GPU0000:43:00.0" of other drivers.
_CARD = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")
# Characters at either end of a text that are searched; a sentence of nvidia-smi's has some hundred.
_SEARCHED = 10_000


def from_text(text: str) -> Optional[Trouble]:
    """The trouble that a sentence of nvidia-smi tells of, with the cards that it names; ``None`` when it tells of none that is known."""
    flat = document.plain(text if len(text) <= 2 * _SEARCHED else text[:_SEARCHED] + "\n" + text[-_SEARCHED:])
    if not flat:
        return None
    for pattern, trouble in _SENTENCES:
        if re.search(pattern, flat, re.IGNORECASE):
            places = list(dict.fromkeys(_CARD.findall(flat)))
            return trouble._replace(cause=f"{trouble.cause}: {', '.join(places)}") if places else trouble
    return None


def explain(rc: Optional[int], text: str = "", error: Optional[str] = None) -> Optional[Trouble]:
    """Why nvidia-smi gave no good answer; ``None`` when nothing points at a trouble.

    Args:
        rc: its exit status; ``None`` when it could not be started or was ended because it did not answer.
        text: what it printed, stdout and stderr, without a good XML document.
        error: where there is no exit status, why: the sentence of :class:`run.Result`. None means that there is no such program.
    """
    if rc is None:
        return _not_started(error)
    told = from_text(text)
    if told is not None:
        return told
    if rc == 0:
        return None
    if rc in _CODES:
        return _CODES[rc]
    signal = -rc if rc < 0 else rc - 128
    if signal in _SIGNALS:
        return Trouble(
            f"nvidia-smi was killed by signal {signal}",
            "reboot",
            "look in the kernel log for Xid messages and for the out-of-memory killer",
        )
    return Trouble(
        f"nvidia-smi ended with code {rc}, which is not documented",
        "contact_support",
        "read the kernel log; run nvidia-smi by hand",
    )


def _not_started(error: Optional[str]) -> Trouble:
    if not error:
        return NOT_INSTALLED
    for words, trouble in _NOT_STARTED:
        if words in error:
            return trouble
    return Trouble(
        f"nvidia-smi could not be started: {error}", "configure", "run nvidia-smi by hand and mend that", "incomplete"
    )


def read_answer(
    rc: Optional[int], stdout: Any, stderr: Any = "", seconds: Optional[float] = None, error: Optional[str] = None
) -> Tuple[Optional[SmiData], Check]:
    """Judge one call of ``nvidia-smi -q -x``: the data if there is any, and the check ``smi.runs``.

    ``error`` says why there is no exit status, as in :func:`explain`.

    Never raises, whatever the program printed. Data may come together with a failed check: one lost card of eight.
    """
    rest: checks.Rest = {"measured": rc, "expected": 0, "unit": "exit status"}
    shown = _text(stdout) + "\n" + _text(stderr)
    data: Optional[SmiData] = None
    unreadable: Optional[SmiError] = None
    try:
        data = document.parse_xml(stdout)
    except SmiError as exc:
        unreadable = exc
    outside = shown if data is None else "\n".join(data["notes"] + [_text(stderr)])
    trouble = explain(rc, outside, error)
    if trouble is not None:
        return data, _troubled(trouble, outside.strip() or error, rest)
    if data is None:
        return None, checks.failed(
            "smi.runs",
            reason=str(unreadable),
            evidence=shown,
            action="install",
            remedy="run 'nvidia-smi -q -x' by hand; a wrapper or a damaged file in its place is repaired by reinstalling "
            "the driver's user-space part",
            **rest,
        )
    if seconds is not None and seconds > SLOW_SECONDS:
        return data, checks.failed(
            "smi.runs",
            "warning",
            reason=f"nvidia-smi answered after {seconds:.0f} seconds; a healthy driver needs about one a card",
            action="configure",
            remedy="enable nvidia-persistenced; if it stays slow, look for a card that hangs",
            measured=round(seconds, 1),
            expected=SLOW_SECONDS,
            unit="s",
        )
    return data, checks.passed("smi.runs", reason="nvidia-smi answered", **rest)


def _troubled(trouble: Trouble, evidence: Optional[str], rest: checks.Rest) -> Check:
    return checks.make(
        "smi.runs",
        trouble.status,
        trouble.severity,
        reason=trouble.cause,
        evidence=evidence,
        action=trouble.action,
        remedy=trouble.remedy,
        **rest,
    )


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
