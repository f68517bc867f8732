"""Kernels that come after the driver: the hook on a node, with the packages' own scripts and the real grub-mkconfig."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

_DRIVER = ("--want", "driver=580")
_OLD, _NEW = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"
_SETTING = "/etc/default/grub.d/gpuwright.cfg"
_MOTD = "/etc/motd.d/gpuwright-kernel"
_HOOK = "/etc/kernel/postinst.d/zz-gpuwright"

#: The real grub-mkconfig in place of the stand-in. Only what asks for the disk is replaced: a container has none.
_REAL_GRUB = """
set -e
apt-get update -qq >/dev/null 2>&1
apt-get install -qqy --no-install-recommends grub-common >/dev/null 2>&1
cat >/usr/sbin/grub-probe <<'END'
#!/bin/sh
case "$*" in
*--target=device*) echo /dev/vda1 ;;
*--target=fs_uuid*) echo 0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11 ;;
*--target=fs*) echo ext2 ;;
*--target=*hint*) echo hd0,msdos1 ;;
*--target=partmap*) echo msdos ;;
esac
END
cp /usr/sbin/update-grub /root/update-grub
printf '#!/bin/sh\\nexec grub-mkconfig -o /boot/grub/grub.cfg\\n' >/usr/sbin/update-grub
update-grub 2>/dev/null
"""

#: As DKMS 3.0.10 and Debian 12's hooks: a build that is left out counts as failed, unless the hooks are switched off.
_OLDER_DKMS = """
mkdir -p /etc/dkms  # as the real package brings it
mv /usr/sbin/dkms /usr/sbin/dkms.newer
cat >/usr/sbin/dkms <<'END'
#!/bin/sh
case $1 in
--version) echo dkms-3.0.10 ;;
autoinstall) test -e /etc/dkms/no-autoinstall || exit 11 ;;
*) exec dkms.newer "$@" ;;
esac
END
chmod 755 /usr/sbin/dkms
"""


@pytest.fixture(scope="module")
def server(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A proven node whose second kernel is taken away again: it comes by the tests."""
    machine = make_shared_node("kernels", "kernel-behind")
    run = machine.up(*_DRIVER)
    assert run.code == 0, str(run)
    return machine


def exists(machine: Node, path: str) -> bool:
    """Whether something is there."""
    return machine.shell(f"test -e {path}; echo $?").strip() == "0"


def next_kernel(machine: Node) -> str:
    """The kernel that boots next, as gpuwright reads the boot menu."""
    run = machine.plan(*_DRIVER)
    return str(run.written("facts")["kernel"]["next"])


def test_the_hook_comes_with_the_driver_and_is_sealed(server: Node) -> None:
    assert server.shell(f"stat -c '%a %U' {_HOOK}").strip() == "755 root"
    assert server.plan(*_DRIVER).host["changes"] == []
    server.shell(f"cp -p {_HOOK} /root/hook; echo '# edited' >>{_HOOK}")
    reasons = [change["reason"] for change in server.plan(*_DRIVER).host["changes"]]
    server.shell(f"cp -p /root/hook {_HOOK}")
    assert any(_HOOK in reason for reason in reasons), reasons
    assert server.plan(*_DRIVER).host["changes"] == []


def test_with_modules_for_every_kernel_it_changes_nothing(server: Node) -> None:
    before = server.shell("sha256sum /boot/grub/grub.cfg")
    assert server.shell(f"{_HOOK} {_NEW} 2>&1") == ""
    assert server.shell("sha256sum /boot/grub/grub.cfg") == before
    assert not exists(server, _SETTING)


def test_a_kernel_that_dkms_cannot_build_for_does_not_become_the_one_that_boots(server: Node) -> None:
    server.shell(_REAL_GRUB)
    # Without its headers the older kernel never had a module, and there would be nothing to go on booting.
    server.shell(f"apt-get install -qqy --no-install-recommends linux-headers-{_OLD} 2>&1")
    assert server.shell(f"modinfo -k {_OLD} -F version nvidia").strip()
    server.shell(f"apt-get purge -qqy linux-image-{_NEW} linux-headers-{_NEW} 2>&1")
    assert not exists(server, f"/boot/vmlinuz-{_NEW}")
    server.shell("touch /etc/gpuwright-sim/dkms-fails")
    said = server.shell(
        f"apt-get install -qqy --no-install-recommends linux-headers-{_NEW} linux-image-{_NEW} 2>&1", check=False
    )
    assert "Bad return status for module build" in said
    server.shell("update-grub 2>&1")  # whoever calls it, whenever
    assert f"{_NEW} has no NVIDIA module" in server.shell(f"cat {_MOTD}")
    assert (
        f'GRUB_DEFAULT="gnulinux-advanced-0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11>gnulinux-{_OLD}-advanced-'
        in server.shell(f"cat {_SETTING}")
    )
    assert server.shell(f"grep -c 'set default=.*{_OLD}-advanced' /boot/grub/grub.cfg").strip() == "1"
    assert next_kernel(server) == _OLD
    assert "gpuwright-kernel" in server.shell("journalctl --output short | grep gpuwright-kernel | tail -n 3")


def test_its_packages_are_finished_where_dkms_counts_what_is_left_out_as_failed(server: Node) -> None:
    server.reboot()
    assert server.shell("uname -r").strip() == _OLD
    server.shell(_OLDER_DKMS)
    try:
        assert _NEW in server.shell("dpkg --audit; dpkg --configure --pending 2>&1 || dpkg --audit")
        run = server.up(*_DRIVER)
        assert run.code == 0, str(run)
        assert "repair" in run.components
        assert server.shell("dpkg --audit") == ""
        left_out = server.shell("ls /etc/dkms").split()
        assert [name for name in left_out if name.endswith(f"-{_NEW}.conf")], left_out
        assert "no-autoinstall" not in left_out
        again = server.up(*_DRIVER)
        assert (again.code, again.host["changes"]) == (0, []), str(again)
    finally:
        server.shell(f"mv /usr/sbin/dkms.newer /usr/sbin/dkms; rm -f /etc/dkms/*-{_NEW}.conf")


def test_it_is_taken_back_as_soon_as_the_module_is_there(server: Node) -> None:
    server.shell("rm /etc/gpuwright-sim/dkms-fails; dpkg --configure -a 2>&1")
    server.shell(f"dkms autoinstall -k {_NEW}; {_HOOK} {_NEW}")
    assert not exists(server, _SETTING)
    assert not exists(server, _MOTD)
    assert next_kernel(server) == _NEW
