"""The tree holds to its own layout: links, versions, headers, nothing of one machine in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
LINKS = ROOT / "collections/ansible_collections/gpuwright/node"
ENTRIES = {"galaxy.yml", "README.md", "meta", "playbooks", "plugins", "roles", "compat"}
NODE_SIDE = [
    path for folder in ("modules", "module_utils") for path in sorted((ROOT / "plugins" / folder).rglob("*.py"))
]
CODE = (ast.FunctionDef, ast.ClassDef)
PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))
#: What runs on nodes imports beyond the standard library: Ansible itself, and what the package manager of the distribution brings.
BROUGHT = {"ansible", "ansible_collections", "apt", "apt_pkg", "dnf", "hawkey", "libdnf", "libdnf5", "rpm"}
HEADER = (
    "# Copyright: gpuwright contributors\n"
    "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)\n"
)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def galaxy() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/gpuwright/__init__.py").read_text(), re.MULTILINE)
    assert found
    return found[1]


def tracked() -> list[Path]:
    """What git knows or would add; without git the test that asks is skipped, not passed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in filter(None, os.fsdecode(listed.stdout).split("\0")) if (ROOT / name).is_file()]


def test_links_are_one_for_each_entry_of_the_collection() -> None:
    assert {path.name for path in LINKS.iterdir()} == ENTRIES


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_link_is_relative_and_leads_to_the_entry_of_the_root(entry: str) -> None:
    link = LINKS / entry
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / entry
    assert link.exists()


def test_namespace_of_collections_has_no_init() -> None:
    assert list((ROOT / "collections").rglob("__init__.py")) == []
    assert [
        path for path in ROOT.glob("plugins/**/__init__.py") if path.parent.name in {"plugins", "modules", "action"}
    ] == []


def test_galaxy_and_package_have_one_version() -> None:
    assert galaxy()["version"] == version()
    assert "version" in project()["project"]["dynamic"]


def test_runtime_and_package_ask_for_the_same_ansible_core() -> None:
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    [core] = [wanted for wanted in project()["project"]["dependencies"] if wanted.startswith("ansible-core")]
    assert runtime.removesuffix(".0") == core.removeprefix("ansible-core")


def test_tests_and_nodes_have_one_uv() -> None:
    ours = project()["project"]["optional-dependencies"]["test"]
    (pinned,) = [each for each in ours if each.startswith("uv")]
    builders = yaml.safe_load((ROOT / "compat/frameworks.yaml").read_text())["builders"]
    assert {f"{row['package']}=={row['version']}" for row in builders} == {pinned}


def test_every_top_level_entry_is_shipped_or_ignored_by_galaxy_on_purpose() -> None:
    """A new folder must be put on one of the two sides; a folder that is forgotten here would be in everybody's tarball."""
    shipped = {"LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "changelogs", "docs", *ENTRIES}
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert top - shipped <= set(galaxy()["build_ignore"])


def test_roles_need_no_other_collection() -> None:
    assert galaxy()["dependencies"] == {}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def names(paths: Iterable[Path]) -> list[str]:
    """The files by their places in the tree, as a failing test shall name them."""
    return [str(path.relative_to(ROOT)) for path in paths]


def test_plugin_files_begin_with_the_licence() -> None:
    texts = ((path, path.read_text().removeprefix("#!/usr/bin/python\n")) for path in PLUGINS)
    assert names(path for path, text in texts if text and not text.startswith(HEADER)) == []


def test_plugin_files_postpone_their_annotations() -> None:
    """Only then may a file for Python 3.8 write `X | None`. The documentation module of an action has no code to annotate."""
    without = [path for path in PLUGINS if "\nfrom __future__ import annotations\n" not in path.read_text()]
    assert names(path for path in without if any(isinstance(node, CODE) for node in ast.walk(tree(path)))) == []


def test_what_runs_on_nodes_is_python_3_8() -> None:
    for path in NODE_SIDE:
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))


def test_what_runs_on_nodes_imports_nothing_of_third_parties() -> None:
    allowed = sys.stdlib_module_names | BROUGHT
    foreign = {str(path.relative_to(ROOT)): imported(path) - allowed for path in NODE_SIDE}
    assert {place: modules for place, modules in foreign.items() if modules} == {}


def imported(path: Path) -> set[str]:
    """The first names of the modules that a file imports by their full names."""
    modules = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.split(".")[0])
    return modules


def test_every_action_has_its_documentation_module() -> None:
    actions = {path.name for path in (ROOT / "plugins/action").glob("*.py")}
    assert actions - {path.name for path in (ROOT / "plugins/modules").glob("*.py")} == set()


def test_no_file_names_a_place_of_one_machine() -> None:
    """The folder this checkout lies in, and the home of whoever runs this (root's is everybody's)."""
    places = {ROOT, Path.home()} - {Path("/root")}
    suspicious = re.compile("|".join(f"{re.escape(str(place))}\\b" for place in places).encode())
    assert [str(path.relative_to(ROOT)) for path in tracked() if suspicious.search(path.read_bytes())] == []


def test_vendor_addresses_stand_in_one_file() -> None:
    vendors = re.compile(r"https?://(?:developer\.download\.nvidia\.com|download\.pytorch\.org|nvidia\.github\.io)")
    code = [path for path in tracked() if path.suffix in {".py", ".yml", ".yaml", ".j2", ".sh"}]
    outside = {str(path.relative_to(ROOT)) for path in code if vendors.search(path.read_text(errors="replace"))}
    assert {name for name in outside if not name.startswith("tests/")} == {"compat/upstreams.yaml"}


def test_no_pattern_begins_lines_with_blanks_that_may_be_line_ends() -> None:
    """Such a pattern tries each of many empty lines with all that follow it: one file of a megabyte of them takes hours."""
    with_lines = (path for path in PLUGINS if "MULTILINE" in path.read_text())
    calls = [(path, node) for path in with_lines for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    assert [
        f"{path.relative_to(ROOT)}: {said}"
        for path, node in calls
        if re.search(r"\^\\+s[*+]", said := ast.unparse(node)) and "MULTILINE" in said
    ] == []
