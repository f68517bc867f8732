"""The blocks of code of README and docs, as a reader sees them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Programs with which the lines of a block begin that a reader types.
PROGRAMS = (
    *("gpuwright", "ansible-playbook", "ansible-galaxy", "make", "git", "python3.11", "~/.venvs/gpuwright/bin/pip"),
    *("export", "mkdir", "source", "sudo", "scp", "ssh"),
)


class Block(NamedTuple):
    """A block of code: its page, the number of its first line, and its lines."""

    page: str
    number: int
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return f"{self.page}:{self.number}"

    @property
    def is_of_commands(self) -> bool:
        """Whether a reader types its lines."""
        return self.lines[0].split()[0] in PROGRAMS


class Command(NamedTuple):
    """A line that a reader types: where it is, and its words without what is behind `#`."""

    name: str
    words: tuple[str, ...]


def blocks() -> Iterator[Block]:
    """Every block, indented by four spaces after an empty line, or fenced."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        inside: list[str] = []
        began, fenced, empty = 0, False, True
        for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), "", "end"], 1):
            if line.startswith("```"):
                fenced = not fenced
                is_code = False
            else:
                is_code = fenced or (line.startswith("    ") and (empty or bool(inside)))
            if is_code:
                began = began if inside else number
                inside.append(line if fenced else line[4:])
            elif inside and line and not fenced:
                yield Block(name, began, tuple(_trimmed(inside)))
                inside = []
            elif inside:
                inside.append("")
            empty = not line
    return


def _trimmed(lines: list[str]) -> list[str]:
    while not lines[-1]:
        lines.pop()
    return lines


def commands() -> Iterator[Command]:
    """Every line of a block of commands, each part of one that `&&` joins."""
    for block in blocks():
        if not block.is_of_commands:
            continue
        for place, line in enumerate(block.lines):
            for part in re.split(r"&&", line.replace("<", "").replace(">", "")):
                words = shlex.split(part, comments=True)
                if words:
                    yield Command(f"{block.page}:{block.number + place}", tuple(words))
