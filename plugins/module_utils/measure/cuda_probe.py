# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Use the GPUs through the CUDA driver itself: libcuda.so.1 by ctypes, in a child process with a time limit.

An nvidia-smi that answers is not CUDA that works: a missing fabric manager, a mismatch or a lack of rights show only when
a context is made. The calls may hang in the kernel or kill their process, so a child makes them and reports each step
before the next; what it managed to say is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

LIBRARY = "libcuda.so.1"
BYTES = 1 << 20
PATTERN = 0xA5
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h


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
        "read the kernel log for Xid messages and reboot the host",
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
    304: CudaError(
        "CUDA_ERROR_OPERATING_SYSTEM",
        "the operating system refused a call of the driver",
        "configure",
        "check the rights of /dev/nvidia* and nvidia-uvm, limits of locked memory, and confinement",
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


# --------------------------------------------------------------------------------------------------------------------
# In the child
# --------------------------------------------------------------------------------------------------------------------


class _Failed(Exception):
    def __init__(self, call: str, code: int, name: Optional[str]) -> None:
        super().__init__(call)
        self.record = {"call": call, "code": code, "name": name}


class _Driver:
    """The few calls of the driver's interface that are needed; every one of them is checked."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)

    def call(self, function: str, *arguments: Any) -> None:
        entry = self._entry(function)
        if entry is None:
            raise _Failed(function, MISSING_CALL, None)
        code = int(entry(*arguments))
        if code:
            raise _Failed(function, code, self._name(code))

    def _entry(self, function: str) -> Any:
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

    def integer(self, function: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self.call(function, ctypes.byref(value), *arguments)
        return value.value

    def words(self, function: str, device: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call(function, buffer, 256, device)
        return buffer.value.decode("utf-8", "replace")


def probe(path: str, say: Any) -> None:
    """Every step, told through ``say(step, **facts)`` as soon as it is done."""
    say("start")
    try:
        driver = _Driver(path)
    except OSError as error:
        say("library", error=str(error))
        return
    say("library")
    try:
        driver.call("cuInit", 0)
        say("init", version=driver.integer("cuDriverGetVersion"), count=driver.integer("cuDeviceGetCount"))
    except _Failed as failure:
        say("init", failure=failure.record)
        return
    for index in range(driver.integer("cuDeviceGetCount")):
        say("begin", index=index)
        facts: Dict[str, object] = {"index": index}
        try:
            _use(driver, index, facts)
        except _Failed as failure:
            facts["failure"] = failure.record
        say("device", **facts)
    say("end")


def _use(driver: _Driver, index: int, facts: Dict[str, object]) -> None:
    """Name the card, then make a context, fill a piece of its memory there and read it back."""
    device = driver.integer("cuDeviceGet", index)
    total = ctypes.c_size_t()
    facts["name"] = driver.words("cuDeviceGetName", device)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    facts["memory_total_mib"] = total.value >> 20
    facts["compute_capability"] = "{}.{}".format(
        driver.integer("cuDeviceGetAttribute", _COMPUTE_MAJOR, device),
        driver.integer("cuDeviceGetAttribute", _COMPUTE_MINOR, device),
    )
    buffer = ctypes.create_string_buffer(64)
    driver.call("cuDeviceGetPCIBusId", buffer, 64, device)
    facts["pci_bus_id"] = smi.normalise_bus_id(buffer.value.decode("ascii", "replace"))
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        driver.call("cuCtxSetCurrent", context)
        facts["right"] = _fill_and_read(driver)
    finally:
        driver.call("cuDevicePrimaryCtxRelease_v2", device)


def _fill_and_read(driver: _Driver) -> bool:
    memory = ctypes.c_uint64()
    host = ctypes.create_string_buffer(BYTES)
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    try:
        driver.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(PATTERN), ctypes.c_size_t(BYTES))
        driver.call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(BYTES))
    finally:
        driver.call("cuMemFree_v2", memory)
    return host.raw == bytes([PATTERN]) * BYTES


# --------------------------------------------------------------------------------------------------------------------
# In the parent
# --------------------------------------------------------------------------------------------------------------------


class CallFailure(TypedDict, total=False):
    """What a call of CUDA returned."""

    call: str
    code: int
    name: Optional[str]


class Step(TypedDict, total=False):
    """What the child says of one step (``step``: library, init, begin, device, end)."""

    step: str
    error: str
    version: int
    count: int
    failure: CallFailure
    index: int
    name: str
    memory_total_mib: int
    compute_capability: str
    pci_bus_id: str
    right: bool


class Answer(NamedTuple):
    """What the child said and how it ended: ``code`` of exit, ``signal`` that killed it, or ``hung``."""

    steps: List[Step]
    code: Optional[int]
    signal: Optional[int]
    hung: bool


def ask(path: str, timeout: float) -> Answer:
    """Probe in a child; it is killed at the time limit. A child that hangs inside the kernel is left behind, not waited for."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(path, writing)
    os.close(writing)
    try:
        text, complete = _read_until(reading, time.monotonic() + timeout)
    finally:
        os.close(reading)
    status = _reap(child, 2.0 if complete else 0.0)
    if status is None:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        status = _reap(child, 2.0)
        return Answer(_steps(text), None, None, True)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return Answer(_steps(text), None if killed else os.WEXITSTATUS(status), killed, False)


def _be_the_child(path: str, writing: int) -> None:
    """Never returns, whatever happens; ends without the parent's clean-up handlers."""
    try:
        # Every card is meant, in nvidia-smi's order, and a library's chatter must not reach Ansible's answer.
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        # A crash is an answer: neither a trace nor a core file of it is wanted.
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)

        def say(step: str, **facts: Any) -> None:
            os.write(writing, (json.dumps(dict(facts, step=step)) + "\n").encode())

        probe(path, say)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child that returned would go on as a second Ansible
        os._exit(70)


def _read_until(descriptor: int, deadline: float) -> tuple[str, bool]:
    """All the child says, and whether it closed its end before the deadline."""
    pieces: List[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(pieces).decode("utf-8", "replace"), False
        piece = os.read(descriptor, 65536)
        if not piece:
            return b"".join(pieces).decode("utf-8", "replace"), True
        pieces.append(piece)


def _reap(child: int, seconds: float) -> Optional[int]:
    """The child's status; ``None`` when it has not ended in time."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)


def _steps(text: str) -> List[Step]:
    steps: List[Step] = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            steps.append(json.loads(line))
    return steps


# --------------------------------------------------------------------------------------------------------------------
# Judging
# --------------------------------------------------------------------------------------------------------------------


def cuda_version(number: int) -> str:
    """``13.0`` of the driver's 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def judge(
    answer: Answer, path: str, timeout: float, expected_gpus: Optional[int] = None, min_cuda: Optional[str] = None
) -> List[Check]:
    """``cuda.init``, ``cuda.count``, ``cuda.version`` and for each card ``cuda.compute``."""
    steps = {step["step"]: step for step in answer.steps}
    library, init = steps.get("library"), steps.get("init")
    if library is not None and "error" in library:
        return [_no_library(path, str(library["error"]))]
    if init is None:
        return [_broken_off("cuda.init", answer, timeout, None, "cuInit")]
    if "failure" in init:
        return [_from_code("cuda.init", init["failure"], None)]
    result = [checks.passed("cuda.init", reason="cuInit succeeded", measured=0, expected=0)]
    result += _judge_version(init["version"], min_cuda)
    result.append(_judge_count(init["count"], expected_gpus))
    devices = [step for step in answer.steps if step["step"] == "device"]
    result += [_judge_device(device) for device in devices]
    begun = [step["index"] for step in answer.steps if step["step"] == "begin"]
    if "end" not in steps:
        at = begun[-1] if len(begun) > len(devices) else None
        result.append(_broken_off("cuda.compute", answer, timeout, at, "the use of a card"))
    return result


def _no_library(path: str, error: str) -> Check:
    return checks.incomplete(
        "cuda.init",
        f"{path} cannot be opened, so CUDA cannot be tried",
        evidence=error,
        action="install",
        remedy="install the driver's user-space part (gpuwright up does) and run ldconfig",
    )


def _broken_off(check_id: str, answer: Answer, timeout: float, index: Optional[int], what: str) -> Check:
    """The child hung, crashed or was lost: always a failure of CUDA, never a pass."""
    if answer.hung:
        reason = f"{what} did not come back within {timeout:g} seconds"
        remedy = "read the kernel log for Xid 119 and 79 and for a fabric manager that waits; reboot the host"
    elif answer.signal:
        reason = f"{what} crashed the process with signal {answer.signal}"
        remedy = "reinstall the driver's user-space part: libcuda and the kernel module may not belong together"
    else:
        reason = f"{what} ended without an answer (exit status {answer.code})"
        remedy = "check that the libcuda that is found is the driver's; reinstall its user-space part"
    return checks.failed(
        check_id,
        reason=reason,
        gpu=None if index is None else str(index),
        action="reboot",
        remedy=remedy,
        evidence=json.dumps(answer.steps[-1]) if answer.steps else None,
    )


def _from_code(check_id: str, failure: CallFailure, gpu: Optional[str]) -> Check:
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


def _judge_version(number: int, minimum: Optional[str]) -> List[Check]:
    found = cuda_version(number)
    if minimum is None:
        return [
            checks.passed("cuda.version", "info", measured=found, reason="the highest CUDA that this driver supports")
        ]
    wanted = tuple(int(part) for part in minimum.split(".")[:2])
    ok = (number // 1000, number % 1000 // 10) >= wanted
    return [
        checks.judged(
            "cuda.version",
            ok,
            measured=found,
            expected=minimum,
            action="install",
            reason=None if ok else f"the driver supports CUDA up to {found}, and {minimum} is wanted",
            remedy="install a newer driver branch, or wish an older CUDA",
        )
    ]


def _judge_count(count: int, expected: Optional[int]) -> Check:
    # More than expected is told, and no fault: cards may be left alone.
    surplus = expected is not None and count > expected
    ok = count == expected if expected is not None else count > 0
    return checks.judged(
        "cuda.count",
        ok,
        "warning" if surplus else "critical",
        measured=count,
        expected=expected,
        unit="cards",
        reason=None if ok else f"CUDA sees {count} cards",
        action="reboot",
        remedy="compare with nvidia-smi -L; a card that CUDA does not see is lost, withheld or partitioned",
    )


def _judge_device(device: Step) -> Check:
    gpu = "{} ({})".format(device["index"], device.get("pci_bus_id") or "no bus id")
    if "failure" in device:
        return _from_code("cuda.compute", device["failure"], gpu)
    named = "{}, compute capability {}".format(device["name"], device["compute_capability"])
    return checks.judged(
        "cuda.compute",
        bool(device.get("right")),
        "critical" if device.get("right") else "fatal",
        gpu=gpu,
        measured=named,
        action="rma",
        reason="filled memory on the card and read it back"
        if device.get("right")
        else "memory read back from the card is not what was written",
        remedy="take the card out of use and run a memory test",
    )
