# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for CUDA toolkits, their libraries, and forward compatibility."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish import specifiers
from ...wish.reading import (
    AUTO,
    VERSION,
    Reader,
    Variables,
    Words,
    around,
    as_list,
    bare,
    choice,
    equals,
    is_no,
    is_outside,
    is_yes,
    sha256,
)

#: Leaves /usr/local/cuda as it is.
KEEP = "keep"
_LIBRARIES = ("cudnn", "nccl", "tensorrt")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of toolkits and their libraries."""

    cuda: bool = False
    cuda_versions: tuple[str, ...] = ()
    cudnn: bool = False
    cudnn_version: str | None = None
    cudnn_source: str | None = None
    cudnn_sha256: str | None = None
    nccl: bool = False
    nccl_version: str | None = None
    nccl_source: str | None = None
    tensorrt: bool = False
    tensorrt_version: str | None = None
    tensorrt_source: str | None = None
    cuda_compat: bool = False
    cuda_default: str | None = None
    cuda_modulefiles: bool = False
    cuda_source: str | None = None
    cuda_runfile: str | None = None
    cuda_runfile_sha256: str | None = None


def _read_cuda(values: Values, spec: str, want: str, rules: Rules) -> None:
    values["cuda"] = True
    version = equals(spec, want)
    if version and version != "auto":
        values["cuda_versions"] = (*values.get("cuda_versions", ()), _cuda_version(version, want, rules))


def _cuda_version(version: str, want: str, rules: Rules) -> str:
    """Return a CUDA version that exists: 12, 12.8 or 12.8.1."""
    never = next((row for row in rules["cuda"]["never"] if numeric_version.belongs(version, row["cuda"])), None)
    if never:
        raise BadInput(
            f"{want!r}: CUDA {never['cuda']} was never released", [f"cuda={each}" for each in never["instead"]]
        )
    releases = [row["release"] for row in rules["cuda"]["rows"]]
    if VERSION.match(version) and any(numeric_version.belongs(each, version) for each in releases):
        return version
    if is_outside(version, releases):
        return version
    near = around(version, list(dict.fromkeys(row["cuda"] for row in rules["cuda"]["rows"])))
    raise BadInput(f"{want!r}: there is no CUDA {version}", [f"cuda={each}" for each in near])


def _read_cudnn(values: Values, spec: str, want: str, rules: Rules) -> None:
    values["cudnn"] = True
    version = equals(spec, want)
    if version and version != "auto":
        values["cudnn_version"] = _one_version(
            "cuDNN", values.get("cudnn_version"), _cudnn_version(version, want, rules)
        )


def _one_version(title: str, before: str | None, version: str) -> str:
    """Return a version of what a machine has one of. Raises BadInput where another one was asked for before."""
    if before and before != version:
        raise BadInput(f"{title} is wished in two versions, {before} and {version}: name one of them")
    return version


def _cudnn_version(version: str, want: str, rules: Rules) -> str:
    """Return the full number of a cuDNN version: 9.10.2 gives 9.10.2.21. A withdrawn one is refused."""
    published = rules["cudnn"]["versions"]
    found = [row for row in published if VERSION.match(version) and numeric_version.belongs(row["version"], version)]
    good = [row["version"] for row in found if not row.get("yanked") and ".post" not in row["version"]]
    if good:
        return max(good, key=numeric_version.key)
    if is_outside(version, [row["version"] for row in published]):
        return version
    reason = "was withdrawn" if found else "was never published"
    usable = [row["version"] for row in published if not row.get("yanked") and ".post" not in row["version"]]
    raise BadInput(f"{want!r}: cuDNN {version} {reason}", [f"cudnn={each}" for each in around(version, usable)])


def _library(name: str) -> Reader:
    """Make the reader of a library that is wished by name, or in one version: nccl, nccl=2.27.7."""

    def read(values: Values, spec: str, want: str, rules: Rules) -> None:
        values[name] = True
        version = equals(spec, want)
        if version and version != "auto":
            before = values.get(f"{name}_version")
            found = _one_version(name, before, _library_version(name, version, want, rules))
            values[f"{name}_version"] = found

    return read


def _library_version(name: str, version: str, want: str, rules: Rules) -> str:
    """Return the full number of a version that was published: 10.13 gives the newest 10.13."""
    every = [row["version"] for row in rules["libraries"][name]]
    plain = [each for each in every if specifiers.is_version(each)]
    found = [each for each in plain if VERSION.match(version) and numeric_version.belongs(each, version)]
    if found:
        return max(found, key=numeric_version.key)
    if is_outside(version, plain):
        return version
    near = around(version, plain)
    raise BadInput(f"{want!r}: there is no {name} {version}", [f"{name}={each}" for each in near])


def _read_cuda_compat(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    if equals(spec, want) not in (None, "auto"):
        text = f"{want!r}: the package follows the CUDA version, it is asked for as cuda-compat=auto"
        raise BadInput(text, ["cuda-compat=auto"])
    values["cuda_compat"] = True


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    versions = variables.get("cuda_versions")
    for version in [] if versions in AUTO else as_list(versions, "cuda_versions"):
        _read_cuda(values, f"={version}", f"cuda_versions: {version}", rules)
    for name in _LIBRARIES:
        _library_variable(values, name, variables.get(f"cuda_{name}"), rules)
        source = variables.get(f"cuda_{name}_source")
        if source not in AUTO:
            _READERS[f"{name}-source"](values, f"={source}", f"cuda_{name}_source={source}", rules)
    checksum = variables.get("cuda_cudnn_sha256")
    if checksum not in AUTO:
        values["cudnn_sha256"] = sha256(checksum, "cuda_cudnn_sha256")
    compat = variables.get("cuda_compat")
    # "auto" means here what it means on the command line: where it is useful.
    if is_yes(compat) or str(compat).lower() == "auto":
        values["cuda_compat"] = True
    _place_variables(values, variables, rules)
    _source_variables(values, variables, rules)


def _source_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read where toolkits come from, and of NVIDIA's file where it is and what it has to be."""
    source = variables.get("cuda_source")
    if source not in AUTO:
        _READERS["cuda-source"](values, f"={source}", f"cuda_source={source}", rules)
    given = variables.get("cuda_runfile")
    if given not in AUTO:
        values["cuda_runfile"] = bare(str(given), "cuda_runfile")
    checksum = variables.get("cuda_runfile_sha256")
    if checksum not in AUTO:
        values["cuda_runfile_sha256"] = sha256(checksum, "cuda_runfile_sha256")
    elif "cuda_runfile" in values:
        raise BadInput("cuda_runfile: the checksum of the file has to be given with it", ["cuda_runfile_sha256: …"])


def _read_source(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read where toolkits come from. Wheels are asked for by many, and are no toolkit of the machine's."""
    if equals(spec, want) == "wheels":
        lacking = [row for row in rules["cuda"]["wheels"] if not row["nvcc"]]
        newest = max(lacking, key=lambda row: int(row["major"]))
        raise BadInput(
            f"{want!r}: wheels bring a compiler into an environment and no toolkit to the machine, and only from CUDA "
            f"{int(newest['major']) + 1} on: {newest['package']} has ptxas and no nvcc (docs: roles/cuda/README.md, Without root)",
            ["cuda-source=nvidia", "cuda-source=runfile"],
        )
    choice("cuda_source", ("nvidia", "distro", "runfile"), "cuda")(values, spec, want, rules)


def _place_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read which toolkit /usr/local/cuda is to be, and whether there are modulefiles."""
    default = variables.get("cuda_default")
    if default == KEEP:
        values["cuda_default"] = KEEP
    elif default not in AUTO:
        values["cuda_default"] = _cuda_version(str(default), f"cuda_default: {default}", rules)
    if is_yes(variables.get("cuda_modulefiles")):
        values["cuda_modulefiles"] = True
    elif not is_no(variables.get("cuda_modulefiles")):
        raise BadInput(
            f"cuda_modulefiles: expected true or false, found {str(variables['cuda_modulefiles'])!r}",
            ["cuda_modulefiles: true"],
        )


def _library_variable(values: Values, name: str, value: object, rules: Rules) -> None:
    """Read a library of the toolkit: true, a version, or nothing."""
    if is_yes(value):
        values[name] = True
    elif not is_no(value):
        _READERS[name](values, f"={value}", f"cuda_{name}: {value}", rules)


_READERS: dict[str, Reader] = {
    "cuda": _read_cuda,
    "cudnn": _read_cudnn,
    "nccl": _library("nccl"),
    "tensorrt": _library("tensorrt"),
    "cuda-compat": _read_cuda_compat,
    "cuda-source": _read_source,
    **{f"{name}-source": choice(f"{name}_source", ("packages", "archive"), name) for name in _LIBRARIES},
}

#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "llama.cpp llamacpp llama-cpp",
        "llama.cpp is built with a toolkit; its part for Python is llama-cpp-python",
        ("cuda", "llama-cpp-python"),
    ),
    (
        "gcc g++ cmake make dkms build-essential kernel-headers linux-headers",
        "what builds the driver's modules comes where it is needed; a compiler for CUDA is the want cuda",
        ("driver", "cuda"),
    ),
    (
        "nsight nsight-systems nsight-compute nsys ncu cuda-gdb cuda-samples",
        "the tools of CUDA come with its toolkit",
        ("cuda",),
    ),
    (
        "nccl-tests nccl-test bandwidth-test burn-in gpu-burn",
        "tests and loads are not installed but run: gpuwright validate, gpuwright load",
        ("nccl",),
    ),
)
WORDS = Words(
    "cuda",
    "cuda",
    brings=("cuda", "cudnn", "nccl", "tensorrt", "cuda_compat"),
    besides=("cuda_compat",),
    by_default=True,
    readers=_READERS,
    aliases={
        **dict.fromkeys(("cuda-toolkit", "cudatoolkit", "nvidia-cuda-toolkit", "cuda-nvcc", "nvcc"), "cuda"),
        **dict.fromkeys(("libcudnn", "nvidia-cudnn"), "cudnn"),
        **dict.fromkeys(("libnccl", "libnccl2"), "nccl"),
        **dict.fromkeys(("libnvinfer", "nvidia-tensorrt"), "tensorrt"),
    },
    variables=(
        "cuda_versions",
        "cuda_cudnn",
        "cuda_cudnn_source",
        "cuda_cudnn_sha256",
        "cuda_nccl",
        "cuda_nccl_source",
        "cuda_tensorrt",
        "cuda_tensorrt_source",
        "cuda_compat",
        "cuda_default",
        "cuda_modulefiles",
        "cuda_source",
        "cuda_runfile",
        "cuda_runfile_sha256",
    ),
    of_host=(
        "cuda_cudnn_source",
        "cuda_cudnn_sha256",
        "cuda_nccl_source",
        "cuda_tensorrt_source",
        "cuda_default",
        "cuda_modulefiles",
        "cuda_source",
        "cuda_runfile",
        "cuda_runfile_sha256",
    ),
    instead=(
        "the wheels of a framework bring the CUDA libraries that it runs with; a compiler for CUDA 13 comes by pip "
        "(docs: roles/cuda/README.md, Without root)"
    ),
    read=_read_variables,
    told=_TOLD,
)
