# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Libraries as NVIDIA's tar archives, in each toolkit's own directory: toolkits of several CUDA major versions have each the one that
serves it.

The tables have them with their checksums; none is unpacked without one. Which there are, and whom they serve, is told by the library's own
module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import upstreams
from ....resolver.log import Entry, Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.part import DISTRO
from ....rules import Rules
from ....wish.wish import Wish
from ..model import CudaToolkit, Library, LibraryArchive


class Published(NamedTuple):
    """An archive. ``cuda``: the CUDA major version that it is for; ``place``: where it lies below the upstream's address; ``size``: in
    bytes, where a table has it; ``source``: what says so.
    """

    version: str
    cuda: str
    arch: str
    place: str
    sha256: str
    source: str
    size: int | None = None
    confirmed: bool = True


@dataclass(frozen=True)
class Archives:
    """The archives of a library.

    key: in the stack; title: for a person. table: where they are, for a person. upstream: where they are fetched from.
    published: those whose checksums the rules have. serves: whether a version serves a CUDA major version and the cards.
    given: the archive of a version, a CUDA major version and an architecture whose checksum the wish has; None where its name does not
    follow from these.
    """

    key: str
    title: str
    table: str
    upstream: str
    published: Callable[[Rules], Iterable[Published]]
    serves: Callable[[str, str, Machine, Rules], bool]
    given: Callable[[str, str, str, str], Published] | None = None

    def version(self, wish: Wish) -> str | None:
        """Return the version that is wished."""
        found: str | None = getattr(wish, f"{self.key}_version")
        return found

    def checksum(self, wish: Wish) -> str | None:
        """Return the checksum that the wish has of one archive."""
        found: str | None = getattr(wish, f"{self.key}_sha256") if self.given else None
        return found


def choose(archives: Archives, toolkits: Sequence[CudaToolkit], machine: Machine, wish: Wish, log: Log) -> Library:
    """Return the archive of each toolkit: of the version that was asked for, else the newest that serves its CUDA and the cards.

    Raises Unresolved with every reason.
    """
    if not toolkits or any(each.get("source") == DISTRO for each in toolkits):
        text = f"an archive of {archives.title} is put into a toolkit's own directory, and " + (
            "the distribution's has none" if toolkits else "no toolkit is wished"
        )
        remedy = f"use {archives.key}-source=packages, or wish a toolkit of NVIDIA's"
        raise Unresolved(conflict(f"{archives.key}.archive-place", text, archives.table, remedy))
    _refuse_several(archives, toolkits, wish)
    reasons: list[Entry] = []
    found: list[LibraryArchive] = []
    for toolkit in toolkits:
        one = _newest(archives, toolkit, machine, wish, log.rules)
        if one is None:
            reasons.append(_none(archives, toolkit, machine, wish, log.rules))
            continue
        found.append(_archive(archives, toolkit, one, wish, log.rules))
        text = f"{archives.title} {one.version} for CUDA {one.cuda}, as NVIDIA's archive, in {toolkit['path']}"
        log.decided(f"{archives.key}.archive", text, one.source)
        if not one.confirmed:
            text = f"what is known of {archives.title} {one.version} is not confirmed"
            rule = f"{archives.key}.unconfirmed"
            log.warn(rule, text, archives.table)
    if reasons:
        raise Unresolved(*reasons)
    newest = max((each["version"] for each in found), key=numeric_version.key)
    return {"version": newest, "packages": [], "archives": found}


def _refuse_several(archives: Archives, toolkits: Sequence[CudaToolkit], wish: Wish) -> None:
    """Raise Unresolved where the checksum of one archive is given and it does not say of which."""
    majors = {numeric_version.major(each["version"]) for each in toolkits}
    if archives.checksum(wish) and (len(majors) > 1 or archives.version(wish) is None):
        variable = f"cuda_{archives.key}"
        text = f"{variable}_sha256 is of one archive: of one version of {archives.title}, for one CUDA major version"
        remedy = f"name the version too ({variable}: 9.10.2.21), and wish toolkits of one CUDA major version, or leave it out"
        raise Unresolved(conflict(f"{archives.key}.archive-several", text, "the wish", remedy))


def _newest(archives: Archives, toolkit: CudaToolkit, machine: Machine, wish: Wish, rules: Rules) -> Published | None:
    """Return the newest archive that serves a toolkit and the cards."""
    version, checksum = archives.version(wish), archives.checksum(wish)
    known = archives.published(rules)
    if archives.given and version and checksum:
        known = [archives.given(version, numeric_version.major(toolkit["version"]), machine.arch, checksum)]
    serving = _serving(archives, known, toolkit, machine, rules)
    fitting = [each for each in serving if version in (None, each.version)]
    return max(fitting, key=lambda each: numeric_version.key(each.version), default=None)


def _serving(
    archives: Archives, known: Iterable[Published], toolkit: CudaToolkit, machine: Machine, rules: Rules
) -> list[Published]:
    major = numeric_version.major(toolkit["version"])
    return [
        each
        for each in known
        if (each.cuda, each.arch) == (major, machine.arch) and archives.serves(each.version, major, machine, rules)
    ]


def _none(archives: Archives, toolkit: CudaToolkit, machine: Machine, wish: Wish, rules: Rules) -> Entry:
    """Return why there is no archive for a toolkit."""
    key, title, version = archives.key, archives.title, archives.version(wish)
    serving = _serving(archives, archives.published(rules), toolkit, machine, rules)
    there = sorted((each.version for each in serving), key=numeric_version.key)
    if archives.checksum(wish):
        text = f"{title} {version} does not serve CUDA {toolkit['version']} and the cards"
        remedy = f"leave cuda_{key}_sha256 out and use {key}={there[-1]}" if there else f"use {key}-source=packages"
        return conflict(f"{key}.archive", text, archives.table, remedy)
    asked = f"{title} {version}" if version else title
    known = f"; known are {', '.join(there)}" if there else ""
    serving_whom = f"that serves CUDA {toolkit['version']} and the cards"
    text = f"no checksum is known of an archive of {asked} {serving_whom}, and none is unpacked unseen{known}"
    remedy = f"use {key}={there[-1]}, or {key}-source=packages" if there else f"use {key}-source=packages"
    if archives.given:
        remedy += f", or set cuda_{key}_sha256 to what `sha256sum` says of an archive that you trust"
    return conflict(f"{key}.archive", text, archives.table, remedy)


def _archive(archives: Archives, toolkit: CudaToolkit, one: Published, wish: Wish, rules: Rules) -> LibraryArchive:
    found: LibraryArchive = {
        "path": toolkit["path"],
        "version": one.version,
        "name": one.place.rpartition("/")[2],
        "addresses": [f"{upstreams.url(archives.upstream, wish, rules)}/{one.place}"],
        "sha256": one.sha256,
    }
    return {**found, "size": one.size} if one.size else found
