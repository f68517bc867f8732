"""What the head of a file of weights says, in safetensors and in GGUF: its tensors, and what a GGUF file says of its model.

Only heads are read, within limits; a file that is broken, cut off or made to exhaust its reader is BadInput.
"""

from __future__ import annotations

import math
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, TypeGuard

from gpuwright import given
from gpuwright.errors import BadInput
from gpuwright.sizing.units import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Bytes of a head. Vocabularies of 260,000 tokens make heads of GGUF files of 15 MB; a head of safetensors has no more than its tensors.
MOST_OF_GGUF, MOST_OF_SAFETENSORS = 128 << 20, 32 << 20
#: Values in the head of a safetensors file, and tensors in that of a GGUF file.
_MOST_VALUES, _MOST_TENSORS = 1_000_000, 100_000
_MOST_DIMENSIONS = 8
_CHUNK = 1 << 20

#: Bits of an element (github huggingface/safetensors, safetensors/src/tensor.rs, `Dtype`, 0.8.0).
_SAFETENSORS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip
#: Elements of a block and its bytes, by the number of a type (PyPI gguf 0.19.0, gguf/constants.py, GGML_QUANT_SIZES).
_GGUF = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34), 9: ("q8_1", 32, 40), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292), 16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136), 24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36), 41: ("q1_0", 128, 18),
}  # fmt: skip
#: Numbers in what a GGUF file says of itself, by the number of their type.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_GGUF_BEGINS = b"GGUF"
#: Elements of an array that are kept; of longer ones (vocabularies) only the length is.
_KEPT = 4096

Said = bool | int | float | str | list[int]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file.

    Attributes:
        name: in the file.
        kind: how its elements are stored, in small letters: `bf16`, `q4_k`, `i32`.
        shape: as the file has it.
        bytes: that it takes.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Head:
    """What a file says.

    Attributes:
        tensors: that are in it.
        said: of the model, in GGUF: numbers, short texts, short lists of numbers; of other lists their length.
    """

    tensors: tuple[Tensor, ...]
    said: dict[str, Said] = field(default_factory=dict)


def safetensors(path: Path) -> Head:
    """The head of a safetensors file: eight bytes with its length, and JSON.

    Raises:
        BadInput: it cannot be read, or is none.
    """
    with _opened(path) as stream:
        size = _size(stream)
        start = stream.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= size - 8:
            raise BadInput(f"{path} is no safetensors file, or is cut off")
        if length > MOST_OF_SAFETENSORS:
            raise BadInput(f"{path}: its head has more than {MOST_OF_SAFETENSORS >> 20} MiB: nothing that long is read")
        written = stream.read(length)
    entries = given.json_text(written.decode("utf-8", "replace"), f"the head of {path}", _MOST_VALUES)
    entries.pop("__metadata__", None)
    tensors = tuple(_safetensor(path, name, each) for name, each in entries.items())
    if sum(each.bytes for each in tensors) > size - 8 - length:
        raise BadInput(f"{path} is cut off: its tensors are longer than the file")
    return Head(tensors)


def _safetensor(path: Path, name: str, entry: object) -> Tensor:
    wrong = BadInput(f"{path} is broken: its head does not say what tensor {excerpt(name)} is")
    if not isinstance(entry, dict):
        raise wrong
    bits, shape, offsets = _SAFETENSORS.get(str(entry.get("dtype"))), entry.get("shape"), entry.get("data_offsets")
    if bits is None or not _counts(shape, _MOST_DIMENSIONS) or not _counts(offsets, 2) or len(offsets) != 2:
        raise wrong
    found = Tensor(name, str(entry["dtype"]).lower(), tuple(shape), offsets[1] - offsets[0])
    if found.bytes * 8 != found.elements * bits:
        raise wrong
    return found


def _counts(value: object, most: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= most and all(type(each) is int and each >= 0 for each in value)


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF does, whatever it is called: Ollama calls its own by their digest."""
    with _opened(path) as stream:
        return stream.read(4) == _GGUF_BEGINS


def gguf(path: Path) -> Head:
    """The head of a GGUF file (github ggml-org/ggml, docs/gguf.md): what it says of the model, and its tensors.

    Raises:
        BadInput: it cannot be read, or is none.
    """
    with _opened(path) as stream:
        reader = _Reader(stream, path)
        if reader.take(4) != _GGUF_BEGINS:
            raise BadInput(f"{path} is no GGUF file")
        version = reader.number("I")
        if version not in {2, 3}:
            raise BadInput(f"{path}: GGUF of version {version} is not read; versions 2 and 3 are")
        tensors, pairs = reader.number("Q"), reader.number("Q")
        if tensors > _MOST_TENSORS or pairs > _MOST_TENSORS:
            raise BadInput(f"{path}: no model has {max(tensors, pairs)} tensors or keys")
        said: dict[str, Said] = {}
        for _ in range(pairs):
            name = reader.text()
            said[name] = reader.value(reader.number("I"))
        found = tuple(_gguf_tensor(reader, path) for _ in range(tensors))
        if sum(each.bytes for each in found) > _size(stream) - reader.at:
            raise BadInput(f"{path} is cut off: its tensors are longer than the file")
    return Head(found, said)


def _gguf_tensor(reader: _Reader, path: Path) -> Tensor:
    name, dimensions = reader.text(), reader.number("I")
    if dimensions > _MOST_DIMENSIONS:
        raise BadInput(f"{path} is broken: tensor {excerpt(name)} has {dimensions} dimensions")
    shape = tuple(reader.number("Q") for _ in range(dimensions))
    kind, _offset = reader.number("I"), reader.number("Q")
    if kind not in _GGUF:
        raise BadInput(f"{path}: tensor {excerpt(name)} is of type {kind}, which is not known")
    called, block, size = _GGUF[kind]
    if shape and shape[0] % block:
        raise BadInput(f"{path} is broken: rows of tensor {excerpt(name)} are no whole blocks of {called}")
    return Tensor(name, called, shape, math.prod(shape) // block * size)


class _Reader:
    """Reads a head piece by piece, no further than it goes."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream, self._path = stream, path
        self._held, self.at = b"", 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self._need(count)
        self.at += count
        return self._held[self.at - count : self.at]

    def number(self, kind: str) -> int:
        """A whole number, as `struct` calls its kind."""
        return int(self._unpacked(kind))

    def text(self) -> str:
        """A text: its length, and UTF-8."""
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Said:
        """A value of a kind; of a list of texts, and of a long one, its length."""
        if kind in _NUMBERS:
            return self._unpacked(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise BadInput(f"{self._path} is broken: its head has a value of type {kind}")
        inner, length = self.number("I"), self.number("Q")
        if inner == _STRING:
            self._skip_texts(length)
            return length
        if inner not in _NUMBERS:
            raise BadInput(f"{self._path} is broken: its head has a list of type {inner}")
        written = self.take(length * struct.calcsize("<" + _NUMBERS[inner]))
        if length > _KEPT:
            return length
        return [int(each) for each in struct.unpack(f"<{length}{_NUMBERS[inner]}", written) if math.isfinite(each)]

    def _skip_texts(self, count: int) -> None:
        """Vocabularies: nothing of them is kept."""
        length_at, held = struct.Struct("<Q").unpack_from, self._held
        for _ in range(count):
            if self.at + 8 > len(held):
                self._need(8)
                held = self._held
            self.at += 8 + length_at(held, self.at)[0]
        self._need(0)

    def _unpacked(self, kind: str) -> bool | int | float:
        found: bool | int | float = struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]
        return found

    def _need(self, count: int) -> None:
        """Have so many bytes more in hand, where the file has them and they are within the limit."""
        if self.at + count <= len(self._held):
            return
        if self.at + count > MOST_OF_GGUF:
            raise BadInput(f"{self._path}: its head has more than {MOST_OF_GGUF >> 20} MiB: nothing that long is read")
        self._held += self._stream.read(max(self.at + count - len(self._held), len(self._held), _CHUNK))
        if self.at + count > len(self._held):
            raise BadInput(f"{self._path} is cut off: its head ends in the middle")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file that is one: no pipe or device, which may have no end."""
    try:
        if not path.is_file():
            raise BadInput(f"{path} is not there" if not path.exists() else f"{path} is no file")
        with path.open("rb") as stream:
            yield stream
    except (OSError, ValueError) as error:
        # A path with a zero byte is a ValueError.
        raise BadInput(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _size(stream: BinaryIO) -> int:
    return os.fstat(stream.fileno()).st_size
