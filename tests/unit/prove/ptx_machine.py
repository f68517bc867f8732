"""Runs a program of PTX thread after thread, as the PTX ISA says of the few instructions that ours have; it knows no matrices."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

BASE = 1 << 32
_WIDTHS = {"u32": 32, "b32": 32, "u64": 64, "b64": 64}
_FUSED = ctypes.CDLL("libm.so.6").fmaf
_FUSED.restype, _FUSED.argtypes = ctypes.c_float, [ctypes.c_float] * 3


class Function(NamedTuple):
    results: list[str]
    parameters: list[str]
    lines: list[str]
    labels: dict[str, int]


def _function(results: str, parameters: str, body: str) -> Function:
    lines: list[str] = []
    labels: dict[str, int] = {}
    for piece in re.sub(r"//.*", "", body).split(";"):
        rest = piece.strip()
        while label := re.match(r"(\w+):\s*", rest):
            labels[label.group(1)] = len(lines)
            rest = rest[label.end() :]
        if rest and not rest.startswith(".reg"):
            lines.append(rest)
    names = [[part.split()[-1] for part in text.split(",") if part.strip()] for text in (results, parameters)]
    return Function(names[0], names[1], lines, labels)


class Machine:
    """A card with some memory, and the programs of a text."""

    def __init__(self, text: str, size: int) -> None:
        self.memory = bytearray(size)
        self.functions = {
            name: _function(results or "", parameters, body)
            for results, name, parameters, body in re.findall(
                r"\.(?:func|entry)\s*(?:\((.*?)\))?\s*(\w+)\s*\((.*?)\)\s*\{(.*?)\n\}", text, re.DOTALL
            )
        }

    def launch(self, name: str, blocks: int, threads: int, *values: float) -> None:
        entry = self.functions[name]
        assert len(values) == len(entry.parameters)
        for block in range(blocks):
            for thread in range(threads):
                special = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread, "%nctaid.x": blocks}
                _Thread(self, entry, special | dict(zip(entry.parameters, values, strict=True))).run()

    def words(self, at: int, count: int, shape: str = "Q") -> list[Any]:
        return list(struct.unpack_from(f"<{count}{shape}", self.memory, at - BASE))

    def put(self, at: int, shape: str, *values: Any) -> None:
        struct.pack_into(f"<{len(values)}{shape}", self.memory, at - BASE, *values)


class _Thread:
    def __init__(self, machine: Machine, function: Function, values: dict[str, Any]) -> None:
        self.machine = machine
        self.function = function
        self.values = values

    def run(self) -> None:
        at = 0
        while at < len(self.function.lines):
            line = self.function.lines[at]
            at += 1
            if guard := re.match(r"@(!?)(%\w+)\s+", line):
                if bool(self.values[guard.group(2)]) == bool(guard.group(1)):
                    continue
                line = line[guard.end() :]
            name, _blank, rest = line.partition(" ")
            if name == "ret":
                return
            if name == "bra":
                at = self.function.labels[rest]
            elif name == "call":
                self._call(rest)
            else:
                self._step(name, [part.strip() for part in rest.split(",")])

    def _call(self, rest: str) -> None:
        match = re.match(r"(?:\((.*?)\),\s*)?(\w+),\s*\((.*)\)$", rest)
        assert match, rest
        called = self.machine.functions[match.group(2)]
        given = [self._value(part.strip()) for part in match.group(3).split(",")]
        inner = _Thread(self.machine, called, dict(zip(called.parameters, given, strict=True)))
        inner.run()
        if match.group(1):
            self.values[match.group(1)] = inner.values[called.results[0]]

    def _value(self, text: str) -> Any:
        if text.startswith("0f"):
            return struct.unpack(">f", bytes.fromhex(text[2:]))[0]
        return self.values[text] if text in self.values or text.startswith("%") else int(text, 0)

    def _address(self, text: str) -> int:
        match = re.match(r"\[(.+?)(?:\+(\d+))?\]$", text)
        assert match, text
        return int(self._value(match.group(1))) + int(match.group(2) or 0)

    def _step(self, name: str, operands: list[str]) -> None:
        parts = name.split(".")
        kind, last = parts[0], parts[-1]
        target, sources = operands[0], operands[1:]
        if kind == "st":
            self.machine.put(self._address(target), "Q", self._value(sources[0]))
            return
        if kind == "ld":
            if parts[1] == "param":
                self.values[target] = self.values[sources[0].strip("[]")]
            else:
                shape = {"u64": "Q", "f32": "f"}[last]
                self.values[target] = self.machine.words(self._address(sources[0]), 1, shape)[0]
            return
        if kind == "atom":
            at = self._address(sources[0])
            self.values[target] = self.machine.words(at, 1)[0]
            self.machine.put(at, "Q", self.values[target] + self._value(sources[1]))
            return
        given = [self._value(source) for source in sources]
        if kind == "setp":
            tests = {
                "eq": lambda a, b: a == b,
                "ne": lambda a, b: a != b,
                "ge": lambda a, b: a >= b,
                "lt": lambda a, b: a < b,
            }
            self.values[target] = tests[parts[1]](*given)
            return
        if kind == "mov" and isinstance(given[0], float):
            self.values[target] = struct.unpack("<I", struct.pack("<f", given[0]))[0] if last == "b32" else given[0]
            return
        if kind == "fma":
            assert name == "fma.rn.f32"
            self.values[target] = _FUSED(*given)
            return
        results: dict[str, Callable[..., int]] = {
            "mov": lambda a: a,
            "cvt": lambda a: a,
            "cvta": lambda a: a,
            "add": lambda a, b: a + b,
            "and": lambda a, b: a & b,
            "xor": lambda a, b: a ^ b,
            "shr": lambda a, b: a >> b,
            "shl": lambda a, b: a << b,
            "mul": lambda a, b: a * b,
            "mad": lambda a, b, c: a * b + c,
        }
        # cvt names the type that it makes first, and mul.wide makes twice the width.
        width = _WIDTHS[parts[1] if kind == "cvt" else last] * (2 if parts[1] == "wide" else 1)
        self.values[target] = results[kind](*given) & ((1 << width) - 1)
