"""`make test-changed` runs what a change touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import changed

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "touched"),
    [
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


def test_every_test_that_is_named_is_there() -> None:
    named = {test for _pattern, tests in changed.TOUCHES for test in tests if "\\" not in test}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
