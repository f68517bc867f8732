"""What a proof measured of the cards bounds what `size` promises of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwright import paths, proven, runs
from gpuwright.sizing import timing
from gpuwright.sizing.figures import Range
from tests.unit.cli.test_top import Machine, machine, sample

__all__ = ["machine"]  # fixture

H100 = "NVIDIA H100 80GB HBM3"


def device(bf16: float, copy: float, **more: Any) -> dict[str, Any]:
    return {
        "gpu": "0 (00000000:1B:00.0)",
        "kind": "card",
        "name": H100,
        "tflops": {"bf16": bf16},
        "bandwidth_gbs": {"copy": copy, "triad": copy - 1},
        **more,
    }


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A run that is kept, in which cards of a host were loaded."""
    monkeypatch.setattr(runs, "directory", lambda: tmp_path)

    def write(name: str, *devices: dict[str, Any], verb: str = "validate", host: str = "localhost") -> Path:
        place = tmp_path / name
        (place / "hosts").mkdir(parents=True)
        (place / paths.MARKER).write_text("")
        (place / "run.json").write_text(json.dumps({"verb": verb, "started": f"{name}T03:00:00Z"}))
        figures = [{"name": "pytorch", "devices": list(devices)}]
        record = {"host": host, "measurements": {"framework_loads": figures}}
        (place / "hosts" / f"{host}.json").write_text(json.dumps(record))
        return place

    return write


def test_the_slowest_card_of_the_last_proof_counts(proof: Callable[..., Path]) -> None:
    proof("2026-11-20", device(700, 2900))
    proof("2026-11-24", device(600, 2800), device(650, 2500), device(1, 1, kind="instance"))
    proof("2026-11-25", verb="validate")
    proof("2026-11-26", device(1, 1), verb="doctor")
    measured = timing.Measured({"bf16": 600e12}, 2500e9, "2026-11-24")
    assert proven.cards("localhost") == {H100: measured}


def test_where_nothing_was_measured_nothing_is_said(proof: Callable[..., Path]) -> None:
    assert proven.cards("localhost") == {}
    proof("2026-11-24", device(600, 2800), host="other")
    assert proven.cards("localhost") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"measurements": 1}', '{"measurements": {"framework_loads": {"a": 1}}}'])
def test_a_record_that_cannot_be_read_is_none(text: str, proof: Callable[..., Path]) -> None:
    place = proof("2026-11-24", device(600, 2800))
    (place / "hosts" / "localhost.json").write_text(text)
    assert proven.cards("localhost") == {}


@pytest.mark.parametrize("value", [0, -1, "fast", None, True, 1e999])
def test_a_figure_that_is_none_bounds_nothing(value: Any, proof: Callable[..., Path]) -> None:
    proof("2026-11-24", device(600, 2800, tflops={"bf16": value}, bandwidth_gbs={"copy": value}))
    measured = proven.cards("localhost")[H100]
    assert (measured.products, measured.bandwidth) == ({}, 0.0)


def test_no_share_is_above_what_was_measured() -> None:
    assert timing.at_most(Range(0.2, 0.4, 0.6), 0.5) == Range(0.2, 0.4, 0.5)
    assert timing.at_most(Range(0.2, 0.4, 0.6), 0.1) == Range(0.1, 0.1, 0.1)
    assert timing.at_most(Range(0.2, 0.4, 0.6), 0.0) == Range(0.2, 0.4, 0.6)


def rates(gpuwright: Callable[..., Any], *words: str) -> dict[str, Any]:
    (found,) = gpuwright("size", "llama-3.1-8b", *words, "--here", "--json").json["hosts"]["localhost"]["answers"]
    return {figure["name"]: figure for figure in found["speed"]}


@pytest.mark.parametrize("words", [(), ("--train", "lora")])
def test_a_card_that_is_slower_than_its_data_sheet_is_told_with_the_day(
    words: tuple[str, ...], gpuwright: Callable[..., Any], machine: Machine, proof: Callable[..., Path]
) -> None:
    machine.answers = [[sample(name=H100)], [sample(name=H100)], [sample(name=H100)]]
    before = rates(gpuwright, *words)["tokens a second"]
    proof("2026-11-23", device(980, 3340))
    healthy = rates(gpuwright, *words)["tokens a second"]
    assert (healthy["low"], healthy["value"]) == (pytest.approx(before["low"]), pytest.approx(before["value"]))
    assert "as its proof of 2026-11-23 measured" in healthy["text"]
    proof("2026-11-24", device(100, 400))
    slow = rates(gpuwright, *words)["tokens a second"]
    assert slow["high"] < 0.5 * before["low"]
    assert "10%" in slow["text"] or "12%" in slow["text"]


def test_what_the_person_expects_is_not_bounded(
    gpuwright: Callable[..., Any], machine: Machine, proof: Callable[..., Path]
) -> None:
    proof("2026-11-24", device(100, 400))
    machine.answers = [[sample(name=H100)]]
    told = rates(gpuwright, "--train", "lora", "--mfu", "40%")["tokens a second"]
    assert told["text"].startswith("40% of")
