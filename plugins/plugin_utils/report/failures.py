# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What ended a run on a host, from the task that failed; and whether it was the driver, from which there is a way back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ..components.registry import COMPONENTS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.plan import Plan

#: Roles of a play that are no component of a plan.
_OTHER_ROLES = ("preflight", "remove")
#: The step before each component, in which a run finds that another one has had the node meanwhile.
_HOLD = "hold"
#: Lines that are kept of what a program said: apt's own message does not tell why a package's script failed.
_LINES = 25
#: Checks that a driver answers for: that it is there and runs.
_OF_DRIVER = (
    "driver.loaded",
    "driver.module",
    "driver.modules",
    "driver.next_kernel",
    "driver.secure_boot",
    "driver.version_match",
    "smi.runs",
)
#: Checks of what a driver makes of cards that are well. A card that is lost or missing fails them too.
_OF_CARDS = ("smi.readable", "gpu.count", "gpu.readable", "cuda.init", "cuda.count", "cuda.version", "cuda.compute")
#: Modules that fetch, or write where from: a network or a mirror that fails says nothing of a driver.
_FETCHING = ("package_sources", "repository_key", "get_url", "driver_file")
#: Tag of a task that tells of what is no fault of a driver: a machine that did not come back from its boot, a kernel that came meanwhile.
_NOT_OF_DRIVER = "not_of_driver"
#: Actions of ours that look at the node themselves, and know better than the name of a step.
_KNOWING = ("work", "seal")


class Program(TypedDict):
    """The program that failed, and all that it said."""

    name: str
    said: str


class Failure(TypedDict):
    """What failed, and in which step."""

    task: str
    message: str
    component: str
    output: str
    program: Program | None
    of_driver: bool


#: A task as Ansible dumps it, and a result of one.
_Task = Mapping[str, object]
_Result = Mapping[str, object]


def of_task(task: _Task, result: _Result, plan: Plan) -> Failure:
    """The failure of a task. Its role is known by the tag that a play applies to each, whatever role it includes in turn."""
    result = _of_item(result)
    said = [*_lines(result, "stdout"), *_lines(result, "stderr")]
    component = _component(task, plan)
    return {
        "task": str(task["name"]),
        "message": str(result.get("msg") or "no message"),
        "component": component,
        "output": "\n".join(said[-_LINES:]),
        "program": {"name": _program(task, result), "said": "\n".join(said)},
        "of_driver": _is_of_driver(task, result, component),
    }


def of_checks(checks: Sequence[Check], before: Collection[str] | None) -> Failure | None:
    """A failed proof of a driver; None where no check of a driver failed badly that did not fail ``before`` the driver changed,
    and where nobody knows what did.

    A card that is lost, or that is not on the bus, is no fault of a driver, nor is what CUDA says for that reason.
    """
    bad = [check for check in checks if check["status"] == "fail" and check["severity"] in ("critical", "fatal")]
    names = _OF_DRIVER if any(map(_is_of_hardware, bad)) else (*_OF_DRIVER, *_OF_CARDS)
    failed = [
        check
        for check in bad
        if check["id"] in names and check["id"] not in (before or ()) and not _is_of_hardware(check)
    ]
    if not failed or before is None:
        return None
    return {
        "task": "Prove the node",
        "message": "; ".join(check["reason"] or check["id"] for check in failed),
        "component": "validate",
        "output": "",
        "program": None,
        "of_driver": True,
    }


def _is_of_driver(task: _Task, result: _Result, component: str) -> bool:
    action = str(task["action"]).rpartition(".")[2]
    if component not in COMPONENTS or "driver" not in COMPONENTS[component].touches:
        return False
    if action in _FETCHING or _NOT_OF_DRIVER in _tags(task):
        return False
    return action not in _KNOWING or result.get("of_driver") is not False


def _is_of_hardware(check: Check) -> bool:
    """Whether a check tells of a card that is broken, or of one that is not on the bus: of those on it, it is said which is missed."""
    missing = check["id"] in ("gpu.count", "gpu.on_bus") and not check["evidence"]
    return check["severity"] == "fatal" or missing


def _of_item(result: _Result) -> _Result:
    """Of a task with a loop the first item that failed."""
    items = result.get("results")
    failed = (
        [item for item in items if isinstance(item, Mapping) and item.get("failed")] if isinstance(items, list) else []
    )
    return failed[0] if failed else result


def _component(task: _Task, plan: Plan) -> str:
    tags = _tags(task)
    if str(task["action"]).endswith("node_seal"):
        return _HOLD if _HOLD in tags else "lock"
    known = [name for name in (*_OTHER_ROLES, *COMPONENTS) if name in tags]
    # What follows the last role, such as the second look, is told as a part of it.
    return known[0] if known else [*_OTHER_ROLES[:1], *(name for name in plan["components"] if name in COMPONENTS)][-1]


def _tags(task: _Task) -> list[object]:
    tags = task.get("tags")
    return tags if isinstance(tags, list) else []


def _program(task: _Task, result: _Result) -> str:
    if str(task["action"]).rpartition(".")[2] == "apt":
        return "apt-get"
    command = result.get("cmd")
    words = command.split() if isinstance(command, str) else command if isinstance(command, list) else []
    return str(words[0]).rpartition("/")[2] if words else ""


def _lines(result: _Result, stream: str) -> list[str]:
    lines = result.get(f"{stream}_lines")
    return [str(line) for line in lines] if isinstance(lines, list) else str(result.get(stream) or "").splitlines()
