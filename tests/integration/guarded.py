"""A package server that asks for a name and a password, and a proxy that asks for others: what a site puts before its mirrors.

Both are one program in a container beside the simulated repository's own, and serve the same files. It keeps what it was asked.
Its index of Python packages asks for a password of its own; it has all that a framework needs, as a mirror of the public one.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.sim import image, repository, settings, wheels
from tests.sim.engine import docker, docker_text

MIRROR_HOST = "private.gpuwright-sim"
PROXY_HOST = "proxy.gpuwright-sim"
PROXY_PORT = 3128

_CONTAINER = settings.CONTAINER_PREFIX + "guarded"

# RFC 7617: what a server and a proxy answer where the header is missing or wrong. One asks with 401, the other with 407.
_PROGRAM = """
import functools, http.client, http.server, json, threading, urllib.parse

ACCESS = json.load(open("/access.json"))

class Mirror(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def send_head(self):
        name = "index" if self.path.startswith("/whl/pypi/") else "mirror"
        good = self.headers.get("Authorization") == ACCESS[name]
        print(self.command, self.path, name, "let in" if good else "refused", flush=True)
        if good:
            return super().send_head()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def log_message(self, *words):
        pass

class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        good = self.headers.get("Proxy-Authorization") == ACCESS["proxy"]
        print(self.command, self.path, "proxy", "let in" if good else "refused", flush=True)
        if not good:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = urllib.parse.urlsplit(self.path)
        onward = http.client.HTTPConnection(asked.hostname, asked.port or 80)
        headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        onward.request(self.command, asked.path, headers=headers)
        answer = onward.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass

mirror = http.server.ThreadingHTTPServer(("", 80), functools.partial(Mirror, directory="/srv"))
threading.Thread(target=mirror.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("", 3128), Proxy).serve_forever()
"""


@contextmanager
def guarded(folder: Path, *, mirror: tuple[str, str], proxy: tuple[str, str], index: tuple[str, str]) -> Iterator[None]:
    """Serve for as long as the context lasts. MIRROR, PROXY and INDEX: name and password that each asks for."""
    (folder / "server.py").write_text(_PROGRAM)
    (folder / "access.json").write_text(
        json.dumps({"mirror": _basic(*mirror), "proxy": _basic(*proxy), "index": _basic(*index)})
    )
    plan = yaml.safe_load((settings.HERE / "packages.yaml").read_text())["wheels"]
    wheels.write_index(folder / "index", {**wheels.projects(plan, "cu130"), **wheels.projects(plan, "pypi")})
    base = image.ensure()
    repository.serve(base)
    docker("rm", "-f", name(), check=False)
    # The program and what it asks for come as files: a command line can be read by everybody.
    docker(
        "run", "-d", "--name", name(), "--label", settings.INSTANCE_LABEL, "--network", settings.NETWORK,
        "--network-alias", MIRROR_HOST, "--network-alias", PROXY_HOST,
        "-v", f"{repository.ensure()}:/srv:ro", "-v", f"{folder}/index:/srv/whl/pypi:ro", "-v", f"{folder}/server.py:/server.py:ro",
        "-v", f"{folder}/access.json:/access.json:ro", base, "python3", "-u", "/server.py",
    )  # fmt: skip
    try:
        yield
    finally:
        docker("rm", "-f", name(), check=False)


def asked() -> list[str]:
    """What was asked for so far: method, address or path, who answered, and whether the asker was let in."""
    return docker_text("logs", name()).splitlines()


def name() -> str:
    """The container; each process of pytest has its own."""
    return f"{_CONTAINER}{os.environ.get('PYTEST_XDIST_WORKER', '')}"


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
