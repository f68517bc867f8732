# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is measured on a node for its proof, as data for the role `validate`, and why something is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from ...module_utils.base import checks as checking
from ..components import package_calls
from ..components.registry import COMPONENTS, wishes_of_cards
from ..health import judge_kernel_log
from ..model import sections
from ..wish.reading import is_yes
from . import fabric, loading

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge

    from ..components.base import Context, Inputs, Step
    from ..components.cuda.model import CudaToolkit
    from ..components.frameworks.model import FrameworkEnvironment
    from ..model.plan import Plan
    from ..model.work import ContainerQuestion, PackageCall
    from .request import Request

#: What is no component, and has work too: its name in a plan.
NAME = "validate"
_IN_CONTAINERS = "container.cards"
#: Machines on which the log of the kernel is the one that the driver of the cards writes into, and which load modules of their own.
_OWN_KERNEL = ("bare", "vm")


class Smi(TypedDict, total=False):
    """The options of nvidia_smi."""

    executable: str
    expected_gpus: int
    expected_names: list[str]
    expected_bus_ids: list[str]
    expected_driver: str
    pcie_lanes: Mapping[str, int]
    persistence: bool
    min_driver: str
    settings: Mapping[str, smi_judge.Expected]


class Log(TypedDict):
    """The options of kernel_log."""

    boots: int


class Module(TypedDict):
    """The options of driver_module."""

    name: str
    expected_gpus: int


class Compute(TypedDict, total=False):
    """The options of gpu_compute. ``environment``: variables of the task, for the library that is found first."""

    expected_gpus: int
    min_cuda: str
    environment: dict[str, str]


class Framework(TypedDict, total=False):
    """The options of framework_check. ``environment``: variables of the task, for the library that is found first."""

    name: str
    python: str
    expected_version: str
    expect_cuda: bool
    expected_gpus: int
    kernel: str
    environment: dict[str, str]


class Toolkit(TypedDict, total=False):
    """The options of toolkit_check. ``environment``: variables of the task, for the library that is found first."""

    nvcc: str
    capabilities: list[str]
    known: str
    expected_gpus: int
    environment: dict[str, str]


class Given(TypedDict):
    """What neither the plan nor the node tells. ``storage``: whether the storage is measured; ``containers``: whether some are started;
    ``load``: how the cards are loaded; ``boots``: how many earlier boots of the kernel log are read; ``fabric``: whether and how this host
    is measured with others.
    """

    pending: bool
    ignore: list[str]
    storage: bool
    containers: bool
    load: loading.Given
    boots: int
    fabric: fabric.Given


class Measurements(loading.Loads):
    """What is measured: None or nothing where it is left out, and ``gaps`` say why.

    ``tools`` are installed first. ``module``: without a card the module can still be tried. ``takes``: seconds of each load, by its
    module. ``fabric``: what this host brings to what is measured between hosts. ``log``: the kernel's, with so many earlier boots.
    ``storage``: by fio.
    """

    tools: PackageCall
    module: Module | None
    smi: Smi | None
    log: Log | None
    compute: list[Compute]
    takes: dict[str, int]
    fabric: fabric.Own | None
    toolkits: list[Toolkit]
    containers: list[ContainerQuestion]
    environments: list[Framework]
    gaps: list[Check]
    storage: bool


def measure(context: Context, plan: Plan) -> Measurements:
    """What is measured on a node as it is now, from a plan with what :func:`asked` says."""
    given = _given(plan)
    if sections.user(context.facts) is not None:
        return _of_user(context, plan)
    cards = not (context.provision_only or context.cpu_only or given["pending"])
    loads = _loads(context, plan, cards=cards)
    return {
        **loads,
        "tools": package_calls.call(context, plan, _tools(plan)),
        "module": _module(context, plan),
        "smi": _smi(context, plan) if cards and _has_smi(context.facts) else None,
        "log": {"boots": given["boots"]} if cards and _own_kernel(context.facts) else None,
        "compute": _compute(context, plan) if cards else [],
        "takes": loading.takes(context, given["load"], loads),
        "fabric": _fabric(context, plan, cards=cards),
        "toolkits": _toolkits(context, plan, cards=cards),
        "containers": [each for each in _containers(context) if _starts(each, given)] if cards else [],
        "environments": [] if context.provision_only or given["pending"] else _frameworks(context, plan),
        "gaps": _gaps(context, plan, cards=cards),
        "storage": given["storage"],
    }


def _of_user(context: Context, plan: Plan) -> Measurements:
    """A user who works without root proves the environments, each with all that it needs. The machine is root's to measure."""
    return {
        "tools": package_calls.call(context, plan, []),
        "module": None,
        "smi": None,
        "log": None,
        "compute": [],
        "diagnostic": None,
        "load": None,
        "framework_loads": [],
        "takes": {},
        "fabric": None,
        "toolkits": [],
        "containers": [],
        "environments": _frameworks(context, plan),
        "gaps": [] if context.stack.get("frameworks") else [_no_environment()],
        "storage": False,
    }


def _no_environment() -> Check:
    reason = "gpuwright made no environment of yours, and none is wished"
    return checking.incomplete("framework.compute", reason, action="install", remedy="gpuwright up --user")


def asked(inputs: Inputs, ignore: Sequence[str], *, pending: bool) -> Given:
    """What `measure` has to know besides: a plan's ``given``. ``inputs``: variables set for each role. ``ignore``: cards that are left
    alone. ``pending``: the cards wait for a reboot.
    """
    variables = inputs.get(NAME) or {}
    storage, containers = (is_yes(variables.get(f"validate_{name}", True)) for name in ("storage", "containers"))
    return {
        "pending": pending,
        "ignore": list(ignore),
        "storage": storage,
        "containers": containers,
        "load": loading.asked(variables),
        "boots": int(str(variables.get("validate_boots") or 0)),
        "fabric": fabric.asked(variables),
    }


def of_proof(
    plan: Plan, context: Context, request: Request, ignore: Sequence[str], told: Sequence[Check]
) -> dict[str, Measurements]:
    """The part of a plan's work that is measured, where the plan is one of a proof alone; otherwise it is decided after the apply.
    ``told``: checks that the plan itself made.
    """
    if request.verb != NAME:
        return {}
    given = asked(request.inputs, ignore, pending=request.pending)
    found = measure(context, {**plan, "given": given})
    return {NAME: {**found, "gaps": [*told, *found["gaps"]]}}


#: The step is decided with the plan of a proof, and after an apply.
STEPS: Mapping[str, Step] = {"measure": measure}


def _given(plan: Plan) -> Given:
    return cast("Given", plan["given"])


def _tools(plan: Plan) -> list[str]:
    """Tools that the plan wants for the measurements. Where it names none, nothing is installed: a proof changes nothing."""
    return [row["name"] for change in plan["changes"] if change["component"] == NAME for row in change["packages"]]


def _count(plan: Plan) -> int | None:
    """How many cards there must be: those of the inventory or of the last seal."""
    count: int | None = plan["expected_gpus"].get("count")
    return count or None


def _seen_by_a_program(context: Context, plan: Plan) -> int | None:
    """How many cards a program must see. Of parted cards (MIG) CUDA shows it one instance, however many there are."""
    return None if sections.parted(context.facts) else _count(plan)


def _own_kernel(facts: Facts) -> bool:
    return facts["environment"]["kind"] in _OWN_KERNEL


def _has_smi(facts: Facts) -> bool:
    """A Jetson's image may be without nvidia-smi: nothing is missing there."""
    return facts["environment"]["kind"] != "jetson" or bool(facts["driver"]["nvidia_smi"])


def _module(context: Context, plan: Plan) -> Module | None:
    """The try of the module, where the machine has a kernel of its own and boots no other one next."""
    driver, kernel = context.stack.get("driver"), context.facts["kernel"]
    if not driver or not context.provision_only or _given(plan)["pending"]:
        return None
    if not _own_kernel(context.facts) or kernel["running"] != kernel["next"]:
        return None
    count = _count(plan) if context.cards_missing else None
    return {"name": driver.get("kernel_module") or "nvidia", "expected_gpus": count or 0}


def _smi(context: Context, plan: Plan) -> Smi:
    """What nvidia-smi must say. Which cards must answer: those on the bus, unless some are ignored."""
    facts, driver, expected = context.facts, context.stack.get("driver"), plan["expected_gpus"]
    ids = [] if _given(plan)["ignore"] else [card["bus_id"] for card in facts["pci"]["gpus"] or ()]
    # Where the driver is Windows', its nvidia-smi is in no directory that a shell without login looks into.
    options: Smi = {"executable": facts["driver"]["nvidia_smi"] or "nvidia-smi"}
    wanted: dict[str, object] = {
        "expected_gpus": _count(plan),
        "expected_names": expected.get("names"),
        "expected_bus_ids": ids,
        "expected_driver": (driver["version"] or driver["branch"]) if driver else None,
        "pcie_lanes": expected.get("pcie_lanes"),
        "min_driver": driver.get("minimum") if driver else None,
        "settings": wishes_of_cards(context.stack),
    }
    for key, value in wanted.items():
        if value:
            options[key] = value  # type: ignore[literal-required]  # the keys are those of the type
    if facts["environment"]["kind"] == "wsl":  # Windows keeps its driver loaded by itself
        options["persistence"] = False
    return options


def _compute(context: Context, plan: Plan) -> list[Compute]:
    """Calls of CUDA itself: nvidia-smi can be fine where CUDA is not. Where its version is one that the driver alone does not run, also by
    way of cuda-compat, whose library is found before the driver's by this task and by nothing else.
    """
    count = _seen_by_a_program(context, plan)
    expected: Compute = {"expected_gpus": count} if count else {}
    plain: Compute = {**expected, "environment": {}}
    compat = context.stack.get("cuda_compat")
    if not compat:
        return [plain]
    return [plain, {**expected, "min_cuda": compat["version"], "environment": _first(compat["path"])}]


def _toolkits(context: Context, plan: Plan, *, cards: bool) -> list[Toolkit]:
    """The toolkits, which compile without a card too, and what they compile for the cards that are there."""
    return [_toolkit(toolkit, context, plan, cards=cards) for toolkit in context.stack.get("cuda") or ()]


def _toolkit(toolkit: CudaToolkit, context: Context, plan: Plan, *, cards: bool) -> Toolkit:
    compat = context.stack.get("cuda_compat") if toolkit["mode"] == "forward" else None
    options: Toolkit = {
        "nvcc": f"{toolkit['path']}/bin/nvcc",
        "capabilities": toolkit.get("capabilities") or [],
        "environment": _first(compat["path"] if compat else None),
    }
    if "unable" in toolkit:
        options["known"] = toolkit["unable"]
    if cards:
        options["expected_gpus"] = _seen_by_a_program(context, plan) or 1
    return options


def _containers(context: Context) -> list[ContainerQuestion]:
    """What is asked of containers, of all components that hand the cards to some."""
    return [question for component in COMPONENTS.values() for question in component.containers(context)]


def _starts(question: ContainerQuestion, given: Given) -> bool:
    return given["containers"] and question["left_out"] is None


def _frameworks(context: Context, plan: Plan) -> list[Framework]:
    return [_framework(framework, context, plan) for framework in context.stack.get("frameworks") or ()]


def _framework(framework: FrameworkEnvironment, context: Context, plan: Plan) -> Framework:
    with_cards = bool(framework.get("cuda"))
    options: Framework = {
        "name": framework["name"],
        "python": f"{framework['path']}/bin/python",
        "expected_version": framework["version"],
        "expect_cuda": with_cards,
        "environment": _first(framework.get("loader_path")),
    }
    count = _seen_by_a_program(context, plan)
    if with_cards and count:
        options["expected_gpus"] = count
    kernel = framework.get("kernel")
    if kernel:
        options["kernel"] = kernel
    return options


def _loads(context: Context, plan: Plan, *, cards: bool) -> loading.Loads:
    """What loads the cards, or the processor where there are none and none will come."""
    given = _given(plan)
    later = context.provision_only or given["pending"]
    return {
        "diagnostic": loading.diagnostic(context, given["load"], _count(plan)) if cards else None,
        "load": _load(context, plan) if cards else None,
        "framework_loads": [] if later else _framework_loads(context, plan, cards=cards),
    }


def _load(context: Context, plan: Plan) -> loading.Load | None:
    given = _given(plan)
    load = loading.load(context, given["load"], given["ignore"], plan["expected_gpus"].get("pcie_lanes"))
    if load is not None and not _own_kernel(context.facts):
        load["log"] = False
    return load


def _framework_loads(context: Context, plan: Plan, *, cards: bool) -> list[loading.FrameworkLoad]:
    given = _given(plan)["load"]
    loads = [
        loading.of_framework(context, given, framework, _first(framework.get("loader_path")), cards=cards)
        for framework in context.stack.get("frameworks") or ()
    ]
    return [load for load in loads if load is not None]


def _fabric(context: Context, plan: Plan, *, cards: bool) -> fabric.Own | None:
    given = _given(plan)
    if not given["fabric"]["asked"] or _no_fabric(context, plan):
        return None
    libraries = {each["name"]: _first(each.get("loader_path")) for each in context.stack.get("frameworks") or ()}
    count = loading.number(context) if cards else 0
    return fabric.own(context, given["fabric"], libraries, cards=count, busy=given["load"]["busy"])


def _no_fabric(context: Context, plan: Plan) -> tuple[str, str] | None:
    """Why this host brings nothing to what is measured between hosts, and what to do; None where it does."""
    if context.provision_only or _given(plan)["pending"]:
        return "no card computes yet", "prove the host again when they do"
    if sections.parted(context.facts):
        return "NCCL does not work over parted cards (MIG)", "switch MIG off on the hosts of the fabric"
    if not fabric.environments(context):
        return "no environment with PyTorch is wished, which brings NCCL", "gpuwright up --want pytorch"
    return None


def _first(libraries: str | None) -> dict[str, str]:
    """Variables by which the libraries of a directory are found first."""
    return {"LD_LIBRARY_PATH": libraries} if libraries else {}


def _gaps(context: Context, plan: Plan, *, cards: bool) -> list[Check]:
    """Why something is not measured, as checks."""
    found = []
    frameworks = context.stack.get("frameworks") or ()
    if not cards:
        found += [_without_cards(context, plan, id_) for id_ in ("gpu.cards", "gpu.compute")]
    if cards and not _has_smi(context.facts):
        found.append(_left_out("smi.runs", "the image of this board has no nvidia-smi; CUDA itself is asked"))
    if cards and not _own_kernel(context.facts):
        reason = "the driver of the cards writes into another kernel log than this machine's"
        found += [_left_out(id_, reason) for id_ in judge_kernel_log.IDS]
    if not frameworks:
        found.append(_left_out("framework.compute", "no framework is wished"))
    elif context.provision_only or _given(plan)["pending"]:
        found += [
            _without_cards(context, plan, "framework.compute", evidence=framework["name"]) for framework in frameworks
        ]
    left_out = [each for each in _containers(context) if not cards or not _starts(each, _given(plan))]
    found += [_no_container(each, context, plan, cards=cards) for each in left_out]
    no_fabric = _no_fabric(context, plan) if _given(plan)["fabric"]["asked"] else None
    if no_fabric:
        reason, remedy = no_fabric
        found.append(checking.incomplete("fabric.runs", reason, action="configure", remedy=remedy))
    if not _given(plan)["storage"]:
        found.append(_left_out("fio.storage", "validate_storage is false", severity="warning"))
    return found


def _no_container(question: ContainerQuestion, context: Context, plan: Plan, *, cards: bool) -> Check:
    if question["left_out"]:
        return _left_out(_IN_CONTAINERS, question["left_out"])
    return (
        _left_out(_IN_CONTAINERS, "validate_containers is false")
        if cards
        else _without_cards(context, plan, _IN_CONTAINERS)
    )


def _left_out(id_: str, reason: str, severity: str = "critical") -> Check:
    return checking.skipped(id_, reason, severity, action="none")


def _without_cards(context: Context, plan: Plan, id_: str, evidence: str | None = None) -> Check:
    """Cards that wait for a reboot were not proven, which is not the same as cards that are not there."""
    if _given(plan)["pending"]:
        reason, remedy = (
            "the driver takes the cards over only after a reboot",
            "reboot the machine when it suits, then run gpuwright up again",
        )
        return checking.incomplete(id_, reason, evidence=evidence, action="reboot", remedy=remedy)
    if context.cards_missing:
        reason, remedy = "the expected cards are not on the PCI bus", "see the check driver.module"
        return checking.incomplete(id_, reason, evidence=evidence, action="none", remedy=remedy)
    reason = (
        "the cards are not in this machine yet (it is provisioned for them)"
        if context.provision_only
        else "the machine has no NVIDIA card and none is expected"
    )
    return checking.skipped(id_, reason, evidence=evidence, action="none")
