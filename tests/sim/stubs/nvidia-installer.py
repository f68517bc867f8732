#!/usr/bin/python3
"""A stand-in of nvidia-installer, and under the name nvidia-uninstall of the uninstaller: its order, words, files and exit status.

What it knows was read in the real one's source (option_table.h, install-from-cwd.c, kernel.c, misc.c, backup.c). It builds through DKMS.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

VERSION = "@VERSION@"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
BACKUP = Path("/var/lib/nvidia")
LOGS = {False: Path("/var/log/nvidia-installer.log"), True: Path("/var/log/nvidia-uninstall.log")}
DIRECTORIES = {"kernel-open": "open", "kernel": "proprietary"}
FLAGS = {"--silent", "-s", "--dkms", "--no-opengl-files", "--no-install-compat32-libs", "--no-x-check", "--no-nouveau-check", "-z",
         "--skip-module-load", "--allow-installation-with-running-driver", "--uninstall", "--no-questions", "-q", "--ui=none"}  # fmt: skip
VALUES = {"--kernel-name", "-k", "--kernel-module-build-directory", "-m", "--kernel-module-type", "-M"}


class Failed(Exception):
    """The installation ends with this error."""


class Installer:
    def __init__(self, uninstall: bool) -> None:
        self.uninstall = uninstall
        self.log_path = LOGS[uninstall]
        self.options: set[str] = set()
        self.values: dict[str, str] = {}

    def log(self, text: str) -> None:
        with self.log_path.open("a") as stream:
            stream.write(f"-> {text}\n")

    def parse(self, arguments: list[str]) -> None:
        """Options with a value come as --option=value, or with the value as the next word."""
        words = list(arguments)
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            if word in FLAGS:
                self.options.add(word)
            elif name in VALUES and not (name in ("--kernel-module-type", "-M") and branch() < 555):
                self.values[name] = value if equals else words.pop(0) if words else ""
            else:
                sys.stderr.write(f"\nERROR: Invalid option: '{word}'.\n\n")
                sys.stderr.write(f"ERROR: Invalid commandline, please run `{sys.argv[0]} --help` for usage information.\n\n")
                raise SystemExit(1)

    def value(self, *names: str) -> str:
        return next((self.values[name] for name in names if name in self.values), "")

    def main(self) -> int:
        if os.geteuid() != 0:
            sys.stderr.write("\nERROR: nvidia-installer must be run as root\n\n")
            return 1
        self.log_path.write_text(f"nvidia-installer log file '{self.log_path}'\ncreation time: {time.ctime()}\ninstaller version: {VERSION}\n\n")
        try:
            if self.uninstall or "--uninstall" in self.options:
                remove_existing(self.log)
            else:
                self.install()
        except Failed as error:
            text = str(error)
            with self.log_path.open("a") as stream:
                stream.write(f"ERROR: {text}\n")
            sys.stderr.write(f"\nERROR: {text}\n\n")
            if not self.uninstall:
                sys.stderr.write(f"\nERROR: Installation has failed.  Please see the file '{self.log_path}' for details.\n\n")
            return 1
        return 0

    def install(self) -> None:
        flavour = self.flavour()
        kernel = self.value("--kernel-name", "-k") or subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()
        if "--no-x-check" not in self.options and list(Path("/tmp").glob(".X*-lock")):  # noqa: S108 - the X server's own place
            raise Failed("You appear to be running an X server.  Please exit X before installing.")
        self.unload()
        self.log(f"Installing NVIDIA driver version {VERSION}.")
        for tool in ("cc", "make"):
            if not shutil.which(tool):
                raise Failed(f"Unable to find the development tool `{tool}` in your path; please make sure that you have the package"
                             f" '{'gcc' if tool == 'cc' else tool}' installed.")  # fmt: skip
        if not Path("/usr/include/stdio.h").exists():
            raise Failed("You do not appear to have libc header files installed on your system.  Please install your distribution's libc"
                         " development package.")  # fmt: skip
        self.refuse_nouveau()
        if not Path(f"/lib/modules/{kernel}/build").exists():
            raise Failed("Unable to find the kernel source tree for the currently running kernel.  Please make sure you have installed the kernel"
                         " source files for your kernel and that they are properly configured.")  # fmt: skip
        if (BACKUP / "log").exists():
            self.log("Uninstalling the previous installation with /usr/bin/nvidia-uninstall.")
            remove_existing(self.log)
        self.build(kernel, flavour)
        self.copy_files()
        self.log(f"Installation of the kernel module for the NVIDIA Accelerated Graphics Driver for Linux-x86_64 (version {VERSION}) is now complete.")

    def flavour(self) -> str:
        directory = self.value("--kernel-module-build-directory", "-m")
        kind = self.value("--kernel-module-type", "-M")
        if kind:
            directory = {"o": "kernel-open", "p": "kernel"}.get(kind[0].lower(), "")
            if not directory:
                raise Failed(f"'{kind}' is not a valid kernel module type.")
        directory = directory or "kernel-open"
        if directory not in DIRECTORIES:
            raise Failed(f"The kernel module build directory '{directory}' is not present in this installer package.")
        return DIRECTORIES[directory]

    def unload(self) -> None:
        """As the real one: what nobody uses is unloaded, and a module that stays ends a silent installation unless that is allowed."""
        unload_unused()
        if "nvidia" not in loaded():
            return
        self.log("An NVIDIA kernel module 'nvidia' appears to be already loaded in your kernel.")
        if "--allow-installation-with-running-driver" not in self.options:
            raise Failed("An NVIDIA kernel module 'nvidia' appears to be already loaded in your kernel.  This may be because it is in use (for"
                         " example, by an X server, a CUDA program, or the NVIDIA Persistence Daemon).")  # fmt: skip
        self.log("Continuing installation despite the presence of a loaded NVIDIA kernel module.")

    def refuse_nouveau(self) -> None:
        if {"--no-nouveau-check", "-z"} & self.options or "nouveau" not in loaded():
            return
        Path("/etc/modprobe.d/nvidia-installer-disable-nouveau.conf").write_text("blacklist nouveau\noptions nouveau modeset=0\n")
        raise Failed("The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with the NVIDIA driver, and must"
                     " be disabled before proceeding.")  # fmt: skip

    def build(self, kernel: str, flavour: str) -> None:
        source = Path(f"/usr/src/nvidia-{VERSION}")
        source.mkdir(parents=True, exist_ok=True)
        names = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
        lines = ['PACKAGE_NAME="nvidia"', f'PACKAGE_VERSION="{VERSION}"', 'AUTOINSTALL="yes"', f'SIMULATED_FLAVOUR="{flavour}"']
        lines += [f'BUILT_MODULE_NAME[{index}]="{name}"' for index, name in enumerate(names)]
        (source / "dkms.conf").write_text("\n".join(lines) + "\n")
        if "--dkms" not in self.options or not shutil.which("dkms"):
            raise Failed("this stand-in only builds through DKMS")
        for verb in ("add", "build", "install"):
            done = subprocess.run(["dkms", verb, "-m", "nvidia", "-v", VERSION, "-k", kernel], capture_output=True, text=True, check=False)
            self.log(f"dkms {verb}: {done.stdout}{done.stderr}")
            if done.returncode != 0:
                remove_dkms(VERSION)
                raise Failed("Failed to install the kernel module through DKMS. No kernel module was installed; please try installing again"
                             " without DKMS, or check the DKMS logs for more information.")  # fmt: skip

    def copy_files(self) -> None:
        BACKUP.mkdir(parents=True, exist_ok=True)
        installed = []
        for name in ("libcuda", "libnvidia-ml"):
            target = LIBRARIES / f"{name}.so.{VERSION}"
            shutil.copy(f"{name}.so", target)
            link = LIBRARIES / f"{name}.so.1"
            link.unlink(missing_ok=True)
            link.symlink_to(target.name)
            installed += [target, link]
        for source, name in (("nvidia-smi", "nvidia-smi"), (__file__, "nvidia-installer")):
            target = Path("/usr/bin") / name
            shutil.copy(source, target)
            target.chmod(0o755)
            installed.append(target)
        link = Path("/usr/bin/nvidia-uninstall")
        link.unlink(missing_ok=True)
        link.symlink_to("nvidia-installer")
        installed.append(link)
        (BACKUP / "log").write_text("\n".join([VERSION, *map(str, installed)]) + "\n")
        subprocess.run(["ldconfig"], check=True)


def branch() -> int:
    return int(VERSION.split(".")[0])


def loaded() -> set[str]:
    text = subprocess.run(["lsmod"], capture_output=True, text=True, check=False).stdout
    return {line.split()[0] for line in text.splitlines()[1:]}


def unload_unused() -> None:
    """The kernel gives a module up that nobody holds: here only the persistence daemon and programs on the device nodes hold one."""
    held = any(re.search(r"/dev/nvidia", os.readlink(path)) for path in _descriptors())
    if "nvidia" in loaded() and not held and subprocess.run(["pgrep", "-f", "nvidia-persistenced"], capture_output=True, check=False).returncode != 0:
        subprocess.run(["rmmod", "nvidia"], capture_output=True, check=False)


def _descriptors() -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            os.readlink(path)
        except OSError:
            continue
        found.append(path)
    return found


def remove_dkms(version: str) -> None:
    subprocess.run(["dkms", "remove", "-m", "nvidia", "-v", version, "--all"], capture_output=True, check=False)
    shutil.rmtree(f"/usr/src/nvidia-{version}", ignore_errors=True)


def remove_existing(log) -> None:  # noqa: ANN001 - a function that writes a line
    """Everything that the backup's log names."""
    record = BACKUP / "log"
    if not record.exists():
        print("There is no NVIDIA driver currently installed.")
        return
    version, *files = record.read_text().split("\n")
    log(f"Uninstalling driver {version}.")
    unload_unused()
    log("DKMS module detected; removing...")
    remove_dkms(version)
    for path in filter(None, files):
        Path(path).unlink(missing_ok=True)
    shutil.rmtree(BACKUP)
    subprocess.run(["ldconfig"], check=True)
    log(f"Uninstallation of existing driver: NVIDIA Accelerated Graphics Driver for Linux-x86_64 ({version}) is complete.")


if __name__ == "__main__":
    # The uninstaller goes while it runs.
    installer = Installer(uninstall=Path(sys.argv[0]).name == "nvidia-uninstall")
    installer.parse(sys.argv[1:])
    raise SystemExit(installer.main())
