"""Package sources that are in the way of NVIDIA's repository: named by the plan, moved to a backup, and apt works again."""

from __future__ import annotations

import pytest

from tests.sim import settings

from .conftest import Proven

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_PARTS = "/etc/apt/sources.list.d"
_BACKUP = "/var/lib/gpuwright/backup"
_CUDA = f"{settings.REPOSITORY_URL}/compute/cuda/repos/debian13/x86_64/"


def test_sources_in_the_way_are_named_and_moved_to_a_backup(proven: Proven) -> None:
    machine = proven.take()
    foreign = {
        f"{_PARTS}/cuda-debian13-x86_64.list": f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {_CUDA} /\n",
        f"{_PARTS}/graphics-drivers.list": "deb [signed-by=/etc/ppa.gpg] http://ppa.launchpad.net/graphics-drivers/ppa/ubuntu noble main\n",
        f"{_PARTS}/mixed.list": f"# old and new\ndeb {_CUDA} /\ndeb [trusted=yes] file:/srv/own ./\n",
    }
    for path, text in foreign.items():
        machine.shell(f"printf '%s' '{text}' > {path}")
    machine.shell("mkdir -p /srv/own && touch /srv/own/Packages")
    assert "Conflicting values set for option Signed-By" in machine.shell("apt-get check 2>&1 || true")

    planned = machine.plan()
    assert planned.code == 0, str(planned)
    named = {change["files"][0]: change for change in planned.host["changes"] if change["action"] == "repair"}
    assert set(named) == set(foreign), planned.host["changes"]
    assert all(f"{_BACKUP}{path}" in change["files"] for path, change in named.items())
    assert machine.shell(f"cat {_PARTS}/mixed.list") == foreign[f"{_PARTS}/mixed.list"]

    run = machine.up()
    assert run.code == 0, str(run)
    machine.shell("apt-get check")
    for path, text in foreign.items():
        assert machine.shell(f"cat {_BACKUP}{path}") == text
    assert (
        machine.shell(f"ls {_PARTS}/cuda-debian13-x86_64.list {_PARTS}/graphics-drivers.list 2>/dev/null || true") == ""
    )
    lines = machine.shell(f"cat {_PARTS}/mixed.list").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["deb [trusted=yes] file:/srv/own ./"]

    machine.shell(f"rm {_PARTS}/mixed.list; rm -r /srv/own")
    proven.put_back(machine)
