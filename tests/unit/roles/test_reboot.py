"""What the role `reboot` decides before the boot and after it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.reboot import apply as reboot
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import resume
from tests.unit.plan import nodes

_KERNEL = "6.12.94+deb13-amd64"
_OLDER = "6.12.90+deb13-amd64"
_STACK: Any = {"driver": {"modules": "open", "build": "dkms", "adopted": False}}
_PREPARED = {
    "command": ["/usr/bin/python3.13", "-IS", "/var/lib/gpuwright/resume/program/gpuwright", "up"],
    "program": {"package": "/p", "interpreter": "/usr/bin/python3.13", "directory": "/d"},
    "files": {"wish.json": {"driver": "580"}},
    "environment": {"PATH": "/usr/bin"},
}


def module(version: str = nodes.DRIVER, licence: str = "Dual MIT/GPL") -> dict[str, Any]:
    return {"version": version, "license": licence, "signer": None, "name": "nvidia", "path": "/m"}


def node(**changes: Any) -> Any:
    """A node whose driver is installed and built, while nouveau has the cards."""
    kernel = {"available": {"nvidia": module()}, "may_boot": {_KERNEL: module()}}
    return nodes.merged(nodes.bare(kernel=kernel, driver={"user_version": nodes.DRIVER}), changes)


def loaded(version: str | None, *others: str) -> dict[str, Any]:
    """What runs in the kernel, in place of nouveau."""
    return {name: {"version": None} for name in others} | ({} if version is None else {"nvidia": {"version": version}})


def running(facts: Any, modules: dict[str, Any]) -> Any:
    facts["kernel"]["loaded"] = modules
    return facts


def given(**changes: Any) -> dict[str, Any]:
    return {"allowed": True, "no_reboot": False, "local": False, "check": False, "resume": {}, **changes}


def plan(given: dict[str, Any], **changes: Any) -> Any:
    return {"given": given, "remove": None, "brings": None, "rescue": [], "allow_busy": False, **changes}


def boot(facts: Any, context: dict[str, Any] | None = None, said: dict[str, Any] | None = None, **plans: Any) -> Any:
    seen = replace(Context(facts=facts, stack=_STACK), **(context or {}))
    return reboot.boot(seen, plan(given(**(said or {})), **plans))


def test_a_node_whose_cards_another_driver_has_is_booted_after_modprobe_was_asked() -> None:
    found = boot(node())
    assert (found["needed"], found["next"], found["boot"]) == (True, "boot", "boot-1")
    assert found["reason"] == "nouveau still has the cards"
    assert found["ask"][3:] == ["sh", _KERNEL, "nvidia"]
    assert found["resume"] == {}


@pytest.mark.parametrize(
    "running",
    [
        {"holders": [{"pid": 7, "name": "python3", "devices": ["nvidia0"]}]},
        {"unread": "the open files of 3 processes could not be read"},
    ],
)
def test_what_began_since_the_plan_was_made_is_not_ended_by_a_boot(running: dict[str, Any]) -> None:
    found = boot(node(in_use=running))
    assert (found["needed"], found["next"]) == (True, "left")
    assert "Expected an idle host, because it is rebooted" in found["reason"]
    assert boot(node(in_use=running), allow_busy=True)["next"] == "boot"


def test_lines_that_help_at_a_black_screen_are_shown_before_the_boot() -> None:
    assert boot(node(), rescue=["press e"])["next"] == "shown"


def test_a_node_that_runs_the_driver_that_is_installed_needs_none() -> None:
    found = boot(running(node(), loaded(nodes.DRIVER)))
    assert found == {"needed": False, "ask": [], "boot": "boot-1"}


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        (loaded("570.1"), f"driver 570.1 is loaded and {nodes.DRIVER} is installed"),
        (loaded(None), f"driver none is loaded and {nodes.DRIVER} is installed"),
        (loaded(nodes.DRIVER, "nova_core"), "nova_core still has the cards"),
        (loaded(None, "nova", "nova_drm"), "nova, nova_drm still has the cards"),
    ],
)
def test_why_it_is_needed_is_said(modules: dict[str, Any], reason: str) -> None:
    assert boot(running(node(), modules))["reason"] == reason


@pytest.mark.parametrize(
    ("context", "needed"),
    [
        ({"provision_only": True}, False),
        ({"cpu_only": True}, False),
        ({"stack": {}}, False),
        ({"stack": {"driver": None}}, False),
        ({"provision_only": True, "cards_missing": True}, True),
        ({"cpu_only": True, "cards_missing": True}, False),
    ],
)
def test_a_machine_that_needs_no_driver_in_its_kernel_is_not_booted(context: dict[str, Any], needed: bool) -> None:
    assert boot(node(), context)["needed"] is needed


def test_where_the_cards_are_missing_the_kernel_that_has_the_module_is_booted() -> None:
    missing = {"provision_only": True, "cards_missing": True}
    facts = running(node(), loaded(None))
    assert boot(facts, missing)["needed"] is False
    facts["kernel"]["running"] = _OLDER
    assert boot(facts, missing)["needed"] is True


# --- who may boot -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"allowed": False}, {"no_reboot": True}, {"local": True}])
def test_a_boot_that_is_not_allowed_is_left_to_the_user(said: dict[str, Any]) -> None:
    found = boot(node(), said=said, rescue=["press e"])
    assert (found["needed"], found["next"], found["resume"]) == (True, "left", {})
    assert found["ask"]


def test_a_key_that_waits_to_be_enrolled_needs_somebody_at_the_console() -> None:
    facts = node(boot={"secure_boot": True, "signing_key": {"path": "/k", "state": "pending"}})
    found = boot(facts)
    assert found["next"] == "left"
    assert "Enroll MOK" in found["reason"]
    assert boot(running(node(boot=facts["boot"]), loaded("570.1")))["next"] == "boot"
    assert boot(facts, {"stack": {"driver": {**_STACK["driver"], "build": "signed"}}})["next"] == "boot"
    assert boot(node(boot={"signing_key": {"path": "/k", "state": "enrolled"}}))["next"] == "boot"


def test_on_the_machine_one_sits_at_what_the_command_line_prepared_goes_on_after_the_boot() -> None:
    found = boot(node(), said={"local": True, "resume": _PREPARED})["resume"]
    assert found["program"] == _PREPARED["program"]
    assert [each["path"] for each in found["documents"]] == ["/var/lib/gpuwright/resume/wish.json"]
    assert found["words"]["program"] == "/usr/bin/python3.13"
    assert found["words"]["exports"] == "export PATH=/usr/bin"


@pytest.mark.parametrize(
    ("variables", "prepared"),
    [
        ({"gpuwright_local": True, "gpuwright_resume": _PREPARED}, True),
        ({"gpuwright_local": True, "gpuwright_resume": {"refused": "x"}}, False),
        ({"gpuwright_local": True, "gpuwright_resume": _PREPARED, "gpuwright_no_reboot": True}, False),
        ({"gpuwright_resume": _PREPARED}, False),
        ({"gpuwright_local": True}, False),
    ],
)
def test_the_role_and_the_record_agree_on_who_goes_on(variables: dict[str, Any], prepared: bool) -> None:
    said = {name: variables.get(f"gpuwright_{name}", False) for name in ("local", "no_reboot")}
    found = boot(node(), said={**said, "allowed": False, "resume": variables.get("gpuwright_resume", {})})
    assert bool(found["resume"]) is prepared
    assert resume.resume(variables)["prepared"] is prepared


# --- the last look before the screen goes dark ------------------------------------------------------------------------


def refused(facts: Any, **context: Any) -> str:
    with pytest.raises(StepRefused) as error:
        boot(facts, context)
    assert str(error.value).startswith("Expected the ")
    assert "so the machine is not rebooted. Found: " in str(error.value)
    assert "What to do: run the role nvidia_driver again" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (None, f"kernel {_OLDER} has none"),
        (module("570.1"), f"kernel {_OLDER} has 570.1"),
        (module(licence="NVIDIA"), f"kernel {_OLDER} has the proprietary one"),
        ({**module(), "license": None}, f"kernel {_OLDER} has the proprietary one"),
    ],
)
def test_every_kernel_that_may_boot_must_have_the_module(found: dict[str, Any] | None, fault: str) -> None:
    facts = node(kernel={"may_boot": {_OLDER: found}})
    text = refused(facts)
    assert fault in text
    assert f"the open NVIDIA module {nodes.DRIVER} for every kernel that may boot next ({_KERNEL}, {_OLDER})" in text


def test_a_module_that_is_not_open_is_right_where_that_is_wished_or_nothing_is() -> None:
    facts = node(kernel={"may_boot": {_KERNEL: module(licence="NVIDIA")}})
    for driver in ({"modules": "proprietary"}, {"modules": None}, {"modules": "open", "adopted": True}):
        assert boot(facts, {"stack": {"driver": {**_STACK["driver"], **driver}}})["next"] == "boot"
    assert "the open one" in refused(node(), stack={"driver": {**_STACK["driver"], "modules": "proprietary"}})


def test_where_nobody_knows_the_libraries_any_version_will_do() -> None:
    assert boot(node(driver={"user_version": None}, kernel={"may_boot": {_KERNEL: module("570.1")}}))["needed"]


def test_where_nobody_can_tell_which_kernel_boots_next_the_machine_is_not_rebooted() -> None:
    facts = node()
    facts["kernel"]["may_boot"] = {}
    assert "nobody can tell which kernel boots next" in refused(facts)


def test_in_check_mode_nothing_is_asked_and_nothing_refused() -> None:
    facts = node(kernel={"may_boot": {_KERNEL: None}})
    assert boot(facts, said={"check": True})["ask"] == []


def answer(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """What the question prints where modprobe is a script."""
    fake = tmp_path / "modprobe"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    facts = node(kernel={"may_boot": {_KERNEL: module(), _OLDER: {**module(), "name": "nvidia-current"}}})
    ask, shell = boot(facts)["ask"], shutil.which("sh")
    assert shell
    return subprocess.run(
        [shell, *ask[1:]], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=30
    )


def test_modprobe_is_asked_for_each_kernel_and_its_module(tmp_path: Path) -> None:
    said = answer(tmp_path, f'echo "$*" >>{tmp_path}/calls')
    assert (said.stdout, said.stderr) == ("", "")
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"--dry-run --set-version={_KERNEL} nvidia",
        f"--dry-run --set-version={_OLDER} nvidia-current",
    ]


def test_a_kernel_that_could_not_load_it_is_named_with_modprobes_words(tmp_path: Path) -> None:
    said = answer(tmp_path, f'case "$*" in *{_OLDER}*) echo "FATAL: Module drm not found" >&2; exit 1;; esac')
    assert said.stdout == f"modprobe cannot load it for kernel {_OLDER}: FATAL: Module drm not found\n"


@pytest.mark.parametrize(("planned", "another"), [(None, False), (_KERNEL, False), (_OLDER, True)])
def test_a_kernel_that_came_after_the_plan_is_no_fault_of_the_driver(planned: str | None, another: bool) -> None:
    facts = node(kernel={"next": _KERNEL})
    assert boot(facts, brings=planned and {"kernel": planned})["another_kernel"] is another
    tasks = yaml.safe_load((Path(__file__).parents[3] / "roles/reboot/tasks/decide.yml").read_text())
    first, second = tasks[-1]["rescue"]
    assert (first["when"], first["tags"]) == ("__reboot_work.another_kernel", ["reboot", "not_of_driver"])
    assert "tags" not in second


# --- after a removal --------------------------------------------------------------------------------------------------

_REMOVE: dict[str, Any] = {"remove": {"packages": []}}


def test_after_a_removal_a_module_without_its_packages_is_the_reason_and_no_module_is_demanded() -> None:
    facts = running(node(kernel={"may_boot": {_KERNEL: None}}), loaded(nodes.DRIVER))
    facts["kernel"]["available"] = {}
    found = boot(facts, {"stack": {}}, **_REMOVE)
    assert (found["next"], found["ask"]) == ("boot", [])
    assert found["reason"] == f"driver {nodes.DRIVER} stays in the kernel until the next boot"
    assert boot(running(facts, loaded(None, "nouveau")), {"stack": {}}, **_REMOVE)["needed"] is False


# --- after the boot ---------------------------------------------------------------------------------------------------


def booted(facts: Any, before: str = "boot-0") -> Any:
    seen = Context(facts=facts, stack=_STACK)
    return reboot.booted(seen, plan({"before": before, "wait": 180}))


def test_a_driver_that_is_loaded_ends_the_wait() -> None:
    assert booted(running(node(), loaded(nodes.DRIVER))) == {"needed": False}


def test_a_driver_that_is_not_loaded_is_told_with_its_reason() -> None:
    found = booted(node())
    assert found["needed"] is True
    assert found["msg"].startswith("Expected the driver to be loaded within 180 seconds after the boot. Found: nouveau")
    assert "What to do: read the kernel log" in found["msg"]


@pytest.mark.parametrize(("now", "words"), [("boot-1", "Found boot boot-1"), (None, "Found boot of unknown id")])
def test_the_same_boot_is_no_other(now: str | None, words: str) -> None:
    with pytest.raises(StepRefused, match=words):
        booted(running(node(boot={"id": now}), loaded(nodes.DRIVER)), before="boot-1")
