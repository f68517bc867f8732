"""MIG of the simulated cards: `nvidia-smi -mig`, `nvidia-smi mig …`, and what the other answers show of it.

Instances live in /run/gpuwright-sim and are gone after a boot. The mode is too, except on cards that keep it (Ampere), where it lies in
/etc/gpuwright-sim. Places, ids, sentences and exit statuses are as NVIDIA's MIG user guide and the field's logs show them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from . import node

Gpu = dict[str, Any]

_KEPT, _LOST = node.CONFIG / "mig-mode.json", node.VIEW / "mig.json"
_NOT_FOUND, _IN_USE, _INSUFFICIENT, _UNKNOWN = 6, 19, 23, 2
# Where the driver puts an instance first, by its size in memory slices.
_PREFERRED = {1: (6, 4, 5, 0, 1, 2, 3), 2: (4, 0, 2, 6), 4: (4, 0), 8: (0,)}
_COMPUTE_PROFILE = {"1": 0, "2": 1, "3": 2, "4": 3, "7": 4}


class MigError(Exception):
    """What nvidia-smi prints, and its exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def state(gpu: Gpu) -> dict[str, Any]:
    """`mode` and `instances` of a card: each with profile, gi, start, size."""
    kept = _read(_KEPT).get(gpu["uuid"], False) if gpu.get("mig_mode_stays") else False
    return {"mode": kept, "instances": [], **_read(_LOST).get(gpu["uuid"], {})}


def _write(gpu: Gpu, new: dict[str, Any]) -> None:
    _LOST.write_text(json.dumps({**_read(_LOST), gpu["uuid"]: new}))
    if gpu.get("mig_mode_stays"):
        _KEPT.write_text(json.dumps({**_read(_KEPT), gpu["uuid"]: new["mode"]}))


def _long(gpu: Gpu) -> str:
    return "0000" + gpu["bus_id"].upper()


def chosen(gpus: list[Gpu], arguments: list[str]) -> list[tuple[int, Gpu]]:
    """The cards that -i names: by index, UUID or bus id; all without it."""
    every = list(enumerate(gpus))
    if "-i" not in arguments:
        return every
    wanted = arguments[arguments.index("-i") + 1].split(",")
    return [
        (index, gpu)
        for index, gpu in every
        if {str(index), gpu["uuid"], _long(gpu), gpu["bus_id"].upper()}
        & {each if each.startswith("GPU-") else each.upper() for each in wanted}
    ]


def switch(gpus: list[Gpu], arguments: list[str]) -> str:
    """`nvidia-smi -mig 0|1`."""
    on = arguments[arguments.index("-mig") + 1] == "1"
    lines = []
    for _index, gpu in chosen(gpus, arguments):
        if not gpu["mig"]:
            raise MigError(
                f"Unable to {'enable' if on else 'disable'} MIG Mode for GPU {_long(gpu)}: Not Supported\n", 3
            )
        now = state(gpu)
        if now["instances"] and not on:
            raise MigError(f"Unable to disable MIG Mode for GPU {_long(gpu)}: In use by another client\n", _IN_USE)
        _write(gpu, {"mode": on, "instances": now["instances"] if on else []})
        lines.append(f"{'Enabled' if on else 'Disabled'} MIG Mode for GPU {_long(gpu)}\n")
    return "".join(lines) + "All done.\n"


def command(gpus: list[Gpu], arguments: list[str]) -> str:
    """`nvidia-smi mig …`."""
    able = [(index, gpu) for index, gpu in chosen(gpus, arguments) if gpu["mig"]]
    cards = [(index, gpu) for index, gpu in able if state(gpu)["mode"]]
    # Where the mode is off the profiles are listed too, as free: seen on an H200 with 580.159.04.
    if "-lgip" in arguments and able:
        return _list_profiles(able)
    if not cards:
        raise MigError("No MIG-enabled devices found.\n", _NOT_FOUND)
    if "-lgi" in arguments:
        return _list_instances(cards)
    if "-cgi" in arguments:
        return _create(cards, arguments[arguments.index("-cgi") + 1].split(","), compute="-C" in arguments)
    if "-dci" in arguments or "-dgi" in arguments:
        return _destroy(cards, compute="-dci" in arguments)
    raise MigError("Option is not recognized. Please run 'nvidia-smi mig -h'.\n", _UNKNOWN)


def _free(gpu: Gpu, profile: dict[str, Any], instances: list[dict[str, Any]]) -> list[int]:
    taken = {place for each in instances for place in range(each["start"], each["start"] + each["size"])}
    starts = [start for start in _PREFERRED[profile["size"]] if start in profile["starts"]]
    return [start for start in starts if not taken & set(range(start, start + profile["size"]))]


def _profile(gpu: Gpu, text: str) -> tuple[str, dict[str, Any]]:
    for name, profile in gpu["mig_profiles"].items():
        if text.strip() in (name, f"MIG {name}", str(profile["id"])):
            return name, profile
    raise MigError(f"Unable to create a GPU instance using profile {text}: Invalid Argument\n", _UNKNOWN)


def _instance_id(profile: dict[str, Any], start: int, instances: list[dict[str, Any]]) -> int:
    if profile["size"] == 8:
        return 0
    if profile["size"] == 4:
        return 1 if any(each["gi"] == 2 for each in instances) or len(profile["starts"]) == 1 else 2
    return start // 2 + 3 if profile["size"] == 2 else start + 7


def _create(cards: list[tuple[int, Gpu]], wanted: list[str], *, compute: bool) -> str:
    lines = []
    for index, gpu in cards:
        for text in wanted:
            now = state(gpu)
            name, profile = _profile(gpu, text)
            free = _free(gpu, profile, now["instances"])
            same = [each for each in now["instances"] if each["profile"] == name]
            if not free or len(same) >= profile["most"]:
                lines.append(
                    f"Unable to create a GPU instance on GPU {index:2} using profile {text}: Insufficient Resources\n"
                )
                raise MigError(
                    "".join([*lines, "Failed to create GPU instances: Insufficient Resources\n"]), _INSUFFICIENT
                )
            gi = _instance_id(profile, free[0], now["instances"])
            made = {"profile": name, "gi": gi, "start": free[0], "size": profile["size"], "compute": compute}
            _write(gpu, {**now, "instances": [*now["instances"], made]})
            lines.append(
                f"Successfully created GPU instance ID {gi:2} on GPU {index:2} using profile MIG {name} (ID {profile['id']:2})\n"
            )
            if compute:
                lines.append(
                    f"Successfully created compute instance ID  0 on GPU {index:2} GPU instance ID {gi:2} using profile MIG {name}"
                    f" (ID {_COMPUTE_PROFILE[name[0]]:2})\n"
                )
    return "".join(lines)


def _destroy(cards: list[tuple[int, Gpu]], *, compute: bool) -> str:
    lines = []
    for index, gpu in cards:
        now = state(gpu)
        for each in now["instances"]:
            if compute and each["compute"]:
                lines.append(
                    f"Successfully destroyed compute instance ID  0 from GPU {index:2} GPU instance ID {each['gi']:2}\n"
                )
            elif not compute and each["compute"]:
                text = (
                    f"Unable to destroy GPU instance ID {each['gi']:2} from GPU {index:2}: In use by another client\n"
                )
                raise MigError(text + "Failed to destroy GPU instances: In use by another client\n", _IN_USE)
            elif not compute:
                lines.append(f"Successfully destroyed GPU instance ID {each['gi']:2} from GPU {index:2}\n")
        left = [{**each, "compute": False} for each in now["instances"]] if compute else []
        _write(gpu, {**now, "instances": left})
    if not lines:
        raise MigError(f"No {'compute' if compute else 'GPU'} instances found: Not Found\n", _NOT_FOUND)
    return "".join(lines)


def _list_instances(cards: list[tuple[int, Gpu]]) -> str:
    rows = []
    for index, gpu in cards:
        for each in sorted(state(gpu)["instances"], key=lambda one: one["gi"]):
            number = gpu["mig_profiles"][each["profile"]]["id"]
            place = f"{each['start']}:{each['size']}"
            rows.append(f"| {index:3}  MIG {each['profile']:<15} {number:4} {each['gi']:8} {place:>12}     |\n")
    if not rows:
        raise MigError("No GPU instances found: Not Found\n", _NOT_FOUND)
    line = "+" + "-" * 55 + "+\n"
    head = line + "| GPU instances:                                        |\n"
    head += "| GPU   Name             Profile  Instance   Placement  |\n|                          ID       ID       Start:Size |\n"
    return head + "|" + "=" * 55 + "|\n" + "".join(row + line for row in rows)


def _list_profiles(cards: list[tuple[int, Gpu]]) -> str:
    line = "+" + "-" * 77 + "+\n"
    text = line + "| GPU instance profiles:                                                      |\n"
    text += "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
    text += "|                              Free/Total   GiB              CE    JPEG  OFA  |\n|" + "=" * 77 + "|\n"
    for index, gpu in cards:
        now = state(gpu)["instances"]
        for name, profile in gpu["mig_profiles"].items():
            free = min(len(_free(gpu, profile, now)), profile["most"])
            memory = gpu["memory_mib"] / 1024 * profile["size"] / 8
            text += (
                f"| {index:3}  MIG {name:<12} {profile['id']:3}     {free}/{profile['most']}     {memory:8.2f}       No\n".rstrip(
                    "\n"
                ).ljust(78)
                + "|\n"
                + line
            )
    return text


def devices(gpu: Gpu) -> list[dict[str, Any]]:
    """The MIG devices of a card, by GPU instance: those that have a compute instance."""
    found = [each for each in state(gpu)["instances"] if each["compute"]]
    return [
        {
            **each,
            "index": index,
            "memory_mib": gpu["memory_mib"] * each["size"] // 8,
            "uuid": "MIG-" + _uuid(f"{gpu['uuid']} {each['gi']} {each['profile']}"),
        }
        for index, each in enumerate(sorted(found, key=lambda one: one["gi"]))
    ]


def _uuid(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def listed(gpu: Gpu) -> str:
    """The lines of `nvidia-smi -L` below a card."""
    return "".join(
        f"  MIG {each['profile']:<11} Device {each['index']:2}: (UUID: {each['uuid']})\n" for each in devices(gpu)
    )
