from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_class, fio_bench, fio_json, fio_meaning
from ansible_collections.gpuwright.node.plugins.modules import fio as module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from benchmarks import fio_by_hand
from tests.unit.quick import quickly

MB = 1_000_000
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def modern(**changes: Any) -> dict[str, Any]:
    side = {
        "io_bytes": 3_000 * MB,
        "io_kbytes": 2_929_687,
        "bw_bytes": 1_000 * MB,
        "bw": 976_562,
        "iops": 250_000.0,
        "runtime": 3000,
        "total_ios": 750_000,
        "clat_ns": {
            "min": 9000,
            "max": 900_000,
            "mean": 120_000.5,
            "stddev": 12.0,
            "percentile": {"50.000000": 110_000, "99.000000": 400_000},
        },
    }
    side.update(changes)
    return side


FAST = modern(io_bytes=270_000 * MB, bw_bytes=90_000 * MB, bw=87_890_625, iops=22.5e6, total_ios=67_500_000)


def zeros() -> dict[str, Any]:
    return {
        "io_bytes": 0,
        "bw_bytes": 0,
        "bw": 0,
        "iops": 0.0,
        "runtime": 0,
        "total_ios": 0,
        "clat_ns": {"min": 0, "max": 0, "mean": 0, "stddev": 0},
    }


def answer(*jobs: dict[str, Any], version: str = "fio-3.36-103-gb140f-dirty") -> str:
    return json.dumps({"fio version": version, "jobs": list(jobs)}, indent=2)


def job(
    read: dict[str, Any] | None = None, write: dict[str, Any] | None = None, error: int = 0, name: str = "t"
) -> dict[str, Any]:
    return {"jobname": name, "error": error, "read": read or zeros(), "write": write or zeros()}


def test_a_result_of_fio_3_is_read() -> None:
    document: Any = fio_json.parse(answer(job(modern())))
    assert document["write"] is None, "a block of zeros is no measurement"
    assert document["read"]["iops"] == 250_000
    assert document["read"]["clat_ns"]["percentiles"] == {"50": 110_000, "99": 400_000}


def test_a_result_of_fio_2_is_brought_to_bytes_and_nanoseconds() -> None:
    side = {
        "io_bytes": 1024,
        "bw": 2048,
        "iops": 512,
        "runtime": 500,
        "total_ios": 256,
        "clat": {"min": 10, "max": 90, "mean": 20.5, "stddev": 1, "percentile": {"99.000000": 80, "0.00": 0}},
    }
    read: Any = fio_json.parse(answer({"jobname": "t", "error": 0, "read": side}, version="fio-2.17"))["read"]
    assert (read["io_bytes"], read["bw_bytes"]) == (1024 * 1024, 2048 * 1024)
    assert read["clat_ns"]["mean"] == 20_500
    assert read["clat_ns"]["percentiles"] == {"99": 80_000}


def test_lines_around_the_document_are_kept_and_do_not_disturb() -> None:
    text = "fio: terminating on signal 2\n\n" + answer(job(modern())) + "\nDisk stats (read/write):\n"
    document: Any = fio_json.parse("\ufeff" + text, "note: both iodepth >= 1 and synchronous I/O engine are selected\n")
    assert document["read"]["iops"] == 250_000
    assert len(document["messages"]) == 3


def test_jobs_of_one_run_add_up_and_the_slowest_speaks_for_latency() -> None:
    slow = modern(clat_ns={"min": 1, "max": 9e9, "mean": 5e6, "stddev": 1, "percentile": {"99.000000": 8e9}})
    read: Any = fio_json.parse(answer(job(modern()), job(slow)))["read"]
    assert read["iops"] == 500_000
    assert read["clat_ns"]["percentiles"]["99"] == 8e9


def test_numbers_that_json_does_not_have_are_read_as_absent() -> None:
    text = answer(job(modern())).replace("12.0", "-nan")
    document: Any = fio_json.parse(text)
    assert document["read"]["clat_ns"]["stddev"] == 0


@pytest.mark.parametrize(
    ("text", "stderr", "told"),
    [
        ("", "", "printed nothing"),
        ("--nosuch help", "fio: unrecognized option '--nosuch'", "unrecognized"),
        ('{"a": 1}', "", "version and jobs"),
        (answer(job(modern()))[:300], "", "cut off"),
        ("[1]", "", "no result"),
        ('{"fio version":' * 90_000, "", "within each other"),
        ("[" + '{"a":' * 400_000, "", "within each other"),
        ("x" * 20_000_000, "", "more than"),
        ("{\n" * 900_000, "", "cannot be read"),
        (":" + " " * 2_000_000 + "nan", "", "no result"),
        (answer(job(modern())).replace("250000.0", "7" * 1_000_000), "", "read.iops is inf"),
    ],
)
def test_what_is_no_result_is_told_in_a_sentence(text: str, stderr: str, told: str) -> None:
    def refusal() -> str:
        with pytest.raises(fio_json.FioError, match=told) as refused:
            fio_json.parse(text, stderr)
        return str(refused.value)

    assert len(quickly(refusal)) < 1000


def test_every_sample_of_fio_is_read_or_refused_with_a_sentence(samples: Callable[[str], list[Path]]) -> None:
    refused: list[Path] = []
    for path in samples("fio-json") + samples("fio-errors") + samples("fio-local"):
        if path.name == "INDEX" or path.suffix == ".stderr":
            continue
        try:
            document = fio_json.parse(path.read_bytes())
        except fio_json.FioError:
            refused.append(path)
            continue
        side = document["read"] or document["write"]
        assert document["errors"] or (side and side["bw_bytes"] > 0 and side["clat_ns"]["max"] > 0), path.name
    assert [path.name for path in refused if path.parent.name == "fio-json"] == ["fioplot_EMPTY_write-64-8.json"]


# What no figure, no error and no object can be: of 400 digits, no number of JSON, negative, absent, of another kind.
ODD = ["NaN", "-Infinity", "1e999", "4" * 400, "-1", "-0.5", "null", "true", '"junk"', "[]", "{}", '"nan"', "1e19"]
FIGURES = ["io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "clat_ns"]


def broken(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Variants of a good document: what was changed, and the JSON."""
    text = json.dumps(document)
    places: list[tuple[str | int, ...]] = [("fio version",), ("jobs",), ("jobs", 0), ("jobs", 0, "error")]
    for side in ("read", "write", "trim"):
        measured = document["jobs"][0][side]["io_bytes"] > 0
        places += [("jobs", 0, side, name) for name in FIGURES if measured or name != "clat_ns"]
        if measured:
            latency = document["jobs"][0][side]["clat_ns"]
            places += [("jobs", 0, side, "clat_ns", name) for name in ("min", "mean", "max")]
            places += [("jobs", 0, side, "clat_ns", "percentile", each) for each in latency.get("percentile", ())][:1]
    for place in places:
        for odd in [*ODD, "0", "5"]:
            changed = json.loads(text)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            good = inner.get(place[-1]) if isinstance(inner, dict) else inner
            # A count of 5 is wrong where nothing was moved, and 0 where something was.
            if good is None or (odd in ("0", "5") and bool(good) != (odd == "0")):
                continue
            if odd == "0" and place[-1] not in (*FIGURES, "mean", "max"):
                continue
            if place[-1] == "fio version" and odd.startswith('"'):
                continue
            inner[place[-1]] = "@"
            yield f"{place} {odd[:12]}", json.dumps(changed).replace('"@"', odd)


@pytest.mark.parametrize("part", ["seqread", "randread", "seqwrite"])
def test_no_broken_variant_of_a_result_ever_passes(part: str) -> None:
    measured = job(write=modern()) if part == "seqwrite" else job(modern())
    good = json.loads(answer({**measured, "trim": zeros()}))
    assert outcome(part, json.dumps(good)) == "pass"
    variants = list(broken(good))
    assert len(variants) > 250
    assert [what for what, text in variants if outcome(part, text) == "pass"] == []


@pytest.mark.parametrize(
    ("stderr", "rc"),
    [
        ("fio: pid=812, got signal=9\n", 0),
        ("fio: pid=812, got signal=11\n", 1),
        ("fio: terminating on signal 15\n", 0),
        ("fio: job 't' (state=5) hung in 300 seconds\n", 0),
        ("fio: pid=812, err=5/file:io_u.c:1889, func=io_u error, error=Input/output error\n", 0),
        ("fio: pid=812, err=-1/file:engines/x.c:42, func=init, error=Unknown error -1\n", 0),
        ("fio: pid=812, err=99999999999/file:x.c:1, func=x, error=x\n", 0),
        ("fio: io_u error on file ./t.0.0: Input/output error: read offset=4096, buflen=4096\n", 0),
        ("", 1),
        ("", 137),
        ("", 255),
        ("", -9),
        ("", None),
    ],
)
def test_a_run_that_did_not_end_well_never_passes_whatever_its_figures(stderr: str, rc: int | None) -> None:
    assert outcome("seqread", answer(job(modern())), stderr, rc) in ("incomplete", "fail")
    assert outcome("seqread", stderr + answer(job(modern())), "", rc) in ("incomplete", "fail")


def test_an_error_of_one_request_has_the_cause_that_its_line_names() -> None:
    line = "fio: io_u error on file ./t.0.0: No space left on device: write offset=4096, buflen=4096"
    document: Any = fio_json.parse(answer(job(modern())), line)
    assert fio_json.judge("seqread", document, None)[0]["reason"] == "the file system is full"


def outcome(part: str, text: str, stderr: str = "", rc: int | None = 0, seconds: float | None = 3) -> str:
    """What the module makes of one answer of fio."""
    try:
        document = fio_json.parse(text, stderr, rc)
    except fio_json.FioError:
        return "incomplete"
    status: str = fio_json.judge(part, document, "network", seconds)[0]["status"]
    return status


def test_the_signal_that_killed_fio_is_told_and_an_exit_status_is_none() -> None:
    for rc, told in ((-9, "killed by signal 9"), (137, "killed by signal 9"), (255, "exit status 255")):
        document = fio_json.parse(answer(job(modern())), "", rc)
        assert told in str(fio_json.judge("seqread", document, None)[0]["reason"])
    with pytest.raises(fio_json.FioError, match="killed by signal 9"):
        fio_json.parse("", "", -9)


def test_every_healthy_sample_passes_and_every_broken_variant_of_it_does_not(
    samples: Callable[[str], list[Path]],
) -> None:
    wrong, judged_samples = [], 0
    for path in samples("fio-json") + samples("fio-local"):
        text = path.read_text(errors="replace")
        try:
            document = json.loads(text[text.index("{") : text.rindex("}") + 1])
            first = document["jobs"][0]
        except (ValueError, KeyError):
            continue
        if first["error"] or "terminating on" in text:
            continue
        part = "seqread" if first["read"]["io_bytes"] else "seqwrite"
        judged_samples += 1
        if outcome(part, text, seconds=None) != "pass":
            wrong.append(path.name)
        if "bw_bytes" in first["read"] and len(text) < 20_000:
            wrong += [f"{path.name} {what}" for what, each in broken(document) if outcome(part, each) == "pass"]
    assert judged_samples > 15
    assert wrong == []


def judged(
    text: str, disk: str | None = "nvme3", part: str = "seqread", seconds: float | None = 3, **more: Any
) -> Check:
    return fio_json.judge(part, fio_json.parse(text), disk, seconds, **more)[0]


def test_a_disk_that_is_faster_than_its_class_is_no_fault() -> None:
    assert judged(answer(job(FAST)))["status"] == "pass"


def test_a_missed_floor_is_a_warning_that_names_floor_and_class() -> None:
    check = judged(answer(job(modern(bw_bytes=900 * MB))))
    assert check["status"] == "warn"
    assert check["expected"] == {"floor": 2500.0, "nominal": 3500.0}
    assert check["unit"] == "MB/s"


@pytest.mark.parametrize(("disk", "nominal"), [("ssd", 500.0), ("nvme", 3500.0), ("nvme4", 7000.0)])
def test_the_classes_of_the_guides_are_told(disk: str, nominal: float) -> None:
    assert judged(answer(job(modern())), disk)["expected"]["nominal"] == nominal


def test_random_reads_are_judged_by_operations() -> None:
    check = judged(answer(job(modern(iops=60_000.0, total_ios=180_000))), "nvme3", "randread")
    assert (check["status"], check["measured"], check["unit"]) == ("warn", 60_000, "IOPS")


def test_a_wished_floor_wins_over_the_class() -> None:
    assert judged(answer(job(modern(bw_bytes=900 * MB))), floor=800 * MB)["status"] == "pass"


def test_a_measured_page_cache_is_a_warning_however_fast() -> None:
    check = judged(answer(job(FAST)), buffered=True)
    assert check["status"] == "warn"
    assert "page cache" in str(check["reason"])


@pytest.mark.parametrize(
    ("error", "status"),
    [(5, "fail"), (30, "fail"), (28, "incomplete"), (13, "incomplete"), (22, "incomplete"), (84, "incomplete")],
)
def test_an_error_of_a_job_is_never_a_pass(error: int, status: str) -> None:
    assert judged(answer(job(modern(), error=error)))["status"] == status


def test_a_run_that_was_cut_short_is_incomplete_though_no_job_has_an_error() -> None:
    assert judged(answer(job(modern(runtime=1700))))["status"] == "incomplete"


def test_a_run_without_input_is_incomplete() -> None:
    assert judged(answer(job()))["status"] == "incomplete"


# --------------------------------------------------------------------------------------------------------------------


def test_the_guides_line_is_kept_to_the_letter() -> None:
    part = fio_bench.parts_of("guide-randread")[0]
    argv = fio_bench.command("fio", part, "libaio", direct=True)
    for option in (
        "--rw=randread",
        "--bs=4k",
        "--ioengine=libaio",
        "--iodepth=32",
        "--numjobs=4",
        "--direct=1",
        "--runtime=60",
    ):
        assert option in argv
    assert f"--size={10 * 1024**3}" in argv
    assert fio_bench.parts_of("randread") == [part]
    assert fio_bench.ENGINES[0] == "libaio"


def test_a_checkpoint_is_written_once_with_fsync_and_read_back() -> None:
    write, read = (fio_bench.command("fio", part, "libaio", direct=True) for part in fio_bench.parts_of("checkpoint"))
    assert {"--rw=write", "--end_fsync=1"} <= set(write)
    assert "--rw=read" in read
    assert not {"--end_fsync=1"} & set(read)
    assert not {"--time_based"} & {*write, *read}, "the size ends it, so that the time is that of one checkpoint"
    assert all(not part.ramp for part in fio_bench.parts_of("checkpoint")), "a ramp would eat what is written once"


def test_shards_are_read_at_random_by_several_readers() -> None:
    [part] = fio_bench.parts_of("shards")
    argv = fio_bench.command("fio", part, "libaio", direct=True)
    assert {"--rw=randread", "--bs=128k", "--numjobs=8", "--time_based"} <= set(argv)
    assert [part.name for part in fio_bench.parts_of("sequential")] == ["seqread", "seqwrite"]


def test_every_part_of_every_profile_has_a_figure_that_is_judged_in_the_direction_that_it_goes() -> None:
    for name, parts in fio_bench.PROFILES.items():
        assert name in module.DOCUMENTATION
        for part in parts:
            figure = fio_json.FIGURES[part.name]
            assert (figure.side == "write") == (part.rw == "write"), part.name
            assert (figure.what == "iops") == (part.bs == "4k"), part.name


def test_a_synchronous_engine_gets_more_jobs_for_the_depth_it_lacks() -> None:
    argv = fio_bench.command("fio", fio_bench.parts_of("quick")[1], "psync", direct=True)
    assert "--iodepth=1" in argv
    assert "--numjobs=32" in argv


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10 * 1024**3), ("256M", 256 * 1024**2), ("4 MiB", 4 * 1024**2), ("1048576", 1024**2)]
)
def test_sizes_are_counted_as_fio_counts(text: str, size: int) -> None:
    assert fio_bench.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1G", "ten", "1k", "1.5G", "10G; rm -rf /"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(fio_bench.Refused):
        fio_bench.parse_size(text)


@pytest.mark.parametrize(
    "path",
    [
        "/dev",
        "/dev/null",
        "/dev/shm",
        "/proc/self",
        "/sys",
        "relative",
        "/nonexistent/x",
        "/tmp/../dev/null",
        "/etc/passwd",
    ],
)
def test_what_is_no_directory_of_a_file_system_is_refused(path: str) -> None:
    with pytest.raises(fio_bench.Refused):
        fio_bench.safe_directory(path)


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to("/dev/null")
    (tmp_path / "dir").symlink_to("/dev")
    for name in ("disk", "dir", "dir/shm"):
        with pytest.raises(fio_bench.Refused):
            fio_bench.safe_directory(str(tmp_path / name))


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert fio_bench.safe_directory(str(tmp_path / "link")) == str((tmp_path / "data").resolve())


class Room:
    """A file system of 1,000 GiB of which some are free."""

    f_frsize = 1024**3
    f_blocks = 1000

    def __init__(self, free: int) -> None:
        self.f_bavail = free


@pytest.mark.parametrize(("free", "refused"), [(500, False), (141, False), (139, True), (10, True)])
def test_a_tenth_of_the_file_system_stays_free(monkeypatch: pytest.MonkeyPatch, free: int, refused: bool) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: Room(free))
    refusal, _ = fio_bench.judge_space("/data", fio_bench.parts_of("guide-randread"))
    assert bool(refusal) is refused
    if refusal:
        assert refusal["status"] == "incomplete"
        assert "40.0 GiB" in str(refusal["reason"])


def test_without_a_size_the_free_space_decides() -> None:
    part = fio_bench.parts_of("seqread")[0]
    assert fio_bench.job_size(part, 10 * 1024**4) == 4 * 1024**3
    assert fio_bench.job_size(part, 80 * 1024**3) == 2 * 1024**3
    assert fio_bench.job_size(part, 1024**3) * part.numjobs == 1024**3


def fake_run(results: dict[str, str], seen: list[list[str]]) -> fio_bench.Runner:
    def answering(argv: Any, directory: str, timeout: float) -> run.Result:
        seen.append(list(argv))
        engine = next(option.split("=")[1] for option in argv if option.startswith("--ioengine="))
        return run.Result(0, results[engine], "", 0.1, None)

    return answering


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (answer(job(error=38)), "Function not implemented"),
        (answer(job(error=1)), "Operation not permitted"),
        (answer(job(error=11)), "Resource temporarily unavailable"),
        (answer(job(error=-1)), "error -1"),
        ("fio: engine libaio not loadable", "not loadable"),
    ],
)
def test_an_engine_that_is_forbidden_here_gives_way_to_the_next(tmp_path: Path, refusal: str, told: str) -> None:
    seen: list[list[str]] = []
    runner = fake_run({"libaio": refusal, "io_uring": refusal, "psync": answer(job(modern()))}, seen)
    [(_, result)] = fio_bench.measure(
        "fio", str(tmp_path), fio_bench.parts_of("seqread"), fio_bench.ENGINES, None, runner
    )
    assert (result["engine"], len(seen)) == ("psync", 3)
    assert told in result["passed_over"][0]
    [check] = fio_json.judge(
        "randread", cast("fio_json.Document", result["document"]), "nvme5", passed_over=result["passed_over"]
    )
    assert "slower I/O engine" in str(check["reason"]), "the disk is not blamed for the engine"
    assert told in str(check["evidence"])


@pytest.mark.parametrize(("error", "told"), [(11, "no room"), (-1, "could not set up its I/O engine")])
def test_an_engine_that_no_other_could_replace_is_told_with_its_cause(error: int, told: str) -> None:
    assert told in str(judged(answer(job(modern(), error=error)))["reason"])


def test_an_error_of_the_disk_is_not_tried_away_with_other_engines(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    runner = fake_run({"libaio": answer(job(error=5))}, seen)
    [(_, result)] = fio_bench.measure(
        "fio", str(tmp_path), fio_bench.parts_of("seqread"), fio_bench.ENGINES, None, runner
    )
    assert len(seen) == 1
    assert result["document"]
    assert result["document"]["errors"]


def test_the_private_directory_goes_when_the_run_fails(tmp_path: Path) -> None:
    def explode(argv: Any, directory: str, timeout: float) -> run.Result:
        (Path(directory) / "leftover").write_text("x")
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        list(fio_bench.measure("fio", str(tmp_path), fio_bench.parts_of("quick"), ["psync"], None, explode))
    assert list(tmp_path.iterdir()) == []


def parameters(tmp_path: Path, **changes: Any) -> Any:
    given = dict.fromkeys(
        (
            "size",
            "runtime",
            "ramp",
            "numjobs",
            "iodepth",
            "timeout",
            "expected_read_mb",
            "expected_write_mb",
            "expected_iops",
        )
    )
    return {
        **given,
        "directory": str(tmp_path),
        "profile": "quick",
        "executable": "fio",
        "disk_class": "auto",
        **changes,
    }


def test_a_missing_fio_is_incomplete_with_a_remedy(tmp_path: Path) -> None:
    result = module.prove(parameters(tmp_path, executable="fio-of-another-world"), check_mode=False)
    assert [check["status"] for check in result["checks"]] == ["incomplete"]
    assert "install" in str(result["checks"][0]["remedy"])


@pytest.mark.parametrize(
    ("content", "mode", "told", "action"),
    [
        ("#!/bin/sh\n", 0o644, "may not execute", "configure"),
        ("\x7fELF of another world", 0o755, "can execute", "install"),
    ],
)
def test_a_fio_that_is_there_and_does_not_start_is_not_called_missing(
    tmp_path: Path, content: str, mode: int, told: str, action: str
) -> None:
    program = tmp_path / "fio"
    program.write_text(content)
    program.chmod(mode)
    [check] = module.prove(parameters(tmp_path, executable=str(program)), check_mode=False)["checks"]
    assert (check["status"], check["action"]) == ("incomplete", action)
    assert told in str(check["reason"])


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    result = module.prove(parameters(tmp_path, executable="/bin/false"), check_mode=True)
    assert result["checks"][0]["status"] == "skip"


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a disk: /tmp, and with it tmp_path, may lie in memory, where nothing can be measured."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@needs_fio
def test_the_real_fio_measures_and_leaves_nothing(on_disk: Path) -> None:
    result = module.prove(parameters(on_disk, size="8M", runtime=1), check_mode=False)
    assert checks.verdict(result["checks"]) == "pass"
    assert {check["id"] for check in result["checks"]} == {"fio.seqread", "fio.randread", "fio.disk", "fio.link"}
    assert result["iops"] > 0
    assert result["bw_bytes"] > 0
    assert result["clat_ns"]["percentiles"]["99"] > 0
    assert list(on_disk.iterdir()) == []


@needs_fio
def killed(parent: Path) -> Path:
    """What a run left that was killed (SIGKILL): its directory with files of gigabytes, which nobody has open."""
    program = (
        "import os, signal\n"
        "from ansible_collections.gpuwright.node.plugins.module_utils.measure import fio_bench\n"
        f"with fio_bench.private_directory({str(parent)!r}) as inside:\n"
        "    open(inside + '/read.0.0', 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    (left,) = parent.glob(".gpuwright-fio-*")
    assert list(left.iterdir()) == [left / "read.0.0"]
    return left


def test_what_a_killed_run_left_goes_before_the_next_one_asks_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, seen = killed(tmp_path), []

    def judge_space(*_arguments: object) -> tuple[Check, list[Any]]:
        seen.append(left.exists())
        return checks.skipped("fio.space", "not asked here"), []

    monkeypatch.setattr(fio_bench, "judge_space", judge_space)
    module.prove(parameters(tmp_path, executable="/bin/true"), check_mode=False)
    assert seen == [False]


def test_what_is_in_use_or_somebody_elses_is_not_cleared(tmp_path: Path) -> None:
    open_to_others, elsewhere = tmp_path / ".gpuwright-fio-open", tmp_path / "elsewhere"
    for each in (open_to_others, elsewhere):
        each.mkdir(mode=0o755)
        (each / "data").touch()
    elsewhere.chmod(0o700)
    (tmp_path / ".gpuwright-fio-link").symlink_to(elsewhere)
    (tmp_path / ".gpuwright-fio-empty").mkdir(mode=0o700)
    (tmp_path / ".gpuwright-fio-deep/more").mkdir(mode=0o700, parents=True)
    (tmp_path / ".gpuwright-fio-deep").chmod(0o700)
    with fio_bench.private_directory(str(tmp_path)) as inside:
        Path(inside, "read.0.0").touch()
        assert fio_bench.clear(str(tmp_path)) == []
        assert Path(inside, "read.0.0").exists()
    assert (open_to_others / "data").exists()
    assert (elsewhere / "data").exists()
    assert (tmp_path / ".gpuwright-fio-deep/more").is_dir()


def test_a_colon_and_a_blank_in_the_directory_do_not_lead_elsewhere(tmp_path: Path) -> None:
    odd = tmp_path / "a:b c"
    odd.mkdir()
    result = module.prove(parameters(odd, profile="seqwrite", size="4M", runtime=1, ramp=0), check_mode=False)
    assert result["parts"]["seqwrite"]["rc"] == 0
    assert list(tmp_path.iterdir()) == [odd]
    assert list(odd.iterdir()) == []


def working_below(directory: Path) -> list[str]:
    """Processes whose working directory is, or was, inside a directory."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [place for place in found if place.startswith(str(directory))]


@needs_fio
def test_a_task_that_is_terminated_ends_fio_and_removes_its_files(tmp_path: Path) -> None:
    roots = [path for path in sys.path if path]
    program = (
        f"import sys; sys.path[:0] = {roots!r}\n"
        "from ansible_collections.gpuwright.node.plugins.module_utils.measure import fio_bench as b\n"
        "with b.ending_cleanly():\n"
        f"    list(b.measure('fio', {str(tmp_path)!r}, b.parts_of('quick', runtime=60), ['psync']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob(fio_bench.PREFIX + "*/seqread*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()), "fio never began"
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert b"ended by signal 15" in told
    assert not working_below(tmp_path), "fio goes on"
    assert list(tmp_path.iterdir()) == []


def test_a_fio_that_hangs_is_killed_and_incomplete(tmp_path: Path) -> None:
    stuck = tmp_path / "fio"
    stuck.write_text('#!/bin/sh\n[ "$1" = --enghelp ] && { echo psync; exit 0; }\nsleep 60\n')
    stuck.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    started = time.monotonic()
    result = module.prove(
        parameters(data, executable=str(stuck), timeout=1, profile="seqread", size="1M"), check_mode=False
    )
    assert time.monotonic() - started < 10
    assert result["checks"][0]["status"] == "incomplete"
    assert list(data.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------------
# Figures that cannot all be right
# --------------------------------------------------------------------------------------------------------------------

CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "operations beyond their count": {"iops": 9e9},
    "operations that agree with their count and move less than a byte each": {"iops": 9e9, "total_ios": 27_000_000_000},
    "few operations": {"iops": 1.0},
    "a rate beyond the bytes": {"bw_bytes": 9_000 * MB, "bw": 8_789_062},
    "a rate below the bytes": {"bw_bytes": 1 * MB, "bw": 976},
    "two rates": {"bw": 9},
    "a millisecond": {"runtime": 1},
    "a millisecond in which all was moved": {"runtime": 1, "bw_bytes": 3_000_000 * MB, "bw": 2_929_687_500, "iops": 75e7},
    "a day": {"runtime": 86_400_000},
    "bytes": {"io_bytes": 4096},
    "no operation": {"total_ios": 1},
    "the least of the rates is negative": {"bw_min": -1},
    "the least of the operations is negative": {"iops_min": -5},
    "the least of the operations is a negative text": {"iops_min": "-5"},
    "a mean is negative": {"bw_mean": -0.5},
    "a latency is negative": {"lat_ns": {"min": -1, "max": 5, "mean": 2, "stddev": 1}},
    "a latency on the way is negative": {"slat_ns": {"min": 0, "max": 5, "mean": -2, "stddev": 1}},
    "a bin is negative": {"clat_ns": {**modern()["clat_ns"], "bins": {"100": -4}}},
}  # fmt: skip


@pytest.mark.parametrize("part", ["seqread", "randread", "seqwrite"])
@pytest.mark.parametrize("told", CONTRADICTIONS)
def test_figures_that_contradict_each_other_are_no_measurement(part: str, told: str) -> None:
    side = modern(**CONTRADICTIONS[told])
    text = answer(job(write=side) if part == "seqwrite" else job(side))
    assert outcome(part, text, seconds=None) == "incomplete"


def test_a_size_of_requests_that_the_rates_do_not_have_is_a_contradiction() -> None:
    for size, status in (
        ("4k", "pass"),
        ("4096", "pass"),
        ("1M", "incomplete"),
        ("512", "incomplete"),
        ("4k,8k", "pass"),
    ):
        asked = {**job(modern()), "job options": {"bs": size}}
        assert outcome("seqread", answer(asked)) == status, size
        whole = json.dumps({**json.loads(answer(job(modern()))), "global options": {"bs": size}})
        assert outcome("seqread", whole) == status, size


def test_short_runs_and_rounded_figures_are_no_contradiction() -> None:
    short = {"io_bytes": 4096, "bw_bytes": 4_096_000, "bw": 4000, "iops": 1000.0, "runtime": 1, "total_ios": 1}
    assert outcome("seqread", answer(job(modern(**short))), seconds=None) == "pass"
    short = {"io_bytes": 4 * 4096, "bw_bytes": 10_000_000, "bw": 9765, "iops": 2441.0, "runtime": 2, "total_ios": 4}
    assert outcome("seqread", answer(job(modern(**short))), seconds=None) == "pass"
    old = {"io_bytes": 1440, "bw": 10, "iops": 2, "runtime": 135_476, "clat": {"min": 10, "max": 90, "mean": 20.5}}
    text = answer({"jobname": "t", "error": 0, "read": old}, version="fio-2.1.4")
    assert outcome("seqread", text, seconds=None) == "pass"


@pytest.mark.parametrize(
    "errors",
    [
        {"total_err": 3, "first_error": 0},
        {"total_err": 3},
        {"total_err": None, "first_error": 0},
        {"total_err": "junk", "first_error": 0},
        {"total_err": -1, "first_error": 0},
    ],
)
def test_errors_that_were_counted_are_errors_though_the_first_one_has_no_number(errors: dict[str, Any]) -> None:
    text = answer({**job(modern()), **errors})
    assert fio_json.parse(text)["errors"][0]["errno"] is None
    assert outcome("seqread", text) == "incomplete"
    assert outcome("seqread", answer({**job(modern()), "total_err": 0, "first_error": 0})) == "pass"
    assert outcome("seqread", answer({**job(modern()), "total_err": 3, "first_error": 5})) == "fail"


def test_a_second_document_makes_both_no_result() -> None:
    good, bad = answer(job(modern())), answer(job(modern(), error=5))
    line = json.dumps(json.loads(bad))
    for text in (good + "\n" + bad, bad + "\n" + good, good + line, line + "\n" + good, good + "\n{\n", good + good):
        assert outcome("seqread", text) == "incomplete"
        with pytest.raises(fio_json.FioError, match="more than one document"):
            fio_json.parse(text)
    assert outcome("seqread", good, stderr=bad) == "incomplete"


def test_a_name_that_stands_twice_with_different_values_is_no_result() -> None:
    good = answer(job(modern()))
    for text in (
        good.replace('"error": 0', '"error": 5, "error": 0'),
        good.replace('"iops": 250000.0', '"iops": 1.0, "iops": 250000.0'),
    ):
        assert text != good
        assert outcome("seqread", text) == "incomplete"
    assert outcome("seqread", good.replace('"error": 0', '"error": 0, "error": 0')) == "pass"


# --------------------------------------------------------------------------------------------------------------------
# What the figures mean
# --------------------------------------------------------------------------------------------------------------------


def test_reads_of_shards_are_told_as_images_for_each_worker() -> None:
    told = str(fio_meaning.sentence("shards", 2_000 * MB, 15_259, 8))
    # 2,000,000,000 / 114,660 = 17,443 images, an eighth of them 2,180; 400 / 0.224 = 1,786 for an H100.
    for words in ("2,000 MB/s", "17,443 images", "114,660 bytes", "2,180 for each of 8 workers", "1,786"):
        assert words in told
    assert "each of" not in str(fio_meaning.sentence("seqread", 2_000 * MB, 1907, 1))


@pytest.mark.parametrize(
    ("rate", "told"),
    [(2_000, "8B (105 GB) in 52 s"), (2_000, "70B (912 GB) in 8 min"), (100, "8B (105 GB) in 18 min"), (100, "in 3 h")],
)
def test_a_checkpoint_is_told_by_the_time_that_it_takes(rate: int, told: str) -> None:
    assert told in str(fio_meaning.sentence("checkpoint_write", rate * MB, rate, 1))
    assert told in str(fio_meaning.sentence("checkpoint_read", rate * MB, rate, 1))
    assert "read back" in str(fio_meaning.sentence("checkpoint_read", rate * MB, rate, 1))


def test_small_reads_are_told_as_samples_and_nothing_means_nothing() -> None:
    assert "412,000 reads of 4 KiB a second are as many samples of 2,048 tokens" in str(
        fio_meaning.sentence("randread", 412_000 * 4096, 412_000, 4)
    )
    for part in fio_json.FIGURES:
        assert fio_meaning.sentence(part, 1e9, 1000, 1), part
        assert fio_meaning.sentence(part, 0, 0, 8) is None, part


def stand_in(tmp_path: Path, text: str) -> str:
    """A fio that lists its engines and answers every run with the same text."""
    program = tmp_path / "fio"
    (tmp_path / "answer").write_text(text)
    program.write_text(f'#!/bin/sh\n[ "$1" = --enghelp ] && {{ echo psync; exit 0; }}\ncat {tmp_path}/answer\n')
    program.chmod(0o755)
    return str(program)


def proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> module.Answer:
    """The answer of the module for 1,000 MB/s in both directions, in a directory that can be read past the page cache."""
    monkeypatch.setattr(fio_bench, "direct_works", lambda _inside: True)
    monkeypatch.setattr(disk_class, "file_system_of", lambda _path: "ext4")
    data = tmp_path / "data"
    data.mkdir()
    text = answer(job(modern(), modern()))
    given = {"size": "1M", "runtime": 3, "executable": stand_in(tmp_path, text), **changes}
    return module.prove(parameters(data, **given), check_mode=False)


def test_the_answer_has_the_disk_its_floors_and_what_the_figures_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = disk_class.Layer(
        "disk", "NVMe PCIe 4.0 x4 (Example)", (), "nvme0n1", "nvme4", "Example", disk_class.Link(16.0, 4)
    )
    monkeypatch.setattr(disk_class, "behind", lambda _path: disk_class.Layer("file system", "ext4", (layer,)))
    # Its run took three seconds: what ends by its size is not cut short.
    result = proven(tmp_path, monkeypatch, profile="checkpoint", runtime=60)
    assert result["disk_class"] == "nvme4"
    assert result["disk"]["words"] == "ext4 on NVMe PCIe 4.0 x4 (Example)"
    assert result["disk"]["layers"] == ["NVMe PCIe 4.0 x4 (Example)", "ext4"]
    assert result["disk"]["devices"] == [
        {"name": "nvme0n1", "class": "nvme4", "model": "Example", "link": "PCIe 4.0 x4"}
    ]
    assert result["disk"]["floors"]["seqwrite"] == 2_000 * MB
    assert "oci-hpc" in result["disk"]["floors_from"]
    found = {check["id"]: check for check in result["checks"]}
    assert {name: check["status"] for name, check in found.items()} == {
        "fio.checkpoint_write": "warn",
        "fio.checkpoint_read": "warn",
        "fio.disk": "pass",
        "fio.link": "pass",
    }
    assert "ext4 on NVMe PCIe 4.0 x4 (Example)" in str(found["fio.checkpoint_write"]["reason"])
    assert found["fio.checkpoint_read"]["expected"] == {"floor": 5000.0}
    assert result["meaning"].count("At 1,000 MB/s a checkpoint") == 2
    gate.admit("fio", json.dumps({"changed": False, **checks.with_verdict(result)}))


def test_a_disk_that_is_not_known_is_told_and_its_figures_are_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_class, "behind", lambda _path: disk_class.Layer("disk", "a disk of nobody"))
    result = proven(tmp_path, monkeypatch, profile="shards")
    shards, disk, link = result["checks"]
    assert (result["disk_class"], disk["status"], link["status"]) == (None, "warn", "skip")
    assert shards["status"] == "pass"
    assert "a disk of nobody has no floor here. 1,000 MB/s feed about" in str(shards["reason"])
    gate.admit("fio", json.dumps({"changed": False, **checks.with_verdict(result)}))


def test_the_wishes_of_a_person_win_over_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = proven(tmp_path, monkeypatch, profile="sequential", disk_class="hdd", expected_write_mb=1500.0)
    assert result["disk_class"] == "hdd"
    read, write, *_ = result["checks"]
    assert (read["status"], read["expected"]) == ("pass", {"floor": 100.0})
    assert (write["status"], write["expected"]) == ("warn", {"floor": 1500.0})


def test_figures_of_the_page_cache_mean_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fio_bench, "direct_works", lambda _inside: False)
    (tmp_path / "data").mkdir()
    program = stand_in(tmp_path, answer(job(modern())))
    given = parameters(tmp_path / "data", profile="seqread", size="1M", runtime=3, executable=program)
    result = module.prove(given, check_mode=False)
    assert "meaning" not in result
    assert "page cache" in str(result["checks"][0]["reason"])


@needs_fio
def test_the_real_fio_writes_and_reads_a_checkpoint(on_disk: Path) -> None:
    result = module.prove(parameters(on_disk, size="16M", profile="checkpoint"), check_mode=False)
    assert {name: part["rc"] for name, part in result["parts"].items()} == {
        "checkpoint_write": 0,
        "checkpoint_read": 0,
    }
    assert result["parts"]["checkpoint_write"]["io_bytes"] == 16 * 1024**2, "once"
    assert list(on_disk.iterdir()) == []


def test_the_module_is_compared_with_a_person_by_the_ratio_of_medians() -> None:
    found = fio_by_hand.compared([100.0, 400.0, 110.0], [99.0, 110.0, 121.0])
    assert found["ratio"] == pytest.approx(1.0), "one disturbed round moves no median"
    assert found["by hand"] == found["module"] == 110.0
    assert found["least of a round"] == pytest.approx(0.275)
    assert found["most of a round"] == pytest.approx(1.1)
    with pytest.raises(ValueError, match="zip"):
        fio_by_hand.compared([1.0], [1.0, 2.0])


def test_what_a_person_types_asks_for_what_the_module_asks() -> None:
    for profile, (name, line, side, what) in fio_by_hand.LINES.items():
        [part] = fio_bench.parts_of(profile)
        figure = fio_json.FIGURES[name]
        assert (part.name, figure.side, figure.what) == (name, side, what)
        assert set(line.split()) <= set(fio_bench.command("fio", part, "libaio", direct=True)), profile
