"""A package index on this machine, and environments to fill from it by the real pip."""

from __future__ import annotations

import base64
import functools
import io
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.sim import wheels

# A source that tells when code of it runs, and builds what it says it is.
_BACKEND = """
import pathlib, zipfile
pathlib.Path({canary!r}).touch()

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "{stem}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as archive:
        archive.writestr("{stem}.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr("{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("{stem}.dist-info/RECORD", "")
    return name
"""


UV = next(row["version"] for row in load_rules()["frameworks"]["builders"])


@functools.cache
def _packed_uv() -> tuple[str, bytes]:
    info, stream = f"uv-{UV}.dist-info", io.BytesIO()
    content = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: uv\nVersion: {UV}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
        f"uv-{UV}.data/scripts/uv": Path(sys.executable).with_name("uv").read_bytes(),
    }
    # Not compressed: that is most of what a test would wait for.
    with zipfile.ZipFile(stream, "w") as archive:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, data)
    return f"uv-{UV}-py3-none-any.whl", stream.getvalue()


class _Handler(SimpleHTTPRequestHandler):
    """Serves the folder; what is below `guarded` asks for a name and a password, and `mirror` says nothing of the age of its files."""

    def send_head(self) -> Any:
        if self.command == "GET":
            self.server.asked.append(self.path)  # type: ignore[attr-defined]
        while any(each in self.path for each in self.server.held):  # type: ignore[attr-defined]
            time.sleep(0.02)
        wanted = "Basic " + base64.b64encode(b"reader:Pl4nted+secret/81").decode()
        if self.path.startswith("/guarded/") and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="guarded"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return super().send_head()

    def send_header(self, keyword: str, value: str) -> None:
        """Leave the age of a file out, as some mirrors do: who keeps one has to know it by its SHA-256."""
        if keyword != "Last-Modified" or not self.path.startswith("/mirror/"):
            super().send_header(keyword, value)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


class _Proxy(BaseHTTPRequestHandler):
    """Fetches http://index.example/… from the site for who knows the password."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(b"reader:Pl4nted+secret/81").decode()
        good = self.headers.get("Proxy-Authorization") == wanted
        self.server.asked.append((self.path, good))  # type: ignore[attr-defined]
        self.send_response(200 if good else 407)
        content, kind = b"", "text/html"
        if good:
            address = self.path.replace("http://index.example", self.server.site)  # type: ignore[attr-defined]
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(address) as answer:
                content, kind = answer.read(), answer.headers["Content-Type"]
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815 - as the class above calls it

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@dataclass
class Site:
    """Indexes below one address, filled with stub wheels and sources. What has one of the words `held` in its path is not answered yet."""

    folder: Path
    address: str
    asked: list[str]
    held: list[str]
    canary: Path
    files: dict[str, dict[str, list[tuple[str, bytes]]]] = field(default_factory=dict)

    def url(self, index: str) -> str:
        """The address of an index."""
        return f"{self.address}/{index}/"

    def wheel(self, index: str, name: str, version: str, *requires: str, says: str = "", build: str = "") -> bytes:
        """Add a wheel whose module says where it came from."""
        module = {f"{name.replace('-', '_')}.py": f"SAYS = {says or index!r}\n".encode()}
        tag = f"{build}-py3-none-any" if build else "py3-none-any"
        made = wheels.wheel(name, version, list(requires), module, tag, {})
        self._add(index, name, made)
        return made[1]

    def uv(self, index: str) -> bytes:
        """Add the real uv, packed anew as a wheel for any machine."""
        made = _packed_uv()
        self._add(index, "uv", made)
        return made[1]

    def source(self, index: str, name: str, version: str) -> None:
        """Add a source that leaves the canary when code of it runs."""
        stem = f"{name}-{version}"
        backend = _BACKEND.format(canary=str(self.canary), stem=stem, name=name, version=version)
        content = {
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": backend,
        }
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, text in content.items():
                info = tarfile.TarInfo(f"{stem}/{path}")
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
        self._add(index, name, (f"{stem}.tar.gz", stream.getvalue()))

    def _add(self, index: str, name: str, made: tuple[str, bytes]) -> None:
        self.files.setdefault(index, {}).setdefault(name, []).append(made)
        wheels.write_index(self.folder / index, self.files[index])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An empty one that answers."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    server.asked, server.held = [], []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    yield Site(folder, address, server.asked, server.held, tmp_path / "canary")  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


@dataclass
class Proxy:
    """A proxy that asks for a password and knows the site as index.example; `asked`: addresses, and whether the asker was let in."""

    place: str
    asked: list[tuple[str, bool]]


@pytest.fixture
def proxy(site: Site) -> Iterator[Proxy]:
    """One before the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    server.asked, server.site = [], site.address  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Proxy(f"127.0.0.1:{server.server_address[1]}", server.asked)  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def _empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "environment"
    subprocess.run(["python3", "-m", "venv", str(path)], check=True)
    return path


@pytest.fixture
def environment(_empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with pip alone. What pip has in its cache is this test's."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(_empty, tmp_path / "environment", symlinks=True))


@pytest.fixture
def frozen(environment: Path) -> Callable[[], dict[str, str]]:
    """What the environment's modules say where they came from, by distribution and version."""

    def look() -> dict[str, str]:
        (packages,) = environment.glob("lib/python3.*/site-packages")
        found = {}
        for info in packages.glob("*.dist-info"):
            name, version = info.name.removesuffix(".dist-info").split("-", 1)
            module = packages / f"{name}.py"
            if module.exists():
                found[f"{name}=={version}"] = module.read_text().split("'")[1]
        return found

    return look
