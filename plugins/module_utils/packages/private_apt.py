# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask apt about sources that are not configured yet, and leave the machine as it was.

apt runs on a configuration of its own in a temporary directory: the machine's settings (proxies, credentials, architectures)
without their hooks, the machine's sources and lists copied, the asked sources added, caches, logs and locks private. Only the
status of the installed packages is the machine's own; it is read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import mmap
import os
import re
import shutil
import tempfile
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp, simulated
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages as package_files
from ansible_collections.gpuwright.node.plugins.module_utils.observe import preferences as pins
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError, fetch

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource
    from ansible_collections.gpuwright.node.plugins.module_utils.index import (
        IndexProblem,
        PackageIndex,
        PackageInstall,
        PackageRemoval,
        PackageVersions,
    )

_LISTS = "/var/lib/apt/lists"
_SOURCES = "/etc/apt/sources.list"
_SOURCE_PARTS = "/etc/apt/sources.list.d"
_PREFERENCES = "/etc/apt/preferences"
_PREFERENCE_PARTS = "/etc/apt/preferences.d"
_STATUS = "/var/lib/dpkg/status"
_NETRC = "/etc/apt/auth.conf"
_OF_STATUS = re.compile(r"/\S*/status$")
# The lines of `apt-cache policy` that count.
_OF_POLICY = re.compile(
    r"(?P<package>\S+):$|  Candidate: (?P<candidate>\S+)| (?:\*\*\*|   ) (?P<version>\S+) (?P<priority>-?\d+)"
    r"|\s{8,}-?\d+ (?P<origin>\S+)"
)
# Of a package that dpkg did not bring to its end, and what a package says of others.
_UNFINISHED = re.compile(
    r"^(Status: \S+) \S+ (?:unpacked|half-installed|half-configured|triggers-awaited|triggers-pending)$", re.MULTILINE
)
_RELATIONS = re.compile(r"^(?:Pre-Depends|Depends|Conflicts|Breaks):.*\n(?:[ \t].*\n)*", re.MULTILINE)
_ADDRESS = re.compile(r"(?:https?|ftp|file|copy|cdrom):/[^\s']+")
# "Malformed entry 1 in list file PATH ([option] not assignment)", "Type 'x' is not known on stanza 1 in source list PATH" (apt 2.6, 3.0).
_UNREADABLE = re.compile(
    r"^E: (?P<what>Malformed|Type .+ is not known) (?:on |)(?:entry|line|stanza) (?P<number>\d+)"
    r" in (?:list file|source list|sources file) (?P<path>\S+)(?: \((?P<why>.*)\))?$"
)
_UNREAD_SOURCES = "list of sources could not be read"
_COMPRESSED_LIST = re.compile(r"_Packages\.(?:gz|xz|lz4|zst|bz2|lzma)$")
# Settings that would act on the machine (hooks) or fetch what is not asked for (indexes of files, icons, sources).
_LEFT_OUT = re.compile(
    r"^(?:APT::Update::(?:Pre|Post)-Invoke|DPkg::(?:Pre|Post)-|Acquire::IndexTargets::(?!deb::Packages)|APT::Periodic|Unattended-Upgrade)",
    re.IGNORECASE,
)
# Lists and caches of a desktop are some 400 MB, too much for a /tmp in memory.
_ROOMY = "/var/tmp"  # noqa: S108 - the directory in it is made by mkdtemp
_ASKED = "gpuwright-asked.sources"
_NAMED = 6
_OWN = Host()
_KEEP_PRIORITY = 1001
"""Above 1000: the kept version is the candidate even where a newer one is installed."""


class RepositoryKey(TypedDict, total=False):
    """Key of an asked repository."""

    url: str
    fingerprint: str
    path: str


Exclusion = TypedDict("Exclusion", {"release": "str | None", "packages": "list[str]", "except": "list[str]"})


class _Repository(TypedDict):
    name: str
    uris: list[str]


class Repository(_Repository, total=False):
    """Asked repository, as the resolver names it."""

    suites: list[str]
    components: list[str]
    key: RepositoryKey | None
    signed: str
    signed_by: str | None
    exclude: Exclusion | None


class Problem(NamedTuple):
    """Why a question has no full answer."""

    kind: str
    repository: str | None
    text: str
    remedy: str
    package: str | None = None
    needed: bool = True
    """Whether what is asked for depends on it: a source of somebody else's from which nothing would come does not stop anybody."""
    source: str | None = None
    """Id of a repository of the machine in dnf, which leaves it out by that; apt works without one that does not answer."""

    def as_dict(self) -> IndexProblem:
        """As the module returns it."""
        return cast("IndexProblem", dict(self._asdict()))


# Texts that apt writes


def parse_policy(text: str) -> dict[str, PackageVersions]:
    """Candidate and versions of each package that `apt-cache policy` knows; versions that only dpkg's status has are left out."""
    found: dict[str, PackageVersions] = {}
    entry: PackageVersions = {"candidate": None, "versions": []}
    version = None
    for line in text.splitlines():
        says = _OF_POLICY.match(line)
        if not says:
            continue
        if says["package"]:
            entry = found[says["package"]] = {"candidate": None, "versions": []}
            version = None
        elif says["candidate"]:
            entry["candidate"] = None if says["candidate"] == "(none)" else says["candidate"]
        elif says["version"]:
            version = says["version"]
        elif version and not _OF_STATUS.match(says["origin"]) and version not in entry["versions"]:
            entry["versions"].append(version)
    return {name: seen for name, seen in found.items() if seen["candidate"] or seen["versions"]}


def parse_priorities(text: str) -> dict[str, dict[str, int]]:
    """Priorities of the versions of each package in `apt-cache policy`; versions that only dpkg's status has are left out."""
    found: dict[str, dict[str, int]] = {}
    package, version, priority = "", "", 0
    for line in text.splitlines():
        says = _OF_POLICY.match(line)
        if not says:
            continue
        if says["package"]:
            package, version = says["package"], ""
        elif says["version"]:
            version, priority = says["version"], int(says["priority"])
        elif version and says["origin"] and not _OF_STATUS.match(says["origin"]):
            found.setdefault(package, {})[version] = priority
    return found


def parse_sizes(text: str, field: str) -> dict[str, int]:
    """What a field says of each package in stanzas of `apt-cache show` or of dpkg's status, in the field's own unit, by package name."""
    sizes = {}
    name = None
    for found in re.finditer(rf"^(Package|{field}): (\S+)", text, re.MULTILINE):
        if found.group(1) == "Package":
            name = found.group(2)
        elif name and re.match(r"[0-9]{1,15}$", found.group(2)):
            sizes[name] = int(found.group(2))
    return sizes


def installed_sizes(text: str) -> dict[str, int]:
    """Bytes on disk of each package in such stanzas, which tell KiB."""
    return {name: size * 1024 for name, size in parse_sizes(text, "Installed-Size").items()}


_SIGNATURE_WORDS = (
    "NO_PUBKEY",
    "BADSIG",
    "EXPKEYSIG",
    "REVKEYSIG",
    "is not signed",
    "GPG error",
    "signatures were invalid",
    "signature verification",
    "OpenPGP",
)
_REMEDIES = {
    "broken-source": "correct that entry or remove the file: apt itself installs nothing before that",
    "hidden": "take these packages out of that pin or exclusion, or remove it, where they may be installed; then run again",
    "unreachable": "check the network, the proxy of apt, and the address; or name a mirror",
    "not-let-in": "write USER:PASSWORD@, each percent-encoded, before the host of its address; those of the machine's own sources belong "
    "into /etc/apt/auth.conf.d",
    "bad-signature": "the repository is not signed by the expected key: check its address and key; check the clock of the machine too",
    "weak-key": "its key is bound by SHA-1, which apt no longer takes: put the key in place of it that its owner has renewed, else switch "
    "the source off",
    "wrong-key": "if the owner of the repository changed its key, check that with the owner and name the new fingerprint",
    "timeout": "the repository is slow or a proxy holds the connection back: try again, or give a longer limit",
    "no-such-package": "the repositories of this machine do not offer it: check the name, the version, and the repository of this release",
    "unsolvable": "the packages contradict each other or what is installed; the text names which",
    "lock": "another program changes packages now; wait until it is done",
}


def roomy() -> str | None:
    """Where a private state may lie; None for the system's own choice."""
    return _ROOMY if os.access(_ROOMY, os.W_OK) else None


def problem(kind: str, text: str, repository: str | None = None) -> Problem:
    """A problem with the usual remedy for its kind."""
    refused = kind == "unreachable" and re.search(r"\b401\b", text)
    weak = kind == "bad-signature" and "SHA1 is not considered secure" in text
    return Problem(kind, repository, text, _REMEDIES["not-let-in" if refused else "weak-key" if weak else kind])


def _kind_of(line: str) -> str:
    if any(word in line for word in _SIGNATURE_WORDS) or "is not valid yet" in line or "expired" in line:
        return "bad-signature"
    if "Could not get lock" in line or "Unable to lock" in line:
        return "lock"
    return "timeout" if "timed out" in line else "unreachable"


def _broken_source(line: str, directory: str) -> Problem | None:
    """The entry of a file of sources that apt cannot read; None for a line that says something else. `directory`: of the copies."""
    found = _UNREADABLE.match(line)
    if found is None:
        return None
    path = found["path"].replace(directory + "/", "/etc/apt/") if directory else found["path"]
    where = ("line" if path.endswith(".list") else "entry") + " " + found["number"]
    why = f"({found['why']})" if found["why"] else found["what"]
    return problem("broken-source", f"apt cannot read {path}, {where}: {why}")


def messages(text: str) -> list[str]:
    """What apt says, each of its errors and warnings in one line: a reason may go on in the lines that follow."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if found and found[-1][0][:3] in ("E: ", "W: ") and not re.match(r"[EWN]: ", line):
            found[-1].append(line.strip())
        else:
            found.append([line])
    return [" ".join(filter(None, each)) for each in found]


def unread(text: str, directory: str, what: str) -> Problem | None:
    """What apt could not read of its files, in its own words; None where it names no error. `directory`: of the copies."""
    said = [line[3:].strip() for line in messages(text) if line.startswith("E: ") and _UNREAD_SOURCES not in line]
    if not said:
        return None
    return problem("broken-source", f"apt cannot read {what}: {'; '.join(said).replace(directory + '/', '/etc/apt/')}")


def problems_of_update(text: str, names: Mapping[str, str], directory: str = "") -> list[Problem]:
    """Problems in what `apt-get update` said. `names`: name of the asked repository by its address; `directory`: where the machine's
    sources are copied to.

    apt ends with status 0 when a repository did not answer and only warns, so the lines count, not the status.
    """
    found: dict[tuple[str, str | None], Problem] = {}
    for line in messages(text):
        if not re.match(r"^[EW]: ", line) or "Some index files failed" in line:
            continue
        # These warn of habits of the machine's own sources, not of an answer that is missing.
        if re.search(
            r"configured multiple times|legacy trusted\.gpg|stored in legacy|doesn't support architecture|weak digest|Policy will reject",
            line,
        ):
            continue
        broken = _broken_source(line, directory)
        if broken is None and _UNREAD_SOURCES in text:
            broken = unread(text, directory, "its sources")
        if broken:
            return [broken]  # apt goes no further
        repository = next((name for uri, name in names.items() if uri.rstrip("/") in line), None)
        kind = _kind_of(line)
        told = problem(kind, " ".join(line[3:].split()), repository)
        # Of sources of others each address counts for itself; of two words about one the longer has the reason.
        place = (kind, repository or address_in(line))
        found[place] = max(found.get(place, told), told, key=lambda each: len(each.text))
    # A repository whose signature is bad is reported as failed to fetch too: the first tells more.
    distrusted = {repository for kind, repository in found if kind == "bad-signature"}
    return [
        item for (kind, repository), item in found.items() if not (kind == "unreachable" and repository in distrusted)
    ]


def address_in(text: str) -> str | None:
    """The address of a source in a line of apt's, up to its suite; None where there is none."""
    found = _ADDRESS.search(text)
    return found.group(0).split("/dists/", 1)[0].rstrip("/") if found else None


def with_expected_key(found: Problem, fingerprint: str | None) -> Problem:
    """A bad signature together with the key that was expected; any other problem as it is."""
    if found.kind != "bad-signature" or not fingerprint:
        return found
    return found._replace(
        text=f"expected {found.repository} to be signed by the key {fingerprint}, found: {found.text}"
    )


# What is written into the private directory


def source_stanza(repository: Repository, keyring: str | None) -> str:
    """A source in deb822 format (sources.list(5))."""
    lines = [
        "Types: deb",
        "URIs: " + " ".join(repository["uris"]),
        "Suites: " + " ".join(repository.get("suites") or ["/"]),
    ]
    if repository.get("components"):
        lines.append("Components: " + " ".join(repository["components"]))
    if keyring and keyring != "inline":
        lines.append("Signed-By: " + keyring)
    return "\n".join(lines) + "\n"


def auth_conf(credentials: Sequence[Mapping[str, str]]) -> str:
    """Lines of apt_auth.conf(5). The machine ends with a slash: what only begins alike is another place."""
    lines = []
    for each in credentials:
        password = " password " + each["password"] if each["password"] else ""
        lines.append("machine " + each["machine"].rstrip("/") + "/ login " + each["login"] + password + "\n")
    return "".join(lines)


def _places(repository: Repository | PackageSource) -> set[tuple[str, str]]:
    return {(uri.rstrip("/"), suite) for uri in repository["uris"] for suite in repository.get("suites") or ["/"]}


def without(
    text: str, path: str, asked: set[tuple[str, str]], kept: Callable[[PackageSource], bool] | None = None
) -> str:
    """A file of sources without those that lie at a place that is asked for anyway.

    apt refuses to work when one place is named twice with different keys. `kept` saves a source from that.
    """
    pieces = re.split(r"(\n[ \t]*\n)", text) if path.endswith(".sources") else text.splitlines(True)

    def stays(piece: str) -> bool:
        return all(
            (kept and kept(source)) or not (_places(source) & asked)
            for source in package_files.parse_sources(piece, path)
        )

    # Of a line the place stays empty: apt tells the number of one that it cannot read.
    return "".join(piece if stays(piece) else "" if path.endswith(".sources") else "\n" for piece in pieces)


def _pattern(prefix: str) -> str:
    """What fits the versions that begin so."""
    return prefix if prefix.endswith("*") else prefix + "*"


def preferences(keep: Mapping[str, str]) -> str:
    """Preferences (apt_preferences(5)) that hold packages to versions that begin so."""
    form = "Package: {0}\nPin: version {1}\nPin-Priority: {2}\n"
    return "\n".join(form.format(name, _pattern(prefix), _KEEP_PRIORITY) for name, prefix in sorted(keep.items()))


def of_versions(path: str, start: str) -> set[tuple[str, str]]:
    """Names and versions of the packages in a list of apt's, by its path, whose version begins so."""
    found: set[tuple[str, str]] = set()
    wanted = b"\nVersion: " + start.rstrip("*").encode()
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return found
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            here = data.find(wanted)
            while here >= 0:
                first, last = data.rfind(b"\n\n", 0, here + 1), data.find(b"\n\n", here)
                stanza = data[first + 1 if first >= 0 else 0 : last if last >= 0 else len(data)]
                fields = dict(re.findall(rb"^(Package|Version): (\S+)", stanza, re.MULTILINE))
                if len(fields) == 2:  # a stanza that names no package offers none
                    found.add((fields[b"Package"].decode(), fields[b"Version"].decode()))
                here = data.find(wanted, here + 1)
    return found


def barred(repositories: Sequence[Repository]) -> str:
    """Preferences that keep packages out of repositories from which they do not come, as the role repositories writes them."""
    form = "Package: {0}\nPin: release {1}\nPin-Priority: {2}\n"
    rows = []
    for repository in repositories:
        out = repository.get("exclude")
        if out and out["release"]:
            rows += [form.format(name, out["release"], 500) for name in out["except"]]
            rows += [form.format(name, out["release"], -1) for name in out["packages"]]
    return "\n".join(rows)


def without_packages(status: str, names: Iterable[str], native: str | None) -> str:
    """dpkg's record as if these packages (of another architecture: name:architecture) were not there. What depends on them, or on what
    they provide, loses its relations: apt solves nothing for a record in which something is missing.
    """
    gone, left = set(names), []
    lost: set[str] = set()
    for stanza in filter(str.strip, status.split("\n\n")):
        fields = _fields(stanza)
        if _full_name(fields, native) in gone:
            lost.add(fields["Package"])
            lost.update(re.findall(r"(?:^|, )([^\s,:(]+)", fields.get("Provides", "")))
        else:
            left.append(stanza)
    depends = re.compile(
        r"^(?:Pre-Depends|Depends):.*(?<![\w.+-])(?:{})(?![\w.+-])".format("|".join(map(re.escape, sorted(lost)))),
        re.MULTILINE,
    )
    return (
        "\n\n".join(
            _RELATIONS.sub("", stanza) if lost and depends.search(stanza) else stanza.strip("\n") for stanza in left
        )
        + "\n"
    )


def _fields(stanza: str) -> dict[str, str]:
    return dict(re.findall(r"^(Package|Architecture|Provides): (.*)$", stanza, re.MULTILINE))


def _full_name(fields: Mapping[str, str], native: str | None) -> str:
    """The name of the package of a stanza, with its architecture where that is another one than dpkg's own."""
    architecture = fields.get("Architecture", "all")
    return fields.get("Package", "") + ("" if architecture in (native, "all") else ":" + architecture)


def unfinished(status: str, native: str | None) -> list[str]:
    """The packages in dpkg's record that an interrupted run left unfinished: names, of another architecture name:architecture."""
    found = (_fields(each) for each in status.split("\n\n") if _UNFINISHED.search(each))
    return [_full_name(fields, native) for fields in found if "Package" in fields]


def finished(status: str) -> str:
    """dpkg's record as if nothing were unfinished, for apt solves nothing else before that is done, and the repair sees to it before
    anything is installed: what an interrupted run left counts as installed, without relations, as do those of what depends on it.
    """
    # A relation names a package without its architecture, or with another word after the colon (any).
    stanzas, names = status.split("\n\n"), {each.partition(":")[0] for each in unfinished(status, None)}
    if not names:
        return status
    depends = re.compile(
        r"^(?:Pre-Depends|Depends):.*(?<![\w.+-])(?:{})(?![\w.+-])".format("|".join(map(re.escape, sorted(names)))),
        re.MULTILINE,
    )
    return "\n\n".join(
        _UNFINISHED.sub(r"\1 ok installed", _RELATIONS.sub("", stanza))
        if _UNFINISHED.search(stanza) or depends.search(stanza)
        else stanza
        for stanza in stanzas
    )


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> str:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    return path


def _is_here(key: Optional[RepositoryKey]) -> bool:
    """Whether the key, if one is needed, lies where it belongs, and is the right one. What else lies there is replaced when the repository
    is set up.
    """
    if not key:
        return True
    if not os.path.exists(key.get("path") or ""):
        return False
    with open(key["path"], "rb") as stream:
        data = stream.read()
    try:
        return openpgp.mismatch(data, key["fingerprint"]) is None
    except openpgp.KeyFileError:
        return False


class PrivateApt:
    """apt with a state of its own. Use as a context manager: the directory goes at the end."""

    def __init__(
        self,
        timeout: float,
        runner: Callable[..., Result] = run_module.run,
        getter: Callable[..., bytes] = fetch,
        credentials: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """`timeout`: seconds for everything together. `credentials`: machine, login and password of mirrors."""
        self._end = time.monotonic() + timeout
        self._run = runner
        self._fetch = getter
        self._credentials = credentials
        self.directory = ""
        self.problems: list[Problem] = []

    def __enter__(self) -> PrivateApt:  # noqa: PYI034 - typing.Self is younger than Python 3.8
        self.directory = tempfile.mkdtemp(prefix="gpuwright-apt-", dir=roomy())
        return self

    def __exit__(self, *_exc: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _left(self) -> float:
        return max(1.0, self._end - time.monotonic())

    def _at(self, *parts: str) -> str:
        return os.path.join(self.directory, *parts)

    def apt(self, *argv: str) -> Result:
        """Run one of apt's programs on the private state."""
        return self._run(argv, timeout=self._left(), env={"APT_CONFIG": self._at("apt.conf")})

    # Making the state

    def _key(self, repository: Repository) -> str | None:
        """Keyring for a repository, checked against its fingerprint; None when it has none of its own. Raises KeyFileError, FetchError."""
        key = repository.get("key")
        if not key:
            return repository.get("signed_by")
        if _is_here(key):
            return str(key["path"])
        data = self._fetch(key["url"], min(30.0, self._left()), self._credentials)
        keyring = openpgp.checked(data, key["fingerprint"])
        path = self._at("keys", re.sub(r"[^A-Za-z0-9_-]", "_", repository["name"]) + ".gpg")
        with open(path, "wb") as out:
            out.write(keyring)
        return path

    def _trusted(self, repositories: Sequence[Repository]) -> list[str]:
        """Stanzas of the repositories whose key is the right one; the others become problems."""
        stanzas = (self._stanza(repository) for repository in repositories)
        return [stanza for stanza in stanzas if stanza is not None]

    def _stanza(self, repository: Repository) -> str | None:
        name = repository["name"]
        try:
            return source_stanza(repository, self._key(repository))
        except openpgp.KeyFileError as exc:
            self.problems.append(problem("wrong-key", f"the key of {name} is not accepted: {exc}", name))
        except FetchError as exc:
            self.problems.append(problem("timeout" if exc.timed_out else "unreachable", str(exc), name))
        return None

    def _copy_sources(self, asked: set[tuple[str, str]], components: set[str]) -> None:
        """The machine's own sources, without those that are asked for anyway.

        A source of the machine whose components are not all among the asked ones stays: the asked one adds to it.
        """

        def kept(source: PackageSource) -> bool:
            return bool(set(source["components"]) - components)

        _write(self._at("sources.list"), without(_text(_SOURCES), _SOURCES, asked, kept))
        if os.path.isdir(_SOURCE_PARTS):
            for name in os.listdir(_SOURCE_PARTS):
                if name.endswith((".list", ".sources")):
                    path = os.path.join(_SOURCE_PARTS, name)
                    _write(self._at("sources.list.d", name), without(_text(path), path, asked, kept))

    def _copy_preferences(self, repositories: Sequence[Repository]) -> None:
        """The machine's own files of preferences, without those of the asked repositories: what these keep out is asked for anew."""
        ours = {"gpuwright-" + repository["name"] for repository in repositories}
        for name in os.listdir(_PREFERENCE_PARTS) if os.path.isdir(_PREFERENCE_PARTS) else ():
            path = os.path.join(_PREFERENCE_PARTS, name)
            if name not in ours and os.path.isfile(path):
                _write(self._at("preferences.d", name), _text(path))

    def _copy_lists(self) -> None:
        """The machine's lists: what did not change since is not downloaded again."""
        if not os.path.isdir(_LISTS):
            return
        for name in os.listdir(_LISTS):
            path = os.path.join(_LISTS, name)
            if name != "lock" and os.path.isfile(path) and os.access(path, os.R_OK):
                # An apt that runs meanwhile replaces its lists: what is gone by now is downloaded.
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(path, self._at("state", "lists", name))

    def _configure(self) -> bool:
        """Write the configuration: the machine's own without hooks, then the private places."""
        dump = self._run(["apt-config", "dump"], timeout=self._left())
        if not dump.ok:
            self.problems.append(
                problem("unsolvable", dump.error or "apt-config dump failed: " + dump.err.strip()[-300:])
            )
            return False
        lines = [line for line in dump.out.splitlines() if line.endswith('";') and not _LEFT_OUT.match(line)]
        private = {
            "Dir::Etc::main": self._at("no.conf"),
            "Dir::Etc::parts": self._at("no.conf.d"),
            "Dir::Etc::sourcelist": self._at("sources.list"),
            "Dir::Etc::sourceparts": self._at("sources.list.d"),
            "Dir::Etc::preferences": self._at("preferences"),
            "Dir::Etc::preferencesparts": self._at("preferences.d"),
            "Dir::Etc::netrc": self._at("auth.conf"),
            "Dir::State": self._at("state"),
            "Dir::State::lists": self._at("state", "lists"),
            "Dir::State::status": self._status(),
            "Dir::State::extended_states": "/var/lib/apt/extended_states",
            "Dir::Cache": self._at("cache"),
            "Dir::Cache::archives": self._at("cache", "archives"),
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "Dir::Log": self._at("log"),
            "Debug::NoLocking": "true",
            "APT::Sandbox::User": "root",
            "APT::Get::List-Cleanup": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "1",
            "Acquire::http::Timeout": "15",
            "Acquire::https::Timeout": "15",
        }
        lines += [f'{name} "{value}";' for name, value in private.items()]
        _write(self._at("apt.conf"), "\n".join(lines) + "\n")
        return True

    def _status(self) -> str:
        """dpkg's own record, or a private one where an interrupted run left packages unfinished.

        Without its journal, as apt itself would read it until the repair has dpkg write it down.
        """
        own = _text(_STATUS)
        told = finished(own)
        return _STATUS if told == own else _write(self._at("status"), told)

    def prepare(
        self,
        repositories: Sequence[Repository],
        keep: Mapping[str, str],
        origin: Sequence[str] = (),
        *,
        fetches: bool = True,
    ) -> bool:
        """Make the state and fetch the indexes. Whether apt can be asked; what went wrong is in `problems`.

        `origin`: addresses of the repository that "every package" of `keep` comes from; it may come from any where there is none.
        `fetches`: whether indexes and keys are; else the repositories count of which all is here, in place of others at their addresses.
        """
        if not fetches:
            repositories = [row for row in repositories if _is_here(row.get("key"))]
        for parts in (
            ("keys",),
            ("sources.list.d",),
            ("preferences.d",),
            ("no.conf.d",),
            ("log",),
            ("state", "lists", "partial"),
            ("cache", "archives", "partial"),
        ):
            os.makedirs(self._at(*parts))
        stanzas = self._trusted(repositories)
        asked = {place for repository in repositories for place in _places(repository)}
        self._copy_sources(
            asked, {component for repository in repositories for component in repository.get("components") or []}
        )
        _write(self._at("sources.list.d", _ASKED), "\n".join(stanzas))
        # Before the machine's own: the first that fits counts. Only root enters the directory.
        _write(self._at("auth.conf"), auth_conf(self._credentials) + _text(_NETRC))
        self._copy_preferences(repositories)
        self._copy_lists()
        if not self._configure() or (fetches and not self._update(repositories)):
            return False
        preferred = "\n".join([barred(repositories), self._of_others(keep, origin), preferences(self._by_name(keep))])
        _write(self._at("asked-preferences"), preferred)
        _write(self._at("preferences"), f"{preferred}\n{_text(_PREFERENCES)}")
        return True

    def _of_others(self, keep: Mapping[str, str], origin: Sequence[str]) -> str:
        """Preferences that keep versions out which begin as wished, of packages that the addresses `origin` have so too, and come from
        elsewhere: apt by itself takes the newest of both. Empty where `origin` is, and where apt keeps its lists compressed.
        """
        start = keep.get(EVERY_PACKAGE)
        if start is None or not origin:
            return ""
        targets = self.apt("apt-get", "indextargets", "--format", "$(FILENAME) $(REPO_URI)", "Created-By: Packages")
        ours: set[tuple[str, str]] = set()
        others: set[tuple[str, str]] = set()
        for line in targets.out.splitlines():
            path, _space, address = line.partition(" ")
            if os.path.exists(path) and not _COMPRESSED_LIST.search(path):
                into = ours if address.rstrip("/") in {each.rstrip("/") for each in origin} else others
                into |= of_versions(path, start)
        names = {name for name, _version in ours}
        form = "Package: {0}\nPin: version {1}\nPin-Priority: -1\n"
        return "\n".join(form.format(name, version) for name, version in sorted(others - ours) if name in names)

    def _by_name(self, keep: Mapping[str, str]) -> dict[str, str]:
        """What to keep, with the names of the packages that "every package" means: those that have such a version.

        apt tries a pattern on each of a distribution's many thousand packages at every start (measured: 2.5 of 5.7 s of a
        question). Only where it keeps its lists compressed are they left to it.
        """
        start = keep.get(EVERY_PACKAGE)
        lists = [os.path.join(self._at("state", "lists"), name) for name in os.listdir(self._at("state", "lists"))]
        if start is None or any(_COMPRESSED_LIST.search(path) for path in lists):
            return dict(keep)
        named = {name for path in lists if path.endswith("_Packages") for name, _version in of_versions(path, start)}
        others = {name: version for name, version in keep.items() if name != EVERY_PACKAGE}
        return {**dict.fromkeys(sorted(named), start), **others}

    def _update(self, repositories: Sequence[Repository]) -> bool:
        result = self.apt("apt-get", "update")
        if result.error:
            self.problems.append(
                problem(
                    "timeout" if result.rc is None and "did not answer" in result.error else "unreachable", result.error
                )
            )
            return False
        conflicts = self._conflicts() if "Conflicting values" in result.err else []
        if conflicts:
            self.problems.append(problem("broken-source", "apt cannot read " + "; ".join(conflicts)))
            return False
        names = {uri: repository["name"] for repository in repositories for uri in repository["uris"]}
        keys = {repository["name"]: repository.get("key") or {} for repository in repositories}
        for found in problems_of_update(result.out + result.err, names, self.directory):
            self.problems.append(with_expected_key(found, keys.get(found.repository or "", {}).get("fingerprint")))
        return not any(found.kind == "broken-source" for found in self.problems)

    def _conflicts(self) -> list[str]:
        """The sources that differ in their key, by the files of the machine that they are copied from."""
        parts = self._at("sources.list.d")
        paths = [self._at("sources.list"), *(os.path.join(parts, name) for name in sorted(os.listdir(parts)))]
        sources: list[PackageSource] = []
        for path in paths:
            named = path.replace(self.directory + "/", "/etc/apt/")
            ours = os.path.basename(path) == _ASKED
            sources += package_files.parse_sources(_text(path), named if not ours else "gpuwright's own source")
        return package_files.conflicts(sources)

    # Asking

    def policy(self, names: Sequence[str]) -> dict[str, PackageVersions]:
        """Candidate and versions of packages that are known."""
        result = self.apt("apt-cache", "policy", *names)
        broken = None if result.ok else unread(result.err, self.directory, "its preferences")
        if result.error or broken:
            self.problems.append(broken or problem("timeout", result.error or ""))
            return {}
        return parse_policy(result.out)

    def hidden(self, wanted: Sequence[str], keep: Mapping[str, str]) -> set[str]:
        """Of `wanted` the packages that the machine's own pins keep out in every version that would do; each of these pins is a problem.

        Its own pins alone are asked, since those of the question come before them, and more of them each time: of the pins that fit a
        version the first counts.
        """
        own = pins.of(_OWN)
        names = {_split(item)[0]: item for item in wanted}
        places = [place for place, pin in enumerate(own, 1) if pin.priority < 0]
        out = self._kept_out(names, keep, own) if places else set()
        left = set(out)
        for place in places:
            here = self._kept_out({name: names[name] for name in sorted(left)}, keep, own[:place]) if left else set()
            if here:
                pin = own[place - 1]
                text = f"{pin.file} keeps {_listed(sorted(here))} from being installed ({pin.words})"
                self.problems.append(problem("hidden", text))
            left -= here
        return out

    def _kept_out(self, names: Mapping[str, str], keep: Mapping[str, str], own: Sequence[pins.Pin]) -> set[str]:
        """Of the packages (as they are asked for, by name) those of which no version may come that would do, by these pins alone."""
        path = _write(self._at("own-preferences"), "\n".join(pin.stanza for pin in own))
        told = self.apt("apt-cache", *_preferring(path, self._at("no.conf.d")), "policy", *names)
        out = set()
        for name, priorities in parse_priorities(told.out).items():
            form = _pattern(_split(names[name])[1] or keep.get(name) or keep.get(EVERY_PACKAGE) or "")
            fit = [rank for version, rank in priorities.items() if fnmatch.fnmatchcase(version, form)]
            fit = fit or list(priorities.values())
            if max(fit) < 0:
                out.add(name)
        return out

    def come(self, wanted: Sequence[str], recommends: bool, replaced: Sequence[str]) -> dict[str, str] | None:
        """Every package, with its version, that installing `wanted` would bring if `replaced` were not there, nor what an interrupted
        run left half done: apt goes on from there only where each of these, and what they need, is named. None where apt says nothing.
        """
        status, native = _text(_STATUS), package_files.native_arch(Host())
        told = without_packages(status, [*replaced, *unfinished(status, native)], native)
        private = "Dir::State::status=" + _write(self._at("status-without"), told)
        install, _removes = self.simulate(wanted, recommends, "-o", private)
        return {row["name"]: row["version"] for row in install} or None

    def simulate(
        self, wanted: Sequence[str], recommends: bool, *options: str
    ) -> tuple[list[PackageInstall], list[PackageRemoval]]:
        """What installing `wanted` (name, name=version, or name- for one that goes) would install and remove."""
        flag = "--install-recommends" if recommends else "--no-install-recommends"
        result = self.apt("apt-get", "-s", "-q", flag, *MAY_MOVE, *options, "install", *wanted)
        if not result.ok and self._hidden_among(wanted, flag, options):
            return [], []
        if not result.ok:
            text = result.error or "\n".join(
                line for line in (result.out + result.err).splitlines() if line.startswith((" ", "E:")) and line.strip()
            )
            self.problems.append(problem("timeout" if result.error else "unsolvable", text.strip()[-1500:]))
            return [], []
        install, removes = simulated.parse(result.out)
        shown = (
            self.apt("apt-cache", "show", *["{}={}".format(item["name"], item["version"]) for item in install])
            if install
            else None
        )
        downloads = parse_sizes(shown.out if shown else "", "Size")
        sizes = installed_sizes(shown.out if shown else "")
        rows: list[PackageInstall] = []
        for item in install:
            short = item["name"].split(":")[0]
            rows.append({**item, "download_bytes": downloads.get(short), "installed_bytes": sizes.get(short)})
        return rows, removes

    def _hidden_among(self, wanted: Sequence[str], flag: str, options: Sequence[str]) -> bool:
        """Whether the machine's own pins keep out what `wanted` needs: without them apt finds a way. Each of these pins is a problem."""
        if all(pin.priority >= 0 for pin in pins.of(_OWN)):
            return False
        without = _preferring(self._at("asked-preferences"), self._at("no.conf.d"))
        result = self.apt("apt-get", "-s", "-q", flag, *MAY_MOVE, *options, *without, "install", *wanted)
        come = [f"{row['name']}={row['version']}" for row in simulated.parse(result.out)[0]] if result.ok else []
        return bool(come and self.hidden(come, {}))

    def come_from(self, wanted: Sequence[str], recommends: bool) -> list[str] | None:
        """The addresses of the files that installing `wanted` would download; None where apt does not say."""
        flag = "--install-recommends" if recommends else "--no-install-recommends"
        result = self.apt("apt-get", "-qq", "--print-uris", flag, *MAY_MOVE, "install", *wanted)
        return re.findall(r"^'([^']+)' ", result.out, re.MULTILINE) if result.ok else None

    def judge_others(self, wanted: Sequence[str], recommends: bool) -> None:
        """Say which sources of others that did not answer nothing would come from."""
        others = [found for found in self.problems if _of_others(found)]
        if not others or len(others) != len(self.problems):
            return  # where something is missing nobody knows who would have had it
        files = self.come_from(wanted, recommends)
        if files is None:
            return
        self.problems = [
            found._replace(needed=any(file.startswith(f"{address_in(found.text)}/") for file in files))
            for found in self.problems
        ]


def _of_others(found: Problem) -> bool:
    """Whether it is a source of somebody else's that did not answer, or not as it should."""
    return (
        found.repository is None
        and found.kind in ("unreachable", "bad-signature", "timeout")
        and address_in(found.text) is not None
    )


# The set is held, and a component takes its holds back before it moves: apt would not move a held dependency by itself.
MAY_MOVE = ("--allow-downgrades", "--allow-change-held-packages", "-o", "APT::Ignore-Hold=true")


def _preferring(path: str, nothing: str) -> tuple[str, ...]:
    """Options by which apt has the preferences of one file alone. `nothing`: a directory without any."""
    return "-o", f"Dir::Etc::preferences={path}", "-o", f"Dir::Etc::preferencesparts={nothing}"


def _listed(names: Sequence[str]) -> str:
    """Names of packages in a sentence: the first, and how many more."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _split(wanted: str) -> tuple[str, str | None]:
    name, equals, version = wanted.partition("=")
    return name, version if equals else None


def nothing() -> PackageIndex:
    """The answer of the module package_index before anything is known."""
    return {
        "packages": {},
        "others": {},
        "install": [],
        "removes": [],
        "downgrades": [],
        "download_bytes": None,
        "disk_bytes": None,
        "enabled": [],
        "exchange": None,
        "problems": [],
    }


def ask(  # noqa: PLR0913 - each is an option of the module
    repositories: Sequence[Repository],
    wanted: Sequence[str],
    keep: Mapping[str, str],
    timeout: float,
    recommends: bool = False,
    runner: Callable[..., Result] = run_module.run,
    getter: Callable[..., bytes] = fetch,
    also: Sequence[str] = (),
    credentials: Sequence[Mapping[str, str]] = (),
    origin: Sequence[str] = (),
    replaced: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    leaves: Sequence[str] = (),
) -> PackageIndex:
    """The answer of the module package_index: versions, what would be installed and taken away, bytes, problems."""
    answer = nothing()
    beside = [*files.values(), *(f"{name}-" for name in leaves)]
    with PrivateApt(timeout, runner, getter, credentials) as apt:
        if not wanted:
            # Nothing comes from a repository: what does not answer is in nobody's way.
            if beside and apt.prepare(repositories, keep, fetches=False):
                _simulated(answer, apt, beside, recommends, files)
        elif apt.prepare(repositories, keep, origin):
            names = [_split(item)[0] for item in wanted]
            rows = apt.policy(list(dict.fromkeys([*names, *also])))
            answer["packages"] = known = {name: row for name, row in rows.items() if name in names or name not in also}
            answer["others"] = {name: row["versions"] for name, row in rows.items() if name in also}
            hidden = apt.hidden(wanted, keep)
            there = [item for item in wanted if _split(item)[0] not in hidden and _offered(known, item, apt.problems)]
            if there and replaced and not hidden:
                comes = apt.come(there, recommends, replaced)
                if comes is not None:
                    leaves = sorted(set(replaced).difference(comes))
                    answer["exchange"] = {"comes": comes, "leaves": leaves}
                    there = [
                        *(f"{name}={version}" for name, version in comes.items()),
                        *(f"{name}-" for name in leaves),
                    ]
            if there and not hidden:
                _simulated(answer, apt, [*there, *beside], recommends, files)
                apt.judge_others(there, recommends)
        answer["problems"] = [item.as_dict() for item in apt.problems]
    if not any(item["kind"] in ("unsolvable", "timeout") and item["needed"] for item in answer["problems"]):
        answer["download_bytes"], answer["disk_bytes"] = _bytes(answer)
    return answer


def _simulated(
    answer: PackageIndex, apt: PrivateApt, words: Sequence[str], recommends: bool, files: Mapping[str, str]
) -> None:
    """Put in what installing would bring and take away. What comes from a file is not among what comes from an index."""
    rows, answer["removes"] = apt.simulate(words, recommends)
    answer["install"] = [row for row in rows if row["name"] not in files]
    answer["downgrades"] = [name for name in simulated.downgrades(rows) if name not in files]


def _offered(known: Mapping[str, PackageVersions], wanted: str, problems: list[Problem]) -> bool:
    """Whether a package (in this version) is to be had; if not it becomes a problem."""
    name, version = _split(wanted)
    entry = known.get(name)
    if entry is None or (version is None and not entry["candidate"]):
        # Of a package that is there for other architectures alone, apt names the first that it takes too.
        others = ", ".join(sorted(each.rpartition(":")[2] for each in known if each.startswith(f"{name}:")))
        alone = f" for this machine's architecture; it is there for {others}" if others else ""
        problems.append(
            problem("no-such-package", f"no repository offers the package {name}{alone}")._replace(package=name)
        )
        return False
    if version is not None and version not in entry["versions"] and version != entry["candidate"]:
        offered = ", ".join(entry["versions"][:5]) or "none"
        text = f"no repository offers {name} in version {version}; offered: {offered}"
        problems.append(problem("no-such-package", text)._replace(package=name))
        return False
    return True


def _bytes(answer: PackageIndex) -> tuple[int | None, int | None]:
    """Bytes to download, and bytes more on disk afterwards."""
    downloads = [item["download_bytes"] for item in answer["install"]]
    sizes = [item["installed_bytes"] for item in answer["install"]]
    present = (
        installed_sizes(_text(_STATUS)) if answer["removes"] or any(item["from"] for item in answer["install"]) else {}
    )
    gone = sum(present.get(item["name"].split(":")[0], 0) for item in answer["install"] if item["from"])
    gone += sum(present.get(row["name"].split(":")[0], 0) for row in answer["removes"])
    return (_sum(downloads), None if None in sizes else (_sum(sizes) or 0) - gone)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None where one of the values is not known."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
