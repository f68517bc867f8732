"""What is seen of a server of metrics, from what its programs say of themselves."""

from __future__ import annotations

import base64
import http.server
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import monitoring_server as server

WRITTEN = 1000.0
#: As Prometheus 2.53 of Debian 13 answers, shortened.
METRICS = """\
# HELP prometheus_config_last_reload_successful Whether the last configuration reload attempt was successful.
# TYPE prometheus_config_last_reload_successful gauge
prometheus_config_last_reload_successful {successful}
prometheus_config_last_reload_success_timestamp_seconds {loaded}
process_start_time_seconds {started}
go_memstats_alloc_bytes 5.4321e+07
prometheus_http_requests_total{{code="200",handler="/metrics"}} 3
"""
TARGETS = """{"status":"success","data":{"activeTargets":[
 {"labels":{"host":"gpu1","job":"gpu","instance":"10.0.0.1:9400"},"health":"up","lastError":""},
 {"labels":{"host":"gpu2","job":"node"},"health":"down","lastError":"Get \\"http://10.0.0.2:9100/metrics\\": connection refused"}]}}"""


class Machine(Host):
    """This machine, with the files of the server below a directory of a test, and the state of its units."""

    def __init__(self, root: Path, *, active: bool = True) -> None:
        super().__init__(runner=lambda argv, **_: Result(0 if active else 3, "", "", 0.0, None))
        self._below = root

    def at(self, path: str) -> str:
        return str(self._below / path[1:])


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Machine]:
    def make(listens: str = "127.0.0.1:9090", *, active: bool = True) -> Machine:
        for program in server.PROGRAMS.values():
            for path in (program.drop_in, *program.files):
                file = tmp_path / path[1:]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"ExecStart=/usr/bin/prometheus --web.listen-address={listens} --x=")
                os.utime(file, (WRITTEN, WRITTEN))
        return Machine(tmp_path, active=active)

    return make


def saying(
    successful: int = 1, loaded: float | str = 1001.5, started: float | str = 1.0001e3
) -> Callable[[str, str], str]:
    def ask(_address: str, path: str) -> str:
        values = {"successful": successful, "loaded": loaded, "started": started}
        return TARGETS if path.startswith("/api") else METRICS.format(**values)

    return ask


def grafana(started: float) -> Callable[[str, str], str]:
    """As Grafana answers that began at a moment, and everybody else as Prometheus does."""

    def ask(address: str, path: str) -> str:
        return f"process_start_time_seconds {started}\n" if address.endswith(":3000") else saying()(address, path)

    return ask


@pytest.fixture
def beside(put: Callable[..., Machine], tmp_path: Path) -> Machine:
    """A server with a Grafana whose files were written at one moment."""
    machine = put()
    for path in (server.GRAFANA.drop_in, *server.GRAFANA.files, f"{server.DASHBOARDS}/fleet.json"):
        file = tmp_path / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Environment=GF_SERVER_HTTP_ADDR=:: GF_SERVER_HTTP_PORT=3000\n")
        os.utime(file, (WRITTEN, WRITTEN))
    return machine


@pytest.mark.parametrize(("started", "is_new"), [(1000.5, True), (999.5, False)])
def test_grafana_has_read_what_was_written_before_it_began(started: float, is_new: bool, beside: Machine) -> None:
    seen: Any = server.observe(beside, grafana(started))
    assert seen["grafana"] == {"answers": True, "started": is_new, "loaded": is_new, "problem": None}
    assert {server.GRAFANA.drop_in, *server.GRAFANA.files, f"{server.DASHBOARDS}/fleet.json"} <= set(seen["files"])
    state = None if is_new else "restarted"
    assert server.due(beside, server.GRAFANA, grafana(started)) == {
        "unit": "grafana-server.service",
        "state": state,
        "problem": None,
    }
    assert server.GRAFANA in server.there(beside)


@pytest.mark.parametrize("path", server.GRAFANA.files)
def test_grafana_has_not_read_a_file_that_was_written_since_it_began(
    path: str, beside: Machine, tmp_path: Path
) -> None:
    os.utime(tmp_path / path[1:], (WRITTEN + 1, WRITTEN + 1))
    assert server.due(beside, server.GRAFANA, grafana(1000.5))["state"] == "restarted"


def test_a_grafana_whose_unit_is_not_ours_is_nobodys_business(beside: Machine, tmp_path: Path) -> None:
    (tmp_path / server.GRAFANA.drop_in[1:]).unlink()
    assert server.GRAFANA not in server.there(beside)
    seen: Any = server.observe(beside, grafana(1000.5))
    assert seen["grafana"] is None


def refusing(_address: str, _path: str) -> str:
    raise ConnectionRefusedError(111, "Connection refused")


def test_a_machine_without_one_has_none_and_asks_nobody(tmp_path: Path) -> None:
    assert server.observe(Machine(tmp_path), refusing) is None


def test_programs_that_run_by_what_was_written_and_their_targets_are_told(put: Callable[..., Machine]) -> None:
    seen: Any = server.observe(put(), saying())
    assert seen["prometheus"] == {"answers": True, "started": True, "loaded": True, "problem": None}
    assert [(row["host"], row["job"], row["health"], row["error"]) for row in seen["targets"]] == [
        ("gpu1", "gpu", "up", None),
        ("gpu2", "node", "down", 'Get "http://10.0.0.2:9100/metrics": connection refused'),
    ]
    assert seen["files"] == sorted(path for each in server.PROGRAMS.values() for path in each.files)


@pytest.mark.parametrize(
    ("said", "state", "problem"),
    [
        (saying(), None, None),
        (saying(loaded=999.9), "reloaded", None),
        (saying(started=999.9), "restarted", None),
        (saying(loaded="1e999"), "reloaded", None),
        (saying(started="1e999"), "restarted", None),
        (saying(successful=0), "reloaded", "it rejected its configuration"),
        (refusing, "restarted", "[Errno 111] Connection refused"),
        (lambda _address, _path: "prometheus_config_last_reload_successful 1.2.3\n", "restarted", None),
    ],
)
def test_what_is_left_to_do_follows_from_what_a_program_says(
    said: Any, state: str | None, problem: str | None, put: Callable[..., Machine]
) -> None:
    due = server.due(put(), server.PROMETHEUS, said)
    assert (due["unit"], due["state"]) == ("prometheus.service", state)
    assert problem is None or due["problem"] == problem


def test_a_program_that_does_not_run_is_to_be_started(put: Callable[..., Machine]) -> None:
    assert server.due(put(active=False), server.ALERTMANAGER, refusing)["state"] == "started"


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("0.0.0.0:9090", "127.0.0.1:9090"), ("[::]:9090", "[::1]:9090"), ("10.0.0.5:81", "10.0.0.5:81")],
)
def test_it_is_asked_where_its_unit_says_that_it_listens(listens: str, asked: str, put: Callable[..., Machine]) -> None:
    asked_at = []

    def ask(address: str, path: str) -> str:
        asked_at.append(address)
        return saying()(address, path)

    server.look(put(listens), server.PROMETHEUS, ask)
    assert asked_at == [asked]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"data": 3}', '{"data": {"activeTargets": [3]}}', "<html>"])
def test_an_answer_of_somebody_else_is_none(text: str, put: Callable[..., Machine]) -> None:
    seen: Any = server.observe(put(), lambda _address, _path: text)
    assert seen["targets"] is None
    assert seen["prometheus"]["loaded"] is False


class _Asks(http.server.BaseHTTPRequestHandler):
    """Answers whoever has the password, as Alertmanager does."""

    def do_GET(self) -> None:
        word = base64.b64encode(b"gpuwright:sesame").decode()
        self.send_response(200 if self.headers["Authorization"] == f"Basic {word}" else 401)
        self.end_headers()
        self.wfile.write(b"alertmanager_config_last_reload_successful 1\n")

    def log_message(self, *_words: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("password", "answers"), [("sesame\n", True), ("other", False), (None, False)])
def test_alertmanager_is_asked_with_the_password_in_its_file(
    password: str | None, answers: bool, put: Callable[..., Machine], tmp_path: Path
) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Asks) as asked:
        threading.Thread(target=asked.serve_forever, daemon=True).start()
        machine = put()
        unit = tmp_path / server.ALERTMANAGER.drop_in[1:]
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(f"ExecStart=x --web.listen-address=127.0.0.1:{asked.server_port}\n")
        if password:
            (tmp_path / str(server.ALERTMANAGER.password)[1:]).write_text(password)
        seen = server.look(machine, server.ALERTMANAGER)
        asked.shutdown()
    assert seen["answers"] is answers
    assert seen["problem"] == (None if answers else "HTTP status 401")
