# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exporters that gpuwright runs: the unit of each, its files, and how it is started.

systemd holds the port of each from the boot on, and hands it to the program (sd_listen_fds(3)): while that is stopped nobody else gets the
port, and with it the password that the server of metrics sends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, paths

from ...model.work import File
from ..firewall import Opening
from .resolve import UNIT, dcgm

if TYPE_CHECKING:
    from .model import Dcgm, Exporter, MonitoringExporters

_UNITS = "/etc/systemd/system"
#: Our own exporter.
PROGRAM = f"{paths.PROGRAMS}/gpu_exporter.py"
#: The one file of certificate and users, for every exporter, and how the copies are called that a service gets. A name alone is looked for
#: beside the file that has it.
WEB = f"{paths.SETTINGS}/web.yml"
_WEB_NAME, _CERTIFICATE, _KEY = "web.yml", "tls.crt", "tls.key"
#: The fields of DCGM that its exporter is asked for.
FIELDS = f"{paths.SETTINGS}/dcgm-fields.csv"
_ASKED = Path(__file__).with_name("fields.csv")
#: As often as our own exporter samples; where the host engine listens (hostengine/src/HostEngineCommandLine.cpp).
_EVERY_MS = 15000
#: What starts programs of ours, where only the names of units and files are asked.
_PYTHON = "/usr/bin/python3"
#: The port of an exporter that only goes.
_GONE = 0
_ENGINE_AT = "127.0.0.1:5555"
#: Directories in /run.
_OF_GPU, _OF_NODE = "gpuwright-gpu-exporter", "gpuwright-node-exporter"
_COPIES = "/run/gpuwright-web"
#: Sockets in which systemd holds the ports, by what the service is.
SOCKETS = ("gpuwright-gpu-exporter.socket", "gpuwright-dcgm-exporter.socket", "gpuwright-node-exporter.socket")
_SMI_SOCKET, _DCGM_SOCKET, _NODE_SOCKET = SOCKETS
#: node_exporter takes them since 1.5.0, which also gave this name to its option (its CHANGELOG); an older one opens its port itself.
_FLAG_WITH_SOCKETS = "--web.config.file"
_WRITTEN = "# Written by gpuwright (role monitoring_exporters). A change here is overwritten by the next run.\n"
#: Whoever wrote the limits of the package's unit meant a machine that nobody asks at once.
_AGAIN = "Restart=always\nRestartSec=10\n"


@dataclass(frozen=True)
class Run:
    """An exporter that is ours. ``kind``: what it tells (gpu, node). ``written``: the files that make its units what they are.
    ``program``: the one of ours that it is, None where it is a package's. ``needs``: other units that have to run for it.
    ``packages``: those that it comes with. ``socket``: the unit that holds its port, None where the program opens it itself.
    """

    kind: str
    port: int
    unit: str
    written: Sequence[File]
    program: str | None = None
    needs: Sequence[str] = ()
    packages: Sequence[str] = ()
    socket: str | None = None

    @property
    def files(self) -> list[str]:
        """All that is written for it alone."""
        return [*(file["path"] for file in self.written), *([self.program] if self.program else [])]

    @property
    def units(self) -> list[str]:
        """The units that have to run, in the order in which they begin."""
        return [*self.needs, *self.own]

    @property
    def own(self) -> list[str]:
        """Its own units, that of its port first: it goes first too, or whoever asks would start the other one again."""
        return [*([self.socket] if self.socket else []), self.unit]


def wished(exporters: MonitoringExporters) -> dict[str, Exporter]:
    """The exporters of a stack, by what they tell; that of the cards first, where there are cards."""
    cards = exporters["gpu"]
    return {**({"gpu": cards} if cards else {}), "node": exporters["node"]}


def ours(exporters: MonitoringExporters, python: str = _PYTHON) -> list[Run]:
    """The exporters of a stack that nobody else runs. ``python``: what programs of ours are started by."""
    cards, found = exporters["gpu"], [_node(exporters)]
    if cards:
        of_cards = (
            _dcgm(exporters, cards["port"], cards["dcgm"]) if cards["dcgm"] else _smi(exporters, cards["port"], python)
        )
        found.insert(0, of_cards)
    return [run for run in found if not wished(exporters)[run.kind]["adopted"]]


def others(exporters: MonitoringExporters) -> list[Run]:
    """What would be ours of the cards by a source that is not wished, or by any where there is no card: it has to go first."""
    cards = exporters["gpu"]
    if cards is None:
        return [_smi(exporters, _GONE), _dcgm(exporters, _GONE, None)]
    if cards["adopted"]:
        return []
    return [_smi(exporters, cards["port"]) if cards["dcgm"] else _dcgm(exporters, cards["port"], None)]


def openings(exporters: MonitoringExporters) -> list[Opening]:
    """What the machine's firewall lets in: the networks that are wished, to the exporters that nobody else runs."""
    return [Opening(network, "tcp", str(run.port)) for network in exporters["firewall"] for run in ours(exporters)]


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
    """What root copies for a service that is not root, at each of its starts: files that this service alone reads, in a directory in which
    root alone writes. In one of the service's own (RuntimeDirectory=) its user could lay a link or a pipe in their way; that one only tells
    which user it is, whom systemd may have made for this start (DynamicUser=).

    LoadCredential= does the same from systemd 247 on, and hands over nothing in some containers, without a word.
    """
    if not is_secured(exporters):
        return ""
    tls = exporters["tls"]
    files = {_WEB_NAME: WEB, **({_CERTIFICATE: tls["certificate"], _KEY: tls["key"]} if tls else {})}
    place = _copied(name)
    commands = [
        f"user=$$(stat -c %%u /run/{name})",
        f"rm -rf {place}",
        f"install -d -m 0711 {_COPIES} {place}",
        *(f"install -m 0400 -o $$user {path} {_copied(name, copy)}" for copy, path in files.items()),
    ]
    return (
        f"RuntimeDirectory={name}\nRuntimeDirectoryMode=0700\n"
        f"ExecStartPre=+/bin/sh -euc '{'; '.join(commands)}'\n"
        f"ExecStopPost=+/bin/rm -rf {place}\n"
    )


def _copied(name: str, *copy: str) -> str:
    """Where the copies for a service lie, or one of them."""
    return "/".join((_COPIES, name, *copy))


def _place(exporters: MonitoringExporters, port: int) -> str:
    address = exporters["address"]
    return f"{addresses.bracketed(address)}:{port}"


def _socket(exporters: MonitoringExporters, socket: str, unit: str, port: int) -> File:
    """The unit that holds a port."""
    content = _SOCKET.format(place=_place(exporters, port), unit=unit)
    return File(path=f"{_UNITS}/{socket}", content=content, mode="0644")


def _smi(exporters: MonitoringExporters, port: int, python: str = _PYTHON) -> Run:
    arguments = [f"--listen={_place(exporters, port)}"]
    if is_secured(exporters):
        arguments.append(f"--web-config={_copied(_OF_GPU, _WEB_NAME)}")
    content = _GPU.format(python=python, arguments=" ".join(arguments), copies=_copies(exporters, _OF_GPU))
    written = [
        File(path=f"{_UNITS}/{UNIT}", content=content, mode="0644"),
        _socket(exporters, _SMI_SOCKET, UNIT, port),
    ]
    return Run("gpu", port, UNIT, written, PROGRAM, socket=_SMI_SOCKET)


def _dcgm(exporters: MonitoringExporters, port: int, brought: Dcgm | None) -> Run:
    arguments = [
        f"--collectors={FIELDS}",
        "--web-systemd-socket",
        f"--collect-interval={_EVERY_MS}",
        # One host engine for all who ask, and not a second one in the exporter: the counters of a card have one collector.
        f"--remote-hostengine-info={_ENGINE_AT}",
    ]
    if is_secured(exporters):
        arguments.append(f"--web-config-file={_copied(_OF_GPU, _WEB_NAME)}")
    content = _DCGM.format(arguments=" ".join(arguments), copies=_copies(exporters, _OF_GPU))
    files = [
        File(path=FIELDS, content=_WRITTEN + _fields(profiling=bool(brought and brought["profiling"])), mode="0644"),
        File(path=f"{directory(dcgm.UNIT)}/{paths.DROP_IN}", content=content, mode="0644"),
        _socket(exporters, _DCGM_SOCKET, dcgm.UNIT, port),
    ]
    # Somebody else's host engine is asked, and left as it is.
    if brought is None or brought["profiling"]:
        files.append(File(path=f"{directory(dcgm.ENGINE)}/{paths.DROP_IN}", content=_ENGINE, mode="0644"))
    packages = brought["packages"] if brought else ()
    return Run("gpu", port, dcgm.UNIT, files, needs=[dcgm.ENGINE], packages=packages, socket=_DCGM_SOCKET)


def _fields(*, profiling: bool) -> str:
    """What dcgm-exporter is asked for."""
    lines = _ASKED.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if profiling or not line.startswith("DCGM_FI_PROF_"))


def _node(exporters: MonitoringExporters) -> Run:
    node = exporters["node"]
    socket = _NODE_SOCKET if node["flag"] == _FLAG_WITH_SOCKETS else None
    arguments = [
        "--web.systemd-socket" if socket else f"--web.listen-address={_place(exporters, node['port'])}",
        f"--collector.textfile.directory={node['textfiles']}",
    ]
    if is_secured(exporters):
        arguments.append(f"{node['flag']}={_copied(_OF_NODE, _WEB_NAME)}")
    content = _NODE.format(
        program=node["program"],
        arguments=" ".join(arguments),
        copies=_copies(exporters, _OF_NODE),
        sockets=f"Sockets={socket}\n" if socket else "",
    )
    written = [File(path=f"{directory(node['unit'])}/{paths.DROP_IN}", content=content, mode="0644")]
    if socket:
        written.append(_socket(exporters, socket, node["unit"], node["port"]))
    return Run("node", node["port"], node["unit"], written, packages=[node["package"]], socket=socket)


# An address may come later than the port is held: from a network that is not up yet.
_SOCKET = f"""\
{_WRITTEN}[Unit]
Description=The port of {{unit}}

[Socket]
ListenStream={{place}}
FreeBind=yes
Service={{unit}}

[Install]
WantedBy=sockets.target
"""

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
Sockets={_SMI_SOCKET}
ExecStart={{python}} {PROGRAM} {{arguments}}
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

# That it is there says whose engine it is.
_ENGINE = f"""\
{_WRITTEN}[Service]
{_AGAIN}"""

# As the node's below. The package's own writes its log to a file that nobody rotates.
_DCGM = f"""\
{_WRITTEN}[Unit]
Requires={dcgm.ENGINE}

[Service]
Sockets={_DCGM_SOCKET}
ExecStart=
ExecStart=/usr/bin/dcgm-exporter {{arguments}}
{{copies}}{_AGAIN}StandardOutput=journal
StandardError=journal
"""

# An empty ExecStart takes the package's own away, which listens on every address.
_NODE = f"""\
{_WRITTEN}[Service]
{{sockets}}ExecStart=
ExecStart={{program}} {{arguments}}
{{copies}}{_AGAIN}"""
