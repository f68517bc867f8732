# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The observation of a machine.

Written by tools/build_types.py from plugins/plugin_utils/gate/answers.json: edit that, then `make rules`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
    History,
    ModuleKind,
    PackageManager,
    Proof,
    RunLock,
    Seal,
)

Family = Literal["debian", "redhat", "other"]
EnvironmentKind = Literal["bare", "vm", "container", "wsl", "jetson"]
SigningKeyState = Literal["enrolled", "pending", "not-enrolled", "absent"]
InitramfsTool = Literal["update-initramfs", "dracut"]
DriverOwner = Literal["packages", "runfile", "none", "host", "unknown"]
DriverSource = Literal["nvidia", "distro", "runfile"]
DefaultKind = Literal["alternatives", "link", "other"]
ToolkitState = Literal["begun", "staged", "done"]
ArchivedLibrary = Literal["cudnn", "nccl", "tensorrt"]
ArchiveState = Literal["begun", "done"]
DockerElsewhere = Literal["snap", "desktop"]
DockerOriginal = Literal["file", "none"]
KubernetesName = Literal["k3s", "rke2", "microk8s"]
CgroupDriver = Literal["systemd", "cgroupfs"]
KeyFault = Literal["closed", "form", "empty", "none"]
EngineInUse = Literal["docker", "containerd", "kubernetes", "podman"]
MetricsOf = Literal["gpu", "node", "metrics"]
FirewallName = Literal["ufw", "firewalld"]
FirewallProtocol = Literal["tcp", "udp"]
FirewallOwner = Literal["exporters", "fabric"]


class Os(TypedDict):
    """Operating system."""

    id: str | None
    """The id of a system"""
    version: str | None
    """The version of a system"""
    codename: str | None
    """The code name of a system"""
    name: str | None
    """Name for people"""
    family: Family
    """Family of the package manager"""
    arch: str | None
    """The architecture of a machine"""
    glibc: str | None
    """Version of the C library"""


class _Environment(TypedDict):
    """Kind of machine: keys that are always there."""

    kind: EnvironmentKind
    """What the system runs on"""
    detail: str | None
    """Hypervisor, container engine or board"""
    systemd: bool | None
    """Whether systemd manages the services"""


class Environment(_Environment, total=False):
    """Kind of machine."""

    user_namespace: bool
    """Whether root of this container is another user outside (user_namespaces(7)); absent where none is seen"""


class SigningKey(TypedDict):
    """Key with which DKMS signs modules; null without Secure Boot."""

    path: str | None
    """File of the certificate"""
    state: SigningKeyState | None
    """Whether the firmware accepts the key; pending waits for shim's menu"""


class Boot(TypedDict):
    """How the system was booted."""

    id: str | None
    """Id of this boot"""
    secure_boot: bool | None
    """Whether Secure Boot is enforced"""
    signing_key: SigningKey | None
    """Key with which DKMS signs modules; null without Secure Boot"""
    cmdline: str | None
    """Command line of the kernel"""


class Compiler(TypedDict):
    """Compilers."""

    built_with: str | None
    """Compiler that the next kernel was built with"""
    available: str | None
    """Version of the compiler that is installed"""


class LoadedModule(TypedDict):
    """Loaded kernel module."""

    version: str | None
    """Version of the module"""


class KernelModule(TypedDict):
    """File of a kernel module."""

    version: str | None
    """Driver version of the module"""
    license: str | None
    """Licence of the module"""
    signer: str | None
    """Name of the key that signed it"""
    name: str
    """Name of the module"""
    path: str
    """File of the module"""


class AvailableModules(TypedDict, total=False):
    """Modules that the next kernel has."""

    nvidia: KernelModule
    """NVIDIA's module"""


class KeptOut(TypedDict):
    """Setting that keeps a module out."""

    file: str
    """File of modprobe, or /proc/cmdline"""
    line: str
    """The line, or the word of the kernel's command line"""


class Initramfs(TypedDict):
    """Initramfs of the next kernel."""

    path: str | None
    """File of the image"""
    tool: InitramfsTool | None
    """Program that makes it"""
    nouveau_inside: bool | None
    """Whether nouveau is inside"""
    blacklist_inside: bool | None
    """Whether a file inside keeps nouveau from loading"""
    blacklist_current: bool | None
    """Whether gpuwright's own file is inside, as it is on disk"""


class _Kernel(TypedDict):
    """Kernels and NVIDIA's module for them: keys that are always there."""

    running: str | None
    """Release of the running kernel"""
    next: str | None
    """Release of the kernel that boots next"""
    next_source: str | None
    """How that is known"""
    installed: list[str]
    """Releases of the installed kernels, oldest first"""
    headers: list[str]
    """Releases with headers, oldest first"""
    compiler: Compiler
    """Compilers"""
    loaded: dict[str, LoadedModule]
    """Loaded modules of interest"""
    available: AvailableModules
    """Modules that the next kernel has"""
    may_boot: dict[str, KernelModule | None]
    """NVIDIA's module, or null, for each kernel that may boot by itself"""
    initramfs: Initramfs
    """Initramfs of the next kernel"""


class Kernel(_Kernel, total=False):
    """Kernels and NVIDIA's module for them."""

    unlisted: str
    """NVIDIA's module for the next kernel that is on disk and not in the list of its modules; absent where there is none"""
    kept_out: list[KeptOut]
    """What keeps NVIDIA's module from being loaded; absent where nothing does"""


PciGpu = TypedDict(
    "PciGpu",
    {
        # PCI address
        "bus_id": "str",
        # PCI vendor id
        "vendor": "str | None",
        # PCI device id
        "device": "str | None",
        # PCI class
        "class": "str | None",
        # PCI revision
        "revision": "str | None",
        # Kernel driver that is bound to it
        "driver": "str | None",
    },
)
"""NVIDIA card on the PCI bus."""


class NvSwitch(TypedDict):
    """NVSwitch."""

    bus_id: str
    """PCI address"""
    device: str | None
    """PCI device id"""


class OtherGpu(TypedDict):
    """Card of AMD or Intel."""

    vendor: str | None
    """PCI vendor id"""
    device: str | None
    """PCI device id"""
    bus_id: str
    """PCI address"""
    name: str | None
    """Name in the system's list of PCI ids"""


class ReservedGpu(TypedDict):
    """NVIDIA card that is reserved for virtual machines."""

    vendor: str | None
    """PCI vendor id"""
    device: str | None
    """PCI device id"""
    bus_id: str
    """PCI address"""
    name: str | None
    """Name in the system's list of PCI ids"""
    driver: str | None
    """Kernel driver that holds it"""


class Peers(TypedDict):
    """What is between the cards; absent where there are no two."""

    redirecting: list[str]
    """Bridges above the cards that redirect what these say to each other (ACS)"""
    iommu: list[str]
    """How the IOMMU treats the cards (identity, DMA, DMA-FQ); nothing where it is off"""


class VirtualGpu(TypedDict):
    """Virtual GPU."""

    bus_id: str
    """PCI address"""
    host_driver: str | None
    """Version of the hypervisor's driver"""


class _Pci(TypedDict):
    """PCI devices: keys that are always there."""

    gpus: list[PciGpu]
    """NVIDIA cards that this system drives"""
    nvswitches: list[NvSwitch]
    """NVSwitches"""
    other_gpus: list[OtherGpu]
    """Cards of AMD and Intel"""
    reserved: list[ReservedGpu]
    """NVIDIA cards that are reserved for virtual machines"""
    virtual_functions: int
    """Number of virtual functions of NVIDIA cards (SR-IOV)"""
    nvlink5: bool | None
    """Whether an InfiniBand function manages an NVLink fabric"""
    network_adapters: list[str]
    """PCI addresses of Mellanox's adapters"""
    vgpus: list[VirtualGpu]
    """Those of the cards that are virtual GPUs"""


class Pci(_Pci, total=False):
    """PCI devices."""

    peers: Peers
    """What is between the cards; absent where there are no two"""
    removed_by: list[str]
    """Rules of udev that take NVIDIA's cards off the bus; absent where none does"""


class Display(TypedDict):
    """Desktop and screens."""

    desktop: bool
    """Whether a desktop is installed"""
    nvidia_screens: list[str]
    """PCI addresses of the NVIDIA cards that drive a screen"""


class FoundLibrary(TypedDict):
    """Library that the loader finds."""

    path: str
    """Where it is found"""
    file: str
    """File that this leads to"""
    version: str | None
    """Version in the name of the file"""


class DeviceNode(TypedDict):
    """Device node."""

    path: str
    """Path"""
    mode: int
    """Permissions"""
    group: int
    """Id of its group"""
    device: bool
    """Whether it is a character device"""


class DriverImage(TypedDict):
    """Who else looks after the driver."""

    kind: str
    """Kind of image or container"""
    owner: str
    """Name for people"""
    evidence: str
    """File that tells it"""


class PinFiles(TypedDict):
    """Preference files of a pinning package."""

    files: list[str]
    """Preference files that it brought"""
    missing: list[str]
    """Those of them that are gone"""


PackageMove = TypedDict(
    "PackageMove",
    {
        # Name of the package
        "name": "str",
        # Version that is installed
        "from": "str",
        # Version that would come
        "to": "str",
    },
)
"""Package that an upgrade of everything would move."""


class DriverLock(TypedDict):
    """What holds the driver's version."""

    set: list[str]
    """Packages of the driver's set"""
    held: list[str]
    """Held packages of the driver"""
    excluded: list[str] | None
    """Patterns that keep unattended-upgrades away; null where there are none"""
    pins: dict[str, PinFiles]
    """NVIDIA's pinning packages"""
    would_move: list[PackageMove] | None
    """What an upgrade of everything would move; null where apt was not asked"""


class _Driver(TypedDict):
    """NVIDIA driver: keys that are always there."""

    owner: DriverOwner
    """Who brought the driver"""
    source: DriverSource | None
    """Where its packages come from"""
    packages: dict[str, str]
    """Packages of the driver, with their versions"""
    loaded_version: str | None
    """Version of the loaded module"""
    loaded_modules: ModuleKind | None
    """Kind of the loaded modules"""
    user_version: str | None
    """Version of the user-space libraries"""
    libcuda: str | None
    """Path of libcuda"""
    nvidia_smi: str | None
    """Path of nvidia-smi"""
    image: DriverImage | None
    """Who else looks after the driver"""
    lock: DriverLock
    """What holds the driver's version"""


class Driver(_Driver, total=False):
    """NVIDIA driver."""

    loader: list[FoundLibrary]
    """Each libcuda.so.1 that a program may get, in the order in which the loader takes them; absent without a driver"""
    nodes: list[DeviceNode]
    """Device nodes that CUDA opens; absent without a driver"""
    makes_nodes: bool
    """Whether nvidia-modprobe makes device nodes for programs of users, and loads nvidia-uvm; absent without a driver"""
    keeps_memory: bool
    """Whether the loaded driver keeps the memory of its cards while the machine sleeps; absent where it does not tell"""
    strays: list[str]
    """Libraries of another build, which an interrupted package manager left and no package has"""


class FailedBuild(TypedDict):
    """Build of a module that failed."""

    module: str
    """Name of the DKMS module"""
    version: str
    """Version of the module"""
    kernel: str
    """Kernel that it was built for"""
    log: str
    """Build log"""
    errors: list[str]
    """First lines with an error"""
    end: list[str]
    """Last lines of the log"""
    transient: bool
    """Whether disk or memory ran out"""
    compiler: bool
    """Whether the compiler refused the source"""
    left_out: bool
    """Whether DKMS is told to leave this build out"""


class Dkms(TypedDict):
    """DKMS."""

    failed: list[FailedBuild]
    """Builds of NVIDIA's module that failed"""
    without_source: list[str]
    """Modules of DKMS whose source is gone, where it has one of NVIDIA's: its directories of them"""
    kernels: list[str]
    """Kernels with a module built by DKMS, oldest first"""
    boot_entries: dict[str, str]
    """Entry of the boot menu for each kernel, where a build failed"""


class CardClocks(TypedDict):
    """Clocks."""

    sm_mhz: int | None
    """Clock of the multiprocessors (MHz)"""
    sm_max_mhz: int | None
    """Highest clock of the multiprocessors (MHz)"""
    memory_max_mhz: int | None
    """Highest clock of the memory (MHz)"""
    application_sm_mhz: int | None
    """Clock of the multiprocessors that applications ask for (MHz)"""
    application_memory_mhz: int | None
    """Clock of the memory that applications ask for (MHz)"""
    default_sm_mhz: int | None
    """That clock of the multiprocessors as the card has it by default (MHz)"""
    default_memory_mhz: int | None
    """That clock of the memory as the card has it by default (MHz)"""


class CardPcie(TypedDict):
    """PCI Express link."""

    gen: int | None
    """Generation now"""
    gen_max: int | None
    """Highest generation of card and slot together"""
    gen_device_max: int | None
    """Highest generation of the card"""
    gen_host_max: int | None
    """Highest generation of the host"""
    width: int | None
    """Lanes now"""
    width_max: int | None
    """Most lanes"""
    replays: int | None
    """Replayed packets since the driver was loaded"""


class CardFabric(TypedDict):
    """NVLink fabric."""

    state: str | None
    """State of the registration"""
    status: str | None
    """Status of the registration"""
    health: str | None
    """Summary of the health"""
    bandwidth: str | None
    """Degraded bandwidth"""
    route_recovery: str | None
    """Route recovery in progress"""
    route_unhealthy: str | None
    """Unhealthy route"""
    access_timeout_recovery: str | None
    """Recovery from an access timeout"""
    incorrect_configuration: str | None
    """Incorrect configuration"""
    partition_assigned: str | None
    """Whether a partition is assigned"""
    other: str | None
    """Further words about the health"""


class CardEcc(TypedDict):
    """Error-correcting memory; errors since the last boot (volatile) and since delivery (aggregate)."""

    mode: bool | None
    """Whether ECC is on"""
    pending: bool | None
    """Whether ECC is on after the next reset"""
    sram_threshold_exceeded: bool | None
    """Whether the SRAM has too many errors"""
    channel_repair_pending: bool | None
    """Whether a repair of a memory channel waits for a reset"""
    tpc_repair_pending: bool | None
    """Whether a repair of a TPC waits for a reset"""
    unrepairable_memory: bool | None
    """Whether memory cannot be repaired"""
    volatile_uncorrected: int | None
    """Uncorrected errors since the last boot"""
    volatile_corrected: int | None
    """Corrected errors since the last boot"""
    aggregate_sram_uncorrected: int | None
    """Uncorrected errors of the SRAM since delivery"""


class CardMig(TypedDict):
    """Multi-Instance GPU."""

    current: bool | None
    """Whether MIG is on"""
    pending: bool | None
    """Whether MIG is on after the next reset"""
    devices: list[dict[str, int | None]]
    """MIG devices: numbers by their names in nvidia-smi"""


class RetiredPages(TypedDict, total=False):
    """Retired pages of memory (before Ampere)."""

    single_bit: int | None
    """Pages retired for single-bit errors"""
    double_bit: int | None
    """Pages retired for double-bit errors"""
    pending: bool | None
    """Whether a retirement waits for a reset"""


class RemappedRows(TypedDict, total=False):
    """Remapped rows of memory (Ampere and newer)."""

    uncorrectable: int | None
    """Rows remapped for uncorrectable errors"""
    pending: bool | None
    """Whether a remapping waits for a reset"""
    failure: bool | None
    """Whether a remapping failed"""
    banks: dict[str, int | None]
    """Number of memory banks by how many rows can still be remapped"""


class Process(TypedDict):
    """Process on a card."""

    pid: int | None
    """Process id"""
    type: str | None
    """C for compute, G for graphics"""
    name: str | None
    """Name of the program"""


class Card(TypedDict):
    """Card, as nvidia-smi describes it."""

    index: int
    """Index of nvidia-smi"""
    minor_number: int | None
    """Number of the device file"""
    memory_total_mib: int | None
    """Memory (MiB)"""
    memory_used_mib: int | None
    """Memory in use (MiB)"""
    utilization_percent: int | None
    """Utilization of the card (percent)"""
    fan_percent: int | None
    """Fan speed (percent)"""
    temperature_c: int | None
    """Temperature of the GPU (°C)"""
    temperature_memory_c: int | None
    """Temperature of the memory (°C)"""
    temperature_slow_c: int | None
    """Temperature at which the clocks are lowered (°C)"""
    temperature_shutdown_c: int | None
    """Temperature at which the card switches off (°C)"""
    temperature_memory_max_c: int | None
    """Highest temperature of the memory in operation (°C)"""
    temperature_margin_c: int | None
    """Margin to the slowdown (°C)"""
    temperature_shutdown_margin_c: int | None
    """Margin at which the card switches off (°C)"""
    power_draw_w: float | None
    """Power draw (W)"""
    power_limit_w: float | None
    """Power limit in force (W)"""
    power_default_limit_w: float | None
    """Power limit of delivery (W)"""
    power_min_limit_w: float | None
    """Lowest power limit (W)"""
    power_max_limit_w: float | None
    """Highest power limit (W)"""
    name: str | None
    """Product name"""
    brand: str | None
    """Product brand"""
    architecture: str | None
    """GPU architecture"""
    serial: str | None
    """Serial number"""
    vbios: str | None
    """VBIOS version"""
    performance_state: str | None
    """Performance state (P0 to P15)"""
    compute_mode: str | None
    """Compute mode"""
    virtualization_mode: str | None
    """Virtualization mode"""
    licence: str | None
    """State of the vGPU licence"""
    recovery_action: str | None
    """Recovery that the driver asks for"""
    uuid: str | None
    """UUID of the card"""
    pci_bus_id: str
    """The place of a PCI device"""
    pci_id: str | None
    """A PCI id"""
    persistence_mode: bool | None
    """Whether persistence mode is on"""
    reset_required: bool | None
    """Whether the card needs a reset"""
    drain_recommended: bool | None
    """Whether the driver recommends to drain and reset the card"""
    clocks: CardClocks
    """Clocks"""
    pcie: CardPcie
    """PCI Express link"""
    fabric: CardFabric
    """NVLink fabric"""
    ecc: CardEcc
    """Error-correcting memory; errors since the last boot (volatile) and since delivery (aggregate)"""
    mig: CardMig
    """Multi-Instance GPU"""
    retired_pages: RetiredPages | None
    """Retired pages of memory (before Ampere)"""
    remapped_rows: RemappedRows | None
    """Remapped rows of memory (Ampere and newer)"""
    processes: list[Process]
    """Processes on the card"""
    throttle: list[str] | None
    """Reasons for which the clocks are lowered"""
    errors: dict[str, str]
    """Values that could not be read, by their place, in nvidia-smi's words"""


class SmiData(TypedDict):
    """Document of `nvidia-smi -q -x`."""

    driver_version: str | None
    """Driver version"""
    cuda_version: str | None
    """Newest CUDA version that the driver supports"""
    attached_gpus: int | None
    """Number of cards that the driver has"""
    gpus: list[Card]
    """Cards"""
    notes: list[str]
    """Warnings around the document"""
    errors: dict[str, str]
    """Values that could not be read, by their place, in nvidia-smi's words"""


class _Smi(TypedDict):
    """Answer of nvidia-smi; null where it was not run: keys that are always there."""

    rc: int | None
    """Exit status; null where it did not run to its end"""
    seconds: float | None
    """How long it took (s)"""
    error: str | None
    """Why there is no usable answer"""
    data: SmiData | None
    """Its document"""


class Smi(_Smi, total=False):
    """Answer of nvidia-smi; null where it was not run."""

    mig_devices: dict[str, list[str]] | None
    """MIG profiles by UUID of the card"""


class Toolkit(TypedDict):
    """CUDA toolkit."""

    version: str
    """Version of the toolkit"""
    path: str
    """Directory of the toolkit"""


class Cudnn(TypedDict):
    """cuDNN library."""

    version: str
    """Version of cuDNN"""
    cuda_major: int | None
    """Major version of its CUDA"""
    package: str | None
    """Package that brought it"""


class FormerToolkit(TypedDict):
    """What it was before gpuwright led it elsewhere."""

    path: str | None
    """Where it led"""
    manual: bool
    """Whether the alternatives system had been told which to take"""


class DefaultToolkit(TypedDict):
    """What /usr/local/cuda is."""

    kind: DefaultKind | None
    """A link of the alternatives system, another link, or none (other); null where nothing is there"""
    path: str | None
    """Where it leads"""
    manual: bool | None
    """Whether the alternatives system was told which to take; null where it knows of none"""
    registered: list[str]
    """Toolkits that the alternatives system may take"""
    before: FormerToolkit | None
    """What it was before gpuwright led it elsewhere"""


class ToolkitRecord(TypedDict):
    """Toolkit that gpuwright brought by a file."""

    path: str
    """Directory of the toolkit"""
    release: str
    """Release of the file"""
    state: ToolkitState
    """Whether its installer ended, and where it worked: in the directory itself (begun, by an earlier version) or beside it (staged)"""
    packaged: bool | None
    """Whether packages brought something into that directory; null where their manager did not tell"""


class VisibleCards(TypedDict):
    """Cards that CUDA shows every login."""

    file: str
    """File that says so"""
    value: str
    """CUDA_VISIBLE_DEVICES"""


class _LeadingLibrary(TypedDict):
    """Library that is loaded before that of a wheel: keys that are always there."""

    file: str
    """File that names its directory"""
    path: str
    """Where it is"""


class LeadingLibrary(_LeadingLibrary, total=False):
    """Library that is loaded before that of a wheel."""

    version: str
    """Its version; absent where its name does not tell"""


class ArchiveRecord(TypedDict):
    """Library that gpuwright put into a toolkit."""

    library: ArchivedLibrary
    """Which it is"""
    path: str
    """Directory of the toolkit"""
    version: str
    """Version of the library"""
    state: ArchiveState
    """Whether it is whole"""


class Modulefile(TypedDict):
    """Modulefile."""

    path: str
    """Path"""
    ours: bool
    """Whether gpuwright wrote it"""


class Modulefiles(TypedDict):
    """Modulefiles of CUDA, for Lmod and environment-modules."""

    directories: list[str]
    """Directories for a site's own ones that the installed module systems read"""
    files: list[Modulefile]
    """Those that are there"""


class _Cuda(TypedDict):
    """CUDA toolkits and cuDNN: keys that are always there."""

    toolkits: list[Toolkit]
    """CUDA toolkits, oldest first"""
    cudnn: list[Cudnn]
    """CuDNN libraries"""
    default: DefaultToolkit
    """What /usr/local/cuda is"""
    runfiles: list[ToolkitRecord]
    """Toolkits that gpuwright brought by a file of NVIDIA's"""
    archives: list[ArchiveRecord]
    """Archives of libraries that gpuwright put into toolkits"""
    modulefiles: Modulefiles
    """Modulefiles of CUDA, for Lmod and environment-modules"""


class Cuda(_Cuda, total=False):
    """CUDA toolkits and cuDNN."""

    visible: list[VisibleCards]
    """Files for all users that say which cards CUDA shows; absent where none does"""
    leading: list[LeadingLibrary]
    """Libraries that every login's LD_LIBRARY_PATH puts before those of Python's wheels; absent where there is none"""
    on_path: list[str]
    """Files for all users that put a toolkit below /usr/local into PATH; absent where none does"""


class DockerFlag(TypedDict):
    """Option that Docker is started with."""

    file: str
    """The file that gives it"""
    name: str
    """Its long name"""


class DockerAdded(TypedDict):
    """What gpuwright put into daemon.json; null where it has no record of that."""

    put: Any
    """What it put in"""
    had: Any
    """What stood in the place of that"""
    original: DockerOriginal | None
    """Whether the file as it was can be put back, or there was none; null where others changed it since"""


class _Docker(TypedDict):
    """Docker: keys that are always there."""

    installed: bool
    """Whether it is installed"""
    version: str | None
    """Version"""
    active: bool | None
    """Whether its service runs"""
    daemon_json: dict[str, Any] | None
    """Content of daemon.json"""
    daemon_json_error: str | None
    """Why daemon.json could not be read"""
    config_loaded: bool | None
    """Whether it was started after daemon.json was changed"""
    added: DockerAdded | None
    """What gpuwright put into daemon.json; null where it has no record of that"""


class Docker(_Docker, total=False):
    """Docker."""

    flags: list[DockerFlag]
    """What the machine's own files of its unit give it as options"""
    lost_runtimes: list[str]
    """Runtimes in daemon.json whose program is not there"""
    elsewhere: DockerElsewhere | None
    """A Docker that is no service of this system: a snap, or Docker Desktop"""
    to_desktop: list[str]
    """Settings of users whose commands go to Docker Desktop's machine"""
    serves_kubelet: bool
    """Whether a kubelet asks Docker for its containers (cri-dockerd)"""


class _Kubernetes(TypedDict):
    """Kubernetes that brings a containerd of its own: keys that are always there."""

    name: KubernetesName
    """Its name"""
    config: str
    """Configuration of its containerd, which it writes itself"""


class Kubernetes(_Kubernetes, total=False):
    """Kubernetes that brings a containerd of its own."""

    runtime: bool
    """Whether that has the runtime nvidia; absent where it could not be read"""


class ContainerToolkit(TypedDict):
    """NVIDIA Container Toolkit."""

    version: str | None
    """Version"""


class _ContainerdConfig(TypedDict):
    """What containerd itself says of its configuration; null where nothing in it can be of interest: keys that are always there."""

    runtime: str | None
    """Program of the runtime nvidia; null where there is none"""
    default_runtime: str | None
    """Runtime of a container that names none"""
    cdi: bool | None
    """Whether CDI is on; null where it does not tell"""
    imports: list[str]
    """Files that are imported"""


class ContainerdConfig(_ContainerdConfig, total=False):
    """What containerd itself says of its configuration; null where nothing in it can be of interest."""

    lost: bool
    """Whether that program is not there"""
    systemd_cgroup: bool | None
    """Whether systemd manages the control groups of the runtime nvidia; null where it does not tell"""


class _Containerd(TypedDict):
    """containerd: keys that are always there."""

    installed: bool
    """Whether it is installed"""
    version: str | None
    """Version"""
    active: bool | None
    """Whether its service runs"""
    cri: bool | None
    """Whether its part that serves Kubernetes is left on; null where its configuration could not be read"""
    marked: list[str]
    """Its configuration files in which gpuwright left its marks"""
    config: ContainerdConfig | None
    """What containerd itself says of its configuration; null where nothing in it can be of interest"""
    config_error: str | None
    """Why it cannot start with its configuration"""
    config_loaded: bool | None
    """Whether it was started after its configuration was changed"""


class Containerd(_Containerd, total=False):
    """containerd."""

    kubelet_cgroups: CgroupDriver | None
    """Who manages the control groups of pods, by the kubelet's configuration; null without one"""
    device_plugin: bool
    """Whether NVIDIA's device plugin serves the kubelet; not told without a kubelet"""


class _Podman(TypedDict):
    """Podman: keys that are always there."""

    version: str | None
    """Version"""


class Podman(_Podman, total=False):
    """Podman."""

    looks: list[str]
    """Where its configuration has it look for CDI specifications; absent where it says nothing"""


class IdRange(TypedDict):
    """Range of subordinate ids."""

    owner: str
    """Whose it is: a name, or an id; _ where that is no name that can be told"""
    first: int
    """First id"""
    count: int
    """How many"""


class RootlessAdded(TypedDict):
    """Those of them that gpuwright gave, by its record."""

    uids: list[IdRange]
    """In /etc/subuid"""
    gids: list[IdRange]
    """In /etc/subgid"""


class _Rootless(TypedDict):
    """What containers of users without root need: keys that are always there."""

    max_namespaces: int | None
    """Most user namespaces that the kernel allows (user.max_user_namespaces)"""
    clone: bool | None
    """Whether users may make them (kernel.unprivileged_userns_clone); null where the kernel does not ask"""
    apparmor: bool | None
    """Whether AppArmor asks for a profile (kernel.apparmor_restrict_unprivileged_userns); null where it cannot"""
    profile: bool
    """Whether AppArmor has a profile for Podman"""
    users: dict[str, int]
    """Ids of the machine's own people by name"""
    uids: list[IdRange]
    """Ranges in /etc/subuid"""
    gids: list[IdRange]
    """Ranges in /etc/subgid"""
    added: RootlessAdded
    """Those of them that gpuwright gave, by its record"""


class Rootless(_Rootless, total=False):
    """What containers of users without root need."""

    docker: list[str]
    """Users in whose home is a unit of Docker without root; absent where there is none"""


class EngineImages(TypedDict):
    """Images of each engine, with their registries."""

    docker: list[str] | None
    """Those of Docker; null where it is there and does not run, or was not asked"""
    podman: list[str] | None
    """Those of Podman; null where it is there and was not looked at"""


class _ContainerRuntime(TypedDict):
    """Configuration of NVIDIA's container runtime; absent where there is none: keys that are always there."""

    no_cgroups: bool
    """Whether containers are left to themselves to be let to the cards, as without root"""
    mode: str
    """How the cards get into a container"""


class ContainerRuntime(_ContainerRuntime, total=False):
    """Configuration of NVIDIA's container runtime; absent where there is none."""

    privileged_only: bool
    """Whether only privileged containers may ask for cards by a variable, as docker --gpus does; absent where all may"""
    lost_ldconfig: str
    """The machine's ldconfig that it names, where there is none"""
    root: str
    """Where it looks for the driver, where that is elsewhere than on the machine itself"""


class _CdiSpecification(TypedDict):
    """CDI specification of NVIDIA's cards: keys that are always there."""

    path: str
    """Its file"""
    driver: str | None
    """Version of the driver that it was made for; null where it does not tell"""
    devices: list[str]
    """Names of the devices in it"""


class CdiSpecification(_CdiSpecification, total=False):
    """CDI specification of NVIDIA's cards."""

    version: str | None
    """Version of CDI that it is written in; null where it does not tell"""
    nodes: list[str]
    """Device nodes of cards that it hands out"""
    lost: list[str]
    """Nodes and files that it hands out and that are not there; absent where the machine has no node of a card"""
    hidden: str
    """It, or its directory, where only root may read that; absent where all may"""
    lost_programs: list[str]
    """Programs that are run at each start of a container and are not there; absent where the machine has no node of a card"""


class Cdi(TypedDict):
    """What engines find the cards by."""

    specifications: list[CdiSpecification]
    """CDI specifications of NVIDIA's cards"""
    unlinked: list[str]
    """Device nodes of cards that no link in /dev/char leads to"""


class _Containers(TypedDict):
    """Container engines and NVIDIA's toolkit for them: keys that are always there."""

    docker: Docker
    """Docker"""
    toolkit: ContainerToolkit
    """NVIDIA Container Toolkit"""
    containerd: Containerd
    """Containerd"""
    podman: Podman
    """Podman"""
    rootless: Rootless
    """What containers of users without root need"""
    images: EngineImages
    """Images of each engine, with their registries"""
    cdi: Cdi
    """What engines find the cards by"""


class Containers(_Containers, total=False):
    """Container engines and NVIDIA's toolkit for them."""

    kubernetes: Kubernetes | None
    """Kubernetes that brings a containerd of its own"""
    runtime: ContainerRuntime
    """Configuration of NVIDIA's container runtime; absent where there is none"""
    devices_denied: bool
    """Whether SELinux keeps containers from device nodes (container_use_devices); absent where it has no such switch"""


class Interpreter(TypedDict):
    """Python interpreter."""

    path: str
    """Path"""
    version: str
    """Version"""
    venv: bool
    """Whether it can make virtual environments"""


class Python(TypedDict):
    """Python interpreters."""

    interpreters: list[Interpreter]
    """Interpreters of the system, oldest first"""
    venv: bool | None
    """Whether python3 can make virtual environments"""


class KeptEnvironment(TypedDict):
    """The build of it that was in use before."""

    python: str | None
    """Python version"""
    packages: dict[str, str]
    """Distributions, with their versions"""
    loader_path: str | None
    """Directory of libraries that its activation puts first"""
    gave_way: str | None
    """When it gave way, by the look that the change was planned from"""


class _PythonEnvironment(TypedDict):
    """Virtual environment: keys that are always there."""

    python: str | None
    """Python version"""
    packages: dict[str, str]
    """Distributions, with their versions"""
    loader_path: str | None
    """Directory of libraries that its activation puts first"""


class PythonEnvironment(_PythonEnvironment, total=False):
    """Virtual environment."""

    damage: list[str]
    """What is broken in it, as parts of a sentence"""
    kernel: str
    """SHA-256 of the file of its Jupyter kernel, where it has one"""
    kept: KeptEnvironment | None
    """The build of it that was in use before"""


_Disk = TypedDict(
    "_Disk",
    {
        # Where it is mounted, or the directory that a quota limits
        "mount": "str",
        # Size (bytes)
        "size_bytes": "int | None",
        # Free space (bytes)
        "free_bytes": "int | None",
        # Class of the disk: usb, mmc, hdd, network, virtual, raid, ssd, md, nvme, nvme3, nvme4, nvme5, memory
        "class": "str | None",
        # Whether it is mounted read-only
        "read_only": "bool",
    },
)
"""File system: keys that are always there."""


class Disk(_Disk, total=False):  # pylint: disable=inherit-non-class
    """File system."""

    reclaimed_bytes: int
    """What builds of environments take that were cut off: the next run has that room (bytes)"""
    free_files: int | None
    """Free inodes"""
    places: list[str]
    """Directories on it that are written to"""


class Names(TypedDict):
    """How addresses of names are found (DNS)."""

    servers: list[str]
    """Servers that are asked"""
    hosts: list[str]
    """Names that the machine knows itself"""
    problem: str | None
    """Why nobody can be asked"""


HidingRule = TypedDict(
    "HidingRule",
    {
        # File that it stands in
        "file": "str",
        # Its words
        "entry": "str",
        # Names of the packages that it keeps out, or patterns
        "packages": "list[str]",
        # Names or patterns of those that it lets in
        "except": "list[str]",
        # Where packages come from that it is about; null: from everywhere
        "source": "str | None",
    },
)
"""Line of the package manager's settings that keeps packages from being installed."""


class _PackageSource(TypedDict):
    """Package source: keys that are always there."""

    file: str
    """File of the source"""
    types: list[str]
    """Types (deb, deb-src, rpm)"""
    uris: list[str]
    """Addresses, without credentials"""
    suites: list[str]
    """Suites"""
    components: list[str]
    """Components"""
    signed_by: str | None
    """Key that signs it"""
    enabled: bool
    """Whether it is enabled"""


class PackageSource(_PackageSource, total=False):
    """Package source."""

    key_missing: bool
    """That the file of its key is not there (apt)"""
    key_fault: KeyFault
    """Why apt takes no key of its file: not all may read it (closed), it is not as its name says (form), empty, or no key in it (none)"""
    key_expired: str
    """The day on which the last of its keys expired (apt); absent where one is good"""
    keys: list[str]
    """Fingerprints of the keys that may sign it (apt); absent where none could be read"""
    name: str
    """Id of the repository (dnf)"""


class SilentProxy(TypedDict):
    """Proxy that does not answer."""

    file: str
    """The file that names it"""
    address: str
    """Its host and port"""


class RepairRemoval(TypedDict):
    """Package that a repair would remove."""

    name: str
    """Name of the package"""
    version: str
    """Version that is installed"""


class _Packages(TypedDict):
    """Package manager: keys that are always there."""

    manager: PackageManager | None
    """Package manager"""
    interrupted: bool | None
    """Whether an installation was interrupted"""
    interrupted_detail: str | None
    """What it left"""
    busy: str | None
    """Process that changes packages now"""
    holds: list[str]
    """Held packages"""
    sources: list[PackageSource]
    """Package sources"""
    installed: dict[str, str]
    """Installed packages of interest, with their versions"""


class Packages(_Packages, total=False):
    """Package manager."""

    broken_sources: list[str]
    """What cannot be read of the package sources"""
    gone_sources: list[str]
    """Package sources in directories that are not there (apt)"""
    hides: list[HidingRule]
    """What keeps packages from being installed: pins of negative priority (apt), exclusions (dnf)"""
    silent_proxies: list[SilentProxy]
    """Proxies on this machine that apt is told to go through and that take no connection (apt)"""
    duplicates: list[str]
    """Packages that are there in two versions (dnf)"""
    repair_removes: list[RepairRemoval]
    """Packages that finishing an interrupted transaction would remove (apt); absent where apt did not say"""
    streams: dict[str, str]
    """Enabled module streams (dnf)"""
    disabled_modules: list[str]
    """Disabled modules, whose packages are hidden (dnf)"""


class Service(TypedDict):
    """Unit of systemd."""

    active: str | None
    """Active state of systemd"""
    enabled: str | None
    """State of the unit file; `not-found` where there is none"""


class _Fabric(TypedDict):
    """NVSwitch fabric and RDMA: keys that are always there."""

    manager_stale: bool | None
    """Whether the running Fabric Manager is another program than the one on disk"""
    modules_loaded: list[str]
    """Loaded modules of interest"""
    modules_at_boot: list[str]
    """Modules of interest that are loaded at each boot"""
    peermem_module: str | None
    """Name of nvidia-peermem for the next kernel"""


class Fabric(_Fabric, total=False):
    """NVSwitch fabric and RDMA."""

    link_layers: list[str]
    """What the ports of RDMA adapters speak"""


class CardHolder(TypedDict):
    """Process that holds cards."""

    pid: int
    """Process id"""
    name: str
    """Name of the program"""
    devices: list[str]
    """Devices that it has open"""


class RunningContainer(TypedDict):
    """Running container."""

    engine: EngineInUse
    """Whose it is"""
    id: str
    """Beginning of its id"""
    comes_back: bool
    """Whether the machine starts it again after a boot"""


class EngineWork(TypedDict):
    """Work of a container engine."""

    engine: EngineInUse
    """Whose it is"""
    what: str
    """What it is"""


class Running(TypedDict):
    """What runs that a change would end."""

    holders: list[CardHolder]
    """Processes that hold cards, without those that are known to compute nothing"""
    containers: list[RunningContainer]
    """Running containers"""
    working: list[EngineWork]
    """Builds, pulls and other work of container engines"""
    docker_clients: int
    """Connections that Docker has with clients"""
    jobs: list[str]
    """Steps of Slurm's jobs"""
    unread: str | None
    """Why not all of it could be seen; null where it was"""


class Sessions(TypedDict):
    """Sessions of users."""

    display: bool
    """Whether a graphical session is open"""


class Listener(TypedDict):
    """Socket that listens (TCP)."""

    address: str
    """Address that it listens on"""
    port: int
    """Port"""
    process: str | None
    """Name of the process that holds it; null where that could not be seen"""
    user: str
    """User whose it is: the name, or the number where it has none"""
    unit: str | None
    """Service of that process"""
    tls: bool | None
    """Whether it speaks TLS; null where it answered neither way"""
    status: int | None
    """Status of HTTP that it answers a question for metrics with"""
    tells: MetricsOf | None
    """What its metrics are of: cards, a machine, or something else"""
    certificate: str | None
    """SHA-256 of the certificate that it shows"""


class Certificate(TypedDict):
    """Certificate that is wished for them, with its key; null where none is, and where it could not be read."""

    problem: str | None
    """Why it cannot be served"""
    expires: str | None
    """When it expires"""
    digest: str | None
    """Its SHA-256"""


class Monitoring(TypedDict):
    """What is where exporters are wished; only where the look asks for it."""

    listeners: list[Listener]
    """What listens on their ports"""
    drop_ins: list[str]
    """Units that a drop-in of gpuwright's changes"""
    certificate: Certificate | None
    """Certificate that is wished for them, with its key; null where none is, and where it could not be read"""


class ServerProgram(TypedDict):
    """Program of a server of metrics."""

    answers: bool
    """Whether it answers where it should listen"""
    started: bool | None
    """Whether it was started since its unit was written"""
    loaded: bool | None
    """Whether it has read its files since they were written"""
    problem: str | None
    """What is in the way"""


class MetricsTarget(TypedDict):
    """Exporter that Prometheus asks."""

    host: str
    """Name in the inventory"""
    job: str
    """Gpu or node"""
    health: str
    """Up, down, or unknown where it was not asked yet"""
    error: str | None
    """Why it did not answer"""


class MetricsServer(TypedDict):
    """Server of metrics that gpuwright set up; only where there is one."""

    files: list[str]
    """What was written for it"""
    prometheus: ServerProgram
    """Prometheus"""
    alertmanager: ServerProgram
    """Alertmanager"""
    grafana: ServerProgram | None
    """Grafana; null where it is not gpuwright's"""
    targets: list[MetricsTarget] | None
    """Exporters that Prometheus asks; null where it does not say"""


class FirewallRule(TypedDict):
    """Rule that lets a network to ports."""

    network: str
    """Network (CIDR)"""
    protocol: FirewallProtocol
    """Protocol"""
    ports: str
    """Port, or the first and the last of a range (1024-65535)"""
    owner: FirewallOwner | None
    """For whom of gpuwright it is; null where it is somebody else's"""
    permanent: bool
    """Whether it is there after a boot"""
    runtime: bool
    """Whether it is there now"""


class FirewallTool(TypedDict):
    """Firewall that can be opened."""

    name: FirewallName
    """Its name"""
    active: bool
    """Whether it is active"""
    ipv6: bool
    """Whether it takes rules for IPv6"""
    rules: list[FirewallRule]
    """Rules of gpuwright, and in ufw those of others of the same form"""


class Firewall(TypedDict):
    """Firewalls that can be opened; null where only root could see them. Only where the look asks for it."""

    tools: list[FirewallTool]
    """Those that are installed"""
    others: list[str]
    """Who else has rules where neither of them is active"""


class User(TypedDict):
    """Who works without root; only where the look is one at what is the user's own."""

    name: str
    """Name of the user"""
    environments: str
    """Where the user's environments are made"""
    records: list[str]
    """Where the user's records are"""
    obstacle: str | None
    """Why the user cannot make environments where they are wished"""


class _Facts(TypedDict):
    """Observation of a machine: keys that are always there."""

    schema: int
    """Version of this document"""
    root: str
    """Root of the tree that was observed"""
    privileged: bool
    """Whether the observer was root"""
    simulated: bool
    """Whether the node is a simulated one"""
    hostname: str | None
    """Name of the machine"""
    time: str
    """When it was observed"""
    os: Os
    """Operating system"""
    environment: Environment
    """Kind of machine"""
    boot: Boot
    """How the system was booted"""
    kernel: Kernel
    """Kernels and NVIDIA's module for them"""
    pci: Pci
    """PCI devices"""
    display: Display
    """Desktop and screens"""
    driver: Driver
    """NVIDIA driver"""
    dkms: Dkms
    """DKMS"""
    smi: Smi | None
    """Answer of nvidia-smi; null where it was not run"""
    cuda: Cuda
    """CUDA toolkits and cuDNN"""
    containers: Containers
    """Container engines and NVIDIA's toolkit for them"""
    python: Python
    """Python interpreters"""
    environments: dict[str, PythonEnvironment]
    """Virtual environments by path"""
    disks: list[Disk]
    """File systems"""
    packages: Packages
    """Package manager"""
    services: dict[str, Service]
    """Units of systemd"""
    fabric: Fabric
    """NVSwitch fabric and RDMA"""
    in_use: Running
    """What runs that a change would end"""
    sessions: Sessions
    """Sessions of users"""
    seals: dict[str, Seal] | None
    """Seals by component"""
    proof: Proof | None
    """Record of the last proof"""
    lock: RunLock | None
    """Lock of the run at work"""
    history: History | None
    """What the node keeps to find its way back"""
    unknown: dict[str, str]
    """Reason by fact for what could not be seen"""


class Facts(_Facts, total=False):
    """Observation of a machine."""

    names: Names
    """How addresses of names are found (DNS)"""
    monitoring: Monitoring
    """What is where exporters are wished; only where the look asks for it"""
    monitoring_server: MetricsServer
    """Server of metrics that gpuwright set up; only where there is one"""
    firewall: Firewall | None
    """Firewalls that can be opened; null where only root could see them. Only where the look asks for it"""
    user: User
    """Who works without root; only where the look is one at what is the user's own"""
