# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What rpm and dnf know: installed packages, sources, version locks. `packages` asks where it is the machine's package manager."""

from __future__ import annotations

import configparser
import re
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe.packages import Package

_FORM = r"%{NAME}\t%{EPOCH}\t%{VERSION}-%{RELEASE}\t%{ARCH}\t%{VENDOR}\n"


def parse_rpm(text: str) -> dict[str, Package]:
    """Packages from lines of name, epoch, version-release, architecture, vendor, separated by tabs.

    Of several installed versions (kernels) the last one counts; epochs that are not 0 are kept.
    """
    packages = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 5 or fields[0] == "gpg-pubkey":
            continue
        name, epoch, version, _arch, vendor = fields
        if epoch not in ("", "0", "(none)"):
            version = epoch + ":" + version
        packages[name] = Package(version, "installed", False, vendor)
    return packages


def installed(host: Host) -> dict[str, Package]:
    """The packages in rpm's database; none and unknown when it does not answer."""
    argv = ["rpm", "-qa", "--qf", _FORM]
    if not host.live:
        argv[1:1] = ["--root", host.root]
    result = host.run(argv, takes_root=True)
    if result.ok:
        return parse_rpm(result.out)
    host.unknown("packages.installed", result.error or "rpm -qa failed: " + result.err.strip()[-200:])
    return {}


def parse_yum_repo(text: str, path: str) -> list[dict[str, Any]]:
    """Sources of a yum/dnf file; `name` is the repository's id."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    sources = []
    for section in parser.sections():
        got = dict(parser.items(section))
        uris = (got.get("baseurl") or got.get("metalink") or got.get("mirrorlist") or "").split()
        sources.append(
            {
                "file": path,
                "name": section,
                "types": ["rpm"],
                "uris": uris,
                "suites": [],
                "components": [],
                "signed_by": got.get("gpgkey") or None,
                "enabled": got.get("enabled", "1").strip().lower() in ("1", "yes", "true", "on"),
            }
        )
    return sources


def sources(host: Host) -> list[dict[str, Any]]:
    """All package sources that dnf reads."""
    found = []
    for path in host.glob("/etc/yum.repos.d/*.repo", "packages.sources"):
        found += parse_yum_repo(host.read(path, "packages.sources") or "", path)
    return found


def versionlocks(host: Host) -> list[str]:
    """Names that dnf's versionlock plugin keeps (dnf 4: lines; dnf 5: a TOML file)."""
    names = []
    for line in (host.read("/etc/dnf/plugins/versionlock.list") or "").splitlines():
        entry = line.strip()
        if entry and not entry.startswith(("#", "!")):
            # epoch:name-version-release.arch or name-epoch:version-release.*
            found = re.match(r"(?:\d+:)?(.+?)-(?:\d+:)?[^-]+-[^-]+$", entry)
            names.append(found.group(1) if found else entry)
    names += re.findall(r"^\s*name\s*=\s*[\"']([^\"']+)", host.read("/etc/dnf/versionlock.toml") or "", re.MULTILINE)
    return sorted(set(names))
