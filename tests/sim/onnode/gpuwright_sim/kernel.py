"""The simulated kernel: which modules load, and what it says when one does not.

Whether a module is there, of which version and licence, is asked of the real `modinfo`; only the insertion is simulated.
What only an insertion needs is imported there: `nvidia-smi` is called often, and the real one is quick.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from . import hardware, node

# The names of its module: NVIDIA's own, and those of Debian's packages.
NVIDIA = ("nvidia", "nvidia-current", "nvidia-current-open")
# Of the kernel itself, without a file on a simulated node.
_PLAIN = ("ib-umad",)
_MAJOR_NVIDIA = 195
# Ubuntu's rule of udev, which does not run in a container; and the unit that stands for the driver's device.
_UDEV_RULE = Path("/usr/lib/udev/rules.d/71-nvidia.rules")
_DEVICE_UNIT = "gpuwright-sim-card.service"
_WINDOWS_ADAPTER = {
    "bus_id": "0f2a:00:00.0",
    "vendor": "1414",
    "device": "008e",
    "class": "030200",
    "driver": "dxgkrnl",
}
# Released with CUDA; what `nvidia-smi` names as "CUDA Version".
CUDA_OF_BRANCH = {
    "535": "12.2",
    "550": "12.4",
    "560": "12.6",
    "570": "12.8",
    "580": "13.0",
    "590": "13.1",
    "595": "13.2",
    "610": "13.3",
}


class InsertionError(Exception):
    """The kernel refused a module; the text is errno's, as modprobe shows it."""


def release() -> str:
    """The booted kernel."""
    return (node.VIEW / "kernel").read_text().strip()


def modinfo(name: str, kernel: str) -> dict[str, str] | None:
    """What the real modinfo knows of the module NAME for KERNEL; None when there is none."""
    import subprocess

    answer = subprocess.run(["/usr/sbin/modinfo", "-k", kernel, name], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return None
    fields: dict[str, str] = {}
    for line in answer.stdout.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key, value.strip())
    return fields


def is_simulated(name: str) -> bool:
    """Whether the insertion of module NAME is simulated (everything else goes to the real kernel)."""
    plain = name.replace("_", "-")
    return plain.startswith("nvidia") or plain == "nouveau" or plain in _PLAIN


def insert(name: str) -> None:
    """Load the module NAME (of any spelling) that is installed for the booted kernel.

    Raises:
        FileNotFoundError: there is none for this kernel.
        InsertionError: the kernel would not take it.
    """
    plain = name.replace("_", "-")
    if plain == "nouveau":
        _insert_nouveau()
        return
    if plain in _PLAIN:
        _store({**node.loaded(), plain.replace("-", "_"): {"version": None}})
        return
    if plain in NVIDIA:
        _insert_nvidia(plain)
        return
    _insert_companion(plain)


def remove(name: str) -> None:
    """Unload the module NAME and what depends on it."""
    plain = name.replace("_", "-")
    modules = node.loaded()
    gone = [
        entry
        for entry in modules
        if entry == plain or (plain in NVIDIA and entry.replace("_", "-").startswith("nvidia"))
    ]
    gone += [entry for entry in modules if entry.replace("_", "-") == plain and entry not in gone]
    if not gone:
        raise InsertionError(f"Module {name} is not currently loaded")
    _store({entry: info for entry, info in modules.items() if entry not in gone})
    if "nvidia" in gone:
        _systemd("systemctl", "stop", "--no-block", _DEVICE_UNIT)


def _insert_nouveau() -> None:
    if modinfo("nouveau", release()) is None:
        raise FileNotFoundError("nouveau")
    modules = node.loaded()
    if "nvidia" in modules or "nouveau" in modules:
        return
    _store({**modules, "nouveau": {"version": None}})
    for gpu in node.scenario()["gpus"]:
        node.log(f"nouveau {gpu['bus_id']}: NVIDIA {gpu['chip']}")


def _insert_companion(name: str) -> None:
    info = modinfo(name, release())
    if info is None:
        raise FileNotFoundError(name)
    if name.endswith("-peermem") and not node.scenario().get("adapters"):
        # Without an InfiniBand stack there is nobody to register with.
        raise InsertionError("Invalid argument")
    modules = node.loaded()
    if "nvidia" not in modules:
        insert(next((each for each in NVIDIA if modinfo(each, release())), "nvidia"))
        modules = node.loaded()
    key = name.replace("-current", "").replace("nvidia-open-", "nvidia-").replace("-", "_")
    _store({**modules, key: {"version": info.get("version")}})


def _insert_nvidia(name: str) -> None:
    current = node.loaded()
    if "nvidia" in current:
        return
    info = modinfo(name, release())
    if info is None:
        raise FileNotFoundError(name)
    scenario = node.scenario()
    if node.fault("module-not-loaded") is not None:
        raise InsertionError("Exec format error")
    if scenario.get("secure_boot") and not _accepted(info.get("signer")):
        node.log("Loading of unsigned module is rejected")
        raise InsertionError("Key was rejected by service")
    # A real module, of the distribution's own packages, finds what there really is: nothing.
    if not scenario["gpus"] or scenario.get("real_packages"):
        node.log("NVRM: No NVIDIA GPU found.")
        raise InsertionError("No such device")
    if "nouveau" in current:
        _complain_of_nouveau(scenario["gpus"])
        raise InsertionError("No such device")
    open_source = "MIT" in info.get("license", "")
    working = [gpu for gpu in scenario["gpus"] if _initialise(gpu, open_source=open_source)]
    if open_source and not working:
        node.log(f"NVRM: The NVIDIA probe routine failed for {len(scenario['gpus'])} device(s).")
        node.log("NVRM: None of the NVIDIA devices were initialized.")
        raise InsertionError("No such device")
    version = info["version"]
    node.log(f"nvidia: loading out-of-tree module taints kernel.{'' if open_source else ' (proprietary)'}")
    node.log(f"NVRM: loading NVIDIA UNIX {'Open ' if open_source else ''}Kernel Module for x86_64  {version}")
    module = {"version": version, "open": open_source, "working": [gpu["uuid"] for gpu in working]}
    _store(
        {
            **current,
            "nvidia": module,
            "nvidia_modeset": {"version": version},
            "nvidia_drm": {"version": version},
            "nvidia_uvm": {"version": version},
        }
    )
    if _UDEV_RULE.exists():
        wants = "--property=Wants=nvidia-persistenced.service"
        _systemd(
            "systemd-run",
            "--no-block",
            "--collect",
            "--remain-after-exit",
            f"--unit={_DEVICE_UNIT}",
            wants,
            "/bin/true",
        )


def _systemd(*command: str) -> None:
    """Ask systemd for what udev would; where it does not run (yet), nobody would."""
    import subprocess

    subprocess.run(command, capture_output=True, check=False)


def _accepted(signer: str | None) -> bool:
    """Whether the firmware takes a module: signed by the distribution, or by a machine owner key that is enrolled."""
    from . import dkms, mok

    if signer != dkms.SIGNER:
        return bool(signer)
    return dkms.KEY.exists() and mok.accepts(dkms.KEY.read_bytes())


def _initialise(gpu: dict[str, Any], *, open_source: bool) -> bool:
    """Whether the modules of this flavour can drive the card; if not, the log says why in NVIDIA's words."""
    if gpu.get("bound"):
        return False
    needs = gpu["modules"]
    if needs == "proprietary" and open_source:
        node.log(f"NVRM: The NVIDIA GPU {gpu['bus_id']} (PCI ID: {gpu['vendor']}:{gpu['device']})")
        node.log("NVRM: installed in this system is not supported by open")
        node.log("NVRM: nvidia.ko because it does not include the required GPU")
        node.log("NVRM: System Processor (GSP).")
        return False
    if needs == "open" and not open_source:
        node.log(f"NVRM: The NVIDIA GPU {gpu['bus_id']} (PCI ID: {gpu['vendor']}:{gpu['device']})")
        node.log("NVRM: installed in this system requires use of the NVIDIA open kernel modules.")
        node.log(f"NVRM: GPU {gpu['bus_id']}: RmInitAdapter failed! (0x22:0x56:1017)")
        node.log(f"NVRM: GPU {gpu['bus_id']}: rm_init_adapter failed, device minor number 0")
        return False
    return True


def _complain_of_nouveau(gpus: list[dict[str, Any]]) -> None:
    for gpu in gpus:
        node.log(f"NVRM: GPU {gpu['bus_id']} is already bound to nouveau.")
    node.log(f"NVRM: The NVIDIA probe routine was not called for {len(gpus)} device(s).")
    node.log("NVRM: This can occur when another driver was loaded and")
    node.log("NVRM: obtained ownership of the NVIDIA device(s).")
    node.log("NVRM: No NVIDIA devices probed.")


def _store(modules: dict[str, dict[str, Any]]) -> None:
    (node.VIEW / "loaded.json").write_text(json.dumps(modules))
    refresh()


# --------------------------------------------------------------------------------------------------------------------
# What programs see of it
# --------------------------------------------------------------------------------------------------------------------


def shown_module() -> dict[str, Any] | None:
    """The NVIDIA module as it shows itself: with the fault version-mismatch, as an older build."""
    module = node.loaded().get("nvidia")
    if module is None:
        return None
    if node.fault("version-mismatch") is not None:
        return {**module, "version": module["version"].split(".")[0] + ".65.06"}
    return module


def refresh() -> None:
    """Write everything anew that follows from the loaded modules and the faults."""
    from . import tree

    modules = dict(node.loaded())
    module = shown_module()
    if module is not None:
        modules = {
            name: {**info, "version": module["version"]} if name.startswith("nvidia") else info
            for name, info in modules.items()
        }
    scenario = node.scenario()
    gpus = scenario["gpus"]
    if scenario.get("windows_driver"):
        # Windows has the bus and the module; inside there is one device, through which its libraries reach the cards.
        tree.write_modules(node.VIEW, {})
        tree.write_pci(node.VIEW, [], None, None, [_WINDOWS_ADAPTER])
        tree.write_driver(node.VIEW, [], None)
        _write_cuda_state(gpus, {"version": node.WSL_BUILD, "working": [gpu["uuid"] for gpu in gpus]})
        return
    driver = "nvidia" if module else "nouveau" if "nouveau" in modules else None
    tree.write_modules(node.VIEW, modules)
    tree.write_pci(node.VIEW, gpus, driver, node.fault("narrow-pcie"), hardware.beside(scenario))
    ours = [gpu for gpu in gpus if not gpu.get("bound")]
    tree.write_driver(node.VIEW, ours, module)
    _write_device_nodes(ours if module else [])
    _write_cuda_state(gpus, module)


def _write_device_nodes(gpus: list[dict[str, Any]]) -> None:
    for path in Path("/dev").glob("nvidia*"):
        if stat.S_ISCHR(path.lstat().st_mode):
            path.unlink()
    names = [("nvidiactl", 255), *((f"nvidia{index}", index) for index in range(len(gpus)))] if gpus else []
    for name, minor in names:
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(_MAJOR_NVIDIA, minor))
        os.chmod(f"/dev/{name}", 0o666)


def _cuda_devices(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """What CUDA takes for a device: the card, or its MIG devices; a card in MIG mode without any is none."""
    from . import mig

    if not mig.state(gpu)["mode"]:
        return [gpu]
    return [
        {**gpu, "name": f"{gpu['name']} MIG {each['profile']}", "uuid": each["uuid"], "memory_mib": each["memory_mib"]}
        for each in mig.devices(gpu)
    ]


# What makes the stand-in libcuda a broken card, see stubs/libcuda.c.
_CUDA_FAULTS = {
    "wrong-memory": "flip 1000 5",
    "wrong-results": "wrong compute_fma",
    "hanging-load": "hang",
    "crashing-load": "crash",
    "failing-load": "launch 719",
}


def _write_cuda_state(gpus: list[dict[str, Any]], module: dict[str, Any] | None) -> None:
    """The lines that the stand-in libcuda reads: result of cuInit, the module's version, one line a card."""
    no_device, not_ready, unknown = 100, 802, 999
    working = [part for gpu in gpus if module and gpu["uuid"] in module["working"] for part in _cuda_devices(gpu)]
    # CUDA shows one MIG device and no more.
    working = [part for part in working if part["uuid"].startswith("MIG-")][:1] or working
    result = 0 if working else no_device
    if working and hardware.fabric_state() == "In Progress":
        result = not_ready
    if node.fault("fallen-off-bus") is not None or node.fault("cuda-unknown") is not None:
        result = unknown if working else no_device
    lines = [f"result {result}", f"kernel {module['version'] if module else '-'}"]
    for gpu in working:
        major, minor = gpu["compute_capability"].split(".")
        lines.append(f"gpu {gpu['memory_mib']} {major} {minor} {gpu['uuid']} {gpu['bus_id']} {gpu['name']}")
    lines += [line for kind, line in _CUDA_FAULTS.items() if node.fault(kind) is not None]
    temporary = node.VIEW / "cuda.new"
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(node.VIEW / "cuda")
