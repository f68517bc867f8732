"""Does this driver run that CUDA on these cards?"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.resolve import compatible


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
        ("550", "13.1", ["H100"], "none"),
        ("535.309.01", "13.4", ["A100", "L4"], "forward"),
        ("525", "13.0", ["A100"], "none"),
        ("560", "13.0", ["A100"], "none"),
        ("535", "13.0", ["A100", "RTX 4090"], "none"),
        ("418.39", "10.1", ["V100"], "native"),
        ("418.197.02", "10.2", ["V100"], "none"),
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


@pytest.mark.parametrize(
    ("driver", "gpus", "package", "rule"),
    [
        ("535", ["H100"], "cuda-compat-13-0", "cuda.forward"),
        ("525", ["H100"], None, "cuda.compat-base"),
        ("535", ["RTX 4090"], None, "cuda.compat-card"),
        ("535", [], None, "cuda.driver"),
        ("580", ["H100"], None, "cuda.native"),
    ],
)
def test_the_package_is_named_where_it_is_what_helps_and_why_not_where_it_does_not(
    driver: str, gpus: list[str], package: str | None, rule: str, rules: dict[str, Any]
) -> None:
    answer = compatible(driver, "13.0", gpus, rules)
    assert answer["package"] == package
    assert rule in {reason["rule"] for reason in answer["reasons"]}


def test_a_base_branch_that_nvidia_gave_up_is_said_to_be_one(rules: dict[str, Any]) -> None:
    texts = [reason["text"] for reason in compatible("550", "13.0", ["H100"], rules)["reasons"]]
    assert any("does not support" in text for text in texts)
    texts = [reason["text"] for reason in compatible("535", "13.0", ["H100"], rules)["reasons"]]
    assert not any("does not support" in text for text in texts)


def test_the_action_answers_without_a_connection() -> None:
    action = pytest.importorskip("ansible_collections.gpuwright.node.plugins.action.cuda_compat")
    assert action.ActionModule._requires_connection is False
