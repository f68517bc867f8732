"""The life of Debian's own driver, every package as Debian has it: compiled by DKMS, held, upgraded, broken by hand, healed, removed.

The node has no card and is provisioned for one. The newer build is that of Debian's backports.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, Run
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="kernels")]

_WISH = ("--gpu", "A100 SXM4 80GB", "--want", "driver", "--want", "driver-source=distro")
#: A compiler at work beside other tests takes its time.
_LIMIT_SECONDS = 3600
_MODULE = "nvidia-current"
_BACKPORTS = "/etc/apt/sources.list.d/backports.sources"
_PREFERRED = "/etc/apt/preferences.d/backports"
#: What the driver's set is, whatever Debian puts into it: all that is built from the driver's own source.
_SET = "dpkg-query -W -f '${db:Status-Status} ${source:Package} ${Package} ${Version}\\n' | grep '^installed nvidia-graphics-drivers '"
#: Debian's nvidia-persistenced makes a user for the daemon, and leaves it behind.
_ACCOUNTS = {f"/etc/{name}" for name in ("group", "gshadow", "passwd", "passwd-", "shadow", "shadow-")}


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A bare node; the tests of this module go through the driver's life on it in their order."""
    made = make_shared_node("debian", "debian-real-driver").with_its_tree()
    made.limit = _LIMIT_SECONDS
    return made


def run(machine: Node, verb: str) -> Run:
    return machine.run(verb, "--yes", *_WISH)


def versions(machine: Node) -> dict[str, str]:
    """The version of each package of the driver's set."""
    return {name: version for _status, _source, name, version in map(str.split, machine.shell(_SET).splitlines())}


def kernel(machine: Node) -> str:
    """The one that boots next: there is no other."""
    (release,) = machine.shell("ls /lib/modules").split()
    return str(release)


def is_right(machine: Node) -> None:
    """DKMS has the module for the kernel, of one version with the packages, which are all of one; nothing is to finish or to do."""
    (version,) = set(versions(machine).values())
    build = version.partition("-")[0]
    assert machine.shell("dkms status").strip() == f"{_MODULE}/{build}, {kernel(machine)}, x86_64: installed"
    assert machine.shell(f"modinfo -k {kernel(machine)} -F version {_MODULE}").strip() == build
    assert machine.shell("dpkg --audit") == ""
    again = machine.up(*_WISH)
    assert (again.code, again.roles, again.host["changes"], again.changed) == (0, [], [], 0), str(again)


def would_move(machine: Node) -> set[str]:
    """The packages that apt would bring to another version."""
    lines = machine.shell("apt-get -s dist-upgrade").splitlines()
    return {line.split()[1] for line in lines if line.startswith("Inst ")}


def test_up_has_dkms_compile_debians_driver(machine: Node) -> None:
    first = machine.up(*_WISH)
    assert first.code == 0, str(first)
    assert first.host["stack"]["driver"]["modules"] == "proprietary"
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= set(versions(machine))
    is_right(machine)


def test_all_of_the_set_is_held(machine: Node) -> None:
    address = machine.shell("sed -n 's/^URIs: //p' /etc/apt/sources.list.d/debian.sources").strip()
    machine.shell(
        f"printf 'Types: deb\\nURIs: {address}\\nSuites: trixie-backports\\nComponents: main contrib non-free non-free-firmware\\n"
        f"Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\\n' > {_BACKPORTS}; "
        f"printf 'Package: src:nvidia-graphics-drivers\\nPin: release n=trixie-backports\\nPin-Priority: 900\\n' > {_PREFERRED}; "
        "apt-get -q update"
    )
    there = versions(machine)
    held = machine.shell("apt-mark showhold").split()
    assert set(there) <= set(held)
    assert not would_move(machine) & set(there)
    # It is the lock that keeps the newer build away.
    machine.shell(f"apt-mark unhold {' '.join(held)}")
    assert would_move(machine) >= set(there)
    machine.shell(f"apt-mark hold {' '.join(held)}")
    is_right(machine)


def test_upgrade_compiles_the_newer_build_and_holds_it(machine: Node) -> None:
    before = versions(machine)
    moved = run(machine, "upgrade")
    assert moved.code == 0, str(moved)
    after = versions(machine)
    assert after.keys() == before.keys()
    assert all("~bpo13+" in version for version in after.values()), after
    assert set(after) <= set(machine.shell("apt-mark showhold").split())
    is_right(machine)


def test_modules_that_were_taken_away_by_hand_come_back(machine: Node) -> None:
    """DKMS still has what it built, and installs it again."""
    build = next(iter(versions(machine).values())).partition("-")[0]
    machine.shell(f"dkms uninstall {_MODULE}/{build} -k {kernel(machine)} 2>&1")
    (change,) = [row for row in machine.plan(*_WISH).host["changes"] if row["component"] == "nvidia_driver"]
    assert kernel(machine) in change["reason"], change
    healed = machine.up(*_WISH)
    assert healed.code == 0, str(healed)
    is_right(machine)


def test_remove_leaves_the_node_as_it_was(machine: Node) -> None:
    machine.shell(f"rm {_BACKPORTS} {_PREFERRED}; apt-get -q update")
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert set(leftovers(machine.bare, machine.tree())) <= _ACCOUNTS
    assert machine.shell("tail -qn 1 /etc/passwd /etc/group | cut -d : -f 1").split() == ["nvpd", "nvpd"]
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
