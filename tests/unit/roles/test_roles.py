"""What every role keeps to, whatever it does."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpuwright.node.plugins.action import plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS, SEALED
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.preflight import MANAGERS
from tests.unit.plan.nodes import bare

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
TASK_FILES = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
ROLE_NAMES = [role.name for role in ROLES]

# Keys under which tasks hold further tasks.
NESTED = ("block", "rescue", "always")
# Facts that are the collection's contract between roles and playbooks, not one role's own.
SHARED_FACTS = {
    "gpuwright_plan",
    "gpuwright_checks",
    "gpuwright_measurements",
    "gpuwright_reboot_pending",
    "gpuwright_kept",
    "gpuwright_resume_refused",
}
# As Galaxy calls the systems of compat/systems.yaml. Debian and Ubuntu go there by their codenames.
_SYSTEMS = yaml.safe_load((ROOT / "compat/systems.yaml").read_text())["rows"]
SERVED = {
    "Debian": [row["codename"] for row in _SYSTEMS if row["family"] == "debian"],
    "Ubuntu": [row["codename"] for row in _SYSTEMS if row["family"] == "ubuntu"],
    "EL": [row["version"] for row in _SYSTEMS if row["id"] == "rhel"],
}
# Keys of a task that are no module.
KEYWORDS = {
    "name", "when", "tags", "loop", "loop_control", "register", "vars", "environment", "changed_when", "failed_when",
    "check_mode", "diff", "run_once", "async", "poll", "no_log", "until", "retries", "delay", "notify", "become", "timeout", *NESTED,
}  # fmt: skip


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks_of(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield row
        for key in NESTED:
            yield from tasks_of(row.get(key) or [])


def all_tasks() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in TASK_FILES:
        for task in tasks_of(read(path)):
            yield path, task


def module_of(task: dict[str, Any]) -> str | None:
    modules = [key for key in task if key not in KEYWORDS]
    assert len(modules) <= 1, modules
    return modules[0] if modules else None


def options(role: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(role / "meta" / "argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    return found


def contents(role: Path) -> list[Path]:
    """A role's table of contents: what it does of itself, and what a play of ours includes of it, which has planned already."""
    return [path for path in (role / "tasks/main.yml", role / "tasks/work.yml") if path.is_file()]


@pytest.mark.parametrize("role", ROLES, ids=ROLE_NAMES)
class TestRole:
    def test_a_role_has_all_its_parts(self, role: Path) -> None:
        for part in (
            "README.md",
            "meta/main.yml",
            "meta/argument_specs.yml",
            "defaults/main.yml",
            "vars/main.yml",
            "tasks/main.yml",
        ):
            assert (role / part).is_file(), part

    def test_argument_specs_describe_exactly_the_defaults(self, role: Path) -> None:
        assert set(options(role)) == set(read(role / "defaults" / "main.yml") or {})

    def test_argument_specs_give_the_defaults_values(self, role: Path) -> None:
        defaults = read(role / "defaults" / "main.yml")
        assert {name: row["default"] for name, row in options(role).items()} == defaults

    def test_every_option_is_described(self, role: Path) -> None:
        assert all(row.get("description") and row.get("type") for row in options(role).values())

    def test_public_variables_have_the_roles_prefix(self, role: Path) -> None:
        # What both roles of monitoring read of a host has one name.
        prefix = "monitoring_" if role.name.startswith("monitoring_") else f"{role.name}_"
        assert [name for name in read(role / "defaults" / "main.yml") if not name.startswith(prefix)] == []

    def test_internal_variables_have_two_underscores_and_the_prefix(self, role: Path) -> None:
        allowed = (f"__{role.name}_",)
        for path in (role / "vars").glob("*.yml"):
            wrong = [name for name in read(path) if not name.startswith(allowed)]
            assert wrong == [], path

    def test_the_table_of_contents_fits_on_a_screen(self, role: Path) -> None:
        for path in contents(role):
            assert len(path.read_text(encoding="utf-8").splitlines()) < 60

    def test_the_table_of_contents_names_steps_and_does_no_work(self, role: Path) -> None:
        steps = {
            "ansible.builtin.import_tasks", "ansible.builtin.include_tasks", "ansible.builtin.include_role",
            "gpuwright.node.node_facts", "ansible.builtin.set_fact", "ansible.builtin.debug", None,
        }  # fmt: skip
        for path in contents(role):
            assert {module_of(task) for task in tasks_of(read(path))} <= steps

    def test_the_systems_that_are_served_are_named(self, role: Path) -> None:
        named = {row["name"]: row["versions"] for row in read(role / "meta/main.yml")["galaxy_info"]["platforms"]}
        assert named == SERVED

    def test_a_role_depends_on_no_other(self, role: Path) -> None:
        assert read(role / "meta" / "main.yml")["dependencies"] == []

    def test_the_readme_repeats_no_variable_table(self, role: Path) -> None:
        text = (role / "README.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {role.name}\n")
        assert "argument_specs.yml" in text
        assert "| " not in text

    def test_what_a_task_registers_or_sets_is_the_roles_own(self, role: Path) -> None:
        for path in (role / "tasks").glob("*.yml"):
            for task in tasks_of(read(path)):
                names = set(task.get("ansible.builtin.set_fact") or {}) | (
                    {task["register"]} if "register" in task else set()
                )
                foreign = {name for name in names if not name.startswith(f"__{role.name}_")} - SHARED_FACTS
                assert foreign == set(), (path, foreign)


def test_every_task_is_named_and_named_imperatively() -> None:
    for path, task in all_tasks():
        assert re.match(r"[A-Z]", task["name"]), (path, task)


def test_the_name_of_a_task_is_the_same_for_all_hosts() -> None:
    """Ansible renders it with the values of one host, and tells it of all."""
    for path, task in all_tasks():
        assert "{{" not in task["name"], (path, task)


def test_only_modules_of_ansible_and_of_this_collection_are_used() -> None:
    for path, task in all_tasks():
        module = module_of(task)
        assert module is None or module.startswith(("ansible.builtin.", "gpuwright.node.")), (path, module)


def test_a_copy_of_a_file_on_the_node_says_its_mode() -> None:
    """Without it the copy has that of its source, also where another file was there (Ansible's copy with remote_src)."""
    for path, task in all_tasks():
        copied = task.get("ansible.builtin.copy") or {}
        assert not copied.get("remote_src") or "mode" in copied, (path, task["name"])


#: A host whose part failed is judged with those that waited for it, by the action fabric: without an answer it is incomplete.
JUDGED_TOGETHER = {("fabric_round.yml", "Wait for what it measured")}


def test_a_role_used_alone_records_last_what_it_wrote() -> None:
    """There is no seal of it that would name that, and `remove` would leave it."""
    for name in SEALED:
        last = read(ROOT / "roles" / name / "tasks/main.yml")[-1]
        assert last["ansible.builtin.include_role"]["tasks_from"] == "end", name
        assert "gpuwright_standalone" in last["when"], name


def test_no_error_is_ignored() -> None:
    for path, task in all_tasks():
        assert "ignore_errors" not in task, path
        assert task.get("failed_when") is not False or (path.name, task["name"]) in JUDGED_TOGETHER, (
            path,
            task["name"],
        )


def test_every_command_says_when_it_changes_something() -> None:
    for path, task in all_tasks():
        if module_of(task) in ("ansible.builtin.command", "ansible.builtin.shell"):
            assert "changed_when" in task, (path, task["name"])


def test_no_command_that_installs_claims_to_change_nothing() -> None:
    for path, task in all_tasks():
        if task.get("changed_when") is False:
            assert not re.search(r"\binstall\b", json.dumps(task.get("ansible.builtin.command", ""))), (
                path,
                task["name"],
            )


def test_nothing_restarts_services_under_a_run_that_installs() -> None:
    """needrestart does so after each call of apt and dpkg, unless it is told not to."""
    seen = 0
    for path, task in all_tasks():
        variables = read(path.parents[1] / "vars/main.yml") or {}
        if not _changes_packages(task, variables):
            continue
        seen += 1
        named = re.findall(r"\b__\w+_environment\b", str(task.get("environment")))
        assert named, (path, task["name"])
        assert variables[named[0]]["NEEDRESTART_SUSPEND"] == "1", (path, task["name"])
    assert seen > 10


def _changes_packages(task: dict[str, Any], variables: dict[str, Any]) -> bool:
    """Whether a task calls apt or dpkg to change what is installed."""
    if "ansible.builtin.apt" in task:
        return True
    module = task.get("ansible.builtin.command") or task.get("gpuwright.node.package_transaction") or {}
    argv = str(module.get("argv"))
    words = argv + "".join(str(variables[name]) for name in re.findall(r"\b__\w+\b", argv) if name in variables)
    changes = re.search(r"'(?:install|purge|remove|--configure)'", words)
    return bool(changes and re.search(r"'(?:apt-get|dpkg)'", words)) and task.get("changed_when") is not False


def test_differences_between_systems_are_data_and_not_conditions() -> None:
    for path in TASK_FILES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"ansible_(distribution|os_family|facts\[)|os\.(id|family|codename)\s*(==|in|!=)", text), (
            path
        )


#: Refusals that hand on what a module, a filter or a component of ours said.
HANDED_ON = {
    "{{ ansible_failed_result.msg }}",
    "{{ __validate_not_proven }}",
    "{{ __container_toolkit_work.refusal }}",
    "{{ __container_toolkit_next.refusal }}",
}


def refusals() -> Iterator[tuple[Path, str, str | None]]:
    """Each task that ends a run with a sentence: its file, its name, the sentence."""
    for path, task in all_tasks():
        for module, option in (("ansible.builtin.assert", "fail_msg"), ("ansible.builtin.fail", "msg")):
            if module in task:
                yield path, task["name"], task[module].get(option)


def test_every_refusal_says_what_was_expected_found_and_to_do() -> None:
    own = [row for row in refusals() if row[2] not in HANDED_ON]
    assert {text for _path, _name, text in refusals()} >= HANDED_ON
    assert len(own) > 10
    for path, name, text in own:
        assert re.search(r"\AExpected .+ Found\b.+ What to do: .+\.", text or "", re.DOTALL), (path, name, text)


def test_no_refusal_names_a_package_manager_that_the_node_may_not_have() -> None:
    """Which one it has is looked up. What is of one manager alone is in a file with its name."""
    for path, name, text in refusals():
        if path.stem not in MANAGERS:
            assert not re.search(r"\b(apt|apt-get|dpkg|dnf|rpm) ", text or ""), (path, name)
    assert set(cuda.REINSTALL) == set(MANAGERS)
    assert all(command.startswith(manager) for manager, command in cuda.REINSTALL.items())


#: Roles that serve others, and one that has the plan of another verb.
HELPERS = {"firewall", "packages", "repositories", "standalone", "remove"}


def test_every_public_role_plans_for_itself_first_where_it_is_used_alone() -> None:
    components = {}
    for role in (role for role in ROLES if role.name not in HELPERS):
        first = read(role / "tasks" / "main.yml")[0]
        assert first["ansible.builtin.include_role"]["name"] == "gpuwright.node.standalone", role
        assert first["when"] == "gpuwright_standalone | default(true) | bool", role
        assert first["tags"] == first["ansible.builtin.include_role"]["apply"]["tags"] == ["always"], role
        components[role.name] = first.get("vars", {}).get("standalone_components")
    assert {name for name, wanted in components.items() if wanted == [name]} == set(COMPONENTS)
    assert {name for name, wanted in components.items() if wanted is None} == {"preflight", "validate"}


def test_the_plays_include_the_work_of_a_role_without_planning_again() -> None:
    """One task each: what is wished was checked by the plan, and a task that plans would be skipped."""
    files = [ROOT / "playbooks" / name for name in ("site.yml", "remove.yml", "tasks/go_back.yml")]
    rows = [row.get("tasks", [row]) for path in files for row in read(path)]
    included = [
        task["ansible.builtin.include_role"]
        for tasks in rows
        for task in tasks_of(tasks)
        if "ansible.builtin.include_role" in task
    ]
    assert len(included) > len(COMPONENTS)
    for each in included:
        name = each["name"].rpartition(".")[2]
        wanted = {"preflight": "refusals", "remove": "main"}.get(name, "work")
        assert each.get("tasks_from", "main") == wanted, name
        assert each["apply"]["tags"] == [name]
        assert each["rolespec_validate"] is False
        assert (ROOT / "roles" / name / "tasks" / f"{wanted}.yml").is_file()


def test_an_asked_tag_reaches_the_tasks_of_a_file_that_is_included_at_run_time() -> None:
    """Such tasks have the tags of blocks around the include, not of the include itself: it applies its own, or they have some."""
    tagged = [(path, task) for path, task in all_tasks() if "tags" in task and _included(task)]
    assert len(tagged) > 10
    for path, task in tagged:
        given = (_included(task).get("apply") or {}).get("tags")
        if given is None:
            rows = read(path.parent / _included(task)["file"])
            assert all(set() < set(row.get("tags", [])) <= set(task["tags"]) for row in rows), (path, task["name"])
        else:
            assert set(given) >= set(task["tags"]), (path, task["name"])


def _included(task: dict[str, Any]) -> dict[str, Any]:
    """What a task includes at run time; nothing of one that includes nothing."""
    value = task.get("ansible.builtin.include_tasks") or task.get("ansible.builtin.include_role") or {}
    return {"file": value} if isinstance(value, str) else value


def test_the_plays_that_plan_themselves_tell_the_roles_so() -> None:
    plays = [play for path in (ROOT / "playbooks").glob("*.yml") for play in read(path) if "tasks" in play]
    with_roles = [play for play in plays if "include_role" in json.dumps(play["tasks"])]
    assert len(with_roles) == 3
    assert all(play["vars"]["gpuwright_standalone"] is False for play in with_roles)


def test_the_plan_can_be_asked_for_each_component_and_for_nothing_else() -> None:
    def only(*names: str) -> list[str]:
        task: Any = SimpleNamespace(_task=SimpleNamespace(args={"components": list(names)}))
        return plan.ActionModule._only(task)

    assert only(*COMPONENTS) == list(COMPONENTS)
    assert only() == []
    with pytest.raises(AnsibleActionFail, match=r"expected names of repair, nvidia_driver, .*; found cuda_toolkit"):
        only("cuda", "cuda_toolkit")


def test_every_variable_that_tasks_and_vars_use_is_set_somewhere_in_the_role() -> None:
    for role in ROLES:
        yaml_files = [*role.glob("tasks/*.yml"), *role.glob("vars/*.yml"), *role.glob("templates/*")]
        text = "\n".join(path.read_text(encoding="utf-8") for path in yaml_files)
        used = set(re.findall(rf"\b__{role.name}_\w+\b", text))
        known = {name for path in role.glob("vars/*.yml") for name in read(path)}
        for path in role.glob("tasks/*.yml"):
            for task in tasks_of(read(path)):
                known |= set(task.get("ansible.builtin.set_fact") or {}) | set(task.get("vars") or {})
                known |= {task.get("register"), (task.get("loop_control") or {}).get("loop_var")}
        assert used - known == set(), role.name


# --- roles.json -------------------------------------------------------------------------------------------------------


@pytest.fixture(name="builder")
def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_roles", ROOT / "tools" / "build_roles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_role(target: Path, name: str, tasks: str) -> None:
    specs = "argument_specs: {main: {options: {a: {no_log: true, type: int}, b: {choices: [x, y]}}}}"
    for part, content in (("tasks/main.yml", tasks), ("meta/argument_specs.yml", specs)):
        path = target / name / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def test_the_checked_in_digests_are_those_of_the_roles(builder: ModuleType) -> None:
    stored = json.loads((ROOT / "plugins" / "plugin_utils" / "wish" / "roles.json").read_text(encoding="utf-8"))
    assert stored == builder.build(ROOT / "roles"), "run tools/build_roles.py"


def test_a_digest_changes_with_the_role_and_with_a_role_it_includes(builder: ModuleType, tmp_path: Path) -> None:
    copy_role(tmp_path, "outer", "- name: X\n  ansible.builtin.include_role:\n    name: gpuwright.node.inner\n")
    copy_role(tmp_path, "inner", "- name: Y\n")
    before = builder.build(tmp_path)
    copy_role(tmp_path, "inner", "- name: Z\n")
    after = builder.build(tmp_path)
    assert before["inner"]["digest"] != after["inner"]["digest"]
    assert before["outer"]["digest"] != after["outer"]["digest"]


@pytest.mark.parametrize("module", ["one/apply.py", "one/further.py"])
def test_a_digest_changes_with_the_python_that_decides_what_the_role_does(
    builder: ModuleType, tmp_path: Path, module: str
) -> None:
    copy_role(tmp_path / "roles", "one", "- name: X\n")
    path = tmp_path / "plugins/plugin_utils/components" / module
    path.parent.mkdir(parents=True)
    path.write_text("A = 1\n", encoding="utf-8")
    before = builder.build(tmp_path / "roles")
    path.write_text("A = 2\n", encoding="utf-8")
    assert builder.build(tmp_path / "roles")["one"]["digest"] != before["one"]["digest"]


@pytest.mark.parametrize("module", ["one/wish.py", "one/model.py", "one/resolve/other.py"])
def test_a_digest_leaves_out_what_chooses_the_stack_which_the_seal_holds_itself(
    builder: ModuleType, tmp_path: Path, module: str
) -> None:
    copy_role(tmp_path / "roles", "one", "- name: X\n")
    before = builder.build(tmp_path / "roles")
    path = tmp_path / "plugins/plugin_utils/components" / module
    path.parent.mkdir(parents=True)
    path.write_text("A = 1\n", encoding="utf-8")
    assert builder.build(tmp_path / "roles") == before


def test_a_digest_leaves_out_what_changes_nothing_on_a_node(builder: ModuleType, tmp_path: Path) -> None:
    copy_role(tmp_path, "one", "- name: X\n  ansible.builtin.include_role:\n    name: gpuwright.node.standalone\n")
    copy_role(tmp_path, "standalone", "- name: Y\n")
    before = builder.build(tmp_path)
    (tmp_path / "one" / "README.md").write_text("other words", encoding="utf-8")
    copy_role(tmp_path, "standalone", "- name: Other\n")
    assert builder.build(tmp_path)["one"] == before["one"]


def test_options_tell_their_type_and_which_one_is_a_secret(builder: ModuleType, tmp_path: Path) -> None:
    copy_role(tmp_path, "one", "- name: X\n")
    assert builder.build(tmp_path)["one"]["options"] == {
        "a": {"no_log": True, "type": "int"},
        "b": {"no_log": False, "type": "str", "choices": ["x", "y"]},
    }


def test_the_libraries_of_cuda_compat_are_set_for_single_tasks_and_environments_and_never_for_the_machine() -> None:
    assert [path for path, task in all_tasks() if "LD_LIBRARY_PATH" in json.dumps(task)] == []
    proofs = [task for path, task in all_tasks() if path.parts[-3] == "validate" and "environment" in task]
    assert {module_of(task): task["environment"] for task in proofs} == {
        "gpuwright.node.gpu_compute": "{{ item.environment }}",
        "gpuwright.node.toolkit_check": "{{ item.environment }}",
        "gpuwright.node.framework_check": "{{ item.environment }}",
        "gpuwright.node.framework_load": "{{ item.environment }}",
        "gpuwright.node.fabric_load": "{{ __validate_fabric_part.environment }}",
    }
    stack: Any = {
        "cuda_compat": {"version": "13.0", "path": "/usr/local/cuda-13.0/compat"},
        "frameworks": [
            {"name": "pytorch", "version": "2.14.1", "path": "/opt/gpuwright/pytorch", "interpreter": "3.12", "cuda": "13.0",
             "requirements": ["torch==2.14.1"], "loader_path": "/usr/local/cuda-13.0/compat"},
        ],
    }  # fmt: skip
    plan: Any = {"packages": {}, "rebuild": [], "builds": {}, "install": []}
    written: Any = frameworks.COMPONENT.steps["begin"](Context(facts=bare(), stack=stack), plan)
    activation = written["environments"]["/opt/gpuwright/pytorch"]["activation"]
    # In the environment, whose path comes before.
    places = [row["path"] for row in activation["files"] + activation["lines"]]
    assert places == ["gpuwright-cuda-compat.sh", "bin/activate"]


def test_no_key_is_read_that_every_dictionary_has_a_method_for() -> None:
    """Jinja takes `work.keys` for the method, whatever key the work has."""
    methods = "|".join(name for name in dir(dict) if not name.startswith("_"))
    taken = re.compile(rf"\w+(?<!ansible\.builtin)\.({methods})\b(?!\()")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "roles").glob("*/*/*.yml")}
    assert {
        str(path.relative_to(ROOT)): found[0] for path, text in texts.items() if (found := taken.search(text))
    } == {}


def test_a_role_used_alone_refuses_a_misspelt_variable_before_the_node_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_, **__: {})
    action = plan.ActionModule.__new__(plan.ActionModule)
    action._task = SimpleNamespace(args={"components": ["gpu_log"]}, action="gpuwright.node.plan", check_mode=False)
    with pytest.raises(AnsibleActionFail, match=r"gpu_log_day: no variable of gpuwright\. did you mean gpu_log_days\?"):
        action.run(None, {"inventory_hostname": "node", "gpu_log_day": 7})
