"""Programs of ours on a node: which Python runs them, and the timers that begin them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import programs
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.view import View
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, wish

ROLES = Path(__file__).parents[3] / "roles"
#: What has a program of ours, by a variable that wishes it.
WISH: Any = {
    "mig": {"mig_layout": {"all": "off"}},
    "gpu_settings": {"gpu_settings_cards": {"all": {"compute_mode": "default"}}},
    "gpu_log": {"gpu_log_days": 7},
    "watch": {"watch_interval": "1h"},
    "monitoring_exporters": {"monitoring_source": "smi"},
}


def old(facts: Any, version: str = "8.10") -> Any:
    """The node with the Pythons of a RHEL 8 on which somebody made ready what Ansible needs."""
    facts["os"].update(id="rhel", family="redhat", version=version)
    facts["python"]["interpreters"] = [
        {"path": f"/usr/bin/python{number}", "version": number, "venv": True} for number in ("3.6", "3.12")
    ]
    return facts


def test_where_the_systems_python_is_too_old_the_one_beside_it_runs_the_programs() -> None:
    facts: Any = old(nodes.provisioned())
    assert programs.python(facts) == "/usr/bin/python3.12"
    assert programs.python(old(nodes.provisioned(), version="9.6")) == "/usr/bin/python3"
    facts["python"]["interpreters"] = []
    assert programs.python(facts) == "/usr/bin/python3"


@pytest.mark.parametrize("name", WISH)
def test_every_unit_of_a_program_starts_that_python(name: str) -> None:
    facts: Any = nodes.provisioned()
    planned = plan(facts, wish(gpuwright_want=["driver=580"], **WISH[name]))

    def started() -> list[str]:
        work: Any = COMPONENTS[name].steps["begin"](Context(facts=facts, stack=planned["stack"]), planned)
        texts = "".join(each["content"] for each in work["files"])
        return re.findall(r"^ExecStart=(\S+) (?:-I )?/usr/local/libexec/gpuwright/\w+\.py", texts, re.MULTILINE)

    assert started() == ["/usr/bin/python3"]
    old(facts)
    assert started() == ["/usr/bin/python3.12"]


def test_no_task_of_a_role_names_a_python_of_its_own() -> None:
    """The plan says it, also to who takes the settings of the cards back."""
    texts = {path: path.read_text() for path in ROLES.rglob("tasks/*.yml")}
    assert [path for path, text in texts.items() if "bin/python" in text] == []
    facts: Any = old(nodes.provisioned())
    planned = plan(nodes.provisioned(), wish(gpuwright_want=["driver=580"], **WISH["mig"], **WISH["gpu_settings"]))
    context = Context(facts=facts, stack=planned["stack"])
    steps: Any = {name: COMPONENTS[name].steps for name in ("mig", "gpu_settings")}
    assert steps["mig"]["here"](context, planned)["python"] == "/usr/bin/python3.12"
    assert steps["gpu_settings"]["begin"](context, planned)["python"] == "/usr/bin/python3.12"
    assert removal.work(facts)["python"] == "/usr/bin/python3.12"


TIMED = programs.Timed("a.check", "a.service", "a.timer", purpose="it works", failure="broke", record=", and a file")
ON, OFF = {"active": "active", "enabled": "enabled"}, {"active": "inactive", "enabled": "enabled"}


@pytest.mark.parametrize(
    ("services", "status", "reason"),
    [
        ({"a.timer": ON, "a.service": OFF}, "pass", None),
        ({"a.timer": OFF, "a.service": OFF}, "warn", "a.timer does not run"),
        ({"a.timer": {**ON, "enabled": "disabled"}}, "warn", "a.timer does not run"),
        ({"a.timer": ON, "a.service": {**ON, "active": "failed"}}, "warn", "the last turn of a.service broke"),
    ],
)
def test_a_timer_is_judged_by_itself_and_by_the_last_turn(services: Any, status: str, reason: str | None) -> None:
    check = TIMED.judge(View(nodes.provisioned(services=services)))
    assert (check["id"], check["status"], check["reason"]) == ("a.check", status, reason)
    unknown = TIMED.judge(View(nodes.provisioned(unknown={"services": "systemctl show failed"})))
    assert (unknown["status"], unknown["reason"]) == (
        "incomplete",
        "it is not known whether it works: systemctl show failed",
    )
    if reason:
        assert str(check["remedy"]).startswith("journalctl -u a.service says why, and a file; ")


@pytest.mark.parametrize("name", WISH)
def test_a_program_is_one_file_that_runs_from_an_empty_directory_and_leaves_nothing_beside_it(
    tmp_path: Path, name: str
) -> None:
    """`remove` takes away the directory where nothing else is inside."""
    program = COMPONENTS[name].program
    assert program is not None
    script = tmp_path / Path(program.path).name
    script.write_text(program.text())
    ended = subprocess.run(
        [sys.executable, "-S", str(script), "--no-such-thing"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == [script.name]


@pytest.mark.parametrize("name", WISH)
def test_another_program_is_a_change_of_what_is_sealed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = nodes.provisioned()
    context = Context(facts=facts, stack=plan(facts, wish(gpuwright_want=["driver=580"], **WISH[name]))["stack"])
    before = COMPONENTS[name].inputs(context)
    monkeypatch.setattr(programs.Program, "digest", lambda _program: "another")
    assert COMPONENTS[name].inputs(context) != before
