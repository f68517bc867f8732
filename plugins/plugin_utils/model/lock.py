# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock file: a stack with exact versions. docs/lock.schema.json says the same."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from ..components.container_toolkit.model import LockedToolkit
from ..components.cuda.model import CudaCompat
from ..components.frameworks.model import LockedWheel


class LockRules(TypedDict):
    """Rules that a lock was made by."""

    generated: str
    digest: str


class LockMachine(TypedDict):
    """What decided of the machine that a lock was made for."""

    gpus: list[str]
    os: str
    arch: str
    environment: str
    secure_boot: bool | None
    desktop: bool
    nvswitch: bool
    kernel: str | None
    python: list[str]


class LockQuestion(LockMachine):
    """Machine and wish that a lock was made for."""

    want: list[str]


class LockDriver(TypedDict):
    """Driver of a lock."""

    branch: str
    version: str | None
    modules: str
    source: str
    set: str | None
    build: str | None
    packages: list[str]


class LockToolkit(TypedDict):
    """CUDA toolkit of a lock."""

    version: str
    release: str | None
    packages: list[str]
    source: NotRequired[str]
    """Where it comes from if that is not NVIDIA's repository: runfile or distro"""


class LockLibrary(TypedDict):
    """cuDNN, NCCL or TensorRT of a lock."""

    version: str | None
    packages: list[str]
    cuda: NotRequired[str]
    """CUDA major version that the packages are built for, where their names do not say it"""
    source: NotRequired[str]
    """Where it comes from if that are no packages: archive"""
    archives: NotRequired[list[str]]
    """Names of NVIDIA's archives, one for each toolkit"""


class LockFramework(TypedDict):
    """Framework environment of a lock."""

    name: str
    version: str
    variant: str | None
    requirements: list[str]
    constraints: list[str]
    index_url: str | None
    cuda: str | None
    cudnn: str | None
    interpreter: str
    environment: NotRequired[str]
    others: NotRequired[list[str]]
    kernel: NotRequired[str]
    wheels: NotRequired[list[LockedWheel]]


class LockRepository(TypedDict):
    """Package source of a lock."""

    name: str
    uris: list[str]
    suites: list[str]
    components: list[str]
    fingerprint: str | None


class LockStack(LockedToolkit):
    """Stack of a lock."""

    repositories: list[LockRepository]
    driver: NotRequired[LockDriver]
    cuda: NotRequired[list[LockToolkit]]
    cuda_compat: NotRequired[CudaCompat]
    cudnn: NotRequired[LockLibrary]
    nccl: NotRequired[LockLibrary]
    tensorrt: NotRequired[LockLibrary]
    frameworks: NotRequired[list[LockFramework]]


class Lock(TypedDict):
    """Lock file."""

    lock: int
    """Version of the format"""
    gpuwright: str
    rules: LockRules
    question: LockQuestion
    stack: LockStack
