"""Every task of a role that installs packages leaves a record of what it brought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[3] / "roles"
_MANAGERS = ("apt", "dnf", "dnf5", "yum", "package")
#: What begins a command that installs, and what in it says that it does not.
_COMMANDS = ("__nvidia_driver_transaction", "__repair_complete", "__repair_reinstall", "build.reinstall")
_FETCHES = "--download-only"


def tasks(found: Any) -> Iterator[dict[str, Any]]:
    for task in found or ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part))


def test_no_task_installs_packages_without_a_record() -> None:
    seen, unrecorded = 0, []
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        for task in tasks(yaml.safe_load(path.read_text())):
            given = [task.get(f"ansible.builtin.{name}") for name in _MANAGERS]
            unrecorded += [f"{path}: {task['name']}" for each in given if each and each.get("state") != "absent"]
            argv = str((task.get("ansible.builtin.command") or {}).get("argv", ""))
            if any(word in argv for word in _COMMANDS) and _FETCHES not in argv:
                unrecorded.append(f"{path}: {task['name']}")
            seen += "gpuwright.node.package_transaction" in task
    assert unrecorded == []
    assert seen >= len(_COMMANDS)
