"""Real wheels from the Python index that this machine's pip is configured for: installed by `up`, and proven by each framework's step."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from tests.sim import settings

from .conftest import Node
from .test_hosts import install

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="environments")]

#: What computes without a card. PyTorch's form for the processor is on an index of its own, which nothing here may depend on: the form
#: that the Python index has brings CUDA, and computes on the processor too.
_FOR_CPU = ("pytorch", "jax", "tensorflow", "onnxruntime", "lmdb")
_PUBLIC = '{"gpuwright_mirrors": {"pytorch": "pypi"}}'


def read_the_real_index(machine: Node) -> None:
    """Configure the node's pip as the one that runs this test is: its index, and whom it trusts."""
    lines = ["[global]"]
    index, bundle = (_setting(name) for name in ("index-url", "cert"))
    if index:
        lines.append(f"index-url = {index}")
    if bundle:
        place = "/usr/local/share/index-certificates.pem"
        subprocess.run(["docker", "cp", "-L", bundle, f"{settings.container_name(machine.name)}:{place}"], check=True)
        machine.shell(f"chown root:root {place}; chmod 0644 {place}")
        lines.append(f"cert = {place}")
    machine.shell(f"printf '%s\\n' {shlex.join(lines)} >/etc/pip.conf")


def _setting(name: str) -> str:
    """A setting of pip: from its environment, or its files; empty where there is none."""
    given = os.environ.get(f"PIP_{name.upper().replace('-', '_')}")
    asked = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    return given or subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def test_frameworks_for_the_processor_compute_as_they_come_from_the_index(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    machine = make_node("real-cpu", "no-gpu")
    install(machine, tmp_path)
    read_the_real_index(machine)
    wants = " ".join([f"-e '{_PUBLIC}'", *(f"--want {name}" for name in _FOR_CPU)])
    told = machine.shell(f"/opt/gw/bin/gpuwright up --yes --json {wants} 2>/root/words; echo; echo $?")
    text, code = told.rstrip().rsplit("\n", 1)
    assert code == "0", machine.shell("tail -n 40 /root/words")
    (host,) = json.loads(text)["hosts"].values()
    assert host["verdict"] == "pass"
    passed = [(entry["id"], entry["reason"]) for entry in host["checks"] if entry["status"] == "pass"]
    for name in _FOR_CPU:
        assert ("framework.import", f"{ABOUT[name].title} was imported") in passed, passed
    assert [check for check, _reason in passed].count("framework.compute") == len(_FOR_CPU), passed
    warm = json.loads(machine.shell(f"/opt/gw/bin/gpuwright up --yes --json {wants} 2>/dev/null"))
    assert warm["hosts"]["localhost"]["changes"] == []


def test_cupy_says_that_the_card_is_missing(make_node: Callable[..., Node]) -> None:
    """On a node whose cards are yet to come its wheels are there, and its step tells what lacks: a card, and nothing of CuPy."""
    machine = make_node("real-cupy", "no-gpu")
    read_the_real_index(machine)
    run = machine.up("--gpu", "H100", "--want", "driver=580", "--want", "cupy")
    assert run.code == 0, str(run)
    checks = ask(machine, "framework_check", name="cupy", python="/opt/gpuwright/cupy/bin/python")["checks"]
    told = {entry["id"]: entry for entry in checks}
    assert told["framework.import"]["status"] == "pass", told
    assert (told["framework.cuda"]["status"], told["framework.compute"]["status"]) == ("fail", "incomplete"), told
    assert told["framework.cuda"]["reason"] == "the driver finds no NVIDIA GPU"
    assert "its compiler works" in told["framework.compute"]["evidence"]


def ask(machine: Node, module: str, **options: str) -> dict[str, Any]:
    """What a module of the collection answers that runs on the node alone."""
    program = str(Path(sys.executable).with_name("ansible"))
    words = ["all", "-i", str(machine.inventory), "-m", f"gpuwright.node.{module}", "-a", json.dumps(options)]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(settings.CLONE / "collections"),
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
    }
    done = subprocess.run(
        [program, *words],
        env={**environment, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.partition(" => ")[2]))
