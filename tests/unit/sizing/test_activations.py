"""Activations against what PyTorch was seen to keep: kept.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwright.sizing import config, formats, memory

SEEN: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("kept.yaml").read_text(encoding="utf-8"))
BATCH, CONTEXT = 3, 128
#: Rotary embeddings of a part of a head copy more than those of a whole one, which is not counted.
PARTLY_ROTARY = {"gpt_neox": 0.13, "phi": 0.05}


@pytest.mark.parametrize("row", SEEN["rows"], ids=lambda row: "-".join(str(row[key]) for key in row if key != "kept"))
def test_a_forward_pass_keeps_what_it_was_seen_to_keep(row: dict[str, Any]) -> None:
    shape = config.read(SEEN["configs"][row["model"]], row["model"])
    job = memory.Training(
        kind=row["kind"],
        scheme=formats.SCHEMES[{"fp32": "fp32", "bf16": "bf16"}[row["precision"]]],
        context=CONTEXT,
        batch=BATCH,
        micro=BATCH,
        recompute=row["recompute"],
        flash=row["attention"] == "flash",
    )
    counted = memory.activations(shape, job, layers=shape.layers)
    if row["recompute"] == "full":
        # One layer is there whole while it is its turn, later than this was seen.
        counted -= memory.activations(shape, job, layers=0, last=False)
    tolerance = 0.055 if row["model"] == "gpt2" and row["attention"] == "eager" else 0.015
    assert counted * BATCH * CONTEXT == pytest.approx(row["kept"], rel=PARTLY_ROTARY.get(row["model"], tolerance))


def test_a_layer_that_is_computed_again_is_there_whole() -> None:
    shape = config.read(SEEN["configs"]["llama"], "llama")
    kept, again = (memory.Training(recompute=recompute) for recompute in ("none", "full"))
    one = memory.activations(shape, kept, layers=2, last=False) - memory.activations(shape, kept, layers=1, last=False)
    assert memory.activations(shape, again, layers=0, last=False) == one


def test_dropout_keeps_a_byte_for_each_element_that_it_may_drop() -> None:
    """Two masks a layer behind attention and behind the MLP; one for each score, where scores are kept."""
    plain = config.read(SEEN["configs"]["gpt2"], "gpt2")
    assert not plain.dropout
    for flash, fused in ((True, False), (True, True), (False, False), (False, True)):
        job = memory.Training(flash=flash, fused=fused, context=64)
        some, none = (
            memory.activations(each, job, layers=2, last=False) - memory.activations(each, job, layers=1, last=False)
            for each in (replace(plain, dropout=0.1), plain)
        )
        # A fused kernel keeps the scores once where nothing is dropped, else as they were and as they are left, in 16 bits each.
        scores = 0 if flash else plain.heads * 64 * (3 if fused else 1)
        assert some - none == 2 * plain.hidden + scores
