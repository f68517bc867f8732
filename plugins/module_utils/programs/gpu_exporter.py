# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell Prometheus what every card does, under the names of NVIDIA's dcgm-exporter, where DCGM does not serve. A program of its own on the
node, run by a service; what it tells is in gpu_metrics.py.

    gpu_exporter.py --listen 127.0.0.1:9400 [--interval 15] [--web-config /etc/gpuwright/web.yml]

Where systemd hands a socket over, it is that one that it serves.

``--listen``: an address and a port; one of IPv6 stands in brackets. It has no default, so that nobody is served by oversight: all addresses
are 0.0.0.0 or [::], by that name. ``--interval``: seconds between two samples. ``--web-config``: who may read, and by which certificate, in
the format of Prometheus' exporter-toolkit, written as JSON, which is YAML too, so that every exporter reads the same file:

    {"tls_server_config": {"cert_file": PATH, "key_file": PATH}, "basic_auth_users": {NAME: HASH}}

A path that is not absolute begins where this file lies. A key is one that its owner alone can read, who is root or whom this runs as. A
hash is one of bcrypt, as `htpasswd -nBC 10` prints it.

Answers come from the last sample; after three intervals without one no card has values. Exit status: 0 ended by SIGTERM, 1 what cannot be
done as it is set.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import hmac
import http.server
import io
import ipaddress
import json
import os
import re
import signal
import socket
import socketserver
import ssl
import stat
import sys
import threading
import time
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union, cast

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_metrics
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run


class SettingsError(Exception):
    """The settings cannot be served; the text is one line for a person."""


# Python 3.8 runs this too: the alias is evaluated.
_Accepted = Union[socket.socket, Tuple[bytes, socket.socket]]


# --------------------------------------------------------------------------------------------------------------------
# The exporter
# --------------------------------------------------------------------------------------------------------------------

INTERVAL = 15
#: Intervals after which what the cards last told is told no more.
_STALE = 3


class _Told(NamedTuple):
    """What readers get. ``taken``: when the last sample was asked for, ``seconds``: how long it took, ``up``: whether the last question was
    answered; None before the first one.
    """

    cards: str
    taken: Optional[float]
    seconds: Optional[float]
    up: Optional[bool]


class Exporter:
    """Samples the cards, in one thread, and tells the last sample, in any."""

    def __init__(
        self,
        interval: float = INTERVAL,
        smi: run.Runner = run.run,
        held: Callable[[], Optional[int]] = run.held,
        loaded: Callable[[], bool] = run.loaded,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._smi = smi
        self._held = held
        self._loaded = loaded
        self._clock = clock
        self._known: gpu_metrics.Known = {}
        #: A call of ours that the kernel did not let go: process and when it began.
        self._stuck: Optional[Tuple[int, Optional[str]]] = None
        #: Replaced as a whole, so that a reader has all of one sample.
        self._told = _Told("", None, None, None)
        self._problem: Optional[str] = None

    def keep_on(self, begun_to: Callable[[], None] = lambda: None) -> None:
        """Sample for ever, at multiples of the interval: one that takes longer leaves out those that it runs into.

        ``begun_to``: called once, behind the first one.
        """
        while True:
            begun = self._clock()
            self.turn()
            begun_to()
            begun_to = _nothing
            time.sleep(self._interval - (self._clock() - begun) % self._interval)

    def turn(self) -> None:
        """One sample. What went wrong is told once, as journald takes it, by its priority (sd-daemon(3))."""
        begun = self._clock()
        try:
            cards, problem = self._look()
        except run.Asleep:
            # Nothing is wrong, and no value is told.
            problem = None
            self._told = _Told("", begun, self._clock() - begun, up=True)
        except run.SmiError as error:
            problem = str(error)
            if isinstance(error, run.Hung) and error.pid is not None:
                self._stuck = error.pid, error.started
            self._told = self._told._replace(up=False)
        else:
            self._told = _Told(gpu_metrics.rendered(cards), begun, self._clock() - begun, up=problem is None)
        if problem != self._problem:
            sys.stderr.write(f"<4>no sample: {problem}\n" if problem else "<5>the cards answer again\n")
            sys.stderr.flush()
        self._problem = problem

    def _look(self) -> Tuple[List[gpu_metrics.Card], Optional[str]]:
        if not self._loaded():
            raise run.SmiError(run.NOT_LOADED)
        pid = self._stuck[0] if self._stuck and run.start_of(self._stuck[0]) == self._stuck[1] else None
        self._stuck = self._stuck if pid else None
        pid = pid or self._held()
        if pid is not None:
            raise run.SmiError(f"nvidia-smi (process {pid}) hangs in the kernel")
        return gpu_metrics.look(self._smi, self._known)

    def page(self) -> bytes:
        """What a reader gets now."""
        told = self._told
        age = None if told.taken is None else self._clock() - told.taken
        lines = [
            *_own("gpuwright_exporter_up", "Whether nvidia-smi answered when it was last asked.", told.up),
            *_own("gpuwright_exporter_sample_age_seconds", "Seconds since the last sample was asked for.", age),
            *_own("gpuwright_exporter_sample_seconds", "How long the last sample took.", told.seconds),
        ]
        fresh = age is not None and age <= _STALE * self._interval
        return ("".join(lines) + (told.cards if fresh else "")).encode("utf-8", "replace")


def _nothing() -> None:
    """What is told behind the second sample, and all that follow."""


def _own(name: str, help_text: str, value: Optional[float]) -> List[str]:
    return [] if value is None else gpu_metrics.family(name, "gauge", help_text, [("", round(value, 6))])


# --------------------------------------------------------------------------------------------------------------------
# Who may read
# --------------------------------------------------------------------------------------------------------------------

#: As bcrypt has it: which variant, the exponent of the cost, and 22 characters of salt before 31 of the digest.
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}", re.ASCII)
#: A hash of this cost is compared in a second, and each one more takes twice as long.
_HIGHEST_COST = 14
#: For a person.
HASH_FORM = f"a hash of bcrypt, as `htpasswd -nBC 10` prints it, of a cost up to {_HIGHEST_COST}"
#: bcrypt sees no more of a password.
_LONGEST_PASSWORD = 72
_LIBRARIES = ("libcrypt.so.2", "libcrypt.so.1")
#: A password and a hash → the hash that the password has with the salt and cost of this one; None or "*0" where that is none.
Crypt = Callable[[bytes, bytes], Optional[bytes]]


def is_hash(text: object) -> bool:
    """Whether it is a hash of the settings whose comparison does not take a reader's time."""
    match = _HASH.fullmatch(text) if isinstance(text, str) else None
    return match is not None and 4 <= int(match.group(1)) <= _HIGHEST_COST


def crypt() -> Crypt:
    """Return the machine's own: Python has none from 3.13 on. Raises SettingsError where there is none."""
    for name in _LIBRARIES:
        try:
            function = ctypes.CDLL(name).crypt
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_char_p
        return cast("Crypt", function)
    raise SettingsError(f"passwords cannot be compared: this machine has no {' nor '.join(_LIBRARIES)}")


class Users:
    """Who may read. A password that was right once is compared by a quick digest from then on, with a key of this process."""

    def __init__(self, hashes: Dict[str, str], how: Crypt) -> None:
        self._hashes = {name: text.encode() for name, text in hashes.items()}
        self._crypt = how
        self._key = os.urandom(32)
        self._right: Dict[str, bytes] = {}
        #: One hash at a time: crypt(3) answers in memory of its own, and who tries passwords shall not have all processors.
        self._one = threading.Lock()

    @property
    def works(self) -> bool:
        """Whether the machine's crypt(3) knows these hashes: of one that it does not know it makes something else."""
        first = next(iter(self._hashes.values()))
        return (self._crypt(b"", first) or b"").startswith(first[:7])

    def permit(self, header: Optional[str]) -> bool:
        """Whether an Authorization header is that of a user. Whether a user is known makes no difference in time."""
        scheme, _blank, coded = (header or "").strip().partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
            user = name.decode()
        except ValueError:
            return False
        quick = hmac.new(self._key, name + colon + password, "sha256").digest()
        if hmac.compare_digest(self._right.get(user, b""), quick):
            return True
        known = self._hashes.get(user)
        same = self.is_of(password, known or next(iter(self._hashes.values())))
        if known is None or not same or not colon:
            return False
        self._right[user] = quick
        return True

    def is_of(self, password: bytes, known: bytes) -> bool:
        """Whether a password has this hash. One that crypt(3) would read only the beginning of has none."""
        if b"\0" in password or len(password) > _LONGEST_PASSWORD:
            return False
        with self._one:
            made = self._crypt(password, known)
        return hmac.compare_digest(made or b"", known)


# --------------------------------------------------------------------------------------------------------------------
# HTTP
# --------------------------------------------------------------------------------------------------------------------

#: For the first sample: half of what Prometheus leaves an exporter by itself (scrape_timeout).
_SECONDS_OF_THE_FIRST = 5.0
#: For all of a connection: the handshake, the request and its answer.
SECONDS_OF_A_CLIENT = 5.0
#: Connections that are answered at once; the others wait.
WORKERS = 16
_WAITING = 128
_LONGEST_REQUEST = 8 * 1024
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAGE = "/metrics"


class _Request(http.server.BaseHTTPRequestHandler):
    """One request, one answer, and the connection ends. What is read and written lies in memory; the socket has one time limit for all."""

    server: Server
    server_version = "gpuwright"
    sys_version = ""

    def __init__(self, connection: socket.socket, client_address: object, server: Server, end: float) -> None:
        self._end = end
        self._said = io.BytesIO()
        super().__init__(connection, client_address, server)

    def setup(self) -> None:
        self.connection = self.request
        self.rfile = io.BytesIO()
        self.wfile = self._said
        self.close_connection = True

    def handle(self) -> None:
        head = self._head()
        if head is None:
            return
        self.rfile = io.BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        self.requestline, self.request_version, self.command = "", "", ""
        if len(head) > _LONGEST_REQUEST:
            self.send_error(431)
        elif self.parse_request():
            self._answer()

    def _left(self) -> float:
        """Seconds that this connection has yet. Raises TimeoutError where they are over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _head(self) -> Optional[bytes]:
        """The request without what may follow it, or more than it may have; None where it does not come."""
        said = b""
        while len(said) <= _LONGEST_REQUEST:
            for end in (b"\r\n\r\n", b"\n\n"):
                if end in said:
                    return said[: said.index(end) + len(end)]
            self.connection.settimeout(self._left())
            more = self.connection.recv(4096)
            if not more:
                return None
            said += more
        return said

    def _answer(self) -> None:
        users = self.server.users
        if self.request_version == "HTTP/0.9":
            self.send_error(400)
        elif users is not None and not users.permit(self.headers.get("Authorization")):
            self._send(401, b"expected a user and a password\n", {"WWW-Authenticate": 'Basic realm="gpuwright"'})
        elif self.command not in ("GET", "HEAD"):
            self._send(405, b"only GET and HEAD are answered\n", {"Allow": "GET, HEAD"})
        elif self.path.partition("?")[0] != _PAGE:
            self._send(404, f"the values of the cards are at {_PAGE}\n".encode(), {})
        else:
            self._send(200, self.server.page(), {"Content-Type": _CONTENT_TYPE})

    def _send(self, status: int, body: bytes, headers: Dict[str, str]) -> None:
        self.send_response(status)
        fields = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), "Connection": "close"}
        for name, value in {**fields, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def send_error(self, code: int, *_words: Optional[str], **_more: Optional[str]) -> None:
        """Answer what cannot be parsed; the words of the library have the request in them."""
        # Of one that names no version it takes that it is too old for headers.
        self.request_version = self.protocol_version
        self._send(code, b"the request cannot be read\n", {})

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: whoever reads does so every few seconds."""

    def finish(self) -> None:
        """Send what was answered. What the client still sends is read for a moment, or it would lose the answer to a reset."""
        rest = memoryview(self._said.getvalue())
        while rest:
            self.connection.settimeout(self._left())
            rest = rest[self.connection.send(rest) :]
        self.connection.shutdown(socket.SHUT_WR)
        read = 0
        while read < 2**16:
            self.connection.settimeout(min(1.0, self._left()))
            more = len(self.connection.recv(4096))
            if not more:
                return
            read += more


class Server(http.server.ThreadingHTTPServer):
    """Answers from a page that is there. Each connection has its time and no more, and only so many are open at once."""

    daemon_threads = True
    request_queue_size = _WAITING

    def __init__(
        self,
        address: Tuple[str, int],
        page: Callable[[], bytes],
        tls: Optional[ssl.SSLContext] = None,
        users: Optional[Users] = None,
        seconds: float = SECONDS_OF_A_CLIENT,
        listening: Optional[socket.socket] = None,
    ) -> None:
        """``listening``: a socket that listens there already."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.page = page
        self.users = users
        self._tls = tls
        self._seconds = seconds
        self._free = threading.BoundedSemaphore(WORKERS)
        # finish_request makes the one that answers.
        super().__init__(address, http.server.BaseHTTPRequestHandler, bind_and_activate=listening is None)
        if listening is not None:
            self.socket.close()
            self.socket = listening
            self.server_name, self.server_port = listening.getsockname()[:2]

    def server_bind(self) -> None:
        """Bind, without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), port

    def process_request(self, request: _Accepted, client_address: object) -> None:
        """Wait for a worker that is free: each is after its time at the latest."""
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: _Accepted, client_address: object) -> None:
        """In a worker."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: _Accepted, client_address: object) -> None:
        """Answer; the handshake of TLS belongs to it, and so does its time."""
        connection = cast("socket.socket", request)
        end = time.monotonic() + self._seconds
        if self._tls is None:
            _Request(connection, client_address, self, end)
            return
        connection.settimeout(self._seconds)
        with self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as wrapped:
            wrapped.do_handshake()
            _Request(wrapped, client_address, self, end)

    def handle_error(self, _request: object, _client_address: object) -> None:
        """A client that went away, was too slow or speaks no TLS is no news; all else is a line in the journal."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(f"<3>a request failed: {error!r}\n")
            sys.stderr.flush()


# --------------------------------------------------------------------------------------------------------------------
# Settings
# --------------------------------------------------------------------------------------------------------------------

_LISTEN = re.compile(r"^(?:\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|([0-9.]+)):(\d{1,5})$")
_TLS, _AUTH = "tls_server_config", "basic_auth_users"
_CERTIFICATE, _KEY = "cert_file", "key_file"
_MOST_BYTES = 2**20


class Web(NamedTuple):
    """What the file says of who may read."""

    tls: Optional[ssl.SSLContext] = None
    users: Optional[Users] = None


def read_web(path: str, how: Callable[[], Crypt] = crypt) -> Web:
    """The settings of a file. Raises SettingsError."""
    try:
        with open(path, encoding="utf-8") as stream:
            known = json.loads(stream.read(_MOST_BYTES))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is no JSON: {gpu_metrics.line(str(error))}") from None
    if not isinstance(known, dict) or set(known) - {_TLS, _AUTH}:
        found = ", ".join(sorted(set(known) - {_TLS, _AUTH})) if isinstance(known, dict) else type(known).__name__
        raise SettingsError(
            f"expected an object with the keys {_TLS} and {_AUTH} in {path}, found {gpu_metrics.line(found)}"
        )
    return Web(_tls(known.get(_TLS), os.path.dirname(path)), _users(known.get(_AUTH), how))


def read_address(listen: str) -> Tuple[str, int]:
    """The address and the port to listen on. Raises SettingsError."""
    match = _LISTEN.match(listen)
    port = int(match.group(3)) if match else -1
    try:
        address = str(ipaddress.ip_address((match.group(1) or match.group(2)) if match else ""))
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise SettingsError(
            f"expected an address and a port to listen on (127.0.0.1:9400, [::1]:9400), found {listen!r}"
        )
    return address, port


def read_interval(seconds: str) -> float:
    """The seconds between two samples. Raises SettingsError."""
    if not re.match(r"^\d{1,4}(\.\d{1,3})?$", seconds) or not 1 <= float(seconds) <= 3600:
        raise SettingsError(f"expected 1 to 3600 seconds as the interval, found {seconds!r}")
    return float(seconds)


def _tls(files: object, directory: str) -> Optional[ssl.SSLContext]:
    if files is None:
        return None
    if not isinstance(files, dict) or set(files) != {_CERTIFICATE, _KEY}:
        raise SettingsError(f"expected the files {_CERTIFICATE} and {_KEY} of {_TLS}")
    certificate, key = (_file(name, files[name], directory) for name in (_CERTIFICATE, _KEY))
    _check_key(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Nobody is asked for the password of a key that has one.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        raise SettingsError(
            f"the certificate {certificate} with the key {key} cannot be used: {gpu_metrics.line(str(error))}"
        ) from None
    return context


def _file(what: str, name: object, directory: str) -> str:
    """A file that is there to be read."""
    if not isinstance(name, str) or not name:
        raise SettingsError(f"expected a path as {what}, found {name!r}")
    place = os.path.join(directory, name)
    try:
        with open(place, "rb"):
            return place
    except OSError as error:
        raise SettingsError(f"{what}, {place}, cannot be read: {error.strerror}") from None


def _check_key(path: str) -> None:
    """Refuse a key that others can read."""
    told = os.stat(path)
    if stat.S_IMODE(told.st_mode) & 0o077 or told.st_uid not in (0, os.geteuid()):
        mode = f"{stat.S_IMODE(told.st_mode):04o}"
        raise SettingsError(
            f"expected a key that root alone can read, found {path} with mode {mode} and owner {told.st_uid}"
        )


def _users(hashes: object, how: Callable[[], Crypt]) -> Optional[Users]:
    """Who may read; a hash is shown to nobody, also where it is wrong."""
    if hashes is None:
        return None
    if not isinstance(hashes, dict) or not hashes:
        raise SettingsError(f"expected a hash for each name of {_AUTH}; without users there is no such key")
    for name, text in hashes.items():
        if not name or ":" in name or not is_hash(text):
            raise SettingsError(f"expected a name without a colon and {HASH_FORM}, for the user {name!r}")
    users = Users(hashes, how())
    if not users.works:
        raise SettingsError("passwords cannot be compared: this machine's crypt(3) has no bcrypt")
    return users


# --------------------------------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------------------------------


def _end(_number: int, _frame: object) -> NoReturn:
    """Interrupt whatever goes on; a call of nvidia-smi is killed on the way out."""
    raise SystemExit(0)


def handed_over() -> Optional[socket.socket]:
    """The socket that systemd listens on for this process (sd_listen_fds(3)); None where it was started without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=3)


def tell_ready() -> None:
    """Tell systemd that readers have something to read (sd_notify(3)), where it asks for that."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.sendto(b"READY=1", "\0" + place[1:] if place.startswith("@") else place)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_exporter.py", allow_abbrev=False)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--interval", default=str(INTERVAL))
    parser.add_argument("--web-config")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal comes. It samples in the main thread, which signals interrupt, and answers in others."""
    asked = _parsed(arguments)
    try:
        address, exporter = read_address(asked.listen), Exporter(read_interval(asked.interval))
        web = read_web(asked.web_config) if asked.web_config else Web()
        try:
            server = Server(address, exporter.page, web.tls, web.users, listening=handed_over())
        except OSError as error:
            host, port = address
            raise SettingsError(f"nothing can listen on {host}, port {port}: {error.strerror}") from None
    except SettingsError as error:
        sys.stderr.write(f"<3>{gpu_metrics.line(str(error))}\n")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    first = threading.Event()

    def serve() -> None:
        # Who asked while systemd started this gets the first sample, where that does not hang.
        first.wait(_SECONDS_OF_THE_FIRST)
        # Nobody asks the server to end, so it need not look whether somebody does.
        server.serve_forever(3600)

    def ready() -> None:
        first.set()
        tell_ready()

    threading.Thread(target=serve, daemon=True).start()
    sys.stderr.write(f"<6>serving on {server.server_name}, port {server.server_port}\n")
    sys.stderr.flush()
    exporter.keep_on(ready)
    return 0
