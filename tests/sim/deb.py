"""Debian packages and repositories written by Python alone: the archive format, the index, the signature by gpg."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .shell import run

# Every archive is made at the same moment, so that the same input gives the same bytes.
_EPOCH = 1763640000


@dataclass
class Package:
    """One binary package: its control fields, its files, its maintainer scripts."""

    name: str
    version: str
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    executables: set[str] = field(default_factory=set)
    scripts: dict[str, str] = field(default_factory=dict)
    configuration: list[str] = field(default_factory=list)
    component: str = "main"

    @property
    def architecture(self) -> str:
        """The package's architecture: of the simulation's only one unless it says otherwise."""
        return self.fields.get("Architecture", "amd64")

    @property
    def file_name(self) -> str:
        """The name of the archive in a repository."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file, without the fields that the index adds."""
        size = sum(len(content) for content in self.files.values()) // 1024 + 1
        lines = [f"Package: {self.name}", f"Version: {self.version}", f"Architecture: {self.architecture}"]
        lines += [
            "Maintainer: gpuwright contributors <simulation@invalid>",
            f"Installed-Size: {size}",
            "Section: non-free/libs",
            "Priority: optional",
        ]
        lines += [f"{key}: {value}" for key, value in self.fields.items() if key not in ("Architecture", "Description")]
        lines.append(
            f"Description: {self.fields.get('Description', 'stand-in of the simulated node')}\n Not the real package."
        )
        return "\n".join(lines) + "\n"


def archive(package: Package) -> bytes:
    """The bytes of the .deb."""
    control: dict[str, bytes] = {"./control": package.control().encode()}
    if package.configuration:
        control["./conffiles"] = ("\n".join(package.configuration) + "\n").encode()
    sums = "".join(
        f"{hashlib.md5(content, usedforsecurity=False).hexdigest()}  {path.lstrip('/')}\n"
        for path, content in sorted(package.files.items())
    )
    control["./md5sums"] = sums.encode()
    for name, text in package.scripts.items():
        control[f"./{name}"] = text.encode()
    data = {f".{path}": content for path, content in package.files.items()}
    executables = {f".{path}" for path in package.executables} | {f"./{name}" for name in package.scripts}
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", _tar(control, {}, executables)),
        ("data.tar.gz", _tar(data, {f".{path}": target for path, target in package.links.items()}, executables)),
    ]
    return b"!<arch>\n" + b"".join(_member(name, content) for name, content in members)


def _member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{_EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return head + content + (b"\n" if len(content) % 2 else b"")


def _tar(files: Mapping[str, bytes], links: Mapping[str, str], executables: Iterable[str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder in _folders([*files, *links]):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _EPOCH
            tar.addfile(entry)
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(content), _EPOCH, 0o755 if path in executables else 0o644
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted(links.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname, entry.mtime, entry.mode = tarfile.SYMTYPE, target, _EPOCH, 0o777
            tar.addfile(entry)
    return gzip.compress(stream.getvalue(), compresslevel=1, mtime=_EPOCH)


def _folders(paths: Iterable[str]) -> list[str]:
    found: set[str] = {"./"}
    for path in paths:
        parts = path.split("/")[1:-1]
        found.update("./" + "/".join(parts[: index + 1]) + "/" for index in range(len(parts)))
    return sorted(found)


# --------------------------------------------------------------------------------------------------------------------
# Repositories
# --------------------------------------------------------------------------------------------------------------------


def write_repository(folder: Path, packages: Iterable[Package], origin: str, key: SigningKey) -> None:
    """A flat repository as NVIDIA serves it: the packages, Packages(.gz), Release, Release.gpg, InRelease."""
    _write_index(folder, folder, ".", packages)
    sign_repository(folder, origin, key)


def write_suite(folder: Path, suite: str, packages: Iterable[Package], origin: str, key: SigningKey) -> None:
    """An archive as a distribution serves it: a pool, and under dists/SUITE one index for each component."""
    every = list(packages)
    place = folder / "dists" / suite
    components = sorted({package.component for package in every})
    for component in components:
        chosen = (package for package in every if package.component == component)
        _write_index(place / component / "binary-amd64", folder / "pool", "pool", chosen)
    names = " ".join(components)
    sign_repository(place, origin, key, [f"Suite: {suite}", f"Codename: {suite}", f"Components: {names}"])


def _write_index(folder: Path, pool: Path, shown: str, packages: Iterable[Package]) -> None:
    """Packages and Packages.gz in FOLDER; the archives go to POOL, which the index calls SHOWN."""
    folder.mkdir(parents=True, exist_ok=True)
    pool.mkdir(parents=True, exist_ok=True)
    stanzas = []
    for package in packages:
        content = archive(package)
        (pool / package.file_name).write_bytes(content)
        stanzas.append(
            f"{package.control()}Filename: {shown}/{package.file_name}\nSize: {len(content)}\n"
            f"MD5sum: {hashlib.md5(content, usedforsecurity=False).hexdigest()}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    index = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index, mtime=_EPOCH))


def sign_repository(folder: Path, origin: str, key: SigningKey, more: Sequence[str] = ()) -> None:
    """Write Release and its signatures for the indexes that lie in and below FOLDER. ORIGIN may be "Origin, Label"."""
    name, _, label = origin.partition(", ")
    lines = [
        f"Origin: {name}",
        f"Label: {label or name}",
        *more,
        "Architectures: amd64 all",
        "Date: Fri, 20 Nov 2026 12:00:00 UTC",
        "SHA256:",
    ]
    for path in sorted(folder.rglob("Packages*")):
        content = path.read_bytes()
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content):>10} {path.relative_to(folder)}")
    (folder / "Release").write_text("\n".join(lines) + "\n")
    key.sign(folder / "Release")


class SigningKey:
    """A throw-away key pair; its secret half is kept in one file, outside of what git knows."""

    def __init__(self, home: Path, name: str, kept: Path) -> None:
        """Take the pair from the file KEPT into the gpg home HOME; it is made first where there is none."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._home = home
        if kept.exists():
            self._gpg("--import", str(kept))
        else:
            self._gpg("--quick-gen-key", name, "rsa3072", "sign", "never")
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept.touch(mode=0o600)
            kept.write_text(self._gpg("--armor", "--export-secret-keys"))
        listing = self._gpg("--list-keys", "--with-colons")
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))

    def public(self) -> str:
        """The public key, armoured as NVIDIA serves it."""
        return self._gpg("--armor", "--export", self.fingerprint)

    def secret(self) -> str:
        """The secret key, armoured: throw-away, and needed where something else than this signs."""
        return self._gpg("--armor", "--export-secret-keys")

    def sign(self, release: Path) -> None:
        """InRelease and Release.gpg next to RELEASE."""
        self._gpg("--yes", "--clearsign", "--output", str(release.with_name("InRelease")), str(release))
        self._gpg("--yes", "--armor", "--detach-sign", "--output", str(release.with_name("Release.gpg")), str(release))

    def _gpg(self, *arguments: str) -> str:
        command = [
            "gpg",
            "--homedir",
            str(self._home),
            "--batch",
            "--quiet",
            "--passphrase",
            "",
            "--pinentry-mode",
            "loopback",
            "--digest-algo",
            "SHA512",
            *arguments,
        ]
        return run(command, env={**os.environ, "LC_ALL": "C"}).stdout

    def close(self) -> None:
        """Stop the agent that gpg started for the home, so that the directory can go."""
        run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], check=False)


def temporary_home() -> Path:
    """A short path: the agent's socket does not fit into a long one."""
    return Path(tempfile.mkdtemp(prefix="gws-"))
