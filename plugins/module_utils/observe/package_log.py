# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What apt and dnf wrote of each of their calls: which packages it brought and took, and whether the call was ours.

A call of ours is marked: on apt's command line, which its log keeps, and by dnf's comment, which its history keeps. The log is written
before the first package is touched, so that it names a call that was cut off too.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import defaultdict
from typing import FrozenSet, Iterable, Mapping, NamedTuple, Sequence
from urllib.parse import quote

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages, rpm

APT_LOG = "/var/log/apt/history.log"
DPKG_LOG = "/var/log/dpkg.log"
DNF_LOG = "/var/lib/dnf/history.sqlite"
#: What is unknown where a log cannot be read.
FACT = "history"

_APT_OPTION, _DNF_WORD = "gpuwright::Call", "gpuwright"
_MARK = re.compile(rf"{_APT_OPTION}=\W?([0-9a-f]{{12}})\b|^{_DNF_WORD} ([0-9a-f]{{12}})$", re.MULTILINE)
# Before calls were marked: the beginning of each command line, which nobody else gives these options in this order.
_KEPT_FILES = "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
_EARLIER = re.compile(
    rf"apt-get (-y {_KEPT_FILES} -o APT::Install-Recommends=no -o DPkg::Lock::Timeout=\d+ "
    rf"|--yes --no-install-recommends --purge --allow-downgrades --allow-change-held-packages {_KEPT_FILES} "
    rf"|--yes --fix-broken --allow-downgrades --no-install-recommends {_KEPT_FILES} )"
    r"|--assumeyes --quiet --setopt=install_weak_deps=False --setopt=best=True "
)
_PACKAGE = re.compile(r"([^\s,:]+):(\S+) \(([^,)]+)[^)]*\)")
_DPKG_INSTALLED = re.compile(r"^(\S+ \S+) install ([^\s:]+):(\S+) ", re.MULTILINE)
_DPKG_BEGUN = re.compile(r"^\S+ \S+ (?:install|upgrade) ([^\s:]+):\S+ \S+ (\S+)$", re.MULTILINE)
_CAME, _WENT = "Install", ("Remove", "Purge")
# libdnf's numbers: installed, and by obsoleting another one; what is there with its version after a call, and what no more, once that is
# done.
_DNF_CAME = (1, 4)
_DNF_THERE, _DNF_GONE, _DNF_DONE = (*_DNF_CAME, 2, 6, 9, 11), (3, 5, 7, 8, 10), 1
_DNF_QUESTION = """SELECT trans.id, {comment}, trans.cmdline, rpm.name, rpm.epoch, rpm.version, rpm.release, rpm.arch, trans_item.action,
 trans_item.state FROM trans JOIN trans_item ON trans_item.trans_id = trans.id JOIN rpm ON rpm.item_id = trans_item.item_id
 ORDER BY trans.id, trans_item.id"""
_DNF_BEGUN = "SELECT DISTINCT rpm.name, rpm.version FROM trans_item JOIN rpm ON rpm.item_id = trans_item.item_id"


class Call(NamedTuple):
    """One call of a package manager: versions by name of what it installed (no upgrade), and names of what it is known to have removed.

    ``mark``: of a call of ours; None for one of somebody else. ``earlier``: it has the form of a call of ours before calls were marked.
    ``end``: when apt ended, as its log says it; None of one that was cut off, and of dnf.
    """

    mark: str | None
    earlier: bool
    came: Mapping[str, str]
    went: FrozenSet[str]
    end: str | None = None

    @property
    def ours(self) -> bool:
        """Whether gpuwright made it."""
        return self.mark is not None or self.earlier


def marked(argv: Sequence[str], mark: str) -> list[str]:
    """The command with the mark. It comes first: apt cuts a long command line off where it writes it down."""
    option = ["-o", f"{_APT_OPTION}={mark}"] if argv[0] == "apt-get" else ["--comment", comment(mark)]
    return [argv[0], *option, *argv[1:]]


def comment(mark: str) -> str:
    """The mark as dnf's history keeps it."""
    return f"{_DNF_WORD} {mark}"


def read(host: Host) -> list[Call]:
    """The calls that the package manager tells, in their order; those of long ago are no longer told. What cannot be read makes the fact
    `history` unknown.
    """
    kind = packages.manager(host)
    if kind == "apt":
        return [call for text in _texts(host, APT_LOG) for call in parse_apt(text, packages.native_arch(host))]
    return _dnf(host) if kind == "dnf" else []


def last(calls: Iterable[Call]) -> dict[str, Call]:
    """For each package the last call that installed or removed it."""
    return {name: call for call in calls for name in (*call.came, *call.went)}


def begun(host: Host) -> set[tuple[str, str]]:
    """The packages with the versions that the package manager began to unpack, by its own log, also where that was cut off."""
    kind = packages.manager(host)
    if kind == "apt":
        return {found for text in _texts(host, DPKG_LOG) for found in _DPKG_BEGUN.findall(text)}
    return {(str(name), str(version)) for name, version in _asked(host, _DNF_BEGUN)} if kind == "dnf" else set()


def _mark(said: str) -> str | None:
    found = _MARK.search(said)
    return (found.group(1) or found.group(2)) if found else None


# apt --------------------------------------------------------------------------------------------------------------------


def parse_apt(text: str, native: str | None) -> list[Call]:
    """The calls in a log of apt's (/var/log/apt/history.log)."""
    calls = []
    for part in re.split(r"\n\s*\n", text):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
        command = fields.get("Commandline", "")
        came = _named(fields.get(_CAME, ""), native)
        end = " ".join(fields.get("End-Date", "").split()) or None
        # The log is written before: where the call was cut off, or dpkg failed, nobody knows what of it went.
        done = end is not None and "Error" not in fields
        went = frozenset(name for kind in _WENT for name in _named(fields.get(kind, ""), native) if done)
        mark = _mark(command)
        if mark or came or went:
            calls.append(Call(mark, bool(_EARLIER.match(command)), came, went, end))
    return calls


def _named(told: str, native: str | None) -> dict[str, str]:
    return {_name(name, arch, native): version for name, arch, version in _PACKAGE.findall(told)}


def _name(name: str, arch: str, native: str | None) -> str:
    """The name as dpkg's record tells it: of a foreign architecture it has that."""
    return f"{name}:{arch}" if native and arch not in (native, "all") else name


def past_apt(host: Host, calls: Mapping[str, Call]) -> set[str]:
    """Packages that somebody installed by dpkg itself after the last call of apt that installed or removed them (`calls`)."""
    native, times = packages.native_arch(host), {}
    for text in _texts(host, DPKG_LOG):
        for time, name, arch in _DPKG_INSTALLED.findall(text):
            times[_name(name, arch, native)] = time
    return {name for name, call in calls.items() if call.end and times.get(name, "") > call.end}


def _texts(host: Host, log: str) -> list[str]:
    """The texts of a log and of those that were rotated, the oldest first."""
    directory, _slash, begin = log.rpartition("/")
    places = [f"{directory}/{name}" for name in host.names(directory, FACT) if name.startswith(begin)]
    aged = sorted((found.st_mtime_ns, place) for place in places for found in [host.stat(place)] if found)
    return [_text(host, place) for _time, place in aged]


def _text(host: Host, path: str) -> str:
    data = host.read_bytes(path, FACT) or b""
    if path.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as exc:
            host.unknown(FACT, f"{path} is damaged: {exc}; move it away, then run again")
            return ""
    return data.decode("utf-8", "replace")


# dnf --------------------------------------------------------------------------------------------------------------------


def _dnf(host: Host) -> list[Call]:
    columns = [row[1] for row in _asked(host, "PRAGMA table_info(trans)")]
    column = "trans.comment" if "comment" in columns else "NULL"
    return _of_rows(_asked(host, _DNF_QUESTION.format(comment=column)) if columns else [])


def _asked(host: Host, question: str) -> list[Sequence[object]]:
    """What dnf's history answers; nothing where there is none."""
    if not host.exists(DNF_LOG):
        return []
    try:
        import sqlite3

        base = sqlite3.connect(f"file:{quote(host.at(DNF_LOG))}?mode=ro", uri=True, timeout=host.timeout)
    except (ImportError, OSError) as exc:
        host.unknown(FACT, f"{DNF_LOG} could not be read: {exc}")
        return []
    try:
        return base.execute(question).fetchall()
    except sqlite3.Error as exc:
        host.unknown(FACT, f"{DNF_LOG} could not be read: {exc}")
        return []
    finally:
        base.close()


class _Transaction:
    """What dnf's history tells of one call: versions by name of what came, of what was there after it, and of what no more."""

    def __init__(self, said: object, command: object) -> None:
        self.said, self.command = str(said or ""), str(command or "")
        self.came: dict[str, str] = {}
        self.there: list[tuple[str, str]] = []
        self.gone: list[tuple[str, str]] = []


def _of_rows(rows: Iterable[Sequence[object]]) -> list[Call]:
    found: dict[object, _Transaction] = {}
    for number, said, command, name, epoch, version, release, arch, action, state in rows:
        call = found.setdefault(number, _Transaction(said, command))
        whole = f"{version}-{release}"
        key, whole = rpm.key_of(str(name), whole, str(arch)), f"{epoch}:{whole}" if epoch else whole
        if action in _DNF_CAME:
            call.came[key] = whole
        if action in _DNF_THERE:
            call.there.append((key, whole))
        elif action in _DNF_GONE and state == _DNF_DONE:
            call.gone.append((key, whole))
    return _without_older(found.values())


def _without_older(transactions: Iterable[_Transaction]) -> list[Call]:
    """The calls. A package went where none of its versions is left: of two, after an update that was cut off, the older one may go."""
    versions: dict[str, set[str]] = defaultdict(set)
    calls = []
    for call in transactions:
        for key, version in call.gone:
            versions[key].discard(version)
        for key, version in call.there:
            versions[key].add(version)
        went = frozenset(key for key, _version in call.gone if not versions[key])
        calls.append(Call(_mark(call.said), bool(_EARLIER.match(call.command)), call.came, went))
    return calls
