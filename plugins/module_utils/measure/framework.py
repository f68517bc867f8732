# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove a deep-learning framework in its own environment: import it, find the cards, compute on them.

The environment's interpreter runs a small program that tells each step as a line of JSON behind a mark, since frameworks
print what they like. An import that hangs, crashes or runs out of memory is seen by what was told before it.
"""

from __future__ import annotations

import errno
import json
import os
import re
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    Union,
    cast,
)

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, ownership, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT, About

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

MARK = "gpuwright-framework: "

HEAD = f"""
import json, os, sys
def say(step, **facts):
    sys.stdout.write("\\n" + {MARK!r} + json.dumps(dict(facts, step=step)) + "\\n")
    sys.stdout.flush()
def told(error):
    return type(error).__name__ + ": " + str(error)
def cudnn():
    # Asked of the library that the framework has loaded; one that it did not load says nothing about it.
    import ctypes
    for name in ("libcudnn.so.9", "libcudnn.so.8"):
        try:
            return int(ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW).cudnnGetVersion())
        except Exception:
            pass
def compute(devices, multiply, name):
    # Any device or error: a card that fails must not hide what the next one does.
    for number, device in enumerate(devices):
        card = dict(device="cpu" if device is None else "cuda:%d" % number)
        try:
            if device is not None:
                card["name"] = name(device)
            card["sum"] = float(multiply(device))
        except BaseException as error:
            card["error"] = told(error)
        say("compute", **card)
say("start", python=sys.version.split()[0])
"""

# As an ordinary user: root gets in everywhere, those who will work with the environment do not. It says that it changed before it goes on,
# so that what follows is about the environment.
NOBODY = 65534
# Adapters for RDMA read memory that stays in its place, and only root locks any amount of it: the limit is raised, where that is allowed.
# The patterns of the devices are expanded while the process is root's, so that no closed directory hides one; all is imported by then too,
# since root's own Python may be closed to others.
_AS_A_USER = f"""
import ctypes, glob, json, os, resource, sys
try:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (OSError, ValueError):
    pass
devices = [path for pattern in %s for path in sorted(glob.glob(pattern))]
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.chdir("/")
closed = ", ".join(path for path in devices if not os.access(path, os.R_OK | os.W_OK))
sys.stdout.write({MARK!r} + json.dumps(dict(step="user", closed=closed)) + "\\n")
sys.stdout.flush()
if closed:
    sys.exit(1)
"""
_IMPORT = """
from importlib import import_module
try:
    # A directory that may not be read is a namespace to Python, and imports as nothing.
    module = import_module(%r)
    if module.__file__ is None:
        raise ImportError("its directory cannot be read")
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
say("import", version=str(getattr(module, "__version__", "")))
"""

# 256 ones by 256 ones, summed: exactly 2**24, in every precision that a card multiplies with.
SUM = float(256**3)

# The facts of each step; the sum of a broken card may be no number of JSON, and then is the word for it.
_FACTS: Dict[str, Dict[str, Union[type, Tuple[type, ...]]]] = {
    "user": {},
    "start": {},
    "import": {"version": str},
    "cuda": {"available": bool, "count": int},
    "compute": {"device": str, "sum": (float, int, str)},
    "kernel": {"said": str},
    "end": {},
}
_LONGEST_STEP = 100_000


class Step(TypedDict, total=False):
    """What the program says of one step (``step``: a key of :data:`_FACTS`)."""

    step: str
    version: str
    cuda: Optional[str]
    cudnn: Optional[int]
    available: bool
    count: int
    device: str
    sum: Union[float, str]
    name: str
    said: str
    error: str


# What has the loader take other libraries than a program's own (ld.so(8)).
_LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT")
_LIBRARY = re.compile(r"(/[^\s:'\"]+\.so[.0-9]*)")
_ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"}


#: Where an ordinary look sees nothing of it, it has to be out of the way before a plan builds it.
ANEW = "move the environment away and run gpuwright up, which builds it anew"


# Why an interpreter is not started, and what a person does.
_NOT_STARTED: Dict[Optional[int], Tuple[str, str, str]] = {
    errno.ENOENT: ("is not there", "install", "gpuwright up builds the environment"),
    errno.EACCES: (
        "may not be executed by this user",
        "configure",
        "check the modes of the file and of the directories above it, and whether its file system is mounted noexec",
    ),
    errno.ENOEXEC: (
        "is no program that this machine can execute",
        "install",
        ANEW,
    ),
    None: ("does not start", "install", ANEW),
}


# What a framework says when it finds no card, and what that means. The first match decides.
_CUDA_TROUBLES: Tuple[Tuple[str, str, str, str], ...] = (
    (
        r"SUBLIBRARY_(VERSION_MISMATCH|LOADING_FAILED)",
        "cuDNN loads parts of another cuDNN: its own package lacks one, and the system's stands in for it",
        "configure",
        "remove the system's cuDNN of another CUDA (libcudnn9-cuda-12 beside CUDA 13), or ask for another release (pytorch issue 188892)",
    ),
    (
        r"driver.*too old|driver version is insufficient|CUDA driver version",
        "the framework's CUDA is newer than the driver supports",
        "install",
        "install a newer driver, or the framework built for an older CUDA (gpuwright plan names both)",
    ),
    (
        r"no NVIDIA driver|Could not find cuda drivers|libcuda\.so\S* .*(cannot open|not found)|cuInit: UNKNOWN ERROR \(303\)",
        "the framework finds no NVIDIA driver",
        "install",
        "see the checks driver.* and smi.*, which name the cause",
    ),
    (
        r"no NVIDIA GPU|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available|cuInit answered (error )?100\b",
        "the driver finds no NVIDIA GPU",
        "check_hardware",
        "compare with the checks gpu.*; a machine without a card needs the framework's build for the processor, where there is one",
    ),
    (
        r"Cannot dlopen some GPU|cannot open shared object file|Unable to load cu|not found.*lib(cudnn|cublas|cudart)|DynamicLibNotFound",
        "a CUDA library of the framework's own is missing in its environment",
        "install",
        ANEW,
    ),
    (
        r"error 802|SYSTEM_NOT_READY|system not yet initialized",
        "the NVSwitch fabric is not ready",
        "restart_service",
        "start nvidia-fabricmanager of exactly the driver's version",
    ),
    (
        r"error 803|mismatch",
        "libcuda and the loaded kernel module have different versions",
        "reboot",
        "reboot the host",
    ),
    (r"out of memory", "the card's memory is full", "restart_app", "end what uses the card, then prove again"),
    (
        r"no kernel image is available|NO_BINARY_FOR_GPU|INVALID_PTX|UNSUPPORTED_PTX|does not support target",
        "the framework was built without code for this card",
        "install",
        "install a build of the framework that supports the card's compute capability (gpuwright plan names one)",
    ),
)


def of_others(python: str, owners: Sequence[int] = (0,)) -> Optional[Check]:
    """What stands for the proof of an environment that others than the owners may change: nothing of it is run. Else None."""
    prefix = os.path.dirname(os.path.dirname(python))
    is_environment = os.path.exists(os.path.join(prefix, "pyvenv.cfg"))
    found = ownership.offence_below(prefix, owners) if is_environment else ownership.offence(python, owners)
    if found is None:
        return None
    return checks.incomplete(
        "framework.import",
        f"{'root does not run' if tuple(owners) == (0,) else 'nothing is run of'} what another may change: {found.text}",
        action="configure",
        remedy=f"move {prefix} away, since whoever owned it may still have its files open, and run gpuwright up, which builds it anew; "
        "where a directory above it is a user's, name one of root's in frameworks_path",
    )


def judge_files(path: str, damage: Sequence[str]) -> Check:
    """Whether what pip installed in an environment is there; ``damage`` says what is not, in parts of a sentence.

    The check names the environment in its ``evidence``: from there the next plan knows what is to be built anew.
    """
    rest: checks.Rest = {"measured": len(damage), "expected": 0, "unit": "files", "evidence": path}
    if not damage:
        return checks.passed("framework.files", reason=path, **rest)
    reason = f"{path} is damaged: {', '.join(damage)}"
    remedy = "run gpuwright up, which builds it anew"
    return checks.failed("framework.files", reason=reason, action="install", remedy=remedy, **rest)


def program(name: str) -> str:
    """What the interpreter of a framework's environment runs to prove it."""
    return HEAD + ABOUT[name].program


def _environment(name: str) -> Dict[str, str]:
    return {**_ENVIRONMENT, **ABOUT[name].environment}


def ask(python: str, name: str, timeout: float, runner: Any = run.run, without: Sequence[str] = ()) -> Any:
    """Run the framework's program in its environment: isolated (-I), leaving no compiled files there (-B). ``without``: variables that do
    not count.
    """
    env = {**_environment(name), **dict.fromkeys(without, "")}
    return runner([python, "-I", "-B", "-c", program(name)], timeout=timeout, env=env)


def loader_variables() -> List[str]:
    """The variables that are set here and have programs load other libraries than their own."""
    return [name for name in _LOADER if os.environ.get(name)]


def is_sound(found: Sequence[Check]) -> bool:
    """Whether nothing of what was judged is wrong, or unknown."""
    return not any(check["status"] in ("fail", "incomplete") for check in found)


def of_loader(found: Sequence[Check], names: Sequence[str]) -> List[Check]:
    """The checks of a framework that works without these variables and not with them: they are the cause, and no build mends it."""
    told = " and ".join(f"{name}={os.environ[name]}" for name in names)
    return [_of_loader(check, told, names) if check["status"] in ("fail", "incomplete") else check for check in found]


def _of_loader(check: Check, told: str, names: Sequence[str]) -> Check:
    evidence = str(check["evidence"] or check["reason"])
    library = next((each for each in _LIBRARY.findall(evidence) if _is_of(each, names)), None)
    what = f", which has {library}" if library else ""
    return checks.failed(
        check["id"],
        gpu=check["gpu"],
        reason=f"{check['reason']} with {told}{what}, and it works without",
        evidence=evidence,
        action="configure",
        remedy=f"unset {' '.join(names)}, or take out of it what is not the driver's; look in ~/.bashrc, /etc/environment and the modules "
        "that set it; then prove again",
    )


def _is_of(library: str, names: Sequence[str]) -> bool:
    """Whether a file is one that variables have loaded: itself, or in a directory that they name."""
    places = [place for name in names for place in re.split("[: ]", os.environ[name]) if place]
    return library in places or os.path.dirname(library) in [place.rstrip("/") for place in places]


def as_a_user(argv: Sequence[str], devices: Sequence[str] = (), without: Sequence[str] = ()) -> List[str]:
    """The command line of a program that root starts and an ordinary user is (run.bound). It is not begun where that user may not open what
    there is of ``devices``, patterns of paths.
    """
    return run.bound(argv, without, _AS_A_USER % json.dumps(list(devices)))


def ask_as_user(python: str, name: str, timeout: float, runner: Any = run.run) -> Any:
    """Import the framework in its environment as an ordinary user (nobody's number); only root may ask so."""
    words = as_a_user([python, "-I", "-B", "-c", HEAD + _IMPORT % ABOUT[name].module])
    # A user's home and scratch directory are not root's.
    return runner(words, timeout=timeout, env={**_environment(name), "HOME": "/nonexistent", "TMPDIR": "/tmp"})  # noqa: S108


def judge_user(name: str, python: str, answer: Any) -> Check:
    """``framework.user`` of one run of :func:`ask_as_user`."""
    framework, steps = ABOUT[name], {step["step"]: step for step in steps_of(answer.out)}
    if "user" not in steps:
        return checks.skipped(
            "framework.user", "this process may not become another user", evidence=answer.error or answer.err
        )
    if "start" not in steps:
        return _shut(f"an ordinary user cannot run {python}", answer.error or answer.err[-1500:])
    imported = steps.get("import")
    if imported is None:
        return _broken_off(framework, answer, "framework.user")
    if "error" in imported:
        return _shut(f"an ordinary user cannot import {framework.title}", str(imported["error"]))
    return checks.passed("framework.user", reason=f"an ordinary user can import {framework.title}")


def _shut(reason: str, evidence: str) -> Check:
    return checks.failed(
        "framework.user",
        reason=reason,
        evidence=evidence,
        action="configure",
        remedy="open the directories on the way to it for all (chmod o+rx)",
    )


def versions_of(text: str) -> Dict[str, str]:
    """What a framework said of itself: ``version``, and ``cuda`` and ``cudnn`` where it runs with them."""
    found: Dict[str, str] = {}
    for step in steps_of(text):
        if step["step"] in ("import", "cuda"):
            told = {"version": step.get("version"), "cuda": step.get("cuda")}
            found.update({key: str(value) for key, value in told.items() if value})
        cudnn = step.get("cudnn")
        if isinstance(cudnn, int) and cudnn > 0:
            found["cudnn"] = cudnn_text(cudnn)
    return found


def cudnn_text(number: int) -> str:
    """The version that cuDNN's number means: 91002 is 9.10.2; before version 9 the major number had three digits after it."""
    major, rest = divmod(number, 10000) if number >= 10000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def steps_of(text: str) -> List[Step]:
    """The steps that were told, in their order, whatever else was printed; one that is cut off or lacks a fact was not told."""
    return [cast("Step", step) for step in told_in(text) if _whole(step)]


def told_in(text: str) -> Iterator[Mapping[str, object]]:
    """The objects behind the mark, in their order; what is none is passed over."""
    for line in text.splitlines():
        if line.startswith(MARK) and len(line) < _LONGEST_STEP:
            try:
                step = json.loads(line[len(MARK) :], parse_constant=str)
            except (ValueError, RecursionError):
                continue
            if isinstance(step, dict):
                yield step


def _whole(step: Mapping[str, object]) -> bool:
    """Whether a step has the facts that are read of it, each of its kind."""
    name = step.get("step")
    if name in ("import", "compute", "kernel") and isinstance(step.get("error"), str):
        return name != "compute" or isinstance(step.get("device"), str)
    facts = _FACTS.get(name) if isinstance(name, str) else None
    return facts is not None and all(isinstance(step.get(key), kind) for key, kind in facts.items())


def judge(
    name: str,
    python: str,
    answer: Any,
    expected_version: Optional[str] = None,
    expect_cuda: bool = True,
    expected_gpus: Optional[int] = None,
) -> List[Check]:
    """``framework.import``, ``framework.version``, ``framework.cuda`` and ``framework.compute`` of one run of :func:`ask`."""
    framework = ABOUT[name]
    steps = {step["step"]: step for step in steps_of(answer.out)}
    imported = steps.get("import")
    if imported is None or "error" in imported:
        return [_not_imported(framework, python, answer, steps)]
    result = [checks.passed("framework.import", measured=imported["version"], reason=f"{framework.title} was imported")]
    result.append(_judge_version(framework, str(imported["version"]), expected_version))
    result.append(_judge_cuda(framework, imported, steps.get("cuda"), expect_cuda, expected_gpus, answer))
    computed = [step for step in steps_of(answer.out) if step["step"] == "compute"]
    result += [_judge_compute(framework, step, expect_cuda) for step in computed]
    wanted = max(steps["cuda"]["count"], 1) if "cuda" in steps else 1
    if "end" not in steps:
        result.append(_broken_off(framework, answer, "framework.compute"))
    elif len(computed) < wanted:
        reason = f"{framework.title} told a result of {words.count(len(computed), 'devices')}, where {wanted} were to compute"
        result.append(checks.incomplete("framework.compute", reason, remedy="prove again"))
    return result


def _not_imported(framework: About, python: str, answer: Any, steps: Mapping[str, Step]) -> Check:
    """The interpreter is missing (nothing was tried), or the import failed, crashed or hung."""
    if "import" in steps:
        error = str(steps["import"]["error"])
        missing = "ModuleNotFoundError" in error and "'{}'".format(framework.module.split(".", 1)[0]) in error
        return checks.failed(
            "framework.import",
            # The planner reads here which environment it is that has to be built anew (components/frameworks).
            expected=os.path.dirname(os.path.dirname(python)),
            reason=f"{framework.title} is not in the environment" if missing else "importing it failed",
            evidence=error,
            action="install",
            remedy="gpuwright up builds the environment anew",
        )
    if "start" not in steps:
        why, action, remedy = _NOT_STARTED.get(answer.errno, _NOT_STARTED[None])
        return checks.incomplete(
            "framework.import",
            f"the environment's interpreter {python} {why}",
            evidence=answer.error or answer.err or f"exit status {answer.rc}",
            action=action,
            remedy=remedy,
        )
    return _broken_off(framework, answer, "framework.import")


def _broken_off(framework: About, answer: Any, check_id: str) -> Check:
    signal = 0 if answer.rc is None else -answer.rc if answer.rc < 0 else answer.rc - 128
    told = answer.error or (
        f"the process was killed by signal {signal}"
        if 0 < signal <= 64
        else f"the process ended with status {answer.rc}"
    )
    return checks.failed(
        check_id,
        reason=f"{framework.title} broke off: {told}",
        evidence=answer.err[-1500:] or answer.out[-500:],
        action="reboot",
        remedy="read the kernel log for Xid messages and for the out-of-memory killer, then prove again",
    )


def _judge_version(framework: About, found: str, wanted: Optional[str]) -> Check:
    """A wish without a build tag (``2.7.1``) does not look at the tag (``2.7.1+cu128``)."""
    if not wanted:
        return checks.passed("framework.version", measured=found, reason="no version was expected")
    ok = found == wanted or ("+" not in wanted and found.split("+", 1)[0] == wanted)
    return checks.judged(
        "framework.version",
        ok,
        measured=found,
        expected=wanted,
        action="install",
        reason=None if ok else f"{framework.title} {found} is installed where {wanted} is wanted",
        remedy=ANEW,
    )


def _judge_cuda(
    framework: About,
    imported: Step,
    told: Optional[Step],
    expect_cuda: bool,
    expected_gpus: Optional[int],
    answer: Any,
) -> Check:
    if not expect_cuda:
        return checks.skipped("framework.cuda", "the framework runs on the processor here")
    if told is None:
        return _broken_off(framework, answer, "framework.cuda")
    built = imported.get("cuda")
    rest: checks.Rest = {"measured": told["count"], "expected": expected_gpus, "unit": "cards"}
    if not built:
        return checks.failed(
            "framework.cuda",
            reason=f"this build of {framework.title} is for the processor only",
            evidence=imported["version"],
            action="install",
            remedy=ANEW,
            **rest,
        )
    if not told["available"]:
        # Some go on without cards and tell the reason only in what they print.
        evidence = told.get("error") or answer.err[-1500:] or None
        cause, action, remedy = cuda_trouble(str(evidence or ""))
        return checks.failed("framework.cuda", reason=cause, evidence=evidence, action=action, remedy=remedy, **rest)
    if expected_gpus is not None and told["count"] != expected_gpus:
        surplus = told["count"] > expected_gpus  # a card more than expected works; gpu.count warns of it too
        return checks.failed(
            "framework.cuda",
            "warning" if surplus else "critical",
            reason="{} sees {} cards".format(framework.title, told["count"]),
            action="reboot",
            remedy="compare with nvidia-smi -L and with the checks cuda.*",
            **rest,
        )
    found = versions_of(answer.out)
    cudnn = f", cuDNN {found['cudnn']}" if "cudnn" in found else ""
    return checks.passed("framework.cuda", reason=f"built for CUDA {found.get('cuda', built)}{cudnn}", **rest)


def cuda_trouble(text: str) -> Tuple[str, str, str]:
    """Cause, action and remedy of what a framework says of CUDA."""
    for pattern, cause, action, remedy in _CUDA_TROUBLES:
        if re.search(pattern, text, re.IGNORECASE):
            return cause, action, remedy
    return (
        "the framework cannot use CUDA",
        "reboot",
        "look at the checks cuda.*, which try the driver without the framework",
    )


def _judge_compute(framework: About, step: Step, expect_cuda: bool) -> Check:
    device = str(step["device"])
    gpu = None if device == "cpu" else device
    if device == "cpu" and expect_cuda:
        return checks.incomplete(
            "framework.compute", "no card could be used", evidence=step.get("error"), remedy="see framework.cuda"
        )
    if "error" in step:
        cause, action, remedy = cuda_trouble(str(step["error"]))
        return checks.failed(
            "framework.compute", gpu=gpu, reason=cause, evidence=step["error"], action=action, remedy=remedy
        )
    ok = step["sum"] == SUM
    return checks.judged(
        "framework.compute",
        ok,
        "critical" if ok else "fatal",
        gpu=gpu,
        measured=step["sum"],
        expected=SUM,
        reason="{} is right on {}".format(framework.computes, step.get("name") or "the processor")
        if ok
        else f"{framework.computes} is wrong",
        action="check_hardware",
        remedy="prove again; if it stays wrong, take the card out of use",
    )
