# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's package index has of a stack: the rules know what fits, only the index what is there.

A part whose version the wish leaves open and that the index lacks is :func:`absent`: the rules choose again without it. One
that was asked for is :func:`missing`: the node is refused, and told which versions there are instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted

from ..components import container_toolkit, cuda, frameworks, nvidia_driver
from ..components.nvidia_driver import continues, signed_modules
from ..model import index_answer
from ..resolver.naming import component
from ..rules import Rules
from ..wish import Wish

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex, PackageInstall

Stack = Mapping[str, Any]

#: A driver package with its branch: nvidia-utils-580-server, libnvidia-cfg1-580, linux-modules-nvidia-580-open-generic.
_BRANCH_IN_NAME = re.compile(
    r"(?:lib|linux-(?:modules|objects)-|xserver-xorg-video-)?nvidia-(?:[a-z0-9]+-)*?(?P<branch>\d{3})(?:-|$)"
)
#: Versions that a sentence names.
_NAMED = 6
#: The interpreter of the environments.
PYTHON = "python"
#: Libraries of NVIDIA's repository: part of the stack, and where the wish has their version.
LIBRARIES = {"cudnn": "cudnn_version", "nccl": "nccl_version", "tensorrt": "tensorrt_version"}


@dataclass(frozen=True)
class Demand:
    """A part of the stack as the package index has to have it.

    ``want`` and ``version`` are as --want takes them. ``fixed``: the wish says so, nothing else may be taken. ``relation``
    stands between the two. ``accepts`` says of a package and a version whether they will do. ``cuda``: the CUDA major that a
    library is built for, where packages of one name are built for several. ``branch``: the one that a
    distribution's driver has to be of.
    """

    want: str
    version: str
    packages: Sequence[str]
    accepts: Callable[[str, str], bool]
    fixed: bool = True
    relation: str = "="
    cuda: str | None = None
    branch: str | None = None

    @property
    def key(self) -> str:
        """The part as it is called where the rules choose again."""
        return f"{self.want}={self.version}"

    @property
    def text(self) -> str:
        """The part for a person."""
        return f"{self.want}{self.relation}{self.version}" if self.version else self.want


@dataclass(frozen=True)
class Missing:
    """A demand that the index cannot meet: what it has instead, in words, and a version to ask for."""

    demand: Demand
    instead: str
    example: str | None


def demands(stack: Stack, wish: Wish) -> list[Demand]:
    """Return what a stack asks of the package index, in the order of its parts."""
    return [
        *_driver(stack),
        *_toolkits(stack),
        *_libraries(stack, wish),
        *_container_toolkit(stack),
        *_pythons(stack, wish),
    ]


def _driver(stack: Stack) -> list[Demand]:
    driver = stack.get("driver")
    if driver is None or driver["adopted"]:
        return []
    start = nvidia_driver.version_prefix(driver)
    carriers = [] if driver["source"] == "runfile" else nvidia_driver.carriers(driver)
    of_next = signed_modules.package_of_next(stack)
    # The pinning package of an exact build carries the build in its name.
    first = [name for name in driver["packages"] if name in carriers]
    names = [
        *first,
        *(
            name
            for name in driver["packages"]
            if name not in carriers and not name.startswith(nvidia_driver.HEADERS) and name != of_next
        ),
    ]
    version, fixed = driver.get("version"), bool(driver.get("version"))
    return [
        Demand(
            "driver",
            version or driver["branch"],
            names,
            lambda name, found: name not in carriers or continues(found, start),
            fixed,
            branch=driver["branch"] if driver["source"] == "distro" else None,
        )
    ]


def _toolkits(stack: Stack) -> list[Demand]:
    starts = cuda.version_prefixes(stack)
    return [
        Demand(
            "cuda",
            toolkit.get("release") or toolkit["version"],
            toolkit["packages"],
            _begins(starts),
            bool(toolkit.get("release")),
        )
        for toolkit in stack.get("cuda") or ()
    ]


def _libraries(stack: Stack, wish: Wish) -> list[Demand]:
    starts = cuda.version_prefixes(stack)
    found = []
    for name, wished in LIBRARIES.items():
        library = stack.get(name)
        if library and library.get("packages"):
            fixed = bool(getattr(wish, wished, None))
            version, packages = library.get("version") or "", library["packages"]
            found.append(Demand(name, version, packages, _begins(starts), fixed, cuda=library.get("cuda")))
    compat = stack.get("cuda_compat")
    if compat:
        found.append(Demand("cuda-compat", compat["version"], [compat["package"]], lambda _name, _found: True))
    return found


def _begins(starts: Mapping[str, str]) -> Callable[[str, str], bool]:
    return lambda name, found: continues(found, starts.get(name, ""))


def _container_toolkit(stack: Stack) -> list[Demand]:
    toolkit = stack.get("container_toolkit")
    if not toolkit:
        return []
    specifier = toolkit["version_spec"]
    relation = specifier[:2] if specifier.startswith(">=") else "="
    version = specifier.lstrip("=>").removesuffix(".*")
    return [
        Demand(
            "container-toolkit",
            version,
            toolkit["packages"],
            lambda _name, found: container_toolkit.fits(found, specifier),
            relation=relation,
        )
    ]


def _pythons(stack: Stack, wish: Wish) -> list[Demand]:
    """Return the Pythons that the environments run on: those that come with a package are in minor releases of the system, or not."""
    versions = dict.fromkeys(str(framework["interpreter"]) for framework in stack.get("frameworks") or ())
    return [
        Demand(PYTHON, version, frameworks.interpreters(version), lambda _name, _found: True, bool(wish.python))
        for version in versions
    ]


def answered(index: PackageIndex) -> bool:
    """Did the index speak at all? One that could not be read lacks nothing."""
    return all(
        problem["kind"] in ("no-such-package", "unsolvable") or not problem.get("needed", True)
        for problem in index["problems"]
    )


def absent(asked: Iterable[Demand], index: PackageIndex, packages: Sequence[str]) -> dict[str, list[str]]:
    """Return the parts that the index does not have and that the rules may choose again, each with the versions that are there.

    ``packages``: those that would change; of the others the index was not asked. A toolkit of which not even another release
    is there is chosen again too: the resolver then tells which there are.
    """
    found = {}
    for demand in asked:
        wrong = _wrong(demand, index, packages)
        if not wrong or (demand.fixed and demand.want != "cuda"):
            continue
        gone = any(not index_answer.candidate(index, name) for name in wrong)
        if demand.want == "cuda":
            if gone:
                found[f"cuda={'.'.join(demand.version.split('.')[:2])}"] = offers(demand, index)
        elif demand.version:
            found[demand.key] = _of_another_branch(demand, wrong, index) or offers(demand, index)
    return found


def missing(asked: Iterable[Demand], index: PackageIndex, packages: Sequence[str]) -> list[Missing]:
    """Return the parts that the index cannot give. A Python is none of them: the index says itself which package it lacks."""
    found = []
    for demand in asked:
        wrong = _wrong(demand, index, packages)
        if wrong and demand.want != PYTHON:
            there = offers(demand, index)
            instead = ", ".join(_of_another_branch(demand, wrong, index)) or _instead(demand, index, there)
            found.append(Missing(demand, instead, there[0] if there else None))
    return found


def offers(demand: Demand, index: PackageIndex) -> list[str]:
    """Return the versions of a part that the index has, as --want takes them: of the same major version first, then newest."""
    names = [name for name in demand.packages if index_answer.versions(index, name)]
    seen = [
        version for name in names[:1] for version in index["packages"][name]["versions"] if _for_cuda(version, demand)
    ]
    seen += [
        version
        for name, versions in (index.get("others") or {}).items()
        if _is_of(name, demand)
        for version in versions
    ]
    upstream = dict.fromkeys(version.split(":", 1)[-1].split("-", 1)[0] for version in seen)
    versions = sorted((each for each in upstream if dotted.key(each)), key=dotted.key, reverse=True)
    major = dotted.major(demand.version) if demand.version else ""
    return sorted(versions, key=lambda each: dotted.major(each) != major)[:_NAMED]


def also(stack: Stack, rules: Rules) -> list[str]:
    """Return the names under which other versions of the stack's parts would be found: toolkits and old drivers carry theirs
    in the name.
    """
    names = []
    if stack.get("cuda"):
        row = component("cuda", rules)
        minors = dict.fromkeys(each["cuda"] for each in rules["cuda"]["rows"])
        names += [
            name.replace("{major}", cuda.split(".")[0]).replace("{minor}", cuda.split(".")[1])
            for cuda in minors
            for name in row["packages"]
        ]
    driver = stack.get("driver")
    if driver and not driver["adopted"]:
        branches = [row["branch"] for row in rules["driver_branches"]["rows"]]
        names += [
            each
            for name in driver["packages"]
            if not name.startswith(("linux-", "kernel-", "python3-", "nvidia-driver-pinning-"))
            for each in _of_branches(name, driver["branch"], branches)
        ]
    return sorted(set(names))


def _of_branches(name: str, branch: str, branches: Iterable[str]) -> list[str]:
    """Return a driver package's names in other branches: libnvidia-compute-580 gives libnvidia-compute-570 and libnvidia-compute."""
    if f"-{branch}" not in name:
        return [f"{name}-{other}" for other in branches]
    return [name.replace(f"-{branch}", ""), *(name.replace(f"-{branch}", f"-{other}") for other in branches)]


def _is_of(name: str, demand: Demand) -> bool:
    """Say whether a package that was asked for besides is of this part."""
    return name.startswith("cuda-toolkit-") == (demand.want == "cuda") and demand.want in ("cuda", "driver")


def _for_cuda(version: str, demand: Demand) -> bool:
    """Say whether a version such as 2.30.7-1+cuda13.2 is built for the CUDA of the stack."""
    return demand.cuda is None or "+cuda" not in version or f"+cuda{demand.cuda}." in version


def _wrong(demand: Demand, index: PackageIndex, packages: Sequence[str]) -> list[str]:
    """Return the packages of a demand that the index lacks or has in a version that will not do, else those of another driver branch
    that come in their place: a distribution empties the packages of a branch that has ended, and has them depend on the next one's.
    """
    wrong = []
    for name in demand.packages:
        candidate = index_answer.candidate(index, name)
        if name in packages and (not candidate or not demand.accepts(name, candidate)):
            wrong.append(name)
    return wrong or [row["name"] for row in _led_to(demand, index)]


def _led_to(demand: Demand, index: PackageIndex) -> list[PackageInstall]:
    """Return the packages that would be installed and carry another driver branch in their name than the demand's."""
    if demand.branch is None:
        return []
    found = []
    for row in index.get("install") or ():
        named = _BRANCH_IN_NAME.match(row["name"])
        if named and named["branch"] != demand.branch:
            found.append(row)
    return found


def _of_another_branch(demand: Demand, wrong: Sequence[str], index: PackageIndex) -> list[str]:
    """Return packages with versions of another driver branch that stand where the demand's should; none where something else is wrong."""
    if demand.branch is None:
        return []
    came = [f"{row['name']} {row['version']}" for row in _led_to(demand, index) if row["name"] in wrong]
    there = [(name, index_answer.candidate(index, name) or "") for name in wrong]
    other = [f"{name} {version}" for name, version in there if version and not continues(version, f"{demand.branch}.")]
    return (came or other)[:_NAMED]


def _instead(demand: Demand, index: PackageIndex, there: Sequence[str]) -> str:
    """Return what the index has of a part, in words: a package with its versions, else those of its other names."""
    for name in demand.packages:
        versions = index_answer.versions(index, name)
        if versions:
            return f"{name} {', '.join(versions[:_NAMED])}"
    return f"{demand.want} {', '.join(there)}" if there else "none of it"
