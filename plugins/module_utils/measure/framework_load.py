# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load the cards through PyTorch in its own environment, and read what that measured.

A card, or an instance of MIG, is loaded by a process that sees nothing else; pairs of cards by one that sees all of them; collectives and
training with several cards by one process for each. The programs are in framework_load_programs.py. Each ends at its limit, with its
children.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import tempfile
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypedDict,
    Union,
    cast,
)

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework, smi_judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_programs import PROGRAMS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, SmiData

#: What is measured on each card by itself, on pairs of cards, and on all of them together.
OF_A_CARD: Tuple[str, ...] = ("tflops", "bandwidth", "host_device", "train")
OF_PAIRS: Tuple[str, ...] = ("peer",)
OF_ALL: Tuple[str, ...] = ("collectives", "ddp")
WHAT = OF_A_CARD + OF_PAIRS + OF_ALL

#: Training ends after so many steps where the time is not over before.
STEPS = 200
#: Processes of training on the processor, where there are no cards.
RANKS_OF_PROCESSOR = 2

# A mode of NVIDIA's libraries that computes FP32 as TF32 whatever the program asks for, and what belongs to a program that runs now.
_WITHOUT = ("NVIDIA_TF32_OVERRIDE", "GPUWRIGHT_RANK", "MASTER_", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_")
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"}
# The ranks are on one node: they find each other by the loopback device, whatever the host's name leads to.
_ENVIRONMENT = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
# What ranks on cards open: the cards, the adapters for RDMA, and the channel between the nodes of one NVLink domain. All users of a host
# may, where nobody closed them.
_DEVICES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-caps-imex-channels/channel0",
    "/dev/infiniband/uverbs*",
)
#: Seconds beside those of measuring that a process needs at the end of each part, at the most.
_AFTER = 15

_LISTED_CARD = re.compile(r"^GPU \d{1,3}: .{0,200}\(UUID: (GPU-[0-9a-f-]{1,60})\)", re.ASCII)
_LISTED_INSTANCE = re.compile(
    r"^\s{1,8}MIG (\S{1,40})\s{1,8}Device\s{1,8}\d{1,3}: \(UUID: (MIG-[0-9A-Za-z/-]{1,80})\)", re.ASCII
)
_MOST_DEVICES = 128
_MOST_NODES = 64
_CPUS = re.compile(r"^\d{1,5}(?:-\d{1,5})?$", re.ASCII)


class Runner(Protocol):
    """What runs a program: base.run.run, or a test's own."""

    def __call__(self, argv: Sequence[str], timeout: float, env: Optional[Mapping[str, str]] = None) -> run.Result:
        """The program, its limit in seconds, and the variables that are added."""


class Node(TypedDict):
    """A NUMA node, as the program is told of it."""

    node: Optional[int]
    cpus: List[int]
    local: bool


class Device(NamedTuple):
    """What is loaded by itself: a card, an instance of MIG, or the processor.

    Attributes:
        key: its UUID, by which CUDA shows it alone; "" for the processor.
        gpu: its name in checks; None for the processor.
        bus_id: that of the card.
        kind: card, instance or processor.
        name: of the product, or the profile of the instance.
        number: its index in nvidia-smi.
    """

    key: str
    gpu: Optional[str]
    bus_id: Optional[str]
    kind: str
    name: str
    number: Optional[int] = None


PROCESSOR = Device("", None, None, "processor", "processor")


class Step(TypedDict, total=False):
    """What a program says of one step (``step``: a key of :data:`_FACTS`); times in seconds, sizes in bytes."""

    step: str
    closed: str
    version: str
    cuda: Optional[str]
    name: str
    count: int
    part: str
    error: str
    precision: str
    size: int
    seconds: float
    repeats: int
    deviation: Union[float, str]
    kind: str
    bytes: int
    right: bool
    node: Optional[int]
    local: bool
    to_device: float
    from_device: float
    both: float
    first: Union[int, float, str]
    second: int
    direct: bool
    ranks: int
    backend: str
    how: str
    nccl: Optional[List[int]]
    rank: int
    status: int
    steps: int
    waiting: float
    operations: float
    rows: int
    workers: int
    finite: bool
    last: Union[float, str]
    drift: Union[float, str]


# The facts that are read of each step, and their kinds: `time` is a finite number above 0, `share` one of 0 to 1, `size` a whole one above
# 0, `index` one from 0 on.
_FACTS: Dict[str, Dict[str, str]] = {
    "user": {"closed": "text"},
    "start": {},
    "import": {"version": "text"},
    "device": {"name": "text", "count": "index"},
    "begin": {"part": "text"},
    "done": {"part": "text"},
    "broken": {"part": "text", "error": "text"},
    "end": {},
    "tflops": {"precision": "text", "size": "size", "seconds": "time", "repeats": "size"},
    "bandwidth": {"kind": "text", "bytes": "size", "seconds": "time", "repeats": "size", "right": "flag"},
    "host_device": {
        "local": "flag",
        "bytes": "size",
        "to_device": "time",
        "from_device": "time",
        "both": "time",
        "right": "flag",
    },
    "peer": {
        "first": "index",
        "second": "index",
        "bytes": "size",
        "seconds": "time",
        "right": "flag",
        "direct": "flag",
    },
    "reach": {"how": "text", "error": "text"},
    "group": {"ranks": "size", "backend": "text"},
    "collective": {"kind": "text", "bytes": "size", "seconds": "time", "repeats": "size", "right": "flag"},
    "training": {
        "ranks": "size",
        "steps": "size",
        "seconds": "time",
        "waiting": "share",
        "operations": "time",
        "rows": "size",
        "workers": "index",
        "precision": "text",
        "finite": "flag",
    },
    "rank": {"rank": "index", "status": "whole"},
}
# What stands in place of the facts where a step could not be measured.
_WITH_ERROR: Dict[str, Dict[str, str]] = {
    "import": {},
    "device": {},
    "tflops": {"precision": "text"},
    "host_device": {"local": "flag"},
    "peer": {"first": "index", "second": "index"},
}
#: Beyond it (in seconds, bytes or operations) a number is none that can have been measured.
_MOST = 1e18
#: No clock of these tells less (seconds).
_LEAST = 1e-9


def number(value: object) -> Optional[float]:
    """A finite number as a program told it; None for what is none, a flag included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MOST:
        return None
    return float(value)


def _is(kind: str, value: object) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "flag":
        return isinstance(value, bool)
    found = number(value)
    if found is None:
        return False
    if kind == "time":
        return found >= _LEAST
    if kind == "share":
        return 0 <= found <= 1
    return isinstance(value, int) and (kind == "whole" or value >= (1 if kind == "size" else 0))


def steps_of(text: str) -> List[Step]:
    """The steps that were told, in their order; one that is cut off, lacks a fact or has one that cannot be, was not told."""
    return [cast("Step", step) for step in framework.told_in(text) if _whole(step)]


def _whole(step: Mapping[str, object]) -> bool:
    name = step.get("step")
    if not isinstance(name, str) or name not in _FACTS:
        return False
    facts = _WITH_ERROR[name] if name in _WITH_ERROR and isinstance(step.get("error"), str) else _FACTS[name]
    return all(_is(kind, step.get(key)) for key, kind in facts.items())


# --- what there is ----------------------------------------------------------------------------------------------------


def instances_of(text: str) -> Dict[str, List[Tuple[str, str]]]:
    """(profile, UUID) of each instance of MIG by the UUID of its card, as ``nvidia-smi -L`` lists them."""
    found: Dict[str, List[Tuple[str, str]]] = {}
    instances: Optional[List[Tuple[str, str]]] = None
    for line in text.splitlines():
        card = _LISTED_CARD.match(line)
        if card:
            instances = found.setdefault(card.group(1), [])
        instance = _LISTED_INSTANCE.match(line)
        if instance and instances is not None:
            instances.append((instance.group(1), instance.group(2)))
    return found


def choose(data: SmiData, listed: str, cards: Sequence[str], busy: bool) -> Tuple[List[Device], List[Check]]:
    """The devices to load, and a check for each card that is left alone, with the reason.

    Args:
        data: what ``nvidia-smi -q -x`` says.
        listed: what ``nvidia-smi -L`` says.
        cards: indices, UUIDs or bus ids of those that are wished; all of them where there is none.
        busy: whether cards that compute are loaded all the same.
    """
    devices: List[Device] = []
    found: List[Check] = []
    instances = instances_of(listed)
    wished = {str(each).lower() for each in cards}
    missing = set(wished)
    for card in data["gpus"]:
        names = {str(card["index"]), str(card.get("uuid")).lower(), str(card["pci_bus_id"]).lower()}
        if wished and not wished & names:
            continue
        missing -= names
        refused = _refused(card, busy)
        mine = _of_card(card, instances)
        if refused is None and not mine and str(card["uuid"]) not in instances:
            reason = "MIG is on, and nvidia-smi -L does not list the card: it is not known what can compute on it"
            refused = checks.incomplete(
                "load.runs", reason, gpu=smi_judge.label(card), remedy="run nvidia-smi -L by hand"
            )
        if refused is None and not mine:
            refused = checks.skipped(
                "load.runs",
                "MIG is on and the card has no instance: nothing can compute on it",
                gpu=smi_judge.label(card),
            )
        found += [refused] if refused else []
        devices += [] if refused else mine
    found += [
        checks.incomplete("load.runs", f"there is no card {each} to load", remedy="compare with nvidia-smi -L")
        for each in sorted(missing)
    ]
    return devices[:_MOST_DEVICES], found


def _of_card(card: Card, instances: Mapping[str, List[Tuple[str, str]]]) -> List[Device]:
    label, uuid = smi_judge.label(card), str(card["uuid"])
    if not card["mig"]["current"]:
        return [Device(uuid, label, card["pci_bus_id"], "card", card["name"] or "", card["index"])]
    return [
        Device(key, f"{label} {profile} {number}", card["pci_bus_id"], "instance", profile, card["index"])
        for number, (profile, key) in enumerate(instances.get(uuid, []))
    ]


def _refused(card: Card, busy: bool) -> Optional[Check]:
    """Why a card is not loaded; None where it may be."""
    label = smi_judge.label(card)
    if not card.get("uuid"):
        return checks.incomplete(
            "load.runs", "nvidia-smi does not tell the card's UUID", gpu=label, remedy="see gpu.readable"
        )
    if card["compute_mode"] == "Prohibited":
        return checks.incomplete(
            "load.runs",
            "the compute mode of the card prohibits computing",
            gpu=label,
            action="configure",
            remedy="'nvidia-smi -i {} -c 0'".format(card["index"]),
        )
    computing = smi_judge.computing(card)
    if not computing or busy:
        return None
    names = ", ".join("{} (pid {})".format(process["name"] or "unnamed", process["pid"]) for process in computing[:10])
    return checks.incomplete(
        "load.runs",
        "the card computes for somebody: it is not loaded",
        gpu=label,
        measured=len(computing),
        expected=0,
        unit="computing processes",
        evidence=names,
        action="restart_app",
        remedy="end the processes, or wait for them; the option 'busy' loads it all the same",
    )


def cpus_of(text: Optional[str]) -> List[int]:
    """The processors of a list of the kernel (``0-3,8``); none where it is no such list.

    The kernel writes it in ascending order, so that a part which goes back is none of its own and is left out: however long
    a text is, it names each processor once at most.
    """
    found: List[int] = []
    for part in (text or "").strip().split(","):
        if not _CPUS.match(part):
            continue
        first, _dash, last = part.partition("-")
        if not found or int(first) > found[-1]:
            found += range(int(first), int(last or first) + 1)
    return found


def nodes_of(host: Host, bus_id: Optional[str]) -> List[Node]:
    """The NUMA nodes that have processors, the card's own first; one without a number where the kernel knows none.

    https://docs.kernel.org/admin-guide/cputopology.html (cpulist), Documentation/ABI/testing/sysfs-bus-pci (local_cpulist, numa_node).
    """
    place = f"/sys/bus/pci/devices/{(bus_id or '')[4:].lower()}"
    own = host.line(place + "/numa_node")
    found: List[Node] = []
    for path in list(host.glob("/sys/devices/system/node/node[0-9]*"))[:_MOST_NODES]:
        digits, cpus = path.rpartition("node")[2], cpus_of(host.line(path + "/cpulist"))
        if digits.isdigit() and cpus:
            found.append({"node": int(digits), "cpus": cpus, "local": digits == own})
    found.sort(key=lambda node: not node["local"])
    if found and any(node["local"] for node in found):
        return found
    # The kernel knows no node of the card (-1): any processor is as near as another one.
    cpus = cpus_of(host.line(place + "/local_cpulist")) or sorted(os.sched_getaffinity(0))
    return [{"node": None, "cpus": cpus, "local": True}]


# --- measuring --------------------------------------------------------------------------------------------------------


class Wish(NamedTuple):
    """How it is measured: the interpreter, the parts, the seconds for each, and those that a process may take until it begins."""

    python: str
    what: Sequence[str]
    seconds: int
    startup: int


def parts_for(wish: Wish, parts: Sequence[str]) -> List[str]:
    """Those of ``parts`` that are wished."""
    return [part for part in parts if part in wish.what]


def ask_card(wish: Wish, device: Device, nodes: Sequence[Node], runner: Runner = run.run) -> run.Result:
    """Run what is measured of one device."""
    on_card = device.kind != "processor"
    parts = [part for part in parts_for(wish, OF_A_CARD) if on_card or part != "host_device"]
    settings = {**settings_for(wish, [device] if on_card else [], parts), "nodes": list(nodes)}
    return _ask("card", wish, settings, parts, runner)


def ask_pairs(wish: Wish, devices: Sequence[Device], runner: Runner = run.run) -> run.Result:
    """Run what is measured of the pairs of whole cards."""
    parts = parts_for(wish, OF_PAIRS)
    return _ask("peers", wish, settings_for(wish, devices, parts), parts, runner)


def ask_all(wish: Wish, devices: Sequence[Device], runner: Runner = run.run) -> run.Result:
    """Run what is measured of whole cards together, or of processes on the processor: a rank for each."""
    parts = parts_for(wish, OF_ALL)
    with scratch() as place:
        settings = {
            **settings_for(wish, devices, parts),
            "ranks": len(devices) or RANKS_OF_PROCESSOR,
            "init_method": "file://" + os.path.join(place, "store"),
            "patience": wish.startup + wish.seconds,
        }
        return run_ranks(wish.python, settings, limit(wish, len(parts)), {**_ENVIRONMENT, **at_home(place)}, runner)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A directory that the ranks alone read and write, gone in the end."""
    # Whatever TMPDIR of root's says: that may be a directory that only root enters.
    place = tempfile.mkdtemp(prefix="gpuwright-ranks-", dir="/tmp" if _is_root() else None)  # noqa: S108
    try:
        if _is_root():
            os.chown(place, framework.NOBODY, framework.NOBODY)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def at_home(place: str) -> Dict[str, str]:
    """The variables of ranks whose directory is ``place``."""
    return {"HOME": place, "TMPDIR": place}


def _is_root() -> bool:
    return os.geteuid() == 0


def settings_for(wish: Wish, devices: Sequence[Device], parts: Sequence[str]) -> Dict[str, object]:
    """What every program is told; without devices it computes on the processor."""
    cpus = len(os.sched_getaffinity(0)) // max(len(devices), 1)
    return {
        "card": bool(devices),
        "devices": ",".join(device.key for device in devices),
        "parts": list(parts),
        "seconds": wish.seconds,
        "steps": STEPS,
        "workers": max(min(cpus // 2, 8), 1),
    }


def _ask(place: str, wish: Wish, settings: Mapping[str, object], parts: Sequence[str], runner: Runner) -> run.Result:
    return run_program(place, wish.python, settings, limit(wish, len(parts)), _ENVIRONMENT, runner)


def run_program(
    place: str,
    python: str,
    settings: Mapping[str, object],
    seconds: float,
    environment: Mapping[str, str],
    runner: Runner,
) -> run.Result:
    """Run a program in the environment, isolated (-I) and leaving no compiled files there (-B); it ends with this process too."""
    return runner(run.bound(_words(place, python, settings), _WITHOUT), timeout=seconds, env=environment)


def run_ranks(
    python: str, settings: Mapping[str, object], seconds: float, environment: Mapping[str, str], runner: Runner
) -> run.Result:
    """Run ranks, as :func:`run_program` would. Those of root's are an ordinary user's: NCCL and gloo listen, and ask nobody who he is."""
    words = _words("ranks", python, settings)
    devices = _DEVICES if settings["card"] else ()
    bound = framework.as_a_user(words, devices, _WITHOUT) if _is_root() else run.bound(words, _WITHOUT)
    return runner(bound, timeout=seconds, env=environment)


def _words(place: str, python: str, settings: Mapping[str, object]) -> List[str]:
    return [python, "-I", "-B", "-c", PROGRAMS[place], json.dumps(settings)]


def limit(wish: Wish, parts: int) -> float:
    """Seconds after which a program is ended that measures so many parts: twice what they were given, since a repeat is not cut off."""
    return wish.startup + parts * (2 * wish.seconds + _AFTER)


# --- figures ----------------------------------------------------------------------------------------------------------

#: What part of a collective's data each rank sends, by nccl-tests (doc/PERFORMANCE.md, "Summary"), for n ranks.
_BUS: Dict[str, Callable[[int], float]] = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n}
GIGA = 1e9


def tflops(step: Step) -> float:
    """10^12 operations a second of a product of square matrices, 2 n^3 operations each."""
    return float(2 * step["size"] ** 3 / step["seconds"] / 1e12)


def rate(size: float, seconds: float) -> float:
    """GB/s (10^9 bytes)."""
    return size / seconds / GIGA


def bus_bandwidth(kind: str, size: int, seconds: float, ranks: int) -> Tuple[float, float]:
    """(algbw, busbw) of a collective in GB/s, as nccl-tests count them. For all_gather the size is that of what all ranks gave together.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    algorithm = rate(size, seconds)
    return algorithm, algorithm * _BUS[kind](ranks)


def rounded(value: float) -> float:
    """Four digits that count: what is beyond differs from one measurement to the next."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0


def figures_of(device: Device, steps: Sequence[Step]) -> Dict[str, object]:
    """What was measured of one device, for people and reports."""
    whole = [step for step in steps if "error" not in step]
    training = next((step for step in whole if step["step"] == "training"), None)
    return {
        "device": device.key or "cpu",
        "gpu": device.gpu,
        "kind": device.kind,
        "name": device.name,
        "bus_id": device.bus_id,
        "tflops": {step["precision"]: rounded(tflops(step)) for step in whole if step["step"] == "tflops"},
        "bandwidth_gbs": {
            step["kind"]: rounded(rate(step["bytes"], step["seconds"])) for step in whole if step["step"] == "bandwidth"
        },
        "host_device": [
            {
                "node": step.get("node"),
                "local": step["local"],
                "to_device_gbs": rounded(rate(step["bytes"], step["to_device"])),
                "from_device_gbs": rounded(rate(step["bytes"], step["from_device"])),
                "both_gbs": rounded(rate(2 * step["bytes"], step["both"])),
            }
            for step in whole
            if step["step"] == "host_device"
        ],
        "training": training_of(training) if training else None,
    }


def training_of(step: Step) -> Dict[str, object]:
    """What was measured of training, for people and reports."""
    return {
        "ranks": step["ranks"],
        "steps": step["steps"],
        "step_seconds": rounded(step["seconds"]),
        "tflops": rounded(step["operations"] / step["seconds"] / 1e12),
        "waiting_share": rounded(step["waiting"]),
        "rows": step["rows"],
        "workers": step["workers"],
        "precision": step["precision"],
        "loss_first": number(step.get("first")),
        "loss_last": number(step.get("last")),
    }


def pairs_of(devices: Sequence[Device], steps: Sequence[Step]) -> List[Dict[str, object]]:
    """The pairs of cards with the bandwidth of copies between them."""
    return [
        {
            "from": devices[int(step["first"])].gpu,
            "to": devices[step["second"]].gpu,
            "gbs": rounded(rate(step["bytes"], step["seconds"])),
            "direct": step["direct"],
        }
        for step in steps
        if step["step"] == "peer" and "error" not in step and is_pair(step, len(devices))
    ]


def is_pair(step: Step, count: int) -> bool:
    """Whether a step speaks of two of the cards that there are."""
    return int(step["first"]) < count and step["second"] < count and step["first"] != step["second"]


def collectives_of(steps: Sequence[Step]) -> List[Dict[str, object]]:
    """The collectives by size, with their bandwidths."""
    group = next((step for step in steps if step["step"] == "group"), None)
    if group is None:
        return []
    found: List[Dict[str, object]] = []
    for step in steps:
        if step["step"] == "collective" and step["kind"] in _BUS:
            algorithm, bus = bus_bandwidth(step["kind"], step["bytes"], step["seconds"], group["ranks"])
            row = {"kind": step["kind"], "bytes": step["bytes"], "seconds": step["seconds"], "ranks": group["ranks"]}
            found.append(
                {**row, "backend": group["backend"], "algbw_gbs": rounded(algorithm), "busbw_gbs": rounded(bus)}
            )
    return found
