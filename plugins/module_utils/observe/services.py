# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Services, by one question to systemd. Nothing is started by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterable, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import own_units

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Service

UNITS = (
    *own_units.UNITS,
    "docker.service",
    "containerd.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh.service",
    "nvidia-imex.service",
    "nvidia-powerd.service",
    "prometheus-node-exporter.service",
    "nvidia-dcgm.service",
    "nvidia-dcgm-exporter.service",
    "prometheus.service",
    "prometheus-alertmanager.service",
    "grafana-server.service",
    "unattended-upgrades.service",
    "apt-daily-upgrade.timer",
    "display-manager.service",
)
"""Units that are always looked at."""

ADMINISTRATORS = "/etc/systemd/system/"
"""Where units are that no package brought."""

# Where systemd reads units from (systemd.unit(5), "Unit File Load Path").
_DIRECTORIES = (
    "/usr/lib/systemd/system/",
    ADMINISTRATORS,
    "/run/systemd/system/",
    "/run/systemd/generator/",
    "/run/systemd/generator.early/",
    "/run/systemd/generator.late/",
    "/run/systemd/transient/",
    "/usr/local/lib/systemd/system/",
    "/lib/systemd/system/",
    "/etc/systemd/system.control/",
    "/run/systemd/system.control/",
    "/etc/systemd/system.attached/",
    "/run/systemd/system.attached/",
)
_NOT_FOUND = {"LoadState": "not-found", "ActiveState": "inactive"}
_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,ExecMainStartTimestamp,ExecMainStartTimestampMonotonic,MainPID"


def parse_show(text: str, units: list[str]) -> dict[str, dict[str, str]]:
    """Properties of each asked unit: `systemctl show` answers in the order of the question, an empty line between.

    The order is what names them: an alias (display-manager.service) answers with another Id.
    """
    blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    if len(blocks) != len(units):
        return {}
    return {
        unit: dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for unit, block in zip(units, blocks)
    }


def has_file(host: Host, unit: str) -> bool:
    """Whether systemd can know a unit by a file. Of a template's instance (name@instance.service) the template's file counts."""
    name, at, rest = unit.partition("@")
    names = [unit] + ([name + at + "." + rest.rpartition(".")[2]] if at else [])
    return any(host.exists(directory + each) for each in names for directory in _DIRECTORIES)


def changed(host: Host, name: str) -> list[str]:
    """The units that have a drop-in of this name."""
    places = host.glob(f"/etc/systemd/system/*.service.d/{name}")
    return [place.split("/")[-2][: -len(".d")] for place in places]


def properties(host: Host, sealed: Iterable[str]) -> dict[str, dict[str, str]]:
    """What systemd says of the units of interest and the `sealed` ones; empty and unknown without systemd."""
    if not host.exists("/run/systemd/system") or not host.live:
        host.unknown(
            "services",
            "systemd does not run here" if host.live else "services of a tree that does not run have no state",
        )
        return {}
    known = list(UNITS) + sorted(set(sealed) - set(UNITS))
    # Each unit costs systemd a millisecond, also one that it does not know: these are not asked for.
    units = [unit for unit in known if has_file(host, unit)]
    found: dict[str, dict[str, str]] = {unit: dict(_NOT_FOUND) for unit in known if unit not in units}
    if not units:
        return found
    result = host.run(["systemctl", "show", "--no-pager", "--property=" + _PROPERTIES, *units])
    shown = parse_show(result.out, units) if result.ok else {}
    if not shown:
        host.unknown(
            "services",
            result.error
            or "systemctl show failed: " + (result.err.strip()[-200:] or "it answered for other units than asked"),
        )
        return {}
    return {**found, **shown}


def observe(shown: Mapping[str, Mapping[str, str]]) -> dict[str, Service]:
    """The part `services`. A unit that does not exist is inactive and "not-found"."""
    seen: dict[str, Service] = {}
    for unit, fields in shown.items():
        missing = fields.get("LoadState") == "not-found"
        seen[unit] = {
            "active": fields.get("ActiveState") or None,
            "enabled": "not-found" if missing else fields.get("UnitFileState") or None,
        }
    return seen
