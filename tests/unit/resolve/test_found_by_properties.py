"""What tests/property found once: the smallest example of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

Answer = Callable[..., dict[str, Any]]
Facts = Any
Resolve = Callable[..., dict[str, Any]]


def test_a_driver_whose_modules_cannot_be_told_does_not_answer_a_wish_for_modules(facts: Facts, answer: Answer) -> None:
    facts["driver"] = {
        "owner": "packages",
        "source": "nvidia",
        "packages": {"nvidia-driver-cuda": "580.178.04-1"},
        "loaded_version": "580.178.04",
        "loaded_modules": None,
        "user_version": "580.178.04",
    }
    assert answer(facts)["stack"]["driver"]["adopted"]
    asked = answer(facts, "driver-modules=open")["stack"]["driver"]
    assert (asked["adopted"], asked["modules"]) == (False, "open")


def test_a_variant_with_cuda_is_not_answered_with_wheels_for_the_processor(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"] = []
    for want in ("torch==2.14.1+cu130", "tensorflow[and-cuda]", "jax[cuda13]"):
        found = answer(facts, want, "python=3.13")
        assert [entry["rule"] for entry in found["conflicts"]] == ["frameworks.no-card"], want
    assert answer(facts, "torch==2.14.1+cpu")["stack"]["frameworks"][0]["variant"] == "cpu"
    assert answer(facts, "pytorch")["stack"]["frameworks"][0]["variant"] == "cpu"


def test_kepler_gets_the_last_cudnn_that_serves_it_and_not_the_last_for_cuda_11(resolve: Resolve) -> None:
    found = resolve("Tesla K80", "ubuntu-22.04", "cudnn")
    assert found["stack"]["cudnn"]["version"] == "8.7.0.84"
    assert "cudnn.unconfirmed" in {entry["rule"] for entry in found["warnings"]}
    assert not resolve("Tesla K80", "ubuntu-22.04", "cudnn=8.9.2.26")["ok"]


def test_a_wish_to_leave_out_is_named_where_the_driver_that_stays_has_no_name_to_ask_for(
    facts: Facts, answer: Answer
) -> None:
    facts["packages"]["sources"] = []
    facts["driver"] = {
        "owner": "packages",
        "source": None,
        "packages": {"nvidia-smi": "580.178.04-1"},
        "loaded_version": "580.178.04",
        "loaded_modules": "open",
        "user_version": "580.178.04",
    }
    found = answer(facts, "driver-source=distro")
    assert [entry["remedy"] for entry in found["conflicts"]] == ["leave driver-source out"]
    assert answer(facts)["ok"]


def test_a_machine_that_does_not_tell_its_architecture_is_refused_with_a_reason(facts: Facts, answer: Answer) -> None:
    facts["os"]["arch"] = None
    with pytest.raises(BadInput, match="processor architecture"):
        answer(facts)


@pytest.mark.parametrize("want", ["driver=" + "9" * 5000, "cuda=" + "9" * 5000, "pytorch=" + "9" * 5000 + ".1"])
def test_a_number_of_thousands_of_digits_is_no_version(want: str) -> None:
    with pytest.raises(BadInput):
        Wish.from_wants([want])


@pytest.mark.parametrize("want", ["pytorch=\u0660", "cuda=\u0661\u0662", "driver=\u0665\u0668\u0660"])
def test_digits_of_another_script_are_no_version(want: str) -> None:
    with pytest.raises(BadInput):
        Wish.from_wants([want])


def test_cudnn_is_not_given_up_where_it_is_to_be_had_beside_the_toolkit_that_is_proposed(
    facts: Facts, answer: Answer
) -> None:
    # The newest toolkit, which cuDNN alone would follow, is none for this driver.
    facts["os"].update({"id": "ubuntu", "version": "22.04", "codename": "jammy", "family": "ubuntu", "glibc": "2.35"})
    _gtx_1650_with(facts, "418.197.02")
    (conflict,) = answer(facts, "cuda=10", "cudnn")["conflicts"]
    assert conflict["remedy"] == "ask for cuda=11.7"
    assert answer(facts, "cuda=11.7", "cudnn")["ok"]


def test_nccl_is_not_given_up_where_a_framework_moves_the_driver_that_it_follows(facts: Facts, answer: Answer) -> None:
    # This repository begins at CUDA 13.2: NCCL alone finds nothing for the CUDA 12.0 of the driver that is there.
    facts["os"].update(
        {"id": "ubuntu", "version": "26.04", "codename": "resolute", "family": "ubuntu", "glibc": "2.43"}
    )
    _gtx_1650_with(facts, "525.147.05")
    remedies = {each["remedy"] for each in answer(facts, "nccl", "jax[cuda12]==0.4.30")["conflicts"]}
    assert "ask for jax[cuda13]==0.7.2" in remedies
    assert answer(facts, "nccl", "jax[cuda13]==0.7.2")["ok"]


def test_what_a_branch_runs_is_not_read_from_how_its_modules_are_built(facts: Facts, answer: Answer) -> None:
    # vLLM alone does not move the driver; DALI does, and NVIDIA's 595 runs the wheels of both.
    facts["os"].update({"id": "rocky", "version": "9", "codename": None, "family": "rhel", "glibc": "2.34"})
    facts["packages"] |= {"manager": "dnf", "sources": []}
    facts["python"]["interpreters"] = []
    _gtx_1650_with(facts, "530.30.02")
    found = answer(facts, "driver-source=distro", "vllm>=0.24.0", "dali==1.22.0+cuda110")
    assert {each["remedy"] for each in found["conflicts"]} == {
        "ask for dali=1.53.0+cuda130 and leave driver-source out"
    }


def test_a_source_of_toolkits_that_may_be_changed_may_stay_too(facts: Facts, answer: Answer) -> None:
    # The distribution has a toolkit for this card, NVIDIA's repository for this system begins with one that has no code for it.
    facts["pci"]["gpus"] = [{**facts["pci"]["gpus"][0], "device": "1402"}]
    facts["python"]["interpreters"] = []
    (conflict,) = answer(facts, "cuda-source=distro", "tensorrt", "cupy")["conflicts"]
    assert conflict["remedy"].startswith("leave CuPy out")
    assert answer(facts, "cuda-source=distro", "tensorrt")["ok"]


def _gtx_1650_with(facts: Facts, version: str) -> None:
    """The card, and a driver of NVIDIA's packages."""
    facts["pci"]["gpus"] = [{**facts["pci"]["gpus"][0], "device": "1f82"}]
    facts["driver"] = {
        "owner": "packages",
        "source": "nvidia",
        "packages": {"nvidia-driver-cuda": f"{version}-1"},
        "loaded_version": version,
        "loaded_modules": "open",
        "user_version": version,
    }
