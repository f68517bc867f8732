"""`gpuwright up` cut off in the middle, here and on the node: the next run heals it and proves the node."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Node, Proven, Run, signal_dpkg

pytestmark = pytest.mark.sim

_LOCK = "/run/gpuwright/lock.json"
_HELD = "/run/held"
_BLACKLIST = "etc/modprobe.d/gpuwright-nouveau.conf"


def _hold(machine: Node, program: str, words: str, then: str = f"touch {_HELD}; sleep 600") -> str:
    """Make PROGRAM wait where its arguments match WORDS: the file it then leaves is the moment to cut. Returns the stand-in."""
    real = machine.shell(f"command -v {program}").strip()
    stand_in = f"/usr/local/sbin/{program}"
    assert real != stand_in
    script = f'#!/bin/sh\\ncase "$*" in {words}) {then};; esac\\nexec {real} "$@"\\n'
    machine.shell(f"printf '{script}' > {stand_in}; chmod 755 {stand_in}")
    return stand_in


def _heal(machine: Node) -> Run:
    """The run after a cut. The lock of the dead one, of this controller, is in nobody's way."""
    dead = json.loads(machine.shell(f"cat {_LOCK}"))["owner"]
    run = machine.up()
    assert run.code == 0, str(run)
    assert run.written_plan["takes_over"] == dead
    assert run.host["verdict"] == "pass"
    assert "validate" in run.roles
    assert not machine.shell(f"cat {_LOCK}", check=False)
    return run


def test_cut_off_while_the_driver_is_unpacked(make_node: Callable[..., Node], proven: Proven) -> None:
    machine = make_node("cut")
    planned = {row["name"]: row["version"] for change in machine.plan().host["changes"] for row in change["packages"]}
    # Between two calls of apt's there is no dpkg: the one that works stands still until it is killed.
    killed = machine.cut_when(
        "dpkg-query -W -f '${db:Status-Abbrev}' nvidia-kernel-open-dkms 2>/dev/null | grep -q '^i[HUF]'"
        f" && {signal_dpkg('STOP', 'unpack|configure')}"
    )
    assert "dpkg" in killed.split(), killed
    assert "apt-get" in killed.split(), killed
    assert "nvidia" in machine.shell("dpkg --audit; cat /var/lib/dpkg/updates/* 2>/dev/null || true")

    run = _heal(machine)

    assert {change["component"] for change in run.host["changes"]} >= {"repair", "nvidia_driver", "validate"}
    assert machine.shell("dpkg --audit") == ""
    installed = machine.shell("dpkg-query -W -f '${Package} ${Version}\\n'").splitlines()
    assert {f"{name} {version}" for name, version in planned.items()} <= set(installed)
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_cut_off_between_the_blacklist_and_the_initramfs(proven: Proven) -> None:
    machine = proven.take()
    kernel = machine.shell("uname -r").strip()
    machine.shell(f"rm /{_BLACKLIST}; update-initramfs -u -k {kernel}")
    stand_in = _hold(machine, "update-initramfs", "*")
    machine.cut_when(f"test -e {_HELD}")
    machine.shell(f"rm {stand_in} {_HELD}")
    inside = f"lsinitramfs /boot/initrd.img-{kernel} | grep {_BLACKLIST} || true"
    assert "blacklist nouveau" in machine.shell(f"cat /{_BLACKLIST}")
    assert machine.shell(inside) == ""

    run = _heal(machine)

    assert run.components == {"nouveau_blacklist"}
    assert machine.shell(inside)
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_cut_off_between_the_configuration_of_docker_and_its_restart(proven: Proven) -> None:
    machine = proven.take()
    machine.shell("rm /etc/docker/daemon.json; systemctl restart docker.service")
    runtimes = "docker info --format '{{json .Runtimes}}'"
    assert "nvidia" not in machine.shell(runtimes)
    stand_in = _hold(machine, "systemctl", "*restart*docker*")
    machine.cut_when(f"test -e {_HELD}")
    machine.shell(f"rm {stand_in} {_HELD}")
    assert "nvidia" in machine.shell("cat /etc/docker/daemon.json")
    assert "nvidia" not in machine.shell(runtimes)

    run = _heal(machine)

    assert run.components == {"container_toolkit"}
    assert "nvidia-container-runtime" in machine.shell(runtimes)
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_an_interrupted_run_gives_the_node_back(proven: Proven) -> None:
    machine = proven.take()
    machine.shell(f"rm /{_BLACKLIST}; update-initramfs -u -k $(uname -r)")
    stand_in = _hold(machine, "update-initramfs", "*")
    assert machine.interrupt_when(f"test -e {_HELD} && test -e {_LOCK}") == 130
    machine.shell(f"test ! -e {_LOCK}")
    machine.shell(f"rm {stand_in} {_HELD}")
    machine.shell("pkill -f '[s]bin/update-initramfs' || true")

    run = machine.up()

    assert run.code == 0, str(run)
    assert run.components == {"nouveau_blacklist"}
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_the_run_after_one_that_failed_begins_where_that_one_failed(proven: Proven) -> None:
    machine = proven.take()
    kernel = machine.shell("uname -r").strip()
    machine.shell(f"rm /{_BLACKLIST} /etc/docker/daemon.json; update-initramfs -u -k {kernel}")
    machine.shell("systemctl restart docker.service")
    stand_in = _hold(machine, "systemctl", "*restart*docker*", "echo no >&2; exit 1")
    failed = machine.up()
    assert failed.host["failure"]["component"] == "container_toolkit", str(failed)
    machine.shell(f"rm {stand_in}; test ! -e {_LOCK}")

    run = machine.up()

    assert run.code == 0, str(run)
    assert run.components == {"container_toolkit"}, "the blacklist was done"
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_cut_off_while_an_environment_is_built(proven: Proven) -> None:
    machine = proven.take()
    environment = "/opt/gpuwright/pytorch"
    machine.shell(f"{environment}/bin/python -m pip uninstall -qy torchaudio")
    machine.cut_when("pgrep -f -- '-m [p]ip --isolated .* install '")
    assert ".unfinished" in machine.shell("ls -A /opt/gpuwright/.pytorch")
    # What is in use works as it did.
    machine.shell(f"cd / && {environment}/bin/python -c 'import torch; torch.__version__'")

    run = _heal(machine)

    assert run.components == {"frameworks"}
    machine.shell(f"{environment}/bin/python -m pip show torchaudio")
    left = set(machine.shell("ls -A /opt/gpuwright/.pytorch").split())
    assert not [name for name in left if name.startswith(".")]
    assert len(left - {"gave-way"}) <= len({"in use", "kept"})
    proven.put_back(machine)
