"""A run that is cut off, somebody's own packages meanwhile, the run that ends, and `remove`: his stay, ours go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Controller, Node
from .test_roles_alone import Machine

pytestmark = pytest.mark.sim

_OF_HIM = """
mkdir -p /tmp/db/DEBIAN
printf 'Package: users-db\\nVersion: 1\\nArchitecture: all\\nMaintainer: him\\nDescription: his\\n' > /tmp/db/DEBIAN/control
dpkg-deb --build /tmp/db /tmp/users-db.deb
apt-get install -y /tmp/users-db.deb
rm -r /tmp/db /tmp/users-db.deb
"""
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


@pytest.mark.soak(part="driver")
def test_packages_of_somebody_else_between_a_cut_run_and_the_next_stay_with_apt(make_node: Callable[..., Node]) -> None:
    machine = make_node("owned")
    before = _debs(machine)
    machine.cut_up_when(_MOMENT, *_WANT)
    machine.shell(_OF_HIM)
    run = machine.up(*_WANT)
    assert run.code == 0, str(run)
    assert len(_debs(machine)) > len(before) + 1
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass", str(gone)
    assert _debs(machine) == before | {"installed users-db"}


@pytest.mark.soak(part="rocky")
def test_packages_of_somebody_else_between_a_cut_run_and_the_next_stay_with_dnf(make_node: Callable[..., Node]) -> None:
    machine = make_node("owned-rocky", "rocky")
    before = _rpms(machine)
    assert "openssl-devel" not in before
    machine.cut_up_when(_MOMENT, *_WANT_RPM)
    machine.shell("dnf -yq install openssl-devel")
    run = machine.up(*_WANT_RPM)
    assert run.code == 0, str(run)
    assert len(_rpms(machine)) > len(before) + 1
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass", str(gone)
    assert _rpms(machine) == before | {"openssl-devel"}


@pytest.mark.soak(part="services")
def test_what_roles_alone_brought_is_taken_back_though_nothing_sealed_it(
    make_node: Callable[..., Node], controller: Controller
) -> None:
    machine = Machine(make_node("alone-back"), "apt", controller)
    before, debs = machine.node.shell(_UNITS), _debs(machine.node)
    machine.play("watch", "monitoring_exporters")
    machine.node.shell("systemctl is-active gpuwright-watch.timer prometheus-node-exporter.service")
    gone = machine.node.run("remove", "--yes")
    assert (gone.code, gone.host["verdict"]) == (0, "pass"), str(gone)
    assert machine.node.shell(_UNITS) == before
    assert _debs(machine.node) == debs
