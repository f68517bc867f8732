"""Look-ups in the shared rules are remembered; rules of one's own are never taken for them."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import support as cuda_support
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import remembered


def test_a_look_up_in_the_shared_rules_is_made_once(rules: dict[str, Any]) -> None:
    asked = []

    @remembered
    def look_up(key: str, table: dict[str, Any]) -> str:
        asked.append(key)
        return f"{key} of {table['generated']}"

    assert look_up("a", rules) == look_up("a", rules) == f"a of {rules['generated']}"
    look_up("b", rules)
    assert asked == ["a", "b"]


def test_other_rules_are_looked_up_anew_though_they_were_equal_once(rules: dict[str, Any]) -> None:
    own = copy.deepcopy(rules)
    before = cuda_support.family_floor("12", own)
    assert before == cuda_support.family_floor("12", rules)
    own["cuda"]["families"] = [{**before, "driver": "1.2.3"}] if before else []
    changed = cuda_support.family_floor("12", own)
    assert changed is not None
    assert changed["driver"] == "1.2.3"
    assert cuda_support.family_floor("12", rules) == before
