"""Does this driver run that CUDA on these cards?"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import compatible


@pytest.mark.parametrize(
    ("driver", "cuda", "gpus", "mode"),
    [
        ("535.104.05", "12.2.2", ["A100"], "native"),
        ("535.104.05", "12.8", ["A100"], "minor-version"),
        ("525.60.13", "11.8", ["H100 PCIe"], "native"),
        ("580", "13.0", ["H100"], "native"),
        ("580.95.05", "13.0.3", ["H100"], "minor-version"),
        ("580.126.20", "13.0.3", ["H100"], "native"),
        ("580", "13.2", ["H100"], "minor-version"),
        ("580", "12.8", ["V100"], "native"),
        ("595", "12.8", ["V100"], "none"),
        ("580", "13.0", ["V100"], "none"),
        ("550", "13.0", ["H100"], "forward"),
        ("550", "13.0", ["RTX 4090"], "none"),
        ("550", "13.0", [], "none"),
        ("570.86.10", "12.8", ["RTX 5090"], "none"),
        ("570.124.06", "12.6", ["RTX 5090"], "none"),
        ("580.65.06", "13.0", ["H100", "V100"], "none"),
    ],
)
def test_driver_cuda_and_cards_are_held_together(
    driver: str, cuda: str, gpus: list[str], mode: str, rules: dict[str, Any]
) -> None:
    answer = compatible(driver, cuda, gpus, rules)
    assert answer["mode"] == mode
    assert answer["compatible"] == (mode != "none")
    assert answer["reasons"]
    assert all(reason["text"] and reason["source"] for reason in answer["reasons"])


@pytest.mark.parametrize(
    ("driver", "cuda", "gpus"),
    [("581", "12.8", []), ("580", "12.7", []), ("580", "99", []), ("580", "12.8", ["Voodoo"])],
)
def test_what_does_not_exist_is_no_answer(driver: str, cuda: str, gpus: list[str], rules: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        compatible(driver, cuda, gpus, rules)


def test_the_action_answers_without_a_connection() -> None:
    action = pytest.importorskip("ansible_collections.gpuwright.node.plugins.action.cuda_compat")
    assert action.ActionModule._requires_connection is False
