"""How the work becomes root: on the machine one sits at, and on the hosts of an inventory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwright import console
from gpuwright.errors import Refused

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
    """Whether sudo is there and works without asking."""
    try:
        done = subprocess.run(
            ["sudo", "-n", "true"],
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
    *, local: bool, needed: bool, ask: bool, ansible_options: Sequence[str] = (), world: World | None = None
) -> Privilege:
    """Decide how to become root.

    Args:
        local: the machine one sits at, not an inventory.
        needed: the verb cannot do its work without root.
        ask: `-K` was given.
        ansible_options: what is passed to ansible-playbook; a password file there is a way to root too.
        world: this process and its user; replaceable.

    Raises:
        Refused: root is needed and there is no way to it.
    """
    world = world or World()
    if local and world.euid() == 0:
        return Privilege(become=False, privileged=True)
    if ask:
        return Privilege(become=True, privileged=True, password=world.ask_secret("sudo password: "))
    by_file = any(word.partition("=")[0] in _PASSWORD_FILE for word in ansible_options)
    if not local or by_file or world.sudo_is_free():
        return Privilege(become=True, privileged=True)
    if needed:
        raise Refused(
            "needs root: run with sudo, or with -K",
            conflicts=[
                {
                    "rule": "privilege.root",
                    "text": "this needs root, and sudo asks for a password",
                    "source": None,
                    "remedy": "run with sudo, or with -K",
                }
            ],
        )
    return Privilege(become=False, privileged=False)
