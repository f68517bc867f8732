"""Models as they lie on a disk, written by the packages of both formats, and files that are broken or hostile."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, files, headers, local, memory, models, tables
from gpuwright.sizing.architecture import Experts
from gpuwright.sizing.layout import Layout

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}


def matrices(layers: int = 2) -> dict[str, tuple[int, ...]]:
    """The tensors that a Llama of this shape has in its files."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (1024, 256),
        "lm_head.weight": (1024, 256),
        "model.norm.weight": (256,),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        found |= {at + "self_attn.q_proj.weight": (256, 256), at + "self_attn.o_proj.weight": (256, 256)}
        found |= {at + "self_attn.k_proj.weight": (64, 256), at + "self_attn.v_proj.weight": (64, 256)}
        found |= {at + "mlp.gate_proj.weight": (512, 256), at + "mlp.up_proj.weight": (512, 256)}
        found |= {at + "mlp.down_proj.weight": (256, 512)}
        found |= {at + "input_layernorm.weight": (256,), at + "post_attention_layernorm.weight": (256,)}
    return found


def arrays(shapes: dict[str, tuple[int, ...]], kind: Any = np.float16) -> dict[str, Any]:
    return {name: np.zeros(shape, kind) for name, shape in shapes.items()}


def directory(folder: Path, config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors")
    return folder


def held(text: str) -> memory.Memory:
    found = models.named(text)
    assert found.format
    return memory.inference(found.shape, memory.Inference(weights=found.format), Layout())


# safetensors ------------------------------------------------------------------------------------------


def test_a_directory_is_counted_byte_by_byte(tmp_path: Path) -> None:
    tensors = arrays(matrices())
    where = directory(tmp_path / "m", CONFIG, tensors)
    found = models.named(str(where))
    assert found.weights == "fp16"
    assert architecture.parameters(found.shape) == sum(each.size for each in tensors.values())
    assert held(str(where)).of("weights") == pytest.approx(sum(each.nbytes for each in tensors.values()), abs=1)


def test_a_configuration_its_directory_and_its_file_have_the_same_memory(tmp_path: Path) -> None:
    where = directory(tmp_path / "m", CONFIG, arrays(matrices()))
    alone = directory(tmp_path / "alone", tensors=arrays(matrices()))
    value = held(str(where)).value
    for other in (where / "config.json", where / "model.safetensors", alone / "model.safetensors"):
        assert held(str(other)).value == pytest.approx(value, rel=0.01)
        assert held(str(other)).of("KV cache") == held(str(where)).of("KV cache")


def test_files_in_parts_are_all_counted(tmp_path: Path) -> None:
    where = directory(tmp_path / "m", CONFIG)
    shapes = list(matrices().items())
    for number, half in enumerate((shapes[:7], shapes[7:]), 1):
        save_file(arrays(dict(half)), where / f"model-{number:05}-of-00002.safetensors")
    whole = held(str(directory(tmp_path / "whole", CONFIG, arrays(matrices()))))
    assert held(str(where)).value == held(str(where / "model-00001-of-00002.safetensors")).value == whole.value
    (where / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(BadInput, match="lacks a part of the model: model-00001"):
        models.named(str(where))


def test_weights_that_lie_there_twice_count_once(tmp_path: Path) -> None:
    where = directory(tmp_path / "m", CONFIG, arrays(matrices()))
    once = held(str(where)).value
    save_file(arrays(matrices()), where / "consolidated.safetensors")
    save_file(arrays(matrices()), where / "model.fp16.safetensors")
    assert held(str(where)).value == once


def test_layers_that_predict_further_tokens_masks_and_a_second_head_are_not_loaded(tmp_path: Path) -> None:
    once = held(str(directory(tmp_path / "once", {**CONFIG, "tie_word_embeddings": True}, arrays(
        {name: shape for name, shape in matrices().items() if name != "lm_head.weight"}
    ))))  # fmt: skip
    more = {**matrices(3), "model.layers.0.attn.bias": (64, 64), "mtp.fc.weight": (64, 64)}
    found = held(str(directory(tmp_path / "more", {**CONFIG, "tie_word_embeddings": True}, arrays(more))))
    assert found.of("weights") == once.of("weights")


def test_files_without_a_configuration_tell_the_heads(tmp_path: Path) -> None:
    """Heads are as wide as the keys of one sequence, and no wider than is usual."""
    shape = models.named(str(directory(tmp_path / "m", None, arrays(matrices())))).shape
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) == (2, 256, 4, 1, 64)


def test_an_index_alone_says_the_bytes(tmp_path: Path) -> None:
    where = directory(tmp_path / "m", CONFIG)
    (where / files.INDEX).write_text(
        json.dumps({"metadata": {"total_size": 3_000_000}, "weight_map": {}}), encoding="utf-8"
    )
    assert (
        held(str(where)).of("weights")
        == held(str(where / files.INDEX)).of("weights")
        == pytest.approx(3_000_000, abs=1)
    )


@pytest.mark.parametrize("total", [None, "3000000", 0, -1, 1 << 60])
def test_an_index_without_a_size_that_files_have_is_refused(total: Any, tmp_path: Path) -> None:
    where = directory(tmp_path / "m", CONFIG)
    (where / files.INDEX).write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": {}}), encoding="utf-8"
    )
    with pytest.raises(BadInput, match="does not say total_size"):
        models.named(str(where))


def test_a_quantised_model_is_as_large_as_its_files(tmp_path: Path) -> None:
    tensors = arrays({"model.embed_tokens.weight": (64, 256)})
    tensors["model.layers.0.mlp.up_proj.qweight"] = np.zeros((32, 512), np.int32)
    config = {**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    found = models.named(str(directory(tmp_path / "m", config, tensors)))
    assert (found.weights, found.text) == ("int4", "counted byte by byte in its files")
    assert found.format
    assert architecture.stored(found.shape, found.format) == pytest.approx(
        sum(each.nbytes for each in tensors.values())
    )


@pytest.mark.parametrize(("kind", "held"), [(np.int32, 8), (np.uint8, 2)])
@pytest.mark.parametrize("name", ["qweight", "weight_packed"])
def test_weights_that_are_packed_count_each(name: str, kind: Any, held: int, tmp_path: Path) -> None:
    tensors = {f"model.layers.0.mlp.up_proj.{name}": np.zeros((32, 512), kind)}
    found = models.named(str(directory(tmp_path / "m", None, tensors)))
    assert architecture.parameters(found.shape) == 32 * 512 * held


#: By its name (github huggingface/safetensors, safetensors/src/tensor.rs); elements of less than a byte are packed.
@pytest.mark.parametrize(
    ("kind", "bits"),
    [(kind, int(re.findall(r"\d+", kind)[0]) if kind != "BOOL" else 8) for kind in headers._SAFETENSORS],
)
def test_each_kind_of_element_has_its_bits(kind: str, bits: int, tmp_path: Path) -> None:
    size = 32 * 64 * bits // 8
    said = json.dumps({"x": {"dtype": kind, "shape": [32, 64], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(said)) + said + bytes(size))
    assert headers.safetensors(path).tensors[0].bytes == size
    path.write_bytes(struct.pack("<Q", len(said)) + said.replace(b"[32, 64]", b"[32, 65]") + bytes(size))
    with pytest.raises(BadInput):
        headers.safetensors(path)


def test_a_cache_of_the_hub_has_its_snapshot_read(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--name"
    directory(cache / "snapshots" / "aaa", {**CONFIG, "num_hidden_layers": 1}, arrays(matrices(1)))
    newest = directory(cache / "snapshots" / "bbb", CONFIG, arrays(matrices()))
    os.utime(cache / "snapshots" / "aaa", (1, 1))
    assert models.find(str(cache)).layers == 2
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("aaa", encoding="utf-8")
    assert models.find(str(cache)).layers == 1
    (cache / "refs" / "main").write_text("../../..", encoding="utf-8")
    assert models.find(str(cache)).layers == 2
    assert newest.is_dir()


def test_a_cache_without_a_snapshot_is_told(tmp_path: Path) -> None:
    (tmp_path / "models--org--name" / "snapshots").mkdir(parents=True)
    with pytest.raises(BadInput, match="a cache without a snapshot"):
        models.named(str(tmp_path / "models--org--name"))


def test_an_adapter_is_counted_on_the_model_that_it_is_for(tmp_path: Path) -> None:
    base = directory(tmp_path / "base", CONFIG, arrays(matrices()))
    where = tmp_path / "adapter"
    where.mkdir()
    (where / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(base), "peft_type": "LORA", "r": 8})
    )
    own = {"base_model.model.layers.0.self_attn.q_proj.lora_A.weight": np.zeros((2048, 256), np.float32)}
    save_file(own, where / "adapter_model.safetensors")
    assert held(str(where)).of("weights") == pytest.approx(held(str(base)).of("weights") + 2048 * 256 * 4, abs=1)
    assert models.named(str(where)).text == f"an adapter of 2.0 MiB on {base}"
    assert models.find(str(where)).beside == models.find(str(base)).beside + 2048 * 256


@pytest.mark.parametrize(
    ("base", "said"), [(None, "does not say which"), ("", "does not say which"), (".", "is for another")]
)
def test_an_adapter_of_nothing_and_of_itself_is_refused(
    base: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}), encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        models.named(".")


def test_adapters_of_each_other_are_refused(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / one).mkdir()
        (tmp_path / one / "adapter_config.json").write_text(
            json.dumps({"base_model_name_or_path": str(tmp_path / other)})
        )
    with pytest.raises(BadInput, match="is for another adapter"):
        models.named(str(tmp_path / "a"))


def test_a_directory_of_diffusers_has_all_its_parts_counted(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
    for part in ("transformer", "vae"):
        (tmp_path / part).mkdir()
        save_file(arrays({"x": (64, 64)}), tmp_path / part / "diffusion_pytorch_model.safetensors")
        save_file(arrays({"x": (64, 64)}), tmp_path / part / "diffusion_pytorch_model.fp16.safetensors")
    assert held(str(tmp_path)).of("weights") == 2 * 64 * 64 * 2
    assert held(str(tmp_path)).of("KV cache") == 0
    assert held(str(tmp_path)).of("activations") == 768 * 2 * 1024**2
    for side, pixels in ((512, 512**2), (16_384, 16_384**2), ("512", 1024**2), (16_385, 1024**2), (0, 1024**2)):
        (tmp_path / "vae" / "config.json").write_text(json.dumps({"sample_size": side}))
        assert held(str(tmp_path)).of("activations") == 768 * 2 * pixels


# GGUF -------------------------------------------------------------------------------------------------


def write_gguf(
    path: Path, kind: Any = gguf.GGMLQuantizationType.Q4_K, layers: int = 2, family: str = "llama", **more: Any
) -> int:
    """A Llama, by this name, with tokens as real ones have them; returns the bytes of its tensors."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(layers)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_context_length(4096)
    writer.add_token_list([f"<{number}>" for number in range(1024)])
    writer.add_token_scores([0.0] * 1024)
    for name, value in more.items():
        writer.add_uint32(f"{family}.{name.replace('__', '.')}", value)
    shapes = {"token_embd.weight": (1024, 256), "output.weight": (1024, 256)}
    for layer in range(layers):
        at = f"blk.{layer}."
        shapes |= {at + "attn_q.weight": (256, 256), at + "attn_k.weight": (64, 256), at + "attn_v.weight": (64, 256)}
        shapes |= {at + "attn_output.weight": (256, 256), at + "ffn_up.weight": (512, 256)}
        shapes |= {at + "ffn_gate.weight": (512, 256), at + "ffn_down.weight": (256, 512)}
    total = 0
    for name, shape in shapes.items():
        data = np.zeros(gguf.quant_shape_to_byte_shape(shape, kind), np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
        total += data.nbytes
    norm = np.zeros(256, np.float32)
    writer.add_tensor("output_norm.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total + norm.nbytes


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "IQ4_XS", "Q8_0", "Q4_0", "MXFP4", "BF16", "F32"])
def test_a_gguf_file_is_as_large_as_its_tensors(kind: str, tmp_path: Path) -> None:
    total = write_gguf(tmp_path / "m.gguf", gguf.GGMLQuantizationType[kind])
    real = sum(int(each.n_bytes) for each in gguf.GGUFReader(tmp_path / "m.gguf").tensors)
    assert sum(each.bytes for each in headers.gguf(tmp_path / "m.gguf").tensors) == total == real
    assert held(str(tmp_path / "m.gguf")).of("weights") == pytest.approx(total, abs=1)
    found = models.named(str(tmp_path / "m.gguf"))
    assert found.weights == {"F32": "fp32"}.get(kind, kind.lower())
    assert found.shape.context == 4096


def test_a_gguf_file_and_its_configuration_keep_the_same_of_a_sequence(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    config = models.find(str(directory(tmp_path / "m", CONFIG) / "config.json"))
    found = models.find(str(tmp_path / "m.gguf"))
    assert architecture.kept(found, 1000) == architecture.kept(config, 1000)
    assert architecture.parameters(found) == pytest.approx(architecture.parameters(config), rel=0.01)
    assert architecture.active(found) == pytest.approx(architecture.active(config), rel=0.01)


@pytest.mark.parametrize(
    "kind", [each for each in gguf.GGMLQuantizationType if each in gguf.GGML_QUANT_SIZES], ids=lambda each: each.name
)
def test_every_type_of_a_gguf_file_has_the_bytes_that_its_package_says(kind: gguf.GGMLQuantizationType) -> None:
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    assert headers._GGUF[kind] == (kind.name.lower(), elements, size)


def test_a_file_that_ollama_calls_by_its_digest_is_read(tmp_path: Path) -> None:
    total = write_gguf(tmp_path / "sha256-0123")
    assert held(str(tmp_path / "sha256-0123")).of("weights") == pytest.approx(total, abs=1)


def test_a_window_of_a_gguf_file_is_kept_to(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", attention__sliding_window=100, attention__sliding_window_pattern=2)
    assert architecture.kept(models.find(str(tmp_path / "m.gguf")), 1000) == (1000 + 100) * 2 * 64


@pytest.mark.parametrize(
    ("kind", "family"),
    [("gemma2", "gemma2"), ("gemma3", "gemma3_text"), ("gemma3n", "gemma3n_text"), ("cohere2", "cohere2"), ("gpt-oss", "gpt_oss"),
     ("llama4", "llama4_text"), ("exaone4", None)],
)  # fmt: skip
def test_a_gguf_file_without_its_period_has_that_of_its_family(kind: str, family: str | None, tmp_path: Path) -> None:
    # The pattern of EXAONE 4.0 is in its configuration: LLLG.
    period = tables.families()[family]["window_period"] if family else len("LLLG")
    write_gguf(tmp_path / "m.gguf", layers=60, family=kind, attention__sliding_window=100)
    found = models.find(str(tmp_path / "m.gguf"))
    assert {each.window: each.layers for each in found.kept} == {0: 60 // period, 100: 60 - 60 // period}


def test_parts_of_a_gguf_file_are_all_counted(tmp_path: Path) -> None:
    total = sum(write_gguf(tmp_path / f"m-{number:05}-of-00002.gguf") for number in (1, 2))
    assert held(str(tmp_path / "m-00002-of-00002.gguf")).of("weights") == pytest.approx(total, abs=1)
    assert held(str(tmp_path)).of("weights") == pytest.approx(total, abs=1)


def test_latent_attention_of_a_gguf_file_keeps_one_vector_of_a_token() -> None:
    keys = headers.Tensor("blk.0.attn_kv_a_mqa.weight", "f16", (2048, 576), 2048 * 576 * 2)
    assert local._kept_of_block({keys.name: keys}, 0, 1) == (576, True)


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["attn_qkv"], 8), (["attn_qkv", "ssm_conv1d"], 0), (["ssm_conv1d"], 0), (["attn_k", "attn_v"], 128)],
)
def test_a_block_of_a_gguf_file_keeps_keys_and_values_or_a_state(names: list[str], kept: int) -> None:
    tensors = [headers.Tensor(f"blk.0.{name}.weight", "f16", (2048, 64), 1) for name in names]
    assert local._kept_of_block({each.name: each for each in tensors}, 0, 8) == (kept, False)


def test_a_model_in_one_part_is_read(tmp_path: Path) -> None:
    total = write_gguf(tmp_path / "m-00001-of-00001.gguf")
    assert held(str(tmp_path / "m-00001-of-00001.gguf")).of("weights") == pytest.approx(total, abs=1)


def test_more_parts_than_any_model_has_are_not_looked_for(tmp_path: Path) -> None:
    for count, said in (
        (2048, "lacks a part of the model"),
        (2049, "no model is in 2049 parts"),
        (0, "no model is in 0 parts"),
    ):
        write_gguf(tmp_path / f"m-00001-of-{count:05}.gguf")
        with pytest.raises(BadInput, match=said):
            models.named(str(tmp_path / f"m-00001-of-{count:05}.gguf"))


def test_a_directory_of_several_gguf_files_is_asked_for_one(tmp_path: Path) -> None:
    for name in ("a-Q4.gguf", "a-Q8.gguf", "mmproj-a.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(BadInput, match="has several models") as raised:
        models.named(str(tmp_path))
    assert raised.value.suggestions == [f"name one: {tmp_path / name}" for name in ("a-Q4.gguf", "a-Q8.gguf")]


# broken and hostile -----------------------------------------------------------------------------------


def head(entries: object, tail: int = 1000, length: int | None = None) -> bytes:
    written = json.dumps(entries).encode()
    return struct.pack("<Q", len(written) if length is None else length) + written + bytes(tail)


GOOD = {"dtype": "F16", "shape": [4, 4], "data_offsets": [0, 32]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no safetensors file"),
        (b"\x00" * 7, "is no safetensors file"),
        (head({}, length=2**63), "is no safetensors file"),
        (head({}, length=1 << 40), "is no safetensors file"),
        (b"\x05\x00\x00\x00\x00\x00\x00\x00hello", "is not JSON"),
        (b"\x01" + bytes(7) + b"1" + bytes(9), "is no safetensors file"),
        (head({}, tail=0), "has no weights"),
        (head([]), "is not a JSON object"),
        (head({"a": 3}), "does not say what tensor 'a' is"),
        (head({"a": {**GOOD, "dtype": "Q4_K"}}), "does not say what tensor"),
        (head({"a": {**GOOD, "shape": [4, -4]}}), "does not say what tensor"),
        (head({"a": {**GOOD, "shape": [True, 16]}}), "does not say what tensor"),
        (head({"a": {**GOOD, "shape": [1] * 9}}), "does not say what tensor"),
        (head({"a": {**GOOD, "data_offsets": [0]}}), "does not say what tensor"),
        (head({"a": {**GOOD, "data_offsets": [32, 0]}}), "does not say what tensor"),
        (head({"a": {**GOOD, "data_offsets": [0, 64]}}), "does not say what tensor"),
        (head({"a": GOOD}, tail=16), "is cut off"),
        (head({"a": GOOD}, tail=31), "is cut off"),
        (head({"a": {"dtype": "F16", "shape": [2**40, 2**40], "data_offsets": [0, 2**81]}}), "is cut off"),
    ],
)
def test_a_broken_safetensors_file_ends_in_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match=said):
        models.named(str(tmp_path / "m.safetensors"))


def test_a_head_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", headers.MOST_OF_SAFETENSORS + 1))
    os.truncate(path, headers.MOST_OF_SAFETENSORS + 100)
    with pytest.raises(BadInput, match="its head has more than 32 MiB"):
        models.named(str(path))


def pair(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def gguf_head(*pairs: bytes, tensors: int = 0, version: int = 3, count: int | None = None, tail: bytes = b"") -> bytes:
    return (
        b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs) if count is None else count) + b"".join(pairs) + tail
    )


def tensor(dimensions: int, shape: tuple[int, ...], kind: int) -> bytes:
    return (
        struct.pack("<Q1sI", 1, b"a", dimensions) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, 0)
    )


@pytest.mark.parametrize(("length", "kept"), [(2, [7, 7]), (4096, [7] * 4096), (4097, 4097)])
def test_of_a_long_list_its_length_is_kept(length: int, kept: object, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_head(pair("a", 9, struct.pack("<IQ", 4, length) + struct.pack("<I", 7) * length)))
    assert headers.gguf(path).said["a"] == kept


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is cut off"),
        (b"GGML" + bytes(100), "is no GGUF file"),
        (gguf_head(version=1), "of version 1"),
        (gguf_head(version=50331648), "is not read"),
        (gguf_head(count=2**63), "no model has"),
        (gguf_head(tensors=2**40), "no model has"),
        (gguf_head(count=3), "its head ends in the middle"),
        (gguf_head(pair("a", 8, struct.pack("<Q", 2**62))), "its head has more than 128 MiB"),
        (gguf_head(pair("a", 8, struct.pack("<Q", 100))), "its head ends in the middle"),
        (gguf_head(pair("a", 9, struct.pack("<IQ", 4, 2**60))), "its head has more than 128 MiB"),
        (gguf_head(pair("a", 9, struct.pack("<IQ", 8, 2**60))), "its head ends in the middle"),
        (gguf_head(pair("a", 9, struct.pack("<IQ", 9, 5) + bytes(64))), "a list of type 9"),
        (gguf_head(pair("a", 77, b"")), "a value of type 77"),
        (gguf_head(tensors=1, tail=tensor(9, (), 0)), "has 9 dimensions"),
        (gguf_head(tensors=1, tail=tensor(1, (256,), 99)), "is of type 99"),
        (gguf_head(tensors=1, tail=tensor(1, (100,), 12)), "no whole blocks of q4_k"),
        (gguf_head(tensors=1, tail=tensor(2, (2**40, 2**40), 0)), "its tensors are longer than the file"),
        (gguf_head(), "has no weights"),
        (gguf_head(pair("general.architecture", 8, struct.pack("<Q4s", 4, b"clip"))), "its architecture is 'clip'"),
    ],
)
def test_a_broken_gguf_file_ends_in_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(BadInput, match=said):
        models.named(str(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", ["m.gguf", "sub/m.gguf", "./m.gguf"])
def test_a_file_is_found_from_where_one_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    total = write_gguf(Path(name))
    assert held(name).of("weights") == pytest.approx(total, abs=1)
    # One that is not there is looked for among the names, where it may be one of the hub's.
    with pytest.raises(BadInput):
        models.named("other-" + Path(name).name)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(BadInput, match="is no file"):
        models.named(str(tmp_path / "m.gguf"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="has nothing of a model"):
        models.named(str(tmp_path / "empty"))


def test_a_number_of_a_gguf_file_that_is_none_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", expert_count=2**31)
    with pytest.raises(BadInput, match="expert_count has to be a whole number"):
        models.named(str(tmp_path / "m.gguf"))


def test_a_file_that_ends_with_its_tensors_is_whole_and_a_tensor_has_up_to_eight_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(head({"a": GOOD}, tail=32))
    assert [each.bytes for each in headers.safetensors(path).tensors] == [32]
    path.write_bytes(head({"a": {"dtype": "F16", "shape": [1] * 8, "data_offsets": [0, 2]}}, tail=2))
    assert headers.safetensors(path).tensors[0].shape == (1,) * 8
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_head(tensors=1, tail=tensor(8, (1,) * 8, 0) + bytes(4)))
    assert headers.gguf(path).tensors[0].shape == (1,) * 8


def test_keys_without_a_width_are_one_head(tmp_path: Path) -> None:
    """A file may say so of a matrix: it was divided by."""
    names, at, entries = ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"), 0, {}
    for name, rows in zip(names, (8, 0, 16), strict=True):
        size = rows * 8 * 2
        entries[f"model.layers.0.{name}.weight"] = {"dtype": "F16", "shape": [rows, 8], "data_offsets": [at, at + size]}
        at += size
    path = tmp_path / "m.safetensors"
    path.write_bytes(head(entries, tail=at))
    assert models.find(str(path)).kv_heads == 1


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, Experts(8, 1, 512)),
        (
            {
                "expert_used_count": 2,
                "expert_feed_forward_length": 128,
                "expert_shared_count": 3,
                "leading_dense_block_count": 1,
            },
            Experts(8, 2, 128, shared=3 * 128, dense_layers=1),
        ),
        ({"expert_shared_feed_forward_length": 96}, Experts(8, 1, 512, shared=96)),
        # No more than there are.
        ({"expert_used_count": 9, "leading_dense_block_count": 9}, Experts(8, 8, 512, dense_layers=2)),
    ],
)
def test_a_gguf_file_says_its_experts(said: dict[str, Any], found: Experts, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", expert_count=8, **said)
    assert models.find(str(tmp_path / "m.gguf")).experts == found


def test_layers_of_a_gguf_file_that_predict_further_tokens_are_none(tmp_path: Path) -> None:
    write_gguf(tmp_path / "all.gguf")
    write_gguf(tmp_path / "m.gguf", nextn_predict_layers=1, attention__key_length=16)
    every, shape = (models.find(str(tmp_path / name)) for name in ("all.gguf", "m.gguf"))
    assert (every.layers, every.head_dim, every.vocabulary, every.tied) == (2, 32, 1024, False)
    assert (shape.layers, shape.head_dim) == (1, 16)
    assert every.counted - shape.counted == 2 * 256 * 256 + 2 * 64 * 256 + 3 * 512 * 256


@pytest.mark.parametrize(
    ("said", "elements"),
    [
        ({}, 128 * 1000 + 128 * 1000),
        ({"attention.sliding_window": 100}, 128 * 100 + 128 * 100),
        ({"attention.chunk_size": 100, "attention.sliding_window_pattern": [1, 0]}, 128 * 100 + 128 * 1000),
        ({"attention.sliding_window": 100, "attention.sliding_window_pattern": 2}, 128 * 100 + 128 * 1000),
        # A state of ten by sixteen in 32 bits, and the four tokens of its convolution: however long a text is.
        ({"ssm.inner_size": 10, "ssm.state_size": 16, "ssm.conv_kernel": 4}, 128 * 1000 + 128 * 1000),
    ],
)
def test_blocks_of_a_gguf_file_keep_what_their_window_leaves_and_their_states(
    said: dict[str, Any], elements: int
) -> None:
    head = local._Gguf(
        files.Lying(Path("x"), said={"general.architecture": "a", **{f"a.{key}": said[key] for key in said}}), "x"
    )

    def kept(*blocks: tuple[int, bool]) -> float:
        return sum(each.elements(1000, 1) for each in local._kept(head, list(blocks), 2))

    assert kept((128, False), (128, False)) == elements
    states = 2 * 10 * (16 + 4) if "ssm.inner_size" in said else 0
    assert kept((128, False), (128, False), (0, False), (0, False)) == elements + 2 * states
