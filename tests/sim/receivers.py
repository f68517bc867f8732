"""Who is told: a web server that speaks TLS and a mail server, both real ones that listen where a node can reach them."""

from __future__ import annotations

import json
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Web:
    """A web server with a certificate of its own, and what it got."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", names: str | None = None) -> None:
        self.got: list[dict[str, Any]] = []
        #: What it answers.
        self.status = 200
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        named = ("-subj", "/CN=gpuwright test", "-addext", f"subjectAltName={names or f'IP:{address}'}")
        files = ("-keyout", key, "-out", self.certificate)
        subprocess.run(["openssl", "req", *kind, *named, *files], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server = ThreadingHTTPServer((address, 0), self._handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"https://{address}:{self.server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.got.append({"path": self.path, "type": self.headers["Content-Type"], "json": json.loads(body)})
                self.send_response(web.status)
                if web.status == 302:
                    self.send_header("Location", "https://elsewhere.example/")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                """Nothing."""

        return Handler


class Mail(socketserver.ThreadingTCPServer):
    """A mail server (RFC 5321, what one client needs of it), and the letters that it took: who gets each, and its text.

    It has no user `refused`. It may offer TLS, and has none.
    """

    def __init__(self, address: str = "127.0.0.1", *, offers_tls: bool = False) -> None:
        super().__init__((address, 0), _Session)
        self.letters: list[tuple[list[str], str]] = []
        self.greeting = "250-here\r\n250 STARTTLS" if offers_tls else "250 here"
        self.address = f"{address}:{self.server_address[1]}"


class _Session(socketserver.StreamRequestHandler):
    server: Mail

    def handle(self) -> None:
        self._say("220 ready")
        to: list[str] = []
        for line in self.rfile:
            verb, _, rest = line.decode().strip().partition(" ")
            person = rest.partition("<")[2].partition(">")[0]
            if verb.upper() == "DATA":
                self._say("354 go on")
                letter = iter(self.rfile.readline, b".\r\n")
                self.server.letters.append((to, b"".join(letter).decode()))
            if person.startswith("refused@"):
                self._say("550 no such user")
                continue
            to = [*to, person] if verb.upper() == "RCPT" else []
            self._say(
                {"EHLO": self.server.greeting, "STARTTLS": "220 go on", "QUIT": "221 bye"}.get(verb.upper(), "250 yes")
            )

    def _say(self, words: str) -> None:
        self.wfile.write(words.encode() + b"\r\n")


@contextmanager
def serving(*servers: socketserver.BaseServer) -> Iterator[None]:
    """They serve until the end of the block."""
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
