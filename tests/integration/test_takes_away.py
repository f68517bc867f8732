"""What a transaction of apt or dnf would take of somebody else's: refused by name before the first change, and allowed by name alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, Proven, Run

pytestmark = pytest.mark.sim

_CONTROL = """Package: company-vpn
Version: 7.1
Architecture: all
Maintainer: Company <it@company.example>
Description: what somebody works with
"""
_TOOLKIT = "nvidia-container-toolkit"
_ALLOWED = ("--allow-remove", "company-vpn")


def _deb(machine: Node, more: str) -> str:
    """Build a package of somebody else's on the node; its path."""
    machine.shell("rm -rf /root/vpn && mkdir -p /root/vpn/DEBIAN")
    machine.shell(f"printf '%s\\n' '{_CONTROL}{more}' > /root/vpn/DEBIAN/control && dpkg-deb --build /root/vpn")
    return "/root/vpn.deb"


def _there(machine: Node) -> str:
    return machine.shell("dpkg-query -W -f '${db:Status-Status}' company-vpn 2>/dev/null || true")


def _is_refused(run: Run, version: str = "7.1") -> None:
    assert run.code == 3, str(run)
    refusals = run.host["refusals"]
    assert [row["rule"] for row in refusals] == ["takes-away"], refusals
    assert f"removes company-vpn {version}" in refusals[0]["text"]
    assert "--allow-remove company-vpn" in refusals[0]["remedy"]


def test_a_package_that_conflicts_goes_only_where_it_is_allowed_by_name(proven: Proven) -> None:
    machine = proven.take()
    machine.shell(f"dpkg --remove --force-depends {_TOOLKIT}")
    machine.shell(f"dpkg -i {_deb(machine, f'Conflicts: {_TOOLKIT}')}")

    planned = machine.plan()
    _is_refused(planned)
    row = {"name": "company-vpn", "does": "remove", "from": "7.1", "to": None, "because": None}
    assert planned.host["takes"] == [row]
    _is_refused(machine.up())
    assert _there(machine) == "installed"

    allowed = machine.plan(*_ALLOWED)
    assert allowed.code == 0, str(allowed)
    assert allowed.host["takes"] == [{**row, "because": "allowed"}]
    run = machine.up(*_ALLOWED)
    assert run.code == 0, str(run)
    assert _there(machine) != "installed"
    assert machine.shell(f"dpkg-query -W -f '${{db:Status-Status}}' {_TOOLKIT}") == "installed"
    proven.put_back(machine)


def test_the_repair_leaves_a_package_that_lacks_something(proven: Proven) -> None:
    machine = proven.take()
    machine.shell(f"dpkg --unpack {_deb(machine, 'Depends: company-keys')}")
    assert "Remv company-vpn" in machine.shell("apt-get -s --fix-broken install")

    _is_refused(machine.up())
    assert _there(machine) == "unpacked"

    # What only the node can tell, in the middle of the role, is refused there alike.
    machine.shell("touch /var/lib/dpkg/updates/0001")
    run = machine.up()
    assert run.code == 1, str(run)
    assert "it removes company-vpn 7.1" in run.host["failure"]["message"]
    assert _there(machine) == "unpacked"
    machine.shell("dpkg --purge company-vpn")
    assert machine.up().code == 0
    proven.put_back(machine)


_SPEC = """Name: company-vpn
Version: 7.1
Release: 1
Summary: what somebody works with
License: none
BuildArch: noarch
%s
%%description
What somebody works with.
%%files
"""


def _rpm(machine: Node, more: str, version: str = "7.1") -> str:
    """Build a package of somebody else's on the node; its path."""
    text = (_SPEC % more).replace("7.1", version)
    machine.shell(f"mkdir -p /root/vpn && cat > /root/vpn/company-vpn.spec <<'END'\n{text}END\n")
    machine.shell("cd /root/vpn && rpmbuild -bb --quiet --define '_topdir /root/vpn' company-vpn.spec")
    return f"/root/vpn/RPMS/noarch/company-vpn-{version}-1.noarch.rpm"


@pytest.mark.soak(part="rocky")
def test_dnf_erases_what_conflicts_only_where_it_is_allowed_by_name(make_node: Callable[..., Node]) -> None:
    machine = make_node("takes", "rocky")
    wish = ("--want", "driver=580.126.20")
    machine.shell(f"rpm -i {_rpm(machine, 'Conflicts: nvidia-driver-cuda')}")

    _is_refused(machine.plan(*wish), "7.1-1")
    _is_refused(machine.up(*wish), "7.1-1")
    machine.shell("rpm -q company-vpn nvidia-driver-cuda | grep -qx company-vpn-7.1-1.noarch")

    run = machine.up(*wish, *_ALLOWED)
    assert run.code == 0, str(run)
    assert machine.shell("rpm -q company-vpn || true").strip() == "package company-vpn is not installed"

    # The repair of an update that was cut off takes nothing along that needs the older version.
    machine.shell(f"rpm -i {_rpm(machine, '', '8.0')}")
    machine.shell(f"rpm -i --force --nodeps {_rpm(machine, '', '9.0')}")
    text = "Name: company-app\nVersion: 1\nRelease: 1\nSummary: x\nLicense: none\nBuildArch: noarch\nRequires: company-vpn = 8.0\n"
    machine.shell(
        f"cat > /root/vpn/app.spec <<'END'\n{text}%description\nx\n%files\nEND\n"
        "cd /root/vpn && rpmbuild -bb --quiet --define '_topdir /root/vpn' app.spec && rpm -i RPMS/noarch/company-app-1-1.noarch.rpm"
    )
    run = machine.up(*wish)
    assert run.code != 0, str(run)
    assert "company-app" in str(run)
    machine.shell("rpm -q company-app company-vpn-8.0 company-vpn-9.0")
    machine.shell("rpm -e company-app")
    assert machine.up(*wish).code == 0
    assert machine.shell("rpm -q company-vpn").split() == ["company-vpn-9.0-1.noarch"]
