# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A driver that somebody else looks after (a cloud's image, Kubernetes' GPU operator): used and checked, never touched."""

from __future__ import annotations

from dataclasses import replace

from ....resolver import adoption
from ....resolver.log import Entry, Log, Unresolved, conflict
from ....resolver.machine import InstalledDriver, Machine
from ....wish.wish import Wish

SOURCE = "preinstalled"


def applies(machine: Machine, wish: Wish) -> bool:
    """Say whether the driver is another's business: it was wished so, or the machine is of an image that brings one.

    A source that is asked for by name wins over the image, and so does a driver that gpuwright put there itself.
    """
    if wish.driver_source:
        return wish.driver_source == SOURCE
    kept = machine.kept
    ours = kept is not None and not kept["adopted"]
    return machine.image is not None and not ours


def checked(machine: Machine, wish: Wish, log: Log) -> InstalledDriver:
    """Return the driver that is there. Raises Unresolved where none works, or where it is not what was asked for."""
    owner = owner_of(machine)
    installed = machine.driver
    if installed is None:
        text = f"the driver of {owner} is to be used as it is, and none that works is there"
        raise Unresolved(conflict("driver.preinstalled", text, _evidence(machine), _remedy(owner)))
    missing = adoption.shortcomings(installed, machine, replace(wish, driver_source=None), log.rules)
    if missing:
        raise Unresolved(*(_not_touched(entry, owner) for entry in missing))
    how = "asked for" if wish.driver_source else f"recognised by {_evidence(machine)}"
    text = f"the driver {installed.version} belongs to {owner} ({how}): it is used and checked, and nothing of it is changed"
    log.decided("driver.preinstalled", text, _evidence(machine))
    return installed


def owner_of(machine: Machine) -> str:
    """Return who looks after the driver, for a person."""
    return str(machine.image["owner"]) if machine.image else "whoever made this machine's image"


def _evidence(machine: Machine) -> str:
    return str(machine.image["evidence"]) if machine.image else "the wish"


def _remedy(owner: str) -> str:
    return f"have {owner} bring a driver that works, or have it replaced by saying where from: driver-source=nvidia"


def _not_touched(entry: Entry, owner: str) -> Entry:
    return {
        **entry,
        "text": f"{entry['text']}; the driver belongs to {owner} and is not touched",
        "remedy": _remedy(owner),
    }
