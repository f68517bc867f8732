"""How the work becomes root: on the machine one sits at, and on the hosts of an inventory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwright import console
from gpuwright.errors import BadInput, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PASSWORD_FILE = ("--become-password-file", "--become-pass-file")
_SUDO_SECONDS = 10


@dataclass(frozen=True)
class Privilege:
    """The way to root.

    Attributes:
        become: Ansible is to use sudo (the playbooks do, unless `ansible_become` says otherwise).
        privileged: the work is done as root, by sudo or because it is started so.
        password: sudo's password, never written anywhere.
    """

    become: bool
    privileged: bool
    password: str | None = field(default=None, repr=False)


def sudo_needs_no_password() -> bool:
    """Whether sudo is there and works without asking. A password that was given lately counts for the terminal that it was given at, and
    Ansible has another one: `-k` leaves it out, and with a command it forgets none (sudo(8)).
    """
    try:
        done = subprocess.run(
            ["sudo", "-k", "-n", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SUDO_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@dataclass(frozen=True)
class World:
    """What the decision asks of the machine and of the person."""

    euid: Callable[[], int] = os.geteuid
    sudo_is_free: Callable[[], bool] = sudo_needs_no_password
    ask_secret: Callable[[str], str] = console.ask_secret


def decide(
    *,
    local: bool,
    needed: bool,
    ask: bool,
    user: bool = False,
    ansible_options: Sequence[str] = (),
    world: World | None = None,
) -> Privilege:
    """Decide how to become root.

    Args:
        local: the machine one sits at, not an inventory.
        needed: the verb cannot do its work without root.
        ask: `-K` was given.
        user: `--user` was given: no way to root is looked for.
        ansible_options: what is passed to ansible-playbook; a password file there is a way to root too.
        world: this process and its user; replaceable.

    Raises:
        BadInput: what was given with `--user` speaks of root, or of other machines.
        Refused: root is needed and there is no way to it; or it is root who asks for what is a user's own.
    """
    world = world or World()
    if user:
        return _none(local=local, ask=ask, root=world.euid() == 0)
    if local and world.euid() == 0:
        return Privilege(become=False, privileged=True)
    if ask:
        return Privilege(become=True, privileged=True, password=world.ask_secret("sudo password: "))
    by_file = any(word.partition("=")[0] in _PASSWORD_FILE for word in ansible_options)
    if not local or by_file or world.sudo_is_free():
        return Privilege(become=True, privileged=True)
    if needed:
        remedy = "run with sudo, or with -K; for environments of your own, without root: --user"
        raise _refused("needs root", "this needs root, and sudo asks for a password", remedy, "privilege.root")
    return Privilege(become=False, privileged=False)


def _none(*, local: bool, ask: bool, root: bool) -> Privilege:
    """The way of a user who works without root.

    Raises:
        BadInput, Refused: as :func:`decide` says.
    """
    if not local:
        raise BadInput(
            "--user is for the machine you sit at, and -i names others",
            ["log in there and run it without -i", "in the inventory: gpuwright_user: true and ansible_become: false"],
        )
    if ask:
        raise BadInput("--user needs no root, and -K asks for its password", ["give one of the two"])
    if root:
        remedy = "run it as that user, without sudo; or leave --user out, for environments that everybody may use"
        text = "--user is for what belongs to one user, and this is root"
        raise _refused(text, text, remedy, "privilege.user")
    return Privilege(become=False, privileged=False)


def _refused(short: str, text: str, remedy: str, rule: str) -> Refused:
    conflict = {"rule": rule, "text": text, "source": None, "remedy": remedy}
    return Refused(f"{short}: {remedy}", conflicts=[conflict])
