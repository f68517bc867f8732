"""A Python package index of stub wheels (PEP 503), with the names, versions and dependencies of the real ones."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import random
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_STUBS = Path(__file__).parent / "stubs"

#: The directories of the index: PyTorch's, one a variant, and `pypi`, which the host's pip is configured for.
INDEXES = ("cu130", "cu126", "cpu", "pypi")

# The stand-in programs in a wheel: its module, and the file among the stubs that each file is.
_PROGRAMS: dict[str, tuple[str, dict[str, str]]] = {
    "torch": ("torch", {"__init__": "torch"}),
    "tensorflow": ("tensorflow", {"__init__": "tensorflow", "_cards": "cards"}),
    "jax": ("jax", {"__init__": "jax", "numpy": "jax_numpy", "_cards": "cards"}),
    "jax-cuda12-plugin": ("jax_cuda12_plugin", {"_versions": "jax_versions"}),
    "jax-cuda13-plugin": ("jax_cuda13_plugin", {"_versions": "jax_versions"}),
    "numpy": ("numpy", {"__init__": "numpy", "_cards": "cards"}),
    "onnxruntime": ("onnxruntime", {"__init__": "onnxruntime", "_cards": "cards"}),
    "onnxruntime-gpu": ("onnxruntime", {"__init__": "onnxruntime", "_cards": "cards"}),
    "lmdb": ("lmdb", {"__init__": "lmdb"}),
    "jupyter-client": ("jupyter_client", {"manager": "jupyter_client"}),
    "vllm": ("vllm", {"__init__": "vllm", "_C_stable_libtorch": "vllm_kernels"}),
    "cupy-cuda13x": ("cupy", {"__init__": "cupy", "_cards": "cards"}),
    "nvidia-dali-cuda120": (
        "nvidia/dali",
        {"__init__": "dali", "fn": "dali_fn", "types": "dali_types", "_cards": "cards"},
    ),
}

_EPOCH = (2026, 11, 20, 12, 0, 0)


def normalise(name: str) -> str:
    """A project's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def projects(plan: Mapping[str, Any], index: str) -> dict[str, list[tuple[str, bytes]]]:
    """The files of each project of one directory of the index; `versions` of an entry are several of one project."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for name, entry in {**plan["common"], **plan[index]}.items():
        versions = entry.get("versions") or [entry["version"]]
        found[normalise(name)] = [
            built for version in versions for built in _built(name, {**entry, "version": str(version)}, plan["python"])
        ]
    return found


def _built(name: str, entry: Mapping[str, Any], pythons: list[str]) -> Iterator[tuple[str, bytes]]:
    """The wheels of one version, one for each Python where it has compiled code."""
    version = entry["version"]
    tags = ["py3-none-any"] if entry.get("universal") else [f"{tag}-{tag}-manylinux_2_28_x86_64" for tag in pythons]
    for tag in tags:
        yield wheel(name, version, entry.get("requires", []), contents(name, entry), tag, entry.get("extras", {}))


def contents(name: str, entry: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a wheel: a stand-in that computes where there is one, else only a version; and a weight to download."""
    version = str(entry["version"])
    noise = random.Random(f"{name} {version}")  # noqa: S311 (no secret: the same bytes on each build)
    if name not in _PROGRAMS:
        module = name.replace("-", "_")
        return {
            f"{module}/__init__.py": f'__version__ = "{version}"\n'.encode(),
            f"{module}/weight": noise.randbytes(int(entry.get("kib", 20)) * 1024),
        }
    module, programs = _PROGRAMS[name]
    build = {
        "VERSION": version,
        "CUDA": entry.get("cuda"),
        "CUDNN": entry.get("cudnn"),
        "ARCHITECTURES": ["sm_70", "sm_90"],
    }
    return {
        f"{module}/__init__.py": b"",
        **{f"{module}/{target}.py": (_STUBS / f"{stub}.py").read_bytes() for target, stub in programs.items()},
        f"{module}/_build.py": "".join(f"{key} = {value!r}\n" for key, value in build.items()).encode(),
        f"{module}/lib/weight": noise.randbytes(int(entry.get("kib", 20)) * 1024),
    }


def wheel(
    name: str, version: str, requires: list[str], files: Mapping[str, bytes], tag: str, extras: Mapping[str, list[str]]
) -> tuple[str, bytes]:
    """File name and bytes of one wheel."""
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: stand-in of the simulated node"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    for extra, requirements in extras.items():
        metadata.append(f"Provides-Extra: {extra}")
        metadata += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
    content = dict(files)
    content[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gpuwright-sim\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = (
        "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in content.items()) + f"{info}/RECORD,,\n"
    )
    content[f"{info}/RECORD"] = record.encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data)
    return f"{stem}-{tag}.whl", stream.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_index(folder: Path, wheels: Mapping[str, list[tuple[str, bytes]]]) -> None:
    """A simple index below FOLDER: one page a project, the files beside it."""
    for project, files in wheels.items():
        place = folder / project
        place.mkdir(parents=True, exist_ok=True)
        links = []
        for name, content in files:
            (place / name).write_bytes(content)
            quoted = name.replace("+", "%2B")
            links.append(f'<a href="{quoted}#sha256={hashlib.sha256(content).hexdigest()}">{html.escape(name)}</a><br>')
        page = "<!DOCTYPE html><html><body>\n" + "\n".join(links) + "\n</body></html>\n"
        (place / "index.html").write_text(page)
    root = "\n".join(f'<a href="{project}/">{project}</a><br>' for project in sorted(wheels))
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{root}\n</body></html>\n")
