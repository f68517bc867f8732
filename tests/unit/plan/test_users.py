"""The plan of a user who works without root (--user): environments of their own, and the machine as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import drift
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import (
    measurements,
    preflight,
    refusals,
    removal,
    users,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, completed, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.removal_work import STEPS as REMOVAL_STEPS
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import users as wishes
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import request

RULES = load_rules()
HOME = "/home/alice/.local"
PLACE = f"{HOME}/share/gpuwright"
RECORDS = [f"{HOME}/state/gpuwright/node", f"{HOME}/state/gpuwright/at-work"]
USER = {"name": "alice", "environments": PLACE, "records": RECORDS, "obstacle": None}


def machine(facts: Any = None, **changes: Any) -> Any:
    """What alice sees of a machine with root's driver: nothing of root's records, and nothing of her own yet."""
    unseen = {"containers.docker.added": "closed", "packages.busy": "closed"}
    own = {"privileged": False, "user": USER, "seals": {}, "proof": None, "environments": {}, "unknown": unseen}
    return nodes.merged(facts or nodes.provisioned(), {**own, **changes})


def asked(*wants: str, **variables: Any) -> Wish:
    wish = Wish.from_variables({"gpuwright_want": list(wants), **variables}).with_defaults(wants=wishes.DEFAULT_WANTS)
    return wishes.placed(wish, PLACE)


def planned(facts: Any, *wants: str, **changes: Any) -> Any:
    drafted = make_draft(facts, asked(*wants), RULES, request(**{"local": True, "user": True, **changes}))
    if not isinstance(drafted, Draft):
        return drafted
    assert drafted.packages == [], "no package is asked for: a user installs none"
    return finish(drafted, None)


def made(drafted: Any) -> Draft:
    assert isinstance(drafted, Draft), drafted
    return drafted


def rules(plan: Any) -> list[str]:
    return [row["rule"] for row in (*plan["refusals"], *plan["conflicts"])]


# what is planned


def test_the_environments_are_the_users_own_and_nothing_else_is_in_the_plan() -> None:
    plan = planned(machine(), "pytorch", "jax")
    assert (plan["ok"], plan["components"]) == (True, ["frameworks", "validate"])
    assert [row["files"] for row in plan["changes"]] == [[f"{PLACE}/pytorch"], [f"{PLACE}/jax"], []]
    assert {row["name"] for change in plan["changes"] for row in change["packages"]} == set()
    assert plan["stack"].keys() == {"frameworks"}
    assert plan["digests"].keys() == plan["manages"].keys() == {"frameworks"}
    assert not plan["way_back"]


def test_what_is_wrong_with_the_packages_of_the_machine_is_not_the_users_to_repair() -> None:
    facts = machine()
    facts["packages"]["interrupted"] = True
    assert planned(facts, "pytorch")["components"] == ["frameworks", "validate"]


def test_where_nothing_is_wished_it_is_what_needs_no_root() -> None:
    assert wishes.DEFAULT_WANTS == ["pytorch"]
    assert [row["name"] for row in planned(machine())["stack"]["frameworks"]] == ["pytorch"]


def sealed(*rows: Any) -> Any:
    return {"frameworks": {"state": "ok", "inputs_digest": "x", "stack": list(rows), "packages": {}}}


ROW = {"name": "onnxruntime", "version": "1.31.1", "variant": "gpu", "path": f"{PLACE}/mine", "environment": "mine"}


@pytest.mark.parametrize("verb", ["validate", "doctor", "status"])
def test_where_nothing_is_wished_what_is_sealed_is_judged(verb: str) -> None:
    row = {**ROW, "interpreter": "3.12", "others": ["pandas>=2", "not a requirement"], "kernel": "/k"}
    wish = completed(wishes.placed(Wish(), PLACE), machine(seals=sealed(row)), request(user=True, verb=verb))
    assert [(each.key, each.specifier, each.variant) for each in wish.frameworks] == [
        ("onnxruntime@mine", "==1.31.1", "gpu")
    ]
    assert [[each.text for each in project.requirements] for project in wish.projects] == [["pandas>=2"]]
    assert (wish.pythons, wish.jupyter, wish.frameworks_path) == ({"mine": "3.12"}, True, PLACE)


def test_a_wish_by_name_and_what_is_brought_go_before_what_is_sealed() -> None:
    facts = machine(seals=sealed(ROW))
    named = Wish.from_wants(["jax"])
    assert completed(named, facts, request(user=True, verb="validate")) == named
    assert [each.name for each in completed(Wish(), facts, request(user=True, verb="up")).frameworks] == ["pytorch"]


def test_a_user_of_whom_nothing_is_sealed_is_told_so_and_no_other_environment_judged() -> None:
    facts = machine()
    wish = completed(wishes.placed(Wish(), PLACE), facts, request(user=True, verb="validate"))
    assert not wish.frameworks
    plan: Any = finish(made(make_draft(facts, wish, RULES, request(user=True, local=True, verb="validate"))), None)
    (gap,) = plan["work"]["validate"]["gaps"]
    assert (gap["status"], gap["remedy"]) == ("incomplete", "gpuwright up --user")
    assert plan["work"]["validate"]["environments"] == []


def test_root_has_the_sealed_environments_in_place_of_the_default_one() -> None:
    wish = completed(Wish(), nodes.merged(nodes.provisioned(), {"seals": sealed(ROW)}), request(verb="validate"))
    assert [each.key for each in wish.frameworks] == ["onnxruntime@mine"]
    bare = nodes.merged(nodes.provisioned(), {"seals": {}})
    assert [each.key for each in completed(Wish(), bare, request(verb="validate")).frameworks] == ["pytorch"]


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "name": "rm -rf"},
        {**ROW, "version": "1; x"},
        {**ROW, "variant": "../x"},
        {**ROW, "environment": "../mine"},
        "row",
    ],
)
def test_a_row_of_a_seal_that_is_none_is_no_wish(row: Any) -> None:
    assert not completed(Wish(), machine(seals=sealed(row)), request(user=True, verb="validate")).frameworks


def test_the_driver_is_a_fact_and_decides_which_cuda_the_wheels_have() -> None:
    new = planned(machine(), "pytorch")
    old = {"loaded_version": "535.309.01", "user_version": "535.309.01"}
    facts = machine()
    facts["driver"] |= old
    facts["smi"] = None
    plan = planned(facts, "pytorch")
    assert (new["stack"]["frameworks"][0]["cuda"] or "").startswith("13.")
    assert (plan["stack"]["frameworks"][0]["cuda"] or "").startswith("12.")
    told = [row["text"] for row in plan["why"] if row["rule"] == "driver.not-ours"]
    assert told == ["the driver 535.309.01 is used as it is: it is root's to change"]


def test_without_a_driver_root_is_asked_and_the_build_for_the_processor_is_named() -> None:
    plan = planned(machine(nodes.bare()), "pytorch")
    (row,) = plan["conflicts"]
    assert (plan["ok"], row["rule"]) == (False, "driver.of-root")
    assert row["remedy"].startswith("ask root of this machine to run: gpuwright up --want driver; until then")
    named = row["remedy"].partition("--want driver; ")[2].partition("--want ")[2].partition(";")[0]
    assert planned(machine(nodes.bare()), named)["ok"], named


@pytest.mark.parametrize("want", ["lmdb", "torch==2.14.1+cpu"])
def test_what_runs_on_the_processor_needs_no_driver(want: str) -> None:
    plan = planned(machine(nodes.bare()), want)
    assert plan["ok"], rules(plan)
    assert "driver.of-root" in [row["rule"] for row in plan["warnings"]]


def test_a_driver_that_does_not_work_now_is_told_before_anything_is_built() -> None:
    facts = machine()
    facts["driver"]["user_version"] = "580.999.01"
    facts["kernel"]["available"]["nvidia"]["version"] = "580.999.01"
    plan = planned(facts, "pytorch")
    assert rules(plan) == ["user-driver"]
    assert "a reboot is needed" in plan["refusals"][0]["text"]
    assert planned(facts, "torch==2.14.1+cpu")["ok"]


def test_a_python_without_ensurepip_is_no_obstacle_for_uv_brings_pip() -> None:
    facts = machine()
    for each in facts["python"]["interpreters"]:
        each["venv"] = False
    plan = planned(facts, "pytorch")
    assert plan["ok"], rules(plan)


def test_a_python_of_the_archive_is_not_taken_for_one_that_is_there() -> None:
    facts = machine()
    facts["os"] |= {"id": "rocky", "version": "9.6", "family": "redhat", "glibc": "2.34"}
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3.9", "version": "3.9.21", "venv": True}]
    plan = planned(facts, "pytorch")
    assert plan["ok"], rules(plan)
    assert plan["stack"]["frameworks"][0]["interpreter"] == "3.9"


def test_a_place_where_the_user_cannot_write_is_refused() -> None:
    plan = planned(machine(user={**USER, "obstacle": "/opt is not yours to write to"}), "pytorch")
    assert rules(plan) == ["user-place"]
    assert "/opt is not yours to write to" in plan["refusals"][0]["text"]


def test_root_is_no_user() -> None:
    facts = machine(privileged=True)
    (row,) = refusals.of_privileges(Context(facts=facts, stack={}), request(user=True))
    assert row["rule"] == "user-is-root"
    assert not refusals.of_privileges(Context(facts=machine(), stack={}), request(user=True))


# what needs root


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"gpuwright_want": ["driver=580", "pytorch"]}, ["driver=580"]),
        ({"gpuwright_want": ["cuda=12.8", "cudnn", "nccl", "tensorrt"]}, ["cuda=12.8", "cudnn", "nccl", "tensorrt"]),
        ({"gpuwright_want": ["container-engine=podman"]}, ["container-engine=podman"]),
        ({"gpuwright_want": ["nvidia-container-toolkit"]}, ["nvidia-container-toolkit"]),
        ({"gpuwright_want": ["power-limit=300"]}, ["power-limit=300"]),
        ({"gpuwright_wish": {"mig_layout": {"all": "1g.10gb"}}}, ["mig_layout"]),
        ({"gpuwright_wish": {"cuda_versions": ["12.8"], "gpuwright_want": ["jax"]}}, ["cuda_versions"]),
        ({"nvidia_driver_branch": "580", "frameworks_wanted": ["jax"]}, ["nvidia_driver_branch"]),
        ({"gpuwright_provision_for": ["H100"]}, ["gpuwright_provision_for"]),
        ({"gpuwright_want": ["pytorch", "jupyter"]}, ["jupyter"]),
        ({"frameworks_jupyter": True, "frameworks_wanted": ["jax"]}, ["frameworks_jupyter"]),
        ({"monitoring_source": "auto"}, ["monitoring_source"]),
        ({"gpuwright_wish": {"monitoring_source": "smi"}}, ["monitoring_source"]),
    ],
)
def test_what_needs_root_is_refused_by_the_name_that_was_written(variables: Any, told: list[str]) -> None:
    found = users.of_wish(variables)
    assert [row["text"].split(" needs root")[0] for row in found] == told
    assert all("ask root of this machine" in str(row["remedy"]) for row in found)
    assert not any("()" in str(row["remedy"]) for row in found)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"gpuwright_want": ["torch==2.14.1+cpu", "py-lmdb", "nvidia-dali-cuda120", "python=3.12", "jax[cuda12]"]},
        {"cuda_versions": "auto", "container_toolkit_wanted": False, "nvidia_driver_source": "auto"},
        {"gpuwright_mirrors": {"pytorch": "https://mirror.example/whl"}, "gpuwright_repository_keys": {"nvidia": "A"}},
        {"frameworks_jupyter": False, "gpuwright_want": ["pytorch@research", "jax@research"]},
        {"frameworks_path": "/data/alice", "gpuwright_gpus_ignore": ["0000:18:00.0"]},
    ],
)
def test_what_needs_no_root_is_not(variables: Any) -> None:
    assert users.of_wish(variables) == []


def test_a_kernel_of_roots_of_the_same_name_is_left_where_it_is() -> None:
    plan = planned(machine(), "pytorch")
    begun: Any = COMPONENTS["frameworks"].steps["begin"](Context(facts=machine(), stack=plan["stack"]), plan)
    (made,) = begun["environments"].values()
    assert made["kernel"] == {"directories": [], "files": [], "absent": []}


def test_of_a_lock_a_user_takes_the_environments() -> None:
    stack = {"repositories": [{}], "driver": {"branch": "580"}, "frameworks": [{"name": "jax"}]}
    lock: Any = {"lock": 1, "stack": stack}
    assert users.of_lock(lock) == {"lock": 1, "stack": {"repositories": [], "frameworks": [{"name": "jax"}]}}
    lock["stack"].pop("frameworks")
    with pytest.raises(BadInput, match="the lock has no environment"):
        users.of_lock(lock)


# what is judged and proven


def test_what_is_wrong_with_the_machine_is_a_warning_and_what_only_root_sees_is_left_out() -> None:
    rows = [
        checks.failed("packages.interrupted", reason="cut off", remedy="run gpuwright up"),
        checks.incomplete("driver.lock", "closed to users"),
        checks.failed("framework.files", reason="gone"),
        checks.incomplete("seals", "unreadable"),
        checks.passed("driver.loaded"),
    ]
    found = users.judged(rows, machine())
    assert [row["status"] for row in found] == ["warn", "skip", "fail", "incomplete", "pass"]
    assert found[0]["remedy"] == "for root of this machine: run gpuwright up"
    assert users.judged(rows, nodes.provisioned()) == rows


def test_the_environments_are_measured_and_nothing_of_the_machine_is() -> None:
    facts = machine()
    drafted = make_draft(facts, asked("pytorch"), RULES, request(user=True, local=True))
    assert isinstance(drafted, Draft)
    plan: Any = finish(drafted, None)
    given = measurements.asked({}, (), pending=False)
    whole: Any = {**plan, "given": given}
    found = measurements.measure(drafted.context, whole)
    assert [row["python"] for row in found["environments"]] == [f"{PLACE}/pytorch/bin/python"]
    assert (found["smi"], found["log"], found["compute"], found["storage"]) == (None, None, [], False)
    assert found["tools"]["names"] == []


def test_before_the_first_change_records_and_environments_have_to_be_the_users_own() -> None:
    facts = machine()
    plan = planned(facts, "pytorch")
    found = preflight.begin(Context(facts=facts, stack=plan["stack"]), plan)
    assert found["paths"] == [*RECORDS, f"{PLACE}/pytorch", f"{PLACE}/.pytorch"]
    assert found["wait"] is False
    given: Any = {**plan, "given": {"reserve": 1, "boot": 1, "framework": 1}}
    preflight.look(Context(facts=facts, stack=plan["stack"]), given)


def test_status_tells_of_the_users_environments_and_not_of_roots_driver() -> None:
    facts = machine()
    facts["driver"]["user_version"] = "580.999.01"
    plan = planned(facts, "torch==2.14.1+cpu", verb="status")
    assert drift.status(facts, plan)["drift"] == []
    seal = {"state": "broken", "reason": f"environment {PLACE}/pytorch is gone", "packages": {}, "stack": []}
    plan = planned(machine(facts, seals={"frameworks": seal}), "torch==2.14.1+cpu", verb="status")
    assert drift.status(machine(facts, seals={"frameworks": seal}), plan)["drift"] == [seal["reason"]]


# what is taken back


def test_a_user_takes_back_environments_and_nothing_of_the_machine() -> None:
    facts = machine()
    facts["containers"]["containerd"]["marked"] = ["/etc/containerd/config.toml"]
    facts["history"] = {
        **{key: [] for key in ("drivers", "failed", "states", "files", "services", "copies")},
        "original": None,
        "proven": None,
        "brought": {},
        "streams": None,
        "environments": [f"{PLACE}/pytorch"],
        "components": ["frameworks"],
    }
    plan = removal.take_back(facts, request(user=True, verb="remove"))
    assert plan["ok"], rules(plan)
    assert plan["components"] == ["remove"]
    assert [row["files"] for row in plan["changes"] if row["component"] == "frameworks"] == [[f"{PLACE}/pytorch"]]
    to_do: Any = plan["remove"]
    left = {key: value for key, value in to_do.items() if value not in (None, False, [], {})}
    assert left == {"environments": [f"{PLACE}/pytorch"]}
    given = {"answers": [], "there": [{"item": f"{PLACE}/pytorch/gpuwright-constraints.txt", "stat": {"exists": True}}]}
    given |= {"others": [], "aside": [], "also": [], "kept": []}
    goes: Any = REMOVAL_STEPS["goes"](Context(facts=facts, stack={}), {**plan, "given": given})
    assert goes["environments"] == [f"{PLACE}/pytorch"]
    assert goes["directories"] == goes["absent"] == goes["packages"] == []
    assert "/etc/" not in json.dumps(to_do)


def test_where_no_build_is_kept_there_is_no_way_back_and_no_driver_is_spoken_of() -> None:
    plan = planned(machine(), "pytorch", verb="rollback")
    (row,) = plan["refusals"]
    assert row["rule"] == "rollback-nowhere"
    assert "driver" not in row["text"] + str(row["remedy"])
