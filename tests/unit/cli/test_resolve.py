"""`resolve` and `gpus` over the rules as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import knowledge, paths
from gpuwright.errors import BadInput, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

ADA = ("--gpu", "RTX 4090", "--os", "ubuntu-24.04", "--arch", "x86_64")


def test_resolve_json_is_the_contracts(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("resolve", *ADA, "--want", "cuda", "--want", "container-toolkit", "--want", "pytorch", "--json")
    assert done.code == 0
    assert {"ok", "gpus", "os", "arch", "assumed", "warnings", "stack", "why"} <= set(done.json)
    assert {"driver", "cuda", "container_toolkit", "frameworks"} <= set(done.json["stack"])
    assert isinstance(done.json["stack"]["driver"]["branch"], str)
    assert not done.err


def test_resolve_without_a_wish_answers_the_driver_only(gpuwright: Callable[..., Any]) -> None:
    stack = gpuwright("resolve", *ADA, "--json").json["stack"]
    assert "driver" in stack
    assert not {"cuda", "frameworks", "container_toolkit"} & set(stack)


def test_resolve_for_people_has_a_table_and_the_reasons(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("resolve", *ADA, "--want", "pytorch").out
    for word in ("GeForce RTX 4090 on ubuntu-24.04", "driver", "pytorch", "torch==", "because", "assumed: "):
        assert word in said


def test_resolve_names_images_of_containers_beside_the_stack(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("resolve", *ADA, "--want", "driver=580", "--json").json
    keys = {"name", "tag", "reference", "cuda", "mode", "version", "rule", "text", "source"}
    assert [image["name"] for image in answer["images"]] == [
        "nvidia/cuda",
        "nvidia/pytorch",
        "nvidia/tensorflow",
        "nvidia/jax",
    ]
    assert all(keys <= set(image) for image in answer["images"])
    assert answer["images"][0]["reference"].startswith("docker.io/nvidia/cuda:13.0")
    assert "images" not in answer["stack"]


def test_images_for_people_have_their_reference_their_reason_and_what_is_newer(gpuwright: Callable[..., Any]) -> None:
    said = " ".join(gpuwright("resolve", *ADA, "--want", "driver=580").out.split())
    assert "images of containers that fit - docker.io/nvidia/cuda:13.0" in said
    assert "nvcr.io/nvidia/pytorch:25.10-py3: the driver brings CUDA 13.0 in full" in said
    assert "; 26.09-py3 too, in minor-version mode (CUDA 13.4)" in said


def test_an_image_that_does_not_fit_is_an_answer_with_its_reason(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("resolve", "--gpu", "V100", "--os", "ubuntu-24.04", "--arch", "x86_64")
    assert said.code == 0
    assert "none of nvidia/jax: no release is known to have code for the Tesla V100" in " ".join(said.out.split())


def test_without_a_card_no_image_is_named(gpuwright: Callable[..., Any], tmp_path: Path) -> None:
    words = ("resolve", "--os", "ubuntu-24.04", "--arch", "x86_64", "--want", "pytorch")
    assert gpuwright(*words, "--json").json["images"] == []
    assert "images" not in gpuwright(*words).out


def test_resolve_answers_for_this_machine_where_none_is_named(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("resolve", "--gpu", "RTX 4090", "--json")
    assert done.code in {0, 3}


def test_a_wish_that_cannot_be_met_is_3_with_its_conflicts(gpuwright: Callable[..., Any]) -> None:
    words = ("resolve", "--gpu", "B200", "--os", "ubuntu-24.04", "--want", "driver=470")
    assert gpuwright(*words).code == 3
    done = gpuwright(*words, "--json")
    assert done.code == 3
    assert done.json["ok"] is False
    assert {"rule", "text", "source", "remedy"} <= set(done.json["conflicts"][0])


@pytest.mark.parametrize(
    "words",
    [
        ("resolve", "--gpu", "RTX 4099"),
        ("resolve", *ADA, "--want", "pytroch"),
        ("resolve", *ADA, "--assume", "moon=full"),
        ("resolve", *ADA, "--assume", "nonsense"),
        ("resolve", "--gpu", "RTX 4090", "--arch", "m68k"),
        ("resolve", *ADA, "--facts", "x"),
        ("resolve", "--facts", "/no/such/file"),
        ("gpus", "voodoo2"),
    ],
)
def test_what_is_not_known_is_2_and_no_traceback(gpuwright: Callable[..., Any], words: tuple[str, ...]) -> None:
    done = gpuwright(*words)
    assert done.code == 2
    assert done.err.startswith("gpuwright: error: ")
    assert "Traceback" not in done.err
    assert gpuwright(*words, "--json").json["ok"] is False


def test_an_unknown_card_names_the_near_ones(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright("resolve", "--gpu", "RTX 4099", "--json").json["suggestions"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"facts": {}}'])
def test_a_file_that_is_no_observation_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts").write_text(text)
    with pytest.raises(BadInput):
        knowledge.read_facts(str(tmp_path / "facts"))


def test_a_file_of_a_hostile_node_is_bad_input(gpuwright: Callable[..., Any], tmp_path: Path) -> None:
    from tests.unit.gate import honest

    facts = honest.bare(os={"family": "../../etc/shadow"}, hostname="\x1b[2J")
    (tmp_path / "facts").write_text(json.dumps(facts))
    done = gpuwright("resolve", "--facts", str(tmp_path / "facts"))
    assert done.code == 2
    assert (
        "facts is not an observation of this version of gpuwright: os.family is '../../etc/shadow', expected one of"
        in done.err
    )


def test_gpus_shows_a_card(gpuwright: Callable[..., Any]) -> None:
    assert "Blackwell" in gpuwright("gpus", "B200").out
    assert gpuwright("gpus", "B200", "--json").json["gpus"][0]["compute_capability"] == "10.0"


def test_wishes_and_cards_are_refused_before_a_host_is_asked(gpuwright: Callable[..., Any], tmp_path: Path) -> None:
    report = ("--report", str(tmp_path / "r"))
    assert gpuwright("plan", "--want", "pytroch", *report).code == 2
    assert gpuwright("plan", "--gpu", "RTX 4099", *report).code == 2
    (tmp_path / "wish.yml").write_text("nvidia_drvier_branch: 580\n")
    assert gpuwright("plan", "--wish", str(tmp_path / "wish.yml"), *report).code == 2
    assert not (tmp_path / "r").exists()


def test_the_collection_is_found_in_a_clone_and_in_site_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, root in (("src/gpuwright", "collections"), ("site-packages/gpuwright", "site-packages")):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / root / paths.COLLECTION / "plugins").mkdir(parents=True)
        monkeypatch.setattr(paths, "__file__", str(tmp_path / package / "paths.py"))
        paths.collections_root.cache_clear()
        assert paths.collections_root() == tmp_path / root
    paths.collections_root.cache_clear()


def test_an_installation_without_the_collection_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "gpuwright" / "paths.py"))
    paths.collections_root.cache_clear()
    with pytest.raises(Failed, match="is not there"):
        paths.collections_root()
    paths.collections_root.cache_clear()
