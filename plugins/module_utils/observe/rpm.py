# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What rpm and dnf know: installed packages, sources, version locks. `packages` asks where it is the machine's package manager."""

from __future__ import annotations

import configparser
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Iterable, Iterator

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import dnf_files
from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource

# Kernels stand side by side; so do keys.
_SIDE_BY_SIDE = re.compile(r"^(?:kernel(?:-|$)|kmod-(?!.*-dkms$)|gpg-pubkey$)")
# Of the usual kernel, and of those with pages of 64 KiB and for real time.
_BY_KERNEL = tuple(
    kernel + part for kernel in ("kernel", "kernel-64k", "kernel-rt") for part in ("-core", "-devel", "-devel-matched")
)
_FORM = r"%{NAME}\t%{EPOCH}\t%{VERSION}-%{RELEASE}\t%{ARCH}\t%{VENDOR}\t%{SOURCERPM}\n"
_FIELDS = 6
# As a lock may name them behind a version; or none.
_ARCHITECTURES = ("", ".x86_64", ".aarch64", ".noarch")
_KEY = "gpg-pubkey"


def parse_rpm(text: str) -> dict[str, Package]:
    """Packages from lines of name, epoch, version-release, architecture, vendor, source, separated by tabs.

    Of several installed versions (kernels) the newest one counts; each kernel and its headers also stand under the name with their
    version, as dnf takes it (kernel-devel-5.14.0-611.el9.x86_64), and each key that was imported only under that. Epochs that are
    not 0 are kept.
    """
    packages: dict[str, Package] = {}
    # Keys of the versions that were compared: a long one is not taken apart again for each line.
    newest: dict[str, tuple[tuple[int, int, str], ...]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != _FIELDS:
            continue
        name, epoch, version, arch, vendor, source = fields
        if name == _KEY:
            packages[f"{name}-{version}"] = Package(version, "installed", False, vendor)
            continue
        source = _source(source)
        if name in _BY_KERNEL:
            packages[key_of(name, version, arch)] = Package(version, "installed", False, vendor, source)
        if epoch not in ("", "0", "(none)"):
            version = epoch + ":" + version
        if name in packages:
            key, known = versions.key(version), newest.get(name) or versions.key(packages[name].version)
            newest[name] = max(key, known)
            if key <= known:
                continue
        packages[name] = Package(version, "installed", False, vendor, source)
    return packages


def _source(file: str) -> str:
    """Name of the source package in the name of its file (nvidia-driver-580.126.20-1.el9.src.rpm)."""
    return file.rsplit("-", 2)[0] if file.endswith(".rpm") else ""


def exact(names: Iterable[str]) -> list[str]:
    """The names without those that another one says with its version: a plain one would mean the headers of every kernel."""
    told = set(names)
    doubled = {plain for plain in _BY_KERNEL if any(re.match(rf"{plain}-\d", name) for name in told)}
    return sorted(told - doubled)


def key_of(name: str, version: str, arch: str) -> str:
    """The name under which a package is told: kernels and their headers, which stand side by side, with their version."""
    return f"{name}-{version}.{arch}" if name in _BY_KERNEL else name


def duplicates(text: str) -> list[str]:
    """Names of packages, in such lines, of which two versions are there that cannot stand side by side: an update was cut off."""
    seen: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == _FIELDS and not _SIDE_BY_SIDE.match(fields[0]):
            seen[fields[0], fields[3]] = seen.get((fields[0], fields[3]), 0) + 1
    return sorted({name for (name, _arch), count in seen.items() if count > 1})


def _listing(host: Host) -> Result:
    """rpm's list of what is installed (shared: it is asked once)."""
    argv = ["rpm", "-qa", "--qf", _FORM]
    if not host.live:
        argv[1:1] = ["--root", host.root]
    return host.once("rpm", lambda: host.run(argv, takes_root=True))


def duplicated(host: Host) -> list[str]:
    """Names of packages that an interrupted update left twice."""
    result = _listing(host)
    return duplicates(result.out) if result.ok else []


def interrupted(host: Host) -> str | None:
    """What an interrupted rpm left behind, as a sentence; None when nothing."""
    result = _listing(host)
    if not result.ok:
        return "rpm's database does not answer: " + (result.error or result.err.strip()[-200:])
    names = duplicated(host)
    return "two versions are installed of " + ", ".join(names[:10]) if names else None


def streams(host: Host) -> dict[str, str]:
    """Module streams that are enabled, by the module's name."""
    return {name: stream for name, state, stream in _modules(host) if state == "enabled" and stream}


def disabled_modules(host: Host) -> list[str]:
    """Modules that are disabled: dnf hides the packages of all their streams."""
    return sorted(name for name, state, _stream in _modules(host) if state == "disabled")


def _modules(host: Host) -> Iterator[tuple[str, str, str]]:
    """Name, state and stream of the modules that dnf was told something of."""
    for path in host.glob("/etc/dnf/modules.d/*.module", "packages.streams"):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(host.read(path, "packages.streams") or "")
        except configparser.Error:
            continue
        for section in parser.sections():
            yield section, parser.get(section, "state", fallback=""), parser.get(section, "stream", fallback="")


def installed(host: Host) -> dict[str, Package]:
    """The packages in rpm's database; none and unknown when it does not answer."""
    result = _listing(host)
    if result.ok:
        return parse_rpm(result.out)
    host.unknown("packages.installed", result.error or "rpm -qa failed: " + result.err.strip()[-200:])
    return {}


def parse_yum_repo(text: str, path: str) -> list[PackageSource]:
    """Sources of a yum/dnf file; `name` is the repository's id. Of a file that dnf cannot read there are none."""
    sections, fault = dnf_files.parse(text)
    found: list[PackageSource] = []
    for section in [] if fault else filter(dnf_files.is_repository, sections):
        got = section.options
        uris = dnf_files.addresses(section)
        found.append(
            {
                "file": path,
                "name": section.name,
                "types": ["rpm"],
                "uris": [redact.without_credentials(uri) for uri in uris],
                "suites": [],
                "components": [],
                "signed_by": got.get("gpgkey") or None,
                "enabled": dnf_files.enabled(section),
            }
        )
    return found


def sources(host: Host) -> list[PackageSource]:
    """All package sources that dnf reads."""
    return [source for path, text in dnf_files.texts(host) for source in parse_yum_repo(text, path)]


def versionlocks(host: Host) -> list[str]:
    """Names that dnf's versionlock plugin keeps where they are (dnf 4: lines; dnf 5: a TOML file).

    A line for another version than the installed one keeps nothing; nor does any where the plugin is not there or switched off.
    """
    names = []
    for line in (host.read("/etc/dnf/plugins/versionlock.list") or "").splitlines() if _plugin_works(host) else ():
        entry = line.strip()
        if entry and not entry.startswith(("#", "!")):
            # epoch:name-version-release.arch or name-epoch:version-release.*
            found = re.match(r"(?:\d+:)?(.+?)-(?:\d+:)?(\d[^-]*-[^-]+)$", entry)
            name, version = (found.group(1), found.group(2)) if found else (entry, "*")
            if _is_installed(host, name, version):
                names.append(name)
    names += re.findall(
        r"^[ \t]*name[ \t]*=[ \t]*[\"']([^\"']+)", host.read("/etc/dnf/versionlock.toml") or "", re.MULTILINE
    )
    return sorted(set(names))


def _plugin_works(host: Host) -> bool:
    """Whether dnf 4 reads the list of locks: its plugin is there and on."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(host.read("/etc/dnf/plugins/versionlock.conf") or "")
    except configparser.Error:
        return False
    return parser.get("main", "enabled", fallback="0").strip().lower() in ("1", "yes", "true", "on")


def _is_installed(host: Host, name: str, pattern: str) -> bool:
    """Whether what is installed under a name fits a lock; what is not installed cannot be in conflict with its lock."""
    package = installed(host).get(name)
    if package is None:
        return True
    version = package.version.split(":", 1)[-1]
    return any(fnmatchcase(version + arch, pattern) for arch in _ARCHITECTURES)
