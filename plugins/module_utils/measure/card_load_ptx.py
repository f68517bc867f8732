# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs of the load on a card, as PTX: the driver compiles them for the card that is there.

Written in the lowest versions that know their instructions, so that old drivers compile them and old cards run them (PTX ISA, chapters
"PTX Version" and "Target"): ``PLAIN`` for Maxwell and newer, ``TENSOR`` for cards with tensor cores, from Volta on. PTX 6.3 came with CUDA
10.0, driver 410. A test has each assembled by ptxas for each generation of cards.

What a program finds wrong it notes in a report in the card's memory, words of 64 bits: how often in the first one, then of the first
:data:`RECORDS` three words each, the place, what was expected and what was found.
"""

from __future__ import annotations

#: What is wrong and is noted in detail.
RECORDS = 16
WORDS_OF_A_RECORD = 3
REPORT_BYTES = 8 * (1 + WORDS_OF_A_RECORD * RECORDS)

#: Kinds of patterns of :data:`CHECK_MEMORY`.
ADDRESS, WALK, RANDOM = 0, 1, 2
#: What CHECK_MEMORY does with a word: hold it against the pattern, then write it.
VERIFY, WRITE = 1, 2

CHECK_MEMORY = "check_memory"
COMPUTE_FMA = "compute_fma"
COMPUTE_MMA = "compute_mma"

#: Numbers that each thread of COMPUTE_FMA calculates beside each other, so that none waits for the one before.
CHAINS = 8
#: Steps of COMPUTE_FMA between two looks at its counter.
UNROLLED = 4

# The rows and columns of the matrices of COMPUTE_MMA, one of the shapes that wmma has on every card (PTX ISA, "Matrix Data-types").
SIDE = 16
HALVES_BYTES = 2 * SIDE * SIDE
#: Times that COMPUTE_MMA adds the product and takes it off again before it holds the result against the right one.
PAIRS = 64
#: Results that a warp of COMPUTE_MMA works on beside each other.
RESULTS = 4

# A note of what is wrong. The count goes on where there is no room for more.
_NOTE = f"""
.func note (.reg .u64 %report, .reg .u64 %place, .reg .u64 %expected, .reg .u64 %found)
{{
    .reg .pred %full;
    .reg .u64 %count, %at;
    atom.global.add.u64 %count, [%report], 1;
    setp.ge.u64 %full, %count, {RECORDS};
    @%full ret;
    mad.lo.u64 %at, %count, {8 * WORDS_OF_A_RECORD}, %report;
    st.global.u64 [%at+8], %place;
    st.global.u64 [%at+16], %expected;
    st.global.u64 [%at+24], %found;
    ret;
}}
"""

# The number of this thread among all of them, and how many there are.
_THREADS = """
    mov.u32 %low, %ctaid.x;
    mov.u32 %high, %ntid.x;
    mul.wide.u32 %index, %low, %high;
    mov.u32 %low, %tid.x;
    cvt.u64.u32 %wide, %low;
    add.u64 %index, %index, %wide;
    mov.u32 %low, %nctaid.x;
    mul.wide.u32 %stride, %low, %high;
"""

# The random words are those of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014), by the place
# in place of a state.
_CHECK_MEMORY = f"""
.func (.reg .u64 %word) pattern (.reg .u64 %place, .reg .u32 %kind, .reg .u64 %seed)
{{
    .reg .pred %is;
    .reg .u64 %mixed, %shifted;
    .reg .u32 %bit;
    setp.eq.u32 %is, %kind, {ADDRESS};
    @%is bra ADDRESS;
    setp.eq.u32 %is, %kind, {WALK};
    @%is bra WALK;
    mad.lo.u64 %mixed, %place, 0x9E3779B97F4A7C15, %seed;
    shr.u64 %shifted, %mixed, 30;
    xor.b64 %mixed, %mixed, %shifted;
    mul.lo.u64 %mixed, %mixed, 0xBF58476D1CE4E5B9;
    shr.u64 %shifted, %mixed, 27;
    xor.b64 %mixed, %mixed, %shifted;
    mul.lo.u64 %mixed, %mixed, 0x94D049BB133111EB;
    shr.u64 %shifted, %mixed, 31;
    xor.b64 %word, %mixed, %shifted;
    ret;
ADDRESS:
    add.u64 %word, %place, %seed;
    ret;
WALK:
    add.u64 %mixed, %place, %seed;
    cvt.u32.u64 %bit, %mixed;
    and.b32 %bit, %bit, 63;
    mov.u64 %word, 1;
    shl.b64 %word, %word, %bit;
    ret;
}}

// Each thread takes every so many-th word: holds it against its pattern, turned round by one mask, and writes it, by the other.
.visible .entry {CHECK_MEMORY} (
    .param .u64 memory, .param .u64 words, .param .u64 first, .param .u32 kind, .param .u64 seed,
    .param .u64 expected_mask, .param .u64 written_mask, .param .u32 steps, .param .u64 report)
{{
    .reg .pred %end, %verify, %write, %right;
    .reg .u32 %low, %high, %kind, %steps;
    .reg .u64 %memory, %words, %first, %seed, %expected_mask, %written_mask, %report;
    .reg .u64 %index, %wide, %stride, %at, %place, %word, %expected, %found;
    ld.param.u64 %memory, [memory];
    ld.param.u64 %words, [words];
    ld.param.u64 %first, [first];
    ld.param.u32 %kind, [kind];
    ld.param.u64 %seed, [seed];
    ld.param.u64 %expected_mask, [expected_mask];
    ld.param.u64 %written_mask, [written_mask];
    ld.param.u32 %steps, [steps];
    ld.param.u64 %report, [report];
    cvta.to.global.u64 %memory, %memory;
    cvta.to.global.u64 %report, %report;
    and.b32 %low, %steps, {VERIFY};
    setp.ne.u32 %verify, %low, 0;
    and.b32 %low, %steps, {WRITE};
    setp.ne.u32 %write, %low, 0;
{_THREADS}
NEXT:
    setp.ge.u64 %end, %index, %words;
    @%end ret;
    mad.lo.u64 %at, %index, 8, %memory;
    add.u64 %place, %first, %index;
    call (%word), pattern, (%place, %kind, %seed);
    @!%verify bra VERIFIED;
    xor.b64 %expected, %word, %expected_mask;
    ld.global.u64 %found, [%at];
    setp.eq.u64 %right, %found, %expected;
    @%right bra VERIFIED;
    call note, (%report, %place, %expected, %found);
VERIFIED:
    @!%write bra WRITTEN;
    xor.b64 %expected, %word, %written_mask;
    st.global.u64 [%at], %expected;
WRITTEN:
    add.u64 %index, %index, %stride;
    bra NEXT;
}}
"""


def _chains(line: str) -> str:
    """A line for each chain, ``#`` in it being its number."""
    return "\n".join("\t" + line.replace("#", str(chain)) for chain in range(CHAINS))


# x becomes x·x + c over and over, from the same beginnings in every thread: a wrong bit anywhere ends in another number. Each operation is
# rounded once, as IEEE 754 says, so the results are the same on every card and are calculated beforehand.
_COMPUTE_FMA = f"""
.visible .entry {COMPUTE_FMA} (
    .param .u64 begins, .param .u64 results, .param .f32 constant, .param .u32 steps, .param .u32 rounds, .param .u64 report)
{{
    .reg .pred %more, %right;
    .reg .u32 %low, %high, %steps, %rounds, %step, %round, %bits;
    .reg .u64 %begins, %results, %report, %index, %wide, %stride, %expected, %found;
    .reg .f32 %constant, %begin<{CHAINS}>, %result<{CHAINS}>, %x<{CHAINS}>;
    ld.param.u64 %begins, [begins];
    ld.param.u64 %results, [results];
    ld.param.f32 %constant, [constant];
    ld.param.u32 %steps, [steps];
    ld.param.u32 %rounds, [rounds];
    ld.param.u64 %report, [report];
    cvta.to.global.u64 %begins, %begins;
    cvta.to.global.u64 %results, %results;
    cvta.to.global.u64 %report, %report;
{_THREADS}
{{BEGIN}}
    mov.u32 %round, 0;
ROUND:
{_chains("mov.f32 %x#, %begin#;")}
    mov.u32 %step, 0;
STEP:
{{STEPS}}
    add.u32 %step, %step, {UNROLLED};
    setp.lt.u32 %more, %step, %steps;
    @%more bra STEP;
{{HOLD}}
    add.u32 %round, %round, 1;
    setp.lt.u32 %more, %round, %rounds;
    @%more bra ROUND;
    ret;
}}
"""
_BEGIN = "\n".join(
    f"\tld.global.f32 %begin{chain}, [%begins+{4 * chain}];\n\tld.global.f32 %result{chain}, [%results+{4 * chain}];"
    for chain in range(CHAINS)
)
_STEPS = "\n".join([_chains("fma.rn.f32 %x#, %x#, %x#, %constant;")] * UNROLLED)


def _held(found: str, expected: str, label: str) -> str:
    """Note a number of 32 bits that is not the right one; what is no number is never right."""
    return f"""    setp.eq.f32 %right, {found}, {expected};
    @%right bra {label};
    mov.b32 %bits, {expected};
    cvt.u64.u32 %expected, %bits;
    mov.b32 %bits, {found};
    cvt.u64.u32 %found, %bits;
    call note, (%report, %index, %expected, %found);
{label}:"""


_HOLD = "\n".join(_held(f"%x{chain}", f"%result{chain}", f"RIGHT{chain}") for chain in range(CHAINS))

PLAIN = (
    "\n.version 6.3\n.target sm_50\n.address_size 64\n"
    + _NOTE
    + _CHECK_MEMORY
    + _COMPUTE_FMA.replace("{BEGIN}", _BEGIN).replace("{STEPS}", _STEPS).replace("{HOLD}", _HOLD)
)


def _registers(name: str, count: int = 8) -> str:
    """The registers of a matrix, as wmma takes them."""
    return "{" + ", ".join(f"%{name}{number}" for number in range(count)) + "}"


# The matrices are of small whole numbers, and a product is added and taken off in turns: every sum is exact, in whatever order and with
# whatever width a tensor core adds. The right result is loaded into the same places of the same registers as the calculated one.
_MULTIPLY = "\n".join(
    f"\twmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {_registers(f'd{result}_')}, {_registers(matrix)}, "
    f"{_registers('b')}, {_registers(f'd{result}_')};"
    for matrix in ("a", "n")
    for result in range(RESULTS)
)
_PRODUCT = "\n".join(_MULTIPLY.split("\n")[:RESULTS])
_ZEROS = "\n".join(f"\tmov.f32 %d{result}_{place}, 0f00000000;" for result in range(RESULTS) for place in range(8))
_HOLD_MATRICES = "\n".join(
    _held(f"%d{result}_{place}", f"%c{place}", f"RIGHT{result}_{place}")
    for result in range(RESULTS)
    for place in range(8)
)
_REGISTERS = ", ".join(f"%d{result}_<8>" for result in range(RESULTS))

TENSOR = f"""
.version 6.3
.target sm_70
.address_size 64
{_NOTE}
// matrices: A, -A and B of halves, then the product of A and B in single precision.
.visible .entry {COMPUTE_MMA} (.param .u64 matrices, .param .u32 rounds, .param .u64 report)
{{
    .reg .pred %more, %right;
    .reg .u32 %low, %high, %rounds, %round, %pair, %bits, %side;
    .reg .u64 %matrices, %report, %index, %wide, %stride, %expected, %found, %at;
    .reg .b32 %a<8>, %n<8>, %b<8>;
    .reg .f32 %c<8>, {_REGISTERS};
    ld.param.u64 %matrices, [matrices];
    ld.param.u32 %rounds, [rounds];
    ld.param.u64 %report, [report];
    cvta.to.global.u64 %matrices, %matrices;
    cvta.to.global.u64 %report, %report;
{_THREADS}
    mov.u32 %side, {SIDE};
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {_registers("a")}, [%matrices], %side;
    add.u64 %at, %matrices, {HALVES_BYTES};
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {_registers("n")}, [%at], %side;
    add.u64 %at, %matrices, {2 * HALVES_BYTES};
    wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {_registers("b")}, [%at], %side;
    add.u64 %at, %matrices, {3 * HALVES_BYTES};
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {_registers("c")}, [%at], %side;
    mov.u32 %round, 0;
ROUND:
{_ZEROS}
    mov.u32 %pair, 0;
PAIR:
{_MULTIPLY}
    add.u32 %pair, %pair, 1;
    setp.lt.u32 %more, %pair, {PAIRS};
    @%more bra PAIR;
{_PRODUCT}
{_HOLD_MATRICES}
    // Whoever noted something comes back to the others: a warp multiplies as one.
    bar.warp.sync 0xffffffff;
    add.u32 %round, %round, 1;
    setp.lt.u32 %more, %round, %rounds;
    @%more bra ROUND;
    ret;
}}
"""
