# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the caller of a plan wants to know, beside the wish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from ..model.proof import MAX_AGE
from ..wish.users import OF_USERS

if TYPE_CHECKING:
    from ..components.base import Inputs
    from ..model.lock import Lock
    from ..model.plan import Plan, StoppedBy
    from ..model.stack import Stack

#: Verbs that change a node.
APPLYING = ("up", "upgrade", "rollback", "remove")
#: Verbs that only say how a node is: what would stop a change stops none of their checks.
DIAGNOSING = ("doctor", "validate")
#: Verbs that have to know what was on the node before.
WITH_HISTORY = ("rollback", "remove")


@dataclass(frozen=True)
class Request:
    """What the caller wants to know, beside the wish.

    ``today`` decides on ends of life. ``local``: the machine one sits at. ``only``: the components of a role used alone.
    ``inputs``: variables set for each component, they belong to its digest. ``role_digests``: checked-in digest by role.
    ``absent``: what the node's package index turned out not to have, such as "driver=580" or "cuda=13.0", with the versions
    that are there instead. ``lock``: the stack that the node has to come to, see lock.py.
    ``applied``: the stack that was just applied; missing seals are then no reason to change anything.
    ``begun``: the plan of this very run, whose driver failed and gives way to the one that was remembered; ``failure``: what stopped it.
    ``retry``: a driver that failed on this kernel is tried again.
    ``pending``: an earlier task of the run left the cards to the next boot.
    ``user``: a user works without root, on what is the user's own.
    ``no_reboot``: no machine is booted; ``allow_busy``: what runs may be ended.
    ``allow_remove``: packages that are not ours and may be removed, downgraded, or changed though they are on hold.
    ``allow_source``: distributions that are built from their source, in a run of a user's own, where no wheel of them is there.
    ``security``: an upgrade that only goes as far as published vulnerabilities demand; ``aim``: the version that this is, by component.
    """

    host: str
    today: date
    local: bool = False
    full: bool = False
    verb: str = "up"
    only: Sequence[str] = ()
    proof_max_age: int = MAX_AGE
    inputs: Inputs = field(default_factory=dict)
    role_digests: Mapping[str, str] = field(default_factory=dict)
    applied: Stack | None = None
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lock: Lock | None = None
    begun: Plan | None = None
    failure: StoppedBy | None = None
    retry: bool = False
    pending: bool = False
    user: bool = False
    security: bool = False
    aim: Mapping[str, str] | None = None
    allow_remove: Sequence[str] = ()
    allow_source: Sequence[str] = ()
    no_reboot: bool = False
    allow_busy: bool = False

    @property
    def boots(self) -> bool:
        """Whether a boot that is needed is this run's to make. The machine one sits at is never booted under its user."""
        return not self.no_reboot and not self.local

    def covers(self, component: str) -> bool:
        """Whether a component is part of what is planned here."""
        return (not self.only or component in self.only) and (not self.user or component in OF_USERS)

    @property
    def diagnoses(self) -> bool:
        """Whether it is only asked how the node is."""
        return self.verb in DIAGNOSING

    @property
    def returns(self) -> bool:
        """Whether the node goes back to a driver that worked before."""
        return self.verb == "rollback"

    @property
    def moves(self) -> bool:
        """Whether what is sealed may go on to a newer version: only an upgrade moves a node."""
        return self.verb == "upgrade"
