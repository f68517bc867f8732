# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CUDA driver itself: libcuda.so.1 by ctypes, in a child process, and what its errors mean.

The calls may hang in the kernel or kill their process, so a child makes them and reports each step before the next; what it managed to
say is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class Say(Protocol):
    """Tells a step: its name, and what belongs to it."""

    def __call__(self, step: str, **facts: object) -> None:
        """Tell it now."""


# Not one of cuda.h's: the library lacks a function, so it is no libcuda or a very old one.
MISSING_CALL = -1


class CudaError(NamedTuple):
    """What an error of the CUDA driver means here. Numbers are those of CUresult in cuda.h."""

    name: str
    cause: str
    action: str
    remedy: str
    status: str = "fail"


ERRORS: Dict[int, CudaError] = {
    MISSING_CALL: CudaError(
        "missing",
        "the library lacks a function of the CUDA driver",
        "install",
        "check which libcuda.so.1 is found (ldconfig -p); reinstall the driver's user-space part",
    ),
    2: CudaError(
        "CUDA_ERROR_OUT_OF_MEMORY",
        "the card's memory is full",
        "restart_app",
        "end what uses the card (nvidia-smi names it), then prove again",
        "incomplete",
    ),
    3: CudaError(
        "CUDA_ERROR_NOT_INITIALIZED",
        "the driver could not be initialised",
        "reboot",
        "read the kernel log for Xid messages; with the open modules and a log that tells nothing: a line options nvidia_uvm "
        "uvm_disable_hmm=1 in /etc/modprobe.d/uvm.conf (NVIDIA/open-gpu-kernel-modules, issue 901); then reboot the host",
    ),
    34: CudaError(
        "CUDA_ERROR_STUB_LIBRARY",
        "the libcuda that was found is the toolkit's stub, not the driver's",
        "configure",
        "remove the toolkit's lib64/stubs from the library path",
    ),
    46: CudaError(
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "the card is taken by another process alone (compute mode exclusive)",
        "restart_app",
        "end that process, or set the compute mode to Default with 'nvidia-smi -c 0'",
        "incomplete",
    ),
    100: CudaError(
        "CUDA_ERROR_NO_DEVICE",
        "CUDA sees no card",
        "configure",
        "check nvidia-smi, the device files /dev/nvidia* (nvidia-modprobe -c0 -u makes them) and whether a container "
        "or a device rule withholds them",
    ),
    101: CudaError(
        "CUDA_ERROR_INVALID_DEVICE",
        "the card cannot be used by CUDA",
        "reboot",
        "if partitioning (MIG) is on, create instances; else read the kernel log and reboot",
    ),
    102: CudaError(
        "CUDA_ERROR_DEVICE_NOT_LICENSED",
        "the virtual GPU has no licence",
        "configure",
        "configure the licence of the virtual GPU (nvidia-gridd)",
    ),
    209: CudaError(
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the driver cannot make a program for this card",
        "install",
        "install a driver that knows the card; where it does, reinstall its user-space part",
        "incomplete",
    ),
    214: CudaError(
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "an uncorrectable memory error was met",
        "reset_gpu",
        "stop what runs on the card and reset it; if it comes back, return the card",
    ),
    220: CudaError(
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "an uncorrectable NVLink error was met",
        "reset_gpu",
        "reset the cards; check the bridge or the fabric manager",
    ),
    221: CudaError(
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        "the driver's compiler of PTX is not there",
        "install",
        "reinstall the driver's user-space part: libnvidia-ptxjitcompiler.so.1 is missing or not of its version",
    ),
    222: CudaError(
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the driver is older than the program that was to be run",
        "install",
        "install a driver of branch 470 or newer",
        "incomplete",
    ),
    304: CudaError(
        "CUDA_ERROR_OPERATING_SYSTEM",
        "the operating system refused a call of the driver",
        "configure",
        "check the rights of /dev/nvidia* and nvidia-uvm, limits of locked memory, and confinement",
    ),
    700: CudaError(
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "a program on the card met an address that is none of its own",
        "reset_gpu",
        "read the kernel log for Xid 31 and 13; reset the card and prove again, and where it comes back run a memory test",
    ),
    702: CudaError(
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "the watchdog of the card that draws the screen ended a program",
        "restart_app",
        "read the kernel log for Xid 8; prove again without a desktop on the card",
    ),
    719: CudaError(
        "CUDA_ERROR_LAUNCH_FAILED",
        "a program on the card broke off",
        "reset_gpu",
        "read the kernel log for Xid messages; reset the card and prove again, and where it comes back run a memory test",
    ),
    800: CudaError(
        "CUDA_ERROR_NOT_PERMITTED",
        "this user may not use the card",
        "configure",
        "run as root, or give the user the group that owns /dev/nvidia*",
    ),
    802: CudaError(
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVSwitch fabric is not ready",
        "restart_service",
        "start nvidia-fabricmanager of exactly the driver's version and read its log",
    ),
    803: CudaError(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda and the loaded kernel module have different versions",
        "reboot",
        "reboot the host; if it stays, remove the other libcuda (a cuda-compat package or a .run installation)",
    ),
    804: CudaError(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "forward compatibility (cuda-compat) was tried on a card that does not have it",
        "configure",
        "take the compat directory off the library path; only data-centre cards have it",
    ),
    805: CudaError(
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "the multi-process service does not answer",
        "restart_service",
        "restart nvidia-cuda-mps-control, or end it",
    ),
    999: CudaError(
        "CUDA_ERROR_UNKNOWN",
        "the driver failed without saying why",
        "reboot",
        "load nvidia_uvm ('modprobe nvidia_uvm'), read the kernel log, and reboot the host: this is usual after a "
        "suspend and in a container after a daemon-reload",
    ),
}


def explain(code: int, name: Optional[str] = None) -> CudaError:
    """What an error code means; a code that is not in the table is named as the library names it."""
    if code in ERRORS:
        return ERRORS[code]
    return CudaError(
        name or f"CUresult {code}",
        f"CUDA failed with error {name or code}",
        "reboot",
        "read the kernel log for Xid messages, reboot the host and prove again",
    )


class CallFailure(TypedDict, total=False):
    """What a call of CUDA returned."""

    call: str
    code: int
    name: Optional[str]


# --------------------------------------------------------------------------------------------------------------------
# In the child
# --------------------------------------------------------------------------------------------------------------------


class Failed(Exception):
    """A call of the driver returned an error; ``record`` is a :class:`CallFailure`."""

    def __init__(self, call: str, code: int, name: Optional[str]) -> None:
        super().__init__(call)
        self.record: CallFailure = {"call": call, "code": code, "name": name}


class _Entry(Protocol):
    """A function of the library."""

    def __call__(self, *arguments: object) -> int:
        """Call it: a CUresult."""


class Driver:
    """The few calls of the driver's interface that are needed; every one of them is checked."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the library. Raises Failed where it returns an error or is not there."""
        entry = self._entry(function)
        if entry is None:
            raise Failed(function, MISSING_CALL, None)
        code = entry(*arguments)
        if code:
            raise Failed(function, code, self._name(code))

    def _entry(self, function: str) -> Optional[_Entry]:
        """A function of the library; drivers that are older than a ``_v2`` have it under the plain name."""
        found = getattr(self.library, function, None)
        return found if found is not None else getattr(self.library, function.replace("_v2", ""), None)

    def _name(self, code: int) -> Optional[str]:
        text = ctypes.c_char_p()
        try:
            self.library.cuGetErrorName(code, ctypes.byref(text))
        except AttributeError:
            return None
        return (text.value or b"").decode("ascii", "replace") or None

    def integer(self, function: str, *arguments: object) -> int:
        """The number that a function writes to its first argument."""
        value = ctypes.c_int()
        self.call(function, ctypes.byref(value), *arguments)
        return value.value

    def words(self, function: str, device: int) -> str:
        """The text that a function writes of a device."""
        buffer = ctypes.create_string_buffer(256)
        self.call(function, buffer, 256, device)
        return buffer.value.decode("utf-8", "replace")

    def capability(self, device: int) -> str:
        """The compute capability of a device: ``9.0``."""
        return "{}.{}".format(
            self.integer("cuDeviceGetAttribute", _COMPUTE_MAJOR, device),
            self.integer("cuDeviceGetAttribute", _COMPUTE_MINOR, device),
        )

    def bus_id(self, device: int) -> str:
        """The place of a device on the PCI bus, in nvidia-smi's spelling."""
        buffer = ctypes.create_string_buffer(64)
        self.call("cuDeviceGetPCIBusId", buffer, 64, device)
        return document.normalise_bus_id(buffer.value.decode("ascii", "replace"))


def _end_with(seconds: float) -> None:
    """Have the kernel end this process after a time, and with its parent; what the parent does at a signal is not for its child."""
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _be_the_child(work: Callable[[Say], None], environment: Mapping[str, str], seconds: float, writing: int) -> None:
    """Never returns, whatever happens; ends without the parent's clean-up handlers."""
    try:
        _end_with(seconds)
        # Every card is meant, in nvidia-smi's order, and a library's chatter must not reach Ansible's answer.
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        os.environ.update(environment)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        # A crash is an answer: neither a trace nor a core file of it is wanted.
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)

        def say(step: str, **facts: object) -> None:
            os.write(writing, (json.dumps(dict(facts, step=step)) + "\n").encode())

        work(say)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child that returned would go on as a second Ansible
        os._exit(70)


# --------------------------------------------------------------------------------------------------------------------
# In the parent
# --------------------------------------------------------------------------------------------------------------------


def start(work: Callable[[Say], None], environment: Mapping[str, str], seconds: float) -> Tuple[int, int]:
    """Have a child do ``work``, which tells its steps as it goes: its process, and where what it says is read from, one JSON a line.

    ``environment``: variables that it has besides. ``seconds``: after which it ends by itself, were its parent held up; it ends with
    its parent in any case.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(work, environment, seconds, writing)
    os.close(writing)
    return child, reading


def reap(child: int, seconds: float) -> Optional[int]:
    """The child's status; ``None`` when it has not ended in time."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)


def steps(text: str) -> List[Dict[str, object]]:
    """What a child told, step by step; a line that is none is left out."""
    found: List[Dict[str, object]] = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            step = json.loads(line)
            if isinstance(step, dict) and isinstance(step.get("step"), str):
                found.append(step)
    return found


# --------------------------------------------------------------------------------------------------------------------
# Judging
# --------------------------------------------------------------------------------------------------------------------


def from_code(check_id: str, failure: CallFailure, gpu: Optional[str]) -> Check:
    """The check that a failed call of CUDA makes of what was to be proven."""
    error = explain(failure["code"], failure.get("name"))
    return checks.make(
        check_id,
        error.status,
        gpu=gpu,
        measured=failure["code"],
        expected=0,
        reason=error.cause,
        evidence="{} returned {} ({})".format(failure["call"], failure["code"], error.name),
        action=error.action,
        remedy=error.remedy,
    )
