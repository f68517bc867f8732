"""What `doctor` says of the ways by which engines find the cards."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge

ById = Callable[[list[Check]], dict[str, Check]]
TOOLKIT: Any = {"container_toolkit": {}}


def judged(facts: Any, by_id: ById, check: str, stack: Any = TOOLKIT, **cdi: Any) -> tuple[str, str]:
    """How a check ends, and why."""
    changed = copy.deepcopy(facts)
    changed["containers"]["cdi"] |= cdi
    found = by_id(judge.judge(changed, stack))[check]
    return found["status"], found["reason"] or ""


def test_the_cards_of_the_node_pass(facts: Any, by_id: ById) -> None:
    specification = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    assert judged(facts, by_id, "container.cdi", specifications=[specification])[0] == "pass"
    assert judged(facts, by_id, "container.device_links")[0] == "pass"


def test_a_specification_that_only_root_may_read_is_none_to_users_podman(facts: Any, by_id: ById) -> None:
    good = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    closed = [{**good, "hidden": "/etc/cdi/nvidia.yaml"}]
    assert judged(facts, by_id, "container.cdi", specifications=closed)[0] == "pass"
    facts["containers"]["podman"] = {**(facts["containers"].get("podman") or {}), "version": "5.4.2"}
    status, reason = judged(facts, by_id, "container.cdi", specifications=closed)
    assert (status, "only root may read /etc/cdi/nvidia.yaml" in reason) == ("warn", True)


def test_other_cards_warn(facts: Any, by_id: ById) -> None:
    gone = {"path": "/etc/cdi/nvidia.yaml", "driver": None, "devices": ["0", "GPU-gone", "all"]}
    status, reason = judged(facts, by_id, "container.cdi", specifications=[gone])
    assert (status, "has a card that is not there: GPU-gone" in reason) == ("warn", True)
    assert judged(facts, by_id, "container.cdi", specifications=[])[0] == "warn"


def test_nodes_that_a_specification_has_too_much_or_too_little_warn(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["driver"]["nodes"] = [{"path": "/dev/nvidia-uvm", "mode": 0o666, "group": 0, "device": True}]
    good = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    nodes = ["/dev/nvidia0", "/dev/nvidia-uvm"]
    for row, expected in (
        ({**good, "nodes": nodes, "lost": []}, None),
        (
            {**good, "nodes": [*nodes, "/dev/dri/card1"], "lost": ["/dev/dri/card1"]},
            "hands out /dev/dri/card1, which is",
        ),
        ({**good, "nodes": ["/dev/nvidia0"], "lost": []}, "lacks /dev/nvidia-uvm"),
    ):
        status, reason = judged(changed, by_id, "container.cdi", specifications=[row])
        assert (status, (expected or "") in reason) == ("warn" if expected else "pass", True)


def test_a_program_that_each_start_runs_and_is_not_there_warns(facts: Any, by_id: ById) -> None:
    row = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    changed = copy.deepcopy(facts)
    changed["containers"]["cdi"]["specifications"] = [
        {**row, "lost": [], "lost_programs": ["/usr/bin/nvidia-cdi-hook"]}
    ]
    nothing: Any = {}
    for stack in (TOOLKIT, nothing):
        check = by_id(judge.judge(changed, stack))["container.cdi"]
        assert (check["status"], "/usr/bin/nvidia-cdi-hook" in str(check["reason"])) == ("warn", True)
        assert re.search(r"--reinstall .*nvidia-container-toolkit-base.*nvidia-ctk cdi generate", str(check["remedy"]))
    assert judged(facts, by_id, "container.cdi", specifications=[{**row, "lost_programs": []}])[0] == "pass"


@pytest.mark.parametrize(
    ("podman", "looks", "path", "told"),
    [
        ("5.5.1", None, "/var/run/cdi/nvidia.yaml", "/etc/cdi"),
        ("5.5.1", None, "/etc/cdi/nvidia.yaml", None),
        ("5.5.1", ["/etc/cdi", "/var/run/cdi"], "/var/run/cdi/nvidia.yaml", None),
        ("5.4.2", None, "/var/run/cdi/nvidia.yaml", None),
        # Before 5.5 nothing reads that.
        ("5.4.2", ["/etc/cdi"], "/var/run/cdi/nvidia.yaml", None),
        ("5.6.0", None, "/var/run/cdi/nvidia.yaml", None),
        ("5.8.2", ["/srv/cdi"], "/etc/cdi/nvidia.yaml", "/srv/cdi"),
    ],
)
def test_a_podman_that_does_not_look_where_the_specification_is_warns(
    facts: Any, by_id: ById, podman: str, looks: list[str] | None, path: str, told: str | None
) -> None:
    changed = copy.deepcopy(facts)
    row = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    changed["containers"]["cdi"]["specifications"] = [{**row, "path": path}]
    changed["containers"]["podman"] = {"version": podman, **({"looks": looks} if looks else {})}
    check = by_id(judge.judge(changed, TOOLKIT))["container.cdi"]
    assert check["status"] == ("warn" if told else "pass")
    assert (
        not told
        or f"Podman {podman} finds no card by CDI: it looks into {told}, and there is {path}" == check["reason"]
    )
    assert not told or "--cdi-spec-dir=" in str(check["remedy"])


def test_links_that_are_missing_warn(facts: Any, by_id: ById) -> None:
    status, reason = judged(facts, by_id, "container.device_links", unlinked=["/dev/nvidia0"])
    assert (status, "daemon-reload" in reason, "/dev/nvidia0" in reason) == ("warn", True, True)


def test_without_a_driver_there_is_nothing_to_compare(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    changed["driver"]["loaded_version"] = None
    assert judged(changed, by_id, "container.cdi", specifications=[])[0] == "skip"
    assert judged(changed, by_id, "container.device_links", unlinked=["/dev/nvidia0"])[0] == "skip"


@pytest.mark.parametrize("key", ["containers", "smi"])
def test_what_was_not_observed_is_never_a_pass(facts: Any, by_id: ById, key: str) -> None:
    changed = copy.deepcopy(facts)
    changed[key] = {**changed["containers"], "cdi": None} if key == "containers" else None
    assert by_id(judge.judge(changed, TOOLKIT))["container.cdi"]["status"] == "incomplete"


def test_where_the_toolkit_is_not_wished_only_a_specification_that_is_wrong_is_told(facts: Any, by_id: ById) -> None:
    changed = copy.deepcopy(facts)
    good = {**facts["containers"]["cdi"]["specifications"][0], "driver": facts["driver"]["loaded_version"]}
    for specifications, told in (([], False), ([good], False), ([{**good, "driver": "550.54.15"}], True)):
        changed["containers"]["cdi"] |= {"specifications": specifications, "unlinked": ["/dev/nvidia0"]}
        found = by_id(judge.judge(changed, {}))
        assert ("container.cdi" in found, "container.device_links" in found) == (told, False)
    assert str(found["container.cdi"]["remedy"]).startswith("systemctl restart nvidia-cdi-refresh.service")


def without(facts: Any, by_id: ById, stack: Any, version: str | None, docker: bool = False) -> Check | None:
    """The check of the specifications where there is none."""
    changed = copy.deepcopy(facts)
    containers = changed["containers"]
    containers["cdi"]["specifications"] = []
    containers["toolkit"]["version"], containers["podman"]["version"] = version, "5.6.0"
    containers["docker"]["installed"] = docker
    return by_id(judge.judge(changed, stack)).get("container.cdi")


def test_podman_finds_no_card_without_a_specification(facts: Any, by_id: ById) -> None:
    wished: Any = {"container_toolkit": {"engine": {"name": "podman"}}}
    nothing: Any = {}
    for stack in (wished, nothing):
        check = without(facts, by_id, stack, "1.17.4")
        assert check is not None
        assert (check["status"], "1.17.4 makes none by itself" in str(check["reason"])) == ("warn", True)
        assert "nvidia-ctk cdi generate" in str(check["remedy"])
    assert without(facts, by_id, {}, None) is None
    assert without(facts, by_id, {}, "1.17.4", docker=True) is None
    docker = without(facts, by_id, {"container_toolkit": {"engine": {"name": "docker"}}}, "1.17.4", docker=True)
    assert docker is not None
    assert docker["status"] == "skip"


@pytest.mark.parametrize(
    ("system", "version", "cmdline", "no_cgroups", "told"),
    [
        (("debian", "12"), "1.3.2-1", "", False, True),
        (("ubuntu", "22.04"), "1.7.0-1", "", False, True),
        (("rocky", "9.6"), "1.7.0-1", "", False, True),
        (("debian", "12"), "1.8.0-1", "", False, False),
        (("rocky", "8.10"), "1.3.2-1", "", False, False),
        (("rocky", "8.10"), "1.3.2-1", "ro systemd.unified_cgroup_hierarchy=1", False, True),
        (("debian", "12"), "1.3.2-1", "quiet systemd.unified_cgroup_hierarchy=0", False, False),
        (("debian", "12"), "1.3.2-1", "", True, False),
        (("arch", ""), "1.3.2-1", "", False, False),
    ],
)
def test_a_toolkit_older_than_the_control_groups_of_its_system_is_told(
    facts: Any, by_id: ById, system: tuple[str, str], version: str, cmdline: str, no_cgroups: bool, told: bool
) -> None:
    changed = copy.deepcopy(facts)
    changed["os"] |= {"id": system[0], "version": system[1]}
    changed["boot"]["cmdline"] = cmdline
    changed["packages"]["installed"]["libnvidia-container1"] = version
    changed["containers"]["runtime"] = {"no_cgroups": no_cgroups, "mode": "auto"}
    check = by_id(judge.judge(changed, {})).get("container.control_groups")
    assert (check is not None) == told
    assert check is None or (check["status"], "cgroup v2" in str(check["reason"])) == ("fail", True)
