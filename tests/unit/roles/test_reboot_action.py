"""The boot is told by its id, whatever else the terminal of a machine that goes down shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gpuwright.node.plugins.action.reboot import ActionModule

_BOOT = "22eff7a2-ffe5-4bc5-a165-abdb7760d8e3"
_OTHER = "be432ecb-16f3-4326-a582-1e0836d4294b"
_LINUX = {"name": "debian", "version": "13", "family": "debian"}
#: The words of sudo 1.9 were seen; those of shutdown are assumed.
_SUDO = "sudo: unable to resolve host {}: Temporary failure in name resolution\r\n"
_WALL = (
    "\r\nBroadcast message from root@node on pts/1 (Tue 2026-11-24 21:00:00 UTC):\r\n\r\n"
    "gpuwright reboots this machine: reboot: nouveau holds the card\r\nThe system will reboot now!\r\n\r\n"
)


def boot(stdout: str, rc: int = 0) -> str:
    """What is taken for the boot's id where the command printed STDOUT."""
    action = ActionModule.__new__(ActionModule)
    action._task = SimpleNamespace(action="gpuwright.node.reboot", args={})
    answer: dict[str, Any] = {"rc": rc, "stdout": stdout, "stderr": ""}
    action._low_level_execute_command = lambda *_command, **_options: answer
    return str(action.get_system_boot_time(_LINUX))


@pytest.mark.parametrize(
    "stdout",
    [
        f"{_BOOT}\r\n",
        _SUDO.format("node") + f"{_BOOT}\r\n",
        _SUDO.format(_OTHER) + f"{_BOOT}\r\n",
        _WALL + f"{_BOOT}\r\n",
        f"{_BOOT}\r\n" + _WALL,
    ],
    ids=["alone", "sudo", "host called by an id", "before it", "after it"],
)
def test_words_beside_the_id_are_no_other_boot(stdout: str) -> None:
    assert boot(stdout) == _BOOT


@pytest.mark.parametrize("stdout", ["", _WALL, _BOOT[:20], _SUDO.format(_OTHER)])
def test_without_an_id_nothing_is_taken_for_one(stdout: str) -> None:
    with pytest.raises(AnsibleError, match="Expected the id of the boot"):
        boot(stdout)


def test_a_command_that_failed_tells_no_boot() -> None:
    with pytest.raises(AnsibleError, match="failed to get host boot time"):
        boot(_BOOT, rc=255)
