"""A bare-metal machine: a real kernel, boot loader and init in QEMU, without KVM. No card, not even a simulated one.

It is what a container cannot be: nouveau is really loaded, an initramfs really decides what the next boot does, the kernel itself
says what it finds, and its power can be cut. The disk image is made once from the node image (``onmetal/*.sh``), with a throw-away key
that it lets in, and booted once; disk and memory after that boot are cached for all clones, and a machine goes on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from . import engine, image, node, settings
from .engine import docker
from .shell import SimulationError, run, say

_SCRIPTS = settings.HERE / "onmetal"
_ON_NODE = settings.HERE / "onnode"
_FOLDER = settings.STATE / "metal"
_DISKS = settings.CACHE / "metal"
_DISK_MEBIBYTES = 8192
_BOOT_LIMIT_SECONDS = 900
#: The distribution's driver as the rules resolve it, with what it is compiled by.
_DRIVER = (
    "nvidia-smi", "libcuda1", "libnvidia-cfg1", "libnvidia-encode1", "nvidia-cuda-mps",
    "nvidia-kernel-dkms", "nvidia-persistenced", "firmware-nvidia-gsp",
)  # fmt: skip
_LOADED_BEFORE = "nouveau"
#: What it has of the simulated nodes: no card, but their partial mirror, and Python that keeps what it compiles.
_PROGRAMS = ("mirror.py", "compiled.py")
# Never KVM: its device may exist and hang. The emulated processor has what a compiler of today may emit. One of them: a second would
# cost more than it brings, for what runs there are small programs one after the other.
_MACHINE = (
    "-machine", "q35", "-cpu", "max", "-accel", "tcg,tb-size=1024", "-smp", "1", "-m", "2048",
    "-display", "none", "-monitor", "none", "-device", "virtio-rng-pci", "-device", "virtio-net-pci,netdev=net",
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------
# The life of a machine
# --------------------------------------------------------------------------------------------------------------------


def create(name: str) -> None:
    """A machine called NAME, booted and reachable over ssh."""
    folder = _FOLDER / name
    if folder.exists():
        raise SimulationError(f"there is a machine {name} already: `python -m tests.sim metal rm {name}`")
    booted = ensure_booted()
    _set_up(name, booted)
    begun = time.monotonic()
    switch_on(name, "-incoming", f"exec:cat {booted.with_suffix('.memory')}")
    wait(name)
    # Its clock stood still since its boot.
    shell(name, f"date --set=@{time.time():.0f}")
    _say_up(name, begun)


def start(name: str) -> None:
    """Switch the machine on and wait until it has booted."""
    begun = time.monotonic()
    switch_on(name)
    wait(name)
    _say_up(name, begun)


def _say_up(name: str, begun: float) -> None:
    say(f"machine {name} is up after {time.monotonic() - begun:.0f} s, ssh on 127.0.0.1:{_state(name)['port']}")


def _set_up(name: str, disk: Path) -> None:
    """A machine that is switched off, its disk an overlay of DISK."""
    folder = _FOLDER / name
    folder.mkdir(parents=True)
    form = "raw" if disk.suffix == ".raw" else "qcow2"
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", form, "-b", disk, folder / "disk.qcow2"])
    shutil.copy(disk.with_suffix(".key"), folder / "key")
    (folder / "machine.json").write_text(json.dumps({"port": node.free_port(), "pid": None}))


def switch_on(name: str, *more: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Switch the machine on and return at once. MORE are arguments of QEMU."""
    folder, state = _FOLDER / name, _state(name)
    console = folder / "console.log"
    command = [
        "qemu-system-x86_64", *_MACHINE,
        "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{state['port']}-:22",
        "-drive", f"file={folder / 'disk.qcow2'},if=virtio,format=qcow2,cache=writeback",
        "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console", *more,
    ]  # fmt: skip
    with (folder / "qemu.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=stdin, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    (folder / "machine.json").write_text(json.dumps({**state, "pid": process.pid}))
    return process


def cut_power(name: str) -> None:
    """Take the power from the machine in this instant: what its kernel had not yet written is gone."""
    pid = _state(name)["pid"]
    if not _runs(pid):
        return
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    # A process that is killed keeps its lock on the disk until the last of its threads is gone.
    disk = _FOLDER / name / "disk.qcow2"
    while run(["qemu-img", "info", disk], check=False).returncode != 0:
        time.sleep(0.1)


def remove(name: str) -> None:
    """The machine and its disk; the image stays."""
    if (_FOLDER / name).exists():
        cut_power(name)
        shutil.rmtree(_FOLDER / name)


def clean(*, disks: bool) -> None:
    """Every machine of this clone; with DISKS what all clones begin with too."""
    for name in names():
        remove(name)
    if disks:
        shutil.rmtree(_DISKS, ignore_errors=True)


def names() -> list[str]:
    """Every machine that there is, running or not."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/machine.json"))


def shell(name: str, command: str, *, check: bool = True) -> str:
    """What COMMAND prints on the machine, run by a shell as root."""
    return run(over_ssh(name, command), check=check).stdout


def over_ssh(name: str, command: str) -> list[str | Path]:
    """What runs COMMAND there by a shell as root."""
    return [*_ssh(name), "sudo", "sh", "-c", _quoted(command)]


def console(name: str) -> str:
    """What the serial console said since the machine was made."""
    return (_FOLDER / name / "console.log").read_text(errors="replace")


def inventory(wanted: list[str]) -> str:
    """An Ansible inventory (YAML) over real ssh. A task takes seconds on an emulated processor, and so does a login."""
    hosts = {
        name: {
            "ansible_host": "127.0.0.1",
            "ansible_port": _state(name)["port"],
            "ansible_ssh_private_key_file": str(_FOLDER / name / "key"),
        }
        for name in wanted or names()
    }
    variables: dict[str, Any] = {**node.login(), "ansible_timeout": 120}
    return yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}, sort_keys=False)


def wait(name: str, limit: float = _BOOT_LIMIT_SECONDS) -> None:
    """Return when the machine lets its account in and its boot is finished.

    Raises:
        SimulationError: it did not within LIMIT seconds; with the end of its console.
    """
    until = time.monotonic() + limit
    while time.monotonic() < until:
        answer = run([*_ssh(name), "systemctl", "is-system-running"], check=False, timeout=None)
        if answer.stdout.strip() in ("running", "degraded"):
            return
        if not _runs(_state(name)["pid"]):
            raise SimulationError(f"QEMU ended:\n{(_FOLDER / name / 'qemu.log').read_text(errors='replace')[-2000:]}")
        time.sleep(2)
    raise SimulationError(
        f"the machine {name} did not boot within {limit:.0f} s. The end of its console:\n{console(name)[-3000:]}"
    )


def _state(name: str) -> dict[str, Any]:
    path = _FOLDER / name / "machine.json"
    if not path.exists():
        raise SimulationError(f"there is no machine {name}: `python -m tests.sim metal create {name}`")
    return dict(json.loads(path.read_text()))


def _runs(pid: int | None) -> bool:
    if pid is None:
        return False
    # Of a child of this process the kernel says it; in its first moments /proc has no command line of it yet.
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and b"qemu-system" in command.read_bytes()


def _ssh(name: str) -> list[str | Path]:
    return [
        "ssh", "-q", "-p", str(_state(name)["port"]), "-i", _FOLDER / name / "key", *node.SSH_OPTIONS, "-o", "ConnectTimeout=10",
        "-o", "BatchMode=yes", f"{settings.NODE_USER}@127.0.0.1",
    ]  # fmt: skip


def _quoted(command: str) -> str:
    """The words for the shell at the other end of ssh."""
    return "'" + command.replace("'", "'\\''") + "'"


# --------------------------------------------------------------------------------------------------------------------
# What every machine begins with
# --------------------------------------------------------------------------------------------------------------------


def ensure_booted() -> Path:
    """The disk after its first boot, an overlay of the built one; beside it (``.memory``) what the machine had in its memory.

    Both are made first where they are not there. Another QEMU, or another machine, cannot read the memory.
    """
    engine.ensure_for_metal()
    disk = _ensure_disk()
    # The key is of this very disk, where its name is of every one by the same recipe.
    recipe = f"{disk.with_suffix('.key').read_text()} {_MACHINE} {run(['qemu-system-x86_64', '--version']).stdout}"
    booted = _DISKS / f"{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.qcow2"
    with settings.locked("booted"):
        if not booted.exists():
            say("the machine boots for the first time (once; some minutes)")
            _boot(disk, booted)
        settings.used(booted)
    return booted


def _boot(disk: Path, booted: Path) -> None:
    for old in settings.forgotten(_DISKS.glob("*.qcow2")):
        for each in (old, old.with_suffix(".key"), old.with_suffix(".memory")):
            each.unlink()
    name = "first-boot"
    remove(name)
    _set_up(name, disk)
    machine = switch_on(name, "-monitor", "stdio", stdin=subprocess.PIPE)
    try:
        wait(name)
        machine.communicate(f"migrate exec:cat>{booted.with_suffix('.memory')}\ninfo migrate\nquit\n".encode())
        log = (_FOLDER / name / "qemu.log").read_text(errors="replace")
        if "Migration status: completed" not in log:
            raise SimulationError(f"QEMU did not hand over what is in the machine's memory:\n{log[-2000:]}")
        shutil.copy(disk.with_suffix(".key"), booted.with_suffix(".key"))
        shutil.move(_FOLDER / name / "disk.qcow2", booted)
    finally:
        remove(name)


def _ensure_disk() -> Path:
    """The disk before any boot; it is built first where it is not there."""
    base = image.ensure()
    programs = [*sorted(_SCRIPTS.glob("*.sh")), *(_ON_NODE / "gpuwright_sim" / name for name in _PROGRAMS)]
    recipe = f"{base} {settings.recipe(*programs)} {_DRIVER} {_LOADED_BEFORE} {_DISK_MEBIBYTES}"
    disk = _DISKS / f"{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.raw"
    with settings.locked("disk"):
        if not disk.exists():
            begun = time.monotonic()
            say("building the disk of a bare-metal machine (once; some minutes)")
            _build(base, disk)
            say(f"the disk is there after {time.monotonic() - begun:.0f} s")
        settings.used(disk)
    return disk


def _build(base: str, disk: Path) -> None:
    for old in settings.forgotten(_DISKS.glob("*.raw")):
        old.unlink()
        old.with_suffix(".key").unlink()
    system = f"{settings.CONTAINER_PREFIX}metal-system"
    work = _DISKS / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuwright machine in QEMU", "-f", work / "key"])
        key = (work / "key.pub").read_text().strip()
        _step(base, "system.sh", work, _LOADED_BEFORE, keep=system)
        say("DKMS compiles the driver for it")
        _step(system, "module.sh", work, *_DRIVER)
        _step(system, "disk.sh", work, str(_DISK_MEBIBYTES), key, settings.NODE_USER)
        (work / "key").rename(disk.with_suffix(".key"))
        (work / "disk.raw").rename(disk)
    finally:
        docker("rmi", "-f", system, check=False)
        shutil.rmtree(work, ignore_errors=True)


def _step(base: str, script: str, work: Path, *arguments: str, keep: str | None = None) -> None:
    """Run one of the scripts in a container of BASE; KEEP is the name of the image that it becomes."""
    container = f"{settings.CONTAINER_PREFIX}metal-build"
    docker("rm", "-f", container, check=False)
    docker("create", "--name", container, "--label", settings.INSTANCE_LABEL, "-v", f"{work}:/out",
           "-v", f"{_SCRIPTS}:/onmetal:ro", "-v", f"{_ON_NODE}:/onnode:ro", base, "sh", f"/onmetal/{script}", *arguments)  # fmt: skip
    try:
        done = docker("start", "--attach", container, check=False)
        if done.returncode != 0:
            raise SimulationError(f"{script} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        if keep:
            docker("commit", container, keep)
    finally:
        docker("rm", "-f", container, check=False)
