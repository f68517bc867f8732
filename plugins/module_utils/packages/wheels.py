# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wheels in a virtual environment, by its own pip: no source is built, and each package has one index that it may come from.

Another program (uv) may be tried before; where it declines, it is pip as ever.

pip takes a package from whichever of its indexes has the highest version, so it is given one at a time. Neither variables nor
files of whoever starts it count for it, only /etc/pip.conf; a password stands in a file of root's, never in an argument. It goes by the
node's proxy (proxies), which it is told in variables: one of its configuration it would hand on as an argument where it builds.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import tempfile
from typing import Callable, Iterable, List, Mapping, NamedTuple, Sequence, TypedDict
from urllib.parse import quote

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import python_envs
from ansible_collections.gpuwright.node.plugins.module_utils.packages import proxies

RECORD = "gpuwright-wheels.txt"
"""File in an environment that says which wheels it was made of, as pip's requirements with hashes."""

_HEAD = """\
# By gpuwright: the wheels that this environment was made of. `gpuwright resolve --lock FILE --hashes THIS` holds others to them.
"""
BROUGHT_ALONG = ("pip", "setuptools", "wheel")
"""They come with the environment, not from an index."""

OTHER_FILES = "DO NOT MATCH THE HASHES"
"""How pip says that a file is not the one that is named by its hash."""

_WITHOUT_PIP = (
    "Expected pip in {0}, or a uv that brings one. Found neither: its Python has no ensurepip, and {1}. What to do: have the package of "
    "that Python that brings ensurepip installed (python3.X-venv on Debian and Ubuntu), or name an index that has uv in gpuwright_mirrors."
)
_DAY = 86400.0
# The first pip that goes on with a download that was cut off (where the server hands out ranges), and how often it shall for one file.
_RESUMES = "25.1"
_RESUMED = "20"
# The last pip for Python 3.8.
_LAST_FOR_38 = "25.0"
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)((?:\s+--hash=sha256:[0-9a-f]{64})*)$")
_NOWHERE = re.compile(r"No matching distribution found for ([A-Za-z0-9][A-Za-z0-9._-]*)")
# Of what an index refuses, pip tells its log alone.
_NOT_FETCHED = re.compile(r"Could not fetch URL (.+) - skipping$", re.MULTILINE)
# How pip says that requirements do not go together, and what its log has above which.
_IMPOSSIBLE, _CLASH = "ResolutionImpossible", "The conflict is caused by:"
_OTHER_FILE = re.compile(r"^ +(\S+==\S+|\S+) from (\S+)", re.MULTILINE)

Runner = Callable[..., Result]


class LockedWheel(TypedDict):
    """Wheel that a lock names."""

    name: str
    version: str
    sha256: list[str]


#: The option of a module that takes the wheels of a lock.
OPTION: dict[str, object] = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        "name": {"type": "str", "required": True},
        "version": {"type": "str", "required": True},
        "sha256": {"type": "list", "elements": "str", "required": True},
    },
}


class Held(TypedDict):
    """Environment that is held to the wheels of a lock."""

    environment: str
    wheels: list[LockedWheel]


class Uv(TypedDict):
    """The uv that may be brought: its version, the SHA-256 of its wheels, and the directory of ours, as seen from the one
    above the environment, in which it lies and works.
    """

    version: str
    sha256: list[str]
    directory: str


class Options(Held):
    """The options of the module. ``pip``: the version that the environment's pip has to have at the least, None for any. ``uv``: the one
    that is tried before pip, None for pip alone.
    """

    requirements: list[str]
    constraints: list[str]
    index_url: str | None
    dependencies_url: str | None
    credentials: list[dict[str, str]]
    from_source: list[str]
    pip: str | None
    record: bool
    uv: Uv | None


class _Answer(TypedDict):
    changed: bool
    installed: list[str]


class Answer(_Answer, total=False):
    """What the module answers. ``builder``: what installed it, where anything had to be; ``declined``: why it was not uv, if it was not."""

    builder: str
    declined: str


class Wheel(NamedTuple):
    """A distribution of one version, and the SHA-256 of each file that it may come as; without any, none is known."""

    name: str
    version: str
    sha256: tuple[str, ...]

    def line(self) -> str:
        """Itself as pip's requirement."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in self.sha256)])


class Turn(NamedTuple):
    """One run of pip: what it is asked for, and the indexes that it may ask; without any, the host's own."""

    requirements: list[str]
    urls: list[str]
    dependencies: bool
    hashes: bool


class PipError(Exception):
    """pip did not do what it was asked; the text says what was expected, what was found and what to do.

    `gave_up`: it ended by itself, so that nothing is left half done.
    """

    def __init__(self, text: str, gave_up: bool) -> None:
        super().__init__(text)
        self.gave_up = gave_up


class Declined(Exception):
    """Another program than pip does not do this; the text says why. Nothing is installed."""


#: Installs by another program into an environment, with a directory of this run alone. Raises Declined where it cannot do what pip would.
Other = Callable[[Options, str, Runner], "list[Wheel]"]


def normalise(name: str) -> str:
    """The name of a distribution as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def turns(options: Options) -> list[Turn]:
    """The runs of pip that bring the requirements, or the locked wheels, each from the one index that it belongs to."""
    own, rest = options["requirements"], options["dependencies_url"]
    urls = [options["index_url"]] if options["index_url"] else []
    others = [] if rest is None or [rest] == urls else [rest]
    if options["wheels"]:
        # By its hash a file is the same, wherever it comes from.
        return [Turn([wheel.line() for wheel in _locked(options)], urls + others, False, True)]
    if not others:
        return [Turn(own, urls, True, False)]
    # What is there already fits, so that the second run leaves it alone.
    return [Turn(own, urls, False, False), Turn(own, others, True, False)]


def _locked(options: Held) -> list[Wheel]:
    return [Wheel(normalise(each["name"]), each["version"], tuple(each["sha256"])) for each in options["wheels"]]


def as_locked(options: Held) -> bool:
    """Whether an environment is made of the locked wheels, each by one of its hashes, and of nothing else that is known."""
    there = python_envs.distributions(Host(), options["environment"])
    made_of = {
        (wheel.name, wheel.version, wheel.sha256[0])
        for wheel in _recorded(options["environment"])
        if wheel.sha256 and normalise(there.get(wheel.name, "")) == normalise(wheel.version)
    }
    locked = _locked(options)
    may = {(wheel.name, wheel.version, sha256) for wheel in locked for sha256 in wheel.sha256}
    return made_of <= may and {name for name, _version, _sha256 in made_of} == {wheel.name for wheel in locked}


def configuration(urls: Sequence[str], credentials: Sequence[Mapping[str, str]]) -> str:
    """A configuration of pip's that stands above the host's own: where indexes are named, they are the only ones; "" is the host's own."""
    if not urls:
        return ""
    named = [with_credentials(url, credentials) for url in urls if url]
    if len(named) < len(urls):
        # The host's own index stays, and these come to it.
        return f"[install]\nextra-index-url = {' '.join(named)}\n" if named else ""
    first, *others = named
    # An empty value takes back the host's. It may stand in either section.
    rows = "index-url = " + first + "\nextra-index-url = " + " ".join(others) + "\n"
    return "".join(f"[{section}]\n{rows}" for section in ("global", "install"))


def with_credentials(url: str, credentials: Iterable[Mapping[str, str]]) -> str:
    """The address of an index with the user and the password that are for it. For a file of root's alone."""
    found = redact.access(url, credentials)
    if found is None:
        return url
    who = quote(found.login, safe="") + (":" + quote(found.password, safe="") if found.password else "")
    return url.replace("://", f"://{who}@", 1)


def pip_alone(_options: Options, _directory: str, _run: Runner) -> list[Wheel]:
    """Install by nothing but pip."""
    raise Declined("it is not asked for")


def install(options: Options, run: Runner = run_module.run, other: Other = pip_alone) -> Answer:
    """Bring an environment to hold the requirements, or the locked wheels; the module's answer. Raises PipError, OSError.

    `other`: what is tried before pip.
    """
    if options["wheels"] and as_locked(options):
        return {"changed": False, "installed": []}
    # Everyone may read and run what root installs, and nobody else may write it, whatever root's own umask is.
    os.umask(0o022)
    directory = private_directory()
    try:
        return _installed(options, directory, run, other)
    finally:
        shutil.rmtree(directory)


def private_directory() -> str:
    """A new directory for what has passwords in it. It is lost with the machine's power, if that comes in between."""
    return tempfile.mkdtemp(prefix="gpuwright-pip-", dir="/run" if os.access("/run", os.W_OK) else None)


def _installed(options: Options, directory: str, run: Runner, other: Other) -> Answer:
    builder, declined = "uv", ""
    try:
        installed = other(options, directory, run)
        changed = bool(installed)
    except Declined as exc:
        builder, declined = "pip", str(exc)
        if other is not pip_alone and not has_pip(options["environment"]):
            raise PipError(_WITHOUT_PIP.format(options["environment"], declined), gave_up=True) from None
        changed, installed = _by_pip(options, directory, run)
    if options["record"]:
        _record(options["environment"], installed)
    names = [f"{each.name}=={each.version}" for each in installed]
    return {"changed": changed, "installed": names, "builder": builder, "declined": declined}


def has_pip(environment: str) -> bool:
    """Whether an environment has a pip of its own."""
    return "pip" in python_envs.distributions(Host(), environment)


def _by_pip(options: Options, directory: str, run: Runner) -> tuple[bool, list[Wheel]]:
    """Install by the environment's pip: whether that changed anything, and what its reports say that it installed."""
    changed = _bring_pip(options, directory, run)
    installed: list[Wheel] = []
    for turn in turns(options):
        if turn.requirements:
            changed |= _turn(turn, options, directory, run)
            installed += _reported(os.path.join(directory, "report"))
    return changed, installed


def _bring_pip(options: Options, directory: str, run: Runner) -> bool:
    """Bring the environment's pip to the version that it has to have at the least; whether it was replaced."""
    least = options["pip"]
    there = python_envs.distributions(Host(), options["environment"]).get("pip", "0")
    if not least or numeric_version.at_least(there, least):
        return False
    requirements = pip_requirements(least)
    urls = [options["dependencies_url"]] if options["dependencies_url"] else []
    plain: Options = {**options, "requirements": requirements, "constraints": [], "from_source": [], "record": False}
    return _turn(Turn(requirements, urls, True, False), plain, directory, run)


def pip_requirements(least: str) -> list[str]:
    """What a pip of a version, or the nearest that its Python has, is asked for by."""
    return [f"pip>={least}; python_version >= '3.9'", f"pip>={_LAST_FOR_38}; python_version < '3.9'"]


def _turn(turn: Turn, options: Options, directory: str, run: Runner) -> bool:
    """Run pip, where it gives up once more without its cache (a damaged file in it fails every time); whether it installed anything."""
    done = run_pip(turn, options, directory, run)
    if done.rc in (1, 2):
        done = run_pip(turn, options, directory, run, ["--no-cache-dir"])
    if not done.ok:
        # pip takes credentials out of most of its words; the rest is ours.
        text = redact.text(why(done, _read(os.path.join(directory, "log")), turn, options))
        raise PipError(text, done.rc in (1, 2))
    return "Successfully installed" in done.out


def run_pip(turn: Turn, options: Options, directory: str, run: Runner, more: Sequence[str] = ()) -> Result:
    """Run the environment's pip once, with more arguments than a turn has by itself. Raises PipError where there is no way to an index."""
    files = {
        "pip.conf": configuration(turn.urls, options["credentials"]),
        "requirements": "\n".join(turn.requirements) + "\n",
        "constraints": "\n".join([] if turn.hashes else options["constraints"]) + "\n",
    }
    for name, text in files.items():
        write_private(os.path.join(directory, name), text)
    pip = python_envs.distributions(Host(), options["environment"]).get("pip", "0")
    argv = command(turn, options, directory, resumes=numeric_version.at_least(pip, _RESUMES))
    variables = {"PIP_CONFIG_FILE": os.path.join(directory, "pip.conf"), "XDG_CONFIG_DIRS": "/etc/xdg"}
    return run([*argv, *more], timeout=_DAY, env={**way(turn.urls, proxies.settings()), **variables})


def write_private(path: str, text: str) -> None:
    """Write a file that only its owner reads."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)


def way(urls: Sequence[str], known: proxies.Settings) -> dict[str, str]:
    """The variables by which a program goes to indexes as the node goes. Raises PipError."""
    try:
        return proxies.variables([url for url in urls if url], known)
    except proxies.ProxyError as exc:
        raise PipError(f"{exc}.", gave_up=True) from exc


def command(turn: Turn, options: Options, directory: str, resumes: bool = False) -> list[str]:
    """The command line of one run of pip."""
    argv = run_module.bound([os.path.join(options["environment"], "bin/python"), "-I", "-m", "pip", "--isolated"])
    argv += ["--disable-pip-version-check", "--no-input", "--log", os.path.join(directory, "log")]
    argv += ["install", "--progress-bar", "off", "--only-binary", ":all:"]
    argv += ["--resume-retries", _RESUMED] if resumes else []
    for name in options["from_source"]:
        argv += ["--no-binary", name]
    for name in ("requirement", "constraint"):
        argv += ["--" + name, os.path.join(directory, name + "s")]
    argv += [] if turn.dependencies else ["--no-deps"]
    # Of what is there already it is not asked which file it came from.
    argv += ["--require-hashes", "--force-reinstall"] if turn.hashes else []
    # Not known to the pip that an old Python brings along, which is only asked to replace itself.
    return argv + (["--report", os.path.join(directory, "report")] if options["record"] else [])


def why(done: Result, log: str, turn: Turn, options: Options) -> str:
    """What was expected of pip, what was found, and what to do."""
    where = " and ".join(url or "the index of the host" for url in turn.urls) or "the index of the host"
    environment = options["environment"]
    lacking = _NOWHERE.search(done.err)
    if lacking and re.search(r"No sources permitted for " + re.escape(lacking.group(1)) + r"\b", log, re.IGNORECASE):
        as_root = (
            ": to build them, code of theirs would run as root" if os.geteuid() == 0 else ", and no source is built"
        )
        return (
            f"Expected wheels of everything that {environment} needs. Found only sources of {lacking.group(1)} on {where}{as_root}. "
            "What to do: ask for another release; or make a wheel of it (pip wheel) and put it on an index that you name in "
            "gpuwright_mirrors; or, where a project needs it, have it built in a run of your own: gpuwright up --user … --allow-source "
            f"{lacking.group(1)}."
        )
    if _IMPOSSIBLE in done.err:
        return (
            f"Expected requirements of {environment} that go together. Found: {'; '.join(_clash(log)) or told(done)}. "
            "What to do: change or leave out one of these, in the project's file where it stands there, or give each an environment of its "
            "own. What was in use before stays as it is."
        )
    if OTHER_FILES in done.err:
        files = ", ".join(" from ".join(found) for found in _OTHER_FILE.findall(done.err))
        who, then = ("the lock", "; then make the lock anew.") if turn.hashes else (where, ".")
        return (
            f"Expected the files that {who} names by their SHA-256. Found another one: {files or told(done)}. "
            f"What to do: find out who changed it before you trust it{then}"
        )
    found = "; ".join(dict.fromkeys([told(done), *_NOT_FETCHED.findall(log)]))
    return (
        f"Expected pip to install {', '.join(options['requirements'])} into {environment}. Found: {found}. "
        f"What to do: look whether {where} can be reached from the machine and has these versions, or name a mirror in gpuwright_mirrors; "
        "then run again."
    )


def _clash(log: str) -> List[str]:
    """What does not go together, as pip tells it in its log: the lines below a heading, each behind the time."""
    lines = [line.partition(" ")[2] for line in log.splitlines()]
    start = next((place for place, line in enumerate(lines, start=1) if line.startswith(_CLASH)), len(lines))
    return [line.strip() for line in itertools.takewhile(str.strip, lines[start:])]


def told(done: Result) -> str:
    """What pip says of why it gave up."""
    lines = done.err.splitlines()
    return " ".join([line for line in lines if "ERROR" in line or "rror:" in line] or lines) or str(
        done.error or f"exit code {done.rc}"
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def _reported(path: str) -> list[Wheel]:
    """What pip says in its report that it installed; empty where it was asked for none."""
    text = _read(path)
    found = []
    for row in json.loads(text)["install"] if text else ():
        archive = row["download_info"].get("archive_info") or {}
        # Before pip 23.1 there is but one, as sha256=DIGEST.
        kind, _equals, digest = str(archive.get("hash") or "").partition("=")
        sha256 = (archive.get("hashes") or {kind: digest}).get("sha256")
        found.append(Wheel(normalise(row["metadata"]["name"]), row["metadata"]["version"], (sha256,) if sha256 else ()))
    return found


def _recorded(environment: str) -> list[Wheel]:
    """What an environment is said to be made of; nothing where that file is missing or none of ours."""
    try:
        return pins(_read(os.path.join(environment, RECORD)))
    except ValueError:
        return []


def _record(environment: str, installed: Sequence[Wheel]) -> None:
    """Write which wheels an environment is made of: what came now, and of what was there what is known of before."""
    path = os.path.join(environment, RECORD)
    known = {wheel.name: wheel for wheel in [*_recorded(environment), *installed]}
    rows = []
    for name, version in sorted(python_envs.distributions(Host(), environment).items()):
        wheel = known.get(name)
        if wheel is None or normalise(wheel.version) != normalise(version):
            wheel = Wheel(name, version, ())
        if wheel.sha256 or name not in BROUGHT_ALONG:
            rows.append(wheel)
    text = _HEAD + "".join(wheel.line() + "\n" for wheel in rows)
    if text != _read(path):
        with open(path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(path + ".new", path)


def is_pin(line: str) -> bool:
    """Whether a line is a pin and nothing else, with or without hashes."""
    return _PIN.match(line) is not None and "\n" not in line


def pins(text: str) -> list[Wheel]:
    """The pins with their hashes in a file of pip's requirements. Raises ValueError with a line that is none, of which it may have none."""
    found = []
    for written in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", written).strip()
        pin = _PIN.match(line)
        if pin:
            found.append(Wheel(normalise(pin.group(1)), pin.group(2), tuple(re.findall(r"[0-9a-f]{64}", pin.group(3)))))
        elif line:
            raise ValueError(line)
    return found
