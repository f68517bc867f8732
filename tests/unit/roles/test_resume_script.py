"""What the unit runs after the boot, rendered as Ansible renders it, with systemctl and wall replaced on PATH."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import resume

ROLE = Path(__file__).resolve().parents[3] / "roles/reboot"
UNIT = "gpuwright-resume.service"


class Machine:
    """A root with the unit enabled and a stand-in for the command."""

    def __init__(self, root: Path, command: str, limit: int = 60) -> None:
        self.root = root
        self.job = root / "resume"
        self.units = root / "units"
        wants = self.units / "multi-user.target.wants"
        wants.mkdir(parents=True)
        (self.units / UNIT).touch()
        (wants / UNIT).symlink_to(self.units / UNIT)
        self.job.mkdir()
        (self.job / "wish.json").touch()
        (self.job / "variables-0.json").touch()
        (self.job / "program/lib").mkdir(parents=True)
        fakes = root / "fakes"
        fakes.mkdir()
        for name, text in (("systemctl", f'echo "$*" >>{root}/systemctl'), ("wall", f"cat >>{root}/wall")):
            (fakes / name).write_text(f"#!/bin/sh\n{text}\n")
            (fakes / name).chmod(0o755)
        program = root / "it's python"
        program.write_text(f"#!/bin/sh\n{command}\n")
        program.chmod(0o755)
        prepared: resume.Prepared = {
            "command": [str(program), "-m", "gpuwright", "--want=pytorch>=2.7 'x'"],
            "program": {},
            "files": {"wish.json": {}, "variables-0.json": {}},
            "environment": {"GPUWRIGHT_RESUMED": "1", "http_proxy": "http://proxy:3128/?a b"},
        }
        self.script = self.job / "run"
        self.script.write_text(
            render(
                "gpuwright-resume.sh.j2",
                __reboot_words=resume.words(prepared),
                __reboot_resume_directory=str(self.job),
                limit=limit,
            )
        )
        self.program = program

    @property
    def environment(self) -> dict[str, str]:
        own = {"GPUWRIGHT_UNITS": str(self.units), "GPUWRIGHT_MOTD": str(self.root / "motd.d")}
        return {**os.environ, **own, "PATH": f"{self.root / 'fakes'}:{os.environ['PATH']}"}

    def run(self) -> str:
        done = subprocess.run(
            ["/bin/sh", str(self.script)], capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def left(self) -> list[str]:
        """What lies around: units, the job's own files."""
        return sorted(
            path.name
            for place in (self.units, self.units / "multi-user.target.wants", self.job)
            for path in place.iterdir()
            if not path.is_dir()
        )


def render(name: str, limit: int = 60, **variables: Any) -> str:
    # As ansible.builtin.template does it: a shell script is no page.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(ROLE / "templates"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = shlex.quote
    given = {"__reboot_resume_unit": UNIT, "reboot_resume_timeout": limit, **variables}
    return environment.get_template(name).render(given)


def test_the_command_gets_its_words_and_its_environment_as_they_were(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 'printf "%s\\n" "$@" "$http_proxy" "$GPUWRIGHT_RESUMED"')
    machine.run()
    said = (machine.job / "output.txt").read_text().splitlines()
    assert said == ["-m", "gpuwright", "--want=pytorch>=2.7 'x'", "http://proxy:3128/?a b", "1"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "done and proven"),
        (1, "NOT proven (exit 1)"),
        (3, "refused before any change"),
        (4, "another boot is needed"),
        (2, "NOT proven (exit 2)"),
    ],
)
def test_the_result_is_told_everywhere_and_nothing_but_it_is_left(tmp_path: Path, code: int, words: str) -> None:
    machine = Machine(tmp_path, f"exit {code}")
    told = machine.run()
    assert words in told
    for place in ("resume/notice", "motd.d/gpuwright-resume", "wall"):
        assert (tmp_path / place).read_text() == told
    assert machine.left == ["notice", "output.txt"]
    assert not (machine.job / "program").exists()
    assert (tmp_path / "systemctl").read_text() == "daemon-reload\n"


def test_everybody_may_read_the_result_and_only_root_the_output(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "true")
    machine.run()
    modes = {
        path: oct((tmp_path / path).stat().st_mode & 0o777)
        for path in ("resume/notice", "motd.d", "motd.d/gpuwright-resume", "resume/output.txt")
    }
    assert list(modes.values()) == ["0o644", "0o755", "0o644", "0o600"]


def test_the_unit_is_gone_before_the_command_runs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, f"ls {tmp_path}/units {tmp_path}/units/multi-user.target.wants | grep -c service")
    machine.run()
    assert (machine.job / "output.txt").read_text() == "0\n"


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "true")
    machine.program.unlink()
    assert "not possible" in machine.run()
    assert machine.left == ["notice"]


def test_a_command_that_takes_too_long_is_stopped_and_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "sleep 30", limit=1)
    assert "ended at its limit of 1 seconds" in machine.run()


def test_what_installs_packages_as_the_limit_comes_ends_by_itself(tmp_path: Path) -> None:
    left = tmp_path / "installed"
    machine = Machine(tmp_path, f"(sleep 3; touch {left}) & wait", limit=1)
    assert "ended at its limit of 1 seconds" in machine.run()
    end = time.monotonic() + 20
    while not left.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert left.exists()


def test_a_shutdown_in_the_middle_is_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "echo begun; sleep 30")
    with subprocess.Popen(
        ["/bin/sh", str(machine.script)],
        stdout=subprocess.PIPE,
        text=True,
        env=machine.environment,
        start_new_session=True,
    ) as process:
        output = machine.job / "output.txt"
        limit = time.monotonic() + 20
        while time.monotonic() < limit and not (output.exists() and "begun" in output.read_text()):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)  # as systemd stops a unit: every process of it
        told, _ = process.communicate(timeout=20)
    assert "stopped before it was done" in told
    assert machine.left == ["notice", "output.txt"]


def test_the_unit_runs_once_at_the_next_boot_and_has_a_limit() -> None:
    text = render("gpuwright-resume.service.j2", __reboot_resume_directory="/var/lib/gpuwright/resume", limit=7200)
    for line in (
        "ExecStart=/bin/sh /var/lib/gpuwright/resume/run",
        "RuntimeMaxSec=7800",
        "KillMode=process",
        "WantedBy=multi-user.target",
        "Wants=network-online.target",
    ):
        assert line in text.splitlines()


def test_the_documents_are_written_for_root_alone_as_they_were() -> None:
    files = {"wish.json": {"cuda_versions": ["13.0"], "b": None}, "variables-0.json": {"a": "{{ ü }}"}}
    prepared: resume.Prepared = {"command": ["x"], "program": {}, "files": files, "environment": {}}
    wish, variables = resume.documents(prepared)
    assert wish == {
        "path": "/var/lib/gpuwright/resume/wish.json",
        "content": '{\n    "b": null,\n    "cuda_versions": [\n        "13.0"\n    ]\n}\n',
        "mode": "0600",
    }
    assert json.loads(variables["content"]) == files["variables-0.json"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_script_is_clean(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "true")
    done = subprocess.run(["shellcheck", str(machine.script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_playbooks_names_are_those_that_the_command_line_and_the_node_use() -> None:
    from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
    from ansible_collections.gpuwright.node.plugins.module_utils.records import resume as on_node
    from gpuwright import resume as prepared

    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    assert variables["__reboot_resume_directory"] == str(prepared.DIRECTORY) == paths.RESUME
    assert variables["__reboot_resume_unit"] == UNIT == on_node.UNIT
