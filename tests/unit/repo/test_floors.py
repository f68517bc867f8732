"""The floors of the house: arrows between modules point down, and what does not yet is named with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.repo import floors

HOUSE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("house.yaml").read_text())
CIRCLES = {tuple(sorted(row["modules"])) for row in HOUSE["circles"]}


@pytest.fixture(scope="module")
def arrows() -> set[floors.Arrow]:
    return floors.arrows()


@pytest.fixture(scope="module")
def upward(arrows: set[floors.Arrow]) -> set[str]:
    return {f"{begin} -> {end}" for begin, end in floors.upward(arrows)}


def test_every_module_is_on_a_floor() -> None:
    assert [name for name in floors.modules() if floors.floor(name) is None] == []


def test_every_name_of_a_floor_is_a_module() -> None:
    known = floors.modules()
    named = [name for _title, names in floors.FLOORS for name in names]
    assert len(named) == len(set(named))
    assert [name for name in named if not any(floors.is_of(each, name) for each in known)] == []


def test_arrows_point_down(upward: set[str]) -> None:
    assert upward - set(HOUSE["upward"]) == set()


def test_no_circle_is_new_or_grows(arrows: set[floors.Arrow]) -> None:
    assert [found for found in floors.circles(arrows) if not any(set(found) <= set(known) for known in CIRCLES)] == []


def test_what_is_excepted_is_still_so_and_has_a_reason(arrows: set[floors.Arrow], upward: set[str]) -> None:
    """A row of house.yaml that nothing needs any more goes."""
    assert set(HOUSE["upward"]) - upward == set()
    assert CIRCLES - set(floors.circles(arrows)) == set()
    assert all([*HOUSE["upward"].values(), *(row["reason"] for row in HOUSE["circles"])])


# --- that the tests above can fail ------------------------------------------------------------------------------------


def test_an_arrow_to_a_higher_floor_is_seen() -> None:
    arrow = ("plugin_utils.components.cuda.resolve.toolkit", "plugin_utils.components.cuda.apply")
    assert floors.upward([arrow, arrow[::-1]]) == {arrow}


def test_a_circle_is_seen_over_several_modules_and_what_hangs_on_it_is_not_in_it() -> None:
    graph = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]
    assert floors.circles(graph) == [("a", "b", "c")]
    assert floors.circles(graph[1:]) == []


@pytest.mark.parametrize(
    "source",
    [
        "from . import b",
        "from .b import name",
        "from ..plugin_utils import b",
        "from ansible_collections.gpuwright.node.plugins.plugin_utils import b",
        "import ansible_collections.gpuwright.node.plugins.plugin_utils.b",
        "def late():\n    from .b import name",
        "if TYPE_CHECKING:\n    from .b import Name",
    ],
)
def test_every_kind_of_import_is_an_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(floors, "ROOT", tmp_path)
    folder = tmp_path / "plugins/plugin_utils"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(source)
    (folder / "b.py").write_text("name = 1")
    assert floors.arrows(floors.modules()) == {("plugin_utils.a", "plugin_utils.b")}
