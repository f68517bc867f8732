# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Calls of apt and dnf that leave a record of what they brought: begun before the first package is touched, completed after the last."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Callable, Iterator, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import package_log
from ansible_collections.gpuwright.node.plugins.module_utils.packages.installing import Runner
from ansible_collections.gpuwright.node.plugins.module_utils.records import history, history_writer

#: Keys of sources of ours that dnf checks packages by.
KEY_FILES = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuwright-*"
#: Programs whose calls are marked.
MANAGERS = ("apt-get", "dnf")
_REPAIR = "--fix-broken"
# Words of apt that ask for a package may have a version, those that ask for a removal end with a minus.
_NAME = re.compile(r"[A-Za-z0-9][^=\s]*[^=\s-](?==|$)")


class Outcome:
    """Whether a call went well, as who made it says."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.went_well = False


@contextmanager
def recorded(look: Callable[[], Host], names: Sequence[str]) -> Iterator[Outcome]:
    """A record around one call that asks for these packages. `look`: the machine, looked at anew each time.

    Raises SealError before the call where nobody could say afterwards what it brought.
    """
    outcome = Outcome(history_writer.call_begins(look(), names))
    try:
        yield outcome
    finally:
        after = look()
        history_writer.call_ends(after, outcome.mark, outcome.went_well, keys(after))


def recording(runner: Runner, look: Callable[[], Host]) -> Runner:
    """The runner that leaves a record of each call of a package manager. Other programs are run as they are, and trials."""

    def run(argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, str, str]:
        if argv[0] not in MANAGERS or "--simulate" in argv:
            return runner(argv, extra)
        if _REPAIR in argv:
            # It finishes what anybody began. The mark says that what was ours before it is so after it.
            return runner(package_log.marked(argv, history_writer.new_mark()), extra)
        with recorded(look, asked(argv)) as outcome:
            answer = runner(package_log.marked(argv, outcome.mark), extra)
            outcome.went_well = answer[0] == 0
        return answer

    return run


def asked(argv: Sequence[str]) -> list[str]:
    """The names of the packages that a command asks for."""
    if "install" not in argv:
        return []
    words = argv[list(argv).index("install") + 1 :]
    return [found.group() for found in map(_NAME.match, words) if found]


def keys(host: Host) -> list[str]:
    """How the names begin that rpm gives to the keys in the files of sources of ours: with the end of the fingerprint, or all of it."""
    found: list[str] = []
    for path in host.glob(KEY_FILES):
        found += _fingerprints(host.read_bytes(path) or b"")
    return [f"{history.KEY}{part.lower()}-" for each in found for part in (each[-8:], each)]


def _fingerprints(data: bytes) -> list[str]:
    try:
        return openpgp.fingerprints(data)
    except openpgp.KeyFileError:
        return []
