# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node keeps of earlier runs, as it answers it: seals, proof, lock, history.

Written by tools/build_types.py from plugins/plugin_utils/gate/answers.json: edit that, then `make rules`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

SealState = Literal["good", "broken", "begun", "alone", "newer"]
ProofVerdict = Literal["pass", "fail", "incomplete"]
ModuleKind = Literal["open", "proprietary"]
StackSource = Literal["nvidia", "distro", "runfile", "preinstalled", "unknown"]
PackageManager = Literal["apt", "dnf"]


class Seal(TypedDict):
    """Seal of a component, compared with the node."""

    state: SealState
    """What the comparison with the node found"""
    reason: str | None
    """What is not as it was sealed"""
    digest: str | None
    """Digest of the inputs of the component"""
    gpuwright: str | None
    """Version of gpuwright that wrote it"""
    stack: Any
    """The component's part of the stack"""
    gpus: list[str] | None
    """PCI ids of the cards that were seen"""
    packages: dict[str, str] | None
    """Sealed packages, with their versions"""
    written: str | None
    """When it was written"""


class ProvenCard(TypedDict):
    """Card that was proven."""

    uuid: str | None
    """UUID of the card"""
    name: str | None
    """Name of the card"""


class _Proof(TypedDict):
    """Record of the last proof: keys that are always there."""

    verdict: ProofVerdict
    """Verdict of the last proof"""
    time: str
    """When it ended"""
    boot_id: str | None
    """Boot in which it ran"""
    driver: str | None
    """Driver version that was proven"""
    stack_digest: str | None
    """Digest of the stack that was proven"""


class Proof(_Proof, total=False):
    """Record of the last proof."""

    checks: list[Check]
    """Checks that it made"""
    gpus: list[ProvenCard]
    """Cards that were proven"""


class RunLock(TypedDict, total=False):
    """Lock of a run at work."""

    owner: str | None
    """Run that holds the lock; null where the lock cannot be read"""
    since: str | None
    """When it was taken"""
    boot: str | None
    """Boot in which it was taken, by its id"""
    renewed: float | None
    """When the run was heard of last, since that boot (s)"""
    living: bool
    """Whether the run is at work, or may be"""
    expires: str | None
    """Of an earlier gpuwright: when it expires; null where it does not"""


class _FailedDriver(TypedDict):
    """Driver that a run returned from: keys that are always there."""

    version: str | None
    """Driver version"""
    modules: str | None
    """Kind of kernel modules"""
    source: str | None
    """Where the driver came from"""
    kernel: str | None
    """Kernel that it failed for"""
    reason: str
    """Why the run returned from it"""
    time: str
    """When it failed"""


class FailedDriver(_FailedDriver, total=False):
    """Driver that a run returned from."""

    log: str | None
    """The path of a kept log"""


class DriverPin(TypedDict, total=False):
    """What keeps the driver in its branch."""

    package: str | None
    """NVIDIA's pinning package (apt)"""
    plugin: str | None
    """Package of the plugin by which dnf holds"""
    hold: list[str] | None
    """Packages to hold"""
    stream: str | None
    """A module stream of dnf"""


class Runfile(TypedDict):
    """NVIDIA's installer as one file."""

    name: str
    """The name of NVIDIA's file"""
    addresses: list[str]
    """Where it is fetched from; a path is one of the controller"""
    sha256: str | None
    """A SHA256"""
    arguments: list[str]
    """Options of the installer"""
    with_nouveau: list[str]
    """Further options while nouveau is loaded"""
    with_session: list[str]
    """Further options while a graphical session is open"""


class DriverFabric(TypedDict):
    """What an NVSwitch fabric needs beside the driver."""

    packages: list[str]
    """Packages to install"""
    exact: list[str]
    """Those of them that must have the driver's version"""
    services: list[str]
    """Units to enable"""
    modules: list[str]
    """Kernel modules to load at boot"""


class KeptDriver(TypedDict):
    """Driver that works and is kept instead of this one."""

    source: str | None
    """Its source"""
    branch: str | None
    """Its branch"""
    version: str | None
    """Its version"""
    modules: str | None
    """Its kind of kernel modules"""


class PrecompiledModule(TypedDict):
    """Precompiled module of the next kernel."""

    kernel: str
    """Release of that kernel"""
    package: str
    """Package that brings its module"""


class _DriverStack(TypedDict):
    """Resolved driver, as the resolver writes it into a seal: keys that are always there."""

    branch: str
    """A branch of the driver"""
    version: str | None
    """Driver version; null before the package index was asked"""
    modules: ModuleKind
    """Kind of kernel modules"""
    source: StackSource
    """Where the driver comes from"""
    packages: list[str]
    """Packages to install"""
    pin: DriverPin
    """What keeps the driver in its branch"""
    kernel_module: str
    """Name of the kernel module"""
    adopted: bool
    """Whether somebody else installed the driver and it is kept"""


class DriverStack(_DriverStack, total=False):
    """Resolved driver, as the resolver writes it into a seal."""

    source_reason: str
    """Why it comes from there"""
    build: str | None
    """How the kernel module is made (dkms, precompiled)"""
    set: str | None
    """Part of the driver that is installed (compute, full)"""
    minimum: str | None
    """Lowest version that the cards and frameworks accept"""
    headers: str | None
    """Package of the kernel headers"""
    runfile: Runfile | None
    """NVIDIA's installer, where the source is runfile"""
    fabric: DriverFabric
    """What an NVSwitch fabric needs beside the driver"""
    peermem: bool
    """Whether nvidia-peermem is loaded at boot"""
    stays: KeptDriver | None
    """Driver that works and is kept instead of this one"""
    module_of_next: PrecompiledModule
    """Precompiled module of the next kernel"""
    displaces: str | None
    """Version of the driver that it takes the place of"""
    replaces: dict[str, str]
    """Packages of another source that give way, with their versions"""


class _DriverState(TypedDict):
    """Driver that worked, with what brings it back: keys that are always there."""

    version: str
    """Driver version"""
    modules: ModuleKind | None
    """Kind of kernel modules"""
    source: StackSource | None
    """Where the driver came from"""
    packages: dict[str, str]
    """Packages of the driver, with their versions"""
    holds: list[str]
    """Packages that were held"""
    stack: DriverStack
    """The driver's part of the stack; empty where gpuwright did not install it"""
    kernel: str | None
    """Release of the running kernel"""
    proven: bool
    """Whether the driver was proven"""
    time: str
    """When the state was recorded"""


class DriverState(_DriverState, total=False):
    """Driver that worked, with what brings it back."""

    manager: PackageManager | None
    """Package manager"""
    arch: str | None
    """Architecture, as the package manager names it"""
    streams: dict[str, str]
    """Module streams of dnf that were enabled"""
    failing: list[str]
    """Checks that did not pass before it gave way"""


class _History(TypedDict):
    """What the node keeps to find its way back: keys that are always there."""

    drivers: list[str | None]
    """Versions of the drivers that worked, newest first"""
    failed: list[FailedDriver]
    """Drivers that a run returned from, newest first"""


class History(_History, total=False):
    """What the node keeps to find its way back."""

    original: DriverState | None
    """Driver that was there before gpuwright"""
    proven: str | None
    """Version of the driver that was proven last"""
    failing: dict[str, list[str]]
    """Checks that did not pass before a driver that worked gave way, by its version; none of one that no record tells of"""
    states: list[DriverState]
    """Drivers that worked, newest first"""
    brought: list[str]
    """Packages that calls of gpuwright brought, as the package manager's log says"""
    unproven: list[str]
    """Packages of which nobody can say whether gpuwright brought them; they stay"""
    settings: list[str]
    """Packages that gpuwright brought and whose settings lay there before; these stay"""
    files: list[str]
    """Files that gpuwright wrote and that are there"""
    environments: list[str]
    """Virtual environments that gpuwright made"""
    streams: dict[str, str] | None
    """Module streams of dnf that were enabled before the first run"""
    made: list[str]
    """Directories with data of users that a program made which gpuwright brought"""
    services: list[str]
    """Units that are sealed"""
    components: list[str]
    """Components that are sealed"""
    recorded: bool
    """Whether the record is there of what was brought"""
    copies: list[str]
    """Kept package files"""
