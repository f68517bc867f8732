# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Operating system, kind of machine, how it was booted, memory, processors."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import upstream
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages, signing_key

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Boot,
        Environment,
        EnvironmentKind,
        Family,
        Os,
    )

_DEBIAN_IDS = frozenset(("debian", "ubuntu"))
_REDHAT_IDS = frozenset(("rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn"))

_EFIVARS = "/sys/firmware/efi/efivars/"
_SECURE_BOOT = _EFIVARS + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# shim tells the kernel by this variable that its checks were switched off; then Secure Boot binds nobody.
_SHIM_OFF = _EFIVARS + "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"

# Firmware's words (DMI) for a virtual machine, as in systemd's detect-virt. First match counts.
_VM_WORDS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VirtualBox", "oracle"),
    ("innotek GmbH", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Google Compute Engine", "google"),
    ("Hyper-V", "microsoft"),
    ("Virtual Machine", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Nutanix", "nutanix"),
)
_CPUINFO_HEAD = 16384
_OS_RELEASE = 65536


def parse_os_release(text: str) -> dict[str, str]:
    """Fields of an os-release file (os-release(5)); a line that cannot be understood is left out."""
    fields = {}
    for line in text[:_OS_RELEASE].splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            continue
        fields[name] = words[0] if words else ""
    return fields


def _family(fields: dict[str, str]) -> Family:
    names = {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()}
    if names & _DEBIAN_IDS:
        return "debian"
    return "redhat" if names & _REDHAT_IDS else "other"


def architecture(host: Host) -> str | None:
    """Machine of the system, as `uname -m` says it; for a tree told from its dynamic loader."""
    if host.machine:
        return host.machine
    for loader, machine in (("/lib64/ld-linux-x86-64.so.2", "x86_64"), ("/lib/ld-linux-aarch64.so.1", "aarch64")):
        if host.exists(loader):
            return machine
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(packages.native_arch(host) or "")


def _glibc(host: Host) -> str | None:
    if host.live:
        try:
            name, _space, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except (ValueError, OSError):
            name, version = "", ""
        if name == "glibc" and version:
            return version
    packaged = packages.version_of(host, "libc6", "glibc")
    if packaged:
        return upstream(packaged)
    host.unknown("os.glibc", "neither the C library itself nor a package told its version")
    return None


def operating_system(host: Host) -> Os:
    """The part `os`."""
    text = host.read("/etc/os-release", "os") or host.read("/usr/lib/os-release", "os")
    if text is None:
        host.unknown("os", "neither /etc/os-release nor /usr/lib/os-release is there")
    fields = parse_os_release(text or "")
    arch = architecture(host)
    if arch is None:
        host.unknown("os.arch", "the tree does not tell its processor architecture")
    return {
        "id": fields.get("ID"),
        "version": fields.get("VERSION_ID"),
        "codename": fields.get("VERSION_CODENAME") or fields.get("UBUNTU_CODENAME"),
        "name": fields.get("PRETTY_NAME"),
        "family": _family(fields),
        "arch": arch,
        "glibc": _glibc(host),
    }


def hostname(host: Host) -> str | None:
    """Name of the machine."""
    name = host.line("/proc/sys/kernel/hostname") or host.line("/etc/hostname")
    if name is None:
        host.unknown("hostname", "no /etc/hostname")
    return name


def _container(host: Host) -> str | None:
    """Name of the container's engine, or None outside of one. WSL's systemd calls WSL a container."""
    named = host.line("/run/systemd/container")
    if named:
        return None if named == "wsl" else named
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/.dockerenv"):
        return "docker"
    found = re.search(
        r"(docker|lxc|kubepods|libpod|machine\.slice/machine-)", host.read("/proc/1/cgroup", limit=4096) or ""
    )
    if found:
        return {"libpod": "podman"}.get(found.group(1), found.group(1))
    if host.euid == 0:
        found = re.search(r"(?:^|\0)container=([^\0]+)", host.read("/proc/1/environ", limit=65536) or "")
        if found and found.group(1) != "wsl":
            return found.group(1)
    return None


def _virtual(host: Host) -> str | None:
    dmi = "/sys/class/dmi/id/"
    product = host.line(dmi + "product_name") or ""
    words = " | ".join(
        [product] + [host.line(dmi + name) or "" for name in ("sys_vendor", "board_vendor", "bios_vendor")]
    )
    if "Amazon EC2" in words and ".metal" in product:
        return None
    for word, name in _VM_WORDS:
        if word in words:
            return name
    if host.exists("/sys/hypervisor/type"):
        return host.line("/sys/hypervisor/type")
    # Every processor repeats the flags: the first is enough, and the whole file is slow on many cores.
    flags = re.search(
        r"^flags\s*:.*\bhypervisor\b", host.read("/proc/cpuinfo", limit=_CPUINFO_HEAD) or "", re.MULTILINE
    )
    return "unnamed hypervisor" if flags else None


#: Where no id is another one outside.
_EVERY_ID = ["0", "0", "4294967295"]


def environment(host: Host) -> Environment:
    """The part `environment`: where the system runs, and whether systemd manages its services (None: a tree does not tell)."""
    systemd = host.isdir("/run/systemd/system") if host.live else None
    kind, detail = _place(host)
    found: Environment = {"kind": kind, "detail": detail, "systemd": systemd}
    # One line for each range: the first id in here, the one that it is outside, and how many (user_namespaces(7)).
    own = (host.line("/proc/self/uid_map") or "").split() if kind == "container" else []
    if own:
        found["user_namespace"] = own != _EVERY_ID
    return found


def _place(host: Host) -> tuple[EnvironmentKind, str | None]:
    """Kind of place and what it says of itself. Container, WSL and Jetson count before virtual machine."""
    container = _container(host)
    if container:
        return "container", container
    release = host.line("/proc/sys/kernel/osrelease") or ""
    if "microsoft" in release.lower() or host.exists("/run/WSL"):
        return "wsl", release or None
    tegra = host.line("/etc/nv_tegra_release")
    if tegra or "nvidia,tegra" in (host.read("/proc/device-tree/compatible") or ""):
        return "jetson", tegra.splitlines()[0] if tegra else None
    virtual = _virtual(host)
    return ("vm", virtual) if virtual else ("bare", None)


def _secure_boot(host: Host) -> bool | None:
    fact = "boot.secure_boot"
    if not host.isdir("/sys/firmware/efi"):
        # Without EFI there is no Secure Boot; a tree without /sys tells nothing.
        if host.live or host.isdir("/sys"):
            return False
        host.unknown(fact, "the tree has no /sys")
        return None
    data = host.read_bytes(_SECURE_BOOT, fact)
    if data:
        shim = host.read_bytes(_SHIM_OFF) or b"\0"
        return data[-1] == 1 and shim[-1] != 1
    if host.isdir(_EFIVARS) and data is None and host.names(_EFIVARS) and fact not in host.unknown_facts:
        # The variables are there, this one is not: the firmware has no Secure Boot.
        return False
    result = host.run(["mokutil", "--sb-state"])
    said = result.out + result.err
    if "SecureBoot enabled" in said:
        host.unknown_facts.pop(fact, None)
        return "validation is disabled" not in said
    if "SecureBoot disabled" in said or "doesn't support Secure Boot" in said:
        host.unknown_facts.pop(fact, None)
        return False
    host.unknown(
        fact,
        "the EFI variable SecureBoot could not be read, and mokutil did not tell either: "
        + (result.error or said.strip()[:200]),
    )
    return None


def boot(host: Host, system: str | None = None) -> Boot:
    """The part `boot`. `system`: id of os-release."""
    boot_id = host.line("/proc/sys/kernel/random/boot_id", "boot.id")
    if boot_id is None:
        host.unknown("boot.id", "no /proc/sys/kernel/random/boot_id")
    secure = _secure_boot(host)
    return {
        "id": boot_id,
        "secure_boot": secure,
        # Looked for only where it decides something.
        "signing_key": signing_key.observe(host, system) if secure else None,
        "cmdline": host.line("/proc/cmdline", "boot.cmdline"),
    }
