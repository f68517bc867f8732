"""No value from a node names a file, a task or a role on the controller: what roles and playbooks take such a name from is listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted(
    [
        *(ROOT / "roles").glob("*/tasks/*.yml"),
        *(ROOT / "roles").glob("*/handlers/*.yml"),
        *(ROOT / "playbooks").rglob("*.yml"),
    ]
)
#: Modules that read a file of the controller, with the options that name it.
READS = {
    "copy": ("src",),
    "template": ("src",),
    "script": ("cmd", ""),
    "unarchive": ("src",),
    "assemble": ("src",),
    "include_vars": ("file", "dir", ""),
    "include_tasks": ("file", ""),
    "import_tasks": ("file", ""),
    "include_role": ("name", "tasks_from", "vars_from", "defaults_from"),
    "import_role": ("name", "tasks_from", "vars_from", "defaults_from"),
    "import_playbook": ("",),
}
#: Names that are made of variables, and why none of them is a node's.
ALLOWED = {
    "{{ __repair_tasks[gpuwright_plan.package_manager] }}": "a table of the role",
    "{{ __remove_tasks[gpuwright_plan.package_manager] }}": "a table of the role",
    "{{ __nvidia_driver_restore_tasks[gpuwright_plan.package_manager] }}": "a table of the role",
    "{{ __nvidia_driver_lock_tasks[gpuwright_plan.package_manager] }}": "a table of the role",
    "{{ __reboot_tasks[__reboot_work.next] }}": "what follows the decision, by a table of the role",
    "{{ role_path }}/../../plugins/plugin_utils/monitoring/{{ item.src }}": "names of files of the collection, by its component",
    "{{ __remove_role.role }}": "roles of the collection, by its components",
    "{{ __remove_role.tasks }}": "tasks of these roles, by its components",
    "{{ gpuwright_plan.from_controller }}": "this run's own nvidia_driver_runfile, see plan/finish.py",
    "configure-without-autoinstall.sh {{ __repair_next.kernels }}": (
        "the name is the first word; what follows is quoted, and is what the node's own program is called with"
    ),
}
_LOOKUP = re.compile(r"\b(?:lookup|query|q)\s*\(\s*['\"]([\w.]+)['\"]")
#: Lookups that reach no file and no program of the controller.
HARMLESS: set[str] = set()
#: Tests and filters that look at a file of the controller.
_LOOKS = re.compile(r"([\w.]+) is(?: not)? (?:ansible\.builtin\.)?(?:file|exists|directory|link|mount|same_file)\b")


def tasks(entry: Any) -> Iterator[dict[str, Any]]:
    """Every task below a document, in blocks and plays too."""
    if isinstance(entry, list):
        for each in entry:
            yield from tasks(each)
    elif isinstance(entry, dict):
        yield entry
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers", "roles"):
            yield from tasks(entry.get(key))


def names(path: Path) -> Iterator[str]:
    """The names of controller files that a file of tasks uses."""
    for task in tasks(yaml.safe_load(path.read_text())):
        for module, options in READS.items():
            given = task.get(f"ansible.builtin.{module}", task.get(module))
            if isinstance(given, str):
                yield given
            elif isinstance(given, dict) and given.get("remote_src") is not True:
                yield from (str(given[option]) for option in options if option in given)


def test_every_templated_name_of_a_file_is_listed_with_its_reason() -> None:
    found = {name for path in FILES for name in names(path) if "{{" in name}
    assert found == set(ALLOWED)


@pytest.mark.parametrize("table", sorted(name for name, why in ALLOWED.items() if why.startswith("a table")))
def test_a_table_of_task_files_is_the_roles_own(table: str) -> None:
    variable = re.match(r"{{ (\w+)\[", table)
    assert variable
    found = [yaml.safe_load(path.read_text()).get(variable[1]) for path in (ROOT / "roles").glob("*/vars/main.yml")]
    (values,) = [value for value in found if value]
    assert values.keys() == {"apt", "dnf"}
    assert all(re.fullmatch(r"[a-z_]+\.yml", value) for value in values.values())


def test_no_role_looks_up_a_file_or_a_program_of_the_controller() -> None:
    places = [
        *FILES,
        *(ROOT / "roles").glob("*/vars/*.yml"),
        *(ROOT / "roles").glob("*/defaults/*.yml"),
        *(ROOT / "roles").glob("*/templates/*"),
    ]
    used = {(path.name, name) for path in places for name in _LOOKUP.findall(path.read_text())}
    assert {name for _path, name in used} <= HARMLESS, used
    assert not [path for path in places if re.search(r"^\s*-? ?with_\w+:", path.read_text(), re.MULTILINE)]


def test_only_this_runs_own_variable_is_looked_at_as_a_path_of_the_controller() -> None:
    looked = {name for path in FILES for name in _LOOKS.findall(path.read_text())}
    assert looked == {"__preflight_runfile_path"}
    value = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text())["__preflight_runfile_path"]
    assert value == "{{ gpuwright_plan.from_controller | default('', true) }}"


def test_every_module_that_speaks_from_a_node_has_an_action_and_a_schema() -> None:
    from ansible_collections.gpuwright.node.plugins.plugin_utils import gate

    modules = {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}
    # Those without a program of their own run on the controller.
    remote = {name for name in modules if "def main()" in (ROOT / f"plugins/modules/{name}.py").read_text()}
    assert {path.stem for path in (ROOT / "plugins/action").glob("*.py")} == modules
    for name in remote:
        text = (ROOT / f"plugins/action/{name}.py").read_text()
        # One that packs something on the controller first asks its module through the same gate.
        asks = re.search(rf'self\.(?:on_node|ask)\(\s*"{name}"', text)
        packs = "class ActionModule(NodeAction):" in text and asks is not None
        # One that judges by the controller's rules begins with what came through the gate.
        gated = "class ActionModule(ModuleAction):" in text and "_execute_module" not in text
        # One that starts a job asks for its answer in another task, through the same gate (tests/unit/gate/test_jobs.py).
        starts = all(
            part in text
            for part in ("class ActionModule(ModuleAction):", "_supports_async = True", "self._asked = (_NAME, ")
        )
        assert (
            (starts and "def _parse_returned_data" not in text)
            or packs
            or (gated and ("def " not in text or "        result = super().run(tmp, task_vars)\n" in text))
        )
        assert f"#/$defs/{name}" not in gate.ANSWERS.read_text()
        assert f'"{name}": {{' in gate.ANSWERS.read_text()
