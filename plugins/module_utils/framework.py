# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove a deep-learning framework in its own environment: import it, find the cards, compute on them.

The environment's interpreter runs a small program that tells each step as a line of JSON behind a mark, since frameworks
print what they like. An import that hangs, crashes or runs out of memory is seen by what was told before it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils import checks, run

MARK = "gpuwright-framework: "

_HEAD = f"""
import json, sys
def say(step, **facts):
    sys.stdout.write("\\n" + {MARK!r} + json.dumps(dict(facts, step=step)) + "\\n")
    sys.stdout.flush()
say("start", python=sys.version.split()[0])
"""

# 256 ones by 256 ones, summed: exactly 2**24, in every precision that a card multiplies with.
_PYTORCH = """
try:
    import torch
except BaseException as error:
    say("import", error=type(error).__name__ + ": " + str(error))
    sys.exit(0)
say("import", version=torch.__version__, cuda=torch.version.cuda)
def compute(device):
    ones = torch.ones((256, 256), device=device)
    return float((ones @ ones).sum().item())
available = torch.cuda.is_available()
facts = {"available": available, "count": torch.cuda.device_count() if available else 0}
if not available and torch.version.cuda:
    try:
        torch.cuda.init()
    except BaseException as error:
        facts["error"] = str(error)
say("cuda", **facts)
for index in range(facts["count"]) if facts["count"] else ["cpu"]:
    device = index if index == "cpu" else "cuda:%d" % index
    told = {"device": device}
    try:
        if device != "cpu":
            told["name"] = torch.cuda.get_device_name(index)
        told["sum"] = compute(device)
    except BaseException as error:
        told["error"] = type(error).__name__ + ": " + str(error)
    say("compute", **told)
say("end")
"""

SUM = float(256**3)


class Framework(NamedTuple):
    """How a framework is called by people and in Python, and the program that proves it."""

    title: str
    package: str
    program: str


FRAMEWORKS = {"pytorch": Framework("PyTorch", "torch", _HEAD + _PYTORCH)}

# What a framework says when it finds no card, and what that means. The first match decides.
_CUDA_TROUBLES: Tuple[Tuple[str, str, str, str], ...] = (
    (
        r"driver.*too old|driver version is insufficient|CUDA driver version",
        "the framework's CUDA is newer than the driver supports",
        "install",
        "install a newer driver, or the framework built for an older CUDA (gpuwright plan names both)",
    ),
    (
        r"no NVIDIA driver",
        "the framework finds no NVIDIA driver",
        "install",
        "install and load the driver: gpuwright up",
    ),
    (
        r"802|system not yet initialized",
        "the NVSwitch fabric is not ready",
        "restart_service",
        "start nvidia-fabricmanager of exactly the driver's version",
    ),
    (r"803|mismatch", "libcuda and the loaded kernel module have different versions", "reboot", "reboot the host"),
    (r"out of memory", "the card's memory is full", "restart_app", "end what uses the card, then prove again"),
    (
        r"no kernel image is available",
        "the framework was built without code for this card",
        "install",
        "install a build of the framework that supports the card's compute capability (gpuwright plan names one)",
    ),
)


def ask(python: str, name: str, timeout: float, runner: Any = run.run) -> Any:
    """Run the framework's program in its environment: isolated (-I), leaving no compiled files there (-B)."""
    extra = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"}
    return runner([python, "-I", "-B", "-c", FRAMEWORKS[name].program], timeout=timeout, env=extra)


def steps_of(text: str) -> List[Dict[str, Any]]:
    """The steps that were told, in their order, whatever else was printed."""
    steps = []
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                steps.append(json.loads(line[len(MARK) :]))
            except ValueError:
                continue
    return steps


def judge(
    name: str,
    python: str,
    answer: Any,
    expected_version: Optional[str] = None,
    expect_cuda: bool = True,
    expected_gpus: Optional[int] = None,
) -> List[checks.Check]:
    """``framework.import``, ``framework.version``, ``framework.cuda`` and ``framework.compute`` of one run of :func:`ask`."""
    framework = FRAMEWORKS[name]
    steps = {step["step"]: step for step in steps_of(answer.out)}
    imported = steps.get("import")
    if imported is None or "error" in imported:
        return [_not_imported(framework, python, answer, steps)]
    result = [checks.passed("framework.import", measured=imported["version"], reason=f"{framework.title} was imported")]
    result.append(_judge_version(framework, str(imported["version"]), expected_version))
    result.append(_judge_cuda(framework, imported, steps.get("cuda"), expect_cuda, expected_gpus, answer))
    computed = [step for step in steps_of(answer.out) if step["step"] == "compute"]
    result += [_judge_compute(step, expect_cuda) for step in computed]
    if "end" not in steps:
        result.append(_broken_off(framework, answer, "framework.compute"))
    return result


def _not_imported(framework: Framework, python: str, answer: Any, steps: Dict[str, Any]) -> checks.Check:
    """The interpreter is missing (nothing was tried), or the import failed, crashed or hung."""
    if "import" in steps:
        error = str(steps["import"]["error"])
        missing = "ModuleNotFoundError" in error and f"'{framework.package}'" in error
        return checks.failed(
            "framework.import",
            reason=f"{framework.title} is not in the environment" if missing else "importing it failed",
            evidence=error,
            action="install",
            remedy="gpuwright up builds the environment anew",
        )
    if "start" not in steps:
        return checks.incomplete(
            "framework.import",
            f"the environment's interpreter {python} cannot be run",
            evidence=answer.error or answer.err,
            action="install",
            remedy="gpuwright up builds the environment",
        )
    return _broken_off(framework, answer, "framework.import")


def _broken_off(framework: Framework, answer: Any, check_id: str) -> checks.Check:
    killed = answer.rc is not None and (answer.rc < 0 or answer.rc > 128)
    told = answer.error or (
        f"the process was killed (status {answer.rc})" if killed else f"the process ended with status {answer.rc}"
    )
    return checks.failed(
        check_id,
        reason=f"{framework.title} broke off: {told}",
        evidence=answer.err[-1500:] or answer.out[-500:],
        action="reboot",
        remedy="read the kernel log for Xid messages and for the out-of-memory killer, then prove again",
    )


def _judge_version(framework: Framework, found: str, wanted: Optional[str]) -> checks.Check:
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
        remedy="gpuwright up installs the wanted version",
    )


def _judge_cuda(
    framework: Framework,
    imported: Dict[str, Any],
    told: Optional[Dict[str, Any]],
    expect_cuda: bool,
    expected_gpus: Optional[int],
    answer: Any,
) -> checks.Check:
    if not expect_cuda:
        return checks.skipped("framework.cuda", "the framework runs on the processor here")
    if told is None:
        return _broken_off(framework, answer, "framework.cuda")
    built = imported.get("cuda")
    rest: Dict[str, Any] = {"measured": told["count"], "expected": expected_gpus, "unit": "cards"}
    if not built:
        return checks.failed(
            "framework.cuda",
            reason=f"this build of {framework.title} is for the processor only",
            evidence=imported["version"],
            action="install",
            remedy="gpuwright up installs the build for CUDA",
            **rest,
        )
    if not told["available"]:
        cause, action, remedy = _cuda_trouble(str(told.get("error") or ""))
        return checks.failed(
            "framework.cuda", reason=cause, evidence=told.get("error"), action=action, remedy=remedy, **rest
        )
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
    return checks.passed("framework.cuda", reason=f"built for CUDA {built}", **rest)


def _cuda_trouble(text: str) -> Tuple[str, str, str]:
    for pattern, cause, action, remedy in _CUDA_TROUBLES:
        if re.search(pattern, text, re.IGNORECASE):
            return cause, action, remedy
    return (
        "the framework cannot use CUDA",
        "reboot",
        "look at the checks cuda.*, which try the driver without the framework",
    )


def _judge_compute(step: Dict[str, Any], expect_cuda: bool) -> checks.Check:
    device = str(step["device"])
    gpu = None if device == "cpu" else device
    if device == "cpu" and expect_cuda:
        return checks.incomplete("framework.compute", "no card could be used", remedy="see framework.cuda")
    if "error" in step:
        cause, action, remedy = _cuda_trouble(str(step["error"]))
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
        reason="a product of matrices is right on {}".format(step.get("name") or "the processor")
        if ok
        else "a product of matrices is wrong",
        action="check_hardware",
        remedy="prove again; if it stays wrong, take the card out of use",
    )
