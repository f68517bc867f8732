"""The model that a person means: a name, a number of parameters, a config.json, or the shape itself."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwright import paths
from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, config, files, formats, local, names, tables, units
from gpuwright.sizing.architecture import Architecture, Experts, typical

if TYPE_CHECKING:
    from pathlib import Path

    from gpuwright.sizing.files import Lying
    from gpuwright.sizing.formats import Format
    from gpuwright.sizing.tables import Row

#: How the parts of a shape are called on the command line.
_SHAPE = ("layers", "hidden", "heads", "kv-heads", "head-dim", "intermediate", "vocab", "experts", "active-experts")
#: Parts of a shape that are so or not: an MLP with a gate (SwiGLU), an output layer that is the embedding.
_EITHER = ("gated", "tied")
_EXAMPLE = "for example layers=32,hidden=4096,heads=32,kv-heads=8,intermediate=14336,vocab=128256"
_MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Named:
    """What a person means.

    Attributes:
        shape: of the model.
        format: of its weights, as its name, its configuration or its files say, or as it was published; None where none of them does.
        text: which of them, for a person.
    """

    shape: Architecture
    format: Format | None = None
    text: str = ""

    @property
    def weights(self) -> str:
        """The name of the format."""
        return self.format.name if self.format else ""


def find(text: str) -> Architecture:
    """The shape of what a person wrote. Raises as `named`."""
    return named(text).shape


def named(text: str) -> Named:
    """The shape and the format of what a person wrote.

    Raises:
        BadInput: nothing is called so, a file is broken, or a shape cannot be.
    """
    if "=" in text:
        return Named(_written(text))
    path = _path(text)
    if path:
        return _lying(files.read(path))
    found = names.read(text)
    if found:
        return Named(of_row(found.row), found.weights, found.text)
    if re.fullmatch(r"[\d.]+(e\d+)?\s*[kmbgt]?", text.strip().lower(), re.ASCII):
        return Named(typical(text.strip(), units.count(text, "the number of parameters")))
    said = names.size(text)
    raise BadInput(
        f"no model is called {text!r}",
        [
            *(f"did you mean {each}?" for each in names.nearest(text)[:5]),
            *(f"a mixture of the size that its name says: gpuwright size {each}" for each in names.mixtures(text)[:2]),
            *([f"by the size that its name says: gpuwright size {said}"] if said else ()),
            "or give parameters (7B), a config.json, the files of weights, or the shape: " + _EXAMPLE,
        ],
    )


def _path(text: str) -> Path | None:
    """The file or the directory that is meant; None where it is a name."""
    path = paths.written(text)
    if text.endswith(files.SUFFIXES):
        return (
            path if paths.exists(path) or text.endswith(".json") or text.startswith(("/", "./", "../", "~")) else None
        )
    return path if ("/" in text or text in {".", ".."}) and paths.exists(path) else None


def of_row(row: Row) -> Architecture:
    """The shape of a model of the tables. What a member has beyond the layers that it is of, no text goes through."""
    row = tables.whole(row)
    shape, beside = config.read(row["config"], row["name"]), row.get("beside", 0)
    counted = row["parameters"] or row["rounded"] if row.get("counted") else shape.counted and shape.counted + beside
    found = replace(shape, beside=beside, counted=counted)
    if "all" in row:
        beside += row["all"] - int(architecture.parameters(found))
        found = replace(found, beside=beside, counted=counted and row["all"])
    return found


def _lying(found: Lying) -> Named:
    """A model that lies there; an adapter on the model that it says it is for."""
    if not found.adapter:
        shape = local.shape(found)
        return Named(shape, *local.weights(found, shape))
    base = str(found.adapter.get("base_model_name_or_path") or "")
    if not base:
        raise BadInput(f"{found.path} does not say which model the adapter is for: base_model_name_or_path")
    if paths.is_file(paths.written(base) / "adapter_config.json"):
        raise BadInput(f"{found.path} is for another adapter, {base}: name the model below them")
    below = named(base)
    size = sum(each.bytes for each in found.tensors)
    elements = sum(each.elements for each in found.tensors)
    shape = replace(below.shape, beside=below.shape.beside + elements)
    if below.shape.counted:
        shape = replace(shape, counted=below.shape.counted + elements)
    held = architecture.stored(below.shape, below.format or formats.FORMATS["bf16"]) + size
    text = f"an adapter of {size / 2**20:.1f} MiB on {below.shape.name}"
    return Named(
        shape,
        replace(formats.lying("bf16", int(held), architecture.parameters(shape)), name=below.weights or "bf16"),
        text,
    )


def _written(text: str) -> Architecture:
    """A shape part by part; what is not said is Llama's."""
    said: dict[str, int] = {}
    either = {"gated": True, "tied": False}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name in _EITHER:
            either[name] = _so(name, value)
            continue
        if name not in _SHAPE:
            known = (*_SHAPE, *_EITHER)
            near = [f"did you mean {each}?" for each in difflib.get_close_matches(name, known, 1)]
            raise BadInput(f"a shape has no part {name!r}", [*near, f"parts: {', '.join(known)}", _EXAMPLE])
        said[name] = units.whole(units.amount(value, name, least=1), name)
    missing = [name for name in ("layers", "hidden", "heads") if name not in said]
    if missing:
        raise BadInput(f"the shape does not say {' and '.join(missing)}", [_EXAMPLE])
    _refuse_absurd(said)
    hidden, heads = said["hidden"], said["heads"]
    # Without a gate an MLP is four times as wide as the model, as GPT's; with one it has as many weights in three matrices.
    wide = 8 / 3 if either["gated"] else 4
    intermediate = said.get("intermediate", max(64 * round(hidden * wide / 64), 64))
    count = said.get("experts", 0)
    return Architecture(
        name=text,
        layers=said["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=said.get("kv-heads", heads),
        head_dim=said.get("head-dim", hidden // heads),
        intermediate=intermediate,
        vocabulary=said.get("vocab", 32_000),
        experts=Experts(count, said.get("active-experts", min(count, 2)), intermediate) if count else None,
        gated=either["gated"],
        tied=either["tied"],
    )


def _so(name: str, value: str) -> bool:
    """Whether a part of a shape is so."""
    if value not in ("yes", "no"):
        raise BadInput(f"{name} has to be yes or no, found {value!r}", [_EXAMPLE])
    return value == "yes"


def _refuse_absurd(said: dict[str, int]) -> None:
    if said["layers"] > _MOST_LAYERS or max(said.values()) > config.MOST:
        raise BadInput(
            f"no model has {'so many layers' if said['layers'] > _MOST_LAYERS else 'so large a part'}", [_EXAMPLE]
        )
    if said["heads"] > said["hidden"]:
        raise BadInput(f"{said['heads']} heads do not fit into a width of {said['hidden']}")
    if said["heads"] % said.get("kv-heads", 1):
        raise BadInput(f"kv-heads has to divide the {said['heads']} heads, found {said['kv-heads']}")
    if said.get("active-experts", 1) > said.get("experts", said.get("active-experts", 1)):
        raise BadInput(f"a token cannot go through {said['active-experts']} of {said['experts']} experts")
