"""Ubuntu's signed modules on a node with kernels of two flavours: each one that may boot gets its module."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = pytest.mark.sim

_DRIVER = ("--want", "driver=580")


def test_every_flavour_that_may_boot_gets_its_signed_module(make_node: Callable[..., Node]) -> None:
    machine = make_node("flavours", "two-flavours")
    run = machine.up(*_DRIVER)
    assert run.code == 0, str(run)
    assert run.host["stack"]["driver"]["build"] == "prebuilt-signed"
    for kernel in ("6.8.0-1021-aws", "6.8.0-134-generic"):
        assert "Canonical" in machine.shell(f"modinfo -k {kernel} -F signer nvidia")
    assert "linux-modules-nvidia-580-server-open-generic" in machine.shell("dpkg-query -W -f '${Package}\\n'")
    again = machine.up(*_DRIVER)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
