"""`make card`, tried against the stand-ins of nvidia-smi and libcuda."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.sim import scenario
from tests.sim.onnode.gpuwright_sim import node, smi
from tools.card import __main__ as card
from tools.card import page, reading, running, shapes, smi_asked, steps
from tools.card.running import Done, Finding, Ran, Step

ROOT = Path(__file__).parents[3]
VERSION = "580.178.04"

#: An nvidia-smi that answers as the simulated node's does, the state of the node being in a folder of the test.
_PROGRAM = """#!{python} -S
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.sim.onnode.gpuwright_sim import node, smi
folder = Path({folder!r})
node.CONFIG, node.VIEW, node.LIBRARIES = folder, folder, (folder,)
sys.exit(smi.main(sys.argv[1:]))
"""


class Summary(NamedTuple):
    """How `make card` ended: its exit code, each step by its name, the page, the seconds."""

    rc: int
    steps: dict[str, Any]
    page: str
    seconds: float
    err: str

    def texts(self, step: str, kind: str) -> list[str]:
        return [found["text"] for found in self.steps[step]["findings"] if found["kind"] == kind]


Card = Callable[..., Summary]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with an H200 behind the stand-ins: the folder of its programs."""
    node = tmp_path / "node"
    node.mkdir()
    given = scenario.expand({"gpus": [{"card": "h200"}]}, "lent")
    (node / "scenario.json").write_text(json.dumps(given))
    working = [gpu["uuid"] for gpu in given["gpus"]]
    module = {"version": VERSION, "open": True, "working": working}
    (node / "loaded.json").write_text(json.dumps({"nvidia": module}))
    (node / f"libnvidia-ml.so.{VERSION}").write_text("")
    (node / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, _PROGRAM.format(python=sys.executable, root=str(ROOT), folder=str(node)))
    gpu = given["gpus"][0]
    major, minor = gpu["compute_capability"].split(".")
    told = f"gpu {gpu['memory_mib']} {major} {minor} {gpu['uuid']} {gpu['bus_id']} {gpu['name']}"
    (node / "state").write_text("\n".join(["result 0", f"kernel {VERSION}", "free 24", told, ""]))
    return programs


def program(programs: Path, text: str, name: str = "nvidia-smi") -> Path:
    path = programs / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def library(machine: Path) -> Path:
    """The stand-in libcuda of that machine: the folder it is in."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    node = machine.parent / "node"
    words = [f'-DVERSION="{VERSION}"', "-DCUDA=13000", f'-DSTATE="{node}/state"', "-o", f"{node}/libcuda.so.1"]
    source = ROOT / "tests/sim/stubs/libcuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", *words, source], check=True)
    return node


@pytest.fixture
def run_card(tmp_path: Path) -> Card:
    def call(*names: str, path: Path | None = None, **variables: str) -> Summary:
        out = tmp_path / "out"
        search = os.pathsep.join([*([str(path)] if path else []), os.defpath])
        environment = {**os.environ, "PATH": search, "OUT": str(out), "PYTHONPATH": f"{ROOT}/src:{ROOT}/collections"}
        begun = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "tools.card", *names], cwd=ROOT, env={**environment, **variables},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - begun
        summary = out / "summary.json"
        told = json.loads(summary.read_text())["steps"] if summary.is_file() else []
        text = (out / "README.md").read_text() if told else ""
        return Summary(ran.returncode, {step["name"]: step for step in told}, text, seconds, ran.stderr)

    return call


# Against the stand-ins --------------------------------------------------------------------------------


def test_the_stand_in_differs_in_nothing_from_itself(machine: Path, library: Path, run_card: Card) -> None:
    names = ("smi-document", "module-nvidia_smi", "driver", "module-gpu_compute")
    found = run_card(*names, path=machine, LD_LIBRARY_PATH=str(library))
    notes = found.texts("smi-document", "note")
    assert {name: step["state"] for name, step in found.steps.items()} == dict.fromkeys(names, "pass"), found.page
    assert notes[0].startswith("held against the stand-in's h200")
    assert found.rc == 0
    for name in names:
        folder = found.steps[name]["folder"]
        raw = machine.parent / "out" / folder
        assert {each.name for each in raw.iterdir()} == {"command", "stdout", "stderr", "ended.json"}
        assert f"| {name} |" in found.page
    (raw,) = (machine.parent / "out").glob("*-module-nvidia_smi/stdout")
    assert [gpu["name"] for gpu in json.loads(raw.read_text())["gpus"]] == ["NVIDIA H200"]


# What a lent machine may be like ----------------------------------------------------------------------


def test_without_nvidia_smi_nothing_passes_and_the_page_says_why(run_card: Card) -> None:
    names = ("smi-document", "module-nvidia_smi", "smi-list", "driver")
    found = run_card(*names)
    assert {name: step["state"] for name, step in found.steps.items()} == dict.fromkeys(names, "incomplete")
    assert found.rc == 1
    assert "nvidia-smi is not installed" in found.page


def test_an_nvidia_smi_that_hangs_is_killed_and_the_rest_goes_on(tmp_path: Path) -> None:
    hanging = program(tmp_path, f"#!/bin/sh\necho begun\nsleep 600 & echo $! > {tmp_path}/child\nwait\n")
    begun = time.monotonic()
    environment = dict(os.environ)
    done = running.perform(Step("hangs", 1.5, [str(hanging)], reading.printed), tmp_path / "hangs", environment, 100)
    after = running.perform(Step("after", 5, ["echo", "well"], reading.printed), tmp_path / "after", environment, 100)
    assert time.monotonic() - begun < 10
    assert (done.state, done.rc) == ("failed", None)
    assert (tmp_path / "hangs/stdout").read_text() == "begun\n"
    assert json.loads((tmp_path / "hangs/ended.json").read_text())["rc"] is None
    assert after.state == "pass"
    child = int((tmp_path / "child").read_text())
    assert not _lives(child)


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_all_steps_together_end_in_the_time_that_they_have(tmp_path: Path, run_card: Card) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "#!/bin/sh\nsleep 600\n")
    found = run_card(path=programs, CARD_SECONDS="12")
    assert found.seconds < 40  # 12, and what starting and looking for PyTorch takes
    assert found.texts("smi-document", "incomplete")[0].startswith("the time was over after")
    assert found.texts("validate", "incomplete") == ["no time was left for it"]
    assert found.rc == 1


def test_an_element_that_the_stand_in_lacks_is_told(tmp_path: Path) -> None:
    text = tmp_path / "real.xml"
    text.write_text(simulated(("</gpu>", "<new_reading>3 K</new_reading></gpu>")))
    step = Step("smi-document", 20, ["cat", str(text)], lambda ran: shapes.compare(ran.out))
    done = running.perform(step, tmp_path / "smi-document", dict(os.environ), 100)
    sentence = "gpu/new_reading: the stand-in has no such element; here it is `# K`"
    assert (done.state, done.findings[-1].text) == ("differs", sentence)
    page.write(tmp_path, [done], {"smi-document": tmp_path / "smi-document"}, 1.0)
    assert f"- **smi-document**: {sentence}" in (tmp_path / "README.md").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["exit"] == 1


@pytest.fixture
def asked(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, str]]]:
    """What is found where the log and the exporter ask that machine."""
    folder = machine.parent / "node"
    monkeypatch.setattr(node, "CONFIG", folder)
    monkeypatch.setattr(node, "VIEW", folder)
    monkeypatch.setattr(node, "LIBRARIES", (folder,))

    def ask(arguments: Sequence[str]) -> tuple[int, str]:
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            status = smi.main(list(arguments))
        return status, written.getvalue()

    monkeypatch.setattr(smi_asked, "ask", ask)
    return lambda: told(reading.questions(said(smi_asked.answers())))


def test_of_the_questions_the_stand_in_lacks_the_number_of_a_card_alone(
    asked: Callable[[], list[tuple[str, str]]],
) -> None:
    """It has no -i, so it answers for its card where the real one has none of that number."""
    ((kind, text),) = asked()
    assert kind == "differs"
    assert text.startswith("`nvidia-smi -i 99 -q -x` ended with 0")


def test_a_field_that_nvidia_smi_refuses_is_named(
    asked: Callable[[], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(smi._FIELDS, "power.draw")
    texts = [text for _kind, text in asked()]
    assert 'the field power.draw is refused: Field "power.draw" is not a valid field to query.' in texts
    assert not [text for text in texts if "power.limit" in text]


# Bad use ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "variables", "words"),
    [
        (("no-such-step",), {}, "there is no step no-such-step"),
        ((), {"CARD_SECONDS": "soon"}, "CARD_SECONDS has to be a whole number"),
        ((), {"OUT": str(ROOT)}, "OUT has to be an empty folder"),
        ((), {"OUT": "/dev/null/out"}, "OUT has to be a folder"),
    ],
)
def test_bad_use_is_told_and_nothing_is_run(
    run_card: Card, names: Sequence[str], variables: dict[str, str], words: str
) -> None:
    found = run_card(*names, **variables)
    assert (found.rc, found.steps) == (2, {})
    assert words in found.err


# The documents of nvidia-smi --------------------------------------------------------------------------


def simulated(*changes: tuple[str, str]) -> str:
    text = shapes.stand_in("h200", VERSION, None)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def differences(text: str) -> list[str]:
    return [finding.text for finding in shapes.compare(text) if finding.kind == "differs"]


def test_an_element_that_only_the_stand_in_has_is_told() -> None:
    assert differences(simulated(("<c2c_mode>Disabled</c2c_mode>", ""))) == [
        "gpu/c2c_mode: only the stand-in has it, as `word`"
    ]


def test_a_value_of_another_shape_is_told_and_whether_it_is_read() -> None:
    (found,) = differences(simulated(("<fan_speed>N/A</fan_speed>", "<fan_speed>30 %</fan_speed>")))
    assert found == "gpu/fan_speed (read): it is `# %`, with the stand-in `N/A`"


def test_an_error_in_place_of_a_value_is_told_by_its_words() -> None:
    (found,) = differences(simulated(("<serial>", "<serial>[Unknown Error] "), ("", "")))
    assert "error: [Unknown Error]" in found


def test_another_number_is_no_difference() -> None:
    assert differences(simulated(("<used>0 MiB</used>", "<used>512 MiB</used>"))) == []


def test_what_runs_on_a_card_is_no_difference() -> None:
    info = "<processes><process_info><pid>1</pid><type>C</type></process_info></processes>"
    text = simulated()
    start, end = text.index("<processes>"), text.index("</processes>") + len("</processes>")
    assert differences(text[:start] + info + text[end:]) == []


@pytest.mark.parametrize(
    ("name", "card"),
    [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090 D", "rtx4090"), ("NVIDIA A100-SXM4-40GB", "a100")],
)
def test_the_nearest_stand_in_is_that_of_the_likest_name(name: str, card: str) -> None:
    assert shapes.nearest(name) == card


# Answers ----------------------------------------------------------------------------------------------


def said(answer: object, rc: int = 0) -> Ran:
    return Ran(["program"], rc, 1.0, json.dumps(answer), "")


def told(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.text) for finding in found]


def test_figures_that_are_far_apart_differ() -> None:
    load = {"devices": [{"tflops": {"bf16": 700.0, "fp32": 50.0, "fp8": 1.0}}]}
    found = told(reading.beside(load, said({"tflops": {"bf16": 720.0, "fp32": 60.0}})))
    assert found == [
        ("note", "bf16: 700.0 TFLOPS by the load, 720.0 by hand"),
        ("differs", "fp32: 50.0 TFLOPS by the load, 60.0 by hand"),
    ]
    assert told(reading.beside({}, said({"tflops": {"bf16": 720.0}})))[0][0] == "incomplete"


def test_memory_outside_of_what_was_counted_differs() -> None:
    gib = 2**30
    rows = [{"name": name, "value": gib} for name in ("weights", "gradients", "optimizer")]
    size = {"hosts": {"localhost": {"answers": [{"memory": rows, "needed": {"low": 4 * gib, "high": 6 * gib}}]}}}
    answer = {"weights": gib, "gradients": 1.5 * gib, "optimizer": gib, "peak_allocated": 4 * gib, "taken": 5 * gib}
    assert [kind for kind, _ in told(reading.memory(size, said(answer)))] == ["note", "differs", "note", "note"]
    assert told(reading.memory(size, said({**answer, "taken": 7 * gib})))[3][0] == "differs"
    assert told(reading.memory({}, said(answer)))[0][0] == "incomplete"


def test_what_libcuda_returns_is_held_against_its_header() -> None:
    codes = {
        "no PTX": {"code": 300, "name": "X", "expected": 218},
        "no such device": {"code": 101, "name": "Y", "expected": 101},
    }
    found = reading.driver(said({"codes": codes, "programs": {"PLAIN": {"code": 218, "words": "line 3"}}}))
    assert told(found) == [
        ("differs", "no PTX: it returns 300 (X), expected was 218"),
        ("differs", "PLAIN is not compiled (218): line 3"),
    ]


def test_a_field_that_is_refused_is_told() -> None:
    refused = {"asked": ["-i", "99"], "status": 6, "text": "Nothing known", "known": False}
    answer = {
        "fields": {"index": {"status": 0, "text": "0"}, "power.draw": {"status": 2, "text": "no field"}},
        "exporter": {"problem": None},
        "refused": [refused],
    }
    found = told(reading.questions(said(answer)))
    assert found == [
        ("differs", "the field power.draw is refused: no field"),
        ("differs", "`nvidia-smi -i 99` ended with 6, in words not known here: Nothing known"),
    ]


def test_an_answer_that_cannot_be_read_does_not_pass() -> None:
    assert told(reading.checks(Ran(["x"], 1, 1.0, "", "Traceback\nValueError: bad")))[0][0] == "failed"
    assert told(reading.checks(said({"failed": True, "msg": "no"}))) == [("failed", "no")]
    assert told(reading.checks(said({"cards": [], "problem": "no driver"}))) == [("incomplete", "problem: no driver")]
    assert told(reading.checks(said({"checks": [{"id": "a", "status": "incomplete", "reason": "b"}]}))) == [
        ("incomplete", "a: b")
    ]


def test_a_command_that_fails_without_a_check_does_not_pass() -> None:
    assert told(reading.command(said({"hosts": {}}, 1)))[0][0] == "differs"
    assert told(reading.command(said({"unreachable": {"h": "gone"}}, 1))) == [("failed", "h: gone")]
    assert reading.command(said({"hosts": {"h": {"checks": [{"id": "a", "status": "pass"}]}}})) == []


@pytest.mark.parametrize(
    ("kinds", "code"), [([], 0), (["note"], 0), (["incomplete"], 1), (["differs"], 1), (["failed"], 1), (["skip"], 1)]
)
def test_only_what_passed_is_all_right(kinds: list[str], code: int) -> None:
    assert page.exit_code([Done("one", findings=[Finding(kind, "") for kind in kinds])]) == code


def test_a_reader_that_stumbles_is_a_failure_of_its_step_alone(tmp_path: Path) -> None:
    def stumble(ran: Ran) -> list[Finding]:
        raise KeyError("checks")

    done = running.perform(Step("odd", 5, ["true"], stumble), tmp_path / "odd", dict(os.environ), 100)
    assert (done.state, done.findings[0].text) == ("failed", "its answer was not understood here: KeyError: 'checks'")


def test_every_step_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = [step.name for step in steps.steps(steps.Answers({}), tmp_path)]
    assert len(names) == len(set(names))
    assert card.chosen(()) == set(names)
