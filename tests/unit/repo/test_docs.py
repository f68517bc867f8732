"""What the documents point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import DESIGN

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
PAGES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS]


def heading_anchors(text: str) -> set[str]:
    """The anchors that a forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), f"{page.name} points at {target}"
        assert not anchor or anchor in heading_anchors(there.read_text()), f"{page.name} points at {target}"


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_of_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {
        name
        for line in re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for name in line.split()
    }
    text = page.read_text()
    named = set(re.findall(r"`make ([a-z-]+)`", text)) | set(re.findall(r"^    make ([a-z-]+)", text, re.MULTILINE))
    assert named <= targets


def test_the_page_that_answers_cite_is_there_and_names_modules_that_are() -> None:
    cited = re.search(r"\((.+)\)", DESIGN)
    assert cited
    page = (ROOT / cited[1]).read_text()
    named = {name for heading in re.findall(r"^## .+\((.+)\)$", page, re.MULTILINE) for name in heading.split(", ")}
    assert len(named) > 10
    parts = ROOT / "plugins/plugin_utils"
    known = {path.stem for path in [*parts.glob("resolver/*"), *parts.glob("components/*/resolve/*")]}
    known |= {path.parent.name for path in parts.glob("components/*/resolve*")}
    assert {name.strip("`") for name in named} <= known


def test_every_decision_is_listed() -> None:
    listed = set(re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (ROOT / "docs/adr/README.md").read_text()))
    assert listed == {path.name for path in (ROOT / "docs/adr").glob("0*.md")}


def test_example_fleet_sets_only_variables_that_something_reads() -> None:
    """A misspelt variable in an inventory is silently nothing."""
    read = set()
    for path in [*ROOT.glob("plugins/**/*.py"), *ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/defaults/*.yml")]:
        read |= set(re.findall(r"\b[a-z]+_[a-z_]+\b", path.read_text()))
    for path in ROOT.glob("inventories/*/group_vars/*.yml"):
        used = {name for name in yaml.safe_load(path.read_text()) if not name.startswith("ansible_")}
        assert used <= read, path.name


def test_each_threat_names_a_test_that_is_there() -> None:
    """A row of the threat table without a test that holds it is a promise."""
    text = (ROOT / "docs/security.md").read_text()
    table = text.partition("\n## Threats\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| Threat ")]
    assert len(rows) >= 20
    for row in rows:
        held_by = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row.rstrip(" |").rpartition(" | ")[2])
        assert held_by, row
        for file, name in held_by:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"tests/{file} has no {name}"
