# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the package manager knows: installed packages, sources, holds, and whether it is in trouble or busy."""

from __future__ import annotations

import itertools
import os
import re
import struct
from typing import TYPE_CHECKING, Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes, redact, simulated, words
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    apt_proxies,
    dnf_files,
    preferences,
    rpm,
    source_keys,
)
from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Packages, PackageSource, RepairRemoval
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import PackageManager

DPKG_STATUS = "/var/lib/dpkg/status"
DPKG_JOURNAL = "/var/lib/dpkg/updates"
"""A directory: what a dpkg that did not end has done since it wrote its record."""

INTERESTING = re.compile(
    r"nvidia|cuda|cudnn|nccl|libnv|nvlsm|^infiniband-diags$|datacenter-gpu-manager|tensorrt"
    r"|linux-(?:image|headers|modules|objects|generic)|^kernel(?:-|$)|^kmod-"
    r"|docker|containerd|podman|^runc$|^uidmap$|^passt$|dkms|dnf-plugin-versionlock|^gcc|^g\+\+$|^make$|^libc6-dev$|^build-essential"
    r"|^libxml2$|^xz(?:-utils)?$|^python3(?:\.\d+)?(?:-minimal|-venv|-pip)?$|initramfs|dracut|^fio$|ubuntu-drivers|mokutil|unattended-upgrades"
    r"|node-exporter|^prometheus(?:-alertmanager)?$|^grafana(?:-enterprise)?$"
)
"""Names of the packages that an observation lists."""

# The states in which `dpkg --audit` finds fault with a package (dpkg(1), "Package states").
_UNFINISHED = frozenset(("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"))

REPAIR_TRIAL = (
    "apt-get",
    "-s",
    "-q",
    "-o",
    "Debug::NoLocking=true",
    "--fix-broken",
    "--no-install-recommends",
    "install",
)
# Machine (uname -m) to dpkg's name of the architecture.
_DPKG_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}

_APT_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
_RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")

# Process names (the first 15 characters) that change packages. PackageKit's daemon is idle most of its life: only a lock tells.
_CHANGERS = frozenset(
    (
        "apt",
        "apt-get",
        "aptitude",
        "dpkg",
        "unattended-upgr",
        "needrestart",
        "apt.systemd.dai",
        "dnf",
        "dnf5",
        "yum",
        "rpm",
        "dnf-automatic",
    )
)


def manager(host: Host) -> PackageManager | None:
    """The package manager of the machine: "apt", "dnf" or None."""
    if host.exists(DPKG_STATUS):
        return "apt"
    if host.which("dnf") or host.which("dnf5") or host.exists("/var/lib/rpm") or host.exists("/usr/lib/sysimage/rpm"):
        return "dnf"
    return None


def native_arch(host: Host) -> str | None:
    """dpkg's own architecture: the first line of its list, else told from the machine."""
    known = host.line("/var/lib/dpkg/arch")
    if known:
        return known.split()[0]
    return _DPKG_ARCH.get(host.machine or "")


def _field(stanza: str, name: str) -> str:
    """Value of a one-line field; empty where it is absent. By str.find: a desktop's list has megabytes."""
    start = stanza.find("\n" + name + ": ")
    if start < 0:
        return ""
    start += len(name) + 3
    end = stanza.find("\n", start)
    return stanza[start : end if end >= 0 else len(stanza)].strip()


def parse_dpkg_status(text: str, native: str | None = None) -> dict[str, Package]:
    """Packages of a dpkg status file that are more than left-over configuration.

    Packages of a foreign architecture are named "name:architecture".
    """
    packages: dict[str, Package] = {}
    for part in text.split("\n\n"):
        stanza = "\n" + part
        status = _field(stanza, "Status").split()
        if len(status) != 3 or status[2] in ("not-installed", "config-files"):
            continue
        name, arch = _field(stanza, "Package"), _field(stanza, "Architecture") or "all"
        if native and arch not in (native, "all"):
            name += ":" + arch
        state = "reinstreq" if status[1] == "reinstreq" else status[2]
        # dpkg leaves the field out where the source has the package's own name, and adds a version that differs.
        source = (_field(stanza, "Source") or _field(stanza, "Package")).split(" ")[0]
        packages[name] = Package(
            _field(stanza, "Version"), state, status[0] == "hold", _field(stanza, "Maintainer"), source
        )
    return packages


def removed_with_settings(host: Host) -> list[str]:
    """Packages that somebody removed and whose settings dpkg keeps."""
    stanzas = ["\n" + part for part in (host.read(DPKG_STATUS, "packages.installed") or "").split("\n\n")]
    return sorted(_field(each, "Package") for each in stanzas if _field(each, "Status").endswith(" config-files"))


def with_journal(status: str, steps: Iterable[str]) -> str:
    """dpkg's record with what the files of its journal, in their order, say since, as dpkg itself reads both.

    A stanza of the journal takes the place of the package's own.
    """
    later = [stanza for text in steps for stanza in text.split("\n\n") if stanza.strip()]
    if not later:
        return status
    stanzas = {_identity(each): each.strip("\n") for each in [*status.split("\n\n"), *later] if each.strip()}
    return "\n\n".join(stanzas.values()) + "\n\n"


def _identity(stanza: str) -> tuple[str, str]:
    return _field("\n" + stanza, "Package"), _field("\n" + stanza, "Architecture")


def journal(names: Iterable[str]) -> list[str]:
    """Of the names in dpkg's journal those of its steps, in their order."""
    return sorted(name for name in names if name.isdigit())


def _read_installed(host: Host) -> dict[str, Package]:
    kind = manager(host)
    if kind == "apt":
        steps = journal(host.names(DPKG_JOURNAL, "packages.installed"))
        later = [host.read(DPKG_JOURNAL + "/" + step, "packages.installed") or "" for step in steps]
        status = host.read(DPKG_STATUS, "packages.installed") or ""
        return parse_dpkg_status(with_journal(status, later), native_arch(host))
    if kind == "dnf":
        return rpm.installed(host)
    return {}


def installed(host: Host) -> dict[str, Package]:
    """All packages that are there, finished or not (shared by the observers)."""
    return host.once("packages", lambda: _read_installed(host))


def version_of(host: Host, *names: str) -> str | None:
    """Version of the first of `names` that is installed."""
    packages = installed(host)
    for name in names:
        if name in packages:
            return packages[name].version
    return None


def interrupted(host: Host) -> str | None:
    """What an interrupted dpkg left behind, as a sentence; None when nothing."""
    steps = journal(host.names(DPKG_JOURNAL, "packages.interrupted"))
    if steps:
        return f"dpkg was interrupted: {DPKG_JOURNAL} holds {words.count(len(steps), 'unfinished steps')}"
    groups: dict[str, list[str]] = {}
    for name, package in sorted(installed(host).items()):
        if package.state in _UNFINISHED or package.state == "reinstreq":
            groups.setdefault(package.state, []).append(name)
    if not groups:
        return None
    return "packages left unfinished: " + "; ".join(
        "{}: {}".format(state, ", ".join(names[:10])) for state, names in sorted(groups.items())
    )


def repair_removes(host: Host) -> list[RepairRemoval] | None:
    """What apt would remove to finish what was interrupted; None where it does not say. A simulation: nothing is locked or written.

    While dpkg has a journal its record is not the whole truth: then the repair itself finds out, once that is written down.
    """
    if journal(host.names(DPKG_JOURNAL, "packages.interrupted")):
        return None
    result = host.run(list(REPAIR_TRIAL))
    return simulated.parse(result.out)[1] if result.ok else None


# Who is at work


def _comm(host: Host, pid: str) -> str:
    return host.line("/proc/" + pid + "/comm") or "a process"


def lock_holder(host: Host, path: str) -> int | None:
    """Process that holds the lock on a file; None when nobody does or this user may not ask."""
    import fcntl

    try:
        descriptor = os.open(host.at(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # struct flock of 64-bit Linux: type, whence, start, length, pid. Asking takes no lock and needs no right to write.
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        answer = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])


def busy(host: Host, kind: str) -> str | None:
    """Who changes packages now, as "name (pid n)"; None when nobody is seen."""
    if host.live:
        for lock in _APT_LOCKS if kind == "apt" else _RPM_LOCKS:
            pid = lock_holder(host, lock)
            if pid is not None:
                # A holder outside of this process namespace has the number 0 or -1 here.
                return f"{_comm(host, str(pid))} (pid {pid})" if pid > 0 else "a process outside of this container"
    for pid_text in host.names("/proc"):
        if not pid_text.isdigit():
            continue
        comm = host.line("/proc/" + pid_text + "/comm")
        if comm not in _CHANGERS or not processes.is_roots(int(pid_text), host.root):
            continue
        # One in a container, or in the tree of another system, changes the packages there.
        if processes.in_own_root(int(pid_text), host.root):
            continue
        command = host.read("/proc/" + pid_text + "/cmdline", limit=4096) or ""
        # Ubuntu's waiter for the shutdown carries the same short name and changes nothing.
        if "unattended-upgrade-shutdown" not in command:
            return f"{comm} (pid {pid_text})"
    return None


# Sources


_OFF = ("no", "false", "0", "off", "without", "disable")


def parse_one_line(text: str, path: str) -> list[PackageSource]:
    """Sources of the one-line format (sources.list(5))."""
    sources: list[PackageSource] = []
    for line in text.splitlines():
        entry = line.split("#", 1)[0].strip()
        found = re.match(r"(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$", entry)
        if not found:
            continue
        kind, options, uri, suite, components = found.groups()
        signed = re.search(r"(?:^|\s)signed-by=(\S+)", options or "")
        sources.append(
            {
                "file": path,
                "types": [kind],
                "uris": [redact.without_credentials(uri)],
                "suites": [suite],
                "components": components.split(),
                "signed_by": signed.group(1) if signed else None,
                "enabled": True,
            }
        )
    return sources


def parse_deb822(text: str, path: str) -> list[PackageSource]:
    """Sources of the stanza format (sources.list(5), "DEB822-STYLE FORMAT"). A key inside the file is "inline"."""
    sources: list[PackageSource] = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        written: dict[str, list[str]] = {}
        last = None
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t"):
                if last:
                    written[last].append(line.strip())
                continue
            name, colon, value = line.partition(":")
            if colon:
                last = name.strip().lower()
                written[last] = [value.strip()]
        fields = {name: "\n".join(lines) for name, lines in written.items()}
        if not fields.get("uris"):
            continue
        signed = fields.get("signed-by") or None
        sources.append(
            {
                "file": path,
                "types": fields.get("types", "deb").split(),
                "uris": [redact.without_credentials(uri) for uri in fields["uris"].split()],
                "suites": fields.get("suites", "").split(),
                "components": fields.get("components", "").split(),
                "signed_by": "inline" if signed and "BEGIN PGP" in signed else signed,
                "enabled": fields.get("enabled", "yes").lower() not in _OFF,
            }
        )
    return sources


def parse_sources(text: str, path: str) -> list[PackageSource]:
    """Sources of a file, in the format that its name says."""
    return (parse_deb822 if path.endswith(".sources") else parse_one_line)(text, path)


def conflicts(sources: Iterable[PackageSource]) -> list[str]:
    """Sources, in apt's order, that name a place with another key than an earlier one, as sentences. apt reads none before that is mended.

    One without a key that comes before those with one takes theirs.
    """
    first: dict[tuple[str, str], PackageSource] = {}
    told = []
    for source in sources:
        for uri, suite in itertools.product(source["uris"], source["suites"]) if source["enabled"] else ():
            before = first.get((uri.rstrip("/"), suite))
            if before is None and source["signed_by"]:
                first[uri.rstrip("/"), suite] = source
            elif before is not None and before["signed_by"] != source["signed_by"]:
                told.append(
                    f"{source['file']} beside {before['file']}: {uri} {suite} has {_signed_by(source)} in the one and "
                    f"{_signed_by(before)} in the other"
                )
    return list(dict.fromkeys(told))


def _signed_by(source: PackageSource) -> str:
    return f"Signed-By {source['signed_by']}" if source["signed_by"] else "no Signed-By"


def unreadable_lines(text: str) -> list[tuple[int, str]]:
    """Numbers of the lines of a one-line file that apt cannot read, each with the reason. Source: sources.list(5)."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.split("#", 1)[0].strip()
        parts = re.match(r"(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?([^\s\[]\S*)\s+(\S+)\s*(.*)$", entry)
        if entry and not parts:
            found.append((number, "it is not TYPE [OPTION=VALUE] ADDRESS SUITE COMPONENT"))
        elif parts and not all(re.match(r"[^=]+=.", option) for option in (parts.group(2) or "").split()):
            found.append((number, f"[{parts.group(2)}] is not OPTION=VALUE"))
        elif parts:
            uris, suites, components = [[text] for text in parts.groups()[2:4]] + [parts.group(5).split()]
            found += [(number, why) for why in _unusable(uris, suites, components)]
    return found


def _unusable(uris: list[str], suites: list[str], components: list[str]) -> list[str]:
    """What of a readable entry apt refuses; the first of it. A suite that ends in a slash is a place without components."""
    without_scheme = [uri for uri in uris if not re.match(r"\"?[A-Za-z][A-Za-z0-9+.-]*:", uri)]
    places = [suite for suite in suites if suite.endswith("/")]
    if without_scheme:
        return [f"{redact.without_credentials(without_scheme[0])} is no address"]
    if places and components:
        return [f"{places[0]} takes no component, since it ends in a slash"]
    return ["it names no component"] if not components and len(places) < len(suites) else []


def unreadable_stanzas(text: str) -> list[tuple[int, str]]:
    """Numbers of the stanzas of a file in deb822 format that apt cannot read, each with the reason. Source: sources.list(5)."""
    found, number = [], 0
    for stanza in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in stanza.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        number += 1
        # A line that begins with a blank goes on with the one before.
        whole = re.sub(r"\n[ \t]", " ", "\n".join(lines)).splitlines()
        fields = {line.partition(":")[0].strip().lower(): line.partition(":")[2].strip() for line in whole}
        if fields.get("enabled", "yes").lower() in _OFF:
            continue
        lacking = ["types"] if "types" not in fields else [name for name in ("uris", "suites") if not fields.get(name)]
        kinds = [kind for kind in fields.get("types", "").split() if kind not in ("deb", "deb-src")]
        if lacking:
            found.append((number, f"it has no {lacking[0].capitalize() if lacking[0] != 'uris' else 'URIs'}"))
        elif kinds:
            found.append((number, f"{kinds[0]} is no type"))
        else:
            told = (fields.get(name, "").split() for name in ("uris", "suites", "components"))
            found += [(number, why) for why in _unusable(*told)]
    return found


def broken_sources(host: Host) -> list[str]:
    """What apt cannot read of the package sources, as sentences: it installs nothing before that is mended."""
    told = []
    for path in _source_files(host):
        text = host.read(path, "packages.sources") or ""
        entry, unreadable = ("line", unreadable_lines) if path.endswith(".list") else ("stanza", unreadable_stanzas)
        told += [f"{path}, {entry} {number}: {why}" for number, why in unreadable(text)]
    differ = conflicts(apt_sources(host))
    # apt 3 takes one without a key for one with the key of another at its place, apt 2 does not.
    taken = bool(differ) and host.live and host.run(["apt-get", "indextargets", "--format", "$(SITE)"]).ok
    return told + ([] if taken else differ)


def _source_files(host: Host) -> list[str]:
    """The files of sources that apt reads, in its order: it ignores names with other endings, such as those of backups."""
    directory = "/etc/apt/sources.list.d/"
    paths = ["/etc/apt/sources.list"] + [directory + name for name in host.names(directory, "packages.sources")]
    return [path for path in paths if path.endswith((".list", ".sources"))]


def apt_sources(host: Host) -> list[PackageSource]:
    """All package sources that apt reads, in its order of files."""
    sources = []
    for path in _source_files(host):
        text = host.read(path, "packages.sources")
        if text:
            sources += parse_sources(text, path)
    apt = version_of(host, "apt")
    for source in sources:
        source_keys.look(host, source, apt)
    return sources


def gone_sources(host: Host, sources: Iterable[PackageSource]) -> list[str]:
    """Sources in a directory of this machine that is not there, as sentences: nothing comes from them."""
    told = [
        f"{source['file']}: there is no directory {found.group(1)}"
        for source in sources
        for found in (re.match(r"(?:file|copy):/*(/[^?#]*)", uri) for uri in source["uris"])
        if source["enabled"] and found and not host.isdir(found.group(1))
    ]
    return list(dict.fromkeys(told))


def observe(host: Host) -> Packages:
    """The part `packages` of the observation."""
    kind = manager(host)
    found = installed(host)
    seen: Packages = {
        "manager": kind,
        "interrupted": None,
        "interrupted_detail": None,
        "busy": None,
        "holds": [],
        "sources": [],
        "installed": {
            name: package.version
            for name, package in sorted(found.items())
            if package.state == "installed" and INTERESTING.search(name)
        },
    }
    if kind is None:
        host.unknown("packages", "neither dpkg nor rpm keeps the packages of this machine")
        return seen
    seen["busy"] = busy(host, kind)
    if kind == "apt":
        seen["interrupted_detail"] = interrupted(host)
        seen["interrupted"] = seen["interrupted_detail"] is not None
        seen["holds"] = sorted(name for name, package in found.items() if package.hold)
        seen["sources"] = apt_sources(host)
        seen["broken_sources"] = broken_sources(host)
        seen["gone_sources"] = gone_sources(host, seen["sources"])
        seen["hides"] = preferences.hides(host)
        seen["silent_proxies"] = apt_proxies.silent(host)
        removes = repair_removes(host) if seen["interrupted"] and host.live else None
        if removes is not None:
            seen["repair_removes"] = removes
    else:
        seen["interrupted_detail"] = rpm.interrupted(host)
        seen["interrupted"] = seen["interrupted_detail"] is not None
        seen["duplicates"] = rpm.duplicated(host)
        seen["streams"] = rpm.streams(host)
        seen["disabled_modules"] = rpm.disabled_modules(host)
        seen["holds"] = rpm.versionlocks(host)
        seen["sources"] = rpm.sources(host)
        seen["broken_sources"] = dnf_files.broken(host)
        seen["hides"] = dnf_files.hides(host)
    if "packages.interrupted" in host.unknown_facts and not seen["interrupted"]:
        seen["interrupted"] = None
    return seen
