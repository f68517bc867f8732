"""Every way out has one place where credentials are taken out: the run directory, reports, records of the node, the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import sealing, seals
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory
from gpuwright import console, paths, progress, request, runner
from gpuwright.parser import parse
from gpuwright.privilege import Privilege

SECRET = "s3cr3t"
ADDRESS = f"https://me:{SECRET}@mirror.example/cuda"
WORDS = f"Failed to fetch {ADDRESS}/Packages 401 Unauthorized"


def in_files(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and SECRET in path.read_text()]


def told(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_a_document_of_the_run_directory_has_no_credentials(tmp_path: Path) -> None:
    run_directory.write_document(tmp_path / "facts", "a", {"sources": [{"uris": [ADDRESS]}], ADDRESS: 1})
    assert in_files(tmp_path) == []
    assert "mirror.example" in told(tmp_path)


def test_no_form_of_the_report_has_credentials(tmp_path: Path) -> None:
    directory = report.open_run(tmp_path / "run", "up")
    check = {"id": "x", "status": "fail", "severity": "critical", "reason": WORDS, "remedy": WORDS}
    report.write_host(directory, "a", {"checks": [check], "failure": {"task": "t", "message": WORDS}})
    report.aggregate(directory, unreachable={"b": WORDS}, failed={"c": WORDS})
    assert {path.name for path in directory.iterdir()} >= {"report.json", "report.html", "junit.xml"}
    assert in_files(directory) == []
    for name in ("report.json", "report.html", "junit.xml"):
        assert "***@mirror.example" in (directory / name).read_text()


def test_a_record_on_the_node_has_no_credentials(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    sealing.write_object(host, seals.path_of("cuda"), {"stack": {"addresses": [ADDRESS]}})
    assert in_files(tmp_path) == []
    assert "***@mirror.example" in told(tmp_path)


@pytest.mark.parametrize(
    "say",
    [
        lambda: console.out(WORDS),
        lambda: console.note(WORDS),
        lambda: console.error(WORDS, [WORDS]),
        lambda: console.json_document({"reason": WORDS, ADDRESS: [ADDRESS]}),
    ],
)
def test_nothing_that_is_printed_has_credentials(say: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    say()
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    assert "***@mirror.example" in captured.out + captured.err


def test_the_screen_that_moves_has_no_credentials() -> None:
    from rich.console import Console

    shown = progress.LiveProgress("up")
    shown._spinner = type("Spinner", (), {"update": lambda *_, **__: None, "__rich__": lambda _: ""})()
    failed: Any = {"host": "a", "task": "t", "res": {"msg": WORDS}}
    shown.take({"event": "runner_on_failed", "event_data": failed})
    shown.take({"event": "runner_on_start", "event_data": {"host": "b", "task": WORDS}})
    screen = Console(width=200)
    with screen.capture() as captured:
        screen.print(shown._render())
    assert SECRET not in captured.get()
    assert "***@mirror.example" in captured.get()


@pytest.fixture
def wanted(tmp_path: Path) -> request.Request:
    """A run with secrets in its options, as ansible-runner finds it."""
    made = request.build(
        parse(["up", "-e", f"token={SECRET}"]),
        run_dir=tmp_path,
        playbook="site",
        privilege=Privilege(become=False, privileged=True),
        wish={"gpuwright_mirrors": {"nvidia": ADDRESS}},
    )
    (tmp_path / "ansible" / "artifacts" / "site").mkdir(parents=True, mode=0o700)
    (tmp_path / paths.MARKER).touch()
    request.write_files(made)
    assert len(in_files(tmp_path)) == 2
    return made


def test_ansibles_words_are_kept_for_their_user_alone_and_without_credentials(wanted: request.Request) -> None:
    seen: list[Any] = []
    take = runner._without_files(wanted, seen.append)
    events: list[Any] = [
        {"event": "verbose", "stdout": ""},
        {"event": "playbook_on_start", "stdout": ""},
        {"event": "runner_on_failed", "stdout": f"fatal: [a]: FAILED! =>\n    msg: {WORDS}"},
        {"event": "verbose", "stdout": f"[WARNING]: https://{SECRET}@mirror.example"},
    ]
    assert not any(take(event) for event in events)
    assert seen == events
    log = runner._log(wanted)
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.read_text().startswith("\nfatal: [a]: FAILED! =>\n    msg: Failed to fetch https://***@mirror.example")
    assert in_files(wanted.run_dir) == []


def test_the_variables_are_forgotten_as_soon_as_ansible_has_read_them(wanted: request.Request) -> None:
    take = runner._without_files(wanted, lambda _event: None)
    take({"event": "verbose", "stdout": "Using /etc/ansible/ansible.cfg"})
    assert len(in_files(wanted.run_dir)) == 2
    take({"event": "playbook_on_start", "stdout": ""})
    assert in_files(wanted.run_dir) == []


def test_they_are_forgotten_where_ansible_does_not_even_begin(wanted: request.Request) -> None:
    with pytest.raises(OSError, match="gone"), runner._forgetting(wanted):
        raise OSError("gone")
    assert in_files(wanted.run_dir) == []


def test_a_run_of_the_real_ansible_leaves_no_secret_in_its_folder(
    wanted: request.Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ADDRESS.replace(SECRET, "{{ token }}")
    task = {"name": "Say it", "ansible.builtin.debug": {"msg": said}}
    (tmp_path / "playbook.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    monkeypatch.setattr("gpuwright.paths.playbook", lambda _name: tmp_path / "playbook.yml")
    words: list[str] = []
    assert runner.backend(replace(wanted, verbosity=4), lambda event: words.append(str(event.get("stdout")))) == (
        0,
        "successful",
    )
    assert any(ADDRESS in word for word in words)
    log = runner._log(wanted).read_text()
    assert "https://***@mirror.example/cuda" in log
    assert log.count("PLAY RECAP") == 1
    assert in_files(tmp_path) == []


def test_nothing_in_the_command_line_prints_around_the_console() -> None:
    source = Path(console.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"(?<!console\.)\bprint\(|std(?:out|err)\.write\(", path.read_text())
    }
    # A shell evaluates what `completion` prints: it holds names of options and nothing of a run.
    assert found == {"console.py", "commands/completion.py"}
