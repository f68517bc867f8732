"""Exporters of simulated nodes: node_exporter of the archive, twice.

The one of the machine reads gpuwright's textfile, the one of the cards stands in for dcgm-exporter: it tells the same names and labels
(etc/default-counters.csv of dcgm-exporter, and plugins/plugin_utils/monitoring/metrics.py) from a file that a test changes.
"""

from __future__ import annotations

import re
import shlex
import time

from tests.unit.monitoring import series

from .conftest import Node

_DIRECTORIES = {"gpu": "/var/lib/test-cards", "node": "/var/lib/gpuwright/metrics"}
_PORTS = {"gpu": 9400, "node": 9100}
_UNIT = """\
[Service]
ExecStart=/usr/bin/prometheus-node-exporter {arguments} --collector.textfile.directory={directory} --web.listen-address={address}:{port}
"""
_ARGUMENTS = {"gpu": "--collector.disable-defaults --collector.textfile --web.disable-exporter-metrics", "node": ""}
_LABEL = re.compile(r'(?:host|job|instance)="[^"]*",?')


def install(machine: Node, address: str) -> None:
    """Bring both to a node, where they listen on an address of it."""
    # Before the package, whose unit listens on every address as soon as it is installed.
    machine.shell("systemctl mask prometheus-node-exporter.service")
    machine.shell("apt-get -qq update && apt-get -qqy --no-install-recommends install prometheus-node-exporter")
    for job, directory in _DIRECTORIES.items():
        unit = _UNIT.format(arguments=_ARGUMENTS[job], directory=directory, address=address, port=_PORTS[job])
        write(machine, f"/etc/systemd/system/test-{job}-exporter.service", unit)
        machine.shell(f"mkdir -p {directory}")
    say(machine, healthy(machine.name))
    machine.shell("systemctl daemon-reload && systemctl start test-gpu-exporter test-node-exporter")


def write(machine: Node, path: str, text: str) -> None:
    """Put a text into a file of a node, whole at once."""
    machine.shell(f"printf %s {shlex.quote(text)} > {path}.new && mv {path}.new {path}")


def healthy(host: str) -> dict[str, float]:
    """What the exporters of a machine with two cards tell that is well, without what node_exporter measures itself."""
    now = time.time()
    moments = {
        "gpuwright_watch_timestamp_seconds": now,
        "gpuwright_proof_timestamp_seconds": now,
        "gpuwright_driver_end_of_life_timestamp_seconds": now + 500 * 86400,
    }
    told = {
        _LABEL.sub("", name).replace(",}", "}"): values[-1] or 0
        for name, values in series.node(host, 1).items()
        # These nodes have the boot time of the machine that they run on: their Xids would be new for a day.
        if name.startswith(("DCGM_", "gpuwright_")) and not name.startswith("gpuwright_xid_total")
    }
    return {name: moments.get(name.partition("{")[0], value) for name, value in told.items()}


def say(machine: Node, told: dict[str, float]) -> None:
    """Have the exporters of a node tell this from now on."""
    for job, directory in _DIRECTORIES.items():
        lines = [
            f"{name.replace('{}', '')} {value!r}"
            for name, value in told.items()
            if name.startswith("DCGM_") == (job == "gpu")
        ]
        write(machine, f"{directory}/gpuwright.prom", "\n".join(sorted(lines)) + "\n")
