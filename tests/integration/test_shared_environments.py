"""A project's requirements, two frameworks in one environment, and the Jupyter kernel of each, from the first run to the last."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="environments")]

_KERNELS = "/usr/local/share/jupyter/kernels"
_KERNEL = f"{_KERNELS}/gpuwright-research/kernel.json"
_FOREIGN = f"{_KERNELS}/python3/kernel.json"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node with a kernel of somebody else; the tests of this module go by turns with it, in their order."""
    node = make_shared_node("shared-env", "two-h100")
    node.shell(f"mkdir -p {_KERNELS}/python3 && echo '{{}}' > {_FOREIGN}")
    return node


@pytest.fixture(scope="module")
def wants(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    project = tmp_path_factory.mktemp("project") / "requirements.txt"
    project.write_text("torch>=2.14\npandas<3\nuvloop; sys_platform == 'win32'\n")
    words = ["pytorch@research", "tensorflow@research", f"project@research={project}", "jupyter"]
    return [word for want in words for word in ("--want", want)]


def packages(node: Node) -> dict[str, str]:
    listed = node.shell("/opt/gpuwright/research/bin/python -m pip list --format json --disable-pip-version-check")
    return {row["name"].lower(): row["version"] for row in json.loads(listed)}


def test_everything_is_in_one_environment_and_proven(machine: Node, wants: list[str]) -> None:
    done = machine.up(*wants)
    assert done.code == 0, str(done)
    there = packages(machine)
    assert there["torch"].endswith("+cu126")
    assert there["tensorflow"] == "2.21.0"
    assert there["nvidia-cudnn-cu12"] == "9.10.2.21"
    assert there["pandas"] == "2.3.3"
    assert "uvloop" not in there
    passed = [row["id"] for row in done.host["checks"] if row["status"] == "pass"]
    assert passed.count("framework.compute") == 4  # two frameworks on two cards
    assert passed.count("framework.kernel") == 2
    assert json.loads(machine.shell(f"cat {_KERNEL}"))["argv"][0] == "/opt/gpuwright/research/bin/python"


def test_a_second_run_changes_nothing(machine: Node, wants: list[str]) -> None:
    done = machine.up(*wants)
    assert done.code == 0, str(done)
    assert done.host["changes"] == []


def test_a_kernel_that_somebody_changed_is_written_anew_and_nothing_is_built(machine: Node, wants: list[str]) -> None:
    build = machine.shell("readlink /opt/gpuwright/research")
    machine.shell(f"echo '{{}}' > {_KERNEL}")
    done = machine.up(*wants)
    assert done.code == 0, str(done)
    told = [(row["component"], row["action"], row["reason"]) for row in done.host["changes"]]
    assert ("frameworks", "configure", "/opt/gpuwright/research has another Jupyter kernel") in told
    assert [row for row in told if row[0] == "frameworks" and row[1] != "configure"] == [], told
    assert machine.shell("readlink /opt/gpuwright/research") == build
    assert "ipykernel_launcher" in machine.shell(f"cat {_KERNEL}")


def test_what_the_project_asks_anew_is_built_and_a_clash_is_refused(
    machine: Node, wants: list[str], tmp_path: Path
) -> None:
    clash = tmp_path / "requirements.txt"
    clash.write_text("torch==2.14.1+cu130\n")
    done = machine.plan("--want", "tensorflow@research", "--want", f"project@research={clash}")
    assert done.code == 3, str(done)
    (conflict,) = done.host["conflicts"]
    assert conflict["text"] == "torch 2.14.1+cu130 is built with CUDA 13, tensorflow 2.21.0 with CUDA 12"
    assert "in requirements.txt:1" in conflict["remedy"]
    clash.write_text("torch>=2.14\npandas>=3\n")
    done = machine.plan(
        "--want", "pytorch@research", "--want", "tensorflow@research", "--want", f"project@research={clash}"
    )
    assert done.code == 0, str(done)
    (change,) = [row for row in done.host["changes"] if row["component"] == "frameworks"]
    assert "lacks pandas>=3" in change["reason"]


def test_rollback_returns_to_a_build_in_which_only_packages_of_the_project_differ(
    machine: Node, wants: list[str], tmp_path: Path
) -> None:
    later = tmp_path / "requirements.txt"
    later.write_text("torch>=2.14\npandas>=3\n")
    moved = [f"project@research={later}" if word.startswith("project@") else word for word in wants]
    done = machine.up(*moved)
    assert done.code == 0, str(done)
    assert packages(machine)["pandas"] == "3.0.1"
    back = machine.run("rollback", "--yes", *moved)
    assert back.code == 0, str(back)
    (change,) = [row for row in back.host["changes"] if row["component"] == "frameworks"]
    assert (change["action"], "pandas 2.3.3 instead of 3.0.1" in change["reason"]) == ("return", True), change
    assert packages(machine)["pandas"] == "2.3.3"
    again = machine.up(*moved)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    assert packages(machine)["pandas"] == "2.3.3"


def test_all_of_it_goes_and_what_is_anothers_stays(machine: Node) -> None:
    done = machine.run("remove", "--yes")
    assert done.code == 0, str(done)
    assert machine.shell("ls -A /opt/gpuwright 2>/dev/null || true").strip() == ""
    assert machine.shell(f"ls {_KERNELS}").split() == ["python3"]
    assert machine.shell(f"cat {_FOREIGN}").strip() == "{}"
