"""Environments with a name, several frameworks in one, and the Jupyter kernel of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock, machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

Resolve = Callable[..., Any]
#: What a stack has of a framework only where it is asked for.
NEW = {"environment", "others", "installs", "kernel"}


def rows(answer: Any) -> list[Any]:
    assert answer["ok"], answer
    found: list[Any] = answer["stack"]["frameworks"]
    return found


@pytest.mark.parametrize(
    ("want", "key", "specifier", "variant"),
    [
        ("pytorch@research", "pytorch@research", "", None),
        ("pytorch@research==2.7.1", "pytorch@research", "==2.7.1", None),
        ("pytorch==2.7.1@research", "pytorch@research", "==2.7.1", None),
        ("torch==2.7.1+cu128@py3.12", "pytorch@py3.12", "==2.7.1", "cu128"),
        ("jax[cuda12]@research>=0.7,<0.9", "jax@research", ">=0.7,<0.9", "cuda12"),
        ("pytorch@pytorch", "pytorch", "", None),
    ],
)
def test_a_name_stands_behind_the_framework_or_behind_all(
    want: str, key: str, specifier: str, variant: str | None
) -> None:
    (found,) = Wish.from_wants([want]).frameworks
    assert (found.key, found.specifier, found.variant) == (key, specifier, variant)


@pytest.mark.parametrize(
    ("want", "told"),
    [
        ("tensorflow@pytorch", "pytorch is the environment of PyTorch alone"),
        ("pytorch@.hidden", "letters, digits and"),
        ("pytorch@a/b", "letters, digits and"),
        ("pytorch@", "letters, digits and"),
        ("cuda@research", "only frameworks, projects and their Python have environments"),
        ("jupyter=7", "no version here"),
    ],
)
def test_what_cannot_be_a_name_is_refused(want: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        Wish.from_wants([want])


@pytest.mark.parametrize("want", ["python=3.11@research", "python@research=3.11", "python==3.11 @ research"])
def test_an_environment_has_a_python_of_its_own(resolve: Resolve, want: str) -> None:
    answer = resolve("A100", "debian-13", "pytorch", "jax@research", want)
    assert [(row["name"], row["interpreter"]) for row in rows(answer)] == [("pytorch", "3.13"), ("jax", "3.11")]


def test_the_python_of_an_environment_goes_before_that_of_all(resolve: Resolve) -> None:
    wants = ("python=3.11", "pytorch", "jax", "lmdb@data", "python=3.13@jax")
    answer = resolve("A100", "debian-13", *wants)
    assert {row["name"]: row["interpreter"] for row in rows(answer)} == {
        "pytorch": "3.11",
        "jax": "3.13",
        "lmdb": "3.11",
    }


def test_several_frameworks_of_an_environment_and_its_project_have_its_python(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("pandas\n")
    wants = ("pytorch@x", "jax@x", f"project@x={tmp_path}/requirements.txt", "python=3.11@x")
    answer = resolve("A100", "debian-13", *wants)
    assert {row["interpreter"] for row in rows(answer)} == {"3.11"}


def test_a_python_of_no_environment_is_refused_with_those_that_there_are(resolve: Resolve) -> None:
    (entry,) = resolve("A100", "debian-13", "pytorch@research", "python=3.13@reseach")["conflicts"]
    assert entry["rule"] == "frameworks.python-environment"
    assert entry["text"].endswith("there is no environment reseach in the wish, only research")
    assert entry["remedy"] == "leave python@reseach out"


def test_the_nearest_python_of_an_environment_is_proposed_by_its_name(resolve: Resolve) -> None:
    wants = ("torch==2.14.1@research", "lmdb", "python=3.9@research")
    conflicts = resolve("A100", "debian-13", *wants)["conflicts"]
    assert any("ask for python=3.10@research" in each["remedy"] for each in conflicts), conflicts


def test_the_pythons_of_environments_are_wished_in_variables_and_overlaid_with_them() -> None:
    named = {"frameworks_environments": {"research": ["pytorch", "python=3.12"]}, "frameworks_python": "3.13"}
    wish = Wish.from_variables(named)
    assert (wish.python, wish.pythons) == ("3.13", {"research": "3.12"})
    assert Wish.from_variables({**named, "gpuwright_want": ["python@research=3.11"]}).pythons == {"research": "3.11"}
    # Other frameworks are another list, and what was said of an environment goes with it.
    assert Wish.from_variables({**named, "gpuwright_want": ["jax"]}).pythons == {}
    assert Wish.from_wants(["python@pytorch=3.12"]).with_defaults().pythons == {"pytorch": "3.12"}


@pytest.mark.parametrize("want", ["python@research", "python=3@research", "python=3.12@.hidden", "python=3.12@a/b"])
def test_what_is_no_python_of_an_environment_is_refused(want: str) -> None:
    with pytest.raises(BadInput):
        Wish.from_wants([want])


def test_two_pythons_of_one_environment_are_refused() -> None:
    with pytest.raises(BadInput, match="say different things"):
        Wish.from_wants(["pytorch@x", "python=3.12@x", "python@x=3.13"])


def test_a_lock_has_the_python_of_each_environment() -> None:
    frameworks: Any = [
        {"name": "pytorch", "version": "2.14.1", "variant": "cu130", "interpreter": "3.13"},
        {"name": "jax", "version": "0.12.0", "variant": "cuda13", "interpreter": "3.12", "environment": "x"},
    ]
    made = lock.as_wants({"repositories": [], "frameworks": frameworks})
    assert made[-2:] == ["python=3.13@pytorch", "python=3.12@x"]
    assert Wish.from_wants(made).pythons == {"pytorch": "3.13", "x": "3.12"}


def test_one_framework_is_in_several_environments() -> None:
    wish = Wish.from_wants(["pytorch@old==2.6.0", "pytorch@new", "pytorch", "pytorch@new>=2.8"])
    assert [each.key for each in wish.frameworks] == ["pytorch@old", "pytorch", "pytorch@new"]


def test_the_variable_maps_names_to_wishes() -> None:
    variables = {"frameworks_environments": {"research": ["pytorch==2.7.1", "jax[cuda12]"], "old": "pytorch>=2,<2.5"}}
    assert Wish.from_variables(variables).frameworks == tuple(
        Wish.from_wants(["pytorch@research==2.7.1", "jax[cuda12]@research", "pytorch@old>=2,<2.5"]).frameworks
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"research": ["cuda"]}, "is no framework"),
        ({"research": ["pytorch@other"]}, "names an environment itself"),
        ({"a/b": ["pytorch"]}, "letters, digits"),
        (["pytorch"], "has to be a mapping"),
    ],
)
def test_a_mapping_of_something_else_is_refused(given: object, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        Wish.from_variables({"frameworks_environments": given})


def test_a_stack_without_names_has_no_new_key(resolve: Resolve) -> None:
    for row in rows(resolve("H100", "ubuntu-24.04", "pytorch", "tensorflow", "jax")):
        assert not NEW & row.keys()


def test_each_name_has_a_directory_and_a_release(resolve: Resolve) -> None:
    old, new = rows(resolve("H100", "ubuntu-24.04", "pytorch@old==2.6.0", "pytorch@new"))
    assert (old["path"], old["version"]) == ("/opt/gpuwright/old", "2.6.0")
    assert new["path"] == "/opt/gpuwright/new"
    assert new["version"] != "2.6.0"


@pytest.mark.parametrize("wants", [("pytorch@a", "tensorflow@a"), ("tensorflow@a", "pytorch@a")])
def test_two_in_one_have_one_cuda_and_one_cudnn(resolve: Resolve, wants: tuple[str, ...]) -> None:
    found = rows(resolve("H100", "ubuntu-24.04", *wants))
    assert [row["name"] for row in found] == [want.partition("@")[0] for want in wants]
    assert len({row["cuda"].split(".")[0] for row in found}) == 1
    assert len({row["cudnn"] for row in found}) == 1
    one, other = found
    assert one["requirements"] == other["requirements"]
    assert {each["name"] for each in one["installs"]} == {"pytorch", "tensorflow"}
    assert sum(limit.startswith("nvidia-cudnn-cu12") for limit in one["constraints"]) == 1
    answer = resolve("H100", "ubuntu-24.04", *wants)
    texts = [each["text"] for each in answer["why"] if each["rule"] in ("frameworks.together", "frameworks.cudnn")]
    assert len(texts) == 1
    assert texts[0].endswith("agree in one environment: CUDA 12, cuDNN 9.10.2.21")
    torch = next(each for each in one["installs"] if each["name"] == "pytorch")
    assert torch["index_url"].endswith(torch["variant"])


def test_two_cuda_majors_in_one_are_refused_with_the_nearest(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "pytorch@a==2.14.1+cu130", "tensorflow@a")
    (conflict,) = answer["conflicts"]
    assert conflict["text"] == "tensorflow 2.21.0 is built with CUDA 12, pytorch 2.14.1 with CUDA 13"
    assert "pytorch=2.14.1+cu126@a" in conflict["remedy"]
    assert rows(resolve("H100", "ubuntu-24.04", "pytorch=2.14.1+cu126@a", "tensorflow@a"))
    assert rows(resolve("H100", "ubuntu-24.04", "pytorch==2.14.1+cu130", "tensorflow"))


def test_a_kernel_is_wished_for_each_environment(resolve: Resolve) -> None:
    for wish in ({"wish": {"frameworks_jupyter": True}}, {}):
        wants = ["pytorch", "jax@a", *([] if wish else ["jupyter"])]
        found = rows(resolve("H100", "ubuntu-24.04", *wants, **wish))
        assert [row["kernel"].rpartition("/")[2] for row in found] == ["gpuwright-pytorch", "gpuwright-a"]
        assert all(row["others"] == ["ipykernel"] for row in found)


def test_a_lock_holds_the_environments_by_their_names(rules: Any) -> None:
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", {}, rules)
    wish = Wish.from_wants(["pytorch@old==2.6.0", "pytorch", "jupyter"], rules)
    document = lock.check(lock.make(where, wish, rules, wants=[], version="1"))
    held = lock.as_wish(document, {})
    assert [each.key for each in held.frameworks] == ["pytorch@old", "pytorch"]
    assert held.jupyter
    answer = resolver.resolve(where, held, rules)
    assert lock.differences(document, where, answer["stack"], rules) == []
    other = resolver.resolve(where, Wish.from_wants(["pytorch@old==2.7.1", "pytorch", "jupyter"], rules), rules)
    texts = " ".join(each["text"] for each in lock.differences(document, where, other["stack"], rules))
    assert "pytorch@old version: the lock has 2.6.0" in texts
