# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is written for a server of metrics: drop-ins of the units, configurations, secrets, rules and dashboards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import (
    ALERTMANAGER,
    PREFIX,
    PROGRAMS,
    PROMETHEUS,
    Program,
)

from ...model.stack import MonitoringServer, Receiver
from ...model.work import File
from ...monitoring import alertmanager, prometheus
from ...monitoring.alerts import SEVERITIES

#: Where the programs keep what they have: below it in a directory of its own, since a purge of the packages takes theirs away.
DATA = "/var/lib/prometheus"
_OWN = "gpuwright"
PLACES = prometheus.Places(rules=f"{PREFIX}alerts.yml", targets=f"{PREFIX}targets-", secrets=f"{PREFIX}secret-")
_SHARED = Path(__file__).parents[2] / "monitoring"


class Written(File, total=False):
    """A file, and the command that has to find it right; %s is its place while it is judged."""

    validate: str


class Copied(TypedDict, total=False):
    """A file of the collection, from the directory of what a server gets."""

    src: str
    dest: str
    validate: str


class Secret(TypedDict):
    """A file with a secret, and where in the variables of the role that is."""

    path: str
    keys: list[str | int]


def paths(server: MonitoringServer) -> list[str]:
    """Return every file of a server."""
    return [
        *(program.drop_in for program in PROGRAMS.values()),
        *(secret["path"] for secret in secrets(server)),
        *(each["dest"] for each in copied()),
        *(each["path"] for each in texts(server)),
    ]


# ConditionPathExists: the packages start their units when they are installed, before there is anything to start them with. ExecStart:
# cleared first, as systemd wants it. The cluster's address is empty so that Alertmanager does not look for others, on every address.
_DROP_IN = """\
# Written by gpuwright (role monitoring_server). A change here is overwritten by the next run.
[Unit]
ConditionPathExists={configuration}

[Service]
StateDirectory={state}
ExecStart=
ExecStart={command}
"""


def drop_ins(server: MonitoringServer) -> list[File]:
    address = addresses.bracketed(server["address"])
    metrics = (
        f"/usr/bin/prometheus --config.file={PROMETHEUS.configuration} --storage.tsdb.path={DATA}/{_OWN}/metrics "
        f"--storage.tsdb.retention.time={server['days']}d --storage.tsdb.retention.size={server['size']} "
        f"--web.listen-address={address}:{server['port']}"
    )
    alerts = (
        f"/usr/bin/prometheus-alertmanager --config.file={ALERTMANAGER.configuration} --storage.path={DATA}/{_OWN}/alerts "
        f"--web.listen-address={address}:{server['alerts_port']} --cluster.listen-address="
    )
    return [_drop_in(PROMETHEUS, "metrics", metrics), _drop_in(ALERTMANAGER, "alerts", alerts)]


def _drop_in(program: Program, directory: str, command: str) -> File:
    state = f"prometheus/{_OWN}/{directory}"
    content = _DROP_IN.format(configuration=program.configuration, state=state, command=command)
    return File(path=program.drop_in, content=content, mode="0644")


def texts(server: MonitoringServer) -> list[Written]:
    """The configurations; what one of them names comes before it."""
    return [
        *(
            Written(path=PLACES.targets_of(kind), content=prometheus.targets_file(targets), mode="0644")
            for kind, targets in prometheus.kinds(server["targets"]).items()
        ),
        Written(
            path=PROMETHEUS.configuration,
            content=prometheus.configuration(server, PLACES),
            mode="0644",
            validate="promtool check config %s",
        ),
        Written(
            path=ALERTMANAGER.configuration,
            content=alertmanager.configuration(_told(server["receivers"])),
            mode="0644",
            validate="amtool check-config %s",
        ),
    ]


def _told(receivers: Sequence[Receiver]) -> alertmanager.Wish:
    return alertmanager.Wish(
        receivers={each["name"]: _receiver(each) for each in receivers},
        told={
            severity: names
            for severity in SEVERITIES
            if (names := [each["name"] for each in receivers if severity in each["severities"]])
        },
    )


def _receiver(receiver: Receiver) -> alertmanager.Receiver:
    file = PLACES.secret(receiver["name"]) if receiver["access"] else ""
    if receiver["kind"] == "mail":
        return alertmanager.Mail(
            to=tuple(receiver["to"]),
            sender=receiver["sender"],
            server=receiver["server"],
            user=receiver["user"] or "",
            password_file=file,
            require_tls=receiver["tls"],
        )
    if receiver["kind"] == "slack":
        return alertmanager.Slack(url_file=file, channel=receiver["channel"])
    return alertmanager.Webhook(url=receiver["url"], token_file=file)


def secrets(server: MonitoringServer) -> Iterator[Secret]:
    for receiver in server["receivers"]:
        if receiver["access"]:
            keys: list[str | int] = ["receivers", receiver["name"], receiver["kind"], receiver["access"]]
            yield {"path": PLACES.secret(receiver["name"]), "keys": keys}
    for number, row in enumerate(server["remote_write"]):
        if row["access"]:
            path = PLACES.secret(f"remote-write-{number}")
            yield {"path": path, "keys": ["remote_write", number, row["access"]]}
    if server["scrape"] and server["scrape"]["user"]:
        yield {"path": PLACES.secret("scrape"), "keys": ["scrape", "password"]}


def copied() -> list[Copied]:
    """The rules, and the dashboards for whoever has a Grafana: both have braces of their own, which no template may touch."""
    return [
        {"src": "alerts.yml", "dest": PLACES.rules, "validate": "promtool check rules %s"},
        *(
            Copied(src=f"dashboards/{path.name}", dest=f"{PREFIX}dashboard-{path.name}")
            for path in sorted((_SHARED / "dashboards").glob("*.json"))
        ),
    ]


@cache
def shared_digest() -> str:
    """What tells whether the collection has other rules or dashboards than those that were written."""
    digest = hashlib.sha256()
    for each in copied():
        digest.update((_SHARED / each["src"]).read_bytes())
    return digest.hexdigest()
