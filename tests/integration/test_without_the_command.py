"""ansible-core alone is enough: the playbook of a bare clone from any directory, and the collection as Galaxy installs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Controller, Node
from .footprint import footprint

pytestmark = pytest.mark.sim


def test_the_playbook_of_a_bare_clone_works_from_another_directory(controller: Controller, ready_node: Node) -> None:
    said = controller.run("ansible-playbook", controller.clone / "site.yml", "-i", ready_node.inventory)
    assert "changed=0" in said
    assert "failed=0" in said
    assert "TASK [gpuwright.node." not in said, "no role ran: the node was proven already"


def test_in_check_mode_the_playbook_prints_the_plan_and_changes_nothing(
    controller: Controller, make_node: Callable[..., Node]
) -> None:
    machine = make_node("check")
    before = footprint(machine)
    said = controller.run(
        "ansible-playbook", "site.yml", "--check", "--diff", "-i", machine.inventory, cwd=controller.clone
    )
    for line in ("nvidia_driver: install", "nouveau_blacklist: configure", "frameworks: install", "reboot: configure"):
        assert line in said
    assert "package nvidia-driver-cuda 580." in said
    assert "file /etc/modprobe.d/gpuwright-nouveau.conf" in said
    assert footprint(machine) == before


def test_the_collection_works_as_galaxy_installs_it(controller: Controller, ready_node: Node) -> None:
    for playbook in ("site", "doctor"):
        said = controller.run(
            "ansible-playbook",
            f"gpuwright.node.{playbook}",
            "-i",
            ready_node.inventory,
            collections=controller.collections,
        )
        assert "changed=0" in said
        assert "failed=0" in said
