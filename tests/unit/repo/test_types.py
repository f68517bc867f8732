"""The types of what leaves a node are those of the schema that the gate holds it against."""

from __future__ import annotations

import json
import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.action import report as report_action
from ansible_collections.gpuwright.node.plugins.module_utils import check, facts, index, seal
from ansible_collections.gpuwright.node.plugins.modules import plan
from ansible_collections.gpuwright.node.plugins.modules import report as report_module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import plan as plans
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import LockStack
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.parts import PARTS
from tests.unit.plan import nodes
from tools import build_schemas, build_types

ROOT = Path(__file__).parents[3]
DEFINITIONS = json.loads(gate.ANSWERS.read_text(encoding="utf-8"))["$defs"]


def test_what_is_generated_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_types.main(["--check"]) == 0, capsys.readouterr().err


def test_a_file_that_is_out_of_date_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (build_types.SOURCE, build_types.MODULE, build_types.PAGE):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "plugins/module_utils").mkdir()
    monkeypatch.setattr(build_types, "ROOT", tmp_path)
    assert build_types.main(["--check"]) == 1
    assert "facts.py is not up to date: run `make rules`" in capsys.readouterr().err
    assert build_types.main([]) == 0
    assert build_types.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("made", "definition"),
    [
        (facts.Facts, "facts"),
        (facts.Card, "card"),
        (check.Check, "check"),
        (seal.Seal, "seal"),
        (seal.History, "history"),
        (seal.DriverStack, "driver_stack"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_type_has_the_keys_of_its_definition(made: Any, definition: str) -> None:
    schema = DEFINITIONS[definition]
    assert set(made.__annotations__) == set(schema["properties"])
    assert made.__required_keys__ == set(schema["required"])


def test_the_type_of_the_index_leaves_out_what_every_answer_has() -> None:
    there = set(DEFINITIONS["package_index"]["properties"])
    assert set(index.PackageIndex.__annotations__) == there - build_types.ENVELOPE


def test_every_part_of_a_lock_has_its_definition() -> None:
    assert {part.key for part in PARTS} == set(LockStack.__annotations__) - {"repositories"}
    assert {part.key for part in PARTS if part.several} == {"cuda", "frameworks"}


def test_the_schemas_of_documents_are_those_of_their_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_schemas.main(["--check"]) == 0, capsys.readouterr().err


def test_a_key_of_a_definition_is_in_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    for path in build_schemas.build():
        (tmp_path / path).write_text("{}", encoding="utf-8")
    monkeypatch.setattr(build_schemas, "ROOT", tmp_path)
    assert build_schemas.main(["--check"]) == 1
    assert "report.schema.json is not up to date: run `make rules`" in capsys.readouterr().err
    assert build_schemas.main([]) == 0
    made = json.loads((tmp_path / "docs/report.schema.json").read_text(encoding="utf-8"))
    record = made["$defs"]["Record"]
    assert set(record["properties"]) == {*report.Record.__annotations__} - {"warnings_as_before"}
    assert set(record["properties"]) - set(record["required"]) == {"counts", "whole"}
    assert record["properties"]["seconds"] == {
        "type": ["number", "null"],
        "minimum": 0,
        "description": "How long the host took.",
    }


def test_the_module_report_takes_what_a_record_has() -> None:
    options = yaml.safe_load(report_module.DOCUMENTATION)["options"]
    assert set(report_action.FIELDS) <= set(options)
    told = {"state", "run_dir", "verb", "record", "unreachable", "failed", "not_reached"}
    assert set(options) - set(report_action.FIELDS) == told


def test_what_the_module_plan_says_of_its_answer_has_what_roles_and_playbooks_read() -> None:
    told = yaml.safe_load(plan.RETURN)
    files = [path for name in ("roles", "playbooks") for path in (ROOT / name).rglob("*.yml")]
    read = {key for path in files for key in re.findall(r"\bgpuwright_plan\.(\w+)", path.read_text(encoding="utf-8"))}
    assert len(read) > 10
    assert read - set(told) == set()


@pytest.mark.parametrize(
    ("key", "made"), [("changes", plans.Change), ("remove", plans.Removal), ("restore", plans.Restore)]
)
def test_what_the_module_plan_says_of_a_part_names_its_keys(key: str, made: Any) -> None:
    told = "".join(yaml.safe_load(plan.RETURN)[key]["description"])
    assert set(re.findall(r"C\((\w+)\)", told)) == set(made.__annotations__)


def test_annotations_can_be_evaluated() -> None:
    for module in (check, seal, facts, index):
        for name, made in vars(module).items():
            if typing.is_typeddict(made):
                assert typing.get_type_hints(made, vars(module)) or not made.__annotations__, name


def test_what_the_planner_is_tested_with_has_no_key_that_a_node_does_not_answer() -> None:
    assert set(nodes.bare()) <= set(facts.Facts.__annotations__)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, "a has no title"),
        (
            {"title": "A", "type": "object", "properties": {"b": {"type": "boolean"}}, "additionalProperties": False},
            "a.b has no description",
        ),
        ({"enum": ["x"]}, "a has no title"),
    ],
)
def test_a_schema_without_a_name_or_a_meaning_is_refused(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(build_types.SourceError, match=told):
        build_types.Types({"$defs": {}}).of(schema, "a")


def test_two_types_of_one_name_are_refused() -> None:
    types = build_types.Types({"$defs": {}})
    assert types.of({"title": "A", "enum": ["x", None]}, "a") == "A | None"
    with pytest.raises(build_types.SourceError, match="b: there is another type A"):
        types.of({"title": "A", "enum": ["y"]}, "b")


MYPY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
#: By module, or by all below one, that an Any may stand in it.
EXCEPTED = [name for row in MYPY["overrides"] if row.get("disallow_any_explicit") is False for name in row["module"]]
#: What is not shipped.
UNSHIPPED = {"tests.*", "tools.*", "benchmarks.*"}


def files_of(module: str) -> list[Path]:
    """The files of an excepted module, or of all below one."""
    base = module.removesuffix(".*").replace(".", "/")
    place = ROOT / ("src" if module.startswith("gpuwright") else "collections") / base
    if module.endswith(".*"):
        return sorted(place.rglob("*.py"))
    return [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]


def test_a_module_has_no_any_of_its_own_but_where_a_reason_is_given() -> None:
    assert MYPY["disallow_any_explicit"] is True
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    blocks = [block for block in text.split("[[tool.mypy.overrides]]") if "disallow_any_explicit = false" in block]
    assert [block for block in blocks if not block.startswith("\n# ")] == []
    assert len(EXCEPTED) == len(set(EXCEPTED))


@pytest.mark.parametrize("module", sorted({*EXCEPTED} - UNSHIPPED))
def test_an_exception_from_named_data_is_still_one(module: str) -> None:
    files = files_of(module)
    assert files
    assert any(re.search(r"\bAny\b|Callable\[\.\.\.", path.read_text(encoding="utf-8")) for path in files)
