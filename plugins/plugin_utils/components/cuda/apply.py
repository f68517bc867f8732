# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits side by side; cuDNN, NCCL and TensorRT for those who compile against them; cuda-compat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.plan import ArchiveRemoval, Plan, ToolkitRemoval
from ...model.stack import Stack
from ...model.work import Work
from ...resolver.naming import component
from ...resolver.part import DISTRO
from ...rules import Rules, load_rules
from ...wish.wish import Wish
from .. import package_calls
from ..base import (
    Component,
    Context,
    Finding,
    Manages,
    Need,
    Step,
    missing_packages,
    repository_files,
    repository_findings,
    repository_names,
)
from ..demand import Demand, begins, continues
from . import archive, places, runfile
from .model import CudaToolkit, Library

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ...model.plan import Change

#: Where its packages come from: NVIDIA's repository, and what the distribution's archive has beside its main part.
SOURCES = ["nvidia-cuda"]
_ARCHIVE = ["distro-non-free", "distro-restricted"]
# Libraries of which a machine has one: where they stand in the stack, and what a person calls them.
_LIBRARIES = {"cudnn": "cuDNN", "nccl": "NCCL", "tensorrt": "TensorRT"}
_PARTS = ("cuda", *_LIBRARIES, "cuda_compat")
#: What its role changes.
TOUCHES = frozenset({"packages"})


class Compiler(TypedDict):
    """A compiler that has to be there: the ``release`` that its own words name, and what a person does where it is another one."""

    program: str
    release: str
    remedy: str


class Toolkits(Work):
    """The work of the role. ``runfiles``: toolkits that files bring, ``remnants``: what cuts left of others.

    ``archives``: libraries in toolkits; ``displaced``: what takes them out of those that are made anew; ``undone``: what cuts left of those
    that are no longer wished. ``fetched``: the directory of the files, which goes in the end.

    ``link``: what is done to /usr/local/cuda; None where it is left alone, and then ``kept``: what leads it back where an installer took
    it.
    """

    runfiles: list[runfile.Installation]
    archives: list[archive.Placing]
    displaced: list[list[str]]
    undone: list[ArchiveRemoval]
    fetched: str
    remnants: list[ToolkitRemoval]
    compilers: list[Compiler]
    link: places.Link | None
    kept: list[list[str]]


def wanted(context: Context) -> bool:
    return any(context.stack.get(part) for part in _PARTS)


def _sources(stack: Stack) -> list[str]:
    """The package sources of what is wished: of a distribution's toolkit, of NVIDIA's packages."""
    if not any(each.get("source") == DISTRO for each in stack.get("cuda") or ()):
        return SOURCES
    return [*_ARCHIVE, *(SOURCES if any(stack.get(part) for part in _PARTS[1:]) else ())]


def findings(context: Context) -> list[Finding]:
    found = repository_findings(context, _sources(context.stack))
    for toolkit in _packaged(context.stack):
        missing = missing_packages(context, toolkit["packages"])
        if missing:
            reason = f"the toolkit's packages are missing: {', '.join(missing)}"
            found.append(Finding("install", reason, _present(context), toolkit["version"], packages=missing))
        else:
            found += _release_findings(context, toolkit)
    found += _compiler_findings(context)
    found += runfile.findings(context)
    found += archive.findings(context)
    for key, name in _LIBRARIES.items():
        found += _library_findings(context, key, name)
    compat = context.stack.get("cuda_compat")
    missing = missing_packages(context, [compat["package"]] if compat else ())
    if compat and missing:
        reason = f"{compat['package']} is missing: the driver alone does not run CUDA {compat['version']}"
        found.append(Finding("install", reason, after=compat["version"], packages=missing))
    return found + places.findings(context)


def manages(context: Context) -> Manages:
    before = [paths.CUDA_BEFORE] if context.facts["cuda"]["default"]["before"] else []
    written = [file["path"] for file in places.files(context.stack)]
    files = [
        *repository_files(context, _sources(context.stack)),
        *written,
        *before,
        *runfile.records(context),
        *archive.records(context),
    ]
    return Manages(files=files, packages=_packages(context))


def inputs(context: Context) -> Mapping[str, object]:
    default = places.default(context.stack)
    return {
        "packages": _packages(context),
        "default": default["path"] if default else None,
        "modulefiles": places.modulefiles(context.stack),
        "archives": [each.archive["name"] for each in archive.of_stack(context.stack)],
        "runfiles": [file["name"] for _toolkit, file in runfile.of_stack(context.stack)],
    }


def _packaged(stack: Stack) -> list[CudaToolkit]:
    """The toolkits that packages bring."""
    return [toolkit for toolkit in stack.get("cuda") or () if "runfile" not in toolkit]


def version_prefixes(stack: Stack, _aim: str | None = None) -> dict[str, str]:
    """What the packages' versions begin with: an exact version that was asked for (cuda=12.8.1, cudnn=9.10.2), and the CUDA
    that a library was built for where one name serves several (2.30.7-1+cuda13.2). A star stands for anything.
    """
    prefixes = {}
    for toolkit in _packaged(stack):
        # The archive of a distribution has one release alone, and each counts it in its own way.
        if toolkit.get("release") and "source" not in toolkit:
            prefixes.update(dict.fromkeys(toolkit["packages"], f"{toolkit['release']}-"))
    for key in _LIBRARIES:
        library = _library(stack, key)
        start = _start(library) if library else None
        if library and start:
            prefixes.update(dict.fromkeys(library["packages"], start))
    return prefixes


def _library(stack: Stack, key: str) -> Library | None:
    return cast("Library | None", stack.get(key))


def _start(library: Library) -> str | None:
    """The beginning of a library's versions; None where any will do.

    The one character after the last point keeps the star that a beginning gets in apt's preferences away from the pattern:
    apt takes a star at the end for its own and does not look for others in what is left.
    """
    version = library["version"]
    if not library.get("cuda"):
        return str(version) if version else None
    # 10.4.0 stands for 10.4.0.26-1, 2.27.7 for 2.27.7-1; a generation alone for all of its releases.
    start = f"{version}[.-]" if version else f"{library['generation']}." if library.get("generation") else ""
    return f"{start}*+cuda{library['cuda']}.?"


def _release_findings(context: Context, toolkit: CudaToolkit) -> list[Finding]:
    """A release that was asked for by all of its numbers, and that is not the one that is there."""
    release = toolkit.get("release") if "source" not in toolkit else None
    wrong = [name for name in toolkit["packages"] if release and not continues(context.installed[name], f"{release}-")]
    if not wrong:
        return []
    before = context.installed[wrong[0]]
    reason = f"{wrong[0]} is {before}, wished is CUDA {release}"
    return [Finding("upgrade", reason, before, release, packages=toolkit["packages"])]


def _compiler_findings(context: Context) -> list[Finding]:
    """What compiles and is not there: a C++ compiler of the system, or an nvcc that somebody took out of its toolkit."""
    missing = _missing_compilers(context)
    reason = f"no CUDA program compiles without {' and '.join(missing)}"
    return [Finding("install", reason, packages=missing)] if missing else []


def _missing_compilers(context: Context) -> list[str]:
    wished: list[str] = []
    for toolkit in context.stack.get("cuda") or ():
        # One that comes brings its own.
        there = not missing_packages(context, toolkit["packages"])
        wished += [toolkit["compiler"]] if there and "compiler" in toolkit else []
        wished += [toolkit["host_compiler"]] if "host_compiler" in toolkit else []
    return missing_packages(context, list(dict.fromkeys(wished)))


def _library_findings(context: Context, key: str, name: str) -> list[Finding]:
    library = _library(context.stack, key)
    if library is None:
        return []
    missing = missing_packages(context, library["packages"])
    if missing:
        return [Finding("install", f"{name} is missing", after=library["version"], packages=missing)]
    start = _start(library)
    wrong = [each for each in library["packages"] if start and not continues(context.installed[each], start)]
    if not wrong:
        return []
    before = context.installed[wrong[0]]
    wished = filter(None, (library["version"], f"for CUDA {library['cuda']}" if library.get("cuda") else None))
    after = " ".join(wished)
    reason = f"{wrong[0]} is {before}, wished is {name} {after}"
    return [Finding("upgrade", reason, before, after, packages=library["packages"])]


def _packages(context: Context) -> list[str]:
    stack = context.stack
    names = [name for toolkit in _packaged(stack) for name in toolkit["packages"]]
    libraries = [_library(stack, key) for key in _LIBRARIES]
    names += [name for library in libraries if library for name in library["packages"]]
    compat = stack.get("cuda_compat")
    return [*names, compat["package"]] if compat else names


def begin(context: Context, plan: Plan) -> Toolkits:
    """The packages of toolkits and libraries in one call, the toolkits of files, the compilers that have to be there then, and how people
    come to them.
    """
    beside = [*_missing_compilers(context), *runfile.tools(context, plan), *archive.tools(context, plan)]
    names = list(dict.fromkeys([*_packages(context), *beside]))
    back = package_calls.goes_back(plan, "cuda")
    return {
        "repositories": repository_names(context, _sources(context.stack)),
        "packages": [package_calls.call(context, plan, names, allow_downgrade=back)] if names else [],
        "runfiles": runfile.installations(context, plan),
        "remnants": runfile.remnants(context),
        "archives": archive.placings(context, plan),
        "displaced": archive.displaced(context, plan),
        "undone": archive.remnants(context),
        "fetched": runfile.DIRECTORY,
        "compilers": [
            {
                "program": f"{toolkit['path']}/bin/nvcc",
                "release": ".".join(toolkit["version"].split(".")[:2]),
                "remedy": _remedy(context, toolkit),
            }
            for toolkit in context.stack.get("cuda") or ()
        ],
        "files": places.files(context.stack),
        "absent": places.absent(context),
        "link": places.link(context),
        "kept": places.kept(context, plan),
    }


def _remedy(context: Context, toolkit: CudaToolkit) -> str:
    """What a person does where a toolkit's compiler is not what it has to be."""
    if "runfile" in toolkit:
        return f"read /var/log/cuda-installer.log and take {toolkit['path']} away"
    names, manager = " ".join(toolkit["packages"]), REINSTALL.get(str(context.facts["packages"]["manager"]))
    # Of a node that does not tell its manager nothing is installed: the plan refuses it.
    return (
        f'run "{manager} {names}" and read what it says'
        if manager
        else f"install {names} again and read what that says"
    )


#: What installs packages anew, by the node's package manager.
REINSTALL = {"apt": "apt-get install --reinstall", "dnf": "dnf reinstall"}
STEPS: Mapping[str, Step] = {"begin": begin}


def refuse(context: Context, _plan: Plan) -> None:
    """Raise StepRefused where something of somebody else's is in the way."""
    places.refuse(context)
    runfile.refuse(context)


def take_back(facts: Facts) -> list[Finding]:
    """What its role takes back: where /usr/local/cuda leads, and the toolkits of files."""
    return [*places.take_back(facts), *archive.take_back(facts), *runfile.take_back(facts)]


def _space(change: Change, context: Context) -> list[Need]:
    return [*runfile.space(change, context, load_rules()), *archive.space(change, context)]


def _present(context: Context) -> str | None:
    versions = [toolkit["version"] for toolkit in context.facts["cuda"]["toolkits"] or ()]
    return ", ".join(filter(None, versions)) or None


def _is_toolkit(name: str) -> bool:
    return name.startswith("cuda-toolkit-")


def demands(stack: Stack, wish: Wish) -> list[Demand]:
    """Return the toolkits, their libraries and the package of forward compatibility as the package index has to have them."""
    starts = version_prefixes(stack)
    found = [
        Demand(
            "cuda",
            toolkit.get("release") or toolkit["version"],
            toolkit["packages"],
            begins(starts),
            bool(toolkit.get("release")),
            again=f"cuda={'.'.join((toolkit.get('release') or toolkit['version']).split('.')[:2])}",
            of=_is_toolkit,
        )
        for toolkit in _packaged(stack)
    ]
    for name in _LIBRARIES:
        library = _library(stack, name)
        if library and library["packages"]:
            fixed = bool(getattr(wish, f"{name}_version", None))
            version, packages = library["version"] or "", library["packages"]
            found.append(Demand(name, version, packages, begins(starts), fixed, cuda=library.get("cuda")))
    compat = stack.get("cuda_compat")
    if compat:
        found.append(Demand("cuda-compat", compat["version"], [compat["package"]], lambda _name, _found: True))
    return found


def _also(stack: Stack, rules: Rules) -> list[str]:
    """Return the names of every toolkit that there is: each carries its version in its name."""
    if not stack.get("cuda"):
        return []
    row = component("cuda", rules)
    minors = dict.fromkeys(each["cuda"] for each in rules["cuda"]["rows"])
    return [
        name.replace("{major}", cuda.split(".")[0]).replace("{minor}", cuda.split(".")[1])
        for cuda in minors
        for name in row["packages"]
    ]


COMPONENT = Component(
    "cuda",
    wanted,
    findings,
    inputs,
    manages,
    parts=_PARTS,
    version_prefixes=version_prefixes,
    newer=runfile.newer,
    demands=demands,
    also=_also,
    touches=TOUCHES,
    refuse=refuse,
    directories=places.MODULE_DIRECTORIES,
    space=_space,
    take_back=take_back,
    undo="former",
    removes=places.removes,
    steps=STEPS,
)
