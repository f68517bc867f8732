"""A kernel for which the driver does not build, with Debian's own kernels, packages and compiler: 6.12.107 and the open modules of 550."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = pytest.mark.sim

_BAD = "6.12.107+deb13-amd64"
_CARD = ("--gpu", "A100 SXM4 80GB")
_OPEN = (*_CARD, "--want", "driver", "--want", "driver-source=distro", "--want", "driver-modules=open")


def test_open_modules_are_refused_on_a_kernel_that_they_do_not_build_for(make_node: Callable[..., Node]) -> None:
    machine = make_node("refused", "debian-real-driver")
    assert _BAD in machine.shell("ls /boot")
    run = machine.up(*_OPEN)
    assert run.code == 3, str(run)
    (conflict,) = [row for row in run.host["conflicts"] if "6.12.107" in row["text"]]
    assert "proprietary" in conflict["remedy"]
    assert machine.shell("dpkg-query -W 'nvidia*' 2>/dev/null || true") == ""
