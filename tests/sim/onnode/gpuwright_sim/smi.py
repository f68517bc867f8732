"""The stand-in nvidia-smi: `-q -x`, `-L`, `--query-gpu=… --format=csv`, `-pm`, `nvlink -s`, `--version` and the plain table's head.

Error sentences and exit codes are the real ones; numbers are our own. The user space that it belongs to is found as the real
one finds it: by the NVML library next to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import board, hardware, kernel, mig, node

Gpu = dict[str, Any]

NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
    "installed and running.\n"
)
NO_LIBRARY = (
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly "
    "installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n"
)
_TEMPERATURE_IDLE, _TEMPERATURE_WORKING, _TEMPERATURE_HOT = 34, 61, 93


class Refusal(Exception):
    """The program ends with a sentence and a status other than 0."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def main(arguments: list[str]) -> int:
    """What the program's process does and returns."""
    if node.fault("hanging-smi") is not None:
        time.sleep(86400)
    if node.fault("garbage-smi") is not None:
        sys.stdout.write('<?xml version="1.0" ?>\n<nvidia_smi_log>\n\x00\x00segment fault at 0000\n')
        return 0
    try:
        sys.stdout.write(_answer(arguments))
    except Refusal as refusal:
        sys.stdout.write(str(refusal))
        return refusal.status
    return 0


def _answer(arguments: list[str]) -> str:
    if "--help" in arguments or "-h" in arguments:
        return "NVIDIA System Management Interface (simulated)\n"
    library, module = _connect()
    gpus = node.scenario()["gpus"]
    working = [gpu for gpu in gpus if gpu["uuid"] in module["working"]]
    listing = "-L" in arguments or "--list-gpus" in arguments
    if not working:
        # The list says it in words of its own: seen with 580.159.04; that its status is the same is assumed.
        raise Refusal("No devices found.\n" if listing else "No devices were found\n", 6)
    if "--version" in arguments:
        branch = library.split(".")[0]
        return (
            f"NVIDIA-SMI version  : {library}\n"
            f"NVML version        : {branch}.{library.split('.', 1)[1]}\n"
            f"DRIVER version      : {module['version']}\n"
            f"CUDA Version        : {cuda_version(library)}\n"
        )
    _refuse_lost(working)
    if set(board.OPTIONS) & set(arguments):
        return _board(working, arguments)
    if "-mig" in arguments or arguments[:1] == ["mig"]:
        return _mig(working, arguments)
    return _told(working, arguments, library, listing=listing)


def _told(gpus: list[Gpu], arguments: list[str], library: str, *, listing: bool) -> str:
    """What it tells of cards, and changes nothing."""
    if listing:
        return "".join(_heading(index, gpu) + mig.listed(gpu) for index, gpu in enumerate(gpus))
    if arguments == ["nvlink", "-s"]:
        return "".join(_heading(index, gpu) + _links(gpu) for index, gpu in enumerate(gpus))
    for argument in arguments:
        if argument.startswith("--query-gpu="):
            return csv(gpus, argument.split("=", 1)[1], _format(arguments), library)
    if "-x" in arguments or "--xml-format" in arguments:
        now, fabric = time.strftime("%a %b %d %H:%M:%S %Y"), hardware.fabric_state()
        return xml(gpus, library, _conditions(), now, fabric, working=node.working())
    return table(gpus, library)


def _heading(index: int, gpu: Gpu) -> str:
    return f"GPU {index}: {gpu['name']} (UUID: {gpu['uuid']})\n"


def _links(gpu: Gpu) -> str:
    """As 590.48.01 (H100) and 595.71.05 (a card without) say it; the speed of other cards is another one."""
    links = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(gpu["nvlinks"]))
    return links or "Device does not have or support Nvlink\n"


def _mig(gpus: list[Gpu], arguments: list[str]) -> str:
    try:
        said = mig.command(gpus, arguments) if arguments[:1] == ["mig"] else mig.switch(gpus, arguments)
    except mig.MigError as error:
        raise Refusal(str(error), error.status) from None
    kernel.refresh()
    return said


def _board(gpus: list[Gpu], arguments: list[str]) -> str:
    try:
        return board.command(gpus, arguments)
    except board.BoardError as error:
        raise Refusal(str(error), error.status) from None


def _connect() -> tuple[str, dict[str, Any]]:
    """The version of the library and the loaded module, as NVML finds them when it starts."""
    windows = node.scenario().get("windows_driver")
    if windows:
        # Inside WSL it names the driver of Windows, by Windows' number.
        return windows, {"version": windows, "working": [gpu["uuid"] for gpu in node.scenario()["gpus"]]}
    library = node.library_version()
    if library is None:
        raise Refusal(NO_LIBRARY, 12)
    module = kernel.shown_module()
    if module is None:
        # The real one loads the module itself, through nvidia-modprobe, where it can.
        try:
            kernel.insert("nvidia")
        except (FileNotFoundError, kernel.InsertionError, OSError):
            raise Refusal(NOT_LOADED, 9) from None
        module = kernel.shown_module() or {}
    if module["version"] != library:
        short = ".".join(library.split(".")[:2])
        raise Refusal(
            f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n", 18
        )
    return library, module


def _refuse_lost(gpus: list[Gpu]) -> None:
    lost = node.fault("fallen-off-bus")
    if lost is None and node.working():
        lost = node.fault("lost-under-load")
    if lost is not None and lost < len(gpus):
        bus = gpus[lost]["bus_id"].upper()
        raise Refusal(
            f"Unable to determine the device handle for GPU{bus}: GPU is lost.  Reboot the system to recover this GPU\n",
            15,
        )


def _conditions() -> dict[str, int | None]:
    kinds = ("ecc", "throttling", "narrow-pcie")
    found = {kind: node.fault(kind) for kind in kinds}
    if node.working():
        found |= {kind: struck for kind in kinds if (struck := node.fault(f"{kind}-under-load")) is not None}
    return found


def cuda_version(library: str) -> str:
    """The CUDA version that a driver names: that of the toolkit which it was released with."""
    return kernel.CUDA_OF_BRANCH.get(library.split(".", maxsplit=1)[0], "13.0")


def _long_bus_id(gpu: Gpu) -> str:
    return "0000" + gpu["bus_id"].upper()


# --------------------------------------------------------------------------------------------------------------------
# CSV and table
# --------------------------------------------------------------------------------------------------------------------

_FIELDS: dict[str, tuple[str, Callable[[int, Gpu, str], str]]] = {
    "index": ("", lambda index, gpu, library: str(index)),
    "name": ("", lambda index, gpu, library: gpu["name"]),
    "gpu_name": ("", lambda index, gpu, library: gpu["name"]),
    "uuid": ("", lambda index, gpu, library: gpu["uuid"]),
    "gpu_uuid": ("", lambda index, gpu, library: gpu["uuid"]),
    "pci.bus_id": ("", lambda index, gpu, library: _long_bus_id(gpu)),
    "gpu_bus_id": ("", lambda index, gpu, library: _long_bus_id(gpu)),
    "driver_version": ("", lambda index, gpu, library: library),
    "compute_cap": ("", lambda index, gpu, library: gpu["compute_capability"]),
    "memory.total": ("MiB", lambda index, gpu, library: str(gpu["memory_mib"])),
    "memory.used": ("MiB", lambda index, gpu, library: "0"),
    "memory.free": ("MiB", lambda index, gpu, library: str(gpu["memory_mib"] - gpu["reserved_mib"])),
    "temperature.gpu": ("", lambda index, gpu, library: str(_TEMPERATURE_IDLE + index)),
    "power.draw": ("W", lambda index, gpu, library: f"{gpu['idle_w']:.2f}"),
    "power.limit": ("W", lambda index, gpu, library: f"{board.state(gpu)['power']:.2f}"),
    "utilization.gpu": ("%", lambda index, gpu, library: "0"),
    "clocks_event_reasons.active": ("", lambda index, gpu, library: _mask(hot=node.fault("throttling") == index)),
    "persistence_mode": ("", lambda index, gpu, library: _persistence(gpu)),
    "pcie.link.gen.current": ("", lambda index, gpu, library: str(gpu["pcie_gen"])),
    "pcie.link.width.current": ("", lambda index, gpu, library: str(gpu["pcie_width"])),
    "mig.mode.current": ("", lambda index, gpu, library: _mig_mode(gpu) if gpu["mig"] else "[N/A]"),
    "ecc.mode.current": ("", lambda index, gpu, library: _ecc_mode(gpu, "ecc") if gpu["ecc"] else "[N/A]"),
    "compute_mode": ("", lambda index, gpu, library: board.state(gpu)["compute"]),
    "count": ("", lambda index, gpu, library: "1"),
}


def _format(arguments: list[str]) -> set[str]:
    for argument in arguments:
        if argument.startswith("--format="):
            return set(argument.split("=", 1)[1].split(","))
    return {"csv"}


def csv(gpus: list[Gpu], query: str, options: set[str], library: str) -> str:
    """The answer to --query-gpu; one unknown field fails the whole call, as in the real program."""
    names = [name.strip() for name in query.split(",") if name.strip()]
    for name in names:
        if name not in _FIELDS:
            raise Refusal(f'Field "{name}" is not a valid field to query.\n\n', 2)
    lines = []
    if "noheader" not in options:
        lines.append(
            ", ".join(
                name + (f" [{_FIELDS[name][0]}]" if _FIELDS[name][0] and "nounits" not in options else "")
                for name in names
            )
        )
    for index, gpu in enumerate(gpus):
        values = []
        for name in names:
            unit, read = _FIELDS[name]
            values.append(read(index, gpu, library) + (f" {unit}" if unit and "nounits" not in options else ""))
        lines.append(", ".join(values))
    return "\n".join(lines) + "\n"


def table(gpus: list[Gpu], library: str) -> str:
    """What a bare `nvidia-smi` shows: nobody should parse it, so it is short."""
    line = "+" + "-" * 89 + "+\n"
    text = time.strftime("%a %b %d %H:%M:%S %Y       \n") + line
    text += (
        f"| NVIDIA-SMI {library:<22} Driver Version: {library:<14} CUDA Version: {cuda_version(library):<8} |\n" + line
    )
    for index, gpu in enumerate(gpus):
        text += (
            f"| {index:>3}  {gpu['name']:<40.40} {_long_bus_id(gpu)}  0MiB / {gpu['memory_mib']}MiB".ljust(90) + "|\n"
        )
    return text + line


def _persistence(gpu: Gpu) -> str:
    """Enabled while nvidia-persistenced runs, unless it was told to leave that to others; or as -pm has set it."""
    told = board.state(gpu)["persistence"]
    if told is not None:
        return "Enabled" if told else "Disabled"
    place = Path("/run/nvidia-persistenced")
    running = (place / "nvidia-persistenced.pid").exists()
    return (
        (place / "mode").read_text().strip()
        if running and (place / "mode").exists()
        else "Enabled"
        if running
        else "Disabled"
    )


# --------------------------------------------------------------------------------------------------------------------
# XML
# --------------------------------------------------------------------------------------------------------------------

Node = tuple[str, Any]


def xml(
    gpus: list[Gpu],
    library: str,
    conditions: dict[str, int | None],
    now: str,
    fabric: str | None = None,
    *,
    working: bool = False,
) -> str:
    """The answer to -q -x, in the shape of branch 580. CONDITIONS: fault to the index of the card that it strikes, or None.
    FABRIC: state of the NVSwitch fabric, None where there is none. WORKING: the cards are under load, with numbers of our own.
    """
    tree: list[Node] = [
        ("timestamp", now),
        ("driver_version", library),
        ("cuda_version", cuda_version(library)),
        ("attached_gpus", str(len(gpus))),
    ]
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    body = "".join(_render(entry, 1) for entry in tree)
    for index, gpu in enumerate(gpus):
        here = {kind for kind, struck in conditions.items() if struck == index} | ({"working"} if working else set())
        inner = "".join(_render(entry, 2) for entry in _gpu(index, gpu, library, here, fabric))
        body += f'\t<gpu id="{_long_bus_id(gpu)}">\n{inner}\t</gpu>\n'
    return head + body + "</nvidia_smi_log>\n"


def _render(entry: Node, depth: int) -> str:
    tag, value = entry
    indent = "\t" * depth
    if isinstance(value, list):
        inner = "".join(_render(child, depth + 1) for child in value)
        return f"{indent}<{tag}>\n{inner}{indent}</{tag}>\n"
    return f"{indent}<{tag}>{_escaped(str(value))}</{tag}>\n"


def _escaped(text: str) -> str:
    """Text for XML. The standard library's ways to it take as long to load as everything else here."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _all(names: str, value: str = "N/A") -> list[Node]:
    return [(name, value) for name in names.split()]


def _gpu(index: int, gpu: Gpu, library: str, faults: set[str], fabric: str | None) -> list[Node]:
    hot, working = "throttling" in faults, "working" in faults
    mode = _mig_mode(gpu) if gpu["mig"] else "N/A"
    return [
        ("product_name", gpu["name"]),
        ("product_brand", gpu["brand"]),
        ("product_architecture", gpu["architecture"]),
        ("display_mode", "Enabled" if gpu.get("boot_vga") else "Disabled"),
        ("display_attached", "No"),
        ("display_active", "Enabled" if gpu.get("boot_vga") else "Disabled"),
        ("persistence_mode", _persistence(gpu)),
        ("addressing_mode", "None" if gpu["ecc"] else "HMM"),
        ("mig_mode", _all("current_mig pending_mig", mode)),
        ("mig_devices", [_mig_device(each) for each in mig.devices(gpu)] or "None"),
        ("accounting_mode", "Disabled"),
        ("accounting_mode_buffer_size", "4000"),
        ("driver_model", _all("current_dm pending_dm")),
        ("serial", gpu["serial"]),
        ("uuid", gpu["uuid"]),
        ("minor_number", str(index)),
        ("vbios_version", gpu["vbios"]),
        ("multigpu_board", "No"),
        ("board_id", f"0x{0x1900 + index * 0x100:x}"),
        ("board_part_number", "N/A"),
        ("gpu_part_number", f"{gpu['device'].upper()}-885-A1"),
        ("gpu_module_id", str(index + 1) if gpu["nvlinks"] else "1"),
        (
            "inforom_version",
            [
                ("img_version", "G520.0200.00.05"),
                ("oem_object", "2.1"),
                ("ecc_object", "7.16" if gpu["ecc"] else "N/A"),
                ("pwr_object", "N/A"),
            ],
        ),
        ("gpu_operation_mode", _all("current_gom pending_gom")),
        ("c2c_mode", "Disabled" if gpu["architecture"] == "Hopper" else "N/A"),
        ("gpu_virtualization_mode", [("virtualization_mode", "None"), *_all("host_vgpu_mode vgpu_heterogeneous_mode")]),
        ("gpu_recovery_action", "Reset" if "ecc" in faults else "None"),
        ("gsp_firmware_version", library if gpu["gsp"] else "N/A"),
        ("pci", _pci(gpu, narrow="narrow-pcie" in faults)),
        ("fan_speed", gpu.get("fan", "N/A")),
        ("performance_state", "P0"),
        ("clocks_event_reasons", _event_reasons(hot=hot, working=working)),
        (
            "fb_memory_usage",
            [
                ("total", f"{gpu['memory_mib']} MiB"),
                ("reserved", f"{gpu['reserved_mib']} MiB"),
                ("used", "0 MiB"),
                ("free", f"{gpu['memory_mib'] - gpu['reserved_mib']} MiB"),
            ],
        ),
        (
            "bar1_memory_usage",
            [("total", f"{gpu['bar1_mib']} MiB"), ("used", "1 MiB"), ("free", f"{gpu['bar1_mib'] - 1} MiB")],
        ),
        ("cc_protected_memory_usage", _all("total used free", "0 MiB")),
        ("compute_mode", board.state(gpu)["compute"]),
        (
            "utilization",
            [
                *_all("gpu_util memory_util", "100 %" if working else "0 %"),
                *_all("encoder_util decoder_util jpeg_util ofa_util", "0 %"),
            ],
        ),
        ("ecc_mode", [("current_ecc", _ecc_mode(gpu, "ecc")), ("pending_ecc", _ecc_mode(gpu, "ecc_pending"))]),
        ("ecc_errors", _ecc_errors(gpu, broken="ecc" in faults)),
        ("retired_pages", _retired_pages(gpu)),
        ("remapped_rows", _remapped_rows(gpu, broken="ecc" in faults)),
        ("temperature", _temperature(index, gpu, hot=hot, working=working)),
        ("gpu_power_readings", _power(gpu, drawing=hot or working)),
        ("gpu_memory_power_readings", _all("average_power_draw instant_power_draw")),
        (
            "module_power_readings",
            _all(
                "power_state average_power_draw instant_power_draw current_power_limit requested_power_limit"
                " default_power_limit min_power_limit max_power_limit"
            ),
        ),
        ("clocks", _clocks(gpu, gpu["sm_mhz"] // 3 if hot else gpu["sm_mhz"])),
        (
            "applications_clocks",
            _clock_pair(board.state(gpu)["application"]),
        ),
        ("default_applications_clocks", _clock_pair([gpu["memory_mhz"], gpu["sm_mhz"]])),
        ("max_clocks", _clocks(gpu, gpu["sm_mhz"])),
        ("clock_policy", _all("auto_boost auto_boost_default")),
        ("fabric", _fabric(fabric)),
        ("supported_clocks", [("supported_mem_clock", _supported(gpu))]),
        ("processes", []),
        ("accounted_processes", []),
    ]


def _ecc_mode(gpu: Gpu, which: str) -> str:
    return ("Enabled" if board.state(gpu)[which] else "Disabled") if gpu["ecc"] else "N/A"


def _clock_pair(clocks: list[int]) -> list[Node]:
    return [("graphics_clock", f"{clocks[1]} MHz"), ("mem_clock", f"{clocks[0]} MHz")]


def _supported(gpu: Gpu) -> list[Node]:
    offered: list[Node] = [("supported_graphics_clock", f"{clock} MHz") for clock in board.supported(gpu)]
    return [("value", f"{gpu['memory_mhz']} MHz"), *offered]


def _mig_mode(gpu: Gpu) -> str:
    return "Enabled" if mig.state(gpu)["mode"] else "Disabled"


def _mig_device(device: dict[str, Any]) -> Node:
    memory = device["memory_mib"]
    return (
        "mig_device",
        [
            ("index", str(device["index"])),
            ("gpu_instance_id", str(device["gi"])),
            ("compute_instance_id", "0"),
            (
                "fb_memory_usage",
                [("total", f"{memory} MiB"), ("reserved", "0 MiB"), ("used", "12 MiB"), ("free", f"{memory - 12} MiB")],
            ),
        ],
    )


def _pci(gpu: Gpu, *, narrow: bool) -> list[Node]:
    domain, bus, device = gpu["bus_id"].upper().split(":")
    generation, width = str(gpu["pcie_gen"]), gpu["pcie_width"]
    vendor, number = gpu["vendor"].upper(), gpu["device"].upper()
    subsystem_vendor, subsystem_device = gpu["subsystem"].upper().split(":")
    return [
        ("pci_bus", bus),
        ("pci_device", device.split(".")[0]),
        ("pci_domain", domain),
        ("pci_base_class", "3"),
        ("pci_sub_class", "2" if gpu["class"].startswith("0302") else "0"),
        ("pci_device_id", number + vendor),
        ("pci_bus_id", _long_bus_id(gpu)),
        ("pci_sub_system_id", subsystem_device + subsystem_vendor),
        ("pci_gpu_link_info", [
            ("pcie_gen", _all("max_link_gen current_link_gen device_current_link_gen max_device_link_gen max_host_link_gen", generation)),
            ("link_widths", [("max_link_width", f"{width}x"), ("current_link_width", "4x" if narrow else f"{width}x")]),
        ]),
        ("pci_bridge_chip", _all("bridge_chip_type bridge_chip_fw")),
        ("replay_counter", "0"),
        ("replay_rollover_counter", "0"),
        ("tx_util", "0 KB/s"),
        ("rx_util", "0 KB/s"),
        ("atomic_caps_outbound", "N/A"),
        ("atomic_caps_inbound", "N/A"),
    ]  # fmt: skip


_EVENT_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
)


def _event_reasons(*, hot: bool, working: bool) -> list[Node]:
    resting = set() if working else {"gpu_idle"}
    active = {"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"} if hot else resting
    return [(f"clocks_event_reason_{name}", "Active" if name in active else "Not Active") for name in _EVENT_REASONS]


#: The bits of what is active in _event_reasons (nvml.h).
_IDLE, _HOT = 0x1, 0x8 | 0x20 | 0x40


def _mask(*, hot: bool) -> str:
    return f"0x{_HOT if hot else _IDLE:016x}"


def _ecc_errors(gpu: Gpu, *, broken: bool) -> list[Node]:
    names = "sram_correctable sram_uncorrectable_parity sram_uncorrectable_secded dram_correctable dram_uncorrectable"
    if not gpu["ecc"]:
        return [("volatile", _all(names)), ("aggregate", [*_all(names), ("sram_threshold_exceeded", "N/A")])]
    counts = {"sram_uncorrectable_parity": "2", "dram_uncorrectable": "3"} if broken else {}
    values = [(name, counts.get(name, "0")) for name in names.split()]
    return [
        ("volatile", values),
        ("aggregate", [*values, ("sram_threshold_exceeded", "Yes" if broken else "No")]),
        (
            "aggregate_uncorrectable_sram_sources",
            _all("sram_l2 sram_sm sram_microcontroller sram_pcie sram_other", "0"),
        ),
    ]


def _retired_pages(gpu: Gpu) -> list[Node]:
    count = "0" if gpu["ecc"] and not gpu["row_remapping"] else "N/A"
    pending = "No" if count == "0" else "N/A"
    kinds = ("multiple_single_bit_retirement", "double_bit_retirement")
    pages: list[Node] = [
        (kind, [("retired_count", count), ("retired_pagelist", "N/A" if count == "N/A" else "")]) for kind in kinds
    ]
    return [*pages, ("pending_blacklist", pending), ("pending_retirement", pending)]


def _remapped_rows(gpu: Gpu, *, broken: bool) -> Any:
    if not gpu["row_remapping"]:
        return "N/A"
    histogram = [
        (f"row_remapper_histogram_{name}", f"{2560 if name == 'max' else 0} bank(s)")
        for name in ["max", "high", "partial", "low", "none"]
    ]
    return [
        ("remapped_row_corr", "0"), ("remapped_row_unc", "3" if broken else "0"), ("remapped_row_pending", "Yes" if broken else "No"),
        ("remapped_row_failure", "No"), ("row_remapper_histogram", histogram),
    ]  # fmt: skip


def _temperature(index: int, gpu: Gpu, *, hot: bool, working: bool) -> list[Node]:
    now = _TEMPERATURE_HOT if hot else (_TEMPERATURE_WORKING if working else _TEMPERATURE_IDLE) + index
    return [
        ("gpu_temp", f"{now} C"), ("gpu_temp_tlimit", "N/A"), ("gpu_temp_max_threshold", "95 C"), ("gpu_temp_slow_threshold", "92 C"),
        ("gpu_temp_max_gpu_threshold", "87 C"), ("gpu_target_temperature", "N/A" if gpu["ecc"] else "83 C"),
        ("memory_temp", f"{now + 6} C" if gpu["ecc"] else "N/A"), ("gpu_temp_max_mem_threshold", "95 C" if gpu["ecc"] else "N/A"),
    ]  # fmt: skip


def _power(gpu: Gpu, *, drawing: bool) -> list[Node]:
    draw = f"{gpu['power_w'] * 0.95 if drawing else gpu['idle_w']:.2f} W"
    limit, usual = f"{board.state(gpu)['power']:.2f} W", f"{gpu['power_w']:.2f} W"
    return [
        ("power_state", "P0"), ("average_power_draw", draw), ("instant_power_draw", draw), ("current_power_limit", limit),
        ("requested_power_limit", limit), ("default_power_limit", usual),
        ("min_power_limit", f"{board.lowest_power(gpu):.2f} W"), ("max_power_limit", usual),
    ]  # fmt: skip


def _clocks(gpu: Gpu, clock: int) -> list[Node]:
    return [
        ("graphics_clock", f"{clock} MHz"),
        ("sm_clock", f"{clock} MHz"),
        ("mem_clock", f"{gpu['memory_mhz']} MHz"),
        ("video_clock", f"{clock * 9 // 10} MHz"),
    ]


def _fabric(state: str | None) -> list[Node]:
    if state is None:
        return _all("state status cliqueId clusterUuid")
    done = state == "Completed"
    return [
        ("state", state),
        ("status", "Success" if done else "N/A"),
        ("cliqueId", "0" if done else "N/A"),
        ("clusterUuid", "00000000-0000-0000-0000-000000000000" if done else "N/A"),
    ]
