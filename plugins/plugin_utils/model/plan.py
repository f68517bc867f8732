# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a host, as it is in the run directory and as roles read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageExchange, PackageInstall
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState

    from .stack import CardName, Refusal, Stack, Why


class ChangedPackage(TypedDict):
    """Package or wheel that a change installs. ``version`` is None where no index said that it is there."""

    name: str
    version: str | None
    download_bytes: int | None


Change = TypedDict(
    "Change",
    {
        "component": str,
        "action": str,
        "from": str | None,
        "to": str | None,
        "reason": str,
        "packages": list[ChangedPackage],
        "wheels": list[ChangedPackage],
        "files": list[str],
        "services": list[str],
        "leaves": list[str],
    },
)
"""Change of a component."""

Taken = TypedDict(
    "Taken",
    {
        "name": str,
        "does": Literal["remove", "downgrade", "change-held"],
        "from": str,
        "to": str | None,
        "because": Literal["ours", "allowed"] | None,
    },
)
"""Package that a transaction removes, takes to an older version, or changes though it is on hold. ``because``: why that may be."""

Expected = TypedDict(
    "Expected", {"count": int | None, "names": list[str] | None, "from": str | None, "pcie_lanes": dict[str, int]}
)
"""Expected cards, and who expects them."""


class Expectations(Expected):  # pylint: disable=inherit-non-class
    """What an observation is judged against."""

    ignore: list[str]
    proof_max_age: int
    """Seconds"""
    gpus: NotRequired[bool]
    """False: cards are not looked for"""


class FactsSummary(TypedDict):
    """The facts that a report shows of a host."""

    os: str | None
    kernel: str | None
    kernel_next: str | None
    boot_id: str | None
    environment: str
    driver: str | None
    simulated: bool


class Managed(TypedDict):
    """What a seal records."""

    files: list[str]
    light_files: list[str]
    packages: list[str]
    services: list[str]
    environments: list[str]


class Mark(TypedDict):
    """Mark in a seal's place while a component is changed."""

    stack: object
    gpus: list[str]
    manages: Managed


class Brings(TypedDict):
    """Driver that a plan leads to."""

    version: str | None
    modules: str
    source: str
    kernel: str | None


class GaveWay(Brings):
    """Driver that a run returns from."""

    reason: str
    time: str


class FailedProgram(TypedDict):
    """Program that failed, and what it said."""

    name: str
    said: str


class StoppedBy(TypedDict):
    """What stopped a run whose driver gives way."""

    task: str
    message: str
    program: FailedProgram | None


class Restore(TypedDict):
    """Work of a return to a remembered driver."""

    version: str
    source: str | None
    packages: dict[str, str]
    files: dict[str, str]
    install: list[str]
    remove: list[str]
    hold: list[str]
    unhold: list[str]
    streams: dict[str, str]


class WholeCard(TypedDict):
    """Card that is made whole again."""

    bus_id: str
    profiles: list[str]


class CardSettings(Settings):
    """Settings of the card at a place, as the program on the node reads them."""

    bus_id: str


class ToolkitRemoval(TypedDict):
    """Toolkit of NVIDIA's file that goes."""

    path: str
    record: str
    uninstall: list[str]
    """Its own uninstaller; nothing where there is none"""
    staging: str
    """Where a cut left what its installer had made"""
    registered: bool
    """Whether the alternatives system knows it"""


class ArchiveRemoval(TypedDict):
    """A library of an archive that is taken out of a toolkit."""

    path: str
    directory: str
    take_out: list[list[str]]
    """Commands that take it away"""
    records: list[str]


class GivenBack(TypedDict):
    """A file of the host's that is given back as it was: what matches ``patterns`` is taken out of it, on the node, since it may hold
    passwords that do not leave it. ``absent``: files beside it that go. ``unit`` reads what is left, where that is to be and a restart
    ends nothing.
    """

    path: str
    patterns: list[str]
    absent: list[str]
    unit: str
    restart: bool


class GivenRange(TypedDict):
    """A range of subordinate ids that a user was given: the line, in the file of that path (subuid(5))."""

    path: str
    line: str


class Removes(TypedDict, total=False):
    """What single components say of the work of the role `remove`."""

    mig: list[WholeCard]
    docker: bool
    containerd: GivenBack | None
    rootless: list[GivenRange]
    """The ranges of subordinate ids that users were given"""
    initramfs: bool
    gpu_settings: list[CardSettings]
    python: str
    """What our programs run on"""
    cuda_default: list[str]
    """Command that leads /usr/local/cuda where it led before"""
    cuda_toolkits: list[ToolkitRemoval]
    cuda_archives: list[ArchiveRemoval]
    monitoring_firewall: list[list[str]]
    """Commands that take the rules for exporters back"""
    fabric_firewall: list[list[str]]
    """Commands that take the rules for the fabric back"""


class Removal(Removes):
    """Work of the role `remove`. ``kept``: packages that came with gpuwright, or that it moved, and that stay."""

    packages: list[str]
    kept: list[str]
    runfile: bool
    files: list[str]
    environments: list[str]
    services: list[str]
    streams: dict[str, str]
    restore: Restore | None


class DriverVersions(TypedDict):
    """Driver versions that a status shows."""

    kernel: str | None
    user: str | None
    next: str | None
    next_kernel: str | None
    wanted: str | None


class ProofAge(TypedDict):
    """Last proof, and its age (seconds)."""

    verdict: str
    time: str
    age_seconds: int | None


class Status(TypedDict):
    """What `status` shows of a host."""

    state: str
    versions: DriverVersions
    held: bool | None
    drift: list[str]
    unknown: dict[str, str]
    faults: list[str]
    cards: list[str]
    proof: ProofAge | None


class Plan(TypedDict):
    """Plan of a host."""

    schema: int
    host: str
    ok: bool
    error: str | None
    suggestions: list[str]
    conflicts: list[Refusal]
    refusals: list[Refusal]
    skipped: str | None
    changes: list[Change]
    components: list[str]
    reboot: bool
    reboot_reason: str | None
    rescue: list[str]
    download_bytes: int
    disk_bytes: int
    install: list[PackageInstall]
    takes: list[Taken]
    may_take: list[str]
    """Names of the packages that a transaction of the run may take so: those of our own set, and those that were allowed by name"""
    rebuild: list[str]
    builds: dict[str, list[str]]
    """Distributions that are built from their source because a person asked for it, by environment"""
    prefer: str | None
    left_out: list[str]
    enabled: list[str]
    from_controller: str | None
    versions_verified: bool
    stack: Stack
    warnings: list[Why]
    why: list[Why]
    assumed: dict[str, str | bool]
    gpus: list[CardName]
    expected_gpus: Expected
    provision_only: bool
    cards_missing: bool
    cpu_only: bool
    digests: dict[str, str]
    begin: dict[str, Mark]
    remember: DriverState | None
    way_back: bool
    failing: list[str] | None
    """Checks that did not pass before the driver changed; None where nobody knows"""
    restore: Restore | None
    exchange: PackageExchange | None
    brings: Brings | None
    gave_way: GaveWay | None
    remove: Removal | None
    boots: bool
    """Whether this run boots the machine where that is needed; else its user does"""
    allow_busy: bool
    """Whether leave was given to end what runs"""
    package_manager: str | None
    package_family: str | None
    work: Mapping[str, object]
    """What each part of the run does first, by its name: the answer of its step `begin`"""
    manages: dict[str, Managed]
    packages: dict[str, str]
    checks: list[Check]
    verdict: str
    why_not: str | None
    stack_digest: str | None
    facts_summary: FactsSummary
    cards: list[Card]
    absent: NotRequired[dict[str, list[str]]]
    given: NotRequired[object]
    """What a role adds for the step that it asks for; each step has a type of its own for it"""
    owner: NotRequired[str]
    takes_over: NotRequired[str | None]
    status: NotRequired[Status]
    warnings_as_before: NotRequired[int]
    """Warnings that the last run had too, and that are not shown again"""
