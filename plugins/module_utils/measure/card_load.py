# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load cards through the CUDA driver alone, and hold what they keep and calculate against what is right.

It needs neither a toolkit nor a framework: the programs are PTX, which the driver compiles. A child for each card takes most of its free
memory, fills and verifies it with patterns that move, then multiplies; everything is known beforehand to the last bit. The load is for
correctness and heat, its speed is no figure of a card. It sets nothing on the card, and its memory goes with the child.

A child ends by itself in its time; launches are short, so that a screen on the card goes on being drawn. Its parent kills the one that does
not, and so does the kernel where the parent is held up.
"""

from __future__ import annotations

import contextlib
import ctypes
import fractions
import itertools
import math
import os
import random
import select
import signal
import struct
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load_ptx as ptx
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_driver
from ansible_collections.gpuwright.node.plugins.module_utils.measure.cuda_driver import Driver, Failed, Say

MEMORY, COMPUTE = "memory", "compute"
PARTS: Tuple[str, ...] = (MEMORY, COMPUTE)

#: Seconds until a child has its context, its programs and its memory; eight cards that wake up take about ten (assumed).
START_SECONDS = 60.0
#: Seconds that a child has over its time for its last launch (assumed).
LAST_SECONDS = 10.0
#: Own rule: what is left free of a card's memory in any case, for the driver's own needs.
RESERVE_BYTES = 64 << 20
#: Own rule: of the memory of a card that has none of its own, and takes the host's, no larger share.
SHARE_OF_THE_HOST = 0.5
#: A piece that is taken at once, halved where the card has none of that size any more, down to the smallest.
_PIECE_BYTES, _SMALLEST_BYTES = 256 << 20, 1 << 20
#: Own rule: a launch this long lets a screen be drawn in between, and is not much longer than the time between two launches.
_LAUNCH_SECONDS = 0.05
#: Between two words of a child about how far it is.
_TELL_SECONDS = 1.0
#: Characters that are read of a child at the most: one step of a few hundred a second.
_MOST_TOLD = 4 << 20

_WORD = 8
_THREADS_OF_A_BLOCK = 256
#: Blocks of a multiprocessor, so that it always has threads that can go on.
_BLOCKS = 4
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h
_INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h: it shares the host's memory
_BLOCKING_SYNC = 4  # CU_CTX_SCHED_BLOCKING_SYNC of cuda.h: wait without a busy core
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and …_SIZE_BYTES of cuda.h
_LOG_BYTES = 2048
_ALL = (1 << 64) - 1
#: The first generation with tensor cores.
_TENSOR_MAJOR = 7

#: x·x + c with this c stays between -2 and 2 and never settles, so that no bit is idle.
_CONSTANT = -1.9
_CHAIN_STEPS = 1024
#: What the matrices and the beginnings are drawn from; the same ones each time.
_SEED = 19
_LARGEST_ENTRY = 8


class Order(NamedTuple):
    """What a child does on a ``card``. ``visible``: this card or an instance of it (MIG). Both by their UUID. ``share`` of the free memory:
    0 to 1.
    """

    card: str
    visible: str
    seconds: float
    share: float
    parts: Sequence[str]


# --------------------------------------------------------------------------------------------------------------------
# What is right
# --------------------------------------------------------------------------------------------------------------------


def single(value: fractions.Fraction) -> float:
    """A number as single precision has it, rounded once, to the nearest and to even (IEEE 754); of normal numbers alone."""
    if not value:
        return 0.0
    unit = 24 - math.frexp(float(value))[1]
    rounded = round(value * fractions.Fraction(2) ** unit)
    return float(fractions.Fraction(rounded) / fractions.Fraction(2) ** unit)


def chains() -> Tuple[List[float], List[float]]:
    """Where the numbers of COMPUTE_FMA begin, and where they are after their steps."""
    draw = random.Random(_SEED)  # noqa: S311 - the same numbers each time, no secret
    begins = [single(fractions.Fraction(draw.uniform(-1, 1))) for _chain in range(ptx.CHAINS)]
    constant = fractions.Fraction(single(fractions.Fraction(_CONSTANT)))
    results = []
    for begin in begins:
        value = begin
        for _step in range(_CHAIN_STEPS):
            value = single(fractions.Fraction(value) ** 2 + constant)
        results.append(value)
    return begins, results


def matrices() -> bytes:
    """What COMPUTE_MMA multiplies, and the right product: A, -A and B in half precision, A·B in single, row by row."""
    draw = random.Random(_SEED)  # noqa: S311 - as above
    size = ptx.SIDE
    left, right = (
        [[draw.randint(-_LARGEST_ENTRY, _LARGEST_ENTRY) for _column in range(size)] for _row in range(size)]
        for _matrix in range(2)
    )
    product = [sum(row[k] * right[k][column] for k in range(size)) for row in left for column in range(size)]
    halves = [entry for row in left for entry in row]
    halves += [-entry for entry in halves] + [entry for row in right for entry in row]
    return struct.pack(f"<{len(halves)}e", *halves) + struct.pack(f"<{len(product)}f", *product)


# --------------------------------------------------------------------------------------------------------------------
# In the child
# --------------------------------------------------------------------------------------------------------------------


# What a program takes.
_Simple = Union[ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float]


class _Pace:
    """How much a launch does: as much as takes about :data:`_LAUNCH_SECONDS`, found out from little upwards."""

    def __init__(self, first: int, most: int) -> None:
        self.amount = first
        self.most = most

    def learn(self, took: float) -> None:
        change = min(max(_LAUNCH_SECONDS / max(took, 1e-6), 0.25), 4.0)
        self.amount = min(max(int(self.amount * change), 1), self.most)


class _Card:
    """The card of this child: its programs, its report and the memory that was taken."""

    def __init__(self, driver: Driver, device: int, say: Say) -> None:
        self.driver = driver
        self.say = say
        self.blocks = max(driver.integer("cuDeviceGetAttribute", _MULTIPROCESSORS, device), 1) * _BLOCKS
        self.pieces: List[Tuple[int, int]] = []
        self.report = self.take(ptx.REPORT_BYTES)
        self.forget()

    def take(self, size: int) -> int:
        """Memory of the card, by its address. Raises Failed."""
        address = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def put(self, content: bytes) -> int:
        """Memory of the card with this content."""
        address = self.take(len(content))
        self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))
        return address

    def program(self, text: str, names: Sequence[str]) -> List[ctypes.c_void_p]:
        """Have the driver compile PTX. Raises Failed; the compiler's words are told before."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        try:
            self.driver.call("cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 2, options, values)
        except Failed:
            self.say("compiler", words=log.value.decode("utf-8", "replace"))
            raise
        found = []
        for name in names:
            function = ctypes.c_void_p()
            self.driver.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            found.append(function)
        return found

    def run(self, function: ctypes.c_void_p, *values: _Simple) -> float:
        """Launch a program over the whole card and wait for its end; the seconds that took."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        begun = time.monotonic()
        self.driver.call(
            "cuLaunchKernel",
            function,
            *(self.blocks, 1, 1, _THREADS_OF_A_BLOCK, 1, 1, 0),
            ctypes.c_void_p(),
            pointers,
            ctypes.c_void_p(),
        )
        self.driver.call("cuCtxSynchronize")
        return time.monotonic() - begun

    def forget(self) -> None:
        """Empty the report."""
        self.driver.call(
            "cuMemsetD8_v2", ctypes.c_uint64(self.report), ctypes.c_ubyte(0), ctypes.c_size_t(ptx.REPORT_BYTES)
        )

    def wrong(self) -> Dict[str, object]:
        """What the report has: how much was wrong, and the first of it as ``[place, expected, found]``."""
        buffer = ctypes.create_string_buffer(ptx.REPORT_BYTES)
        self.driver.call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(self.report), ctypes.c_size_t(ptx.REPORT_BYTES))
        count, *words = struct.unpack(f"<{ptx.REPORT_BYTES // _WORD}Q", buffer.raw)
        told = range(0, min(count, ptx.RECORDS) * ptx.WORDS_OF_A_RECORD, ptx.WORDS_OF_A_RECORD)
        return {"wrong": count, "first": [[f"{word:#x}" for word in words[at : at + 3]] for at in told]}

    def fill_up(self, wanted: int) -> int:
        """Take memory in pieces until there is as much as wanted or no more; how much it is, in bytes."""
        piece, taken = _PIECE_BYTES, 0
        while wanted - taken >= _SMALLEST_BYTES and piece >= _SMALLEST_BYTES:
            size = min(piece, (wanted - taken) // _WORD * _WORD)
            try:
                self.pieces.append((self.take(size), size // _WORD))
                taken += size
            except Failed as failure:
                if failure.record["code"] != cuda_driver.OUT_OF_MEMORY:
                    raise
                piece = size // 2
        return taken


def load(path: str, order: Order, say: Say) -> None:
    """Load one card; each step is told through ``say(step, **facts)`` as soon as it is done.

    Steps: ``library`` (``error``), ``card`` (``name``, ``capability``), ``compiler`` (``words``), ``begin`` (``at``, ``wanted`` and
    ``taken`` bytes), ``memory`` (``rounds`` over all of it, ``verified`` bytes, ``wrong``, ``first``), for each program of the part compute
    ``compute`` (``program``, ``launches``, ``rounds``, ``wrong``, ``first``), ``end`` (``at``), and where a call failed ``failure``.
    ``at`` is the time of the monotonic clock.
    """
    say("start")
    try:
        driver = Driver(path)
    except OSError as error:
        say("library", error=str(error))
        return
    say("library")
    try:
        _load(driver, order, say)
    except Failed as failure:
        say("failure", **failure.record)


def _load(driver: Driver, order: Order, say: Say) -> None:
    driver.call("cuInit", 0)
    device = driver.integer("cuDeviceGet", 0)
    capability = driver.capability(device)
    say("card", name=driver.words("cuDeviceGetName", device), capability=capability)
    with contextlib.suppress(Failed):
        # Waiting costs a core without it, and nothing more.
        driver.call("cuDevicePrimaryCtxSetFlags_v2", device, _BLOCKING_SYNC)
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)
    card = _Card(driver, device, say)
    check_memory, fma = card.program(ptx.PLAIN, (ptx.CHECK_MEMORY, ptx.COMPUTE_FMA))
    works = []
    if COMPUTE in order.parts:
        works.append(_multiplied(card, fma))
        if int(capability.split(".", 1)[0]) >= _TENSOR_MAJOR:
            works.append(_multiplied_matrices(card, *card.program(ptx.TENSOR, (ptx.COMPUTE_MMA,))))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    integrated = driver.integer("cuDeviceGetAttribute", _INTEGRATED, device)
    share = min(order.share, SHARE_OF_THE_HOST) if integrated else order.share
    wanted = int(max(free.value - RESERVE_BYTES, 0) * share) if MEMORY in order.parts else 0
    taken = card.fill_up(wanted)
    begun = time.monotonic()
    say("begin", at=begun, wanted=wanted, taken=taken)
    # Each part has its share of the time, one after the other.
    ends = [begun + order.seconds * number / len(order.parts) for number in range(1, len(order.parts) + 1)]
    for part, end in zip(order.parts, ends):
        if part == MEMORY and taken:
            _work_memory(card, check_memory, end)
        elif part == COMPUTE:
            _work_compute(card, works, end)
    say("end", at=time.monotonic())


class _Turn(NamedTuple):
    """What a pass over the memory expects and writes: the pattern, turned round by these masks."""

    expected: int
    written: int
    steps: int


#: A moving inversion: written, verified and turned round at once, verified.
_TURNS = (_Turn(0, 0, ptx.WRITE), _Turn(0, _ALL, ptx.VERIFY | ptx.WRITE), _Turn(_ALL, 0, ptx.VERIFY))
_KINDS = (ptx.ADDRESS, ptx.WALK, ptx.RANDOM)


def _work_memory(card: _Card, program: ctypes.c_void_p, end: float) -> None:
    """Patterns over all that was taken until the time is up, each another one."""
    pace = _Pace(_SMALLEST_BYTES // _WORD, _PIECE_BYTES // _WORD)
    verified, told = 0, time.monotonic()
    card.forget()
    for number in itertools.count():
        for turn in _TURNS:
            for address, words, first in _launches(card, pace):
                pace.learn(_pass_over(card, program, number, turn, (address, words, first)))
                verified += words * _WORD if turn.steps & ptx.VERIFY else 0
                now = time.monotonic()
                if now >= end or now - told >= _TELL_SECONDS:
                    card.say(MEMORY, rounds=number, verified=verified, **card.wrong())
                    told = now
                if now >= end:
                    return


def _pass_over(card: _Card, program: ctypes.c_void_p, number: int, turn: _Turn, where: Tuple[int, int, int]) -> float:
    """Launch one turn of a pattern over a part of the memory; the seconds that took."""
    address, words, first = where
    return card.run(
        program,
        ctypes.c_uint64(address),
        ctypes.c_uint64(words),
        ctypes.c_uint64(first),
        ctypes.c_uint32(_KINDS[number % len(_KINDS)]),
        ctypes.c_uint64(number),
        ctypes.c_uint64(turn.expected),
        ctypes.c_uint64(turn.written),
        ctypes.c_uint32(turn.steps),
        ctypes.c_uint64(card.report),
    )


def _launches(card: _Card, pace: _Pace) -> Iterator[Tuple[int, int, int]]:
    """What is worked on at once: ``(address, words, the number of the first word of all)``, through all pieces."""
    first = 0
    for address, words in card.pieces:
        done = 0
        while done < words:
            some = min(pace.amount, words - done)
            yield address + done * _WORD, some, first + done
            done += some
        first += words


class _Work(NamedTuple):
    """A program that calculates: its name, and what runs so many rounds of it and tells the seconds."""

    name: str
    run: Callable[[int], float]


def _multiplied(card: _Card, program: ctypes.c_void_p) -> _Work:
    begins, results = (card.put(struct.pack(f"<{ptx.CHAINS}f", *numbers)) for numbers in chains())

    def run(rounds: int) -> float:
        return card.run(
            program,
            ctypes.c_uint64(begins),
            ctypes.c_uint64(results),
            ctypes.c_float(_CONSTANT),
            ctypes.c_uint32(_CHAIN_STEPS),
            ctypes.c_uint32(rounds),
            ctypes.c_uint64(card.report),
        )

    return _Work(ptx.COMPUTE_FMA, run)


def _multiplied_matrices(card: _Card, program: ctypes.c_void_p) -> _Work:
    content = card.put(matrices())

    def run(rounds: int) -> float:
        return card.run(program, ctypes.c_uint64(content), ctypes.c_uint32(rounds), ctypes.c_uint64(card.report))

    return _Work(ptx.COMPUTE_MMA, run)


def _work_compute(card: _Card, works: Sequence[_Work], end: float) -> None:
    """Each program for its share of the time that is left."""
    for number, work in enumerate(works):
        now = time.monotonic()
        until = now + (end - now) / (len(works) - number)
        _calculate(card, work, until)


def _calculate(card: _Card, work: _Work, until: float) -> None:
    pace = _Pace(1, 1 << 20)
    launches = rounds = 0
    told = time.monotonic()
    card.forget()
    while not launches or time.monotonic() < until:
        amount = pace.amount
        pace.learn(work.run(amount))
        launches, rounds = launches + 1, rounds + amount
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            card.say(COMPUTE, program=work.name, launches=launches, rounds=rounds, **card.wrong())
    card.say(COMPUTE, program=work.name, launches=launches, rounds=rounds, **card.wrong())


# --------------------------------------------------------------------------------------------------------------------
# In the parent
# --------------------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What a child said and how it ended: ``code`` of exit, ``signal`` that killed it, ``hung``, or ``stopped`` and why."""

    order: Order
    steps: List[Dict[str, object]]
    code: Optional[int]
    signal: Optional[int]
    hung: bool
    stopped: Optional[str]


class Child:
    """A child at work."""

    def __init__(self, path: str, order: Order) -> None:
        limit = START_SECONDS + order.seconds + LAST_SECONDS
        self.order = order
        self.ends = time.monotonic() + limit
        self.stopped: Optional[str] = None
        self.hung = False
        self._said: List[bytes] = []
        self._length = 0
        self._status: Optional[int] = None
        environment = {"CUDA_VISIBLE_DEVICES": order.visible, "CUDA_CACHE_DISABLE": "1"}
        self.process, self.reading = cuda_driver.start(
            lambda say: load(path, order, say), environment, limit + LAST_SECONDS
        )
        self.running = True

    def read(self) -> None:
        """Take in what it says now; at its end it is over."""
        piece = os.read(self.reading, 65536)
        self._said.append(piece[: max(_MOST_TOLD - self._length, 0)])
        self._length += len(piece)
        if not piece:
            self._close(LAST_SECONDS)

    def stop(self, why: Optional[str] = None) -> None:
        """End it now, because of ``why``, or because its time is over."""
        if not self.running:
            return
        self.stopped, self.hung = why, why is None
        with contextlib.suppress(OSError):
            os.kill(self.process, signal.SIGKILL)
        self._close(2.0)

    def _close(self, seconds: float) -> None:
        self.running = False
        os.close(self.reading)
        self._status = cuda_driver.reap(self.process, seconds)
        if self._status is None:
            # It hangs inside the kernel, and is left behind.
            self.hung = True
            with contextlib.suppress(OSError):
                os.kill(self.process, signal.SIGKILL)

    def told(self) -> Told:
        """What became of it."""
        steps = cuda_driver.steps(b"".join(self._said).decode("utf-8", "replace"))
        if self._status is None:
            return Told(self.order, steps, None, None, True, self.stopped)
        killed = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else None
        return Told(
            self.order, steps, None if killed else os.WEXITSTATUS(self._status), killed, self.hung, self.stopped
        )


def drive(path: str, orders: Sequence[Order], interval: float, look: Callable[[Sequence[Child]], None]) -> List[Told]:
    """Load all cards at once, and look at them every ``interval`` seconds meanwhile; what became of each child.

    ``look``: is given the children that work, and may stop one of them. No child is left when this returns or raises.
    """
    children: List[Child] = []
    try:
        for order in orders:
            # Not at once: each is in the list, to be ended, before the next one begins.
            children.append(Child(path, order))  # noqa: PERF401 - see above
        next_look = time.monotonic()
        while any(child.running for child in children):
            if time.monotonic() >= next_look:
                look([child for child in children if child.running])
                next_look = time.monotonic() + interval
            _listen([child for child in children if child.running], next_look)
    finally:
        for child in children:
            child.stop("the proof was ended")
    return [child.told() for child in children]


def _listen(children: Sequence[Child], until: float) -> None:
    """Wait for the next word of a child, at most until then, and end those that are over their time."""
    ends = min([until, *(child.ends for child in children)])
    waiting = max(ends - time.monotonic(), 0.0)
    ready, _write, _error = select.select([child.reading for child in children], [], [], waiting)
    for child in children:
        if child.reading in ready:
            child.read()
        elif time.monotonic() >= child.ends:
            child.stop()
