"""What follows from the folders of the components is written by one tool, and is what they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import ORDER
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tools import build_components

ROOT = Path(__file__).parents[3]


def test_what_is_written_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_components.main(["--check"]) == 0, capsys.readouterr().err


def test_the_components_are_those_of_the_table_in_its_order() -> None:
    assert list(COMPONENTS) == list(ORDER) == list(build_components.order())


def test_every_folder_is_of_a_component_and_has_its_role() -> None:
    rooms = ROOT / build_components.ROOMS
    folders = {path.parent.name for path in rooms.glob("*/apply.py")} - {"composed"}
    assert folders == set(ORDER)
    assert [name for name in ORDER if not (ROOT / "roles" / name / "tasks/work.yml").is_file()] == []


@pytest.fixture
def another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree with one more component, of which only the folder and the line of the table are written by hand."""
    for place in (build_components.ROOMS, build_components.PLAYBOOK.parent):
        shutil.copytree(ROOT / place, tmp_path / place)
    rooms = tmp_path / build_components.ROOMS
    shutil.copytree(rooms / "gpu_log", rooms / "another")
    table = rooms / "__init__.py"
    table.write_text(table.read_text().replace('    "watch":', '    "another": "apply another one",\n    "watch":'))
    monkeypatch.setattr(build_components, "ROOT", tmp_path)
    return tmp_path


def test_a_component_that_is_added_is_missed_and_then_written_into_everything_at_its_place(another: Path) -> None:
    files = build_components.files(another)
    assert len(files) == 5
    assert all(path.read_text() != text for path, text in files.items())
    for path, text in files.items():
        (mine,) = {line.strip() for line in text.splitlines() if "another" in line} & {
            "another.Parts,",
            "another.Fields,",
            "another.HOST_PART,",
            "another.COMPONENT,",
            "- name: Apply another one",
        }
        assert text.index("gpu_log") < text.index(mine), path


def test_a_playbook_keeps_what_stands_around_the_tasks(another: Path) -> None:
    before, after = (
        (ROOT / build_components.PLAYBOOK).read_text(),
        build_components.files(another)[another / "playbooks/site.yml"],
    )
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.strip() for line in added] == [
        "- name: Hold the node to apply another one",
        "when: \"'another' in gpuwright_plan.components\"",
        "- name: Apply another one",
        "name: gpuwright.node.another",
        "apply: {tags: [another]}",
        "when: \"'another' in gpuwright_plan.components\"",
    ]
