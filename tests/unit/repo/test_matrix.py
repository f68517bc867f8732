"""The generated page of everything that fits together."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import specifiers
from tools import build_matrix

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/matrix.md"


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    return load_rules()


@pytest.fixture(scope="module")
def page(rules: dict[str, Any]) -> str:
    return build_matrix.build(rules)


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_page_is_what_the_rules_say() -> None:
    command = [sys.executable, str(ROOT / "tools/build_matrix.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_that_is_out_of_date_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(build_matrix, "ROOT", tmp_path)
    monkeypatch.setattr(build_matrix, "TARGET", tmp_path / "docs/matrix.md")
    assert build_matrix.main(["--check"]) == 1
    assert "make rules" in capsys.readouterr().err
    assert build_matrix.main([]) == 0
    assert build_matrix.main(["--check"]) == 0


def test_the_page_is_small_and_no_table_is_wider_than_a_phone_scrolls(page: str) -> None:
    assert len(page.encode()) < 150_000
    assert max(len(cells) for cells in rows(page)) <= 6
    assert max(len(line) for line in page.splitlines() if not line.startswith(("|", "[", "<", "- "))) <= 130


def test_every_table_is_whole(page: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        cells = rows(block)
        assert {len(row) for row in cells} == {len(cells[0])}, block.splitlines()[0]
        assert set(cells[1]) == {"---"}
        assert len(cells) > 2


def test_every_link_of_the_contents_has_its_heading(page: str) -> None:
    anchors = re.findall(r"\]\(#([a-z-]+)\)", page)
    assert anchors == [title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", page, re.MULTILINE)]


def test_every_card_is_listed_once_under_its_architecture(page: str, rules: dict[str, Any]) -> None:
    folds = dict(re.findall(r"<summary><b>([^<]+)</b>.*?</summary>\n(.*?)</details>", page, re.DOTALL))
    for row in rules["gpus"]["rows"]:
        own = [line for line in folds[row["architecture"]].splitlines() if line.startswith(f"- {row['name']}")]
        assert any(all(device in line for device in row["pci"]) for line in own), row["name"]
    assert sum(fold.count("\n- ") for fold in folds.values()) == len(rules["gpus"]["rows"])


def test_branches_and_toolkits_are_those_of_the_rules(page: str, rules: dict[str, Any]) -> None:
    named = {row[0].rstrip("?") for row in rows(section(page, "Driver branches"))}
    assert {row["branch"] for row in rules["driver_branches"]["rows"]} <= named
    table = {row[0].rstrip("?"): row for row in rows(section(page, "CUDA").split("The same by card")[0])}
    assert {row["cuda"] for row in rules["cuda"]["rows"]} <= set(table)
    assert table["12.8"][1:4] == ["570.26", "525.60.13", "5.0 to 10.0, 12.0"]


@pytest.mark.parametrize(("name", "title"), build_matrix.TITLES.items())
def test_every_release_that_can_be_had_is_in_one_row_for_each_variant(
    name: str, title: str, page: str, rules: dict[str, Any]
) -> None:
    # Packages for the processor alone are not on the page.
    every = [row for row in rules[name]["releases"] if row.get("variant") != "cpu"]
    order = [row["version"] for row in every]
    covered: dict[str, list[str]] = {}
    for release, variant, *_ in rows(section(page, title))[2:]:
        first, _, last = release.replace("?", "").partition(" to ")
        covered.setdefault(variant, []).extend(order[order.index(first) : order.index(last or first) + 1])
    for variant, releases in covered.items():
        assert len(set(releases)) == len(releases), variant
    published = [row["version"] for row in every if not row.get("yanked")]
    known = {version for version in published if specifiers.is_version(version)}  # not a rebuild such as 2.15.0.post1
    assert known <= {each for releases in covered.values() for each in releases}


def test_volta_has_cu128_in_three_releases_only(page: str) -> None:
    held = {row[0]: row[4] for row in rows(section(page, "PyTorch")) if row[1] == "cu128"}
    assert {release for release, capabilities in held.items() if capabilities.startswith("7.0")} == {
        "2.8.0",
        "2.9.0 to 2.9.1",
        "2.10.0",
    }


def test_a_release_without_a_variant_ends_its_row(rules: dict[str, Any]) -> None:
    changed = copy.deepcopy(rules)
    changed["pytorch"]["variants"] = [
        row for row in changed["pytorch"]["variants"] if (row["release"], row["variant"]) != ("2.13", "cu130")
    ]
    before, after = (
        [row[0] for row in rows(build_matrix.framework("pytorch", each)) if row[1] == "cu130"]
        for each in (rules, changed)
    )
    assert len(after) == len(before) + 1


def test_a_card_that_a_later_branch_lacks_is_named(page: str) -> None:
    assert "- RTX PRO 4500 Blackwell Server Edition: not by 590, 595" in page


@pytest.mark.parametrize(
    ("found", "text"), [(["1", "2", "3"], "1 to 3"), (["1", "3", "4"], "1, 3 to 4"), ([], "–"), (["2"], "2")]
)
def test_runs_are_written_by_their_ends(found: list[str], text: str) -> None:
    assert build_matrix.span(found, ["1", "2", "3", "4"]) == text
