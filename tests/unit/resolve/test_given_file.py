"""Files that a person hands in are read within limits, and what is wrong with one is told in a sentence, with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.wish import projects
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput

_LAUGHS = "\n".join([
    "a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
    *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
])  # fmt: skip


def told(written: str, reader: str = "from_yaml") -> str:
    with pytest.raises(BadInput) as caught:
        getattr(given_file, reader)(written, "the wish file w.yml")
    return caught.value.message


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (_LAUGHS, "stands for more than 200000 values"),
        ("a: &a [*a]", "stands for more than 200000 values"),
        ("a: 1\ndate: 2026-13-01", "line 2"),
        ("date: 2026-02-30", "day is out of range"),
        ("a: " + "9" * 5000, "line 1"),
        ("[" * 5000, "not YAML"),
        ("a: [", "not YAML"),
    ],
    ids=["aliases", "an-alias-of-itself", "a-month", "a-day", "digits", "depth", "unfinished"],
)
def test_yaml_that_never_ends_or_is_none_is_told(written: str, words: str) -> None:
    assert words in told(written)


def test_yaml_with_an_anchor_and_a_date_is_read() -> None:
    found = given_file.from_yaml("a: &a {b: 1}\nc: *a\nd: 2026-02-28", "x")
    assert found["c"] == {"b": 1}  # type: ignore[index]
    assert given_file.from_yaml("", "x") is None


@pytest.mark.parametrize("reader", ["from_json", "from_toml"])
@pytest.mark.parametrize("written", ["9" * 5000, "a = " + "9" * 5000, "[" * 100_000, "a = 2026-02-30"])
def test_json_and_toml_that_are_none_are_told(reader: str, written: str) -> None:
    assert "is not " in told(written, reader)


def test_json_of_too_many_values_is_not_read() -> None:
    assert "more than 200000 values" in told("[" + "0," * 200_001 + "0]", "from_json")


def test_a_file_is_read_to_its_limit_packed_or_not(tmp_path: Path) -> None:
    name = tmp_path / "facts.json.gz"
    name.write_bytes(gzip.compress(b"0" * 100 * 2**20))
    with pytest.raises(BadInput, match="has more than 8 MiB"):
        given_file.text(str(name), "the facts file")
    name.write_bytes(gzip.compress(b"")[:2] + b"0" * 9 * 2**20)
    with pytest.raises(BadInput, match="has more than 8 MiB"):
        given_file.text(str(name), "the facts file")
    name.write_bytes(gzip.compress(b'{"a": 1}'))
    assert given_file.text(str(name), "the facts file") == '{"a": 1}'
    name.write_bytes(gzip.compress(b"0" * 100)[:-9])
    with pytest.raises(BadInput, match="is a broken gzip file"):
        given_file.text(str(name), "the facts file")
    name.write_bytes(b"0" * (2**20 + 1))
    with pytest.raises(BadInput, match="has more than 1 MiB"):
        given_file.text(str(name), "the wish file", given_file.WRITTEN_BY_PEOPLE)


def required(tmp_path: Path, name: str) -> list[str]:
    return [each.text for each in projects.read(str(tmp_path / name), None).requirements]


def test_a_file_that_many_name_is_read_once(tmp_path: Path) -> None:
    """Each of forty names the next one twice: 2^40 ways."""
    for number in range(40):
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n-r r{number + 1}.txt\np{number}\n")
    (tmp_path / "r40.txt").write_text("numpy>=2\n")
    assert len(required(tmp_path, "r0.txt")) == 41
    # The same file by another of its paths.
    (tmp_path / "below").symlink_to(tmp_path)
    (tmp_path / "round.txt").write_text("-r below/round.txt\nscipy\n")
    assert required(tmp_path, "round.txt") == ["scipy"]


def test_more_requirements_than_a_project_has_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("".join(f"p{number}\n" for number in range(10_001)))
    with pytest.raises(BadInput, match="more than 10000 requirements"):
        required(tmp_path, "r.txt")
    rows = ", ".join(f'"p{number}"' for number in range(10_001))
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "x"\ndependencies = [{rows}]\n')
    with pytest.raises(BadInput, match="more than 10000 requirements"):
        required(tmp_path, "pyproject.toml")


def test_groups_that_include_each_other_many_times_are_not_expanded(tmp_path: Path) -> None:
    groups = [f'g{n} = [{{include-group = "g{n + 1}"}}, {{include-group = "g{n + 1}"}}]' for n in range(40)]
    text = "\n".join(['[project]\nname = "x"\n[dependency-groups]', *groups, 'g40 = ["numpy"]'])
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BadInput, match="more than 10000 requirements"):
        required(tmp_path, "pyproject.toml:g0")
    assert required(tmp_path, "pyproject.toml:g38") == ["numpy"] * 4
