"""Engines of inference: what of a card each of them reaches, and how it keeps a sequence. From compat/sizing/assumptions.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpuwright.sizing import formats, tables

#: As `--engine` takes them, the most usual one first.
NAMES = ("vllm", "trt-llm", "llama.cpp", "transformers")


@dataclass(frozen=True)
class Engine:
    """What an engine reaches while tokens are generated.

    Attributes:
        name: as people write it.
        reads: share of the bandwidth at which weights are read.
        caches: share of the bandwidth at which keys and values are read.
        computes: share of the dense peak that products reach.
        launch: seconds that the host needs to start a layer, while the card works on the one before.
        gap: seconds between two layers.
        sequence: seconds that the host needs for each sequence.
        expert: seconds to start one expert, where each is started alone.
        newer: what of `launch` and `expert` a machine needs whose card is newer than Ampere: its host is newer too.
        unpacks: share of `reads` at which weights in fewer than 16 bits are read, for they are unpacked.
        repeats: whether keys and values are copied for each head of queries before they are read.
        paged: whether a sequence keeps no more than it has; where not, all keep as much as the longest.
        by_layers: whether whole layers are laid on each of several cards, which compute one after the other.
        chunk: tokens of prompts that go through the model at once; 0 for all of them.
        samples: sequences whose next token it chooses at once as it starts, to see what is left for the cache; 0 for those of the job.
        takes: the share of a card that it takes where nobody tells it another.
        started: GiB of a card that are in use as it starts, of which it takes none.
        low: the least of the estimate that it may be, as a factor.
        high: the most.
    """

    name: str
    reads: float
    caches: float
    computes: float
    launch: float
    gap: float
    sequence: float
    expert: float
    newer: float
    unpacks: float
    repeats: bool
    paged: bool
    by_layers: bool
    chunk: int
    samples: int
    takes: float
    started: float
    low: float
    high: float


@cache
def called(name: str) -> Engine:
    """The engine of a name of :data:`NAMES`."""
    row = next(row for row in tables.load()["assumptions"]["engines"] if row["name"] == name)
    return Engine(
        **{key: row[key] for key in row if key not in ("confirmed", "source", "chunk")}, chunk=row["chunk"] or 0
    )


def usual(weights: formats.Format, *, offload: bool = False) -> str:
    """The engine that people run such weights with: llama.cpp for its own formats and for weights on the host, else vLLM."""
    return "llama.cpp" if offload or formats.blocks(weights.name) else NAMES[0]
