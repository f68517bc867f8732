"""What the role `remove` asks before the first change, and what goes by the node's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import COMPONENTS, Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal_work
from tests.unit.plan import nodes
from tests.unit.repo import floors

_TORCH = "/opt/gpuwright/pytorch"
_MARK, _UNFINISHED = f"{_TORCH}/gpuwright-constraints.txt", "/opt/gpuwright/.pytorch.unfinished"
_SOURCE = "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources"
_REPO = "/etc/yum.repos.d/gpuwright-nvidia-cuda.repo"
_HOLDINGS = ["ps", "image", "volume"]


def wanted(**changes: Any) -> dict[str, Any]:
    """What the plan takes back."""
    return {
        "packages": ["libcuda1", "dkms", "fio"],
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


def plan(remove: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"remove": remove, "changes": [], "restore": remove["restore"], **changes}


def dnf(**changes: Any) -> Any:
    return nodes.merged(nodes.bare(packages={"manager": "dnf"}), changes)


def engine(**changes: Any) -> Any:
    """A node whose Docker runs."""
    return nodes.merged(nodes.bare(), {"containers": {"docker": {"installed": True, "active": True, **changes}}})


def asked(remove: dict[str, Any], facts: Any = None) -> Any:
    return removal_work.begin(Context(facts=facts or nodes.bare(), stack={}), plan(remove))["ask"]


def answers(ask: Any, *rules: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Results of the commands: the lines of the first rule whose word is in one."""
    return [
        {"item": argv, "stdout_lines": next((lines for word, lines in rules if word in argv), [])}
        for argv in ask["commands"]
    ]


def goes(
    remove: dict[str, Any], *rules: tuple[str, list[str]], facts: Any = None, changes: Any = None, **given: Any
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
    assert trial == ["apt-get", "--simulate", "--allow-change-held-packages", "purge", "libcuda1", "dkms", "fio"]
    assert (ask["there"], ask["rpms"]) == ([_MARK, _UNFINISHED], [])


def test_settings_that_lay_there_before_their_package_came_are_not_purged() -> None:
    facts = nodes.bare(history={"drivers": [], "failed": [], "settings": ["fio", "kept"]})
    gone = goes(wanted(), facts=facts)
    assert gone["packages"] == ["libcuda1", "dkms", "fio"]
    assert gone["settings_stay"] == ["fio"]
    role = (Path(__file__).parents[3] / "roles/remove/tasks/packages_apt.yml").read_text()
    assert "__remove_work.packages | difference(__remove_work.settings_stay)" in role


def test_without_packages_no_removal_is_tried() -> None:
    assert asked(wanted(packages=[]))["commands"] == []
    assert asked(wanted(packages=["gpg-pubkey-1"]), dnf())["rpms"] == []


def test_dnf_tries_the_removal_without_the_keys_and_its_list_of_locks_is_looked_for() -> None:
    ask = asked(wanted(packages=["nvidia-driver", "gpg-pubkey-d42d0685-62589a51"], files=[_REPO]), dnf())
    assert ask == {"commands": [], "there": ["/etc/dnf/plugins/versionlock.list"], "rpms": ["nvidia-driver"]}


@pytest.mark.parametrize(
    ("packages", "active", "questions"),
    [
        (["docker.io"], True, 4),
        (["docker-ce"], True, 4),
        (["docker.io"], False, 0),
        (["docker.io"], None, 0),
        (["fio"], True, 0),
    ],
)
def test_an_engine_is_asked_where_it_runs_and_would_go(
    packages: list[str], active: bool | None, questions: int
) -> None:
    ask = asked(wanted(packages=packages), engine(active=active))
    assert len(ask["commands"]) == questions + 1


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
    assert goes(wanted(), ("purge", lines), also=["x", "blender:amd64"])["packages"] == ["libcuda1", "dkms", "fio"]


def test_others_that_dnf_would_remove_besides_stop_it_too() -> None:
    with pytest.raises(StepRefused, match="need them: somebody-elses"):
        goes(wanted(), facts=dnf(), others=["somebody-elses"])
    assert goes(wanted(), facts=dnf(), others=["x"], also=["x"])["also"] == ["libcuda1", "dkms", "fio", "x"]


# --- an engine that is in use -----------------------------------------------------------------------------------------

_ENGINE = wanted(packages=["docker.io", "docker-cli", "containerd", "libcuda1"])
_NEEDS = ["docker.io", "  Depends: containerd", "containerd", "libc6:amd64", "<virtual>"]


@pytest.mark.parametrize("kind", _HOLDINGS)
def test_an_engine_with_something_in_it_stays_with_all_that_it_needs(kind: str) -> None:
    rules = [(kind, ["a", "b"]), ("depends", _NEEDS), ("purge", ["Purg compose [1]"])]
    first = goes(_ENGINE, *rules, facts=engine())
    assert (first["again"], first["held"]) == (True, 2)
    assert first["kept"] == ["docker.io", "docker-cli", "containerd"]
    assert first["ask"]["commands"][-1][-2:] == ["purge", "libcuda1"]
    second = goes(
        _ENGINE, (kind, ["a"]), ("purge", ["Purg libcuda1 [580]"]), facts=engine(), ask=first["ask"], kept=first["kept"]
    )
    assert (second["again"], second["packages"], second["engine"], second["made"]) == (False, ["libcuda1"], False, [])
    with pytest.raises(StepRefused, match="only the 1 packages"):
        goes(_ENGINE, *rules[::2], facts=engine(), ask=first["ask"], kept=first["kept"])


def test_an_engine_of_dockers_own_repository_stays_with_all_that_rpm_needs_for_it() -> None:
    names = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "container-selinux"]
    facts = nodes.merged(engine(), {"packages": {"manager": "dnf"}})
    first = goes(
        wanted(packages=[*names, "nvidia-driver"]), ("ps", ["a"]), ("repoquery", ["container-selinux"]), facts=facts
    )
    assert first["kept"] == names
    assert first["ask"]["rpms"] == ["nvidia-driver"]


def test_an_engine_of_dockers_own_repository_goes_with_what_it_made() -> None:
    found = goes(wanted(packages=["docker-ce"]), facts=engine())
    assert found["made"] == ["/var/lib/docker", "/var/lib/containerd"]
    assert (found["engine"], found["docker"]["restart"]) == (True, False)


def test_an_engine_that_is_all_that_would_go_leaves_nothing_to_try() -> None:
    remove = wanted(packages=["docker.io"])
    first = goes(remove, ("ps", ["a"]), facts=engine())
    assert not any("purge" in argv for argv in first["ask"]["commands"])
    assert goes(remove, facts=engine(), ask=first["ask"], kept=first["kept"])["packages"] == []


def test_an_engine_that_holds_nothing_goes_with_its_group_and_what_it_made() -> None:
    found = goes(_ENGINE, ("depends", _NEEDS), facts=engine())
    assert (found["again"], found["engine"]) == (False, True)
    assert found["made"] == ["/var/lib/docker", "/var/lib/containerd"]


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


def test_keys_are_packages_to_rpm_alone_and_the_locks_go_first_where_there_is_a_list() -> None:
    remove = wanted(packages=["nvidia-driver", "gpg-pubkey-d42d0685-62589a51", "dkms"])
    found = goes(remove, facts=dnf(), paths=["/etc/dnf/plugins/versionlock.list"])
    assert found["packages"] == remove["packages"]
    assert (found["also"], found["rpm_keys"]) == (["nvidia-driver", "dkms"], ["gpg-pubkey-d42d0685-62589a51"])
    assert (found["locks"], found["made"]) == (True, ["/var/lib/dkms"])
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


def test_only_what_the_role_repositories_puts_aside_is_put_back() -> None:
    backup = "/var/lib/gpuwright/backup"
    ours = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/cuda.list", "/etc/yum.repos.d/cuda.repo"]
    theirs = ["/etc/passwd", "/etc/apt/sources.list.d/x/y", "/etc/apt/sources_list"]
    found = goes(wanted(), aside=[{"path": backup + path} for path in [*ours, *theirs]])
    assert found["put_back"] == [{"src": backup + path, "dest": path} for path in ours]


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


@pytest.mark.parametrize(
    ("packages", "active", "restart"),
    [(["fio"], True, True), (["fio"], False, False), (["fio"], None, False), (["docker.io"], True, False)],
)
def test_an_engine_that_stays_and_runs_is_to_read_it(packages: list[str], active: bool | None, restart: bool) -> None:
    found = goes(wanted(packages=packages), facts=engine(active=active))["docker"]
    assert found["restart"] is restart
