"""The programs of the load: what they do, thread after thread, and that ptxas assembles them where it is at hand."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load_ptx as ptx
from tests.unit.prove.ptx_machine import BASE, Machine

ALL = (1 << 64) - 1
#: What SplitMix64 gives first from the state 0, and second: Steele, Lea and Flood's generator as java.util.SplittableRandom has it.
SPLITMIX = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
WORDS, FIRST = 37, 1000
REPORT = BASE + 8 * 64


def memory(kind: int, seed: int, *turns: tuple[int, int, int], spoil: dict[int, int] | None = None) -> Machine:
    """A memory after these turns (expected mask, written mask, steps); some words are spoilt before the last one."""
    machine = Machine(ptx.PLAIN, 8 * 64 + ptx.REPORT_BYTES)
    for number, (expected, written, steps) in enumerate(turns):
        for place, bits in (spoil or {}).items() if number == len(turns) - 1 else ():
            machine.put(BASE + 8 * place, "Q", machine.words(BASE + 8 * place, 1)[0] ^ bits)
        machine.launch(ptx.CHECK_MEMORY, 2, 5, BASE, WORDS, FIRST, kind, seed, expected, written, steps, REPORT)
    return machine


def written(kind: int, seed: int) -> list[int]:
    machine = memory(kind, seed, (0, 0, ptx.WRITE))
    assert machine.words(BASE + 8 * WORDS, 64 - WORDS) == [0] * (64 - WORDS), "nothing is written behind the memory"
    return machine.words(BASE, WORDS)


def test_each_kind_of_pattern_is_written_to_every_word() -> None:
    assert written(ptx.ADDRESS, 7) == [FIRST + place + 7 for place in range(WORDS)]
    assert written(ptx.WALK, 7) == [1 << (FIRST + place + 7) % 64 for place in range(WORDS)]
    machine = Machine(ptx.PLAIN, 8 * 64 + ptx.REPORT_BYTES)
    machine.launch(ptx.CHECK_MEMORY, 1, 3, BASE, 2, 1, ptx.RANDOM, 0, 0, 0, ptx.WRITE, REPORT)
    assert machine.words(BASE, 2) == SPLITMIX


def test_another_number_makes_other_random_words() -> None:
    assert not set(written(ptx.RANDOM, 2)) & set(written(ptx.RANDOM, 5))


@pytest.mark.parametrize("kind", [ptx.ADDRESS, ptx.WALK, ptx.RANDOM])
def test_a_pattern_is_turned_round_and_found_again(kind: int) -> None:
    turns = ((0, 0, ptx.WRITE), (0, ALL, ptx.VERIFY | ptx.WRITE), (ALL, 0, ptx.VERIFY))
    assert [tuple(turn) for turn in card_load._TURNS] == list(turns)
    machine = memory(kind, 3, *turns)
    assert machine.words(REPORT, 1) == [0]
    assert machine.words(BASE, WORDS) == [word ^ ALL for word in written(kind, 3)]


def test_a_wrong_bit_is_noted_with_its_place_and_both_words() -> None:
    machine = memory(ptx.RANDOM, 3, (0, 0, ptx.WRITE), (0, 0, ptx.VERIFY), spoil={11: 1 << 40})
    right = written(ptx.RANDOM, 3)[11]
    assert machine.words(REPORT, 4) == [1, FIRST + 11, right, right ^ 1 << 40]


def test_more_than_there_is_room_for_is_counted_and_writes_over_nothing() -> None:
    machine = memory(ptx.ADDRESS, 3, (0, 0, ptx.WRITE), (ALL, 0, ptx.VERIFY))
    assert machine.words(REPORT, 1) == [WORDS]
    assert all(machine.words(REPORT + 8, 3 * ptx.RECORDS))
    assert len(machine.memory) == 8 * 64 + ptx.REPORT_BYTES


def single_bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def calculated(steps: int, results: list[float], rounds: int = 2) -> list[int]:
    """The report of two threads that begin as the load does."""
    begins, _results = card_load.chains()
    machine = Machine(ptx.PLAIN, 8 * 64 + ptx.REPORT_BYTES)
    machine.put(BASE, "f", *begins)
    machine.put(BASE + 64, "f", *results)
    constant = struct.unpack("<f", struct.pack("<f", card_load._CONSTANT))[0]
    machine.launch(ptx.COMPUTE_FMA, 1, 2, BASE, BASE + 64, constant, steps, rounds, REPORT)
    return [int(word) for word in machine.words(REPORT, 1 + 3 * ptx.RECORDS)]


def test_what_was_calculated_beforehand_is_what_the_program_calculates() -> None:
    assert calculated(card_load._CHAIN_STEPS, card_load.chains()[1])[0] == 0


def test_a_result_that_is_not_the_right_one_is_noted_by_each_thread_in_each_round() -> None:
    _begins, results = card_load.chains()
    results[5] = float("nan")
    report = calculated(card_load._CHAIN_STEPS, results)
    assert report[0] == 4
    assert {report[1], report[7]} == {0, 1}
    assert report[3] == single_bits(card_load.chains()[1][5])


def test_the_numbers_of_the_chains_stay_lively() -> None:
    begins, results = card_load.chains()
    assert len({*begins, *results}) == 2 * ptx.CHAINS
    assert all(abs(number) < 2 for number in results)


def test_the_matrices_are_exact_in_half_precision_and_their_product_in_single() -> None:
    content = card_load.matrices()
    left, opposite, right = (
        struct.unpack_from(f"<{ptx.SIDE**2}e", content, ptx.HALVES_BYTES * number) for number in range(3)
    )
    product = struct.unpack_from(f"<{ptx.SIDE**2}f", content, 3 * ptx.HALVES_BYTES)
    assert [-entry for entry in left] == list(opposite)
    for row in range(ptx.SIDE):
        for column in range(ptx.SIDE):
            entries = [left[row * ptx.SIDE + k] * right[k * ptx.SIDE + column] for k in range(ptx.SIDE)]
            assert sum(entries) == product[row * ptx.SIDE + column]
    assert len(set(product)) > 100


def test_the_texts_ask_for_no_more_than_old_drivers_know() -> None:
    for text, target in ((ptx.PLAIN, "sm_50"), (ptx.TENSOR, "sm_70")):
        assert text.split("\n")[1:4] == [".version 6.3", f".target {target}", ".address_size 64"]
        assert text.isascii(), "the compiler of the driver takes nothing else"


@pytest.mark.parametrize("name", ["PLAIN", "TENSOR"])
def test_ptxas_assembles_them_where_it_is_at_hand(name: str, tmp_path: Path) -> None:
    # For each generation, by both majors of CUDA: tests/measured/test_programs.py.
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas")
    source = tmp_path / "program.ptx"
    source.write_text(getattr(ptx, name))
    command = [ptxas, "-arch", "sm_90", "-o", str(tmp_path / "program.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
