# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A build of a virtual environment comes to the environment's path in one step, and goes again; cut off anywhere, the next run heals it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from typing import TYPE_CHECKING, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import environment_builds as builds

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.observe.environment_builds import Builds

# linux/fs.h and fcntl.h
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_LINK = ".link"
_FIRST = "0"


class Options(TypedDict):
    """The options of the module. ``state``: begun, swapped, returned (the build before is in use again), tidy or removed; ``build``: the
    one that is swapped in. ``keep``: whether the one in use is kept. ``time``: of this change, the same for all that one run changes.
    """

    path: str
    state: str
    build: str | None
    keep: bool
    time: str


class Answer(TypedDict):
    """What the module answers. ``build``: the directory of the build that was begun or is in use now. ``stays``: the directory of builds,
    where something of somebody else's is in it and all builds are to go.
    """

    changed: bool
    build: str | None
    stays: str | None


def bring(options: Options) -> Answer:
    """Bring the builds of an environment to a state. Raises OSError."""
    found = builds.look(Host(), options["path"])
    if options["state"] == "begun":
        return {"changed": True, "build": _begin(found), "stays": None}
    if options["state"] == "tidy":
        return {"changed": _tidy(found), "build": None, "stays": None}
    if options["state"] == "removed":
        return {"changed": True, "build": None, "stays": _take_away(found, options["path"])}
    number = found.kept if options["state"] == "returned" else os.path.basename(options["build"] or "")
    if number is None:
        raise FileNotFoundError(f"no build is kept beside {found.place}")
    _swap(found, number, options)
    return {"changed": True, "build": found.at(number), "stays": None}


def _begin(found: Builds) -> str:
    """A place for a new build, with its mark; what a cut left is taken away first, but for what was downloaded."""
    _tidy(found, stays=[builds.ASIDE])
    _make(os.path.dirname(found.place))
    directory = builds.directory(found.place)
    if not os.path.isdir(directory):
        os.mkdir(directory)
    # Whatever root's own umask is: users go through it.
    os.chmod(directory, 0o755)  # noqa: S103 - nobody else may write there
    _write(builds.mark(found.at(found.following)), "")
    return found.at(found.following)


def _make(directory: str) -> None:
    """Make what is missing of the directories above an environment. What is there is somebody's, and stays as it is."""
    if os.path.isdir(directory):
        return
    _make(os.path.dirname(directory))
    os.mkdir(directory)
    os.chmod(directory, 0o755)  # noqa: S103 - users go through it, and nobody else may write there
    _write(os.path.join(directory, builds.MADE), "gpuwright made this directory.\n")


def _tidy(found: Builds, stays: Sequence[str] = ()) -> bool:
    """Take away what a cut left: the marks last, so that the rest of a build is never taken for a whole one."""
    names = [name for name in found.debris if name not in stays]
    for name in sorted(names, key=lambda each: each.startswith(".")):
        _remove(found.at(name))
    return bool(names)


def _swap(found: Builds, number: str, options: Options) -> None:
    """Have a build in use, and keep the one that was in use, or no more of it."""
    former = _former(found)
    if options["keep"] and found.kept not in (None, number):
        # One is kept, the last. It goes before the swap: else a run that is cut off would leave two, of which nobody knows the last.
        _drop(found.at(str(found.kept)))
    if former and not options["keep"]:
        _write(builds.mark(found.at(former)), "")
    _write(found.gave_way, options["time"] + "\n")
    # After a loss of power the path would lead to files without content.
    os.sync()
    _put(found, number, former)
    os.sync()
    for path in (found.at(number), found.place):
        _remove(builds.mark(path))
    # The files of the build are the same as those in its cache: whoever damages one must not find it there again.
    _remove(found.at(builds.ASIDE))
    if former and not options["keep"]:
        _drop(found.at(former))


def _former(found: Builds) -> str | None:
    """The number of what is in use, or the one that it gets: of an environment that is a directory itself; None where there is none."""
    if found.current is not None or not _is_filled(found.place):
        return found.current
    return _FIRST if not os.path.lexists(found.at(_FIRST)) else str(int(found.following) + 1)


def _is_filled(path: str) -> bool:
    return not os.path.islink(path) and os.path.isdir(path) and bool(os.listdir(path))


def _put(found: Builds, number: str, former: str | None) -> None:
    """Have the environment's path lead to a build, in one step. A directory that is there becomes the build ``former``."""
    place, link = found.place, found.at(_LINK)
    _remove(link)
    os.symlink(builds.target(place, number), link)
    if former is not None and former != found.current:
        _remove(found.at(former))
        os.rename(link, found.at(former))
        if exchange(found.at(former), place):
            return
        # A file system that cannot: for a moment nothing is there, and after a run that ends in it the environment is built anew.
        os.rename(found.at(former), link)
        os.rename(place, found.at(former))
    elif os.path.isdir(place) and not os.path.islink(place):
        os.rmdir(place)
    os.rename(link, place)


def exchange(one: str, other: str) -> bool:
    """Have two paths change places in one step (Linux 3.15, glibc 2.28); whether the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    given = [ctypes.c_int(_AT_FDCWD), os.fsencode(one), ctypes.c_int(_AT_FDCWD), os.fsencode(other)]
    return bool(rename(*given, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _take_away(found: Builds, path: str) -> str | None:
    """Take away the environment at a path, with its builds, and the directories that were made for it; return what stays of them.

    A link of somebody else's that leads to it stays. A removal that is cut off is known by the mark beside the path.
    """
    place, directory, mark = found.place, builds.directory(found.place), builds.mark(path)
    if os.path.isdir(os.path.dirname(mark)):
        _write(mark, "")
    if found.current is not None or not os.path.islink(place):
        _remove(place)
    for name in found.names:
        _remove(found.at(name))
    stays = os.path.isdir(directory) and not _remove_empty(directory)
    for each in dict.fromkeys((mark, builds.mark(place))):
        _remove(each)
    for each in dict.fromkeys((os.path.dirname(place), os.path.dirname(path))):
        _unmake(each)
    return directory if stays else None


def _unmake(directory: str) -> None:
    """Take away a directory that was made for environments, and those above it, as far as nothing else is in them."""
    made = os.path.join(directory, builds.MADE)
    if os.path.isfile(made) and os.listdir(directory) == [builds.MADE]:
        os.unlink(made)
        if _remove_empty(directory):
            _unmake(os.path.dirname(directory))


def _remove_empty(directory: str) -> bool:
    """Remove a directory; whether nothing was in it."""
    try:
        os.rmdir(directory)
    except OSError as exc:
        if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _drop(path: str) -> None:
    """Remove a build; with a mark, so that the rest of one whose removal is cut off is never taken for a whole one."""
    _write(builds.mark(path), "")
    _remove(path)
    _remove(builds.mark(path))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write(path: str, text: str) -> None:
    """Write a file so that a cut leaves the old one or the new one."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(path + ".new", 0o644)
    os.rename(path + ".new", path)
