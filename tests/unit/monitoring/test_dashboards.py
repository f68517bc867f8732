"""The dashboards: what is checked in is what is generated, each query is one, and names only metrics that somebody tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring import metrics
from tools import build_dashboards, dashboards

from .conftest import Call
from .names import metrics_of

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "plugins/plugin_utils/monitoring/dashboards"
FILES = sorted(FOLDER.glob("*.json"))
BOARDS = [pytest.param(json.loads(path.read_text()), id=path.stem) for path in FILES]
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("__")}
# What Grafana may call a value that is told in a unit; clocks are multiplied.
OF_UNIT = {
    "%": {"percent"},
    "MiB": {"mbytes"},
    "C": {"celsius"},
    "W": {"watt"},
    "MHz": {"hertz"},
    "s": {"s", "percent"},
    "time": {"s", "dateTimeFromNow"},
    "bytes": {"bytes", "binBps", "percent"},
    "bool": {"bool_yes_no", "short"},
    "": {"short", "bool_yes_no", "percent"},
}
MEANT = {"$__rate_interval": "5m", "$host": "gpu17", "$gpu": "0"}


def targets(board: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(panel, target) for panel in board["panels"] for target in panel["targets"]]


def bare(query: str) -> str:
    """A query with Grafana's variables filled in."""
    for variable, value in MEANT.items():
        query = query.replace(variable, value)
    return query


def unit_of(panel: dict[str, Any], number: int) -> str:
    """The unit that a query is shown in: the panel's, in a table that of its column."""
    if panel["type"] != "table":
        return str(panel["fieldConfig"]["defaults"]["unit"])
    told = [
        each["properties"][0]["value"]
        for each in panel["fieldConfig"]["overrides"]
        if each["properties"][0]["id"] == "unit"
    ]
    return str(told[number])


def test_what_is_checked_in_is_what_is_generated() -> None:
    command = [sys.executable, str(ROOT / "tools/build_dashboards.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_file_that_says_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_dashboards, "FOLDER", tmp_path)
    assert build_dashboards.main([]) == 0
    assert build_dashboards.main(["--check"]) == 0
    (tmp_path / "node.json").write_text("{}")
    assert build_dashboards.main(["--check"]) == 1


def test_there_is_one_for_each_question() -> None:
    assert [path.stem for path in FILES] == ["card", "fleet", "jobs", "node", "storage"]


@pytest.mark.parametrize("board", BOARDS)
def test_it_loads_by_the_types_of_grafanas_library(board: dict[str, Any]) -> None:
    loaded = models.Dashboard.from_json(board)
    assert loaded.uid
    assert loaded.panels
    again = json.loads(json.dumps(loaded, cls=JSONEncoder))
    assert again == board


def test_every_query_is_one(promtool: Call, tmp_path: Path) -> None:
    """Grafana's variables filled in, each as a recording rule."""
    rules = [
        {"record": f"query:{path.stem}:{number}", "expr": bare(target["expr"])}
        for path in FILES
        for number, (_panel, target) in enumerate(targets(json.loads(path.read_text())))
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    assert len(rules) > 50


@pytest.mark.parametrize("board", BOARDS)
def test_it_names_only_metrics_that_somebody_tells(board: dict[str, Any]) -> None:
    for panel, target in targets(board):
        used = metrics_of(bare(target["expr"]))
        assert used, panel["title"]
        assert used <= set(metrics.NAMES), panel["title"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (host|gpu)\)", variable["query"]["query"])
            assert asked
            assert metrics_of(bare(asked[1])) <= set(metrics.NAMES)


@pytest.mark.parametrize("board", BOARDS)
def test_units_are_those_of_the_metrics(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        for number, target in enumerate(panel["targets"]):
            unit = unit_of(panel, number)
            assert unit in UNITS, (panel["title"], unit)
            query = target["expr"]
            if re.match(r"(100 \*|sum\(max|count|floor)", query) or " > bool " in query:
                continue
            told = {metrics.NAMES[name].unit for name in metrics_of(bare(query))}
            assert any(unit in OF_UNIT[each] for each in told), (panel["title"], unit, told)
            if unit == "hertz":
                assert query.startswith("1e6 * ")


@pytest.mark.parametrize("board", BOARDS)
def test_it_asks_for_its_data_source_and_its_machine(board: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert "host" in variables
    for panel, target in targets(board):
        assert target["datasource"]["uid"] == "${datasource}"
        assert "host" in target["expr"], panel["title"]
        assert ("$gpu" in target["expr"]) <= ("gpu" in variables)


def test_links_lead_from_the_fleet_to_the_machine_to_the_card() -> None:
    linked = {
        path.stem: set(re.findall(r"/d/(gpuwright-\w+)\?var-host=\$\{__data\.fields\.host\}", path.read_text()))
        for path in FILES
    }
    uids = {json.loads(path.read_text())["uid"] for path in FILES}
    assert set().union(*linked.values()) <= uids
    assert linked["fleet"] == {"gpuwright-node", "gpuwright-card"}
    assert linked["node"] == {"gpuwright-card"}
    assert "var-gpu=${__data.fields.gpu}" in (FOLDER / "fleet.json").read_text()


@pytest.mark.parametrize("board", BOARDS)
def test_panels_lie_side_by_side_and_on_none_other(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= dashboards.WIDTH
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("board", BOARDS)
def test_limits_have_a_colour_each(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        values = [step["value"] for step in steps if step["value"] is not None]
        assert values == sorted(values)
        assert len({step["color"] for step in steps}) == len(steps)


def test_every_metric_of_cards_and_watch_has_a_unit_that_is_known() -> None:
    assert {metric.unit for metric in metrics.NAMES.values()} <= set(OF_UNIT)
    assert all(metric.meaning for metric in metrics.NAMES.values())
