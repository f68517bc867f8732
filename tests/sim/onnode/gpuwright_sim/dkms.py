"""The stand-in DKMS: "builds" modules for kernels whose headers are there, as files that the real modinfo and depmod read."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import elf

_SOURCES = Path("/usr/src")
_STATE = Path("/var/lib/dkms")
_FRAMEWORK = Path("/etc/dkms/framework.conf")
KEY, SIGNER = Path("/var/lib/dkms/mok.pub"), "DKMS module signing key"
_MODULES = Path("/lib/modules")
#: The DKMS of systems that have an older one than Debian 13, whose log begins otherwise.
_OLDER = {("debian", "12"): "3.0.10", ("ubuntu", "22.04"): "2.8.7", ("ubuntu", "24.04"): "3.0.11"}
_NEWER = "3.2.2"
_NO_HEADERS, _BUILD_FAILED = 1, 10


def main(arguments: list[str]) -> int:
    """The exit status of `dkms ARGUMENTS`."""
    verb = arguments[0] if arguments else "status"
    kernel = _option(arguments, "-k") or Path("/proc/sys/kernel/osrelease").read_text().strip()
    if verb == "status":
        return _status()
    if verb == "--version":
        print(f"dkms-{_version()}")
        return 0
    if verb == "autoinstall":
        return max([_install(name, version, kernel) for name, version in _sources()], default=0)
    name, version = _named(arguments)
    if verb == "generate_mok":
        return _generate_key()
    if verb in ("add", "build"):
        return 0
    if verb == "install":
        if "--every-kernel" not in arguments:
            return _install(name, version, kernel)
        kernels = [path.parent.name for path in sorted(_MODULES.glob("*/build"))]
        if not kernels:
            print("dkms: no kernel headers are installed, so no module was built", file=sys.stderr)
        return max([_install(name, version, entry) for entry in kernels], default=0)
    if verb in ("remove", "unbuild", "uninstall"):
        return _remove(name, version)
    print(f"Error! Unknown action specified: {verb}", file=sys.stderr)
    return 1


def _generate_key() -> int:
    _STATE.mkdir(parents=True, exist_ok=True)
    (_STATE / "mok.key").write_bytes(os.urandom(64))
    KEY.write_bytes(b"0\x82" + os.urandom(600))
    return 0


def _signer() -> str | None:
    """Who signs what is built here: the real one makes its key at the first build where there is none."""
    if not KEY.exists():
        _generate_key()
    return SIGNER


def _option(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def _named(arguments: list[str]) -> tuple[str, str]:
    for argument in arguments[1:]:
        if "/" in argument and not argument.startswith("-"):
            name, version = argument.split("/", 1)
            return name, version
    return _option(arguments, "-m") or "", _option(arguments, "-v") or ""


def _sources() -> list[tuple[str, str]]:
    found = []
    for path in sorted(_SOURCES.glob("*/dkms.conf")):
        text = path.read_text()
        found.append((_setting(text, "PACKAGE_NAME"), _setting(text, "PACKAGE_VERSION")))
    return found


def _setting(text: str, name: str) -> str:
    match = re.search(rf'^{name}="([^"]*)"', text, re.MULTILINE)
    return match[1] if match else ""


def _install(name: str, version: str, kernel: str) -> int:
    source = _SOURCES / f"{name}-{version}" / "dkms.conf"
    if not source.exists():
        print(f"Error! Could not locate dkms.conf file.\nFile: {source} does not exist.", file=sys.stderr)
        return 4
    if not (_MODULES / kernel / "build").exists():
        print(
            f"Error! Your kernel headers for kernel {kernel} cannot be found"
            f" at /lib/modules/{kernel}/build or /lib/modules/{kernel}/source.",
            file=sys.stderr,
        )
        print(
            f"Please install the linux-headers-{kernel} package or use the --kernelsourcedir option to tell DKMS where it's located.",
            file=sys.stderr,
        )
        return _NO_HEADERS
    if _fails(version):
        log = _STATE / name / version / "build" / "make.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{_title(name, version)} for kernel {kernel} (x86_64)\nerror: too few arguments to function\n")
        print(
            f"Error! Bad return status for module build on kernel: {kernel} (x86_64)\n"
            f"Consult /var/lib/dkms/{name}/{version}/build/make.log for more information.",
            file=sys.stderr,
        )
        return _BUILD_FAILED
    text = source.read_text()
    target = _MODULES / kernel / "updates/dkms"
    target.mkdir(parents=True, exist_ok=True)
    for module in re.findall(r'^BUILT_MODULE_NAME\[\d+\]="([^"]+)"', text, re.MULTILINE):
        content = elf.nvidia(
            module, version, kernel, open_source=_setting(text, "SIMULATED_FLAVOUR") == "open", signer=_signer()
        )
        (target / f"{module}.ko").write_bytes(content)
    state = _STATE / name / version / kernel / "x86_64"
    state.mkdir(parents=True, exist_ok=True)
    subprocess.run(["/usr/sbin/depmod", kernel], check=True)
    print(f"{name}/{version}: built and installed for {kernel}")
    _afterwards(kernel)
    return 0


def _afterwards(kernel: str) -> None:
    """What the settings of EPEL's DKMS have it do after each build."""
    settings = _FRAMEWORK.read_text() if _FRAMEWORK.exists() else ""
    if (
        _setting(settings, "modprobe_on_install") == "true"
        and kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    ):
        subprocess.run(["/usr/sbin/modprobe", "nvidia"], capture_output=True, check=False)
    command = _setting(settings, "post_transaction").split()
    if command:
        subprocess.run(command, capture_output=True, check=False)


def _version() -> str:
    system = platform.freedesktop_os_release()
    return _OLDER.get((system["ID"], system["VERSION_ID"]), _NEWER)


def _title(name: str, version: str) -> str:
    """How the log of a build begins: DKMS 3.1.4 changed that."""
    if _version() != _NEWER:
        return f"DKMS make.log for {name}-{version}"
    return f"DKMS (dkms-{_version()}) make.log for {name}/{version}"


def _fails(version: str) -> bool:
    """Whether the compiler is to fail: for every version, or for those that the file names."""
    told = Path("/etc/gpuwright-sim") / "dkms-fails"
    if not told.exists():
        return False
    versions = told.read_text().split()
    return not versions or version in versions


def _remove(name: str, version: str) -> int:
    for state in sorted((_STATE / name / version).glob("*/x86_64")):
        kernel = state.parent.name
        for path in (_MODULES / kernel / "updates/dkms").glob("nvidia*.ko"):
            # An rpm's successor is installed before it is removed: what lies there may be of another version.
            if f"\0version={version}\0".encode() in b"\0" + path.read_bytes():
                path.unlink()
        if (_MODULES / kernel).is_dir():
            subprocess.run(["/usr/sbin/depmod", kernel], check=False)
    shutil.rmtree(_STATE / name / version, ignore_errors=True)
    return 0


def _status() -> int:
    for state in sorted(_STATE.glob("*/*/*/x86_64")):
        kernel, version, name = state.parent.name, state.parent.parent.name, state.parent.parent.parent.name
        print(f"{name}/{version}, {kernel}, x86_64: installed")
    return 0
