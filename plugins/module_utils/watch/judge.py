# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The quick checks: what a node can judge of itself by one look, with the judges that the controller has."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, List, Mapping, Optional, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, words
from ansible_collections.gpuwright.node.plugins.module_utils.base.ages import moment
from ansible_collections.gpuwright.node.plugins.module_utils.base.view import UP, View
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    card_wishes,
    fabric_judge,
    kernel_log_judge,
    node_judge,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, LoadedModule
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Seen
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack
    from ansible_collections.gpuwright.node.plugins.module_utils.watch.settings import Settings

FLOOR = "driver.security_floor"
END = "driver.end_of_life"
#: What is told although the node stays proven.
NOTICES = (FLOOR, END)
#: The component whose seal has the driver and the cards.
DRIVER = "nvidia_driver"
#: Machines whose kernel log is the one that the driver of the cards writes into.
OWN_KERNEL = ("bare", "vm")


def judge(facts: Facts, settings: Settings, seen: Optional[Seen]) -> List[Check]:
    """Every quick check. ``seen``: the errors of the kernel log, None where it is another machine's."""
    view = View(facts)
    result = _cards(view, settings)
    result += node_judge.of_seals(view)
    result += node_judge.of_proof(view, {"proof_max_age": settings["proof_max_age"]})
    if seen is not None:
        result += kernel_log_judge.judge(seen, {"xid": settings["xid"], "sxid": settings.get("sxid", [])})
    version = view.get("driver.loaded_version")
    if version and view.environment != "wsl":  # there it is Windows' own, with numbers of its own
        result += security(version, settings) + end_of_life(version, settings, str(view.get("time")))
    return result


def _cards(view: View, settings: Settings) -> List[Check]:
    expected, driver = expectations(view, settings), _driver(view)
    if view.environment == "wsl":
        return node_judge.of_smi(view, driver, expected, foreign_driver=True)
    reason = view.why_unknown("pci.gpus") if not view.gpus else None
    if reason:
        return [checks.incomplete("gpu.on_bus", f"the PCI bus could not be read: {reason}")]
    result = [node_judge.on_bus(view, expected)]
    if view.gpus:
        result += [node_judge.driver_loaded(view, _not_loaded), node_judge.version_match(view)]
        result += node_judge.of_smi(view, driver, expected)
        result += fabric_judge.judge_fabric(view)
    return result


def _not_loaded(_loaded: Mapping[str, LoadedModule]) -> Mapping[str, str]:
    return {
        "reason": "the kernel module of the driver is not loaded",
        "action": "reboot",
        "remedy": f"run gpuwright doctor, which names the cause; {UP}",
    }


def expectations(view: View, settings: Settings) -> node_judge.Expected:
    """What the cards are held against: what the wish said, and how many the last seal saw."""
    cards = settings["cards"]
    count = sealed_cards(view) if cards["count"] is None else cards["count"]
    expected: node_judge.Expected = {"ignore": cards["ignore"], "pcie_lanes": cards["pcie_lanes"]}
    expected["settings"] = card_wishes.sealed(view.facts)
    if count is not None:
        expected["count"] = count
    if cards["names"]:
        expected["names"] = cards["names"]
    return expected


def sealed_cards(view: View) -> Optional[int]:
    """How many cards the last seal saw; None where there is no seal, or it saw none."""
    cards = view.get(f"seals.{DRIVER}.gpus")
    return len(cards) if cards else None


def _driver(view: View) -> Optional[DriverStack]:
    """The driver as it was sealed."""
    stack = view.get(f"seals.{DRIVER}.stack")
    return cast("DriverStack", stack) if stack and "adopted" in stack and "branch" in stack else None


def security(version: str, settings: Settings) -> List[Check]:
    """The driver has no published vulnerability; nothing where the rules name no floor for its branch."""
    branch = numeric_version.major(version)
    row = next((row for row in settings["floors"] if row["branch"] == branch), None)
    if row is None:
        return []
    ok = numeric_version.at_least(version, row["floor"])
    return [
        checks.judged(
            FLOOR,
            ok,
            "warning",
            measured=version,
            expected=row["floor"],
            reason=None
            if ok
            else f"driver {version} has a published vulnerability, {row['floor']} has not (NVIDIA's bulletin {row['bulletin']})",
            action="install",
            remedy="run gpuwright upgrade --security",
        )
    ]


def end_of_life(version: str, settings: Settings, now: str) -> List[Check]:
    """The branch of the driver lives for longer than is told ahead; nothing where its end was not published."""
    branch, today = numeric_version.major(version), moment(now)
    end = end_of(branch, settings)
    if end is None or today is None:
        return []
    left = (end - today.date()).days
    ok = left > settings["end_is_near"]
    when = (
        f"ends on {end}, in {words.count(left, 'days')}"
        if left >= 0
        else f"ended on {end}: it gets no security fixes any more"
    )
    return [
        checks.judged(
            END,
            ok,
            "warning",
            measured=left,
            expected=settings["end_is_near"],
            unit="days",
            reason=None if ok else f"branch {branch} of the driver {when}",
            action="install",
            remedy="plan the step to a newer branch: gpuwright plan --want driver=BRANCH shows what it takes",
        )
    ]


def end_of(branch: str, settings: Settings) -> Optional[dt.date]:
    """The day on which a branch ends, None where it was not published or cannot be read."""
    text = next((row["eol"] for row in settings["branches"] if row["branch"] == branch), None)
    try:
        return dt.date(*(int(part) for part in text.split("-"))) if text else None
    except (ValueError, TypeError):
        return None
