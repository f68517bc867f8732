"""`gpuwright up` on a simulated node: a card or a driver that is broken is never called healthy."""

from __future__ import annotations

import pytest

from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim


#: One of the card and one of the driver; what is judged of the others is the units', that they are seen on a node the soak's.
_FIRST = ["fallen-off-bus", "version-mismatch"]
_IN_SOAK = ["ecc", "garbage-smi", "module-not-loaded"]


@pytest.mark.parametrize(
    "kind", [*_FIRST, *(pytest.param(kind, marks=pytest.mark.soak(part="services")) for kind in _IN_SOAK)]
)
def test_a_broken_card_or_driver_is_not_called_healthy(ready_node: Node, kind: str) -> None:
    ready_node.fault(kind)
    try:
        assert gpuwright("doctor", "-i", ready_node.inventory, "--json").code == 1
    finally:
        ready_node.fault("all", clear=True)
        ready_node.reboot()
