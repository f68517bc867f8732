# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fetch a small file from a repository within a time limit."""

from __future__ import annotations

import base64
import socket
import time
import urllib.error
from typing import Iterable, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils import redact

_LIMIT = 1 << 20
_BLOCK = 1 << 14


class FetchError(Exception):
    """A file could not be fetched; the text says from where and why. `timed_out`: the time was up."""

    def __init__(self, text: str, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


def _headers(url: str, credentials: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The header that lets in where the address asks for it (RFC 7617)."""
    found = redact.access(url, credentials)
    if found is None:
        return {}
    word = base64.b64encode(f"{found.login}:{found.password}".encode()).decode()
    return {"Authorization": "Basic " + word}


def _download(url: str, timeout: float, headers: Mapping[str, str]) -> bytes:
    """Content of `url`, at most a little more than the limit."""
    end = time.monotonic() + timeout
    content = b""
    # Dear to import (certificates, cookies): only a call that fetches pays for it.
    from ansible.module_utils.urls import open_url

    # Another host that the first one names is not let in with it.
    with open_url(url, timeout=timeout, headers=dict(headers), unredirected_headers=["authorization"]) as answer:
        # A limit for each read is none for the whole: a slow server must not hold the run.
        while len(content) <= _LIMIT:
            block = answer.read(_BLOCK)
            if not block:
                break
            content += block
            if time.monotonic() > end:
                raise socket.timeout("timed out")
    return content


def fetch(url: str, timeout: float = 30.0, credentials: Iterable[Mapping[str, str]] = ()) -> bytes:
    """Content of `url` (http, https or file; proxies as the environment names them), at most 1 MiB. Raises FetchError.

    `credentials` (machine, login, password): those of its machine are sent, and are in no message.
    """
    if not url.startswith(("http://", "https://", "file:///")):
        raise FetchError(f"{url!r} is no address that can be fetched: expected http://, https:// or file:///")
    try:
        content = _download(url, timeout, _headers(url, credentials))
    except urllib.error.HTTPError as exc:
        raise FetchError(f"{url} answered {exc.code} {exc.reason}") from exc
    except urllib.error.URLError as exc:
        late = isinstance(exc.reason, (socket.timeout, TimeoutError))
        raise FetchError(f"{url} could not be reached: {exc.reason}", timed_out=late) from exc
    except (socket.timeout, TimeoutError) as exc:
        raise FetchError(f"{url} did not answer within {timeout:g} s", timed_out=True) from exc
    except (OSError, ValueError) as exc:
        raise FetchError(f"{url} could not be fetched: {exc}") from exc
    if len(content) > _LIMIT:
        raise FetchError(f"{url} is larger than 1 MiB; that is no key file")
    return content
