"""Debian's archive as a partial mirror on the node itself: what is installed, and what lies fetched in apt's cache.

apt reads its whole index at every start. Debian's has seventy thousand packages, of which the tests install a handful; to read about
them took a fifth of a run. The packages are Debian's own, as they were fetched and checked.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_MIRROR = Path("/usr/share/gpuwright-sim/mirror")
_CACHE = Path("/var/cache/apt/archives")
_LISTS = Path("/var/lib/apt/lists")
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")


def main() -> None:
    """Make the mirror and have apt use it instead of the archive."""
    (suite,) = re.findall(r"^Suites: (\S+)", _SOURCES.read_text(), re.MULTILINE)[:1]
    pool = _MIRROR / "pool"
    pool.mkdir(parents=True)
    for path in _CACHE.glob("*.deb"):
        # The archive leaves the epoch out of the file's name.
        shutil.move(path, pool / re.sub(r"_\d+%3a", "_", path.name))
    lists = sorted(_LISTS.glob(f"*_dists_{suite}*"))
    dist = _MIRROR / "dists" / suite
    architecture = _said("dpkg", "--print-architecture")
    installed, files = _installed(), {path.name for path in pool.iterdir()}
    sums = []
    for component in _COMPONENTS:
        index = dist / component / f"binary-{architecture}" / "Packages"
        index.parent.mkdir(parents=True)
        of_it = [path for path in lists if path.name.endswith(f"_{component}_binary-{architecture}_Packages")]
        index.write_text("\n\n".join([*_offered(of_it, installed, files), ""]))
        content = index.read_bytes()
        sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {index.relative_to(dist)}")
    (dist / "Release").write_text(
        f"Origin: Debian\nLabel: Debian\nSuite: stable\nCodename: {suite}\nDate: {_said('date', '-Ru')}\n"
        f"Architectures: {architecture}\nComponents: {' '.join(_COMPONENTS)}\nSHA256:\n" + "\n".join(sums) + "\n"
    )
    _SOURCES.write_text(f"Types: deb\nURIs: file:{_MIRROR}\nSuites: {suite}\nComponents: main\nTrusted: yes\n")
    for path in lists:
        path.unlink()


def _installed() -> set[str]:
    return set(_said("dpkg-query", "--show", "--showformat=${Package} ${Version}\n").splitlines())


def _offered(lists: list[Path], installed: set[str], files: set[str]) -> Iterator[str]:
    """What the archive's lists say of the installed builds and of those that are here, at the places where the mirror has them."""
    for path in lists:
        for stanza in path.read_text().strip().split("\n\n"):
            fields = dict(re.findall(r"^(Package|Version|Filename): (.*)", stanza, re.MULTILINE))
            if not fields:
                continue
            file = fields["Filename"].rpartition("/")[2]
            if file in files or f"{fields['Package']} {fields['Version']}" in installed:
                yield stanza.replace(fields["Filename"], f"pool/{file}")


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
