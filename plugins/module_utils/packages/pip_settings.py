# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the pip that `wheels` runs looks for files: the machine's own configuration, or the indexes that are named for it.

`wheels` runs pip with --isolated and a configuration of its own, so neither variables (PIP_INDEX_URL) nor a user's file count for it, and
what is asked here has to be what it would ask. Read as pip 20 to 25 read it (pip/_internal/configuration.py): a later file goes before an
earlier one, section install before global, and no-index and find-links hold where indexes are named, too.
"""

from __future__ import annotations

import configparser
import os
import sys
from typing import Callable, Mapping, NamedTuple, Sequence
from urllib.parse import urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import run

FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf")
"""Files of the machine's own configuration, in pip's order."""

# Prints the index of a pip that nobody configured: of the one that is installed, else of the one that environments are made with.
_DEFAULT = """
try:
    from pip._internal.models.index import PyPI
except ImportError:
    import ensurepip, glob, os, sys, sysconfig
    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR"), os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
    sys.path += [wheel for folder in folders if folder for wheel in sorted(glob.glob(os.path.join(folder, "pip-*.whl")))]
    from pip._internal.models.index import PyPI
print(PyPI.simple_url)
"""
_SECONDS = 20
_UNKNOWN = "no index-url is configured in /etc/pip.conf, and no pip is there yet that says which index it takes then"

_SECTIONS = ("global", "install")
_READ = ("index-url", "extra-index-url", "find-links", "cert", "proxy", "trusted-host", "no-index")
# What says nothing of which file comes from where, and what another program does by itself.
_NO_MATTER = (
    "break-system-packages",
    "cache-dir",
    "compile",
    "default-timeout",
    "disable-pip-version-check",
    "log",
    "no-cache-dir",
    "no-color",
    "no-input",
    "no-warn-script-location",
    "prefer-binary",
    "progress-bar",
    "quiet",
    "retries",
    "root-user-action",
    "timeout",
    "user",
    "verbose",
)
_TRUE = ("y", "yes", "t", "true", "on", "1")


class PipSettingsError(Exception):
    """The configuration could not be read; the text says which file and why."""


class Settings(NamedTuple):
    """What pip is set to. The addresses may have users and passwords: they are for no text that anybody reads."""

    indexes: list[str]
    links: list[str]
    """Pages, files and directories that files are found in (find-links)."""
    cert: str | None
    """A file with the certificates that are trusted instead of the system's."""
    proxy: str | None
    trusted: Sequence[str] = ()
    """Hosts, some with a port, that may be asked by plain HTTP."""
    no_index: bool = False
    """Whether no index may be asked, the named ones neither."""
    unknown: str | None = None
    """Why it is not known which index pip takes where none is named."""
    others: Sequence[str] = ()
    """What else is set that bears on what comes from where: another program than pip does not know it."""

    def of(self, urls: Sequence[str]) -> Settings:
        """The same where indexes are named: they are the only ones, as far as any may be asked; "" stands for the machine's own."""
        if not urls or self.no_index:
            return self
        indexes = [each for url in urls for each in ([url] if url else self.indexes)]
        return self._replace(indexes=indexes, unknown=None if all(urls) else self.unknown)

    def ignores(self, url: str) -> bool:
        """Whether pip takes nothing from an address: it is plain HTTP to another machine, of which nobody said that it may be trusted."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        local = host in ("localhost", "::1") or host.startswith("127.")
        return parts.scheme == "http" and not local and not {host, f"{host}:{port}"} & set(self.trusted)


def default_index() -> str | None:
    """The index of a pip that nobody configured, as this interpreter's pip says it; None where there is no pip."""
    said = run.run([sys.executable, "-I", "-c", _DEFAULT], timeout=_SECONDS)
    return said.out.strip() or None if said.ok else None


def read(paths: Sequence[str] = FILES, default: Callable[[], str | None] = default_index) -> Settings:
    """The machine's own configuration; a file that is not there says nothing. Raises PipSettingsError."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in paths:
        parsed = _parsed(path)
        for section in _SECTIONS:
            if parsed.has_section(section):
                sections[section].update((_key(key), value or "") for key, value in parsed.items(section))
    # An empty value says nothing beside one of the other section.
    return _settings(
        {**sections["global"], **{key: value for key, value in sections["install"].items() if value}}, default
    )


def _settings(values: Mapping[str, str], default: Callable[[], str | None]) -> Settings:
    no_index = (values.get("no-index") or "").strip().lower() in _TRUE
    first = None if no_index else values.get("index-url") or default()
    more = [] if no_index else (values.get("extra-index-url") or "").split()
    return Settings(
        list(dict.fromkeys([*([first] if first else []), *more])),
        list(dict.fromkeys((values.get("find-links") or "").split())),
        values.get("cert") or None,
        values.get("proxy") or None,
        [each.lower() for each in (values.get("trusted-host") or "").split()],
        no_index,
        None if first or no_index else _UNKNOWN,
        sorted(key for key, value in values.items() if value and key not in (*_READ, *_NO_MATTER)),
    )


def _parsed(path: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    if not os.path.exists(path):
        return parser
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            parser.read_file(stream)
    except (OSError, configparser.Error) as exc:
        # What configparser says has lines of the file in it, and these may have a password.
        reason = exc.strerror if isinstance(exc, OSError) else "it is no configuration"
        raise PipSettingsError(f"pip's configuration {path} could not be read: {reason}") from None
    return parser


def _key(name: str) -> str:
    """A key as pip compares it."""
    name = name.lower().replace("_", "-")
    return name[2:] if name.startswith("--") else name
