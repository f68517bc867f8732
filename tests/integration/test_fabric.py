"""Boards with NVSwitches: the fabric manager is there at exactly the driver's version, runs, and is mended where somebody moved it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_WISH = "--want=driver=580"
_MANAGER = "dpkg-query -W -f '${Version}' nvidia-fabricmanager"


@pytest.fixture(scope="module")
def hgx(make_shared_node: Callable[[str, str], Node]) -> Node:
    """An HGX H100 as `up` left it."""
    machine = make_shared_node("hgx", "hgx-h100")
    run = machine.up(_WISH)
    assert run.code == 0, str(run)
    return machine


def test_the_fabric_manager_is_enabled_and_runs_at_exactly_the_drivers_version(hgx: Node) -> None:
    # Revisions differ, what stands before them does not.
    assert hgx.shell(_MANAGER) == "580.178.04-1"
    assert hgx.shell("dpkg-query -W -f '${Version}' nvidia-utils-580") == "580.178.04-1ubuntu1"
    assert hgx.shell("systemctl is-enabled nvidia-fabricmanager").strip() == "enabled"
    assert hgx.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert "<state>Completed</state>" in hgx.shell("nvidia-smi -q -x")


def test_the_next_run_changes_nothing_and_the_fabric_comes_back_by_itself_after_a_boot(hgx: Node) -> None:
    assert hgx.up(_WISH).host["changes"] == []
    hgx.reboot()
    assert hgx.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"


def test_another_version_by_hand_is_named_and_mended(hgx: Node) -> None:
    hgx.shell("apt-get -qy --allow-downgrades --allow-change-held-packages install nvidia-fabricmanager=580.126.20-1")
    hgx.reboot()
    assert "don't match with driver version 580.178.04" in hgx.shell("journalctl -u nvidia-fabricmanager")

    planned = hgx.plan(_WISH)
    reasons = [change["reason"] for change in planned.host["changes"] if change["component"] == "nvidia_driver"]
    # Whoever changes a held package takes its hold.
    assert reasons == [
        "not held against unattended upgrades: nvidia-fabricmanager",
        "nvidia-fabricmanager is 580.126.20-1, the driver is 580.178.04: they have to be exactly the same, or CUDA fails with error 802",
    ]
    mended = hgx.up(_WISH)
    assert mended.code == 0, str(mended)
    assert hgx.shell(_MANAGER) == "580.178.04-1"
    assert hgx.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert "reboot" not in mended.components


def test_a_stopped_fabric_manager_is_named_by_the_doctor_with_the_error_that_cuda_gives(hgx: Node) -> None:
    hgx.shell("systemctl disable nvidia-fabricmanager")
    hgx.reboot()
    checks = {check["id"]: check for check in hgx.run("doctor").host["checks"]}
    assert checks["fabricmanager"]["status"] == "fail"
    assert "error 802" in checks["fabricmanager"]["reason"]
    assert checks["fabricmanager.version"]["status"] == "pass"
    assert hgx.up(_WISH).code == 0


def test_a_host_behind_nvlink_5_gets_its_subnet_manager_and_the_module_at_every_boot(
    make_node: Callable[..., Node],
) -> None:
    """An HGX B200 shows no NVSwitch: the ports that manage its fabric tell."""
    machine = make_node("b200", "hgx-b200")
    run = machine.up(_WISH)
    assert run.code == 0, str(run)
    assert "ib_umad" in machine.shell("cat /etc/modules-load.d/gpuwright-nvidia.conf")
    assert machine.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert machine.shell("dpkg-query -W -f '${Version}' nvlsm") == "2025.10.14-1"
    machine.reboot()
    assert machine.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert machine.up(_WISH).components == set()


def test_ubuntus_own_fabric_manager_comes_of_multiverse_beside_the_flavour_server(
    make_node: Callable[..., Node],
) -> None:
    machine = make_node("hgx-own", "hgx-h100")
    wish = (_WISH, "--want=driver-source=distro")
    run = machine.up(*wish)
    assert run.code == 0, str(run)
    names = "nvidia-fabricmanager-580 libnvidia-nscq-580 nvidia-kernel-common-580-server"
    versions = machine.shell(f"dpkg-query -W -f '${{Version}}\\n' {names}").split()
    assert versions == ["580.173.02-0ubuntu0.24.04.1"] * 3
    assert "multiverse" in machine.shell("apt-cache policy nvidia-fabricmanager-580")
    assert machine.shell("systemctl is-active nvidia-fabricmanager").strip() == "active"
    # They carry the build alone in what they depend on: unattended upgrades would take the next one from under the module.
    excluded = machine.shell("cat /etc/apt/apt.conf.d/52gpuwright-nvidia-driver")
    assert all(f'"^{name}$";' in excluded for name in names.split())
    again = machine.up(*wish)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
