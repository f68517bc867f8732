"""Run a module as Ansible does, in this process."""

from __future__ import annotations

import contextlib
import io
import json
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(module: ModuleType, check: bool = False, **options: Any) -> dict[str, Any]:
    """The answer of a module; `failed` is in it when it failed."""
    written = io.StringIO()
    with (
        patch_module_args({**options, "_ansible_check_mode": check}),
        contextlib.redirect_stdout(written),
        pytest.raises(SystemExit),
    ):
        module.main()
    answer: dict[str, Any] = json.loads(written.getvalue().splitlines()[-1])
    return answer
