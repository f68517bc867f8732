"""Each public role in somebody's own playbook: with something to do and without, on apt and on dnf, in check mode, and beside another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tests.sim import settings

from . import snapshot
from .conftest import Controller, Node

pytestmark = pytest.mark.sim

_LOCK = "/run/gpuwright/lock.json"
_BOOT = "cat /proc/sys/kernel/random/boot_id"
#: Where each login and each look at packages leaves its time.
_LOOKS = ("/home/gpuadmin/.ansible", "/var/log", "/var/lib/rpm/rpmdb.sqlite-shm")
#: What apt left unpacked, and what an update of dnf's left twice, as `repair` finds it.
_HALF_DONE = {
    "apt": "cd /root && apt-get -q download fio && dpkg --unpack fio_*.deb && rm fio_*.deb",
    "dnf": "cd /root && dnf -q --disableplugin=versionlock download nvidia-persistenced-3:580.126.20"
    " && rpm -i --justdb --nodeps --noscripts --force nvidia-*.rpm && rm nvidia-*.rpm",
}


#: A firewall that is active. That of Rocky keeps its rules as firewalld says them, and lets everybody in.
_FIREWALL = {
    "apt": "apt-get -qy install --no-install-recommends ufw && ufw allow 22/tcp && ufw --force enable",
    "dnf": r"""cat > /usr/bin/firewall-cmd <<'END' && chmod 755 /usr/bin/firewall-cmd
#!/bin/sh
file=/var/tmp/rich-now
for each; do
  case $each in
    --permanent) file=/var/tmp/rich-kept ;;
    --list-rich-rules) cat "$file" 2>/dev/null || true ;;
    --add-rich-rule=*) printf '%s\n' "${each#*=}" >> "$file"; echo success ;;
  esac
done
END""",
}


@dataclass(frozen=True)
class Use:
    """A role used alone: its variables, what gives it something to do where a bare node does not, and what is there afterwards.

    `given` and `there` are shell commands by package manager; `every` goes for both. `refused`: what is said where the role is refused.
    """

    role: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    there: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


#: A package manager and the scenario of a node that has it.
SYSTEMS = [
    pytest.param(("apt", "two-h100"), id="apt"),
    pytest.param(("dnf", "rocky"), id="dnf", marks=pytest.mark.soak(part="rocky")),
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
    Use(
        "gpu_settings",
        {"gpu_settings_cards": {"all": {"power_limit": 350}}},
        there=every("nvidia-smi --query-gpu=power.limit --format=csv,noheader | grep 350.00"),
    ),
    Use("gpu_log", there=every("systemctl is-active gpuwright-gpu-log.timer")),
    Use(
        "watch",
        there=every(
            "systemctl is-active gpuwright-watch.timer && systemctl start gpuwright-watch.service"
            " && runuser -u nobody -- grep '^gpuwright_gpus 2$' /var/lib/gpuwright/metrics/gpuwright.prom"
        ),
    ),
    Use(
        "fabric",
        {"fabric_firewall": ["10.99.0.0/24"]},
        given=_FIREWALL,
        there={
            "apt": "ufw status | grep '^1024:65535/tcp .* 10.99.0.0/24' && ufw status | grep '^4791/udp .* 10.99.0.0/24'",
            "dnf": "test $(grep -c 'priority=.9401. .* accept' /var/tmp/rich-kept) = 2 && cmp /var/tmp/rich-now /var/tmp/rich-kept",
        },
    ),
    Use(
        "monitoring_exporters",
        # NVIDIA names DCGM for Rocky 9, and not for Debian 13.
        there={
            "apt": "systemctl is-active gpuwright-gpu-exporter.service prometheus-node-exporter.service",
            "dnf": "systemctl is-active nvidia-dcgm.service nvidia-dcgm-exporter.service prometheus-node-exporter.service",
        },
    ),
    Use(
        "monitoring_server",
        {"monitoring_grafana": True},
        there={
            "apt": "systemctl is-active prometheus prometheus-alertmanager grafana-server"
            " && ! ss -Hltn | grep -E '(\\*|0.0.0.0|::]):(90|3000)'"
        },
        refused={"dnf": "has no package of a server of metrics"},
    ),
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
        return self.run(folder / "ours.yml", *arguments)

    def run(self, playbook: Path, *arguments: str) -> str:
        """What `ansible-playbook` says of a playbook, run where it lies; fails with it where that fails."""
        given: list[str | Path] = [playbook.name, "-i", self.node.inventory, *arguments]
        return self.controller.run(
            "ansible-playbook", *given, cwd=playbook.parent, collections=self.controller.collections
        )


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
    assert {use.role for use in USES} == {*COMPONENTS, "validate"}


def test_a_role_that_only_refuses_finds_nothing_on_a_sound_machine(machine: Machine) -> None:
    assert changed(machine.play("preflight")) == 0


@pytest.mark.soak(part="rocky")
def test_in_check_mode_the_roles_say_what_they_would_do_and_do_nothing(machine: Machine) -> None:
    machine.play("preflight")  # The first login of all leaves a folder in its home.
    before = machine.node.tree()
    variables = {name: value for use in USES for name, value in use.variables.items()}
    roles = [use.role for use in USES if machine.manager not in use.refused]
    said = machine.play(*roles, arguments=("--check", "--diff"), **variables)
    assert changed(said) > 0
    assert "nvidia_driver: install" in said
    assert [path for path in snapshot.differences(before, machine.node.tree()) if not path.startswith(_LOOKS)] == []


@pytest.mark.parametrize("use", USES, ids=lambda use: use.role)
def test_a_role_alone_does_its_part_and_then_nothing(machine: Machine, use: Use) -> None:
    if machine.manager in use.refused:
        with pytest.raises(AssertionError, match=use.refused[machine.manager]):
            machine.play(use.role, **use.variables)
        return
    if machine.manager in use.given:
        machine.node.shell(use.given[machine.manager])
    assert changed(machine.play(use.role, **use.variables)) > 0
    machine.node.shell(use.there[machine.manager])

    boot = machine.node.shell(_BOOT)
    assert changed(machine.play(use.role, become=False, arguments=("--become",), **use.variables)) == 0
    assert machine.node.shell(_BOOT) == boot
    assert machine.node.shell("ls /run/gpuwright/lock.json", check=False) == "", "the lock was given back"


def test_two_roles_in_one_play_each_mend_what_was_broken_of_theirs(machine: Machine) -> None:
    broken = {
        "apt": "rm /etc/modprobe.d/gpuwright-nouveau.conf; apt-get -qy remove cuda-toolkit-13-0",
        "dnf": "rm /etc/modprobe.d/gpuwright-nouveau.conf; dnf -qy remove cuda-toolkit-13-0",
    }
    machine.node.shell(broken[machine.manager])
    variables: dict[str, Any] = {"cuda_versions": ["13.0"]}
    assert changed(machine.play("cuda", "nouveau_blacklist", **variables)) > 0
    machine.node.shell(
        "test -x /usr/local/cuda-13.0/bin/nvcc && grep 'blacklist nouveau' /etc/modprobe.d/gpuwright-nouveau.conf"
    )
    assert changed(machine.play("cuda", "nouveau_blacklist", **variables)) == 0


def take_cuda_away(machine: Machine) -> None:
    """By hand: what it depends on stays."""
    machine.node.shell(f"{'apt-get' if machine.manager == 'apt' else 'dnf'} -qy remove cuda-toolkit-13-0")


def test_a_role_does_not_begin_while_another_run_works_on_the_node(machine: Machine) -> None:
    lock = json.dumps(
        {"owner": "somebody@elsewhere:1", "since": "2026-01-01T00:00:00Z", "expires": "2099-01-01T00:00:00Z"}
    )
    take_cuda_away(machine)
    machine.node.shell(f"mkdir -p /run/gpuwright && echo '{lock}' > {_LOCK}")
    with pytest.raises(AssertionError, match="somebody@elsewhere"):
        machine.play("cuda", cuda_versions=["13.0"])
    machine.node.shell(f"rm {_LOCK}")
    # It left the toolkit where it was.
    assert changed(machine.play("cuda", cuda_versions=["13.0"])) > 0


def test_the_roles_and_the_module_of_the_readme_work_as_it_shows_them(machine: Machine) -> None:
    section = (settings.CLONE / "README.md").read_text().partition("## In your own playbook")[2].partition("\n## ")[0]
    # Each block is indented by four; the first is a play, the second its tasks.
    (play,), tasks = (
        yaml.safe_load(block) for block in re.findall(r"^    - .*(?:\n(?: {4}.*)?)*", section, re.MULTILINE)
    )
    shown = machine.node.inventory.with_name("readme.yml")
    shown.write_text(
        yaml.safe_dump([{**play, "hosts": "all", "tasks": tasks}]).replace("expected_gpus: 8", "expected_gpus: 2")
    )
    assert changed(machine.run(shown)) == 0
    shown.write_text(shown.read_text().replace("expected_gpus: 2", "expected_gpus: 3"))
    with pytest.raises(AssertionError, match="3 cards"):
        machine.run(shown)


@pytest.mark.soak(part="rocky")
def test_roles_leave_a_machine_without_cards_as_it_is_and_say_so(
    make_node: Callable[..., Node], controller: Controller
) -> None:
    machine = Machine(make_node("nocards", "no-gpu"), "apt", controller)
    others = ("mig", "gpu_settings", "monitoring_exporters", "monitoring_server")
    said = machine.play(*(use.role for use in USES if use.role not in others))
    assert changed(said) == 0
    assert "is left as it is: no NVIDIA GPU, and none is expected" in said
    assert changed(machine.play("monitoring_exporters")) > 0
    machine.node.shell("systemctl is-active prometheus-node-exporter.service; ! ls /usr/local/libexec/gpuwright/*.py")
    assert changed(machine.play("monitoring_exporters")) == 0


def test_the_next_up_heals_seals_and_proves_what_the_roles_did(machine: Machine) -> None:
    wish = json.dumps({name: value for use in USES for name, value in use.variables.items()})
    take_cuda_away(machine)
    run = machine.node.up("-e", wish)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    assert "cuda" in run.components
    again = machine.node.up("-e", wish)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
