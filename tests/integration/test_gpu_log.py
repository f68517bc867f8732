"""The light log of the cards: filled by a timer of real systemd, through a driver that hangs and a boot, mended, and taken back."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

_TURN = "systemctl start gpuwright-gpu-log.service"
_PROGRAM = "/usr/local/libexec/gpuwright/gpu_log.py"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("log", "h100-ubuntu")


def up(machine: Node, *arguments: str, verb: str = "up") -> Run:
    """Run with the log alone, which brings the driver that it reads."""
    more = ("--yes",) if verb == "up" else ()
    return machine.run(verb, *more, "--want=driver=580", "--want=gpu-log=7", *arguments)


def rows(machine: Node) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(machine.shell("cat /var/log/gpuwright/gpu-*.csv"))))


def check(machine: Node) -> dict[str, str | None]:
    found = {each["id"]: each for each in up(machine, verb="doctor").host["checks"]}
    return {key: found["gpu.log"][key] for key in ("status", "reason")}


def test_the_log_comes_with_the_driver_and_fills_by_itself(machine: Node) -> None:
    run = up(machine)
    assert run.code == 0, str(run)
    assert "gpu_log" in run.components
    # Two turns are a minute apart.
    machine.shell(
        "for i in $(seq 130); do test $(cat /var/log/gpuwright/gpu-*.csv | wc -l) -ge 3 && exit; sleep 1; done; exit 1"
    )
    first, second, *_rest = rows(machine)
    assert (first["index"], first["name"], first["note"]) == ("0", "NVIDIA H100 80GB HBM3", "")
    assert first["timestamp"] < second["timestamp"]
    assert float(first["memory.total [MiB]"]) > 80_000
    # Of a minute in which all is well nobody reads anything in the journal.
    assert machine.shell("journalctl --quiet --output=cat -u gpuwright-gpu-log.service").strip() == ""


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(machine: Node) -> None:
    again = up(machine)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    assert check(machine) == {"status": "pass", "reason": None}
    full = up(machine, "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_a_driver_that_hangs_is_told_in_the_log_and_by_the_doctor(machine: Node) -> None:
    # Without its timer no turn can come between and be well again.
    machine.shell("systemctl stop gpuwright-gpu-log.timer")
    machine.fault("hanging-smi")
    machine.shell(f"! {_TURN}")
    assert rows(machine)[-1]["note"] == "nvidia-smi did not answer within 20 s"
    assert machine.shell("pgrep -x nvidia-smi", check=False) == ""
    assert "no sample: nvidia-smi did not answer" in machine.shell(
        "journalctl --output=cat -u gpuwright-gpu-log.service"
    )
    machine.fault("hanging-smi", clear=True)
    failed = "the last turn of gpuwright-gpu-log.service gave no sample"
    # As bad as the seal of the timer that stands still, which it explains.
    assert check(machine) == {"status": "fail", "reason": failed}
    machine.shell(f"systemctl start gpuwright-gpu-log.timer; {_TURN}")
    assert check(machine)["status"] == "pass"


def test_what_somebody_broke_by_hand_is_named_and_mended(machine: Node) -> None:
    machine.shell(f"systemctl disable --now gpuwright-gpu-log.timer; echo broken > {_PROGRAM}")
    assert check(machine) == {"status": "fail", "reason": "gpuwright-gpu-log.timer does not run"}
    mended = up(machine)
    assert (mended.code, mended.components) == (0, {"gpu_log"}), str(mended)
    machine.shell(_TURN)


def test_it_goes_on_after_a_boot(machine: Node) -> None:
    before = len(rows(machine))
    machine.reboot()
    machine.shell("systemctl is-active gpuwright-gpu-log.timer")
    machine.shell(
        f"for i in $(seq 70); do test $(cat /var/log/gpuwright/gpu-*.csv | wc -l) -gt {before + 1} && exit; sleep 1; done; exit 1"
    )


def test_remove_takes_the_timer_and_leaves_what_was_written(machine: Node) -> None:
    written = len(rows(machine))
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)
    left = machine.shell("find /etc /usr/local /var/lib/gpuwright -name '*gpu_log*' -o -name '*gpu-log*'", check=False)
    assert left == ""
    assert machine.shell("systemctl list-timers --all --no-legend 'gpuwright-*'").strip() == ""
    assert len(rows(machine)) >= written
