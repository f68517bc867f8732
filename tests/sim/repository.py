"""Build the simulated package repositories: what packages.yaml lists, in the real repositories' layout, signed.

A finished build is kept for all clones under the digest of everything that decides what is in it.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from . import deb, docker_ce, grafana, rpm, runfile, settings, wheels
from .engine import docker
from .onnode.gpuwright_sim import elf
from .shell import SimulationError, run, say

PACKAGES = settings.HERE / "packages.yaml"
_STUBS = settings.HERE / "stubs"
#: What the stand-in compiler compiles for.
_TARGETS = settings.CLONE / "compat" / "cuda.yaml"
_ONNODE = settings.HERE / "onnode"
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_BIN = f"{settings.NODE_LIBRARY}/bin"

# Which versions a driver of this branch belongs to; also what cuDriverGetVersion answers.
_CUDA_OF_BRANCH = {"570": 12080, "580": 13000, "595": 13020}


def ensure() -> Path:
    """The folder of the built repository; it is built first where the cached one is of another recipe."""
    with settings.locked("repositories"):
        folder = settings.REPOSITORIES / digest()
        if not (folder / "build.json").exists():
            say("building the simulated package repositories")
            started = time.monotonic()
            work = folder.with_suffix(".new")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            count = _build(work)
            work.rename(folder)
            say(f"{count} packages in {time.monotonic() - started:.0f} s")
            for old in settings.forgotten(settings.REPOSITORIES.iterdir()):
                shutil.rmtree(old, ignore_errors=True)
        settings.used(folder)
        return folder


@functools.cache
def digest() -> str:
    """Twelve hex digits over the list of packages, the stubs and the code that builds them."""
    code = (
        settings.HERE / f"{name}.py"
        for name in ("repository", "deb", "docker_ce", "grafana", "rpm", "wheels", "runfile")
    )
    lists = (PACKAGES, settings.HERE / "packages-rpm.yaml", _TARGETS)
    return settings.recipe(*lists, *sorted(_STUBS.iterdir()), _ONNODE / "gpuwright_sim/elf.py", *code)


def build_information() -> dict[str, Any]:
    """What the build wrote about itself: the fingerprint of its key."""
    return dict(json.loads((ensure() / "build.json").read_text()))


def _build(folder: Path) -> int:
    plan = yaml.safe_load(PACKAGES.read_text())
    home = deb.temporary_home()
    key = deb.SigningKey(
        home / "good", "gpuwright simulated repository <simulation@invalid>", settings.SIGNING / "good.asc"
    )
    wrong = deb.SigningKey(home / "wrong", "somebody else <elsewhere@invalid>", settings.SIGNING / "wrong.asc")
    count = 0
    try:
        for name, repository in plan["repositories"].items():
            place = folder / repository["path"]
            packages = [package for _entry, package in stand_ins(plan, name)]
            count += len(packages)
            if "suite" in repository:
                deb.write_suite(place, repository["suite"], packages, repository["origin"], key)
            else:
                deb.write_repository(place, packages, repository["origin"], key)
            for file in repository["keys"]:
                (place / file).resolve().write_text(key.public())
            if name in ("debian13", "ubuntu2404"):
                _copy_with_wrong_key(place, folder / "wrong-key" / repository["path"], repository["origin"], wrong)
        count += rpm.build(folder, key, _PAYLOADS)
        count += _build_wheels(plan["wheels"], folder / "whl")
        for version in plan["runfiles"]:
            runfile.write(folder, version, compiled)
        for release, driver in plan["toolkit_runfiles"].items():
            runfile.write_toolkit(folder, release, driver, nvcc(".".join(release.split(".")[:2]), release))
        (folder / "build.json").write_text(
            json.dumps({"fingerprint": key.fingerprint, "wrong_fingerprint": wrong.fingerprint})
        )
    finally:
        key.close()
        wrong.close()
        shutil.rmtree(home, ignore_errors=True)
    return count


def _copy_with_wrong_key(source: Path, target: Path, origin: str, wrong: deb.SigningKey) -> None:
    """The same repository, signed by somebody whose key is not the one it offers."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".deb":
            (target / path.name).hardlink_to(path)
        else:
            shutil.copy(path, target)
    deb.sign_repository(target, origin, wrong)


# --------------------------------------------------------------------------------------------------------------------
# Packages
# --------------------------------------------------------------------------------------------------------------------


def stand_ins(plan: dict[str, Any], repository: str) -> Iterator[tuple[dict[str, Any], deb.Package]]:
    """The packages of a repository, each with its row of packages.yaml (``plan``)."""
    for group in plan["groups"]:
        if repository not in group["repositories"]:
            continue
        for build in group["builds"]:
            for flavour in group.get("flavours", [""]):
                words = _words(build, group["version"], flavour)
                for entry in group["packages"]:
                    if int(entry.get("since", 0)) <= int(words["major"]) <= int(entry.get("until", 10**6)):
                        package = _package(entry, words)
                        package.component = entry.get("component", group.get("component", package.component))
                        yield entry, package


def _words(build: str, version: str, flavour: str) -> dict[str, str]:
    """What the braces of packages.yaml stand for."""
    parts = build.split(".")
    words = {"build": build, "branch": parts[0], "major": parts[0], "minor": parts[1], "abi": build.rsplit("-", 1)[-1]}
    return {**words, "version": version.format(**words), "flavour": flavour, "other": "" if flavour else "-server"}


#: Relations between packages, as packages.yaml and the control file call them.
_RELATIONS = ("depends", "recommends", "provides", "conflicts", "breaks", "replaces")


def _package(entry: dict[str, Any], words: dict[str, str]) -> deb.Package:
    words = {**words, "version": entry.get("version", "{version}").format(**words)}
    package = deb.Package(entry["name"].format(**words), words["version"])
    for key in _RELATIONS:
        alone = [entry["alone"]] if "alone" in entry and key in ("provides", "conflicts", "replaces") else []
        named = ", ".join([*alone, *([entry[key]] if key in entry else [])])
        if named:
            package.fields[key.capitalize()] = named.format(**words)
    if "architecture" in entry:
        package.fields["Architecture"] = entry["architecture"]
    _doc(package, int(entry.get("kib", 4)))
    if "payload" in entry:
        _PAYLOADS[entry["payload"]](package, words)
    return package


def _doc(package: deb.Package, kib: int) -> None:
    """A changelog, and bytes that do not compress, so that a download has a size."""
    folder = f"/usr/share/doc/{package.name}"
    package.files[f"{folder}/README"] = (
        f"{package.name} {package.version}: a stand-in of the simulated node, not the real package\n".encode()
    )
    noise = random.Random(f"{package.name} {package.version}")  # noqa: S311 (no secret: the same bytes on each build)
    package.files[f"{folder}/weight"] = noise.randbytes(kib * 1024)


def _script(package: deb.Package, path: str, program: str) -> None:
    """An executable that hands over to the stand-in PROGRAM of the node's own library."""
    text = (
        f'#!/bin/sh\n[ -x {_BIN}/{program} ] || {{ echo "$0: this stand-in only works on a simulated node" >&2; exit 1; }}\n'
        f'exec {_BIN}/{program} "$@"\n'
    )
    package.files[path] = text.encode()
    package.executables.add(path)


def _library(package: deb.Package, words: dict[str, str], name: str, content: bytes | None = None) -> None:
    """One shared library, compiled for this version where it has no CONTENT, with the links that ldconfig would make."""
    path = f"{_LIBRARIES}/{name}.so.{words['build']}"
    package.files[path] = content or compiled(name, words["build"])
    package.links[f"{_LIBRARIES}/{name}.so.1"] = f"{name}.so.{words['build']}"
    package.scripts["postinst"] = "#!/bin/sh\nset -e\nldconfig\n"


def compiled(name: str, version: str, *more: str) -> bytes:
    """The bytes of the stand-in library NAME for driver VERSION."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.c"
        shutil.copy(_STUBS / f"{name}.c", source)
        options = [
            "-shared",
            "-fPIC",
            "-O1",
            "-s",
            f'-DVERSION="{version}"',
            f"-DCUDA={_CUDA_OF_BRANCH.get(version.split('.', maxsplit=1)[0], 13000)}",
            f"-Wl,-soname,{name}.so.1",
            *more,
        ]
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            return _compiled_in_container(source, options)
        run([compiler, *options, "-o", Path(folder) / "library.so", source])
        return (Path(folder) / "library.so").read_bytes()


def _compiled_in_container(source: Path, options: list[str]) -> bytes:
    """Where this machine has no compiler: one in a container, kept as an image for the next library."""
    from . import image  # only needed here, and it needs a container engine

    name = f"{settings.IMAGE}-compiler:latest"
    if docker("image", "inspect", name, check=False).returncode != 0:
        say("no C compiler here: installing one into a container")
        container = f"{settings.CONTAINER_PREFIX}compiler"
        docker("rm", "-f", container, check=False)
        docker(
            "run",
            "--name",
            container,
            image.ensure(),
            "sh",
            "-c",
            "apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev",
        )
        docker("commit", container, name)
        docker("rm", "-f", container)
    folder = source.parent
    docker(
        "run", "--rm", "-v", f"{folder}:/work", "-w", "/work", name, "gcc", *options, "-o", "library.so", source.name
    )
    return (folder / "library.so").read_bytes()


def _nvml(package: deb.Package, words: dict[str, str]) -> None:
    _library(package, words, "libnvidia-ml")


def _cuda(package: deb.Package, words: dict[str, str]) -> None:
    _library(package, words, "libcuda")


def _libraries(package: deb.Package, words: dict[str, str]) -> None:
    _library(package, words, "libcuda")
    _library(package, words, "libnvidia-ml")


def _cfg(package: deb.Package, words: dict[str, str]) -> None:
    _library(package, words, "libnvidia-cfg", b"simulated\n")


def _smi(package: deb.Package, words: dict[str, str]) -> None:
    _script(package, "/usr/bin/nvidia-smi", "nvidia-smi")


def _firmware(package: deb.Package, words: dict[str, str]) -> None:
    for chip in ("ga10x", "tu10x"):
        package.files[f"/usr/lib/firmware/nvidia/{words['build']}/gsp_{chip}.bin"] = b"simulated\n"


_PERSISTENCED_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=simple
ExecStart=/usr/bin/nvidia-persistenced --user root --verbose
RuntimeDirectory=nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""


# Of Ubuntu's nvidia-kernel-common: what it says of the persistence daemon. gpuwright_sim/kernel.py does it in udev's place.
_UDEV_RULE = (
    'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", SUBSYSTEM=="drivers", TAG+="systemd", '
    'ENV{SYSTEMD_WANTS}="nvidia-persistenced.service"\n'
)


def _kernel_common(package: deb.Package, words: dict[str, str]) -> None:
    """Ubuntu's: udev starts the daemon, and the initramfs is made again, that of the running kernel too."""
    package.scripts["postinst"] = '#!/bin/sh\nset -e\nif [ "$1" = configure ]; then update-initramfs -u; fi\n'
    package.files["/usr/lib/udev/rules.d/71-nvidia.rules"] = _UDEV_RULE.encode()


# As Ubuntu's: without [Install], and udev alone starts it.
_PERSISTENCED_STATIC_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=simple
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""


def _persistenced_static(package: deb.Package, words: dict[str, str]) -> None:
    """Ubuntu's: an upgrade and a removal stop the daemon, and nothing starts it again before the card is bound anew or the machine boots.

    The real unit forks, and the real package makes the daemon's user; the stand-in stays in the foreground, as root.
    """
    _script(package, "/usr/bin/nvidia-persistenced", "nvidia-persistenced")
    package.files["/usr/lib/systemd/system/nvidia-persistenced.service"] = _PERSISTENCED_STATIC_UNIT.encode()
    running = '[ -d /run/systemd/system ] && [ "$1" {0} ] || exit 0\n'
    stop = "systemctl stop --no-block nvidia-persistenced || true\n"
    package.scripts |= {
        "preinst": "#!/bin/sh\nset -e\n" + running.format("= upgrade") + stop,
        "prerm": "#!/bin/sh\nset -e\n" + running.format("!= deconfigure") + stop,
        **dict.fromkeys(
            ("postinst", "postrm"),
            "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi\n",
        ),
    }


def _persistenced(package: deb.Package, words: dict[str, str]) -> None:
    _script(package, "/usr/bin/nvidia-persistenced", "nvidia-persistenced")
    _unit(package, "nvidia-persistenced.service", _PERSISTENCED_UNIT)


_FABRICMANAGER_UNIT = """[Unit]
Description=NVIDIA fabric manager service
After=network-online.target

[Service]
User=root
Type=forking
RuntimeDirectory=nvidia-fabricmanager
PIDFile=/run/nvidia-fabricmanager/nv-fabricmanager.pid
ExecStart=/usr/bin/nv-fabricmanager

[Install]
WantedBy=multi-user.target
"""


def _fabricmanager(package: deb.Package, words: dict[str, str]) -> None:
    """As NVIDIA's package: the service comes disabled, and nobody restarts it after an upgrade."""
    _script(package, "/usr/bin/nv-fabricmanager", "nv-fabricmanager")
    program = package.files["/usr/bin/nv-fabricmanager"].decode().replace('"$@"', f'{words["build"]} "$@"')
    package.files["/usr/bin/nv-fabricmanager"] = program.encode()
    package.files["/usr/lib/systemd/system/nvidia-fabricmanager.service"] = _FABRICMANAGER_UNIT.encode()
    package.scripts["postinst"] = (
        "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi\n"
    )


def _nvlsm(package: deb.Package, words: dict[str, str]) -> None:
    package.files["/opt/nvidia/nvlsm/sbin/nvlsm"] = b"#!/bin/sh\nexit 0\n"
    package.executables.add("/opt/nvidia/nvlsm/sbin/nvlsm")


def _unit(package: deb.Package, name: str, text: str) -> None:
    package.files[f"/usr/lib/systemd/system/{name}"] = text.encode()
    package.scripts["postinst"] = (
        f"#!/bin/sh\nset -e\ndeb-systemd-helper enable {name} >/dev/null || true\n"
        f"if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; deb-systemd-invoke start {name} || true; fi\n"
    )
    package.scripts["prerm"] = (
        f'#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop {name} || true; fi\n'
    )
    package.scripts["postrm"] = (
        f'#!/bin/sh\nset -e\nif [ "$1" = purge ]; then deb-systemd-helper purge {name} >/dev/null || true; fi\n'
    )


def _dkms_source(flavour: str) -> Callable[[deb.Package, dict[str, str]], None]:
    def add(package: deb.Package, words: dict[str, str]) -> None:
        build = words["build"]
        names = ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm", "nvidia-peermem")
        lines = [
            'PACKAGE_NAME="nvidia"',
            f'PACKAGE_VERSION="{build}"',
            'AUTOINSTALL="yes"',
            f'SIMULATED_FLAVOUR="{flavour}"',
        ]
        lines += [
            f'BUILT_MODULE_NAME[{index}]="{name}"\nDEST_MODULE_LOCATION[{index}]="/updates/dkms"'
            for index, name in enumerate(names)
        ]
        package.files[f"/usr/src/nvidia-{build}/dkms.conf"] = ("\n".join(lines) + "\n").encode()
        package.scripts["postinst"] = (
            f'#!/bin/sh\nset -e\nif [ "$1" = configure ]; then dkms install nvidia/{build} --every-kernel; fi\n'
        )
        package.scripts["prerm"] = f"#!/bin/sh\nset -e\ndkms remove nvidia/{build} --all || true\n"

    return add


def _ubuntu_dkms(flavour: str) -> Callable[[deb.Package, dict[str, str]], None]:
    """Ubuntu's: its preinst takes a driver of a .run file away."""

    def add(package: deb.Package, words: dict[str, str]) -> None:
        _dkms_source(flavour)(package, words)
        package.scripts["preinst"] = (
            "#!/bin/sh\nset -e\nif [ -x /usr/bin/nvidia-uninstall ]; then /usr/bin/nvidia-uninstall -s; fi\n"
        )

    return add


def _prebuilt(flavour: str) -> Callable[[deb.Package, dict[str, str]], None]:
    def add(package: deb.Package, words: dict[str, str]) -> None:
        kernel = package.name[package.name.index("6.8.0") :]
        for name in ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm"):
            content = elf.nvidia(
                name,
                words["build"],
                kernel,
                open_source=flavour == "open",
                signer="Canonical Ltd. Kernel Module Signing",
            )
            package.files[f"/lib/modules/{kernel}/kernel/nvidia-{words['branch']}/{name}.ko"] = content
        package.scripts["postinst"] = f"#!/bin/sh\nset -e\ndepmod {kernel}\n"
        package.scripts["postrm"] = f"#!/bin/sh\nset -e\nif [ -d /lib/modules/{kernel} ]; then depmod {kernel}; fi\n"

    return add


#: Names of the driver's packages, and of those that carry their branch, as apt's preferences take them.
_ALL_NAMES = "cuda-drivers* firmware-nvidia-* libcuda1 libnvidia-* libnv* nvidia-*"
_SUFFIXED_NAMES = "cuda-drivers-{branch} libnvidia-*-{branch} nvidia-*-{branch} nvidia-*-{branch}-open xserver-xorg-video-nvidia-{branch}"


def _pin(pattern: str, names: str = _ALL_NAMES) -> Callable[[deb.Package, dict[str, str]], None]:
    def add(package: deb.Package, words: dict[str, str]) -> None:
        text = f"Package: {names.format(**words)}\nPin: version {pattern.format(**words)}\nPin-Priority: 1000\n"
        path = f"/etc/apt/preferences.d/{package.name.replace('.', '-')}"
        package.files[path] = text.encode()
        package.configuration.append(path)

    return add


def _toolkit(package: deb.Package, words: dict[str, str]) -> None:
    folder = f"/usr/local/cuda-{words['major']}.{words['minor']}"
    package.files[f"{folder}/version.json"] = json.dumps(
        {"cuda": {"name": "CUDA SDK", "version": words["build"]}}, indent=3
    ).encode()


def _toolkit_alternatives(package: deb.Package, words: dict[str, str]) -> None:
    folder = f"/usr/local/cuda-{words['major']}.{words['minor']}"
    # Which link, by which name.
    links = {"/usr/local/cuda": "cuda", f"/usr/local/cuda-{words['major']}": f"cuda-{words['major']}"}
    priority = f"{words['major']}{words['minor']}"
    install = [f"update-alternatives --install {link} {name} {folder} {priority}" for link, name in links.items()]
    remove = [f"update-alternatives --remove {name} {folder}" for name in links.values()]
    package.scripts["postinst"] = _script_of("configure", install)
    package.scripts["postrm"] = _script_of("remove|purge", remove)


def _script_of(action: str, commands: list[str]) -> str:
    """A maintainer script that does something for an action of dpkg, and has the linker look again."""
    body = "".join(f"        {each}\n" for each in (*commands, "ldconfig"))
    return f'#! /bin/sh\n\nset -e\n\ncase "$1" in\n    {action})\n{body}        ;;\nesac\n\nexit 0\n'


def _linker_configuration(path: str, content: str) -> Callable[[deb.Package, dict[str, str]], None]:
    def add(package: deb.Package, words: dict[str, str]) -> None:
        where = path.format(**words)
        package.files[where] = content.format(**words).encode()
        package.configuration.append(where)
        package.scripts["postinst"] = _script_of("configure", [])
        package.scripts["postrm"] = _script_of("remove|purge", [])

    return add


def _nvcc(package: deb.Package, words: dict[str, str]) -> None:
    release = f"{words['major']}.{words['minor']}"
    path = f"/usr/local/cuda-{release}/bin/nvcc"
    package.files[path] = nvcc(release, words["build"]).encode()
    package.executables.add(path)


def nvcc(release: str, version: str) -> str:
    """The stand-in compiler of a CUDA release (13.0), which compiles for what the real one compiles for."""
    rows = yaml.safe_load(_TARGETS.read_text())["targets"]
    targets: list[str] = next((row["targets"] for row in rows if row["cuda"] == release), [])
    names = " ".join(f"sm_{each.replace('.', '')}" for each in targets)
    text = (_STUBS / "nvcc.sh").read_text().replace("@RELEASE@", release).replace("@VERSION@", version)
    return text.replace("@TARGETS@", names)


def _cudart(package: deb.Package, words: dict[str, str]) -> None:
    release = f"{words['major']}.{words['minor']}"
    folder = f"/usr/local/cuda-{release}"
    package.files[f"{folder}/targets/x86_64-linux/lib/libcudart.so.{words['build']}"] = b"simulated\n"
    package.files[f"{folder}/targets/x86_64-linux/include/cuda.h"] = b"/* simulated */\n"
    package.links[f"{folder}/lib64"] = "targets/x86_64-linux/lib"
    package.links[f"{folder}/include"] = "targets/x86_64-linux/include"


def _compat(package: deb.Package, words: dict[str, str]) -> None:
    folder = f"/usr/local/cuda-{'.'.join(package.name.split('-')[-2:])}/compat"
    package.files[f"{folder}/libcuda.so.{words['build']}"] = compiled("libcuda", words["build"], "-DFORWARD=1")
    package.links[f"{folder}/libcuda.so.1"] = f"libcuda.so.{words['build']}"
    package.links[f"{folder}/libcuda.so"] = "libcuda.so.1"


def _cudnn(package: deb.Package, words: dict[str, str]) -> None:
    package.files[f"{_LIBRARIES}/libcudnn.so.{words['build']}"] = b"simulated\n"
    package.links[f"{_LIBRARIES}/libcudnn.so.9"] = f"libcudnn.so.{words['build']}"


# What `tar --xz` calls to read an archive.
_XZ = (
    "#!/usr/bin/python3\nimport lzma, shutil, sys\nshutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)\n"
)


def _xz(package: deb.Package, words: dict[str, str]) -> None:
    package.files["/usr/bin/xz"] = _XZ.encode()
    package.executables.add("/usr/bin/xz")


# NVIDIA/nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service at v1.20.0, as far as the stand-ins go.
# %v is the kernel that a system call tells, which no container shows otherwise: uname stands for it.
_CDI_REFRESH = """[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=/usr/bin/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk
StartLimitBurst=5
StartLimitIntervalSec=10s

[Service]
Type=oneshot
ExecCondition=/bin/sh -c '/usr/bin/grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/$$(uname -r)/modules.dep || [ -e /dev/dxg ]'
ExecStart=/usr/bin/nvidia-smi -L
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
Restart=on-failure
RestartSec=1s

[Install]
WantedBy=multi-user.target
"""


# The nvidia-smi that a container sees: its cards are the device nodes that it was given. What is started in it later (exec) lacks the
# variables of the specification, the first process has them: dash leaves the zero bytes between out, and a UUID has forty characters.
_INSIDE = "/usr/lib/gpuwright-sim-container/nvidia-smi"
_SMI_INSIDE = """#!/bin/sh
IFS= read -r first < /proc/1/environ
for node in /dev/nvidia[0-9]*; do
    number=${node#/dev/nvidia}
    eval "uuid=\\$GPUWRIGHT_SIM_CARD_$number"
    after=${first#*GPUWRIGHT_SIM_CARD_$number=}
    [ -n "$uuid" ] || uuid=${after%"${after#????????????????????????????????????????}"}
    echo "GPU $number: simulated (UUID: $uuid)"
done
"""


def _ctk(package: deb.Package, words: dict[str, str]) -> None:
    package.files["/usr/bin/nvidia-ctk"] = (
        (_STUBS / "nvidia-ctk.py").read_text().replace("@VERSION@", words["build"]).encode()
    )
    package.files["/usr/bin/nvidia-container-runtime"] = (_STUBS / "nvidia-container.py").read_bytes()
    package.files[_INSIDE] = _SMI_INSIDE.encode()
    package.executables |= {"/usr/bin/nvidia-ctk", "/usr/bin/nvidia-container-runtime", _INSIDE}
    _unit(package, "nvidia-cdi-refresh.service", _CDI_REFRESH)
    package.files["/etc/nvidia-container-runtime/config.toml"] = (
        b'#accept-nvidia-visible-devices-as-volume-mounts = false\n[nvidia-container-runtime]\nmode = "auto"\n'
    )
    package.configuration.append("/etc/nvidia-container-runtime/config.toml")


def _container_cli(package: deb.Package, words: dict[str, str]) -> None:
    text = f'#!/bin/sh\ncase "$1" in --version|-V) echo "cli-version: {words["build"]}"; exit 0;; esac\nexec nvidia-smi -L\n'
    package.files["/usr/bin/nvidia-container-cli"] = text.encode()
    package.executables.add("/usr/bin/nvidia-container-cli")


def _container_hook(package: deb.Package, words: dict[str, str]) -> None:
    package.files["/usr/bin/nvidia-container-runtime-hook"] = (_STUBS / "nvidia-container.py").read_bytes()
    package.executables.add("/usr/bin/nvidia-container-runtime-hook")


def _docker_ce(package: deb.Package, words: dict[str, str]) -> None:
    docker_ce.engine(package, words)
    _unit(package, "docker.service", docker_ce.DOCKER_UNIT)
    package.scripts["postinst"] = package.scripts["postinst"].replace("set -e\n", f"set -e\n{docker_ce.GROUP}\n")


def _containerd_io(package: deb.Package, words: dict[str, str]) -> None:
    docker_ce.containerd(package, words)
    _unit(package, "containerd.service", docker_ce.CONTAINERD_UNIT)


def _release_of(package: deb.Package) -> str:
    """linux-image-6.8.0-134-generic is about 6.8.0-134-generic."""
    return package.name.split("-", 2)[2]


def _kernel(package: deb.Package, words: dict[str, str]) -> None:
    release = _release_of(package)
    modules = f"/lib/modules/{release}"
    package.files[f"/boot/vmlinuz-{release}"] = b"simulated kernel\n"
    package.files[f"/boot/System.map-{release}"] = b"0000000000000000 T simulated\n"
    package.files[f"/boot/config-{release}"] = (
        b"CONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\nCONFIG_MODULE_SIG=y\nCONFIG_DRM_NOUVEAU=m\n"
    )
    package.files[f"{modules}/kernel/drivers/gpu/drm/nouveau/nouveau.ko"] = elf.nouveau(release)
    package.files[f"{modules}/modules.order"] = b"kernel/drivers/gpu/drm/nouveau/nouveau.ko\n"
    package.files[f"{modules}/modules.builtin"] = (
        b"kernel/fs/ext4/ext4.ko\nkernel/drivers/virtio/virtio.ko\nkernel/fs/overlayfs/overlay.ko\n"
    )
    package.files[f"{modules}/modules.builtin.modinfo"] = b""
    arguments = f"--arg={release} --arg=/boot/vmlinuz-{release}"
    package.scripts["postinst"] = (
        f"#!/bin/sh\nset -e\ndepmod {release}\nrun-parts --exit-on-error {arguments} /etc/kernel/postinst.d\n"
    )
    package.scripts["prerm"] = (
        f'#!/bin/sh\nset -e\n[ "$1" = remove ] && [ -d /etc/kernel/prerm.d ] || exit 0\n'
        f"run-parts --exit-on-error {arguments} /etc/kernel/prerm.d\n"
    )
    package.scripts["postrm"] = (
        f"#!/bin/sh\nset -e\n[ ! -d /etc/kernel/postrm.d ] || run-parts {arguments} /etc/kernel/postrm.d\n"
        f'if [ "$1" != upgrade ]; then rm -rf {modules}; fi\n'
    )


def _headers(package: deb.Package, words: dict[str, str]) -> None:
    release = _release_of(package)
    package.files[f"/usr/src/linux-headers-{release}/Makefile"] = f"# simulated headers of {release}\n".encode()
    package.files[f"/usr/src/linux-headers-{release}/include/generated/utsrelease.h"] = (
        f'#define UTS_RELEASE "{release}"\n'.encode()
    )
    package.links[f"/lib/modules/{release}/build"] = f"/usr/src/linux-headers-{release}"
    package.scripts["postinst"] = (
        "#!/bin/sh\nset -e\n"
        f"[ ! -d /etc/kernel/header_postinst.d ] || run-parts --exit-on-error --arg={release} /etc/kernel/header_postinst.d\n"
    )


def _dkms(package: deb.Package, words: dict[str, str]) -> None:
    _script(package, "/usr/sbin/dkms", "dkms")
    for path in ("/etc/kernel/header_postinst.d/dkms", "/etc/kernel/postinst.d/dkms"):
        package.files[path] = b'#!/bin/sh\nexec dkms autoinstall -k "$1"\n'
        package.executables.add(path)
    leaving = "/etc/kernel/prerm.d/dkms"
    package.files[leaving] = b'#!/bin/sh\nexec dkms kernel_prerm -k "$1"\n'
    package.executables.add(leaving)


_DCGM_UNIT = """[Unit]
Description=NVIDIA DCGM service

[Service]
User=root
PrivateTmp=false
Environment="DCGM_HOME_DIR=/var/log/nvidia-dcgm"
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm
Restart=on-abort

[Install]
Alias=dcgm.service
WantedBy=multi-user.target
"""

_DCGM_EXPORTER_UNIT = """[Unit]
Description=NVIDIA DCGM-exporter service
Wants=nvidia-dcgm.service
After=nvidia-dcgm.service

[Service]
User=root
PrivateTmp=false
StandardOutput=append:/var/log/dcgm-exporter.log
StandardError=append:/var/log/dcgm-exporter.log
ExecStart=/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
Restart=on-abort

[Install]
WantedBy=multi-user.target
"""


def _dcgm(package: deb.Package, words: dict[str, str]) -> None:
    """The host engine and its command, a user that its log is of; its units are enabled by nobody."""
    for program in ("nv-hostengine", "dcgmi"):
        package.files[f"/usr/bin/{program}"] = (_STUBS / "dcgm.py").read_bytes()
        package.executables.add(f"/usr/bin/{program}")
    package.files["/usr/lib/systemd/system/nvidia-dcgm.service"] = _DCGM_UNIT.encode()
    package.scripts["postinst"] = (
        "#!/bin/sh\nuseradd -Urs /usr/sbin/nologin nvidia-dcgm 2>/dev/null\nset -e\n"
        "mkdir -p /var/log/nvidia-dcgm\nchown nvidia-dcgm:nvidia-dcgm /var/log/nvidia-dcgm\nsystemctl daemon-reload || true\n"
    )


def _dcgm_exporter(package: deb.Package, words: dict[str, str]) -> None:
    package.files["/usr/bin/dcgm-exporter"] = (_STUBS / "dcgm.py").read_bytes()
    package.executables.add("/usr/bin/dcgm-exporter")
    package.files["/usr/lib/systemd/system/nvidia-dcgm-exporter.service"] = _DCGM_EXPORTER_UNIT.encode()
    package.files["/etc/dcgm-exporter/default-counters.csv"] = b"DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"
    package.scripts["postinst"] = "#!/bin/sh\nset -e\nsystemctl daemon-reload || true\n"


_NODE_EXPORTER_UNIT = """[Unit]
Description=Prometheus exporter for machine metrics

[Service]
Restart=on-failure
User=nobody
ExecStart=/usr/bin/node_exporter

[Install]
WantedBy=multi-user.target
"""


def _node_exporter(package: deb.Package, words: dict[str, str]) -> None:
    """EPEL's: the unit listens on every address."""
    text = (_STUBS / "node_exporter.py").read_text().replace("@VERSION@", words["build"])
    package.files["/usr/bin/node_exporter"] = text.encode()
    package.executables.add("/usr/bin/node_exporter")
    package.files["/usr/lib/systemd/system/prometheus-node-exporter.service"] = _NODE_EXPORTER_UNIT.encode()


_PAYLOADS: dict[str, Callable[[deb.Package, dict[str, str]], None]] = {
    "nvml": _nvml, "cuda": _cuda, "libraries": _libraries, "cfg": _cfg, "smi": _smi, "firmware": _firmware, "persistenced": _persistenced,
    "persistenced_static": _persistenced_static, "kernel_common": _kernel_common,
    "fabricmanager": _fabricmanager, "nvlsm": _nvlsm,
    "dkms_open": _dkms_source("open"), "dkms_proprietary": _dkms_source("proprietary"), "dkms": _dkms,
    "ubuntu_dkms_open": _ubuntu_dkms("open"), "ubuntu_dkms_proprietary": _ubuntu_dkms("proprietary"),
    "prebuilt_open": _prebuilt("open"), "prebuilt_proprietary": _prebuilt("proprietary"),
    "pin_branch": _pin("{branch}.*"), "pin_build": _pin("{build}-*"),
    "pin_branch_suffixed": _pin("{branch}.*", _SUFFIXED_NAMES), "pin_build_suffixed": _pin("{build}-*", _SUFFIXED_NAMES),
    "toolkit": _toolkit, "toolkit_alternatives": _toolkit_alternatives,
    "toolkit_config": _linker_configuration("/etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/targets/x86_64-linux/lib\n"),
    "toolkit_major_config": _linker_configuration(
        "/etc/ld.so.conf.d/987_cuda-{major}.conf", "/usr/local/cuda-{major}/targets/x86_64-linux/lib\n"
    ),
    "nvcc": _nvcc, "cudart": _cudart, "compat": _compat, "cudnn": _cudnn, "xz": _xz,
    "ctk": _ctk, "container_cli": _container_cli, "container_hook": _container_hook, "docker_ce": _docker_ce,
    "docker_cli": docker_ce.command, "podman": docker_ce.podman, "containerd_io": _containerd_io,
    "kernel": _kernel, "headers": _headers,
    "node_exporter": _node_exporter, "dcgm": _dcgm, "dcgm_exporter": _dcgm_exporter, "grafana": grafana.fill,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------
# Wheels
# --------------------------------------------------------------------------------------------------------------------


def _build_wheels(plan: dict[str, Any], folder: Path) -> int:
    count = 0
    for index in wheels.INDEXES:
        projects = wheels.projects(plan, index)
        count += sum(len(files) for files in projects.values())
        wheels.write_index(folder / index, projects)
    return count


# --------------------------------------------------------------------------------------------------------------------
# Serving
# --------------------------------------------------------------------------------------------------------------------


def serve(image_name: str) -> None:
    """Let this clone's nodes reach the repository: a container of its own with Python's file server."""
    folder = ensure()
    with settings.locked("server", settings.STATE):
        if docker("network", "inspect", settings.NETWORK, check=False).returncode != 0:
            docker("network", "create", "--label", settings.INSTANCE_LABEL, settings.NETWORK)
        wanted = f"{settings.LABEL}.serves={folder} {settings.REPOSITORY_HOST} {settings.ARCHIVE_HOST}"
        if _is_serving(wanted, folder):
            return
        docker("rm", "-f", settings.REPOSITORY_CONTAINER, check=False)
        done = docker(
            "run", "-d", "--name", settings.REPOSITORY_CONTAINER, "--label", settings.INSTANCE_LABEL, "--label", wanted,
            "--restart", "unless-stopped", "--network", settings.NETWORK,
            "--network-alias", settings.REPOSITORY_HOST, "--network-alias", settings.ARCHIVE_HOST,
            "-v", f"{folder}:/srv:ro", image_name,
            "python3", "-m", "http.server", "80", "--directory", "/srv", check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SimulationError(f"the package server did not start: {done.stderr.strip()}")


def _is_serving(label: str, folder: Path) -> bool:
    """Whether the server runs and sees this build: it sees nothing after the folder it was given was removed and made anew."""
    name = f"name=^{settings.REPOSITORY_CONTAINER}$"
    if not docker("ps", "-q", "--filter", name, "--filter", f"label={label}").stdout.strip():
        return False
    seen = docker("exec", settings.REPOSITORY_CONTAINER, "cat", "/srv/build.json", check=False)
    return seen.stdout == (folder / "build.json").read_text()
