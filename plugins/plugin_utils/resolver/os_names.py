# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An operating system as people write it: ubuntu24.04, NVIDIA's ubuntu2404, Ubuntu 24.04 LTS, noble, rhel9.6, "Rocky Linux 9", "WSL2
Ubuntu 24.04", "DGX OS 7".
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..rules import Row, Rules

_WRITTEN = lazy(r"(?P<name>[a-z][a-z!_/ -]*?)[ _-]*(?P<version>\d[\d.]*)?(?: lts)?")
_WSL = lazy(r"[ (/:_-]*\bwsl ?2?\b[ )/:_-]*")
_NOTHING_SAID = lazy(r"[^a-z]|linux|gnu")


def known(written: str, rules: Rules) -> str:
    """Return the ID-VERSION of os-release that is meant; the words themselves where they name no system that the tables have."""
    text = written.strip().lower()
    text = _WSL.sub("", text) or text
    systems: list[Row] = rules["systems"]["rows"]
    by_codename = next((str(row["os"]) for row in systems if row["codename"] == text), None)
    match = _WRITTEN.fullmatch(text)
    if by_codename or not match:
        return by_codename or written
    rows = [*systems, *rules["systems"]["derivatives"]]
    name = _plain(match["name"])
    identity = next((row["id"] for row in rows if name in (_plain(row["id"]), _plain(row["name"]))), None)
    if identity is None:
        return written
    if not match["version"]:
        # Of one that is made from another one the newest is meant; several releases of the same are for a person to tell apart.
        newest = [row["version"] or "" for row in rules["systems"]["derivatives"] if row["id"] == identity]
        return f"{identity}-{newest[-1]}" if newest else written
    digits = match["version"].replace(".", "")
    versions = [row["version"] for row in systems if row["id"] == identity]
    version = next((each for each in versions if each.replace(".", "") == digits), match["version"])
    return f"{identity}-{version}"


def is_in_wsl(written: str) -> bool:
    """Say whether a system is named as one in WSL."""
    return _WSL.search(written.lower()) is not None


def _plain(name: str) -> str:
    """Return the letters that tell one system from another: "Red Hat Enterprise Linux 9" and "redhatenterprise" are one."""
    return _NOTHING_SAID.sub("", name.lower())
