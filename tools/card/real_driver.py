# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Questions to libcuda.so.1 whose answers cuda.h gives: what it returns for what is wrong, and whether it compiles the load's programs.

`python -m tools.card.real_driver [LIBRARY]` prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load_ptx as ptx
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_driver
from ansible_collections.gpuwright.node.plugins.module_utils.measure.cuda_driver import Driver, Failed

#: The first generation with tensor cores.
_TENSOR_MAJOR = 7
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and …_SIZE_BYTES of cuda.h
_LOG_BYTES = 4096
#: What is asked wrongly, and the CUresult that cuda.h has for it.
EXPECTED = {"before cuInit": 3, "no such device": 101, "a petabyte of memory": 2, "no PTX": 218}


def code_of(call: Callable[[], object]) -> tuple[int, str | None]:
    """What a call returns: 0, or the number of the error and its name."""
    try:
        call()
    except Failed as failure:
        return failure.record["code"], failure.record["name"]
    return 0, None


def compiled(driver: Driver, text: str) -> dict[str, Any]:
    """What the driver says of a program: the number of its error, and the compiler's words."""
    module, log = ctypes.c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
    options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
    code, name = code_of(
        lambda: driver.call("cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 2, options, values)
    )
    return {"code": code, "name": name, "words": log.value.decode("utf-8", "replace")}


def asked(path: str) -> dict[str, Any]:
    """All questions. Raises OSError where there is no such library, Failed where it does not answer what is asked rightly."""
    driver = Driver(path)
    pointer = ctypes.c_uint64()
    device = ctypes.c_int()
    wrong = {"before cuInit": code_of(lambda: driver.integer("cuDeviceGetCount"))}
    driver.call("cuInit", 0)
    first = driver.integer("cuDeviceGet", 0)
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), first)
    driver.call("cuCtxSetCurrent", context)
    wrong["no such device"] = code_of(lambda: driver.call("cuDeviceGet", ctypes.byref(device), 999))
    wrong["a petabyte of memory"] = code_of(
        lambda: driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(1 << 50))
    )
    nonsense = compiled(driver, "no program")
    wrong["no PTX"] = (nonsense["code"], nonsense["name"])
    capability = driver.capability(first)
    programs = {"PLAIN": ptx.PLAIN}
    if int(capability.split(".")[0]) >= _TENSOR_MAJOR:
        programs["TENSOR"] = ptx.TENSOR
    return {
        "name": driver.words("cuDeviceGetName", first),
        "capability": capability,
        "version": driver.integer("cuDriverGetVersion"),
        "codes": {
            what: {"code": code, "name": name, "expected": EXPECTED[what]} for what, (code, name) in wrong.items()
        },
        "programs": {name: compiled(driver, text) for name, text in programs.items()},
    }


def main(path: str = cuda_driver.LIBRARY) -> None:
    try:
        print(json.dumps(asked(path)))
    except OSError as error:
        print(json.dumps({"missing": str(error)}))
    except Failed as failure:
        print(json.dumps({"failure": failure.record}))


if __name__ == "__main__":
    main(*sys.argv[1:])
