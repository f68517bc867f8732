# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernels: the one that runs, the one that boots next, their headers, compiler, GPU modules and initramfs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import bootloader, packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        AvailableModules,
        Initramfs,
        InitramfsTool,
        KeptOut,
        Kernel,
        KernelModule,
        LoadedModule,
    )

_GPU_MODULE = re.compile(r"^(?:nvidia.*|nouveau|nova.*)$")
# The names under which packages put NVIDIA's module: its own, and Debian's, which an alias leads to.
_MODULE_FILE = re.compile(
    r"^(\S*/(nvidia(?:-current(?:-open)?|-tesla-\d+(?:-open)?|-legacy-\d+xx)?)\.ko\S*):", re.MULTILINE
)
_MODINFO_FIELDS = ("filename", "version", "license", "signer")
_COMPILER = re.compile(r"(gcc|clang)\S*(?:\s+version)?\s+(?:\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?(\d+)\.(\d+)")
_BLACKLIST = re.compile(
    r"^[ \t]*(?:blacklist\s+nouveau|install\s+nouveau\s+/(?:usr/)?bin/(?:false|true))\b", re.MULTILINE
)
# Of the module itself: what keeps out one that needs it keeps no card from computing.
_KEEPS_OUT = re.compile(
    r"^[ \t]*(?:blacklist[ \t]+nvidia|alias[ \t]+nvidia[ \t]+off|install[ \t]+nvidia[ \t]+/(?:usr/)?bin/(?:false|true))(?=\s|$)",
    re.MULTILINE,
)
_WORDS = ("module_blacklist=", "modprobe.blacklist=", "rd.driver.blacklist=")
_MOST_KEPT_OUT, _LONGEST = 50, 300
_LISTING_SECONDS = 60.0
#: The file of the role nouveau_blacklist.
OUR_BLACKLIST = "/etc/modprobe.d/gpuwright-nouveau.conf"


def running(host: Host) -> str | None:
    """Release of the kernel that runs."""
    release = host.line("/proc/sys/kernel/osrelease", "kernel.running")
    if release is None:
        host.unknown("kernel.running", "no /proc/sys/kernel/osrelease")
    return release


def installed(host: Host) -> list[str]:
    """Releases of the installed kernels, oldest first.

    Where a kernel image is to be seen at all, only releases with an image count: a removed kernel leaves directories of modules.
    """
    with_modules = [name for name in host.names("/lib/modules") if host.exists("/lib/modules/" + name + "/modules.dep")]
    images = {
        os.path.basename(path)[len("vmlinuz-") :] for path in host.glob("/boot/vmlinuz-*") if "rescue" not in path
    }
    images.update(name for name in with_modules if host.exists("/lib/modules/" + name + "/vmlinuz"))
    return sorted(images or with_modules, key=versions.key)


def _is_header_tree(host: Host, path: str) -> bool:
    """Whether a directory holds the headers of one configured kernel (not the part that flavours share)."""
    return any(host.exists(path + name) for name in ("/.config", "/Module.symvers", "/include/generated/autoconf.h"))


def headers(host: Host) -> list[str]:
    """Releases for which a module could be compiled, oldest first."""
    found = {name for name in host.names("/lib/modules") if host.isdir("/lib/modules/" + name + "/build")}
    for prefix in ("/usr/src/linux-headers-", "/usr/src/kernels/"):
        found.update(path[len(prefix) :] for path in host.glob(prefix + "*") if _is_header_tree(host, path))
    return sorted(found, key=versions.key)


def next_kernel(host: Host, now: str | None, present: list[str]) -> tuple[str | None, str | None]:
    """Release of the kernel that boots next, and the words for how that is known."""
    choice = bootloader.next_kernel(host)
    if choice and choice.release:
        return choice.release, choice.source
    note = ""
    if choice:
        host.unknown("kernel.next", f"{choice.source} names no Linux kernel of this machine")
        note = f" ({choice.source} names none)"
    if present:
        return present[-1], "newest installed kernel" + note
    if now:
        return now, "running kernel, no other is installed" + note
    host.unknown("kernel.next", "no boot loader, no installed and no running kernel is to be seen")
    return None, None


def compiler_text(text: str) -> str | None:
    """Compiler and version ("gcc 13.2") in the kernel's words for it."""
    # The kernel's own words are no longer than this; a pattern with brackets in brackets takes minutes for much more.
    found = _COMPILER.search(text[:500])
    return "{} {}.{}".format(*found.groups()) if found else None


def _built_with(host: Host, release: str | None, now: str | None) -> str | None:
    for path in (
        "/boot/config-{0}",
        "/lib/modules/{0}/config",
        "/lib/modules/{0}/build/.config",
        "/usr/src/linux-headers-{0}/.config",
    ):
        text = host.read(path.format(release)) if release else None
        found = re.search(r'^CONFIG_CC_VERSION_TEXT="(.*)"', text or "", re.MULTILINE)
        if found:
            return compiler_text(found.group(1))
    built = compiler_text(host.read("/proc/version") or "") if release == now else None
    if built is None:
        host.unknown(
            "kernel.compiler.built_with", f"neither the configuration of kernel {release} nor /proc/version tells it"
        )
    return built


def _gcc_version(host: Host, program: str) -> str | None:
    """Version (two parts where known) of the compiler that a program's link leads to."""
    major = re.search(r"gcc-(\d+)$", host.realpath(program))
    packaged = packages.version_of(host, *(["gcc-" + major.group(1)] if major else []), "gcc")
    if packaged:
        parts = versions.upstream(packaged).split(".")
        return ".".join(parts[:2])
    if major:
        return major.group(1)
    found = sorted(
        (os.path.basename(os.path.dirname(path)) for path in host.glob("/usr/lib*/gcc/*/*/cc1")), key=versions.key
    )
    return found[-1] if found else None


def _available_compiler(host: Host, built_with: str | None) -> str | None:
    """Version of gcc on the machine: the one of the kernel's own major version where it is there, else the default one."""
    major = re.match(r"gcc (\d+)", built_with or "")
    for program in (["/usr/bin/gcc-" + major.group(1)] if major else []) + ["/usr/bin/gcc"]:
        if host.executable(program):
            return _gcc_version(host, program)
    return None


def loaded(host: Host) -> dict[str, LoadedModule]:
    """GPU modules in the running kernel (also those built into it: these have no `initstate`)."""
    found: dict[str, LoadedModule] = {}
    for name in host.names("/sys/module", "kernel.loaded"):
        path = "/sys/module/" + name
        if _GPU_MODULE.match(name) and host.isdir(path) and host.line(path + "/initstate") in (None, "live", "coming"):
            found[name] = {"version": host.line(path + "/version")}
    if not host.isdir("/sys/module"):
        host.unknown("kernel.loaded", "no /sys/module")
    return found


def parse_modinfo(text: str) -> list[dict[str, str]]:
    """Modules of modinfo's output, which is a run of fields for each, `filename` first."""
    modules: list[dict[str, str]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon or name not in _MODINFO_FIELDS:
            continue
        if name == "filename":
            modules.append({})
        if modules:
            modules[-1].setdefault(name, value.strip())
    return modules


def _told_by_modinfo(host: Host, release: str, names: list[str]) -> tuple[dict[str, str] | None, str]:
    """Fields of the first of the modules that modinfo knows, else None and why."""
    argv = ["modinfo", "-k", release, *names]
    if not host.live:
        argv[1:1] = ["-b", host.root]
    result = host.run(argv, takes_root=True)
    modules = parse_modinfo(result.out)
    if modules:
        return modules[0], ""
    return None, result.error or f"modinfo told nothing about {names[0]}: {result.err.strip()[:200]}"


def _told_by_file(host: Host, path: str) -> tuple[dict[str, str] | None, str]:
    """Fields that the module's file tells, else None and why. The signer of an appended signature stays unknown."""
    from ansible_collections.gpuwright.node.plugins.module_utils.observe import module_file

    data = host.read_bytes(path, "kernel.available")
    if data is None:
        return None, f"{path} is gone"
    try:
        data = module_file.unpacked(data, path)
        fields = module_file.fields(data, path)
    except module_file.ModuleFileError as exc:
        return None, str(exc)
    if "signer" not in fields and module_file.is_signed(data):
        host.unknown("kernel.available.nvidia.signer", "there is no modinfo to read the signature of the module")
    return dict(fields, filename=path), ""


def available(host: Host, release: str | None) -> AvailableModules:
    """NVIDIA's module for the kernel `release`, under the name "nvidia" whatever its file is called."""
    if release is None:
        return {}
    directory = "/lib/modules/" + release
    listing = host.read(directory + "/modules.dep", "kernel.available")
    if listing is None:
        if host.isdir(directory):
            host.unknown("kernel.available", f"kernel {release} has no list of its modules (run depmod)")
        return {}
    files = {found.group(2): found.group(1) for found in _MODULE_FILE.finditer(listing)}
    if not files:
        return {}
    names = sorted(files, key=lambda name: (name != "nvidia", name))
    module, reason = _told_by_modinfo(host, release, names)
    if module is None and not host.which("modinfo"):
        module, reason = _told_by_file(host, os.path.join(directory, files[names[0]]))
    if module is None:
        host.unknown("kernel.available", reason)
        return {}
    path = module["filename"]
    # The list of modules is as old as the last depmod: of a file that is gone since, modinfo tells the name alone.
    if module.keys() == {"filename"}:
        return {}
    return {
        "nvidia": {
            "version": module.get("version"),
            "license": module.get("license"),
            "signer": module.get("signer"),
            "name": os.path.basename(path).split(".ko")[0],
            "path": path,
        }
    }


#: Where modules lie that are not of the kernel itself.
_OWN_MODULES = (
    "updates",
    "updates/dkms",
    "extra",
    "extra/*",
    "weak-updates",
    "weak-updates/*",
    "kernel/drivers/video",
    "misc",
)


def unlisted(host: Host, release: str | None) -> str | None:
    """NVIDIA's module that is there for a kernel and not in the list of its modules, so that nothing finds it; None where none is."""
    listing = host.read(f"/lib/modules/{release}/modules.dep") if release else None
    if listing is None or _MODULE_FILE.search(listing):
        return None
    found = (path for place in _OWN_MODULES for path in host.glob(f"/lib/modules/{release}/{place}/nvidia.ko*"))
    return next(found, None)


def may_boot(host: Host, release: str | None, there: AvailableModules) -> dict[str, KernelModule | None]:
    """NVIDIA's module, or None, for every kernel that may boot with nobody at the boot menu: `release`, of which it is known
    already, and where that one was chosen for one boot only, the standing default.
    """
    releases = [release] if release else []
    releases += [other for other in bootloader.may_start(host) if other != release]
    return {each: (there if each == release else available(host, each)).get("nvidia") for each in releases}


# The initramfs


def initramfs(host: Host, release: str | None) -> Initramfs:
    """Where the initramfs of the next kernel is and what makes it; not yet what is inside."""
    path = None
    for form in ("/boot/initrd.img-{0}", "/boot/initramfs-{0}.img", "/boot/initrd-{0}"):
        if release and host.exists(form.format(release)):
            path = form.format(release)
            break
    tool: InitramfsTool | None = None
    # A system with dracut may have update-initramfs as well: the scripts of packages call it. What makes the image is its mkinitramfs.
    if host.which("dracut") and not host.which("mkinitramfs"):
        tool = "dracut"
    elif host.which("update-initramfs"):
        tool = "update-initramfs"
    return {"path": path, "tool": tool, "nouveau_inside": None, "blacklist_inside": None, "blacklist_current": None}


def blacklists(host: Host) -> list[str]:
    """Names of the files that keep modprobe from loading nouveau by itself."""
    paths = [path for place in _MODPROBE for path in host.glob(place + "/*.conf")]
    return [os.path.basename(path) for path in paths if _BLACKLIST.search(host.read(path) or "")]


_MODPROBE = ("/etc/modprobe.d", "/lib/modprobe.d", "/run/modprobe.d")


def kept_out(host: Host) -> list[KeptOut]:
    """What keeps NVIDIA's module from being loaded: lines of modprobe's files (modprobe.d(5)), and words of the kernel's command line."""
    paths = sorted(path for place in _MODPROBE for path in host.glob(place + "/*.conf"))
    found: list[KeptOut] = [
        {"file": path, "line": " ".join(match.group(0).split())[:_LONGEST]}
        for path in paths
        for match in _KEEPS_OUT.finditer(host.read(path) or "")
    ]
    words = (host.line("/proc/cmdline") or "").split()
    of_boot = [word for word in words if word.startswith(_WORDS) and "nvidia" in word.partition("=")[2].split(",")]
    found += [{"file": "/proc/cmdline", "line": word[:_LONGEST]} for word in of_boot]
    return found[:_MOST_KEPT_OUT]


def look_inside(host: Host, seen: Initramfs) -> None:
    """List the initramfs (this takes seconds) and fill in what was found in it."""
    path = seen["path"]
    if path is None:
        return
    program = "lsinitramfs" if host.which("lsinitramfs") else "lsinitrd"
    result = host.run([program, host.at(path)], timeout=max(host.timeout, _LISTING_SECONDS), takes_root=True)
    if not result.ok:
        reason = result.error or f"{program} {path} failed: {(result.err or result.out).strip()[-200:]}"
        for fact in ("nouveau_inside", "blacklist_inside", "blacklist_current"):
            host.unknown("kernel.initramfs." + fact, reason)
        return
    inside = re.findall(r"modprobe\.d/(\S+\.conf)", result.out)
    seen["nouveau_inside"] = re.search(r"/nouveau\.ko", result.out) is not None
    seen["blacklist_inside"] = any(name in inside for name in blacklists(host))
    seen["blacklist_current"] = OUR_BLACKLIST[1:] in result.out and _is_newer(host, path, OUR_BLACKLIST)


def _is_newer(host: Host, image: str, file: str) -> bool:
    """Whether an image was made since a file was last written; not where the file is gone."""
    made, written = host.stat(image), host.stat(file)
    return made is not None and written is not None and made.st_mtime >= written.st_mtime


def observe(host: Host) -> Kernel:
    """The part `kernel`."""
    now = running(host)
    present = installed(host)
    release, source = next_kernel(host, now, present)
    built_with = _built_with(host, release, now)
    there = available(host, release)
    kept = kept_out(host)
    seen: Kernel = {
        "running": now,
        "next": release,
        "next_source": source,
        "installed": present,
        "headers": headers(host),
        "compiler": {"built_with": built_with, "available": _available_compiler(host, built_with)},
        "loaded": loaded(host),
        "available": there,
        "may_boot": may_boot(host, release, there),
        "initramfs": initramfs(host, release),
    }
    lost = unlisted(host, release)
    if kept:
        seen["kept_out"] = kept
    if lost:
        seen["unlisted"] = lost
    return seen
