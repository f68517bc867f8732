"""Whatever is given: an answer, or BadInput that says what exists instead. Never another exception."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import VARIABLES, Wish
from tests.property.machines import RULES, WANTS, Question, answer_to, observed

_words = st.sampled_from(
    [
        *WANTS,
        "torch",
        "tf",
        "tensorflow",
        "tensorflow-gpu",
        "jax",
        "dali",
        "cupy",
        "vllm",
        "lmdb",
        "onnxruntime",
        "onnxruntime-gpu",
        "nccl",
        "tensorrt",
        "cuda-compat",
        "",
        "nvidia",
    ]
)
_signs = st.sampled_from(
    ["", "=", "==", "===", ">=", "<=", "~=", "!=", "<", ">", " = ", "[", "[cuda12]", "[and-cuda]=="]
)
_versions = st.one_of(
    st.from_regex(r"\A[0-9.]{0,12}\Z"),
    st.from_regex(r"\A\d{1,3}\.\d{1,3}(\.\d+)?(\+[a-z]{0,4}\d{0,4})?\Z"),
    st.sampled_from(["auto", "latest", "12.x", "2.8.*", "2.8,<3", "580-open", "²", "٣.٤", "9" * 5000, "1." * 300]),
)
texts = st.one_of(st.text(max_size=30), st.builds("{}{}{}".format, _words, _signs, _versions))


def explained(error: BadInput) -> None:
    """A refusal says what is wrong; what it suggests are texts."""
    assert str(error).strip()
    assert all(isinstance(each, str) for each in error.suggestions)


@example("cuda=²")
@example("driver=" + "9" * 5000)
@example("pytorch=2.8\n")
@given(texts)
def test_any_text_that_is_wanted_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        wish = Wish.from_wants([text], RULES)
    except BadInput as error:
        explained(error)
    else:
        assert wish != Wish() or text.lower().strip().endswith("auto")


@given(st.text(max_size=30))
def test_any_text_that_is_a_card_is_found_or_refused_with_a_reason(text: str) -> None:
    try:
        assert gpus.identify(text, RULES)["name"]
    except BadInput as error:
        explained(error)


_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 1000), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=2)),
    max_leaves=4,
)


@example({"frameworks_project": "\x00"})
@example({"frameworks_project": "driver" + "9" * 5000})
@example({"frameworks_project": "~nobody-of-this-name/requirements.txt"})
@given(st.dictionaries(st.sampled_from(VARIABLES), _values, max_size=3))
def test_any_value_of_a_variable_is_read_or_refused_with_a_reason(variables: dict[str, Any]) -> None:
    try:
        Wish.from_variables(variables, RULES)
    except BadInput as error:
        explained(error)


# What node_facts leaves out where it could not see it, and what stands there then.
_UNKNOWN: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("os", "id"), None),
    (("os", "version"), None),
    (("os", "codename"), None),
    (("os", "name"), None),
    (("os", "arch"), None),
    (("os", "glibc"), None),
    (("boot", "secure_boot"), None),
    (("kernel", "next"), None),
    (("kernel", "running"), None),
    (("kernel", "available"), {}),
    (("kernel", "available"), {"nvidia": {"version": None, "license": None}}),
    (("pci", "gpus"), []),
    (("pci", "nvlink5"), None),
    (("driver", "owner"), "unknown"),
    (("driver", "source"), None),
    (("driver", "user_version"), None),
    (("driver", "loaded_version"), None),
    (("driver", "loaded_modules"), None),
    (("smi",), None),
    (("smi",), {"rc": None, "seconds": 0.0, "error": "nvidia-smi is not installed", "data": None}),
    (("smi",), {"data": {"cuda_version": None, "gpus": []}}),
    (("smi",), {"data": {"cuda_version": "N/A", "gpus": [{"pci_bus_id": None, "name": None}]}}),
    (("containers", "docker", "version"), None),
    (("python", "interpreters"), []),
    (("packages", "installed"), {}),
    (("packages", "sources"), []),
    (("seals",), {}),
    (("seals",), {"nvidia_driver": {"state": "broken", "stack": None}}),
)


@given(observed(), st.lists(st.sampled_from(_UNKNOWN), max_size=6), st.sampled_from([(), ("cuda", "cudnn", "pytorch")]))
def test_whatever_could_not_be_seen_there_is_an_answer(
    machine: dict[str, Any], unknown: list[tuple[tuple[str, ...], Any]], wants: tuple[str, ...]
) -> None:
    for path, value in unknown:
        part = machine["facts"]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
    try:
        answer = answer_to(Question(machine, wants))
    except BadInput as error:
        explained(error)
    else:
        assert answer["ok"] or answer["conflicts"]
