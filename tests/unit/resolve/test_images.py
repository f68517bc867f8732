"""Which images of containers fit a driver and its cards, and that it is said why none does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import images, machine, targets
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import TODAY

Named = Callable[..., dict[str, Any]]


@pytest.fixture
def named(rules: Any) -> Named:
    """named("H100", "ubuntu-24.04", "driver=580"): the images by their name; of several of one name the first."""

    def run(
        gpus: str | list[str], os: str, *wants: str, arch: str = "x86_64", today: date = TODAY, **assume: Any
    ) -> Any:
        cards = [gpus] if isinstance(gpus, str) else gpus
        variables = assume.pop("wish", {})
        table = assume.pop("table", rules)
        where = machine.machine_from_options(cards, os, arch, assume, table, today=today)
        wished = Wish.from_variables({**variables, "gpuwright_want": list(wants)}, table)
        answer = resolver.resolve(where, wished, table)
        assert answer["ok"], answer
        found = images.choose(where, wished, answer["stack"], table)
        return {image["name"]: image for image in reversed(found)}

    return run


# nvidia/cuda ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "os", "driver", "tag", "mode"),
    [
        ("H100", "ubuntu-24.04", "580", "13.0.2-base-ubuntu24.04", "native"),
        ("4090", "ubuntu-24.04", "580", "13.0.2-base-ubuntu24.04", "native"),
        ("H100", "ubuntu-22.04", "580", "13.0.2-runtime-ubuntu22.04", "native"),
        ("H100", "ubuntu-22.04", "570", "12.8.1-base-ubuntu22.04", "native"),
        ("H100", "rocky-9", "570", "12.8.1-base-rockylinux9", "native"),
        ("H100", "rhel-9", "570", "12.8.1-base-ubi9", "native"),
        ("H100", "debian-12", "570", "12.8.1-base-ubuntu24.04", "native"),
        ("V100", "ubuntu-24.04", "580", "12.9.1-base-ubuntu24.04", "native"),
    ],
)
def test_the_newest_image_of_cuda_that_the_driver_brings_and_that_has_code_for_the_card(
    named: Named, gpu: str, os: str, driver: str, tag: str, mode: str
) -> None:
    image = named(gpu, os, f"driver={driver}")["nvidia/cuda"]
    assert (image["tag"], image["mode"]) == (tag, mode)
    assert image["reference"] == f"docker.io/nvidia/cuda:{tag}"
    assert image["tags"][0] == tag
    assert image["rule"] == "image.toolkit"
    assert image["text"]
    assert image["source"]


def test_each_toolkit_that_is_wished_has_its_image(rules: Any) -> None:
    where = machine.machine_from_options(["H100"], "ubuntu-22.04", "x86_64", {}, rules, today=TODAY)
    wished = Wish.from_variables({"gpuwright_want": ["driver=580", "cuda=12.8", "cuda=13.0"]}, rules)
    found = images.choose(where, wished, resolver.resolve(where, wished, rules)["stack"], rules)
    assert [image["cuda"] for image in found if image["name"] == "nvidia/cuda"] == ["12.8", "13.0"]


def test_a_toolkit_without_an_image_is_told(named: Named, rules: Any) -> None:
    fewer = copy.deepcopy(rules)
    fewer["images"]["tags"] = [row for row in fewer["images"]["tags"] if not row["release"].startswith("12.8")]
    image = named("H100", "ubuntu-22.04", "driver=580", "cuda=12.8", table=fewer)["nvidia/cuda"]
    assert (image["tag"], image["text"]) == (None, "no image of CUDA 12.8 was read")


@pytest.mark.parametrize(
    ("gpu", "mode"), [("H100", "minor-version"), ("RTX 6000 Ada", "minor-version"), ("4090", None)]
)
def test_an_image_that_is_newer_than_the_driver_starts_only_where_it_says_so(
    named: Named, gpu: str, mode: str | None
) -> None:
    """The image of CUDA 12.9 lets branch 570 in, and not on GeForce."""
    image = named(gpu, "ubuntu-24.04", "driver=570", "cuda=12.9")["nvidia/cuda"]
    assert image["mode"] == mode
    assert (image["tag"] is None) == (mode is None)
    if mode is None:
        assert image["rule"] == "image.none"
        assert "12.9" in image["text"]
        assert "12.8" in image["text"]


def test_the_cuda_compat_in_an_image_is_for_data_centre_cards_only(named: Named, rules: Any) -> None:
    newest = copy.deepcopy(rules)
    newest["images"]["tags"] = [row for row in newest["images"]["tags"] if row["release"] == "13.0.2"]
    forward = named("H100", "ubuntu-24.04", "driver=570", table=newest)["nvidia/cuda"]
    assert (forward["cuda"], forward["mode"]) == ("13.0", "forward")
    none = named("RTX 6000 Ada", "ubuntu-24.04", "driver=570", table=newest)["nvidia/cuda"]
    assert none["tag"] is None
    assert "13.0" in none["text"]


def test_no_image_of_cuda_has_code_for_a_card(named: Named, rules: Any) -> None:
    newest = copy.deepcopy(rules)
    newest["images"]["tags"] = [row for row in newest["images"]["tags"] if row["release"].startswith("13")]
    image = named("V100", "ubuntu-24.04", "driver=580", table=newest)["nvidia/cuda"]
    assert image["tag"] is None
    assert image["text"] == "none has code for the Tesla V100 SXM2 16GB (7.0)"


# NGC's frameworks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "driver", "name", "tag", "mode"),
    [
        ("H100", "580", "pytorch", "25.10-py3", "native"),
        ("4090", "580", "pytorch", "25.10-py3", "native"),
        ("H100", "595", "pytorch", "26.04-py3", "native"),
        ("H100", "570", "pytorch", "25.03-py3", "native"),
        ("4090", "535", "pytorch", "25.06-py3", "minor-version"),
        ("V100", "580", "pytorch", "24.12-py3", "native"),
        ("V100", "535", "pytorch", "24.12-py3", "minor-version"),
        ("H100", "580", "tensorflow", "25.02-tf2-py3", "native"),
        ("V100", "535", "tensorflow", "23.01-tf2-py3", "native"),
        ("H100", "580", "jax", "26.06-py3", "minor-version"),
        ("H100", "570", "jax", "25.01-py3", "native"),
    ],
)
def test_the_newest_release_that_runs_and_has_code_for_the_card(
    named: Named, gpu: str, driver: str, name: str, tag: str, mode: str
) -> None:
    image = named(gpu, "ubuntu-22.04", f"driver={driver}")[f"nvidia/{name}"]
    assert (image["tag"], image["mode"]) == (tag, mode)
    assert image["reference"] == f"nvcr.io/nvidia/{name}:{tag}"


def test_a_newer_release_that_does_not_run_in_full_is_named_beside_it(named: Named) -> None:
    image = named("H100", "ubuntu-24.04", "driver=580")["nvidia/pytorch"]
    assert image["newer"] == {"tag": "26.09-py3", "cuda": "13.4", "mode": "minor-version"}
    assert "newer" not in named("H100", "ubuntu-24.04", "driver=615")["nvidia/pytorch"]


def test_where_no_release_has_code_for_the_card_it_is_said(named: Named) -> None:
    image = named("V100", "ubuntu-24.04", "driver=580")["nvidia/jax"]
    assert {key: image[key] for key in ("tag", "reference", "cuda", "mode", "version")} == dict.fromkeys(
        ("tag", "reference", "cuda", "mode", "version")
    )
    assert image["text"] == "no release is known to have code for the Tesla V100 SXM2 16GB (7.0)"


def test_where_the_driver_is_too_old_for_every_release_it_is_said(named: Named) -> None:
    image = named("A100", "ubuntu-22.04", "driver=470")["nvidia/jax"]
    assert image["tag"] is None
    assert image["text"].endswith("need CUDA 12.8 to 13.3; the driver brings 11.4")


def test_release_notes_that_ask_for_a_newer_branch_are_kept_to_and_let_data_centre_cards_in(
    named: Named, rules: Any
) -> None:
    one = copy.deepcopy(rules)
    (row,) = [row for row in one["images"]["releases"] if row["release"] == "23.01"]
    row["driver"], row["datacenter"] = "535", ["525"]
    one["images"]["releases"] = [row]
    assert named("A100", "ubuntu-22.04", "driver=525", table=one)["nvidia/tensorflow"]["tag"] == "23.01-tf2-py3"
    assert named("3090", "ubuntu-22.04", "driver=525", table=one)["nvidia/tensorflow"]["tag"] is None


def test_that_a_series_has_ended_and_what_is_not_confirmed_are_said(named: Named) -> None:
    found = named("V100", "ubuntu-24.04", "driver=580")["nvidia/tensorflow"]
    assert "the series ended with 25.02" in found["text"]
    assert "not confirmed" in found["text"]


# whose driver it is -----------------------------------------------------------------------------------


def test_a_driver_of_a_branch_that_no_rule_knows_runs_what_the_one_before_runs(rules: Any, facts: Any) -> None:
    facts["driver"] |= {"owner": "packages", "source": "nvidia", "packages": {"nvidia-driver-cuda": "999.10-1"}}
    facts["driver"] |= {"loaded_version": "999.10", "loaded_modules": "open", "user_version": "999.10"}
    where, wished = machine.machine_from_facts(facts, Wish(), rules, today=TODAY), Wish(container_toolkit=True)
    found = images.choose(where, wished, resolver.resolve(where, wished, rules)["stack"], rules)
    assert [image["name"] for image in found if image["tag"]]


def test_a_machine_without_cards_has_no_images(rules: Any) -> None:
    where = machine.machine_from_options([], "ubuntu-24.04", "x86_64", {}, rules, today=TODAY)
    assert images.choose(where, Wish(), {}, rules) == []


def test_the_driver_of_another_owner_decides(named: Named) -> None:
    image = named("4090", "ubuntu-24.04", wsl=True)["nvidia/cuda"]
    assert image["tag"]
    assert image["mode"] == "native"


def test_a_jetson_is_told_that_these_images_are_not_for_it(named: Named) -> None:
    found = named("Jetson AGX Orin 64GB", "ubuntu-22.04", arch="aarch64")
    assert found
    assert all(image["tag"] is None and "JetPack" in image["text"] for image in found.values())


def test_a_mirror_of_a_registry_is_in_the_reference(named: Named) -> None:
    wish = {"gpuwright_mirrors": {"ngc": "https://registry.example/ngc"}}
    found = named("H100", "ubuntu-24.04", wish=wish)
    assert found["nvidia/pytorch"]["reference"].startswith("registry.example/ngc/nvidia/pytorch:")
    assert found["nvidia/cuda"]["reference"].startswith("docker.io/")


def test_several_cards_need_an_image_with_code_for_all(named: Named) -> None:
    assert named(["V100", "H100"], "ubuntu-22.04", "driver=580")["nvidia/cuda"]["cuda"] == "12.9"


# the table --------------------------------------------------------------------------------------------


def test_every_cuda_branch_and_image_that_the_table_names_is_known(rules: Any) -> None:
    table = rules["images"]
    known = {row["cuda"] for row in rules["cuda"]["rows"]}
    assert {".".join(row["release"].split(".")[:2]) for row in table["tags"]} <= known
    assert {row["cuda"] for row in [*table["admits"], *table["releases"]]} <= known
    branches = {row["branch"] for row in rules["driver_branches"]["rows"]}
    for row in table["admits"]:
        assert {*row["x86_64"], *row["aarch64"]} <= branches
    for row in table["releases"]:
        assert {row.get("driver"), *row.get("datacenter", ())} - {None} <= branches
        assert ("driver" in row) == ("datacenter" in row)
    assert {row["image"] for row in table["releases"]} | {"cuda"} == {row["image"] for row in table["images"]}


def test_the_rows_stand_oldest_first_and_a_series_ends_with_its_last(rules: Any) -> None:
    table = rules["images"]
    releases = [numeric_version.key(row["release"]) for row in table["tags"]]
    assert releases == sorted(releases)
    for image in table["images"]:
        mine = [numeric_version.key(row["release"]) for row in table["releases"] if row["image"] == image["image"]]
        assert mine == sorted(set(mine))
        assert image["last"] is None or mine[-1] == numeric_version.key(image["last"])


def test_a_tag_of_ngc_begins_with_its_release(rules: Any) -> None:
    assert all(row["tag"].startswith(f"{row['release']}-") for row in rules["images"]["releases"])


def test_an_image_lets_no_branch_in_that_brings_its_cuda(rules: Any) -> None:
    brings = {row["branch"]: row["max_cuda"] for row in rules["driver_branches"]["rows"]}
    for row in rules["images"]["admits"]:
        assert not [each for each in row["x86_64"] if numeric_version.at_least(brings[each], row["cuda"])], row


def test_every_tag_that_is_named_has_code_for_the_cards(named: Named, rules: Any) -> None:
    for gpu in ("V100", "T4", "A100", "H100", "B200", "5090", "L40S"):
        for image in named(gpu, "ubuntu-24.04").values():
            cards = machine.machine_from_options([gpu], "ubuntu-24.04", "x86_64", {}, rules, today=TODAY).cards
            assert image["cuda"] is None or not targets.toolkit_lacks(image["cuda"], cards, rules)
