"""`resolve --lock` writes a lock, the verbs that work on hosts read and check it before any host is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import __version__, request
from tests.unit.cli.conftest import FakeAnsible, plan_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

ADA = ("--gpu", "RTX 4090", "--os", "ubuntu-24.04", "--arch", "x86_64")
WANTS = ("--want", "cuda=12.8", "--want", "container-toolkit", "--want", "pytorch")
VERBS = ("plan", "up", "validate", "doctor")


@pytest.fixture
def lock(gpuwright: Call, tmp_path: Path) -> Path:
    """A lock file."""
    path = tmp_path / "fleet.lock.json"
    done = gpuwright("resolve", *ADA, *WANTS, "--lock", str(path))
    assert done.code == 0
    assert f"lock: {path}" in done.err
    return path


# --- written ----------------------------------------------------------------------------------------------------------


def test_a_lock_says_what_was_asked_and_with_which_rules(lock: Path) -> None:
    document = json.loads(lock.read_text())
    assert document["gpuwright"] == __version__
    assert {"generated", "digest"} == document["rules"].keys()
    asked = document["question"]
    assert (asked["gpus"], asked["os"], asked["arch"]) == (["GeForce RTX 4090"], "ubuntu-24.04", "x86_64")
    assert asked["want"] == ["cuda=12.8", "container-toolkit", "pytorch"]
    assert document["stack"]["driver"]["version"].count(".") == 2
    assert document["stack"]["cuda"][0]["release"].startswith("12.8.")


def test_a_lock_is_the_same_bytes_each_time_and_reads_line_by_line(gpuwright: Call, lock: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert gpuwright("resolve", *ADA, *WANTS, "--lock", str(again)).code == 0
    assert again.read_bytes() == lock.read_bytes()
    assert lock.read_text().endswith("}\n")
    assert max(len(line) for line in lock.read_text().splitlines()) < 120


def test_hashes_are_refused_without_a_lock_to_go_into_and_from_a_file_that_is_not_there(
    gpuwright: Call, tmp_path: Path
) -> None:
    done = gpuwright("resolve", *ADA, *WANTS, "--hashes", str(tmp_path / "wheels.txt"))
    assert done.code == 2
    assert "--hashes goes into a lock: name its file with --lock" in done.err
    done = gpuwright("resolve", *ADA, *WANTS, "--hashes", str(tmp_path / "wheels.txt"), "--lock", str(tmp_path / "l"))
    assert done.code == 2
    assert f"the file of hashes {tmp_path / 'wheels.txt'} is not there" in done.err
    assert not (tmp_path / "l").exists()


def test_resolve_json_stays_one_document_beside_a_lock(gpuwright: Call, tmp_path: Path) -> None:
    done = gpuwright("resolve", *ADA, "--json", "--lock", str(tmp_path / "l"))
    assert done.json["ok"] is True
    assert (tmp_path / "l").exists()


def test_a_version_that_the_rules_cannot_name_is_left_open_and_said(gpuwright: Call, tmp_path: Path) -> None:
    signed = ("--gpu", "RTX 4090", "--os", "ubuntu-22.04", "--arch", "x86_64", "--assume", "secure_boot=true")
    done = gpuwright("resolve", *signed, "--lock", str(tmp_path / "l"))
    assert done.code == 0
    assert "the lock leaves the version of driver open" in done.err
    assert json.loads((tmp_path / "l").read_text())["stack"]["driver"]["version"] is None
    done = gpuwright("resolve", *signed, "--want", "driver=580.173.02", "--json", "--lock", str(tmp_path / "l"))
    assert "the lock leaves" not in done.err
    assert json.loads((tmp_path / "l").read_text())["stack"]["driver"]["version"] == "580.173.02"


def test_an_observation_can_be_locked(gpuwright: Call, tmp_path: Path) -> None:
    from tests.unit.gate import honest

    (tmp_path / "facts.json").write_text(json.dumps(honest.bare()))
    words = ("resolve", "--facts", str(tmp_path / "facts.json"), "--want", "cuda", "--lock", str(tmp_path / "l"))
    assert gpuwright(*words).code == 0
    assert json.loads((tmp_path / "l").read_text())["question"]["kernel"] == "6.12.94+deb13-amd64"


def test_a_refused_wish_writes_no_lock(gpuwright: Call, tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    assert gpuwright("resolve", "--gpu", "B200", "--want", "driver=470", "--lock", str(path)).code == 3
    assert not path.exists()


def test_a_lock_that_cannot_be_written_is_bad_input(gpuwright: Call) -> None:
    done = gpuwright("resolve", *ADA, "--lock", "/no/such/dir/lock")
    assert done.code == 2
    assert "cannot be written" in done.err


def test_nothing_is_no_lock(gpuwright: Call, tmp_path: Path) -> None:
    words = ("resolve", "--os", "ubuntu-24.04", "--lock", str(tmp_path / "l"))
    done = gpuwright(*words)
    assert done.code == 2
    assert "no stack to lock" in done.err
    assert not (tmp_path / "l").exists()


# --- read -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_lock_is_carried_to_the_hosts_as_it_is(gpuwright: Call, ansible: FakeAnsible, lock: Path, verb: str) -> None:
    ansible.plans = {"a": plan_record("a", changes=[], reboot=False, verdict="pass")}
    gpuwright(verb, "--yes", "-i", "a,", "--lock", str(lock))
    (wanted,) = ansible.requests[:1]
    assert wanted.extra_vars["gpuwright_lock"] == json.loads(lock.read_text())
    assert "gpuwright_wish" not in wanted.extra_vars
    assert "gpuwright_want" not in wanted.extra_vars


def test_without_a_lock_none_is_carried(gpuwright: Call, ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a")}
    gpuwright("plan", "-i", "a,")
    assert "gpuwright_lock" not in ansible.requests[0].extra_vars


def test_the_run_directory_keeps_the_lock_for_ansible(gpuwright: Call, ansible: FakeAnsible, lock: Path) -> None:
    ansible.plans = {"a": plan_record("a")}
    gpuwright("plan", "-i", "a,", "--lock", str(lock))
    wanted = ansible.requests[0]
    request.write_files(wanted)
    written = json.loads((wanted.run_dir / "extravars.json").read_text())
    assert written["gpuwright_lock"] == json.loads(lock.read_text())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("not json", "is not JSON"),
        ("[" * 5000, "is not JSON"),
        ("[]", "is not a lock of gpuwright"),
        ('{"ok": true, "stack": {}}', "is not a lock of gpuwright"),
        ('{"lock": 2, "gpuwright": "9.0"}', "written by gpuwright 9.0 in format 2"),
        ('{"lock": 1}', "gpuwright is missing"),
        ('{"lock": 1, "colour": 1}', "a key 'colour' that this version does not know"),
    ],
)
def test_a_broken_lock_is_one_message_and_no_host_is_asked(
    gpuwright: Call, ansible: FakeAnsible, tmp_path: Path, verb: str, text: str, told: str
) -> None:
    (tmp_path / "lock").write_text(text)
    done = gpuwright(verb, "--yes", "-i", "a,", "--lock", str(tmp_path / "lock"), "--report", str(tmp_path / "r"))
    assert done.code == 2
    assert told in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err
    assert not ansible.requests
    assert not (tmp_path / "r").exists()


def test_a_lock_that_is_not_there_is_bad_input(gpuwright: Call, ansible: FakeAnsible) -> None:
    done = gpuwright("up", "--yes", "--lock", "/no/such/lock")
    assert done.code == 2
    assert "the lock file /no/such/lock is not there" in done.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("other", ["--want", "--wish"])
def test_a_lock_and_a_wish_for_another_version_are_bad_input(
    gpuwright: Call, ansible: FakeAnsible, lock: Path, tmp_path: Path, verb: str, other: str
) -> None:
    (tmp_path / "wish.yml").write_text("cuda_versions: ['13.0']\n")
    value, said = (
        ("cuda=13.0", "cuda=13.0") if other == "--want" else (str(tmp_path / "wish.yml"), "cuda_versions: ['13.0']")
    )
    done = gpuwright(verb, "--yes", "--lock", str(lock), other, value)
    assert done.code == 2
    assert "the lock and" in done.err
    assert said in done.err
    assert not ansible.requests


def test_what_has_no_version_in_a_lock_is_wished_beside_it(gpuwright: Call, ansible: FakeAnsible, lock: Path) -> None:
    ansible.plans = {"a": plan_record("a")}
    assert gpuwright("plan", "-i", "a,", "--lock", str(lock), "--want", "gpu-log", "--want", "cuda").code == 0
    assert ansible.requests[0].extra_vars["gpuwright_want"] == ["gpu-log", "cuda"]
