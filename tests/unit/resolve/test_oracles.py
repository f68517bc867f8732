"""Tools that others trust, where they decide what the resolver decides too. docs/comparison.md says why where they differ.

What stands here of theirs are facts, read in their public sources at the commits that the page names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import support as cuda_support

Resolve = Callable[..., dict[str, Any]]
Rules = dict[str, Any]

# astral-sh/uv, crates/uv-torch/src/backend.rs at 26a9dd4 (2026-08-21): the lowest Linux driver for each backend, in uv's order.
UV = {
    "cu132": "580",
    "cu130": "580",
    "cu129": "525.60.13",
    "cu128": "525.60.13",
    "cu126": "525.60.13",
    "cu125": "525.60.13",
    "cu124": "525.60.13",
    "cu123": "525.60.13",
    "cu122": "525.60.13",
    "cu121": "525.60.13",
    "cu120": "525.60.13",
    "cu118": "450.80.2",
    "cu117": "450.80.2",
    "cu116": "450.80.2",
    "cu115": "450.80.2",
    "cu114": "450.80.2",
    "cu113": "450.80.2",
    "cu112": "450.80.2",
    "cu111": "450.80.2",
    "cu110": "450.36.6",
    "cu102": "440.33",
    "cu101": "418.39",
    "cu100": "410.48",
    "cu92": "396.26",
    "cu91": "390.46",
    "cu90": "384.81",
    "cu80": "375.26",
}
UV_NEVER_PUBLISHED = {"cu112", "cu114", "cu120", "cu122", "cu123", "cu125"}

# zeroecco/nvidia-converge, nvidia_converge/cuda_compat.py at 57bc684 (2026-08-03): c compatible, n not applicable, - unsupported,
# in the order of the branches.
CONVERGE_BRANCHES = ("535", "570", "580", "590", "595", "610")
CONVERGE_FORWARD = {
    "12.2": "n-----",
    "12.3": "c-----",
    "12.4": "c-----",
    "12.5": "c-----",
    "12.6": "c-----",
    "12.8": "cn----",
    "12.9": "cc----",
    "13.0": "ccn---",
    "13.1": "cccn--",
    "13.2": "ccccn-",
    "13.3": "cccccn",
}
CONVERGE_MINOR = {"12": "525", "13": "580"}


def driver(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["ok"], answer
    found: dict[str, Any] = answer["stack"]["driver"]
    return found


def known_builds(rules: Rules) -> list[str]:
    """Every driver build that a table names."""
    branches = rules["driver_branches"]
    found = {row["latest"] for row in branches["rows"] if row["latest"]}
    found |= {build for row in branches["first_builds"] for build in row["first"]}
    found |= {row["native_driver"] for row in rules["cuda"]["rows"] if row["native_driver"]}
    return sorted(found, key=numeric_version.key)


def runs(build: str, cuda: str, rules: Rules) -> bool:
    rows = [row for row in rules["driver_branches"]["rows"] if int(row["branch"]) <= int(numeric_version.major(build))]
    return bool(rows) and cuda_support.of_branch(rows[-1], build).mode(cuda, rules) is not None


# uv's torch-backend -------------------------------------------------------------------------------------


def test_every_driver_build_runs_the_cuda_that_uv_says_it_runs(rules: Rules) -> None:
    versions = {row["cuda"] for row in rules["cuda"]["rows"]}
    compared = 0
    for backend, floor in UV.items():
        cuda = f"{backend[2:-1]}.{backend[-1]}"
        if cuda not in versions:
            continue
        for build in known_builds(rules):
            assert runs(build, cuda, rules) == numeric_version.at_least(build, floor), (build, backend)
            compared += 1
    assert compared > 1500


def test_uv_and_the_rules_name_the_same_variants_of_torch(rules: Rules) -> None:
    index = rules["pytorch"]["index"][0]
    assert set(index["existed"]) <= set(UV)
    assert set(UV) & set(index["never"]) == UV_NEVER_PUBLISHED
    assert {row["variant"] for row in rules["pytorch"]["variants"]} <= set(UV)


@pytest.mark.parametrize(
    ("card", "build", "uv", "ours"),
    [
        # uv takes the newest that the driver runs; we the newest that it brings in full.
        ("H100", "595.71.05", "cu132", "cu130"),
        ("H100", "580.95.05", "cu132", "cu130"),
        ("H100", "570.124.06", "cu129", "cu126"),
        # uv does not look at the card: what it takes has no code for these.
        ("V100", "580.95.05", "cu132", "cu126"),
        ("GTX 1080 Ti", "580.95.05", "cu132", "cu126"),
        ("V100", "570.124.06", "cu129", "cu126"),
    ],
)
def test_where_uv_takes_another_variant_ours_has_code_for_the_card(
    resolve: Resolve, rules: Rules, card: str, build: str, uv: str, ours: str
) -> None:
    assert next(backend for backend, floor in UV.items() if numeric_version.at_least(build, floor)) == uv
    answer = resolve(card, "ubuntu-22.04", f"driver={build}", "pytorch")
    assert answer["ok"], answer
    framework = answer["stack"]["frameworks"][0]
    assert framework["variant"] == ours
    row = next(
        row
        for row in rules["pytorch"]["variants"]
        if row["variant"] == ours and numeric_version.belongs(framework["version"], row["release"])
    )
    capability = answer["gpus"][0]["compute_capability"]
    assert numeric_version.major(capability) in {numeric_version.major(each) for each in row["targets"]["x86_64"]}


# ubuntu-drivers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "flavour"),
    [
        ("GTX 980", "proprietary"),
        ("GTX 1080 Ti", "proprietary"),
        ("V100", "proprietary"),
        ("RTX 2080 Ti", "open"),
        ("T4", "open"),
        ("A100 80GB", "open"),
        ("RTX 4090", "open"),
        ("H100", "open"),
        ("RTX 5090", "open"),
        ("B200", "open"),
    ],
)
@pytest.mark.parametrize(("kind", "suffix"), [("desktop", ""), ("compute", "-server")])
def test_from_560_on_the_flavour_is_the_one_that_ubuntu_drivers_takes(
    resolve: Resolve, card: str, flavour: str, kind: str, suffix: str
) -> None:
    found = driver(resolve(card, "ubuntu-24.04", "driver-source=distro", "driver=580", f"driver-set={kind}"))
    assert found["modules"] == flavour
    tail = "-open" if flavour == "open" else ""
    assert f"linux-modules-nvidia-580{suffix}{tail}-generic" in found["packages"]


@pytest.mark.parametrize(("card", "ours"), [("RTX 4090", "proprietary"), ("H100", "open")])
def test_before_560_ubuntu_drivers_takes_proprietary_modules_and_we_do_outside_of_data_centres(
    resolve: Resolve, card: str, ours: str
) -> None:
    assert driver(resolve(card, "ubuntu-22.04", "driver=535"))["modules"] == ours


def test_ubuntu_drivers_takes_the_newest_supported_branch_and_we_the_long_term_one(resolve: Resolve) -> None:
    assert driver(resolve("RTX 4090", "ubuntu-24.04", "driver-source=distro"))["branch"] == "580"
    assert driver(resolve("RTX 4090", "ubuntu-24.04", "driver-source=distro", "driver=595"))["branch"] == "595"


# NVIDIA's driver assistant ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cards", "flavour"),
    [
        (["V100"], "proprietary"),
        (["GTX 1080 Ti"], "proprietary"),
        (["T4"], "open"),
        (["RTX 4090", "H100"], "open"),
        (["RTX 5090"], "open"),
        (["H100", "RTX 5090"], "open"),
        (["T4", "V100"], "proprietary"),
        (["GTX 1080 Ti", "RTX 4090"], "proprietary"),
    ],
)
@pytest.mark.parametrize(
    ("os", "packages"),
    [
        ("debian-12", {"open": "nvidia-open", "proprietary": "cuda-drivers"}),
        ("ubuntu-22.04", {"open": "nvidia-open-580", "proprietary": "cuda-drivers-580"}),
    ],
)
def test_cards_get_the_modules_and_the_package_that_nvidias_assistant_names(
    resolve: Resolve, cards: list[str], flavour: str, os: str, packages: dict[str, str]
) -> None:
    found = driver(resolve(cards, os, "driver-source=nvidia", "driver=580", "driver-set=desktop"))
    assert found["modules"] == flavour
    assert packages[flavour] in found["packages"]


def test_where_the_assistant_leaves_a_card_without_a_driver_there_is_a_conflict(resolve: Resolve) -> None:
    answer = resolve(["RTX 5090", "V100"], "debian-12")
    assert [entry["rule"] for entry in answer["conflicts"]] == ["driver.modules-cards"]


@pytest.mark.parametrize("card", ["V100", "GTX 1080 Ti", "GTX 980"])
def test_where_the_assistant_takes_the_newest_branch_we_take_one_that_drives_the_card(
    resolve: Resolve, card: str
) -> None:
    assert driver(resolve(card, "ubuntu-22.04"))["branch"] == "580"
    assert not resolve(card, "ubuntu-22.04", "driver=595")["ok"]


# nvidia-converge ----------------------------------------------------------------------------------------


def forward(branch: str, cuda: str, rules: Rules) -> str:
    """Our side of a cell: c where cuda-compat makes the CUDA run that the branch does not bring."""
    for row in rules["cuda"]["forward"]:
        if (
            row["branch"] == branch
            and numeric_version.at_least(cuda, row["first"])
            and numeric_version.at_least(row["last"], cuda)
        ):
            return "c"
    brought = next(row["max_cuda"] for row in rules["driver_branches"]["rows"] if row["branch"] == branch)
    return "n" if brought == cuda else "-"


def test_cuda_compat_helps_where_nvidia_converge_says_that_it_does(rules: Rules) -> None:
    for cuda, cells in CONVERGE_FORWARD.items():
        ours = "".join(forward(branch, cuda, rules) for branch in CONVERGE_BRANCHES)
        assert ours == cells, cuda


def test_the_lowest_branches_of_nvidia_converge_are_ours(rules: Rules) -> None:
    ours = {row["major"]: numeric_version.major(row["driver"]) for row in rules["cuda"]["families"]}
    assert {major: ours[major] for major in CONVERGE_MINOR} == CONVERGE_MINOR


def test_the_driver_that_nvidia_converge_begins_with_is_the_one_we_choose(resolve: Resolve) -> None:
    for os in ("ubuntu-22.04", "ubuntu-24.04", "debian-12", "debian-13"):
        found = driver(resolve("H100", os))
        assert (found["branch"], found["modules"]) == ("580", "open")
        assert "nvidia-driver-pinning-580" in found["packages"]
