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
from typing import Mapping, NamedTuple, Sequence
from urllib.parse import urlsplit

FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf")
"""Files of the machine's own configuration, in pip's order."""

PYPI = "https://pypi.org/simple"
"""The index of a pip that nobody configured."""

_SECTIONS = ("global", "install")
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

    def of(self, urls: Sequence[str]) -> Settings:
        """The same where indexes are named: they are the only ones, as far as any may be asked."""
        return self._replace(indexes=list(urls)) if urls and self.indexes else self

    def ignores(self, url: str) -> bool:
        """Whether pip takes nothing from an address: it is plain HTTP to another machine, of which nobody said that it may be trusted."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        local = host in ("localhost", "::1") or host.startswith("127.")
        return parts.scheme == "http" and not local and not {host, f"{host}:{port}"} & set(self.trusted)


def read(paths: Sequence[str] = FILES) -> Settings:
    """The machine's own configuration; a file that is not there says nothing. Raises PipSettingsError."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in paths:
        parsed = _parsed(path)
        for section in _SECTIONS:
            if parsed.has_section(section):
                sections[section].update((_key(key), value or "") for key, value in parsed.items(section))
    # An empty value says nothing beside one of the other section.
    return _settings({**sections["global"], **{key: value for key, value in sections["install"].items() if value}})


def _settings(values: Mapping[str, str]) -> Settings:
    indexes = [values.get("index-url") or PYPI, *(values.get("extra-index-url") or "").split()]
    if (values.get("no-index") or "").strip().lower() in _TRUE:
        indexes = []
    return Settings(
        list(dict.fromkeys(indexes)),
        list(dict.fromkeys((values.get("find-links") or "").split())),
        values.get("cert") or None,
        values.get("proxy") or None,
        [each.lower() for each in (values.get("trusted-host") or "").split()],
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
