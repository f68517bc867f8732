"""Toolkits, their libraries, and what a driver runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tests.property.naive.tables import Row, below, numbers, row, rows, within, yanked

Stack = Mapping[str, Any]


def builds_on_offer(machine: Any, driver: Mapping[str, Any], branch: Row) -> str | None:
    """The newest build that a source has of a branch."""
    if driver["source"] == "distro":
        carried = [
            each
            for each in rows("systems", "distro_drivers")
            if each["os"] == machine.os and each["branch"] == branch["branch"]
        ]
        return carried[0]["build"] or branch["latest"] if carried else None
    return str(branch["latest"]) if branch["latest"] else None


def cuda_in_use(stack: Stack) -> list[str]:
    """The CUDA versions of a stack's toolkits and wheels."""
    wheels = [each["cuda"] for each in stack.get("frameworks", ()) if each.get("cuda")]
    return [*(each["version"] for each in stack.get("cuda", ())), *wheels]


def covered(stack: Stack, cuda: str) -> bool:
    """Whether cuda-compat of the stack runs a CUDA version: any of its own major version."""
    compat = stack.get("cuda_compat")
    return compat is not None and compat["version"].split(".")[0] == cuda.split(".", maxsplit=1)[0]


def runs(machine: Any, stack: Stack, cuda: str) -> str | None:
    """How the driver runs a CUDA version: native, minor-version, None for not at all, unknown where nobody can tell."""
    major = cuda.split(".", maxsplit=1)[0]
    natives = [each["native_driver"] for each in rows("cuda", "rows") if each["cuda"] == cuda and each["native_driver"]]
    first = min(natives, key=numbers) if natives else None
    family = next((each["driver"] for each in rows("cuda", "families") if each["major"] == major), None)
    if "driver" not in stack:
        if machine.cuda_reported:
            if not below(machine.cuda_reported, cuda):
                return "native"
            return "minor-version" if machine.cuda_reported.split(".")[0] == major else None
        return "unknown"
    driver = stack["driver"]
    branch = next((each for each in rows("driver_branches", "rows") if each["branch"] == driver["branch"]), None)
    if branch is None:
        return "unknown"
    build = driver["version"] or (builds_on_offer(machine, driver, branch) if driver["source"] == "distro" else None)
    carried = [
        each["build"]
        for each in rows("systems", "distro_drivers")
        if (each["os"], each["branch"]) == (machine.os, driver["branch"]) and driver["source"] == "distro"
    ]
    exact = driver["version"] or (carried[0] if carried and not driver["adopted"] else None)
    native = not below(exact, first) if exact and first else not below(branch["max_cuda"], cuda)
    if native:
        return "native"
    newest = build or branch["latest"]
    return "minor-version" if family and newest and not below(newest, family) else None


def compiled_for(cuda: str) -> list[str]:
    """The compute capabilities of a toolkit; of one whose list is not known, those of the newest before it."""
    known = [each for each in rows("cuda", "targets") if not below(cuda, each["cuda"])]
    return list(max(known, key=lambda each: numbers(each["cuda"]))["targets"]) if known else []


def toolkits(machine: Any, stack: Stack, warned: set[str]) -> Iterator[str]:
    """What is wrong with the toolkits of a stack."""
    system = row("systems", "rows", os=machine.os)
    for entry in stack.get("cuda", ()):
        cuda = entry["version"]
        released = [each for each in rows("cuda", "rows") if each["cuda"] == cuda]
        for card in machine.cards:
            if card.compute_capability and card.compute_capability not in compiled_for(cuda):
                yield f"CUDA {cuda} has no code for the {card.name} ({card.compute_capability})"
        if entry.get("source") == "distro":
            yield from _archive(machine, entry)
        elif entry.get("source") != "runfile" and below(cuda, system["cuda_first"]):
            yield f"the repository for {machine.os} begins at CUDA {system['cuda_first']}, not {cuda}"
        # A file is of no index.
        if entry.get("source") != "runfile" and f"cuda={cuda}" in machine.absent:
            yield f"the machine's index lacks CUDA {cuda}"
        if not any(each["confirmed"] for each in released) and "cuda.unconfirmed" not in warned:
            yield f"CUDA {cuda} is not confirmed, and nothing says so"
        yield from _mode(machine, stack, entry, warned)
        if entry.get("source") != "distro":
            yield from _compiler(machine, system, cuda, warned)


def _archive(machine: Any, entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the toolkit of a distribution's own archive."""
    carried = [each for each in rows("cuda", "distro") if each["os"] == machine.os]
    if [(each["cuda"], [each["package"]], each["broken"]) for each in carried] != [
        (entry["version"], entry["packages"], None)
    ]:
        yield f"the archive of {machine.os} has no such CUDA {entry['version']}"
    if machine.environment in ("wsl", "container", "jetson"):
        yield f"the archive's toolkit brings a driver into this {machine.environment}"
    if entry.get("default"):
        yield "the archive's toolkit is in /usr, no link leads there"


def _mode(machine: Any, stack: Stack, entry: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    cuda, said = entry["version"], entry["mode"]
    mode = runs(machine, stack, cuda)
    if said == "forward":
        if mode is not None or not covered(stack, cuda):
            yield f"CUDA {cuda} is to run by cuda-compat: the driver runs it as {mode}"
    elif mode not in ("unknown", said):
        yield f"CUDA {cuda} runs as {mode}, the answer says {said}"
    if said == "minor-version" and "cuda.minor-version" not in warned:
        yield f"CUDA {cuda} runs in minor-version mode, and nothing says so"


def _compiler(machine: Any, system: Row, cuda: str, warned: set[str]) -> Iterator[str]:
    known = [each for each in rows("cuda", "compilers") if not below(cuda, each["cuda"])]
    limit = max(known, key=lambda each: numbers(each["cuda"]))
    glibc = ".".join((machine.glibc or "").split(".")[:2])
    if glibc and limit["glibc"] and below(limit["glibc"], glibc) and "cuda.glibc" not in warned:
        yield f"the compiler of CUDA {cuda} fails on glibc {glibc}, and nothing says so"
    if (
        limit["gcc"]
        and below(limit["gcc"], getattr(machine, "gcc", None) or system["gcc"])
        and "cuda.gcc" not in warned
    ):
        yield f"the compiler of CUDA {cuda} does not take the gcc of {machine.os}, and nothing says so"


def _archives(machine: Any, found: Mapping[str, Any], known: Collection[tuple[str, ...]]) -> Iterator[str]:
    """Hold archives against (version, CUDA major version, architecture, SHA256) of those that the tables have."""
    for each in found["archives"]:
        major = each["path"].rpartition("-")[2].split(".")[0]
        if (each["version"], major, machine.arch, each["sha256"]) not in known:
            yield f"no archive of {each['version']} for CUDA {major} has this checksum: {each['name']}"


def nccl(machine: Any, stack: Stack) -> Iterator[str]:
    found = stack.get("nccl")
    if found and found.get("archives"):
        known = [
            (each["version"], each["cuda"].split(".")[0], arch, each[arch])
            for each in rows("libraries", "nccl_archives")
            for arch in ("x86_64", "aarch64")
        ]
        yield from _archives(machine, found, known)
        return
    for published in rows("libraries", "nccl"):
        if found and found["version"] == published["version"] and f"cu{found['cuda']}" not in published["variants"]:
            yield f"NCCL {found['version']} was not built for CUDA {found['cuda']}"
    if found and stack.get("cuda") and found["cuda"] not in {each["version"].split(".")[0] for each in stack["cuda"]}:
        yield f"NCCL is built for CUDA {found['cuda']}, which is not in the stack"


def tensorrt(machine: Any, stack: Stack, warned: set[str]) -> Iterator[str]:
    found = stack.get("tensorrt")
    if not found:
        return
    if found.get("archives"):
        known = [
            (each["version"], each["cuda"].split(".")[0], each["arch"], each["sha256"])
            for each in rows("libraries", "tensorrt_archives")
        ]
        yield from _archives(machine, found, known)
        for archive in found["archives"]:
            yield from _tensorrt_serves([row("libraries", "tensorrt", version=archive["version"])], machine, warned)
        return
    published = [
        each
        for each in rows("libraries", "tensorrt")
        if (
            within(each["version"], found["version"])
            if found["version"]
            else each["version"].startswith(f"{found['generation']}.")
        )
    ]
    if found["cuda"] not in published[-1]["cuda"]:
        yield f"TensorRT {published[-1]['version']} was not built for CUDA {found['cuda']}"
    yield from _tensorrt_serves(published, machine, warned)


def _tensorrt_serves(published: Sequence[Row], machine: Any, warned: set[str]) -> Iterator[str]:
    newest = published[-1]
    for card in machine.cards:
        capability = card.compute_capability
        low, high = newest["min_compute_capability"], newest["max_compute_capability"]
        if capability and ((low and below(capability, low)) or (high and below(high, capability))):
            yield f"TensorRT {newest['version']} does not serve the {card.name}"
    for limit in rows("libraries", "limits"):
        if limit["library"] == "tensorrt" and limit["confirmed"] and between(newest["version"], limit):
            yield from outside(f"TensorRT {newest['version']}", limit, machine)
    if not newest["confirmed"] and "tensorrt.unconfirmed" not in warned:
        yield f"TensorRT {newest['version']} is not confirmed, and nothing says so"


def between(version: str, limit: Row) -> bool:
    return not below(version, limit["from_version"]) and not (
        limit["to_version"] and below(limit["to_version"], version)
    )


def outside(who: str, limit: Row, machine: Any) -> Iterator[str]:
    for card in machine.cards:
        capability = card.compute_capability
        low, high = limit["min_compute_capability"], limit["max_compute_capability"]
        if capability and ((low and below(capability, low)) or (high and below(high, capability))):
            yield f"{who} does not run on the {card.name} ({capability}): {limit['text']}"


def compat(machine: Any, stack: Stack, warned: set[str]) -> Iterator[str]:
    compat = stack.get("cuda_compat")
    if not compat:
        return
    version, branch = compat["version"], stack["driver"]["branch"]
    known = [each for each in rows("cuda", "forward") if each["branch"] == branch]
    if not known or below(version, known[0]["first"]) or below(known[0]["last"], version):
        yield f"cuda-compat of CUDA {version} does not run on branch {branch}"
    if any(card.kind not in known[0]["classes"] for card in machine.cards if known):
        yield "cuda-compat is for data-centre cards"
    if all(runs(machine, stack, cuda) for cuda in cuda_in_use(stack)):
        yield "cuda-compat is of no use: the driver runs everything"
    if known and not known[0]["supported"] and "cuda.compat-base" not in warned:
        yield f"branch {branch} is no supported base of cuda-compat, and nothing says so"


def cudnn(machine: Any, stack: Stack) -> Iterator[str]:
    found = stack.get("cudnn")
    if not found:
        return
    if found.get("archives"):
        known = [
            (each["version"], each["cuda_major"], arch, each[arch])
            for each in rows("cudnn", "archives")
            for arch in ("x86_64", "aarch64")
        ]
        yield from _archives(machine, found, known)
        for each in found["archives"]:
            major = each["path"].rpartition("-")[2].split(".")[0]
            yield from cudnn_serves(f"cuDNN {each['version']}", each["version"], {major}, machine)
        return
    # Without a version the newest is taken: it has to stand every limit that an unreachable number stands.
    version = found["version"] or "9999.0.0.0"
    majors = {name.rsplit("-", 1)[1] for name in found["packages"] if re.search(r"-cuda-\d+$", name)}
    majors |= {each["version"].split(".")[0] for each in stack.get("cuda", ())}
    yield from cudnn_serves(f"cuDNN {version}", version, majors, machine)
    if yanked(version):
        yield f"cuDNN {version} was withdrawn"


def cudnn_serves(who: str, version: str, majors: Collection[str], machine: Any) -> Iterator[str]:
    """Hold a cuDNN against its ceilings, its floors and the table of what each range of versions serves."""
    capabilities = [card.compute_capability for card in machine.cards if card.compute_capability]
    for limit in rows("cudnn", "ceilings"):
        old = limit.get("below_compute_capability")
        hit = (limit.get("cuda_major") or "") in majors or (old and any(below(each, old) for each in capabilities))
        if hit and below(limit["last"], version):
            yield f"{who} is past {limit['last']}, the last for {old or limit['cuda_major']}"
    for limit in rows("cudnn", "floors"):
        new = limit.get("from_compute_capability")
        hit = (limit.get("cuda_major") or "") in majors or (new and any(not below(each, new) for each in capabilities))
        if hit and below(version, limit["first"]):
            yield f"{who} is before {limit['first']}, the first for {new or limit['cuda_major']}"
    for served in rows("cudnn", "rows"):
        if served["confirmed"] and _in_range(version, served["first"], served["last"]):
            yield from _matrix(who, served, majors, capabilities)


def _matrix(who: str, served: Row, majors: Collection[str], capabilities: Sequence[str]) -> Iterator[str]:
    for major in majors:
        if major not in served["cuda_majors"]:
            yield f"{who} does not serve CUDA {major}"
    for each in capabilities:
        if below(each, served["min_compute_capability"]):
            yield f"{who} does not serve compute capability {each}"


def _in_range(version: str, first: str, last: str) -> bool:
    parts = [int(part) for part in version.split(".")[:4]]
    low, high = [int(part) for part in first.split(".")], [int(part) for part in last.split(".")]
    return parts[: len(low)] >= low and parts[: len(high)] <= high


def container_toolkit(stack: Stack, warned: set[str]) -> Iterator[str]:
    toolkit = stack.get("container_toolkit")
    if not toolkit:
        return
    floors = [each["version"] for each in rows("container_toolkit", "floors") if each["when"] == "always"]
    version = toolkit["version_spec"].lstrip("=>").removesuffix(".*")
    exact = len(version.split(".")) > 2
    if exact and any(below(version, floor) for floor in floors) and "container-toolkit.floor" not in warned:
        yield f"container toolkit {version} is below {floors[0]}, and nothing says so"
    bad = [each for each in rows("container_toolkit", "rows") if each["version"] == version and each.get("bad")]
    if bad and "container-toolkit.bad" not in warned:
        yield f"container toolkit {version} is known to be bad, and nothing says so"
