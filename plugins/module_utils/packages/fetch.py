# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fetch a file from a repository: a small one as its content, a large one onto the disk. Both go by the node's proxy (proxies)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import socket
import time
import urllib.error
import urllib.request
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import proxies

_LIMIT = 1 << 20
_BLOCK = 1 << 14
_LARGE_BLOCK = 1 << 20
# The largest file of NVIDIA's, a toolkit's, has 5 GB.
_LARGEST = 8 << 30


class FetchError(Exception):
    """A file could not be fetched; the text says from where and why. `timed_out`: the time was up. `status`: what the server answered."""

    def __init__(self, text: str, timed_out: bool = False, status: int | None = None) -> None:
        super().__init__(redact.text(text))
        self.timed_out = timed_out
        self.status = status


class _ByProxy(urllib.request.BaseHandler):
    """Sends each request, that of a redirect too, by the proxy for its own address; another host never gets what lets in at the proxy."""

    # Before the handlers that write the headers.
    handler_order = 100

    def __init__(self, known: proxies.Settings) -> None:
        self._known = known

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        """The request, on its way."""
        proxy = self._known.proxy(request.full_url)
        if proxy is None:
            return request
        if proxy.scheme == "https" and request.type == "https":
            raise proxies.ProxyError(
                f"Expected {proxy.source} to be http://HOST:PORT for an address with https. Found https://. "
                "What to do: name the proxy's port for http"
            )
        request.set_proxy(proxy.place, proxy.scheme)
        if proxy.header:
            request.add_unredirected_header("Proxy-authorization", proxy.header)
        return request

    https_request = http_request


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Goes where a server leads, and never from https to what anybody on the way may read and change."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request to the other place. Raises URLError."""
        if req.type == "https" and not newurl.lower().startswith("https://"):
            raise urllib.error.URLError(f"it leads from https to {newurl.partition(':')[0]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _request(
    url: str, credentials: Iterable[Mapping[str, str]], method: str = "GET", accept: str | None = None
) -> urllib.request.Request:
    """What is asked of a server, with the header that lets in where the address asks for it (RFC 7617)."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 - _checked looked at its scheme
    if accept:
        request.add_header("Accept", accept)
    found = redact.access(url, credentials)
    if found:
        word = base64.b64encode(f"{found.login}:{found.password}".encode()).decode()
        # Another host that the first one names is not let in with it.
        request.add_unredirected_header("Authorization", "Basic " + word)
    return request


def _open(request: urllib.request.Request, timeout: float, known: proxies.Settings, cert: str | None = None) -> Any:
    """The answer of a server, to be read and closed. `cert`: a file with the certificates that are trusted, None for the system's."""
    # Dear to import (certificates, cookies): only a call that fetches pays for it.
    from ansible.module_utils.urls import make_context

    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        _ByProxy(known),
        _Redirect(),
        urllib.request.HTTPSHandler(context=make_context(cafile=cert)),
    )
    return opener.open(request, timeout=timeout)


@contextlib.contextmanager
def _told(url: str, timeout: float, known: proxies.Settings) -> Iterator[None]:
    """What goes wrong inside becomes a FetchError."""
    way = ""
    try:
        proxy = known.proxy(url)
        way = f" by {proxy}" if proxy else ""
        yield
    except proxies.ProxyError as exc:
        raise FetchError(f"{url} could not be fetched: {exc}") from exc
    except urllib.error.HTTPError as exc:
        raise FetchError(f"{url} answered {exc.code} {exc.reason}{way}", status=exc.code) from exc
    except urllib.error.URLError as exc:
        late = isinstance(exc.reason, (socket.timeout, TimeoutError))
        raise FetchError(f"{url} could not be reached{way}: {exc.reason}", timed_out=late) from exc
    except (socket.timeout, TimeoutError) as exc:
        raise FetchError(f"{url} did not answer within {timeout:g} s{way}", timed_out=True) from exc
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise FetchError(f"{url} could not be fetched{way}: {exc}") from exc


def _checked(url: str) -> None:
    if not url.startswith(("http://", "https://", "file:///")):
        raise FetchError(f"{url!r} is no address that can be fetched: expected http://, https:// or file:///")


def fetch(url: str, timeout: float = 30.0, credentials: Iterable[Mapping[str, str]] = ()) -> bytes:
    """Content of `url` (http, https or file), at most 1 MiB, within `timeout` seconds for everything. Raises FetchError.

    `credentials` (machine, login, password): those of its machine are sent, and are in no message.
    """
    _checked(url)
    known = proxies.settings()
    end = time.monotonic() + timeout
    with _told(url, timeout, known), _open(_request(url, credentials), timeout, known) as answer:
        content = _content(answer, _LIMIT, end)
    if len(content) > _LIMIT:
        raise FetchError(f"{url} is larger than 1 MiB; that is no key file")
    return content


def _content(answer: Any, limit: int, end: float) -> bytes:
    """What a server sends, up to a block more than `limit` bytes. Raises socket.timeout at `end` (of time.monotonic)."""
    blocks: list[bytes] = []
    size = 0
    # A limit for each read is none for the whole: a slow server must not hold the run.
    while size <= limit:
        block = answer.read(_BLOCK)
        if not block:
            break
        blocks.append(block)
        size += len(block)
        if time.monotonic() > end:
            raise socket.timeout("timed out")
    return b"".join(blocks)


class Page(NamedTuple):
    """What a server answered. `url`: where it came from in the end; `kind`: its media type, as it is said."""

    url: str
    kind: str
    content: bytes


class Visitor(NamedTuple):
    """How a server is asked: by which proxies, with which certificates (a file, None for the system's), as whom."""

    known: proxies.Settings
    cert: str | None
    credentials: Iterable[Mapping[str, str]]

    def page(self, url: str, accept: str, timeout: float, limit: int) -> Page:
        """A page of at most `limit` bytes, within `timeout` seconds for everything. Raises FetchError."""
        _checked(url)
        end = time.monotonic() + timeout
        with _told(url, timeout, self.known), self._open(url, timeout, accept=accept) as answer:
            content = _content(answer, limit, end)
            found = Page(answer.geturl(), answer.headers.get("Content-Type") or "", content)
        if len(content) > limit:
            raise FetchError(f"{url} is larger than {limit >> 20} MiB")
        return found

    def size(self, url: str, timeout: float) -> int | None:
        """The bytes of a file, as its server says without sending it; None where it does not say. Raises FetchError."""
        _checked(url)
        with _told(url, timeout, self.known), self._open(url, timeout, "HEAD") as answer:
            said = str(answer.headers.get("Content-Length") or "")
        return int(said) if said.isdigit() and len(said) < 16 else None

    def _open(self, url: str, timeout: float, method: str = "GET", accept: str | None = None) -> Any:
        return _open(_request(url, self.credentials, method, accept), timeout, self.known, self.cert)


def download(url: str, path: str, timeout: float = 60.0, credentials: Iterable[Mapping[str, str]] = ()) -> str:
    """Write what `url` has to `path`, for its owner alone, and return its SHA-256. Raises FetchError.

    `timeout`: seconds that the server may be silent. What could not be fetched whole is taken away, as what has more than 8 GiB.
    `credentials`: as for fetch.
    """
    _checked(url)
    known = proxies.settings()
    digest, size = hashlib.sha256(), 0
    try:
        with _told(url, timeout, known), _open(_request(url, credentials), timeout, known) as answer:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                for block in iter(lambda: answer.read(_LARGE_BLOCK), b""):
                    size += len(block)
                    if size > _LARGEST:
                        raise OSError(f"it has more than {_LARGEST >> 30} GiB")
                    digest.update(block)
                    out.write(block)
            if getattr(answer, "length", None):
                raise OSError(f"the connection ended with {answer.length} bytes to come")
    except FetchError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise
    return digest.hexdigest()
