"""Tables held against what upstream says, and changed line by line."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.observe.packages import INTERESTING
from tools import compat_tables
from tools.compat_facts import Facts, Row
from tools.compat_tables import TableFile

KEY = ("version",)


def nccl(rows: dict[str, Row], *, complete: bool = True) -> Facts:
    return Facts("libraries", "nccl", KEY, {(version,): row for version, row in rows.items()}, complete=complete)


def compare(ours: list[Row], facts: Facts, exceptions: list[Row] | None = None) -> list[tuple[Any, ...]]:
    tables = {"libraries": {"nccl": ours, "exceptions": exceptions or []}}
    return [(each.name, each.field, each.ours, each.upstream) for each in compat_tables.compare(tables, [facts])]


def test_a_release_that_is_missing_and_one_too_many_are_differences() -> None:
    found = compare([{"version": "2.1"}], nccl({"2.2": {}}))
    assert found == [("2.2", None, "not there", "published"), ("2.1", None, "a row", "not on the index")]


def test_a_list_that_is_not_all_there_is_lets_other_rows_be() -> None:
    assert compare([{"version": "2.1"}], nccl({}, complete=False)) == []


def test_a_field_that_differs_is_named_with_both_values() -> None:
    ours = [{"version": "2.1", "variants": {"cu12": ["x86_64"]}}]
    theirs = nccl({"2.1": {"variants": {"cu12": ["x86_64", "aarch64"]}}})
    assert compare(ours, theirs) == [("2.1", "variants", {"cu12": ["x86_64"]}, {"cu12": ["x86_64", "aarch64"]})]


def test_the_order_of_a_list_and_a_field_that_is_false_make_no_difference() -> None:
    ours = [{"version": "2.1", "arch": ["aarch64", "x86_64"]}]
    assert compare(ours, nccl({"2.1": {"arch": ["x86_64", "aarch64"], "yanked": False}})) == []


def test_withdrawn_upstream_and_not_here_is_a_difference() -> None:
    assert compare([{"version": "2.1"}], nccl({"2.1": {"yanked": True}})) == [("2.1", "yanked", None, True)]


def test_an_index_that_tells_no_dates_contradicts_none() -> None:
    assert compare([{"version": "2.1", "date": "2024-05-01"}], nccl({"2.1": {"date": None}})) == []


def test_an_exception_explains_its_own_difference_and_no_other() -> None:
    ours = [{"version": "2.1", "date": "2024-05-01", "arch": []}]
    theirs = nccl({"2.1": {"date": "2024-06-01", "arch": ["x86_64"]}})
    rows = [{"table": "nccl", "key": "2.1", "field": "date"}]
    assert compare(ours, theirs, rows) == [("2.1", "arch", [], ["x86_64"])]


def test_an_exception_that_explains_nothing_any_more_is_a_difference() -> None:
    rows = [{"table": "nccl", "key": "2.1", "field": "date"}]
    found = compare([{"version": "2.1", "date": "2024-05-01"}], nccl({"2.1": {"date": "2024-05-01"}}), rows)
    assert found == [("2.1", "date", "an exception", "nothing that differs: remove it")]


# writing ---------------------------------------------------------------------------------------------------


def moved(path: Path, file: TableFile) -> list[str]:
    """Lines that go and come, without the marks of a diff."""
    before = path.read_text().splitlines()
    lines = difflib.unified_diff(before, file.text.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:2] not in ("--", "++", "@@")]


def test_a_changed_field_moves_the_lines_of_its_row_only(write_cudnn: Path) -> None:
    path = write_cudnn / "cudnn.yaml"
    file = TableFile(path)
    file.set("versions", ("9.3.0.75",), KEY, arch=["x86_64", "aarch64"])
    gone, come = moved(path, file)
    assert gone.startswith("-  - {version: '9.3.0.75', cuda_majors: ['12'], arch: [x86_64], date:")
    assert come == gone.replace("-  -", "+  -").replace("[x86_64]", "[x86_64, aarch64]")


def test_a_row_that_goes_over_two_lines_is_changed_as_one(write_cudnn: Path) -> None:
    file = TableFile(write_cudnn / "cudnn.yaml")
    file.set("versions", ("9.1.0.70",), KEY, yanked=True)
    rows = yaml.safe_load(file.text)["versions"]
    assert [row["version"] for row in rows] == ["9.1.0.70", "9.3.0.75"]
    assert list(rows[0]) == ["version", "cuda_majors", "arch", "date", "yanked", "confirmed", "source"]
    assert "# The first one of version 9." in file.text


@pytest.mark.parametrize(
    ("version", "place"), [("9.2.0.82", 1), ("9.10.2.21", 2), ("8.9.7.29", 0)], ids=["between", "last", "first"]
)
def test_a_new_row_goes_where_its_version_belongs(write_cudnn: Path, version: str, place: int) -> None:
    path = write_cudnn / "cudnn.yaml"
    file = TableFile(path)
    file.add("versions", (version,), KEY, {"version": version, "confirmed": True, "source": ["package_index"]})
    assert [row["version"] for row in yaml.safe_load(file.text)["versions"]][place] == version
    assert moved(path, file) == [f"+  - {{version: '{version}', confirmed: true, source: [package_index]}}"]


@pytest.mark.parametrize("there", ["nccl: []\n\n", ""], ids=["empty", "missing"])
def test_the_first_row_of_a_table_begins_it(tmp_path: Path, there: str) -> None:
    path = tmp_path / "libraries.yaml"
    path.write_text(f"---\nupdated: '2024-01-01'\n\n{there}sources:\n  s: {{title: t, ref: r, date: '2024'}}\n")
    file = TableFile(path)
    file.add("nccl", ("2.1",), KEY, {"version": "2.1", "source": ["s"]})
    assert file.text.splitlines()[3:6] == ["nccl:", "  - {version: '2.1', source: [s]}", ""]
    assert list(yaml.safe_load(file.text)) == ["updated", "nccl", "sources"]


def test_the_day_and_a_source_are_written_in_their_places(write_cudnn: Path) -> None:
    path = write_cudnn / "cudnn.yaml"
    file = TableFile(path)
    assert not file.changed
    file.updated("2024-09-01")
    file.explain("redist", "manifests: all", "NVIDIA redist index", "2024-09-01")
    assert moved(path, file) == [
        "-updated: '2024-01-01'",
        "+updated: '2024-09-01'",
        "+  redist: {title: 'manifests: all', ref: NVIDIA redist index, date: '2024-09-01'}",
    ]
    file.write()
    assert yaml.safe_load(path.read_text())["sources"]["redist"]["title"] == "manifests: all"


@pytest.mark.parametrize(
    "value",
    ["2.10", "2024-05-01", "no", "x86_64", "<10.0,>=9.8", "it's", "a: b", "", None, True, {"cu12": ["1.0"]}, []],
)
def test_what_is_written_is_read_as_the_same_again(value: Any) -> None:
    row = {"key": value, "source": ["s"]}
    assert yaml.safe_load("\n".join(compat_tables.lines(row))) == [row]


def test_a_long_row_is_wrapped_after_a_field() -> None:
    row = {f"field_{number}": "x" * 40 for number in range(6)}
    lines = compat_tables.lines(row)
    assert len(lines) > 1
    assert max(map(len, lines)) <= compat_tables.WIDTH
    assert yaml.safe_load("\n".join(lines)) == [row]


def test_every_table_of_ours_keeps_its_rows_when_they_are_written_again() -> None:
    for path in sorted(compat_tables.COMPAT.glob("*.yaml")):
        for table, rows in yaml.safe_load(path.read_text()).items():
            for row in rows if isinstance(rows, list) else ():
                assert yaml.safe_load("\n".join(compat_tables.lines(row))) == [row], (path.name, table)


def test_an_observation_lists_every_package_that_the_rules_install() -> None:
    """What is not listed would be missing for ever."""
    tables = yaml.safe_load((Path(__file__).parents[3] / "compat/packages.yaml").read_text(encoding="utf-8"))
    names = {
        name.format(branch="580", series="generic", version="580.178.04", major="13", minor="0")
        for rows in tables.values()
        if isinstance(rows, list)
        for row in rows
        for name in row.get("packages", ())
        if row.get("what", "cuda") == "cuda"
    }
    assert "infiniband-diags" in names
    assert {name for name in names if not INTERESTING.search(name)} == set()
