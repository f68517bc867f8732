# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps, in the order of their worth: what is lost when the time is over is worth least."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import reading
from .running import Finding, Ran, Read, Step

ROOT = Path(__file__).resolve().parents[2]

#: What is kept of the machine, for whoever reads the rest.
_MACHINE = """
uname -a; cat /etc/os-release; id; "$1" --version; nproc; free -m; df -h . /dev/shm
cat /proc/driver/nvidia/version; ls -l /dev/nvidia* /dev/nvidia-caps; lsmod | grep -i nvidia; mount | grep -i nvidia
/sbin/ldconfig -p | grep -iE 'libcuda|libnvidia|libcudart|libcublas|libcudnn|libnccl'
for name in nvcc ptxas dcgmi nvidia-ctk docker podman fio ansible-playbook python3 python3.11 python3.12; do command -v "$name"; done
"$1" -m pip list; env | grep -iE '^(cuda|nvidia|ld_|pytorch|nccl)'
true
"""
#: A model small enough for every card, as `size` and as PyTorch takes it.
SHAPE = "layers=8,hidden=2048,heads=16,kv-heads=16,intermediate=5632,vocab=32000"
_CONTEXT = "2048"
_NO_TORCH = "no Python was found here that has PyTorch"
#: Where a toolkit has ptxas, and a question to a Python with PyTorch, which has one beside it.
_PTXAS = "/usr/local/cuda/bin/ptxas"
_OF_TRITON = "import triton, os; print(os.path.dirname(triton.__file__) + '/backends/nvidia/bin/ptxas')"


class Answers:
    """What earlier steps printed, by their names."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    def of(self, name: str) -> dict[str, Any]:
        """The JSON object of a step; empty where it has none."""
        folder = self._folders.get(name)
        if folder is None or not (folder / "stdout").is_file():
            return {}
        text = (folder / "stdout").read_text(errors="replace")
        return Ran([], 0, 0, text, "").document() or {}


def module(name: str, limit: float, /, lacks: str = "", skipped: str = "", **options: Any) -> Step:
    """A module of the collection, run as it is, without Ansible."""
    argv = [sys.executable, "-m", "tools.card.asked", name, json.dumps(options)]
    return Step(f"module-{name}", limit, argv, reading.checks, lacks, skipped)


def tool(name: str, seconds: float, read: Read, *words: str, lacks: str = "", skipped: str = "") -> Step:
    """A program of this package, `name` being the step's and the first word the program's."""
    return Step(name, seconds, [sys.executable, "-m", f"tools.card.{words[0]}", *words[1:]], read, lacks, skipped)


def gpuwright(name: str, seconds: float, read: Read, *words: str, lacks: str = "") -> Step:
    """A command of ours, as JSON."""
    return Step(name, seconds, [sys.executable, "-m", "gpuwright", *words, "--json"], read, lacks)


def steps(answers: Answers, out: Path) -> Iterator[Step]:
    """Each step after the one before: what it is asked may follow from what that one answered."""
    yield Step("machine", 20, ["sh", "-c", _MACHINE, "sh", sys.executable], reading.nothing)
    yield Step("smi-document", 30, ["nvidia-smi", "-q", "-x"], _shapes)
    yield module("nvidia_smi", 45, timeout=40, executable=_smi())
    yield tool("driver", 45, reading.driver, "real_driver")
    yield module("gpu_compute", 45, timeout=40)
    yield tool("smi-questions", 60, reading.questions, "smi_asked")
    for name, words in (("table", ()), ("list", ("-L",)), ("links", ("nvlink", "-s")), ("version", ("--version",))):
        yield Step(f"smi-{name}", 15, ["nvidia-smi", *words], reading.printed)
    yield module("gpu_load", 90, seconds=20, interval=2, executable=_smi())
    yield from _toolkit(answers)
    yield from _of_pytorch(answers)
    yield module("card_sample", 25)
    yield module("node_facts", 40)
    yield module("kernel_log", 20)
    yield from _dcgm()
    lacks = _without("ansible", "ansible_runner", "yaml", "jinja2", "rich", "packaging")
    yield gpuwright("doctor", 100, reading.command, "doctor", lacks=lacks)
    yield gpuwright("plan", 100, reading.command, "plan", lacks=lacks)
    # The disk and containers take minutes of their own and meet no card.
    less = ("-e", "validate_storage=false", "-e", "validate_containers=false")
    report = ("--report", str(out / "validate-report"))
    yield gpuwright("validate", 300, reading.command, "validate", "--profile", "standard", *less, *report, lacks=lacks)


def _toolkit(answers: Answers) -> Iterator[Step]:
    """What compiles."""
    capability = answers.of("driver").get("capability")
    unknown = "" if capability else "the card's compute capability is not known"
    ptxas = _ptxas()
    skipped = "" if ptxas else "no ptxas is here; the driver itself compiles the programs in the step `driver`"
    yield tool("assembled", 60, reading.assembled, "assembled", ptxas, str(capability), lacks=unknown, skipped=skipped)
    nvcc = shutil.which("nvcc") or ""
    skipped = "" if nvcc else "no nvcc is here"
    yield module("toolkit_check", 60, unknown, skipped, nvcc=nvcc, capabilities=[capability], timeout=55)


def _of_pytorch(answers: Answers) -> Iterator[Step]:
    """What takes a Python with PyTorch, and what is held against that."""
    python = torch_python()
    lacks = "" if python else _NO_TORCH
    by_hand = [python or "python3", str(ROOT / "tools/card/by_hand.py")]
    yield module("framework_check", 60, lacks, python=python, timeout=55)
    options: dict[str, Any] = {
        "python": python,
        "what": ["tflops", "bandwidth", "host_device"],
        "seconds": 5,
        "startup": 60,
        "executable": _smi(),
    }
    yield module("framework_load", 90, lacks, **options)
    load = answers.of("module-framework_load")
    precisions = list(dict.fromkeys(name for device in load.get("devices") or [] for name in device["tflops"]))
    read = functools.partial(reading.beside, load)
    yield Step("product-by-hand", 60, [*by_hand, "product", *(precisions or ["fp32", "bf16"])], read, lacks)
    asked = (SHAPE, "--here", "--train", "--precision", "bf16", "--batch", "1", "--context", _CONTEXT)
    yield gpuwright("size", 30, _sized, "size", *asked)
    read = functools.partial(reading.memory, answers.of("size"))
    plain = SHAPE.replace("kv-heads=16,", "")
    yield Step("training-by-hand", 60, [*by_hand, "training", plain, _CONTEXT], read, lacks)


def _dcgm() -> Iterator[Step]:
    dcgmi = shutil.which("dcgmi")
    skipped = "" if dcgmi else "DCGM is not here"
    yield Step("dcgm-list", 20, [dcgmi or "dcgmi", "discovery", "-l"], reading.printed, skipped=skipped)
    yield module("dcgm_diag", 90, skipped=skipped, level=1, timeout=80)


def _smi() -> str:
    """nvidia-smi by its path: root's programs are looked for in the system's directories alone, and a container may have it elsewhere."""
    return shutil.which("nvidia-smi") or "nvidia-smi"


def _shapes(ran: Ran) -> list[Finding]:
    """Imported here: what it needs may be missing, and the other steps go on."""
    if ran.rc:
        return reading.printed(ran)
    from . import shapes  # noqa: PLC0415 - see above

    return shapes.compare(ran.out)


def _sized(ran: Ran) -> list[Finding]:
    """Of `size --here`: that it knows the cards that are here."""
    answer, found = reading.answered(ran)
    for name, host in (answer.get("hosts") or {}).items():
        if host["problem"] or not host["answers"]:
            found.append(Finding("incomplete", f"{name}: {host['problem'] or 'the tables do not know its cards'}"))
    return found or ([] if answer.get("hosts") else [Finding("failed", f"it ended with {ran.rc}: {ran.out[:300]}")])


def _without(*names: str) -> str:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return f"this Python has no {', '.join(missing)}" if missing else ""


def _ptxas() -> str:
    """A ptxas of a toolkit, or of the wheels beside PyTorch; empty where there is none."""
    python = torch_python()
    beside = _said(python, _OF_TRITON) if python else None
    return next(filter(None, map(shutil.which, ("ptxas", _PTXAS, beside or "ptxas"))), "")


@functools.cache
def torch_python() -> str | None:
    """The first Python here that has PyTorch; None where there is none."""
    names = (
        sys.executable,
        "python3.12",
        "python3.11",
        "python3",
        "python",
        "/opt/conda/bin/python",
        "/opt/venv/bin/python",
    )
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for path in dict.fromkeys(filter(None, map(shutil.which, names))):
        if _said(path, question) is not None:
            return path
    return None


@functools.cache
def _said(python: str, question: str) -> str | None:
    """What a Python prints; None where it fails."""
    try:
        ran = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None
