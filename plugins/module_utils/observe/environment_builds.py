# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The builds of a virtual environment, each in a directory of its own beside the path that leads to the one in use.

    pytorch -> .pytorch/2       the one in use
    .pytorch/1                  the one before, kept
    .pytorch/3                  one under way, or cut off, for there is
    .pytorch/.3.unfinished      its mark
    .pytorch/.uv                uv with what it downloaded for it, with which the next build goes on

An environment that an earlier gpuwright made is a directory at the path itself. See docs/adr/0016-environments-are-swapped.md.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

ASIDE = ".uv"
"""What uv works in beside the builds, until one is swapped in."""

MADE = ".gpuwright-made"
"""A file in a directory above environments that was made for them: it goes with the last of them, where nothing else is in it."""

_NUMBER = re.compile(r"^[0-9]{1,9}$")
# What gpuwright writes into a directory of builds. Other names there are somebody else's.
_WRITTEN = re.compile(r"[0-9]{1,9}|\.[0-9]{1,9}\.unfinished(\.new)?|\.uv|\.link|gave-way(\.new)?")
# Of st_blocks, whatever the file system's own are (stat(2)).
_BLOCK = 512
_GAVE_WAY = "gave-way"
_MOST_LINKS = 40


class Builds(NamedTuple):
    """What lies beside an environment. The builds go by their numbers.

    ``place``: the path that leads to the build in use: the environment's own, or where somebody's link leads that stands there.
    ``current``: the build in use, None for an environment that is a directory itself, or is not there. ``kept``: the one before.
    ``debris``: names in the directory of builds that a cut left; ``names``: all that we wrote there. ``following``: a number that none has
    had.
    """

    place: str
    current: str | None
    kept: str | None
    debris: list[str]
    names: list[str]
    following: str

    def at(self, name: str) -> str:
        """The path of something in the directory of builds."""
        return f"{directory(self.place)}/{name}"

    @property
    def gave_way(self) -> str:
        """The file that says since when the build before is the one before."""
        return self.at(_GAVE_WAY)


def mark(path: str) -> str:
    """The file that lies beside an environment, or a build, while an installation into it is under way."""
    return os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".unfinished")


def directory(place: str) -> str:
    """The directory that has the builds of an environment."""
    return os.path.join(os.path.dirname(place), "." + os.path.basename(place))


def target(place: str, number: str) -> str:
    """Where the link of an environment leads: beside itself, so that the directory above both may be moved."""
    return f".{os.path.basename(place)}/{number}"


def look(host: Host, path: str) -> Builds:
    """The builds of the environment at a path; nothing is changed."""
    place = _place(host, path)
    link = host.link(place)
    current = os.path.basename(link) if link is not None and _is_ours(place, link) else None
    names = [name for name in host.names(directory(place)) if _WRITTEN.fullmatch(name)]
    numbers = [name for name in names if _NUMBER.match(name)]
    whole = [
        name
        for name in numbers
        if name != current and os.path.basename(mark(name)) not in names and _is_directory(host, place, name)
    ]
    # Who takes the path away wants it built anew.
    kept = max(whole, key=int) if whole and (link is not None or host.exists(place)) else None
    stays = {current, kept, _GAVE_WAY}
    following = str(max([int(name) for name in numbers], default=0) + 1)
    return Builds(place, current, kept, sorted(name for name in names if name not in stays), names, following)


def debris_bytes(host: Host, path: str) -> int:
    """What a build that was cut off takes on the disk: the next run takes it away, or goes on with it."""
    builds = look(host, path)
    files: dict[tuple[int, int], int] = {}
    for name in builds.debris:
        for folder, _folders, names in os.walk(host.at(builds.at(name))):
            for status in filter(None, (_status(os.path.join(folder, each)) for each in names)):
                # What uv downloaded and what it made of it are the same files.
                files[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(files.values())


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _place(host: Host, path: str) -> str:
    """A path, or where links of somebody else lead from it."""
    for _link in range(_MOST_LINKS):
        link = host.link(path)
        if link is None or _is_ours(path, link):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), link))
    return path


def _is_ours(place: str, link: str) -> bool:
    before, _slash, number = link.rpartition("/")
    return before == "." + os.path.basename(place) and _NUMBER.match(number) is not None


def _is_directory(host: Host, place: str, name: str) -> bool:
    path = f"{directory(place)}/{name}"
    return host.link(path) is None and host.isdir(path)
