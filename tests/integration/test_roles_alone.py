"""Each public role in somebody's own playbook: with something to do and without, on apt and on dnf, in check mode, and beside another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import witness
from .conftest import COMPONENTS, Controller, Node

pytestmark = pytest.mark.sim

_BOOT = "cat /proc/sys/kernel/random/boot_id"
#: Where each login and each look at packages leaves its time.
_LOOKS = ("/home/gpuadmin/.ansible", "/var/log", "/var/lib/rpm/rpmdb.sqlite-shm")
#: What apt left unpacked, and what an update of dnf's left twice, as `repair` finds it.
_HALF_DONE = {
    "apt": "cd /root && apt-get -q download nvidia-persistenced && dpkg --unpack nvidia-persistenced_*.deb && rm nvidia-persistenced_*.deb",
    "dnf": "cd /root && dnf -q --disableplugin=versionlock download nvidia-persistenced-3:580.126.20"
    " && rpm -i --justdb --nodeps --noscripts --force nvidia-*.rpm && rm nvidia-*.rpm",
}


@dataclass(frozen=True)
class Use:
    """A role used alone: its variables, what gives it something to do where a bare node does not, and what is there afterwards.

    `given` and `there` are shell commands by package manager; `every` goes for both.
    """

    role: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    there: Mapping[str, str] = field(default_factory=dict)


#: A package manager and the scenario of a node that has it.
SYSTEMS = [
    pytest.param(("apt", "two-h100"), id="apt"),
    pytest.param(("dnf", "rocky"), id="dnf", marks=pytest.mark.soak(part="systems")),
]


def every(command: str) -> dict[str, str]:
    """The same command for both."""
    return dict.fromkeys(("apt", "dnf"), command)


#: In the order in which somebody would use them.
USES = [
    Use("nvidia_driver", there=every("modinfo -k $(uname -r) -F version nvidia")),
    Use(
        "repair",
        given=_HALF_DONE,
        there={"apt": 'test -z "$(dpkg --audit)"', "dnf": 'test -z "$(rpm -qa | sort | uniq -d)"'},
    ),
    Use(
        "nouveau_blacklist",
        there={
            "apt": "lsinitramfs /boot/initrd.img-$(uname -r) | grep gpuwright-nouveau",
            "dnf": "lsinitrd /boot/initramfs-$(uname -r).img | grep gpuwright-nouveau",
        },
    ),
    Use("reboot", there=every("test -d /sys/module/nvidia && ! test -d /sys/module/nouveau")),
    Use("mig", {"mig_layout": {"all": "3g.40gb,3g.40gb"}}, there=every("nvidia-smi -L | grep 'MIG 3g'")),
    Use("cuda", {"cuda_versions": ["13.0"]}, there=every("test -x /usr/local/cuda-13.0/bin/nvcc")),
    Use(
        "container_toolkit",
        there={
            "apt": "grep nvidia-container-runtime /etc/docker/daemon.json",
            "dnf": "rpm -q podman nvidia-container-toolkit && nvidia-ctk cdi list | grep nvidia.com/gpu",
        },
    ),
    Use("frameworks", there=every("/opt/gpuwright/pytorch/bin/python -c 'import torch'")),
    Use(
        "validate",
        {"validate_fio_runtime": 1},
        given={"apt": "apt-get -qy remove fio", "dnf": "rpm -e fio"},
        there={"apt": "dpkg-query -W -f '${Status}' fio | grep 'ok installed'", "dnf": "rpm -q fio"},
    ),
]


@dataclass
class Machine:
    """A node and the package manager that it has."""

    node: Node
    manager: str
    controller: Controller

    def play(self, *roles: str, become: bool = True, arguments: tuple[str, ...] = (), **variables: Any) -> str:
        """What `ansible-playbook` says of a play with these roles, in a folder with nothing else; fails with it where that fails."""
        folder = self.node.inventory.parent
        play = {
            "name": "Ours",
            "hosts": "all",
            "vars": variables,
            "roles": [f"gpuwright.node.{role}" for role in roles],
        }
        (folder / "ours.yml").write_text(yaml.safe_dump([{**play, "become": True} if become else play]))
        given: list[str | Path] = ["ours.yml", "-i", self.node.inventory, *arguments]
        return self.controller.run("ansible-playbook", *given, cwd=folder, collections=self.controller.collections)


def changed(said: str) -> int:
    """The number behind `changed=` in the recap of the only host."""
    (number,) = re.findall(r"^\S+\s+: ok=\d+\s+changed=(\d+)", said, re.MULTILINE)
    return int(number)


@pytest.fixture(scope="module", params=SYSTEMS)
def machine(
    request: pytest.FixtureRequest, make_shared_node: Callable[[str, str], Node], controller: Controller
) -> Machine:
    """A node as the factory delivers it; the roles come to it one after another."""
    manager, scenario = request.param
    return Machine(make_shared_node(f"alone-{manager}", scenario), manager, controller)


def test_every_public_role_is_used_here() -> None:
    assert {use.role for use in USES} == COMPONENTS | {"validate"}


def test_a_role_that_only_refuses_finds_nothing_on_a_sound_machine(machine: Machine) -> None:
    assert changed(machine.play("preflight")) == 0


def test_in_check_mode_the_roles_say_what_they_would_do_and_do_nothing(machine: Machine) -> None:
    before = machine.node.tree()
    variables = {name: value for use in USES for name, value in use.variables.items()}
    said = machine.play(*(use.role for use in USES), arguments=("--check", "--diff"), **variables)
    assert changed(said) > 0
    assert "nvidia_driver: install" in said
    assert [path for path in witness.differences(before, machine.node.tree()) if not path.startswith(_LOOKS)] == []


@pytest.mark.parametrize("use", USES, ids=lambda use: use.role)
def test_a_role_alone_does_its_part_and_then_nothing(machine: Machine, use: Use) -> None:
    if machine.manager in use.given:
        machine.node.shell(use.given[machine.manager])
    assert changed(machine.play(use.role, **use.variables)) > 0
    machine.node.shell(use.there[machine.manager])

    boot = machine.node.shell(_BOOT)
    assert changed(machine.play(use.role, become=False, arguments=("--become",), **use.variables)) == 0
    assert machine.node.shell(_BOOT) == boot
    assert machine.node.shell("ls /run/gpuwright", check=False) == "", "the lock was given back"
