# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a module of the collection where there is no Ansible: `python -m tools.card.asked nvidia_smi '{"timeout": 30}'`.

What Ansible is to a module is a class that reads its options and prints its answer. This is such a class, so that the module's own
`main` runs.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

MODULES = "ansible_collections.gpuwright.node.plugins.modules."


class Shell:
    """What a module sees of Ansible: its options with their defaults, and how it ends."""

    #: The options that were given, by name.
    given: Mapping[str, Any] = {}
    check_mode = False

    def __init__(self, argument_spec: Mapping[str, Mapping[str, Any]], **_rules: object) -> None:
        unknown = set(self.given) - set(argument_spec)
        lacking = {name for name, row in argument_spec.items() if row.get("required")} - set(self.given)
        if unknown or lacking:
            self.fail_json(
                msg=f"options that the module does not have: {sorted(unknown)}; that it lacks: {sorted(lacking)}"
            )
        self.params = {name: self.given.get(name, row.get("default")) for name, row in argument_spec.items()}
        self.tmpdir = tempfile.gettempdir()

    def exit_json(self, **answer: object) -> NoReturn:
        """Print the answer and end well."""
        print(json.dumps(answer))
        sys.exit(0)

    def fail_json(self, **answer: object) -> NoReturn:
        """Print why it failed and end."""
        print(json.dumps({**answer, "failed": True}))
        sys.exit(1)


def stand_in() -> None:
    """Put the class in Ansible's place, in this process alone."""
    basic = ModuleType("ansible.module_utils.basic")
    basic.AnsibleModule = Shell  # type: ignore[attr-defined]  # that is how a module is made by hand
    for name in ("ansible", "ansible.module_utils"):
        sys.modules[name] = ModuleType(name)
    sys.modules[basic.__name__] = basic


def main(name: str, options: str) -> None:
    stand_in()
    Shell.given = json.loads(options)
    importlib.import_module(MODULES + name).main()


if __name__ == "__main__":
    main(*sys.argv[1:])
