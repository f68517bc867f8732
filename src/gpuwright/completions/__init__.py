"""The completion scripts of the shells. They are generated and kept here; a test holds them to the options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS = ("bash", "zsh")

# Options whose value is a path, by the word that stands for it in the help.
_FILES = ("FILE", "INVENTORY", "VAR")
_DIRECTORIES = ("DIR",)


def script(shell: str) -> Path:
    """Where the script of a shell is kept."""
    return Path(__file__).with_name(f"gpuwright.{shell}")


def generate(shell: str) -> str:
    """The script of a shell, made anew. Needs shtab, which is needed for nothing else."""
    import shtab

    from gpuwright.parser import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's way to mark an action
        elif action.metavar in _DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # as above
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other way to its options
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for child in action.choices.values():
                yield from _actions(child)
