"""What a project asks, tried on the node before anything changes: a clash names its lines, a source is built where a user asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.work import installations
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import python_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import users
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request
from tests.unit.plan.test_users import PLACE, asked, machine

RULES = load_rules()
CLASH = (
    "Because jax==0.10.2 depends on numpy>=2.0 and you require jax==0.10.2, we can conclude that you require numpy>=2.0. And because you "
    "require numpy<2, we can conclude that your requirements are unsatisfiable."
)
SOURCE = (
    "Because antlr4-python3-runtime==4.9.3 has no usable wheels and hydra-core==1.3.2 depends on antlr4-python3-runtime==4.9.*, we can "
    "conclude that hydra-core==1.3.2 cannot be used."
)


def drafted(tmp_path: Path, *lines: str, wants: tuple[str, ...] = (), user: bool = False, **changes: Any) -> Draft:
    """The draft for a project of some lines."""
    (tmp_path / "requirements.txt").write_text("\n".join(lines) + "\n")
    wish = asked(f"project={tmp_path / 'requirements.txt'}", *wants)
    facts = machine() if user else nodes.provisioned()
    if not user:
        wish = type(wish).from_wants([f"project={tmp_path / 'requirements.txt'}", *wants])
    made = make_draft(facts, wish, RULES, request(user=user, local=user, **changes))
    assert isinstance(made, Draft), made["conflicts"] or made["error"]
    return made


def planned(draft: Draft, *, missing: str = "", **said: Any) -> Any:
    """The plan where the index has everything but what is ``missing``, and ``said`` is what came of the trial of each environment."""
    answers = [nodes.python_answer(each.name, each.version) for each in python_query.demands(draft)]
    for answer in answers:
        if answer["name"] == missing:
            answer.update(fits=[], others=[{"version": "1.0", "requires_python": None}])
    options: Any = python_query.question(draft)
    trials: Any = [
        {"environment": each["environment"], "problem": None, "clash": None, "sources": [], **said}
        for each in options.get("trials", ())
    ]
    wheels = python_query.judged(draft, {"answers": answers, "trials": trials}, RULES)
    return finish(draft, index_of(draft) if draft.packages else None, wheels)


def refused(plan: Any) -> dict[str, Any]:
    return {row["rule"]: row for row in plan["refusals"]}


# what is tried


def test_all_that_is_asked_of_an_environment_is_tried_together(tmp_path: Path) -> None:
    (tmp_path / "limits.txt").write_text("rich<99\n")
    lines = ["jax==0.10.2", "scipy", "numpy<2; python_version < '3'", "-c limits.txt"]
    options: Any = python_query.question(drafted(tmp_path, *lines))
    (trial,) = options["trials"]
    assert trial["environment"] == "/opt/gpuwright/project"
    assert trial["python"] == "3.13.5"
    assert (trial["requirements"][0], trial["requirements"][-1]) == ("jax[cuda13]==0.10.2", "scipy")
    assert "rich<99" in trial["constraints"]
    assert options["uv"]["sha256"]


def test_a_framework_alone_is_not_tried_and_several_in_one_environment_are(tmp_path: Path) -> None:
    alone: Any = python_query.question(drafted(tmp_path, "scipy", wants=("pytorch", "lmdb@project")))
    assert [each["environment"] for each in alone["trials"]] == ["/opt/gpuwright/project"]
    several: Any = python_query.question(drafted(tmp_path, "torch", "jax"))
    assert several["trials"][0]["urls"][-1] == ""
    assert {each.partition("==")[0] for each in several["trials"][0]["requirements"]} >= {"torch", "jax[cuda13]"}


def test_what_is_there_is_not_tried(tmp_path: Path) -> None:
    facts = nodes.provisioned()
    (tmp_path / "requirements.txt").write_text("lmdb==2.3.0\nnumpy<2\n")
    facts["environments"]["/opt/gpuwright/project"] = {"packages": {"lmdb": "2.3.0", "numpy": "1.26.4"}}
    wish = asked().from_wants([f"project={tmp_path / 'requirements.txt'}"])
    draft = make_draft(facts, wish, RULES, request())
    assert isinstance(draft, Draft)
    assert python_query.question(draft) is None


# a clash


def test_a_clash_is_refused_with_the_lines_that_it_is_about(tmp_path: Path) -> None:
    plan = planned(drafted(tmp_path, "jax==0.10.2", "numpy<2", "scipy"), clash=CLASH)
    row = refused(plan)["project-clash"]
    assert (plan["ok"], plan["builds"]) == (False, {})
    assert "jax==0.10.2 (requirements.txt:1); numpy<2 (requirements.txt:2). uv says: Because" in row["text"]
    assert "scipy" not in row["text"]
    assert "change or leave out one of these lines" in row["remedy"]


def test_what_was_chosen_for_a_line_is_told_with_it(tmp_path: Path) -> None:
    draft = drafted(tmp_path, "jax", "numpy<2")
    (chosen,) = [each for each in draft.context.stack["frameworks"][0]["requirements"] if each.startswith("jax[")]
    text = refused(planned(draft, clash=CLASH))["project-clash"]["text"]
    assert f"jax (requirements.txt:1), for which {chosen} was chosen; numpy<2 (requirements.txt:2)" in text


def test_a_name_inside_another_one_is_not_meant(tmp_path: Path) -> None:
    draft = drafted(tmp_path, "lmdb", "numpy<2", "jax-metal", "numpy-stl", "jax.thing")
    text = refused(planned(draft, clash=CLASH))["project-clash"]["text"]
    assert "numpy<2 (requirements.txt:2). uv says" in text
    assert "requirements.txt:3" not in text
    assert "requirements.txt:4" not in text


def test_what_the_index_lacks_is_told_once(tmp_path: Path) -> None:
    plan = planned(drafted(tmp_path, "lmdb", "numpy==1.26.4", "scipy"), missing="numpy", clash=CLASH)
    assert list(refused(plan)) == ["python-index-version"]
    text = refused(plan)["python-index-version"]["text"]
    assert text.startswith("numpy==1.26.4 (requirements.txt:2): wanted is numpy==1.26.4 for Python 3.13"), text


def test_what_could_not_be_tried_stops_nothing(tmp_path: Path) -> None:
    plan = planned(drafted(tmp_path, "lmdb", "numpy<2"), problem="https://mirror.example/simple has no wheel of uv")
    assert plan["ok"]
    (row,) = [each for each in plan["warnings"] if each["rule"] == "project-untried"]
    assert "has no wheel of uv" in row["text"]


# a source


SOURCES = [{"name": "antlr4-python3-runtime", "words": SOURCE}]


def test_what_has_a_source_alone_is_refused_with_the_line_that_needs_it(tmp_path: Path) -> None:
    plan = planned(drafted(tmp_path, "lmdb==2.3.0", "hydra-core==1.3.2"), sources=SOURCES)
    row = refused(plan)["project-source"]
    assert row["text"].startswith("antlr4-python3-runtime: only a source is there, no wheel for Python 3.13")
    assert "hydra-core==1.3.2 (requirements.txt:2) needs it" in row["text"]
    assert "lmdb" not in row["text"]
    assert "root" not in row["text"]
    assert "gpuwright up --user … --allow-source antlr4-python3-runtime" in row["remedy"]
    own = refused(planned(drafted(tmp_path, "lmdb", "hydra-core==1.3.2", user=True), sources=SOURCES))
    assert "add --allow-source antlr4-python3-runtime" in own["project-source"]["remedy"]


@pytest.mark.parametrize("name", ["antlr4-python3-runtime", "Antlr4_Python3.Runtime"])
def test_a_source_is_built_where_a_user_asks_for_it(tmp_path: Path, name: str) -> None:
    draft = drafted(tmp_path, "lmdb==2.3.0", "hydra-core==1.3.2", user=True, allow_source=[name, "numpy"])
    plan = planned(draft, sources=SOURCES)
    assert plan["ok"], plan["refusals"]
    assert plan["builds"] == {f"{PLACE}/project": ["antlr4-python3-runtime"]}
    (row,) = [each for each in plan["warnings"] if each["rule"] == "project-source"]
    assert row["text"].startswith("antlr4-python3-runtime for ")
    (work,) = plan["work"]["frameworks"]["environments"].values()
    assert [each["from_source"] for each in work["installs"]] == [[], ["antlr4-python3-runtime"]]


def test_one_of_several_that_nobody_asked_for_is_refused_still(tmp_path: Path) -> None:
    sources = [*SOURCES, {"name": "docopt", "words": "docopt==0.6.2 has no usable wheels"}]
    draft = drafted(tmp_path, "lmdb", "hydra-core", "docopt", user=True, allow_source=["antlr4-python3-runtime"])
    row = refused(planned(draft, sources=sources))["project-source"]
    assert row["text"].startswith("docopt: only a source is there")
    assert "docopt (requirements.txt:3)" in row["text"]


def test_where_it_could_not_be_tried_all_that_was_asked_for_is_built(tmp_path: Path) -> None:
    draft = drafted(tmp_path, "lmdb", "hydra-core", user=True, allow_source=["antlr4-python3-runtime"])
    plan = planned(draft, problem="no answer")
    assert plan["builds"] == {f"{PLACE}/project": ["antlr4-python3-runtime"]}


def test_a_row_of_the_tables_stays_as_it_is_beside_what_is_built(tmp_path: Path) -> None:
    framework: Any = drafted(tmp_path, "lmdb", "hydra-core").context.stack["frameworks"][0]
    framework["from_source"] = ["own"]
    assert [each["from_source"] for each in installations(framework, ["other"])] == [["own"], ["other"]]
    assert framework["from_source"] == ["own"]


def test_root_builds_no_source() -> None:
    users.refuse_sources((), user=False)
    users.refuse_sources(("antlr4",), user=True)
    with pytest.raises(BadInput, match="antlr4 may be built from its source in a user's own run alone"):
        users.refuse_sources(("antlr4",), user=False)
