# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock file: a stack with exact versions. docs/lock.schema.json is written from it, and a lock that is read is held against it."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from ..components.container_toolkit.model import LockedToolkit
from ..components.frameworks.model import LockedWheel


class LockRules(TypedDict):
    """The rules that the stack was resolved by."""

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
    """Whether an NVIDIA card drives a screen"""
    nvswitch: bool
    kernel: str | None
    """Null: not given"""
    python: list[str]


class LockQuestion(LockMachine):
    """The machine that the stack was resolved for and the wish. Another machine may be held to the lock where its own stack comes out the
    same.
    """

    want: list[str]
    """The wish, as --want takes it"""


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


class LockCompat(TypedDict):
    """Package of a lock with which a driver runs a newer CUDA (forward compatibility)."""

    version: str
    package: str


class LockLibrary(TypedDict):
    """cuDNN, NCCL or TensorRT of a lock."""

    version: str | None
    packages: list[str]
    source: NotRequired[str]
    """archive: NVIDIA's archives, in the toolkits' own directories. Absent: packages"""
    archives: NotRequired[list[str]]
    """Names of the archives, one for each toolkit"""


class LockLibraryForCuda(LockLibrary):
    """NCCL or TensorRT of a lock."""

    cuda: NotRequired[str]
    """The CUDA major version that packages are built for, where their names do not say it"""


class LockFramework(TypedDict):
    """Framework environment of a lock."""

    name: str
    version: str
    variant: str | None
    requirements: list[str]
    """What pip is asked for"""
    constraints: list[str]
    """What pip is held to besides"""
    index_url: str | None
    """Null: the host's own index. A mirror may stand in its place"""
    cuda: str | None
    cudnn: str | None
    interpreter: str
    environment: NotRequired[str]
    """Its name, where it is not the framework's own"""
    others: NotRequired[list[str]]
    """What is installed besides: a project's requirements, and what a Jupyter kernel needs"""
    kernel: NotRequired[str]
    """Directory of its Jupyter kernel, where one is wished"""
    wheels: NotRequired[list[LockedWheel]]
    """Everything that the environment is made of. Absent: what pip takes besides the requirements is not locked"""


class LockRepository(TypedDict):
    """Package source of a lock."""

    name: str
    uris: list[str]
    suites: list[str]
    components: list[str]
    fingerprint: str | None
    """Of the key that signs it. Null: a repository of the distribution"""


class LockStack(LockedToolkit):
    """A part that was not wished and is not needed is absent. Packages of the kernel and the container engine follow each node and are not
    locked.
    """

    driver: NotRequired[LockDriver]
    cuda: NotRequired[list[LockToolkit]]
    cuda_compat: NotRequired[LockCompat]
    cudnn: NotRequired[LockLibrary]
    nccl: NotRequired[LockLibraryForCuda]
    tensorrt: NotRequired[LockLibraryForCuda]
    frameworks: NotRequired[list[LockFramework]]
    repositories: list[LockRepository]
    """Where the packages come from. A mirror may stand in the place of an address"""


class Lock(TypedDict):
    """What `gpuwright resolve --lock FILE` writes: a stack with exact versions, that `--lock` holds hosts to."""

    lock: Literal[1]
    """Version of this format. A reader refuses a higher one"""
    gpuwright: str
    """Version that wrote the lock"""
    rules: LockRules
    question: LockQuestion
    stack: LockStack
