"""The variables that people set: of one type each, and what cannot be meant is refused for all hosts in one message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import node_session as look
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import VARIABLES

ROOT = Path(__file__).resolve().parents[3]


def refused(**variables: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        settings.refuse({"n1": variables})
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("gpuwright_serial", "abc", "a number of hosts, a share"),
        ("gpuwright_serial", ["1", "half"], "a number of hosts, a share"),
        ("gpuwright_serial", "150%", "a number of hosts, a share"),
        ("gpuwright_max_fail_percentage", "many", "a percentage from 0 to 100"),
        ("gpuwright_gpus_expected", "two", "a number of cards or their names, found 'two'"),
        ("gpuwright_gpus_expected", -1, "a number of cards or their names, found '-1'"),
        ("gpuwright_gpus_expected", True, "a number of cards or their names, found True"),
        ("gpuwright_proof_max_age", "a week", "a whole number from 0, found 'a week'"),
        ("gpuwright_proof_max_age", -5, "a whole number from 0, found -5"),
        ("gpuwright_command_timeout", 2.5, "a whole number from 1, found 2.5"),
        ("gpuwright_command_timeout", "0", "a whole number from 1, found '0'"),
        ("gpuwright_mirrors", "http://user:secret@mirror", "a mapping"),
        ("gpuwright_full", "perhaps", "true or false"),
        ("nvidia_driver_reboot", "maybe", "true or false"),
        ("nvidia_driver_branch", {"is": "580"}, "a text, found a mapping"),
        ("reboot_timeout", "10m", "a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_was_expected(name: str, value: Any, expected: str) -> None:
    message = refused(**{name: value}).message
    assert message.startswith(f"{name} has to be ")
    assert expected in message
    assert message.endswith("(n1)")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cuda_version", "cuda_versions"),
        ("nvidia_drivr_branch", "nvidia_driver_branch"),
        ("framework_wanted", "frameworks_wanted"),
        ("gpuwright_gpu_expected", "gpuwright_gpus_expected"),
        ("gpuwright_seriel", "gpuwright_serial"),
        ("gpuwrigth_serial", "gpuwright_serial"),
        ("GPUWRIGHT_SERIAL", "gpuwright_serial"),
        ("Gpuwright_Serial", "gpuwright_serial"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(name: str, near: str) -> None:
    assert settings.ours(name)
    error = refused(**{name: "12.8"})
    assert f"{name} is no variable of gpuwright" in error.message
    assert f"did you mean {near}?" in error.suggestions


@pytest.mark.parametrize(
    "name",
    ["cuda_home", "ansible_user", "reboot", "driver_version", "inventory_hostname", "__cuda_compat", "gpuwright_plan"],
)
def test_other_peoples_variables_and_our_own_plays_are_not_looked_at(name: str) -> None:
    assert not settings.ours(name)


def test_a_word_for_a_choice_names_the_near_one() -> None:
    error = refused(nvidia_driver_source="nvida")
    assert "one of auto, nvidia, distro" in error.message
    assert error.suggestions == ["did you mean nvidia?"]


def test_a_password_in_a_value_of_the_wrong_type_is_not_told() -> None:
    assert "secret" not in refused(nvidia_driver_branch=["https://me:secret@mirror"]).message
    assert "secret" not in refused(gpuwright_mirrors="https://me:secret@mirror").message


def test_what_is_right_is_not_refused() -> None:
    written = {
        "gpuwright_serial": [1, "3", "25%"],
        "gpuwright_max_fail_percentage": "10%",
        "gpuwright_gpus_expected": ["GeForce RTX 3090", "A100 80GB"],
        "gpuwright_full": "no",
        "gpuwright_lock": None,
        "cuda_cudnn": True,
        "nvidia_driver_branch": 580,
        "reboot_timeout": "60",
        "validate_fail": False,
    }
    settings.refuse({"n1": written, "n2": {"gpuwright_gpus_expected": "8", "gpuwright_serial": "100%"}})


def test_a_fleet_is_told_once_with_its_hosts() -> None:
    bad = {f"n{number}": {"cuda_versions": ["12.99"]} for number in range(1, 401)}
    with pytest.raises(BadInput) as caught:
        settings.refuse({**bad, "good": {}, "other": {"gpuwright_serial": "abc"}})
    message = caught.value.message
    assert message.count("no CUDA 12.99") == 1
    assert "(n1, n2, n3 and 397 more); gpuwright_serial has to be" in message
    assert message.endswith("found 'abc' (other)")
    with pytest.raises(BadInput, match=r"\(all 400 hosts\)"):
        settings.refuse(bad)


def test_what_a_wish_says_is_typed_too() -> None:
    assert (
        "nvidia_driver_peermem has to be true or false"
        in refused(gpuwright_wish={"nvidia_driver_peermem": "x"}).message
    )


def test_a_lock_speaks_alone_about_versions() -> None:
    settings.refuse({"n1": {"gpuwright_lock": "h100.lock.json", "cuda_versions": ["99"]}})


def test_a_boolean_that_was_written_as_text_is_what_it_says() -> None:
    """`-e gpuwright_full=false` is a text to Ansible, and a text that is not empty is true to Python."""
    assert settings.read({"gpuwright_full": "false", "gpuwright_retry": "yes", "gpuwright_proof_max_age": "60"}) == {
        "gpuwright_full": False,
        "gpuwright_retry": True,
        "gpuwright_proof_max_age": 60,
    }


def test_packages_that_may_go_are_named_one_by_one() -> None:
    assert settings.read({"gpuwright_allow_remove": "company-vpn, libfoo:i386"}) == {
        "gpuwright_allow_remove": ["company-vpn", "libfoo:i386"]
    }
    for wrong in ("*", ["company-*"], "--all", {"company-vpn": True}):
        with pytest.raises(BadInput, match="gpuwright_allow_remove has to be a list of names of packages"):
            settings.read({"gpuwright_allow_remove": wrong})


def test_a_roles_own_boolean_that_was_written_as_text_is_what_it_says_too() -> None:
    """Else `-e nvidia_driver_allow_kernel=false` lets another kernel come, and persistence cannot be switched off."""

    class Action:
        verb = None

        def variables(self, given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
            return {name: given[name] for name in names if name in given}

    given = {"nvidia_driver_persistence": "false", "nvidia_driver_allow_kernel": "no"}
    inputs = look.NodeSession(cast("Any", Action()), {"inventory_hostname": "n1", **given}).inputs()
    assert inputs["nvidia_driver"] == {"nvidia_driver_persistence": False, "nvidia_driver_allow_kernel": False}


def test_every_variable_that_something_reads_is_declared() -> None:
    assert {*VARIABLES, *look.RUN_VARIABLES} <= set(settings.declared())
    kinds = {row["type"] for row in settings.declared().values()}
    assert kinds <= set(settings._TYPES)


def test_what_the_plays_keep_is_what_they_set() -> None:
    kept = set()
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]:
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            given = [task.get("register"), *(task.get("ansible.builtin.set_fact") or {})]
            kept |= {name for name in given if str(name).startswith("gpuwright_")}
    assert kept == settings.KEPT


def tasks(node: Any) -> Any:
    if isinstance(node, list):
        for each in node:
            yield from tasks(each)
    elif isinstance(node, dict):
        yield node
        for key in ("tasks", "block", "rescue", "always"):
            yield from tasks(node.get(key) or [])


def test_the_page_has_each_variable_of_a_run() -> None:
    """Those beside that the options of the command line set, the wish's own page has, or a test alone needs."""
    text = (ROOT / "docs" / "ansible.md").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `(gpuwright_\w+)` \|", text, re.MULTILINE))
    of_the_command_line = {"day", "no_reboot", "provision_for", "resume", "root", "standalone", "verb", "want", "wish"}
    assert table == set(settings.RUN) - {f"gpuwright_{name}" for name in of_the_command_line}


@pytest.mark.parametrize(
    ("names", "roles", "told"),
    [
        (["gpu_log_day"], ["gpu_log"], "gpu_log_days"),
        (["cuda_version", "mine"], ["cuda"], "cuda_versions"),
        (["monitoring_adress"], ["monitoring_exporters"], "monitoring_address"),
        (["gpuwright_mirors"], ["watch"], "gpuwright_mirrors"),
        (["gpuwright_full_"], [], "gpuwright_full"),
    ],
)
def test_a_role_used_alone_refuses_its_own_variables_misspelt(names: list[str], roles: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=names[0]) as caught:
        settings.refuse_misspelt(names, roles)
    assert caught.value.suggestions == [f"did you mean {told}?"]


def test_a_role_used_alone_leaves_names_of_others_alone() -> None:
    known = ["gpu_log_days", "gpuwright_plan", "cuda_home", "__gpu_log_x", "ansible_host", "inventory_hostname"]
    settings.refuse_misspelt(known, ["gpu_log", "cuda"])
    # Of another role: whoever uses that one is told.
    settings.refuse_misspelt(["cuda_version"], ["gpu_log"])
