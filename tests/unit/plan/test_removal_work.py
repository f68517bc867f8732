"""What the role `remove` asks before the first change, and what goes by the node's answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.packages import sources
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal_work
from tests.unit.plan import nodes
from tests.unit.repo import floors

_TORCH = "/opt/gpuwright/pytorch"
_MARK, _UNFINISHED = f"{_TORCH}/gpuwright-constraints.txt", "/opt/gpuwright/.pytorch.unfinished"
_SOURCE = "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources"
_REPO = "/etc/yum.repos.d/gpuwright-nvidia-cuda.repo"
_HOLDINGS = ["ps", "image", "volume", "network", "plugin"]
_DOCKER, _CONTAINERD = "/var/lib/docker", "/var/lib/containerd"


def wanted(**changes: Any) -> dict[str, Any]:
    """What the plan takes back."""
    return {
        "packages": ["libcuda1", "gdisk", "fio"],
        "kept": [],
        "runfile": False,
        "mig": [],
        "gpu_settings": [],
        "files": [],
        "environments": [],
        "services": [],
        "docker": False,
        "streams": {},
        "initramfs": False,
        "restore": None,
        **changes,
    }


_DPKG_TRIES = ["dpkg", "--no-act", "--force-hold", "--force-remove-reinstreq", "--purge"]


def plan(remove: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"remove": remove, "changes": [], "restore": remove["restore"], "allow_busy": False, **changes}


def dnf(**changes: Any) -> Any:
    return nodes.merged(nodes.bare(packages={"manager": "dnf"}), changes)


def engine(made: tuple[str, ...] = (), **changes: Any) -> Any:
    """A node whose Docker and containerd run. ``made``: directories that the record says were made here."""
    docker, beside = {"installed": True, "active": True, **changes}, {"installed": True, "active": True}
    facts = nodes.merged(nodes.bare(), {"containers": {"docker": docker, "containerd": beside}})
    facts["history"] = {"drivers": [], "failed": [], "made": list(made)}
    return facts


def asked(remove: dict[str, Any], facts: Any = None) -> Any:
    return removal_work.begin(Context(facts=facts or nodes.bare(), stack={}), plan(remove))["ask"]


def answers(ask: Any, *rules: tuple[str, list[str] | None]) -> list[dict[str, Any]]:
    """Results of the commands: the lines of the first rule whose word is in one; None for one that does not answer."""
    found = [(argv, next((lines for word, lines in rules if word in argv), [])) for argv in ask["commands"]]
    return [
        {"item": argv, "rc": None if lines is None else 0, "stdout_lines": lines or [], "error": None}
        for argv, lines in found
    ]


def goes(
    remove: dict[str, Any], *rules: tuple[str, list[str] | None], facts: Any = None, changes: Any = None, **given: Any
) -> Any:
    facts = facts or nodes.bare()
    ask = given.pop("ask", None) or asked(remove, facts)
    found = {
        "answers": answers(ask, *rules),
        "there": [{"item": path, "stat": {"exists": path in given.get("paths", ())}} for path in ask["there"]],
        "others": [],
        "aside": [],
        "also": [],
        "kept": [],
        **{name: value for name, value in given.items() if name != "paths"},
    }
    context = Context(facts=facts, stack={})
    return removal_work.goes(context, plan(remove, given=found, **(changes or {})))


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_apt_is_asked_for_its_lists_and_tries_the_removal() -> None:
    ask = asked(wanted(files=[_SOURCE, "/etc/modprobe.d/gpuwright-nouveau.conf"], environments=[_TORCH]))
    lists, trial = ask["commands"]
    assert lists[:4] == ["apt-get", "indextargets", "--format", "$(FILENAME)"]
    assert f"Dir::Etc::SourceList={_SOURCE}" in lists
    trying = ["apt-get", *removal_work.WITHOUT_SOURCES, "--simulate", "--allow-change-held-packages", "purge"]
    assert trial == [*trying, "libcuda1", "gdisk", "fio"]
    assert (ask["there"], ask["rpms"]) == ([_MARK, _UNFINISHED], [])


def test_settings_that_lay_there_before_their_package_came_are_not_purged() -> None:
    facts = nodes.bare(history={"drivers": [], "failed": [], "settings": ["fio", "kept"]})
    gone = goes(wanted(), facts=facts)
    assert gone["packages"] == ["libcuda1", "gdisk", "fio"]
    assert (gone["removed"], gone["purged"]) == (["fio"], ["libcuda1", "gdisk"])


@pytest.mark.parametrize(("manager", "given"), [("apt", {}), ("dnf", {"untried": "the rpmdb is broken"})])
def test_a_removal_that_the_package_manager_does_not_try_is_refused(manager: str, given: Any) -> None:
    facts = nodes.bare(packages={"manager": manager})
    with pytest.raises(StepRefused, match=given.get("untried", "apt-get: it ended with None")):
        goes(wanted(), ("purge", None), facts=facts, **given)


def test_what_apt_said_is_told_where_it_does_not_try() -> None:
    facts = nodes.bare()
    found = answers(asked(wanted(), facts), ("purge", None))
    found[-1] = {**found[-1], "rc": 100, "error": "E: Conflicting values set for option Trusted"}
    with pytest.raises(StepRefused, match=r"apt-get: E: Conflicting values set for option Trusted\. Nothing was"):
        goes(wanted(), facts=facts, answers=found)


def test_nothing_goes_where_nobody_says_what_an_engine_needs_that_stays() -> None:
    facts = engine(active=False)
    with pytest.raises(StepRefused, match=r"Found no answer for Docker \(it ended with None\). Nothing was removed"):
        goes(wanted(packages=["docker.io", "containerd"]), ("apt-cache", None), facts=facts)


def test_the_role_removes_without_package_sources_as_the_trial_does() -> None:
    """One that cannot be read, as that of NVIDIA's that somebody wrote beside ours, stops no removal."""
    words = yaml.safe_load((floors.ROOT / "roles/remove/vars/main.yml").read_text())["__remove_apt"]
    given = "\0".join(words)
    assert "\0".join(removal_work.WITHOUT_SOURCES) in given
    assert "--allow-change-held-packages" in words


def test_dpkg_removes_and_finishes_the_rest_where_a_transaction_of_apt_was_cut_off() -> None:
    facts = nodes.bare(packages={"interrupted": True, "interrupted_detail": "dpkg has 8 unfinished steps"})
    ask = asked(wanted(), facts)
    assert ask["commands"] == [[*_DPKG_TRIES, "libcuda1", "gdisk", "fio"]]
    assert goes(wanted(), facts=facts)["half_done"] is True
    found = [{"item": ask["commands"][0], "rc": 1, "stdout_lines": [], "error": "company-vpn depends on libcuda1"}]
    with pytest.raises(StepRefused, match="dpkg: company-vpn depends on libcuda1"):
        goes(wanted(), facts=facts, answers=found)


def test_what_was_tried_before_a_transaction_was_cut_off_says_nothing() -> None:
    now = nodes.bare(packages={"interrupted": True, "interrupted_detail": "x"})
    with pytest.raises(StepRefused, match="What to do: run again"):
        goes(wanted(), facts=now, answers=answers(asked(wanted())))


def test_rpm_leaves_nothing_that_is_in_the_way() -> None:
    facts = dnf(packages={"interrupted": True, "interrupted_detail": "two versions"})
    assert goes(wanted(), facts=facts)["half_done"] is False


def test_without_packages_no_removal_is_tried() -> None:
    assert asked(wanted(packages=[]))["commands"] == []
    assert asked(wanted(packages=["gpg-pubkey-1"]), dnf())["rpms"] == []


def test_dnf_tries_the_removal_without_the_keys_and_its_list_of_locks_is_looked_for() -> None:
    ask = asked(wanted(packages=["nvidia-driver", "gpg-pubkey-d42d0685-62589a51"], files=[_REPO]), dnf())
    assert ask == {"commands": [], "there": ["/etc/dnf/plugins/versionlock.list"], "rpms": ["nvidia-driver"]}


@pytest.mark.parametrize(
    ("packages", "active", "programs"),
    [
        (["docker.io"], True, {"docker", "apt-cache"}),
        (["docker-ce"], True, {"docker", "apt-cache"}),
        (["docker.io", "containerd"], True, {"docker", "ctr", "apt-cache"}),
        (["podman"], None, {"podman", "apt-cache"}),
        (["dkms"], None, {"dkms", "apt-cache"}),
        # To ask one that is stopped could start it; it is not known then what it holds.
        (["docker.io"], False, {"apt-cache"}),
        (["docker.io"], None, {"apt-cache"}),
        (["fio"], True, set()),
    ],
)
def test_an_engine_is_asked_where_it_runs_and_would_go(
    packages: list[str], active: bool | None, programs: set[str]
) -> None:
    ask = asked(wanted(packages=packages), engine(active=active))
    assert {argv[0] for argv in ask["commands"]} - {"apt-get"} == programs


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [_MARK, _UNFINISHED])
def test_an_environment_with_one_of_our_marks_goes(mark: str) -> None:
    found = goes(wanted(environments=[_TORCH, "/opt/gpuwright/jax"]), paths=[mark, "/opt/gpuwright/.jax.unfinished"])
    assert found["environments"] == [_TORCH, "/opt/gpuwright/jax"]


def test_an_environment_without_a_mark_is_nobody_knows_whose() -> None:
    with pytest.raises(StepRefused, match=r"gpuwright-constraints.txt\) in /data/jax\. Nothing was removed") as error:
        goes(wanted(environments=[_TORCH, "/data/jax"]), paths=[_MARK])
    assert "What to do: remove that directory by hand" in str(error.value)


def test_others_that_apt_would_remove_besides_stop_the_removal() -> None:
    lines = [
        "Reading package lists...",
        "Purg fio [3.39-1]",
        "Purg libcuda1 [580]",
        "Remv blender:amd64 [4.3]",
        "Remv x [1]",
    ]
    with pytest.raises(StepRefused) as error:
        goes(wanted(), ("purge", lines), also=["x"])
    assert str(error.value) == (
        "Expected to remove only the 3 packages that came with gpuwright. Found others that need them: blender:amd64."
        " What to do: remove those first if you no longer need them, or name them in remove_also."
    )
    assert goes(wanted(), ("purge", lines), also=["x", "blender:amd64"])["packages"] == ["libcuda1", "gdisk", "fio"]


def test_others_that_dnf_would_remove_besides_stop_it_too() -> None:
    with pytest.raises(StepRefused, match="need them: somebody-elses"):
        goes(wanted(), facts=dnf(), others=["somebody-elses"])
    assert goes(wanted(), facts=dnf(), others=["x"], also=["x"])["also"] == ["libcuda1", "gdisk", "fio", "x"]


# --- an engine that is in use, or may be ------------------------------------------------------------------------------

_ENGINE = wanted(packages=["docker.io", "docker-cli", "containerd", "libcuda1"])
_NEEDS = ["docker.io", "  Depends: containerd", "containerd", "libc6:amd64", "<virtual>"]
#: An engine without builds, as `docker system df` says it.
_NO_BUILDS = [
    "TYPE            TOTAL     ACTIVE    SIZE      RECLAIMABLE",
    "Images          0         0         0B        0B",
    "Containers      0         0         0B        0B",
    "Local Volumes   0         0         0B        0B",
    "Build Cache     0         0         0B        0B",
]
_EMPTY = [("df", _NO_BUILDS), ("depends", _NEEDS)]


@pytest.mark.parametrize("kind", _HOLDINGS)
def test_an_engine_with_something_in_it_stays_with_all_that_it_needs(kind: str) -> None:
    rules = [(kind, ["a", "b"]), *_EMPTY, ("purge", ["Purg compose [1]"])]
    first = goes(_ENGINE, *rules, facts=engine())
    assert first["again"]
    assert "2 " in first["told"][0]
    assert first["kept"] == ["docker.io", "docker-cli", "containerd"]
    assert first["ask"]["commands"][-1][-2:] == ["purge", "libcuda1"]
    rest = [(kind, ["a"]), *_EMPTY]
    second = goes(
        _ENGINE, *rest, ("purge", ["Purg libcuda1 [580]"]), facts=engine(), ask=first["ask"], kept=first["kept"]
    )
    assert (second["again"], second["packages"], second["engine"], second["made"]) == (False, ["libcuda1"], False, [])
    with pytest.raises(StepRefused, match="only the 1 package"):
        goes(_ENGINE, *rules, facts=engine(), ask=first["ask"], kept=first["kept"])


@pytest.mark.parametrize("active", [False, None])
def test_an_engine_that_does_not_run_stays_because_nobody_knows_what_it_holds(active: bool | None) -> None:
    facts = engine(made=(_DOCKER, _CONTAINERD), active=active)
    first = goes(_ENGINE, *_EMPTY, facts=facts)
    assert first["kept"] == ["docker.io", "docker-cli", "containerd"]
    assert "systemctl start docker" in first["told"][0]
    assert "docker system prune --all --volumes" in first["told"][0]
    second = goes(_ENGINE, *_EMPTY, facts=facts, ask=first["ask"], kept=first["kept"], paths=[_DOCKER, _CONTAINERD])
    assert (second["packages"], second["made"], second["removed"]) == (["libcuda1"], [], [])


@pytest.mark.parametrize("silent", [*_HOLDINGS, "df"])
def test_an_engine_that_does_not_say_what_it_holds_stays(silent: str) -> None:
    first = goes(_ENGINE, (silent, None), *_EMPTY, facts=engine(made=(_DOCKER, _CONTAINERD)))
    assert first["kept"] == ["docker.io", "docker-cli", "containerd"]
    assert "it does not say which" in first["told"][0]


def test_builds_that_docker_keeps_are_what_it_holds() -> None:
    builds = [*_NO_BUILDS[:-1], "Build Cache     3         0         1.2GB     1.2GB"]
    first = goes(_ENGINE, ("df", builds), *_EMPTY, facts=engine())
    assert "1 builds" in first["told"][0]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([("namespaces", ["moby", "k8s.io"])], "1 namespaces"),
        ([("namespaces", ["default"])], "1 namespaces"),
        ([("moby", ["sha256:1"])], "in the namespace moby"),
        ([("namespaces", None)], "it does not say which namespaces"),
    ],
)
def test_containerd_with_something_of_somebody_else_in_it_stays_with_its_data(rules: Any, told: str) -> None:
    facts = engine(made=(_DOCKER, _CONTAINERD))
    rules = [*rules, ("depends", ["containerd", "  Depends: runc", "runc"]), *_EMPTY]
    first = goes(_ENGINE, *rules, facts=facts)
    assert first["kept"] == ["containerd"]
    assert told in first["told"][0]
    second = goes(_ENGINE, *rules, facts=facts, ask=first["ask"], kept=first["kept"], paths=[_DOCKER, _CONTAINERD])
    assert second["packages"] == ["docker.io", "docker-cli", "libcuda1"]
    assert second["made"] == [_DOCKER]


def test_the_data_of_a_containerd_that_was_there_before_docker_stay() -> None:
    remove = wanted(packages=["docker.io", "docker-cli"])
    found = goes(remove, *_EMPTY, facts=engine(made=(_DOCKER,)), paths=[_DOCKER, _CONTAINERD])
    assert (found["packages"], found["made"]) == (["docker.io", "docker-cli"], [_DOCKER])


def test_data_that_no_record_says_were_made_here_stay_although_the_engine_is_empty() -> None:
    found = goes(_ENGINE, *_EMPTY, facts=engine(), paths=[_DOCKER, _CONTAINERD])
    assert (found["made"], found["removed"]) == ([], ["docker.io"])
    assert [text.partition(" ")[0] for text in found["told"]] == [_DOCKER, _CONTAINERD]
    assert f"rm -r {_DOCKER}" in found["told"][0]


def test_an_engine_of_dockers_own_repository_stays_with_all_that_rpm_needs_for_it() -> None:
    names = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "container-selinux"]
    facts = nodes.merged(engine(), {"packages": {"manager": "dnf"}})
    needs = ["containerd.io", "container-selinux"]
    first = goes(
        wanted(packages=[*names, "nvidia-driver"]), ("ps", ["a"]), ("df", _NO_BUILDS), ("repoquery", needs), facts=facts
    )
    assert first["kept"] == names
    assert first["ask"]["rpms"] == ["nvidia-driver"]
    assert "dnf remove docker-ce" in first["told"][0]


def test_an_engine_that_is_all_that_would_go_leaves_nothing_to_try() -> None:
    remove = wanted(packages=["docker.io"])
    first = goes(remove, ("ps", ["a"]), *_EMPTY, facts=engine())
    assert not any("purge" in argv for argv in first["ask"]["commands"])
    assert goes(remove, ("ps", ["a"]), facts=engine(), ask=first["ask"], kept=first["kept"])["packages"] == []


def test_an_engine_that_holds_nothing_goes_with_its_group_and_what_it_made() -> None:
    rules = [("namespaces", ["moby"]), *_EMPTY]
    found = goes(_ENGINE, *rules, facts=engine(made=(_DOCKER, _CONTAINERD)), paths=[_DOCKER, _CONTAINERD])
    assert (found["again"], found["engine"], found["removed"]) == (False, True, [])
    assert found["made"] == [_DOCKER, _CONTAINERD]
    assert found["docker"]["restart"] is False


@pytest.mark.parametrize(
    ("status", "stays"),
    [
        (["nvidia/580.95.05, 6.12.94, x86_64: installed", "nvidia-current/550.163.01: added"], False),
        (["nvidia, 580.95.05, 5.15.0, x86_64: installed", "nvidia-srv/580.95.05: added"], False),
        (["nvidia/580.95.05, 6.12.94, x86_64: installed", "zfs/2.2.2, 6.12.94, x86_64: installed"], True),
        (["nvidia-fs/2.17.5: added"], True),
        (None, True),
    ],
)
def test_dkms_stays_where_it_has_modules_of_others(status: Any, stays: bool) -> None:
    found = goes(wanted(packages=["dkms", "fio"]), ("status", status), ("depends", ["dkms", "make"]))
    assert found["again"] is stays
    assert (found["kept"] == ["dkms"]) is stays


def test_dkms_that_stays_keeps_the_headers_that_it_compiles_with() -> None:
    """EPEL's dkms needs "kernel-devel-matched if kernel-core": without them dnf would remove the kernel."""
    headers = ["kernel-devel-5.14.0-611.el9.x86_64", "kernel-devel-matched-5.14.0-611.el9.x86_64"]
    going = wanted(packages=["dkms", *headers, "kernel-tools", "fio"])
    found = goes(going, ("status", ["mine/1.0, 5.14.0-611.el9.x86_64, x86_64: installed"]))
    assert found["kept"] == ["dkms", *headers]


def test_of_what_dkms_has_only_failed_builds_of_drivers_that_were_tried_here_go_and_no_key() -> None:
    key, tried = "/var/lib/dkms/mok.pub", {"version": "580.1", "modules": "open", "kernel": "6.1", "source": "nvidia"}
    builds = [
        {"module": "nvidia", "version": each, "log": f"/var/lib/dkms/nvidia/{each}/build/make.log"}
        for each in ("580.1", "470.1")
    ]
    facts = nodes.bare(history={"drivers": [], "failed": [tried]}, dkms={"failed": builds})
    found = goes(wanted(packages=["dkms"]), facts=facts, paths=[key])
    assert found["made"] == ["/var/lib/dkms/nvidia/580.1"]
    assert f"mokutil --delete {key}" in found["told"][0]


# --- what a purge would delete ----------------------------------------------------------------------------------------

_EXPORTERS = "/var/lib/prometheus/node-exporter"


@pytest.mark.parametrize(
    ("there", "lines", "removed"),
    [(True, [f"{_EXPORTERS}/users.prom"], True), (True, None, True), (True, [], False), (False, None, False)],
)
def test_a_package_whose_purge_would_delete_data_is_only_removed(there: bool, lines: Any, removed: bool) -> None:
    name = "prometheus-node-exporter"
    found = goes(wanted(packages=[name, "fio"]), ("find", lines), paths=[_EXPORTERS] if there else [])
    assert found["packages"] == [name, "fio"]
    assert (found["removed"], found["purged"]) == (([name], ["fio"]) if removed else ([], [name, "fio"]))
    assert any(f"apt-get purge {name}" in text for text in found["told"]) is removed


def test_a_file_of_ours_among_them_is_no_data() -> None:
    ask = asked(wanted(packages=["prometheus-node-exporter"], files=[f"{_EXPORTERS}/gpuwright.prom"]))
    (search,) = [argv for argv in ask["commands"] if argv[0] == "find"]
    assert search[-5:] == ["!", "-path", f"{_EXPORTERS}/gpuwright.prom", "-print", "-quit"]


# --- the driver and the packages --------------------------------------------------------------------------------------


DEFAULT = {"role": "gpuwright.node.gpu_settings", "tasks": "default"}
WHOLE = {"role": "gpuwright.node.mig", "tasks": "whole"}


@pytest.mark.parametrize(
    ("remove", "changes", "parts"),
    [
        ({}, [], (False, [], False, False)),
        ({}, [{"component": "mig"}, {"component": "files"}], (True, [WHOLE], False, False)),
        ({}, [{"component": "gpu_settings"}, {"component": "mig"}], (True, [DEFAULT, WHOLE], False, False)),
        ({"restore": {"version": "580"}}, [], (True, [], True, False)),
        ({"runfile": True}, [], (True, [], False, True)),
    ],
)
def test_what_is_to_be_done_with_cards_and_driver(remove: dict[str, Any], changes: Any, parts: Any) -> None:
    found = goes(wanted(**remove), changes={"changes": changes})
    assert tuple(found[name] for name in ("driver", "by_role", "restore", "runfile")) == parts


@pytest.mark.parametrize(
    "name", [name for name, component in COMPONENTS.items() if component.take_back or component.undo]
)
def test_what_its_role_takes_back_is_tasks_of_that_role(name: str) -> None:
    component = COMPONENTS[name]
    assert component.take_back
    assert (floors.ROOT / "roles" / name / "tasks" / f"{component.undo}.yml").is_file()


def test_only_units_that_are_there_and_not_masked_are_switched_off() -> None:
    enabled = {"a.service": "enabled", "b.service": "not-found", "c.service": "masked", "d.service": None}
    enabled |= {"docker.service": "enabled", "e.path": "static"}
    facts = nodes.bare(services={name: {"active": "active", "enabled": state} for name, state in enabled.items()})
    found = goes(wanted(services=[*enabled, "e.path", "never-looked-at.service"]), facts=facts)
    assert found["units"] == ["a.service", "e.path"]


def test_streams_go_back_and_of_those_that_nobody_had_enabled_nothing_is_kept() -> None:
    found = goes(wanted(streams={"nvidia-driver": "", "other": "575-open"}), facts=dnf())
    assert found["streams"] == {"other": "575-open"}
    assert found["stream_files"] == ["nvidia-driver.module", "nvidia-driver:*"]


def test_where_the_packages_went_with_a_run_that_was_cut_off_the_rest_of_theirs_goes_too() -> None:
    gone = wanted(packages=[])
    assert not goes(gone, facts=dnf())["of_packages"]
    assert goes(wanted(packages=[], streams={"nvidia-driver": ""}), facts=dnf())["of_packages"]
    assert goes(gone, facts=dnf(), paths=["/etc/dnf/plugins/versionlock.list"])["of_packages"]
    unit = nodes.merged(dnf(), {"services": {"a.service": {"active": "active", "enabled": "enabled"}}})
    assert goes(wanted(packages=[], services=["a.service"]), facts=unit)["of_packages"]


def test_keys_are_packages_to_rpm_alone_and_the_locks_go_first_where_there_is_a_list() -> None:
    remove = wanted(packages=["nvidia-driver", "gpg-pubkey-d42d0685-62589a51", "fio"])
    found = goes(remove, facts=dnf(), paths=["/etc/dnf/plugins/versionlock.list"])
    assert found["packages"] == remove["packages"]
    assert (found["also"], found["rpm_keys"]) == (["nvidia-driver", "fio"], ["gpg-pubkey-d42d0685-62589a51"])
    assert (found["locks"], found["made"]) == (True, [])
    assert goes(remove, facts=dnf())["locks"] is False


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_lists_and_the_passwords_of_a_source_go_with_it() -> None:
    name = "/var/lib/apt/lists/repo_x"
    lines = [f"{name}_Packages", f"{name}_Packages.lz4", f"{name}_Translation-en"]
    found = goes(wanted(files=[_SOURCE, "/etc/gpuwright/mig.json"]), ("indextargets", lines))
    assert found["absent"] == [
        *(f"{name}_{kind}" for kind in ("Packages", "InRelease", "Release", "Release.gpg")),
        *(_SOURCE, "/etc/gpuwright/mig.json", "/etc/apt/auth.conf.d/gpuwright-nvidia-cuda.conf"),
    ]
    assert (found["reload"], found["menu"], found["hooks"], found["caches"]) == (False, False, [], [])


def test_what_dnf_has_of_a_source_goes_with_it() -> None:
    found = goes(wanted(files=[_REPO]), facts=dnf())
    variables = [f"/etc/dnf/vars/gpuwright_nvidia_cuda_{which}" for which in ("login", "password")]
    assert (found["absent"], found["caches"]) == ([_REPO, *variables], ["gpuwright-nvidia-cuda*"])


def test_files_that_others_read_are_followed_by_what_makes_them_read_again() -> None:
    hooks = ["/etc/kernel/postinst.d/zz-gpuwright", "/etc/kernel/install.d/95-gpuwright.install"]
    others = ["/etc/kernel/postrm.d/zz-gpuwright", "/etc/systemd/system/gpuwright-mig.service"]
    found = goes(wanted(files=[*hooks, *others, "/etc/default/grub.d/gpuwright.cfg"]))
    assert (found["hooks"], found["reload"], found["menu"]) == (hooks, True, True)


_BACKUP, _KEPT = "/var/lib/gpuwright/backup", "/var/backups/gpuwright"
_LISTS = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/cuda.list", "/etc/yum.repos.d/cuda.repo"]


def aside(now: str, *places: str) -> list[dict[str, str]]:
    return [{"path": _BACKUP + place, "now": now} for place in places]


def test_only_what_the_role_repositories_puts_aside_is_put_back() -> None:
    theirs = ["/etc/passwd", "/etc/apt/sources.list.d/x/y", "/etc/apt/sources_list"]
    found = goes(wanted(), aside=aside("absent", *_LISTS, *theirs))
    assert found["put_back"] == [{"src": _BACKUP + path, "dest": path} for path in _LISTS]
    assert [each["dest"] for each in found["keep"]] == [f"{_KEPT}/before{path}" for path in theirs]


@pytest.mark.parametrize("now", ["other", "same", None])
def test_a_file_that_is_there_today_is_not_written_over(now: Any) -> None:
    rows = aside(now, *_LISTS) if now else [{"path": _BACKUP + path} for path in _LISTS]
    found = goes(wanted(), aside=rows)
    assert (found["put_back"], found["unmark"]) == ([], [])
    kept = [] if now == "same" else _LISTS
    assert found["keep"] == [{"src": _BACKUP + path, "dest": f"{_KEPT}/before{path}"} for path in kept]
    assert [text.partition(" ")[0] for text in found["told"]] == kept


def test_what_we_left_of_a_file_gets_its_lines_again() -> None:
    found = goes(wanted(), aside=aside("left", *_LISTS))
    assert (found["unmark"], found["put_back"], found["keep"], found["told"]) == (_LISTS, [], [], [])


def test_the_role_takes_out_what_is_put_before_such_a_line() -> None:
    variables = yaml.safe_load((floors.ROOT / "roles/remove/vars/main.yml").read_text())
    content = f"{sources.DISABLED}deb http://a x main\n"
    assert re.sub(variables["__remove_mark"], "", content) == "deb http://a x main\n"


def test_a_file_that_was_changed_since_is_rid_of_our_marks_and_both_copies_are_kept() -> None:
    path = _LISTS[0]
    found = goes(wanted(), aside=aside("marked", path))
    assert (found["unmark"], found["put_back"]) == ([path], [])
    assert found["keep"] == [
        {"src": _BACKUP + path, "dest": f"{_KEPT}/before{path}"}, {"src": path, "dest": f"{_KEPT}/today{path}"},
    ]  # fmt: skip
    assert found["keep_directories"] == [
        _KEPT, f"{_KEPT}/before", f"{_KEPT}/before/etc", f"{_KEPT}/before/etc/apt",
        f"{_KEPT}/today", f"{_KEPT}/today/etc", f"{_KEPT}/today/etc/apt",
    ]  # fmt: skip


def test_an_older_copy_of_a_file_is_kept_and_never_put_back() -> None:
    older = "/etc/apt/sources.list.d/cuda.list.4711.2026-11-01@10:00:00~"
    found = goes(wanted(), aside=aside("absent", older))
    assert (found["put_back"], found["told"]) == ([], [])
    assert found["keep"] == [{"src": _BACKUP + older, "dest": f"{_KEPT}/before{older}"}]


def test_the_configuration_of_docker_that_its_own_tasks_put_back_is_kept_nowhere_else() -> None:
    place = "/etc/docker/daemon.json"
    added = {"put": {}, "had": {}, "original": "file"}
    assert goes(wanted(), facts=engine(added=added), aside=aside("other", place))["keep"] == []
    assert len(goes(wanted(), facts=engine(), aside=aside("other", place))["keep"]) == 1


@pytest.mark.parametrize(
    ("initramfs", "argv"),
    [
        ({"tool": "update-initramfs"}, ["update-initramfs", "-u", "-k", "6.12.94+deb13-amd64"]),
        ({"tool": "dracut", "path": "/i"}, ["dracut", "--force", "--kver", "6.12.94+deb13-amd64", "/i"]),
        ({"tool": "dracut", "path": None}, ["dracut", "--force", "--kver", "6.12.94+deb13-amd64"]),
        ({"tool": None}, []),
    ],
)
def test_the_initramfs_is_made_again_by_what_made_it(initramfs: dict[str, Any], argv: list[str]) -> None:
    facts = nodes.bare(kernel={"initramfs": initramfs})
    assert goes(wanted(initramfs=True), facts=facts)["rebuild"] == argv
    assert goes(wanted(), facts=facts)["rebuild"] == []


# --- docker's configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "left"),
    [
        ({"runtimes": {"nvidia": {"path": "x"}}}, None),
        ({"runtimes": {"nvidia": {}}, "default-runtime": "nvidia"}, None),
        ({"runtimes": {"nvidia": {}, "own": {}}, "b": 1}, {"b": 1, "runtimes": {"own": {}}}),
        ({"default-runtime": "own", "runtimes": {"own": {}}}, {"default-runtime": "own", "runtimes": {"own": {}}}),
        ({"runtimes": ["own"]}, {"runtimes": ["own"]}),
        ({"default-runtime": "nvidia", "runtimes": None}, {"runtimes": None}),
        ({}, None),
        (None, None),
    ],
)
def test_the_runtime_is_taken_out_of_the_configuration(there: Any, left: Any) -> None:
    facts = engine()
    facts["containers"]["docker"]["daemon_json"] = there
    found = goes(wanted(), facts=facts)["docker"]
    if left is None:
        assert (found["files"], found["absent"]) == ([], ["/etc/docker/daemon.json"])
        return
    assert found["files"] == [{"path": "/etc/docker/daemon.json", "content": json.dumps(left, indent=4) + "\n"}]
    assert found["absent"] == []


def test_a_configuration_that_cannot_be_read_stays_as_it_is() -> None:
    found = goes(wanted(), facts=engine(daemon_json_error="no JSON"))["docker"]
    assert (found["files"], found["absent"]) == ([], [])


@pytest.mark.parametrize("unseen", ["daemon_json", "added"])
def test_a_configuration_that_nobody_could_see_stays_as_it_is(unseen: str) -> None:
    facts = engine(daemon_json=None)
    facts["unknown"] = {f"containers.docker.{unseen}": "permission denied"}
    found = goes(wanted(), facts=facts)["docker"]
    assert (found["files"], found["absent"]) == ([], [])


@pytest.mark.parametrize(
    ("packages", "active", "restart"),
    [(["fio"], True, True), (["fio"], False, False), (["fio"], None, False), (["docker.io"], True, False)],
)
def test_an_engine_that_stays_and_runs_is_to_read_it(packages: list[str], active: bool | None, restart: bool) -> None:
    found = goes(wanted(packages=packages), facts=engine(active=active))["docker"]
    assert found["restart"] is restart


@pytest.mark.parametrize(
    "running",
    [
        {"working": [{"engine": "docker", "what": "docker build (pid 9)"}]},
        {"containers": [{"engine": "docker", "id": "0123456789ab", "comes_back": True}]},
        {"unread": "the open files of 3 processes could not be read"},
    ],
)
def test_an_engine_in_use_reads_it_when_its_owner_restarts_it(running: dict[str, Any]) -> None:
    facts = engine()
    idle = goes(wanted(), facts=facts)
    assert (idle["docker"]["may"], idle["containerd"]["may"]) == (True, True)
    facts["in_use"] |= running
    busy = goes(wanted(), facts=facts)
    assert (busy["docker"]["may"], busy["containerd"]["may"]) == (False, False)
    assert "Expected nothing to run in Docker" in busy["docker"]["why"]
