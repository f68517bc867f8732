"""Rpm packages and repositories, made by the real rpmbuild, rpmsign and createrepo_c in a container of the node image.

What a package carries is what the Debian package of the same part carries (repository.py); here stands what an rpm does differently.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from . import deb, docker_ce, image, settings
from .engine import docker
from .onnode.gpuwright_sim import elf
from .shell import SimulationError, say

_PACKAGES = settings.HERE / "packages-rpm.yaml"
# Debian's own, for a node in the costume of an rpm system, and for building what it installs.
_NEEDED = ("dnf", "dnf-plugins-core", "rpm", "createrepo-c", "dracut-core", "gpg-agent")
_DEBIAN_LIBRARIES = "/usr/lib/x86_64-linux-gnu/"
_LIBRARIES = "/usr/lib64/"
_ARCHITECTURE = "x86_64"

# The fields of packages-rpm.yaml, as a spec calls them. No rich dependency has a comma in it.
_FIELDS = {
    "requires": "Requires",
    "recommends": "Recommends",
    "supplements": "Supplements",
    "provides": "Provides",
    "conflicts": "Conflicts",
    "obsoletes": "Obsoletes",
}
_PRESETS = "/usr/lib/systemd/system-preset"

# Scriptlets by payload. Those of the Debian packages speak to dpkg. A module that does not build stops no transaction.
_LDCONFIG = {"post": "ldconfig", "postun": "ldconfig"}
_SCRIPTS: dict[str, dict[str, str]] = {
    "cuda": _LDCONFIG,
    "nvml": _LDCONFIG,
    "persistenced": {
        "postun": "if [ $1 -ge 1 ]; then systemctl --system try-restart nvidia-persistenced.service || :; fi",
    },
    "kmod_common": {
        "post": "nvidia-boot-update post || :",
        "preun": "if [ $1 -eq 0 ]; then nvidia-boot-update preun || :; fi",
    },
    "docker_ce": {"pre": docker_ce.GROUP},
    "dcgm": {
        "post": "useradd -Urs /usr/sbin/nologin nvidia-dcgm 2>/dev/null || :\n"
        "mkdir -p /var/log/nvidia-dcgm\nsystemctl --system daemon-reload || :",
    },
    "dcgm_exporter": {"post": "systemctl --system daemon-reload || :"},
    "ctk": {"posttrans": "systemctl --system start nvidia-cdi-refresh.service || :"},
    "dkms_open": {
        "post": "dkms add nvidia/{build} || :\ndkms build nvidia/{build} || :\ndkms install nvidia/{build} || :",
        "preun": "dkms remove nvidia/{build} --all || :",
    },
    "toolkit": {
        "post": "update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-{major}.{minor} {major}{minor}",
        "preun": "if [ $1 -eq 0 ]; then update-alternatives --remove cuda /usr/local/cuda-{major}.{minor}; fi",
    },
    "kernel": {
        "posttrans": "depmod {release}; dracut --force --kver {release} >/dev/null 2>&1\n"
        "for hook in /etc/kernel/postinst.d/*; do $hook {release} /boot/vmlinuz-{release}; done",
        "postun": "rm -rf /lib/modules/{release} /boot/initramfs-{release}.img; update-grub",
    },
}
_SCRIPTS["dkms_proprietary"] = _SCRIPTS["dkms_open"]

# What the macros %systemd_post and %systemd_preun do with a unit.
_OF_UNIT = {
    "post": "if [ $1 -eq 1 ]; then systemctl --system preset {unit} || :; fi\nsystemctl --system daemon-reload || :",
    "preun": "if [ $1 -eq 0 ]; then systemctl --system disable --now {unit} || :; fi",
}

# NVIDIA's program that keeps nouveau away by the kernel's command line, from the installation on, whether a module was built or not.
_BOOT_UPDATE = """#!/bin/sh
line=" $(cat /etc/kernel/cmdline) "
for word in rd.driver.blacklist=nouveau modprobe.blacklist=nouveau; do
    line=$(echo "$line" | sed "s/ $word / /g")
    [ "$1" != post ] || line="$line $word "
done
[ "$1" != post ] || line=$(echo "$line" | sed "s/ nomodeset / /g")
echo $line >/etc/kernel/cmdline
"""
_FRAMEWORK = 'modprobe_on_install="true"\npost_transaction="dracut --regenerate-all --force"\n'

_BUILD = """
set -eu
cd /rpmbuild
gpg --batch --quiet --import key.asc
printf '%%_gpg_name %s\\n%%_signature gpg\\n' "$(cat fingerprint)" >~/.rpmmacros
cat >one <<'END'
cd /rpmbuild/specs/$1
rpmbuild -bb --quiet --define "_topdir /rpmbuild/build/$1" --define "_rpmdir /rpmbuild/out/$(cat place)" \\
    --define "gpuwright_files $PWD/files" --define "_build_name_fmt %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" \\
    --define "_binary_payload w1.gzdio" package.spec \\
    >/dev/null 2>log || { cat log; exit 255; }
END
ls specs | xargs -P 2 -I @ sh one @
while read -r name signed; do
    [ "$signed" = index ] || rpmsign --addsign out/$name/*.rpm >/dev/null
    createrepo_c --quiet --no-database --compress-type=gz out/$name
    [ ! -f modules/$name.yaml ] || modifyrepo_c --mdtype=modules --no-compress modules/$name.yaml out/$name/repodata >/dev/null
    gpg --batch --yes --armor --detach-sign --output out/$name/repodata/repomd.xml.asc out/$name/repodata/repomd.xml
done <repositories
"""


def ensure_image() -> str:
    """The image of a node in the costume of an rpm system, before it is put on: with rpm and dnf. It builds the rpm packages too."""
    base = image.ensure()
    name = f"{settings.IMAGE}-rpm:{hashlib.sha256(f'{base} {_NEEDED}'.encode()).hexdigest()[:12]}"
    with settings.locked("image"):
        if docker("image", "inspect", name, check=False).returncode == 0:
            return name
        say(f"building {name}: the node image with {', '.join(_NEEDED)}")
        container = f"{settings.CONTAINER_PREFIX}rpm-image"
        docker("rm", "-f", container, check=False)
        install = f"apt-get update -q && apt-get install -qy --no-install-recommends {' '.join(_NEEDED)}"
        done = docker(
            "run", "--name", container, "--label", settings.INSTANCE_LABEL, base, "sh", "-c", install, check=False
        )
        try:
            if done.returncode != 0:
                raise SimulationError(f"rpm and dnf could not be installed:\n{(done.stdout + done.stderr)[-2000:]}")
            docker("commit", "--change", f"LABEL {settings.LABEL}=image", container, name)
        finally:
            docker("rm", "-f", container, check=False)
        return name


def build(folder: Path, key: deb.SigningKey, payloads: Mapping[str, Any]) -> int:
    """Write the rpm repositories below FOLDER, signed by KEY; how many packages. PAYLOADS: those of repository.py by name."""
    plan = yaml.safe_load(_PACKAGES.read_text())
    files: dict[str, bytes] = {"key.asc": key.secret().encode(), "fingerprint": key.fingerprint.encode()}
    listed = [f"{name} {row['signed']}\n" for name, row in plan["repositories"].items()]
    files["repositories"] = "".join(listed).encode()
    modular: dict[str, list[tuple[str, str, str]]] = {}
    count = 0
    for group in plan["groups"]:
        for build_name in group["builds"]:
            words = _words(build_name, group)
            for entry in group["packages"]:
                for name in group["repositories"]:
                    count += 1
                    place = f"specs/{count:03}"
                    package, spec = _spec(entry, words, group, payloads)
                    files[f"{place}/package.spec"] = spec.encode()
                    files[f"{place}/place"] = name.encode()
                    files |= {f"{place}/files{path}": content for path, content in package.files.items()}
                    if group.get("modular"):
                        arch = entry.get("architecture", _ARCHITECTURE)
                        nevra = f"{package.name}-{group.get('epoch', 0)}:{words['version']}.{arch}"
                        modular.setdefault(name, []).append((words["branch"], package.name, nevra))
    for name, rows in modular.items():
        files[f"modules/{name}.yaml"] = "".join(_documents(plan["streams"], name, rows)).encode()
    _run(files, folder, plan["repositories"])
    for row in plan["repositories"].values():
        for file in row["keys"]:
            (folder / row["path"] / file).resolve().write_text(key.public())
    return count


def _words(build_name: str, group: Mapping[str, Any]) -> dict[str, str]:
    """What the braces of packages-rpm.yaml stand for."""
    parts = build_name.split(".")
    words = {"build": build_name, "branch": parts[0], "major": parts[0], "minor": parts[1]}
    words["version"] = group["version"].format(**words)
    words["evr"] = f"{group['epoch']}:{words['version']}" if "epoch" in group else words["version"]
    words["ev"] = words["evr"].rpartition("-")[0]
    words["release"] = f"{words['version']}.{_ARCHITECTURE}"
    words["isa"] = "(x86-64)"
    return words


def _spec(
    entry: Mapping[str, Any], words: dict[str, str], group: Mapping[str, Any], payloads: Mapping[str, Any]
) -> tuple[deb.Package, str]:
    """A package and its spec file; the files lie beside it."""
    package = deb.Package(entry["name"].format(**words), words["version"])
    payload = entry.get("payload")
    weight = bytes(range(256)) * 4 * int(entry.get("kib", 4))
    package.files[f"/usr/share/doc/{package.name}/weight"] = weight
    _fill(package, payload, words, payloads)
    if "presets" in entry:
        enabled = "".join(f"enable {unit}\n" for unit in entry["presets"])
        package.files[f"{_PRESETS}/70-{package.name}.preset"] = enabled.encode()
    version, release = words["version"].split("-", 1)
    lines = [f"Name: {package.name}", f"Version: {version}", f"Release: {release}", "License: none"]
    lines += [f"Epoch: {group['epoch']}"] if "epoch" in group else []
    vendor = group.get("vendor", "NVIDIA Corporation" if "epoch" in group else "gpuwright simulation")
    lines += [f"Vendor: {vendor}"]
    lines += [f"Summary: stand-in of the simulated node, not {package.name}", "AutoReqProv: no"]
    if entry.get("architecture") == "noarch":
        lines.append("BuildArch: noarch")
    for key, field in _FIELDS.items():
        lines += [f"{field}: {each.strip().format(**words)}" for each in entry.get(key, "").split(",") if each.strip()]
    if group.get("modular"):
        lines.append(f"ModularityLabel: nvidia-driver:{words['branch']}:20261120:00000000")
    # Debian's rpm would take debug symbols out and compress manual pages.
    head = "%global debug_package %{nil}\n%global __os_install_post %{nil}\n"
    install = ["mkdir -p %{buildroot}", "cp -a %{gpuwright_files}/. %{buildroot}/"]
    install += [f"chmod 0755 %{{buildroot}}{path}" for path in sorted(package.executables)]
    for path, target in sorted(package.links.items()):
        install += [f"mkdir -p %{{buildroot}}{path.rpartition('/')[0]}", f"ln -s {target} %{{buildroot}}{path}"]
    if payload == "versionlock":
        install += ["mkdir -p %{buildroot}/usr/lib/python3/dist-packages/dnf-plugins %{buildroot}/etc/dnf/plugins"]
        install += [
            "cp /usr/lib/python3/dist-packages/dnf-plugins/versionlock.py %{buildroot}/usr/lib/python3/dist-packages/dnf-plugins/"
        ]
        install += ["cp /etc/dnf/plugins/versionlock.* %{buildroot}/etc/dnf/plugins/"]
        package.files |= {
            "/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py": b"",
            "/etc/dnf/plugins/versionlock.conf": b"",
        }
        package.configuration.append("/etc/dnf/plugins/versionlock.list")
    owned = [*package.files, *package.links, *package.configuration]
    marks = [f"%config(noreplace) {path}" if path in package.configuration else path for path in dict.fromkeys(owned)]
    scripts = [f"%{name}\n{text}\nexit 0\n" for name, text in _scripts(entry, words).items()]
    spec = head + "\n".join(lines) + "\n\n%description\nNot the real package.\n\n%install\n" + "\n".join(install)
    spec += "\n\n" + "\n".join(scripts) + "\n%files\n" + "\n".join(marks) + "\n"
    if payload == "versionlock":
        for path in ("/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py", "/etc/dnf/plugins/versionlock.conf"):
            package.files.pop(path)
    return package, spec


def _scripts(entry: Mapping[str, Any], words: dict[str, str]) -> dict[str, str]:
    """The scriptlets of a package by name: what its units need, then what its payload does."""
    parts = [{name: text.format(unit=unit) for name, text in _OF_UNIT.items()} for unit in entry.get("units", ())]
    parts.append({name: text.format(**words) for name, text in _SCRIPTS.get(entry.get("payload", ""), {}).items()})
    found: dict[str, str] = {}
    for part in parts:
        for name, text in part.items():
            found[name] = "\n".join(filter(None, [found.get(name), text]))
    return found


def _fill(package: deb.Package, payload: str | None, words: dict[str, str], payloads: Mapping[str, Any]) -> None:
    """The files of a payload, at the places where rpm systems have them."""
    if payload in ("kernel", "kernel_modules", "headers"):
        _kernel_files(package, payload, words["release"])
    elif payload == "kmod_common":
        payloads["firmware"](package, words)
        package.files |= {
            "/usr/sbin/nvidia-boot-update": _BOOT_UPDATE.encode(),
            "/usr/lib/modprobe.d/nvidia.conf": b"blacklist nouveau\nsoftdep nvidia post: nvidia-uvm nvidia-drm\n",
            "/usr/lib/dracut/dracut.conf.d/99-nvidia.conf": b'omit_drivers+=" nvidia nvidia-drm nvidia-modeset nvidia-uvm "\n',
        }
        package.executables.add("/usr/sbin/nvidia-boot-update")
    elif payload and payload != "versionlock":
        payloads[payload](package, words)
    if payload == "dkms":
        package.files["/etc/dkms/framework.conf"] = _FRAMEWORK.encode()
        package.configuration.append("/etc/dkms/framework.conf")
    package.files = {_placed(path): content for path, content in package.files.items()}
    package.links = {_placed(path): target for path, target in package.links.items()}


def _placed(path: str) -> str:
    """Where rpm systems have what lies at a path of Debian."""
    return path.replace(_DEBIAN_LIBRARIES, _LIBRARIES)


def _kernel_files(package: deb.Package, payload: str, release: str) -> None:
    modules = f"/lib/modules/{release}"
    if payload == "headers":
        tree = f"/usr/src/kernels/{release}"
        package.files[f"{tree}/include/generated/autoconf.h"] = b"/* simulated */\n"
        package.files[f"{tree}/Makefile"] = f"# simulated headers of {release}\n".encode()
        package.links[f"{modules}/build"] = tree
        return
    if payload == "kernel_modules":
        package.files[f"{modules}/kernel/drivers/gpu/drm/nouveau/nouveau.ko"] = elf.nouveau(release)
        return
    package.files[f"/boot/vmlinuz-{release}"] = b"simulated kernel\n"
    package.files[f"/boot/config-{release}"] = (
        b"CONFIG_BLK_DEV_INITRD=y\nCONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\nCONFIG_MODULE_SIG=y\nCONFIG_DRM_NOUVEAU=m\n"
    )
    package.files[f"{modules}/modules.order"] = b"kernel/drivers/gpu/drm/nouveau/nouveau.ko\n"
    package.files[f"{modules}/modules.builtin"] = b"kernel/fs/ext4/ext4.ko\nkernel/fs/overlayfs/overlay.ko\n"
    package.files[f"{modules}/modules.builtin.modinfo"] = b""


def _documents(streams: list[Mapping[str, Any]], repository: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """The module metadata of a repository: one document a stream."""
    for branch in sorted({row[0] for row in rows}):
        for stream in streams:
            if stream["repository"] != repository:
                continue
            nevras = [nevra for of, name, nevra in rows if of == branch and name not in stream["except"]]
            data = {
                "name": stream["name"],
                "stream": stream["stream"].format(branch=branch),
                "version": 20261120,
                "context": "00000000",
                "arch": _ARCHITECTURE,
                "summary": "stand-in of the simulated node",
                "description": "stand-in of the simulated node",
                "license": {"module": ["none"]},
                "artifacts": {"rpms": sorted(nevras)},
            }
            document = {"document": "modulemd", "version": 2, "data": data}
            yield "---\n" + yaml.safe_dump(document, sort_keys=False) + "...\n"


def _run(files: Mapping[str, bytes], folder: Path, repositories: Mapping[str, Any]) -> None:
    """Build in a container, and take out what it made."""
    container = f"{settings.CONTAINER_PREFIX}rpm"
    docker("rm", "-f", container, check=False)
    say(f"building {sum(name.endswith('.spec') for name in files)} rpm packages")
    docker("create", "--name", container, "--label", settings.INSTANCE_LABEL, ensure_image(), "sh", "-c", _BUILD)
    try:
        docker(
            "cp",
            "-",
            f"{container}:/",
            stdin=_archive({f"rpmbuild/{path}": content for path, content in files.items()}),
        )
        done = docker("start", "--attach", container, check=False)
        if done.returncode != 0:
            raise SimulationError(f"the rpm packages could not be built:\n{(done.stdout + done.stderr)[-3000:]}")
        for name, row in repositories.items():
            place = folder / row["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            docker("cp", f"{container}:/rpmbuild/out/{name}", place)
    finally:
        docker("rm", "-f", container, check=False)


def _archive(files: Mapping[str, bytes]) -> bytes:
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, BytesIO(content))
    return stream.getvalue()
