"""Settings of the cards: applied, back after a boot by themselves, mended, refused where a card cannot have them, and taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

_WISH = {"all": {"power_limit": 350, "clocks": "210,1410", "compute_mode": "exclusive_process"}}
_SET = {"power": 350.0, "clocks": [210, 1410], "compute": "Exclusive_Process"}


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("settings", "h100-ubuntu")


def up(machine: Node, cards: object, *arguments: str, verb: str = "up") -> Run:
    """Run with settings and the driver alone."""
    wish = machine.inventory.with_name("wish.yml")
    wish.write_text(yaml.safe_dump({"gpu_settings_cards": cards}))
    more = ("--yes",) if verb == "up" else ()
    return machine.run(verb, *more, "--want=driver=580", "--wish", str(wish), *arguments)


def settings(machine: Node) -> dict[str, Any]:
    """What is set of the only card since the boot."""
    (card,) = json.loads(machine.shell("cat /run/gpuwright-sim/board.json")).values()
    return {name: card[name] for name in _SET if name in card}


def test_settings_are_applied_on_a_bare_machine_and_proven(machine: Node) -> None:
    run = up(machine, _WISH)
    assert run.code == 0, str(run)
    assert "gpu_settings" in run.components
    assert settings(machine) == _SET


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(machine: Node) -> None:
    again = up(machine, _WISH)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    checks = {check["id"]: check for check in up(machine, _WISH, verb="doctor").host["checks"]}
    assert checks["gpu.settings"]["status"] == "pass"
    full = up(machine, _WISH, "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_a_limit_that_the_card_does_not_have_is_refused(machine: Node) -> None:
    refused = up(machine, {"all": {"power_limit": 900}})
    assert refused.code == 3, str(refused)
    (conflict,) = refused.host["conflicts"]
    assert (conflict["rule"], "210 to 700 W" in conflict["text"]) == ("gpu-settings.power-limit", True)


def test_the_settings_come_back_after_a_boot_by_themselves(machine: Node) -> None:
    machine.reboot()
    machine.shell("systemctl is-active gpuwright-gpu-settings")
    assert settings(machine) == _SET


def test_a_limit_that_somebody_changed_is_named_and_set_again(machine: Node) -> None:
    machine.shell("nvidia-smi -pl 600")
    checks = {check["id"]: check for check in up(machine, _WISH, verb="doctor").host["checks"]}
    assert checks["gpu.settings"]["status"] == "fail"
    mended = up(machine, _WISH)
    assert (mended.code, mended.components) == (0, {"gpu_settings"}), str(mended)
    assert settings(machine) == _SET


def test_ecc_waits_for_a_boot_where_the_card_is_held(machine: Node) -> None:
    wish = {"all": {**_WISH["all"], "ecc": False}}
    pending = up(machine, wish, "--no-reboot")
    assert pending.code in (0, 4), str(pending)
    assert "<current_ecc>Enabled</current_ecc>" in machine.shell("nvidia-smi -q -x")
    machine.reboot()
    assert "<current_ecc>Disabled</current_ecc>" in machine.shell("nvidia-smi -q -x")
    assert settings(machine) == _SET
    assert up(machine, wish).components == set()


def test_remove_brings_back_the_defaults_before_the_driver_goes(machine: Node) -> None:
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)
    assert {row["component"] for row in gone.host["changes"]} >= {"gpu_settings"}
    assert settings(machine) == {"power": 700.0, "clocks": None, "compute": "Default"}
    assert json.loads(machine.shell("cat /etc/gpuwright-sim/ecc.json")).popitem()[1] is True
    assert (
        machine.shell(
            "find /etc /usr/local /var/lib/gpuwright -name '*gpu_settings*' -o -name '*gpu-settings*'", check=False
        )
        == ""
    )
    machine.reboot()
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
