# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Containers of users without root: Podman, which hands them the cards by CDI, where the kernel and the system allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....resolver.log import Entry, Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row
from ....wish.wish import Wish
from ..model import Rootless
from . import podman

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Rootless as Seen

_RULE = "container-toolkit.rootless"
_MACHINE = "the machine's facts"
_LEAVE = "leave container-rootless away: root's containers get the cards all the same"


def choose(machine: Machine, wish: Wish, system: Row, log: Log) -> Rootless | None:
    """Return the users and the packages for their containers; None where nobody is named. Raises Unresolved."""
    users = list(wish.container_toolkit_rootless)
    if not users:
        return None
    row = next(each for each in log.rules["container_toolkit"]["rootless"] if system["os"] in each["os"])
    found = [*_of_podman(machine, system, log), *(_of_kernel(machine.rootless) if machine.rootless else ())]
    found += _of_users(machine.rootless, users) if machine.rootless else ()
    if found:
        raise Unresolved(*found)
    text = f"Podman for {', '.join(users)}, who start containers without root and get the cards by CDI: asked for"
    log.decided(_RULE, text, log.cite("container_toolkit", row))
    return {"users": users, "packages": list(row["packages"])}


def _of_podman(machine: Machine, system: Row, log: Log) -> Iterator[Entry]:
    """Yield why the Podman that is there, or that would come, does not hand cards to such containers."""
    old = podman.too_old(machine, system, log.rules)
    if old:
        remedy = f"{_LEAVE}; or take a system with a newer Podman (Debian 13, Ubuntu 26.04, RHEL 9 and its kin), or install one first"
        yield conflict(_RULE, *old, remedy)


def _of_kernel(seen: Seen) -> Iterator[Entry]:
    """Yield why the kernel does not let users make user namespaces."""
    if seen["max_namespaces"] == 0:
        text = "the kernel allows no user namespaces (user.max_user_namespaces is 0)"
        yield conflict(_RULE, text, _MACHINE, f"set user.max_user_namespaces=15000 in /etc/sysctl.d; or {_LEAVE}")
    if seen["clone"] is False:
        text = "the kernel lets nobody but root make user namespaces (kernel.unprivileged_userns_clone is 0)"
        yield conflict(_RULE, text, _MACHINE, f"set kernel.unprivileged_userns_clone=1 in /etc/sysctl.d; or {_LEAVE}")
    if seen["apparmor"] and not seen["profile"]:
        text = (
            "AppArmor lets only programs with a profile make user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1), "
            "and Podman has none in /etc/apparmor.d/podman"
        )
        yield conflict(_RULE, text, _MACHINE, f"install Ubuntu's package apparmor, which has the profile; or {_LEAVE}")


def _of_users(seen: Seen, users: list[str]) -> Iterator[Entry]:
    """Yield who of the named users is none of this machine."""
    for user in users:
        if user not in seen["users"]:
            text = f"{user} is no user of this machine (/etc/passwd, ids from 1000 on)"
            remedy = f"create {user} first; a directory's user gets ranges of ids from whoever runs the directory; or {_LEAVE}"
            yield conflict(_RULE, text, _MACHINE, remedy)
