"""`gpuwright runs`: which folders of runs there are, what they say, and which go."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import paths, runs
from tests.unit.cli.conftest import FakeAnsible, event, plan_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done

DAY = 24 * 3600
COUNTS = {"fail": 1, "incomplete": 0, "pass": 1, "skip": 0, "unreachable": 1, "not_reached": 0}
BAD = {"id": "fio.write", "status": "fail", "reason": "the disk is slow"}
REPORT = {
    "hosts": {"good": {"verdict": "pass", "checks": []}, "bad": {"verdict": "fail", "checks": [BAD]}},
    "unreachable": {"gone": "no answer"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = tmp_path / "gpuwright/runs"
    place.mkdir(parents=True)
    return place


def make(folder: Path, name: str, age_days: float = 0, *, verdict: str | None = "fail") -> Path:
    path = folder / name
    path.mkdir()
    (path / paths.MARKER).touch()
    meta: dict[str, Any] = {"verb": "up", "started": "2026-11-20T10:00:00Z"}
    if verdict:
        meta |= {"verdict": verdict, "counts": COUNTS}
        (path / "report.json").write_text(json.dumps(REPORT))
    (path / "run.json").write_text(json.dumps(meta))
    then = time.time() - age_days * DAY
    os.utime(path, (then, then))
    return path


def at_work(path: Path) -> None:
    """Hold the mark of a run as its process does, until this process ends."""
    fcntl.flock(os.open(path / paths.MARKER, os.O_RDONLY), fcntl.LOCK_SH)


def test_runs_are_listed_newest_first(folder: Path, gpuwright: Callable[..., Done]) -> None:
    assert gpuwright("runs").err.startswith("there are no runs in ")
    make(folder, "20261119T100000Z-1", 1, verdict=None)
    make(folder, "20261120T100000Z-2")
    (folder / "20261121T100000Z-somebody-elses").mkdir()
    (folder / "20261122T100000Z-link").symlink_to(folder / "20261120T100000Z-2")
    done = gpuwright("runs")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["20261120T100000Z-2", "20261119T100000Z-1"]
    assert done.out.splitlines()[-1].endswith("killed")
    newest, killed = gpuwright("runs", "--json").json["runs"]
    assert (newest["verb"], newest["verdict"], newest["ended"], newest["hosts"]) == ("up", "fail", "done", 3)
    assert killed["ended"] == "killed"


@pytest.mark.parametrize("name", ["last", "20261120", "20261120T100000Z-2"])
def test_one_run_is_shown_with_its_hosts_and_its_page(folder: Path, gpuwright: Callable[..., Done], name: str) -> None:
    make(folder, "20261119T100000Z-1")
    path = make(folder, "20261120T100000Z-2")
    done = gpuwright("runs", name)
    assert done.code == 0
    assert "the disk is slow" in done.out
    assert "no answer" in done.out
    assert str(path / "report.html") in done.out
    assert gpuwright("runs", name, "--json").json["report"]["hosts"]["good"]["verdict"] == "pass"


def test_the_page_is_opened_where_there_is_a_browser(
    folder: Path, gpuwright: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(folder, "20261120T100000Z-2")
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", browser)
    done = gpuwright("runs", "last", "--open")
    assert opened == [(path / "report.html").as_uri()]
    assert "no browser was found" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nonsense",), "no run of"),
        (("2026",), "2 runs of"),
        (("--open",), "--open needs a run"),
        (("--keep", "3"), "give --prune too"),
        (("last", "--prune"), "--prune takes no run"),
        (("--prune", "--keep", "many"), "no number"),
        (("20261118",), "is at work and has no report yet"),
    ],
)
def test_what_cannot_be_meant_is_bad_input(
    folder: Path, gpuwright: Callable[..., Done], words: tuple[str, ...], said: str
) -> None:
    at_work(make(folder, "20261118T100000Z-0", verdict=None))
    make(folder, "20261120T100000Z-2")
    done = gpuwright("runs", *words)
    assert done.code == 2
    assert said in done.err


def test_runs_are_kept_by_number_and_age(folder: Path, gpuwright: Callable[..., Done]) -> None:
    for number in range(12):
        make(folder, f"202611{30 - number:02}T100000Z-1", number * 10)
    make(folder, "20261001T100000Z-other")
    (folder / "20261001T100000Z-other" / paths.MARKER).unlink()
    assert runs.prune(keep=100, days=85)
    assert len(runs.known()) == 9  # 0 to 80 days
    assert gpuwright("runs", "--prune", "--keep", "7").out == "2 runs removed, 7 left\n"
    runs.prune(days=0)
    assert len(runs.known()) == 5  # the newest few stay whatever their age
    assert (folder / "20261001T100000Z-other").is_dir()


def test_a_run_at_work_stays(folder: Path) -> None:
    make(folder, "20261120T100000Z-2")
    at_work(make(folder, "20261119T100000Z-1", 2, verdict=None))
    make(folder, "20261118T100000Z-1", verdict=None)
    assert [run.name for run in runs.prune(keep=1)] == ["20261118T100000Z-1"]


def test_a_run_that_another_prune_took_meanwhile_is_in_nobodys_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        make(folder, f"2026112{number}T100000Z-1")
    read = runs._read

    def read_and_lost(path: Path) -> runs.Run:
        run = read(path)
        if path.name.startswith(("20261120", "20261122")):
            shutil.rmtree(path)
        return run

    monkeypatch.setattr(runs, "_read", read_and_lost)
    assert [run.name for run in runs.prune(keep=0)] == ["20261121T100000Z-1"]


REFUSED = event(
    "runner_on_failed",
    "a",
    resolved_action="gpuwright.node.report",
    res={"msg": "gpuwright_serial has to be a number", "suggestions": []},
)


@pytest.mark.parametrize("words", [["-i", "absent.yml"], ["-i", "a,"], []])
@pytest.mark.parametrize("verb", ["plan", "up", "validate"])
def test_a_run_that_was_refused_before_the_first_host_is_no_run(
    gpuwright: Callable[..., Done], ansible: FakeAnsible, verb: str, words: list[str]
) -> None:
    ansible.events = [REFUSED]
    assert gpuwright(verb, *words).code == 2
    assert runs.known() == []
    assert not runs.directory().is_dir() or list(runs.directory().iterdir()) == []


def test_what_is_refused_before_the_run_leaves_an_earlier_report_and_makes_none(
    gpuwright: Callable[..., Done], tmp_path: Path
) -> None:
    earlier = paths.make_run_directory(tmp_path / "mine")
    (earlier / "report.json").write_text("{}")
    for name in ("mine", "new"):
        assert gpuwright("plan", "--report", str(tmp_path / name), "--vault-password-file", "absent").code == 2
    assert (earlier / "report.json").is_file()
    assert not (tmp_path / "new").exists()


def test_a_folder_that_was_asked_for_or_has_more_in_it_stays(
    gpuwright: Callable[..., Done], ansible: FakeAnsible, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ansible.events = [REFUSED]
    assert gpuwright("plan", "--report", str(tmp_path / "mine")).code == 2
    assert (tmp_path / "mine" / "ansible").is_dir()

    before = FakeAnsible.__call__

    def with_a_note(self: FakeAnsible, request: Any, on_event: Any) -> Any:
        (request.run_dir / "notes.txt").write_text("mine")
        return before(self, request, on_event)

    monkeypatch.setattr(FakeAnsible, "__call__", with_a_note)
    assert gpuwright("plan").code == 2
    (left,) = runs.directory().iterdir()
    assert [path.name for path in left.iterdir()] == ["notes.txt"]


def test_a_run_that_came_to_its_hosts_stays(gpuwright: Callable[..., Done], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    assert gpuwright("up").code == 2  # nobody can be asked
    assert len(runs.known()) == 1
