# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a wish and a stack have of the server of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

#: Its key of a stack.
NAME = "monitoring_server"


class RemoteWrite(TypedDict):
    """Server that the metrics are sent on to."""

    url: str
    user: str | None
    access: str | None
    """password or token, which is in a file of its own; None where it needs none"""


class _Receiver(TypedDict):
    name: str
    kind: str
    """mail, webhook or slack"""
    severities: list[str]
    access: str | None
    """What is in a file of its own: password, token or url; None where nothing is"""


class Receiver(_Receiver, total=False):
    """Who is told of alerts."""

    at: str
    """Host of the address of a webhook or of Slack; the rest of that is a secret"""
    channel: str
    """Of Slack"""
    to: list[str]
    """Addresses that mail is sent to"""
    sender: str
    server: str
    """Host and port that take mail"""
    user: str | None
    tls: bool


class ScrapeAccess(TypedDict):
    """How the server gets at exporters that ask for it."""

    user: str | None
    """User, whose password is in a file of its own"""
    ca: str | None
    """File on the server with the certificates that theirs are checked by; None for those that the system trusts"""


class Grafana(TypedDict):
    """Grafana beside the server."""

    port: int
    password: bool
    """Whether the wish has one for its admin; else it is made on the machine"""


class ServerSettings(TypedDict):
    """Server of metrics, as it is wished."""

    address: str
    port: int
    alerts_port: int
    """Port of Alertmanager"""
    days: int
    size: str
    """Most that the metrics take on the disk, as Prometheus writes it"""
    remote_write: list[RemoteWrite]
    receivers: list[Receiver]
    scrape: ScrapeAccess | None
    grafana: Grafana | None
    """None where none is wished, and where somebody else's is there"""


class Target(TypedDict):
    """Exporter that is asked."""

    host: str
    """Name in the inventory"""
    job: str
    """gpu or node"""
    address: str
    """With the port"""
    tls: bool
    password: bool


class MonitoringServer(ServerSettings):
    """Server of metrics."""

    packages: list[str]
    targets: list[Target]


def of(stack: Mapping[str, object]) -> MonitoringServer:
    """Return what a stack has of it. Raises KeyError where it has nothing."""
    return cast("MonitoringServer", stack[NAME])
