"""A model's name as the hub, Ollama and people write it: which row of the tables it means, and which format it says of the weights."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from gpuwright.sizing import formats, tables
from gpuwright.sizing.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, ...]

#: Where models are: the address before the name.
_PLACE = re.compile(
    r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|modelscope\.cn/models|ollama\.com(?:/library)?)/",
    re.IGNORECASE,
)
#: Words that change nothing of a shape: what a model was tuned to, who packed it, and when.
_WORDS = re.compile(
    r"(?<![a-z0-9.])(?:instruct|it|chat|hf|base|pt|thinking|reasoning|latest|text|coder|math|deduped|meta|unsloth|quantized|dynamic|qat|imatrix|i1|mlx|exl2|"
    r"abliterated|uncensored|2[3-6](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])[0-3]\d|20\d{6})(?![a-z0-9.])"
)
_VERSION = re.compile(r"(?<![a-z0-9.])v[\d.]+(?![a-z0-9.])")
_PIECE = re.compile(r"[a-z]+|\d+(?:\.\d+)*")
#: What stands in a name for a format, the most exact first; a GGUF file's own block format goes by `formats.called`.
_BLOCKS = re.compile(r"(?<![a-z0-9.])(?:ud-)?(i?q[1-8](?:-(?:k|0|1|xxs|xs|s|m|nl))?(?:-(?:xl|l|m|s|xs))?)(?![a-z0-9.])")
_FORMATS = tuple(
    (re.compile(rf"(?<![a-z0-9.])(?:{pattern})(?![a-z0-9.])"), name)
    for pattern, name in (
        (r"nvfp4|fp4", "nvfp4"),
        (r"mxfp4", "mxfp4"),
        (r"fp8(?:-dynamic|-block|-kv)?|w8a8-fp8|f8", "fp8"),
        (r"gptq-(?:int8|8bit)|bnb-8bit|w8a8|w8a16|int8|8bit", "int8"),
        (r"bnb-(?:4bit|nf4)|bnb|nf4", "nf4"),
        (r"(?:awq|gptq)(?:-(?:int4|4bit|marlin))?|w4a16|int4|4bit|autoround", "int4"),
        (r"bf16|f16|fp16", "bf16"),
        (r"fp32|f32", "fp32"),
        (r"gguf|ggml", "q4_k_m"),
    )
)
#: What packers add to a format: the size of its groups, and how it was made.
_PACKED = re.compile(
    r"(?<![a-z0-9.])(?:sym|asym|g\d+|gs\d+|\d+g|marlin|auto-?round|awq|gptq|int[348]|[48]bit|gguf|dynamic|mixed|v\d+)(?![a-z0-9.])"
)
#: A file as the hub and people have it.
_SUFFIX = re.compile(r"\.(gguf|safetensors|bin|pth|pt)$", re.IGNORECASE)
#: Words beside the whole name of another model after which it no longer has that model's shape: it drafts for it, sees, was cut from it.
_OTHER_SHAPE = re.compile(
    r"^(?:eagle|draft|drafter|dflash|dspark|speculator|speculative|medusa|mtp|dflare|domino|vispec|lora|adapter|moe|pruned|reap|embed|embedding|reranker|"
    r"vision|video|image|audio|speech|omni|multimodal|vl|vla|llava|blip|instructblip|ovis|onevision|ocr|tts|asr|clip|internvl|assistant|diffusion)$"
)
#: How alike a family has to be that is misspelt by a letter or two: lama, mistrall.
_MISSPELT = 0.85
#: So many letters between a family and its size are no word: they name another family.
_LETTERS = 2
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([mbt])(?![a-z0-9.])")
#: The size of a mixture: so many experts of a size, or all parameters and those that a token goes through.
_MIXTURE = re.compile(r"(?<![a-z0-9.])(?:\d+x\d+(?:\.\d+)?b|\d+(?:\.\d+)?b-a\d+(?:\.\d+)?b)(?![a-z0-9.])")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}


@dataclass(frozen=True)
class Read:
    """What a name means.

    Attributes:
        row: of the tables.
        weights: the format that the name says, or that the model was published in; None where neither does.
        text: which of the two, for a person.
    """

    row: tables.Row
    weights: Format | None
    text: str


def read(text: str) -> Read | None:
    """The model that a name means; None where no row is called so."""
    name, said, why = _parted(text)
    row = _row(name) or _row(_without_owner(text)) or _within(name)
    if row is None:
        return None
    row = tables.whole(row)
    if said:
        return Read(row, formats.FORMATS[said], why)
    if row.get("weights"):
        return Read(row, published(row), f"{row['name']} is published so")
    if _of_ollama(text):
        return Read(row, formats.FORMATS["q4_k_m"], "what Ollama pulls where its tag names no format")
    return Read(row, None, "")


def _row(name: str) -> tables.Row | None:
    index = tables.names()
    at = index.get(_text(_whole(name)), index.get(_text(_key(name))))
    if at is None:
        # A version behind the size is another training of one shape, but what was tuned from a model may have been from another one.
        size = _SIZE.search(name)
        front, behind = (name[: size.end()], name[size.end() :]) if size else ("", name)
        at = index.get(_text(_key(front + _VERSION.sub("-", behind))))
        at = at if at is not None and at < len(tables.models()) else None
    return None if at is None else _all()[at]


def _without_owner(text: str) -> str:
    """A packer's repository may have the owner in front: mistralai_Mistral-Small-24B."""
    return _parted(_bare(text).partition("_")[2])[0]


def _within(name: str) -> tables.Row | None:
    """The model whose whole name, with its size, stands within another: what was tuned from it has its shape.

    A family that says which one of its kind it is has one shape of a size: words may stand before the size then (Llama-3.1-Tulu-3-70B).
    """
    pieces, found = _key(name), None
    for text, at in tables.names().items():
        key = tuple(text.split())
        if not _sized(key) or (found and len(found[0]) >= len(key)):
            continue
        rest = _without(pieces, key) or _around(pieces, key)
        if rest and not _sized(rest) and not any(_OTHER_SHAPE.search(each) for each in rest):
            found = key, at
    return _all()[found[1]] if found else None


def _without(pieces: Key, key: Key) -> Key:
    """What of a name is left beside another; nothing where it is not within it, and an empty piece where it stood."""
    start = next((at for at in range(len(pieces) - len(key) + 1) if pieces[at : at + len(key)] == key), None)
    return () if start is None else (*pieces[:start], "", *pieces[start + len(key) :])


def _around(pieces: Key, key: Key) -> Key:
    """The same where words stand between a family and its size: words, not a letter or two that name another family (Gemma 3n)."""
    size = next(at for at in range(len(key)) if _sized(key[at : at + 2]))
    if not any(each[0].isdigit() for each in key[:size]):
        return ()
    behind = _without(pieces, key[:size])
    start = behind.index("") if behind else 0
    rest = _without(behind[start + 1 :], key[size:]) if behind else ()
    between = rest[: rest.index("")] if rest else ()
    if any(each.isalpha() and len(each) <= _LETTERS for each in between):
        return ()
    return (*behind[: start + 1], *rest) if rest else ()


def _sized(key: Key) -> bool:
    """Whether it says a number of parameters."""
    return any(number[0].isdigit() and unit in {"b", "m", "t"} for number, unit in pairwise(key) if number)


def published(row: tables.Row) -> Format:
    """The format in which the makers of a model published it."""
    found = formats.FORMATS[row["weights"]]
    if "bits" in row:
        found = replace(found, bits=row["bits"], text=f"{row['bits']:g} bits a weight with its scales")
    return formats.sparing(found, row["others"]) if "others" in row else found


def nearest(text: str) -> list[str]:
    """Names of the same family, those of the nearest size first; the family may be misspelt by a letter or two."""
    name, _, _ = _parted(text)
    family, size = _family(name), _size(name)
    families = {_family(_normal(tables.called(row))) for row in _all()}
    if family not in families:
        family = next(iter(difflib.get_close_matches(family, sorted(families), 1, _MISSPELT)), "")
    near = [tables.whole(row) for row in _all() if family and _family(_normal(tables.called(row))) == family]
    pieces = set(_key(name))

    def distance(row: tables.Row) -> tuple[int, int, float]:
        own = row.get("all") or row["parameters"] or row["rounded"]
        strange = len(pieces.symmetric_difference(_key(_normal(str(row["name"])))))
        far = abs(math.log(own / size)) if size else 0.0
        return round(far), strange, own

    return [str(row["name"]) for row in sorted(near, key=distance)]


def mixtures(text: str) -> list[str]:
    """Mixtures that are called by the size that a name says (30B-A3B, 8x7B), of whatever family."""
    found = _MIXTURE.search(_parted(text)[0])
    return [name for name in map(tables.called, tables.models()) if found and name.endswith(found[0])]


def size(text: str) -> str:
    """The number of parameters that a name says, as a person writes it: 70B, and 56B of 8x7B; nothing where it says none."""
    found = _SIZE.search(_parted(text)[0])
    return f"{int(found[1] or 1) * float(found[2]):g}{found[3].upper()}" if found else ""


# parts of a name --------------------------------------------------------------------------------------


def _bare(text: str) -> str:
    """The name without the place, the owner in whose repository it is, and what it is as a file; a size alone has its owner's name."""
    owner, *names = _PLACE.sub("", text.strip()).split("/")
    name = _SUFFIX.sub("", names[0] if names else owner)
    return f"{owner}-{name}" if names and _SIZE.fullmatch(name.lower()) else name


def _normal(text: str) -> str:
    return re.sub(r"[\s_:@/-]+|(?<=[a-z])\.(?=[a-z])|\.(?=i?q\d)", "-", _bare(text).lower())


def _parted(text: str) -> tuple[str, str, str]:
    """A name without its format; the format; and why it is this one."""
    name = _normal(text)
    blocks = _BLOCKS.search(name)
    if blocks and (found := formats.blocks(blocks[1])):
        # A repository of GGUF files is called so beside the format.
        rest = _FORMATS[-1][0].sub("-", name.replace(blocks[0], "-", 1))
        return rest, found.name, f"the name says {blocks[1].replace('-', '_')}"
    for pattern, format_name in _FORMATS:
        match = pattern.search(name)
        if match:
            assumed = "GGUF files have many formats, and the name says none: q4_k_m is the usual one"
            text = assumed if pattern is _FORMATS[-1][0] else f"the name says {match[0]}"
            return _PACKED.sub("-", pattern.sub("-", name)), format_name, text
    if text.strip().lower().endswith(".gguf"):
        return name, "q4_k_m", "a GGUF file whose name says no format: q4_k_m is the usual one"
    return name, "", ""


def _whole(name: str) -> Key:
    """All of a name: some models are called as others are, but for such a word (Kimi K2 Thinking)."""
    return tuple(_PIECE.findall(name))


def _key(name: str) -> Key:
    """What tells models apart, however it is written: llama3.1, Llama 3.1 and llama-3-1 have one key."""
    return _whole(_WORDS.sub("-", name))


def _all() -> list[tables.Row]:
    return [*tables.models(), *tables.members()]


def index(rows: Iterable[tables.Row]) -> dict[str, int]:
    """The place of each model among all of them, by the text of its keys; the first of two goes before."""
    said = [
        (_normal(str(each)), at)
        for at, row in enumerate(rows)
        for each in (tables.called(row), row.get("hub"), *row.get("aliases", ()))
        if each
    ]
    short = {_text(_key(name)): at for name, at in reversed(said)}
    return short | {_text(_whole(name)): at for name, at in reversed(said)}


def _text(key: Key) -> str:
    return " ".join(key)


def _of_ollama(text: str) -> bool:
    """Whether it is written as Ollama does: a name, and a tag with the size."""
    return "/" not in _PLACE.sub("", text) and bool(re.search(r"\w:\w", text))


def _family(name: str) -> str:
    return next((each for each in _key(name) if each.isalpha()), "")


def _size(name: str) -> float:
    """Parameters that a name says; 0 where it says none."""
    found = _SIZE.search(name)
    return int(found[1] or 1) * float(found[2]) * _UNITS[found[3]] if found else 0.0
