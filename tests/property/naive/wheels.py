"""Framework wheels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

from tests.property.naive.cuda import between, covered, cudnn_serves, outside, runs
from tests.property.naive.tables import Row, below, row, rows, within, yanked

Stack = Mapping[str, Any]
TEGRA = ("5.3", "6.2", "7.2", "8.7", "11.0")


def carries(targets: Iterable[str], capability: str) -> bool:
    """Whether a wheel has code that runs on a card: its own, older of its generation, or PTX of anything older."""
    major, minor = (int(part) for part in capability.split("."))
    for target in targets:
        own_major, own_minor = (int(part) for part in target.replace("+PTX", "").split("."))
        if (own_major, own_minor) == (major, minor):
            return True
        if capability not in TEGRA and own_major == major and own_minor <= minor:
            return True
        if capability not in TEGRA and target.endswith("+PTX") and (own_major, own_minor) <= (major, minor):
            return True
    return False


def faults(machine: Any, found: Mapping[str, Any], stack: Stack, warned: set[str]) -> Iterator[str]:
    looked = machine.pythons is not None and "python" not in machine.assumed
    beside: list[str] = next(
        (
            [*each.get("pythons_beside", []), *each.get("pythons_on_wish", [])]
            for each in rows("systems", "rows")
            if each["os"] == machine.os
        ),
        [],
    )
    if looked and found["interpreter"] not in [*machine.pythons, *beside]:
        yield f"{found['name']} is to run on Python {found['interpreter']}, which is not there"
    if not isinstance(found["constraints"], list):
        yield f"{found['name']} has no constraints"
    sources = {
        each["package"]
        for each in rows("frameworks", "from_source")
        if between(found["version"], each) and each["framework"] == found["name"]
    }
    if set(found.get("from_source", ())) != (set() if "dependencies_url" in found else sources):
        yield f"{found['name']} {found['version']} has {found.get('from_source')} built from a source"
    checks = {
        "pytorch": _torch,
        "tensorflow": _tensorflow,
        "jax": _jax,
        "dali": _dali,
        "onnxruntime": _onnxruntime,
        "cupy": _cupy,
        "vllm": _vllm,
        "lmdb": _lmdb,
    }
    yield from checks[found["name"]](machine, found, warned)
    yield from _c_library(machine, found)
    cuda = found["cuda"]
    if cuda and not machine.cards:
        yield f"{found['name']} with CUDA {cuda} for a machine without a card"
    if cuda and runs(machine, stack, cuda) is None and not covered(stack, cuda):
        yield f"{found['name']} {found['version']} needs CUDA {cuda}, which the driver does not run"
    if cuda:
        yield from _boards(machine, found)
    toolkits = [each["version"].split(".")[0] for each in stack.get("cuda", ())]
    extended = [each["framework"] for each in rows("frameworks", "extensions")]
    odd = bool(cuda and toolkits) and found["name"] in extended and cuda.split(".")[0] not in toolkits
    if odd and "frameworks.toolkit" not in warned:
        yield f"{found['name']} {found['version']} with CUDA {cuda} is beside toolkits that do not compile for it, and nothing says so"


def _c_library(machine: Any, found: Mapping[str, Any]) -> Iterator[str]:
    for each in rows("frameworks", "glibc"):
        mine = re.split(r"[\[=]", found["requirements"][0])[0] == each["package"]
        needs = each["needs"].get(machine.arch)
        if mine and between(found["version"], each) and needs and machine.glibc and below(machine.glibc, needs):
            yield f"the wheels of {found['name']} {found['version']} are for glibc {needs}, here is {machine.glibc}"


def _boards(machine: Any, found: Mapping[str, Any]) -> Iterator[str]:
    """Hold wheels with CUDA against the boards that they are not made for, whether a source confirms that or not."""
    for board in rows("frameworks", "embedded"):
        for card in machine.cards:
            if board["framework"] == found["name"] and card.compute_capability in board["compute_capabilities"]:
                yield f"{found['name']} {found['version']} has no wheels for the {card.name}"


def _torch(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    version, tag = found["version"], found["variant"]
    name = f"torch {version}+{tag}"
    release = row("pytorch", "releases", version=version)
    if found["interpreter"] not in release["python"]:
        yield f"{name} has no wheels for Python {found['interpreter']}"
    if found["requirements"][0] != f"torch=={version}+{tag}":
        yield f"{name} is asked for as {found['requirements'][0]}"
    for partner in ("torchvision", "torchaudio"):
        pinned = [each for each in found["requirements"] if each.startswith(partner)]
        if pinned and pinned[0].split("+")[0] != f"{partner}=={release[partner]}":
            yield f"{name} goes with {partner} {release[partner]}, not {pinned[0]}"
    if tag == "cpu":
        return
    if not found["index_url"].endswith(f"/{tag}"):
        yield f"{name} is taken from {found['index_url']}"
    variants = [
        each for each in rows("pytorch", "variants") if each["variant"] == tag and within(version, each["release"])
    ]
    if not variants:
        yield f"{name} does not exist"
    for variant in variants[:1]:
        yield from _torch_variant(name, variant, machine, found)
        if not (variant["confirmed"] and release["confirmed"]) and "frameworks.unconfirmed" not in warned:
            yield f"{name} is not confirmed, and nothing says so"


def _torch_variant(name: str, variant: Row, machine: Any, found: Mapping[str, Any]) -> Iterator[str]:
    yield from _wheel_runs(name, variant["targets"].get(machine.arch, ()), machine)
    if found["cuda"] != variant["cuda"]:
        yield f"{name} is built with CUDA {variant['cuda']}, not {found['cuda']}"
    major = variant["cuda"].split(".")[0]
    if variant["cudnn"]:
        yield from cudnn_serves(f"the cuDNN of {name}", variant["cudnn"], [], machine)
    for part in ("cudnn", "nccl"):
        pin = f"nvidia-{part}-cu{major}=={variant[part]}"
        if variant[part] and pin not in found["constraints"]:
            yield f"{name} does not pin {pin}"


def _tensorflow(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    name = f"tensorflow {found['version']}"
    release = row("tensorflow", "releases", version=found["version"])
    if found["interpreter"] not in release["python"]:
        yield f"{name} has no wheels for Python {found['interpreter']}"
    if release["yanked"]:
        yield f"{name} was withdrawn"
    if release["numpy"] and not any(each.startswith(f"numpy{release['numpy']}") for each in found["constraints"]):
        yield f"{name} is not held to numpy{release['numpy']}"
    if found["cuda"]:
        yield from _tensorflow_with_cuda(name, release, machine, found)
    if not release["confirmed"] and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"


def _tensorflow_with_cuda(name: str, release: Row, machine: Any, found: Mapping[str, Any]) -> Iterator[str]:
    if found["requirements"] != [f"tensorflow[and-cuda]=={found['version']}"]:
        yield f"{name} with CUDA is asked for as {found['requirements']}"
    if release["extra"] is None or machine.arch not in release["arch"]:
        yield f"{name} brings no CUDA for {machine.arch}"
    for broken in rows("tensorflow", "broken"):
        if broken["version"] == found["version"] and (not broken["python"] or found["interpreter"] in broken["python"]):
            yield f"{name} cannot be installed on Python {found['interpreter']}: {broken['text']}"
    for limit in rows("tensorflow", "limits"):
        if between(found["version"], limit):
            yield from outside(name, limit, machine)
    yield from _required(name, release["requires"], release["cuda_major"], found, machine)


def _jax(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    name = f"jax {found['version']}[{found['variant']}]"
    release = row("jax", "releases", version=found["version"])
    if found["interpreter"] not in release["python"]:
        yield f"{name} has no wheels for Python {found['interpreter']}"
    if f"jaxlib=={release['jaxlib']}" not in found["requirements"]:
        yield f"{name} goes with jaxlib {release['jaxlib']}"
    if not found["cuda"]:
        return
    version = release["plugins"][found["variant"]]
    plugin = row("jax", "plugins", version=version, variant=found["variant"])
    needs = row("jax", "requirements", variant=found["variant"])
    for part in (plugin["package"], plugin["pjrt"]):
        if f"{part}=={version}" not in found["requirements"]:
            yield f"{name} does not pin {part}=={version}"
    if found["interpreter"] not in plugin["python"] or machine.arch not in plugin["arch"]:
        yield f"the plugin of {name} has no wheel for Python {found['interpreter']} on {machine.arch}"
    for card in machine.cards:
        if card.compute_capability and below(card.compute_capability, needs["min_compute_capability"]):
            yield f"{name} needs compute capability {needs['min_compute_capability']}, the {card.name} has less"
    yield from _jax_before(name, machine, found, warned)
    yield from _required(name, plugin["requires"], needs["cuda_major"], found, machine)
    if not (release["confirmed"] and plugin["confirmed"]) and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"


def _jax_before(name: str, machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    """Hold a release against the cards that came after it: what is confirmed rules it out, the rest has to be said."""
    for limit in rows("jax", "limits"):
        if limit["variant"] != found["variant"] or not between(found["version"], limit):
            continue
        for card in machine.cards:
            if card.compute_capability not in limit["compute_capabilities"]:
                continue
            if limit["confirmed"]:
                yield f"{name} does not run on the {card.name}: {limit['text']}"
            elif "frameworks.unconfirmed" not in warned:
                yield f"{name} may not run on the {card.name} ({limit['text']}), and nothing says so"


def _dali(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    name = f"dali {found['version']}+{found['variant']}"
    release = row("libraries", "dali", version=found["version"])
    if not release["real"]:
        yield f"{name} is only a stub on the package index"
    if found["interpreter"] not in release["python"] or machine.arch not in release["wheels"].get(found["variant"], ()):
        yield f"{name} has no wheel for Python {found['interpreter']} on {machine.arch}"
    for limit in rows("libraries", "limits"):
        mine = limit["library"] == "dali" and limit["variant"] in (None, found["variant"])
        here = mine and limit.get("arch") in (None, machine.arch) and between(found["version"], limit)
        if here and (limit["confirmed"] or "frameworks.unconfirmed" not in warned):
            yield from outside(name, limit, machine)
    if not release["confirmed"] and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"


def _onnxruntime(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    package, extras = ("onnxruntime-gpu", "[cuda,cudnn]") if found["cuda"] else ("onnxruntime", "")
    name = f"{package} {found['version']}"
    release = row("onnxruntime", "releases", version=found["version"], variant=found["variant"])
    if found["interpreter"] not in release["python"] or machine.arch not in release["arch"]:
        yield f"{name} has no wheel for Python {found['interpreter']} on {machine.arch}"
    if found["requirements"] != [f"{package}{extras}=={found['version']}"]:
        yield f"{name} is asked for as {found['requirements']}"
    if not release["confirmed"] and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"
    if not found["cuda"]:
        return
    for broken in rows("onnxruntime", "broken"):
        if broken["version"] == found["version"]:
            yield f"{name} cannot be installed: {broken['text']}"
    for code in rows("onnxruntime", "code"):
        if between(found["version"], code):
            yield from _wheel_runs(name, code["targets"].get(machine.arch, ()), machine)
    yield from _required(name, release["requires"], release["cuda_major"], found, machine)


def _cupy(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    version, variant = found["version"], found["variant"]
    name = f"cupy {version}+{variant}"
    release = row("cupy", "releases", version=version)
    if found["interpreter"] not in release["python"] or machine.arch not in release["wheels"].get(variant, ()):
        yield f"{name} has no wheel for Python {found['interpreter']} on {machine.arch}"
    if found["requirements"] != [f"cupy-{variant}x[ctk]=={version}"]:
        yield f"{name} is asked for as {found['requirements']}"
    if f"numpy{release['numpy']}" not in found["constraints"]:
        yield f"{name} is not held to numpy{release['numpy']}"
    builds = [each for each in rows("cupy", "builds") if each["variant"] == variant and between(version, each)]
    if len(builds) != 1:
        yield f"{name} has {len(builds)} rows of its code"
    for build in builds:
        yield from _wheel_runs(name, build["targets"].get(machine.arch, ()), machine)
        yield from _nvrtc(name, build["cuda_major"], found, machine)
    if (
        not (release["confirmed"] and all(each["confirmed"] for each in builds))
        and "frameworks.unconfirmed" not in warned
    ):
        yield f"{name} is not confirmed, and nothing says so"


def _nvrtc(name: str, major: str, found: Mapping[str, Any], machine: Any) -> Iterator[str]:
    """Hold the toolkit of an environment, which compiles at run time, against the cards: each release of its range that was read."""
    held = [each.removeprefix("cuda-toolkit") for each in found["constraints"] if each.startswith("cuda-toolkit")]
    if len(held) != 1 or f"{int(major) + 1}.0.0" in SpecifierSet(held[0]):
        yield f"{name} leaves CUDA's toolkit open"
        return
    for toolkit in rows("cuda", "targets"):
        if toolkit["cuda"].split(".")[0] != major or toolkit["cuda"] not in SpecifierSet(held[0]):
            continue
        for card in machine.cards:
            if card.compute_capability and card.compute_capability not in toolkit["targets"]:
                yield f"{name} may be given CUDA {toolkit['cuda']}, which does not compile for the {card.name}"


def _vllm(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    name = f"vllm {found['version']}"
    release = row("vllm", "releases", version=found["version"])
    torch = row("pytorch", "releases", version=release["torch"])
    if found["interpreter"] not in release["python"] or found["interpreter"] not in torch["python"]:
        yield f"{name} or its torch has no wheel for Python {found['interpreter']}"
    if found["requirements"] != [f"vllm=={found['version']}"]:
        yield f"{name} is asked for as {found['requirements']}"
    if f"torch=={release['torch']}" not in found["constraints"]:
        yield f"{name} is not held to torch {release['torch']}"
    codes = [each for each in rows("vllm", "code") if between(found["version"], each)]
    for code in codes:
        yield from _wheel_runs(name, code["targets"].get(machine.arch, ()), machine)
        if found["cuda"].split(".")[0] != code["cuda_major"]:
            yield f"{name} is linked with CUDA {code['cuda_major']}, and is said to need {found['cuda']}"
    minor, variant = ".".join(release["torch"].split(".")[:2]), f"cu{torch['default_cuda'].replace('.', '')}"
    built = row("pytorch", "variants", release=minor, variant=variant)
    yield from _torch_variant(f"the torch of {name}", built, machine, found)
    sure = all(each["confirmed"] for each in (release, torch, built, *codes))
    if not sure and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"


def _lmdb(machine: Any, found: Mapping[str, Any], warned: set[str]) -> Iterator[str]:
    name = f"lmdb {found['version']}"
    release = row("lmdb", "releases", version=found["version"])
    if found["interpreter"] not in release["python"] or machine.arch not in release["arch"]:
        yield f"{name} has no wheel for Python {found['interpreter']} on {machine.arch}"
    if found["requirements"] != [f"lmdb=={found['version']}"] or found["cuda"]:
        yield f"{name} is asked for as {found['requirements']} with CUDA {found['cuda']}"
    if not release["confirmed"] and "frameworks.unconfirmed" not in warned:
        yield f"{name} is not confirmed, and nothing says so"


def _required(
    name: str, requires: Mapping[str, str], major: str, found: Mapping[str, Any], machine: Any
) -> Iterator[str]:
    """Hold the constraints against what the wheels ask for: each part closed, within the range, and right for the cards."""
    packages = {"cudnn": f"nvidia-cudnn-cu{major}", "nccl": f"nvidia-nccl-cu{major}"}
    for part, package in packages.items():
        if part not in requires:
            continue
        pins = [each.split("==")[1] for each in found["constraints"] if each.startswith(f"{package}==")]
        if not pins:
            yield f"{name} leaves {package} open"
            continue
        if pins[0] not in SpecifierSet(requires[part]):
            yield f"{name} asks for {package}{requires[part]}, the constraint says {pins[0]}"
        if part == "cudnn":
            yield from cudnn_serves(f"the cuDNN of {name}", pins[0], [major], machine)
            if yanked(pins[0]):
                yield f"cuDNN {pins[0]} was withdrawn"


def _wheel_runs(name: str, targets: Sequence[str], machine: Any) -> Iterator[str]:
    if not targets:
        yield f"{name} has no code for {machine.arch}"
    for card in machine.cards:
        if targets and card.compute_capability and not carries(targets, card.compute_capability):
            yield f"{name} has no code for the {card.name} ({card.compute_capability})"
