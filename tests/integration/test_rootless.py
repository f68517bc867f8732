"""Containers of users without root, by the real Podman of Debian: what they are given, that it works, and that it is taken back."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from .conftest import Node
from .engines import IMAGE, Engines

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="containers")]

_WISH = {"container_toolkit_rootless": ["alice", "bob"]}
_RANGES = "cat /etc/subuid /etc/subgid"
#: A simulated node is a container: its users mount no overlay over its own, and neither proc nor sysfs, so that theirs share the node's.
_STORAGE = '[storage]\ndriver = "vfs"\n'
_RUN = "podman run --rm --pid host --network host --env PATH=/bin:/usr/bin"


@pytest.fixture(scope="module")
def engines(make_shared_node: Callable[[str, str], Node]) -> Engines:
    """A server with two H100 with a user who has a range of ids, and one who has none."""
    engines = Engines(make_shared_node("rootless", "two-h100"))
    engines.machine.shell(
        "useradd --create-home alice; useradd --create-home bob; sed -i /^alice:/d /etc/subuid /etc/subgid"
    )
    for user in ("alice", "bob"):
        engines.machine.shell(f"install -d -o {user} -g {user} /home/{user}/.config /home/{user}/.config/containers")
        engines.write(f"/home/{user}/.config/containers/storage.conf", _STORAGE, mode="0644", owner=f"{user}:{user}")
    engines.image()
    engines.machine.shell("install -m 0644 /root/image.tar /home/alice/image.tar")
    return engines


@pytest.fixture(scope="module")
def bare(engines: Engines) -> str:
    """The ranges as the machine has them."""
    return engines.machine.shell(_RANGES)


def of_alice(engines: Engines, command: str) -> str:
    """What a command of alice's says."""
    return engines.machine.shell(f"runuser --login --command '{command}' alice")


def test_who_has_no_range_gets_one_that_overlaps_no_other(engines: Engines, bare: str) -> None:
    engines.up("podman", **_WISH)
    rows = [line.split(":") for line in engines.machine.shell(_RANGES).splitlines()]
    assert {row[0] for row in rows} == {"gpuadmin", "alice", "bob"}
    ranges = sorted({(int(first), int(first) + int(count)) for _name, first, count in rows})
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))
    assert set(bare.splitlines()) < set(engines.machine.shell(_RANGES).splitlines())
    assert "65536" in of_alice(engines, "podman unshare cat /proc/self/uid_map")
    assert engines.checks("podman", **_WISH)["container.rootless"]["status"] == "pass"


def test_a_second_run_changes_nothing(engines: Engines) -> None:
    again = engines.up("podman", "--full", **_WISH)
    assert again.changed == 0, str(again)


def test_a_container_of_a_user_sees_the_cards_of_the_host(engines: Engines) -> None:
    of_alice(engines, f"podman import --quiet image.tar {IMAGE}")
    text = of_alice(engines, f"{_RUN} --device nvidia.com/gpu=all {IMAGE} nvidia-smi -L")
    assert [line.rpartition("UUID: ")[2].rstrip(")") for line in text.splitlines()] == engines.uuids()


def test_remove_takes_back_the_range_that_was_given_and_no_other(engines: Engines, bare: str) -> None:
    run = engines.machine.run("remove", "--yes")
    assert run.code == 0, str(run)
    assert engines.machine.shell(_RANGES) == bare
    assert engines.machine.shell("ls /var/lib/gpuwright/rootless.json", check=False) == ""
