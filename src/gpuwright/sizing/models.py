"""The model that a person means: a name, a number of parameters, a config.json, or the shape itself."""

from __future__ import annotations

import difflib
import re

from gpuwright import paths
from gpuwright.errors import BadInput
from gpuwright.sizing import config, tables, units
from gpuwright.sizing.architecture import Architecture, Experts, typical

#: How the parts of a shape are called on the command line.
_SHAPE = ("layers", "hidden", "heads", "kv-heads", "head-dim", "intermediate", "vocab", "experts", "active-experts")
_EXAMPLE = "for example layers=32,hidden=4096,heads=32,kv-heads=8,intermediate=14336,vocab=128256"
_MOST_LAYERS = 10_000


def find(text: str) -> Architecture:
    """The shape of what a person wrote.

    Raises:
        BadInput: nothing is called so, or a shape cannot be.
    """
    if "=" in text:
        return _written(text)
    if text.endswith(".json") or ("/" in text and paths.written(text).exists()):
        path = paths.written(text)
        return config.from_file(path / "config.json" if path.is_dir() else path)
    known = _named()
    name = text.strip().lower()
    if name in known:
        return config.read(known[name]["config"], known[name]["name"])
    if re.fullmatch(r"[\d.]+(e\d+)?\s*[kmbgt]?", name, re.ASCII):
        return typical(text.strip(), units.count(text, "the number of parameters"))
    names = sorted(known)
    words = [each for each in names if name in each]
    near = list(dict.fromkeys([*difflib.get_close_matches(name, names, 3, 0.6), *words[:5]]))
    raise BadInput(
        f"no model is called {text!r}",
        [
            *(f"did you mean {each}?" for each in near[:5]),
            "or give parameters (7B), a config.json, or the shape: " + _EXAMPLE,
        ],
    )


def _named() -> dict[str, tables.Row]:
    return {
        str(each).lower(): row
        for row in tables.models()
        for each in (row["name"], row.get("hub"), *row.get("aliases", ()))
        if each
    }


def _written(text: str) -> Architecture:
    """A shape part by part; what is not said is Llama's."""
    said: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in _SHAPE:
            near = [f"did you mean {each}?" for each in difflib.get_close_matches(name, _SHAPE, 1)]
            raise BadInput(f"a shape has no part {name!r}", [*near, f"parts: {', '.join(_SHAPE)}", _EXAMPLE])
        said[name] = units.whole(units.amount(value, name, least=1), name)
    missing = [name for name in ("layers", "hidden", "heads") if name not in said]
    if missing:
        raise BadInput(f"the shape does not say {' and '.join(missing)}", [_EXAMPLE])
    _refuse_absurd(said)
    hidden, heads = said["hidden"], said["heads"]
    intermediate = said.get("intermediate", max(64 * round(hidden * 8 / 3 / 64), 64))
    count = said.get("experts", 0)
    return Architecture(
        name=text,
        layers=said["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=said.get("kv-heads", heads),
        head_dim=said.get("head-dim", max(hidden // heads, 1)),
        intermediate=intermediate,
        vocabulary=said.get("vocab", 32_000),
        experts=Experts(count, said.get("active-experts", 2), intermediate) if count else None,
    )


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
