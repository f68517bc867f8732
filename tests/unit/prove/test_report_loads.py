"""What the loads of a proof measured: how it comes into the record, and what the page shows of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.filter.measured import FilterModule
from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load, load_judge
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import html as page
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import loads
from tests.unit.prove.loaded import MODEL, cards, device, judged, label, result, training
from tests.unit.prove.test_report import HOSTILE, Tags, record

ROOT = Path(__file__).resolve().parents[3]
FILTER = FilterModule().filters()["load_figures"]


def measured(*results: Any, count: int = 8) -> dict[str, Any]:
    """The measurements of a record, as the role collects them."""
    return {"load": cards(count), "framework_loads": FILTER(results)}


def rendered(found: Any = (), **values: Any) -> Tags:
    made = report.report_of(
        {"node1": report.host_record("node1", record(*found, **values))},
        {"gpuwright": "1", "verb": "validate", "started": None, "finished": None, "ended": "done"},
    )  # fmt: skip
    return Tags(page.render(made))


def words(tags: Tags) -> str:
    return " ".join(tags.words.split())


# --- the record -------------------------------------------------------------------------------------------------------


def test_the_role_hands_over_what_each_environment_measured() -> None:
    tasks = yaml.safe_load((ROOT / "roles/validate/tasks/collect.yml").read_text())
    (facts,) = [task["ansible.builtin.set_fact"] for task in tasks if "ansible.builtin.set_fact" in task]
    assert "__validate_framework_loads.results" in facts["gpuwright_measurements"]["framework_loads"]
    assert "gpuwright.node.load_figures" in facts["gpuwright_measurements"]["framework_loads"]


def test_figures_are_recorded_beside_their_data_sheets_and_nothing_else_of_a_result() -> None:
    (found,) = FILTER([result(2)])
    assert (found["name"], found["version"], found["seconds"]) == ("pytorch", "2.14.1+cu130", 312.4)
    assert set(found) == {"name", "version", "seconds", "devices", "pairs", "collectives", "training"}
    first = found["devices"][0]
    assert first["tflops"] == {"bf16": 712.4, "fp32": 51.2, "tf32": 402.1}
    assert first["data_sheet"] == {
        "name": "H100 SXM5 80GB", "tflops": {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4}, "bandwidth_gbs": 3350.0,
        "pcie_gbs": 63.02, "nvlink_gbs": 900.0,
    }  # fmt: skip
    assert first["host_device"][1]["from_device_gbs"] == 39.2
    assert found["training"]["ranks"] == 2
    assert found["pairs"][0] == {"from": label(0), "to": label(1), "gbs": 370.2, "direct": True}
    assert found["collectives"][0]["busbw_gbs"] == 26.0


def test_every_figure_that_the_module_returns_is_recorded() -> None:
    steps: list[Any] = [
        {"step": "tflops", "precision": "bf16", "size": 8192, "seconds": 0.0015, "repeats": 9, "deviation": 0.0},
        {"step": "bandwidth", "kind": "copy", "bytes": 1 << 30, "seconds": 0.001, "repeats": 9, "right": True},
        {"step": "host_device", "node": 0, "local": True, "bytes": 1 << 28, "to_device": 0.01, "from_device": 0.01, "both": 0.01,
         "right": True},
        {"step": "training", "ranks": 1, "steps": 9, "seconds": 0.1, "waiting": 0.1, "operations": 1e12, "rows": 8, "workers": 2,
         "precision": "bf16", "finite": True, "first": 2.0, "last": 1.0},
    ]  # fmt: skip
    card = framework_load.Device("GPU-0", label(0), "00000000:1B:00.0", "card", MODEL, 0)
    told = framework_load.figures_of(card, steps)
    (found,) = FILTER([result(1, devices=[told])])
    recorded: Any = found["devices"][0]
    assert {key: recorded[key] for key in told if key != "device"} == {
        key: told[key] for key in told if key != "device"
    }


def test_of_what_was_left_out_or_ended_without_an_answer_nothing_is_recorded() -> None:
    failed = {"failed": True, "msg": "MODULE FAILURE", "item": result()["item"]}
    skipped = {"skipped": True, "item": result()["item"]}
    empty = result(0, devices=[], collectives=[], pairs=[])
    assert FILTER([]) == []
    assert FILTER([failed, skipped, empty]) == []
    assert [row["name"] for row in FILTER([failed, result(1), empty])] == ["pytorch"]


def test_what_is_recorded_is_small_and_keeps_its_shape_when_it_is_read_again() -> None:
    found = FILTER([result()])
    assert len(json.dumps(found)) < 40_000
    assert loads.shaped(json.loads(json.dumps(found))) == found


def test_a_report_with_them_keeps_its_schema_and_has_them(tmp_path: Path) -> None:
    run = report.open_run(tmp_path / "run", "validate")
    report.write_host(run, "node1", record(*judged(), measurements=measured(result())))
    report.aggregate(run)
    made = json.loads((run / "report.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/report.schema.json").read_text())).validate(made)
    told = made["hosts"]["node1"]["measurements"]
    assert told["framework_loads"][0]["devices"][7]["tflops"]["bf16"] == 705.4
    assert told["load"][0]["power_w"]["max"] == 699.3


ODD: list[Any] = [
    None, 5, "x", True, [], {}, [[]], [None], ["x"], {"a": {}}, -1, 0, 1e-300, 1e300, float("nan"), float("inf"), 10**400, HOSTILE,
    [HOSTILE],
    {HOSTILE: HOSTILE}, {HOSTILE: 5}, [{HOSTILE: HOSTILE}], [{"bytes": 1e-300, "kind": "x", "busbw_gbs": 1e-300}],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_figures_of_a_node_are_left_out_and_the_page_is_made(odd: Any) -> None:
    first, second = device(), training()
    turns = [result(2, **{key: odd}) for key in ("version", "pairs", "collectives", "training", "seconds")]
    turns += [result(1, devices=[{**first, key: odd}]) for key in first]
    turns += [result(1, training={**second, key: odd}) for key in second]
    turns += [result(1, pairs=[{**result(2)["pairs"][0], key: odd}]) for key in ("from", "to", "gbs", "direct")]
    turns += [
        result(1, collectives=[{**row, key: odd} for row in result()["collectives"]])
        for key in ("kind", "bytes", "ranks", "busbw_gbs")
    ]
    figures = [each for turn in turns for each in FILTER([turn])]
    json.dumps(figures, allow_nan=False)
    for value in ({"load": odd, "framework_loads": odd}, {"load": [{**cards(1)[0], key: odd} for key in cards(1)[0]]}):
        rendered(measurements=value)
    for at in range(0, len(figures), loads.MOST_ENVIRONMENTS):
        told = rendered(measurements={"framework_loads": figures[at : at + loads.MOST_ENVIRONMENTS]})
        assert {tag for tag, _ in told.tags}.isdisjoint({"script", "img"})
        assert not [name for _, attributes in told.tags for name in attributes if name.startswith("on")]
        assert not [
            value
            for _, attributes in told.tags
            for value in attributes.values()
            if value and re.fullmatch(r"-?(nan|inf)", value)
        ]


def test_there_are_only_so_many_of_each_and_no_long_words() -> None:
    many = result(
        1,
        devices=[device()] * 5000,
        pairs=result(2)["pairs"] * 5000,
        collectives=result()["collectives"] * 5000,
        version="x" * 9000,
    )
    many["devices"][0] = device(
        name="n" * 9000, tflops={f"p{number}": 1.0 for number in range(5000)}, host_device=device()["host_device"] * 900
    )
    found = FILTER([many] * 100)
    assert len(found) == loads.MOST_ENVIRONMENTS
    assert [len(found[0][key]) for key in ("devices", "pairs", "collectives", "version")] == [128, 1000, 200, 100]
    first = found[0]["devices"][0]
    assert [len(first[key]) for key in ("name", "tflops", "host_device")] == [100, 20, 64]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_the_figures_of_every_card_beside_its_data_sheet() -> None:
    said = words(rendered(judged(), measurements=measured(result())))
    for text in (
        "Under load by the driver alone", f"{label(7)}: {MODEL}", "1,800", "1,755 to 1,980", "690.1", "640.2 to 699.3", "60", "41 to 63",
        "sw_power_cap (8 of 10)", "Under load through pytorch 2.14.1+cu130", "bf16, TFLOPS", "712.4", "72% of 989.4", "memory triad, GB/s",
        "3,012", "90% of 3,350", "NUMA node 0 (its own)", "NUMA node 1", "55.1", "87% of 63.02", "a step, ms", "108", "121.4", "2%",
        "all together, 8 ranks", "115.9", "copies between cards", "collectives by size, 8 ranks by nccl",
    ):  # fmt: skip
        assert text in said, text


def test_what_was_judged_has_a_sign_and_what_was_not_is_said_to_be_so() -> None:
    shown: Any = loads.shown(measured(result(2), count=2), judged(2))
    (made,) = shown["environments"]
    rates, copies, trained = made["tables"]
    row = dict(zip(rates["columns"], rates["rows"][0]["cells"], strict=True))
    assert (row["bf16, TFLOPS"]["note"], row["bf16, TFLOPS"]["status"]) == ("72% of 989.4, not judged", "")
    assert row["bf16, TFLOPS"]["title"] == "no floor is known"
    assert (row["memory triad, GB/s"]["status"], row["memory copy, GB/s"]["status"]) == ("pass", "")
    to_card, from_card, both = copies["rows"][0]["cells"]
    assert (to_card["status"], from_card["status"], both["status"]) == ("", "fail", ""), (
        "the slower direction is judged"
    )
    assert [cell["status"] for cell in copies["rows"][1]["cells"]] == ["", "", ""], "another node is told alone"
    assert [row["cells"][1]["status"] for row in trained["rows"]] == ["pass", "pass", "pass"]
    assert [cell["status"] for cell in made["matrix"]["cells"]] == ["", "fail"]
    first, second = made["plot"]["lines"]
    assert (first["name"], first["status"]) == ("all_reduce", "pass")
    assert "not judged" not in first["text"]
    assert second["text"].endswith("154 GB/s at 4 GiB, not judged")


def test_the_load_by_the_driver_says_that_it_was_never_seen_on_hardware_and_no_other_part_does() -> None:
    said = words(rendered(measurements=measured(result())))
    assert said.lower().count(load_judge.UNTRIED.lower()) == 1
    assert (
        load_judge.UNTRIED.lower() not in words(rendered(measurements={"framework_loads": FILTER([result()])})).lower()
    )


@pytest.mark.parametrize("old", [{}, {"fio": {}}, {"load": []}, {"load": [], "framework_loads": []}, {"load": None}])
def test_a_record_without_loads_has_no_word_of_them(old: dict[str, Any]) -> None:
    assert "load" not in words(rendered(measurements=old)).lower()


def test_a_record_of_before_with_the_load_by_the_driver_alone_shows_that() -> None:
    said = words(rendered(measurements={"load": cards(1)}))
    assert "Under load by the driver alone" in said
    assert "Under load through" not in said


def test_the_matrix_has_a_square_a_pair_the_darker_the_faster() -> None:
    shown: Any = loads.shown(measured(result(4)), [])
    matrix = shown["environments"][0]["matrix"]
    assert len(matrix["cells"]) == 12
    assert [row["text"] for row in matrix["labels"]] == ["0", "1", "2", "3"]
    by_speed = sorted(matrix["cells"], key=lambda cell: cell["dark"])
    assert by_speed[0]["title"] == f"{label(3)} to {label(2)}, directly: 339.2 GB/s"
    assert by_speed[-1]["title"].startswith(f"{label(0)} to {label(1)}")
    assert len({(cell["x"], cell["y"]) for cell in matrix["cells"]}) == 12
    assert matrix["text"].endswith("not judged")


def test_of_a_machine_with_many_cards_the_matrix_is_a_sentence() -> None:
    shown: Any = loads.shown(measured(result(17)), [])
    matrix = shown["environments"][0]["matrix"]
    assert matrix["cells"] == []
    assert matrix["text"].endswith("of 17 cards; each pair is in report.json")
    rendered(measurements=measured(result(17)))


def test_the_plot_goes_from_the_smallest_to_the_largest_size() -> None:
    shown: Any = loads.shown(measured(result()), [])
    plot = shown["environments"][0]["plot"]
    assert (plot["from"], plot["to"], plot["most"]) == ("1 MiB", "4 GiB", "182")
    points = [tuple(map(float, point.split(","))) for point in plot["lines"][0]["points"].split()]
    assert points[0][0] == plot["left"]
    assert points[-1] == (plot["width"] - 12, plot["top"])
    assert points == sorted(points)
    single: Any = loads.shown(measured(result(collectives=result()["collectives"][:1])), [])
    assert single["environments"][0]["plot"]["lines"][0]["points"]


def test_what_the_processor_did_is_shown_without_a_card() -> None:
    alone = device(
        gpu=None,
        kind="processor",
        name="processor",
        bus_id=None,
        tflops={"fp32": 0.21},
        bandwidth_gbs={},
        host_device=[],
    )
    turn = result(0, devices=[alone], item={"name": "pytorch", "expected": []}, collectives=result(2)["collectives"])
    said = words(rendered(measurements={"load": [], "framework_loads": FILTER([turn])}))
    assert "processor0.21" in said
    assert "% of" not in said


def test_a_fleet_shows_them_of_so_many_hosts_and_says_where_the_others_are() -> None:
    told = measured(result())
    made = report.report_of(
        {f"n{number:03}": report.host_record(f"n{number:03}", record(*judged(), measurements=told)) for number in range(120)},
        {"gpuwright": "1", "verb": "validate", "started": None, "finished": None, "ended": "done"},
    )  # fmt: skip
    text = page.render(made)
    assert text.count("Under load through pytorch") == page.MOST_LOADED
    assert text.count("is in report.json: the page shows it of 50 hosts") == 70
    assert len(text) < 6_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0, "0"), (712.44, "712.4"), (3012.4, "3,012"), (0.108, "0.108"), (0.00001234, "0.000012"), (100.0, "100"),
     (-5.5, "-5.5"),
     (5e-324, "0"), (1e18, "1,000,000,000,000,000,000"), (9999.9, "10,000")],
)  # fmt: skip
def test_figures_are_shown_with_the_digits_that_count(value: float | None, text: str) -> None:
    assert loads._show(value) == text


def test_checks_without_a_figure_do_not_spoil_a_page() -> None:
    found = [
        checks.incomplete("load.peer", "not measured"),
        checks.failed("load.tflops_bf16", measured={"a": []}, gpu=label(0)),
    ]
    rendered(found, measurements=measured(result()))
