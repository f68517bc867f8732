#!/usr/bin/python3
"""A stand-in of cuda-installer, and as bin/cuda-uninstaller of what takes its toolkit away again.

Its options are those of the real one as its strings tell them (https://github.com/EESSI/software-layer/issues/372) and as NVIDIA's installation guide
describes them; that it leads /usr/local/cuda to itself, its log and the summary at its end were read in public notes of installations. The words of its
errors, its exit codes and its manifest are assumed.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

RELEASE, DRIVER = "@RELEASE@", "@DRIVER@"
FLAGS = {"--silent", "--toolkit", "--driver", "--samples", "--kernelobjects", "--no-man-page", "--override", "--no-opengl-libs", "--no-drm"}
VALUES = {"--toolkitpath", "--samplespath", "--defaultroot", "--librarypath", "--installpath", "--extract", "--tmpdir", "--kernel-source-path"}
LINK = Path("/usr/local/cuda")
MANIFEST = ".cuda_toolkit_uninstall_manifest_do_not_delete.txt"
#: Makes it wait with half of its files in place; the second is the moment.
WAITS, HELD = Path("/etc/gpuwright-sim/toolkit-waits"), Path("/run/held")


def log(name, text):
    with Path(f"/var/log/{name}.log").open("a") as stream:
        stream.write(f"[INFO]: {text}\n")


def failed(text):
    sys.stderr.write(f"[ERROR]: {text}\n")
    log("cuda-installer", text)
    return 1


def parse(words):
    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if word in FLAGS:
            options[word] = ""
        elif name in VALUES and equals and value:
            options[name] = value
        else:
            sys.exit(failed(f"unknown option: {word}"))
    return options


def install(words):
    options = parse(words)
    if os.geteuid() != 0:
        return failed("the installer must be run as root")
    if "--silent" not in options:
        return failed("a terminal is needed where it is not silent")
    if not {"--toolkit", "--driver"} & set(options):
        return failed("nothing was chosen to be installed")
    if "--override" not in options and shutil.which("gcc") is None:
        return failed("Failed to verify gcc version. See log at /var/log/cuda-installer.log for details.")
    if "--driver" in options:
        Path("/etc/gpuwright-sim/driver-of-a-toolkit").write_text(DRIVER)
    version = ".".join(RELEASE.split(".")[:2])
    place = Path(options.get("--toolkitpath") or f"/usr/local/cuda-{version}")
    if "--toolkit" in options:
        _toolkit(place)
    print("===========\n= Summary =\n===========\n")
    print(f"Driver:   {'Installed' if '--driver' in options else 'Not Selected'}")
    print(f"Toolkit:  {'Installed in ' + str(place) + '/' if '--toolkit' in options else 'Not Selected'}")
    log("cuda-installer", f"Toolkit installed in {place}")
    return 0


def _toolkit(place):
    here = Path(__file__).resolve().parent
    library = "targets/x86_64-linux/lib"
    files = {
        "bin/nvcc": (here / "nvcc").read_text(),
        f"{library}/libcudart.so.{RELEASE}": "simulated\n",
        "EULA.txt": "simulated\n",
        "targets/x86_64-linux/include/cuda.h": "/* simulated */\n",
        "version.json": f'{{"cuda": {{"name": "CUDA SDK", "version": "{RELEASE}"}}}}\n',
        "bin/cuda-uninstaller": Path(__file__).read_text(),
    }
    for number, (name, text) in enumerate(files.items()):
        if number == len(files) // 2 and WAITS.exists():
            HELD.touch()
            time.sleep(600)
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
        (place / name).chmod(0o755 if name.startswith("bin/") else 0o644)
    for link, target in (("lib64", library), ("include", "targets/x86_64-linux/include")):
        (place / link).symlink_to(target)
    (place / MANIFEST).write_text("".join(f"{name}\n" for name in (*files, "lib64", "include")))
    if LINK.is_symlink() or not LINK.exists():
        subprocess.run(["ln", "-sfn", f"{place}/", str(LINK)], check=True)


def uninstall(place):
    """What it brought goes; what somebody else put there stays."""
    manifest = place / MANIFEST
    for name in [*manifest.read_text().splitlines(), MANIFEST]:
        (place / name).unlink(missing_ok=True)
    for folder, _folders, _files in os.walk(place, topdown=False):
        if not os.listdir(folder):
            os.rmdir(folder)
    if LINK.is_symlink() and re.fullmatch(rf"{re.escape(str(place))}/?", os.readlink(LINK)):
        LINK.unlink()
    log("cuda-uninstaller", f"{place} was taken away")
    return 0


if __name__ == "__main__":
    if Path(sys.argv[0]).name == "cuda-uninstaller":
        sys.exit(uninstall(Path(sys.argv[0]).resolve().parent.parent))
    sys.exit(install(sys.argv[1:]))
