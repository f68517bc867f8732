# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exporters that gpuwright runs: the unit of each, its files, and how it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.work import File
from ...resolver.monitoring import UNIT

if TYPE_CHECKING:
    from ...model.stack import Exporter, MonitoringExporters

_UNITS = "/etc/systemd/system"
#: The programs of our own exporter, which import each other.
PROGRAMS = ("card_sample.py", "gpu_metrics.py", "gpu_exporter.py")
#: The one file of certificate and users, for every exporter, and how the copies are called that a service gets. A name alone is looked for
#: beside the file that has it.
WEB = f"{paths.SETTINGS}/web.yml"
_WEB_NAME, _CERTIFICATE, _KEY = "web.yml", "tls.crt", "tls.key"
#: Directories in /run.
_OF_GPU, _OF_NODE = "gpuwright-gpu-exporter", "gpuwright-node-exporter"
_WRITTEN = "# Written by gpuwright (role monitoring_exporters). A change here is overwritten by the next run.\n"
#: Whoever wrote the limits of the package's unit meant a machine that nobody asks at once.
_AGAIN = "Restart=always\nRestartSec=10\n"


@dataclass(frozen=True)
class Run:
    """An exporter that is ours. ``kind``: what it tells (gpu, node). ``file``: what makes its unit what it is."""

    kind: str
    port: int
    unit: str
    file: File
    programs: Sequence[str] = ()

    @property
    def files(self) -> list[str]:
        """All that is written for it alone."""
        return [self.file["path"], *(f"{paths.PROGRAMS}/{name}" for name in self.programs)]


def of(exporters: MonitoringExporters, kind: str) -> Exporter:
    """The exporter of a stack that tells this."""
    return exporters["gpu"] if kind == "gpu" else exporters["node"]


def ours(exporters: MonitoringExporters) -> list[Run]:
    """The exporters of a stack that nobody else runs."""
    return [run for run in (_gpu(exporters), _node(exporters)) if not of(exporters, run.kind)["adopted"]]


def is_secured(exporters: MonitoringExporters) -> bool:
    """Whether there is anything to say of who may read."""
    return bool(exporters["users"] or exporters["tls"])


def directory(unit: str) -> str:
    """Where drop-ins of a unit lie."""
    return f"{_UNITS}/{unit}.d"


def web(exporters: MonitoringExporters) -> dict[str, object]:
    """The file of certificate and users, without the hashes, in the format of Prometheus' exporter-toolkit."""
    if not exporters["tls"]:
        return {}
    return {"tls_server_config": {"cert_file": _CERTIFICATE, "key_file": _KEY}}


def _copies(exporters: MonitoringExporters, name: str) -> str:
    """What root copies for a service that is not root, at each of its starts, to a directory that is the service's alone and new each time.

    LoadCredential= does the same from systemd 247 on, and hands over nothing in some containers, without a word. The copies never go
    through a link (-C, the shell's noclobber): what has the service's user could have made one.
    """
    if not is_secured(exporters):
        return ""
    tls = exporters["tls"]
    files = {_WEB_NAME: WEB, **({_CERTIFICATE: tls["certificate"], _KEY: tls["key"]} if tls else {})}
    commands = "; ".join(f"cat {path} >{_copied(name, copy)}" for copy, path in files.items())
    return f"RuntimeDirectory={name}\nRuntimeDirectoryMode=0700\nExecStartPre=+/bin/sh -Ceuc 'umask 0333; {commands}'\n"


def _copied(name: str, copy: str) -> str:
    """Where a copy for a service lies."""
    return f"/run/{name}/{copy}"


def _place(exporters: MonitoringExporters, port: int) -> str:
    address = exporters["address"]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _gpu(exporters: MonitoringExporters) -> Run:
    port = exporters["gpu"]["port"]
    arguments = [f"--listen={_place(exporters, port)}"]
    if is_secured(exporters):
        arguments.append(f"--web-config={_copied(_OF_GPU, _WEB_NAME)}")
    content = _GPU.format(arguments=" ".join(arguments), copies=_copies(exporters, _OF_GPU))
    return Run("gpu", port, UNIT, File(path=f"{_UNITS}/{UNIT}", content=content, mode="0644"), PROGRAMS)


def _node(exporters: MonitoringExporters) -> Run:
    node = exporters["node"]
    arguments = [
        f"--web.listen-address={_place(exporters, node['port'])}",
        f"--collector.textfile.directory={node['textfiles']}",
    ]
    if is_secured(exporters):
        arguments.append(f"{node['flag']}={_copied(_OF_NODE, _WEB_NAME)}")
    content = _NODE.format(program=node["program"], arguments=" ".join(arguments), copies=_copies(exporters, _OF_NODE))
    path = f"{directory(node['unit'])}/{paths.DROP_IN}"
    return Run("node", node["port"], node["unit"], File(path=path, content=content, mode="0644"))


# What nvidia-smi needs is left open: the devices, and /proc/driver/nvidia. TimeoutStopSec: what hangs in the kernel gets no signal, so
# nobody waits for it.
_GPU = f"""\
{_WRITTEN}[Unit]
Description=Metrics of the NVIDIA cards for Prometheus
Documentation=https://github.com/NVIDIA/dcgm-exporter
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart=/usr/bin/python3 {paths.PROGRAMS}/gpu_exporter.py {{arguments}}
{{copies}}{_AGAIN}DynamicUser=yes
Nice=10
TimeoutStartSec=60
TimeoutStopSec=5
UMask=0077
CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectKernelModules=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""

# An empty ExecStart takes the package's own away, which listens on every address.
_NODE = f"""\
{_WRITTEN}[Service]
ExecStart=
ExecStart={{program}} {{arguments}}
{{copies}}{_AGAIN}"""
