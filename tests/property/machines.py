"""Machines and wishes, drawn from what the tables name."""

from __future__ import annotations

import copy
import re
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import Machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.property import naive
from tests.unit.plan import nodes
from tests.unit.resolve.conftest import FACTS

RULES = load_rules()
KEYS = {"nvidia": "A" * 40}
DAYS = (date(2026, 11, 20), date(2027, 2, 1), date(2028, 6, 1))
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
KERNELS = (
    "5.15.0-91-generic",
    "6.1.0-30-amd64",
    "6.8.0-45-generic",
    "6.8.0-1021-aws",
    "6.11.0-19-generic",
    "6.12.94+deb13-amd64",
    "6.12.107+deb13-amd64",
    "6.12.107+deb13-cloud-amd64",
    "5.14.0-503.14.1.el9_5.aarch64+64k",
    "5.14.0-503.14.1.el9_5.x86_64+rt",
    "7.0.0-5-generic",
    "7.1.0-2-generic",
)
_NEW_OF_DISTROS = {
    "debian": ["contrib", "non-free", "non-free-firmware"],
    "ubuntu": ["restricted", "multiverse"],
    "rhel": [],
}


@dataclass(frozen=True)
class Question:
    """A machine and what is wanted of it, as a person gives them; small enough to be printed. ``lines``: the file of a project."""

    machine: dict[str, Any]
    wants: tuple[str, ...]
    lines: tuple[str, ...] = ()

    def wanting(self, *wants: str) -> Question:
        """The same machine with another wish."""
        return Question(self.machine, wants, self.lines)


def wish_of(question: Question) -> Wish:
    """The wish as the program reads it."""
    wants = [*question.wants, *([f"project={_file(question.lines)}"] if question.lines else [])]
    return Wish.from_variables({"gpuwright_want": wants, "gpuwright_repository_keys": question.machine["keys"]}, RULES)


@cache
def _file(lines: tuple[str, ...]) -> str:
    """A project's file with these lines, as long as this process lives."""
    path = Path(_FILES.name) / f"{zlib.crc32(repr(lines).encode()):08x}" / "requirements.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


_FILES = tempfile.TemporaryDirectory(prefix="gpuwright-property-")


def machine_of(question: Question, wish: Wish) -> Machine:
    """The machine as the program sees it: described in words, or looked at."""
    asked = question.machine
    today = date.fromisoformat(asked["today"])
    if "facts" in asked:
        return machine.machine_from_facts(asked["facts"], wish, RULES, today=today, absent=asked["absent"])
    return machine.machine_from_options(asked["gpus"], asked["os"], asked["arch"], asked["assume"], RULES, today=today)


def answer_to(question: Question) -> Any:
    """The resolver's answer."""
    wish = wish_of(question)
    return resolver.resolve(machine_of(question, wish), wish, RULES)


# wishes -------------------------------------------------------------------------------------------------

BRANCHES = [row["branch"] for row in naive.rows("driver_branches", "rows")]
BUILDS = [row["latest"] for row in naive.rows("driver_branches", "rows") if row["latest"]]
BUILDS += sorted({build for row in naive.rows("driver_branches", "first_builds") for build in row["first"]})
#: As the planner says it of an index that lacks the pair.
NO_DCGM = f"dcgm={naive.rows('monitoring', 'pairs')[0]['dcgm']}"
MINORS = list(dict.fromkeys(row["cuda"] for row in naive.rows("cuda", "rows")))
RELEASES = [row["release"] for row in naive.rows("cuda", "rows")]
CUDNN = [row["version"] for row in naive.rows("cudnn", "versions") if ".post" not in row["version"]]
CUDNN = [each for each in CUDNN if not naive.yanked(each)]
TORCH = [row["version"] for row in naive.rows("pytorch", "releases")]
TOOLKITS = [row["version"] for row in naive.rows("container_toolkit", "rows")]


NCCL = [row["version"] for row in naive.rows("libraries", "nccl") if ".post" not in row["version"]]
TENSORRT = [row["version"] for row in naive.rows("libraries", "tensorrt") if ".post" not in row["version"]]
TENSORFLOW = [
    row["version"]
    for row in naive.rows("tensorflow", "releases")
    if not row["yanked"] and ".post" not in row["version"]
]
JAX = [row for row in naive.rows("jax", "releases") if not row["yanked"]]
ONNXRUNTIME = [row for row in naive.rows("onnxruntime", "releases") if not row["yanked"]]
LMDB = [row["version"] for row in naive.rows("lmdb", "releases") if not row["yanked"]]
VLLM = [row["version"] for row in naive.rows("vllm", "releases") if not row["yanked"]]
CUPY = [row for row in naive.rows("cupy", "releases") if not row["yanked"]]
DALI = [row for row in naive.rows("libraries", "dali") if row["real"]]


def _torch_of_variant() -> st.SearchStrategy[str]:
    """torch==2.3.0+cu121: releases with a variant that they have."""
    pairs = [
        (release, row["variant"])
        for release in TORCH
        for row in naive.rows("pytorch", "variants")
        if naive.within(release, row["release"])
    ]
    return st.sampled_from(pairs).map(lambda pair: f"torch=={pair[0]}+{pair[1]}")


def _jax() -> st.SearchStrategy[str]:
    """jax, jax[cuda12], jax==0.7.2, jax[cuda13]>=0.7: extras with releases that have them."""
    plain = [row["version"] for row in JAX]
    pairs = [(extra, row["version"]) for row in JAX for extra in row["extras"] if extra in ("cuda12", "cuda13")]
    return st.one_of(
        st.sampled_from(["jax", "jax[cuda12]", "jax[cuda13]", "jax[cpu]"]),
        st.sampled_from(plain).map("jax=={}".format),
        st.sampled_from(plain).map("jax>={}".format),
        st.sampled_from(pairs).map(lambda pair: f"jax[{pair[0]}]=={pair[1]}"),
    )


def _cupy() -> st.SearchStrategy[str]:
    pairs = [(row["version"], variant) for row in CUPY for variant in row["wheels"]]
    return st.one_of(
        st.just("cupy"),
        st.sampled_from([row["version"] for row in CUPY]).map("cupy=={}".format),
        st.sampled_from(pairs).map(lambda pair: f"cupy=={pair[0]}+{pair[1]}"),
    )


def _dali() -> st.SearchStrategy[str]:
    pairs = [(row["version"], variant) for row in DALI for variant in row["wheels"]]
    return st.one_of(
        st.just("dali"),
        st.sampled_from([row["version"] for row in DALI]).map("dali=={}".format),
        st.sampled_from(pairs).map(lambda pair: f"dali=={pair[0]}+{pair[1]}"),
    )


def _onnxruntime() -> st.SearchStrategy[str]:
    versions = [row["version"] for row in ONNXRUNTIME]
    return st.one_of(
        st.sampled_from(["onnxruntime", "onnxruntime-gpu", "ort"]),
        st.sampled_from(versions).map("onnxruntime=={}".format),
        st.sampled_from(versions).map("onnxruntime>={}".format),
    )


def _one_of_each() -> dict[str, st.SearchStrategy[str]]:
    """What may be wanted, by component."""
    majors = sorted({each.split(".")[0] for each in MINORS})
    return {
        "driver": st.one_of(st.just("driver"), st.sampled_from(BRANCHES + BUILDS).map("driver={}".format)),
        "driver-modules": st.sampled_from(["driver-modules=open", "driver-modules=proprietary"]),
        "driver-source": st.sampled_from(["driver-source=nvidia", "driver-source=distro"]),
        "driver-set": st.sampled_from(["driver-set=desktop", "driver-set=compute"]),
        "cuda": st.one_of(st.just("cuda"), st.sampled_from(majors + MINORS + RELEASES).map("cuda={}".format)),
        "cuda-source": st.sampled_from(["cuda-source=nvidia", "cuda-source=distro", "cuda-source=runfile"]),
        **{
            f"{library}-source": st.sampled_from([f"{library}-source=packages", f"{library}-source=archive"])
            for library in ("cudnn", "nccl", "tensorrt")
        },
        "cudnn": st.one_of(st.just("cudnn"), st.sampled_from(CUDNN).map("cudnn={}".format)),
        "container-toolkit": st.one_of(
            st.just("container-toolkit"), st.sampled_from(TOOLKITS).map("container-toolkit={}".format)
        ),
        "container-engine-source": st.sampled_from(
            ["container-engine-source=docker", "container-engine-source=distro"]
        ),
        "pytorch": st.one_of(
            st.just("pytorch"),
            st.sampled_from(TORCH).map("pytorch=={}".format),
            st.sampled_from(TORCH).map("pytorch>={}".format),
            _torch_of_variant(),
            st.sampled_from(TORCH).map("torch=={}+cpu".format),
        ),
        "nccl": st.one_of(st.just("nccl"), st.sampled_from(NCCL).map("nccl={}".format)),
        "tensorrt": st.one_of(st.just("tensorrt"), st.sampled_from(TENSORRT).map("tensorrt={}".format)),
        "cuda-compat": st.just("cuda-compat=auto"),
        "tensorflow": st.one_of(
            st.sampled_from(["tensorflow", "tf", "tensorflow[and-cuda]"]),
            st.sampled_from(TENSORFLOW).map("tensorflow=={}".format),
            st.sampled_from(TENSORFLOW).map("tensorflow>={}".format),
        ),
        "jax": _jax(),
        "dali": _dali(),
        "cupy": _cupy(),
        "lmdb": st.one_of(st.just("lmdb"), st.sampled_from(LMDB).map("lmdb=={}".format)),
        "vllm": st.one_of(
            st.just("vllm"),
            st.sampled_from(VLLM).map("vllm=={}".format),
            st.sampled_from(VLLM).map("vllm>={}".format),
        ),
        "onnxruntime": _onnxruntime(),
        "monitoring": st.sampled_from(["monitoring", "monitoring=dcgm", "monitoring=smi"]),
        "python": st.sampled_from(PYTHONS).map("python={}".format),
    }


WANTS = _one_of_each()


@st.composite
def wishes(draw: st.DrawFn) -> tuple[str, ...]:
    """A wish that names each component at most once, in any order."""
    number = draw(st.sampled_from([1, 2, 3, 4, 6, 0]))
    names = draw(st.lists(st.sampled_from(sorted(WANTS)), unique=True, min_size=number, max_size=number))
    return tuple(draw(WANTS[name]) for name in names)


# machines -----------------------------------------------------------------------------------------------

_NAMES = [row["name"] for row in naive.rows("gpus", "rows")]
_SXM = [name for name in _NAMES if "SXM" in name]
_SYSTEMS = [row["os"] for row in naive.rows("systems", "rows")]
_arches = st.sampled_from(["x86_64", "x86_64", "x86_64", "aarch64"])
_ON_ARM = {row["name"] for row in naive.rows("gpus", "rows") if "arch" in row}
_keys = st.sampled_from([{}, {}, KEYS])
_days = st.sampled_from(DAYS).map(date.isoformat)


@st.composite
def described(draw: st.DrawFn) -> Any:
    """A machine in words, as --gpu, --os, --arch and --assume give it."""
    optional = {
        "kernel": st.sampled_from(KERNELS),
        "secure_boot": st.sampled_from(["true", "false"]),
        "desktop": st.sampled_from(["true", "false"]),
        "python": st.sampled_from(PYTHONS),
        "wsl": st.just("true"),
        "nvswitch": st.just("true"),
        "glibc": st.sampled_from(["2.31", "2.35", "2.41", "2.43"]),
    }
    said = draw(st.lists(st.sampled_from(sorted(optional)), unique=True, max_size=4))
    cards = draw(st.one_of([_several(_NAMES)] * 7 + [st.sampled_from(_SXM).map(lambda name: [name] * 8)]))
    arch = draw(_arches)
    return {
        "gpus": cards,
        "os": draw(st.sampled_from(_SYSTEMS)),
        "arch": "aarch64" if _ON_ARM & set(cards) else arch,
        "assume": [f"{key}={draw(optional[key])}" for key in said],
        "today": draw(_days),
        "keys": draw(_keys),
    }


def _several(names: Sequence[str]) -> st.SearchStrategy[list[str]]:
    """Mostly one; a list by itself would mostly be empty."""
    counts = st.sampled_from([1, 1, 1, 1, 2, 2, 3, 4, 0])
    return counts.flatmap(lambda count: st.lists(st.sampled_from(names), min_size=count, max_size=count))


@st.composite
def observed(draw: st.DrawFn) -> Any:
    """A machine that was looked at; parts of what node_facts sees may be unknown."""
    facts = copy.deepcopy(FACTS)
    system = naive.row("systems", "rows", os=draw(st.sampled_from(_SYSTEMS)))
    facts["os"] |= {key: system[key] for key in ("id", "version", "codename", "name", "family", "glibc")}
    facts["os"]["arch"] = draw(_arches)
    facts["os"]["glibc"] = draw(st.sampled_from([system["glibc"], None]))
    facts["pci"]["gpus"] = [_device(number, device) for number, device in enumerate(draw(_devices()))]
    facts["pci"]["nvlink5"] = draw(st.sampled_from([False, None]))
    facts["pci"]["nvswitches"] = draw(st.sampled_from([[], [], [{"bus_id": "00000000:05:00.0", "device": "22a3"}]]))
    facts["boot"]["secure_boot"] = draw(st.sampled_from([False, False, True, None]))
    facts["environment"]["kind"] = draw(st.sampled_from(["bare", "bare", "bare", "vm", "container", "wsl"]))
    kernel = draw(st.sampled_from([*KERNELS, None]))
    facts["kernel"] |= {"running": kernel, "next": draw(st.sampled_from([kernel, None]))}
    screens = [card["bus_id"] for card in facts["pci"]["gpus"]]
    facts["display"]["nvidia_screens"] = screens[: draw(st.sampled_from([0, 1]))]
    versions = draw(st.lists(st.sampled_from([*PYTHONS, None]), max_size=3))
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3", "version": each} for each in versions]
    facts["driver"] = draw(_drivers())
    facts["seals"] = draw(_seals())
    facts["smi"] = draw(st.sampled_from([None, nodes.smi(rc=9), nodes.smi(cuda="12.8")]))
    facts["containers"]["docker"] = draw(
        st.sampled_from(
            [
                {"installed": False, "version": None},
                {"installed": True, "version": None},
                {"installed": True, "version": "20.10.24"},
            ]
        )
    )
    components = draw(st.sampled_from([["main"], ["main", *_NEW_OF_DISTROS[system["family"]]]]))
    suites = [system["codename"], f"{system['codename']}-security"]
    facts["packages"]["sources"][0] |= {"suites": suites, "components": components}
    if draw(st.booleans()):
        there = draw(st.sampled_from([{}, {}, {"kernel-devel-matched": "5.14.0-570.58.1.el9_6"}]))
        facts["packages"] |= {"sources": draw(st.sampled_from([[], facts["packages"]["sources"]])), "installed": there}
    absent = draw(st.lists(st.sampled_from(["driver=580", "driver=595", "cuda=13.0", "cuda=12.8"]), max_size=2))
    return {"facts": facts, "absent": sorted(set(absent)), "today": draw(_days), "keys": draw(_keys)}


def _devices() -> st.SearchStrategy[list[str]]:
    """PCI ids that rows name, that only a range names, and that nothing names."""
    named = [device for row in naive.rows("gpus", "rows") for device in row["pci"]]
    only = ["249d", "3fff", "1dff", "2bff"]
    return st.one_of(_several(named), _several(named), _several(named), _several(only))


def _device(number: int, device: str) -> Any:
    bus = f"00000000:{number + 16:02X}:00.0"
    return {"bus_id": bus, "vendor": "10de", "device": device, "class": "0302", "driver": None}


@st.composite
def _drivers(draw: st.DrawFn) -> Any:
    """The part `driver`: mostly none; else one that works, or packages or a .run file of one that does not."""
    nothing: Any = copy.deepcopy(FACTS["driver"])
    if draw(st.integers(0, 2)):
        return nothing
    version = draw(st.sampled_from(BUILDS))
    owner, source = draw(
        st.sampled_from(
            [
                ("packages", "nvidia"),
                ("packages", "distro"),
                ("packages", None),
                ("runfile", "runfile"),
                ("unknown", None),
            ]
        )
    )
    return {
        **nothing,
        "owner": owner,
        "source": source,
        "packages": {"nvidia-driver-cuda": f"{version}-1"} if owner == "packages" else {},
        "loaded_version": draw(st.sampled_from([version, None])),
        "loaded_modules": draw(st.sampled_from(["open", "proprietary", None])),
        "user_version": draw(st.sampled_from([version, version, None])),
    }


@st.composite
def _seals(draw: st.DrawFn) -> Any:
    """The part `seals`: mostly none; else that of a driver that was put there, or found there, by an earlier run."""
    if draw(st.integers(0, 3)):
        return {}
    stack = {
        "branch": draw(st.sampled_from(BRANCHES)),
        "modules": draw(st.sampled_from(["open", "proprietary"])),
        "source": draw(st.sampled_from(["nvidia", "distro"])),
        "source_reason": "an earlier run",
        "adopted": draw(st.booleans()),
    }
    return {
        "nvidia_driver": {
            "state": draw(st.sampled_from(["good", "broken"])),
            "stack": draw(st.sampled_from([stack, None])),
        }
    }


# wheels on cards that they are not for ------------------------------------------------------------------


@st.composite
def exceptions(draw: st.DrawFn) -> Question:
    """Wheels for a card that a table excepts from them: by chance hardly a question comes there."""
    row = draw(st.sampled_from([*naive.rows("frameworks", "embedded"), *naive.rows("jax", "limits")]))
    cards = [each for each in naive.rows("gpus", "rows") if each["compute_capability"] in row["compute_capabilities"]]
    card = draw(st.sampled_from(cards))
    # A Python that the wheels are not for would be a reason of its own, and hide the one that is meant.
    if "framework" in row:
        wants, pythons = draw(WANTS[row["framework"]]), PYTHONS
    else:
        release = draw(st.sampled_from([each for each in JAX if _limited(each, row)]))
        wants, pythons = f"jax[{row['variant']}]=={release['version']}", tuple(release["python"])
    machine = draw(described())
    said = [each for each in machine["assume"] if not each.startswith("python=")]
    assume = [*said, f"python={draw(st.sampled_from(pythons))}"]
    arch = card.get("arch", machine["arch"])
    return Question({**machine, "gpus": [card["name"]], "arch": arch, "assume": assume}, (wants,))


def _limited(release: naive.Row, limit: naive.Row) -> bool:
    return limit["variant"] in release["extras"] and naive.between(release["version"], limit)


@st.composite
def monitored(draw: st.DrawFn) -> Question:
    """Exporters, mostly with what is left to the rules, on machines whose index mostly has them: the driver decides which DCGM serves."""
    source = draw(st.sampled_from(["monitoring", "monitoring", "monitoring=dcgm", "monitoring=smi"]))
    driver = draw(st.one_of(st.just([]), st.sampled_from(BRANCHES).map(lambda branch: [f"driver={branch}"])))
    machine = draw(st.one_of(described(), observed()))
    absent = {"absent": draw(st.sampled_from([[], [], [NO_DCGM]]))} if "facts" in machine else {}
    return Question({**machine, **absent}, (source, *driver))


_any = st.builds(Question, machine=st.one_of(described(), observed()), wants=wishes())
# Each as likely as its neighbours: one question in five is of the last kind.
questions = st.one_of(_any, _any, _any, _any, exceptions())


# what stands beside a framework -------------------------------------------------------------------------


def _releases_beside() -> dict[str, list[str]]:
    """The releases at which something begins or ends, of each package that is used beside PyTorch."""
    found: dict[str, list[str]] = {}
    for row in naive.rows("companions", "spans"):
        names = {each["package"] for each in naive.rows("companions", "pairs")} | set(_BESIDE)
        for name in [row["package"], *names] if re.fullmatch("[a-z0-9-]+", row["package"]) else names:
            if re.fullmatch(row["package"], name):
                found.setdefault(name, []).extend([row["from_version"], row["to_version"]])
    for row in naive.rows("companions", "pairs"):
        found.setdefault(row["package"], []).extend(row["releases"])
    # Frameworks are wished by themselves.
    return {name: sorted(set(each)) for name, each in sorted(found.items()) if name not in ("vllm", "onnxruntime-gpu")}


#: Names of which a row speaks by a pattern.
_BESIDE = (
    "cuda-python",
    "cuda-bindings",
    "cudf-cu12",
    "cudf-cu13",
    "cuml-cu11",
    "faiss-gpu-cu12",
    "spconv-cu120",
    "mxnet-cu112",
)


@st.composite
def beside(draw: st.DrawFn) -> Question:
    """A project with a PyTorch and one package that is used beside it, in which a driver may be wished too."""
    torch = draw(st.one_of(st.just("torch"), st.sampled_from(TORCH).map("torch=={}".format), _torch_of_variant()))
    releases = _releases_beside()
    name = draw(st.sampled_from(list(releases)))
    line = draw(st.one_of(st.just(name), st.sampled_from(releases[name]).map(f"{name}=={{}}".format)))
    driver = draw(st.one_of(st.just([]), st.sampled_from(BRANCHES).map(lambda branch: [f"driver={branch}"])))
    return Question(draw(described()), tuple(driver), (torch, line))
