# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A page of a Python index as the files that it names: the simple API as JSON (PEP 691, sizes by PEP 700) and as HTML (PEP 503, PEP 592).

Pure. A page may say anything: what is no file name of an index, no digest and no size is left out.
"""

from __future__ import annotations

import json
import posixpath
import re
from html.parser import HTMLParser
from typing import Iterator, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
"""What an index is asked for: JSON where it has that (PEP 691)."""

_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = ("application/vnd.pypi.simple.v1+html", "text/html")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_REQUIRES = re.compile(r"^[0-9A-Za-z.,<>=!~*+ -]{1,200}\Z")
# Bytes. No wheel has more.
_LARGEST = 1 << 48


class PageError(ValueError):
    """It is no page of an index; the text says what it is instead."""


class Link(NamedTuple):
    """A file that a page names. ``size`` (bytes), ``sha256`` and ``requires_python`` are None where the page does not say them."""

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None
    yanked: bool = False
    requires_python: str | None = None


def links(content: bytes, kind: str, url: str) -> list[Link]:
    """The files that a page names. ``kind``: its media type; ``url``: where it came from in the end. Raises PageError."""
    media = kind.partition(";")[0].strip().lower()
    if media == _JSON:
        return list(_of_json(content, url))
    if media in _HTML:
        return list(_of_html(content, url))
    raise PageError(f"it is {media[:100] or 'of no type'}, and no page of a Python index")


def _of_json(content: bytes, url: str) -> Iterator[Link]:
    try:
        page = json.loads(content.decode("utf-8"))
        files, version = page["files"], str(page["meta"]["api-version"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise PageError("it is no JSON of a Python index") from None
    if version.partition(".")[0] != "1" or not isinstance(files, list):
        raise PageError("it is JSON of another kind of index")
    for row in files:
        if isinstance(row, dict) and isinstance(row.get("filename"), str) and isinstance(row.get("url"), str):
            hashes = row.get("hashes")
            sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
            found = _link(row["filename"], url, row["url"], sha256, row.get("requires-python"))
            if found:
                yield found._replace(size=_size(row.get("size")), yanked=row.get("yanked", False) is not False)


def _size(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= _LARGEST else None


def _link(name: str, base: str, href: str, sha256: object, requires: object) -> Link | None:
    """A file by what is said of it; None for what is none."""
    if not _NAME.match(name):
        return None
    try:
        url = urljoin(base, href)
    except ValueError:
        return None
    return Link(
        name,
        url,
        sha256=sha256 if isinstance(sha256, str) and _SHA256.match(sha256) else None,
        # pip takes what it does not understand for nothing said, too.
        requires_python=requires if isinstance(requires, str) and _REQUIRES.match(requires) else None,
    )


def _of_html(content: bytes, url: str) -> Iterator[Link]:
    page = _Page(url)
    try:
        page.feed(content.decode("utf-8", "replace"))
    except (
        ValueError,
        AssertionError,
        NotImplementedError,
    ):  # the last is Python 3.8's and 3.9's word for broken markup
        raise PageError("it is broken HTML") from None
    for href, more in page.anchors:
        try:
            parts = urlsplit(urljoin(page.base, href))
        except ValueError:
            continue
        sha256 = re.search(r"(?:^|&)sha256=([0-9a-f]{64})(?:&|\Z)", parts.fragment)
        name = posixpath.basename(unquote(parts.path))
        found = _link(
            name,
            page.base,
            href.partition("#")[0],
            sha256.group(1) if sha256 else None,
            more.get("data-requires-python"),
        )
        if found:
            yield found._replace(yanked="data-yanked" in more)


class _Page(HTMLParser):
    """Collects the anchors of a page, and what their addresses are relative to."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.base = url
        self.anchors: list[tuple[str, dict[str, str | None]]] = []
        self._based = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element: its attributes are decoded already."""
        given = dict(attrs)
        href = given.get("href")
        if not href:
            return
        if tag == "base" and not self._based:
            self._based = True
            self.base = urljoin(self.base, href)
        elif tag == "a":
            self.anchors.append((href, given))
