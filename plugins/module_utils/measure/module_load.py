# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load a kernel module and judge by what the kernel said: for a machine without a card, where nothing else can speak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Optional, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result, run

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

CHECK = "driver.module"
#: What NVIDIA's module says when it was accepted and no card answers it.
NO_CARD = "No NVIDIA GPU found"

_STAMP = re.compile(r"^\[\s*\d+\.\d+\]\s*")
_UNSIGNED = (
    "Secure Boot takes only signed modules: choose nvidia_driver_source=distro where the distribution signs its own, "
    "or enrol the key (mokutil --import), and boot"
)
_ANOTHER_KERNEL = (
    "the module was built for another kernel: take it away (dkms uninstall -m NAME -v VERSION -k KERNEL, as dkms status names it), then "
    "run gpuwright up, which builds it again"
)
#: Words of modprobe or the kernel, and what a person does about them.
_REMEDIES = {
    "Key was rejected": _UNSIGNED,
    "Required key not available": _UNSIGNED,
    "Exec format error": _ANOTHER_KERNEL,
    "Invalid argument": _ANOTHER_KERNEL,
    "Unknown symbol": _ANOTHER_KERNEL,
    "not found in directory": "run gpuwright up, which builds the module for the kernel that boots next",
}
_OTHERWISE = (
    "read the kernel log (dmesg | grep -iE 'nvidia|nvrm'), correct what it names, then load it again (modprobe nvidia)"
)


class Outcome(NamedTuple):
    """What came of an attempt to load a module."""

    rc: Optional[int]
    """Exit status of modprobe; None when it was not run or did not end in time."""
    said: str
    """What modprobe said, or why it could not be run."""
    log: List[str]
    """What the kernel log said meanwhile, without the times."""


def load(name: str, timeout: float, call: Callable[..., Result] = run) -> Outcome:
    """Load the module NAME within TIMEOUT seconds; ``call`` is what runs programs."""
    before = call(["dmesg"]).out.splitlines()
    tried = call(["modprobe", name], timeout=timeout)
    after = call(["dmesg"]).out.splitlines()
    return Outcome(tried.rc, (tried.error or tried.err).strip(), [_STAMP.sub("", line) for line in _new(before, after)])


def _new(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """The lines that came after the last one that was there before; all of them where the log has moved on beyond it."""
    if not before:
        return after
    for place in range(len(after) - 1, -1, -1):
        if after[place] == before[-1]:
            return after[place + 1 :]
    return after


def judge(name: str, outcome: Outcome, expected_gpus: int) -> Check:
    """The check :data:`CHECK`: the kernel takes the module, and the module finds the cards that should be there."""
    evidence = "\n".join(outcome.log or [outcome.said])
    if outcome.rc is None:
        return checks.incomplete(CHECK, outcome.said or "modprobe did not answer", evidence=evidence, remedy=_OTHERWISE)
    words = next((line for line in outcome.log if NO_CARD in line), None)
    if outcome.rc == 0:
        return checks.passed(CHECK, measured="loaded", evidence=evidence)
    if words is None:
        said = f"{outcome.said} {evidence}"
        return checks.failed(
            CHECK,
            measured="not loaded",
            reason=f"the kernel did not take the module {name}: {outcome.said or evidence}",
            evidence=evidence,
            action="install",
            remedy=next((text for mark, text in _REMEDIES.items() if mark in said), _OTHERWISE),
        )
    heard = f'the kernel took the module {name}, which said "{words}"'
    if not expected_gpus:
        reason = f"{heard}: it loads as far as is possible without a card"
        return checks.passed(CHECK, measured=words, reason=reason, evidence=evidence)
    return checks.failed(
        CHECK,
        "fatal",
        measured=0,
        expected=expected_gpus,
        unit="cards",
        reason=f"{heard}: the driver is right, and none of the cards that are expected ({expected_gpus}) is on the PCI bus",
        evidence=evidence,
        action="check_hardware",
        remedy="power the machine off and on, then reseat the card and check its power cables; if it is yet to come, "
        "leave gpuwright_gpus_expected out of the inventory until it is there",
    )
