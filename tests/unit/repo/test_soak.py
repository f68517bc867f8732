"""What takes long has a part of the soak, and what a newcomer reads of the parts is true."""

from __future__ import annotations

import ast
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[3]


def parts() -> list[str]:
    """The names of the parts, as noxfile.py has them. (It is read and not imported: nox is not in every environment of the tests.)"""
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    (table,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "SOAK"
    ]
    assert isinstance(table, ast.Dict)
    return [ast.literal_eval(key) for key in table.keys if key is not None]


def marked() -> set[str]:
    """The parts that integration tests are marked with."""
    sources = [path.read_text() for path in (ROOT / "tests/integration").glob("test_*.py")]
    return {name for source in sources for name in re.findall(r'\bsoak\(part="(\w+)"\)', source)}


def test_every_mark_names_a_part_that_is_run() -> None:
    run = set(re.findall(r'_soak_nodes\("(\w+)"\)', (ROOT / "noxfile.py").read_text()))
    assert marked() == run
    assert run <= set(parts())


def test_no_mark_is_written_in_a_way_that_is_not_counted() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        source = path.read_text()
        written = len(re.findall(r"pytest\.mark\.soak\b", source))
        assert written == len(re.findall(r'pytest\.mark\.soak\(part="\w+"\)', source)), path


def test_the_table_for_contributors_lists_every_part_in_its_order() -> None:
    table = re.findall(r"^\| `make soak PART=(\d+)` \| (\w+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert table == [(str(number), name) for number, name in enumerate(parts(), 1)]


def test_what_is_said_of_debian_is_held_against_its_archive_in_the_part_figures() -> None:
    (body,) = re.findall(r"^def _soak_figures\(.*?(?=^\S)", (ROOT / "noxfile.py").read_text(), re.MULTILINE | re.DOTALL)
    assert "    world(session)\n" in body
    (row,) = re.findall(r"^\|.*\| figures \|.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert "`make world`" in row
    assert "    measured(session)\n" in body
    assert "`make measured`" in row
    assert "    assembled(session)\n" in body
    assert "`make assembled`" in row


def test_the_line_of_ansible_core_is_one_that_is_supported() -> None:
    major, minor = (int(part) for part in version("ansible-core").split(".")[:2])
    assert (major, minor) >= (2, 19)


def test_the_units_run_on_the_line_of_ansible_core_that_is_asked_for() -> None:
    """The part `lines` asks for the newest. A program that was looked for elsewhere would test the ordinary one twice."""
    here = version("ansible-core")
    asked = os.environ.get("GPUWRIGHT_ANSIBLE_CORE", here)
    assert f"{here}.".startswith(f"{asked}."), f"asked for {asked}, run by {sys.executable}"
