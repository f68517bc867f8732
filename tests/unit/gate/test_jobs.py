"""What Ansible says around a module that runs by itself on a node comes through the gate as the answer itself does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate

# As async_wrapper and async_status of ansible-core 2.16 to 2.21 say it: numbers until 2.18, then words.
STARTED = {
    "failed": False,
    "started": 1,
    "finished": 0,
    "ansible_job_id": "j123456789012.4711",
    "results_file": "/root/.ansible_async/j123456789012.4711",
    "_ansible_suppress_tmpdir_delete": True,
}
RUNNING = {"started": True, "finished": False, "ansible_job_id": "j1.2", "results_file": "/root/.ansible_async/j1.2"}


def admitted(said: Any, module: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(gate.admit_job(module, json.dumps(said)))
    return answer


@pytest.mark.parametrize("said", [STARTED, RUNNING])
def test_the_state_of_a_job_comes_through_and_no_answer_before_its_end(said: dict[str, Any]) -> None:
    found = admitted({**said, "checks": ["of nobody"], "ansible_facts": {"a": 1}}, "gpu_compute")
    assert found == {key: value for key, value in said.items() if key != "failed"}


def test_at_the_end_the_answer_is_held_against_the_schema_of_its_module() -> None:
    answer = {"changed": False, "devices": [], "checks": [], "verdict": "incomplete"}
    ended = {**RUNNING, "finished": True}
    assert admitted({**ended, **answer}, "gpu_compute") == {**ended, **answer}
    with pytest.raises(gate.Refused, match="nothing of that name"):
        admitted({**ended, **answer, "ansible_facts": {"a": 1}}, "gpu_compute")
    with pytest.raises(gate.Refused, match="verdict is missing"):
        admitted({**ended, "changed": False, "devices": [], "checks": []}, "gpu_compute")


@pytest.mark.parametrize("value", ["../../etc/passwd", "j1.2; reboot", "", "{{ lookup('pipe', 'id') }}"])
def test_the_name_of_a_job_is_one(value: str) -> None:
    with pytest.raises(gate.Refused, match="the name of a job"):
        admitted({**STARTED, "ansible_job_id": value}, "gpu_compute")


def test_a_job_that_was_ended_or_is_not_there_has_failed() -> None:
    ended = {"msg": "Timeout exceeded", "failed": True, "child_pid": 4711, "finished": True, "ansible_job_id": "j1.2"}
    assert admitted(ended, "gpu_compute") == ended
    lost = {"failed": True, "msg": "could not find job", "ansible_job_id": "j1.2", "started": True, "finished": True}
    assert admitted(lost, "gpu_compute") == lost
    with pytest.raises(gate.Refused):
        admitted({**lost, "ansible_facts": {"a": 1}}, "gpu_compute")


def test_what_is_no_answer_is_told_as_words() -> None:
    with pytest.raises(gate.NoAnswer, match=r"^bash: \ufffd\[31mpython3: not found$"):
        gate.admit_job("gpu_compute", "bash: \x1b[31mpython3: not found")
