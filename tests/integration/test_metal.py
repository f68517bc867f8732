"""`gpuwright up` on a real kernel: a machine in QEMU whose nouveau, initramfs, boots and power cuts are real. Its card is missing.

GPUWRIGHT_METAL_CUTS=N cuts the power of N machines instead of one; GPUWRIGHT_METAL_SEED=S begins with the moment of an earlier run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import metal, settings

from .conftest import Run, command_line, environment, gpuwright

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="machines")]

_WISH = ("--gpu", "H100", "--want", "driver", "--want", "driver-source=distro")
_BLACKLIST = "etc/modprobe.d/gpuwright-nouveau.conf"
_NO_CARD = "NVRM: No NVIDIA GPU found."
_CUTS = int(os.environ.get("GPUWRIGHT_METAL_CUTS", "1"))
_SEED = int(os.environ.get("GPUWRIGHT_METAL_SEED", time.time_ns() % 100_000))
#: Seconds after dpkg began within which the power is cut: on an emulated processor it unpacks, configures, builds and packs that long.
_WINDOW_SECONDS = 100
_LIMIT_SECONDS = 3600
#: What is at work where it matters.
_WORK = "dpkg|dpkg-deb|dkms|xz|depmod|mkinitramfs|update-initramf|zstd|cpio"
_WATCH = f"while :; do ps -eo comm= | grep -xE '{_WORK}' | sort -u | tr '\\n' ' '; echo; sleep 1; done"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A new machine and its inventory, which says that one card is there."""
    name = "it-metal"
    metal.remove(name)
    metal.create(name)
    inventory: dict[str, Any] = yaml.safe_load(metal.inventory([name]))
    inventory["all"]["hosts"][name]["gpuwright_gpus_expected"] = 1
    path = tmp_path / "metal.yml"
    path.write_text(yaml.safe_dump(inventory))
    yield name, path
    if not os.environ.get("GPUWRIGHT_SIM_KEEP"):
        metal.remove(name)


def _up(inventory: Path) -> Run:
    report = Path(tempfile.mkdtemp(dir=inventory.parent))
    return gpuwright("up", "--yes", *_WISH, "-i", inventory, "--json", "--report", report, limit=_LIMIT_SECONDS)


def _loaded(name: str) -> set[str]:
    return {line.split()[0] for line in metal.shell(name, "lsmod").splitlines()[1:]}


def _assert_as_far_as_without_a_card(name: str, run: Run) -> None:
    """The driver is there, nouveau is gone, and the report says that the card is missing, with the kernel's own words."""
    assert run.code == 1, str(run)
    assert run.host["verdict"] == "fail"
    (check,) = [check for check in run.host["checks"] if check["id"] == "driver.module"]
    assert check["status"] == "fail"
    assert _NO_CARD in check["reason"]
    assert "reseat the card" in check["remedy"]
    assert "incomplete" in {check["status"] for check in run.host["checks"] if check["id"] == "gpu.compute"}

    kernel = metal.shell(name, "uname -r").strip()
    assert "nouveau" not in _loaded(name)
    assert _BLACKLIST in metal.shell(name, f"lsinitramfs /boot/initrd.img-{kernel}")
    assert _NO_CARD in metal.shell(name, "dmesg")
    assert f"{kernel}, x86_64: installed" in metal.shell(name, "dkms status")
    assert metal.shell(name, f"modinfo -k {kernel} -F version nvidia-current").startswith("550.")
    assert metal.shell(name, "dpkg --audit") == ""


def test_nouveau_gives_way_to_the_distributions_driver_and_the_missing_card_is_told(machine: tuple[str, Path]) -> None:
    name, inventory = machine
    assert "nouveau" in _loaded(name)
    boot = metal.shell(name, "cat /proc/sys/kernel/random/boot_id")

    run = _up(inventory)

    _assert_as_far_as_without_a_card(name, run)
    assert {"nvidia_driver", "nouveau_blacklist", "reboot"} <= run.components
    assert metal.shell(name, "cat /proc/sys/kernel/random/boot_id") != boot


@pytest.mark.metal
@pytest.mark.parametrize("seed", range(_SEED, _SEED + _CUTS))
def test_the_run_after_a_power_cut_heals_the_machine(
    machine: tuple[str, Path], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name, inventory = machine
    delay = random.Random(seed).uniform(0, _WINDOW_SECONDS)  # noqa: S311 - a moment, no secret

    at_work = _cut_power_during_up(name, inventory, delay)

    with capsys.disabled():
        print(f"\npower cut with seed {seed}, {delay:.1f} s after dpkg began; at work: {at_work or 'nothing of it'}")
    metal.start(name)
    _assert_as_far_as_without_a_card(name, _up(inventory))


def _cut_power_during_up(name: str, inventory: Path, delay: float) -> str:
    """Start `up`, cut the power DELAY seconds after dpkg began on the machine, end the run. What was at work there in the last moment."""
    command = [
        *command_line(),
        "up",
        "--yes",
        *_WISH,
        "-i",
        str(inventory),
        "--report",
        tempfile.mkdtemp(dir=inventory.parent),
    ]
    run = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd=settings.CLONE,
        start_new_session=True,
    )
    watch = subprocess.Popen(metal.over_ssh(name, _WATCH), stdout=subprocess.PIPE, text=True)
    seen: list[str] = []
    begun = threading.Event()

    def follow() -> None:
        for line in watch.stdout or ():
            seen.append(line.strip())
            if "dpkg" in line.split():
                begun.set()

    threading.Thread(target=follow, daemon=True).start()
    try:
        while not begun.wait(1):
            assert run.poll() is None, "the run ended before dpkg began"
        time.sleep(delay)
        assert run.poll() is None, "the run ended before the power was cut"
        metal.cut_power(name)
    finally:
        watch.kill()
        # The run would wait for the dead machine; nothing of it is left there that could go on.
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return next((words for words in reversed(seen) if words), "")
