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

from ...module_utils.base import paths, words
from ...module_utils.observe import environment_builds, jupyter_kernels
from ...module_utils.records.data_directories import DOCKER
from ..components import busy
from ..components.daemon_json import GivenBack, given_back
from ..components.nouveau_blacklist import apply as nouveau_blacklist
from ..components.registry import COMPONENTS
from ..components.repair import apply as repair
from ..model import sections
from ..model.errors import StepRefused
from . import engines
from .engines import Engine

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..components.base import Context, Step
    from ..model.plan import Plan, Removal


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
#: What keeps another driver from the cards, as long as ours is there.
OF_THE_DRIVER = (nouveau_blacklist.BLACKLIST, nouveau_blacklist.DRACUT)
#: dnf's own list of locks, in which the role nvidia_driver has its lines.
LOCKS = "/etc/dnf/plugins/versionlock.list"
#: What packages made for themselves, by package, and nothing of a user is in: DCGM a directory for its log.
_MADE = (("datacenter-gpu-manager-4-core", "/var/log/nvidia-dcgm"),)
#: What dpkg's purge of a package deletes of its users, read in the scripts of Debian's packages, and where Grafana keeps what people
#: made in it. Such a package is only removed where something is in there; what it leaves is told.
_PURGED: Mapping[str, Sequence[str]] = {
    "docker.io": (DOCKER,),
    "prometheus": ("/var/lib/prometheus/metrics", "/var/lib/prometheus/metrics2"),
    "prometheus-alertmanager": ("/var/lib/prometheus/alertmanager",),
    "prometheus-node-exporter": ("/var/lib/prometheus/node-exporter",),
    "grafana": ("/var/lib/grafana",),
}
#: The key that DKMS signs modules with. The firmware may know it, and modules of others be signed with it.
_SIGNING_KEYS = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
#: What goes by other ways than a removal of packages.
_ENGINE_SERVICES = ("docker.service", "containerd.service")
_KEY = "gpg-pubkey-"

#: A removal needs no package source: one that cannot be read, as that of NVIDIA's that somebody has written beside ours, stops none. Nor
#: does apt keep what it read of them so. The role says the same.
WITHOUT_SOURCES = [
    *("-o", "Dir::Etc::SourceList=/dev/null", "-o", "Dir::Etc::SourceParts=/dev/null"),
    *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
]
#: What the engine needs: names of packages begin a line, everything else that apt tells is indented.
_APT_NEEDS = [
    "apt-cache",
    *WITHOUT_SOURCES,
    *(
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
_TRIAL = ["apt-get", *WITHOUT_SOURCES, "--simulate", "--allow-change-held-packages", "purge"]
_GOING = re.compile(r"(?:Purg|Remv) (\S+)")
#: The trial where apt was cut off: it refuses each call then. dpkg itself takes away what it is told and nothing else, half done or not.
_TRIAL_OF_DPKG = ["dpkg", "--no-act", "--force-hold", "--force-remove-reinstreq", "--purge"]
#: The questions of the plan are those of a node on which apt was cut off, and it is none any more; or the other way round.
_OTHER_STATE = (
    "Expected the package manager as it was when the removal was planned. Found: another program was cut off in it, or has repaired it,"
    " since. Nothing was removed. What to do: run again."
)
_LIST = re.compile(r"_Packages.*")
_LIST_KINDS = ("Packages", "InRelease", "Release", "Release.gpg")
_APT_SOURCES = "/etc/apt/sources.list.d/"
_DNF_SOURCES = "/etc/yum.repos.d/"
#: What lets the boot loader have its own default kernel again.
_HOOKS = re.compile(r"/etc/kernel/(postinst[.]d/zz-gpuwright|install[.]d/95-gpuwright)")
#: What the role repositories puts aside, and nothing else is put back. An older copy of such a file is called after its time.
_BACKED_UP = re.compile(
    re.escape(paths.BACKUP) + r"(/etc/(apt/sources[.]list|apt/sources[.]list[.]d/[^/]+|yum[.]repos[.]d/[^/]+)(?<!~))"
)
#: Where what was put aside and is not put back is kept, and what is changed today: the records of ours go.
KEPT = "/var/backups/gpuwright"


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
    """What a program printed, and its exit status: None where it did not end."""

    rc: int | None
    stdout_lines: list[str]
    error: str


class Aside(TypedDict, total=False):
    """A file of the host's that was put aside, and what is in its place ``now``: see module_utils/packages/removal_answers.py."""

    path: str
    now: str


class _Untried(TypedDict, total=False):
    """``untried``: why dnf does not try the removal."""

    untried: str | None


class Answers(_Untried):
    """What the node answered: ``answers`` and ``there``, the results of the questions; ``others``, what else dnf would remove; ``aside``,
    the files that were put aside.
    """

    answers: list[Answer]
    there: list[Looked]
    others: list[str]
    aside: list[Aside]


class Given(Answers):
    """What the role knows by then. ``also``: packages that may go with ours; ``kept``: what stays (empty the first time)."""

    also: list[str]
    kept: list[str]


class Questions(TypedDict):
    """What is asked on the node: ``commands`` that only read, ``there``: paths that may be there, ``rpms``: what dnf would remove."""

    commands: list[list[str]]
    there: list[str]
    rpms: list[str]


class PutBack(TypedDict):
    """A file of the host, and where it goes."""

    src: str
    dest: str


class Docker(GivenBack):
    """What becomes of Docker's configuration. ``restart``: whether the engine is to read it; ``may``: whether it is restarted for that,
    and ``why`` not.
    """

    restart: bool
    may: bool
    why: str


class ByRole(TypedDict):
    """Tasks of a role."""

    role: str
    tasks: str


class RemovalWork(TypedDict, total=False):
    """What the role does; and what it asks first, before the first change.

    ``again``: it asks once more, because the packages ``kept`` stay with an engine that is in use, or may be. ``told``: what stays, as
    sentences.
    ``driver``: whether something of ``by_role`` (roles that take back what they did, each by tasks of its own), ``restore`` (a driver) and
    ``runfile`` (an uninstaller) is to be done.
    ``packages`` go: apt purges those in ``purged``, and only removes those in ``removed``, of which a purge would delete data, or settings
    that lay here before. ``of_packages``: whether there is anything of the packages to do. ``half_done``: see the function.
    ``also``: what dnf takes away: packages of ours and those that may go with them; ``rpm_keys``: rpm's own of package sources.
    ``locks``: whether lines of ours may be in dnf's list. ``streams``: module streams to go back to; ``stream_files``: what dnf keeps of
    those that nobody had enabled, as patterns. ``made``: what packages made for themselves. ``engine``: whether its group goes.
    ``hooks``: programs that give the boot loader its default back. ``reload``: whether units of systemd went; ``menu``: whether the boot
    menu has to be written. Of files that were put aside ``put_back`` are those in whose place is nothing; of those in ``unmark`` the
    lines that were put out of force count again; ``keep`` (in ``keep_directories``): copies of what would be lost, or is changed.
    ``caches``: patterns of what dnf has of package sources. ``rebuild``: the program that makes the initramfs.
    """

    ask: Questions
    again: bool
    kept: list[str]
    told: list[str]
    driver: bool
    by_role: list[ByRole]
    restore: bool
    runfile: bool
    docker: Docker
    containerd: busy.Restart
    environments: list[str]
    of_packages: bool
    packages: list[str]
    half_done: bool
    removed: list[str]
    purged: list[str]
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
    keep_directories: list[str]
    keep: list[PutBack]
    unmark: list[str]
    put_back: list[PutBack]
    caches: list[str]
    rebuild: list[str]


def begin(context: Context, plan: Mapping[str, object]) -> RemovalWork:
    """What is asked first."""
    wanted = cast("Removal", plan["remove"])
    return {"ask": _questions(context.facts, wanted, wanted["packages"])}


def goes(context: Context, plan: Mapping[str, object]) -> RemovalWork:
    """What goes, by what the node answered (``plan["given"]``). Raises StepRefused where something would go that is not ours."""
    facts, wanted, given = context.facts, cast("Removal", plan["remove"]).copy(), cast("Given", plan["given"])
    said = _said(given["answers"])
    there = {each["item"] for each in given["there"] if each["stat"]["exists"]}
    _refuse_unmarked(wanted["environments"], there)
    stays = engines.staying(facts, wanted["packages"], said)
    errors = _errors(given["answers"])
    _refuse_unsaid(
        [engine for engine in engines.of_packages(wanted["packages"]) if engine.title in stays], facts, errors
    )
    by_engine = _kept(facts, wanted["packages"], stays, said)
    of_engines = {*chain(*by_engine.values())}
    if of_engines - set(given["kept"]):
        kept = [name for name in wanted["packages"] if name in {*of_engines, *given["kept"]}]
        return {
            "ask": _questions(facts, wanted, _without(wanted["packages"], kept)),
            "again": True,
            "kept": kept,
            "told": engines.told(facts, stays, by_engine, wanted["files"]),
        }
    packages = _without(wanted["packages"], given["kept"])
    wanted["files"] = _without(wanted["files"], engines.sources(given["kept"], wanted["files"]))
    trial = (*_trial(facts), *packages)
    if packages and facts["packages"]["manager"] == "apt" and trial not in said:
        raise StepRefused(_OTHER_STATE)
    _refuse_untried(packages, given.get("untried") or (f"{trial[0]}: {errors[trial]}" if trial in errors else None))
    _refuse_others(packages, [*_going(said.get(trial) or ()), *given["others"]], given["also"])
    settings = sections.history(facts).get("settings") or ()
    removed = [
        name for name in packages if name in settings or _data_of(facts, name, packages, wanted["files"], said, there)
    ]
    return {
        "again": False,
        "kept": given["kept"],
        "told": [
            *engines.told(facts, stays, by_engine, wanted["files"]),
            *_told(facts, packages, removed, there),
            *_told_of_files(facts, given["aside"]),
        ],
        "removed": removed,
        "purged": _without(packages, removed),
        **_of_driver(wanted, cast("list[dict[str, object]]", plan["changes"])),
        "environments": wanted["environments"],
        **_of_packages(facts, wanted, packages, given["also"], there),
        **_of_files(facts, wanted, said, given["aside"]),
        "docker": _docker(facts, plan, packages),
        "containerd": busy.restart(facts, cast("Plan", plan), "containerd"),
    }


STEPS: Mapping[str, Step] = {"begin": begin, "goes": goes}


def _questions(facts: Facts, wanted: Removal, packages: Sequence[str]) -> Questions:
    manager = facts["packages"]["manager"]
    commands = engines.questions(facts, wanted["packages"])
    commands += [_needs_question(facts, engine) for engine in engines.of_packages(wanted["packages"])]
    if manager == "apt":
        commands += [_list_question(path) for path in wanted["files"] if path.startswith(_APT_SOURCES)]
        commands += [_data_question(path, wanted["files"]) for name in packages for path in _searched(name)]
        commands += [[*_trial(facts), *packages]] if packages else []
    marks = [mark for path in wanted["environments"] for mark in _marks(path)]
    purged = [path for name in packages for path in _PURGED.get(name, ())]
    keys = _SIGNING_KEYS if "dkms" in packages else ()
    return {
        "commands": commands,
        "there": list(
            dict.fromkeys([*marks, *purged, *engines.data_of(packages), *keys, *([LOCKS] if manager == "dnf" else [])])
        ),
        "rpms": _rpms(packages) if manager == "dnf" else [],
    }


def half_done(facts: Facts) -> bool:
    """Whether a transaction of apt was cut off, so that dpkg removes and finishes the rest. rpm leaves nothing that is in the way."""
    return facts["packages"]["manager"] == "apt" and bool(facts["packages"]["interrupted"])


def _trial(facts: Facts) -> list[str]:
    return _TRIAL_OF_DPKG if half_done(facts) else _TRIAL


def _said(answers: Iterable[Answer]) -> dict[tuple[str, ...], list[str] | None]:
    """What each program printed; None where it did not say that it went well."""
    return {tuple(each["item"]): each.get("stdout_lines") or [] if each.get("rc") == 0 else None for each in answers}


def _errors(answers: Iterable[Answer]) -> dict[tuple[str, ...], str]:
    """Why a program did not say that it went well, of those that did not."""
    return {
        tuple(each["item"]): each.get("error") or f"it ended with {each.get('rc')}"
        for each in answers
        if each.get("rc") != 0
    }


def _needs_question(facts: Facts, engine: Engine) -> list[str]:
    """What an engine needs: of those that are it the installed one."""
    asked = _DNF_NEEDS if facts["packages"]["manager"] == "dnf" else _APT_NEEDS
    there = [name for name in engine.packages if name in (facts["packages"]["installed"] or {})]
    return [*asked, *(there or engine.packages)[:1]]


def _kept(facts: Facts, packages: Sequence[str], stays: Collection[str], said: engines.Said) -> dict[str, list[str]]:
    """The packages that stay, by the title of their engine: it, with all that it needs."""
    kept = {}
    for engine in engines.of_packages(packages):
        if engine.title in stays:
            needs = said.get(tuple(_needs_question(facts, engine)))
            its = {*engine.packages, *engine.beside, *_needs(needs or ())}
            kept[engine.title] = [name for name in packages if name in its or engine.works_with.match(name)]
    return kept


def _searched(package: str) -> Sequence[str]:
    """The directories that are searched for data: what is in an engine, it says itself."""
    return () if engines.of_packages([package]) else _PURGED.get(package, ())


def _data_question(directory: str, files: Iterable[str]) -> list[str]:
    """The first file in a directory that is none of ours."""
    ours = [word for path in files if path.startswith(f"{directory}/") for word in ("!", "-path", path)]
    return ["find", directory, "-mindepth", "1", "!", "-type", "d", *ours, "-print", "-quit"]


def _data_of(
    facts: Facts,
    package: str,
    going: Sequence[str],
    files: Sequence[str],
    said: engines.Said,
    there: Collection[str],
) -> list[str]:
    """The directories with something of a user's, or nobody knows, that a purge of a package would delete."""
    if engines.of_packages([package]):
        return [path for path in _PURGED.get(package, ()) if path in there and path not in engines.ours(facts, going)]
    found = {path: said.get(tuple(_data_question(path, files))) for path in _PURGED.get(package, ())}
    return [path for path, lines in found.items() if path in there and lines != []]


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
            f"Expected to remove only the {words.count(len(packages), 'packages')} that came with gpuwright. Found others that need them:"
            f" {', '.join(besides)}. What to do: remove those first if you no longer need them, or name them in remove_also."
        )


def _refuse_unsaid(stays: Iterable[Engine], facts: Facts, errors: Mapping[tuple[str, ...], str]) -> None:
    """What an engine needs stays with it: nothing goes while nobody knows what that is."""
    found = [
        f"{engine.title} ({errors[asked]})"
        for engine in stays
        if (asked := tuple(_needs_question(facts, engine))) in errors
    ]
    if found:
        raise StepRefused(
            "Expected the package manager to say what an engine needs that stays."
            f" Found no answer for {', '.join(found)}. Nothing was removed."
            " What to do: correct what it names (apt-get check; dnf check), then run again."
        )


def _refuse_untried(packages: Sequence[str], reason: str | None) -> None:
    if reason:
        raise StepRefused(
            f"Expected the package manager to try the removal of {words.count(len(packages), 'packages')}. "
            f"Found: {reason}. Nothing was removed. What to do: correct what it names (apt-get check, dpkg --audit; dnf check), "
            "then run again."
        )


def _going(lines: Iterable[str]) -> list[str]:
    """Packages that apt would remove."""
    return [found[1] for line in lines if (found := _GOING.match(line))]


def _needs(lines: Iterable[str]) -> list[str]:
    """Packages in what the package manager says, without their architectures."""
    return [line.partition(":")[0] for line in lines if re.match(r"[a-z0-9]", line)]


def _told(facts: Facts, packages: Sequence[str], removed: Sequence[str], there: Collection[str]) -> list[str]:
    """What stays of the packages that go, with the command that would take it away."""
    purge = {path: name for name in removed for path in _PURGED.get(name, ()) if path in there}
    stays = [path for path in engines.data_of(packages) if path in there and path not in engines.ours(facts, packages)]
    return [
        *(
            f"{path} stays with what is in it, and so does the configuration of {name}. To have both deleted: apt-get purge {name}"
            for path, name in purge.items()
            if path not in stays
        ),
        *(
            f"{path} stays: no record says that it was made here. To have it deleted, if nobody needs it: rm -r {path}"
            for path in stays
        ),
        *(
            f"{path} stays: the firmware may know the key, and modules of others be signed with it. To have it deleted: mokutil --delete"
            f" {_SIGNING_KEYS[1]}, boot, rm {' '.join(_SIGNING_KEYS)}"
            for path in _SIGNING_KEYS[1:]
            if path in there
        ),
    ]


def _told_of_files(facts: Facts, aside: Iterable[Aside]) -> list[str]:
    """The files of the host's that somebody wrote since."""
    kept = [each["src"].removeprefix(paths.BACKUP) for each in _given_back(facts, aside)["keep"]]
    changed = [path for path in kept if path.startswith("/etc/") and not path.endswith("~")]
    return [
        f"{path} is another one today than gpuwright left: it stays, without what is ours. As it was before, it is kept in {KEPT}"
        for path in dict.fromkeys(changed)
    ]


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
    work: RemovalWork = {
        "packages": packages,
        "half_done": half_done(facts),
        "units": [
            name
            # A socket first: whoever asks would start its service again.
            for name in sorted(
                _without(wanted["services"], _ENGINE_SERVICES), key=lambda name: not name.endswith(".socket")
            )
            if name in services and (services[name]["enabled"] or "not-found") not in ("not-found", "masked")
        ],
        "also": [*_rpms(packages), *also],
        "rpm_keys": [name for name in packages if name.startswith(_KEY)],
        "locks": LOCKS in there,
        "streams": {name: stream for name, stream in streams.items() if stream},
        "stream_files": ["".join(pair) for pair in product(left, (".module", ":*"))],
        "made": [
            *(path for path in engines.ours(facts, packages) if path in there),
            *_failed_builds(facts, packages),
            *(path for package, path in _MADE if package in packages),
        ],
        "engine": _has_docker(packages),
    }
    # Also where a run that was cut off took the packages, and nothing else of theirs.
    return {**work, "of_packages": any(work.values())}


def _has_docker(packages: Collection[str]) -> bool:
    return any(engine.daemon == "docker" for engine in engines.of_packages(packages))


def _failed_builds(facts: Facts, packages: Collection[str]) -> list[str]:
    """What DKMS keeps of builds that failed of the drivers that were tried here. What was built goes with its package."""
    tried = {row["version"] for row in sections.history(facts)["failed"]}
    rows = facts["dkms"]["failed"] if "dkms" in packages else ()
    return list(dict.fromkeys(str(PurePosixPath(row["log"]).parents[1]) for row in rows if row["version"] in tried))


def _rpms(packages: Iterable[str]) -> list[str]:
    """Keys are packages to rpm alone."""
    return [name for name in packages if not name.startswith(_KEY)]


def _of_files(
    facts: Facts,
    wanted: Removal,
    said: engines.Said,
    aside: Iterable[Aside],
) -> RemovalWork:
    files = wanted["files"]
    back = _given_back(facts, aside)
    return {
        "hooks": [path for path in files if _HOOKS.match(path)],
        "absent": [*_lists(files, said), *files, *_credentials(files), *_compiled(files)],
        "reload": any(path.startswith("/etc/systemd/system/") for path in files),
        "menu": repair.BOOT_SETTING in files,
        "directories": [] if sections.user(facts) is not None else [*_of_kernels(files), *DIRECTORIES],
        **back,
        "caches": [f"{name}*" for name in _repository_ids(files)],
        "rebuild": nouveau_blacklist.rebuild(facts["kernel"]) if wanted["initramfs"] else [],
    }


def _given_back(facts: Facts, aside: Iterable[Aside]) -> RemovalWork:
    """What becomes of the files that were put aside. Nothing that is there today is written over: an old list of package sources is another
    release's.
    """
    by_role = {each["src"] for each in given_back(facts)["put_back"]}
    rows = [(each["path"], each.get("now", "other")) for each in aside if each["path"] not in by_role]
    found = {path: known[1] for path, _now in rows if (known := _BACKED_UP.fullmatch(path))}
    marked = [place for path, place in found.items() if (path, "marked") in rows]
    lost = [path for path, now in rows if now in ("marked", "other") or path not in found]
    keep = [
        *({"src": path, "dest": f"{KEPT}/before{path.removeprefix(paths.BACKUP)}"} for path in lost),
        *({"src": place, "dest": f"{KEPT}/today{place}"} for place in marked),
    ]
    return {
        "put_back": [{"src": path, "dest": place} for path, place in found.items() if (path, "absent") in rows],
        "unmark": [place for path, place in found.items() if {(path, "marked"), (path, "left")} & set(rows)],
        "keep": cast("list[PutBack]", keep),
        "keep_directories": sorted({str(each) for row in keep for each in _parents(row["dest"])}),
    }


def _parents(path: str) -> list[PurePosixPath]:
    """The directories of a copy, from the one of ours on."""
    return [each for each in PurePosixPath(path).parents if each.is_relative_to(KEPT)]


def _compiled(files: Iterable[str]) -> list[str]:
    """What Python made beside programs of ours of an earlier gpuwright, which let it."""
    return [f"{paths.PROGRAMS}/__pycache__"] if any(path.startswith(f"{paths.PROGRAMS}/") for path in files) else []


def _of_kernels(files: Iterable[str]) -> list[str]:
    """The directories of Jupyter kernels of ours: each has one of its own."""
    return [str(PurePosixPath(path).parent) for path in files if path.startswith(f"{jupyter_kernels.DIRECTORY}/")]


def _lists(files: Iterable[str], said: engines.Said) -> list[str]:
    """The lists that apt has of the package sources that go."""
    lines = chain.from_iterable(said.get(tuple(_list_question(path))) or () for path in files)
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


def _docker(facts: Facts, plan: Mapping[str, object], packages: Collection[str]) -> Docker:
    """Docker's configuration without what was put in."""
    restart = bool(facts["containers"]["docker"]["active"]) and not _has_docker(packages)
    return {**given_back(facts), "restart": restart, **busy.restart(facts, cast("Plan", plan), "docker")}
