# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wheels of an environment by uv, which takes a part of pip's time. Where it cannot do the same as pip, it declines and pip builds.

uv comes as a wheel from the node's own Python index, by the SHA-256 that is known here; where there is no pip to bring it, it is
fetched, and brings pip. What it installs it says first: a pylock.toml
(PEP 751) of one wheel a distribution, with its address and SHA-256; those are downloaded then and nothing else. It is told the
settings of the host's pip, in a file of root's alone, and none of its own variables and files count. Its program and what it downloads
lie beside the environment in a directory of ours, from which the next build goes on where this one is cut off. How far it is stands in a
file there (meter): uv unpacks what it downloads at once, so that the bytes of what is not whole yet are an estimate.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import zipfile
from functools import partial
from typing import Callable, Mapping, NamedTuple, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import python_envs
from ansible_collections.gpuwright.node.plugins.module_utils.packages import (
    fetch,
    meter,
    pip_settings,
    proxies,
    python_index,
    wheels,
)
from ansible_collections.gpuwright.node.plugins.module_utils.packages.wheels import (
    Declined,
    Options,
    Runner,
    Turn,
    Uv,
    Wheel,
)

_BOOT = "/proc/sys/kernel/random/boot_id"
_DAY = 86400.0
# Of an index that does not answer; pip asks it once more for the environment itself, and waits longer.
_SECONDS = "15"
# Seconds and bytes that its wheel may take where there is no pip to bring it.
_FETCHED = 600.0
_LARGEST = 128 << 20
# uv (0.13) makes it, for everybody to write.
_LOCK_FILE = ".lock"
_PACKAGE = re.compile(
    r'^\[\[packages\]\]\nname = "([^"\n]+)"\nversion = "([^"\n]+)"\n(.*(?:\n(?!\[|$).*)*)', re.MULTILINE
)
# A wheel of an index, and one that was asked for by its address.
_FILE = re.compile(
    r'^(?:wheels = \[\{|archive = \{) url = "([^"\n]+)",.*hashes = \{ sha256 = "([0-9a-f]{64})" \} \}\]?$'
)
_OF_INDEX = "wheels = "
_INDEX = re.compile(r'^index = "([^"\n]+)"$')
_SIZE = re.compile(r", size = ([0-9]{1,15}), ")
# In the cache of uv (0.13): what is whole, a directory a wheel, and what is not yet.
_WHOLE = "archive-v0"
_UNDER_WAY = ".tmp"
# Bytes on the disk for one of a wheel: those of PyTorch 2.15.0 with the libraries that it needs (1.79; of 1.1 to 3.7 each).
_UNPACKED = 1.8
# As much of what is not whole is told to be there at most: it is not whole.
_AT_MOST = 0.95
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(\[[A-Za-z0-9._, -]+\])?==(\S+)$")


class File(NamedTuple):
    """A wheel that uv takes: the address of the one file, its SHA-256, its bytes, where the index says them, and the index (origin).

    uv finds what it downloaded before by the index; by the address alone it would ask the server again.
    """

    name: str
    version: str
    url: str
    sha256: str
    size: int | None = None
    origin: str | None = None


class Work(NamedTuple):
    """What each call of uv needs: its program, its cache, a directory of this run alone, what it goes by, and which Python it works for.
    `seconds`: how long a call may take.
    """

    program: str
    cache: str
    directory: str
    own: pip_settings.Settings
    options: Options
    run: Runner
    python: Sequence[str]
    seconds: float = _DAY


def install(options: Options, directory: str, run: Runner = run_module.run) -> list[Wheel]:
    """Install the requirements, or the locked wheels, into an environment that has nothing yet; what was installed.

    `directory`: one of this run alone, for what holds passwords. Raises Declined, wheels.PipError, OSError.
    """
    program = options["uv"]
    if program is None:
        raise Declined("it is not named")
    place = os.path.join(os.path.dirname(options["environment"]), program["directory"])
    own = _fit(options, place)
    aside = _aside(place)
    try:
        path = _bring(options, program, aside, directory, own, run)
        python = ["--python", os.path.join(options["environment"], "bin/python")]
        work = Work(path, os.path.join(aside, "cache"), directory, own, options, run, python)
        if not wheels.has_pip(options["environment"]):
            _seed(work)
        files = _resolved(work)
        with meter.told(os.path.join(place, meter.FILE), _progress(files, work)):
            _install(files, work, [url for turn in wheels.turns(options) for url in turn.urls])
    except Declined:
        # pip needs the room.
        shutil.rmtree(place, ignore_errors=True)
        raise
    return [Wheel(file.name, file.version, (file.sha256,)) for file in files]


def _fit(options: Options, place: str) -> pip_settings.Settings:
    """The settings of the host's pip, where uv can do all that is asked as pip would. Raises Declined."""
    if options["from_source"]:
        raise Declined("a source is built, which is left to pip")
    there = set(python_envs.distributions(Host(), options["environment"])) - set(wheels.BROUGHT_ALONG)
    if there:
        raise Declined(f"something is installed already ({', '.join(sorted(there)[:3])})")
    found = ownership.offence(place, owners=(0, os.geteuid()))
    if found:
        raise Declined(f"its place is not root's alone: {found.text}")
    # pip reads that of the environment, too.
    return settings(os.path.join(options["environment"], "pip.conf"))


def settings(*more: str) -> pip_settings.Settings:
    """The settings of the host's pip, with more files of it, where uv knows all of them. Raises Declined."""
    try:
        own = pip_settings.read([*pip_settings.FILES, *more])
    except pip_settings.PipSettingsError as exc:
        raise Declined(str(exc)) from None
    if own.others:
        raise Declined(f"pip's configuration has {', '.join(own.others)}, which uv does not know")
    return own


def _aside(directory: str) -> str:
    """The directory of this boot, in a place that nobody else sees. What was there before a loss of power may have lost its content."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    os.chmod(directory, 0o700)
    boot = Host().line(_BOOT) or "unknown"
    for name in os.listdir(directory):
        if name != boot:
            _remove(os.path.join(directory, name))
    os.makedirs(os.path.join(directory, boot), exist_ok=True)
    return os.path.join(directory, boot)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _bring(options: Options, program: Uv, aside: str, directory: str, own: pip_settings.Settings, run: Runner) -> str:
    """The path of uv's program: the one that is there, else from the index of the tools, by pip where there is one. Raises Declined."""
    place = os.path.join(aside, "uv-" + program["version"])
    path = os.path.join(place, "bin/uv")
    if os.path.exists(path):
        return path
    new = os.path.join(aside, "new")
    shutil.rmtree(new, ignore_errors=True)
    pin = Wheel("uv", program["version"], tuple(program["sha256"])).line()
    urls = _index_of_tools(options)
    if not wheels.has_pip(options["environment"]):
        fetch_program(options, program, new, own)
        os.rename(new, place)
        return path
    turn = Turn([pin], urls, False, True)
    more = ["--target", new, "--no-compile", "--retries", "0", "--timeout", _SECONDS]
    done = wheels.run_pip(turn, {**options, "record": False}, directory, run, more)
    if not done.ok:
        raise Declined(_why_not(done, program, turn))
    os.rename(new, place)
    return path


def _index_of_tools(options: Options) -> list[str]:
    return [options["dependencies_url"]] if options["dependencies_url"] else []


def fetch_program(
    options: Options, program: Uv, new: str, own: pip_settings.Settings, seconds: float = _FETCHED
) -> str:
    """Unpack uv into a directory without pip, which an environment lacks whose Python has no ensurepip; the path of its program. Raises
    Declined.
    """
    urls, version = _index_of_tools(options), program["version"]
    _known(own.of(urls))
    look = python_index.Look(own.of(urls), options["credentials"], python_index.Budget(seconds))
    question: python_index.Question = {
        "name": "uv",
        "version": version,
        "interpreter": "",
        "urls": urls,
        "source": False,
    }
    path, problems = os.path.join(new, "bin/uv"), []
    for place in python_index.places_of(question, own):
        seen = look.project(place, "uv")
        problems += [seen.problem] if seen.problem else []
        for link in seen.links:
            content = _content(look, link.url) if _suits(link.name, version) else b""
            if hashlib.sha256(content).hexdigest() in program["sha256"]:
                _unpack(content, f"uv-{version}.data/scripts/uv", path)
                return path
    where = " and ".join(urls) or "the index of the host"
    raise Declined("; ".join(problems) or f"{where} has no wheel of uv {version} that is known by its SHA-256")


def _suits(name: str, version: str) -> bool:
    """Whether a file is a wheel of uv's for this machine, by its name."""
    system = platform.machine()
    return name.startswith(f"uv-{version}-") and name.endswith((f"_{system}.whl", "-any.whl"))


def _content(look: python_index.Look, url: str) -> bytes:
    try:
        return look.content(url, _LARGEST)
    except fetch.FetchError:
        return b""


def _unpack(content: bytes, name: str, path: str) -> None:
    os.makedirs(os.path.dirname(path))
    with zipfile.ZipFile(io.BytesIO(content)) as wheel, open(path, "wb") as out:
        shutil.copyfileobj(wheel.open(name), out)
    os.chmod(path, 0o700)


def _seed(work: Work) -> None:
    """Bring pip into an environment that was made without one: whoever looks after it later uses that. Raises Declined, PipError."""
    turn = Turn(wheels.pip_requirements(work.options["pip"] or "0"), _index_of_tools(work.options), False, False)
    plain: Options = {**work.options, "constraints": []}
    _install(_asked(turn, turn.requirements, work._replace(options=plain)), work, turn.urls)


def _why_not(done: Result, program: Uv, turn: Turn) -> str:
    where = " and ".join(turn.urls) or "the index of the host"
    if wheels.OTHER_FILES in done.err:
        return f"{where} has another file as uv {program['version']} than the one that is known by its SHA-256"
    return redact.text(f"uv {program['version']} could not be had from {where}: {wheels.told(done)}")


# --- which wheels -------------------------------------------------------------------------------------------------------


def _resolved(work: Work) -> list[File]:
    """The files that the requirements need, or that the lock names. Raises Declined."""
    turns = wheels.turns(work.options)
    files = _asked(turns[0], turns[0].requirements, work)
    if turns[0].hashes:
        return _held(files, work.options)
    for turn in turns[1:]:
        # What is chosen already is named by its address, so that only what it needs is asked for.
        own = {file.name: file for file in files}
        more = _asked(turn, [_at_address(each, own) for each in turn.requirements], work, explicit=turns[0].urls)
        files += [file for file in more if file.name not in own]
    return files


def _held(files: list[File], options: Options) -> list[File]:
    """The files, where they are the lock's. Raises Declined."""
    may = {wheels.normalise(each["name"]): each["sha256"] for each in options["wheels"]}
    others = [file.name for file in files if file.sha256 not in may.get(file.name, ())]
    if others or len(files) != len(may):
        raise Declined(f"the index has another file first than the lock of {', '.join(others) or 'some'}")
    return files


def _at_address(requirement: str, files: Mapping[str, File]) -> str:
    pin = _PIN.match(requirement)
    file = files.get(wheels.normalise(pin[1])) if pin else None
    if pin is None or file is None:
        raise Declined(f"{requirement} is no pin")
    return f"{pin[1]}{pin[2] or ''} @ {file.url}"


def _asked(turn: Turn, requirements: Sequence[str], work: Work, explicit: Sequence[str] = ()) -> list[File]:
    """The files that uv takes for requirements, from the indexes of a turn. ``explicit``: indexes that nothing is looked for in."""
    limits = [] if turn.hashes else work.options["constraints"]
    asked = [written(work, "uv-requirements.txt", requirements)]
    asked += ["--constraints", written(work, "uv-constraints.txt", limits)]
    deps = [] if turn.dependencies else ["--no-deps"]
    said = ["--quiet", "--no-header", "--no-annotate", "--format", "pylock.toml"]
    done = run_uv(["compile", *said, *deps, *asked], turn.urls, work, explicit)
    if not done.ok:
        raise Declined(f"uv found no wheels: {words(done)}")
    return files_of(done.out, _only_index(work.own.of(turn.urls)))


def _only_index(own: pip_settings.Settings) -> str | None:
    """The index that every wheel is of, where there is no other place."""
    return redact.without_credentials(own.indexes[0]) if len(own.indexes) == 1 and not own.links else None


def files_of(pylock: str, index: str | None = None) -> list[File]:
    """The files of a pylock.toml as uv writes it for one environment. ``index``: that of the files of which uv names none. Raises Declined
    where one of them is not known by its SHA-256.
    """
    files = []
    for name, version, rest in _PACKAGE.findall(pylock):
        lines = rest.splitlines()
        named = next((each[1] for line in lines if (each := _INDEX.match(line))), index)
        known = [
            File(wheels.normalise(name), version, each[1], each[2], _size(each[0]), _of_index(each[0], named))
            for line in lines
            if (each := _FILE.match(line))
        ]
        if len(known) != 1:
            raise Declined(f"the index names no SHA-256 of a wheel of {name} {version}")
        files += known
    if len(files) != pylock.count("[[packages]]"):
        raise Declined("uv said which wheels it takes in words that are not known")
    return files


def _of_index(line: str, index: str | None) -> str | None:
    """The index of a file; none has one that was asked for by its address."""
    return index if line.startswith(_OF_INDEX) else None


def _size(line: str) -> int | None:
    found = _SIZE.search(line)
    return int(found[1]) if found else None


# --- how far it is ------------------------------------------------------------------------------------------------------


def _progress(files: Sequence[File], work: Work) -> Callable[[], meter.Meter | None]:
    """What looks how far the download of the files is; it says nothing where their sizes are known to nobody."""
    sizes: dict[str, int | None] = {}

    def look() -> meter.Meter | None:
        if not sizes:
            sizes.update(_sizes(files, work))
        known = {name: size for name, size in sizes.items() if size is not None}
        return arrived(work.cache, known) if len(known) == len(files) else None

    return look


def _sizes(files: Sequence[File], work: Work) -> dict[str, int | None]:
    """The bytes of each file: as the index says, else as its server does when it is asked."""
    budget = python_index.Budget(float(_SECONDS))
    server = python_index.Look(work.own, work.options["credentials"], budget)
    asked: dict[object, Callable[[], int | None]] = {
        file.name: partial(server.size, file.url) for file in files if file.size is None
    }
    said = python_index.at_once(asked, budget)
    return {file.name: said.get(file.name) if file.size is None else file.size for file in files}


def arrived(cache: str, sizes: Mapping[str, int]) -> meter.Meter:
    """How much of some wheels is there, by the cache of uv: of those that are whole all, of the others what their files suggest."""
    whole = sum(sizes.get(name, 0) for name in _whole(os.path.join(cache, _WHOLE)))
    total = sum(sizes.values())
    unpacked = sum(_bytes(os.path.join(cache, name)) for name in _names(cache) if name.startswith(_UNDER_WAY))
    return meter.Meter(whole + int(min(unpacked / _UNPACKED, (total - whole) * _AT_MOST)), total)


def _whole(directory: str) -> set[str]:
    """The names of the distributions that are unpacked whole: the last that is written of a wheel is what it is."""
    infos = (name for each in _names(directory) for name in _names(os.path.join(directory, each)))
    return {wheels.normalise(name.partition("-")[0]) for name in infos if name.endswith(".dist-info")}


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _bytes(directory: str) -> int:
    """The bytes of all files below a directory, which may go meanwhile."""
    return sum(_length(os.path.join(folder, name)) for folder, _folders, names in os.walk(directory) for name in names)


def _length(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


# --- the installation ---------------------------------------------------------------------------------------------------


def _install(files: Sequence[File], work: Work, urls: Sequence[str]) -> None:
    """Download the files, which come from these indexes, and install them. Raises Declined where nothing came of it, wheels.PipError
    where something is half done.
    """
    environment = work.options["environment"]
    before = python_envs.distributions(Host(), environment)
    rows = ['lock-version = "1.0"', 'created-by = "gpuwright"', *(_row(file) for file in files)]
    lock = written(work, "pylock.toml", rows)
    # Nobody else may write beside it, so what is compiled now is compiled once and for all.
    how = ["--compile-bytecode", "--link-mode", "hardlink", "--no-deps", "--quiet"]
    done = run_uv(["install", "--requirements", lock, *how], list(dict.fromkeys(urls)), work)
    _take_lock_file(environment)
    if done.ok:
        return
    if python_envs.distributions(Host(), environment) == before:
        raise Declined(f"uv installed nothing: {words(done)}")
    raise wheels.PipError(
        f"Expected uv to install {', '.join(work.options['requirements'])} into {environment}. Found: {words(done)}. "
        "What to do: look whether there is room on the disk, and run again.",
        gave_up=False,
    )


def _row(file: File) -> str:
    quoted = [json.dumps(each) for each in file[:4]]
    index = f"index = {json.dumps(file.origin)}\n" if file.origin else ""
    return (
        f"\n[[packages]]\nname = {quoted[0]}\nversion = {quoted[1]}\n{index}"
        f"wheels = [{{ url = {quoted[2]}, hashes = {{ sha256 = {quoted[3]} }} }}]"
    )


def _take_lock_file(environment: str) -> None:
    path = os.path.join(environment, _LOCK_FILE)
    if os.path.lexists(path):
        os.unlink(path)


# --- a call of uv -------------------------------------------------------------------------------------------------------


def run_uv(arguments: Sequence[str], urls: Sequence[str], work: Work, explicit: Sequence[str] = ()) -> Result:
    """Run `uv pip` for a Python with the indexes, by the settings of the host's pip. Raises Declined where it cannot have those."""
    own = work.own.of(urls)
    _known(own)
    options = work.options
    conf = written(work, "uv.toml", [configuration(own, explicit, options["credentials"])])
    argv = [work.program, "--config-file", conf, "--preview-features", "pylock"]
    argv += ["pip", *arguments]
    argv += [*work.python, "--cache-dir", work.cache]
    argv += ["--only-binary", ":all:", "--no-python-downloads", "--no-progress", "--color", "never"]
    # Whoever starts this has no say in what uv, and the Python that it asks, go by.
    return work.run(run_module.bound(argv, ["UV_", "PYTHON"]), timeout=work.seconds, env=_variables(own))


def _known(own: pip_settings.Settings) -> None:
    """Raise Declined where an index is one that uv reads in another way than pip, or that pip would take nothing from."""
    if own.unknown:
        raise Declined(own.unknown)
    for url in [*own.indexes, *own.links]:
        is_path = url in own.links and "://" not in url
        if not (is_path or url.startswith(("https://", "http://"))):
            raise Declined(f"uv reads no index at {redact.text(url)}")
        if own.ignores(url):
            raise Declined(f"pip takes nothing from {redact.text(url)}: it is plain HTTP, and no trusted-host")


def configuration(own: pip_settings.Settings, explicit: Sequence[str], credentials: Sequence[Mapping[str, str]]) -> str:
    """A uv.toml with the settings of a pip. ``explicit``: indexes whose passwords hold for their files, in which nothing is looked for."""
    rows = [
        # As pip: what fits best, from whichever of them.
        'index-strategy = "unsafe-best-match"',
        "system-certs = true",
        f"no-index = {'true' if own.no_index else 'false'}",
        f"find-links = {json.dumps(own.links)}",
        f"allow-insecure-host = {json.dumps(list(own.trusted))}",
    ]
    for number, url in enumerate(own.indexes):
        rows += ["[[index]]", f"url = {_address(url, credentials)}", f"default = {'false' if number else 'true'}"]
    for number, url in enumerate(explicit):
        rows += ["[[index]]", f'name = "own-{number}"', f"url = {_address(url, credentials)}", "explicit = true"]
    return "\n".join(rows)


def _address(url: str, credentials: Sequence[Mapping[str, str]]) -> str:
    return json.dumps(wheels.with_credentials(url, credentials))


def _variables(own: pip_settings.Settings) -> dict[str, str]:
    """The way through the node's proxy, and what is trusted instead of the system's certificates, as pip takes them. Raises PipError."""
    by_pip = {"http_proxy": own.proxy, "https_proxy": own.proxy} if own.proxy else None
    known = proxies.Settings(by_pip, {}, {}) if by_pip else proxies.settings()
    way = wheels.way(own.indexes, known)
    if by_pip:
        # Other than a variable's it holds for every host.
        way = {**way, "no_proxy": ""}
    # Of a variable in both spellings uv takes the capitals, pip the small letters.
    way = {**way, **{name.upper(): value for name, value in way.items()}}
    cert = own.cert or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return {**way, **({"SSL_CERT_FILE": cert} if cert else {})}


def written(work: Work, name: str, lines: Sequence[str]) -> str:
    """Write a file that nobody else reads; its path."""
    path = os.path.join(work.directory, name)
    wheels.write_private(path, "\n".join(lines) + "\n")
    return path


def words(done: Result) -> str:
    """What a call of uv says of why it gave up, without passwords."""
    said = " ".join(done.err.split()) or done.error or f"exit code {done.rc}"
    return redact.text(said)[:1000]
