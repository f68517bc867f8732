"""What a role's conditions make of facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLES = Path(__file__).resolve().parents[3] / "roles"


def value(role: str, name: str, **variables: Any) -> Any:
    """A variable of a role's vars/main.yml, templated as a play would."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROLES / role / "vars/main.yml"), trusted_as_template=True)
    return Templar(loader=loader, variables={**own, **variables}).template(own[name])


# --- the last look before a reboot ------------------------------------------------------------------------------------

MODULE = {"name": "nvidia", "version": "580.95.05", "license": "Dual MIT/GPL"}


def faults(may_boot: dict[str, Any], modules: str = "open", adopted: bool = False, asked: Any = None) -> list[str]:
    facts = {"kernel": {"may_boot": may_boot}, "driver": {"user_version": "580.95.05"}}
    found: list[str] = value(
        "reboot",
        "__reboot_faults",
        __reboot_seen={"facts": facts},
        __reboot_loadable={"results": asked or []},
        gpuwright_plan={"stack": {"driver": {"modules": modules, "adopted": adopted}}},
    )
    return found


def test_a_reboot_is_allowed_where_every_kernel_that_may_boot_has_the_module() -> None:
    assert faults({"6.12.94": MODULE, "6.12.107": dict(MODULE)}) == []


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "6.12.107 has none"),
        ({**MODULE, "version": "575.57.08"}, "6.12.107 has 575.57.08"),
        ({**MODULE, "license": "NVIDIA"}, "6.12.107 has the proprietary one"),
    ],
)
def test_one_kernel_that_may_boot_without_the_right_module_is_enough_to_stay(module: Any, said: str) -> None:
    (found,) = faults({"6.12.94": MODULE, "6.12.107": module})
    assert said in found


def test_a_driver_that_was_adopted_may_have_either_flavour() -> None:
    assert faults({"6.12.94": {**MODULE, "license": "NVIDIA"}}, adopted=True) == []


def test_a_module_that_modprobe_cannot_load_is_none() -> None:
    asked = [{"rc": 1, "item": {"key": "6.12.94"}, "stderr": "modprobe: FATAL: Module i2c not found"}]
    (found,) = faults({"6.12.94": MODULE}, asked=asked)
    assert "6.12.94" in found
    assert "i2c" in found


def test_a_kernel_that_nobody_knows_is_no_kernel_to_boot() -> None:
    assert faults({})


# --- who goes on after the boot ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "prepared"),
    [
        ({"gpuwright_local": True, "gpuwright_resume": {"command": ["x"]}}, True),
        ({"gpuwright_local": True, "gpuwright_resume": {"refused": "x"}}, False),
        ({"gpuwright_local": True, "gpuwright_resume": {"command": ["x"]}, "gpuwright_no_reboot": True}, False),
        ({"gpuwright_resume": {"command": ["x"]}}, False),
        ({"gpuwright_local": True}, False),
    ],
)
def test_the_role_and_the_record_agree_on_who_goes_on(variables: dict[str, Any], prepared: bool) -> None:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import afterwards

    assert bool(value("reboot", "__reboot_resume", **variables)) is prepared
    assert afterwards.resume(variables)["prepared"] is prepared
