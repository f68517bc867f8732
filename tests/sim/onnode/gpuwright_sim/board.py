"""Settings of the simulated cards, by nvidia-smi's options -pl, -lgc, -rgc, -ac, -rac, -e, -c, -pm and --gpu-reset.

They live in /run/gpuwright-sim and are gone after a boot, but for ECC: what is set takes effect with a reset or a boot and lies in
/etc/gpuwright-sim. The sentences and exit statuses are as people quote them; what no sample shows is assumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import mig, node

Gpu = dict[str, Any]

_KEPT, _LOST = node.CONFIG / "ecc.json", node.VIEW / "board.json"
_MODES = {"0": "Default", "DEFAULT": "Default", "2": "Prohibited", "PROHIBITED": "Prohibited"} | dict.fromkeys(
    ("3", "EXCLUSIVE_PROCESS"), "Exclusive_Process"
)
#: Options of this module; all but the last three take a value.
OPTIONS = ("-pl", "-lgc", "-ac", "-e", "-c", "-pm", "-rgc", "-rac", "--gpu-reset")
_INVALID, _NOT_SUPPORTED, _IN_USE = 2, 3, 19
_STEP_MHZ = 15


class BoardError(Exception):
    """What nvidia-smi prints, and its exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def state(gpu: Gpu) -> dict[str, Any]:
    """What is set of a card: power (W), clocks, application (memory, multiprocessors), compute, persistence, ecc, ecc_pending."""
    pending = _read(_KEPT).get(gpu["uuid"], gpu["ecc"])
    usual = {
        "power": float(gpu["power_w"]),
        "clocks": None,
        "application": [gpu["memory_mhz"], gpu["sm_mhz"]],
        "compute": "Default",
        "persistence": None,
        # A boot brings what was set.
        "ecc": pending,
    }
    return {**usual, **_read(_LOST).get(gpu["uuid"], {}), "ecc_pending": pending}


def _write(gpu: Gpu, **changes: Any) -> None:
    known = _read(_LOST)
    _LOST.write_text(json.dumps({**known, gpu["uuid"]: {**known.get(gpu["uuid"], {}), **changes}}))


def lowest_power(gpu: Gpu) -> float:
    """The lowest power limit of a card (W)."""
    return float(gpu["power_w"]) * 0.3


def supported(gpu: Gpu) -> list[int]:
    """Clocks of the multiprocessors that a card offers (MHz), the highest first."""
    return list(range(gpu["sm_mhz"], gpu["sm_mhz"] // 5, -_STEP_MHZ))


def command(gpus: list[Gpu], arguments: list[str]) -> str:
    """`nvidia-smi [-i CARD] OPTION [VALUE]`."""
    option = next(each for each in arguments if each in OPTIONS)
    place = arguments.index(option)
    value = arguments[place + 1] if option not in OPTIONS[-3:] else ""
    do = {
        "-pl": _power, "-lgc": _lock, "-ac": _application, "-e": _ecc, "-c": _compute, "-pm": _persistence,
        "-rgc": _unlock, "-rac": _usual, "--gpu-reset": _reset,
    }[option]  # fmt: skip
    said = [do(gpu, "0000" + gpu["bus_id"].upper(), value) for _index, gpu in mig.chosen(gpus, arguments)]
    return "".join(said) + "All done.\n" + ("Reboot required.\n" if option == "-e" else "")


def _power(gpu: Gpu, place: str, value: str) -> str:
    limit, lowest, highest = float(value), lowest_power(gpu), float(gpu["power_w"])
    if not lowest <= limit <= highest:
        raise BoardError(
            f"Provided power limit {limit:.2f} W is not a valid power limit which should be between {lowest:.2f} W and {highest:.2f} W for "
            f"GPU {place}\nTerminating early due to previous errors.\n",
            _INVALID,
        )
    before = state(gpu)["power"]
    _write(gpu, power=limit)
    return f"Power limit for GPU {place} was set to {limit:.2f} W from {before:.2f} W.\n"


def _lock(gpu: Gpu, place: str, value: str) -> str:
    low, _comma, high = value.partition(",")
    clocks = [int(low), int(high or low)]
    _write(gpu, clocks=clocks)
    return f'GPU clocks set to "(gpuClkMin {clocks[0]}, gpuClkMax {clocks[1]})" for GPU {place}\n'


def _unlock(gpu: Gpu, place: str, _value: str) -> str:
    _write(gpu, clocks=None)
    return f"All done resetting GPU clocks for GPU {place}\n"


def _application(gpu: Gpu, place: str, value: str) -> str:
    memory, _comma, graphics = value.partition(",")
    if int(memory) != gpu["memory_mhz"] or int(graphics) not in supported(gpu):
        raise BoardError(
            f'Specified clock combination "(MEM {memory}, SM {graphics})" is not supported for GPU {place}. Run '
            "'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations\n"
            "Terminating early due to previous errors.\n",
            _INVALID,
        )
    _write(gpu, application=[int(memory), int(graphics)])
    return f'Applications clocks set to "(MEM {memory}, SM {graphics})" for GPU {place}\n'


def _usual(gpu: Gpu, place: str, _value: str) -> str:
    _write(gpu, application=[gpu["memory_mhz"], gpu["sm_mhz"]])
    return f"All done resetting applications clocks for GPU {place}\n"


def _ecc(gpu: Gpu, place: str, value: str) -> str:
    if not gpu["ecc"]:
        raise BoardError(f"Unable to set ECC mode for GPU {place}: Not Supported\n", _NOT_SUPPORTED)
    now, on = state(gpu), value in ("1", "ENABLED")
    _write(gpu, ecc=now["ecc"])
    _KEPT.write_text(json.dumps({**_read(_KEPT), gpu["uuid"]: on}))
    word = "Enabled" if on else "Disabled"
    return f"{word} ECC support for GPU {place}.\n"


def _compute(gpu: Gpu, place: str, value: str) -> str:
    mode = _MODES.get(value.upper())
    if mode is None:
        raise BoardError(f"Failed to parse -c/--compute-mode flag: {value}\n", _INVALID)
    _write(gpu, compute=mode)
    return f"Set compute mode to {mode.upper()} for GPU {place}.\n"


def _persistence(gpu: Gpu, place: str, value: str) -> str:
    on = value in ("1", "ENABLED")
    _write(gpu, persistence=on)
    return f"{'Enabled' if on else 'Disabled'} persistence mode for GPU {place}.\n"


def _reset(gpu: Gpu, place: str, _value: str) -> str:
    if Path("/run/nvidia-persistenced/nvidia-persistenced.pid").exists():
        raise BoardError(f"GPU {place} is currently in use by another process.\n", _IN_USE)
    known = _read(_LOST)
    known.pop(gpu["uuid"], None)
    _LOST.write_text(json.dumps(known))
    return f"GPU {place} was successfully reset.\n"
