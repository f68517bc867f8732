"""The stand-in DKMS: "builds" modules for kernels whose headers are there, as files that the real modinfo and depmod read.

Its records, places, words and exit codes are those of dell/dkms, dkms.in 793fdab (3.2.2), read there.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import elf

_SOURCES = Path("/usr/src")
_STATE = Path("/var/lib/dkms")
_FRAMEWORK = Path("/etc/dkms/framework.conf")
KEY, SIGNER = Path("/var/lib/dkms/mok.pub"), "DKMS module signing key"
_MODULES = Path("/lib/modules")
#: The DKMS of systems that have an older one than Debian 13, whose log begins otherwise.
_OLDER = {("debian", "12"): "3.0.10", ("ubuntu", "22.04"): "2.8.7", ("ubuntu", "24.04"): "3.0.11"}
_NEWER, _WITH_COMMAS = "3.2.2", "2.8.7"
_BROKEN, _NO_HEADERS, _BUILD_FAILED, _KNOWN = 4, 1, 10, 3
_ARCHITECTURE = "x86_64"


def main(arguments: list[str]) -> int:
    """The exit status of `dkms ARGUMENTS`."""
    verb = arguments[0] if arguments else "status"
    kernel = _option(arguments, "-k") or _running()
    if verb == "status":
        return _status()
    if verb == "--version":
        print(f"dkms-{_version()}")
        return 0
    if verb == "generate_mok":
        return _generate_key()
    if verb == "autoinstall":
        return _autoinstall(kernel)
    if verb == "kernel_prerm":
        return _unbuild_all(kernel)
    if verb in ("add", "build", "install", "uninstall", "remove"):
        return _of_module(verb, _STATE.joinpath(*_named(arguments)), arguments, kernel)
    print(f"Error! Unknown action specified: {verb}", file=sys.stderr)
    return 1


def _of_module(verb: str, record: Path, arguments: list[str], kernel: str) -> int:
    """What is said to one version of one module. To build is part of `install` here."""
    if verb != "add" and _is_broken(record):
        print(
            f"Error! {record.parent.name}/{record.name} is broken!\n"
            "Missing the source directory or the symbolic link pointing to it.\nManual intervention is required!",
            file=sys.stderr,
        )
        return _BROKEN
    if verb == "add" and (record / "source").is_symlink():
        print(f"Error! DKMS tree already contains: {record.parent.name}/{record.name}", file=sys.stderr)
        return _KNOWN
    done: dict[str, Callable[[], int]] = {
        "add": lambda: _add(record),
        "build": lambda: 0,
        "install": lambda: _install_all(record, arguments, kernel),
        "uninstall": lambda: _uninstall(record, kernel),
        "remove": lambda: _remove(record),
    }
    return done[verb]()


def _running() -> str:
    return Path("/proc/sys/kernel/osrelease").read_text().strip()


def _install_all(record: Path, arguments: list[str], kernel: str) -> int:
    """`install` for the kernel that is named, or with --every-kernel, which stands for the scripts of Debian's packages."""
    added = _add(record)
    if added != 0:
        return added
    kernels = [kernel]
    if "--every-kernel" in arguments:
        kernels = [path.parent.name for path in sorted(_MODULES.glob("*/build"))]
        if not kernels:
            print("dkms: no kernel headers are installed, so no module was built", file=sys.stderr)
    result = 0
    for each in kernels:
        if "--force" in arguments and _is_installed(record, each):
            _uninstall(record, each)
        result = max(result, _install(record, each))
    if result == 0:
        _afterwards()
    return result


def _autoinstall(kernel: str) -> int:
    """The newest version of each module that has a record: one that is installed by it, or broken, is left as it is, and so is one whose
    dkms.conf does not ask for it (AUTOINSTALL).
    """
    newest: dict[str, Path] = {}
    for record in _records():
        if _is_broken(record):
            print(
                f"Error! {record.parent.name}/{record.name} is broken! Missing the source directory.", file=sys.stderr
            )
        else:
            newest[record.parent.name] = record
    wanted = [record for record in newest.values() if not _is_installed(record, kernel) and _asks(record)]
    results = [_install(record, kernel) for record in wanted]
    if 0 in results:
        _afterwards()
    return 11 if any(results) else 0


# records ----------------------------------------------------------------------------------------------


def _records() -> list[Path]:
    """The versions of modules that were added, the oldest of each module first."""
    found = [path.parent for path in _STATE.glob("*/*/source") if path.is_symlink()]
    return sorted(found, key=lambda path: (path.parent.name, [int(part) for part in re.findall(r"\d+", path.name)]))


def _is_broken(record: Path) -> bool:
    source = record / "source"
    return source.is_symlink() and not source.is_dir()


def _is_installed(record: Path, kernel: str) -> bool:
    """What the record says; DKMS does not look whether the modules are there."""
    active = record.parent / f"kernel-{kernel}-{_ARCHITECTURE}"
    return active.is_symlink() and active.resolve() == _built(record, kernel)


def _asks(record: Path) -> bool:
    """Whether a module is built for each kernel by itself. One without a dkms.conf is an error, which its build tells."""
    conf = record / "source/dkms.conf"
    return not conf.exists() or _setting(conf.read_text(), "AUTOINSTALL").lower() == "yes"


def _built(record: Path, kernel: str) -> Path:
    return record / kernel / _ARCHITECTURE


def _add(record: Path) -> int:
    if record.name == "" or (record / "source").is_symlink():
        return 0
    source = _SOURCES / f"{record.parent.name}-{record.name}"
    if not source.is_dir():
        print(
            f"Error! Could not find module source directory.\nDirectory: {source} does not exist.",
            file=sys.stderr,
        )
        return 2
    record.mkdir(parents=True, exist_ok=True)
    (record / "source").symlink_to(source)
    return 0


def _status() -> int:
    joint = ", " if _version() == _WITH_COMMAS else "/"
    for record in _records():
        title = f"{record.parent.name}{joint}{record.name}"
        if _is_broken(record):
            print(f"{title}: broken")
            print(
                f"Error! {title}: Missing the module source directory or the symbolic link pointing to it.",
                file=sys.stderr,
            )
            continue
        built = sorted(record.glob(f"*/{_ARCHITECTURE}"))
        for path in built:
            kernel = path.parent.name
            state = "installed" if _is_installed(record, kernel) else "built"
            there = [(_place(kernel) / module.name).exists() for module in (path / "module").glob("*.ko")]
            differs = "" if state == "built" or all(there) else " (Differences between built and installed modules)"
            print(f"{title}, {kernel}, {_ARCHITECTURE}: {state}{differs}")
        if not built:
            print(f"{title}: added")
    return 0


# modules ----------------------------------------------------------------------------------------------


def _place(kernel: str) -> Path:
    """Where DKMS puts modules, whatever their dkms.conf says."""
    system = platform.freedesktop_os_release()
    of_red_hat = system.get("ID_LIKE", system["ID"]).startswith(("rhel", "fedora"))
    return _MODULES / kernel / ("extra" if of_red_hat else "updates/dkms")


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


def _setting(text: str, name: str) -> str:
    match = re.search(rf'^{name}="([^"]*)"', text, re.MULTILINE)
    return match[1] if match else ""


def _install(record: Path, kernel: str) -> int:
    """Build and install, where the record does not say that this was done."""
    name, version = record.parent.name, record.name
    if _is_installed(record, kernel):
        print(f"Module {name}/{version} already installed on kernel {kernel} ({_ARCHITECTURE}), skip.")
        return 0
    if not (record / "source/dkms.conf").exists():
        print(
            f"Error! Could not locate dkms.conf file.\nFile: {record}/source/dkms.conf does not exist.", file=sys.stderr
        )
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
        log = record / "build" / "make.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{_title(name, version)} for kernel {kernel} (x86_64)\nerror: too few arguments to function\n")
        print(
            f"Error! Bad return status for module build on kernel: {kernel} (x86_64)\n"
            f"Consult /var/lib/dkms/{name}/{version}/build/make.log for more information.",
            file=sys.stderr,
        )
        return _BUILD_FAILED
    shutil.rmtree(record / "build", ignore_errors=True)
    built, target = _built(record, kernel) / "module", _place(kernel)
    built.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    text = (record / "source/dkms.conf").read_text()
    for module in re.findall(r'^BUILT_MODULE_NAME\[\d+\]="([^"]+)"', text, re.MULTILINE):
        content = elf.nvidia(
            module, version, kernel, open_source=_setting(text, "SIMULATED_FLAVOUR") == "open", signer=_signer()
        )
        (built / f"{module}.ko").write_bytes(content)
        (target / f"{module}.ko").write_bytes(content)
    active = record.parent / f"kernel-{kernel}-{_ARCHITECTURE}"
    active.unlink(missing_ok=True)
    active.symlink_to(f"{version}/{kernel}/{_ARCHITECTURE}")
    subprocess.run(["/usr/sbin/depmod", kernel], check=True)
    print(f"{name}/{version}: built and installed for {kernel}")
    if _framework("modprobe_on_install") == "true" and kernel == _running():
        subprocess.run(["/usr/sbin/modprobe", "nvidia"], capture_output=True, check=False)
    return 0


def _uninstall(record: Path, kernel: str) -> int:
    """Take the modules away that are this version's; another version's stay, so that an rpm's successor may come first."""
    if _is_installed(record, kernel):
        for module in (_built(record, kernel) / "module").glob("*.ko"):
            (_place(kernel) / module.name).unlink(missing_ok=True)
        (record.parent / f"kernel-{kernel}-{_ARCHITECTURE}").unlink()
        if (_MODULES / kernel).is_dir():
            subprocess.run(["/usr/sbin/depmod", kernel], check=False)
    return 0


def _unbuild_all(kernel: str) -> int:
    """`kernel_prerm`, which Debian 13's /etc/kernel/prerm.d/dkms calls (read in its package): a kernel is removed. Nothing that was
    built for it stays; the modules stay added.
    """
    for record in _records():
        _uninstall(record, kernel)
        shutil.rmtree(record / kernel, ignore_errors=True)
    return 0


def _remove(record: Path) -> int:
    """`remove --all`."""
    if not (record / "source").is_symlink():
        print(
            f"Error! The module/version combo: {record.parent.name}/{record.name} is not located in the DKMS tree.",
            file=sys.stderr,
        )
        return 3
    for built in sorted(record.glob(f"*/{_ARCHITECTURE}")):
        _uninstall(record, built.parent.name)
    shutil.rmtree(record)
    if not any(record.parent.iterdir()):
        record.parent.rmdir()
    _afterwards()
    return 0


def _framework(name: str) -> str:
    """A setting of EPEL's /etc/dkms/framework.conf, as dkms.in 793fdab reads it."""
    return _setting(_FRAMEWORK.read_text() if _FRAMEWORK.exists() else "", name)


def _afterwards() -> None:
    """The command that the settings of EPEL's DKMS name."""
    command = _framework("post_transaction").split()
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
