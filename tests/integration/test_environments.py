"""The life of an environment that uv builds: made, an upgrade cut off in the middle and gone on with, rolled back."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import work
from tests.sim import repository, wheels

from .conftest import Node, Run
from .test_supply_chain import serve

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="environments")]

_MIRROR = "http://127.0.0.1:8099"
_PLAN = yaml.safe_load((Path(repository.__file__).parent / "packages.yaml").read_text())["wheels"]
_OLD, _NEW = "2.14.0+cu130", "2.14.1+cu130"
_BUILDS = "/opt/gpuwright/.pytorch"


def index(folder: Path) -> Path:
    """A mirror that has PyTorch's last two releases, and the uv that nodes may bring."""
    plan = copy.deepcopy(_PLAN)
    plan["cu130"]["torch"]["versions"] = [_OLD, _NEW]
    plan["cu130"]["torchvision"]["versions"] = ["0.29.0+cu130", "0.29.1+cu130"]
    files = {**wheels.projects(plan, "pypi"), **wheels.projects(plan, "cu130")}
    wheels.write_index(folder / "cu130", files)
    uv = work.uv()
    (folder.parent / "uv.txt").write_text(
        f"uv=={uv['version']} " + " ".join(f"--hash=sha256:{each}" for each in uv["sha256"])
    )
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    subprocess.run([*fetch, "-d", folder.parent / "uv", "-r", folder.parent / "uv.txt"], check=True)
    found = [(path.name, path.read_bytes()) for path in (folder.parent / "uv").iterdir()]
    wheels.write_index(folder / "pypi", {**files, "uv": found})
    return folder


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files."""
    return index(tmp_path_factory.mktemp("index") / "mirror")


@pytest.fixture(scope="module")
def rebooting(make_shared_node: Callable[[str, str], Node]) -> Node:
    """The node; the tests of this module go through the life in their order."""
    return make_shared_node("environments", "two-h100")


@pytest.fixture
def machine(rebooting: Node, mirror: Path) -> Node:
    """The node with the mirror on it, which a reboot ends."""
    serve(rebooting, mirror)
    return rebooting


def wishes(machine: Node, version: str) -> None:
    """Have the inventory ask for a release of PyTorch from the mirror."""
    document: dict[str, Any] = yaml.safe_load(machine.inventory.read_text())
    variables = document["all"]["vars"]
    variables["gpuwright_mirrors"] |= {"pytorch": _MIRROR, "pypi": f"{_MIRROR}/pypi"}
    variables["frameworks_wanted"] = [f"pytorch=={version}"]
    machine.inventory.write_text(yaml.safe_dump(document))


def is_at(machine: Node, version: str, run: Run) -> None:
    """The run ended well, and the environment has the release: built by uv, whole, with nothing left beside it."""
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    freeze = machine.shell("/opt/gpuwright/pytorch/bin/python -m pip freeze").split()
    assert f"torch=={version}" in freeze
    machine.shell("/opt/gpuwright/pytorch/bin/python -m pip check")
    made_by = machine.shell("cat /opt/gpuwright/pytorch/lib/python3*/site-packages/torch-*.dist-info/INSTALLER")
    assert made_by == "uv"
    assert not [name for name in machine.shell(f"ls -A {_BUILDS}").split() if name.startswith(".")]
    # Root alone writes there.
    assert machine.shell("find -L /opt/gpuwright/pytorch -perm /022 -not -type l") == ""


def test_a_project_that_cannot_be_met_is_refused_before_anything_changes(machine: Node, tmp_path: Path) -> None:
    wishes(machine, _OLD)
    (tmp_path / "clash.txt").write_text("torch==2.14.0\n# theirs\nsympy<1.13\n")
    (tmp_path / "fits.txt").write_text("torch==2.14.0\nsympy>=1.13\n")
    for run in (machine.plan, machine.up):
        done = run("--want", f"project={tmp_path / 'clash.txt'}")
        assert done.code == 3, str(done)
        (row,) = [each for each in done.host["refusals"] if each["rule"] == "project-clash"]
        assert "torch==2.14.0 (clash.txt:1); sympy<1.13 (clash.txt:3). uv says: Because" in row["text"]
    fits = machine.plan("--want", f"project={tmp_path / 'fits.txt'}")
    assert fits.code == 0, str(fits)
    assert not [each for each in fits.host["warnings"] if each["rule"] == "project-untried"]
    assert machine.shell("ls -d /opt/gpuwright /tmp/gpuwright-* /run/gpuwright-pip-* 2>/dev/null || true") == ""


def test_uv_builds_what_the_mirror_has(machine: Node) -> None:
    wishes(machine, _OLD)
    is_at(machine, _OLD, machine.up())
    again = machine.up()
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)


def test_an_upgrade_that_is_cut_off_leaves_the_old_one_and_the_next_run_completes(machine: Node) -> None:
    wishes(machine, _NEW)
    planned = machine.plan()
    assert [(row["component"], row["action"]) for row in planned.host["changes"]][:1] == [("frameworks", "upgrade")], (
        str(planned)
    )
    machine.cut_when("pgrep -f '[/]bin/uv --config-file'")
    assert ".uv" in machine.shell(f"ls -A {_BUILDS}").split()
    assert machine.shell("pgrep -f '[/]bin/uv --config-file' || true") == ""
    assert f"torch=={_OLD}" in machine.shell("/opt/gpuwright/pytorch/bin/python -m pip freeze").split()
    is_at(machine, _NEW, machine.up())


def test_rollback_returns_to_the_build_before_and_stays_there(machine: Node) -> None:
    back = machine.run("rollback", "--yes")
    is_at(machine, _OLD, back)
    again = machine.up()
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)
    is_at(machine, _OLD, again)
