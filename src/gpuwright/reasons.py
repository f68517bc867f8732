"""Ansible's words about a host that could not be worked on, as a sentence for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuwright.console import clean

if TYPE_CHECKING:
    from gpuwright.events import TaskResult

_LIMIT = 400

_SSH_PREFIX = re.compile(
    r"^(?:Task failed: )?(?:Data could not be sent to remote host \S+\. Make sure this host can be reached over ssh:|"
    r"Failed to connect to the host via ssh:)\s*"
)
_SSH_NOISE = re.compile(r"^(?:Warning: Permanently added|\*\*|Pseudo-terminal|Connection to \S+ closed)")
_NO_PYTHON = re.compile(
    r"python[0-9.]*: (?:command )?not found|No such file or directory.*python|python.*No such file or directory|"
    r"interpreter.*(?:not found|was not found)|No python interpreters found|failed to find a Python interpreter",
    re.IGNORECASE | re.DOTALL,
)
_OLD_PYTHON = re.compile(r"(?:requires a minimum of Python|ansible-core requires).*", re.IGNORECASE)
#: What plugin_utils/actions/limits.py says of a host that was reached and gave no answer in time.
_SILENT = re.compile(r"gave (?P<what>no answer to \w+ within \d+ seconds\. .*)", re.DOTALL)
_SUDO_PASSWORD = re.compile(r"Missing sudo password|a password is required|a terminal is required", re.IGNORECASE)
_SUDO_WRONG = re.compile(r"Incorrect sudo password|Sorry, try again", re.IGNORECASE)
_SUDO_DENIED = re.compile(r"is not in the sudoers file|is not allowed to (?:execute|run)", re.IGNORECASE)


def unreachable(result: TaskResult) -> str:
    """Why a host could not be reached."""
    text = _text(result)
    if _NO_PYTHON.search(text):
        return "no Python on the node: install python3"
    silent = _SILENT.search(text)
    if silent:
        return _shorten(" ".join(silent["what"].split()))
    known = _privilege(text)
    if known:
        return known
    said = _SSH_PREFIX.sub("", text)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _SSH_NOISE.match(line.strip())]
    detail = lines[-1].removeprefix("ssh: ") if lines else "no answer"
    return _shorten(f"cannot be reached by ssh: {detail}")


def failure(result: TaskResult) -> str:
    """Why a task failed on a host."""
    text = _text(result)
    if _NO_PYTHON.search(text):
        return "no Python on the node: install python3"
    old = _OLD_PYTHON.search(text)
    if old:
        return _shorten(f"the node's Python is too old: {old.group(0).strip()}")
    return _privilege(text) or _shorten(_first_lines(text) or "failed without a message")


def _privilege(text: str) -> str | None:
    if _SUDO_WRONG.search(text):
        return "sudo does not take this password: give the right one with -K"
    if _SUDO_PASSWORD.search(text):
        return "sudo asks for a password on the node: run with -K"
    if _SUDO_DENIED.search(text):
        return "the user of this login may not use sudo on the node"
    return None


def _text(result: TaskResult) -> str:
    parts = [result.get("msg"), result.get("module_stderr"), result.get("module_stdout"), result.get("stderr")]
    return clean("\n".join(str(part).strip() for part in parts if part))


def _first_lines(text: str, most: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback"):
        return f"a module crashed: {lines[-1]}"
    return " ".join(lines[:most])


def _shorten(text: str) -> str:
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1].rstrip() + "…"
