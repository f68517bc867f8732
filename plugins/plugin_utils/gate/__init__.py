# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one gate: whatever a module of this collection says on a node is taken in here, before Ansible reads it.

Root on a node is trusted for that node alone. So its answer is limited in size, number and depth, held against the schema of the module
(answers.json, JSON Schema 2020-12), and control characters are taken out of what is shown to people. An answer that breaks the rules is
thrown away as a whole, with one sentence; behind the gate every value is of its type, and none of them may name a file, a module, a
task or a template on the controller (tests/unit/repo/test_controller_paths.py holds the roles to that).

Pure: text in, text out. The actions call it from :class:`..node_action.NodeAction`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.json_utils import _filter_non_json_lines as as_ansible_reads

from .schema import Mismatch, cleaned, compile_definitions

#: Characters of an answer. The longest of a simulated node with two cards, its seals and its proof has 35,000; a card adds 2,000.
MOST_CHARACTERS = 4 * 1024**2
#: Values in an answer, counted by its commas and brackets before it is read. That node's has 1,700.
MOST_VALUES = 200_000
#: Containers within each other. Our own answers have eight.
MOST_DEPTH = 24
#: Characters that are kept of what is no answer at all, for a person to read.
MOST_WORDS = 8_000

#: What ansible-core says of a job besides the answer (async_wrapper, async_status).
JOB = (
    "ansible_job_id", "started", "finished", "results_file", "stdout", "stderr", "stdout_lines", "stderr_lines",
    "_ansible_suppress_tmpdir_delete", "outdata", "child_pid", "erased",
)  # fmt: skip

ANSWERS = Path(__file__).with_name("answers.json")


# Compiled once, where Ansible imports an action: each host's answer is taken in by a fork of that process.
_CHECKS = compile_definitions(json.loads(ANSWERS.read_text(encoding="utf-8")))


class Refused(Exception):
    """What a node said is no answer of the module that was run there; the text says what is wrong with it."""


class NoAnswer(Exception):
    """In what a node said is no object, by Ansible's own rules; the text is what it said, for a person."""


def admit(module: str, said: str) -> str:
    """What a module wrote to its standard output, as the JSON of an answer that keeps the rules. Raises Refused, NoAnswer."""
    answer = _read(_cut_out(said))
    name = "failure" if isinstance(answer, dict) and answer.get("failed") is True else module
    try:
        return json.dumps(_CHECKS[name](answer))
    except Mismatch as error:
        raise Refused(str(error)) from None


def admit_job(module: str, said: str) -> str:
    """The same for what Ansible says around a module that runs by itself on the node (``async``): its state, and the answer at its end."""
    answer = _read(_cut_out(said))
    state = {key: answer.pop(key) for key in JOB if key in answer}
    ended = bool(state.get("finished"))
    name = "failure" if answer.get("failed") else module
    try:
        return json.dumps({**_CHECKS["job"](state), **(_CHECKS[name](answer) if ended or answer.get("failed") else {})})
    except Mismatch as error:
        raise Refused(str(error)) from None


def words(said: str) -> str:
    """Text that is no answer, for a person: its beginning and its end, without control characters."""
    half = MOST_WORDS // 2
    kept = said if len(said) <= MOST_WORDS else f"{said[:half]}\n…\n{said[-half:]}"
    return cleaned(kept, multiline=True)


def _limit(said: str) -> None:
    """Refuse what is too much before it is read: reading costs many times its size."""
    if len(said) > MOST_CHARACTERS:
        raise Refused(f"{len(said)} characters, at most {MOST_CHARACTERS} are read")
    values = said.count(",") + said.count("{") + said.count("[")
    if values > MOST_VALUES:
        raise Refused(f"some {values} values, at most {MOST_VALUES} are read")


def _cut_out(said: str) -> str:
    """The very text that Ansible would take for the answer: a login shell may say something before and after it."""
    _limit(said)
    try:
        found, _warnings = as_ansible_reads(said, objects_only=True)
    except ValueError:
        raise NoAnswer(words(said)) from None
    return str(found)


def _read(text: str) -> Any:
    try:
        answer = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        raise Refused("it is no JSON") from None
    except RecursionError:
        raise Refused(f"more than {MOST_DEPTH} values within each other") from None
    layer, depth = [answer], 0
    while layer:
        depth += 1
        if depth > MOST_DEPTH:
            raise Refused(f"more than {MOST_DEPTH} values within each other")
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return answer


def _refuse_constant(name: str) -> None:
    raise Refused(f"{name} is no number of JSON")
