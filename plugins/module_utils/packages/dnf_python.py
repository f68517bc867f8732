# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Python that has dnf's bindings, and what it is given: the source of dnf_question or of dnf_exactly.

It is the system's own. RHEL 8's stands apart from the one that Ansible runs under, so modules cannot import dnf themselves.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from types import ModuleType
from typing import Callable, Mapping, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_exactly

PYTHONS = ("/usr/libexec/platform-python", "/usr/bin/python3")
NONE = "no Python of this machine has dnf's bindings; looked at " + ", ".join(PYTHONS)
#: For what changes nothing.
_TRIAL_SECONDS = 600.0
_FUTURE = "from __future__ import annotations\n"


class Outcome(TypedDict, total=False):
    """How a transaction of dnf ended, see :func:`carry_out`."""

    installed: list[str]
    removed: list[str]
    refused: str
    others: list[str]
    failed: str


def program(part: ModuleType) -> str:
    """The source that the system's Python is given."""
    return inspect.getsource(part).replace(_FUTURE, "", 1) + "\n\nmain()\n"


def python_of_dnf(runner: Callable[..., Result], timeout: float) -> str | None:
    """The Python that has dnf's bindings; None where there is none."""
    for path in PYTHONS:
        if os.path.exists(path) and runner([path, "-I", "-c", "import dnf"], timeout=timeout).ok:
            return path
    return None


def tried(transaction: Mapping[str, object], runner: Callable[..., Result] = run_module.run) -> Outcome:
    """What a transaction would do, as :func:`carry_out` answers; nothing is changed. What it does not name stays as it is."""
    nothing: dict[str, object] = {"install": {}, "files": {}, "remove": [], "streams": {}}
    return carry_out({**nothing, **transaction, "trial": True}, _TRIAL_SECONDS, runner)


def carry_out(
    transaction: Mapping[str, object],
    timeout: float,
    runner: Callable[..., Result] = run_module.run,
    to_its_end: Callable[..., Result] = run_module.run_to_its_end,
) -> Outcome:
    """What dnf_exactly answers: ``installed`` and ``removed``; else ``refused`` (nothing was changed) or ``failed``, with the reason.

    ``timeout``: seconds for what may be cut: the indexes, the solution, and the packages, which are fetched first. The transaction
    itself takes as long as it takes.
    """
    python = python_of_dnf(runner, timeout)
    if python is None:
        return {"refused": NONE, "others": []}

    def within_limit(argv: Sequence[str], stdin: bytes) -> Result:
        return runner(argv, timeout=timeout, stdin=stdin)

    fetched = _answer(python, {**transaction, "only_fetch": True}, within_limit)
    if transaction.get("trial") or "failed" in fetched or "refused" in fetched:
        return fetched
    return _answer(python, transaction, to_its_end)


def _answer(python: str, transaction: Mapping[str, object], runner: Callable[..., Result]) -> Outcome:
    """What dnf_exactly answers."""
    # Not where the environment says: who owns that place could put another transaction there.
    directory = tempfile.mkdtemp(prefix="gpuwright-dnf-", dir="/var/tmp")
    path = os.path.join(directory, "transaction.json")
    try:
        with open(path, "w", encoding="utf-8") as out:
            json.dump(transaction, out)
        result = runner([python, "-I", "-", path], stdin=program(dnf_exactly).encode())
        if not result.ok:
            return {"failed": (result.error or result.err.strip() or f"dnf ended with status {result.rc}")[-1500:]}
        with open(path + ".answer", encoding="utf-8") as stream:
            answer: Outcome = json.load(stream)
        return answer
    finally:
        shutil.rmtree(directory, ignore_errors=True)
