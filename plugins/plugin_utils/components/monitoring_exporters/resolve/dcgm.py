# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""DCGM with NVIDIA's dcgm-exporter: whether it serves a machine, in which packages, and which fields it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver.log import Log, Unresolved, conflict, offered
from ....resolver.machine import Machine
from ....rules import Row
from ..model import Dcgm

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Monitoring
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ....model.stack import Stack

#: The key of a stack that it is a part of.
NAME = "monitoring_exporters"
WANT = "dcgm"
EXPORTER = "datacenter-gpu-manager-exporter"
_CORE = "datacenter-gpu-manager-4"
#: The service of the host engine, and that of its exporter.
ENGINE, UNIT = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
_INDEX = "the machine's package index"
#: What is neither the machine itself nor a virtual one that has whole cards.
_ELSEWHERE = {"wsl": "in WSL", "container": "in a container", "jetson": "on a Jetson"}


def choose(machine: Machine, system: Row, driver: DriverStack | None, log: Log, *, asked: bool) -> Dcgm | None:
    """Return what is installed of DCGM; None where it does not serve, which is told. Raises Unresolved where it was ``asked`` for."""
    reason = next(_against(machine, system, driver, log), None)
    if reason:
        text, source = reason
        if asked:
            remedy = "leave it to the rules (monitoring), or take gpuwright's own exporter (monitoring=smi)"
            raise Unresolved(conflict("monitoring.dcgm", text, source, remedy))
        log.decided("monitoring.smi", f"gpuwright's own exporter, over nvidia-smi: {text}", source)
        return None
    pair = log.rules["monitoring"]["pairs"][0]
    # That there is none is among the reasons against it.
    major = cast("Row", _major(machine, driver, log))
    text = f"DCGM {pair['dcgm']} for CUDA {major['cuda']} with its exporter {pair['exporter']}"
    log.decided("monitoring.dcgm", text, log.cite("monitoring", pair))
    cuda = f"cuda{major['cuda']}"
    return {
        "version": pair["dcgm"],
        "exporter": pair["exporter"],
        "packages": [*(f"{_CORE}-{part}" for part in ("core", cuda, "proprietary", f"proprietary-{cuda}")), EXPORTER],
        "profiling": _profiling(machine, log),
    }


def _against(machine: Machine, system: Row, driver: DriverStack | None, log: Log) -> Iterator[tuple[str, str]]:
    """Every reason for which DCGM does not serve this machine, with where it was read."""
    served = log.rules["monitoring"]["served"]
    if machine.environment in _ELSEWHERE:
        yield f"DCGM does not serve cards {_ELSEWHERE[machine.environment]}", log.cite("monitoring", served[0])
    if machine.foreign.vgpu:
        yield "DCGM serves whole cards, and these are virtual", log.cite("monitoring", served[0])
    if machine.os not in {name for row in served for name in row["os"]}:
        yield f"NVIDIA names no DCGM for {system['name']}", log.cite("monitoring", served[0])
    if _major(machine, driver, log) is None:
        yield (
            "the driver's branch, or a card, is older than any that DCGM is built for, or the branch is not known",
            log.cite("monitoring", served[0]),
        )
    pair = log.rules["monitoring"]["pairs"][0]
    lacks = f"{WANT}={pair['dcgm']}"
    if lacks in machine.absent:
        yield f"the machine's package index has no DCGM {pair['dcgm']}{offered(machine.absent[lacks])}", _INDEX


def _major(machine: Machine, driver: DriverStack | None, log: Log) -> Row | None:
    """Return the row of the CUDA that DCGM has to be built for: that of the driver, as far as it has these cards."""
    branch = driver["branch"] if driver else numeric_version.major(machine.driver.version) if machine.driver else None
    if branch is None or not branch.isdecimal():
        return None
    rows = [row for row in log.rules["monitoring"]["cuda"] if int(row["since"]) <= int(branch)]
    old = {card.architecture for card in machine.cards}
    rows = [row for row in rows if not old & set(row["without"])]
    return max(rows, key=lambda row: int(row["since"]), default=None)


def of_stack(stack: Stack) -> Dcgm | None:
    """Return DCGM where it is what tells of the cards."""
    exporters = stack.get("monitoring_exporters")
    return exporters["gpu"]["dcgm"] if exporters and exporters["gpu"] else None


def sealed(machine: Machine) -> Mapping[str, object]:
    """Return what is in force of the exporters; empty where nothing was sealed."""
    return machine.sealed.get(NAME) or {}


def is_ours(seen: Monitoring | None, sealed_part: Mapping[str, object]) -> bool:
    """Say whether it is gpuwright that has the host engine run: by the drop-in beside its unit, or by the seal where that is gone."""
    cards = cast("Mapping[str, Mapping[str, object]]", sealed_part.get("gpu") or {})
    return bool((seen and ENGINE in seen["drop_ins"]) or (cards.get("dcgm") or {}).get("profiling"))


def _profiling(machine: Machine, log: Log) -> bool:
    """Say whether fields of the profiling module are asked for: one collector alone has the counters of a card.

    Which of them a card has DCGM tells its exporter, who leaves out the others.
    """
    if ENGINE not in machine.running or is_ours(machine.monitoring, sealed(machine)):
        return True
    text = f"no fields of the profiling module: {ENGINE} runs already, and whoever asks it may use the counters"
    log.decided("monitoring.profiling", text, "the machine's facts")
    return False
