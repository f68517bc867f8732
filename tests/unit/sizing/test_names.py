"""Names as the hub, Ollama and people write them."""

from __future__ import annotations

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import formats, models, names, tables

_NAMES = {
    "meta-llama/Llama-3.1-8B-Instruct": ("llama-3.1-8b", ""),
    "meta-llama/Meta-Llama-3-8B": ("llama-3-8b", ""),
    "meta-llama/Llama-2-13b-chat-hf": ("llama-2-13b", ""),
    "Llama 3 70B": ("llama-3-70b", ""),
    "LLAMA3.3:70B": ("llama-3.3-70b", "q4_k_m"),
    "Qwen/Qwen2.5-72B-Instruct-AWQ": ("qwen2.5-72b", "int4"),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8": ("qwen2.5-7b", "int8"),
    "Qwen/Qwen2.5-Coder-32B-Instruct": ("qwen2.5-32b", ""),
    "Qwen/Qwen3-4B-Instruct-2507-FP8": ("qwen3-4b", "fp8"),
    "Qwen/Qwen3-235B-A22B-Thinking-2507": ("qwen3-235b-a22b", ""),
    "nvidia/Qwen3-30B-A3B-NVFP4": ("qwen3-30b-a3b", "nvfp4"),
    "unsloth/Qwen3-14B-unsloth-bnb-4bit": ("qwen3-14b", "nf4"),
    "unsloth/gemma-3-12b-it-GGUF": ("gemma-3-12b", "q4_k_m"),
    "hf.co/bartowski/gemma-2-27b-it-GGUF:Q5_K_M": ("gemma-2-27b", "q5_k_m"),
    # Without its owner it is a number of parameters.
    "CausalLM/14B": ("causallm-14b", ""),
    "https://huggingface.co/mistralai/Mixtral-8x22B-Instruct-v0.1/tree/main": ("mixtral-8x22b", ""),
    "RedHatAI/Mistral-7B-Instruct-v0.3-quantized.w4a16": ("mistral-7b", "int4"),
    "Qwen/QwQ-32B-AWQ": ("qwq-32b", "int4"),
    "deepseek-ai/DeepSeek-V3-0324": ("deepseek-v3", "fp8"),
    "openai/gpt-oss-120b": ("gpt-oss-120b", "mxfp4"),
    "gpt-oss:20b": ("gpt-oss-20b", "mxfp4"),
    # That a repository has GGUF files is no part of the name, where it says no size either.
    "somebody/gpt2-GGUF:Q4_K_M": ("gpt2", "q4_k_m"),
    "qwen3:8b": ("qwen3-8b", "q4_k_m"),
    "qwen2.5:14b-instruct-q8_0": ("qwen2.5-14b", "q8_0"),
    "ollama.com/library/gemma3:27b-it-qat": ("gemma-3-27b", "q4_k_m"),
}


@pytest.mark.parametrize("text", sorted(_NAMES))
def test_a_name_as_it_stands_elsewhere_is_read_with_its_format(text: str) -> None:
    found = models.named(text)
    assert (found.shape.name, found.weights) == _NAMES[text]
    assert bool(found.text) == bool(found.weights)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NousResearch/Hermes-3-Llama-3.1-8B-lorablated-GGUF", "llama-3.1-8b"),
        ("huihui-ai/DeepSeek-R1-Distill-Qwen-14B-abliterated-v2", "deepseek-r1-distill-qwen-14b"),
        ("bartowski/google_gemma-2-9b-it-GGUF", "gemma-2-9b"),
        ("TheBloke/Mistral-7B-OpenOrca-AWQ", "mistral-7b"),
        ("mradermacher/Qwen2.5-7B-Instruct-1M-i1-GGUF", "qwen2.5-7b"),
        ("z-lab/Qwen3.6-27B-DFlash", None),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", None),
        ("some/llava-onevision-mistral-7b", None),
        ("some/Llama-3.1-8B-plus-3B", None),
        ("some/thing-gpt2-finetuned", None),  # says no size: it may be any
        ("distil-whisper/distil-small.en", None),
        # Words stand between a family that says which one it is and the size.
        ("somebody/Llama-3.1-Wizard-5-70B", "llama-3.1-70b"),
        ("somebody/Qwen3-Deep-30B-A3B-Preview", "qwen3-30b-a3b"),
        ("IFM/K2-Think-V2", None),  # another model than K2-Think
        ("swiss-ai/Apertus-v1.5-8B", None),  # which stands before the size says which Apertus it is
        ("somebody/Llama-3.1-Wizard-13B", None),  # no Llama 3.1 has that size
        ("somebody/Falcon-Wizard-7B", None),  # which Falcon?
        ("somebody/Gemma-3k-4B", None),  # another family
        ("somebody/Llama-3.1-xy-70B", None),  # so do two letters; three are a word
        ("somebody/Llama-3.1-xyz-70B", "llama-3.1-70b"),
        ("somebody/Qwen2.5-Speech-7B", None),
    ],
)
def test_what_was_tuned_from_a_model_has_its_shape_and_what_was_cut_from_it_has_not(
    text: str, name: str | None
) -> None:
    found = names.read(text)
    assert (found.row["name"] if found else None) == name


def test_every_model_is_read_as_itself_by_each_of_its_names() -> None:
    wrong = {}
    for row in (*tables.models(), *tables.members()):
        for each in (tables.called(row), row["hub"], *row.get("aliases", ())):
            found = names.read(each) if each else None
            if each and (found is None or found.row["name"] != tables.called(row)):
                wrong[each] = found and found.row["name"]
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("qwen3-33b", "qwen3-32b"),
        ("Qwen/Qwen2.5-30B-Instruct", "qwen2.5-32b"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("llama3.1", "llama-3.1-8b"),
        ("mistrall-7b", "mistral-7b"),
        ("gemma-3-26b-it", "gemma-3-27b"),
    ],
)
def test_an_unknown_name_gets_the_nearest_by_family_and_size(text: str, first: str) -> None:
    with pytest.raises(BadInput) as raised:
        models.named(text)
    assert raised.value.suggestions[0] == f"did you mean {first}?"


@pytest.mark.parametrize(
    ("text", "command"),
    [("Somebody/Thing-70B-Instruct", "70B"), ("Foo-30B-A3B", "30B"), ("Foo-8x7B-v0.1", "56B"), ("foo-270m", "270M")],
)
def test_an_unknown_name_that_says_its_size_gets_the_command_that_answers(text: str, command: str) -> None:
    with pytest.raises(BadInput) as raised:
        models.named(text)
    assert any(each.endswith(f"gpuwright size {command}") for each in raised.value.suggestions)
    assert models.named(command).shape.told


@pytest.mark.parametrize(
    ("text", "first"),
    [("Foo-30B-A3B", "qwen3-30b-a3b"), ("Foo-8x7B-v0.1", "mixtral-8x7b"), ("Foo-30B", None), ("Foo-3x9B", None)],
)
def test_an_unknown_mixture_gets_one_of_its_size(text: str, first: str | None) -> None:
    assert next(iter(names.mixtures(text)), None) == first
    assert first is None or models.named(first).shape.experts
    with pytest.raises(BadInput) as raised:
        models.named(text)
    offered = [each.rpartition(" ")[2] for each in raised.value.suggestions if each.startswith("a mixture of the size")]
    assert offered == list(names.mixtures(text))[:2]


@pytest.mark.parametrize(
    "text", ["zebertus-70b", "barn", "albert-xlarge-v2", "zephyr-7b-beta", "org/Some-Thing-9B", "-7B", ""]
)
def test_what_is_of_no_family_here_gets_no_likeness_of_letters(text: str) -> None:
    assert names.nearest(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Q4_K_M", "q4_k_m"),
        ("q4", "q4_k_m"),
        ("UD-Q4_K_XL", None),
        ("q4_k_xl", "q4_k_m"),
        ("q5_k", "q5_k_m"),
        ("IQ4_XS", "iq4_xs"),
        ("q8", "q8_0"),
        ("q6_K", "q6_k"),
        ("AWQ", "int4"),
        ("gptq", "int4"),
        ("bnb-4bit", "nf4"),
        ("FP8", "fp8"),
        ("NVFP4", "nvfp4"),
        ("int3", None),
        ("q9_k", None),
    ],
)
def test_a_format_is_called_as_the_field_calls_it(text: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(BadInput, match="has to be a format of weights"):
            formats.called(text)
    else:
        assert formats.called(text).name == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llama-3.1-8b-GGUF", "GGUF files have many formats, and the name says none: q4_k_m is the usual one"),
        ("llama-3.1-8b.gguf", "a GGUF file whose name says no format: q4_k_m is the usual one"),
        ("llama-3.1-8b-GGUF:Q5_K_M", "the name says q5_k_m"),
        *(
            (f"llama-3.1-8b-{each}", f"the name says {each}")
            for each in ("nvfp4", "mxfp4", "fp8", "awq", "bf16", "fp32")
        ),
        ("llama3.1:8b", "what Ollama pulls where its tag names no format"),
        ("gpt-oss-20b", "gpt-oss-20b is published so"),
        ("llama-3.1-8b", ""),
    ],
)
def test_why_weights_have_their_format_is_said(text: str, why: str) -> None:
    found = names.read(text)
    assert found is not None
    assert found.text == why


def test_five_names_are_offered_at_the_most() -> None:
    with pytest.raises(BadInput) as raised:
        models.named("qwen2.5-30b")
    assert len(names.nearest("qwen2.5-30b")) > 5
    assert [each.startswith("did you mean") for each in raised.value.suggestions].count(True) == 5
