# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge a host by its observation, what needs neither a wish nor a table: the cards on the bus, the driver that runs, what nvidia-smi
said, the seals and the last proof.

Pure. The controller judges by it (plugin_utils/health/judge.py), and so does a node that watches itself (module_utils/watch/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Mapping, Optional

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.base.ages import AHEAD, MAX_AGE, age, moment
from ansible_collections.gpuwright.node.plugins.module_utils.base.view import UP, View, unknown
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge, smi_messages
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import ASLEEP

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import LoadedModule, PciGpu, Smi
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack, Proof, Seal


class Expected(smi_judge.Expected, total=False):
    """What a host is held against; see judge() in plugin_utils/health/judge.py."""

    proof_max_age: int
    seals: bool
    proof: bool
    gpus: bool


NOT_ON_BUS = (
    "power the host off and on, then reseat the card and check its power cables; if it was taken out, correct "
    "gpuwright_gpus_expected in the inventory"
)


WAIT = "wait until that run has ended"


def expected_count(expected: Expected) -> Optional[int]:
    """How many cards there have to be; None where nobody says."""
    count = expected.get("count")
    return None if count is None else int(count)


def on_bus(view: View, expected: Expected, tell: Callable[[str], str] = str, remedy: str = NOT_ON_BUS) -> Check:
    """As many cards on the bus as expected, each of them answering the bus. ``tell`` adds to the sentence about missing ones what is
    there instead; ``remedy``: what to do about them.
    """
    gpus, wanted = counted(view, expected), expected_count(expected)
    measured = len(gpus)
    silent = [str(gpu.get("bus_id")) for gpu in gpus if str(gpu.get("revision")).lower() == "ff"]
    rest: checks.Rest = {"measured": measured, "expected": wanted, "unit": "cards", "action": "check_hardware"}
    if silent:
        return checks.failed(
            "gpu.on_bus",
            "fatal",
            reason="a card has fallen off the bus: " + ", ".join(silent),
            remedy="power the host off and on (a reboot is not enough), then reseat the card and check its power cables",
            **rest,
        )
    if wanted is not None and measured < wanted:
        return checks.failed(
            "gpu.on_bus",
            "fatal",
            reason=tell(
                f"{words.count(wanted, 'cards', 'are')} expected and {measured} {words.verb(measured, 'are')} on the PCI bus"
            ),
            remedy=remedy,
            **rest,
        )
    if wanted is not None and measured > wanted:
        return checks.failed(
            "gpu.on_bus",
            "warning",
            reason=f"{words.count(wanted, 'cards', 'are')} expected and {measured} {words.verb(measured, 'are')} on the PCI bus",
            remedy="correct gpuwright_gpus_expected in the inventory",
            **rest,
        )
    return checks.passed("gpu.on_bus", "fatal", measured=measured, expected=wanted, unit="cards")


def counted(view: View, expected: Expected) -> List[PciGpu]:
    """The cards on the bus without those that are left alone, by bus id or by the model that nvidia-smi names."""
    ignore = [str(entry) for entry in expected.get("ignore") or ()]
    data = view.get("smi.data")
    seen = list((data or {}).get("gpus") or ()) if isinstance(data, Mapping) else []
    models = {str(gpu.get("pci_bus_id")): str(gpu.get("name") or "") for gpu in seen}
    places = {document.normalise_bus_id(entry) for entry in ignore}

    def left_alone(gpu: PciGpu) -> bool:
        place = document.normalise_bus_id(str(gpu.get("bus_id")))
        return place in places or any(smi_judge.same_model(models.get(place, ""), entry) for entry in ignore)

    return [gpu for gpu in view.gpus if not left_alone(gpu)]


def driver_loaded(view: View, why: Callable[[Mapping[str, LoadedModule]], Mapping[str, str]]) -> Check:
    """The kernel module is loaded. ``why``: of the modules that are loaded, the reason, the action and the remedy where it is not."""
    loaded = view.get("kernel.loaded")
    if loaded is None:
        return unknown("driver.loaded", view, "kernel.loaded", "which kernel modules are loaded")
    if "nvidia" in loaded:
        return checks.passed("driver.loaded", measured=view.get("driver.loaded_version"))
    return checks.failed("driver.loaded", measured="not loaded", **why(loaded))


def version_match(view: View) -> Check:
    """Kernel module and libraries are of one version: they differ after an upgrade under a loaded module."""
    loaded, user = view.get("driver.loaded_version"), view.get("driver.user_version")
    rest: checks.Rest = {"measured": {"module": loaded, "libraries": user}}
    if loaded is None:
        return checks.skipped("driver.version_match", "the driver is not loaded", **rest)
    if user is None:
        reason = view.why_unknown("driver.user_version") or "no driver library was found beside the loaded module"
        remedy = checks.again("libnvidia-ml.so.1")
        return checks.incomplete("driver.version_match", reason, action="install", remedy=remedy, **rest)
    ok = loaded == user
    if not ok and view.environment == "container":
        reason = f"the module of the host is {loaded}, and the libraries in this container are {user}: the image brings a driver of its own"
        remedy = (
            "take the driver's packages (libnvidia-compute, nvidia-utils) out of the image, and start the container with the cards "
            "(--gpus all): the container toolkit hands the host's libraries in"
        )
        return checks.failed("driver.version_match", reason=reason, action="configure", remedy=remedy, **rest)
    on_disk = (view.get("kernel.available.nvidia") or {}).get("version")
    old = on_disk is not None and on_disk != user
    next_boot = f", and the next boot loads {on_disk}" if old else ": a reboot is needed"
    return checks.judged(
        "driver.version_match",
        ok,
        reason=None if ok else f"the loaded module is {loaded} and the libraries are {user}{next_boot}",
        action="install" if old else "reboot",
        remedy=f"{UP}, which brings both to one version, and reboot: alone that changes nothing"
        if old
        else "reboot the host; where that changes nothing, the initramfs holds the older module: make it again "
        "(update-initramfs -u, or dracut --force). Afterwards hold the packages, so that they are not upgraded unasked",
        **rest,
    )


def of_smi(view: View, driver: Optional[DriverStack], expected: Expected, foreign_driver: bool = False) -> List[Check]:
    """What nvidia-smi said in the observation. ``driver``: the part of the stack, None where none was resolved."""
    answer: Optional[Smi] = view.get("smi")
    if answer is None:
        if view.get("driver.loaded_version") is None and not view.why_unknown("smi"):
            return [checks.skipped("smi.runs", "the driver is not loaded, so nvidia-smi was not asked")]
        return [unknown("smi.runs", view, "smi", "what nvidia-smi says")]
    data = answer.get("data")
    result = [_smi_runs(answer)]
    if data is not None:
        result += smi_judge.judge(data, _smi_expectations(view, driver, expected, foreign_driver))
    return result


def _smi_runs(answer: Smi) -> Check:
    rc, error, data = answer["rc"], answer["error"], answer["data"]
    if error == ASLEEP:
        return checks.skipped("smi.runs", ASLEEP)
    notes = "\n".join(data["notes"] if data else ())
    text = "\n".join(part for part in (str(error or ""), notes) if part)
    trouble = smi_messages.explain(rc, text, error)
    rest: checks.Rest = {"measured": rc, "expected": 0, "unit": "exit status", "evidence": text}
    if trouble is not None:
        return checks.make(
            "smi.runs",
            trouble.status,
            trouble.severity,
            reason=trouble.cause,
            action=trouble.action,
            remedy=trouble.remedy,
            **rest,
        )
    if data is None:
        if rc == 0:
            rest.update({"measured": None, "expected": None, "unit": None})  # the status was right, the answer was not
        return checks.failed(
            "smi.runs", reason=str(error or "nvidia-smi gave no answer"), remedy="run nvidia-smi -q -x by hand", **rest
        )
    seconds = answer.get("seconds") or 0
    if seconds > smi_messages.SLOW_SECONDS:
        rest.update({"measured": round(seconds, 1), "expected": smi_messages.SLOW_SECONDS, "unit": "s"})
        return checks.failed(
            "smi.runs",
            "warning",
            reason="nvidia-smi answers slowly",
            action="configure",
            remedy="enable nvidia-persistenced; if it stays slow, look for a card that hangs",
            **rest,
        )
    return checks.passed("smi.runs", **rest)


def _smi_expectations(
    view: View, driver: Optional[DriverStack], expected: Expected, foreign_driver: bool
) -> smi_judge.Expected:
    """The caller's expectations, completed by the bus and by the stack."""
    wanted = expected.copy()
    on_bus = [document.normalise_bus_id(str(gpu.get("bus_id"))) for gpu in counted(view, expected)]
    if on_bus and not foreign_driver:
        wanted.setdefault("bus_ids", on_bus)
    if driver and driver.get("minimum"):
        wanted.setdefault("min_driver", driver["minimum"])
    if driver and not driver["adopted"] and not foreign_driver:
        wanted.setdefault("driver", driver["version"] or driver["branch"])
    if view.get("display.desktop") or view.environment == "wsl":
        # A desktop keeps the driver loaded by itself, and Windows its own.
        wanted.setdefault("persistence", False)
    return wanted


def of_seals(view: View, away: Optional[Mapping[str, str]] = None) -> List[Check]:
    """What gpuwright set up is still as it left it. ``away``: what is not wished now, each with what wishes it again."""
    seals = view.get("seals")
    if seals is None:
        return [unknown("seals", view, "seals", "whether something was changed since it was set up")]
    busy = at_work(view)
    return [_of_seal(name, seals[name], busy, (away or {}).get(name)) for name in sorted(seals)]


def at_work(view: View) -> Optional[str]:
    """Who works on this machine, and since when; None where nobody does."""
    lock = view.get("lock")
    if not lock or not lock.get("living"):
        return None
    who = (lock.get("owner") or "somebody unknown").partition(":")[0]
    return "a run of {} is at work since {}".format(who, lock.get("since") or "an unknown time")


def _of_seal(name: str, seal: Seal, busy: Optional[str], away: Optional[str]) -> Check:
    state, check_id = seal.get("state"), "seals." + name
    rest: checks.Rest = {"measured": state, "expected": "good"}
    if state == "begun" and busy:
        return checks.incomplete(check_id, busy, action="none", remedy=WAIT, **rest)
    if state == "good":
        return checks.passed(check_id, **rest)
    if state == "alone":
        reason = f"{seal.get('reason')}, which writes no seal"
        remedy = _of_away(away) if away else f"{UP}: it looks at it again, proves the node and seals it"
        return checks.skipped(check_id, reason, remedy=remedy, **rest)
    if state == "newer":
        return checks.failed(
            check_id,
            "warning",
            reason=f"set up by a newer gpuwright ({seal.get('gpuwright')})",
            action="install",
            remedy="use that version of gpuwright or a newer one for this host",
            **rest,
        )
    return checks.failed(
        check_id,
        reason="not as it was set up: " + str(seal.get("reason") or "no reason was given"),
        action="configure",
        remedy=_of_away(away) if away else f"{UP}, which brings it back, or make the change a part of the inventory",
        **rest,
    )


def _of_away(wish: str) -> str:
    return f"it is not wished now: {wish} brings it back; gpuwright remove takes back all that was brought"


def of_proof(view: View, expected: Expected) -> List[Check]:
    """The last proof holds: it passed, for this boot and this driver, and is not old."""
    proof: Optional[Proof] = view.get("proof")
    if proof is None:
        reason = view.why_unknown("proof") or "this host was never proven"
        return [checks.incomplete("proof.age", reason, action="none", remedy="run gpuwright validate")]
    stale = _why_stale(view, proof, int(expected.get("proof_max_age") or MAX_AGE))
    rest: checks.Rest = {"measured": proof.get("time"), "evidence": f"verdict {proof.get('verdict')}"}
    if stale:
        return [checks.incomplete("proof.age", stale, action="none", remedy="run gpuwright validate", **rest)]
    if proof.get("verdict") != "pass":
        return [
            checks.failed(
                "proof.age",
                reason=f"the last proof ended with {proof.get('verdict')}",
                action="none",
                remedy="repair what it named, then run gpuwright validate",
                **rest,
            )
        ]
    return [checks.passed("proof.age", **rest)]


def _why_stale(view: View, proof: Proof, max_age: int) -> Optional[str]:
    if proof.get("boot_id") and view.get("boot.id") and proof["boot_id"] != view.get("boot.id"):
        return "the host was rebooted since its last proof"
    if (
        proof.get("driver")
        and view.get("driver.loaded_version")
        and proof["driver"] != view.get("driver.loaded_version")
    ):
        return f"the driver was {proof['driver']} at the last proof and is {view.get('driver.loaded_version')} now"
    at = str(proof.get("time"))
    if moment(at) is None:
        return "the time of the last proof cannot be read"
    old = age(at, str(view.get("time")))
    if old is not None and old < -AHEAD:
        return f"the last proof is of {at}, which is yet to come: the clock was wrong then, or is now"
    if old is not None and old.total_seconds() > max_age:
        return f"the last proof is {words.count(old.days, 'days')} old"
    return None
