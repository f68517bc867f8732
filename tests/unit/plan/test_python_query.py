"""What the node's Python index has of the wheels that pip would install: sizes in the plan, else a refusal before the first change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.demand import WheelDemand
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import (
    document,
    notices,
    python_query,
    space,
    wheel_tags,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_lock import hashed
from tests.unit.plan.test_planner import index_of, proven, request, wish

RULES = load_rules()
TORCH, VISION, AUDIO = "2.14.1+cu130", "0.29.1", "2.11.0"
PATH = "/opt/gpuwright/pytorch"


def drafted(*wants: str, facts: Any | None = None, **changes: Any) -> Draft:
    asked = Wish.from_wants(wants) if wants else wish()
    made = make_draft(facts or nodes.bare(), asked, RULES, request(**changes))
    assert isinstance(made, Draft), made["conflicts"] or made["error"]
    return made


def answered(draft: Draft, **changed: Any) -> python_query.Wheels:
    """An index that has everything, but for what is ``changed``: an answer or changes of it by name, with _ for -."""
    answers: list[Any] = []
    for demand in python_query.demands(draft):
        changes = changed.get(demand.name.replace("-", "_"), {})
        answers.append({**nodes.python_answer(demand.name, demand.version), **changes})
    return python_query.judged(draft, {"answers": answers, "trials": []}, RULES)


def planned(draft: Draft, **changed: Any) -> Any:
    return finish(draft, index_of(draft) if draft.packages else None, answered(draft, **changed))


def of_wheels(plan: Any) -> list[Any]:
    return [row for row in plan["refusals"] if row["rule"].startswith("python-index")]


def without(*others: str, **changes: Any) -> Any:
    """An index that has no wheel of the version, but these other ones."""
    return {"fits": [], "others": [{"version": each, "requires_python": None} for each in others], **changes}


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_each_pin_of_an_environment_that_is_to_be_made_is_asked_for_at_its_own_index() -> None:
    asked: Any = python_query.question(drafted("pytorch", "tensorflow"))
    assert [(row["name"], row["version"]) for row in asked["questions"]] == [
        ("torch", TORCH), ("torchvision", VISION), ("torchaudio", AUDIO), ("tensorflow", "2.21.0"),
        ("nvidia-cudnn-cu12", "9.28.0.42"), ("nvidia-nccl-cu12", "2.32.3"),
    ]  # fmt: skip
    torch, *_partners, tensorflow, _cudnn, _nccl = asked["questions"]
    assert [url.rpartition("/")[2] for url in torch["urls"]] == ["cu130"]
    assert tensorflow["urls"] == []
    assert list(asked["tags"]) == ["3.13"]
    assert asked["tags"]["3.13"][0] == "cp313-cp313-manylinux_2_41_x86_64"


def test_a_node_that_is_right_asks_nothing() -> None:
    assert python_query.question(drafted(facts=proven(nodes.provisioned()))) is None


@pytest.mark.parametrize("changes", [{"full": True}, {}])
def test_what_is_looked_at_again_and_is_there_is_not_asked_for(changes: Any) -> None:
    facts = nodes.provisioned()
    facts = facts if not changes else proven(facts)
    draft = drafted(facts=facts, **changes)
    assert "frameworks" in draft.findings
    assert python_query.question(draft) is None


def test_all_is_asked_for_where_something_is_lacking_since_it_is_built_anew() -> None:
    facts = nodes.provisioned()
    facts["environments"][PATH]["packages"]["torchvision"] = "0.28.0+cu130"
    demands = python_query.demands(drafted(facts=facts))
    assert [demand.name for demand in demands] == ["torch", "torchvision", "torchaudio"]


@pytest.mark.parametrize(("changes", "asked"), [({}, 0), ({"python": "3.12.1"}, 3), ({"loader_path": "/x"}, 3)])
def test_nothing_is_asked_for_where_the_build_that_was_in_use_before_is_what_is_wished(
    changes: Any, asked: int
) -> None:
    facts = nodes.provisioned()
    environment = facts["environments"][PATH]
    before = {"python": "3.13.5", "packages": dict(environment["packages"]), "loader_path": None, "gave_way": None}
    environment["kept"] = {**before, **changes}
    environment["packages"]["torch"] = "2.15.0+cu130"
    draft = drafted(facts=facts)
    assert len(python_query.demands(draft)) == asked
    (finding,) = draft.findings["frameworks"]
    assert finding.action == ("upgrade" if asked else "return")


@pytest.mark.parametrize(
    "changes",
    [{"damage": ["bin/python cannot be run"]}, {"python": "3.12.1"}, {"packages": {}}],
    ids=["damaged", "another Python", "empty"],
)
def test_an_environment_that_is_made_anew_asks_for_all(changes: Any) -> None:
    facts = nodes.provisioned()
    facts["environments"][PATH] |= changes
    assert len(python_query.demands(drafted(facts=facts))) == 3


def test_one_that_failed_in_the_last_proof_asks_for_all_too() -> None:
    facts = proven(nodes.provisioned())
    facts["proof"]["checks"] = [{"id": "framework.import", "status": "fail", "action": "install", "expected": PATH}]
    assert len(python_query.demands(drafted(facts=facts))) == 3


def test_an_environment_that_only_activates_otherwise_asks_nothing() -> None:
    facts = nodes.provisioned()
    facts["environments"][PATH]["loader_path"] = "/usr/local/cuda-13.0/compat"
    draft = drafted(facts=facts)
    assert "frameworks" in draft.findings
    assert python_query.question(draft) is None


def test_of_a_machine_of_unknown_kind_nothing_is_asked() -> None:
    facts = nodes.bare()
    draft = drafted("pytorch")
    draft.context.facts["os"]["arch"] = None
    assert python_query.question(draft) is None
    assert facts["os"]["arch"]


# --- what is there ----------------------------------------------------------------------------------------------------


def test_sizes_are_told_with_the_packages_and_counted_in_the_download() -> None:
    draft = drafted()
    plan, before = planned(draft), finish(draft, index_of(draft))
    assert of_wheels(plan) == []
    (change,) = [row for row in plan["changes"] if row["component"] == "frameworks"]
    assert change["wheels"] == [
        {"name": "torch", "version": TORCH, "download_bytes": 1000},
        {"name": "torchvision", "version": VISION, "download_bytes": 1000},
        {"name": "torchaudio", "version": AUDIO, "download_bytes": 1000},
    ]
    assert all(row["wheels"] == [] for row in plan["changes"] if row is not change)
    assert plan["download_bytes"] == before["download_bytes"] + 3000
    assert f"  wheel torch {TORCH}\n" in document.describe(plan)


def test_the_place_of_the_wheels_is_the_environments_and_not_the_package_managers() -> None:
    huge = {"fits": [nodes.python_file("torch", TORCH, size=1 << 50)]}
    draft = drafted()
    plan = planned(draft, torch=huge)
    assert plan["refusals"] == []
    assert space.of_packages(plan) == finish(draft, index_of(draft))["download_bytes"]


def test_a_wheel_of_several_environments_comes_once() -> None:
    row = {"name": "numpy", "version": "2.0", "download_bytes": 7}
    changes: Any = [{"wheels": [row, {**row, "name": "x"}]}, {"wheels": [row]}, {}]
    assert space.of_wheels(changes) == 14


def test_a_size_that_nobody_says_is_counted_as_none() -> None:
    plan = planned(drafted("pytorch"), torch={"fits": [nodes.python_file("torch", TORCH, size=None)]})
    rows = {row["name"]: row for change in plan["changes"] for row in change["wheels"]}
    assert rows["torch"] == {"name": "torch", "version": TORCH, "download_bytes": None}
    assert plan["refusals"] == []


def test_the_file_is_the_one_that_pip_would_take() -> None:
    files = [
        nodes.python_file("torchvision", "0.29.1+cpu", size=1),
        nodes.python_file("torchvision", "0.29.1+cu130", "cp313-cp313-manylinux_2_28_x86_64", size=2),
        nodes.python_file("torchvision", "0.29.1+cu130", "cp313-cp313-linux_x86_64", size=3),
        nodes.python_file("torchvision", "0.29.1+cu131", size=4, yanked=True),
        nodes.python_file("torchvision", "0.29.2+cu130", size=5),
        nodes.python_file("torchvision", "0.29.1+zz", size=6, requires_python="<3.13"),
    ]
    there = {each.demand.name: each.file for each in answered(drafted("pytorch"), torchvision={"fits": files}).there}
    assert there["torchvision"]["size"] == 2


def test_what_its_makers_took_back_is_a_warning_alone() -> None:
    plan = planned(drafted("pytorch"), torch={"fits": [nodes.python_file("torch", TORCH, yanked=True)]})
    (told,) = [row for row in plan["warnings"] if row["rule"] == "wheel-yanked"]
    assert plan["ok"]
    assert "torch-2.14.1" in told["text"]
    assert told["rule"] in notices.OF_THE_INDEX


# --- what is not ------------------------------------------------------------------------------------------------------


def test_a_wheel_that_the_index_lacks_is_a_refusal_that_names_the_nearest_that_is_there() -> None:
    plan = planned(drafted("pytorch"), torch=without("2.15.0+cu130", "2.14.0+cu130", "2.13.0+cu130", "1.9"))
    (told,) = of_wheels(plan)
    assert not plan["ok"]
    assert told["rule"] == "python-index-version"
    assert told["text"] == (
        "wanted is torch==2.14.1+cu130 for Python 3.13, and the Python index of this node (https://mirror.example/simple) has torch "
        "2.14.0+cu130, 2.15.0+cu130, 2.13.0+cu130, 1.9"
    )
    assert told["remedy"].startswith("ask for a version that is there")
    assert "gpuwright_mirrors" in told["remedy"]


@pytest.mark.parametrize(
    ("there", "example"),
    [
        (("2.14.0+cu130",), "pytorch=2.14.0+cu130"),
        (("2.14.77+cu130", "2.13.0+cu130"), "pytorch=2.13.0+cu130"),
        (("2.14.77+cu130",), None),
        (("2.14.0rc1+cu130",), None),
        ((), None),
    ],
)
def test_only_what_the_rules_take_here_is_proposed(there: tuple[str, ...], example: str | None) -> None:
    draft = drafted("pytorch")
    loose: Any = {
        "others": [
            {"version": f"0.{minor}.{patch}", "requires_python": None} for minor in range(40) for patch in range(3)
        ]
    }
    audio: Any = {
        "others": [
            {"version": f"2.{minor}.{patch}", "requires_python": None} for minor in range(20) for patch in range(2)
        ]
    }
    (missing,) = answered(draft, torch=without(*there), torchvision=loose, torchaudio=audio).missing
    assert missing.example == example
    if example:
        again = drafted(example)
        assert again.context.stack["frameworks"][0]["requirements"][0] == f"torch=={example.partition('=')[2]}"


def test_a_release_that_is_none_yet_is_not_named() -> None:
    (missing,) = answered(drafted("pytorch"), torch=without("2.14.0rc1+cu130", "2.13.0+cu130")).missing
    assert missing.instead == "torch 2.13.0+cu130"


def test_what_is_proposed_lacks_no_partner() -> None:
    draft = drafted("pytorch")
    (missing,) = answered(draft, torch=without("2.14.0+cu130", "2.13.0+cu130")).missing
    assert (
        missing.example is None or VISION in drafted(missing.example).context.stack["frameworks"][0]["requirements"][1]
    )


def test_a_partner_that_is_missing_leads_to_another_release_of_the_framework() -> None:
    draft, other = drafted("pytorch"), drafted("pytorch=2.13.0+cu130")
    pins = dict(pin.split("==") for pin in other.context.stack["frameworks"][0]["requirements"])
    torch = {"others": [{"version": pins["torch"], "requires_python": None}]}
    audio = {"others": [{"version": pins["torchaudio"], "requires_python": None}]}
    found = answered(draft, torch=torch, torchvision=without(f"{pins['torchvision']}+cu130"), torchaudio=audio)
    assert [(each.demand.name, each.example) for each in found.missing] == [("torchvision", "pytorch=2.13.0+cu130")]


@pytest.mark.parametrize("want", ["tensorflow", "jax", "dali", "onnxruntime", "cupy", "vllm", "lmdb"])
def test_every_framework_is_asked_for_by_its_own_name(want: str) -> None:
    draft = drafted(want)
    pins = [demand.name for demand in python_query.demands(draft)]
    names = {name.replace("-", "_"): without() for name in pins[1:]}
    releases = [f"{major}.{minor}.{patch}" for major in (*range(4), 14) for minor in range(40) for patch in range(3)]
    found = answered(draft, **{pins[0].replace("-", "_"): without(*releases), **names})
    first = found.missing[0]
    if len(pins) == 1:
        assert first.example
        assert drafted(first.example).context.stack["frameworks"][0]["name"] == want
    assert first.instead.startswith(pins[0])


@pytest.mark.parametrize(
    ("unfit", "told"),
    [
        (["torch-2.14.1+cu130-cp313-cp313-manylinux_2_28_aarch64.whl", "torch-2.14.1+cu130-cp313-cp313-win_amd64.whl"],
         "wheels for aarch64 alone, and this node is x86_64"),
        (["torch-2.14.1+cu130-cp313-cp313-win_amd64.whl"], "wheels for other systems alone, and this node is x86_64"),
        (["torch-2.14.1+cu130-cp311-cp311-manylinux_2_28_x86_64.whl", "torch-2.14.1+cu130-cp313-cp313t-linux_x86_64.whl"],
         "wheels for Python 3.11, Python 3.13t alone, and not for Python 3.13"),
        (["torch-2.14.1+cu130-cp313-cp313-manylinux_2_43_x86_64.whl", "torch-2.14.1+cu130-cp313-cp313-manylinux_2_42_x86_64.whl"],
         "wheels for glibc 2.42 or newer, and this node has 2.41"),
        (["torch-2.14.1+cu130-cp313-cp313-musllinux_1_2_x86_64.whl"], "wheels for other systems alone"),
        (["broken.whl"], "wheels for other systems alone"),
    ],
)  # fmt: skip
def test_a_version_without_a_wheel_for_this_node_says_why(unfit: list[str], told: str) -> None:
    (row,) = of_wheels(planned(drafted("pytorch"), torch=without("2.13.0+cu130", unfit=unfit)))
    assert told in row["text"]
    assert "of the other versions 2.13.0+cu130 will do" in row["text"]


@pytest.mark.parametrize(
    ("requires", "serves"), [(">=3.14", False), (">=3.10", True), (">=3.13.5", True), (">=3.13.6", False), ("x", True)]
)
def test_what_a_wheel_requires_of_python_counts(requires: str, serves: bool) -> None:
    files = [nodes.python_file("torch", TORCH, requires_python=requires)]
    rows = of_wheels(planned(drafted("pytorch"), torch={"fits": files}))
    assert (not rows) is serves
    if rows:
        assert f"only wheels of it for Python {requires}" in rows[0]["text"]


def test_a_python_that_is_not_there_yet_may_be_any_of_its_patch_releases() -> None:
    draft = drafted("pytorch", facts=nodes.bare())
    draft.context.facts["python"]["interpreters"] = []
    files = [nodes.python_file("torch", TORCH, requires_python=">=3.13.9")]
    assert answered(draft, torch={"fits": files}).missing == []


@pytest.mark.parametrize("more", [{}, without("2.13.0+cu130")])
def test_an_index_that_does_not_answer_is_a_warning_and_no_refusal(more: Any) -> None:
    silent = {"fits": [], **more, "problems": ["https://mirror.example/simple did not answer within 60 s"]}
    plan = planned(drafted("pytorch"), torch=silent, torchvision=silent)
    (told,) = [row for row in plan["warnings"] if row["rule"] == "wheels-unverified"]
    assert plan["ok"]
    assert told["text"] == (
        "it is not known whether the Python index has torch==2.14.1+cu130, torchvision==0.29.1: https://mirror.example/simple did not "
        "answer within 60 s. What to do: have it answer this machine (its address and proxy, as pip has them), or name a mirror in "
        "gpuwright_mirrors, and plan again; an environment whose wheels do not come stays as it is"
    )
    rows = {row["name"]: row["version"] for change in plan["changes"] for row in change["wheels"]}
    assert rows == {"torch": None, "torchvision": None, "torchaudio": AUDIO}
    assert told["rule"] in notices.OF_THE_INDEX


def test_one_index_that_has_it_is_enough() -> None:
    assert (
        planned(drafted("pytorch"), torch={"problems": ["another did not answer"]})["warnings"]
        == planned(drafted("pytorch"))["warnings"]
    )


def test_what_a_node_leaves_out_of_its_answers_is_not_known() -> None:
    found = python_query.judged(drafted("pytorch"), {"answers": [], "trials": []}, RULES)
    assert [len(each) for each in (found.there, found.missing, found.unverified)] == [0, 0, 3]


@pytest.mark.parametrize("version", ["", "~", "2.14.1+cu130+x", "1" * 100])
def test_versions_that_are_none_are_neither_there_nor_named(version: str) -> None:
    odd = {"fits": [nodes.python_file("torch", version)], "others": [{"version": version, "requires_python": None}]}
    (missing,) = answered(drafted("pytorch"), torch=odd).missing
    assert missing.example is None


def test_who_may_not_change_the_node_is_told_that_alone() -> None:
    draft = drafted("pytorch", facts=nodes.bare(privileged=False), verb="up")
    assert [row["rule"] for row in planned(draft, torch=without())["refusals"]] == ["needs-root"]


# --- with a lock ------------------------------------------------------------------------------------------------------


def locked(facts: Any | None = None) -> Draft:
    held = hashed()
    made = make_draft(facts or nodes.bare(), lock.as_wish(held, {}), RULES, request(lock=held))
    assert isinstance(made, Draft), made["conflicts"]
    return made


def hashes(draft: Draft) -> dict[str, Any]:
    """An index that has each file of a lock."""
    return {
        demand.name.replace("-", "_"): {
            "fits": [nodes.python_file(demand.name, demand.version, sha256=demand.sha256[0])]
        }
        for demand in python_query.demands(draft)
    }


def test_a_lock_asks_for_every_wheel_that_it_names_at_every_index_that_it_may_come_from() -> None:
    draft = locked()
    demands = python_query.demands(draft)
    assert "filelock" in [demand.name for demand in demands]
    assert all(demand.sha256 and demand.urls for demand in demands)
    assert of_wheels(planned(draft, **hashes(draft))) == []


def test_an_environment_of_a_lock_that_lacks_one_wheel_asks_for_all_of_them() -> None:
    draft = locked()
    wheels = draft.context.stack["frameworks"][0]["wheels"]
    packages = {row["name"]: row["version"] for row in wheels}
    there: Any = {PATH: {"python": "3.13.5", "packages": packages, "loader_path": None, "damage": []}}
    assert python_query.demands(locked(nodes.bare(environments=there))) == []
    there[PATH]["packages"] = packages | {"filelock": "1.0"}
    assert len(python_query.demands(locked(nodes.bare(environments=there)))) == len(wheels)


def test_a_hash_that_the_index_does_not_have_is_a_refusal() -> None:
    draft = locked()
    other = {"fits": [nodes.python_file("filelock", "4.2.11", sha256="0" * 64)]}
    (told,) = of_wheels(planned(draft, **{**hashes(draft), "filelock": other}))
    assert told["rule"] == "python-index-hash"
    assert told["text"].startswith("the lock has filelock==4.2.11 by its SHA-256, and the Python index of this node")
    assert "filelock-4.2.11" in told["text"]


def test_of_several_files_the_locked_one_is_taken_and_one_without_a_hash_is_left_to_pip() -> None:
    draft = locked()
    (demand,) = [each for each in python_query.demands(draft) if each.name == "filelock"]
    several = [
        nodes.python_file("filelock", "4.2.11", sha256="0" * 64, size=1),
        nodes.python_file("filelock", "4.2.11", size=2),
        nodes.python_file("filelock", "4.2.11", sha256=demand.sha256[0], size=3),
    ]
    for files, size in ((several, 3), (several[:2], 2)):
        found = answered(draft, **{**hashes(draft), "filelock": {"fits": files}})
        assert [each.file["size"] for each in found.there if each.demand.name == "filelock"] == [size]
        assert found.missing == []


def test_a_version_of_a_lock_that_is_not_there_says_to_make_the_lock_anew() -> None:
    draft = locked()
    plan = planned(draft, **{**hashes(draft), "filelock": without("4.2.10")})
    (told,) = of_wheels(plan)
    assert told["text"].startswith("the lock has filelock==4.2.11")
    assert told["remedy"].startswith("make the lock anew with a version that is there; or name a mirror")


# --- the session that asks -------------------------------------------------------------------------------------------


class Action:
    """An action whose node answers as its index would; ``asked`` is what it was asked."""

    def __init__(self, verb: str, **changed: Any) -> None:
        self.verb, self.changed = verb, changed
        self.asked: list[tuple[str, Any]] = []

    def variables(self, given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    def on_node(self, module: str, arguments: Any, task_vars: Any, **_more: Any) -> Any:
        del task_vars
        self.asked.append((module, arguments))
        answers = [
            nodes.python_answer(row["name"], row["version"], **self.changed.get(row["name"], {}))
            for row in arguments["questions"]
        ]
        return {"changed": False, "answers": answers, "trials": []}


def session(verb: str, **changed: Any) -> tuple[Action, NodeSession]:
    action = Action(verb, **changed)
    mirrors = {"pytorch": "https://me:s3cr3t@mirror.example/whl"}
    return action, NodeSession(cast("Any", action), {"inventory_hostname": "node", "gpuwright_mirrors": mirrors})


def mirrored(verb: str, facts: Any | None = None) -> Draft:
    made = make_draft(
        facts or nodes.bare(),
        Wish.from_variables(
            {"gpuwright_want": ["pytorch"], "gpuwright_mirrors": {"pytorch": "https://me:s3cr3t@mirror.example/whl"}}
        ),
        RULES,
        request(verb=verb),
    )
    assert isinstance(made, Draft)
    return made


@pytest.mark.parametrize("verb", ["plan", "up", "upgrade"])
def test_the_node_is_asked_once_with_the_credentials_of_the_mirror(verb: str) -> None:
    action, look = session(verb, torch=without("2.13.0+cu130"))
    found = look.wheels(mirrored(verb))
    ((module, arguments),) = action.asked
    assert module == "python_index"
    assert arguments["credentials"] == [{"machine": "https://mirror.example/whl", "login": "me", "password": "s3cr3t"}]
    assert "s3cr3t" not in json.dumps([arguments["questions"], arguments["tags"]])
    assert [each.demand.name for each in found.missing] == ["torch"]


def test_a_trial_has_the_credentials_of_each_index_of_its_environment() -> None:
    mirrors = {"pytorch": "https://mirror.example/whl", "pypi": "https://me:s3cr3t@other.example/simple"}
    wish = Wish.from_variables({"gpuwright_want": ["torch@mine", "jupyter"], "gpuwright_mirrors": mirrors})
    made = make_draft(nodes.bare(), wish, RULES, request())
    assert isinstance(made, Draft)
    action = Action("up")
    variables: Any = {"inventory_hostname": "node", "gpuwright_mirrors": mirrors}
    NodeSession(cast("Any", action), variables).wheels(made)
    ((_module, arguments),) = action.asked
    (trial,) = arguments["trials"]
    assert trial["urls"] == ["https://mirror.example/whl/cu130", "https://other.example/simple"]
    assert trial["tools"] == "https://other.example/simple"
    access = {"machine": "https://other.example/simple", "login": "me", "password": "s3cr3t"}
    assert access in arguments["credentials"]
    assert "s3cr3t" not in json.dumps(arguments["trials"])


@pytest.mark.parametrize("verb", ["doctor", "validate", "status"])
def test_who_only_judges_asks_no_index(verb: str) -> None:
    action, look = session(verb)
    assert look.wheels(mirrored(verb)) == python_query.NONE
    assert action.asked == []


def test_a_warm_run_opens_no_connection() -> None:
    action, look = session("up")
    assert look.wheels(drafted(facts=proven(nodes.provisioned()), verb="up")) == python_query.NONE
    assert action.asked == []


# --- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "glibc", "arch", "tag", "taken"),
    [
        ("3.13", "2.41", "x86_64", "cp313-cp313-manylinux_2_41_x86_64", True),
        ("3.13", "2.41", "x86_64", "cp313-cp313-manylinux_2_42_x86_64", False),
        ("3.13", "2.41", "x86_64", "cp313-cp313-manylinux1_x86_64", True),
        ("3.13", "2.41", "x86_64", "cp310-abi3-manylinux2014_x86_64", True),
        ("3.13", "2.41", "x86_64", "cp313-cp313-linux_x86_64", True),
        ("3.13", "2.41", "x86_64", "cp313-cp313t-linux_x86_64", False),
        ("3.13", "2.41", "x86_64", "py3-none-any", True),
        ("3.9", "2.28", "aarch64", "cp39-cp39-manylinux_2_17_aarch64", True),
        ("3.9", "2.28", "aarch64", "cp39-cp39-manylinux_2_12_aarch64", False),
        ("3.9", "2.28", "aarch64", "cp39-cp39-manylinux_2_28_x86_64", False),
        ("3.12", None, "x86_64", "cp312-cp312-manylinux_2_60_x86_64", True),
        ("3.12", "2.99999999", "x86_64", "cp312-cp312-manylinux_2_60_x86_64", True),
    ],
)
def test_the_tags_of_an_interpreter_are_those_of_its_version_glibc_and_architecture(
    python: str, glibc: str | None, arch: str, tag: str, taken: bool
) -> None:
    assert (tag in wheel_tags.taken(python, glibc, arch)) is taken


def test_the_tags_of_this_machine_are_those_that_pip_says() -> None:
    import platform
    import sys

    from packaging import tags

    libc, version = platform.libc_ver()
    if libc != "glibc":
        pytest.skip("no glibc here")
    ours = wheel_tags.taken("{}.{}".format(*sys.version_info), version, platform.machine())
    assert set(ours) == {str(tag) for tag in tags.sys_tags()}


def test_a_question_is_plain_data() -> None:
    assert json.loads(json.dumps(python_query.question(drafted("pytorch"))))
    assert WheelDemand("/x", "3.13", "torch", "1").text == "torch==1"


# --- an index that hands nothing to this machine ----------------------------------------------------------------------


def test_an_index_that_forbids_it_is_refused_before_any_change_with_what_it_said() -> None:
    said = "https://mirror.example/whl/cu130 answered 401 Unauthorized"
    plan = planned(drafted("pytorch"), torch=without(problems=[said], denied=["https://mirror.example/whl/cu130"]))
    (refused,) = of_wheels(plan)
    assert refused["rule"] == "python-index-denied"
    assert said in refused["text"]
    assert "gpuwright_mirrors" in refused["remedy"]
    assert not plan["ok"]


def test_where_another_place_did_not_answer_it_is_not_known_whether_the_wheel_is_there() -> None:
    places = ["https://one.example/simple", "https://two.example/simple"]
    problems = [f"{places[0]} answered 403 Forbidden", f"{places[1]} did not answer within 60 s"]
    plan = planned(drafted("pytorch"), torch=without(places=places, problems=problems, denied=places[:1]))
    assert of_wheels(plan) == []
    assert [row["rule"] for row in plan["warnings"] if row["rule"] == "wheels-unverified"] == ["wheels-unverified"]


def test_what_one_place_has_is_taken_though_another_forbids_it() -> None:
    plan = planned(drafted("pytorch"), torch={"problems": ["x answered 403 Forbidden"], "denied": ["x"]})
    assert of_wheels(plan) == []


class Observed(Action):
    """One whose node answers a look with its facts too."""

    def on_node(self, module: str, arguments: Any, task_vars: Any, **_more: Any) -> Any:
        if module != "node_facts":
            return super().on_node(module, arguments, task_vars)
        self.asked.append((module, arguments))
        return {"facts": nodes.bare()}

    def controller_path(self, given: str) -> str:
        return given


@pytest.mark.parametrize(
    ("variables", "ok"),
    [
        ({"gpuwright_want": ["pytorch"]}, True),
        ({"gpuwright_want": ["no-such-thing"]}, False),
        ({"gpuwright_lock": "/nowhere/lock.json"}, False),
    ],
)
def test_a_look_reads_the_wish_once_also_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], ok: bool
) -> None:
    read: list[object] = []
    monkeypatch.setattr(Wish, "from_variables", _counted(read, Wish.from_variables))
    monkeypatch.setattr(lock, "as_wish", _counted(read, lock.as_wish))
    given: Any = {"inventory_hostname": "node", "frameworks_path": "/opt/gpuwright", "groups": {"all": []}, **variables}
    look = NodeSession(cast("Any", Observed("up")), given)
    drafted = look.draft(look.facts(), only=[])
    assert isinstance(drafted, Draft) == ok
    assert ok or (isinstance(drafted, dict) and drafted["error"])
    assert len(read) == (0 if "gpuwright_lock" in variables else 1)


def _counted(read: list[object], real: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        read.append(arguments)
        return real(*arguments)

    return counted
