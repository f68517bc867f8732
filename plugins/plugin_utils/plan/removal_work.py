# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the role ``remove``: what it asks on the node before the first change, and what goes after that, each as data.

What there is to take back is in the plan already (removal.py); here it becomes packages, units, files and programs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict, cast

from ...module_utils.base import paths
from ...module_utils.observe import environment_builds, jupyter_kernels
from ..components import COMPONENTS, nouveau_blacklist, repair
from ..components.daemon_json import GivenBack, given_back
from ..model import sections
from ..model.errors import StepRefused

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..components.base import Context, Step
    from ..model.plan import Removal


#: Directories of ours, and those of the drop-ins: they go where nothing else is inside.
DIRECTORIES = (
    paths.SETTINGS,
    paths.PROGRAMS,
    "/etc/systemd/system/nvidia-persistenced.service.d",
    "/etc/systemd/system/nvidia-cdi-refresh.service.d",
    *(path for component in COMPONENTS.values() for path in component.directories),
)
#: The tasks of the components that are taken back by their own role, while the driver is there yet. What was set last goes first: settings
#: of the cards before their parts.
_BY_ROLE = {name: component.undo for name, component in reversed(COMPONENTS.items()) if component.take_back}
#: dnf's own list of locks, in which the role nvidia_driver has its lines.
LOCKS = "/etc/dnf/plugins/versionlock.list"
#: What packages made for themselves, by package. Nothing of a user is in it: an engine with containers, images or volumes stays. DKMS made
#: a key to sign modules with, and DCGM a directory for its log.
_MADE = (
    *product(("docker.io", "docker-ce"), ("/var/lib/docker", "/var/lib/containerd")),
    ("dkms", "/var/lib/dkms"),
    ("datacenter-gpu-manager-4-core", "/var/log/nvidia-dcgm"),
)
#: What goes by other ways than a removal of packages.
_ENGINE_SERVICES = ("docker.service", "containerd.service")
_KEY = "gpg-pubkey-"

#: What Docker holds. An engine that came with gpuwright and is in use by now is not taken from its user: purging it would delete that.
_HOLDINGS = (
    ["docker", "ps", "--all", "--quiet"],
    ["docker", "image", "ls", "--quiet"],
    ["docker", "volume", "ls", "--quiet"],
)
#: The engine as the distributions and as Docker itself has it, each with what only goes with it.
_ENGINES: Mapping[str, Sequence[str]] = {
    "docker.io": ("docker.io", "docker-cli"),
    "docker-ce": ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"),
}
#: What the engine needs: names of packages begin a line, everything else that apt tells is indented.
_APT_NEEDS = [
    *(
        "apt-cache",
        "depends",
        "--recurse",
        "--installed",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
    ),
    *("--no-replaces", "--no-enhances"),
]
_DNF_NEEDS = [
    *("dnf", "--quiet", "--cacheonly", "--disablerepo=*", "repoquery", "--installed", "--requires", "--resolve"),
    *("--recursive", "--queryformat", "%{name}"),
]
#: No module tells what apt would remove besides. It prints "Purg NAME [VERSION]" or "Remv NAME [VERSION]" for each package.
_TRIAL = ["apt-get", "--simulate", "--allow-change-held-packages", "purge"]
_GOING = re.compile(r"(?:Purg|Remv) (\S+)")
_LIST = re.compile(r"_Packages.*")
_LIST_KINDS = ("Packages", "InRelease", "Release", "Release.gpg")
_APT_SOURCES = "/etc/apt/sources.list.d/"
_DNF_SOURCES = "/etc/yum.repos.d/"
#: What lets the boot loader have its own default kernel again.
_HOOKS = re.compile(r"/etc/kernel/(postinst[.]d/zz-gpuwright|install[.]d/95-gpuwright)")
#: What the role repositories puts aside, and nothing else is put back.
_BACKED_UP = re.compile(
    re.escape(paths.BACKUP) + r"(/etc/(apt/sources[.]list|apt/sources[.]list[.]d/[^/]+|yum[.]repos[.]d/[^/]+))"
)


class There(TypedDict):
    """Whether a path exists."""

    exists: bool


class Looked(TypedDict):
    """What was found at a path."""

    item: str
    stat: There


class _Answer(TypedDict):
    item: list[str]


class Answer(_Answer, total=False):
    """What a program printed."""

    stdout_lines: list[str]


class Given(TypedDict):
    """What the node answered: ``answers`` and ``there``, the results of the questions; ``others``, what else dnf would remove; ``aside``,
    the files that were put aside. ``also``: packages that may go with ours; ``kept``: what stays (empty the first time).
    """

    answers: list[Answer]
    there: list[Looked]
    others: list[str]
    aside: list[dict[str, object]]
    also: list[str]
    kept: list[str]


class Questions(TypedDict):
    """What is asked on the node: ``commands`` that only read, ``there``: paths that may be there, ``rpms``: what dnf would remove."""

    commands: list[list[str]]
    there: list[str]
    rpms: list[str]


class PutBack(TypedDict):
    """A file of the host that was put aside, and its place."""

    src: str
    dest: str


class Docker(GivenBack):
    """What becomes of Docker's configuration. ``restart``: whether the engine is to read it, where nothing runs in it."""

    restart: bool


class ByRole(TypedDict):
    """Tasks of a role."""

    role: str
    tasks: str


class RemovalWork(TypedDict, total=False):
    """What the role does; and what it asks first, before the first change.

    ``again``: it asks once more, because the packages ``kept`` stay with an engine that holds ``held`` containers, images or volumes.
    ``driver``: whether something of ``by_role`` (roles that take back what they did, each by tasks of its own), ``restore`` (a driver) and
    ``runfile`` (an uninstaller) is to be done.
    ``settings_stay``: packages that are removed and not purged. ``also``: what dnf takes away: packages of ours and those that may
    go with them; ``keys``: rpm's own of package sources. ``locks``: whether lines of ours may be in dnf's list. ``streams``: module
    streams to go back to; ``stream_files``: what dnf keeps of those that nobody had enabled, as patterns. ``made``: what packages
    made for themselves. ``engine``: whether its group goes. ``hooks``: programs that give the boot loader its default back.
    ``reload``: whether units of systemd went; ``menu``: whether the boot menu has to be written. ``caches``: patterns of what dnf
    has of package sources. ``rebuild``: the program that makes the initramfs.
    """

    ask: Questions
    again: bool
    kept: list[str]
    held: int
    driver: bool
    by_role: list[ByRole]
    restore: bool
    runfile: bool
    docker: Docker
    environments: list[str]
    packages: list[str]
    settings_stay: list[str]
    units: list[str]
    also: list[str]
    rpm_keys: list[str]
    locks: bool
    streams: dict[str, str]
    stream_files: list[str]
    made: list[str]
    engine: bool
    hooks: list[str]
    absent: list[str]
    reload: bool
    menu: bool
    directories: list[str]
    put_back: list[PutBack]
    caches: list[str]
    rebuild: list[str]


def begin(context: Context, plan: Mapping[str, object]) -> RemovalWork:
    """What is asked first."""
    wanted = cast("Removal", plan["remove"])
    return {"ask": _questions(context.facts, wanted, wanted["packages"])}


def goes(context: Context, plan: Mapping[str, object]) -> RemovalWork:
    """What goes, by what the node answered (``plan["given"]``). Raises StepRefused where something would go that is not ours."""
    facts, wanted, given = context.facts, cast("Removal", plan["remove"]), cast("Given", plan["given"])
    said = {tuple(each["item"]): each.get("stdout_lines") or [] for each in given["answers"]}
    there = {each["item"] for each in given["there"] if each["stat"]["exists"]}
    _refuse_unmarked(wanted["environments"], there)
    held = [line for question in _HOLDINGS for line in said.get(tuple(question), ())]
    if held and not given["kept"]:
        needs = _needs_question(facts, wanted["packages"])
        engine = {*_engine(wanted["packages"]), *_needs(said.get(tuple(needs), ()))}
        kept = [name for name in wanted["packages"] if name in engine]
        ask = _questions(facts, wanted, _without(wanted["packages"], kept))
        return {"ask": ask, "again": True, "kept": kept, "held": len(held)}
    packages = _without(wanted["packages"], given["kept"])
    _refuse_others(packages, [*_going(said.get(tuple(_TRIAL + packages), ())), *given["others"]], given["also"])
    return {
        "again": False,
        **_of_driver(wanted, cast("list[dict[str, object]]", plan["changes"])),
        "environments": wanted["environments"],
        **_of_packages(facts, wanted, packages, given["also"], there),
        **_of_files(facts, wanted, said, given["aside"]),
        "docker": _docker(facts, packages),
    }


STEPS: Mapping[str, Step] = {"begin": begin, "goes": goes}


def _questions(facts: Facts, wanted: Removal, packages: Sequence[str]) -> Questions:
    manager = facts["packages"]["manager"]
    engine = _engine(wanted["packages"]) and facts["containers"]["docker"]["active"]
    commands = [*_HOLDINGS, _needs_question(facts, wanted["packages"])] if engine else []
    if manager == "apt":
        commands += [_list_question(path) for path in wanted["files"] if path.startswith(_APT_SOURCES)]
        commands += [[*_TRIAL, *packages]] if packages else []
    marks = [mark for path in wanted["environments"] for mark in _marks(path)]
    return {
        "commands": commands,
        "there": [*marks, *([LOCKS] if manager == "dnf" else [])],
        "rpms": _rpms(packages) if manager == "dnf" else [],
    }


def _engine(packages: Collection[str]) -> Sequence[str]:
    """The engine among packages, with what only goes with it; nothing where none of them is one."""
    return next((names for name, names in _ENGINES.items() if name in packages), ())


def _needs_question(facts: Facts, packages: Collection[str]) -> list[str]:
    """What the engine among packages needs."""
    asked = _DNF_NEEDS if facts["packages"]["manager"] == "dnf" else _APT_NEEDS
    return [*asked, *_engine(packages)[:1]]


def _list_question(source: str) -> list[str]:
    """Which lists apt has of a package source."""
    only = ["-o", f"Dir::Etc::SourceList={source}", "-o", "Dir::Etc::SourceParts=/dev/null"]
    return ["apt-get", "indextargets", "--format", "$(FILENAME)", *only]


# --- what is refused --------------------------------------------------------------------------------------------------


def _marks(environment: str) -> tuple[str, str]:
    """What says that an environment is ours: the role frameworks writes it; the other one beside it, where work on it was cut off."""
    return f"{environment}/{paths.ENVIRONMENT_MARK}", environment_builds.mark(environment)


def _refuse_unmarked(environments: Iterable[str], there: Collection[str]) -> None:
    """What is removed whole must bear our mark, whatever the record says. That it is root's alone was checked before (role preflight)."""
    unmarked = [path for path in environments if not any(mark in there for mark in _marks(path))]
    if unmarked:
        raise StepRefused(
            "Expected environments that gpuwright made. Found none of its marks (gpuwright-constraints.txt) in"
            f" {', '.join(unmarked)}. Nothing was removed. What to do: remove that directory by hand if nobody needs it, then run again."
        )


def _refuse_others(packages: Sequence[str], going: Iterable[str], also: Collection[str]) -> None:
    besides = _without(going, {*packages, *also})
    if besides:
        raise StepRefused(
            f"Expected to remove only the {len(packages)} packages that came with gpuwright. Found others that need them:"
            f" {', '.join(besides)}. What to do: remove those first if you no longer need them, or name them in remove_also."
        )


def _going(lines: Iterable[str]) -> list[str]:
    """Packages that apt would remove."""
    return [found[1] for line in lines if (found := _GOING.match(line))]


def _needs(lines: Iterable[str]) -> list[str]:
    """Packages in what the package manager says, without their architectures."""
    return [line.partition(":")[0] for line in lines if re.match(r"[a-z0-9]", line)]


def _without(names: Iterable[str], others: Collection[str]) -> list[str]:
    """Names without others, each once."""
    return [name for name in dict.fromkeys(names) if name not in others]


# --- what goes --------------------------------------------------------------------------------------------------------


def _of_driver(wanted: Removal, changes: Iterable[Mapping[str, object]]) -> RemovalWork:
    changed = {change["component"] for change in changes}
    by_role = [ByRole(role=f"gpuwright.node.{name}", tasks=undo) for name, undo in _BY_ROLE.items() if name in changed]
    restore, runfile = bool(wanted["restore"]), wanted["runfile"]
    return {"driver": bool(by_role) or restore or runfile, "by_role": by_role, "restore": restore, "runfile": runfile}


def _of_packages(
    facts: Facts, wanted: Removal, packages: list[str], also: Sequence[str], there: Collection[str]
) -> RemovalWork:
    streams = wanted["streams"]
    left = [name for name, stream in streams.items() if not stream]
    services = facts["services"]
    return {
        "packages": packages,
        "settings_stay": [name for name in packages if name in (sections.history(facts).get("settings") or ())],
        "units": [
            name
            for name in _without(wanted["services"], _ENGINE_SERVICES)
            if name in services and (services[name]["enabled"] or "not-found") not in ("not-found", "masked")
        ],
        "also": [*_rpms(packages), *also],
        "rpm_keys": [name for name in packages if name.startswith(_KEY)],
        "locks": LOCKS in there,
        "streams": {name: stream for name, stream in streams.items() if stream},
        "stream_files": ["".join(pair) for pair in product(left, (".module", ":*"))],
        "made": [path for package, path in _MADE if package in packages],
        "engine": bool(_engine(packages)),
    }


def _rpms(packages: Iterable[str]) -> list[str]:
    """Keys are packages to rpm alone."""
    return [name for name in packages if not name.startswith(_KEY)]


def _of_files(
    facts: Facts,
    wanted: Removal,
    said: Mapping[tuple[str, ...], list[str]],
    aside: Iterable[Mapping[str, object]],
) -> RemovalWork:
    files = wanted["files"]
    moved = [found for each in aside if (found := _BACKED_UP.fullmatch(str(each["path"])))]
    return {
        "hooks": [path for path in files if _HOOKS.match(path)],
        "absent": [*_lists(files, said), *files, *_credentials(files)],
        "reload": any(path.startswith("/etc/systemd/system/") for path in files),
        "menu": repair.BOOT_SETTING in files,
        "directories": [] if sections.user(facts) is not None else [*_of_kernels(files), *DIRECTORIES],
        "put_back": [{"src": found[0], "dest": found[1]} for found in moved],
        "caches": [f"{name}*" for name in _repository_ids(files)],
        "rebuild": nouveau_blacklist.rebuild(facts["kernel"]) if wanted["initramfs"] else [],
    }


def _of_kernels(files: Iterable[str]) -> list[str]:
    """The directories of Jupyter kernels of ours: each has one of its own."""
    return [str(PurePosixPath(path).parent) for path in files if path.startswith(f"{jupyter_kernels.DIRECTORY}/")]


def _lists(files: Iterable[str], said: Mapping[tuple[str, ...], list[str]]) -> list[str]:
    """The lists that apt has of the package sources that go."""
    lines = chain.from_iterable(said.get(tuple(_list_question(path)), ()) for path in files)
    names = dict.fromkeys(_LIST.sub("", line) for line in lines if "_Packages" in line)
    return [f"{name}_{kind}" for name, kind in product(names, _LIST_KINDS)]


def _repository_ids(files: Iterable[str]) -> list[str]:
    """The package sources of dnf's that go."""
    ours = f"{_DNF_SOURCES}gpuwright-"
    return [PurePosixPath(path).name.removesuffix(".repo") for path in files if path.startswith(ours)]


def _credentials(files: Sequence[str]) -> list[str]:
    """What the role repositories may have written beside a source: no seal names a file with a password."""
    ours = f"{_APT_SOURCES}gpuwright-"
    apt = [re.sub(r"[.]sources$", ".conf", PurePosixPath(path).name) for path in files if path.startswith(ours)]
    dnf = product((re.sub(r"[^A-Za-z0-9]", "_", name) for name in _repository_ids(files)), ("login", "password"))
    return [
        *(f"/etc/apt/auth.conf.d/{name}" for name in apt),
        *(f"/etc/dnf/vars/{name}_{which}" for name, which in dnf),
    ]


def _docker(facts: Facts, packages: Collection[str]) -> Docker:
    """Docker's configuration without what was put in."""
    restart = bool(facts["containers"]["docker"]["active"]) and not _engine(packages)
    return {**given_back(facts), "restart": restart}
