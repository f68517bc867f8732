# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Does this driver run that CUDA on these cards? The question that the module cuda_compat answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.cuda.resolve import forward
from ..components.cuda.resolve import support as cuda_support
from ..model.errors import BadInput
from ..model.stack import Why
from ..rules import Row, Rules, gpus
from . import cards, targets
from .log import Log
from .machine import Card


class Compatibility(TypedDict):
    """Answer of :func:`compatible`."""

    compatible: bool
    mode: str
    package: str | None
    reasons: list[Why]


def compatible(driver_version: str, cuda_version: str, gpu_names: Sequence[str], rules: Rules) -> Compatibility:
    """Return compatible, mode (native, minor-version, forward or none), package and reasons with their sources.

    driver_version is a branch (580) or a build (580.95.05), cuda_version such as 12.8 or 12.8.1. forward means: only
    with the package cuda-compat that is named, on data-centre cards. Raises BadInput for what does not exist.
    """
    log = Log(rules)
    branch = _branch(driver_version, rules)
    cuda = _cuda(cuda_version, rules)
    found = [cards.from_row(gpus.identify(name, rules)) for name in gpu_names]
    exact = driver_version if len(numeric_version.key(driver_version)) > 1 else None
    mode = _mode(cuda_support.of_branch(branch, exact), cuda, cuda_version, rules)
    _explain_mode(mode, driver_version, cuda, branch, log)
    fits = [_card_fits(card, branch, exact, cuda, log) for card in found]
    if mode is None and found:
        mode = _forward(branch["branch"], cuda, found, log)
    answer = mode is not None and all(fits)
    return {
        "compatible": answer,
        "mode": mode if answer and mode else "none",
        "package": forward.package(cuda, rules)[0] if answer and mode == "forward" else None,
        "reasons": log.why,
    }


def _forward(branch: str, cuda: str, found: Sequence[Card], log: Log) -> str | None:
    """Return "forward" where cuda-compat was built for the branch, reaches this CUDA and serves the cards; and say why."""
    row = forward.base(branch, log.rules)
    name, _path = forward.package(cuda, log.rules)
    other = next((card for card in found if card.kind != "datacenter"), None)
    if other:
        text = f"{name} would be for data-centre cards only, the {other.name} is none"
        log.decided("cuda.compat-card", text, "compat/cuda.yaml (forward)")
        return None
    if row is None or cuda not in forward.versions(branch, found, log.rules):
        text = f"{name} is not made for driver branch {branch}"
        source = log.cite("cuda", row) if row else "compat/cuda.yaml (forward)"
        log.decided("cuda.compat-base", text, source)
        return None
    text = f"{name} lets data-centre cards run CUDA {cuda} on branch {branch}"
    if not row["supported"]:
        text += ", which NVIDIA does not support (any more)"
    log.decided("cuda.forward", text, log.cite("cuda", row))
    return "forward"


def _mode(driver: cuda_support.CudaSupport, cuda: str, release: str, rules: Rules) -> str | None:
    """Return the mode; of an exact release (13.0.3) and an exact build the release's own native driver decides."""
    row = next((each for each in rules["cuda"]["rows"] if each["release"] == release and each["native_driver"]), None)
    mode = driver.mode(cuda, rules)
    if (
        mode == "native"
        and row
        and driver.version
        and not numeric_version.at_least(driver.version, row["native_driver"])
    ):
        return "minor-version"
    return mode


def _branch(version: str, rules: Rules) -> Row:
    rows: list[Row] = rules["driver_branches"]["rows"]
    row = next((each for each in rows if each["branch"] == numeric_version.major(version)), None)
    if row is None:
        names = [each["branch"] for each in rows]
        raise BadInput(
            f"the rules of {rules['generated']} know no driver branch {numeric_version.major(version)!r}", names[-5:]
        )
    return row


def _cuda(version: str, rules: Rules) -> str:
    never = next((row for row in rules["cuda"]["never"] if numeric_version.belongs(version, row["cuda"])), None)
    if never:
        raise BadInput(f"CUDA {never['cuda']} was never released", never["instead"])
    known = list(dict.fromkeys(row["cuda"] for row in rules["cuda"]["rows"]))
    matching = [cuda for cuda in known if numeric_version.belongs(version, cuda)]
    if not matching:
        raise BadInput(
            f"the rules of {rules['generated']} know no CUDA {version!r}: expected a version such as 12.8", known[-5:]
        )
    return matching[0]


def _explain_mode(mode: str | None, driver: str, cuda: str, branch: Row, log: Log) -> None:
    rows = [row for row in log.rules["cuda"]["rows"] if row["cuda"] == cuda]
    citation = log.cite("cuda", rows[0])
    floor = cuda_support.native_floor(cuda, log.rules)
    family = cuda_support.family_floor(numeric_version.major(cuda), log.rules)
    if mode == "native":
        log.decided("cuda.native", f"driver {driver} brings CUDA {cuda} in full", citation)
    elif mode == "minor-version":
        text = f"driver {driver} does not bring CUDA {cuda} in full, but runs every CUDA {numeric_version.major(cuda)}"
        log.decided("cuda.minor-version", text, citation)
    else:
        least = family["driver"] if family else floor
        text = f"CUDA {cuda} needs a driver from {least} on, found {driver} (branch {branch['branch']} brings CUDA {branch['max_cuda']})"
        log.decided("cuda.driver", text, citation)


def _card_fits(card: Card, branch: Row, exact: str | None, cuda: str, log: Log) -> bool:
    fits = True
    if not cards.served(card, branch, log.rules):
        text = f"driver branch {branch['branch']} does not drive the {card.name}"
        log.decided("driver.card", text, log.cite("driver_branches", branch))
        fits = False
    first = cards.first_build(card, branch["branch"], log.rules)
    if exact and first and not numeric_version.at_least(exact, first[0]):
        log.decided(
            "driver.floor-card",
            f"the {card.name} is driven from build {first[0]} on",
            log.cite("driver_branches", first[1]),
        )
        fits = False
    row = targets.toolkit_targets(cuda, log.rules)
    if row and targets.toolkit_lacks(cuda, [card], log.rules):
        text = f"CUDA {cuda} has no code for the {card.name} (compute capability {card.compute_capability})"
        log.decided("cuda.card", text, log.cite("cuda", row))
        fits = False
    return fits
