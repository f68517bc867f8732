"""What the roles are told to do: the work that a plan carries, and the steps in the middle of a role."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.plugins.filter import core

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import cdi
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import docker as docker_engine
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.mig import apply as mig
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nouveau_blacklist import (
    apply as nouveau_blacklist,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import measurements, work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

ROOT = Path(__file__).resolve().parents[3]
RUNTIME = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
CDI_ON = {"features": {"cdi": True}}
DAEMON_JSON = "/etc/docker/daemon.json"
CDI = {name: {"active": "inactive", "enabled": "disabled"} for name in cdi.UNITS}
Inputs = Mapping[str, Mapping[str, Any]]


def planned(facts: Any, *, only: tuple[str, ...] = (), inputs: Inputs | None = None, **wished: Any) -> Any:
    request = Request(host="node", today=date(2026, 11, 20), only=only, inputs=inputs or {})
    drafted = make_draft(facts, Wish.from_variables(wished).with_defaults().with_roles(only), load_rules(), request)
    assert isinstance(drafted, Draft), drafted
    return finish(drafted, None)


def begun(component: str, facts: Any | None = None, **options: Any) -> Any:
    """The work of a component, of a role used alone."""
    there = nodes.provisioned() if facts is None else facts
    return planned(there, only=(component,), **options)["work"][component]


def asked(
    component: str, step: str, facts: Any, *, given: Any = None, inputs: Inputs | None = None, **wished: Any
) -> Any:
    """What a step answers in the middle of a role used alone."""
    plan = planned(nodes.provisioned(), only=(component,), **wished)
    plan["given"] = given or {}
    return work.of_step(component, step, plan, facts, inputs or {})


def test_a_plan_without_changes_has_no_work_and_a_role_used_alone_has_its_own() -> None:
    alone = planned(nodes.provisioned(), only=("container_toolkit",))
    none: Any = {"components": []}
    assert (alone["components"], list(alone["work"])) == ([], ["preflight", "repositories", "container_toolkit"])
    assert work.of_plan(none, Context(facts=nodes.bare(), stack={})) == {}
    assert work.of_plan(none, Context(facts=nodes.bare(), stack={}), ["container_toolkit", "mig"]) == {}


def test_a_source_that_an_earlier_component_adds_is_not_added_again() -> None:
    works = planned(nodes.bare())["work"]
    added = [name for each in works.values() for name in each.get("repositories", ())]
    assert added.count("nvidia-container-toolkit") == 1
    assert len(added) == len(set(added))


def test_a_variable_that_is_not_set_has_the_default_of_its_role() -> None:
    def default(role: str, name: str) -> Any:
        return yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text())[f"{role}_{name}"]

    assert list(nouveau_blacklist.MODULES) == default("nouveau_blacklist", "modules")
    for name in ("restart_docker", "default_runtime"):
        inputs = {"container_toolkit": {f"container_toolkit_{name}": default("container_toolkit", name)}}
        facts = nodes.provisioned(containers={"docker": {"config_loaded": False}})
        assert asked("container_toolkit", "installed", facts, inputs=inputs) == asked(
            "container_toolkit", "installed", facts
        )


# --- nouveau_blacklist ------------------------------------------------------------------------------------------------


def test_the_blacklist_names_each_module_and_turns_nouveaus_mode_setting_off() -> None:
    (file,) = begun("nouveau_blacklist")["files"]
    assert (file["path"], file["mode"]) == (nouveau_blacklist.BLACKLIST, "0644")
    assert file["content"].splitlines()[2:] == [
        "blacklist nouveau",
        "blacklist nova",
        "blacklist nova_core",
        "blacklist nova_drm",
        "options nouveau modeset=0",
    ]


def test_only_the_modules_that_are_wished_are_kept_away() -> None:
    inputs = {"nouveau_blacklist": {"nouveau_blacklist_modules": ["nova"]}}
    (file,) = begun("nouveau_blacklist", inputs=inputs)["files"]
    assert file["content"].splitlines()[2:] == ["blacklist nova"]
    assert "omit_drivers" not in nouveau_blacklist.for_dracut(["nova"])


def test_dracut_is_told_to_take_the_file_and_to_leave_nouveau_out() -> None:
    facts = nodes.provisioned(kernel={"initramfs": {"tool": "dracut"}})
    _blacklist, told = begun("nouveau_blacklist", facts)["files"]
    assert told["path"] == nouveau_blacklist.DRACUT
    assert told["content"].splitlines()[1:] == [
        'install_items+=" /etc/modprobe.d/gpuwright-nouveau.conf "',
        'omit_drivers+=" nouveau "',
    ]


def test_nobody_takes_nouveau_from_a_driver_of_somebody_elses() -> None:
    assert planned(nodes.provisioned(), only=("nouveau_blacklist",), nvidia_driver_source="preinstalled")["work"] == {}


def image(facts: Any, **given: Any) -> Any:
    return asked("nouveau_blacklist", "verified", facts, given=given)["image"]


@pytest.mark.parametrize(
    "module", [{}, {"nvidia": {**nodes.provisioned()["kernel"]["available"]["nvidia"], "version": None}}]
)
def test_nouveau_stays_where_the_next_kernel_has_no_other_module(module: Any) -> None:
    facts = nodes.provisioned()
    facts["kernel"]["available"] = module
    with pytest.raises(
        StepRefused,
        match=r"Expected an NVIDIA module for kernel 6.12.94.*Found none.*What to do: install the driver first",
    ):
        image(facts)
    assert image(facts, check=True) is None


def test_a_machine_without_an_initramfs_has_none_to_rebuild() -> None:
    assert image(nodes.provisioned(kernel={"initramfs": {"path": None, "tool": None}})) is None


def test_an_initramfs_that_nothing_is_known_to_rebuild_is_refused() -> None:
    with pytest.raises(
        StepRefused, match=r"Expected one of update-initramfs, dracut to rebuild /boot.*Found none of them.*What to do"
    ):
        image(nodes.provisioned(kernel={"initramfs": {"tool": None}}))


@pytest.mark.parametrize(
    ("tool", "rebuild", "lists"),
    [
        ("update-initramfs", ["update-initramfs", "-u", "-k", "6.12.94+deb13-amd64"], "lsinitramfs"),
        (
            "dracut",
            ["dracut", "--force", "--kver", "6.12.94+deb13-amd64", "/boot/initrd.img-6.12.94+deb13-amd64"],
            "lsinitrd",
        ),
    ],
)
def test_the_initramfs_of_the_next_kernel_is_rebuilt_by_what_made_it(tool: str, rebuild: list[str], lists: str) -> None:
    found = image(nodes.provisioned(kernel={"initramfs": {"tool": tool}}))
    assert (found["rebuild"], found["list"]) == (rebuild, [lists, "/boot/initrd.img-6.12.94+deb13-amd64"])
    assert found["kernel"] == "6.12.94+deb13-amd64"


def test_the_initramfs_is_stale_where_the_file_on_disk_is_not_inside() -> None:
    def stale(current: bool | None, seals: Any = None) -> bool:
        return bool(
            image(nodes.provisioned(kernel={"initramfs": {"blacklist_current": current}}, seals=seals or {}))["stale"]
        )

    assert [stale(current) for current in (True, False, None)] == [False, True, True]
    # Under a good seal nobody looked inside; a listing that was asked for all the same counts.
    good = {"nouveau_blacklist": {"state": "good"}}
    assert [stale(current, good) for current in (True, False, None)] == [False, True, False]


@pytest.mark.parametrize(
    ("listed", "inside"),
    [
        ("usr/lib/modules/x/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst", True),
        ("usr/lib/modules/x/kernel/drivers/gpu/nova-core/nova_core.ko.xz", True),
        ("usr/lib/modules/x/kernel/drivers/gpu/drm/nova/nova-drm.ko", True),
        ("usr/lib/modules/x/kernel/drivers/gpu/drm/nova/nova.ko", True),
        ("usr/lib/modules/x/kernel/drivers/video/nvidia.ko", False),
        ("usr/lib/modules/x/kernel/drivers/media/supernova.ko", False),
    ],
)
def test_a_driver_inside_the_initramfs_is_known_by_its_file(listed: str, inside: bool) -> None:
    assert bool(re.search(image(nodes.provisioned())["drivers"], listed)) is inside
    assert image(nodes.provisioned())["inside"] == "etc/modprobe.d/gpuwright-nouveau.conf"


# --- cuda -------------------------------------------------------------------------------------------------------------


def test_toolkits_and_libraries_come_in_one_call_each_package_once() -> None:
    wished = {"cuda_versions": ["13.0", "13.1"], "cuda_cudnn": True, "cuda_nccl": True}
    (call,) = begun("cuda", **wished)["packages"]
    assert {"cuda-toolkit-13-0", "cuda-toolkit-13-1"} <= set(call["names"])
    assert any(name.startswith("libnccl") for name in call["names"])
    assert any("cudnn" in name for name in call["names"])
    assert len(call["names"]) == len(set(call["names"]))
    assert call["allow_downgrade"] is False
    assert call["allow_held"] is False


def test_each_toolkits_compiler_has_to_be_of_its_release() -> None:
    found = begun("cuda", cuda_versions=["13.0", "13.1"])["compilers"]
    assert [(row["program"], row["release"]) for row in found] == [
        ("/usr/local/cuda-13.0/bin/nvcc", "13.0"),
        ("/usr/local/cuda-13.1/bin/nvcc", "13.1"),
    ]
    assert "--reinstall cuda-toolkit-13-1" in found[1]["remedy"]


def test_a_toolkit_goes_back_only_where_the_plan_moves_it() -> None:
    facts = nodes.provisioned(packages={"installed": {"cuda-toolkit-13-0": "13.0.3-1"}})
    (call,) = planned(facts, cuda_versions=["13.0.2"])["work"]["cuda"]["packages"]
    assert call["allow_downgrade"] is True


def test_that_one_component_is_moved_lets_no_other_one_go_back() -> None:
    facts = nodes.provisioned()
    del facts["packages"]["installed"]["nvidia-container-toolkit"]
    works = planned(facts, gpuwright_want=["cuda=13.0.2", "container-toolkit"])["work"]
    assert [call["allow_downgrade"] for call in works["cuda"]["packages"]] == [True]
    assert [call["allow_downgrade"] for call in works["container_toolkit"]["packages"]] == [False]


def test_a_source_that_the_host_has_by_its_own_is_not_added() -> None:
    facts = nodes.provisioned()
    assert begun("cuda", facts)["repositories"] == ["nvidia-cuda"]
    (ours,) = [row for row in facts["packages"]["sources"] if row["file"].endswith("gpuwright-nvidia-cuda.sources")]
    plan = planned(facts, only=("cuda",))
    (address,) = next(row["uris"] for row in plan["stack"]["repositories"] if row["name"] == "nvidia-cuda")
    ours |= {"file": "/etc/apt/sources.list.d/cuda.list", "uris": [f"{address.rstrip('/')}/"]}
    assert begun("cuda", facts)["repositories"] == []


# --- container_toolkit ------------------------------------------------------------------------------------------------


def docker(**changes: Any) -> Any:
    facts = nodes.provisioned(services=CDI)
    facts["containers"]["docker"] |= changes
    return facts


def installed(facts: Any, *, given: Any = None, **variables: Any) -> Any:
    inputs = {"container_toolkit": {f"container_toolkit_{name}": value for name, value in variables.items()}}
    return asked("container_toolkit", "installed", facts, given=given, inputs=inputs)


def written(facts: Any, **variables: Any) -> list[Any]:
    return [row for row in installed(facts, **variables)["files"] if row["path"] == DAEMON_JSON]


def merged(facts: Any, **variables: Any) -> Any:
    """The configuration that is written; None where none is."""
    files = written(facts, **variables)
    return json.loads(files[0]["content"]) if files else None


def test_engine_and_toolkit_come_in_one_call() -> None:
    (call,) = begun("container_toolkit", nodes.bare())["packages"]
    assert call["names"][:2] == ["docker.io", "docker-cli"]
    assert "nvidia-container-toolkit" in call["names"]
    assert call["allow_downgrade"] is False


def test_an_engine_of_somebody_elses_is_kept() -> None:
    facts = docker(version="29.1.0")
    facts["packages"]["installed"] = {
        name: version for name, version in facts["packages"]["installed"].items() if not name.startswith("docker")
    } | {"docker-ce": "5:29.1.0-1"}
    (call,) = begun("container_toolkit", facts)["packages"]
    assert not [name for name in call["names"] if name.startswith("docker")]


def test_where_the_toolkit_may_go_back_the_engine_may_not() -> None:
    calls = planned(nodes.provisioned(), container_toolkit_version="1.19.1")["work"]["container_toolkit"]["packages"]
    engine, toolkit = calls
    assert (engine["names"], engine["allow_downgrade"]) == (["docker.io", "docker-cli"], False)
    assert ("nvidia-container-toolkit" in toolkit["names"], toolkit["allow_downgrade"]) == (True, True)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "containers": {
                "docker": {"daemon_json": None, "daemon_json_error": "/etc/docker/daemon.json is no valid JSON: x"}
            }
        },
        {
            "containers": {"docker": {"daemon_json": None}},
            "unknown": {"containers.docker.daemon_json": "it could not be read"},
        },
    ],
)
def test_a_configuration_that_cannot_be_merged_is_refused_before_the_first_package_and_again_before_it_is_written(
    changes: Any,
) -> None:
    facts = nodes.provisioned(**changes)
    text = "Expected /etc/docker/daemon.json to be a JSON object. Found: .*What to do: correct the file by hand"
    assert re.match(text, begun("container_toolkit", facts)["refusal"])
    again = installed(facts)
    assert (
        re.match(text, again["refusal"]) is not None,
        [row for row in again["files"] if row["path"] == DAEMON_JSON],
    ) == (True, [])
    assert begun("container_toolkit")["refusal"] is None
    assert installed(docker())["refusal"] is None


def test_runtimes_that_dockers_unit_gives_are_not_written_a_second_time() -> None:
    unit = "/etc/systemd/system/docker.service.d/override.conf"
    given: Any = {"flags": [{"file": unit, "name": "host"}, {"file": unit, "name": "add-runtime"}]}
    refusal = begun("container_toolkit", docker(daemon_json=None, **given))["refusal"]
    assert f"{unit} gives --add-runtime" in refusal
    assert begun("container_toolkit", docker(daemon_json={"runtimes": RUNTIME}, **given))["refusal"] is None


def test_the_runtime_is_merged_and_foreign_keys_stay() -> None:
    there = {"log-driver": "journald", "runtimes": {"runsc": {"path": "runsc"}, "nvidia": {"path": "/old", "x": 1}}}
    # The engine of this node, 26.1.5, has CDI and has to be told to use it.
    assert merged(docker(daemon_json=there)) == {
        **CDI_ON,
        "log-driver": "journald",
        "runtimes": {"runsc": {"path": "runsc"}, "nvidia": {**RUNTIME["nvidia"], "x": 1}},
    }
    assert merged(docker(daemon_json=None)) == {"runtimes": RUNTIME, **CDI_ON}
    assert merged(docker(daemon_json={"runtimes": ["?"]})) == {"runtimes": RUNTIME, **CDI_ON}


def test_each_container_gets_the_runtime_only_where_that_is_wished() -> None:
    facts = docker(daemon_json={"runtimes": RUNTIME, **CDI_ON})
    assert merged(facts) is None
    assert merged(facts, default_runtime=True) == {"runtimes": RUNTIME, **CDI_ON, "default-runtime": "nvidia"}


def test_the_configuration_has_the_layout_that_it_always_had() -> None:
    there = {"b": ["ü"], "a": {}}
    (file,) = written(docker(daemon_json=there))
    wished = docker_engine.with_runtime(there, CDI_ON)
    assert file["content"] == core.to_nice_json(wished, indent=4, sort_keys=False) + "\n"


def test_a_file_that_is_there_keeps_its_mode_and_a_copy_of_it_is_kept() -> None:
    (file,) = written(docker(daemon_json={}))
    assert "mode" not in file
    before = {"src": file["path"], "dest": f"/var/lib/gpuwright/backup{file['path']}.before"}
    assert before in installed(docker(daemon_json={}))["kept"], "by one name: no run leaves another one beside it"
    (new,) = written(docker(daemon_json=None))
    assert new["mode"] == "0644"
    assert {"path": "/etc/docker", "mode": "0755"} in installed(docker(daemon_json=None))["places"]


@pytest.mark.parametrize(
    ("version", "validated"), [("23.0.0", True), ("29.1", True), ("20.10.24", False), (None, False)]
)
def test_docker_checks_the_configuration_where_it_can(version: str | None, validated: bool) -> None:
    (file,) = written(docker(daemon_json={}, version=version))
    assert file.get("validate") == ("dockerd --validate --config-file=%s" if validated else None)


def test_in_check_mode_nothing_is_written_for_an_engine_that_is_not_there_yet() -> None:
    facts = docker(installed=False, active=False, daemon_json=None)
    assert installed(facts, given={"check": True})["files"] == []
    assert installed(facts)["files"] != []
    assert installed(docker(daemon_json={}), given={"check": True})["files"] != []


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"config_loaded": False}, True),
        ({"config_loaded": True}, False),
        ({"config_loaded": None}, False),
        ({"config_loaded": True, "daemon_json": {}}, True),
        ({"active": False, "config_loaded": None, "daemon_json": {}}, False),
    ],
)
def test_docker_is_stale_where_it_started_before_its_configuration(changes: Any, stale: bool) -> None:
    (engine,) = installed(docker(**changes))["engines"]
    assert (engine["state"] == "restarted") is stale


@pytest.mark.parametrize(
    ("wished", "idle", "busy"),
    [
        ("auto", "restarted", "started"),
        (True, "restarted", "restarted"),
        ("yes", "restarted", "restarted"),
        (False, "started", "started"),
        ("no", "started", "started"),
    ],
)
def test_running_containers_are_stopped_only_where_that_is_wished(wished: Any, idle: str, busy: str) -> None:
    for running, state in (({}, idle), (IN_DOCKER, busy)):
        (engine,) = installed(in_use(running), restart_docker=wished)["engines"]
        assert (engine["unit"], engine["enabled"]) == ("docker", True)
        assert (engine["state"], engine["left"]) == (state, state == "started")


@pytest.mark.parametrize(
    "running",
    [
        {"working": [{"engine": "docker", "what": "an image that is being pulled"}]},
        {"docker_clients": 1},
        {"unread": "the open files of 3 processes could not be read"},
    ],
)
def test_builds_and_pulls_of_docker_and_what_nobody_can_see_are_not_ended(running: dict[str, Any]) -> None:
    (engine,) = installed(in_use(running))["engines"]
    assert (engine["state"], engine["left"]) == ("started", True)
    assert "Expected nothing to run in Docker, because it is to be restarted. Found" in engine["why"]


IN_DOCKER: dict[str, Any] = {"containers": [{"engine": "docker", "id": "0123456789ab", "comes_back": True}]}


def in_use(running: dict[str, Any]) -> Any:
    """A node whose Docker has not read its configuration, with what runs there."""
    facts = docker(config_loaded=False)
    facts["in_use"] |= running
    return facts


def test_a_docker_that_has_read_its_configuration_only_has_to_run() -> None:
    (engine,) = installed(docker(), restart_docker=True)["engines"]
    assert (engine["state"], engine["left"]) == ("started", False)


def test_an_engine_that_is_not_there_is_not_started() -> None:
    facts = docker(installed=False, active=False)
    (engine,) = installed(facts)["engines"]
    assert (engine["enabled"], engine["state"]) == (None, None)


def test_podman_has_no_daemon_to_configure() -> None:
    plan = planned(nodes.provisioned(), only=("container_toolkit",))
    stack = {**plan["stack"]["container_toolkit"], "engine": {"name": "podman", "packages": ["podman"]}}
    podman: Any = {**plan, "stack": {**plan["stack"], "container_toolkit": stack}, "given": {}}
    found: Any = work.of_step("container_toolkit", "installed", podman, docker(daemon_json={}, config_loaded=False), {})
    assert (found["files"], found["engines"]) == ([], [])
    assert [row["name"] for row in found["units"]] == [*cdi.UNITS, cdi.LINKS]


@pytest.mark.parametrize(
    ("engine", "files", "services"),
    [("docker", [DAEMON_JSON], ["docker.service", cdi.LINKS]), ("podman", [], [cdi.LINKS])],
)
def test_the_configuration_and_the_unit_are_sealed_where_docker_is_the_engine(
    engine: str, files: list[str], services: list[str]
) -> None:
    stack = planned(nodes.provisioned(), only=("container_toolkit",))["stack"]
    stack["container_toolkit"]["engine"] = {"name": engine, "packages": []}
    managed = COMPONENTS["container_toolkit"].sealed(Context(facts=docker(), stack=stack))
    assert [path for path in managed.files if path.startswith("/etc/docker/")] == files
    assert managed.services == services


@pytest.mark.parametrize(
    ("enabled", "there"),
    [("disabled", True), ("enabled", True), ("masked", False), ("not-found", False), (None, False)],
)
def test_the_toolkits_own_units_are_enabled_where_they_exist_and_never_started(
    enabled: str | None, there: bool
) -> None:
    facts = nodes.provisioned(services={cdi.UNITS[0]: {"active": "inactive", "enabled": enabled}})
    assert [row for row in installed(facts)["units"] if row["name"] in cdi.UNITS] == (
        [{"name": cdi.UNITS[0], "enabled": True}] if there else []
    )


def test_the_unit_is_told_of_a_module_that_it_does_not_know_and_else_the_setting_goes() -> None:
    usual = installed(docker())
    assert ([file["path"] for file in usual["own"]], usual["absent"]) == ([cdi.LINKS_UNIT], [cdi.SETTING])
    assert usual["directory"] == "/etc/systemd/system/nvidia-cdi-refresh.service.d"

    plan = planned(nodes.provisioned(), only=("container_toolkit",))
    driver = {**(plan["stack"].get("driver") or {}), "kernel_module": "nvidia-current-open"}
    other: Any = {**plan, "stack": {**plan["stack"], "driver": driver}, "given": {}}
    found: Any = work.of_step("container_toolkit", "installed", other, docker(), {})
    setting, _links = found["own"]
    assert (setting["path"], setting["mode"]) == (cdi.SETTING, "0644")
    assert 'grep -qE "/nvidia-current-open[.]ko" /lib/modules/$$(uname -r)/modules.dep' in setting["content"]
    assert {"path": "/etc/systemd/system/nvidia-cdi-refresh.service.d", "mode": "0755"} in found["places"]
    assert found["directory"] is None


# --- mig --------------------------------------------------------------------------------------------------------------

LAYOUT: Any = {"mig_layout": {"all": "3g.40gb,3g.40gb"}}


def test_the_layout_and_its_service_are_files_of_the_plan() -> None:
    layout, unit = begun("mig", **LAYOUT)["files"]
    assert json.loads(layout["content"]) == {
        "cards": [{"bus_id": f"00000000:{bus}:00.0", "profiles": ["3g.40gb", "3g.40gb"]} for bus in ("18", "2A")]
    }
    assert layout["content"] == core.to_nice_json(json.loads(layout["content"]), indent=1) + "\n"
    assert (layout["path"], unit["path"]) == (mig.LAYOUT, mig.UNIT)
    assert f"ExecStart=/usr/bin/python3 {mig.PROGRAM} {mig.LAYOUT}\n" in unit["content"]
    assert "Before=nvidia-cdi-refresh.service nvidia-dcgm.service docker.service " in unit["content"]


def test_a_card_that_is_not_there_yet_has_no_place_in_the_layout() -> None:
    stack: Any = {"mig": {"cards": [{"bus_id": None, "profiles": ["7g.80gb"]}]}}
    plan: Any = {}
    assert json.loads(mig.begin(Context(facts=nodes.bare(), stack=stack), plan)["files"][0]["content"]) == {"cards": []}


@pytest.mark.parametrize(
    ("facts", "units", "runs"),
    [
        (nodes.provisioned(), [{"name": mig.SERVICE, "enabled": True}], True),
        (nodes.bare(), [{"name": mig.SERVICE, "enabled": True}], False),
        (nodes.provisioned(pci={"gpus": []}), [], False),
    ],
)
def test_cards_are_parted_where_the_driver_runs_and_else_by_the_service_after_the_boot(
    facts: Any, units: Any, runs: bool
) -> None:
    found = asked("mig", "here", facts, **LAYOUT)
    assert (found["units"], found["runs"]) == (units, runs)


def test_a_machine_that_is_only_provisioned_parts_nothing() -> None:
    plan: Any = {**planned(nodes.provisioned(), only=("mig",), **LAYOUT), "provision_only": True, "given": {}}
    found = work.of_step("mig", "here", plan, nodes.provisioned(), {})
    assert (found["units"], found["runs"]) == ([], False)


@pytest.mark.parametrize(
    ("enabled", "follows"), [("enabled", True), ("disabled", True), ("masked", False), ("not-found", False)]
)
def test_the_specification_for_containers_follows_where_its_unit_exists(enabled: str, follows: bool) -> None:
    unit = "nvidia-cdi-refresh.service"
    facts = nodes.provisioned(services={unit: {"active": "inactive", "enabled": enabled}})
    assert asked("mig", "here", facts, **LAYOUT)["follows"] == ([unit] if follows else [])


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "roles").iterdir()))
def test_each_step_belongs_to_a_task_of_its_role(name: str) -> None:
    text = "".join(path.read_text() for path in (ROOT / "roles" / name / "tasks").glob("*.yml"))
    named = set(re.findall(r"^ +(?:__\w+_)?step: (\w+)$", text, re.MULTILINE))
    # What a proof measures the action `seal` decides, with its look at the node.
    elsewhere = {"measure"} if name == measurements.NAME else set()
    # The plan has the answer of `begin` already; a role may ask for it once more.
    assert named - {"begin"} == set(work._steps(name)) - {"begin"} - elsewhere
    assert set(re.findall(r"^ +component: (\w+)$", text, re.MULTILINE)) <= {name}
