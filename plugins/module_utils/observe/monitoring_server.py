# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server of metrics of this machine: whether its programs run by what was written for them, and which exporters answer it.

They are asked where their units say that they listen. A file counts as read where the program read its configuration after the file was
written: what a program says of its configuration is another text than the file's. Grafana reads the files that make it ours when it starts.
"""

from __future__ import annotations

import base64
import json
import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Pattern, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses, paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        MetricsServer,
        MetricsTarget,
        ServerProgram,
    )

#: What the names of all files of the server begin with.
PREFIX = paths.SETTINGS + "/monitoring-server-"
#: Where the dashboards are, and nothing else: Grafana takes every file of its kind there for one.
DASHBOARDS = paths.SETTINGS + "/dashboards"


#: Who may see and silence alerts.
USER = "gpuwright"


class Program(NamedTuple):
    """One of them: its unit, the files that it reads, where its unit says that it listens (address and port), and what its metrics of
    their reading begin with; None where it reads them when it starts, and never again. ``password``: the file with that of :data:`USER`,
    where it asks for one.
    """

    unit: str
    files: Tuple[str, ...]
    listens: Pattern[str]
    metrics: Optional[str] = None
    password: Optional[str] = None

    @property
    def drop_in(self) -> str:
        """What changes its unit."""
        return f"/etc/systemd/system/{self.unit}.d/gpuwright.conf"

    @property
    def configuration(self) -> str:
        """The file that it is started with."""
        return self.files[0]


_LISTENS = re.compile(r"--web\.listen-address=(\S+):(\d+)")
PROMETHEUS = Program(
    "prometheus.service", (PREFIX + "prometheus.yml", PREFIX + "alerts.yml"), _LISTENS, "prometheus_config_last_reload_"
)
ALERTMANAGER = Program(
    "prometheus-alertmanager.service",
    (PREFIX + "alertmanager.yml",),
    _LISTENS,
    "alertmanager_config_last_reload_",
    PREFIX + "alerts-password",
)
#: Those of every server.
PROGRAMS = {"prometheus": PROMETHEUS, "alertmanager": ALERTMANAGER}
#: Beside them where it is wished. Its package makes the directories that these files lie in.
GRAFANA = Program(
    "grafana-server.service",
    ("/etc/grafana/provisioning/datasources/gpuwright.yaml", "/etc/grafana/provisioning/dashboards/gpuwright.yaml"),
    re.compile(r"GF_SERVER_HTTP_ADDR=(\S+) GF_SERVER_HTTP_PORT=(\d+)"),
)

_VALUE = re.compile(r"^(\w+) ([0-9.eE+-]+)$", re.MULTILINE | re.ASCII)
_SECONDS = 5
_MOST_BYTES = 8 * 1024 * 1024
_MOST_TARGETS = 5000
_LONGEST = 300
#: An address (host:port) and a path → what is answered there. Raises OSError or ValueError.
Ask = Callable[[str, str], str]


def observe(host: Host, ask: Optional[Ask] = None) -> Optional[MetricsServer]:
    """What is there of a server that gpuwright set up, or began to; None where nothing is."""
    files = [*host.glob(PREFIX + "*"), *host.glob(DASHBOARDS + "/*")]
    drop_ins = [program.drop_in for program in there(host)]
    if not host.live or not (files or drop_ins):
        return None
    how = ask or _http
    grafana = [path for path in (GRAFANA.drop_in, *GRAFANA.files) if host.exists(path)]
    return {
        "files": files + grafana,
        "prometheus": look(host, PROMETHEUS, ask),
        "alertmanager": look(host, ALERTMANAGER, ask),
        "grafana": look(host, GRAFANA, ask) if GRAFANA.drop_in in drop_ins else None,
        "targets": _targets(host, how),
    }


def there(host: Host) -> List[Program]:
    """The programs whose units are ours."""
    return [program for program in (*PROGRAMS.values(), GRAFANA) if host.exists(program.drop_in)]


def look(host: Host, program: Program, ask: Optional[Ask] = None) -> ServerProgram:
    """Whether a program answers, was started since its unit was written, and has read its files since they were."""
    address = _address(host, program)
    if address is None:
        return {"answers": False, "started": None, "loaded": None, "problem": None}
    try:
        told = parse_metrics((ask or _asking(host, program))(address, "/metrics"))
    except (OSError, ValueError) as error:
        return {"answers": False, "started": None, "loaded": None, "problem": _short(error)}
    begun = told.get("process_start_time_seconds")
    if program.metrics is None:
        started = _since(host, begun, (program.drop_in, *program.files))
        return {"answers": True, "started": started, "loaded": started, "problem": None}
    good = told.get(program.metrics + "successful") == 1
    return {
        "answers": True,
        "started": _since(host, begun, (program.drop_in,)),
        "loaded": good and _since(host, told.get(program.metrics + "success_timestamp_seconds"), program.files),
        "problem": None if good else "it rejected its configuration",
    }


class Due(TypedDict):
    """What a program's unit is to be brought to: started, restarted or reloaded; None where it runs by what was written."""

    unit: str
    state: Optional[str]
    problem: Optional[str]


def due(host: Host, program: Program, ask: Optional[Ask] = None) -> Due:
    """What is left to do so that a program runs by what was written for it."""
    if host.run(["systemctl", "is-active", "--quiet", program.unit]).rc != 0:
        return {"unit": program.unit, "state": "started", "problem": None}
    seen = look(host, program, ask)
    state = None if seen["loaded"] else "reloaded"
    if not (seen["answers"] and seen["started"]):
        state = "restarted"
    return {"unit": program.unit, "state": state, "problem": seen["problem"]}


def _targets(host: Host, ask: Ask) -> Optional[List[MetricsTarget]]:
    """Every exporter that Prometheus asks, and whether it answered; None where Prometheus does not say."""
    address = _address(host, PROMETHEUS)
    try:
        return None if address is None else parse_targets(ask(address, "/api/v1/targets?state=active"))
    except (OSError, ValueError):
        return None


def parse_targets(text: str) -> List[MetricsTarget]:
    """The targets of an answer of Prometheus (/api/v1/targets). Raises ValueError for another text."""
    try:
        return [
            {
                "host": str(row["labels"].get("host", "")),
                "job": str(row["labels"].get("job", "")),
                "health": str(row["health"]),
                "error": _short(row.get("lastError") or ""),
            }
            for row in json.loads(text)["data"]["activeTargets"][:_MOST_TARGETS]
        ]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no answer of Prometheus: {error}") from None


def parse_metrics(text: str) -> Dict[str, float]:
    """The metrics without labels of a page for Prometheus that have a finite number. Raises ValueError for a number that is none.

    A number too large for a float would be later than the last change of any file.
    """
    told = {match.group(1): float(match.group(2)) for match in _VALUE.finditer(text)}
    return {name: value for name, value in told.items() if math.isfinite(value)}


def _short(text: object) -> Optional[str]:
    return " ".join(str(text).split())[:_LONGEST] or None


def _address(host: Host, program: Program) -> Optional[str]:
    """Where a program is asked on its own machine; None where its unit does not say."""
    match = program.listens.search(host.read(program.drop_in) or "")
    if match is None:
        return None
    address, port = match.groups()
    return f"{addresses.bracketed(addresses.within(address.strip('[]')))}:{port}"


def _since(host: Host, when: Optional[float], files: Tuple[str, ...]) -> bool:
    """Whether a moment is after the last change of all files that are there."""
    found = [host.stat(path) for path in files]
    return when is not None and all(when >= each.st_mtime for each in found if each is not None)


def _asking(host: Host, program: Program) -> Ask:
    """How a program is asked that may want a password; of its file root alone, and the program, knows it."""
    password = (host.read(program.password) or "").strip() if program.password else ""
    if not password:
        return _http
    word = base64.b64encode(f"{USER}:{password}".encode()).decode()
    return lambda address, path: _http(address, path, {"Authorization": f"Basic {word}"})


def _http(address: str, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> str:
    # Imported here: most machines are no server of metrics.
    import http.client

    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise ValueError(repr(error)) from None
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"HTTP status {answer.status}")
    return text
