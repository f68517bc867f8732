# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the driver comes from: NVIDIA's repository, the distribution's, or a file of NVIDIA's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....resolver import keys, systems
from ....resolver.log import DESIGN, Entry
from ....resolver.machine import Machine
from ....rules import Row, Rules
from ....wish.wish import Wish


@dataclass(frozen=True)
class Source:
    """A place drivers come from, why it stands where it stands, and where that was read."""

    name: str
    reason: str
    citation: str


def candidates(machine: Machine, wish: Wish, system: Row, rules: Rules) -> tuple[list[Source], list[Entry]]:
    """Return the sources to try in their order, and why others are out of the question.

    A source that was asked for is the only one. Otherwise: what the machine has now stays; with Secure Boot the
    distribution's modules, which it has signed, come first; then NVIDIA's repository, then the distribution's.
    """
    out = keys.obstacles(machine, wish, system, rules)
    order = _order(machine, wish, system, rules)
    return [source for source in order if source.name != "nvidia" or not out], out


def _order(machine: Machine, wish: Wish, system: Row, rules: Rules) -> Sequence[Source]:
    if wish.driver_source:
        return [Source(wish.driver_source, "asked for", "the wish")]
    nvidia = Source("nvidia", "NVIDIA's repository is preferred: it has the choice of branches", DESIGN)
    distro = Source("distro", "the distribution's own packages are what is left", DESIGN)
    present = _present(machine)
    if present:
        return [
            Source(
                present,
                "the driver that is there came from it, and owners are not swapped unasked",
                "the machine's facts",
            )
        ]
    if machine.secure_boot and systems.signs(machine, system, rules):
        signed = "Secure Boot is on: the distribution signs its prebuilt modules, no key has to be enrolled"
        return [Source("distro", signed, "compat/systems.yaml (distro_drivers)"), nvidia]
    return [nvidia, distro]


def _present(machine: Machine) -> str | None:
    """Return the source of what is in force: of the stack that was applied, else of the packages that are there."""
    kept = machine.kept["source"] if machine.kept else None
    if kept in ("nvidia", "distro", "runfile"):
        return str(kept)
    packaged = machine.driver_owner == "packages" and machine.driver_source in ("nvidia", "distro")
    return machine.driver_source if packaged else None
