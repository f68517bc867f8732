"""Wishes as people write them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import (
    DEFAULT_WANTS,
    BadInput,
    FrameworkWish,
    Wish,
)


@pytest.mark.parametrize(
    ("want", "expected"),
    [
        ("driver", {"driver": True, "driver_branch": None}),
        ("driver=580", {"driver_branch": "580", "driver_version": None}),
        ("driver=580.95.05", {"driver_branch": "580", "driver_version": "580.95.05"}),
        ("driver-modules=open", {"driver_modules": "open", "driver": True}),
        ("driver-source=distro", {"driver_source": "distro"}),
        ("driver-set=desktop", {"driver_set": "desktop"}),
        ("cuda", {"cuda": True, "cuda_versions": ()}),
        ("cuda=12", {"cuda_versions": ("12",)}),
        ("cuda==12.8", {"cuda_versions": ("12.8",)}),
        ("cuda=12.8.1", {"cuda_versions": ("12.8.1",)}),
        ("cudnn", {"cudnn": True, "cudnn_version": None}),
        ("cudnn=9.10.2", {"cudnn_version": "9.10.2.21"}),
        ("container-toolkit", {"container_toolkit": True}),
        ("nvidia-container-toolkit=1.20.0", {"container_toolkit_version": "1.20.0"}),
        ("container-engine=containerd", {"container_toolkit": True, "container_toolkit_engine": "containerd"}),
        ("python=3.11", {"python": "3.11"}),
        ("nccl", {"nccl": True, "nccl_version": None}),
        ("nccl=2.27.7", {"nccl": True, "nccl_version": "2.27.7"}),
        ("tensorrt", {"tensorrt": True, "tensorrt_version": None}),
        ("tensorrt=10.13.2.6", {"tensorrt": True, "tensorrt_version": "10.13.2.6"}),
        ("tensorrt=10.13", {"tensorrt_version": "10.13.3.9"}),
        ("cuda-compat=auto", {"cuda_compat": True}),
        ("cuda-compat", {"cuda_compat": True}),
    ],
)
def test_a_want_is_read(want: str, expected: dict[str, Any]) -> None:
    wish = Wish.from_wants([want])
    assert {key: getattr(wish, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("want", "specifier", "variant"),
    [
        ("pytorch", "", None),
        ("pytorch=2.8", "==2.8.*", None),
        ("torch==2.3.0+cu121", "==2.3.0", "cu121"),
        ("pytorch=2.8+cu128", "==2.8.*", "cu128"),
        ("pytorch>=2.7", ">=2.7", None),
        ("pytorch = 2.8", "==2.8.*", None),
        ("torch==2.14.1+cpu", "==2.14.1", "cpu"),
        ("torch+cu126", "", "cu126"),
        ("pytorch+cu126>=2.7", ">=2.7", "cu126"),
    ],
)
def test_pytorch_is_read_as_pip_would_be_told(want: str, specifier: str, variant: str | None) -> None:
    (framework,) = Wish.from_wants([want]).frameworks
    assert (framework.name, framework.specifier, framework.variant) == ("pytorch", specifier, variant)


@pytest.mark.parametrize(
    ("want", "said", "instead"),
    [
        ("torch+cu122", "no release of torch that is known is a build +cu122", "pytorch+cu132"),
        ("cupy+cuda9", "no release of cupy that is known is a build +cuda9", "cupy+cuda13"),
        ("jax+cuda12", "no release of jax", "jax"),
        ("cuda+cu12", "only frameworks have builds", "cuda"),
    ],
)
def test_a_build_behind_a_name_that_there_is_not_is_refused(want: str, said: str, instead: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)) as error:
        Wish.from_wants([want])
    assert error.value.suggestions[0] == instead


@pytest.mark.parametrize(
    ("want", "name", "specifier", "variant"),
    [
        ("cupy+cuda12", "cupy", "", "cuda12"),
        ("tensorflow", "tensorflow", "", None),
        ("tf", "tensorflow", "", None),
        ("tensorflow==2.16.1", "tensorflow", "==2.16.1", None),
        ("tensorflow[and-cuda]", "tensorflow", "", "and-cuda"),
        ("tensorflow[and_cuda]>=2.17", "tensorflow", ">=2.17", "and-cuda"),
        ("tensorflow=2.18", "tensorflow", "==2.18.*", None),
        ("jax", "jax", "", None),
        ("jax[cuda12]", "jax", "", "cuda12"),
        ("jax==0.7.2", "jax", "==0.7.2", None),
        ("jax[cuda13]>=0.7", "jax", ">=0.7", "cuda13"),
        ("jax[cuda13] >= 0.7, < 0.10", "jax", ">=0.7,<0.10", "cuda13"),
        ("jax[cpu]", "jax", "", "cpu"),
        ("dali", "dali", "", None),
        ("dali=1.53", "dali", "==1.53.*", None),
        ("onnxruntime", "onnxruntime", "", None),
        ("ort", "onnxruntime", "", None),
        ("onnxruntime-gpu", "onnxruntime", "", "gpu"),
        ("onnxruntime==1.23.2", "onnxruntime", "==1.23.2", None),
        ("onnxruntime_gpu>=1.25,<1.27", "onnxruntime", ">=1.25,<1.27", "gpu"),
        ("cupy", "cupy", "", None),
        ("cupy=14.1", "cupy", "==14.1.*", None),
        ("cupy-cuda13x==14.2.0", "cupy", "==14.2.0", "cuda13"),
        ("cupy-cuda117==10.6.0", "cupy", "==10.6.0", "cuda117"),
        ("cupy=14.2.0+cuda12", "cupy", "==14.2.0", "cuda12"),
        ("lmdb", "lmdb", "", None),
        ("py-lmdb==2.3.0", "lmdb", "==2.3.0", None),
        ("vllm", "vllm", "", None),
        ("vllm==0.31.0", "vllm", "==0.31.0", None),
        ("vllm>=0.30,<0.33", "vllm", ">=0.30,<0.33", None),
        ("nvidia-dali", "dali", "", None),
        ("nvidia-dali-cuda120==1.53.0", "dali", "==1.53.0", "cuda120"),
    ],
)
def test_every_framework_is_read_as_pip_would_be_told(
    want: str, name: str, specifier: str, variant: str | None
) -> None:
    (framework,) = Wish.from_wants([want]).frameworks
    assert (framework.name, framework.specifier, framework.variant) == (name, specifier, variant)


def test_what_is_locked_as_a_requirement_is_read_back_as_the_same_wish() -> None:
    for requirement, name, variant in (
        ("torch==2.14.1+cu126", "pytorch", "cu126"),
        ("tensorflow[and-cuda]==2.21.0", "tensorflow", "and-cuda"),
        ("jax[cuda13]==0.12.0.1", "jax", "cuda13"),
        ("nvidia-dali-cuda130==2.4.0", "dali", "cuda130"),
    ):
        (framework,) = Wish.from_wants([requirement]).frameworks
        assert (framework.name, framework.variant) == (name, variant)
        assert framework.specifier == "==" + requirement.split("==")[1].split("+")[0]


@pytest.mark.parametrize(
    ("variant", "major"), [("cu121", "12"), ("cuda13", "13"), ("cuda120", "12"), ("and-cuda", None), (None, None)]
)
def test_a_variant_names_its_cuda(variant: str | None, major: str | None) -> None:
    assert FrameworkWish("x", variant=variant).cuda_major == major


@pytest.mark.parametrize(
    ("want", "instead"),
    [
        ("tensorflow-gpu==2.16.1", "tensorflow[and-cuda]==2.16.2"),
        ("tensorflow-gpu", "tensorflow[and-cuda]==2.14.1"),
        ("tensorflow[gpu]", "tensorflow[and-cuda]"),
        ("tensorflow==2.16.1+cu121", "tensorflow=2.16.1"),
        ("jax[cuda12_pip]==0.4.30", "jax[cuda12]==0.4.30"),
        ("jax[cuda]", "jax[cuda13]"),
        ("jax[cuda12_local]", "jax[cuda12]"),
        ("jax[cuda13]==0.6.0", "jax[cuda12]==0.6.0"),
        ("jax==0.4.32", "jax=0.4.33"),
        ("dali=1.40", "dali=1.53.0"),
        ("onnxruntime[cuda]", "onnxruntime"),
        ("onnxruntime=1.23.2+cu128", "onnxruntime=1.23.2"),
        ("dali=2.4+cuda110", "dali=2.4.0+cuda130"),
        ("cupy-cuda11x==14.2.0", "cupy=14.2.0+cuda12"),
        ("cupy[ctk]", "cupy"),
        ("vllm=0.33.0+cu130", "vllm=0.33.0"),
        ("pytorch[cuda]", "pytorch"),
        ("torch==2.3.0+cu122", "pytorch=2.3.0+cu121"),
        ("pytorch=>2.7", "pytorch>=2.7"),
        ("nccl=2.27.99", "nccl=2.27.7"),
        ("nccl>=2.27", "nccl=2.27"),
        ("tensorrt=9.9", "tensorrt=10"),
        ("cuda=12.10", "cuda=12.9"),
        ("torch==2.7.9", "pytorch=2.7.1"),
        ("vllm==0.30.4", "vllm=0.30.0"),
        ("cuda-compat=13.0", "cuda-compat=auto"),
        ("tensorflow-gpu==2.14.0", "tensorflow[and-cuda]==2.14.1"),
        ("pytorch=2.1+cu122", "pytorch=2.1.2+cu121"),
        ("jax[cuda12_pip]", "jax[cuda12]"),
        ("cuda=12.7", "cuda=12.8"),
        ("pytorch=2.13+cu124", "pytorch=2.13.0+cu130"),
        ("cudnn=9.25.0.15", "cudnn=9.25.1.1"),
        ("driver=581", "driver=580"),
        ("driver-modules=closed", "driver-modules=proprietary"),
        ("pytroch", "pytorch"),
        ("cuda>=12", "cuda=12"),
        ("=12", "cuda"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(want: str, instead: str) -> None:
    with pytest.raises(BadInput) as caught:
        Wish.from_wants([want])
    assert any(instead in suggestion for suggestion in caught.value.suggestions), caught.value.suggestions
    assert want in caught.value.message


def test_a_release_that_was_withdrawn_says_so() -> None:
    with pytest.raises(BadInput, match="was withdrawn"):
        Wish.from_wants(["jax==0.4.32"])


def test_a_release_without_wheels_is_told_from_one_that_never_was() -> None:
    with pytest.raises(BadInput, match="only a stub"):
        Wish.from_wants(["dali=1.40"])
    with pytest.raises(BadInput, match=r"there is no dali 1\.60"):
        Wish.from_wants(["dali=1.60"])


def test_two_wishes_for_a_framework_that_agree_are_one() -> None:
    wish = Wish.from_wants(["jax>=0.7", "tensorflow", "jax[cuda12]", "jax", "jax>=0.7"])
    assert [(each.name, each.specifier, each.variant) for each in wish.frameworks] == [
        ("tensorflow", "", None),
        ("jax", ">=0.7", "cuda12"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("torch==2.15.0", "torch==2.14.1"),
        ("pytorch>=2.7", "pytorch<2.10"),
        ("torch==2.14.1+cu126", "torch==2.14.1+cu130"),
        ("jax[cuda12]@research", "jax[cuda13]@research"),
        ("driver=580", "driver=595"),
        ("driver=580.159.03", "driver=580.95.05"),
        ("driver-modules=open", "driver-modules=proprietary"),
        ("driver-source=nvidia", "driver-source=distro"),
        ("cuda-source=nvidia", "cuda-source=runfile"),
        ("cudnn-source=packages", "cudnn-source=archive"),
        ("container-engine=docker", "container-engine=podman"),
        ("container-toolkit=1.18.2", "container-toolkit=1.19.1"),
        ("power-limit=350", "power-limit=300"),
        ("power-limit=default", "power-limit=300"),
        ("python=3.11", "python=3.12"),
    ],
)
def test_two_wants_that_say_different_things_are_refused_with_both_named(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(BadInput) as refused:
            Wish.from_wants([first, "cuda", second])
        assert repr(first) in refused.value.message
        assert repr(second) in refused.value.message
    assert Wish.from_wants([one, one]) == Wish.from_wants([one])


def test_wants_that_say_more_of_the_same_are_no_contradiction() -> None:
    wish = Wish.from_wants(
        ["driver", "driver=580", "driver=580.159.03", "driver-modules=open", "cuda=12.8", "cuda=13.0"]
    )
    assert (wish.driver_version, wish.driver_modules, wish.cuda_versions) == ("580.159.03", "open", ("12.8", "13.0"))
    assert len(Wish.from_wants(["torch==2.14.1", "torch@research==2.7.1"]).frameworks) == 2


def test_variables_that_say_different_things_of_a_framework_are_refused() -> None:
    with pytest.raises(BadInput, match=r"'torch==2\.15\.0' and 'torch==2\.14\.1'"):
        Wish.from_variables({"frameworks_wanted": ["torch==2.15.0", "torch==2.14.1"]})
    named = {"research": ["jax==0.12.0"]}
    with pytest.raises(BadInput, match=r"say different things"):
        Wish.from_variables({"frameworks_wanted": ["jax@research==0.7.2"], "frameworks_environments": named})
    # A want goes before the variables of the host, as ever.
    wish = Wish.from_variables({"frameworks_wanted": ["torch==2.15.0"], "gpuwright_want": ["torch==2.14.1"]})
    assert [each.specifier for each in wish.frameworks] == ["==2.14.1"]


def test_forward_compatibility_alone_is_no_wish_for_a_component() -> None:
    wish = Wish.from_wants(["cuda-compat=auto"])
    assert wish.nothing_wished
    assert wish.with_defaults().cuda_compat
    assert not Wish.from_wants(["nccl"]).nothing_wished
    assert not Wish.from_wants(["tensorrt"]).nothing_wished


def test_several_versions_of_cuda_stand_side_by_side() -> None:
    assert Wish.from_wants(["cuda=12.8", "cuda=13.0"]).cuda_versions == ("12.8", "13.0")


def test_automatic_variables_wish_nothing() -> None:
    wish = Wish.from_variables(
        {"nvidia_driver_branch": "auto", "cuda_versions": "auto", "frameworks_wanted": [], "cuda_cudnn": False}
    )
    assert wish == Wish()
    assert wish.nothing_wished


def test_the_default_is_used_only_where_nothing_is_wished() -> None:
    assert Wish().with_defaults() == Wish.from_wants(DEFAULT_WANTS)
    wish = Wish.from_wants(["driver=580"])
    assert wish.with_defaults() == wish


def test_a_role_that_is_used_alone_is_wished_whatever_else_is() -> None:
    assert Wish.from_wants(["driver=580"]).with_roles(["cuda", "reboot"]) == Wish.from_wants(["driver=580", "cuda"])
    assert Wish.from_wants(["cuda"]).with_roles(["frameworks"]).frameworks[0].name == "pytorch"


def test_a_library_of_cuda_that_is_wished_brings_no_toolkit_with_its_role() -> None:
    assert not Wish.from_wants(["driver", "nccl"]).with_roles(["cuda"]).cuda


def test_what_is_wished_of_a_role_already_stays() -> None:
    wish = Wish.from_wants(["cuda=12.8", "driver=580", "jax", "container-toolkit=1.18.0"])
    assert wish.with_roles(["nvidia_driver", "cuda", "container_toolkit", "frameworks"]) == wish


def test_variables_say_the_same_as_wants() -> None:
    variables = {
        "nvidia_driver_branch": 580,
        "nvidia_driver_modules": "open",
        "cuda_versions": [12.8],
        "cuda_cudnn": "9.10.2",
        "cuda_nccl": "2.27.7",
        "cuda_tensorrt": True,
        "cuda_compat": "auto",
        "container_toolkit_wanted": True,
        "frameworks_wanted": ["pytorch>=2.7", "jax[cuda12]"],
    }
    wants = ["driver=580", "driver-modules=open", "cuda=12.8", "cudnn=9.10.2", "container-toolkit", "pytorch>=2.7"]
    wants += ["nccl=2.27.7", "tensorrt", "cuda-compat=auto", "jax[cuda12]"]
    left, right = Wish.from_variables(variables), Wish.from_wants(wants)
    assert (left.nccl_version, left.tensorrt, left.cuda_compat) == (right.nccl_version, right.tensorrt, True)
    assert [each.specifier for each in left.frameworks] == [each.specifier for each in right.frameworks]
    assert (left.driver_branch, left.cuda_versions, left.cudnn_version, left.container_toolkit) == (
        right.driver_branch,
        right.cuda_versions,
        right.cudnn_version,
        right.container_toolkit,
    )


def test_a_want_wins_over_the_file_and_the_file_over_the_variables() -> None:
    variables = {
        "nvidia_driver_branch": "535",
        "cuda_versions": ["12.2"],
        "gpuwright_wish": {"nvidia_driver_branch": "595", "nvidia_driver_modules": "open"},
        "gpuwright_want": ["driver=580"],
    }
    wish = Wish.from_variables(variables)
    assert (wish.driver_branch, wish.driver_modules, wish.cuda_versions) == ("580", "open", ("12.2",))


def test_a_branch_that_is_wanted_drops_a_version_of_another() -> None:
    wish = Wish.from_variables({"nvidia_driver_version": "535.104.05", "gpuwright_want": ["driver=580"]})
    assert (wish.driver_branch, wish.driver_version) == ("580", None)


@pytest.mark.parametrize(
    ("variables", "wants", "field", "value"),
    [
        ({"cuda_versions": ["12.8"]}, ["cuda"], "cuda_versions", ("12.8",)),
        ({"cuda_versions": ["12.8.1"]}, ["cuda=12.8"], "cuda_versions", ("12.8.1",)),
        ({"cuda_versions": ["12.8", "13.0"]}, ["cuda=12"], "cuda_versions", ("12.8",)),
        ({"cuda_versions": ["12.8"]}, ["cuda=13.0"], "cuda_versions", ("13.0",)),
        ({"nvidia_driver_version": "580.159.03"}, ["driver=580"], "driver_version", "580.159.03"),
        ({"nvidia_driver_version": "580.159.03"}, ["driver"], "driver_version", "580.159.03"),
        ({"cuda_cudnn": "9.10.2"}, ["cudnn"], "cudnn_version", "9.10.2.21"),
        ({"gpu_log_days": 7}, ["gpu-log"], "gpu_log", 7),
        ({"watch_interval": "5m"}, ["watch"], "watch", 5),
        ({"monitoring_source": "smi"}, ["monitoring"], "monitoring_exporters", "smi"),
        ({"gpu_log_days": 7}, ["gpu-log=14"], "gpu_log", 14),
    ],
)
def test_a_name_alone_takes_no_version_away_and_a_version_replaces_another(
    variables: dict[str, object], wants: list[str], field: str, value: object
) -> None:
    assert getattr(Wish.from_variables({**variables, "gpuwright_want": wants}), field) == value
    assert getattr(Wish.from_variables({"gpuwright_wish": {**variables}, "gpuwright_want": wants}), field) == value


def test_a_framework_by_its_name_alone_keeps_what_a_variable_says_of_it() -> None:
    asked = {"frameworks_wanted": ["torch==2.7.1+cu128", "jax"], "gpuwright_want": ["pytorch"]}
    (framework,) = Wish.from_variables(asked).frameworks
    assert (framework.specifier, framework.variant) == ("==2.7.1", "cu128")
    (other,) = Wish.from_variables({**asked, "gpuwright_want": ["torch==2.15.0"]}).frameworks
    assert (other.specifier, other.variant) == ("==2.15.0", None)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            {"nvidia_driver_branch": "570", "gpuwright_want": ["cuda", "driver=580"]},
            r"'nvidia_driver_branch: 570' and 'driver=580'",
        ),
        (
            {"cuda_versions": ["12.8"], "gpuwright_want": ["cuda=13.0"]},
            r"cuda_versions: \['12\.8'\]\W+ and 'cuda=13\.0'",
        ),
        ({"frameworks_wanted": ["pytorch"], "gpuwright_want": ["jax"]}, r"frameworks_wanted.* and 'jax'"),
        ({"watch_interval": "5m", "gpuwright_want": ["watch=15m"]}, r"'watch_interval: 5m' and 'watch=15m'"),
    ],
)
def test_a_wish_file_that_says_two_things_of_one_is_refused_with_both_places(
    file: dict[str, object], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        Wish.from_variables({"gpuwright_wish": file})
    # One of them alone is a wish.
    for left_out in file:
        Wish.from_variables({"gpuwright_wish": {name: value for name, value in file.items() if name != left_out}})


def test_a_version_of_another_branch_is_refused() -> None:
    with pytest.raises(BadInput, match="not of nvidia_driver_branch"):
        Wish.from_variables({"nvidia_driver_branch": "580", "nvidia_driver_version": "535.104.05"})


def test_a_number_of_expected_cards_may_be_written_as_text() -> None:
    assert Wish.from_variables({"gpuwright_gpus_expected": "2"}).gpus_expected == 2
    assert Wish.from_variables({"gpuwright_gpus_expected": "H100"}).gpus_expected == ("H100",)


@pytest.mark.parametrize(
    ("written", "read"),
    [(4, {"all": 4}), ("4", {"all": 4}), ({"0000:65:00.0": "4", "all": 16}, {"0000:65:00.0": 4, "all": 16}), ("", {})],
)
def test_an_inventory_says_what_is_right_for_its_slots(written: object, read: dict[str, int]) -> None:
    assert Wish.from_variables({"gpuwright_gpus_pcie_lanes": written}).gpus_pcie_lanes == read


@pytest.mark.parametrize("written", [3, "x8", True, -4, [4], {"all": None}])
def test_lanes_that_no_slot_has_are_refused(written: object) -> None:
    with pytest.raises(BadInput, match="expected 1, 2, 4, 8, 16 lanes, found"):
        Wish.from_variables({"gpuwright_gpus_pcie_lanes": written})


def test_a_misspelt_variable_in_a_wish_file_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        Wish.from_variables({"gpuwright_wish": {"cuda_version": ["12.8"]}})
    assert "cuda_versions" in caught.value.suggestions


def test_a_comma_parts_wishes_only_before_a_name() -> None:
    wish = Wish.from_variables({"gpuwright_want": "driver=580,pytorch>=2.7,<2.10"})
    assert wish.driver_branch == "580"
    assert set(wish.frameworks[0].specifier.split(",")) == {">=2.7", "<2.10"}


def test_a_library_is_no_framework() -> None:
    with pytest.raises(BadInput, match="no framework"):
        Wish.from_variables({"frameworks_wanted": ["nccl"]})


@pytest.mark.parametrize("name", ["gpuwright_mirrors", "gpuwright_repository_keys"])
def test_an_upstream_that_is_misspelt_is_refused_with_the_nearest(name: str) -> None:
    for right in ("nvidia", "nvidia-container-toolkit", "nvidia-runfile", "epel", "pytorch", "pypi"):
        Wish.from_variables({name: {right: "https://mirror.example.com"}})
    with pytest.raises(BadInput, match=f"{name}: there is no upstream 'nvida'") as caught:
        Wish.from_variables({name: {"nvida": "https://mirror.example.com"}})
    assert caught.value.suggestions == ["did you mean nvidia?"]
    with pytest.raises(BadInput, match=f"{name} of nvidia has to be a text"):
        Wish.from_variables({name: {"nvidia": ["https://mirror.example.com"]}})


def test_the_python_index_is_named_only_for_a_framework() -> None:
    assert Wish.from_variables({"gpuwright_mirrors": {"pytorch": "pypi"}}).mirrors == {"pytorch": "pypi"}
    with pytest.raises(BadInput, match="the Python index has nothing of nvidia, expected an address"):
        Wish.from_variables({"gpuwright_mirrors": {"nvidia": "pypi"}})


def test_a_region_stands_for_its_mirrors_and_a_mirror_that_is_named_goes_before_them() -> None:
    mirrors = Wish.from_variables(
        {"gpuwright_mirrors": {"region": "cn", "pypi": "https://mirror.example.com/simple/"}}
    ).mirrors
    assert mirrors["pypi"] == "https://mirror.example.com/simple"
    known = {row["upstream"]: row["url"] for row in load_rules()["upstreams"]["mirrors"] if row["region"] == "cn"}
    assert {"nvidia", "pytorch"} <= known.keys()
    assert mirrors == {**known, "pypi": "https://mirror.example.com/simple"}


@pytest.mark.parametrize("region", ["xx", "", None, ["cn"]])
def test_a_region_without_mirrors_is_refused_with_those_that_have_some(region: object) -> None:
    with pytest.raises(BadInput, match=r"no mirrors are known for the region .*, expected one of cn"):
        Wish.from_variables({"gpuwright_mirrors": {"region": region}})


@pytest.mark.parametrize("upstream", [row["name"] for row in load_rules()["upstreams"]["rows"]] + ["pypi"])
def test_a_mirror_that_is_no_address_is_refused_whatever_it_is_of(upstream: str) -> None:
    images = upstream in ("docker-hub", "ngc")
    for value, instead in {
        "/var/mirror": None if images else "file:///var/mirror",
        "file://var/mirror": None if images else "file:///var/mirror",
        "mirror.example/packages": "https://mirror.example/packages",
        "registry.example:5000": "https://registry.example:5000",
        "ftp://mirror.example": "https://mirror.example",
        **({"file:///var/mirror": None} if images else {}),
    }.items():
        for variables in ({upstream: value}, {"region": "cn", upstream: value}):
            with pytest.raises(BadInput, match=f"gpuwright_mirrors of {upstream}: expected an address") as refused:
                Wish.from_variables({"gpuwright_mirrors": variables})
            assert refused.value.suggestions == ([f"{upstream}: {instead}"] if instead else [])


def test_a_mirror_that_is_an_address_is_taken() -> None:
    for value in (
        "https://mirror.example/a",
        "HTTP://mirror.example:81",
        "file:///var/mirror",
        "https://[2001:db8::1]/a",
    ):
        assert Wish.from_variables({"gpuwright_mirrors": {"nvidia": f"{value}/"}}).mirrors == {"nvidia": value}


def test_a_password_is_in_no_message_about_an_address() -> None:
    for value in ("ftp://me:secret@mirror.example", "me:secret@mirror.example/x"):
        with pytest.raises(BadInput) as refused:
            Wish.from_variables({"gpuwright_mirrors": {"nvidia": value}})
        assert "secret" not in refused.value.message + str(refused.value.suggestions)


def test_mirrors_have_to_be_a_mapping() -> None:
    with pytest.raises(BadInput, match="mapping"):
        Wish.from_variables({"gpuwright_mirrors": ["http://mirror"]})
