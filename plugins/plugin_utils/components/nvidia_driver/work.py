# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role does first, as data: the package sources, what makes room for the packages, and the packages themselves.

The order is the role's: the file of NVIDIA's, the sources, the headers and the package that pins the set, the packages, and what they left
out. What is decided after the packages are there is in ``installed``, the way back in ``returning``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from ....module_utils.base import paths
from ...model.plan import Change, Plan
from ..base import Context, repository_names
from ..package_calls import call, specs
from . import driver_module, places, returning, runfile, swap

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.work import PackageCall

#: The file of each package that comes whole with another kernel (see kernels.whole) carries its version in its name.
_WHOLE_KERNEL = re.compile(r"kernel(-rt|-64k)?-[0-9]+[.]")
_FLAVOURED = re.compile(r"^kernel-devel-(.+)[+](64k|rt)$")
#: Actions that bring no package.
_BESIDE = ("configure", "adopt", "remove")
_ADDRESS = re.compile(r"https?://")


class Headers(TypedDict):
    """The headers of exactly the kernel that boots next: where they are, what says whether they can be had (``no``: by which exit status
    it says that they cannot), and what installs them.
    """

    path: str
    question: list[str]
    no: int
    call: PackageCall


class Stream(TypedDict):
    """Commands by which one module stream of dnf is left, and another one entered; none where that is not needed."""

    leave: list[str]
    enter: list[str]


class Installer(TypedDict):
    """NVIDIA's file. ``fetch``: whether it is needed at all; ``remote``: whether the node itself fetches it."""

    name: str
    path: str
    sha256: str | None
    addresses: list[str]
    remote: bool
    arguments: list[str]
    fetch: bool


class Begin(TypedDict, total=False):
    """The first part of the work.

    ``look``: an earlier component of the plan may have changed what this was decided from. ``before``, ``between`` and ``beside`` say
    whether any of the rare things has to be done in these places. ``kernels`` are those that are there before the driver's packages come.
    ``headers_first``: the headers where they do not come with the pin. ``first`` comes before the set, whose versions the pin decides.
    ``fetch`` brings the packages here that take the place of NVIDIA's file before that goes. ``programs``: what check mode names.
    """

    look: bool
    before: bool
    between: bool
    beside: bool
    installs: bool
    configures: bool
    kernels: list[str]
    repositories: list[str]
    stream: Stream | None
    unlock: list[str]
    headers_first: PackageCall | None
    headers: Headers | None
    exchange: swap.Exchange | None
    first: PackageCall | None
    asks_for_pins: bool
    fetch: list[str]
    programs: list[str]
    set: PackageCall | None
    runfile: Installer | None
    restore: returning.Return | None


def begin(context: Context, plan: Plan) -> Begin:
    """What the role does before it has to look at the node again."""
    driver: DriverStack | None = context.stack.get("driver")
    work: Begin = {
        "look": "nvidia_driver" in plan["components"][1:],
        "before": False,
        "installs": False,
        "configures": driver is not None and driver["source"] != "preinstalled",
        "kernels": list(context.facts["kernel"]["installed"] or ()),
        "repositories": [],
        "runfile": _installer(context, plan, driver) if driver else None,
        "restore": None,
    }
    if plan["restore"]:
        # The packages may all be kept here, and need none of them: but apt does not work where somebody names one a second time.
        work["repositories"] = [row["name"] for row in context.stack.get("repositories") or () if row.get("displaces")]
        work["restore"] = returning.work(context, plan)
        work["exchange"] = returning.exchange(context, plan)
    elif driver and not driver["adopted"]:
        work |= _installation(context, plan, driver, work["runfile"])
    file = work["runfile"]
    work["before"] = work["look"] or bool(work["restore"] or (file and file["fetch"]))
    return work


def _installation(context: Context, plan: Plan, driver: DriverStack, file: Installer | None) -> Begin:
    moved = [package["name"] for row in _changes(plan) for package in row["packages"]]
    pin = driver["pin"].get("package")
    # Those of the set that are dependencies go back to their sealed version by name.
    names = [name for name in dict.fromkeys([*driver["packages"], *moved]) if name != pin]
    older = _may_be_older(plan, driver)
    is_apt = context.facts["packages"]["manager"] == "apt"
    swapped = swap.due(context, plan)
    headers = _header_packages(plan, driver)
    first = [*(headers if swapped is None else []), *([pin] if pin else [])]
    alone = _headers_alone(context, plan) if headers else None
    fetch = _fetch(context, plan, driver, names)
    programs = [f"{runfile.UNINSTALLER} (driver {driver.get('displaces')})"] if fetch else []
    programs += [" ".join([file["name"], *file["arguments"]])] if file and file["fetch"] else []
    stream = _stream(context, plan, driver)
    held = context.facts["driver"]["lock"]["held"] if is_apt and moved else []
    return {
        "installs": True,
        "repositories": repository_names(context, places.SOURCES.get(driver["source"], ())),
        "stream": stream,
        # apt moves no held package that is only a dependency, whatever it is allowed.
        "unlock": ["apt-mark", "unhold", *held] if held else [],
        "headers_first": call(context, plan, headers) if headers and swapped else None,
        "headers": alone,
        "exchange": swapped,
        "between": bool(stream or held or swapped),
        "first": call(context, plan, first, allow_downgrade=older and bool(pin)) if first else None,
        "asks_for_pins": is_apt,
        "fetch": fetch,
        "programs": programs,
        "beside": bool(programs or (alone and not swapped)),
        "set": call(context, plan, names, allow_downgrade=older, allow_held=bool(driver["pin"].get("hold")))
        if names
        else None,
    }


def _changes(plan: Plan) -> list[Change]:
    return [row for row in plan["changes"] if row["component"] == "nvidia_driver"]


def _may_be_older(plan: Plan, driver: DriverStack) -> bool:
    """Whether packages may go to older versions. The plan names from and to with exact versions; where it leads to an older one (a lower
    branch was wished, with packages of other names or after a run that was cut off on its way there) that is no accident.
    """
    return bool(driver["version"]) or any(row["action"] not in _BESIDE for row in _changes(plan))


def _header_packages(plan: Plan, driver: DriverStack) -> list[str]:
    """Only a module that is built on the machine needs headers: one that a distribution signs brings none. Kernels of Red Hat's that come
    on purpose are named with them, so that they come with all of their modules.
    """
    headers = driver.get("headers")
    if not headers or (driver.get("build") or "dkms") != "dkms":
        return []
    return [headers, *(row["name"] for row in plan["install"] if _WHOLE_KERNEL.match(row["name"]))]


def _headers_alone(context: Context, plan: Plan) -> Headers | None:
    """What brings the headers of exactly the kernel that boots next, where it is not known that it has them or that they come: the meta
    package brings those of the newest one and of every later one.
    """
    kernel, family = context.facts["kernel"]["next"], context.facts["os"]["family"]
    name = header_name(family, kernel or "")
    if not kernel or name is None:
        return None
    if kernel in context.facts["kernel"]["headers"] or name in [row["name"] for row in plan["install"]]:
        return None
    questions: Mapping[str, tuple[list[str], int]] = {
        # Without the two cache files, because a look must not write.
        "debian": (
            ["apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "show", "--no-all-versions"],
            100,
        ),
        # The plan's headers are those of exactly this kernel already.
        "redhat": (["rpm", "--query", "--quiet"], 1),
    }
    question, no = questions[family]
    return {
        "path": f"/lib/modules/{kernel}/build",
        "question": [*question, name],
        "no": no,
        "call": call(context, plan, [name]),
    }


def header_name(family: str, kernel: str) -> str | None:
    """The package with the headers of one kernel. Red Hat's flavour (+64k, +rt) stands in the name, and not behind the release."""
    if family == "debian":
        return f"linux-headers-{kernel}"
    if family != "redhat":
        return None
    return _FLAVOURED.sub(r"kernel-\2-devel-\1", f"kernel-devel-{kernel}")


def _stream(context: Context, plan: Plan, driver: DriverStack) -> Stream | None:
    """A module stream decides which branch dnf sees. It has to be left before another one can be entered."""
    module, _colon, wished = (driver["pin"].get("stream") or "").partition(":")
    now = (context.facts["packages"].get("streams") or {}).get(module) or ""
    if not module or now == wished:
        return None
    # Without the sources of others that do not answer, and that nothing of the plan comes from.
    dnf = ["dnf", "--assumeyes", "--quiet", *(f"--disablerepo={name}" for name in plan["left_out"]), "module"]
    return {"leave": [*dnf, "reset", module] if now else [], "enter": [*dnf, "enable", f"{module}:{wished}"]}


def _fetch(context: Context, plan: Plan, driver: DriverStack, names: list[str]) -> list[str]:
    """What fetches the packages, where an installation by a .run file has to go: over its files they would mix with them. They are there
    before it goes, so that a repository that does not answer leaves the machine as it was.
    """
    if not driver.get("displaces") or context.facts["driver"]["owner"] != "runfile":
        return []
    fetch = ["apt-get", "--yes", "--download-only", "--no-install-recommends", "install"]
    return [*fetch, *specs("apt", plan, names)]


def _installer(context: Context, plan: Plan, driver: DriverStack) -> Installer | None:
    """NVIDIA's file, where the driver comes from one."""
    file = driver.get("runfile")
    if not file:
        return None
    of_return = plan["restore"] is not None and plan["restore"]["source"] == "runfile"
    fetch = (of_return or not (driver["adopted"] or plan["restore"])) and not runfile.is_there(context.facts, driver)
    first = file["addresses"][0] if file["addresses"] else ""
    arguments = [*file["arguments"], f"--kernel-name={context.facts['kernel']['next']}"]
    arguments += file["with_nouveau"] if driver_module.foreign(context.facts) else []
    arguments += file["with_session"] if context.facts["sessions"]["display"] else []
    return {
        "name": file["name"],
        "path": f"{paths.PACKAGES}/{file['name']}",
        "sha256": file["sha256"],
        "addresses": list(file["addresses"]),
        "remote": bool(_ADDRESS.match(first)),
        "arguments": arguments,
        "fetch": fetch,
    }
