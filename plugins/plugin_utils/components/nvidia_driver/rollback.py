# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The way back to a driver that worked: what is remembered of one before a change, and what returning to it takes.

A state is remembered on the node (records/history.py) before the driver changes, and returned to as a whole: every package of the
driver at the version that it had, the ones that came since removed, in one transaction; or the file of NVIDIA's that brought it, run again.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ....module_utils.base import paths
from ....module_utils.records import history
from ...model import sections
from ...resolver import adoption
from ...wish.wish import Wish
from ..base import Finding, not_known
from . import runfile

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Driver, Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
        DriverStack,
        DriverState,
        KeptDriver,
        Runfile,
    )

    from ...model.plan import Brings, GaveWay, Plan, Restore, StoppedBy
    from ...model.stack import Refusal, Why
    from ...resolver.machine import Machine


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PACKAGE_MANAGERS = ("apt-get", "dpkg", "dnf")
_NO_SPACE = "No space left on device"
_ADDRESS = re.compile(r"https?://")
#: As dpkg and rpm say it.
_SCRIPT_FAILED = re.compile(r".*\bscript (?:subprocess )?returned error exit status.*|.*\bscriptlet failed\b.*")
#: Characters that are kept of the reason why a driver failed.
_REASON_LENGTH = 400


def working(facts: Facts) -> DriverState | None:
    """The driver that works now, as it is remembered before it changes; None where none works, or nothing could bring it again.

    It works where the kernel runs the version that user space has and nvidia-smi answers. ``proven``: the last proof was of it.
    A driver of NVIDIA's file can be brought again where the seal says which file that was.
    """
    driver, smi, proof = facts["driver"], facts["smi"], facts["proof"]
    version, manager = driver["loaded_version"], facts["packages"]["manager"]
    if version is None or driver["user_version"] != version or smi is None or smi["rc"] != 0:
        return None
    sealed = sections.sealed_driver(facts)
    if driver["owner"] != "packages" and not (driver["owner"] == "runfile" and _brought_it(sealed, driver)):
        return None
    packages = dict(driver["packages"] or {})
    arch = facts["os"]["arch"] or ""
    return {
        "version": version,
        "modules": driver["loaded_modules"],
        "source": driver["source"],
        "packages": packages,
        "holds": sorted(set(facts["packages"]["holds"] or ()) & set(packages)),
        "stack": cast("DriverStack", {key: value for key, value in sealed.items() if key != "replaces"}),
        "manager": manager,
        "arch": _ARCHITECTURES.get(arch) if manager == "apt" else arch,
        "streams": facts["packages"].get("streams") or {},
        "kernel": facts["kernel"]["running"],
        "proven": proof is not None and proof["verdict"] == "pass" and proof["driver"] == version,
        "time": facts["time"],
    }


def _brought_it(stack: DriverStack, driver: Driver) -> bool:
    """Whether this very driver came from the file that its part of the stack names."""
    file = history.file_of(stack)
    this = (driver["loaded_version"], driver["loaded_modules"])
    return file is not None and (stack["version"], stack["modules"]) == this


def is_there(facts: Facts, remembered: DriverState | None, brings: Brings | None, driver: DriverStack | None) -> bool:
    """Whether a driver that fails now can give way to another: one that works before the change, or one that is remembered.

    ``brings`` and ``driver``: what this run brings, and the stack's part that it comes from. Where the driver that works is not exchanged
    (a lost hold that comes back, a check that fails) there is nothing to go back from: then it is the card that fails, or the machine.
    The same goes for a driver that was proven once where the run changes nothing of it.
    """
    if remembered is not None:
        return brings is not None and not _stays_as_it_is(remembered, brings, driver)
    record, present = sections.history(facts), facts["driver"]["user_version"]
    return record.get("proven") != present and any(version != present for version in record["drivers"])


def failing(facts: Facts, checks: Sequence[Check], *, changes: bool) -> list[str] | None:
    """The checks that did not pass before the driver changed: a driver is not blamed for them. None where nobody knows.

    ``checks``: of the observation that the plan was made from. It is from before the change where this run ``changes`` the driver; where an
    earlier run did, as before a boot, the record of the driver that gave way has them. What CUDA said then, the last proof knows.
    """
    if not changes:
        record, present = sections.history(facts), facts["driver"]["user_version"]
        last = next((version for version in record["drivers"] if version and version != present), None)
        return record.get("failing", {}).get(last) if last else None
    proof, loaded = facts["proof"], facts["driver"]["loaded_version"]
    proven = (proof.get("checks") or []) if proof and proof["driver"] == loaded else []
    return sorted({check["id"] for check in (*checks, *proven) if check["status"] in ("fail", "incomplete")})


def _stays_as_it_is(remembered: DriverState, brings: Brings, driver: DriverStack | None) -> bool:
    """Whether a run brings the driver that works. Of no known version it is of the branch, in which a node does not move unasked."""
    of_branch = str(remembered["version"]).partition(".")[0] == (driver["branch"] if driver else None)
    version = remembered["version"] if brings["version"] is None and of_branch else brings["version"]
    return history.is_build(remembered, {**brings, "version": version})


def target(facts: Facts) -> DriverState | None:
    """The newest remembered state that is not the present one."""
    states: Sequence[DriverState] = sections.history(facts).get("states") or ()
    return next((state for state in states if not is_present(state, facts)), None)


def is_present(state: DriverState, facts: Facts) -> bool:
    """Whether a state is the one that is there."""
    return history.same(state, _present(facts))


def _present(facts: Facts) -> dict[str, object]:
    """The driver that is there, working or not, as far as a state tells of it."""
    driver = facts["driver"]
    return {
        "source": driver["source"],
        "packages": driver["packages"] or {},
        "version": driver["user_version"],
        "modules": runfile.flavour(facts),
    }


def rolled_back_from(facts: Facts, begun: Plan | None, failure: StoppedBy | None = None) -> GaveWay | None:
    """The driver that a run returns from, as it is remembered. ``begun``: the plan of that run; ``failure``: what stopped it, with the
    program that did, see playbooks/site.yml.

    None where the run did not get so far that another driver was there (a file that could not be fetched, packages that were refused, say
    nothing of a driver), where another kernel came meanwhile, and where it was not the driver that failed.
    """
    if (
        begun is None
        or not begun["brings"]
        or (begun["remember"] and history.is_build(begun["remember"], _present(facts)))
        or _had_no_room(facts, begun["brings"]["version"])
        or sections.another_kernel(facts, begun["brings"])
        or (failure is not None and not _at_fault(failure))
    ):
        return None
    reason = f"{failure['task']}: {failure['message']}" if failure else ""
    return {**begun["brings"], "reason": textwrap.shorten(reason, _REASON_LENGTH), "time": facts["time"]}


def _had_no_room(facts: Facts, version: str | None) -> bool:
    """Whether it was the disk or the memory that stopped a build of this driver."""
    failed = facts["dkms"]["failed"]
    return any(build["transient"] and build["version"] == version for build in failed)


def _at_fault(failure: StoppedBy) -> bool:
    """Whether what stopped a run says something of the driver.

    A package manager that was killed, found a file of its own gone or the disk full, does not; a script of a package that failed does,
    as the one that builds the module.
    """
    program = failure["program"] or {"name": "", "said": ""}
    if _NO_SPACE in failure["message"] + program["said"]:
        return False
    return program["name"] not in _PACKAGE_MANAGERS or _script(program["said"]) is not None


def _script(said: str) -> str | None:
    """The line that tells of the first script of a package that failed."""
    found = _SCRIPT_FAILED.search(said)
    return found[0].strip() if found else None


def failed_before(facts: Facts, brings: Brings | None) -> Refusal | None:
    """Why a driver is not tried again: it failed on this very kernel, and the node was returned from it."""
    rows = sections.history(facts)["failed"]
    row = next((each for each in rows if brings and history.is_driver(each, brings)), None)
    if row is None:
        return None
    text = (
        f"driver {row['version']} ({row['modules']} modules, source {row['source']}) failed on kernel {row['kernel']} on {row['time']},"
        f" and this node was returned from it: {row['reason']}"
    )
    log = (
        f"read {row['log']} on the node"
        if row.get("log")
        else f"read the kernel's log of that time (journalctl -k --since '{row['time']}')"
    )
    remedy = (
        f"{log}; then ask for another version (--want driver=VERSION), boot another kernel, or have it tried again all the same:"
        " -e gpuwright_retry=true"
    )
    return {"rule": "driver-failed-before", "text": text, "source": "gpuwright", "remedy": remedy}


def without_driver(wish: Wish) -> Wish:
    """A wish that leaves the driver to the state that is returned to."""
    return replace(wish, driver_source=None, driver_branch=None, driver_version=None, driver_modules=None)


def asked(wish: Wish) -> KeptDriver:
    """What a wish says of the driver: a rollback stays for as long as this is the same."""
    return {
        "source": wish.driver_source,
        "branch": wish.driver_branch,
        "version": wish.driver_version,
        "modules": wish.driver_modules,
    }


def staying(facts: Facts, wish: Wish) -> DriverStack | None:
    """The sealed driver part of the stack that a rollback led to, for a wish that is the one of then; else None."""
    sealed = sections.sealed_driver(facts)
    return _trusted(sealed, wish.driver_runfile) if sealed.get("stays") == asked(wish) else None


def told(facts: Facts, driver: DriverStack | None) -> list[Why]:
    """That a node was rolled back, and whether it stays there (``driver`` is the one that the stack has now)."""
    sealed = sections.sealed_driver(facts)
    if sealed.get("stays") is None:
        return []
    version = facts["driver"]["user_version"] or sealed["version"] or f"of branch {sealed['branch']}"
    ends = (
        "it stays there until the wish for a driver changes, or gpuwright upgrade is asked for"
        if driver and driver.get("stays") is not None
        else "the wish for a driver is another one since, or an upgrade was asked for, so it moves on"
    )
    return [
        {"rule": "rolled-back", "text": f"this node was rolled back to driver {version}: {ends}", "source": "gpuwright"}
    ]


def _trusted(stack: DriverStack, given: str | None) -> DriverStack:
    """A remembered driver part of the stack without the paths on the controller that it may name."""
    file = history.file_of(stack) if stack["source"] == "runfile" else None
    return {**stack, "runfile": {**file, "addresses": addresses(file, given)}} if file else stack.copy()


def stack_of(state: DriverState, given: str | None = None) -> DriverStack:
    """The driver part of the stack: the one that was sealed, else one that is as it was found and adopted; so is one of NVIDIA's file
    that names no file. ``given``: this run's own nvidia_driver_runfile.
    """
    stack = sealed_in(state)
    if stack and (stack["source"] != "runfile" or stack.get("runfile")):
        return _trusted(stack, given)
    return {
        "branch": str(state["version"]).partition(".")[0],
        "version": state["version"],
        "modules": state["modules"] or "proprietary",
        "source": state["source"] or "unknown",
        "source_reason": "it worked before",
        "build": None,
        "set": None,
        "packages": [],
        "pin": {},
        "kernel_module": adoption.kernel_module(state["packages"], state["source"]),
        "minimum": None,
        "adopted": True,
        "headers": None,
    }


def sealed_in(state: DriverState) -> DriverStack | None:
    """The driver part of the stack that was sealed with a state; None where gpuwright had not installed that driver."""
    return state["stack"] if len(state["stack"]) else None


def finding(state: DriverState, facts: Facts) -> Finding:
    """The change that returns to a state."""
    before = facts["driver"]["user_version"] or facts["driver"]["loaded_version"]
    how = "was proven" if state["proven"] else "worked"
    reason = f"back to the driver that {how} until {state['time']}"
    file = file_of(state)
    files = [file["name"]] if file else []
    return Finding("upgrade", reason, before, state["version"], packages=sorted(state["packages"]), files=files)


def file_of(state: DriverState) -> Runfile | None:
    """The file of NVIDIA's that brought a driver; None for one of packages."""
    return history.file_of(state["stack"]) if state["source"] == "runfile" else None


def addresses(file: Runfile, given: str | None) -> list[str]:
    """From where a remembered file may be had again. The record is the node's: no path on the controller is taken from it, only one that
    this run names itself (``given``) and that is the one of the record.
    """
    return [each for each in file["addresses"] if is_address(each) or each == given]


def is_address(text: str | None) -> bool:
    """Whether a place of NVIDIA's file is one that the node itself fetches from, and no path on the controller."""
    return _ADDRESS.match(text or "") is not None


def arriving(machine: Machine, state: DriverState | None) -> Machine:
    """The machine as NVIDIA's file finds it on the way back to a driver of one: its packages go before."""
    if state is None or file_of(state) is None:
        return machine
    return replace(machine, driver=None, driver_owner="none", driver_source=None)


def copies(state: DriverState, facts: Facts) -> dict[str, str]:
    """The packages of a state that are kept on the node, by name, with their files."""
    kept = set(sections.history(facts).get("copies") or ())
    return {
        name: f"{paths.PACKAGES}/{file}"
        for name, version in state["packages"].items()
        for file in history.copy_names(state, name, version)
        if file in kept
    }


def work(state: DriverState, facts: Facts) -> Restore:
    """What the role does: packages at their versions or from their files, what goes, and the holds; on dnf the module stream too.
    NVIDIA's file is in the stack.
    """
    files = copies(state, facts)
    present = facts["driver"]["packages"] or {}
    held = set(facts["packages"]["holds"] or ()) & {*present, *state["packages"]}
    return {
        "version": state["version"],
        "source": state["source"],
        "packages": dict(state["packages"]),
        "files": files,
        "install": [files.get(name) or f"{name}={version}" for name, version in sorted(state["packages"].items())],
        "remove": sorted(set(present) - set(state["packages"])),
        "hold": list(state["holds"]),
        "unhold": sorted(held - set(state["holds"])),
        "streams": streams(facts, state.get("streams") or {}, state["stack"]),
    }


def streams(facts: Facts, then: Mapping[str, str], stack: DriverStack | None = None) -> dict[str, str]:
    """The module streams to go back to, by module, where another one is enabled now; an empty one is none.

    Only of the driver's module, which the present stack or the one that is returned to names: others are not ours.
    """
    present = sections.sealed_driver(facts)
    pins = [each.get("pin") for each in (present, stack) if each]
    named = [(pin.get("stream") or "").partition(":")[0] for pin in pins if pin]
    now = facts["packages"].get("streams") or {}
    return {name: then.get(name, "") for name in sorted({*named} - {""}) if now.get(name) != then.get(name)}


def refusals(state: DriverState, facts: Facts, versions: Mapping[str, str], given: str | None = None) -> list[Refusal]:
    """Packages that are neither kept on the node nor in its index, and a file of NVIDIA's that is neither kept there nor to be had.
    ``given``: this run's own nvidia_driver_runfile.
    """
    files = copies(state, facts)
    file = file_of(state)
    if state["source"] == "runfile" and file is None:
        text = f"the record on this node does not say which of NVIDIA's files brought driver {state['version']}"
        remedy = "choose a driver: gpuwright upgrade --want driver=VERSION; or take everything back: gpuwright remove"
        return [{"rule": "rollback-file", "text": text, "source": "gpuwright", "remedy": remedy}]
    if file and not addresses(file, given) and file["name"] not in (sections.history(facts).get("copies") or ()):
        text = f"{file['name']}, which brought driver {state['version']}, is not kept on the node, and this run does not say where it is"
        remedy = f"name it was named then (-e nvidia_driver_runfile=PATH), or put it into {paths.PACKAGES} on the node and run again"
        return [{"rule": "rollback-file", "text": text, "source": "gpuwright", "remedy": remedy}]
    lost = [
        f"{name} {version}"
        for name, version in sorted(state["packages"].items())
        if name not in files and versions.get(name) != version
    ]
    if not lost:
        return []
    text = f"{words.count(len(lost), 'packages')} of driver {state['version']} {words.verb(len(lost), 'are')} neither in the package "
    text += f"index nor kept on the node: {', '.join(lost[:5])}"
    remedy = f"name a mirror that has them (gpuwright_mirrors), or put the files into {paths.PACKAGES} and run again"
    return [{"rule": "rollback-packages", "text": text, "source": "gpuwright", "remedy": remedy}]


def nowhere(facts: Facts) -> Refusal:
    """Why there is no way back."""
    if "history" in facts["unknown"]:
        text = not_known(facts, "history", "which drivers worked before")
        return {"rule": "rollback-unknown", "text": text, "source": "gpuwright", "remedy": "run with sudo, or give -K"}
    states = sections.history(facts).get("states") or ()
    told = f"only driver {states[0]['version']}, which is the present one" if states else "none"
    text = f"no earlier driver that worked is remembered on this node ({told}), and no build of an environment is kept"
    remedy = "choose one: gpuwright upgrade --want driver=VERSION; or take everything back: gpuwright remove"
    return {"rule": "rollback-nowhere", "text": text, "source": "gpuwright", "remedy": remedy}
