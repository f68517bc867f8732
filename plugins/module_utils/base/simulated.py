# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What apt says that it would do (`apt-get --simulate`), and what of it goes beyond what may be. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterable, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import deb_version

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageInstall, PackageRemoval

Coming = TypedDict("Coming", {"name": "str", "version": "str", "from": "str | None"})

_INSTALLS = re.compile(r"^Inst (\S+) (?:\[([^\]]*)\] )?\((\S+) ")
_REMOVES = re.compile(r"^(?:Remv|Purg) (\S+) \[([^\]]*)\]")


def parse(text: str) -> tuple[list[Coming], list[PackageRemoval]]:
    """What would be installed (name, version, and the version it replaces) and what would be removed."""
    install: list[Coming] = []
    removes: dict[str, str] = {}
    for line in text.splitlines():
        comes, goes = _INSTALLS.match(line), _REMOVES.match(line)
        if comes:
            install.append({"name": comes.group(1), "version": comes.group(3), "from": comes.group(2)})
        elif goes:
            removes[goes.group(1)] = goes.group(2)
    return install, [{"name": name, "version": version} for name, version in sorted(removes.items())]


def downgrades(install: Iterable[Coming | PackageInstall]) -> list[str]:
    """Names of the packages that would go to an older version."""
    return [row["name"] for row in install if row["from"] and deb_version.is_older(row["version"], row["from"])]


def beyond(text: str, holds: Iterable[str], may_take: Iterable[str]) -> list[str]:
    """What apt would take away of other packages than those that it may, a sentence for each. ``holds``: names of those on hold."""
    install, removes = parse(text)
    may, held, older = set(may_take), set(holds), downgrades(install)

    def is_other(name: str) -> bool:
        return not may & {name, name.partition(":")[0]}

    found = [f"it removes {row['name']} {row['version']}" for row in removes if is_other(row["name"])]
    for row in install:
        if row["from"] and is_other(row["name"]):
            versions = f"{row['name']} {row['from']} -> {row['version']}"
            found += [f"it downgrades {versions}"] if row["name"] in older else []
            found += [f"it changes {versions}, which is on hold"] if row["name"] in held else []
    return found
