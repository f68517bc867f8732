# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node keeps to find its way back: the drivers that worked before, their packages, and what gpuwright brought.

One record, readable by its owner only; here it is read, `remembering` writes it. ``states``: the drivers that worked, newest first, each
with its packages and versions, or with the file of NVIDIA's that brought it, and the checks that failed before it gave way (``failing``);
``original``: the driver that somebody else had installed.
``failed``: the drivers that a run returned from, newest first, each with the kernel, the reason and the place of a log.
``proven``: the version of the driver that was proven last.
``brought``: packages that appeared while runs were at work, by version; ``files`` and ``environments``: what the seals of those runs
named. ``before``: the packages that were there when a run began that has not ended yet. ``streams``: dnf's module streams that were enabled
before the first run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals

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


class Kept(TypedDict):
    """The record, as :func:`read` gives it."""

    original: DriverState | None
    failed: list[FailedDriver]
    proven: str | None
    states: list[DriverState]
    brought: dict[str, str]
    files: list[str]
    environments: list[str]
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
        "files": record.get("files") or [],
        "environments": record.get("environments") or [],
        "before": record.get("before"),
        "streams": record.get("streams"),
    }


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

    there = packages.installed(host)
    before = record["before"]
    # A run that was cut off brought something too.
    names = set(record["brought"]) | (set(there) - set(before) if before is not None else set())
    # What the seals name, or named, and is there, with what the repair wrote, which has no seal.
    found = [seal for seal in seals.read_all(host).values() if isinstance(seal, dict)]
    # What is root's in the system's directories is no user's to take back.
    repairs = () if host.of_user else _REPAIR
    watched = set() if host.of_user else _of_watch(host)
    repaired = {path for pattern in repairs for path in host.glob(pattern) if _OURS in (host.read(path) or "")}
    sealed = sealed_environments(found)
    # One of another frameworks_path than that of the last wish. What somebody put in its place since then is not ours.
    earlier = {path for path in record["environments"] if host.exists(f"{path}/{paths.ENVIRONMENT_MARK}")}
    copies = () if host.of_user else host.names(paths.PACKAGES)
    files = sealed_files(found) | set(record["files"]) | repaired | watched
    return {
        "original": record["original"],
        "failed": record["failed"],
        "proven": record["proven"],
        "failing": failing,
        "states": record["states"],
        "brought": rpm.exact(name for name in names if name in there),
        "streams": record["streams"],
        "drivers": drivers,
        "copies": [name for name in copies if name.endswith((".deb", ".rpm", ".run"))],
        "files": sorted(path for path in files if host.exists(path)),
        "environments": sorted(
            path for path in sealed | earlier | _marked(host) if host.exists(path) or host.link(path)
        ),
        "services": sorted({unit for seal in found for unit in seal.get("services") or {}}),
        "components": sorted(str(seal.get("component")) for seal in found),
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


def sealed_files(found: list[seals.Record]) -> set[str]:
    """Paths of the files that seals name."""
    return {path for seal in found for path in seal.get("files") or {}}


def sealed_environments(found: list[seals.Record]) -> set[str]:
    """Paths of the environments that seals name."""
    return {path for seal in found for path in seal.get("environments") or {}}


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
