"""MIG: a layout is applied, comes back after a boot by itself, changes, and goes, at the latest with the driver."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

_LARGE = {"all": "3g.40gb,2g.20gb,1g.10gb,1g.10gb"}


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("mig", "h100-ubuntu")


def up(machine: Node, layout: object, *arguments: str, verb: str = "up") -> Run:
    """Run with a layout and the driver alone."""
    wish = machine.inventory.with_name("wish.yml")
    wish.write_text(yaml.safe_dump({"mig_layout": layout}))
    more = ("--yes",) if verb == "up" else ()
    return machine.run(verb, *more, "--want=driver=580", "--wish", str(wish), *arguments)


def instances(machine: Node) -> list[str]:
    """Profiles of the MIG devices, as nvidia-smi lists them."""
    return [line.split()[1] for line in machine.shell("nvidia-smi -L").splitlines() if line.startswith("  MIG ")]


def test_a_layout_that_does_not_fit_is_refused_with_one_that_does(machine: Node) -> None:
    refused = up(machine, {"all": "3g.40gb,3g.40gb,1g.10gb"})
    assert refused.code == 3, str(refused)
    (conflict,) = refused.host["conflicts"]
    assert conflict["rule"] == "mig.layout"
    assert "3g.40gb,3g.40gb" in conflict["remedy"]


def test_a_layout_is_applied_on_a_bare_machine_and_proven(machine: Node) -> None:
    run = up(machine, _LARGE)
    assert run.code == 0, str(run)
    assert "mig" in run.components
    assert sorted(instances(machine)) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert machine.shell("systemctl is-enabled gpuwright-mig").strip() == "enabled"


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(machine: Node) -> None:
    again = up(machine, _LARGE)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = up(machine, _LARGE, "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_the_layout_comes_back_after_a_boot_by_itself(machine: Node) -> None:
    before = machine.shell("systemctl show -p ActiveEnterTimestampMonotonic gpuwright-mig")
    machine.reboot()
    machine.shell("systemctl is-active gpuwright-mig")
    assert machine.shell("systemctl show -p ActiveEnterTimestampMonotonic gpuwright-mig") != before
    assert sorted(instances(machine)) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]


def test_instances_that_somebody_destroyed_are_named_and_made_again(machine: Node) -> None:
    machine.shell("nvidia-smi mig -dci && nvidia-smi mig -dgi")
    checks = {check["id"]: check for check in up(machine, _LARGE, verb="doctor").host["checks"]}
    assert checks["mig.layout"]["status"] == "fail"
    mended = up(machine, _LARGE)
    assert (mended.code, mended.components) == (0, {"mig"}), str(mended)
    assert len(instances(machine)) == 4


def test_another_layout_replaces_it_and_off_takes_it_away(machine: Node) -> None:
    assert up(machine, {"0": ["1g.20gb", "1g.20gb"]}).code == 0
    assert instances(machine) == ["1g.20gb", "1g.20gb"]
    gone = up(machine, {"all": "off"})
    assert gone.code == 0, str(gone)
    assert instances(machine) == []
    assert "<current_mig>Disabled</current_mig>" in machine.shell("nvidia-smi -q -x")
    machine.reboot()
    assert "<current_mig>Disabled</current_mig>" in machine.shell("nvidia-smi -q -x")
    assert up(machine, {"all": "off"}).components == set()


def test_remove_makes_the_cards_whole_before_the_driver_goes(machine: Node) -> None:
    assert up(machine, _LARGE).code == 0
    assert len(instances(machine)) == 4
    # Without the boot, which alone would take the instances of this card.
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)  # 4: the module stays until a boot
    changes = {row["component"]: row for row in gone.host["changes"]}
    assert (changes["mig"]["action"], changes["mig"]["to"]) == ("remove", "MIG off")
    (card,) = json.loads(machine.shell("cat /run/gpuwright-sim/mig.json")).values()
    assert card == {"mode": False, "instances": []}
    assert (
        machine.shell("find /etc /usr/local -name 'gpuwright-mig*' -o -name mig.json -o -path '*/libexec/gpuwright'")
        == ""
    )
    machine.reboot()
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
