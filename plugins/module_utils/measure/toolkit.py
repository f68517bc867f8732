# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove a CUDA toolkit: its nvcc compiles a small program for each card's compute capability, and the program computes on the cards.

A compiler that tells its version may still refuse the machine's gcc or C library, or lack code for the card. And a copy of memory says
"no error" after a kernel that the card has no code for: the program asks right after it started one, and compares what came of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from typing import TYPE_CHECKING, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_driver
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

COMPILE, KERNEL = "cuda.compile", "cuda.kernel"
MARK = "gpuwright-toolkit: "
NUMBERS = 4096
#: What is compiled. The numbers are those of no memory that was left as it was found.
PROGRAM = r"""#include <cstdio>
#include <vector>

static const int N = @NUMBERS@;

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = 3 * i + 1;
}

static int card(int number, const char **call, cudaError_t *error) {
    int *out = nullptr, right = 0;
    std::vector<int> host(N, -1);
    *call = "cudaSetDevice";
    if ((*error = cudaSetDevice(number))) return 0;
    *call = "cudaMalloc";
    if ((*error = cudaMalloc(&out, N * sizeof(int)))) return 0;
    fill<<<N / 256, 256>>>(out);
    *call = "the start of the kernel";
    if ((*error = cudaGetLastError())) return 0;
    *call = "the kernel";
    if ((*error = cudaDeviceSynchronize())) return 0;
    *call = "cudaMemcpy";
    if ((*error = cudaMemcpy(host.data(), out, N * sizeof(int), cudaMemcpyDeviceToHost))) return 0;
    for (int i = 0; i < N; i++) right += host[i] == 3 * i + 1;
    cudaFree(out);
    return right;
}

int main() {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    printf("\n@MARK@{\"step\": \"count\", \"count\": %d, \"code\": %d, \"error\": \"%s\"}\n", count, (int)error, cudaGetErrorString(error));
    for (int number = 0; !error && number < count; number++) {
        char bus[32] = "";
        const char *call = "";
        cudaError_t failed = cudaSuccess;
        cudaDeviceGetPCIBusId(bus, sizeof bus, number);
        int right = card(number, &call, &failed);
        printf("@MARK@{\"step\": \"card\", \"bus_id\": \"%s\", \"right\": %d, ", bus, right);
        printf("\"call\": \"%s\", \"code\": %d, \"error\": \"%s\"}\n", call, (int)failed, cudaGetErrorString(failed));
        fflush(stdout);
    }
    return 0;
}
""".replace("@NUMBERS@", str(NUMBERS)).replace("@MARK@", MARK)

# What nvcc says of the compiler of the machine, and not of itself: by crt/host_config.h, and where it finds none. The first match decides.
_HOST_TROUBLES: Tuple[Tuple[str, str, str], ...] = (
    (
        r"unsupported (GNU|clang) version",
        "it does not take the compiler of this machine",
        "install an older gcc and g++ beside it and compile with nvcc -ccbin, or ask for a newer toolkit",
    ),
    (
        r"Failed to preprocess host compiler properties|(gcc|g\+\+|cc1plus)['\"]?: (No such file or directory|not found)",
        "it finds no C++ compiler on this machine",
        "install g++ (apt-get install g++, dnf install gcc-c++)",
    ),
    (
        r"No space left on device",
        "the disk is full",
        "free the disk that the temporary directory is on",
    ),
)

# What the runtime's own errors mean (cudaError_t of driver_types.h); the others have the numbers and the meaning of the driver's.
_ERRORS = {
    35: cuda_driver.CudaError(
        "cudaErrorInsufficientDriver",
        "the driver is too old for this toolkit, or there is none",
        "install",
        "install a newer driver, or an older toolkit (gpuwright plan names both)",
    ),
    209: cuda_driver.CudaError(
        "cudaErrorNoKernelImageForDevice",
        "the program has no code for this card",
        "install",
        "ask for a toolkit that has code for it: gpuwright plan names one",
    ),
}


class Step(TypedDict, total=False):
    """What the program says: of all cards (``step``: count) and of each (card). ``right``: how many of the numbers."""

    step: str
    count: int
    bus_id: str
    right: int
    call: str
    code: int
    error: str


class Question(NamedTuple):
    """What is asked of a toolkit.

    ``capabilities``: of the cards, such as 9.0. ``known``: why it is known not to compile here, None where nothing is. ``cards``: how many
    the program has to find, None where there is none to run it on.
    """

    nvcc: str
    capabilities: Sequence[str]
    known: Optional[str]
    cards: Optional[int]
    timeout: float


class Runner(Protocol):
    """What runs a program: :func:`run.run`, or a test in its place."""

    def __call__(self, argv: Sequence[str], /, *, timeout: float, env: Mapping[str, str], cwd: str) -> run.Result:
        """Run it in a directory, for at most so many seconds."""


def of_others(nvcc: str, owners: Sequence[int] = (0,)) -> Optional[Check]:
    """What stands for the proof of a toolkit that another than root may change: root runs nothing of it. None where it is root's."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    folders = [os.path.join(root, name) for name in ("bin", "nvvm/bin")] if root != "/usr" else []
    found = ownership.offence(nvcc, owners)
    for folder in folders:
        if found is None and os.path.isdir(folder):
            found = ownership.offence_below(folder, owners)
    if found is None:
        return None
    return checks.incomplete(
        COMPILE,
        f"root does not run what another may change: {found.text}",
        evidence=nvcc,
        action="configure",
        remedy=f"look who changed it, then reinstall the toolkit of {nvcc}",
    )


def architecture(capability: str) -> str:
    """A compute capability (9.0) as nvcc calls it."""
    return f"sm_{capability.replace('.', '')}"


def prove(question: Question, folder: str, runner: Runner = run.run) -> List[Check]:
    """Compile for each capability, and where there are cards run what comes of it. ``folder``: an empty one of this user alone."""
    source = os.path.join(folder, "kernel.cu")
    with open(source, "w", encoding="ascii") as file:
        file.write(PROGRAM)
    names = [architecture(each) for each in question.capabilities]
    targets: Sequence[Optional[str]] = names or [None]
    for name in targets:
        target = os.path.join(folder, f"{name or 'default'}.cubin")
        words = [question.nvcc, "-x", "cu", *([f"-arch={name}"] if name else []), "-cubin", "-o", target, source]
        answer = runner(words, timeout=question.timeout, cwd=folder, env=_environment(folder))
        check = _judge_compile(question, name, answer, target)
        if check["status"] != "pass":
            return [check]
    done = checks.passed(
        COMPILE,
        reason=f"{question.nvcc} compiles for {', '.join(names) or 'its own default'}",
        measured=", ".join(names) or None,
        evidence=question.nvcc,
    )
    return [done, *_run(question, names, source, folder, runner)]


def _environment(folder: str) -> dict[str, str]:
    """nvcc keeps what it makes on the way in TMPDIR."""
    return {"TMPDIR": folder, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _judge_compile(question: Question, name: Optional[str], answer: run.Result, target: str) -> Check:
    what = f"{question.nvcc} for {name or 'its own default'}"
    said = f"{answer.out}\n{answer.err}".strip()
    if answer.ok and _is_there(target):
        return checks.passed(COMPILE)
    if answer.errno == errno.ENOENT:
        remedy = checks.again(question.nvcc)
        return checks.incomplete(
            COMPILE, f"{question.nvcc} is not there", evidence=question.nvcc, action="install", remedy=remedy
        )
    if answer.error:
        return _not_ended(COMPILE, question.nvcc, answer, said)
    for pattern, meaning, remedy in _HOST_TROUBLES:
        if re.search(pattern, said):
            reason = f"{question.nvcc} does not compile here: {question.known or meaning}"
            return checks.incomplete(COMPILE, reason, evidence=_end(said), action="configure", remedy=remedy)
    if question.known:
        reason = f"{question.nvcc} does not compile here: {question.known}"
        remedy = "ask for a toolkit that takes the compiler and the C library of this machine: gpuwright plan names one"
        return checks.incomplete(COMPILE, reason, evidence=_end(said), action="configure", remedy=remedy)
    reason = f"{what} ended with {answer.rc} and made nothing" if answer.ok else f"{what} ended with {answer.rc}"
    return checks.failed(
        COMPILE,
        reason=f"{reason}: {_first_error(said)}",
        evidence=_end(said),
        action="install",
        remedy=f"read what it says, and reinstall the toolkit of {question.nvcc} where a part of it is missing",
    )


def _not_ended(check_id: str, nvcc: str, answer: run.Result, said: str) -> Check:
    """A compiler that could not be started, or did not end in time."""
    remedy = f"call {nvcc} by hand; on a machine under load give toolkit_check more time"
    return checks.incomplete(check_id, str(answer.error), evidence=_end(said) or nvcc, action="none", remedy=remedy)


def _is_there(path: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.getsize(path) > 0
    return False


def _end(text: str) -> str:
    return text[-checks.EVIDENCE_LIMIT :]


def _first_error(text: str) -> str:
    """The line of a compiler's output that names the first error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(error|fatal)\b", line)]
    return (named or lines[-1:] or ["it said nothing"])[0][:300]


def _run(question: Question, names: Sequence[str], source: str, folder: str, runner: Runner) -> List[Check]:
    """Link the program for all cards, and run it on them."""
    if question.cards is None:
        reason = "no card is here that the program could run on"
        return [checks.skipped(KERNEL, reason, evidence=question.nvcc, action="none")]
    target = os.path.join(folder, "kernel")
    codes = [f"-gencode=arch=compute_{name[3:]},code={name}" for name in names]
    words = [question.nvcc, "-x", "cu", *codes, "-o", target, source]
    linked = runner(words, timeout=question.timeout, cwd=folder, env=_environment(folder))
    if not linked.ok:
        said = f"{linked.out}\n{linked.err}".strip()
        if linked.error:
            return [_not_ended(KERNEL, question.nvcc, linked, said)]
        reason = f"{question.nvcc} compiles and does not link ({linked.rc}): {_first_error(said)}"
        remedy = f"read what it says, and reinstall the toolkit of {question.nvcc} where its runtime library is missing"
        return [checks.failed(KERNEL, reason=reason, evidence=_end(said), action="install", remedy=remedy)]
    answer = runner([target], timeout=question.timeout, cwd=folder, env=_environment(folder))
    return judge_kernel(question, answer)


def judge_kernel(question: Question, answer: run.Result) -> List[Check]:
    """``cuda.kernel`` for each card of one run of the program."""
    steps = steps_of(answer.out)
    cards = [step for step in steps if step["step"] == "card"]
    found: List[Check] = [_judge_card(question.nvcc, step) for step in cards]
    count = next((step for step in steps if step["step"] == "count"), None)
    if count is not None and count["code"]:
        found.append(_trouble(question.nvcc, None, "cudaGetDeviceCount", count["code"], count["error"]))
    elif count is None or len(cards) < count["count"] or not answer.ok:
        reason = f"the program of {question.nvcc} did not end" + (
            f": {answer.error}" if answer.error else f" ({answer.rc})"
        )
        said = _end(f"{answer.out}\n{answer.err}".strip()) or None
        if answer.errno is not None or answer.error:
            remedy = (
                "check whether the file system of Ansible's temporary directory is mounted noexec, and the kernel log"
            )
            found.append(checks.incomplete(KERNEL, reason, evidence=said, action="configure", remedy=remedy))
        else:
            remedy = "read the kernel log for Xid messages, reboot the host and prove again"
            found.append(checks.failed(KERNEL, reason=reason, evidence=said, action="reboot", remedy=remedy))
    elif len(cards) < (question.cards or 1):
        reason = f"the program of {question.nvcc} finds {words.count(len(cards), 'cards')} of {question.cards or 1}"
        remedy = "compare with the checks gpu.* and cuda.count"
        found.append(
            checks.failed(
                KERNEL, reason=reason, measured=len(cards), expected=question.cards, action="none", remedy=remedy
            )
        )
    return found


def _judge_card(nvcc: str, step: Step) -> Check:
    card = document.normalise_bus_id(step["bus_id"])
    if step["code"]:
        return _trouble(nvcc, card, step["call"], step["code"], step["error"])
    is_right = step["right"] == NUMBERS
    return checks.judged(
        KERNEL,
        is_right,
        gpu=card,
        measured=step["right"],
        expected=NUMBERS,
        unit="numbers",
        evidence=nvcc,
        reason=f"a kernel that {nvcc} compiled computes on the card" if is_right else "the card computes wrong numbers",
        action="check_hardware",
        remedy="read the checks ecc.* and the kernel log; where it comes again, have the card replaced",
    )


def _trouble(nvcc: str, card: Optional[str], call: str, code: int, error: str) -> Check:
    meaning = _ERRORS.get(code) or cuda_driver.explain(code, error)
    said = f"{nvcc}: {call}: {error} ({code})"
    rest: checks.Rest = {"gpu": card, "evidence": said, "action": meaning.action, "remedy": meaning.remedy}
    reason = f"a kernel that {nvcc} compiled does not run: {meaning.cause}"
    if meaning.status == "incomplete":
        return checks.incomplete(KERNEL, reason, **rest)
    return checks.failed(KERNEL, reason=reason, **rest)


def steps_of(text: str) -> List[Step]:
    """What the program said, without what is not as it says it."""
    steps: List[Step] = []
    for line in text.splitlines():
        if not line.startswith(MARK):
            continue
        with contextlib.suppress(ValueError, RecursionError):
            step = json.loads(line[len(MARK) :])
            if _is_step(step):
                steps.append(step)
    return steps


_SHAPES = {
    "count": {"count": int, "code": int, "error": str},
    "card": {"bus_id": str, "right": int, "call": str, "code": int, "error": str},
}


def _is_step(step: object) -> bool:
    if not isinstance(step, dict):
        return False
    shape = _SHAPES.get(str(step.get("step")))
    # A truth value would be a number, too.
    return shape is not None and all(
        isinstance(step.get(key), kind) and not isinstance(step.get(key), bool) for key, kind in shape.items()
    )
