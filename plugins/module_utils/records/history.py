# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node keeps to find its way back: the drivers that worked before, their packages, and what gpuwright brought.

One record, readable by its owner only; here it is read, `remembering` writes it. ``states``: the drivers that worked, newest first, each
with its packages and versions, or with the file of NVIDIA's that brought it, and the checks that failed before it gave way (``failing``);
``original``: the driver that somebody else had installed.
``failed``: the drivers that a run returned from, newest first, each with the kernel, the reason and the place of a log.
``proven``: the version of the driver that was proven last.
``brought``: packages that our own calls of the package manager installed, by version, as its log says; ``calls``: those that were begun
and that nobody has looked up there since; ``unproven``: packages of which nobody can say that; ``settings``: packages that somebody had
removed, and kept their settings, before a call of ours. ``files`` and ``environments``: what the seals of runs named. ``at_work``:
whether a run began that has not ended. ``streams``: dnf's module streams that were enabled before the first run.

A record without ``calls`` is one of before calls were marked. Its ``brought`` was the difference of what was there after a run and before
it, its ``before`` is what was there as a run began that did not end: both are believed as far as the log says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Iterable, Mapping, NamedTuple, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import package_log, packages
from ansible_collections.gpuwright.node.plugins.module_utils.records import data_directories, seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
        DriverState,
        FailedDriver,
        History,
        Runfile,
    )

# What the role repair leaves behind of a kernel without a module, and what it says in each file.
_REPAIR = ("/etc/default/grub.d/gpuwright.cfg", "/etc/dkms/*.conf", "/etc/dkms/no-autoinstall")
#: How the metrics of ours begin.
_METRICS = "# HELP gpuwright_"
_OURS = "Written by gpuwright (role repair)"
#: How rpm calls the keys that it has.
KEY = "gpg-pubkey-"


class Begun(TypedDict):
    """A call of the package manager that was begun: the packages that were asked for and not there, and the keys that rpm had."""

    names: list[str]
    keys: list[str]


class Owned(NamedTuple):
    """Packages that our calls brought, also those that a call was cut off before, and those of which nobody can say; both by version.
    ``logged``: which of the calls that were begun the package manager has in its log.
    """

    brought: dict[str, str]
    unproven: dict[str, str]
    logged: frozenset[str]


class Kept(TypedDict):
    """The record, as :func:`read` gives it."""

    original: DriverState | None
    failed: list[FailedDriver]
    proven: str | None
    states: list[DriverState]
    brought: dict[str, str]
    unproven: dict[str, str]
    settings: list[str]
    calls: dict[str, Begun] | None
    files: list[str]
    environments: list[str]
    at_work: bool
    before: list[str] | None
    streams: dict[str, str] | None


def read(host: Host) -> Kept:
    """The record; an empty one where there is none. Raises SealError for one that cannot be read."""
    record = seals.read_object(host, host.places.history) or {}
    return {
        "original": record.get("original"),
        "failed": record.get("failed") or [],
        "proven": record.get("proven"),
        "states": record.get("states") or [],
        "brought": record.get("brought") or {},
        "unproven": record.get("unproven") or {},
        "settings": record.get("settings") or [],
        "calls": record.get("calls") if record else {},
        "files": record.get("files") or [],
        "environments": record.get("environments") or [],
        "at_work": bool(record.get("at_work")) or record.get("before") is not None,
        "before": record.get("before"),
        "streams": record.get("streams"),
    }


def owned(host: Host, record: Kept) -> Owned | None:
    """Whose packages are. None where it cannot be told: what is installed, or the package manager's log, is unknown.

    Whose a package is says the last call that installed or removed it: what somebody removed and installed again is his. A call that the
    log no longer has is older than all that it has.
    """
    if host.of_user:
        return Owned({}, {}, frozenset())
    there, calls = packages.installed(host), package_log.read(host)
    last = package_log.last(calls)
    his = package_log.past_apt(host, last)
    if "packages.installed" in host.unknown_facts:
        host.unknown(package_log.FACT, host.unknown_facts["packages.installed"])
    if package_log.FACT in host.unknown_facts:
        return None
    ours = {name: call.came[name] for name, call in last.items() if call.ours and name in call.came and name not in his}
    versions = {**ours, **{name: package.version for name, package in there.items()}}
    if record["calls"] is None:
        brought, unproven = _earlier(record, there, last, ours)
        return Owned(_versions(brought, versions), _versions(unproven, versions), frozenset())
    begun = [call for call in calls if call.mark in record["calls"]]
    named = {*record["brought"], *(name for call in begun for name in call.came)}
    brought = {name for name in named if name in ours or name not in last}
    unproven = {name for name in record["unproven"] if name not in ours}
    logged = frozenset(call.mark for call in begun if call.mark)
    return Owned(_versions(brought, versions), _versions(unproven, versions), logged)


def _earlier(
    record: Kept, there: Collection[str], told: Collection[str], ours: Collection[str]
) -> tuple[set[str], set[str]]:
    """By a record of before calls were marked: what it names, or what came after a run of that time that was cut off, and the log has of
    a call that has the form of ours. ``told``: all that the log has. What rpm has of keys is in no log: those are believed. A ``before``
    of nothing is of an rpm that did not answer, and makes nothing doubtful.
    """
    since = set(there) - set(record["before"]) if record["before"] is not None else set()
    keys = {name for name in record["brought"] if name.startswith(KEY)}
    brought = ((set(record["brought"]) | since) & set(ours)) | keys
    doubtful = since - set(told) if record["before"] else set()
    return brought, (set(record["brought"]) - brought) | doubtful


def _versions(names: Iterable[str], versions: Mapping[str, str]) -> dict[str, str]:
    return {name: versions[name] for name in sorted(names) if name in versions}


def observe(host: Host, full: bool = False) -> History | None:
    """The fact `history`: the versions of the drivers that worked, and the drivers that failed; `full`: all of the record, and what is
    kept as files.

    None where it cannot be read.
    """
    try:
        record = read(host)
    except seals.SealError as exc:
        host.unknown("history", str(exc))
        return None
    drivers: list[str | None] = [state.get("version") for state in record["states"]]
    failing = {state["version"]: state["failing"] for state in reversed(record["states"]) if "failing" in state}
    if not full:
        return {"drivers": drivers, "failed": record["failed"], "proven": record["proven"], "failing": failing}
    from ansible_collections.gpuwright.node.plugins.module_utils.observe import rpm

    mine, there = owned(host, record), packages.installed(host)
    if mine is None:
        return None
    try:
        made = [] if host.of_user else data_directories.made(host, mine.brought)
    except seals.SealError as exc:
        host.unknown("history", str(exc))
        return None
    # What the seals name, or named, and is there, with what the repair wrote, which has no seal.
    found = [seal for seal in seals.read_all(host).values() if isinstance(seal, dict)]
    # What is root's in the system's directories is no user's to take back.
    repairs = () if host.of_user else _REPAIR
    watched = set() if host.of_user else _of_watch(host)
    repaired = {path for pattern in repairs for path in host.glob(pattern) if _OURS in (host.read(path) or "")}
    sealed = sealed_environments(host, found)
    # One of another frameworks_path than that of the last wish. What somebody put in its place since then is not ours.
    earlier = {path for path in record["environments"] if host.exists(f"{path}/{paths.ENVIRONMENT_MARK}")}
    copies = () if host.of_user else host.names(paths.PACKAGES)
    files = sealed_files(host, found) | set(record["files"]) | repaired | watched
    return {
        "original": record["original"],
        "failed": record["failed"],
        "proven": record["proven"],
        "failing": failing,
        "states": record["states"],
        "brought": rpm.exact(name for name in mine.brought if name in there),
        "unproven": rpm.exact(name for name in mine.unproven if name in there),
        "settings": sorted(name for name in record["settings"] if name in mine.brought and name in there),
        "streams": record["streams"],
        "made": made,
        "drivers": drivers,
        "copies": [name for name in copies if name.endswith((".deb", ".rpm", ".run"))],
        "files": sorted(path for path in files if host.exists(path)),
        "environments": sorted(
            path for path in sealed | earlier | _marked(host) if host.exists(path) or host.link(path)
        ),
        "services": sorted({unit for seal in found for unit in seal.get("services") or {}}),
        "components": sorted(str(seal.get("component")) for seal in found),
        "recorded": host.exists(host.places.history),
    }


def _of_watch(host: Host) -> set[str]:
    """What no seal names of a node that watches itself: its webhook, a secret, and its metrics, which each turn writes anew, where they lie
    among others'.
    """
    try:
        settings = seals.read_object(host, paths.WATCH_SETTINGS) or {}
    except seals.SealError:
        settings = {}
    metrics = "{}/{}".format(settings.get("textfile_directory"), paths.METRICS_FILE)
    ours = (host.read(metrics, limit=len(_METRICS)) or "") == _METRICS
    return {paths.WATCH_WEBHOOK, *([metrics] if ours else [])}


def _marked(host: Host) -> set[str]:
    """Environments in the usual place that have our mark: the seal names those of the last wish alone."""
    return {path.rpartition("/")[0] for path in host.glob(f"{host.places.environments}/*/{paths.ENVIRONMENT_MARK}")}


def sealed_files(host: Host, found: list[seals.Record]) -> set[str]:
    """Paths of the files that seals name, and marks in their place: without those that stand there as they did before."""
    return {
        path for seal in found for path in seal.get("files") or {} if not _stands(host, path, seal.get("stood") or {})
    }


def _stands(host: Host, path: str, stood: Mapping[str, str]) -> bool:
    """Whether a file is as it was before a run that was to write it; one that cannot be read counts as such, and stays."""
    if path not in stood:
        return False
    try:
        return seals.digest(host, path) in (stood[path], None)
    except seals.SealError:
        return True


def sealed_environments(host: Host, found: list[seals.Record]) -> set[str]:
    """Paths of the environments that seals name, and marks in their place: there with a mark of ours in them alone."""
    return {
        path
        for seal in found
        for path in seal.get("environments") or {}
        if not seal.get("begun") or host.exists(f"{path}/{paths.ENVIRONMENT_MARK}")
    }


def same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two states are one driver: the same packages; of NVIDIA's file, which leaves no packages, the same build and flavour."""
    if "runfile" not in (one.get("source"), other.get("source")):
        return bool(one.get("packages") == other.get("packages"))
    return is_build(one, other)


def is_build(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two mean one build of the driver, however it is pinned and held."""
    return all(one.get(key) == other.get(key) for key in ("source", "version", "modules"))


def is_driver(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two mean one driver for one kernel."""
    return is_build(one, other) and one.get("kernel") == other.get("kernel")


def file_of(stack: Mapping[str, object] | None) -> Runfile | None:
    """NVIDIA's file that a driver's part of the stack comes from, where it can be fetched or kept: with a checksum."""
    file = cast("Runfile | None", (stack or {}).get("runfile"))
    return file if file and file.get("sha256") else None


def copy_names(state: Mapping[str, object], name: str, version: str) -> list[str]:
    """What the file of a state's package may be called: as apt, or dnf, calls it in its cache."""
    arch = state.get("arch")
    if state.get("manager") == "dnf":
        plain = "{}-{}".format(name, version.rpartition(":")[2])
        return [f"{plain}.{each}.rpm" for each in (arch, "noarch") if each]
    plain = "{}_{}".format(name.partition(":")[0], version.replace(":", "%3a"))
    return [f"{plain}_{each}.deb" for each in (arch, "all") if each]
