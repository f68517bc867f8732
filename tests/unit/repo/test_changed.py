"""`make test-changed` runs what a change touches."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import changed

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


def test_rules_lead_to_the_properties_and_packaging_to_its_tests() -> None:
    assert changed.targets(["compat/gpus.yaml"]).slow == ["tests/property"]
    assert changed.targets(["galaxy.yml", "pyproject.toml"]).slow == ["tests/packaging"]


def test_a_scenario_leads_to_itself_and_what_all_share_to_the_default_one() -> None:
    assert changed.targets(["molecule/distro/wish.yml", "molecule/shared/verify.yml"]).scenarios == [
        "distro",
        "default",
    ]


def test_a_document_needs_no_node() -> None:
    assert changed.targets(["docs/commands.md", "README.md"]) == changed.Targets()


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
