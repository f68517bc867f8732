# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the Python index says of the wheels that compat/*.yaml has rows of, in the shape of those rows.

A reader returns only the fields that the index knows; what a row holds besides (the CUDA version that a framework was tested with,
the compute capabilities of a wheel) comes from elsewhere and is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tools.compat_index import ARCHES, NEWEST_PYTHON, File, Index, Metadata, Progress, preload

Row = dict[str, Any]
Rows = list[Row]
Key = tuple[str, ...]
Tables = dict[str, dict[str, Any]]
Releases = dict[Version, list[File]]

CUDNN_MAJORS = ("11", "12", "13")
NCCL_VARIANTS = ("cu11", "cu12", "cu13")
JAX_VARIANTS = ("cuda12", "cuda13")
TENSORRT_MAJORS = ("11", "12", "13")
CUPY_VARIANTS = ("cuda12", "cuda13")
DALI_VARIANTS = ("cuda110", "cuda120", "cuda130")
# The names that a row gives to what an extra asks for; `major` is the number at the end of the package's name, if it has one.
COMPONENTS = {
    "cudnn": re.compile(r"^nvidia-cudnn-cu(?P<major>\d+)$"),
    "nccl": re.compile(r"^nvidia-nccl-cu(?P<major>\d+)$"),
    "runtime": re.compile(r"^nvidia-cuda-runtime(-cu(?P<major>\d+))?$"),
    "nvcc": re.compile(r"^nvidia-cuda-nvcc(-cu(?P<major>\d+))?$"),
    "tensorrt": re.compile(r"^tensorrt$"),
}


@dataclass(frozen=True)
class Facts:
    """Rows of one table as the index has them."""

    file: str
    table: str
    key: tuple[str, ...]
    rows: dict[Key, Row] = field(default_factory=dict)
    # Whether a row that is not among these is one too many.
    complete: bool = True
    # What a new row may be begun with where the index does not say: never compared, never confirmed.
    hints: dict[Key, Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The table with its file."""
        return f"{self.file}.{self.table}"


def read(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """Ask the index for everything that the tables have rows of."""
    return [facts for reader in READERS for facts in reader(index, tables, done)]


# PyTorch ---------------------------------------------------------------------------------------------------


def pytorch(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of torch, the variant that the index carries, and the partners."""
    ours = tables["pytorch"]["releases"]
    releases = releases_of(index.files("torch"), _oldest(ours))
    said = metadata_of(index, releases, done)
    partners = {name: _partner(index, name, releases, done) for name in ("torchvision", "torchaudio")}
    rows: dict[Key, Row] = {}
    variants: dict[Key, Row] = {}
    for version, files in releases.items():
        pins = torch_pins(said[version])
        rows[str(version),] = {
            **_common(files),
            "default_cuda": pins["cuda"],
            **{name: found.get(version) for name, found in partners.items()},
        }
        key = (f"{version.major}.{version.minor}", f"cu{(pins['cuda'] or '').replace('.', '')}")
        variants[key] = _merged(variants.get(key), {"cuda": pins["cuda"], "cudnn": pins["cudnn"], "nccl": pins["nccl"]})
    return [
        Facts("pytorch", "releases", ("version",), rows, hints=_newest_partners(index, rows)),
        Facts("pytorch", "variants", ("release", "variant"), variants, complete=False),
        Facts("pytorch", "partner_pythons", ("package", "version"), _partner_pythons(index, ours, releases)),
        Facts("pytorch", "partner_releases", ("package",), _partner_releases(index, ours)),
    ]


def torch_pins(said: Metadata) -> dict[str, str | None]:
    """The CUDA version of the wheel, and the cuDNN and NCCL that it pins."""
    found = _components(said.requirements())
    toolkit = said.needs("cuda-toolkit")
    runtime = _pinned(found.get("runtime")) or _pinned(toolkit)
    return {
        "cuda": ".".join(runtime.split(".")[:2]) if runtime else None,
        "cudnn": _pinned(found.get("cudnn")),
        "nccl": _pinned(found.get("nccl")),
    }


def _partner(index: Index, name: str, torches: Releases, done: Progress) -> dict[Version, str]:
    """The newest release of a partner that names each release of torch, and no other; by release of torch."""
    # A partner comes out on the day of its torch or later: older ones need not be read.
    first = min(filter(None, map(_date, torches.values())), default="")
    releases = {
        version: files
        for version, files in releases_of(index.files(name), Version("0")).items()
        if not _yanked(files) and (_date(files) or first) >= first
    }
    named: dict[Version, str] = {}
    for version, said in metadata_of(index, releases, done).items():
        pinned = _pinned(said.needs("torch"))
        if pinned:
            named[Version(Version(pinned).public)] = str(version)
    return named


def _newest_partners(index: Index, rows: Iterable[Key]) -> dict[Key, Row]:
    """The newest of each partner, for a release of torch that none of them names."""
    newest: Row = {}
    for name in ("torchvision", "torchaudio"):
        releases = releases_of(index.files(name), Version("0"))
        standing = [version for version, files in releases.items() if not _yanked(files)]
        if standing:
            newest[name] = str(max(standing))
    return dict.fromkeys(rows, newest)


def _partner_releases(index: Index, ours: Rows) -> dict[Key, Row]:
    """Every release of each partner that stands, since that of the first torch of the table."""
    found: dict[Key, Row] = {}
    for name in ("torchaudio", "torchvision"):
        oldest = min((Version(row[name]) for row in ours if row[name]), default=Version("0"))
        releases = releases_of(index.files(name), oldest)
        found[name,] = {"releases": [str(version) for version, files in releases.items() if not _yanked(files)]}
    return found


def _partner_pythons(index: Index, ours: Rows, torches: Releases) -> dict[Key, Row]:
    """Partners that lack wheels for a Python that their torch has."""
    found: dict[Key, Row] = {}
    for row in ours:
        torch = torches.get(Version(row["version"]))
        if not torch:
            continue
        for name in ("torchvision", "torchaudio"):
            files = [each for each in index.files(name) if str(each.version) == row[name] and "x86_64" in each.arches]
            # A wheel that is no more tied to one Python has none in its name.
            if any(tag.interpreter.startswith("py") for each in files for tag in each.tags):
                continue
            pythons = _pythons(files)
            if not set(_pythons(torch)) <= set(pythons):
                found[name, row[name]] = {"python": pythons}
    return found


# TensorFlow ------------------------------------------------------------------------------------------------


def tensorflow(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of TensorFlow with what their extra asks for."""
    releases = releases_of(index.files("tensorflow"), _oldest(tables["tensorflow"]["releases"]))
    rows: dict[Key, Row] = {}
    for version, said in metadata_of(index, releases, done).items():
        files = releases[version]
        extra = "and-cuda" if "and-cuda" in said.extras else None
        wanted = said.named("and-cuda") if extra else []
        common = _common(files)
        rows[str(version),] = {
            **common,
            "extra": extra,
            "requires": _components(wanted),
            "numpy": said.needs("numpy", python=common["python"][-1] if common["python"] else ""),
            **({"cuda_major": _cuda_major(wanted)} if extra else {}),
        }
    return [Facts("tensorflow", "releases", ("version",), rows)]


# JAX -------------------------------------------------------------------------------------------------------


def jax(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of JAX, and those of its CUDA plugins."""
    oldest = _oldest(tables["jax"]["releases"])
    releases = releases_of(index.files("jax"), oldest)
    libraries = releases_of(index.files("jaxlib"), oldest)
    plugins = {name: releases_of(index.files(f"jax-{name}-plugin"), oldest) for name in JAX_VARIANTS}
    rows: dict[Key, Row] = {}
    for version, said in metadata_of(index, releases, done).items():
        yanked = _yanked(releases[version])
        usable: dict[str, str] = {}
        library = said.needs("jaxlib") or ""
        for name in JAX_VARIANTS:
            # Before 0.4.38 the extra cuda12 itself pins jaxlib.
            wanted = [each for each in said.named(name) if each.name == f"jax-{name}-plugin"]
            plugin = _newest(plugins[name], wanted[0].specifier, yanked=yanked) if wanted else None
            if plugin:
                usable[name] = str(plugin)
                pinned = [str(each.specifier) for each in said.named(name) if each.name == "jaxlib"]
                library = ",".join(filter(None, [library, *pinned]))
        chosen = _newest(libraries, SpecifierSet(library), yanked=yanked)
        rows[str(version),] = {
            "date": _date(releases[version]),
            "yanked": yanked,
            "extras": list(usable),
            "plugins": usable,
            "jaxlib": str(chosen) if chosen else None,
            "python": _pythons(libraries[chosen]) if chosen else [],
        }
    return [Facts("jax", "releases", ("version",), rows), _jax_plugins(index, plugins, done)]


def _jax_plugins(index: Index, plugins: dict[str, Releases], done: Progress) -> Facts:
    rows: dict[Key, Row] = {}
    for name, releases in plugins.items():
        for version, said in metadata_of(index, releases, done).items():
            files = releases[version]
            pjrt = [each for each in index.files(f"jax-{name}-pjrt") if each.version == version]
            extra = next((each for each in said.extras if each.replace("_", "-") == "with-cuda"), "")
            rows[str(version), name] = {
                "date": _date(files),
                "yanked": _yanked(files),
                "python": _pythons(files),
                # Both halves have to be there.
                "arch": [arch for arch in _arches(files) if arch in _arches(pjrt)],
                "requires": _components(said.named(extra)),
            }
    return Facts("jax", "plugins", ("version", "variant"), rows)


# ONNX Runtime ----------------------------------------------------------------------------------------------


def onnxruntime(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of ONNX Runtime: a package for the processor and one with CUDA, which asks for NVIDIA's in two extras."""
    oldest = _oldest(tables["onnxruntime"]["releases"])
    rows: dict[Key, Row] = {}
    for variant, package in (("cpu", "onnxruntime"), ("gpu", "onnxruntime-gpu")):
        releases = releases_of(index.files(package), oldest)
        for version, said in metadata_of(index, releases, done).items():
            extras = [each for each in ("cuda", "cudnn") if each in said.extras]
            wanted = [each for extra in extras for each in said.named(extra)]
            rows[str(version), variant] = {
                **_common(releases[version]),
                "arch": _arches(releases[version]),
                "extras": extras,
                "requires": _components(wanted),
                **({"cuda_major": _cuda_major(wanted)} if wanted else {}),
            }
    return [Facts("onnxruntime", "releases", ("version", "variant"), rows)]


# CuPy ------------------------------------------------------------------------------------------------------


def cupy(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of CuPy with the packages of each, which ask for the same NumPy."""
    oldest = _oldest(tables["cupy"]["releases"])
    by_variant = {name: _linux(index.files(f"cupy-{name}x"), oldest) for name in CUPY_VARIANTS}
    said = {name: metadata_of(index, releases, done) for name, releases in by_variant.items()}
    rows: dict[Key, Row] = {}
    for version in sorted({each for releases in by_variant.values() for each in releases}):
        there = {name: releases[version] for name, releases in by_variant.items() if version in releases}
        files = [each for every in there.values() for each in every]
        numpy = next((read[version].needs("numpy") for read in said.values() if version in read), None)
        rows[str(version),] = {
            **_common(files),
            "wheels": {name: _arches(every) for name, every in there.items()},
            "numpy": numpy,
        }
    return [Facts("cupy", "releases", ("version",), rows)]


# vLLM ------------------------------------------------------------------------------------------------------


def vllm(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The releases of vLLM with the one torch that each asks for."""
    releases = releases_of(index.files("vllm"), _oldest(tables["vllm"]["releases"]))
    rows: dict[Key, Row] = {}
    for version, said in metadata_of(index, releases, done).items():
        files = releases[version]
        rows[str(version),] = {
            **_common(files),
            # One wheel for all; what it asks for says which Pythons these are.
            "python": _required_pythons(files[0].requires_python),
            "arch": _arches(files),
            "torch": _pinned(said.needs("torch")),
        }
    return [Facts("vllm", "releases", ("version",), rows)]


# LMDB ------------------------------------------------------------------------------------------------------


def lmdb(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The releases of LMDB, which ask for nothing."""
    releases = releases_of(index.files("lmdb"), _oldest(tables["lmdb"]["releases"]))
    rows: dict[Key, Row] = {
        (str(version),): {**_common(files), "arch": _arches(files)} for version, files in releases.items()
    }
    return [Facts("lmdb", "releases", ("version",), rows)]


# NVIDIA's libraries ----------------------------------------------------------------------------------------


def cudnn(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The builds of cuDNN that are there as wheels for Linux."""
    oldest = _oldest(tables["cudnn"]["versions"])
    by_major = {major: _linux(index.files(f"nvidia-cudnn-cu{major}"), oldest) for major in CUDNN_MAJORS}
    rows: dict[Key, Row] = {}
    for version in sorted({each for releases in by_major.values() for each in releases}):
        there = {major: releases[version] for major, releases in by_major.items() if version in releases}
        # A build that was withdrawn for one CUDA major and stands for another is there for the other.
        standing = {major: files for major, files in there.items() if not _yanked(files)} or there
        files = [each for files in standing.values() for each in files]
        rows[str(version),] = {
            "cuda_majors": list(standing),
            "arch": _arches(files),
            "date": _date(files),
            "yanked": _yanked(files),
        }
    return [Facts("cudnn", "versions", ("version",), rows)]


def nccl(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The releases of NCCL that are there as wheels for Linux."""
    oldest = _oldest(tables["libraries"]["nccl"])
    by_variant = {name: _linux(index.files(f"nvidia-nccl-{name}"), oldest) for name in NCCL_VARIANTS}
    rows: dict[Key, Row] = {}
    for version in sorted({each for releases in by_variant.values() for each in releases}):
        there = {name: releases[version] for name, releases in by_variant.items() if version in releases}
        files = [each for files in there.values() for each in files]
        rows[str(version),] = {
            "date": _date(files),
            "variants": {name: _arches(files) for name, files in there.items()},
            "yanked": _yanked(files),
        }
    return [Facts("libraries", "nccl", ("version",), rows)]


def tensorrt(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The releases of TensorRT: the CUDA majors that have a package, and the Pythons that have bindings."""
    releases = releases_of(index.files("tensorrt"), _oldest(tables["libraries"]["tensorrt"]), linux=False)
    by_major = {major: {each.version for each in index.files(f"tensorrt-cu{major}")} for major in TENSORRT_MAJORS}
    rows: dict[Key, Row] = {}
    for version, files in releases.items():
        majors = [major for major, versions in by_major.items() if version in versions]
        bindings = [
            each
            for major in majors
            for each in index.files(f"tensorrt-cu{major}-bindings")
            if each.version == version and each.arches
        ]
        rows[str(version),] = {
            "date": _date(files),
            "yanked": _yanked(files),
            "python": _pythons([*files, *bindings]),
            # TensorRT 8 is one package, whatever the CUDA major.
            **({"cuda": majors} if majors else {}),
        }
    return [Facts("libraries", "tensorrt", ("version",), rows)]


def dali(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The releases of DALI, and whether there is more than a file that refuses to be installed."""
    oldest = _oldest(tables["libraries"]["dali"])
    by_variant = {name: releases_of(index.files(f"nvidia-dali-{name}"), oldest, linux=False) for name in DALI_VARIANTS}
    rows: dict[Key, Row] = {}
    for version in sorted({each for releases in by_variant.values() for each in releases}):
        there = {name: releases[version] for name, releases in by_variant.items() if version in releases}
        wheels = {name: _arches(files) for name, files in there.items() if _arches(files)}
        served = [each for files in there.values() for each in files if each.arches]
        rows[str(version),] = {
            "date": _date([each for files in there.values() for each in files]),
            "variants": list(there),
            "real": bool(wheels),
            "wheels": wheels,
            "python": _required_pythons(served[-1].requires_python) if served else [],
        }
    return [Facts("libraries", "dali", ("version",), rows)]


# The C library ---------------------------------------------------------------------------------------------

#: The packages whose tags are read, each with the table of its releases and the first of them that is looked at.
TAGGED = {
    "vllm": ("vllm", ""),
    "onnxruntime-gpu": ("onnxruntime", ""),
    "onnxruntime": ("onnxruntime", ""),
    "tensorflow": ("tensorflow", ""),
    # On PyTorch's own index older wheels have other tags than here.
    "torch": ("pytorch", "2.7.0"),
}
_OLD_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def glibc(index: Index, tables: Tables, _done: Progress) -> list[Facts]:
    """The C library that wheels are made for, of each package as spans of releases that need the same."""
    rows: dict[Key, Row] = {}
    for package, (table, first) in TAGGED.items():
        known = {row["version"] for row in tables[table]["releases"]}
        files = releases_of(index.files(package), Version(first or min(known, key=Version)))
        start, last = "", ""
        needs: dict[str, str] = {}
        for version, wheels in files.items():
            if str(version) not in known or version.is_postrelease:
                continue
            needed = _glibc(wheels)
            if needed != needs:
                start, needs = str(version), needed
            last = str(version)
            rows[package, start] = {"to_version": last, "needs": needs}
    return [Facts("frameworks", "glibc", ("package", "from_version"), rows)]


def _glibc(wheels: Iterable[File]) -> dict[str, str]:
    """The lowest C library that a release has a wheel for, by architecture."""
    found: dict[str, str] = {}
    for each in wheels:
        for tag in each.tags:
            arch = next((each for each in ARCHES if tag.platform.endswith(f"_{each}")), "")
            name = tag.platform.removesuffix(f"_{arch}")
            if arch and name.startswith("manylinux"):
                version = _OLD_TAGS.get(name) or name.removeprefix("manylinux_").replace("_", ".")
                found[arch] = min(version, found.get(arch, version), key=Version)
    return dict(sorted(found.items(), reverse=True))


# what people use beside the frameworks ---------------------------------------------------------------------


def companions(index: Index, tables: Tables, done: Progress) -> list[Facts]:
    """The newest releases, and what goes with what where the metadata says it."""
    packages = [row["name"] for row in tables["companions"]["packages"] if row["newest"] and row["there"] != "nothing"]
    newest: dict[Key, Row] = {
        (name,): {"newest": found} for name in packages if (found := _newest_of(index.files(name)))
    }
    pairs: dict[Key, Row] = {}
    for row in tables["companions"]["pairs"]:
        releases = None if row.get("unsaid") else _goes_with(index, row, done)
        if releases:
            pairs[row["package"], row["other"]] = {"releases": releases}
    return [
        Facts("companions", "packages", ("name",), newest, complete=False),
        Facts("companions", "pairs", ("package", "other"), pairs, complete=False),
    ]


def _newest_of(files: Iterable[File]) -> str | None:
    """The newest release that stands, of sources or for Linux; a pre-release only where there is nothing else."""
    standing = {each.version for each in files if not each.yanked and (not each.wheel or _serves(each))}
    return str(max({each for each in standing if not each.is_prerelease} or standing)) if standing else None


def _goes_with(index: Index, row: Row, done: Progress) -> dict[str, str] | None:
    """What the releases of a row ask for, and those after it: each last one that asks for the same. None where they do not say it."""
    known: dict[Version, str] = {Version(version): spec for version, spec in row["releases"].items()}
    wheels = _standing(index.files(row["package"]))
    asked = {version: file for version, file in wheels.items() if version in known or version > max(known)}
    said = preload(index, asked.values(), done)
    specs = {version: said[file.name].needs(row["other"]) for version, file in asked.items()}
    if not any(spec for version, spec in specs.items() if version in known):
        return None
    found: dict[Version, str] = {}
    for version in sorted({*known, *specs}):
        mine, last = known.get(version), max(found, default=None)
        spec = _as_ours(mine, specs.get(version))
        if version not in known and last is not None and _as_ours(found[last], spec) == found[last]:
            found.pop(last)
        if spec:
            found[version] = _as_ours(known[max(known)], spec) or spec
    return {str(version): spec for version, spec in found.items()}


def _standing(files: Iterable[File]) -> dict[Version, File]:
    """A wheel for Linux of each release that stands and is no pre-release."""
    found: dict[Version, File] = {}
    for each in files:
        if _serves(each) and not each.yanked and not each.version.is_prerelease:
            found.setdefault(each.version, each)
    return found


def _serves(wheel: File) -> bool:
    return bool(wheel.arches) or "any" in _platforms(wheel)


def _as_ours(ours: str | None, theirs: str | None) -> str | None:
    """What is asked for, as the table writes it where that is the same, or where upstream says nothing."""
    same = ours is not None and (not theirs or SpecifierSet(ours) == SpecifierSet(theirs))
    return ours if same else theirs


READERS: tuple[Callable[[Index, Tables, Progress], list[Facts]], ...] = (
    pytorch,
    tensorflow,
    jax,
    onnxruntime,
    cupy,
    vllm,
    lmdb,
    cudnn,
    nccl,
    tensorrt,
    dali,
    glibc,
    companions,
)


# what readers share ----------------------------------------------------------------------------------------


def _oldest(rows: Rows) -> Version:
    """The release that a table begins with; older ones are not looked for."""
    return min((Version(row["version"]) for row in rows), default=Version("0"))


def releases_of(files: Iterable[File], oldest: Version, *, linux: bool = True) -> Releases:
    """Files of each release for Linux, pre-releases left out; with linux=False the sources too."""
    found: Releases = {}
    for each in files:
        if each.version < oldest or each.version.is_prerelease:
            continue
        if not linux or each.arches or any(tag.platform == "any" for tag in each.tags):
            found.setdefault(each.version, []).append(each)
    return dict(sorted(found.items()))


def _linux(files: Iterable[File], oldest: Version) -> Releases:
    return releases_of((each for each in files if each.arches), oldest)


def metadata_of(index: Index, releases: Releases, done: Progress) -> dict[Version, Metadata]:
    """What each release says of itself on x86_64: one wheel speaks for all."""
    chosen = {
        version: next((each for each in files if "x86_64" in each.arches or "any" in _platforms(each)), None)
        for version, files in releases.items()
    }
    wheels = {version: file for version, file in chosen.items() if file}
    said = preload(index, wheels.values(), done)
    return {version: said[file.name] for version, file in wheels.items()}


def _platforms(file: File) -> set[str]:
    return {tag.platform for tag in file.tags}


def _common(files: Sequence[File]) -> Row:
    return {"date": _date(files), "yanked": _yanked(files), "python": _pythons(files)}


def _date(files: Iterable[File]) -> str | None:
    """The day of the first upload; None where the index tells none."""
    return min((each.uploaded for each in files if each.uploaded), default=None)


def _yanked(files: Sequence[File]) -> bool:
    return bool(files) and all(each.yanked for each in files)


def _pythons(files: Iterable[File]) -> list[str]:
    """Pythons that have a wheel for Linux on x86_64."""
    found = {python for each in files if "x86_64" in each.arches for python in each.pythons}
    return sorted(found, key=lambda text: int(text.partition(".")[2]))


def _required_pythons(specifier: str | None) -> list[str]:
    """Pythons, from 3.8 on, that Requires-Python lets in."""
    allowed = SpecifierSet(specifier or "")
    return [f"3.{minor}" for minor in range(8, NEWEST_PYTHON + 1) if allowed.contains(f"3.{minor}.0")]


def _arches(files: Iterable[File]) -> list[str]:
    there = {arch for each in files for arch in each.arches}
    return [arch for arch in ARCHES if arch in there]


def _newest(releases: Releases, specifier: SpecifierSet, *, yanked: bool) -> Version | None:
    """The newest release that a range lets in; one that was withdrawn only serves one that was withdrawn too."""
    fitting = [
        version for version, files in releases.items() if specifier.contains(version) and (yanked or not _yanked(files))
    ]
    return max(fitting, default=None)


def _components(requirements: Iterable[Any]) -> dict[str, str]:
    """The specifiers of what COMPONENTS names, in its order."""
    asked = {each.name.lower().replace("_", "-"): str(each.specifier) for each in requirements}
    return {
        component: specifier
        for component, pattern in COMPONENTS.items()
        for name, specifier in asked.items()
        if pattern.match(name)
    }


def _cuda_major(requirements: Iterable[Any]) -> str | None:
    matches = (COMPONENTS["cudnn"].match(each.name.lower()) for each in requirements)
    return next((found["major"] for found in matches if found), None)


def _pinned(specifier: str | None) -> str | None:
    """The version of an exact pin."""
    found = re.fullmatch(r"==\s*([^,*]+)", specifier or "")
    return found[1] if found else None


def _merged(known: Row | None, more: Row) -> Row:
    """One row for the patch releases of a minor release; where they differ, both values stand, and the comparison shows it."""
    if known is None or known == more:
        return more
    return {name: value if known[name] == value else f"{known[name]} and {value}" for name, value in more.items()}
