# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the resolver has to know of a machine: from its facts, or from what a person says of one."""

from __future__ import annotations

import difflib
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model import sections
from ..model.errors import BadInput
from ..model.stack import CardName
from ..rules import Row, Rules, gpus, hosts
from ..wish.wish import Wish
from . import os_names

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card as Board
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        DriverImage,
        Facts,
        Firewall,
        Monitoring,
        PackageSource,
        PciGpu,
        Rootless,
    )
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

ASSUMPTIONS = ("secure_boot", "kernel", "desktop", "python", "wsl", "nvswitch", "glibc", "windows_driver")
#: Cards as people write several: "A100, T4" and "A100 + T4"; "8xH100", "4 x A100 80GB" and "4090x2" are of one kind, whose number
#: decides nothing here.
_SEVERAL = lazy(r"\s*[,+]\s*")
_COUNT = lazy(r"^\s*\d{1,3}\s*[x×*]\s*|(?:(?<=\d)|\s+)[x×*]\s*\d{1,2}\s*$", re.IGNORECASE)
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64", "sbsa": "aarch64"}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Said(TypedDict, total=False):
    """What --assume says, by the names of ASSUMPTIONS."""

    secure_boot: bool
    kernel: str
    desktop: bool
    python: str
    wsl: bool
    nvswitch: bool
    glibc: str
    windows_driver: str


@dataclass(frozen=True)
class Card:
    """A GPU. What is not known is None: a card that no rule names has a name made of its PCI id.

    first_driver is the first build that names it, absent are later branches that do not. arch is that of the processor on its board.
    """

    name: str
    architecture: str | None
    compute_capability: str | None
    kind: str | None = None
    pci: str | None = None
    bus_id: str | None = None
    open_only: bool = False
    first_driver: str | None = None
    arch: str | None = None
    absent: tuple[str, ...] = ()
    known: bool = True
    confirmed: bool = True

    def as_dict(self) -> CardName:
        """Return what an answer says of a card."""
        return {"name": self.name, "architecture": self.architecture, "compute_capability": self.compute_capability}


@dataclass(frozen=True)
class InstalledDriver:
    """The driver that works on the machine now."""

    version: str
    source: str | None
    owner: str
    modules: str | None
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Containerd:
    """containerd as it is there. active: whether its service runs; cri: whether its part that serves Kubernetes is on."""

    version: str | None = None
    active: bool = False
    cri: bool = True


@dataclass(frozen=True)
class Machine:
    """A machine as far as it decides anything. today decides on ends of life.

    environment is bare, vm, container, wsl or jetson. pythons are versions such as "3.12", the system's first; None
    where nobody looked. cuda_reported is the CUDA version that a driver of another owner reports (WSL, containers).
    signing_key is the state of the key with which DKMS signs: enrolled, pending, not-enrolled, absent; None where nobody looked.
    uuids are those of the cards by bus id, as far as a driver told them; boards is all that nvidia-smi says of each.
    driver is the one that works, driver_owner and driver_source tell whose packages are there, working or not.
    kept is the driver part of the stack that is in force (the seal, or the plan that was just applied); moves says that an upgrade
    may leave it where its branch has ended.
    beside are cards that nobody manages and whose screen a driver holds that NVIDIA's takes away, screens the places of cards with one.
    indices are the numbers by which nvidia-smi names the cards, by bus id; a card that is left alone has one too.
    absent are things such as "driver=580" or "cuda=13.0" that the machine's package index turned out not to have, each
    with the versions that it has instead. kernels are the installed ones, and the one that boots next.
    image tells who looks after the driver where the machine is of an image that brings one (owner, evidence).
    release is the version with all its numbers, where os has only the first (rocky-9).
    rootless is what containers of users without root need; None where nobody looked.
    module_directories are where the installed module systems look for a site's own modulefiles; None where nobody looked.
    monitoring is what is where exporters are wished, firewall what may be opened on wish,
    running are the services that run; None where nobody looked. sealed is what is in force of the stack, by component.
    user is who works without root on what is the user's own: the driver, and all that is the machine's, are root's there.
    strangers are packages of a component that somebody else set up, by component.
    derived is the row of the derivative that the machine runs; os is then the system that it follows, where there is one.
    """

    cards: tuple[Card, ...]
    os: str
    arch: str
    today: date
    environment: str = "bare"
    secure_boot: bool | None = None
    signing_key: str | None = None
    kernel: str | None = None
    screen: bool = False
    nvswitch: bool = False
    nvlink5: bool = False
    uuids: Mapping[str, str] = field(default_factory=dict)
    boards: Mapping[str, Board] = field(default_factory=dict)
    glibc: str | None = None
    pythons: tuple[str, ...] | None = None
    driver: InstalledDriver | None = None
    driver_owner: str | None = None
    driver_source: str | None = None
    cuda_reported: str | None = None
    kept: DriverStack | None = None
    moves: bool = False
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    installed: Mapping[str, str] | None = None
    docker: str | None = None
    docker_elsewhere: str | None = None
    kubernetes: str | None = None
    containerd: Containerd | None = None
    rootless: Rootless | None = None
    gcc: str | None = None
    package_sources: tuple[PackageSource, ...] | None = None
    assumed: Mapping[str, str | bool] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    beside: tuple[Card, ...] = ()
    losing: tuple[Card, ...] = ()
    screens: tuple[str, ...] = ()
    indices: Mapping[str, int] = field(default_factory=dict)
    foreign: hosts.Foreign = field(default_factory=hosts.Foreign)
    kernels: tuple[str, ...] = ()
    image: DriverImage | None = None
    release: str | None = None
    derived: Row | None = None
    module_directories: tuple[str, ...] | None = None
    monitoring: Monitoring | None = None
    firewall: Firewall | None = None
    running: tuple[str, ...] = ()
    sealed: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    user: str | None = None
    strangers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def brings_own_driver(self) -> bool:
        """Say whether the driver of this machine is somebody else's business: the host's, Windows', JetPack's, a hypervisor's, root's."""
        others = self.environment in ("container", "wsl", "jetson") or self.foreign.vgpu or self.foreign.hypervisor
        return others or self.user is not None

    @property
    def numbered(self) -> list[tuple[int, Card]]:
        """Return the cards, each with the number by which nvidia-smi names it."""
        return [(self.indices.get(card.bus_id or "", number), card) for number, card in enumerate(self.cards)]

    @cached_property
    def kinds(self) -> tuple[tuple[Card, int], ...]:
        """Return the first card of each kind that the driver has to drive, and how many of that kind there are: what is asked of a card is
        asked of each kind once.
        """
        alike: dict[Card, list[Card]] = {}
        for card in (*self.cards, *self.beside):
            alike.setdefault(replace(card, bus_id=None), []).append(card)
        return tuple((several[0], len(several)) for several in alike.values())


# from facts ---------------------------------------------------------------------------------------------


def machine_from_facts(
    facts: Facts,
    wish: Wish,
    rules: Rules,
    *,
    today: date | None = None,
    provision_for: Sequence[str] = (),
    previous: DriverStack | None = None,
    absent: Mapping[str, Sequence[str]] | Iterable[str] = (),
) -> Machine:
    """Take from a node's facts what decides.

    provision_for names cards that are yet to come (or wish.provision_for). previous is the driver part of the
    stack that was just applied; without it the driver's seal answers. absent: see Machine.
    Raises BadInput for a card name in provision_for that the rules do not know; a PCI id they do not know is fine.
    """
    seen = [_card_of_device(device, facts, rules) for device in facts["pci"]["gpus"] or ()]
    kept_cards = [card for card in seen if not _ignored(card, wish.gpus_ignore)]
    screens = _screens(seen, facts)
    losing = [card for card in seen if card not in kept_cards and card.bus_id in _held(facts)]
    expected = [_card_of_name(name, rules) for name in (*provision_for, *wish.provision_for)]
    system = facts["os"]
    kernel, key = facts["kernel"], facts["boot"]["signing_key"]
    os, derived = served(f"{system['id']}-{system['version']}", rules)
    return Machine(
        cards=tuple(kept_cards or expected),
        os=os,
        derived=derived,
        arch=architecture(system["arch"]),
        today=today or date.today(),  # noqa: DTZ011 - ends of life are days, not moments
        environment=_environment(facts),
        secure_boot=facts["boot"]["secure_boot"],
        signing_key=key["state"] if key else None,
        kernel=kernel["next"] or kernel["running"],
        screen=bool(facts["display"]["nvidia_screens"]),
        nvswitch=bool(facts["pci"]["nvswitches"]),
        nvlink5=bool(facts["pci"]["nvlink5"]),
        uuids=_uuids(facts),
        boards={row["pci_bus_id"]: row for row in sections.cards(facts) if row["pci_bus_id"]},
        glibc=system["glibc"],
        pythons=_pythons(facts),
        driver=_installed_driver(facts),
        driver_owner=facts["driver"]["owner"],
        driver_source=facts["driver"]["source"],
        cuda_reported=_cuda_reported(facts),
        kept=previous if previous is not None else _sealed_driver(facts),
        absent=dict(absent) if isinstance(absent, Mapping) else dict.fromkeys(absent, ()),
        installed=facts["packages"]["installed"] or {},
        docker=_docker(facts),
        docker_elsewhere=facts["containers"]["docker"].get("elsewhere"),
        kubernetes=_kubernetes(facts),
        containerd=_containerd(facts),
        rootless=facts["containers"]["rootless"],
        gcc=facts["kernel"]["compiler"]["available"],
        package_sources=tuple(facts["packages"]["sources"] or ()),
        beside=tuple(card for card in losing if card.bus_id in screens),
        losing=tuple(card for card in losing if card.bus_id not in screens),
        screens=screens,
        indices=_indices(seen, facts),
        ignored=tuple(card.bus_id or card.name for card in seen if card not in kept_cards),
        foreign=hosts.from_facts(facts),
        kernels=tuple(dict.fromkeys(filter(None, (*(kernel["installed"] or ()), kernel["next"])))),
        image=facts["driver"].get("image"),
        release=system["version"],
        module_directories=tuple(facts["cuda"]["modulefiles"]["directories"]),
        monitoring=facts.get("monitoring"),
        firewall=facts.get("firewall"),
        running=tuple(sorted(name for name, row in (facts["services"] or {}).items() if row["active"] == "active")),
        sealed=sections.sealed_stacks(facts),
        user=user["name"] if (user := sections.user(facts)) else None,
    )


def served(name: str, rules: Rules) -> tuple[str, Row | None]:
    """Return the system that the rules know a system by, and the row of the derivative that it is, where one is known.

    rocky-9.6 is rocky-9: minor releases of Red Hat's family are one system.
    """
    row = derivative(name, rules)
    if row and row["follows"]:
        return row["follows"], row
    identity, _separator, version = name.rpartition("-")
    major = f"{identity}-{version.split('.', maxsplit=1)[0]}"
    by_major = any(each["os"] == major and each["family"] == "rhel" for each in rules["systems"]["rows"])
    return major if by_major else name, row


def derivative(name: str, rules: Rules) -> Row | None:
    """Return the row of a system that is made from one that is served, such as ol-9.6 or linuxmint-22.1."""
    identity, _separator, version = name.rpartition("-")
    first = version.split(".", maxsplit=1)[0]
    rows: list[Row] = rules["systems"]["derivatives"]
    return next((row for row in rows if row["id"] == identity and row["version"] in (None, first)), None)


def _environment(facts: Facts) -> str:
    """Return the kind of machine; a simulated node is a container that plays bare metal."""
    kind = str(facts["environment"]["kind"])
    return "bare" if kind == "container" and facts.get("simulated") else kind


def _card_of_device(device: PciGpu, facts: Facts, rules: Rules) -> Card:
    bus_id = device["bus_id"]
    row = gpus.by_pci(device["device"], rules)
    if row is None:
        row = _row_of_smi_name(bus_id, facts, rules)
    if row is not None:
        return card_of_row(row, bus_id=bus_id, device=device["device"])
    found = gpus.by_range(device["device"], rules)
    return Card(
        name=f"NVIDIA device {device['device'] or 'without an id'}",
        architecture=found["architecture"] if found else None,
        compute_capability=found["compute_capability"] if found else None,
        pci=device["device"],
        bus_id=bus_id,
        known=False,
        confirmed=False,
    )


def _row_of_smi_name(bus_id: str, facts: Facts, rules: Rules) -> Row | None:
    """Return the row of the name that nvidia-smi gives, where the PCI id tells nothing and a driver runs."""
    name = next((row["name"] for row in sections.cards(facts) if row["pci_bus_id"] == bus_id), None)
    try:
        return gpus.identify(name, rules) if name else None
    except BadInput:
        return None


def card_of_row(row: Row, *, bus_id: str | None = None, device: str | None = None) -> Card:
    """Make a card of a row of the rules."""
    return Card(
        name=row["name"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        kind=row["class"],
        pci=device or (row["pci"][0] if row["pci"] else None),
        bus_id=bus_id,
        open_only=bool(row.get("open_only")),
        first_driver=row.get("first_driver"),
        arch=row.get("arch"),
        absent=tuple(row.get("absent", ())),
        confirmed=row["confirmed"],
    )


def _card_of_name(name: str, rules: Rules) -> Card:
    return card_of_row(gpus.identify(name, rules))


def _indices(seen: Sequence[Card], facts: Facts) -> dict[str, int]:
    """Return the number of each card: its place in what nvidia-smi says, else on the bus, by which nvidia-smi counts."""
    told = {row["pci_bus_id"]: number for number, row in enumerate(sections.cards(facts)) if row["pci_bus_id"]}
    return told or {card.bus_id: number for number, card in enumerate(seen) if card.bus_id}


def _screens(seen: Sequence[Card], facts: Facts) -> tuple[str, ...]:
    """Return the places of the cards that drive a screen. Where nobody could look, each one of the bus may."""
    from ansible_collections.gpuwright.node.plugins.module_utils.observe.display import UNBOUND

    why = facts["unknown"].get("display.nvidia_screens") or ""
    if why and not why.startswith(UNBOUND):
        return tuple(card.bus_id for card in seen if card.bus_id)
    return tuple(facts["display"]["nvidia_screens"])


def _held(facts: Facts) -> list[str]:
    """Return the places of cards whose driver is taken from them: nouveau and nova are blacklisted, another one of NVIDIA is replaced."""
    cards = facts["pci"]["gpus"]
    return [card["bus_id"] for card in cards if (card.get("driver") or "").startswith(("nouveau", "nova", "nvidia"))]


def _ignored(card: Card, ignore: Sequence[str]) -> bool:
    """Say whether a card is left out: by its bus id, by its PCI id, or by its name."""
    names = {card.name.lower(), (card.pci or "").lower(), _short_bus(card.bus_id or "")}
    return any(entry.lower() in names or _short_bus(entry) in names for entry in ignore if entry)


def _short_bus(bus_id: str) -> str:
    """Return a bus id without its domain where that is zero: "00000000:3B:00.0" gives "3b:00.0"."""
    return re.sub(r"^0+:(?=[0-9a-f]{2}:)", "", bus_id.lower())


def _pythons(facts: Facts) -> tuple[str, ...]:
    minors = [".".join(each["version"].split(".")[:2]) for each in facts["python"]["interpreters"] if each["version"]]
    return tuple(dict.fromkeys(minors))


def _installed_driver(facts: Facts) -> InstalledDriver | None:
    """Return the driver that works: the kernel's module runs, or user space is there and its module can be loaded."""
    driver = facts["driver"]
    if driver["owner"] in ("none", None):
        return None
    module = facts["kernel"]["available"].get("nvidia")
    loadable = module if module and module["version"] else None
    version = driver["user_version"] or driver["loaded_version"]
    if version is None or not (driver["loaded_version"] or loadable):
        return None
    if loadable and version not in (driver["loaded_version"], loadable["version"]):
        return None  # its libraries fit neither the module that runs nor the one that the next boot loads
    modules = driver["loaded_modules"] or (_flavour_of_license(loadable["license"]) if loadable else None)
    return InstalledDriver(version, driver["source"], driver["owner"], modules, dict(driver["packages"] or {}))


def _flavour_of_license(text: str | None) -> str | None:
    if not text:
        return None
    return "open" if "GPL" in text else "proprietary"


def _uuids(facts: Facts) -> dict[str, str]:
    return {row["pci_bus_id"]: row["uuid"] for row in sections.cards(facts) if row["pci_bus_id"] and row["uuid"]}


def _cuda_reported(facts: Facts) -> str | None:
    data = sections.smi_data(facts)
    version = data["cuda_version"] if data else None
    return version if version and numeric_version.key(version) else None


def _sealed_driver(facts: Facts) -> DriverStack | None:
    sealed = sections.sealed_driver(facts)
    return sealed if len(sealed) else None


def _kubernetes(facts: Facts) -> str | None:
    found = facts["containers"].get("kubernetes")
    return found["name"] if found else None


def _docker(facts: Facts) -> str | None:
    docker = facts["containers"]["docker"]
    return (docker["version"] or "unknown") if docker["installed"] else None


def _containerd(facts: Facts) -> Containerd | None:
    there = facts["containers"]["containerd"]
    return (
        Containerd(there["version"], bool(there["active"]), there["cri"] is not False) if there["installed"] else None
    )


# from options -------------------------------------------------------------------------------------------


def machine_from_options(
    gpus: Sequence[str],
    os: str | None,
    arch: str | None,
    assume: Mapping[str, object] | Iterable[str] | None,
    rules: Rules,
    *,
    today: date | None = None,
) -> Machine:
    """Describe a machine that nobody looked at: cards by name, "debian-13", and what --assume says.

    What was not said and decides is assumed and named in assumed. Raises BadInput for unknown names.
    """
    said = _assumptions(assume)
    full = os_names.known(os, rules) if os else _this_os()
    name, derived = served(full, rules)
    cards = tuple(_card_of_name(_COUNT.sub("", each), rules) for gpu in gpus for each in _SEVERAL.split(gpu))
    machine = _processor(cards, arch)
    system = next((row for row in rules["systems"]["rows"] if row["os"] == name), None)
    assumed: dict[str, str | bool] = {}
    if not os:
        assumed["os"] = name
    if not arch:
        assumed["arch"] = machine
    secure_boot = _said(said, "secure_boot", False, assumed)
    screen = _said(said, "desktop", False, assumed)
    kernel = said.get("kernel") or (system or {}).get("kernel")
    if "kernel" not in said and kernel:
        assumed["kernel"] = kernel
    python = said.get("python") or (system or {}).get("python")
    if "python" not in said and python:
        assumed["python"] = python
    if "nvswitch" not in said and _switched(cards, rules):
        assumed["nvswitch"] = True
    nvswitch = bool(said.get("nvswitch", assumed.get("nvswitch")))
    windows = said.get("windows_driver")
    return Machine(
        cards=cards,
        os=name,
        derived=derived,
        arch=machine,
        today=today or date.today(),  # noqa: DTZ011 - ends of life are days, not moments
        environment="wsl"
        if said.get("wsl") or windows or os_names.is_in_wsl(os or "")
        else "jetson"
        if _all_embedded(cards)
        else "bare",
        secure_boot=secure_boot,
        kernel=kernel,
        screen=screen,
        nvswitch=nvswitch,
        nvlink5=nvswitch and any((card.architecture or "").startswith("Blackwell") for card in cards),
        glibc=said.get("glibc") or (system or {}).get("glibc"),
        pythons=tuple(str(python).split(",")) if python else None,
        assumed=assumed,
        foreign=hosts.Foreign(windows_driver=windows),
        release=full.rpartition("-")[2],
    )


def _processor(cards: Sequence[Card], said: str | None) -> str:
    """Return the architecture of a machine: what is said, else that of a card that is on one board with its processor, else this machine's.

    Raises BadInput where a card is on a board with another one.
    """
    on_board = next((card for card in cards if card.arch), None)
    found = architecture(said or (on_board.arch if on_board else platform.machine()))
    if on_board and found != on_board.arch:
        text = f"the {on_board.name} is on one board with a processor of {on_board.arch}: there is none with {found}"
        raise BadInput(text, [f"--arch {on_board.arch}", "leave --arch out"])
    return found


def architecture(text: str | None) -> str:
    """Return x86_64 or aarch64 for the names that are in use. Raises BadInput for another one, and for none."""
    if not text:
        raise BadInput("the machine does not tell its processor architecture", ["x86_64", "aarch64"])
    try:
        return _ARCHITECTURES[text.lower()]
    except KeyError:
        raise BadInput(f"unknown architecture {text!r}", ["x86_64", "aarch64"]) from None


def _switched(cards: Sequence[Card], rules: Rules) -> bool:
    """Say whether so many cards are a board whose cards NVSwitches join: eight in a form such as SXM."""
    for board in rules["gpus"]["boards"]:
        of_board = [card for card in cards if card.architecture == board["architecture"] and board["form"] in card.name]
        if board["nvswitch"] and len(of_board) >= board["cards"]:
            return True
    return False


def _all_embedded(cards: Sequence[Card]) -> bool:
    return bool(cards) and all(card.name.startswith("Jetson") for card in cards)


def _this_os() -> str:
    """Return the system of the machine this runs on, as "debian-13"; "unknown" where it does not say."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return "-".join(values.get(key, "unknown").strip('"') for key in ("ID", "VERSION_ID"))


def _said(said: Mapping[str, object], key: str, default: bool, assumed: dict[str, str | bool]) -> bool:
    if key not in said:
        assumed[key] = default
    return bool(said.get(key, default))


def _assumptions(assume: Mapping[str, object] | Iterable[str] | None) -> Said:
    pairs: list[tuple[str, object]]
    if assume is None:
        pairs = []
    elif isinstance(assume, Mapping):
        pairs = list(assume.items())
    else:
        pairs = [_pair(text) for text in assume]
    return cast("Said", {key: _assumption(key, value) for key, value in pairs})


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not value:
        raise BadInput(f"cannot read the assumption {text!r}: write KEY=VALUE", [f"{key or 'kernel'}=VALUE"])
    return key.strip(), value.strip()


def _examples(key: str) -> list[str]:
    return {"kernel": ["kernel=6.8"], "windows_driver": ["windows_driver=582.53"]}.get(key, [])


def _assumption(key: str, value: object) -> str | bool:
    if key not in ASSUMPTIONS:
        near = difflib.get_close_matches(key, ASSUMPTIONS, n=3, cutoff=0.4) or list(ASSUMPTIONS)
        raise BadInput(f"nothing depends on the assumption {key!r}", near)
    if key in ("kernel", "glibc", "python", "windows_driver"):
        if not numeric_version.key(str(value)):
            raise BadInput(f"{key}={value}: expected a version", _examples(key))
        return str(value)
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise BadInput(f"{key}={value}: expected true or false", [f"{key}=true", f"{key}=false"])
    return text in _TRUE
