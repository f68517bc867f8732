# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keeping the way back: written before the first change of a run and after its last. What is kept is told in `history`."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Collection, Iterator, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import package_log, packages, rpm
from ansible_collections.gpuwright.node.plugins.module_utils.records import history, sealing, seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState, FailedDriver

_CACHES = ("/var/cache/apt/archives/*.deb", "/var/cache/dnf/*/packages/*.rpm")
_MOST = 2
"""Drivers that are kept: the one before, and one more for the way out of two bad upgrades."""
_MOST_FAILED = 8


def begin(host: Host, state: DriverState | None, failed: FailedDriver | None = None, alone: bool = False) -> None:
    """Remember, before the first change, the driver that works; before the return from a driver, that it `failed`. `alone`: by a role,
    which has no end.

    After a run that was cut off, the driver that works is the one that this run remembered: of the pins and holds it may have moved some,
    and the mark in the seal's place says where it went.
    """
    record = _settled(host, history.read(host))
    if state and record["at_work"]:
        state = next((each for each in record["states"] if history.is_build(each, state)), state)
    record["at_work"] = record["at_work"] or not alone
    if record["streams"] is None:
        record["streams"] = rpm.streams(host)
    if state and not record["original"] and not _ours(state):
        record["original"] = state.copy()
    if state:
        others = [each for each in record["states"] if not history.same(each, state)]
        record["states"] = [state.copy(), *others][:_MOST]
    if failed:
        record["failed"] = _with_failed(host, record["failed"], failed)
    _write(host, record)
    _keep_copies(host, [*record["states"], *filter(None, [record["original"]])])


def works(host: Host, version: str | None) -> None:
    """Note the driver as the last one that was proven, and forget that it failed before."""
    record = history.read(host)
    left = [each for each in record["failed"] if each.get("version") != version]
    if (left, version) != (record["failed"], record["proven"]):
        record["failed"], record["proven"] = left, version
        _write(host, record)


def _with_failed(host: Host, rows: list[FailedDriver], driver: FailedDriver) -> list[FailedDriver]:
    """The drivers that failed, this one (``version``, ``modules``, ``source``, ``kernel``, ``reason``, ``time``) first. What its build
    said is kept too: the return takes that away with the driver.
    """
    others = [each for each in rows if not history.is_driver(each, driver)]
    this: FailedDriver = {**driver, "log": _keep_log(host, driver)}
    return [this, *others][:_MOST_FAILED]


def _keep_log(host: Host, driver: FailedDriver) -> str | None:
    """Copy what DKMS, or NVIDIA's installer, wrote of the build; the path of the copy, None where there is nothing."""
    found = list(host.glob(f"/var/lib/dkms/*/{driver['version']}/build/make.log"))
    if driver["source"] == "runfile":
        found += host.glob("/var/log/nvidia-installer.log")
    if not found:
        return None
    target = f"{paths.FAILED}/{driver['version']}-{driver['kernel']}.log"
    os.makedirs(host.at(paths.FAILED), mode=0o700, exist_ok=True)
    shutil.copyfile(host.at(found[0]), host.at(target))
    return target


def forget(host: Host, check: bool = False) -> list[str]:
    """Remove every record, the copies of packages and the lock; the directories that were there."""
    there = [path for path in (host.places.state, host.places.run) if host.isdir(path)]
    for path in [] if check else there:
        shutil.rmtree(host.at(path))
    return there


def _ours(state: DriverState) -> bool:
    """Whether gpuwright installed this driver, and did not adopt it."""
    return bool(state.get("stack")) and not state["stack"].get("adopted")


def end(host: Host) -> None:
    """Note the files and environments that are sealed now: another driver's seal names others, and so does that of another place of
    environments.

    What a run fetched for a toolkit before it was cut off goes: the toolkit is there by now, or nobody wishes it any more.
    """
    shutil.rmtree(host.at(paths.FETCHED), ignore_errors=True)
    record = _settled(host, history.read(host))
    if not record["at_work"]:
        return
    sealed = [seal for seal in seals.read_all(host).values() if isinstance(seal, dict)]
    record["files"] = sorted(history.sealed_files(host, sealed) | set(record["files"]))
    environments = history.sealed_environments(host, sealed) | set(record["environments"])
    record["environments"] = sorted(path for path in environments if host.exists(path))
    record["at_work"] = False
    _write(host, record)


def new_mark() -> str:
    """What a call is known by."""
    return os.urandom(6).hex()


def call_begins(host: Host, names: Sequence[str]) -> str:
    """Write down, before it begins, a call of the package manager that asks for these packages; its mark.

    Raises SealError where nobody could say afterwards what it brought.
    """
    record = _settled(host, history.read(host))
    if record["calls"] is None or package_log.FACT in host.unknown_facts:
        raise seals.SealError(
            "Expected the package manager to tell what is installed and what its calls brought. "
            f"Found: {host.unknown_facts[package_log.FACT]}. What to do: see to that, then run again. Nothing was installed."
        )
    mark, there = new_mark(), packages.installed(host)
    keys = sorted(name for name in there if name.startswith(history.KEY))
    record["calls"][mark] = {"names": [name for name in names if name not in there], "keys": keys}
    record["settings"] = sorted({*record["settings"], *packages.removed_with_settings(host)})
    _write(host, record)
    return mark


def call_ends(host: Host, mark: str, went_well: bool, keys: Collection[str]) -> None:
    """Write down what a call brought. `keys`: how the names begin that rpm gives to the keys of sources of ours, which dnf imports by
    the way.

    Of one that went well and that the log does not have, nobody can say it later either.
    """
    before = history.read(host)
    record = _settled(host, before)
    call, there = (before["calls"] or {}).get(mark), packages.installed(host)
    if call is None or package_log.FACT in host.unknown_facts:
        return
    if went_well and mark in (record["calls"] or {}):
        lost = {name: there[name].version for name in call["names"] if name in there and name not in record["brought"]}
        record["unproven"] = {**record["unproven"], **lost}
    new = {name: there[name].version for name in there if name.startswith(tuple(keys)) and name not in call["keys"]}
    record["brought"] = {**record["brought"], **new}
    record["calls"] = {each: left for each, left in (record["calls"] or {}).items() if each != mark}
    _write(host, record)


def _settled(host: Host, record: history.Kept) -> history.Kept:
    """The record with what the package manager's log says by now; as it is where that is unknown."""
    found = history.owned(host, record)
    if found is None:
        return record
    left = {mark: call for mark, call in (record["calls"] or {}).items() if mark not in found.logged}
    settled = record.copy()
    settled.update({"brought": found.brought, "unproven": found.unproven, "calls": left, "before": None})
    return settled


def _write(host: Host, record: history.Kept) -> None:
    kept = {key: value for key, value in record.items() if key != "before" or value is not None}
    sealing.write_object(host, host.places.history, dict(kept, schema=seals.SCHEMA))


def _keep_copies(host: Host, states: list[DriverState]) -> None:
    """Keep the packages of the remembered drivers that the package manager still has in its cache, and NVIDIA's files of theirs and of
    the one that is sealed, which the role put there; those of others go.

    An index may drop a version at any time. What is in neither is named when somebody wants to go back.
    """
    wanted = {
        file
        for state in states
        for name, version in state.get("packages", {}).items()
        for file in history.copy_names(state, name, version)
    }
    wanted |= {str(file["name"]) for file in map(history.file_of, _stacks(host, states)) if file}
    there = set(host.names(paths.PACKAGES))
    cached = {os.path.basename(path): path for pattern in _CACHES for path in host.glob(pattern)}
    new = sorted((wanted - there) & set(cached))
    if new:
        os.makedirs(host.at(paths.PACKAGES), mode=0o700, exist_ok=True)
    for name in new:
        _copy(host.at(cached[name]), host.at(f"{paths.PACKAGES}/{name}"))
    for name in there - wanted:
        os.unlink(host.at(f"{paths.PACKAGES}/{name}"))


def _stacks(host: Host, states: list[DriverState]) -> Iterator[Mapping[str, object]]:
    """The driver's part of the stack of each state, and of its seal or of the mark of a run in its place."""
    stacks: list[Mapping[str, object] | None] = [state.get("stack") for state in states]
    yield from filter(None, stacks)
    try:
        seal = seals.read(host, "nvidia_driver") or {}
    except seals.SealError:
        return
    yield seal.get("stack") or {}


def _copy(source: str, target: str) -> None:
    """A second name for the file, which costs nothing; a copy where they are on two file systems."""
    try:
        os.link(source, target)
    except OSError:
        partial = target + ".part"
        shutil.copyfile(source, partial)
        os.rename(partial, target)
