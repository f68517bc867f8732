# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is written for a server of metrics: drop-ins of the units, configurations, secrets, rules and dashboards; and for Grafana."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import (
    ALERTMANAGER,
    DASHBOARDS,
    GRAFANA,
    PREFIX,
    PROGRAMS,
    PROMETHEUS,
    USER,
    Program,
)

from ...model.work import Blank, File
from ...monitoring.severities import SEVERITIES
from . import alertmanager, prometheus, provisioning
from .model import Grafana, MonitoringServer, Receiver

#: Where the programs keep what they have: below it in a directory of its own, since a purge of the packages takes theirs away.
DATA = "/var/lib/prometheus"
_OWN = "gpuwright"
PLACES = prometheus.Places(
    rules=f"{PREFIX}alerts.yml",
    targets=f"{PREFIX}targets-",
    secrets=f"{PREFIX}secret-",
    alerts_password=str(ALERTMANAGER.password),
)
#: What Alertmanager lets in, in the format of Prometheus' exporter-toolkit.
_WEB = f"{PREFIX}alerts-web.yml"
_SHARED = Path(__file__).parents[2] / "monitoring"
#: The groups of those who read what is not everybody's: both programs of every server, and Grafana.
_GROUP, _GRAFANAS_GROUP = "prometheus", "grafana"
#: The password of Grafana's admin, in a file that root and Grafana alone read.
ADMINS_PASSWORD = f"{PREFIX}grafana-password"
#: Where Grafana keeps its users, and what sets the password of one who is there already (packaging/wrappers/grafana-cli of Grafana has
#: the same options): from its settings Grafana takes it at its first start alone.
_DATABASE = "/var/lib/grafana/grafana.db"
_SETS_PASSWORD = (
    "runuser", "-u", "grafana", "--", "/usr/share/grafana/bin/grafana", "cli", "--homepath=/usr/share/grafana",
    "--config=/etc/grafana/grafana.ini", "--configOverrides=cfg:default.paths.data=/var/lib/grafana", "admin", "reset-admin-password",
    "--password-from-stdin",
)  # fmt: skip


class Written(File, total=False):
    """A file, the group that it is of, root's where none is told, and the command that has to find it right; %s is its place while it is
    judged.
    """

    group: str
    validate: str


class Private(Written):
    """A file that only its group reads, since what comes in the places of its marks is a secret."""

    secrets: list[Blank]


class Copied(TypedDict, total=False):
    """A file of the collection, from the directory of what a server gets."""

    src: str
    dest: str
    validate: str


class Secret(TypedDict):
    """A file with a secret, the group that reads it, and where in the variables of the role that is."""

    path: str
    group: str
    keys: list[str | int]


class Login(TypedDict):
    """The password that Alertmanager asks for: its file, the one with its hash that Alertmanager reads, who it is of, and the group that
    reads both.
    """

    path: str
    web: str
    user: str
    group: str


class Admin(TypedDict):
    """The password of Grafana's admin: its file and the group that reads it, whether the wish has it, where Grafana keeps what it knows of
    its users, and what tells it another one.
    """

    path: str
    group: str
    given: bool
    database: str
    command: list[str]


def programs(server: MonitoringServer) -> dict[str, Program]:
    """Return the programs of a server, by the words of the facts."""
    return {**PROGRAMS, "grafana": GRAFANA} if server["grafana"] else dict(PROGRAMS)


def admin(server: MonitoringServer) -> Admin | None:
    """Return what the password of Grafana's admin needs; None where there is no Grafana of ours."""
    beside = server["grafana"]
    if beside is None:
        return None
    return {
        "path": ADMINS_PASSWORD,
        "group": _GRAFANAS_GROUP,
        "given": beside["password"],
        "database": _DATABASE,
        "command": list(_SETS_PASSWORD),
    }


def login() -> Login:
    """Return what Alertmanager's password needs: on the loopback every user of the machine may reach it, and silence alerts."""
    return {"path": PLACES.alerts_password, "web": _WEB, "user": USER, "group": _GROUP}


def paths(server: MonitoringServer) -> list[str]:
    """Return every file of a server."""
    return [
        *(program.drop_in for program in programs(server).values()),
        *(PLACES.alerts_password, _WEB),
        *(secret["path"] for secret in secrets(server)),
        *([ADMINS_PASSWORD] if server["grafana"] else []),
        *(each["dest"] for each in copied()),
        *(each["path"] for each in (private(server), *texts(server))),
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
        f"--web.listen-address={address}:{server['alerts_port']} --web.config.file={_WEB} --cluster.listen-address="
    )
    beside = [_grafanas(server["grafana"], server["address"])] if server["grafana"] else []
    return [_drop_in(PROMETHEUS, "metrics", metrics), _drop_in(ALERTMANAGER, "alerts", alerts), *beside]


def _drop_in(program: Program, directory: str, command: str) -> File:
    state = f"prometheus/{_OWN}/{directory}"
    content = _DROP_IN.format(configuration=program.configuration, state=state, command=command)
    return File(path=program.drop_in, content=content, mode="0644")


# The unit stays its package's; what is set here wins over grafana.ini, which stays as it is. Grafana puts the text of a file in the place
# of $__file{...} (pkg/setting/expanders.go), and tells its maker nothing.
_GRAFANAS_DROP_IN = """\
# Written by gpuwright (role monitoring_server). A change here is overwritten by the next run.
[Service]
Environment=GF_SERVER_HTTP_ADDR={address} GF_SERVER_HTTP_PORT={port}
Environment=GF_SECURITY_ADMIN_PASSWORD=$__file{{{password}}}
Environment=GF_USERS_ALLOW_SIGN_UP=false GF_AUTH_ANONYMOUS_ENABLED=false
Environment=GF_ANALYTICS_REPORTING_ENABLED=false GF_ANALYTICS_CHECK_FOR_UPDATES=false GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES=false
Environment=GF_METRICS_ENABLED=true
"""


def _grafanas(beside: Grafana, address: str) -> File:
    content = _GRAFANAS_DROP_IN.format(address=address, port=beside["port"], password=ADMINS_PASSWORD)
    return File(path=GRAFANA.drop_in, content=content, mode="0644")


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
        *(_provisions(server) if server["grafana"] else ()),
    ]


def private(server: MonitoringServer) -> Private:
    """Alertmanager's configuration: the address of a webhook is a secret, and releases before 0.26 take it from no other file."""
    blanks: list[Blank] = [
        {"mark": _mark(each["name"]), "keys": ["receivers", each["name"], "webhook", "url"]}
        for each in server["receivers"]
        if each["kind"] == "webhook"
    ]
    return Private(
        path=ALERTMANAGER.configuration,
        content=alertmanager.configuration(_told(server["receivers"])),
        mode="0640",
        group=_GROUP,
        validate="amtool check-config %s",
        secrets=blanks,
    )


def _mark(name: str) -> str:
    """YAML has it in quotes, which no address may have in it."""
    return f"@{name}@"


def _provisions(server: MonitoringServer) -> Iterator[Written]:
    """What Grafana reads; its package has everything below /etc/grafana so that its group reads it, and nobody else."""
    provided = (provisioning.data_source(server), provisioning.dashboards(DASHBOARDS))
    for path, content in zip(GRAFANA.files, provided, strict=True):
        yield Written(path=path, content=content, mode="0640", group=_GRAFANAS_GROUP)


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
    return alertmanager.Webhook(url=_mark(receiver["name"]), token_file=file)


def secrets(server: MonitoringServer) -> Iterator[Secret]:
    for receiver in server["receivers"]:
        if receiver["access"]:
            keys: list[str | int] = ["receivers", receiver["name"], receiver["kind"], receiver["access"]]
            yield {"path": PLACES.secret(receiver["name"]), "group": _GROUP, "keys": keys}
    for number, row in enumerate(server["remote_write"]):
        if row["access"]:
            path = PLACES.secret(f"remote-write-{number}")
            yield {"path": path, "group": _GROUP, "keys": ["remote_write", number, row["access"]]}
    if server["scrape"] and server["scrape"]["user"]:
        yield {"path": PLACES.secret("scrape"), "group": _GROUP, "keys": ["scrape", "password"]}


def copied() -> list[Copied]:
    """The rules, and the dashboards for Grafana, whoever has it: both have braces of their own, which no template may touch."""
    return [
        {"src": "alerts.yml", "dest": PLACES.rules, "validate": "promtool check rules %s"},
        *(
            Copied(src=f"dashboards/{path.name}", dest=f"{DASHBOARDS}/{path.name}")
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
