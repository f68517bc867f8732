"""What is told of dnf's answer; dnf itself is asked on the simulated node (tests/integration/test_rocky.py)."""

from __future__ import annotations

import ast
import base64
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_question, private_dnf
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import systems
from tests.unit.observe.test_openpgp import armoured, fingerprint, key_file

ARMOURED, FINGERPRINT = armoured(key_file(1)), fingerprint(1)
ROW = {"name": "nvidia-driver-cuda", "version": "3:580.178.04-1.el9", "from": None}
TOLD: dict[str, Any] = {
    "packages": {"nvidia-driver-cuda": {"candidate": "3:580.178.04-1.el9", "versions": ["3:580.178.04-1.el9"]}},
    "others": {},
    "install": [{**ROW, "download_bytes": 100, "installed_bytes": 300}],
    "removes": [],
    "downgrades": [],
    "freed_bytes": 50,
    "enabled": [],
    "problems": [],
}


class Dnf:
    """A Python with dnf's bindings that answers as it is told; remembers the question and the program."""

    def __init__(self, told: dict[str, Any] | None, error: str = "", *, bindings: bool = True) -> None:
        self.told, self.error, self.bindings = told, error, bindings
        self.question: dict[str, Any] = {}
        self.program = ""

    def __call__(self, argv: list[str], timeout: float = 0, stdin: bytes | None = None, **_other: Any) -> Result:
        if "-c" in argv:
            return Result(0 if self.bindings else 1, "", "", 0.0, None)
        self.question = json.loads(Path(argv[-1]).read_text())
        self.program = (stdin or b"").decode()
        if self.told is None:
            return Result(1, "", self.error, 0.0, None)
        return Result(0, json.dumps(self.told), "", 0.0, None)


def repository(**more: Any) -> Any:
    key = {"url": "http://m.example/key", "fingerprint": FINGERPRINT, "path": "/none"}
    return {"name": "nvidia-cuda", "uris": ["http://m.example/"], "key": key, "signed": "packages", **more}


def asked(dnf: Dnf, *, key: bytes = ARMOURED, **more: Any) -> Any:
    wanted = ["nvidia-driver-cuda"]
    return private_dnf.ask([repository(**more)], wanted, {"/./": "580."}, 5, runner=dnf, getter=lambda *_: key)


def test_versions_and_bytes_are_told() -> None:
    dnf = Dnf(TOLD)
    seen = asked(dnf)
    assert seen["problems"] == []
    assert seen["packages"] == TOLD["packages"]
    assert (seen["download_bytes"], seen["disk_bytes"]) == (100, 250)
    assert dnf.question["keep"] == {"/./": "580."}
    assert not Path(dnf.question["directory"]).exists()


def test_the_key_is_checked_before_dnf_sees_the_repository() -> None:
    dnf = Dnf({**TOLD, "packages": {}, "install": []})
    seen = asked(dnf, key=b"a page of a portal")
    assert dnf.question["repositories"] == []
    assert [(row["kind"], row["repository"]) for row in seen["problems"]] == [("wrong-key", "nvidia-cuda")]


def test_a_key_that_cannot_be_fetched_is_unreachable() -> None:
    def fails(*_arguments: Any) -> bytes:
        raise FetchError("no route")

    seen = private_dnf.ask([repository()], ["x"], {}, 5, runner=Dnf(TOLD), getter=fails)
    assert seen["problems"][0]["kind"] == "unreachable"


def test_a_bad_signature_names_the_key_that_was_expected() -> None:
    problems = [{"kind": "bad-signature", "text": "bad GPG signature", "repository": "nvidia-cuda", "package": None}]
    (row,) = asked(Dnf({**TOLD, "problems": problems}))["problems"]
    assert FINGERPRINT in row["text"]
    assert row["remedy"]


@pytest.mark.parametrize(
    ("name", "kernel", "newest"),
    [
        ("kernel-devel-4.18.0-553.el8_10.x86_64", "kernel", False),
        ("kernel-devel-matched-5.14.0-1.el9.x86_64", "kernel", True),
        ("kernel-64k-devel-matched-5.14.0-1.el9.aarch64", "kernel-64k", True),
        ("kernel-64k-devel-5.14.0-1.el9.aarch64", "kernel-64k", False),
        ("kernel-rt-devel-5.14.0-1.el9.x86_64", "kernel-rt", False),
    ],
)
def test_headers_that_are_gone_have_a_remedy_of_their_own(name: str, kernel: str, newest: bool) -> None:
    """Another kernel may be allowed where the plan then names the newest headers, which bring it."""
    problems = [{"kind": "no-such-package", "text": "no repository offers it", "repository": None, "package": name}]
    (row,) = asked(Dnf({**TOLD, "problems": problems}))["problems"]
    assert f"(dnf upgrade {kernel})" in row["remedy"]
    assert ("nvidia_driver_allow_kernel" in row["remedy"]) == newest
    assert (systems.headers_of_newest(name) is not None) == newest


def test_without_bindings_and_without_an_answer_there_is_a_problem_and_no_traceback() -> None:
    (row,) = asked(Dnf(TOLD, bindings=False))["problems"]
    assert "dnf's bindings" in row["text"]
    assert row["remedy"] == "install python3-dnf"
    seen = asked(Dnf(None, "Error: cannot lock"))
    assert [(row["kind"], row["text"]) for row in seen["problems"]] == [("unsolvable", "Error: cannot lock")]
    assert (seen["download_bytes"], seen["packages"]) == (None, {})


def test_the_program_runs_under_the_python_of_rhel_8() -> None:
    dnf = Dnf(TOLD)
    asked(dnf)
    tree = ast.parse(dnf.program, feature_version=(3, 6))
    imports = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imports == {
        "dnf",
        "fnmatch",
        "glob",
        "hawkey",
        "json",
        "libdnf",
        "logging",
        "os",
        "re",
        "shutil",
        "sys",
        "typing",
    }
    # 3.6 evaluates annotations, and knows neither list[str] nor str | None.
    hints = [
        node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation
    ]
    hints += [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
    assert all(isinstance(hint, ast.Name | ast.Constant) for hint in hints)


@pytest.mark.parametrize(
    ("version", "start", "yes"),
    [
        ("3:580.178.04-1.el9", "580.", True),
        ("3:580.178.04-1.el9", "3:580.178.04-1.el9", True),
        ("3:595.112.07-1.el9", "580.", False),
        ("2.30.7-1+cuda13.2", "*+cuda13.?", True),
        ("2.30.7-1+cuda12.9", "*+cuda13.?", False),
    ],
)
def test_a_version_continues_with_or_without_its_epoch(version: str, start: str, yes: bool) -> None:
    assert dnf_question.continues(version, start) is yes


def test_an_epoch_of_zero_is_left_out() -> None:
    package = SimpleNamespace(epoch=0, version="1.20.0", release="1")
    assert dnf_question.evr(package) == "1.20.0-1"
    package.epoch = 3
    assert dnf_question.evr(package) == "3:1.20.0-1"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("repomd.xml GPG signature verification error: Bad GPG signature", "bad-signature"),
        ("Curl error (28): Timeout was reached", "timeout"),
        ("Cannot download repomd.xml: All mirrors were tried", "unreachable"),
    ],
)
def test_errors_of_a_repository_have_the_kinds_of_apts(text: str, kind: str) -> None:
    assert dnf_question.kind_of(text) == kind


def test_a_key_gets_an_armour_for_rpm() -> None:
    keyring = openpgp.keyring(ARMOURED)
    made = openpgp.armour(keyring)
    assert made.startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.encodebytes(keyring)[:20])
    assert openpgp.binary(made) == keyring


# --- sources of somebody else ---------------------------------------------------------------------------------------------


def question() -> dnf_question.Question:
    return dnf_question.Question({"repositories": [repository()]})


def told_of(asked: dnf_question.Question) -> list[tuple[str, Any, bool]]:
    return [(row["kind"], row["source"], row["needed"]) for row in asked.problems]


def source(name: str, **more: Any) -> SimpleNamespace:
    given = {"baseurl": ["http://m.example/"], "metalink": None, "mirrorlist": None, "skip_if_unavailable": False}
    return SimpleNamespace(**{"id": name, "repofile": f"/etc/yum.repos.d/{name}.repo", **given, **more})


def test_a_source_that_nothing_comes_from_is_not_needed() -> None:
    asked = question()
    asked.failed(source("foreign"), "Curl error (28): Timeout was reached")
    assert "/etc/yum.repos.d/foreign.repo" in asked.problems[0]["text"]
    asked.judge_others()
    assert told_of(asked) == [("unreachable", "foreign", False)]


@pytest.mark.parametrize("kind", ["no-such-package", "unsolvable"])
def test_where_something_is_missing_every_source_is_needed(kind: str) -> None:
    asked = question()
    asked.failed(source("foreign"), "no route")
    asked.problem(kind, "no repository offers it")
    asked.judge_others()
    assert told_of(asked)[0] == ("unreachable", "foreign", True)


def test_one_that_is_asked_for_is_needed_and_others_with_it() -> None:
    asked = question()
    asked.failed(source("gpuwright-asked-nvidia-cuda"), "no route")
    asked.failed(source("foreign"), "no route")
    asked.judge_others()
    assert told_of(asked) == [("unreachable", None, True), ("unreachable", "foreign", True)]
    assert asked.problems[0]["repository"] == "nvidia-cuda"


def test_a_source_without_an_address_stops_dnf_where_it_may_not_be_skipped() -> None:
    asked = question()
    asked.failed(source("stops", baseurl=[]), "Cannot find a valid baseurl")
    asked.failed(source("skipped", baseurl=[], skip_if_unavailable=True), "Cannot find a valid baseurl")
    asked.judge_others()
    assert told_of(asked) == [("broken-source", "stops", True), ("broken-source", "skipped", False)]
    assert "/etc/yum.repos.d/stops.repo, [stops]: " in asked.problems[0]["text"]


def test_the_place_of_a_line_that_dnf_cannot_read_is_told() -> None:
    said = "Parsing file '/etc/dnf/dnf.conf' failed: IniParser: Missing '=' at line 2"
    assert dnf_question.unread("/etc/dnf/dnf.conf", said) == "dnf cannot read /etc/dnf/dnf.conf, line 2: Missing '='"
    assert dnf_question.unread("/a.repo", "Is a directory") == "dnf cannot read /a.repo: Is a directory"


def test_bytes_that_are_no_text_are_found_but_in_comments(tmp_path: Path) -> None:
    file = tmp_path / "a.repo"
    file.write_bytes(b"# \xff\n[a]\nname=\xff\n")
    assert dnf_question.foreign_bytes(str(file)) == 3
    file.write_bytes(b"# \xff\n[a]\n")
    assert dnf_question.foreign_bytes(str(file)) is None


def test_dnf_that_cannot_read_its_settings_answers_with_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question()

    def stops() -> None:
        raise dnf_question.Unreadable("dnf cannot read /etc/dnf/dnf.conf, line 2: Missing '='")

    monkeypatch.setattr(asked, "open", stops)
    answer = asked.answer()
    assert (answer["packages"], answer["install"]) == ({}, [])
    assert told_of(asked) == [("broken-source", None, True)]


def test_the_answer_carries_what_is_needed_and_its_source() -> None:
    row = {
        "kind": "unreachable",
        "text": "x",
        "repository": None,
        "package": None,
        "source": "foreign",
        "needed": False,
    }
    seen = asked(Dnf({**TOLD, "problems": [row]}))
    assert [(found["source"], found["needed"]) for found in seen["problems"]] == [("foreign", False)]
    assert seen["download_bytes"] == 100
    left_out = {**row, "kind": "broken-source"}
    assert asked(Dnf({**TOLD, "problems": [left_out]}))["download_bytes"] == 100
    seen = asked(Dnf({**TOLD, "problems": [{**left_out, "needed": True}]}))
    assert "dnf installs nothing" in seen["problems"][0]["remedy"]
    assert seen["download_bytes"] is None


@pytest.mark.parametrize(
    ("without", "with_them", "asked_with", "enabled"),
    [
        ([], [], [None], []),
        (["unsolvable"], [], [None, ["crb"]], ["crb"]),
        # They are no help: what was missing is told as it was.
        (["unsolvable"], ["unsolvable"], [None, ["crb"]], []),
        (["no-such-package"], [], [None], []),
    ],
)
def test_a_repository_that_is_not_enabled_is_asked_only_where_there_is_no_way_without_it(
    monkeypatch: pytest.MonkeyPatch, without: list[str], with_them: list[str], asked_with: list[Any], enabled: list[str]
) -> None:
    seen: list[Any] = []

    def answer(self: dnf_question.Question) -> dict[str, Any]:
        seen.append(self.given.get("enable"))
        kinds = with_them if self.given.get("enable") else without
        return {"enabled": self.given.get("enable", []), "problems": [{"kind": kind} for kind in kinds]}

    monkeypatch.setattr(dnf_question.Question, "answer", answer)
    told = dnf_question.answer({"builders": ["crb"]})
    assert (seen, told["enabled"]) == (asked_with, enabled)
    seen.clear()
    dnf_question.answer({"builders": []})
    assert seen == [None]


def test_the_repositories_that_may_be_asked_are_part_of_the_question_and_of_the_answer() -> None:
    dnf = Dnf({**TOLD, "enabled": ["crb"]})
    found = private_dnf.ask([repository()], ["x"], {}, 5, runner=dnf, getter=lambda *_: ARMOURED, builders=["crb"])
    assert (dnf.question["builders"], found["enabled"]) == (["crb"], ["crb"])


def test_an_index_that_a_dnf_replaces_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, question = tmp_path / "cache", object.__new__(dnf_question.Question)
    (cache / "baseos/repodata").mkdir(parents=True)
    for name in ("primary.xml.gz", "filelists.xml.gz"):
        (cache / "baseos/repodata" / name).write_text(name)
    question.given = {"directory": str(tmp_path / "private")}

    def patterns(*_patterns: str) -> Any:
        """The other dnf is quicker by a moment, after a directory was listed."""
        return lambda folder, names: [each for each in names if Path(folder, each).is_file() and _gone(folder, each)]

    def _gone(folder: str, name: str) -> bool:
        if name == "primary.xml.gz":
            Path(folder, name).unlink()
        return False

    monkeypatch.setattr(shutil, "ignore_patterns", patterns)
    question.copy_cache(str(cache))
    copied = tmp_path / "private/cachedir/baseos/repodata"
    assert [each.name for each in copied.iterdir()] == ["filelists.xml.gz"]


def test_a_full_disk_is_no_index_that_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = object.__new__(dnf_question.Question)
    question.given = {"directory": str(tmp_path / "private")}
    full = shutil.Error([("a", "b", "[Errno 28] No space left on device")])
    monkeypatch.setattr(shutil, "copytree", Mock(side_effect=full))
    with pytest.raises(shutil.Error):
        question.copy_cache(str(tmp_path))
