# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the exporters of metrics."""

from __future__ import annotations

from typing import TypedDict


class Pair(TypedDict):
    """Certificate and its key: paths on the node."""

    certificate: str
    key: str


class Dcgm(TypedDict):
    """DCGM and its exporter, which go together."""

    version: str
    exporter: str
    packages: list[str]
    profiling: bool
    """Whether fields of the profiling module are asked for"""


class Exporter(TypedDict):
    """What tells the metrics of the cards, or of the machine."""

    source: str
    """How it gets them (dcgm, smi, node_exporter)"""
    port: int
    adopted: str | None
    """Who runs it, where that is somebody else: it is left as it is"""


class CardExporter(Exporter):
    """Exporter of the cards."""

    dcgm: Dcgm | None
    """Where it is NVIDIA's"""


class NodeExporter(Exporter):
    """Exporter of the machine, as a repository has it."""

    package: str
    repository: str | None
    """Package source besides the system's own"""
    unit: str
    program: str
    textfiles: str
    """Where it finds metrics of others"""
    flag: str
    """Its option for the file of certificate and users"""


class MonitoringExporters(TypedDict):
    """Exporters of metrics for Prometheus."""

    address: str
    gpu: CardExporter | None
    """None on a machine without a card"""
    node: NodeExporter
    tls: Pair | None
    users: dict[str, str]
    """Who may read, with a fingerprint of the hash of each password; everybody where there are none"""
    firewall: list[str]
    """Networks for which the machine's firewall is opened"""


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    monitoring_exporters: MonitoringExporters
