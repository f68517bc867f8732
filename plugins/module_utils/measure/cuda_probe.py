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
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_driver
from ansible_collections.gpuwright.node.plugins.module_utils.measure.cuda_driver import CallFailure, Driver, Failed, Say

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

LIBRARY = cuda_driver.LIBRARY
BYTES = 1 << 20
PATTERN = 0xA5
# The child ends by itself this long after it should have been ended, were its parent held up.
_AFTERWARDS = 10.0


# --------------------------------------------------------------------------------------------------------------------
# In the child
# --------------------------------------------------------------------------------------------------------------------


def probe(path: str, say: Say) -> None:
    """Every step, told through ``say(step, **facts)`` as soon as it is done."""
    say("start")
    try:
        driver = Driver(path)
    except OSError as error:
        say("library", error=str(error))
        return
    say("library")
    try:
        driver.call("cuInit", 0)
        say("init", version=driver.integer("cuDriverGetVersion"), count=driver.integer("cuDeviceGetCount"))
    except Failed as failure:
        say("init", failure=failure.record)
        return
    for index in range(driver.integer("cuDeviceGetCount")):
        say("begin", index=index)
        facts: Dict[str, object] = {"index": index}
        try:
            _use(driver, index, facts)
        except Failed as failure:
            facts["failure"] = failure.record
        say("device", **facts)
    say("end")


def _use(driver: Driver, index: int, facts: Dict[str, object]) -> None:
    """Name the card, then make a context, fill a piece of its memory there and read it back."""
    device = driver.integer("cuDeviceGet", index)
    total = ctypes.c_size_t()
    facts["name"] = driver.words("cuDeviceGetName", device)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    facts["memory_total_mib"] = total.value >> 20
    facts["compute_capability"] = driver.capability(device)
    facts["pci_bus_id"] = driver.bus_id(device)
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        driver.call("cuCtxSetCurrent", context)
        facts["right"] = _fill_and_read(driver)
    finally:
        driver.call("cuDevicePrimaryCtxRelease_v2", device)


def _fill_and_read(driver: Driver) -> bool:
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
    child, reading = cuda_driver.start(lambda say: probe(path, say), {}, timeout + _AFTERWARDS)
    try:
        text, complete = _read_until(reading, time.monotonic() + timeout)
    finally:
        os.close(reading)
    steps = cast("List[Step]", cuda_driver.steps(text))
    status = cuda_driver.reap(child, 2.0 if complete else 0.0)
    if status is None:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        status = cuda_driver.reap(child, 2.0)
        return Answer(steps, None, None, True)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return Answer(steps, None if killed else os.WEXITSTATUS(status), killed, False)


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
        return [cuda_driver.from_code("cuda.init", init["failure"], None)]
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
        remedy=f"{checks.again('libcuda.so.1')}, and run ldconfig",
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
        reason=None if ok else f"CUDA sees {words.count(count, 'cards')}",
        action="reboot",
        remedy="compare with nvidia-smi -L; a card that CUDA does not see is lost, withheld or partitioned",
    )


def _judge_device(device: Step) -> Check:
    gpu = "{} ({})".format(device["index"], device.get("pci_bus_id") or "no bus id")
    if "failure" in device:
        return cuda_driver.from_code("cuda.compute", device["failure"], gpu)
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
