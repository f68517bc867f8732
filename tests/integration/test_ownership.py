"""A run that is cut off, somebody's own packages meanwhile, the run that ends, and `remove`: his stay, ours go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Controller, Node, Run, signal_dpkg
from .test_roles_alone import Machine

pytestmark = pytest.mark.sim

_OF_HIM = """
mkdir -p /tmp/db/DEBIAN
printf 'Package: users-db\\nVersion: 1\\nArchitecture: all\\nMaintainer: him\\nDescription: his\\n' > /tmp/db/DEBIAN/control
dpkg-deb --build /tmp/db /tmp/users-db.deb
apt-get install -y /tmp/users-db.deb
rm -r /tmp/db /tmp/users-db.deb
"""
#: One that dpkg cannot finish.
_UNFINISHED = """
mkdir -p /tmp/app/DEBIAN
printf 'Package: users-app\\nVersion: 1\\nArchitecture: all\\nMaintainer: him\\nDescription: his\\n' > /tmp/app/DEBIAN/control
printf '#!/bin/sh\\nexit 1\\n' > /tmp/app/DEBIAN/postinst
chmod 755 /tmp/app/DEBIAN/postinst
dpkg-deb --build /tmp/app /tmp/users-app.deb
dpkg -i /tmp/users-app.deb && exit 1
rm -r /tmp/app /tmp/users-app.deb
"""
#: What dpkg has done and not yet merged into its status.
_JOURNAL = "/var/lib/dpkg/updates"
#: The driver is there by then, and no package manager at work on it.
_MOMENT = "test -e /etc/modprobe.d/gpuwright-nouveau.conf"
#: Units that an administrator, or we, put there, and the programs that they run.
_UNITS = "find /etc/systemd/system /usr/local/libexec /etc/gpuwright -not -type d 2>/dev/null | sort"
_WANT = ("--want", "driver", "--want", "container-toolkit")
#: Podman stays where it does not say what it holds.
_WANT_RPM = ("--want", "driver", "--want", "cuda=13.0")


def _debs(machine: Node) -> set[str]:
    return set(machine.shell("dpkg-query -W -f '${db:Status-Status} ${Package}\\n' | grep ^installed").splitlines())


def _rpms(machine: Node) -> set[str]:
    return set(machine.shell("rpm -qa --qf '%{NAME}\\n'").split())


def _gone(machine: Node) -> Run:
    run = machine.run("remove", "--yes")
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    return run


@pytest.mark.soak(part="modules")
def test_packages_of_somebody_else_between_a_cut_run_and_the_next_stay_with_apt(make_node: Callable[..., Node]) -> None:
    machine = make_node("owned")
    before = _debs(machine)
    machine.cut_when(_MOMENT, *_WANT)
    machine.shell(_OF_HIM)
    run = machine.up(*_WANT)
    assert run.code == 0, str(run)
    assert len(_debs(machine)) > len(before) + 1
    _gone(machine)
    assert _debs(machine) == before | {"installed users-db"}


@pytest.mark.soak(part="modules")
def test_a_removal_that_was_cut_off_while_dpkg_was_at_work_is_ended_by_the_next(make_node: Callable[..., Node]) -> None:
    machine = make_node("cut-off")
    before = _debs(machine)
    run = machine.up(*_WANT)
    assert run.code == 0, str(run)
    at_work = f"ls {_JOURNAL} | grep -q '[0-9]' && {signal_dpkg('STOP', 'remove|purge')}"
    killed = machine.cut_when(at_work, verb="remove")
    assert "dpkg" in killed.split(), killed
    assert machine.shell(f"ls {_JOURNAL}")
    assert "interrupted" in machine.shell("apt-get -y install bash 2>&1 || true")
    machine.shell(_UNFINISHED)
    gone = _gone(machine)
    assert "half-configured: users-app" in str(gone.host), str(gone)
    assert _debs(machine) == before
    assert machine.shell(f"ls {_JOURNAL}") == ""
    machine.shell("dpkg --purge users-app && apt-get check")


@pytest.mark.soak(part="rocky")
def test_packages_of_somebody_else_between_a_cut_run_and_the_next_stay_with_dnf(make_node: Callable[..., Node]) -> None:
    machine = make_node("owned-rocky", "rocky")
    before = _rpms(machine)
    assert "vulkan-loader" not in before
    machine.cut_when(_MOMENT, *_WANT_RPM)
    assert "vulkan-loader" not in _rpms(machine), "the run brought it, and it is not his"
    machine.shell("dnf -yq install vulkan-loader")
    run = machine.up(*_WANT_RPM)
    assert run.code == 0, str(run)
    assert len(_rpms(machine)) > len(before) + 1
    _gone(machine)
    assert _rpms(machine) == before | {"vulkan-loader"}


@pytest.mark.soak(part="monitoring")
def test_what_roles_alone_brought_is_taken_back_though_nothing_sealed_it(
    make_node: Callable[..., Node], controller: Controller
) -> None:
    machine = Machine(make_node("alone-back"), "apt", controller)
    before, debs = machine.node.shell(_UNITS), _debs(machine.node)
    machine.play("watch", "monitoring_exporters")
    machine.node.shell("systemctl is-active gpuwright-watch.timer prometheus-node-exporter.service")
    _gone(machine.node)
    assert machine.node.shell(_UNITS) == before
    assert _debs(machine.node) == debs
