"""`gpuwright top` on a proven node: a row for each card, and nothing that stays."""

from __future__ import annotations

import datetime as dt

import pytest

from . import snapshot
from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim

_LOG = "/var/log/gpuwright"


def test_the_cards_of_a_node_are_told_and_nothing_changes(ready_node: Node) -> None:
    before = ready_node.tree()
    run = gpuwright("top", "-i", ready_node.inventory, "--json")
    assert run.code == 0, str(run)
    told = run.json["hosts"][ready_node.name]
    assert told["problem"] is None
    assert [(card["index"], card["throttle"], card["problem"]) for card in told["cards"]] == [
        (0, ["gpu_idle"], None),
        (1, ["gpu_idle"], None),
    ]
    assert all(card["memory_total"] and card["power_limit"] for card in told["cards"])
    assert snapshot.differences(before, ready_node.tree()) == {}


def test_a_day_of_a_node_comes_whole(ready_node: Node) -> None:
    day = str(dt.datetime.now(dt.UTC).date())
    without = gpuwright("top", "-i", ready_node.inventory, "--day")
    assert without.code == 1, str(without)
    assert "there is no log of the cards" in without.stderr
    head = (
        "timestamp,index,name,uuid,utilization.gpu [%],memory.used [MiB],memory.total [MiB],"
        "temperature.gpu [C],power.draw [W],clocks_event_reasons,note"
    )
    row = f"{day}T00:00:03Z,0,NVIDIA H100 80GB HBM3,GPU-0,97,71240,81559,61,642.1,sw_power_cap,"
    ready_node.shell(f"mkdir -p {_LOG} && printf '%s\\n' '{head}' '{row}' >{_LOG}/gpu-{day}.csv")
    try:
        run = gpuwright("top", "-i", ready_node.inventory, "--day", day, "--json")
    finally:
        ready_node.shell(f"rm -r {_LOG}")
    assert run.code == 0, str(run)
    assert run.json["rows"] == [
        [*row.split(",")[:1], 0, *row.split(",")[2:4], 97, 71240, 81559, 61, 642.1, "sw_power_cap", None]
    ]


def test_whether_a_job_fits_on_its_cards_is_told_and_nothing_changes(ready_node: Node) -> None:
    before = ready_node.tree()
    run = gpuwright("size", "llama-3.1-70b", "-i", ready_node.inventory, "--json")
    assert run.code == 0, str(run)
    (found,) = run.json["hosts"][ready_node.name]["answers"]
    assert (found["gpu"], found["cards"], found["layout"]) == ("H100 SXM5 80GB", 2, "tensor parallel over 2")
    large = gpuwright("size", "llama-3.1-405b", "-i", ready_node.inventory, "--json")
    assert large.code == 3, str(large)
    assert [each["ok"] for each in large.json["hosts"][ready_node.name]["answers"]] == [False]
    assert snapshot.differences(before, ready_node.tree()) == {}
