"""What cannot be done is refused before anything is changed: one message, the right exit code, a node as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sim import node

from .conftest import Node, Run, gpuwright
from .footprint import footprint

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def bare(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node with two cards that nothing was done to; every test here leaves it so."""
    return make_shared_node("refused", "two-h100")


@contextmanager
def broken(machine: Node, do: str, undo: str) -> Iterator[None]:
    """A node with something wrong, mended afterwards."""
    machine.shell(do)
    try:
        yield
    finally:
        machine.shell(undo)


def refused(machine: Node, *arguments: str | Path, inventory: Path | None = None) -> dict[str, Any]:
    """The only refusal of `gpuwright up`, which ends with 3 and leaves the node as it was."""
    before = footprint(machine)
    run = gpuwright("up", "--yes", "-i", inventory or machine.inventory, "--json", *arguments)
    assert run.code == run.json["exit"] == 3, str(run)
    assert footprint(machine) == before
    assert "Traceback" not in run.stdout + run.stderr
    assert run.host["changes"] == []
    (refusal,) = run.host["refusals"]
    return dict(refusal)


def failed(machine: Node, *arguments: str) -> Run:
    """A run of `gpuwright up` that ends with 1 before it could change anything."""
    before = footprint(machine)
    run = gpuwright("up", "--yes", "-i", machine.inventory, "--json", *arguments)
    assert run.code == run.json["exit"] == 1, str(run)
    assert footprint(machine) == before
    assert "Traceback" not in run.stdout + run.stderr
    return run


def test_a_variable_that_cannot_be_meant_is_bad_input(bare: Node) -> None:
    before = footprint(bare)
    run = gpuwright(
        "up", "--yes", "-i", bare.inventory, "-e", '{"cuda_versions": ["12.10"], "cuda_version": "12.8"}', "--json"
    )
    assert run.code == 2, str(run)
    assert "no CUDA 12.10" in run.json["error"]
    assert "did you mean cuda_versions?" in run.json["suggestions"]
    assert footprint(bare) == before


def test_a_node_without_python_is_told_to_install_it(bare: Node) -> None:
    with broken(bare, "mv /usr/bin/python3 /usr/bin/python3.away", "mv /usr/bin/python3.away /usr/bin/python3"):
        run = failed(bare)
    assert run.host["failure"]["message"] == "no Python on the node: install python3"


def test_a_run_that_is_not_root_on_the_node_is_refused(bare: Node) -> None:
    refusal = refused(bare, "-e", "ansible_become=false")
    assert refusal["rule"] == "needs-root"
    assert "sudo" in refusal["remedy"]


def test_a_user_who_needs_a_password_for_sudo_is_told_the_option(bare: Node) -> None:
    sudo = "/etc/sudoers.d/gpuadmin"
    with broken(bare, f"mv {sudo} /root/", f"mv /root/gpuadmin {sudo}"):
        run = failed(bare)
    assert run.host["failure"]["message"] == "sudo asks for a password on the node: run with -K"


def test_a_boot_file_system_that_is_too_small_is_refused_with_the_sizes(bare: Node) -> None:
    mount = "cp -a /boot /root/boot; mount -t tmpfs -o size=8M none /boot; cp -a /root/boot/. /boot/; rm -rf /root/boot"
    with broken(bare, mount, "umount /boot"):
        refusal = refused(bare)
    assert refusal["rule"] == "no-space"
    assert re.fullmatch(r"/boot has \d MiB free, 128 MiB are needed", refusal["text"])


def test_a_root_file_system_that_is_too_small_is_refused_with_the_sizes(bare: Node) -> None:
    refusal = refused(bare, "-e", "preflight_disk_reserve_mib=99999999")
    assert re.search(r"Expected \d+ MiB free on / for .*, found \d+ MiB\.", refusal["text"])


@pytest.mark.soak(part="hosts")
def test_a_place_for_frameworks_that_is_too_small_is_refused_with_the_sizes(bare: Node) -> None:
    with broken(bare, "mount -t tmpfs -o size=64M,mode=755 none /opt", "umount /opt"):
        refusal = refused(bare)
    assert refusal["rule"] == "no-space"
    assert re.fullmatch(r"/opt has \d+ MiB free, \d{4,} MiB are needed", refusal["text"])


@pytest.mark.parametrize(
    "address",
    [
        "http://nowhere.invalid",
        pytest.param("http://packages.gpuwright-sim:81", marks=pytest.mark.soak(part="systems")),
    ],
)
def test_a_mirror_that_does_not_answer_is_refused_with_its_address(bare: Node, address: str) -> None:
    mirrors = f'{{"gpuwright_mirrors": {{"nvidia": "{address}/compute/cuda/repos"}}}}'
    refusal = refused(bare, "--want", "driver=580", "-e", mirrors)
    assert refusal["rule"] == "index-unreachable"
    assert refusal["text"].startswith(f"{address}/compute/cuda/repos/")
    assert "mirror" in refusal["remedy"]


@pytest.mark.parametrize("what", ["signature", "key"])
def test_a_repository_of_somebody_else_is_refused_with_both_fingerprints(bare: Node, tmp_path: Path, what: str) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text(node.inventory([bare.name], wrong_key=what == "signature"))
    keys = ["-e", json.dumps({"gpuwright_repository_keys": {"nvidia": "A" * 40}})] if what == "key" else []
    refusal = refused(bare, "--want", "driver=580", *keys, inventory=path)
    assert refusal["rule"] == {"signature": "index-bad-signature", "key": "index-wrong-key"}[what]
    expected, found = re.findall(r"\b[0-9A-F]{40}\b", refusal["text"])
    assert expected != found
    assert "expected" in refusal["text"]
    assert "found" in refusal["text"]
