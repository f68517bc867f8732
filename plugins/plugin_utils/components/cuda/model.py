# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of CUDA: toolkits, the libraries beside them, and cuda-compat."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ToolkitFile(TypedDict):
    """File of NVIDIA's that brings a toolkit."""

    name: str
    release: str
    addresses: list[str]
    sha256: str
    arguments: list[str]


class CudaToolkit(TypedDict):
    """CUDA toolkit."""

    version: str
    """First two numbers, such as 12.8"""
    mode: str | None
    """How the driver runs it (native, minor-version, forward)"""
    packages: list[str]
    path: str
    release: NotRequired[str]
    """All numbers, where these were asked for"""
    capabilities: NotRequired[list[str]]
    """Compute capabilities of the cards, for which it has to compile"""
    compiler: NotRequired[str]
    """Package of its nvcc, which ``packages`` bring"""
    host_compiler: NotRequired[str]
    """Package of the C++ compiler that its nvcc takes; absent where its own packages bring one, or where none of the system's will do"""
    unable: NotRequired[str]
    """Why it does not compile with the gcc or the C library of the machine, where that is known"""
    default: NotRequired[bool]
    """Whether /usr/local/cuda has to be this one"""
    modulefiles: NotRequired[list[str]]
    source: NotRequired[str]
    """Where it comes from if that is not NVIDIA's repository: runfile, or distro, whose toolkit is in /usr"""
    runfile: NotRequired[ToolkitFile]
    """The file that brings it, where no package does; ``packages`` are then what its installer needs"""


class LibraryArchive(TypedDict):
    """Archive of NVIDIA's with a library, for one toolkit."""

    path: str
    """Directory of the toolkit"""
    version: str
    name: str
    addresses: list[str]
    sha256: str
    size: NotRequired[int]
    """Bytes, where a table has it"""


class Cudnn(TypedDict):
    """cuDNN as packages, or as archives."""

    version: str | None
    """None: the newest of the package index"""
    packages: list[str]
    archives: NotRequired[list[LibraryArchive]]
    """One for each toolkit, where no packages bring it"""


class Nccl(Cudnn):
    """NCCL as packages, or as archives."""

    cuda: NotRequired[str]
    """CUDA major version that the packages are built for"""


class Library(Cudnn):
    """cuDNN, NCCL or TensorRT, whichever it is."""

    cuda: NotRequired[str]
    generation: NotRequired[str]


class TensorRt(Nccl):
    """TensorRT as packages, or as archives."""

    generation: NotRequired[str]
    """Major version, which the names of the packages carry"""


class CudaCompat(TypedDict):
    """Package with which a driver runs a newer CUDA (forward compatibility)."""

    version: str
    package: str
    path: str


class Parts(TypedDict, total=False):
    """Its keys of a stack."""

    cuda: list[CudaToolkit]
    cudnn: Cudnn
    nccl: Nccl
    tensorrt: TensorRt
    cuda_compat: CudaCompat
