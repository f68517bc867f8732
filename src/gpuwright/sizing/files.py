"""Models as they lie on a disk: a directory, a Hugging Face cache, files of safetensors or GGUF, an adapter."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwright import given
from gpuwright.errors import BadInput
from gpuwright.sizing import headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpuwright.sizing.headers import Said, Tensor

#: Files that one model has at the most, and bytes and values of an index of its tensors.
_MOST_FILES, _MOST_OF_INDEX, _MOST_ENTRIES = 2048, 64 << 20, 2_000_000
INDEX = "model.safetensors.index.json"
#: One file of several, as both formats number them.
_PART = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.(safetensors|gguf)$")
#: What a person hands in as a model's own file.
SUFFIXES = (".json", ".safetensors", ".gguf")


@dataclass(frozen=True)
class Lying:
    """A model as it lies there.

    Attributes:
        path: of the directory or the file.
        config: its `config.json`, of a diffusion model that of its VAE; empty where it has none.
        tensors: of all its files.
        said: what a GGUF file says of the model.
        adapter: the configuration of an adapter, if it is one.
        parts: of a diffusion model, what each is called.
    """

    path: Path
    config: dict[str, object] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    said: dict[str, Said] = field(default_factory=dict)
    adapter: dict[str, object] = field(default_factory=dict)
    parts: tuple[str, ...] = ()


def read(path: Path) -> Lying:
    """What lies there.

    Raises:
        BadInput: nothing of a model, or it is broken.
    """
    if path.is_dir():
        return _directory(_snapshot(path))
    if path.name in {"adapter_config.json", "model_index.json"} or path.name.endswith(INDEX):
        return _directory(path.parent)
    if path.suffix == ".gguf" or (not path.suffix and path.is_file() and headers.is_gguf(path)):
        return _gguf(path)
    if path.suffix == ".safetensors":
        beside = path.with_name("config.json")
        return Lying(path, _object(beside) if beside.is_file() else {}, _tensors(_parts(path)))
    return Lying(path, _object(path))


def _object(path: Path) -> dict[str, object]:
    return given.json_object(str(path), "the configuration of a model")


def _snapshot(path: Path) -> Path:
    """The directory of a model in a Hugging Face cache: the snapshot that `main` names, else the newest."""
    snapshots = path / "snapshots"
    if not snapshots.is_dir():
        return path
    main = path / "refs" / "main"
    if main.is_file():
        named = snapshots / given.text(str(main), "the name of a snapshot", 1024).strip()
        if named.parent == snapshots and named.is_dir():
            return named
    found = sorted((each for each in _entries(snapshots) if each.is_dir()), key=lambda each: each.stat().st_mtime)
    if not found:
        raise BadInput(f"{path} is a cache without a snapshot: nothing of the model was fetched")
    return found[-1]


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def _directory(path: Path) -> Lying:
    if (path / "model_index.json").is_file():
        return _pipeline(path)
    if (path / "adapter_config.json").is_file():
        config = given.json_object(str(path / "adapter_config.json"), "the configuration of an adapter")
        return Lying(path, adapter=config, tensors=_tensors(_weights(path)))
    files = _entries(path)
    if (path / "config.json").is_file():
        return Lying(path, _object(path / "config.json"), _tensors(_weights(path)) or _indexed(path))
    models = [each for each in files if each.suffix == ".gguf" and "mmproj" not in each.name.lower()]
    first = [each for each in models if not (part := _PART.match(each.name)) or int(part[2]) == 1]
    if len(first) == 1:
        return _gguf(first[0])
    if first:
        raise BadInput(f"{path} has several models", [f"name one: {each}" for each in first[:5]])
    found = _tensors(_weights(path))
    if not found:
        raise BadInput(
            f"{path} has nothing of a model",
            ["looked for: config.json, *.safetensors, *.gguf, adapter_config.json, model_index.json, snapshots/"],
        )
    return Lying(path, tensors=found)


def _pipeline(path: Path) -> Lying:
    """A model of diffusers: each part has a directory of its own."""
    given.json_object(str(path / "model_index.json"), "the index of a model")
    tensors: list[Tensor] = []
    parts = []
    for each in _entries(path):
        found = _tensors(_weights(each)) if each.is_dir() else ()
        if found:
            parts.append(each.name)
            tensors += found
    if not parts:
        raise BadInput(f"{path} has no weights: no part of it has a file of safetensors")
    vae = path / "vae" / "config.json"
    return Lying(path, _object(vae) if vae.is_file() else {}, tuple(tensors), parts=tuple(parts))


def _weights(path: Path) -> list[Path]:
    """The files of weights of a directory, each tensor once: a model may lie there in two widths, or as its makers have it too."""
    files = [each for each in _entries(path) if each.suffix == ".safetensors"]
    usual = [each for each in files if each.name.startswith(("model", "diffusion_pytorch_model", "adapter_model"))]
    chosen = usual or files
    plain = [each for each in chosen if ".fp16" not in each.name and ".bf16" not in each.name]
    numbered = [each for each in plain if _PART.match(each.name)]
    for each in numbered[:1]:
        return _parts(each)
    return plain or chosen


def _parts(path: Path) -> list[Path]:
    """All files of a model of which one is named."""
    part = _PART.match(path.name)
    if part is None:
        return [path]
    count = int(part[3])
    if not 0 < count <= _MOST_FILES:
        raise BadInput(f"{path}: no model is in {count} parts")
    found = [path.with_name(f"{part[1]}-{number:05}-of-{part[3]}.{part[4]}") for number in range(1, count + 1)]
    missing = [each.name for each in found if not each.is_file()]
    if missing:
        raise BadInput(f"{path.parent} lacks a part of the model: {missing[0]}")
    return found


def _tensors(paths: Sequence[Path]) -> tuple[Tensor, ...]:
    if len(paths) > _MOST_FILES:
        raise BadInput(f"{paths[0].parent}: no model is in {len(paths)} parts")
    return tuple(tensor for path in paths for tensor in headers.safetensors(path).tensors)


def _indexed(path: Path) -> tuple[Tensor, ...]:
    """All tensors as one, where the index alone was fetched; nothing where it was not."""
    if not (path / INDEX).is_file():
        return ()
    document = given.json_object(str(path / INDEX), "the index of a model", _MOST_OF_INDEX, _MOST_ENTRIES)
    about = document.get("metadata")
    total = about.get("total_size") if isinstance(about, dict) else None
    if not isinstance(total, int | float) or not 0 < total < 1 << 60:
        raise BadInput(f"{path / INDEX} does not say total_size")
    return (headers.Tensor("", "", (), int(total)),)


def _gguf(path: Path) -> Lying:
    heads = [headers.gguf(each) for each in _parts(path)]
    return Lying(path, tensors=tuple(tensor for head in heads for tensor in head.tensors), said=heads[0].said)


def kind(tensors: Iterable[Tensor]) -> str:
    """How most bytes are stored."""
    bytes_of: Counter[str] = Counter()
    for each in tensors:
        bytes_of[each.kind] += each.bytes
    return max(bytes_of, key=lambda each: bytes_of[each], default="")
