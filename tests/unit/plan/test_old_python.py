"""A node whose Python is older than Ansible's floor gets a sentence, and not the words of that Python."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import python_too_old

TRACEBACK = """Traceback (most recent call last):
  File "<stdin>", line 3
    from __future__ import annotations
SyntaxError: future feature annotations is not defined
"""


@pytest.mark.parametrize(
    "result",
    [
        {"msg": "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8 (default)"},
        {"msg": "MODULE FAILURE", "module_stderr": TRACEBACK, "rc": 1},
        {"msg": "MODULE FAILURE", "module_stdout": TRACEBACK, "module_stderr": None},
    ],
)
def test_a_python_that_is_too_old_is_told_with_the_steps(result: dict[str, Any]) -> None:
    told = python_too_old({**result, "failed": True}) or ""
    assert "dnf install python3.12" in told
    assert "ansible_python_interpreter: /usr/bin/python3.12" in told
    assert "Traceback" not in told


def test_another_failure_is_left_as_it_is() -> None:
    assert python_too_old({"failed": True, "msg": "no such file", "module_stderr": "Traceback: KeyError"}) is None
