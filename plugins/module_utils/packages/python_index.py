# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the Python index of a node which files of a pinned version are there, as the pip that `wheels` runs would find them.

Who judges: the controller names the tags that an interpreter of this node takes (PEP 425, PEP 600), made by the library `packaging`; here
a file's tags are only looked up among them. A node may have no pip at all before its first environment is made, so the copy of that library
inside pip is nothing to lean on; and a page names some thousand files, of which only those that fit have to come to the controller. What is
left to judge (versions by PEP 440, Requires-Python, hashes) is judged there, from the answer.

Bounds: `timeout` seconds for everything, a page of 16 MiB, 128 MiB together. Whatever is still under way then is left behind in a thread
that ends with the module.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from functools import partial
from typing import Callable, Iterable, Mapping, NamedTuple, Sequence, TypedDict, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact, versions
from ansible_collections.gpuwright.node.plugins.module_utils.index import PythonAnswer, PythonFile, PythonRelease
from ansible_collections.gpuwright.node.plugins.module_utils.packages import fetch, pip_settings, proxies, simple_page
from ansible_collections.gpuwright.node.plugins.module_utils.packages.simple_page import Link
from ansible_collections.gpuwright.node.plugins.module_utils.packages.wheels import normalise

_PAGE = 16 << 20
_TOGETHER = 128 << 20
# Pages at once.
_WORKERS = 8
# Seconds that a server may be silent.
_SILENT = 15.0
# Of one question.
_FITS = 100
_UNFIT = 40
_OTHERS = 200
_PROBLEMS = 10
# Files whose size a server is asked for, where the page has none: the best ones.
_SIZED = 2
# Files of a directory that are looked at.
_LISTED = 20000
# Tags that the name of one wheel may stand for.
_TAGS = 2000
# What an index says that has no such project (RFC 9110), and what it says to whom it hands nothing; a store of objects says that too of
# what it has not. pip installs nothing from it either way. Whatever else goes wrong says nothing of what there is.
_ABSENT = (404, 410)
_DENIED = (401, 403, 407)
_VERSION = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.+!_]{0,127}\Z")
_SOURCES = (".tar.gz", ".zip")

T = TypeVar("T")


class Question(TypedDict):
    """A pinned requirement. ``urls``: the indexes that it may come from, empty for the machine's own. ``source``: it is built from that."""

    name: str
    version: str
    interpreter: str
    urls: list[str]
    source: bool


class Options(TypedDict):
    """The options of the module. ``tags``: what an interpreter takes, best first, such as cp313-cp313-manylinux_2_28_x86_64."""

    questions: list[Question]
    tags: dict[str, list[str]]
    credentials: list[dict[str, str]]
    timeout: float


class Place(NamedTuple):
    """Where files are looked for, without user and password. `paged`: it has a page for each project; else it is one page or directory."""

    url: str
    paged: bool


class Seen(NamedTuple):
    """What a place says of a project: its files, or why it says nothing. `denied`: because it hands nothing to this machine."""

    links: Sequence[Link]
    problem: str | None
    denied: bool = False


class File(NamedTuple):
    """A file of a project that may be installed. `rank`: the place of its best tag among those that are taken, None where it has none."""

    link: Link
    version: str
    rank: int | None


class Budget:
    """What is left of the time and of the bytes of one call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._bytes = _TOGETHER
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self._end - time.monotonic(), 0.0)

    def silent(self) -> float:
        """Seconds that a server may take from now on. Raises FetchError where none are left."""
        if not self.left:
            raise fetch.FetchError(f"there was no answer within {self.seconds:g} s", timed_out=True)
        return min(self.left, _SILENT)

    def take(self, count: int) -> None:
        """Count bytes that came. Raises FetchError where they are too many together."""
        with self._lock:
            self._bytes -= count
            if self._bytes < 0:
                raise fetch.FetchError(f"the pages of the Python index are larger than {_TOGETHER >> 20} MiB together")


def ask(options: Options, settings: Callable[[], pip_settings.Settings] = pip_settings.read) -> list[PythonAnswer]:
    """The answers, in the order of the questions. What cannot be asked is a problem of its answer, nothing is raised for it."""
    questions, budget = options["questions"], Budget(options["timeout"])
    try:
        own = settings()
        look = Look(own, options["credentials"], budget)
        places = [places_of(each, own) for each in questions]
    except (pip_settings.PipSettingsError, redact.CredentialsError) as exc:
        return [_answer(each, [], [], [redact.text(str(exc))]) for each in questions]
    pages = {(place, normalise(each["name"])) for each, there in zip(questions, places) for place in there}
    seen = at_once({key: partial(look.project, *key) for key in pages}, budget)
    answers = []
    for question, there in zip(questions, places):
        told = [seen.get((place, normalise(question["name"])), _late(place, budget)) for place in there]
        files = files_of(question, (link for each in told for link in each.links), options["tags"])
        problems = [own.of(question["urls"]).unknown, *(each.problem for each in told)]
        denied = [place.url for place, each in zip(there, told) if each.denied]
        answers.append(_answer(question, there, files, [each for each in problems if each], denied))
    _measure(answers, seen, look, budget)
    return answers


def places_of(question: Question, own: pip_settings.Settings) -> list[Place]:
    """Where a question's project is looked for. Raises CredentialsError."""
    of = own.of(question["urls"])
    found = [Place(redact.without_credentials(url).rstrip("/"), True) for url in of.indexes]
    return found + [Place(redact.without_credentials(url), False) for url in of.links]


def _late(place: Place, budget: Budget) -> Seen:
    return Seen((), f"{place.url} did not answer within {budget.seconds:g} s")


def at_once(jobs: Mapping[object, Callable[[], T]], budget: Budget) -> dict[object, T]:
    """What the jobs return, some at a time; without those that were not done when the time was up."""
    waiting, lock = list(jobs), threading.Condition()
    done: dict[object, T] = {}

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                key = waiting.pop()
            result = jobs[key]()
            with lock:
                done[key] = result
                lock.notify()

    for _worker in range(min(_WORKERS, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    with lock:
        lock.wait_for(lambda: len(done) == len(jobs), timeout=budget.left)
        waiting.clear()
        return dict(done)


class Look:
    """One look at the places of a node."""

    def __init__(self, own: pip_settings.Settings, credentials: Sequence[Mapping[str, str]], budget: Budget) -> None:
        """`credentials`: those of the wish. Those of the node's own configuration come to them. Raises CredentialsError."""
        named = (redact.credentials(url.rstrip("/")) for url in [*own.indexes, *own.links])
        known = [*credentials, *(each._asdict() for each in named if each)]
        by_proxy = {"http_proxy": own.proxy, "https_proxy": own.proxy} if own.proxy else None
        way = proxies.Settings(by_proxy, {}, {}) if by_proxy else proxies.settings()
        self._own, self._budget = own, budget
        self._pages = fetch.Visitor(way, own.cert, known)
        # What an index names lies on its machine, and not always below its own address.
        self._files = fetch.Visitor(way, own.cert, [*known, *_of_machines(known)])

    def project(self, place: Place, name: str) -> Seen:
        """What a place says of a project."""
        url = f"{place.url}/{quote(name)}/" if place.paged else place.url
        try:
            if self._own.ignores(place.url):
                return Seen(
                    (),
                    f"pip takes nothing from {place.url}: it is plain HTTP, and no trusted-host of its configuration",
                )
            path = _local(place.url)
            if path is not None:
                return Seen(self._of_disk(path, place, name), None)
            return Seen(self._of_server(url), None)
        except fetch.FetchError as exc:
            # The same reason is told once, whichever project was asked for.
            problem = None if exc.status in _ABSENT else str(exc).replace(url, place.url)
            return Seen((), problem, exc.status in _DENIED)
        except (OSError, simple_page.PageError) as exc:
            return Seen((), redact.text(f"{place.url} could not be read: {exc}"))

    def size(self, url: str) -> int | None:
        """The bytes of a file, as its server says; None where it says nothing. A page of another machine names no file of this one."""
        if not url.startswith(("http://", "https://")):
            return None
        try:
            return self._files.size(url, self._budget.silent())
        except fetch.FetchError:
            return None

    def content(self, url: str, limit: int) -> bytes:
        """What a file has, of at most `limit` bytes. Raises FetchError."""
        return self._files.page(url, "*/*", self._budget.left, limit).content

    def _of_server(self, url: str) -> Sequence[Link]:
        page = self._pages.page(url, simple_page.ACCEPT, self._budget.silent(), _PAGE)
        self._budget.take(len(page.content))
        return simple_page.links(page.content, page.kind, page.url)

    def _of_disk(self, path: str, place: Place, name: str) -> Sequence[Link]:
        """The files of a project below a directory with an index, in one with files, or on a page."""
        if place.paged:
            path = os.path.join(path, name, "index.html")
        if os.path.isdir(path):
            return _of_directory(path, name)
        if not os.path.lexists(path):
            return ()
        with open(path, "rb") as stream:
            content = stream.read(_PAGE + 1)
        if len(content) > _PAGE:
            raise simple_page.PageError(f"it is larger than {_PAGE >> 20} MiB")
        self._budget.take(len(content))
        return [_on_disk(link) for link in simple_page.links(content, "text/html", "file://" + quote(path))]


def _local(url: str) -> str | None:
    """The path that is meant by what may be an address, as pip reads it; None for another machine's."""
    if "://" not in url and not url.startswith("file:"):
        return os.path.expanduser(url)
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def _of_machines(known: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The same credentials for all of a machine, where it is clear which are."""
    found = [{**each, "machine": urlunsplit((*urlsplit(each["machine"])[:2], "", "", ""))} for each in known]
    machines = [each["machine"] for each in found]
    return [each for each in found if machines.count(each["machine"]) == 1]


def _of_directory(path: str, name: str) -> list[Link]:
    with os.scandir(path) as entries:
        named = [each.name for each in itertools.islice(entries, _LISTED) if _project(each.name) == name]
    return [_on_disk(Link(each, "file://" + quote(os.path.join(path, each)))) for each in named]


def _on_disk(link: Link) -> Link:
    """A file with its size, where it lies on this machine."""
    path = _local(link.url)
    if link.size is not None or path is None:
        return link
    try:
        return link._replace(size=os.stat(path).st_size)
    except OSError:
        return link


def _project(name: str) -> str:
    """The project of a file, by its name; empty for what is neither wheel nor source (PEP 427, PEP 625)."""
    if name.endswith(".whl"):
        return normalise(name.partition("-")[0])
    return normalise(name.rpartition("-")[0]) if name.endswith(_SOURCES) else ""


def files_of(question: Question, links: Iterable[Link], tags: Mapping[str, Sequence[str]]) -> list[File]:
    """The files of a question's project that pip may install: its sources where it is built from them, else its wheels, best first."""
    ranks = {tag: rank for rank, tag in enumerate(tags.get(question["interpreter"], ()))}
    found: dict[tuple[str, str | None], File] = {}
    for link in links:
        if _project(link.name) == normalise(question["name"]):
            file = _source(link) if question["source"] else _wheel(link, ranks)
            key = (link.name, link.sha256)
            # By its hash a file is the same, wherever it comes from; one place may say its size.
            if file and (key not in found or found[key].link.size is None):
                found[key] = file
    return sorted(found.values(), key=lambda each: (each.rank is None, each.rank or 0, each.link.name))


def _source(link: Link) -> File | None:
    if not link.name.endswith(_SOURCES):
        return None
    end = next(each for each in _SOURCES if link.name.endswith(each))
    version = link.name[: -len(end)].rpartition("-")[2]
    return File(link, version, 0) if _VERSION.match(version) else None


def _wheel(link: Link, ranks: Mapping[str, int]) -> File | None:
    """A wheel by its name, which has its version and the tags that it serves (PEP 427)."""
    parts = link.name[: -len(".whl")].split("-") if link.name.endswith(".whl") else []
    if len(parts) not in (5, 6) or not _VERSION.match(parts[1]):
        return None
    # Each of the three stands for several, joined by dots.
    every = itertools.islice(itertools.product(*(part.split(".") for part in parts[-3:])), _TAGS)
    taken = [ranks[tag] for tag in map("-".join, every) if tag in ranks]
    return File(link, parts[1].replace("_", "."), min(taken, default=None))


def _answer(
    question: Question,
    places: Sequence[Place],
    files: Sequence[File],
    problems: Sequence[str],
    denied: Sequence[str] = (),
) -> PythonAnswer:
    asked: list[File] = []
    others: list[File] = []
    for file in files:
        (asked if is_asked(file.version, question["version"]) else others).append(file)
    return {
        "name": normalise(question["name"]),
        "version": question["version"],
        "places": [place.url for place in places][:_PROBLEMS],
        "fits": [_told(file) for file in asked if file.rank is not None][:_FITS],
        "unfit": [file.link.name for file in asked if file.rank is None][:_UNFIT],
        "others": _others(others),
        "problems": list(dict.fromkeys(problems))[:_PROBLEMS],
        "denied": list(denied)[:_PROBLEMS],
    }


def _told(file: File) -> PythonFile:
    link = file.link
    return {
        "name": link.name,
        "version": file.version,
        "size": link.size,
        "sha256": link.sha256,
        "yanked": link.yanked,
        "requires_python": link.requires_python,
    }


def _others(files: Iterable[File]) -> list[PythonRelease]:
    """The other versions that have a file that fits, newest first."""
    found: dict[str, PythonRelease] = {}
    for file in files:
        if file.rank is not None and not file.link.yanked:
            found.setdefault(file.version, {"version": file.version, "requires_python": file.link.requires_python})
    return [found[each] for each in sorted(found, key=versions.key, reverse=True)][:_OTHERS]


def is_asked(found: str, asked: str) -> bool:
    """Whether a file's version is the one that was asked for (PEP 440); which local version it has counts where one is asked for."""
    public, local = _parts(found)
    wished, only = _parts(asked)
    return public == wished and only in ("", local)


def _parts(version: str) -> tuple[str, str]:
    """A version as it is compared: the public one without zeroes at its end, and the local one."""
    public, _plus, local = re.sub(r"[-_]", ".", version.lower()).partition("+")
    return re.sub(r"(?:\.0)+\Z", "", public), local


def _measure(answers: Sequence[PythonAnswer], seen: Mapping[object, Seen], look: Look, budget: Budget) -> None:
    """Put in the sizes that no page says, of the best files."""
    urls = {link.name: link.url for each in seen.values() for link in each.links}
    lack = [file for answer in answers for file in answer["fits"][:_SIZED] if file["size"] is None]
    sizes = at_once({file["name"]: partial(look.size, urls[file["name"]]) for file in lack}, budget)
    for file in lack:
        file["size"] = sizes.get(file["name"])
