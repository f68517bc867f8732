"""What eight cards did under load, as the tasks of the role `validate` register it. All figures are made up (`assumed`)."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

MODEL = "NVIDIA H100 80GB HBM3"
SHEET = {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4}


def label(number: int) -> str:
    return f"{number} ({bus_id(number)})"


def bus_id(number: int) -> str:
    return f"00000000:{0x1B + 0x10 * number:02X}:00.0"


def training(**changes: Any) -> dict[str, Any]:
    return {
        "ranks": 1, "steps": 92, "step_seconds": 0.108, "tflops": 121.4, "waiting_share": 0.02, "rows": 4096, "workers": 8,
        "precision": "bf16", "loss_first": 2.31, "loss_last": 0.52, **changes,
    }  # fmt: skip


def device(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "device": f"GPU-{number}", "gpu": label(number), "kind": "card", "name": MODEL, "bus_id": bus_id(number),
        "tflops": {"bf16": 712.4 - number, "fp32": 51.2, "tf32": 402.1},
        "bandwidth_gbs": {"copy": 2911.0, "triad": 3012.0},
        "host_device": [
            {"node": 0, "local": True, "to_device_gbs": 55.1, "from_device_gbs": 54.2, "both_gbs": 98.7},
            {"node": 1, "local": False, "to_device_gbs": 40.1, "from_device_gbs": 39.2, "both_gbs": 70.7},
        ],
        "training": training(),
        **changes,
    }  # fmt: skip


def result(count: int = 8, **changes: Any) -> dict[str, Any]:
    """A turn of the loop over the environments."""
    pairs = [
        {"from": label(first), "to": label(second), "gbs": round(371.2 - 10 * first - second, 1), "direct": second != 7}
        for first in range(count)
        for second in range(count)
        if first != second
    ]
    collectives = [
        {"kind": kind, "bytes": 1 << exponent, "seconds": 0.1, "ranks": count, "backend": "nccl", "algbw_gbs": 5.0 * exponent,
         "busbw_gbs": (13.0 if kind == "all_reduce" else 11.0) * (exponent - 18)}
        for kind in ("all_reduce", "all_gather")
        for exponent in range(20, 33, 2)
    ]  # fmt: skip
    expected = [
        {"bus_id": bus_id(number), "name": "H100 SXM5 80GB", "tflops": SHEET, "bandwidth_gbs": 3350.0, "nvlink_gbs": 900.0,
         "pcie_gbs": 63.02, "floors": [{"what": "bandwidth", "value": 1905, "source": "dcgm"}]}
        for number in range(count)
    ]  # fmt: skip
    return {
        "item": {"name": "pytorch", "python": "/opt/gpuwright/pytorch/bin/python", "expected": expected},
        "version": "2.14.1+cu130",
        "devices": [device(number) for number in range(count)],
        "pairs": pairs,
        "collectives": collectives,
        "training": training(ranks=count, tflops=115.9, step_seconds=0.113),
        "seconds": 312.4,
        "checks": judged(count),
        "invocation": {"module_args": {"python": "x"}},
        "verdict": "pass",
        **changes,
    }


def cards(count: int = 8) -> list[dict[str, Any]]:
    """What gpu_load says of each card."""
    return [
        {
            "gpu": label(number), "name": MODEL, "uuid": f"GPU-{number}", "looks": 10,
            "sm_mhz": {"min": 1755, "median": 1800, "max": 1980}, "power_w": {"min": 640.2, "median": 690.1, "max": 699.3},
            "temperature_c": {"min": 41, "median": 60 + number, "max": 63 + number}, "temperature_memory_c": None,
            "pcie_gen": {"min": 5, "median": 5, "max": 5}, "pcie_width": {"min": 16, "median": 16, "max": 16},
            "utilization_percent": {"min": 99, "median": 100, "max": 100}, "states": {"P0": 10}, "reasons": {"sw_power_cap": 8},
        }
        for number in range(count)
    ]  # fmt: skip


def judged(count: int = 8) -> list[Check]:
    """Checks of these figures: some have a floor, some none."""
    found = []
    for number in range(count):
        gpu = label(number)
        found += [
            checks.passed("load.bandwidth", measured=3012.0, unit="GB/s", gpu=gpu, reason="above the floor"),
            checks.failed("load.host_device", measured=54.2, unit="GB/s", gpu=gpu, reason="slower than a healthy card"),
            checks.passed("train.step", measured=121.4, unit="TFLOPS", gpu=gpu, reason="the loss falls"),
            *[
                checks.skipped(f"load.tflops_{name}", "no floor is known", measured=value, unit="TFLOPS", gpu=gpu)
                for name, value in (("bf16", 712.4 - number), ("fp32", 51.2), ("tf32", 402.1))
            ],
        ]
    return [
        *found,
        checks.failed("load.peer", measured=361.2, unit="GB/s", gpu="1 to 0", reason="slower than a healthy card"),
        checks.passed("nccl.all_reduce", measured=182.0, unit="GB/s", reason="busbw of 8 ranks"),
        checks.passed("train.ddp", measured=115.9, unit="TFLOPS", reason="the loss falls"),
    ]
