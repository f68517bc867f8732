"""What a node keeps to find its way back, written and read on a tree."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.records import (
    history,
    history_writer,
    seals,
)
from ansible_collections.gpuwright.node.plugins.module_utils.seal import History
from ansible_collections.gpuwright.node.plugins.modules import node_seal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from tests.unit.modules import run_module
from tests.unit.observe.trees import Tree
from tests.unit.plan import nodes

CACHE = "/var/cache/apt/archives"
OURS = {"branch": "580", "adopted": False}


def state(version: str, **changes: Any) -> Any:
    return {"version": version, "packages": {"libcuda1": f"{version}-1"}, "stack": OURS, "arch": "amd64", **changes}


def begin(node: Tree, remembered: Any = None) -> None:
    host = node.host()
    history_writer.begin(host, remembered)


def end(node: Tree) -> None:
    host = node.host()
    history_writer.end(host)


def seen(node: Tree) -> History:
    found = history.observe(node.host(), full=True)
    assert found is not None
    return found


@pytest.fixture
def node(tree: Tree) -> Tree:
    tree.packages({"docker.io": "26.1", "bash": "5.2"})
    return tree


def test_a_run_that_was_cut_off_before_it_brought_anything_has_its_record(node: Tree) -> None:
    assert not seen(node)["recorded"]
    begin(node)
    assert (seen(node)["recorded"], seen(node)["brought"]) == (True, [])


def test_after_a_run_that_was_cut_off_the_driver_before_it_is_remembered_as_it_was_then(node: Tree) -> None:
    worked = state("595.1", source="nvidia", modules="open", holds=["libcuda1"])
    begin(node, worked)
    # The pin was moved, and in the seal's place stands where that run went.
    begin(node, {**worked, "packages": {**worked["packages"], "pin": "580-1"}, "holds": [], "stack": {"branch": "580"}})
    assert seen(node)["states"] == [worked]
    end(node)
    moved = {**worked, "holds": [], "packages": {**worked["packages"], "more": "1"}}
    begin(node, moved)
    assert seen(node)["states"] == [moved, worked]


def test_the_last_two_drivers_that_worked_are_kept_newest_first(node: Tree) -> None:
    for version in ("1", "2", "3", "2"):
        begin(node, state(version))
    assert [each["version"] for each in seen(node)["states"]] == ["2", "3"]


def test_the_driver_of_somebody_else_is_kept_for_good(node: Tree) -> None:
    begin(node, state("535", stack={}))
    for version in ("1", "2", "3"):
        begin(node, state(version))
    original = history.read(node.host())["original"]
    assert original
    assert original["version"] == "535"


def test_one_that_gpuwright_installed_is_not_somebody_elses(node: Tree) -> None:
    begin(node, state("1"))
    assert history.read(node.host())["original"] is None


def test_packages_in_apts_cache_are_kept_and_those_of_forgotten_drivers_go(node: Tree) -> None:
    for version in ("1", "2", "3"):
        node.file(f"{CACHE}/libcuda1_{version}-1_amd64.deb", version)
        begin(node, state(version))
    assert sorted(seen(node)["copies"]) == ["libcuda1_2-1_amd64.deb", "libcuda1_3-1_amd64.deb"]
    kept = node.root / paths.PACKAGES.lstrip("/") / "libcuda1_3-1_amd64.deb"
    assert kept.stat().st_ino == (node.root / CACHE.lstrip("/") / "libcuda1_3-1_amd64.deb").stat().st_ino


def of_file(version: str) -> dict[str, Any]:
    file = {"name": f"NVIDIA-Linux-x86_64-{version}.run", "sha256": "ab" * 32}
    return state(version, source="runfile", modules="open", packages={}, stack={**OURS, "runfile": file})


def test_files_of_nvidias_are_kept_for_the_drivers_that_worked_and_the_one_that_comes(node: Tree) -> None:
    node.file(f"{paths.PACKAGES}/NVIDIA-Linux-x86_64-4.run")
    node.file(seals.path_of("nvidia_driver"), json.dumps({"stack": of_file("4")["stack"]}))
    for version in ("1", "2", "3"):
        node.file(f"{paths.PACKAGES}/NVIDIA-Linux-x86_64-{version}.run")
        begin(node, of_file(version))
    assert [each["version"] for each in seen(node)["states"]] == ["3", "2"]
    assert [name[-5:] for name in sorted(seen(node)["copies"])] == ["2.run", "3.run", "4.run"]


def test_files_of_a_driver_that_another_one_took_the_place_of_are_not_forgotten(node: Tree) -> None:
    node.file("/etc/apt/sources.list.d/gpuwright.sources", "x")
    node.file(
        seals.path_of("nvidia_driver"),
        json.dumps({"component": "nvidia_driver", "files": {"/etc/apt/sources.list.d/gpuwright.sources": {}}}),
    )
    begin(node)
    end(node)
    node.file(seals.path_of("nvidia_driver"), json.dumps({"component": "nvidia_driver", "files": {}}))
    assert seen(node)["files"] == ["/etc/apt/sources.list.d/gpuwright.sources"]


def test_environments_of_another_place_are_not_forgotten_where_they_bear_our_mark(node: Tree) -> None:
    ours, others, gone = (f"/srv/envs/{name}" for name in ("pytorch", "jax", "lmdb"))
    for path in (ours, others, gone):
        node.file(f"{path}/{paths.ENVIRONMENT_MARK}")
    sealed: Any = {path: {} for path in (ours, others, gone)}
    node.file(seals.path_of("frameworks"), json.dumps({"component": "frameworks", "environments": sealed}))
    begin(node)
    end(node)
    node.file("/data/envs/pytorch/" + paths.ENVIRONMENT_MARK)
    now = json.dumps({"component": "frameworks", "environments": {"/data/envs/pytorch": {}}})
    node.file(seals.path_of("frameworks"), now)
    shutil.rmtree(node.root / gone.lstrip("/"))
    (node.root / others.lstrip("/") / paths.ENVIRONMENT_MARK).unlink()
    begin(node)
    end(node)
    # What somebody put in the place of one is not taken away.
    assert seen(node)["environments"] == ["/data/envs/pytorch", ours]
    assert history.read(node.host())["environments"] == ["/data/envs/pytorch", others, ours]


def test_a_driver_that_failed_is_kept_with_the_log_of_its_build_until_it_is_proven(node: Tree) -> None:
    row: Any = {"version": "2", "modules": "open", "source": "nvidia", "kernel": "6.12", "reason": "r", "time": "t"}
    node.file("/var/lib/dkms/nvidia/2/build/make.log", "too few arguments")
    node.file("/var/lib/dkms/nvidia/1/build/make.log", "another one")
    for failed in (row, row, row | {"version": "3"}):
        history_writer.begin(node.host(), None, failed)
    assert [each["version"] for each in seen(node)["failed"]] == ["3", "2"]
    assert [each["log"] for each in seen(node)["failed"]] == [None, f"{paths.FAILED}/2-6.12.log"]
    assert (node.root / paths.FAILED.lstrip("/") / "2-6.12.log").read_text() == "too few arguments"
    history_writer.works(node.host(), "2")
    found = history.observe(node.host())
    assert found is not None
    assert [each["version"] for each in found["failed"]] == ["3"]


def test_a_usual_look_knows_which_driver_was_proven_and_what_failed_before_one_gave_way(node: Tree) -> None:
    history_writer.begin(node.host(), state("580.1", failing=["cuda.init"]))
    history_writer.begin(node.host(), state("580.2"))
    history_writer.works(node.host(), "580.2")
    found = history.observe(node.host())
    assert found is not None
    assert (found["proven"], found["failing"]) == ("580.2", {"580.1": ["cuda.init"]})


def test_an_epoch_is_written_as_apt_writes_it() -> None:
    named = history.copy_names({"arch": "amd64"}, "libcuda1:amd64", "1:580.1-1")
    assert named == ["libcuda1_1%3a580.1-1_amd64.deb", "libcuda1_1%3a580.1-1_all.deb"]


def test_dnf_leaves_the_epoch_out_of_the_name() -> None:
    named = history.copy_names({"arch": "x86_64", "manager": "dnf"}, "nvidia-driver-cuda", "3:580.1-1.el9")
    assert named == ["nvidia-driver-cuda-580.1-1.el9.x86_64.rpm", "nvidia-driver-cuda-580.1-1.el9.noarch.rpm"]


def test_packages_in_dnfs_cache_are_kept(node: Tree) -> None:
    node.file(
        "/var/cache/dnf/gpuwright-nvidia-cuda-0123456789abcdef/packages/nvidia-driver-cuda-580.1-1.el9.x86_64.rpm", "x"
    )
    packages = {"nvidia-driver-cuda": "3:580.1-1.el9"}
    begin(node, state("580.1", arch="x86_64", manager="dnf", packages=packages))
    assert seen(node)["copies"] == ["nvidia-driver-cuda-580.1-1.el9.x86_64.rpm"]


def test_the_module_streams_are_those_before_the_first_run(node: Tree) -> None:
    begin(node, state("1"))
    node.file("/etc/dnf/modules.d/nvidia-driver.module", "[nvidia-driver]\nstream=580-open\nstate=enabled\n")
    begin(node, state("2"))
    assert history.read(node.host())["streams"] == {}


def test_removed_leaves_no_record(node: Tree) -> None:
    begin(node, state("1"))
    run_module(node_seal, False, state="begun", seals={}, owner="me", root=str(node.root))
    answer = run_module(node_seal, False, state="removed", root=str(node.root))
    assert answer["changed"] is True
    assert not (node.root / "var/lib/gpuwright").exists()
    assert not (node.root / "run/gpuwright").exists()


def test_what_a_cut_run_fetched_goes_when_another_one_ends(node: Tree) -> None:
    begin(node)
    node.file(f"{paths.FETCHED}/cuda_12.2.2_535.104.05_linux.run", "cut off")
    begin(node)
    assert (node.root / paths.FETCHED[1:]).exists(), "it may be wished yet, and need not be fetched twice"
    run_module(node_seal, True, state="sealed", seals={}, root=str(node.root))
    assert (node.root / paths.FETCHED[1:]).exists(), "check mode changes nothing"
    run_module(node_seal, False, state="sealed", seals={}, root=str(node.root))
    assert not (node.root / paths.FETCHED[1:]).exists()
    assert (node.root / "var/lib/gpuwright/history.json").exists()


def test_what_a_cut_run_fetched_is_taken_back_though_nothing_else_came_of_it(node: Tree) -> None:
    cuda: Any = {"cuda": {"stack": {}, "gpus": []}}
    run_module(node_seal, False, state="begun", seals=cuda, owner="me", root=str(node.root))
    node.file(f"{paths.FETCHED}/cuda_12.2.2_535.104.05_linux.run", "cut off")
    history_now = seen(node)
    assert removal.findings(nodes.bare(history=history_now)), "there is nothing to take back"
    run_module(node_seal, False, state="removed", root=str(node.root))
    assert not (node.root / "var/lib/gpuwright").exists()


def test_in_check_mode_nothing_is_remembered(node: Tree) -> None:
    run_module(node_seal, True, state="begun", seals={}, owner="me", remember=state("1"), root=str(node.root))
    assert not (node.root / "var/lib/gpuwright").exists()


def test_what_the_repair_wrote_goes_too_and_what_others_wrote_there_stays(node: Tree) -> None:
    begin(node)
    end(node)
    ours = {"/etc/dkms/nvidia-current-open-550.163.01-6.12.107.conf", "/etc/default/grub.d/gpuwright.cfg"}
    for path in ours:
        node.file(path, "# Written by gpuwright (role repair): no module\n")
    node.file("/etc/dkms/framework.conf", "MAKE=make\n")
    assert set(seen(node)["files"]) == ours
