"""What is shown when something goes wrong, and what is not imported when nothing does."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import knowledge, paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAVY = {"ansible", "ansible_runner", "rich", "yaml", "jinja2", "plotille"}


def break_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_pattern: str | None, _few: int | None = None) -> Any:
        raise KeyError("no such column")

    monkeypatch.setattr(knowledge, "find_cards", broken)


def test_a_mistake_of_ours_is_one_line_and_a_wish_to_hear_of_it(
    gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_gpus(monkeypatch)
    done = gpuwright("gpus")
    assert done.code == 1
    assert "internal error: KeyError" in done.err
    assert "please report" in done.err
    assert "Traceback" not in done.err


def test_its_traceback_is_shown_with_v(gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    break_gpus(monkeypatch)
    assert "Traceback" in gpuwright("gpus", "-v").err


def test_a_mistake_of_ours_is_one_json_document_too(
    gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_gpus(monkeypatch)
    done = gpuwright("gpus", "--json")
    assert done.code == 1
    assert done.json["ok"] is False


def test_ctrl_c_outside_a_run_is_130(gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_pattern: str | None, _few: int | None = None) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(knowledge, "find_cards", interrupted)
    assert gpuwright("gpus").code == 130


def test_demo_outside_a_clone_is_bad_input(gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "clone_root", lambda: None)
    done = gpuwright("demo")
    assert done.code == 2
    assert "needs a clone of the repository" in done.err


@pytest.mark.parametrize(("status", "code"), [(0, 0), (1, 1), (4, 4), (125, 1), (-9, 1)])
def test_demo_ends_as_the_run_in_it_ended(
    gpuwright: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, code: int
) -> None:
    monkeypatch.setattr(paths, "clone_root", lambda: tmp_path)
    monkeypatch.setattr(
        "gpuwright.commands.demo.subprocess.run", lambda *_words, **_rest: subprocess.CompletedProcess([], status)
    )
    assert gpuwright("demo").code == code


def imported_by(*words: str) -> set[str]:
    """The modules that are loaded after a command line ran, with success, in a process of its own."""
    program = (
        "import sys, json, io\nfrom gpuwright.cli import main\n"
        f"code = main({list(words)!r}) if {bool(words)!r} else 0\n"
        "assert code == 0, code\n"
        "sys.stderr.write('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_environment()
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def _environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_importing_the_command_line_is_light() -> None:
    assert not imported_by() & HEAVY


def test_resolve_json_loads_neither_ansible_nor_rich() -> None:
    words = ("resolve", "--gpu", "RTX 4090", "--os", "ubuntu-24.04", "--want", "pytorch", "--json")
    assert not imported_by(*words) & (HEAVY - {"yaml"})
