from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpuwright.completions import SHELLS, generate, script

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_in_the_package_is_the_one_of_these_options(shell: str) -> None:
    pytest.importorskip("shtab")
    assert script(shell).read_text(encoding="utf-8") == generate(shell), "run: python -m gpuwright.completions"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_the_script(gpuwright: Callable[..., Any], shell: str) -> None:
    done = gpuwright("completion", shell)
    assert done.code == 0
    assert done.out == script(shell).read_text(encoding="utf-8")
    assert "--no-reboot" in done.out


def test_a_shell_without_a_script_is_bad_input(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright("completion", "tcsh").code == 2
