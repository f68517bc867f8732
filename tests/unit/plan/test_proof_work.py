"""The work that a plan carries for a role used alone, and for a proof."""

from __future__ import annotations

from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, wish


def test_a_role_used_alone_has_its_work_where_nothing_changes() -> None:
    alone = plan(nodes.provisioned(), only=["frameworks"])
    assert (alone["components"], list(alone["work"])) == ([], ["preflight", "repositories", "frameworks"])
    (path,) = [row["path"] for row in alone["stack"]["frameworks"]]
    assert set(alone["work"]["frameworks"]["environments"]) == {path}


def test_a_run_that_changes_a_framework_carries_the_work_on_it() -> None:
    made = plan(nodes.bare(), wish(frameworks_wanted=["pytorch"]))
    assert "frameworks" in made["work"]
    assert "validate" not in made["work"]  # decided by the look after the apply


def test_a_plan_of_a_proof_carries_what_is_measured() -> None:
    made = plan(nodes.bare(), verb="validate", pending=True)
    measured = made["work"]["validate"]
    assert (measured["smi"], measured["compute"]) == (None, [])
    told = [check for check in measured["gaps"] if check["id"] != "container.cards"]
    assert {check["action"] for check in told} == {"reboot"}
    assert plan(nodes.bare(), wish(gpuwright_gpus_ignore=["T4"]), verb="validate")["work"]["validate"]["smi"][
        "expected_driver"
    ]
