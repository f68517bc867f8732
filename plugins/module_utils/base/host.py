# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one way in which observers look at a machine.

A `Host` is the running machine (root "/") or a directory that holds the tree of one (an image, a
simulated node). Its links are followed inside the tree. What cannot be seen is noted in
`unknown_facts`; it is never taken for "not there".
"""

from __future__ import annotations

import fnmatch
import os
import stat as stat_module
from typing import Callable, Sequence, TypeVar, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result

T = TypeVar("T")

_ABSENT = (FileNotFoundError, NotADirectoryError)
_MAX_LINKS = 40


class Host:
    """A machine that is looked at and never changed."""

    def __init__(
        self,
        root: str = "/",
        timeout: float = 20.0,
        full: bool = False,
        runner: Callable[..., Result] = run_module.run,
        machine: str | None = None,
        euid: int | None = None,
        places: paths.Places = paths.ROOTS,
    ) -> None:
        """`timeout`: seconds for each program. `full`: look deeper even where it takes longer. `places`: whose records and environments.

        `runner`, `machine` (as `uname -m`) and `euid` are given by tests.
        """
        self.root = os.path.abspath(root)
        self.timeout = timeout
        self.full = full
        self.places = places
        self.live = self.root == "/"
        self.euid = os.geteuid() if euid is None else euid
        self.machine = machine or (os.uname().machine if self.live else None)
        self.unknown_facts: dict[str, str] = {}
        self._runner = runner
        self._memory: dict[str, object] = {}

    @property
    def of_user(self) -> bool:
        """Whether a user looks at what is the user's own, without root."""
        return self.places != paths.ROOTS

    def unknown(self, fact: str, reason: str) -> None:
        """Note that `fact` (a dotted path into the observation) could not be seen. The first reason stays."""
        self.unknown_facts.setdefault(fact, reason)

    def once(self, key: str, produce: Callable[[], T]) -> T:
        """The value of `produce()`, computed at the first call and shared between observers."""
        if key not in self._memory:
            self._memory[key] = produce()
        return cast("T", self._memory[key])

    # Paths

    def realpath(self, path: str) -> str:
        """`path` with all links followed inside the root, as a path of the observed machine."""
        if self.live:
            return os.path.realpath(path)
        todo = [part for part in path.split("/") if part]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part == ".":
                continue
            if part == "..":
                del done[-1:]
                continue
            try:
                target = os.readlink(os.path.join(self.root, *done, part))
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return "/" + "/".join([*done, part])
            if target.startswith("/"):
                done = []
            todo = [piece for piece in target.split("/") if piece] + todo
        return "/" + "/".join(done)

    def at(self, path: str) -> str:
        """Where `path` of the observed machine lies on this one, links followed."""
        return path if self.live else os.path.join(self.root, self.realpath(path)[1:])

    def link(self, path: str) -> str | None:
        """Text of the symbolic link `path`; None when it is none."""
        parent, name = os.path.split(path.rstrip("/"))
        try:
            return os.readlink(os.path.join(self.at(parent), name))
        except OSError:
            return None

    # Files

    def stat(self, path: str) -> os.stat_result | None:
        """Status of what `path` leads to; None when nothing is there."""
        try:
            return os.stat(self.at(path))
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether `path` leads to something."""
        return self.stat(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether `path` leads to a directory."""
        found = self.stat(path)
        return found is not None and stat_module.S_ISDIR(found.st_mode)

    def executable(self, path: str) -> bool:
        """Whether `path` leads to a file that somebody may execute."""
        found = self.stat(path)
        return found is not None and stat_module.S_ISREG(found.st_mode) and bool(found.st_mode & 0o111)

    def which(self, name: str) -> str | None:
        """Path of the program `name`, or None."""
        for directory in run_module.SEARCH_PATH.split(":"):
            path = directory + "/" + name
            if self.executable(path):
                return path
        return None

    def read_bytes(self, path: str, fact: str | None = None, limit: int = -1) -> bytes | None:
        """Content of a file, at most `limit` bytes; None when it is not there.

        Any other error makes `fact` (else the path itself) unknown. So does what is no file: a user may have put a pipe there, which
        answers nobody, or a link to a device, which has no end.
        """
        try:
            descriptor = os.open(self.at(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                if not stat_module.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError("it is no regular file")
                with os.fdopen(descriptor, "rb", closefd=False) as stream:
                    return stream.read(limit)
            finally:
                os.close(descriptor)
        except _ABSENT:
            return None
        except OSError as exc:
            self.unknown(fact or path, f"{path} could not be read: {exc.strerror or exc}")
            return None

    def read(self, path: str, fact: str | None = None, limit: int = -1) -> str | None:
        """Text of a file (bytes that are no UTF-8 are replaced); see `read_bytes`."""
        data = self.read_bytes(path, fact, limit)
        return None if data is None else data.decode("utf-8", "replace")

    def line(self, path: str, fact: str | None = None) -> str | None:
        """A file of one value (as in /sys), stripped; None when it is absent or empty."""
        text = self.read(path, fact)
        return text.strip() or None if text else None

    def names(self, path: str, fact: str | None = None) -> list[str]:
        """Sorted names in a directory; none when it is not there. Any other error makes `fact` unknown."""
        try:
            return sorted(os.listdir(self.at(path)))
        except _ABSENT:
            return []
        except OSError as exc:
            self.unknown(fact or path, f"{path} could not be listed: {exc.strerror or exc}")
            return []

    def glob(self, pattern: str, fact: str | None = None) -> Sequence[str]:
        """Sorted paths that match `pattern` (absolute; `*`, `?`, `[…]`; a star matches no hidden name)."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            if any(mark in part for mark in "*?["):
                found = [
                    base + "/" + name
                    for base in found
                    for name in self.names(base or "/", fact)
                    if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
                ]
            else:
                found = [base + "/" + part for base in found]
        return sorted(path for path in found if self.exists(path))

    # Programs

    def run(self, argv: Sequence[str], timeout: float | None = None, takes_root: bool = False) -> Result:
        """Run a program of this machine, with the time limit of the host.

        For another root only programs that were told that root by their arguments may run (`takes_root`).
        """
        if not self.live and not takes_root:
            reason = f"{argv[0]} is not run for the tree {self.root}: it would answer for this machine"
            return Result(None, "", "", 0.0, reason)
        return self._runner(list(argv), timeout=timeout or self.timeout)
