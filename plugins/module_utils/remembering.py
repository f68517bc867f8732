# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keeping the way back: written before the first change of a run and after its last. What is kept is told in `history`."""

from __future__ import annotations

import os
import shutil
from typing import Any, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils import history, sealing, seals
from ansible_collections.gpuwright.node.plugins.module_utils.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import rpm

_CACHES = ("/var/cache/apt/archives/*.deb", "/var/cache/dnf/*/packages/*.rpm")
_MOST = 2
"""Drivers that are kept: the one before, and one more for the way out of two bad upgrades."""


def begin(host: Host, state: Mapping[str, Any] | None, installed: Mapping[str, Any]) -> None:
    """Remember, before the first change, the driver that works, and the packages that are there.

    A run that was cut off has not ended: what was there before it is still what was there before.
    """
    record = history.read(host)
    if record["before"] is None:
        record["before"] = sorted(installed)
    if record["streams"] is None:
        record["streams"] = rpm.streams(host)
    if state and not record["original"] and not _ours(state):
        record["original"] = dict(state)
    if state:
        others = [each for each in record["states"] if each.get("packages") != state.get("packages")]
        record["states"] = [dict(state), *others][:_MOST]
    _write(host, record)
    _keep_copies(host, [*record["states"], *filter(None, [record["original"]])])


def forget(host: Host, check: bool = False) -> list[str]:
    """Remove every record, the copies of packages and the lock; the directories that were there."""
    there = [path for path in (history.DIRECTORY, os.path.dirname(seals.LOCK)) if host.isdir(path)]
    for path in [] if check else there:
        shutil.rmtree(host.at(path))
    return there


def _ours(state: Mapping[str, Any]) -> bool:
    """Whether gpuwright installed this driver, and did not adopt it."""
    return bool(state.get("stack")) and not state["stack"].get("adopted")


def end(host: Host, installed: Mapping[str, Any]) -> None:
    """Note which packages the run brought."""
    record = history.read(host)
    if record["before"] is None:
        return
    before = set(record["before"])
    brought = {name: version for name, version in record["brought"].items() if name in installed}
    brought.update({name: package.version for name, package in installed.items() if name not in before})
    _write(host, dict(record, brought=brought, before=None))


def _write(host: Host, record: Mapping[str, Any]) -> None:
    sealing.write_object(host, history.PATH, dict(record, schema=seals.SCHEMA))


def _keep_copies(host: Host, states: list[dict[str, Any]]) -> None:
    """Keep the packages of the remembered drivers that the package manager still has in its cache; those of others go.

    An index may drop a version at any time. What is in neither is named when somebody wants to go back.
    """
    wanted = {
        file
        for state in states
        for name, version in state.get("packages", {}).items()
        for file in history.copy_names(state, name, version)
    }
    there = set(host.names(history.COPIES))
    cached = {os.path.basename(path): path for pattern in _CACHES for path in host.glob(pattern)}
    new = sorted((wanted - there) & set(cached))
    if new:
        os.makedirs(host.at(history.COPIES), mode=0o700, exist_ok=True)
    for name in new:
        _copy(host.at(cached[name]), host.at(f"{history.COPIES}/{name}"))
    for name in there - wanted:
        os.unlink(host.at(f"{history.COPIES}/{name}"))


def _copy(source: str, target: str) -> None:
    """A second name for the file, which costs nothing; a copy where they are on two file systems."""
    try:
        os.link(source, target)
    except OSError:
        partial = target + ".part"
        shutil.copyfile(source, partial)
        os.rename(partial, target)
