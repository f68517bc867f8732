"""The number of parameters of every model of the table, against what was published of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, config, models, tables, units

ROWS = tables.models()
MEMBERS = tables.members()
#: Of these the layers have more than is counted.
COUNTED = [
    row for row in ROWS if row.get("counted") and row["config"]["model_type"] not in ("decoder", "encoder", "diffusion")
]


def counted(row: dict[str, Any]) -> float:
    return architecture.parameters(models.of_row(row))


def test_a_published_count_comes_out_to_the_last_parameter() -> None:
    published = [(row, row["parameters"]) for row in ROWS if row["parameters"]]
    published += [(row, row["parameters"]) for row in MEMBERS if "parameters" in row]
    assert [(tables.called(row), counted(row)) for row, number in published if counted(row) != number] == []


def test_where_layers_have_more_than_is_counted_it_is_little() -> None:
    read = [(row, architecture.parameters(config.read(row["config"], row["name"]))) for row in COUNTED]
    assert [(row["name"], by) for row, by in read if by != pytest.approx(row["parameters"], rel=0.01)] == []


def test_a_rounded_count_comes_out_as_rounded() -> None:
    rounded = [row for row in (*ROWS, *MEMBERS) if "rounded" in row]
    wrong = [
        (tables.called(row), counted(row)) for row in rounded if counted(row) != pytest.approx(row["rounded"], rel=0.03)
    ]
    assert wrong == []


def test_a_member_is_of_a_model_and_has_no_fewer_parameters_than_its_layers() -> None:
    names = {row["name"] for row in ROWS}
    assert [row["hub"] for row in MEMBERS if row["of"] not in names or models.of_row(row).beside < 0] == []


@pytest.mark.parametrize(
    ("name", "active"),
    # Mistral's and DeepSeek's own figures, rounded; Mixtral's counts the embedding, ours does not.
    [("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37e9), ("qwen3-30b-a3b", 3.3e9), ("gpt-oss-120b", 5.1e9)],
)
def test_a_token_goes_through_as_many_parameters_as_published(name: str, active: float) -> None:
    assert architecture.active(models.find(name)) == pytest.approx(active, rel=0.1)


@pytest.mark.parametrize("told", ["125M", "1.5B", "7B", "13b", "70B", "175B", "1T"])
def test_a_shape_that_is_assumed_has_about_the_parameters_that_were_told(told: str) -> None:
    shape = models.find(told)
    layers = shape.layers * (architecture.attention(shape) + architecture.mlp(shape, shape.intermediate))
    assert architecture.parameters(shape) == pytest.approx(layers, rel=0.25)


def test_the_smallest_shape_has_a_head() -> None:
    found = models.find("50k")
    assert (found.hidden, found.heads, found.head_dim) == (64, 1, 64)


def test_an_assumed_shape_has_the_proportions_of_models_that_are_there() -> None:
    for told, name in (("6.7B", "llama-2-7b"), ("13B", "llama-2-13b"), ("70B", "llama-3-70b")):
        assumed, real = models.find(told), models.find(name)
        assert assumed.layers == pytest.approx(real.layers, rel=0.2)
        assert assumed.hidden == pytest.approx(real.hidden, rel=0.2)


def test_a_member_has_all_its_parameters_under_its_name_too() -> None:
    """What was tuned with something to see with has more than the model whose layers it has."""
    found = {row["hub"]: architecture.parameters(models.find(row["hub"])) for row in MEMBERS if row.get("parameters")}
    assert len(found) > 50
    assert found == {row["hub"]: row["parameters"] for row in MEMBERS if row.get("parameters")}


# names and files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["llama-3.1-8b", "LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B"])
def test_a_model_is_found_by_its_name_and_by_that_of_the_hub(text: str) -> None:
    assert architecture.parameters(models.find(text)) == 8030261248


def test_no_name_means_two_models() -> None:
    rows = [*ROWS, *({**row, "name": tables.called(row)} for row in MEMBERS)]
    said = Counter(each.lower() for row in rows for each in (row["name"], row["hub"], *row.get("aliases", ())) if each)
    assert [name for name, times in said.items() if times > 1] == []


def test_no_model_is_called_as_a_number_of_parameters_is() -> None:
    assert [told for told in ("270M", "3B", "14B", "32b", "70B", "120b", "1T") if models.find(told).told == 0] == []


def test_a_shape_of_which_the_least_is_told_is_llamas() -> None:
    shape = models.find("layers=32,hidden=4096,heads=32,intermediate=11008")
    assert architecture.parameters(shape) == architecture.parameters(models.find("llama-2-7b"))


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-405b"])
def test_a_llama_that_is_told_part_by_part_has_its_parameters_and_its_cache(name: str) -> None:
    said = next(row["config"] for row in ROWS if row["name"] == name)
    parts = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocab": "vocab_size",
             "kv-heads": "num_key_value_heads", "intermediate": "intermediate_size"}  # fmt: skip
    told = models.find(",".join(f"{part}={said[key]}" for part, key in parts.items() if key in said))
    real = models.find(name)
    for count in (architecture.parameters, architecture.active, architecture.linear):
        assert count(told) == count(real)
    assert architecture.kept(told, 1000) == architecture.kept(real, 1000)
    assert architecture.forward_flops(told, 1000) == architecture.forward_flops(real, 1000)


def test_a_shape_says_whether_its_mlp_has_a_gate_and_its_output_layer_is_the_embedding() -> None:
    """GPT-2 small but for its positions and biases: 12 layers of 12 · 768² and an embedding of 50257."""
    plain = "layers=12,hidden=768,heads=12,vocab=50257"
    matrices, embedding = 12 * 12 * 768**2, 50257 * 768
    norms = 25 * 768
    assert architecture.parameters(models.find(f"{plain},gated=no,tied=yes")) == matrices + embedding + norms
    assert architecture.parameters(models.find(f"{plain},gated=no,tied=no")) == matrices + 2 * embedding + norms
    assert models.find(plain).gated
    assert not models.find(plain).tied


@pytest.mark.parametrize(
    ("text", "parameters", "tokens"),
    [
        ("350", 350, 350),
        ("350k", 350e3, 350 * 1024),  # contexts are powers of two
        ("1.5M", 1.5e6, 1.5 * 2**20),
        ("1.3B", 1_300_000_000, None),
        ("2g", 2e9, None),
        ("15.6T", 15.6e12, None),
        ("70e9", 70e9, 70e9),
    ],
)
def test_a_number_is_read_with_its_unit(text: str, parameters: float, tokens: float | None) -> None:
    assert units.count(text, "parameters") == parameters
    if tokens is None:
        with pytest.raises(BadInput, match="has to be a number"):
            units.tokens(text, "tokens")
    else:
        assert units.tokens(text, "tokens") == tokens


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lama-3.1-8b", "no model is called"),
        ("layers=32", "does not say hidden and heads"),
        ("layers=0,hidden=64,heads=1", "layers has to be a number from 1 on"),
        ("layers=2,hidden=64,heads=128", "do not fit"),
        ("layers=2,hidden=64,heads=8,kv-heads=3", "has to divide"),
        ("layers=2,hidden=64,heads=8,colour=3", "has no part 'colour'"),
        ("layers=2,hidden=64,heads=8,gated=1", "gated has to be yes or no, found '1'"),
        ("layers=2,hidden=64,heads=8,tied", "tied has to be yes or no, found ''"),
        ("layers=99999999,hidden=64,heads=8", "so many layers"),
        ("layers=2,hidden=999999999999,heads=8", "so large a part"),
        ("layers=2,hidden=64,heads=8,experts=4,active-experts=5", "cannot go through"),
        ("0B", "at least 1"),
        ("1e30", "at most"),
        ("-7B", "no model is called"),
        ("/nowhere/config.json", "is not there"),
    ],
)
def test_what_is_no_model_gets_one_clear_message(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        models.find(text)


def test_a_name_that_is_nearly_one_is_suggested() -> None:
    with pytest.raises(BadInput) as raised:
        models.find("lama-3.1-8b")
    assert "did you mean llama-3.1-8b?" in raised.value.suggestions


def test_a_shape_that_says_little_is_as_wide_as_a_tile_at_least() -> None:
    shape = models.named("layers=2,hidden=8,heads=1").shape
    assert (shape.intermediate, shape.head_dim, shape.kv_heads) == (64, 8, 1)


def test_what_a_shape_does_not_say_is_llamas() -> None:
    """An MLP of 8/3 of the width in tiles of 64, 171 of them; without a gate it is four times as wide; and two experts of a token."""
    plain = "layers=32,hidden=4096,heads=32"
    assert models.find(plain).intermediate == 171 * 64
    assert models.find(f"{plain},gated=no").intermediate == 4 * 4096
    for said, active in ((4, 2), (2, 2), (1, 1)):
        experts = models.find(f"{plain},experts={said}").experts
        assert experts is not None
        assert (experts.count, experts.active) == (said, active)


def test_no_model_has_more_than_ten_thousand_layers() -> None:
    assert models.find("layers=10000,hidden=64,heads=8").layers == 10_000
    with pytest.raises(BadInput, match="so many layers"):
        models.find("layers=10001,hidden=64,heads=8")


@pytest.mark.parametrize(("told", "grouped"), [("9.9B", False), ("10B", True), ("70B", True)])
def test_from_ten_billion_parameters_on_eight_heads_have_keys(told: str, grouped: bool) -> None:
    shape = models.find(told)
    assert shape.kv_heads == (8 if grouped else shape.heads)
    assert shape.heads * shape.head_dim == shape.hidden


def test_a_shape_may_have_as_many_heads_as_it_is_wide() -> None:
    assert models.find("layers=2,hidden=8,heads=8").head_dim == 1
    with pytest.raises(BadInput, match="9 heads do not fit into a width of 8"):
        models.find("layers=2,hidden=8,heads=9")
