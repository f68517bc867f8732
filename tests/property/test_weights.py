"""Files of weights that are broken anywhere: they are read, or end in one sentence."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwright.errors import BadInput
from gpuwright.sizing import models


def _pair(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _tensor(name: str, shape: tuple[int, ...], kind: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)


_PAIRS = (
    _pair("general.architecture", 8, _text("llama")),
    *(
        _pair(f"llama.{name}", 4, struct.pack("<I", value))
        for name, value in (("block_count", 1), ("embedding_length", 256))
    ),
    _pair("llama.attention.head_count", 9, struct.pack("<IQI", 4, 1, 8)),
    _pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + _text("a") + _text("bc")),
    _pair("general.weight", 6, struct.pack("<f", 1.0)),
)
_TENSORS = (
    _tensor("blk.0.attn_k.weight", (256, 64), 12),
    _tensor("token_embd.weight", (256, 2), 0),
    _tensor("a", (), 0),
)
GGUF = b"GGUF" + struct.pack("<IQQ", 3, len(_TENSORS), len(_PAIRS)) + b"".join((*_PAIRS, *_TENSORS)) + bytes(12_000)
_HEAD = json.dumps(
    {"model.layers.0.self_attn.k_proj.weight": {"dtype": "F16", "shape": [4, 8], "data_offsets": [0, 64]}}
).encode()
SAFETENSORS = struct.pack("<Q", len(_HEAD)) + _HEAD + bytes(64)

BREAKS = st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4)


def _broken(content: bytes, breaks: list[tuple[int, bytes]], cut: int) -> bytes:
    found = bytearray(content)
    for at, piece in breaks:
        found[at : at + len(piece)] = piece
    return bytes(found[:cut]) if cut else bytes(found)


@pytest.mark.parametrize(("name", "content"), [("m.gguf", GGUF), ("m.safetensors", SAFETENSORS)])
def test_what_is_broken_is_made_of_a_file_that_is_read(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert models.named(str(tmp_path / name)).format


@pytest.mark.parametrize(("name", "content"), [("m.gguf", GGUF), ("m.safetensors", SAFETENSORS)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(breaks=BREAKS, cut=st.integers(0, 700))
def test_a_file_that_is_broken_anywhere_is_read_or_refused(
    name: str, content: bytes, breaks: list[tuple[int, bytes]], cut: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(_broken(content, breaks, cut))
    with suppress(BadInput):
        models.named(str(tmp_path / name))
