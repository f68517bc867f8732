"""What was published of real runs, and which of it judges the estimates: compat/sizing/runs.yaml.

Every third run by date, and every third rate by date, is held apart: no default was chosen by it (`tools/calibrate.py` leaves it out, and
reads the split from here).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpuwright.sizing import architecture, cards, formats, memory, models, timing
from gpuwright.sizing import tables as own
from gpuwright.sizing.architecture import Architecture, Experts
from gpuwright.sizing.layout import Layout
from gpuwright.sizing.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.figures import Range

Run = dict[str, Any]

_FILE = Path(__file__).resolve().parents[3] / "compat/sizing/runs.yaml"
_HOUR = 3600
#: A cluster where a source does not say how many cards: training at this scale has hundreds.
_CLUSTER = 1024


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """The tables of what was published."""
    content: dict[str, Any] = yaml.load(_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content


def split(rows: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Rows that defaults may be chosen by, and those that are held apart: every third by the date of their source."""
    ordered = sorted(rows, key=lambda row: (tables()["sources"][row["source"][0]]["date"], row["name"]))
    return [row for at, row in enumerate(ordered) if at % 3 != 2], ordered[2::3]


def name(row: Run) -> str:
    """Of a row, as a test's id."""
    return str(row["name"])


# training ---------------------------------------------------------------------------------------------


def shape(row: Run) -> Architecture:
    """The shape of a run's model: that of our tables, else what its source prints, else one of as many parameters."""
    return _found(row["model"]) if row["model"] in _names() else told_shape(row)


@lru_cache(maxsize=256)
def _found(model: str) -> Architecture:
    return models.find(model)


@lru_cache(maxsize=1)
def _names() -> set[str]:
    return {str(each["name"]) for each in own.models()}


def told_shape(row: Run) -> Architecture:
    """The shape that a source prints; where it prints none, one of as many parameters."""
    told = float(row.get("active_parameters") or row["parameters"])
    if not all(row.get(key) for key in ("layers", "hidden", "heads")):
        # Of a mixture its experts count, whatever they are: it computes as many parameters as a token meets.
        experts = Experts(1, 1, 1) if row.get("active_parameters") else None
        return replace(architecture.typical(row["name"], told), experts=experts)
    head = row["hidden"] // row["heads"]
    return Architecture(row["name"], row["layers"], row["hidden"], row["heads"], row["heads"], head, 1, 1, told=told)


def job(row: Run) -> memory.Training:
    """The job of a run."""
    scheme = row["precision"] if row.get("precision") == "fp8" else "mixed"
    kind = row.get("method", "full")
    recompute = row.get("recompute") or ("none" if kind == "full" else "full")
    return memory.Training(
        kind=kind, scheme=formats.SCHEMES[scheme], context=row.get("context") or 2048, recompute=recompute
    )


def card(row: Run) -> Card:
    """The card of a run."""
    return cards.known()[row["card"]]


def generation(row: Run) -> str:
    """The generation of a card that is made for machines of eight; all others are one."""
    found = card(row)
    return found.architecture.partition(" ")[0] if found.kind == "datacenter" else "others"


def gpus(row: Run) -> int:
    """How many cards it had."""
    return int(row.get("gpus") or _CLUSTER)


def hours(row: Run) -> float | None:
    """Hours of one card that a run took."""
    if row.get("gpu_hours"):
        return float(row["gpu_hours"])
    return float(row["days"]) * DAY / _HOUR * row["gpus"] if row.get("days") and row.get("gpus") else None


def tokens_a_second(row: Run) -> float | None:
    """Tokens a second of one card, as published or as it follows from what was."""
    each = timing.training_flops(shape(row), job(row))
    if row.get("tokens_per_second_per_gpu"):
        return float(row["tokens_per_second_per_gpu"])
    if row.get("tokens") and hours(row):
        return float(row["tokens"]) / (hours(row) or 1) / _HOUR
    peak = card(row).peak(job(row).scheme.precision)
    if row.get("mfu"):
        return float(row["mfu"]) * peak / each
    if row.get("tflops_per_gpu"):
        again = 0.75 if row.get("tflops_count") == "hardware" and row.get("recompute") == "full" else 1
        return float(row["tflops_per_gpu"]) * 1e12 * again / each
    return None


def timed() -> list[Run]:
    """Runs whose speed is known: in 16 or 8 bits, on cards of the tables."""
    return [
        row for row in tables()["rows"] if row.get("card") and row.get("precision") != "fp4" and tokens_a_second(row)
    ]


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    found = list(ratios)
    return math.exp(sum(map(math.log, found)) / len(found))


# inference --------------------------------------------------------------------------------------------

#: As the sources call engines, and formats.
_ENGINES = {"vLLM": "vllm", "TensorRT-LLM": "trt-llm", "llama.cpp": "llama.cpp", "transformers": "transformers"}
_FORMATS = {"f16": "fp16", "fp4": "nvfp4"}
#: NVIDIA's checkpoints in 8 and 4 bits keep keys and values in 8.
_CACHE = {"fp8": 1.0, "fp4": 1.0}
#: What a source says nothing of: a short answer.
_SHORT = 512
#: Sequences at once, at most, where a source has as many as fit; and the share of the memory that they have.
_MOST, _SHARE = 2048, 0.95


def rated() -> list[Run]:
    """Rates of generating, by an engine of ours on a card of the tables."""
    return [
        row
        for row in tables()["inference"]
        if row["software"] in _ENGINES and row["model"] in _names() and row["card"] in cards.known()
    ]


def generating(row: Run) -> tuple[Architecture, memory.Inference, Layout]:
    """The model, the job and the layout of a rate: with half of what is generated in the cache, which is the mean."""
    found, engine = _found(row["model"]), _ENGINES[row["software"]]
    quantisation = str(row["quantisation"])
    seen = int(row.get("prompt", 0) + row.get("generated", _SHORT) / 2)
    plan = (
        Layout("single", 1, 1, row["gpus"])
        if engine in ("llama.cpp", "transformers")
        else Layout("single", 1, row["gpus"])
    )
    plain = memory.Inference(
        weights=formats.called(_FORMATS.get(quantisation, quantisation)),
        cache=_CACHE.get(quantisation, 2.0),
        context=seen,
        engine=engine,
        host_layers=row.get("host_layers", 0),
    )
    return found, replace(plain, batch=row.get("batch") or _as_many(row, found, plain, plan)), plan


def _as_many(row: Run, found: Architecture, plain: memory.Inference, plan: Layout) -> int:
    whole = replace(plain, context=row["prompt"] + row["generated"])
    room = card(row).memory * _SHARE
    held = [memory.inference(found, replace(whole, batch=each), plan).value for each in (1, 2)]
    return max(min(int((room - held[0]) / max(held[1] - held[0], 1.0)) + 1, _MOST), 1)


def rate(row: Run) -> Range:
    """Tokens a second that are generated, with the time that prompts take between them, as we estimate it."""
    found, plain, plan = generating(row)
    each = timing.decode(found, plain, plan, card(row), host=row.get("host_gbs", 0) * 1e9)
    prompt = replace(plain, context=max(row.get("prompt", 0), 1))
    if row.get("prompt", 0) <= 1:
        return each
    generated = row["generated"]
    between = timing.prefill(found, prompt, plan, card(row)).value * plain.batch
    if plain.batch == 1:
        # Qwen's speeds are those of the answer alone.
        return each
    seconds = generated * plain.batch / each.value + between
    return each.times(generated * plain.batch / seconds / each.value)
