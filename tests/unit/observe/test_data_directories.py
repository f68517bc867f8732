"""Which directories with data of users were made here, and which were there before."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.records import data_directories, history, seals
from ansible_collections.gpuwright.node.plugins.modules import node_seal
from tests.unit.modules import run_module
from tests.unit.observe.trees import Tree

DOCKER, CONTAINERD = "/var/lib/docker", "/var/lib/containerd"
BROUGHT = ["docker.io", "containerd"]


def test_a_directory_that_was_not_there_as_the_run_began_was_made_here(tree: Tree) -> None:
    tree.directory(CONTAINERD)
    data_directories.begin(tree.host(), [])
    tree.directory(DOCKER)
    assert data_directories.made(tree.host(), BROUGHT) == [DOCKER]


def test_one_of_a_package_that_no_run_brought_is_somebody_elses(tree: Tree) -> None:
    data_directories.begin(tree.host(), [])
    tree.directory(DOCKER)
    assert data_directories.made(tree.host(), ["containerd"]) == []


def test_one_that_came_between_two_runs_was_not_made_here(tree: Tree) -> None:
    data_directories.begin(tree.host(), [])
    tree.directory(DOCKER)
    data_directories.begin(tree.host(), [])
    assert data_directories.made(tree.host(), BROUGHT) == []


def test_a_later_run_finds_what_an_earlier_one_made_and_does_not_forget_it(tree: Tree) -> None:
    data_directories.begin(tree.host(), [])
    tree.directory(DOCKER)
    data_directories.begin(tree.host(), BROUGHT)
    assert data_directories.made(tree.host(), BROUGHT) == [DOCKER]


def test_without_a_record_nothing_was_made_here(tree: Tree) -> None:
    tree.directory(DOCKER)
    assert data_directories.made(tree.host(), BROUGHT) == []
    # A run of an earlier version brought the engine and noted nothing.
    data_directories.begin(tree.host(), BROUGHT)
    assert data_directories.made(tree.host(), BROUGHT) == []


def test_a_link_to_nothing_is_something_of_a_users(tree: Tree) -> None:
    tree.link(DOCKER, "/srv/not-mounted")
    data_directories.begin(tree.host(), [])
    tree.directory("/srv/not-mounted")
    assert data_directories.made(tree.host(), BROUGHT) == []


def test_a_record_that_cannot_be_read_is_none(tree: Tree) -> None:
    tree.file(paths.DATA, "no JSON")
    with pytest.raises(seals.SealError):
        data_directories.made(tree.host(), BROUGHT)
    assert history.observe(tree.host(), full=True) is None


def test_the_record_is_made_as_a_run_begins_and_told_with_the_history(tree: Tree) -> None:
    tree.packages({})
    run_module(node_seal, state="begun", owner="a@b:1", root=str(tree.root))
    tree.packages({"docker.io": "26.1"})
    tree.directory(DOCKER)
    record = tree.root / paths.ROOTS.history.lstrip("/")
    record.write_text(json.dumps({**json.loads(record.read_text()), "brought": {"docker.io": "26.1"}}))
    found = history.observe(tree.host(), full=True)
    assert found is not None
    assert found["made"] == [DOCKER]
