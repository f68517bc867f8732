# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's archive as apt reads it: through this machine's mirrors, proxies and keys, in private directories. No root is needed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.sim import image

_SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_COMPONENTS = "main contrib non-free non-free-firmware"
_LIMIT_SECONDS = 300


class ArchiveProblem(Exception):
    """The archive cannot be read; the text says what to do."""


@dataclass(frozen=True)
class Package:
    """A package's stanza of the index: its fields, by the names that they have there."""

    fields: dict[str, str]

    @property
    def version(self) -> str:
        """With epoch and revision."""
        return self.fields["Version"]

    @property
    def component(self) -> str:
        """Debian writes it before the section, but for `main`."""
        component, slash, _section = self.fields.get("Section", "").partition("/")
        return component if slash else "main"


def sources_of(codename: str) -> str:
    """The lines of a sources.list for a Debian release with its updates, at the mirrors that this machine's apt uses.

    Raises:
        ArchiveProblem: its sources name none.
    """
    main = image.debian_mirror()
    texts = [path.read_text(errors="replace") for path in _files()]
    security = next((found for text in texts if (found := security_mirror(text))), None)
    if main is None or security is None:
        kind = "Debian mirror" if main is None else "mirror of Debian's security updates"
        raise ArchiveProblem(f"expected a {kind} in this machine's apt sources, found none: add it, then run again")
    places = [(main, codename), (main, f"{codename}-updates"), (security, f"{codename}-security")]
    return "".join(f"deb [signed-by={_KEYRING}] {address} {suite} {_COMPONENTS}\n" for address, suite in places)


def _files() -> list[Path]:
    one, folder = _SOURCES
    return [path for path in (one, *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))) if path.is_file()]


def security_mirror(text: str) -> str | None:
    """The address of the first source, of either format, whose suite is a release's security updates."""
    text = re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(URIs|Suites):\s*(.+)$", stanza, re.MULTILINE))
        if any(suite.endswith("-security") for suite in fields.get("Suites", "").split()):
            return str(fields["URIs"].split()[0])
    line = re.search(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+\S+-security\s", text, re.MULTILINE)
    return line[1] if line else None


class Archive:
    """One release of Debian for one architecture, on which nothing is installed."""

    def __init__(self, folder: Path, sources: str) -> None:
        """
        Args:
            folder: where apt keeps what it reads; it is made.
            sources: the lines of a sources.list.
        """
        self._folder = folder
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "sources.list").write_text(sources)
        (folder / "status").touch()
        settings = {
            "Dir::State::Lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            # A machine may be told to keep none, and apt then reads everything anew at each question.
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": folder / "parts",
            "Dir::Etc::Preferences": folder / "parts/none",
            "Dir::Etc::PreferencesParts": folder / "parts",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        self._options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> None:
        """Read the indexes.

        Raises:
            ArchiveProblem: apt could not read all of them; with its last words.
        """
        done = self._apt("apt-get", "-q", "--error-on=any", "update")
        if done.returncode != 0:
            raise ArchiveProblem(f"apt could not read the archive:\n{(done.stdout + done.stderr)[-1500:].strip()}")

    def find(self, name: str) -> Package | None:
        """The newest package of this name; None where there is none."""
        stanza = self._stanzas.get(name)
        return Package(dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))) if stanza else None

    def names(self, pattern: str) -> list[str]:
        """Every name that is as the regular expression, in order."""
        return sorted(name for name in self._stanzas if re.fullmatch(pattern, name))

    @cached_property
    def _stanzas(self) -> dict[str, str]:
        stanzas = self._apt("apt-cache", "dumpavail").stdout.split("\n\n")
        return {named[1]: stanza for stanza in stanzas if (named := re.match(r"Package: (\S+)", stanza))}

    def install(self, names: Iterable[str]) -> set[str] | None:
        """What apt would install for these names, without what is only recommended; None where it cannot."""
        done = self._apt("apt-get", "-s", "-q", "--no-install-recommends", "install", *names)
        if done.returncode != 0:
            return None
        return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")}

    def files(self, name: str) -> list[str]:
        """The paths of the newest package of this name, which is fetched.

        Raises:
            ArchiveProblem: it could not be fetched.
        """
        command = f"dpkg-deb --fsys-tarfile {shlex.quote(str(self._fetched(name)))} | tar -t"
        return sorted(line.lstrip(".") for line in _said(command).splitlines())

    def content(self, name: str, path: str) -> str:
        """The text of a file of that package; empty where it has none."""
        package = shlex.quote(str(self._fetched(name)))
        return _said(f"dpkg-deb --fsys-tarfile {package} | tar -xO {shlex.quote('.' + path)} 2>/dev/null || true")

    @cache  # noqa: B019 - an archive lives as long as the program
    def _fetched(self, name: str) -> Path:
        place = self._folder / "fetched" / name
        place.mkdir(parents=True, exist_ok=True)
        done = self._apt("apt-get", "-q", "download", name, cwd=place)
        if done.returncode != 0:
            raise ArchiveProblem(f"apt could not fetch {name}:\n{(done.stdout + done.stderr)[-1500:].strip()}")
        return max(place.glob("*.deb"), key=lambda path: path.stat().st_mtime)

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *self._options, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            timeout=_LIMIT_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )


def _said(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
