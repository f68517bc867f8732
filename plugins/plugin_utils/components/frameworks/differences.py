# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is not as wished in an environment, as parts of a sentence, and whether a build mends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.observe import jupyter_kernels

from ...wish import specifiers
from . import contents, kernels

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import KeptEnvironment, PythonEnvironment

    from ..base import Context
    from .model import FrameworkEnvironment


def is_built(framework: FrameworkEnvironment, environment: PythonEnvironment | None, context: Context) -> bool:
    """Whether a build is made: something is not as it is to be that only a build mends, and none is kept that has it."""
    if framework.get("restores"):
        return False
    broken = of_health(framework["path"], environment, context)
    return bool(of_contents(framework, environment) or broken) and not is_kept(framework, environment)


def is_kept(framework: FrameworkEnvironment, environment: PythonEnvironment | None) -> bool:
    """Whether the build of an environment that was in use before is what is wished now."""
    kept = environment.get("kept") if environment else None
    return kept is not None and not of_contents(framework, kept) and not of_activation(framework, kept)


def of_contents(framework: FrameworkEnvironment, environment: PythonEnvironment | KeptEnvironment | None) -> list[str]:
    """Its Python, what it lacks, what it has in another version than it may."""
    present = environment["packages"] if environment else {}
    told = []
    python = environment.get("python") if environment else None
    if python and not numeric_version.belongs(str(python), str(framework["interpreter"])):
        told.append(f"has Python {python} instead of {framework['interpreter']}")
    locked = [f"{wheel['name']}=={wheel['version']}" for wheel in framework.get("wheels") or ()]
    lacking = [
        pin for pin in dict.fromkeys([*framework["requirements"], *locked]) if not contents.satisfied(pin, present)
    ]
    lacking += [each for each in framework.get("others") or () if not contents.meets(each, present)]
    if lacking:
        told.append(f"lacks {', '.join(lacking)}")
    broken = [limit for limit in framework.get("constraints") or () if not _kept(limit, present)]
    if broken:
        told.append(f"breaks {', '.join(broken)}")
    others = contents.left_behind(framework["requirements"], present)
    if others:
        told.append(f"has {', '.join(others)} besides")
    return told


def of_activation(
    framework: FrameworkEnvironment, environment: PythonEnvironment | KeptEnvironment | None
) -> list[str]:
    """What its activation puts first."""
    first, wished = environment.get("loader_path") if environment else None, framework.get("loader_path")
    if environment is None or first == wished:
        return []
    return [f"is activated with the libraries of {first or 'the driver'}, not of {wished or 'the driver'}"]


def of_kernel(framework: FrameworkEnvironment, environment: PythonEnvironment | None) -> list[str]:
    """Its Jupyter kernel. One that is not wished goes."""
    there = environment.get("kernel") if environment else None
    if not framework.get("kernel"):
        return ["has a Jupyter kernel that is not wished"] if there is not None else []
    if there == jupyter_kernels.digest(kernels.content(framework)):
        return []
    return ["lacks its Jupyter kernel" if there is None else "has another Jupyter kernel"]


def kernel_files(framework: FrameworkEnvironment, environment: PythonEnvironment | None) -> list[str]:
    """The file of its kernel, where that is written or goes."""
    changes = of_kernel(framework, environment)
    return [kernels.file(jupyter_kernels.directory(framework["path"]))] if changes else []


def of_health(path: str, environment: PythonEnvironment | None, context: Context) -> list[str]:
    """Why an environment that has what it should is made anew all the same."""
    if environment and environment.get("damage"):
        return [f"is damaged: {', '.join(environment['damage'])}"]
    return ["failed in the last proof"] if environment and path in context.condemned else []


def _kept(limit: str, present: Mapping[str, str]) -> bool:
    """Does what is installed keep a constraint? What is not installed does. One that is no plain range is left to the role."""
    version = present.get(contents.name(limit))
    specifier = limit[len(contents.name(limit)) :].strip()
    if version is None or not specifiers.is_range(specifier):
        return True
    return specifiers.matches(version.split("+", 1)[0], specifier)
