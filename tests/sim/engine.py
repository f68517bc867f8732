"""What the machine itself has to have: the container engine and a few programs. Find them, install them, start the engine.

``make demo`` and ``make test`` call this first, so that a bare Debian or Ubuntu is enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from . import unpacked
from .shell import SimulationError, run, say

_PACKAGES = ("docker.io", "iptables")
# Newer Debian and Ubuntu split the command from the daemon; older ones carry it in docker.io.
_COMMAND_PACKAGE = "docker-cli"
# Programs of the simulation, and the packages that have them.
_PROGRAMS: dict[str, tuple[str, ...]] = {"debootstrap": ("debootstrap",), "gpg": ("gnupg",), "ssh": ("openssh-client",)}
# Programs of the tests beside those: without them a test would be skipped.
_TEST_PROGRAMS: dict[str, tuple[str, ...]] = {
    "fio": ("fio",),
    "gcc": ("gcc", "libc6-dev"),
    "modinfo": ("kmod",),
    "apt-ftparchive": ("apt-utils",),
    "dpkg-deb": ("dpkg",),
    "shellcheck": ("shellcheck",),
}
# Browsers that can lay out the report. The first is the smallest, a package of Debian; Ubuntu has browsers as snaps only.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Programs of the bare-metal machine.
_METAL_PROGRAMS: dict[str, tuple[str, ...]] = {
    "qemu-system-x86_64": ("qemu-system-x86",),
    "qemu-img": ("qemu-utils",),
}
_SYSTEM_PATH = ":/usr/sbin:/sbin"
_START_LIMIT_SECONDS = 60
# A new machine often upgrades itself (unattended-upgrades): wait for its lock, in seconds, instead of failing.
_WAIT = ("-o", "DPkg::Lock::Timeout=600")
_LOG = Path("/var/log/gpuwright-sim-dockerd.log")


def ensure() -> None:
    """Leave with the simulation's programs and an engine that answers, or with an error that says what to do."""
    _ensure_programs(_PROGRAMS)
    if _answers():
        return
    if shutil.which("docker") is None or _daemon_program() is None:
        _install_engine()
    if not _answers():
        _start()


def ensure_for_tests() -> None:
    """The same, with what the unit tests need besides."""
    _ensure_programs({**_PROGRAMS, **_TEST_PROGRAMS})
    _ensure_browser()
    for name in unpacked.PACKAGES:
        unpacked.program(name)
    ensure()


def ensure_for_metal() -> None:
    """The same, with what a machine in QEMU needs instead."""
    _ensure_programs(_METAL_PROGRAMS)
    ensure()


def docker(*arguments: str | Path, check: bool = True, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """One ``docker`` command."""
    return run(["docker", *arguments], check=check, stdin=stdin)


def docker_text(*arguments: str | Path) -> str:
    """What one ``docker`` command prints, without the blanks around it."""
    return docker(*arguments).stdout.strip()


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    answer = run(["docker", "version", "--format", "{{.Server.Version}}"], check=False)
    if answer.returncode != 0 and "permission denied" in answer.stderr.lower():
        user = os.environ.get("USER", "your account")
        raise SimulationError(
            f"Docker is there but does not let {user} in: add the account to the group docker "
            f"(`sudo usermod -aG docker {user}`, then log in again), or run this as root"
        )
    return answer.returncode == 0


def _as_root(*command: str) -> list[str]:
    if os.geteuid() == 0:
        return list(command)
    if shutil.which("sudo") is None:
        raise SimulationError(f"`{' '.join(command)}` needs root, and there is no sudo: run this as root")
    return ["sudo", *command]


def _ensure_programs(programs: dict[str, tuple[str, ...]]) -> None:
    missing = [name for name in programs if _program(name) is None]
    if missing:
        _install([package for name in missing for package in programs[name]], f"{', '.join(missing)} not found here")


def _ensure_browser() -> None:
    """A browser where the package archive has one; elsewhere the test that needs it says so."""
    if not any(map(_program, BROWSERS)) and _in_archive(BROWSERS[0]):
        _install([BROWSERS[0]], "no browser here")


def _install_engine() -> None:
    _install(
        [*_PACKAGES, _COMMAND_PACKAGE] if _in_archive(_COMMAND_PACKAGE) else list(_PACKAGES), "no container engine here"
    )


def _in_archive(package: str) -> bool:
    return shutil.which("apt-cache") is not None and run(["apt-cache", "show", package], check=False).returncode == 0


def _install(packages: list[str], reason: str) -> None:
    if shutil.which("apt-get") is None:
        raise SimulationError(
            f"{reason}: install {', '.join(packages)} with this machine's package manager, then try again"
        )
    say(f"{reason}: installing {', '.join(packages)} (apt-get)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = _as_root("apt-get", *_WAIT, "install", "-qy", "--no-install-recommends", *packages)
    if run(command, check=False, env=environment).returncode != 0:
        run(_as_root("apt-get", "update", "-q"), env=environment)
        run(command, env=environment)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + _SYSTEM_PATH)


def _daemon_program() -> str | None:
    return _program("dockerd")


def _start() -> None:
    """Start the daemon: as a service where there is an init to do it, else in the background."""
    if Path("/run/systemd/system").is_dir():
        say("starting docker.service")
        run(_as_root("systemctl", "start", "docker.service"), check=False)
        if _wait(10):
            return
    program = _daemon_program()
    if program is None:
        raise SimulationError("dockerd is not installed although docker is: install the package docker.io")
    say(f"starting {program} in the background (its log: {_LOG})")
    # The daemon outlives this process on purpose: the nodes need it.
    starter = f"nohup {program} >{_LOG} 2>&1 </dev/null &"
    run(_as_root("setsid", "sh", "-c", starter), check=False)
    if not _wait(_START_LIMIT_SECONDS):
        end = _LOG.read_text(errors="replace")[-600:] if _LOG.exists() else "no log"
        raise SimulationError(f"dockerd did not answer within {_START_LIMIT_SECONDS} s. The end of its log:\n{end}")


def _wait(seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if _answers():
            return True
        time.sleep(0.5)
    return False
