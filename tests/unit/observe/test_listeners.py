"""What listens on a port, whose it is and what it tells, and whether a certificate can be served: by real sockets and real handshakes."""

from __future__ import annotations

import contextlib
import getpass
import http.server
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import certificate, listeners

_CARDS = b'# HELP DCGM_FI_DEV_GPU_TEMP x\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 34\n'
_MACHINE = b'# TYPE node_exporter_build_info gauge\nnode_exporter_build_info{version="1.9.0"} 1\n'
_OTHER = b"# HELP up x\n# TYPE up gauge\nup 1\n"


@contextlib.contextmanager
def serving(body: bytes, status: int = 200, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def pair(place: Path, *more: str) -> tuple[str, str]:
    """A certificate and its key."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node"
    subprocess.run(
        [*command.split(" "), *more, "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=place,
        check=True,
        capture_output=True,
    )
    (place / "key.pem").chmod(0o600)
    return str(place / "cert.pem"), str(place / "key.pem")


@pytest.mark.parametrize(
    ("body", "status", "tells"),
    [
        (_CARDS, 200, "gpu"),
        (_MACHINE, 200, "node"),
        (_OTHER, 200, "metrics"),
        (b"<html>DCGM_FI_DEV_GPU_TEMP{</html>", 200, None),
        (_CARDS, 401, None),
        (_CARDS, 503, None),
    ],
)
def test_a_listener_is_known_by_what_it_answers(body: bytes, status: int, tells: str | None) -> None:
    with serving(body, status) as port:
        (found,) = listeners.observe(Host(), [port])
    assert (found["address"], found["port"], found["user"]) == ("127.0.0.1", port, getpass.getuser())
    assert (found["tls"], found["status"], found["tells"], found["certificate"]) == (False, status, tells, None)
    if os.geteuid() == 0:
        assert found["process"]


def test_a_listener_of_tls_is_asked_by_tls_and_tells_its_certificate(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair(tmp_path))
    with serving(_MACHINE, tls=context) as port:
        (found,) = listeners.observe(Host(), [port])
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "cert.pem").read_text())
    assert (found["tls"], found["status"], found["tells"]) == (True, 200, "node")
    assert found["certificate"] == listeners.digest(der)


def test_a_server_of_go_that_expects_tls_is_asked_by_tls(tmp_path: Path) -> None:
    """It answers in clear that it does (net/http, server.go), with a status that would be taken for its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as there:

        def serve() -> None:
            for _ in range(2):
                plain = there.accept()[0]
                if plain.recv(1, socket.MSG_PEEK) == b"\x16":
                    with context.wrap_socket(plain, server_side=True) as secret:
                        secret.recv(4096)
                        secret.sendall(b"HTTP/1.0 401 Unauthorized\r\n\r\n")
                else:
                    plain.recv(4096)
                    plain.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
                    plain.close()

        threading.Thread(target=serve, daemon=True).start()
        (found,) = listeners.observe(Host(), [there.getsockname()[1]])
    assert (found["tls"], found["status"], found["tells"]) == (True, 401, None)


def test_what_listens_on_every_address_is_asked_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some containers the loopback interface has no address of IPv6, and the socket is one of it all the same."""
    with serving(_MACHINE) as port:
        monkeypatch.setattr(listeners, "opened", lambda _host: [("::", port, "1", 0)])
        (found,) = listeners.observe(Host(), [port])
    assert (found["address"], found["status"], found["tells"]) == ("::", 200, "node")


def test_a_port_that_systemd_holds_is_the_services_and_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question would start the service."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "gpuwright-node-exporter.socket").write_text(
        "[Socket]\nListenStream=127.0.0.1:9100\nFreeBind=yes\nService=prometheus-node-exporter.service\n"
    )
    monkeypatch.setattr(listeners, "opened", lambda _host: [("127.0.0.1", port, "7", 0) for port in (9100, 9101)])
    monkeypatch.setattr(listeners, "_holders", lambda _host, _inodes: {"7": "1"})
    monkeypatch.setattr(listeners, "ask", lambda *_where: pytest.fail("it was asked"))
    ours, other = listeners.observe(Host(root=str(tmp_path)), [9100, 9101])
    assert (ours["unit"], ours["status"], other["unit"]) == ("prometheus-node-exporter.service", None, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees whose a socket is")
def test_of_a_socket_that_systemd_holds_too_the_service_is_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_SYSTEMD", str(os.getpid()))
    with (
        socket.create_server(("127.0.0.1", 0)) as held,
        subprocess.Popen(["sleep", "60"], pass_fds=[held.fileno()]) as other,
    ):
        inode = str(Path(f"/proc/self/fd/{held.fileno()}").readlink()).strip("socket:[]")
        assert listeners._holders(Host(), [inode]) == {inode: str(other.pid)}
        other.kill()


def test_one_that_never_answers_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        (found,) = listeners.observe(Host(), [silent.getsockname()[1]])
        assert time.monotonic() - begun < 5
    assert (found["tls"], found["status"], found["tells"]) == (None, None, None)


def test_a_port_that_nobody_holds_has_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
    assert listeners.observe(Host(), [port]) == []
    assert listeners.observe(Host(), []) == []


_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:24B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:24B8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 0 10 -1
   2: 00000000:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 100 0 0 10 0
"""
_TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout
   0: 00000000000000000000000000000000:238C 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  0     0 4714
   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  0     0 4715
   2: broken
   3: 0000:0016 0 0A 0 0 0 0 0 1
   4: 00000000000000000000000000000000:238D 00000000000000000000000000000000:0000 06 00000000:00000000 00:00000000 00000000  0     0 4716
"""


def test_the_kernels_lists_are_read_for_both_families(tree: Any) -> None:
    tree.file("/proc/net/tcp", _TCP)
    tree.file("/proc/net/tcp6", _TCP6)
    assert listeners.opened(tree.host()) == [
        ("::1", 22, "4715", 0),
        ("0.0.0.0", 9100, "4713", 0),  # noqa: S104 - as the kernel says it
        ("::", 9100, "4714", 0),
        ("127.0.0.1", 9400, "4711", 0),
    ]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/prometheus-node-exporter.service\n", "prometheus-node-exporter.service"),
        ("12:pids:/system.slice/x.service\n1:name=systemd:/system.slice/x.service\n", "x.service"),
        ("0::/system.slice/docker-1.scope/system.slice/inner.service\n", "inner.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", None),
        ("", None),
    ],
)
def test_the_unit_of_a_process_is_in_its_control_group(text: str, unit: str | None) -> None:
    assert listeners.unit_of(text) == unit


@pytest.fixture(name="trusted")
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose a path is has tests of its own; those of pytest are in a directory of everybody's."""
    monkeypatch.setattr(ownership, "offence", lambda _path: None)


def looked(certificate_path: str, key: str) -> Any:
    return certificate.observe(Host(euid=0), certificate_path, key)


@pytest.mark.usefixtures("trusted")
def test_a_good_pair_has_an_end_and_no_problem(tmp_path: Path) -> None:
    found = looked(*pair(tmp_path))
    assert found["problem"] is None
    left = time.mktime(time.strptime(found["expires"], "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(time.gmtime())
    assert 47 * 3600 < left <= 48 * 3600
    assert found["digest"] == listeners.digest(ssl.PEM_cert_to_DER_cert((tmp_path / "cert.pem").read_text()))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("days", "words"),
    [
        (
            ("-not_before", "20200101000000Z", "-not_after", "20200301000000Z"),
            "cert.pem expired on 2020-03-01T00:00:00Z",
        ),
        (
            ("-not_before", "20900101000000Z", "-not_after", "20910101000000Z"),
            "is not valid before 2090-01-01T00:00:00Z",
        ),
        (("-addext", "extendedKeyUsage=clientAuth"), "cannot be used: .*purpose"),
    ],
)
def test_a_certificate_that_no_client_takes_is_told(tmp_path: Path, days: tuple[str, ...], words: str) -> None:
    try:
        files = pair(tmp_path, *days)
    except subprocess.CalledProcessError:
        files = by_a_clock(tmp_path, days)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(looked(*files)["problem"])


def by_a_clock(place: Path, days: tuple[str, ...]) -> tuple[str, str]:
    """The same where the command is older than 3.4: the authority's command takes days as well."""
    pair(place)
    subprocess.run(
        ["openssl", "req", "-new", "-key", "key.pem", "-subj", "/CN=node", "-out", "r.csr"],
        cwd=place,
        check=True,
        capture_output=True,
    )
    (place / "db").touch()
    (place / "ca.cnf").write_text(
        "[ca]\ndefault_ca=a\n[a]\ndatabase=db\nnew_certs_dir=.\nrand_serial=1\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    command = [
        "openssl",
        "ca",
        "-batch",
        "-config",
        "ca.cnf",
        "-selfsign",
        "-keyfile",
        "key.pem",
        "-in",
        "r.csr",
        "-out",
        "cert.pem",
    ]
    command += ["-startdate", days[1], "-enddate", days[3]]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    return str(place / "cert.pem"), str(place / "key.pem")


@pytest.mark.usefixtures("trusted")
def test_files_that_cannot_be_served_are_told(tmp_path: Path) -> None:
    pem, key = pair(tmp_path)
    (tmp_path / "other").mkdir()
    _other, another = pair(tmp_path / "other")
    assert "cannot be used" in looked(pem, another)["problem"]
    assert looked("/nowhere.pem", key)["problem"] == "/nowhere.pem cannot be read: No such file or directory"
    assert looked(pem, str(tmp_path))["problem"] == f"{tmp_path} is no file"
    assert looked(key, key)["problem"] == f"{key} has no certificate in it (PEM)"
    Path(key).chmod(0o604)
    assert looked(pem, key)["problem"] == f"{key} is a key that everybody can read (mode 0604)"
    locked = str(tmp_path / "locked.pem")
    subprocess.run(
        ["openssl", "ec", "-in", another, "-aes256", "-passout", "pass:x", "-out", locked],
        check=True,
        capture_output=True,
    )
    Path(locked).chmod(0o600)
    assert "cannot be used" in looked(str(tmp_path / "other/cert.pem"), locked)["problem"]


def test_a_file_that_another_may_change_is_told(tmp_path: Path) -> None:
    pem, key = pair(tmp_path)
    tmp_path.chmod(0o777)
    assert "is not root's alone: there is" in looked(pem, key)["problem"]


def test_only_root_on_the_machine_itself_looks(tmp_path: Path) -> None:
    host = Host(euid=1000)
    assert certificate.observe(host, *pair(tmp_path)) is None
    assert "monitoring.certificate" in host.unknown_facts
