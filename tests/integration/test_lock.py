"""`--lock` on a simulated node: exactly the locked versions, older ones than the newest too; refused where the node's index cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Node, gpuwright
from .footprint import footprint

pytestmark = pytest.mark.sim

#: None of them is the newest that the simulated repository has.
_OLDER = ("driver=580.126.20", "cudnn=9.24.0.43", "container-toolkit=1.19.1")
_WANTS = (*_OLDER, "cuda=13.0.3", "pytorch")


def lock(folder: Path, *wants: str, system: str = "debian-13", hashes: Path | None = None) -> Path:
    """A lock for two H100."""
    path = folder / f"{system}-{len(list(folder.iterdir()))}.lock.json"
    words = [word for want in wants for word in ("--want", want)] + (["--hashes", str(hashes)] if hashes else [])
    run = gpuwright("resolve", "--gpu", "H100", "--os", system, "--arch", "x86_64", *words, "--lock", path)
    assert run.code == 0, str(run)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the locks are."""
    return tmp_path_factory.mktemp("locks")


@pytest.fixture(scope="module")
def locked(make_shared_node: Callable[[str, str], Node], folder: Path) -> tuple[Node, Path]:
    """A node that `up --lock` brought to the versions of a lock, and the lock."""
    machine, file = make_shared_node("locked", "two-h100"), lock(folder, *_WANTS)
    run = machine.up("--lock", str(file))
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    return machine, file


def versions(machine: Node, *names: str) -> dict[str, str]:
    """The installed versions of packages."""
    told = machine.shell(f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {' '.join(names)}")
    return dict(line.split() for line in told.splitlines())


def test_up_with_a_lock_installs_exactly_its_versions(locked: tuple[Node, Path]) -> None:
    machine, file = locked
    stack = json.loads(file.read_text())["stack"]
    driver, toolkit = stack["driver"], stack["container_toolkit"]
    assert driver["version"] == "580.126.20"
    names = [name for name in driver["packages"] if "pinning" not in name]
    assert set(versions(machine, *names).values()) == {"580.126.20-1"}
    assert set(versions(machine, *toolkit["packages"]).values()) == {"1.19.1-1"}
    assert set(versions(machine, *stack["cudnn"]["packages"]).values()) == {"9.24.0.43-1"}
    assert versions(machine, "cuda-toolkit-13-0") == {"cuda-toolkit-13-0": "13.0.3-1"}
    (framework,) = stack["frameworks"]
    frozen = machine.shell("/opt/gpuwright/pytorch/bin/python -m pip freeze").lower().replace("_", "-")
    assert framework["requirements"][0] in frozen
    for pin in framework["constraints"]:
        name, _equals, version = pin.partition("==")
        assert f"{name}==" not in frozen or f"{name}=={version}" in frozen


def test_a_node_that_is_held_to_its_lock_is_warm(locked: tuple[Node, Path]) -> None:
    machine, file = locked
    again = machine.up("--lock", str(file))
    assert (again.code, again.roles, again.changed, again.host["changes"]) == (0, [], 0, []), str(again)
    assert again.host["verdict"] == "pass"
    for verb in ("doctor", "validate"):
        looked = gpuwright(verb, "-i", machine.inventory, "--lock", file, "--json")
        assert looked.code == 0, str(looked)


def test_a_package_that_was_moved_by_hand_goes_back_to_the_lock(locked: tuple[Node, Path]) -> None:
    machine, file = locked
    names = json.loads(file.read_text())["stack"]["cudnn"]["packages"]
    machine.shell(f"apt-get -qy install {' '.join(f'{name}=9.28.0.42-1' for name in names)}")
    run = machine.up("--lock", str(file))
    assert run.code == 0, str(run)
    assert run.components == {"cuda"}
    assert set(versions(machine, *names).values()) == {"9.24.0.43-1"}


def test_a_version_that_the_index_lacks_is_refused_with_those_that_are_there(
    locked: tuple[Node, Path], folder: Path
) -> None:
    machine, _file = locked
    missing = lock(folder, "driver=580.95.05", "container-toolkit=1.19.0")
    before = footprint(machine)
    for run in (machine.plan("--lock", str(missing)), machine.up("--lock", str(missing))):
        assert run.code == 3, str(run)
        told = [row["text"] for row in run.host["refusals"] if row["rule"] == "index-version"]
        assert len(told) == len(run.host["refusals"]) == 2, run.host["refusals"]
        assert "the lock has driver=580.95.05" in told[0]
        assert "580.178.04-1, 580.126.20-1" in told[0]
        assert "the lock has container-toolkit=1.19.0" in told[1]
        assert all(row["remedy"] for row in run.host["refusals"])
    assert footprint(machine) == before


def test_a_lock_of_another_system_is_refused_with_what_differs(locked: tuple[Node, Path], folder: Path) -> None:
    machine, _file = locked
    other = lock(folder, "driver", "cuda=12.8", system="ubuntu-24.04")
    before = footprint(machine)
    run = machine.up("--lock", str(other))
    assert run.code == 3, str(run)
    first = run.host["conflicts"][0]
    assert first["rule"] == "lock.node"
    assert "system ubuntu-24.04, here debian-13" in first["text"]
    assert "gpuwright resolve" in first["remedy"]
    assert footprint(machine) == before


def test_a_bare_playbook_takes_a_lock_from_a_file_on_the_controller(locked: tuple[Node, Path]) -> None:
    machine, file = locked
    run = machine.plan("-e", f"gpuwright_lock={file}")
    assert run.code == 0, str(run)
    assert run.host["changes"] == []
    broken = machine.plan("-e", "gpuwright_lock=/no/such/lock")
    assert broken.code == 2, str(broken)
    assert "the lock file /no/such/lock is not there" in broken.host["error"]


def test_a_lock_with_hashes_makes_an_environment_anew_that_has_another_wheel(
    locked: tuple[Node, Path], folder: Path
) -> None:
    # The last here: from now on the node is sealed for the lock with hashes.
    machine, _file = locked
    path = "/opt/gpuwright/pytorch/gpuwright-wheels.txt"
    record = machine.shell(f"cat {path}")
    (folder / "wheels.txt").write_text(record)
    hashed = lock(folder, *_WANTS, hashes=folder / "wheels.txt")
    machine.shell(
        f"cd $(dirname {path})/lib/python3*/site-packages && mv filelock-4.2.11.dist-info filelock-4.2.10.dist-info"
    )
    run = machine.up("--lock", str(hashed))
    assert run.code == 0, str(run)
    assert run.components == {"frameworks"}
    assert any("lacks filelock==4.2.11" in change["reason"] for change in run.host["changes"])
    machine.shell(f"test -d $(dirname {path})/lib/python3*/site-packages/filelock-4.2.11.dist-info")
    assert machine.shell(f"cat {path}") == record
    again = machine.up("--lock", str(hashed))
    assert (again.code, again.roles, again.changed, again.host["changes"]) == (0, [], 0, []), str(again)
