"""`make test-changed` runs what a change touches, and the turn of the soak is one of the parts that it can affect."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import changed, reach

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "touched"),
    [
        ("src/gpuwright/knowledge.py", "tests/integration/test_lock.py"),
        ("roles/mig/tasks/apply.yml", "tests/integration/test_mig.py"),
        ("plugins/module_utils/packages/private_dnf.py", "tests/integration/test_rocky.py"),
        ("plugins/plugin_utils/components/nvidia_driver/rollback.py", "tests/integration/test_life.py"),
        ("roles/reboot/tasks/resume.yml", "tests/integration/test_resume.py"),
        ("tests/integration/test_sources.py", "tests/integration/test_sources.py"),
        ("roles/cuda/tasks/install.yml", "tests/integration/test_roles_alone.py"),
    ],
)
def test_a_change_leads_to_the_tests_of_what_it_changes(path: str, touched: str) -> None:
    assert touched in changed.targets([path]).nodes


def test_rules_lead_to_what_resolves_by_them_and_packaging_to_its_tests() -> None:
    found = changed.targets(["compat/gpus.yaml"])
    assert "tests/property/test_answers.py" in found.slow
    assert {"tests/unit/resolve/test_cards.py", "tests/unit/resolve/test_rules_data.py"} <= set(found.units)
    assert changed.targets(["galaxy.yml", "pyproject.toml"]).slow == ["tests/packaging"]


def test_a_module_leads_to_the_unit_tests_that_import_it_over_any_way_and_to_no_other() -> None:
    units = changed.targets(["src/gpuwright/sizing/memory.py"]).units
    assert {"tests/unit/sizing/test_memory.py", "tests/unit/cli/test_size.py"} <= set(units)
    assert "tests/unit/observe/test_pci.py" not in units


def test_a_file_of_tests_leads_to_itself_and_a_conftest_to_its_folder() -> None:
    assert changed.targets(["tests/unit/observe/test_pci.py"]).units == ["tests/unit/observe/test_pci.py"]
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit/monitoring").glob("test_*.py")}
    assert set(changed.targets(["tests/unit/monitoring/conftest.py"]).units) == there


def test_a_role_leads_to_the_tests_that_read_roles() -> None:
    assert "tests/unit/roles/test_roles.py" in changed.targets(["roles/mig/tasks/apply.yml"]).units


def test_a_scenario_leads_to_itself_and_what_all_share_to_the_default_one() -> None:
    assert changed.targets(["molecule/distro/wish.yml", "molecule/shared/verify.yml"]).scenarios == [
        "distro",
        "default",
    ]


def test_a_document_needs_no_node_and_the_tests_that_read_it() -> None:
    found = changed.targets(["docs/commands.md", "README.md"])
    assert (found.slow, found.nodes, found.scenarios) == ([], [], [])
    assert "tests/unit/repo/test_docs.py" in found.units
    assert "tests/unit/sizing/test_memory.py" not in found.units


# --- texts for people ------------------------------------------------------------------------------------------------

_MODULE = '''
def told(host):
    """Say it of a host."""
    return f"{host} has no card, plug one in" if host["cards"] else None
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [("plug one in", "put one in"), ("Say it of a host", "Tell it of a host"), ("    return", "    # why\n    return")],
)
def test_a_text_for_people_is_told_from_all_else(old: str, new: str) -> None:
    assert reach.texts_that_changed(_MODULE, _MODULE.replace(old, new)) is not None


@pytest.mark.parametrize(
    ("old", "new"), [("cards", "gpus"), ("else None", "else 0"), ("{host} has", "{host!r} has"), ("(host)", "(")]
)
def test_a_key_a_value_and_a_form_are_no_texts(old: str, new: str) -> None:
    assert reach.texts_that_changed(_MODULE, _MODULE.replace(old, new)) is None


def test_of_a_text_only_the_words_count_that_are_gone() -> None:
    assert reach.texts_that_changed(_MODULE, _MODULE.replace("plug one in", "put one in")) == {
        ("card", "plug"),
        ("plug", "one"),
    }


def test_a_text_leads_to_who_imports_its_module_and_who_quotes_it_and_to_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = "src/gpuwright/sizing/memory.py"
    monkeypatch.setattr(changed, "_texts", lambda path, base: {("plug", "one"), ("put", "one")})
    found = changed.targets([path], "HEAD")
    here = "tests/unit/repo/test_changed.py"  # it quotes them
    assert {here, "tests/unit/sizing/test_memory.py"} <= set(found.units)
    assert len(found.units) < len(changed.targets([path]).units)
    assert (found.slow, found.nodes) == ([], [])


# --- parts of the soak -----------------------------------------------------------------------------------------------


def test_a_component_of_its_own_leads_to_the_parts_that_have_it() -> None:
    of_mig = {"rocky", "lines", "modules"}
    assert of_mig <= set(changed.parts(["roles/mig/tasks/apply.yml"])) < set(changed.names_of_parts())
    assert "containers" not in changed.parts(
        ["plugins/plugin_utils/components/mig/apply.py", "roles/mig/tasks/apply.yml"]
    )


@pytest.mark.parametrize(
    "path",
    [
        "plugins/modules/nvidia_smi.py",
        "roles/nvidia_driver/tasks/main.yml",
        "roles/validate/tasks/main.yml",
        "compat/gpus.yaml",
        "tests/integration/conftest.py",
        "plugins/plugin_utils/plan/a_new_module.py",
    ],
)
def test_what_every_run_goes_through_leads_to_every_part_with_nodes(path: str) -> None:
    assert set(changed.node_tests()) <= set(changed.parts([path]))


def test_what_rooms_alone_use_is_theirs_and_what_a_role_of_none_calls_is_not() -> None:
    assert changed.owners_of("plugins/modules/driver_file.py") == {"cuda", "nvidia_driver"}
    assert changed.owners_of("plugins/modules/nvidia_smi.py") is None


@pytest.mark.parametrize(
    ("path", "affected"),
    [
        ("docs/commands.md", []),
        ("tests/integration/test_grafana.py", ["monitoring"]),
        ("tests/integration/test_warm.py", []),
        ("tests/measured/test_memory.py", ["figures"]),
        ("tests/property/test_answers.py", ["properties"]),
        ("tests/unit/plan/test_mig.py", ["lines"]),
    ],
)
def test_a_test_leads_to_its_part_and_a_document_to_none(path: str, affected: list[str]) -> None:
    assert changed.parts([path]) == affected


def test_the_parts_without_nodes_are_all_known() -> None:
    assert set(changed.names_of_parts()) == set(changed.node_tests()) | set(changed._PARTS)


def test_a_commit_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed.main(["no-such-commit"]) == 2
    assert "there is no commit 'no-such-commit'" in capsys.readouterr().err


def each_of(pattern: str) -> set[str]:
    """The pattern once for each of its alternatives."""
    choice = re.search(r"\((?!\?)([^()]*\|[^()]*)\)", pattern)
    if choice is None:
        return set(re.split(r"\|(?![^(]*\))", pattern))
    before, after = pattern[: choice.start()], pattern[choice.end() :]
    return {row for each in choice[1].split("|") for row in each_of(before + each + after)}


def test_a_pattern_is_taken_apart_into_its_alternatives() -> None:
    assert each_of(r"^(a/|b/(c|d))|e\.f") == {"^a/", "^b/c", "^b/d", r"e\.f"}
    assert each_of("^x/(?!y|z)") == {"^x/(?!y|z)"}


@pytest.mark.parametrize("pattern", [pattern for pattern, _tests in changed.TOUCHES])
def test_each_alternative_of_a_pattern_matches_a_path_that_may_change(pattern: str) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [path for path in listed.stdout.splitlines() if not path.startswith("collections/")]
    assert [each for each in each_of(pattern) if not any(re.search(each, path) for path in paths)] == []


def test_every_test_that_is_named_is_there() -> None:
    named = {test for _pattern, tests in changed.TOUCHES for test in tests if "\\" not in test}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
