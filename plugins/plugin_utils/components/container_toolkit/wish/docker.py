# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of Docker that may be wished, by the names that its daemon.json has for them, and read into its own form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ....model.errors import BadInput

VARIABLE = "container_toolkit_docker"
_EXAMPLE = "container_toolkit_docker: {log-driver: local, log-opts: {max-size: 50m}}"
_SIZE = lazy(r"\d{1,15}(?:[kmgt]?b?)?", re.ASCII | re.IGNORECASE)
_WORD = lazy(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}", re.ASCII)
_PATH = lazy(r"/(?!(?:.*/)?\.\.(?:/|\Z))[^\x00-\x1f\x7f]{1,1024}")
_ADDRESS = lazy(r"https?://[^\s/@]+(?:/[^\s@]*)?", re.ASCII)
_YES, _NO = ("true", "yes", "on"), ("false", "no", "off")
_UNLIMITED = -1


def read(given: object) -> dict[str, object]:
    """The settings, as Docker takes them. Raises BadInput for one that does not exist or cannot be read."""
    if not isinstance(given, Mapping):
        raise BadInput(f"{VARIABLE} has to map settings of Docker to values, found {type(given).__name__}", [_EXAMPLE])
    unknown = [str(name) for name in given if name not in _SETTINGS]
    if unknown:
        raise BadInput(f"{VARIABLE}: {unknown[0]!r} is no setting that can be wished", list(_SETTINGS))
    return {str(name): _SETTINGS[name](value, f"{VARIABLE}: {name}") for name, value in given.items()}


def _matching(pattern: re.Pattern[str], kind: str, example: str) -> Callable[[object, str], str]:
    def reader(value: object, what: str) -> str:
        text = "" if isinstance(value, (bool, Mapping, list)) else str(value).strip()
        if not pattern.fullmatch(text):
            raise BadInput(f"{what}: {str(value)[:80]!r} is no {kind}", [example])
        return text

    return reader


def _address(value: object, what: str) -> str:
    """An address of http or https. Its password would stand in daemon.json and in records, for all to read."""
    text = str(value).strip()
    try:
        secret = redact.without_credentials(text) != text
    except redact.CredentialsError:
        secret = True
    if secret or "@" in text:
        raise BadInput(
            f"{what}: an address with a user or a password is not written into daemon.json, which everybody may read: give Docker that one "
            "in the environment of its service (HTTPS_PROXY in a file of /etc/systemd/system/docker.service.d that root alone reads)"
        )
    if not _ADDRESS.fullmatch(text):
        raise BadInput(f"{what}: {text[:80]!r} is no address", ["https://mirror.example"])
    return text


def _addresses(value: object, what: str) -> list[str]:
    return [_address(each, what) for each in (value if isinstance(value, (list, tuple)) else [value])]


def _flag(value: object, what: str) -> bool:
    word = str(value).strip().lower()
    if word not in (*_YES, *_NO):
        raise BadInput(f"{what}: expected true or false, found {str(value)[:80]!r}", ["true", "false"])
    return word in _YES


def _options(value: object, what: str) -> dict[str, str]:
    """Options of a log driver: texts, also where they are numbers."""
    if not isinstance(value, Mapping) or not value:
        raise BadInput(f"{what}: write options such as {{max-size: 50m, max-file: 3}}", [_EXAMPLE])
    return {str(name): str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def _proxies(value: object, what: str) -> dict[str, str]:
    names = ("http-proxy", "https-proxy", "no-proxy")
    if not isinstance(value, Mapping) or not value or any(name not in names for name in value):
        raise BadInput(f"{what}: write some of {', '.join(names)}", ["{https-proxy: http://proxy.example:3128}"])
    return {
        str(name): ",".join(map(str, each))
        if isinstance(each, (list, tuple))
        else str(each)
        if name == "no-proxy"
        else _address(each, f"{what} {name}")
        for name, each in value.items()
    }


def _ulimits(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, Mapping) or not value:
        raise BadInput(f"{what}: write limits such as {{memlock: unlimited, stack: 67108864}}")
    return {str(name): _ulimit(str(name), each, what) for name, each in value.items()}


def _ulimit(name: str, value: object, what: str) -> dict[str, object]:
    """One limit, as Docker takes it; one number stands for both of them."""
    both = value if isinstance(value, Mapping) else {"soft": value, "hard": value}
    if not _WORD.fullmatch(name) or set(both) != {"soft", "hard"}:
        raise BadInput(f"{what} {name}: write a number, unlimited, or {{soft: 1024, hard: 4096}}")
    soft, hard = (_limit(both[key], f"{what} {name}") for key in ("soft", "hard"))
    return {"Name": name, "Hard": hard, "Soft": soft}


def _limit(value: object, what: str) -> int:
    text = str(value).strip().lower()
    if text in ("unlimited", str(_UNLIMITED)):
        return _UNLIMITED
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise BadInput(f"{what}: {str(value)[:80]!r} is no limit", ["unlimited", "67108864"])
    return int(text)


_SETTINGS: Mapping[str, Callable[[object, str], object]] = {
    "log-driver": _matching(_WORD, "log driver", "local"),
    "log-opts": _options,
    "data-root": _matching(_PATH, "absolute path", "/data/docker"),
    "default-shm-size": _matching(_SIZE, "size", "8g"),
    "default-ulimits": _ulimits,
    "registry-mirrors": _addresses,
    "proxies": _proxies,
    "live-restore": _flag,
}
