from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import outliers
from ansible_collections.gpuwright.node.plugins.plugin_utils.health.outliers import Value
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import comparison, run_directory

# All numbers are made up. The first table of Iglewicz and Hoaglin's method is NIST's (e-Handbook 1.3.5.17): it has the same limit.

MODEL = "NVIDIA H100 80GB HBM3"


def figures(*numbers: Any, what: str = "gpu.matmul", unit: str = "TFLOPS", group: str = MODEL) -> list[Value]:
    return [Value(f"n{place}", "0", group, what, number, unit) for place, number in enumerate(numbers)]


def names(*told: Any, what: str = "VBIOS") -> list[Value]:
    return [Value(f"n{place}", "0", MODEL, what, value) for place, value in enumerate(told)]


def out(values: list[Value]) -> list[str]:
    return [outlier["host"] for outlier in outliers.outliers(outliers.compare(values))]


def only(values: list[Value]) -> outliers.Comparison:
    (found,) = outliers.compare(values)
    return found


def test_a_slow_card_is_named_with_its_figure_its_like_and_what_to_do() -> None:
    (found,) = outliers.outliers(outliers.compare(figures(700, 704, 698, 560)))
    assert (found["host"], found["cards"], found["value"], found["usual"], found["percent"]) == (
        "n3",
        ["0"],
        560,
        699,
        -19.9,
    )
    assert (
        found["text"]
        == f"n3, card 0: gpu.matmul is 560 TFLOPS, and the median of 4 like it ({MODEL}) is 699 TFLOPS: 19.9 % less"
    )
    assert "power limit" in found["remedy"]
    assert found["score"] is not None
    assert found["score"] > 3.5


def test_the_score_is_that_of_iglewicz_and_hoaglin() -> None:
    # median 10, deviations 0, 1, 1, 1, 2, 2, 6: MAD 1. 0.6745 * 6 / 1 = 4.05.
    (found,) = outliers.outliers(outliers.compare(figures(10, 9, 11, 11, 8, 12, 4)))
    assert found["score"] == pytest.approx(0.6745 * 6, abs=0.01)
    assert out(figures(10, 9, 11, 11, 8, 12, 4.9)) == [], "0.6745 * 5.1 is less than 3.5"


@pytest.mark.parametrize(
    "numbers",
    [
        (700, 700, 700, 700),
        (700.0, 700.7, 699.3, 698.9),
        (700, 700, 700, 900),
        (700, 700, 700, 667),
        (700, 560, 700, 560),
        (500, 600, 700, 800),
        (0, 0, 0, 700),
    ],
)
def test_what_is_equal_faster_or_scattered_is_no_outlier(numbers: tuple[float, ...]) -> None:
    assert out(figures(*numbers)) == []


def test_what_is_bad_depends_on_the_unit() -> None:
    assert out(figures(60, 62, 61, 85, unit="°C", what="load.temperature")) == ["n3"]
    assert out(figures(60, 62, 61, 30, unit="°C", what="load.temperature")) == [], "cooler is none"
    assert out(figures(60, 60, 60, 69, unit="°C")) == [], "and so are a few degrees"
    assert out(figures(10, 10, 10, 20, unit="µs")) == ["n3"]
    assert out(figures(7000, 7000, 7000, 6000, unit="MB/s")) == [], "disks of a class differ"
    assert out(figures(7000, 7000, 7000, 5000, unit="MB/s")) == ["n3"]
    assert only(figures(0, 0, 0, 5, unit="ms")).why_not == "half of the group measured nothing"
    assert not outliers.compares("exit status")
    (found,) = outliers.outliers(outliers.compare(figures(60, 62, 61, 85, unit="°C")))
    assert "+24 °C" in found["text"]


def test_the_worst_comes_first_and_names_last() -> None:
    values = (
        figures(700, 700, 700, 560)
        + figures(700, 700, 700, 400, what="gpu.copy", unit="GB/s")
        + names("a", "a", "a", "b")
    )
    found = outliers.outliers(outliers.compare(values))
    assert [outlier["what"] for outlier in found] == ["gpu.copy", "gpu.matmul", "VBIOS"]


def test_few_are_not_compared_and_said_to_be_few() -> None:
    for values in (figures(700, 400), names("a", "b"), figures(700)):
        found = only(values)
        assert found.why_not is not None
        assert found.why_not.startswith("too few to compare")
        assert found.outliers == ()
    assert out(figures(700, 700, 400)) == ["n2"]


def test_what_is_no_number_is_left_out_and_counted() -> None:
    odd = [float("nan"), float("inf"), -5.0, "700", None, True, 10**400, [700]]
    found = only(figures(700, 700, 700, 400, *odd))
    assert (len(found.values), found.left_out) == (4, len(odd))
    assert [outlier["host"] for outlier in found.outliers] == ["n3"]
    other = outliers.compare(figures(700, 700, 700) + names("a", "a", "a", "a"))
    assert {each.what: each.left_out for each in other} == {"gpu.matmul": 1, "VBIOS": 0}, (
        "a card without the figure counts"
    )
    assert only(names("a", "a", "a", None, "", 5)).left_out == 3


def test_cards_of_another_model_are_no_like() -> None:
    assert out(figures(700, 700, 700) + figures(90, what="gpu.matmul", group="NVIDIA L4")) == []


def test_of_the_same_check_made_twice_the_worse_counts() -> None:
    assert out([*figures(700, 700, 700, 700), Value("n1", "0", MODEL, "gpu.matmul", 400, "TFLOPS")]) == ["n1"]
    hot = figures(60, 60, 60, 60, unit="°C", what="load.temperature")
    assert out([*hot, Value("n1", "0", MODEL, "load.temperature", 90, "°C")]) == ["n1"]
    assert out([*hot, Value("n1", "0", MODEL, "load.temperature", 20, "°C")]) == []


def test_a_version_that_few_have_is_named_once_for_a_host() -> None:
    values = [
        Value(f"n{host}", f"{card} (00000000:1{card}:00.0)", MODEL, "VBIOS", "96.B" if host == 2 else "96.A")
        for host in range(4)
        for card in range(2)
    ]
    (found,) = outliers.outliers(outliers.compare(values))
    assert (found["host"], len(found["cards"]), found["value"], found["usual"]) == ("n2", 2, "96.B", "96.A")
    assert found["text"] == f"n2, cards 0, 1: VBIOS is 96.B, and 6 of 8 like it ({MODEL}) have 96.A"


def test_without_a_majority_nobody_is_right() -> None:
    found = only(names("a", "a", "b", "b"))
    assert (found.outliers, found.why_not) == ((), "no majority: 2 different ones")


# --------------------------------------------------------------------------------------------------------------------
# From records to the report
# --------------------------------------------------------------------------------------------------------------------


def card(index: int, **changes: Any) -> dict[str, Any]:
    told = {"index": index, "pci_bus_id": f"00000000:{index + 16:02X}:00.0", "name": MODEL, "vbios": "96.A"}
    return {**told, "power_limit_w": 700.0, "ecc": {"mode": True}, "clocks": {"sm_max_mhz": 1980}, **changes}


def record(speed: float = 700.0, **changes: Any) -> dict[str, Any]:
    labels = ["0 (00000000:10:00.0)", "1"]  # as nvidia-smi's checks and those of another program name a card
    found = [checks.passed("gpu.matmul", gpu=label, measured=speed, unit="TFLOPS") for label in labels]
    told = {"gpus": [card(0), card(1)], "summary": {"driver": "580.126.20", "kernel": "6.12"}}
    return {**told, "checks": [*found, checks.passed("temp.gpu", gpu="0", measured=speed / 10, unit="°C")], **changes}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = report.open_run(tmp_path / "run", "validate")
    for number in range(4):
        report.write_host(path, f"n{number}", record())
    return path


def told(run: Path) -> Any:
    report.aggregate(run)
    return json.loads((run / "outliers.json").read_text())


def test_equal_hosts_are_told_to_be_in_line(run: Path) -> None:
    found = told(run)
    assert found["outliers"] == []
    assert "Iglewicz" in found["statistic"]
    matmul = next(each for each in found["compared"] if each["what"] == "gpu.matmul")
    assert (matmul["group"], matmul["members"], matmul["left_out"], matmul["usual"]) == (MODEL, 8, 0, 700)
    assert {each["what"] for each in found["compared"]} >= {
        "VBIOS",
        "power limit",
        "highest SM clock",
        "ECC",
        "driver",
        "kernel",
    }
    assert not [each for each in found["compared"] if each["what"] == "temp.gpu"], (
        "what a card has at rest tells what ran before"
    )
    assert "Nothing is out of line" in (run / "report.html").read_text()


def test_a_slow_host_is_in_the_report_by_name(run: Path) -> None:
    report.write_host(run, "slow<b>", record(500.0, gpus=[card(0, vbios="96.B"), card(1)]))
    found = told(run)
    assert [(each["host"], each["what"]) for each in found["outliers"]] == [
        ("slow<b>", "gpu.matmul"),
        ("slow<b>", "gpu.matmul"),
        ("slow<b>", "VBIOS"),
    ]
    assert found["outliers"][0]["cards"] == ["0 (00000000:10:00.0)"]
    page = (run / "report.html").read_text()
    assert "28.6 % less" in page
    assert "slow&lt;b&gt;" in page
    assert "<b>" not in page.partition("<h2>Compared with their like</h2>")[2].partition("<h2>Hosts</h2>")[0]
    assert page.count('<circle cx="6" cy="6" r="3"') == 1, "both cards are at the same place"
    assert json.loads((run / "report.json").read_text())["verdict"] == "pass", "it is no proof of a fault"


def test_figures_of_disks_are_compared_within_a_class(run: Path) -> None:
    for number in range(4):
        fio = checks.passed("fio.seqread", measured=900.0 if number == 3 else 6800.0, unit="MB/s")
        report.write_host(run, f"n{number}", record(checks=[fio], measurements={"disk_class": "nvme4"}))
    assert [each["host"] for each in told(run)["outliers"]] == ["n3"]
    for number in range(4):
        fio = checks.passed(
            "fio.seqread", measured=900.0 if number == 3 else 6800.0, unit="MB/s", expected={"nominal": 7000}
        )
        report.write_host(run, f"n{number}", record(checks=[fio]))
    assert [each["group"] for each in told(run)["outliers"]] == ["disk of a class that promises 7000 MB/s"]
    for number in range(4):
        report.write_host(
            run, f"n{number}", record(checks=[checks.passed("fio.seqread", measured=number, unit="MB/s")])
        )
    assert told(run)["outliers"] == [], "disks of unknown class are no like"


def test_figures_of_a_host_are_compared_with_hosts_of_the_same_cards(run: Path) -> None:
    for number in range(5):
        busbw = checks.passed("nccl.all_reduce", measured=90.0 if number == 3 else 440.0, unit="GB/s")
        report.write_host(
            run, f"n{number}", record(checks=[busbw], gpus=[card(0)] if number == 4 else [card(0), card(1)])
        )
    found = told(run)
    assert [(each["host"], each["cards"], each["group"]) for each in found["outliers"]] == [
        ("n3", [], f"host with 2 × {MODEL}")
    ]


def test_a_host_that_stays_as_it_is_is_compared_too(run: Path) -> None:
    (run / "hosts" / "n0.json").unlink()
    plan = {"host": "n0", "verdict": "pass", "gpus": [], "cards": [card(0, vbios="96.C"), card(1)], "checks": []}
    run_directory.write_document(run / "plans", "n0", plan, packed=True)
    found = told(run)
    assert [(each["host"], each["what"], each["value"]) for each in found["outliers"]] == [("n0", "VBIOS", "96.C")]


def test_a_check_that_measured_nothing_has_no_figure(run: Path) -> None:
    for status in ("skip", "incomplete"):
        odd = checks.make("gpu.matmul", status, measured=1.0, unit="TFLOPS", gpu="0", reason="no time")
        report.write_host(run, "odd", record(checks=[odd]))
        assert told(run)["outliers"] == []


@pytest.mark.parametrize(
    "odd",
    [
        {"gpus": ["H100", None, 5, {"name": None}, {"name": MODEL, "clocks": 5, "ecc": "on", "vbios": ["x"]}]},
        {"gpus": "H100", "summary": "none"},
        {"summary": {"driver": {"loaded_version": "1"}, "kernel": ["6"]}},
        {"checks": [checks.passed("gpu.matmul", gpu="9", measured={"a": 1}, unit="TFLOPS")]},
        {"checks": [{**checks.passed("gpu.matmul", gpu="0", unit="TFLOPS"), "measured": [float("nan")]}]},
        {
            "checks": [{**checks.passed("fio.seqread", unit="MB/s"), "measured": 1e999, "expected": 5}],
            "measurements": {"disk_class": 5},
        },
        {"gpus": [card(0, name="x" * 10_000, vbios="y" * 10_000)]},
    ],
)
def test_odd_records_spoil_no_comparison(run: Path, odd: dict[str, Any]) -> None:
    report.write_host(run, "odd", record(**odd))
    found = told(run)
    assert [each for each in found["outliers"] if each["host"] != "odd"] == []
    assert len(json.dumps(found)) < 60_000


def test_passwords_in_names_are_not_shown(run: Path) -> None:
    report.write_host(run, "n9", record(gpus=[card(0, vbios="https://user:hunter2@example.org/x")]))
    report.aggregate(run)
    for name in ("outliers.json", "report.html"):
        assert "hunter2" not in (run / name).read_text()


def test_a_lone_card_shows_no_comparison(tmp_path: Path) -> None:
    path = report.open_run(tmp_path / "run", "validate")
    report.write_host(path, "desk", record(gpus=[card(0)]))
    report.aggregate(path)
    assert "Compared with their like" not in (path / "report.html").read_text()


def test_the_page_draws_so_many_strips_and_no_more() -> None:
    values = [value for number in range(60) for value in figures(700, 700, 700, 500, what=f"gpu.x{number}")]
    shown = comparison.shown(outliers.compare(values))
    assert shown is not None
    assert (len(shown["strips"]), len(shown["outliers"])) == (comparison.MOST_STRIPS, comparison.MOST_TOLD)
    assert shown["more"] == 60 - comparison.MOST_TOLD
    strip = shown["strips"][0]
    assert (strip["dots"], strip["bad"], strip["usual"]) == ([294], [6], 294)
    assert 6 < strip["limit"] < 294
