# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the Python index that pip is configured for: the files of a project, and what a wheel says of itself.

Only METADATA is read, never a whole wheel of gigabytes: from the file beside the wheel where the index has one (PEP 658), else from
the wheel's end by ranges of bytes. What was read is kept under .cache/compat/, by the wheel's digest.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pypi_simple
import requests
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "compat"
# The ends of a wheel that are asked for, in this order: the list of its files is nearly always in the first.
BLOCK = 64 * 1024
# A wheel that is loaded whole when the index has neither METADATA beside it nor ranges.
SMALL = 8 * 1024 * 1024
# What an abi3 wheel for 3.x serves goes up to here.
NEWEST_PYTHON = 15
ARCHES = ("x86_64", "aarch64")


class IndexProblem(Exception):
    """The index could not be read, or does not say what is needed."""


@dataclass(frozen=True)
class File:
    """One file of a project on the index."""

    project: str
    name: str
    version: Version
    url: str = ""
    sha256: str | None = None
    yanked: bool = False
    requires_python: str | None = None
    uploaded: str | None = None
    has_metadata: bool = False
    tags: frozenset[Tag] = field(default=frozenset(), repr=False)

    @property
    def wheel(self) -> bool:
        """Whether it is a wheel, not sources."""
        return bool(self.tags)

    @cached_property
    def arches(self) -> frozenset[str]:
        """The architectures of Linux that the wheel is for."""
        names = {tag.platform for tag in self.tags if "linux" in tag.platform and "musl" not in tag.platform}
        return frozenset(arch for arch in ARCHES if any(name.endswith(arch) for name in names))

    @cached_property
    def pythons(self) -> frozenset[str]:
        """The versions of CPython, with the interpreter lock, that the wheel is for; empty for a wheel of any Python 3."""
        found: set[str] = set()
        for tag in self.tags:
            if not tag.interpreter.startswith("cp3") or tag.abi.endswith("t"):
                continue
            minor = int(tag.interpreter.removeprefix("cp3"))
            last = max(minor, NEWEST_PYTHON) if tag.abi == "abi3" else minor
            found |= {f"3.{each}" for each in range(minor, last + 1)}
        return frozenset(found)


@dataclass(frozen=True)
class Metadata:
    """What a wheel says of itself."""

    requires: tuple[Requirement, ...]
    extras: tuple[str, ...]

    def needs(self, name: str, *, extra: str = "", arch: str = "x86_64", python: str = "") -> str | None:
        """The specifier for a package with this extra on Linux; None when it is not asked for."""
        found = [each for each in self.requirements(extra, arch, python) if canonicalize_name(each.name) == name]
        return str(found[0].specifier) if found else None

    def named(self, extra: str, arch: str = "x86_64") -> list[Requirement]:
        """What an extra adds on Linux."""
        bare = {str(each) for each in self.requirements("", arch)}
        return [each for each in self.requirements(extra, arch) if str(each) not in bare]

    def requirements(self, extra: str = "", arch: str = "x86_64", python: str = "") -> Iterator[Requirement]:
        """What is asked for on Linux, with an extra or without."""
        environment = {
            "extra": extra,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "platform_machine": arch,
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
        }
        if python:
            environment |= {"python_version": python, "python_full_version": f"{python}.0"}
        for each in self.requires:
            if each.marker is None or each.marker.evaluate(environment):
                yield each


class Index(Protocol):
    """What the comparison needs of an index."""

    def files(self, project: str) -> list[File]:
        """Every file of a project, oldest release first; empty when the index has no such project."""

    def metadata(self, file: File) -> Metadata:
        """What a wheel says of itself."""


def address() -> str:
    """The index that pip is configured for, or the default one."""
    named = os.environ.get("PIP_INDEX_URL")
    if named:
        return named
    for key in ("global.index-url", "install.index-url"):
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", key], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return pypi_simple.PYPI_SIMPLE_ENDPOINT


def session(retries: int = 5) -> requests.Session:
    """A session that trusts the certificates that pip is told to trust and asks again when a server is busy."""
    made = requests.Session()
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("PIP_CERT")
    if bundle:
        made.verify = bundle
    policy = Retry(total=retries, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504))
    for scheme in ("https://", "http://"):
        made.mount(scheme, HTTPAdapter(max_retries=policy, pool_maxsize=16))
    return made


class PythonIndex:
    """An index of the simple API."""

    def __init__(self, base: str | None = None, cache: Path = CACHE) -> None:
        self._base = base or address()
        self._cache = cache
        self._local = threading.local()
        self._pages: dict[str, list[File]] = {}

    @property
    def _client(self) -> pypi_simple.PyPISimple:
        # A requests session is not shared between threads.
        if not hasattr(self._local, "client"):
            self._local.client = pypi_simple.PyPISimple(endpoint=self._base, session=session())
        client: pypi_simple.PyPISimple = self._local.client
        return client

    def files(self, project: str) -> list[File]:
        """Every file of a project, oldest release first; empty when the index has no such project."""
        if project not in self._pages:
            self._pages[project] = sorted(self._page(project), key=lambda each: (each.version, each.name))
        return self._pages[project]

    def _page(self, project: str) -> Iterator[File]:
        url = self._client.get_project_url(project)
        try:
            answer = self._client.s.get(url, headers={"Accept": pypi_simple.ACCEPT_ANY}, timeout=120)
            if answer.status_code == requests.codes.not_found:
                return
            answer.raise_for_status()
        except requests.RequestException as error:
            raise IndexProblem(f"the page of {project} on the Python index could not be read: {error}") from error
        if "json" in answer.headers.get("content-type", ""):
            page = pypi_simple.ProjectPage.from_response(answer, project)
            pairs = [
                (each, each.upload_time.date().isoformat() if each.upload_time else None) for each in page.packages
            ]
        else:
            # The HTML form has no upload time; some indexes add one as an attribute of their own.
            links = pypi_simple.RepositoryPage.from_html(answer.text, base_url=answer.url).links
            pairs = [
                (
                    pypi_simple.DistributionPackage.from_link(link, project),
                    (link.get_str_attrib("data-upload-time") or "")[:10] or None,
                )
                for link in links
            ]
        for package, uploaded in pairs:
            made = _file(project, package, uploaded)
            if made:
                yield made

    def metadata(self, file: File) -> Metadata:
        """What a wheel says of itself, from the cache if it was asked before."""
        kept = self._cache / "metadata" / f"{file.sha256}.txt" if file.sha256 else None
        if kept and kept.exists():
            return read_metadata(kept.read_text(encoding="utf-8"))
        try:
            text = self._load(file)
        except (requests.RequestException, zipfile.BadZipFile, KeyError, OSError) as error:
            raise IndexProblem(f"METADATA of {file.name} could not be read: {error}") from error
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Two threads may write the same text; neither may leave half of it.
            part = kept.with_suffix(f".{threading.get_ident()}")
            part.write_text(text, encoding="utf-8")
            part.replace(kept)
        return read_metadata(text)

    def _load(self, file: File) -> str:
        if file.has_metadata:
            beside = self._client.s.get(f"{file.url}.metadata", timeout=120)
            if beside.ok:
                return beside.content.decode("utf-8")
        with RemoteFile(self._client.s, file.url) as remote, zipfile.ZipFile(remote) as wheel:
            name = next(
                each for each in wheel.namelist() if each.count("/") == 1 and each.endswith(".dist-info/METADATA")
            )
            return wheel.read(name).decode("utf-8")


class RemoteFile(io.RawIOBase):
    """A file behind an address, read by ranges of bytes; loaded whole when it is small and the server knows no ranges."""

    def __init__(self, client: requests.Session, url: str) -> None:
        super().__init__()
        self._client = client
        self._url = url
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        first = self._ask(f"bytes=-{BLOCK}")
        if first.status_code == requests.codes.partial_content:
            self._size = int(first.headers["content-range"].rpartition("/")[2])
            self._tail = first.content
        elif int(first.headers.get("content-length", SMALL + 1)) <= SMALL:
            self._tail = first.content
            self._size = len(self._tail)
        else:
            first.close()
            raise IndexProblem(
                f"the server of {url.rpartition('/')[2]} gives no ranges of bytes: its METADATA is out of reach"
            )

    def _ask(self, wanted: str) -> requests.Response:
        # Streamed, so that an answer that is the whole wheel is not loaded before its size is looked at.
        answer = self._client.get(
            self._url, headers={"Range": wanted, "Accept-Encoding": "identity"}, timeout=120, stream=True
        )
        answer.raise_for_status()
        return answer

    def readable(self) -> bool:
        """As io.IOBase has it."""
        return True

    def seekable(self) -> bool:
        """As io.IOBase has it."""
        return True

    def tell(self) -> int:
        """As io.IOBase has it."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As io.IOBase has it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Ask for the blocks that hold these bytes, each once."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        data = self._between(self._position, end)
        self._position += len(data)
        return data

    def _between(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        begin = self._size - len(self._tail)
        if start >= begin:
            return self._tail[start - begin : end - begin]
        parts = []
        for number in range(start // BLOCK, (end - 1) // BLOCK + 1):
            if number not in self._blocks:
                last = min((number + 1) * BLOCK, self._size) - 1
                self._blocks[number] = self._ask(f"bytes={number * BLOCK}-{last}").content
            parts.append(self._blocks[number])
        skipped = start % BLOCK
        return b"".join(parts)[skipped : skipped + end - start]


def _file(project: str, package: pypi_simple.DistributionPackage, uploaded: str | None) -> File | None:
    """The file as the comparison wants it; None for eggs, installers and names that say no version."""
    tags: frozenset[Tag] = frozenset()
    try:
        if package.package_type == "wheel":
            _, version, _, tags = parse_wheel_filename(package.filename)
        elif package.package_type == "sdist":
            _, version = parse_sdist_filename(package.filename)
        else:
            return None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    return File(
        project=project,
        name=package.filename,
        version=version,
        url=package.url,
        sha256=package.digests.get("sha256"),
        yanked=package.is_yanked,
        requires_python=package.requires_python,
        uploaded=uploaded,
        has_metadata=bool(package.has_metadata),
        tags=tags,
    )


def read_metadata(text: str) -> Metadata:
    """METADATA's headers: what is required, and the extras."""
    headers = HeaderParser().parsestr(text)
    return Metadata(
        requires=tuple(Requirement(each) for each in headers.get_all("Requires-Dist") or ()),
        extras=tuple(headers.get_all("Provides-Extra") or ()),
    )


def preload(index: Index, wheels: Iterable[File], done: Progress) -> dict[str, Metadata]:
    """METADATA of many wheels by file name, eight at a time."""
    wanted = list({each.name: each for each in wheels}.values())
    done.more(len(wanted))

    def one(file: File) -> tuple[str, Metadata]:
        read = index.metadata(file)
        done.step(file.name)
        return file.name, read

    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(pool.map(one, wanted))


class Progress(Protocol):
    """Who is told how far the reading is."""

    def more(self, count: int) -> None:
        """There is this much more to do."""

    def step(self, what: str) -> None:
        """One is done."""


class Silent:
    """Progress that nobody looks at."""

    def more(self, count: int) -> None:
        """Say nothing."""

    def step(self, what: str) -> None:
        """Say nothing."""
