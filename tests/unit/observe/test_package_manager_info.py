"""The module package_manager_info: who changes packages now."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.modules import package_manager_info
from tests.unit.modules import run_module
from tests.unit.observe.trees import Tree


@pytest.fixture
def machine(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine whose whole tree is the test's."""
    monkeypatch.setattr(package_manager_info, "Host", tree.host)
    return tree


@pytest.mark.parametrize("check", [False, True])
def test_who_changes_packages_is_named(machine: Tree, check: bool) -> None:
    machine.packages({})
    machine.file("/proc/812/comm", "apt-get\n")
    machine.file("/proc/812/cmdline", "apt-get\0upgrade\0")
    answer = run_module(package_manager_info, check)
    assert (answer["manager"], answer["busy"], answer["changed"]) == ("apt", "apt-get (pid 812)", False)


def test_a_machine_at_rest_and_one_without_package_manager(machine: Tree) -> None:
    assert run_module(package_manager_info)["manager"] is None
    machine.packages({})
    answer = run_module(package_manager_info)
    assert (answer["manager"], answer["busy"]) == ("apt", None)
