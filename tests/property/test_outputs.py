"""What programs and files of a node can say: real shapes, broken at random. No parser may stumble over it, and none may take a second.

The same broken outputs in each run; with `GPUWRIGHT_FUZZ_SECONDS=600` new ones for that long, of the sample outputs too where they are
at hand. A failure names its seed; `GPUWRIGHT_FUZZ_SEED` begins with it again.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import secrets
import string
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import (
    checks,
    openpgp,
    redact,
    run,
    simulated,
)
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import containers as containers_measured
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    dcgm_diag_judge,
    disk_class,
    fabric_host,
    fabric_load,
    fio_json,
    framework,
    framework_load,
    framework_load_judge,
    hardware_errors,
    kernel_faults,
    kernel_log,
    load_watch,
    module_load,
    smi_judge,
    smi_messages,
    toolkit,
)
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    bootloader,
    cdi,
    container_images,
    containers,
    cuda,
    dkms,
    driver,
    firewall,
    kernel,
    module_file,
    monitoring_server,
    packages,
    rpm,
    services,
    system,
)
from ansible_collections.gpuwright.node.plugins.module_utils.packages import (
    dnf_question,
    private_apt,
    wheels,
)
from ansible_collections.gpuwright.node.plugins.module_utils.programs import mig_layout
from ansible_collections.gpuwright.node.plugins.module_utils.watch import nvlink
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.quick import quickly

FIXTURES = Path(__file__).resolve().parents[1] / "unit/prove/fixtures"
SAMPLES = Path(__file__).resolve().parents[3] / "shared/samples"
#: Broken outputs for each parser where no time is given.
EXAMPLES = 100
SECONDS = float(os.environ.get("GPUWRIGHT_FUZZ_SECONDS") or 0)
SEED = os.environ.get("GPUWRIGHT_FUZZ_SEED") or (secrets.token_hex(4) if SECONDS else "same")
#: Processor seconds that one output may take, its judgement included.
MOST_SECONDS = 1.0
#: Characters up to which an output is blown up; what prints more is cut off or refused before it is read.
MOST_CHARACTERS = 300_000
#: Blanks in a row that a pattern which tries each of them anew needs many seconds for.
MANY = 20_000

#: What no program means to say.
ODD = (
    *("", "N/A", "[N/A]", "[Unknown Error]", "ERR!", "None", "nan", "-nan", "inf", "1e999", "-1", "0", "1" * 19),
    *(
        "4" * 400,
        "9" * 5000,
        "0x7fffffff",
        "true",
        "null",
        '"',
        "'",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        "</gpu>",
        "<gpu>",
    ),
    *(
        "&amp;",
        "&x;",
        "<!--",
        "]]>",
        "<![CDATA[",
        "<?xml?>",
        "<!DOCTYPE",
        "\x00",
        "\x1b[2J",
        "\ufeff",
        "\u2018",
        "\u2028",
    ),
    *(
        "\u202e",
        "\ud800",
        "é",
        "错误：",
        "\t",
        "\r",
        "\n",
        "\n\n",
        "  ",
        ":",
        ";",
        "=",
        ",",
        "%s",
        "{0}",
        "../../etc/shadow",
        # Deeper than a reader that calls itself for each value goes.
        "[" * 5000,
        '{"a":' * 5000,
    ),
    *(
        "Xid",
        "got signal=9",
        "error",
        "option",
        "-----BEGIN PGP",
        "Fatal",
        "NVRM: Xid (PCI:",
        "Package: ",
        "menuentry '",
    ),
)
RULES = load_rules()
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NAMES = b".modinfo\x00version=580.95.05\x00"
_MODULE_FILE = (
    b"\x7fELF\x02\x01".ljust(40, b"\x00")
    + struct.pack("<Q", 64)
    + bytes(10)
    + struct.pack("<HHH", _SECTION.size, 1, 0)
    + _SECTION.pack(0, 0, 0, 0, 64 + _SECTION.size, len(_NAMES), 0, 0, 0, 0)
    + _NAMES
).decode("latin-1")


class Parser(NamedTuple):
    """What is called with a broken output, what it says of one that is none, and the folders of sample outputs."""

    read: Callable[[str], Any]
    refusals: tuple[type[Exception], ...] = ()
    samples: tuple[str, ...] = ()


def _smi(text: str) -> Any:
    data, answered = smi_messages.read_answer(0, text)
    return [answered, *(smi_judge.judge(data, {}) if data else [])]


def _fio(text: str) -> Any:
    document = fio_json.parse(text, text[-200:])
    return [fio_json.judge(part, document, "nvme4", 3) for part in ("seqread", "randread", "seqwrite")]


def _dcgm(text: str) -> Any:
    question = dcgm_diag_judge.Question(2, (), 1)
    found = dcgm_diag_judge.judge(question, run.Result(0, text, "", 1.0, None))
    # What became another test or another result is not held against it; what is no document is never a pass.
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        assert checks.verdict(found) == "incomplete"
    return found


def _kernel_log(text: str) -> Any:
    """This boot and an earlier one told the same."""
    lines = text.split("\n")
    told: Any = {**kernel_log.events(lines), **kernel_faults.faults(lines), "lines": 1}
    journal = {"wanted": 2, "kept": True, "boots": [{"boot": -1, **told}], "why": text[:200]}
    hardware: Any = {"devices": [], "devices_unread": None, "memory": [], "memory_unread": None, "uptime": 60.0}
    log: Any = {**told, "whole": True, "since_boot": True, "why": None, "hardware": hardware, "journal": journal}
    return judge_kernel_log.judge(log, RULES)


def _device_counts(text: str) -> Any:
    with tempfile.TemporaryDirectory() as root:
        place = Path(root, "sys/bus/pci/devices/0000:3b:00.0")
        place.mkdir(parents=True)
        for name, content in (
            ("vendor", "0x10de"),
            ("class", "0x030200"),
            ("aer_dev_fatal", text),
            ("max_link_speed", text),
        ):
            (place / name).write_text(content, encoding="utf-8", errors="replace")
        return hardware_errors.read(Host(root=root))


def _toolkit(text: str) -> Any:
    question = toolkit.Question("nvcc", ("9.0",), None, 1, 10)
    return toolkit.judge_kernel(question, run.Result(0, text, "", 1.0, None))


def _containers(text: str) -> Any:
    def answer(*_words: Any, **_rest: Any) -> run.Result:
        return run.Result(0, text, text, 0.1, None)

    question = containers_measured.Question("docker", ["a.b/c:1"], ["gpus"], (), "nvidia-smi", 1)
    return containers_measured.prove(question, answer, lambda _seconds: None)


def _framework(text: str) -> Any:
    answer = run.Result(0, text, text[-500:], 1.0, None)
    return [framework.judge(name, "python", answer, "2.9.0", True, 1) for name in ("pytorch", "jax")]


#: What the programs that load cards tell, a card and several of them in one.
_LOADED = (
    {"step": "start"},
    {"step": "import", "version": "2.9.0+cu128", "cuda": "12.8"},
    {"step": "device", "name": "NVIDIA H100 80GB HBM3", "count": 2},
    {"step": "begin", "part": "tflops"},
    {"step": "tflops", "precision": "bf16", "size": 8192, "seconds": 0.0015, "repeats": 200, "deviation": 0.004},
    {"step": "tflops", "precision": "fp8", "error": "RuntimeError: no"},
    {"step": "done", "part": "tflops"},
    {"step": "begin", "part": "bandwidth"},
    {"step": "bandwidth", "kind": "copy", "bytes": 4294967296, "seconds": 0.0015, "repeats": 90, "right": True},
    {"step": "done", "part": "bandwidth"},
    {"step": "begin", "part": "host_device"},
    {
        "step": "host_device",
        "node": 0,
        "local": True,
        "bytes": 268435456,
        "to_device": 0.005,
        "from_device": 0.005,
        "both": 0.006,
        "right": True,
    },
    {"step": "broken", "part": "host_device", "error": "RuntimeError: CUDA error"},
    {"step": "begin", "part": "peer"},
    {
        "step": "peer",
        "first": 0,
        "second": 1,
        "bytes": 536870912,
        "seconds": 0.0014,
        "repeats": 9,
        "right": True,
        "direct": True,
    },
    {"step": "done", "part": "peer"},
    {"step": "begin", "part": "group"},
    {"step": "group", "ranks": 2, "backend": "nccl", "nccl": [2, 21, 5]},
    {"step": "begin", "part": "collectives"},
    {"step": "collective", "kind": "all_reduce", "bytes": 1073741824, "seconds": 0.004, "repeats": 20, "right": True},
    {"step": "done", "part": "collectives"},
    {"step": "begin", "part": "ddp"},
    {
        "step": "training",
        "ranks": 2,
        "steps": 90,
        "seconds": 0.1,
        "waiting": 0.04,
        "operations": 10000000000000.0,
        "rows": 32,
        "workers": 4,
        "precision": "bf16",
        "finite": True,
        "first": 4.9,
        "last": 1.4,
        "drift": 0.0,
    },
    {"step": "done", "part": "ddp"},
    {"step": "rank", "rank": 1, "status": -9},
    {"step": "end"},
)
_CARD = framework_load.Device("GPU-0", "0", "00000000:1B:00.0", "card", "H100", 0)
_EXPECTED: framework_load_judge.Expected = {
    "bus_id": "00000000:1B:00.0",
    "name": "H100",
    "tflops": {"bf16": 989.4},
    "bandwidth_gbs": 3350.0,
    "nvlink_gbs": 900.0,
    "pcie_gbs": 63.0,
    "floors": [{"what": "bandwidth", "value": 1905.0, "confirmed": True, "source": "dcgm"}],
}


def _framework_load(text: str) -> Any:
    answer = run.Result(1, text, text[-500:], 1.0, None)
    steps, both = framework_load.steps_of(text), [_CARD, _CARD]
    return [
        framework_load.figures_of(_CARD, steps),
        framework_load.pairs_of(both, steps),
        framework_load.collectives_of(steps),
        framework_load_judge.judge_device(_CARD, answer, framework_load.OF_A_CARD, _EXPECTED),
        framework_load_judge.judge_pairs(both, answer, {"00000000:1B:00.0": _EXPECTED}),
        framework_load_judge.judge_all(both, answer, framework_load.OF_ALL, {"00000000:1B:00.0": _EXPECTED}),
    ]


def _modprobe(text: str) -> Any:
    return module_load.judge("nvidia", module_load.Outcome(1, text[:2000], text.split("\n")), 1)


def _build(text: str) -> Any:
    return dkms.failed_build(text, "/var/lib/dkms/nvidia/580.95.05/build/make.log")


def _mounts(text: str) -> Any:
    mounts = disk_class.parse_mountinfo(text)
    return mounts, disk_class.mount_of(mounts, "/mnt/my data/x")


def _apt_sources(text: str) -> Any:
    return packages.parse_one_line(text, "/a.list"), packages.parse_deb822(text, "/a.sources")


def _bytes(read: Callable[[bytes], Any]) -> Callable[[str], Any]:
    """Each character is one byte, so that what was cut up stays what it was."""
    return lambda text: read(text.encode("latin-1", "replace"))


PARSERS: dict[str, Parser] = {
    "nvidia-smi": Parser(_smi, samples=("nvidia-smi-xml", "nvidia-smi-errors")),
    "nvidia-smi -L": Parser(
        lambda text: (mig_layout.parse_list(text), load_watch.parse_instances(text)), samples=("nvidia-smi-L",)
    ),
    "nvidia-smi nvlink -s": Parser(nvlink.parse, samples=("nvidia-smi-nvlink",)),
    "fio": Parser(_fio, (fio_json.FioError,), ("fio-json", "fio-errors", "fio-local")),
    "dcgmi diag": Parser(_dcgm, samples=("dcgmi",)),
    "kernel log": Parser(_kernel_log, samples=("dmesg",)),
    "counts of PCIe errors": Parser(_device_counts),
    "framework": Parser(_framework),
    "framework load": Parser(_framework_load),
    "nvidia-smi -L with instances": Parser(framework_load.instances_of, samples=("nvidia-smi-L",)),
    "list of processors": Parser(framework_load.cpus_of),
    "log of NCCL": Parser(fabric_load.network_of),
    "nccl.conf": Parser(fabric_host.settings_of),
    "configuration space": Parser(_bytes(fabric_host.redirects)),
    "toolkit": Parser(_toolkit),
    "modprobe": Parser(_modprobe),
    "DKMS": Parser(_build),
    "grub.cfg": Parser(bootloader.parse_grub),
    "ufw": Parser(firewall.parse_ufw),
    "firewalld": Parser(firewall.parse_firewalld),
    "grubenv": Parser(bootloader.parse_grubenv),
    "mountinfo": Parser(_mounts),
    "/proc/driver/nvidia/version": Parser(driver.parse_proc_version, samples=("proc-driver-nvidia-version",)),
    "modinfo": Parser(kernel.parse_modinfo),
    "compiler": Parser(kernel.compiler_text),
    "dpkg status": Parser(lambda text: packages.parse_dpkg_status(text, "amd64")),
    "sources of apt": Parser(_apt_sources),
    "apt-cache policy": Parser(private_apt.parse_policy),
    "apt-get -s": Parser(simulated.parse),
    "apt-cache show": Parser(private_apt.installed_sizes),
    "apt-get update": Parser(lambda text: private_apt.problems_of_update(text, {"https://example.org/ubuntu": "ours"})),
    "rpm -qa": Parser(lambda text: (rpm.parse_rpm(text), rpm.duplicates(text))),
    "sources of dnf": Parser(lambda text: rpm.parse_yum_repo(text, "/a.repo")),
    "errors of dnf": Parser(dnf_question.kind_of),
    "systemctl show": Parser(lambda text: services.parse_show(text, ["a.service", "b.service"])),
    "metrics of Prometheus": Parser(monitoring_server.parse_metrics, (ValueError,)),
    "targets of Prometheus": Parser(monitoring_server.parse_targets, (ValueError,)),
    "CDI specification": Parser(lambda text: cdi.parse("/var/run/cdi/nvidia.yaml", text)),
    "containerd config dump": Parser(containers.parse_dump),
    "docker image ls": Parser(lambda text: list(container_images.parse_docker(text))),
    "images of Podman": Parser(
        lambda text: list(container_images.parse_podman(json.loads(text))), (ValueError, RecursionError)
    ),
    "containers": Parser(_containers),
    "os-release": Parser(system.parse_os_release),
    "version.json": Parser(cuda.parse_version),
    "requirements": Parser(wheels.pins, (ValueError,)),
    "key file": Parser(_bytes(openpgp.fingerprints), (openpgp.KeyFileError,)),
    "module file": Parser(_bytes(lambda data: module_file.fields(data, "x.ko")), (module_file.ModuleFileError,)),
    "any text": Parser(redact.text),
}
RIGHT: dict[str, list[str]] = {
    **yaml.safe_load(Path(__file__).with_name("outputs.yaml").read_text(encoding="utf-8")),
    "nvidia-smi": [path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("*.xml"))],
    "framework load": ["\n".join(framework.MARK + json.dumps(step) for step in _LOADED)],
    # AER and ACS behind it.
    "configuration space": ["\0" * 256 + "\x01\0\x81\x14" + "\0" * 68 + "\x0d\0\x01\0\x5f\0\x1d\0"],
    # A key of version 4 with a name; and an object file whose only section is .modinfo.
    "key file": ["\x98\x05\x04abcd\xb4\x03abc"],
    "module file": [_MODULE_FILE],
}


def broken(outputs: list[str], chance: random.Random) -> str:
    """One of the outputs after one to four accidents."""
    text = chance.choice(outputs)
    for _ in range(chance.randint(1, 4)):
        text = chance.choice(_ACCIDENTS)(text, chance)[:MOST_CHARACTERS]
    return text


def _span(text: str, chance: random.Random) -> tuple[int, int]:
    """A stretch of the text: some characters, a word, a line or two, or any."""
    start = chance.randrange(len(text) + 1)
    kind = chance.randrange(4)
    if kind == 0:
        return start, min(len(text), start + chance.randint(0, 8))
    if kind == 1:
        word = re.compile(r"[\w.:-]+").search(text, start)
        return word.span() if word else (start, start)
    if kind == 2:
        begin = text.rfind("\n", 0, start) + 1
        end = text.find("\n", start) + 1
        return begin, end or len(text)
    return start, chance.randint(start, len(text))


def _cut_out(text: str, chance: random.Random) -> str:
    start, end = _span(text, chance)
    return text[:start] + text[end:]


def _cut_off(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _put_in(text: str, chance: random.Random) -> str:
    start, end = _span(text, chance)
    return text[:start] + chance.choice(ODD) + text[chance.choice((start, end)) :]


def _repeat(text: str, chance: random.Random) -> str:
    """The same again: twice, or until it is very much."""
    start, end = _span(text, chance)
    part = text[start:end] or chance.choice(ODD) or " "
    times = chance.choice((2, 3, 50, 10_000, MOST_CHARACTERS))
    return text[:start] + part * min(times, MOST_CHARACTERS // len(part) + 1) + text[end:]


def _turn_round(text: str, chance: random.Random) -> str:
    start, end = _span(text, chance)
    return text[:start] + text[start:end][::-1] + text[end:]


def _number(text: str, chance: random.Random) -> str:
    numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
    if not numbers:
        return text
    number = chance.choice(numbers)
    return text[: number.start()] + chance.choice(ODD) + text[number.end() :]


_ACCIDENTS = (_cut_out, _cut_off, _put_in, _repeat, _turn_round, _number)


def _outputs(name: str) -> list[str]:
    if not SECONDS:
        return RIGHT[name]
    folders = [sorted((SAMPLES / folder).glob("*")) for folder in PARSERS[name].samples]
    return RIGHT[name] + [path.read_text(errors="replace") for paths in folders for path in paths if path.is_file()]


def _rounds(name: str) -> Iterator[str]:
    """The seeds of the rounds of one parser: as many as are always made, or as go into its share of the time."""
    end = time.monotonic() + SECONDS / len(PARSERS)
    number = 0
    while number < EXAMPLES if not SECONDS else time.monotonic() < end:
        yield f"{SEED}/{name}/{number}"
        number += 1


@pytest.mark.parametrize("name", PARSERS)
def test_no_broken_output_makes_a_parser_stumble_or_linger(name: str) -> None:
    parser, outputs = PARSERS[name], _outputs(name)
    for output in RIGHT[name]:
        parser.read(output)
    for seed in _rounds(name):
        _read_in_time(parser, broken(outputs, random.Random(seed)), f"seed {seed}")  # noqa: S311 - accidents, no secrets


@pytest.mark.parametrize("name", PARSERS)
def test_no_parser_lingers_over_very_many_blanks(name: str) -> None:
    for output, blank in itertools.product(RIGHT[name], (" ", "\n", "\t\n")):
        for at in _places(output):
            _read_in_time(PARSERS[name], output[:at] + blank * MANY + output[at:], f"{MANY} times {blank!r} at {at}")
    # What costs little for one line may cost much for as many as there can be.
    _read_in_time(PARSERS[name], RIGHT[name][0] + "\n" * MOST_CHARACTERS, f"{MOST_CHARACTERS} empty lines")


def _places(output: str) -> list[int]:
    """Where blanks may cost: at both ends, in the middle, and before and behind the first sign of each kind."""
    signs = [output.index(sign) for sign in set(string.punctuation) & set(output)]
    return sorted({0, len(output) // 2, len(output), *signs, *(at + 1 for at in signs)})


def _read_in_time(parser: Parser, text: str, what: str) -> None:
    shown = f"{what}: {len(text)} characters, {text[:2000]!r}"
    try:
        found = quickly(lambda: _read(parser, text), MOST_SECONDS, shown)
        # What goes on to the controller is JSON, which has no other numbers.
        json.dumps(found, allow_nan=False, default=repr)
    except Exception as error:
        raise AssertionError(shown) from error


def _read(parser: Parser, text: str) -> object:
    """What a parser finds, or how it refuses the text."""
    try:
        return parser.read(text)
    except parser.refusals as refusal:
        return str(refusal)
