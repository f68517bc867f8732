"""Card, kernel and driver branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from tests.property.naive.asked import component
from tests.property.naive.cuda import builds_on_offer, covered, cuda_in_use
from tests.property.naive.tables import Row, below, row, rows, within

Stack = Mapping[str, Any]
TYPES = ("long-term", "production", "new-feature")


def faults(machine: Any, stack: Stack, warned: set[str]) -> Iterator[str]:
    theirs = machine.environment in ("container", "wsl", "jetson")
    if ("driver" in stack) == theirs:
        yield f"a driver in the stack: {'driver' in stack}, and it is somebody else's: {theirs}"
    if "driver" not in stack:
        return
    driver = stack["driver"]
    branches = [each for each in rows("driver_branches", "rows") if each["branch"] == driver["branch"]]
    if not branches:
        if not driver["adopted"]:
            yield f"branch {driver['branch']} is in no table"
        return
    branch = branches[0]
    for card in machine.cards:
        yield from _drives(card, branch, driver)
    yield from _life(branch, machine.today, warned)
    yield from _secure(driver["version"], warned)
    if not driver["adopted"]:
        yield from _carried(machine, branch, driver)
        yield from _compiles(machine, branch, driver)
        yield from _high_enough(machine, stack, branch)
        yield from _packages(machine, driver)
        yield from _headers(machine, driver)
        if not branch["confirmed"] and "driver.unconfirmed" not in warned:
            yield f"branch {branch['branch']} is not confirmed, and nothing says so"
        if machine.secure_boot and driver["build"] == "dkms" and "driver.secure-boot" not in warned:
            yield "Secure Boot is on, modules are built here, and nothing says so"


def _named_as_a_board(cards: Sequence[Any]) -> bool:
    """Whether cards that nobody looked at are as many of one architecture as a board with NVSwitches has."""
    for board in rows("gpus", "boards"):
        mine = [each for each in cards if each.architecture == board["architecture"] and board["form"] in each.name]
        if board["nvswitch"] and len(mine) >= board["cards"] and all(each.bus_id is None for each in mine):
            return True
    return False


def drives(card: Any, branch: Row) -> bool:
    """Whether a branch drives a card."""
    if card.compute_capability and below(card.compute_capability, branch["min_compute_capability"]):
        return False
    for listed in rows("driver_branches", "first_builds"):
        if listed["pci"] == card.pci:
            first = min(int(build.split(".")[0]) for build in listed["first"])
            return int(branch["branch"]) >= first and branch["branch"] not in listed.get("absent", [])
    named = _row_of(card)
    if named.get("first_driver"):
        first = int(named["first_driver"].split(".")[0])
        return int(branch["branch"]) >= first and branch["branch"] not in named.get("absent", [])
    firsts = [
        each["first_branch"] for each in rows("gpus", "architectures") if each["architecture"] == card.architecture
    ]
    return not firsts or int(branch["branch"]) >= int(firsts[0])


def first_build(card: Any, branch: str) -> str | None:
    """The first build of a branch that drives a card, where that is known."""
    for listed in rows("driver_branches", "first_builds"):
        for build in listed["first"] if listed["pci"] == card.pci else ():
            if build.split(".")[0] == branch:
                return str(build)
    single = str(_row_of(card).get("first_driver") or "")
    listed_apart = any(listed["pci"] == card.pci for listed in rows("driver_branches", "first_builds"))
    return single if not listed_apart and single.split(".", maxsplit=1)[0] == branch else None


def _row_of(card: Any) -> Row:
    """The row of a card; an empty one where only its PCI id is known."""
    return next((each for each in rows("gpus", "rows") if each["name"] == card.name), {})


def modules_for(card: Any) -> list[str]:
    """The kernel modules that bind to a card."""
    if card.open_only or not card.architecture:
        return ["open"]
    found = [each["flavours"] for each in rows("gpus", "architectures") if each["architecture"] == card.architecture]
    return list(found[0]) if found else ["open", "proprietary"]


def _drives(card: Any, branch: Row, driver: Mapping[str, Any]) -> Iterator[str]:
    if not drives(card, branch):
        yield f"branch {branch['branch']} does not drive the {card.name}"
    if driver["modules"] not in branch["modules"] and not driver["adopted"]:
        yield f"branch {branch['branch']} has no {driver['modules']} modules"
    known = not driver["adopted"] or driver["modules"] != "proprietary"
    if known and driver["modules"] not in modules_for(card):
        yield f"{driver['modules']} modules do not bind to the {card.name}"
    first = first_build(card, branch["branch"])
    build = driver["version"] or driver["minimum"]
    if first and (build is None or below(build, first)):
        yield f"the {card.name} needs {first}, the driver is {build} or later"


def _life(branch: Row, today: date, warned: set[str]) -> Iterator[str]:
    left = (date.fromisoformat(branch["eol"]) - today).days if branch["eol"] else 0
    if left <= 180 and "driver.end-of-life" not in warned:
        yield f"branch {branch['branch']} ends on {branch['eol']}, and nothing says so"
    if left > 180 and "driver.end-of-life" in warned:
        yield f"branch {branch['branch']} lives for {left} days, and is warned of"


def _secure(version: str | None, warned: set[str]) -> Iterator[str]:
    for each in rows("security", "rows"):
        mine = version and each["component"] == "driver" and each["branch"] == version.split(".")[0]
        if mine and below(version or "", each["floor"]) and "driver.security" not in warned:
            yield f"driver {version} is below {each['floor']}, and nothing says so"


def _carried(machine: Any, branch: Row, driver: Mapping[str, Any]) -> Iterator[str]:
    newest = builds_on_offer(machine, driver, branch)
    if newest is None:
        yield f"{driver['source']} carries no branch {branch['branch']} for {machine.os}"
    for each in rows("systems", "distro_drivers") if driver["source"] == "distro" else ():
        mine = (each["os"], each["branch"]) == (machine.os, branch["branch"])
        if mine and driver["modules"] not in each.get("modules", ["open", "proprietary"]):
            yield f"{machine.os} has no {driver['modules']} modules of {branch['branch']} that can be installed"
    if driver["source"] == "nvidia":
        system = row("systems", "rows", os=machine.os)
        if int(branch["branch"]) < int(system["nvidia_first_branch"]):
            yield f"NVIDIA's repository for {machine.os} begins at {system['nvidia_first_branch']}"
    if f"driver={branch['branch']}" in machine.absent:
        yield f"the machine's index lacks branch {branch['branch']}"
    if newest and driver["minimum"] and below(driver["version"] or newest, driver["minimum"]):
        yield f"{driver['minimum']} is the lowest that will do, and there is only {driver['version'] or newest}"


def _compiles(machine: Any, branch: Row, driver: Mapping[str, Any]) -> Iterator[str]:
    for each in rows("kernels", "rows"):
        if each["branch"] != branch["branch"] or each["from"] not in ("any", driver["source"]):
            continue
        if each["modules"] not in ("any", driver["modules"]):
            continue
        reached = machine.kernel and not below(machine.kernel, each["kernel_first"])
        # A kernel of which only the series is known stands for the newest of it.
        series = machine.kernel and "-" not in machine.kernel and within(each["kernel_first"], machine.kernel)
        if not (reached or series):
            continue
        if each.get("kernel_last") and not below(machine.kernel, each["kernel_last"]):
            continue
        build = driver["version"] or driver["minimum"]
        if each["builds_below"] is None or build is None or below(build, each["builds_below"]):
            yield f"{build} of branch {branch['branch']} does not compile on kernel {machine.kernel}"


def _high_enough(machine: Any, stack: Stack, branch: Row) -> Iterator[str]:
    driver = stack["driver"]
    for cuda in cuda_in_use(stack):
        if covered(stack, cuda):
            continue
        for family in rows("cuda", "families"):
            if family["major"] == cuda.split(".")[0] and below(
                driver["version"] or driver["minimum"] or "0", family["driver"]
            ):
                yield f"CUDA {cuda} needs {family['driver']}, the driver is {driver['version']}, at least {driver['minimum']}"


def _packages(machine: Any, driver: Mapping[str, Any]) -> Iterator[str]:
    family = row("systems", "rows", os=machine.os)["family"]
    number = int(driver["branch"])
    fitting = [
        each
        for each in rows("packages", "driver")
        if (each["from"], each["family"], each["set"], each["modules"])
        == (driver["source"], family, driver["set"], driver["modules"])
        and number >= int(each["first_branch"] or 0)
        and number <= int(each["last_branch"] or 9999)
    ]
    names = [name.replace("{branch}", driver["branch"]) for name in fitting[0]["packages"]] if fitting else []
    for name in names:
        pattern = re.escape(name).replace(re.escape("{series}"), "[a-z0-9.-]+")
        if not any(re.fullmatch(pattern, each) for each in driver["packages"]):
            yield f"the package {name} is missing"
    if not names:
        yield f"no packages of {driver['source']} are known for {driver['modules']} modules of {driver['branch']}"
    switches = machine.nvswitch or _named_as_a_board(machine.cards)
    if switches and not any(re.search("fabric-?manager", name) for name in driver["packages"]):
        yield "there is an NVSwitch and no fabric manager"


def _headers(machine: Any, driver: Mapping[str, Any]) -> Iterator[str]:
    """EPEL's DKMS requires kernel-devel-matched where kernel-core is installed; only that of the kernel that boots next brings none.
    Release 8 has no such package. Kernels with pages of 64 KiB have one of their own; of those for real time it requires
    kernel-rt-devel.
    """
    system = row("systems", "rows", os=machine.os)
    if driver["build"] != "dkms" or system["family"] != "rhel":
        return
    release, plus, flavour = (machine.kernel or "").rpartition("+")
    own = plus and system["version"] != "8" and flavour in ("64k", "rt")
    release, start = (release, f"kernel-{flavour}-devel") if own else (machine.kernel, "kernel-devel")
    devel = [name for name in driver["packages"] if re.match(r"kernel-(\w+-)?devel", name)]
    if (
        len(devel) != 1
        or not devel[0].startswith(start)
        or ("-" in (release or "") and not devel[0].endswith(f"-{release}"))
    ):
        yield f"the headers are {devel}, the kernel is {machine.kernel}"
    if start == "kernel-rt-devel":
        return
    named = any(name.startswith(f"{start}-matched") for name in devel)
    if named and system["version"] == "8":
        yield f"kernel-devel-matched is named on {machine.os}, which has none"
    there = any(name.startswith(f"{start}-matched") for name in machine.installed or ())
    if not named and not there and system["version"] != "8":
        yield f"kernel-devel-matched is neither named nor there, on {machine.os}"


# preferences --------------------------------------------------------------------------------------------


def better_branches(machine: Any, wants: Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    """The branches of the same source that fit as well and stand before the chosen one."""
    driver = answer["stack"].get("driver")
    if not driver or driver["adopted"] or any(component(want) == "driver" and "=" in want for want in wants):
        return []
    if machine.kept and machine.kept["branch"] == driver["branch"]:
        return []  # what is in force stays
    there = machine.driver.version if machine.driver else ""
    if machine.nvswitch and there.startswith(f"{driver['branch']}."):
        return []  # a driver that works only lacks its fabric manager
    chosen = next(each for each in rows("driver_branches", "rows") if each["branch"] == driver["branch"])
    better = []
    for branch in rows("driver_branches", "rows"):
        trial = {**driver, "branch": branch["branch"], "version": None, "minimum": None}
        newest = builds_on_offer(machine, trial, branch)
        if newest is None or _rank(branch, machine.today) >= _rank(chosen, machine.today):
            continue
        trial["version"] = newest
        floors = {family["major"]: family["driver"] for family in rows("cuda", "families")}
        wished = [floors.get(major, "0") for major in _majors_wished(wants)]
        asked = {"driver-modules=open": ["open"], "driver-modules=proprietary": ["proprietary"]}
        for flavour in next((asked[want] for want in wants if want in asked), ["open", "proprietary"]):
            trial["modules"] = flavour
            wrong = [fault for card in machine.cards for fault in _drives(card, branch, trial)]
            wrong += [*_carried(machine, branch, trial), *_compiles(machine, branch, trial)]
            if flavour in branch["modules"] and not wrong and not any(below(newest, floor) for floor in wished):
                better.append(f"branch {branch['branch']} fits and stands before {chosen['branch']}")
    return better


def _majors_wished(wants: Sequence[str]) -> Iterator[str]:
    for want in wants:
        found = re.match(r"cuda=+(\d+)|.*\+cu(1\d)\d$|.*\[cuda(1\d)\]", want)
        if found:
            yield next(group for group in found.groups() if group)


def _rank(branch: Row, today: date) -> tuple[int, bool, int, int]:
    if not branch["eol"]:
        life = 1
    else:
        left = (date.fromisoformat(branch["eol"]) - today).days
        life = 0 if left > 180 else 1 if left >= 0 else 2
    return life, not branch["confirmed"], TYPES.index(branch["type"]), -int(branch["branch"])
