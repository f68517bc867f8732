"""What is read of an index, in the shape of the tables' rows."""

from __future__ import annotations

from typing import Any

from tools import compat_facts
from tools.compat_facts import Row
from tools.compat_index import Silent

from .conftest import Shelf


def read(shelf: Shelf, reader: Any, **tables: Any) -> dict[str, dict[tuple[str, ...], Row]]:
    """By table: the rows of a reader; `tables` say where they begin."""
    return {facts.table: facts.rows for facts in reader(shelf.index(), tables, Silent())}


def since(version: str) -> list[Row]:
    return [{"version": version, "torchvision": None, "torchaudio": None}]


def torch(shelf: Shelf, version: str, *pythons: str, cuda: str = "12.1.105", cudnn: str = "8.9.2.26") -> None:
    wanted = [f"nvidia-cuda-runtime-cu12=={cuda}", f"nvidia-cudnn-cu12=={cudnn}", "nvidia-nccl-cu12==2.18.1"]
    shelf.put(
        "torch", version, *(pythons or ("cp311",)), requires=[f'{each}; sys_platform == "linux"' for each in wanted]
    )


def test_torch_has_its_pins_its_pythons_and_the_partners_that_name_it(shelf: Shelf) -> None:
    torch(shelf, "2.1.0", "cp311", "cp312")
    shelf.put("torchvision", "0.16.0", "cp311", requires=["torch==2.1.0"])
    shelf.put("torchaudio", "2.1.0", "cp311", "cp312", requires=["torch>=2.0"])
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": since("2.1.0")})
    assert found["releases"]["2.1.0",] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.11", "3.12"],
        "default_cuda": "12.1",
        "torchvision": "0.16.0",
        "torchaudio": None,
    }
    assert found["variants"] == {("2.1", "cu121"): {"cuda": "12.1", "cudnn": "8.9.2.26", "nccl": "2.18.1"}}


def test_a_toolkit_that_is_one_package_names_the_cuda_version(shelf: Shelf) -> None:
    shelf.put("torch", "2.15.0", "cp312", requires=["cuda-toolkit[cublas]==13.2.2", "nvidia-cudnn-cu13==9.26.0.51"])
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": since("2.15.0")})
    assert found["variants"] == {("2.15", "cu132"): {"cuda": "13.2", "cudnn": "9.26.0.51", "nccl": None}}


def test_patch_releases_that_pin_differently_are_seen(shelf: Shelf) -> None:
    torch(shelf, "2.1.0", cudnn="8.9.2.26")
    torch(shelf, "2.1.1", cudnn="8.9.7.29")
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": since("2.1.0")})
    assert found["variants"]["2.1", "cu121"]["cudnn"] == "8.9.2.26 and 8.9.7.29"


def test_releases_before_the_first_row_and_candidates_are_left_out(shelf: Shelf) -> None:
    for version in ("2.0.0", "2.1.0", "2.2.0rc1"):
        torch(shelf, version)
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": since("2.1.0")})
    assert list(found["releases"]) == [("2.1.0",)]


def test_a_partner_that_was_withdrawn_goes_with_no_torch(shelf: Shelf) -> None:
    torch(shelf, "2.1.0")
    shelf.put("torchaudio", "2.1.0", "cp311", requires=["torch==2.1.0"])
    shelf.put("torchaudio", "2.1.1", "cp311", requires=["torch==2.1.0"], yanked=True)
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": since("2.1.0")})
    assert found["releases"]["2.1.0",]["torchaudio"] == "2.1.0"


def test_a_partner_without_wheels_for_a_python_of_its_torch_is_told(shelf: Shelf) -> None:
    torch(shelf, "2.15.0", "cp314", "cp315")
    shelf.put("torchaudio", "2.11.0", "cp314", "cp314-cp314t-manylinux_2_28_x86_64")
    shelf.put("torchvision", "0.29.2", "py3-none-manylinux_2_28_x86_64")
    ours = [{"version": "2.15.0", "torchvision": "0.29.2", "torchaudio": "2.11.0"}]
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": ours})
    assert found["partner_pythons"] == {("torchaudio", "2.11.0"): {"python": ["3.14"]}}


def test_tensorflow_has_what_its_extra_asks_for(shelf: Shelf) -> None:
    numpy = ['numpy<2,>=1.23; python_version <= "3.11"', 'numpy<2,>=1.26; python_version >= "3.12"']
    extra = ["nvidia-cudnn-cu12==8.9.7.29", "nvidia-nccl-cu12==2.19.3", "nvidia-cuda-runtime-cu12==12.3.101"]
    shelf.put("tensorflow", "2.16.1", "cp311", "cp312", requires=numpy, extras={"and-cuda": extra})
    shelf.put("tensorflow", "2.13.0", "cp311", requires=["numpy<=1.24.3"])
    rows = read(shelf, compat_facts.tensorflow, tensorflow={"releases": since("2.13.0")})["releases"]
    assert rows["2.16.1",] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.11", "3.12"],
        "extra": "and-cuda",
        "requires": {"cudnn": "==8.9.7.29", "nccl": "==2.19.3", "runtime": "==12.3.101"},
        "numpy": "<2,>=1.26",
        "cuda_major": "12",
    }
    assert (rows["2.13.0",]["extra"], rows["2.13.0",]["requires"]) == (None, {})


def test_onnxruntime_has_a_row_for_each_of_its_two_packages(shelf: Shelf) -> None:
    extras = {
        "cuda": ["nvidia-cuda-nvrtc~=13.0", "nvidia-cuda-runtime~=13.0", "nvidia-cufft~=12.0"],
        "cudnn": ["nvidia-cudnn-cu13~=9.0"],
        "symbolic": ["sympy"],
    }
    shelf.put("onnxruntime", "1.29.0", "cp312", "cp312-cp312-manylinux_2_28_aarch64", requires=["numpy"])
    shelf.put("onnxruntime", "1.29.1", "cp312", requires=["numpy"])
    shelf.put("onnxruntime-gpu", "1.29.0", "cp312", requires=["numpy"], extras=extras)
    rows = read(shelf, compat_facts.onnxruntime, onnxruntime={"releases": since("1.29.0")})["releases"]
    assert sorted(rows) == [("1.29.0", "cpu"), ("1.29.0", "gpu"), ("1.29.1", "cpu")]
    assert rows["1.29.0", "cpu"]["arch"] == ["x86_64", "aarch64"]
    assert rows["1.29.0", "gpu"] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.12"],
        "arch": ["x86_64"],
        "extras": ["cuda", "cudnn"],
        "requires": {"cudnn": "~=9.0", "runtime": "~=13.0"},
        "cuda_major": "13",
    }


def test_cupy_has_a_row_for_each_release_with_its_packages(shelf: Shelf) -> None:
    for name in ("cupy-cuda12x", "cupy-cuda13x"):
        shelf.put(name, "14.2.0", "cp312", "cp313", "cp312-cp312-manylinux2014_aarch64", requires=["numpy<2.6,>=2.0"])
    shelf.put("cupy-cuda12x", "14.3.0", "cp313", requires=["numpy>=2.1"])
    rows = read(shelf, compat_facts.cupy, cupy={"releases": since("14.2.0")})["releases"]
    assert rows["14.2.0",] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.12", "3.13"],
        "wheels": {"cuda12": ["x86_64", "aarch64"], "cuda13": ["x86_64", "aarch64"]},
        "numpy": "<2.6,>=2.0",
    }
    assert rows["14.3.0",]["wheels"] == {"cuda12": ["x86_64"]}
    assert rows["14.3.0",]["numpy"] == ">=2.1"


def test_vllm_has_the_torch_that_each_release_asks_for(shelf: Shelf) -> None:
    wheels = ("cp38-abi3-manylinux_2_28_x86_64", "cp38-abi3-manylinux_2_28_aarch64")
    shelf.put("vllm", "0.33.0", *wheels, requires=["torch==2.14.0", "numpy"], python="<3.15,>=3.11")
    rows = read(shelf, compat_facts.vllm, vllm={"releases": since("0.33.0")})["releases"]
    assert rows["0.33.0",] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.11", "3.12", "3.13", "3.14"],
        "arch": ["x86_64", "aarch64"],
        "torch": "2.14.0",
    }


def test_lmdb_has_its_pythons_and_architectures(shelf: Shelf) -> None:
    shelf.put(
        "lmdb", "3.0.0", "cp312", "cp313", "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-musllinux_1_2_x86_64"
    )
    rows = read(shelf, compat_facts.lmdb, lmdb={"releases": since("3.0.0")})["releases"]
    assert rows["3.0.0",] == {
        "date": "2024-05-01",
        "yanked": False,
        "python": ["3.12", "3.13"],
        "arch": ["x86_64", "aarch64"],
    }


def jax(shelf: Shelf, version: str, low: str, variants: tuple[str, ...] = ("cuda12",), *, yanked: bool = False) -> None:
    extras = {name: [f"jax-{name}-plugin[with-cuda]<={version},>={low}"] for name in variants}
    shelf.put("jax", version, "py3-none-any", requires=[f"jaxlib<={version},>={low}"], extras=extras, yanked=yanked)


def plugin(shelf: Shelf, version: str, *tags: str, pjrt: tuple[str, ...] = (), yanked: bool = False) -> None:
    extra = {"with_cuda": ["nvidia-cudnn-cu12<10.0,>=9.8", "nvidia-nccl-cu12>=2.18.1"]}
    shelf.put("jax-cuda12-plugin", version, *(tags or ("cp312",)), extras=extra, yanked=yanked)
    shelf.put("jax-cuda12-pjrt", version, *(pjrt or ("py3-none-manylinux_2_28_x86_64",)))
    shelf.put("jaxlib", version, *(tags or ("cp312",)), yanked=yanked)


def test_jax_takes_the_newest_plugin_that_its_extra_lets_in(shelf: Shelf) -> None:
    jax(shelf, "0.5.1", "0.5.1")
    jax(shelf, "0.5.2", "0.5.1")
    plugin(shelf, "0.5.1")
    rows = read(shelf, compat_facts.jax, jax={"releases": since("0.5.1")})["releases"]
    assert rows["0.5.2",]["plugins"] == {"cuda12": "0.5.1"}
    assert (rows["0.5.2",]["jaxlib"], rows["0.5.2",]["python"]) == ("0.5.1", ["3.12"])


def test_an_extra_without_a_plugin_cannot_be_used(shelf: Shelf) -> None:
    jax(shelf, "0.7.0", "0.7.0", ("cuda12", "cuda13"))
    plugin(shelf, "0.7.0")
    assert read(shelf, compat_facts.jax, jax={"releases": since("0.7.0")})["releases"]["0.7.0",]["extras"] == ["cuda12"]


def test_a_plugin_that_was_withdrawn_serves_only_a_release_that_was_withdrawn(shelf: Shelf) -> None:
    jax(shelf, "0.4.32", "0.4.32", yanked=True)
    jax(shelf, "0.4.33", "0.4.32")
    plugin(shelf, "0.4.32", yanked=True)
    rows = read(shelf, compat_facts.jax, jax={"releases": since("0.4.32")})["releases"]
    assert (rows["0.4.32",]["yanked"], rows["0.4.32",]["extras"]) == (True, ["cuda12"])
    assert rows["0.4.33",]["extras"] == []


def test_a_plugin_is_there_where_both_halves_are(shelf: Shelf) -> None:
    plugin(shelf, "0.7.0", "cp312", "cp312-cp312-manylinux_2_28_aarch64")
    rows = read(shelf, compat_facts.jax, jax={"releases": since("0.7.0")})["plugins"]
    assert rows["0.7.0", "cuda12"]["arch"] == ["x86_64"]
    assert rows["0.7.0", "cuda12"]["requires"] == {"cudnn": "<10.0,>=9.8", "nccl": ">=2.18.1"}


def test_cudnn_counts_wheels_for_linux_that_stand(shelf: Shelf) -> None:
    shelf.put("nvidia-cudnn-cu12", "9.1.0.70", "py3-none-manylinux2014_x86_64", "py3-none-win_amd64")
    shelf.put("nvidia-cudnn-cu11", "9.1.0.70", "py3-none-manylinux2014_x86_64", yanked=True)
    shelf.put("nvidia-cudnn-cu12", "9.2.0.82", "py3-none-win_amd64")
    shelf.put("nvidia-cudnn-cu12", "9.3.0.75", "py3-none-manylinux2014_aarch64", yanked=True)
    rows = read(shelf, compat_facts.cudnn, cudnn={"versions": since("9.1.0.70")})["versions"]
    assert {key[0]: (row["cuda_majors"], row["arch"], row["yanked"]) for key, row in rows.items()} == {
        "9.1.0.70": (["12"], ["x86_64"], False),
        "9.3.0.75": (["12"], ["aarch64"], True),
    }


def test_nccl_has_its_architectures_by_variant(shelf: Shelf) -> None:
    shelf.put("nvidia-nccl-cu11", "2.21.5", day="2024-04-03")
    shelf.put("nvidia-nccl-cu12", "2.21.5", "py3-none-manylinux2014_aarch64", day="2024-04-05")
    rows = read(shelf, compat_facts.nccl, libraries={"nccl": since("2.21.5")})["nccl"]
    assert rows["2.21.5",]["variants"] == {"cu11": ["x86_64"], "cu12": ["aarch64"]}
    assert rows["2.21.5",]["date"] == "2024-04-03"


def test_tensorrt_has_the_pythons_of_its_bindings(shelf: Shelf) -> None:
    shelf.put_sources("tensorrt", "10.13.2.6")
    for major in ("12", "13"):
        shelf.put_sources(f"tensorrt-cu{major}", "10.13.2.6")
    shelf.put("tensorrt-cu13-bindings", "10.13.2.6", "cp312")
    rows = read(shelf, compat_facts.tensorrt, libraries={"tensorrt": since("10.13.2.6")})["tensorrt"]
    assert (rows["10.13.2.6",]["cuda"], rows["10.13.2.6",]["python"]) == (["12", "13"], ["3.12"])


def test_dali_that_is_sources_only_is_not_real(shelf: Shelf) -> None:
    shelf.put_sources("nvidia-dali-cuda120", "1.52.0")
    shelf.put("nvidia-dali-cuda120", "1.53.0", "py3-none-manylinux_2_28_x86_64", python="<3.11,>=3.9")
    rows = read(shelf, compat_facts.dali, libraries={"dali": since("1.52.0")})["dali"]
    assert (rows["1.52.0",]["real"], rows["1.52.0",]["python"]) == (False, [])
    assert (rows["1.53.0",]["wheels"], rows["1.53.0",]["python"]) == ({"cuda120": ["x86_64"]}, ["3.9", "3.10"])


# the C library -------------------------------------------------------------------------------------------


def test_releases_whose_wheels_need_the_same_c_library_are_one_span(shelf: Shelf) -> None:
    for version, tag in (
        ("1.0", "manylinux_2_31"),
        ("1.1", "manylinux_2_28"),
        ("1.2", "manylinux_2_28"),
        ("2.0", "manylinux2014"),
    ):
        shelf.put("vllm", version, f"cp38-abi3-{tag}_x86_64")
    shelf.put("vllm", "3.0", "cp38-abi3-manylinux_2_40_x86_64")
    releases = [{"version": version} for version in ("1.0", "1.1", "1.2", "2.0")]
    tables = {"vllm": {"releases": releases}}
    empty = {table: {"releases": [{"version": "1"}]} for table in ("onnxruntime", "tensorflow", "pytorch")}
    assert read(shelf, compat_facts.glibc, **{**empty, **tables})["glibc"] == {
        ("vllm", "1.0"): {"to_version": "1.0", "needs": {"x86_64": "2.31"}},
        ("vllm", "1.1"): {"to_version": "1.2", "needs": {"x86_64": "2.28"}},
        ("vllm", "2.0"): {"to_version": "2.0", "needs": {"x86_64": "2.17"}},
    }


def test_every_release_of_a_partner_is_read_that_stands_since_the_first_torch(shelf: Shelf) -> None:
    torch(shelf, "2.1.0")
    for version in ("2.0.9", "2.1.0", "2.11.0", "2.11.1"):
        shelf.put("torchaudio", version, "py3-none-manylinux_2_28_x86_64", requires=["torch>=2.0"])
    shelf.put("torchaudio", "2.11.2", "py3-none-manylinux_2_28_x86_64", yanked=True)
    ours = [{"version": "2.1.0", "torchvision": None, "torchaudio": "2.1.0"}]
    found = read(shelf, compat_facts.pytorch, pytorch={"releases": ours})["partner_releases"]
    assert found["torchaudio",] == {"releases": ["2.1.0", "2.11.0", "2.11.1"]}
