"""`gpuwright up` on a simulated node: a card or a driver that is broken is never called healthy."""

from __future__ import annotations

import pytest

from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("kind", ["fallen-off-bus", "ecc", "version-mismatch", "garbage-smi", "module-not-loaded"])
def test_a_broken_card_or_driver_is_not_called_healthy(ready_node: Node, kind: str) -> None:
    ready_node.fault(kind)
    try:
        assert gpuwright("doctor", "-i", ready_node.inventory, "--json").code == 1
    finally:
        ready_node.fault("all", clear=True)
        ready_node.reboot()
