"""What is measured between hosts, by Ansible over three to five hosts that are namespaces of the network with a bridge between them: real
PyTorch, real gloo, real paths, and paths that are cut or slow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

ROOT = Path(__file__).parents[2]
#: Where root keeps what others may not change; a directory below /tmp is refused.
PLACE = Path("/run/gpuwright-fabric-test")
BRIDGE = "gwfabric"
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "include_role": {
                    "name": "gpuwright.node.validate",
                    "tasks_from": "fabric",
                    "rolespec_validate": False,
                }
            },
            {
                "copy": {
                    "content": "{{ __validate_fabric_judged.checks | to_json }}",
                    "dest": str(PLACE / "judged.json"),
                },
                "run_once": True,
                "delegate_to": "localhost",
            },
        ],
    }
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _namespaces_can_be_made() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", f"{BRIDGE}-try"], check=False, capture_output=True)
    if made.returncode == 0:
        ip("netns", "del", f"{BRIDGE}-try")
    return made.returncode == 0


pytestmark = pytest.mark.skipif(not _namespaces_can_be_made(), reason="this machine makes no namespaces of the network")

Hosts = list[str]


@pytest.fixture
def hosts() -> Iterator[Callable[[int], Hosts]]:
    """So many hosts on one bridge; each runs its modules within its own network.

    The bridge is in a namespace too: the rules of this machine's firewall are for what a bridge of its own passes as well.
    """
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    made = [BRIDGE]
    ip("netns", "add", BRIDGE)
    ip("-n", BRIDGE, "link", "add", "bridge", "type", "bridge")
    ip("-n", BRIDGE, "link", "set", "bridge", "up")

    def make(count: int) -> Hosts:
        for number in range(1, count + 1):
            name = f"{BRIDGE}{number}"
            ip("netns", "add", name)
            made.append(name)
            ip("-n", BRIDGE, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth1", "netns", name)
            ip("-n", BRIDGE, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.213.0.{number}/24", "dev", "eth1")
            ip("-n", name, "link", "set", "eth1", "up")
            ip("-n", name, "link", "set", "lo", "up")
            program = PLACE / name
            program.write_text(f'#!/bin/sh\nexec ip netns exec {name} {sys.executable} "$@"\n')
            program.chmod(0o700)
        return made[1:]

    try:
        yield make
    finally:
        for name in made:
            ip("netns", "del", name)
        shutil.rmtree(PLACE)


def measure(hosts: Hosts, forks: int = 25, **of_host: dict[str, Any]) -> dict[str, list[Any]]:
    """The checks of each host. ``of_host``: variables of single hosts."""
    work = {
        "gaps": [],
        "smi": {},
        "fabric": {
            "python": sys.executable,
            "ranks": 1,
            "expect_cuda": False,
            "busy": False,
            "port": 29500,
            "interface": "",
            "patience": 60,
            "environment": {},
        },
    }
    variables = {
        "ansible_connection": "local",
        "gpuwright_plan": {"work": {"validate": work}},
        "validate_fabric": True,
    }
    each: dict[str, dict[str, Any]] = {
        name: {
            "ansible_python_interpreter": str(PLACE / name),
            "validate_fabric_address": f"10.213.0.{number}",
            **of_host.get(name, {}),
        }
        for number, name in enumerate(hosts, 1)
    }
    (PLACE / "inventory.json").write_text(json.dumps({"all": {"vars": variables, "hosts": each}}))
    (PLACE / "play.json").write_text(json.dumps(PLAY))
    done = subprocess.run(
        [
            os.environ["GPUWRIGHT_ANSIBLE"],
            "-i",
            str(PLACE / "inventory.json"),
            "--forks",
            str(forks),
            str(PLACE / "play.json"),
        ],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    found: dict[str, list[Any]] = json.loads((PLACE / "judged.json").read_text())
    return found


def status(found: list[Any], name: str) -> list[str]:
    return [check["status"] for check in found if check["id"] == name]


def test_hosts_that_reach_each_other_are_measured_also_with_fewer_forks_than_hosts(
    hosts: Callable[[int], Hosts],
) -> None:
    found = measure(hosts(3), forks=1)
    for name, of_host in found.items():
        assert checks.verdict(of_host) == "pass", (name, of_host)
        (joined,) = (check for check in of_host if check["id"] == "fabric.joined")
        assert (joined["status"], joined["measured"]) == ("pass", 3)
        (pairs,) = (check for check in of_host if check["id"] == "fabric.pairs")
        assert 0.001 < pairs["measured"] < 1000
    first = min(found)
    (told,) = (check for check in found[first] if check["id"] == "fabric.all_reduce")
    assert told["measured"] > 0


def test_a_host_whose_network_is_cut_is_at_fault_and_the_others_are_not(hosts: Callable[[int], Hosts]) -> None:
    every = hosts(3)
    ip("-n", BRIDGE, "link", "set", "port2", "down")
    found = measure(every)
    assert [checks.verdict(found[name]) for name in every] == ["pass", "fail", "pass"], found
    told = [check["reason"] for check in found[every[1]] if check["id"] == "fabric.joined"]
    assert len(told) == 2
    assert any(every[0] in reason for reason in told)


def test_a_host_with_a_slow_path_is_named(hosts: Callable[[int], Hosts]) -> None:
    every = hosts(4)
    # tbf holds what leaves the bridge for a host to some 40 MB/s, and to 8 for one of them: without a limit a veth pair does hundreds, as
    # many as a busy machine leaves it, and the three would differ from each other more than from the slow one.
    for port, rate in (("port1", "320mbit"), ("port2", "320mbit"), ("port3", "320mbit"), ("port4", "64mbit")):
        limit = ["rate", rate, "burst", "256kbit", "latency", "400ms"]
        subprocess.run(["tc", "-n", BRIDGE, "qdisc", "add", "dev", port, "root", "tbf", *limit], check=True)
    found = measure(every)
    assert status(found[every[3]], "fabric.pairs") == ["warn"], found[every[3]]
    for name in every[:3]:
        assert status(found[name], "fabric.pairs") == ["pass"], found[name]
