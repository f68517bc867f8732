# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The resolved stack of a machine, part by part. The driver's is `seal.DriverStack`, which a node keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
        DriverFabric,
        DriverPin,
        DriverStack,
        PrecompiledModule,
        Runfile,
    )


class DriverNames(TypedDict):
    """What a driver is installed by."""

    packages: list[str]
    """In the order of installation"""
    pin: DriverPin
    build: str
    kernel_module: str
    headers: str
    version: NotRequired[str]
    module_of_next: NotRequired[PrecompiledModule]
    fabric: NotRequired[DriverFabric]
    runfile: NotRequired[Runfile]


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


class MigCard(TypedDict):
    """Layout of one card."""

    index: int
    bus_id: str | None
    name: str
    profiles: list[str]
    """Largest first; none: MIG off"""


class Mig(TypedDict):
    """MIG layout of a machine."""

    cards: list[MigCard]


class Settings(TypedDict, total=False):
    """Settings of a card. An absent one is left as it is, None is the default of the card."""

    power_limit: float | None
    """W"""
    clocks: list[int] | None
    """Lowest and highest clock of the multiprocessors (MHz)"""
    application_clocks: list[int] | None
    """Clocks of the memory and of the multiprocessors (MHz)"""
    ecc: bool | None
    compute_mode: str | None
    """As nvidia-smi calls it"""
    persistence: bool | None


class SettingsCard(TypedDict):
    """Settings of one card of a machine."""

    index: int
    bus_id: str | None
    name: str
    settings: Settings


class GpuSettings(TypedDict):
    """Settings of the cards of a machine."""

    cards: list[SettingsCard]


class GpuLog(TypedDict):
    """The light log of the cards: for how many days it is kept."""

    days: int


class WatchedCards(TypedDict):
    """Cards that have to be there; ``count`` None: as many as the driver's seal names."""

    count: int | None
    names: list[str] | None
    ignore: list[str]
    pcie_lanes: dict[str, int]


class Watch(TypedDict):
    """How a node watches itself, and who is told. The webhook's address is a secret and not here."""

    minutes: int
    textfile_directory: str
    proof_max_age: int
    """Seconds"""
    mail: list[str]
    smtp: str | None
    """HOST or HOST:PORT; None: the sendmail of the machine"""
    cards: WatchedCards


class RemoteWrite(TypedDict):
    """Server that the metrics are sent on to."""

    url: str
    user: str | None
    access: str | None
    """password or token, which is in a file of its own; None where it needs none"""


class _Receiver(TypedDict):
    name: str
    kind: str
    """mail, webhook or slack"""
    severities: list[str]
    access: str | None
    """What is in a file of its own: password, token or url; None where nothing is"""


class Receiver(_Receiver, total=False):
    """Who is told of alerts."""

    url: str
    """Of a webhook"""
    channel: str
    """Of Slack"""
    to: list[str]
    """Addresses that mail is sent to"""
    sender: str
    server: str
    """Host and port that take mail"""
    user: str | None
    tls: bool


class ScrapeAccess(TypedDict):
    """How the server gets at exporters that ask for it."""

    user: str | None
    """User, whose password is in a file of its own"""
    ca: str | None
    """File on the server with the certificates that theirs are checked by; None for those that the system trusts"""


class Grafana(TypedDict):
    """Grafana beside the server."""

    port: int
    password: bool
    """Whether the wish has one for its admin; else it is made on the machine"""


class ServerSettings(TypedDict):
    """Server of metrics, as it is wished."""

    address: str
    port: int
    alerts_port: int
    """Port of Alertmanager"""
    days: int
    size: str
    """Most that the metrics take on the disk, as Prometheus writes it"""
    remote_write: list[RemoteWrite]
    receivers: list[Receiver]
    scrape: ScrapeAccess | None
    grafana: Grafana | None
    """None where none is wished, and where somebody else's is there"""


class Target(TypedDict):
    """Exporter that is asked."""

    host: str
    """Name in the inventory"""
    job: str
    """gpu or node"""
    address: str
    """With the port"""
    tls: bool
    password: bool


class MonitoringServer(ServerSettings):
    """Server of metrics."""

    packages: list[str]
    targets: list[Target]


class _Engine(TypedDict):
    name: str
    packages: list[str]
    """None where another engine is there and is kept"""


class Engine(_Engine, total=False):
    """Container engine."""

    settings: dict[str, object]
    """What is wished of daemon.json, as Docker takes it; absent where nothing is"""
    source: str
    """docker where it comes from Docker's own repository; absent where it is the distribution's, or is there and kept"""
    images: list[str]
    """Images that are pulled ahead, with their registries; absent where none is wished"""


class Specified(TypedDict):
    """Packages of a version that a specifier names."""

    version_spec: str
    packages: list[str]


class Rootless(TypedDict):
    """Containers of users without root."""

    users: list[str]
    packages: list[str]


class ContainerToolkit(Specified):
    """Container toolkit and engine."""

    engine: Engine
    rootless: NotRequired[Rootless]
    """Absent where no user is named"""


class LockedToolkit(TypedDict, total=False):
    """What the stack of a lock has of the container toolkit."""

    container_toolkit: Specified


class LockedWheel(TypedDict):
    """Wheel that a lock names."""

    name: str
    version: str
    sha256: list[str]


class Origin(TypedDict, total=False):
    """Where the wheels of an environment come from: its own index, that of what it depends on, and packages built from source."""

    index_url: str
    dependencies_url: str
    from_source: list[str]


class Install(Origin):
    """What one framework of several brings into an environment, and where it comes from."""

    name: str
    variant: str
    requirements: list[str]


class KeptFramework(TypedDict):
    """What a wish said of a framework when its environment was rolled back."""

    specifier: str
    variant: str | None


class Contents(Origin):
    """What is installed in an environment; ``index_url`` where it does not come from the host's own index."""

    requirements: list[str]
    constraints: list[str]
    cudnn: str | None
    """None where it is not known"""
    loader_path: NotRequired[str]
    wheels: NotRequired[list[LockedWheel]]
    stays: NotRequired[KeptFramework]
    """Where a rollback led to it: for which wish it stays"""
    others: NotRequired[list[str]]
    """What is installed besides, as pip takes it: a project's requirements, and what a Jupyter kernel needs"""
    installs: NotRequired[list[Install]]
    """Where several frameworks are in one environment: what each of them brings"""


class Named(TypedDict, total=False):
    """Name of an environment, where it is not a framework's own, and the directory of its Jupyter kernel, where one is wished."""

    environment: str
    kernel: str


class FrameworkEnvironment(Contents, Named):
    """Virtual environment of a framework."""

    name: str
    version: str
    variant: str
    cuda: str | None
    """CUDA of the wheels; None: wheels for the processor"""
    python: list[str]
    """Python versions that have wheels"""
    interpreter: str
    path: str


class RepositoryKey(TypedDict):
    """Key that signs a package source."""

    url: str
    fingerprint: str | None
    path: str


Exclusion = TypedDict("Exclusion", {"release": str | None, "packages": list[str], "except": list[str]})
"""Packages that are not taken from a package source (release None: from none)."""


class Displaced(TypedDict):
    """File of the host that is in the way of a package source."""

    file: str
    reason: str
    uris: list[str]
    whole: bool
    """Whether nothing else is in it"""


class Repository(TypedDict):
    """Package source."""

    name: str
    upstream: str | None
    uris: list[str]
    suites: list[str]
    components: list[str]
    file: str
    key: NotRequired[RepositoryKey]
    signed: NotRequired[str]
    """What the key signs (index, packages), of dnf"""
    exclude: NotRequired[Exclusion]
    displaces: NotRequired[list[Displaced]]
    from_host: NotRequired[bool]
    signed_by: NotRequired[str | None]


class Builder(TypedDict):
    """Repository of the system that is there and not enabled."""

    repository: str
    steps: str
    """What enables it for good"""
    source: str


class Pair(TypedDict):
    """Certificate and its key: paths on the node."""

    certificate: str
    key: str


class Dcgm(TypedDict):
    """DCGM and its exporter, which go together."""

    version: str
    exporter: str
    packages: list[str]
    profiling: bool
    """Whether fields of the profiling module are asked for"""


class Exporter(TypedDict):
    """What tells the metrics of the cards, or of the machine."""

    source: str
    """How it gets them (dcgm, smi, node_exporter)"""
    port: int
    adopted: str | None
    """Who runs it, where that is somebody else: it is left as it is"""


class CardExporter(Exporter):
    """Exporter of the cards."""

    dcgm: Dcgm | None
    """Where it is NVIDIA's"""


class NodeExporter(Exporter):
    """Exporter of the machine, as a repository has it."""

    package: str
    repository: str | None
    """Package source besides the system's own"""
    unit: str
    program: str
    textfiles: str
    """Where it finds metrics of others"""
    flag: str
    """Its option for the file of certificate and users"""


class MonitoringExporters(TypedDict):
    """Exporters of metrics for Prometheus."""

    address: str
    gpu: CardExporter | None
    """None on a machine without a card"""
    node: NodeExporter
    tls: Pair | None
    users: dict[str, str]
    """Who may read, with a fingerprint of the hash of each password; everybody where there are none"""
    firewall: list[str]
    """Networks for which the machine's firewall is opened"""


class Stack(TypedDict, total=False):
    """Resolved stack: the parts that are wished."""

    driver: DriverStack
    cuda: list[CudaToolkit]
    cudnn: Cudnn
    nccl: Nccl
    tensorrt: TensorRt
    mig: Mig
    gpu_settings: GpuSettings
    gpu_log: GpuLog
    watch: Watch
    monitoring_exporters: MonitoringExporters
    monitoring_server: MonitoringServer
    container_toolkit: ContainerToolkit
    frameworks: list[FrameworkEnvironment]
    cuda_compat: CudaCompat
    repositories: list[Repository]


class Why(TypedDict):
    """Decision or warning, with the rule and where it was read."""

    rule: str
    text: str
    source: str


class Conflict(Why):
    """Reason why a wish cannot be met."""

    remedy: str


class Refusal(Why):
    """Reason why a run must not begin; a conflict is one."""

    remedy: str | None


class CardName(TypedDict):
    """Card of a machine."""

    name: str
    architecture: str | None
    compute_capability: str | None


class RulesAge(TypedDict):
    """Date of the rules, and their age (days)."""

    generated: str
    age_days: int


class NewerImage(TypedDict):
    """Release of an image that is newer than the one named, and whose CUDA does not run in full."""

    tag: str
    cuda: str
    mode: str


class Image(Why):
    """Image of a container that fits what was resolved, and why; or why none does, and then without a tag."""

    name: str
    """Repository within its registry, such as nvidia/cuda"""
    tag: str | None
    reference: str | None
    """What a container engine takes, with the registry"""
    cuda: str | None
    """First two numbers, such as 13.0"""
    mode: str | None
    """How the driver runs its CUDA (native, minor-version, forward)"""
    version: str | None
    """Of the framework; None where it was not read, and for nvidia/cuda"""
    tags: NotRequired[list[str]]
    """All kinds that were read of nvidia/cuda, the smallest first"""
    newer: NotRequired[NewerImage]


class Answer(TypedDict):
    """Answer of the resolver. Only ``ok`` and ``rules`` are always there."""

    ok: bool
    rules: RulesAge
    conflicts: NotRequired[list[Conflict]]
    gpus: NotRequired[list[CardName]]
    os: NotRequired[str]
    arch: NotRequired[str]
    assumed: NotRequired[dict[str, str | bool]]
    warnings: NotRequired[list[Why]]
    stack: NotRequired[Stack]
    why: NotRequired[list[Why]]
    images: NotRequired[list[Image]]
