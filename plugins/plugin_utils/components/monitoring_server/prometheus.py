# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prometheus' configuration, its files of targets, and the commands of its units; written for Prometheus 2.31 (Ubuntu 22.04) and newer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import USER

if TYPE_CHECKING:
    from .model import MonitoringServer, RemoteWrite, ScrapeAccess, Target

_HEAD = "---\n# Written by gpuwright (role monitoring_server). A change here is overwritten by the next run.\n"


class Places(NamedTuple):
    """Where the files of a server lie."""

    rules: str
    targets: str
    """What the names of the files of targets begin with"""
    secrets: str
    """What the names of the files of secrets begin with"""
    alerts_password: str

    def targets_of(self, kind: Kind) -> str:
        """Return the file of the targets that are asked in one way."""
        return f"{self.targets}{kind.name}.json"

    def secret(self, name: str) -> str:
        """Return the file of a secret."""
        return f"{self.secrets}{name}"


class Kind(NamedTuple):
    """Targets that are asked in one way: Prometheus says of a job, and of no target, how it gets in."""

    tls: bool
    password: bool

    @property
    def name(self) -> str:
        """The name of its file, and of its job, whose label each target replaces by its own."""
        return ("tls" if self.tls else "plain") + ("-password" if self.password else "")


def kinds(targets: Iterable[Target]) -> dict[Kind, list[Target]]:
    """Return the targets by how they are asked."""
    found: dict[Kind, list[Target]] = {}
    for target in targets:
        found.setdefault(Kind(target["tls"], target["password"]), []).append(target)
    return dict(sorted(found.items()))


def targets_file(targets: Sequence[Target]) -> str:
    """Return a file for the discovery of targets: a host that joins or leaves is one entry more or less."""
    entries = [
        {"targets": [target["address"]], "labels": {"host": target["host"], "job": target["job"]}} for target in targets
    ]
    return json.dumps(entries, indent=1) + "\n"


def configuration(server: MonitoringServer, places: Places) -> str:
    """Return prometheus.yml."""
    document = {
        "global": {"scrape_interval": "15s", "scrape_timeout": "10s"},
        "rule_files": [places.rules],
        "alerting": {
            "alertmanagers": [
                {
                    "basic_auth": {"username": USER, "password_file": places.alerts_password},
                    "static_configs": [
                        {
                            "targets": [
                                f"{addresses.bracketed(addresses.within(server['address']))}:{server['alerts_port']}"
                            ]
                        }
                    ],
                }
            ]
        },
        "scrape_configs": [_job(kind, server["scrape"], places) for kind in kinds(server["targets"])],
        **_remote_writes(server["remote_write"], places),
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=150)
    return _HEAD + text


def _job(kind: Kind, access: ScrapeAccess | None, places: Places) -> Mapping[str, object]:
    return {
        "job_name": kind.name,
        **({"scheme": "https"} if kind.tls else {}),
        **({"tls_config": {"ca_file": access["ca"]}} if kind.tls and access and access["ca"] else {}),
        **(
            {"basic_auth": {"username": access["user"], "password_file": places.secret("scrape")}}
            if kind.password and access and access["user"]
            else {}
        ),
        "file_sd_configs": [{"files": [places.targets_of(kind)]}],
    }


def _remote_writes(rows: Sequence[RemoteWrite], places: Places) -> Mapping[str, object]:
    return {"remote_write": [_remote_write(row, number, places) for number, row in enumerate(rows)]} if rows else {}


def _remote_write(row: RemoteWrite, number: int, places: Places) -> Mapping[str, object]:
    file = places.secret(f"remote-write-{number}")
    if row["access"] == "password":
        return {"url": row["url"], "basic_auth": {"username": row["user"], "password_file": file}}
    if row["access"] == "token":
        return {"url": row["url"], "authorization": {"credentials_file": file}}
    return {"url": row["url"]}
