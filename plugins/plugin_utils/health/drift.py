# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which driver a node is on, whether it is held there, and in what it drifted from what it was sealed with.

Pure, from an observation and the plan that was made of it. What ``gpuwright status`` shows of a host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.measure import node_judge

from ..components.base import not_known
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.view import View
from ..model import sections
from ..model.proof import AHEAD, age

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ..model.plan import DriverVersions, Plan, ProofAge, Status

#: Checks of an observation that say that the driver is another one than it should be, or is not held.
_CHECKS = ("driver.loaded", "driver.version_match", "driver.next_kernel", "driver.lock", "gpu.on_bus")

_UPSTREAM = re.compile(r"^(?:\d+:)?(\d+(?:\.\d+)+)")


def status(facts: Facts, plan: Plan) -> Status:
    """What is shown of a host.

    Returns ``state`` (see :func:`state`), ``versions`` (``kernel``: the module that is loaded; ``user``: the libraries; ``next``: the
    module of the kernel that boots next, ``next_kernel``; ``wanted``: the sealed version, else what the plan leads to), ``held`` (None
    where nothing is locked: adopted, no driver), ``drift`` (sentences), ``unknown`` (what could not be read, each with a sentence),
    ``faults`` (sentences: what else is wrong there), ``cards``, ``proof`` (``verdict``, ``time``, ``age_seconds``; None where there is
    none).
    """
    checks = {check["id"]: check for check in plan["checks"]}
    lock = checks["driver.lock"]["status"] if "driver.lock" in checks else None
    drift, unknown, proof = _drift(facts, plan), _unknown(facts, plan), _proof(facts)
    faults = [] if plan["skipped"] else _faults(plan)
    holds = "proof.age" in checks and checks["proof.age"]["status"] == "pass"
    return {
        "state": state(drift, unknown, proof, faults, holds=holds, skipped=bool(plan["skipped"])),
        "versions": _versions(facts, plan),
        "held": {"pass": True, "fail": False}.get(str(lock)),
        "drift": drift,
        "unknown": unknown,
        "faults": faults,
        "cards": _cards(facts, plan),
        "proof": proof,
    }


def state(
    drift: Sequence[str],
    unknown: Mapping[str, str],
    proof: ProofAge | None,
    faults: Sequence[str] = (),
    *,
    holds: bool = True,
    skipped: bool = False,
) -> str:
    """A host in one word: ``skip``, ``drift``, ``fail`` where a check does, the verdict of a last proof that did not pass, ``unknown``,
    ``incomplete`` where it was never proven, nobody knows how long ago, or the proof does not hold any more, or ``ok``.
    """
    if skipped:
        return "skip"
    if drift:
        return "drift"
    if faults:
        return "fail"
    if proof and proof["verdict"] != "pass":
        return str(proof["verdict"])
    if unknown:
        return "unknown"
    return "ok" if holds and proof and proof["age_seconds"] is not None else "incomplete"


def _versions(facts: Facts, plan: Plan) -> DriverVersions:
    available = facts["kernel"]["available"].get("nvidia")
    return {
        "kernel": facts["driver"]["loaded_version"],
        "user": facts["driver"]["user_version"],
        "next": available["version"] if available else None,
        "next_kernel": facts["kernel"]["next"],
        "wanted": _sealed(facts) or _resolved(plan),
    }


def _sealed(facts: Facts) -> str | None:
    """The version that the node was sealed with."""
    seal, driver = sections.seal(facts, nvidia_driver.NAME), sections.sealed_stack(facts, "nvidia_driver")
    packages = (seal["packages"] if seal else None) or {}
    if not driver or driver.get("adopted") or not packages:
        return driver.get("version")
    of_any_version = cast("DriverStack", {**driver, "version": driver.get("version") or "any"})
    for name in nvidia_driver.versioned_packages(of_any_version):
        found = _UPSTREAM.match(str(packages.get(name) or ""))
        if found:
            return found.group(1)
    return None


def _resolved(plan: Plan) -> str | None:
    """What a node without a seal would come to: an exact version only where one was wished."""
    driver = plan["stack"].get("driver")
    if driver is None:
        return None
    return driver["version"] or f"branch {driver['branch']}"


def _unknown(facts: Facts, plan: Plan) -> dict[str, str]:
    """What only root may read, and this look could not: nothing of it is taken for fine, or for missing."""
    if not plan["skipped"] and (run := node_judge.at_work(View(facts))):
        return {"lock": run}
    told = {"seals": "whether the driver is as gpuwright sealed it", "proof": "whether the node was proven"}
    return {
        fact: not_known(facts, fact, what)
        for fact, what in told.items()
        if fact in facts["unknown"] and not plan["skipped"]
    }


def _drift(facts: Facts, plan: Plan) -> list[str]:
    """Why the driver is not as it was sealed or wished: what the plan would change of it, and what its checks say. Of a user without root:
    why the environments are not as they were sealed.
    """
    if plan["skipped"] or node_judge.at_work(View(facts)):
        return []
    found = [] if not plan["error"] else [str(plan["error"])]
    found += [str(row["text"]) for row in (*plan["conflicts"], *plan["refusals"])]
    if sections.user(facts) is not None:  # the driver is root's
        seals = (facts["seals"] or {}).values()
        return _without_repeats(found + [str(seal["reason"]) for seal in seals if seal["state"] != "good"])
    changes = [change for change in plan["changes"] if change["component"] == nvidia_driver.NAME]
    if facts["seals"] is None:  # that the driver is to be sealed is then no more than that nobody could look
        changes = [change for change in changes if change["action"] != "adopt"]
    found += [str(change["reason"]) for change in changes]
    found += [
        str(check["reason"])
        for check in plan["checks"]
        if check["id"] in _CHECKS and check["status"] in ("fail", "incomplete")
    ]
    return _without_repeats(found)


def _faults(plan: Plan) -> list[str]:
    """What else is not as it was set up, or does not work: the checks that fail and are not about the driver's versions. That of the proof
    has its own column.
    """
    told = (*_CHECKS, "proof.age", f"seals.{nvidia_driver.NAME}")
    return [
        f"{check['id']}: {check['reason']}"
        for check in plan["checks"]
        if check["status"] == "fail" and check["id"] not in told
    ]


def _without_repeats(found: list[str]) -> list[str]:
    """The sentences in their order, without those that another one says already (a check joins the plan's reasons)."""
    rows = list(dict.fromkeys(found))
    parts = {row: set(row.split("; ")) for row in rows}
    told: set[str] = set()
    kept = []
    for row in rows:
        if not parts[row] <= told:
            kept.append("; ".join(part for part in row.split("; ") if part not in told))
            told |= parts[row]
    return kept


def _cards(facts: Facts, plan: Plan) -> list[str]:
    """Names of the cards: as the rules resolved them, else as nvidia-smi calls them, else their PCI ids."""
    named = [str(card["name"]) for card in plan["gpus"]] or [str(card["name"]) for card in sections.cards(facts)]
    return named or [str(card["device"]) for card in facts["pci"]["gpus"] or ()]


def _proof(facts: Facts) -> ProofAge | None:
    proof = facts["proof"]
    if not proof:
        return None
    old = age(proof["time"], facts["time"])
    seconds = None if old is None or old < -AHEAD else max(0, int(old.total_seconds()))
    return {"verdict": proof["verdict"], "time": proof["time"], "age_seconds": seconds}
