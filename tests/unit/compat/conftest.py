"""A small Python index made of files, served on this machine, and small tables to hold against it."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import wheels
from tools import compat_tables
from tools.compat_index import PythonIndex

DAY = "2024-05-01"
SOURCES = {"package_index": {"title": "files", "ref": "python package index", "date": "2024-05-01"}}


class Handler(SimpleHTTPRequestHandler):
    """Serves files; ranges of bytes if its server says so."""

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        server = self.server
        assert isinstance(server, Server)
        path = Path(self.translate_path(self.path))
        server.asked.append((path.name, bool(wanted)))
        if not (wanted and server.ranges and path.is_file()):
            super().do_GET()
            return
        content = path.read_bytes()
        first = int(wanted[1]) if wanted[1] else max(len(content) - int(wanted[2]), 0)
        last = min(int(wanted[2]) + 1, len(content)) if wanted[1] and wanted[2] else len(content)
        part = content[first:last]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def guess_type(self, path: Any) -> str:
        return "application/vnd.pypi.simple.v1+json" if str(path).endswith("index.json") else super().guess_type(path)

    def send_head(self) -> Any:
        # The page of a project in JSON where the shelf wrote one.
        if self.path.endswith("/") and (Path(self.translate_path(self.path)) / "index.json").is_file():
            self.path += "index.json"
        return super().send_head()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name that the base class gives it)
        """Nothing on the terminal."""


class Server(ThreadingHTTPServer):
    """Remembers what was asked for."""

    ranges = True

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, bool]] = []
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@dataclass
class Shelf:
    """The folder of an index: wheels are put in, the page of their project is written anew."""

    folder: Path
    server: Server
    cache: Path
    form: str = "json"
    beside: bool = False
    projects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def put(
        self,
        name: str,
        version: str,
        *tags: str,
        requires: list[str] | None = None,
        extras: dict[str, list[str]] | None = None,
        yanked: bool = False,
        day: str = DAY,
        size: int = 0,
        python: str = ">=3.8",
    ) -> None:
        """Wheels of one release, one a tag; `cp312` stands for x86_64."""
        for tag in tags or ("py3-none-manylinux_2_28_x86_64",):
            full = f"{tag}-{tag}-manylinux_2_28_x86_64" if re.fullmatch(r"cp3\d+", tag) else tag
            file, content = wheels.wheel(name, version, requires or [], {"weight": b"\0" * size}, full, extras or {})
            self._add(name, file, content, yanked=yanked, day=day, python=python)

    def put_sources(self, name: str, version: str, day: str = DAY) -> None:
        """Sources only, as of a project whose wheels are elsewhere."""
        self._add(name, f"{name.replace('-', '_')}-{version}.tar.gz", b"sources", yanked=False, day=day, python=">=3.8")

    def index(self) -> PythonIndex:
        return PythonIndex(f"{self.server.address}/simple/", self.cache)

    def _add(self, name: str, file: str, content: bytes, *, yanked: bool, day: str, python: str) -> None:
        files = self.folder / "files"
        files.mkdir(exist_ok=True)
        (files / file).write_bytes(content)
        if self.beside and file.endswith(".whl"):
            (files / f"{file}.metadata").write_bytes(metadata(files / file))
        entry = {
            "filename": file,
            "url": f"../../files/{file}",
            "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
            "requires-python": python,
            "yanked": yanked,
            "upload-time": f"{day}T10:00:00Z",
            "core-metadata": self.beside,
        }
        listed = self.projects.setdefault(wheels.normalise(name), [])
        listed.append(entry)
        page = self.folder / "simple" / wheels.normalise(name)
        page.mkdir(parents=True, exist_ok=True)
        if self.form == "json":
            document = {"meta": {"api-version": "1.1"}, "name": name, "files": listed, "versions": []}
            (page / "index.json").write_text(json.dumps(document))
        else:
            (page / "index.html").write_text(
                "<!DOCTYPE html><html><body>" + "".join(map(link, listed)) + "</body></html>"
            )


def link(entry: dict[str, Any]) -> str:
    yanked = ' data-yanked=""' if entry["yanked"] else ""
    time = f' data-upload-time="{entry["upload-time"]}"'
    address = f"{entry['url']}#sha256={entry['hashes']['sha256']}"
    return f'<a href="{address}"{yanked}{time}>{entry["filename"]}</a><br>'


def metadata(wheel: Path) -> bytes:
    import zipfile

    with zipfile.ZipFile(wheel) as opened:
        name = next(each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        return opened.read(name)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    made = Server(folder)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def shelf(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    # A proxy of this machine is not asked for what is on it.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return Shelf(tmp_path / "served", server, tmp_path / "cache")


Write = Callable[..., Path]


@pytest.fixture
def compat(tmp_path: Path) -> Write:
    """compat(nccl=[...]): a folder of tables of which only the ones that are given have rows."""
    folder = tmp_path / "compat"
    folder.mkdir()

    def write(**content: dict[str, Any]) -> Path:
        for name, tables in content.items():
            lines = ["---", "updated: '2024-01-01'", ""]
            for table, rows in tables.items():
                lines += [
                    f"{table}:" if rows else f"{table}: []",
                    *(line for row in rows for line in compat_tables.lines(row)),
                    "",
                ]
            sources = yaml.safe_dump({"sources": SOURCES})
            (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n" + sources)
        return folder

    return write


@pytest.fixture
def write_cudnn(compat: Write) -> Path:
    """The table of cuDNN's builds as a person writes it: comments, wrapped rows."""
    folder = compat()
    (folder / "cudnn.yaml").write_text(CUDNN)
    return folder


CUDNN = """\
---
# cuDNN, in a few words.
updated: '2024-01-01'

# Published builds.
versions:
  # The first one of version 9.
  - {version: '9.1.0.70', cuda_majors: ['11', '12'], arch: [x86_64], date: '2024-04-22',
     confirmed: true, source: [package_index]}
  - {version: '9.3.0.75', cuda_majors: ['12'], arch: [x86_64], date: '2024-08-05', confirmed: true, source: [package_index]}

# Said elsewhere.
floors:
  - {cuda_major: '13', first: '9.12.0.46', confirmed: true, source: [package_index]}

sources:
  package_index: {title: files, ref: python package index, date: '2024-05-01'}
"""
