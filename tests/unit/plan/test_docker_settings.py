"""Docker's settings as wishes: merged into daemon.json, recorded, and taken out again to the last byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work
from tests.unit.observe.trees import Tree
from tests.unit.plan import nodes
from tests.unit.plan.test_containerd import planned, reasons

DAEMON_JSON = "/etc/docker/daemon.json"
ORIGINAL = paths.BACKUP + DAEMON_JSON
#: The file as it is before each time that it is written, by one name.
BEFORE = {"src": DAEMON_JSON, "dest": f"{ORIGINAL}.before"}
RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
CDI = {"features": {"cdi": True}}
LOGS = {"log-driver": "local", "log-opts": {"max-size": "50m"}}


def node(daemon_json: Any, *, sealed: bool = False, **docker: Any) -> Any:
    facts = nodes.provisioned(services={"docker.service": {"active": "active", "enabled": "enabled"}})
    facts["containers"]["docker"] |= {"daemon_json": daemon_json, **docker}
    # The first run has begun by then, too.
    facts["seals"] = {"container_toolkit": {"state": "begun", "stack": None}}
    facts["history"] = {"drivers": [], "failed": [], "files": [DAEMON_JSON] if sealed else []}
    return facts


def written(facts: Any, **wished: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The configuration and the record of it that are written; None where none is."""
    step = done(facts, **wished)
    found = {row["path"]: json.loads(row["content"]) for row in step["files"] if row["path"].endswith(".json")}
    return (found[DAEMON_JSON], found[paths.DOCKER]) if found else None


def done(facts: Any, **wished: Any) -> Any:
    plan = planned(facts, container_toolkit_docker=wished)
    plan["given"] = {}
    return work.of_step("container_toolkit", "installed", plan, facts, {})


def test_a_setting_that_is_wished_is_merged_and_foreign_keys_stay() -> None:
    there = {"log-opts": {"tag": "x"}, "dns": ["10.0.0.1"], **RUNTIME, **CDI}
    found = written(node(there), **LOGS)
    assert found
    config, record = found
    assert config == {**there, "log-driver": "local", "log-opts": {"tag": "x", "max-size": "50m"}}
    assert record["put"] == LOGS
    assert record["had"] == {"log-opts": {}}
    assert record["before"] == "file"


def test_the_record_is_roots_alone_and_written_before_the_file_of_which_a_copy_is_kept_first() -> None:
    step = done(node({"dns": ["10.0.0.1"]}))
    assert step["kept"] == [{"src": DAEMON_JSON, "dest": ORIGINAL}, BEFORE]
    record, file = step["files"]
    assert (record["path"], record["mode"], file["path"]) == (paths.DOCKER, "0600", DAEMON_JSON)
    assert json.loads(record["content"])["after"] == hashlib.sha256(file["content"].encode()).hexdigest()
    modes = {place["path"]: place["mode"] for place in step["places"]}
    assert modes == {paths.BACKUP + "/etc/docker": "0700", paths.STATE: "0700", "/etc/docker": "0755"}


def test_a_second_run_writes_nothing_and_a_copy_is_kept_only_once() -> None:
    there = {**RUNTIME, **CDI, **LOGS}
    added = {"put": there, "had": {}, "original": "none"}
    assert reasons(node(there, added=added), container_toolkit_docker=LOGS) == []
    assert written(node(there, added=added), **LOGS) is None
    more = done(node(there, added=added), **LOGS, **{"live-restore": True})
    assert more["kept"] == [BEFORE]
    assert json.loads(more["files"][0]["content"])["before"] == "none"


@pytest.mark.parametrize(
    ("now", "wished", "left"),
    [
        (LOGS, {}, {}),
        (LOGS, {"log-driver": "local"}, {"log-driver": "local"}),
        ({**LOGS, "log-driver": "journald"}, {}, {"log-driver": "journald"}),
        ({**LOGS, "log-opts": {"max-size": "50m", "tag": "x"}}, {}, {"log-opts": {"tag": "x"}}),
    ],
)
def test_a_wish_that_is_taken_back_leaves_what_others_wrote(now: Any, wished: Any, left: Any) -> None:
    added = {"put": {**RUNTIME, **CDI, **LOGS}, "had": {}, "original": None}
    facts = node({**RUNTIME, **CDI, **now}, added=added)
    assert "of an earlier wish" in reasons(facts, container_toolkit_docker=wished)[0]
    found = written(facts, **wished)
    assert found
    assert found[0] == {**RUNTIME, **CDI, **left}


def test_a_value_of_the_hosts_own_comes_back() -> None:
    added = {"put": {**RUNTIME, **CDI, "data-root": "/data"}, "had": {"data-root": "/old"}, "original": "file"}
    found = written(node({**RUNTIME, **CDI, "data-root": "/data"}, added=added))
    assert found
    assert found[0]["data-root"] == "/old"


def test_another_place_for_the_data_is_told_to_leave_the_old_one_unseen() -> None:
    (reason,) = reasons(node({**RUNTIME, **CDI}), container_toolkit_docker={"data-root": "/data/docker"})
    assert "data-root is not as wished" in reason
    assert "images and containers in /var/lib/docker stay there" in reason


@pytest.mark.parametrize(
    ("version", "on"), [("20.10.24", False), ("25.0.0", True), ("26.1.5", True), ("28.1.9", True), ("28.2.0", False)]
)
def test_cdi_is_switched_on_where_docker_has_it_and_leaves_it_off(version: str, on: bool) -> None:
    found = reasons(node(RUNTIME, version=version))
    assert found == (["Docker's features is not as wished"] if on else [])


def test_what_an_earlier_version_put_in_is_known_for_its_own() -> None:
    found = written(node({**RUNTIME, "dns": ["10.0.0.1"]}, sealed=True), **LOGS)
    assert found
    config, record = found
    assert config == {**RUNTIME, **CDI, **LOGS, "dns": ["10.0.0.1"]}
    assert record["put"] == {**RUNTIME, **CDI, **LOGS}
    assert record["before"] is None
    assert done(node(RUNTIME, sealed=True))["kept"] == [BEFORE]


# --- the record on the node -------------------------------------------------------------------------------------------


def recorded(tree: Tree, now: str | None, original: str | None, *, before: str | None) -> Any:
    after = hashlib.sha256(b"ours").hexdigest()
    record = {"put": RUNTIME, "had": {}, "before": before, "after": after}
    tree.file(paths.DOCKER, json.dumps(record))
    if now is not None:
        tree.file(DAEMON_JSON, now)
    if original is not None:
        tree.file(ORIGINAL, original)
    return containers.observe(tree.host(), {})["docker"]["added"]


@pytest.mark.parametrize(
    ("now", "original", "before", "found"),
    [
        ("ours", "theirs", "file", "file"),
        ("theirs", "theirs", "file", "file"),
        ("changed", "theirs", "file", None),
        ("ours", None, "file", None),
        (None, "theirs", "file", None),
        ("ours", None, "none", "none"),
        (None, None, "none", "none"),
        ("changed", None, "none", None),
        ("ours", "theirs", None, None),
    ],
)
def test_the_file_as_it_was_can_be_put_back_where_nobody_else_wrote_it(
    tmp_path: Path, now: Any, original: Any, before: Any, found: Any
) -> None:
    assert recorded(Tree(tmp_path), now, original, before=before) == {"put": RUNTIME, "had": {}, "original": found}


@pytest.mark.parametrize("text", ["{", "[]", '{"put": 1, "had": {}}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    tree = Tree(tmp_path)
    tree.file(paths.DOCKER, text)
    assert containers.observe(tree.host(), {})["docker"]["added"] is None


def test_a_node_without_a_record_has_none(tmp_path: Path) -> None:
    assert containers.observe(Tree(tmp_path).host(), {})["docker"]["added"] is None


# --- remove -----------------------------------------------------------------------------------------------------------


def removed(facts: Any) -> Any:
    plan: Any = {
        "changes": [],
        "remove": {
            "packages": [],
            "runfile": False,
            "files": [],
            "environments": [],
            "services": [],
            "streams": {},
            "restore": None,
            "initramfs": False,
        },
        "given": {"answers": [], "there": [], "others": [], "aside": [], "also": [], "kept": []},
    }
    whole: Any = {**planned(nodes.provisioned()), **plan}
    found: Any = work.of_step("remove", "goes", whole, facts, {})
    return found["docker"]


def test_remove_puts_the_file_back_as_it_was() -> None:
    added = {"put": {**RUNTIME, **CDI}, "had": {}, "original": "file"}
    found = removed(node({**RUNTIME, **CDI, "dns": []}, added=added))
    assert found["put_back"] == [{"src": ORIGINAL, "dest": DAEMON_JSON}]
    assert (found["files"], found["absent"]) == ([], [])


@pytest.mark.parametrize("content", [{**RUNTIME, **CDI}, {**RUNTIME, "dns": []}])
def test_remove_takes_a_file_away_that_was_not_there(content: Any) -> None:
    found = removed(node(content, added={"put": content, "had": {}, "original": "none"}))
    assert (found["put_back"], found["files"], found["absent"]) == ([], [], [DAEMON_JSON])


def test_remove_takes_out_only_what_was_put_in_where_others_wrote_since() -> None:
    added = {"put": {**RUNTIME, **LOGS}, "had": {"log-driver": "json-file"}, "original": None}
    found = removed(node({**RUNTIME, **LOGS, "dns": ["10.0.0.1"]}, added=added))
    (file,) = found["files"]
    assert json.loads(file["content"]) == {"log-driver": "json-file", "dns": ["10.0.0.1"]}
    assert (found["put_back"], found["absent"]) == ([], [])


# --- another engine in its place --------------------------------------------------------------------------------------


def podman(facts: Any, **given: Any) -> Any:
    """The work where Podman is the engine."""
    plan = planned(facts, container_toolkit_engine="podman")
    plan["given"] = given
    return work.of_step("container_toolkit", "installed", plan, facts, {})


def test_docker_is_given_back_to_the_last_byte_where_another_engine_is_wished() -> None:
    there = {"dns": ["10.0.0.1"], **RUNTIME}
    facts = node(there, added={"put": RUNTIME, "had": {}, "original": "file"}, config_loaded=True)
    facts["packages"]["installed"]["podman"] = "5.4.2"
    assert "Docker is not the engine that is wished" in reasons(facts, container_toolkit_engine="podman")[0]
    step = podman(facts)
    assert (step["kept"], step["files"]) == ([], [])
    assert step["put_back"] == [{"src": ORIGINAL, "dest": DAEMON_JSON}]
    # The record goes last: without it nobody would know what is left to be given back.
    assert step["absent"][-1] == paths.DOCKER
    (engine,) = step["engines"]
    assert (engine["unit"], engine["enabled"], engine["state"], engine["left"]) == ("docker", None, "restarted", False)
    facts["in_use"] |= {"working": [{"engine": "docker", "what": "docker build (pid 9)"}]}
    (engine,) = podman(facts)["engines"]
    assert (engine["state"], engine["left"]) == (None, True)


def test_what_others_wrote_into_it_since_stays_where_another_engine_is_wished() -> None:
    there = {"dns": ["10.0.0.1"], **RUNTIME}
    step = podman(node(there, added={"put": RUNTIME, "had": {}, "original": None}))
    (file,) = step["files"]
    assert (file["path"], json.loads(file["content"]), "mode" in file) == (DAEMON_JSON, {"dns": ["10.0.0.1"]}, False)
    nothing = podman(node(RUNTIME, added={"put": RUNTIME, "had": {}, "original": "none"}))
    assert (nothing["files"], nothing["absent"][-2:]) == ([], [DAEMON_JSON, paths.DOCKER])


def test_a_runtime_that_the_host_has_itself_stays_where_another_engine_is_wished() -> None:
    facts = node({"dns": ["10.0.0.1"], **RUNTIME})
    facts["packages"]["installed"]["podman"] = "5.4.2"
    assert reasons(facts, container_toolkit_engine="podman") == []
    step = podman(facts)
    assert (step["put_back"], step["files"], step["engines"]) == ([], [], [])
    assert paths.DOCKER not in step["absent"]


def test_the_runtime_that_a_version_without_a_record_put_in_is_given_back_too() -> None:
    facts = node({"dns": ["10.0.0.1"], **RUNTIME})
    facts["history"] = {**(facts["history"] or {"drivers": [], "failed": []}), "files": [DAEMON_JSON]}
    (file,) = podman(facts)["files"]
    assert json.loads(file["content"]) == {"dns": ["10.0.0.1"]}


def test_a_plan_names_a_broken_configuration_and_not_what_it_lacks() -> None:
    error = "/etc/docker/daemon.json is no valid JSON: Expecting ',' delimiter: line 3 column 5 (char 40)"
    told = f"{error}: Docker does not start with it, and nothing is put into it before it is corrected by hand"
    assert reasons(node(None, daemon_json_error=error), container_toolkit_docker=LOGS) == [told]


def test_a_plan_says_of_a_configuration_that_nobody_could_see_that_it_is_not_known() -> None:
    facts = node(None)
    facts["unknown"]["containers.docker.daemon_json"] = "Permission denied"
    assert reasons(facts) == [
        "it is not known whether Docker has a runtime 'nvidia' in /etc/docker/daemon.json: Permission denied"
    ]


def test_a_configuration_that_cannot_be_merged_is_refused_before_the_first_change() -> None:
    good = node({"dns": []})
    plan = planned(good)
    room = COMPONENTS["container_toolkit"]
    room.refuse(Context(facts=good, stack=plan["stack"]), plan)
    broken = node(None, daemon_json_error="/etc/docker/daemon.json is no valid JSON")
    with pytest.raises(StepRefused, match="correct the file by hand"):
        room.refuse(Context(facts=broken, stack=plan["stack"]), plan)
