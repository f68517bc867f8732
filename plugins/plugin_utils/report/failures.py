# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What ended a run on a host, from the task that failed; and whether it was the driver, from which there is a way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ..components import COMPONENTS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.plan import Plan

#: Roles of a play that are no component of a plan.
_OTHER_ROLES = ("preflight", "remove")
#: The step before each component, in which a run finds that another one has had the node meanwhile.
_HOLD = "hold"
#: Lines that are kept of what a program said: apt's own message does not tell why a package's script failed.
_LINES = 25
#: Checks that a driver answers for: that it works, and that the cards compute.
_OF_DRIVER = ("driver.", "smi.", "gpu.", "cuda.")


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
        "of_driver": component in COMPONENTS and "driver" in COMPONENTS[component].touches,
    }


def of_checks(checks: Sequence[Check]) -> Failure | None:
    """A failed proof of a driver; None where no check of a driver failed badly."""
    failed = [
        check
        for check in checks
        if check["status"] == "fail"
        and check["severity"] in ("critical", "fatal")
        and check["id"].startswith(_OF_DRIVER)
    ]
    if not failed:
        return None
    return {
        "task": "Prove the node",
        "message": "; ".join(check["reason"] or check["id"] for check in failed),
        "component": "validate",
        "output": "",
        "program": None,
        "of_driver": True,
    }


def _of_item(result: _Result) -> _Result:
    """Of a task with a loop the first item that failed."""
    items = result.get("results")
    failed = (
        [item for item in items if isinstance(item, Mapping) and item.get("failed")] if isinstance(items, list) else []
    )
    return failed[0] if failed else result


def _component(task: _Task, plan: Plan) -> str:
    tags = task.get("tags")
    tagged = tags if isinstance(tags, list) else []
    if str(task["action"]).endswith("node_seal"):
        return _HOLD if _HOLD in tagged else "lock"
    known = [name for name in (*_OTHER_ROLES, *COMPONENTS) if name in tagged]
    # What follows the last role, such as the second look, is told as a part of it.
    return known[0] if known else [*_OTHER_ROLES[:1], *(name for name in plan["components"] if name in COMPONENTS)][-1]


def _program(task: _Task, result: _Result) -> str:
    if str(task["action"]).rpartition(".")[2] == "apt":
        return "apt-get"
    command = result.get("cmd")
    words = command.split() if isinstance(command, str) else command if isinstance(command, list) else []
    return str(words[0]).rpartition("/")[2] if words else ""


def _lines(result: _Result, stream: str) -> list[str]:
    lines = result.get(f"{stream}_lines")
    return [str(line) for line in lines] if isinstance(lines, list) else str(result.get(stream) or "").splitlines()
