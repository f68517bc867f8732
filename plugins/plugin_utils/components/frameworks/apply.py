# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One virtual environment a framework, pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework import judge_files

from ...model.plan import Change
from ...model.stack import Stack
from ...wish.wish import Wish
from ..base import Component, Context, Finding, Manages, Need
from ..demand import Demand
from ..view import View
from . import contents, differences, kernels, returning
from .asked import built, wheels, whole_version
from .contents import interpreters
from .model import FrameworkEnvironment
from .work import Wished, begin, installed, look, uv

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, PythonEnvironment

    from ...model.plan import Plan
    from ...model.shortfalls import Need as DiskNeed

__all__ = [
    "COMPONENT",
    "NAME",
    "Wished",
    "built",
    "condemned",
    "findings",
    "inputs",
    "installed",
    "interpreters",
    "look",
    "manages",
    "rebuilds",
    "returning",
    "uv",
    "wanted",
    "whole_version",
]

NAME = "frameworks"
#: Bytes (as preflight_framework_mib has them) and files of an environment with PyTorch and its CUDA libraries; assumed, with a margin.
FRAMEWORK_BYTES = 6144 * 1024**2
FRAMEWORK_FILES = 40_000
#: Packages that a person is told of.
_NAMED = 8
#: Actions of a change that leave the builds of environments as they are.
_BESIDE = ("configure", "return", "adopt", "remove")


def wanted(context: Context) -> bool:
    return bool(context.stack.get("frameworks"))


def findings(context: Context) -> list[Finding]:
    found = []
    environments = context.facts["environments"] or {}
    for framework in contents.environments(context.stack):
        environment = environments.get(framework["path"])
        present = environment["packages"] if environment else {}
        wrong = differences.of_contents(framework, environment) + differences.of_activation(framework, environment)
        broken = differences.of_health(framework["path"], environment, context)
        kernel = differences.of_kernel(framework, environment)
        if framework.get("restores") and environment:
            found.append(_return(framework, environment, context))
        elif wrong or broken or kernel:
            before = next(
                (present.get(contents.name(pin)) for pin in framework["requirements"] if contents.name(pin) in present),
                None,
            )
            built = differences.is_built(framework, environment, context)
            found.append(
                Finding(
                    _action(framework, environment, before, wrong, built=built) if wrong or broken else "configure",
                    f"{framework['path']} {' and '.join(wrong + broken + kernel)}",
                    before,
                    contents.titles(framework["path"], context.stack),
                    packages=_interpreter(framework, context) if built else [],
                    files=[framework["path"], *differences.kernel_files(framework, environment)],
                )
            )
    return found


def _return(framework: FrameworkEnvironment, environment: PythonEnvironment, context: Context) -> Finding:
    """The build that was in use before comes back, whatever is wished of it."""
    packages, kept = environment["packages"], environment.get("kept")
    there = kept["packages"] if kept else {}
    names = returning.changed(environment)
    told = [f"{name} {there.get(name, 'gone')} instead of {packages.get(name, 'none')}" for name in names[:_NAMED]]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return Finding(
        "return",
        f"{framework['path']} goes back to the build that was in use before: {', '.join([*told, *more]) or 'with the same packages'}",
        next(
            (packages[contents.name(pin)] for pin in framework["requirements"] if contents.name(pin) in packages), None
        ),
        contents.titles(framework["path"], context.stack),
        files=[framework["path"], *differences.kernel_files(framework, environment)],
    )


def _action(
    framework: FrameworkEnvironment,
    environment: PythonEnvironment | None,
    before: str | None,
    wrong: Sequence[str],
    *,
    built: bool,
) -> str:
    if not built:
        return "return" if differences.is_kept(framework, environment) else "configure"
    if not wrong:
        return "repair"
    return "upgrade" if before else "install"


def _interpreter(framework: FrameworkEnvironment, context: Context) -> list[str]:
    """The package with a Python that is not there yet; named in the plan, so that the index is asked for it before anything changes."""
    wished = str(framework["interpreter"])
    there = [str(each["version"]) for each in context.facts["python"]["interpreters"]]
    if any(numeric_version.belongs(version, wished) for version in there):
        return []
    return [contents.maker(wished, context.facts["os"]["family"])]


def condemned(facts: Facts) -> list[str]:
    """Environments that the last proof found damaged, or could not import the framework in: an ordinary look may see nothing of it."""
    proof = facts["proof"]
    failed = [
        check
        for check in (proof.get("checks") or () if proof else ())
        if check["status"] == "fail" and check["action"] == "install"
    ]
    # Each of the two names the environment in a place of its own.
    return [
        str(check["expected"] if check["id"] == "framework.import" else check["evidence"])
        for check in failed
        if check["id"] in ("framework.import", "framework.files")
    ]


def rebuilds(context: Context) -> list[str]:
    """Environments that are made anew: damaged ones, in which pip finds all that it asks for, and those that are condemned."""
    environments = context.facts["environments"] or {}
    paths = [framework["path"] for framework in contents.environments(context.stack)]
    return [
        path
        for path in paths
        if path in environments and (environments[path].get("damage") or path in context.condemned)
    ]


def manages(context: Context) -> Manages:
    rows = contents.environments(context.stack)
    return Manages(
        environments=[framework["path"] for framework in rows],
        files=[kernels.file(framework["kernel"]) for framework in rows if framework.get("kernel")],
    )


def inputs(context: Context) -> Mapping[str, object]:
    keys = ("name", "requirements", "constraints", "index_url", "dependencies_url", "path", "loader_path", "wheels")
    return {"frameworks": [_input(framework, keys) for framework in context.stack["frameworks"]]}


def _input(framework: FrameworkEnvironment, keys: Sequence[str]) -> Mapping[str, object]:
    # What most environments have nothing of, and so had none in the seals of before.
    given: Mapping[str, object] = framework
    told = {key: given[key] for key in ("stays", "environment", "others", "installs", "kernel") if given.get(key)}
    return {**{key: framework.get(key) for key in keys}, **told}


def needs(context: Context, plan: Plan, size: int) -> list[DiskNeed]:
    """Room for the environments that are built: each beside the one that is there. ``size``: bytes of one with its own CUDA."""
    changes = [
        row for row in plan["changes"] if row["component"] == NAME and row["files"] and row["action"] not in _BESIDE
    ]
    stack = context.stack.get("frameworks") or ()
    place = str(PurePosixPath(stack[0]["path"]).parent) if stack else "/opt/gpuwright"
    each = size // (6 if plan["cpu_only"] else 1)
    files = len(changes) * FRAMEWORK_FILES
    return [{"what": "environments of frameworks", "path": place, "bytes": len(changes) * each, "files": files}]


def _any(_name: str, _found: str) -> bool:
    return True


def demands(stack: Stack, wish: Wish) -> list[Demand]:
    """Return the Pythons that the environments run on: those that come with a package are in minor releases of the system, or not."""
    versions = dict.fromkeys(str(framework["interpreter"]) for framework in stack.get("frameworks") or ())
    asked = {wish.python, *wish.pythons.values()}
    return [
        Demand("python", version, interpreters(version), _any, version in asked, refused=False) for version in versions
    ]


def _space(change: Change, context: Context) -> list[Need]:
    """What an environment takes that is built beside the one that is there; one for the processor is smaller."""
    if change["action"] in _BESIDE:
        return []
    size = FRAMEWORK_BYTES // (6 if context.cpu_only else 1)
    return [Need(path, size, FRAMEWORK_FILES) for path in change["files"][:1]]


def judge(view: View, stack: Stack) -> list[Check]:
    """What pip installed for each framework is still there; an environment that is not made yet has nothing to judge."""
    environments = view.get("environments") or {}
    paths = [framework["path"] for framework in contents.environments(stack)]
    return [judge_files(path, environments[path].get("damage") or ()) for path in paths if path in environments]


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("frameworks",),
    demands=demands,
    wheels=wheels,
    space=_space,
    directories=kernels.DIRECTORIES,
    steps={"begin": begin},
    judge=judge,
)
